/* pool.h - one loop over parts, run by several threads: the host's pool if it has one, else Kiln's own.
 *
 * The caller works too and returns when all parts are done.  Parts run with the caller's rounding and
 * denormal mode.  A loop started while Kiln's pool is at work, by another thread or inside a part, runs in
 * its caller alone: nobody waits for a pool.  Knows nothing of what a part does. */
#ifndef KILN_POOL_H
#define KILN_POOL_H
#include "base/base.h"

/* How a context runs loops. */
typedef struct kiln_parallel {
    int threads;           /* at most so many at once, the caller included */
    bool counted;          /* that is how many CPUs there are, and control groups may allow fewer */
    kiln_parallel_fn host; /* NULL: Kiln's own pool */
    void *host_user;
} kiln_parallel;

typedef void (*kiln_part_fn)(void *user, int64_t part);

enum { KILN_POOL_LEAST_NS = 3500 }; /* less work is never shared */

int kiln_pool_most(const kiln_parallel *how); /* threads that a loop of this thread may have */

/* How many threads a loop of so much work should have now; 1: it is not worth sharing.  Threads that have just been at work
 * are given less than sleeping ones are woken for, unless loops come again and again. */
int kiln_pool_threads(const kiln_parallel *how, int64_t work_ns);

/* Runs body(user, 0) to body(user, nparts - 1), each once, in any order, by so many threads at most. */
void kiln_pool_for(const kiln_parallel *how, int threads, int64_t nparts, kiln_part_fn body, void *user);

/* The pool's threads start with the first loop that needs them and end with the last release. */
void kiln_pool_retain(void);
void kiln_pool_release(void);
#endif
