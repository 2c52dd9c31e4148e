/* test_threads.c - many threads, contexts and processes at once: each class is compiled once, every result is
 * right, rows may be loaded meanwhile, and a forked child calls and compiles on its own. */
#include <pthread.h>
#include <stdatomic.h>

#include "call_cases.h"

enum { THREADS = 16, LENGTH = 100 };

static pthread_barrier_t start;
static atomic_int wrong; /* results that were not right; a thread must not fail a test itself */

typedef struct worker {
    pthread_t thread;
    int id;
    kiln_ctx *ctx;
    void (*body)(struct worker *);
} worker;

static void *run_worker(void *user) {
    worker *w = user;
    pthread_barrier_wait(&start);
    w->body(w);
    return NULL;
}

/* Runs body in THREADS threads that start at once; contexts go round. */
static void run_all(void (*body)(worker *), kiln_ctx *const *contexts, int ncontexts) {
    worker all[THREADS];
    atomic_store(&wrong, 0);
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (int k = 0; k < THREADS; k++) {
        all[k] = (worker){.id = k, .ctx = contexts[k % ncontexts], .body = body};
        assert_int_equal(pthread_create(&all[k].thread, NULL, run_worker, &all[k]), 0);
    }
    for (int k = 0; k < THREADS; k++) assert_int_equal(pthread_join(all[k].thread, NULL), 0);
    pthread_barrier_destroy(&start);
    assert_int_equal(atomic_load(&wrong), 0);
}

/* x op x with x = seed + i, in f64; true if every element is what `want` says. */
static bool right(kiln_ctx *ctx, const char *name, kiln_dtype dtype, int seed, double (*want)(double)) {
    kiln_tensor *x = NULL, *y = NULL;
    const kiln_op *op = NULL;
    int64_t n = LENGTH;
    if (kiln_op_find(ctx, name, &op) != KILN_OK || kiln_tensor_new(dtype, 1, &n, NULL, &x) != KILN_OK)
        return false;
    for (int i = 0; i < LENGTH; i++) {
        if (dtype == KILN_F64) ((double *)kiln_tensor_data(x))[i] = seed + i;
        if (dtype == KILN_F32) ((float *)kiln_tensor_data(x))[i] = (float)(seed + i);
        if (dtype == KILN_I32) ((int32_t *)kiln_tensor_data(x))[i] = seed + i;
        if (dtype == KILN_I64) ((int64_t *)kiln_tensor_data(x))[i] = seed + i;
    }
    bool ok = kiln_call(ctx, op, ARGS(TEN(x), TEN(x)), &y, 1) == KILN_OK && kiln_tensor_dtype(y) == dtype;
    for (int i = 0; i < LENGTH && ok; i++) {
        double got = 0;
        if (dtype == KILN_F64) got = ((double *)kiln_tensor_data(y))[i];
        if (dtype == KILN_F32) got = ((float *)kiln_tensor_data(y))[i];
        if (dtype == KILN_I32) got = ((int32_t *)kiln_tensor_data(y))[i];
        if (dtype == KILN_I64) got = (double)((int64_t *)kiln_tensor_data(y))[i];
        ok = got == want(seed + i);
    }
    kiln_tensor_release(x);
    kiln_tensor_release(y);
    return ok;
}

static double twice(double x) { return x + x; }
static double square(double x) { return x * x; }
static double same(double x) { return x; }

/* No two of these have equal IR, so that no two of their classes share a kernel. */
static const struct class_case {
    const char *name;
    double (*want)(double);
} class_cases[] = {{"add.Tensor", twice}, {"mul.Tensor", square}, {"minimum", same}, {"maximum", same}};
static const kiln_dtype class_dtypes[] = {KILN_F32, KILN_F64, KILN_I32, KILN_I64};
enum { NAMES = 4, DTYPES = 4, CLASSES = NAMES * DTYPES };

static void note(bool ok) {
    if (!ok) atomic_fetch_add(&wrong, 1);
}

/* -- one class, many classes -------------------------------------------------------------------------- */

static void call_one_class(worker *w) {
    for (int k = 0; k < 20; k++) note(right(w->ctx, "mul.Tensor", KILN_F32, w->id + k, square));
}

static void one_class_is_compiled_once(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    run_all(call_one_class, &ctx, 1);
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compiles, 1);
    assert_int_equal(s.kernels, 1);
    assert_int_equal(s.calls, THREADS * 20);
    assert_int_equal(s.misses + hits_of(&s), THREADS * 20);
    assert_true(s.misses >= 1 && s.misses <= THREADS);
    assert_int_equal(s.interp_calls + s.fallbacks + s.compile_failures, 0); /* in sync mode all wait for it */
    kiln_close(ctx);
}

static void call_many_classes(worker *w) {
    for (int k = 0; k < CLASSES * 2; k++) {
        int at = (k + w->id) % CLASSES; /* each thread starts with another */
        const struct class_case *c = &class_cases[at % NAMES];
        note(right(w->ctx, c->name, class_dtypes[at / NAMES], w->id, c->want));
    }
}

static void many_classes_are_compiled_once_each(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    run_all(call_many_classes, &ctx, 1);
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compiles, CLASSES);
    assert_int_equal(s.kernels, CLASSES);
    assert_int_equal(s.calls, THREADS * CLASSES * 2);
    assert_int_equal(s.fallbacks, 0);
    kiln_close(ctx);
    assert_no_children();
}

/* A compiler that fails is asked once; all threads interpret. */
static void a_failing_class_is_tried_once(void **state) {
    (void)state;
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .cc = "false"});
    run_all(call_one_class, &ctx, 1);
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compile_failures, 1);
    assert_int_equal(s.fallbacks, THREADS * 20);
    kiln_close(ctx);
}

/* The interpreter meanwhile: a kernel is prepared while others call its class. */
static void prepare_or_call(worker *w) {
    kiln_tensor *x = NULL;
    kiln_kernel *k = NULL;
    int64_t n = LENGTH;
    const kiln_op *op = NULL;
    if (w->id % 4 == 0) {
        note(kiln_tensor_new(KILN_F32, 1, &n, NULL, &x) == KILN_OK &&
             kiln_op_find(w->ctx, "mul.Tensor", &op) == KILN_OK &&
             kiln_prepare(w->ctx, op, ARGS(TEN(x), TEN(x)), &k) == KILN_OK);
        kiln_kernel_release(k);
        kiln_tensor_release(x);
    }
    call_one_class(w);
}

static void a_kernel_is_published_under_callers(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    run_all(prepare_or_call, &ctx, 1);
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compiles, 1);
    assert_int_equal(s.calls, THREADS * 20);
    assert_true(s.interp_calls <= s.calls);
    kiln_close(ctx);
}

/* -- rows and contexts -------------------------------------------------------------------------------- */

static void load_or_call(worker *w) {
    char row[200], name[40];
    for (int k = 0; k < 3; k++) {
        if (w->id % 4 == 0) {
            snprintf(name, sizeof name, "test::r%d_%d", w->id, k);
            snprintf(row, sizeof row, "map %s(Tensor a, Tensor b) -> Tensor : promote(a, b) = a * b\n", name);
            note(kiln_ops_load(w->ctx, row, strlen(row)) == KILN_OK);
            note(right(w->ctx, name, KILN_I64, k, square));
        }
        note(right(w->ctx, "add.Tensor", KILN_F64, k, twice));
        note(kiln_op_count(w->ctx) > 0 && kiln_op_at(w->ctx, 0));
    }
}

static void rows_are_loaded_while_others_call(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    size_t before = kiln_op_count(ctx);
    run_all(load_or_call, &ctx, 1);
    assert_int_equal(kiln_op_count(ctx), before + THREADS / 4 * 3);
    kiln_close(ctx);
}

static void several_contexts_at_once(void **state) {
    (void)state;
    kiln_ctx *contexts[4];
    for (int k = 0; k < 4; k++) contexts[k] = open_mode(k % 2 ? KILN_MODE_INTERP : KILN_MODE_SYNC);
    run_all(call_one_class, contexts, 4);
    for (int k = 0; k < 4; k++) {
        kiln_stats s = stats_of(contexts[k]);
        assert_int_equal(s.calls, THREADS / 4 * 20);
        assert_int_equal(s.compiles, k % 2 ? 0 : 1);
        kiln_close(contexts[k]);
    }
}

static void open_call_close(worker *w) {
    kiln_ctx *ctx = NULL;
    kiln_config c = {.size = sizeof c, .mode = w->id % 8 ? KILN_MODE_INTERP : KILN_MODE_SYNC};
    note(kiln_open(&c, &ctx) == KILN_OK);
    if (!ctx) return;
    note(right(ctx, "add.Tensor", KILN_I32, w->id, twice));
    kiln_close(ctx);
}

static void contexts_open_and_close_at_once(void **state) {
    (void)state;
    kiln_ctx *none = NULL;
    run_all(open_call_close, &none, 1);
}

static void look_or_call(worker *w) {
    char *text = NULL;
    if (w->id % 4 == 0) {
        note(kiln_doctor(w->ctx, &text) == KILN_OK && strstr(text, "isa: "));
        kiln_text_free(text);
        (void)stats_of(w->ctx);
    }
    note(right(w->ctx, "maximum", KILN_F32, w->id, same));
}

static void looking_in_disturbs_nobody(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    run_all(look_or_call, &ctx, 1);
    kiln_close(ctx);
}

/* Errors are each thread's own. */
static void fail_or_call(worker *w) {
    kiln_tensor *out = NULL;
    const kiln_op *op = NULL;
    char name[20];
    for (int k = 0; k < 50; k++) {
        snprintf(name, sizeof name, "nothing%d", w->id);
        note(kiln_op_find(w->ctx, name, &op) == KILN_E_NOTFOUND && strstr(kiln_last_error(), name));
        note(kiln_op_find(w->ctx, "neg", &op) == KILN_OK &&
             kiln_call(w->ctx, op, NULL, 0, &out, 1) == KILN_E_TYPE);
        note(strstr(kiln_last_error(), "aten::neg") != NULL);
    }
}

static void errors_stay_in_their_thread(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    run_all(fail_or_call, &ctx, 1);
    kiln_close(ctx);
}

/* -- fork --------------------------------------------------------------------------------------------- */

/* The child uses the parent's kernels, makes its own, and closes its copy; the parent goes on. */
static void a_child_calls_and_compiles(void **state) {
    (void)state;
    unsetenv("HOME"); /* a temporary folder is the parent's to remove */
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    assert_true(right(ctx, "add.Tensor", KILN_F32, 1, twice));
    pid_t children[4];
    for (int k = 0; k < 4; k++) {
        children[k] = fork();
        assert_true(children[k] >= 0);
        if (children[k] > 0) continue;
        bool ok = right(ctx, "add.Tensor", KILN_F32, 5, twice) && stats_of(ctx).compiles == 1;
        ok = ok && right(ctx, "mul.Tensor", KILN_F32, 5, square) && strcmp(kiln_last_tier(), "compiled") == 0;
        ok = ok && stats_of(ctx).compiles == 2;
        kiln_close(ctx);
        _exit(ok ? 0 : 1);
    }
    for (int k = 0; k < 4; k++) {
        int status = -1;
        assert_int_equal(waitpid(children[k], &status, 0), children[k]);
        assert_int_equal(status, 0);
    }
    assert_true(right(ctx, "mul.Tensor", KILN_F64, 5, square));
    assert_string_equal(kiln_last_tier(), "compiled");
    assert_int_equal(stats_of(ctx).compiles, 2);
    kiln_close(ctx);
    setenv("HOME", scratch, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_calls_and_compiles), /* first: this process has one thread yet */
        cmocka_unit_test(one_class_is_compiled_once),
        cmocka_unit_test(many_classes_are_compiled_once_each),
        cmocka_unit_test(a_failing_class_is_tried_once),
        cmocka_unit_test(a_kernel_is_published_under_callers),
        cmocka_unit_test(rows_are_loaded_while_others_call),
        cmocka_unit_test(several_contexts_at_once),
        cmocka_unit_test(contexts_open_and_close_at_once),
        cmocka_unit_test(looking_in_disturbs_nobody),
        cmocka_unit_test(errors_stay_in_their_thread),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
