/* most_frequent.c - the keys of a row -> where its most frequent element is.
 *
 * Keys are sorted: few by merging, many by bytes from the lowest, leaving out those that all keys have alike.  The longest
 * run of equal ones is the mode, the smallest of several that are as long.  It is the last of its elements, as PyTorch has it in short rows.
 * A NaN equals nothing, so each counts once and comes after all numbers. */
#include <string.h>

#include "run/keys.h"

enum { FEW = 16, BYTE_VALUES = 256 }; /* FEW: keys that are put into order one by one */

#define SORT(U)                                                                                                             \
    static void insert_##U(U *to, const U *a, int64_t n) {                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                                   \
            int64_t j = i;                                                                                                  \
            for (; j > 0 && to[j - 1] > a[i]; j--) to[j] = to[j - 1];                                                       \
            to[j] = a[i];                                                                                                   \
        }                                                                                                                   \
    }                                                                                                                       \
    /* By one byte; false, and nothing is done, if all keys have the same there. */                                         \
    static bool sort_byte_##U(U *to, const U *a, int64_t n, int shift) {                                                    \
        int64_t counts[BYTE_VALUES] = {0}, at[BYTE_VALUES], next = 0;                                                       \
        for (int64_t i = 0; i < n; i++) counts[a[i] >> shift & 255]++;                                                      \
        if (counts[a[0] >> shift & 255] == n) return false;                                                                 \
        for (int b = 0; b < BYTE_VALUES; b++) at[b] = next, next += counts[b];                                              \
        for (int64_t i = 0; i < n; i++) to[at[a[i] >> shift & 255]++] = a[i];                                               \
        return true;                                                                                                        \
    }                                                                                                                       \
    static void merge_##U(U *to, const U *a, int64_t na, const U *b, int64_t nb) {                                          \
        while (na > 0 && nb > 0) {                                                                                          \
            bool right = *b < *a;                                                                                           \
            *to++ = right ? *b : *a;                                                                                        \
            a += !right, na -= !right;                                                                                      \
            b += right, nb -= right;                                                                                        \
        }                                                                                                                   \
        memcpy(to, na > 0 ? a : b, (size_t)(na + nb) * sizeof *to);                                                         \
    }                                                                                                                       \
    static const U *merge_sort_##U(const U *a, U *room, int64_t n) {                                                        \
        U *to = room + n, *from = room;                                                                                     \
        for (int64_t i = 0; i < n; i += FEW) insert_##U(from + i, a + i, n - i < FEW ? n - i : FEW);                        \
        for (int64_t run = FEW; run < n; run *= 2) {                                                                        \
            for (int64_t i = 0; i < n; i += 2 * run) {                                                                      \
                int64_t left = n - i < run ? n - i : run, right = n - i - left < run ? n - i - left : run;                  \
                merge_##U(to + i, from + i, left, from + i + left, right);                                                  \
            }                                                                                                               \
            U *t = to;                                                                                                      \
            to = from, from = t;                                                                                            \
        }                                                                                                                   \
        return from;                                                                                                        \
    }                                                                                                                       \
    /* The sorted keys, in either half of the room.  A pass by bytes costs as much as so many keys for the counts alone. */ \
    static const U *sort_##U(const U *a, U *room, int64_t n) {                                                              \
        U *to = room;                                                                                                       \
        if (n <= BYTE_VALUES) return merge_sort_##U(a, room, n);                                                            \
        for (int shift = 0; shift < 8 * (int)sizeof(U); shift += 8)                                                         \
            if (sort_byte_##U(to, a, n, shift)) a = to, to = to == room ? room + n : room;                                  \
        return a;                                                                                                           \
    }                                                                                                                       \
    static U longest_run_##U(const U *a, int64_t n) {                                                                       \
        int64_t best = 0, first = 0;                                                                                        \
        U key = a[0];                                                                                                       \
        for (int64_t i = 1; i <= n; i++) {                                                                                  \
            if (i < n && a[i] == a[first]) continue;                                                                        \
            if (i - first > best) best = i - first, key = a[first];                                                         \
            first = i;                                                                                                      \
        }                                                                                                                   \
        return key;                                                                                                         \
    }                                                                                                                       \
    static uint64_t mode_##U(const kiln_keys *keys) {                                                                       \
        return longest_run_##U(sort_##U(keys->at, keys->room, keys->n), keys->n - keys->nnan);                              \
    }
SORT(uint16_t)
SORT(uint32_t)
SORT(uint64_t)

/* There are so few different ones that counting is all. */
static uint64_t mode_uint8_t(const kiln_keys *keys) {
    int64_t counts[BYTE_VALUES] = {0};
    const uint8_t *a = keys->at;
    int best = 0;
    for (int64_t i = 0; i < keys->n; i++) counts[a[i]]++;
    for (int b = 1; b < BYTE_VALUES; b++)
        if (counts[b] > counts[best]) best = b;
    return (uint64_t)best;
}

int64_t kiln_find_mode(const kiln_keys *keys, const uint64_t *par) {
    (void)par;
    if (keys->nnan == keys->n) return 0;
    switch (keys->bytes) {
    case 1: return kiln_keys_last(keys, mode_uint8_t(keys));
    case 2: return kiln_keys_last(keys, mode_uint16_t(keys));
    case 4: return kiln_keys_last(keys, mode_uint32_t(keys));
    default: return kiln_keys_last(keys, mode_uint64_t(keys));
    }
}
