/* ctx.h - private to src/api: what a context owns, and the life of a class of calls. */
#ifndef KILN_CTX_H
#define KILN_CTX_H
#include <pthread.h>
#include <stdatomic.h>

#include "build/build.h"
#include "cache/cache.h"
#include "infer/infer.h"
#include "lower/lower.h"
#include "run/cpus.h"
#include "run/steps.h"

/* What the interpreter needs of a class.  Goes when a kernel has taken over. */
typedef struct kiln_program {
    kiln_retired retired;
    kiln_arena arena; /* holds ir */
    kiln_ir *ir;
    kiln_interp *interp;
    _Atomic(kiln_interp *)
        along; /* for columns, whose elements the driver repeats; made when it is first wanted */
} kiln_program;

typedef enum kiln_build_state { KILN_BUILD_IDLE, KILN_BUILD_QUEUED, KILN_BUILD_RUNNING } kiln_build_state;

/* A class of calls.  Lives in the cache; valid from the lookup until the thread leaves the context's epochs. */
typedef struct kiln_class {
    kiln_entry entry; /* first: the cache's part, with the key */
    struct kiln_ctx *ctx;
    _Atomic(kiln_kernel_fn) fn; /* NULL until a kernel is published, then never changed */
    uint8_t kind; /* kiln_class_kind; if it is no KERNEL, program is NULL and fn what it will ever be */
    kiln_program *program; /* to be used only where fn was read as NULL after entering the epochs */
    kiln_nests nests;
    const kiln_scalar_source *scalars;
    uint16_t nscalars;
    uint32_t gain_call;          /* estimate of what a kernel saves by call, in picoseconds, */
    uint32_t gain_row;           /* and by row */
    kiln_cost cost;              /* of an element */
    atomic_uint_fast64_t heat;   /* what a kernel would have saved so far, in picoseconds */
    atomic_uint_fast64_t hot_at; /* heat at which a build is due */
    /* under ctx->builds.lock */
    kiln_build_state state;
    bool pinned;             /* by its build */
    uint32_t nfailed;        /* builds that failed, ever */
    struct kiln_class *next; /* queued, or being built */
    kiln_code *code;         /* written by the one build that succeeds */
} kiln_class;

/* Builds under way and waiting.  tiers.c owns it. */
typedef struct kiln_builds {
    pthread_mutex_t lock;        /* guards all of it */
    pthread_cond_t changed;      /* a build was queued or ended, or the context closes */
    kiln_class *queue, *running; /* by next; the queue in the order of asking */
    size_t nqueued;
    pthread_t worker;
    bool has_worker;
    char last_failure[600]; /* "" if none failed */
} kiln_builds;

struct kiln_ctx {
    kiln_epochs epochs; /* of the cache's classes and tables */
    kiln_cache *cache;
    kiln_mode mode;
    kiln_isa isa;
    size_t max_kernels;
    kiln_parallel parallel;
    const kiln_memory *memory; /* of new results: host_memory, or NULL for Kiln's own blocks */
    kiln_memory host_memory;
    bool forgets;                    /* for tests and benchmarks: nothing is remembered of a call */
    char *cc, *cache_dir, *dump_dir; /* as configured, or NULL */
    kiln_config config;              /* as given, or zeros; its texts may be gone */
    _Atomic(const kiln_registry *) registry;
    pthread_mutex_t load_lock; /* guards loaded, and makes loads take turns */
    kiln_registry **loaded; /* all that loading rows made, freed at close: operators of old ones stay good */
    size_t nloaded;
    pthread_mutex_t lock; /* toolchain */
    kiln_toolchain *toolchain;
    atomic_bool closing; /* no compiler may be started */
    char *scratch;       /* folder the toolchain uses */
    int scratch_owner;   /* process that made it as a temporary one and removes it at close, or 0 */
    kiln_builds builds;
    struct kiln_ctx *next; /* of the process's contexts */
};

#define KILN_COUNT(ctx, name) kiln_count(&(ctx)->epochs, KILN_COUNTER_##name, 1)
#define KILN_COUNT_IN(thread, name) kiln_thread_count((thread), KILN_COUNTER_##name, 1)

void kiln_ctx_log(const kiln_ctx *ctx, int level, const char *topic, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

const char *kiln_mode_name(kiln_mode mode); /* "tiered"; NULL if there is no such mode */

/* The compiler, found on first use.  Never NULL on success; it may be one that has no compiler. */
kiln_status kiln_ctx_toolchain(kiln_ctx *ctx, kiln_toolchain **out) KILN_MUST_CHECK;
void kiln_ctx_stop_compilers(kiln_ctx *ctx); /* those that run; once it is closing none is started */
/* The folder for scratch and logs as configured; heap text. */
kiln_status kiln_ctx_cache_dir(const kiln_ctx *ctx, char **out) KILN_MUST_CHECK;

/* pipeline.c: the class of an inferred call, made if it has not been seen (the caller is inside the epochs); one
 * that is in no cache; and its kernel, built by the one thread whose turn it is. */
kiln_status kiln_class_of(kiln_ctx *ctx, const kiln_plan *plan, kiln_class **out) KILN_MUST_CHECK;
/* Its interpreter for columns. */
kiln_status kiln_program_along(const kiln_ctx *ctx, kiln_program *program,
                               const kiln_interp **out) KILN_MUST_CHECK;
kiln_status kiln_class_new(kiln_ctx *ctx, const kiln_plan *plan, const kiln_key *key,
                           kiln_class **out) KILN_MUST_CHECK;
kiln_status kiln_class_build(kiln_class *c) KILN_MUST_CHECK;
void kiln_class_free(kiln_class *c);
void kiln_class_estimate(kiln_class *c); /* tiers.c: what a kernel would save */

/* tiers.c: when a class is compiled, and by whom. */
void kiln_builds_init(kiln_builds *b);
void kiln_builds_stop(kiln_ctx *ctx); /* ends what runs and drops what waits; for kiln_close */
void kiln_builds_fini(kiln_builds *b);
void kiln_builds_after_fork(kiln_ctx *ctx); /* in the child, under the lock */

/* Whether this thread, which waits for a compiler, is to wait no longer.  user: the context.  No lock may be held. */
int kiln_ctx_interrupted(void *user);
/* While held, nothing interrupts this thread's compiles: a call that has written some of its results must write the rest. */
void kiln_hold_interrupts(bool hold);
/* Compiles c now unless that was done; waits for a build under way. */
kiln_status kiln_class_compile(kiln_class *c) KILN_MUST_CHECK;
/* The same in sync mode, except that a class that failed is left alone for a while.  Fails only if interrupted. */
kiln_status kiln_class_compile_if_due(kiln_class *c) KILN_MUST_CHECK;
/* Notes an interpreted call over nelem elements, in so many rows; may queue a build. */
void kiln_class_heat(kiln_class *c, int64_t nelem, int64_t rows);
#endif
