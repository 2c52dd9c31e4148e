/* test_classes.c - more classes than may stay, many threads, contexts that close and processes that fork meanwhile.
 *
 * Every result is right, no class is compiled twice at once, and a child finds no lock taken.  KILN_TEST_ALL has
 * kernels evicted for longer. */
#include "tier_cases.h"
#include "whole.h"

enum { THREADS = 8, BOUND = 16 };

/* -- classes ------------------------------------------------------------------------------------------- */

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

static int row_of(int which) { return which / LAYOUTS / DTYPES / DTYPES % ROWS; }

/* The operator and the arguments of class `which`. */
static const kiln_op *class_call(kiln_ctx *ctx, int which, kiln_value *args) {
    static const int steps[LAYOUTS][2] = {{1, 1}, {1, 0}, {0, 1}, {1, 2}};
    const int *step = steps[which % LAYOUTS];
    char name[20];
    const kiln_op *op = NULL;
    args[0] = kiln_v_tensor(operands[which / LAYOUTS % DTYPES][step[0]][0]);
    args[1] = kiln_v_tensor(operands[which / LAYOUTS / DTYPES % DTYPES][step[1]][1]);
    snprintf(name, sizeof name, "test::r%d", row_of(which));
    return kiln_op_find(ctx, name, &op) == KILN_OK ? op : NULL;
}

/* One call of class `which`: 2 * 3 + k in every element; false if it is not. */
static bool call_class(kiln_ctx *ctx, int which) {
    kiln_value args[2];
    kiln_tensor *out = NULL;
    const kiln_op *op = class_call(ctx, which, args);
    if (!op || kiln_call(ctx, op, args, 2, &out, 1) != KILN_OK) return false;
    bool right = kiln_tensor_nelem(out) == 8;
    for (int k = 0; k < 8 && right; k++) right = element(out, k) == 6 + row_of(which);
    kiln_tensor_release(out);
    return right;
}

static void make_class_hot(kiln_ctx *ctx, int which) {
    kiln_value args[2];
    make_hot(ctx, class_call(ctx, which, args), args, 2);
}

static void the_queue_is_bounded(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(script("hang", "exec sleep 1000"));
    load_rows(ctx);
    make_operands();
    for (int k = 0; k < 400; k++) {
        assert_true(call_class(ctx, k));
        make_class_hot(ctx, k);
        assert_true(call_class(ctx, k));
    }
    assert_true(stats_of(ctx).queue_full > 0);
    assert_true(ctx->builds.nqueued <= 256);
    kiln_close(ctx);
    drop_operands();
    assert_no_children();
}

/* -- threads -------------------------------------------------------------------------------------------- */

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
    make_class_hot(ctx, 0);
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
    for (int k = 0; k < (whole_run() ? 120 : 40); k++)
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
    kiln_epochs_reclaim(&ctx->epochs);
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
            make_class_hot(ctx, c);
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

/* Until the compiler runs, and the thread that started it only waits: the allocators of both sanitizers (clang 14) leave
 * a lock that another thread has taken at a fork, so under them nobody may allocate then. */
static void wait_for_compiler(void) {
    while (count_runs() == 0) nap(5);
}

/* The parent's thread is in the middle of the same class. */
static void a_child_forked_in_a_background_compile(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(compiler("sleep 1"));
    (void)mul(ctx, true);
    if (SANITIZED) wait_for_compiler();
    for (int k = 0; k < (SANITIZED ? 1 : 3); k++) {
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
    wait_for_compiler();
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

/* Threads insert and evict while another forks: no lock of Kiln's stays taken in the child.  Not under sanitizers, of whose own
 * locks one may: see wait_for_compiler. */
static void forks_among_writers(void **state) {
    (void)state;
    if (SANITIZED) skip();
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
    for (int k = 0; k < 30; k++) in_child(ctx, child_calls_many);
    atomic_store(&forking, false);
    for (int k = 0; k < 4; k++) assert_int_equal(pthread_join(all[k].thread, NULL), 0);
    assert_int_equal(atomic_load(&wrong), 0);
    kiln_close(ctx);
    drop_operands();
}

/* Prepares a class that slots can hold and calls it until its kernel is evicted, over and over. */
static atomic_int hitting;
static void hit_until_evicted(worker *w) {
    kiln_value args[2];
    kiln_kernel *k = NULL;
    int which = LAYOUTS * w->id, right = 1;
    const kiln_op *op = class_call(w->ctx, which, args);
    for (int round = 0; round < (SANITIZED ? 4 : 10) && right; round++) {
        right = op && kiln_prepare(w->ctx, op, args, 2, &k) == KILN_OK;
        if (right) kiln_kernel_release(k);
        for (int n = 0; n < 20000 && right; n++) {
            right = call_class(w->ctx, which);
            if (strcmp(kiln_last_tier(), "compiled") != 0) break;
        }
    }
    if (!right) atomic_fetch_add(w->wrong, 1);
    atomic_fetch_sub(&hitting, 1);
}

static void evict_meanwhile(worker *w) {
    for (int k = 0; atomic_load(&hitting) > 0; k++) {
        if (!call_class(w->ctx, 1000 + (k * 7 + w->id) % 500)) atomic_fetch_add(w->wrong, 1);
        if (k % 64 == 0) nap(1); /* each eviction ends what slots hold: between them there must be hits */
    }
}

static void hit_or_evict(worker *w) { (w->id % 2 ? evict_meanwhile : hit_until_evicted)(w); }

static bool child_hits(kiln_ctx *ctx) {
    uint64_t before = stats_of(ctx).slot_hits;
    for (int k = 0; k < 100; k++)
        if (!call_class(ctx, 0)) return false;
    return stats_of(ctx).slot_hits > before && child_calls_many(ctx);
}

static void slots_are_hit_while_classes_go(void **state) {
    (void)state;
    make_operands();
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_INTERP, .max_kernels = BOUND});
    load_rows(ctx);
    for (int k = 0; k < 2; k++) {
        atomic_store(&hitting, THREADS / 2);
        run_all(THREADS, ctx, hit_or_evict);
    }
    assert_true(stats_of(ctx).slot_hits > 100 && stats_of(ctx).evictions > 100);
    kiln_value args[2];
    kiln_kernel *held = NULL;
    MUST_OK(kiln_prepare(ctx, class_call(ctx, 0, args), args, 2, &held));
    for (int k = 0; k < 100; k++) assert_true(call_class(ctx, 0));
    if (!TSAN) in_child(ctx, child_hits); /* as forks_among_writers says */
    kiln_kernel_release(held);
    kiln_close(ctx);
    drop_operands();
    assert_no_children();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(one_hot_class_is_compiled_once),
        cmocka_unit_test(many_classes_with_a_small_bound),
        cmocka_unit_test(kernels_are_evicted),
        cmocka_unit_test(closing_while_compiles_run),
        cmocka_unit_test(a_child_forked_in_a_background_compile),
        cmocka_unit_test(a_child_forked_in_a_callers_compile),
        cmocka_unit_test(forks_among_writers),
        cmocka_unit_test(slots_are_hit_while_classes_go),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
