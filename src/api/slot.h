/* slot.h - private to src/api: what a thread remembers of its last call of each operator.
 *
 * A slot answers a call of the same class without binding, inferring or looking anything up: the same kinds
 * of arguments, the same signatures, the same values of what conditions ask.  It holds for every shape, as
 * sizes are compared among the tensors of the call: all row-major and of one shape, or of rank 0.  Anything
 * else, and everything that fails, is left to the general path.  No lock, no allocation, no string. */
#ifndef KILN_SLOT_H
#define KILN_SLOT_H
#include "api/ctx.h"
#include "tensor/blocks.h"

enum {
    KILN_SLOT_ARGS = 8,     /* values given */
    KILN_SLOT_OPERANDS = 8, /* tensors the kernel touches */
    KILN_SLOT_RETS = 4,
    KILN_SLOT_SCALARS = 4,
    KILN_SLOT_TEXT = 16,     /* with its end */
    KILN_SLOT_COUNT = 128,   /* of a thread; operators share them by hash */
    KILN_SLOT_SERIAL = 16384 /* elements from which on the driver decides how to run */
};

/* What one value of the call must be: its kind, its name, and a word of it under a mask: a tensor's
 * signature, any other's payload. */
typedef struct kiln_slot_arg {
    uint32_t kind;
    bool is_tensor, is_text;
    const char *name; /* the schema's; NULL: given by position */
    uint64_t mask, want;
} kiln_slot_arg;

/* How a kernel's scalar comes from a value. */
typedef enum kiln_slot_how {
    KILN_SLOT_CONST, /* a default: `value` */
    KILN_SLOT_COPY,  /* int to i64, float to f64 */
    KILN_SLOT_F64_TO_F32,
    KILN_SLOT_INT_TO_F32,
    KILN_SLOT_INT_TO_I32,
    KILN_SLOT_ANY /* kiln_number_convert */
} kiln_slot_how;

typedef struct kiln_slot_scalar {
    uint8_t how, arg, part, via, dtype;
    bool checked;
    uint64_t value;
} kiln_slot_scalar;

typedef struct kiln_slot {
    const kiln_op *op;   /* NULL: empty */
    uint64_t generation; /* of the domain when the class was found */
    kiln_kernel_fn fn;
    kiln_class *c;
    uint8_t nargs, nsized, nrets, noperands, nscalars, nnests, nguards;
    bool given_outs;                    /* results go into arguments */
    uint8_t like;                       /* the argument that has the shape of the call */
    uint8_t sized[KILN_SLOT_ARGS];      /* other arguments that must have it */
    uint8_t source[KILN_SLOT_OPERANDS]; /* argument of each operand; not for new results */
    uint8_t elem[KILN_SLOT_OPERANDS];   /* bytes */
    uint8_t dtype[KILN_SLOT_OPERANDS];
    int64_t stride[KILN_SLOT_OPERANDS * 2]; /* as a launch has them */
    kiln_slot_arg arg[KILN_SLOT_ARGS];
    kiln_slot_scalar scalar[KILN_SLOT_SCALARS];
    char text[KILN_SLOT_TEXT]; /* of the one argument that is a text */
} kiln_slot;

typedef struct kiln_slots {
    kiln_slot at[KILN_SLOT_COUNT];
} kiln_slots;

static inline kiln_slot *kiln_slot_of(kiln_slots *slots, const kiln_op *op) {
    _Static_assert(KILN_SLOT_COUNT == 128, "seven bits of the product");
    return &slots->at[(uint64_t)(uintptr_t)op * UINT64_C(0x9e3779b97f4a7c15) >> 57];
}

/* Runs the call if s answers it; false: nothing has happened. */
bool kiln_slot_hit(const kiln_slot *s, const kiln_value *args, kiln_tensor **outs, size_t nouts);

/* Remembers a call that the kernel fn has just answered, if a slot can hold it. */
void kiln_slot_fill(kiln_thread *t, uint64_t generation, const kiln_value *args, size_t nargs,
                    const kiln_plan *plan, kiln_class *c, kiln_kernel_fn fn);

/* call.c: the call as if there were no slots.  The caller is inside the domain. */
kiln_status kiln_call_general(kiln_ctx *ctx, kiln_thread *t, const kiln_op *op, const kiln_value *args,
                              size_t nargs, kiln_tensor **outs, size_t nouts) KILN_MUST_CHECK;

extern KILN_TLS_FAST const char *kiln_tier_here; /* what kiln_last_tier says */
#endif
