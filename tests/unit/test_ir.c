/* test_ir.c - the IR as text and as data: round trips, every refusal of the verifier, a builder that is
 * misused. */
#include "unit/ir_text.h"

#include <glob.h>
#include <math.h>

/* -- text ----------------------------------------------------------------------------------------- */

/* Every sample is in the printer's own form, but for the comment it starts with. */
static void samples_print_as_they_are(void **state) {
    (void)state;
    glob_t files;
    assert_int_equal(glob(KILN_SOURCE_DIR "/tests/golden/ir/*.kir", 0, NULL, &files), 0);
    assert_true(files.gl_pathc > 10);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char *text, out[8192];
        size_t n;
        kiln_arena a;
        kiln_arena_init(&a);
        assert_int_equal(kiln_file_read(files.gl_pathv[i], &text, &n), KILN_OK);
        print_to(out, sizeof out, parse(&a, text));
        const char *body = text;
        while (*body == '#') body = strchr(body, '\n') + 1;
        assert_string_equal(out, body);
        kiln_free(text);
        kiln_arena_free(&a);
    }
    globfree(&files);
}

/* Kernels that differ in names and in what traps say have equal nameless text.  Nameless text is IR. */
static void nameless_text_is_ir_without_names(void **state) {
    (void)state;
    static const char *const texts[] = {
        "kernel \"k\" { axis p grid axis r buf x in f32 (p, r) contig buf y out f32 (p) contig par a f32 "
        "for p { %0 = par a %1 = lt %0, %0 trap %1, E_ARG \"no\" } "
        "for p { %2 = const f32 0 %3 = fold r (%2) { %4 = index r %5 = load x [r = %4] yield %5 } merge { %6 = left 0 yield %6 } "
        "%7 = result %3 0 store y, %7 } }",
        "kernel \"other\" { axis y grid axis p buf a in f32 (y, p) contig buf x out f32 (y) contig par r f32 "
        "for y { %0 = par r %1 = lt %0, %0 trap %1, E_ARG \"yes\" } "
        "for y { %2 = const f32 0 %3 = fold p (%2) { %4 = index p %5 = load a [p = %4] yield %5 } merge { %6 = left 0 yield %6 } "
        "%7 = result %3 0 store x, %7 } }"};
    char nameless[3][4096];
    kiln_arena a;
    kiln_arena_init(&a);
    for (size_t k = 0; k < 3; k++) {
        kiln_sb sb;
        kiln_sb_init(&sb);
        kiln_ir_print_nameless(&sb, parse(&a, k < 2 ? texts[k] : nameless[0]));
        assert_false(sb.failed);
        snprintf(nameless[k], sizeof nameless[k], "%s", sb.p);
        kiln_sb_fini(&sb);
        assert_string_equal(nameless[k], nameless[0]);
    }
    assert_non_null(
        strstr(nameless[0], "kernel \"\" {\n  axis a0 grid\n  axis a1\n  buf b0 in f32 (a0, a1) contig\n"));
    assert_non_null(strstr(nameless[0], "trap %1, E_ARG \"\"\n"));
    assert_non_null(strstr(nameless[0], "load b0 [a1 = %"));
    kiln_arena_free(&a);
}

static void constants_keep_their_bits(void **state) {
    (void)state;
    static const double f64[] = {
        0.0, -0.0, 1.5, 0.1, 1e300, 5e-324, -INFINITY, INFINITY, 1.7976931348623157e308};
    static const float f32[] = {0.1f, -0.0f, 1e-45f, 3.4028235e38f, 16777217.0f, 1.0f / 3};
    static const int64_t i64[] = {INT64_MIN, INT64_MAX, 0, -1};
    char once[8192], twice[8192];
    kiln_arena a;
    kiln_arena_init(&a);
    kiln_ir *ir = kiln_ir_new(&a, "quotes \" and \\ and \x01");
    int p = kiln_ir_axis_add(ir, "p", true);
    kiln_ir_for(ir, p, true);
    for (size_t k = 0; k < COUNT(f64); k++) kiln_ir_const_f(ir, KILN_F64, f64[k]);
    for (size_t k = 0; k < COUNT(f32); k++) kiln_ir_const_f(ir, KILN_F32, (double)f32[k]);
    for (size_t k = 0; k < COUNT(i64); k++) kiln_ir_const_i(ir, KILN_I64, i64[k]);
    kiln_ir_const_f(ir, KILN_F32, NAN);
    kiln_ir_const_i(ir, KILN_BOOL, 1);
    kiln_ir_const_i(ir, KILN_U8, 255);
    kiln_ir_const_i(ir, KILN_I8, -128);
    kiln_ir_end(ir);
    assert_int_equal(kiln_ir_verify(ir), KILN_OK);
    print_to(once, sizeof once, ir);
    kiln_ir *again = parse(&a, once);
    assert_int_equal(again->nins, ir->nins);
    for (int i = 0; i < ir->nins; i++) assert_memory_equal(&again->ins[i].imm, &ir->ins[i].imm, 8);
    assert_string_equal(again->name, ir->name);
    print_to(twice, sizeof twice, again);
    assert_string_equal(once, twice);
    assert_non_null(strstr(once, "const f32 0.1\n"));
    kiln_arena_free(&a);
}

typedef struct refusal {
    const char *body, *says;
} refusal;

static void expect_refusal(const refusal *c, const char *head, kiln_status want) {
    char text[2048];
    kiln_arena a;
    kiln_ir *ir = NULL;
    kiln_arena_init(&a);
    snprintf(text, sizeof text, "%s%s }", head, c->body);
    kiln_status st = kiln_ir_parse(&a, text, strlen(text), &ir);
    if (st != want || !strstr(kiln_last_error(), c->says))
        fail_msg("%s\n  gave %s: %s\n  expected: %s", c->body, kiln_status_name(st), kiln_last_error(),
                 c->says);
    kiln_arena_free(&a);
}

static void parser_says_where(void **state) {
    (void)state;
    static const refusal cases[] = {
        {"\nfor r { %0 = load nothing }", "ir:2:19: expected the name of a buffer"},
        {"for r {\n\n  %0 = load x\n  %1 = frob %0 }", "ir:4:8: expected an instruction that makes a value"},
        {"for r { %0 = add %1, %1 }", "a value that was made before"},
        {"for r { %0 = load x %0 = load x }", "each value to be made once"},
        {"for nothing { }", "the name of an axis"},
        {"for r { %0 = const u8 256 }", "an integer that fits"},
        {"for r { %0 = const i64 9223372036854775808 }", "an integer that fits"},
        {"for r { %0 = const f32 1.5x }", "a number"},
        {"for r { %0 = const bool 2 }", "true or false"},
        {"for r { %0 = const f16 1 }", "must be f32 or f64"},
        {"for r { %0 = par nothing }", "the name of a scalar"},
        {"for r { %0 = load x if %0 }", "a value that was made before"},
        {"for r { %0 = load b %1 = load x if %0 }", "expected else"},
        {"for r { %0 = load b trap %0, OK \"\" }", "a status"},
        {"for r { %0 = load b trap %0, E_INDEX }", "expected '\"'"},
        {"for r { %0 = load b trap %0, E_INDEX \"", "at the end of a string"},
        {"for r { %0 = load b trap %0, E_INDEX \"\\q\" }", "\\\", \\\\ or \\xHH"},
        {"for r { %0 = cast f32 %0 }", "a value that was made before"},
        {"for r { %0 = load x %1 = cast f32 %0 }", "a cast to another type"},
        {"for r { %0 = load h %1 = cast i64 %0 }", "f16 and bf16 from and to f32 only"},
        {"for r { %65536 = load x }", "below 65536"},
        {"for r { %0 = state 0 }", "inside a fold or scan"},
        {"for r { %0 = load x %1 = result %0 0 }", "result takes a fold or a scan"},
        {"for r { yield %0 }", "a value that was made before"},
        {"for r { } } x", "the end of the text"},
        {"for r {", "an instruction or '}'"},
        {"for r vec vec { }", "expected '{'"},
        {"for r { %0 = load x %1 = fold q, nothing (%0) {", "the name of an axis"},
        {"for r { %0 = load x %1 = scan q, z (%0) {", "expected '('"},
        {"\nfor r { %0 = load x %1 = fold q (%0) lanes 0 block 8 {",
         "ir:2:44: expected a number from 1 to 64"},
        {"for r { %0 = load x %1 = fold q (%0) lanes 65 block 8 {", "a number from 1 to 64"},
        {"for r { %0 = load x %1 = fold q (%0) lanes 8 {", "expected block"},
        {"for r { %0 = load x %1 = fold q (%0) by block 0 {", "a number from 1 to 65536"},
        {"for r { %0 = load x %1 = scan q (%0) by block 65537 {", "a number from 1 to 65536"},
        {"for r { %0 = load x %1 = scan q (%0) lanes 8 block 8 {", "expected '{'"},
        {"for r { %0 = load x %1 = fold q (%0) by block 8 vec {", "expected '{'"},
        {"for r { %0 = load x %1 = fold q (%0) vec lanes 8 block 8 {", "expected '{'"},
        {"buf x in f99 (r)", "expected a type"},
        {"buf x over f32 (r)", "in, out, inout or tmp"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) expect_refusal(&cases[i], HEAD, KILN_E_PARSE);
}

/* -- the verifier: one case per rule -------------------------------------------------------------- */

static const refusal by_text[] = {
    {"", "has no nest"},
    /* declarations */
    {"axis r for r { }", "two axes named r"},
    {"buf x in f32 (r) for r { }", "two buffers named x"},
    {"par a f32 for r { }", "two scalars named a"},
    {"par c f16 for r { }", "scalar c must have a compute type"},
    {"par c c64 for r { }", "scalar c must have a compute type"},
    /* complex elements */
    {"buf z in c64 (r) for r { %0 = load z store y, %0 }", "expected z.re or z.im"},
    {"buf z in c64 (r) buf z.im in f32 (r) for r { }", "buffer z.im has the name of a part of z"},
    {"buf z in c128 (r) for r { %0 = load z.re store y, %0 }", "the value is f64, expected f32"},
    {"buf z out c64 (r) for r { %0 = const f64 1 store z, %0, %0 }", "the value is f64, expected f32"},
    {"buf z in c64 (r) for r { %0 = load z.im %1 = const f32 0 store z, %0, %1 }", "buffer z is in"},
    {"buf z in c64 (r) for r { %0 = load z.re %1 = cast c64 %0 }", "casts f32 to c64"},
    /* where instructions stand */
    {"%0 = const f32 1 for r { }", "instruction 0 (%0 = const): expected inside a nest"},
    {"for r { %0 = const f32 0 } for r { store y, %0 }", "made in a region that has ended"},
    {"for r { for q { %0 = const f32 0 } store y, %0 }", "made in a region that has ended"},
    {"for q { %0 = const f32 0 %1 = fold r (%0) { %2 = load x yield %2 } merge { yield %2 } }",
     "a new state is made in a region that has ended"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) { %2 = load x yield %2 } merge { %3 = left 0 yield %3 } store y, %3 }",
     "made in a region that has ended"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) { yield %0 } merge { yield %0 } %2 = add %1, %0 }",
     "must be a value, not a fold"},
    /* primitives and casts */
    {"for r { %0 = load x %1 = and %0, %0 }", "does not exist for f32"},
    {"for r { %0 = load h %1 = add %0, %0 }", "does not exist for f16"},
    {"for r { %0 = load h %1 = load b %2 = select %1, %0, %0 }", "does not exist for f16"},
    {"for r { %0 = load x %1 = index r %2 = add %0, %1 }", "an operand is i64, expected f32"},
    {"for r { %0 = load x %1 = select %0, %0, %0 }", "the condition is f32, expected bool"},
    /* memory */
    {"for r { %0 = load y }", "buffer y is out: it is written only"},
    {"for r { %0 = load x store x, %0 }", "buffer x is in: it is read only"},
    {"for r { %0 = const f64 0 store y, %0 }", "the value is f64, expected f32"},
    {"for q { %0 = load x }", "buffer x needs a loop over r or a coordinate"},
    {"for r { %0 = load o }", "buffer o needs a loop over q or a coordinate"},
    {"for q { %0 = load x %1 = load x [r = %0] }", "buffer x needs a loop over r"},
    {"for r { %0 = load x %1 = load x [r = %0] }", "a coordinate is f32, expected i64"},
    {"for r { %0 = index r %1 = load x [q = %0] }", "buffer x has no axis q"},
    {"for r { %0 = index r %1 = load x [r = %0, r = %0] }", "two coordinates along r"},
    {"for r { %0 = index r %1 = load g [p = %0] }", "grid axis p takes no coordinate"},
    {"for r { %0 = load x %1 = load x if %0 else %0 }", "the guard is f32, expected bool"},
    {"for r { %0 = load b %1 = load x if %0 else %0 }", "the value after else is bool, expected f32"},
    {"for r { %0 = load x store y, %0 if %0 }", "the guard is f32, expected bool"},
    {"for r { %0 = load x %1 = cast f16 %0 %2 = load b %3 = load x if %2 else %1 }",
     "after else is f16, expected f32"},
    /* axes */
    {"for p { %0 = index p }", "grid axis p has neither index nor extent"},
    {"for p { %0 = extent p }", "grid axis p has neither index nor extent"},
    {"for r { %0 = index q }", "expected to stand in a loop over q"},
    {"for r { for p { } }", "grid axis p is looped over by an outermost for only"},
    {"for r { for r { } }", "already inside a loop over r"},
    {"for r vec { for q vec { } }", "already inside a vec loop"},
    {"for r vec { for q { for z vec { } } }", "already inside a vec loop"},
    {"for q { %0 = const f32 0 %1 = fold r (%0) { yield %0 } merge { %2 = index r yield %0 } }",
     "expected to stand in a loop over r"},
    /* folds and scans */
    {"for r { %0 = const f32 0 %1 = fold q (%0) { yield %0 } }", "a fold needs a merge"},
    {"for r { %0 = const f32 0 %1 = scan q (%0) { yield %0 } merge { yield %0 } }",
     "directly in the step of a fold"},
    {"for r { } merge { }", "directly in the step of a fold"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) { } merge { yield %0 } }", "the step must end with a yield"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) { yield %0 } merge { } }", "the merge must end with a yield"},
    {"for r { %0 = const f32 0 %1 = scan q (%0) { } }", "the scan must end with a yield"},
    {"for r { %0 = const f32 0 %1 = scan q (%0) { yield %0 %2 = load x yield %0 } }",
     "at the end of its region"},
    {"for r { %0 = const f32 0 %1 = scan q (%0) { for z { yield %0 } yield %0 } }",
     "directly in a fold or scan"},
    {"for r { %0 = const f32 0 %1 = scan q (%0) { yield %0, %0 } }", "yields 2 states, expected 1"},
    {"for r { %0 = const f32 0 %1 = index r %2 = scan q (%0) { yield %1 } }",
     "a new state is i64, expected f32"},
    {"for r { %0 = load h %1 = scan q (%0) { yield %0 } }", "state 0 is f16, expected a compute type"},
    {"for r { %0 = const f32 0 %1 = scan q (%0) { %2 = left 0 yield %2 } }", "expected in a merge"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) { yield %0 } merge { %2 = state 0 yield %2 } }",
     "expected in a step"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) { yield %0 } merge { %2 = load x yield %2 } }",
     "a merge touches no memory"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) { yield %0 } merge { for z { } yield %0 } }",
     "a merge holds no loop"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) { store y, %0 yield %0 } merge { yield %0 } }",
     "a fold stores each element in a place of its own"},
    {"for z { %0 = const f32 0 %1 = fold r (%0) { %2 = state 0 store y, %2 yield %2 } merge { yield %0 } }",
     "a fold stores before it takes its states"},
    {"for z { %0 = const f32 0 %1 = fold r (%0) { store y, %0 %2 = load x yield %2 } merge { yield %0 } }",
     "a fold loads nothing after it has stored"},
    {"for z { %0 = const f32 0 %1 = fold r (%0) by block 8 { for r { store y, %0 } yield %0 } merge { yield %0 } }",
     "directly in the step of a fold that is in no other"},
    {"for z { %0 = const f32 0 %1 = fold r (%0) { %2 = load b store y, %0 if %2 yield %0 } merge { yield %0 } }",
     "a fold stores each element in a place of its own"},
    {"for r { %0 = const f32 0 %1 = scan q (%0) { %2 = result %1 0 yield %0 } }", "inside its own fold"},
    /* trees, several axes, blocks */
    {"for r { %0 = const f32 0 %1 = fold q (%0) lanes 3 block 8 { yield %0 } merge { yield %0 } }",
     "lanes 3, expected a power of two from 1 to 64"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) lanes 8 block 4 { yield %0 } merge { yield %0 } }",
     "block 4, expected a power of two from 8 to 65536"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) by block 12 { yield %0 } merge { yield %0 } }",
     "block 12, expected a power of two from 1 to 65536"},
    {"for r { %0 = const f32 0 %1 = fold q, q (%0) { yield %0 } merge { yield %0 } }", "runs over q twice"},
    {"for r { %0 = const f32 0 %1 = fold p, q (%0) { yield %0 } merge { yield %0 } }",
     "grid axis p is looped over by an outermost for only"},
    {"for r { %0 = const f32 0 %1 = fold r, q (%0) { yield %0 } merge { yield %0 } }",
     "already inside a loop over r"},
    {"for r { %0 = const f32 0 %1 = fold q, z (%0) { for q { } yield %0 } merge { yield %0 } }",
     "already inside a loop over q"},
    {"for r { %0 = const f32 0 %1 = fold q, z (%0) by block 8 { for q { } yield %0 } merge { yield %0 } }",
     "already inside a loop over q"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) by block 8 { for q { for q { } } yield %0 } merge { yield %0 } }",
     "already inside a loop over q"},
    {("for r { %0 = const f32 0 %1 = fold q (%0) by block 8 { %2 = fold q (%0) by block 4 { yield %0 } "
      "merge { yield %0 } yield %0 } merge { yield %0 } }"),
     "already inside a block of q"},
    {"for r { %0 = const f32 0 %1 = scan q (%0) by block 8 { for q { } yield %0 } merge { yield %0 } }",
     "already inside a loop over q"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) by block 8 { %2 = state 0 yield %2 } merge { yield %0 } }",
     "expected in a step, which a fold by block has not"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) by block 8 { yield %0 } merge { %2 = index q yield %0 } }",
     "expected to stand in a loop over q"},
    {"for r { %0 = const f32 0 %1 = fold q (%0) by block 8 { yield %0 } }", "a fold needs a merge"},
    {"for r { %0 = const f32 0 %1 = scan q (%0) by block 8 { yield %0 } }", "a scan by block needs a merge"},
    {"for r { %0 = const f32 0 %1 = scan q (%0) by block 8 { %2 = load o store o, %2 yield %2 } merge { yield %0 } }",
     "a scan by block loads from buffer o, which it stores to"},
    {"for r { for z { %0 = const f32 0 %1 = scan q (%0) { yield %0 } } %2 = result %1 0 }",
     "region that has ended"},
    /* traps */
    {"for r { %0 = load x trap %0, E_INDEX \"\" }", "the condition is f32, expected bool"},
    {"for r { %0 = load x %1 = load b trap %1, E_INDEX \"\" store y, %0 }",
     "a nest that traps stores nothing"},
    {"for r { %0 = load x %1 = load b store y, %0 trap %1, E_INDEX \"\" }",
     "a nest that stores does not trap"},
    {"for r { %0 = load x store y, %0 } for r { %1 = load b trap %1, E_INDEX \"\" }",
     "comes before every nest that stores"},
};

#define INDEXED_HEAD                                                             \
    "kernel \"k\" { axis p grid axis s grid indexed axis t grid indexed axis r " \
    "buf x in f32 (p, s) buf y out f32 (p, s) "

static const refusal of_indexed[] = {
    {"for p { for s { %0 = extent s } }", "indexed axis s has no extent: threads may share it"},
    {"for p { %0 = index s }", "expected to stand in a loop over s"},
    {"for s { %0 = index s %1 = load x [p = %0] }", "grid axis p takes no coordinate"},
    {"for p { %0 = const i64 0 %1 = load x [s = %0] }", "grid axis s takes no coordinate"},
    {"for r { for s { } }", "indexed axis s is looped over by a for that stands in loops over the grid only"},
    {"for p { for r { for s { } } }", "in loops over the grid only"},
    {"for p { %0 = const f32 0 %1 = fold s (%0) { yield %0 } merge { yield %0 } }", "over the grid only"},
    {"for p { %0 = const f32 0 %1 = fold r (%0) { for s { } yield %0 } merge { yield %0 } }",
     "over the grid only"},
    {"for s { for p { } }", "grid axis p is looped over by an outermost for only"},
    {"for p { for s { } for s { } }", "a second loop over the indexed axis s"},
    {"for p { for s { for s { } } }", "a second loop over the indexed axis s"},
    {"for p { for s { } } for p { for s { %0 = load x store y, %0 } }",
     "a store needs a loop over the indexed axis t"},
};

static void verifier_refuses_text(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(of_indexed); i++)
        expect_refusal(&of_indexed[i], INDEXED_HEAD, KILN_E_VERIFY);
    for (size_t i = 0; i < COUNT(by_text); i++) expect_refusal(&by_text[i], HEAD, KILN_E_VERIFY);
}

typedef struct spoilt {
    int at; /* instruction; -1: the kernel itself */
    const char *field;
    int64_t value;
    const char *says;
} spoilt;

static void spoil(kiln_ir *ir, const spoilt *c) {
    kiln_ir_ins *ins = &ir->ins[c->at < 0 ? 0 : c->at];
    if (!strcmp(c->field, "nargs")) ins->nargs = (uint8_t)c->value;
    if (!strcmp(c->field, "arg")) ins->arg[1] = (kiln_ref)c->value;
    if (!strcmp(c->field, "dtype")) ins->dtype = (uint8_t)c->value;
    if (!strcmp(c->field, "which")) ins->which = (uint16_t)c->value;
    if (!strcmp(c->field, "op")) ins->op = (uint8_t)c->value;
    if (!strcmp(c->field, "prim")) ins->prim = (uint8_t)c->value;
    if (!strcmp(c->field, "nins")) ir->nins = (int)c->value;
    if (!strcmp(c->field, "nnests")) ir->nnests = (int)c->value;
    if (!strcmp(c->field, "axes")) ir->bufs[0].axes = (uint32_t)c->value;
    if (!strcmp(c->field, "name")) ir->bufs[0].name = "a b";
    if (!strcmp(c->field, "ncoord")) ins->ncoord = (uint8_t)c->value;
    if (!strcmp(c->field, "lanes")) ins->imm.tree.lanes = (uint32_t)c->value;
    if (!strcmp(c->field, "at")) ins->coord[0].at = (kiln_ref)c->value;
    if (!strcmp(c->field, "far")) ins->coord[0].axis = (uint8_t)c->value;
}

/* The kernel, read anew and spoilt for each case, is refused for the reason given, or where there is none taken. */
static void refuse_spoilt(const char *kernel, const spoilt *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        kiln_arena a;
        kiln_arena_init(&a);
        kiln_ir *ir = parse(&a, kernel);
        spoil(ir, &cases[i]);
        kiln_status st = kiln_ir_verify(ir);
        if (!cases[i].says)
            assert_int_equal(st, KILN_OK);
        else if (st != KILN_E_VERIFY || !strstr(kiln_last_error(), cases[i].says))
            fail_msg("case %zu gave %s: %s", i, kiln_status_name(st), kiln_last_error());
        kiln_arena_free(&a);
    }
}

/* for r { 1: load x  2: add  3: store  4: end } */
static void verifier_refuses_data(void **state) {
    (void)state;
    static const spoilt cases[] = {
        {2, "nargs", 1, "has 1 operands, expected 2"},
        {2, "arg", 2, "a value made before it"},
        {2, "arg", KILN_NOREF, "a value made before it"},
        {2, "arg", 0, "must be a value, not a for"},
        {2, "dtype", KILN_F64, "makes f64, expected f32"},
        {1, "dtype", KILN_F64, "is f64, buffer x holds f32"},
        {1, "which", 99, "buffer 99 of 8"},
        {0, "which", 9, "axis 9 of 4"},
        {1, "op", KILN_IR_PAR, NULL}, /* scalar 0 has the right type: nothing wrong */
        {4, "op", KILN_IR_YIELD, "instruction 4 (yield)"},
        {-1, "nins", 4, "1 regions are not closed"},
        {1, "op", 200, "instruction 1 has no meaning"},
        {-1, "axes", 1 << 20, "an axis that is not declared"},
        {-1, "name", 0, "buffer 0 needs a name"},
        {0, "op", KILN_IR_SCAN, "must be a for"},
        {2, "prim", 250, "no such primitive"},
        {-1, "nnests", 2, "counts 2 nests, has 1"},
        {1, "nargs", 1, "go together"},
    };
    refuse_spoilt(HEAD "for r { %0 = load x %1 = add %0, %0 store y, %1 } }", cases, COUNT(cases));
}

/* for r { 1: const  2: fold z, q  3: yield  4: merge  5: yield  6: end  7: end } */
static void verifier_refuses_spoilt_folds(void **state) {
    (void)state;
    static const spoilt cases[] = {
        {2, "lanes", 0, "a fold by block cannot be vec"},
        {2, "lanes", 128, "lanes 128, expected a power of two from 1 to 64"},
        {2, "op", KILN_IR_SCAN, "expected one axis"},
        {2, "ncoord", 0, NULL},
        {2, "at", 1, "an axis of a fold has no coordinate"},
        {2, "which", 3, "runs over z twice"},
        {2, "far", 77, "axis 77 of 4"},
        {0, "ncoord", 1, "expected one axis"},
    };
    refuse_spoilt(HEAD "for r { %0 = const f32 0 %1 = fold z, q (%0) vec { yield %0 } merge { yield %0 } } }",
                  cases, COUNT(cases));
}

static void accepts_all_that_is_allowed(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "for r { }",
        "for p vec { } for r vec { } for q { for r vec { } for z vec { } }",
        "for r { %0 = load x store t, %0 %1 = load t store y, %1 }",
        "for q { %0 = index q %1 = load x [r = %0] store y, %1 [r = %0] }",
        "for r { %0 = load h store hy, %0 }",
        "for r vec { %0 = const f32 0 %1 = scan q (%0) { %2 = load o store o, %2 yield %2 } %3 = result %1 0 store y, %3 }",
        ("for q { %0 = const f32 0 %1 = fold r (%0) vec { %2 = fold z (%0) { yield %0 } merge { yield %0 } "
         "%3 = result %2 0 %4 = state 0 %5 = add %3, %4 yield %5 } merge { %6 = left 0 yield %6 } }"),
        "for r { %0 = load b trap %0, E_INDEX \"a\" trap %0, E_DIVZERO \"b\" } for r { %1 = load x store y, %1 }",
        "for r { %0 = const f32 0 %1 = scan q (%0) { for z { %2 = state 0 } yield %0 } }",
        "for r { %0 = const f32 0 %1 = fold q, z (%0) lanes 8 block 8 { %2 = index q yield %0 } merge { yield %0 } }",
        "for z { %0 = const f32 0 %1 = fold q, r (%0) vec { %2 = load x yield %2 } merge { yield %0 } }",
        ("for q { %0 = const f32 0 %1 = fold z, r (%0) by block 65536 { %2 = load x %3 = fold r (%0) vec { %4 = load x "
         "yield %4 } merge { yield %2 } for r { %5 = index r } %6 = index r %7 = extent r yield %2 } merge { yield %0 } }"),
        "for r { %0 = const f32 0 %1 = scan q (%0) by block 1 { store o, %0 yield %0 } merge { %2 = right 0 yield %2 } }",
        "for r { %0 = const f32 0 %1 = fold q (%0) lanes 1 block 1 { yield %0 } merge { yield %0 } }",
    };
    for (size_t i = 0; i < COUNT(bodies); i++) {
        char text[2048], once[4096], twice[4096];
        kiln_arena a;
        kiln_arena_init(&a);
        snprintf(text, sizeof text, "%s%s }", HEAD, bodies[i]);
        print_to(once, sizeof once, parse(&a, text));
        print_to(twice, sizeof twice, parse(&a, once));
        assert_string_equal(once, twice);
        kiln_arena_free(&a);
    }
}

/* -- the builder ------------------------------------------------------------------------------------ */

static void builder_remembers_misuse(void **state) {
    (void)state;
    for (int which = 0; which < 25; which++) {
        kiln_arena a;
        kiln_arena_init(&a);
        kiln_ir *ir = kiln_ir_new(&a, "k");
        int r = kiln_ir_axis_add(ir, "r", false);
        int x = kiln_ir_buf_add(ir, "x", KILN_BUF_IN, KILN_F32, 1, KILN_STRIDE_ANY);
        kiln_ir_for(ir, r, true);
        kiln_ref v = kiln_ir_load(ir, x), many[9] = {v, v, v, v, v, v, v, v, v};
        kiln_ir_coord far = {9, v}, none = {0, 77};
        switch (which) {
        case 0: kiln_ir_load(ir, 5); break;
        case 1: kiln_ir_load(ir, -1); break;
        case 2: kiln_ir_store(ir, 5, v); break;
        case 3: kiln_ir_store(ir, x, 1000); break;
        case 4: kiln_ir_prim(ir, KILN_P_ADD, &v, 1); break;
        case 5: kiln_ir_prim(ir, (kiln_prim)9999, &v, 1); break;
        case 6: kiln_ir_prim(ir, KILN_P_NEG, (kiln_ref[]){KILN_NOREF}, 1); break;
        case 7: kiln_ir_cast(ir, (kiln_dtype)77, v); break;
        case 8: kiln_ir_index(ir, 3); break;
        case 9: kiln_ir_par_read(ir, 0); break;
        case 10: kiln_ir_const_f(ir, KILN_I32, 1.5); break;
        case 11: kiln_ir_const_i(ir, KILN_F16, 1); break;
        case 12: kiln_ir_state(ir, 0); break;
        case 13: kiln_ir_fold(ir, (kiln_ir_run){&r, 1, false, KILN_TREE_ALONG}, many, 9); break;
        case 14: kiln_ir_fold(ir, (kiln_ir_run){&r, 1, false, KILN_TREE_ALONG}, many, 0); break;
        case 15: kiln_ir_result(ir, v, 0); break;
        case 16: kiln_ir_load_at(ir, x, &far, 1, KILN_NOREF, KILN_NOREF); break;
        case 17: kiln_ir_load_at(ir, x, &none, 1, KILN_NOREF, KILN_NOREF); break;
        case 18: kiln_ir_load_at(ir, x, NULL, 0, v, KILN_NOREF); break;
        case 19:
            kiln_ir_end(ir);
            kiln_ir_end(ir);
            break;
        case 20:
            for (int k = 0; k < 9; k++) kiln_ir_for(ir, r, false);
            break;
        case 21:
            for (int k = 0; k < 9; k++) kiln_ir_axis_add(ir, "m", false);
            break;
        case 22: kiln_ir_fold(ir, (kiln_ir_run){&r, 0, false, KILN_TREE_ALONG}, many, 1); break;
        case 23:
            kiln_ir_fold(ir, (kiln_ir_run){(int[]){r, r, r, r, r, r, r, r, r}, 9, false, KILN_TREE_ALONG},
                         many, 1);
            break;
        case 24: kiln_ir_fold(ir, (kiln_ir_run){(int[]){5, r}, 2, false, KILN_TREE_ALONG}, many, 1); break;
        }
        assert_true(ir->failed);
        assert_non_null(ir->why);
        /* later calls do nothing and do not crash */
        kiln_ref w = kiln_ir_prim(ir, KILN_P_NEG, &v, 1);
        kiln_ir_store(ir, x, kiln_ir_cast(ir, KILN_F16, w));
        kiln_ir_yield(ir, &w, 1);
        kiln_ir_trap_if(ir, w, KILN_E_INDEX, NULL);
        kiln_ir_end(ir);
        assert_int_equal(kiln_ir_verify(ir), KILN_E_VERIFY);
        assert_non_null(strstr(kiln_last_error(), ir->why));
        kiln_arena_free(&a);
    }
}

static void builder_casts_halves_through_f32(void **state) {
    (void)state;
    char text[4096];
    kiln_arena a;
    kiln_arena_init(&a);
    kiln_ir *ir = kiln_ir_new(&a, "k");
    int r = kiln_ir_axis_add(ir, "r", false);
    int x = kiln_ir_buf_add(ir, "x", KILN_BUF_IN, KILN_F16, 1, KILN_STRIDE_ANY);
    int y = kiln_ir_buf_add(ir, "y", KILN_BUF_OUT, KILN_BF16, 1, KILN_STRIDE_ANY);
    kiln_ir_for(ir, r, true);
    kiln_ir_store(ir, y, kiln_ir_cast(ir, KILN_BF16, kiln_ir_cast(ir, KILN_I64, kiln_ir_load(ir, x))));
    kiln_ir_store(ir, y, kiln_ir_cast(ir, KILN_BF16, kiln_ir_load(ir, x)));
    kiln_ir_end(ir);
    assert_int_equal(kiln_ir_verify(ir), KILN_OK);
    print_to(text, sizeof text, ir);
    assert_non_null(strstr(
        text, "%1 = cast f32 %0\n    %2 = cast i64 %1\n    %3 = cast f32 %2\n    %4 = cast bf16 %3\n"));
    assert_non_null(strstr(text, "%6 = cast f32 %5\n    %7 = cast bf16 %6\n"));
    kiln_arena_free(&a);
}

static void nests_can_be_found(void **state) {
    (void)state;
    kiln_arena a;
    kiln_arena_init(&a);
    kiln_ir *ir = parse(&a, HEAD "for r { for q { } } for p { } for q { } }");
    assert_int_equal(ir->nnests, 3);
    assert_int_equal(kiln_ir_nest_begin(ir, 0), 0);
    assert_int_equal(kiln_ir_region_end(ir, 0), 3);
    assert_int_equal(kiln_ir_region_end(ir, 1), 2);
    assert_int_equal(kiln_ir_nest_begin(ir, 1), 4);
    assert_int_equal(kiln_ir_nest_begin(ir, 2), 6);
    kiln_arena_free(&a);
}

static void survives_any_failed_allocation(void **state) {
    (void)state;
    static const char text[] = HEAD
        "for r { %0 = load x %1 = add %0, %0 %2 = load b %3 = load x if %2 else %1 "
        "%4 = const f32 0 %5 = scan q (%4) { yield %4 } "
        "%6 = fold z, q (%4) lanes 8 block 8 { yield %4 } merge { yield %4 } %7 = result %6 0 store y, %7 store y, %3 } }";
    for (long nth = 1;; nth++) {
        kiln_arena a;
        kiln_arena_init(&a);
        kiln_ir *ir = NULL;
        kiln_sb sb;
        kiln_sb_init(&sb);
        kiln_alloc_fail_after(nth);
        kiln_status st = kiln_ir_parse(&a, text, strlen(text), &ir);
        if (st == KILN_OK) st = kiln_ir_simplify(ir);
        if (st == KILN_OK) kiln_ir_print(&sb, ir);
        kiln_alloc_fail_after(0);
        bool done = st == KILN_OK && !sb.failed;
        assert_true(done || st == KILN_E_NOMEM || sb.failed);
        kiln_sb_fini(&sb);
        kiln_arena_free(&a);
        if (done) {
            assert_true(nth > 4);
            break;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_print_as_they_are),
        cmocka_unit_test(nameless_text_is_ir_without_names),
        cmocka_unit_test(constants_keep_their_bits),
        cmocka_unit_test(parser_says_where),
        cmocka_unit_test(verifier_refuses_text),
        cmocka_unit_test(verifier_refuses_data),
        cmocka_unit_test(verifier_refuses_spoilt_folds),
        cmocka_unit_test(accepts_all_that_is_allowed),
        cmocka_unit_test(builder_remembers_misuse),
        cmocka_unit_test(builder_casts_halves_through_f32),
        cmocka_unit_test(nests_can_be_found),
        cmocka_unit_test(survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
