/* bench_case.c - a line of bench/kernels.txt and a size -> a call with its tensors made, and its time.
 *
 * The letters N, R and C of the call are replaced before it is parsed.  Tensors are filled by repeating a
 * short random piece, since filling 64 MB one number at a time would take longer than the benchmark. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "bench.h"
#include "cli/element.h"

enum { PIECE = 4099 }; /* elements; prime, so that rows do not repeat */

double bench_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* -- lines ----------------------------------------------------------------------------------------------- */

static bool read_line(const char *text, int n, bench_line *line) {
    char copy[BENCH_CALL_MAX * 2], bound[16];
    int at = 0;
    if (n >= (int)sizeof copy) return false;
    snprintf(copy, sizeof copy, "%.*s", n, text);
    if (sscanf(copy, "%31s %15s %lf %lf %n", line->name, bound, &line->low, &line->high, &at) != 4 || !at)
        return false;
    if (strcmp(bound, "memory") != 0 && strcmp(bound, "compute") != 0) return false;
    line->memory_bound = bound[0] == 'm';
    return snprintf(line->call, sizeof line->call, "%s", copy + at) < (int)sizeof line->call;
}

bool bench_line_next(const char **text, bench_line *line) {
    const char *p = *text;
    while (*p == '#' || *p == '\n') p += strcspn(p, "\n"), p += *p == '\n';
    int n = (int)strcspn(p, "\n");
    *text = p + n;
    if (n == 0) return false;
    if (!read_line(p, n, line)) line->name[0] = 0;
    return true;
}

/* -- calls of a size -------------------------------------------------------------------------------------- */

/* The letter at `at` stands for a size, or is part of a word. */
static bool is_size(const char *call, size_t at) {
    if (!strchr("NRC", call[at])) return false;
    return !(at && (isalnum((unsigned char)call[at - 1]) || call[at - 1] == '_')) &&
           !isalnum((unsigned char)call[at + 1]) && call[at + 1] != '_';
}

static void put_sizes(const char *call, int64_t n, char *out, size_t room) {
    int64_t rows = 1;
    size_t used = 0;
    while (rows * rows * 4 <= n) rows *= 2;
    for (size_t i = 0; call[i] && used + 24 < room; i++) {
        int64_t size = call[i] == 'N' ? n : call[i] == 'R' ? rows : n / rows;
        if (is_size(call, i))
            used += (size_t)snprintf(out + used, room - used, "%lld", (long long)size);
        else
            out[used++] = call[i];
    }
    out[used] = 0;
}

static void store_uniform(const bench_line *line, kiln_dtype dtype, uint64_t *state, char *p) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    double x = line->low + (line->high - line->low) * (double)(*state >> 11) * 0x1p-53;
    if (element_is_float(dtype)) {
        element_store_real(dtype, x, p);
        return;
    }
    int64_t whole = dtype == KILN_BOOL ? x > (line->low + line->high) / 2 : (int64_t)x;
    element_store_int(dtype, whole || dtype == KILN_BOOL ? whole : 1, p);
}

static void fill(const bench_line *line, kiln_tensor *t, uint64_t seed) {
    kiln_dtype whole = kiln_tensor_dtype(t), part = element_part(whole);
    size_t size = kiln_dtype_size(part), nbytes = (size_t)kiln_tensor_nelem(t) * kiln_dtype_size(whole);
    char *data = kiln_tensor_data(t);
    size_t piece = nbytes < PIECE * size ? nbytes : PIECE * size;
    for (size_t at = 0; at < piece; at += size) store_uniform(line, part, &seed, data + at);
    for (size_t done = piece; done < nbytes; done += done)
        memcpy(data + done, data, done < nbytes - done ? done : nbytes - done);
}

static void fill_tensors(const bench_line *line, bench_case *c) {
    for (size_t i = 0; i < c->call.nargs; i++) {
        if (c->call.args[i].kind != KILN_TENSOR) continue;
        kiln_tensor *t = c->call.args[i].u.tensor;
        fill(line, t, i + 1);
        c->nelem = kiln_tensor_nelem(t); /* the last tensor is the result */
        c->nbytes += (uint64_t)c->nelem * kiln_dtype_size(kiln_tensor_dtype(t));
    }
}

/* Bytes of the widest element the call names. */
static int64_t widest(const char *call) {
    static const struct {
        const char *text;
        int nbytes;
    } dtypes[] = {
#define D(NAME, value, name, bytes, kind, torch) {name "[", bytes},
#include "kiln/dtype.def"
#undef D
    };
    int64_t most = 1;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strstr(call, dtypes[i].text) && dtypes[i].nbytes > most) most = dtypes[i].nbytes;
    return most;
}

bench_case *bench_case_new(kiln_ctx *ctx, const bench_line *line, int64_t nbytes, char *err) {
    static const calltext_limits limits = {CALLTEXT_BYTES, true, true};
    char text[BENCH_CALL_MAX * 2];
    bench_case *c = calloc(1, sizeof *c);
    if (!c) {
        snprintf(err, CALLTEXT_ERROR_MAX, "out of memory");
        return NULL;
    }
    put_sizes(line->call, nbytes / widest(line->call), text, sizeof text);
    c->ctx = ctx;
    if (!calltext_parse(text, strlen(text), &limits, &c->call, err)) {
        free(c);
        return NULL;
    }
    fill_tensors(line, c);
    if (kiln_op_choose(ctx, c->call.op, c->call.args, c->call.nargs, &c->op) == KILN_OK &&
        bench_case_ns(c, 1) >= 0)
        return c;
    snprintf(err, CALLTEXT_ERROR_MAX, "%s: %s", text, kiln_last_error());
    bench_case_free(c);
    return NULL;
}

void bench_case_free(bench_case *c) {
    if (!c) return;
    calltext_free(&c->call);
    free(c);
}

kiln_tensor *bench_case_tensor(const bench_case *c, size_t argument) {
    bool is = argument < c->call.nargs && c->call.args[argument].kind == KILN_TENSOR;
    return is ? c->call.args[argument].u.tensor : NULL;
}

/* -- time ---------------------------------------------------------------------------------------------------- */

double bench_case_ns(const bench_case *c, int64_t count) {
    kiln_tensor *outs[KILN_MAX_RETS];
    size_t nouts = kiln_op_nrets(c->op);
    double start = bench_now_ns();
    for (int64_t i = 0; i < count; i++) {
        if (kiln_call(c->ctx, c->op, c->call.args, c->call.nargs, outs, KILN_MAX_RETS) != KILN_OK) return -1;
        for (size_t k = 0; k < nouts; k++) kiln_tensor_release(outs[k]);
    }
    return (bench_now_ns() - start) / (double)count;
}

/* -- copying memory ---------------------------------------------------------------------------------------- */

static void copy_plain(void *to, const void *from, size_t nbytes) {
    memcpy(to, from, nbytes);
    __asm__ volatile("" ::: "memory"); /* each copy counts */
}

/* Past the caches: the faster way for what does not fit into them, where memcpy does not choose it itself. */
static void copy_stream(void *to, const void *from, size_t nbytes) {
#ifdef __SSE2__
    __m128i *t = to;
    const __m128i *f = from;
    for (size_t i = 0; i < nbytes / sizeof *t; i += 4)
        for (size_t k = i; k < i + 4; k++) _mm_stream_si128(t + k, _mm_load_si128(f + k));
    _mm_sfence();
#else
    copy_plain(to, from, nbytes);
#endif
}

static double time_copies(void (*copy)(void *, const void *, size_t), void *to, const void *from,
                          size_t nbytes, int64_t count) {
    double start = bench_now_ns();
    for (int64_t i = 0; i < count; i++) copy(to, from, nbytes);
    return (bench_now_ns() - start) / (double)count;
}

double bench_copy_ns(void *to, const void *from, size_t nbytes, int64_t count) {
    double plain = time_copies(copy_plain, to, from, nbytes, count);
    double stream = time_copies(copy_stream, to, from, nbytes, count);
    return plain < stream ? plain : stream;
}

static void only_read(void *to, const void *from, size_t nbytes) {
#ifdef __SSE2__
    const __m128i *f = from, *end = f + nbytes / sizeof *f;
    __m128i a = _mm_setzero_si128(), b = a, c = a, d = a;
    for (; f < end; f += 4) {
        a = _mm_xor_si128(a, _mm_load_si128(f));
        b = _mm_xor_si128(b, _mm_load_si128(f + 1));
        c = _mm_xor_si128(c, _mm_load_si128(f + 2));
        d = _mm_xor_si128(d, _mm_load_si128(f + 3));
    }
    _mm_store_si128(to, _mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d)));
#else
    memcpy(to, from, 1);
    for (size_t i = 0; i < nbytes; i++) *(char *)to ^= ((const char *)from)[i];
#endif
}

double bench_read_ns(void *to, const void *from, size_t nbytes, int64_t count) {
    return time_copies(only_read, to, from, nbytes, count);
}

int64_t bench_sample_calls(double ns_per_call) {
    const double sample_ns = 100e3;
    return ns_per_call < sample_ns ? (int64_t)(sample_ns / (ns_per_call + 1)) + 1 : 1;
}
