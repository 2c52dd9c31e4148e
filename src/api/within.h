/* within.h - private to src/api: the calls that a call makes (compositions, rows with a `rest`), kept as they were inferred. */
#ifndef KILN_WITHIN_H
#define KILN_WITHIN_H
#include "api/ctx.h"

/* A call within another one: its class, and its work with arguments numbered by the values that it is given. */
typedef struct kiln_within_call {
    kiln_class *c;
    const kiln_work *work; /* NULL: it is to be made like a call of a user */
    const uint64_t *par;   /* scalars of its kernel */
} kiln_within_call;

/* The calls within one call.  Works and scalars lie at the end of the outer plan, whose own work needs little of its room. */
typedef struct kiln_within {
    kiln_ctx *ctx;
    kiln_thread *t;           /* which has entered the epochs: classes stay while it is inside */
    const kiln_op *const *op; /* by the numbers that the work has for them */
    kiln_plan *outer;
    kiln_inner counted; /* before the outer call was inferred */
    unsigned top;       /* word of the outer plan at which what is kept begins */
    int n;              /* calls that are kept */
    kiln_within_call at[KILN_WORK_CALLS];
} kiln_within;

/* Whether calls of op make calls of other operators. */
static inline bool kiln_makes_calls(const kiln_op *op) { return op->row->makes_calls; }

/* Until kiln_infer_show gets what this returns: each call within `outer`, which is about to be inferred, is kept.  Looking up
 * their classes counts as calls of a user until kiln_inner_end gets in->counted. */
kiln_infer_watch kiln_within_watch(kiln_within *in, kiln_plan *outer);

/* Copies w to `to`, for which there is room, and numbers its arguments by the values of the call, so that the copy can be run when
 * the call is gone.  False: the work reads a tensor that was not given, or a default that has no place in a work. */
bool kiln_work_keep(kiln_work *to, const kiln_work *w, const kiln_bound *call);

/* Runs the work of a call that makes other calls.  c: the class of its own kernel; NULL: it has none.  The calls count as one,
 * which is interpreted if any of them is. */
kiln_status kiln_within_run(kiln_within *in, const kiln_work *w, kiln_class *c, kiln_runner *run,
                            const kiln_given *given, kiln_tensor **outs) KILN_MUST_CHECK;

/* call.c: what of a class answers a call of this work: its kernel, or the interpreter with the programs that it needs. */
kiln_status kiln_class_runner(kiln_class *c, const kiln_work *w, kiln_runner *run) KILN_MUST_CHECK;
/* call.c: one fold that is worth several threads is another class: its kernel leaves states of parts to be merged. */
kiln_status kiln_class_take_parts(kiln_ctx *ctx, kiln_plan *p, kiln_class **c) KILN_MUST_CHECK;
/* call.c: counts a call of the class, and its heat if the interpreter ran it. */
void kiln_class_count(kiln_thread *t, kiln_class *c, const kiln_work *w, bool compiled);
#endif
