/* ir_random.h - random kernels, made by the builder, and memory for them.
 *
 * Loops of every kind stand inside each other at random, and so do accesses with and without guards and computed
 * coordinates.  A kernel comes with the extents of its axes; every buffer is in memory of one size. */
#ifndef KILN_IR_RANDOM_H
#define KILN_IR_RANDOM_H
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/ir.h"

enum { AXES = 4, MAX_BUFS = 24, MAX_POINTS = 9000, MAX_ELEMS = 5000, MEMORY = 1 << 20 };

enum { TYPES = 3 }; /* of one kernel: few, so that values meet and slots are shared */

typedef struct maker {
    uint64_t seed;
    kiln_dtype types[TYPES];
    kiln_ir *ir;
    kiln_ref value[400]; /* those visible now */
    int nvalue;
    uint32_t looped, vec; /* axes of the loops around, and of the vector loop */
    uint32_t blocks;      /* axes of which only a block is left, with no loop over it yet */
    int64_t extent[AXES], left[AXES], points; /* left: extents of what loops run over here, at most */
    int depth, states;                        /* states of the innermost fold, 0 outside */
    kiln_dtype state_type[KILN_IR_MAX_STATES];
    bool pure; /* inside a fold, */
    bool kept; /* whose step has stored */
} maker;

static uint32_t rnd(maker *m, uint32_t n) {
    m->seed ^= m->seed << 13;
    m->seed ^= m->seed >> 7;
    m->seed ^= m->seed << 17;
    return (uint32_t)(m->seed >> 33) % n;
}

static void push(maker *m, kiln_ref r) {
    if (m->nvalue < 400) m->value[m->nvalue++] = r;
}

/* A visible value: half the time one of the last few, so that long chains come about. */
static kiln_ref recent(maker *m) {
    int few = m->nvalue > 6 && rnd(m, 2) ? 6 : m->nvalue;
    return m->value[m->nvalue - 1 - (int)rnd(m, (uint32_t)few)];
}

/* A visible value of type t; makes a constant where there is none or chance says so. */
static kiln_ref pick(maker *m, kiln_dtype t) {
    int tries = m->nvalue ? 12 : 0;
    while (tries--) {
        kiln_ref r = recent(m);
        if (m->ir->ins[r].dtype == t) return r;
    }
    if (m->nvalue && rnd(m, 5)) return kiln_ir_cast(m->ir, t, recent(m));
    return kiln_ir_const_i(m->ir, t, (int64_t)rnd(m, 7) - 2);
}

static void add_prim(maker *m) {
    static const kiln_prim any[] = {KILN_P_MAX, KILN_P_MIN, KILN_P_SELECT, KILN_P_LT, KILN_P_EQ};
    static const kiln_prim numbers[] = {KILN_P_ADD, KILN_P_SUB, KILN_P_MUL, KILN_P_NEG, KILN_P_ADD};
    kiln_dtype t = m->types[rnd(m, TYPES)];
    kiln_prim p = t != KILN_BOOL && rnd(m, 3) ? numbers[rnd(m, 5)] : any[rnd(m, 5)];
    kiln_ref args[3];
    int n = kiln_prim_arity(p);
    for (int k = 0; k < n; k++) args[k] = pick(m, p == KILN_P_SELECT && k == 0 ? KILN_BOOL : t);
    push(m, kiln_ir_prim(m->ir, p, args, n));
}

/* A buffer that can be reached here; -1 if chance finds none.  A load may compute coordinates. */
static int find_buf(maker *m, bool store) {
    bool compute = !store && rnd(m, 4) == 0;
    for (int tries = 0; tries < 20; tries++) {
        int b = (int)rnd(m, (uint32_t)m->ir->nbufs);
        const kiln_ir_buf *buf = &m->ir->bufs[b];
        uint32_t free = buf->axes & ~m->looped;
        for (int a = 0; a < AXES && compute; a++) free &= ~((uint32_t)(m->extent[a] > 0) << a);
        if ((buf->role == KILN_BUF_OUT) != store || free) continue;
        if (store && m->vec & ~buf->axes) continue; /* lanes would meet in one place */
        return b;
    }
    return -1;
}

/* A position along axis: any, or that of a loop over an axis that is no longer. */
static kiln_ref some_position(maker *m, int axis) {
    for (int a = 0; a < AXES; a++)
        if (m->looped >> a & 1 && m->extent[a] <= m->extent[axis] && rnd(m, 2))
            return kiln_ir_index(m->ir, a);
    return kiln_ir_const_i(m->ir, KILN_I64, rnd(m, (uint32_t)m->extent[axis]));
}

static void add_access(maker *m, bool store) {
    int b = find_buf(m, store), ncoord = 0;
    if (b < 0 || m->kept) return;
    kiln_dtype t = m->ir->bufs[b].dtype;
    kiln_ir_coord coord[AXES];
    for (int a = 0; a < AXES && !store; a++) {
        if (!(m->ir->bufs[b].axes >> a & 1) || m->extent[a] == 0) continue;
        if (m->looped >> a & 1 && rnd(m, 6)) continue;
        coord[ncoord++] = (kiln_ir_coord){(uint8_t)a, some_position(m, a)};
    }
    bool guarded = rnd(m, 4) == 0;
    kiln_ref guard = guarded ? pick(m, KILN_BOOL) : KILN_NOREF;
    kiln_ref v = guarded && !store ? pick(m, t) : KILN_NOREF;
    if (store) v = m->nvalue ? kiln_ir_cast(m->ir, t, recent(m)) : pick(m, t);
    if (store)
        kiln_ir_store_at(m->ir, b, v, NULL, 0, guard);
    else
        push(m, kiln_ir_load_at(m->ir, b, coord, ncoord, guard, v));
}

/* What a fold that is in no other keeps of an element, before it takes its states. */
static void keep_element(maker *m, const int *axes, int naxes) {
    int b = find_buf(m, true);
    for (int k = 0; k < naxes && b >= 0; k++)
        if (!(m->ir->bufs[b].axes >> axes[k] & 1)) b = -1;
    if (b < 0) return;
    kiln_ir_store(m->ir, b, kiln_ir_cast(m->ir, m->ir->bufs[b].dtype, recent(m)));
    m->kept = true;
}

static void fill(maker *m, int n);
static void add_loop(maker *m);

static void yield_states(maker *m, const kiln_dtype *t, int n) {
    kiln_ref refs[KILN_IR_MAX_STATES];
    for (int k = 0; k < n; k++)
        refs[k] = m->nvalue && rnd(m, 3) ? kiln_ir_cast(m->ir, t[k], recent(m)) : pick(m, t[k]);
    kiln_ir_yield(m->ir, refs, n);
}

static void add_merge(maker *m, const kiln_dtype *t, int n) {
    kiln_ir_merge(m->ir);
    for (int k = 0; k < n; k++) {
        push(m, kiln_ir_left(m->ir, k));
        push(m, kiln_ir_right(m->ir, k));
    }
    for (int k = 0; k < 4; k++) add_prim(m);
    yield_states(m, t, n);
}

/* A loop about to be made.  Its axes are free here, or a block of one is. */
typedef struct loop {
    enum { FOR, FOLD, SCAN } kind;
    bool vec;
    int axes[2], naxes;
    kiln_ir_tree tree;
    int64_t points;
} loop;

static bool is_free(const maker *m, int axis) { return (~m->looped | m->blocks) >> axis & 1; }

/* False if chance finds no loop that is small enough. */
static bool choose_loop(maker *m, loop *l) {
    static const kiln_ir_tree trees[] = {{64, 4096}, {8, 8},   {64, 4096}, {1, 1},
                                         {4, 64},    {64, 64}, {2, 1024}};
    static const uint32_t blocks[] = {1, 4, 64, 256};
    int slow = (int)rnd(m, AXES), last = (int)rnd(m, AXES), kind = m->depth ? (int)rnd(m, 4) : 0;
    bool block = rnd(m, 3) == 0 && !(m->looped >> last & 1), several = rnd(m, 2);
    l->kind = kind < 2 ? FOR : kind == 2 ? FOLD : SCAN;
    l->naxes = l->kind == FOLD && several && slow != last && is_free(m, slow) ? 2 : 1;
    l->axes[0] = slow;
    l->axes[l->naxes - 1] = last;
    l->vec = !m->vec && l->kind != SCAN && rnd(m, 2);
    l->tree = l->kind == FOLD ? trees[rnd(m, 7)] : (kiln_ir_tree){0, 0};
    uint32_t length = blocks[rnd(m, 4)];
    while (length > 1 && length >= m->extent[last]) length /= 2; /* several blocks, if that can be */
    if (block && l->kind != FOR) l->tree = (kiln_ir_tree){0, length};
    if (l->kind == FOLD && !l->tree.lanes) l->vec = false;
    l->points = m->points;
    for (int k = 0; k < l->naxes; k++) l->points *= m->left[l->axes[k]] + 1;
    if (l->kind == FOLD && !l->tree.lanes) l->points = l->points / l->tree.block + 1;
    return is_free(m, last) && m->depth < 4 && l->points <= MAX_POINTS;
}

/* What is seen inside the loop. */
static void enter_loop(maker *m, const loop *l, int nstates) {
    bool block = l->kind == FOLD && !l->tree.lanes;
    int last = l->axes[l->naxes - 1];
    for (int k = 0; k < l->naxes; k++) {
        m->looped |= 1u << l->axes[k];
        m->blocks &= ~(1u << l->axes[k]);
    }
    m->blocks |= (uint32_t)block << last;
    m->vec |= (uint32_t)l->vec << last;
    if (block && m->left[last] > l->tree.block) m->left[last] = l->tree.block;
    m->points = l->points;
    m->depth++;
    m->pure |= l->kind == FOLD;
    if (l->kind != FOR) m->states = block ? 0 : nstates;
}

/* Loops over a block, and what its length and first element are after them. */
static void fill_block(maker *m, int axis) {
    for (int k = 0; k < 3; k++) add_loop(m);
    push(m, kiln_ir_extent(m->ir, axis));
    push(m, kiln_ir_index(m->ir, axis));
    add_access(m, false);
    for (int k = 0; k < 3; k++) add_prim(m);
}

static void add_loop(maker *m) {
    loop l;
    int n = 1 + (int)rnd(m, 3);
    if (!choose_loop(m, &l)) return;
    maker outer = *m;
    kiln_ref init[KILN_IR_MAX_STATES], fold = KILN_NOREF;
    for (int k = 0; k < n; k++) m->state_type[k] = m->types[rnd(m, TYPES)];
    for (int k = 0; l.kind != FOR && k < n; k++) init[k] = pick(m, m->state_type[k]);
    if (l.kind == FOR) kiln_ir_for(m->ir, l.axes[0], l.vec);
    if (l.kind == FOLD) fold = kiln_ir_fold(m->ir, (kiln_ir_run){l.axes, l.naxes, l.vec, l.tree}, init, n);
    if (l.kind == SCAN) fold = kiln_ir_scan(m->ir, l.axes[0], l.tree.block, init, n);
    m->nvalue = outer.nvalue; /* pick may have made constants: those are visible, not listed */
    enter_loop(m, &l, n);
    kiln_dtype t[KILN_IR_MAX_STATES];
    memcpy(t, m->state_type, sizeof t);
    for (int k = 0; k < l.naxes; k++) push(m, kiln_ir_index(m->ir, l.axes[k]));
    add_access(m, false);
    add_access(m, false);
    if (l.kind == FOLD && l.tree.lanes && !outer.pure && rnd(m, 2)) keep_element(m, l.axes, l.naxes);
    if (l.kind != FOR && m->states) push(m, kiln_ir_state(m->ir, 0));
    fill(m, 6 + (int)rnd(m, 14));
    if (m->blocks & ~outer.blocks) fill_block(m, l.axes[l.naxes - 1]);
    for (int k = 0; k < 4 && !m->pure; k++) add_access(m, true);
    if (l.kind != FOR) yield_states(m, t, n);
    m->nvalue = outer.nvalue;
    if (l.kind == FOLD || l.tree.block) add_merge(m, t, n);
    kiln_ir_end(m->ir);
    uint64_t seed = m->seed;
    *m = outer;
    m->seed = seed;
    for (int k = 0; fold != KILN_NOREF && k < n; k++) push(m, kiln_ir_result(m->ir, fold, k));
}

static void fill(maker *m, int n) {
    while (n--) {
        int axis = (int)rnd(m, AXES);
        switch (rnd(m, 12)) {
        case 0:
            if (m->looped >> axis & 1) push(m, kiln_ir_index(m->ir, axis));
            break;
        case 1: push(m, kiln_ir_extent(m->ir, axis)); break;
        case 2: push(m, kiln_ir_par_read(m->ir, (int)rnd(m, 2))); break;
        case 3:
            push(m, kiln_ir_cast(m->ir, m->types[rnd(m, TYPES)], pick(m, m->types[rnd(m, TYPES)])));
            break;
        case 4:
        case 8: add_loop(m); break;
        case 5:
            if (m->states) {
                int k = (int)rnd(m, (uint32_t)m->states);
                push(m, kiln_ir_state(m->ir, k));
            }
            break;
        case 6:
            if (!m->pure) add_access(m, true);
            break;
        case 7: add_access(m, false); break;
        default: add_prim(m); break;
        }
    }
}

/* Axes of a buffer that is not too large. */
static uint32_t some_axes(maker *m) {
    for (;;) {
        uint32_t axes = rnd(m, 1u << AXES);
        int64_t elems = 1;
        for (int a = 0; a < AXES; a++) elems *= axes >> a & 1 ? m->extent[a] : 1;
        if (elems <= MAX_ELEMS) return axes;
    }
}

static void make_kernel(maker *m) {
    static const int64_t extents[] = {1, 2, 3, 5, 63, 64, 70, 200, 1100, 0};
    static const char *const axis_names[] = {"a", "b", "c", "d"};
    char name[8];
    static const kiln_dtype numbers[] = {KILN_I32, KILN_F32, KILN_I64, KILN_F32, KILN_U8, KILN_F64};
    for (int k = 0; k < TYPES; k++) m->types[k] = rnd(m, 4) ? numbers[rnd(m, 6)] : KILN_BOOL;
    for (int a = 0; a < AXES; a++) {
        kiln_ir_axis_add(m->ir, axis_names[a], false);
        m->extent[a] = m->left[a] = extents[rnd(m, rnd(m, 8) ? 9 : 10)];
    }
    kiln_ir_par_add(m->ir, "i", KILN_I32);
    kiln_ir_par_add(m->ir, "f", KILN_F32);
    for (int b = 0; b < MAX_BUFS; b++) {
        snprintf(name, sizeof name, "b%d", b);
        kiln_ir_buf_add(m->ir, name, b & 1 ? KILN_BUF_OUT : KILN_BUF_IN, m->types[rnd(m, TYPES)],
                        some_axes(m), KILN_STRIDE_ANY);
    }
    m->points = 1;
    for (int nests = 1 + (int)rnd(m, 2); nests;) {
        int before = m->ir->nnests;
        add_loop(m);
        nests -= m->ir->nnests > before;
    }
}

/* -- memory ---------------------------------------------------------------------------------------------- */

/* Lays buffers out one after the other; false if they do not fit.  Some are aligned, some are not. */
static bool lay_out(const maker *m, char *memory, char **ptr, int64_t *stride) {
    int64_t at = 0;
    for (int b = 0; b < MAX_BUFS; b++) {
        const kiln_ir_buf *buf = &m->ir->bufs[b];
        int64_t size = (int64_t)kiln_dtype_size(buf->dtype), step = size;
        at = (at + 63) / 64 * 64 + (b % 3 == 0 ? size : 0);
        ptr[b] = memory + at;
        for (int k = 0; k < AXES; k++) {
            int a = b & 2 ? k : AXES - 1 - k; /* both orders */
            bool has = buf->axes >> a & 1;
            stride[b * AXES + a] = has ? step : 0;
            step *= has ? m->extent[a] : 1;
            if (step > MEMORY) return false;
        }
        at += step;
        if (at + 128 > MEMORY) return false;
    }
    return true;
}

/* Fills the memory, the same each time, and the scalars of a random kernel. */
static void fill_memory(char *memory, uint64_t par[2]) {
    static char pattern[MEMORY]; /* made once: to make it takes longer than to run a kernel */
    static bool made;
    float f = 1.25f;
    par[0] = (uint32_t)-3;
    par[1] = 0;
    memcpy(&par[1], &f, sizeof f);
    for (int k = 0; k < MEMORY && !made; k++) pattern[k] = (char)((k * 2654435761u) >> 27);
    made = true;
    memcpy(memory, pattern, MEMORY);
}

static void show(const maker *m, uint64_t seed) {
    kiln_sb sb;
    kiln_sb_init(&sb);
    kiln_ir_print(&sb, m->ir);
    for (int a = 0; a < AXES; a++) fprintf(stderr, "extent %d: %lld\n", a, (long long)m->extent[a]);
    fprintf(stderr, "seed %llu\n%s", (unsigned long long)seed, sb.p);
    kiln_sb_fini(&sb);
}

static bool is_nan(const char *p, kiln_dtype t) {
    float f;
    double d;
    memcpy(&f, p, sizeof f);
    memcpy(&d, p, sizeof d);
    return t == KILN_F32 ? isnan(f) : t == KILN_F64 && isnan(d);
}

/* Whether all buffers hold the same bits but for NaNs, which may be others after simplifying. */
static bool same_numbers(const maker *m, char *a, char *b) {
    char *ptr[MAX_BUFS];
    int64_t stride[MAX_BUFS * AXES];
    assert_true(lay_out(m, a, ptr, stride));
    for (int k = 0; k < MAX_BUFS; k++) {
        const kiln_ir_buf *buf = &m->ir->bufs[k];
        int64_t size = (int64_t)kiln_dtype_size(buf->dtype), n = size;
        for (int x = 0; x < AXES; x++) n *= buf->axes >> x & 1 ? m->extent[x] : 1;
        for (char *p = ptr[k]; p < ptr[k] + n; p += size) {
            char *q = b + (p - a);
            if (memcmp(p, q, (size_t)size) != 0 && !(is_nan(p, buf->dtype) && is_nan(q, buf->dtype)))
                return false;
        }
    }
    return true;
}
#endif
