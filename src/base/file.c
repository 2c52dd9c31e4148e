/* file.c - whole-file reads, all-or-nothing writes, folders.
 *
 * Turns paths into bytes and back.  A write goes to a temporary name in the same folder and is
 * renamed, so a reader never sees half a file.  Knows nothing of the contents. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

static kiln_status read_fd(int fd, const char *path, char **out, size_t *out_len) {
    kiln_sb text;
    kiln_sb_init(&text);
    char piece[1 << 14];
    for (;;) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            kiln_sb_fini(&text);
            return KILN_FAIL(KILN_E_IO, "cannot read %s: %s", path, strerror(errno));
        }
        if (n == 0) break;
        kiln_sb_putn(&text, piece, (size_t)n);
        if (text.failed) break; /* the input may be endless */
    }
    size_t len = text.len;
    KILN_TRY(kiln_sb_take(&text, out));
    if (out_len) *out_len = len;
    return KILN_OK;
}

kiln_status kiln_file_read(const char *path, char **out, size_t *out_len) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return KILN_FAIL(KILN_E_IO, "cannot open %s: %s", path, strerror(errno));
    kiln_status st = read_fd(fd, path, out, out_len);
    close(fd);
    return st;
}

static bool write_all(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

bool kiln_fsize_allows(size_t n) {
    struct rlimit most;
    return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY || n <= most.rlim_cur;
}

kiln_status kiln_file_write_atomic(const char *path, const void *data, size_t n) {
    size_t len = strlen(path) + 8;
    char *temp = kiln_alloc(len);
    if (!temp) return KILN_NOMEM();
    snprintf(temp, len, "%s.XXXXXX", path);
    int fd = mkostemp(temp, O_CLOEXEC);
    kiln_status st = KILN_OK;
    if (fd < 0) {
        st = KILN_FAIL(KILN_E_IO, "cannot create a file beside %s: %s", path, strerror(errno));
    } else {
        bool written = write_all(fd, data, n);
        written = close(fd) == 0 && written;
        if (!written || rename(temp, path) != 0) {
            st = KILN_FAIL(KILN_E_IO, "cannot write %s: %s", path, strerror(errno));
            unlink(temp);
        }
    }
    kiln_free(temp);
    return st;
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static kiln_status make_folder(const char *path) {
    if (mkdir(path, 0700) == 0) return KILN_OK;
    int error = errno;
    if (is_folder(path)) return KILN_OK;
    return KILN_FAIL(KILN_E_IO, "cannot create folder %s: %s", path, strerror(error));
}

kiln_status kiln_mkdirs(const char *path) {
    if (!*path) return KILN_FAIL(KILN_E_IO, "cannot create a folder without a name");
    char *copy = kiln_strdup(path);
    if (!copy) return KILN_NOMEM();
    kiln_status st = KILN_OK;
    for (char *p = copy + 1; st == KILN_OK; p++) {
        if (*p && *p != '/') continue;
        char end = *p;
        *p = 0;
        st = make_folder(copy);
        *p = end;
        if (!end) break;
    }
    kiln_free(copy);
    return st;
}

kiln_status kiln_tmpdir_new(char **out, bool *made) {
    const char *under = secure_getenv("TMPDIR");
    kiln_sb path;
    kiln_sb_init(&path);
    kiln_sb_printf(&path, "%s/kiln-XXXXXX", under && under[0] ? under : "/tmp");
    KILN_TRY(kiln_sb_take(&path, out));
    *made = mkdtemp(*out) != NULL;
    return KILN_OK;
}

void kiln_dir_remove(const char *path) {
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') (void)unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    (void)rmdir(path);
}
