/* test_calltext.c - the CLI's call text: values, made tensors, .npy files, and errors with their columns.
 *
 * The command's sources are compiled in here, since they are no part of the library; cli/ alone would be
 * found beside this folder. */
#include "cli/../../cli/calltext.c"
#include "cli/../../cli/element.c"
#include "cli/../../cli/npy.c"
#include "cli/../../cli/tensorfill.c"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static char err[CALLTEXT_ERROR_MAX];

static calltext parse(const char *text) {
    calltext call = {0};
    if (!calltext_parse(text, strlen(text), NULL, &call, err)) fail_msg("%s: %s", text, err);
    return call;
}

/* The text must be refused with a message that starts with start. */
static void refuse(const char *text, const char *start) {
    calltext call = {.nargs = 77};
    if (calltext_parse(text, strlen(text), NULL, &call, err)) fail_msg("%s was accepted", text);
    assert_int_equal(call.nargs, 77);
    if (strncmp(err, start, strlen(start)) != 0)
        fail_msg("%s: got \"%s\", expected \"%s\"", text, err, start);
}

/* The elements of the only argument, a tensor, as one text. */
static void expect_elements(const char *tensor, const char *expected) {
    char text[512], got[512] = "", one[ELEMENT_TEXT_MAX];
    snprintf(text, sizeof text, "f(%s)", tensor);
    calltext call = parse(text);
    assert_int_equal(call.nargs, 1);
    assert_int_equal(call.args[0].kind, KILN_TENSOR);
    kiln_tensor *t = call.args[0].u.tensor;
    for (walk w = walk_start(t); w.left > 0; walk_next(&w)) {
        element_text(kiln_tensor_dtype(t), w.p, one);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", *got ? " " : "", one);
    }
    assert_string_equal(got, expected);
    calltext_free(&call);
}

/* -- values ------------------------------------------------------------------------------------ */

static void names(void **state) {
    (void)state;
    calltext call = parse(" aten::add_.Tensor ( ) ");
    assert_string_equal(call.op, "aten::add_.Tensor");
    assert_int_equal(call.nargs, 0);
    calltext_free(&call);
    call = parse("f(1, b=2, c = [3])");
    assert_null(call.args[0].name);
    assert_string_equal(call.args[1].name, "b");
    assert_string_equal(call.args[2].name, "c");
    calltext_free(&call);
}

static void constants(void **state) {
    (void)state;
    calltext call = parse("f(None, true, False, f32, dtype=bool)");
    assert_int_equal(call.args[0].kind, KILN_NONE);
    assert_int_equal(call.args[1].kind, KILN_BOOL_V);
    assert_int_equal(call.args[1].u.i, 1);
    assert_int_equal(call.args[2].kind, KILN_BOOL_V);
    assert_int_equal(call.args[2].u.i, 0);
    assert_int_equal(call.args[3].kind, KILN_DTYPE_V);
    assert_int_equal(call.args[3].u.i, KILN_F32);
    assert_int_equal(call.args[4].u.i, KILN_BOOL);
    calltext_free(&call);
}

static void integers(void **state) {
    (void)state;
    calltext call = parse("f(0, -7, +7, 9223372036854775807, -9223372036854775808)");
    const int64_t expected[] = {0, -7, 7, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(call.args[i].kind, KILN_INT_V);
        assert_true(call.args[i].u.i == expected[i]);
    }
    calltext_free(&call);
    call = parse("f(9223372036854775808, +18446744073709551615, 9223372036854775808+1j)");
    assert_int_equal(call.args[0].kind, KILN_UINT_V);
    assert_true(call.args[0].u.i == INT64_MIN);
    assert_int_equal(call.args[1].kind, KILN_UINT_V);
    assert_true(call.args[1].u.i == -1);
    assert_true(call.args[2].kind == KILN_COMPLEX_V && call.args[2].u.c.re == 0x1p63);
    calltext_free(&call);
}

static void reals(void **state) {
    (void)state;
    calltext call = parse("f(1.5, -1e-3, .5, 2., 1E2, inf, -inf, nan, -0.0)");
    const double expected[] = {1.5, -1e-3, .5, 2, 100, INFINITY, -INFINITY};
    for (int i = 0; i < 9; i++) assert_int_equal(call.args[i].kind, KILN_FLOAT_V);
    for (int i = 0; i < 7; i++) assert_true(call.args[i].u.f == expected[i]);
    assert_true(isnan(call.args[7].u.f));
    assert_true(call.args[8].u.f == 0 && signbit(call.args[8].u.f));
    calltext_free(&call);
}

static void complexes(void **state) {
    (void)state;
    calltext call = parse("f(2j, -1.5j, 1+2j, 1.5-1e1j)");
    const double expected[][2] = {{0, 2}, {0, -1.5}, {1, 2}, {1.5, -10}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(call.args[i].kind, KILN_COMPLEX_V);
        assert_true(call.args[i].u.c.re == expected[i][0] && call.args[i].u.c.im == expected[i][1]);
    }
    calltext_free(&call);
}

static void strings(void **state) {
    (void)state;
    calltext call = parse("f(\"a,b)\", \"\", 'it\\'s', \"\\x41\\n\\t\\\\\\\"\", \"caf\xc3\xa9\")");
    const char *expected[] = {"a,b)", "", "it's", "A\n\t\\\"", "caf\xc3\xa9"};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(call.args[i].kind, KILN_STR_V);
        assert_string_equal(call.args[i].u.s, expected[i]);
    }
    calltext_free(&call);
}

static void lists(void **state) {
    (void)state;
    calltext call = parse("f([], [1, 2], [f32[2], None], [[1], [2, [3]]])");
    assert_int_equal(call.args[0].kind, KILN_LIST_V);
    assert_int_equal(call.args[0].n, 0);
    assert_int_equal(call.args[1].n, 2);
    assert_int_equal(call.args[1].u.list[1].u.i, 2);
    assert_int_equal(call.args[2].u.list[0].kind, KILN_TENSOR);
    assert_int_equal(call.args[2].u.list[1].kind, KILN_NONE);
    assert_int_equal(call.args[3].u.list[1].u.list[1].u.list[0].u.i, 3);
    calltext_free(&call);
}

/* -- made tensors -------------------------------------------------------------------------------- */

static void shapes(void **state) {
    (void)state;
    calltext call = parse("f(f32[4, 8], i8[], bool[0,3], f64[2,3]:strides=(1,2), u8[5]:strides=(0))");
    kiln_tensor *t[5];
    for (int i = 0; i < 5; i++) t[i] = call.args[i].u.tensor;
    assert_int_equal(kiln_tensor_dtype(t[0]), KILN_F32);
    assert_int_equal(kiln_tensor_rank(t[0]), 2);
    assert_int_equal(kiln_tensor_sizes(t[0])[1], 8);
    assert_int_equal(kiln_tensor_strides(t[0])[0], 8);
    assert_int_equal(kiln_tensor_rank(t[1]), 0);
    assert_int_equal(kiln_tensor_nelem(t[1]), 1);
    assert_int_equal(kiln_tensor_nelem(t[2]), 0);
    assert_int_equal(kiln_tensor_strides(t[3])[0], 1);
    assert_int_equal(kiln_tensor_strides(t[3])[1], 2);
    assert_int_equal(kiln_tensor_strides(t[4])[0], 0);
    calltext_free(&call);
}

static void fills(void **state) {
    (void)state;
    expect_elements("i32[2,3]:fill=arange", "0 1 2 3 4 5");
    expect_elements("i32[2,3]:strides=(1,2):fill=arange", "0 1 2 3 4 5");
    expect_elements("i32[2,3]:fill=arange:strides=(10,1)", "0 1 2 3 4 5");
    expect_elements("i64[3]:strides=(0):fill=arange", "2 2 2");
    expect_elements("f32[2]:fill=-0.0", "-0.0 -0.0");
    expect_elements("f16[2]:fill=nan", "nan nan");
    expect_elements("bf16[1]:fill=-inf", "-inf");
    expect_elements("bool[2]:fill=true", "true true");
    expect_elements("bool[2]:fill=arange", "false true");
    expect_elements("u8[1]:fill=255", "255");
    expect_elements("i8[1]:fill=-128", "-128");
    expect_elements("i32[1]:fill=3.0", "3");
    expect_elements("i64[1]:fill=-9223372036854775808", "-9223372036854775808");
    expect_elements("f64[1]:fill=0.1", "0.1");
    expect_elements("f16[1]:fill=65504", "65504.0");
    expect_elements("f32[0]:fill=1", "");
}

static void random_fills(void **state) {
    (void)state;
    calltext a = parse("f(f32[1000], f32[1000], i32[500], u8[500], bool[100])");
    calltext b = parse("g(f32[1000])");
    size_t nbytes = 1000 * sizeof(float);
    const float *first = kiln_tensor_data(a.args[0].u.tensor);
    assert_memory_equal(first, kiln_tensor_data(b.args[0].u.tensor), nbytes);
    assert_memory_not_equal(first, kiln_tensor_data(a.args[1].u.tensor), nbytes);
    double sum = 0, squares = 0;
    for (int i = 0; i < 1000; i++) sum += first[i], squares += first[i] * first[i];
    assert_true(fabs(sum / 1000) < 0.15 && fabs(squares / 1000 - 1) < 0.2);
    const int32_t *ints = kiln_tensor_data(a.args[2].u.tensor);
    for (int i = 0; i < 500; i++) assert_in_range(ints[i] + 10, 0, 20);
    const uint8_t *bytes = kiln_tensor_data(a.args[3].u.tensor),
                  *bools = kiln_tensor_data(a.args[4].u.tensor);
    for (int i = 0; i < 500; i++) assert_in_range(bytes[i], 0, 10);
    for (int i = 0; i < 100; i++) assert_in_range(bools[i], 0, 1);
    calltext_free(&a);
    calltext_free(&b);
}

/* -- element text ------------------------------------------------------------------------------- */

static void shortest_text(void **state) {
    (void)state;
    expect_elements("f32[1]:fill=0.1", "0.1");
    expect_elements("f32[1]:fill=16777217", "16777216.0");
    expect_elements("f32[1]:fill=1e-45", "1e-45");
    expect_elements("f32[1]:fill=3.4028234663852886e38", "3.4028235e+38");
    expect_elements("f64[1]:fill=5e-324", "5e-324");
    expect_elements("f64[1]:fill=0.30000000000000004", "0.30000000000000004");
    expect_elements("f64[1]:fill=1e22", "1e+22");
    expect_elements("f16[1]:fill=0.1", "0.1");
    expect_elements("f16[1]:fill=6e-8", "6e-08");
    expect_elements("bf16[1]:fill=3.14159", "3.14");
}

/* Every 16-bit pattern must read back from its text. */
static void half_round_trip(void **state) {
    (void)state;
    const kiln_dtype dtypes[] = {KILN_F16, KILN_BF16};
    for (int d = 0; d < 2; d++)
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint16_t in = (uint16_t)bits, out;
            char text[ELEMENT_TEXT_MAX];
            element_text(dtypes[d], &in, text);
            assert_true(element_store_real(dtypes[d], strtod(text, NULL), &out));
            assert_true(element_same(dtypes[d], &in, &out));
        }
}

/* A value halfway between two f16 numbers goes to the even one, and so does one that rounding to f32 puts there:
 * PyTorch makes halves by way of f32. */
static void half_rounding(void **state) {
    (void)state;
    const struct {
        double value;
        uint16_t bits;
    } cases[] = {{1 + 0x1p-11, 0x3c00},
                 {1 + 3 * 0x1p-11, 0x3c02},
                 {1 + 0x1p-11 + 0x1p-40, 0x3c00},
                 {0x1p-25, 0},
                 {0x1p-24, 1},
                 {65519, 0x7bff},
                 {-2, 0xc000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t bits = 0xffff;
        assert_true(element_store_real(KILN_F16, cases[i].value, &bits));
        assert_int_equal(bits, cases[i].bits);
    }
    uint16_t untouched = 0x1234;
    assert_false(element_store_real(KILN_F16, 65520, &untouched));
    assert_false(element_store_real(KILN_BF16, 3.4e38 * 2, &untouched));
    assert_int_equal(untouched, 0x1234);
}

/* -- errors ------------------------------------------------------------------------------------ */

static void syntax_errors(void **state) {
    (void)state;
    refuse("", "call:1: expected an operator name, found the end of the call");
    refuse("  ", "call:3: expected an operator name");
    refuse("1(2)", "call:1: expected an operator name, found '1'");
    refuse("add", "call:4: expected '(' after the operator name");
    refuse("add(1", "call:6: expected ',' or ')', found the end of the call");
    refuse("add(1,)", "call:7: expected a value, found ')'");
    refuse("exp(f32(3))", "call:8: sizes of a tensor stand in square brackets, as f32[3] or f32[2,3]\n"
                          "  exp(f32(3))\n         ^");
    refuse("add f32[3]", "call:5: expected '(' after the operator name, found 'f'\n  add f32[3]\n      ^");
    refuse("add(1,\n2 3)", "call:10: expected ',' or ')', found '3'");
    refuse("add(1 2)", "call:7: expected ',' or ')', found '2'");
    refuse("add(1) x", "call:8: expected the end of the call, found 'x'");
    refuse("add(a=1, 2)", "call:10: expected a named argument");
    refuse("add(foo)", "call:5: expected a value, found the word 'foo'");
    refuse("add([1, 2)", "call:10: expected ',' or ']'");
    refuse("add(\x01)", "call:5: expected a value, found byte 0x01");
    refuse("add(\"abc)", "call:5: the string is not closed");
    refuse("add(\"\\q\")", "call:7: expected one of n t r");
    refuse("add(\"\\x00\")", "call:7: a string cannot hold a NUL byte");
    refuse("add(18446744073709551616)", "call:5: the integer does not fit 64 bits");
    refuse("add(-9223372036854775809)", "call:5: the integer does not fit 64 bits");
    refuse("add(f32[9223372036854775808])", "call:9: a size must be below 2^63");
    refuse("add(1e999)", "call:5: the number is too large");
    refuse("add(1e)", "call:7: expected digits of an exponent");
    refuse("add(-)", "call:6: expected a number");
    refuse("add(1+2)", "call:8: expected 'j'");
}

static void tensor_errors(void **state) {
    (void)state;
    refuse("f(f32[-1])", "call:7: a size must not be negative");
    refuse("f(f32[1.5])", "call:7: expected a size, found a number that is not whole");
    refuse("f(f32[2)", "call:8: expected ',' or ']'");
    refuse("f(f33[2])", "call:3: expected a value, found the word 'f33'");
    refuse("f(f32[2]:strides=(1,1))", "call:18: expected 1 strides, one per size, found 2");
    refuse("f(f32[2]:strides=(-1))", "call:19: a stride must not be negative");
    refuse("f(f32[2]:strides=2)", "call:18: expected '(' of the strides");
    refuse("f(f32[2]:strides=(1):strides=(1))", "call:30: strides are given twice");
    refuse("f(f32[2]:fill=1:fill=2)", "call:22: the fill is given twice");
    refuse("f(f32[2]:fill=ones)", "call:15: expected randn, arange or a number");
    refuse("f(f32[2]:fill=2j)", "call:15: the fill value does not fit f32");
    refuse("f(f32[2]:color=2)", "call:10: expected 'strides=' or 'fill='");
    refuse("f(i32[2]:fill=1.5)", "call:15: the fill value does not fit i32");
    refuse("f(i32[2]:fill=nan)", "call:15: the fill value does not fit i32");
    refuse("f(u8[2]:fill=256)", "call:14: the fill value does not fit u8");
    refuse("f(u8[2]:fill=-1)", "call:14: the fill value does not fit u8");
    refuse("f(bool[2]:fill=2)", "call:16: the fill value does not fit bool");
    refuse("f(f16[2]:fill=1e6)", "call:15: the fill value does not fit f16");
    refuse("f(f32[2]:fill=1e300)", "call:15: the fill value does not fit f32");
    refuse("f(i64[2]:fill=9.3e18)", "call:15: the fill value does not fit i64");
    refuse("f(i8[200]:fill=arange)", "call:16: arange reaches 199, which does not fit i8");
    refuse("f(f32[9223372036854775807,9])", "call:3: the tensor has too many elements");
    refuse("f(f32[0,9223372036854775807,9])", "call:3: the tensor has too many elements");
    refuse("f(u8[17179869185])", "call:3: the tensor is larger than");
    refuse("f(u8[2]:strides=(9223372036854775807))", "call:3: the strides reach too far");
    refuse("f(u8[2]:strides=(17179869184))", "call:3: the tensor is larger than");
    refuse("f(u8[99999999999]:strides=(0))", "call:3: the tensor is larger than");
}

static void limits(void **state) {
    (void)state;
    calltext call;
    calltext_limits small = {100, true, true};
    char *text = malloc(CALLTEXT_MAX + 2);
    memset(text, ' ', CALLTEXT_MAX + 2);
    memcpy(text, "f(1)", 4);
    assert_true(calltext_parse(text, CALLTEXT_MAX, NULL, &call, err));
    calltext_free(&call);
    assert_false(calltext_parse(text, CALLTEXT_MAX + 1, NULL, &call, err));
    assert_string_equal(err, "call:1: the call is longer than 65536 bytes");
    memset(text, '[', CALLTEXT_MAX);
    memcpy(text, "f(", 2);
    assert_false(calltext_parse(text, CALLTEXT_MAX, NULL, &call, err));
    assert_string_equal(err, "call:67: lists are nested deeper than 64");
    free(text);
    assert_false(calltext_parse("f(1\0)", 5, NULL, &call, err));
    assert_string_equal(err, "call:4: the call holds a NUL byte");
    const char *over = "f(f32[20], f32[6])", *within = "f(f32[20], f32[5])";
    assert_false(calltext_parse(over, strlen(over), &small, &call, err));
    assert_string_equal(err, "call:12: the tensor is larger than the 20 bytes allowed\n"
                             "  f(f32[20], f32[6])\n"
                             "             ^");
    assert_true(calltext_parse(within, strlen(within), &small, &call, err));
    calltext_free(&call);
    const char *filled = "f(f32[25]:strides=(0), f32[1])"; /* 25 elements to fill, in the place of one */
    assert_false(calltext_parse(filled, strlen(filled), &small, &call, err));
    assert_string_equal(err, "call:24: the tensor is larger than the 0 bytes allowed\n"
                             "  f(f32[25]:strides=(0), f32[1])\n"
                             "                         ^");
    assert_false(calltext_parse("f(@/dev/null)", 13, &small, &call, err));
    assert_string_equal(err, "call:3: files cannot be read here\n  f(@/dev/null)\n    ^");
}

static void argument_and_rank_limits(void **state) {
    (void)state;
    char text[512] = "f(";
    for (int i = 0; i < KILN_MAX_ARGS + 1; i++) strcat(text, i ? ",1" : "1");
    strcat(text, ")");
    refuse(text, "call:131: a call has at most 64 arguments");
    strcpy(text, "f(f32[");
    for (int i = 0; i < KILN_MAX_RANK; i++) strcat(text, i ? ",1" : "1");
    strcat(text, "])");
    calltext call = parse(text);
    assert_int_equal(kiln_tensor_rank(call.args[0].u.tensor), KILN_MAX_RANK);
    calltext_free(&call);
    strcpy(strrchr(text, ']'), ",1])");
    refuse(text, "call:135: a tensor has at most 64 dimensions");
}

/* -- .npy files --------------------------------------------------------------------------------- */

static char npy_path[64];

/* Writes a file with this header and data, and gives the call text that loads it. */
static const char *npy_file(const char *header, const void *data, size_t n) {
    static char text[128];
    unsigned char start[10] = "\x93NUMPY\x01";
    start[8] = (unsigned char)strlen(header);
    FILE *f = fopen(npy_path, "wb");
    assert_non_null(f);
    fwrite(start, 1, sizeof start, f);
    fwrite(header, 1, strlen(header), f);
    fwrite(data, 1, n, f);
    fclose(f);
    snprintf(text, sizeof text, "@%s", npy_path);
    return text;
}

static int npy_setup(void **state) {
    (void)state;
    strcpy(npy_path, "/tmp/test_calltext_XXXXXX");
    int fd = mkstemp(npy_path);
    return fd < 0 ? -1 : close(fd);
}

static int npy_teardown(void **state) {
    (void)state;
    return unlink(npy_path);
}

static void npy_reads(void **state) {
    (void)state;
    const int32_t ints[] = {1, 2, 3, 4, 5, 6};
    const uint8_t bools[] = {0, 1, 7};
    const uint16_t halves[] = {0x3c00, 0xc000};
    expect_elements(npy_file("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }\n", ints, 24),
                    "1 2 3 4 5 6");
    expect_elements(npy_file("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }", ints, 24),
                    "1 3 5 2 4 6");
    expect_elements(npy_file("{'shape': (3,), 'descr': '|b1', 'fortran_order': False}", bools, 3),
                    "false true true");
    expect_elements(npy_file("{'shape': (2,), 'descr': '<f2', 'fortran_order': False}", halves, 4),
                    "1.0 -2.0");
    expect_elements(npy_file("{'shape': (), 'descr': '<i8', 'fortran_order': False}", ints, 8), "8589934593");
    expect_elements(npy_file("{'shape': (0, 5), 'descr': '<f8', 'fortran_order': True}", ints, 0), "");
    char quoted[80], shaped[80];
    npy_file("{'shape': (2,), 'descr': '<i4', 'fortran_order': False}", ints, 8);
    snprintf(quoted, sizeof quoted, "@\"%s\"", npy_path);
    expect_elements(quoted, "1 2");
    snprintf(shaped, sizeof shaped, "i32[2]@%s", npy_path);
    expect_elements(shaped, "1 2");
    snprintf(shaped, sizeof shaped, "f(i32[3]@%s)", npy_path);
    refuse(shaped, "call:9: /tmp/test_calltext_");
}

static void refuse_npy(const char *header, const void *data, size_t n, const char *why) {
    char text[160], start[200];
    snprintf(text, sizeof text, "f(%s)", npy_file(header, data, n));
    snprintf(start, sizeof start, "call:3: cannot load %s: %s", npy_path, why);
    refuse(text, start);
}

static void npy_errors(void **state) {
    (void)state;
    const int32_t ints[] = {1, 2, 3};
    refuse("f(@)", "call:4: expected a file name");
    refuse("f(@/nonexistent.npy)", "call:3: cannot load /nonexistent.npy: No such file or directory");
    refuse("f(@/dev/null)", "call:3: cannot load /dev/null: the file ends too early");
    refuse("f(@/)", "call:3: cannot load /: Is a directory");
    refuse_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (4,)}", ints, 12,
               "its data is 4 bytes short");
    refuse_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", ints, 12, "it has more data");
    refuse_npy("{'descr': '>i4', 'fortran_order': False, 'shape': (3,)}", ints, 12,
               "its dtype '>i4' is big endian");
    refuse_npy("{'descr': '<c9', 'fortran_order': False, 'shape': (3,)}", ints, 12,
               "its dtype '<c9' is not one");
    refuse_npy("{'descr': [('a', '<i4')], 'shape': (3,)}", ints, 12, "its dtype is not a simple one");
    refuse_npy("{'descr': '<i4', 'fortran_order': 1, 'shape': (3,)}", ints, 12,
               "its fortran_order is neither");
    refuse_npy("{'descr': '<i4', 'shape': (3,)}", ints, 12, "its header lacks");
    refuse_npy("{'descr': '<i4', 'shape': (3,), 'shape': (3,)}", ints, 12,
               "its header has a second or unknown key");
    refuse_npy("{'descr': '<i4', 'shape': (-3,)}", ints, 12, "its shape holds something that is not a size");
    refuse_npy("{'descr': '<i4', 'shape': (99999999999999999999,)}", ints, 12,
               "its shape holds a size that is out");
    refuse_npy("{'descr': '<i4', 'shape': (3 4)}", ints, 12, "its shape tuple is malformed");
    refuse_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (9999999999,)}", ints, 12,
               "the tensor is larger");
    refuse_npy("{'descr': '<i4' 'shape': (3,)}", ints, 12, "its header is malformed");
    refuse_npy("[1]", ints, 12, "its header is not a dictionary");
    refuse_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (3,)} x", ints, 12, "its header goes on");
    refuse_npy("", "", 0, "its header is not a dictionary");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(constants),
        cmocka_unit_test(integers),
        cmocka_unit_test(reals),
        cmocka_unit_test(complexes),
        cmocka_unit_test(strings),
        cmocka_unit_test(lists),
        cmocka_unit_test(shapes),
        cmocka_unit_test(fills),
        cmocka_unit_test(random_fills),
        cmocka_unit_test(shortest_text),
        cmocka_unit_test(half_round_trip),
        cmocka_unit_test(half_rounding),
        cmocka_unit_test(syntax_errors),
        cmocka_unit_test(tensor_errors),
        cmocka_unit_test(limits),
        cmocka_unit_test(argument_and_rank_limits),
        cmocka_unit_test_setup_teardown(npy_reads, npy_setup, npy_teardown),
        cmocka_unit_test_setup_teardown(npy_errors, npy_setup, npy_teardown),
    };
    return cmocka_run_group_tests_name("calltext", tests, NULL, NULL);
}
