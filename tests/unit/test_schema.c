/* test_schema.c - schema text to struct and back: every schema PyTorch ships, each feature's meaning,
 * the exact text of errors, the limits, and failing allocations. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "schema/schema.h"

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

static kiln_schema *parse_n(const char *text, size_t n) {
    kiln_schema *s = NULL;
    if (kiln_schema_parse(&arena, text, n, &s) != KILN_OK)
        fail_msg("%.*s: %s", (int)n, text, kiln_last_error());
    return s;
}

static kiln_schema *parse(const char *text) { return parse_n(text, strlen(text)); }

static char *print(const kiln_schema *s) {
    kiln_sb sb;
    char *text = NULL;
    kiln_sb_init(&sb);
    kiln_schema_print(&sb, s);
    assert_int_equal(kiln_sb_take(&sb, &text), KILN_OK);
    return text;
}

static void prints_as(const char *text, const char *want) {
    char *got = print(parse(text));
    assert_string_equal(got, want);
    kiln_free(got);
}

static void refuses_n(const char *text, size_t n, kiln_status want, const char *message) {
    kiln_schema *s = (kiln_schema *)1;
    kiln_clear_error();
    kiln_status st = kiln_schema_parse(&arena, text, n, &s);
    assert_string_equal(kiln_last_error(), message);
    assert_int_equal(st, want);
    assert_ptr_equal(s, (kiln_schema *)1);
}

static void refuses(const char *text, const char *message) {
    refuses_n(text, strlen(text), KILN_E_PARSE, message);
}

/* -- the list ------------------------------------------------------------------------------------ */

static void every_shipped_schema_round_trips(void **state) {
    (void)state;
    char *text;
    size_t n;
    assert_int_equal(kiln_file_read(KILN_SOURCE_DIR "/ops/aten-schemas-2.13.txt", &text, &n), KILN_OK);
    int lines = 0;
    for (char *line = text, *end; line < text + n; line = end + 1, lines++) {
        end = memchr(line, '\n', (size_t)(text + n - line));
        assert_non_null(end);
        *end = 0;
        prints_as(line, line);
    }
    assert_int_equal(lines, 4374);
    kiln_free(text);
}

/* -- what the parts mean ------------------------------------------------------------------------- */

static void names_have_three_parts(void **state) {
    (void)state;
    kiln_schema *s = parse("aten::add.Tensor(Tensor self) -> Tensor");
    assert_string_equal(s->ns, "aten");
    assert_string_equal(s->name, "add");
    assert_string_equal(s->overload, "Tensor");
    s = parse("silu(Tensor self) -> Tensor");
    assert_string_equal(s->ns, "");
    assert_string_equal(s->name, "silu");
    assert_string_equal(s->overload, "");
    s = parse("aten::random.from(Tensor self, int from, int? to) -> Tensor");
    assert_string_equal(s->overload, "from");
    assert_int_equal(kiln_schema_arg(s, "from"), 1);
    assert_int_equal(kiln_schema_arg(s, "fro"), -1);
}

static void types_nest_as_written(void **state) {
    (void)state;
    kiln_schema *s = parse("f(Tensor?[] a, int[2]? b, (str, t)[] c, Dict(str, Tensor[])(a!) d,"
                           " x.y.Z e) -> ()");
    const kiln_type *a = s->args[0].type, *b = s->args[1].type, *c = s->args[2].type, *d = s->args[3].type;
    assert_int_equal(a->kind, KILN_T_LIST);
    assert_int_equal(a->size, -1);
    assert_int_equal(a->elem->kind, KILN_T_OPTIONAL);
    assert_int_equal(a->elem->elem->kind, KILN_T_TENSOR);
    assert_int_equal(b->kind, KILN_T_OPTIONAL);
    assert_int_equal(b->elem->size, 2);
    assert_int_equal(c->elem->kind, KILN_T_TUPLE);
    assert_int_equal(c->elem->nitems, 2);
    assert_int_equal(c->elem->items[0]->kind, KILN_T_STR);
    assert_string_equal(c->elem->items[1]->name, "t");
    assert_int_equal(d->kind, KILN_T_APPLY);
    assert_string_equal(d->name, "Dict");
    assert_int_equal(d->items[1]->kind, KILN_T_LIST);
    assert_true(d->alias->writes);
    assert_int_equal(s->args[4].type->kind, KILN_T_OTHER);
    assert_string_equal(s->args[4].type->name, "x.y.Z");
    assert_true(s->ret_parens);
    assert_int_equal(s->nrets, 0);
}

static void every_plain_kind_is_told_apart(void **state) {
    (void)state;
    static const kiln_tkind kinds[] = {KILN_T_TENSOR, KILN_T_INT, KILN_T_SYMINT, KILN_T_FLOAT, KILN_T_BOOL,
                                       KILN_T_SCALAR, KILN_T_STR, KILN_T_DTYPE,  KILN_T_OTHER};
    kiln_schema *s = parse("f(Tensor a, int b, SymInt c, float d, bool e, Scalar f, str g,"
                           " ScalarType h, Layout i) -> ()");
    assert_int_equal(s->nargs, 9);
    for (int i = 0; i < s->nargs; i++) assert_int_equal(s->args[i].type->kind, kinds[i]);
}

static void aliases_stand_on_their_own_type(void **state) {
    (void)state;
    kiln_schema *s = parse("f(Tensor(a!)[] a, t[](b) b, t(c -> *) c, Tensor(a! -> b|c)? d) -> Tensor(a|b)");
    assert_null(s->args[0].type->alias);
    assert_string_equal(s->args[0].type->elem->alias->text, "a!");
    assert_true(s->args[0].type->elem->alias->writes);
    assert_string_equal(s->args[1].type->alias->text, "b");
    assert_false(s->args[1].type->alias->writes);
    assert_string_equal(s->args[2].type->alias->text, "c -> *");
    assert_string_equal(s->args[3].type->elem->alias->text, "a! -> b|c");
    assert_string_equal(s->rets[0].type->alias->text, "a|b");
}

static const kiln_default *default_of(const char *value) {
    char text[256];
    snprintf(text, sizeof text, "f(T x=%s) -> ()", value);
    kiln_schema *s = parse(text);
    assert_string_equal(s->args[0].def.text, value);
    return &s->args[0].def;
}

static void defaults_have_values(void **state) {
    (void)state;
    assert_int_equal(parse("f(T x) -> ()")->args[0].def.kind, KILN_DEF_ABSENT);
    assert_int_equal(default_of("None")->kind, KILN_DEF_NONE);
    assert_int_equal(default_of("True")->kind, KILN_DEF_BOOL);
    assert_int_equal(default_of("True")->i, 1);
    assert_int_equal(default_of("False")->i, 0);
    assert_int_equal(default_of("-100")->kind, KILN_DEF_INT);
    assert_int_equal(default_of("-100")->i, -100);
    assert_true(default_of("9223372036854775807")->i == INT64_MAX);
    assert_true(default_of("-9223372036854775808")->i == INT64_MIN);
    assert_int_equal(default_of("1.")->kind, KILN_DEF_FLOAT);
    assert_true(default_of("1.")->f == 1.0);
    assert_true(default_of(".5")->f == 0.5);
    assert_true(default_of("1e-08")->f == 1e-08);
    assert_true(default_of("-2.5E+3")->f == -2500.0);
    assert_true(default_of("1.0000000000000001e-05")->f == 1e-5);
    assert_true(default_of("-inf")->f == -INFINITY);
    assert_true(isnan(default_of("nan")->f));
    assert_int_equal(default_of("contiguous_format")->kind, KILN_DEF_NAME);
    assert_string_equal(default_of("contiguous_format")->s, "contiguous_format");
    assert_string_equal(default_of("infinite")->s, "infinite");
}

static void string_defaults_are_unescaped(void **state) {
    (void)state;
    assert_int_equal(default_of("\"none\"")->kind, KILN_DEF_STR);
    assert_string_equal(default_of("\"none\"")->s, "none");
    assert_string_equal(default_of("\"\"")->s, "");
    assert_string_equal(default_of("'a\"b'")->s, "a\"b");
    assert_string_equal(default_of("\"\\\"\\'\\\\\"")->s, "\"'\\");
    assert_string_equal(default_of("\" \\n\\t\\f\\v\"")->s, " \n\t\f\v");
    assert_string_equal(default_of("\"\\1019\\377\\a\\b\\r\"")->s, "A9\377\a\b\r");
    assert_string_equal(default_of("\"a, b) -> c\"")->s, "a, b) -> c");
}

static void list_defaults_hold_items(void **state) {
    (void)state;
    assert_int_equal(default_of("[]")->kind, KILN_DEF_LIST);
    assert_int_equal(default_of("[]")->nitems, 0);
    const kiln_default *d = default_of("[1, 2, 3, 4, 5, 6, 7, 8, 9]");
    assert_int_equal(d->nitems, 9);
    for (int i = 0; i < 9; i++) assert_int_equal(d->items[i].i, i + 1);
    d = default_of("[[1.5], [], [None, \"x\"]]");
    assert_int_equal(d->nitems, 3);
    assert_true(d->items[0].items[0].f == 1.5);
    assert_int_equal(d->items[2].items[0].kind, KILN_DEF_NONE);
    assert_string_equal(d->items[2].items[1].s, "x");
}

static void star_and_dots_are_kept(void **state) {
    (void)state;
    kiln_schema *s = parse("f(Tensor a, *, int b, int c=1, ...) -> (Tensor x, Tensor, ...)");
    assert_false(s->args[0].kwarg_only);
    assert_true(s->args[1].kwarg_only && s->args[2].kwarg_only);
    assert_true(s->vararg && s->varret && s->ret_parens);
    assert_int_equal(s->nargs, 3);
    assert_int_equal(s->nrets, 2);
    assert_string_equal(s->rets[0].name, "x");
    assert_string_equal(s->rets[1].name, "");
    s = parse("f(...) -> ...");
    assert_true(s->vararg && s->varret && !s->ret_parens);
    prints_as("f(*, int a) -> (...)", "f(*, int a) -> (...)");
    prints_as("f() -> ((int, t))", "f() -> ((int, t))");
}

static void spacing_is_normalised(void **state) {
    (void)state;
    prints_as("  f (\n  Tensor  a ,*,int b = 1\n)->( Tensor x ,Tensor )\n",
              "f(Tensor a, *, int b=1) -> (Tensor x, Tensor)");
    prints_as("f()->int\tr\r\n", "f() -> int r");
}

static void types_compare_without_aliases(void **state) {
    (void)state;
    kiln_schema *s = parse("f(Tensor(a!)[] a, Tensor[] b, SymInt[2]? c, int[2]? d, int[]? e, (int, x.Y) f,"
                           " (SymInt, x.Y) g, (int, x.Z) h, Dict(str, t) i, Dict(str, t, t) j) -> ()");
#define EQ(i, j) kiln_type_eq(s->args[i].type, s->args[j].type)
    assert_true(EQ(0, 1) && EQ(2, 3) && EQ(5, 6) && EQ(8, 8));
    assert_false(EQ(0, 2) || EQ(3, 4) || EQ(5, 7) || EQ(8, 9));
#undef EQ
    bool optional;
    assert_ptr_equal(kiln_type_strip(s->args[2].type, &optional), s->args[2].type->elem);
    assert_true(optional);
    assert_ptr_equal(kiln_type_strip(s->args[0].type, &optional), s->args[0].type);
    assert_false(optional);
    assert_ptr_equal(kiln_type_strip(s->args[0].type, NULL), s->args[0].type);
}

/* -- a schema before other text ------------------------------------------------------------------ */

static kiln_status parse_prefix(const char *text, size_t *used, kiln_schema **out) {
    kiln_source all = {"schema", text, text + strlen(text), 0};
    return kiln_schema_parse_prefix(&arena, &all, text, used, out);
}

static void stops_after(const char *schema, const char *rest) {
    char text[256];
    size_t used = 0;
    kiln_schema *s;
    snprintf(text, sizeof text, "%s%s", schema, rest);
    if (parse_prefix(text, &used, &s)) fail_msg("%s: %s", text, kiln_last_error());
    assert_int_equal(used, strlen(schema));
    char *got = print(s);
    assert_string_equal(got, schema);
    kiln_free(got);
}

static void a_prefix_ends_after_the_returns(void **state) {
    (void)state;
    stops_after("add.Tensor(Tensor self, *, Scalar alpha=1) -> Tensor",
                " : promote(self, other) = self + alpha * other");
    stops_after("f(Tensor self) -> Tensor", "\n     when x == \"a\" = b");
    stops_after("f(Tensor self) -> (Tensor, Tensor)", " : same = a, b");
    stops_after("f(Tensor self) -> Tensor(a)", ": same");
    stops_after("f(Tensor self) -> Tensor[]", "");
    stops_after("f(Tensor self) -> Tensor y", " : same");
    stops_after("f(Tensor self) -> ...", "...");
    stops_after("f(Tensor self) -> ()", "()");
    stops_after("f(Tensor self) -> Tensor", " (x)");
}

static void a_prefix_refuses_what_its_rest_could_not_name(void **state) {
    (void)state;
    const char *twice = "f(int a, int b,\n  int a) -> ()", *ret = "f() -> (int a, int a)";
    kiln_schema *s = NULL;
    size_t used = 7;
    assert_int_equal(parse_prefix(twice, &used, &s), KILN_E_PARSE);
    assert_string_equal(kiln_last_error(), "schema:2:7: expected a new name, but 'a' was used before");
    assert_int_equal(parse_prefix(ret, &used, &s), KILN_E_PARSE);
    assert_string_equal(kiln_last_error(), "schema:1:20: expected a new name, but 'a' was used before");
    const char *row = "map f(Tensor self -> Tensor = self"; /* lines and columns are the whole text's */
    kiln_source file = {"my.ops", row, row + strlen(row), 2};
    assert_int_equal(kiln_schema_parse_prefix(&arena, &file, row + 4, &used, &s), KILN_E_PARSE);
    assert_string_equal(kiln_last_error(), "my.ops:3:19: expected '=', ',' or ')', found '-'");
    assert_null(s);
    assert_int_equal(used, 7);
    assert_int_equal(kiln_schema_arg(parse(twice), "a"), 0);
}

/* -- errors -------------------------------------------------------------------------------------- */

static void malformed_heads_are_named(void **state) {
    (void)state;
    refuses("", "schema:1:1: expected an operator name, found the end of the text");
    refuses("\n  3", "schema:2:3: expected an operator name, found '3'");
    refuses("aten:: add() -> ()", "schema:1:7: expected an operator name after '::', found ' '");
    refuses("aten:add() -> ()", "schema:1:5: expected '(', found ':'");
    refuses("add.() -> ()", "schema:1:5: expected an overload name after '.', found '('");
    refuses("add.a.b() -> ()", "schema:1:6: expected '(', found '.'");
    refuses("add", "schema:1:4: expected '(', found the end of the text");
    refuses("add()", "schema:1:6: expected '->', found the end of the text");
    refuses("add() - > int", "schema:1:7: expected '->', found '-'");
    refuses("add() -> int x y", "schema:1:16: expected the end of the schema, found 'y'");
    refuses("add() -> int\nx", "schema:2:1: expected the end of the schema, found 'x'");
    refuses("caf\xc3\xa9() -> ()", "schema:1:4: expected '(', found byte 0xc3");
}

static void malformed_arguments_are_named(void **state) {
    (void)state;
    refuses("f(", "schema:1:3: expected a type, found the end of the text");
    refuses("f(int)",
            "schema:1:6: expected the name of an argument behind its type, as in 'Tensor x', found ')'");
    refuses("f(int a,)", "schema:1:9: expected a type, found ')'");
    refuses("f(,)", "schema:1:3: expected a type, found ','");
    refuses("f(int a int b)", "schema:1:9: expected '=', ',' or ')', found 'i'");
    refuses("f(int a=1 int b)", "schema:1:11: expected ',' or ')', found 'i'");
    refuses("f(*)", "schema:1:4: expected ',' after '*', found ')'");
    refuses("f(*, ...) -> ()", "schema:1:6: expected a type, found '.'");
    refuses("f(*, int a, *, int b)", "schema:1:13: expected a type, found '*'");
    refuses("f(..., int a)", "schema:1:6: expected ')' after '...', found ','");
    refuses("f(int a=1, int b) -> ()",
            "schema:1:17: expected '=' and a default, as the argument before has one, found ')'");
    prints_as("f(int a=1, *, int b) -> ()", "f(int a=1, *, int b) -> ()");
}

static void malformed_returns_are_named(void **state) {
    (void)state;
    refuses("f() -> ", "schema:1:8: expected a type, found the end of the text");
    refuses("f() -> (int", "schema:1:12: expected ',' or ')', found the end of the text");
    refuses("f() -> (int,)", "schema:1:13: expected a type, found ')'");
    refuses("f() -> (..., int)", "schema:1:12: expected ')' after '...', found ','");
    refuses("f() -> int a=1", "schema:1:13: expected the end of the schema, found '='");
}

static void malformed_types_are_named(void **state) {
    (void)state;
    refuses("f(int?? a)",
            "schema:1:7: expected the name of an argument behind its type, as in 'Tensor x', found '?'");
    refuses("f(int[ a)", "schema:1:7: expected a list size or ']', found ' '");
    refuses("f(int[2 a)", "schema:1:8: expected ']', found ' '");
    refuses("f(int[-1] a)", "schema:1:7: expected a list size or ']', found '-'");
    refuses("f(int[2147483648] a)", "schema:1:7: expected a list size of at most 2147483647");
    refuses("f(a. b)",
            "schema:1:4: expected the name of an argument behind its type, as in 'Tensor x', found '.'");
    refuses("f(() a)", "schema:1:4: expected a type, found ')'");
    refuses("f((int a) b)", "schema:1:8: expected ',' or ')', found 'a'");
    refuses("f(Dict(int a)", "schema:1:12: expected ',' or ')', found 'a'");
    refuses("f(Dict() a)", "schema:1:8: expected a type, found ')'");
    refuses("f(Tensor() a)", "schema:1:10: expected an alias name or '*', found ')'");
    refuses("f(Tensor(a a)", "schema:1:12: expected '|', '!', '->' or ')', found 'a'");
    refuses("f(Tensor(a!!) a)", "schema:1:12: expected '->' or ')', found '!'");
    refuses("f(Tensor(a -> b!) a)", "schema:1:16: expected ')', found '!'");
    refuses("f(Tensor(a|) a)", "schema:1:12: expected an alias name or '*', found ')'");
    refuses("f(Tensor(a)(b) a)",
            "schema:1:12: expected the name of an argument behind its type, as in 'Tensor x', found '('");
}

static void malformed_defaults_are_named(void **state) {
    (void)state;
    refuses("f(int a=)", "schema:1:9: expected a default value, found ')'");
    refuses("f(int a=-)", "schema:1:10: expected a digit, found ')'");
    refuses("f(int a=.)", "schema:1:10: expected a digit, found ')'");
    refuses("f(int a=-x)", "schema:1:10: expected a number after '-'");
    refuses("f(int a=1e)", "schema:1:11: expected the digits of an exponent, found ')'");
    refuses("f(int a=1x)", "schema:1:10: expected ',' or ')', found 'x'");
    refuses("f(int a=9223372036854775808)", "schema:1:9: expected an integer that fits 64 bits");
    refuses("f(int a=-9223372036854775809)", "schema:1:9: expected an integer that fits 64 bits");
    refuses("f(int a=1e999)", "schema:1:9: expected a number that fits a double");
    refuses("f(int a=[1)", "schema:1:11: expected ',' or ']', found ')'");
    refuses("f(int a=[1,])", "schema:1:12: expected a default value, found ']'");
    refuses("f(int a=[", "schema:1:10: expected a default value, found the end of the text");
}

static void malformed_strings_are_named(void **state) {
    (void)state;
    refuses("f(str a=\"x", "schema:1:11: expected '\"' to end the string, found the end of the text");
    refuses("f(str a='x\n'", "schema:1:11: expected \"'\" to end the string, found the end of the line");
    refuses("f(str a=\"\\", "schema:1:11: expected one of n t r f v a b \\ \" ' or octal digits after '\\',"
                            " found the end of the text");
    refuses("f(str a=\"\\q\")",
            "schema:1:11: expected one of n t r f v a b \\ \" ' or octal digits after '\\',"
            " found 'q'");
    refuses("f(str a=\"\\0\")", "schema:1:11: expected an octal escape from 1 to 377");
    refuses("f(str a=\"\\400\")", "schema:1:11: expected an octal escape from 1 to 377");
}

static void nul_bytes_are_refused(void **state) {
    (void)state;
    refuses_n(
        "f(int\0 a) -> ()", 15, KILN_E_PARSE,
        "schema:1:6: expected the name of an argument behind its type, as in 'Tensor x', found byte 0x00");
    refuses_n("f(str a=\"\0\")", 12, KILN_E_PARSE,
              "schema:1:10: expected '\"' to end the string, found byte 0x00");
    refuses_n("f() -> ()\0", 10, KILN_E_PARSE,
              "schema:1:10: expected the end of the schema, found byte 0x00");
}

/* -- limits -------------------------------------------------------------------------------------- */

/* head, then middle n times, then tail. */
static const char *repeat(const char *head, const char *middle, int n, const char *tail) {
    kiln_sb sb;
    char *text;
    kiln_sb_init(&sb);
    kiln_sb_puts(&sb, head);
    for (int i = 0; i < n; i++) kiln_sb_puts(&sb, middle);
    kiln_sb_puts(&sb, tail);
    assert_int_equal(kiln_sb_take(&sb, &text), KILN_OK);
    char *kept = kiln_arena_strndup(&arena, text, strlen(text));
    assert_non_null(kept);
    kiln_free(text);
    return kept;
}

static void over_limit(const char *text, const char *message) {
    refuses_n(text, strlen(text), KILN_E_LIMIT, message);
}

static void nesting_is_limited(void **state) {
    (void)state;
    parse(repeat(repeat("f(", "(", 64, "int"), ")", 64, " a) -> ()"));
    over_limit(repeat(repeat("f(", "(", 65, "int"), ")", 65, " a) -> ()"),
               "schema:1:67: brackets may nest at most 64 deep");
    over_limit(repeat("f(", "(", 30000, ""), "schema:1:67: brackets may nest at most 64 deep");
    parse(repeat("f(int", "[]", 64, " a) -> ()"));
    over_limit(repeat("f(int", "[]", 65, " a) -> ()"), "schema:1:134: brackets may nest at most 64 deep");
    over_limit(repeat("f(int", "[]?", 20000, " a) -> ()"), "schema:1:198: brackets may nest at most 64 deep");
    over_limit(repeat("f((int", "[]", 32, repeat(")", "[]", 32, " a) -> ()")),
               "schema:1:134: brackets may nest at most 64 deep");
    parse(repeat(repeat("f(int a=", "[", 64, ""), "]", 64, ") -> ()"));
    over_limit(repeat("f(int a=", "[", 60000, ""), "schema:1:73: brackets may nest at most 64 deep");
    over_limit(repeat("f(", "Dict(", 65, "int a"), "schema:1:327: brackets may nest at most 64 deep");
}

static const char *many_args(int n) {
    kiln_sb sb;
    kiln_sb_init(&sb);
    for (int i = 0; i < n; i++) kiln_sb_printf(&sb, "%sint a%d", i ? ", " : "", i);
    const char *text = repeat("f(", sb.p, 1, ") -> ()");
    kiln_sb_fini(&sb);
    return text;
}

static void counts_are_limited(void **state) {
    (void)state;
    assert_int_equal(parse(many_args(64))->nargs, 64);
    over_limit(many_args(65), "schema:1:569: a schema may have at most 64 arguments");
    assert_int_equal(parse(repeat("f() -> (int", ", int", 15, ")"))->nrets, 16);
    over_limit(repeat("f() -> (int", ", int", 16, ")"), "schema:1:89: a schema may have at most 16 returns");
}

static void length_is_limited(void **state) {
    (void)state;
    parse(repeat("f() -> ()", " ", KILN_SCHEMA_MAX_TEXT - 9, ""));
    over_limit(repeat("f() -> ()", " ", KILN_SCHEMA_MAX_TEXT - 8, ""),
               "schema:1:65537: a schema may have at most 65536 bytes");
    const char *list = repeat("f(int[] a=[1", ",1", 32000, "]) -> ()");
    assert_int_equal(parse(list)->args[0].def.nitems, 32001);
}

static void a_prefix_is_limited_but_not_its_rest(void **state) {
    (void)state;
    const char *text = repeat("f() -> ()", "x", 100000, "");
    size_t used;
    kiln_schema *s;
    assert_int_equal(parse_prefix(text, &used, &s), KILN_OK);
    assert_int_equal(used, 9);
    text = repeat("f() -> ", "x", 100000, "");
    assert_int_equal(parse_prefix(text, &used, &s), KILN_E_LIMIT);
    assert_string_equal(kiln_last_error(), "schema:1:65537: a schema may have at most 65536 bytes");
    text = repeat("f(\n", " ", 100000, "");
    assert_int_equal(parse_prefix(text, &used, &s), KILN_E_LIMIT);
    assert_string_equal(kiln_last_error(), "schema:2:65534: a schema may have at most 65536 bytes");
}

/* -- failing allocations ------------------------------------------------------------------------- */

static void every_allocation_may_fail(void **state) {
    (void)state;
    const char *text = repeat(
        "aten::f.o(Tensor(a!)[2]? self, Dict(str, (int, x.Y)) d, str s=\"a\\n\", int[] l=[1", ", 1", 200,
        "], Name n=Mean, *, float q=1.5, ...) -> (Tensor(a|b) x, Tensor)");
    int failures = 0;
    for (long nth = 1;; nth++) {
        kiln_arena mine;
        kiln_schema *s = NULL;
        kiln_arena_init(&mine);
        kiln_alloc_fail_after(nth);
        kiln_status st = kiln_schema_parse(&mine, text, strlen(text), &s);
        kiln_alloc_fail_after(0);
        if (st == KILN_OK) {
            char *printed = print(s);
            assert_string_equal(printed, text);
            kiln_free(printed);
            kiln_arena_free(&mine);
            break;
        }
        assert_int_equal(st, KILN_E_NOMEM);
        assert_string_equal(kiln_last_error(), "out of memory");
        assert_null(s);
        kiln_arena_free(&mine);
        failures++;
    }
    assert_true(failures >= 3);
}

static void printing_reports_a_failed_allocation(void **state) {
    (void)state;
    kiln_schema *s = parse(many_args(40));
    for (long nth = 1; nth <= 2; nth++) {
        kiln_sb sb;
        char *text = NULL;
        kiln_sb_init(&sb);
        kiln_alloc_fail_after(nth);
        kiln_schema_print(&sb, s);
        kiln_alloc_fail_after(0);
        assert_int_equal(kiln_sb_take(&sb, &text), KILN_E_NOMEM);
        assert_null(text);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_arena, close_arena)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_shipped_schema_round_trips),
        TEST(names_have_three_parts),
        TEST(types_nest_as_written),
        TEST(every_plain_kind_is_told_apart),
        TEST(aliases_stand_on_their_own_type),
        TEST(defaults_have_values),
        TEST(string_defaults_are_unescaped),
        TEST(list_defaults_hold_items),
        TEST(star_and_dots_are_kept),
        TEST(spacing_is_normalised),
        TEST(types_compare_without_aliases),
        TEST(a_prefix_ends_after_the_returns),
        TEST(a_prefix_refuses_what_its_rest_could_not_name),
        TEST(malformed_heads_are_named),
        TEST(malformed_arguments_are_named),
        TEST(malformed_returns_are_named),
        TEST(malformed_types_are_named),
        TEST(malformed_defaults_are_named),
        TEST(malformed_strings_are_named),
        TEST(nul_bytes_are_refused),
        TEST(nesting_is_limited),
        TEST(counts_are_limited),
        TEST(length_is_limited),
        TEST(a_prefix_is_limited_but_not_its_rest),
        TEST(every_allocation_may_fail),
        TEST(printing_reports_a_failed_allocation),
    };
    return cmocka_run_group_tests_name("schema", tests, NULL, NULL);
}
