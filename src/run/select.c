/* select.c - the keys of a row -> where its k-th smallest element is: kthvalue, median, nanmedian.
 *
 * Keys of one byte, and many of two, are counted.  Others are parted around a pivot from a sample, without a branch for each
 * key; where pivots turn out to be bad again and again they are counted, too, a byte at a time, so that no row takes
 * longer than a few times another.  Of equal elements it is the first. */
#include <string.h>

#include "run/keys.h"

enum {
    FEW = 24,    /* keys that are sorted instead */
    MANY = 256,  /* keys worth a larger sample */
    SAMPLE = 15, /* of them */
    BYTE_VALUES = 256,
    ROUNDS_SPARE = 8 /* bad pivots that may be, beside as many as the number of keys has bits */
};

/* A byte at a time from the highest: among keys that begin as the one looked for does. */
#define COUNT(U)                                                                                     \
    static U count_##U(const U *a, int64_t n, int64_t k) {                                           \
        U prefix = 0, known = 0;                                                                     \
        for (int shift = 8 * (int)sizeof(U) - 8; shift >= 0; shift -= 8) {                           \
            int64_t counts[BYTE_VALUES] = {0};                                                       \
            unsigned byte = 0;                                                                       \
            for (int64_t i = 0; i < n; i++) counts[a[i] >> shift & 255] += (a[i] & known) == prefix; \
            while (k >= counts[byte]) k -= counts[byte++];                                           \
            prefix |= (U)((U)byte << shift);                                                         \
            known |= (U)((U)255 << shift);                                                           \
        }                                                                                            \
        return prefix;                                                                               \
    }

#define PIVOTS(U)                                                                               \
    static void sort_few_##U(U *a, int64_t n) {                                                 \
        for (int64_t i = 1; i < n; i++) {                                                       \
            U v = a[i];                                                                         \
            int64_t j = i;                                                                      \
            for (; j > 0 && a[j - 1] > v; j--) a[j] = a[j - 1];                                 \
            a[j] = v;                                                                           \
        }                                                                                       \
    }                                                                                           \
    /* Of a sample the key that has the place there which k has among all. */                   \
    static U pivot_##U(const U *a, int64_t n, int64_t k) {                                      \
        U sample[SAMPLE];                                                                       \
        int m = n < MANY ? 3 : SAMPLE;                                                          \
        for (int i = 0; i < m; i++) sample[i] = a[n / m * i + n / (2 * m)];                     \
        sort_few_##U(sample, m);                                                                \
        return sample[n < MANY ? 1 : k / (n / SAMPLE + 1)];                                     \
    }                                                                                           \
    /* Brings keys below the pivot to the front; how many.  *same: how many are equal to it. */ \
    static int64_t part_##U(U *a, int64_t n, U pivot, int64_t *same) {                          \
        int64_t below = 0, equal = 0;                                                           \
        for (int64_t i = 0; i < n; i++) {                                                       \
            U v = a[i];                                                                         \
            a[i] = a[below];                                                                    \
            a[below] = v;                                                                       \
            below += v < pivot;                                                                 \
            equal += v == pivot;                                                                \
        }                                                                                       \
        *same = equal;                                                                          \
        return below;                                                                           \
    }                                                                                           \
    static U select_##U(U *a, int64_t n, int64_t k) {                                           \
        int rounds = ROUNDS_SPARE + 64 - __builtin_clzll((uint64_t)n);                          \
        while (n > FEW) {                                                                       \
            int64_t same;                                                                       \
            if (rounds-- == 0) return count_##U(a, n, k);                                       \
            U pivot = pivot_##U(a, n, k);                                                       \
            int64_t below = part_##U(a, n, pivot, &same);                                       \
            if (k >= below && k < below + same) return pivot;                                   \
            int64_t from = k < below ? 0 : below;                                               \
            if (k >= below && below == 0) /* the pivot is the least: put it behind */           \
                from = part_##U(a, n, (U)(pivot + 1), &same);                                   \
            n = k < below ? below : n - from;                                                   \
            a += from;                                                                          \
            k -= from;                                                                          \
        }                                                                                       \
        sort_few_##U(a, n);                                                                     \
        return a[k];                                                                            \
    }

COUNT(uint8_t)
COUNT(uint16_t)
COUNT(uint32_t)
COUNT(uint64_t)
PIVOTS(uint16_t)
PIVOTS(uint32_t)
PIVOTS(uint64_t)

static uint64_t select_key(const kiln_keys *keys, int64_t k) {
    if (keys->bytes == 1) return count_uint8_t(keys->at, keys->n, k);
    if (keys->bytes == 2 && keys->n >= MANY) return count_uint16_t(keys->at, keys->n, k);
    memcpy(keys->room, keys->at, (size_t)keys->n * (size_t)keys->bytes);
    if (keys->bytes == 2) return select_uint16_t(keys->room, keys->n, k);
    return keys->bytes == 4 ? select_uint32_t(keys->room, keys->n, k)
                            : select_uint64_t(keys->room, keys->n, k);
}

/* NaNs are above all numbers. */
int64_t kiln_find_kth(const kiln_keys *keys, const uint64_t *par) {
    int64_t k = (int64_t)par[0];
    return k < 1 || k > keys->n ? -1 : kiln_keys_first(keys, select_key(keys, k - 1));
}

/* The lower one of two in the middle; the first NaN, if there is one. */
int64_t kiln_find_median(const kiln_keys *keys, const uint64_t *par) {
    (void)par;
    if (keys->nnan) return kiln_keys_first(keys, UINT64_MAX);
    return kiln_keys_first(keys, select_key(keys, (keys->n - 1) / 2));
}

/* That of the numbers; the first NaN, if there is nothing else. */
int64_t kiln_find_nanmedian(const kiln_keys *keys, const uint64_t *par) {
    (void)par;
    if (keys->nnan == keys->n) return 0;
    return kiln_keys_first(keys, select_key(keys, (keys->n - keys->nnan - 1) / 2));
}
