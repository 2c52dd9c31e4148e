/* test_row_foreach.c - `foreach NAME = OTHER`: the row that comes of the line, and every refusal with its place.
 *
 * lists_long.ops has the rows that the lines of ops/ stand for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kiln/kiln.h"
#include "op/op.h"

#define SCALE "my::scale(Tensor[] x, Scalar k) -> Tensor[]"

static kiln_ctx *ctx;

static int open_context(void **state) {
    (void)state;
    return kiln_open(&(kiln_config){.size = sizeof(kiln_config), .mode = KILN_MODE_INTERP}, &ctx) != KILN_OK;
}

static int close_context(void **state) {
    (void)state;
    kiln_close(ctx);
    return 0;
}

static void loads(const char *text) {
    if (kiln_ops_load_from(ctx, "r", text, strlen(text)) != KILN_OK) fail_msg("%s", kiln_last_error());
}

static void refuses(kiln_status want, const char *text, const char *said) {
    size_t before = kiln_op_count(ctx);
    assert_int_equal(kiln_ops_load_from(ctx, "r", text, strlen(text)), want);
    if (!strstr(kiln_last_error(), said)) fail_msg("\"%s\" is not in \"%s\"", said, kiln_last_error());
    assert_int_equal(kiln_op_count(ctx), before); /* all or nothing */
}

static const kiln_op *find(const char *name) {
    const kiln_op *op;
    if (kiln_op_find(ctx, name, &op) != KILN_OK) fail_msg("%s", kiln_last_error());
    return op;
}

static bool has_row(const char *name, const char *text) { return strcmp(find(name)->row->text, text) == 0; }

/* -- rows that ship ------------------------------------------------------------------------------------------- */

static int nlong;

/* Loads one row of the long text: a row that is there to the letter is no change, and any other is refused. */
static kiln_status is_the_shipped_row(void *user, const char *source, const char *text, size_t n, int line) {
    size_t before = kiln_op_count(ctx);
    (void)user;
    if (kiln_ops_load_from(ctx, source, text, n) != KILN_OK) fail_msg("line %d: %s", line, kiln_last_error());
    if (kiln_op_count(ctx) != before) fail_msg("line %d: no such row ships", line);
    nlong += strncmp(text, "compose ", 8) == 0;
    return KILN_OK;
}

static void test_rows_that_ship_are_the_long_ones(void **state) {
    (void)state;
    kiln_row_text long_rows = {.source = "lists_long.ops"};
    char *text;
    assert_int_equal(kiln_file_read(KILN_SOURCE_DIR "/tests/unit/lists_long.ops", &text, &long_rows.n),
                     KILN_OK);
    long_rows.text = text;
    assert_int_equal(kiln_rows_split(&long_rows, is_the_shipped_row, NULL), KILN_OK);
    assert_int_equal(nlong, 65);
    kiln_free(text);
    refuses(KILN_E_ARG,
            "compose _foreach_abs(Tensor[] self) -> Tensor[]\n        call for self : neg(self)\n",
            "aten::_foreach_abs is defined already");
}

static void test_texts(void **state) {
    (void)state;
    assert_true(has_row("_foreach_abs", "compose _foreach_abs(Tensor[] self) -> Tensor[]\n"
                                        "        call for self : abs(self)\n"));
    assert_true(has_row("_foreach_addcmul.ScalarList",
                        "compose _foreach_addcmul.ScalarList(Tensor[] self, Tensor[] tensor1, Tensor[] "
                        "tensor2, Scalar[] scalars) -> Tensor[]\n        call for self, tensor1, tensor2, "
                        "scalars : addcmul(self, tensor1, tensor2, value=scalars)\n"));
    assert_true(
        has_row("_foreach_norm.Scalar",
                "compose _foreach_norm.Scalar(Tensor[] self, Scalar ord=2, ScalarType? dtype=None) -> "
                "Tensor[]\n        check torch not is_bool(ord) : \"PyTorch takes no truth value as an "
                "order\"\n        call for self : linalg_vector_norm(self, ord, dtype=dtype)\n"));
}

/* -- users' rows -------------------------------------------------------------------------------------------------- */

static void test_a_line_is_a_row(void **state) {
    (void)state;
    loads("# first\nforeach " SCALE " = mul.Scalar   # a comment\n    check k != 0 : \"k is 0\"\n# behind\n");
    const kiln_op *op = find("my::scale");
    assert_string_equal(op->schema_text, SCALE);
    assert_int_equal(op->row->line, 2);
    assert_int_equal(op->row->col, 9);
    assert_string_equal(op->row->text, "compose " SCALE "\n    check k != 0 : \"k is 0\"\n"
                                       "        call for x : mul.Scalar(x, k)\n");
    size_t before = kiln_op_count(ctx);
    loads("foreach " SCALE "=mul.Scalar\n    check k != 0 : \"k is 0\"");
    loads("compose " SCALE "\n    check k != 0 : \"k is 0\"\n    call for x : mul.Scalar(x, k)\n");
    assert_int_equal(kiln_op_count(ctx), before);
    refuses(KILN_E_ARG, "foreach " SCALE " = add.Scalar\n", "r:1:9: my::scale is defined already");
}

static void test_a_line_computes(void **state) {
    (void)state;
    float x[2] = {1, 3};
    kiln_tensor *t;
    kiln_value out;
    assert_int_equal(kiln_tensor_wrap(x, KILN_F32, 1, (int64_t[]){2}, NULL, NULL, NULL, &t), KILN_OK);
    kiln_value items[] = {kiln_v_tensor(t), kiln_v_tensor(t)};
    kiln_value args[] = {kiln_v_list(items, 2), kiln_v_int(5)};
    assert_int_equal(kiln_call_values(ctx, find("my::scale"), args, 2, &out, 1), KILN_OK);
    assert_int_equal(out.n, 2);
    assert_true(((const float *)kiln_tensor_data(out.u.list[1].u.tensor))[1] == 15.0f);
    kiln_values_release(&out, 1);
    args[1] = kiln_v_int(0);
    assert_int_not_equal(kiln_call_values(ctx, find("my::scale"), args, 2, &out, 1), KILN_OK);
    assert_string_equal(kiln_last_error(), "my::scale: k is 0");
    kiln_tensor_release(t);
}

/* Arguments go by their names first, then by their places. */
static void test_where_arguments_go(void **state) {
    (void)state;
    loads("map my::f(Tensor a, Tensor b, *, Scalar s=1) -> Tensor : takes float = a - b * s\n"
          "foreach my::names(Tensor[] b, Tensor[] a) -> Tensor[] = my::f\n"
          "foreach my::places(Tensor[] x, Tensor y, Scalar[] z) -> Tensor[] = my::f\n");
    assert_true(has_row("my::names", "compose my::names(Tensor[] b, Tensor[] a) -> Tensor[]\n"
                                     "        call for b, a : my::f(b=b, a=a)\n"));
    assert_true(has_row("my::places", "compose my::places(Tensor[] x, Tensor y, Scalar[] z) -> Tensor[]\n"
                                      "        call for x, z : my::f(x, y, s=z)\n"));
}

/* A schema may go on over lines; what stands below keeps its line. */
static void test_places_in_messages(void **state) {
    (void)state;
    refuses(KILN_E_PARSE, "foreach my::a(Tensor[] x,\n    Scalar k) -> Tensor[] = mul.Scalar\n    check\n",
            "r:3:10: expected an expression");
    refuses(KILN_E_PARSE, "foreach my::a(Tensor[] x -> Tensor[] = neg\n", "r:1:26: expected");
    refuses(KILN_E_PARSE, "foreach my::a(Tensor[] x) -> Tensor = neg\n",
            "r:1:9: result 0 is not what the calls of this row give");
    refuses(KILN_E_PARSE, "foreach _foreach_abs(Tensor[] x) -> Tensor[] = neg\n    static x\n    doc\n",
            "r:3:8: expected text in quotes");
}

static void test_schemas(void **state) {
    (void)state;
    refuses(KILN_E_PARSE, "foreach my::a = mul.Scalar\n",
            "r:1:9: my::a is not in PyTorch's list of schemas; state its schema, as in 'foreach "
            "my::scale(Tensor[] x, Scalar k) -> Tensor[] = mul.Scalar'");
    refuses(KILN_E_NOTFOUND, "foreach a = neg\n", "r:1:9: PyTorch has no operator aten::a; use a namespace");
    refuses(KILN_E_NOTFOUND, "foreach aten::a = neg\n", "r:1:9: PyTorch has no operator aten::a; use");
    refuses(KILN_E_PARSE, "foreach _foreach_copy(Tensor[] x) -> Tensor[] = neg\n",
            "r:1:9: the schema of aten::_foreach_copy is not PyTorch's, which is: "
            "aten::_foreach_copy(Tensor[] self, Tensor[] src, bool");
    refuses(KILN_E_ARG, "foreach _foreach_abs = neg\n", "r:1:9: aten::_foreach_abs is defined already");
    loads("foreach _foreach_powsum.Scalar = linalg_vector_norm\n"); /* no row of the name ships */
    assert_ptr_equal(find("_foreach_powsum.Scalar_out")->row, find("_foreach_powsum.Scalar")->row);
}

static void test_wrong_lines(void **state) {
    (void)state;
    refuses(KILN_E_NOTFOUND, "foreach " SCALE " = my::nothing\n",
            "r:1:55: no row of the name my::nothing stands above; a foreach row calls a row that was loaded "
            "before");
    refuses(KILN_E_NOTFOUND, "foreach _foreach_abs = abs_\n", "r:1:24: no row of the name aten::abs_");
    refuses(KILN_E_PARSE, "foreach = neg\n",
            "r:1:9: expected the name of an operator, as in 'foreach _foreach_abs = abs', found '='");
    refuses(KILN_E_PARSE, "foreach _foreach_abs abs\n",
            "r:1:22: expected '=' and the name of the other operator, found 'a'");
    refuses(KILN_E_PARSE, "foreach _foreach_abs =\n", "r:1:23: expected the name of an operator");
    refuses(KILN_E_PARSE, "foreach _foreach_abs = abs : takes float\n",
            "r:1:28: expected the end of the line, and clauses on lines of their own, found ':'");
    refuses(KILN_E_PARSE,
            "foreach my::a(Tensor[] x) -> Tensor[] = neg\n    check rank(x) == 0 : \"no\"\n\n"
            "    call for x : abs(x)\n",
            "r:4:5: a foreach row has no 'call' clause, since its call follows from the schemas; write a "
            "compose row instead");
    refuses(KILN_E_PARSE, "foreach my::a(Tensor[] x) -> Tensor[] = neg\n    when true\n",
            "r:2:5: a foreach row has no 'when' clause");
    refuses(KILN_E_PARSE, "foreach my::a(Tensor[] x) -> Tensor[] = neg\n    over x\n",
            "r:2:5: a compose row has no 'over' clause");
}

static void test_calls_that_do_not_fit(void **state) {
    (void)state;
    refuses(KILN_E_TYPE, "foreach my::a(Tensor x) -> Tensor[] = neg\n",
            "r:1:39: no argument of my::a is a list of which aten::neg takes an item");
    refuses(KILN_E_TYPE, "foreach my::a(Tensor[] x) -> Tensor[] = mul.Scalar\n",
            "r:1:41: aten::mul.Scalar is called without 'other'");
    refuses(KILN_E_TYPE, "foreach my::a(Tensor[] x, Scalar k) -> Tensor[] = neg\n",
            "r:1:51: aten::neg has no argument for 'k'");
    refuses(KILN_E_TYPE, "foreach my::a(Scalar[] x) -> Tensor[] = neg\n",
            "r:1:41: 'x' does not have the type that aten::neg takes for 'self'");
    refuses(KILN_E_TYPE, "foreach my::a(Tensor[] x, Tensor[]? y) -> Tensor[] = mul.Scalar\n",
            "r:1:54: 'y' does not have the type that aten::mul.Scalar takes for 'other'");
    refuses(KILN_E_TYPE, "foreach my::a(Tensor[] other, Tensor[] k) -> Tensor[] = mul.Tensor\n",
            "r:1:57: aten::mul.Tensor would get both 'k' and another argument as 'other'");
    refuses(KILN_E_TYPE, "foreach my::a(Tensor[] x) -> Tensor[] = _foreach_neg\n",
            "r:1:41: aten::_foreach_neg is a compose row itself: call what it calls");
    refuses(KILN_E_TYPE, "foreach _foreach_abs = mul.Scalar\n",
            "r:1:24: aten::mul.Scalar is called without 'other'");
    refuses(KILN_E_LIMIT,
            "foreach my::a(Tensor[] a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, "
            "int l, int m, int n, int o, int p, int q) -> Tensor[] = neg\n",
            "my::a has 17 arguments, but a call has at most 16");
}

/* PyTorch's schemas are longer than the lines that name them. */
static void test_texts_are_limited(void **state) {
    (void)state;
    enum { MANY = 400 };
    kiln_sb text;
    kiln_sb_init(&text);
    for (int k = 0; k < MANY; k++) kiln_sb_puts(&text, "foreach _foreach_addcmul.ScalarList = addcmul\n");
    refuses(KILN_E_LIMIT, text.p, "the foreach rows of a text repeat more than");
    kiln_sb_fini(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_that_ship_are_the_long_ones),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_a_line_is_a_row),
        cmocka_unit_test(test_a_line_computes),
        cmocka_unit_test(test_where_arguments_go),
        cmocka_unit_test(test_places_in_messages),
        cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_wrong_lines),
        cmocka_unit_test(test_calls_that_do_not_fit),
        cmocka_unit_test(test_texts_are_limited),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
