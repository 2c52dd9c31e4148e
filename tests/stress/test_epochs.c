/* test_epochs.c - publishing and evicting under calls, as the default mode does it: kernels come from the background
 * while calls interpret, few classes may stay, and now and then nobody is inside.
 *
 * Calls are long, so that what is dropped too early is in use.  AddressSanitizer sees that at once; without it freed memory is
 * overwritten (M_PERTURB), and the call crashes or is wrong.  tests/unit/test_epoch_model.c proves the rules; this
 * shows that the library keeps them. */
#include <malloc.h>

#include "tier_cases.h"

enum { ROWS = 64, CLASSES = 6, KEPT = 3, ELEMENTS = 300000, CALLS = 1000, FAILURES = SANITIZED ? 2000 : 10000 };

/* Rows that are long to interpret, each another class: a * a + ... + a + k. */
static void load_rows(kiln_ctx *ctx) {
    char rows[ROWS * 200];
    size_t n = 0;
    for (int k = 0; k < ROWS; k++)
        n += (size_t)snprintf(rows + n, sizeof rows - n,
                              "map test::e%d(Tensor a) -> Tensor : promote(a) takes float = "
                              "(((a * a + a) * a + a) * a + a) * a + %d\n",
                              k, k);
    MUST_OK(kiln_ops_load(ctx, rows, n));
}

static kiln_tensor *ones;
static pthread_barrier_t all_idle;

static void make_ones(int64_t nelem) {
    ones = new_tensor(KILN_F32, 1, &nelem, NULL);
    for (int64_t k = 0; k < nelem; k++) ((float *)kiln_tensor_data(ones))[k] = 1;
}

/* One call of class `which` on ones: 4 + k in every element. */
static bool call_class(kiln_ctx *ctx, int which, bool hot) {
    char name[20];
    const kiln_op *op = NULL;
    kiln_tensor *out = NULL;
    snprintf(name, sizeof name, "test::e%d", which);
    if (kiln_op_find(ctx, name, &op) != KILN_OK) return false;
    if (hot) make_hot(ctx, op, ARGS(TEN(ones)));
    if (kiln_call(ctx, op, ARGS(TEN(ones)), &out, 1) != KILN_OK) return false;
    const float *got = kiln_tensor_data(out);
    int64_t n = kiln_tensor_nelem(out);
    bool right = got[0] == 4 + which && got[n / 2] == 4 + which && got[n - 1] == 4 + which;
    kiln_tensor_release(out);
    return right;
}

static int nsteps;

/* Calls one class after the other until it has a kernel, while other threads evict; before each all are idle. */
static void call_through_tiers(worker *w) {
    for (int k = 0; k < nsteps; k++) {
        int which = (k + w->id) % CLASSES;
        pthread_barrier_wait(&all_idle);
        if (w->id == 0) kiln_wait_idle(w->ctx);
        pthread_barrier_wait(&all_idle);
        for (int n = 0; n < CALLS; n++) {
            if (!call_class(w->ctx, which, n % 16 == 0)) atomic_fetch_add(w->wrong, 1);
            if (strcmp(kiln_last_tier(), "compiled") == 0) break;
            nap(1); /* the compiler has a low priority */
        }
    }
}

static void check_threads(int nthreads, int steps) {
    kiln_ctx *ctx = open_with((kiln_config){.max_kernels = KEPT});
    load_rows(ctx);
    nsteps = steps;
    make_ones(ELEMENTS);
    assert_int_equal(pthread_barrier_init(&all_idle, NULL, (unsigned)nthreads), 0);
    run_all(nthreads, ctx, call_through_tiers);
    kiln_wait_idle(ctx);
    kiln_stats s = stats_of(ctx);
    print_message("%d compiles, %d evictions, %d calls\n", (int)s.compiles, (int)s.evictions, (int)s.calls);
    assert_true(s.compiles >= (uint64_t)steps && s.evictions > 0 && s.interp_calls > (uint64_t)steps);
    assert_int_equal(s.compile_failures, 0);
    pthread_barrier_destroy(&all_idle);
    kiln_tensor_release(ones);
    kiln_close(ctx);
    assert_no_children();
}

static void one_thread(void **state) {
    (void)state;
    check_threads(1, 8);
}

static void two_threads(void **state) {
    (void)state;
    check_threads(2, 6);
}

static void four_threads(void **state) {
    (void)state;
    check_threads(4, 4);
}

/* Builds that fail at once, of classes that are evicted as soon as their build has ended. */
static void fail_to_build(worker *w) {
    for (int k = 0; k < FAILURES; k++)
        if (!call_class(w->ctx, (k * 5 + w->id * 16) % ROWS, k % 8 == 0)) atomic_fetch_add(w->wrong, 1);
}

static void failed_builds_of_evicted_classes(void **state) {
    (void)state;
    kiln_ctx *ctx = open_with((kiln_config){.max_kernels = 1, .cc = "/nonexistent/cc"});
    load_rows(ctx);
    make_ones(1);
    run_all(4, ctx, fail_to_build);
    kiln_wait_idle(ctx);
    kiln_stats s = stats_of(ctx);
    print_message("%d failures, %d evictions, %d calls\n", (int)s.compile_failures, (int)s.evictions,
                  (int)s.calls);
    assert_true(s.compile_failures > 100 && s.evictions > 100);
    kiln_tensor_release(ones);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread),
        cmocka_unit_test(two_threads),
        cmocka_unit_test(four_threads),
        cmocka_unit_test(failed_builds_of_evicted_classes),
    };
    mallopt(M_PERTURB, 165);
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
