/* test_stored_list.c - kiln_cache_list, prune, clear and why: what entries on disk say, which of them checks refuse, and what is removed. */
#include <fcntl.h>

#include "call_cases.h"

enum { ROOM = 16 };
typedef struct seen {
    int n;
    char id[ROOM][40], op[ROOM][64], cause[ROOM][16], fault[ROOM][300];
    kiln_kept_info info[ROOM]; /* its texts are gone */
} seen;

static kiln_status note(void *user, const kiln_kept_info *info) {
    seen *s = user;
    assert_true(s->n < ROOM);
    snprintf(s->id[s->n], sizeof *s->id, "%s", info->id);
    snprintf(s->op[s->n], sizeof *s->op, "%s", info->op);
    snprintf(s->cause[s->n], sizeof *s->cause, "%s", info->cause ? info->cause : "");
    snprintf(s->fault[s->n], sizeof *s->fault, "%s", info->fault ? info->fault : "");
    s->info[s->n++] = *info;
    return KILN_OK;
}

static seen list_of(kiln_ctx *ctx, const char *start, int how) {
    seen s = {0};
    MUST_OK(kiln_cache_list(ctx, start, how, note, &s));
    return s;
}

/* A context with a cache folder of this name. */
static kiln_ctx *open_disk(const char *name, kiln_config config) {
    config.mode = KILN_MODE_SYNC;
    config.cache = "disk";
    config.cache_dir = in_scratch(name);
    return open_with(config);
}

static void call_unary(kiln_ctx *ctx, const char *name, kiln_tensor *x) {
    kiln_tensor_release(call1(ctx, name, ARGS(TEN(x))));
}

/* Three entries: neg, abs and relu of f32. */
static kiln_ctx *fill(const char *name) {
    static const char *const ops[] = {"neg", "abs", "relu"};
    kiln_ctx *ctx = open_disk(name, (kiln_config){0});
    kiln_tensor *x = F32(SIZES(3), 0, 1, 2);
    for (int k = 0; k < 3; k++) call_unary(ctx, ops[k], x);
    kiln_tensor_release(x);
    assert_int_equal(stats_of(ctx).stored, 3);
    return ctx;
}

static const char *file_of(kiln_ctx *ctx, const char *id) {
    static char path[600];
    char *folder;
    MUST_OK(kiln_cache_folder(ctx, &folder));
    snprintf(path, sizeof path, "%s/%s.kernel", folder, id);
    kiln_text_free(folder);
    return path;
}

static void flip_byte(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    long place = ftell(f);
    int c = getc(f);
    fseek(f, place, SEEK_SET);
    putc(c ^ 1, f);
    fclose(f);
}

/* -- listing ----------------------------------------------------------------------------------------------- */

static kiln_status check_texts(void *user, const kiln_kept_info *info) {
    if (strcmp(info->op, "aten::neg") != 0) return KILN_OK;
    ++*(int *)user;
    assert_string_equal(info->words, "self f32 contig -> f32 contig; in f32");
    assert_string_equal(info->target, "cpu");
    assert_true(info->stamp[0] && info->isa[0] && info->compiler[0]);
    assert_non_null(strstr(info->ir, "neg"));
    assert_true(info->source && memmem(info->source, info->nsource, "aten::neg", 9));
    return KILN_OK;
}

static void entries_say_what_they_are(void **state) {
    (void)state;
    kiln_ctx *ctx = fill("says");
    struct stat file;
    int n = 0;
    MUST_OK(kiln_cache_list(ctx, NULL, KILN_CACHE_LOAD, check_texts, &n));
    assert_int_equal(n, 1);
    seen s = list_of(ctx, NULL, KILN_CACHE_LOAD);
    assert_int_equal(s.n, 3);
    for (int k = 0; k < s.n; k++) {
        assert_int_equal(strlen(s.id[k]), 32);
        assert_true(s.info[k].tested && s.info[k].is_current && !s.info[k].is_signed && !s.info[k].cause);
        assert_true(s.info[k].built_at > 1600000000 && s.info[k].build_ns > 0);
        assert_int_equal(stat(file_of(ctx, s.id[k]), &file), 0);
        assert_int_equal(s.info[k].nbytes, file.st_size);
        assert_int_equal(list_of(ctx, s.id[k], 0).n, 1);
    }
    assert_int_equal(list_of(ctx, "x", 0).n, 0);
    kiln_close(ctx);
}

static kiln_status stop(void *user, const kiln_kept_info *info) {
    (void)info;
    ++*(int *)user;
    return KILN_E_LIMIT;
}

static void a_status_ends_the_list(void **state) {
    (void)state;
    kiln_ctx *ctx = fill("ends");
    int n = 0;
    assert_int_equal(kiln_cache_list(ctx, NULL, 0, stop, &n), KILN_E_LIMIT);
    assert_int_equal(n, 1);
    kiln_close(ctx);
}

/* A list is no use of an entry: its time stays. */
static void a_list_changes_nothing(void **state) {
    (void)state;
    kiln_ctx *ctx = fill("looks");
    seen s = list_of(ctx, NULL, 0);
    struct timespec old[2] = {{1700000000, 0}, {1700000000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, file_of(ctx, s.id[0]), old, 0), 0);
    flip_byte(file_of(ctx, s.id[1]), 300);
    (void)list_of(ctx, NULL, KILN_CACHE_LOAD);
    s = list_of(ctx, NULL, 0);
    assert_int_equal(s.n, 3);
    assert_true(s.info[0].used_at == 1700000000 || s.info[1].used_at == 1700000000 ||
                s.info[2].used_at == 1700000000);
    kiln_close(ctx);
}

/* -- faults ------------------------------------------------------------------------------------------------- */

static int find(const seen *s, const char *id) {
    for (int k = 0; k < s->n; k++)
        if (strcmp(s->id[k], id) == 0) return k;
    fail_msg("no entry %s", id);
    return -1;
}

static void damage_is_found(void **state) {
    (void)state;
    static const struct {
        long at; /* the byte that is changed; from the end if negative */
        const char *cause, *fault;
    } cases[] = {{0, "corrupt", "does not begin as an entry"},
                 {8, "stale", "format"},
                 {20, "corrupt", "checksum"},
                 {400, "corrupt", "checksum"},
                 {-1, "corrupt", "source"}};
    kiln_ctx *ctx = fill("damage");
    seen before = list_of(ctx, NULL, 0);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const char *id = before.id[k % 3];
        flip_byte(file_of(ctx, id), cases[k].at);
        seen s = list_of(ctx, NULL, KILN_CACHE_LOAD);
        int found = find(&s, id);
        assert_string_equal(s.cause[found], cases[k].cause);
        assert_non_null(strstr(s.fault[found], cases[k].fault));
        flip_byte(file_of(ctx, id), cases[k].at);
        s = list_of(ctx, NULL, KILN_CACHE_LOAD);
        for (int i = 0; i < s.n; i++) assert_string_equal(s.cause[i], "");
    }
    kiln_close(ctx);
}

static void files_that_are_not_ours_are_foreign(void **state) {
    (void)state;
    kiln_ctx *ctx = fill("foreign");
    seen s = list_of(ctx, NULL, 0);
    char id[40];
    snprintf(id, sizeof id, "%s", s.id[0]);
    assert_int_equal(chmod(file_of(ctx, id), 0666), 0);
    assert_int_equal(symlink("/dev/null", file_of(ctx, "00000000000000000000000000000000")), 0);
    assert_int_equal(truncate(file_of(ctx, s.id[1]), 100), 0);
    s = list_of(ctx, NULL, 0);
    assert_int_equal(s.n, 4);
    assert_string_equal(s.cause[find(&s, id)], "foreign");
    assert_string_equal(s.cause[find(&s, "00000000000000000000000000000000")], "foreign");
    int ncorrupt = 0;
    for (int k = 0; k < s.n; k++) ncorrupt += strcmp(s.cause[k], "corrupt") == 0;
    assert_int_equal(ncorrupt, 1);
    kiln_close(ctx);
}

/* -- folders ------------------------------------------------------------------------------------------------- */

static void a_folder_that_is_missing_is_empty(void **state) {
    (void)state;
    kiln_ctx *ctx = open_disk("missing", (kiln_config){0});
    kiln_cache_report report = {1, 1, 1, 1};
    assert_int_equal(list_of(ctx, NULL, 0).n, 0);
    MUST_OK(kiln_cache_clear(ctx, &report));
    assert_true(report.nremoved == 0 && report.nleft == 0);
    MUST_OK(kiln_cache_prune(ctx, 1, NULL));
    assert_int_equal(access(in_scratch("missing"), F_OK), -1); /* looking makes no folder */
    kiln_close(ctx);
}

static void a_folder_that_others_may_write_is_refused(void **state) {
    (void)state;
    kiln_ctx *ctx = fill("open");
    seen s = {0};
    assert_int_equal(chmod(in_scratch("open"), 0777), 0);
    assert_int_equal(kiln_cache_list(ctx, NULL, 0, note, &s), KILN_E_ARG);
    assert_non_null(strstr(kiln_last_error(), "others may write it"));
    assert_int_equal(kiln_cache_clear(ctx, NULL), KILN_E_ARG);
    kiln_close(ctx);
    ctx = open_disk("open", (kiln_config){.cache_shared = 1}); /* then every entry must be signed */
    s = list_of(ctx, NULL, 0);
    assert_int_equal(s.n, 3);
    for (int k = 0; k < 3; k++) assert_string_equal(s.cause[k], "unsigned");
    kiln_close(ctx);
}

static void nothing_is_kept_in_memory(void **state) {
    (void)state;
    kiln_ctx *ctx = open_with((kiln_config){.cache = "memory"});
    char *folder;
    seen s = {0};
    assert_int_equal(kiln_cache_folder(ctx, &folder), KILN_E_UNSUP);
    assert_non_null(strstr(kiln_last_error(), "'memory'"));
    assert_int_equal(kiln_cache_list(ctx, NULL, 0, note, &s), KILN_E_UNSUP);
    assert_int_equal(kiln_cache_prune(ctx, 0, NULL), KILN_E_UNSUP);
    kiln_close(ctx);
}

/* -- removing ------------------------------------------------------------------------------------------------ */

static void prune_removes_what_was_not_used(void **state) {
    (void)state;
    kiln_ctx *ctx = fill("prune");
    kiln_cache_report report;
    seen s = list_of(ctx, NULL, 0);
    char kept[40];
    uint64_t nbytes = s.info[1].nbytes;
    snprintf(kept, sizeof kept, "%s", s.id[1]);
    struct timespec old[2] = {{1700000000, 0}, {1700000000, 0}};
    for (int k = 0; k < 3; k += 2) assert_int_equal(utimensat(AT_FDCWD, file_of(ctx, s.id[k]), old, 0), 0);
    MUST_OK(kiln_cache_prune(ctx, 0, &report)); /* the limit of the settings */
    assert_true(report.nremoved == 0 && report.nleft == 3);
    MUST_OK(kiln_cache_prune(ctx, nbytes, &report));
    assert_true(report.nremoved == 2 && report.nleft == 1 && report.left_bytes == nbytes);
    s = list_of(ctx, NULL, 0);
    assert_int_equal(s.n, 1);
    assert_string_equal(s.id[0], kept);
    kiln_close(ctx);
}

static void clear_leaves_other_files_alone(void **state) {
    (void)state;
    kiln_ctx *ctx = fill("clear");
    kiln_cache_report report;
    seen s = list_of(ctx, NULL, 0);
    assert_int_equal(truncate(file_of(ctx, s.id[0]), 0), 0);
    fclose(fopen(in_scratch("clear/build-1.log"), "w"));
    MUST_OK(kiln_cache_clear(ctx, &report));
    assert_true(report.nremoved == 3 && report.nleft == 0);
    assert_int_equal(list_of(ctx, NULL, 0).n, 0);
    assert_int_equal(access(in_scratch("clear/build-1.log"), F_OK), 0);
    kiln_close(ctx);
}

/* -- why ------------------------------------------------------------------------------------------------------ */

static char *why(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs) {
    char *text = NULL;
    MUST_OK(kiln_cache_why(ctx, op_of(ctx, name), args, nargs, &text));
    return text;
}

static void assert_says(char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("no \"%s\" in:\n%s", part, text);
    kiln_text_free(text);
}

static void why_names_the_entry_or_the_difference(void **state) {
    (void)state;
    kiln_ctx *ctx = fill("why");
    kiln_tensor *x = F32(SIZES(3), 0, 1, 2), *d = F64(SIZES(3), 1, 2, 3);
    kiln_close(ctx);
    ctx = open_disk("why", (kiln_config){0});
    assert_says(why(ctx, "neg", ARGS(TEN(x))), "verdict: a call uses this entry\n");
    assert_says(why(ctx, "neg", ARGS(TEN(x))), "store: disk\n");
    assert_says(why(ctx, "neg", ARGS(TEN(d))),
                "differs in IR line 3: buf b0 out f32 (a0) contig, here buf b0 out f64");
    assert_says(why(ctx, "exp", ARGS(TEN(d))), "nearest: none: no entry on disk is of aten::exp\n");
    seen s = list_of(ctx, NULL, 0);
    for (int k = 0; k < s.n; k++)
        flip_byte(file_of(ctx, s.id[k]), -1); /* of the source, which no call reads */
    assert_says(why(ctx, "neg", ARGS(TEN(x))), "verdict: a call uses this entry\n");
    for (int k = 0; k < s.n; k++) flip_byte(file_of(ctx, s.id[k]), 400);
    assert_says(why(ctx, "neg", ARGS(TEN(x))), "its checksum does not fit its bytes");
    for (int k = 0; k < s.n; k++) assert_int_equal(truncate(file_of(ctx, s.id[k]), 100), 0);
    assert_says(why(ctx, "neg", ARGS(TEN(x))), "an entry has 100 bytes");
    assert_int_equal(list_of(ctx, NULL, 0).n, 3); /* asking removes nothing */
    kiln_close(ctx);
    drop_args(ARGS(TEN(x), TEN(d)));
}

static void why_refuses_what_has_no_kernel(void **state) {
    (void)state;
    kiln_ctx *ctx = open_disk("none", (kiln_config){0});
    kiln_tensor *x = F32(SIZES(2, 3), 0, 1, 2, 3, 4, 5);
    const kiln_value size = kiln_v_int(3);
    char *text;
    assert_int_equal(
        kiln_cache_why(ctx, op_of(ctx, "layer_norm"), ARGS(TEN(x), kiln_v_list(&size, 1)), &text),
        KILN_E_UNSUP);
    kiln_tensor_release(x);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_say_what_they_are),
        cmocka_unit_test(a_status_ends_the_list),
        cmocka_unit_test(a_list_changes_nothing),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(files_that_are_not_ours_are_foreign),
        cmocka_unit_test(a_folder_that_is_missing_is_empty),
        cmocka_unit_test(a_folder_that_others_may_write_is_refused),
        cmocka_unit_test(nothing_is_kept_in_memory),
        cmocka_unit_test(prune_removes_what_was_not_used),
        cmocka_unit_test(clear_leaves_other_files_alone),
        cmocka_unit_test(why_names_the_entry_or_the_difference),
        cmocka_unit_test(why_refuses_what_has_no_kernel),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
