/* test_expr.c - the expressions of rows: tokens, precedence, types with their casts, the place and text of
 * errors, limits, and evaluation on the host with known and unknown inputs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "expr/expr.h"

static kiln_arena arena;

static int open_arena(void **state) {
    (void)state;
    kiln_arena_init(&arena);
    return 0;
}

static int close_arena(void **state) {
    (void)state;
    kiln_arena_free(&arena);
    return 0;
}

static void fails_with(kiln_status st, kiln_status want, const char *message) {
    assert_string_equal(kiln_last_error(), message);
    assert_int_equal(st, want);
}

/* -- tokens ---------------------------------------------------------------------------------------- */

static kiln_status lex_all_n(const char *text, size_t n, kiln_sb *out) {
    kiln_lex lx;
    kiln_lex_init(&lx, &arena, "t", text, n, 1);
    for (;;) {
        KILN_TRY(kiln_lex_next(&lx));
        if (lx.tok == KILN_TOK_END) return KILN_OK;
        kiln_sb_printf(out, "%s%s%d:%d ", out->len ? "|" : "", lx.first_on_line ? "^" : "", lx.tok_line,
                       lx.tok_col);
        if (lx.tok == KILN_TOK_STR)
            kiln_sb_printf(out, "\"%s\"", lx.str);
        else if (lx.tok == KILN_TOK_NUM && lx.is_float)
            kiln_sb_f64(out, lx.f);
        else if (lx.tok == KILN_TOK_NUM)
            kiln_sb_printf(out, "%lld", (long long)lx.i);
        else
            kiln_sb_puts(out, lx.str);
    }
}

static void lexes(const char *text, const char *want) {
    kiln_sb sb;
    kiln_sb_init(&sb);
    assert_int_equal(lex_all_n(text, strlen(text), &sb), KILN_OK);
    assert_string_equal(sb.p ? sb.p : "", want);
    kiln_sb_fini(&sb);
}

static void lex_refuses(const char *text, const char *message) {
    kiln_sb sb;
    kiln_sb_init(&sb);
    kiln_status st = lex_all_n(text, strlen(text), &sb);
    kiln_sb_fini(&sb);
    fails_with(st, KILN_E_PARSE, message);
}

static void tokens_know_their_place(void **state) {
    (void)state;
    lexes("", "");
    lexes("a_1 + 2", "^1:1 a_1|1:5 +|1:7 2");
    lexes("a # b\n  c", "^1:1 a|^2:3 c");
    lexes("a<<b<=c", "^1:1 a|1:2 <<|1:4 b|1:5 <=|1:7 c");
    lexes("x**y//z", "^1:1 x|1:2 **|1:4 y|1:5 //|1:7 z");
    lexes("a->b::c..d", "^1:1 a|1:2 ->|1:4 b|1:5 ::|1:7 c|1:8 ..|1:10 d");
    lexes("\t\r a", "^1:4 a");
    lexes("# only a comment", "");
}

static void numbers_and_texts(void **state) {
    (void)state;
    lexes("12 1.5 .5 2. 1e3 1e-3 2.5E+2", "^1:1 12|1:4 1.5|1:8 0.5|1:11 2|1:14 1000|1:18 0.001|1:23 250");
    lexes("9223372036854775807", "^1:1 9223372036854775807");
    lexes("0..1", "^1:1 0|1:2 ..|1:4 1");
    lexes("\"a b\" \"\\\"q\\\\\"", "^1:1 \"a b\"|1:7 \"\"q\\\"");
    lex_refuses("a + 9223372036854775808", "t:1:5: malformed number");
    lex_refuses("1e999", "t:1:1: malformed number");
    lex_refuses("1.2.3", "t:1:1: malformed number");
    lex_refuses("12abc", "t:1:1: no operator between 12 and 'abc'; write 12*abc");
    lex_refuses("0x10", "t:1:1: malformed number");
    lex_refuses("1e+", "t:1:1: malformed number");
    lex_refuses("a\n  \"open", "t:2:3: string without a closing quote");
    lex_refuses("\"a\nb\"", "t:1:1: string without a closing quote");
    lex_refuses("\"a\\\nb\"", "t:1:1: string without a closing quote");
}

static void other_bytes_are_refused(void **state) {
    (void)state;
    kiln_sb sb;
    lex_refuses("a $", "t:1:3: unexpected character '$'");
    lex_refuses("\xc3(", "t:1:1: unexpected character 0xc3"); /* no UTF-8 */
    lex_refuses("\xe2\x82", "t:1:1: unexpected character 0xe2");
    lex_refuses("\x7f", "t:1:1: unexpected character 0x7f");
    lex_refuses("\xc3\xa9", "t:1:1: unexpected character '\xc3\xa9'");
    kiln_sb_init(&sb);
    kiln_status st = lex_all_n("a \0 b", 5, &sb);
    kiln_sb_fini(&sb);
    fails_with(st, KILN_E_PARSE, "t:1:3: unexpected character 0x00");
}

/* -- trees ------------------------------------------------------------------------------------------- */

static kiln_status parse_text(const char *text, const kiln_expr **out) {
    kiln_lex lx;
    kiln_lex_init(&lx, &arena, "t", text, strlen(text), 1);
    KILN_TRY(kiln_lex_next(&lx));
    KILN_TRY(kiln_expr_parse(&lx, out));
    return lx.tok == KILN_TOK_END ? KILN_OK : kiln_lex_fail(&lx, "the end");
}

static const kiln_expr *parse(const char *text) {
    const kiln_expr *e = NULL;
    if (parse_text(text, &e) != KILN_OK) fail_msg("%s: %s", text, kiln_last_error());
    return e;
}

static void reads_as(const char *text, const char *want) {
    kiln_sb infix;
    kiln_sb_init(&infix);
    kiln_expr_print_infix(&infix, parse(text));
    const char *texts[] = {text, want, infix.p};
    for (int k = 0; k < 3; k++) { /* what is printed, either way, reads back as the same */
        kiln_sb sb;
        kiln_sb_init(&sb);
        kiln_expr_print(&sb, parse(texts[k]));
        assert_string_equal(sb.p, want);
        kiln_sb_fini(&sb);
    }
    kiln_sb_fini(&infix);
}

static void parse_refuses(const char *text, kiln_status want, const char *message) {
    const kiln_expr *e = NULL;
    fails_with(parse_text(text, &e), want, message);
}

static void precedence(void **state) {
    (void)state;
    reads_as("a + b * c", "add(a, mul(b, c))");
    reads_as("(a + b) * c", "mul(add(a, b), c)");
    reads_as("a - b - c", "sub(sub(a, b), c)");
    reads_as("a / b // c % d", "mod(floordiv(div(a, b), c), d)");
    reads_as("-a ** 2", "neg(pow(a, 2))");
    reads_as("a ** -b ** c", "pow(a, neg(pow(b, c)))");
    reads_as("-a * ~b", "mul(neg(a), ~(b))");
    reads_as("not(a) & b", "(not and(a, b))");
    reads_as("a | b ^ c & d << e + f", "or(a, xor(b, and(c, shl(d, add(e, f)))))");
    reads_as("a & b == c", "eq(and(a, b), c)");
    reads_as("a < b and c >= d or not e != f", "((lt(a, b) and ge(c, d)) or (not ne(e, f)))");
    reads_as("not a and b", "((not a) and b)");
    reads_as("a ? b : c ? d : e", "select(a, b, select(c, d, e))");
    reads_as("a or b ? c + 1 : d", "select((a or b), add(c, 1), d)");
    reads_as("not not a", "(not (not a))");
    reads_as("a >> 1 > b", "gt(shr(a, 1), b)");
}

static void calls_accesses_and_literals(void **state) {
    (void)state;
    reads_as("max(a, min(b, 1.0))", "max(a, min(b, 1.0))");
    reads_as("f() + g(a, b, c)", "add(f(), g(a, b, c))");
    reads_as("1e30 + 2.5 + 0.1", "add(add(1e+30, 2.5), 0.1)");
    reads_as("mode == \"a \\\"b\\\"\"", "eq(mode, \"a \\\"b\\\"\")");
    reads_as("rhs.m + m", "add(rhs.m, m)");
    reads_as("x[.., i + 1, dim: j] + p[0]", "add(x[.., add(i, 1), dim: j], p[0])");
    reads_as("x[i] else skip", "x[i] else skip");
    reads_as("x[i] else 0 + y", "x[i] else add(0, y)");
    reads_as("min(max(x, min), max)", "min(max(x, min), max)"); /* arguments may be named like primitives */
}

static void nodes_know_their_first_character(void **state) {
    (void)state;
    const kiln_expr *e = parse("  a +\n   -b * 2");
    assert_int_equal(e->line * 100 + e->col, 103);
    assert_int_equal(e->args[1]->line * 100 + e->args[1]->col, 204);
    assert_int_equal(e->args[1]->args[0]->col, 4);
    assert_int_equal(e->args[1]->args[0]->args[0]->col, 5);
    assert_int_equal(e->args[1]->args[1]->col, 9);
}

static void syntax_errors_point_at_the_token(void **state) {
    (void)state;
    parse_refuses("a +", KILN_E_PARSE, "t:1:4: expected an expression, found the end of the row");
    parse_refuses("a + * b", KILN_E_PARSE, "t:1:5: expected an expression, found '*'");
    parse_refuses("(a + b", KILN_E_PARSE, "t:1:7: expected ')', found the end of the row");
    parse_refuses("a\n ? b\n c", KILN_E_PARSE, "t:3:2: expected ':', found 'c'");
    parse_refuses("x[1, 2", KILN_E_PARSE, "t:1:7: expected ']', found the end of the row");
    parse_refuses("f(a b)", KILN_E_PARSE, "t:1:5: expected ')', found 'b'");
    parse_refuses("1 + exp(a, b)", KILN_E_PARSE, "t:1:5: 'exp' takes 1 argument, found 2");
    parse_refuses("hypot(a)", KILN_E_PARSE, "t:1:1: 'hypot' takes 2 arguments, found 1");
    parse_refuses("a.b", KILN_E_PARSE, "t:1:1: only 'rhs' has fields, and 'a' has none");
    parse_refuses("a b", KILN_E_PARSE, "t:1:3: expected the end, found 'b'");
    parse_refuses("0 < a < 1", KILN_E_PARSE,
                  "t:1:7: expected 'and' between two comparisons (they do not chain), found '<'");
    parse_refuses("f(1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17)", KILN_E_PARSE,
                  "t:1:42: expected at most 16 arguments, found '17'");
}

static void repeats(const char *before, const char *unit, int n, const char *after, kiln_status want) {
    const kiln_expr *e = NULL;
    kiln_sb sb;
    kiln_sb_init(&sb);
    kiln_sb_puts(&sb, before);
    for (int k = 0; k < n; k++) kiln_sb_puts(&sb, unit);
    kiln_sb_puts(&sb, after);
    assert_int_equal(parse_text(sb.p, &e), want);
    kiln_sb_fini(&sb);
}

static void depth_is_bounded(void **state) {
    (void)state;
    repeats("", "-", 63, "a", KILN_OK);
    repeats("", "-", 64, "a", KILN_E_LIMIT);
    repeats("", "(", 100000, "", KILN_E_LIMIT);
    repeats("", "a ? ", 100000, "", KILN_E_LIMIT);
    repeats("", "a ? b : ", 100000, "", KILN_E_LIMIT);
    repeats("", "f(", 100000, "", KILN_E_LIMIT);
    repeats("", "x[", 100000, "", KILN_E_LIMIT);
    repeats("a", " ** a", 100000, "", KILN_E_LIMIT);
    repeats("a", " + a", 255, "", KILN_OK); /* chains too: all who walk the tree recurse */
    repeats("a", " + a", 256, "", KILN_E_LIMIT);
    repeats("a", " + a", 100000, "", KILN_E_LIMIT);
}

static kiln_status count_name(void *user, const kiln_expr *e) {
    kiln_sb_printf(user, "%s ", e->name);
    return KILN_OK;
}

static void names_are_visited_everywhere(void **state) {
    (void)state;
    kiln_sb sb;
    kiln_sb_init(&sb);
    const kiln_expr *e = parse("a + f(b, rhs.c) * x[d: e, .., g] else h ? i : \"j\"");
    assert_int_equal(kiln_expr_names(e, count_name, &sb), KILN_OK);
    assert_string_equal(sb.p, "a b c x d e g h i ");
    kiln_sb_fini(&sb);
}

/* -- types ------------------------------------------------------------------------------------------- */

typedef struct names {
    kiln_env env; /* first: find gets it back */
    kiln_dtype x, y;
    bool absent;
    const kiln_expr *again, *half;
} names;

static bool find_name(const kiln_env *env, const char *name, bool rhs, kiln_sym *out) {
    const names *ns = (const names *)env;
    memset(out, 0, sizeof *out);
    if (rhs) return false;
    static const struct {
        const char *name;
        kiln_symkind kind;
        kiln_dtype dtype;
        bool weak;
    } fixed[] = {{"k", KILN_SYM_SCALAR, KILN_I64, true},      {"eps", KILN_SYM_SCALAR, KILN_F64, true},
                 {"flag", KILN_SYM_SCALAR, KILN_BOOL, false}, {"dims", KILN_SYM_LIST, KILN_I64, false},
                 {"mode", KILN_SYM_HOST, KILN_I64, false},    {"at", KILN_SYM_POS, KILN_I64, false}};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (strcmp(name, fixed[i].name) != 0) continue;
        out->kind = fixed[i].kind;
        out->dtype = fixed[i].dtype;
        out->weak = fixed[i].weak;
        out->id = 10 + (int)i;
        return true;
    }
    out->kind = KILN_SYM_ELEM;
    out->dtype = ns->x;
    if (strcmp(name, "x") == 0) return true;
    out->id = 1;
    if (strcmp(name, "y") == 0) return out->dtype = ns->y, true;
    out->optional = true;
    out->absent = ns->absent;
    out->may_be_absent = !ns->absent;
    out->id = 2;
    if (strcmp(name, "w") == 0) return true;
    out->kind = KILN_SYM_LET;
    out->let = strcmp(name, "again") == 0 ? ns->again : ns->half;
    out->optional = out->absent = out->may_be_absent = false;
    return strcmp(name, "again") == 0 || strcmp(name, "half") == 0;
}

static void show(kiln_sb *sb, const kiln_texpr *e) {
    static const char *const kinds[] = {
        [KILN_TE_ELEM] = "elem",     [KILN_TE_SCALAR] = "arg",  [KILN_TE_STATE] = "state",
        [KILN_TE_RHS] = "rhs",       [KILN_TE_POS] = "pos",     [KILN_TE_COUNT] = "count",
        [KILN_TE_CAST] = "cast",     [KILN_TE_ROUND] = "round", [KILN_TE_BLOCK] = "sum",
        [KILN_TE_EXTENT] = "extent", [KILN_TE_ACCESS] = "at"};
    const char *type = kiln_dtype_name(e->dtype);
    if (e->kind == KILN_TE_CONST) {
        if (kiln_dtype_is_float(e->dtype))
            kiln_sb_f64(sb, e->f);
        else
            kiln_sb_printf(sb, "%lld", (long long)e->i);
        kiln_sb_printf(sb, ":%s", type);
        return;
    }
    kiln_sb_puts(sb, e->kind == KILN_TE_PRIM ? kiln_prim_name(e->prim) : kinds[e->kind]);
    if (e->kind != KILN_TE_PRIM && e->kind != KILN_TE_CAST && e->kind != KILN_TE_BLOCK)
        kiln_sb_printf(sb, "%d", e->id);
    if (e->index >= 0) kiln_sb_printf(sb, "[%d]", e->index);
    kiln_sb_printf(sb, ":%s", type);
    for (int k = 0; k < e->nargs; k++) {
        kiln_sb_puts(sb, k ? ", " : "(");
        if (e->args[k]) show(sb, e->args[k]);
    }
    if (e->nargs) kiln_sb_putc(sb, ')');
}

static names env_of(kiln_dtype x, kiln_dtype y) {
    names ns = {.x = x, .y = y};
    ns.env = (kiln_env){
        .find = find_name, .compute = kiln_dtype_compute(x), .common = x, .source = "t", .arena = &arena};
    ns.again = parse("again + x");
    ns.half = parse("x * 0.5");
    return ns;
}

static void types_as(names *ns, const char *text, kiln_dtype want_type, const char *want) {
    const kiln_texpr *e = NULL;
    kiln_sb sb;
    if (kiln_expr_type(&ns->env, parse(text), want_type, &e) != KILN_OK)
        fail_msg("%s: %s", text, kiln_last_error());
    kiln_sb_init(&sb);
    show(&sb, e);
    if (e->weak) kiln_sb_puts(&sb, " weak");
    assert_string_equal(sb.p, want);
    kiln_sb_fini(&sb);
}

static void type_refuses_as(names *ns, kiln_status want, const char *text, const char *message) {
    const kiln_texpr *e = NULL;
    fails_with(kiln_expr_type(&ns->env, parse(text), KILN_DTYPE_COUNT, &e), want, message);
}

static void type_refuses(names *ns, const char *text, const char *message) {
    type_refuses_as(ns, KILN_E_TYPE, text, message);
}

#define OWN KILN_DTYPE_COUNT

static void weak_numbers_take_the_type_they_meet(void **state) {
    (void)state;
    names f = env_of(KILN_F32, KILN_F32), i = env_of(KILN_I16, KILN_I16);
    types_as(&f, "1 + x", OWN, "add:f32(1:f32, elem0:f32)");
    types_as(&f, "x * 0.5", OWN, "mul:f32(elem0:f32, 0.5:f32)");
    types_as(&i, "x + 1", OWN, "add:i16(elem0:i16, 1:i16)");
    types_as(&i, "x + 2.0", OWN, "add:i16(elem0:i16, 2:i16)"); /* a whole number however written */
    types_as(&i, "x - -1", OWN, "sub:i16(elem0:i16, -1:i16)");
    types_as(&f, "x * k", OWN, "mul:f32(elem0:f32, arg10:f32)");
    types_as(&i, "x * k", OWN, "mul:i16(elem0:i16, arg10:i16)");
    types_as(&f, "x + eps", OWN, "add:f32(elem0:f32, arg11:f32)");
    types_as(&f, "x + dims[1]", OWN, "add:f32(elem0:f32, arg13[1]:f32)");
    types_as(&f, "1 + 2", OWN, "add:i64(1:i64, 2:i64) weak");
    types_as(&f, "1 / 2", OWN, "div:f64(1:f64, 2:f64) weak");
    types_as(&f, "x * (1 / 3)", OWN, "mul:f32(elem0:f32, cast:f32(div:f64(1:f64, 3:f64)))");
    types_as(&f, "1 + 0.5", KILN_F32, "cast:f32(add:f64(1:f64, 0.5:f64))");
    types_as(&f, "pi", KILN_F32, "3.141592653589793:f32");
    types_as(&f, "-inf", KILN_F32, "-inf:f32");
}

static void weak_numbers_never_change_their_value(void **state) {
    (void)state;
    names u = env_of(KILN_U8, KILN_U8), b = env_of(KILN_BOOL, KILN_BOOL), i = env_of(KILN_I32, KILN_I32);
    types_as(&u, "x + 255", OWN, "add:u8(elem0:u8, 255:u8)");
    type_refuses(&u, "x + 256", "t:1:5: the number 256 does not fit the type u8");
    type_refuses(&u, "max(x, -1)", "t:1:8: the number -1 does not fit the type u8");
    type_refuses(&b, "x + 2", "t:1:5: the number 2 does not fit the type bool");
    type_refuses(&i, "x < 4000000000", "t:1:5: the number 4000000000 does not fit the type i32");
    type_refuses(&i, "x * 0.5", "t:1:1: a floating number meets the type i32; does the row need to_float?");
    type_refuses(&i, "x + 1e300", "t:1:1: a floating number meets the type i32; does the row need to_float?");
    type_refuses(&i, "x + inf", "t:1:1: a floating number meets the type i32; does the row need to_float?");
    type_refuses(&i, "x == eps", "t:1:1: a floating number meets the type i32; does the row need to_float?");
    type_refuses(&i, "max(lowest, eps * 2)",
                 "t:1:1: a floating number meets the type i32; does the row need to_float?");
    type_refuses(&i, "dims[99999] + x",
                 "t:1:1: an item of the list 'dims' is written dims[k] with a whole number k");
}

static void strong_operands_promote(void **state) {
    (void)state;
    names a = env_of(KILN_F32, KILN_I64), b = env_of(KILN_U8, KILN_I8), c = env_of(KILN_F64, KILN_F32);
    types_as(&a, "x + y", OWN, "add:f32(elem0:f32, cast:f32(elem1:i64))");
    types_as(&b, "x + y", OWN, "add:i16(cast:i16(elem0:u8), cast:i16(elem1:i8))");
    types_as(&c, "x < y", OWN, "lt:bool(elem0:f64, cast:f64(elem1:f32))");
    types_as(&a, "flag ? x : y", OWN, "select:f32(arg12:bool, elem0:f32, cast:f32(elem1:i64))");
    types_as(&a, "x ? 1 : 0", KILN_I64, "select:i64(cast:bool(elem0:f32), 1:i64, 0:i64)");
    types_as(&a, "y", KILN_F32, "cast:f32(elem1:i64)");
}

static void bool_has_sums_and_products(void **state) {
    (void)state;
    names b = env_of(KILN_BOOL, KILN_BOOL);
    types_as(&b, "x + y", OWN, "add:bool(elem0:bool, elem1:bool)");
    types_as(&b, "x * y", OWN, "mul:bool(elem0:bool, elem1:bool)");
    types_as(&b, "x & 1", OWN, "and:bool(elem0:bool, 1:bool)");
    types_as(&b, "max(x, y)", OWN, "max:bool(elem0:bool, elem1:bool)");
    type_refuses(&b, "x - y", "t:1:1: 'sub' does not take bool");
    type_refuses(&b, "-x", "t:1:1: 'neg' does not take bool");
}

static void logic_makes_operands_bool(void **state) {
    (void)state;
    names f = env_of(KILN_F32, KILN_I64);
    types_as(&f, "x and not y", OWN, "and:bool(cast:bool(elem0:f32), not:bool(cast:bool(elem1:i64)))");
    types_as(&f, "true or flag", OWN, "or:bool(1:bool, arg12:bool)");
    types_as(&f, "bool(x) ^ bool(y)", OWN, "xor:bool(cast:bool(elem0:f32), cast:bool(elem1:i64))");
}

static void primitives_take_their_types_only(void **state) {
    (void)state;
    names f = env_of(KILN_F32, KILN_F32), i = env_of(KILN_I32, KILN_I32);
    type_refuses(&i, "1 + exp(x)", "t:1:5: 'exp' does not take i32");
    type_refuses(&i, "x / y", "t:1:1: 'div' does not take i32");
    type_refuses(
        &f, "x & y",
        "t:1:1: 'and' does not take f32; '&' is for bool and integers, and conditions are joined by 'and'");
    type_refuses(&f, "~x", "t:1:1: 'not' does not take f32");
    types_as(&f, "exponent(x)", OWN, "exponent:i32(elem0:f32)");
    types_as(&i, "exp(2)", KILN_F32, "cast:f32(exp:f64(2:f64))");
}

static void casts_are_to_compute_types(void **state) {
    (void)state;
    names h = env_of(KILN_F32, KILN_I32); /* as for f16 elements, which are computed in f32 */
    types_as(&h, "i64(x)", OWN, "cast:i64(elem0:f32)");
    types_as(&h, "compute(at) + x", OWN, "add:f32(cast:f32(pos15:i64), elem0:f32)");
    types_as(&h, "i64(eps)", OWN, "cast:i64(arg11:f64)");
    types_as(&h, "lowest", OWN, "-inf:f32");
    names i = env_of(KILN_I8, KILN_I8), l = env_of(KILN_I64, KILN_I64), u = env_of(KILN_U8, KILN_U8);
    types_as(&i, "highest", OWN, "127:i8");
    types_as(&l, "lowest", OWN, "-9223372036854775808:i64");
    types_as(&u, "lowest + highest", OWN, "add:u8(0:u8, 255:u8)");
    types_as(&h, "f16(y)", OWN, "round6:f32(cast:f32(elem1:i32))");
    type_refuses(&h, "x + i64(x, y)", "t:1:5: 'i64' takes 1 argument, found 2");
}

static void names_that_do_not_fit(void **state) {
    (void)state;
    names f = env_of(KILN_F32, KILN_F32);
    type_refuses_as(&f, KILN_E_PARSE, "x + nosuch", "t:1:5: unknown name 'nosuch'");
    type_refuses_as(&f, KILN_E_PARSE, "x +\n  rhs.x", "t:2:3: unknown name 'rhs.x'");
    type_refuses(&f, "x + mode", "t:1:5: 'mode' is not a number");
    type_refuses(&f, "x + \"a\"", "t:1:5: a string is not a number");
    type_refuses(&f, "x + dims", "t:1:5: 'dims' is a list: write dims[k]");
    type_refuses_as(&f, KILN_E_PARSE, "frob(x)", "t:1:1: unknown function 'frob'");
    type_refuses_as(&f, KILN_E_PARSE, "3.5 & sinn(x)",
                    "t:1:7: unknown function 'sinn'; did you mean 'sin'?"); /* before types */
    type_refuses_as(&f, KILN_E_PARSE, "where(x, x, x)",
                    "t:1:1: unknown function 'where'; write 'condition ? a : b'");
    type_refuses(&f, "sum(x)",
                 "t:1:1: sum(...) may stand only in a block clause; a fold adds up elements: "
                 "'fold my::total(Tensor x) -> Tensor : takes float = acc + x from 0'");
    type_refuses(&f, "max(x)", "t:1:1: 'max' takes 2 arguments, found 1; of a block, 1 in a block clause");
    type_refuses(&f, "k[0]", "t:1:1: 'k' is not a tensor");
    type_refuses(&f, "x[x]", "t:1:3: a coordinate must be an integer");
}

static void optionals(void **state) {
    (void)state;
    names f = env_of(KILN_F32, KILN_F32);
    type_refuses(&f, "x + w",
                 "t:1:5: optional argument 'w' is used where it may be absent; use or_else or a when");
    types_as(&f, "x * or_else(w, 1)", OWN, "mul:f32(elem0:f32, elem2:f32)");
    type_refuses(&f, "or_else(x, 1)", "t:1:9: 'x' is not an optional tensor or number");
    type_refuses(&f, "or_else(half, 1)", "t:1:9: 'half' is not an optional tensor or number");
    type_refuses(&f, "or_else(dims, 1)", "t:1:9: 'dims' is not an optional tensor or number");
    type_refuses(&f, "or_else(1, w)", "t:1:1: or_else takes the name of an optional argument and a value");
    f.absent = true;
    types_as(&f, "x * or_else(w, 1)", OWN, "mul:f32(elem0:f32, 1:f32)");
}

static void lets_expand_within_bounds(void **state) {
    (void)state;
    names f = env_of(KILN_F32, KILN_F32);
    types_as(&f, "half + 1", OWN, "add:f32(mul:f32(elem0:f32, 0.5:f32), 1:f32)");
    type_refuses(&f, "1 + again", "t:1:1: 'again' is defined by itself");
}

/* -- the host ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    kiln_hval value;
} values[] = {
    {"two", {.kind = KILN_H_INT, .i = 2, .f = 2, .dtype = KILN_I64}},
    {"half", {.kind = KILN_H_FLOAT, .f = 0.5, .dtype = KILN_F64}},
    {"yes", {.kind = KILN_H_BOOL, .i = 1, .f = 1, .dtype = KILN_BOOL}},
    {"least", {.kind = KILN_H_INT, .i = INT64_MIN, .f = -0x1p63, .dtype = KILN_I64}},
    {"notnum", {.kind = KILN_H_FLOAT, .f = NAN, .dtype = KILN_F64}},
    {"mode", {.kind = KILN_H_STR, .s = "floor", .dtype = KILN_DTYPE_COUNT}},
    {"none", {.kind = KILN_H_NONE, .dtype = KILN_DTYPE_COUNT}},
    {"t", {.kind = KILN_H_TENSOR, .i = 3, .dtype = KILN_F32}},
    {"list", {.kind = KILN_H_LIST, .i = 2, .dtype = KILN_DTYPE_COUNT}},
    {"u", {.kind = KILN_H_UNKNOWN, .dtype = KILN_DTYPE_COUNT}},
    {"maybe", {.kind = KILN_H_UNKNOWN, .present_unknown = true, .dtype = KILN_DTYPE_COUNT}},
    {"flat", {.kind = KILN_H_COMPLEX, .f = 2, .dtype = KILN_C128}},
    {"turned", {.kind = KILN_H_COMPLEX, .f = 2, .im = 1, .dtype = KILN_C128}},
};

static void get(const kiln_henv *env, int arg, kiln_hval *out) {
    (void)env;
    *out = values[arg].value;
}

static bool item(const kiln_henv *env, int arg, int64_t k, kiln_hval *out) {
    (void)env;
    *out = (kiln_hval){.kind = KILN_H_INT, .i = 10 + k, .f = (double)(10 + k), .dtype = KILN_I64};
    return strcmp(values[arg].name, "list") == 0 && k >= 0 && k < 2;
}

static bool size(const kiln_henv *env, int arg, int64_t dim, int64_t *out) {
    (void)env;
    *out = arg * 100 + dim;
    return dim < 4;
}

/* knot means itself, twice. */
static int find_for_host(void *user, const char *name, const kiln_expr **means) {
    const kiln_expr *const *named = user;
    if (strcmp(name, "named") == 0) *means = named[0];
    if (strcmp(name, "knot") == 0) *means = named[1];
    for (int k = 0; k < (int)(sizeof values / sizeof *values); k++)
        if (strcmp(values[k].name, name) == 0) return k;
    return -1;
}

static const kiln_expr *for_host(const char *text) {
    const kiln_expr *named[] = {parse("two * two + 1"), parse("knot + knot")}, *e = parse(text);
    kiln_expr_resolve(named[0], find_for_host, named);
    kiln_expr_resolve(named[1], find_for_host, named);
    kiln_expr_resolve(e, find_for_host, named);
    return e;
}

static kiln_dtype dtype(const kiln_henv *env, int arg) {
    (void)env;
    return values[arg].value.dtype;
}

/* Tensors lie row by row, and given ones as channels_last. */
static bool contiguous(const kiln_henv *env, int arg, bool channels_last) {
    (void)env;
    return channels_last == (arg < 0);
}

static const kiln_henv host = {.get = get,
                               .item = item,
                               .size = size,
                               .dtype = dtype,
                               .contiguous = contiguous,
                               .common = KILN_U8,
                               .given = KILN_F64,
                               .in_place = 1,
                               .out_form = -1,
                               .source = "t"};

static void gives(const char *text, const char *want) {
    kiln_hval v = {0};
    kiln_sb sb;
    if (kiln_expr_eval(&host, for_host(text), &v) != KILN_OK) fail_msg("%s: %s", text, kiln_last_error());
    kiln_sb_init(&sb);
    if (v.kind == KILN_H_UNKNOWN)
        kiln_sb_puts(&sb, "unknown");
    else if (v.kind == KILN_H_BOOL)
        kiln_sb_puts(&sb, v.i ? "true" : "false");
    else if (v.kind == KILN_H_FLOAT)
        kiln_sb_f64(&sb, v.f);
    else if (v.kind == KILN_H_INT)
        kiln_sb_printf(&sb, "%lldi", (long long)v.i);
    else
        kiln_sb_printf(&sb, "kind %d", (int)v.kind);
    assert_string_equal(sb.p, want);
    kiln_sb_fini(&sb);
}

static void host_refuses(const char *text, kiln_status want, const char *message) {
    kiln_hval v = {0};
    fails_with(kiln_expr_eval(&host, for_host(text), &v), want, message);
}

static void host_numbers(void **state) {
    (void)state;
    gives("two + 3 * 4", "14i");
    gives("two / 4", "0.5");
    gives("-7 // two", "-4i");
    gives("-7 % two", "1i");
    gives("idiv(-7, two)", "-3i");
    gives("least // -1", "-9223372036854775808i"); /* wraps, as kernels do */
    gives("idiv(least, -1)", "-9223372036854775808i");
    gives("-least", "-9223372036854775808i");
    gives("abs(least)", "-9223372036854775808i");
    gives("two + half", "2.5");
    gives("max(two, 3)", "3i");
    gives("min(half, notnum)", "nan");
    gives("floor(2.7)", "2");
    gives("isinf(inf)", "true");
    gives("yes + yes", "2i");
    gives("list[1] + size(t, 2)", "313i");
    gives("len(list)", "2i");
    gives("named", "5i");
    gives("named > 4 ? 1 : 1 // 0", "1i");
}

static void host_comparisons(void **state) {
    (void)state;
    gives("two >= 2 and two <= 2 and not two < 2 and not two > 2", "true");
    gives("two == 2.0", "true");
    gives("least == least + 1", "false"); /* integers compare exactly, not as doubles */
    gives("notnum == notnum", "false");
    gives("notnum != notnum", "true");
    gives("notnum >= 0", "false");
    gives("mode == \"floor\"", "true");
    gives("mode != \"trunc\"", "true");
    gives("none == \"floor\"", "false");
    gives("true != false", "true");
    gives("flat == 2 and turned != 2 and flat != turned", "true");
    gives("flat >= 2 and not flat > 2 and 1 / flat == 0.5", "true"); /* a real number by another name */
    host_refuses("1 < turned", KILN_E_ARG, "t:1:5: expected a real number, found a complex one");
    host_refuses("abs(turned)", KILN_E_ARG, "t:1:5: expected a real number, found a complex one");
    host_refuses("mode < \"a\"", KILN_E_TYPE, "t:1:1: cannot order these values");
    host_refuses("1 == 1 and t == 1", KILN_E_TYPE, "t:1:12: cannot compare a tensor or a list");
    host_refuses("list == 1", KILN_E_TYPE, "t:1:1: cannot compare a tensor or a list");
}

static void host_questions(void **state) {
    (void)state;
    gives("present(two)", "true");
    gives("present(none) or absent(two)", "false");
    gives("is_int(common) and not is_float(common) and not is_bool(common)", "true");
    gives("is_float(t)", "true");
    gives("is_int(two) and is_float(half) and is_bool(yes)", "true");
    gives("is_int(none)", "false");
    gives("in_place and common == u8", "true");
    gives("out_form", "false");
    gives("given == f64 and is_float(given) and not is_int(given)", "true");
    gives("contiguous(t) and not channels_last(t)", "true");
    gives("contiguous(given)", "false");
    gives("channels_last(given)", "true");
    gives("contiguous(u)", "unknown");
    host_refuses("contiguous(two)", KILN_E_TYPE, "t:1:1: contiguous takes a tensor");
    gives("same_dtype(list, list)", "true");
    gives("same_dtype(u, list)", "unknown");
    gives("same_dtype(u8, u8) and not same_dtype(f32, list)", "true");
    host_refuses("same_dtype(list)", KILN_E_TYPE, "t:1:1: same_dtype takes two arguments or more");
    host_refuses("same_dtype(t, list)", KILN_E_TYPE, "t:1:1: same_dtype takes lists and dtypes");
    host_refuses("is_int(list)", KILN_E_TYPE, "t:1:1: 'is_int' takes a tensor, a number or common");
    host_refuses("is_int(mode)", KILN_E_TYPE, "t:1:1: 'is_int' takes a tensor, a number or common");
}

static void unknowns_spread_only_where_they_matter(void **state) {
    (void)state;
    gives("u", "unknown");
    gives("u + 1", "unknown");
    gives("u > 0 and false", "false");
    gives("false and u > 0", "false");
    gives("u > 0 or true", "true");
    gives("u > 0 or false", "unknown");
    gives("not u", "unknown");
    gives("u ? 1 : 2", "unknown");
    gives("true ? 1 : u", "1i");
    gives("is_int(u)", "unknown");
    gives("present(u)", "true"); /* not an optional */
    gives("present(maybe)", "unknown");
    gives("maybe == \"floor\"", "unknown");
    gives("size(u, 0)", "unknown");
    gives("len(u)", "unknown");
}

static void what_stops_early_is_not_evaluated(void **state) {
    (void)state;
    gives("false and nosuch", "false");
    gives("true or 1 // 0", "true");
    gives("true ? 1 : nosuch", "1i");
    kiln_hval v;
    fails_with(kiln_expr_eval_every(&host, for_host("false and nosuch"), &v), KILN_E_PARSE,
               "t:1:11: unknown name 'nosuch'");
    fails_with(kiln_expr_eval_every(&host, for_host("true or u > nosuch"), &v), KILN_E_PARSE,
               "t:1:13: unknown name 'nosuch'");
    fails_with(kiln_expr_eval_every(&host, for_host("true ? 1 : nosuch"), &v), KILN_E_PARSE,
               "t:1:12: unknown name 'nosuch'");
    assert_int_equal(kiln_expr_eval_every(&host, for_host("u > 0 and false"), &v), KILN_OK);
    assert_true(v.kind == KILN_H_BOOL && !v.i);
}

static void host_errors(void **state) {
    (void)state;
    host_refuses("1 + nosuch", KILN_E_PARSE, "t:1:5: unknown name 'nosuch'");
    host_refuses("two + 1 // (1 - 1)", KILN_E_DIVZERO, "t:1:7: division by zero");
    host_refuses("two + mode", KILN_E_TYPE, "t:1:7: expected a number");
    host_refuses("mode and true", KILN_E_TYPE, "t:1:1: expected a truth value");
    host_refuses("mode ? 1 : 2", KILN_E_TYPE, "t:1:1: expected a truth value");
    host_refuses("prsent(two)", KILN_E_PARSE, "t:1:1: unknown function 'prsent'");
    host_refuses("present(two, two)", KILN_E_TYPE, "t:1:1: 'present' takes 1 argument(s), found 2");
    host_refuses("exp(u)", KILN_E_TYPE, "t:1:1: 'exp' cannot be computed before the call");
    host_refuses("u + rhs.x", KILN_E_TYPE, "t:1:5: rhs.x is not known before the call");
    host_refuses("list[2]", KILN_E_INDEX, "t:1:1: 'list' has no such item");
    host_refuses("size(t, 4)", KILN_E_INDEX, "t:1:1: dimension 4 is out of range");
    host_refuses("size(two, 0)", KILN_E_TYPE, "t:1:1: size takes a tensor and a dimension");
    host_refuses("len(two)", KILN_E_TYPE, "t:1:1: len takes a list");
    host_refuses("rank(two)", KILN_E_TYPE, "t:1:1: rank takes a tensor");
    host_refuses("single(two)", KILN_E_TYPE, "t:1:1: single takes a tensor");
    host_refuses("fits(mode)", KILN_E_TYPE, "t:1:1: fits takes a number");
    kiln_hval v;
    assert_int_equal(kiln_expr_eval(&host, for_host("knot"), &v), KILN_E_LIMIT);
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, open_arena, close_arena)
    const struct CMUnitTest tests[] = {
        T(tokens_know_their_place),
        T(numbers_and_texts),
        T(other_bytes_are_refused),
        T(precedence),
        T(calls_accesses_and_literals),
        T(nodes_know_their_first_character),
        T(syntax_errors_point_at_the_token),
        T(depth_is_bounded),
        T(names_are_visited_everywhere),
        T(weak_numbers_take_the_type_they_meet),
        T(weak_numbers_never_change_their_value),
        T(strong_operands_promote),
        T(bool_has_sums_and_products),
        T(logic_makes_operands_bool),
        T(primitives_take_their_types_only),
        T(casts_are_to_compute_types),
        T(names_that_do_not_fit),
        T(optionals),
        T(lets_expand_within_bounds),
        T(host_numbers),
        T(host_comparisons),
        T(host_questions),
        T(unknowns_spread_only_where_they_matter),
        T(what_stops_early_is_not_evaluated),
        T(host_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
