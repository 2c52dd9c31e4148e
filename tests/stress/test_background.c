/* test_background.c - compiles in the background: when they start, and what happens when the compiler hangs, fails,
 * is killed or runs out of memory.  No call waits, every result is right, and nothing is left behind. */
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "target/cpu/cpu.h"
#include "tier_cases.h"

enum { HITS = SANITIZED ? 50000 : 1000000 };

/* -- tiers ---------------------------------------------------------------------------------------------- */

static void a_class_is_interpreted_then_compiled(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered(compiler(""));
    for (int k = 0; k < 20; k++) assert_string_equal(mul(ctx, false), "interp");
    kiln_wait_idle(ctx); /* nothing to wait for */
    assert_int_equal(count_runs(), 0);
    assert_string_equal(mul(ctx, true), "interp"); /* the call that makes it hot does not wait */
    kiln_wait_idle(ctx);
    assert_string_equal(mul(ctx, false), "compiled");
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compiles, 1);
    assert_int_equal(s.kernels, 1);
    assert_int_equal(s.interp_calls, 21);
    assert_int_equal(s.calls, 22);
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
    assert_int_equal(stats_of(ctx).builds_waiting, 0);
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
    assert_int_equal(stats_of(ctx).builds_waiting, 1);
    kiln_tensor_release(a);
    kiln_close(ctx); /* does not wait for it */
    assert_no_children();
}

/* -- the host's descriptors ------------------------------------------------------------------------------- */

/* The other end of a pipe that the host closes during a build sees the pipe's end at once: nobody holds a copy. */
static void nobody_holds_the_hosts_descriptors(void **state) {
    (void)state;
    int ends[2];
    char wait[600];
    snprintf(wait, sizeof wait, "while [ -e %s/held ]; do sleep 0.01; done", scratch);
    kiln_ctx *ctx = open_tiered(compiler(wait));
    (void)mul(ctx, true);
    MUST_OK(kiln_wait_idle(ctx)); /* the compiler is known to work */
    long before = count_runs();
    fclose(fopen(in_scratch("held"), "w"));
    assert_int_equal(pipe(ends), 0);
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    make_hot(ctx, op_of(ctx, "neg"), ARGS(TEN(a)));
    kiln_tensor_release(call1(ctx, "neg", ARGS(TEN(a))));
    for (int k = 0; k < 30000 && count_runs() == before; k++) nap(1);
    close(ends[1]);
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&end, 1, 15000), 1); /* a build gives up after 30 s */
    assert_int_equal(end.revents & POLLHUP, POLLHUP);
    unlink(in_scratch("held"));
    close(ends[0]);
    kiln_tensor_release(a);
    kiln_close(ctx);
    assert_no_children();
}

/* -- the host's signals ----------------------------------------------------------------------------------- */

static atomic_int nsignals;

static void count_child(int signal) {
    (void)signal;
    atomic_fetch_add(&nsignals, 1);
}

/* The host gets no SIGCHLD when a compiler ends, neither from a build nor from the search for a compiler. */
static void compilers_send_the_host_no_signal(void **state) {
    (void)state;
    struct sigaction ours = {.sa_handler = count_child, .sa_flags = SA_RESTART}, before;
    assert_int_equal(sigaction(SIGCHLD, &ours, &before), 0);
    for (int tiered = 0; tiered < 2; tiered++) { /* each context looks for its compiler and builds a kernel */
        kiln_ctx *ctx = tiered ? open_tiered(NULL) : open_with((kiln_config){.mode = KILN_MODE_SYNC});
        (void)mul(ctx, true);
        kiln_wait_idle(ctx);
        assert_int_equal(stats_of(ctx).compiles, 1);
        kiln_close(ctx);
    }
    assert_int_equal(atomic_load(&nsignals), 0);
    int child = fork(); /* the handler does count */
    if (child == 0) _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(atomic_load(&nsignals), 1);
    assert_int_equal(sigaction(SIGCHLD, &before, NULL), 0);
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
    MUST_OK(kiln_cpu_toolchain(kiln_ctx_host_target(ctx), &tc));
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

/* Each failure doubles the heat that the next attempt takes at least: it is the price of a build at first; an attempt that took longer
 * than that (on a busy machine) adds to it. */
static void attempts_grow_rare(void **state) {
    (void)state;
    kiln_ctx *ctx = open_tiered("false");
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    kiln_bound call;
    kiln_plan plan;
    kiln_class *c = NULL;
    uint64_t least = 0;
    MUST_OK(kiln_bind(op_of(ctx, "mul.Tensor"), ARGS(TEN(a), TEN(a)), &call));
    MUST_OK(kiln_infer(&call, &plan));
    for (int k = 1; k < 70; k++) {
        (void)mul(ctx, true);
        kiln_wait_idle(ctx);
        kiln_thread *t = kiln_thread_of(&ctx->epochs);
        kiln_thread_enter(&ctx->epochs, t);
        MUST_OK(kiln_class_of(ctx, &plan, &c));
        uint64_t wait = atomic_load(&c->hot_at) - atomic_load(&c->heat);
        kiln_thread_leave(t);
        if (!least) least = kiln_class_price(c); /* nothing was built, so it does not change */
        if (least < UINT64_MAX / 32) least *= 2;
        assert_true(wait >= least);
    }
    assert_int_equal(stats_of(ctx).compile_failures, 69);
    kiln_tensor_release(a);
    kiln_close(ctx);
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
        make_hot(ctx, op_of(ctx, "mul.Tensor"), ARGS(TEN(a), TEN(a)));
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_class_is_interpreted_then_compiled),
        cmocka_unit_test(large_calls_make_a_class_hot),
        cmocka_unit_test(frozen_compiles_nothing),
        cmocka_unit_test(hits_go_on_while_the_compiler_hangs),
        cmocka_unit_test(nobody_holds_the_hosts_descriptors),
        cmocka_unit_test(compilers_send_the_host_no_signal),
        cmocka_unit_test(failures_are_remembered_and_named),
        cmocka_unit_test(without_a_compiler_nothing_fails),
        cmocka_unit_test(attempts_grow_rare),
        cmocka_unit_test(building_without_memory),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
