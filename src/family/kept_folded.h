/* kept_folded.h - which dimensions are kept and which are folded: for the families that fold, and for their choosers in src/target. */
#ifndef KILN_KEPT_FOLDED_H
#define KILN_KEPT_FOLDED_H
#include "family/dims.h"
#include "work/access.h"

/* Sets the shapes of the call and of its results.  The call has the shape of its tensors.  A result has the kept dimensions,
 * and with keepdim the folded ones too, with size 1.  A result with one element for each folded element (`finish each`) has
 * all dimensions. */
kiln_status kiln_kept_shape(kiln_plan *p) KILN_MUST_CHECK;

/* Strides of every buffer along the dimensions of the call's shape, in elements; `along` and `extent` are for folds. */
typedef struct kiln_dim_strides {
    int64_t room[KILN_MAX_OPERANDS][KILN_MAX_RANK];
    const int64_t *of[KILN_MAX_OPERANDS];
    int64_t along[KILN_MAX_OPERANDS],
        extent[KILN_MAX_OPERANDS]; /* of one read at computed places: along its own axis */
} kiln_dim_strides;
void kiln_dim_strides_find(const kiln_plan *p, kiln_dim_strides *w);

/* Whether buffer b is read at computed places, along an axis of its own; a table, of one dimension, along that alone.  Whether
 * it has the dimensions that are kept, and lacks the others. */
bool kiln_is_accessed(const kiln_plan *p, int b);
bool kiln_is_table(const kiln_plan *p, int b);
bool kiln_is_lacking(const kiln_plan *p, int b);

/* Dimensions that are (not) folded, nearest in `by` first if sorted, else from the last; how many. */
int kiln_dims_collect(const kiln_plan *p, bool folded, const int64_t *by, bool sorted, uint8_t *out);

/* The axis of a buffer that is read at computed places. */
void kiln_axes_add_accessed(kiln_plan *p, const kiln_dim_strides *w, int b);

/* Input b is copied before the launch with its dimensions in the order given, nearest first; behind them its own axis, if
 * places are computed along one: of one input at most.  Where more inputs than one are copied, all have the same order. */
void kiln_dim_strides_copy(kiln_plan *p, kiln_dim_strides *w, int b, const uint8_t *order, int ndims);
/* The same with the folded dimensions nearest and then those kept, each from the last. */
void kiln_dim_strides_copy_first(kiln_plan *p, kiln_dim_strides *w, int b);
#endif
