/* test_view_rows.c - folds that see arguments in other sizes, write to some, and give results by conditions or by another
 * operator: what is refused when such rows are loaded, and what calls of C give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "op/op.h"

static kiln_status load(const char *text, kiln_registry **out) {
    kiln_row_text rows = {"r", text, strlen(text), false};
    return kiln_registry_new(kiln_registry_shipped(), &rows, 1, NULL, false, out);
}

static void takes(const char *text) {
    kiln_registry *r = NULL;
    if (load(text, &r) != KILN_OK) fail_msg("%s: %s", text, kiln_last_error());
    kiln_registry_free(r);
}

static void refuses(kiln_status want, const char *text, const char *message) {
    kiln_registry *r = NULL;
    kiln_clear_error();
    kiln_status st = load(text, &r);
    assert_string_equal(kiln_last_error(), message);
    assert_int_equal(st, want);
    assert_null(r);
}

#define NORM(types, schema, clauses)                                                                  \
    "fold my::f(" schema ") -> (Tensor, Tensor) : takes float " types "\n  over dims(0, 2)\n" clauses \
    "  state s = 0\n  step s = s + x\n  merge s = s + rhs.s\n"

#define TRIANGLE(clauses, finish)                                                                      \
    "fold my::f(Tensor x) -> Tensor : takes float strides format x\n  over dims(2) triangle\n" clauses \
    "  state s = 0\n  step s = s + x\n  merge s = s + rhs.s\n  " finish
#define NO_TRIANGLE                                                                                        \
    "r:1:6: a triangle is of rows that views set beside each other, and its results have one element for " \
    "each two: no 'each', no 'writes'"

static void folds_see_and_write_arguments(void **state) {
    (void)state;
    takes(NORM(
        "strides format x", "Tensor x, Tensor(a!) seen",
        "  view x [size(x, 0), size(x, 1), span(x, 2)]\n  view seen [size(x, 1), 1]\n  kept seen\n") "  finish each x - s, s\n  writes seen = s + seen");
    refuses(KILN_E_PARSE,
            NORM("", "Tensor x", "  view x [size(x, 0), size(x, 1), span(x, 2)]\n") "  finish each x - s, s",
            "r:1:6: whose sizes do results for each element have? write 'strides format ARG'");
    refuses(KILN_E_PARSE, NORM("strides format x", "Tensor x", "") "  finish each x - s, s",
            "r:1:6: 'strides format' names an argument that has a view");
    refuses(KILN_E_PARSE, NORM("", "Tensor x, Tensor seen", "") "  finish s, s\n  writes seen = s",
            "r:1:6: 'seen' is written to, so it must be kept");
    refuses(KILN_E_PARSE, NORM("", "Tensor x, Tensor(a!) seen", "") "  finish s, s + seen",
            "r:1:6: argument 'seen' is written to or viewed; a fold row states the functional form");
    refuses(KILN_E_TYPE, NORM("", "Tensor x, Tensor seen", "") "  finish s, s + seen",
            "my::f, typed for f16: r:6:17: a finish sees elements only with 'each'");
    refuses(KILN_E_TYPE,
            NORM("", "Tensor x, Tensor seen", "  kept seen\n") "  finish s, s\n  writes seen = s + x",
            "my::f, typed for f16: r:8:21: what is written sees elements of kept arguments only");
    refuses(KILN_E_PARSE, NORM("", "Tensor x", "  view x [1]\n  view x [2]\n") "  finish s, s",
            "r:4:10: expected one view of an argument, found '['");
    refuses(KILN_E_PARSE, NORM("", "Tensor x", "  view y [1]\n") "  finish s, s",
            "r:3:8: expected the name of a tensor, found 'y'");
    refuses(KILN_E_PARSE, NORM("", "Tensor x", "  gives true, true, true\n") "  finish s, s",
            "r:4:3: expected no more conditions than there are results, found 'state'");
    refuses(KILN_E_PARSE, NORM("", "Tensor x", "") "  finish s\n  rest aten::neg",
            "r:1:6: aten::neg takes 'self', which the row has not, or with another type");
    refuses(KILN_E_PARSE, NORM("", "Tensor self, Tensor x", "") "  finish s, s\n  rest aten::neg",
            "r:1:6: 2 results, of which aten::neg gives 1 and 'finish' 2");
    refuses(KILN_E_PARSE, NORM("", "Tensor self, Tensor x", "") "  finish s\n  rest aten::neg_",
            "r:1:6: aten::neg_ writes to an argument, or has a 'rest' itself");
    refuses(
        KILN_E_PARSE,
        "fold my::f(Tensor x) -> Tensor : takes float\n  over alike\n  view x [1]\n  state s = 0\n  step s = s + x\n"
        "  merge s = s + rhs.s\n  finish s",
        "r:1:6: elements of a diagonal, or of tensors alike, are seen as they are: no 'view'");
    refuses(
        KILN_E_PARSE,
        "scan my::f(Tensor x, int dim) -> Tensor : takes float\n  over dim\n  state s = 0\n  step s = s + x\n"
        "  finish empty",
        "my::f: r:5:10: unknown name 'empty'");
    refuses(KILN_E_PARSE, TRIANGLE("", "finish s"), NO_TRIANGLE);
    refuses(
        KILN_E_PARSE,
        "extern f(Tensor x) -> Tensor : takes real out exact\n  over dims(0) triangle\n  routine median(x)",
        "r:1:8: a triangle is of rows that views set beside each other, and its results have one element for "
        "each two: no 'each', no 'writes'");
    refuses(KILN_E_PARSE, TRIANGLE("  view x [.. -1, 1, -1 ..]\n", "finish each x - s"), NO_TRIANGLE);
    refuses(KILN_E_PARSE,
            "fold my::f(Tensor x) -> Tensor : takes float = acc + x from 0\n  over dims(2) flat triangle",
            "r:2:21: expected a clause on a line of its own, or the end of the row, found 'triangle'");
    takes(TRIANGLE("  view x [.. -1, 1, -1 ..]\n", "finish s"));
    takes(NORM("", "Tensor self, Tensor x", "") "  finish s\n  rest aten::neg");
    takes(NORM("", "Tensor x", "  gives rank(x) > 2\n") "  finish empty, s");
}

/* -- calls ------------------------------------------------------------------------------------------------- */

static kiln_tensor *filled(int rank, const int64_t *sizes, float value) {
    kiln_tensor *t;
    assert_int_equal(kiln_tensor_new(KILN_F32, rank, sizes, NULL, &t), KILN_OK);
    for (size_t k = 0; k < (size_t)kiln_tensor_nelem(t); k++)
        ((float *)kiln_tensor_data(t))[k] = value + (float)k;
    return t;
}

static void results_may_be_absent(void **state) {
    (void)state;
    kiln_ctx *ctx;
    const kiln_op *op;
    kiln_config config = {.size = sizeof config, .mode = KILN_MODE_INTERP};
    assert_int_equal(kiln_open(&config, &ctx), KILN_OK);
    assert_int_equal(kiln_op_find(ctx, "native_layer_norm_backward", &op), KILN_OK);
    kiln_tensor *x = filled(2, (int64_t[]){2, 3}, 1), *stats = filled(2, (int64_t[]){2, 1}, 1),
                *w = filled(1, (int64_t[]){3}, 1);
    kiln_value three = kiln_v_int(3);
    for (int mask = 0; mask < 8; mask++) {
        kiln_value wanted[3], outs[3];
        kiln_tensor *made[3];
        for (int k = 0; k < 3; k++) wanted[k] = kiln_v_bool(mask >> k & 1);
        kiln_value args[] = {kiln_v_tensor(x),     kiln_v_tensor(x),      kiln_v_list(&three, 1),
                             kiln_v_tensor(stats), kiln_v_tensor(stats),  kiln_v_tensor(w),
                             kiln_v_tensor(w),     kiln_v_list(wanted, 3)};
        for (int again = 0; again < 3; again++) {
            assert_int_equal(kiln_call(ctx, op, args, 8, made, 3), KILN_OK);
            assert_int_equal(kiln_call_values(ctx, op, args, 8, outs, 3), KILN_OK);
            for (int k = 0; k < 3; k++) {
                bool given = mask >> k & 1;
                assert_int_equal(made[k] != NULL, given);
                assert_int_equal(outs[k].kind, given ? KILN_TENSOR : KILN_NONE);
                if (given) assert_int_equal(kiln_tensor_nelem(made[k]), k ? 3 : 6);
                kiln_tensor_release(made[k]);
            }
            kiln_values_release(outs, 3);
        }
    }
    kiln_tensor_release(x);
    kiln_tensor_release(stats);
    kiln_tensor_release(w);
    kiln_close(ctx);
}

/* A result that is no longer there after a call that failed would be written too early. */
static void nothing_is_written_on_an_error(void **state) {
    (void)state;
    kiln_ctx *ctx;
    const kiln_op *op;
    kiln_tensor *made[3];
    assert_int_equal(kiln_open(NULL, &ctx), KILN_OK);
    assert_int_equal(kiln_op_find(ctx, "native_batch_norm", &op), KILN_OK);
    kiln_tensor *x = filled(3, (int64_t[]){2, 3, 4}, 1), *mean = filled(1, (int64_t[]){3}, 0),
                *var = filled(1, (int64_t[]){4}, 1);
    kiln_value args[] = {kiln_v_tensor(x),   kiln_v_none(),     kiln_v_none(),     kiln_v_tensor(mean),
                         kiln_v_tensor(var), kiln_v_bool(true), kiln_v_float(0.1), kiln_v_float(1e-5)};
    assert_int_equal(kiln_call(ctx, op, args, 8, made, 3), KILN_E_ARG);
    args[4] = args[3];
    assert_int_equal(kiln_call(ctx, op, args, 8, made, 3), KILN_E_ARG); /* one memory for both */
    for (int k = 0; k < 3; k++) assert_true(((float *)kiln_tensor_data(mean))[k] == (float)k);
    kiln_tensor_release(x);
    kiln_tensor_release(mean);
    kiln_tensor_release(var);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(folds_see_and_write_arguments),
                                       cmocka_unit_test(results_may_be_absent),
                                       cmocka_unit_test(nothing_is_written_on_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
