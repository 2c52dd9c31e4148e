/* test_call_errors.c - a call that fails has changed nothing: no element, no size or stride, no result slot.
 *
 * Errors of the arguments, outputs that overlap or may not be written, divisions by zero found half way; in
 * both modes and every form. */
#include "call_cases.h"
#include "tensor/tensor.h"

enum { SNAP_BYTES = 256 };

/* What can be seen of a tensor. */
typedef struct snap {
    const kiln_tensor *t;
    int rank, refs, flags;
    int64_t nelem, sizes[4], strides[4];
    const char *data;
    char bytes[SNAP_BYTES];
    size_t nbytes;
} snap;

static snap snap_of(const kiln_tensor *t) {
    snap s = {.t = t,
              .rank = t->rank,
              .refs = atomic_load(&t->refs),
              .flags = t->flags,
              .nelem = t->nelem,
              .data = t->data};
    assert_true(t->rank <= 4);
    memcpy(s.sizes, t->sizes, t->rank * sizeof(int64_t));
    memcpy(s.strides, t->strides, t->rank * sizeof(int64_t));
    s.nbytes = (size_t)t->nelem * kiln_dtype_size((kiln_dtype)t->dtype);
    assert_true(s.nbytes <= SNAP_BYTES && (t->flags & KILN_TF_DENSE));
    memcpy(s.bytes, t->data, s.nbytes);
    return s;
}

static void assert_unchanged(const snap *s) {
    const kiln_tensor *t = s->t;
    assert_int_equal(t->rank, s->rank);
    assert_int_equal(t->nelem, s->nelem);
    assert_int_equal(atomic_load(&t->refs), s->refs);
    assert_int_equal(t->flags, s->flags);
    assert_ptr_equal(t->data, s->data);
    assert_memory_equal(t->sizes, s->sizes, t->rank * sizeof(int64_t));
    assert_memory_equal(t->strides, s->strides, t->rank * sizeof(int64_t));
    assert_memory_equal(t->data, s->bytes, s->nbytes);
}

/* The call fails with that status and text, and every tensor and result slot is as it was. */
static void expect_error(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs,
                         kiln_status want, const char *text) {
    snap before[8];
    size_t n = 0;
    kiln_tensor *outs[4], *mark = (kiln_tensor *)scratch;
    for (int k = 0; k < 4; k++) outs[k] = mark;
    for (size_t k = 0; k < nargs; k++)
        if (args[k].kind == KILN_TENSOR && args[k].u.tensor && n < 8) before[n++] = snap_of(args[k].u.tensor);
    kiln_status st = kiln_call(ctx, op_of(ctx, name), args, nargs, outs, 4);
    if (st != want) fail_msg("%s: %s: %s", name, kiln_status_name(st), kiln_last_error());
    assert_error_names(text);
    assert_error_names(name);
    for (int k = 0; k < 4; k++) assert_ptr_equal(outs[k], mark);
    for (size_t k = 0; k < n; k++) assert_unchanged(&before[k]);
}

static void wrong_arguments_change_nothing(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(2, 3), 1, 2, 3, 4, 5, 6), *v = F32(SIZES(3), 1, 2, 3),
                *bad = F32(SIZES(2), 1, 2);
    kiln_tensor *i = I32(SIZES(3), 1, 2, 3), *d = F64(SIZES(3), 1, 2, 3),
                *u = tensor_of("abc", KILN_U8, SIZES(3));
    BOTH(ctx) {
        expect_error(ctx, "add.Tensor", ARGS(TEN(a)), KILN_E_TYPE, "other");
        expect_error(ctx, "add.Tensor", ARGS(TEN(a), TEN(v), INT(1), INT(2)), KILN_E_TYPE, "argument");
        expect_error(ctx, "add.Tensor", ARGS(TEN(a), TEN(v), INT(1)), KILN_E_TYPE,
                     "positional"); /* alpha goes by name */
        expect_error(ctx, "add.Tensor", ARGS(TEN(a), TEN(v), NAMED("beta", INT(1))), KILN_E_TYPE, "beta");
        expect_error(ctx, "add.Tensor", ARGS(TEN(a), TEN(v), NAMED("other", TEN(v))), KILN_E_TYPE, "other");
        expect_error(ctx, "add.Tensor", ARGS(TEN(a), kiln_v_str("x")), KILN_E_TYPE, "Tensor");
        expect_error(ctx, "add.Tensor", ARGS(TEN(a), kiln_v_tensor(NULL)), KILN_E_TYPE,
                     "'other' must be Tensor, not a tensor that is NULL");
        expect_error(ctx, "add.Tensor", ARGS(TEN(a), kiln_v_none()), KILN_E_TYPE, "other");
        expect_error(ctx, "full_like", ARGS(TEN(a), INT(1), NAMED("dtype", kiln_v_dtype((kiln_dtype)99))),
                     KILN_E_TYPE, "'dtype' must be ScalarType?, but no dtype has the number 99");
        expect_error(ctx, "add.Tensor", ARGS(TEN(a), TEN(bad)), KILN_E_ARG, "size");
        expect_error(ctx, "add.Tensor", ARGS(TEN(i), TEN(i), NAMED("alpha", FLT(1.5))), KILN_E_ARG, "alpha");
        expect_error(ctx, "silu", ARGS(TEN(i)), KILN_E_UNSUP, "i32");
        expect_error(ctx, "pow.Tensor_Scalar", ARGS(TEN(i), INT(-1)), KILN_E_ARG, "negative integer powers");
        expect_error(ctx, "clamp", ARGS(TEN(u), INT(300)), KILN_E_ARG, "overflow");
        expect_error(ctx, "add_.Tensor", ARGS(TEN(v), TEN(a)), KILN_E_ARG, "shape"); /* self cannot grow */
        expect_error(ctx, "add.out", ARGS(TEN(v), TEN(a), NAMED("out", TEN(v))), KILN_E_ARG,
                     "shape"); /* nor as out */
        expect_error(ctx, "add_.Tensor", ARGS(TEN(i), TEN(d)), KILN_E_ARG, "cast");
        expect_error(ctx, "add.out", ARGS(TEN(d), TEN(d), NAMED("out", TEN(i))), KILN_E_ARG, "out");
        kiln_tensor *outs[1] = {(kiln_tensor *)scratch};
        assert_int_equal(kiln_call(ctx, op_of(ctx, "neg"), ARGS(TEN(a)), outs, 0), KILN_E_ARG);
        assert_error_names("room for 0 results, expected 1");
        assert_int_equal(kiln_call(ctx, op_of(ctx, "neg"), ARGS(TEN(a)), NULL, 1), KILN_E_ARG);
        assert_error_names("outs is NULL");
        assert_ptr_equal(outs[0], scratch);
    }
    drop_args(ARGS(TEN(a), TEN(v), TEN(bad), TEN(i), TEN(d), TEN(u)));
}

static void overlapping_outputs_change_nothing(void **state) {
    (void)state;
    float memory[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    kiln_tensor *low = NULL, *high = NULL, *fixed = NULL, *v = F32(SIZES(4), 1, 2, 3, 4),
                *wrong = F32(SIZES(3), 1, 2, 3);
    MUST_OK(kiln_tensor_wrap(memory, KILN_F32, SIZES(4), NULL, NULL, NULL, &low));
    MUST_OK(kiln_tensor_wrap(memory + 2, KILN_F32, SIZES(4), NULL, NULL, NULL, &high));
    MUST_OK(kiln_tensor_wrap(memory + 4, KILN_F32, SIZES(4), NULL, NULL, NULL, &fixed));
    kiln_tensor_set_readonly(fixed);
    BOTH(ctx) {
        expect_error(ctx, "neg.out", ARGS(TEN(low), NAMED("out", TEN(high))), KILN_E_ARG, "memory");
        expect_error(ctx, "neg.out", ARGS(TEN(v), NAMED("out", TEN(fixed))), KILN_E_ARG, "read-only");
        expect_error(ctx, "neg_", ARGS(TEN(fixed)), KILN_E_ARG, "read-only");
        expect_error(ctx, "neg.out", ARGS(TEN(wrong), NAMED("out", TEN(low))), KILN_E_ARG,
                     "resize"); /* foreign memory */
        expect_error(ctx, "frexp.Tensor_out",
                     ARGS(TEN(v), NAMED("mantissa", TEN(low)), NAMED("exponent", TEN(low))), KILN_E_ARG,
                     "exponent");
    }
    drop_args(ARGS(TEN(low), TEN(high), TEN(fixed), TEN(v), TEN(wrong)));
}

/* Found before anything is written or resized, wherever the zero stands. */
static void division_by_zero_changes_nothing(void **state) {
    (void)state;
    static const char *const names[] = {"floor_divide", "remainder.Tensor", "fmod.Tensor"};
    static const char *const outs[] = {"floor_divide.out", "remainder.Tensor_out", "fmod.Tensor_out"};
    static const char *const inplace[] = {"floor_divide_.Tensor", "remainder_.Tensor", "fmod_.Tensor"};
    int32_t values[60], zeros[60];
    for (int k = 0; k < 60; k++) {
        values[k] = k - 30;
        zeros[k] = k == 59 ? 0 : k + 1;
    }
    kiln_tensor *a = tensor_of(values, KILN_I32, SIZES(60)), *z = tensor_of(zeros, KILN_I32, SIZES(60));
    kiln_tensor *small = I32(SIZES(2), 7, 8), *same = tensor_of(values, KILN_I32, SIZES(60)),
                *zero = I32(SIZES(1), 0);
    kiln_tensor *a3 = tensor_of(values, KILN_I32, SIZES(3, 4, 5)), *z3 = I32(SIZES(4, 1), 1, 2, 3, 0);
    kiln_tensor *late = I32(SIZES(3, 1, 5), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                            0); /* in the last of three boxes */
    BOTH(ctx) {
        for (int k = 0; k < 3; k++) {
            expect_error(ctx, names[k], ARGS(TEN(a), TEN(z)), KILN_E_DIVZERO, "ZeroDivisionError");
            expect_error(ctx, names[k], ARGS(TEN(a), TEN(zero)), KILN_E_DIVZERO, "ZeroDivisionError");
            expect_error(ctx, names[k], ARGS(TEN(a3), TEN(z3)), KILN_E_DIVZERO, "ZeroDivisionError");
            expect_error(ctx, names[k], ARGS(TEN(a3), TEN(late)), KILN_E_DIVZERO, "ZeroDivisionError");
            expect_error(ctx, outs[k], ARGS(TEN(a), TEN(z), NAMED("out", TEN(small))), KILN_E_DIVZERO,
                         "ZeroDivisionError");
            expect_error(ctx, outs[k], ARGS(TEN(a), TEN(z), NAMED("out", TEN(same))), KILN_E_DIVZERO,
                         "ZeroDivisionError");
            expect_error(ctx, outs[k], ARGS(TEN(a), TEN(z), NAMED("out", TEN(z))), KILN_E_DIVZERO,
                         "ZeroDivisionError");
            expect_error(ctx, inplace[k], ARGS(TEN(same), TEN(z)), KILN_E_DIVZERO, "ZeroDivisionError");
        }
    }
    drop_args(ARGS(TEN(a), TEN(z), TEN(small), TEN(same), TEN(zero), TEN(a3), TEN(z3), TEN(late)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments_change_nothing),
        cmocka_unit_test(overlapping_outputs_change_nothing),
        cmocka_unit_test(division_by_zero_changes_nothing),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
