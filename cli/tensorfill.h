/* tensorfill.h - made tensors: dtype, sizes, strides and a fill rule -> a tensor with data.
 *
 * Everything is checked before memory is asked for; the same text always gives the same bits. */
#ifndef KILN_CLI_TENSORFILL_H
#define KILN_CLI_TENSORFILL_H
#include <stdbool.h>
#include <stdint.h>

#include "kiln/kiln.h"

enum { TENSOR_ERROR_MAX = 512 };

/* Makes err (TENSOR_ERROR_MAX bytes) the text and returns false. */
bool tensor_error(char *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

typedef enum fill_kind { FILL_NOTHING, FILL_RANDN, FILL_ARANGE, FILL_VALUE } fill_kind;

typedef struct tensor_spec {
    kiln_dtype dtype;
    int rank;
    bool has_strides;
    int64_t sizes[KILN_MAX_RANK];
    int64_t strides[KILN_MAX_RANK]; /* in elements, if has_strides */
    fill_kind fill;
    kiln_value value; /* of FILL_VALUE: a number */
    uint64_t seed;    /* of FILL_RANDN */
} tensor_spec;

/* Bytes from the first to past the last element, and elements times their size; fails if either exceeds
 * max_bytes or a size is negative, or a stride is. */
bool tensor_spec_bytes(const tensor_spec *spec, uint64_t max_bytes, uint64_t *nbytes, char *err);

/* True if the fill's values fit the dtype. */
bool tensor_spec_check_fill(const tensor_spec *spec, char *err);

/* *out: owned by the caller.  Gaps between strided elements are zero. */
bool tensor_spec_make(const tensor_spec *spec, uint64_t max_bytes, kiln_tensor **out, char *err);
#endif
