/* expr_parse.c - expression text -> tree, by precedence climbing, and the tree back to text.
 *
 *   ?:  <  or  <  and  <  not  <  comparisons  <  |  <  ^  <  &  <  << >>  <  + -  <  * / // %  <  unary  <  **
 * Depth is bounded.  Knows names only as text. */
#include <stdio.h>
#include <string.h>

#include "expr/expr.h"

typedef struct parser {
    kiln_lex *lx;
    int depth;
} parser;

static kiln_status parse_cond(parser *ps, const kiln_expr **out);

static kiln_expr *node(parser *ps, kiln_ekind kind) {
    kiln_expr *e = kiln_arena_alloc(ps->lx->arena, sizeof *e);
    if (!e) return NULL;
    e->kind = kind;
    e->line = ps->lx->tok_line;
    e->col = ps->lx->tok_col;
    e->height = 1;
    e->arg = -1;
    return e;
}

/* A chain such as a + b + c needs no deep recursion to be read, but all who walk the tree recurse. */
static kiln_status grow(parser *ps, kiln_expr *e, const kiln_expr *below) {
    if (below->height >= e->height) e->height = below->height + 1;
    if (e->height <= KILN_EXPR_MAX_HEIGHT) return KILN_OK;
    return KILN_FAIL_LINE(KILN_E_LIMIT, ps->lx->source, e->line, e->col, "expression has more than %d levels",
                          KILN_EXPR_MAX_HEIGHT);
}

static kiln_status make(parser *ps, kiln_ekind kind, kiln_prim prim, const kiln_expr *const *args, int n,
                        kiln_expr **out) {
    kiln_expr *e = node(ps, kind);
    const kiln_expr **copy = kiln_arena_alloc(ps->lx->arena, (size_t)n * sizeof *copy);
    if (!e || !copy) return KILN_NOMEM();
    memcpy(copy, args, (size_t)n * sizeof *copy);
    e->prim = prim;
    e->args = copy;
    e->nargs = n;
    e->line = args[0]->line;
    e->col = args[0]->col;
    for (int k = 0; k < n; k++) KILN_TRY(grow(ps, e, args[k]));
    *out = e;
    return KILN_OK;
}

/* -- coordinates and calls -------------------------------------------------------------------------- */

enum { MAX_LIST = 16 };

static kiln_status parse_coord(parser *ps, kiln_coord *out) {
    memset(out, 0, sizeof *out);
    KILN_TRY(kiln_lex_accept(ps->lx, "..", &out->rest));
    if (out->rest) return KILN_OK;
    KILN_TRY(parse_cond(ps, &out->at));
    bool named;
    KILN_TRY(kiln_lex_accept(ps->lx, ":", &named));
    if (!named) return KILN_OK;
    out->dim = out->at;
    return parse_cond(ps, &out->at);
}

static kiln_status parse_access(parser *ps, kiln_expr *e) {
    e->kind = KILN_X_ACCESS;
    e->coord = kiln_arena_alloc(ps->lx->arena, MAX_LIST * sizeof *e->coord);
    if (!e->coord) return KILN_NOMEM();
    bool more = true;
    while (more) {
        if (e->ncoord == MAX_LIST) return kiln_lex_fail(ps->lx, "at most 16 coordinates");
        kiln_coord *c = &e->coord[e->ncoord++];
        KILN_TRY(parse_coord(ps, c));
        if (c->dim) KILN_TRY(grow(ps, e, c->dim));
        if (c->at) KILN_TRY(grow(ps, e, c->at));
        KILN_TRY(kiln_lex_accept(ps->lx, ",", &more));
    }
    KILN_TRY(kiln_lex_expect(ps->lx, "]"));
    bool otherwise;
    KILN_TRY(kiln_lex_accept(ps->lx, "else", &otherwise));
    if (!otherwise) return KILN_OK;
    KILN_TRY(kiln_lex_accept(ps->lx, "skip", &e->skip));
    if (e->skip) return KILN_OK;
    KILN_TRY(parse_cond(ps, &e->other));
    return grow(ps, e, e->other);
}

/* Which word of conditions e spells.  A row may use the same name for something of its own, which then counts. */
static void find_word(kiln_lex *lx, kiln_expr *e, bool is_function) {
    static const struct {
        const char *name;
        bool is_function, untraced;
    } words[] = {
        {"", false, false},
#define W(name, is_function, untraced) {#name, is_function, untraced},
#include "expr/words.def"
#undef W
    };
    for (size_t k = 1; k < sizeof words / sizeof *words; k++)
        if (words[k].is_function == is_function && strcmp(words[k].name, e->name) == 0)
            e->word = (kiln_word)k;
    if (words[e->word].untraced && !lx->untraced) lx->untraced = words[e->word].name;
    for (int t = 0; t < KILN_DTYPE_COUNT && !is_function; t++) {
        if (strcmp(kiln_dtype_name((kiln_dtype)t), e->name) != 0) continue;
        e->word = KILN_WORD_DTYPE_NAME;
        e->i = t;
    }
}

/* is_int holds for the limited types too. */
static kiln_dtypes dtypes_asked(kiln_word word) {
    kiln_dtypes set = 0;
    for (int t = 0; t < KILN_DTYPE_COUNT; t++) {
        kiln_dkind kind = kiln_dtype_kind((kiln_dtype)t);
        bool is = (word == KILN_WORD_is_bool && kind == KILN_KIND_BOOL) ||
                  (word == KILN_WORD_is_int && kind == KILN_KIND_INT) ||
                  (word == KILN_WORD_is_unsigned && kiln_dtype_is_limited((kiln_dtype)t)) ||
                  (word == KILN_WORD_is_float && kind == KILN_KIND_FLOAT) ||
                  (word == KILN_WORD_is_complex && kind == KILN_KIND_COMPLEX);
        if (is) set |= KILN_DT(t);
    }
    return set;
}

static kiln_status parse_call(parser *ps, kiln_expr *e) {
    const kiln_expr *args[MAX_LIST];
    int n = 0;
    bool more = !kiln_lex_is(ps->lx, ")");
    while (more) {
        if (n == MAX_LIST) return kiln_lex_fail(ps->lx, "at most 16 arguments");
        KILN_TRY(parse_cond(ps, &args[n]));
        KILN_TRY(grow(ps, e, args[n++]));
        KILN_TRY(kiln_lex_accept(ps->lx, ",", &more));
    }
    KILN_TRY(kiln_lex_expect(ps->lx, ")"));
    e->args = kiln_arena_alloc(ps->lx->arena, (size_t)n * sizeof *e->args);
    if (!e->args) return KILN_NOMEM();
    memcpy(e->args, args, (size_t)n * sizeof *args);
    e->nargs = n;
    e->kind = KILN_X_CALL;
    find_word(ps->lx, e, true);
    e->asks = n == 1 ? dtypes_asked(e->word) : 0;
    if (!kiln_prim_find(e->name, strlen(e->name), &e->prim)) return KILN_OK;
    if (n == 1 && (e->prim == KILN_P_MAX || e->prim == KILN_P_MIN)) return KILN_OK; /* over a block */
    e->kind = KILN_X_PRIM;
    if (n != kiln_prim_arity(e->prim))
        return KILN_FAIL_LINE(KILN_E_PARSE, ps->lx->source, e->line, e->col,
                              "'%s' takes %d argument%s, found %d", e->name, kiln_prim_arity(e->prim),
                              kiln_prim_arity(e->prim) == 1 ? "" : "s", n);
    return KILN_OK;
}

/* At what follows the '.' behind e's name. */
static kiln_status field_error(const parser *ps, const kiln_expr *e) {
    const char *advice = kiln_expr_advice(e->name, strlen(e->name)), *field = ps->lx->str;
    kiln_prim p;
    if (!advice && ps->lx->tok == KILN_TOK_NAME && kiln_prim_find(field, strlen(field), &p))
        return KILN_FAIL_LINE(KILN_E_PARSE, ps->lx->source, e->line, e->col,
                              "'%s' has no functions; write %s(%s)", e->name, field, e->name);
    return KILN_FAIL_LINE(KILN_E_PARSE, ps->lx->source, e->line, e->col,
                          "only 'rhs' has fields, and '%s' has none%s%s", e->name, advice ? "; " : "",
                          advice ? advice : "");
}

static kiln_status parse_name(parser *ps, const kiln_expr **out) {
    kiln_expr *e = node(ps, KILN_X_NAME);
    if (!e) return KILN_NOMEM();
    KILN_TRY(kiln_lex_name(ps->lx, &e->name));
    *out = e;
    bool did;
    KILN_TRY(kiln_lex_accept(ps->lx, ".", &did));
    if (did) {
        if (strcmp(e->name, "rhs") != 0) return field_error(ps, e);
        e->kind = KILN_X_FIELD;
        return kiln_lex_name(ps->lx, &e->name);
    }
    KILN_TRY(kiln_lex_accept(ps->lx, "(", &did));
    if (did) return parse_call(ps, e);
    find_word(ps->lx, e, false);
    KILN_TRY(kiln_lex_accept(ps->lx, "[", &did));
    return did ? parse_access(ps, e) : KILN_OK;
}

static kiln_status parse_primary(parser *ps, const kiln_expr **out) {
    kiln_lex *lx = ps->lx;
    bool did;
    if (lx->tok == KILN_TOK_NAME) return parse_name(ps, out);
    if (lx->tok == KILN_TOK_NUM || lx->tok == KILN_TOK_STR) {
        kiln_expr *e = node(ps, lx->tok == KILN_TOK_NUM ? KILN_X_NUM : KILN_X_STR);
        if (!e) return KILN_NOMEM();
        e->is_float = lx->is_float;
        e->i = lx->i;
        e->f = lx->f;
        e->name = lx->str;
        *out = e;
        return kiln_lex_next(lx);
    }
    KILN_TRY(kiln_lex_accept(lx, "(", &did));
    if (!did) return kiln_lex_fail(lx, "an expression");
    KILN_TRY(parse_cond(ps, out));
    return kiln_lex_expect(lx, ")");
}

/* -- operators --------------------------------------------------------------------------------------- */

enum { COMPARE_LEVEL = 4, UNARY_LEVEL = 10 };

static const struct {
    const char *text;
    int level; /* binds tighter when higher */
    kiln_ekind kind;
    kiln_prim prim;
} binary[] = {
    {"or", 1, KILN_X_LOGIC, KILN_P_OR}, {"and", 2, KILN_X_LOGIC, KILN_P_AND},
    {"<", 4, KILN_X_PRIM, KILN_P_LT},   {"<=", 4, KILN_X_PRIM, KILN_P_LE},
    {">", 4, KILN_X_PRIM, KILN_P_GT},   {">=", 4, KILN_X_PRIM, KILN_P_GE},
    {"==", 4, KILN_X_PRIM, KILN_P_EQ},  {"!=", 4, KILN_X_PRIM, KILN_P_NE},
    {"|", 5, KILN_X_PRIM, KILN_P_OR},   {"^", 6, KILN_X_PRIM, KILN_P_XOR},
    {"&", 7, KILN_X_PRIM, KILN_P_AND},  {"<<", 8, KILN_X_PRIM, KILN_P_SHL},
    {">>", 8, KILN_X_PRIM, KILN_P_SHR}, {"+", 9, KILN_X_PRIM, KILN_P_ADD},
    {"-", 9, KILN_X_PRIM, KILN_P_SUB},  {"*", 10, KILN_X_PRIM, KILN_P_MUL},
    {"/", 10, KILN_X_PRIM, KILN_P_DIV}, {"//", 10, KILN_X_PRIM, KILN_P_FLOORDIV},
    {"%", 10, KILN_X_PRIM, KILN_P_MOD},
};

static const struct {
    const char *text;
    kiln_ekind kind;
    kiln_prim prim;
} unary[] = {
    {"-", KILN_X_PRIM, KILN_P_NEG}, {"~", KILN_X_PRIM, KILN_P_NOT}, {"not", KILN_X_LOGIC, KILN_P_NOT}};

static kiln_status parse_binary(parser *ps, int level, const kiln_expr **out);

static kiln_status parse_unary(parser *ps, const kiln_expr **out) {
    if (++ps->depth > KILN_EXPR_MAX_DEPTH)
        return KILN_FAIL_LINE(KILN_E_LIMIT, ps->lx->source, ps->lx->tok_line, ps->lx->tok_col,
                              "expression nested deeper than %d", KILN_EXPR_MAX_DEPTH);
    for (size_t k = 0; k < sizeof unary / sizeof *unary; k++) {
        if (!kiln_lex_is(ps->lx, unary[k].text)) continue;
        const kiln_expr *arg;
        int line = ps->lx->tok_line, col = ps->lx->tok_col;
        KILN_TRY(kiln_lex_next(ps->lx));
        KILN_TRY(parse_binary(
            ps, unary[k].prim == KILN_P_NOT && unary[k].kind == KILN_X_LOGIC ? 3 : UNARY_LEVEL + 1, &arg));
        ps->depth--;
        kiln_expr *e = NULL;
        KILN_TRY(make(ps, unary[k].kind, unary[k].prim, &arg, 1, &e));
        e->line = line;
        e->col = col;
        *out = e;
        return KILN_OK;
    }
    KILN_TRY(parse_primary(ps, out));
    bool power;
    KILN_TRY(kiln_lex_accept(ps->lx, "**", &power));
    if (power) {
        const kiln_expr *args[2] = {*out};
        KILN_TRY(parse_unary(ps, &args[1])); /* right to left: 2 ** -x, a ** b ** c */
        kiln_expr *e = NULL;
        KILN_TRY(make(ps, KILN_X_PRIM, KILN_P_POW, args, 2, &e));
        *out = e;
    }
    ps->depth--;
    return KILN_OK;
}

static kiln_status parse_binary(parser *ps, int level, const kiln_expr **out) {
    bool compared = false;
    KILN_TRY(parse_unary(ps, out));
    for (;;) {
        size_t k = 0, n = sizeof binary / sizeof *binary;
        while (k < n && !(binary[k].level >= level && kiln_lex_is(ps->lx, binary[k].text))) k++;
        if (k == n) return KILN_OK;
        const kiln_expr *args[2] = {*out};
        if (compared && binary[k].level == COMPARE_LEVEL)
            return kiln_lex_fail(ps->lx, "'and' between two comparisons (they do not chain)");
        compared = binary[k].level == COMPARE_LEVEL;
        KILN_TRY(kiln_lex_next(ps->lx));
        KILN_TRY(parse_binary(ps, binary[k].level + 1, &args[1]));
        kiln_expr *e = NULL;
        KILN_TRY(make(ps, binary[k].kind, binary[k].prim, args, 2, &e));
        *out = e;
    }
}

static kiln_status parse_cond(parser *ps, const kiln_expr **out) {
    KILN_TRY(parse_binary(ps, 1, out));
    bool cond;
    KILN_TRY(kiln_lex_accept(ps->lx, "?", &cond));
    if (!cond) return KILN_OK;
    if (++ps->depth > KILN_EXPR_MAX_DEPTH)
        return KILN_FAIL_LINE(KILN_E_LIMIT, ps->lx->source, ps->lx->tok_line, ps->lx->tok_col,
                              "expression nested deeper than %d", KILN_EXPR_MAX_DEPTH);
    const kiln_expr *args[3] = {*out};
    KILN_TRY(parse_cond(ps, &args[1]));
    KILN_TRY(kiln_lex_expect(ps->lx, ":"));
    KILN_TRY(parse_cond(ps, &args[2]));
    ps->depth--;
    kiln_expr *e = NULL;
    KILN_TRY(make(ps, KILN_X_PRIM, KILN_P_SELECT, args, 3, &e));
    *out = e;
    return KILN_OK;
}

kiln_status kiln_expr_parse(kiln_lex *lx, const kiln_expr **out) {
    parser ps = {lx, 0};
    return parse_cond(&ps, out);
}

kiln_status kiln_expr_fail(const char *source, const kiln_expr *e, kiln_status st, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    text[0] = 0;
    if (!kiln_is_quiet()) vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return KILN_FAIL_LINE(st, source, e->line, e->col, "%s", text);
}

bool kiln_budget_take(kiln_budget *s, const char *source, const kiln_expr *e) {
    if (!s || s->taken++ < s->most) return true;
    kiln_expr_fail(
        source, e, KILN_E_LIMIT,
        "checking the rows takes more than %lld steps; fewer dtypes or smaller expressions take fewer",
        (long long)s->most);
    return false;
}

/* -- walking and printing ------------------------------------------------------------------------------ */

kiln_status kiln_expr_names(const kiln_expr *e, kiln_status (*visit)(void *user, const kiln_expr *e),
                            void *user) {
    if (e->kind == KILN_X_NAME || e->kind == KILN_X_FIELD || e->kind == KILN_X_ACCESS)
        KILN_TRY(visit(user, e));
    for (int k = 0; k < e->nargs; k++) KILN_TRY(kiln_expr_names(e->args[k], visit, user));
    for (int k = 0; k < e->ncoord; k++) {
        if (e->coord[k].dim) KILN_TRY(kiln_expr_names(e->coord[k].dim, visit, user));
        if (e->coord[k].at) KILN_TRY(kiln_expr_names(e->coord[k].at, visit, user));
    }
    return e->other ? kiln_expr_names(e->other, visit, user) : KILN_OK;
}

typedef struct resolver {
    int (*find)(void *user, const char *name, const kiln_expr **means);
    void *user;
} resolver;

static kiln_status resolve(void *user, const kiln_expr *e) {
    const resolver *r = user;
    kiln_expr *own = (kiln_expr *)e; /* whoever resolves an expression owns it */
    const kiln_expr *means = NULL;
    if (e->kind == KILN_X_FIELD) return KILN_OK;
    own->arg = r->find(r->user, e->name, &means);
    own->means = means;
    return KILN_OK;
}

void kiln_expr_resolve(const kiln_expr *e, int (*find)(void *user, const char *name, const kiln_expr **means),
                       void *user) {
    resolver r = {find, user};
    kiln_status always_ok = kiln_expr_names(e, resolve, &r);
    (void)always_ok;
}

/* How tightly what is printed must bind; CALLS: operators are printed as calls. */
enum { CALLS = -1, CHOICE = 0, OPERAND = UNARY_LEVEL + 1, PRIMARY = UNARY_LEVEL + 2 };

static void print(kiln_sb *out, const kiln_expr *e, int level);

static void print_list(kiln_sb *out, const kiln_expr *const *args, int n, int level) {
    for (int k = 0; k < n; k++) {
        if (k) kiln_sb_puts(out, ", ");
        print(out, args[k], level == CALLS ? CALLS : CHOICE);
    }
}

static void print_access(kiln_sb *out, const kiln_expr *e, int level) {
    kiln_sb_printf(out, "%s[", e->name);
    for (int k = 0; k < e->ncoord; k++) {
        if (k) kiln_sb_puts(out, ", ");
        if (e->coord[k].rest) kiln_sb_puts(out, "..");
        if (e->coord[k].dim) {
            print(out, e->coord[k].dim, level == CALLS ? CALLS : CHOICE);
            kiln_sb_puts(out, ": ");
        }
        if (e->coord[k].at) print(out, e->coord[k].at, level == CALLS ? CALLS : CHOICE);
    }
    kiln_sb_putc(out, ']');
    if (e->skip) kiln_sb_puts(out, " else skip");
    if (!e->other) return;
    kiln_sb_puts(out, " else ");
    print(out, e->other, level == CALLS ? CALLS : CHOICE);
}

/* A floating literal keeps a point, so that it reads back as one. */
static void print_number(kiln_sb *out, const kiln_expr *e, int level) {
    bool minus = level >= OPERAND && (e->is_float ? e->f : (double)e->i) < 0;
    if (minus) kiln_sb_putc(out, '(');
    size_t start = out->len;
    if (!e->is_float)
        kiln_sb_printf(out, "%lld", (long long)e->i);
    else
        kiln_sb_f64(out, e->f);
    if (e->is_float && !out->failed && !strpbrk(out->p + start, ".e")) kiln_sb_puts(out, ".0");
    if (minus) kiln_sb_putc(out, ')');
}

static void print_text(kiln_sb *out, const char *text) {
    kiln_sb_putc(out, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') kiln_sb_putc(out, '\\');
        kiln_sb_putc(out, *text);
    }
    kiln_sb_putc(out, '"');
}

/* Infix always, since and(a, b) is the operation on bits. */
static void print_logic(kiln_sb *out, const kiln_expr *e, int level) {
    level = level == CALLS ? CALLS : OPERAND;
    kiln_sb_putc(out, '(');
    if (e->nargs == 1) kiln_sb_puts(out, "not ");
    print(out, e->args[0], level);
    if (e->nargs == 2) {
        kiln_sb_printf(out, " %s ", kiln_prim_name(e->prim));
        print(out, e->args[1], level);
    }
    kiln_sb_putc(out, ')');
}

static void print_choice(kiln_sb *out, const kiln_expr *e) {
    print(out, e->args[0], CHOICE + 1);
    kiln_sb_puts(out, " ? ");
    print(out, e->args[1], CHOICE);
    kiln_sb_puts(out, " : ");
    print(out, e->args[2], CHOICE);
}

/* A primitive that has a sign; false: it has none. */
static bool print_operator(kiln_sb *out, const kiln_expr *e, int level) {
    size_t k = 0, n = sizeof binary / sizeof *binary;
    while (k < n && (binary[k].kind != KILN_X_PRIM || binary[k].prim != e->prim)) k++;
    bool minus = e->prim == KILN_P_NEG, choice = e->prim == KILN_P_SELECT;
    if (level == CALLS || (k == n && !minus && !choice)) return false;
    int own = choice ? CHOICE : minus ? OPERAND : binary[k].level;
    bool brackets = own < level;
    if (brackets) kiln_sb_putc(out, '(');
    if (choice) {
        print_choice(out, e);
    } else if (minus) {
        kiln_sb_putc(out, '-');
        print(out, e->args[0], PRIMARY);
    } else {
        print(out, e->args[0], own + (own == COMPARE_LEVEL));
        kiln_sb_printf(out, " %s ", binary[k].text);
        print(out, e->args[1], own + 1);
    }
    if (brackets) kiln_sb_putc(out, ')');
    return true;
}

static void print(kiln_sb *out, const kiln_expr *e, int level) {
    switch (e->kind) {
    case KILN_X_NUM: print_number(out, e, level); return;
    case KILN_X_STR: print_text(out, e->name); return;
    case KILN_X_NAME: kiln_sb_puts(out, e->name); return;
    case KILN_X_FIELD: kiln_sb_printf(out, "rhs.%s", e->name); return;
    case KILN_X_ACCESS: print_access(out, e, level); return;
    case KILN_X_LOGIC: print_logic(out, e, level); return;
    case KILN_X_PRIM:
        if (print_operator(out, e, level)) return;
        break;
    case KILN_X_CALL: break;
    }
    if (e->kind == KILN_X_PRIM && e->prim == KILN_P_NOT)
        kiln_sb_puts(out, "~("); /* not(x) is the logical one */
    else
        kiln_sb_printf(out, "%s(", e->kind == KILN_X_CALL ? e->name : kiln_prim_name(e->prim));
    print_list(out, e->args, e->nargs, level);
    kiln_sb_putc(out, ')');
}

void kiln_expr_print(kiln_sb *out, const kiln_expr *e) { print(out, e, CALLS); }
void kiln_expr_print_infix(kiln_sb *out, const kiln_expr *e) { print(out, e, CHOICE); }
