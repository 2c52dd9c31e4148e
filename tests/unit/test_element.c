/* test_element.c - elements <-> numbers: every dtype both ways, at the edges, and without alignment. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

static void goes(kiln_dtype t, kiln_value in, kiln_value want) {
    char memory[24];
    memset(memory, 0x5a, sizeof memory);
    assert_int_equal(kiln_element_set(t, &in, memory + 1), 1);
    for (size_t k = 1 + kiln_dtype_size(t); k < sizeof memory; k++) assert_int_equal(memory[k], 0x5a);
    kiln_value out = kiln_element_get(t, memory + 1);
    assert_int_equal(out.kind, want.kind);
    size_t n = out.kind == KILN_COMPLEX_V ? sizeof out.u.c : sizeof out.u.i;
    if (memcmp(&out.u, &want.u, n) != 0)
        fail_msg("%s: %lld, %g; expected %lld, %g", kiln_dtype_name(t), (long long)out.u.i, out.u.f,
                 (long long)want.u.i, want.u.f);
}

static void integers_wrap(void **state) {
    (void)state;
    static const struct {
        kiln_dtype t;
        int64_t of_300, of_minus_1;
    } rows[] = {{KILN_U8, 44, 255},          {KILN_I8, 44, -1},   {KILN_U16, 300, 65535}, {KILN_I16, 300, -1},
                {KILN_U32, 300, UINT32_MAX}, {KILN_I32, 300, -1}, {KILN_I64, 300, -1}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        goes(rows[k].t, kiln_v_int(300), kiln_v_int(rows[k].of_300));
        goes(rows[k].t, kiln_v_float(300.9), kiln_v_int(rows[k].of_300));
        goes(rows[k].t, kiln_v_int(-1), kiln_v_int(rows[k].of_minus_1));
        goes(rows[k].t, kiln_v_bool(1), kiln_v_int(1));
        goes(rows[k].t, kiln_v_complex(2, 3), kiln_v_int(2));
    }
    kiln_value wide = {.kind = KILN_UINT_V, .u.i = -2};
    goes(KILN_U64, kiln_v_int(-2), wide);
    goes(KILN_U64, wide, wide);
    goes(KILN_U64, kiln_v_float(0x1p63), kiln_v_uint(UINT64_C(1) << 63));
    goes(KILN_U64, kiln_v_int(7), kiln_v_int(7));
    goes(KILN_F64, wide, kiln_v_float(0x1p64));
    goes(KILN_I64, kiln_v_float((double)NAN), kiln_v_int(INT64_MIN));
}

static void reals_round(void **state) {
    (void)state;
    goes(KILN_F64, kiln_v_float(0.1), kiln_v_float(0.1));
    goes(KILN_F32, kiln_v_float(0.1), kiln_v_float((double)0.1f));
    goes(KILN_F32, kiln_v_int((1 << 24) + 1), kiln_v_float(0x1p24));
    goes(KILN_F32, kiln_v_float(1e300), kiln_v_float((double)INFINITY));
    goes(KILN_F16, kiln_v_float(65519), kiln_v_float(65504));
    goes(KILN_F16, kiln_v_float(65520), kiln_v_float((double)INFINITY));
    goes(KILN_F16, kiln_v_float(0x1p-24), kiln_v_float(0x1p-24));
    goes(KILN_BF16, kiln_v_float(1.00390625), kiln_v_float(1)); /* a tie goes to even */
    goes(KILN_C64, kiln_v_complex(0.1, -0.0), kiln_v_complex((double)0.1f, -0.0));
    goes(KILN_C128, kiln_v_int(3), kiln_v_complex(3, 0));
    goes(KILN_BOOL, kiln_v_complex(0, 1), kiln_v_bool(1));
    goes(KILN_BOOL, kiln_v_float(0.25), kiln_v_bool(1));
    goes(KILN_BOOL, kiln_v_float(-0.0), kiln_v_bool(0));
}

static void what_is_no_number_stores_nothing(void **state) {
    (void)state;
    char memory[16] = "as it was";
    kiln_value none = kiln_v_none(), text = kiln_v_str("1"), one = kiln_v_int(1);
    assert_int_equal(kiln_element_set(KILN_F32, &none, memory), 0);
    assert_int_equal(kiln_element_set(KILN_F32, &text, memory), 0);
    assert_int_equal(kiln_element_set(KILN_DTYPE_COUNT, &one, memory), 0);
    assert_string_equal(memory, "as it was");
    assert_int_equal(kiln_element_get(KILN_DTYPE_COUNT, memory).kind, KILN_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(reals_round),
        cmocka_unit_test(what_is_no_number_stores_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
