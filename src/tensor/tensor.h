/* tensor.h - the tensor header and its memory.
 *
 * A tensor is one block: header, sizes, strides and, where it owns them, its elements.  Blocks are
 * reference counted.  Knows dtypes; knows nothing of operators. */
#ifndef KILN_TENSOR_H
#define KILN_TENSOR_H
#include <stdatomic.h>

#include "base/base.h"

/* What is true of sizes and strides, computed once when the tensor is made. */
enum {
    KILN_TF_CONTIGUOUS = 1, /* row-major (any tensor without elements is) */
    KILN_TF_DENSE = 2, /* non-overlapping and dense: some permutation of row-major, as PyTorch defines it */
    KILN_TF_CHANNELS_LAST = 4, /* rank 4, contiguous as PyTorch's channels_last */
    KILN_TF_OVERLAPS = 8,      /* an expanded dimension: elements certainly share memory */
    KILN_TF_READONLY = 16,     /* may not be written (a read-only import) */
    KILN_TF_OWNED = 32         /* its elements live in memory of Kiln's own: it may be resized */
};

struct kiln_tensor {
    atomic_int refs;
    uint8_t dtype; /* kiln_dtype */
    uint8_t rank;
    uint16_t flags;
    int64_t nelem;
    char *data;       /* element [0,...,0] */
    int64_t *sizes;   /* rank each, in the same block */
    int64_t *strides; /* in elements */
    void (*deleter)(void *owner);
    void *owner;
    size_t block_bytes;             /* of the whole block */
    size_t data_cap;                /* OWNED: bytes from data on; 0 otherwise */
    int rank_cap;                   /* dimensions sizes and strides have room for */
    struct kiln_tensor_room *rooms; /* memory that resizing added, newest first */
};

/* Sizes that a tensor can have: no negative size, rank <= KILN_MAX_RANK, and fewer than 2^62 bytes even
 * if sizes of zero were one (strides are computed that way).  KILN_E_ARG or KILN_E_LIMIT. */
kiln_status kiln_sizes_check(kiln_dtype dtype, int rank, const int64_t *sizes,
                             int64_t *nelem) KILN_MUST_CHECK;

void kiln_row_major(int rank, const int64_t *sizes, int64_t *strides); /* sizes of zero count as one */

/* The KILN_TF_ bits that follow from sizes and strides. */
uint16_t kiln_layout_flags(int rank, const int64_t *sizes, const int64_t *strides, int64_t nelem);

/* Gives t another shape, all or nothing; its elements are then undefined.  strides: NULL for row-major,
 * else not negative.  kiln_tensor_reserve does the part that can fail and changes nothing that can be seen,
 * so reserving every output first makes the resizes that follow certain.  KILN_E_ARG unless t is OWNED. */
kiln_status kiln_tensor_reserve(kiln_tensor *t, int rank, const int64_t *sizes,
                                const int64_t *strides) KILN_MUST_CHECK;
kiln_status kiln_tensor_resize(kiln_tensor *t, int rank, const int64_t *sizes,
                               const int64_t *strides) KILN_MUST_CHECK;

void kiln_tensor_set_readonly(kiln_tensor *t);
#endif
