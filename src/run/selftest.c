/* selftest.c - (IR, interpreter, kernel) -> do the two agree, bit for bit, on a made input.
 *
 * Guards against a miscompiled, truncated or mistaken object: whatever reaches a user's data has
 * computed the right answer at least once.  Extents are small, but vectors are full and partial, and folds and
 * scans cross a block's border.  Values mix small numbers with random bits.  Knows dtypes only to tell NaNs apart. */
#include <math.h>
#include <string.h>

#include "run/selftest.h"

enum { GAP = 2, ALIGN = 64, MAX_DIMS = 2 * KILN_IR_MAX_AXES };

/* Extents. */
enum {
    ROWS = 3,      /* of loops in which nothing depends on how many */
    COLS = 83,     /* of vector loops */
    FEW_COLS = 19, /* of those with much inside */
    STRIP = 1100,  /* of those with loops, but little, inside: more columns than kernels take at once */
    PLACES = 23,   /* along axes that are not looped over */
    LITTLE = 40 * 1000,
    MUCH = 250 * 1000 /* points */
};

typedef struct trial {
    int ndim, dim[KILN_IR_MAX_AXES];
    int64_t n[MAX_DIMS];
    bool map;      /* one grid axis, and no loops inside */
    bool computes; /* coordinates: integers have to be such */
    int64_t least; /* extent */
    char *ptr[KILN_IR_MAX_BUFS];
    int64_t stride[KILN_IR_MAX_BUFS * MAX_DIMS];
    size_t nbytes[KILN_IR_MAX_BUFS]; /* where coordinates are computed there are as many before and behind */
    char *memory;                    /* all buffers */
    size_t total;                    /* bytes of it */
} trial;

/* -- values ---------------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Small values, so that results are mostly finite; wild: random bits, but never an integer zero, since a divisor may be
 * among these. */
static void make_real(kiln_dtype t, uint64_t r, double more, bool wild, uint64_t *seed, void *out) {
    double small = (double)(int64_t)(r % 2001 - 1000) / 64.0 + more;
    int64_t whole = (int64_t)(r % 23) + 1;
    float f = (float)small;
    uint16_t half = 0;
    uint8_t truth = r & 1;
    const void *from = &whole;
    if (t == KILN_F64)
        from = &small;
    else if (t == KILN_F32)
        from = &f;
    else if (t == KILN_F16 || t == KILN_BF16)
        from = &half, half = t == KILN_F16 ? kiln_f32_to_half(f) : kiln_f32_to_bf16(f);
    else if (t == KILN_BOOL)
        from = &truth;
    else if (r >> 61 == 0 && kiln_dtype_is_signed(t))
        whole = -whole;
    uint64_t bits = next_random(seed) | 1;
    memcpy(out, wild && t != KILN_BOOL ? (const void *)&bits : from,
           kiln_dtype_size(t)); /* little endian: the low bytes */
}

/* A position along any axis. */
static void make_place(const trial *t, kiln_dtype type, uint64_t *seed, void *out) {
    uint64_t place = next_random(seed) % (uint64_t)t->least;
    memcpy(out, &place, kiln_dtype_size(type));
}

/* Every eighth is wild where elements do not meet; else one in the middle, since a fold of many would be nothing but
 * NaN.  Where coordinates are computed, integers may be such. */
static void make_part(const trial *t, kiln_dtype type, bool middle, uint64_t *seed, void *out) {
    if (t->computes && !kiln_dtype_is_float(type) && type != KILN_BOOL) {
        make_place(t, type, seed, out);
        return;
    }
    uint64_t r = next_random(seed);
    if (t->map)
        make_real(type, r, 0, r >> 61 == 1, seed, out);
    else
        make_real(type, r, (double)(r >> 12) * 0x1p-58, middle, seed, out); /* sums round */
}

static void make_value(const trial *t, kiln_dtype type, bool middle, uint64_t *seed, char *out) {
    kiln_dtype part = kiln_dtype_real(type);
    make_part(t, part, middle, seed, out);
    if (part != type) make_part(t, part, middle, seed, out + kiln_dtype_size(part));
}

/* -- extents and memory ---------------------------------------------------------------------------------- */

static void widen(int64_t *n, int64_t to) {
    if (*n < to) *n = to;
}

/* Of an axis with blocks: some whole ones and a part of one. */
static int64_t blocks_and_more(kiln_ir_tree tree) {
    return tree.block <= 64 ? 3 * (int64_t)tree.block + 5 : (int64_t)tree.block + 70;
}

/* The extent of each axis by what loops over it; returns the axes of vector loops whose extent is free. */
static uint32_t extents_by_role(const kiln_ir *ir, int64_t *n) {
    uint32_t columns = 0, fixed = 0;
    for (int r = 0; r < ir->nins; r++) {
        const kiln_ir_ins *in = &ir->ins[r];
        if (!kiln_ir_opens(in)) continue;
        for (int k = 0; k < in->ncoord; k++) widen(&n[in->coord[k].axis], ROWS + 2);
        if (in->op == KILN_IR_FOR) {
            widen(&n[in->which], ROWS);
            if (in->vec) columns |= 1u << in->which;
        } else {
            widen(&n[in->which], blocks_and_more(in->imm.tree));
            fixed |= 1u << in->which;
        }
    }
    return columns & ~fixed;
}

static int64_t points(const kiln_ir *ir, const int64_t *n, uint32_t columns, int64_t cols) {
    int64_t all = 1;
    for (int a = 0; a < ir->naxes; a++) all *= columns >> a & 1 ? cols : n[a] ? n[a] : 1;
    return all;
}

/* Where it is too much even with few columns, only the first axis with blocks has several. */
static void shorten(const kiln_ir *ir, int64_t *n, uint32_t columns) {
    for (int a = ir->naxes - 1; a > 0 && points(ir, n, columns, FEW_COLS) > MUCH; a--)
        if (n[a] > FEW_COLS) n[a] = FEW_COLS;
}

static void choose_extents(const kiln_ir *ir, trial *t) {
    int64_t n[KILN_IR_MAX_AXES] = {0}, cols = COLS;
    uint32_t columns = extents_by_role(ir, n);
    shorten(ir, n, columns);
    t->map = ir->naxes == 1 && ir->axes[0].grid && points(ir, n, columns, 1) == 1;
    if (!t->map && points(ir, n, columns, STRIP) <= LITTLE) cols = STRIP;
    if (points(ir, n, columns, COLS) > MUCH) cols = FEW_COLS;
    t->least = COLS;
    for (int a = 0; a < ir->naxes; a++) {
        t->dim[a] = t->ndim;
        t->n[t->ndim++] = columns >> a & 1 ? cols : n[a] ? n[a] : PLACES;
        if (t->least > t->n[t->ndim - 1]) t->least = t->n[t->ndim - 1];
        if (ir->axes[a].grid) t->n[t->ndim++] = ROWS;
    }
}

/* Axes of the vector loops around accesses of a buffer. */
static uint32_t vector_axes(const kiln_ir *ir, int buf) {
    uint32_t axes = 0;
    for (int r = 0, vec = -1, end = 0; r < ir->nins; r++) {
        const kiln_ir_ins *in = &ir->ins[r];
        if (r == end) vec = -1; /* no vector loop stands in another */
        if (kiln_ir_opens(in) && in->vec) {
            vec = in->which;
            end = kiln_ir_region_end(ir, r);
        }
        bool access = in->op == KILN_IR_LOAD || in->op == KILN_IR_STORE;
        if (access && in->which == buf && vec >= 0) axes |= 1u << vec;
    }
    return axes;
}

/* Strides of a buffer, fastest along its vector axis, with a gap at the end of each row; returns its bytes. */
static size_t lay_out(const kiln_ir *ir, trial *t, int b) {
    const kiln_ir_buf *buf = &ir->bufs[b];
    int64_t size = (int64_t)kiln_dtype_size(buf->dtype), apart = size, all = size;
    uint32_t vec = vector_axes(ir, b);
    if (buf->stride == KILN_STRIDE_ANY) apart = GAP * size;
    for (int pass = 0; pass < 2; pass++)
        for (int a = 0; a < ir->naxes; a++) {
            bool along = vec >> a & 1;
            if (!(buf->axes >> a & 1) || along != (pass == 0)) continue;
            for (int d = t->dim[a]; d <= t->dim[a] + ir->axes[a].grid; d++) {
                bool none = along && d == t->dim[a] && buf->stride == KILN_STRIDE_BCAST;
                t->stride[b * t->ndim + d] = none ? 0 : apart;
                if (none) continue;
                all += apart * t->n[d];
                apart *= t->n[d] + 1;
            }
        }
    return (size_t)all;
}

static size_t aligned(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

static kiln_status new_trial(const kiln_ir *ir, trial *t) {
    size_t at = 0, around = 0;
    uint64_t seed = 42;
    for (int r = 0; r < ir->nins; r++) t->computes |= kiln_ir_computed(&ir->ins[r]) > 0;
    choose_extents(ir, t);
    for (int b = 0; b < ir->nbufs; b++) {
        t->nbytes[b] = lay_out(ir, t, b);
        t->total += (t->computes ? 3 : 1) * aligned(t->nbytes[b]);
    }
    t->memory = kiln_alloc_aligned(ALIGN, t->total);
    if (!t->memory) return KILN_NOMEM();
    memset(t->memory, 0, t->total);
    for (int b = 0; b < ir->nbufs; b++) {
        size_t size = kiln_dtype_size(ir->bufs[b].dtype), n = t->nbytes[b] / size;
        if (t->computes) around = aligned(t->nbytes[b]);
        t->ptr[b] = t->memory + at + around;
        for (size_t k = 0; k < n; k++)
            make_value(t, ir->bufs[b].dtype, k == n / 2, &seed, t->ptr[b] + k * size);
        at += aligned(t->nbytes[b]) + 2 * around;
    }
    return KILN_OK;
}

/* The same input in memory of its own. */
static kiln_status copy_trial(const kiln_ir *ir, const trial *from, trial *t) {
    *t = *from;
    t->memory = kiln_alloc_aligned(ALIGN, t->total);
    if (!t->memory) return KILN_NOMEM();
    memcpy(t->memory, from->memory, t->total);
    for (int b = 0; b < ir->nbufs; b++) t->ptr[b] = t->memory + (from->ptr[b] - from->memory);
    return KILN_OK;
}

/* -- both tiers ------------------------------------------------------------------------------------------ */

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

static const int64_t origin[MAX_DIMS] = {0};

/* Where several traps would fire, which one is met first depends on the block length; what is said is the same. */
static bool same_refusal(const kiln_ir *ir, int32_t want, int32_t got) {
    int a = want - KILN_TRAP_BASE, b = got - KILN_TRAP_BASE;
    if (want == got) return true;
    if (a < 0 || b < 0 || a >= ir->ntraps || b >= ir->ntraps) return false;
    return ir->traps[a].status == ir->traps[b].status && strcmp(ir->traps[a].text, ir->traps[b].text) == 0;
}

/* Runs both tiers, each on its trial.  *trapped: the nest that refused the input in both, or -1. */
static kiln_status run_both(const kiln_ir *ir, const kiln_interp *interp, kiln_kernel_fn fn, char *work,
                            const uint64_t *par, trial *two, int *trapped) {
    *trapped = -1;
    for (int nest = 0; nest < ir->nnests; nest++) {
        kiln_launch l = {.nest = nest, .ndim = two[0].ndim, .n = two[0].n, .ptr = two[0].ptr};
        l.stride = two[0].stride;
        l.origin = origin;
        l.par = par;
        int32_t want, got;
        KILN_TRY(kiln_interp_run(interp, &l, &want));
        l.ptr = two[1].ptr;
        l.work = work;
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

/* -- inputs that trap, of kernels over one grid axis ----------------------------------------------------- */

static void element(const kiln_ir *ir, const trial *t, int64_t at, char **ptr) {
    for (int b = 0; b < ir->nbufs; b++)
        ptr[b] = t->ptr[b] + at % COLS * t->stride[2 * b] + at / COLS * t->stride[2 * b + 1];
}

static kiln_status traps_at(const kiln_ir *ir, const kiln_interp *interp, const uint64_t *par, const trial *t,
                            int nest, int64_t at, bool *out) {
    static const int64_t one[2] = {1, 1};
    char *ptr[KILN_IR_MAX_BUFS];
    int32_t trap;
    element(ir, t, at, ptr);
    kiln_launch l = {
        .nest = nest, .ndim = 2, .n = one, .ptr = ptr, .stride = t->stride, .origin = origin, .par = par};
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

static kiln_status run_trials(const kiln_ir *ir, const kiln_interp *interp, kiln_kernel_fn fn, char *work,
                              trial *two) {
    uint64_t par[KILN_IR_MAX_PARS] = {0}, seed = 7;
    int trapped;
    for (int k = 0; k < ir->npars; k++) make_value(&two[0], ir->pars[k].dtype, false, &seed, (char *)&par[k]);
    KILN_TRY(run_both(ir, interp, fn, work, par, two, &trapped));
    if (trapped < 0 || !two[0].map) return KILN_OK;
    for (int k = 0; k < 2; k++) KILN_TRY(mend(ir, interp, par, &two[k], trapped));
    return run_both(ir, interp, fn, work, par, two, &trapped);
}

kiln_status kiln_selftest(const kiln_ir *ir, const kiln_interp *interp, kiln_kernel_fn fn, size_t nwork) {
    trial *two = kiln_calloc(2, sizeof *two);
    char *work = nwork ? kiln_alloc_aligned(ALIGN, nwork) : NULL;
    kiln_status st = two && (work || !nwork) ? new_trial(ir, &two[0]) : KILN_NOMEM();
    if (st == KILN_OK) st = copy_trial(ir, &two[0], &two[1]);
    if (st == KILN_OK) st = run_trials(ir, interp, fn, work, two);
    for (int k = 0; two && k < 2; k++) kiln_free(two[k].memory);
    kiln_free(two);
    kiln_free(work);
    return st;
}
