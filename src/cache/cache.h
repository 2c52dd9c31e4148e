/* cache.h - key bytes -> an object of the owner's, found again by any thread without a lock.
 *
 * Objects carry a kiln_entry.  Entries never change once they are in; the table grows by being replaced;
 * what is evicted is dropped when no reader can hold it.  At most `bound` entries stay,
 * those found since the hand of a clock last passed before others; pinned ones always.  Knows bytes, not
 * kernels or compilers. */
#ifndef KILN_CACHE_H
#define KILN_CACHE_H
#include "cache/epoch.h"

typedef struct kiln_cache kiln_cache;

/* Part of every object.  The owner sets key, n and hash before the insert. */
typedef struct kiln_entry {
    uint64_t hash; /* kiln_hash64 of the key */
    const void *key;
    uint32_t n;       /* bytes of key */
    uint32_t pins;    /* under the cache's lock: not evicted while > 0 */
    atomic_bool used; /* found since the clock's hand passed */
    bool out;         /* under the cache's lock: evicted */
    kiln_retired retired;
    void (*drop)(struct kiln_entry *e); /* the cache's */
} kiln_entry;

/* drop: called once for every entry that was inserted, when it is evicted and unseen or the cache is freed. */
kiln_status kiln_cache_new(kiln_epochs *d, size_t bound, void (*drop)(kiln_entry *e),
                           kiln_cache **out) KILN_MUST_CHECK;
void kiln_cache_free(kiln_cache *c); /* no thread may be inside */

/* Notes that e was of use.  Written only when clear, so that readers share the line. */
static inline void kiln_entry_touch(kiln_entry *e) {
    if (!atomic_load_explicit(&e->used, memory_order_relaxed))
        atomic_store_explicit(&e->used, true, memory_order_relaxed);
}

/* The entry of key, touched; NULL if absent.  Valid until the thread leaves. */
kiln_entry *kiln_cache_get(const kiln_cache *c, uint64_t hash, const void *key, size_t n);

/* Calls visit for every entry that is in the table when its cell is read; entries that are put meanwhile may be left out.  Ends with the
 * first status that is not KILN_OK, and returns it.  The caller is inside; visit may use the cache. */
kiln_status kiln_cache_each(const kiln_cache *c, kiln_status (*visit)(void *user, kiln_entry *e),
                            void *user) KILN_MUST_CHECK;

/* Inserts e, evicting another if there are too many.  *winner is e, or the entry another thread inserted first
 * (e is then still the caller's).  The caller is inside.  On failure nothing is inserted. */
kiln_status kiln_cache_put(kiln_cache *c, kiln_entry *e, kiln_entry **winner) KILN_MUST_CHECK;

/* Keeps e from being evicted until unpinned; pins are counted.  False if it has been evicted already. */
bool kiln_cache_pin(kiln_cache *c, kiln_entry *e);
void kiln_cache_unpin(kiln_cache *c, kiln_entry *e);

size_t kiln_cache_count(kiln_cache *c);
void kiln_cache_lock(kiln_cache *c, bool on); /* around a fork */
#endif
