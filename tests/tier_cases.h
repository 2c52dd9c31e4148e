/* tier_cases.h - what tests of tiers share: a class that is made hot, compilers that do as they are told, threads.
 *
 * Each helper fails the running test by itself. */
#ifndef KILN_TEST_TIER_CASES_H
#define KILN_TEST_TIER_CASES_H
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "api/ctx.h"
#include "call_cases.h"

/* The child of a process with threads starts threads of its own here; ThreadSanitizer asks to be told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

static inline void nap(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* -- a hot class ---------------------------------------------------------------------------------------- */

/* Makes the next interpreted call of this class enough for a build. */
static inline void make_hot(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs) {
    kiln_bound call;
    kiln_plan plan;
    kiln_class *c = NULL;
    MUST_OK(kiln_bind(op, args, nargs, &call));
    MUST_OK(kiln_infer(&call, &plan));
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    kiln_thread_enter(&ctx->epochs, t);
    MUST_OK(kiln_class_of(ctx, &plan, &c));
    atomic_store(&c->hot_at, 0);
    kiln_thread_leave(t);
}

/* mul.Tensor of two i32 vectors must be right; returns the tier.  hot: the class is to be compiled now. */
static inline const char *mul(kiln_ctx *ctx, bool hot) {
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    if (hot) make_hot(ctx, op_of(ctx, "mul.Tensor"), ARGS(TEN(a), TEN(a)));
    kiln_tensor *out = call1(ctx, "mul.Tensor", ARGS(TEN(a), TEN(a)));
    HOLDS_I32(out, SIZES(3), 1, 4, 9);
    drop_args(ARGS(TEN(a), TEN(out)));
    return kiln_last_tier();
}

/* -- compilers ----------------------------------------------------------------------------------------- */

/* A driver that writes its process id per run, does `text`, and unless that ended it compiles. */
static inline const char *compiler(const char *text) {
    char all[1200];
    unlink(in_scratch("runs"));
    snprintf(all, sizeof all, DRIVER_ONLY "echo $$ >> %s/runs\nfor last; do :; done\n%s\nexec gcc \"$@\"",
             scratch, text);
    return script("compiler", all);
}

static inline kiln_ctx *open_tiered(const char *cc) {
    return open_with((kiln_config){.mode = KILN_MODE_TIERED, .cc = cc});
}

/* -- threads -------------------------------------------------------------------------------------------- */

enum { THREADS_MAX = 16 };

typedef struct worker {
    pthread_t thread;
    int id;
    kiln_ctx *ctx;
    void (*body)(struct worker *);
    atomic_int *wrong;
} worker;

static inline void *run_worker(void *user) {
    worker *w = user;
    w->body(w);
    return NULL;
}

static inline void run_all(int nthreads, kiln_ctx *ctx, void (*body)(worker *)) {
    worker all[THREADS_MAX];
    atomic_int wrong = 0;
    for (int k = 0; k < nthreads; k++) {
        all[k] = (worker){.id = k, .ctx = ctx, .body = body, .wrong = &wrong};
        assert_int_equal(pthread_create(&all[k].thread, NULL, run_worker, &all[k]), 0);
    }
    for (int k = 0; k < nthreads; k++) assert_int_equal(pthread_join(all[k].thread, NULL), 0);
    assert_int_equal(atomic_load(&wrong), 0);
}
#endif
