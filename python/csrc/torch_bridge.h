/* torch_bridge.h - what kiln._kiln and the bridge to PyTorch (torch_bridge.cpp) give each other, as C.
 *
 * They are two shared objects: the bridge is built for one PyTorch, serves every Python, and links no libkiln of its
 * own, since two would not share kernels.  So each hands the other a table of functions.  A bridge whose `version` is
 * another than this file's was built beside another Kiln and is refused. */
#ifndef KILN_TORCH_BRIDGE_H
#define KILN_TORCH_BRIDGE_H
#include "kiln/kiln.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KILN_BRIDGE_VERSION = 5 };

/* All that a tensor over a result needs, by one call. */
typedef struct kiln_bridge_view {
    void *data;
    const int64_t *sizes, *strides;
    int64_t nelem;
    kiln_dtype dtype;
    int rank;
} kiln_bridge_view;

/* Of the library. */
typedef struct kiln_bridge_api {
    kiln_status (*call)(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                        kiln_tensor **outs, size_t nouts);
    /* The same in a call that waits for its compiler, whatever signals come: nobody knows here who has the GIL. */
    kiln_status (*call_patiently)(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                                  kiln_tensor **outs, size_t nouts);
    /* The same of an operator whose one result is a list, which values_release ends; patiently: as above. */
    kiln_status (*call_values)(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                               kiln_value *out, int patiently);
    void (*values_release)(kiln_value *values, size_t n);
    kiln_status (*borrow)(kiln_tensor_header *header, void *data, kiln_dtype dtype, int rank,
                          const int64_t *sizes, const int64_t *strides, int how, kiln_tensor **out);
    kiln_status (*new_tensor)(kiln_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                              kiln_tensor **out);
    void (*release)(kiln_tensor *t);
    void (*look)(const kiln_tensor *t, kiln_bridge_view *out);
    int (*quiet)(int on);
    const char *(*last_error)(void);
    int (*threads_limit)(int n);
    const char *(*op_name)(const kiln_op *op);
    const char *(*op_schema)(const kiln_op *op);
    const char *(*op_form)(const kiln_op *op);
    size_t (*op_nrets)(const kiln_op *op);
    kiln_kind (*op_ret_kind)(const kiln_op *op, size_t k);
    int (*op_arg_at)(const kiln_op *op, size_t i, kiln_op_arg_info *out);
} kiln_bridge_api;

/* What keeps an operator from being taken. */
typedef enum kiln_bridge_fit {
    KILN_FIT_OK,
    KILN_FIT_ABSENT,    /* this PyTorch does not have it */
    KILN_FIT_SCHEMA,    /* it has it with another schema */
    KILN_FIT_COMPOSITE, /* PyTorch computes it, and its gradient, by other operators */
    KILN_FIT_NONE,      /* it has no CPU kernel that calls could be handed back to */
    KILN_FIT_ARGUMENTS, /* it has an argument that the bridge cannot pass on */
    KILN_FIT_RESULTS    /* it has a result that is neither a tensor nor a list of tensors */
} kiln_bridge_fit;

/* Why a call went to PyTorch's own kernel. */
typedef enum kiln_bridge_why {
    KILN_WHY_TENSOR, /* a tensor that is not dense memory of this machine's: a subclass, conjugate, other device */
    KILN_WHY_DTYPE,   /* elements of a type that Kiln does not have */
    KILN_WHY_DEFAULT, /* torch.set_default_dtype says other than float32 */
    KILN_WHY_VALUE,   /* an argument that has no counterpart */
    KILN_WHY_REFUSED, /* Kiln refuses the call, so that the error is PyTorch's own; or does not serve it */
    KILN_WHY_COUNT
} kiln_bridge_why;
#define KILN_WHY_NAMES \
    { "tensor", "dtype", "default dtype", "argument", "refused" } /* ORDER: kiln_bridge_why */

typedef struct kiln_bridge_counts {
    const char *name; /* of the operator */
    int taken;
    int own; /* Kiln's own, which nobody takes or gives back */
    uint64_t served, handed_back[KILN_WHY_COUNT];
} kiln_bridge_counts;

/* What is true of a tensor that was lent. */
enum {
    KILN_LENT = 1,
    KILN_LENT_BARE = 2,   /* autograd keeps nothing of it, so that nothing is recorded */
    KILN_LENT_COUNTED = 4 /* it counts writes: it is none of inference mode */
};

/* Of the bridge.  Nothing here throws.  Functions but `fit` and `counts` are called by one thread at a time. */
typedef struct kiln_bridge {
    int version;               /* KILN_BRIDGE_VERSION */
    const char *torch_version; /* that it was built for */
    kiln_bridge_fit (*fit)(const kiln_op *op);
    /* From now on calls of op's operator are ctx's, if it fits; ctx lives as long as the process.  Taken before: it
     * has this op and ctx from now on.  own: the operator is Kiln's own, so that no other kernel of it is needed, and
     * what Kiln refuses is an error of the caller's. */
    kiln_bridge_fit (*take)(kiln_ctx *ctx, const kiln_op *op, int own);
    void (*drop)(const char *name); /* gives an operator back, if it is taken */
    int (*takes)(const char *name); /* whether it is taken */
    /* Borrows what `tensor`, the address of an at::Tensor, holds, to be read or to be written: KILN_LENT_ bits, or 0 if it is
     * no plain tensor. */
    int (*borrow)(const void *tensor, int written, kiln_tensor_header *header, kiln_tensor **out);
    /* A new torch.Tensor over t, whose reference it takes over; the GIL is held.  NULL: there was no memory.  The
     * function itself is NULL if PyTorch does not say how. */
    void *(*object)(kiln_tensor *t);
    /* Of the k-th operator that was ever taken: 0 past the last. */
    int (*counts)(size_t k, kiln_bridge_counts *out);
} kiln_bridge;

/* The one symbol of the bridge.  NULL if the running PyTorch is another than it was built for. */
#define KILN_BRIDGE_SYMBOL "kiln_torch_bridge"
typedef const kiln_bridge *(*kiln_bridge_open_fn)(const kiln_bridge_api *api);

#ifdef __cplusplus
}
#endif
#endif
