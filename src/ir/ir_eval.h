/* ir_eval.h - constant folding: private to src/ir. */
#ifndef KILN_IR_EVAL_H
#define KILN_IR_EVAL_H
#include "ir/ir.h"

typedef union kiln_ir_imm {
    int64_t i; /* bool and integers */
    double f;  /* f32 and f64 */
} kiln_ir_imm;

/* p on operands of type t (unary: b is a).  False: not folded. */
bool kiln_ir_eval_prim(kiln_prim p, kiln_dtype t, const kiln_ir_imm *a, const kiln_ir_imm *b,
                       kiln_ir_imm *out);
bool kiln_ir_eval_cast(kiln_dtype to, kiln_dtype from, const kiln_ir_imm *v, kiln_ir_imm *out);
#endif
