/* lists.h - private to src/api: calls of rows that call another operator for each item of lists. */
#ifndef KILN_LISTS_H
#define KILN_LISTS_H
#include "api/ctx.h"

static inline bool kiln_op_is_listed(const kiln_op *op) { return op->row->listed; }

/* Calls an operator that is listed (kiln_op_is_listed).  The thread is inside the epochs.  *out: the list of results, if the operator has one: the
 * caller's until kiln_values_release. */
kiln_status kiln_lists_call(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                            kiln_value *out) KILN_MUST_CHECK;
/* Shows the plans that the items of a call of a listed operator would run. */
kiln_status kiln_lists_show(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                            kiln_plan_fn *show, void *user) KILN_MUST_CHECK;
#endif
