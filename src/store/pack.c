/* pack.c - the store of kernels that came in packs: those that KILN_PACK names, and the one that ships with Kiln.
 *
 * Kiln opens the packs when this store is first asked, and never writes to them.  It skips a pack that it cannot use; the log and
 * `kiln doctor` say why.
 * Must not know how a pack is laid out, or what is in an entry. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "store/packfile.h"
#include "store/store.h"

enum { PACKS_MAX = 16 };
#define READ_PS UINT64_C(4000000) /* measured: 3 to 4 us where the pack is in memory */

typedef struct packs {
    kiln_store store;
    pthread_mutex_t lock;
    atomic_bool is_open; /* what follows does not change any more */
    int n;
    kiln_packfile *at[PACKS_MAX];
    kiln_sb faults; /* lines for the doctor */
} packs;

/* -- opening ------------------------------------------------------------------------------------------------- */

/* Under the lock.  A pack that nobody named may be missing. */
static void open_one(packs *p, const char *path, bool is_named) {
    if (p->n == PACKS_MAX) return;
    kiln_status st = kiln_packfile_open(path, &p->at[p->n]);
    if (st == KILN_OK) {
        p->n++;
    } else if (is_named || st != KILN_E_NOTFOUND) {
        kiln_store_count(&p->store, KILN_COUNTER_store_errors);
        kiln_sb_printf(&p->faults, "!pack: %s\n", kiln_last_error());
        p->store.host->log(p->store.host->user, 1, "store", kiln_last_error());
    }
    kiln_clear_error();
}

static void open_named(packs *p, const char *paths) {
    while (paths && *paths) {
        size_t n = strcspn(paths, ":");
        char *path = kiln_alloc(n + 1);
        if (!path) return;
        memcpy(path, paths, n);
        path[n] = 0;
        if (n) open_one(p, path, true);
        kiln_free(path);
        paths += n + (paths[n] == ':');
    }
}

/* Beside the library, or beside the program that has the library in it. */
static void open_shipped(packs *p) {
    static const char *const places[] = {"kernels.pack", "kiln/kernels.pack", "../lib/kiln/kernels.pack",
                                         "../kiln/kernels.pack"};
    static const char here;
    Dl_info info;
    if (!dladdr(&here, &info) || !info.dli_fname) return;
    const char *slash = strrchr(info.dli_fname, '/');
    int folder = slash ? (int)(slash - info.dli_fname) + 1 : 0, before = p->n;
    for (size_t k = 0; k < sizeof places / sizeof *places && p->n == before; k++) {
        kiln_sb path;
        kiln_sb_init(&path);
        kiln_sb_printf(&path, "%.*s%s", folder, info.dli_fname, places[k]);
        if (!path.failed) open_one(p, path.p, false);
        kiln_sb_fini(&path);
    }
}

static void open_all(packs *p) {
    if (atomic_load_explicit(&p->is_open, memory_order_acquire)) return;
    pthread_mutex_lock(&p->lock);
    if (!atomic_load_explicit(&p->is_open, memory_order_relaxed)) {
        int quiet = kiln_quiet(0); /* why a pack is not used is logged */
        open_named(p, p->store.host->packs);
        open_shipped(p);
        (void)kiln_quiet(quiet);
        atomic_store_explicit(&p->store.empty, p->n == 0, memory_order_release);
        atomic_store_explicit(&p->is_open, true, memory_order_release);
    }
    pthread_mutex_unlock(&p->lock);
}

/* -- the store -------------------------------------------------------------------------------------------------- */

static kiln_status get(kiln_store *s, const kiln_digest *d, kiln_blob *out, bool *found) {
    packs *p = (packs *)s;
    open_all(p);
    for (int k = 0; k < p->n && !*found; k++) {
        kiln_status st = kiln_packfile_find(p->at[k], d, &out->entry, &out->nentry, found);
        if (st == KILN_OK) continue;
        *found = false;
        kiln_store_count(s, KILN_COUNTER_store_errors);
        return st;
    }
    return KILN_OK;
}

static kiln_status put(kiln_store *s, const kiln_digest *d, kiln_blob *b) {
    (void)s, (void)d, (void)b;
    return KILN_OK;
}

static kiln_status visit_pack(const kiln_packfile *p,
                              kiln_status (*visit)(void *user, const kiln_stored *says), void *user) {
    for (size_t k = 0; k < kiln_packfile_count(p); k++) {
        kiln_stored says;
        kiln_digest d;
        void *entry;
        size_t n;
        KILN_TRY(kiln_packfile_at(p, k, &d, &entry, &n));
        kiln_status st = KILN_OK;
        if (kiln_stored_read(entry, n, &d, NULL, &says) == KILN_STORED_FINE) st = visit(user, &says);
        kiln_free(entry);
        KILN_TRY(st);
    }
    return KILN_OK;
}

static kiln_status each(kiln_store *s, kiln_status (*visit)(void *user, const kiln_stored *says),
                        void *user) {
    packs *p = (packs *)s;
    open_all(p);
    for (int k = 0; k < p->n; k++) KILN_TRY(visit_pack(p->at[k], visit, user));
    return KILN_OK;
}

static void lock(kiln_store *s, bool on) {
    packs *p = (packs *)s;
    if (on)
        pthread_mutex_lock(&p->lock);
    else
        pthread_mutex_unlock(&p->lock);
}

static void doctor(kiln_store *s, kiln_sb *out) {
    packs *p = (packs *)s;
    open_all(p);
    for (int k = 0; k < p->n; k++)
        kiln_sb_printf(out, "pack: %s: %zu kernels, %.1f MB\n", kiln_packfile_path(p->at[k]),
                       kiln_packfile_count(p->at[k]), (double)kiln_packfile_nbytes(p->at[k]) / 1e6);
    if (p->faults.len) kiln_sb_puts(out, p->faults.p);
}

static void close_packs(kiln_store *s) {
    packs *p = (packs *)s;
    for (int k = 0; k < p->n; k++) kiln_packfile_close(p->at[k]);
    kiln_sb_fini(&p->faults);
    pthread_mutex_destroy(&p->lock);
    kiln_free(p);
}

kiln_status kiln_store_open_pack(const kiln_store_host *host, kiln_store **out) {
    if (host->in_memory) return KILN_OK;
    packs *p = kiln_calloc(1, sizeof *p);
    if (!p) return KILN_NOMEM();
    p->store = (kiln_store){.name = "pack",
                            .get = get,
                            .put = put,
                            .each = each,
                            .lock = lock,
                            .doctor = doctor,
                            .close = close_packs};
    atomic_init(&p->store.price, READ_PS);
    atomic_init(&p->is_open, false);
    pthread_mutex_init(&p->lock, NULL);
    kiln_sb_init(&p->faults);
    *out = &p->store;
    return KILN_OK;
}
