/* steps.h - runs the steps of a work: results made ready, temporaries provided, nests driven, copies and calls done. */
#ifndef KILN_STEPS_H
#define KILN_STEPS_H
#include "run/driver.h"

/* What the numbers in a work stand for in one call. */
typedef struct kiln_given {
    const char *name; /* of the operator, for messages */
    const kiln_value
        *args; /* tensors, and what calls within are given, by the numbers that the work has for arguments */
    kiln_tensor *const *out; /* results that are given; NULL: they are made */
    const uint64_t *par;     /* scalars of the kernel */
} kiln_given;

/* Runs the kernel of `run` as the steps say.  outs: room for every result, each a new reference on success.  What can fail
 * comes before anything is written: a call that a guard refuses, or that has no memory, has changed nothing. */
kiln_status kiln_steps_run(const kiln_work *w, const kiln_nests *nests, const kiln_runner *run,
                           const kiln_given *given, kiln_tensor **outs) KILN_MUST_CHECK;
#endif
