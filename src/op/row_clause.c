/* row_clause.c - the indented clauses of a row.
 *
 * Each clause is one word and what follows it; the table at the end is the list.  docs/OPS.md explains
 * them.  Only names and shapes of expressions are checked here; types come later. */
#include <string.h>

#include "op/row.h"

typedef enum types { UNTYPED, NUMBERS, STATES } types; /* what names of a clause may be followed by */

/* A dtype that numbers are computed in; of a state also `real` or `wide`. */
static kiln_status parse_type(kiln_lex *lx, types kind, kiln_named *v) {
    v->real = kind == STATES && kiln_lex_is(lx, "real");
    v->wide = kind == STATES && kiln_lex_is(lx, "wide");
    if (v->real || v->wide) return kiln_lex_next(lx);
    bool known = lx->tok == KILN_TOK_NAME && kiln_dtype_parse(lx->str, &v->dtype) == KILN_OK;
    if (!known || v->dtype != kiln_dtype_compute(v->dtype))
        return kiln_lex_fail(lx, kind == STATES ? "a dtype that numbers are computed in, 'real' or 'wide'"
                                                : "a dtype that numbers are computed in");
    return kiln_lex_next(lx);
}

/* name = expr [, name = expr]...; with types: name: dtype = expr */
static kiln_status parse_nameds(kiln_lex *lx, kiln_nameds *out, types kind, const char *separator) {
    bool more = true;
    while (more) {
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, out, "at most 16 names in a clause", &v));
        KILN_TRY(kiln_lex_name(lx, &v->name));
        bool has_type = false;
        if (kind != UNTYPED) KILN_TRY(kiln_lex_accept(lx, ":", &has_type));
        if (has_type) KILN_TRY(parse_type(lx, kind, v));
        KILN_TRY(kiln_lex_expect(lx, separator));
        KILN_TRY(kiln_expr_parse(lx, &v->expr));
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return KILN_OK;
}

kiln_status kiln_row_nameds(kiln_lex *lx, kiln_nameds *out) { return parse_nameds(lx, out, UNTYPED, "="); }

/* when COND ATTRIBUTES = BODIES; what folds may have clauses after it instead of bodies. */
static kiln_status clause_when(kiln_lex *lx, kiln_row *row) {
    kiln_branch *b;
    bool body = true;
    if (row->family == KILN_FAMILY_COMPOSE) return kiln_compose_when(lx, row);
    if (row->nbranches && !row->branches[row->nbranches - 1].when)
        return kiln_lex_fail(lx, "no 'when' after a body that always holds");
    KILN_TRY(kiln_row_branch(lx, row, &b));
    KILN_TRY(kiln_expr_parse(lx, &b->when));
    KILN_TRY(kiln_row_attrs(lx, row, &b->typing));
    if (row->family == KILN_FAMILY_FOLD)
        KILN_TRY(kiln_lex_accept(lx, "=", &body));
    else
        KILN_TRY(kiln_lex_expect(lx, "="));
    return body ? kiln_row_bodies(lx, row, b) : KILN_OK;
}

/* check [each] COND [index|value|type|unsupported] : "text" */
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
    bool did = false, folds = row->family == KILN_FAMILY_FOLD;
    KILN_TRY(kiln_lex_accept(lx, "each", &c->each));
    if (c->each && !folds && row->family != KILN_FAMILY_MAP)
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
static kiln_status clause_lack(kiln_lex *lx, kiln_row *row) { return kiln_row_args(lx, row, &row->lacking); }
static kiln_status clause_let(kiln_lex *lx, kiln_row *row) {
    return parse_nameds(lx, &row->lets, UNTYPED, "=");
}

static kiln_status known_to_host(void *user, const kiln_expr *e) {
    const kiln_row *row = user;
    for (int k = 0; k < row->hosts.n - 1; k++)
        if (strcmp(row->hosts.at[k].name, e->name) == 0) return KILN_OK;
    bool word = e->word != KILN_WORD_NONE && e->word != KILN_WORD_n && e->word != KILN_WORD_in_place;
    if (kiln_schema_arg(row->schema, e->name) >= 0 || word) return KILN_OK; /* inf, common, f32 */
    return kiln_expr_fail(row->source, e, KILN_E_PARSE,
                          "'%s' is not an argument or a host number defined before", e->name);
}

/* host NAME [: dtype] = EXPR, ...: each may use the ones before it, so none can mean itself. */
static kiln_status clause_host(kiln_lex *lx, kiln_row *row) {
    kiln_nameds list = {.n = 0};
    KILN_TRY(parse_nameds(lx, &list, NUMBERS, "="));
    for (int k = 0; k < list.n; k++) {
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, &row->hosts, "at most 16 host numbers", &v));
        *v = list.at[k];
        KILN_TRY(kiln_expr_names(v->expr, known_to_host, row));
    }
    return KILN_OK;
}

static kiln_status clause_state(kiln_lex *lx, kiln_row *row) {
    return parse_nameds(lx, &kiln_row_reduce(row)->states, STATES, "=");
}
static kiln_status clause_step(kiln_lex *lx, kiln_row *row) {
    return parse_nameds(lx, &kiln_row_reduce(row)->step, UNTYPED, "=");
}
static kiln_status clause_block(kiln_lex *lx, kiln_row *row) {
    return parse_nameds(lx, &kiln_row_reduce(row)->block, UNTYPED, "=");
}
static kiln_status clause_merge(kiln_lex *lx, kiln_row *row) {
    return parse_nameds(lx, &kiln_row_reduce(row)->merge, UNTYPED, "=");
}

static kiln_status clause_finish(kiln_lex *lx, kiln_row *row) {
    kiln_nameds *f = &kiln_row_reduce(row)->finish;
    bool more = true;
    if (row->family == KILN_FAMILY_COMPOSE) return kiln_compose_finish(lx, row);
    while (more) {
        if (f->n == row->schema->nrets) return kiln_lex_fail(lx, "as many results as the schema has");
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, f, "at most 16 results", &v));
        KILN_TRY(kiln_lex_accept(lx, "each", &v->each));
        if (!v->each && row->family == KILN_FAMILY_FOLD) KILN_TRY(kiln_lex_accept(lx, "empty", &v->empty));
        if (!v->empty) KILN_TRY(kiln_expr_parse(lx, &v->expr));
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return KILN_OK;
}

/* grad ARG = EXPR, ... */
static kiln_status clause_grad(kiln_lex *lx, kiln_row *row) {
    return parse_nameds(lx, &row->grads, UNTYPED, "=");
}

/* dims(EXPR, ...): dimensions by their numbers. */
static kiln_status parse_dims(kiln_lex *lx, kiln_nameds *out) {
    bool more = true;
    KILN_TRY(kiln_lex_expect(lx, "("));
    while (more) {
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, out, "at most 16 dimensions", &v));
        KILN_TRY(kiln_expr_parse(lx, &v->expr));
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return kiln_lex_expect(lx, ")");
}

/* over [only | but] ARG [keep [ARG]]   or   over last(COUNT) [keep [ARG]]   or   over first(COUNT)   or   over dims(EXPR, ...)
 * [flat | triangle]   or   over diagonal   or   over alike */
static kiln_status clause_over(kiln_lex *lx, kiln_row *row) {
    bool did;
    KILN_TRY(kiln_lex_accept(lx, "diagonal", &row->reduce.over_diagonal));
    KILN_TRY(kiln_lex_accept(lx, "alike", &row->reduce.over_alike));
    if (row->reduce.over_diagonal || row->reduce.over_alike) return KILN_OK;
    KILN_TRY(kiln_lex_accept(lx, "dims", &did));
    if (did) KILN_TRY(parse_dims(lx, &row->reduce.over_dims));
    if (did) KILN_TRY(kiln_lex_accept(lx, "flat", &row->reduce.flat));
    if (did) return row->reduce.flat ? KILN_OK : kiln_lex_accept(lx, "triangle", &row->reduce.triangle);
    KILN_TRY(kiln_lex_accept(lx, "first", &row->reduce.over_first));
    KILN_TRY(row->reduce.over_first ? KILN_OK : kiln_lex_accept(lx, "last", &did));
    if (did || row->reduce.over_first) {
        KILN_TRY(kiln_lex_expect(lx, "("));
        KILN_TRY(kiln_expr_parse(lx, &row->reduce.over_last));
        KILN_TRY(kiln_lex_expect(lx, ")"));
    } else {
        KILN_TRY(kiln_lex_accept(lx, "but", &row->reduce.over_but));
        KILN_TRY(kiln_lex_accept(lx, "only", &row->reduce.over_only));
        KILN_TRY(kiln_row_arg(lx, row, &row->reduce.over_arg));
    }
    KILN_TRY(kiln_lex_accept(lx, "keep", &did));
    row->reduce.keep = did && (lx->first_on_line || lx->tok == KILN_TOK_END);
    return did && !row->reduce.keep ? kiln_row_arg(lx, row, &row->reduce.keep_arg) : KILN_OK;
}

/* out like ARG   or   out [.., name: extent, ...] */
static kiln_status clause_out(kiln_lex *lx, kiln_row *row) {
    bool did;
    KILN_TRY(kiln_lex_accept(lx, "like", &did));
    if (did) return kiln_row_arg(lx, row, &row->shape.like_arg);
    KILN_TRY(kiln_lex_expect(lx, "["));
    KILN_TRY(kiln_lex_accept(lx, "..", &row->shape.rest));
    if (row->shape.rest) KILN_TRY(kiln_lex_expect(lx, ","));
    KILN_TRY(parse_nameds(lx, &row->shape.dims, UNTYPED, ":"));
    return kiln_lex_expect(lx, "]");
}

static kiln_status clause_window(kiln_lex *lx, kiln_row *row) {
    return parse_nameds(lx, &row->shape.window, UNTYPED, ":");
}

/* into ARG at ARG */
static kiln_status clause_into(kiln_lex *lx, kiln_row *row) {
    KILN_TRY(kiln_row_arg(lx, row, &row->shape.into_arg));
    KILN_TRY(kiln_lex_expect(lx, "at"));
    return kiln_row_arg(lx, row, &row->shape.at_arg);
}

/* routine NAME(arg, ...) */
static kiln_status clause_routine(kiln_lex *lx, kiln_row *row) {
    bool more = true;
    row->routine.id = lx->tok == KILN_TOK_NAME ? kiln_routine_named(lx->str) : KILN_ROUTINE_COUNT;
    if (row->routine.id == KILN_ROUTINE_COUNT) return kiln_lex_fail(lx, "the name of a routine");
    KILN_TRY(kiln_lex_next(lx));
    KILN_TRY(kiln_lex_expect(lx, "("));
    while (more) {
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, &row->routine.args, "at most 16 arguments", &v));
        KILN_TRY(kiln_expr_parse(lx, &v->expr));
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return kiln_lex_expect(lx, ")");
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

static const struct {
    const char *word;
    kiln_status (*parse)(kiln_lex *lx, kiln_row *row);
    unsigned families; /* bit f: allowed in family f */
    bool again;        /* may stand more than once */
    bool each;         /* once for each `when` */
} clauses[] = {
#define IN(F) (1u << KILN_FAMILY_##F)
#define ANY ((1u << KILN_FAMILY_COUNT) - 1)
    {"when", clause_when, ANY & ~IN(EXTERN), true, false},
    {"check", clause_check, ANY, true, false},
    {"static", clause_static, ANY, true, false},
    {"ignore", clause_ignore, ANY, true, false},
    {"let", clause_let, ANY, true, false},
    {"host", clause_host, IN(MAP) | IN(FOLD) | IN(SCAN) | IN(INDEX) | IN(EXTERN) | IN(COMPOSE), true, false},
    {"domain", clause_domain, ANY, false, false},
    {"tol", clause_tol, ANY, false, false},
    {"doc", clause_doc, ANY, false, false},
    {"grad", clause_grad, IN(MAP) | IN(FOLD), false, false},
    {"lack", clause_lack, IN(FOLD), true, false},
    {"over", clause_over, IN(FOLD) | IN(SCAN) | IN(EXTERN), false, false},
    {"state", clause_state, IN(FOLD) | IN(SCAN) | IN(INDEX), false, true},
    {"step", clause_step, IN(FOLD) | IN(SCAN) | IN(INDEX), false, true},
    {"block", clause_block, IN(FOLD), false, true},
    {"merge", clause_merge, IN(FOLD) | IN(SCAN) | IN(INDEX), false, true},
    {"finish", clause_finish, IN(FOLD) | IN(SCAN) | IN(INDEX) | IN(COMPOSE), false, true},
    {"writes", kiln_row_clause_writes, IN(FOLD), false, true},
    {"view", kiln_row_clause_view, IN(FOLD), true, false},
    {"kept", kiln_row_clause_kept, IN(FOLD), false, false},
    {"gives", kiln_row_clause_gives, IN(FOLD), false, false},
    {"rest", kiln_row_clause_rest, IN(FOLD), false, false},
    {"out", clause_out, IN(INDEX), false, false},
    {"window", clause_window, IN(INDEX), false, false},
    {"into", clause_into, IN(INDEX), false, false},
    {"call", kiln_compose_call, IN(COMPOSE), true, false},
    {"for", kiln_update_for, IN(COMPOSE), false, false},
    {"update", kiln_update_clause, IN(COMPOSE), false, true},
    {"routine", clause_routine, IN(EXTERN), false, false},
#undef IN
#undef ANY
};

bool kiln_row_clause_word(const kiln_lex *lx) {
    if (!lx->first_on_line) return false;
    for (size_t k = 0; k < sizeof clauses / sizeof *clauses; k++)
        if (kiln_lex_is(lx, clauses[k].word)) return true;
    return false;
}

kiln_status kiln_row_clause(kiln_lex *lx, kiln_row *row) {
    if (!lx->first_on_line) return kiln_lex_fail(lx, "a clause on a line of its own, or the end of the row");
    for (size_t k = 0; k < sizeof clauses / sizeof *clauses; k++) {
        if (!kiln_lex_is(lx, clauses[k].word)) continue;
        if (!(clauses[k].families & (1u << row->family)))
            return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col,
                                  "%s %s row has no '%s' clause",
                                  strchr("aeiou", kiln_family_name(row->family)[0]) ? "an" : "a",
                                  kiln_family_name(row->family), clauses[k].word);
        if ((row->clauses >> k & 1) && !clauses[k].again)
            return KILN_FAIL_LINE(KILN_E_PARSE, lx->source, lx->tok_line, lx->tok_col, "a second '%s' clause",
                                  clauses[k].word);
        row->clauses |= 1u << k;
        for (size_t j = 0; clauses[k].parse == clause_when && j < sizeof clauses / sizeof *clauses; j++)
            if (clauses[j].each) row->clauses &= ~(1u << j);
        KILN_TRY(kiln_lex_next(lx));
        return clauses[k].parse(lx, row);
    }
    return kiln_lex_fail(lx, "a clause word such as when, check, let, state or doc");
}
