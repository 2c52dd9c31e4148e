/* bench_streams.c - memory -> how long it takes to read it all, in 1, 2, 4 or 8 streams.
 *
 * A stream reads a part of its own from beginning to end, four vectors at a time; the streams of a thread take turns.
 * Which number is best depends on the machine's prefetchers, so all are tried.  All bits are or-ed: one operation a
 * vector, which waits for nothing but memory. */
#include <pthread.h>
#include <stdint.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "bench.h"

enum { MAX_THREADS = 64 };

#ifdef __SSE2__
typedef __m128i vec;
static vec either(vec a, const vec *p) { return _mm_or_si128(a, _mm_load_si128(p)); }
#else
typedef uint64_t vec;
static vec either(vec a, const vec *p) { return a | *p; }
#endif
enum { STEP = 4 * sizeof(vec), PIECE = 8 * STEP }; /* of one stream; of as many as there may be */

typedef struct part {
    const char *from;
    size_t nbytes; /* a multiple of PIECE */
    int streams;
    double begin, end; /* on the clock */
    vec seen;
    pthread_t thread;
} part;

/* Inlined once for each number of streams, so that the inner loop has a fixed count. */
static inline __attribute__((always_inline)) void read_streams(part *p, size_t streams) {
    size_t each = p->nbytes / streams;
    vec a = p->seen, b = a, c = a, d = a;
    for (size_t at = 0; at < each; at += STEP)
        for (size_t s = 0; s < streams; s++) {
            const vec *v = (const void *)(p->from + s * each + at);
            a = either(a, v), b = either(b, v + 1), c = either(c, v + 2), d = either(d, v + 3);
        }
    p->seen = either(either(either(a, &b), &c), &d);
    __asm__ volatile("" ::"r"(p) : "memory"); /* each reading counts */
}

static void *read_part(void *user) {
    part *p = user;
    p->begin = bench_now_ns();
    switch (p->streams) {
    case 1: read_streams(p, 1); break;
    case 2: read_streams(p, 2); break;
    case 4: read_streams(p, 4); break;
    default: read_streams(p, 8); break;
    }
    p->end = bench_now_ns();
    return NULL;
}

/* From the first that begins to the last that ends. */
static double elapsed(const part *parts, int n) {
    double begin = parts[0].begin, end = parts[0].end;
    for (int k = 1; k < n; k++) {
        if (parts[k].begin < begin) begin = parts[k].begin;
        if (parts[k].end > end) end = parts[k].end;
    }
    return end - begin;
}

double bench_streams_ns(const void *from, size_t nbytes, int streams, int threads) {
    part parts[MAX_THREADS];
    int n = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads, started = 1;
    size_t each = nbytes / (size_t)n / PIECE * PIECE;
    for (int k = 0; k < n; k++)
        parts[k] = (part){.from = (const char *)from + (size_t)k * each, .nbytes = each, .streams = streams};
    while (started < n && pthread_create(&parts[started].thread, NULL, read_part, &parts[started]) == 0)
        started++;
    (void)read_part(&parts[0]);
    for (int k = 1; k < started; k++) pthread_join(parts[k].thread, NULL);
    return started < n ? -1 : elapsed(parts, n);
}
