/* steps.h - runs the steps of a plan: results made ready, temporaries provided, nests driven, copies done. */
#ifndef KILN_STEPS_H
#define KILN_STEPS_H
#include "run/driver.h"

/* Runs the kernel of `run` as the plan's steps say.  par: its scalars.  outs: room for every result, each a new
 * reference on success.  What can fail comes before anything is written: a call that a guard refuses, or that has
 * no memory, has changed nothing. */
kiln_status kiln_steps_run(const kiln_plan *plan, const kiln_nests *nests, const kiln_runner *run,
                           const uint64_t *par, kiln_tensor **outs) KILN_MUST_CHECK;
#endif
