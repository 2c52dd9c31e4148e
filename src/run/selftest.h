/* selftest.h - a freshly built kernel beside the interpreter, before anybody may call it. */
#ifndef KILN_SELFTEST_H
#define KILN_SELFTEST_H
#include "run/interp.h"

/* Runs fn and interp on the same small made input and compares every byte written (any NaN equals any
 * NaN).  nwork: bytes of work that fn asks for.  KILN_E_BUG says which buffer and element differ. */
kiln_status kiln_selftest(const kiln_ir *ir, const kiln_interp *interp, kiln_kernel_fn fn,
                          size_t nwork) KILN_MUST_CHECK;
#endif
