/* element.h - single tensor elements: values in, text out, and the walk over a tensor's elements.
 *
 * Knows dtypes and strides through the public interface only; does no input or output. */
#ifndef KILN_CLI_ELEMENT_H
#define KILN_CLI_ELEMENT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kiln/kiln.h"

bool element_is_float(kiln_dtype dtype);
kiln_dtype element_part(kiln_dtype dtype); /* of the two parts of a complex dtype; any other is its own */

/* Stores an integer or a real as dtype, rounding reals to nearest even.  False, with nothing stored, if
 * dtype cannot hold it: out of range, or not a whole number for an integer dtype. */
bool element_store_int(kiln_dtype dtype, int64_t value, void *out);
bool element_store_real(kiln_dtype dtype, double value, void *out);
/* A bool, int, float or (for a complex dtype) complex value; false for any other kind. */
bool element_store_value(kiln_dtype dtype, const kiln_value *value, void *out);

int64_t element_int(kiln_dtype dtype, const void *p); /* of a bool or integer dtype; an u64 as its bits */
double element_real(kiln_dtype dtype, const void *p); /* of a float dtype, exact */

enum { ELEMENT_TEXT_MAX = 80 };
/* The element as text: true, -3, 1.0, nan, inf, -inf, 1.0-2.0j; reals that are not whole as the shortest text that reads
 * back to the same element. */
void element_text(kiln_dtype dtype, const void *p, char text[ELEMENT_TEXT_MAX]);
/* Equal bits, or both NaN. */
bool element_same(kiln_dtype dtype, const void *a, const void *b);

/* Visits a tensor's elements in logical row-major order:
 *   for (walk w = walk_start(t); w.left > 0; walk_next(&w)) use(w.p); */
typedef struct walk {
    const kiln_tensor *tensor;
    char *p;      /* the current element */
    int64_t left; /* elements not yet passed, the current one included */
    int64_t index[KILN_MAX_RANK];
} walk;

walk walk_start(const kiln_tensor *t);
void walk_next(walk *w);
#endif
