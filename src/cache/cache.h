/* cache.h - key bytes -> an object of the owner's, found again by any thread.
 *
 * Knows bytes and pointers, not kernels or compilers.  Objects live until the cache is freed. */
#ifndef KILN_CACHE_H
#define KILN_CACHE_H
#include "base/base.h"

typedef struct kiln_cache kiln_cache;

/* drop: called once for every object when the cache is freed, or when an insert loses a race. */
kiln_status kiln_cache_new(void (*drop)(void *object), kiln_cache **out) KILN_MUST_CHECK;
void kiln_cache_free(kiln_cache *c);

void *kiln_cache_get(kiln_cache *c, const void *key, size_t n); /* borrowed; NULL if absent */

/* Inserts object under key.  *winner is it, or the object another thread inserted first (object is then
 * dropped).  On failure object is dropped too. */
kiln_status kiln_cache_put(kiln_cache *c, const void *key, size_t n, void *object,
                           void **winner) KILN_MUST_CHECK;
size_t kiln_cache_count(kiln_cache *c);
#endif
