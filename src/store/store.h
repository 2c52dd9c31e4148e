/* store.h - digest of what a kernel computes -> the kernel, without a compiler.
 *
 * Each store is a row of store.def and a file of this folder.  A store is asked for a kernel by digest (get), and is
 * given the kernels that other stores had or that were built (put).  src/api/pipeline.c asks stores by price, then
 * builds, then puts.  Stores know digests, code and bytes.  They must not know IR, classes or compilers. */
#ifndef KILN_STORE_H
#define KILN_STORE_H
#include <stdatomic.h>

#include "cache/epoch.h"
#include "target/code.h"

typedef struct kiln_resident kiln_resident; /* a kernel in memory; all classes with equal IR share one */

/* A kernel on its way between stores, a build and a class.  A kernel from a build has an object and code; one from a store
 * has an object (a store that keeps bytes) or is resident.  Whoever fills a field in says who owns what it points at. */
typedef struct kiln_blob {
    size_t work;               /* bytes of work that a launch of the kernel needs */
    const kiln_object *object; /* as a compiler wrote it; NULL: not at hand */
    const char *symbol;        /* the kernel's function in the object */
    kiln_code *code; /* loaded, and known to agree with the interpreter; NULL: not loaded, or resident */
    kiln_resident
        *resident; /* what a class runs; NULL until the store `memory` has given or taken the kernel */
    size_t nbytes; /* of code that became resident with this blob; 0 where other classes had the kernel */
} kiln_blob;

typedef struct kiln_store kiln_store;
struct kiln_store {
    const char *name;
    kiln_counter counter; /* of classes that got their kernel here */
    _Atomic uint64_t
        price; /* what `get` takes, and loading and testing an object that it gives; in picoseconds */
    const atomic_bool *stop; /* set when the context closes: whoever waits in `get` or `put` returns then */
    atomic_bool empty;       /* nothing was ever put, so that no digest has to be made */
    /* Looks for the kernel.  *found: whether it is here; *out is filled in only then.  An error counts as a miss, and is logged.
     * An object in *out stays good until the same thread's next get.  Any thread, several at once.  Gives up after some
     * seconds: kiln_close and kiln_wait_idle wait for it. */
    kiln_status (*get)(kiln_store *s, const kiln_digest *d, kiln_blob *out, bool *found);
    /* Keeps the kernel if it wants to.  Any thread, several at once.  The store `memory` takes b->code over, and sets b->resident. */
    kiln_status (*put)(kiln_store *s, const kiln_digest *d, kiln_blob *b);
    /* Takes or gives the store's own lock, around a fork.  Nobody holds that lock while waiting for a disk or a network, as a fork
     * would wait, too; and no two stores share it.  NULL: there is no lock. */
    void (*lock)(kiln_store *s, bool on);
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

/* -- the stores of a context (stores.c) ------------------------------------------------------------------ */

enum { KILN_STORES_MAX = 8 };
typedef struct kiln_stores {
    kiln_store *at[KILN_STORES_MAX]; /* cheapest first; at[0] is `memory` */
    int n;
    int nquick; /* so many from the first on are not slow */
    const atomic_bool *stop;
} kiln_stores;

/* Opens the stores of store.def.  On failure none stays open. */
kiln_status kiln_stores_open(kiln_stores *stores, const atomic_bool *stop) KILN_MUST_CHECK;
/* Adds a store by its price, to be closed with the others.  Before the first call only. */
kiln_status kiln_stores_add(kiln_stores *stores, kiln_store *s) KILN_MUST_CHECK;
void kiln_stores_lock(kiln_stores *stores, bool on); /* around a fork */
void kiln_stores_close(kiln_stores *stores);

/* -- kernels in memory (memory.c) ------------------------------------------------------------------------- */

const kiln_code *kiln_resident_code(const kiln_resident *r);
/* Ends one class's use.  Returns the bytes of code that this freed: 0 while other classes use the kernel. */
size_t kiln_resident_release(kiln_resident *r);

#define STORE(name, counter) kiln_status kiln_store_open_##name(kiln_store **out) KILN_MUST_CHECK;
#include "store/store.def"
#undef STORE
#endif
