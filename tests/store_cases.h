/* store_cases.h - what tests of the store on disk share: contexts over one cache folder, the files in it, and small kernels to keep there.
 *
 * The folder is scratch/cache, and the entries are in scratch/cache/kernels.  Each helper fails the running test by itself. */
#ifndef KILN_TEST_STORE_CASES_H
#define KILN_TEST_STORE_CASES_H
#include <fcntl.h>
#include <sys/wait.h>

#include "store/folder.h"
#include "tier_cases.h"

enum { PATH_ROOM = 512 };

/* -- files ------------------------------------------------------------------------------------------------- */

static inline const char *cache_path(void) {
    static char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/cache", scratch);
    return path;
}

static inline const char *kernels_path(void) {
    static char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/cache/" KILN_FOLDER_NAME, scratch);
    return path;
}

static inline int count_kernels(void) { return count_entries(kernels_path(), ".kernel"); }

/* Temporary files and the lock file have names that begin with a dot. */
static inline int count_temps(void) {
    int n = 0;
    DIR *d = opendir(kernels_path());
    for (struct dirent *e; d && (e = readdir(d));) n += strncmp(e->d_name, ".tmp-", 5) == 0;
    if (d) closedir(d);
    return n;
}

static inline void remove_tree(const char *path) { (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }
static inline void drop_cache(void) { remove_tree(cache_path()); }

static inline void make_cache(void) {
    drop_cache();
    assert_int_equal(mkdir(cache_path(), 0700), 0);
    assert_int_equal(mkdir(kernels_path(), 0700), 0);
}

typedef struct file_bytes {
    uint8_t *p;
    size_t n;
} file_bytes;

static inline file_bytes read_whole(const char *path) {
    file_bytes b = {0};
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) fail_msg("%s: %s", path, strerror(errno));
    b.n = (size_t)info.st_size;
    b.p = malloc(b.n + 1);
    assert_non_null(b.p);
    assert_int_equal(read(fd, b.p, b.n), b.n);
    close(fd);
    return b;
}

static inline void write_whole(const char *path, const void *p, size_t n) {
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(write(fd, p, n), n);
    close(fd);
}

/* -- kernels ----------------------------------------------------------------------------------------------- */

/* Loads rows r0 to r(n - 1): rK(a) is a * a + K. */
static inline void load_rows(kiln_ctx *ctx, int n) {
    char text[200];
    for (int k = 0; k < n; k++) {
        int len = snprintf(text, sizeof text,
                           "map test::r%d(Tensor a) -> Tensor : promote(a) takes int = a * a + %d\n", k, k);
        MUST_OK(kiln_ops_load(ctx, text, (size_t)len));
    }
}

/* A context over the cache folder that knows n rows. */
static inline kiln_ctx *open_disk_with(kiln_config config, int n) {
    config.cache = "disk";
    if (!config.cache_dir) config.cache_dir = cache_path();
    kiln_ctx *ctx = open_with(config);
    load_rows(ctx, n);
    return ctx;
}

static inline kiln_ctx *open_disk(kiln_mode mode, int n) {
    return open_disk_with((kiln_config){.mode = mode}, n);
}

/* Calls rK on 1, 2 and -3.  Returns whether the results are right. */
static inline bool row_is_right(kiln_ctx *ctx, int k, bool hot) {
    char name[20];
    const kiln_op *op = NULL;
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = NULL;
    snprintf(name, sizeof name, "test::r%d", k);
    bool right = kiln_op_find(ctx, name, &op) == KILN_OK;
    if (right && hot) make_hot(ctx, op, ARGS(TEN(a)));
    right = right && kiln_call(ctx, op, ARGS(TEN(a)), &out, 1) == KILN_OK;
    const int32_t want[3] = {1 + k, 4 + k, 9 + k};
    right = right && memcmp(kiln_tensor_data(out), want, sizeof want) == 0;
    kiln_tensor_release(a);
    kiln_tensor_release(out);
    return right;
}

static inline void call_rk(kiln_ctx *ctx, int k, const char *tier) {
    if (!row_is_right(ctx, k, false)) fail_msg("r%d is wrong: %s", k, kiln_last_error());
    if (tier && strcmp(kiln_last_tier(), tier) != 0)
        fail_msg("r%d is %s instead of %s", k, kiln_last_tier(), tier);
}

/* Builds r0 to r(n - 1) into an empty folder. */
static inline void fill_cache(int n) {
    drop_cache();
    kiln_ctx *ctx = open_disk(KILN_MODE_SYNC, n);
    for (int k = 0; k < n; k++) call_rk(ctx, k, "compiled");
    assert_int_equal(stats_of(ctx).stored, n);
    kiln_close(ctx);
    assert_int_equal(count_kernels(), n);
}

/* The class of the calls that row_is_right makes.  It stays while nothing else is called in the context. */
static inline kiln_class *class_of_row(kiln_ctx *ctx, int k) {
    char name[20];
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    kiln_bound call;
    kiln_plan plan;
    kiln_class *c = NULL;
    snprintf(name, sizeof name, "test::r%d", k);
    MUST_OK(kiln_bind(op_of(ctx, name), ARGS(TEN(a)), &call));
    MUST_OK(kiln_infer(&call, &plan));
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    kiln_thread_enter(&ctx->epochs, t);
    MUST_OK(kiln_class_of(ctx, &plan, &c));
    kiln_thread_leave(t);
    kiln_tensor_release(a);
    return c;
}

/* The digest under which the kernel of rK is kept. */
static inline kiln_digest digest_of_row(int k) {
    kiln_digest d;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    load_rows(ctx, k + 1);
    kiln_class *c = class_of_row(ctx, k);
    MUST_OK(kiln_class_digest(c, c->target->level, &d));
    kiln_close(ctx);
    return d;
}

static inline void entry_path(const kiln_digest *d, char out[PATH_ROOM]) {
    char text[KILN_DIGEST_TEXT];
    kiln_digest_print(d, text);
    snprintf(out, PATH_ROOM, "%s/%s.kernel", kernels_path(), text);
}

/* Bytes that are an entry: of a made-up kernel whose image has n bytes. */
static inline file_bytes made_entry(const kiln_digest *d, size_t n) {
    void *p = NULL;
    file_bytes b = {0};
    char *image = malloc(n);
    assert_non_null(image);
    memset(image, (int)(d->lo & 0x7f), n);
    kiln_stored s = {.digest = *d, .target = "cpu", .op = "test::made", .image = image, .nimage = n};
    MUST_OK(kiln_stored_write(&s, NULL, &p, &b.n));
    free(image);
    b.p = p;
    return b;
}

/* -- children ----------------------------------------------------------------------------------------------- */

static inline void must(bool right, const char *what, int line) {
    if (right) return;
    fprintf(stderr, "line %d: %s: %s\n", line, what, kiln_last_error());
    _exit(1);
}
#define MUST(x) must((x), #x, __LINE__)

static inline pid_t start_child(void (*body)(void *), void *user) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        body(user);
        _exit(0);
    }
    return pid;
}

static inline void end_child(pid_t pid) {
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0) fail_msg("a child ended with %#x", (unsigned)status);
}

static inline void in_child_of(void (*body)(void *), void *user) { end_child(start_child(body, user)); }
#endif
