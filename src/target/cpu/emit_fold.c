/* emit_fold.c - folds -> C loops along the fixed tree of docs/IR.md.
 *
 * The states of fold r are a struct st<r> of vectors.  Each block of its axis is folded to x<r>: here by lanes that
 * are kept in an array, or by the region of a fold by block; emit_lanes.c does it where the lanes are the vector.
 * Blocks, and runs of several axes, are merged as a binary counter: after block b the newest state takes in as many of
 * those on the stack as b has trailing ones, after the last block all that are left. */
#include <stdio.h>

#include "target/cpu/emit_impl.h"

/* -- structs of states ----------------------------------------------------------------------------------- */

static kiln_dtype state_type(const kiln_emitter *em, int begin, int k) {
    return (kiln_dtype)em->ir->ins[em->ir->ins[begin].list[k]].dtype;
}

void kiln_em_states_type(kiln_emitter *em, int begin) {
    kiln_em_start(em);
    kiln_em_put(em, "typedef struct {");
    for (int k = 0; k < em->ir->ins[begin].nargs; k++)
        kiln_em_put(em, " v%s s%d;", kiln_em_kept_state(em, state_type(em, begin, k)), k);
    kiln_em_put(em, " } st%d;\n", begin);
}

size_t kiln_em_states_size(const kiln_emitter *em, int begin) {
    size_t size = 0, align = 1;
    for (int k = 0; k < em->ir->ins[begin].nargs; k++) {
        kiln_dtype t = state_type(em, begin, k);
        size_t one = (t == KILN_BOOL ? (size_t)em->truth / 8 : kiln_dtype_size(t)) * (size_t)em->lanes;
        if (one > align) align = one;
        size = (size + one - 1) / one * one + one;
    }
    return (size + align - 1) / align * align;
}

void kiln_em_states(kiln_emitter *em, int begin, const char *fmt, ...) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    va_list ap;
    kiln_em_start(em);
    va_start(ap, fmt);
    kiln_sb_vprintf(&em->body, fmt, ap);
    va_end(ap);
    for (int k = 0; k < f->nargs; k++) {
        kiln_em_put(em, k ? ", " : " = {");
        kiln_em_use(em, f->list[k], em->truth);
    }
    kiln_em_put(em, "};\n");
}

void kiln_em_yield(kiln_emitter *em, int yield, const char *to, const kiln_em_only *only) {
    const kiln_ir_ins *y = &em->ir->ins[yield];
    for (int k = 0; k < y->nargs; k++) {
        kiln_em_start(em);
        kiln_em_put(em, "%s.s%d = ", to, k);
        if (only) {
            kiln_em_put(em, "%s ? ", only->all);
            kiln_em_use(em, y->list[k], em->truth);
            kiln_em_put(em, " : ");
            kiln_em_fn(em, "blend_%s", kiln_em_kept_state(em, (kiln_dtype)em->ir->ins[y->list[k]].dtype));
            kiln_em_put(em, "(%s, ", only->count);
        }
        kiln_em_use(em, y->list[k], em->truth);
        if (only) kiln_em_put(em, ", %s.s%d)", only->rest, k);
        kiln_em_put(em, ";\n");
    }
}

void kiln_em_merge_part(kiln_emitter *em, int begin, const char *to, const kiln_em_only *only) {
    int merge = (int)em->part_end[begin], end = (int)em->region_end[begin];
    kiln_ref old = em->fold;
    em->fold = (kiln_ref)begin;
    kiln_em_part(em, merge + 1, end - 1);
    kiln_em_yield(em, end - 1, to, only);
    em->fold = old;
}

void kiln_em_merge(kiln_emitter *em, int begin, const char *left, const char *right, const char *to,
                   const kiln_em_only *only) {
    kiln_em_brace(em);
    kiln_em_line(em, "const st%d l%d = %s, r%d = %s;", begin, begin, left, begin, right);
    kiln_em_merge_part(em, begin, to, only);
    kiln_em_close(em);
}

/* -- blocks ---------------------------------------------------------------------------------------------- */

void kiln_em_open_blocks(kiln_emitter *em, int begin, const kiln_em_place *at) {
    unsigned block = em->ir->ins[begin].imm.tree.block;
    kiln_em_open(em, "for (long lo%d = %s; lo%d < %s; lo%d += %u)", begin, at->begin, begin, at->end, begin,
                 block);
    kiln_em_line(em, "const long hi%d = %s - lo%d < %u ? %s : lo%d + %u;", begin, at->end, begin, block,
                 at->end, begin, block);
}

/* Merges `state` with what the counter says of the stack and pushes it, unless it is the last: then it is the result. */
static void push(kiln_emitter *em, int begin, const char *state, const char *stack, const char *last) {
    char left[40];
    snprintf(left, sizeof left, "%s%d[--%s%d_top]", stack, begin, stack, begin);
    kiln_em_open(em, "for (long q = %s ? -1 : %s%d_count; q & 1 && %s%d_top; q >>= 1)", last, stack, begin,
                 stack, begin);
    kiln_em_merge(em, begin, left, state, state, NULL);
    kiln_em_close(em);
    kiln_em_line(em, "if (%s) break;", last);
    kiln_em_line(em, "%s%d[%s%d_top++] = %s;", stack, begin, stack, begin, state);
    kiln_em_line(em, "%s%d_count++;", stack, begin);
}

static void declare_stack(kiln_emitter *em, int begin, const char *stack) {
    kiln_em_line(em, "st%d %s%d[%d];", begin, stack, begin, KILN_EM_LEVELS);
    kiln_em_line(em, "long %s%d_top = 0, %s%d_count = 0;", stack, begin, stack, begin);
}

/* A block of elements one after the other; the lanes of its tree lie in an array.  Sets x<begin>. */
void kiln_em_block_by_elements(kiln_emitter *em, int begin) {
    unsigned lanes = em->ir->ins[begin].imm.tree.lanes;
    int end = (int)em->part_end[begin];
    char to[24], left[32], right[40];
    kiln_em_scope old = kiln_em_enter(em, em->ir->ins[begin].which, "i%d", begin);
    em->fold = (kiln_ref)begin;
    snprintf(to, sizeof to, "(*q%d)", begin);
    snprintf(left, sizeof left, "lane%d[j]", begin);
    snprintf(right, sizeof right, "lane%d[j + w]", begin);
    kiln_em_line(em, "st%d lane%d[%u];", begin, begin, lanes);
    kiln_em_open(em, "for (long i%d = lo%d; i%d < hi%d; i%d++)", begin, begin, begin, begin, begin);
    kiln_em_line(em, "st%d *const q%d = &lane%d[i%d - lo%d & %u];", begin, begin, begin, begin, begin,
                 lanes - 1);
    kiln_em_line(em, "const st%d s%d = i%d - lo%d < %u ? z%d : *q%d;", begin, begin, begin, begin, lanes,
                 begin, begin);
    kiln_em_part(em, begin + 1, end - 1);
    kiln_em_yield(em, end - 1, to, NULL);
    kiln_em_close(em);
    kiln_em_leave(em, &old);
    if (lanes > 1) {
        kiln_em_open(em, "for (long w = %u; w; w >>= 1) for (long j = 0; j < w && j + w < hi%d - lo%d; j++)",
                     lanes / 2, begin, begin);
        kiln_em_merge(em, begin, left, right, left, NULL);
        kiln_em_close(em);
    }
    kiln_em_line(em, "x%d = lane%d[0];", begin, begin);
}

kiln_em_scope kiln_em_enter_block(kiln_emitter *em, int begin) {
    int axis = em->ir->ins[begin].which;
    kiln_em_scope old = kiln_em_enter(em, axis, "lo%d", begin);
    snprintf(em->at[axis].begin, sizeof em->at[axis].begin, "lo%d", begin);
    snprintf(em->at[axis].end, sizeof em->at[axis].end, "hi%d", begin);
    em->fold = (kiln_ref)begin;
    return old;
}

static void block_by_region(kiln_emitter *em, int begin) {
    int end = (int)em->part_end[begin];
    char to[16];
    kiln_em_scope old = kiln_em_enter_block(em, begin);
    snprintf(to, sizeof to, "x%d", begin);
    kiln_em_part(em, begin + 1, end - 1);
    kiln_em_yield(em, end - 1, to, NULL);
    kiln_em_leave(em, &old);
}

/* -- whole folds ----------------------------------------------------------------------------------------- */

/* All blocks of the last axis; what they come to is x<begin>, if there are any. */
static void fold_run(kiln_emitter *em, int begin) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    const kiln_em_place at = em->at[f->which];
    char state[16], last[48];
    snprintf(state, sizeof state, "x%d", begin);
    snprintf(last, sizeof last, "hi%d == %s", begin, at.end);
    declare_stack(em, begin, "stack");
    kiln_em_line(em, "st%d x%d;", begin, begin);
    kiln_em_open_blocks(em, begin, &at);
    if (kiln_ir_by_block(f))
        block_by_region(em, begin);
    else if (f->vec)
        kiln_em_block_by_lanes(em, begin);
    else
        kiln_em_block_by_elements(em, begin);
    push(em, begin, state, "stack", last);
    kiln_em_close(em);
}

void kiln_em_open_runs(kiln_emitter *em, int begin, kiln_em_scope *old) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    kiln_em_line(em, "long total%d = 1;", begin);
    for (int k = 0; k < f->ncoord; k++) {
        const kiln_em_place *at = &em->at[f->coord[k].axis];
        kiln_em_line(em, "total%d *= %s - %s;", begin, at->end, at->begin);
    }
    for (int k = 0; k < f->ncoord; k++) {
        int axis = f->coord[k].axis;
        const kiln_em_place at = em->at[axis];
        old[k] = kiln_em_enter(em, axis, "i%d_%d", begin, axis);
        kiln_em_open(em, "for (long i%d_%d = %s; i%d_%d < %s; i%d_%d++)", begin, axis, at.begin, begin, axis,
                     at.end, begin, axis);
    }
}

void kiln_em_close_runs(kiln_emitter *em, int begin, const kiln_em_scope *old) {
    for (int k = em->ir->ins[begin].ncoord - 1; k >= 0; k--) {
        kiln_em_close(em);
        kiln_em_leave(em, &old[k]);
    }
}

/* Whether the last axis has elements, in C. */
static void has_elements(const kiln_emitter *em, int begin, char text[48]) {
    const kiln_em_place *at = &em->at[em->ir->ins[begin].which];
    snprintf(text, 48, "%s > %s", at->end, at->begin);
}

/* All runs; what they come to is y<begin>. */
static void fold_runs(kiln_emitter *em, int begin) {
    kiln_em_scope old[KILN_IR_MAX_AXES];
    char state[16], last[48], any[48];
    snprintf(state, sizeof state, "y%d", begin);
    snprintf(last, sizeof last, "runs%d_count == total%d - 1", begin, begin);
    has_elements(em, begin, any);
    declare_stack(em, begin, "runs");
    kiln_em_line(em, "st%d y%d;", begin, begin);
    kiln_em_open_runs(em, begin, old);
    fold_run(em, begin);
    kiln_em_line(em, "if (!(%s)) break;", any);
    kiln_em_line(em, "y%d = x%d;", begin, begin);
    push(em, begin, state, "runs", last);
    kiln_em_close_runs(em, begin, old);
}

/* The result of a fold along the lanes is in lane 0; all lanes of a value are the same. */
static void spread_result(kiln_emitter *em, int begin, char from) {
    for (int k = 0; k < em->ir->ins[begin].nargs; k++) {
        kiln_dtype t = state_type(em, begin, k);
        kiln_em_start(em);
        kiln_em_put(em, "f%d.s%d = ", begin, k);
        kiln_em_fn(em, "splat_%s", t == KILN_BOOL ? kiln_em_kept_state(em, t) : kiln_dtype_name(t));
        kiln_em_put(em, "(%c%d.s%d[0]);\n", from, begin, k);
    }
}

void kiln_em_fold(kiln_emitter *em, int begin) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    char from = f->ncoord ? 'y' : 'x', any[48];
    kiln_em_states(em, begin, "st%d f%d", begin, begin);
    kiln_em_brace(em);
    kiln_em_line(em, "const st%d z%d = f%d;", begin, begin, begin);
    if (f->ncoord)
        fold_runs(em, begin);
    else
        fold_run(em, begin);
    has_elements(em, begin, any);
    if (f->ncoord)
        kiln_em_open(em, "if (total%d > 0 && %s)", begin, any);
    else
        kiln_em_open(em, "if (%s)", any);
    if (f->vec)
        spread_result(em, begin, from);
    else
        kiln_em_line(em, "f%d = %c%d;", begin, from, begin);
    kiln_em_close(em);
    kiln_em_close(em);
}
