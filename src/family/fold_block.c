/* fold_block.c - `sum(x)`, `max(x)` and `min(x)` of a row's `block` -> folds of the IR over the block's elements.
 *
 * Those that need none of each other are one fold, so that elements are read once for all of them.  Where all elements are
 * one block, and results are for each, what is folded may be what is needed again to finish: it is then kept where the result will
 * be.  Called as expressions are lowered, which end in such folds; knows nothing of merges of blocks or of finishing. */
#include <string.h>

#include "family/fold_lower.h"
#include "infer/chooser.h"

/* -- what is kept ------------------------------------------------------------------------------------------------ */

/* The result for each element, if there is one alone. */
int kiln_fold_each_result(const kiln_folding *f) {
    int k = 0;
    while (f->each && !(f->each >> k & 1)) k++;
    return f->each == 1u << k ? k : -1;
}

static bool same(const kiln_texpr *a, const kiln_texpr *b) {
    if (a->kind != b->kind || a->dtype != b->dtype || a->prim != b->prim || a->id != b->id) return false;
    if (a->index != b->index || a->exact != b->exact || a->minus != b->minus || a->rule != b->rule)
        return false;
    if (a->i != b->i || memcmp(&a->f, &b->f, sizeof a->f) != 0 || a->nargs != b->nargs) return false;
    for (int k = 0; k < a->nargs; k++)
        if (!same(a->args[k], b->args[k])) return false;
    return true;
}

/* Whether an expression of `finish` is one of `block`, where a state is what that clause says of it. */
static bool same_in_finish(const kiln_folding *f, const kiln_texpr *a, const kiln_texpr *b) {
    if (a->kind == KILN_TE_STATE) return same(f->block[a->id], b);
    if (a->kind == KILN_TE_ELEM || !a->nargs || a->nargs != b->nargs) return same(a, b);
    if (a->kind != b->kind || a->dtype != b->dtype || a->prim != b->prim || a->rule != b->rule) return false;
    for (int k = 0; k < a->nargs; k++)
        if (!same_in_finish(f, a->args[k], b->args[k])) return false;
    return true;
}

static const kiln_texpr *find_in_finish(const kiln_folding *f, const kiln_texpr *in, const kiln_texpr *e) {
    if (same_in_finish(f, in, e)) return in;
    for (int k = 0; k < in->nargs; k++) {
        const kiln_texpr *found = find_in_finish(f, in->args[k], e);
        if (found) return found;
    }
    return NULL;
}

/* Whether e asks for an element or its place, other than in `but`. */
static bool varies(const kiln_texpr *e, const kiln_texpr *but) {
    if (e == but) return false;
    if (e->kind == KILN_TE_ELEM || e->kind == KILN_TE_POS || e->kind == KILN_TE_ACCESS) return true;
    for (int k = 0; k < e->nargs; k++)
        if (varies(e->args[k], but)) return true;
    return false;
}

static bool is_dear(const kiln_texpr *e) {
    return e->kind == KILN_TE_PRIM && kiln_prim_trait(e->prim) == KILN_TRAIT_NEAR;
}

void kiln_fold_open_each(const kiln_folding *f) {
    for (int k = 0; k < f->nreduced; k++)
        kiln_ir_for(f->base.ir, f->reduced[k], k == f->nreduced - 1 && !f->across);
}

void kiln_fold_close_each(const kiln_folding *f) {
    for (int k = 0; k < f->nreduced; k++) kiln_ir_end(f->base.ir);
}

/* What is folded over all elements, and needed again to finish each, is put where the result will be, if that is all
 * that is asked of elements then: exp is not computed twice. */
static bool keep_in_result(kiln_folding *f, const kiln_texpr *e) {
    int k = kiln_fold_each_result(f);
    const kiln_plan *p = f->base.plan;
    if (k < 0 || p->typed.unstored >> k & 1 || f->kept) return false;
    if (!is_dear(e) || p->buffer[k].dtype != e->dtype) return false;
    const kiln_texpr *found = find_in_finish(f, f->finish[k], e);
    if (!found || varies(f->finish[k], found)) return false;
    f->kept = found;
    f->base.ir->bufs[k].role = KILN_BUF_INOUT;
    return true;
}

/* Along, what is kept is stored by a loop of its own before the fold, which then reads it from the first cache. */
static void keep_before(kiln_folding *f, const kiln_texpr *e) {
    kiln_fold_open_each(f);
    kiln_lower_forget(&f->base);
    kiln_ir_store(f->base.ir, kiln_fold_each_result(f), kiln_lower_expr(&f->base, e).re);
    kiln_fold_close_each(f);
}

/* -- folds ------------------------------------------------------------------------------------------------------- */

kiln_ir_tree kiln_fold_tree(const kiln_folding *f) {
    const kiln_plan *p = f->base.plan;
    kiln_form_trees trees = kiln_plan_chooser(p)->fold_trees(p->form);
    return (kiln_ir_tree){trees.lanes, trees.block};
}

/* The folds within e are made first, each once: what is folded over elements may use folds over all of them. */
static void make_folds_within(kiln_lowering *lw, const kiln_texpr *e) {
    for (int k = 0; k < e->nargs; k++) {
        if (!e->args[k]) continue;
        make_folds_within(lw, e->args[k]);
        if (e->args[k]->kind == KILN_TE_BLOCK) (void)lw->block(lw, e->args[k]);
    }
}

static bool find_fold(const kiln_folding *f, const kiln_texpr *e, kiln_pair *v) {
    const kiln_fold_made *made = f->folds;
    while (made && made->of != e->from) made = made->next;
    if (made) *v = made->v;
    return made != NULL;
}

/* Notes a fold that was made.  If there is no memory, the fold is not noted, and the lowering fails later. */
static void note_fold(kiln_folding *f, const kiln_texpr *e, kiln_pair v) {
    kiln_fold_made *made = kiln_arena_alloc(f->base.arena, sizeof *made);
    if (!made) return;
    *made = (kiln_fold_made){e->from, v, f->folds};
    f->folds = made;
}

/* Whether all folds that e uses are made. */
static bool is_ready(const kiln_folding *f, const kiln_texpr *e) {
    kiln_pair v;
    for (int k = 0; k < e->nargs; k++) {
        if (!e->args[k]) continue;
        if (e->args[k]->kind == KILN_TE_BLOCK && !find_fold(f, e->args[k], &v)) return false;
        if (!is_ready(f, e->args[k])) return false;
    }
    return true;
}

/* Folds over the block that are made at once, so that its elements are read once for all of them. */
typedef struct together {
    const kiln_texpr *of[KILN_IR_MAX_STATES];
    int n;
} together;

/* Adds those in e that are not made yet and need none that is not. */
static void gather(const kiln_folding *f, const kiln_texpr *e, together *t) {
    kiln_pair v;
    bool new = e->kind == KILN_TE_BLOCK && !kiln_dtype_is_complex(e->dtype) && t->n < KILN_IR_MAX_STATES;
    for (int k = 0; k < t->n && new; k++) new = t->of[k]->from != e->from;
    if (new && !find_fold(f, e, &v) && is_ready(f, e)) t->of[t->n++] = e;
    for (int k = 0; k < e->nargs; k++)
        if (e->args[k]) gather(f, e->args[k], t);
}

/* Cells of the states of t in order; a complex fold is alone and has two. */
static void yield_together(kiln_folding *f, const together *t, const kiln_pair *v, bool merging) {
    kiln_ir *ir = f->base.ir;
    kiln_ref all[KILN_IR_MAX_STATES];
    int n = 0;
    for (int k = 0; k < t->n; k++)
        for (int part = 0; part < 1 + kiln_dtype_is_complex(t->of[k]->dtype); part++, n++) {
            kiln_ref one = merging ? kiln_ir_left(ir, n) : part ? v[k].im : v[k].re;
            kiln_ref other = merging ? kiln_ir_right(ir, n)
                                     : kiln_ir_state(ir, n); /* second: see lower_expr.c */
            all[n] = kiln_fold_binary(ir, t->of[k]->prim, one, other);
        }
    kiln_ir_yield(ir, all, n);
}

static kiln_ref fold_together(kiln_folding *f, const together *t) {
    kiln_ir *ir = f->base.ir;
    kiln_ref init[KILN_IR_MAX_STATES];
    kiln_pair v[KILN_IR_MAX_STATES];
    int n = 0, first = f->one ? 0 : f->nreduced - 1;
    const kiln_texpr *only = t->n == 1 ? t->of[0]->args[0] : NULL;
    bool kept = f->one && only && keep_in_result(f, only), before = kept && !f->across;
    for (int k = 0; k < t->n; k++) {
        kiln_pair start = kiln_pair_const(ir, t->of[k]->dtype, t->of[k]->i, t->of[k]->f);
        init[n++] = start.re;
        if (kiln_dtype_is_complex(t->of[k]->dtype)) init[n++] = start.im;
    }
    if (before) keep_before(f, only);
    const kiln_ir_run over = {&f->reduced[first], f->nreduced - first, !f->across, kiln_fold_tree(f)};
    kiln_ref fold = kiln_ir_fold(ir, over, init, n);
    kiln_lower_forget(&f->base);
    for (int k = 0; k < t->n; k++)
        v[k] = before ? kiln_pair_load(ir, kiln_fold_each_result(f))
                      : kiln_lower_expr(&f->base, t->of[k]->args[0]);
    if (kept && !before) kiln_ir_store(ir, kiln_fold_each_result(f), v[0].re);
    yield_together(f, t, v, false);
    kiln_ir_merge(ir);
    yield_together(f, t, v, true);
    kiln_ir_end(ir);
    kiln_lower_forget(&f->base);
    return fold;
}

/* e folded over the block. */
kiln_pair kiln_fold_block(kiln_lowering *lw, const kiln_texpr *e) {
    kiln_folding *f = (kiln_folding *)lw;
    kiln_pair v = {KILN_NOREF, KILN_NOREF};
    if (find_fold(f, e, &v)) return v;
    make_folds_within(lw, e);
    together t = {{e}, 1};
    bool complex = kiln_dtype_is_complex(e->dtype);
    for (int k = 0; k < f->states.n && !complex; k++) gather(f, f->block[k], &t);
    kiln_ref fold = fold_together(f, &t);
    v = (kiln_pair){kiln_ir_result(lw->ir, fold, 0), complex ? kiln_ir_result(lw->ir, fold, 1) : KILN_NOREF};
    note_fold(f, e, v);
    for (int k = 1; k < t.n; k++)
        note_fold(f, t.of[k], (kiln_pair){kiln_ir_result(lw->ir, fold, k), KILN_NOREF});
    return v;
}
