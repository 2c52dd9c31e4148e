/* test_ir_simplify.c - what the simplifier makes of kernels, and what it leaves alone since a bit could change. */
#include "unit/ir_text.h"

static const struct {
    const char *before, *after;
} simplified[] = {
    /* constants: integers wrap, floats round as C does */
    {"%0 = const i32 2147483647 %1 = const i32 1 %2 = add %0, %1 store i, %2",
     "%0 = const i32 -2147483648 store i, %0"},
    {"%0 = const u8 200 %1 = const u8 100 %2 = add %0, %1 %3 = cast i32 %2 store i, %3",
     "%0 = const i32 44 store i, %0"},
    {"%0 = const f32 0.1 %1 = const f32 0.2 %2 = add %0, %1 store y, %2", "%0 = const f32 0.3 store y, %0"},
    {"%0 = const f32 0.1 %1 = cast f64 %0 %2 = const f64 0 %3 = sub %1, %2 %4 = cast f32 %3 store y, %4",
     "%0 = const f32 0.1 store y, %0"},
    {"%0 = const f32 0 %1 = div %0, %0 store y, %1", "%0 = const f32 nan store y, %0"},
    {"%0 = const f32 -0 %1 = neg %0 store y, %1", "%0 = const f32 0 store y, %0"},
    {"%0 = const i8 -128 %1 = abs %0 %2 = cast i32 %1 store i, %2", "%0 = const i32 -128 store i, %0"},
    {"%0 = const f32 nan %1 = cast bool %0 store b, %1", "%0 = const bool true store b, %0"},
    {"%0 = const f32 nan %1 = ne %0, %0 store b, %1", "%0 = const bool true store b, %0"},
    {"%0 = const f64 -2.75 %1 = cast i32 %0 store i, %1", "%0 = const i32 -2 store i, %0"},
    /* left to the kernel: out of range, halves, elementary functions */
    {"%0 = const f64 1e10 %1 = cast i32 %0 store i, %1", "%0 = const f64 1e+10 %1 = cast i32 %0 store i, %1"},
    {"%0 = const f32 1 %1 = exp %0 store y, %1", "%0 = const f32 1 %1 = exp %0 store y, %1"},
    {"%0 = const f32 1 %1 = cast f16 %0 store h, %1", "%0 = const f32 1 %1 = cast f16 %0 store h, %1"},
    {"%0 = const i32 1 %1 = const i32 0 %2 = idiv %0, %1 store i, %2",
     "%0 = const i32 1 %1 = const i32 0 %2 = idiv %0, %1 store i, %2"},
    /* neutral elements, never where a bit could change */
    {"%0 = load x %1 = const f32 1 %2 = mul %0, %1 %3 = mul %1, %2 %4 = div %3, %1 store y, %4",
     "%0 = load x store y, %0"},
    {"%0 = load x %1 = const f32 0 %2 = add %0, %1 store y, %2",
     "%0 = load x %1 = const f32 0 %2 = add %0, %1 store y, %2"},
    {"%0 = load x %1 = const f32 0 %2 = sub %0, %1 store y, %2",
     "%0 = load x %1 = const f32 0 %2 = sub %0, %1 store y, %2"},
    {"%0 = load x %1 = const f32 0 %2 = mul %0, %1 store y, %2",
     "%0 = load x %1 = const f32 0 %2 = mul %0, %1 store y, %2"},
    {"%0 = load k %1 = const i32 0 %2 = add %0, %1 %3 = or %1, %2 %4 = sub %3, %1 store i, %4",
     "%0 = load k store i, %0"},
    {"%0 = load k %1 = const i32 -1 %2 = and %0, %1 %3 = const i32 0 %4 = and %2, %3 store i, %4",
     "%0 = const i32 0 store i, %0"},
    {"%0 = load c %1 = not %0 %2 = not %1 store b, %2", "%0 = load c store b, %0"},
    {"%0 = load x %1 = neg %0 %2 = neg %1 store y, %2", "%0 = load x store y, %0"},
    {"%0 = const bool true %1 = load x %2 = const f32 2 %3 = select %0, %1, %2 store y, %3",
     "%0 = load x store y, %0"},
    {"%0 = load c %1 = load x %2 = select %0, %1, %1 store y, %2", "%0 = load x store y, %0"},
    /* there and back */
    {"%0 = load x %1 = cast f64 %0 %2 = cast f32 %1 store y, %2", "%0 = load x store y, %0"},
    {"%0 = load x %1 = cast i32 %0 %2 = cast f32 %1 store y, %2",
     "%0 = load x %1 = cast i32 %0 %2 = cast f32 %1 store y, %2"},
    {"%0 = load k %1 = cast f32 %0 %2 = cast i32 %1 store i, %2",
     "%0 = load k %1 = cast f32 %0 %2 = cast i32 %1 store i, %2"},
    {"%0 = load c %1 = cast f32 %0 %2 = cast bool %1 store b, %2", "%0 = load c store b, %0"},
    /* widened and compared: as they were, unless a sign would be lost */
    {"%0 = load k %1 = cast i64 %0 %2 = load x %3 = cast i32 %2 %4 = cast i64 %3 %5 = lt %1, %4 store b, %5",
     "%0 = load k %1 = load x %2 = cast i32 %1 %3 = lt %0, %2 store b, %3"},
    {"%0 = load k %1 = cast u64 %0 %2 = load x %3 = cast i32 %2 %4 = cast u64 %3 %5 = lt %1, %4 store b, %5",
     "%0 = load k %1 = cast u64 %0 %2 = load x %3 = cast i32 %2 %4 = cast u64 %3 %5 = lt %1, %4 store b, %5"},
    /* repeated values */
    {"%0 = load x %1 = load x %2 = mul %0, %1 %3 = mul %1, %0 %4 = add %2, %3 store y, %4",
     "%0 = load x %1 = mul %0, %0 %2 = add %1, %1 store y, %2"},
    {"%0 = load t %1 = load t %2 = add %0, %1 store y, %2",
     "%0 = load t %1 = load t %2 = add %0, %1 store y, %2"},
    {"%0 = load x store y, %0 %1 = load x store z, %1", "%0 = load x store y, %0 %1 = load x store z, %1"},
    {"%0 = const f32 0 %1 = const f32 -0 %2 = sub %0, %1 %3 = load x %4 = add %3, %1 %5 = mul %4, %2 store y, %5",
     "%0 = const f32 0 %1 = const f32 -0 %2 = load x %3 = add %2, %1 %4 = mul %3, %0 store y, %4"},
    /* guards */
    {"%0 = const bool true %1 = const f32 5 %2 = load x if %0 else %1 store y, %2 if %0",
     "%0 = load x store y, %0"},
    {"%0 = const bool false %1 = const f32 5 %2 = load x if %0 else %1 store y, %2",
     "%0 = const f32 5 store y, %0"},
    {"%0 = const bool false %1 = load x store y, %1 if %0", ""},
    /* what nobody needs */
    {"%0 = load x %1 = exp %0 %2 = index r", ""},
    {"%0 = const f32 0 %1 = fold q (%0) { %2 = state 0 yield %2 } merge { %3 = left 0 yield %3 } %4 = load x store y, %4",
     "%0 = load x store y, %0"},
    {"for q { %0 = load x for v { %1 = exp %0 } }", ""},
    {"%0 = const f32 0 %1 = const f32 1 %2 = scan q (%0) { %3 = state 0 %4 = mul %3, %1 %5 = state 0 store w, %4 yield %5 }",
     "%0 = const f32 0 %1 = scan q (%0) { %2 = state 0 store w, %2 yield %2 }"},
    {"for q { %0 = const f32 2 store w, %0 } %1 = const f32 2 store y, %1",
     "for q { %0 = const f32 2 store w, %0 } %1 = const f32 2 store y, %1"},
    /* a block's first element, its index and its length are not those of the loops within and around it */
    {("%0 = const f32 0 %1 = extent q %2 = cast f32 %1 %3 = fold q (%0) by block 8 { %4 = extent q %5 = extent q "
      "%6 = add %4, %5 %7 = index q %8 = add %6, %7 %9 = cast f32 %8 %10 = load u %11 = add %9, %10 "
      "%12 = fold q (%0) { %13 = index q %14 = extent q %15 = add %13, %14 %16 = cast f32 %15 %17 = load u %18 = load u "
      "%19 = add %17, %18 %20 = add %16, %19 %21 = state 0 %22 = add %20, %21 yield %22 } "
      "merge { %23 = left 0 %24 = right 0 %25 = add %23, %24 yield %25 } %26 = result %12 0 %27 = add %26, %11 yield %27 } "
      "merge { %28 = left 0 %29 = right 0 %30 = add %28, %29 %31 = extent q %32 = cast f32 %31 %33 = add %30, %32 "
      "yield %33 } %34 = result %3 0 %35 = add %34, %2 store y, %35"),
     ("%0 = const f32 0 %1 = extent q %2 = cast f32 %1 %3 = fold q (%0) by block 8 { %4 = extent q %5 = add %4, %4 "
      "%6 = index q %7 = add %5, %6 %8 = cast f32 %7 %9 = load u %10 = add %8, %9 "
      "%11 = fold q (%0) { %12 = index q %13 = add %12, %4 %14 = cast f32 %13 %15 = load u %16 = add %15, %15 "
      "%17 = add %14, %16 %18 = state 0 %19 = add %17, %18 yield %19 } "
      "merge { %20 = left 0 %21 = right 0 %22 = add %20, %21 yield %22 } %23 = result %11 0 %24 = add %23, %10 yield %24 } "
      "merge { %25 = left 0 %26 = right 0 %27 = add %25, %26 %28 = add %27, %2 yield %28 } "
      "%29 = result %3 0 %30 = add %29, %2 store y, %30")},
    /* several axes are no operands */
    {("%0 = const f32 0 %1 = load x %2 = exp %1 %3 = fold v, q (%0) lanes 8 block 8 { %4 = load u %5 = load u yield %5 } "
      "merge { %6 = left 0 yield %6 } %7 = result %3 0 store y, %7"),
     ("%0 = const f32 0 %1 = fold v, q (%0) lanes 8 block 8 { %2 = load u yield %2 } merge { %3 = left 0 yield %3 } "
      "%4 = result %1 0 store y, %4")},
    {("%0 = const f32 0 %1 = fold v, q (%0) by block 4 { yield %0 } merge { yield %0 } "
      "%2 = scan q (%0) by block 4 { yield %0 } merge { yield %0 } store y, %0"),
     "%0 = const f32 0 store y, %0"},
};

static void simplifier_keeps_the_bits(void **state) {
    (void)state;
    static const char head[] =
        "kernel \"k\" { axis r axis q axis v buf x in f32 (r) buf k in i32 (r) buf c in bool (r) buf y out f32 (r) "
        "buf z out f32 (r) buf i out i32 (r) buf b out bool (r) buf h out f16 (r) buf w out f32 (r, q) buf t tmp f32 (r) "
        "buf u in f32 (q) "
        "for r vec { ";
    for (size_t i = 0; i < COUNT(simplified); i++) {
        char text[2048], got[4096], want[4096];
        kiln_arena a;
        kiln_arena_init(&a);
        snprintf(text, sizeof text, "%s%s } }", head, simplified[i].before);
        kiln_ir *ir = parse(&a, text);
        assert_int_equal(kiln_ir_simplify(ir), KILN_OK);
        assert_int_equal(kiln_ir_verify(ir), KILN_OK);
        print_to(got, sizeof got, ir);
        snprintf(text, sizeof text, "%s%s } }", head, simplified[i].after);
        print_to(want, sizeof want, parse(&a, text));
        if (strcmp(got, want) != 0) fail_msg("%s\ngave\n%s", simplified[i].before, got);
        assert_int_equal(kiln_ir_simplify(ir), KILN_OK); /* nothing is left to do */
        print_to(got, sizeof got, ir);
        assert_string_equal(got, want);
        kiln_arena_free(&a);
    }
}

static void simplifier_keeps_nests_and_traps(void **state) {
    (void)state;
    char got[4096];
    kiln_arena a;
    kiln_arena_init(&a);
    kiln_ir *ir = parse(&a,
                        HEAD "for r { %0 = const bool false trap %0, E_INDEX \"never\" %1 = load b "
                             "trap %1, E_VALUE \"maybe\" } for q { } for r { %2 = load x store y, %2 } }");
    assert_int_equal(kiln_ir_simplify(ir), KILN_OK);
    assert_int_equal(ir->nnests, 3);
    assert_int_equal(ir->ins[2].op, KILN_IR_TRAP);
    assert_int_equal(ir->ins[2].which, 0); /* launches return ordinals: the text must tell them all */
    assert_int_equal(ir->ntraps, 1);
    assert_int_equal(ir->traps[0].status, KILN_E_VALUE);
    print_to(got, sizeof got, ir);
    assert_null(strstr(got, "never"));
    assert_non_null(strstr(got, "for q {\n  }\n"));
    kiln_arena_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simplifier_keeps_the_bits),
        cmocka_unit_test(simplifier_keeps_nests_and_traps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
