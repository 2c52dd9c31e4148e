/* test_batches.c - classes that are built together: one run of the compiler for several, and what happens to the others when one of them
 * is bad, when the context closes or forks meanwhile, and when a caller wants one of them at once.
 *
 * The first build is held up by a compiler that waits for a file, so that the classes after it wait in the queue together. */
#include "target/cpu/cpu.h"
#include "tier_cases.h"

enum { ROWS = 12 };

static const kiln_op *row(kiln_ctx *ctx, int k) {
    char name[24];
    snprintf(name, sizeof name, "test::b%d", k);
    return op_of(ctx, name);
}

static void load_rows(kiln_ctx *ctx) {
    char rows[ROWS * 80];
    size_t n = 0;
    for (int k = 0; k < ROWS; k++)
        n += (size_t)snprintf(rows + n, sizeof rows - n,
                              "map test::b%d(Tensor a) -> Tensor : promote(a) takes int = a * a + %d\n", k,
                              k);
    MUST_OK(kiln_ops_load(ctx, rows, n));
}

/* Calls row k of 3 elements, which must be right; returns the tier.  hot: the class asks for a build now. */
static const char *call_row(kiln_ctx *ctx, int k, bool hot) {
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = NULL;
    if (hot) make_hot(ctx, row(ctx, k), ARGS(TEN(a)));
    MUST_OK(kiln_call(ctx, row(ctx, k), ARGS(TEN(a)), &out, 1));
    HOLDS_I32(out, SIZES(3), 1 + k, 4 + k, 9 + k);
    drop_args(ARGS(TEN(a), TEN(out)));
    return kiln_last_tier();
}

/* A compiler that notes each run, waits while the file `held` is there, and then does `text` with the source in $unit. */
static const char *held_compiler(const char *text) {
    char all[1000];
    snprintf(
        all, sizeof all,
        "unit=%s/unit.$$\ncat > $unit\nwhile [ -e %s/held ]; do sleep 0.01; done\n%s\ngcc \"$@\" < $unit; rc=$?\n"
        "rm -f $unit\nexit $rc",
        scratch, scratch, text);
    return compiler(all);
}

static void hold(bool on) {
    if (!on) {
        unlink(in_scratch("held"));
        return;
    }
    FILE *f = fopen(in_scratch("held"), "w");
    assert_non_null(f);
    fclose(f);
}

/* A context whose compiler was found, and is held up in the build of row 0 while rows 1 to n wait. */
static kiln_ctx *open_held(const char *text, int n) {
    kiln_ctx *ctx = open_tiered(held_compiler(text));
    kiln_toolchain *tc = NULL;
    load_rows(ctx);
    MUST_OK(kiln_cpu_toolchain(kiln_ctx_host_target(ctx), &tc));
    assert_int_equal(kiln_toolchain_route(tc), KILN_CC_DRIVER);
    unlink(in_scratch("runs"));
    hold(true);
    for (int k = 0; k <= n; k++) {
        assert_string_equal(call_row(ctx, k, true), "interp");
        while (k == 0 && count_runs() == 0) usleep(1000);
    }
    return ctx;
}

static void assert_compiled(kiln_ctx *ctx, int n) {
    for (int k = 0; k <= n; k++) assert_string_equal(call_row(ctx, k, false), "compiled");
}

static void waiting_classes_share_a_run(void **state) {
    (void)state;
    kiln_ctx *ctx = open_held("", 5);
    hold(false);
    kiln_wait_idle(ctx);
    assert_int_equal(count_runs(), 2);
    assert_compiled(ctx, 5);
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compiles, 6);
    assert_int_equal(s.kernels, 6);
    assert_int_equal(s.compile_failures, 0);
    assert_true(s.bytes_cached > 0);
    kiln_close(ctx);
    assert_no_children();
}

/* Kernels with vectors of other lengths cannot share a unit: they are built in another run. */
static void other_lanes_are_built_apart(void **state) {
    (void)state;
    kiln_ctx *ctx = open_held("", 2);
    for (int k = 3; k < 6; k++) {
        kiln_tensor *a = new_tensor(KILN_I64, SIZES(4), NULL), *out = NULL;
        memset(kiln_tensor_data(a), 0, 32);
        make_hot(ctx, row(ctx, k), ARGS(TEN(a)));
        MUST_OK(kiln_call(ctx, row(ctx, k), ARGS(TEN(a)), &out, 1));
        drop_args(ARGS(TEN(a), TEN(out)));
    }
    hold(false);
    kiln_wait_idle(ctx);
    assert_int_equal(count_runs(), 3);
    assert_compiled(ctx, 2);
    assert_int_equal(stats_of(ctx).compiles, 6);
    kiln_close(ctx);
}

/* Row 3 does not compile: it alone fails, with a log that names it, and is counted once. */
static void a_bad_kernel_fails_alone(void **state) {
    (void)state;
    kiln_ctx *ctx = open_held("if grep -q test::b3 $unit; then echo 'error: no'; rm -f $unit; exit 1; fi", 5);
    hold(false);
    kiln_wait_idle(ctx);
    assert_int_equal(count_runs(), 1 + 1 + 5); /* the first, the batch, and each of the batch by itself */
    for (int k = 0; k <= 5; k++) assert_string_equal(call_row(ctx, k, false), k == 3 ? "interp" : "compiled");
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compiles, 5);
    assert_int_equal(s.compile_failures, 1);
    assert_int_equal(s.compiler_errors, 1);
    char *doctor = NULL;
    MUST_OK(kiln_doctor(ctx, &doctor));
    assert_non_null(strstr(doctor, "!failed compiles: 1: 1 by the compiler"));
    assert_non_null(strstr(doctor, "test::b3"));
    kiln_text_free(doctor);
    kiln_close(ctx);
    assert_no_children();
}

/* Row 3 compiles to something else: the self-test refuses it, and keeps the kernels that were built with it. */
static void a_wrong_kernel_is_refused_alone(void **state) {
    (void)state;
    kiln_ctx *ctx = open_held("sed -i 's/splat_i32(3L)/splat_i32(4L)/' $unit", 5);
    hold(false);
    kiln_wait_idle(ctx);
    for (int k = 0; k <= 5; k++) assert_string_equal(call_row(ctx, k, false), k == 3 ? "interp" : "compiled");
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compiles, 5);
    assert_int_equal(s.selftest_failures, 1);
    assert_int_equal(s.compile_failures, 1);
    assert_int_equal(count_runs(), 3); /* row 3 once more, by itself */
    kiln_close(ctx);
}

/* A compiler that builds one kernel at a time and fails for more builds all in the end. */
static void a_compiler_that_takes_one_at_a_time(void **state) {
    (void)state;
    kiln_ctx *ctx = open_held("if grep -q kiln_kernel_1 $unit; then rm -f $unit; exit 1; fi", ROWS - 1);
    hold(false);
    kiln_wait_idle(ctx);
    assert_compiled(ctx, ROWS - 1);
    assert_int_equal(stats_of(ctx).compile_failures, 0);
    assert_true(ctx->builds.batch < KILN_BATCH_MAX);
    kiln_close(ctx);
}

/* Sources that are kept are those that were compiled: each class by itself. */
static void dumped_sources_are_of_one_kernel(void **state) {
    (void)state;
    char dir[420];
    snprintf(dir, sizeof dir, "%s", in_scratch("dumped"));
    kiln_ctx *ctx = open_with(
        (kiln_config){.mode = KILN_MODE_TIERED, .cc = held_compiler(""), .dump_dir = dir});
    load_rows(ctx);
    kiln_toolchain *tc = NULL;
    MUST_OK(kiln_cpu_toolchain(kiln_ctx_host_target(ctx), &tc));
    MUST_OK(kiln_toolchain_find(tc));
    unlink(in_scratch("runs"));
    hold(true);
    for (int k = 0; k < 4; k++) (void)call_row(ctx, k, true);
    hold(false);
    kiln_wait_idle(ctx);
    assert_int_equal(count_runs(), 4);
    assert_int_equal(count_entries(dir, ".c"), 4);
    assert_compiled(ctx, 3);
    kiln_close(ctx);
}

static void closing_while_a_batch_is_built(void **state) {
    (void)state;
    kiln_ctx *ctx = open_held("", 5);
    unlink(in_scratch("runs"));
    hold(false);
    while (count_runs() == 0) usleep(100); /* of the batch */
    kiln_close(ctx);
    assert_no_children();
    ctx = open_held("", 5); /* and before it is */
    kiln_close(ctx);
    hold(false);
    assert_no_children();
}

/* Kernels stay when the mode changes; what waits in the background is not built in a mode that builds nothing there. */
static void another_mode(void **state) {
    (void)state;
    kiln_ctx *ctx = open_held("", 5);
    MUST_OK(kiln_mode_set(ctx, KILN_MODE_FROZEN));
    hold(false);
    kiln_wait_idle(ctx);
    assert_int_equal(count_runs(), 1);
    for (int k = 0; k <= 5; k++) assert_string_equal(call_row(ctx, k, true), k == 0 ? "compiled" : "interp");
    kiln_wait_idle(ctx);
    assert_int_equal(count_runs(), 1);
    MUST_OK(kiln_mode_set(ctx, KILN_MODE_SYNC));
    assert_string_equal(call_row(ctx, 1, false), "compiled");
    MUST_OK(kiln_mode_set(ctx, KILN_MODE_INTERP));
    assert_string_equal(call_row(ctx, 1, false), "compiled"); /* a kernel that exists is used */
    assert_string_equal(call_row(ctx, 2, true), "interp");
    MUST_OK(kiln_mode_set(ctx, KILN_MODE_TIERED));
    assert_string_equal(call_row(ctx, 2, true), "interp");
    kiln_wait_idle(ctx);
    assert_string_equal(call_row(ctx, 2, false), "compiled");
    assert_int_equal(kiln_mode_set(ctx, (kiln_mode)9), KILN_E_ARG);
    assert_error_names("unknown mode 9");
    kiln_close(ctx);
}

/* Without a handle: of a composition, the calls that it is made of. */
static void preparing_without_a_handle(void **state) {
    (void)state;
    static const char rows[] =
        "map test::half(Tensor a) -> Tensor : to_float = a / 2\n"
        "compose test::quarter(Tensor a) -> Tensor : takes real\n     call h = test::half(a)\n     call test::half(h)\n";
    kiln_ctx *ctx = open_tiered(NULL);
    if (kiln_ops_load(ctx, rows, sizeof rows - 1) != KILN_OK) fail_msg("%s", kiln_last_error());
    kiln_tensor *a = I32(SIZES(2), 4, 8), *out = NULL;
    MUST_OK(kiln_prepare(ctx, op_of(ctx, "test::quarter"), ARGS(TEN(a)), NULL));
    assert_int_equal(stats_of(ctx).compiles, 2); /* of integers, and of floats */
    MUST_OK(kiln_call(ctx, op_of(ctx, "test::quarter"), ARGS(TEN(a)), &out, 1));
    HOLDS_F32(out, SIZES(2), 1, 2);
    assert_int_equal(stats_of(ctx).interp_calls, 0);
    drop_args(ARGS(TEN(a), TEN(out)));
    kiln_close(ctx);
}

static bool child_builds_all(kiln_ctx *ctx) {
    hold(false);
    for (int k = 0; k <= 4; k++) (void)call_row(ctx, k, true);
    kiln_wait_idle(ctx);
    for (int k = 0; k <= 4; k++)
        if (strcmp(call_row(ctx, k, false), "compiled") != 0) return false;
    return true;
}

static void forking_while_classes_wait(void **state) {
    (void)state;
    kiln_ctx *ctx = open_held("", 4);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(child_builds_all(ctx) ? 0 : 1);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    kiln_wait_idle(ctx);
    assert_compiled(ctx, 4);
    assert_int_equal(stats_of(ctx).compiles, 5);
    kiln_close(ctx);
}

/* A caller who prepares a class that waits builds it itself; one that is being built is waited for. */
static void a_caller_prepares_what_waits(void **state) {
    (void)state;
    kiln_ctx *ctx = open_held("", 5);
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    kiln_kernel *kernel[2] = {NULL, NULL};
    hold(false);
    MUST_OK(kiln_prepare(ctx, row(ctx, 5), ARGS(TEN(a)), &kernel[0]));
    MUST_OK(kiln_prepare(ctx, row(ctx, 1), ARGS(TEN(a)), &kernel[1]));
    kiln_wait_idle(ctx);
    assert_compiled(ctx, 5);
    assert_int_equal(stats_of(ctx).compiles, 6);
    for (int k = 0; k < 2; k++) kiln_kernel_release(kernel[k]);
    kiln_tensor_release(a);
    kiln_close(ctx);
}

/* Threads heat all rows from cold at once; each class is built once. */
static void heat_and_check(worker *w) {
    for (int n = 0; n < 400; n++) {
        int k = (n + w->id) % ROWS;
        kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = NULL;
        if (kiln_call(w->ctx, row(w->ctx, k), ARGS(TEN(a)), &out, 1) != KILN_OK ||
            ((const int32_t *)kiln_tensor_data(out))[2] != 9 + k)
            atomic_fetch_add(w->wrong, 1);
        kiln_tensor_release(out);
        kiln_tensor_release(a);
    }
}

static void threads_heat_all_at_once(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(NULL);
    load_rows(ctx);
    for (int k = 0; k < ROWS; k++) (void)call_row(ctx, k, false);
    run_all(8, ctx, heat_and_check);
    for (int k = 0; k < ROWS; k++) (void)call_row(ctx, k, true);
    kiln_wait_idle(ctx);
    assert_compiled(ctx, ROWS - 1);
    assert_int_equal(stats_of(ctx).compiles, ROWS);
    assert_int_equal(stats_of(ctx).compile_failures, 0);
    kiln_close(ctx);
}

/* The price of a build follows what builds take, and a batch's is shared out. */
static void the_price_is_measured(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(NULL);
    load_rows(ctx);
    uint64_t before = atomic_load(&kiln_ctx_host_target(ctx)->price[0]),
             heavy = atomic_load(&kiln_ctx_host_target(ctx)->price[1]);
    (void)call_row(ctx, 0, true);
    kiln_wait_idle(ctx);
    assert_true(atomic_load(&kiln_ctx_host_target(ctx)->price[0]) != before);
    assert_true(atomic_load(&kiln_ctx_host_target(ctx)->price[1]) ==
                heavy); /* nothing with loops inside was built */
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_classes_share_a_run),
        cmocka_unit_test(other_lanes_are_built_apart),
        cmocka_unit_test(a_bad_kernel_fails_alone),
        cmocka_unit_test(a_wrong_kernel_is_refused_alone),
        cmocka_unit_test(a_compiler_that_takes_one_at_a_time),
        cmocka_unit_test(dumped_sources_are_of_one_kernel),
        cmocka_unit_test(closing_while_a_batch_is_built),
        cmocka_unit_test(forking_while_classes_wait),
        cmocka_unit_test(another_mode),
        cmocka_unit_test(preparing_without_a_handle),
        cmocka_unit_test(a_caller_prepares_what_waits),
        cmocka_unit_test(threads_heat_all_at_once),
        cmocka_unit_test(the_price_is_measured),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
