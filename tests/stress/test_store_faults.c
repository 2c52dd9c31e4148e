/* test_store_faults.c - the store on disk while the system fails: each system call of a read and of a write fails in turn, memory runs out at
 * each allocation, a writer is killed at each step, the folder goes away, and the disk is full.
 *
 * The functions of libc that the store calls are defined here, so that the n-th call can fail or kill the process. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <utime.h>

#include "store_cases.h"
#include "whole.h"

/* -- system calls that fail ---------------------------------------------------------------------------------- */

enum {
    KILL = -1,  /* in place of an error: the process is killed */
    SHORT = -2, /* in place of an error: half of the bytes are read or written */
    FDS_MAX = 1024
};

static atomic_bool armed, for_ever; /* for_ever: all calls after the n-th fail, too */
static atomic_int fail_at, error_to_come, calls_made;
static atomic_int stale_fd = -1; /* the descriptor of a folder that another machine has removed; -1: none */
static atomic_bool is_ours[FDS_MAX]; /* descriptors of the cache folder and of files in it */

/* n: which call fails; 0: none. */
static void arm(int n, int error, bool all_later) {
    atomic_store(&calls_made, 0);
    atomic_store(&fail_at, n);
    atomic_store(&error_to_come, error);
    atomic_store(&for_ever, all_later);
    atomic_store(&armed, true);
}

/* Returns how many calls there were. */
static int disarm(void) {
    atomic_store(&armed, false);
    return atomic_load(&calls_made);
}

/* Counts a call of the store.  Not 0: it fails with this error. */
static int error_now(void) {
    int n = atomic_fetch_add(&calls_made, 1) + 1, at = atomic_load(&fail_at),
        error = atomic_load(&error_to_come);
    if (at == 0 || n < at || (n > at && !atomic_load(&for_ever))) return 0;
    if (error == KILL) (void)kill(getpid(), SIGKILL);
    errno = error;
    return error;
}

static bool is_kept(int fd) { return fd >= 0 && fd < FDS_MAX && atomic_load(&is_ours[fd]); }

static bool is_stale(int fd) {
    if (fd < 0 || fd != atomic_load(&stale_fd)) return false;
    errno = ESTALE;
    return true;
}

/* Whether a call that names a file counts, and must fail. */
static bool path_fails(int at, const char *path) {
    if (is_stale(at)) return true;
    return atomic_load(&armed) && (is_kept(at) || strstr(path, "/cache")) && error_now() > 0;
}

static bool fd_fails(int fd) {
    return is_stale(fd) || (atomic_load(&armed) && is_kept(fd) && error_now() > 0);
}

/* Another file takes the number of a descriptor. */
int dup3(int from, int to, int flags) {
    int rc = (int)syscall(SYS_dup3, from, to, flags);
    if (rc == atomic_load(&stale_fd)) atomic_store(&stale_fd, -1);
    return rc;
}

static int keep_fd(int at, const char *path, int fd) {
    if (fd >= 0 && fd < FDS_MAX && (is_kept(at) || strstr(path, "/cache"))) atomic_store(&is_ours[fd], true);
    return fd;
}

static int open_at(int at, const char *path, int flags, mode_t mode) {
    if (path_fails(at, path)) return -1;
    return keep_fd(at, path, (int)syscall(SYS_openat, at, path, flags, mode));
}

int openat(int at, const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return open_at(at, path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return open_at(AT_FDCWD, path, flags, mode);
}

int close(int fd) {
    bool failed = fd_fails(fd);
    if (fd >= 0 && fd < FDS_MAX) atomic_store(&is_ours[fd], false);
    int error = errno, rc = (int)syscall(SYS_close, fd); /* the descriptor is free whatever close returns */
    if (!failed) return rc;
    errno = error;
    return -1;
}

/* How many bytes a call may move; -1: it fails. */
static ssize_t room_for(int fd, size_t n) {
    if (!atomic_load(&armed) || !is_kept(fd)) return (ssize_t)n;
    int error = error_now();
    return error == SHORT && n > 1 ? (ssize_t)(n / 2) : error > 0 ? -1 : (ssize_t)n;
}

ssize_t pread(int fd, void *p, size_t n, off_t at) {
    ssize_t room = room_for(fd, n);
    return room < 0 ? -1 : (ssize_t)syscall(SYS_pread64, fd, p, (size_t)room, at);
}

ssize_t write(int fd, const void *p, size_t n) {
    ssize_t room = room_for(fd, n);
    return room < 0 ? -1 : (ssize_t)syscall(SYS_write, fd, p, (size_t)room);
}

int fstat(int fd, struct stat *info) { return fd_fails(fd) ? -1 : (int)syscall(SYS_fstat, fd, info); }

int fstatat(int at, const char *restrict path, struct stat *restrict info, int flags) {
    return path_fails(at, path) ? -1 : (int)syscall(SYS_newfstatat, at, path, info, flags);
}

int mkdir(const char *path, mode_t mode) {
    return path_fails(AT_FDCWD, path) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int mkdirat(int at, const char *path, mode_t mode) {
    return path_fails(at, path) ? -1 : (int)syscall(SYS_mkdirat, at, path, mode);
}

int renameat(int from_at, const char *from, int to_at, const char *to) {
    return path_fails(from_at, from) ? -1 : (int)syscall(SYS_renameat2, from_at, from, to_at, to, 0);
}

int unlinkat(int at, const char *path, int flags) {
    return path_fails(at, path) ? -1 : (int)syscall(SYS_unlinkat, at, path, flags);
}

int futimens(int fd, const struct timespec times[2]) {
    return fd_fails(fd) ? -1 : (int)syscall(SYS_utimensat, fd, NULL, times, 0);
}

/* -- the store of a context ----------------------------------------------------------------------------------- */

static const kiln_digest some = {0x1234, 0x5678};

static kiln_store *disk_of(kiln_ctx *ctx) {
    for (int k = 0; k < ctx->stores.n; k++)
        if (strcmp(ctx->stores.at[k]->name, "disk") == 0) return ctx->stores.at[k];
    fail();
    return NULL;
}

static kiln_ctx *open_store(void) { return open_disk(KILN_MODE_INTERP, 0); }

/* An entry that does not fit into the first read. */
enum { IMAGE_BYTES = 40000 };

static kiln_status put_some(kiln_ctx *ctx) {
    file_bytes b = made_entry(&some, IMAGE_BYTES);
    kiln_blob blob = {.entry = b.p, .nentry = b.n};
    MUST_OK(kiln_stored_source("some source", 11, &blob.source, &blob.nsource));
    kiln_status st = disk_of(ctx)->put(disk_of(ctx), &some, &blob);
    kiln_blob_fini(&blob);
    return st;
}

/* What is found must be whole. */
static kiln_status get_some(kiln_ctx *ctx, bool *found) {
    kiln_blob b = {0};
    kiln_status st = kiln_stores_get(&ctx->stores, disk_of(ctx), &some, &b, found);
    if (*found) assert_int_equal(b.says.nimage, IMAGE_BYTES);
    if (*found && ((const char *)b.says.image)[IMAGE_BYTES - 1] != (char)(some.lo & 0x7f)) fail();
    kiln_blob_fini(&b);
    return st;
}

/* Whether a context that was not there before finds the entry. */
static bool is_there(void) {
    bool found;
    kiln_ctx *ctx = open_store();
    MUST_OK(get_some(ctx, &found));
    assert_int_equal(stats_of(ctx).corrupt_entries, 0);
    kiln_close(ctx);
    return found;
}

static void make_entry_there(void) {
    kiln_ctx *ctx = open_store();
    drop_cache();
    MUST_OK(put_some(ctx));
    kiln_close(ctx);
}

/* Temporary files of a process that died are removed by the first write of a later one. */
static void assert_temps_are_pruned(void) {
    char name[2 * PATH_ROOM];
    const struct utimbuf old = {1000, 1000};
    DIR *d = opendir(kernels_path());
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(name, sizeof name, "%s/%s", kernels_path(), e->d_name);
        if (strncmp(e->d_name, ".tmp-", 5) == 0) assert_int_equal(utime(name, &old), 0);
    }
    if (d) closedir(d);
    kiln_ctx *ctx = open_store();
    MUST_OK(put_some(ctx));
    kiln_close(ctx);
    assert_int_equal(count_temps(), 0);
}

static const int errors[] = {EIO,   EACCES, ENOSPC, EROFS,  EMFILE, ENOMEM,
                             EINTR, SHORT,  ENOENT, ESTALE, EDQUOT};
enum { NERRORS = sizeof errors / sizeof *errors };

/* -- reads ------------------------------------------------------------------------------------------------------ */

/* Returns whether the read made n calls or more. */
static bool read_fails_at(int n, int error, bool all_later) {
    bool found = false;
    int fds = count_fds();
    kiln_ctx *ctx = open_store();
    arm(n, error, all_later);
    kiln_status st = get_some(ctx, &found);
    bool reached = disarm() >= n;
    if (st != KILN_OK) assert_false(found);
    if (st != KILN_OK) assert_true(stats_of(ctx).store_errors > 0);
    assert_int_equal(stats_of(ctx).corrupt_entries, 0);
    if (!reached) assert_true(found);
    if (error == SHORT) assert_true(found);
    kiln_close(ctx);
    assert_int_equal(count_fds(), fds);
    if (!is_there()) fail_msg("call %d, error %d: the entry is gone", n, error);
    return reached;
}

static void each_call_of_a_read_may_fail(void **state) {
    (void)state;
    make_entry_there();
    for (int k = 0; k < NERRORS; k++) {
        int n = 1;
        while (read_fails_at(n, errors[k], false)) n++;
        assert_in_range(n, 6, 40);
        for (n = 1; errors[k] > 0 && errors[k] != EINTR && read_fails_at(n, errors[k], true);) n++;
    }
}

static void memory_of_a_read_may_run_out(void **state) {
    (void)state;
    make_entry_there();
    long n = 1;
    for (bool out = true; out; n++) {
        bool found = false;
        kiln_ctx *ctx = open_store();
        kiln_alloc_fail_after(n);
        kiln_status st = get_some(ctx, &found);
        out = kiln_alloc_fail_after(0) >= n;
        assert_int_equal(found, !out);
        assert_int_equal(st == KILN_OK, !out);
        kiln_close(ctx);
        assert_true(is_there());
    }
    assert_true(n > 2);
}

/* -- writes ------------------------------------------------------------------------------------------------------ */

static void begin_write(bool over) {
    if (over)
        make_entry_there();
    else
        drop_cache();
}

/* over: another entry of the same name is there, and must stay or be replaced. */
static bool write_fails_at(int n, int error, bool all_later, bool over) {
    int fds = count_fds();
    begin_write(over);
    kiln_ctx *ctx = open_store();
    arm(n, error, all_later);
    kiln_status st = put_some(ctx);
    bool reached = disarm() >= n;
    kiln_stats s = stats_of(ctx);
    assert_true(s.stored <= 1);
    if (st == KILN_OK) assert_int_equal(s.stored, 1);
    if (st != KILN_OK) assert_true(reached && (s.store_errors > 0 || s.stored));
    if (error == SHORT) assert_int_equal(st, KILN_OK);
    kiln_close(ctx);
    assert_int_equal(count_fds(), fds);
    bool there = is_there();
    if (there != (s.stored || over)) fail_msg("call %d, error %d: there %d", n, error, there);
    if (!all_later && count_temps()) fail_msg("call %d, error %d: a temporary file is left", n, error);
    if (all_later) assert_true(count_temps() <= 1);
    return reached;
}

static void each_call_of_a_write_may_fail(void **state) {
    (void)state;
    for (int k = 0; k < NERRORS; k++) {
        int n = 1;
        while (write_fails_at(n, errors[k], false, k % 2)) n++;
        assert_in_range(n, 10, 60);
        for (n = 1; errors[k] > 0 && errors[k] != EINTR && write_fails_at(n, errors[k], true, k % 2);) n++;
    }
    assert_true(write_fails_at(12, EIO, true, false));
    assert_temps_are_pruned();
}

static void memory_of_a_write_may_run_out(void **state) {
    (void)state;
    file_bytes b = made_entry(&some, IMAGE_BYTES);
    long n = 1;
    for (bool out = true; out; n++) {
        drop_cache();
        kiln_ctx *ctx = open_store();
        kiln_blob blob = {.entry = b.p, .nentry = b.n};
        kiln_alloc_fail_after(n);
        kiln_status st = disk_of(ctx)->put(disk_of(ctx), &some, &blob);
        out = kiln_alloc_fail_after(0) >= n;
        if (!out) assert_int_equal(st, KILN_OK);
        uint64_t stored = stats_of(ctx).stored;
        kiln_close(ctx);
        assert_int_equal(is_there(), stored);
        assert_int_equal(count_temps(), 0);
    }
    assert_true(n > 2);
    kiln_free(b.p);
}

/* -- death --------------------------------------------------------------------------------------------------------- */

static void write_and_die(void *user) {
    kiln_ctx *ctx = open_store();
    arm(*(int *)user, KILL, false);
    MUST(put_some(ctx) == KILN_OK);
    (void)disarm();
    kiln_close(ctx);
}

/* Whether the writer was killed. */
static bool die_at(int n, bool over) {
    int status = -1;
    begin_write(over);
    pid_t pid = start_child(write_and_die, &n);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    assert_true(killed || status == 0);
    bool there = is_there();
    if (over || !killed) assert_true(there);
    assert_true(count_temps() <= 1);
    if (count_temps()) assert_temps_are_pruned();
    return killed;
}

static void a_writer_may_be_killed_at_each_step(void **state) {
    (void)state;
    for (int over = 0; over < 2; over++) {
        int n = 1;
        while (die_at(n, over)) n++;
        assert_in_range(n, 10, 60);
    }
}

/* -- whole calls ----------------------------------------------------------------------------------------------------- */

/* A call answers whatever the disk does. */
static void calls_go_on_without_a_disk(void **state) {
    (void)state;
    static const int some_errors[] = {EIO, ENOSPC, EMFILE};
    for (int k = 0; k < (whole_run() && !SANITIZED ? 3 : 1); k++) {
        fill_cache(1);
        for (int n = 1;; n += whole_run() ? 1 : 4) {
            kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 2);
            arm(n, some_errors[k], true);
            call_rk(ctx, 0, NULL);
            call_rk(ctx, 1, NULL);
            bool reached = disarm() >= n;
            kiln_stats s = stats_of(ctx);
            if (reached) assert_true(s.store_errors + s.compile_failures > 0 || s.stored + s.disk_hits == 2);
            kiln_close(ctx);
            if (!reached) break;
            fill_cache(1);
        }
    }
}

/* Calls r0 with the n-th and all later allocations failing; then it must work.  Returns whether the n-th was reached. */
static bool call_without_memory(long n, kiln_stats *s) {
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 1);
    const kiln_op *op = op_of(ctx, "test::r0");
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = NULL;
    kiln_trim();
    kiln_alloc_fail_after(n);
    kiln_status st = kiln_call(ctx, op, ARGS(TEN(a)), &out, 1);
    bool reached = kiln_alloc_fail_after(0) >= n;
    assert_true(st == KILN_OK || (st == KILN_E_NOMEM && reached));
    if (st == KILN_OK) HOLDS_I32(out, SIZES(3), 1, 4, 9);
    kiln_tensor_release(a);
    kiln_tensor_release(out);
    call_rk(ctx, 0, "compiled");
    *s = stats_of(ctx);
    kiln_close(ctx);
    return reached;
}

/* No entry is thrown away, or left half-written, for want of memory. */
static void memory_of_a_call_may_run_out(void **state) {
    (void)state;
    kiln_stats s;
    long n = 1;
    fill_cache(1);
    for (; call_without_memory(n, &s); n++) {
        assert_int_equal(s.corrupt_entries + s.foreign_entries + s.stale_entries + s.selftest_failures, 0);
        if (count_kernels() != 1) fail_msg("allocation %ld: the entry is gone", n);
    }
    assert_true(n > 10);
    assert_int_equal(s.disk_hits, 1);
    for (n = 1;; n += whole_run() ? 1 : SANITIZED ? 41 : 11) {
        drop_cache();
        bool reached = call_without_memory(n, &s);
        if (s.stored != (uint64_t)count_kernels()) fail_msg("allocation %ld: stored %d", n, (int)s.stored);
        if (!reached) break;
    }
    assert_int_equal(s.stored, 1);
    assert_int_equal(count_temps(), 0);
}

/* What was deleted is made anew, by whomever. */
static void the_folder_may_be_deleted(void **state) {
    (void)state;
    fill_cache(1);
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 5);
    call_rk(ctx, 0, "compiled");
    assert_int_equal(stats_of(ctx).disk_hits, 1);
    drop_cache();
    call_rk(ctx, 1, "compiled");
    assert_int_equal(count_kernels(), 1); /* in a new folder */
    drop_cache();
    kiln_ctx *other = open_disk(KILN_MODE_SYNC, 5);
    call_rk(other, 2, "compiled"); /* another process makes it */
    call_rk(ctx, 2, "compiled");
    call_rk(ctx, 3, "compiled");
    call_rk(other, 3, "compiled");
    assert_int_equal(stats_of(ctx).disk_hits, 2);
    assert_int_equal(stats_of(other).disk_hits, 1);
    assert_int_equal(count_kernels(), 2);
    assert_int_equal(rmdir(kernels_path()), -1);
    remove_tree(kernels_path()); /* the inner folder alone */
    call_rk(ctx, 4, "compiled");
    assert_int_equal(count_kernels(), 1);
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.store_errors, 0);
    assert_int_equal(s.stored, 3);
    kiln_close(ctx);
    kiln_close(other);
}

/* On NFS the descriptor of a folder that another machine has removed gives ESTALE: the folder is opened anew. */
static void the_folder_may_be_stale(void **state) {
    (void)state;
    make_entry_there();
    kiln_ctx *ctx = open_store();
    bool found;
    int before = count_fds();
    MUST_OK(get_some(ctx, &found));
    assert_true(found);
    for (int fd = 0; fd < FDS_MAX; fd++)
        if (is_kept(fd) && fcntl(fd, F_GETFD) >= 0) atomic_store(&stale_fd, fd); /* no other one is open */
    assert_true(atomic_load(&stale_fd) >= 0);
    int stale = atomic_load(&stale_fd);
    MUST_OK(get_some(ctx, &found)); /* a miss, after which the folder is open */
    assert_int_equal(atomic_load(&stale_fd), -1);
    MUST_OK(get_some(ctx, &found));
    assert_true(found);
    atomic_store(&stale_fd, stale);
    MUST_OK(put_some(ctx));
    assert_int_equal(atomic_load(&stale_fd), -1);
    assert_int_equal(stats_of(ctx).store_errors, 0);
    assert_int_equal(stats_of(ctx).stored, 1);
    assert_int_equal(count_fds(), before + 1);
    kiln_close(ctx);
}

enum { SOMEBODY = 12345 };

static void read_only_body(void *user) {
    (void)user;
    MUST(setresgid(SOMEBODY, SOMEBODY, SOMEBODY) == 0 && setresuid(SOMEBODY, SOMEBODY, SOMEBODY) == 0);
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, 6);
    MUST(row_is_right(ctx, 0, false) && strcmp(kiln_last_tier(), "compiled") == 0);
    MUST(stats_of(ctx).disk_hits == 1 && stats_of(ctx).compiles == 0);
    for (int k = 1; k < 6; k++)
        MUST(row_is_right(ctx, k, false) && strcmp(kiln_last_tier(), "compiled") == 0);
    kiln_stats s = stats_of(ctx);
    MUST(s.disk_hits == 1 && s.compiles == 5 && s.stored == 0);
    MUST(s.store_errors == 3); /* after that it rests */
    kiln_close(ctx);
}

/* A folder of root's serves a user who may not write it. */
static void a_read_only_folder_is_read(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    char path[PATH_ROOM];
    fill_cache(1);
    kiln_digest d = digest_of_row(0);
    entry_path(&d, path);
    assert_int_equal(chmod(scratch, 0755) | chmod(cache_path(), 0755) | chmod(kernels_path(), 0755) |
                         chmod(path, 0644),
                     0);
    in_child_of(read_only_body, NULL);
    assert_int_equal(count_kernels(), 1);
}

static void small_files_body(void *user) {
    struct rlimit small = {*(rlim_t *)user, RLIM_INFINITY};
    kiln_ctx *ctx = open_disk(KILN_MODE_INTERP, 0);
    MUST(setrlimit(RLIMIT_FSIZE, &small) == 0);
    MUST(put_some(ctx) != KILN_OK);
    MUST(strstr(kiln_last_error(), "File too large"));
    MUST(stats_of(ctx).store_errors == 1 && stats_of(ctx).stored == 0);
    kiln_close(ctx);
}

/* The limit on the size of files sends a deadly signal to whoever writes past it. */
static void a_limit_on_files_is_no_signal(void **state) {
    (void)state;
    rlim_t limits[] = {0, 1, 300, IMAGE_BYTES};
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
        drop_cache();
        in_child_of(small_files_body, &limits[k]);
        assert_int_equal(count_kernels() + count_temps(), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_of_a_read_may_fail),
        cmocka_unit_test(memory_of_a_read_may_run_out),
        cmocka_unit_test(each_call_of_a_write_may_fail),
        cmocka_unit_test(memory_of_a_write_may_run_out),
        cmocka_unit_test(a_writer_may_be_killed_at_each_step),
        cmocka_unit_test(calls_go_on_without_a_disk),
        cmocka_unit_test(memory_of_a_call_may_run_out),
        cmocka_unit_test(the_folder_may_be_deleted),
        cmocka_unit_test(the_folder_may_be_stale),
        cmocka_unit_test(a_read_only_folder_is_read),
        cmocka_unit_test(a_limit_on_files_is_no_signal),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
