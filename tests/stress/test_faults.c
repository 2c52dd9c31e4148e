/* test_faults.c - what goes wrong around a call: memory runs out at every single allocation, compilers are
 * missing, fail, lie or hang, folders cannot be written.  Each costs a status or speed, never a wrong result,
 * a leak, a changed tensor or a context that is of no use afterwards. */
#include <signal.h>
#include <sys/resource.h>

#include "api/ctx.h"
#include "call_cases.h"
#include "target/cpu/cpu.h"

enum { MANY = 1 << 20 }; /* more allocations than anything here makes */

/* -- memory ------------------------------------------------------------------------------------------- */

/* Whether `step`, made with the n-th and all later allocations failing, ran out of memory.  Any other failure
 * fails the test. */
static bool runs_out(kiln_status (*step)(void *), void *user, long n) {
    kiln_trim(); /* results are to be allocated, not recycled */
    kiln_alloc_fail_after(n);
    kiln_status st = step(user);
    (void)kiln_alloc_fail_after(0);
    if (st != KILN_OK && st != KILN_E_NOMEM)
        fail_msg("allocation %ld: %s: %s", n, kiln_status_name(st), kiln_last_error());
    if (st != KILN_OK) assert_true(kiln_last_error()[0] != 0);
    return st != KILN_OK;
}

static kiln_status step_open(void *user) {
    kiln_ctx *ctx = (kiln_ctx *)scratch;
    kiln_status st = kiln_open(user, &ctx);
    if (st == KILN_OK)
        kiln_close(ctx);
    else
        assert_ptr_equal(ctx, scratch);
    return st;
}

static void opening_without_memory(void **state) {
    (void)state;
    kiln_config c = {.size = sizeof c, .cc = "gcc", .cache_dir = scratch, .dump_dir = scratch};
    long n = 1;
    while (runs_out(step_open, &c, n)) n++;
    assert_true(n > 3);
}

typedef struct one_search {
    kiln_ctx *ctx;
    const char *name;
} one_search;

static kiln_status step_find(void *user) {
    const one_search *s = user;
    const kiln_op *op = NULL;
    kiln_status st = kiln_op_find(s->ctx, s->name, &op);
    if (st == KILN_OK) assert_string_equal(kiln_op_name(op), s->name);
    return st;
}

/* The rows of these are parsed here for the first time in this process. */
static void finding_without_memory(void **state) {
    (void)state;
    static const char *const names[] = {"aten::div_.Tensor_mode", "aten::hypot", "aten::clamp.Tensor_out",
                                        "aten::where.self", "aten::special_i0e"};
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        one_search search = {ctx, names[k]};
        long n = 1;
        while (runs_out(step_find, &search, n)) n++;
        assert_true(n > 1);
    }
    kiln_close(ctx);
}

typedef struct one_call {
    kiln_ctx *ctx;
    const kiln_op *op;
    const kiln_value *args;
    size_t nargs;
    kiln_tensor *outs[2];
} one_call;

static kiln_status step_call(void *user) {
    one_call *c = user;
    c->outs[0] = c->outs[1] = NULL;
    kiln_status st = kiln_call(c->ctx, c->op, c->args, c->nargs, c->outs, 2);
    if (st != KILN_OK) assert_true(!c->outs[0] && !c->outs[1]);
    return st;
}

static void drop_outs(one_call *c) {
    kiln_tensor_release(c->outs[0]);
    kiln_tensor_release(c->outs[1]);
}

/* A new context for each n, since what succeeded before stays cached. */
static void first_call_without_memory(kiln_mode mode, const char *tier, long at_least) {
    kiln_tensor *a = F32(SIZES(2), 1, 2);
    bool out = true;
    long n = 1;
    for (; out; n++) {
        kiln_ctx *ctx = open_mode(mode);
        one_call call = {ctx, op_of(ctx, "add.Tensor"), ARGS(TEN(a), TEN(a)), {0}};
        out = runs_out(step_call, &call, n);
        if (!out) HOLDS_F32(call.outs[0], SIZES(2), 2, 4);
        drop_outs(&call);
        check_add(ctx);
        if (strcmp(kiln_last_tier(), tier) != 0)
            fail_msg("after allocation %ld failed the tier is %s", n, kiln_last_tier());
        HOLDS_F32(a, SIZES(2), 1, 2);
        kiln_close(ctx);
    }
    assert_true(n > at_least);
    kiln_tensor_release(a);
}

static void first_calls_without_memory(void **state) {
    (void)state;
    first_call_without_memory(KILN_MODE_INTERP, "interp", 5);
    first_call_without_memory(KILN_MODE_SYNC, "compiled",
                              30); /* a compile that lacked memory is tried again */
    assert_no_children();
}

/* A hit allocates its results and nothing else. */
static void hits_without_memory(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(2), 1, 2);
    for (int mode = KILN_MODE_SYNC; mode <= KILN_MODE_INTERP; mode++) {
        kiln_ctx *ctx = open_mode((kiln_mode)mode);
        one_call call = {ctx, op_of(ctx, "add.Tensor"), ARGS(TEN(a), TEN(a)), {0}},
                 two = {ctx, op_of(ctx, "frexp.Tensor"), ARGS(TEN(a)), {0}};
        one_call inplace = {ctx, op_of(ctx, "add_.Tensor"), ARGS(TEN(a), TEN(a)), {0}};
        assert_false(runs_out(step_call, &call, MANY));
        drop_outs(&call);
        assert_false(runs_out(step_call, &two, MANY));
        drop_outs(&two);
        assert_true(runs_out(step_call, &call, 1));
        assert_false(runs_out(step_call, &call, 2));
        drop_outs(&call);
        assert_true(runs_out(step_call, &two, 2));
        assert_false(runs_out(step_call, &two, 3));
        drop_outs(&two);
        assert_false(runs_out(step_call, &inplace, 1));
        drop_outs(&inplace);
        kiln_close(ctx);
    }
    kiln_tensor_release(a);
}

/* Two outputs to be resized: both or none. */
static void resizes_without_memory(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    kiln_tensor *x = new_tensor(KILN_F32, SIZES(1000), NULL);
    memset(kiln_tensor_data(x), 0, 4000);
    bool out = true;
    for (long n = 1; out; n++) {
        kiln_tensor *m = F32(SIZES(1), 5), *e = I32(SIZES(2), 6, 7);
        one_call call = {ctx,
                         op_of(ctx, "frexp.Tensor_out"),
                         ARGS(TEN(x), NAMED("mantissa", TEN(m)), NAMED("exponent", TEN(e))),
                         {0}};
        out = runs_out(step_call, &call, n);
        if (out) {
            HOLDS_F32(m, SIZES(1), 5);
            HOLDS_I32(e, SIZES(2), 6, 7);
        } else {
            assert_shape(m, KILN_F32, SIZES(1000));
            assert_shape(e, KILN_I32, SIZES(1000));
        }
        drop_outs(&call);
        drop_args(ARGS(TEN(m), TEN(e)));
    }
    kiln_close(ctx);
    kiln_tensor_release(x);
}

static kiln_status step_load(void *user) {
    static const char row[] = "map test::twice(Tensor a) -> Tensor : promote(a) = a + a\n";
    return kiln_ops_load(user, row, sizeof row - 1);
}

static void loading_rows_without_memory(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    size_t count = kiln_op_count(ctx);
    long n = 1;
    for (; runs_out(step_load, ctx, n); n++) assert_int_equal(kiln_op_count(ctx), count);
    assert_true(n > 5);
    assert_int_equal(kiln_op_count(ctx), count + 1);
    check_add(ctx);
    kiln_close(ctx);
}

typedef struct one_text {
    kiln_ctx *ctx;
    const char *stage; /* NULL: the doctor */
    kiln_tensor *x;
    const kiln_op *op;
} one_text;

static kiln_status step_text(void *user) {
    one_text *t = user;
    char *text = scratch;
    const kiln_value args[] = {TEN(t->x)};
    kiln_status st = t->stage ? kiln_explain(t->ctx, t->op, args, 1, t->stage, &text)
                              : kiln_doctor(t->ctx, &text);
    if (st == KILN_OK)
        kiln_text_free(text);
    else
        assert_ptr_equal(text, scratch);
    return st;
}

static void texts_without_memory(void **state) {
    (void)state;
    static const char *const stages[] = {"schema", "bind", "plan", "key", "ir", "source", "asm", NULL};
    kiln_tensor *x = F32(SIZES(2), 1, 2);
    for (size_t k = 0; k < sizeof stages / sizeof *stages; k++) {
        kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
        one_text t = {ctx, stages[k], x, op_of(ctx, "neg")};
        for (long n = 1; runs_out(step_text, &t, n); n++) assert_true(n < MANY);
        check_add(ctx);
        kiln_close(ctx);
    }
    kiln_tensor_release(x);
}

static kiln_status step_prepare(void *user) {
    one_call *c = user;
    kiln_kernel *k = (kiln_kernel *)scratch;
    kiln_status st = kiln_prepare(c->ctx, c->op, c->args, c->nargs, &k);
    if (st == KILN_OK)
        kiln_kernel_release(k);
    else
        assert_ptr_equal(k, scratch);
    return st;
}

static void preparing_without_memory(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    kiln_tensor *a = F32(SIZES(2), 1, 2);
    one_call call = {ctx, op_of(ctx, "add.Tensor"), ARGS(TEN(a), TEN(a)), {0}};
    long n = 1;
    while (runs_out(step_prepare, &call, n)) n++;
    assert_true(n > 20);
    assert_int_equal(stats_of(ctx).compiles, 1);
    kiln_close(ctx);
    kiln_tensor_release(a);
}

/* -- compilers ---------------------------------------------------------------------------------------- */

/* A compiler that is good until the file `armed` exists and then does `text`; runs are lines of `runs`. */
static const char *turncoat(const char *text) {
    char all[1200];
    unlink(in_scratch("armed"));
    snprintf(all, sizeof all,
             DRIVER_ONLY "echo run >> %s/runs\n[ -e %s/armed ] || exec gcc \"$@\"\nfor last; do :; done\n%s",
             scratch, scratch, text);
    return script("turncoat", all);
}

static void arm(bool on) {
    if (!on) unlink(in_scratch("armed"));
    FILE *f = on ? fopen(in_scratch("armed"), "w") : NULL;
    assert_true(!on || f);
    if (f) fclose(f);
}

/* mul.Tensor of two i32 vectors, right whatever tier. */
static void check_mul(kiln_ctx *ctx, const char *tier) {
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = call1(ctx, "mul.Tensor", ARGS(TEN(a), TEN(a)));
    HOLDS_I32(out, SIZES(3), 1, 4, 9);
    assert_string_equal(kiln_last_tier(), tier);
    drop_args(ARGS(TEN(a), TEN(out)));
}

static void check_sub(kiln_ctx *ctx, const char *tier) {
    kiln_tensor *a = I64(SIZES(2), 1, INT64_MIN), *b = I64(SIZES(2), 3, 1),
                *out = call1(ctx, "sub.Tensor", ARGS(TEN(a), TEN(b)));
    HOLDS_I64(out, SIZES(2), -2, INT64_MAX);
    assert_string_equal(kiln_last_tier(), tier);
    drop_args(ARGS(TEN(a), TEN(b), TEN(out)));
}

/* Good for one class, broken for the next, good again: only the class in the middle is interpreted. */
static void check_turncoat(const char *text, int timeout_ms) {
    int fds = count_fds();
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .cc = turncoat(text)});
    check_add(ctx);
    assert_string_equal(kiln_last_tier(), "compiled");
    arm(true);
    kiln_toolchain *tc;
    MUST_OK(kiln_cpu_toolchain(kiln_ctx_host_target(ctx), &tc));
    if (timeout_ms) kiln_toolchain_set_timeout_ms(tc, timeout_ms);
    check_mul(ctx, "interp");
    kiln_toolchain_set_timeout_ms(tc, 30000);
    arm(false);
    long runs = count_runs();
    check_mul(ctx, "interp"); /* not tried again */
    assert_int_equal(count_runs(), runs);
    check_sub(ctx, "compiled");
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compile_failures, 1);
    assert_int_equal(s.compiles, 2);
    assert_int_equal(s.kernels, 2);
    assert_int_equal(s.fallbacks, 2);
    assert_int_equal(s.calls, 4);
    assert_int_equal(s.selftest_failures, 0);
    kiln_close(ctx);
    assert_int_equal(count_fds(), fds);
    assert_no_children();
}

static void a_compiler_may_break_in_many_ways(void **state) {
    (void)state;
    check_turncoat("exit 1", 0);
    check_turncoat("echo garbage; exit 0", 0);
    check_turncoat("echo garbage > $last", 0);
    check_turncoat("kill -9 $$", 0);
    check_turncoat("kill -SEGV $$", 0);
    check_turncoat("exec sleep 100", 300);
    check_turncoat("gcc \"$@\" && truncate -s 300 $last", 0);
    check_turncoat("gcc \"$@\" && truncate -s -200 $last", 0);
    check_turncoat("sed s/kiln_kernel/another_name/ | gcc \"$@\"", 0);
    check_turncoat("(cat; echo 'int far_away(void); int near(void) { return far_away(); }') | gcc \"$@\"", 0);
}

static void no_compiler_at_all(void **state) {
    (void)state;
    static const char *const texts[] = {"exit 1", "echo garbage", "kill -9 $$"};
    for (int k = -2; k < 3; k++) {
        int fds = count_fds();
        const char *cc = k == -2 ? "/nonexistent/cc" : k == -1 ? scratch : script("never", texts[k]);
        kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .cc = cc});
        check_mul(ctx, "interp");
        check_sub(ctx, "interp");
        check_mul(ctx, "interp");
        kiln_stats s = stats_of(ctx);
        assert_int_equal(s.compile_failures, 2);
        assert_int_equal(s.compiles + s.kernels, 0);
        assert_int_equal(s.fallbacks, 3);
        kiln_tensor *a = I32(SIZES(1), 1);
        kiln_kernel *kernel = NULL;
        assert_int_equal(kiln_prepare(ctx, op_of(ctx, "mul.Tensor"), ARGS(TEN(a), TEN(a)), &kernel),
                         KILN_E_BUILD);
        assert_int_equal(kiln_prepare(ctx, op_of(ctx, "neg"), ARGS(TEN(a)), &kernel), KILN_E_BUILD);
        assert_null(kernel);
        kiln_tensor_release(a);
        kiln_close(ctx);
        assert_int_equal(count_fds(), fds);
        assert_no_children();
    }
}

/* -- folders ------------------------------------------------------------------------------------------ */

/* Calls in a child with settings of its own; it fails the test by its exit status. */
static void in_child(void (*body)(void)) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        body();
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0) fail_msg("the child ended with %#x", (unsigned)status);
}

static void must(bool right, const char *what, int line) {
    if (right) return;
    fprintf(stderr, "line %d: %s: %s\n", line, what, kiln_last_error());
    _exit(1);
}
#define MUST(x) must((x), #x, __LINE__)

/* neg of a vector is right; the tier is what is expected, if anything is. */
static void neg_in_child(kiln_config config, const char *tier) {
    kiln_ctx *ctx = NULL;
    kiln_tensor *x = NULL, *y = NULL;
    const kiln_op *op = NULL;
    float values[3] = {1, -2, 3};
    config.size = sizeof config;
    config.mode = KILN_MODE_SYNC;
    MUST(kiln_open(&config, &ctx) == KILN_OK);
    MUST(kiln_tensor_wrap(values, KILN_F32, SIZES(3), NULL, NULL, NULL, &x) == KILN_OK);
    MUST(kiln_op_find(ctx, "neg", &op) == KILN_OK);
    for (int k = 0; k < 2; k++) {
        MUST(kiln_call(ctx, op, ARGS(TEN(x)), &y, 1) == KILN_OK);
        MUST(memcmp(kiln_tensor_data(y), (const float[]){-1, 2, -3}, sizeof values) == 0);
        MUST(!tier || strcmp(kiln_last_tier(), tier) == 0);
        kiln_tensor_release(y);
    }
    kiln_tensor_release(x);
    kiln_close(ctx);
}

static void body_no_home(void) {
    unsetenv("HOME");
    neg_in_child((kiln_config){0}, "compiled");
}

static void body_no_folder_anywhere(void) {
    unsetenv("HOME");
    setenv("TMPDIR", "/nonexistent/tmp", 1);
    neg_in_child((kiln_config){0}, NULL);
    neg_in_child((kiln_config){.cache_dir = "/dev/null/cache"}, NULL);
}

static void body_disk_is_full(void) {
    static const rlim_t limits[] = {0, 100, 2000, 20000};
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
        struct rlimit r = {limits[k], RLIM_INFINITY};
        MUST(setrlimit(RLIMIT_FSIZE, &r) == 0);
        neg_in_child((kiln_config){.dump_dir = scratch}, NULL);
        neg_in_child((kiln_config){.cc = "/nonexistent/cc"}, "interp");
        neg_in_child((kiln_config){.cc = "false"}, "interp");
    }
}

static void body_no_descriptors(void) {
    struct rlimit r = {3, 3};
    MUST(setrlimit(RLIMIT_NOFILE, &r) == 0);
    neg_in_child((kiln_config){0}, "interp");
}

static void body_no_processes(void) {
    setenv("PATH", "/nonexistent", 1);
    neg_in_child((kiln_config){0}, "interp");
    unsetenv("PATH");
    neg_in_child((kiln_config){0}, NULL);
}

static void folders_that_cannot_be_used(void **state) {
    (void)state;
    in_child(body_no_home);
    in_child(body_no_folder_anywhere);
    in_child(body_disk_is_full);
    in_child(body_no_descriptors);
    in_child(body_no_processes);
}

/* A folder that Kiln made for itself goes with the context, logs of failures included. */
static void a_temporary_folder_is_removed(void **state) {
    (void)state;
    char tmp[400];
    snprintf(tmp, sizeof tmp, "%s/tmp", scratch);
    assert_int_equal(mkdir(tmp, 0700), 0);
    setenv("TMPDIR", tmp, 1);
    unsetenv("HOME");
    kiln_ctx *ctx = open_with(
        (kiln_config){.mode = KILN_MODE_SYNC, .cc = turncoat("echo error: broken >&2; exit 1")});
    check_add(ctx);
    arm(true);
    check_mul(ctx, "interp");
    arm(false);
    assert_int_equal(count_entries(tmp, ""), 1);
    kiln_close(ctx);
    setenv("HOME", scratch, 1);
    unsetenv("TMPDIR");
    assert_int_equal(count_entries(tmp, ""), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_without_memory),
        cmocka_unit_test(finding_without_memory),
        cmocka_unit_test(first_calls_without_memory),
        cmocka_unit_test(hits_without_memory),
        cmocka_unit_test(resizes_without_memory),
        cmocka_unit_test(loading_rows_without_memory),
        cmocka_unit_test(texts_without_memory),
        cmocka_unit_test(preparing_without_memory),
        cmocka_unit_test(a_compiler_may_break_in_many_ways),
        cmocka_unit_test(no_compiler_at_all),
        cmocka_unit_test(folders_that_cannot_be_used),
        cmocka_unit_test(a_temporary_folder_is_removed),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
