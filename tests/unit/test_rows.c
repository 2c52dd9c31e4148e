/* test_rows.c - calls over many short rows: beside a row that all share, a column, rows that lie apart, single elements.
 *
 * Each result is compared with one computed element by element here: by both tiers, with one thread and with several, for
 * elements of every size, rows of 2 to 300, a number of rows that leaves some over, and dimensions around. */
#include "call_cases.h"

enum { RANK = 3 };

typedef struct shape {
    int64_t n[RANK]; /* outer, rows, elements of a row */
} shape;

static uint64_t state_of_random = 1;

static uint64_t next_random(void) {
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return state_of_random >> 33;
}

static void fill(kiln_tensor *t, const int64_t *n, const int64_t *strides) {
    kiln_dtype d = kiln_tensor_dtype(t);
    size_t size = kiln_dtype_size(d);
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t k = 0; k < n[2]; k++) {
                kiln_value v = kiln_v_int((int64_t)(next_random() % 100));
                char *at = (char *)kiln_tensor_data(t) +
                           (size_t)(i * strides[0] + j * strides[1] + k * strides[2]) * size;
                assert_true(kiln_element_set(d, &v, at));
            }
}

static kiln_tensor *filled(kiln_dtype d, const int64_t *n, const int64_t *strides) {
    kiln_tensor *t = new_tensor(d, RANK, n, strides);
    fill(t, n, kiln_tensor_strides(t));
    return t;
}

static int64_t number_at(const kiln_tensor *t, int64_t i, int64_t j, int64_t k) {
    const int64_t *n = kiln_tensor_sizes(t), *s = kiln_tensor_strides(t);
    int64_t at = (n[0] > 1 ? i * s[0] : 0) + (n[1] > 1 ? j * s[1] : 0) + (n[2] > 1 ? k * s[2] : 0);
    kiln_dtype d = kiln_tensor_dtype(t);
    kiln_value v = kiln_element_get(d, (const char *)kiln_tensor_data(t) + (size_t)at * kiln_dtype_size(d));
    return v.kind == KILN_INT_V ? v.u.i : v.kind == KILN_FLOAT_V ? (int64_t)v.u.f : (int64_t)v.u.c.re;
}

/* x + y, of whole numbers, which every dtype here holds exactly. */
static void check(kiln_ctx *ctx, const shape *s, const kiln_tensor *x, const kiln_tensor *y) {
    kiln_tensor *got = call1(ctx, "add.Tensor", ARGS(TEN((kiln_tensor *)x), TEN((kiln_tensor *)y)));
    for (int64_t i = 0; i < s->n[0]; i++)
        for (int64_t j = 0; j < s->n[1]; j++)
            for (int64_t k = 0; k < s->n[2]; k++)
                if (number_at(got, i, j, k) != number_at(x, i, j, k) + number_at(y, i, j, k))
                    fail_msg("%s[%d,%d,%d] + [%d,%d,%d] with strides %d,%d,%d: at %d,%d,%d",
                             kiln_dtype_name(kiln_tensor_dtype(x)), (int)s->n[0], (int)s->n[1], (int)s->n[2],
                             (int)kiln_tensor_sizes(y)[0], (int)kiln_tensor_sizes(y)[1],
                             (int)kiln_tensor_sizes(y)[2], (int)kiln_tensor_strides(y)[0],
                             (int)kiln_tensor_strides(y)[1], (int)kiln_tensor_strides(y)[2], (int)i, (int)j,
                             (int)k);
    kiln_tensor_release(got);
}

static void check_shape(kiln_ctx *ctx, const shape *s, kiln_dtype d) {
    const int64_t *n = s->n, rows = n[1], cols = n[2];
    const int64_t other[][RANK] = {{1, 1, cols},    {1, rows, 1}, {n[0], rows, 1},
                                   {n[0], 1, cols}, {1, 1, 1},    {1, rows, cols}};
    const int64_t apart[RANK] = {rows * (cols + 5), cols + 5, 1}, across[RANK] = {1, n[0], n[0] * rows};
    kiln_tensor *x = filled(d, n, NULL), *loose = filled(d, n, apart), *turned = filled(d, n, across);
    kiln_tensor *far = filled(d, (const int64_t[]){1, rows, 1}, (const int64_t[]){rows * 3, 3, 1});
    for (size_t k = 0; k < sizeof other / sizeof *other; k++) {
        kiln_tensor *y = filled(d, other[k], NULL);
        check(ctx, s, x, y);
        check(ctx, s, loose, y);
        kiln_tensor_release(y);
    }
    check(ctx, s, x, loose);
    check(ctx, s, x, turned);
    check(ctx, s, x, far);
    drop_args(ARGS(TEN(x), TEN(loose), TEN(turned), TEN(far)));
}

static void check_all(kiln_ctx *ctx) {
    static const shape shapes[] = {{{1, 500, 3}},  {{1, 131, 2}},   {{2, 301, 7}},  {{3, 128, 10}},
                                   {{1, 170, 17}}, {{1, 129, 300}}, {{2, 150, 64}}, {{1, 127, 3}}};
    static const kiln_dtype dtypes[] = {KILN_U8, KILN_F16, KILN_F32, KILN_F64, KILN_C128};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) check_shape(ctx, &shapes[k], dtypes[d]);
}

/* At every level that the machine runs: each has its own vectors to repeat elements by, or to pick them from. */
static void at_every_level(kiln_mode mode, const char *cc) {
    static const char *const levels[] = {NULL, "generic", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
    int tried = 0;
    for (size_t k = 0; k < sizeof levels / sizeof *levels; k++) {
        kiln_config c = {.size = sizeof c, .mode = mode, .threads = 1, .isa = levels[k], .cc = cc};
        kiln_ctx *ctx = NULL;
        if (kiln_open(&c, &ctx) != KILN_OK) continue; /* this machine does not run it */
        check_all(ctx);
        assert_int_equal(stats_of(ctx).compile_failures, 0);
        kiln_close(ctx);
        tried++;
    }
    assert_true(tried >= 2);
}

static void interpreted(void **state) {
    (void)state;
    at_every_level(KILN_MODE_INTERP, NULL);
}

static void compiled(void **state) {
    (void)state;
    at_every_level(KILN_MODE_SYNC, NULL);
}

/* Which has no function that picks lanes by a vector of numbers. */
static void compiled_by_clang(void **state) {
    (void)state;
    at_every_level(KILN_MODE_SYNC, "clang");
}

/* x + a * b, where each of a and b is a column, one with gaps, a row that all share, rows with gaps, or one element. */
static void a_column_beside_others(void **state) {
    (void)state;
    enum { ROWS = 1000, COLS = 3, KINDS = 5 };
    static const int64_t n[KINDS][RANK] = {
        {1, ROWS, 1}, {1, ROWS, 1}, {1, 1, COLS}, {1, ROWS, COLS}, {1, 1, 1}};
    static const int64_t strides[KINDS][RANK] = {
        {1, 1, 1}, {1, 4, 1}, {1, 1, 1}, {1, COLS + 2, 1}, {1, 1, 1}};
    static const kiln_dtype dtypes[] = {KILN_F32, KILN_F64, KILN_I64, KILN_C64};
    for (int c = 0; c < 2; c++)
        for (int t = 0; t < 4 * KINDS * KINDS; t++) {
            kiln_dtype d = dtypes[t / KINDS / KINDS];
            int i = t % KINDS, j = t / KINDS % KINDS;
            kiln_tensor *x = filled(d, (const int64_t[]){1, ROWS, COLS}, NULL),
                        *a = filled(d, n[i], strides[i]), *b = filled(d, n[j], strides[j]);
            kiln_tensor *got = call1(contexts[c], "addcmul", ARGS(TEN(x), TEN(a), TEN(b)));
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t k = 0; k < COLS; k++)
                    assert_int_equal(number_at(got, 0, r, k),
                                     number_at(x, 0, r, k) + number_at(a, 0, r, k) * number_at(b, 0, r, k));
            drop_args(ARGS(TEN(x), TEN(a), TEN(b), TEN(got)));
        }
}

/* Numbers of rows around those that whole vectors of a column take, whose last element is the last there is to read. */
static void columns_of_any_length(void **state) {
    (void)state;
    for (int c = 0; c < 2; c++)
        for (int64_t rows = 126; rows < 200; rows++)
            for (int64_t cols = 2; cols < 33; cols += 5) {
                kiln_tensor *x = filled(KILN_I16, (const int64_t[]){1, rows, cols}, NULL),
                            *y = filled(KILN_I16, (const int64_t[]){1, rows, 1}, NULL);
                check(contexts[c], &(const shape){{1, rows, cols}}, x, y);
                drop_args(ARGS(TEN(x), TEN(y)));
            }
}

/* A large call of several threads, again and again, as costs become known. */
static void by_several_threads(void **state) {
    (void)state;
    const shape s = {{1, 30011, 3}};
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .threads = 3});
    for (int k = 0; k < 5; k++) check_shape(ctx, &s, k % 2 ? KILN_F64 : KILN_F32);
    kiln_close(ctx);
}

/* Two columns whose elements differ in size, in either order, over more rows than are taken together. */
static void columns_of_two_sizes(void **state) {
    (void)state;
    const int64_t n[RANK] = {1, 20001, 2}, column[RANK] = {1, 20001, 1};
    static const kiln_dtype wide[] = {KILN_F64, KILN_F32, KILN_C128};
    for (int k = 0; k < 12; k++) {
        kiln_ctx *ctx = open_with(
            (kiln_config){.mode = k % 2 ? KILN_MODE_SYNC : KILN_MODE_INTERP, .threads = 1});
        kiln_dtype d[2] = {wide[k / 4], KILN_U8};
        bool turned = k / 2 % 2;
        kiln_tensor *which = filled(KILN_BOOL, n, NULL), *a = filled(d[turned], column, NULL),
                    *b = filled(d[!turned], column, NULL);
        kiln_tensor *got = call1(ctx, "where.self", ARGS(TEN(which), TEN(a), TEN(b)));
        const bool *first = kiln_tensor_data(which);
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t i = 0; i < n[2]; i++)
                assert_int_equal(number_at(got, 0, j, i), number_at(first[j * n[2] + i] ? a : b, 0, j, i));
        drop_args(ARGS(TEN(which), TEN(a), TEN(b), TEN(got)));
        kiln_close(ctx);
    }
}

/* A column that is written to through another argument's memory is read before. */
static void in_place(void **state) {
    (void)state;
    const int64_t n[RANK] = {1, 400, 3}, column[RANK] = {1, 400, 1};
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    kiln_tensor *x = filled(KILN_F32, n, NULL), *y = filled(KILN_F32, column, NULL), *out = NULL;
    float before[1200];
    memcpy(before, kiln_tensor_data(x), sizeof before);
    MUST_OK(kiln_call(ctx, op_of(ctx, "add_.Tensor"), ARGS(TEN(x), TEN(y)), &out, 1));
    for (int k = 0; k < 1200; k++)
        assert_true(((float *)kiln_tensor_data(x))[k] == before[k] + ((float *)kiln_tensor_data(y))[k / 3]);
    drop_args(ARGS(TEN(x), TEN(y), TEN(out)));
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interpreted),
        cmocka_unit_test(compiled),
        cmocka_unit_test(compiled_by_clang),
        cmocka_unit_test(columns_of_two_sizes),
        cmocka_unit_test(a_column_beside_others),
        cmocka_unit_test(columns_of_any_length),
        cmocka_unit_test(by_several_threads),
        cmocka_unit_test(in_place),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
