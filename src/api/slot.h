/* slot.h - private to src/api: what a thread remembers of its last call of each operator.
 *
 * A slot answers a call of the same class without binding, inferring or looking anything up: the same kinds
 * of arguments, the same signatures, the same values of what conditions ask.  It holds for every shape, as
 * sizes are compared among the tensors of the call: all row-major and of one shape, or of rank 0.  Anything
 * else, and everything that fails, is left to the general path.  No lock, no allocation, no string. */
#ifndef KILN_SLOT_H
#define KILN_SLOT_H
#include "api/asked.h"
#include "tensor/tensor.h"

enum {
    KILN_SLOT_ARGS = 8,     /* values given */
    KILN_SLOT_OPERANDS = 8, /* tensors the kernel touches */
    KILN_SLOT_RETS = 4,
    KILN_SLOT_SCALARS = 4,
    KILN_SLOT_COUNT = 128,   /* of a thread; operators share them by hash */
    KILN_SLOT_LEAD = 3,      /* tensors up to which there is a kiln_slot_hit of their number */
    KILN_SLOT_SERIAL = 16384 /* elements from which on the driver decides how to run */
};

/* What one value of the call must be: its kind, its name, and a word of it under a mask: a tensor's
 * signature, any other's payload. */
typedef struct kiln_slot_arg {
    uint64_t kind;
    const char *name; /* the schema's; NULL: given by position */
    uint64_t mask, want;
    char **data;   /* of a tensor: where the launch wants its address, */
    uint64_t elem; /* and the bytes of an element */
} kiln_slot_arg;

/* How a kernel's scalar comes from a value. */
typedef enum kiln_slot_how {
    KILN_SLOT_COPY, /* int to i64, float to f64 */
    KILN_SLOT_F64_TO_F32,
    KILN_SLOT_INT_TO_F32,
    KILN_SLOT_INT_TO_I32,
    KILN_SLOT_ANY /* kiln_number_convert */
} kiln_slot_how;

typedef struct kiln_slot_scalar {
    uint32_t how, arg;
    uint64_t *par; /* of the launch */
    uint8_t part, via, dtype;
    bool checked;
} kiln_slot_scalar;

typedef struct kiln_slot kiln_slot;

/* Answers a call of a slot's operator with as many values and room for one result.  The thread is inside the
 * epochs, and leaves them.  Parameters as kiln_call's where they are the same: they stay in their registers. */
typedef kiln_status kiln_slot_hit(kiln_thread *t, kiln_slot *s, const kiln_value *args, size_t nargs,
                                  kiln_tensor **outs);

struct kiln_slot {
    const kiln_op *op;   /* if it holds nothing the slot's own address, which is no operator's */
    uint64_t generation; /* kiln_generation when the class was found */
    size_t simple_nargs; /* nargs if there is one result, one nest, no guard and no text; else SIZE_MAX */
    kiln_slot_hit *hit;  /* if simple_nargs */
    kiln_class *c;
    /* The last shape, and what follows from it. */
    uint64_t like_sig; /* 0: none */
    int64_t n[2];      /* n[0]: its elements */
    kiln_tensor_mold mold[KILN_SLOT_RETS];
    uint32_t nargs, noperands;
    uint8_t nrets, nsized, nnests, nguards;
    bool given_outs;                  /* results go into arguments */
    uint8_t like;                     /* the argument that has the shape of the call */
    uint8_t sized[KILN_SLOT_ARGS];    /* other arguments that must have that shape */
    uint8_t target[KILN_SLOT_RETS];   /* the argument of each result that is given; else `like` */
    uint8_t elem[KILN_SLOT_OPERANDS]; /* bytes */
    uint8_t dtype[KILN_SLOT_OPERANDS];
    char *unused; /* address of a tensor that the kernel does not read */
    kiln_slot_arg arg[KILN_SLOT_ARGS], *arg_end;
    kiln_slot_scalar scalar[KILN_SLOT_SCALARS], *scalar_end; /* those that are not defaults */
    /* The launch, ready but for n[0], ptr and the scalars above. */
    kiln_kernel_fn fn;
    kiln_launch launch;
    char *ptr[KILN_SLOT_OPERANDS];
    int64_t stride[KILN_SLOT_OPERANDS * 2];
    uint64_t par[KILN_SLOT_SCALARS];
    kiln_asked_text text;
};

/* What a thread remembers of a context's calls.  Each slot is made when it is first filled; until then all are the
 * one that holds nothing. */
typedef struct kiln_slots {
    kiln_slot *at[KILN_SLOT_COUNT];
    struct kiln_recipe *recipes; /* KILN_RECIPE_COUNT of them; NULL before the first */
} kiln_slots;

extern kiln_slots kiln_slots_none; /* of a thread that has filled none; never written */

static inline kiln_slot **kiln_slot_of(kiln_slots *slots, const kiln_op *op) {
    _Static_assert(KILN_SLOT_COUNT == 128, "seven bits of the product");
    return &slots->at[(uint64_t)(uintptr_t)op * UINT64_C(0x9e3779b97f4a7c15) >> 57];
}

/* slot_fill.c: the thread's own, made on first use; NULL without memory. */
kiln_slots *kiln_slots_of(kiln_thread *t);
void kiln_slots_free(void *slots); /* kiln_slots_none is fine */

/* slot_fill.c: remembers a call that the kernel fn has just answered, if a slot can hold it. */
void kiln_slot_fill(kiln_thread *t, uint64_t generation, const kiln_value *args, size_t nargs,
                    const kiln_plan *plan, kiln_class *c, kiln_kernel_fn fn);
/* slot.c: for calls whose first values, this many, are all their tensors and each in the shape of the call; [0] is
 * for any. */
extern kiln_slot_hit *const kiln_slot_hits[KILN_SLOT_LEAD + 1];

/* call.c: the call as if there were no slots.  The caller is inside the context's epochs. */
kiln_status kiln_call_general(kiln_ctx *ctx, kiln_thread *t, const kiln_op *op, const kiln_value *args,
                              size_t nargs, kiln_tensor **outs, size_t nouts) KILN_MUST_CHECK;

extern KILN_TLS_FAST const char *kiln_tier_here; /* what kiln_last_tier says */
extern const char kiln_tier_compiled[];
#endif
