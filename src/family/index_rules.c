/* index_rules.c - what a row may say that reads or writes elements at computed places: shapes of results, windows, scattering.
 *
 * Kiln reads and checks index rows, but cannot call them yet. */
#include <string.h>

#include "family/reduce_rules.h"

/* What the clauses of a row say.  An argument is -1 where its clause is not there. */
typedef struct outshape {
    int like_arg;       /* result is shaped like this tensor argument, or -1 */
    bool rest;          /* `..`: leading dims of the first tensor argument */
    kiln_nameds dims;   /* the other dimensions of the result: name of the coordinate, extent */
    kiln_nameds window; /* reduced coordinates: name, extent */
    int into_arg;       /* scatter into a copy of this argument, or -1 */
    int at_arg;         /* its Tensor?[] index argument */
} outshape;

static const outshape *shape_of(const kiln_row *row) { return row->own; }

static kiln_status keep_shape(kiln_lex *lx, kiln_row *row, outshape **out) {
    *out = row->own;
    if (*out) return KILN_OK;
    *out = kiln_arena_alloc(lx->arena, sizeof **out);
    if (!*out) return KILN_NOMEM();
    **out = (outshape){.like_arg = -1, .into_arg = -1, .at_arg = -1};
    row->own = *out;
    return KILN_OK;
}

/* out like ARG   or   out [.., name: extent, ...] */
static kiln_status clause_out(kiln_lex *lx, kiln_row *row) {
    outshape *sh;
    KILN_TRY(keep_shape(lx, row, &sh));
    bool did;
    KILN_TRY(kiln_lex_accept(lx, "like", &did));
    if (did) return kiln_row_arg(lx, row, &sh->like_arg);
    KILN_TRY(kiln_lex_expect(lx, "["));
    KILN_TRY(kiln_lex_accept(lx, "..", &sh->rest));
    if (sh->rest) KILN_TRY(kiln_lex_expect(lx, ","));
    KILN_TRY(kiln_row_nameds(lx, &sh->dims, KILN_UNTYPED, ":"));
    return kiln_lex_expect(lx, "]");
}

static kiln_status clause_window(kiln_lex *lx, kiln_row *row) {
    outshape *sh;
    KILN_TRY(keep_shape(lx, row, &sh));
    return kiln_row_nameds(lx, &sh->window, KILN_UNTYPED, ":");
}

/* into ARG at ARG */
static kiln_status clause_into(kiln_lex *lx, kiln_row *row) {
    outshape *sh;
    KILN_TRY(keep_shape(lx, row, &sh));
    KILN_TRY(kiln_row_arg(lx, row, &sh->into_arg));
    KILN_TRY(kiln_lex_expect(lx, "at"));
    return kiln_row_arg(lx, row, &sh->at_arg);
}

static const kiln_clause out = {.word = "out", .parse = clause_out};
static const kiln_clause window = {.word = "window", .parse = clause_window};
static const kiln_clause into = {.word = "into", .parse = clause_into};
static const kiln_clause *const clauses[] = {&kiln_clause_when,
                                             &kiln_clause_state,
                                             &kiln_clause_step,
                                             &kiln_clause_merge,
                                             &kiln_clause_finish,
                                             &out,
                                             &window,
                                             &into,
                                             NULL};

static kiln_status rules(const kiln_row *row) {
    const outshape *sh = shape_of(row);
    if (!sh) return KILN_ROW_FAIL(row, "an index row needs one 'out' or 'into'");
    KILN_TRY(kiln_row_expect_kind(row, sh->like_arg, KILN_T_TENSOR, false, "a tensor: see 'out like'"));
    KILN_TRY(kiln_row_expect_kind(row, sh->into_arg, KILN_T_TENSOR, false, "a tensor: see 'into'"));
    KILN_TRY(kiln_row_expect_kind(row, sh->at_arg, KILN_T_TENSOR, true, "a list of tensors: see 'into'"));
    if ((sh->like_arg >= 0) + (sh->dims.n > 0) + (sh->into_arg >= 0) != 1)
        return KILN_ROW_FAIL(row, "an index row needs one 'out' or 'into'");
    return kiln_row_bodies_rules(row);
}

/* The places of `out` and `window`, and what the element holds that is scattered to. */
static bool find(const kiln_row_env *re, const char *name, bool rhs, kiln_sym *out) {
    const outshape *sh = shape_of(re->row);
    const kiln_named *dim = kiln_named_of(&sh->dims, name), *win = kiln_named_of(&sh->window, name);
    if (kiln_reduce_find(re, name, rhs, out)) return true;
    if (rhs) return false;
    if (sh->into_arg >= 0 && strcmp(name, "acc") == 0) {
        out->kind = KILN_SYM_STATE;
        out->dtype = kiln_dtype_compute(re->common);
        return true;
    }
    if (!dim && !win) return false;
    out->kind = KILN_SYM_POS;
    out->dtype = KILN_I64;
    out->id = dim ? (int)(dim - sh->dims.at) : KILN_ROW_MAX_NAMED + (int)(win - sh->window.at);
    return true;
}

static int defines(const kiln_row *row, const kiln_nameds *lists[KILN_MAX_DEFINED]) {
    if (!row->own) return 0;
    lists[0] = &shape_of(row)->dims;
    lists[1] = &shape_of(row)->window;
    return 2;
}

static kiln_status visit(const kiln_row *row, kiln_visit_fn each, void *user) {
    KILN_TRY(kiln_visit_all(&shape_of(row)->dims, KILN_USE_ONCE, each, user));
    return kiln_visit_all(&shape_of(row)->window, KILN_USE_ONCE, each, user);
}

static uint64_t names(const kiln_row *row, bool shapes) {
    const outshape *sh = shape_of(row);
    return shapes ? 0 : kiln_arg_bit(sh->like_arg) | kiln_arg_bit(sh->into_arg) | kiln_arg_bit(sh->at_arg);
}

static kiln_status complete(const kiln_row *row, const kiln_reduce *r) {
    if (!r->step.n && !r->block.n) return KILN_ROW_FAIL(row, "a fold needs a step or a block");
    return KILN_OK;
}

static kiln_status types(kiln_row_env *re) {
    static const kiln_reduce_kind kind = {complete, false};
    return kiln_reduce_types(re, &kind);
}

const kiln_family_rules kiln_rules_index = {
    .clauses = clauses,
    .folding = &kiln_reduce_folding,
    .accumulate = kiln_reduce_accumulate,
    .accesses_all = true,
    .rules = rules,
    .defines = defines,
    .find = find,
    .visit = visit,
    .names = names,
    .types = types,
};
