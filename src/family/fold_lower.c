/* fold_lower.c - (fold row, plan) -> IR: the whole fold, or the same in parts that are merged.
 *
 * The whole kernel is one nest, which folds, finishes and stores.  The kernel of parts has two: one folds a part and
 * stores its states, one merges such parts, finishes and stores; it is for folds worth several threads.  States of
 * complex type are two IR states; where the merge asks for counts, one more state counts.  Rows with a `block` fold by
 * blocks, with a fold inside for each `sum`, `max` or `min`; so do rows that keep places, to have them in 32 bits
 * within a block.  With results for each element all elements are one block: they are gone through again in any case,
 * and nothing has to be merged.  Must not know C, vector widths or sizes. */
#include <stdio.h>
#include <string.h>

#include "family/fold_lower.h"
#include "family/walks.h"

enum {
    BLOCK_ALONG = 4096, /* elements of a block that is read twice: they stay in the first cache */
    BLOCK_ACROSS = 256  /* rows of one */
};

/* -- folds over a block ---------------------------------------------------------------------------------------- */

/* Along, each of 64 lanes adds 16 elements of a block one after the other.  With 64 of them, as the IR has it where nothing
 * is said, sums that cancel were a quarter less exact than PyTorch's. */
static kiln_ir_tree tree(const kiln_folding *f) {
    return f->across ? KILN_TREE_ACROSS : (kiln_ir_tree){64, 1024};
}

static bool by_blocks(const kiln_folding *f) { return f->reduce->block.n || f->places; }

/* The tree of the fold itself, which may be by blocks. */
static kiln_ir_tree whole_tree(const kiln_folding *f) {
    return by_blocks(f) ? (kiln_ir_tree){0, f->across ? BLOCK_ACROSS : BLOCK_ALONG} : tree(f);
}

/* The folds within e are made first, each once: what is folded over elements may use folds over all of them. */
static void make_folds_within(kiln_lowering *lw, const kiln_texpr *e) {
    for (int k = 0; k < e->nargs; k++) {
        if (!e->args[k]) continue;
        make_folds_within(lw, e->args[k]);
        if (e->args[k]->kind == KILN_TE_BLOCK) (void)lw->block(lw, e->args[k]);
    }
}

/* -- elements that are gone through again ---------------------------------------------------------------------- */

/* The result for each element, if there is one alone. */
static int each_result(const kiln_folding *f) {
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

static void open_each(const kiln_folding *f) {
    for (int k = 0; k < f->nreduced; k++)
        kiln_ir_for(f->base.ir, f->reduced[k], k == f->nreduced - 1 && !f->across);
}

static void close_each(const kiln_folding *f) {
    for (int k = 0; k < f->nreduced; k++) kiln_ir_end(f->base.ir);
}

/* What is folded over all elements, and needed again to finish each, is put where the result will be, if that is all
 * that is asked of elements then: exp is not computed twice. */
static bool keep_in_result(kiln_folding *f, const kiln_texpr *e) {
    int k = each_result(f);
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
    open_each(f);
    kiln_lower_forget(&f->base);
    kiln_ir_store(f->base.ir, each_result(f), kiln_lower_expr(&f->base, e).re);
    close_each(f);
}

/* What is the same for all elements is computed before the loop over them. */
static void make_what_does_not_vary(kiln_folding *f, const kiln_texpr *e) {
    if (e == f->kept) return;
    if (e->nargs && kiln_fold_is_still(f, e)) {
        kiln_lower_made(&f->base, e, kiln_lower_expr(&f->base, e));
        return;
    }
    for (int k = 0; k < e->nargs; k++) make_what_does_not_vary(f, e->args[k]);
}

static bool find_fold(const kiln_folding *f, const kiln_texpr *e, kiln_pair *v) {
    for (int k = 0; k < f->nfolds; k++) {
        if (f->folds[k].of != e->from) continue;
        *v = f->folds[k].v;
        return true;
    }
    return false;
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
    kiln_ref fold = kiln_ir_fold(ir, &f->reduced[first], f->nreduced - first, !f->across, tree(f), init, n);
    kiln_lower_forget(&f->base);
    for (int k = 0; k < t->n; k++)
        v[k] = before ? kiln_pair_load(ir, each_result(f)) : kiln_lower_expr(&f->base, t->of[k]->args[0]);
    if (kept && !before) kiln_ir_store(ir, each_result(f), v[0].re);
    yield_together(f, t, v, false);
    kiln_ir_merge(ir);
    yield_together(f, t, v, true);
    kiln_ir_end(ir);
    kiln_lower_forget(&f->base);
    return fold;
}

/* e folded over the block. */
static kiln_pair fold_block(kiln_lowering *lw, const kiln_texpr *e) {
    kiln_folding *f = (kiln_folding *)lw;
    kiln_pair v = {KILN_NOREF, KILN_NOREF};
    if (find_fold(f, e, &v)) return v;
    make_folds_within(lw, e);
    together t = {{e}, 1};
    bool complex = kiln_dtype_is_complex(e->dtype);
    for (int k = 0; k < f->states.n && !complex; k++) gather(f, f->block[k], &t);
    kiln_ref fold = fold_together(f, &t);
    for (int k = 0; k < t.n && f->nfolds < KILN_ROW_MAX_NAMED; k++) {
        v = (kiln_pair){kiln_ir_result(lw->ir, fold, k),
                        complex ? kiln_ir_result(lw->ir, fold, 1) : KILN_NOREF};
        f->folds[f->nfolds].of = t.of[k]->from;
        f->folds[f->nfolds++].v = v;
    }
    (void)find_fold(f, e, &v);
    return v;
}

/* -- the fold ------------------------------------------------------------------------------------------------- */

/* A choice among places, as the distance of the chosen one. */
static kiln_ref choose_distance(kiln_folding *f, const kiln_texpr *e) {
    if (e->kind == KILN_TE_POS) return kiln_fold_distance(f);
    if (e->kind != KILN_TE_PRIM) return kiln_fold_cell(f, f->states.at[e->id], e->kind == KILN_TE_RHS);
    kiln_ref three[3] = {kiln_lower_expr(&f->base, e->args[0]).re, choose_distance(f, e->args[1]),
                         choose_distance(f, e->args[2])};
    return kiln_ir_prim(f->base.ir, KILN_P_SELECT, three, 3);
}

/* Lowers each state's expression to its cells; n: the counter's value, if there is one. */
static void lower_states(kiln_folding *f, const kiln_texpr *const *of, kiln_ref n, kiln_ref *out) {
    kiln_states_lower(&f->base, &f->states, of, out);
    for (int k = 0; k < f->states.n && f->first != KILN_NOREF; k++)
        if (f->places >> k & 1) out[f->states.at[k]] = choose_distance(f, of[k]);
    if (f->count >= 0) out[f->count] = n;
}

static void yield(kiln_folding *f, const kiln_texpr *const *of, kiln_ref n) {
    kiln_ref all[KILN_IR_MAX_STATES];
    lower_states(f, of, n, all);
    kiln_ir_yield(f->base.ir, all, f->states.ncells);
}

static void merge(kiln_folding *f) {
    kiln_ir *ir = f->base.ir;
    kiln_ir_merge(ir);
    f->now = IN_MERGE;
    kiln_lower_forget(&f->base);
    kiln_ref n = f->count < 0 ? 0
                              : kiln_fold_binary(ir, KILN_P_ADD, kiln_fold_cell(f, f->count, false),
                                                 kiln_fold_cell(f, f->count, true));
    yield(f, f->merge, n);
    kiln_ir_end(ir);
}

static void beginning(kiln_folding *f, kiln_ref *init) {
    f->now = IN_BEGINNING;
    lower_states(f, f->init, 0, init);
    if (f->count >= 0) init[f->count] = kiln_ir_const_i(f->base.ir, KILN_I64, 0);
}

/* The states of a block, folded with distances for places; -1 is that of none. */
static void fold_block_of_places(kiln_folding *f) {
    kiln_ir *ir = f->base.ir;
    int last = f->reduced[f->nreduced - 1];
    kiln_ref init[KILN_IR_MAX_STATES], out[KILN_IR_MAX_STATES], begin = kiln_fold_place(f);
    kiln_ir_tree how = tree(f);
    if (f->across) how.lanes = 1; /* a step costs less than a merge, and nothing is rounded */
    beginning(f, init);
    for (int k = 0; k < f->states.n; k++)
        if (f->places >> k & 1) init[f->states.at[k]] = kiln_ir_const_i(ir, KILN_I32, -1);
    f->first = kiln_ir_index(ir, last);
    kiln_ref fold = kiln_ir_fold(ir, &last, 1, !f->across, how, init, f->states.ncells);
    f->now = IN_STEP;
    kiln_lower_forget(&f->base);
    yield(f, f->step, 0);
    merge(f);
    f->first = KILN_NOREF;
    f->now = IN_BEGINNING;
    for (int k = 0; k < f->states.ncells; k++) out[k] = kiln_ir_result(ir, fold, k);
    for (int k = 0; k < f->states.n; k++) {
        if (!(f->places >> k & 1)) continue;
        kiln_ref off = out[f->states.at[k]],
                 none = kiln_fold_binary(ir, KILN_P_LT, off, kiln_ir_const_i(ir, KILN_I32, 0));
        kiln_ref three[3] = {none, kiln_lower_expr(&f->base, f->init[k]).re,
                             kiln_fold_binary(ir, KILN_P_ADD, begin, kiln_ir_cast(ir, KILN_I64, off))};
        out[f->states.at[k]] = kiln_ir_prim(ir, KILN_P_SELECT, three, 3);
    }
    kiln_ir_yield(ir, out, f->states.ncells);
}

/* All elements are one block; where there is none, states are the initial ones. */
static void fold_in_one(kiln_folding *f) {
    kiln_ir *ir = f->base.ir;
    kiln_ref init[KILN_IR_MAX_STATES];
    beginning(f, init);
    f->one = true;
    f->now = IN_BLOCK;
    kiln_lower_forget(&f->base);
    kiln_ref n = kiln_fold_count(f, false),
             none = kiln_fold_binary(ir, KILN_P_EQ, n, kiln_ir_const_i(ir, KILN_I64, 0));
    lower_states(f, f->block, n, f->in_one);
    for (int k = 0; k < f->states.ncells; k++) {
        kiln_ref three[3] = {none, init[k], f->in_one[k]};
        f->in_one[k] = kiln_ir_prim(ir, KILN_P_SELECT, three, 3);
    }
}

static void fold_elements(kiln_folding *f) {
    kiln_ir *ir = f->base.ir;
    kiln_ref init[KILN_IR_MAX_STATES];
    bool blocks = by_blocks(f);
    if (f->states.ncells == 0) return; /* a branch that only finishes */
    if (f->each && f->reduce->block.n) {
        fold_in_one(f);
        return;
    }
    beginning(f, init);
    f->folded = kiln_ir_fold(ir, f->reduced, f->nreduced, !f->across && !blocks, whole_tree(f), init,
                             f->states.ncells);
    f->now = blocks ? IN_BLOCK : IN_STEP;
    f->nfolds = 0;
    kiln_lower_forget(&f->base);
    kiln_ref n = 0;
    if (f->count >= 0)
        n = blocks ? kiln_fold_count(f, false)
                   : kiln_fold_binary(ir, KILN_P_ADD, kiln_fold_cell(f, f->count, false),
                                      kiln_ir_const_i(ir, KILN_I64, 1));
    if (f->places)
        fold_block_of_places(f);
    else
        yield(f, blocks ? f->block : f->step, n);
    merge(f);
}

/* The states of parts, in their order. */
static void fold_parts(kiln_folding *f) {
    kiln_ir *ir = f->base.ir;
    kiln_ref init[KILN_IR_MAX_STATES], part[KILN_IR_MAX_STATES];
    beginning(f, init);
    f->folded = kiln_ir_fold(ir, &f->parts, 1, false, (kiln_ir_tree){0, 1}, init, f->states.ncells);
    for (int k = 0; k < f->states.ncells; k++) part[k] = kiln_ir_load(ir, f->parts_of[k]);
    kiln_ir_yield(ir, part, f->states.ncells);
    merge(f);
}

/* Results that have an element for each that was folded: another loop over these. */
static void finish_each(kiln_folding *f) {
    for (int k = 0; k < f->base.plan->typed.nrets; k++) {
        if (!(f->each >> k & 1)) continue;
        kiln_fold_read_ahead(f, f->finish[k]);
        make_what_does_not_vary(f, f->finish[k]);
    }
    open_each(f);
    kiln_fold_forget_moving(f);
    if (f->kept) kiln_lower_made(&f->base, f->kept, kiln_pair_load(f->base.ir, each_result(f)));
    kiln_lower_results(&f->base, f->finish, f->each);
    close_each(f);
}

/* Elements of kept arguments are loaded once for all that is folded together. */
static void load_kept(kiln_folding *f) {
    const kiln_plan *p = f->base.plan;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++)
        if (f->base.row->kept >> p->buffer[b].which & 1) kiln_lower_keep(&f->base, p->buffer[b].which);
}

/* A nest over every element that is folded, which traps on one that breaks a check. */
static void guard_nest(kiln_folding *f) {
    kiln_ir *ir = f->base.ir;
    if (!kiln_lower_has_musts(&f->base)) return;
    bool still = true; /* one element of each fold is enough */
    for (int c = 0; c < f->base.row->nchecks; c++) still = still && kiln_fold_is_still(f, f->base.must[c]);
    int nloops = still ? 0 : f->nreduced;
    kiln_ir_for(ir, f->grid, f->across || still);
    for (int k = 0; k < nloops; k++) kiln_ir_for(ir, f->reduced[k], k == f->nreduced - 1 && !f->across);
    kiln_lower_forget(&f->base);
    kiln_lower_musts(&f->base);
    for (int k = 0; k < nloops + 1; k++) kiln_ir_end(ir);
}

/* -- one element of each row ----------------------------------------------------------------------------------- */

/* `i == place ? value : number`, where place and value are the same for all elements of a row. */
typedef struct spot {
    const kiln_texpr *place, *value, *number;
} spot;

/* Whether the results are nothing but such a one, of rows in memory. */
static bool find_spot(const kiln_folding *f, spot *s) {
    int k = each_result(f);
    if (f->across || f->states.n || f->nreduced != 1 || k < 0 || f->base.plan->axes.nwritten != 1)
        return false;
    const kiln_texpr *e = f->finish[k], *test;
    if (e->kind != KILN_TE_PRIM || e->prim != KILN_P_SELECT) return false;
    test = e->args[0];
    *s = (spot){NULL, e->args[1], e->args[2]};
    if (test->kind != KILN_TE_PRIM || test->prim != KILN_P_EQ || test->args[0]->kind != KILN_TE_POS)
        return false;
    s->place = test->args[1];
    return s->number->kind == KILN_TE_CONST && !kiln_dtype_is_complex(e->dtype) &&
           kiln_fold_is_still(f, s->place) && kiln_fold_is_still(f, s->value);
}

static kiln_ref spot_value(kiln_folding *f, const kiln_texpr *e) {
    const kiln_plan *p = f->base.plan;
    kiln_pair v = kiln_pair_cast(f->base.ir, p->typed.ret_dtype[0], kiln_lower_expr(&f->base, e));
    return kiln_pair_cast(f->base.ir, p->buffer[0].dtype, v).re;
}

/* All elements of a row are set to the number, and then one to the value: none is compared with anything. */
static void make_spots(kiln_folding *f, const spot *s) {
    kiln_ir *ir = f->base.ir;
    f->now = IN_FINISH;
    kiln_ir_for(ir, f->grid, false);
    kiln_lower_forget(&f->base);
    load_kept(f);
    kiln_ref at = kiln_lower_expr(&f->base, s->place).re, v = spot_value(f, s->value);
    kiln_ref least = kiln_fold_binary(ir, KILN_P_GE, at, kiln_ir_const_i(ir, KILN_I64, 0));
    kiln_ref most = kiln_fold_binary(ir, KILN_P_LT, at, kiln_ir_extent(ir, f->reduced[0]));
    kiln_ref inside = kiln_fold_binary(ir, KILN_P_AND, least, most);
    open_each(f);
    kiln_ir_store(ir, 0, spot_value(f, s->number));
    close_each(f);
    kiln_ir_coord where = {(uint8_t)f->reduced[0], at};
    kiln_ir_store_at(ir, 0, v, &where, 1, inside);
    kiln_ir_end(ir);
}

/* -- nests ------------------------------------------------------------------------------------------------------ */

/* One nest, or two if there are elements to be checked first; of parts, one more after their states are stored. */
static void make_nests(kiln_folding *f) {
    kiln_ir *ir = f->base.ir;
    spot s;
    guard_nest(f);
    if (find_spot(f, &s)) {
        make_spots(f, &s);
        return;
    }
    kiln_ir_for(ir, f->grid, f->across);
    load_kept(f);
    if (f->states.n) fold_elements(f); /* else every result is for each element */
    if (f->base.plan->parts) {
        for (int k = 0; k < f->states.ncells; k++)
            kiln_ir_store(ir, f->part[k], kiln_ir_result(ir, f->folded, k));
        kiln_ir_end(ir);
        kiln_ir_for(ir, f->grid, f->across);
        fold_parts(f);
    }
    f->now = IN_FINISH;
    kiln_lower_forget(&f->base);
    kiln_lower_results(&f->base, f->finish, ~f->each);
    if (f->each) finish_each(f);
    kiln_ir_end(ir);
}

/* -- declarations --------------------------------------------------------------------------------------------- */

static kiln_dtype cell_dtype(const kiln_folding *f, int cell) {
    return cell == f->count ? KILN_I64 : kiln_states_cell_dtype(&f->states, cell);
}

/* A buffer of state k of parts; several: of all of them. */
static int declare_part(kiln_folding *f, int k, bool several) {
    bool in_rows = f->across &&
                   !f->base.plan->axes.strided; /* else any dimension may be the launch's inner one */
    uint32_t axes = 1u << f->grid | (several ? 1u << f->parts : 0);
    char name[24];
    snprintf(name, sizeof name, several ? "parts.%d" : "part.%d", k);
    return kiln_ir_buf_add(f->base.ir, name, KILN_BUF_TMP, cell_dtype(f, k), axes,
                           in_rows ? KILN_STRIDE_CONTIG : KILN_STRIDE_ANY);
}

static void declare(kiln_folding *f) {
    kiln_ir *ir = f->base.ir;
    const kiln_plan *p = f->base.plan;
    kiln_partial *partial = &f->base.out->nests.partial;
    f->across = p->form & KILN_FOLD_ACROSS;
    f->grid = kiln_ir_axis_add(ir, "p", true);
    f->nreduced = p->form & KILN_FOLD_TWO ? 2 : 1;
    for (int k = 0; k < f->nreduced; k++) f->reduced[k] = kiln_ir_axis_add(ir, k ? "s" : "r", false);
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++) {
        char name[24];
        snprintf(name, sizeof name, "of.%s", f->base.row->schema->args[p->buffer[b].which].name);
        if (kiln_is_accessed(p, b)) f->axis_of[b] = kiln_ir_axis_add(ir, name, false);
    }
    f->parts = kiln_ir_axis_add(ir, "q", false);
    uint32_t kept = 1u << f->grid, all = kept;
    for (int k = 0; k < f->nreduced; k++) all |= 1u << f->reduced[k];
    kiln_lower_buffers(&f->base, kept, all);
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++) {
        if (kiln_fold_stands(f, b)) ir->bufs[b].axes = kept;
        if (kiln_is_accessed(p, b)) ir->bufs[b].axes = (kiln_is_table(p, b) ? 0 : all) | 1u << f->axis_of[b];
    }
    for (int k = 0; k < p->typed.nrets; k++) {
        if (!kiln_is_each(p, k)) continue;
        f->each |= 1u << k;
        ir->bufs[k].axes = all;
    }
    for (int k = 0; k < f->states.ncells && p->parts; k++) f->part[k] = declare_part(f, k, false);
    for (int k = 0; k < f->states.ncells && p->parts; k++) {
        f->parts_of[k] = declare_part(f, k, true);
        partial->bytes[k] = (uint8_t)kiln_dtype_size(cell_dtype(f, k));
    }
    partial->nstates = p->parts ? (uint8_t)f->states.ncells : 0;
    partial->nest = kiln_lower_has_musts(&f->base);
    bool whole = f->each || f->base.row->kept ||
                 f->states.ncells == 0; /* no parts are worth their machinery */
    partial->unit = whole ? 0 : f->nreduced == 2 ? 1 : whole_tree(f).block;
}

kiln_status kiln_fold_lower(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) {
    kiln_folding *f = kiln_arena_alloc(arena, sizeof *f);
    if (!f) return KILN_NOMEM();
    memset(f, 0, sizeof *f);
    KILN_TRY(kiln_lowering_begin(&f->base, arena, plan, out));
    kiln_fold_leaves(f);
    f->base.block = fold_block;
    f->first = KILN_NOREF;
    f->reduce = f->base.branch->reduce;
    KILN_TRY(kiln_states_begin(&f->base, f->reduce->counts, &f->states));
    f->count = f->reduce->counts ? f->states.ncells - 1 : -1;
    KILN_TRY(kiln_fold_type(f));
    declare(f);
    make_nests(f);
    return KILN_OK;
}
