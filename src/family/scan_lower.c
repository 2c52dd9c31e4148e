/* scan_lower.c - (scan row, plan) -> IR: one nest, the grid as its vector loop (or not, of few rows) and the scan inside.
 *
 * The step of an element gives the states with it; of these, `finish` gives what is stored there.  The order is the
 * plain one of docs/IR.md 7, so that sums are PyTorch's to the bit.  Must not know C, vector widths or sizes. */
#include "family/scan.h"

#include <string.h>

#include "family/states.h"

typedef struct lowering {
    kiln_lowering base; /* first: callbacks get it */
    kiln_states states;
    const kiln_texpr *init[KILN_ROW_MAX_NAMED], *step[KILN_ROW_MAX_NAMED], *finish[KILN_MAX_RETS];
    int grid, scanned; /* axes */
    bool stepped;      /* states are those with the element, else those before it */
    kiln_ref next[KILN_IR_MAX_STATES];
} lowering;

/* -- leaves of expressions ------------------------------------------------------------------------------------ */

static kiln_ref cell(const lowering *s, int k) {
    return s->stepped ? s->next[k] : kiln_ir_state(s->base.ir, k);
}

static kiln_pair state(kiln_lowering *lw, const kiln_texpr *e) {
    lowering *s = (lowering *)lw;
    int k = s->states.at[e->id];
    kiln_pair v = {cell(s, k), KILN_NOREF};
    if (kiln_dtype_is_complex(s->states.dtype[e->id])) v.im = cell(s, k + 1);
    return v;
}

static kiln_pair position(kiln_lowering *lw, const kiln_texpr *e) {
    lowering *s = (lowering *)lw;
    kiln_ref v = e->kind == KILN_TE_COUNT ? kiln_ir_extent(lw->ir, s->scanned)
                                          : kiln_ir_index(lw->ir, s->scanned);
    return (kiln_pair){v, KILN_NOREF};
}

/* -- the scan ------------------------------------------------------------------------------------------------- */

static kiln_status type_all(lowering *s) {
    const kiln_reduce *r = s->states.reduce;
    KILN_TRY(kiln_states_type(&s->base, &s->states, &r->states, s->init));
    s->base.env.states = true;
    KILN_TRY(kiln_states_type(&s->base, &s->states, &r->step, s->step));
    return kiln_states_type_finish(&s->base, &s->states, s->finish);
}

static bool divides(const lowering *s) {
    bool any = false;
    for (int k = 0; k < s->states.n; k++) any = any || kiln_lower_divides(s->step[k]);
    for (int k = 0; k < s->base.plan->typed.nrets; k++) any = any || kiln_lower_divides(s->finish[k]);
    return any;
}

/* Stores results, or only traps where an integer would be divided by zero: that nest comes first, while nothing has
 * been written. */
static void make_nest(lowering *s, bool stores) {
    kiln_ir *ir = s->base.ir;
    kiln_ref init[KILN_IR_MAX_STATES];
    kiln_ir_for(ir, s->grid, !(s->base.plan->form & KILN_SCAN_ALONE));
    kiln_lower_forget(&s->base);
    kiln_states_lower(&s->base, &s->states, s->init, init);
    kiln_ir_scan(ir, s->scanned, 0, init, s->states.ncells);
    kiln_lower_forget(&s->base);
    s->stepped = false;
    for (int k = 0; k < s->states.n && !stores; k++) kiln_lower_traps(&s->base, s->step[k]);
    kiln_states_lower(&s->base, &s->states, s->step, s->next);
    s->stepped = true;
    for (int k = 0; k < s->base.plan->typed.nrets && !stores; k++) kiln_lower_traps(&s->base, s->finish[k]);
    if (stores) kiln_lower_results(&s->base, s->finish, KILN_ALL_RESULTS);
    kiln_ir_yield(ir, s->next, s->states.ncells);
    kiln_ir_end(ir);
    kiln_ir_end(ir);
}

kiln_status kiln_scan_lower(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) {
    lowering *s = kiln_arena_alloc(arena, sizeof *s);
    if (!s) return KILN_NOMEM();
    memset(s, 0, sizeof *s);
    KILN_TRY(kiln_lowering_begin(&s->base, arena, plan, out));
    s->base.state = state;
    s->base.position = position;
    KILN_TRY(kiln_states_begin(&s->base, 0, &s->states));
    KILN_TRY(type_all(s));
    s->grid = kiln_ir_axis_add(s->base.ir, "p", true);
    s->scanned = kiln_ir_axis_add(s->base.ir, "r", false);
    uint32_t all = 1u << s->grid | 1u << s->scanned;
    kiln_lower_buffers(&s->base, all, all);
    if (divides(s)) make_nest(s, false);
    make_nest(s, true);
    return KILN_OK;
}
