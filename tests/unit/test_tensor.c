/* test_tensor.c - tensors: limits, layouts, references, resizing, DLPack both ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/dlpack.h"
#include "tensor/tensor.h"

#define DIMS(...) \
    (const int64_t[]) { __VA_ARGS__ }

static void assert_error(kiln_status got, kiln_status want, const char *text) {
    assert_int_equal(got, want);
    if (!strstr(kiln_last_error(), text)) fail_msg("'%s' is not in '%s'", text, kiln_last_error());
}

/* -- making -------------------------------------------------------------------------------------------- */

static void owns_aligned_memory(void **state) {
    (void)state;
    for (int t = 0; t < KILN_DTYPE_COUNT; t++) {
        kiln_tensor *x;
        assert_int_equal(kiln_tensor_new((kiln_dtype)t, 3, DIMS(2, 3, 5), NULL, &x), KILN_OK);
        assert_int_equal((uintptr_t)kiln_tensor_data(x) % 64, 0);
        assert_int_equal(kiln_tensor_nelem(x), 30);
        assert_int_equal(kiln_tensor_dtype(x), t);
        assert_memory_equal(kiln_tensor_strides(x), DIMS(15, 5, 1), 24);
        memset(kiln_tensor_data(x), 1, 30 * kiln_dtype_size((kiln_dtype)t)); /* sanitizers see an overrun */
        kiln_tensor_release(x);
    }
}

static void given_strides_size_the_memory(void **state) {
    (void)state;
    kiln_tensor *x;
    assert_int_equal(kiln_tensor_new(KILN_F32, 2, DIMS(3, 2), DIMS(10, 4), &x), KILN_OK);
    memset(kiln_tensor_data(x), 0, (2 * 10 + 4 + 1) * 4);
    kiln_tensor_release(x);
    assert_int_equal(kiln_tensor_new(KILN_F64, 2, DIMS(1000, 1000), DIMS(0, 0), &x), KILN_OK);
    memset(kiln_tensor_data(x), 0, 8);
    assert_true(x->flags & KILN_TF_OVERLAPS);
    assert_true(x->data_cap < 1000);
    kiln_tensor_release(x);
}

static void empty_and_rank_zero(void **state) {
    (void)state;
    kiln_tensor *x;
    assert_int_equal(kiln_tensor_new(KILN_F32, 0, NULL, NULL, &x), KILN_OK);
    assert_int_equal(kiln_tensor_nelem(x), 1);
    kiln_tensor_release(x);
    assert_int_equal(kiln_tensor_new(KILN_F32, 3, DIMS(2, 0, 3), NULL, &x), KILN_OK);
    assert_int_equal(kiln_tensor_nelem(x), 0);
    assert_memory_equal(kiln_tensor_strides(x), DIMS(3, 3, 1), 24);
    assert_true(x->flags & KILN_TF_CONTIGUOUS);
    kiln_tensor_release(x);
    assert_int_equal(kiln_tensor_wrap(NULL, KILN_F32, 1, DIMS(0), NULL, NULL, NULL, &x), KILN_OK);
    kiln_tensor_release(x);
}

static void limits(void **state) {
    (void)state;
    kiln_tensor *x = NULL;
    int64_t many[65];
    float f[2] = {0};
    for (int i = 0; i < 65; i++) many[i] = 1;
    assert_error(kiln_tensor_new(KILN_F32, 65, many, NULL, &x), KILN_E_LIMIT, "rank 65");
    assert_error(kiln_tensor_new(KILN_F32, -1, many, NULL, &x), KILN_E_ARG, "rank -1");
    assert_error(kiln_tensor_new(KILN_F32, 2, DIMS(3, -2), NULL, &x), KILN_E_ARG, "size -2 of dimension 1");
    assert_error(kiln_tensor_new(KILN_F32, 2, DIMS(1ll << 40, 1ll << 40), NULL, &x), KILN_E_LIMIT, "2^62");
    assert_error(kiln_tensor_new(KILN_F64, 1, DIMS(1ll << 59), NULL, &x), KILN_E_LIMIT, "2^62");
    assert_error(kiln_tensor_new(KILN_U8, 3, DIMS(0, 1ll << 40, 1ll << 40), NULL, &x), KILN_E_LIMIT, "2^62");
    assert_error(kiln_tensor_new(KILN_F32, 1, DIMS(3), DIMS(-1), &x), KILN_E_ARG, "stride -1");
    assert_error(kiln_tensor_new(KILN_F32, 2, DIMS(3, 3), DIMS(1, INT64_MAX / 2), &x), KILN_E_LIMIT,
                 "stride");
    assert_error(kiln_tensor_new((kiln_dtype)99, 1, DIMS(3), NULL, &x), KILN_E_ARG, "99 is not a dtype");
    assert_error(kiln_tensor_new(KILN_F32, 1, NULL, NULL, &x), KILN_E_ARG, "sizes are missing");
    assert_error(kiln_tensor_wrap(NULL, KILN_F32, 1, DIMS(3), NULL, NULL, NULL, &x), KILN_E_ARG, "null");
    assert_error(kiln_tensor_wrap((char *)f + 1, KILN_F32, 1, DIMS(1), NULL, NULL, NULL, &x), KILN_E_ARG,
                 "aligned");
    assert_error(kiln_tensor_wrap(f, KILN_F32, 2, DIMS(3, 3), DIMS(1, INT64_MIN), NULL, NULL, &x),
                 KILN_E_LIMIT, "stride");
    assert_null(x);
    assert_int_equal(kiln_tensor_new(KILN_F32, 64, many, NULL, &x), KILN_OK);
    kiln_tensor_release(x);
}

/* -- layouts ------------------------------------------------------------------------------------------- */

static int flags_of(int rank, const int64_t *sizes, const int64_t *strides) {
    int64_t nelem = 1;
    for (int d = 0; d < rank; d++) nelem *= sizes[d];
    return kiln_layout_flags(rank, sizes, strides, nelem);
}

static void layouts(void **state) {
    (void)state;
    enum { C = KILN_TF_CONTIGUOUS, D = KILN_TF_DENSE, L = KILN_TF_CHANNELS_LAST, O = KILN_TF_OVERLAPS };
    enum { N = KILN_TF_CANONICAL, S = KILN_TF_SCALAR, ONE = KILN_TF_SINGLE };
    assert_int_equal(flags_of(2, DIMS(2, 3), DIMS(3, 1)), C | D | N);
    assert_int_equal(flags_of(2, DIMS(2, 3), DIMS(1, 2)), D);
    assert_int_equal(flags_of(2, DIMS(2, 3), DIMS(4, 1)), 0);
    assert_int_equal(flags_of(2, DIMS(2, 3), DIMS(0, 1)), O);
    assert_int_equal(flags_of(2, DIMS(2, 1), DIMS(1, 77)), C | D); /* one-sized dimensions have any stride */
    assert_int_equal(flags_of(2, DIMS(1, 3), DIMS(0, 1)), C | D);
    assert_int_equal(flags_of(2, DIMS(2, 1), DIMS(1, 1)), C | D | N);
    assert_int_equal(flags_of(2, DIMS(2, 0), DIMS(5, 0)), C | D);
    assert_int_equal(flags_of(1, DIMS(3), DIMS(-1)), 0);
    assert_int_equal(flags_of(2, DIMS(2, 2), DIMS(1, 1)), 0); /* overlaps, but not certainly so to PyTorch */
    assert_int_equal(flags_of(4, DIMS(2, 3, 4, 5), DIMS(60, 1, 15, 3)), D | L);
    assert_int_equal(flags_of(4, DIMS(2, 3, 4, 5), DIMS(60, 20, 5, 1)), C | D | N);
    assert_int_equal(flags_of(4, DIMS(2, 3, 1, 1), DIMS(3, 1, 1, 1)), C | D | L | N);
    assert_int_equal(flags_of(3, DIMS(2, 3, 4), DIMS(1, 2, 6)), D);
    assert_int_equal(flags_of(0, NULL, NULL), C | D | N | S | ONE);
    assert_int_equal(flags_of(2, DIMS(1, 1), DIMS(9, 1)), C | D | ONE);
}

/* -- references ---------------------------------------------------------------------------------------- */

static int deleted;
static void count_delete(void *owner) { deleted += *(int *)owner; }

static void wraps_and_lets_go_once(void **state) {
    (void)state;
    float data[6] = {0};
    int amount = 7;
    kiln_tensor *x;
    deleted = 0;
    assert_int_equal(
        kiln_tensor_wrap(data + 5, KILN_F32, 2, DIMS(2, 3), DIMS(-3, -1), count_delete, &amount, &x),
        KILN_OK);
    assert_ptr_equal(kiln_tensor_data(x), data + 5);
    assert_int_equal(kiln_tensor_strides(x)[0], -3);
    assert_ptr_equal(kiln_tensor_retain(x), x);
    kiln_tensor_release(x);
    assert_int_equal(deleted, 0);
    kiln_tensor_release(x);
    assert_int_equal(deleted, 7);
    kiln_tensor_release(NULL);
}

static void memory_may_run_out(void **state) {
    (void)state;
    kiln_tensor *x = NULL, *y = NULL;
    void *dl = NULL;
    float f = 0;
    assert_int_equal(kiln_tensor_new(KILN_F32, 1, DIMS(4), NULL, &x), KILN_OK);
    kiln_trim(); /* nothing kept that would serve */
    kiln_alloc_fail_after(1);
    kiln_status made = kiln_tensor_new(KILN_F32, 1, DIMS(4), NULL, &y);
    kiln_status wrapped = kiln_tensor_wrap(&f, KILN_F32, 0, NULL, NULL, NULL, NULL, &y);
    kiln_status exported = kiln_tensor_to_dlpack(x, &dl);
    kiln_status resized = kiln_tensor_resize(x, 1, DIMS(400), NULL);
    kiln_alloc_fail_after(0);
    assert_int_equal(made, KILN_E_NOMEM);
    assert_int_equal(wrapped, KILN_E_NOMEM);
    assert_int_equal(exported, KILN_E_NOMEM);
    assert_int_equal(resized, KILN_E_NOMEM);
    assert_null(y);
    assert_null(dl);
    assert_int_equal(kiln_tensor_sizes(x)[0], 4); /* a failed resize changes nothing */
    kiln_tensor_release(x);
}

/* -- resizing ------------------------------------------------------------------------------------------ */

static void resizes_what_it_owns(void **state) {
    (void)state;
    kiln_tensor *x;
    assert_int_equal(kiln_tensor_new(KILN_F32, 1, DIMS(6), NULL, &x), KILN_OK);
    void *first = kiln_tensor_data(x);
    assert_int_equal(kiln_tensor_resize(x, 1, DIMS(2), NULL), KILN_OK);
    assert_ptr_equal(kiln_tensor_data(x), first); /* smaller stays in place */
    assert_int_equal(kiln_tensor_resize(x, 3, DIMS(10, 1, 20), DIMS(1, 10, 10)), KILN_OK);
    assert_int_equal(kiln_tensor_rank(x), 3);
    assert_int_equal(kiln_tensor_nelem(x), 200);
    assert_int_equal((uintptr_t)kiln_tensor_data(x) % 64, 0);
    assert_true(x->flags & KILN_TF_DENSE);
    assert_true(x->flags & KILN_TF_OWNED);
    memset(kiln_tensor_data(x), 0, 800);
    assert_int_equal(kiln_tensor_resize(x, 1, DIMS(1000), NULL), KILN_OK);
    memset(kiln_tensor_data(x), 0, 4000);
    assert_memory_equal(kiln_tensor_strides(x), DIMS(1), 8);
    assert_error(kiln_tensor_resize(x, 1, DIMS(-1), NULL), KILN_E_ARG, "negative");
    assert_int_equal(kiln_tensor_nelem(x), 1000);
    kiln_tensor_release(x);
}

static void reserving_changes_nothing(void **state) {
    (void)state;
    kiln_tensor *x;
    assert_int_equal(kiln_tensor_new(KILN_F32, 1, DIMS(2), NULL, &x), KILN_OK);
    ((float *)kiln_tensor_data(x))[1] = 5;
    assert_int_equal(kiln_tensor_reserve(x, 2, DIMS(30, 30), NULL), KILN_OK);
    assert_int_equal(kiln_tensor_nelem(x), 2);
    assert_true(((float *)kiln_tensor_data(x))[1] == 5);
    kiln_alloc_fail_after(1);
    kiln_status st = kiln_tensor_resize(x, 2, DIMS(30, 30), NULL);
    kiln_alloc_fail_after(0);
    assert_int_equal(st, KILN_OK);
    assert_int_equal(kiln_tensor_nelem(x), 900);
    kiln_tensor_release(x);
}

static void does_not_resize_what_it_borrows(void **state) {
    (void)state;
    float data[6];
    kiln_tensor *x;
    assert_int_equal(kiln_tensor_wrap(data, KILN_F32, 1, DIMS(6), NULL, NULL, NULL, &x), KILN_OK);
    assert_error(kiln_tensor_resize(x, 1, DIMS(3), NULL), KILN_E_ARG, "does not own");
    kiln_tensor_release(x);
}

static void an_export_survives_a_resize(void **state) {
    (void)state;
    kiln_tensor *x;
    void *dl;
    assert_int_equal(kiln_tensor_new(KILN_F32, 1, DIMS(2), NULL, &x), KILN_OK);
    assert_int_equal(kiln_tensor_resize(x, 1, DIMS(100), NULL), KILN_OK);
    ((float *)kiln_tensor_data(x))[99] = 5;
    assert_int_equal(kiln_tensor_to_dlpack(x, &dl), KILN_OK);
    assert_int_equal(kiln_tensor_resize(x, 1, DIMS(1000), NULL), KILN_OK);
    kiln_dl_managed *m = dl;
    assert_int_equal(m->tensor.shape[0], 100);
    assert_true(((float *)m->tensor.data)[99] == 5);
    kiln_tensor_release(x);
    m->deleter(m);
}

/* -- DLPack -------------------------------------------------------------------------------------------- */

static int dl_deleted;
static void dl_delete(kiln_dl_managed *m) {
    (void)m;
    dl_deleted++;
}

static kiln_dl_managed dl_of(void *data, int64_t *shape, int64_t *strides) {
    kiln_dl_managed m = {1,         1, NULL,
                         dl_delete, 0, {data, KILN_DL_CPU, 0, 2, KILN_DL_FLOAT, 32, 1, shape, strides, 0}};
    return m;
}

static void imports(void **state) {
    (void)state;
    float data[8] = {0};
    int64_t shape[] = {2, 3}, strides[] = {1, 2};
    kiln_dl_managed m = dl_of(data, shape, strides);
    kiln_tensor *x;
    dl_deleted = 0;
    m.tensor.byte_offset = 8;
    assert_int_equal(kiln_tensor_from_dlpack(&m, &x), KILN_OK);
    assert_ptr_equal(kiln_tensor_data(x), data + 2);
    assert_memory_equal(kiln_tensor_strides(x), strides, 16);
    assert_false(x->flags & (KILN_TF_READONLY | KILN_TF_OWNED));
    kiln_tensor_release(x);
    assert_int_equal(dl_deleted, 1);
    m.flags = KILN_DL_READ_ONLY;
    m.tensor.strides = NULL;
    assert_int_equal(kiln_tensor_from_dlpack(&m, &x), KILN_OK);
    assert_true(x->flags & KILN_TF_READONLY);
    assert_memory_equal(kiln_tensor_strides(x), DIMS(3, 1), 16);
    kiln_tensor_release(x);
    assert_int_equal(dl_deleted, 2);
}

static void refuses_imports(void **state) {
    (void)state;
    float data[8] = {0};
    int64_t shape[] = {2, 3};
    kiln_dl_managed m = dl_of(data, shape, NULL);
    kiln_tensor *x = NULL;
    dl_deleted = 0;
    m.tensor.lanes = 4;
    assert_error(kiln_tensor_from_dlpack(&m, &x), KILN_E_UNSUP, "4 lanes");
    m = dl_of(data, shape, NULL);
    m.tensor.bits = 8; /* an 8-bit float */
    assert_error(kiln_tensor_from_dlpack(&m, &x), KILN_E_UNSUP, "8 bits");
    m = dl_of(data, shape, NULL);
    m.tensor.code = 5; /* complex, of two halves */
    m.tensor.bits = 32;
    assert_error(kiln_tensor_from_dlpack(&m, &x), KILN_E_UNSUP, "code 5");
    m = dl_of(data, shape, NULL);
    m.tensor.device_type = 2;
    assert_error(kiln_tensor_from_dlpack(&m, &x), KILN_E_UNSUP, "device type 2");
    m = dl_of(data, shape, NULL);
    m.major = 2;
    assert_error(kiln_tensor_from_dlpack(&m, &x), KILN_E_UNSUP, "version 2.1");
    m = dl_of(data, shape, NULL);
    m.tensor.ndim = 65;
    assert_error(kiln_tensor_from_dlpack(&m, &x), KILN_E_LIMIT, "rank 65");
    assert_error(kiln_tensor_from_dlpack(NULL, &x), KILN_E_ARG, "managed is NULL");
    assert_null(x);
    assert_int_equal(dl_deleted, 0); /* a refused tensor is still the caller's */
}

static void every_dtype_goes_round(void **state) {
    (void)state;
    for (int t = 0; t < KILN_DTYPE_COUNT; t++) {
        kiln_tensor *x, *y;
        void *dl;
        assert_int_equal(kiln_tensor_new((kiln_dtype)t, 2, DIMS(2, 3), DIMS(1, 2), &x), KILN_OK);
        if (t & 1) kiln_tensor_set_readonly(x);
        assert_int_equal(kiln_tensor_to_dlpack(x, &dl), KILN_OK);
        assert_int_equal(kiln_tensor_from_dlpack(dl, &y), KILN_OK);
        assert_int_equal(kiln_tensor_dtype(y), t);
        assert_ptr_equal(kiln_tensor_data(y), kiln_tensor_data(x));
        assert_int_equal(!!(y->flags & KILN_TF_READONLY), t & 1);
        kiln_tensor_release(x);
        memset(kiln_tensor_data(y), 0, 6 * kiln_dtype_size((kiln_dtype)t)); /* still alive */
        kiln_tensor_release(y);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owns_aligned_memory),
        cmocka_unit_test(given_strides_size_the_memory),
        cmocka_unit_test(empty_and_rank_zero),
        cmocka_unit_test(limits),
        cmocka_unit_test(layouts),
        cmocka_unit_test(wraps_and_lets_go_once),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(resizes_what_it_owns),
        cmocka_unit_test(reserving_changes_nothing),
        cmocka_unit_test(does_not_resize_what_it_borrows),
        cmocka_unit_test(an_export_survives_a_resize),
        cmocka_unit_test(imports),
        cmocka_unit_test(refuses_imports),
        cmocka_unit_test(every_dtype_goes_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
