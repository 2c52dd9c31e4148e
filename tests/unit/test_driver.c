/* test_driver.c - what the driver does with awkward memory: transposed inputs by tiles, large results past the caches, large inputs.
 *
 * Both tiers run through the driver, so results are checked against values computed here. */
#include "call_cases.h"

static kiln_ctx *tiers[2];

static int open_tiers(void **state) {
    if (call_setup(state) != 0) return -1;
    tiers[0] = open_mode(KILN_MODE_SYNC);
    tiers[1] = open_mode(KILN_MODE_INTERP);
    return 0;
}

static int close_tiers(void **state) {
    for (int k = 0; k < 2; k++) kiln_close(tiers[k]);
    return call_teardown(state);
}

/* Bytes that differ from place to place and from seed to seed. */
static void fill(kiln_tensor *t, unsigned seed) {
    unsigned char *p = kiln_tensor_data(t);
    size_t nbytes = (size_t)kiln_tensor_nelem(t) * kiln_dtype_size(kiln_tensor_dtype(t));
    for (size_t i = 0; i < nbytes; i++) p[i] = (unsigned char)((i * 2654435761u + seed * 40503u) >> 7);
}

/* A tensor of these sizes whose dimension perm[0] moves slowest in memory, perm[2] fastest. */
static kiln_tensor *permuted(kiln_dtype dtype, const int64_t *sizes, const int *perm, unsigned seed) {
    int64_t strides[3], next = 1;
    kiln_tensor *t = NULL;
    for (int k = 2; k >= 0; k--) strides[perm[k]] = next, next *= sizes[perm[k]];
    MUST_OK(kiln_tensor_new(dtype, 3, sizes, strides, &t));
    fill(t, seed);
    return t;
}

static const unsigned char *at(const kiln_tensor *t, const int64_t *index) {
    const unsigned char *p = kiln_tensor_data(t);
    int64_t place = 0;
    for (int d = 0; d < 3; d++) place += index[d] * kiln_tensor_strides(t)[d];
    return p + place * (int64_t)kiln_dtype_size(kiln_tensor_dtype(t));
}

static void check_xor(const kiln_tensor *a, const kiln_tensor *b, const kiln_tensor *out) {
    const int64_t *n = kiln_tensor_sizes(out);
    size_t size = kiln_dtype_size(kiln_tensor_dtype(out));
    int64_t i[3];
    for (i[0] = 0; i[0] < n[0]; i[0]++)
        for (i[1] = 0; i[1] < n[1]; i[1]++)
            for (i[2] = 0; i[2] < n[2]; i[2]++)
                for (size_t byte = 0; byte < size; byte++)
                    if ((at(a, i)[byte] ^ at(b, i)[byte]) != at(out, i)[byte])
                        fail_msg("wrong at [%d,%d,%d]", (int)i[0], (int)i[1], (int)i[2]);
}

static void xor_permuted(kiln_ctx *ctx, kiln_dtype dtype, const int64_t *sizes, const int *p, const int *q) {
    static const int in_order[3] = {0, 1, 2};
    kiln_tensor *a = permuted(dtype, sizes, p, 1), *b = permuted(dtype, sizes, q, 2);
    kiln_tensor *out = permuted(dtype, sizes, in_order, 3), *same = NULL;
    kiln_value args[] = {kiln_v_tensor(a), kiln_v_tensor(b), kiln_v_named("out", kiln_v_tensor(out))};
    MUST_OK(kiln_call(ctx, op_of(ctx, "bitwise_xor.Tensor_out"), args, 3, &same, 1));
    check_xor(a, b, out);
    kiln_tensor_release(a);
    kiln_tensor_release(b);
    kiln_tensor_release(out);
    kiln_tensor_release(same);
}

static void transposed_inputs_are_read_right(void **state) {
    (void)state;
    static const kiln_dtype dtypes[] = {KILN_U8, KILN_I16, KILN_I32, KILN_I64};
    static const int64_t sizes[][3] = {{1, 64, 130}, {3, 17, 33},  {19, 5, 70},
                                       {8, 8, 8},    {2, 600, 23}, {40, 3, 7}};
    static const int perms[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t d = 0; d < 4; d++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int pq = 0; pq < 36; pq++)
                xor_permuted(tiers[(d + s + (size_t)pq) % 2], dtypes[d], sizes[s], perms[pq / 6],
                             perms[pq % 6]);
    assert_int_equal(stats_of(tiers[0]).compile_failures, 0);
}

/* -- large results ---------------------------------------------------------------------------------------- */

static void free_block(void *block) { free(block); }

/* n elements that start `offset` bytes past a multiple of 64. */
static kiln_tensor *placed(int64_t n, size_t offset) {
    kiln_tensor *t = NULL;
    char *block = aligned_alloc(64, (size_t)(n * 4 + 128) / 64 * 64);
    assert_non_null(block);
    MUST_OK(kiln_tensor_wrap(block + offset, KILN_I32, 1, &n, NULL, free_block, block, &t));
    fill(t, (unsigned)offset);
    return t;
}

static void large_results_are_whole(void **state) {
    (void)state;
    static const size_t offsets[] = {0, 4};
    const int64_t n = (5 << 20) + 7; /* 40 MB in and out */
    for (int k = 0; k < 4; k++) {
        kiln_ctx *ctx = tiers[k / 2];
        kiln_tensor *x = placed(n, offsets[k % 2 ^ 1]), *out = placed(n, offsets[k % 2]), *same = NULL;
        kiln_value args[] = {kiln_v_tensor(x), kiln_v_named("out", kiln_v_tensor(out))};
        MUST_OK(kiln_call(ctx, op_of(ctx, "bitwise_not.out"), args, 2, &same, 1));
        const int32_t *from = kiln_tensor_data(x), *to = kiln_tensor_data(out);
        for (int64_t i = 0; i < n; i++)
            if (to[i] != ~from[i]) fail_msg("wrong at %lld", (long long)i);
        kiln_tensor_release(x);
        kiln_tensor_release(out);
        kiln_tensor_release(same);
    }
}

/* 11 MB, one of them written over: no result goes past the caches, and all inputs come from far. */
static void large_inputs_may_be_written_over(void **state) {
    (void)state;
    const int64_t n = 1400003;
    for (int k = 0; k < 2; k++) {
        kiln_tensor *x = placed(n, 4), *before = placed(n, 4), *y = placed(n, 0), *same = NULL;
        kiln_value args[] = {kiln_v_tensor(x), kiln_v_tensor(y)};
        MUST_OK(kiln_call(tiers[k], op_of(tiers[k], "bitwise_xor_.Tensor"), args, 2, &same, 1));
        const int32_t *was = kiln_tensor_data(before), *other = kiln_tensor_data(y),
                      *now = kiln_tensor_data(x);
        for (int64_t i = 0; i < n; i++)
            if (now[i] != (was[i] ^ other[i])) fail_msg("tier %d: wrong at %lld", k, (long long)i);
        kiln_tensor_release(x);
        kiln_tensor_release(before);
        kiln_tensor_release(y);
        kiln_tensor_release(same);
    }
}

/* -- large inputs of folds ------------------------------------------------------------------------------- */

static int digit(int64_t i) { return (int)((uint64_t)i * 2654435761u >> 9 & 3); }

/* Sums of digits, which f32 holds exactly, of x[rows, cols] over a dimension, by arithmetic of its own. */
static void check_sums(kiln_ctx *ctx, kiln_tensor *x, int dim) {
    const int64_t rows = kiln_tensor_sizes(x)[0], cols = kiln_tensor_sizes(x)[1];
    kiln_tensor *out = NULL;
    kiln_value dims = kiln_v_int(dim), args[] = {kiln_v_tensor(x), kiln_v_list(&dims, 1)};
    MUST_OK(kiln_call(ctx, op_of(ctx, "sum.dim_IntList"), args, 2, &out, 1));
    const float *sums = kiln_tensor_data(out);
    int *want = calloc((size_t)(dim ? rows : cols), sizeof *want);
    assert_non_null(want);
    for (int64_t i = 0; i < rows * cols; i++) want[dim ? i / cols : i % cols] += digit(i);
    for (int64_t i = 0; i < (dim ? rows : cols); i++)
        if (sums[i] != (float)want[i]) fail_msg("over %d: wrong at %lld", dim, (long long)i);
    free(want);
    kiln_tensor_release(out);
}

/* The sum of all elements, and of the squares of their differences. */
static void check_all(kiln_ctx *ctx, kiln_tensor *x, kiln_tensor *y) {
    const float *a = kiln_tensor_data(x), *b = kiln_tensor_data(y);
    int64_t sum = 0, squares = 0;
    kiln_tensor *out = NULL;
    kiln_value one[] = {kiln_v_tensor(x)}, two[] = {kiln_v_tensor(x), kiln_v_tensor(y), kiln_v_int(2)};
    for (int64_t i = 0; i < kiln_tensor_nelem(x); i++) {
        sum += (int)a[i];
        squares += (int)(a[i] - b[i]) * (int)(a[i] - b[i]);
    }
    MUST_OK(kiln_call(ctx, op_of(ctx, "sum"), one, 1, &out, 1));
    assert_true(*(const float *)kiln_tensor_data(out) == (float)sum);
    kiln_tensor_release(out);
    MUST_OK(kiln_call(ctx, op_of(ctx, "mse_loss"), two, 3, &out, 1));
    assert_true(*(const float *)kiln_tensor_data(out) == (float)squares);
    kiln_tensor_release(out);
}

/* Rows longer than a strip, and short ones that follow each other: 17 MB each, of no whole number of vectors. */
static void folds_from_memory_are_right(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1031, 4099}, {65537, 67}};
    for (int k = 0; k < 4; k++) {
        kiln_tensor *x = NULL, *y = NULL;
        MUST_OK(kiln_tensor_new(KILN_F32, 2, sizes[k % 2], NULL, &x));
        MUST_OK(kiln_tensor_new(KILN_F32, 2, sizes[k % 2], NULL, &y));
        float *a = kiln_tensor_data(x), *b = kiln_tensor_data(y);
        for (int64_t i = 0; i < kiln_tensor_nelem(x); i++) a[i] = (float)digit(i), b[i] = (float)digit(3 * i);
        check_sums(tiers[k / 2], x, 0);
        check_sums(tiers[k / 2], x, 1);
        check_all(tiers[k / 2], x, y);
        kiln_tensor_release(x);
        kiln_tensor_release(y);
    }
}

/* x[3,343,4099] ^ row[3,1,4099]: 34 MB, and a row of 16 KB for each of the three. */
static void rows_read_again_are_right(void **state) {
    (void)state;
    static const int64_t sizes[] = {3, 343, 4099}, row_sizes[] = {3, 1, 4099};
    for (int k = 0; k < 2; k++) {
        kiln_tensor *x = NULL, *row = NULL, *out = NULL;
        MUST_OK(kiln_tensor_new(KILN_I32, 3, sizes, NULL, &x));
        MUST_OK(kiln_tensor_new(KILN_I32, 3, row_sizes, NULL, &row));
        fill(x, 1);
        fill(row, 2);
        kiln_value args[] = {kiln_v_tensor(x), kiln_v_tensor(row)};
        MUST_OK(kiln_call(tiers[k], op_of(tiers[k], "bitwise_xor.Tensor"), args, 2, &out, 1));
        const int32_t *from = kiln_tensor_data(x), *other = kiln_tensor_data(row),
                      *to = kiln_tensor_data(out);
        for (int64_t i = 0; i < kiln_tensor_nelem(out); i++)
            if (to[i] != (from[i] ^ other[i / (343 * 4099) * 4099 + i % 4099]))
                fail_msg("tier %d: wrong at %lld", k, (long long)i);
        kiln_tensor_release(x);
        kiln_tensor_release(row);
        kiln_tensor_release(out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transposed_inputs_are_read_right), cmocka_unit_test(large_results_are_whole),
        cmocka_unit_test(large_inputs_may_be_written_over), cmocka_unit_test(folds_from_memory_are_right),
        cmocka_unit_test(rows_read_again_are_right)};
    return cmocka_run_group_tests(tests, open_tiers, close_tiers);
}
