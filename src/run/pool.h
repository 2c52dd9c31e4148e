/* pool.h - one loop over parts, run by several threads: the host's if it has a parallel_for, else PyTorch's if PyTorch is loaded in
 * this process, else Kiln's own.
 *
 * The caller works too and returns when all parts are done.  Parts run with the caller's rounding and denormal mode.  A loop that
 * starts inside another one runs on its caller alone, and so does a loop that starts while loops of other threads are using
 * Kiln's own threads, or all CPUs with PyTorch's: nobody waits for threads.  Knows nothing of what a part does. */
#ifndef KILN_POOL_H
#define KILN_POOL_H
#include "base/base.h"
#include "target/cpu/tuning.h"

enum {
    KILN_POOL_LEAST_NS = KILN_CPU_POOL_LEAST_NS
}; /* less work is never shared, whoever the threads belong to */

/* How a context runs loops. */
typedef struct kiln_parallel {
    int threads;           /* at most so many at once, the caller included */
    bool counted;          /* that is how many CPUs there are, and control groups may allow fewer */
    kiln_parallel_fn host; /* NULL: PyTorch's threads, or Kiln's own */
    void *host_user;
} kiln_parallel;

typedef void (*kiln_part_fn)(void *user, int64_t part);

/* Whose threads run a loop. */
typedef enum kiln_pool_owner {
    KILN_POOL_OWN,   /* Kiln's */
    KILN_POOL_HOST,  /* the parallel_for of the context */
    KILN_POOL_TORCH, /* PyTorch's, once it is loaded in this process */
    KILN_POOL_CALLER /* nobody's but the caller's: this process was forked from one that had PyTorch loaded */
} kiln_pool_owner;

/* Whose threads run the loops of this thread now, and how many at most. */
kiln_pool_owner kiln_pool_whose(const kiln_parallel *how, int *most);

/* The least work that is worth sharing among them. */
int64_t kiln_pool_worth_ns(const kiln_parallel *how);

/* How many threads a loop of so much work should have now; 1: it is not worth sharing.  Threads that have just been at work
 * are given less than sleeping ones are woken for, unless loops come again and again. */
int kiln_pool_threads(const kiln_parallel *how, int64_t work_ns);

/* Runs body(user, 0) to body(user, nparts - 1), each once, in any order, by so many threads at most. */
void kiln_pool_for(const kiln_parallel *how, int threads, int64_t nparts, kiln_part_fn body, void *user);

/* Kiln's own threads start with the first loop that needs them.  They end with the last release, or before a loop that finds PyTorch loaded. */
void kiln_pool_retain(void);
void kiln_pool_release(void);
#endif
