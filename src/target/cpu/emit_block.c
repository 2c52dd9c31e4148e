/* emit_block.c - a block of rows of a fold down columns -> its steps and merges, each printed for itself, on states in registers.
 *
 * Every lane of the tree is a register, so that a block costs a load and an instruction or two for each of its rows.  Where a lane
 * takes one element, the initial states need not be met by each: the first step of a sum or of a maximum gives the element itself.
 * Knows steps and merges of a fold; columns, strips and stacks are emit_strip.c's. */
#include <math.h>
#include <stdio.h>

#include "target/cpu/emit_impl.h"

/* Steps of a block that are printed one after the other: all, if they are few; else one for each lane. */
static int steps_printed(const kiln_ir_ins *f) {
    return (int)(f->imm.tree.block <= KILN_CPU_BLOCK_STEPS ? f->imm.tree.block : f->imm.tree.lanes);
}

/* Whether r computes `prim` of two floats, one of them state (or left or right) k of the fold. */
static bool computes(const kiln_emitter *em, kiln_ref r, kiln_prim prim, kiln_ir_op of, int k) {
    const kiln_ir_ins *v = &em->ir->ins[r];
    if (v->op != KILN_IR_PRIM || v->prim != prim || !kiln_dtype_is_float((kiln_dtype)v->dtype)) return false;
    const kiln_ir_ins *a = &em->ir->ins[v->arg[0]], *b = &em->ir->ins[v->arg[1]];
    return (a->op == of && a->which == k) != (b->op == of && b->which == k);
}

static bool begins_as(const kiln_emitter *em, int begin, int k, double number) {
    const kiln_ir_ins *init = &em->ir->ins[em->ir->ins[begin].list[k]];
    return init->op == KILN_IR_CONST && init->imm.f == number && signbit(init->imm.f) == signbit(number);
}

/* Whether anything of the fold but the values `step` and `merge` looks at state k. */
static bool is_seen_by_others(const kiln_emitter *em, int begin, int k, kiln_ref step, kiln_ref merge) {
    for (kiln_ref r = (kiln_ref)begin + 1; r < em->region_end[begin]; r++) {
        if (r == step || r == merge) continue;
        for (int n = 0; n < kiln_ir_noperands(&em->ir->ins[r]); n++) {
            const kiln_ir_ins *of = &em->ir->ins[kiln_ir_operand(&em->ir->ins[r], n)];
            bool state = of->op == KILN_IR_STATE || of->op == KILN_IR_LEFT || of->op == KILN_IR_RIGHT;
            if (state && of->which == k) return true;
        }
    }
    return false;
}

/* Whether state k is a sum, of steps and of merges, that begins as 0 and of which nothing else is seen before the block's end. */
static bool is_sum(const kiln_emitter *em, int begin, int k) {
    kiln_ref step = em->ir->ins[em->part_end[begin] - 1].list[k];
    kiln_ref merge = em->ir->ins[em->region_end[begin] - 1].list[k];
    return computes(em, step, KILN_P_ADD, KILN_IR_STATE, k) &&
           computes(em, merge, KILN_P_ADD, KILN_IR_LEFT, k) &&
           computes(em, merge, KILN_P_ADD, KILN_IR_RIGHT, k) && begins_as(em, begin, k, 0.0) &&
           !is_seen_by_others(em, begin, k, step, merge);
}

/* State k after the first step of a fold: the element itself where the step is the larger or smaller of it and a state that begins
 * as the least or greatest number, or adds it to 0 (end_sums does that for all of them). */
static kiln_ref after_first_step(const kiln_emitter *em, int begin, int k) {
    kiln_ref r = em->ir->ins[em->part_end[begin] - 1].list[k];
    const kiln_ir_ins *v = &em->ir->ins[r];
    bool most = computes(em, r, KILN_P_MAX, KILN_IR_STATE, k) && begins_as(em, begin, k, -INFINITY);
    bool least = computes(em, r, KILN_P_MIN, KILN_IR_STATE, k) && begins_as(em, begin, k, INFINITY);
    if (!most && !least && !is_sum(em, begin, k)) return r;
    return em->ir->ins[v->arg[0]].op == KILN_IR_STATE ? v->arg[1] : v->arg[0];
}

static void yield_first(kiln_emitter *em, int begin, const char *to) {
    for (int k = 0; k < em->ir->ins[begin].nargs; k++) {
        kiln_em_start(em);
        kiln_em_put(em, "%s.s%d = ", to, k);
        kiln_em_use(em, after_first_step(em, begin, k), em->truth);
        kiln_em_put(em, ";\n");
    }
}

/* Sums whose first steps took the elements themselves differ from those that began as 0 in one thing: where all elements are -0, the
 * sum is -0 and not 0. */
static void end_sums(kiln_emitter *em, int begin) {
    for (int k = 0; k < em->ir->ins[begin].nargs; k++) {
        if (!is_sum(em, begin, k)) continue;
        kiln_em_start(em);
        kiln_em_put(em, "x%d.s%d = ", begin, k);
        kiln_em_fn(em, "add_%s", kiln_dtype_name((kiln_dtype)em->ir->ins[em->ir->ins[begin].list[k]].dtype));
        kiln_em_put(em, "(z%d.s%d, x%d.s%d);\n", begin, k, begin, k);
    }
}

/* Steps of a block, on states in registers.  whole: all have an element, else each asks whether it has. */
typedef struct block_steps {
    int begin, n;
    bool whole;
    bool once;          /* they are all that a block has */
    bool from_elements; /* the first of each lane gives the element itself */
} block_steps;

static kiln_em_scope enter_step(kiln_emitter *em, const void *steps, int j) {
    const block_steps *s = steps;
    kiln_em_scope old = kiln_em_enter(em, em->ir->ins[s->begin].which, "(%s%d + %d)", s->once ? "lo" : "i",
                                      s->begin, j);
    if (s->once) em->inner = em->vec; /* a row's address does not change in the loop over columns */
    return old;
}

static void print_steps(kiln_emitter *em, const void *steps) {
    const block_steps *s = steps;
    int b = s->begin, end = (int)em->part_end[b], lanes = (int)em->ir->ins[b].imm.tree.lanes;
    char state[24];
    for (int j = 0; j < s->n; j++) {
        kiln_em_scope old = enter_step(em, s, j);
        em->fold = (kiln_ref)b;
        snprintf(state, sizeof state, "a%d_%d", b, j & (lanes - 1));
        if (s->whole)
            kiln_em_brace(em);
        else
            kiln_em_open(em, "if (hi%d - lo%d > %d)", b, b, j);
        kiln_em_line(em, "const st%d s%d = %s;", b, b, state);
        kiln_em_part(em, b + 1, end - 1);
        if (s->from_elements && j < lanes)
            yield_first(em, b, state);
        else
            kiln_em_yield(em, end - 1, state, NULL);
        kiln_em_close(em);
        kiln_em_leave(em, &old);
    }
}

static void merge_lanes(kiln_emitter *em, int begin, bool whole) {
    char left[24], right[24];
    for (int w = (int)em->ir->ins[begin].imm.tree.lanes / 2; w; w /= 2)
        for (int j = 0; j < w; j++) {
            snprintf(left, sizeof left, "a%d_%d", begin, j);
            snprintf(right, sizeof right, "a%d_%d", begin, j + w);
            if (!whole) kiln_em_open(em, "if (hi%d - lo%d > %d)", begin, begin, j + w);
            kiln_em_merge(em, begin, left, right, left, NULL);
            if (!whole) kiln_em_close(em);
        }
    kiln_em_line(em, "x%d = a%d_0;", begin, begin);
}

void kiln_em_block_in_registers(kiln_emitter *em, int begin, bool whole) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    int lanes = (int)f->imm.tree.lanes;
    block_steps s = {.begin = begin, .n = steps_printed(f), .whole = whole};
    s.once = f->imm.tree.block == (unsigned)s.n;
    s.from_elements = s.once && whole && s.n > 1;
    kiln_ref choice = s.from_elements ? kiln_em_choice_of(em, begin) : 0;
    for (int j = 0; j < lanes; j++) kiln_em_line(em, "st%d a%d_%d = z%d;", begin, begin, j, begin);
    if (!s.once)
        kiln_em_open(em, "for (long i%d = lo%d; i%d < hi%d; i%d += %d)", begin, begin, begin, begin, begin,
                     lanes);
    if (choice)
        kiln_em_without_nan(em, begin, choice, &(kiln_em_steps){s.n, enter_step, print_steps, &s});
    else
        print_steps(em, &s);
    if (!s.once) kiln_em_close(em);
    merge_lanes(em, begin, whole);
    if (s.from_elements) end_sums(em, begin);
}

/* How often a block's steps and merges may be printed each for itself: for whole vectors of columns; if they are light, and
 * each is one of a block, for the last, partial block, too; and if they are lighter still, for the last, partial vector. */
int kiln_em_whole_blocks(const kiln_emitter *em, int begin) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    int merge = (int)em->part_end[begin];
    int weight = steps_printed(f) * kiln_em_weight(em, begin + 1, merge) +
                 (int)f->imm.tree.lanes * kiln_em_weight(em, merge, (int)em->region_end[begin]);
    bool light = weight <= KILN_CPU_MUCH && f->imm.tree.block == (unsigned)steps_printed(f);
    return light ? 2 + (weight <= 3 * KILN_CPU_MUCH / 4) : weight <= 3 * KILN_CPU_MUCH ? 1 : 0;
}
