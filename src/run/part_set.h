/* part_set.h - the parts of one loop that no thread has taken yet.
 *
 * Each thread begins at a place of its own, so that in loops over the same memory it meets the same part again, which its caches may
 * still hold.  Threads take parts until none is left, so one that is late costs the loop no more than the part it has.  Knows no
 * threads: whoever runs the loop says how many take part. */
#ifndef KILN_PART_SET_H
#define KILN_PART_SET_H
#include <stdatomic.h>

#include "run/rounding.h"
#include "run/pool.h"

enum {
    FIRST_WORDS = 4,
    FIRST_PARTS =
        64 *
        FIRST_WORDS, /* parts that threads choose among; the parts after these are taken in their order */
    LINE = 64        /* bytes of a cache line: what different threads write lies apart */
};

typedef struct part_set {
    _Alignas(LINE) _Atomic uint64_t taken[FIRST_WORDS]; /* of the first parts */
    _Atomic int64_t next;                               /* of those after */
} part_set;

typedef struct loop {
    kiln_part_fn body;
    void *user;
    int64_t nparts;
    int nthreads;
    kiln_rounding modes; /* of the caller */
} loop;

static inline int first_parts(const loop *l) {
    return l->nparts < FIRST_PARTS ? (int)l->nparts : FIRST_PARTS;
}

static inline void leave_all_parts(part_set *set, const loop *l) {
    for (int w = 0; w < FIRST_WORDS; w++) {
        int n = first_parts(l) - 64 * w;
        uint64_t none = n >= 64 ? 0 : n <= 0 ? UINT64_MAX : UINT64_MAX << n;
        atomic_store_explicit(&set->taken[w], none, memory_order_relaxed);
    }
    atomic_store_explicit(&set->next, FIRST_PARTS, memory_order_relaxed);
}

/* Takes one of the first parts that nobody has, from `from` on and then from the beginning; -1: there is none left. */
static inline int take_first_part(part_set *set, int from) {
    uint64_t after = UINT64_MAX << from % 64;
    for (int k = 0; k <= FIRST_WORDS; k++, after = UINT64_MAX) {
        int w = (from / 64 + k) % FIRST_WORDS;
        uint64_t there = atomic_load_explicit(&set->taken[w], memory_order_relaxed);
        for (uint64_t left; (left = ~there & after) != 0;) {
            uint64_t bit = left & -left;
            there = atomic_fetch_or_explicit(&set->taken[w], bit, memory_order_relaxed);
            if (!(there & bit)) return 64 * w + __builtin_ctzll(bit);
        }
    }
    return -1;
}

/* Runs all parts that are left, beginning at the place of this thread among the loop's threads. */
static inline void run_parts(part_set *set, const loop *given, int thread) {
    const loop l = *given; /* others write to its line */
    int at = thread % l.nthreads * first_parts(&l) / l.nthreads;
    while ((at = take_first_part(set, at)) >= 0) l.body(l.user, at);
    if (l.nparts <= FIRST_PARTS) return;
    for (int64_t k; (k = atomic_fetch_add_explicit(&set->next, 1, memory_order_relaxed)) < l.nparts;)
        l.body(l.user, k);
}

/* As run_parts, on a thread other than the caller: sets the caller's rounding and denormal mode meanwhile. */
static inline void help(part_set *set, const loop *l, int thread) {
    kiln_rounding own = kiln_rounding_get();
    kiln_rounding_set(l->modes);
    run_parts(set, l, thread);
    kiln_rounding_set(own);
}
#endif
