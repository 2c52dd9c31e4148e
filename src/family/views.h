/* views.h - private to src/family: arguments that a row sees in other sizes, and results in those of an argument. */
#ifndef KILN_VIEWS_H
#define KILN_VIEWS_H
#include "family/family.h"
#include "work/access.h"

/* Shapes of the plan beside the call's and that of the kept dimensions. */
enum { KILN_SHAPE_OWN = 2, KILN_SHAPE_EMPTY = 3, KILN_SHAPE_REST = 4 };

/* Computes the sizes of the row's views, and sets the call's shape to what all tensors, so seen, come to. */
kiln_status kiln_views_find(kiln_plan *p) KILN_MUST_CHECK;

/* Sets the sizes and strides of results for each element: those of the argument that the row names.  A given result whose
 * memory has no strides in the view's sizes is computed aside. */
kiln_status kiln_views_of_results(kiln_plan *p) KILN_MUST_CHECK;

/* Copies first what cannot be seen so by strides; after the buffers are set. */
kiln_status kiln_views_copy(kiln_plan *p) KILN_MUST_CHECK;

/* The memory of an argument's buffer in the sizes of its view (false: it has none), and that of a result. */
bool kiln_view_of_input(const kiln_plan *p, int b, kiln_access *out);
void kiln_view_of_result(const kiln_plan *p, int k, kiln_access *out);

/* rest.c: kiln_rest_find infers a call of the operator that `rest` names, and sets that operator's results in the plan.  kiln_rest_call adds the
 * step that calls the operator, if the operator gives a result. */
kiln_status kiln_rest_find(kiln_plan *p) KILN_MUST_CHECK;
void kiln_rest_call(kiln_plan *p);
#endif
