/* view_rules.c - clauses by which a fold sees arguments in other sizes, writes to some, and gives some results only.
 *
 *   view ARG [SIZE, ...] [when CONDITION]      kept ARG, ...      writes ARG = EXPR, ...      gives CONDITION, ...
 *   rest OPERATOR
 * Sizes and conditions are computed once per call.  Only names and counts are checked here.  The family
 * computes the sizes for actual tensors; row_check.c checks types. */
#include "family/fold_rules.h"

static kiln_status parse_tensor(kiln_lex *lx, const kiln_row *row, int *out) {
    *out = lx->tok == KILN_TOK_NAME ? kiln_schema_arg(row->schema, lx->str) : -1;
    if (*out < 0 || !kiln_row_is_tensor(row, *out)) return kiln_lex_fail(lx, "the name of a tensor");
    return kiln_lex_next(lx);
}

/* SIZE, or .. DIM: the argument's own sizes before that dimension, or DIM ..: those from it on. */
static kiln_status parse_size(kiln_lex *lx, kiln_nameds *out) {
    kiln_named *v = NULL;
    bool before, from = false;
    if (out->n == KILN_VIEW_SIZES) return kiln_lex_fail(lx, "at most 6 sizes");
    KILN_TRY(kiln_row_named(lx, out, "at most 6 sizes", &v));
    KILN_TRY(kiln_lex_accept(lx, "..", &before));
    KILN_TRY(kiln_expr_parse(lx, &v->expr));
    if (!before) KILN_TRY(kiln_lex_accept(lx, "..", &from));
    v->span = before ? KILN_SPAN_BEFORE : from ? KILN_SPAN_FROM : KILN_SPAN_SIZE;
    return KILN_OK;
}

/* view ARG [SIZE, ...] [when CONDITION] */
static kiln_status clause_view(kiln_lex *lx, kiln_row *row) {
    kiln_view *v = kiln_arena_grow(lx->arena, row->views, (size_t)row->nviews, sizeof *v);
    int arg;
    bool more = true, some;
    if (!v) return KILN_NOMEM();
    if (row->nviews == KILN_ROW_MAX_VIEWS) return kiln_lex_fail(lx, "at most 12 views");
    KILN_TRY(parse_tensor(lx, row, &arg));
    if (kiln_row_view(row, arg)) return kiln_lex_fail(lx, "one view of an argument");
    row->views = v;
    v += row->nviews++;
    *v = (kiln_view){.arg = arg};
    KILN_TRY(kiln_lex_expect(lx, "["));
    while (more) {
        KILN_TRY(parse_size(lx, &v->sizes));
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    KILN_TRY(kiln_lex_expect(lx, "]"));
    some = kiln_lex_is(lx, "when") && !lx->first_on_line;
    if (some) KILN_TRY(kiln_lex_next(lx));
    return some ? kiln_expr_parse(lx, &v->when) : KILN_OK;
}

/* kept ARG, ... */
static kiln_status clause_kept(kiln_lex *lx, kiln_row *row) {
    bool more = true;
    while (more) {
        int arg;
        KILN_TRY(parse_tensor(lx, row, &arg));
        row->kept |= UINT64_C(1) << arg;
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return KILN_OK;
}

/* writes ARG = EXPR, ... */
static kiln_status clause_writes(kiln_lex *lx, kiln_row *row) {
    kiln_nameds *to = &kiln_row_reduce(row)->writes;
    bool more = true;
    while (more) {
        kiln_named *v = NULL;
        int arg;
        KILN_TRY(kiln_row_named(lx, to, "at most 16 arguments", &v));
        v->name = lx->tok == KILN_TOK_NAME ? lx->str : "";
        KILN_TRY(parse_tensor(lx, row, &arg));
        row->written |= UINT64_C(1) << arg;
        KILN_TRY(kiln_lex_expect(lx, "="));
        KILN_TRY(kiln_expr_parse(lx, &v->expr));
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return KILN_OK;
}

/* gives CONDITION, ... */
static kiln_status clause_gives(kiln_lex *lx, kiln_row *row) {
    KILN_TRY(kiln_row_exprs(lx, &row->gives, "at most 16 results"));
    return row->gives.n <= row->schema->nrets
               ? KILN_OK
               : kiln_lex_fail(lx, "no more conditions than there are results");
}

/* rest OPERATOR */
static kiln_status clause_rest(kiln_lex *lx, kiln_row *row) {
    KILN_TRY(kiln_row_operator(lx, &row->rest));
    row->makes_calls = true;
    return row->rest[0] ? KILN_OK : kiln_lex_fail(lx, "the name of an operator");
}

/* -- the rest of the results -------------------------------------------------------------------------------------- */

kiln_status kiln_row_rest(const kiln_row *row, const kiln_op **out) {
    return kiln_registry_find_row(row->home ? row->home : kiln_registry_shipped(), row->rest, out);
}

/* -- rules ---------------------------------------------------------------------------------------------------- */

/* Results for each element have the sizes of an argument, which is seen as they are. */
static kiln_status check_format(const kiln_row *row) {
    bool format = row->typing.strides == KILN_STRIDES_FORMAT;
    int own = kiln_typing_sizes_of(&row->typing);
    if (row->nviews && (row->reduce->over_diagonal || row->reduce->over_alike))
        return KILN_ROW_FAIL(row,
                             "elements of a diagonal, or of tensors alike, are seen as they are: no 'view'");
    KILN_TRY(kiln_triangle_rules(row));
    if (own < 0 && row->nviews && kiln_gives_each(row))
        return KILN_ROW_FAIL(row, "whose sizes do results for each element have? write 'strides format ARG'");
    if ((format || row->nviews) && own >= 0 && !kiln_row_view(row, own))
        return KILN_ROW_FAIL(row, "'strides format' names an argument that has a view");
    return KILN_OK;
}

/* An argument that is written to has one element for all that are folded together. */
static kiln_status check_writes(const kiln_row *row) {
    for (int a = 0; a < row->schema->nargs; a++) {
        const char *name = row->schema->args[a].name;
        if (!(row->written >> a & 1)) continue;
        if (!(row->kept >> a & 1)) return KILN_ROW_FAIL(row, "'%s' is written to, so it must be kept", name);
    }
    for (int b = 0; b < row->nbranches; b++)
        if (row->branches[b].reduce->writes.n + row->schema->nrets > KILN_MAX_RETS)
            return KILN_ROW_FAIL(row, "at most %d results and written arguments", KILN_MAX_RETS);
    return KILN_OK;
}

kiln_status kiln_rest_rules(const kiln_registry *r, const kiln_row *row) {
    const kiln_op *op;
    KILN_TRY(kiln_note(kiln_registry_find_row(r, row->rest, &op), "%s", row->name));
    for (int a = 0; a < op->schema->nargs; a++) {
        int own = kiln_schema_arg(row->schema, op->schema->args[a].name);
        if (own < 0 || !kiln_type_eq(row->schema->args[own].type, op->schema->args[a].type))
            return KILN_ROW_FAIL(row, "%s takes '%s', which the row has not, or with another type", op->name,
                                 op->schema->args[a].name);
    }
    if (op->form != KILN_FORM_FUNCTIONAL || op->row->rest || op->row == row)
        return KILN_ROW_FAIL(row, "%s writes to an argument, or has a 'rest' itself", op->name);
    for (int b = 0; b < row->nbranches; b++)
        if (!row->branches[b].reduce->finish.n ||
            row->branches[b].reduce->finish.n + op->schema->nrets != row->schema->nrets)
            return KILN_ROW_FAIL(row, "%d results, of which %s gives %d and 'finish' %d", row->schema->nrets,
                                 op->name, op->schema->nrets, row->branches[b].reduce->finish.n);
    return KILN_OK;
}

kiln_status kiln_view_rules(const kiln_row *row) {
    KILN_TRY(check_format(row));
    return check_writes(row);
}

const kiln_clause kiln_clause_view = {.word = "view", .parse = clause_view, .again = true, .untraced = true};
const kiln_clause kiln_clause_kept = {.word = "kept", .parse = clause_kept};
const kiln_clause kiln_clause_writes = {
    .word = "writes", .parse = clause_writes, .each = true, .untraced = true};
const kiln_clause kiln_clause_gives = {.word = "gives", .parse = clause_gives, .untraced = true};
const kiln_clause kiln_clause_rest = {.word = "rest", .parse = clause_rest, .untraced = true};
