/* test_families.c - the tables of families: what src/op and src/infer take for granted of every line of family.def. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "family/family.h"
#include "op/row_family.h"

#define EACH_FAMILY(f) for (int f = 0; f < KILN_FAMILY_COUNT; f++)

static void every_family_has_rules(void **state) {
    (void)state;
    EACH_FAMILY(f) {
        const kiln_family_rules *rules = kiln_rules_of[f];
        assert_non_null(rules);
        assert_non_null(rules->clauses);
        assert_int_equal(kiln_family_served((kiln_family)f), kiln_families[f] != NULL);
        if (rules->composes) assert_non_null(rules->rules); /* kiln_row_rules asks no other rule then */
        if (rules->derivable) assert_non_null(rules->derive);
    }
}

static void words_of_clauses_are_distinct(void **state) {
    (void)state;
    static const char *const common[] = {"check", "static", "ignore", "let", "host", "domain", "tol", "doc"};
    enum { COMMON = sizeof common / sizeof *common };
    EACH_FAMILY(f) {
        const kiln_clause *const *c = kiln_rules_of[f]->clauses;
        int n = 0;
        for (; c[n]; n++) {
            for (int k = 0; k < n; k++) assert_string_not_equal(c[n]->word, c[k]->word);
            for (int k = 0; k < COMMON; k++) assert_string_not_equal(c[n]->word, common[k]);
        }
        assert_true(COMMON + n <= 64); /* bits of kiln_row.clauses */
    }
}

static void one_family_writes_foreach_lines(void **state) {
    (void)state;
    int n = 0;
    EACH_FAMILY(f) n += kiln_rules_of[f]->foreach_text != NULL;
    assert_int_equal(n, 1);
}

static void a_message_names_every_family(void **state) {
    (void)state;
    static const char message[] =
        "r:1:1: expected a family:"
#define F(NAME, name, served) " " #name
#include "op/family.def"
#undef F
        ", found 'mop'; a row reads 'map my::f(Tensor x) -> Tensor : takes float = x + 1'";
    const char *text = "mop my::f(Tensor self) -> Tensor = self";
    kiln_row_text row = {"r", text, strlen(text), true};
    kiln_registry *r = NULL;
    assert_int_equal(kiln_registry_new(NULL, &row, 1, NULL, false, &r), KILN_E_PARSE);
    assert_string_equal(kiln_last_error(), message);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_has_rules),
        cmocka_unit_test(words_of_clauses_are_distinct),
        cmocka_unit_test(one_family_writes_foreach_lines),
        cmocka_unit_test(a_message_names_every_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
