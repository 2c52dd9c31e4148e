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

enum { KILN_BRIDGE_VERSION = 9 };

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
    /* The operator of that full name, as PyTorch's dispatcher calls it; NULL: last_error says why.  Parses its row, if need be. */
    const kiln_op *(*find)(kiln_ctx *ctx, const char *name);
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

/* Why calls of an operator went to PyTorch's own kernel, and how many did. */
typedef struct kiln_bridge_reason {
    const char *text; /* lives as long as the process */
    uint64_t calls;
} kiln_bridge_reason;

typedef struct kiln_bridge_counts {
    const char *name; /* of the operator */
    int taken;
    int own; /* Kiln's own, which nobody takes or gives back */
    uint64_t served;
} kiln_bridge_counts;

/* What is true of a tensor that was lent. */
enum {
    KILN_LENT = 1,
    KILN_LENT_BARE = 2,   /* the tensor has no autograd data, so autograd records nothing for it */
    KILN_LENT_COUNTED = 4 /* PyTorch counts writes to the tensor: it is no inference tensor */
};

/* The functions that the bridge gives to the Python module.  An entry's operator is one as PyTorch's dispatcher calls it, or NULL: then the bridge finds the operator when it is
 * called for the first time.  Nothing here throws.  Functions but `fit`, `taken_at`, `counts` and `reason` are called by one thread at a
 * time. */
typedef struct kiln_bridge {
    int version;               /* KILN_BRIDGE_VERSION */
    const char *torch_version; /* the version that the bridge was built for */
    /* own: whether the entry's operator could be one of Kiln's own, which PyTorch does not have yet. */
    kiln_bridge_fit (*fit)(const kiln_op_entry *entry, int own);
    /* From now on ctx answers calls of the entry's operator, if it fits; ctx lives as long as the process.  Taken before: it
     * has this entry and ctx from now on.  own: the operator is Kiln's own, so that no other kernel of it is needed, and
     * what Kiln refuses is an error of the caller's. */
    kiln_bridge_fit (*take)(kiln_ctx *ctx, const kiln_op_entry *entry, int own);
    /* Gives an operator back to PyTorch, if it is taken.  An operator that Kiln defined refuses calls until it is
     * taken again. */
    void (*drop)(const char *name);
    void (*forget)(const char *name); /* ends an operator that Kiln defined; called before PyTorch ends it */
    int (*takes)(const char *name);   /* 0: not taken; 1: taken; 2: taken, and Kiln defined it */
    /* Makes *out a kiln_tensor over the memory of `tensor`, which points to an at::Tensor.  written: Kiln will write
     * to the memory.  Returns KILN_LENT_ bits, or 0 if Kiln cannot borrow the tensor. */
    int (*borrow)(const void *tensor, int written, kiln_tensor_header *header, kiln_tensor **out);
    /* Makes a torch.Tensor over t and takes over the reference to t.  The caller holds the GIL.  Returns NULL on
     * failure.  The function itself is NULL if PyTorch has no symbol THPVariable_Wrap. */
    void *(*object)(kiln_tensor *t);
    /* The name of the k-th operator that was ever taken, "" if it is not taken now; NULL past the last. */
    const char *(*taken_at)(size_t k);
    /* Fills *out for the k-th operator that was ever taken.  Returns 0 past the last. */
    int (*counts)(size_t k, kiln_bridge_counts *out);
    /* Fills *out with the n-th reason why calls of the k-th operator were handed back, newest first.  Returns 0 past
     * the last.  If a reason is added between two calls of this function, n of every older reason grows by one. */
    int (*reason)(size_t k, size_t n, kiln_bridge_reason *out);
} kiln_bridge;

/* The only symbol that the bridge exports, a kiln_bridge_open_fn.  The caller compares `version` and
 * `torch_version`. */
#define KILN_BRIDGE_SYMBOL "kiln_torch_bridge"
typedef const kiln_bridge *(*kiln_bridge_open_fn)(const kiln_bridge_api *api);

#ifdef __cplusplus
}
#endif
#endif
