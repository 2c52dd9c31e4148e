/* test_row_like.c - rows with `like OTHER`: what they take over, and every refusal with its place.
 *
 * like_long.ops has the rows of ops/ that are like others, written out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kiln/kiln.h"
#include "op/op.h"

#define F                                                                                      \
    "fold my::f(Tensor x, Scalar k=2) -> Tensor : takes float   # f\n"                         \
    "    check k > 0 : \"k\"\n    host  m = k * 2\n    state s = 0\n    step  s = s + x * m\n" \
    "    merge s = s + rhs.s\n    finish s\n"

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

/* A row that is there to the letter is no change, and any other of its name is refused. */
static void is_the_row(const char *text) {
    size_t before = kiln_op_count(ctx);
    loads(text);
    assert_int_equal(kiln_op_count(ctx), before);
}

/* -- rows that ship ------------------------------------------------------------------------------------------- */

static int nlong;

static kiln_status is_the_shipped_row(void *user, const char *source, const char *text, size_t n, int line) {
    size_t before = kiln_op_count(ctx);
    (void)user;
    if (kiln_ops_load_from(ctx, source, text, n) != KILN_OK) fail_msg("line %d: %s", line, kiln_last_error());
    if (kiln_op_count(ctx) != before) fail_msg("line %d: no such row ships", line);
    nlong++;
    return KILN_OK;
}

static void test_rows_that_ship_are_the_long_ones(void **state) {
    (void)state;
    kiln_row_text long_rows = {.source = "like_long.ops"};
    char *text;
    assert_int_equal(kiln_file_read(KILN_SOURCE_DIR "/tests/unit/like_long.ops", &text, &long_rows.n),
                     KILN_OK);
    long_rows.text = text;
    assert_int_equal(kiln_rows_split(&long_rows, is_the_shipped_row, NULL), KILN_OK);
    assert_int_equal(nlong, 21);
    kiln_free(text);
}

/* -- users' rows -------------------------------------------------------------------------------------------------- */

static void test_what_is_taken_over(void **state) {
    (void)state;
    loads(F "fold my::g(Tensor x, int dim, Scalar k=1) -> Tensor   # g\n    # of f\n    like my::f   # f\n"
            "    over dim\n\n    host m = k +\n        1\n# behind\n");
    is_the_row("fold my::g(Tensor x, int dim, Scalar k=1) -> Tensor : takes float\n    over dim\n"
               "    host m = k + 1\n    check k > 0 : \"k\"\n    state s = 0\n    step s = s + x * m\n"
               "    merge s = s + rhs.s\n    finish s\n");
    assert_string_equal(find("my::g")->row->text,
                        "fold my::g(Tensor x, int dim, Scalar k=1) -> Tensor : takes float   # g\n"
                        "    # of f\n    # like my::f   # f\n    over dim\n\n    host m = k +\n        1\n"
                        "    check k > 0 : \"k\"\n    \n    state s = 0\n    step  s = s + x * m\n"
                        "    merge s = s + rhs.s\n    finish s\n");
    assert_int_equal(find("my::g")->row->line, 8);
}

static void test_heads(void **state) {
    (void)state;
    loads(
        "map my::a(Tensor x, Tensor y) -> Tensor : takes real   # real\n    strides\n    like y = x +\n    y\n"
        "map my::b(Tensor y, Tensor x) -> Tensor\n    like my::a\n"
        "map my::c(Tensor x, Tensor y) -> Tensor : takes float\n    like my::a\n"
        "map my::d(Tensor x, Tensor y) -> Tensor = x * y\n    like my::a\n    doc \"d\"\n");
    is_the_row("map my::b(Tensor y, Tensor x) -> Tensor : takes real strides like y = x + y\n");
    is_the_row("map my::c(Tensor x, Tensor y) -> Tensor : takes float = x + y\n");
    is_the_row(
        "map my::d(Tensor x, Tensor y) -> Tensor : takes real strides like y = x * y\n    doc \"d\"\n");
}

static void test_a_row_computes(void **state) {
    (void)state;
    float x[2] = {1, 3};
    kiln_tensor *t, *out;
    assert_int_equal(kiln_tensor_wrap(x, KILN_F32, 1, (int64_t[]){2}, NULL, NULL, NULL, &t), KILN_OK);
    kiln_value args[] = {kiln_v_tensor(t), kiln_v_int(0), kiln_v_int(4)};
    assert_int_equal(kiln_call(ctx, find("my::g"), args, 3, &out, 1), KILN_OK);
    assert_true(((const float *)kiln_tensor_data(out))[0] == 20.0f);
    kiln_tensor_release(out);
    kiln_tensor_release(t);
}

/* An argument may be named like the clause. */
static void test_names(void **state) {
    (void)state;
    loads("map my::like(Tensor like) -> Tensor : takes float =\n    like + 1\n"
          "map my::likes(Tensor like) -> Tensor : takes float = 1 +\n    like\n");
    is_the_row("map my::like(Tensor like) -> Tensor : takes float = like + 1\n");
}

/* -- refusals ------------------------------------------------------------------------------------------------------- */

#define NEG "map my::neg(Tensor x) -> Tensor : takes float = -x\n"

static void test_wrong_clauses(void **state) {
    (void)state;
    refuses(KILN_E_NOTFOUND, "map my::z(Tensor x) -> Tensor\n    like my::y\n",
            "r:2:10: no row of the name my::y stands above in this text");
    refuses(KILN_E_NOTFOUND, "map my::z(Tensor x) -> Tensor\n    like my::z\n",
            "r:2:10: no row of the name my::z");
    refuses(KILN_E_NOTFOUND, "fold my::z(Tensor self) -> Tensor\n    like sum\n",
            "r:2:10: no row of the name aten::sum");
    refuses(KILN_E_PARSE, NEG "map my::z(Tensor x) -> Tensor\n    like my::neg : takes float\n",
            "r:3:18: expected the end of the line, and clauses on lines of their own, found ':'");
    refuses(KILN_E_PARSE, NEG "map my::z(Tensor x) -> Tensor\n    like\n", "r:3:5: expected a clause word");
    refuses(KILN_E_PARSE, NEG "map my::z(Tensor x) -> Tensor\n    doc \"z\"\n    like my::neg\n",
            "r:4:5: expected a clause word");
    refuses(KILN_E_PARSE, NEG "map my::z(Tensor x) -> Tensor\n    like my::neg\n    when true = x\n",
            "r:4:5: a row that is like another one has no 'when' of its own");
    refuses(KILN_E_PARSE, NEG "map my::z(Tensor x) -> Tensor\n    like my::neg\n    likewise x\n",
            "r:4:5: expected a clause word such as over, check, let, state or doc, found 'likewise'");
    refuses(KILN_E_PARSE, NEG "fold my::z(Tensor x) -> Tensor\n    like my::neg\n",
            "r:3:10: my::neg is of another family: 'map'");
    refuses(KILN_E_PARSE, NEG "alias my::m = my::neg\nmap my::z(Tensor x) -> Tensor\n    like my::m\n",
            "r:4:10: my::m is a short row itself; name the row that it is made of");
    refuses(KILN_E_PARSE,
            F "fold my::g2(Tensor x, Scalar k) -> Tensor\n    like my::f\n"
              "fold my::z(Tensor x, Scalar k) -> Tensor\n    like my::g2\n",
            "r:11:10: my::g2 is a short row itself; name the row that it is made of");
    refuses(KILN_E_PARSE,
            "fold my::w(Tensor x) -> Tensor : takes float\n    state s = 0\n    step s = s + x\n"
            "    merge s = s + rhs.s\n    when true\n    finish s\n"
            "fold my::z(Tensor x) -> Tensor\n    like my::w\n    finish s\n",
            "r:8:10: the clause 'finish' of my::w stands after a 'when', and cannot be replaced");
}

/* What is wrong with a clause is said where it stands: in the row, or in the row that it was taken from. */
static void test_places_in_messages(void **state) {
    (void)state;
    refuses(KILN_E_PARSE,
            "# first\n" F "\nfold my::z(Tensor x, int dim) -> Tensor\n    like my::f\n    over dim\n",
            "r:4:15: 'k' is not an argument or a host number defined before");
    refuses(KILN_E_PARSE, F "fold my::z(Tensor x, Scalar k) -> Tensor\n    like my::f\n    over dim\n",
            "r:10:10: ");
    refuses(KILN_E_PARSE, F "fold my::z(Tensor x, Scalar k) -> Tensor\n    like my::f\n    finish s +\n",
            "r:10:15: expected an expression");
    refuses(KILN_E_PARSE, F "fold my::z(Tensor y, Scalar k) -> Tensor\n    like my::f\n    host m = k\n",
            "r:8:6: my::z: argument 'y' is not used");
    refuses(KILN_E_PARSE, F "fold my::z(Scalar k) -> Tensor\n    like my::f\n    host m = k\n",
            "r:5:19: unknown name 'x'");
    refuses(KILN_E_TYPE,
            F "fold my::z(Tensor x, Scalar k) -> Tensor : takes real\n    like my::f\n    finish s / 2\n",
            "r:10:");
}

static void test_copies_are_limited(void **state) {
    (void)state;
    enum { ROW_BYTES = 3000, MANY = 12 };
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_sb_puts(&text, "map my::long(Tensor x) -> Tensor : takes float = x\n    doc \"");
    while (text.len < ROW_BYTES) kiln_sb_puts(&text, "long ");
    kiln_sb_puts(&text, "\"");
    for (int k = 0; k < MANY; k++)
        kiln_sb_printf(&text, "\nmap my::l%d(Tensor x) -> Tensor\n like my::long", k);
    refuses(KILN_E_LIMIT, text.p, "the rows that are like others of a text repeat more than");
    kiln_sb_fini(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_that_ship_are_the_long_ones),
        cmocka_unit_test(test_what_is_taken_over),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_a_row_computes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_wrong_clauses),
        cmocka_unit_test(test_places_in_messages),
        cmocka_unit_test(test_copies_are_limited),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
