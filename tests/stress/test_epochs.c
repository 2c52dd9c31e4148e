/* test_epochs.c - publishing and evicting under calls, as the default mode does it: kernels come from the background while
 * calls interpret, few classes may stay, and now and then nobody is inside.
 *
 * The host's parallel_for is a place in the middle of a call: there the call waits until its kernel is published, or makes
 * other calls until its class is evicted, and goes on with what it has.  AddressSanitizer sees what was dropped too early;
 * without it freed memory is overwritten.  tests/unit/test_epoch_model.c proves the rules; this shows that the library
 * keeps them. */
#include <malloc.h>

#include "tier_cases.h"

enum { CLASSES = 6, KEPT = 3, LARGE = 1 << 20 };

static kiln_ctx *ctx;
static kiln_tensor *small, *large; /* of ones */
static pthread_barrier_t all_outside;
static atomic_int npublished, nevicted; /* under a call that was using it */

/* Rows of which each is another class: 5 + k for an element of 1. */
static void load_rows(void) {
    char rows[CLASSES * 200];
    size_t n = 0;
    for (int k = 0; k < CLASSES; k++)
        n += (size_t)snprintf(rows + n, sizeof rows - n,
                              "map test::e%d(Tensor a) -> Tensor : promote(a) takes float = "
                              "(((a * a + a) * a + a) * a + a) * a + a + %d\n",
                              k, k);
    MUST_OK(kiln_ops_load(ctx, rows, n));
}

static kiln_tensor *new_ones(int64_t n) {
    kiln_tensor *t = new_tensor(KILN_F32, 1, &n, NULL);
    for (int64_t k = 0; k < n; k++) ((float *)kiln_tensor_data(t))[k] = 1;
    return t;
}

/* A call of class `which`, made hot before or not; whether the result is right. */
static bool call_class(int which, kiln_tensor *x, bool hot) {
    char name[20];
    const kiln_op *op = NULL;
    kiln_tensor *out = NULL;
    snprintf(name, sizeof name, "test::e%d", which);
    if (kiln_op_find(ctx, name, &op) != KILN_OK) return false;
    if (hot) make_hot(ctx, op, ARGS(TEN(x)));
    if (kiln_call(ctx, op, ARGS(TEN(x)), &out, 1) != KILN_OK) return false;
    int64_t n = kiln_tensor_nelem(out), wrong = 0;
    for (int64_t k = 0; k < n; k++) wrong += ((const float *)kiln_tensor_data(out))[k] != (float)(5 + which);
    kiln_tensor_release(out);
    return wrong == 0;
}

/* What this thread does in the middle of its next large call: evicts this class, or one of these. */
enum { NOTHING = -1, WAIT_FOR_BUILDS = -2 };
static _Thread_local int evicts = NOTHING;

static void in_the_middle(void *user, int64_t n, void (*body)(void *arg, int64_t k), void *arg) {
    int which = evicts;
    evicts = NOTHING;
    if (which == WAIT_FOR_BUILDS) {
        uint64_t before = stats_of(ctx).compiles;
        kiln_wait_idle(ctx);
        atomic_fetch_add(&npublished, stats_of(ctx).compiles > before);
    }
    if (which >= 0) {
        uint64_t before = stats_of(ctx).evictions;
        for (int k = 1; k < CLASSES; k++)
            if (!call_class((which + k) % CLASSES, small, false)) atomic_fetch_add((atomic_int *)user, 1);
        atomic_fetch_add(&nevicted, stats_of(ctx).evictions > before);
    }
    for (int64_t k = 0; k < n; k++) body(arg, k);
}

static void wait_outside(const worker *w) {
    pthread_barrier_wait(&all_outside);
    if (w->id == 0) kiln_wait_idle(ctx); /* drops what was retired, with nobody inside */
    pthread_barrier_wait(&all_outside);
}

static void use_what_goes(worker *w) {
    for (int k = 0; k < 3; k++) {
        int which = (k + w->id) % CLASSES;
        wait_outside(w);
        bool right = call_class(which, small, true); /* queues a build */
        evicts = WAIT_FOR_BUILDS;
        right = call_class(which, large, false) && right;
        wait_outside(w);
        evicts = which;
        right = call_class(which, large, false) && right;
        evicts = NOTHING;
        if (!right) atomic_fetch_add(w->wrong, 1);
    }
}

static void check_threads(int nthreads) {
    atomic_int wrong = 0;
    ctx = open_with((kiln_config){
        .max_kernels = KEPT, .threads = 2, .parallel_for = in_the_middle, .parallel_user = &wrong});
    load_rows();
    small = new_ones(8);
    large = new_ones(LARGE);
    atomic_store(&npublished, 0);
    atomic_store(&nevicted, 0);
    assert_int_equal(pthread_barrier_init(&all_outside, NULL, (unsigned)nthreads), 0);
    run_all(nthreads, ctx, use_what_goes);
    assert_int_equal(atomic_load(&wrong), 0);
    assert_true(atomic_load(&npublished) > 0);
    assert_true(atomic_load(&nevicted) > 0);
    assert_int_equal(stats_of(ctx).compile_failures, 0);
    pthread_barrier_destroy(&all_outside);
    drop_args(ARGS(TEN(small), TEN(large)));
    kiln_close(ctx);
    assert_no_children();
}

static void by_one_thread(void **state) {
    (void)state;
    check_threads(1);
}

static void by_two_threads(void **state) {
    (void)state;
    check_threads(2);
}

static void by_four_threads(void **state) {
    (void)state;
    check_threads(4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_one_thread),
        cmocka_unit_test(by_two_threads),
        cmocka_unit_test(by_four_threads),
    };
    mallopt(M_PERTURB, 165);
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
