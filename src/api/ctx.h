/* ctx.h - private to src/api: what a context owns, and the life of a class of calls. */
#ifndef KILN_CTX_H
#define KILN_CTX_H
#include <pthread.h>
#include <stdatomic.h>

#include "cache/cache.h"
#include "infer/chooser.h"
#include "infer/infer.h"
#include "family/lower.h"
#include "run/cpus.h"
#include "run/steps.h"
#include "store/store.h"
#include "target/target.h"

/* What the interpreter needs of a class.  Goes when a kernel has taken over. */
typedef struct kiln_program {
    kiln_retired retired;
    kiln_arena arena; /* holds ir */
    kiln_ir *ir;
    kiln_interp *interp;
    /* Made when they are first wanted: */
    _Atomic(kiln_interp *) along;  /* for columns, whose elements the driver repeats, */
    _Atomic(kiln_interp *) across; /* and for short rows that are folded side by side, if can_turn */
    bool can_turn;
} kiln_program;

typedef enum kiln_build_state { KILN_BUILD_IDLE, KILN_BUILD_QUEUED, KILN_BUILD_RUNNING } kiln_build_state;

/* A class of calls.  Lives in the cache; valid from the lookup until the thread leaves the context's epochs. */
typedef struct kiln_class {
    kiln_entry entry; /* first: the cache's part, with the key */
    struct kiln_ctx *ctx;
    kiln_target *target;        /* builds the kernel */
    _Atomic(kiln_kernel_fn) fn; /* NULL until a kernel is published, then never changed */
    uint8_t kind; /* kiln_class_kind; if it is no KERNEL, program is NULL and fn what it will ever be */
    kiln_program *program; /* to be used only where fn was read as NULL after entering the epochs */
    kiln_nests nests;
    const kiln_scalar_source *scalars;
    const char *name, *words; /* of the operator, and the key in words: for kiln_classes_list */
    uint16_t nscalars;
    uint32_t gain_call; /* estimate of what a kernel saves by call, in picoseconds, */
    uint32_t gain_row;  /* and by row */
    kiln_cost cost;     /* of an element */
    bool has_loops;     /* within its loop over elements or rows: it takes a compiler several times as long */
    atomic_uint_fast64_t interp_calls; /* that kiln_class_heat has noted */
    atomic_uint_fast64_t build_ns;     /* that its builds took so far; of a batch its share */
    atomic_uint_fast64_t heat;         /* what a kernel would have saved so far, in picoseconds */
    atomic_uint_fast64_t hot_at;       /* heat at which it asks for a build */
    /* under ctx->builds.lock */
    kiln_build_state state;
    bool pinned;              /* by its build */
    _Atomic uint32_t nfailed; /* builds that failed, ever */
    struct kiln_class *next;  /* queued, or being built */
    int64_t
        elsewhere_since; /* since when another process has been building the kernel; 0: none that is known */
    kiln_resident *kernel;  /* written once, before fn is */
    kiln_digest digest;     /* of the IR, whatever the level; zeros: not made yet */
    bool is_listed;         /* it is in the cache, or may be: calls may be using the program */
    _Atomic uint8_t nasked; /* stores, cheapest first, that need not be asked any more before a build */
} kiln_class;

/* Builds under way and waiting, and the threads that build.  builders.c owns all of it. */
enum { KILN_BUILDERS_MAX = 15 }; /* at work at once, but for an urgent class, and for one that asks stores */
typedef struct kiln_builds {
    pthread_mutex_t lock;             /* guards all of it but reading the counts, and the prices of targets */
    pthread_cond_t changed;           /* a build was queued or ended, or the context closes */
    kiln_class *queue, *running;      /* by next; the queue in the order of asking */
    _Atomic size_t nqueued, nrunning; /* of these lists; read without the lock for kiln_stats_get */
    pthread_t builder[KILN_BUILDERS_MAX + 2];
    int nbuilders, nwaiting; /* all builders; those with nothing to do */
    int nurgent, npatient;   /* builders at work on urgent classes, and on others */
    bool is_asking;          /* a builder asks a slow store */
    int most;  /* builders at work at once, but for an urgent class, and for one that asks stores */
    int batch; /* classes that may be built together now: fewer after failures */
    char last_failure[600]; /* "" if none failed */
} kiln_builds;

/* ORDER STORE_TEXTS: texts of kiln_store_host that a context owns. */
enum { KILN_TEXT_DIR, KILN_TEXT_KEY, KILN_TEXT_PACKS, KILN_TEXT_REMOTE, KILN_STORE_TEXTS };

struct kiln_ctx {
    kiln_epochs epochs; /* of the cache's classes and tables */
    kiln_cache *cache;
    _Atomic(kiln_mode) mode; /* changed by kiln_mode_set */
    kiln_isa isa;            /* of this machine's processors: what the interpreter's loops may use */
    size_t max_kernels;
    kiln_parallel parallel;
    const kiln_memory *memory; /* of new results: host_memory, or NULL for Kiln's own blocks */
    kiln_memory host_memory;
    bool forgets;      /* for tests and benchmarks: nothing is remembered of a call */
    char *record_path; /* of lines about new classes, or NULL */
    atomic_bool record_failed;
    char *cc, *cache_dir, *dump_dir; /* as configured, or NULL */
    kiln_config config;              /* as given, or zeros; its texts may be gone */
    _Atomic(const kiln_registry *) registry;
    pthread_mutex_t load_lock; /* guards loaded, and makes loads take turns */
    kiln_registry **loaded; /* all that loading rows made, freed at close: operators of old ones stay good */
    size_t nloaded;
    struct kiln_lone_op *lone_ops; /* of kiln_op_new, under load_lock */
    pthread_mutex_t lock;          /* scratch */
    kiln_target_host host;         /* what targets ask of this context */
    kiln_targets targets;
    atomic_bool closing; /* no compiler may be started */
    char *scratch;       /* folder for what compilers read and write; NULL until one is wanted */
    int scratch_owner;   /* process that made it as a temporary one and removes it at close, or 0 */
    kiln_builds builds;
    kiln_store_host store_host; /* what stores ask of this context; its texts are `store_text` */
    char *store_text[KILN_STORE_TEXTS];
    kiln_stores stores;
    struct kiln_ctx *next; /* of the process's contexts */
};

/* The target that builds kernels for a call, and that of calls in host memory. */
static inline kiln_target *kiln_ctx_target(const kiln_ctx *ctx, const kiln_plan *plan) {
    return ctx->targets.of[kiln_plan_device(plan)];
}
static inline kiln_target *kiln_ctx_host_target(const kiln_ctx *ctx) {
    return ctx->targets.of[KILN_DEVICE_CPU];
}

#define KILN_COUNT(ctx, name) kiln_count(&(ctx)->epochs, KILN_COUNTER_##name, 1)
#define KILN_COUNT_IN(thread, name) kiln_thread_count((thread), KILN_COUNTER_##name, 1)

/* A call that the interpreter answered, wholly or in part. */
static inline void kiln_count_interpreted(const kiln_ctx *ctx, kiln_thread *t) {
    KILN_COUNT_IN(t, interp_calls);
    if (ctx->mode == KILN_MODE_SYNC) KILN_COUNT_IN(t, fallbacks);
}

/* inner.c: counters around the calls that a call makes. */
enum { KILN_INNER_COUNTS = 5 };
typedef struct kiln_inner {
    uint64_t before[KILN_INNER_COUNTS];
} kiln_inner;
void kiln_inner_begin(const kiln_thread *t, kiln_inner *in);
/* Takes back what t's calls since the beginning counted.  True: the interpreter ran one of them. */
bool kiln_inner_end(kiln_thread *t, const kiln_inner *in);

void kiln_ctx_log(const kiln_ctx *ctx, int level, const char *topic, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

const char *kiln_mode_name(kiln_mode mode); /* "tiered"; NULL if there is no such mode */

/* packs.c: opens the folder of kernels, to be closed by the caller.  The message says why it cannot be used. */
kiln_status kiln_ctx_open_kernels(const kiln_ctx *ctx, bool create, int *fd) KILN_MUST_CHECK;

/* store_settings.c: fills in ctx->store_host, after ctx->config. */
kiln_status kiln_store_settings(kiln_ctx *ctx) KILN_MUST_CHECK;

/* The folder for kernels, scratch and logs as configured; heap text, "" if there is none. */
kiln_status kiln_ctx_cache_dir(const kiln_ctx *ctx, char **out) KILN_MUST_CHECK;

/* pipeline.c: the class of an inferred call, made if it has not been seen (the caller is inside the epochs); one
 * that is in no cache; and its kernel, built by the one thread whose turn it is. */
kiln_status kiln_class_of(kiln_ctx *ctx, const kiln_plan *plan, kiln_class **out) KILN_MUST_CHECK;
/* Its interpreter for columns, and the one for rows that are folded side by side. */
kiln_status kiln_program_along(const kiln_ctx *ctx, kiln_program *program,
                               const kiln_interp **out) KILN_MUST_CHECK;
kiln_status kiln_program_across(const kiln_ctx *ctx, kiln_program *program,
                                const kiln_interp **out) KILN_MUST_CHECK;
kiln_status kiln_class_new(kiln_ctx *ctx, const kiln_plan *plan, const kiln_key *key,
                           kiln_class **out) KILN_MUST_CHECK;
/* obtain.c: the kernel of a class, from a store or by a build.
 * The digest by which stores find the kernel of a level. */
kiln_status kiln_class_digest(kiln_class *c, int level, kiln_digest *out) KILN_MUST_CHECK;
/* Asks the stores that the call which makes a class may ask: those that are quick, and in mode frozen all but servers.  NULL: none had
 * the kernel.  The caller counts. */
const kiln_store *kiln_class_ask_at_once(kiln_class *c);
/* Asks the stores that are quick; whether one had the kernel. */
bool kiln_class_ask_quick(kiln_class *c);
/* The slow store to ask next; NULL: all were asked, and a build is what is left. */
static inline kiln_store *kiln_class_next_store(const kiln_class *c) {
    const kiln_stores *stores = &c->ctx->stores;
    int k = atomic_load_explicit(&c->nasked, memory_order_relaxed);
    return k < stores->n ? stores->at[k] : NULL;
}
bool kiln_class_ask_next(kiln_class *c); /* asks it; whether it had the kernel */
/* Among processes that share a store, one builds a kernel: whether this one does. */
typedef enum kiln_turn {
    KILN_TURN_OURS,      /* build it, then kiln_class_end_turn */
    KILN_TURN_ELSEWHERE, /* another process is building it */
    KILN_TURN_SERVED     /* another process has built it, and the class has it now */
} kiln_turn;
kiln_turn kiln_class_take_turn(kiln_class *c);
void kiln_class_end_turn(kiln_class *c);
/* Leaves the build to the other process: the class asks the stores again when it has been called some more. */
void kiln_class_leave_turn(kiln_class *c);
/* Gets the class its kernel, from a store or by a build, which *built says.  While another process builds it, the caller waits if may_wait;
 * else this succeeds without a kernel.  Whatever is added to *cpu_ns, here and below, is the processor time of compilers. */
kiln_status kiln_class_obtain(kiln_class *c, bool may_wait, int64_t *cpu_ns, bool *built) KILN_MUST_CHECK;
/* Puts a kernel of a level of its target into the stores that lack it, and publishes it.  from: the store that had it; NULL: it was built. */
kiln_status kiln_class_take(kiln_class *c, int level, kiln_blob *b, const kiln_store *from) KILN_MUST_CHECK;
void kiln_class_free(kiln_class *c);

/* make_code.c: builds a class's kernel, and says why it cannot. */
kiln_status kiln_class_make_code(kiln_class *c, int64_t *cpu_ns) KILN_MUST_CHECK;
/* Fills in the entry of the unit's kernel k, without its source. */
kiln_status kiln_class_make_entry(kiln_class *c, const kiln_unit *u, int k, kiln_blob *b) KILN_MUST_CHECK;
/* Tries to build n classes (1 to KILN_BATCH_MAX) of one context in few runs of the compiler.  Classes that have no kernel afterwards
 * are for kiln_class_make_code, which says why one fails, and counts and logs the failure. */
enum { KILN_BATCH_MAX = 8 };
void kiln_classes_make_code(kiln_class *const *c, int n, int64_t *cpu_ns);

/* tiers.c: when a class is worth a build.  Heat and prices are in picoseconds. */
#define KILN_PS_PER_NS UINT64_C(1000)
void kiln_class_estimate(kiln_class *c); /* what a kernel would save */
/* Notes an interpreted call over nelem elements, in `rows` rows; may ask for a build.  True: mode sync, and the class is due to be
 * built by the thread that calls it next. */
bool kiln_class_heat(kiln_class *c, int64_t nelem, int64_t rows);
/* Notes what a kernel would have saved; may ask for a build. */
void kiln_class_warm(kiln_class *c, uint64_t gain);
bool kiln_class_asks(const kiln_class *c);
void kiln_class_ask_next_at(
    kiln_class *c); /* asks when its heat is worth the next store, or a build on an idle core */
void kiln_class_ask_at(kiln_class *c, uint64_t heat);
void kiln_class_put_off(kiln_class *c,
                        int64_t took_ns); /* asks again later; took_ns: what the failed build took, or 0 */
uint64_t kiln_class_price(
    const kiln_class *c); /* of the next store to ask, or of a build, learned from earlier builds */
bool kiln_class_is_urgent(const kiln_class *c); /* whether a build pays at full priority; builders.c asks */
int kiln_class_nice(const kiln_class *c); /* by how much its compiler should be nicer than the process */

/* lone_op.c: frees the operators of kiln_op_new that are left; for kiln_close. */
void kiln_lone_ops_free(kiln_ctx *ctx);

/* record.c: the call of a plan as a line of text, heap; and that line in the file of lines, if there is one. */
kiln_status kiln_plan_line(kiln_ctx *ctx, const kiln_plan *plan, char **out) KILN_MUST_CHECK;
void kiln_record(kiln_ctx *ctx, const kiln_plan *plan);

/* prepare.c: calls `show` with each plan that a call would run.  A plan is valid until `show` returns.  The caller is inside the epochs. */
typedef kiln_status kiln_plan_fn(void *user, kiln_plan *plan);
kiln_status kiln_call_show(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                           kiln_plan_fn *show, void *user) KILN_MUST_CHECK;
/* Compiles the classes of a call, and of the calls that it is made of. */
kiln_status kiln_call_prepare(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args,
                              size_t nargs) KILN_MUST_CHECK;

/* builders.c: by which thread. */
void kiln_class_ask(kiln_class *c); /* a class that asks waits for a builder from here on */
void kiln_builds_init(kiln_builds *b);
void kiln_builds_drop_queue(kiln_ctx *ctx); /* nothing in the background is built that has not begun */
void kiln_builds_stop(kiln_ctx *ctx);       /* ends what runs and drops what waits; for kiln_close */
void kiln_builds_fini(kiln_builds *b);
size_t kiln_builds_waiting(kiln_ctx *ctx);  /* classes that are queued or being built */
void kiln_builds_after_fork(kiln_ctx *ctx); /* in the child, under the lock */

/* Whether this thread, which waits for a compiler, is to wait no longer.  user: the context.  No lock may be held. */
int kiln_ctx_interrupted(void *user);
/* While held, nothing interrupts this thread's compiles: a call that has written some of its results must write the rest. */
void kiln_hold_interrupts(bool hold);
/* Compiles c now unless that was done; waits for a build under way. */
kiln_status kiln_class_compile(kiln_class *c) KILN_MUST_CHECK;
/* The same in sync mode, except that a class that failed is left alone for a while.  Fails only if interrupted. */
kiln_status kiln_class_compile_if_due(kiln_class *c) KILN_MUST_CHECK;
#endif
