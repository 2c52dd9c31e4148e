/* plain_lists.c - what loops over lists of tensors cost without anything around them: plain C, for bench/peers_lists.py.
 *
 * An addition in place and a step of AdamW, of f32, each one pass over all tensors: no checks, no calls, the
 * compiler's own vectors.  One thread of it shows what memory allows where lists are larger than caches.  More threads are
 * started for each call and have equal parts, which is not the best that can be done. */
#include <math.h>
#include <pthread.h>

enum { LISTS = 4, THREADS = 64 };

typedef void (*plain_loop)(float *const *at, long from, long to);

static void add(float *const *at, long from, long to) {
    float *restrict x = at[0];
    const float *restrict y = at[1];
    for (long i = from; i < to; i++) x[i] += 1e-9f * y[i];
}

static void adamw(float *const *at, long from, long to) {
    float *restrict p = at[0], *restrict m = at[2], *restrict v = at[3];
    const float *restrict g = at[1];
    for (long i = from; i < to; i++) {
        m[i] += 0.1f * (g[i] - m[i]);
        v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
        p[i] = p[i] * 0.99999f - 1e-9f * m[i] / (sqrtf(v[i]) * 18.3f + 1e-8f);
    }
}

/* Elements from..to of all tensors. */
typedef struct part {
    plain_loop loop;
    float *const *lists[LISTS];
    int nlists;
    const long *n; /* elements of each tensor */
    long from, to;
} part;

static void *run_part(void *arg) {
    const part *p = arg;
    long begin = 0;
    for (long k = 0; begin < p->to; begin += p->n[k++]) {
        float *at[LISTS];
        long from = p->from > begin ? p->from - begin : 0, to = p->to - begin;
        for (int i = 0; i < p->nlists; i++) at[i] = p->lists[i][k];
        p->loop(at, from, to < p->n[k] ? to : p->n[k]);
    }
    return NULL;
}

/* which: 0 adds the second list to the first; 1 is a step of parameters, gradients and two states.  lists: addresses of the
 * tensors of one list after the other. */
__attribute__((visibility("default"))) void plain_lists(int which, float *const *lists, const long *n,
                                                        long count, int threads) {
    pthread_t helper[THREADS];
    part parts[THREADS];
    long all = 0;
    int started = 0;
    if (threads > THREADS) threads = THREADS;
    for (long k = 0; k < count; k++) all += n[k];
    for (int t = 0; t < threads; t++) {
        parts[t] = (part){.loop = which ? adamw : add, .nlists = which ? 4 : 2, .n = n};
        for (int i = 0; i < parts[t].nlists; i++) parts[t].lists[i] = lists + i * count;
        parts[t].from = all * t / threads;
        parts[t].to = all * (t + 1) / threads;
    }
    while (started < threads - 1 && !pthread_create(&helper[started], NULL, run_part, &parts[started + 1]))
        started++;
    run_part(&parts[0]);
    for (int t = started + 1; t < threads; t++) run_part(&parts[t]);
    for (int t = 0; t < started; t++) pthread_join(helper[t], NULL);
}
