/* test_share.c - whether tensors share memory, against every byte of every element of small random views. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/tensor.h"

enum { BYTES = 1 << 13, MIDDLE = BYTES / 2, RANK = 4, TRIALS = 25000 };

static _Alignas(16) char memory[BYTES];
static uint32_t seed = 1;

static int64_t draw(int64_t from, int64_t to) {
    seed = seed * 1664525u + 1013904223u;
    return from + (int64_t)((seed >> 8) % (uint32_t)(to - from + 1));
}

/* A tensor with room for its sizes and strides. */
typedef struct view {
    kiln_tensor t;
    int64_t sizes[RANK], strides[RANK];
} view;

static void finish(view *v, kiln_dtype dtype, int rank, int64_t first_byte) {
    v->t = (kiln_tensor){.nelem = 1};
    for (int d = 0; d < rank; d++) v->t.nelem *= v->sizes[d];
    v->t.sig = KILN_SIG(dtype, kiln_layout_flags(rank, v->sizes, v->strides, v->t.nelem), rank);
    v->t.sizes = v->sizes;
    v->t.strides = v->strides;
    v->t.data = memory + first_byte;
}

/* Any strides: views of nothing in particular. */
static void draw_any(view *v) {
    static const kiln_dtype dtypes[] = {KILN_U8, KILN_I16, KILN_F32, KILN_F64, KILN_C64, KILN_C128};
    kiln_dtype dtype = dtypes[draw(0, 5)];
    int rank = (int)draw(0, RANK);
    for (int d = 0; d < rank; d++) {
        v->sizes[d] = draw(0, 40) ? draw(1, 5) : 0;
        v->strides[d] = draw(-12, 12);
    }
    finish(v, dtype, rank, MIDDLE + draw(-60, 60));
}

/* What slicing, turning round and transposing make of a row-major array of f32 [4,6,8]. */
static void draw_slice(view *v) {
    static const int64_t sizes[3] = {4, 6, 8}, strides[3] = {48, 8, 1};
    int64_t at = 0;
    int first = (int)draw(0, 2), turn = draw(0, 1) ? 1 : 2;
    for (int k = 0; k < 3; k++) {
        int d = (first + k * turn) % 3;
        int64_t step = draw(1, 3), from = draw(0, sizes[d] - 1);
        v->sizes[k] = draw(1, (sizes[d] - 1 - from) / step + 1);
        v->strides[k] = step * strides[d];
        at += from * strides[d];
        if (draw(0, 3)) continue;
        at += (v->sizes[k] - 1) * v->strides[k]; /* turned round */
        v->strides[k] = -v->strides[k];
    }
    finish(v, KILN_F32, 3, MIDDLE + at * 4);
}

/* Calls `element` with the place of each, until it returns true. */
static bool each_element(const kiln_tensor *t, bool (*element)(uint8_t *marks, int64_t at, int64_t n),
                         uint8_t *marks) {
    int64_t index[RANK] = {0}, n = (int64_t)kiln_dtype_size((kiln_dtype)t->dtype);
    for (int64_t left = t->nelem; left > 0; left--) {
        int64_t at = t->data - memory;
        for (int d = 0; d < t->rank; d++) at += index[d] * t->strides[d] * n;
        assert_true(at >= 0 && at + n <= BYTES);
        if (element(marks, at, n)) return true;
        for (int d = t->rank - 1; d >= 0 && ++index[d] == t->sizes[d]; d--) index[d] = 0;
    }
    return false;
}

static bool is_marked(uint8_t *marks, int64_t at, int64_t n) {
    for (int64_t k = at; k < at + n; k++)
        if (marks[k]) return true;
    return false;
}

static bool mark(uint8_t *marks, int64_t at, int64_t n) {
    bool before = is_marked(marks, at, n);
    memset(marks + at, 1, (size_t)n);
    return before;
}

static bool mark_all(uint8_t *marks, int64_t at, int64_t n) { return mark(marks, at, n), false; }

static bool do_share(const kiln_tensor *a, const kiln_tensor *b) {
    uint8_t marks[BYTES] = {0};
    each_element(a, mark_all, marks);
    return each_element(b, is_marked, marks);
}

static bool does_overlap(const kiln_tensor *t) {
    uint8_t marks[BYTES] = {0};
    return each_element(t, mark, marks);
}

/* "Apart" is never said of tensors that share; how often "may" is said of those that do not is counted. */
static void every_byte_agrees(void (*draw_view)(view *), const char *of, int pairs_most, int alone_most) {
    int apart = 0, pairs = 0, single = 0, alone = 0;
    for (int k = 0; k < TRIALS; k++) {
        view a, b;
        draw_view(&a);
        draw_view(&b);
        bool share = do_share(&a.t, &b.t), overlaps = does_overlap(&a.t);
        bool may = kiln_tensors_may_share(&a.t, &b.t), may_overlap = kiln_tensor_may_overlap(&a.t);
        assert_int_equal(may, kiln_tensors_may_share(&b.t, &a.t));
        if ((share && !may) || (overlaps && !may_overlap))
            fail_msg("trial %d of %s: memory is shared", k, of);
        apart += !share, pairs += !share && may;
        single += !overlaps, alone += !overlaps && may_overlap;
    }
    printf("%s: of %d pairs that are apart %d may share; of %d views that do not overlap %d may\n", of, apart,
           pairs, single, alone);
    assert_true(apart > TRIALS / 10 && single > TRIALS / 10);
    assert_true(pairs <= pairs_most && alone <= alone_most);
}

static void any_views(void **state) {
    (void)state;
    every_byte_agrees(draw_any, "any strides", 0, TRIALS / 5); /* such views are hardly ever written to */
}

static void slices_of_one_array(void **state) {
    (void)state;
    every_byte_agrees(draw_slice, "slices of one array", 0, 0);
}

/* -- large ones, of which the answer is known ------------------------------------------------------------------ */

#define DIMS(...) \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]) { __VA_ARGS__ }
#define STEPS(...) \
    (const int64_t[]) { __VA_ARGS__ }

static view at(int64_t element, kiln_dtype dtype, size_t rank, const int64_t *sizes, const int64_t *strides) {
    view v;
    memcpy(v.sizes, sizes, rank * sizeof *sizes);
    memcpy(v.strides, strides, rank * sizeof *strides);
    finish(&v, dtype, (int)rank, 0);
    v.t.data = (char *)((uintptr_t)1 << 40) + element * (int64_t)kiln_dtype_size(dtype); /* never looked at */
    return v;
}

static bool share(view a, view b) {
    a.t.sizes = a.sizes, a.t.strides = a.strides; /* of the copies */
    b.t.sizes = b.sizes, b.t.strides = b.strides;
    return kiln_tensors_may_share(&a.t, &b.t);
}

static void large_views(void **state) {
    (void)state;
    enum { N = 1000, M = 1 << 20 };
    view all = at(0, KILN_F32, DIMS(N, N), STEPS(N, 1));
    /* columns, halves, rows that alternate; a transposed corner away from the diagonal */
    assert_false(share(at(0, KILN_F32, DIMS(N), STEPS(N)), at(1, KILN_F32, DIMS(N), STEPS(N))));
    assert_false(
        share(at(0, KILN_F32, DIMS(N, 500), STEPS(N, 1)), at(500, KILN_F32, DIMS(N, 500), STEPS(N, 1))));
    assert_true(
        share(at(0, KILN_F32, DIMS(N, 500), STEPS(N, 1)), at(499, KILN_F32, DIMS(N, 500), STEPS(N, 1))));
    assert_false(share(at(0, KILN_F32, DIMS(500, N), STEPS(2 * N, 1)),
                       at(N, KILN_F32, DIMS(500, N), STEPS(2 * N, 1))));
    assert_false(share(at(500, KILN_F32, DIMS(500, 500), STEPS(N, 1)),
                       at(500 * N, KILN_F32, DIMS(500, 500), STEPS(1, N))));
    assert_true(share(at(500, KILN_F32, DIMS(500, 500), STEPS(N, 1)),
                      at(500, KILN_F32, DIMS(500, 500), STEPS(1, N))));
    assert_true(share(all, at(N * N - 1, KILN_F32, DIMS(N, N), STEPS(-N, -1))));
    assert_false(share(all, at(N * N, KILN_F32, DIMS(N, N), STEPS(N, 1))));
    /* every other element, real and imaginary parts, bytes of a word */
    assert_false(share(at(0, KILN_F32, DIMS(M), STEPS(2)), at(1, KILN_F32, DIMS(M), STEPS(2))));
    assert_false(share(at(0, KILN_F32, DIMS(M), STEPS(2)), at(2 * M - 1, KILN_F32, DIMS(M), STEPS(-2))));
    assert_true(share(at(0, KILN_F32, DIMS(M), STEPS(2)), at(2 * M - 2, KILN_F32, DIMS(M), STEPS(-2))));
    assert_true(share(at(0, KILN_C64, DIMS(M), STEPS(1)), at(1, KILN_F32, DIMS(M), STEPS(2))));
    assert_false(share(at(0, KILN_C64, DIMS(M), STEPS(2)), at(2, KILN_F32, DIMS(M), STEPS(4))));
    /* as far as strides may reach */
    int64_t far = ((int64_t)1 << 60) - 1;
    assert_true(
        share(at(0, KILN_F32, DIMS(2, 2), STEPS(far, -far)), at(0, KILN_F32, DIMS(2, 2), STEPS(far, -far))));
    assert_false(share(at(0, KILN_F32, DIMS(2), STEPS(far / 4)), at(1, KILN_F32, DIMS(2), STEPS(far / 4))));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_views),
        cmocka_unit_test(slices_of_one_array),
        cmocka_unit_test(large_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
