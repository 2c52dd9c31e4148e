/* infer_parts.h - what the files of infer share: steps of kiln_infer, in the order it takes them. */
#ifndef KILN_INFER_PARTS_H
#define KILN_INFER_PARTS_H
#include "infer/infer.h"

/* Numbers that PyTorch makes tensors of rank 0 of: Scalars that are promoted and always there, unless the row says
 * that one stays a number (an optional one, as clamp has, always does). */
static inline uint64_t kiln_args_wrapped(const kiln_plan *p) {
    const kiln_typing *ty = &p->branch->typing;
    return ty->args & ~ty->numbers & p->call->op->row->scalars;
}
/* How given tensors receive the results.  Only an out form copies; in place is as usual. */
static inline kiln_out_rule kiln_plan_out_rule(const kiln_plan *p) {
    kiln_out_rule r = p->branch->typing.out;
    return r == KILN_OUT_COPIED && p->call->op->form != KILN_FORM_OUT ? KILN_OUT_USUAL : r;
}
static inline const char *kiln_arg_name(const kiln_bound *call, int arg) {
    return call->op->row->schema->args[arg].name;
}

/* bind: which value of a call goes to which argument of a schema.  False says why nothing, or not everything, does. */
typedef struct kiln_misfit {
    enum {
        KILN_MISFIT_MANY,     /* n values were given */
        KILN_MISFIT_ORDER,    /* a value without a name after one with */
        KILN_MISFIT_NAME,     /* no argument is called so */
        KILN_MISFIT_TWICE,    /* param has a value already */
        KILN_MISFIT_MISSING,  /* param has none */
        KILN_MISFIT_UNSERVED, /* no value has the type of param */
        KILN_MISFIT_KIND,     /* the same as TYPE, of a value that only has a kind yet */
        KILN_MISFIT_TYPE      /* value, item n (or -1) of what was given, is nothing that param takes */
    } why;
    const kiln_param *param;
    const kiln_value *value;
    int n; /* MANY: how many values; TYPE, KIND: which item */
} kiln_misfit;
bool kiln_place(const kiln_schema *s, const kiln_value *args, size_t nargs, const kiln_value **given,
                kiln_misfit *why) KILN_MUST_CHECK;
void kiln_misfit_print(kiln_sb *out, const kiln_schema *s, const kiln_misfit *m);
kiln_status kiln_misfit_fail(const kiln_op *op, const kiln_misfit *m) KILN_MUST_CHECK;

/* types: the common dtype by a typing and the arguments' dtypes; by that and the branch what results are; then who
 * may be what. */
kiln_status kiln_typing_common(const kiln_bound *call, const kiln_typing *ty, kiln_dtype *promoted,
                               kiln_dtype *common) KILN_MUST_CHECK;
kiln_status kiln_types_infer(kiln_plan *p) KILN_MUST_CHECK;
kiln_status kiln_takes_check(const kiln_bound *call,
                             kiln_dtype promoted) KILN_MUST_CHECK; /* whether the row takes it */
kiln_status kiln_types_check(const kiln_plan *p) KILN_MUST_CHECK;

/* infer_overlap.c: refuses results that must not be written.  Sets `aside`, which was false, where a result may be written only after all
 * elements are computed. */
kiln_status kiln_overlap_check(kiln_plan *p) KILN_MUST_CHECK;
/* Arguments that the row writes to share memory with nothing else. */
kiln_status kiln_writes_check(const kiln_plan *p) KILN_MUST_CHECK;
/* Each has one element for each point of the grid, once its axes are known. */
kiln_status kiln_written_fit(const kiln_plan *p) KILN_MUST_CHECK;

/* shape: the call's, which its tensors are broadcast to; and which given results are resized to the shape they should
 * have. */
kiln_status kiln_broadcast(kiln_plan *p) KILN_MUST_CHECK;
kiln_status kiln_results_check(kiln_plan *p) KILN_MUST_CHECK;

/* A fold's checks of how many elements it folds: n. */
kiln_status kiln_count_check(const kiln_plan *p, int64_t n) KILN_MUST_CHECK;

/* layout: strides of new results and dimensions to walk, merged, as PyTorch's iterator over all tensors has them. */
void kiln_layout_infer(kiln_plan *p);
/* Strides of a new tensor of shape s, as an iterator over a part of t, of those sizes, makes them. */
void kiln_layout_part(const kiln_tensor *t, kiln_shape *s);

/* Strides of channels last, for rank 3 and more: channels are innermost, then the rest from the last dimension on. */
void kiln_channels_last(int rank, const int64_t *sizes, int64_t *strides);

/* Appends n dimensions of the call's shape to the axes, innermost first: those of one position are left out, neighbours
 * are merged where every buffer allows it.  of: each buffer's strides along all of them, in elements.  Returns how many
 * were added. */
int kiln_plan_append(kiln_plan *p, const int64_t *const *of, const uint8_t *dims, int n);

/* The work of a plan, which has so many results: begun before shapes are set, ended when all else is set. */
void kiln_plan_begin(kiln_plan *p, unsigned nrets);
void kiln_plan_end(kiln_plan *p);
/* One more step. */
static inline kiln_step *kiln_plan_step(kiln_plan *p, kiln_step_kind kind) {
    kiln_step *s = &p->step[p->work.nsteps++];
    s->kind = (uint8_t)kind;
    return s;
}
/* Room for the extents that a step copies, of up to `rank` dimensions. */
static inline int64_t *kiln_plan_extents(kiln_plan *p, int rank) {
    uint16_t at;
    return kiln_work_take(&p->work, rank ? (unsigned)rank : 1, &at);
}

/* Makes the kernel's buffer b a temporary, for which kiln_plan_copy must be called; returns what b was, beside the kernel's. */
int kiln_plan_stand_in(kiln_plan *p, int b);
/* Adds a step that copies between a temporary and the buffer `own` that it stands in for: to a result, from an argument, along ndim
 * dimensions of sizes n, innermost first.  Both have their strides in the plan, but side_by_side: the temporary's elements
 * follow each other in the order of the dimensions.  Sets the size of the temporary. */
void kiln_plan_copy(kiln_plan *p, int tmp, int own, int ndim, const int64_t *n, bool side_by_side);
/* Makes the kernel's buffer b, an argument or a given result that it sees in other sizes, a temporary whose elements lie row by row,
 * and adds the step that copies it. */
void kiln_plan_copy_in_rows(kiln_plan *p, int b);

/* How each buffer goes along dimension `vec`, the vector axis: what sizes and strides add to the class of the call.  Those
 * of `still` (bit b: buffer b) are not asked: they do not go along it, or may lie anyhow.  Those of `turned` count as contiguous, if no
 * other is strided: the driver sees to it. */
void kiln_plan_classify(kiln_plan *p, int vec, uint64_t still, uint32_t turned);

/* printing */
void kiln_buffer_print(kiln_sb *out, const kiln_plan *p, int buffer); /* "result 0", "self" */
void kiln_value_print(kiln_sb *out, const kiln_value *v);
const char *kiln_value_kind_name(const kiln_value *v); /* "int" */
#endif
