/* plan.h - what a bound call comes to, in five parts that are the same for every family.
 *
 *   (a) typed     branch and dtypes: all that sizes and strides have no part in
 *   (b) results   of each its dtype, sizes and strides; whether it is new, given, or a view of an argument
 *   (c) axes      the dimensions that are walked, each with a role, and byte strides of every buffer along them
 *   (d) buffers   what steps read and write: arguments, results, temporaries
 *   (e) steps     what is done, in order: launch the kernel (or a routine of the library), copy, call an operator
 *
 * A family (src/family) fills in (b) to (e).  Driver, memos, self-test and threads take (c) to (e) and know no family.
 * A plan points into itself and into its call, so it must not be copied. */
#ifndef KILN_PLAN_H
#define KILN_PLAN_H
#include "base/stride.h"
#include "infer/bound.h"

enum {
    KILN_MAX_DIMS = KILN_MAX_RANK,
    KILN_MAX_SHAPES = 5, /* the call's own, and those of results that differ from it */
    KILN_MAX_BUFFERS = KILN_MAX_OPERANDS + KILN_MAX_RETS, /* a result may have a temporary beside it */
    KILN_MAX_STEPS = 1 + KILN_MAX_OPERANDS,
    KILN_MAX_MADE = KILN_MAX_OPERANDS, /* tensors that calls within a plan make */
    KILN_PLAN_MAX_COPIED = 4
};

/* What answers the calls of a class. */
typedef enum kiln_class_kind {
    KILN_CLASS_KERNEL,      /* IR, interpreted until it is compiled */
    KILN_CLASS_ROUTINE,     /* a function of the library in place of a kernel: nothing is compiled */
    KILN_CLASS_COMPOSITION, /* calls of other operators */
    KILN_CLASS_VIEW         /* nothing is computed: results look at memory of arguments */
} kiln_class_kind;
#define KILN_CLASS_KIND_NAMES \
    { "kernel", "routine", "composition", "view" } /* ORDER: kiln_class_kind */

/* -- (a) -------------------------------------------------------------------------------------------------- */

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
    kiln_dtype ret_dtype[KILN_MAX_RETS]; /* what the row computes for each result */
} kiln_typed;

/* -- (b) -------------------------------------------------------------------------------------------------- */

typedef struct kiln_shape {
    int rank;
    int64_t nelem;
    int64_t sizes[KILN_MAX_RANK];
    int64_t strides[KILN_MAX_RANK]; /* of a new tensor, in elements */
} kiln_shape;

typedef struct kiln_result {
    uint8_t shape;  /* of the plan's, if it is new or resized */
    bool resized;   /* given, and of another shape: kiln_tensor_resize before its data is used (it may be) */
    uint8_t view;   /* 1 + the argument that it is a view of; 0: none */
    uint8_t made;   /* 1 + the tensor, of those that calls make, that it is; 0: none */
    int64_t offset; /* of a view's first element from the argument's, in bytes */
} kiln_result;

/* -- (c) -------------------------------------------------------------------------------------------------- */

/* What a dimension is to the kernel.  The grid comes first, then the others in the order of the kernel's axes. */
typedef enum kiln_role {
    KILN_ROLE_GRID,    /* points in any order: the driver picks two for a launch and walks the rest */
    KILN_ROLE_REDUCED, /* folded within one launch, slowest first */
    KILN_ROLE_SCANNED, /* walked in order within one launch; results have it too */
    KILN_ROLE_INDEXED, /* measures a buffer whose places are computed; not walked */
    KILN_ROLE_PARTS /* partial folds, of which there is one, or more in the kernel of parts; blocks of a scan */
} kiln_role;
#define KILN_ROLE_NAMES \
    { "grid", "reduced", "scanned", "indexed", "parts" } /* ORDER: kiln_role */

/* Loops without what they compute: all that the driver knows of a call. */
/* Rows so short, and so many, that the driver takes many together (src/run/rows.c).  Rows of
 * up to KILN_SHORTER_ROW elements beside a column are taken together by kernels themselves (src/emit/emit_columns.c). */
enum { KILN_SHORT_ROW = 300, KILN_MANY_ROWS = 128 };
/* What rows that are folded each for itself must be for the driver to turn them (src/run/turned.c): so many at least, of elements
 * of so many bytes at most, so that so many rows of all buffers have room, each with up to KILN_TURN_GAP bytes between
 * places. */
enum { KILN_TURN_FOLDS = 16, KILN_TURN_ELEMENT = 8, KILN_TURN_BYTES = 48 * 1024, KILN_TURN_GAP = 128 };

typedef struct kiln_axes {
    int ndim, ngrid;        /* the grid's dimensions are the first, innermost first; there is at least one */
    int nbuffers, nwritten; /* of the kernel; it writes the first so many */
    int pitch;              /* from one buffer's strides to the next one's */
    int vector;             /* the dimension whose places are lanes of the kernel's vectors */
    bool strided;           /* some buffer is neither contiguous nor broadcast along the vector axis */
    bool triangle;    /* of the grid's two dimensions places right of the diagonal alone (src/run/driver.c) */
    uint32_t columns; /* bit b: buffer b has one element for each of many short rows */
    uint32_t
        turned; /* bit b: buffer b lies along the dimension that is folded, and the kernel expects it along the grid's first */
    int64_t npoints;           /* of the grid */
    int64_t nelem;             /* of all dimensions */
    const int64_t *n, *stride; /* stride[buffer * pitch + dimension], in bytes */
    const int64_t *origin;     /* of each dimension beyond the grid; NULL: zeros */
    const uint8_t *bytes;      /* of an element of each buffer */
} kiln_axes;

static inline int64_t kiln_axes_stride(const kiln_axes *x, int buffer, int dim) {
    return x->stride[buffer * x->pitch + dim];
}

/* -- (d) -------------------------------------------------------------------------------------------------- */

typedef enum kiln_buffer_kind { KILN_BUFFER_ARG, KILN_BUFFER_RESULT, KILN_BUFFER_TMP } kiln_buffer_kind;

typedef struct kiln_buffer {
    uint8_t kind; /* kiln_buffer_kind */
    uint8_t
        which; /* argument, or result; of a temporary: the result it stands in for, or the argument it copies */
    uint8_t stride;            /* kiln_stride along the vector axis */
    kiln_dtype dtype;          /* of its elements: what the kernel loads or stores */
    const kiln_tensor *tensor; /* of an argument or a given result; else NULL */
    int64_t nbytes;            /* TMP: memory it takes */
} kiln_buffer;

/* -- (e) -------------------------------------------------------------------------------------------------- */

typedef enum kiln_step_kind {
    KILN_STEP_LAUNCH, /* nests of the kernel, one after the other */
    KILN_STEP_COPY,   /* elements of one buffer to their places in another */
    KILN_STEP_CALL    /* another operator, whose results are tensors that this plan makes */
} kiln_step_kind;

typedef struct kiln_step {
    uint8_t kind; /* kiln_step_kind */
    union {
        struct {
            const kiln_axes *axes;
            uint16_t first, end; /* nests; end 0: all from the first on */
        } launch;
        struct {
            uint8_t from, to, ndim;
            const int64_t *n, *from_stride,
                *to_stride; /* bytes, innermost first; NULL: side by side in that order */
        } copy;
        struct {
            const kiln_op *op;
            const kiln_value *args;
            const uint8_t *made;  /* of each argument: 1 + which made tensor it is; 0: it is as args says */
            const int8_t *from;   /* of each: the argument of the plan's call that it is, or -1 */
            uint8_t nargs, first; /* first: which made tensor its first result is */
        } call;
    } u;
} kiln_step;

/* -- all of it -------------------------------------------------------------------------------------------- */

typedef struct kiln_plan {
    const kiln_bound *call;
    kiln_typed typed;
    const kiln_branch *branch;        /* typed.branch of the row; NULL: a composition, which has ways */
    kiln_dtype dtypes[KILN_MAX_ARGS]; /* of each tensor argument that is present and not ignored */
    const kiln_tensor
        *in[KILN_MAX_OPERANDS]; /* the tensors of typed.in_arg: every one given, used by bodies or not */
    bool uniform;               /* every tensor of `in` has the shape of the call */
    bool parts;                 /* meant for the kernel that folds in parts */
    bool aside;   /* results are computed in temporaries and then copied: the given tensors overlap inputs */
    uint8_t kind; /* kiln_class_kind */
    uint8_t form; /* which of a family's kernels, beside what buffers say: part of the class */
    uint64_t reduced;                  /* bit d: dimension d of the call's shape is folded */
    kiln_shape shape[KILN_MAX_SHAPES]; /* [0]: the call's, to which its tensors are broadcast */
    kiln_result result[KILN_MAX_RETS];
    kiln_axes axes;
    uint64_t
        stride_bits; /* what sizes and strides add to the class: the form, and two bits of each buffer's stride */
    kiln_buffer buffer[KILN_MAX_BUFFERS]; /* the kernel's, results first; then those that only copies touch */
    int nbuffers;
    kiln_step step[KILN_MAX_STEPS];
    int nsteps;
    /* what axes and steps point at */
    uint8_t role[KILN_MAX_DIMS], bytes[KILN_MAX_BUFFERS]; /* role: kiln_role */
    int64_t n[KILN_MAX_DIMS], stride[KILN_MAX_BUFFERS][KILN_MAX_DIMS];
    int64_t copy_n[KILN_MAX_DIMS]; /* of copies of arguments */
    struct {
        int rank;
        int64_t sizes[KILN_MAX_RANK]; /* in which the row's view sees an argument */
    } view[KILN_ROW_MAX_VIEWS];
    int64_t own_n[KILN_PLAN_MAX_COPIED]
                 [KILN_MAX_DIMS]; /* of arguments that are copied before views see them, innermost first */
    const kiln_op *rest; /* the operator that gives the results after the row's own, if it is called */
    int64_t result_n[KILN_MAX_SHAPES]
                    [KILN_MAX_DIMS];    /* sizes of shapes, innermost first, where results are copied */
    kiln_value call_arg[KILN_MAX_ARGS]; /* of all calls, one after the other */
    uint8_t call_made[KILN_MAX_ARGS];   /* of each: 1 + which made tensor it is; 0: it is as call_arg says */
    int8_t
        call_from[KILN_MAX_ARGS]; /* of each: the argument that it is; -1: none, it was computed or will be */
} kiln_plan;
#endif
