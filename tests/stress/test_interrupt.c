/* test_interrupt.c - a host that calls off waits for compilers: the wait ends, the compiler is killed, nothing is written or
 * held against the class, and the next call compiles. */
#include <limits.h>

#include "tier_cases.h"

/* -- the host ------------------------------------------------------------------------------------------- */

/* The test's thread waits no longer once the compiler has been started more often than `runs` and the question was passed
 * by so often. */
static struct {
    pthread_t impatient;
    long runs;
    int grace;
    atomic_int others; /* questions on other threads */
} host;

static void call_off(long runs, int grace) {
    host.runs = runs;
    host.grace = grace;
}
static void call_off_in_next_run(void) { call_off(count_runs(), 0); }
static void be_patient(void) { call_off(LONG_MAX, 0); }

static int ask(void *user) {
    assert_ptr_equal(user, &host);
    if (!pthread_equal(pthread_self(), host.impatient)) return atomic_fetch_add(&host.others, 1), 0;
    return count_runs() > host.runs && host.grace-- <= 0;
}

static void arm(bool on) {
    if (!on) unlink(in_scratch("armed"));
    FILE *f = on ? fopen(in_scratch("armed"), "w") : NULL;
    assert_true(!on || f);
    if (f) fclose(f);
}

/* Its compiler hangs as long as the file `armed` is there. */
static kiln_ctx *open_interruptible(kiln_mode mode, bool armed) {
    char text[400];
    host.impatient = pthread_self();
    atomic_store(&host.others, 0);
    be_patient();
    arm(armed);
    snprintf(text, sizeof text, "while [ -e %s/armed ]; do sleep 0.05; done", scratch);
    return open_with(
        (kiln_config){.mode = mode, .cc = compiler(text), .interrupted = ask, .interrupted_user = &host});
}

/* No process of the last compiler's group is left; a killed one may take a moment to go. */
static void check_killed(void) {
    int group = 0;
    FILE *f = fopen(in_scratch("runs"), "r");
    assert_non_null(f);
    while (fscanf(f, "%d", &group) == 1) continue;
    fclose(f);
    assert_true(group > 1);
    for (int k = 0; kill(-group, 0) == 0 || errno != ESRCH; k++) {
        assert_true(k < 12000);
        nap(5);
    }
}

static kiln_status call_mul(kiln_ctx *ctx, const char *name, kiln_tensor *a, kiln_tensor **out) {
    return kiln_call(ctx, op_of(ctx, name), ARGS(TEN(a), TEN(a)), out, 1);
}

/* Calls end once a compiler runs in them, and at once if they are called off before. */
static void check_interrupted(kiln_ctx *ctx) {
    static const char *const names[] = {"mul.Tensor", "mul_.Tensor"};
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = a;
    int fds = count_fds();
    for (int k = 0; k < 2; k++) {
        long before = count_runs();
        call_off_in_next_run();
        assert_int_equal(call_mul(ctx, names[k], a, &out), KILN_E_INTERRUPTED);
        assert_error_names("interrupted");
        assert_int_equal(count_runs(), before + 1);
        if (k == 0) check_killed();
        call_off(-1, 0);
        assert_int_equal(call_mul(ctx, names[k], a, &out), KILN_E_INTERRUPTED);
        assert_int_equal(count_runs(), before + 1);
    }
    assert_ptr_equal(out, a);
    HOLDS_I32(a, SIZES(3), 1, 2, -3);
    assert_int_equal(count_fds(), fds);
    kiln_tensor_release(a);
}

/* Nothing was held against anybody, and the class compiles. */
static void check_clean(kiln_ctx *ctx) {
    assert_string_equal(mul(ctx, false), "compiled");
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compile_failures + s.compiler_errors + s.compiler_timeouts + s.no_compiler, 0);
    kiln_close(ctx);
    assert_no_children();
}

/* -- tests ---------------------------------------------------------------------------------------------- */

static void a_caller_in_a_compile(void **state) {
    (void)state;
    kiln_ctx *ctx = open_interruptible(KILN_MODE_SYNC, false);
    check_add(ctx); /* finds the compiler */
    arm(true);
    check_interrupted(ctx);
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    kiln_kernel *kernel = NULL;
    char *text = NULL;
    call_off_in_next_run();
    assert_int_equal(kiln_prepare(ctx, op_of(ctx, "mul.Tensor"), ARGS(TEN(a), TEN(a)), &kernel),
                     KILN_E_INTERRUPTED);
    call_off_in_next_run();
    assert_int_equal(kiln_explain(ctx, op_of(ctx, "neg"), ARGS(TEN(a)), "asm", &text), KILN_E_INTERRUPTED);
    assert_true(!kernel && !text);
    kiln_tensor_release(a);
    arm(false);
    be_patient();
    check_clean(ctx);
}

/* What was not found for want of time is not said to be missing. */
static void a_caller_in_the_search_for_a_compiler(void **state) {
    (void)state;
    char *text = NULL;
    kiln_ctx *ctx = open_interruptible(KILN_MODE_SYNC, true);
    check_interrupted(ctx);
    call_off_in_next_run();
    assert_int_equal(kiln_doctor(ctx, &text), KILN_E_INTERRUPTED);
    assert_null(text);
    arm(false);
    be_patient();
    MUST_OK(kiln_doctor(ctx, &text));
    assert_null(strstr(text, "!compiler: "));
    kiln_text_free(text);
    check_clean(ctx);
}

static void compile_in_thread(worker *w) {
    if (strcmp(mul(w->ctx, false), "compiled") != 0) atomic_fetch_add(w->wrong, 1);
}

/* Another thread compiles the class, or looks for the compiler: it goes on. */
static void check_waiter(bool searching) {
    atomic_int wrong = 0;
    kiln_ctx *ctx = open_interruptible(KILN_MODE_SYNC, searching);
    if (!searching) check_add(ctx);
    arm(true);
    long before = count_runs();
    worker w = {.ctx = ctx, .body = compile_in_thread, .wrong = &wrong};
    assert_int_equal(pthread_create(&w.thread, NULL, run_worker, &w), 0);
    while (count_runs() == before) nap(5);
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = NULL;
    call_off(-1, 2); /* passed by, so that the waits begin */
    assert_int_equal(call_mul(ctx, "mul.Tensor", a, &out), KILN_E_INTERRUPTED);
    call_off(-1, 2);
    if (searching) assert_int_equal(call_mul(ctx, "div.Tensor", a, &out), KILN_E_INTERRUPTED);
    call_off(-1, 2);
    assert_int_equal(kiln_wait_idle(ctx), KILN_E_INTERRUPTED);
    be_patient();
    assert_int_equal(count_runs(), before + 1);
    assert_null(out);
    kiln_tensor_release(a);
    arm(false);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    assert_int_equal(atomic_load(&wrong), 0);
    assert_true(atomic_load(&host.others) > 0);
    MUST_OK(kiln_wait_idle(ctx));
    check_clean(ctx);
}

static void a_caller_that_waits_for_another(void **state) {
    (void)state;
    check_waiter(false);
    check_waiter(true);
}

/* Nobody waits for Kiln's own thread, so it is not asked and its compile goes on. */
static void the_background(void **state) {
    (void)state;
    kiln_ctx *ctx = open_interruptible(KILN_MODE_TIERED, true);
    assert_string_equal(mul(ctx, true), "interp");
    while (count_runs() == 0) nap(5);
    call_off(-1, 2);
    assert_int_equal(kiln_wait_idle(ctx), KILN_E_INTERRUPTED);
    assert_int_equal(count_runs(), 1);
    be_patient();
    arm(false);
    MUST_OK(kiln_wait_idle(ctx));
    assert_int_equal(atomic_load(&host.others), 0);
    check_clean(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_caller_in_a_compile),
        cmocka_unit_test(a_caller_in_the_search_for_a_compiler),
        cmocka_unit_test(a_caller_that_waits_for_another),
        cmocka_unit_test(the_background),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
