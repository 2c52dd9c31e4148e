/* fuzz_ir.c - any bytes either fail with a message, or are a kernel that prints to text which parses to
 * the same text; simplifying it leaves a kernel that verifies.  Each of these stays within the budget that
 * docs/IR.md states.  Kernels that touch memory only where loops say are then run three ways, by the
 * interpreter as written and simplified and by ir_walk.h, and must write the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/cost.h"
#include "fuzz/ir_walk.h"
#include "fuzz/repeat.h"

/* docs/IR.md states these. */
static const cost_budget to_parse = {"parse", 64, 250000, 128, 1 << 20};
static const cost_budget to_print = {"print", 48, 20000, 32, 65536};
static const cost_budget to_simplify = {"simplify", 48, 250000, 64, 65536};

static void require(bool ok) {
    if (!ok) __builtin_trap();
}

static char *print(const kiln_ir *ir) {
    kiln_sb sb;
    char *text = NULL;
    kiln_sb_init(&sb);
    kiln_ir_print(&sb, ir);
    require(kiln_sb_take(&sb, &text) == KILN_OK);
    return text;
}

/* -- running -------------------------------------------------------------------------------------------- */

enum { WORK = 20000, MAX_BUFS = 8, MAX_DIMS = 4, ELEMS = 3 * 4 * 5 * 70 };

static const int64_t extents[MAX_DIMS] = {70, 3, 5, 4}; /* the first one makes full and short rows of lanes */

static int dims_of(const kiln_ir *ir) {
    int n = 0;
    for (int a = 0; a < ir->naxes; a++) n += ir->axes[a].grid ? 2 : 1;
    return n;
}

/* What loops see at some depth. */
typedef struct place {
    int64_t points;                 /* how often what stands here runs, at most */
    int64_t many[KILN_IR_MAX_AXES]; /* positions of a loop over each axis */
    uint32_t vec;                   /* axis of the vector loop */
} place;

static place enter(const place *outer, const kiln_ir_ins *loop) {
    place p = *outer;
    int axis = kiln_ir_block_axis(loop);
    int64_t block = axis >= 0 && loop->imm.tree.block < p.many[axis] ? loop->imm.tree.block : 1;
    for (int a = 0; a < KILN_IR_MAX_AXES; a++)
        if (kiln_ir_axes(loop) >> a & 1) p.points *= a == axis ? (p.many[a] + block - 1) / block : p.many[a];
    if (axis >= 0 && block > 1) p.many[axis] = block;
    if (loop->op == KILN_IR_SCAN && kiln_ir_by_block(loop)) p.points *= 2; /* totals, and then in order */
    p.vec |= (uint32_t)loop->vec << loop->which;
    return p;
}

/* Small enough to run, and with a meaning: every position comes from a loop, what is stored is not
 * loaded, and no two iterations of a vector loop store to one place. */
static bool runnable(const kiln_ir *ir) {
    place at[KILN_IR_MAX_NEST + 1] = {{.points = 1}};
    int64_t work = 0;
    int depth = 0;
    if (dims_of(ir) > MAX_DIMS || ir->nbufs > MAX_BUFS || ir->npars > 8) return false;
    for (int a = 0, d = 0; a < ir->naxes; d += ir->axes[a++].grid ? 2 : 1)
        at[0].many[a] = extents[d] * (ir->axes[a].grid ? extents[d + 1] : 1);
    for (int b = 0; b < ir->nbufs; b++)
        if (ir->bufs[b].role > KILN_BUF_OUT || ir->bufs[b].stride != KILN_STRIDE_ANY) return false;
    for (int i = 0; i < ir->nins; i++) {
        const kiln_ir_ins *ins = &ir->ins[i];
        if (kiln_ir_computed(ins)) return false;
        if (ins->op == KILN_IR_STORE && at[depth].vec & ~ir->bufs[ins->which].axes) return false;
        work += at[depth].points;
        if (ins->op == KILN_IR_END) depth--;
        if (!kiln_ir_opens(ins)) continue;
        at[depth + 1] = enter(&at[depth], ins);
        depth++;
    }
    return work < WORK;
}

typedef struct memory {
    uint64_t elem[MAX_BUFS][2 * ELEMS]; /* an element of c128 takes two */
} memory;

/* Runs all nests over memory filled with a pattern: by the interpreter, or where cells are given by
 * the walk.  Returns the trap. */
static int32_t run(const kiln_ir *ir, memory *m, cell *cells) {
    int64_t origin[MAX_DIMS] = {0}, stride[MAX_BUFS * MAX_DIMS];
    uint64_t par[8];
    char *ptr[MAX_BUFS];
    int ndim = dims_of(ir);
    int32_t trap = 0;
    kiln_interp *p;
    for (int b = 0; b < ir->nbufs; b++) {
        ptr[b] = (char *)m->elem[b];
        int64_t at = (int64_t)kiln_dtype_size(ir->bufs[b].dtype);
        for (int d = 0; d < ndim; at *= extents[d++]) stride[b * ndim + d] = at;
        for (size_t k = 0; k < sizeof m->elem[b]; k++) ptr[b][k] = (char)(k * k + 41 * k + (size_t)b * 11);
    }
    for (int k = 0; k < ir->npars; k++) par[k] = ir->pars[k].dtype == KILN_BOOL ? 1 : 0x3f2f3e2e3d2d3c2c;
    require(kiln_interp_new(ir, kiln_isa_detect(), &p) == KILN_OK);
    for (int nest = 0; nest < ir->nnests && !trap; nest++) {
        kiln_launch l = {nest, ndim, extents, ptr, stride, origin, par, NULL, 0};
        if (cells)
            trap = walk_nest(ir, kiln_isa_detect(), &l, cells);
        else
            require(kiln_interp_run(p, &l, &trap) == KILN_OK);
    }
    kiln_interp_free(p);
    return trap;
}

/* Which of several traps fires is not said. */
static bool same_trap(int32_t a, int32_t b) { return (a == 0) == (b == 0); }

static void compare(const kiln_ir *ir, const kiln_ir *simplified, bool exact) {
    static memory written, walked, shorter;
    cell *cells = aligned_alloc(64, sizeof *cells * (size_t)ir->nins);
    require(cells != NULL);
    memset(cells, 0, sizeof *cells * (size_t)ir->nins);
    int32_t a = run(ir, &written, NULL), b = run(ir, &walked, cells), c = run(simplified, &shorter, NULL);
    free(cells);
    require(same_trap(a, b) && memcmp(&written, &walked, sizeof written) == 0);
    if (exact) require(same_trap(a, c) && memcmp(&written, &shorter, sizeof written) == 0);
}

/* Without floating-point values no NaN comes up, whose bits the simplifier may change. */
static bool is_exact(const kiln_ir *ir) {
    for (int i = 0; i < ir->nins; i++) {
        const kiln_ir_ins *ins = &ir->ins[i];
        if (kiln_ir_op_makes((kiln_ir_op)ins->op) && kiln_dtype_is_float((kiln_dtype)ins->dtype))
            return false;
    }
    return true;
}

static void all(kiln_arena *arena, const char *text, size_t n) {
    kiln_ir *ir, *again;
    cost_start();
    kiln_status st = kiln_ir_parse(arena, text, n, &ir);
    cost_check(&to_parse, n);
    if (st != KILN_OK) {
        require((st == KILN_E_PARSE || st == KILN_E_VERIFY) && kiln_last_error()[0]);
        return;
    }
    cost_start();
    char *once = print(ir);
    cost_check(&to_print, n);
    require(kiln_ir_parse(arena, once, strlen(once), &again) == KILN_OK);
    char *twice = print(again);
    require(strcmp(once, twice) == 0);
    cost_start();
    require(kiln_ir_simplify(again) == KILN_OK);
    cost_check(&to_simplify, n);
    require(kiln_ir_verify(again) == KILN_OK);
    if (runnable(ir)) compare(ir, again, is_exact(ir));
    kiln_free(once);
    kiln_free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    kiln_arena arena;
    kiln_arena_init(&arena);
    repeated text = repeat_expand(data, n);
    all(&arena, text.text, text.n);
    free(text.text);
    kiln_arena_free(&arena);
    return 0;
}
