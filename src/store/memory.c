/* memory.c - the store of kernels in memory, one for each context: classes with equal IR share one kernel.
 *
 * A kernel is freed when the last class that runs it is freed; the store itself does not keep a kernel alive.  A table with
 * chains finds kernels by digest, under one lock, which is taken when a class is made, built or freed, and never by a call of a class that exists.  Must not know how a kernel came about. */
#include <pthread.h>

#include "store/store.h"

enum { FIRST_CHAINS = 64 };         /* a power of two, as all later sizes */
#define LOOK_UP_PS UINT64_C(200000) /* measured: a look-up under the lock takes about 0.2 us */

typedef struct memory memory;
struct kiln_resident {
    kiln_digest digest;
    kiln_code *code;
    size_t work;
    memory *home;
    size_t users; /* under the lock: classes that run the kernel */
    kiln_resident *next;
};

struct memory {
    kiln_store store;
    pthread_mutex_t lock; /* guards the rest */
    kiln_resident **chain;
    size_t nchains, count;
};

/* -- the table: all under the lock ------------------------------------------------------------------------- */

static kiln_resident **chain_of(const memory *m, const kiln_digest *d) {
    return &m->chain[d->lo & (m->nchains - 1)];
}

static kiln_resident *find(const memory *m, const kiln_digest *d) {
    kiln_resident *r = *chain_of(m, d);
    while (r && (r->digest.lo != d->lo || r->digest.hi != d->hi)) r = r->next;
    return r;
}

static void insert(memory *m, kiln_resident *r) {
    kiln_resident **chain = chain_of(m, &r->digest);
    r->next = *chain;
    *chain = r;
    m->count++;
}

static void take_out(memory *m, kiln_resident *r) {
    kiln_resident **link = chain_of(m, &r->digest);
    while (*link != r) link = &(*link)->next;
    *link = r->next;
    m->count--;
}

/* Without memory for more chains, those there are grow longer. */
static void grow(memory *m) {
    memory larger = {.nchains = m->nchains * 2};
    larger.chain = kiln_calloc(larger.nchains, sizeof *larger.chain);
    if (!larger.chain) return;
    for (size_t k = 0; k < m->nchains; k++) {
        for (kiln_resident *r = m->chain[k], *next; r; r = next) {
            next = r->next;
            insert(&larger, r);
        }
    }
    kiln_free(m->chain);
    m->chain = larger.chain;
    m->nchains = larger.nchains;
}

/* -- the store ----------------------------------------------------------------------------------------------- */

static kiln_status get(kiln_store *s, const kiln_digest *d, kiln_blob *out, bool *found) {
    memory *m = (memory *)s;
    pthread_mutex_lock(&m->lock);
    kiln_resident *r = find(m, d);
    if (r) r->users++;
    pthread_mutex_unlock(&m->lock);
    *found = r != NULL;
    if (r) *out = (kiln_blob){.work = r->work, .resident = r};
    return KILN_OK;
}

/* Of two classes with equal IR that were built at the same time, the second one gets the kernel of the first. */
static kiln_status put(kiln_store *s, const kiln_digest *d, kiln_blob *b) {
    memory *m = (memory *)s;
    if (b->resident) return KILN_OK; /* the kernel came from here */
    kiln_resident *made = kiln_calloc(1, sizeof *made);
    if (!made) return KILN_NOMEM();
    pthread_mutex_lock(&m->lock);
    kiln_resident *r = s->get == get ? find(m, d) : NULL;
    if (!r) {
        *made = (kiln_resident){.digest = *d, .code = b->code, .work = b->work, .home = m};
        if (m->count >= m->nchains) grow(m);
        insert(m, made);
        r = made;
    }
    r->users++;
    pthread_mutex_unlock(&m->lock);
    if (r != made) {
        kiln_code_free(b->code);
        kiln_free(made);
    }
    atomic_store_explicit(&s->empty, false, memory_order_release);
    b->nbytes = r == made ? kiln_code_nbytes(r->code) : 0;
    b->code = NULL;
    b->resident = r;
    return KILN_OK;
}

static void lock(kiln_store *s, bool on) {
    memory *m = (memory *)s;
    if (on)
        pthread_mutex_lock(&m->lock);
    else
        pthread_mutex_unlock(&m->lock);
}

/* Classes are freed first, and their kernels with them. */
static void close_memory(kiln_store *s) {
    memory *m = (memory *)s;
    pthread_mutex_destroy(&m->lock);
    kiln_free(m->chain);
    kiln_free(m);
}

/* Where each class is to have a kernel of its own. */
static kiln_status get_none(kiln_store *s, const kiln_digest *d, kiln_blob *out, bool *found) {
    (void)s, (void)d, (void)out;
    *found = false;
    return KILN_OK;
}

kiln_status kiln_store_open_memory(const kiln_store_host *host, kiln_store **out) {
    memory *m = kiln_calloc(1, sizeof *m);
    kiln_resident **chain = kiln_calloc(FIRST_CHAINS, sizeof *chain);
    if (!m || !chain) {
        kiln_free(m);
        kiln_free(chain);
        return KILN_NOMEM();
    }
    m->store = (kiln_store){.name = "memory",
                            .get = host->alone ? get_none : get,
                            .put = put,
                            .lock = lock,
                            .close = close_memory};
    atomic_init(&m->store.price, LOOK_UP_PS);
    atomic_init(&m->store.empty, true);
    m->chain = chain;
    m->nchains = FIRST_CHAINS;
    pthread_mutex_init(&m->lock, NULL);
    *out = &m->store;
    return KILN_OK;
}

/* -- residents ------------------------------------------------------------------------------------------------- */

const kiln_code *kiln_resident_code(const kiln_resident *r) { return r->code; }

size_t kiln_resident_release(kiln_resident *r) {
    memory *m = r->home;
    pthread_mutex_lock(&m->lock);
    bool last = --r->users == 0;
    if (last) take_out(m, r);
    pthread_mutex_unlock(&m->lock);
    if (!last) return 0;
    size_t nbytes = kiln_code_nbytes(r->code);
    kiln_code_free(r->code);
    kiln_free(r);
    return nbytes;
}
