/* fold_samples.h - kernels of tests/golden/ir with memory for their buffers, to run by the interpreter. */
#ifndef KILN_FOLD_SAMPLES_H
#define KILN_FOLD_SAMPLES_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/interp.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
enum { MAX_BUFS = 8, MAX_AXES = 4, MAX_TEXT = 16384 };

/* A kernel with memory for its buffers: axes in the order of declaration, the last one contiguous, or reversed. */
typedef struct sample {
    kiln_arena arena;
    kiln_ir *ir;
    int64_t n[MAX_AXES], stride[MAX_BUFS * MAX_AXES], origin[MAX_AXES];
    char *ptr[MAX_BUFS];
    size_t nbytes[MAX_BUFS];
    uint64_t par[2];
} sample;

static float noise(size_t i) {
    uint32_t x = (uint32_t)i * 2654435761u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)(int32_t)x * 0x1p-31f + 0.37f;
}

static void fill(char *p, kiln_dtype t, size_t nbytes) {
    size_t size = kiln_dtype_size(t);
    for (size_t i = 0; i < nbytes / size; i++) {
        float f = noise(i);
        double d = (double)f;
        int64_t k = (int64_t)(i * 37 % 41) - 5;
        const void *from = t == KILN_F32 ? (void *)&f : t == KILN_F64 ? (void *)&d : (void *)&k;
        memcpy(p + i * size, from, size);
    }
}

/* Replaces every word `from` by `to`, so that a sample serves other types. */
static void retype(char *text, const char *from, const char *to) {
    size_t n = strlen(from);
    assert_true(strlen(to) == n);
    for (char *at = strstr(text, from); at; at = strstr(at + n, from)) memcpy(at, to, n);
}

static void sample_open(sample *s, const char *name, const char *type, const int64_t *n, bool reversed) {
    char path[512], text[MAX_TEXT], *read;
    size_t nread;
    memset(s, 0, sizeof *s);
    snprintf(path, sizeof path, "%s/tests/golden/ir/%s.kir", KILN_SOURCE_DIR, name);
    if (kiln_file_read(path, &read, &nread) != KILN_OK) fail_msg("%s", kiln_last_error());
    assert_true(nread < sizeof text);
    memcpy(text, read, nread + 1);
    kiln_free(read);
    if (type) retype(text, "f32", type);
    kiln_arena_init(&s->arena);
    if (kiln_ir_parse(&s->arena, text, nread, &s->ir) != KILN_OK) fail_msg("%s", kiln_last_error());
    int axes = s->ir->naxes;
    memcpy(s->n, n, sizeof *n * (size_t)axes);
    for (int b = 0; b < s->ir->nbufs; b++) {
        const kiln_ir_buf *buf = &s->ir->bufs[b];
        int64_t step = (int64_t)kiln_dtype_size(buf->dtype);
        for (int k = 0; k < axes; k++) {
            int a = reversed ? k : axes - 1 - k;
            if (!(buf->axes >> a & 1)) continue;
            s->stride[b * axes + a] = step;
            step *= n[a];
        }
        s->nbytes[b] = (size_t)step;
        s->ptr[b] = aligned_alloc(64, (s->nbytes[b] + 127) / 64 * 64);
        assert_non_null(s->ptr[b]);
        fill(s->ptr[b], buf->dtype, s->nbytes[b]);
    }
    s->par[0] = 0x40100000; /* 2.25 as an f32 */
}

static void sample_close(sample *s) {
    for (int b = 0; b < s->ir->nbufs; b++) free(s->ptr[b]);
    kiln_arena_free(&s->arena);
}

static bool is_written(const sample *s, int b) { return s->ir->bufs[b].role != KILN_BUF_IN; }

static void spoil_outputs(sample *s) {
    for (int b = 0; b < s->ir->nbufs; b++)
        if (is_written(s, b)) memset(s->ptr[b], 77, s->nbytes[b]);
}

static kiln_launch launch_of(const sample *s, int nest) {
    return (kiln_launch){nest, s->ir->naxes, s->n, s->ptr, s->stride, s->origin, s->par, NULL, 0};
}
#endif
