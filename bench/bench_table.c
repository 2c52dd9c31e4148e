/* bench_table.c - instructions of a table hit among 100 classes and among 100,000.
 *
 * Objects are cheap (the code they would share is not looked at), keys as long as real ones and looked up in a
 * random order, so that every lookup hashes, probes and compares.  bench/table.sh counts instructions of the two
 * path_ functions; by itself the program prints nanoseconds, as JSON lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache/cache.h"

enum { KEY_BYTES = 88, LOOKUPS = 50000 };

typedef struct object {
    kiln_entry entry;
    uint8_t key[KEY_BYTES];
} object;

static void drop(kiln_entry *e) { kiln_free(e); }
static void no_user(void *user) { (void)user; }

static void die(const char *what) {
    fprintf(stderr, "bench_table: %s: %s\n", what, kiln_last_error());
    exit(1);
}

static void make_key(uint8_t *key, uint32_t which) {
    memset(key, 7, KEY_BYTES);
    memcpy(key + KEY_BYTES / 2, &which, sizeof which);
}

static kiln_cache *fill(kiln_epochs *d, uint32_t count) {
    kiln_cache *c;
    kiln_thread *t = kiln_thread_of(d);
    if (!t || kiln_cache_new(d, count, drop, &c) != KILN_OK) die("kiln_cache_new");
    kiln_thread_enter(d, t);
    for (uint32_t k = 0; k < count; k++) {
        kiln_entry *winner;
        object *o = kiln_calloc(1, sizeof *o);
        if (!o) die("out of memory");
        make_key(o->key, k);
        o->entry.key = o->key;
        o->entry.n = KEY_BYTES;
        o->entry.hash = kiln_hash64(o->key, KEY_BYTES);
        if (kiln_cache_put(c, &o->entry, &winner) != KILN_OK) die("kiln_cache_put");
    }
    kiln_thread_leave(t);
    return c;
}

/* What the call path does for a table hit, beside making the key. */
static inline size_t look_up(kiln_epochs *d, const kiln_cache *c, uint32_t count) {
    size_t found = 0;
    uint32_t which = 1;
    uint8_t key[KEY_BYTES];
    make_key(key, 0);
    for (int k = 0; k < LOOKUPS; k++) {
        which = (uint32_t)((which * UINT64_C(48271)) % 2147483647);
        uint32_t at = which % count;
        memcpy(key + KEY_BYTES / 2, &at, sizeof at);
        kiln_thread *t = kiln_thread_of(d);
        kiln_thread_enter(d, t);
        found += kiln_cache_get(c, kiln_hash64(key, KEY_BYTES), key, KEY_BYTES) != NULL;
        kiln_thread_leave(t);
    }
    return found;
}

__attribute__((noinline)) static size_t path_few(kiln_epochs *d, const kiln_cache *c, uint32_t count) {
    return look_up(d, c, count);
}

__attribute__((noinline)) static size_t path_many(kiln_epochs *d, const kiln_cache *c, uint32_t count) {
    return look_up(d, c, count);
}

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void run(kiln_epochs *d, uint32_t count, size_t (*path)(kiln_epochs *, const kiln_cache *, uint32_t)) {
    kiln_cache *c = fill(d, count);
    double start = now_ns();
    if (path(d, c, count) != LOOKUPS) die("a key is missing");
    printf("{\"bench\": \"table\", \"classes\": %u, \"ns\": %.1f}\n", (unsigned)count,
           (now_ns() - start) / LOOKUPS);
    kiln_cache_free(c);
}

int main(void) {
    kiln_epochs d;
    if (kiln_epochs_init(&d, NULL, no_user) != KILN_OK) die("kiln_epochs_init");
    run(&d, 100, path_few);
    run(&d, 100000, path_many);
    kiln_epochs_fini(&d);
    return 0;
}
