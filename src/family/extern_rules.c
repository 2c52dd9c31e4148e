/* extern_rules.c - what a row may say whose results a routine of the library computes, and whether the row fits the routine.
 *
 * routine.def says what a routine gets and gives; a row that hands it something else is refused when it is loaded, so
 * that no call need look.  Knows names and counts, not what a routine computes or where it is. */
#include <string.h>

#include "family/extern_rules.h"
#include "family/reduce_rules.h"

static const struct {
    const char *name;
    int numbers, results;
} routines[KILN_ROUTINE_COUNT] = {
#define PICK(NAME, FIND, numbers, results) [KILN_ROUTINE_##NAME] = {#NAME, numbers, results},
#include "expr/routine.def"
#undef PICK
};

kiln_routine_id kiln_routine_named(const char *name) {
    int k = 0;
    while (k < KILN_ROUTINE_COUNT && strcmp(routines[k].name, name) != 0) k++;
    return (kiln_routine_id)k;
}

static bool is_integer(const kiln_row *row, const kiln_expr *e) {
    bool optional;
    if (e->kind != KILN_X_NAME) return false;
    const kiln_named *host = kiln_named_of(&row->hosts, e->name);
    if (host) return host->dtype == KILN_I64 || host->dtype == KILN_DTYPE_COUNT;
    int arg = kiln_schema_arg(row->schema, e->name);
    if (arg < 0) return false;
    kiln_tkind kind = kiln_type_strip(row->schema->args[arg].type, &optional)->kind;
    return !optional && (kind == KILN_T_INT || kind == KILN_T_SYMINT);
}

static kiln_status misfit(const kiln_row *row, const kiln_expr *at, const char *what) {
    return kiln_expr_fail(row->source, at, KILN_E_TYPE, "the routine '%s' %s",
                          routines[kiln_row_handed(row)->id].name, what);
}

static kiln_status fits_routine(const kiln_row *row) {
    kiln_dtypes unfit = 0;
    for (int t = 0; t < KILN_DTYPE_COUNT; t++)
        if (kiln_dtype_is_complex((kiln_dtype)t) || kiln_dtype_is_limited((kiln_dtype)t)) unfit |= KILN_DT(t);
    const kiln_nameds *args = &kiln_row_handed(row)->args;
    const kiln_expr *first = args->at[0].expr;
    if (args->n != 1 + routines[kiln_row_handed(row)->id].numbers)
        return misfit(row, first, "gets another number of arguments");
    for (int k = 1; k < args->n; k++)
        if (!is_integer(row, args->at[k].expr)) return misfit(row, args->at[k].expr, "gets an integer here");
    if (row->schema->nrets != routines[kiln_row_handed(row)->id].results)
        return misfit(row, first, "gives another number of results");
    for (int k = 0; k < row->schema->nrets; k++)
        if (row->typing.ret[k] != (k ? KILN_I64 : KILN_RET_COMMON))
            return misfit(row, first, "gives elements as they are, then places: '-> (same, i64)'");
    return row->takes & unfit ? misfit(row, first, "takes no complex numbers and no u16, u32 or u64")
                              : KILN_OK;
}

/* routine NAME(arg, ...) */
static kiln_status clause_routine(kiln_lex *lx, kiln_row *row) {
    kiln_handed *h = kiln_arena_alloc(lx->arena, sizeof *h);
    if (!h) return KILN_NOMEM();
    *h = (kiln_handed){.id = lx->tok == KILN_TOK_NAME ? kiln_routine_named(lx->str) : KILN_ROUTINE_COUNT};
    if (h->id == KILN_ROUTINE_COUNT) return kiln_lex_fail(lx, "the name of a routine");
    row->own = h;
    KILN_TRY(kiln_lex_next(lx));
    KILN_TRY(kiln_lex_expect(lx, "("));
    KILN_TRY(kiln_row_exprs(lx, &h->args, "at most 16 arguments"));
    return kiln_lex_expect(lx, ")");
}

/* A routine reads elements as they are and writes results as they are: nothing is converted on either way. */
static kiln_status rules(const kiln_row *row) {
    const kiln_typing *t = &row->typing;
    const kiln_handed *h = kiln_row_handed(row);
    const kiln_expr *first = h ? h->args.at[0].expr : NULL;
    int tensor = first && first->kind == KILN_X_NAME ? kiln_schema_arg(row->schema, first->name) : -1;
    KILN_TRY(kiln_over_rules(row));
    KILN_TRY(kiln_triangle_rules(row));
    if (!h) return KILN_ROW_FAIL(row, "an extern row needs a routine clause");
    if (row->branches[0].nbody) return KILN_ROW_FAIL(row, "an extern row has a routine clause and no body");
    if (tensor < 0 || !kiln_row_is_tensor(row, tensor) || kiln_row_optional(row, tensor))
        return KILN_ROW_FAIL(row, "a routine's first argument is a tensor");
    if (t->promo != KILN_PROMO_PROMOTE || t->args != 1ull << tensor)
        return KILN_ROW_FAIL(row,
                             "a routine takes the elements of '%s' as they are: nothing else may be promoted",
                             row->schema->args[tensor].name);
    if (t->out != KILN_OUT_EXACT && t->out != KILN_OUT_COPIED)
        return KILN_ROW_FAIL(row, "a routine converts no results: write 'out exact' or 'out copied'");
    return fits_routine(row);
}

static kiln_status visit(const kiln_row *row, kiln_visit_fn each, void *user) {
    KILN_TRY(kiln_over_visit(row, each, user));
    return kiln_visit_all(&kiln_row_handed(row)->args, KILN_USE_BODY, each, user);
}

static const kiln_clause routine = {.word = "routine", .parse = clause_routine};
static const kiln_clause *const clauses[] = {&kiln_clause_over, &routine, NULL};

const kiln_family_rules kiln_rules_extern = {
    .clauses = clauses,
    .folding = &kiln_reduce_folding,
    .counts = true,
    .rules = rules,
    .names = kiln_over_names,
    .visit = visit,
};
