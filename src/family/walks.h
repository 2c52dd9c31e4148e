/* walks.h - private to src/family: kept and folded dimensions, for families that fold some. */
#ifndef KILN_WALKS_H
#define KILN_WALKS_H
#include "family/dims.h"

/* Sets shapes and results: the call's shape is that of its tensors, every result's has the dimensions that are kept,
 * or all where it has an element for each. */
kiln_status kiln_kept_shape(kiln_plan *p) KILN_MUST_CHECK;

/* Strides of every buffer along the dimensions of the call's shape, in elements. */
typedef struct kiln_walks {
    int64_t room[KILN_MAX_OPERANDS][KILN_MAX_RANK];
    const int64_t *of[KILN_MAX_OPERANDS];
    int64_t along[KILN_MAX_OPERANDS],
        extent[KILN_MAX_OPERANDS]; /* of one read at computed places: along its own axis */
} kiln_walks;
void kiln_walks_find(const kiln_plan *p, kiln_walks *w);

/* Whether buffer b is read at computed places, along an axis of its own; a table, of one dimension, along that alone.  Whether
 * it has the dimensions that are kept, and lacks the others. */
bool kiln_is_accessed(const kiln_plan *p, int b);
bool kiln_is_table(const kiln_plan *p, int b);
bool kiln_is_lacking(const kiln_plan *p, int b);

/* Dimensions that are (not) folded, nearest in `by` first if sorted, else from the last; how many. */
int kiln_dims_collect(const kiln_plan *p, bool folded, const int64_t *by, bool sorted, uint8_t *out);

/* The axis of a buffer that is read at computed places. */
void kiln_axes_add_accessed(kiln_plan *p, const kiln_walks *w, int b);

/* Input b is copied before the launch, kept dimensions first and then those folded, each in its order; before them its own axis, if
 * places are computed along one: of one input at most. */
void kiln_walks_copy_first(kiln_plan *p, kiln_walks *w, int b);

/* The same with all dimensions in some order, nearest first, but for those that input b is stretched along.  No other input is copied. */
void kiln_walks_copy_turned(kiln_plan *p, kiln_walks *w, int b, const uint8_t *order, int ndims);
#endif
