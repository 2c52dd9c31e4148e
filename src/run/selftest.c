/* selftest.c - (IR, interpreter, kernel) -> do the two agree, bit for bit, on a made input.
 *
 * Guards against a miscompiled, truncated or mistaken object: whatever reaches a user's data has
 * computed the right answer at least once.  The shape has full and partial vectors and several rows;
 * values mix small numbers with random bits.  Knows dtypes only to tell NaNs apart. */
#include <math.h>
#include <string.h>

#include "run/selftest.h"

enum { ROWS = 3, COLS = 83, GAP = 2, NDIM = 2, ALIGN = 64 };

static uint64_t next_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Small values, so that results are mostly finite; every eighth has random bits. */
static void make_real(kiln_dtype t, uint64_t *seed, void *out) {
    uint64_t r = next_random(seed);
    double small = (double)(int64_t)(r % 2001 - 1000) / 64.0;
    int64_t whole = (int64_t)(r % 23) + 1;
    float f = (float)small;
    uint16_t half = t == KILN_F16 ? kiln_f32_to_half(f) : kiln_f32_to_bf16(f);
    uint8_t truth = r & 1;
    const void *from = &whole;
    if (t == KILN_F64)
        from = &small;
    else if (t == KILN_F32)
        from = &f;
    else if (t == KILN_F16 || t == KILN_BF16)
        from = &half;
    else if (t == KILN_BOOL)
        from = &truth;
    else if (r >> 61 == 0 && kiln_dtype_is_signed(t))
        whole = -whole;
    bool wild = r >> 61 == 1 && t != KILN_BOOL;
    uint64_t bits = next_random(seed) | 1; /* never an integer zero: a divisor may be among these */
    memcpy(out, wild ? (const void *)&bits : from, kiln_dtype_size(t)); /* little endian: the low bytes */
}

static void make_value(kiln_dtype t, uint64_t *seed, void *out) {
    kiln_dtype part = kiln_dtype_real(t);
    make_real(part, seed, out);
    if (part != t) make_real(part, seed, (char *)out + kiln_dtype_size(part));
}

typedef struct trial {
    char *ptr[KILN_IR_MAX_BUFS];
    int64_t stride[KILN_IR_MAX_BUFS * NDIM];
    size_t nbytes[KILN_IR_MAX_BUFS];
    char *memory; /* all buffers */
} trial;

static void layout(const kiln_ir *ir, trial *t, size_t *total) {
    *total = 0;
    for (int b = 0; b < ir->nbufs; b++) {
        int64_t size = (int64_t)kiln_dtype_size(ir->bufs[b].dtype), apart = size;
        if (ir->bufs[b].stride == KILN_STRIDE_BCAST) apart = 0;
        if (ir->bufs[b].stride == KILN_STRIDE_ANY) apart = GAP * size;
        int64_t row = apart ? apart * (COLS + 1) : size;
        t->stride[b * NDIM] = apart;
        t->stride[b * NDIM + 1] = row;
        t->nbytes[b] = (size_t)(row * ROWS + apart * COLS + size);
        *total += (t->nbytes[b] + ALIGN - 1) / ALIGN * ALIGN;
    }
}

static kiln_status new_trial(const kiln_ir *ir, trial *t) {
    size_t total, at = 0;
    layout(ir, t, &total);
    t->memory = kiln_alloc_aligned(ALIGN, total);
    if (!t->memory) return KILN_NOMEM();
    uint64_t seed = 42;
    for (int b = 0; b < ir->nbufs; b++) {
        size_t size = kiln_dtype_size(ir->bufs[b].dtype);
        t->ptr[b] = t->memory + at;
        for (size_t k = 0; k + size <= t->nbytes[b]; k += size)
            make_value(ir->bufs[b].dtype, &seed, t->ptr[b] + k);
        at += (t->nbytes[b] + ALIGN - 1) / ALIGN * ALIGN;
    }
    return KILN_OK;
}

static bool both_nan(kiln_dtype t, const char *a, const char *b) {
    if (t == KILN_F64) {
        double x, y;
        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
        return isnan(x) && isnan(y);
    }
    float x, y;
    uint16_t h, g;
    memcpy(&h, a, sizeof h);
    memcpy(&g, b, sizeof g);
    if (t == KILN_F32) {
        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
    } else {
        x = t == KILN_F16 ? kiln_half_to_f32(h) : kiln_bf16_to_f32(h);
        y = t == KILN_F16 ? kiln_half_to_f32(g) : kiln_bf16_to_f32(g);
    }
    return kiln_dtype_is_float(t) && isnan(x) && isnan(y);
}

static kiln_status compare(const kiln_ir *ir, const trial *a, const trial *b) {
    for (int k = 0; k < ir->nbufs; k++) {
        kiln_dtype t = kiln_dtype_real(ir->bufs[k].dtype);
        size_t size = kiln_dtype_size(t);
        for (size_t at = 0; at + size <= a->nbytes[k]; at += size) {
            if (memcmp(a->ptr[k] + at, b->ptr[k] + at, size) == 0) continue;
            if (kiln_dtype_is_float(t) && both_nan(t, a->ptr[k] + at, b->ptr[k] + at)) continue;
            return KILN_BUG("self-test of %s: the kernel and the interpreter differ in buffer %s at byte %zu",
                            ir->name, ir->bufs[k].name, at);
        }
    }
    return KILN_OK;
}

static const int64_t origin[NDIM] = {0, 0};

/* Where several traps would fire, which one is met first depends on the block length; what is said is the same. */
static bool same_refusal(const kiln_ir *ir, int32_t want, int32_t got) {
    int a = want - KILN_TRAP_BASE, b = got - KILN_TRAP_BASE;
    if (want == got) return true;
    if (a < 0 || b < 0 || a >= ir->ntraps || b >= ir->ntraps) return false;
    return ir->traps[a].status == ir->traps[b].status && strcmp(ir->traps[a].text, ir->traps[b].text) == 0;
}

/* Runs both tiers, each on its trial.  *trapped: the nest that refused the input in both, or -1. */
static kiln_status run_both(const kiln_ir *ir, const kiln_interp *interp, kiln_kernel_fn fn,
                            const uint64_t *par, trial *two, int *trapped) {
    static const int64_t n[NDIM] = {COLS, ROWS};
    *trapped = -1;
    for (int nest = 0; nest < ir->nnests; nest++) {
        kiln_launch l = {.nest = nest, .ndim = NDIM, .n = n, .ptr = two[0].ptr, .stride = two[0].stride};
        l.origin = origin;
        l.par = par;
        int32_t want, got;
        KILN_TRY(kiln_interp_run(interp, &l, &want));
        l.ptr = two[1].ptr;
        l.flags = KILN_LAUNCH_STREAM; /* the first row is aligned and written so, the others cannot be */
        got = fn(&l);
        if (!same_refusal(ir, want, got))
            return KILN_BUG("self-test of %s: the kernel returned %d, the interpreter %d", ir->name, got,
                            want);
        if (want) *trapped = nest;
        if (want) return KILN_OK;
    }
    return compare(ir, &two[0], &two[1]);
}

/* -- inputs that trap --------------------------------------------------------------------------------- */

static void element(const kiln_ir *ir, const trial *t, int64_t at, char **ptr) {
    for (int b = 0; b < ir->nbufs; b++)
        ptr[b] = t->ptr[b] + at % COLS * t->stride[b * NDIM] + at / COLS * t->stride[b * NDIM + 1];
}

static kiln_status traps_at(const kiln_ir *ir, const kiln_interp *interp, const uint64_t *par, const trial *t,
                            int nest, int64_t at, bool *out) {
    static const int64_t one[NDIM] = {1, 1};
    char *ptr[KILN_IR_MAX_BUFS];
    int32_t trap;
    element(ir, t, at, ptr);
    kiln_launch l = {
        .nest = nest, .ndim = NDIM, .n = one, .ptr = ptr, .stride = t->stride, .origin = origin, .par = par};
    KILN_TRY(kiln_interp_run(interp, &l, &trap));
    *out = trap != 0;
    return KILN_OK;
}

/* Gives every point that traps the inputs of one that does not: the nests behind the traps are tested too. */
static kiln_status mend(const kiln_ir *ir, const kiln_interp *interp, const uint64_t *par, const trial *t,
                        int nest) {
    char *good[KILN_IR_MAX_BUFS], *bad[KILN_IR_MAX_BUFS];
    bool traps = true;
    int64_t from = 0;
    for (; from < ROWS * COLS && traps; from++) KILN_TRY(traps_at(ir, interp, par, t, nest, from, &traps));
    if (traps) return KILN_OK;
    element(ir, t, from - 1, good);
    for (int64_t at = 0; at < ROWS * COLS; at++) {
        KILN_TRY(traps_at(ir, interp, par, t, nest, at, &traps));
        element(ir, t, at, bad);
        for (int b = 0; b < ir->nbufs && traps; b++)
            memmove(bad[b], good[b], kiln_dtype_size(ir->bufs[b].dtype));
    }
    return KILN_OK;
}

static kiln_status run_trials(const kiln_ir *ir, const kiln_interp *interp, kiln_kernel_fn fn, trial *two) {
    uint64_t par[KILN_IR_MAX_PARS] = {0}, seed = 7;
    int trapped;
    for (int k = 0; k < ir->npars; k++) make_value(ir->pars[k].dtype, &seed, &par[k]);
    KILN_TRY(run_both(ir, interp, fn, par, two, &trapped));
    if (trapped < 0) return KILN_OK;
    for (int k = 0; k < 2; k++) KILN_TRY(mend(ir, interp, par, &two[k], trapped));
    return run_both(ir, interp, fn, par, two, &trapped);
}

kiln_status kiln_selftest(const kiln_ir *ir, const kiln_interp *interp, kiln_kernel_fn fn) {
    trial *two = kiln_calloc(2, sizeof *two);
    if (!two) return KILN_NOMEM();
    kiln_status st = new_trial(ir, &two[0]);
    if (st == KILN_OK) st = new_trial(ir, &two[1]);
    if (st == KILN_OK) st = run_trials(ir, interp, fn, two);
    kiln_free(two[0].memory);
    kiln_free(two[1].memory);
    kiln_free(two);
    return st;
}
