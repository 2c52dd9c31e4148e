/* share.c - two tensors -> whether an element of one has a byte in common with an element of the other.
 *
 * Addresses, sizes and strides, negative ones too, are all that is looked at, and whether a tensor is dense.  An element
 * of a lies at its lowest address plus a sum of step * x, x from 0 to size - 1; one of b likewise.  They share a byte
 * where the difference of the two is small enough: a sum of products with bounded factors has to fall into a window as
 * wide as an element of each.  Steps are tried from the largest on.  Of views of one array these are multiples of each
 * other or nearly so, and few factors are left to try; where that takes too long, the answer is that they may.
 * Knows nothing of what the tensors are for. */
#include <stdlib.h>

#include "tensor/tensor.h"

enum { WORK = 1000 };                /* factors tried before the answer is "may" */
#define SPAN_MAX ((uint64_t)1 << 61) /* bytes of a tensor up to which sums of two cannot overflow */

kiln_extent kiln_strided_extent(const kiln_tensor *t) {
    int64_t below = 0, above = 0, size = (int64_t)kiln_dtype_size((kiln_dtype)t->dtype);
    if (t->nelem == 0) return (kiln_extent){(uintptr_t)t->data, 0};
    for (int d = 0; d < t->rank; d++) {
        int64_t far = (t->sizes[d] - 1) * t->strides[d];
        *(far < 0 ? &below : &above) += far;
    }
    return (kiln_extent){(uintptr_t)t->data + (uintptr_t)(below * size),
                         (uint64_t)((above - below + 1) * size)};
}

/* Whether a sum of step[k] * x, 0 <= x <= most[k], can be within `window` below some number. */
typedef struct sums {
    int n;
    int64_t step[2 * KILN_MAX_RANK], most[2 * KILN_MAX_RANK]; /* largest step first, none twice */
    int64_t rest[2 * KILN_MAX_RANK + 1];                      /* the largest sum of terms k and after */
    int64_t gcd[2 * KILN_MAX_RANK + 1];                       /* of the steps of the same */
    int64_t window;
    int work;
} sums;

static void add_term(sums *s, int64_t step, int64_t most) {
    int k = 0;
    while (k < s->n && s->step[k] > step) k++;
    if (k < s->n && s->step[k] == step) {
        s->most[k] += most;
        return;
    }
    for (int j = s->n++; j > k; j--) s->step[j] = s->step[j - 1], s->most[j] = s->most[j - 1];
    s->step[k] = step;
    s->most[k] = most;
}

static void add_terms(sums *s, const kiln_tensor *t) {
    int64_t size = (int64_t)kiln_dtype_size((kiln_dtype)t->dtype);
    for (int d = 0; d < t->rank; d++)
        if (t->sizes[d] > 1 && t->strides[d] != 0) add_term(s, llabs(t->strides[d]) * size, t->sizes[d] - 1);
}

static int64_t gcd_of(int64_t a, int64_t b) {
    while (b) {
        int64_t left = a % b;
        a = b;
        b = left;
    }
    return a;
}

static void sum_up(sums *s) {
    s->rest[s->n] = s->gcd[s->n] = 0;
    for (int k = s->n - 1; k >= 0; k--) {
        s->rest[k] = s->rest[k + 1] + s->step[k] * s->most[k];
        s->gcd[k] = gcd_of(s->step[k], s->gcd[k + 1]);
    }
}

/* Whether terms k and after can come to a sum from `high` - window to `high`.  True also when there is too much to try. */
static bool reaches(sums *s, int k, int64_t high) {
    int64_t low = high - s->window;
    if (high < 0 || low > s->rest[k]) return false;
    if (low <= 0 || high >= s->rest[k]) return true; /* all factors least, or all greatest */
    if (high % s->gcd[k] > s->window) return false;  /* sums are multiples of it */
    if (k == s->n - 1) return true;
    int64_t step = s->step[k], most = high / step, least = low - s->rest[k + 1];
    least = least > 0 ? (least + step - 1) / step : 0;
    if (most > s->most[k]) most = s->most[k];
    for (int64_t x = most; x >= least; x--)
        if (--s->work < 0 || reaches(s, k + 1, high - step * x)) return true;
    return false;
}

bool kiln_tensors_may_share(const kiln_tensor *a, const kiln_tensor *b) {
    if (a->nelem == 0 || b->nelem == 0) return false;
    int64_t size_a = (int64_t)kiln_dtype_size((kiln_dtype)a->dtype),
            size_b = (int64_t)kiln_dtype_size((kiln_dtype)b->dtype);
    kiln_extent ea = kiln_tensor_extent(a), eb = kiln_tensor_extent(b);
    if (kiln_extents_apart(ea, eb)) return false;
    if (ea.nbytes > SPAN_MAX || eb.nbytes > SPAN_MAX) return true;
    sums s;
    s.n = 0;
    s.window = size_a + size_b - 2;
    s.work = WORK;
    add_terms(&s, a);
    add_terms(&s, b);
    sum_up(&s);
    /* An element of b less one of a lies from 1 - size_b to size_a - 1.  Factors of a count from its highest element
     * down, so that all terms add up. */
    return reaches(&s, 0, (int64_t)(ea.low + ea.nbytes - 1 - eb.low));
}

/* Each stride, from the smallest on, has to step over all that the smaller ones reach. */
bool kiln_tensor_may_overlap(const kiln_tensor *t) {
    int64_t span = 0;
    uint64_t left = 0;
    if (t->flags & KILN_TF_DENSE) return false;
    for (int d = 0; d < t->rank; d++)
        if (t->sizes[d] > 1) left |= (uint64_t)1 << d;
    while (left) {
        int least = __builtin_ctzll(left);
        for (int d = least + 1; d < t->rank; d++)
            if ((left >> d & 1) && llabs(t->strides[d]) < llabs(t->strides[least])) least = d;
        if (llabs(t->strides[least]) <= span) return true;
        span += llabs(t->strides[least]) * (t->sizes[least] - 1);
        left &= ~((uint64_t)1 << least);
    }
    return false;
}

bool kiln_tensors_aligned(const kiln_tensor *a, const kiln_tensor *b) {
    if (a->data != b->data || kiln_elem_bytes[a->dtype] != kiln_elem_bytes[b->dtype]) return false;
    for (int k = 1; k <= a->rank || k <= b->rank; k++) {
        int64_t na = k <= a->rank ? a->sizes[a->rank - k] : 1, nb = k <= b->rank ? b->sizes[b->rank - k] : 1;
        if (na != nb || (na > 1 && a->strides[a->rank - k] != b->strides[b->rank - k])) return false;
    }
    return true;
}
