/* ir_verify.c - says whether a kernel follows every rule of docs/IR.md.
 *
 * One pass over the flat array with a stack of open regions; each rule is one function, each message
 * names the instruction and what was expected.  What passes here can be run by the interpreter and
 * printed as source without further checks.  Changes nothing. */
#include <stdio.h>
#include <string.h>

#include "ir/ir_verify.h"

typedef struct frame {
    int open;      /* the FOR, FOLD or SCAN */
    uint32_t part; /* what values made here belong to: open, or the MERGE */
    bool merge;
    bool kept; /* a fold whose step has stored */
} frame;

typedef struct checker {
    const kiln_ir *ir;
    uint32_t *part_of; /* per instruction: the part of the region it stands in */
    frame *stack;      /* KILN_IR_MAX_NEST of them */
    int depth;
    int at;           /* instruction being checked */
    int nests;        /* seen so far */
    uint32_t indexed; /* bit a: a loop over indexed axis a was seen in this nest */
    bool stores;      /* a store was seen, in any nest */
    bool traps;       /* a trap was seen in this nest */
    bool wrote;       /* a store was seen in this nest */
} checker;

/* "instruction 7 (%4 = load)" in buf: the array's index and what the printer shows. */
static const char *place(const checker *c, char buf[64]) {
    const kiln_ir_ins *ins = &c->ir->ins[c->at];
    const char *name = kiln_ir_op_name((kiln_ir_op)ins->op);
    if (ins->op == KILN_IR_PRIM && ins->prim < KILN_PRIM_COUNT) name = kiln_prim_name((kiln_prim)ins->prim);
    int values = 0;
    for (int i = 0; i < c->at; i++) values += kiln_ir_op_makes((kiln_ir_op)c->ir->ins[i].op);
    if (kiln_ir_op_makes((kiln_ir_op)ins->op))
        snprintf(buf, 64, "instruction %d (%%%d = %s)", c->at, values, name);
    else
        snprintf(buf, 64, "instruction %d (%s)", c->at, name);
    return buf;
}

#define BAD(c, fmt, ...) \
    KILN_FAIL(KILN_E_VERIFY, "kernel \"%s\": %s: " fmt, (c)->ir->name, place(c, (char[64]){0}), __VA_ARGS__)
#define BAD0(c, text) BAD(c, "%s", text)

static const char *dt(int t) { return kiln_dtype_name((kiln_dtype)t); }

static const kiln_ir_ins *opener(const checker *c, int level) { return &c->ir->ins[c->stack[level].open]; }

/* -- operands ------------------------------------------------------------------------------------- */

static bool part_is_open(const checker *c, uint32_t part) {
    for (int k = 0; k < c->depth; k++)
        if (c->stack[k].part == part) return true;
    return false;
}

static kiln_status operand(const checker *c, kiln_ref r, int want, const char *what) {
    if (r >= (kiln_ref)c->at) return BAD(c, "%s must be a value made before it", what);
    const kiln_ir_ins *d = &c->ir->ins[r];
    if (!kiln_ir_op_makes((kiln_ir_op)d->op) || d->op == KILN_IR_FOLD || d->op == KILN_IR_SCAN)
        return BAD(c, "%s must be a value, not a %s", what, kiln_ir_op_name((kiln_ir_op)d->op));
    if (!part_is_open(c, c->part_of[r])) return BAD(c, "%s is made in a region that has ended", what);
    if (want >= 0 && d->dtype != want) return BAD(c, "%s is %s, expected %s", what, dt(d->dtype), dt(want));
    return KILN_OK;
}

static kiln_status check_prim(const checker *c, const kiln_ir_ins *ins) {
    if (ins->prim >= KILN_PRIM_COUNT) return BAD0(c, "no such primitive");
    kiln_prim p = (kiln_prim)ins->prim;
    int n = kiln_prim_arity(p), first = kiln_prim_rule(p) == KILN_RULE_SELECT ? 1 : 0;
    if (ins->nargs != n) return BAD(c, "has %d operands, expected %d", ins->nargs, n);
    if (first) KILN_TRY(operand(c, ins->arg[0], KILN_BOOL, "the condition"));
    KILN_TRY(operand(c, ins->arg[first], -1, "an operand"));
    int t = c->ir->ins[ins->arg[first]].dtype;
    if (!(kiln_prim_types(p) & KILN_DT(t))) return BAD(c, "does not exist for %s", dt(t));
    for (int k = first + 1; k < n; k++) KILN_TRY(operand(c, ins->arg[k], t, "an operand"));
    int made = kiln_prim_result(p, (kiln_dtype)t);
    if (ins->dtype != made) return BAD(c, "makes %s, expected %s", dt(ins->dtype), dt(made));
    return KILN_OK;
}

static kiln_status check_cast(const checker *c, const kiln_ir_ins *ins) {
    if (ins->dtype >= KILN_DTYPE_COUNT) return BAD0(c, "no such type");
    KILN_TRY(operand(c, ins->arg[0], -1, "the operand"));
    int from = c->ir->ins[ins->arg[0]].dtype, to = ins->dtype;
    bool ok = (kiln_ir_is_compute(from) && kiln_ir_is_compute(to)) ||
              (from == KILN_F32 && kiln_ir_is_half(to)) || (kiln_ir_is_half(from) && to == KILN_F32);
    if (!ok) return BAD(c, "casts %s to %s; f16 and bf16 are cast from and to f32 only", dt(from), dt(to));
    return KILN_OK;
}

static kiln_status check_const(const checker *c, const kiln_ir_ins *ins) {
    if (!kiln_ir_is_compute(ins->dtype))
        return BAD(c, "a constant must have a compute type, not %s",
                   ins->dtype < KILN_DTYPE_COUNT ? dt(ins->dtype) : "none");
    return KILN_OK;
}

/* -- axes and memory ------------------------------------------------------------------------------ */

/* Whether a loop over axis is open here.  A merge is outside its fold's loop. */
static bool in_loop_over(const checker *c, int axis) {
    for (int k = 0; k < c->depth; k++)
        if (kiln_ir_axes(opener(c, k)) >> axis & 1 && !c->stack[k].merge) return true;
    return false;
}

static kiln_status check_axis(const checker *c, const kiln_ir_ins *ins) {
    const kiln_ir *ir = c->ir;
    if (ins->which >= ir->naxes) return BAD(c, "axis %d of %d", ins->which, ir->naxes);
    const kiln_ir_axis *a = &ir->axes[ins->which];
    if (ins->dtype != KILN_I64) return BAD(c, "makes %s, expected i64", dt(ins->dtype));
    if (a->grid) return BAD(c, "grid axis %s has neither index nor extent", a->name);
    if (a->indexed && ins->op == KILN_IR_EXTENT)
        return BAD(c, "indexed axis %s has no extent: threads may share it", a->name);
    if (ins->op == KILN_IR_INDEX && !in_loop_over(c, ins->which))
        return BAD(c, "expected to stand in a loop over %s", a->name);
    return KILN_OK;
}

static kiln_status check_access(const checker *c, const kiln_ir_ins *ins) {
    const kiln_ir *ir = c->ir;
    if (ins->which >= ir->nbufs) return BAD(c, "buffer %d of %d", ins->which, ir->nbufs);
    const kiln_ir_buf *b = &ir->bufs[ins->which];
    bool part = ins->op == KILN_IR_LOAD && ins->prim != KILN_PART_WHOLE;
    if (part && (ins->prim > KILN_PART_IM || !kiln_dtype_is_complex(b->dtype)))
        return BAD(c, "buffer %s holds %s, which has no parts", b->name, dt(b->dtype));
    if (ins->op == KILN_IR_LOAD && !part && kiln_dtype_is_complex(b->dtype))
        return BAD(c, "buffer %s holds %s: expected %s.re or %s.im", b->name, dt(b->dtype), b->name, b->name);
    if (ins->dtype != (part ? kiln_dtype_real(b->dtype) : b->dtype))
        return BAD(c, "is %s, buffer %s holds %s", dt(ins->dtype), b->name, dt(b->dtype));
    uint32_t given = 0;
    for (int k = 0; k < ins->ncoord; k++) {
        int axis = ins->coord[k].axis;
        if (axis >= ir->naxes || !(b->axes >> axis & 1))
            return BAD(c, "buffer %s has no axis %s", b->name, axis < ir->naxes ? ir->axes[axis].name : "?");
        if (ir->axes[axis].grid || ir->axes[axis].indexed)
            return BAD(c, "grid axis %s takes no coordinate", ir->axes[axis].name);
        if (given >> axis & 1) return BAD(c, "two coordinates along %s", ir->axes[axis].name);
        given |= 1u << axis;
        KILN_TRY(operand(c, ins->coord[k].at, KILN_I64, "a coordinate"));
    }
    for (int a = 0; a < ir->naxes; a++)
        if ((b->axes & ~given) >> a & 1 && !in_loop_over(c, a))
            return BAD(c, "buffer %s needs a loop over %s or a coordinate", b->name, ir->axes[a].name);
    for (int k = 0; k < c->depth; k++)
        if (c->stack[k].merge) return BAD0(c, "a merge touches no memory");
    return KILN_OK;
}

static kiln_status check_load(const checker *c, const kiln_ir_ins *ins) {
    KILN_TRY(check_access(c, ins));
    for (int k = 0; k < c->depth; k++)
        if (c->stack[k].kept) return BAD0(c, "a fold loads nothing after it has stored");
    const kiln_ir_buf *b = &c->ir->bufs[ins->which];
    if (b->role == KILN_BUF_OUT) return BAD(c, "buffer %s is out: it is written only", b->name);
    if (ins->nargs != 0 && ins->nargs != 2) return BAD0(c, "a guard and its other value go together");
    if (ins->nargs == 0) return KILN_OK;
    KILN_TRY(operand(c, ins->arg[0], KILN_BOOL, "the guard"));
    return operand(c, ins->arg[1], ins->dtype, "the value after else");
}

static kiln_status in_no_fold(const checker *c) {
    for (int k = 0; k < c->depth; k++)
        if (opener(c, k)->op == KILN_IR_FOLD) return BAD0(c, "a fold does not trap");
    return KILN_OK;
}

/* A fold may keep what it computes of an element, in whatever order it comes to them: before it takes the states, and each in a place
 * of its own. */
static kiln_status check_store_in_fold(checker *c, const kiln_ir_ins *ins) {
    int fold = -1;
    for (int k = 0; k < c->depth; k++) {
        if (opener(c, k)->op != KILN_IR_FOLD) continue;
        fold = k;
        if (k < c->depth - 1 || kiln_ir_by_block(opener(c, k)))
            return BAD0(c, "expected directly in the step of a fold that is in no other");
    }
    if (fold < 0) return KILN_OK;
    uint32_t axes = kiln_ir_axes(opener(c, fold));
    if (ins->ncoord || kiln_ir_store_guard(ins) != KILN_NOREF || axes & ~c->ir->bufs[ins->which].axes)
        return BAD0(c, "a fold stores each element in a place of its own");
    for (int i = c->stack[fold].open; i < c->at; i++)
        if (c->ir->ins[i].op == KILN_IR_STATE) return BAD0(c, "a fold stores before it takes its states");
    c->stack[fold].kept = true;
    return KILN_OK;
}

/* Threads that share an indexed axis all run what stands outside the loop over the axis. */
static kiln_status check_store_is_shared(const checker *c) {
    for (int a = 0; a < c->ir->naxes; a++)
        if (c->ir->axes[a].indexed && !in_loop_over(c, a))
            return BAD(c, "a store needs a loop over the indexed axis %s", c->ir->axes[a].name);
    return KILN_OK;
}

static kiln_status check_store(checker *c, const kiln_ir_ins *ins) {
    KILN_TRY(check_access(c, ins));
    KILN_TRY(check_store_is_shared(c));
    KILN_TRY(check_store_in_fold(c, ins));
    const kiln_ir_buf *b = &c->ir->bufs[ins->which];
    if (b->role == KILN_BUF_IN) return BAD(c, "buffer %s is in: it is read only", b->name);
    int n = kiln_ir_store_values(ins);
    if (ins->nargs != n && ins->nargs != n + 1) return BAD(c, "expected %d value(s) and at most a guard", n);
    for (int k = 0; k < n; k++) KILN_TRY(operand(c, ins->arg[k], kiln_dtype_real(b->dtype), "the value"));
    if (ins->nargs > n) KILN_TRY(operand(c, ins->arg[n], KILN_BOOL, "the guard"));
    if (c->traps) return BAD0(c, "a nest that traps stores nothing");
    c->stores = c->wrote = true;
    return KILN_OK;
}

static kiln_status check_trap(checker *c, const kiln_ir_ins *ins) {
    if (ins->which >= c->ir->ntraps) return BAD(c, "message %d of %d", ins->which, c->ir->ntraps);
    KILN_TRY(in_no_fold(c));
    KILN_TRY(operand(c, ins->arg[0], KILN_BOOL, "the condition"));
    if (c->wrote) return BAD0(c, "a nest that stores does not trap");
    if (c->stores) return BAD0(c, "a nest that traps comes before every nest that stores");
    c->traps = true;
    return KILN_OK;
}

/* -- regions ------------------------------------------------------------------------------------- */

static kiln_status check_states(const checker *c, const kiln_ir_ins *ins) {
    if (ins->nargs < 1 || ins->nargs > KILN_IR_MAX_STATES)
        return BAD(c, "has %d states, expected 1 to %d", ins->nargs, KILN_IR_MAX_STATES);
    for (int k = 0; k < ins->nargs; k++) {
        KILN_TRY(operand(c, ins->list[k], -1, "an initial state"));
        int t = c->ir->ins[ins->list[k]].dtype;
        if (!kiln_ir_is_compute(t)) return BAD(c, "state %d is %s, expected a compute type", k, dt(t));
    }
    return KILN_OK;
}

static bool is_power(uint32_t n) { return n && !(n & (n - 1)); }

static kiln_status check_tree(const checker *c, const kiln_ir_ins *ins) {
    kiln_ir_tree t = ins->imm.tree;
    if (ins->op == KILN_IR_SCAN && t.lanes) return BAD0(c, "a scan has no lanes");
    if (ins->op == KILN_IR_SCAN && !t.block) return KILN_OK;
    if (t.lanes && (!is_power(t.lanes) || t.lanes > KILN_IR_MAX_LANES))
        return BAD(c, "lanes %u, expected a power of two from 1 to %d", t.lanes, KILN_IR_MAX_LANES);
    if (!is_power(t.block) || t.block > KILN_IR_MAX_BLOCK || t.block < t.lanes)
        return BAD(c, "block %u, expected a power of two from %u to %d", t.block, t.lanes ? t.lanes : 1,
                   KILN_IR_MAX_BLOCK);
    if (ins->vec && !t.lanes) return BAD0(c, "a fold by block cannot be vec");
    return KILN_OK;
}

/* A loop over an indexed axis is a part of the grid's loops, and the only one over the axis in its nest. */
static kiln_status check_indexed_loop(checker *c, const kiln_ir_ins *ins, int axis) {
    const char *name = c->ir->axes[axis].name;
    bool fits = ins->op == KILN_IR_FOR;
    for (int k = 0; k < c->depth && fits; k++) {
        const kiln_ir_axis *outer = &c->ir->axes[opener(c, k)->which];
        fits = opener(c, k)->op == KILN_IR_FOR && (outer->grid || outer->indexed);
    }
    if (!fits)
        return BAD(c, "indexed axis %s is looped over by a for that stands in loops over the grid only",
                   name);
    if (c->indexed >> axis & 1) return BAD(c, "a second loop over the indexed axis %s", name);
    c->indexed |= 1u << axis;
    return KILN_OK;
}

/* Whether ins may run over axis.  Within a block of a fold, loops over its axis run over that block. */
static kiln_status check_loop_axis(checker *c, const kiln_ir_ins *ins, int axis) {
    if (axis >= c->ir->naxes) return BAD(c, "axis %d of %d", axis, c->ir->naxes);
    const kiln_ir_axis *a = &c->ir->axes[axis];
    if (a->grid && (c->depth || ins->op != KILN_IR_FOR))
        return BAD(c, "grid axis %s is looped over by an outermost for only", a->name);
    if (a->indexed) KILN_TRY(check_indexed_loop(c, ins, axis));
    for (int k = 0; k < c->depth; k++) {
        const kiln_ir_ins *outer = opener(c, k);
        if (!(kiln_ir_axes(outer) >> axis & 1)) continue;
        if (kiln_ir_block_axis(outer) != axis) return BAD(c, "already inside a loop over %s", a->name);
        if (kiln_ir_by_block(ins) && ins->which == axis)
            return BAD(c, "already inside a block of %s, which is not divided again", a->name);
    }
    return KILN_OK;
}

static kiln_status check_loop_axes(checker *c, const kiln_ir_ins *ins) {
    KILN_TRY(check_loop_axis(c, ins, ins->which));
    if (ins->ncoord && ins->op != KILN_IR_FOLD) return BAD0(c, "expected one axis");
    uint32_t seen = 1u << ins->which;
    for (int k = 0; k < ins->ncoord; k++) {
        int axis = ins->coord[k].axis;
        KILN_TRY(check_loop_axis(c, ins, axis));
        if (seen >> axis & 1) return BAD(c, "runs over %s twice", c->ir->axes[axis].name);
        if (ins->coord[k].at != KILN_NOREF) return BAD0(c, "an axis of a fold has no coordinate");
        seen |= 1u << axis;
    }
    return KILN_OK;
}

static kiln_status check_open(checker *c, const kiln_ir_ins *ins) {
    if (c->depth == KILN_IR_MAX_NEST) return BAD(c, "loops nested more than %d deep", KILN_IR_MAX_NEST);
    if (c->depth == 0 && ins->op != KILN_IR_FOR) return BAD0(c, "the outermost loop of a nest must be a for");
    if (c->depth == 0) c->indexed = 0;
    KILN_TRY(check_loop_axes(c, ins));
    for (int k = 0; k < c->depth; k++) {
        if (ins->vec && opener(c, k)->vec) return BAD0(c, "already inside a vec loop");
        if (c->stack[k].merge) return BAD0(c, "a merge holds no loop");
    }
    if (ins->vec && ins->op == KILN_IR_SCAN) return BAD0(c, "a scan cannot be vec");
    if (ins->op != KILN_IR_FOR) {
        KILN_TRY(check_tree(c, ins));
        KILN_TRY(check_states(c, ins));
    }
    if (c->depth == 0) {
        c->nests++;
        c->traps = c->wrote = false;
    }
    c->stack[c->depth++] = (frame){c->at, (uint32_t)c->at, false, false};
    return KILN_OK;
}

static bool is_yield(const checker *c, int i) { return c->ir->ins[i].op == KILN_IR_YIELD; }

static bool merges(const kiln_ir_ins *ins) { return ins->op == KILN_IR_FOLD || kiln_ir_by_block(ins); }

static kiln_status check_merge(checker *c) {
    frame *f = &c->stack[c->depth - 1];
    if (!merges(opener(c, c->depth - 1)) || f->merge)
        return BAD0(c, "expected directly in the step of a fold or of a scan by block");
    if (!is_yield(c, c->at - 1)) return BAD0(c, "the step must end with a yield");
    f->merge = true;
    f->kept = false;
    f->part = (uint32_t)c->at;
    return KILN_OK;
}

/* A scan by block runs its step a first time without storing, so that must read the same the second time. */
static kiln_status check_rerun(const checker *c, int open) {
    bool stored[KILN_IR_MAX_BUFS] = {false};
    for (int i = open; i < c->at; i++)
        if (c->ir->ins[i].op == KILN_IR_STORE) stored[c->ir->ins[i].which] = true;
    for (int i = open; i < c->at; i++)
        if (c->ir->ins[i].op == KILN_IR_LOAD && stored[c->ir->ins[i].which])
            return BAD(c, "a scan by block loads from buffer %s, which it stores to",
                       c->ir->bufs[c->ir->ins[i].which].name);
    return KILN_OK;
}

static kiln_status check_end(checker *c) {
    const frame *f = &c->stack[c->depth - 1];
    const kiln_ir_ins *o = opener(c, c->depth - 1);
    if (merges(o) && !f->merge)
        return BAD(c, "a %s needs a merge", o->op == KILN_IR_FOLD ? "fold" : "scan by block");
    if (o->op != KILN_IR_FOR && !is_yield(c, c->at - 1))
        return BAD(c, "the %s must end with a yield", f->merge ? "merge" : "scan");
    if (o->op == KILN_IR_SCAN && merges(o)) KILN_TRY(check_rerun(c, f->open));
    c->depth--;
    return KILN_OK;
}

static kiln_status check_yield(const checker *c, const kiln_ir_ins *ins) {
    const kiln_ir_ins *f = opener(c, c->depth - 1);
    int next = c->at + 1 < c->ir->nins ? c->ir->ins[c->at + 1].op : KILN_IR_YIELD;
    if (f->op == KILN_IR_FOR) return BAD0(c, "expected directly in a fold or scan");
    if (next != KILN_IR_MERGE && next != KILN_IR_END) return BAD0(c, "expected at the end of its region");
    if (ins->nargs != f->nargs) return BAD(c, "yields %d states, expected %d", ins->nargs, f->nargs);
    for (int k = 0; k < ins->nargs; k++)
        KILN_TRY(operand(c, ins->list[k], c->ir->ins[f->list[k]].dtype, "a new state"));
    return KILN_OK;
}

/* state, left and right belong to the innermost fold or scan. */
static kiln_status check_state(const checker *c, const kiln_ir_ins *ins) {
    int k = c->depth - 1;
    while (k >= 0 && opener(c, k)->op == KILN_IR_FOR) k--;
    if (k < 0) return BAD0(c, "expected inside a fold or scan");
    const kiln_ir_ins *f = opener(c, k);
    if ((ins->op == KILN_IR_STATE) == c->stack[k].merge)
        return BAD(c, "expected in a %s", ins->op == KILN_IR_STATE ? "step" : "merge");
    if (ins->op == KILN_IR_STATE && kiln_ir_block_axis(f) >= 0)
        return BAD0(c, "expected in a step, which a fold by block has not");
    if (ins->which >= f->nargs) return BAD(c, "state %d of %d", ins->which, f->nargs);
    int t = c->ir->ins[f->list[ins->which]].dtype;
    if (ins->dtype != t) return BAD(c, "makes %s, expected %s", dt(ins->dtype), dt(t));
    return KILN_OK;
}

static kiln_status check_result(const checker *c, const kiln_ir_ins *ins) {
    kiln_ref r = ins->arg[0];
    if (r >= (kiln_ref)c->at || (c->ir->ins[r].op != KILN_IR_FOLD && c->ir->ins[r].op != KILN_IR_SCAN))
        return BAD0(c, "expected a fold or scan before it");
    const kiln_ir_ins *f = &c->ir->ins[r];
    if (!part_is_open(c, c->part_of[r])) return BAD0(c, "the fold is in a region that has ended");
    for (int k = 0; k < c->depth; k++)
        if (c->stack[k].open == (int)r) return BAD0(c, "stands inside its own fold");
    if (ins->which >= f->nargs) return BAD(c, "state %d of %d", ins->which, f->nargs);
    int t = c->ir->ins[f->list[ins->which]].dtype;
    if (ins->dtype != t) return BAD(c, "makes %s, expected %s", dt(ins->dtype), dt(t));
    return KILN_OK;
}

/* -- the whole kernel ----------------------------------------------------------------------------- */

static kiln_status check_ins(checker *c, const kiln_ir_ins *ins) {
    if (ins->op >= KILN_IR_OP_COUNT)
        return KILN_FAIL(KILN_E_VERIFY, "kernel \"%s\": instruction %d has no meaning", c->ir->name, c->at);
    if (c->depth == 0 && !kiln_ir_opens(ins)) return BAD0(c, "expected inside a nest");
    c->part_of[c->at] = c->depth ? c->stack[c->depth - 1].part : UINT32_MAX;
    switch ((kiln_ir_op)ins->op) {
    case KILN_IR_CONST: return check_const(c, ins);
    case KILN_IR_PAR:
        if (ins->which >= c->ir->npars) return BAD(c, "scalar %d of %d", ins->which, c->ir->npars);
        if (ins->dtype != c->ir->pars[ins->which].dtype) return BAD0(c, "has not the scalar's type");
        return KILN_OK;
    case KILN_IR_INDEX:
    case KILN_IR_EXTENT: return check_axis(c, ins);
    case KILN_IR_LOAD: return check_load(c, ins);
    case KILN_IR_STORE: return check_store(c, ins);
    case KILN_IR_PRIM: return check_prim(c, ins);
    case KILN_IR_CAST: return check_cast(c, ins);
    case KILN_IR_TRAP: return check_trap(c, ins);
    case KILN_IR_FOR:
    case KILN_IR_FOLD:
    case KILN_IR_SCAN: return check_open(c, ins);
    case KILN_IR_STATE:
    case KILN_IR_LEFT:
    case KILN_IR_RIGHT: return check_state(c, ins);
    case KILN_IR_MERGE: return check_merge(c);
    case KILN_IR_YIELD: return check_yield(c, ins);
    case KILN_IR_END: return check_end(c);
    case KILN_IR_RESULT: return check_result(c, ins);
    case KILN_IR_OP_COUNT: break;
    }
    return KILN_OK;
}

kiln_status kiln_ir_verify(const kiln_ir *ir) {
    if (ir->failed && !ir->why) return KILN_NOMEM();
    if (ir->failed)
        return KILN_FAIL(KILN_E_VERIFY, "kernel \"%s\": while building, after instruction %d: %s", ir->name,
                         ir->nins, ir->why);
    KILN_TRY(kiln_ir_verify_declarations(ir));
    frame stack[KILN_IR_MAX_NEST];
    checker c = {.ir = ir, .stack = stack};
    c.part_of = kiln_alloc(sizeof *c.part_of * (size_t)(ir->nins + 1));
    if (!c.part_of) return KILN_NOMEM();
    kiln_status st = KILN_OK;
    for (; c.at < ir->nins && st == KILN_OK; c.at++) st = check_ins(&c, &ir->ins[c.at]);
    kiln_free(c.part_of);
    KILN_TRY(st);
    if (c.depth) return BAD_KERNEL(ir, "%d regions are not closed", c.depth);
    if (c.nests == 0) return BAD_KERNEL(ir, "%s", "has no nest");
    if (c.nests != ir->nnests) return BAD_KERNEL(ir, "counts %d nests, has %d", ir->nnests, c.nests);
    return KILN_OK;
}
