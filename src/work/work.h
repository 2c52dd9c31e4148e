/* work.h - the work of a call, which inference makes and src/run does, in one piece of memory that one memcpy copies.
 *
 *   results   of each its dtype, sizes and strides; whether it is new, given, made by a call, or a view of an argument
 *   axes      the dimensions that are walked, each with a role
 *   buffers   what steps read and write: arguments, results, temporaries
 *   accesses  of each buffer and axis a byte step; 0: the buffer is not reached by that axis (it is broadcast).  A buffer whose
 *             places are read from another buffer or computed has an axis of its own, of role computed, which is not walked.
 *             access.h says how steps come about.  A window of two axes (pools, convolutions) will be an entry there: one
 *             dimension of memory with the steps of both axes and the place where the first window begins
 *   steps     what is done, in order: launch the kernel, copy, call an operator
 *
 * The struct below is the head of that memory.  Tables follow it; the head says at which word of 8 bytes each begins.  There
 * is no pointer in any of it: arguments, given results, and operators that steps call are numbers, and who runs the work
 * brings what they stand for (src/run/steps.h).  A family fills the tables in where a plan (src/infer/plan.h) has room for
 * them.  Knows no row, family, tensor or target. */
#ifndef KILN_WORK_H
#define KILN_WORK_H
#include <string.h>

#include "base/stride.h"
#include "work/axes.h"

enum {
    KILN_WORK_BUFFERS = 2 * KILN_KERNEL_BUFFERS, /* a kernel's buffer may be a temporary for another one */
    KILN_WORK_AXES = KILN_MAX_DIMS + KILN_KERNEL_BUFFERS +
                     4,                  /* those of a call, and those that families add */
    KILN_WORK_CALLS = 16,                /* of other operators */
    KILN_WORK_MADE = KILN_KERNEL_BUFFERS /* tensors that these calls make */
};

typedef struct kiln_result {
    uint8_t shape;  /* results with the same number have the same sizes and strides */
    bool resized;   /* the given tensor has another shape: kiln_tensor_resize before its data is used */
    uint8_t view;   /* 1 + the argument whose memory the result shows; 0: the result is no view */
    uint8_t made;   /* 1 + the result's number among the tensors that calls make; 0: none */
    int64_t offset; /* of a view's first element from the argument's, in bytes */
    /* What follows is set when the rest of the work is known. */
    uint8_t dtype, rank;
    uint16_t sizes, strides; /* words at which both begin; strides in elements, of a new tensor */
    int64_t nelem;
} kiln_result;

typedef enum kiln_buffer_kind { KILN_BUFFER_ARG, KILN_BUFFER_RESULT, KILN_BUFFER_TMP } kiln_buffer_kind;

typedef struct kiln_buffer {
    uint8_t kind; /* kiln_buffer_kind */
    uint8_t
        which; /* number of the argument or result; TMP: of the result that it stands in for, or the argument that it copies */
    uint8_t stride; /* kiln_stride along the vector axis */
    uint8_t dtype;  /* kiln_dtype of its elements: what the kernel loads or stores */
    uint16_t
        strides; /* word at which its strides along the axes begin, in bytes; 0: its strides are in the table kiln_work.stride */
    int64_t nbytes; /* TMP: memory it takes */
} kiln_buffer;

typedef enum kiln_step_kind {
    KILN_STEP_LAUNCH, /* nests of the kernel over the axes, one after the other */
    KILN_STEP_COPY,   /* elements of one buffer to their places in another */
    KILN_STEP_CALL    /* another operator, whose results are tensors that this work makes */
} kiln_step_kind;

enum { KILN_DENSE_NONE, KILN_DENSE_FROM, KILN_DENSE_TO }; /* kiln_step.u.copy.dense */

typedef struct kiln_step {
    uint8_t kind; /* kiln_step_kind */
    union {
        struct {
            uint16_t first, end; /* nests; end 0: all from the first on */
        } launch;
        struct {
            uint8_t from, to, ndim;
            uint8_t
                dense; /* KILN_DENSE_*: which buffer's elements lie side by side in the order of n; the other has strides */
            uint16_t n; /* word at which the extents begin, innermost first */
        } copy;
        struct {
            uint8_t op; /* number of the operator among those of the work */
            uint8_t nargs, nrets;
            uint8_t first; /* number of its first result among the tensors that calls make */
            uint16_t args; /* word at which its kiln_call_args begin */
        } call;
    } u;
} kiln_step;
_Static_assert(sizeof(kiln_step) == sizeof(int64_t), "one word for each step");

/* An argument of a call within the work. */
typedef struct kiln_call_arg {
    uint8_t made; /* 1 + the argument's number among the tensors that calls make; 0: none */
    uint8_t
        name; /* given by name: 1 + the argument in the schema of the called operator; 0: given by position */
    int8_t from;   /* which argument of the outer call is passed on; -1: none */
    uint8_t kind;  /* kiln_kind of a value in the work itself: a number, a dtype, a text or none */
    uint16_t text; /* word at which the characters of a text begin */
    union {
        int64_t i;
        double f;
        struct {
            double re, im;
        } c;
    } u;
} kiln_call_arg;

/* The last fields of a work, which a plan has as well. */
#define KILN_WORK_OF_AXES                                         \
    kiln_axes_counts axes;                                        \
    uint8_t role[KILN_WORK_AXES];    /* kiln_role of each axis */ \
    uint8_t bytes[KILN_WORK_BUFFERS] /* of an element of each buffer */

typedef struct kiln_work {
    uint32_t nwords; /* in use, from the first one of this struct on */
    uint8_t nresults, nbuffers, nsteps, ncalls;
    uint16_t absent; /* bit k: the call does not give result k */
    bool aside; /* results are computed in temporaries and then copied: the given tensors overlap inputs */
    bool parts; /* the work is for the kernel that folds in parts */
    uint16_t result, buffer, step; /* words at which the tables of results, buffers and steps begin */
    uint16_t n, stride;            /* words at which extents of axes and strides of kernel buffers begin */
    KILN_WORK_OF_AXES;
} kiln_work;

enum { KILN_WORK_HEAD = (int)(sizeof(kiln_work) / sizeof(int64_t)) }; /* words */
_Static_assert(sizeof(kiln_work) % sizeof(int64_t) == 0, "tables begin at whole words");

/* -- reading --------------------------------------------------------------------------------------------------- */

static inline const int64_t *kiln_work_words(const kiln_work *w, unsigned at) {
    return (const int64_t *)(const void *)w + at;
}
static inline const kiln_result *kiln_work_results(const kiln_work *w) {
    return (const kiln_result *)(const void *)kiln_work_words(w, w->result);
}
static inline const kiln_buffer *kiln_work_buffers(const kiln_work *w) {
    return (const kiln_buffer *)(const void *)kiln_work_words(w, w->buffer);
}
static inline const kiln_step *kiln_work_steps(const kiln_work *w) {
    return (const kiln_step *)(const void *)kiln_work_words(w, w->step);
}
static inline const kiln_call_arg *kiln_work_call_args(const kiln_work *w, const kiln_step *s) {
    return (const kiln_call_arg *)(const void *)kiln_work_words(w, s->u.call.args);
}
/* Steps of buffer b along the axes. */
static inline const int64_t *kiln_work_strides(const kiln_work *w, int b) {
    unsigned own = kiln_work_buffers(w)[b].strides;
    return kiln_work_words(w, own ? own : w->stride + (unsigned)(b * w->axes.pitch));
}
/* The axes, which point into w. */
static inline void kiln_work_axes(const kiln_work *w, kiln_axes *out) {
    out->counts = w->axes;
    out->n = kiln_work_words(w, w->n);
    out->stride = kiln_work_words(w, w->stride);
    out->origin = NULL;
    out->bytes = w->bytes;
}

/* How many bytes a copy of w takes. */
static inline size_t kiln_work_size(const kiln_work *w) { return w->nwords * sizeof(int64_t); }

/* -- filling in: there is room for n more words behind w ------------------------------------------------------- */

/* Takes n words, whose first is word *at. */
static inline void *kiln_work_take(kiln_work *w, unsigned n, uint16_t *at) {
    *at = (uint16_t)w->nwords;
    w->nwords += n;
    return (int64_t *)(void *)w + *at;
}
/* Words that n things of `bytes` bytes each take. */
static inline unsigned kiln_work_words_of(unsigned n, size_t bytes) {
    return (unsigned)((n * bytes + sizeof(int64_t) - 1) / sizeof(int64_t));
}

/* -- printing: work_print.c ------------------------------------------------------------------------------------ */

/* Names of arguments and operators, by their numbers; NULL: the number is printed. */
typedef struct kiln_work_names {
    const char *arg[KILN_MAX_ARGS], *op[KILN_WORK_CALLS];
} kiln_work_names;

/* Prints "[2, 3]". */
void kiln_sizes_print(kiln_sb *out, int rank, const int64_t *sizes);
/* Prints "result 0", "self" or "temporary for self". */
void kiln_work_buffer_print(kiln_sb *out, const kiln_work *w, const kiln_work_names *names, int buffer);
/* Prints the axes and buffers, if the work has any, and the steps. */
void kiln_work_print(kiln_sb *out, const kiln_work *w, const kiln_work_names *names);
#endif
