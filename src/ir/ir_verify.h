/* ir_verify.h - private to src/ir: the two halves of the verifier. */
#ifndef KILN_IR_VERIFY_H
#define KILN_IR_VERIFY_H
#include "ir/ir.h"

#define BAD_KERNEL(ir, fmt, ...) KILN_FAIL(KILN_E_VERIFY, "kernel \"%s\": " fmt, (ir)->name, __VA_ARGS__)

/* f16 and bf16 are only loaded, stored and cast. */
static inline bool kiln_ir_is_half(int t) { return t == KILN_F16 || t == KILN_BF16; }
/* Whether kernels compute values of this type. */
static inline bool kiln_ir_is_compute(int t) {
    return t < KILN_DTYPE_COUNT && !kiln_ir_is_half(t) && !kiln_dtype_is_complex((kiln_dtype)t);
}

/* Checks names, types, roles and axes of what the kernel declares, and the statuses of its traps. */
kiln_status kiln_ir_verify_declarations(const kiln_ir *ir) KILN_MUST_CHECK;
#endif
