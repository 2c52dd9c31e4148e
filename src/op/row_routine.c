/* row_routine.c - the routine that an extern row names -> whether the row fits it.
 *
 * routine.def says what a routine gets and gives; a row that hands it something else is refused when it is loaded, so
 * that no call need look.  Knows names and counts, not what a routine computes or where it is. */
#include <string.h>

#include "op/row.h"

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
    return kiln_expr_fail(row->source, at, KILN_E_TYPE, "the routine '%s' %s", routines[row->routine.id].name,
                          what);
}

kiln_status kiln_routine_fits(const kiln_row *row) {
    kiln_dtypes unfit = 0;
    for (int t = 0; t < KILN_DTYPE_COUNT; t++)
        if (kiln_dtype_is_complex((kiln_dtype)t) || kiln_dtype_is_limited((kiln_dtype)t)) unfit |= KILN_DT(t);
    const kiln_nameds *args = &row->routine.args;
    const kiln_expr *first = args->at[0].expr;
    if (args->n != 1 + routines[row->routine.id].numbers)
        return misfit(row, first, "gets another number of arguments");
    for (int k = 1; k < args->n; k++)
        if (!is_integer(row, args->at[k].expr)) return misfit(row, args->at[k].expr, "gets an integer here");
    if (row->schema->nrets != routines[row->routine.id].results)
        return misfit(row, first, "gives another number of results");
    for (int k = 0; k < row->schema->nrets; k++)
        if (row->typing.ret[k] != (k ? KILN_I64 : KILN_RET_COMMON))
            return misfit(row, first, "gives elements as they are, then places: '-> (same, i64)'");
    return row->takes & unfit ? misfit(row, first, "takes no complex numbers and no u16, u32 or u64")
                              : KILN_OK;
}
