/* folder.c - digest <-> a file of the cache folder, with the checks of a file's owner, mode and length.
 *
 * Every access goes by a descriptor of the folder, so that nobody can put another folder in its place between a check and a read.  Files are
 * written under a temporary name and renamed.  Must not know what is in an entry beyond its length. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "store/folder.h"

enum {
    FIRST_READ = 16 << 10, /* Most entries, which are shorter than this, are read by one system call. */
    DAY = 24 * 60 * 60,
    STALE_TEMP = 60 * 60, /* A temporary file that is older belongs to a process that died. */
    NAME_MAX_LEN = 80
};
#define SUFFIX ".kernel"
#define TEMP_START ".tmp-"
#define LOCK_NAME ".lock"
#define FILE_MAX ((off_t)KILN_STORED_MAX + KILN_STORED_SOURCE_MAX)

typedef struct name {
    char text[KILN_DIGEST_TEXT + sizeof SUFFIX];
} name;

static name name_of(const kiln_digest *d) {
    name n;
    kiln_digest_print(d, n.text);
    memcpy(n.text + KILN_DIGEST_TEXT - 1, SUFFIX, sizeof SUFFIX);
    return n;
}

static bool digest_of(const char *text, kiln_digest *d) {
    char digits[KILN_DIGEST_TEXT] = {0};
    if (strlen(text) != KILN_DIGEST_TEXT - 1 + strlen(SUFFIX)) return false;
    memcpy(digits, text, KILN_DIGEST_TEXT - 1);
    return strcmp(text + KILN_DIGEST_TEXT - 1, SUFFIX) == 0 && kiln_digest_parse(digits, d);
}

/* -- owner and mode ------------------------------------------------------------------------------------------- */

static bool is_trusted(const struct stat *info, bool is_shared) {
    bool ours = info->st_uid == geteuid() || info->st_uid == 0;
    return is_shared || (ours && !(info->st_mode & 022));
}

static kiln_status check_folder(int fd, const char *path, bool is_shared) {
    struct stat info;
    if (fstat(fd, &info) != 0) return KILN_FAIL(KILN_E_IO, "folder %s: %s", path, strerror(errno));
    if (is_trusted(&info, is_shared)) return KILN_OK;
    if (info.st_mode & 022)
        return KILN_FAIL(
            KILN_E_ARG,
            "folder %s: others may write it (mode %03o), and what it holds would run as you: chmod go-w it, or set "
            "KILN_CACHE_SHARED=1 and KILN_KEY_FILE",
            path, (unsigned)info.st_mode & 0777);
    return KILN_FAIL(
        KILN_E_ARG,
        "folder %s: it belongs to another user, and what it holds would run as you: set KILN_CACHE_SHARED=1 and KILN_KEY_FILE to "
        "use it",
        path);
}

static kiln_status cannot(const char *path, int error) {
    kiln_status st = error == ENOENT ? KILN_E_NOTFOUND : KILN_E_IO;
    return KILN_FAIL(st, "folder %s: %s", path, strerror(error));
}

/* -- opening -------------------------------------------------------------------------------------------------- */

static kiln_status open_inner(int outer, const char *path, bool create, bool is_shared, int *fd) {
    enum { HOW = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW };
    *fd = openat(outer, KILN_FOLDER_NAME, HOW);
    if (*fd < 0 && errno == ENOENT && create) {
        if (mkdirat(outer, KILN_FOLDER_NAME, is_shared ? 0777 : 0700) != 0 && errno != EEXIST)
            return cannot(path, errno);
        *fd = openat(outer, KILN_FOLDER_NAME, HOW);
    }
    if (*fd < 0) return cannot(path, errno);
    kiln_status st = check_folder(*fd, path, is_shared);
    if (st != KILN_OK) close(*fd);
    return st;
}

kiln_status kiln_folder_open(const char *path, bool create, bool is_shared, int *fd) {
    if (create) KILN_TRY(kiln_mkdirs(path));
    int outer = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (outer < 0) return cannot(path, errno);
    kiln_status st = check_folder(outer, path, is_shared);
    if (st == KILN_OK) st = open_inner(outer, path, create, is_shared, fd);
    close(outer);
    return st;
}

/* What a removed file or folder gives; on NFS, where another machine may have removed it, ESTALE. */
static bool is_missing(int error) { return error == ENOENT || error == ESTALE; }

bool kiln_folder_is_gone(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 ? info.st_nlink == 0 : errno == ESTALE;
}

/* -- reading --------------------------------------------------------------------------------------------------- */

static bool read_at(int f, char *to, size_t n, off_t at) {
    while (n) {
        ssize_t k = pread(f, to, n, at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            if (k == 0) errno = EIO; /* the file has become shorter */
            return false;
        }
        to += k;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

/* Entries that are used are the last that are pruned.  A clock that jumps costs nothing but the order. */
static void touch(int f, const struct stat *info) {
    time_t now = time(NULL);
    if (now - info->st_mtime > DAY || info->st_mtime - now > DAY) (void)futimens(f, NULL);
}

#define FAULT(found, ...) ((void)KILN_FAIL(KILN_E_IO, __VA_ARGS__), (found))

/* A file of `size` bytes: the entry, and the source if that is asked for. */
static kiln_found read_parts(int f, size_t size, bool with_source, kiln_file_bytes *out) {
    size_t first = size < FIRST_READ ? size : FIRST_READ;
    char *p = kiln_alloc(first), *more;
    out->entry = p;
    out->nentry = first;
    if (!p) return FAULT(KILN_FOUND_ERROR, "out of memory");
    if (!read_at(f, p, first, 0)) return FAULT(KILN_FOUND_ERROR, "cannot read an entry: %s", strerror(errno));
    size_t n = kiln_stored_nbytes(p, first);
    if (!n || n > size) return KILN_FOUND; /* the checks of its contents say what is wrong */
    if (n > first) {
        more = kiln_realloc(p, n);
        if (!more) return FAULT(KILN_FOUND_ERROR, "out of memory");
        out->entry = more;
        if (!read_at(f, more + first, n - first, (off_t)first))
            return FAULT(KILN_FOUND_ERROR, "cannot read an entry: %s", strerror(errno));
    }
    out->nentry = n;
    if (!with_source || n == size) return KILN_FOUND;
    out->nsource = size - n;
    out->source = more = kiln_alloc(out->nsource);
    if (!more || !read_at(f, more, out->nsource, (off_t)n))
        return FAULT(KILN_FOUND_ERROR, "cannot read a source");
    return KILN_FOUND;
}

static kiln_found read_file(int f, bool is_shared, bool with_source, kiln_file_bytes *out) {
    struct stat info;
    if (fstat(f, &info) != 0) return FAULT(KILN_FOUND_ERROR, "cannot look at an entry: %s", strerror(errno));
    if (!S_ISREG(info.st_mode)) return FAULT(KILN_FOUND_FOREIGN, "an entry is no plain file");
    if (!is_trusted(&info, is_shared))
        return FAULT(KILN_FOUND_FOREIGN, "an entry belongs to another user, or others may write it");
    if (info.st_size < KILN_STORED_HEAD || info.st_size > FILE_MAX)
        return FAULT(KILN_FOUND_CORRUPT, "an entry has %lld bytes", (long long)info.st_size);
    kiln_found found = read_parts(f, (size_t)info.st_size, with_source, out);
    if (found == KILN_FOUND && !with_source) touch(f, &info); /* sources are for people, who only look */
    return found;
}

kiln_found kiln_folder_read(int fd, const kiln_digest *d, bool is_shared, bool with_source,
                            kiln_file_bytes *out) {
    name n = name_of(d);
    *out = (kiln_file_bytes){0};
    /* O_NONBLOCK: of a FIFO the open would wait for a writer. */
    int f = openat(fd, n.text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (f < 0 && is_missing(errno)) return KILN_FOUND_NOT;
    if (f < 0 && (errno == ELOOP || errno == ENXIO))
        return FAULT(KILN_FOUND_FOREIGN, "an entry is no plain file");
    if (f < 0) return FAULT(KILN_FOUND_ERROR, "cannot open an entry: %s", strerror(errno));
    kiln_found found = read_file(f, is_shared, with_source, out);
    close(f);
    if (found == KILN_FOUND) return found;
    kiln_free(out->entry);
    kiln_free(out->source);
    *out = (kiln_file_bytes){0};
    return found;
}

/* -- writing --------------------------------------------------------------------------------------------------- */

static bool write_all(int f, const char *p, size_t n) {
    while (n) {
        ssize_t k = write(f, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static bool fill(int f, const kiln_file_bytes *bytes) {
    size_t all = bytes->nentry + bytes->nsource;
    if (!kiln_fsize_allows(all)) { /* writing on would be a deadly signal */
        errno = EFBIG;
        return false;
    }
    return write_all(f, bytes->entry, bytes->nentry) &&
           (!bytes->source || write_all(f, bytes->source, bytes->nsource));
}

/* A name that no other writer of any process has at this time. */
static void temp_name(char *to, size_t room) {
    static atomic_uint_fast32_t count;
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(to, room, TEMP_START "%ld-%lx-%lx", (long)getpid(), (unsigned long)now.tv_nsec,
             (unsigned long)atomic_fetch_add(&count, 1));
}

kiln_status kiln_folder_write(int fd, const kiln_digest *d, bool is_shared, const kiln_file_bytes *bytes) {
    char temp[NAME_MAX_LEN];
    name n = name_of(d);
    temp_name(temp, sizeof temp);
    int f = openat(fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, is_shared ? 0644 : 0600);
    if (f < 0) {
        kiln_status st = is_missing(errno) ? KILN_E_NOTFOUND : KILN_E_IO;
        return KILN_FAIL(st, "cannot create a file in the cache folder: %s", strerror(errno));
    }
    bool written = fill(f, bytes);
    int error = errno;
    if (close(f) != 0 && written) {
        written = false;
        error = errno;
    }
    if (written && renameat(fd, temp, fd, n.text) == 0) return KILN_OK;
    if (written) error = errno;
    (void)unlinkat(fd, temp, 0);
    return KILN_FAIL(is_missing(error) ? KILN_E_NOTFOUND : KILN_E_IO, "cannot write to the cache folder: %s",
                     strerror(error));
}

bool kiln_folder_remove(int fd, const kiln_digest *d) {
    name n = name_of(d);
    if (unlinkat(fd, n.text, 0) == 0) return true;
    return errno == EISDIR && unlinkat(fd, n.text, AT_REMOVEDIR) == 0;
}

/* -- all entries ------------------------------------------------------------------------------------------------- */

static DIR *open_listing(int fd) {
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* with a position of its own */
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (!d && again >= 0) close(again);
    return d;
}

kiln_status kiln_folder_walk(int fd, kiln_folder_visit *visit, void *user) {
    DIR *dir = open_listing(fd);
    kiln_status st = KILN_OK;
    if (!dir) return KILN_FAIL(KILN_E_IO, "cannot list the cache folder: %s", strerror(errno));
    for (struct dirent *e; st == KILN_OK && (e = readdir(dir));) {
        struct stat info;
        kiln_digest d;
        if (digest_of(e->d_name, &d) && fstatat(fd, e->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0)
            st = visit(user, &d, &info);
    }
    closedir(dir);
    return st;
}

/* -- pruning --------------------------------------------------------------------------------------------------------- */

typedef struct aged {
    kiln_digest digest;
    int64_t used_ns; /* when it was used last, by the clock of the file system */
    uint64_t nbytes;
} aged;

typedef struct listing {
    aged *at;
    size_t n;
    uint64_t nbytes;
} listing;

static kiln_status add_aged(void *user, const kiln_digest *d, const struct stat *info) {
    listing *l = user;
    if (l->n == 0 || (l->n >= 64 && (l->n & (l->n - 1)) == 0)) { /* full */
        aged *more = kiln_realloc(l->at, (l->n ? 2 * l->n : 64) * sizeof *more);
        if (!more) return KILN_NOMEM();
        l->at = more;
    }
    int64_t used = (int64_t)info->st_mtim.tv_sec * INT64_C(1000000000) + info->st_mtim.tv_nsec;
    l->at[l->n++] = (aged){*d, used, (uint64_t)info->st_size};
    l->nbytes += (uint64_t)info->st_size;
    return KILN_OK;
}

static int by_use(const void *a, const void *b) {
    const aged *x = a, *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

/* A date that is far ahead comes from a clock that has jumped back since. */
static bool is_stale(time_t now, time_t written) {
    return now - written > STALE_TEMP || written - now > STALE_TEMP;
}

static void remove_stale_temps(int fd) {
    DIR *dir = open_listing(fd);
    time_t now = time(NULL);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct stat info;
        if (strncmp(e->d_name, TEMP_START, strlen(TEMP_START)) != 0) continue;
        if (fstatat(fd, e->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && is_stale(now, info.st_mtime))
            (void)unlinkat(fd, e->d_name, 0);
    }
    if (dir) closedir(dir);
}

kiln_status kiln_folder_prune(int fd, uint64_t most, uint64_t down_to, kiln_prune_report *out) {
    listing l = {0};
    *out = (kiln_prune_report){0};
    remove_stale_temps(fd);
    kiln_status st = kiln_folder_walk(fd, add_aged, &l);
    uint64_t left = l.nbytes;
    bool too_much = st == KILN_OK && left > most;
    if (too_much && l.n) qsort(l.at, l.n, sizeof *l.at, by_use);
    out->nleft = l.n;
    for (size_t k = 0; too_much && k < l.n && left > down_to; k++) {
        bool removed = kiln_folder_remove(fd, &l.at[k].digest);
        if (!removed && errno != ENOENT)
            continue; /* it cannot be removed; ENOENT: another process has removed it */
        left -= l.at[k].nbytes;
        out->nleft--;
        out->nremoved += removed;
        out->removed_bytes += removed ? l.at[k].nbytes : 0;
    }
    out->left_bytes = left;
    kiln_free(l.at);
    return st;
}

/* -- who builds -------------------------------------------------------------------------------------------------------- */

static struct flock byte_of(const kiln_digest *d, short type) {
    return (struct flock){.l_type = type,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)(d->lo & INT64_C(0x3fffffffffffffff)),
                          .l_len = 1};
}

/* Locks of this kind belong to the open file, so that they end when the process does, and two contexts of a process exclude each other. */
bool kiln_folder_try_lock(int fd, int *lock_fd, const kiln_digest *d) {
    struct flock lock = byte_of(d, F_WRLCK);
    if (*lock_fd < 0)
        *lock_fd = openat(fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (*lock_fd < 0) return true;
    return fcntl(*lock_fd, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

void kiln_folder_unlock(int lock_fd, const kiln_digest *d) {
    struct flock lock = byte_of(d, F_UNLCK);
    if (lock_fd >= 0) (void)fcntl(lock_fd, F_OFD_SETLK, &lock);
}
