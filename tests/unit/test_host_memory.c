/* test_host_memory.c - results in memory that a host gives: which memory, when it goes back, and what happens without. */
#include "base/base.h"
#include "call_cases.h"

/* -- a host's allocator that keeps books --------------------------------------------------------------------- */

typedef struct host {
    int nlive, ncalls;
    size_t bytes;
    int fail_at;  /* the call that gets nothing, from 1; 0: none */
    size_t shift; /* bytes past an aligned address */
} host;

static void *take(void *user, size_t nbytes) {
    host *h = user;
    char *p;
    assert_true(nbytes > 0);
    if (++h->ncalls == h->fail_at) return NULL;
    if (!(p = aligned_alloc(64, (nbytes + 127) & ~(size_t)63))) return NULL;
    h->nlive++;
    h->bytes += nbytes;
    memset(p, 0xa5, nbytes + h->shift);
    return p + h->shift;
}

static void give(void *user, void *memory, size_t nbytes) {
    host *h = user;
    h->nlive--;
    h->bytes -= nbytes;
    free((char *)memory - h->shift);
}

static kiln_ctx *open_host(host *h, kiln_mode mode) {
    *h = (host){0};
    return open_with((kiln_config){.mode = mode, .alloc = take, .free = give, .alloc_user = h});
}

#define EACH_MODE(mode) \
    for (kiln_mode mode = KILN_MODE_SYNC; mode <= KILN_MODE_INTERP; mode = (kiln_mode)(mode + 1))

/* -- where results are ----------------------------------------------------------------------------------------- */

/* Calls of each kind again and again, so that whatever is remembered of them serves some. */
static void every_new_result_is_in_it(void **state) {
    (void)state;
    host h;
    EACH_MODE(mode) {
        kiln_ctx *ctx = open_host(&h, mode);
        kiln_tensor *a = F32(SIZES(2, 3), 1, 2, 3, 4, 5, 6), *row = F32(SIZES(3), 10, 20, 30);
        for (int k = 1; k <= 20; k++) {
            kiln_tensor *out[3] = {call1(ctx, "neg", ARGS(TEN(a))),
                                   call1(ctx, "add.Tensor", ARGS(TEN(a), TEN(row)))};
            HOLDS_F32(out[0], SIZES(2, 3), -1, -2, -3, -4, -5, -6);
            HOLDS_F32(out[1], SIZES(2, 3), 11, 22, 33, 14, 25, 36);
            assert_int_equal(h.nlive, 2);
            assert_int_equal(h.bytes, 48);
            for (int i = 0; i < 2; i++) assert_int_equal((uintptr_t)kiln_tensor_data(out[i]) % 64, 0);
            kiln_tensor_release(out[0]);
            kiln_tensor_release(out[1]);
            MUST_OK(kiln_call(ctx, op_of(ctx, "frexp.Tensor"), ARGS(TEN(a)), out, 2));
            assert_int_equal(h.nlive, 2);
            kiln_tensor_release(out[0]);
            kiln_tensor_release(out[1]);
            assert_true(h.nlive == 0 && h.bytes == 0 && h.ncalls == 4 * k);
            assert_memory_equal(kiln_last_tier(), mode == KILN_MODE_SYNC ? "compiled" : "interp", 6);
        }
        kiln_tensor_release(a);
        kiln_tensor_release(row);
        kiln_close(ctx);
    }
}

static void no_memory_is_asked_for_where_none_is_needed(void **state) {
    (void)state;
    host h;
    kiln_ctx *ctx = open_host(&h, KILN_MODE_INTERP);
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *empty = new_tensor(KILN_F32, SIZES(2, 0), NULL);
    kiln_tensor_release(call1(ctx, "neg_", ARGS(TEN(a)))); /* its own memory */
    kiln_tensor_release(call1(ctx, "neg.out", ARGS(TEN(a), NAMED("out", TEN(a)))));
    kiln_tensor *out = call1(ctx, "neg", ARGS(TEN(empty)));
    assert_shape(out, KILN_F32, SIZES(2, 0));
    kiln_tensor_release(out);
    assert_int_equal(h.ncalls, 0);
    kiln_tensor_release(a);
    kiln_tensor_release(empty);
    kiln_close(ctx);
}

static void results_outlive_their_context(void **state) {
    (void)state;
    host h;
    kiln_ctx *ctx = open_host(&h, KILN_MODE_SYNC);
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *out = call1(ctx, "neg", ARGS(TEN(a)));
    void *managed;
    MUST_OK(kiln_tensor_to_dlpack(out, &managed));
    kiln_close(ctx);
    kiln_tensor_release(out);
    assert_int_equal(h.nlive, 1); /* the export holds it */
    MUST_OK(kiln_tensor_from_dlpack(managed, &out));
    HOLDS_F32(out, SIZES(3), -1, -2, -3);
    kiln_tensor_release(out);
    assert_int_equal(h.nlive, 0);
    kiln_tensor_release(a);
}

/* -- resizing -------------------------------------------------------------------------------------------------- */

static void an_output_grows_in_it(void **state) {
    (void)state;
    host h;
    EACH_MODE(mode) {
        kiln_ctx *ctx = open_host(&h, mode);
        kiln_tensor *a = F32(SIZES(2, 3), 1, 2, 3, 4, 5, 6), *one = F32(SIZES(1), 1),
                    *none = F32(SIZES(1), 1);
        kiln_tensor *out = call1(ctx, "neg", ARGS(TEN(one)));
        for (int k = 0; k < 4; k++) { /* larger, smaller, larger within what it has, the same */
            kiln_tensor *from = k == 1 ? one : a;
            kiln_tensor_release(call1(ctx, "neg.out", ARGS(TEN(from), NAMED("out", TEN(out)))));
            if (from == one)
                HOLDS_F32(out, SIZES(1), -1);
            else
                HOLDS_F32(out, SIZES(2, 3), -1, -2, -3, -4, -5, -6);
            assert_true(h.nlive == 1 && h.bytes == 24); /* the first memory went back when the second came */
        }
        kiln_tensor_release(
            call1(ctx, "neg.out", ARGS(TEN(a), NAMED("out", TEN(none))))); /* Kiln's own, and stays so */
        assert_int_equal(h.nlive, 1);
        kiln_tensor_release(out);
        assert_true(h.nlive == 0 && h.bytes == 0);
        kiln_tensor_release(none);
        kiln_tensor_release(one);
        kiln_tensor_release(a);
        kiln_close(ctx);
    }
}

/* -- failures -------------------------------------------------------------------------------------------------- */

static void without_memory_nothing_happens(void **state) {
    (void)state;
    host h;
    kiln_ctx *ctx = open_host(&h, KILN_MODE_INTERP);
    kiln_tensor *a = F32(SIZES(2, 3), 1, 2, 3, 4, 5, 6), *one = F32(SIZES(1), 1), *outs[2] = {NULL, NULL};
    kiln_tensor *out = call1(ctx, "neg", ARGS(TEN(one)));
    for (int first = 1; first <= 2; first++) { /* of two results */
        h.fail_at = h.ncalls + first;
        assert_int_equal(kiln_call(ctx, op_of(ctx, "frexp.Tensor"), ARGS(TEN(a)), outs, 2), KILN_E_NOMEM);
        assert_error_names("the host's allocator has no memory for 24 bytes");
        assert_true(!outs[0] && !outs[1] && h.nlive == 1);
    }
    h.fail_at = h.ncalls + 1;
    assert_int_equal(kiln_call(ctx, op_of(ctx, "neg.out"), ARGS(TEN(a), NAMED("out", TEN(out))), outs, 1),
                     KILN_E_NOMEM);
    HOLDS_F32(out, SIZES(1), -1);
    assert_int_equal(h.nlive, 1);
    h.shift = 8;
    h.fail_at = 0;
    assert_int_equal(kiln_call(ctx, op_of(ctx, "neg"), ARGS(TEN(a)), outs, 1), KILN_E_ARG);
    assert_error_names("the host's allocator gave memory that is not aligned to 64 bytes");
    h.shift = 0;
    assert_int_equal(h.nlive, 1);
    kiln_tensor_release(out);
    assert_int_equal(h.nlive, 0);
    kiln_tensor_release(a);
    kiln_tensor_release(one);
    kiln_close(ctx);
}

/* Each allocation of Kiln's own in turn, of a call and of a resize. */
static void every_allocation_may_fail(void **state) {
    (void)state;
    host h;
    kiln_ctx *ctx = open_host(&h, KILN_MODE_INTERP);
    kiln_tensor *a = F32(SIZES(2, 3), 1, 2, 3, 4, 5, 6), *one = F32(SIZES(1), 1);
    const kiln_op *neg = op_of(ctx, "neg"), *into = op_of(ctx, "neg.out");
    for (long n = 1, failed = 1; failed; n++) {
        kiln_tensor *out = NULL, *again = NULL;
        kiln_trim(); /* kept blocks need no allocation */
        (void)kiln_alloc_fail_after(n);
        kiln_status st = kiln_call(ctx, neg, ARGS(TEN(one)), &out, 1);
        if (st == KILN_OK) st = kiln_call(ctx, into, ARGS(TEN(a), NAMED("out", TEN(out))), &again, 1);
        (void)kiln_alloc_fail_after(0);
        failed = st != KILN_OK;
        assert_true(!failed || st == KILN_E_NOMEM);
        kiln_tensor_release(again);
        kiln_tensor_release(out);
        assert_true(h.nlive == 0 && h.bytes == 0 && n < 1000);
    }
    kiln_tensor_release(a);
    kiln_tensor_release(one);
    kiln_close(ctx);
}

static void both_or_neither_are_given(void **state) {
    (void)state;
    kiln_ctx *ctx = NULL;
    kiln_config one = {.size = sizeof one, .alloc = take}, other = {.size = sizeof other, .free = give};
    assert_int_equal(kiln_open(&one, &ctx), KILN_E_ARG);
    assert_error_names("kiln_config.free is NULL");
    assert_int_equal(kiln_open(&other, &ctx), KILN_E_ARG);
    assert_error_names("kiln_config.alloc is NULL");
    assert_null(ctx);
    host h;
    char *text = NULL;
    ctx = open_host(&h, KILN_MODE_INTERP);
    MUST_OK(kiln_doctor(ctx, &text));
    assert_non_null(strstr(text, "memory: the host's\n"));
    kiln_text_free(text);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_new_result_is_in_it),
        cmocka_unit_test(no_memory_is_asked_for_where_none_is_needed),
        cmocka_unit_test(results_outlive_their_context),
        cmocka_unit_test(an_output_grows_in_it),
        cmocka_unit_test(without_memory_nothing_happens),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(both_or_neither_are_given),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
