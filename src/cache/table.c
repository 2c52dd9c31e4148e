/* table.c - the memory table: open addressing over (hash, key bytes), one lock.
 *
 * The whole key is compared on a hit, so a hash collision costs a probe and never an answer.  Knows
 * nothing of what it stores. */
#include <pthread.h>
#include <string.h>

#include "cache/cache.h"

typedef struct slot {
    uint64_t hash;
    void *object; /* NULL: free */
    uint8_t *key;
    size_t n;
} slot;

struct kiln_cache {
    pthread_mutex_t lock;
    slot *slots;
    size_t cap, used; /* cap: a power of two, at most 3/4 used */
    void (*drop)(void *object);
};

enum { FIRST_CAP = 64 };

kiln_status kiln_cache_new(void (*drop)(void *object), kiln_cache **out) {
    kiln_cache *c = kiln_calloc(1, sizeof *c);
    slot *slots = kiln_calloc(FIRST_CAP, sizeof *slots);
    if (!c || !slots) {
        kiln_free(c);
        kiln_free(slots);
        return KILN_NOMEM();
    }
    pthread_mutex_init(&c->lock, NULL);
    c->slots = slots;
    c->cap = FIRST_CAP;
    c->drop = drop;
    *out = c;
    return KILN_OK;
}

void kiln_cache_free(kiln_cache *c) {
    if (!c) return;
    for (size_t k = 0; k < c->cap; k++) {
        if (!c->slots[k].object) continue;
        c->drop(c->slots[k].object);
        kiln_free(c->slots[k].key);
    }
    pthread_mutex_destroy(&c->lock);
    kiln_free(c->slots);
    kiln_free(c);
}

/* The slot that holds the key, or the free one where it belongs. */
static slot *find(slot *slots, size_t cap, uint64_t hash, const void *key, size_t n) {
    for (size_t k = hash & (cap - 1);; k = (k + 1) & (cap - 1)) {
        slot *s = &slots[k];
        if (!s->object) return s;
        if (s->hash == hash && s->n == n && memcmp(s->key, key, n) == 0) return s;
    }
}

static kiln_status grow(kiln_cache *c) {
    slot *slots = kiln_calloc(c->cap * 2, sizeof *slots);
    if (!slots) return KILN_NOMEM();
    for (size_t k = 0; k < c->cap; k++) {
        slot *s = &c->slots[k];
        if (s->object) *find(slots, c->cap * 2, s->hash, s->key, s->n) = *s;
    }
    kiln_free(c->slots);
    c->slots = slots;
    c->cap *= 2;
    return KILN_OK;
}

void *kiln_cache_get(kiln_cache *c, const void *key, size_t n) {
    uint64_t hash = kiln_hash64(key, n);
    pthread_mutex_lock(&c->lock);
    void *object = find(c->slots, c->cap, hash, key, n)->object;
    pthread_mutex_unlock(&c->lock);
    return object;
}

static kiln_status insert(kiln_cache *c, const void *key, size_t n, void *object, void **winner) {
    uint64_t hash = kiln_hash64(key, n);
    if (c->used * 4 >= c->cap * 3) KILN_TRY(grow(c));
    slot *s = find(c->slots, c->cap, hash, key, n);
    if (s->object) {
        *winner = s->object;
        return KILN_OK;
    }
    uint8_t *copy = kiln_alloc(n);
    if (!copy) return KILN_NOMEM();
    memcpy(copy, key, n);
    *s = (slot){hash, object, copy, n};
    c->used++;
    *winner = object;
    return KILN_OK;
}

kiln_status kiln_cache_put(kiln_cache *c, const void *key, size_t n, void *object, void **winner) {
    void *won = NULL;
    pthread_mutex_lock(&c->lock);
    kiln_status st = insert(c, key, n, object, &won);
    pthread_mutex_unlock(&c->lock);
    if (won != object) c->drop(object);
    if (st == KILN_OK) *winner = won;
    return st;
}

size_t kiln_cache_count(kiln_cache *c) {
    pthread_mutex_lock(&c->lock);
    size_t n = c->used;
    pthread_mutex_unlock(&c->lock);
    return n;
}
