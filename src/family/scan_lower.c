/* scan_lower.c - (scan row, plan) -> IR: one nest, the grid as its vector loop (or not, of few rows) and the scan inside;
 * or three nests, of few long rows that go by blocks.
 *
 * The step of an element gives the states with it; of these, `finish` gives what is stored there.  The order is the
 * plain one of docs/IR.md 7, so that sums are PyTorch's to the bit; by blocks it is the one that the same section calls so, with a
 * block to each lane.  Must not know C, vector widths or sizes. */
#include "family/scan.h"

#include <stdio.h>
#include <string.h>

#include "family/states.h"
#include "infer/chooser.h"

/* What a state means where it is read. */
typedef enum scope {
    BEFORE, /* the element: the scan's own state */
    WITH,   /* the element: what the step gave */
    MERGING /* a block: on the left the states before it, on the right its own */
} scope;

typedef struct lowering {
    kiln_lowering base; /* first: callbacks get it */
    kiln_states states;
    const kiln_texpr *init[KILN_ROW_MAX_NAMED], *step[KILN_ROW_MAX_NAMED], *merge[KILN_ROW_MAX_NAMED],
        *finish[KILN_MAX_RETS];
    int grid, scanned, blocks; /* axes */
    scope now;
    kiln_ref next[KILN_IR_MAX_STATES], right[KILN_IR_MAX_STATES];
    /* of rows that go by blocks */
    int one[KILN_IR_MAX_STATES],
        all[KILN_IR_MAX_STATES]; /* buffers of states, along the grid and along blocks */
    int firsts;                  /* buffer: the index of each block's first element; -1: none asks for it */
    kiln_ref first;              /* that index, or KILN_NOREF */
} lowering;

/* -- leaves of expressions ------------------------------------------------------------------------------------ */

static kiln_ref cell(const lowering *s, int k, bool right) {
    if (s->now == WITH) return s->next[k];
    return right ? s->right[k] : kiln_ir_state(s->base.ir, k);
}

static kiln_pair state(kiln_lowering *lw, const kiln_texpr *e) {
    lowering *s = (lowering *)lw;
    int k = s->states.at[e->id];
    bool right = e->kind == KILN_TE_RHS;
    kiln_pair v = {cell(s, k, right), KILN_NOREF};
    if (kiln_dtype_is_complex(s->states.dtype[e->id])) v.im = cell(s, k + 1, right);
    return v;
}

static kiln_pair position(kiln_lowering *lw, const kiln_texpr *e) {
    lowering *s = (lowering *)lw;
    if (e->kind == KILN_TE_COUNT) return (kiln_pair){kiln_ir_extent(lw->ir, s->scanned), KILN_NOREF};
    kiln_ref both[2] = {kiln_ir_index(lw->ir, s->scanned), s->first};
    kiln_ref v = s->first == KILN_NOREF ? both[0] : kiln_ir_prim(lw->ir, KILN_P_ADD, both, 2);
    return (kiln_pair){v, KILN_NOREF};
}

/* -- types ---------------------------------------------------------------------------------------------------- */

static bool by_blocks(const lowering *s) { return s->base.plan->form & KILN_SCAN_BLOCKS; }

static kiln_status type_all(lowering *s) {
    const kiln_reduce *r = s->states.reduce;
    KILN_TRY(kiln_states_type(&s->base, &s->states, &r->states, s->init));
    s->base.env.states = true;
    KILN_TRY(kiln_states_type(&s->base, &s->states, &r->step, s->step));
    if (by_blocks(s)) KILN_TRY(kiln_states_type_merge(&s->base, &s->states, s->step, s->merge));
    return kiln_states_type_finish(&s->base, &s->states, s->finish);
}

static bool divides(const lowering *s) {
    bool any = false;
    for (int k = 0; k < s->states.n; k++) any = any || kiln_lower_divides(s->step[k]);
    for (int k = 0; k < s->base.plan->typed.nrets; k++) any = any || kiln_lower_divides(s->finish[k]);
    return any;
}

/* -- the scan ------------------------------------------------------------------------------------------------- */

/* What a nest does with its elements. */
typedef enum purpose {
    TRAPS, /* traps where an integer would be divided by zero: such a nest comes first, while nothing has been written */
    TOTALS,  /* comes to the states of all */
    RESULTS, /* stores results */
} purpose;

/* Over the elements of a row or block, from these states on; returns the scan. */
static kiln_ref scan_elements(lowering *s, purpose why, const kiln_ref *init) {
    kiln_ir *ir = s->base.ir;
    kiln_ref scan = kiln_ir_scan(ir, s->scanned, 0, init, s->states.ncells);
    kiln_lower_forget(&s->base);
    s->now = BEFORE;
    for (int k = 0; k < s->states.n && why == TRAPS; k++) kiln_lower_traps(&s->base, s->step[k]);
    kiln_states_lower(&s->base, &s->states, s->step, s->next);
    s->now = WITH;
    for (int k = 0; k < s->base.plan->typed.nrets && why == TRAPS; k++)
        kiln_lower_traps(&s->base, s->finish[k]);
    if (why == RESULTS) kiln_lower_results(&s->base, s->finish, KILN_ALL_RESULTS);
    kiln_ir_yield(ir, s->next, s->states.ncells);
    kiln_ir_end(ir);
    return scan;
}

static void make_nest(lowering *s, purpose why) {
    kiln_ref init[KILN_IR_MAX_STATES];
    kiln_ir_for(s->base.ir, s->grid, !(s->base.plan->form & KILN_SCAN_ALONE));
    kiln_lower_forget(&s->base);
    kiln_states_lower(&s->base, &s->states, s->init, init);
    (void)scan_elements(s, why, init);
    kiln_ir_end(s->base.ir);
}

/* -- by blocks ------------------------------------------------------------------------------------------------ */

static void load_states(const lowering *s, const int *from, kiln_ref *out) {
    for (int k = 0; k < s->states.ncells; k++) out[k] = kiln_ir_load(s->base.ir, from[k]);
}

/* A block to each lane: from the initial states, of which those at its end are left; or from the states before it, which
 * gives results. */
static void make_block_nest(lowering *s, purpose why) {
    kiln_ir *ir = s->base.ir;
    kiln_ref init[KILN_IR_MAX_STATES];
    kiln_ir_for(ir, s->grid, true);
    kiln_lower_forget(&s->base);
    if (s->firsts >= 0) s->first = kiln_ir_load(ir, s->firsts);
    if (why == TOTALS)
        kiln_states_lower(&s->base, &s->states, s->init, init);
    else
        load_states(s, s->one, init);
    kiln_ref scan = scan_elements(s, why, init);
    for (int k = 0; k < s->states.ncells && why == TOTALS; k++)
        kiln_ir_store(ir, s->one[k], kiln_ir_result(ir, scan, k));
    kiln_ir_end(ir);
}

/* States before some blocks and what each of these comes to -> the states after each. */
static void make_merging_nest(lowering *s) {
    kiln_ir *ir = s->base.ir;
    kiln_ref init[KILN_IR_MAX_STATES];
    kiln_ir_for(ir, s->grid, false);
    load_states(s, s->one, init);
    (void)kiln_ir_scan(ir, s->blocks, 0, init, s->states.ncells);
    load_states(s, s->all, s->right);
    s->now = MERGING;
    kiln_states_lower(&s->base, &s->states, s->merge, s->next);
    for (int k = 0; k < s->states.ncells; k++) kiln_ir_store(ir, s->all[k], s->next[k]);
    kiln_ir_yield(ir, s->next, s->states.ncells);
    kiln_ir_end(ir);
    kiln_ir_end(ir);
}

/* The states of blocks: along the grid (`one`: each lane sees its own) or along an axis of their own. */
static void declare_states(lowering *s, const char *name, uint32_t axes, int *out) {
    kiln_blocks *how = &s->base.out->nests.blocks;
    for (int k = 0; k < s->states.ncells; k++) {
        kiln_dtype t = kiln_states_cell_dtype(&s->states, k);
        char text[24];
        snprintf(text, sizeof text, "%s.%d", name, k);
        out[k] = kiln_ir_buf_add(s->base.ir, text, KILN_BUF_TMP, t, axes, KILN_STRIDE_ANY);
        how->bytes[k] = (uint8_t)kiln_dtype_size(t);
    }
}

static void make_block_nests(lowering *s) {
    kiln_blocks *how = &s->base.out->nests.blocks;
    how->length = kiln_plan_chooser(s->base.plan)->scan_block;
    how->nstates = (uint8_t)s->states.ncells;
    how->places = s->states.reduce->places;
    declare_states(s, "block", 1u << s->grid, s->one);
    declare_states(s, "blocks", 1u << s->grid | 1u << s->blocks, s->all);
    if (how->places)
        s->firsts = kiln_ir_buf_add(s->base.ir, "first.0", KILN_BUF_IN, KILN_I64, 1u << s->grid,
                                    KILN_STRIDE_ANY);
    make_block_nest(s, TOTALS);
    make_merging_nest(s);
    make_block_nest(s, RESULTS);
}

kiln_status kiln_scan_lower(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) {
    lowering *s = kiln_arena_alloc(arena, sizeof *s);
    if (!s) return KILN_NOMEM();
    memset(s, 0, sizeof *s);
    KILN_TRY(kiln_lowering_begin(&s->base, arena, plan, out));
    s->base.state = state;
    s->base.position = position;
    s->first = KILN_NOREF;
    s->firsts = -1;
    KILN_TRY(kiln_states_begin(&s->base, 0, &s->states));
    KILN_TRY(type_all(s));
    s->grid = kiln_ir_axis_add(s->base.ir, "p", true);
    s->scanned = kiln_ir_axis_add(s->base.ir, "r", false);
    uint32_t all = 1u << s->grid | 1u << s->scanned;
    if (by_blocks(s)) s->blocks = kiln_ir_axis_add(s->base.ir, "q", false);
    kiln_lower_buffers(&s->base, all, all);
    if (by_blocks(s)) {
        make_block_nests(s);
        return KILN_OK;
    }
    if (divides(s)) make_nest(s, TRAPS);
    make_nest(s, RESULTS);
    return KILN_OK;
}
