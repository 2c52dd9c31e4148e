/* plan.h - what a bound call comes to: what inference knows of it, and the work that is left to do (src/work/work.h).
 *
 * A family (src/family) fills the work in where it lies: in the plan, which has room for the largest.  Fields of the plan
 * point into its work meanwhile, and into the call, so a plan must not be copied.  Its work may be.  Driver, memos,
 * self-test and threads take the work and know no family. */
#ifndef KILN_PLAN_H
#define KILN_PLAN_H
#include <stddef.h>

#include "infer/bound.h"
#include "work/work.h"

enum {
    KILN_MAX_SHAPES = 5, /* the call's own, and those of results that differ from it */
    KILN_PLAN_MAX_COPIED = 4,
    KILN_PLAN_WORDS =
        5120 /* of the largest work: 24 tensors of 64 dimensions, each of which is copied first */
};
_Static_assert((int)KILN_KERNEL_BUFFERS == (int)KILN_MAX_OPERANDS, "all tensors of a row are buffers");

/* What answers the calls of a class. */
typedef enum kiln_class_kind {
    KILN_CLASS_KERNEL,      /* IR, interpreted until it is compiled */
    KILN_CLASS_ROUTINE,     /* a function of the library in place of a kernel: nothing is compiled */
    KILN_CLASS_COMPOSITION, /* calls of other operators */
    KILN_CLASS_VIEW         /* nothing is computed: results look at memory of arguments */
} kiln_class_kind;
#define KILN_CLASS_KIND_NAMES \
    { "kernel", "routine", "composition", "view" } /* ORDER: kiln_class_kind */

/* -- types ------------------------------------------------------------------------------------------------ */

/* What a call's kinds of arguments, their dtypes and the values its row's conditions ask decide. */
typedef struct kiln_typed {
    uint8_t branch; /* of the row */
    uint8_t nrets, nin,
        nshaped; /* nshaped: of the nin tensors, the first so many are broadcast to the call's shape */
    kiln_dtype promoted; /* the result_type of the promoted arguments */
    kiln_dtype common;   /* the same after the branch made it float or wider: what bodies compute with */
    uint32_t absent;     /* bit k: there is no result k, since the row does not give it */
    uint32_t
        unstored;   /* bit k: nothing is stored in result k: it is absent, or has no elements in any case */
    uint64_t exact; /* bit a: tensor argument a is 0-d and not rounded to the common half type first */
    int8_t in_arg
        [KILN_MAX_OPERANDS]; /* tensors that decide shape and layout, as strides count; see kiln_plan.in */
    uint8_t ret_dtype[KILN_MAX_RETS]; /* kiln_dtype: what the row computes for each result */
} kiln_typed;

/* -- shapes ----------------------------------------------------------------------------------------------- */

/* A shape of the call or of results.  kiln_plan_shape gives it room for sizes and strides. */
typedef struct kiln_shape {
    int rank;
    int64_t nelem;
    int64_t *sizes, *strides; /* strides: of a new tensor, in elements */
    uint16_t at[2];           /* words at which sizes and strides begin */
} kiln_shape;

/* -- all of it -------------------------------------------------------------------------------------------- */

typedef struct kiln_plan {
    const kiln_bound *call;
    kiln_typed typed;
    const kiln_branch *branch;        /* typed.branch of the row; NULL: a composition, which has ways */
    kiln_dtype dtypes[KILN_MAX_ARGS]; /* of each tensor argument that is present and not ignored */
    const kiln_tensor
        *in[KILN_MAX_OPERANDS]; /* the tensors of typed.in_arg: every one given, used by bodies or not */
    bool uniform;               /* every tensor of `in` has the shape of the call */
    bool aside;   /* results are computed in temporaries and then copied: the given tensors overlap inputs */
    uint8_t kind; /* kiln_class_kind */
    uint8_t form; /* which of a family's kernels, beside what buffers say: part of the class */
    uint64_t reduced;                  /* bit d: dimension d of the call's shape is folded */
    kiln_shape shape[KILN_MAX_SHAPES]; /* [0]: the call's, to which its tensors are broadcast */
    uint64_t
        stride_bits; /* what sizes and strides add to the class: the form, and two bits of each buffer's stride */
    struct {
        int rank;
        int64_t sizes[KILN_MAX_RANK]; /* in which the row's view sees an argument */
    } view[KILN_ROW_MAX_VIEWS];
    const kiln_op *op[KILN_WORK_CALLS]; /* those that steps call */
    int64_t *copy_n; /* extents of the arguments that are copied as the axes go, once there is one */
    /* The work, and its tables under names of their own. */
    kiln_result *result;
    kiln_buffer *buffer; /* the kernel's, results first; then those that only copies touch */
    int64_t *n, *stride[KILN_WORK_BUFFERS]; /* stride: the rows of the kernel's buffers follow each other */
    kiln_step *step;
    union {
        kiln_work work;
        struct { /* the last fields of `work`, which families use most */
            uint8_t before_axes[offsetof(kiln_work, axes)];
            KILN_WORK_OF_AXES;
        };
        int64_t words[KILN_PLAN_WORDS];
    };
} kiln_plan;
_Static_assert(offsetof(kiln_plan, axes) == offsetof(kiln_plan, work) + offsetof(kiln_work, axes) &&
                   offsetof(kiln_plan, bytes) == offsetof(kiln_plan, work) + offsetof(kiln_work, bytes),
               "the plan's names are those of the work's fields");

/* Sets the rank of a shape and takes room for its sizes and strides.  A rank may become smaller after that. */
static inline void kiln_plan_shape(kiln_plan *p, kiln_shape *s, int rank) {
    s->rank = rank;
    s->sizes = kiln_work_take(&p->work, 2 * (unsigned)rank, &s->at[0]);
    s->strides = s->sizes + rank;
    s->at[1] = (uint16_t)(s->at[0] + rank);
}

/* The tensor that buffer b is: an argument or a given result; else NULL. */
static inline const kiln_tensor *kiln_plan_tensor(const kiln_plan *p, int b) {
    const kiln_buffer *buf = &p->buffer[b];
    if (buf->kind == KILN_BUFFER_ARG) return p->call->arg[buf->which].u.tensor;
    return buf->kind == KILN_BUFFER_RESULT && buf->which < p->call->nout ? p->call->out[buf->which] : NULL;
}
#endif
