/* test_memory_threads.c - a host's allocator under threads: every one asks it, and releases what another made. */
#include <pthread.h>
#include <stdatomic.h>

#include "call_cases.h"

enum { NTHREADS = 4, ROUNDS = 400 };

static atomic_long nlive, ncalls;
static kiln_ctx *ctx;
static kiln_tensor *in;
static _Atomic(kiln_tensor *) box[NTHREADS]; /* what a thread left for the next one */

static void *take(void *user, size_t nbytes) {
    (void)user;
    atomic_fetch_add(&nlive, 1);
    atomic_fetch_add(&ncalls, 1);
    return aligned_alloc(64, (nbytes + 63) & ~(size_t)63);
}

static void give(void *user, void *memory, size_t nbytes) {
    (void)user;
    (void)nbytes;
    atomic_fetch_sub(&nlive, 1);
    free(memory);
}

/* Returns NULL, or what was wrong: cmocka's checks are for its own thread. */
static void *call_and_pass_on(void *arg) {
    size_t me = (size_t)(uintptr_t)arg;
    const kiln_op *neg;
    if (kiln_op_find(ctx, "neg", &neg) != KILN_OK) return "neg is not found";
    for (int k = 0; k < ROUNDS; k++) {
        kiln_tensor *out = NULL;
        if (kiln_call(ctx, neg, ARGS(TEN(in)), &out, 1) != KILN_OK) return "the call failed";
        const float *x = kiln_tensor_data(out);
        if (x[0] != -1 || x[2] != -3) return "the result is wrong";
        kiln_tensor_release(atomic_exchange(&box[(me + 1) % NTHREADS], out));
        kiln_tensor_release(atomic_exchange(&box[me], NULL));
    }
    return NULL;
}

static void threads_share_an_allocator(void **state) {
    (void)state;
    pthread_t threads[NTHREADS];
    for (kiln_mode mode = KILN_MODE_SYNC; mode <= KILN_MODE_TIERED; mode = (kiln_mode)(mode + 1)) {
        ctx = open_with((kiln_config){.mode = mode, .alloc = take, .free = give});
        in = F32(SIZES(3), 1, 2, 3);
        atomic_store(&ncalls, 0);
        for (size_t k = 0; k < NTHREADS; k++)
            assert_int_equal(pthread_create(&threads[k], NULL, call_and_pass_on, (void *)(uintptr_t)k), 0);
        for (size_t k = 0; k < NTHREADS; k++) {
            void *wrong = NULL;
            assert_int_equal(pthread_join(threads[k], &wrong), 0);
            if (wrong) fail_msg("%s", (const char *)wrong);
        }
        kiln_close(ctx);
        for (size_t k = 0; k < NTHREADS; k++) kiln_tensor_release(atomic_exchange(&box[k], NULL));
        kiln_tensor_release(in);
        assert_int_equal(atomic_load(&nlive), 0);
        assert_int_equal(atomic_load(&ncalls), NTHREADS * ROUNDS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_an_allocator)};
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
