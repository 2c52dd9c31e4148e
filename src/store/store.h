/* store.h - digest of what a kernel computes -> the kernel, without a compiler.
 *
 * Each store is a row of store.def and a file of this folder.  A store is asked for a kernel by digest (get), and is
 * given the kernels that other stores had or that were built (put).  src/api/obtain.c asks the
 * stores, the cheapest first, make_code.c builds, and pipeline.c puts kernels into the stores.  Stores know digests, code and bytes.  They must not know IR, classes or compilers. */
#ifndef KILN_STORE_H
#define KILN_STORE_H
#include <stdatomic.h>

#include "cache/epoch.h"
#include "store/stored.h"
#include "target/code.h"

typedef struct kiln_resident kiln_resident; /* a kernel in memory; all classes with equal IR share one */

/* A kernel on its way between stores, a build and a class.  A kernel from a build has an entry and code; one from a store
 * has an entry (a store that keeps bytes) or is resident.  kiln_blob_fini frees entry, source and code. */
typedef struct kiln_blob {
    size_t work; /* bytes of work that a launch of the kernel needs */
    void *entry; /* heap, as kiln_stored_write made it; NULL: not at hand */
    size_t nentry;
    void *source; /* heap, as kiln_stored_source made it; NULL: not at hand */
    size_t nsource;
    kiln_stored says; /* what the entry says; its texts point into the entry */
    kiln_code *code;  /* loaded, and known to agree with the interpreter; NULL: not loaded, or resident */
    kiln_resident
        *resident; /* what a class runs; NULL until the store `memory` has given or taken the kernel */
    size_t nbytes; /* of code that became resident with this blob; 0 where other classes had the kernel */
} kiln_blob;
void kiln_blob_fini(kiln_blob *b);

/* What stores may ask of the context that opened them. */
typedef struct kiln_store_host {
    kiln_epochs *epochs;     /* counts */
    const atomic_bool *stop; /* set when the context closes: whoever waits in a store returns then */
    void (*log)(void *user, int level, const char *topic, const char *text);
    void *user;             /* of log */
    bool in_memory;         /* nothing is read from or written to disks and servers */
    bool alone;             /* not even classes of this context share kernels */
    const char *dir;        /* the cache folder, "" if there is none; of entries its subfolder */
    uint64_t nbytes_most;   /* of all files of the folder */
    bool is_shared;         /* the folder may be writable by others; then every entry must be signed */
    const char *key_path;   /* the file that holds the user's key, or NULL */
    const char *packs;      /* paths of packs, with ':' between them, or NULL */
    const char *remote_url; /* or NULL */
} kiln_store_host;

/* What may be said of who builds a kernel that no store has. */
typedef enum kiln_claim {
    KILN_CLAIM_OURS, /* the caller may build it, and then gives the claim back */
    KILN_CLAIM_BUSY  /* another process is building it */
} kiln_claim;

typedef struct kiln_store kiln_store;
struct kiln_store {
    const char *name;
    kiln_counter counter; /* of classes that got their kernel here */
    _Atomic uint64_t
        price; /* what `get` takes, and loading and testing an object that it gives; in picoseconds */
    const kiln_store_host *host;
    bool needs_key;    /* entries that the user's key has not signed are refused */
    bool keeps_bytes;  /* `put` takes entries */
    atomic_bool empty; /* nothing was ever put, so that no digest has to be made */
    /* Looks for the kernel.  *found: whether it is here; *out is filled in only then: an entry, not yet checked, or a resident.  An error
     * counts as a miss, and is logged.  Any thread, several at once.  Gives up after some seconds: kiln_close and kiln_wait_idle
     * wait for it. */
    kiln_status (*get)(kiln_store *s, const kiln_digest *d, kiln_blob *out, bool *found);
    /* The same for people who only look: nothing is removed, and no use is noted.  NULL: `get` does neither. */
    kiln_status (*peek)(kiln_store *s, const kiln_digest *d, kiln_blob *out, bool *found);
    /* Appends a line "file: PATH" that says where the entry of a digest lies.  NULL: there is no such place. */
    void (*place)(const kiln_store *s, const kiln_digest *d, kiln_sb *out);
    /* Keeps the kernel if it wants to.  Any thread, several at once.  The store `memory` takes b->code over, and sets b->resident. */
    kiln_status (*put)(kiln_store *s, const kiln_digest *d, kiln_blob *b);
    /* Removes an entry that failed a check; NULL: the store cannot. */
    void (*drop)(kiln_store *s, const kiln_digest *d);
    /* Asks for the right to build a kernel, without waiting for whoever has it, and gives it back.  NULL: nobody shares the store. */
    kiln_claim (*claim)(kiln_store *s, const kiln_digest *d);
    void (*unclaim)(kiln_store *s, const kiln_digest *d);
    /* Calls visit with what each entry says, until visit fails.  NULL: nobody asks this store. */
    kiln_status (*each)(kiln_store *s, kiln_status (*visit)(void *user, const kiln_stored *says), void *user);
    /* Takes or gives the store's own lock, around a fork.  Nobody holds that lock while waiting for a disk or a network, as a fork
     * would wait, too; and no two stores share it.  NULL: there is no lock. */
    void (*lock)(kiln_store *s, bool on);
    void (*forked)(kiln_store *s); /* in the child of a fork, under the lock; NULL: nothing to do */
    void (*doctor)(kiln_store *s,
                   kiln_sb *out); /* appends lines as kiln_target's doctor does; NULL: nothing to say */
    void (*close)(kiln_store *s);
};

/* A store that takes no longer than this is asked by the call that makes a class; any other one in the background. */
#define KILN_STORE_AT_ONCE_PS UINT64_C(50000000)

static inline bool kiln_store_is_slow(const kiln_store *s) {
    return atomic_load_explicit(&s->price, memory_order_relaxed) > KILN_STORE_AT_ONCE_PS;
}

static inline bool kiln_store_is_empty(const kiln_store *s) {
    return atomic_load_explicit(&s->empty, memory_order_acquire);
}

static inline void kiln_store_count(const kiln_store *s, kiln_counter which) {
    kiln_count(s->host->epochs, which, 1);
}

/* -- the stores of a context (stores.c) ------------------------------------------------------------------ */

enum { KILN_STORES_MAX = 8 };
typedef struct kiln_stores {
    kiln_store *at[KILN_STORES_MAX]; /* cheapest first; at[0] is `memory` */
    int n;
    int nquick;      /* so many from the first on are not slow */
    bool keep_bytes; /* one of them takes entries */
    const kiln_store_host *host;
    pthread_mutex_t lock; /* guards key */
    kiln_key_file *key;   /* NULL until it is first asked for, and while it cannot be read */
} kiln_stores;

/* Opens the stores of store.def.  host: lives as long as the stores.  On failure none stays open. */
kiln_status kiln_stores_open(kiln_stores *stores, const kiln_store_host *host) KILN_MUST_CHECK;
/* Adds a store by its price, to be closed with the others.  Before the first call only. */
kiln_status kiln_stores_add(kiln_stores *stores, kiln_store *s) KILN_MUST_CHECK;
/* Asks one store, and checks an entry that it gives: *found is false where a check failed, which is counted, and the entry is dropped. */
kiln_status kiln_stores_get(kiln_stores *stores, kiln_store *s, const kiln_digest *d, kiln_blob *out,
                            bool *found) KILN_MUST_CHECK;
/* The user's key, read when it is first asked for, and again after a failure.  NULL in *key: none is configured. */
kiln_status kiln_stores_key(kiln_stores *stores, const kiln_key_file **key) KILN_MUST_CHECK;
/* BUSY: a store says that another process builds the kernel, and no claim is held. */
kiln_claim kiln_stores_claim(kiln_stores *stores, const kiln_digest *d);
void kiln_stores_unclaim(kiln_stores *stores, const kiln_digest *d);
void kiln_stores_lock(kiln_stores *stores, bool on); /* around a fork */
void kiln_stores_forked(kiln_stores *stores);        /* in the child, under the lock */
void kiln_stores_doctor(kiln_stores *stores, kiln_sb *out);
void kiln_stores_close(kiln_stores *stores);

/* -- kernels in memory (memory.c) ------------------------------------------------------------------------- */

const kiln_code *kiln_resident_code(const kiln_resident *r);
/* Ends one class's use.  Returns the bytes of code that this freed: 0 while other classes use the kernel. */
size_t kiln_resident_release(kiln_resident *r);

/* *out stays NULL where the host's settings leave the store out. */
#define STORE(name, counter) \
    kiln_status kiln_store_open_##name(const kiln_store_host *host, kiln_store **out) KILN_MUST_CHECK;
#include "store/store.def"
#undef STORE
#endif
