/* test_lists.c - calls for each item of lists, by the C functions: results as a list, groups, faults, memory.
 *
 * What operators compute is shown beside PyTorch (tests/ops/test_lists.py); here is what a caller in C sees. */
#include <math.h>

#include "base/base.h"
#include "call_cases.h"
#include "tensor/tensor.h"

#define LIST(...) \
    kiln_v_list((kiln_value[]){__VA_ARGS__}, sizeof((kiln_value[]){__VA_ARGS__}) / sizeof(kiln_value))

static void a_list_of_results_is_the_callers(void **state) {
    (void)state;
    for (size_t c = 0; c < 2; c++) {
        kiln_tensor *a = F32(SIZES(2), 1, 2), *b = F32(SIZES(3), 3, 4, 5);
        kiln_value out;
        MUST_OK(kiln_call_values(contexts[c], op_of(contexts[c], "_foreach_mul.Scalar"),
                                 ARGS(LIST(TEN(a), TEN(b)), INT(2)), &out, 1));
        assert_int_equal(out.kind, KILN_LIST_V);
        assert_int_equal(out.n, 2);
        HOLDS_F32(out.u.list[0].u.tensor, SIZES(2), 2, 4);
        HOLDS_F32(out.u.list[1].u.tensor, SIZES(3), 6, 8, 10);
        kiln_values_release(&out, 1);
        kiln_tensor_release(a);
        kiln_tensor_release(b);
    }
}

static void kiln_call_has_no_place_for_a_list(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(2), 1, 2), *out = NULL;
    assert_int_equal(kiln_call(contexts[0], op_of(contexts[0], "_foreach_neg"), ARGS(LIST(TEN(a))), &out, 1),
                     KILN_E_UNSUP);
    assert_null(out);
    assert_int_equal(kiln_op_ret_kind(op_of(contexts[0], "_foreach_neg"), 0), KILN_LIST_V);
    assert_int_equal(kiln_op_nrets(op_of(contexts[0], "_foreach_neg_")), 0);
    kiln_tensor_release(a);
}

static void lists_are_written_in_place(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(2), 1, 2), *b = F32(SIZES(3), 3, 4, 5);
    MUST_OK(kiln_call(contexts[0], op_of(contexts[0], "_foreach_neg_"), ARGS(LIST(TEN(a), TEN(b))), NULL, 0));
    HOLDS_F32(a, SIZES(2), -1, -2);
    HOLDS_F32(b, SIZES(3), -3, -4, -5);
    kiln_tensor_release(a);
    kiln_tensor_release(b);
}

static void what_is_read_only_is_not_written(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(2), 1, 2), *b = F32(SIZES(2), 3, 4);
    kiln_tensor_set_readonly(b);
    assert_int_equal(
        kiln_call(contexts[0], op_of(contexts[0], "_foreach_neg_"), ARGS(LIST(TEN(a), TEN(b))), NULL, 0),
        KILN_E_ARG);
    HOLDS_F32(a, SIZES(2), 1, 2);
    kiln_tensor_release(a);
    kiln_tensor_release(b);
}

/* The second item is strided, so it is a call of its own; its dtype has no room for the number. */
static void a_number_that_fits_one_item_alone_changes_none(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(2), 1, 2), *b;
    MUST_OK(kiln_tensor_new(KILN_I8, 1, (int64_t[]){2}, (int64_t[]){2}, &b));
    memset(b->data, 0, 3);
    assert_int_equal(kiln_call(contexts[0], op_of(contexts[0], "_foreach_clamp_min_.Scalar"),
                               ARGS(LIST(TEN(a), TEN(b)), INT(300)), NULL, 0),
                     KILN_E_ARG);
    assert_non_null(strstr(kiln_last_error(), "'min'"));
    HOLDS_F32(a, SIZES(2), 1, 2);
    kiln_tensor_release(a);
    kiln_tensor_release(b);
}

/* (1 - 0i) * (1 + 0i) is 1 + 0i, and (1 - 0i) * (1 - 0i) is 1 - 0i. */
static void a_zero_that_is_negative_is_another_number(void **state) {
    (void)state;
    const float one[] = {1, -0.0f};
    for (size_t c = 0; c < 2; c++) {
        kiln_tensor *a = tensor_of(one, KILN_C64, SIZES(1)), *b = tensor_of(one, KILN_C64, SIZES(1));
        kiln_value out;
        MUST_OK(kiln_call_values(
            contexts[c], op_of(contexts[c], "_foreach_mul.ScalarList"),
            ARGS(LIST(TEN(a), TEN(b)), LIST(kiln_v_complex(1, 0), kiln_v_complex(1, -0.0))), &out, 1));
        assert_false(signbit(((const float *)out.u.list[0].u.tensor->data)[1]));
        assert_true(signbit(((const float *)out.u.list[1].u.tensor->data)[1]));
        kiln_values_release(&out, 1);
        kiln_tensor_release(a);
        kiln_tensor_release(b);
    }
}

static bool stop;

static int is_stopped(void *unused) {
    (void)unused;
    return stop;
}

/* An interrupted call may be made again: it has written nothing.  The second item, which is strided, needs a kernel yet. */
static void an_interrupt_comes_before_the_first_item(void **state) {
    (void)state;
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .interrupted = is_stopped});
    const kiln_op *add = op_of(ctx, "_foreach_add_.Scalar");
    kiln_tensor *a = F32(SIZES(2), 1, 2), *b;
    MUST_OK(kiln_tensor_new(KILN_F32, 1, (int64_t[]){2}, (int64_t[]){2}, &b));
    memset(b->data, 0, 3 * sizeof(float));
    stop = false;
    MUST_OK(kiln_call(ctx, add, ARGS(LIST(TEN(a)), INT(1)), NULL, 0));
    stop = true;
    assert_int_equal(kiln_call(ctx, add, ARGS(LIST(TEN(a), TEN(b)), INT(1)), NULL, 0), KILN_E_INTERRUPTED);
    HOLDS_F32(a, SIZES(2), 2, 3);
    stop = false;
    MUST_OK(kiln_call(ctx, add, ARGS(LIST(TEN(a), TEN(b)), INT(1)), NULL, 0));
    HOLDS_F32(a, SIZES(2), 3, 4);
    assert_true(((float *)b->data)[0] == 1 && ((float *)b->data)[2] == 1);
    kiln_tensor_release(a);
    kiln_tensor_release(b);
    kiln_close(ctx);
}

/* Whichever allocation fails, the call says so, and nothing is lost or written. */
static void memory_may_be_wanting(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(2), 1, 2), *b = F32(SIZES(3), 3, 4, 5);
    const kiln_op *op = op_of(contexts[0], "_foreach_exp");
    kiln_value out = kiln_v_none();
    kiln_status st = KILN_E_NOMEM;
    for (long n = 1; st != KILN_OK && n < 200; n++) {
        kiln_trim();
        kiln_alloc_fail_after(n);
        st = kiln_call_values(contexts[0], op, ARGS(LIST(TEN(a), TEN(b))), &out, 1);
        kiln_alloc_fail_after(0);
        assert_true(st == KILN_OK || st == KILN_E_NOMEM);
    }
    assert_int_equal(st, KILN_OK);
    kiln_values_release(&out, 1);
    kiln_tensor_release(a);
    kiln_tensor_release(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_of_results_is_the_callers),
        cmocka_unit_test(kiln_call_has_no_place_for_a_list),
        cmocka_unit_test(lists_are_written_in_place),
        cmocka_unit_test(what_is_read_only_is_not_written),
        cmocka_unit_test(a_number_that_fits_one_item_alone_changes_none),
        cmocka_unit_test(a_zero_that_is_negative_is_another_number),
        cmocka_unit_test(an_interrupt_comes_before_the_first_item),
        cmocka_unit_test(memory_may_be_wanting),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
