/* test_store_damage.c - entries on disk that are damaged, of another machine or no files at all: each is refused, counted and rebuilt.
 *
 * No kernel is run that failed a check. */
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <utime.h>

#include "one_entry.h"
#include "target/cpu/codemem.h"
#include "whole.h"

/* -- bytes ------------------------------------------------------------------------------------------------- */

static void every_flipped_byte_is_noticed(void **state) {
    (void)state;
    kiln_stored says;
    size_t n = entry_size(), step = whole_run() ? 1 : 331;
    uint8_t *copy = malloc(n); /* exactly as long, so that sanitizers see any overrun */
    assert_non_null(copy);
    assert_true(n > KILN_STORED_HEAD && n < good.n);
    memcpy(copy, good.p, n);
    assert_int_equal(kiln_stored_read(copy, n, &digest, NULL, &says), KILN_STORED_FINE);
    for (size_t k = 0; k < n; k++) {
        for (unsigned bits = 1; bits < 256; bits = bits == 1 ? 0x80 : bits == 0x80 ? 0xff : 256) {
            copy[k] ^= (uint8_t)bits;
            kiln_stored_fault fault = kiln_stored_read(copy, n, &digest, NULL, &says);
            bool of_format = k >= 8 && k < 16; /* format, and the size of the head */
            if (fault != (of_format ? KILN_STORED_STALE : KILN_STORED_CORRUPT))
                fail_msg("byte %zu: %d", k, (int)fault);
            copy[k] ^= (uint8_t)bits;
        }
    }
    free(copy);
    for (size_t k = 0; k < n; k += k < 120 ? 7 : step) {
        put_back();
        good.p[k] ^= 0x10;
        write_whole(path, good.p, good.n);
        good.p[k] ^= 0x10;
        bool of_format = k >= 8 && k < 16;
        ASK_FROZEN(false, .corrupt = !of_format, .stale = of_format);
    }
    put_back();
    good.p[n / 2] ^= 1;
    write_whole(path, good.p, good.n);
    good.p[n / 2] ^= 1;
    REBUILD(.corrupt = 1);
}

static void every_truncated_entry_is_noticed(void **state) {
    (void)state;
    kiln_stored says;
    size_t n = entry_size(), step = whole_run() ? 1 : 449;
    for (size_t k = 0; k < n; k++) {
        uint8_t *copy = malloc(k ? k : 1);
        assert_non_null(copy);
        memcpy(copy, good.p, k);
        assert_int_equal(kiln_stored_read(copy, k, &digest, NULL, &says), KILN_STORED_CORRUPT);
        free(copy);
    }
    for (size_t k = 0; k < n; k += step) {
        put_back();
        assert_int_equal(truncate(path, (off_t)k), 0);
        ASK_FROZEN(false, .corrupt = 1);
    }
    put_back();
    assert_int_equal(truncate(path, (off_t)n - 1), 0);
    REBUILD(.corrupt = 1);
}

/* The source behind an entry is for people alone: without it or with a damaged one the kernel is good. */
static void a_damaged_source_costs_nothing(void **state) {
    (void)state;
    size_t n = entry_size(), nsource;
    assert_non_null(kiln_stored_source_in(good.p + n, good.n - n, &nsource));
    for (size_t k = n; k < good.n; k += k < n + 24 ? 1 : 997) {
        good.p[k] ^= 4;
        assert_null(kiln_stored_source_in(good.p + n, good.n - n, &nsource));
        put_back();
        good.p[k] ^= 4;
        ASK_FROZEN(true, .hits = 1);
        assert_null(kiln_stored_source_in(good.p + n, good.n - n - 1, &nsource));
    }
    put_back();
    assert_int_equal(truncate(path, (off_t)n), 0);
    ASK_FROZEN(true, .hits = 1);
    assert_int_equal(truncate(path, (off_t)good.n + 5000000), 0); /* longer than any entry with its source */
    ASK_FROZEN(true, .hits = 1);
    assert_int_equal(truncate(path, (off_t)KILN_STORED_MAX + KILN_STORED_SOURCE_MAX + 1), 0);
    ASK_FROZEN(false, .corrupt = 1);
}

static void two_entries_may_be_swapped(void **state) {
    (void)state;
    char other[PATH_ROOM];
    fill_cache(2);
    kiln_digest d = digest_of_row(1);
    entry_path(&d, other);
    file_bytes a = read_whole(path), b = read_whole(other);
    write_whole(path, b.p, b.n);
    write_whole(other, a.p, a.n);
    kiln_ctx *ctx = open_disk(KILN_MODE_FROZEN, 2);
    for (int k = 0; k < 2; k++) call_rk(ctx, k, "interp");
    check_counts(ctx, &(want){.corrupt = 2}, __LINE__);
    kiln_close(ctx);
    assert_int_equal(count_kernels(), 0);
    free(a.p);
    free(b.p);
}

/* -- entries that are whole, and wrong ------------------------------------------------------------------------ */

/* Writes the entry anew after `spoil`, with a right checksum. */
static void write_spoiled(void (*spoil)(kiln_stored *)) {
    kiln_stored s;
    void *p = NULL;
    size_t n;
    put_back();
    assert_int_equal(kiln_stored_read(good.p, entry_size(), NULL, NULL, &s), KILN_STORED_FINE);
    assert_int_equal(s.tested, 1);
    spoil(&s);
    MUST_OK(kiln_stored_write(&s, NULL, &p, &n));
    write_whole(path, p, n);
    kiln_free(p);
}

static void other_stamp(kiln_stored *s) { s->stamp = "0123456789abcdef"; }
static void other_target(kiln_stored *s) { s->target = "gpu"; }
static void other_level(kiln_stored *s) { s->level++; }
static void no_level(kiln_stored *s) { s->level = UINT32_MAX; }
static void other_digest(kiln_stored *s) { s->digest.lo ^= 1; }
static void no_image(kiln_stored *s) { s->nimage = 0; }
static void short_image(kiln_stored *s) { s->nimage--; }
static void not_tested(kiln_stored *s) { s->tested = 0; }

static void wrong_image_head(kiln_stored *s) {
    static uint8_t copy[1 << 16];
    assert_true(s->nimage < sizeof copy);
    memcpy(copy, s->image, s->nimage);
    copy[6] ^= 0x40; /* the machine */
    s->image = copy;
}

/* The image of r1, which gives other results, and which nobody has compared with the interpreter. */
static void lying_image(kiln_stored *s) {
    static file_bytes other;
    char where[PATH_ROOM];
    kiln_stored b;
    fill_cache(2);
    kiln_digest d = digest_of_row(1);
    entry_path(&d, where);
    free(other.p);
    other = read_whole(where);
    assert_int_equal(kiln_stored_read(other.p, kiln_stored_nbytes(other.p, other.n), &d, NULL, &b),
                     KILN_STORED_FINE);
    s->image = b.image;
    s->nimage = b.nimage;
    s->tested = 0;
}

static void whole_entries_may_be_wrong(void **state) {
    (void)state;
    write_spoiled(other_stamp);
    ASK_FROZEN(false, .foreign = 1);
    write_spoiled(other_target);
    ASK_FROZEN(false, .foreign = 1);
    write_spoiled(other_level);
    ASK_FROZEN(false, .foreign = 1);
    write_spoiled(no_level);
    ASK_FROZEN(false, .foreign = 1);
    write_spoiled(other_digest);
    ASK_FROZEN(false, .corrupt = 1);
    write_spoiled(no_image);
    ASK_FROZEN(false, .load = 1);
    write_spoiled(short_image);
    ASK_FROZEN(false, .load = 1);
    write_spoiled(wrong_image_head);
    ASK_FROZEN(false, .load = 1);
    write_spoiled(wrong_image_head);
    REBUILD(.load = 1);
    write_spoiled(lying_image);
    REBUILD(.selftest = 1);
    write_spoiled(not_tested);
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 1); /* there is time to compare it here */
    call_rk(ctx, 0, "compiled");
    check_counts(ctx, &(want){.hits = 1}, __LINE__);
    kiln_close(ctx);
}

/* What the machine lacks says nothing of the entry, which stays for others. */
static void a_machine_without_memory_for_code_keeps_entries(void **state) {
    (void)state;
    put_back();
    kiln_ctx *ctx = open_disk(KILN_MODE_FROZEN, 1);
    kiln_codemem_allow(0);
    call_rk(ctx, 0, "interp");
    kiln_codemem_allow(KILN_CODEMEM_ANY);
    kiln_close(ctx);
    ASK_FROZEN(true, .hits = 1);
}

/* -- what lies in an entry's place ------------------------------------------------------------------------------ */

static void lay_symlink(void) {
    write_whole(in_scratch("elsewhere"), good.p, good.n); /* even to a good entry */
    assert_int_equal(symlink(in_scratch("elsewhere"), path), 0);
}
static void lay_dangling(void) { assert_int_equal(symlink("/nonexistent/entry", path), 0); }
static void lay_fifo(void) { assert_int_equal(mkfifo(path, 0600), 0); }
static void lay_folder(void) { assert_int_equal(mkdir(path, 0700), 0); }
static void lay_null(void) { assert_int_equal(mknod(path, S_IFCHR | 0600, makedev(1, 3)), 0); }
static void lay_zeros(void) { assert_int_equal(mknod(path, S_IFCHR | 0600, makedev(1, 5)), 0); }
static void lay_open_to_all(void) {
    write_whole(path, good.p, good.n);
    assert_int_equal(chmod(path, 0602), 0);
}
static void lay_open_to_group(void) {
    write_whole(path, good.p, good.n);
    assert_int_equal(chmod(path, 0620), 0);
}
static void lay_strangers(void) {
    write_whole(path, good.p, good.n);
    assert_int_equal(chown(path, STRANGER, (gid_t)-1), 0);
}
static void lay_socket(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && strlen(path) < sizeof at.sun_path);
    strcpy(at.sun_path, path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    close(fd);
}

static void what_is_no_file_of_ours_is_refused(void **state) {
    (void)state;
    static const struct {
        void (*lay)(void);
        bool needs_root;
    } cases[] = {{lay_symlink, false},     {lay_dangling, false},      {lay_fifo, false},
                 {lay_folder, false},      {lay_null, true},           {lay_zeros, true},
                 {lay_open_to_all, false}, {lay_open_to_group, false}, {lay_strangers, true},
                 {lay_socket, false}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        if (cases[k].needs_root && !is_root()) continue;
        int fds = count_fds();
        make_cache();
        cases[k].lay();
        ASK_FROZEN(false, .foreign = 1);
        make_cache();
        cases[k].lay();
        if (k % 3 == 0 || whole_run()) REBUILD(.foreign = 1);
        assert_int_equal(count_fds(), fds);
    }
    file_bytes other = read_whole(in_scratch("elsewhere")); /* the file behind the link is as it was */
    assert_int_equal(other.n, good.n);
    free(other.p);
}

/* A folder with something in it cannot be removed, nor replaced: the kernel serves this process alone. */
static void a_full_folder_in_the_place_costs_a_build(void **state) {
    (void)state;
    char inner[PATH_ROOM + 10];
    make_cache();
    lay_folder();
    snprintf(inner, sizeof inner, "%s/inner", path);
    write_whole(inner, "x", 1);
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 1);
    call_rk(ctx, 0, "compiled");
    kiln_stats s = stats_of(ctx);
    assert_true(s.foreign_entries >= 1);
    assert_int_equal(s.stored, 0);
    assert_int_equal(s.compiles, 1);
    assert_int_equal(s.store_errors, 1);
    kiln_close(ctx);
    assert_int_equal(count_temps(), 0);
}

/* The lock file only keeps processes from building the same kernel at once. */
static void a_strange_lock_file_costs_nothing(void **state) {
    (void)state;
    char lock[PATH_ROOM];
    snprintf(lock, sizeof lock, "%s/.lock", kernels_path());
    for (int k = 0; k < 4; k++) {
        make_cache();
        if (k == 0) assert_int_equal(mkfifo(lock, 0600), 0);
        if (k == 1) assert_int_equal(mkdir(lock, 0700), 0);
        if (k == 2) assert_int_equal(symlink("/nonexistent/lock", lock), 0);
        if (k == 3) write_whole(lock, "text", 4);
        kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 1);
        call_rk(ctx, 0, "compiled");
        assert_int_equal(stats_of(ctx).stored, 1);
        assert_int_equal(stats_of(ctx).builds_elsewhere, 0);
        kiln_close(ctx);
    }
}

static void set_time(const char *of, time_t when) {
    const struct utimbuf times = {when, when};
    assert_int_equal(utime(of, &times), 0);
}

/* What cannot be removed is still counted, and the rest goes in its place. */
static void pruning_counts_what_is_left(void **state) {
    (void)state;
    char inner[PATH_ROOM + 10];
    kiln_prune_report report;
    make_cache();
    lay_folder();
    snprintf(inner, sizeof inner, "%s/inner", path);
    write_whole(inner, "x", 1);
    set_time(path, 1000); /* the first to go, if it could */
    for (uint64_t k = 1; k <= 3; k++) {
        char other[PATH_ROOM];
        kiln_digest d = {k, 7};
        entry_path(&d, other);
        write_whole(other, good.p, good.n);
    }
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    int fd = open(kernels_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST_OK(kiln_folder_prune(fd, 10, (uint64_t)info.st_size + good.n, &report));
    close(fd);
    assert_int_equal(report.nremoved, 2);
    assert_int_equal(report.removed_bytes, 2 * good.n);
    assert_int_equal(report.nleft, 2);
    assert_int_equal(report.left_bytes, (uint64_t)info.st_size + good.n);
    assert_int_equal(count_kernels(), 2);
}

/* -- levels -------------------------------------------------------------------------------------------------------- */

static kiln_stats call_at_level(kiln_mode mode, const char *isa, const char *tier) {
    kiln_ctx *ctx = open_disk_with((kiln_config){.mode = mode, .isa = isa}, 1);
    call_rk(ctx, 0, tier);
    kiln_stats s = stats_of(ctx);
    kiln_close(ctx);
    return s;
}

/* Kernels of a lower level serve a better machine.  Those of a higher level are not asked for, and stay. */
static void levels_are_kept_apart(void **state) {
    (void)state;
    const char *lowest = kiln_isa_name(KILN_ISA_GENERIC);
    if (kiln_isa_detect() == KILN_ISA_GENERIC) skip();
    put_back();
    kiln_stats s = call_at_level(KILN_MODE_FROZEN, lowest, "interp");
    assert_int_equal(s.disk_hits + s.foreign_entries, 0);
    assert_int_equal(count_kernels(), 1);
    s = call_at_level(KILN_MODE_SYNC, lowest, "compiled");
    assert_int_equal(s.stored, 1);
    assert_int_equal(count_kernels(), 2);
    assert_int_equal(unlink(path), 0);
    s = call_at_level(KILN_MODE_FROZEN, NULL, "compiled");
    assert_int_equal(s.disk_hits, 1);
    assert_int_equal(s.foreign_entries, 0);
}

/* -- no folder, and clocks -------------------------------------------------------------------------------------- */

static void without_a_folder_kernels_stay_in_memory(void **state) {
    (void)state;
    unsetenv("HOME");
    setenv("KILN_CACHE", "disk", 1);
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    load_rows(ctx, 1);
    call_rk(ctx, 0, "compiled");
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.stored + s.disk_hits + s.store_errors, 0);
    for (int k = 0; k < ctx->stores.n; k++) assert_string_not_equal(ctx->stores.at[k]->name, "disk");
    kiln_close(ctx);
    setenv("HOME", scratch, 1);
    setenv("KILN_CACHE", "memory", 1);
}

/* Whatever the clock of the file system says, an entry is good, and its date is put right when it is used. */
static void clocks_may_jump(void **state) {
    (void)state;
    const time_t dates[] = {0, 1, -100000, 4102444800, 7258118400}; /* 1970, before it, 2100, 2200 */
    for (size_t k = 0; k < sizeof dates / sizeof *dates; k++) {
        struct stat info;
        put_back();
        set_time(path, dates[k]);
        ASK_FROZEN(true, .hits = 1);
        assert_int_equal(stat(path, &info), 0);
        assert_in_range(time(NULL) - info.st_mtime + 1000, 0, 2000);
    }
}

/* Temporary files of processes that died are removed, those with a date in the future as well. */
static void old_temporary_files_are_removed(void **state) {
    (void)state;
    char name[PATH_ROOM + 20];
    kiln_prune_report report;
    const time_t now = time(NULL), dates[] = {0, now - 7200, now + 7200, 4102444800, now};
    put_back();
    for (size_t k = 0; k < sizeof dates / sizeof *dates; k++) {
        snprintf(name, sizeof name, "%s/.tmp-%zu", kernels_path(), k);
        write_whole(name, "half", 4);
        set_time(name, dates[k]);
    }
    int fd = open(kernels_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST_OK(kiln_folder_prune(fd, UINT64_MAX, UINT64_MAX, &report));
    close(fd);
    assert_int_equal(report.nleft, 1);
    assert_int_equal(report.left_bytes, good.n);
    assert_int_equal(count_temps(), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flipped_byte_is_noticed),
        cmocka_unit_test(every_truncated_entry_is_noticed),
        cmocka_unit_test(a_damaged_source_costs_nothing),
        cmocka_unit_test(two_entries_may_be_swapped),
        cmocka_unit_test(whole_entries_may_be_wrong),
        cmocka_unit_test(a_machine_without_memory_for_code_keeps_entries),
        cmocka_unit_test(what_is_no_file_of_ours_is_refused),
        cmocka_unit_test(a_full_folder_in_the_place_costs_a_build),
        cmocka_unit_test(pruning_counts_what_is_left),
        cmocka_unit_test(levels_are_kept_apart),
        cmocka_unit_test(a_strange_lock_file_costs_nothing),
        cmocka_unit_test(without_a_folder_kernels_stay_in_memory),
        cmocka_unit_test(clocks_may_jump),
        cmocka_unit_test(old_temporary_files_are_removed),
    };
    return cmocka_run_group_tests(tests, make_one_entry, drop_one_entry);
}
