/* test_fold_rows.c - fold rows of several branches: which clauses a `when` has of its own, which it takes from the row,
 * and what is refused.  Called through the public API, as a user's rows are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <kiln/kiln.h>
#include <math.h>
#include <string.h>

static kiln_ctx *ctx;

static int open_ctx(void **state) {
    (void)state;
    kiln_config config = {.mode = KILN_MODE_INTERP};
    return kiln_open(&config, &ctx) != KILN_OK;
}

static int close_ctx(void **state) {
    (void)state;
    kiln_close(ctx);
    return 0;
}

static void load(const char *rows) {
    if (kiln_ops_load(ctx, rows, strlen(rows)) != KILN_OK) fail_msg("%s", kiln_last_error());
}

static void refuses(const char *rows, const char *message) {
    assert_int_not_equal(kiln_ops_load(ctx, rows, strlen(rows)), KILN_OK);
    const char *text = kiln_last_error(); /* the message, then the line with a mark below the place */
    assert_int_equal(strncmp(text, message, strlen(message)), 0);
    assert_true(!text[strlen(message)] || text[strlen(message)] == '\n');
}

/* What the fold makes of 3, -4 and the number `p`, all of a complex or real dtype. */
static double fold(const char *name, kiln_dtype t, double p) {
    const kiln_op *op;
    kiln_tensor *x, *out;
    double pairs[6] = {3, 0, -4, 0, 0, 0}, reals[3] = {3, -4, 0}, result[2] = {0};
    if (kiln_op_find(ctx, name, &op) != KILN_OK) fail_msg("%s", kiln_last_error());
    void *data = t == KILN_C128 ? pairs : reals;
    assert_int_equal(kiln_tensor_wrap(data, t, 1, (int64_t[]){3}, NULL, NULL, NULL, &x), KILN_OK);
    kiln_value args[2] = {kiln_v_tensor(x), kiln_v_float(p)};
    if (kiln_call(ctx, op, args, 2, &out, 1) != KILN_OK) fail_msg("%s", kiln_last_error());
    assert_int_equal(kiln_tensor_dtype(out), KILN_F64);
    memcpy(result, kiln_tensor_data(out), sizeof *result);
    kiln_tensor_release(out);
    kiln_tensor_release(x);
    return result[0];
}

static void branches_have_clauses_of_their_own(void **state) {
    (void)state;
    load("fold my::norm(Tensor self, float p) -> Tensor : takes f64 c128 -> real\n"
         "     state  s: real = 0\n"
         "     merge  s = s + rhs.s\n"
         "     finish s\n"
         "     when   p == 0\n" /* a step of its own, the row's merge and finish */
         "     step   s = s + (self == 0 ? 0 : 1)\n"
         "     when   p < 0\n" /* states of its own: the row's merge is no part of it */
         "     state  least: real = inf\n"
         "     step   least = min(least, abs(self))\n"
         "     merge  least = min(least, rhs.least)\n"
         "     finish least\n"
         "     when   true\n"
         "     step   s = s + abs(self) ** p\n"
         "     finish s ** (1 / p)\n");
    for (int k = 0; k < 2; k++) {
        kiln_dtype t = k ? KILN_C128 : KILN_F64;
        assert_true(fold("my::norm", t, 0) == 2);
        assert_true(fold("my::norm", t, -1) == 0);
        assert_true(fold("my::norm", t, 1) == 7);
        assert_true(fabs(fold("my::norm", t, 2) - 5) < 1e-12);
    }
}

static void short_forms_stand_in_branches(void **state) {
    (void)state;
    load("fold my::either(Tensor self, float p) -> Tensor : takes f64\n"
         "     when p == 1 = acc + self from 0\n"
         "     when true = max(acc, self) from lowest\n"
         "     finish 2 * acc\n");
    assert_true(fold("my::either", KILN_F64, 1) == -1);
    assert_true(fold("my::either", KILN_F64, 2) == 6);
}

#define HEAD "fold my::f(Tensor self, float p) -> Tensor : takes float\n"
static void wrong_branches_are_refused(void **state) {
    (void)state;
    refuses(HEAD "  when p == 1\n  when true = acc + self from 0", "rows:1:6: no body computes the result");
    refuses(HEAD
            "  when p == 1\n  state s = 0\n  step s = s + self\n  finish s\n  when true = acc + self from 0",
            "my::f: rows:1:6: a fold needs a merge");
    refuses(HEAD "  state s = 0\n  merge s = s + rhs.s\n  finish s\n  when p == 1\n  step s = s + self\n"
                 "  step s = s + 1\n  when true\n  step s = s - self",
            "rows:7:3: a second 'step' clause");
    refuses(HEAD "  when p == 1 = acc + self from 0\n  when true\n  state acc = 0\n  step acc = acc + other\n"
                 "  merge acc = acc + rhs.acc\n  finish acc",
            "my::f: rows:5:20: unknown name 'other'");
    refuses("map my::f(Tensor self, float p) -> Tensor : takes float\n  when p == 1\n  when true = self",
            "rows:3:3: expected '=', found 'when'");
    refuses(HEAD "  host a: real = p\n  when true = acc + self * a from 0",
            "rows:2:11: expected a dtype that numbers are computed in, found 'real'");
}

/* A dtype for which a check always fails needs no body. */
static void refused_dtypes_are_not_typed(void **state) {
    (void)state;
    load("fold my::mean(Tensor self, float p) -> Tensor : takes real\n"
         "     check  is_float(common) : \"floats\"\n"
         "     state  s = 0\n"
         "     step   s = s + self / p\n"
         "     merge  s = s + rhs.s\n"
         "     finish s / n\n");
    assert_true(fold("my::mean", KILN_F64, 1) == -1.0 / 3);
}

/* An empty list of dimensions: all of them, or with `only` none. */
static void empty_lists_mean_all_or_none(void **state) {
    (void)state;
    load("fold my::all(Tensor self, int[] dim) -> Tensor : takes f32 = acc + self from 0\n  over dim\n"
         "fold my::none(Tensor self, int[] dim) -> Tensor : takes f32 = acc + self from 0\n  over only dim");
    float data[2] = {1, 2};
    kiln_tensor *x, *out;
    const kiln_op *op;
    assert_int_equal(kiln_tensor_wrap(data, KILN_F32, 1, (int64_t[]){2}, NULL, NULL, NULL, &x), KILN_OK);
    for (int only = 0; only < 2; only++) {
        kiln_value args[2] = {kiln_v_tensor(x), kiln_v_list(NULL, 0)};
        assert_int_equal(kiln_op_find(ctx, only ? "my::none" : "my::all", &op), KILN_OK);
        if (kiln_call(ctx, op, args, 2, &out, 1) != KILN_OK) fail_msg("%s", kiln_last_error());
        assert_int_equal(kiln_tensor_rank(out), only);
        assert_true(*(const float *)kiln_tensor_data(out) == (only ? 1 : 3));
        kiln_tensor_release(out);
    }
    kiln_tensor_release(x);
}

/* 2^24, 1 and -2^24: in f32 the 1 is lost on the way, in f64 it is not.  Branches that differ in this alone are two classes. */
static void wide_states_make_another_class(void **state) {
    (void)state;
    load("fold my::added(Tensor self, bool wide) -> Tensor : takes f32\n"
         "     when   wide\n"
         "     state  s: wide = 0\n"
         "     step   s = s + self\n"
         "     merge  s = s + rhs.s\n"
         "     finish s\n"
         "     when   not wide\n"
         "     state  s = 0\n"
         "     step   s = s + self\n"
         "     merge  s = s + rhs.s\n"
         "     finish s");
    float data[129] = {[0] = 16777216, [64] = 1, [128] = -16777216}; /* which one lane adds up */
    kiln_tensor *x, *out;
    const kiln_op *op;
    assert_int_equal(kiln_tensor_wrap(data, KILN_F32, 1, (int64_t[]){129}, NULL, NULL, NULL, &x), KILN_OK);
    assert_int_equal(kiln_op_find(ctx, "my::added", &op), KILN_OK);
    double sum[2];
    for (int wide = 0; wide < 2; wide++) {
        kiln_value args[2] = {kiln_v_tensor(x), kiln_v_bool(wide)};
        if (kiln_call(ctx, op, args, 2, &out, 1) != KILN_OK) fail_msg("%s", kiln_last_error());
        sum[wide] = (double)*(const float *)kiln_tensor_data(out);
        kiln_tensor_release(out);
    }
    assert_true(sum[1] == 1);
    assert_true(sum[0] != sum[1]);
    kiln_tensor_release(x);
}

/* Twenty and more, of 3, -4 and 0: some need others, most need none, and some are asked for twice. */
static void blocks_have_many_folds(void **state) {
    (void)state;
    load(
        "fold my::many(Tensor self, float p) -> Tensor : takes f64\n"
        "     let    total = sum(self), top = max(self), apart = sum((self - total) * (self - total))\n"
        "     let    few = sum(self + 1) + max(self + 2) + sum(self + 3) + max(self + 4) + sum(self + 5) + max(self + 6)\n"
        "     let    more = sum(self + 7) + max(self + 8) + sum(self + 9) + max(self + 10) + sum(self + 11) + max(self + 12)\n"
        "     let    rest = sum(self + 13) + max(self + 14) + sum(self + 15) + max(self + 16) + min(self) + sum(self * top)\n"
        "     state  m = 0, o = 0\n"
        "     block  m = few + more + rest, o = apart + total + top\n"
        "     merge  m = m + rhs.m, o = o + rhs.o\n"
        "     finish p == 1 ? m : o\n");
    /* Sums of self + k are 3 * k - 1, largest ones 3 + k; sum(self * 3) is -3. */
    double many = 3 * (1 + 3 + 5 + 7 + 9 + 11 + 13 + 15) - 8 + 8 * 3 + (2 + 4 + 6 + 8 + 10 + 12 + 14 + 16) -
                  4 - 3;
    assert_true(fold("my::many", KILN_F64, 1) == many);
    assert_true(fold("my::many", KILN_F64, 0) == (16 + 9 + 1) - 1 + 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches_have_clauses_of_their_own),
        cmocka_unit_test(short_forms_stand_in_branches),
        cmocka_unit_test(wrong_branches_are_refused),
        cmocka_unit_test(refused_dtypes_are_not_typed),
        cmocka_unit_test(empty_lists_mean_all_or_none),
        cmocka_unit_test(wide_states_make_another_class),
        cmocka_unit_test(blocks_have_many_folds),
    };
    return cmocka_run_group_tests(tests, open_ctx, close_ctx);
}
