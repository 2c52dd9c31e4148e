/* forms.h - private to src/op: a row and a schema -> an operator, and which schemas are forms of a row. */
#ifndef KILN_FORMS_H
#define KILN_FORMS_H
#include "op/op.h"

/* The operator that takes `schema` and computes what the row says. */
kiln_status kiln_op_make(kiln_arena *arena, const kiln_schema *schema, const kiln_row *row, kiln_form form,
                         const kiln_op **out) KILN_MUST_CHECK;
/* Calls add(user, op) for each in-place and out form that the list has of the row. */
kiln_status kiln_forms_of(kiln_arena *arena, const kiln_schema_list *list, const kiln_row *row,
                          kiln_status (*add)(void *user, const kiln_op *op), void *user) KILN_MUST_CHECK;
/* The out form of a row of any namespace: the row's arguments, then a tensor for each result, by name. */
kiln_status kiln_form_out(kiln_arena *arena, const kiln_row *row, const kiln_op **out) KILN_MUST_CHECK;
#endif
