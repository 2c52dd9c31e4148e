/* test_background.c - tiers under stress: compilers that hang, fail or are killed in the background, contexts
 * that close and processes that fork meanwhile, more classes than may stay.  No call waits, every result is
 * right, and nothing is left behind. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

#include "api/ctx.h"
#include "call_cases.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#define TSAN __has_feature(thread_sanitizer)
#if TSAN || __has_feature(address_sanitizer)
enum { SANITIZED = 1, HITS = 50000 };
#else
enum { SANITIZED = 0, HITS = 1000000 };
#endif

/* The child of a process with threads starts threads of its own here; ThreadSanitizer asks to be told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

enum { THREADS = 8, BOUND = 16 };

static void nap(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* -- classes ------------------------------------------------------------------------------------------- */

/* Makes the next interpreted call of this class enough for a build. */
static void make_hot(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs) {
    kiln_bound call;
    kiln_plan plan;
    kiln_class *c = NULL;
    MUST_OK(kiln_bind(op_of(ctx, name), args, nargs, &call));
    MUST_OK(kiln_infer(&call, &plan));
    kiln_thread *t = kiln_thread_of(&ctx->domain);
    kiln_thread_enter(&ctx->domain, t);
    MUST_OK(kiln_class_of(ctx, &plan, &c));
    atomic_store(&c->hot_at, 0);
    kiln_thread_leave(t);
}

/* mul.Tensor of two i32 vectors must be right; returns the tier.  hot: the class is to be compiled now. */
static const char *mul(kiln_ctx *ctx, bool hot) {
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    if (hot) make_hot(ctx, "mul.Tensor", ARGS(TEN(a), TEN(a)));
    kiln_tensor *out = call1(ctx, "mul.Tensor", ARGS(TEN(a), TEN(a)));
    HOLDS_I32(out, SIZES(3), 1, 4, 9);
    drop_args(ARGS(TEN(a), TEN(out)));
    return kiln_last_tier();
}

enum { ROWS = 32, DTYPES = 9, LAYOUTS = 4, CLASSES = ROWS * DTYPES * DTYPES * LAYOUTS };
static const kiln_dtype dtypes[DTYPES] = {KILN_U8,  KILN_I8,   KILN_I16, KILN_I32, KILN_I64,
                                          KILN_F16, KILN_BF16, KILN_F32, KILN_F64};

/* Rows of which each dtype pair and layout makes another class: a * b + k. */
static void load_rows(kiln_ctx *ctx) {
    char rows[ROWS * 100];
    size_t n = 0;
    for (int k = 0; k < ROWS; k++)
        n += (size_t)snprintf(
            rows + n, sizeof rows - n,
            "map test::r%d(Tensor a, Tensor b) -> Tensor : promote(a, b) takes int float = a * b + %d\n", k,
            k);
    MUST_OK(kiln_ops_load(ctx, rows, n));
}

static double element(const kiln_tensor *t, int64_t at) {
    const void *p = kiln_tensor_data(t);
    switch (kiln_tensor_dtype(t)) {
    case KILN_U8: return ((const uint8_t *)p)[at];
    case KILN_I8: return ((const int8_t *)p)[at];
    case KILN_I16: return ((const int16_t *)p)[at];
    case KILN_I32: return ((const int32_t *)p)[at];
    case KILN_I64: return (double)((const int64_t *)p)[at];
    case KILN_F16: return kiln_half_to_f32(((const uint16_t *)p)[at]);
    case KILN_BF16: return kiln_bf16_to_f32(((const uint16_t *)p)[at]);
    case KILN_F32: return ((const float *)p)[at];
    default: return ((const double *)p)[at];
    }
}

static void set_element(const kiln_tensor *t, int64_t at, float v) {
    void *p = kiln_tensor_data(t);
    switch (kiln_tensor_dtype(t)) {
    case KILN_U8: ((uint8_t *)p)[at] = (uint8_t)v; break;
    case KILN_I8: ((int8_t *)p)[at] = (int8_t)v; break;
    case KILN_I16: ((int16_t *)p)[at] = (int16_t)v; break;
    case KILN_I32: ((int32_t *)p)[at] = (int32_t)v; break;
    case KILN_I64: ((int64_t *)p)[at] = (int64_t)v; break;
    case KILN_F16: ((uint16_t *)p)[at] = kiln_f32_to_half(v); break;
    case KILN_BF16: ((uint16_t *)p)[at] = kiln_f32_to_bf16(v); break;
    case KILN_F32: ((float *)p)[at] = v; break;
    default: ((double *)p)[at] = v;
    }
}

static void release_owner(void *owner) { kiln_tensor_release(owner); }

/* 8 elements, `step` apart, all of one value. */
static kiln_tensor *filled(kiln_dtype dtype, int step, float value) {
    int64_t size = 8, stride = step;
    kiln_tensor *t = NULL, *whole = new_tensor(dtype, SIZES(16), NULL);
    for (int k = 0; k < 16; k++) set_element(whole, k, value);
    MUST_OK(kiln_tensor_wrap(kiln_tensor_data(whole), dtype, 1, &size, &stride, release_owner, whole, &t));
    return t;
}

static kiln_tensor *operands[DTYPES][3][2]; /* by dtype, step, and value 2 or 3 */

static void make_operands(void) {
    for (int k = 0; k < DTYPES * 6; k++)
        operands[k / 6][k / 2 % 3][k % 2] = filled(dtypes[k / 6], k / 2 % 3, (float)(2 + k % 2));
}

static void drop_operands(void) {
    for (int k = 0; k < DTYPES * 6; k++) kiln_tensor_release(operands[k / 6][k / 2 % 3][k % 2]);
}

/* One call of class `which`: 2 * 3 + k in every element; false if it is not. */
static bool call_class(kiln_ctx *ctx, int which) {
    static const int steps[LAYOUTS][2] = {{1, 1}, {1, 0}, {0, 1}, {1, 2}};
    const int *step = steps[which % LAYOUTS];
    int a = which / LAYOUTS % DTYPES, b = which / LAYOUTS / DTYPES % DTYPES,
        row = which / LAYOUTS / DTYPES / DTYPES;
    char name[20];
    const kiln_op *op = NULL;
    kiln_tensor *out = NULL;
    snprintf(name, sizeof name, "test::r%d", row % ROWS);
    if (kiln_op_find(ctx, name, &op) != KILN_OK ||
        kiln_call(ctx, op, ARGS(TEN(operands[a][step[0]][0]), TEN(operands[b][step[1]][1])), &out, 1) !=
            KILN_OK)
        return false;
    bool right = kiln_tensor_nelem(out) == 8;
    for (int k = 0; k < 8 && right; k++) right = element(out, k) == 6 + row % ROWS;
    kiln_tensor_release(out);
    return right;
}

/* -- compilers ----------------------------------------------------------------------------------------- */

/* A driver that writes a line per run, does `text`, and unless that ended it compiles. */
static const char *compiler(const char *text) {
    char all[1200];
    unlink(in_scratch("runs"));
    snprintf(all, sizeof all, DRIVER_ONLY "echo run >> %s/runs\nfor last; do :; done\n%s\nexec gcc \"$@\"",
             scratch, text);
    return script("compiler", all);
}

static kiln_ctx *open_tiered(const char *cc) {
    return open_with((kiln_config){.mode = KILN_MODE_TIERED, .cc = cc});
}

/* -- tiers ---------------------------------------------------------------------------------------------- */

static void a_class_is_interpreted_then_compiled(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(compiler(""));
    for (int k = 0; k < 100; k++) assert_string_equal(mul(ctx, false), "interp");
    kiln_wait_idle(ctx); /* nothing to wait for */
    assert_int_equal(count_runs(), 0);
    assert_string_equal(mul(ctx, true), "interp"); /* the call that makes it hot does not wait */
    kiln_wait_idle(ctx);
    assert_string_equal(mul(ctx, false), "compiled");
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compiles, 1);
    assert_int_equal(s.kernels, 1);
    assert_int_equal(s.interp_calls, 101);
    assert_int_equal(s.calls, 102);
    assert_int_equal(s.fallbacks + s.compile_failures, 0);
    kiln_close(ctx);
    assert_no_children();
}

/* Heat comes with work: calls over many elements make a class hot by themselves. */
static void large_calls_make_a_class_hot(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(NULL);
    kiln_tensor *x = new_tensor(KILN_F32, SIZES(1 << 22), NULL);
    memset(kiln_tensor_data(x), 0, 4 << 22);
    for (int k = 0; k < 1000 && stats_of(ctx).compiles == 0; k++) {
        kiln_tensor_release(call1(ctx, "add.Tensor", ARGS(TEN(x), TEN(x))));
        kiln_wait_idle(ctx);
    }
    kiln_tensor_release(call1(ctx, "add.Tensor", ARGS(TEN(x), TEN(x))));
    assert_string_equal(kiln_last_tier(), "compiled");
    kiln_tensor_release(x);
    kiln_close(ctx);
}

static void frozen_compiles_nothing(void **state) {
    (void)state;
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_FROZEN, .cc = compiler("")});
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    kiln_kernel *kernel = NULL;
    for (int k = 0; k < 5; k++) assert_string_equal(mul(ctx, true), "interp");
    assert_int_equal(kiln_prepare(ctx, op_of(ctx, "mul.Tensor"), ARGS(TEN(a), TEN(a)), &kernel),
                     KILN_E_BUILD);
    assert_error_names("frozen");
    kiln_wait_idle(ctx);
    assert_int_equal(count_runs(), 0);
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.frozen_misses, 1);
    assert_int_equal(s.compiles + s.compile_failures, 0);
    kiln_tensor_release(a);
    kiln_close(ctx);
}

static void hits_go_on_while_the_compiler_hangs(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(script("hang", "exec sleep 1000"));
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    const kiln_op *op = op_of(ctx, "mul.Tensor");
    (void)mul(ctx, true);
    for (int k = 0; k < HITS; k++) {
        kiln_tensor *out = NULL;
        if (kiln_call(ctx, op, ARGS(TEN(a), TEN(a)), &out, 1) != KILN_OK) fail_msg("%s", kiln_last_error());
        const int32_t *got = kiln_tensor_data(out);
        if (got[0] != 1 || got[1] != 4 || got[2] != 9) fail_msg("call %d is wrong", k);
        kiln_tensor_release(out);
    }
    assert_int_equal(stats_of(ctx).calls, HITS + 1);
    assert_int_equal(stats_of(ctx).compiles, 0);
    kiln_tensor_release(a);
    kiln_close(ctx); /* does not wait for it */
    assert_no_children();
}

/* -- failures ------------------------------------------------------------------------------------------- */

typedef struct failure {
    const char *text; /* what the compiler does */
    int timeout_ms;
    uint64_t kiln_stats_field; /* offset of the counter of its cause */
} failure;

/* Fails in the background, is left alone, is tried again when it has paid for it, then succeeds. */
static void check_failure(const failure *f) {
    char text[400];
    int fds = count_fds();
    snprintf(text, sizeof text, "if [ -e %s/armed ]; then %s; fi", scratch, f->text);
    kiln_ctx *ctx = open_tiered(compiler(text));
    check_add(ctx);
    kiln_toolchain *tc = NULL;
    MUST_OK(kiln_ctx_toolchain(ctx, &tc));
    assert_int_equal(kiln_toolchain_route(tc), KILN_CC_DRIVER); /* it passed the trial */
    FILE *armed = fopen(in_scratch("armed"), "w");
    assert_non_null(armed);
    fclose(armed);
    if (f->timeout_ms) kiln_toolchain_set_timeout_ms(tc, f->timeout_ms);
    (void)mul(ctx, true);
    kiln_wait_idle(ctx);
    long runs = count_runs();
    for (int k = 0; k < 50; k++) assert_string_equal(mul(ctx, false), "interp");
    kiln_wait_idle(ctx);
    assert_int_equal(count_runs(), runs); /* not at once again */
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compile_failures, 1);
    char *doctor = NULL;
    MUST_OK(kiln_doctor(ctx, &doctor));
    if (*(uint64_t *)((char *)&s + f->kiln_stats_field) != 1) fail_msg("%s: %s", f->text, doctor);
    assert_non_null(strstr(doctor, "!failed compiles: 1: 1 "));
    assert_non_null(strstr(doctor, "mul.Tensor"));
    kiln_text_free(doctor);
    unlink(in_scratch("armed"));
    kiln_toolchain_set_timeout_ms(tc, 30000);
    (void)mul(ctx, true);
    kiln_wait_idle(ctx);
    assert_string_equal(mul(ctx, false), "compiled");
    kiln_close(ctx);
    assert_int_equal(count_fds(), fds);
    assert_no_children();
}

static void failures_are_remembered_and_named(void **state) {
    (void)state;
#define AT(field) offsetof(kiln_stats, field)
    static const failure all[] = {
        {"exit 1", 0, AT(compiler_errors)},
        {"echo garbage; exit 0", 0, AT(compiler_errors)},
        {"echo garbage > $last; exit 0", 0, AT(compiler_errors)},
        {"kill -9 $$", 0, AT(compiler_errors)},
        {"exec sleep 100", 300, AT(compiler_timeouts)},
        {"head -c 200000000 /dev/zero > $last || exit 1; exit 0", 0,
         AT(compiler_errors)}, /* beyond its file limit */
        {"gcc \"$@\" && truncate -s 300 $last; exit 0", 0, AT(load_failures)},
        {"sed 's/= mul_i32/= max_i32/; s/^static int nest0/static vi32 max_i32(vi32 a, vi32 b) { return a + b; } &/' "
         "| gcc \"$@\"; exit $?",
         0, AT(selftest_failures)},
    };
#undef AT
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) check_failure(&all[k]);
}

static void without_a_compiler_nothing_fails(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered("/nonexistent/cc");
    (void)mul(ctx, true);
    kiln_wait_idle(ctx);
    assert_string_equal(mul(ctx, false), "interp");
    assert_int_equal(stats_of(ctx).no_compiler, 1);
    kiln_close(ctx);
}

/* Each failure doubles the heat that the next attempt takes. */
static void attempts_grow_rare(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered("false");
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    kiln_bound call;
    kiln_plan plan;
    kiln_class *c = NULL;
    uint64_t before = 0;
    MUST_OK(kiln_bind(op_of(ctx, "mul.Tensor"), ARGS(TEN(a), TEN(a)), &call));
    MUST_OK(kiln_infer(&call, &plan));
    for (int k = 1; k < 70; k++) {
        (void)mul(ctx, true);
        kiln_wait_idle(ctx);
        kiln_thread *t = kiln_thread_of(&ctx->domain);
        kiln_thread_enter(&ctx->domain, t);
        MUST_OK(kiln_class_of(ctx, &plan, &c));
        uint64_t wait = atomic_load(&c->hot_at) - atomic_load(&c->heat);
        kiln_thread_leave(t);
        assert_true(wait >= before + before / 2 || wait > UINT64_MAX / 16);
        before = wait;
    }
    assert_int_equal(stats_of(ctx).compile_failures, 69);
    kiln_tensor_release(a);
    kiln_close(ctx);
}

static void the_queue_is_bounded(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(script("hang", "exec sleep 1000"));
    load_rows(ctx);
    make_operands();
    for (int k = 0; k < 400; k++) {
        assert_true(call_class(ctx, k));
        char name[20];
        snprintf(name, sizeof name, "test::r%d", k / LAYOUTS / DTYPES / DTYPES);
        static const int steps[LAYOUTS][2] = {{1, 1}, {1, 0}, {0, 1}, {1, 2}};
        make_hot(ctx, name,
                 ARGS(TEN(operands[k / LAYOUTS % DTYPES][steps[k % LAYOUTS][0]][0]),
                      TEN(operands[k / LAYOUTS / DTYPES % DTYPES][steps[k % LAYOUTS][1]][1])));
        assert_true(call_class(ctx, k));
    }
    assert_true(stats_of(ctx).queue_full > 0);
    assert_true(ctx->builds.nqueued <= 256);
    kiln_close(ctx);
    drop_operands();
    assert_no_children();
}

/* -- memory --------------------------------------------------------------------------------------------- */

/* The background runs out of memory at every single allocation; later it compiles. */
static void building_without_memory(void **state) {
    (void)state;
    bool failed = true;
    int n = 1;
    for (; failed; n += SANITIZED ? 7 : 1) {
        kiln_ctx *ctx = open_tiered(NULL);
        (void)mul(ctx, false);
        kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = NULL;
        make_hot(ctx, "mul.Tensor", ARGS(TEN(a), TEN(a)));
        kiln_alloc_fail_after(n);
        kiln_status st = kiln_call(ctx, op_of(ctx, "mul.Tensor"), ARGS(TEN(a), TEN(a)), &out, 1);
        kiln_wait_idle(ctx);
        (void)kiln_alloc_fail_after(0);
        if (st != KILN_OK) assert_int_equal(st, KILN_E_NOMEM);
        failed = stats_of(ctx).compiles == 0;
        (void)mul(ctx, true);
        kiln_wait_idle(ctx);
        if (strcmp(mul(ctx, false), "compiled") != 0) fail_msg("allocation %d is held against the class", n);
        drop_args(ARGS(TEN(a), TEN(out)));
        kiln_close(ctx);
    }
    assert_true(n > 20);
    assert_no_children();
}

/* -- threads -------------------------------------------------------------------------------------------- */

typedef struct worker {
    pthread_t thread;
    int id;
    kiln_ctx *ctx;
    void (*body)(struct worker *);
    atomic_int *wrong;
} worker;

static void *run_worker(void *user) {
    worker *w = user;
    w->body(w);
    return NULL;
}

static void run_all(int nthreads, kiln_ctx *ctx, void (*body)(worker *)) {
    worker all[2 * THREADS];
    atomic_int wrong = 0;
    for (int k = 0; k < nthreads; k++) {
        all[k] = (worker){.id = k, .ctx = ctx, .body = body, .wrong = &wrong};
        assert_int_equal(pthread_create(&all[k].thread, NULL, run_worker, &all[k]), 0);
    }
    for (int k = 0; k < nthreads; k++) assert_int_equal(pthread_join(all[k].thread, NULL), 0);
    assert_int_equal(atomic_load(&wrong), 0);
}

static void call_until_compiled(worker *w) {
    for (int k = 0; k < 2000; k++)
        if (!call_class(w->ctx, 0)) atomic_fetch_add(w->wrong, 1);
}

/* 16 threads, one class, hot from the first call. */
static void one_hot_class_is_compiled_once(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(NULL);
    load_rows(ctx);
    make_operands();
    make_hot(ctx, "test::r0", ARGS(TEN(operands[0][1][0]), TEN(operands[0][1][1])));
    run_all(2 * THREADS, ctx, call_until_compiled);
    kiln_wait_idle(ctx);
    assert_true(call_class(ctx, 0));
    assert_string_equal(kiln_last_tier(), "compiled");
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compiles, 1);
    assert_int_equal(s.calls, 2 * THREADS * 2000 + 1); /* of threads that are gone */
    kiln_close(ctx);
    drop_operands();
}

/* Each thread walks over all classes, from another start and with another stride. */
static void call_many(worker *w) {
    int count = SANITIZED ? 1500 : CLASSES, at = w->id * 1237;
    for (int k = 0; k < count; k++, at += 2 * w->id + 1)
        if (!call_class(w->ctx, at % CLASSES)) atomic_fetch_add(w->wrong, 1);
}

static void many_classes_with_a_small_bound(void **state) {
    (void)state;
    assert_true(CLASSES > 10000);
    make_operands();
    for (int mode = KILN_MODE_INTERP; mode <= KILN_MODE_TIERED; mode++) {
        kiln_ctx *ctx = open_with((kiln_config){.mode = (kiln_mode)mode, .max_kernels = BOUND});
        load_rows(ctx);
        run_all(THREADS, ctx, call_many);
        assert_true(kiln_cache_count(ctx->cache) <= BOUND);
        assert_true(stats_of(ctx).evictions > 1000);
        kiln_close(ctx);
    }
    drop_operands();
}

/* Kernels go too, while threads run them; a held one stays. */
static void call_some(worker *w) {
    for (int k = 0; k < (SANITIZED ? 60 : 120); k++)
        if (!call_class(w->ctx, (k * 5 + w->id) % 12)) atomic_fetch_add(w->wrong, 1);
}

static void kernels_are_evicted(void **state) {
    (void)state;
    make_operands();
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .max_kernels = 6});
    load_rows(ctx);
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = NULL;
    kiln_kernel *held = NULL;
    MUST_OK(kiln_prepare(ctx, op_of(ctx, "mul.Tensor"), ARGS(TEN(a), TEN(a)), &held));
    run_all(4, ctx, call_some);
    kiln_stats s = stats_of(ctx);
    assert_true(s.kernels <= 6 + 32); /* those waiting to be dropped included */
    assert_true(s.evictions > 0);
    assert_true(s.compiles >= 12);
    kiln_domain_reclaim(&ctx->domain);
    assert_true(stats_of(ctx).kernels <= 6);
    MUST_OK(kiln_kernel_run(held, ARGS(TEN(a), TEN(a)), &out, 1));
    HOLDS_I32(out, SIZES(3), 1, 4, 9);
    assert_string_equal(kiln_last_tier(), "compiled");
    kiln_kernel_release(held);
    drop_args(ARGS(TEN(a), TEN(out)));
    kiln_close(ctx);
    drop_operands();
    assert_no_children();
}

/* -- closing and forking -------------------------------------------------------------------------------- */

static void closing_while_compiles_run(void **state) {
    (void)state;
    make_operands();
    int fds = count_fds();
    for (int k = 0; k < (SANITIZED ? 6 : 20); k++) {
        kiln_ctx *ctx = open_tiered(k % 4 ? NULL : script("hang", "sleep 1000 & wait"));
        load_rows(ctx);
        for (int c = 0; c < 8; c++) {
            static const int steps[LAYOUTS][2] = {{1, 1}, {1, 0}, {0, 1}, {1, 2}};
            make_hot(ctx, "test::r0",
                     ARGS(TEN(operands[c / LAYOUTS][steps[c % LAYOUTS][0]][0]),
                          TEN(operands[0][steps[c % LAYOUTS][1]][1])));
            assert_true(call_class(ctx, c));
        }
        nap(k * 3);
        kiln_close(ctx);
        assert_int_equal(count_fds(), fds);
        assert_no_children();
    }
    drop_operands();
}

/* A child must do all within a minute, or it hangs. */
static void in_child(kiln_ctx *ctx, bool (*body)(kiln_ctx *)) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(60);
        bool right = body(ctx);
        kiln_close(ctx);
        _exit(right ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static bool child_compiles_in_the_background(kiln_ctx *ctx) {
    (void)mul(ctx, true);
    kiln_wait_idle(ctx);
    return strcmp(mul(ctx, false), "compiled") == 0;
}

/* The parent's thread is in the middle of the same class. */
static void a_child_forked_in_a_background_compile(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(compiler("sleep 1"));
    (void)mul(ctx, true);
    for (int k = 0; k < 3; k++) {
        nap(k * 300);
        in_child(ctx, child_compiles_in_the_background);
    }
    kiln_wait_idle(ctx);
    assert_string_equal(mul(ctx, false), "compiled");
    kiln_close(ctx);
    assert_no_children();
}

static void compile_in_thread(worker *w) { (void)mul(w->ctx, false); }

static bool child_compiles_itself(kiln_ctx *ctx) { return strcmp(mul(ctx, false), "compiled") == 0; }

/* A thread of the parent holds the latch of the class; it does not exist in the child. */
static void a_child_forked_in_a_callers_compile(void **state) {
    (void)state;
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .cc = compiler("sleep 1")});
    worker w = {.ctx = ctx, .body = compile_in_thread};
    assert_int_equal(pthread_create(&w.thread, NULL, run_worker, &w), 0);
    nap(200);
    in_child(ctx, child_compiles_itself);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    assert_string_equal(mul(ctx, false), "compiled");
    in_child(ctx, child_compiles_itself);
    kiln_close(ctx);
    assert_no_children();
}

static bool child_calls_many(kiln_ctx *ctx) {
    for (int k = 0; k < 200; k++)
        if (!call_class(ctx, k)) return false;
    return true;
}

static atomic_bool forking;
static void call_while_forking(worker *w) {
    for (int k = 0; atomic_load(&forking); k++)
        if (!call_class(w->ctx, (k * 7 + w->id) % 500)) atomic_fetch_add(w->wrong, 1);
}

/* Threads insert and evict while another forks: no lock stays taken in the child.  Not under ThreadSanitizer: of its
 * own allocator's locks (clang 14) one that another thread has stays taken in the child, which then hangs in malloc. */
static void forks_among_writers(void **state) {
    (void)state;
    if (TSAN) skip();
    make_operands();
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_INTERP, .max_kernels = BOUND});
    load_rows(ctx);
    worker all[4];
    atomic_int wrong = 0;
    atomic_store(&forking, true);
    for (int k = 0; k < 4; k++) {
        all[k] = (worker){.id = k, .ctx = ctx, .body = call_while_forking, .wrong = &wrong};
        assert_int_equal(pthread_create(&all[k].thread, NULL, run_worker, &all[k]), 0);
    }
    for (int k = 0; k < (SANITIZED ? 5 : 30); k++) in_child(ctx, child_calls_many);
    atomic_store(&forking, false);
    for (int k = 0; k < 4; k++) assert_int_equal(pthread_join(all[k].thread, NULL), 0);
    assert_int_equal(atomic_load(&wrong), 0);
    kiln_close(ctx);
    drop_operands();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_class_is_interpreted_then_compiled),
        cmocka_unit_test(large_calls_make_a_class_hot),
        cmocka_unit_test(frozen_compiles_nothing),
        cmocka_unit_test(hits_go_on_while_the_compiler_hangs),
        cmocka_unit_test(failures_are_remembered_and_named),
        cmocka_unit_test(without_a_compiler_nothing_fails),
        cmocka_unit_test(attempts_grow_rare),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(building_without_memory),
        cmocka_unit_test(one_hot_class_is_compiled_once),
        cmocka_unit_test(many_classes_with_a_small_bound),
        cmocka_unit_test(kernels_are_evicted),
        cmocka_unit_test(closing_while_compiles_run),
        cmocka_unit_test(a_child_forked_in_a_background_compile),
        cmocka_unit_test(a_child_forked_in_a_callers_compile),
        cmocka_unit_test(forks_among_writers),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
