/* fold_lower.c - (fold row, plan) -> IR: the whole fold, or the same in parts that are merged.
 *
 * The whole kernel is one nest, which folds, finishes and stores.  The kernel of parts has two: one folds a part and
 * stores its states, one merges such parts, finishes and stores; it is for folds worth several threads.  States of
 * complex type are two IR states; where the merge asks for counts, one more state counts.  Rows with a `block` fold by
 * blocks, with folds inside (fold_block.c); so do rows that keep places, to have them in 32 bits
 * within a block.  With results for each element all elements are one block: they are gone through again in any case,
 * and nothing has to be merged.  A result that is one number but for an element of each row is filled and set.  Must not know C, vector widths or sizes. */
#include <stdio.h>
#include <string.h>

#include "family/fold_lower.h"
#include "family/kept_folded.h"
#include "infer/chooser.h"

static bool by_blocks(const kiln_folding *f) { return f->reduce->block.n || f->places; }

/* The tree of the fold itself, which may be by blocks. */
static kiln_ir_tree whole_tree(const kiln_folding *f) {
    const kiln_plan *p = f->base.plan;
    if (!by_blocks(f)) return kiln_fold_tree(f);
    return (kiln_ir_tree){0, kiln_plan_chooser(p)->fold_trees(p->form).by_block};
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
    kiln_ir_tree how = kiln_fold_tree(f);
    if (f->across) how.lanes = 1; /* a step costs less than a merge, and nothing is rounded */
    beginning(f, init);
    for (int k = 0; k < f->states.n; k++)
        if (f->places >> k & 1) init[f->states.at[k]] = kiln_ir_const_i(ir, KILN_I32, -1);
    f->first = kiln_ir_index(ir, last);
    kiln_ref fold = kiln_ir_fold(ir, (kiln_ir_run){&last, 1, !f->across, how}, init, f->states.ncells);
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
    const kiln_ir_run all = {f->reduced, f->nreduced, !f->across && !blocks, whole_tree(f)};
    f->folded = kiln_ir_fold(ir, all, init, f->states.ncells);
    f->now = blocks ? IN_BLOCK : IN_STEP;
    f->folds = NULL;
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
    f->folded = kiln_ir_fold(ir, (kiln_ir_run){&f->parts, 1, false, {0, 1}}, init, f->states.ncells);
    for (int k = 0; k < f->states.ncells; k++) part[k] = kiln_ir_load(ir, f->parts_of[k]);
    kiln_ir_yield(ir, part, f->states.ncells);
    merge(f);
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

/* Results that have an element for each that was folded: another loop over these. */
static void finish_each(kiln_folding *f) {
    for (int k = 0; k < f->base.plan->typed.nrets; k++) {
        if (!(f->each >> k & 1)) continue;
        kiln_fold_read_ahead(f, f->finish[k]);
        make_what_does_not_vary(f, f->finish[k]);
    }
    kiln_fold_open_each(f);
    kiln_fold_forget_moving(f);
    if (f->kept) kiln_lower_made(&f->base, f->kept, kiln_pair_load(f->base.ir, kiln_fold_each_result(f)));
    kiln_lower_results(&f->base, f->finish, f->each);
    kiln_fold_close_each(f);
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
    int k = kiln_fold_each_result(f);
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

static void fill(kiln_folding *f, const spot *s) {
    kiln_fold_open_each(f);
    kiln_ir_store(f->base.ir, 0, spot_value(f, s->number));
    kiln_fold_close_each(f);
}

/* All elements of a row are set to the number, and then one to the value: none is compared with anything.  Short rows are filled
 * by a nest of their own, which takes those that follow each other without gaps for one, and rows are lanes where elements are set. */
static void make_spots(kiln_folding *f, const spot *s) {
    kiln_ir *ir = f->base.ir;
    bool apart = f->base.plan->form & KILN_FOLD_SPOTS;
    f->now = IN_FINISH;
    if (apart) {
        kiln_ir_for(ir, f->grid, false);
        fill(f, s);
        kiln_ir_end(ir);
    }
    kiln_ir_for(ir, f->grid, apart);
    kiln_lower_forget(&f->base);
    load_kept(f);
    kiln_ref at = kiln_lower_expr(&f->base, s->place).re, v = spot_value(f, s->value);
    kiln_ref least = kiln_fold_binary(ir, KILN_P_GE, at, kiln_ir_const_i(ir, KILN_I64, 0));
    kiln_ref most = kiln_fold_binary(ir, KILN_P_LT, at, kiln_ir_extent(ir, f->reduced[0]));
    kiln_ref inside = kiln_fold_binary(ir, KILN_P_AND, least, most);
    if (!apart) fill(f, s);
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
    if (f->base.plan->work.parts) {
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
    for (int k = 0; k < f->states.ncells && p->work.parts; k++) f->part[k] = declare_part(f, k, false);
    for (int k = 0; k < f->states.ncells && p->work.parts; k++) {
        f->parts_of[k] = declare_part(f, k, true);
        partial->bytes[k] = (uint8_t)kiln_dtype_size(cell_dtype(f, k));
    }
    partial->nstates = p->work.parts ? (uint8_t)f->states.ncells : 0;
    partial->nest = kiln_lower_has_musts(&f->base);
    bool whole = f->each || f->base.row->kept || f->base.row->reduce->triangle ||
                 f->states.ncells == 0; /* no parts are worth their machinery */
    partial->unit = whole ? 0 : f->nreduced == 2 ? 1 : whole_tree(f).block;
}

kiln_status kiln_fold_lower(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) {
    kiln_folding *f = kiln_arena_alloc(arena, sizeof *f);
    if (!f) return KILN_NOMEM();
    memset(f, 0, sizeof *f);
    KILN_TRY(kiln_lowering_begin(&f->base, arena, plan, out));
    kiln_fold_leaves(f);
    f->base.block = kiln_fold_block;
    f->first = KILN_NOREF;
    f->reduce = f->base.branch->reduce;
    KILN_TRY(kiln_states_begin(&f->base, f->reduce->counts, &f->states));
    f->count = f->reduce->counts ? f->states.ncells - 1 : -1;
    KILN_TRY(kiln_fold_type(f));
    declare(f);
    make_nests(f);
    return KILN_OK;
}
