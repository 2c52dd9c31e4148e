/* test_indexed.c - kernels whose grid has indexed axes: threads share their points, and each part knows its positions.
 *
 * The host's parallel_for counts the parts and runs them from the last to the first.  Results must be those of one launch over
 * the whole box, whichever dimension is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "run/driver.h"

enum {
    P,
    ROW,
    COLUMN,
    MEASURE,
    DIMS,
    BUFFERS = 2,
    MOST = 1 << 15
}; /* dimensions of a work: the grid has one besides */

/* y[p, r, c] = x[p, c mod n] + 1000 r + c, where n is how many x has. */
static const char text[] =
    "kernel \"places\" { axis p grid axis r grid indexed axis c grid indexed axis v "
    "buf y out i64 (p, r, c) any buf x in i64 (p, v) any "
    "for p { for r { %0 = index r %1 = const i64 1000 %2 = mul %0, %1 for c vec { "
    "%3 = index c %4 = extent v %5 = mod %3, %4 %6 = load x [v = %5] %7 = add %6, %2 %8 = add %7, %3 store y, %8 "
    "} } } }";

static int64_t nparts;

static void backwards(void *user, int64_t n, void (*body)(void *arg, int64_t k), void *arg) {
    (void)user;
    nparts = n;
    for (int64_t k = n - 1; k >= 0; k--) body(arg, k);
}

/* The kernel over the extents n, all of them long enough together to be shared. */
static void try_extents(const kiln_interp *interp, const int64_t *n) {
    static int64_t y[MOST], x[MOST];
    const int64_t cols = n[COLUMN] * 8, rows = n[ROW] * cols, measure = n[MEASURE] * 8;
    const int64_t stride[BUFFERS * DIMS] = {rows, cols, 8, 0, measure, 0, 0, 8};
    const uint8_t bytes[BUFFERS] = {8, 8};
    int64_t nelem = n[P] * n[ROW] * n[COLUMN];
    char *ptr[BUFFERS] = {(char *)y, (char *)x};
    const kiln_parallel parallel = {.threads = 4, .host = backwards};
    kiln_cost cost;
    kiln_cost_guess(&cost, 1000000, 1000000);
    const kiln_runner run = {.interp = interp, .parallel = &parallel, .cost = &cost};
    kiln_axes axes = {.n = n, .stride = stride, .bytes = bytes};
    axes.counts = (kiln_axes_counts){.ndim = DIMS,
                                     .ngrid = 1,
                                     .nindexed = 2,
                                     .nbuffers = BUFFERS,
                                     .nwritten = 1,
                                     .pitch = DIMS,
                                     .vector = COLUMN,
                                     .strided = true,
                                     .npoints = nelem,
                                     .nelem = nelem};
    int32_t trap;
    assert_true(nelem <= MOST && n[P] * n[MEASURE] <= MOST);
    memset(y, 0xee, sizeof y);
    for (int64_t k = 0; k < MOST; k++) x[k] = k * 1000000;
    nparts = 1;
    assert_int_equal(kiln_drive(&axes, &run, 0, ptr, NULL, &trap), KILN_OK);
    assert_int_equal(trap, 0);
    assert_true(nparts > 1);
    for (int64_t p = 0, k = 0; p < n[P]; p++)
        for (int64_t r = 0; r < n[ROW]; r++)
            for (int64_t c = 0; c < n[COLUMN]; c++, k++)
                assert_int_equal(y[k], x[p * n[MEASURE] + c % n[MEASURE]] + 1000 * r + c);
}

static void parts_know_their_places(void **state) {
    (void)state;
    static const int64_t extents[][DIMS] = {
        {40, 9, 31, 7}, {1, 300, 21, 5}, {2, 3, 5000, 6}, {1, 1, 9999, 4}};
    kiln_arena arena;
    kiln_ir *ir = NULL;
    kiln_interp *interp = NULL;
    kiln_arena_init(&arena);
    if (kiln_ir_parse(&arena, text, sizeof text - 1, &ir) != KILN_OK) fail_msg("%s", kiln_last_error());
    assert_int_equal(kiln_interp_new(ir, KILN_ISA_GENERIC, &interp), KILN_OK);
    for (size_t k = 0; k < sizeof extents / sizeof *extents; k++) try_extents(interp, extents[k]);
    kiln_interp_free(interp);
    kiln_arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_know_their_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
