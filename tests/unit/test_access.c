/* test_access.c - accesses: which dimension of a call each dimension of a memory steps along, and the steps that this gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "work/access.h"

enum { RANK = 3, NONE = KILN_ACCESS_NONE, AT = KILN_ACCESS_AT };

/* A memory beside a call of sizes [2, 3, 4]. */
typedef struct memory {
    int rank;
    int64_t sizes[4], strides[4];
    uint64_t lacks;
    int at;
    bool fits;
    int8_t along[4];
    int64_t steps[RANK];
} memory;

static void accesses_are_aligned(void **state) {
    (void)state;
    static const int64_t sizes[RANK] = {2, 3, 4};
    static const memory cases[] = {
        {3, {2, 3, 4}, {12, 4, 1}, 0, -1, true, {0, 1, 2}, {12, 4, 1}},
        {3, {2, 3, 4}, {1, -2, 0}, 0, -1, true, {0, 1, 2}, {1, -2, 0}},
        {1, {4}, {1}, 0, -1, true, {2}, {0, 0, 1}},          /* broadcast over the first dimensions */
        {2, {3, 1}, {5, 1}, 0, -1, true, {1, 2}, {0, 5, 0}}, /* over the last one */
        {0, {0}, {0}, 0, -1, true, {0}, {0, 0, 0}},
        {4,
         {1, 1, 1, 1},
         {7, 7, 7, 7},
         0,
         -1,
         true,
         {NONE, 0, 1, 2},
         {0, 0, 0}},                                         /* one element has any rank */
        {2, {2, 4}, {4, 1}, 2, -1, true, {0, 2}, {4, 0, 1}}, /* lacks the second dimension */
        {1, {3}, {1}, 5, -1, true, {1}, {0, 1, 0}},
        {1, {9}, {2}, 0, 0, true, {AT}, {0, 0, 0}}, /* a table */
        {4, {2, 3, 9, 4}, {108, 36, 4, 1}, 0, 2, true, {0, 1, AT, 2}, {108, 36, 1}},
        {2, {2, 3}, {3, 1}, 0, -1, false, {NONE, NONE}, {0, 0, 0}},
        {2, {3, 4}, {4, 1}, 3, -1, false, {NONE, 2}, {0, 0, 1}}, /* it does not lack the second one */
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const memory *m = &cases[k];
        const kiln_access_dims call = {RANK, sizes, m->lacks, m->at};
        kiln_access a;
        int64_t steps[RANK] = {-1, -1, -1};
        kiln_access_begin(&a, m->rank, m->sizes, m->strides);
        assert_int_equal(kiln_access_align(&a, &call), m->fits);
        kiln_access_steps(&a, RANK, steps);
        for (int d = 0; d < m->rank; d++) assert_int_equal(a.along[d], m->along[d]);
        for (int d = 0; d < RANK; d++) assert_int_equal(steps[d], m->steps[d]);
    }
}

static void a_diagonal_steps_by_both_dimensions(void **state) {
    (void)state;
    static const int64_t sizes[] = {5, 3}, strides[] = {3, 1};
    kiln_access a;
    int64_t step;
    kiln_access_begin(&a, 2, sizes, strides);
    a.along[0] = a.along[1] = 0;
    kiln_access_steps(&a, 1, &step);
    assert_int_equal(step, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(accesses_are_aligned),
                                       cmocka_unit_test(a_diagonal_steps_by_both_dimensions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
