/* test_routines.c - routines by themselves: keys in the order of elements, rows that lie anyhow, work and no more of it.
 *
 * What rows of operators make of them is compared with PyTorch by tests/ops/test_select.py.  Here each routine is launched
 * by hand and compared with sorting. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "op/op.h"
#include "run/keys.h"

/* -- keys ------------------------------------------------------------------------------------------------------ */

static int below(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void keys_of_halves_are_in_their_order(void **state) {
    (void)state;
    enum { ALL = 1 << 16 };
    static uint16_t bits[ALL], key[ALL];
    for (int t = KILN_F16; t <= KILN_BF16; t++) {
        float (*value)(uint16_t) = t == KILN_F16 ? kiln_half_to_f32 : kiln_bf16_to_f32;
        int64_t nnan = 0;
        for (int k = 0; k < ALL; k++) bits[k] = (uint16_t)k, nnan += isnan(value(bits[k])) != 0;
        assert_int_equal(kiln_keys_load[t](key, (const char *)bits, 2, ALL), nnan);
        for (int k = 0; k < 1 << 20; k++) {
            int i = (int)((unsigned)k * 40503u % ALL), j = (int)((unsigned)k * 9176u / 7 % ALL);
            float a = value(bits[i]), b = value(bits[j]);
            if (isnan(a) || isnan(b))
                assert_true((key[i] == UINT16_MAX) == (isnan(a) != 0));
            else
                assert_true((a < b) == (key[i] < key[j]) && (a == b) == (key[i] == key[j]));
        }
    }
}

static void keys_of_signed_numbers_are_in_their_order(void **state) {
    (void)state;
    const int64_t whole[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX};
    const double real[] = {-INFINITY, -1e308, -1, -5e-324, 0, 5e-324, 1, 1e308, INFINITY, NAN};
    uint64_t key[10], minus;
    assert_int_equal(kiln_keys_load[KILN_I64](key, (const char *)whole, 8, 6), 0);
    for (int k = 1; k < 6; k++) assert_true(key[k - 1] < key[k]);
    assert_int_equal(kiln_keys_load[KILN_F64](key, (const char *)real, 8, 10), 1);
    for (int k = 1; k < 10; k++) assert_true(key[k - 1] < key[k]);
    const double zero = -0.0;
    assert_int_equal(kiln_keys_load[KILN_F64](&minus, (const char *)&zero, 8, 1), 0);
    assert_true(minus == key[4]);
    assert_null(kiln_keys_load[KILN_C64]);
    assert_null(kiln_keys_load[KILN_U32]);
}

/* -- launches -------------------------------------------------------------------------------------------------- */

enum { ROWS = 6, LONG = 700, GUARD = 64 };
static float elements[ROWS * LONG * 3], value[ROWS];
static int64_t place[ROWS];
static char *work;
static size_t nwork;

static int setup(void **state) {
    (void)state;
    nwork = (size_t)KILN_KEYS_COPIES * LONG * sizeof(float);
    return (work = calloc(1, nwork + GUARD)) ? 0 : 1;
}
static int teardown(void **state) {
    (void)state;
    free(work);
    return 0;
}

/* ROWS rows of n elements; those of a row lie `step` floats apart, rows follow each other after `next`. */
static void launch(kiln_routine_id id, int64_t n, int64_t step, int64_t next, const float *first,
                   uint64_t k) {
    const int64_t extent[] = {1, ROWS, n};
    const int64_t stride[] = {0, 4, 0, 0, 8, 0, 0, next * 4, step * 4};
    const int64_t zeros[3] = {0};
    char *const ptr[] = {(char *)value, (char *)place, (char *)first};
    kiln_launch l = {
        .ndim = 3, .n = extent, .ptr = ptr, .stride = stride, .origin = zeros, .par = &k, .work = work};
    memset(work + nwork, 0x5a, GUARD);
    assert_int_equal(kiln_routines[id]->fn[KILN_F32](&l), 0);
    for (int i = 0; i < GUARD; i++) assert_int_equal(work[nwork + (size_t)i], 0x5a);
}

static void fill(unsigned seed, int values) {
    for (size_t k = 0; k < sizeof elements / sizeof *elements; k++) {
        seed = seed * 1664525u + 1013904223u;
        elements[k] = (float)(int)(seed >> 8) / 1000 - 8000;
        if (values) elements[k] = (float)((int)(seed >> 8) % values);
    }
}

/* Each row's k-th smallest, and the first place that it has. */
static void check_rows(int64_t n, int64_t step, int64_t next, const float *first, int64_t k) {
    float row[LONG];
    for (int r = 0; r < ROWS; r++) {
        for (int64_t i = 0; i < n; i++) row[i] = first[r * next + i * step];
        int64_t at = 0;
        while (row[at] != value[r]) at++;
        assert_int_equal(place[r], at);
        qsort(row, (size_t)n, sizeof *row, below);
        assert_true(value[r] == row[k]);
    }
}

static void any_rows_are_selected_from(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 23, 24, 25, 64, 255, 256, 257, LONG};
    for (unsigned s = 0; s < 3 * sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s / 3], k = n / (1 + s % 3);
        fill(s, s % 3 ? 0 : 5);
        const struct {
            int64_t step, next;
            const float *first;
        } lies[] = {{1, n, elements},
                    {ROWS, 1, elements},
                    {2, 2 * n, elements},
                    {-1, n, elements + n - 1},
                    {0, 1, elements}};
        for (unsigned m = 0; m < sizeof lies / sizeof *lies; m++) {
            if (k < 1) k = 1;
            launch(KILN_ROUTINE_kth_at, n, lies[m].step, lies[m].next, lies[m].first, (uint64_t)k);
            check_rows(n, lies[m].step, lies[m].next, lies[m].first, k - 1);
            launch(KILN_ROUTINE_median_at, n, lies[m].step, lies[m].next, lies[m].first, 0);
            check_rows(n, lies[m].step, lies[m].next, lies[m].first, (n - 1) / 2);
        }
    }
}

static void medians_and_nans(void **state) {
    (void)state;
    fill(1, 0);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < r * 2; i++) elements[r * 10 + 9 - i] = NAN; /* of row r the last 2 r */
    launch(KILN_ROUTINE_median_at, 10, 1, 10, elements, 0);
    for (int r = 1; r < ROWS; r++) assert_true(isnan(value[r]) && place[r] == 10 - 2 * r);
    launch(KILN_ROUTINE_nanmedian_at, 10, 1, 10, elements, 0);
    assert_true(isnan(value[5]) && place[5] == 0);
    for (int r = 0; r < 5; r++) {
        float row[10];
        memcpy(row, elements + r * 10, sizeof row);
        qsort(row, (size_t)(10 - 2 * r), sizeof *row, below);
        assert_true(value[r] == row[(10 - 2 * r - 1) / 2] && elements[r * 10 + place[r]] == value[r]);
    }
}

static void modes(void **state) {
    (void)state;
    for (int64_t n = 1; n <= LONG; n += n < 60 ? 1 : 53) {
        fill((unsigned)n, 17);
        launch(KILN_ROUTINE_mode_at, n, ROWS, 1, elements, 0);
        for (int r = 0; r < ROWS; r++) {
            int64_t count[17] = {0}, last[17] = {0}, best = 0;
            for (int64_t i = 0; i < n; i++) {
                int v = (int)elements[i * ROWS + r];
                count[v]++, last[v] = i;
            }
            for (int v = 1; v < 17; v++)
                if (count[v] > count[best]) best = v;
            assert_true(value[r] == (float)best && place[r] == last[best]);
        }
    }
}

static void every_routine_takes_what_its_rows_may_take(void **state) {
    (void)state;
    for (int id = 0; id < KILN_ROUTINE_COUNT; id++)
        for (int t = 0; t < KILN_DTYPE_COUNT; t++)
            assert_true((kiln_routines[id]->fn[t] != NULL) == (kiln_keys_load[t] != NULL));
    assert_int_equal(kiln_routine_named("mode_at"), KILN_ROUTINE_mode_at);
    assert_int_equal(kiln_routine_named("mode"), KILN_ROUTINE_COUNT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_halves_are_in_their_order),
        cmocka_unit_test(keys_of_signed_numbers_are_in_their_order),
        cmocka_unit_test(any_rows_are_selected_from),
        cmocka_unit_test(medians_and_nans),
        cmocka_unit_test(modes),
        cmocka_unit_test(every_routine_takes_what_its_rows_may_take),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
