/* test_unpin.c - a class may be evicted and dropped the moment its build lets go of it.
 *
 * api/builders.c is compiled into this program so that right after it unpins a class, another call evicts the class and a
 * scan drops it: what other threads may do then.  AddressSanitizer sees who touches it afterwards. */
#include "tier_cases.h"

static void unpin_and_evict(kiln_cache *c, kiln_entry *e);
#define kiln_cache_unpin unpin_and_evict
#include "api/builders.c"
#undef kiln_cache_unpin

static kiln_ctx *evicting; /* NULL: classes stay */
static int nevicted;

static void unpin_and_evict(kiln_cache *c, kiln_entry *e) {
    kiln_cache_unpin(c, e);
    if (!evicting) return;
    uint64_t before = stats_of(evicting).evictions;
    kiln_tensor *x = F32(SIZES(2), 1, 2), *y = call1(evicting, "neg", ARGS(TEN(x)));
    drop_args(ARGS(TEN(x), TEN(y)));
    kiln_epochs_reclaim(&evicting->epochs);
    nevicted += stats_of(evicting).evictions > before;
}

static kiln_ctx *open_evicting(const char *cc) {
    nevicted = 0;
    return evicting = open_with((kiln_config){.mode = KILN_MODE_TIERED, .cc = cc, .max_kernels = 1});
}

static void after_a_build_that_failed(void **state) {
    (void)state;
    kiln_ctx *ctx = open_evicting("/nonexistent/cc");
    (void)mul(ctx, true);
    kiln_wait_idle(ctx);
    assert_int_equal(stats_of(ctx).compile_failures, 1);
    assert_int_equal(nevicted, 1);
    kiln_close(ctx);
}

static void after_a_build_without_memory(void **state) {
    (void)state;
    kiln_ctx *ctx = open_evicting("/nonexistent/cc");
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    kiln_bound call;
    kiln_plan plan;
    kiln_class *c = NULL;
    (void)mul(ctx, false);
    MUST_OK(kiln_bind(op_of(ctx, "mul.Tensor"), ARGS(TEN(a), TEN(a)), &call));
    MUST_OK(kiln_infer(&call, &plan));
    MUST_OK(kiln_class_of(ctx, &plan, &c));
    pthread_mutex_lock(&ctx->builds.lock);
    begin(c);
    end(c, KILN_E_NOMEM, 0);
    pthread_mutex_unlock(&ctx->builds.lock);
    assert_int_equal(nevicted, 1);
    kiln_tensor_release(a);
    kiln_close(ctx);
}

static void after_a_build_that_worked(void **state) {
    (void)state;
    kiln_ctx *ctx = open_evicting(NULL);
    (void)mul(ctx, true);
    kiln_wait_idle(ctx);
    assert_int_equal(stats_of(ctx).compiles, 1);
    assert_int_equal(nevicted, 1);
    kiln_close(ctx);
}

/* The second waits behind the first. */
static void after_waiting_in_vain(void **state) {
    (void)state;
    kiln_ctx *ctx = open_evicting(script("hang", "exec sleep 1000"));
    kiln_tensor *x = F32(SIZES(2), 1, 2);
    (void)mul(ctx, true);
    make_hot(ctx, op_of(ctx, "exp"), ARGS(TEN(x)));
    kiln_tensor *y = call1(ctx, "exp", ARGS(TEN(x)));
    kiln_builds_stop(ctx);
    assert_true(nevicted > 0);
    drop_args(ARGS(TEN(x), TEN(y)));
    kiln_close(ctx);
    assert_no_children();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_build_that_failed),
        cmocka_unit_test(after_a_build_without_memory),
        cmocka_unit_test(after_a_build_that_worked),
        cmocka_unit_test(after_waiting_in_vain),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
