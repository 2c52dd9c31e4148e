/* alloc.c - the heap and arenas.
 *
 * Every allocation of the library passes here, so that tests can make the n-th one fail, count them and
 * measure how much memory was taken at once.  Arenas hand out zero-filled memory from chunks that are
 * freed together. */
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static atomic_bool watched;        /* whether a test has asked for any of these */
static atomic_long fail_countdown; /* 0: off; 1: fail; n > 1: n - 1 more succeed */
static atomic_long made;           /* allocations since the last kiln_alloc_fail_after */
static atomic_long live, peak;     /* bytes since the last kiln_alloc_peak_reset; older memory may be freed */

long kiln_alloc_fail_after(long n) {
    atomic_store(&watched, true);
    atomic_store(&fail_countdown, n);
    return atomic_exchange(&made, 0);
}

void kiln_alloc_peak_reset(void) {
    atomic_store(&watched, true);
    atomic_store(&live, 0);
    atomic_store(&peak, 0);
}

size_t kiln_alloc_peak(void) { return (size_t)atomic_load(&peak); }

/* Unless a test watches, this is one relaxed load, here and in the two functions below. */
static bool is_watched(void) { return atomic_load_explicit(&watched, memory_order_relaxed); }

/* Counts one allocation and says whether it must fail. */
static bool must_fail(void) {
    long left = is_watched() ? atomic_load(&fail_countdown) : 0;
    if (left == 0) return false;
    atomic_fetch_add(&made, 1);
    if (left == 1) return true;
    atomic_fetch_sub(&fail_countdown, 1);
    return false;
}

static void *count_up(void *p) {
    if (!p || !is_watched()) return p;
    long now = atomic_fetch_add(&live, (long)malloc_usable_size(p)) + (long)malloc_usable_size(p);
    for (long most = atomic_load(&peak); now > most;)
        if (atomic_compare_exchange_weak(&peak, &most, now)) break;
    return p;
}

static void count_down(void *p) {
    if (p && is_watched()) atomic_fetch_sub(&live, (long)malloc_usable_size(p));
}

void *kiln_alloc(size_t nbytes) { return must_fail() ? NULL : count_up(malloc(nbytes ? nbytes : 1)); }

void *kiln_calloc(size_t count, size_t nbytes) {
    return must_fail() ? NULL : count_up(calloc(count ? count : 1, nbytes ? nbytes : 1));
}

/* While a block moves, both places are taken. */
void *kiln_realloc(void *p, size_t nbytes) {
    if (must_fail()) return NULL;
    if (!is_watched()) return realloc(p, nbytes ? nbytes : 1);
    size_t old = p ? malloc_usable_size(p) : 0;
    void *q = count_up(realloc(p, nbytes ? nbytes : 1));
    if (q) atomic_fetch_sub(&live, (long)old);
    return q;
}

void *kiln_alloc_aligned(size_t align, size_t nbytes) {
    void *p = NULL;
    if (must_fail() || posix_memalign(&p, align, nbytes ? nbytes : 1) != 0) return NULL;
    return count_up(p);
}

void *kiln_calloc_apart(size_t nbytes) {
    enum { LINES = 128 };
    size_t n = (nbytes + LINES - 1) / LINES * LINES;
    void *p = kiln_alloc_aligned(LINES, n);
    return p ? memset(p, 0, n) : NULL;
}

void kiln_free(void *p) {
    count_down(p);
    free(p);
}

char *kiln_strdup(const char *s) {
    size_t n = strlen(s) + 1;
    char *p = kiln_alloc(n);
    if (p) memcpy(p, s, n);
    return p;
}

/* -- arenas -------------------------------------------------------------------------------------- */

enum { CHUNK_MIN = 4096, CHUNK_MAX = 1 << 18, ALIGN = 16 };

typedef struct kiln_arena_chunk {
    struct kiln_arena_chunk *before;
    size_t used, cap; /* bytes of data */
    _Alignas(ALIGN) char data[];
} chunk;

void kiln_arena_init(kiln_arena *a) {
    a->head = NULL;
    a->nbytes = 0;
}

void kiln_arena_free(kiln_arena *a) {
    for (chunk *c = a->head; c;) {
        chunk *before = c->before;
        kiln_free(c);
        c = before;
    }
    kiln_arena_init(a);
}

static chunk *new_chunk(kiln_arena *a, size_t need) {
    size_t cap = a->head ? a->head->cap * 2 : CHUNK_MIN;
    if (cap > CHUNK_MAX) cap = CHUNK_MAX;
    if (cap < need) cap = need;
    chunk *c = kiln_calloc(1, sizeof *c + cap);
    if (!c) return NULL;
    c->before = a->head;
    c->cap = cap;
    a->head = c;
    a->nbytes += sizeof *c + cap;
    return c;
}

void *kiln_arena_alloc(kiln_arena *a, size_t nbytes) {
    if (nbytes > SIZE_MAX / 2) return NULL;
    size_t need = (nbytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    chunk *c = a->head;
    if (!c || c->cap - c->used < need) c = new_chunk(a, need);
    if (!c) return NULL;
    void *p = c->data + c->used;
    c->used += need;
    return p;
}

void *kiln_arena_grow(kiln_arena *a, void *items, size_t n, size_t nbytes) {
    if (n & (n - 1)) return items;
    void *grown = kiln_arena_alloc(a, (n ? 2 * n : 1) * nbytes);
    if (grown && n) memcpy(grown, items, n * nbytes);
    return grown;
}

char *kiln_arena_strndup(kiln_arena *a, const char *s, size_t n) {
    char *p = kiln_arena_alloc(a, n + 1);
    if (p) memcpy(p, s, n);
    return p;
}
