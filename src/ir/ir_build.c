/* ir_build.c - the builder: calls -> instructions in a kernel's flat array.
 *
 * Types every value as it is made, so that callers can ask for it.  Never fails loudly: the first
 * thing it cannot do (no memory, a limit, a reference that is none) is remembered in the kernel, later
 * calls do nothing, and kiln_ir_verify reports it.  Whether a kernel makes sense is the verifier's
 * business; here only what would break the data structure is refused. */
#include <math.h>
#include <string.h>

#include "ir/nests.h"

static const struct {
    const char *text;
    bool makes_value;
} facts[KILN_IR_OP_COUNT] = {
#define I(NAME, text, makes) [KILN_IR_##NAME] = {text, makes},
#include "ir/ins.def"
#undef I
};

const char *kiln_ir_op_name(kiln_ir_op op) { return facts[op].text; }
bool kiln_ir_op_makes(kiln_ir_op op) { return facts[op].makes_value; }

static void fail(kiln_ir *ir, const char *why) {
    if (ir->failed) return;
    ir->failed = true;
    ir->why = why;
}

/* Makes room for one more element in an array of n: capacities are powers of two from 8. */
static void *grown(kiln_ir *ir, void *old, int n, size_t nbytes) {
    if (n && (n < 8 || (n & (n - 1)))) return old;
    void *p = kiln_arena_alloc(ir->arena, nbytes * (size_t)(n ? 2 * n : 8));
    if (!p) {
        fail(ir, NULL);
        return NULL;
    }
    if (n) memcpy(p, old, nbytes * (size_t)n);
    return p;
}

static const char *copy_text(kiln_ir *ir, const char *text) {
    const char *p = kiln_arena_strndup(ir->arena, text ? text : "", text ? strlen(text) : 0);
    if (!p) fail(ir, NULL);
    return p;
}

kiln_ir *kiln_ir_new(kiln_arena *arena, const char *name) {
    kiln_ir *ir = kiln_arena_alloc(arena, sizeof *ir);
    if (!ir) return NULL;
    ir->arena = arena;
    ir->name = copy_text(ir, name);
    return ir->failed ? NULL : ir;
}

/* -- declarations ----------------------------------------------------------------------------- */

int kiln_ir_axis_add(kiln_ir *ir, const char *name, bool grid) {
    if (ir->naxes >= KILN_IR_MAX_AXES) fail(ir, "more than 8 axes");
    if (ir->failed) return 0;
    kiln_ir_axis *axes = grown(ir, ir->axes, ir->naxes, sizeof *axes);
    name = copy_text(ir, name);
    if (ir->failed) return 0;
    ir->axes = axes;
    ir->axes[ir->naxes] = (kiln_ir_axis){.name = name, .grid = grid};
    return ir->naxes++;
}

int kiln_ir_indexed_axis_add(kiln_ir *ir, const char *name) {
    int a = kiln_ir_axis_add(ir, name, false);
    if (!ir->failed) ir->axes[a].indexed = true;
    return a;
}

int kiln_ir_buf_add(kiln_ir *ir, const char *name, kiln_ir_role role, kiln_dtype t, uint32_t axes,
                    kiln_stride stride) {
    if (ir->nbufs >= KILN_IR_MAX_BUFS) fail(ir, "more than 128 buffers");
    if (ir->failed) return 0;
    kiln_ir_buf *bufs = grown(ir, ir->bufs, ir->nbufs, sizeof *bufs);
    name = copy_text(ir, name);
    if (ir->failed) return 0;
    ir->bufs = bufs;
    ir->bufs[ir->nbufs] = (kiln_ir_buf){name, role, t, axes, stride};
    return ir->nbufs++;
}

int kiln_ir_par_add(kiln_ir *ir, const char *name, kiln_dtype t) {
    if (ir->npars >= KILN_IR_MAX_PARS) fail(ir, "more than 128 scalars");
    if (ir->failed) return 0;
    kiln_ir_par *pars = grown(ir, ir->pars, ir->npars, sizeof *pars);
    name = copy_text(ir, name);
    if (ir->failed) return 0;
    ir->pars = pars;
    ir->pars[ir->npars] = (kiln_ir_par){name, t};
    return ir->npars++;
}

/* -- instructions ----------------------------------------------------------------------------- */

static kiln_ref add(kiln_ir *ir, kiln_ir_ins ins) {
    if (ir->nins >= KILN_IR_MAX_INS) fail(ir, "more than 65536 instructions");
    if (ir->failed) return KILN_NOREF;
    if (ir->nins == ir->cap) {
        int cap = ir->cap ? 2 * ir->cap : 32;
        kiln_ir_ins *p = kiln_arena_alloc(ir->arena, sizeof *p * (size_t)cap);
        if (!p) fail(ir, NULL);
        if (!p) return KILN_NOREF;
        if (ir->nins) memcpy(p, ir->ins, sizeof *p * (size_t)ir->nins);
        ir->ins = p;
        ir->cap = cap;
    }
    ir->ins[ir->nins] = ins;
    return (kiln_ref)ir->nins++;
}

static kiln_ir_ins ins_of(kiln_ir_op op, kiln_dtype t) {
    return (kiln_ir_ins){.op = (uint8_t)op, .dtype = (uint8_t)t, .arg = {KILN_NOREF, KILN_NOREF, KILN_NOREF}};
}

static bool is_value(kiln_ir *ir, kiln_ref r) {
    if (!ir->failed && (r >= (kiln_ref)ir->nins || !facts[ir->ins[r].op].makes_value))
        fail(ir, "an operand is not a value");
    return !ir->failed;
}

static kiln_dtype type_of(const kiln_ir *ir, kiln_ref r) { return (kiln_dtype)ir->ins[r].dtype; }

/* An u64 is kept as the i64 of its bits. */
static int64_t wrap(kiln_dtype t, int64_t v) {
    switch (t) {
    case KILN_BOOL: return v != 0;
    case KILN_U8: return (uint8_t)v;
    case KILN_I8: return (int8_t)v;
    case KILN_I16: return (int16_t)v;
    case KILN_I32: return (int32_t)v;
    case KILN_U16: return (uint16_t)v;
    case KILN_U32: return (uint32_t)v;
    default: return v;
    }
}

kiln_ref kiln_ir_const_i(kiln_ir *ir, kiln_dtype t, int64_t v) {
    if (t == KILN_F32 || t == KILN_F64) return kiln_ir_const_f(ir, t, t == KILN_F32 ? (float)v : (double)v);
    if ((unsigned)t >= KILN_DTYPE_COUNT || t == KILN_F16 || t == KILN_BF16 || kiln_dtype_is_complex(t))
        fail(ir, "a constant must have a compute type");
    kiln_ir_ins ins = ins_of(KILN_IR_CONST, t);
    ins.imm.i = wrap(t, v);
    return add(ir, ins);
}

kiln_ref kiln_ir_const_f(kiln_ir *ir, kiln_dtype t, double v) {
    if (t != KILN_F32 && t != KILN_F64) fail(ir, "a floating constant must be f32 or f64");
    kiln_ir_ins ins = ins_of(KILN_IR_CONST, t);
    if (isnan(v)) v = (double)NAN; /* one NaN, so that text and common subexpressions agree */
    ins.imm.f = t == KILN_F32 ? (double)(float)v : v;
    return add(ir, ins);
}

kiln_ref kiln_ir_par_read(kiln_ir *ir, int par) {
    if (par < 0 || par >= ir->npars) fail(ir, "no such scalar");
    if (ir->failed) return KILN_NOREF;
    kiln_ir_ins ins = ins_of(KILN_IR_PAR, ir->pars[par].dtype);
    ins.which = (uint16_t)par;
    return add(ir, ins);
}

static kiln_ir_coord *copy_coords(kiln_ir *ir, const kiln_ir_coord *coord, int n) {
    if (n < 0 || n > KILN_IR_MAX_AXES) fail(ir, "more coordinates than axes");
    if (ir->failed || n == 0) return NULL;
    kiln_ir_coord *p = kiln_arena_alloc(ir->arena, sizeof *p * (size_t)n);
    if (!p) fail(ir, NULL);
    for (int k = 0; p && k < n; k++) {
        if (coord[k].axis >= ir->naxes) fail(ir, "no such axis");
        if (!is_value(ir, coord[k].at)) return NULL;
        p[k] = coord[k];
    }
    return p;
}

kiln_ref kiln_ir_load_part(kiln_ir *ir, kiln_ir_place from, kiln_ir_part part, kiln_ref guard,
                           kiln_ref other) {
    if (from.buf < 0 || from.buf >= ir->nbufs) fail(ir, "no such buffer");
    if ((guard == KILN_NOREF) != (other == KILN_NOREF)) fail(ir, "a guard and its other value go together");
    if (guard != KILN_NOREF && (!is_value(ir, guard) || !is_value(ir, other))) return KILN_NOREF;
    kiln_ir_coord *coords = copy_coords(ir, from.coord, from.ncoord);
    if (ir->failed) return KILN_NOREF;
    kiln_dtype t = ir->bufs[from.buf].dtype;
    kiln_ir_ins ins = ins_of(KILN_IR_LOAD, part == KILN_PART_WHOLE ? t : kiln_dtype_real(t));
    ins.prim = (uint8_t)part;
    ins.which = (uint16_t)from.buf;
    ins.coord = coords;
    ins.ncoord = (uint8_t)from.ncoord;
    ins.nargs = guard == KILN_NOREF ? 0 : 2;
    ins.arg[0] = guard;
    ins.arg[1] = other;
    return add(ir, ins);
}

kiln_ref kiln_ir_load_at(kiln_ir *ir, int buf, const kiln_ir_coord *coord, int ncoord, kiln_ref guard,
                         kiln_ref other) {
    return kiln_ir_load_part(ir, (kiln_ir_place){buf, coord, ncoord}, KILN_PART_WHOLE, guard, other);
}

kiln_ref kiln_ir_load(kiln_ir *ir, int buf) {
    return kiln_ir_load_at(ir, buf, NULL, 0, KILN_NOREF, KILN_NOREF);
}

void kiln_ir_store_parts(kiln_ir *ir, kiln_ir_place to, kiln_ref re, kiln_ref im, kiln_ref guard) {
    if (to.buf < 0 || to.buf >= ir->nbufs) fail(ir, "no such buffer");
    if (!is_value(ir, re) || (guard != KILN_NOREF && !is_value(ir, guard))) return;
    if (im != KILN_NOREF && !is_value(ir, im)) return;
    if (kiln_dtype_is_complex(ir->bufs[to.buf].dtype) != (im != KILN_NOREF))
        fail(ir, "a store has two values into a complex buffer, one into any other");
    kiln_ir_coord *coords = copy_coords(ir, to.coord, to.ncoord);
    if (ir->failed) return;
    kiln_ir_ins ins = ins_of(KILN_IR_STORE, ir->bufs[to.buf].dtype);
    ins.which = (uint16_t)to.buf;
    ins.coord = coords;
    ins.ncoord = (uint8_t)to.ncoord;
    ins.arg[ins.nargs++] = re;
    if (im != KILN_NOREF) ins.arg[ins.nargs++] = im;
    if (guard != KILN_NOREF) ins.arg[ins.nargs++] = guard;
    add(ir, ins);
}

void kiln_ir_store_at(kiln_ir *ir, int buf, kiln_ref value, const kiln_ir_coord *coord, int ncoord,
                      kiln_ref guard) {
    kiln_ir_store_parts(ir, (kiln_ir_place){buf, coord, ncoord}, value, KILN_NOREF, guard);
}

void kiln_ir_store(kiln_ir *ir, int buf, kiln_ref value) {
    kiln_ir_store_at(ir, buf, value, NULL, 0, KILN_NOREF);
}

kiln_ref kiln_ir_prim(kiln_ir *ir, kiln_prim p, const kiln_ref *args, int nargs) {
    if ((unsigned)p >= KILN_PRIM_COUNT) fail(ir, "no such primitive");
    if (!ir->failed && nargs != kiln_prim_arity(p)) fail(ir, "wrong number of operands for a primitive");
    if (ir->failed) return KILN_NOREF;
    kiln_ir_ins ins = ins_of(KILN_IR_PRIM, KILN_BOOL);
    for (int k = 0; k < nargs; k++) {
        if (!is_value(ir, args[k])) return KILN_NOREF;
        ins.arg[k] = args[k];
    }
    ins.prim = (uint8_t)p;
    ins.nargs = (uint8_t)nargs;
    ins.dtype = (uint8_t)kiln_prim_result(
        p, type_of(ir, args[nargs - 1])); /* select's type is its last operand's */
    return add(ir, ins);
}

kiln_ref kiln_ir_cast(kiln_ir *ir, kiln_dtype to, kiln_ref v) {
    if ((unsigned)to >= KILN_DTYPE_COUNT) fail(ir, "no such type");
    if (!is_value(ir, v)) return KILN_NOREF;
    kiln_dtype from = type_of(ir, v);
    if (from == to) return v;
    if (kiln_dtype_compute(from) != from && to != KILN_F32) v = kiln_ir_cast(ir, KILN_F32, v);
    if (!ir->failed && kiln_dtype_compute(to) != to && type_of(ir, v) != KILN_F32)
        v = kiln_ir_cast(ir, KILN_F32, v);
    if (ir->failed) return KILN_NOREF;
    kiln_ir_ins ins = ins_of(KILN_IR_CAST, to);
    ins.nargs = 1;
    ins.arg[0] = v;
    return add(ir, ins);
}

static kiln_ref axis_value(kiln_ir *ir, kiln_ir_op op, int axis) {
    if (axis < 0 || axis >= ir->naxes) fail(ir, "no such axis");
    if (ir->failed) return KILN_NOREF;
    kiln_ir_ins ins = ins_of(op, KILN_I64);
    ins.which = (uint16_t)axis;
    return add(ir, ins);
}

kiln_ref kiln_ir_index(kiln_ir *ir, int axis) { return axis_value(ir, KILN_IR_INDEX, axis); }
kiln_ref kiln_ir_extent(kiln_ir *ir, int axis) { return axis_value(ir, KILN_IR_EXTENT, axis); }

void kiln_ir_trap_if(kiln_ir *ir, kiln_ref cond, kiln_status st, const char *text) {
    if (ir->ntraps >= KILN_IR_MAX_INS - 1) fail(ir, "too many traps");
    if (!is_value(ir, cond)) return;
    kiln_ir_trap *traps = grown(ir, ir->traps, ir->ntraps, sizeof *traps);
    text = copy_text(ir, text);
    if (ir->failed) return;
    ir->traps = traps;
    ir->traps[ir->ntraps] = (kiln_ir_trap){st, text};
    kiln_ir_ins ins = ins_of(KILN_IR_TRAP, KILN_BOOL);
    ins.which = (uint16_t)ir->ntraps++;
    ins.nargs = 1;
    ins.arg[0] = cond;
    add(ir, ins);
}

/* -- regions ------------------------------------------------------------------------------------ */

static kiln_ref *copy_refs(kiln_ir *ir, const kiln_ref *refs, int n) {
    if (n < 1 || n > KILN_IR_MAX_STATES) fail(ir, "a fold or scan has 1 to 8 states");
    for (int k = 0; k < n && !ir->failed; k++) is_value(ir, refs[k]);
    if (ir->failed) return NULL;
    kiln_ref *p = kiln_arena_alloc(ir->arena, sizeof *p * (size_t)n);
    if (!p) fail(ir, NULL);
    if (p) memcpy(p, refs, sizeof *p * (size_t)n);
    return p;
}

/* The axes of a loop: the last one is `which`, those before it are kept as coordinates without a value. */
static void set_axes(kiln_ir *ir, kiln_ir_ins *ins, const int *axes, int n) {
    if (n < 1 || n > KILN_IR_MAX_AXES) fail(ir, "a fold has 1 to 8 axes");
    for (int k = 0; !ir->failed && k < n; k++)
        if (axes[k] < 0 || axes[k] >= ir->naxes) fail(ir, "no such axis");
    if (ir->failed) return;
    ins->which = (uint16_t)axes[n - 1];
    ins->ncoord = (uint8_t)(n - 1);
    if (n == 1) return;
    ins->coord = kiln_arena_alloc(ir->arena, sizeof *ins->coord * (size_t)(n - 1));
    if (!ins->coord) fail(ir, NULL);
    for (int k = 0; ins->coord && k < n - 1; k++)
        ins->coord[k] = (kiln_ir_coord){(uint8_t)axes[k], KILN_NOREF};
}

static kiln_ref open_region(kiln_ir *ir, kiln_ir_ins ins, const int *axes, int naxes, const kiln_ref *init,
                            int nstates) {
    if (ir->nopen >= KILN_IR_MAX_NEST) fail(ir, "loops nested more than 8 deep");
    set_axes(ir, &ins, axes, naxes);
    ins.nargs = (uint8_t)nstates;
    if (ins.op != KILN_IR_FOR) ins.list = copy_refs(ir, init, nstates);
    kiln_ref r = add(ir, ins);
    if (ir->failed) return KILN_NOREF;
    if (ir->nopen == 0 && ins.op == KILN_IR_FOR) ir->nnests++;
    ir->open[ir->nopen++] = (int)r;
    return r;
}

void kiln_ir_for(kiln_ir *ir, int axis, bool vec) {
    kiln_ir_ins ins = ins_of(KILN_IR_FOR, KILN_BOOL);
    ins.vec = vec;
    open_region(ir, ins, &axis, 1, NULL, 0);
}

kiln_ref kiln_ir_fold(kiln_ir *ir, kiln_ir_run over, const kiln_ref *init, int nstates) {
    kiln_ir_ins ins = ins_of(KILN_IR_FOLD, KILN_BOOL);
    ins.vec = over.vec;
    ins.imm.tree = over.tree;
    return open_region(ir, ins, over.axes, over.naxes, init, nstates);
}

kiln_ref kiln_ir_scan(kiln_ir *ir, int axis, uint32_t block, const kiln_ref *init, int nstates) {
    kiln_ir_ins ins = ins_of(KILN_IR_SCAN, KILN_BOOL);
    ins.imm.tree = (kiln_ir_tree){0, block};
    return open_region(ir, ins, &axis, 1, init, nstates);
}

/* The innermost open fold or scan, or NULL with the kernel marked. */
static const kiln_ir_ins *open_fold(kiln_ir *ir) {
    for (int k = ir->nopen - 1; k >= 0 && !ir->failed; k--)
        if (ir->ins[ir->open[k]].op != KILN_IR_FOR) return &ir->ins[ir->open[k]];
    fail(ir, "state, left, right and yield stand inside a fold or scan");
    return NULL;
}

static kiln_ref state_value(kiln_ir *ir, kiln_ir_op op, int k) {
    const kiln_ir_ins *fold = open_fold(ir);
    if (!fold) return KILN_NOREF;
    if (k < 0 || k >= fold->nargs) fail(ir, "no such state");
    if (ir->failed) return KILN_NOREF;
    kiln_ir_ins ins = ins_of(op, type_of(ir, fold->list[k]));
    ins.which = (uint16_t)k;
    return add(ir, ins);
}

kiln_ref kiln_ir_state(kiln_ir *ir, int k) { return state_value(ir, KILN_IR_STATE, k); }
kiln_ref kiln_ir_left(kiln_ir *ir, int k) { return state_value(ir, KILN_IR_LEFT, k); }
kiln_ref kiln_ir_right(kiln_ir *ir, int k) { return state_value(ir, KILN_IR_RIGHT, k); }

void kiln_ir_merge(kiln_ir *ir) { add(ir, ins_of(KILN_IR_MERGE, KILN_BOOL)); }

void kiln_ir_yield(kiln_ir *ir, const kiln_ref *states, int n) {
    kiln_ir_ins ins = ins_of(KILN_IR_YIELD, KILN_BOOL);
    ins.list = copy_refs(ir, states, n);
    ins.nargs = (uint8_t)n;
    add(ir, ins);
}

void kiln_ir_end(kiln_ir *ir) {
    if (ir->nopen == 0) fail(ir, "end without an open region");
    if (ir->failed) return;
    ir->nopen--;
    add(ir, ins_of(KILN_IR_END, KILN_BOOL));
}

kiln_ref kiln_ir_result(kiln_ir *ir, kiln_ref fold, int k) {
    if (!is_value(ir, fold)) return KILN_NOREF;
    const kiln_ir_ins *f = &ir->ins[fold];
    if (f->op != KILN_IR_FOLD && f->op != KILN_IR_SCAN) fail(ir, "result takes a fold or a scan");
    if (!ir->failed && (k < 0 || k >= f->nargs)) fail(ir, "no such state");
    if (ir->failed) return KILN_NOREF;
    kiln_ir_ins ins = ins_of(KILN_IR_RESULT, type_of(ir, f->list[k]));
    ins.which = (uint16_t)k;
    ins.nargs = 1;
    ins.arg[0] = fold;
    return add(ir, ins);
}

/* -- reading ------------------------------------------------------------------------------------- */

int kiln_ir_store_values(const kiln_ir_ins *store) {
    return kiln_dtype_is_complex((kiln_dtype)store->dtype) ? 2 : 1;
}

kiln_ref kiln_ir_store_guard(const kiln_ir_ins *store) {
    int n = kiln_ir_store_values(store);
    return store->nargs > n ? store->arg[n] : KILN_NOREF;
}

int kiln_ir_computed(const kiln_ir_ins *ins) { return ins->op == KILN_IR_FOLD ? 0 : ins->ncoord; }
int kiln_ir_noperands(const kiln_ir_ins *ins) { return ins->nargs + kiln_ir_computed(ins); }
kiln_ref kiln_ir_operand(const kiln_ir_ins *ins, int k) {
    if (k >= ins->nargs) return ins->coord[k - ins->nargs].at;
    return ins->list ? ins->list[k] : ins->arg[k];
}

bool kiln_ir_opens(const kiln_ir_ins *ins) {
    return ins->op == KILN_IR_FOR || ins->op == KILN_IR_FOLD || ins->op == KILN_IR_SCAN;
}

bool kiln_ir_by_block(const kiln_ir_ins *ins) {
    bool folds = ins->op == KILN_IR_FOLD || ins->op == KILN_IR_SCAN;
    return folds && !ins->imm.tree.lanes && ins->imm.tree.block;
}

int kiln_ir_block_axis(const kiln_ir_ins *ins) {
    return ins->op == KILN_IR_FOLD && kiln_ir_by_block(ins) ? ins->which : -1;
}

uint32_t kiln_ir_axes(const kiln_ir_ins *opener) {
    uint32_t axes = 1u << opener->which;
    for (int k = 0; k < opener->ncoord; k++) axes |= 1u << opener->coord[k].axis;
    return axes;
}

int kiln_ir_region_around(const kiln_ir *ir, int r) {
    int begin = r - 1, within = 0;
    for (; begin >= 0 && (within || !kiln_ir_opens(&ir->ins[begin])); begin--)
        within += (ir->ins[begin].op == KILN_IR_END) - kiln_ir_opens(&ir->ins[begin]);
    return begin;
}

int kiln_ir_region_end(const kiln_ir *ir, int begin) {
    int depth = 0;
    for (int i = begin; i < ir->nins; i++) {
        depth += kiln_ir_opens(&ir->ins[i]);
        if (ir->ins[i].op == KILN_IR_END && --depth == 0) return i;
    }
    return ir->nins; /* never, in a verified kernel */
}

int kiln_ir_nest_begin(const kiln_ir *ir, int nest) {
    int i = 0;
    while (i < ir->nins && nest-- > 0) i = kiln_ir_region_end(ir, i) + 1;
    return i;
}

/* Nests before the first one that stores: they can refuse a call while nothing is written yet. */
static int count_guards(const kiln_ir *ir) {
    int nest = 0;
    for (int r = 0; r < ir->nins && nest < ir->nnests; r++) {
        if (ir->ins[r].op == KILN_IR_STORE) return nest;
        if (ir->ins[r].op == KILN_IR_END && r == kiln_ir_region_end(ir, kiln_ir_nest_begin(ir, nest))) nest++;
    }
    return nest;
}

void kiln_ir_nests(const kiln_ir *ir, kiln_nests *out) {
    out->n = (uint16_t)ir->nnests;
    out->nguards = (uint16_t)count_guards(ir);
    out->ntraps = (uint16_t)ir->ntraps;
    out->traps = ir->traps;
}
