/* test_graph_run.c - graphs run node by node: each kind of call, which overload is meant, what cannot be run, and that
 * nothing leaks when an allocation fails. */
#include "unit/graph_cases.h"

static kiln_ctx *ctx;

static int open_context(void **state) {
    (void)state;
    kiln_config config = {.size = sizeof config, .mode = KILN_MODE_INTERP};
    return kiln_open(&config, &ctx) == KILN_OK ? 0 : -1;
}

static int close_context(void **state) {
    (void)state;
    kiln_close(ctx);
    return 0;
}

static kiln_tensor *tensor(double a, double b) {
    int64_t sizes[] = {2};
    kiln_tensor *t;
    OK(kiln_tensor_new(KILN_F32, 1, sizes, NULL, &t));
    float *data = kiln_tensor_data(t);
    data[0] = (float)a;
    data[1] = (float)b;
    return t;
}

static kiln_tensor *weight; /* what every name stands for */
static kiln_tensor *look_up(void *user, const char *name) {
    (void)user;
    return strcmp(name, "w") == 0 ? weight : NULL;
}

static kiln_status run(const char *lines, const kiln_value *inputs, size_t ninputs, kiln_tensor ***outs,
                       size_t *nouts) {
    kiln_graph *g = graph_of(lines);
    kiln_status st = kiln_graph_run(ctx, g, inputs, ninputs, look_up, NULL, outs, nouts);
    kiln_graph_free(g);
    return st;
}

/* Runs the lines after `x` and `k`, and compares the first result. */
static void gives(const char *lines, double a, double b) {
    char text[1024];
    kiln_tensor *x = tensor(1, -2), **outs;
    weight = tensor(10, 20);
    kiln_value inputs[] = {kiln_v_tensor(x), kiln_v_int(3)};
    size_t nouts;
    snprintf(text, sizeof text, "x = placeholder x\nk = placeholder k\n%s", lines);
    if (run(text, inputs, 2, &outs, &nouts) != KILN_OK) fail_msg("%s: %s", lines, kiln_last_error());
    assert_true(nouts >= 1);
    const float *data = kiln_tensor_data(outs[0]);
    if (kiln_tensor_dtype(outs[0]) != KILN_F32 || data[0] != (float)a || data[1] != (float)b)
        fail_msg("%s: %g %g, expected %g %g", lines, (double)data[0], (double)data[1], a, b);
    for (size_t i = 0; i < nouts; i++) kiln_tensor_release(outs[i]);
    kiln_text_free((char *)outs);
    kiln_tensor_release(x);
    kiln_tensor_release(weight);
}

static void every_form_of_call_runs(void **state) {
    (void)state;
    gives("a = call_function aten::neg.default(%x)\noutput = output(%a)\n", -1, 2);
    gives("a = call_function aten::add.Tensor(%x, %x, alpha=2)\noutput = output(%a)\n", 3, -6);
    gives("a = call_function aten::add(%x, 1)\noutput = output(%a)\n", 2, -1);
    gives("a = call_function torch:add(input=%x, other=%x, alpha=%k)\noutput = output([%a, None, (%x,)])\n",
          4, -8);
    gives("a = call_method abs(%x)\noutput = output(%a)\n", 1, 2);
    gives("a = call_method add_(%x, 1)\noutput = output(%x)\n", 2, -1);
    gives("a = get_attr w\nb = call_function torch:add(%a, const(w))\noutput = output(%b)\n", 20, 40);
    gives("a = call_function aten::mul.Scalar(%x, 18446744073709551615)\noutput = output(%a)\n", 0x1p64,
          -0x1p65);
    gives("t = call_function operator:getitem((%k, %x), -1)\noutput = output(%t)\n", 1, -2);
}

static void operators_mean_what_python_means(void **state) {
    (void)state;
    gives("a = call_function operator:add(%x, 1)\noutput = output(%a)\n", 2, -1);
    gives("a = call_function operator:add(1, %x)\noutput = output(%a)\n", 2, -1);
    gives("a = call_function operator:sub(%x, %k)\noutput = output(%a)\n", -2, -5);
    gives("a = call_function operator:sub(%k, %x)\noutput = output(%a)\n", 2, 5);
    gives("a = call_function operator:pow(2, %x)\noutput = output(%a)\n", 2, 0.25);
    gives("a = call_function operator:pow(%x, 2)\noutput = output(%a)\n", 1, 4);
    gives("a = call_function operator:truediv(%x, 2)\noutput = output(%a)\n", 0.5, -1);
    gives("a = call_function operator:neg(%x)\noutput = output(%a)\n", -1, 2);
    gives("a = call_function operator:iadd(%x, 1)\noutput = output(%x)\n", 2, -1);
}

static void cannot(const char *lines, kiln_status status, const char *why) {
    kiln_tensor *x = tensor(1, 2), **outs = NULL;
    kiln_value input = kiln_v_tensor(x);
    size_t nouts;
    weight = NULL;
    REFUSED(status, why, run(lines, &input, 1, &outs, &nouts));
    assert_null(outs);
    kiln_tensor_release(x);
}

static void what_cannot_be_run_is_named(void **state) {
    (void)state;
    cannot("a = placeholder a\nb = placeholder b\n", KILN_E_TYPE,
           "placeholder b: no input is left for it (1 given)");
    cannot("a = placeholder a\nb = call_function aten::mul.Scalar(%a, 18446744073709551616)\n", KILN_E_UNSUP,
           "node b (call_function aten::mul.Scalar): an int does not fit 64 bits");
    cannot("a = placeholder a\nb = call_function aten::mul.Scalar(%a, -9223372036854775809)\n", KILN_E_UNSUP,
           "node b (call_function aten::mul.Scalar): an int does not fit 64 bits");
    cannot("", KILN_E_TYPE, "inputs given: 1, placeholders of the graph: 0");
    cannot("a = placeholder *a\n", KILN_E_UNSUP,
           "node a (placeholder *a): arguments with a star cannot be run");
    cannot("a = placeholder a\nm = call_module m(%a)\n", KILN_E_UNSUP,
           "node m (call_module m): modules cannot be run");
    cannot("a = placeholder a\nm = get_attr nosuch\n", KILN_E_NOTFOUND,
           "node m: no tensor named 'nosuch' was given");
    cannot("a = placeholder a\nm = call_function const(f)(%a)\n", KILN_E_UNSUP,
           "node m (call_function f): it is an object of its owner's");
    cannot("a = placeholder a\nm = call_function math:sqrt(%a)\n", KILN_E_NOTFOUND,
           "node m: no schema is known for its target 'math:sqrt'");
    cannot("a = placeholder a\nm = call_function operator:floordiv(1, %a)\n", KILN_E_UNSUP,
           "node m (call_function operator:floordiv): a number cannot come first");
    cannot("a = placeholder a\nm = call_function operator:getitem((%a,), 1)\n", KILN_E_INDEX,
           "node m: index 1 is out of range");
    cannot("a = placeholder a\noutput = output(1)\n", KILN_E_UNSUP,
           "node output (output output): a result is not a tensor");
}

/* A node that writes what it reads in another order: as kiln_call. */
static void inputs_may_overlap(void **state) {
    (void)state;
    enum { N = 5000 };
    static float f[N];
    kiln_tensor *a, *back, **outs;
    size_t nouts;
    for (int k = 0; k < N; k++) f[k] = (float)k;
    OK(kiln_tensor_wrap(f, KILN_F32, 1, (int64_t[]){N}, NULL, NULL, NULL, &a));
    OK(kiln_tensor_wrap(f + N - 1, KILN_F32, 1, (int64_t[]){N}, (int64_t[]){-1}, NULL, NULL, &back));
    kiln_value inputs[] = {kiln_v_tensor(a), kiln_v_tensor(back)};
    static const char text[] =
        "x = placeholder x\ny = placeholder y\na = call_method add_(%x, %y)\noutput = output(%a)\n";
    OK(run(text, inputs, 2, &outs, &nouts));
    for (int k = 0; k < N; k++) assert_true(f[k] == N - 1);
    kiln_tensor_release(outs[0]);
    kiln_text_free((char *)outs);
    kiln_tensor_release(a);
    kiln_tensor_release(back);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    kiln_graph *g = graph_of(
        "x = placeholder x\na = call_function operator:add(%x, 1)\nb = call_function aten::neg.default(%a)\noutput = output((%b, %a))\n");
    kiln_tensor *x = tensor(1, 2), **outs;
    kiln_value input = kiln_v_tensor(x);
    size_t nouts;
    kiln_status st = KILN_E_NOMEM;
    int failures = 0;
    for (long nth = 1; st != KILN_OK; nth++) {
        kiln_alloc_fail_after(nth);
        st = kiln_graph_run(ctx, g, &input, 1, NULL, NULL, &outs, &nouts);
        kiln_alloc_fail_after(0);
        assert_true(st == KILN_OK || st == KILN_E_NOMEM);
        failures += st != KILN_OK;
    }
    assert_true(failures > 2);
    assert_int_equal(nouts, 2);
    for (size_t i = 0; i < nouts; i++) kiln_tensor_release(outs[i]);
    kiln_text_free((char *)outs);
    kiln_tensor_release(x);
    kiln_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_call_runs),     cmocka_unit_test(operators_mean_what_python_means),
        cmocka_unit_test(what_cannot_be_run_is_named), cmocka_unit_test(inputs_may_overlap),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("graph_run", tests, open_context, close_context);
}
