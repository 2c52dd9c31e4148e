/* test_registry.c - rows that are loaded again or replaced, and the index of the rows that ship, made when Kiln is built,
 * beside what loading them gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/text_entry.h"
#include "op/op.h"

#define TWICE "map my::twice(Tensor self) -> Tensor : takes real = self + self\n"
#define THRICE "map my::twice(Tensor self) -> Tensor : takes real = self * 3\n"
#define RULE(body) "complex my_rule(a) = " body "\n"

/* A notebook's cell that is run again, as it was or changed. */
static void rows_can_be_loaded_again(void **state) {
    (void)state;
    kiln_ctx *ctx;
    const kiln_op *first, *op;
    assert_int_equal(kiln_open(NULL, &ctx), KILN_OK);
    size_t before = kiln_op_count(ctx);
    assert_int_equal(kiln_ops_load(ctx, RULE("a") TWICE, strlen(RULE("a") TWICE)), KILN_OK);
    assert_int_equal(kiln_op_find(ctx, "my::twice", &first), KILN_OK);
    assert_int_equal(kiln_ops_load(ctx, "# again\n" RULE("a") TWICE, strlen("# again\n" RULE("a") TWICE)),
                     KILN_OK);
    assert_int_equal(kiln_op_find(ctx, "my::twice", &op), KILN_OK);
    assert_ptr_equal(op, first);
    assert_int_equal(kiln_ops_load(ctx, THRICE, strlen(THRICE)), KILN_E_ARG);
    assert_non_null(
        strstr(kiln_last_error(), "rows:1:5: my::twice is defined already, at rows:2:5; replace=True"));
    assert_int_equal(kiln_ops_replace(ctx, "cell", RULE("-a") THRICE, strlen(RULE("-a") THRICE)), KILN_OK);
    assert_int_equal(kiln_op_find(ctx, "my::twice", &op), KILN_OK);
    assert_string_equal(kiln_op_row(op), THRICE);
    assert_string_equal(kiln_op_row(first), TWICE); /* whoever holds the old one keeps it */
    assert_int_equal(kiln_op_count(ctx), before + 1);
    kiln_close(ctx);
}

static kiln_status note_row(void *user, const kiln_op *op) {
    strcat(user, kiln_op_row(op));
    return strstr(user, "* 4") ? KILN_E_VALUE : KILN_OK;
}

/* A draft says what rows would be, and the context stays as it was. */
static void rows_can_be_drafted(void **state) {
    (void)state;
    static const char other[] = "map my::other(Tensor self) -> Tensor : takes real = self\n",
                      wrong[] = "map my::twice(Tensor self) -> Tensor : takes real = x\n",
                      fourth[] = "map my::twice(Tensor self) -> Tensor : takes real = self * 4\n";
    char seen[512] = "", both[512];
    kiln_ctx *ctx;
    const kiln_op *op, *now;
    assert_int_equal(kiln_open(NULL, &ctx), KILN_OK);
    assert_int_equal(kiln_ops_load(ctx, TWICE, strlen(TWICE)), KILN_OK);
    assert_int_equal(kiln_op_find(ctx, "my::twice", &op), KILN_OK);
    size_t before = kiln_op_count(ctx);
    snprintf(both, sizeof both, "%s%s", other, THRICE);
    assert_int_equal(kiln_ops_draft(ctx, "cell", both, strlen(both), note_row, seen), KILN_OK);
    assert_string_equal(seen, both);
    seen[0] = 0;
    assert_int_equal(kiln_ops_draft(ctx, "cell", TWICE, strlen(TWICE), note_row, seen), KILN_OK);
    assert_string_equal(seen, TWICE); /* which is there already */
    assert_int_not_equal(kiln_ops_draft(ctx, "cell", wrong, strlen(wrong), note_row, seen), KILN_OK);
    assert_int_equal(kiln_ops_draft(ctx, "cell", fourth, strlen(fourth), note_row, seen), KILN_E_VALUE);
    assert_int_equal(kiln_op_count(ctx), before);
    assert_int_equal(kiln_op_find(ctx, "my::twice", &now), KILN_OK);
    assert_ptr_equal(op, now);
    kiln_close(ctx);
}

/* The text of the answer for one row: "1 numel", or "0 -". */
static kiln_status note_untraced(void *user, const kiln_op *op) {
    const char *word;
    kiln_untraced untraced = kiln_op_untraced(op, &word);
    assert_int_equal(kiln_op_untraced(op, NULL), untraced);
    snprintf(user, 64, "%d %s", (int)untraced, word ? word : "-");
    return KILN_OK;
}

/* Functions count wherever an expression has them; comments, strings, arguments and names of operators do not. */
static void rows_say_what_cannot_be_traced(void **state) {
    (void)state;
#define HEAD "map my::size(Tensor x, Tensor rest) -> Tensor : takes float = x + rest"
#define SUM "fold my::sum(Tensor x, Tensor(a!) y, int k) -> Tensor : takes float = acc + x from 0\n    kept y"
    static const struct {
        const char *row, *want;
    } cases[] = {
        {HEAD, "0 -"},
        {HEAD " # numel(x)\n    # view x [2, 3]\n    doc \"view, numel(x)\"", "0 -"},
        {"map my::f(Tensor x, Tensor rest) -> Tensor : takes float = x +\n    rest", "0 -"},
        {HEAD "\n    check rank(x) > 1 : \"size(x, 0)\"", "0 -"},
        {HEAD "\n    check rank(x) < 1 or (true and size (x, 0) > span(x, 0)) : \"no\"", "1 size"},
        {HEAD "\n    check covers(x, rest) or single(x) : \"no\"", "1 covers"},
        {HEAD "\n    check alike(x, rest) : \"no\"", "1 alike"},
        {HEAD "\n    grad x = grad * numel(x)", "1 numel"},
        {"map my::f(Tensor x) -> Tensor : takes float = x * k\n    host k = numel(x)", "1 numel"},
        {"map my::f(Tensor x) -> Tensor : takes float\n    when single(x) = x\n    when true = -x",
         "1 single"},
        {SUM "\n    writes y = acc\n    view x [k, 2]", "2 writes"},
        {SUM "\n    view x [k, 2]\n    writes y = acc", "2 view"},
        {SUM "\n    view x [span(x, 1), k]\n    writes y = acc", "1 span"},
        {"map my::g(Tensor x) -> Tensor : takes float = x\n"
         "fold my::f(Tensor x) -> (Tensor, Tensor) : takes float\n    state a = 0\n    step a = a + x\n"
         "    merge a = a + rhs.a\n    finish a\n    rest my::g",
         "2 rest"}, /* of the last row */
        {"fold my::f(Tensor x, bool k) -> Tensor : takes float = acc + x from 0\n    gives k", "2 gives"},
    };
    kiln_ctx *ctx;
    assert_int_equal(kiln_open(NULL, &ctx), KILN_OK);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char got[64] = "";
        kiln_status st = kiln_ops_draft(ctx, "cell", cases[k].row, strlen(cases[k].row), note_untraced, got);
        if (st != KILN_OK || strcmp(got, cases[k].want) != 0)
            fail_msg("%s: '%s' %s", cases[k].row, got, st == KILN_OK ? "" : kiln_last_error());
    }
    const kiln_op *op;
    assert_int_equal(kiln_op_find(ctx, "aten::native_batch_norm_backward", &op), KILN_OK);
    char got[64];
    assert_int_equal(note_untraced(got, op), KILN_OK);
    assert_string_equal(got, "1 size");
    kiln_close(ctx);
#undef HEAD
#undef SUM
}

static void rows_can_be_dropped(void **state) {
    (void)state;
    static const char *const names[] = {"my::twice", "my::nobody", "aten::exp"};
    kiln_ctx *ctx;
    const kiln_op *op, *exp;
    assert_int_equal(kiln_open(NULL, &ctx), KILN_OK);
    size_t before = kiln_op_count(ctx);
    assert_int_equal(kiln_ops_load(ctx, TWICE, strlen(TWICE)), KILN_OK);
    assert_int_equal(kiln_op_find(ctx, "my::twice", &op), KILN_OK);
    assert_int_equal(kiln_ops_drop(ctx, names, 3), KILN_OK);
    assert_int_equal(kiln_op_count(ctx), before);
    assert_string_equal(kiln_op_row(op), TWICE); /* whoever holds it keeps it */
    assert_int_equal(kiln_op_find(ctx, "my::twice", &op), KILN_E_NOTFOUND);
    assert_int_equal(kiln_op_find(ctx, "aten::exp", &exp), KILN_OK);
    assert_int_equal(kiln_ops_load(ctx, THRICE, strlen(THRICE)), KILN_OK); /* the name is free again */
    assert_int_equal(kiln_op_count(ctx), before + 1);
    kiln_close(ctx);
}

static void own_rows_are_not_replaced(void **state) {
    (void)state;
    static const char exp[] = "map exp(Tensor self) -> Tensor : to_float = exp(self) + 1\n";
    static const char form[] = "map exp_(Tensor self) -> Tensor : to_float = exp(self) + 1\n";
    static const char rule[] = "complex mul(a, b) = complex(re(a), im(b))\n";
    static const char both[] = TWICE THRICE, rules[] = RULE("a") RULE("-a");
    kiln_ctx *ctx;
    const kiln_op *op;
    assert_int_equal(kiln_open(NULL, &ctx), KILN_OK);
    size_t before = kiln_op_count(ctx);
    assert_int_equal(kiln_ops_replace(ctx, "r", exp, strlen(exp)), KILN_E_ARG);
    assert_non_null(strstr(kiln_last_error(), "r:1:5: aten::exp is defined already, at "));
    assert_non_null(
        strstr(kiln_last_error(), "; rows of Kiln's own are not replaced: use a namespace of your own"));
    assert_int_not_equal(kiln_ops_replace(ctx, "r", form, strlen(form)), KILN_OK);
    assert_int_equal(kiln_ops_replace(ctx, "r", rule, strlen(rule)), KILN_E_ARG);
    assert_non_null(strstr(kiln_last_error(), "r:1:9: the rule for mul is defined already, at complex.ops:"));
    assert_int_equal(kiln_ops_replace(ctx, "r", both, strlen(both)), KILN_E_ARG); /* which one is meant? */
    assert_int_equal(kiln_ops_replace(ctx, "r", rules, strlen(rules)), KILN_E_ARG);
    assert_int_equal(kiln_op_count(ctx), before);
    assert_int_equal(kiln_op_find(ctx, "aten::exp", &op), KILN_OK);
    assert_int_equal(kiln_ops_load(ctx, kiln_op_row(op), strlen(kiln_op_row(op))), KILN_OK);
    assert_int_equal(kiln_op_count(ctx), before);
    kiln_close(ctx);
}

/* What is found through the index made at build time is what loading all rows gives. */
static void index_says_what_rows_say(void **state) {
    (void)state;
    kiln_row_text files[64];
    char names[64][64];
    int n = 0;
    for (; kiln_text_ops[n].name; n++) {
        snprintf(names[n], sizeof names[n], "%s.ops", kiln_text_ops[n].name);
        files[n] = (kiln_row_text){names[n], kiln_text_ops[n].text, kiln_text_ops[n].len, false};
    }
    kiln_registry *loaded;
    const kiln_registry *indexed = kiln_registry_shipped();
    assert_int_equal(kiln_registry_new(NULL, files, n, &kiln_torch_schemas, false, &loaded), KILN_OK);
    assert_int_equal(kiln_registry_count(indexed), kiln_registry_count(loaded));
    for (size_t k = 0; k < kiln_registry_count(loaded); k++) {
        const kiln_op *a, *b;
        assert_int_equal(kiln_registry_get(indexed, k, &a), KILN_OK);
        assert_int_equal(kiln_registry_get(loaded, k, &b), KILN_OK);
        assert_string_equal(a->name, b->name);
        assert_string_equal(kiln_registry_name(indexed, k), b->name);
        assert_string_equal(a->schema_text, b->schema_text);
        assert_string_equal(a->row->text, b->row->text);
        assert_string_equal(a->row->source, b->row->source);
        assert_int_equal(a->row->line, b->row->line);
        assert_int_equal(a->form, b->form);
        assert_int_equal(a->nout, b->nout);
        assert_memory_equal(&a->row->digest, &b->row->digest, sizeof a->row->digest);
        const kiln_op *found = NULL;
        assert_int_equal(kiln_registry_find_row(indexed, b->name, &found), KILN_OK);
        assert_ptr_equal(found, a);
    }
    kiln_registry_free(loaded);
}

/* PyTorch's list in the order made at build time, and each of its lines found by its name. */
static void schemas_are_found_by_name(void **state) {
    (void)state;
    kiln_arena arena = {0};
    kiln_schema_list list;
    assert_int_equal(kiln_schema_list_make(&arena, kiln_torch_schemas.text, kiln_torch_schemas.n, &list),
                     KILN_OK);
    assert_int_equal(kiln_torch_schemas.nlines, list.nlines);
    assert_memory_equal(kiln_torch_schemas.starts, list.starts, list.nlines * sizeof *list.starts);
    for (size_t k = 0; k < list.nlines; k++) {
        kiln_schema_line line = kiln_schema_list_at(&list, k), found;
        size_t first, n = kiln_schema_list_overloads(&list, line.text, line.base, &first);
        assert_true(first <= k && k < first + n);
        assert_true(kiln_schema_list_find(&list, line.text, line.name, &found));
        assert_ptr_equal(found.text, line.text);
    }
    kiln_schema_line none;
    size_t first;
    assert_false(kiln_schema_list_find(&list, "aten::add.NoSuch", 16, &none));
    assert_false(kiln_schema_list_find(&list, "aten::ad", 8, &none));
    assert_int_equal(kiln_schema_list_overloads(&list, "zzz", 3, &first), 0);
    kiln_arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_can_be_loaded_again),       cmocka_unit_test(rows_can_be_drafted),
        cmocka_unit_test(rows_say_what_cannot_be_traced), cmocka_unit_test(rows_can_be_dropped),
        cmocka_unit_test(own_rows_are_not_replaced),      cmocka_unit_test(index_says_what_rows_say),
        cmocka_unit_test(schemas_are_found_by_name),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
