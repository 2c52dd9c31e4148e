/* test_types.c - every type that an argument of PyTorch 2.13's schemas has: it binds from a value of C and from the text of
 * a call, or no value of it is taken, and then it stands here with the reason.
 *
 * Types are read from the list of schemas.  Each gets a row of its own that ignores the argument, so that binding is
 * all that is tested.  The command's sources are compiled in here, as in test_calltext.c. */
#include "cli/../../cli/calltext.c"
#include "cli/../../cli/element.c"
#include "cli/../../cli/npy.c"
#include "cli/../../cli/tensorfill.c"

#include "base/base.h"
#include "call_cases.h"
#include "schema/schema.h"

/* -- what is written for a type ----------------------------------------------------------------------------- */

static kiln_tensor *t;
static char generator;

static kiln_value one(const char *type) {
    if (strcmp(type, "Tensor") == 0) return TEN(t);
    if (strcmp(type, "int") == 0 || strcmp(type, "SymInt") == 0) return INT(7);
    if (strcmp(type, "float") == 0) return FLT(2.5);
    if (strcmp(type, "bool") == 0) return kiln_v_bool(1);
    if (strcmp(type, "complex") == 0) return kiln_v_complex(1, 2);
    if (strcmp(type, "Scalar") == 0) return kiln_v_uint(UINT64_MAX);
    if (strcmp(type, "ScalarType") == 0) return kiln_v_dtype(KILN_BF16);
    if (strcmp(type, "Generator") == 0) return kiln_v_generator(&generator);
    return kiln_v_str("some_name");
}

/* Types of plain values: how one is written in a call, and how binding prints it. */
static const struct {
    const char *type, *text, *bound;
} taken[] = {
    {"Tensor", "f32[2]", "f32[2]"},
    {"int", "7", "7"},
    {"SymInt", "7", "7"},
    {"float", "2.5", "2.5"},
    {"bool", "true", "true"},
    {"complex", "1+2j", "1+2j"},
    {"Scalar", "18446744073709551615", "18446744073709551615"},
    {"str", "\"some_name\"", "\"some_name\""},
    {"ScalarType", "bf16", "bf16"},
    {"Device", "\"some_name\"", "\"some_name\""},
    {"Layout", "\"some_name\"", "\"some_name\""},
    {"MemoryFormat", "\"some_name\"", "\"some_name\""},
    {"Generator", "generator", "generator"},
};
enum { NTAKEN = sizeof taken / sizeof *taken };

/* How a type that is not taken begins, and why none of its values is: no operator on tensors alone has such an
 * argument. */
static const struct {
    const char *start, *why;
} refused[] = {
    {"t", "any type, of operators on lists and dictionaries of a script"},
    {"Any", "an object of the script's, as a group of processes"},
    {"Dict(", "a container of a script"},
    {"(", "pairs, of which a script makes a dictionary"},
    {"Tensor[][]", "one list per process, of collective operators"},
    {"str[][]", "of an operator that tests the script's own lists"},
    {"__torch__.",
     "an object of a class of PyTorch's: packed weights, a group of processes, a profiler's record"},
    {"RRef(", "an object of another process"},
    {"Future(", "a result that another thread of the script makes"},
    {"Await(", "a result that a script makes later"},
    {"Storage", "memory without a shape"},
    {"Stream", "of a device that is no CPU"},
};
enum { NREFUSED = sizeof refused / sizeof *refused };
static int nmet_taken[NTAKEN], nmet_refused[NREFUSED];

/* -- types of the list ---------------------------------------------------------------------------------------- */

static const kiln_type *without_alias(kiln_arena *arena, const kiln_type *type) {
    kiln_type *copy = kiln_arena_alloc(arena, sizeof *copy);
    assert_non_null(copy);
    *copy = *type;
    copy->alias = NULL;
    if (copy->elem) copy->elem = without_alias(arena, copy->elem);
    return copy;
}

static char *text_of(const kiln_type *type) {
    char *text = NULL;
    kiln_sb sb;
    kiln_sb_init(&sb);
    kiln_type_print(&sb, type);
    MUST_OK(kiln_sb_take(&sb, &text));
    return text;
}

static const kiln_op *row_for(kiln_ctx *ctx, const char *type, int number) {
    char name[32], row[512];
    snprintf(name, sizeof name, "my::type%d", number);
    int n = snprintf(row, sizeof row,
                     "map %s(Tensor self, %s x) -> Tensor : promote(self) = self\n    ignore x\n", name,
                     type);
    assert_in_range(n, 1, sizeof row - 1);
    MUST_OK(kiln_ops_load(ctx, row, (size_t)n));
    return op_of(ctx, name);
}

/* The value binds, and is printed as `want`. */
static void expect_bound(kiln_ctx *ctx, const kiln_op *op, const char *type, const kiln_value *args,
                         size_t nargs, const char *want) {
    char *text = NULL, line[200];
    kiln_status st = kiln_explain(ctx, op, args, nargs, "bind", &text);
    if (st != KILN_OK) fail_msg("%s: %s", type, kiln_last_error());
    snprintf(line, sizeof line, "\nx: %s\n", want);
    if (!strstr(text, line)) fail_msg("%s: expected %s in %s", type, want, text);
    kiln_text_free(text);
}

static void expect_text(kiln_ctx *ctx, const kiln_op *op, const char *type, const char *value,
                        const char *want) {
    char text[300], err[CALLTEXT_ERROR_MAX];
    calltext call;
    int n = snprintf(text, sizeof text, "%s(f32[2], %s)", kiln_op_name(op), value);
    if (!calltext_parse(text, (size_t)n, NULL, &call, err)) fail_msg("%s: %s", type, err);
    expect_bound(ctx, op, type, call.args, call.nargs, want);
    calltext_free(&call);
}

/* A list of three, one of them absent where items may be. */
static void check_list(kiln_ctx *ctx, const kiln_op *op, const char *type, const kiln_type *list, int k) {
    bool optional;
    (void)kiln_type_strip(list->elem, &optional);
    kiln_value v = one(taken[k].type), items[] = {v, optional ? kiln_v_none() : v, v};
    char text[200], want[200];
    const char *middle = optional ? "None" : taken[k].text;
    snprintf(text, sizeof text, "[%s, %s, %s]", taken[k].text, middle, taken[k].text);
    snprintf(want, sizeof want, "[%s, %s, %s]", taken[k].bound, optional ? "None" : taken[k].bound,
             taken[k].bound);
    expect_bound(ctx, op, type, ARGS(TEN(t), kiln_v_list(items, 3)), want);
    expect_text(ctx, op, type, text, want);
    expect_text(ctx, op, type, "[]", "[]");
    assert_int_equal(kiln_explain(ctx, op, ARGS(TEN(t), kiln_v_list(NULL, 1)), "bind", &(char *){NULL}),
                     KILN_E_TYPE);
}

/* What the type is not: a wrong kind is refused by name. */
static void check_wrong(kiln_ctx *ctx, const kiln_op *op, const char *type, const char *plain) {
    bool is_generator = strcmp(plain, "Generator") == 0;
    kiln_value wrong = is_generator ? INT(1) : kiln_v_generator(&generator);
    char *text = NULL;
    kiln_status st = kiln_explain(ctx, op, ARGS(TEN(t), wrong), "bind", &text);
    if (st != KILN_E_TYPE) fail_msg("%s: %s", type, kiln_status_name(st));
    assert_error_names("argument 'x' must be");
    assert_error_names(is_generator ? "not int" : "not Generator");
}

static void check_taken(kiln_ctx *ctx, const kiln_op *op, const char *type, const kiln_type *of, int k) {
    bool optional;
    const kiln_type *plain = kiln_type_strip(of, &optional);
    nmet_taken[k]++;
    if (plain->kind == KILN_T_LIST) {
        check_list(ctx, op, type, plain, k);
    } else {
        expect_bound(ctx, op, type, ARGS(TEN(t), one(taken[k].type)), taken[k].bound);
        expect_text(ctx, op, type, taken[k].text, taken[k].bound);
    }
    check_wrong(ctx, op, type, taken[k].type);
    char *text = NULL;
    kiln_status st = kiln_explain(ctx, op, ARGS(TEN(t), kiln_v_none()), "bind", &text);
    if ((st == KILN_OK) != optional) fail_msg("%s: None gives %s", type, kiln_status_name(st));
    kiln_text_free(text);
}

static void check_refused(kiln_ctx *ctx, const kiln_op *op, const char *type) {
    char *text = NULL;
    int k = NREFUSED;
    while (k-- > 0)
        if (strncmp(type, refused[k].start, strlen(refused[k].start)) == 0) break;
    if (k < 0) fail_msg("a value of type %s is neither taken nor is it said here why not", type);
    nmet_refused[k]++;
    kiln_status st = kiln_explain(ctx, op, ARGS(TEN(t), INT(1)), "bind", &text);
    if (st != KILN_E_UNSUP) fail_msg("%s: %s", type, kiln_status_name(st));
    assert_error_names("argument 'x': values of type");
}

/* The plain type of a value or of a list's items; lists of lists have none. */
static int taken_as(const kiln_type *of) {
    bool optional;
    const kiln_type *plain = kiln_type_strip(of, &optional);
    if (plain->kind == KILN_T_LIST) plain = kiln_type_strip(plain->elem, &optional);
    char *text = text_of(plain);
    int k = NTAKEN;
    while (k-- > 0)
        if (strcmp(taken[k].type, text) == 0) break;
    kiln_free(text);
    return k;
}

/* -- all of them ------------------------------------------------------------------------------------------------ */

enum { MOST = 256 };
static char *seen[MOST];
static int nseen;

/* The type as text, or NULL if it was met before. */
static const char *new_type(const kiln_type *of) {
    char *type = text_of(of);
    for (int k = 0; k < nseen; k++)
        if (strcmp(seen[k], type) == 0) return kiln_free(type), NULL;
    assert_true(nseen < MOST);
    return seen[nseen++] = type;
}

static void check_schema(kiln_ctx *ctx, kiln_arena *arena, const char *line) {
    kiln_schema *s;
    MUST_OK(kiln_schema_parse(arena, line, strlen(line), &s));
    for (int a = 0; a < s->nargs; a++) {
        const kiln_type *of = without_alias(arena, s->args[a].type);
        const char *type = new_type(of);
        if (!type) continue;
        const kiln_op *op = row_for(ctx, type, nseen);
        if (taken_as(of) >= 0)
            check_taken(ctx, op, type, of, taken_as(of));
        else
            check_refused(ctx, op, type);
    }
}

static void every_type_binds_or_says_why_not(void **state) {
    (void)state;
    char *list;
    size_t nbytes;
    kiln_arena arena;
    kiln_arena_init(&arena);
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    t = F32(SIZES(2), 1, 2);
    MUST_OK(kiln_file_read(KILN_SOURCE_DIR "/ops/aten-schemas-2.13.txt", &list, &nbytes));
    for (char *line = strtok(list, "\n"); line; line = strtok(NULL, "\n")) check_schema(ctx, &arena, line);
    for (int k = 0; k < NTAKEN; k++)
        if (!nmet_taken[k]) fail_msg("no schema has the type %s", taken[k].type);
    for (int k = 0; k < NREFUSED; k++)
        if (!nmet_refused[k]) fail_msg("no schema has a type like %s", refused[k].start);
    print_message("%d types\n", nseen);
    while (nseen > 0) kiln_free(seen[--nseen]);
    kiln_free(list);
    kiln_tensor_release(t);
    kiln_close(ctx);
    kiln_arena_free(&arena);
}

/* -- what converts ---------------------------------------------------------------------------------------------- */

static void numbers_become_what_the_type_says(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    t = F32(SIZES(2), 1, 2);
    kiln_value mixed[] = {INT(1), kiln_v_bool(1), kiln_v_uint(UINT64_C(1) << 63)};
    const kiln_op *op = row_for(ctx, "float[]", 0);
    expect_bound(ctx, op, "float[]", ARGS(TEN(t), kiln_v_list(mixed, 3)),
                 "[1.0, 1.0, 9.223372036854776e+18]");
    op = row_for(ctx, "complex[]", 1);
    expect_bound(ctx, op, "complex[]", ARGS(TEN(t), kiln_v_list(mixed, 3)),
                 "[1+0j, 1+0j, 9.223372036854776e+18+0j]");
    op = row_for(ctx, "int[2]", 2);
    expect_bound(ctx, op, "int[2]", ARGS(TEN(t), INT(3)), "[3, 3]");
    char *text = NULL;
    assert_int_equal(kiln_explain(ctx, op, ARGS(TEN(t), kiln_v_list(mixed, 3)), "bind", &text), KILN_E_TYPE);
    assert_error_names("my::type2: argument 'x' must be int[2], but item 2 is an int from 2^63 up");
    op = row_for(ctx, "Generator", 3);
    assert_int_equal(kiln_explain(ctx, op, ARGS(TEN(t), kiln_v_generator(NULL)), "bind", &text), KILN_E_TYPE);
    assert_error_names("my::type3: argument 'x' must be Generator, not a generator that is NULL");
    kiln_tensor_release(t);
    kiln_close(ctx);
}

/* Whatever is remembered of a call: the next one may come with another generator, or with none. */
static void generators_change_from_call_to_call(void **state) {
    (void)state;
    char other;
    t = F32(SIZES(2), 1, 2);
    static const char row[] =
        "map my::g(Tensor self, *, Generator? generator=None) -> Tensor : takes float = -self\n"
        "    ignore generator\n";
    BOTH(ctx) {
        MUST_OK(kiln_ops_load(ctx, row, sizeof row - 1));
        kiln_value given[] = {kiln_v_none(), kiln_v_generator(&generator), kiln_v_generator(&other)};
        for (int k = 0; k < 12; k++) {
            kiln_tensor *out = call1(ctx, "my::g", ARGS(TEN(t), NAMED("generator", given[k % 3])));
            HOLDS_F32(out, SIZES(2), -1, -2);
            kiln_tensor_release(out);
        }
        kiln_tensor *out = NULL;
        kiln_value null = NAMED("generator", kiln_v_generator(NULL));
        assert_int_equal(kiln_call(ctx, op_of(ctx, "my::g"), ARGS(TEN(t), null), &out, 1), KILN_E_TYPE);
        assert_int_equal(kiln_call(ctx, op_of(ctx, "neg"), ARGS(kiln_v_generator(&other)), &out, 1),
                         KILN_E_TYPE);
        assert_error_names("aten::neg: argument 'self' must be Tensor, not Generator");
    }
    kiln_tensor_release(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_binds_or_says_why_not),
        cmocka_unit_test(numbers_become_what_the_type_says),
        cmocka_unit_test(generators_change_from_call_to_call),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
