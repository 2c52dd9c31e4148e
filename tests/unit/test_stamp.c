/* test_stamp.c - the build stamp: which files it covers, and that a byte or an order more or less gives another. */
#include "call_cases.h"
#include "target/cpu/emit.h"

/* Runs the build's own tool over paths; what it wrote, which is static. */
static const char *digest_of(const char *paths) {
    static char text[400];
    char command[100000];
    snprintf(command, sizeof command, "'%s/tools/kiln_embed' '%s/stamp.c' -d stamp %s", KILN_BUILD_DIR,
             scratch, paths);
    assert_int_equal(system(command), 0);
    FILE *f = fopen(in_scratch("stamp.c"), "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    char *digits = strchr(text, '"');
    while (digits && digits[33] != '"') digits = strchr(digits + 1, '"');
    assert_non_null(digits);
    digits[33] = 0;
    return digits + 1;
}

static void write_file(const char *name, const char *text) {
    FILE *f = fopen(in_scratch(name), "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void every_byte_counts(void **state) {
    (void)state;
    static const char *const a[] = {"one", "one ", "on", "one", "oneX", ""}, *const b[] = {"two",  "two",
                                                                                           "etwo", "tw0",
                                                                                           "two",  "onetwo"};
    char seen[sizeof a / sizeof *a][40], paths[900];
    for (size_t k = 0; k < sizeof a / sizeof *a; k++) {
        write_file("a", a[k]);
        write_file("b", b[k]);
        snprintf(paths, sizeof paths, "%s/a %s/b", scratch, scratch);
        snprintf(seen[k], sizeof seen[k], "%s", digest_of(paths));
        assert_string_equal(seen[k], digest_of(paths));
        for (size_t j = 0; j < k; j++) assert_string_not_equal(seen[j], seen[k]);
    }
    snprintf(paths, sizeof paths, "%s/b %s/a", scratch, scratch);
    assert_string_not_equal(digest_of(paths), seen[5]);
}

/* The library carries the digest of the files that stamped.txt names, as the shell finds and sorts them. */
static void the_library_has_the_stamp_of_its_sources(void **state) {
    (void)state;
    assert_int_equal(strlen(kiln_emit_stamp), 32);
    assert_string_equal(kiln_emit_stamp,
                        digest_of("$(grep -v '^#' src/target/cpu/stamped.txt | sed 's|^|" KILN_SOURCE_DIR
                                  "/|' | "
                                  "while read -r p; do ls $p; done | LC_ALL=C sort)"));
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    char *text;
    MUST_OK(kiln_doctor(ctx, &text));
    assert_non_null(strstr(text, kiln_emit_stamp));
    kiln_text_free(text);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_counts),
        cmocka_unit_test(the_library_has_the_stamp_of_its_sources),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
