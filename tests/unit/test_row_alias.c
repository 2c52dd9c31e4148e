/* test_row_alias.c - `alias NAME = OTHER`: the row that comes of an alias, and every refusal with its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kiln/kiln.h"
#include "op/op.h"

#define ROW "map my::f(Tensor x, Scalar k=2) -> Tensor : takes float = k * x\n    check k != 0 : \"k is 0\"\n"

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

static void test_an_alias_is_a_row(void **state) {
    (void)state;
    loads(ROW "alias my::g = my::f   # a comment\nalias\tmy::h=my::g\n");
    const kiln_op *g = find("my::g");
    assert_string_equal(g->schema_text, "my::g(Tensor x, Scalar k=2) -> Tensor");
    assert_string_equal(
        g->row->text,
        "map my::g(Tensor x, Scalar k=2) -> Tensor : takes float = k * x\n    check k != 0 : \"k is 0\"\n");
    assert_int_equal(g->row->line, 3);
    assert_string_equal(find("my::h")->schema_text, "my::h(Tensor x, Scalar k=2) -> Tensor");
}

static void test_an_alias_computes(void **state) {
    (void)state;
    float x[2] = {1, 3};
    kiln_tensor *t, *out;
    assert_int_equal(kiln_tensor_wrap(x, KILN_F32, 1, (int64_t[]){2}, NULL, NULL, NULL, &t), KILN_OK);
    kiln_value args[] = {kiln_v_tensor(t), kiln_v_named("k", kiln_v_int(5))};
    assert_int_equal(kiln_call(ctx, find("my::h"), args, 2, &out, 1), KILN_OK);
    assert_true(((const float *)kiln_tensor_data(out))[1] == 15.0f);
    kiln_tensor_release(out);
    args[1] = kiln_v_named("k", kiln_v_int(0));
    assert_int_not_equal(kiln_call(ctx, find("my::h"), args, 2, &out, 1), KILN_OK);
    assert_string_equal(kiln_last_error(), "my::h: k is 0");
    kiln_tensor_release(t);
}

/* The same alias again is no change; an alias and the row that it stands for are one. */
static void test_again(void **state) {
    (void)state;
    loads("alias my::g = my::f\n");
    loads("map my::g(Tensor x, Scalar k=2) -> Tensor : takes float = k * x\n    check k != 0 : \"k is 0\"\n");
    refuses(KILN_E_ARG, "alias my::g = neg\n", "my::g is defined already");
}

static void test_aliases_of_rows_that_ship(void **state) {
    (void)state;
    loads("alias my::flip = neg\nalias my::turn = aten::arctan\n");
    assert_string_equal(find("my::flip")->schema_text, "my::flip(Tensor self) -> Tensor");
    assert_string_equal(find("my::turn")->schema_text, "my::turn(Tensor self) -> Tensor");
    assert_ptr_equal(find("aten::arctan_")->row, find("aten::arctan")->row);
}

static void test_refusals(void **state) {
    (void)state;
    refuses(
        KILN_E_NOTFOUND, "alias my::a = my::nothing\n",
        "r:1:15: no row of the name my::nothing stands above; an alias names a row that was loaded before");
    refuses(KILN_E_NOTFOUND,
            "# first\nalias my::a = my::b\nmap my::b(Tensor x) -> Tensor : takes float = x\n",
            "r:2:15: no row of the name my::b");
    refuses(KILN_E_NOTFOUND, "alias my::a = neg_\n", "r:1:15: no row of the name aten::neg_");
    refuses(KILN_E_PARSE, "alias = neg\n",
            "r:1:7: expected the name of an operator, as in 'alias my::g = my::f', found '='");
    refuses(KILN_E_PARSE, "alias my::a neg\n",
            "r:1:13: expected '=' and the name of the other operator, found 'n'");
    refuses(KILN_E_PARSE, "alias my::a =\n", "r:1:14: expected the name of an operator");
    refuses(KILN_E_PARSE, "alias my::a = neg\n    domain 0 1\n",
            "r:2:5: expected the end of the alias, which has no clauses, found 'd'");
    refuses(KILN_E_NOTFOUND, "alias a = neg\n", "PyTorch has no operator aten::a");
    refuses(KILN_E_NOTFOUND, "alias aten::nothing = neg\n", "PyTorch has no operator aten::nothing");
    refuses(KILN_E_ARG, "alias aten::sin = neg\n", "aten::sin is defined already");
}

/* Many aliases of a long row would make a long text of a short one. */
static void test_copies_are_limited(void **state) {
    (void)state;
    enum { ROW_BYTES = 3000, FEW = 3, MANY = 8 };
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_sb_puts(&text, "map my::long(Tensor x) -> Tensor : takes float = x\n    doc \"");
    while (text.len < ROW_BYTES) kiln_sb_puts(&text, "long ");
    kiln_sb_puts(&text, "\"");
    for (int k = 0; k < FEW; k++) kiln_sb_printf(&text, "\nalias my::long%d = my::long", k);
    size_t n = text.len;
    for (int k = FEW; k < MANY; k++) kiln_sb_printf(&text, "\nalias my::long%d = my::long", k);
    refuses(KILN_E_LIMIT, text.p, "the aliases of a text repeat more than");
    text.p[n] = 0;
    loads(text.p);
    kiln_sb_fini(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_alias_is_a_row),
        cmocka_unit_test(test_an_alias_computes),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_aliases_of_rows_that_ship),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_copies_are_limited),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
