/* ir_simplify.c - a kernel -> an equal one with less in it, bit for bit.
 *
 * Forwards: operands are replaced by simpler equals, constants folded, repeated values found by hashing.
 * Backwards: what no store or trap needs goes.  Then the array is closed up.  Nothing moves: a value
 * stays where it was, so loads keep their order with stores and traps.  Nests stay even when empty, since
 * launches count them. */
#include <math.h>
#include <string.h>

#include "ir/ir_eval.h"

/* All that makes two pure instructions equal; zero-filled, compared as bytes. */
typedef struct key {
    uint64_t imm;
    kiln_ref arg[3];
    uint32_t
        owner; /* state, left, right: their fold; index, load: 1 + the innermost loop that moves their position; extent: 1 + the fold by block that
                       * sets the number of elements; 0: none */
    uint32_t epoch; /* load: stores and traps before it */
    kiln_ir_coord coord[KILN_IR_MAX_AXES];
    uint16_t which;
    uint8_t op, dtype, prim, ncoord;
} key;

typedef struct pass {
    kiln_ir *ir;
    kiln_ref *same; /* per instruction: the value that stands for it; itself if none */
    uint32_t *part; /* per instruction: the region part it stands in */
    bool *keep;
    key *keys;
    kiln_ref *table; /* open addressing; KILN_NOREF: free */
    uint32_t mask;
    uint32_t open[KILN_IR_MAX_NEST], parts[KILN_IR_MAX_NEST];
    int depth;
    uint32_t epoch;
} pass;

static kiln_ir_ins *ins_at(const pass *s, kiln_ref r) { return &s->ir->ins[r]; }
static bool is_const(const pass *s, kiln_ref r) { return ins_at(s, r)->op == KILN_IR_CONST; }

static kiln_ir_imm imm_of(const kiln_ir_ins *ins) {
    kiln_ir_imm v;
    memcpy(&v, &ins->imm, sizeof v);
    return v;
}

static bool is_int_const(const pass *s, kiln_ref r, int64_t v) {
    const kiln_ir_ins *ins = ins_at(s, r);
    return ins->op == KILN_IR_CONST && ins->dtype != KILN_F32 && ins->dtype != KILN_F64 && ins->imm.i == v;
}

static bool is_one(const pass *s, kiln_ref r) {
    const kiln_ir_ins *ins = ins_at(s, r);
    bool real = ins->dtype == KILN_F32 || ins->dtype == KILN_F64;
    return ins->op == KILN_IR_CONST && (real ? ins->imm.f == 1 : ins->imm.i == 1);
}

/* All ones in the type: true, or an integer's -1, as its constants are kept. */
static bool is_ones(const pass *s, kiln_ref r) {
    int t = ins_at(s, r)->dtype;
    int64_t ones = -1;
    if (t == KILN_BOOL) ones = 1;
    if (t == KILN_U8 || t == KILN_U16 || t == KILN_U32)
        ones = (int64_t)(UINT64_MAX >> (64 - 8 * kiln_dtype_size((kiln_dtype)t)));
    return is_int_const(s, r, ones);
}

/* Turns instruction i into a constant of its type. */
static void make_const(pass *s, int i, kiln_ir_imm v) {
    kiln_ir_ins *ins = &s->ir->ins[i];
    uint8_t t = ins->dtype;
    *ins = (kiln_ir_ins){.op = KILN_IR_CONST, .dtype = t, .arg = {KILN_NOREF, KILN_NOREF, KILN_NOREF}};
    memcpy(&ins->imm, &v, sizeof v);
}

/* -- simpler equals ----------------------------------------------------------------------------------- */

/* The operand that `p a, b` equals for every value of the other, or NOREF. */
static kiln_ref neutral(const pass *s, kiln_prim p, kiln_ref a, kiln_ref b) {
    switch (p) {
    case KILN_P_MUL: return is_one(s, b) ? a : is_one(s, a) ? b : KILN_NOREF;
    case KILN_P_DIV:
    case KILN_P_IDIV: return is_one(s, b) ? a : KILN_NOREF;
    case KILN_P_ADD: return is_int_const(s, b, 0) ? a : is_int_const(s, a, 0) ? b : KILN_NOREF;
    case KILN_P_SUB:
    case KILN_P_SHL:
    case KILN_P_SHR: return is_int_const(s, b, 0) ? a : KILN_NOREF;
    case KILN_P_OR:
        if (a == b || is_int_const(s, b, 0) || is_ones(s, a)) return a;
        return is_int_const(s, a, 0) || is_ones(s, b) ? b : KILN_NOREF;
    case KILN_P_XOR: return is_int_const(s, b, 0) ? a : is_int_const(s, a, 0) ? b : KILN_NOREF;
    case KILN_P_AND:
        if (a == b || is_ones(s, b) || is_int_const(s, a, 0)) return a;
        return is_ones(s, a) || is_int_const(s, b, 0) ? b : KILN_NOREF;
    default: return KILN_NOREF;
    }
}

/* Whether every value of `from` survives in `to`. */
static bool lossless(kiln_dtype from, kiln_dtype to);

/* Integers that were both widened are compared as they were. */
static void narrow_comparison(const pass *s, kiln_ir_ins *ins) {
    const kiln_ir_ins *a = ins_at(s, ins->arg[0]), *b = ins_at(s, ins->arg[1]);
    if (a->op != KILN_IR_CAST || b->op != KILN_IR_CAST) return;
    kiln_dtype from = (kiln_dtype)ins_at(s, a->arg[0])->dtype;
    if (from == KILN_BOOL || !kiln_dtype_is_int(from) || ins_at(s, b->arg[0])->dtype != from) return;
    if (!lossless(from, (kiln_dtype)a->dtype)) return;
    ins->arg[0] = a->arg[0];
    ins->arg[1] = b->arg[0];
}

static kiln_ref simpler_prim(pass *s, int i) {
    kiln_ir_ins *ins = &s->ir->ins[i];
    kiln_prim p = (kiln_prim)ins->prim;
    kiln_ref a = ins->arg[0], b = ins->nargs > 1 ? ins->arg[1] : a;
    if (p == KILN_P_SELECT) {
        if (is_const(s, a)) return ins_at(s, a)->imm.i ? b : ins->arg[2];
        return b == ins->arg[2] ? b : (kiln_ref)i;
    }
    kiln_ir_imm x, y, out;
    if (ins->nargs <= 2 && is_const(s, a) && is_const(s, b)) {
        x = imm_of(ins_at(s, a));
        y = imm_of(ins_at(s, b));
        if (kiln_ir_eval_prim(p, (kiln_dtype)ins_at(s, a)->dtype, &x, &y, &out)) make_const(s, i, out);
        return (kiln_ref)i;
    }
    if (p >= KILN_P_EQ && p <= KILN_P_GE) narrow_comparison(s, ins);
    if (p == KILN_P_NOT || p == KILN_P_NEG) {
        const kiln_ir_ins *d = ins_at(s, a);
        return d->op == KILN_IR_PRIM && d->prim == p ? d->arg[0] : (kiln_ref)i;
    }
    kiln_ref r = ins->nargs == 2 ? neutral(s, p, a, b) : KILN_NOREF;
    return r == KILN_NOREF ? (kiln_ref)i : r;
}

static bool lossless(kiln_dtype from, kiln_dtype to) {
    size_t size = kiln_dtype_size(from);
    if (from == KILN_BOOL) return to != KILN_F16 && to != KILN_BF16;
    if (from == KILN_F16 || from == KILN_BF16) return to == KILN_F32;
    if (from == KILN_F32) return to == KILN_F64;
    if (from == KILN_F64 || to == KILN_BOOL) return false;
    if (to == KILN_F32) return size <= 2;
    if (to == KILN_F64) return size <= 4;
    if (!kiln_dtype_is_int(to)) return false;
    return kiln_dtype_size(to) > size && (kiln_dtype_is_signed(to) || !kiln_dtype_is_signed(from));
}

static kiln_ref simpler_cast(pass *s, int i) {
    kiln_ir_ins *ins = &s->ir->ins[i];
    kiln_ref v = ins->arg[0];
    const kiln_ir_ins *d = ins_at(s, v);
    if (d->dtype == ins->dtype) return v;
    if (d->op == KILN_IR_CAST) { /* there and back */
        const kiln_ir_ins *first = ins_at(s, d->arg[0]);
        if (first->dtype == ins->dtype && lossless((kiln_dtype)first->dtype, (kiln_dtype)d->dtype))
            return d->arg[0];
    }
    kiln_ir_imm x, out;
    if (d->op != KILN_IR_CONST) return (kiln_ref)i;
    x = imm_of(d);
    if (kiln_ir_eval_cast((kiln_dtype)ins->dtype, (kiln_dtype)d->dtype, &x, &out)) make_const(s, i, out);
    return (kiln_ref)i;
}

/* A guard that is constant: true goes, false leaves the other value. */
static kiln_ref simpler_load(pass *s, int i) {
    kiln_ir_ins *ins = &s->ir->ins[i];
    if (ins->nargs == 0 || !is_const(s, ins->arg[0])) return (kiln_ref)i;
    if (!ins_at(s, ins->arg[0])->imm.i) return ins->arg[1];
    ins->nargs = 0;
    ins->arg[0] = ins->arg[1] = KILN_NOREF;
    return (kiln_ref)i;
}

/* -- repeated values ----------------------------------------------------------------------------------- */

static bool visible(const pass *s, uint32_t part) {
    for (int k = 0; k < s->depth; k++)
        if (s->parts[k] == part) return true;
    return false;
}

/* 1 + the innermost loop that says where along these axes a point is, or 0.  There may be two over one axis: a block,
 * and a loop over its elements. */
static uint32_t place_of(const pass *s, uint32_t axes) {
    for (int d = s->depth - 1; d >= 0; d--)
        if (s->parts[d] == s->open[d] && (kiln_ir_axes(ins_at(s, s->open[d])) & axes)) return 1 + s->open[d];
    return 0;
}

/* 1 + the fold by block that says how many elements there are along axis, or 0. */
static uint32_t block_of(const pass *s, int axis) {
    for (int d = s->depth - 1; d >= 0; d--)
        if (s->parts[d] == s->open[d] && kiln_ir_block_axis(ins_at(s, s->open[d])) == axis)
            return 1 + s->open[d];
    return 0;
}

static uint32_t owner_of(const pass *s, const kiln_ir_ins *ins) {
    int d = s->depth - 1;
    uint32_t axes;
    switch ((kiln_ir_op)ins->op) {
    case KILN_IR_INDEX: return place_of(s, 1u << ins->which);
    case KILN_IR_EXTENT: return block_of(s, ins->which);
    case KILN_IR_LOAD:
        axes = s->ir->bufs[ins->which].axes;
        for (int k = 0; k < ins->ncoord; k++) axes &= ~(1u << ins->coord[k].axis);
        return place_of(s, axes);
    case KILN_IR_STATE:
    case KILN_IR_LEFT:
    case KILN_IR_RIGHT:
        while (d > 0 && s->ir->ins[s->open[d]].op == KILN_IR_FOR) d--;
        return s->open[d];
    default: return 0;
    }
}

static bool key_of(const pass *s, int i, key *k) {
    const kiln_ir_ins *ins = &s->ir->ins[i];
    memset(k, 0, sizeof *k);
    k->owner = owner_of(s, ins);
    switch ((kiln_ir_op)ins->op) {
    case KILN_IR_CONST: memcpy(&k->imm, &ins->imm, sizeof k->imm); break;
    case KILN_IR_LOAD:
        if (s->ir->bufs[ins->which].role != KILN_BUF_IN) return false;
        k->epoch = s->epoch;
        break;
    case KILN_IR_STATE:
    case KILN_IR_LEFT:
    case KILN_IR_RIGHT:
    case KILN_IR_PAR:
    case KILN_IR_INDEX:
    case KILN_IR_EXTENT:
    case KILN_IR_PRIM:
    case KILN_IR_CAST:
    case KILN_IR_RESULT: break;
    default: return false;
    }
    k->op = ins->op;
    k->dtype = ins->dtype;
    k->prim = ins->prim;
    k->which = ins->which;
    k->ncoord = ins->ncoord;
    for (int a = 0; a < ins->nargs; a++) k->arg[a] = ins->arg[a] + 1;
    for (int c = 0; c < ins->ncoord; c++) { /* field by field: padding stays zero */
        k->coord[c].axis = ins->coord[c].axis;
        k->coord[c].at = ins->coord[c].at;
    }
    return true;
}

/* An equal value that is visible here, else i itself, which later ones will find. */
static kiln_ref find_equal(pass *s, int i) {
    key *k = &s->keys[i];
    if (!key_of(s, i, k)) return (kiln_ref)i;
    uint32_t at = (uint32_t)kiln_hash64_keyed(k, sizeof *k) & s->mask;
    for (; s->table[at] != KILN_NOREF; at = (at + 1) & s->mask) {
        kiln_ref r = s->table[at];
        if (memcmp(&s->keys[r], k, sizeof *k) != 0) continue;
        if (visible(s, s->part[r])) return r;
        break; /* out of sight for good: i takes its place */
    }
    s->table[at] = (kiln_ref)i;
    return (kiln_ref)i;
}

/* -- forwards ------------------------------------------------------------------------------------------ */

static void rename_operands(pass *s, kiln_ir_ins *ins) {
    if (ins->list)
        for (int k = 0; k < ins->nargs; k++) ins->list[k] = s->same[ins->list[k]];
    else
        for (int k = 0; k < ins->nargs; k++) ins->arg[k] = s->same[ins->arg[k]];
    for (int k = 0; k < kiln_ir_computed(ins); k++) ins->coord[k].at = s->same[ins->coord[k].at];
}

static void enter_or_leave(pass *s, int i) {
    const kiln_ir_ins *ins = &s->ir->ins[i];
    s->part[i] = s->depth ? s->parts[s->depth - 1] : KILN_NOREF;
    if (kiln_ir_opens(ins)) {
        s->open[s->depth] = s->parts[s->depth] = (uint32_t)i;
        s->depth++;
    }
    if (ins->op == KILN_IR_MERGE) s->parts[s->depth - 1] = (uint32_t)i;
    if (ins->op == KILN_IR_END) s->depth--;
    if (ins->op == KILN_IR_STORE || ins->op == KILN_IR_TRAP) s->epoch++;
}

static void forwards(pass *s) {
    for (int i = 0; i < s->ir->nins; i++) {
        kiln_ir_ins *ins = &s->ir->ins[i];
        kiln_ref r = (kiln_ref)i;
        enter_or_leave(s, i);
        rename_operands(s, ins);
        if (ins->op == KILN_IR_PRIM) r = simpler_prim(s, i);
        if (ins->op == KILN_IR_CAST) r = simpler_cast(s, i);
        if (ins->op == KILN_IR_LOAD) r = simpler_load(s, i);
        s->same[i] = r == (kiln_ref)i ? find_equal(s, i) : r;
    }
}

/* -- backwards ----------------------------------------------------------------------------------------- */

/* Stores and traps that do nothing are not needed. */
static bool has_effect(const pass *s, const kiln_ir_ins *ins) {
    if (ins->op == KILN_IR_TRAP) return !is_int_const(s, ins->arg[0], 0);
    if (ins->op != KILN_IR_STORE) return false;
    kiln_ref guard = kiln_ir_store_guard(ins);
    return guard == KILN_NOREF || !is_int_const(s, guard, 0);
}

static void keep_with_operands(pass *s, int i) {
    kiln_ir_ins *ins = &s->ir->ins[i];
    s->keep[i] = true;
    kiln_ref guard = ins->op == KILN_IR_STORE ? kiln_ir_store_guard(ins) : KILN_NOREF;
    if (guard != KILN_NOREF && is_int_const(s, guard, 1)) ins->arg[--ins->nargs] = KILN_NOREF;
    for (int k = 0; k < kiln_ir_noperands(ins); k++) s->keep[kiln_ir_operand(ins, k)] = true;
}

/* The opener that belongs to the END at i; *effect: something in between has one. */
static int opener_of(const pass *s, int i, bool *effect) {
    int depth = 0;
    *effect = false;
    for (;; i--) {
        const kiln_ir_ins *ins = &s->ir->ins[i];
        *effect |= has_effect(s, ins);
        if (ins->op == KILN_IR_END) depth++;
        if (kiln_ir_opens(ins) && --depth == 0) return i;
    }
}

static void backwards(pass *s) {
    for (int i = s->ir->nins - 1; i >= 0; i--) {
        const kiln_ir_ins *ins = &s->ir->ins[i];
        bool marker = ins->op == KILN_IR_MERGE || ins->op == KILN_IR_YIELD || kiln_ir_opens(ins);
        if (ins->op == KILN_IR_END) {
            bool effect;
            int open = opener_of(s, i, &effect);
            if (effect || s->keep[open] || s->part[open] == KILN_NOREF)
                s->keep[i] = true;
            else
                i = open; /* nobody needs the region: over it, openers and all */
            continue;
        }
        if (marker || has_effect(s, ins) || s->keep[i]) keep_with_operands(s, i);
    }
}

/* -- closing up ------------------------------------------------------------------------------------------ */

/* Traps are numbered anew, too: the number of a trap is part of the code, and nothing in the text tells of traps that are gone. */
static void compact(pass *s) {
    int n = 0, ntraps = 0;
    for (int i = 0; i < s->ir->nins; i++) {
        if (!s->keep[i]) continue;
        kiln_ir_ins *ins = &s->ir->ins[i];
        rename_operands(s, ins);
        if (ins->op == KILN_IR_TRAP) {
            s->ir->traps[ntraps] = s->ir->traps[ins->which];
            ins->which = (uint16_t)ntraps++;
        }
        s->same[i] = (kiln_ref)n;
        s->ir->ins[n++] = *ins;
    }
    s->ir->nins = n;
    s->ir->ntraps = ntraps;
}

kiln_status kiln_ir_simplify(kiln_ir *ir) {
    KILN_TRY(kiln_ir_verify(ir));
    size_t n = (size_t)ir->nins, cells = 16;
    while (cells < 2 * n) cells *= 2;
    size_t per_ins = sizeof(key) + sizeof(kiln_ref) + sizeof(uint32_t) + sizeof(bool);
    char *memory = kiln_calloc(1, n * per_ins + cells * sizeof(kiln_ref));
    if (!memory) return KILN_NOMEM();
    pass s = {.ir = ir, .mask = (uint32_t)cells - 1};
    s.keys = (key *)(void *)memory;
    s.same = (kiln_ref *)(void *)(s.keys + n);
    s.part = s.same + n;
    s.table = s.part + n;
    s.keep = (bool *)(s.table + cells);
    memset(s.table, 0xff, cells * sizeof *s.table);
    forwards(&s);
    backwards(&s);
    compact(&s);
    kiln_free(memory);
    return KILN_OK;
}
