/* access.h - how the memory of a tensor is reached from the dimensions of a call.
 *
 * An access has one entry for each dimension of the memory.  The entry says which dimension of the call the memory's
 * dimension steps along, and so what a place of the call means there:
 *
 *   a dimension of the call   one stride for each position.  Broadcasting and `view` need no more: a view is the memory in other
 *                             sizes.  Both dimensions of a matrix whose diagonal is folded step along the same dimension
 *   KILN_ACCESS_NONE          not at all: there is one element for all positions
 *   KILN_ACCESS_AT            at a place that the kernel reads from another buffer or computes: along an axis of the buffer's own
 *
 * kiln_access_steps turns the entries into the strides that a work keeps for its axes.  Knows no row, family or tensor. */
#ifndef KILN_ACCESS_H
#define KILN_ACCESS_H
#include "work/axes.h"

enum { KILN_ACCESS_NONE = -1, KILN_ACCESS_AT = -2 };

typedef struct kiln_access {
    int rank;                       /* of the memory, as the call sees it */
    const int64_t *sizes, *strides; /* strides in elements; they may be those in room */
    int8_t along[KILN_MAX_DIMS];    /* of each dimension of the memory: one of the call, or KILN_ACCESS_* */
    int64_t room[KILN_MAX_DIMS];
} kiln_access;

static inline void kiln_access_begin(kiln_access *a, int rank, const int64_t *sizes, const int64_t *strides) {
    a->rank = rank;
    a->sizes = sizes;
    a->strides = strides;
}

/* Whether the memory has one element. */
static inline bool kiln_access_is_one(const kiln_access *a) {
    for (int k = 0; k < a->rank; k++)
        if (a->sizes[k] != 1) return false;
    return true;
}

/* The dimensions of a call, with which those of a memory are aligned. */
typedef struct kiln_access_dims {
    int rank;
    const int64_t *sizes;
    uint64_t lacks; /* bit d: the memory has no dimension for dimension d of the call */
    int at;         /* the dimension of the memory whose places are computed, or -1 */
} kiln_access_dims;

/* Sets a->along: the memory's dimensions belong to those of the call from the last one on.  False: a size fits neither the
 * call nor one element. */
static inline bool kiln_access_align(kiln_access *a, const kiln_access_dims *call) {
    int d = call->rank - 1, k = a->rank - 1;
    uint64_t lacks = call->lacks;
    for (; k >= 0; k--) {
        int64_t size = a->sizes[k];
        a->along[k] = KILN_ACCESS_AT;
        if (k == call->at) continue;
        while (lacks >> (d & 63) & 1 && d >= 0) d--;
        if (d < 0 ? !kiln_access_is_one(a) : size != 1 && size != call->sizes[d]) break;
        a->along[k] = (int8_t)(d < 0 ? KILN_ACCESS_NONE : d); /* one element is one, whatever its rank */
        d -= d >= 0;
    }
    for (int rest = k; rest >= 0; rest--) a->along[rest] = KILN_ACCESS_NONE;
    return k < 0;
}

/* The elements that one position of each of the call's rank dimensions moves by.  Dimensions of the call stand in a->along in
 * their order; the same one may stand there several times. */
static inline void kiln_access_steps(const kiln_access *a, int rank, int64_t *out) {
    int k = a->rank - 1;
    for (int d = rank - 1; d >= 0; d--) {
        int64_t step = 0;
        for (; k >= 0 && (a->along[k] == d || a->along[k] < 0); k--)
            if (a->along[k] == d && a->sizes[k] != 1) step += a->strides[k];
        out[d] = step;
    }
}
#endif
