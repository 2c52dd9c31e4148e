/* test_store_trust.c - whose kernels run: folders that others may write or own are refused, unless every entry is signed by the user's key,
 * and keys that cannot be used make no kernel trusted. */
#include "one_entry.h"
#include "whole.h"

/* -- folders ------------------------------------------------------------------------------------------------- */

static void assert_doctor_says(kiln_ctx *ctx, const char *part) {
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_stores_doctor(&ctx->stores, &text);
    kiln_sb_putc(&text, '\0');
    if (text.failed || !strstr(text.p, part)) fail_msg("the doctor does not say '%s': %s", part, text.p);
    kiln_sb_fini(&text);
}

/* The folder is neither read nor written. */
static void check_folder_is_left_alone(const char *why) {
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 2);
    call_rk(ctx, 0, "compiled");
    call_rk(ctx, 1, "compiled");
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.disk_hits + s.stored, 0);
    assert_int_equal(s.compiles, 2);
    assert_int_equal(s.store_errors, 1); /* said once, then not tried for a minute */
    assert_doctor_says(ctx, why);
    kiln_close(ctx);
    assert_int_equal(count_kernels(), 1);
}

static void folders_of_others_are_refused(void **state) {
    (void)state;
    static const char write[] = "others may write it", owner[] = "belongs to another user";
    const char *folder[] = {cache_path(), kernels_path()};
    for (int k = 0; k < 2; k++) {
        put_back();
        assert_int_equal(chmod(folder[k], k ? 0720 : 0702), 0);
        check_folder_is_left_alone(write);
        if (!is_root()) continue;
        put_back();
        assert_int_equal(chown(folder[k], STRANGER, (gid_t)-1), 0);
        check_folder_is_left_alone(owner);
    }
    put_back();
    assert_int_equal(rename(kernels_path(), in_scratch("moved")), 0);
    assert_int_equal(symlink(in_scratch("moved"), kernels_path()), 0);
    check_folder_is_left_alone("not used");
    remove_tree(in_scratch("moved"));
}

static void what_is_no_folder_is_refused(void **state) {
    (void)state;
    drop_cache();
    write_whole(cache_path(), "", 0);
    for (int k = 0; k < 2; k++) {
        kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 1);
        call_rk(ctx, 0, "compiled");
        assert_int_equal(stats_of(ctx).store_errors, 1);
        assert_int_equal(stats_of(ctx).stored, 0);
        kiln_close(ctx);
        (void)unlink(cache_path());
        make_cache();
        (void)rmdir(kernels_path());
        write_whole(kernels_path(), "", 0);
    }
}

/* -- keys ---------------------------------------------------------------------------------------------------- */

static const char *write_key(const char *name, const char *text, mode_t mode) {
    const char *at = in_scratch(name);
    write_whole(at, text, strlen(text));
    assert_int_equal(chmod(at, mode), 0);
    return at;
}

static kiln_ctx *open_shared(kiln_mode mode, const char *key) {
    return open_disk_with((kiln_config){.mode = mode, .cache_shared = 1, .key_file = key}, 1);
}

/* One call of r0 in a shared folder; returns the counters. */
static kiln_stats call_shared(kiln_mode mode, const char *key, const char *tier) {
    kiln_ctx *ctx = open_shared(mode, key);
    call_rk(ctx, 0, tier);
    kiln_stats s = stats_of(ctx);
    kiln_close(ctx);
    return s;
}

static void open_folder_to_all(void) {
    put_back();
    assert_int_equal(chmod(cache_path(), 0777) | chmod(kernels_path(), 0777), 0);
    if (is_root()) assert_int_equal(chown(kernels_path(), STRANGER, (gid_t)-1), 0);
}

static void shared_folders_need_signatures(void **state) {
    (void)state;
    char ours[PATH_ROOM], theirs[PATH_ROOM];
    snprintf(ours, sizeof ours, "%s", write_key("ours", "0123456789abcdef", 0600));
    snprintf(theirs, sizeof theirs, "%s", write_key("theirs", "0123456789abcdeg", 0400));
    open_folder_to_all();
    kiln_stats s = call_shared(KILN_MODE_FROZEN, ours, "interp"); /* the entry is not signed, and stays */
    assert_int_equal(s.unsigned_entries, 1);
    assert_int_equal(count_kernels(), 1);
    s = call_shared(KILN_MODE_SYNC, ours, "compiled");
    assert_int_equal(s.stored, 1);
    assert_int_equal(s.disk_hits, 0);
    if (is_root()) assert_int_equal(chown(path, STRANGER, (gid_t)-1), 0); /* whoever owns it */
    s = call_shared(KILN_MODE_FROZEN, ours, "compiled");
    assert_int_equal(s.disk_hits, 1);
    s = call_shared(KILN_MODE_FROZEN, theirs, "interp");
    assert_int_equal(s.unsigned_entries, 1);
    s = call_shared(KILN_MODE_SYNC, theirs, "compiled");
    assert_int_equal(s.disk_hits, 0);
    assert_true(s.unsigned_entries >= 1); /* The stores are asked again before a build. */
    s = call_shared(KILN_MODE_FROZEN, ours, "interp");
    assert_int_equal(s.unsigned_entries, 1);
}

/* Every flipped byte of a signed entry is noticed, with a checksum that was made to fit. */
static void signatures_cover_every_byte(void **state) {
    (void)state;
    kiln_key_file *key = NULL;
    kiln_stored s, says;
    void *p = NULL;
    size_t n, step = whole_run() ? 1 : 3;
    MUST_OK(kiln_key_open(write_key("ours", "0123456789abcdef", 0600), &key));
    assert_int_equal(kiln_stored_read(good.p, entry_size(), NULL, NULL, &s), KILN_STORED_FINE);
    MUST_OK(kiln_stored_write(&s, key, &p, &n));
    uint8_t *bytes = p;
    for (size_t k = 32; k < n; k += step) {
        bytes[k] ^= 1;
        kiln_digest check = kiln_hash128(
            bytes + 32, n - 32); /* what it is of: the head after the checksum, and all behind */
        memcpy(bytes + 16, &check, sizeof check);
        kiln_stored_fault fault = kiln_stored_read(bytes, n, NULL, key, &says);
        if (fault == KILN_STORED_FINE) fail_msg("byte %zu", k);
        bytes[k] ^= 1;
    }
    kiln_digest check = kiln_hash128(bytes + 32, n - 32);
    memcpy(bytes + 16, &check, sizeof check);
    assert_int_equal(kiln_stored_read(bytes, n, NULL, key, &says), KILN_STORED_FINE);
    kiln_key_close(key);
    kiln_free(p);
}

/* Without a key nothing in a shared folder is read or written: nobody could tell who wrote it. */
static void check_key_is_refused(const char *key, const char *why) {
    open_folder_to_all();
    kiln_ctx *ctx = open_shared(KILN_MODE_SYNC, key);
    call_rk(ctx, 0, "compiled");
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.disk_hits + s.stored, 0);
    assert_int_equal(s.compiles, 1);
    assert_int_equal(s.store_errors > 0, key != NULL); /* that no key is given is a setting */
    assert_doctor_says(ctx, why);
    kiln_close(ctx);
    assert_int_equal(count_kernels(), 1);
    file_bytes now = read_whole(path);
    assert_int_equal(now.n, good.n);
    assert_memory_equal(now.p, good.p, now.n);
    free(now.p);
}

static void keys_that_cannot_be_used(void **state) {
    (void)state;
    check_key_is_refused(NULL, "KILN_KEY_FILE");
    check_key_is_refused("/nonexistent/key", "No such file");
    check_key_is_refused(write_key("key", "0123456789abcdef", 0644), "others must have no access");
    check_key_is_refused(write_key("key", "0123456789abcde", 0600), "15 bytes");
    check_key_is_refused(scratch, "not a plain file");
    (void)unlink(in_scratch("key"));
    assert_int_equal(mkfifo(in_scratch("key"), 0600), 0);
    check_key_is_refused(in_scratch("key"), "not a plain file");
    if (!is_root()) return;
    assert_int_equal(chown(write_key("key", "0123456789abcdef", 0600), STRANGER, (gid_t)-1), 0);
    check_key_is_refused(in_scratch("key"), "belongs to another user");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_of_others_are_refused),  cmocka_unit_test(what_is_no_folder_is_refused),
        cmocka_unit_test(shared_folders_need_signatures), cmocka_unit_test(signatures_cover_every_byte),
        cmocka_unit_test(keys_that_cannot_be_used),
    };
    return cmocka_run_group_tests(tests, make_one_entry, drop_one_entry);
}
