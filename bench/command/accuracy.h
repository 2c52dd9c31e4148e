/* accuracy.h - data of known kinds, and how far folds of them are from exact results.
 *
 * Shared by `kiln bench accuracy` and bench/peers_accuracy.py, so that both judge by the same references on the same
 * data. */
#ifndef KILN_COMMAND_ACCURACY_H
#define KILN_COMMAND_ACCURACY_H
#include <stdbool.h>
#include <stdint.h>

#include "kiln/kiln.h"

/* So many slices of n elements each; a fold comes to one result per slice, a scan to one per element. */
typedef struct accuracy_shape {
    int64_t slices, n;
    int64_t slice_step, step; /* in elements: from a slice to the next, from an element of one to the next */
} accuracy_shape;

/* The kind of data or the reference of that name; -1 if there is none. */
KILN_API int accuracy_data(const char *name);
KILN_API int accuracy_reference(const char *name);

/* Fills `to`, of f32 or f64, with that kind of data; equal seeds give equal data. */
KILN_API void accuracy_fill(int data, kiln_dtype dtype, const accuracy_shape *shape, uint64_t seed, void *to);

/* out[k]: the mean of the squared errors of results[k], for k < nresults.  An error is counted in the dtype's epsilon times
 * the size of the exact result, or of what was added up where terms cancel; but at least in the smallest number there is. */
KILN_API void accuracy_errors(int reference, kiln_dtype dtype, const accuracy_shape *shape, const void *data,
                              const void *const *results, int nresults, double *out);
#endif
