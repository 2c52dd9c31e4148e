/* packfile.c - entries <-> one file with an index in the order of digests.
 *
 * Bytes are read by pread into private memory, so that a pack that is cut short while it is in use costs speed and nothing else.  A pack
 * is written beside its place and renamed.  Must not know what is in an entry. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/packfile.h"

enum { FORMAT = 1, COUNT_MAX = 1 << 22, PENDING_MAX = 1 << 20 };
static const char magic[8] = "KILNPACK";

/* Little endian, without padding.  The entries follow the head, and the index follows them. */
typedef struct head {
    char magic[8];
    uint32_t format, nhead;
    kiln_digest check;                /* XXH3-128 of the rest of the head, then of the index */
    uint64_t count, index_at, nbytes; /* nbytes: of the whole file */
    uint64_t reserved;
} head;
_Static_assert(sizeof(head) == 64, "a pack's head has no padding");
#define CHECKED offsetof(head, count)

typedef struct place {
    kiln_digest digest;
    uint64_t at;
    uint32_t nbytes, reserved;
} place;
_Static_assert(sizeof(place) == 32, "a pack's index has no padding");

static int compare_digests(const kiln_digest *a, const kiln_digest *b) {
    if (a->hi != b->hi) return a->hi < b->hi ? -1 : 1;
    return a->lo == b->lo ? 0 : a->lo < b->lo ? -1 : 1;
}

static kiln_digest check_of(const head *h, const place *index) {
    kiln_digest both[2] = {kiln_hash128((const char *)h + CHECKED, sizeof *h - CHECKED),
                           kiln_hash128(index, (size_t)h->count * sizeof *index)};
    return kiln_hash128(both, sizeof both);
}

/* -- reading --------------------------------------------------------------------------------------------------- */

struct kiln_packfile {
    int fd;
    size_t count;
    uint64_t nbytes;
    place *index;
    char path[]; /* for messages */
};

static kiln_status read_at(const kiln_packfile *p, void *to, size_t n, uint64_t at) {
    for (char *q = to; n;) {
        ssize_t k = pread(p->fd, q, n, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return KILN_FAIL(KILN_E_IO, "pack %s: %s", p->path, strerror(errno));
        if (k == 0) return KILN_FAIL(KILN_E_IO, "pack %s: it has become shorter", p->path);
        q += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return KILN_OK;
}

static kiln_status check_file(const kiln_packfile *p, uint64_t *nbytes) {
    struct stat info;
    if (fstat(p->fd, &info) != 0) return KILN_FAIL(KILN_E_IO, "pack %s: %s", p->path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return KILN_FAIL(KILN_E_ARG, "pack %s: not a plain file", p->path);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return KILN_FAIL(KILN_E_ARG,
                         "pack %s: it belongs to another user, and what it holds would run as you", p->path);
    if (info.st_mode & 022)
        return KILN_FAIL(
            KILN_E_ARG,
            "pack %s: others may write it (mode %03o), and what it holds would run as you: chmod go-w %s",
            p->path, (unsigned)info.st_mode & 0777, p->path);
    *nbytes = (uint64_t)info.st_size;
    return KILN_OK;
}

#define DAMAGED(p, what) KILN_FAIL(KILN_E_IO, "pack %s: damaged: %s", (p)->path, what)

static kiln_status check_places(const kiln_packfile *p, uint64_t end) {
    for (size_t k = 0; k < p->count; k++) {
        const place *at = &p->index[k];
        if (at->at < sizeof(head) || at->at > end || at->nbytes > end - at->at ||
            at->nbytes > KILN_STORED_MAX)
            return DAMAGED(p, "an entry lies outside");
        if (k && compare_digests(&at[-1].digest, &at->digest) >= 0)
            return DAMAGED(p, "its index is out of order");
    }
    return KILN_OK;
}

static kiln_status read_index(kiln_packfile *p) {
    head h;
    KILN_TRY(check_file(p, &p->nbytes));
    if (p->nbytes < sizeof h) return DAMAGED(p, "too short");
    KILN_TRY(read_at(p, &h, sizeof h, 0));
    if (memcmp(h.magic, magic, sizeof magic) != 0) return DAMAGED(p, "it does not begin as a pack");
    if (h.format != FORMAT || h.nhead != sizeof h)
        return KILN_FAIL(KILN_E_IO, "pack %s: it has format %u, expected %d", p->path, h.format, (int)FORMAT);
    if (h.count > COUNT_MAX || h.nbytes != p->nbytes || h.index_at > p->nbytes ||
        p->nbytes - h.index_at != h.count * sizeof(place))
        return DAMAGED(p, "it was cut short");
    p->count = (size_t)h.count;
    p->index = kiln_alloc(p->count * sizeof *p->index);
    if (!p->index) return KILN_NOMEM();
    KILN_TRY(read_at(p, p->index, p->count * sizeof *p->index, h.index_at));
    kiln_digest now = check_of(&h, p->index);
    if (now.lo != h.check.lo || now.hi != h.check.hi) return DAMAGED(p, "the checksum of its index is wrong");
    return check_places(p, h.index_at);
}

kiln_status kiln_packfile_open(const char *path, kiln_packfile **out) {
    kiln_packfile *p = kiln_calloc(1, sizeof *p + strlen(path) + 1);
    if (!p) return KILN_NOMEM();
    memcpy(p->path, path, strlen(path) + 1);
    p->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    kiln_status st = KILN_OK;
    if (p->fd < 0)
        st = KILN_FAIL(errno == ENOENT || errno == ENOTDIR ? KILN_E_NOTFOUND : KILN_E_IO, "pack %s: %s", path,
                       strerror(errno));
    if (st == KILN_OK) st = read_index(p);
    if (st == KILN_OK)
        *out = p;
    else
        kiln_packfile_close(p);
    return st;
}

void kiln_packfile_close(kiln_packfile *p) {
    if (!p) return;
    if (p->fd >= 0) close(p->fd);
    kiln_free(p->index);
    kiln_free(p);
}

size_t kiln_packfile_count(const kiln_packfile *p) { return p->count; }
uint64_t kiln_packfile_nbytes(const kiln_packfile *p) { return p->nbytes; }
const char *kiln_packfile_path(const kiln_packfile *p) { return p->path; }

static kiln_status read_entry(const kiln_packfile *p, const place *at, void **entry, size_t *n) {
    char *bytes = kiln_alloc(at->nbytes);
    if (!bytes) return KILN_NOMEM();
    kiln_status st = read_at(p, bytes, at->nbytes, at->at);
    if (st != KILN_OK) {
        kiln_free(bytes);
        return st;
    }
    *entry = bytes;
    *n = at->nbytes;
    return KILN_OK;
}

kiln_status kiln_packfile_find(const kiln_packfile *p, const kiln_digest *d, void **entry, size_t *n,
                               bool *found) {
    size_t low = 0, high = p->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_digests(&p->index[middle].digest, d);
        if (order == 0) {
            *found = true;
            return read_entry(p, &p->index[middle], entry, n);
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = false;
    return KILN_OK;
}

kiln_status kiln_packfile_at(const kiln_packfile *p, size_t k, kiln_digest *d, void **entry, size_t *n) {
    *d = p->index[k].digest;
    return read_entry(p, &p->index[k], entry, n);
}

/* -- writing --------------------------------------------------------------------------------------------------- */

struct kiln_packing {
    int fd;
    uint64_t at; /* the next entry's */
    place *index;
    size_t count;
    kiln_sb pending; /* bytes that are not written yet */
    char *temp, *path;
};

static kiln_status put_bytes(kiln_packing *p, const void *bytes, size_t n, bool now) {
    kiln_sb_putn(&p->pending, bytes, n);
    if (p->pending.failed) return KILN_NOMEM();
    if (!now && p->pending.len < PENDING_MAX) return KILN_OK;
    if (!kiln_fsize_allows((size_t)p->at + n))
        return KILN_FAIL(KILN_E_IO, "pack %s: larger than this process may write", p->path);
    const char *q = p->pending.p;
    for (size_t left = p->pending.len; left;) {
        ssize_t k = write(p->fd, q, left);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return KILN_FAIL(KILN_E_IO, "pack %s: %s", p->path, strerror(errno));
        q += k;
        left -= (size_t)k;
    }
    p->pending.len = 0;
    return KILN_OK;
}

static void free_packing(kiln_packing *p) {
    if (p->fd >= 0) close(p->fd);
    kiln_sb_fini(&p->pending);
    kiln_free(p->index);
    kiln_free(p->temp);
    kiln_free(p->path);
    kiln_free(p);
}

/* What is not a plain file, as a device or a link to one, is not replaced. */
static kiln_status open_temp(kiln_packing *p, const char *path) {
    struct stat is;
    size_t n = strlen(path) + 8;
    if (lstat(path, &is) == 0 && !S_ISREG(is.st_mode))
        return KILN_FAIL(KILN_E_IO, "pack %s: not a plain file", path);
    p->path = kiln_strdup(path);
    p->temp = kiln_alloc(n);
    if (!p->path || !p->temp) return KILN_NOMEM();
    snprintf(p->temp, n, "%s.XXXXXX", path);
    p->fd = mkostemp(p->temp, O_CLOEXEC);
    if (p->fd < 0) return KILN_FAIL(KILN_E_IO, "cannot create a file beside %s: %s", path, strerror(errno));
    return KILN_OK;
}

kiln_status kiln_packing_begin(const char *path, kiln_packing **out) {
    static const head none;
    kiln_packing *p = kiln_calloc(1, sizeof *p);
    if (!p) return KILN_NOMEM();
    p->fd = -1;
    kiln_sb_init(&p->pending);
    kiln_status st = open_temp(p, path);
    if (st == KILN_OK) st = put_bytes(p, &none, sizeof none, false); /* the head is written last */
    if (st != KILN_OK) {
        if (p->fd >= 0) unlink(p->temp);
        free_packing(p);
        return st;
    }
    p->at = sizeof none;
    *out = p;
    return KILN_OK;
}

/* Entries are kept as they come, and sorted at the end; of two with one digest the first one is kept. */
kiln_status kiln_packing_add(kiln_packing *p, const kiln_digest *d, const void *entry, size_t n) {
    if (p->count == COUNT_MAX || n > KILN_STORED_MAX)
        return KILN_FAIL(KILN_E_LIMIT, "a pack holds at most %d kernels of at most %d bytes", (int)COUNT_MAX,
                         (int)KILN_STORED_MAX);
    if (p->count == 0 || (p->count >= 64 && (p->count & (p->count - 1)) == 0)) { /* full */
        place *more = kiln_realloc(p->index, (p->count ? 2 * p->count : 64) * sizeof *more);
        if (!more) return KILN_NOMEM();
        p->index = more;
    }
    KILN_TRY(put_bytes(p, entry, n, false));
    p->index[p->count++] = (place){.digest = *d, .at = p->at, .nbytes = (uint32_t)n};
    p->at += n;
    return KILN_OK;
}

static int by_digest(const void *a, const void *b) {
    const place *x = a, *y = b;
    int order = compare_digests(&x->digest, &y->digest);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static void drop_twins(kiln_packing *p) {
    size_t n = 0;
    for (size_t k = 0; k < p->count; k++)
        if (!n || compare_digests(&p->index[n - 1].digest, &p->index[k].digest) != 0)
            p->index[n++] = p->index[k];
    p->count = n;
}

static kiln_status write_head(kiln_packing *p) {
    head h = {.format = FORMAT, .nhead = sizeof h, .count = p->count, .index_at = p->at};
    memcpy(h.magic, magic, sizeof magic);
    h.nbytes = p->at + p->count * sizeof *p->index;
    h.check = check_of(&h, p->index);
    if (pwrite(p->fd, &h, sizeof h, 0) != (ssize_t)sizeof h)
        return KILN_FAIL(KILN_E_IO, "pack %s: %s", p->path, strerror(errno));
    p->at = h.nbytes;
    return KILN_OK;
}

static kiln_status finish(kiln_packing *p) {
    static const place none;
    if (p->count) qsort(p->index, p->count, sizeof *p->index, by_digest);
    drop_twins(p);
    KILN_TRY(put_bytes(p, p->count ? p->index : &none, p->count * sizeof *p->index, true));
    KILN_TRY(write_head(p));
    if (fchmod(p->fd, 0644) != 0 || close(p->fd) != 0) {
        p->fd = -1;
        return KILN_FAIL(KILN_E_IO, "pack %s: %s", p->path, strerror(errno));
    }
    p->fd = -1;
    if (rename(p->temp, p->path) != 0) return KILN_FAIL(KILN_E_IO, "pack %s: %s", p->path, strerror(errno));
    return KILN_OK;
}

kiln_status kiln_packing_end(kiln_packing *p, bool keep, size_t *count, uint64_t *nbytes) {
    kiln_status st = keep ? finish(p) : KILN_OK;
    if (!keep || st != KILN_OK) unlink(p->temp);
    *count = p->count;
    *nbytes = p->at;
    free_packing(p);
    return st;
}
