/* test_call.c - calls through the public interface.
 *
 * Settings, operators, exact results in both modes and every form, prepared kernels, tensors that cross
 * borders. */
#include <math.h>
#include <pthread.h>

#include "call_cases.h"
#include "tensor/dlpack.h"
#include "tensor/tensor.h"

/* -- opening ------------------------------------------------------------------------------------------ */

static kiln_status try_open(const kiln_config *config) {
    kiln_ctx *ctx = (kiln_ctx *)scratch, *before = ctx;
    kiln_status st = kiln_open(config, &ctx);
    if (st == KILN_OK)
        kiln_close(ctx);
    else
        assert_ptr_equal(ctx, before); /* *out is written on success only */
    return st;
}

static void settings_are_checked(void **state) {
    (void)state;
    kiln_config c = {.size = sizeof c, .mode = KILN_MODE_INTERP};
    assert_int_equal(try_open(NULL), KILN_OK);
    assert_int_equal(try_open(&c), KILN_OK);
    c.mode = (kiln_mode)5;
    assert_int_equal(try_open(&c), KILN_E_ARG);
    assert_error_names("unknown mode 5");
    c.mode = (kiln_mode)-1;
    assert_int_equal(try_open(&c), KILN_E_ARG);
    c.mode = KILN_MODE_DEFAULT;
    c.isa = "x86-64-v9";
    assert_true(try_open(&c) != KILN_OK);
    assert_error_names("x86-64-v9");
    c.isa = "";
    assert_true(try_open(&c) != KILN_OK);
    c.isa = "aarch64";
    assert_int_equal(try_open(&c), KILN_E_ARG);
    assert_error_names("does not run");
    c.isa = "generic";
    assert_int_equal(try_open(&c), KILN_OK);
    kiln_close(NULL);
}

/* A caller built against an older, shorter kiln_config sets a smaller size: what it lacks has its default. */
static void config_size_rules(void **state) {
    (void)state;
    kiln_config zero = {0}, c = {.size = 0, .mode = KILN_MODE_INTERP, .isa = "no such level"};
    assert_int_equal(try_open(&zero), KILN_OK);
    assert_int_equal(try_open(&c), KILN_E_ARG); /* size 0 still reads what was set */
    assert_error_names("no such level");
    c.size = sizeof c + 1;
    assert_int_equal(try_open(&c), KILN_E_ARG);
    assert_error_names("size");
    c.size = offsetof(kiln_config, isa);
    assert_int_equal(try_open(&c), KILN_OK);
    c.size = offsetof(kiln_config, mode);
    c.mode = (kiln_mode)77;
    assert_int_equal(try_open(&c), KILN_OK);
}

static void expect_mode(const char *variable, kiln_mode given, const char *mode) {
    char *text = NULL, line[40];
    setenv("KILN_MODE", variable, 1);
    kiln_ctx *ctx = open_mode(given);
    unsetenv("KILN_MODE");
    MUST_OK(kiln_doctor(ctx, &text));
    snprintf(line, sizeof line, "mode: %s\n", mode);
    assert_non_null(strstr(text, line));
    kiln_text_free(text);
    kiln_close(ctx);
}

static void the_environment_sets_the_mode(void **state) {
    (void)state;
    expect_mode("interp", KILN_MODE_DEFAULT, "interp");
    expect_mode("sync", KILN_MODE_DEFAULT, "sync");
    expect_mode("frozen", KILN_MODE_DEFAULT, "frozen");
    expect_mode("tiered", KILN_MODE_DEFAULT, "tiered");
    expect_mode("", KILN_MODE_DEFAULT, "tiered");
    expect_mode("interp", KILN_MODE_SYNC, "sync"); /* settings beat the environment */
    expect_mode("garbage", KILN_MODE_INTERP, "interp");
    static const char *const bad[] = {"garbage", "SYNC", "sync ", "1"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        setenv("KILN_MODE", bad[k], 1);
        assert_int_equal(try_open(NULL), KILN_E_ARG);
        assert_error_names("KILN_MODE");
        assert_error_names("expected tiered, sync, interp or frozen");
    }
    unsetenv("KILN_MODE");
}

/* -- operators ---------------------------------------------------------------------------------------- */

/* Runs before any test of this program parses all rows. */
static void entries_need_no_rows(void **state) {
    (void)state;
    kiln_ctx *ctx = contexts[0];
    size_t n = kiln_op_count(ctx), parsed = 0;
    kiln_op_entry before, after;
    for (size_t k = 0; k < n; k++) {
        assert_int_equal(kiln_op_entry_at(ctx, k, &before), 1);
        parsed += before.op != NULL;
    }
    assert_in_range(parsed, 0, n / 10);
    for (size_t k = 0; k < n; k++) {
        assert_int_equal(kiln_op_entry_at(ctx, k, &before), 1);
        const kiln_op *op = kiln_op_at(ctx, k);
        assert_string_equal(before.name, kiln_op_name(op));
        assert_int_equal(before.served, kiln_op_served(op));
        assert_int_equal(before.nschema, strlen(kiln_op_schema(op)));
        assert_memory_equal(before.schema, kiln_op_schema(op), before.nschema);
        assert_int_equal(kiln_op_entry_find(ctx, kiln_op_name(op), &after), 1);
        assert_ptr_equal(after.op, op);
        assert_memory_equal(after.schema, kiln_op_schema(op), after.nschema + 1);
    }
    assert_int_equal(kiln_op_entry_at(ctx, n, &after), 0);
    assert_int_equal(kiln_op_entry_at(ctx, 0, NULL), 0);
    static const char *const none[] = {"add.Tensor", "aten::ad", "aten::relu.default", "aten::zzzz", ""};
    for (size_t k = 0; k < sizeof none / sizeof *none; k++)
        assert_int_equal(kiln_op_entry_find(ctx, none[k], &after), 0);
}

static void operators_are_found_and_listed(void **state) {
    (void)state;
    kiln_ctx *ctx = contexts[0];
    size_t n = kiln_op_count(ctx), served = 0;
    assert_true(n > 150);
    assert_null(kiln_op_at(ctx, n));
    assert_null(kiln_op_at(ctx, SIZE_MAX));
    for (size_t k = 0; k < n; k++) {
        const kiln_op *op = kiln_op_at(ctx, k);
        if (k) assert_true(strcmp(kiln_op_name(kiln_op_at(ctx, k - 1)), kiln_op_name(op)) < 0);
        if (kiln_op_served(op)) assert_ptr_equal(op_of(ctx, kiln_op_name(op)), op);
        assert_int_equal(strncmp(kiln_op_schema(op), kiln_op_name(op), strlen(kiln_op_name(op))), 0);
        assert_true(kiln_op_nrets(op) <= KILN_MAX_RETS);
        assert_true(kiln_op_row(op)[0] != 0);
        served += (size_t)kiln_op_served(op);
        if (kiln_op_served(op)) assert_non_null(strstr("map fold scan extern compose", kiln_op_family(op)));
    }
    assert_true(served > 100 && served < n);
    assert_string_equal(kiln_op_name(op_of(ctx, "add.Tensor")), "aten::add.Tensor");
    assert_string_equal(kiln_op_form(op_of(ctx, "aten::add.Tensor")), "functional");
    assert_string_equal(kiln_op_form(op_of(ctx, "add_.Tensor")), "inplace");
    assert_string_equal(kiln_op_form(op_of(ctx, "add.out")), "out");
    assert_int_equal(kiln_op_nrets(op_of(ctx, "frexp.Tensor")), 2);
}

/* Found by name, in the list of operators or called: one answer. */
static void what_is_not_served_is_said(void **state) {
    (void)state;
    static const char *const names[] = {"multinomial", "unbind", "linalg_svd",
                                        "aten::mm",    "gather", "gather.out"};
    kiln_ctx *ctx = contexts[0];
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *out;
    const kiln_op *op = NULL;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        assert_int_equal(kiln_op_find(ctx, names[k], &op), KILN_E_UNSUP);
        assert_error_names(" is a PyTorch operator that Kiln does not serve");
        assert_int_equal(kiln_op_choose(ctx, names[k], ARGS(TEN(a)), &op), KILN_E_UNSUP);
        assert_error_names(" is a PyTorch operator that Kiln does not serve");
        assert_null(op);
    }
    for (size_t k = 0; (op = kiln_op_at(ctx, k)) && strcmp(kiln_op_name(op), "aten::gather") != 0;) k++;
    assert_non_null(op);
    assert_int_equal(kiln_call(ctx, op, ARGS(TEN(a), INT(0), TEN(a)), &out, 1), KILN_E_UNSUP);
    assert_error_names("aten::gather is a PyTorch operator that Kiln does not serve");
    const char *row =
        "index my::f(Tensor self, Tensor index) -> Tensor : promote(self) takes index: i64 = self[0: index]\n    out like index";
    assert_int_equal(kiln_ops_load(ctx, row, strlen(row)), KILN_E_UNSUP);
    assert_error_names("rows:1:7: my::f: rows of the family 'index' are not served yet");
    kiln_tensor_release(a);
}

static void a_wrong_name_is_not_found(void **state) {
    (void)state;
    static const char *const bad[] = {
        "", "ad.Tensor", "add.Tenso", "aten::", "aten::add.", "torch::add.Tensor", "::", "."};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        const kiln_op *op = (const kiln_op *)scratch;
        assert_int_equal(kiln_op_find(contexts[0], bad[k], &op), KILN_E_NOTFOUND);
        assert_ptr_equal(op, scratch);
    }
    const kiln_op *op;
    assert_int_equal(kiln_op_find(contexts[0], "add.Tenso", &op), KILN_E_NOTFOUND);
    assert_error_names("add.Tensor");
}

/* -- exact results ------------------------------------------------------------------------------------ */

static void functional_calls_are_exact(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(2, 3), 1, 2, 3, 4, 5, 6), *b = F32(SIZES(3), 10, 20, 30), *out;
    kiln_tensor *i = I32(SIZES(4), INT32_MAX, -7, 7, 0), *j = I32(SIZES(4), 1, 2, -2, 5);
    BOTH(ctx) {
        out = call1(ctx, "add.Tensor", ARGS(TEN(a), TEN(b), NAMED("alpha", FLT(0.5))));
        assert_string_equal(kiln_last_tier(), tier_of(ctx));
        HOLDS_F32(out, SIZES(2, 3), 6, 12, 18, 9, 15, 21);
        kiln_tensor_release(out);
        out = call1(ctx, "aten::add.Tensor", ARGS(NAMED("other", TEN(b)), NAMED("self", TEN(a))));
        HOLDS_F32(out, SIZES(2, 3), 11, 22, 33, 14, 25, 36);
        kiln_tensor_release(out);
        out = call1(ctx, "add.Tensor", ARGS(TEN(i), TEN(j)));
        HOLDS_I32(out, SIZES(4), INT32_MIN, -5, 5, 5); /* integers wrap */
        kiln_tensor_release(out);
        out = call1(ctx, "div.Tensor_mode",
                    ARGS(TEN(i), TEN(j), NAMED("rounding_mode", kiln_v_str("floor"))));
        HOLDS_I32(out, SIZES(4), INT32_MAX, -4, -4, 0);
        kiln_tensor_release(out);
        out = call1(ctx, "div.Tensor_mode",
                    ARGS(TEN(i), TEN(j), NAMED("rounding_mode", kiln_v_str("trunc"))));
        HOLDS_I32(out, SIZES(4), INT32_MAX, -3, -3, 0);
        kiln_tensor_release(out);
        out = call1(ctx, "lt.Tensor", ARGS(TEN(i), TEN(j)));
        HOLDS_BOOL(out, SIZES(4), 0, 1, 0, 1);
        kiln_tensor_release(out);
        out = call1(ctx, "clamp", ARGS(TEN(a), kiln_v_none(), FLT(4.5)));
        HOLDS_F32(out, SIZES(2, 3), 1, 2, 3, 4, 4.5f, 4.5f);
        kiln_tensor_release(out);
    }
    drop_args(ARGS(TEN(a), TEN(b), TEN(i), TEN(j)));
}

static void in_place_and_out_calls_write_the_given_tensor(void **state) {
    (void)state;
    BOTH(ctx) {
        kiln_tensor *a = F32(SIZES(2, 2), 1, 2, 3, 4), *b = F32(SIZES(2), 10, 20), *out;
        out = call1(ctx, "add_.Tensor", ARGS(TEN(a), TEN(b)));
        assert_ptr_equal(out, a);
        assert_int_equal(atomic_load(&a->refs), 2);
        HOLDS_F32(a, SIZES(2, 2), 11, 22, 13, 24);
        kiln_tensor_release(out);
        out = call1(ctx, "mul_.Tensor", ARGS(TEN(a), TEN(a)));
        HOLDS_F32(a, SIZES(2, 2), 121, 484, 169, 576);
        kiln_tensor_release(out);
        kiln_tensor *wide = new_tensor(KILN_F64, SIZES(2, 2), NULL),
                    *empty = new_tensor(KILN_F32, SIZES(0), NULL);
        out = call1(ctx, "add.out",
                    ARGS(TEN(a), TEN(b), NAMED("out", TEN(wide)))); /* converted on the way out */
        assert_ptr_equal(out, wide);
        assert_holds(wide, (const double[]){131, 504, 179, 596}, KILN_F64, SIZES(2, 2));
        kiln_tensor_release(out);
        out = call1(ctx, "add.out", ARGS(TEN(a), TEN(b), NAMED("out", TEN(empty)))); /* resized */
        assert_ptr_equal(out, empty);
        HOLDS_F32(empty, SIZES(2, 2), 131, 504, 179, 596);
        kiln_tensor_release(out);
        kiln_tensor *gaps = new_tensor(KILN_F32, SIZES(2, 2), STRIDES(8, 3)); /* keeps its strides */
        out = call1(ctx, "add.out", ARGS(TEN(a), TEN(b), NAMED("out", TEN(gaps))));
        const float *g = kiln_tensor_data(gaps);
        assert_true(g[0] == 131 && g[3] == 504 && g[8] == 179 && g[11] == 596);
        kiln_tensor_release(out);
        drop_args(ARGS(TEN(a), TEN(b), TEN(wide), TEN(empty), TEN(gaps)));
    }
}

/* `out copied`: all is computed before the first element is written, whatever an earlier call of the class did. */
static void out_forms_that_copy_may_overlap(void **state) {
    (void)state;
    BOTH(ctx) {
        float memory[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        kiln_tensor *low = NULL, *high = NULL, *turned = NULL, *far = F32(SIZES(2, 2), 0, 0, 0, 0), *out;
        MUST_OK(kiln_tensor_wrap(memory, KILN_F32, SIZES(2, 2), NULL, NULL, NULL, &low));
        MUST_OK(kiln_tensor_wrap(memory + 1, KILN_F32, SIZES(2, 2), NULL, NULL, NULL, &high));
        MUST_OK(kiln_tensor_wrap(memory, KILN_F32, SIZES(2, 2), STRIDES(1, 2), NULL, NULL, &turned));
        for (int k = 0; k < 3; k++) {
            out = call1(ctx, "add.Scalar_out", ARGS(TEN(low), kiln_v_float(10), NAMED("out", TEN(far))));
            HOLDS_F32(far, SIZES(2, 2), 11, 12, 13, 14);
            kiln_tensor_release(out);
        }
        out = call1(ctx, "add.Scalar_out", ARGS(TEN(low), kiln_v_float(10), NAMED("out", TEN(high))));
        assert_ptr_equal(out, high);
        HOLDS_F32(high, SIZES(2, 2), 11, 12, 13, 14);
        kiln_tensor_release(out);
        out = call1(ctx, "mul.Scalar_out", ARGS(TEN(low), kiln_v_float(2), NAMED("out", TEN(turned))));
        HOLDS_F32(low, SIZES(2, 2), 2, 24, 22, 26); /* its transpose was written over it */
        drop_args(ARGS(TEN(low), TEN(high), TEN(turned), TEN(far), TEN(out)));
    }
}

static void several_results(void **state) {
    (void)state;
    BOTH(ctx) {
        kiln_tensor *x = F32(SIZES(5), 8, -0.75f, 0, 1e-40f, INFINITY),
                    *outs[3] = {NULL, NULL, (kiln_tensor *)scratch};
        MUST_OK(kiln_call(ctx, op_of(ctx, "frexp.Tensor"), ARGS(TEN(x)), outs, 3));
        HOLDS_I32(outs[1], SIZES(5), 4, 0, 0, -132, 0);
        HOLDS_F32(outs[0], SIZES(5), 0.5f, -0.75f, 0, 1e-40f * 0x1p66f * 0x1p66f, INFINITY);
        assert_ptr_equal(outs[2], scratch);
        kiln_tensor *m = new_tensor(KILN_F32, SIZES(2, 2), NULL), *e = new_tensor(KILN_I32, SIZES(1), NULL),
                    *w[2];
        MUST_OK(kiln_call(ctx, op_of(ctx, "frexp.Tensor_out"),
                          ARGS(TEN(x), NAMED("mantissa", TEN(m)), NAMED("exponent", TEN(e))), w, 2));
        assert_ptr_equal(w[0], m);
        assert_ptr_equal(w[1], e);
        HOLDS_I32(e, SIZES(5), 4, 0, 0, -132, 0);
        drop_args(ARGS(TEN(x), TEN(outs[0]), TEN(outs[1]), TEN(m), TEN(e), TEN(w[0]), TEN(w[1])));
    }
}

static void results_follow_permuted_inputs(void **state) {
    (void)state;
    BOTH(ctx) {
        float values[24];
        for (int k = 0; k < 24; k++) values[k] = (float)k;
        kiln_tensor *x = NULL, *row = F32(SIZES(4), 100, 200, 300, 400), *y;
        MUST_OK(kiln_tensor_wrap(values, KILN_F32, SIZES(2, 3, 4), STRIDES(1, 8, 2), NULL, NULL, &x));
        y = call1(ctx, "neg", ARGS(TEN(x)));
        assert_memory_equal(kiln_tensor_strides(y), STRIDES(1, 8, 2), 3 * sizeof(int64_t));
        for (int k = 0; k < 24; k++) assert_true(((float *)kiln_tensor_data(y))[k] == -values[k]);
        kiln_tensor_release(y);
        y = call1(ctx, "add.Tensor", ARGS(TEN(x), TEN(row)));
        assert_memory_equal(kiln_tensor_strides(y), STRIDES(1, 8, 2), 3 * sizeof(int64_t));
        for (int k = 0; k < 24; k++)
            assert_true(((float *)kiln_tensor_data(y))[k] == values[k] + 100.0f * (float)(k / 2 % 4 + 1));
        drop_args(ARGS(TEN(x), TEN(row), TEN(y)));
        MUST_OK(kiln_tensor_wrap(values + 23, KILN_F32, SIZES(24), STRIDES(-1), NULL, NULL,
                                 &x)); /* read backwards */
        y = call1(ctx, "neg", ARGS(TEN(x)));
        for (int k = 0; k < 24; k++) assert_true(((float *)kiln_tensor_data(y))[k] == -values[23 - k]);
        drop_args(ARGS(TEN(x), TEN(y)));
    }
}

static void no_elements_and_no_dimensions(void **state) {
    (void)state;
    BOTH(ctx) {
        kiln_tensor *none = new_tensor(KILN_I32, SIZES(3, 0, 2), NULL), *zero = I32(SIZES(1), 0), *out;
        out = call1(ctx, "floor_divide", ARGS(TEN(none), TEN(zero))); /* no element is divided */
        assert_shape(out, KILN_I32, SIZES(3, 0, 2));
        kiln_tensor_release(out);
        kiln_tensor *d = tensor_of((const double[]){2.5}, KILN_F64, 0, NULL), *f = F32(SIZES(2), 1, 2);
        out = call1(ctx, "mul.Tensor", ARGS(TEN(d), TEN(d)));
        assert_holds(out, (const double[]){6.25}, KILN_F64, 0, NULL);
        kiln_tensor_release(out);
        out = call1(ctx, "mul.Tensor", ARGS(TEN(f), TEN(d))); /* a tensor without dimensions does not widen */
        HOLDS_F32(out, SIZES(2), 2.5f, 5);
        drop_args(ARGS(TEN(none), TEN(zero), TEN(out), TEN(d), TEN(f)));
    }
}

/* Every other dimension broadcast, so that none can be merged: the driver walks them all. */
static void rank_64(void **state) {
    (void)state;
    int64_t a_sizes[KILN_MAX_RANK], b_sizes[KILN_MAX_RANK], sizes[KILN_MAX_RANK];
    for (int d = 0; d < KILN_MAX_RANK; d++) {
        bool wide = d % 5 == 4;
        a_sizes[d] = wide && d / 5 % 2 == 0 ? 2 : 1;
        b_sizes[d] = wide && d / 5 % 2 == 1 ? 2 : 1;
        sizes[d] = wide ? 2 : 1;
    }
    kiln_tensor *a = new_tensor(KILN_I64, KILN_MAX_RANK, a_sizes, NULL),
                *b = new_tensor(KILN_I64, KILN_MAX_RANK, b_sizes, NULL);
    for (int64_t k = 0; k < kiln_tensor_nelem(a); k++) ((int64_t *)kiln_tensor_data(a))[k] = 1000 * k;
    for (int64_t k = 0; k < kiln_tensor_nelem(b); k++) ((int64_t *)kiln_tensor_data(b))[k] = k;
    BOTH(ctx) {
        kiln_tensor *out = call1(ctx, "add.Tensor", ARGS(TEN(a), TEN(b)));
        assert_shape(out, KILN_I64, KILN_MAX_RANK, sizes);
        assert_int_equal(kiln_tensor_nelem(out), 1 << 12);
        for (int64_t k = 0; k < kiln_tensor_nelem(out); k++) {
            int64_t i = 0, j = 0; /* bits of k belong to a and b in turn, a first */
            for (int bit = 11; bit >= 0; bit -= 2) {
                i = 2 * i + (k >> bit & 1);
                j = 2 * j + (k >> (bit - 1) & 1);
            }
            assert_int_equal(((int64_t *)kiln_tensor_data(out))[k], 1000 * i + j);
        }
        kiln_tensor_release(out);
    }
    drop_args(ARGS(TEN(a), TEN(b)));
}

/* -- prepared kernels --------------------------------------------------------------------------------- */

static void a_prepared_kernel_serves_its_class(void **state) {
    (void)state;
    BOTH(ctx) { /* in interp mode too: the caller asked */
        kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *b = F32(SIZES(3), 4, 5, 6), *d = F64(SIZES(3), 1, 2, 3),
                    *out = NULL;
        kiln_tensor *m = F32(SIZES(2, 2), 1, 2, 3, 4), *one = F32(SIZES(1), 1);
        const kiln_op *sub = op_of(ctx, "sub.Tensor");
        kiln_kernel *k = NULL;
        kiln_stats before = stats_of(ctx);
        MUST_OK(kiln_prepare(ctx, sub, ARGS(TEN(a), TEN(b)), &k));
        kiln_stats after = stats_of(ctx); /* another operator that was called before may have equal code */
        assert_int_equal(after.compiles + after.memory_hits, before.compiles + before.memory_hits + 1);
        MUST_OK(kiln_kernel_run(k, ARGS(TEN(b), TEN(a)), &out, 1));
        assert_string_equal(kiln_last_tier(), "compiled");
        HOLDS_F32(out, SIZES(3), 3, 3, 3);
        kiln_tensor_release(out);
        MUST_OK(kiln_kernel_run(k, ARGS(TEN(m), TEN(m), NAMED("alpha", INT(3))), &out,
                                1)); /* another shape and value */
        HOLDS_F32(out, SIZES(2, 2), -2, -4, -6, -8);
        kiln_tensor_release(out);
        kiln_tensor *untouched = (kiln_tensor *)scratch;
        out = untouched;
        assert_int_equal(kiln_kernel_run(k, ARGS(TEN(a), TEN(d)), &out, 1), KILN_E_ARG);
        assert_error_names("another class");
        assert_int_equal(kiln_kernel_run(k, ARGS(TEN(m), TEN(one)), &out, 1),
                         KILN_E_ARG); /* broadcast is other code */
        assert_int_equal(kiln_kernel_run(k, ARGS(TEN(a)), &out, 1), KILN_E_TYPE);
        assert_int_equal(kiln_kernel_run(k, ARGS(TEN(a), TEN(b)), &out, 0), KILN_E_ARG);
        assert_ptr_equal(out, untouched);
        assert_int_equal(stats_of(ctx).calls, before.calls + 2);
        kiln_kernel_release(k);
        kiln_kernel_release(NULL);
        drop_args(ARGS(TEN(a), TEN(b), TEN(d), TEN(m), TEN(one)));
    }
}

static void *tier_of_a_new_thread(void *unused) {
    (void)unused;
    static char text[16];
    snprintf(text, sizeof text, "%s", kiln_last_tier());
    return text;
}

static void the_last_tier_is_the_threads_own(void **state) {
    (void)state;
    pthread_t thread;
    void *text = NULL;
    check_add(contexts[0]);
    assert_string_equal(kiln_last_tier(), "interp");
    check_add(contexts[1]);
    assert_string_equal(kiln_last_tier(), "compiled");
    kiln_tensor *out;
    assert_true(kiln_call(contexts[0], op_of(contexts[0], "neg"), NULL, 0, &out, 1) != KILN_OK);
    assert_string_equal(kiln_last_tier(), "compiled"); /* of the last success */
    assert_int_equal(pthread_create(&thread, NULL, tier_of_a_new_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, &text), 0);
    assert_string_equal(text, "");
}

/* -- memory that crosses borders ---------------------------------------------------------------------- */

static void tensors_outlive_their_context(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    kiln_tensor *a = F32(SIZES(2), 1, 2), *b = call1(ctx, "neg", ARGS(TEN(a)));
    kiln_close(ctx);
    HOLDS_F32(b, SIZES(2), -1, -2);
    kiln_tensor *c = call1(contexts[0], "add.Tensor", ARGS(TEN(a), TEN(b)));
    HOLDS_F32(c, SIZES(2), 0, 0);
    drop_args(ARGS(TEN(a), TEN(b), TEN(c)));
}

static void dlpack_round_trip(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(2, 2), 1, 2, 3, 4),
                *sum = call1(contexts[1], "add.Tensor", ARGS(TEN(a), TEN(a))), *back = NULL;
    void *managed = NULL;
    MUST_OK(kiln_tensor_to_dlpack(sum, &managed));
    MUST_OK(kiln_tensor_from_dlpack(managed, &back));
    assert_ptr_equal(kiln_tensor_data(back), kiln_tensor_data(sum));
    kiln_tensor_release(sum);
    kiln_tensor *twice = call1(contexts[1], "add_.Tensor", ARGS(TEN(back), TEN(a)));
    HOLDS_F32(twice, SIZES(2, 2), 3, 6, 9, 12);
    drop_args(ARGS(TEN(a), TEN(back), TEN(twice)));
}

/* A call that PyTorch warns of is refused if PyTorch's dispatcher makes it, and answered if not.  Neither kind of call may find
 * the memo of the other.  Rows of other namespaces than aten:: have no kernel of PyTorch's to hand a call back to. */
static void checks_for_torch(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    const kiln_op *std = op_of(ctx, "std"), *for_torch = kiln_op_for_torch(std), *neg = op_of(ctx, "neg");
    assert_ptr_not_equal(std, for_torch);
    assert_ptr_equal(kiln_op_for_torch(neg), neg);
    assert_string_equal(kiln_op_name(std), kiln_op_name(for_torch));
    for (int64_t n = 1; n < 3; n++) {
        kiln_tensor *x = new_tensor(KILN_F32, 1, &n, NULL), *out = NULL;
        memset(kiln_tensor_data(x), 0, (size_t)n * sizeof(float));
        for (int k = 0; k < 3; k++) {
            MUST_OK(kiln_call(ctx, std, ARGS(TEN(x)), &out, 1));
            kiln_tensor_release(out);
            kiln_status st = kiln_call(ctx, for_torch, ARGS(TEN(x)), &out, 1);
            assert_int_equal(st, n == 1 ? KILN_E_ARG : KILN_OK);
            if (st == KILN_OK) kiln_tensor_release(out);
        }
        kiln_tensor_release(x);
    }
    static const char mine[] = "map my::f(Tensor self) -> Tensor = self\n    check torch true : \"a\"";
    assert_int_equal(kiln_ops_load(ctx, mine, sizeof mine - 1), KILN_E_PARSE);
    assert_non_null(strstr(kiln_last_error(), "only operators of aten:: have a kernel of PyTorch's"));
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_need_no_rows),
        cmocka_unit_test(checks_for_torch),
        cmocka_unit_test(settings_are_checked),
        cmocka_unit_test(config_size_rules),
        cmocka_unit_test(the_environment_sets_the_mode),
        cmocka_unit_test(operators_are_found_and_listed),
        cmocka_unit_test(what_is_not_served_is_said),
        cmocka_unit_test(a_wrong_name_is_not_found),
        cmocka_unit_test(functional_calls_are_exact),
        cmocka_unit_test(in_place_and_out_calls_write_the_given_tensor),
        cmocka_unit_test(out_forms_that_copy_may_overlap),
        cmocka_unit_test(several_results),
        cmocka_unit_test(results_follow_permuted_inputs),
        cmocka_unit_test(no_elements_and_no_dimensions),
        cmocka_unit_test(rank_64),
        cmocka_unit_test(a_prepared_kernel_serves_its_class),
        cmocka_unit_test(the_last_tier_is_the_threads_own),
        cmocka_unit_test(tensors_outlive_their_context),
        cmocka_unit_test(dlpack_round_trip),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
