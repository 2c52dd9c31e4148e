/* ctx.h - private to src/api: what a context owns, and the stages of a call. */
#ifndef KILN_CTX_H
#define KILN_CTX_H
#include <pthread.h>
#include <stdatomic.h>

#include "build/build.h"
#include "cache/cache.h"
#include "infer/infer.h"
#include "lower/lower.h"
#include "run/driver.h"

/* A class of calls: its IR for the interpreter and, once built, its kernel.  Lives in the cache. */
typedef struct kiln_class {
    kiln_key key;
    kiln_arena arena; /* IR */
    kiln_lowered low;
    kiln_interp *interp;
    int nguards;                /* leading nests that only look for traps */
    _Atomic(kiln_kernel_fn) fn; /* NULL until a kernel is published */
    pthread_mutex_t lock;       /* one build at a time; guards what follows */
    bool tried;                 /* a build was made or failed */
    kiln_code *code;
    struct kiln_ctx *ctx;
} kiln_class;

struct kiln_ctx {
    kiln_mode mode;
    kiln_isa isa;
    char *cc, *cache_dir, *dump_dir; /* as configured, or NULL */
    kiln_log_fn log;
    void *log_user;
    _Atomic(kiln_registry *) registry;
    kiln_registry **old; /* replaced ones, freed at close */
    size_t nold;
    kiln_cache *cache;
    pthread_mutex_t lock; /* registry replacement, toolchain */
    kiln_toolchain *toolchain;
    char *scratch;     /* folder the toolchain uses */
    int scratch_owner; /* process that made it as a temporary one and removes it at close, or 0 */
#define C(name, meaning) atomic_uint_fast64_t name;
    struct {
#include "kiln/counter.def"
    } count;
#undef C
};

#define KILN_COUNT(ctx, name) atomic_fetch_add_explicit(&(ctx)->count.name, 1, memory_order_relaxed)

void kiln_ctx_log(const kiln_ctx *ctx, int level, const char *topic, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The compiler, found on first use.  Never NULL on success; it may be one that has no compiler. */
kiln_status kiln_ctx_toolchain(kiln_ctx *ctx, kiln_toolchain **out) KILN_MUST_CHECK;
/* The folder for scratch and logs as configured; heap text. */
kiln_status kiln_ctx_cache_dir(const kiln_ctx *ctx, char **out) KILN_MUST_CHECK;

/* pipeline.c */
kiln_status kiln_class_new(kiln_ctx *ctx, const kiln_plan *plan, const kiln_key *key,
                           kiln_class **out) KILN_MUST_CHECK;
kiln_status kiln_class_compile(kiln_class *c) KILN_MUST_CHECK;
void kiln_class_free(void *c);

/* call.c: the class of a bound, inferred call, made if it has not been seen. */
kiln_status kiln_class_of(kiln_ctx *ctx, const kiln_plan *plan, kiln_class **out) KILN_MUST_CHECK;
#endif
