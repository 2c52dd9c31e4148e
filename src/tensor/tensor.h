/* tensor.h - the tensor header, its signature and its memory.
 *
 * A tensor is one recycled block (blocks.h): header, sizes, strides and, where it owns them, its elements;
 * or a header in storage of the caller's that borrows all of these.  Reference counted.  The signature is
 * all that dispatch asks of a tensor besides its sizes, ready in one word, so a hit reads no strides.
 * A kept block still holds the header of the tensor it was: the next one in that shape is ready made.
 * Knows dtypes; knows nothing of operators. */
#ifndef KILN_TENSOR_H
#define KILN_TENSOR_H
#include <stdatomic.h>

#include "base/base.h"
#include "tensor/blocks.h"

/* Memory that a host gives for elements.  See kiln_alloc_fn. */
typedef struct kiln_memory {
    kiln_alloc_fn alloc;
    kiln_free_fn free;
    void *user;
} kiln_memory;

/* What is true of sizes and strides, computed once when the tensor is made. */
enum {
    KILN_TF_CONTIGUOUS = 1, /* row-major (any tensor without elements is) */
    KILN_TF_DENSE = 2, /* non-overlapping and dense: some permutation of row-major, as PyTorch defines it */
    KILN_TF_CHANNELS_LAST = 4, /* rank 4, contiguous as PyTorch's channels_last */
    KILN_TF_OVERLAPS = 8,      /* an expanded dimension: elements certainly share memory */
    KILN_TF_READONLY = 16,     /* may not be written (a read-only import) */
    KILN_TF_OWNED = 32,        /* its elements live in memory of Kiln's own: it may be resized */
    KILN_TF_CANONICAL = 64,    /* has elements, and every stride, of one-sized dimensions too, is row-major */
    KILN_TF_SCALAR = 128,      /* rank 0 */
    KILN_TF_BORROWED = 256,    /* the header lies in storage of the caller's */
    KILN_TF_SINGLE = 512,      /* one element */
    KILN_TF_NUMBER = 1024      /* stands for a number, and takes part in promotion as one */
};

enum { KILN_DEVICE_CPU = 1, KILN_DEVICE_COUNT };

struct kiln_tensor {
    union {
        uint64_t sig; /* the signature: the five fields below as one word */
        struct {
            uint8_t dtype;  /* kiln_dtype */
            uint8_t device; /* KILN_DEVICE_CPU */
            uint16_t flags; /* KILN_TF_ */
            uint8_t rank;
            uint8_t zero[3];
        };
    };
    atomic_int refs;
    int rank_cap; /* dimensions sizes and strides have room for */
    int64_t nelem;
    char *data;                   /* element [0,...,0] */
    int64_t *sizes;               /* rank each, in the same block unless borrowed */
    int64_t *strides;             /* in elements */
    kiln_home home;               /* of its block; see KILN_HOME_CARE */
    size_t data_cap;              /* OWNED: bytes from data on; 0 otherwise */
    void (*deleter)(void *owner); /* this and owner: unless OWNED.  A kept block's links are here */
    void *owner;
    struct kiln_tensor_room *rooms; /* memory that resizing added, newest first */
};

/* Part of `home` where the last release does more than keep the block with the header it has. */
#define KILN_HOME_CARE ((kiln_home)1 << 63)

/* Parts of a signature (little-endian, as everything here). */
#define KILN_SIG(dtype, flags, rank) \
    ((uint64_t)(dtype) | (uint64_t)KILN_DEVICE_CPU << 8 | (uint64_t)(flags) << 16 | (uint64_t)(rank) << 32)
#define KILN_SIG_FLAGS(flags) ((uint64_t)(flags) << 16)
#define KILN_SIG_TYPE ((uint64_t)0xffff) /* dtype and device */
#define KILN_SIG_RANK ((uint64_t)0xff << 32)

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

/* The bytes of memory from a tensor's lowest element to the end of its highest one: none if it has no elements. */
typedef struct kiln_extent {
    uint64_t low, nbytes;
} kiln_extent;
kiln_extent kiln_strided_extent(const kiln_tensor *t);
static inline kiln_extent kiln_tensor_extent(const kiln_tensor *t) {
    if (!(t->flags & KILN_TF_DENSE)) return kiln_strided_extent(t);
    return (kiln_extent){(uintptr_t)t->data, (uint64_t)t->nelem * kiln_elem_bytes[t->dtype]};
}

/* Whether no byte is in both of two extents, neither of which is empty.  Distances wrap around at the end of memory. */
static inline __attribute__((always_inline)) bool kiln_extents_apart(kiln_extent a, kiln_extent b) {
    uint64_t ahead = b.low - a.low;
    return ahead >= a.nbytes && -ahead >= b.nbytes;
}

/* Whether a tensor may be written whose extent is a, while another one is read whose extent is b: they have no byte in common.
 * aligned: if they begin at one place, each element of the one lies on an element of the other, which is fine as well. */
static inline __attribute__((always_inline)) bool kiln_extents_fit(kiln_extent a, kiln_extent b,
                                                                   bool aligned) {
    return a.low == b.low ? aligned : kiln_extents_apart(a, b);
}

/* Whether each element of a has the place of b's with the same index.  Dimensions are matched from the last. */
bool kiln_tensors_aligned(const kiln_tensor *a, const kiln_tensor *b);
/* Whether an element of a and one of b may have a byte in common: false is certain, true nearly so. */
bool kiln_tensors_may_share(const kiln_tensor *a, const kiln_tensor *b);
/* The same of two elements of t.  Where a dimension is expanded they certainly do: KILN_TF_OVERLAPS. */
bool kiln_tensor_may_overlap(const kiln_tensor *t);

/* Where elements lie: the first one, and the bytes from one to the next along each dimension, innermost first.  stride NULL:
 * the elements lie side by side in that order. */
typedef struct kiln_places {
    char *at;
    const int64_t *stride;
} kiln_places;

/* Copies elements of `bytes` each to other places, one after the other.  n: extents, innermost first, of one dimension at
 * least.  No place may be in both. */
void kiln_elements_copy(kiln_places to, kiln_places from, int ndim, const int64_t *n, size_t bytes);
/* Sets n and stride as kiln_elements_copy takes them, from sizes and strides in elements.  Returns how many dimensions
 * there are: of rank 0, one of one element. */
int kiln_innermost_first(int rank, const int64_t *sizes, const int64_t *strides, size_t bytes, int64_t *n,
                         int64_t *stride);

void kiln_tensor_set_readonly(kiln_tensor *t);

/* kiln_tensor_new for sizes and strides (not negative) that are known to be right. */
kiln_tensor *kiln_tensor_new_trusted(kiln_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                                     int64_t nelem);

/* The same in memory that a host gives; a later resize takes from there as well. */
kiln_status kiln_tensor_new_in(const kiln_memory *memory, kiln_dtype dtype, int rank, const int64_t *sizes,
                               const int64_t *strides, kiln_tensor **out) KILN_MUST_CHECK;

/* -- new tensors on the hot path ------------------------------------------------------------------------ */

/* Bytes of header, sizes and strides. */
static inline size_t kiln_tensor_head(int rank) {
    size_t n = sizeof(kiln_tensor) + 2 * (size_t)rank * sizeof(int64_t) + KILN_BLOCK_ALIGN - 1;
    return n & ~(size_t)(KILN_BLOCK_ALIGN - 1);
}

/* Sets all of a new header but nelem, sizes and strides. */
static inline void kiln_tensor_init(kiln_tensor *t, kiln_home home, uint64_t sig, int rank,
                                    size_t data_bytes) {
    t->sig = sig;
    atomic_init(&t->refs, 1);
    t->rank_cap = rank;
    t->data = (char *)t + kiln_tensor_head(rank);
    t->sizes = (int64_t *)(t + 1);
    t->strides = t->sizes + rank;
    t->home = home;
    t->data_cap = data_bytes;
    t->deleter = NULL;
    t->rooms = NULL;
}

/* What a tensor of some dtype in the shape of another takes: worked out once for many of them. */
typedef struct kiln_tensor_mold {
    uint64_t sig;
    size_t data_bytes;
    uint32_t block; /* class, or large */
} kiln_tensor_mold;

/* The shape of `like`, which is CANONICAL and has fewer than 2^58 elements, and its signature decide all of it. */
static inline kiln_tensor_mold kiln_tensor_mold_like(const kiln_tensor *like, kiln_dtype dtype,
                                                     size_t elem_bytes) {
    enum {
        LAYOUT = KILN_TF_CONTIGUOUS | KILN_TF_DENSE | KILN_TF_CHANNELS_LAST | KILN_TF_CANONICAL |
                 KILN_TF_SCALAR | KILN_TF_SINGLE
    };
    kiln_tensor_mold m;
    m.sig = (like->sig & (KILN_SIG_FLAGS(LAYOUT) | KILN_SIG_RANK)) | KILN_SIG(dtype, KILN_TF_OWNED, 0);
    m.data_bytes = (size_t)like->nelem * elem_bytes;
    m.block = kiln_block_class_or_large(kiln_tensor_head(like->rank) + m.data_bytes);
    return m;
}

static inline __attribute__((always_inline)) bool kiln_same_sizes(size_t rank, const int64_t *a,
                                                                  const int64_t *b) {
    for (; rank > 0; rank--)
        if (a[rank - 1] != b[rank - 1]) return false;
    return true;
}

static inline __attribute__((always_inline)) bool kiln_has_shape(const kiln_tensor *t, int rank,
                                                                 const int64_t *sizes) {
    return t->rank == rank && kiln_same_sizes((size_t)rank, t->sizes, sizes);
}

/* As kiln_tensor_make, in `block` unless it is NULL. */
kiln_tensor *kiln_tensor_make_afresh(const kiln_tensor_mold *m, const kiln_tensor *like, kiln_tensor *block);

/* A new tensor by the mold of `like`; NULL without memory (the error is set).  Calls nothing where its thread
 * keeps a block that was one of that shape. */
static inline __attribute__((always_inline)) kiln_tensor *kiln_tensor_make(const kiln_tensor_mold *m,
                                                                           const kiln_tensor *like) {
    kiln_tensor *t = kiln_block_take_kept(m->block, kiln_tensor_head(like->rank) + m->data_bytes);
    if (t && t->sig == m->sig && kiln_same_sizes(t->rank, t->sizes, like->sizes)) return t;
    return kiln_tensor_make_afresh(m, like, t);
}
#endif
