/* row_view.c - clauses by which a fold sees arguments in other sizes, writes to some, and gives some results only.
 *
 *   view ARG [SIZE, ...] [when CONDITION]      kept ARG, ...      writes ARG = EXPR, ...      gives CONDITION, ...
 *   rest OPERATOR
 * Sizes and conditions are computed once per call.  Only names and numbers of things are checked here; what sizes come
 * to for actual tensors is the family's business, types are row_check.c's. */
#include "op/row.h"

/* A list of expressions without names, up to what ends it. */
static kiln_status parse_list(kiln_lex *lx, kiln_nameds *out, const char *most) {
    bool more = true;
    while (more) {
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, out, most, &v));
        KILN_TRY(kiln_expr_parse(lx, &v->expr));
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return KILN_OK;
}

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
kiln_status kiln_row_clause_view(kiln_lex *lx, kiln_row *row) {
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

const kiln_view *kiln_row_view(const kiln_row *row, int arg) {
    for (int k = 0; k < row->nviews; k++)
        if (row->views[k].arg == arg) return &row->views[k];
    return NULL;
}

int kiln_typing_sizes_of(const kiln_typing *t) {
    if (t->strides == KILN_STRIDES_FORMAT) return t->like;
    bool rows = t->strides == KILN_STRIDES_CHAIN && t->nchain == 2 && t->chain[0].kind == KILN_LINK_ROWS;
    return rows ? t->chain[0].n : -1;
}

/* kept ARG, ... */
kiln_status kiln_row_clause_kept(kiln_lex *lx, kiln_row *row) {
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
kiln_status kiln_row_clause_writes(kiln_lex *lx, kiln_row *row) {
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
kiln_status kiln_row_clause_gives(kiln_lex *lx, kiln_row *row) {
    KILN_TRY(parse_list(lx, &row->gives, "at most 16 results"));
    return row->gives.n <= row->schema->nrets
               ? KILN_OK
               : kiln_lex_fail(lx, "no more conditions than there are results");
}

/* rest OPERATOR */
kiln_status kiln_row_clause_rest(kiln_lex *lx, kiln_row *row) {
    KILN_TRY(kiln_row_operator(lx, &row->rest));
    return row->rest[0] ? KILN_OK : kiln_lex_fail(lx, "the name of an operator");
}

/* -- the rest of the results -------------------------------------------------------------------------------------- */

int kiln_row_nown(const kiln_row *row) {
    return row->rest ? row->branches[0].reduce->finish.n : row->schema->nrets;
}

kiln_status kiln_row_rest(const kiln_row *row, const kiln_op **out) {
    return kiln_registry_find_row(row->home ? row->home : kiln_registry_shipped(), row->rest, out);
}

/* -- rules ---------------------------------------------------------------------------------------------------- */

#define VIEW_FAIL(row, ...) KILN_FAIL_LINE(KILN_E_PARSE, (row)->source, (row)->line, (row)->col, __VA_ARGS__)

static bool has_each(const kiln_row *row) {
    for (int b = 0; b < row->nbranches; b++)
        for (int k = 0; k < row->branches[b].reduce->finish.n; k++)
            if (row->branches[b].reduce->finish.at[k].each) return true;
    return false;
}

/* Results for each element have the sizes of an argument, which is seen as they are. */
static kiln_status check_format(const kiln_row *row) {
    bool format = row->typing.strides == KILN_STRIDES_FORMAT;
    int own = kiln_typing_sizes_of(&row->typing);
    if (row->nviews && (row->reduce.over_diagonal || row->reduce.over_alike))
        return VIEW_FAIL(row, "elements of a diagonal, or of tensors alike, are seen as they are: no 'view'");
    if (row->reduce.triangle && (!row->nviews || has_each(row) || row->written))
        return VIEW_FAIL(row,
                         "a triangle is of rows that views set beside each other, and its results have one "
                         "element for each two: no 'each', no 'writes'");
    if (own < 0 && row->nviews && has_each(row))
        return VIEW_FAIL(row, "whose sizes do results for each element have? write 'strides format ARG'");
    if ((format && row->family != KILN_FAMILY_FOLD) ||
        ((format || row->nviews) && own >= 0 && !kiln_row_view(row, own)))
        return VIEW_FAIL(row, "'strides format' names an argument that has a view");
    return KILN_OK;
}

/* An argument that is written to has one element for all that are folded together. */
static kiln_status check_writes(const kiln_row *row) {
    for (int a = 0; a < row->schema->nargs; a++) {
        const char *name = row->schema->args[a].name;
        if (!(row->written >> a & 1)) continue;
        if (!(row->kept >> a & 1)) return VIEW_FAIL(row, "'%s' is written to, so it must be kept", name);
    }
    for (int b = 0; b < row->nbranches; b++)
        if (row->branches[b].reduce->writes.n + row->schema->nrets > KILN_MAX_RETS)
            return VIEW_FAIL(row, "at most %d results and written arguments", KILN_MAX_RETS);
    return KILN_OK;
}

kiln_status kiln_row_rest_fits(const kiln_registry *r, const kiln_row *row) {
    const kiln_op *op;
    KILN_TRY(kiln_note(kiln_registry_find_row(r, row->rest, &op), "%s", row->name));
    for (int a = 0; a < op->schema->nargs; a++) {
        int own = kiln_schema_arg(row->schema, op->schema->args[a].name);
        if (own < 0 || !kiln_type_eq(row->schema->args[own].type, op->schema->args[a].type))
            return VIEW_FAIL(row, "%s takes '%s', which the row has not, or with another type", op->name,
                             op->schema->args[a].name);
    }
    if (op->form != KILN_FORM_FUNCTIONAL || op->row->rest || op->row == row)
        return VIEW_FAIL(row, "%s writes to an argument, or has a 'rest' itself", op->name);
    for (int b = 0; b < row->nbranches; b++)
        if (!row->branches[b].reduce->finish.n ||
            row->branches[b].reduce->finish.n + op->schema->nrets != row->schema->nrets)
            return VIEW_FAIL(row, "%d results, of which %s gives %d and 'finish' %d", row->schema->nrets,
                             op->name, op->schema->nrets, row->branches[b].reduce->finish.n);
    return KILN_OK;
}

kiln_status kiln_row_views_fit(const kiln_row *row) {
    KILN_TRY(check_format(row));
    return check_writes(row);
}
