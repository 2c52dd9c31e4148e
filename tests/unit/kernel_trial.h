/* kernel_trial.h - memory, extents, strides and scalars for one launch of any kernel, made from a seed.
 *
 * The interpreter and a compiled kernel run on copies of one trial; then every element must be the same, any NaN
 * like any other, and what lies between the buffers must be as it was.  Each helper fails the running test by
 * itself. */
#ifndef KILN_TEST_KERNEL_TRIAL_H
#define KILN_TEST_KERNEL_TRIAL_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "run/interp.h"

enum { MAX_DIMS = 2 * KILN_IR_MAX_AXES, MAX_ELEMS = 60000, GAP = 64, FILLER = 0x5a };

static uint64_t rnd(uint64_t *seed, uint64_t n) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (*seed >> 11) % n;
}

typedef struct trial {
    const kiln_ir *ir;
    uint64_t seed;
    int ndim, dim[KILN_IR_MAX_AXES];
    int64_t n[MAX_DIMS], origin[MAX_DIMS], stride[KILN_IR_MAX_BUFS * MAX_DIMS];
    size_t at[KILN_IR_MAX_BUFS], first[KILN_IR_MAX_BUFS],
        nbytes[KILN_IR_MAX_BUFS]; /* first: of the first point */
    size_t total;
    uint64_t par[KILN_IR_MAX_PARS];
    bool special; /* some numbers are infinite, NaN, very large or very small */
} trial;

/* Axes along which some access computes its place. */
static uint32_t computed_axes(const kiln_ir *ir) {
    uint32_t axes = 0;
    for (int r = 0; r < ir->nins; r++)
        for (int k = 0; k < kiln_ir_computed(&ir->ins[r]); k++) axes |= 1u << ir->ins[r].coord[k].axis;
    return axes;
}

/* Axes of the vector loops around accesses of a buffer. */
static uint32_t vector_axes(const kiln_ir *ir, int buf) {
    uint32_t axes = 0;
    for (int r = 0; r < ir->nins; r++) {
        if (!kiln_ir_opens(&ir->ins[r]) || !ir->ins[r].vec) continue;
        for (int k = r, end = kiln_ir_region_end(ir, r); k < end; k++)
            if ((ir->ins[k].op == KILN_IR_LOAD || ir->ins[k].op == KILN_IR_STORE) && ir->ins[k].which == buf)
                axes |= 1u << ir->ins[r].which;
    }
    return axes;
}

/* Extents around vectors, lanes, blocks and strips: every other time one axis is long, each in its turn. */
static void choose_extents(trial *t, uint64_t turn) {
    static const int64_t some[] = {1, 2, 3, 5, 8, 15, 16, 17, 29, 63, 64, 65, 83, 100, 130};
    static const int64_t large[] = {20500, 0, 1030, 8200, 257, 4166, 2100};
    uint32_t computed = computed_axes(t->ir);
    int longest = turn % 2 ? (int)(turn / 2) % t->ir->naxes : -1;
    int64_t most = large[turn / 2 / (uint64_t)t->ir->naxes % 7], points = longest < 0 || !most ? 1 : most;
    for (int a = 0; a < t->ir->naxes; a++) {
        t->dim[a] = t->ndim;
        for (int k = 0; k <= t->ir->axes[a].grid; k++) {
            int64_t n = some[rnd(&t->seed, sizeof some / sizeof *some)];
            if (points * n > MAX_ELEMS) n = 1;
            points *= n;
            if (a == longest && k == 0) n = most;
            t->n[t->ndim] = n == 0 && computed >> a & 1 ? 1 : n;
            t->origin[t->ndim++] = (int64_t)rnd(&t->seed, 3) * 5;
        }
    }
}

/* Bytes per step along each dimension, in a random order of dimensions; what is promised is kept. */
static void choose_strides(trial *t, int b) {
    const kiln_ir_buf *buf = &t->ir->bufs[b];
    uint32_t vec = vector_axes(t->ir, b),
             flip = (uint32_t)rnd(&t->seed, 4) ? 0 : (uint32_t)rnd(&t->seed, 65536);
    int64_t size = (int64_t)kiln_dtype_size(buf->dtype), apart = size, *stride = &t->stride[b * t->ndim];
    bool odd = buf->stride == KILN_STRIDE_ANY && rnd(&t->seed, 3) == 0;
    int turn = (int)rnd(&t->seed, (uint64_t)t->ndim);
    size_t lowest = 0;
    if (odd) apart *= 2;
    for (int pass = 0; pass < 2; pass++) /* first the dimension along which elements lie in a row */
        for (int k = 0; k < t->ndim; k++) {
            int d = (k + turn) % t->ndim, axis = 0;
            for (int a = 0; a < t->ir->naxes; a++)
                if (t->dim[a] <= d) axis = a;
            bool mine = buf->axes >> axis & 1, lanes = mine && vec >> axis & 1 && t->dim[axis] == d;
            if (lanes != (pass == 0)) continue;
            stride[d] = mine ? apart : 12345; /* not read */
            if (lanes && buf->stride == KILN_STRIDE_BCAST) stride[d] = 0;
            if (mine && buf->role == KILN_BUF_IN && buf->stride == KILN_STRIDE_ANY && rnd(&t->seed, 9) == 0)
                stride[d] = 0;
            if (!mine || !stride[d]) continue;
            apart *= t->n[d] ? t->n[d] : 1;
            if (!(flip >> d & 1) || (lanes && buf->stride == KILN_STRIDE_CONTIG)) continue;
            lowest += (size_t)(stride[d] * (t->n[d] ? t->n[d] - 1 : 0));
            stride[d] = -stride[d];
        }
    t->at[b] = t->total + GAP + (rnd(&t->seed, 2) ? 0 : (size_t)size);
    t->first[b] = t->at[b] + lowest;
    t->nbytes[b] = (size_t)(apart + size);
    t->total = (t->at[b] + t->nbytes[b] + GAP + 63) / 64 * 64;
}

static int64_t least_extent(const trial *t) {
    int64_t least = 1000;
    for (int d = 0; d < t->ndim; d++)
        if (t->n[d] && t->n[d] < least) least = t->n[d];
    return least;
}

/* Numbers whose sums round, in one trial of four with special ones among them.  An integer may be a coordinate: it is
 * within all extents, unless the kernel traps what is not. */
static void make_value(trial *t, kiln_dtype type, char *to) {
    static const double special[] = {0, -0.0, 1e30, -1e30, INFINITY, -INFINITY, NAN, 1e-40};
    int64_t least = least_extent(t), whole = (int64_t)rnd(&t->seed, (uint64_t)least),
            wild = t->ir->ntraps && rnd(&t->seed, 4) == 0;
    double d = !t->special || rnd(&t->seed, 60) ? (double)(int64_t)rnd(&t->seed, 1u << 24) / 65536.0 - 100
                                                : special[rnd(&t->seed, 8)];
    float f = (float)d;
    uint16_t half = type == KILN_F16 ? kiln_f32_to_half(f) : kiln_f32_to_bf16(f);
    if (wild) whole -= 1 + (int64_t)rnd(&t->seed, 2) * (least / 2);
    const void *from = &whole;
    if (type == KILN_F64) from = &d;
    if (type == KILN_F32) from = &f;
    if (type == KILN_F16 || type == KILN_BF16) from = &half;
    memcpy(to, from, kiln_dtype_size(type));
}

static void make_trial(trial *t, const kiln_ir *ir, uint64_t seed) {
    memset(t, 0, sizeof *t);
    t->ir = ir;
    t->seed = seed * 0x9e3779b97f4a7c15u + 1;
    t->special = seed % 4 == 0;
    choose_extents(t, seed);
    for (int b = 0; b < ir->nbufs; b++) choose_strides(t, b);
    for (int k = 0; k < ir->npars; k++) {
        int64_t small = (int64_t)rnd(&t->seed, 3) + 1; /* a distance */
        if (kiln_dtype_is_float(ir->pars[k].dtype))
            make_value(t, ir->pars[k].dtype, (char *)&t->par[k]);
        else
            memcpy(&t->par[k], &small, sizeof small);
    }
}

static void fill(trial *t, char *memory) {
    memset(memory, FILLER, t->total);
    for (int b = 0; b < t->ir->nbufs; b++) {
        kiln_dtype part = kiln_dtype_real(t->ir->bufs[b].dtype);
        size_t size = kiln_dtype_size(part);
        for (size_t k = 0; k + size <= t->nbytes[b]; k += size) make_value(t, part, memory + t->at[b] + k);
    }
}

/* Runs all nests, by fn or the interpreter; returns the trap that ended it, or 0. */
static int32_t run(const trial *t, char *memory, const kiln_interp *interp, kiln_kernel_fn fn, char *work) {
    char *ptr[KILN_IR_MAX_BUFS];
    int32_t trap = 0;
    for (int b = 0; b < t->ir->nbufs; b++) ptr[b] = memory + t->first[b];
    for (int nest = 0; nest < t->ir->nnests && !trap; nest++) {
        kiln_launch l = {nest, t->ndim, t->n, ptr, t->stride, t->origin, t->par, work, 0};
        if (fn)
            trap = fn(&l);
        else
            assert_int_equal(kiln_interp_run(interp, &l, &trap), KILN_OK);
    }
    return trap;
}

static bool same_element(kiln_dtype t, const char *a, const char *b) {
    float x = 0, y = 0;
    double c, d;
    uint16_t g, h;
    if (memcmp(a, b, kiln_dtype_size(t)) == 0) return true;
    if (t == KILN_F64) {
        memcpy(&c, a, sizeof c), memcpy(&d, b, sizeof d);
        return isnan(c) && isnan(d);
    }
    memcpy(&g, a, sizeof g), memcpy(&h, b, sizeof h);
    if (t == KILN_F32) memcpy(&x, a, sizeof x), memcpy(&y, b, sizeof y);
    if (t == KILN_F16) x = kiln_half_to_f32(g), y = kiln_half_to_f32(h);
    if (t == KILN_BF16) x = kiln_bf16_to_f32(g), y = kiln_bf16_to_f32(h);
    return isnan(x) && isnan(y);
}

/* Where two runs differ: buffer and byte, or -1. */
static int differ(const trial *t, const char *a, const char *b, size_t *at) {
    for (int k = 0; k < t->ir->nbufs; k++) {
        kiln_dtype part = kiln_dtype_real(t->ir->bufs[k].dtype);
        size_t size = kiln_dtype_size(part);
        for (*at = 0; *at + size <= t->nbytes[k]; *at += size)
            if (!same_element(part, a + t->at[k] + *at, b + t->at[k] + *at)) return k;
    }
    return -1;
}

/* Whether all bytes between the buffers are as they were. */
static bool kept_within(const trial *t, const char *memory) {
    size_t k = 0;
    for (int b = 0; b <= t->ir->nbufs; b++) {
        for (size_t end = b < t->ir->nbufs ? t->at[b] : t->total; k < end; k++)
            if (memory[k] != FILLER) return false;
        if (b < t->ir->nbufs) k += t->nbytes[b];
    }
    return true;
}
#endif
