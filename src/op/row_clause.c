/* row_clause.c - the indented clauses of a row.
 *
 * Each clause is one word and what follows it.  The table at the end lists the clauses that rows of every family may have; a
 * family lists the others in its rules (row_family.h).  docs/OPS.md explains them.  Only names and shapes of expressions
 * are checked here; types come later. */
#include <string.h>

#include "op/row.h"

/* A dtype that numbers are computed in; of a state also `real` or `wide`. */
static kiln_status parse_type(kiln_lex *lx, kiln_name_types kind, kiln_named *v) {
    v->real = kind == KILN_TYPED_STATES && kiln_lex_is(lx, "real");
    v->wide = kind == KILN_TYPED_STATES && kiln_lex_is(lx, "wide");
    if (v->real || v->wide) return kiln_lex_next(lx);
    bool known = lx->tok == KILN_TOK_NAME && kiln_dtype_named(lx->str, &v->dtype);
    if (!known || v->dtype != kiln_dtype_compute(v->dtype))
        return kiln_lex_fail(lx, kind == KILN_TYPED_STATES
                                     ? "a dtype that numbers are computed in, 'real' or 'wide'"
                                     : "a dtype that numbers are computed in");
    return kiln_lex_next(lx);
}

/* name = expr [, name = expr]...; with types: name: dtype = expr */
kiln_status kiln_row_nameds(kiln_lex *lx, kiln_nameds *out, kiln_name_types kind, const char *separator) {
    bool more = true;
    while (more) {
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, out, "at most 16 names in a clause", &v));
        KILN_TRY(kiln_lex_name(lx, &v->name));
        bool has_type = false;
        if (kind != KILN_UNTYPED) KILN_TRY(kiln_lex_accept(lx, ":", &has_type));
        if (has_type) KILN_TRY(parse_type(lx, kind, v));
        KILN_TRY(kiln_lex_expect(lx, separator));
        KILN_TRY(kiln_expr_parse(lx, &v->expr));
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return KILN_OK;
}

/* A list of expressions without names, up to what ends it. */
kiln_status kiln_row_exprs(kiln_lex *lx, kiln_nameds *out, const char *most) {
    bool more = true;
    while (more) {
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, out, most, &v));
        KILN_TRY(kiln_expr_parse(lx, &v->expr));
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return KILN_OK;
}

kiln_status kiln_row_when(kiln_lex *lx, kiln_row *row, kiln_branch **out) {
    if (row->nbranches && !row->branches[row->nbranches - 1].when)
        return kiln_lex_fail(lx, "no 'when' after a body that always holds");
    KILN_TRY(kiln_row_branch(lx, row, out));
    KILN_TRY(kiln_expr_parse(lx, &(*out)->when));
    return kiln_row_attrs(lx, row, &(*out)->typing);
}

/* when COND ATTRIBUTES = BODIES */
static kiln_status clause_when(kiln_lex *lx, kiln_row *row) {
    kiln_branch *b = NULL;
    KILN_TRY(kiln_row_when(lx, row, &b));
    KILN_TRY(kiln_lex_expect(lx, "="));
    return kiln_row_bodies(lx, row, b);
}

/* check [each | torch] COND [index|value|type|unsupported] : "text" */
static kiln_status clause_check(kiln_lex *lx, kiln_row *row) {
    static const struct {
        const char *word;
        kiln_status status;
    } kinds[] = {{"index", KILN_E_INDEX},
                 {"value", KILN_E_VALUE},
                 {"type", KILN_E_TYPE},
                 {"unsupported", KILN_E_UNSUP}};
    if (row->nchecks == KILN_ROW_MAX_CHECKS) return kiln_lex_fail(lx, "at most 16 checks");
    kiln_check *c = kiln_arena_grow(lx->arena, row->checks, (size_t)row->nchecks, sizeof *row->checks);
    if (!c) return KILN_NOMEM();
    row->checks = c;
    c += row->nchecks++;
    *c = (kiln_check){.status = KILN_E_ARG};
    bool did = false;
    KILN_TRY(kiln_lex_accept(lx, "each", &c->each));
    if (!c->each) KILN_TRY(kiln_lex_accept(lx, "torch", &c->torch));
    if (c->torch && strcmp(row->schema->ns, "aten") != 0)
        return kiln_lex_fail(lx, "no 'check torch': only operators of aten:: have a kernel of PyTorch's");
    if (c->each && !kiln_rules(row)->checks_each)
        return kiln_lex_fail(lx, "elements are asked by maps and folds alone");
    KILN_TRY(kiln_expr_parse(lx, &c->cond));
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && !did; k++) {
        KILN_TRY(kiln_lex_accept(lx, kinds[k].word, &did));
        if (did) c->status = kinds[k].status;
    }
    KILN_TRY(kiln_lex_expect(lx, ":"));
    if (lx->tok != KILN_TOK_STR) return kiln_lex_fail(lx, "the message in quotes");
    c->text = lx->str;
    return kiln_lex_next(lx);
}

static kiln_status clause_static(kiln_lex *lx, kiln_row *row) {
    return kiln_row_args(lx, row, &row->statics);
}
static kiln_status clause_ignore(kiln_lex *lx, kiln_row *row) {
    return kiln_row_args(lx, row, &row->ignored);
}
static kiln_status clause_let(kiln_lex *lx, kiln_row *row) {
    return kiln_row_nameds(lx, &row->lets, KILN_UNTYPED, "=");
}

static kiln_status known_to_host(void *user, const kiln_expr *e) {
    const kiln_row *row = user;
    for (int k = 0; k < row->hosts.n - 1; k++)
        if (strcmp(row->hosts.at[k].name, e->name) == 0) return KILN_OK;
    bool of_form = e->word == KILN_WORD_in_place || e->word == KILN_WORD_out_form ||
                   e->word == KILN_WORD_given;
    bool word = e->word != KILN_WORD_NONE && e->word != KILN_WORD_n && !of_form;
    if (kiln_schema_arg(row->schema, e->name) >= 0 || word) return KILN_OK; /* inf, common, f32 */
    return kiln_expr_fail(row->source, e, KILN_E_PARSE,
                          "'%s' is not an argument or a host number defined before", e->name);
}

/* host NAME [: dtype] = EXPR, ...: each may use the ones before it, so none can mean itself. */
static kiln_status clause_host(kiln_lex *lx, kiln_row *row) {
    kiln_nameds list = {.n = 0};
    KILN_TRY(kiln_row_nameds(lx, &list, KILN_TYPED_NUMBERS, "="));
    for (int k = 0; k < list.n; k++) {
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, &row->hosts, "at most 16 host numbers", &v));
        *v = list.at[k];
        KILN_TRY(kiln_expr_names(v->expr, known_to_host, row));
    }
    return KILN_OK;
}

/* grad ARG = EXPR, ... */
static kiln_status clause_grad(kiln_lex *lx, kiln_row *row) {
    return kiln_row_nameds(lx, &row->grads, KILN_UNTYPED, "=");
}

/* A number, with an optional sign. */
static kiln_status number(kiln_lex *lx, double *out) {
    bool minus;
    KILN_TRY(kiln_lex_accept(lx, "-", &minus));
    if (lx->tok != KILN_TOK_NUM) return kiln_lex_fail(lx, "a number");
    *out = minus ? -lx->f : lx->f;
    return kiln_lex_next(lx);
}

/* domain LO HI: where random test inputs are drawn from. */
static kiln_status clause_domain(kiln_lex *lx, kiln_row *row) {
    KILN_TRY(number(lx, &row->domain_lo));
    if (lx->tok == KILN_TOK_NUM && lx->f <= row->domain_lo)
        return kiln_lex_fail(lx, "a number above the first");
    return number(lx, &row->domain_hi);
}

/* tol RTOL ATOL "reason" */
static kiln_status clause_tol(kiln_lex *lx, kiln_row *row) {
    KILN_TRY(number(lx, &row->rtol));
    KILN_TRY(number(lx, &row->atol));
    if (lx->tok != KILN_TOK_STR) return kiln_lex_fail(lx, "the reason for the tolerance in quotes");
    return kiln_lex_next(lx);
}

static kiln_status clause_doc(kiln_lex *lx, kiln_row *row) {
    if (lx->tok != KILN_TOK_STR) return kiln_lex_fail(lx, "text in quotes");
    row->doc = lx->str;
    return kiln_lex_next(lx);
}

static const kiln_clause common[] = {
    {.word = "check", .parse = clause_check, .again = true},
    {.word = "static", .parse = clause_static, .again = true},
    {.word = "ignore", .parse = clause_ignore, .again = true},
    {.word = "let", .parse = clause_let, .again = true},
    {.word = "host", .parse = clause_host, .again = true},
    {.word = "domain", .parse = clause_domain},
    {.word = "tol", .parse = clause_tol},
    {.word = "doc", .parse = clause_doc},
};
enum { COMMON = sizeof common / sizeof *common };

const kiln_clause kiln_clause_when = {.word = "when", .parse = clause_when, .again = true, .opens = true};
const kiln_clause kiln_clause_grad = {.word = "grad", .parse = clause_grad};

/* The clause of the list whose word stands here: its place in the list, or -1. */
static int find_own(const kiln_lex *lx, const kiln_clause *const *list, const kiln_clause **out) {
    for (int k = 0; list[k]; k++) {
        *out = list[k];
        if (kiln_lex_is(lx, list[k]->word)) return k;
    }
    return -1;
}

static int find_common(const kiln_lex *lx, const kiln_clause **out) {
    for (int k = 0; k < COMMON; k++) {
        *out = &common[k];
        if (kiln_lex_is(lx, common[k].word)) return k;
    }
    return -1;
}

const char *kiln_row_clause_word(const kiln_lex *lx) {
    const kiln_clause *c;
    if (!lx->first_on_line || lx->tok != KILN_TOK_NAME) return NULL;
    if (find_common(lx, &c) >= 0) return c->word;
    for (int f = 0; f < KILN_FAMILY_COUNT; f++)
        if (find_own(lx, kiln_rules_of[f]->clauses, &c) >= 0) return c->word;
    return NULL;
}

/* The clause that starts here, and which bit of row->clauses stands for it. */
static kiln_status find_clause(const kiln_lex *lx, const kiln_row *row, const kiln_clause **out, int *bit) {
    *bit = find_common(lx, out);
    if (*bit >= 0) return KILN_OK;
    *bit = COMMON + find_own(lx, kiln_rules(row)->clauses, out);
    if (*bit >= COMMON) return KILN_OK;
    const char *word = kiln_row_clause_word(lx), *family = kiln_family_name(row->family);
    if (!word) return kiln_lex_fail(lx, "a clause word such as when, check, let, state or doc");
    return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col, "%s %s row has no '%s' clause",
                          strchr("aeiou", family[0]) ? "an" : "a", family, word);
}

/* A branch may have clauses that the branches before it have. */
static void open_branch(kiln_row *row) {
    const kiln_clause *const *own = kiln_rules(row)->clauses;
    for (int k = 0; own[k]; k++)
        if (own[k]->each) row->clauses &= ~(UINT64_C(1) << (COMMON + k));
}

kiln_status kiln_row_clause(kiln_lex *lx, kiln_row *row) {
    const kiln_clause *c;
    int bit;
    if (!lx->first_on_line) return kiln_lex_fail(lx, "a clause on a line of its own, or the end of the row");
    KILN_TRY(find_clause(lx, row, &c, &bit));
    if ((row->clauses >> bit & 1) && !c->again)
        return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col, "a second '%s' clause",
                              c->word);
    row->clauses |= UINT64_C(1) << bit;
    if (c->untraced && !row->untraced.clause) row->untraced.clause = c->word;
    if (c->opens) open_branch(row);
    KILN_TRY(kiln_lex_next(lx));
    return c->parse(lx, row);
}
