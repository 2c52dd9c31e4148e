/* test_values.c - results as values, the release of values of every kind, and results inferred without a call. */
#include "base/base.h"
#include "call_cases.h"

/* -- kiln_call_values ------------------------------------------------------------------------------------- */

static void results_are_values(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(3), 1, -2, 3);
    BOTH(ctx) {
        kiln_value out[3] = {kiln_v_int(7), kiln_v_int(7), kiln_v_int(7)};
        MUST_OK(kiln_call_values(ctx, op_of(ctx, "neg"), ARGS(TEN(a)), out, 3));
        assert_int_equal(out[0].kind, KILN_TENSOR);
        assert_null(out[0].name);
        HOLDS_F32(out[0].u.tensor, SIZES(3), -1, 2, -3);
        assert_int_equal(out[1].kind, KILN_INT_V); /* beyond the results nothing is written */
        kiln_values_release(out, 1);
        assert_int_equal(out[0].kind, KILN_NONE);
        MUST_OK(kiln_call_values(ctx, op_of(ctx, "frexp.Tensor"), ARGS(TEN(a)), out, 2));
        HOLDS_F32(out[0].u.tensor, SIZES(3), 0.5F, -0.5F, 0.75F);
        HOLDS_I32(out[1].u.tensor, SIZES(3), 1, 2, 2);
        kiln_values_release(out, 2);
        MUST_OK(kiln_call_values(ctx, op_of(ctx, "neg_"), ARGS(TEN(a)), out, 1));
        assert_ptr_equal(out[0].u.tensor, a);
        kiln_values_release(out, 1);
        kiln_tensor_release(call1(ctx, "neg_", ARGS(TEN(a))));
        HOLDS_F32(a, SIZES(3), 1, -2, 3);
    }
    kiln_tensor_release(a);
}

static void a_truth_value_is_no_tensor(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *b = F32(SIZES(3), 1, 2, 4), *c = F32(SIZES(1, 3), 1, 2, 3);
    BOTH(ctx) {
        const kiln_op *op = op_of(ctx, "equal");
        const struct {
            kiln_tensor *other;
            int want;
        } pairs[] = {{a, 1}, {b, 0}, {c, 0}};
        assert_int_equal(kiln_op_ret_kind(op, 0), KILN_BOOL_V);
        assert_int_equal(kiln_op_ret_kind(op, 1), KILN_NONE);
        assert_int_equal(kiln_op_ret_kind(op_of(ctx, "neg"), 0), KILN_TENSOR);
        for (int k = 0; k < 3; k++) {
            kiln_value out;
            MUST_OK(kiln_call_values(ctx, op, ARGS(TEN(a), TEN(pairs[k].other)), &out, 1));
            assert_int_equal(out.kind, KILN_BOOL_V);
            assert_int_equal(out.u.i, pairs[k].want);
            kiln_values_release(&out, 1);
            kiln_tensor *t = call1(ctx, "equal", ARGS(TEN(a), TEN(pairs[k].other)));
            assert_shape(t, KILN_BOOL, 0, NULL);
            assert_int_equal(*(const uint8_t *)kiln_tensor_data(t), pairs[k].want);
            kiln_tensor_release(t);
        }
    }
    kiln_tensor_release(a);
    kiln_tensor_release(b);
    kiln_tensor_release(c);
}

static void failures_are_those_of_a_call(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *b = F32(SIZES(2), 1, 2);
    BOTH(ctx) {
        kiln_value out = kiln_v_int(7);
        assert_int_equal(kiln_call_values(ctx, op_of(ctx, "add.Tensor"), ARGS(TEN(a), TEN(b)), &out, 1),
                         KILN_E_ARG);
        assert_error_names("must match the size");
        assert_int_equal(kiln_call_values(ctx, op_of(ctx, "neg"), ARGS(INT(1)), &out, 1), KILN_E_TYPE);
        assert_int_equal(kiln_call_values(ctx, op_of(ctx, "neg"), ARGS(TEN(a)), &out, 0), KILN_E_ARG);
        assert_error_names("room for 0 results, expected 1");
        assert_int_equal(out.kind, KILN_INT_V);
    }
    kiln_tensor_release(a);
    kiln_tensor_release(b);
}

static int ndeleted;
static void count_deleted(void *owner) {
    (void)owner;
    ndeleted++;
}

static kiln_value watched_tensor(void) {
    static float memory[2];
    kiln_tensor *t = NULL;
    MUST_OK(kiln_tensor_wrap(memory, KILN_F32, SIZES(2), NULL, count_deleted, NULL, &t));
    return kiln_v_tensor(t);
}

static kiln_value owned_list(uint32_t n) {
    kiln_value *items = kiln_alloc(n * sizeof *items);
    assert_non_null(items);
    for (uint32_t k = 0; k < n; k++) items[k] = k % 2 ? kiln_v_none() : watched_tensor();
    return kiln_v_list(items, n);
}

/* One of each kind.  What leaks is AddressSanitizer's to see, what is released once too often as well. */
static void release_ends_every_kind(void **state) {
    (void)state;
    kiln_value *nested = kiln_alloc(2 * sizeof *nested);
    assert_non_null(nested);
    nested[0] = owned_list(3);
    nested[1] = kiln_v_int(1);
    kiln_value all[] = {kiln_v_none(),   watched_tensor(),     kiln_v_bool(1),        kiln_v_int(3),
                        kiln_v_float(1), kiln_v_complex(1, 2), kiln_v_str("text"),    kiln_v_dtype(KILN_F32),
                        owned_list(4),   owned_list(0),        kiln_v_list(nested, 2)};
    size_t n = sizeof all / sizeof *all;
    ndeleted = 0;
    kiln_values_release(all, n);
    assert_int_equal(ndeleted, 1 + 2 + 2);
    for (size_t k = 0; k < n; k++) assert_int_equal(all[k].kind, KILN_NONE);
    kiln_values_release(all, n); /* nothing is left to end */
    assert_int_equal(ndeleted, 5);
    kiln_values_release(NULL, 1);
}

/* -- kiln_infer_results ----------------------------------------------------------------------------------- */

static bool same(const kiln_result_info *info, const kiln_tensor *t) {
    size_t n = (size_t)kiln_tensor_rank(t) * sizeof(int64_t);
    return info->dtype == kiln_tensor_dtype(t) && info->rank == kiln_tensor_rank(t) &&
           (!n || (memcmp(info->sizes, kiln_tensor_sizes(t), n) == 0 &&
                   memcmp(info->strides, kiln_tensor_strides(t), n) == 0));
}

/* What is inferred is what the call gives. */
static void check_inferred(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs, int arg) {
    const kiln_op *op = op_of(ctx, name);
    kiln_result_info info[KILN_MAX_RETS];
    kiln_tensor *outs[KILN_MAX_RETS];
    size_t n = 0;
    MUST_OK(kiln_infer_results(ctx, op, args, nargs, info, KILN_MAX_RETS, &n));
    assert_int_equal(n, kiln_op_nrets(op));
    MUST_OK(kiln_call(ctx, op, args, nargs, outs, KILN_MAX_RETS));
    for (size_t k = 0; k < n; k++) {
        if (!same(&info[k], outs[k])) fail_msg("%s: result %zu is another than was inferred", name, k);
        assert_int_equal(info[k].result, k);
        assert_int_equal(info[k].arg, arg < 0 ? -1 : arg + (int)k);
        kiln_tensor_release(outs[k]);
    }
}

/* Elements are ones. */
static kiln_tensor *ones(kiln_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides) {
    kiln_tensor *t = new_tensor(dtype, rank, sizes, strides);
    char *at = kiln_tensor_data(t); /* dense: every element has its place */
    for (int64_t k = 0; k < kiln_tensor_nelem(t); k++, at += kiln_dtype_size(dtype))
        assert_true(kiln_element_set(dtype, &(kiln_value){.kind = KILN_INT_V, .u.i = 1}, at));
    return t;
}

static void inferred_is_what_a_call_gives(void **state) {
    (void)state;
    kiln_tensor *a = ones(KILN_F32, SIZES(2, 3, 4), STRIDES(1, 8, 2)), *b = ones(KILN_F64, SIZES(3, 1), NULL),
                *i = ones(KILN_I32, SIZES(2, 3, 4), NULL),
                *cl = ones(KILN_BF16, SIZES(2, 3, 4, 5), STRIDES(60, 1, 15, 3)),
                *empty = ones(KILN_F32, SIZES(2, 0, 4), NULL), *zero = ones(KILN_F32, 0, NULL, NULL),
                *out = ones(KILN_F64, SIZES(2, 3, 4), STRIDES(1, 2, 6));
    BOTH(ctx) {
        check_inferred(ctx, "neg", ARGS(TEN(a)), -1);
        check_inferred(ctx, "add.Tensor", ARGS(TEN(a), TEN(b)), -1);
        check_inferred(ctx, "div.Tensor", ARGS(TEN(i), TEN(i)), -1);
        check_inferred(ctx, "lt.Scalar", ARGS(TEN(cl), INT(1)), -1);
        check_inferred(ctx, "frexp.Tensor", ARGS(TEN(a)), -1);
        check_inferred(ctx, "exp", ARGS(TEN(empty)), -1);
        check_inferred(ctx, "exp", ARGS(TEN(zero)), -1);
        check_inferred(ctx, "mul_.Tensor", ARGS(TEN(a), TEN(zero)), 0);
        check_inferred(ctx, "add.out", ARGS(TEN(a), TEN(b), NAMED("out", TEN(out))), 3);
    }
    kiln_tensor *all[] = {a, b, i, cl, empty, zero, out};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) kiln_tensor_release(all[k]);
}

static void an_output_to_be_resized_stays_as_it_is(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(2, 3), 1, 2, 3, 4, 5, 6);
    BOTH(ctx) {
        kiln_tensor *out = F32(SIZES(1), 9);
        kiln_result_info info;
        size_t n = 0;
        const kiln_op *op = op_of(ctx, "neg.out");
        MUST_OK(kiln_infer_results(ctx, op, ARGS(TEN(a), NAMED("out", TEN(out))), &info, 1, &n));
        assert_true(n == 1 && info.arg == 1 && info.resized && info.rank == 2 && info.sizes[1] == 3);
        HOLDS_F32(out, SIZES(1), 9);
        check_inferred(ctx, "neg.out", ARGS(TEN(a), NAMED("out", TEN(out))), 1);
        MUST_OK(kiln_infer_results(ctx, op, ARGS(TEN(a), NAMED("out", TEN(out))), &info, 1, &n));
        assert_false(info.resized);
        kiln_tensor_release(out);
    }
    kiln_tensor_release(a);
}

static void inferring_leaves_no_trace(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *b = F32(SIZES(2), 1, 2);
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    kiln_result_info info = {.rank = 7};
    size_t n = 7;
    const kiln_op *op = op_of(ctx, "add.Tensor");
    (void)kiln_alloc_fail_after(1); /* no allocation would succeed */
    kiln_status st = kiln_infer_results(ctx, op, ARGS(TEN(a), TEN(a)), NULL, 0, &n);
    assert_int_equal(kiln_alloc_fail_after(0), 0);
    assert_int_equal(st, KILN_OK);
    assert_int_equal(n, 1);
    kiln_stats s = stats_of(ctx);
    assert_true(s.calls == 0 && s.misses == 0 && s.compiles == 0);
    assert_int_equal(kiln_infer_results(ctx, op, ARGS(TEN(a), TEN(b)), &info, 1, &n), KILN_E_ARG);
    assert_error_names("aten::add.Tensor: argument 'other': The size of tensor a");
    assert_int_equal(info.rank, 7);
    kiln_close(ctx);
    kiln_tensor_release(a);
    kiln_tensor_release(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_values),
        cmocka_unit_test(a_truth_value_is_no_tensor),
        cmocka_unit_test(failures_are_those_of_a_call),
        cmocka_unit_test(release_ends_every_kind),
        cmocka_unit_test(inferred_is_what_a_call_gives),
        cmocka_unit_test(an_output_to_be_resized_stays_as_it_is),
        cmocka_unit_test(inferring_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
