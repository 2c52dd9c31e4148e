/* emit_plan.c - where regions end, which vector loops become strips, and what strips keep in the launch's work.
 *
 * Inside a strip, instructions are divided into segments: each is a loop over the columns of the strip of its own, so
 * that loops over rows stand outside those over columns.  A value that one segment makes and another uses lies in the
 * work between them, and so do states of folds and scans.  What is the same for all columns is in no segment.
 * emit_strip.c prints what is decided here. */
#include "target/cpu/emit_impl.h"

enum { ALIGN = 64 };

/* -- where regions end ----------------------------------------------------------------------------------- */

static void find_ends(kiln_emitter *em) {
    uint32_t open[KILN_IR_MAX_NEST];
    int depth = 0;
    for (int r = 0; r < em->ir->nins; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (kiln_ir_opens(in)) {
            em->part_end[r] = 0;
            open[depth++] = (uint32_t)r;
        }
        if (in->op == KILN_IR_MERGE) em->part_end[open[depth - 1]] = (uint32_t)r;
        if (in->op != KILN_IR_END) continue;
        uint32_t from = open[--depth];
        em->region_end[from] = (uint32_t)r;
        if (!em->part_end[from]) em->part_end[from] = (uint32_t)r;
    }
}

bool kiln_em_has_loops(const kiln_emitter *em, int begin) {
    for (uint32_t r = (uint32_t)begin + 1; r < em->part_end[begin]; r++)
        if (kiln_ir_opens(&em->ir->ins[r])) return true;
    return false;
}

bool kiln_em_is_only_fold(const kiln_emitter *em, int begin) {
    for (int r = 0; r < em->ir->nins; r++) {
        bool folds = em->ir->ins[r].op == KILN_IR_FOLD || em->ir->ins[r].op == KILN_IR_SCAN;
        if (folds && r != begin) return false;
    }
    return true;
}

static bool is_function(const kiln_ir_ins *in) {
    kiln_trait trait = in->op == KILN_IR_PRIM ? kiln_prim_trait((kiln_prim)in->prim) : KILN_TRAIT_EXACT;
    return trait == KILN_TRAIT_NEAR || trait == KILN_TRAIT_SPECIAL;
}

int kiln_em_weight(const kiln_emitter *em, int begin, int end) {
    int weight = 0;
    for (int r = begin; r < end; r++)
        if (!kiln_em_is_only_tested(em->ir, (kiln_ref)r))
            weight += is_function(&em->ir->ins[r]) ? KILN_CPU_FUNCTION : 1;
    return weight;
}

bool kiln_em_has_functions(const kiln_emitter *em, int begin, int end) {
    for (int r = begin; r < end; r++)
        if (is_function(&em->ir->ins[r])) return true;
    return false;
}

/* -- tests for a place ------------------------------------------------------------------------------------- */

/* The vector loop around r, if it has no loops inside; or -1. */
static int plain_vector_loop(const kiln_ir *ir, kiln_ref r) {
    int begin = (int)r, end = (int)r;
    while (begin >= 0 && !kiln_ir_opens(&ir->ins[begin])) begin--;
    if (begin < 0 || ir->ins[begin].op != KILN_IR_FOR || !ir->ins[begin].vec) return -1;
    while (!kiln_ir_opens(&ir->ins[end]) && ir->ins[end].op != KILN_IR_END) end++;
    return end == kiln_ir_region_end(ir, begin) ? begin : -1;
}

static bool compares_index(const kiln_ir *ir, kiln_ref r) {
    const kiln_ir_ins *in = &ir->ins[r];
    return in->op == KILN_IR_PRIM && in->prim == KILN_P_EQ && ir->ins[in->arg[0]].op == KILN_IR_INDEX;
}

bool kiln_em_is_place_test(const kiln_ir *ir, kiln_ref r) {
    if (!compares_index(ir, r)) return false;
    int loop = plain_vector_loop(ir, r);
    return loop >= 0 && ir->ins[ir->ins[r].arg[0]].which == ir->ins[loop].which &&
           ir->ins[r].arg[1] < (kiln_ref)loop;
}

bool kiln_em_is_row_test(const kiln_ir *ir, kiln_ref r) {
    if (!compares_index(ir, r) || ir->ins[ir->ins[r].arg[1]].op != KILN_IR_CONST) return false;
    int loop = kiln_ir_region_around(ir, (int)r);
    return loop >= 0 && !ir->ins[loop].vec && ir->ins[ir->ins[r].arg[0]].which == ir->ins[loop].which;
}

/* Whether test k needs no vector of its operand a: a position, or the number of a row. */
static bool tests_only(const kiln_ir *ir, kiln_ref k, int a) {
    return kiln_em_is_row_test(ir, k) || (a == 0 && kiln_em_is_place_test(ir, k));
}

bool kiln_em_is_only_tested(const kiln_ir *ir, kiln_ref r) {
    if (ir->ins[r].op != KILN_IR_INDEX && ir->ins[r].op != KILN_IR_CONST) return false;
    bool tested = false;
    for (int k = (int)r + 1; k < ir->nins; k++)
        for (int a = 0; a < kiln_ir_noperands(&ir->ins[k]); a++) {
            if (kiln_ir_operand(&ir->ins[k], a) != r) continue;
            if (!tests_only(ir, (kiln_ref)k, a)) return false;
            tested = true;
        }
    return tested;
}

/* -- which loops become strips --------------------------------------------------------------------------- */

static bool all_can(const kiln_emitter *em, int begin);

static bool can(const kiln_emitter *em, int begin) {
    const kiln_ir_ins *in = &em->ir->ins[begin];
    if (in->op != KILN_IR_FOLD || kiln_ir_by_block(in)) return all_can(em, begin);
    return in->imm.tree.lanes <= KILN_CPU_STRIP_MAX_LANES && !kiln_em_has_loops(em, begin);
}

/* Whether all loops of a region can be part of a strip. */
static bool all_can(const kiln_emitter *em, int begin) {
    for (uint32_t r = (uint32_t)begin + 1; r < em->part_end[begin]; r++) {
        if (!kiln_ir_opens(&em->ir->ins[r])) continue;
        if (!can(em, (int)r)) return false;
        r = em->region_end[r];
    }
    return true;
}

/* -- segments -------------------------------------------------------------------------------------------- */

typedef struct marker {
    kiln_emitter *em;
    int vec;          /* the axis of the columns */
    uint32_t segment; /* the newest one */
    size_t used;      /* bytes of the work */
} marker;

/* Whether an instruction belongs into the loop over columns: what it makes is not the same for all, or it must keep its
 * place among loads and stores. */
static bool varies(const marker *m, kiln_ref r) {
    const kiln_ir_ins *in = &m->em->ir->ins[r];
    switch ((kiln_ir_op)in->op) {
    case KILN_IR_STORE:
    case KILN_IR_TRAP:
    case KILN_IR_YIELD:
    case KILN_IR_STATE: return true;
    case KILN_IR_INDEX: return in->which == m->vec;
    case KILN_IR_RESULT: return m->em->segment[in->arg[0]] != 0;
    case KILN_IR_LOAD:
        if (m->em->ir->bufs[in->which].role != KILN_BUF_IN) return true;
        if (m->em->ir->bufs[in->which].axes >> m->vec & 1) return true;
        break;
    default: break;
    }
    for (int k = 0; k < kiln_ir_noperands(in); k++)
        if (m->em->segment[kiln_ir_operand(in, k)]) return true;
    return false;
}

static void mark_region(marker *m, int begin);

static void mark_loop(marker *m, int begin) {
    const kiln_ir_ins *in = &m->em->ir->ins[begin];
    bool whole = in->op == KILN_IR_FOLD && !kiln_ir_by_block(in); /* its step has no loops */
    uint32_t own = ++m->segment;
    m->em->segment[begin] = own;
    if (!whole) mark_region(m, begin);
    /* merges, and steps without loops, are printed as they stand */
    for (uint32_t r = whole ? (uint32_t)begin : m->em->part_end[begin]; r < m->em->region_end[begin]; r++)
        m->em->segment[r] = own;
}

static void mark_region(marker *m, int begin) {
    uint32_t run = ++m->segment;
    for (uint32_t r = (uint32_t)begin + 1; r < m->em->part_end[begin]; r++) {
        if (kiln_ir_opens(&m->em->ir->ins[r])) {
            mark_loop(m, (int)r);
            r = m->em->region_end[r];
            run = ++m->segment;
        } else if (varies(m, r)) {
            m->em->segment[r] = run;
        }
    }
}

/* -- the work -------------------------------------------------------------------------------------------- */

static void keep(marker *m, kiln_ref r, size_t bytes_per_vector) {
    if (m->em->work_at[r] != KILN_EM_NONE) return;
    m->em->work_at[r] = (uint32_t)m->used;
    m->used += (bytes_per_vector * (size_t)(KILN_CPU_STRIP / m->em->lanes) + ALIGN - 1) / ALIGN * ALIGN;
}

/* States of a column that a fold or scan keeps: two stacks where there are runs, else one; of a scan those of the
 * last step, by block also the block's start and total. */
static size_t states_kept(const kiln_ir_ins *in) {
    if (in->op == KILN_IR_FOLD) return in->ncoord ? 2 * KILN_EM_LEVELS : KILN_EM_LEVELS;
    return in->op != KILN_IR_SCAN ? 0 : kiln_ir_by_block(in) ? 3 : 1;
}

static void keep_values(marker *m, int begin) {
    kiln_emitter *em = m->em;
    for (uint32_t r = (uint32_t)begin + 1; r < em->region_end[begin]; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (states_kept(in)) keep(m, r, states_kept(in) * kiln_em_states_size(em, (int)r));
        for (int k = 0; k < kiln_ir_noperands(in) && in->op != KILN_IR_RESULT; k++) {
            kiln_ref from = kiln_ir_operand(in, k);
            kiln_dtype t = (kiln_dtype)em->ir->ins[from].dtype;
            if (!em->segment[from] || em->segment[from] == em->segment[r]) continue;
            keep(m, from, (size_t)em->lanes * (t == KILN_BOOL ? em->mask[from] / 8u : kiln_dtype_size(t)));
        }
    }
}

static void plan_strip(kiln_emitter *em, int begin) {
    marker m = {em, em->ir->ins[begin].which, 0, 0};
    em->segment[begin] = ++m.segment;
    mark_region(&m, begin);
    keep_values(&m, begin);
    if (m.used > em->work && m.used <= KILN_CPU_STRIP_MAX_WORK) em->work = m.used;
    for (uint32_t r = (uint32_t)begin; r < em->region_end[begin] && m.used > KILN_CPU_STRIP_MAX_WORK; r++) {
        em->segment[r] = 0;
        em->work_at[r] = KILN_EM_NONE;
    }
}

kiln_status kiln_em_plan(kiln_emitter *em, kiln_arena *scratch) {
    size_t n = (size_t)em->ir->nins + 1;
    em->mask = kiln_arena_alloc(scratch, n);
    em->early = kiln_arena_alloc(scratch, n);
    em->part_end = kiln_arena_alloc(scratch, n * sizeof *em->part_end);
    em->region_end = kiln_arena_alloc(scratch, n * sizeof *em->region_end);
    em->tiles = kiln_arena_alloc(scratch, n * sizeof *em->tiles);
    em->before = kiln_arena_alloc(scratch, n);
    em->segment = kiln_arena_alloc(scratch, n * sizeof *em->segment);
    em->work_at = kiln_arena_alloc(scratch, n * sizeof *em->work_at);
    em->loaded = kiln_arena_alloc(scratch, n * sizeof *em->loaded);
    if (!em->mask || !em->early || !em->tiles || !em->before || !em->part_end || !em->region_end ||
        !em->segment || !em->work_at || !em->loaded)
        return KILN_NOMEM();
    for (int a = 0; a < em->ir->naxes; a++) {
        em->dim[a] = em->ndim;
        em->ndim += em->ir->axes[a].grid ? 2 : 1;
    }
    for (size_t r = 0; r < n; r++) em->work_at[r] = KILN_EM_NONE;
    find_ends(em);
    kiln_em_masks(em);
    for (int r = 0; r < em->ir->nins; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (in->op != KILN_IR_FOR || !in->vec || !kiln_em_has_loops(em, r)) continue;
        int scan = kiln_em_tiled_scan_of(em, r);
        em->tiles[r] = (uint32_t)scan;
        if (!scan && all_can(em, r)) plan_strip(em, r);
    }
    return KILN_OK;
}
