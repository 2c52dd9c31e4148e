/* test_base.c - errors and their chain of context, the heap and arenas, the string builder, exact
 * floating-point text, edit distance, dtypes and their promotion, half conversions, files. */
#include <dirent.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/isa.h"
#include "float_env.h"

static char folder[] = "/tmp/kiln-test-base-XXXXXX"; /* scratch, gone when the tests end */

/* -- errors -------------------------------------------------------------------------------------- */

static kiln_status fail_with(kiln_status st) { return KILN_FAIL(st, "bad %s %d", "thing", 7); }

static kiln_status pass_on(kiln_status st) {
    KILN_TRY(kiln_note(fail_with(st), "inner %d", 1));
    return KILN_OK;
}

static void messages_gather_context(void **state) {
    (void)state;
    kiln_clear_error();
    assert_string_equal(kiln_last_error(), "");
    assert_int_equal(fail_with(KILN_E_ARG), KILN_E_ARG);
    assert_string_equal(kiln_last_error(), "bad thing 7");
    assert_int_equal(kiln_note(pass_on(KILN_E_PARSE), "outer"), KILN_E_PARSE);
    assert_string_equal(kiln_last_error(), "outer: inner 1: bad thing 7");
}

static void success_leaves_the_message_alone(void **state) {
    (void)state;
    kiln_clear_error();
    (void)fail_with(KILN_E_ARG);
    assert_int_equal(kiln_note(KILN_OK, "never seen"), KILN_OK);
    assert_string_equal(kiln_last_error(), "bad thing 7");
}

static void bugs_name_their_line(void **state) {
    (void)state;
    int line = __LINE__ + 1;
    assert_int_equal(KILN_BUG("broken"), KILN_E_BUG);
    char want[64];
    snprintf(want, sizeof want, "broken [test_base.c:%d]", line);
    assert_string_equal(kiln_last_error(), want);
}

static void a_message_may_quote_the_one_before(void **state) {
    (void)state;
    (void)fail_with(KILN_E_ARG);
    assert_int_equal(KILN_FAIL(KILN_E_BUILD, "after '%s'", kiln_last_error()), KILN_E_BUILD);
    assert_string_equal(kiln_last_error(), "after 'bad thing 7'");
}

/* Formatting would read the text, and there is none at that address. */
static void a_quiet_thread_makes_no_text(void **state) {
    (void)state;
    const char *unreadable = (const char *)(uintptr_t)16;
    static const char words[] = "a b";
    kiln_source text = {"rows", words, words + 3, 0};
    (void)fail_with(KILN_E_ARG);
    assert_int_equal(kiln_quiet(5), 0);
    assert_string_equal(kiln_last_error(), "bad thing 7"); /* until the next failure */
    assert_int_equal(KILN_FAIL(KILN_E_UNSUP, "%s", unreadable), KILN_E_UNSUP);
    assert_string_equal(kiln_last_error(), "no text: kiln_quiet is on");
    assert_int_equal(kiln_note(KILN_E_ARG, "%s", unreadable), KILN_E_ARG);
    assert_int_equal(KILN_FAIL_AT(&text, text.start, KILN_E_PARSE, "%s", unreadable), KILN_E_PARSE);
    kiln_sb part;
    kiln_sb_init_message(&part);
    kiln_sb_printf(&part, "%s", unreadable);
    kiln_sb_f64(&part, 0.1);
    kiln_sb_f32(&part, 0.1F);
    assert_true(part.failed && !part.p);
    kiln_sb_fini(&part);
    assert_int_equal(kiln_quiet(0), 1);
    assert_string_equal(kiln_last_error(), "no text: kiln_quiet is on");
    assert_int_equal(kiln_note(KILN_E_ARG, "outer"), KILN_E_ARG);
    assert_string_equal(kiln_last_error(), "outer: no text: kiln_quiet is on");
    kiln_sb_init_message(&part);
    kiln_sb_printf(&part, "%d", 1);
    assert_string_equal(part.p, "1");
    kiln_sb_fini(&part);
}

static void endless_messages_are_cut(void **state) {
    (void)state;
    char *text = kiln_calloc(1, 10001);
    memset(text, 'x', 10000);
    (void)KILN_FAIL(KILN_E_ARG, "%s", text);
    for (int i = 0; i < 20; i++) (void)kiln_note(KILN_E_ARG, "%s", text);
    assert_in_range(strlen(kiln_last_error()), 1000, 4095);
    kiln_free(text);
}

static void statuses_have_names_and_meanings(void **state) {
    (void)state;
    assert_string_equal(kiln_status_name(KILN_OK), "KILN_OK");
    assert_string_equal(kiln_status_name(KILN_E_PARSE), "KILN_E_PARSE");
    assert_string_equal(kiln_status_text(KILN_E_PARSE), "malformed text");
    assert_string_equal(kiln_status_name((kiln_status)9999), "KILN_E_UNKNOWN");
    assert_string_equal(kiln_status_text((kiln_status)9999), "not a status of this version");
}

/* -- memory -------------------------------------------------------------------------------------- */

static void the_nth_allocation_fails_and_all_after(void **state) {
    (void)state;
    kiln_alloc_fail_after(3);
    void *a = kiln_alloc(1), *b = kiln_calloc(2, 3), *c = kiln_alloc(1), *d = kiln_alloc_aligned(64, 8);
    void *e = kiln_realloc(a, 100);
    char *f = kiln_strdup("x");
    assert_int_equal(kiln_alloc_fail_after(0), 6);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(c);
    assert_null(d);
    assert_null(e);
    assert_null(f);
    *(char *)a = 1; /* still ours after the failed realloc */
    kiln_free(a);
    kiln_free(b);
}

static void the_peak_is_what_was_taken_at_once(void **state) {
    (void)state;
    enum { MB = 1 << 20 };
    void *old = kiln_alloc(4 * MB);
    kiln_alloc_peak_reset();
    assert_int_equal(kiln_alloc_peak(), 0);
    kiln_free(old); /* older than the reset: leaves the peak at 0 */
    assert_int_equal(kiln_alloc_peak(), 0);
    kiln_alloc_peak_reset();
    for (int i = 0; i < 5; i++) kiln_free(kiln_alloc(MB)); /* one after the other */
    assert_in_range(kiln_alloc_peak(), MB, MB + 8192);
    void *a = kiln_calloc(1, MB), *b = kiln_alloc_aligned(64, MB);
    assert_in_range(kiln_alloc_peak(), 2 * MB, 2 * MB + 16384);
    a = kiln_realloc(a, 2 * MB); /* may move: both places count */
    assert_in_range(kiln_alloc_peak(), 4 * MB, 4 * MB + 32768);
    kiln_free(a);
    kiln_free(b);
    kiln_alloc_peak_reset();
    assert_int_equal(kiln_alloc_peak(), 0);
}

static void empty_and_aligned_blocks(void **state) {
    (void)state;
    void *a = kiln_alloc(0), *b = kiln_alloc(0), *c = kiln_alloc_aligned(64, 100), *d = kiln_calloc(0, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(d);
    assert_ptr_not_equal(a, b);
    assert_int_equal((uintptr_t)c % 64, 0);
    kiln_free(a);
    kiln_free(b);
    kiln_free(c);
    kiln_free(d);
}

static void arena_blocks_are_aligned_zeroed_and_apart(void **state) {
    (void)state;
    kiln_arena a;
    kiln_arena_init(&a);
    unsigned char *blocks[600];
    for (int i = 0; i < 600; i++) {
        blocks[i] = kiln_arena_alloc(&a, (size_t)i);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        for (int k = 0; k < i; k++) assert_int_equal(blocks[i][k], 0);
        memset(blocks[i], i & 255, (size_t)i);
    }
    for (int i = 0; i < 600; i++)
        for (int k = 0; k < i; k++) assert_int_equal(blocks[i][k], i & 255);
    assert_true(a.nbytes >= 600 * 599 / 2);
    kiln_arena_free(&a);
    assert_null(a.head);
    assert_int_equal(a.nbytes, 0);
    kiln_arena_free(&a); /* as after init */
}

static void arenas_take_large_blocks_and_text(void **state) {
    (void)state;
    kiln_arena a;
    kiln_arena_init(&a);
    char *big = kiln_arena_alloc(&a, 3 << 20);
    assert_non_null(big);
    big[(3 << 20) - 1] = 1;
    assert_null(kiln_arena_alloc(&a, SIZE_MAX));
    assert_null(kiln_arena_alloc(&a, SIZE_MAX - 8));
    assert_string_equal(kiln_arena_strndup(&a, "abcdef", 3), "abc");
    assert_string_equal(kiln_arena_strndup(&a, "", 0), "");
    kiln_arena_free(&a);
}

static void a_failed_arena_block_leaves_the_arena_whole(void **state) {
    (void)state;
    kiln_arena a;
    kiln_arena_init(&a);
    char *kept = kiln_arena_strndup(&a, "kept", 4);
    kiln_alloc_fail_after(1);
    assert_null(kiln_arena_alloc(&a, 1 << 20));
    kiln_alloc_fail_after(0);
    assert_string_equal(kept, "kept");
    assert_non_null(kiln_arena_alloc(&a, 1 << 20));
    kiln_arena_free(&a);
}

/* -- text ---------------------------------------------------------------------------------------- */

static void the_builder_grows(void **state) {
    (void)state;
    kiln_sb sb;
    char *text;
    kiln_sb_init(&sb);
    for (int i = 0; i < 1000; i++) {
        kiln_sb_putc(&sb, '<');
        kiln_sb_printf(&sb, "%d", i);
        kiln_sb_puts(&sb, ">");
        kiln_sb_putn(&sb, "xyz", 1);
        assert_int_equal(strlen(sb.p), sb.len);
    }
    assert_int_equal(sb.len, 3 * 1000 + 10 + 180 + 2700);
    assert_int_equal(kiln_sb_take(&sb, &text), KILN_OK);
    assert_memory_equal(text, "<0>x<1>x<2>x", 12);
    assert_null(sb.p);
    kiln_free(text);
}

static void an_empty_builder_gives_empty_text(void **state) {
    (void)state;
    kiln_sb sb;
    char *text;
    kiln_sb_init(&sb);
    kiln_sb_putn(&sb, NULL, 0);
    assert_int_equal(kiln_sb_take(&sb, &text), KILN_OK);
    assert_string_equal(text, "");
    kiln_free(text);
}

static void long_formats_do_not_cut(void **state) {
    (void)state;
    kiln_sb sb;
    kiln_sb_init(&sb);
    kiln_sb_puts(&sb, "ab");
    kiln_sb_printf(&sb, "%*d", 5000, 7);
    assert_int_equal(sb.len, 5002);
    assert_int_equal(sb.p[5001], '7');
    kiln_sb_fini(&sb);
    assert_null(sb.p);
}

static void a_failed_builder_reports_once(void **state) {
    (void)state;
    for (long nth = 1; nth <= 3; nth++) {
        kiln_sb sb;
        char *text = NULL;
        kiln_sb_init(&sb);
        kiln_alloc_fail_after(nth);
        for (int i = 0; i < 200; i++) kiln_sb_puts(&sb, "0123456789");
        kiln_sb_printf(&sb, "%d", 1);
        kiln_alloc_fail_after(0);
        kiln_sb_puts(&sb, "later writes do nothing");
        assert_int_equal(kiln_sb_take(&sb, &text), KILN_E_NOMEM);
        assert_string_equal(kiln_last_error(), "out of memory");
        assert_null(text);
        assert_null(sb.p);
    }
}

static void writes_f64(double v, const char *want) {
    kiln_sb sb;
    kiln_sb_init(&sb);
    kiln_sb_f64(&sb, v);
    if (want) assert_string_equal(sb.p, want);
    double back;
    assert_true(kiln_f64_parse(sb.p, sb.len, &back));
    if (isnan(v))
        assert_true(isnan(back));
    else
        assert_memory_equal(&v, &back, sizeof v);
    kiln_sb_fini(&sb);
}

static void f64_text_is_short_and_exact(void **state) {
    (void)state;
    writes_f64(0.0, "0");
    writes_f64(-0.0, "-0");
    writes_f64(1.0, "1");
    writes_f64(0.1, "0.1");
    writes_f64(-2.5, "-2.5");
    writes_f64(1.0 / 3, "0.3333333333333333");
    writes_f64(0.1 + 0.2, "0.30000000000000004");
    writes_f64(1e-8, "1e-08");
    writes_f64(5e-324, "5e-324");
    writes_f64(DBL_MAX, "1.7976931348623157e+308");
    writes_f64(DBL_MIN, "2.2250738585072014e-308");
    writes_f64(9007199254740993.0, "9007199254740992");
    writes_f64(INFINITY, "inf");
    writes_f64(-INFINITY, "-inf");
    writes_f64(NAN, "nan");
}

static uint64_t next_random(uint64_t *seed) {
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void f64_text_reads_back_to_the_same_bits(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = next_random(&seed);
        double v;
        memcpy(&v, &bits, sizeof v);
        if (!isnan(v)) writes_f64(v, NULL);
    }
}

/* Sets a locale that writes 0,5: an installed one, else one made from the system's locale sources. */
static bool use_decimal_comma(void) {
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8")) return true;
    char command[200];
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", folder);
    if (system(command) != 0) return false;
    setenv("LOCPATH", folder, 1);
    return setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL;
}

static void f64_text_ignores_the_locale(void **state) {
    (void)state;
    if (!use_decimal_comma()) skip();
    double v = 0;
    bool dot = kiln_f64_parse("1.5", 3, &v), comma = kiln_f64_parse("1,5", 3, &v);
    writes_f64(0.5, "0.5");
    setlocale(LC_NUMERIC, "C");
    assert_true(dot && v == 1.5);
    assert_false(comma);
}

static void reading_f64_takes_all_or_nothing(void **state) {
    (void)state;
    double v = 42;
    assert_true(kiln_f64_parse("1.5e3xyz", 5, &v));
    assert_true(v == 1500);
    assert_true(kiln_f64_parse("-.5", 3, &v) && v == -0.5);
    assert_true(kiln_f64_parse("2.", 2, &v) && v == 2);
    assert_true(kiln_f64_parse("-inf", 4, &v) && v == -INFINITY);
    v = 42;
    static const char *const bad[] = {"",  "x", "1x",    " 1", "\n1", "1 ",
                                      ".", "-", "1.2.3", "1e", "1,5", "0x10"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (kiln_f64_parse(bad[i], strlen(bad[i]), &v)) fail_msg("took '%s'", bad[i]);
    assert_false(kiln_f64_parse("1\0", 2, &v));
    char zeros[600];
    memset(zeros, '0', sizeof zeros);
    assert_false(kiln_f64_parse(zeros, sizeof zeros, &v));
    assert_true(v == 42);
    assert_true(kiln_f64_parse(zeros, 512, &v));
    assert_true(v == 0);
}

static void text_and_halves_ignore_the_rounding_mode(void **state) {
    (void)state;
    static const double values[] = {0.1, 1.0 / 3, 5e-324, -1e-310, DBL_MAX};
    enum { N = sizeof values / sizeof *values };
    for (int e = 0; e < FLOAT_ENVS; e++) {
        kiln_sb wide, narrow;
        double back[N];
        uint16_t halves[3];
        fenv_t before;
        kiln_sb_init(&wide);
        kiln_sb_init(&narrow);
        enter_env(&float_envs[e], &before);
        for (int k = 0; k < N; k++) {
            size_t at = wide.len;
            kiln_sb_f64(&wide, values[k]);
            kiln_f64_parse(wide.p + at, wide.len - at, &back[k]);
            kiln_sb_putc(&wide, ' ');
        }
        kiln_sb_f32(&narrow, 0.1f);
        halves[0] = kiln_f32_to_half(0x1.8p-24f); /* one and a half of the smallest */
        halves[1] = kiln_f32_to_half(-0x1.4p-24f);
        halves[2] = kiln_f32_to_half(0x1.002p-14f);
        int rounding = fegetround();
        fesetenv(&before);
        assert_int_equal(rounding, float_envs[e].rounding);
        assert_string_equal(wide.p, "0.1 0.3333333333333333 5e-324 -1e-310 1.7976931348623157e+308 ");
        assert_string_equal(narrow.p, "0.1");
        assert_memory_equal(back, values, sizeof back);
        assert_int_equal(halves[0], 2);
        assert_int_equal(halves[1], 0x8001);
        assert_int_equal(halves[2], 0x400);
        kiln_sb_fini(&wide);
        kiln_sb_fini(&narrow);
    }
}

static void strings_compare_with_null(void **state) {
    (void)state;
    char other[] = "a";
    assert_true(kiln_str_eq("a", other));
    assert_false(kiln_str_eq("a", "b"));
    assert_true(kiln_str_eq(NULL, NULL));
    assert_false(kiln_str_eq(NULL, "a"));
    assert_false(kiln_str_eq("a", NULL));
}

static void edit_distance_counts_changes(void **state) {
    (void)state;
    assert_int_equal(kiln_edit_distance("", "", 3), 0);
    assert_int_equal(kiln_edit_distance("add", "add", 0), 0);
    assert_int_equal(kiln_edit_distance("add", "adds", 3), 1);
    assert_int_equal(kiln_edit_distance("", "abc", 3), 3);
    assert_int_equal(kiln_edit_distance("kitten", "sitting", 5), 3);
    assert_int_equal(kiln_edit_distance("sitting", "kitten", 5), 3);
    assert_int_equal(kiln_edit_distance("kitten", "sitting", 2), 3);
    assert_int_equal(kiln_edit_distance("ab", "ba", 4), 2);
    assert_int_equal(kiln_edit_distance("aaa", "aa", 4), 1);
    assert_int_equal(kiln_edit_distance("abcdef", "uvwxyz", 3), 4);
}

static void misspellings_are_near(void **state) {
    (void)state;
    assert_int_equal(kiln_misspelling("Sin", "sin"), 0);
    assert_int_equal(kiln_misspelling("Sin", "min"), 1);
    assert_int_equal(kiln_misspelling("sinn", "sin"), 1);
    assert_int_equal(kiln_misspelling("tahn", "tanh"), 1); /* neighbours have changed places */
    assert_int_equal(kiln_misspelling("relu", "rem"), -1);
    assert_int_equal(kiln_misspelling("sigmod", "sigmoid"), 1);
    assert_int_equal(kiln_misspelling("sgmod", "sigmoid"), 2);
    assert_int_equal(kiln_misspelling("sgmd", "sigmoid"), -1);
    assert_int_equal(kiln_misspelling("a", "b"), -1);
    assert_int_equal(kiln_misspelling("im", "re"), -1);
    assert_int_equal(kiln_misspelling("", ""), 0);
}

static void edit_distance_of_long_names(void **state) {
    (void)state;
    char a[301] = "", b[301] = "";
    memset(a, 'n', 300);
    memset(b, 'n', 300);
    assert_int_equal(kiln_edit_distance(a, b, 2), 0);
    b[150] = 'm';
    assert_int_equal(kiln_edit_distance(a, b, 2), 1);
    memset(b, 'm', 300);
    assert_int_equal(kiln_edit_distance(a, b, 2), 3);
    assert_int_equal(kiln_edit_distance(a, "", 2), 3);
}

static void hashes_tell_texts_apart(void **state) {
    (void)state;
    kiln_digest a = kiln_hash128("abc", 3), b = kiln_hash128("abd", 3), c = kiln_hash128("abcd", 3);
    assert_true(a.lo != b.lo && a.hi != b.hi);
    assert_true(a.lo == c.lo && a.hi == c.hi);
    assert_true(kiln_hash64("abc", 3) == kiln_hash64("abcd", 3));
    assert_true(kiln_hash64("abc", 3) != kiln_hash64("abc", 2));
    assert_true(kiln_hash64("", 0) == 0x2d06800538d394c2u); /* XXH3's published value for no bytes */
    assert_true(kiln_hash64_keyed("abc", 3) ==
                kiln_hash64_keyed("abcd", 3)); /* for the life of the process */
    assert_true(kiln_hash64_keyed("abc", 3) != kiln_hash64("abc", 3));
}

/* -- dtypes -------------------------------------------------------------------------------------- */

static void dtypes_have_names_and_sizes(void **state) {
    (void)state;
    for (int i = 0; i < KILN_DTYPE_COUNT; i++) {
        kiln_dtype t = (kiln_dtype)i, back = KILN_DTYPE_COUNT;
        assert_int_equal(kiln_dtype_parse(kiln_dtype_name(t), &back), KILN_OK);
        assert_int_equal(back, t);
        assert_int_equal(kiln_dtype_parse(kiln_dtype_torch_name(t), &back), KILN_OK);
        assert_int_equal(back, t);
    }
    assert_int_equal(kiln_dtype_size(KILN_BOOL), 1);
    assert_int_equal(kiln_dtype_size(KILN_BF16), 2);
    assert_int_equal(kiln_dtype_size(KILN_F64), 8);
    assert_string_equal(kiln_dtype_torch_name(KILN_BF16), "bfloat16");
    assert_string_equal(kiln_dtype_name((kiln_dtype)99), "?");
    assert_int_equal(kiln_dtype_size((kiln_dtype)-1), 0);
    kiln_dtype kept = KILN_I8;
    assert_int_equal(kiln_dtype_parse("f31", &kept), KILN_E_PARSE);
    assert_string_equal(kiln_last_error(), "unknown dtype 'f31'");
    assert_int_equal(kept, KILN_I8);
}

static void dtypes_have_kinds(void **state) {
    (void)state;
    assert_int_equal(kiln_dtype_kind(KILN_BOOL), KILN_KIND_BOOL);
    assert_int_equal(kiln_dtype_kind(KILN_U8), KILN_KIND_INT);
    assert_int_equal(kiln_dtype_kind(KILN_BF16), KILN_KIND_FLOAT);
    assert_false(kiln_dtype_is_int(KILN_BOOL) || kiln_dtype_is_float(KILN_BOOL));
    assert_true(kiln_dtype_is_int(KILN_U8) && !kiln_dtype_is_float(KILN_U8));
    assert_true(kiln_dtype_is_float(KILN_BF16) && !kiln_dtype_is_int(KILN_BF16));
    assert_false(kiln_dtype_is_signed(KILN_BOOL) || kiln_dtype_is_signed(KILN_U8));
    assert_true(kiln_dtype_is_signed(KILN_I8) && kiln_dtype_is_signed(KILN_F16));
    assert_int_equal(kiln_dtype_compute(KILN_F16), KILN_F32);
    assert_int_equal(kiln_dtype_compute(KILN_BF16), KILN_F32);
    assert_int_equal(kiln_dtype_compute(KILN_F64), KILN_F64);
    assert_int_equal(kiln_dtype_compute(KILN_U8), KILN_U8);
}

/* torch.promote_types for every pair, in the order of dtype.def; ? where PyTorch refuses. */
static const char *const promotions[] = {
    "bool u8   i8   i16  i32  i64  f16  bf16 f32  f64  ?    ?    ?    c64  c128", /* bool */
    "u8   u8   i16  i16  i32  i64  f16  bf16 f32  f64  ?    ?    ?    c64  c128", /* u8 */
    "i8   i16  i8   i16  i32  i64  f16  bf16 f32  f64  ?    ?    ?    c64  c128", /* i8 */
    "i16  i16  i16  i16  i32  i64  f16  bf16 f32  f64  ?    ?    ?    c64  c128", /* i16 */
    "i32  i32  i32  i32  i32  i64  f16  bf16 f32  f64  ?    ?    ?    c64  c128", /* i32 */
    "i64  i64  i64  i64  i64  i64  f16  bf16 f32  f64  ?    ?    ?    c64  c128", /* i64 */
    "f16  f16  f16  f16  f16  f16  f16  f32  f32  f64  f16  f16  f16  c64  c128", /* f16 */
    "bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64  bf16 bf16 bf16 c64  c128", /* bf16 */
    "f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  f32  f32  f32  c64  c128", /* f32 */
    "f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128", /* f64 */
    "?    ?    ?    ?    ?    ?    f16  bf16 f32  f64  u16  ?    ?    ?    ?",    /* u16 */
    "?    ?    ?    ?    ?    ?    f16  bf16 f32  f64  ?    u32  ?    ?    ?",    /* u32 */
    "?    ?    ?    ?    ?    ?    f16  bf16 f32  f64  ?    ?    u64  ?    ?",    /* u64 */
    "c64  c64  c64  c64  c64  c64  c64  c64  c64  c128 ?    ?    ?    c64  c128", /* c64 */
    "c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 ?    ?    ?    c128 c128", /* c128 */
};

static void promotion_is_that_of_torch(void **state) {
    (void)state;
    assert_int_equal(sizeof promotions / sizeof *promotions, KILN_DTYPE_COUNT);
    for (size_t a = 0; a < sizeof promotions / sizeof *promotions; a++) {
        const char *at = promotions[a];
        for (int b = 0; b < KILN_DTYPE_COUNT; b++) {
            char name[8];
            int len = 0;
            assert_int_equal(sscanf(at, " %7s%n", name, &len), 1);
            at += len;
            assert_string_equal(kiln_dtype_name(kiln_dtype_promote((kiln_dtype)a, (kiln_dtype)b)), name);
        }
    }
}

/* PyTorch refuses some pairs with these, so grouping matters. */
static bool limited(kiln_dtype t) { return kiln_dtype_is_limited(t); }

static void promotion_is_a_join(void **state) {
    (void)state;
#define P(x, y) kiln_dtype_promote((kiln_dtype)(x), (kiln_dtype)(y))
    for (int a = 0; a < KILN_DTYPE_COUNT; a++)
        for (int b = 0; b < KILN_DTYPE_COUNT; b++) {
            assert_int_equal(P(a, b), P(b, a));
            for (int c = 0; c < KILN_DTYPE_COUNT; c++)
                if (!limited((kiln_dtype)a) && !limited((kiln_dtype)b) && !limited((kiln_dtype)c))
                    assert_int_equal(P(P(a, b), c), P(a, P(b, c)));
        }
#undef P
}

/* -- half precision ------------------------------------------------------------------------------ */

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* The value by definition: sign, exponent with bias 15, ten bits of fraction. */
static double half_value(uint16_t h) {
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double v = exponent == 31  ? (fraction ? NAN : INFINITY)
               : exponent == 0 ? ldexp(fraction, -24)
                               : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -v : v;
}

static void every_half_widens_exactly(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float got = kiln_half_to_f32((uint16_t)h);
        double want = half_value((uint16_t)h);
        if (isnan(want)) {
            assert_true(isnan(got));
            assert_int_equal(bits_of(got) >> 31, h >> 15);
        } else {
            assert_int_equal(bits_of(got), bits_of((float)want));
        }
    }
}

static void every_half_survives_a_round_trip(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t back = kiln_f32_to_half(kiln_half_to_f32((uint16_t)h));
        if (isnan(half_value((uint16_t)h)))
            assert_true((back & 0x7e00) == 0x7e00 && back >> 15 == h >> 15); /* quiet, sign kept */
        else
            assert_int_equal(back, h);
    }
}

/* Between each pair of neighbours: the middle goes to the even one, anything off it to the nearer. */
static void halves_round_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double above = h == 0x7bff ? 65536.0 : half_value((uint16_t)(h + 1));
        float middle = (float)((half_value((uint16_t)h) + above) / 2);
        for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
            float s = sign ? -1.0f : 1.0f;
            assert_int_equal(kiln_f32_to_half(s * middle), sign | (h + (h & 1)));
            assert_int_equal(kiln_f32_to_half(s * nextafterf(middle, 0)), sign | h);
            assert_int_equal(kiln_f32_to_half(s * nextafterf(middle, INFINITY)), sign | (h + 1));
        }
    }
    assert_int_equal(kiln_f32_to_half(FLT_MAX), 0x7c00);
    assert_int_equal(kiln_f32_to_half(-INFINITY), 0xfc00);
    assert_int_equal(kiln_f32_to_half(FLT_TRUE_MIN), 0);
    assert_int_equal(kiln_f32_to_half(-FLT_TRUE_MIN), 0x8000);
}

static void every_bf16_survives_a_round_trip(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float wide = kiln_bf16_to_f32((uint16_t)h);
        assert_int_equal(bits_of(wide), h << 16);
        uint16_t back = kiln_f32_to_bf16(wide);
        assert_int_equal(back, isnan(wide) ? 0x7fc0 : h);
    }
}

static void bf16s_round_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        if ((h & 0x7fff) >= 0x7f80) continue; /* infinities and NaNs have nothing above them */
        assert_int_equal(kiln_f32_to_bf16(float_of(h << 16 | 0x7fff)), h);
        assert_int_equal(kiln_f32_to_bf16(float_of(h << 16 | 0x8000)), h + (h & 1));
        assert_int_equal(kiln_f32_to_bf16(float_of(h << 16 | 0x8001)), h + 1);
    }
    assert_int_equal(kiln_f32_to_bf16(FLT_MAX), 0x7f80);
    assert_int_equal(kiln_f32_to_bf16(float_of(0x7f800001)), 0x7fc0);
}

/* -- ISA levels ---------------------------------------------------------------------------------- */

static void isa_levels_have_names_and_the_best_one_runs(void **state) {
    (void)state;
    assert_true(kiln_isa_runs(kiln_isa_detect()));
    assert_true(kiln_isa_runs(KILN_ISA_GENERIC));
    for (int i = 0; i < KILN_ISA_COUNT; i++) {
        kiln_isa back;
        assert_int_equal(kiln_isa_parse(kiln_isa_name((kiln_isa)i), &back), KILN_OK);
        assert_int_equal(back, i);
        assert_true(kiln_isa_vector_bytes((kiln_isa)i) >= 16);
    }
    kiln_isa kept = KILN_ISA_GENERIC;
    assert_int_equal(kiln_isa_parse("native", &kept), KILN_E_ARG);
    assert_int_equal(kept, KILN_ISA_GENERIC);
    assert_non_null(strstr(kiln_last_error(), "unknown ISA level 'native'"));
}

/* -- files --------------------------------------------------------------------------------------- */

static int make_scratch(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_scratch(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static const char *in_folder(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int entries(const char *path) {
    DIR *dir = opendir(path);
    assert_non_null(dir);
    int n = 0;
    while (readdir(dir)) n++;
    closedir(dir);
    return n - 2; /* "." and ".." */
}

static void files_are_written_whole(void **state) {
    (void)state;
    kiln_status st = kiln_mkdirs(in_folder("whole"));
    assert_int_equal(st, KILN_OK);
    static const char bytes[] = "one\0two";
    char *back;
    size_t n;
    assert_int_equal(kiln_file_write_atomic(in_folder("whole/a"), "first", 5), KILN_OK);
    assert_int_equal(kiln_file_write_atomic(in_folder("whole/a"), bytes, sizeof bytes), KILN_OK);
    assert_int_equal(kiln_file_read(in_folder("whole/a"), &back, &n), KILN_OK);
    assert_int_equal(n, sizeof bytes);
    assert_memory_equal(back, bytes, sizeof bytes);
    assert_int_equal(back[n], 0);
    kiln_free(back);
    assert_int_equal(entries(in_folder("whole")), 1); /* no temporary is left */
    assert_int_equal(kiln_file_write_atomic(in_folder("whole/empty"), NULL, 0), KILN_OK);
    assert_int_equal(kiln_file_read(in_folder("whole/empty"), &back, NULL), KILN_OK);
    assert_string_equal(back, "");
    kiln_free(back);
}

static void large_files_come_back(void **state) {
    (void)state;
    size_t n = 1000003, got;
    char *data = kiln_alloc(n), *back;
    for (size_t i = 0; i < n; i++) data[i] = (char)(i * 7);
    assert_int_equal(kiln_file_write_atomic(in_folder("large"), data, n), KILN_OK);
    assert_int_equal(kiln_file_read(in_folder("large"), &back, &got), KILN_OK);
    assert_int_equal(got, n);
    assert_memory_equal(back, data, n);
    kiln_free(back);
    kiln_free(data);
}

static void file_failures_name_the_path(void **state) {
    (void)state;
    char *back = NULL, want[600];
    assert_int_equal(kiln_file_read(in_folder("absent"), &back, NULL), KILN_E_IO);
    snprintf(want, sizeof want, "cannot open %s: No such file or directory", in_folder("absent"));
    assert_string_equal(kiln_last_error(), want);
    assert_int_equal(kiln_file_read(folder, &back, NULL), KILN_E_IO);
    assert_null(back);
    assert_int_equal(kiln_file_write_atomic(in_folder("no/such/file"), "x", 1), KILN_E_IO);
    snprintf(want, sizeof want, "cannot create a file beside %s: No such file or directory",
             in_folder("no/such/file"));
    assert_string_equal(kiln_last_error(), want);
}

static void a_failed_write_leaves_nothing(void **state) {
    (void)state;
    assert_int_equal(kiln_mkdirs(in_folder("failed/target")), KILN_OK);
    assert_int_equal(kiln_file_write_atomic(in_folder("failed/target"), "x", 1), KILN_E_IO); /* a folder */
    assert_int_equal(entries(in_folder("failed")), 1);
}

static void file_memory_may_fail(void **state) {
    (void)state;
    char *data = kiln_calloc(1, 100000), *back = NULL;
    assert_int_equal(kiln_file_write_atomic(in_folder("memory"), data, 100000), KILN_OK);
    kiln_free(data);
    kiln_status st = KILN_E_NOMEM;
    int failures = 0;
    for (long nth = 1; st == KILN_E_NOMEM; nth++, failures += st == KILN_E_NOMEM) {
        kiln_alloc_fail_after(nth);
        st = kiln_file_read(in_folder("memory"), &back, NULL);
        kiln_alloc_fail_after(0);
    }
    assert_int_equal(st, KILN_OK);
    assert_true(failures >= 2);
    kiln_free(back);
    kiln_alloc_fail_after(1);
    st = kiln_file_read("/dev/zero", &back, NULL); /* must not read on for ever */
    assert_int_equal(kiln_file_write_atomic(in_folder("none"), "x", 1), KILN_E_NOMEM);
    assert_int_equal(kiln_mkdirs(in_folder("none")), KILN_E_NOMEM);
    kiln_alloc_fail_after(0);
    assert_int_equal(st, KILN_E_NOMEM);
    assert_int_equal(access(in_folder("none"), F_OK), -1);
}

static void folders_are_made_with_their_parents(void **state) {
    (void)state;
    struct stat st;
    assert_int_equal(kiln_mkdirs(in_folder("a/b//c/")), KILN_OK);
    assert_int_equal(stat(in_folder("a/b/c"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(kiln_mkdirs(in_folder("a/b/c")), KILN_OK);
    assert_int_equal(kiln_mkdirs("/"), KILN_OK);
    assert_int_equal(kiln_mkdirs(""), KILN_E_IO);
}

static void a_file_is_not_a_folder(void **state) {
    (void)state;
    char want[600];
    assert_int_equal(kiln_file_write_atomic(in_folder("plain"), "x", 1), KILN_OK);
    assert_int_equal(kiln_mkdirs(in_folder("plain")), KILN_E_IO);
    snprintf(want, sizeof want, "cannot create folder %s: File exists", in_folder("plain"));
    assert_string_equal(kiln_last_error(), want);
    assert_int_equal(kiln_mkdirs(in_folder("plain/below")), KILN_E_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_gather_context),
        cmocka_unit_test(success_leaves_the_message_alone),
        cmocka_unit_test(bugs_name_their_line),
        cmocka_unit_test(a_message_may_quote_the_one_before),
        cmocka_unit_test(a_quiet_thread_makes_no_text),
        cmocka_unit_test(endless_messages_are_cut),
        cmocka_unit_test(statuses_have_names_and_meanings),
        cmocka_unit_test(the_nth_allocation_fails_and_all_after),
        cmocka_unit_test(the_peak_is_what_was_taken_at_once),
        cmocka_unit_test(empty_and_aligned_blocks),
        cmocka_unit_test(arena_blocks_are_aligned_zeroed_and_apart),
        cmocka_unit_test(arenas_take_large_blocks_and_text),
        cmocka_unit_test(a_failed_arena_block_leaves_the_arena_whole),
        cmocka_unit_test(the_builder_grows),
        cmocka_unit_test(an_empty_builder_gives_empty_text),
        cmocka_unit_test(long_formats_do_not_cut),
        cmocka_unit_test(a_failed_builder_reports_once),
        cmocka_unit_test(f64_text_is_short_and_exact),
        cmocka_unit_test(f64_text_reads_back_to_the_same_bits),
        cmocka_unit_test(f64_text_ignores_the_locale),
        cmocka_unit_test(reading_f64_takes_all_or_nothing),
        cmocka_unit_test(text_and_halves_ignore_the_rounding_mode),
        cmocka_unit_test(strings_compare_with_null),
        cmocka_unit_test(edit_distance_counts_changes),
        cmocka_unit_test(edit_distance_of_long_names),
        cmocka_unit_test(misspellings_are_near),
        cmocka_unit_test(hashes_tell_texts_apart),
        cmocka_unit_test(dtypes_have_names_and_sizes),
        cmocka_unit_test(dtypes_have_kinds),
        cmocka_unit_test(promotion_is_that_of_torch),
        cmocka_unit_test(promotion_is_a_join),
        cmocka_unit_test(every_half_widens_exactly),
        cmocka_unit_test(every_half_survives_a_round_trip),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(every_bf16_survives_a_round_trip),
        cmocka_unit_test(bf16s_round_to_nearest_even),
        cmocka_unit_test(isa_levels_have_names_and_the_best_one_runs),
        cmocka_unit_test(files_are_written_whole),
        cmocka_unit_test(large_files_come_back),
        cmocka_unit_test(file_failures_name_the_path),
        cmocka_unit_test(a_failed_write_leaves_nothing),
        cmocka_unit_test(file_memory_may_fail),
        cmocka_unit_test(folders_are_made_with_their_parents),
        cmocka_unit_test(a_file_is_not_a_folder),
    };
    return cmocka_run_group_tests_name("base", tests, make_scratch, drop_scratch);
}
