/* emit_choice.c - steps of a fold that look for the greatest element, or the least, and for its place -> one comparison, not two.
 *
 * The first NaN counts as greatest, so a step asks whether the state is one, and then how the element compares.  Elements that a
 * loop takes together are looked at first, two vectors at once: if none is a NaN, as nearly always, one comparison says the same.
 * Knows the form of such a step; which elements are taken together, emit_lanes.c and emit_block.c say. */
#include "target/cpu/emit_impl.h"

/* The instruction of the step that says `s == s and not (x <= s)`, or >=, of a state s and an element x that it loads; 0: none.
 * The greatest element is found so, and where: the first NaN counts as that.  Where x is none, x > s says the same. */
kiln_ref kiln_em_choice_of(const kiln_emitter *em, int begin) {
    const kiln_ir_ins *ins = em->ir->ins;
    for (kiln_ref r = (kiln_ref)begin + 1; r < em->part_end[begin]; r++) {
        if (ins[r].op != KILN_IR_PRIM || ins[r].prim != KILN_P_AND || ins[r].dtype != KILN_BOOL) continue;
        const kiln_ir_ins *same = &ins[ins[r].arg[0]], *not_ = &ins[ins[r].arg[1]];
        if (same->op != KILN_IR_PRIM || same->prim != KILN_P_EQ || same->arg[0] != same->arg[1]) continue;
        if (not_->op != KILN_IR_PRIM || not_->prim != KILN_P_NOT) continue;
        const kiln_ir_ins *than = &ins[not_->arg[0]];
        if (than->op != KILN_IR_PRIM || (than->prim != KILN_P_LE && than->prim != KILN_P_GE)) continue;
        const kiln_ir_ins *x = &ins[than->arg[0]];
        bool real = x->dtype == KILN_F32 || x->dtype == KILN_F64;
        if (x->op == KILN_IR_LOAD && !x->ncoord && !x->nargs && real && than->arg[1] == same->arg[0] &&
            ins[same->arg[0]].op == KILN_IR_STATE)
            return r;
    }
    return 0;
}

/* What is compared: the element and the state. */
static const kiln_ir_ins *comparison_of(const kiln_emitter *em, kiln_ref choice) {
    const kiln_ir_ins *ins = em->ir->ins;
    return &ins[ins[ins[choice].arg[1]].arg[0]];
}

/* Where neither is a NaN, which of the two is chosen: what x86's max and min give, which are quicker than to compare and select. */
static bool chosen_value(kiln_emitter *em, kiln_ref r, const kiln_ir_ins *compared) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    if (in->op != KILN_IR_PRIM || in->prim != KILN_P_SELECT || in->arg[0] != em->plain) return false;
    if (in->arg[1] != compared->arg[0] || in->arg[2] != compared->arg[1] || in->dtype != KILN_F32)
        return false;
    kiln_em_declare(em, r);
    kiln_em_fn(em, compared->prim == KILN_P_LE ? "upper_f32" : "lower_f32");
    kiln_em_put(em, "(t%u, t%u);\n", in->arg[1], in->arg[2]);
    return true;
}

bool kiln_em_plain_choice(kiln_emitter *em, kiln_ref r) {
    if (!em->plain) return false;
    const kiln_ir_ins *compared = comparison_of(em, em->plain);
    if (r != em->plain) return chosen_value(em, r, compared);
    kiln_em_declare(em, r);
    kiln_em_fn(em, compared->prim == KILN_P_LE ? "gt_%s" : "lt_%s",
               kiln_dtype_name((kiln_dtype)em->ir->ins[compared->arg[0]].dtype));
    kiln_em_put(em, "(t%u, t%u);\n", compared->arg[0], compared->arg[1]);
    return true;
}

/* nan: whether one of the elements that the steps take is one. */
static void look_for_nan(kiln_emitter *em, int begin, kiln_ref x, const kiln_em_steps *steps) {
    const char *type = kiln_dtype_name((kiln_dtype)em->ir->ins[x].dtype);
    for (int j = 0; j < steps->n; j++) {
        kiln_em_line(em, "v%s e%d_%d;", type, begin, j);
        kiln_em_brace(em);
        kiln_em_scope old = steps->enter(em, steps->of, j);
        kiln_em_instruction(em, x);
        kiln_em_leave(em, &old);
        kiln_em_line(em, "e%d_%d = t%u;", begin, j, x);
        kiln_em_close(em);
    }
    kiln_em_start(em);
    kiln_em_put(em, "const int nan = ");
    for (int j = 0; j < steps->n; j += 2) {
        kiln_em_put(em, j ? " | " : "");
        kiln_em_fn(em, "has_nan_%s", type);
        kiln_em_put(em, "(e%d_%d, e%d_%d)", begin, j, begin, j + 1);
    }
    kiln_em_put(em, ";\n");
}

void kiln_em_without_nan(kiln_emitter *em, int begin, kiln_ref choice, const kiln_em_steps *steps) {
    look_for_nan(em, begin, comparison_of(em, choice)->arg[0], steps);
    kiln_em_open(em, "if (__builtin_expect(nan, 0))");
    steps->print(em, steps->of);
    em->indent -= 4;
    kiln_em_open(em, "} else");
    em->plain = choice;
    steps->print(em, steps->of);
    em->plain = 0;
    kiln_em_close(em);
}
