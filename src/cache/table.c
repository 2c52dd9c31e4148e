/* table.c - the memory table: open addressing over entries, read with acquire loads, written under a lock.
 *
 * A cell goes from free to an entry, from an entry to the tombstone and back, so a reader that meets any
 * of them while it changes finds its key or misses it; a miss looks again under the lock.  The whole key
 * is compared, so a hash collision costs a probe and never an answer.  Less than half of the cells are in
 * use.  Knows nothing of what it stores. */
#include <string.h>

#include "cache/cache.h"

enum { FIRST_CAP = 64 };

typedef struct table {
    kiln_retired retired;
    size_t mask; /* cells - 1; their number is a power of two */
    _Atomic(kiln_entry *) cell[];
} table;

struct kiln_cache {
    _Atomic(table *) now;
    kiln_epochs *epochs;
    size_t bound;
    void (*drop)(kiln_entry *e);
    pthread_mutex_t lock; /* guards what follows, and all writing */
    size_t count;         /* entries */
    size_t filled;        /* cells that are not free: entries and tombstones */
    size_t hand;          /* of the clock */
};

static kiln_entry tombstone; /* no key has n = 0 */

static kiln_entry *at(const table *t, size_t k) {
    return atomic_load_explicit(&t->cell[k], memory_order_acquire);
}

static table *new_table(size_t cap) {
    table *t = kiln_calloc(1, sizeof *t + cap * sizeof *t->cell);
    if (t) t->mask = cap - 1;
    return t;
}

static void drop_table(kiln_retired *r) { kiln_free(r); /* the table's first member */ }

kiln_status kiln_cache_new(kiln_epochs *d, size_t bound, void (*drop)(kiln_entry *e), kiln_cache **out) {
    kiln_cache *c = kiln_calloc(1, sizeof *c);
    table *t = new_table(FIRST_CAP);
    if (!c || !t) {
        kiln_free(c);
        kiln_free(t);
        return KILN_NOMEM();
    }
    atomic_init(&c->now, t);
    c->epochs = d;
    c->bound = bound;
    c->drop = drop;
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return KILN_OK;
}

void kiln_cache_free(kiln_cache *c) {
    if (!c) return;
    table *t = atomic_load(&c->now);
    for (size_t k = 0; k <= t->mask; k++)
        if (at(t, k) && at(t, k) != &tombstone) c->drop(at(t, k));
    pthread_mutex_destroy(&c->lock);
    kiln_free(t);
    kiln_free(c);
}

/* -- reading ---------------------------------------------------------------------------------------- */

static kiln_entry *find(const table *t, uint64_t hash, const void *key, size_t n) {
    for (size_t k = hash & t->mask;; k = (k + 1) & t->mask) {
        kiln_entry *e = at(t, k);
        if (!e) return NULL;
        if (e->hash == hash && e->n == n && memcmp(e->key, key, n) == 0) return e;
    }
}

kiln_entry *kiln_cache_get(const kiln_cache *c, uint64_t hash, const void *key, size_t n) {
    kiln_entry *e = find(atomic_load_explicit(&c->now, memory_order_acquire), hash, key, n);
    if (e) kiln_entry_touch(e);
    return e;
}

kiln_status kiln_cache_each(const kiln_cache *c, kiln_status (*visit)(void *user, kiln_entry *e),
                            void *user) {
    const table *t = atomic_load_explicit(&c->now,
                                          memory_order_acquire); /* stays while the caller is inside */
    for (size_t k = 0; k <= t->mask; k++) {
        kiln_entry *e = at(t, k);
        if (e && e != &tombstone) KILN_TRY(visit(user, e));
    }
    return KILN_OK;
}

/* -- writing, under the lock ------------------------------------------------------------------------ */

/* The first cell of e's chain that is free, or with `or_tombstone` also one that was. */
static size_t free_cell(const table *t, uint64_t hash, bool or_tombstone) {
    size_t k = hash & t->mask;
    while (at(t, k) && !(or_tombstone && at(t, k) == &tombstone)) k = (k + 1) & t->mask;
    return k;
}

/* Replaces the table by one without tombstones in which a quarter of the cells is used at most.  *old is for
 * the caller to retire. */
static kiln_status rebuild(kiln_cache *c, table **old) {
    size_t cap = FIRST_CAP;
    while (cap < (c->count + 1) * 4) cap *= 2;
    table *was = atomic_load_explicit(&c->now, memory_order_relaxed), *t = new_table(cap);
    if (!t) return KILN_NOMEM();
    for (size_t k = 0; k <= was->mask; k++) {
        kiln_entry *e = at(was, k);
        if (e && e != &tombstone)
            atomic_store_explicit(&t->cell[free_cell(t, e->hash, false)], e, memory_order_relaxed);
    }
    atomic_store_explicit(&c->now, t, memory_order_release);
    c->filled = c->count;
    c->hand = 0;
    *old = was;
    return KILN_OK;
}

/* Second chance: the hand clears marks until it meets an entry that has none.  NULL if all are pinned. */
static kiln_entry *evict(kiln_cache *c) {
    table *t = atomic_load_explicit(&c->now, memory_order_relaxed);
    for (size_t tries = 0; tries < 2 * (t->mask + 1); tries++) {
        size_t k = c->hand++ & t->mask;
        kiln_entry *e = at(t, k);
        if (!e || e == &tombstone || e->pins) continue;
        if (atomic_load_explicit(&e->used, memory_order_relaxed)) {
            atomic_store_explicit(&e->used, false, memory_order_relaxed);
            continue;
        }
        atomic_store_explicit(&t->cell[k], &tombstone, memory_order_release);
        e->out = true;
        c->count--;
        return e;
    }
    return NULL;
}

static void place(kiln_cache *c, kiln_entry *e) {
    table *t = atomic_load_explicit(&c->now, memory_order_relaxed);
    size_t k = free_cell(t, e->hash, true);
    if (!at(t, k)) c->filled++;
    atomic_store_explicit(&t->cell[k], e, memory_order_release);
    c->count++;
}

/* -- inserting -------------------------------------------------------------------------------------- */

/* What an insert took out, for the caller to retire without the lock. */
typedef struct leftovers {
    table *table;
    kiln_retired *entries;
} leftovers;

static kiln_status insert(kiln_cache *c, kiln_entry *e, kiln_entry **winner, leftovers *left) {
    const table *t = atomic_load_explicit(&c->now, memory_order_relaxed);
    *winner = find(t, e->hash, e->key, e->n);
    if (*winner) return KILN_OK;
    if ((c->filled + 1) * 2 > t->mask) KILN_TRY(rebuild(c, &left->table));
    for (kiln_entry *old; c->count >= c->bound && (old = evict(c)); left->entries = &old->retired)
        old->retired.next = left->entries;
    place(c, e);
    *winner = e;
    return KILN_OK;
}

static void drop_entry(kiln_retired *r) {
    kiln_entry *e = (kiln_entry *)((char *)r - offsetof(kiln_entry, retired));
    e->drop(e);
}

kiln_status kiln_cache_put(kiln_cache *c, kiln_entry *e, kiln_entry **winner) {
    leftovers left = {0};
    e->drop = c->drop;
    atomic_store_explicit(&e->used, true, memory_order_relaxed);
    pthread_mutex_lock(&c->lock);
    kiln_status st = insert(c, e, winner, &left);
    pthread_mutex_unlock(&c->lock);
    if (left.table) kiln_retire(c->epochs, &left.table->retired, drop_table);
    for (kiln_retired *r = left.entries, *next; r; r = next) {
        next = r->next;
        kiln_count(c->epochs, KILN_COUNTER_evictions, 1);
        kiln_retire(c->epochs, r, drop_entry);
    }
    return st;
}

/* -- pins ------------------------------------------------------------------------------------------- */

bool kiln_cache_pin(kiln_cache *c, kiln_entry *e) {
    pthread_mutex_lock(&c->lock);
    bool in = !e->out;
    if (in) e->pins++;
    pthread_mutex_unlock(&c->lock);
    return in;
}

void kiln_cache_unpin(kiln_cache *c, kiln_entry *e) {
    pthread_mutex_lock(&c->lock);
    e->pins--;
    pthread_mutex_unlock(&c->lock);
}

size_t kiln_cache_count(kiln_cache *c) {
    pthread_mutex_lock(&c->lock);
    size_t n = c->count;
    pthread_mutex_unlock(&c->lock);
    return n;
}

void kiln_cache_lock(kiln_cache *c, bool on) {
    if (on)
        pthread_mutex_lock(&c->lock);
    else
        pthread_mutex_unlock(&c->lock);
}
