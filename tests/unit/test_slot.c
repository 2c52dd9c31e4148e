/* test_slot.c - calls that a slot answers, by a kernel and by the interpreter, and calls that it must not.
 *
 * A context that remembers nothing says what each call means: same status, same message, same results.  Counters say
 * which path was taken. */
#include <fenv.h>

#include "tier_compare.h"

static void drop(kiln_tensor *t) { kiln_tensor_release(t); }

static uint64_t slot_hits(void) { return stats_of(contexts[1]).slot_hits; }

/* Calls in ctx; *text is the message of a failure.  Written tensors are the caller's to look at. */
static kiln_status call_in(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t n,
                           kiln_tensor **outs, char *text) {
    kiln_status st = kiln_call(ctx, op_of(ctx, name), args, n, outs, KILN_MAX_RETS);
    snprintf(text, WHY_MAX, "%s", st ? kiln_last_error() : "");
    char *place = strrchr(text, '['); /* where in the source it was found may differ */
    if (st && place) *place = 0;
    return st;
}

/* The call means the same with slots as without.  Nothing of it may be written. */
static kiln_status agree_at(int line, const char *name, const kiln_value *args, size_t n) {
    kiln_tensor *one[KILN_MAX_RETS] = {0}, *two[KILN_MAX_RETS] = {0};
    char why[WHY_MAX] = "", said[2][WHY_MAX];
    kiln_status a = call_in(contexts[0], name, args, n, one, said[0]);
    kiln_status b = call_in(contexts[1], name, args, n, two, said[1]);
    if (a != b || strcmp(said[0], said[1]) != 0)
        fail_msg("line %d: %s: '%s' and '%s'", line, name, said[0], said[1]);
    for (int k = 0; k < KILN_MAX_RETS; k++) {
        if (one[k] && !same_results(one[k], two[k], why)) fail_msg("line %d: %s: %s", line, name, why);
        drop(one[k]);
        drop(two[k]);
    }
    return a;
}
#define AGREE(name, ...) agree_at(__LINE__, name, ARGS(__VA_ARGS__))
#define HITS(n, ...)                                                                              \
    do {                                                                                          \
        uint64_t before_ = slot_hits();                                                           \
        __VA_ARGS__;                                                                              \
        if (slot_hits() != before_ + (n)) fail_msg("%d slot hits", (int)(slot_hits() - before_)); \
    } while (0)

static kiln_tensor *filled(kiln_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides) {
    static uint64_t seed = 7;
    int64_t dense[8];
    if (!strides) kiln_row_major(rank, sizes, dense);
    return guarded_filled(dtype, rank, sizes, strides ? strides : dense, &seed, false);
}

/* Calls until the slot answers. */
static void warm(const char *name, const kiln_value *args, size_t n) {
    for (int k = 0; k < 3; k++) assert_int_equal(agree_at(0, name, args, n), KILN_OK);
}

/* -- what a slot answers ---------------------------------------------------------------------------------------- */

static void one_slot_for_every_shape(void **state) {
    (void)state;
    static const struct tier_shape more[] = {{1, {1}},     {1, {7}},    {2, {3, 5}},   {3, {2, 1, 4}},
                                             {1, {40000}}, {2, {1, 9}}, {3, {1, 1, 1}}};
    kiln_tensor *x = filled(KILN_F32, SIZES(4), NULL), *y = filled(KILN_F32, SIZES(4), NULL);
    warm("add.Tensor", ARGS(TEN(x), TEN(y), NAMED("alpha", FLT(2))));
    drop(x), drop(y);
    for (size_t k = 0; k < sizeof more / sizeof *more; k++) {
        x = filled(KILN_F32, more[k].rank, more[k].sizes, NULL);
        y = filled(KILN_F32, more[k].rank, more[k].sizes, NULL);
        HITS(1, AGREE("add.Tensor", TEN(x), TEN(y), NAMED("alpha", FLT(0.1))));
        HITS(1, AGREE("add.Tensor", TEN(x), TEN(x), NAMED("alpha", FLT(INFINITY))));
        drop(x), drop(y);
    }
}

/* Shapes in turn that agree in rank, in the number of elements, or in both. */
static void shapes_that_resemble_the_last(void **state) {
    (void)state;
    static const struct {
        int rank;
        int64_t sizes[4];
    } turns[] = {{2, {4, 8}}, {2, {8, 4}},       {1, {32}},         {2, {2, 16}},
                 {2, {1, 8}}, {4, {2, 1, 4, 4}}, {4, {2, 4, 1, 4}}, {4, {2, 2, 2, 4}}};
    kiln_tensor *x = filled(KILN_I32, SIZES(4), NULL);
    for (int k = 0; k < 2; k++) { /* a new class ends what slots hold */
        warm("bitwise_not", ARGS(TEN(x)));
        warm("bitwise_and.Tensor", ARGS(TEN(x), TEN(x)));
    }
    drop(x);
    for (int round = 0; round < 3; round++)
        for (size_t k = 0; k < sizeof turns / sizeof *turns; k++) {
            kiln_tensor *y = filled(KILN_I32, turns[k].rank, turns[k].sizes, NULL);
            x = filled(KILN_I32, turns[k].rank, turns[k].sizes, NULL);
            for (int again = 0; again < 2; again++) {
                HITS(1, AGREE("bitwise_not", TEN(x)));
                HITS(1, AGREE("bitwise_and.Tensor", TEN(x), TEN(y)));
            }
            drop(x), drop(y);
        }
}

static void borrowed_wrapped_and_read_only_inputs_share_a_slot(void **state) {
    (void)state;
    int32_t memory[6] = {1, -2, 3, 4, 5, 6};
    const int64_t sizes[] = {2, 3}, strides[] = {3, 1};
    kiln_tensor_header h;
    kiln_tensor *x = I32(SIZES(2, 3), 1, 2, 3, 4, 5, 6), *t;
    warm("bitwise_not", ARGS(TEN(x)));
    MUST_OK(kiln_tensor_wrap(memory, KILN_I32, 2, sizes, strides, NULL, NULL, &t));
    HITS(1, AGREE("bitwise_not", TEN(t)));
    kiln_tensor_set_readonly(t);
    HITS(1, AGREE("bitwise_not", TEN(t)));
    drop(t);
    MUST_OK(kiln_tensor_borrow(&h, memory, KILN_I32, 2, sizes, strides, 1, &t));
    HITS(1, AGREE("bitwise_not", TEN(t)));
    drop(x);
}

static void names_are_read_where_they_are(void **state) {
    (void)state;
    kiln_tensor *x = F32(SIZES(2), 1, 2);
    char name[] = "alpha";
    warm("add.Tensor", ARGS(TEN(x), TEN(x), NAMED(name, FLT(2))));
    HITS(1, AGREE("add.Tensor", TEN(x), TEN(x), NAMED(name, FLT(3))));
    HITS(1, AGREE("add.Tensor", TEN(x), TEN(x),
                  NAMED(kiln_op_arg_name(op_of(contexts[1], "add.Tensor"), 2), FLT(3))));
    name[4] = 'o'; /* the same place says something else */
    HITS(0, assert_int_equal(AGREE("add.Tensor", TEN(x), TEN(x), NAMED(name, FLT(3))), KILN_E_TYPE));
    assert_int_equal(AGREE("add.Tensor", TEN(x), NAMED("self", TEN(x)), NAMED("alpha", FLT(3))), KILN_E_TYPE);
    AGREE("add.Tensor", NAMED("other", TEN(x)), NAMED("self", TEN(x)), NAMED("alpha", FLT(3)));
    assert_null(kiln_op_arg_name(op_of(contexts[1], "add.Tensor"), 3));
    drop(x);
}

/* Halves are truncated before they are rounded where the divisor has one element (ops/arithmetic.ops). */
static void one_element_is_not_many(void **state) {
    (void)state;
    kiln_tensor *x = filled(KILN_BF16, SIZES(1), NULL), *many = filled(KILN_BF16, SIZES(9), NULL);
    warm("div.Tensor_mode", ARGS(TEN(x), TEN(x), NAMED("rounding_mode", kiln_v_str("trunc"))));
    HITS(1, AGREE("div.Tensor_mode", TEN(x), TEN(x), NAMED("rounding_mode", kiln_v_str("trunc"))));
    HITS(0, AGREE("div.Tensor_mode", TEN(many), TEN(many), NAMED("rounding_mode", kiln_v_str("trunc"))));
    drop(x), drop(many);
}

static void texts_are_read(void **state) {
    (void)state;
    kiln_tensor *x = filled(KILN_F32, SIZES(9), NULL), *y = filled(KILN_F32, SIZES(9), NULL);
    char mode[8] = "floor";
    warm("div.Tensor_mode", ARGS(TEN(x), TEN(y), NAMED("rounding_mode", kiln_v_str(mode))));
    HITS(1, AGREE("div.Tensor_mode", TEN(y), TEN(x), NAMED("rounding_mode", kiln_v_str("floor"))));
    strcpy(mode, "trunc");
    HITS(0, AGREE("div.Tensor_mode", TEN(x), TEN(y), NAMED("rounding_mode", kiln_v_str(mode))));
    AGREE("div.Tensor_mode", TEN(x), TEN(y), NAMED("rounding_mode", kiln_v_none()));
    AGREE("div.Tensor_mode", TEN(x), TEN(y), NAMED("rounding_mode", kiln_v_str("round")));
    AGREE("div.Tensor_mode", TEN(x), TEN(y), NAMED("rounding_mode", kiln_v_str(NULL)));
    drop(x), drop(y);
}

/* -- shapes and layouts ------------------------------------------------------------------------------------------- */

static void sizes_are_compared_among_tensors(void **state) {
    (void)state;
    kiln_tensor *x = filled(KILN_F32, SIZES(2, 3), NULL), *y = filled(KILN_F32, SIZES(2, 3), NULL);
    kiln_tensor *row = filled(KILN_F32, SIZES(3), NULL), *turned = filled(KILN_F32, SIZES(3, 2), NULL);
    kiln_tensor *deep = filled(KILN_F32, SIZES(1, 2, 3), NULL), *flat = filled(KILN_F32, SIZES(6), NULL);
    kiln_tensor *none = filled(KILN_F32, SIZES(0, 3), NULL);
    warm("mul.Tensor", ARGS(TEN(x), TEN(y)));
    HITS(0, AGREE("mul.Tensor", TEN(x), TEN(row)));
    HITS(0, AGREE("mul.Tensor", TEN(row), TEN(x)));
    warm("mul.Tensor", ARGS(TEN(x), TEN(y)));
    HITS(0, AGREE("mul.Tensor", TEN(x), TEN(deep)));
    warm("mul.Tensor", ARGS(TEN(x), TEN(y)));
    HITS(0, assert_int_equal(AGREE("mul.Tensor", TEN(x), TEN(turned)), KILN_E_ARG));
    HITS(0, assert_int_equal(AGREE("mul.Tensor", TEN(x), TEN(flat)), KILN_E_ARG));
    HITS(0, assert_int_equal(AGREE("mul.Tensor", TEN(x), TEN(none)), KILN_E_ARG));
    HITS(0, AGREE("mul.Tensor", TEN(none), TEN(none)));
    drop(x), drop(y), drop(row), drop(turned), drop(deep), drop(flat), drop(none);
}

static void other_strides_miss(void **state) {
    (void)state;
    static float memory[64];
    kiln_tensor *x = filled(KILN_F32, SIZES(3, 4), NULL), *back;
    kiln_tensor *others[] = {
        filled(KILN_F32, SIZES(3, 4), STRIDES(1, 3)), filled(KILN_F32, SIZES(3, 4), STRIDES(8, 2)),
        filled(KILN_F32, SIZES(3, 4), STRIDES(0, 1)), filled(KILN_F32, SIZES(3, 4), STRIDES(5, 1)),
        filled(KILN_F32, SIZES(1, 4), STRIDES(1, 1)), filled(KILN_F32, SIZES(3, 1), STRIDES(1, 9))};
    MUST_OK(kiln_tensor_wrap(memory + 40, KILN_F32, SIZES(3, 4), STRIDES(-4, -1), NULL, NULL, &back));
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        warm("neg", ARGS(TEN(x)));
        HITS(0, AGREE("neg", TEN(others[k])));
        warm("mul.Scalar", ARGS(TEN(x), FLT(3)));
        HITS(0,
             AGREE("mul.Scalar", TEN(others[k]), FLT(3))); /* one-sized dimensions keep PyTorch's strides */
        warm("mul.Tensor", ARGS(TEN(x), TEN(x)));
        HITS(0, AGREE("mul.Tensor", TEN(x), TEN(others[k])));
        warm("mul.Tensor", ARGS(TEN(x), TEN(x)));
        HITS(0, AGREE("mul.Tensor", TEN(others[k]), TEN(x)));
        drop(others[k]);
    }
    warm("neg", ARGS(TEN(x)));
    HITS(0, AGREE("neg", TEN(back)));
    drop(back), drop(x);
}

static void tensors_of_rank_zero(void **state) {
    (void)state;
    kiln_tensor *x = filled(KILN_F32, SIZES(5), NULL), *one = filled(KILN_F32, SIZES(1), NULL);
    kiln_tensor *wide = filled(KILN_F32, SIZES(3, 70), NULL);
    kiln_tensor *zero = filled(KILN_F64, 0, NULL, NULL), *zero32 = filled(KILN_F32, 0, NULL, NULL);
    kiln_tensor *one64 = filled(KILN_F64, SIZES(1), NULL);
    warm("add.Tensor", ARGS(TEN(one), TEN(zero))); /* one element: not the class of what follows */
    AGREE("add.Tensor", TEN(x), TEN(zero));
    AGREE("add.Tensor", TEN(x), TEN(zero));
    HITS(1, AGREE("add.Tensor", TEN(wide), TEN(zero)));
    HITS(1, AGREE("add.Tensor", TEN(one), TEN(zero)));
    HITS(0, AGREE("add.Tensor", TEN(x), TEN(one64))); /* f64, though of the same dtypes */
    HITS(0, AGREE("add.Tensor", TEN(zero), TEN(x)));
    warm("add.Tensor", ARGS(TEN(zero), TEN(zero)));
    HITS(0, AGREE("add.Tensor", TEN(zero), TEN(zero32)));
    HITS(0, AGREE("add.Tensor", TEN(zero), TEN(x)));
    drop(x), drop(one), drop(wide), drop(zero), drop(zero32), drop(one64);
}

/* -- numbers -------------------------------------------------------------------------------------------------------- */

static void numbers_change_value_and_kind(void **state) {
    (void)state;
    const kiln_value numbers[] = {INT(2),
                                  FLT(2),
                                  FLT(0.1),
                                  FLT(NAN),
                                  FLT(-0.0),
                                  FLT(1e300),
                                  FLT(-INFINITY),
                                  INT(INT64_MAX),
                                  INT(1 << 24 | 1),
                                  kiln_v_bool(1),
                                  FLT(0x1.fffffffp127),
                                  INT(INT64_MIN),
                                  kiln_v_uint(UINT64_C(1) << 63 | 1025),
                                  kiln_v_uint(UINT64_MAX),
                                  kiln_v_complex(1, 2),
                                  kiln_v_complex(2, 0),
                                  FLT(3e9),
                                  FLT(1e-45),
                                  kiln_v_none()};
    static const kiln_dtype dtypes[] = {KILN_F32, KILN_I32, KILN_F16, KILN_I64, KILN_F64, KILN_U64};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        kiln_tensor *x = filled(dtypes[d], SIZES(6), NULL);
        for (size_t a = 0; a < sizeof numbers / sizeof *numbers; a++)
            for (size_t b = 0; b < sizeof numbers / sizeof *numbers; b++) {
                for (int k = 0; k < 2; k++) AGREE("add.Tensor", TEN(x), TEN(x), NAMED("alpha", numbers[a]));
                AGREE("add.Tensor", TEN(x), TEN(x), NAMED("alpha", numbers[b]));
                AGREE("mul.Scalar", TEN(x), numbers[b]);
            }
        drop(x);
    }
}

/* A condition asks the value: another one may take another branch, or be refused. */
/* A default is converted when the memo is made, in the mode of that call. */
static void defaults_in_another_rounding_mode(void **state) {
    (void)state;
    kiln_tensor *x = F32(SIZES(2, 2), -3, -5, 3, 1), *turned;
    MUST_OK(
        kiln_tensor_wrap(kiln_tensor_data(x), KILN_F32, SIZES(2, 2), (int64_t[]){1, 2}, NULL, NULL, &turned));
    for (int k = 0; k < 2; k++) {
        kiln_tensor *t = k ? turned : x;
        for (int call = 0; call < 20; call++) AGREE("leaky_relu", TEN(t)); /* a slope of 0.01 */
        HITS(1, AGREE("leaky_relu", TEN(t)));
        fesetround(FE_UPWARD);
        HITS(0, AGREE("leaky_relu", TEN(t)));
        fesetround(FE_TONEAREST);
        AGREE("leaky_relu", TEN(t));
    }
    drop(turned), drop(x);
}

static void values_that_conditions_ask(void **state) {
    (void)state;
    const kiln_value exponents[] = {INT(2), INT(3),    INT(0), INT(-1),  FLT(0.5),
                                    FLT(2), FLT(-0.5), FLT(3), FLT(NAN), kiln_v_uint(UINT64_MAX)};
    kiln_tensor *x = filled(KILN_F32, SIZES(20), NULL), *i = filled(KILN_I32, SIZES(20), NULL);
    for (size_t a = 0; a < sizeof exponents / sizeof *exponents; a++) {
        for (int k = 0; k < 3; k++) AGREE("pow.Tensor_Scalar", TEN(x), exponents[a]);
        for (size_t b = 0; b < sizeof exponents / sizeof *exponents; b++) {
            AGREE("pow.Tensor_Scalar", TEN(x), exponents[b]);
            AGREE("pow.Tensor_Scalar", TEN(i), exponents[b]);
        }
    }
    drop(x), drop(i);
}

/* The two lists differ only in the numbers that they hold. */
static void lists_that_conditions_ask(void **state) {
    static const char row[] = "map my::listed(Tensor self, int[] w) -> Tensor : takes all\n"
                              "    when w[0] == 2 = self + self\n"
                              "    when w[0] != 2 = self\n";
    const kiln_value two[] = {INT(2), INT(3), INT(4)}, three[] = {INT(3), INT(2), INT(4)};
    (void)state;
    BOTH(ctx) MUST_OK(kiln_ops_load(ctx, row, strlen(row)));
    kiln_tensor *x = filled(KILN_F32, SIZES(20), NULL);
    for (uint32_t n = 1; n <= 3; n++) {
        warm("my::listed", ARGS(TEN(x), kiln_v_list(two, n)));
        AGREE("my::listed", TEN(x), kiln_v_list(three, n));
        AGREE("my::listed", TEN(x), kiln_v_list(two, n));
        AGREE("my::listed", TEN(x), kiln_v_list(two, 0));
    }
    drop(x);
}

static void optional_arguments_come_and_go(void **state) {
    (void)state;
    kiln_tensor *x = filled(KILN_F32, SIZES(20), NULL);
    for (int k = 0; k < 3; k++) {
        AGREE("clamp", TEN(x), FLT(-1), FLT(1));
        AGREE("clamp", TEN(x), FLT(-1));
        AGREE("clamp", TEN(x), kiln_v_none(), FLT(1));
        AGREE("clamp", TEN(x), INT(-1), FLT(1));
        AGREE("clamp", TEN(x), NAMED("max", FLT(1)));
        AGREE("clamp", TEN(x), kiln_v_none(), kiln_v_none());
        AGREE("clamp", TEN(x), NAMED("max", FLT(1)), NAMED("min", FLT(0)));
    }
    drop(x);
}

/* -- results that are given ------------------------------------------------------------------------------------------- */

static kiln_tensor *view(kiln_tensor *of, int64_t from, int64_t n) {
    kiln_tensor *t;
    char *at = (char *)kiln_tensor_data(of) + from * (int64_t)kiln_dtype_size(kiln_tensor_dtype(of));
    MUST_OK(kiln_tensor_wrap(at, kiln_tensor_dtype(of), 1, &n, NULL, NULL, NULL, &t));
    return t;
}

static kiln_status out_call(int ctx, const char *name, kiln_tensor *a, kiln_tensor *b, kiln_tensor *out) {
    kiln_tensor *got = NULL;
    const kiln_value args[] = {TEN(a), TEN(b), NAMED("out", TEN(out))};
    kiln_status st = kiln_call(contexts[ctx], op_of(contexts[ctx], name), args, 3, &got, 1);
    if (st == KILN_OK) assert_ptr_equal(got, out);
    drop(got);
    return st;
}

static void results_into_given_tensors(void **state) {
    (void)state;
    kiln_tensor *memory = F32(SIZES(12), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), *a = view(memory, 0, 4);
    kiln_tensor *b = view(memory, 4, 4), *out = view(memory, 8, 4), *over = view(memory, 2, 4);
    kiln_tensor *same = view(memory, 0, 4), *shape = view(memory, 8, 3),
                *wide = new_tensor(KILN_F64, SIZES(4), NULL);
    for (int k = 0; k < 3; k++) MUST_OK(out_call(1, "add.out", a, b, out));
    HITS(1, MUST_OK(out_call(1, "add.out", a, b, out)));
    HOLDS_F32(out, SIZES(4), 6, 8, 10, 12);
    HITS(0, assert_int_equal(out_call(1, "add.out", a, b, over), KILN_E_ARG)); /* overlaps a and b in part */
    assert_error_names("single memory location");
    HITS(1, MUST_OK(out_call(1, "add.out", a, over, out))); /* inputs may overlap */
    HITS(0, assert_int_equal(out_call(1, "add.out", a, b, shape), KILN_E_ARG));
    MUST_OK(out_call(1, "add.out", a, b, out));
    HITS(0, MUST_OK(out_call(1, "add.out", a, b, wide)));
    MUST_OK(out_call(1, "add.out", a, b, out));
    HITS(1, MUST_OK(out_call(1, "add.out", a, b, same))); /* all of a */
    HOLDS_F32(a, SIZES(4), 6, 8, 10, 12);
    HITS(1, MUST_OK(out_call(1, "add.out", a, b, a)));
    HOLDS_F32(a, SIZES(4), 11, 14, 17, 20);
    kiln_tensor_set_readonly(out);
    HITS(0, assert_int_equal(out_call(1, "add.out", a, b, out), KILN_E_ARG));
    assert_error_names("read-only");
    drop(memory), drop(a), drop(b), drop(out), drop(over), drop(same), drop(shape), drop(wide);
}

/* The same where one layout is remembered: a row beside a matrix. */
static void laid_out_results_into_given_tensors(void **state) {
    (void)state;
    kiln_tensor *a = F32(SIZES(2, 2), 1, 2, 3, 4), *row = F32(SIZES(2), 10, 20),
                *out = F32(SIZES(2, 2), 0, 0, 0, 0);
    kiln_tensor *turned = new_tensor(KILN_F32, SIZES(2, 2), (int64_t[]){1, 2}), *first = view(out, 0, 2);
    for (int k = 0; k < 20; k++) MUST_OK(out_call(1, "add.out", a, row, out)); /* a flat memo stays a while */
    HITS(1, MUST_OK(out_call(1, "add.out", a, row, out)));
    HOLDS_F32(out, SIZES(2, 2), 11, 22, 13, 24);
    HITS(0, assert_int_equal(out_call(1, "add.out", a, first, out),
                             KILN_E_ARG)); /* the row lies in the result */
    assert_error_names("single memory location");
    HITS(0, MUST_OK(out_call(1, "add.out", a, row, turned)));
    assert_memory_equal(kiln_tensor_data(turned), ((float[]){11, 13, 22, 24}), 4 * sizeof(float));
    MUST_OK(out_call(1, "add.out", a, row, out));
    HITS(0, MUST_OK(out_call(1, "add.out", a, row, a))); /* not as in the call that was kept */
    HOLDS_F32(a, SIZES(2, 2), 11, 22, 13, 24);
    for (int k = 0; k < 20; k++) MUST_OK(out_call(1, "add.out", a, row, a));
    HITS(1, MUST_OK(out_call(1, "add.out", a, row, a)));
    HITS(0, MUST_OK(out_call(1, "add.out", out, row, a)));
    HOLDS_F32(a, SIZES(2, 2), 21, 42, 23, 44);
    kiln_tensor_set_readonly(out);
    HITS(0, assert_int_equal(out_call(1, "add.out", a, row, out), KILN_E_ARG));
    assert_error_names("read-only");
    drop(a), drop(row), drop(out), drop(turned), drop(first);
}

/* One element in two shapes: an input of rank 0 that lies where a row of one is written covers it otherwise. */
static void an_only_element_in_two_shapes(void **state) {
    (void)state;
    kiln_tensor *row = F32(SIZES(4), 1, 2, 3, 4), *one = view(row, 0, 1), *x = F32(SIZES(1), 5), *zero;
    kiln_tensor *other = F32(SIZES(4), 1, 1, 1, 1), *number = tensor_of(&(float){10}, KILN_F32, 0, NULL);
    MUST_OK(kiln_tensor_wrap(kiln_tensor_data(row), KILN_F32, 0, NULL, NULL, NULL, NULL, &zero));
    for (int k = 0; k < 3; k++) MUST_OK(out_call(1, "add.out", other, number, row));
    HITS(1, MUST_OK(out_call(1, "add.out", x, number, one)));
    for (int ctx = 0; ctx < 2; ctx++) {
        HITS(0, assert_int_equal(out_call(ctx, "add.out", x, zero, one), KILN_E_ARG));
        assert_error_names("single memory location");
    }
    HOLDS_F32(row, SIZES(4), 15, 11, 11, 11);
    drop(row), drop(one), drop(x), drop(zero), drop(other), drop(number);
}

static void in_place(void **state) {
    (void)state;
    kiln_ctx *ctx = contexts[1];
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *b = F32(SIZES(3), 10, 20, 30),
                *row = F32(SIZES(2, 3), 0, 0, 0, 0, 0, 0);
    for (int k = 0; k < 3; k++) drop(call1(ctx, "add_.Tensor", ARGS(TEN(a), TEN(b))));
    HOLDS_F32(a, SIZES(3), 31, 62, 93);
    HITS(1, drop(call1(ctx, "add_.Tensor", ARGS(TEN(a), TEN(a)))));
    HOLDS_F32(a, SIZES(3), 62, 124, 186);
    HITS(0, assert_int_equal(kiln_call(ctx, op_of(ctx, "add_.Tensor"), ARGS(TEN(a), TEN(row)), &row, 1),
                             KILN_E_ARG));
    kiln_tensor_set_readonly(a);
    kiln_tensor *none = NULL;
    HITS(0, assert_int_equal(kiln_call(ctx, op_of(ctx, "add_.Tensor"), ARGS(TEN(a), TEN(b)), &none, 1),
                             KILN_E_ARG));
    assert_null(none);
    drop(a), drop(b), drop(row);
}

static void two_results(void **state) {
    (void)state;
    kiln_ctx *ctx = contexts[1];
    kiln_tensor *x = F32(SIZES(3), 3, 0.5, -8), *m = new_tensor(KILN_F32, SIZES(3), NULL), *outs[2];
    kiln_tensor *e = new_tensor(KILN_I32, SIZES(3), NULL), *clash;
    warm("frexp.Tensor", ARGS(TEN(x)));
    HITS(1, AGREE("frexp.Tensor", TEN(x)));
    const kiln_op *op = op_of(ctx, "frexp.Tensor_out");
    for (int k = 0; k < 4; k++) {
        uint64_t before = slot_hits();
        MUST_OK(
            kiln_call(ctx, op, ARGS(TEN(x), NAMED("mantissa", TEN(m)), NAMED("exponent", TEN(e))), outs, 2));
        if (k > 1) assert_int_equal(slot_hits(), before + 1);
        drop(outs[0]), drop(outs[1]);
    }
    HOLDS_F32(m, SIZES(3), 0.75, 0.5, -0.5);
    HOLDS_I32(e, SIZES(3), 2, 0, 4);
    MUST_OK(kiln_tensor_wrap(kiln_tensor_data(m), KILN_I32, SIZES(3), NULL, NULL, NULL, &clash));
    HITS(0, assert_int_equal(kiln_call(ctx, op,
                                       ARGS(TEN(x), NAMED("mantissa", TEN(m)), NAMED("exponent", TEN(clash))),
                                       outs, 2),
                             KILN_E_ARG));
    drop(x), drop(m), drop(e), drop(clash);
}

/* Along a dimension, so that one layout is remembered. */
static void two_given_results_of_a_fold(void **state) {
    (void)state;
    kiln_ctx *ctx = contexts[1];
    kiln_tensor *x = F32(SIZES(2, 3), 3, 9, -8, 1, 2, 7), *most = new_tensor(KILN_F32, SIZES(2), NULL),
                *outs[2];
    kiln_tensor *at = new_tensor(KILN_I64, SIZES(2), NULL), *clash;
    const kiln_op *op = op_of(ctx, "max.dim_max");
    MUST_OK(kiln_tensor_wrap(kiln_tensor_data(at), KILN_F32, SIZES(2), NULL, NULL, NULL, &clash));
    for (int k = 0; k < 5; k++) {
        uint64_t before = slot_hits();
        MUST_OK(kiln_call(ctx, op,
                          ARGS(TEN(x), kiln_v_int(1), NAMED("max", TEN(most)), NAMED("max_values", TEN(at))),
                          outs, 2));
        if (k > 2) assert_int_equal(slot_hits(), before + 1);
        assert_ptr_equal(outs[0], most);
        assert_ptr_equal(outs[1], at);
        drop(outs[0]), drop(outs[1]);
    }
    HOLDS_F32(most, SIZES(2), 9, 7);
    HOLDS_I64(at, SIZES(2), 1, 2);
    HITS(0, assert_int_equal(
                kiln_call(ctx, op,
                          ARGS(TEN(x), kiln_v_int(1), NAMED("max", TEN(clash)), NAMED("max_values", TEN(at))),
                          outs, 2),
                KILN_E_ARG));
    drop(x), drop(most), drop(at), drop(clash);
}

static void a_zero_divisor_is_found_first(void **state) {
    (void)state;
    kiln_tensor *x = I32(SIZES(3), 7, 8, 9), *y = I32(SIZES(3), 2, 3, 4), *zero = I32(SIZES(3), 2, 0, 4);
    warm("remainder.Tensor", ARGS(TEN(x), TEN(y)));
    HITS(1, AGREE("remainder.Tensor", TEN(x), TEN(y)));
    HITS(0, assert_int_equal(AGREE("remainder.Tensor", TEN(x), TEN(zero)), KILN_E_DIVZERO));
    drop(call1(contexts[1], "remainder_.Tensor", ARGS(TEN(x), TEN(y))));
    drop(call1(contexts[1], "remainder_.Tensor", ARGS(TEN(x), TEN(y))));
    kiln_tensor *none = NULL;
    kiln_status st = kiln_call(contexts[1], op_of(contexts[1], "remainder_.Tensor"), ARGS(TEN(x), TEN(zero)),
                               &none, 1);
    assert_int_equal(st, KILN_E_DIVZERO);
    HOLDS_I32(x, SIZES(3), 1, 2, 1);
    drop(x), drop(y), drop(zero);
}

/* -- around calls -------------------------------------------------------------------------------------------------------- */

static void bad_arguments_miss(void **state) {
    (void)state;
    kiln_ctx *ctx = contexts[1];
    kiln_tensor *x = F32(SIZES(2), 1, 2), *out = NULL;
    const kiln_op *op = op_of(ctx, "neg");
    warm("neg", ARGS(TEN(x)));
    assert_int_equal(kiln_call(ctx, op, ARGS(TEN(x)), NULL, 1), KILN_E_ARG);
    assert_int_equal(kiln_call(ctx, op, ARGS(TEN(x)), &out, 0), KILN_E_ARG);
    assert_int_equal(kiln_call(ctx, op, ARGS(TEN(NULL)), &out, 1), KILN_E_TYPE);
    assert_int_equal(kiln_call(ctx, op, ARGS(TEN(x), TEN(x)), &out, 1), KILN_E_TYPE);
    assert_int_equal(kiln_call(ctx, op, NULL, 0, &out, 1), KILN_E_TYPE);
    assert_int_equal(kiln_call(ctx, op, ARGS(INT(1)), &out, 1), KILN_E_TYPE);
    assert_null(out);
    HITS(1, AGREE("neg", TEN(x)));
    drop(x);
}

static void a_hit_allocates_nothing(void **state) {
    (void)state;
    kiln_tensor *x = F32(SIZES(2), 1, 2), *out;
    const kiln_op *op = op_of(contexts[1], "neg");
    warm("neg", ARGS(TEN(x)));
    kiln_alloc_fail_after(1);
    kiln_status st = kiln_call(contexts[1], op, ARGS(TEN(x)), &out, 1);
    long made = kiln_alloc_fail_after(0);
    MUST_OK(st);
    assert_int_equal(made, 0);
    drop(out);
    kiln_trim(); /* now the result has to be allocated, and cannot be */
    kiln_alloc_fail_after(1);
    st = kiln_call(contexts[1], op, ARGS(TEN(x)), &out, 1);
    kiln_alloc_fail_after(0);
    assert_int_equal(st, KILN_E_NOMEM);
    HITS(1, AGREE("neg", TEN(x)));
    drop(x);
}

/* More classes than the cache may hold: what a slot remembers has gone when it is called again. */
static void evicted_classes_miss(void **state) {
    (void)state;
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .max_kernels = 2});
    static const kiln_dtype dtypes[] = {KILN_F32, KILN_I32, KILN_I64, KILN_F64};
    for (int round = 0; round < 3; round++)
        for (size_t d = 0; d < 4; d++) {
            kiln_tensor *x = filled(dtypes[d], SIZES(3), NULL);
            for (int k = 0; k < 3; k++) {
                kiln_tensor *got = call1(ctx, "neg", ARGS(TEN(x))),
                            *want = call1(contexts[0], "neg", ARGS(TEN(x)));
                char why[WHY_MAX];
                if (!same_results(want, got, why)) fail_msg("%s", why);
                drop(got), drop(want);
                drop(call1(ctx, "abs", ARGS(TEN(x))));
            }
            drop(x);
        }
    assert_true(stats_of(ctx).evictions > 4);
    assert_true(stats_of(ctx).slot_hits > 0);
    kiln_close(ctx);
}

static void contexts_do_not_share_slots(void **state) {
    (void)state;
    kiln_tensor *x = F32(SIZES(2), 1, 2);
    for (int round = 0; round < 4; round++) {
        kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
        const char *row = round & 1 ? "map my::f(Tensor self) -> Tensor : takes real = self + self"
                                    : "map my::f(Tensor self) -> Tensor : takes real = self * self * self";
        MUST_OK(kiln_ops_load(ctx, row, strlen(row)));
        for (int k = 0; k < 3; k++) {
            kiln_tensor *y = call1(ctx, "my::f", ARGS(TEN(x)));
            if (round & 1)
                HOLDS_F32(y, SIZES(2), 2, 4);
            else
                HOLDS_F32(y, SIZES(2), 1, 8);
            drop(y);
            check_add(ctx);
            check_add(contexts[1]);
        }
        kiln_close(ctx);
    }
    drop(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_slot_for_every_shape),
        cmocka_unit_test(shapes_that_resemble_the_last),
        cmocka_unit_test(borrowed_wrapped_and_read_only_inputs_share_a_slot),
        cmocka_unit_test(names_are_read_where_they_are),
        cmocka_unit_test(one_element_is_not_many),
        cmocka_unit_test(texts_are_read),
        cmocka_unit_test(sizes_are_compared_among_tensors),
        cmocka_unit_test(other_strides_miss),
        cmocka_unit_test(tensors_of_rank_zero),
        cmocka_unit_test(numbers_change_value_and_kind),
        cmocka_unit_test(defaults_in_another_rounding_mode),
        cmocka_unit_test(values_that_conditions_ask),
        cmocka_unit_test(lists_that_conditions_ask),
        cmocka_unit_test(optional_arguments_come_and_go),
        cmocka_unit_test(results_into_given_tensors),
        cmocka_unit_test(laid_out_results_into_given_tensors),
        cmocka_unit_test(an_only_element_in_two_shapes),
        cmocka_unit_test(in_place),
        cmocka_unit_test(two_results),
        cmocka_unit_test(two_given_results_of_a_fold),
        cmocka_unit_test(a_zero_divisor_is_found_first),
        cmocka_unit_test(bad_arguments_miss),
        cmocka_unit_test(a_hit_allocates_nothing),
        cmocka_unit_test(evicted_classes_miss),
        cmocka_unit_test(contexts_do_not_share_slots),
    };
    return RUN_COMPILED_AND_INTERPRETED(tests);
}
