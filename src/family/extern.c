/* extern.c - rows that name a routine of the library: whole rows of elements go in, an element of each result comes out.
 *
 * Tensors are broadcast; which dimensions make up the rows, an argument or the row says, as for a fold; results are
 * row-major.  Kept dimensions are the grid, which threads share, and the others one reduced axis: where they do not merge
 * into one, the argument is copied first.  The class is the same however rows lie.  Nothing is compiled; src/run has
 * the routines and is reached through a table. */
#include "family/extern_rules.h"
#include "family/kept_folded.h"
#include "infer/infer_parts.h"
#include "work/routine.h"
#include "family/lower.h"

/* The innermost axis of the grid has one position: threads would cut it by cache lines only, and a row is more than that. */
static int lay_out(kiln_plan *p, const kiln_dim_strides *w) {
    uint8_t kept[KILN_MAX_RANK], rows[KILN_MAX_RANK];
    const int64_t *in = w->of[p->axes.nwritten];
    int nkept = kiln_dims_collect(p, false, in, true, kept);
    bool any_order = p->typed.nrets == 1,
         empty = p->shape->nelem == 0; /* no result says where an element is */
    int nrows = kiln_dims_collect(p, true, in, any_order, rows);
    p->axes.ndim = 0;
    kiln_axes_add_one(p, KILN_ROLE_GRID);
    (void)kiln_plan_append(p, w->of, kept, nkept);
    p->axes.ngrid = p->axes.ndim;
    int groups = empty ? 0 : kiln_plan_append(p, w->of, rows, nrows);
    if (groups == 0) kiln_axes_add_one(p, KILN_ROLE_REDUCED);
    if (empty) p->n[p->axes.ngrid] = 0;
    p->role[p->axes.ngrid] = KILN_ROLE_REDUCED;
    return groups;
}

static kiln_status axes(kiln_plan *p) {
    kiln_dim_strides w;
    kiln_dim_strides_find(p, &w);
    if (lay_out(p, &w) > 1) {
        kiln_dim_strides_copy_first(p, &w, p->axes.nwritten);
        (void)lay_out(p, &w);
    }
    p->axes.npoints = p->shape[1].nelem;
    p->axes.nelem = p->shape->nelem > p->axes.npoints ? p->shape->nelem : p->axes.npoints;
    p->kind = KILN_CLASS_ROUTINE;
    kiln_plan_classify(p, 0, ~UINT64_C(0), 0);
    return KILN_OK;
}

/* An integer that the routine gets: an argument's, or one that the host computes. */
static kiln_scalar_source number(const kiln_row *row, const char *name) {
    const kiln_named *host = kiln_named_of(&row->hosts, name);
    int arg = host ? KILN_HOST_ID + (int)(host - row->hosts.at) : kiln_schema_arg(row->schema, name);
    return (kiln_scalar_source){.arg = (int16_t)arg, .index = -1, .via = KILN_I64, .dtype = KILN_I64};
}

/* What a routine says of numbers that fit no row: all rows are as long, so that the first one says it, and nothing has been
 * written. */
static const kiln_ir_trap misfit = {KILN_E_INDEX,
                                    "a routine's number is out of range for rows of this length"};

static kiln_status lower(kiln_arena *arena, const kiln_plan *p, kiln_lowered *out) {
    const kiln_row *row = p->call->op->row;
    const kiln_routine *r = kiln_routines[kiln_row_handed(row)->id];
    kiln_dtype t = p->buffer[p->axes.nwritten].dtype;
    (void)arena;
    out->fn = r->fn[t];
    if (!out->fn) return KILN_BUG("%s: its routine does not take %s", row->name, kiln_dtype_name(t));
    out->nests = (kiln_nests){
        .n = 1, .ntraps = 1, .traps = &misfit, .row_work = r->copies * (size_t)kiln_elem_bytes[t]};
    const kiln_nameds *args = &kiln_row_handed(row)->args;
    for (int k = 1; k < args->n; k++) out->scalars[out->nscalars++] = number(row, args->at[k].expr->name);
    return KILN_OK;
}

const kiln_family_fns kiln_family_extern = {.shape = kiln_kept_shape, .axes = axes, .lower = lower};
