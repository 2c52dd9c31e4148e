/* fake_torch.c - a library named libtorch_cpu.so with what Kiln uses of PyTorch's, for test_torch_threads.c.
 *
 * Loops run on threads that are made for each loop and are inside a parallel region meanwhile, as those of OpenMP are.  With FAKE_OLD
 * it is one of a PyTorch that does not have the functions. */
#include "fake_torch.h"

#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#ifndef FAKE_OLD
#define EXPORT __attribute__((visibility("default")))

enum { MOST = 64 };

typedef void (*body_fn)(int64_t begin, int64_t end, void *user);

typedef struct share {
    body_fn body;
    int64_t begin, end;
    void *user;
} share;

static atomic_int threads = 4, loops;
static atomic_bool failing;
static pid_t loaded_by;
static _Thread_local bool inside;

EXPORT int32_t torch_get_num_threads(uint32_t *out);
EXPORT int32_t torch_parallel_for(int64_t begin, int64_t end, int64_t grain, body_fn body, void *user);
EXPORT bool _ZN2at18in_parallel_regionEv(void);
EXPORT void fake_torch_set(int n, bool fails);
EXPORT int fake_torch_loops(void);

__attribute__((constructor)) static void load(void) { loaded_by = getpid(); }

void fake_torch_set(int n, bool fails) {
    atomic_store(&threads, n);
    atomic_store(&failing, fails);
}

int fake_torch_loops(void) { return atomic_load(&loops); }

int32_t torch_get_num_threads(uint32_t *out) {
    *out = (uint32_t)atomic_load(&threads);
    return 0;
}

/* PyTorch's own at::in_parallel_region(). */
bool _ZN2at18in_parallel_regionEv(void) { return inside; }

static void *run(void *arg) {
    share *s = arg;
    bool before = inside;
    inside = true;
    s->body(s->begin, s->end, s->user);
    inside = before;
    return NULL;
}

/* A thread of OpenMP's rounds as it did when it was made, not as its caller does. */
static void *run_in_thread(void *arg) {
    fesetround(FE_TONEAREST);
    return run(arg);
}

int32_t torch_parallel_for(int64_t begin, int64_t end, int64_t grain, body_fn body, void *user) {
    share all[MOST];
    pthread_t made[MOST];
    int64_t n = atomic_load(&threads), each;
    (void)grain;
    if (getpid() != loaded_by) _exit(FAKE_HANGS);
    if (atomic_load(&failing)) return 1;
    atomic_fetch_add(&loops, 1);
    if (n > end - begin) n = end - begin;
    if (inside) n = 1;
    each = (end - begin + n - 1) / n;
    for (int64_t k = 0; k < n; k++) {
        int64_t from = begin + k * each, to = from + each < end ? from + each : end;
        all[k] = (share){body, from, to, user};
        if (k > 0 && from < to && pthread_create(&made[k], NULL, run_in_thread, &all[k])) _exit(FAKE_HANGS);
    }
    run(&all[0]);
    for (int64_t k = 1; k < n; k++)
        if (all[k].begin < all[k].end) pthread_join(made[k], NULL);
    return 0;
}
#else
__attribute__((visibility("default"))) int fake_old;
#endif
