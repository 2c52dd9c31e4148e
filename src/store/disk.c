/* disk.c - the store of kernels on disk: one file per kernel in the user's cache folder.
 *
 * Opens the folder when it is first needed and again when somebody removed it.  After three failed writes in
 * a row nothing is written for a minute; a folder that may not be opened is not tried for a minute.  Keeps the folder below its limit.  Must not know what is in an entry. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "store/folder.h"
#include "store/store.h"

#define READ_PS UINT64_C(60000000)   /* measured: 12 us where the file is in memory; disks take longer */
#define REST_NS INT64_C(60000000000) /* how long a folder that failed is left alone */
enum { FAILURES_IN_A_ROW = 3, PRUNE_TO = 90 /* percent of the limit */ };

typedef struct files {
    kiln_store store;
    atomic_int fd; /* of the folder; -1: not open.  The number never changes once it is set. */
    atomic_int_fast64_t rest_until; /* by kiln_clock_ns: nothing is tried before */
    atomic_int failures;            /* of writes, since the last one that worked */
    atomic_uint_fast64_t nbytes;    /* in the folder, by what this process knows; 0: not counted yet */
    atomic_bool said_key;           /* the log has heard that there is no key for a shared folder */
    pthread_mutex_t lock;           /* guards the rest, and who opens the folder */
    int lock_fd;
} files;

/* A shared folder is of no use without a key: nobody could tell who wrote an entry. */
static bool lacks_key(const files *f) { return f->store.needs_key && !f->store.host->key_path; }

static bool is_resting(files *f) { return kiln_clock_ns() < atomic_load(&f->rest_until); }

static void rest(files *f) { atomic_store(&f->rest_until, kiln_clock_ns() + REST_NS); }

/* Puts an open folder at the place of the descriptor.  Claims are on the lock file of the folder that goes, and end with it. */
static void replace_folder(files *f, int fd) {
    int old = atomic_load(&f->fd);
    if (old < 0) {
        atomic_store(&f->fd, fd);
    } else { /* threads may be using the number */
        (void)dup3(fd, old, O_CLOEXEC);
        close(fd);
    }
    if (f->lock_fd >= 0) close(f->lock_fd);
    f->lock_fd = -1;
    atomic_store(&f->nbytes, 0);
}

/* Opens the folder that `path` means now, unless another thread has done so.  A folder that may not be used is an error once a minute. */
static kiln_status open_folder(files *f, bool create) {
    int fd;
    const kiln_store_host *host = f->store.host;
    kiln_status st = kiln_folder_open(host->dir, create, host->is_shared, &fd);
    if (st == KILN_E_NOTFOUND && create) /* somebody removed it between its creation and the opening */
        st = kiln_folder_open(host->dir, create, host->is_shared, &fd);
    if (st == KILN_E_NOTFOUND && !create) return KILN_OK; /* nothing was ever stored */
    if (st != KILN_OK) {
        rest(f);
        kiln_store_count(&f->store, KILN_COUNTER_store_errors);
        return st;
    }
    pthread_mutex_lock(&f->lock);
    int old = atomic_load(&f->fd);
    if (old >= 0 && !kiln_folder_is_gone(old))
        close(fd);
    else
        replace_folder(f, fd);
    pthread_mutex_unlock(&f->lock);
    return KILN_OK;
}

static kiln_status folder_of(files *f, bool create, int *fd) {
    *fd = atomic_load(&f->fd);
    if (*fd >= 0 || is_resting(f)) return KILN_OK;
    KILN_TRY(open_folder(f, create));
    *fd = atomic_load(&f->fd);
    return KILN_OK;
}

/* -- get -------------------------------------------------------------------------------------------------------- */

static void drop(kiln_store *s, const kiln_digest *d) {
    int fd = atomic_load(&((files *)s)->fd);
    if (fd >= 0) (void)kiln_folder_remove(fd, d);
}

static kiln_status not_read(files *f, const kiln_digest *d, kiln_found found) {
    kiln_counter counter = found == KILN_FOUND_FOREIGN   ? KILN_COUNTER_foreign_entries
                           : found == KILN_FOUND_CORRUPT ? KILN_COUNTER_corrupt_entries
                                                         : KILN_COUNTER_store_errors;
    kiln_store_count(&f->store, counter);
    if (found != KILN_FOUND_ERROR) drop(&f->store, d);
    return KILN_E_IO; /* the folder has said why */
}

static kiln_status get(kiln_store *s, const kiln_digest *d, kiln_blob *out, bool *found) {
    files *f = (files *)s;
    kiln_file_bytes bytes;
    int fd;
    KILN_TRY(folder_of(f, false, &fd));
    if (fd < 0) return KILN_OK;
    kiln_found what = kiln_folder_read(fd, d, s->host->is_shared, false, &bytes);
    if (what == KILN_FOUND_NOT) return kiln_folder_is_gone(fd) ? open_folder(f, false) : KILN_OK;
    if (what != KILN_FOUND) return not_read(f, d, what);
    *found = true;
    *out = (kiln_blob){.entry = bytes.entry, .nentry = bytes.nentry};
    return KILN_OK;
}

static kiln_status peek(kiln_store *s, const kiln_digest *d, kiln_blob *out, bool *found) {
    kiln_file_bytes bytes;
    int fd;
    KILN_TRY(folder_of((files *)s, false, &fd));
    if (fd < 0) return KILN_OK;
    kiln_found what = kiln_folder_read(fd, d, s->host->is_shared, true,
                                       &bytes); /* with the source, so that no use is noted */
    if (what == KILN_FOUND_NOT) return KILN_OK;
    if (what != KILN_FOUND) return KILN_E_IO; /* the folder has said why */
    *found = true;
    *out = (kiln_blob){
        .entry = bytes.entry, .nentry = bytes.nentry, .source = bytes.source, .nsource = bytes.nsource};
    return KILN_OK;
}

static void place(const kiln_store *s, const kiln_digest *d, kiln_sb *out) {
    char id[KILN_DIGEST_TEXT];
    kiln_digest_print(d, id);
    kiln_sb_printf(out, "file: %s/" KILN_FOLDER_NAME "/%s.kernel\n", s->host->dir, id);
}

/* -- put -------------------------------------------------------------------------------------------------------- */

/* Counts what was written, and prunes if that was too much.  Other processes write, too, so pruning counts anew. */
static kiln_status stay_below(files *f, int fd, size_t wrote) {
    kiln_prune_report report;
    uint64_t most = f->store.host->nbytes_most;
    if (atomic_load(&f->nbytes) && atomic_fetch_add(&f->nbytes, wrote) + wrote <= most) return KILN_OK;
    KILN_TRY(kiln_folder_prune(fd, most, most / 100 * PRUNE_TO,
                               &report)); /* the first time this only counts, most often */
    kiln_count(f->store.host->epochs, KILN_COUNTER_pruned, report.nremoved);
    atomic_store(&f->nbytes, report.left_bytes + 1);
    return KILN_OK;
}

static kiln_status write_entry(files *f, const kiln_digest *d, const kiln_blob *b, int fd) {
    kiln_file_bytes bytes = {b->entry, b->source, b->nentry, b->nsource};
    return kiln_folder_write(fd, d, f->store.host->is_shared, &bytes);
}

static kiln_status put(kiln_store *s, const kiln_digest *d, kiln_blob *b) {
    files *f = (files *)s;
    int fd;
    if (lacks_key(f) && !atomic_exchange(&f->said_key, true))
        return KILN_FAIL(KILN_E_ARG,
                         "kernels are not kept: a shared cache folder needs a key: set KILN_KEY_FILE");
    if (!b->entry || lacks_key(f) || is_resting(f)) return KILN_OK;
    KILN_TRY(folder_of(f, true, &fd));
    if (fd < 0) return KILN_OK;
    kiln_status st = write_entry(f, d, b, fd);
    if (st == KILN_E_NOTFOUND) { /* the folder was removed while it was in use */
        KILN_TRY(open_folder(f, true));
        st = write_entry(f, d, b, fd);
    }
    if (st == KILN_OK) {
        atomic_store(&f->failures, 0);
        kiln_store_count(s, KILN_COUNTER_stored);
        return stay_below(f, fd, b->nentry + b->nsource);
    }
    kiln_store_count(s, KILN_COUNTER_store_errors);
    if (atomic_fetch_add(&f->failures, 1) + 1 >= FAILURES_IN_A_ROW) rest(f);
    return st;
}

/* -- who builds --------------------------------------------------------------------------------------------------- */

/* Claims are made under the lock, but without waiting for a disk: the lock file is open after the first one. */
static kiln_claim claim(kiln_store *s, const kiln_digest *d) {
    files *f = (files *)s;
    int fd = -1;
    if (lacks_key(f) || is_resting(f) || folder_of(f, true, &fd) != KILN_OK || fd < 0) {
        kiln_clear_error();
        return KILN_CLAIM_OURS;
    }
    pthread_mutex_lock(&f->lock);
    bool ours = kiln_folder_try_lock(fd, &f->lock_fd, d);
    pthread_mutex_unlock(&f->lock);
    return ours ? KILN_CLAIM_OURS : KILN_CLAIM_BUSY;
}

static void unclaim(kiln_store *s, const kiln_digest *d) {
    files *f = (files *)s;
    pthread_mutex_lock(&f->lock);
    kiln_folder_unlock(f->lock_fd, d);
    pthread_mutex_unlock(&f->lock);
}

/* -- forks, and the end --------------------------------------------------------------------------------------------- */

static void lock(kiln_store *s, bool on) {
    files *f = (files *)s;
    if (on)
        pthread_mutex_lock(&f->lock);
    else
        pthread_mutex_unlock(&f->lock);
}

/* The parent's claims live as long as any process has the lock file open as the parent opened it. */
static void forked(kiln_store *s) {
    files *f = (files *)s;
    if (f->lock_fd >= 0) close(f->lock_fd);
    f->lock_fd = -1;
}

static void doctor(kiln_store *s, kiln_sb *out) {
    const kiln_store_host *host = s->host;
    int fd;
    kiln_status st = kiln_folder_open(host->dir, false, host->is_shared, &fd);
    if (lacks_key((files *)s)) {
        kiln_sb_printf(out, "!kernels kept: not used: KILN_CACHE_SHARED needs KILN_KEY_FILE\n");
        if (st == KILN_OK) close(fd);
    } else if (st == KILN_E_NOTFOUND) {
        kiln_sb_printf(out, "kernels kept: none yet\n");
    } else if (st != KILN_OK) {
        kiln_sb_printf(out, "!kernels kept: not used: %s\n", kiln_last_error());
    } else {
        kiln_prune_report report;
        if (kiln_folder_prune(fd, UINT64_MAX, UINT64_MAX, &report) == KILN_OK)
            kiln_sb_printf(out, "kernels kept: %llu, %.1f MB\n", (unsigned long long)report.nleft,
                           (double)report.left_bytes / 1e6);
        close(fd);
    }
    kiln_clear_error();
}

static void close_files(kiln_store *s) {
    files *f = (files *)s;
    int fd = atomic_load(&f->fd);
    if (fd >= 0) close(fd);
    if (f->lock_fd >= 0) close(f->lock_fd);
    pthread_mutex_destroy(&f->lock);
    kiln_free(f);
}

kiln_status kiln_store_open_disk(const kiln_store_host *host, kiln_store **out) {
    if (host->in_memory || !host->dir[0]) return KILN_OK;
    files *f = kiln_calloc(1, sizeof *f);
    if (!f) return KILN_NOMEM();
    f->store = (kiln_store){.name = "disk",
                            .needs_key = host->is_shared,
                            .keeps_bytes = true,
                            .get = get,
                            .peek = peek,
                            .place = place,
                            .put = put,
                            .drop = drop,
                            .claim = claim,
                            .unclaim = unclaim,
                            .lock = lock,
                            .forked = forked,
                            .doctor = doctor,
                            .close = close_files};
    atomic_init(&f->store.price, READ_PS);
    atomic_init(&f->fd, -1);
    f->lock_fd = -1;
    pthread_mutex_init(&f->lock, NULL);
    *out = &f->store;
    return KILN_OK;
}
