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
    assert_string_equal(kiln_last_error(), "rows:1:5: my::twice is defined already, at rows:2:5");
    assert_int_equal(kiln_ops_replace(ctx, "cell", RULE("-a") THRICE, strlen(RULE("-a") THRICE)), KILN_OK);
    assert_int_equal(kiln_op_find(ctx, "my::twice", &op), KILN_OK);
    assert_string_equal(kiln_op_row(op), THRICE);
    assert_string_equal(kiln_op_row(first), TWICE); /* whoever holds the old one keeps it */
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
        cmocka_unit_test(rows_can_be_loaded_again),
        cmocka_unit_test(own_rows_are_not_replaced),
        cmocka_unit_test(index_says_what_rows_say),
        cmocka_unit_test(schemas_are_found_by_name),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
