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
    ROWS = 3, /* of loops in which nothing depends on how many */
    COLS =
        363, /* of vector loops: five of the widest vectors and most of one, as kernels may take four at once */
    FEW_COLS = 29, /* of those with much inside: most of a vector of 16 is left over */
    STRIP = 1100,  /* of those with loops, but little, inside: more columns than kernels take at once */
    PLACES = 23,   /* along axes that are not looped over */
    STEPS =
        47, /* of scans: whole tiles and a part of one; with the gap at their end rows are whole cache lines */
    SHORT_COLS = 6,   /* of short rows beside a column, */
    SHORT_ROWS = 135, /* and how many: two for each lane of the widest vector, and a few */
    FIRST_PLACE = 9,  /* along axes of the grid that are indexed: a thread may have any part */
    LITTLE = 40 * 1000,
    MUCH = 250 * 1000 /* points */
};

/* One input, in memory of its own for each tier. */
enum { INTERP, KERNEL, TIERS };
/* How buffers lie: with gaps between rows; those that may lie anyhow along axes that are not the vector loop's, without gaps; or
 * in short rows without gaps, beside columns. */
typedef enum layout { APART, TURNED, BESIDE, LAYOUTS } layout;
typedef struct trial {
    const kiln_ir *ir;
    const kiln_interp *interp;
    kiln_kernel_fn fn;
    char *work; /* of fn */
    int ndim, dim[KILN_IR_MAX_AXES];
    int64_t n[MAX_DIMS], origin[MAX_DIMS];
    bool map;      /* one grid axis, and no loops inside */
    bool computes; /* coordinates: integers have to be such */
    layout layout;
    int64_t least; /* extent */
    int64_t stride[KILN_IR_MAX_BUFS * MAX_DIMS];
    size_t nbytes[KILN_IR_MAX_BUFS]; /* where coordinates are computed there are as many before and behind */
    char *memory;                    /* all buffers of all tiers */
    char *ptr[TIERS][KILN_IR_MAX_BUFS];
    uint64_t par[KILN_IR_MAX_PARS];
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
    int64_t whole = (int64_t)(r % 23) + 1;
    kiln_value v = kiln_v_int(r >> 61 == 0 && kiln_dtype_is_signed(t) ? -whole : whole);
    if (kiln_dtype_is_float(t)) v = kiln_v_float((double)(int64_t)(r % 2001 - 1000) / 64.0 + more);
    if (t == KILN_BOOL) v = kiln_v_bool(r & 1);
    uint64_t bits = next_random(seed) | 1;
    if (wild && t != KILN_BOOL)
        memcpy(out, &bits, kiln_dtype_size(t)); /* little endian: the low bytes */
    else
        (void)kiln_element_set(t, &v, out);
}

/* Every eighth is wild where elements do not meet; else one in the middle, since a fold of many would be nothing but
 * NaN.  Where coordinates are computed, integers may be such: a position along any axis. */
static void make_part(const trial *t, kiln_dtype type, bool middle, uint64_t *seed, void *out) {
    uint64_t r = next_random(seed), place = r % (uint64_t)t->least;
    if (t->computes && !kiln_dtype_is_float(type) && type != KILN_BOOL)
        memcpy(out, &place, kiln_dtype_size(type));
    else if (t->map)
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
            bool steps = in->op == KILN_IR_SCAN && !kiln_ir_by_block(in);
            widen(&n[in->which], steps ? STEPS : blocks_and_more(in->imm.tree));
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

static void choose_extents(trial *t) {
    const kiln_ir *ir = t->ir;
    int64_t n[KILN_IR_MAX_AXES] = {0}, cols = COLS;
    uint32_t columns = extents_by_role(ir, n);
    shorten(ir, n, columns);
    t->map = ir->naxes == 1 && ir->axes[0].grid && points(ir, n, columns, 1) == 1;
    if (!t->map && points(ir, n, columns, STRIP) <= LITTLE) cols = STRIP;
    if (points(ir, n, columns, COLS) > MUCH) cols = FEW_COLS;
    if (t->layout == BESIDE) cols = SHORT_COLS;
    t->least = COLS;
    for (int a = 0; a < ir->naxes; a++) {
        t->dim[a] = t->ndim;
        if (ir->axes[a].indexed) t->origin[t->ndim] = FIRST_PLACE;
        t->n[t->ndim++] = columns >> a & 1 ? cols : n[a] ? n[a] : PLACES;
        if (t->least > t->n[t->ndim - 1]) t->least = t->n[t->ndim - 1];
        if (ir->axes[a].grid) t->n[t->ndim++] = t->layout == BESIDE ? SHORT_ROWS : ROWS;
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

/* Strides of a buffer, fastest along its vector axis (turned: along others), with a gap at the end of each row unless rows are
 * short; returns its bytes. */
static size_t lay_out(trial *t, int b) {
    const kiln_ir *ir = t->ir;
    const kiln_ir_buf *buf = &ir->bufs[b];
    int64_t size = (int64_t)kiln_dtype_size(buf->dtype), apart = size, all = size;
    uint32_t vec = vector_axes(ir, b);
    bool turned = t->layout == TURNED && buf->stride == KILN_STRIDE_ANY;
    if (buf->stride == KILN_STRIDE_ANY && !turned) apart = GAP * size;
    for (int pass = 0; pass < 2; pass++)
        for (int a = 0; a < ir->naxes; a++) {
            bool along = vec >> a & 1;
            if (!(buf->axes >> a & 1) || along != ((pass == 0) != turned)) continue;
            for (int d = t->dim[a]; d <= t->dim[a] + ir->axes[a].grid; d++) {
                bool none = along && d == t->dim[a] && buf->stride == KILN_STRIDE_BCAST;
                t->stride[b * t->ndim + d] = none ? 0 : apart;
                if (none) continue;
                all += apart * t->n[d];
                apart *= t->n[d] + (t->layout != BESIDE);
            }
        }
    return (size_t)all;
}

static size_t aligned(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

static kiln_status make_input(trial *t) {
    const kiln_ir *ir = t->ir;
    size_t total = 0, at = 0, around = 0;
    uint64_t seed = 42;
    for (int r = 0; r < ir->nins; r++) t->computes |= kiln_ir_computed(&ir->ins[r]) > 0;
    choose_extents(t);
    for (int b = 0; b < ir->nbufs; b++) {
        t->nbytes[b] = lay_out(t, b);
        total += (t->computes ? 3 : 1) * aligned(t->nbytes[b]);
    }
    t->memory = kiln_alloc_aligned(ALIGN, TIERS * total);
    if (!t->memory) return KILN_NOMEM();
    memset(t->memory, 0, total);
    for (int b = 0; b < ir->nbufs; b++) {
        size_t size = kiln_dtype_size(ir->bufs[b].dtype), n = t->nbytes[b] / size;
        if (t->computes) around = aligned(t->nbytes[b]);
        for (int tier = 0; tier < TIERS; tier++) t->ptr[tier][b] = t->memory + tier * total + at + around;
        for (size_t k = 0; k < n; k++)
            make_value(t, ir->bufs[b].dtype, k == n / 2, &seed, t->ptr[0][b] + k * size);
        at += aligned(t->nbytes[b]) + 2 * around;
    }
    memcpy(t->memory + total, t->memory, total);
    seed = 7;
    for (int k = 0; k < ir->npars; k++) make_value(t, ir->pars[k].dtype, false, &seed, (char *)&t->par[k]);
    return KILN_OK;
}

/* -- both tiers ------------------------------------------------------------------------------------------ */

static bool is_nan(kiln_dtype t, const char *at) {
    return kiln_dtype_is_float(t) && isnan(kiln_element_get(t, at).u.f);
}

static kiln_status compare(const trial *t) {
    for (int k = 0; k < t->ir->nbufs; k++) {
        const kiln_ir_buf *buf = &t->ir->bufs[k];
        kiln_dtype real = kiln_dtype_real(buf->dtype);
        size_t size = kiln_dtype_size(real);
        for (size_t at = 0; at + size <= t->nbytes[k]; at += size) {
            const char *want = t->ptr[INTERP][k] + at, *got = t->ptr[KERNEL][k] + at;
            if (memcmp(want, got, size) == 0 || (is_nan(real, want) && is_nan(real, got))) continue;
            return KILN_BUG("self-test of %s: the kernel and the interpreter differ in buffer %s at byte %zu",
                            t->ir->name, buf->name, at);
        }
    }
    return KILN_OK;
}

/* Where several traps would fire, which one is met first depends on the block length; what is said is the same. */
static bool same_refusal(const kiln_ir *ir, int32_t want, int32_t got) {
    int a = want - KILN_TRAP_BASE, b = got - KILN_TRAP_BASE;
    if (want == got) return true;
    if (a < 0 || b < 0 || a >= ir->ntraps || b >= ir->ntraps) return false;
    return ir->traps[a].status == ir->traps[b].status && strcmp(ir->traps[a].text, ir->traps[b].text) == 0;
}

/* Runs both tiers.  *trapped: the nest that refused the input in both, or -1. */
static kiln_status run_both(trial *t, int *trapped) {
    *trapped = -1;
    for (int nest = 0; nest < t->ir->nnests; nest++) {
        kiln_launch l = {
            .nest = nest, .ndim = t->ndim, .n = t->n, .ptr = t->ptr[INTERP], .stride = t->stride};
        l.origin = t->origin;
        l.par = t->par;
        int32_t want, got;
        KILN_TRY(kiln_interp_run(t->interp, &l, &want));
        l.ptr = t->ptr[KERNEL];
        l.work = t->work;
        if (t->layout != BESIDE) /* the first row is aligned and written so, the others cannot be */
            l.flags = KILN_LAUNCH_STREAM | KILN_LAUNCH_FAR | KILN_LAUNCH_MEMORY;
        got = t->fn(&l);
        if (!same_refusal(t->ir, want, got))
            return KILN_BUG("self-test of %s: the kernel returned %d, the interpreter %d", t->ir->name, got,
                            want);
        if (want) *trapped = nest;
        if (want) return KILN_OK;
    }
    return compare(t);
}

/* -- inputs that trap, of kernels over one grid axis ----------------------------------------------------- */

/* Whether the element at a place traps, and where it is. */
static kiln_status traps_at(const trial *t, int tier, int nest, int64_t at, char **ptr, bool *out) {
    static const int64_t one[2] = {1, 1};
    int32_t trap;
    for (int b = 0; b < t->ir->nbufs; b++)
        ptr[b] = t->ptr[tier][b] + at % t->n[0] * t->stride[2 * b] + at / t->n[0] * t->stride[2 * b + 1];
    kiln_launch l = {.nest = nest, .ndim = 2, .n = one, .ptr = ptr, .stride = t->stride};
    l.origin = t->origin;
    l.par = t->par;
    KILN_TRY(kiln_interp_run(t->interp, &l, &trap));
    *out = trap != 0;
    return KILN_OK;
}

/* Gives every point that traps the inputs of one that does not: the nests behind the traps are tested too. */
static kiln_status mend(const trial *t, int tier, int nest) {
    char *good[KILN_IR_MAX_BUFS], *bad[KILN_IR_MAX_BUFS];
    bool traps = true;
    int64_t all = t->n[0] * t->n[1];
    for (int64_t at = 0; at < all && traps; at++) KILN_TRY(traps_at(t, tier, nest, at, good, &traps));
    if (traps) return KILN_OK;
    for (int64_t at = 0; at < all; at++) {
        KILN_TRY(traps_at(t, tier, nest, at, bad, &traps));
        for (int b = 0; b < t->ir->nbufs && traps; b++)
            memmove(bad[b], good[b], kiln_dtype_size(t->ir->bufs[b].dtype));
    }
    return KILN_OK;
}

static kiln_status run_trial(trial *t) {
    int trapped;
    KILN_TRY(make_input(t));
    KILN_TRY(run_both(t, &trapped));
    if (trapped < 0 || !t->map) return KILN_OK;
    for (int tier = 0; tier < TIERS; tier++) KILN_TRY(mend(t, tier, trapped));
    return run_both(t, &trapped);
}

/* Whether the kernel scans buffers that may lie anyhow: it may then have another way for those in rows along the scan. */
static bool scans_rows(const kiln_ir *ir) {
    bool scans = false, any = false;
    for (int r = 0; r < ir->nins; r++) scans |= ir->ins[r].op == KILN_IR_SCAN;
    for (int b = 0; b < ir->nbufs; b++) any |= ir->bufs[b].stride == KILN_STRIDE_ANY;
    return scans && any;
}

/* Whether the kernel may have another way for short rows: it is element-wise, and an input has one element for each row. */
static bool has_columns(const kiln_ir *ir) {
    bool column = false;
    for (int b = 0; b < ir->nbufs; b++) column |= ir->bufs[b].stride == KILN_STRIDE_BCAST;
    return column && ir->naxes == 1 && ir->axes[0].grid;
}

kiln_status kiln_selftest(const kiln_ir *ir, const kiln_interp *interp, kiln_kernel_fn fn, size_t nwork) {
    trial *t = kiln_calloc(1, sizeof *t);
    char *work = nwork ? kiln_alloc_aligned(ALIGN, nwork) : NULL;
    bool room = t && (work || !nwork);
    kiln_status st = room ? KILN_OK : KILN_NOMEM();
    const bool has[LAYOUTS] = {true, scans_rows(ir), has_columns(ir)};
    for (int k = 0; k < LAYOUTS && st == KILN_OK; k++) {
        if (!has[k]) continue;
        *t = (trial){.ir = ir, .interp = interp, .fn = fn, .work = work, .layout = (layout)k};
        st = run_trial(t);
        kiln_free(t->memory);
    }
    kiln_free(t);
    kiln_free(work);
    return st;
}
