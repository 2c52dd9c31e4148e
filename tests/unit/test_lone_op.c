/* test_lone_op.c - operators of kiln_op_new, which no name finds: calls, out forms, errors, and what remains when they are
 * freed; and what loading rows costs when there are many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "kiln/kiln.h"
#include "sanitized.h"

static kiln_ctx *open_interp(void) {
    kiln_ctx *ctx;
    kiln_config config = {.size = sizeof config, .mode = KILN_MODE_INTERP};
    assert_int_equal(kiln_open(&config, &ctx), KILN_OK);
    return ctx;
}

static const kiln_op *make(kiln_ctx *ctx, const char *row, const kiln_op **form) {
    const kiln_op *op;
    assert_int_equal(kiln_op_new(ctx, "cell", row, strlen(row), &op, form), KILN_OK);
    return op;
}

static kiln_dtype made; /* of the result of the last apply */

/* The first element of op(x) for x = [3], or of op(x, out=[0]). */
static double apply(kiln_ctx *ctx, const kiln_op *op, bool out) {
    double data = 3, result = 0;
    int64_t one = 1;
    kiln_tensor_header headers[2];
    kiln_tensor *x, *to, *got;
    assert_int_equal(kiln_tensor_borrow(&headers[0], &data, KILN_F64, 1, &one, NULL, 0, &x), KILN_OK);
    assert_int_equal(kiln_tensor_borrow(&headers[1], &result, KILN_F64, 1, &one, NULL, 0, &to), KILN_OK);
    kiln_value args[2] = {kiln_v_tensor(x), kiln_v_named("out", kiln_v_tensor(to))};
    assert_int_equal(kiln_call(ctx, op, args, out ? 2 : 1, &got, 1), KILN_OK);
    if (out) assert_ptr_equal(got, to);
    if (!out) {
        made = kiln_tensor_dtype(got);
        result = made == KILN_F32 ? *(float *)kiln_tensor_data(got) : *(double *)kiln_tensor_data(got);
    }
    kiln_tensor_release(got);
    kiln_tensor_release(to);
    kiln_tensor_release(x);
    return result;
}

static void one_is_called_and_has_no_name(void **state) {
    (void)state;
    kiln_ctx *ctx = open_interp();
    size_t before = kiln_op_count(ctx);
    const kiln_op *form, *found,
        *op = make(ctx, "map my::f(Tensor x) -> Tensor : takes f64 = x * 2\n", &form);
    assert_true(apply(ctx, op, false) == 6);
    assert_true(apply(ctx, form, true) == 6);
    assert_string_equal(kiln_op_schema(form), "my::f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)");
    assert_string_equal(kiln_op_form(form), "out");
    assert_int_equal(kiln_op_count(ctx), before);
    assert_int_equal(kiln_op_find(ctx, "my::f", &found), KILN_E_NOTFOUND);
    kiln_op_free(ctx, op);
    kiln_op_free(ctx, NULL);
    assert_int_equal(kiln_op_find(ctx, "aten::exp", &found), KILN_OK);
    kiln_op_free(ctx, found); /* passed over */
    assert_int_equal(kiln_op_find(ctx, "aten::exp", &found), KILN_OK);
    (void)make(ctx, "map my::left(Tensor x) -> Tensor : takes f64 = x\n", NULL); /* for kiln_close */
    kiln_close(ctx);
}

/* Operators that follow each other have other rows, and some have the address of one that was freed.  AddressSanitizer keeps
 * freed memory aside, so no address comes again under it. */
static void another_at_the_same_address_is_another(void **state) {
    (void)state;
    kiln_ctx *ctx = open_interp();
    const kiln_op *seen[200];
    bool again = false;
    for (int k = 0; k < 200; k++) {
        char row[128];
        const kiln_op *form;
        snprintf(row, sizeof row, "map my::f(Tensor x) -> Tensor : takes f64%s = x + %d\n",
                 k % 3 ? "" : " out converts -> f32", k % 10);
        const kiln_op *op = make(ctx, row, &form);
        for (int n = 0; n < 3; n++) {
            assert_true(apply(ctx, op, false) == 3 + k % 10);
            assert_int_equal(made, k % 3 ? KILN_F64 : KILN_F32);
        }
        assert_true(apply(ctx, form, true) == 3 + k % 10);
        for (int n = 0; n < k; n++) again = again || seen[n] == op;
        seen[k] = op;
        kiln_op_free(ctx, op);
    }
    assert_true(again || SANITIZED); /* otherwise no address came again, and the test shows nothing */
    kiln_close(ctx);
}

static void wrong_ones_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *row, *says;
        kiln_status status;
    } cases[] = {
        {"map my::f(Tensor x) -> Tensor : takes f64 = x + y\n", "unknown name 'y'", KILN_E_PARSE},
        {"", "found 0 new rows but expected 1", KILN_E_ARG},
        {"map my::f(Tensor x) -> Tensor = x\nmap my::g(Tensor x) -> Tensor = x\n",
         "found 2 new rows but expected 1", KILN_E_ARG},
        {"map aten::exp(Tensor x) -> Tensor : to_float = exp(x)\n", "defined already", KILN_E_ARG},
    };
    kiln_ctx *ctx = open_interp();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const kiln_op *op = NULL;
        assert_int_equal(kiln_op_new(ctx, "cell", cases[k].row, strlen(cases[k].row), &op, NULL),
                         cases[k].status);
        if (!strstr(kiln_last_error(), cases[k].says)) fail_msg("%zu: %s", k, kiln_last_error());
        assert_null(op);
    }
    kiln_close(ctx);
}

/* The most bytes that were in use while n rows were made one after the other, by kiln_ops_load or, and freed, by kiln_op_new. */
static size_t bytes_of(int n, bool loaded) {
    kiln_ctx *ctx = open_interp();
    kiln_alloc_peak_reset();
    for (int k = 0; k < n; k++) {
        char row[128];
        snprintf(row, sizeof row, "map my::f%d(Tensor x) -> Tensor : takes f64 = x + %d\n", k, k);
        if (loaded)
            assert_int_equal(kiln_ops_load(ctx, row, strlen(row)), KILN_OK);
        else
            kiln_op_free(ctx, make(ctx, row, NULL));
    }
    size_t peak = kiln_alloc_peak();
    kiln_close(ctx);
    return peak;
}

/* A row that is loaded takes memory for itself and for its path in a tree, whatever is there already. */
static void a_row_costs_itself(void **state) {
    (void)state;
    size_t few = bytes_of(100, true), many = bytes_of(2000, true), freed = bytes_of(2000, false);
    assert_true(many / 2000 < few / 100 + 1024);
    assert_true(freed < (size_t)256 << 10);
}

/* Places in the order of names, beside the rows that ship, whatever the order of loading. */
static void names_stay_in_order(void **state) {
    (void)state;
    kiln_ctx *ctx = open_interp();
    size_t shipped = kiln_op_count(ctx);
    char name[64], row[160];
    for (int k = 0; k < 300; k++) {
        static const char *const spaces[] = {"aaa", "my", "zzz"};
        snprintf(name, sizeof name, "%s::f%d", spaces[k % 3], k * 7919 % 300);
        snprintf(row, sizeof row, "map %s(Tensor x) -> Tensor : takes f64 = x + %d\n", name, k);
        assert_int_equal(kiln_ops_load(ctx, row, strlen(row)), KILN_OK);
        const char *drop = name;
        if (k % 5 == 0) assert_int_equal(kiln_ops_drop(ctx, &drop, 1), KILN_OK);
    }
    assert_int_equal(kiln_op_count(ctx), shipped + 240);
    for (size_t k = 0; k < kiln_op_count(ctx); k++) {
        const kiln_op *op = kiln_op_at(ctx, k), *found;
        assert_non_null(op);
        if (k) assert_true(strcmp(kiln_op_name(kiln_op_at(ctx, k - 1)), kiln_op_name(op)) < 0);
        if (strncmp(kiln_op_name(op), "aten::", 6) == 0) continue;
        assert_int_equal(kiln_op_find(ctx, kiln_op_name(op), &found), KILN_OK);
        assert_ptr_equal(found, op);
    }
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_called_and_has_no_name),
        cmocka_unit_test(another_at_the_same_address_is_another),
        cmocka_unit_test(wrong_ones_are_refused),
        cmocka_unit_test(a_row_costs_itself),
        cmocka_unit_test(names_stay_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
