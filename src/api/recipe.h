/* recipe.h - private to src/api: what a thread remembers of calls by the kinds and dtypes of their arguments.
 *
 * Where a slot answers one class of an operator in one layout, a recipe holds for every shape and all strides: it
 * says how the values bind, what the row's conditions and promotion gave, and which class was found for each set of
 * stride classes.  Shape and layout are inferred for each call, as ever.  What no recipe holds
 * (lists, conditions on sizes) is bound and typed anew; so is everything that fails to bind. */
#ifndef KILN_RECIPE_H
#define KILN_RECIPE_H
#include "api/asked.h"

enum {
    KILN_RECIPE_COUNT = 64,   /* of a thread and context; calls share them by hash */
    KILN_RECIPE_ARGS = 8,     /* values given */
    KILN_RECIPE_DEFAULTS = 4, /* arguments that are not */
    KILN_RECIPE_CLASSES = 8,
    KILN_RECIPE_SLOT = 8, /* calls after which one that a slot could answer is put into it */
    KILN_REPLAY_SCALARS = 4,
    KILN_REPLAY_RANK = 8,
    KILN_REPLAY_WORDS = 52, /* three tensors of that rank */
    KILN_REPLAY_WAYS = 2,
    KILN_REPLAY_PATIENCE = 4 /* layouts that come and go before one is kept, where the last was of no use */
};

/* What one value of the call must be, as in a slot, and where it goes. */
typedef struct kiln_recipe_arg {
    const char *name; /* the schema's; NULL: given by position */
    uint64_t mask, want;
    uint8_t kind;
    int8_t to, out; /* argument of the row, result; -1: none */
} kiln_recipe_arg;

/* A call whose one result a compiled kernel made anew (replay.c): laid out alike, another needs only addresses and
 * scalars. */
typedef struct kiln_replay_scalar {
    uint8_t arg, par, part, via, dtype; /* par: of the launch */
    bool checked;
} kiln_replay_scalar;

typedef struct kiln_replay {
    kiln_kernel_fn fn; /* NULL: nothing is kept */
    kiln_class *c;
    bool used;      /* since it was kept */
    bool fits_slot; /* a slot might answer it as well */
    uint8_t rank, nscalars;
    uint8_t from[KILN_WALK_BUFFERS]; /* the value each buffer but the first is */
    kiln_replay_scalar scalar[KILN_REPLAY_SCALARS];
    uint64_t par[KILN_REPLAY_SCALARS]; /* those that are defaults are set */
    kiln_walk walk;
    uint64_t sig; /* of the result */
    int64_t nelem;
    size_t nbytes;
    int64_t sizes[KILN_REPLAY_RANK], strides[KILN_REPLAY_RANK];
    int64_t inputs[KILN_REPLAY_WORDS]; /* of each tensor given: its rank, its sizes, its strides */
} kiln_replay;

typedef struct kiln_recipe {
    const kiln_op *op; /* NULL: empty */
    uint32_t serial;   /* raised when another recipe takes the place */
    uint8_t nargs, ndefaults, nfound;
    uint8_t calls; /* since the last that was offered to a slot */
    kiln_recipe_arg arg[KILN_RECIPE_ARGS];
    uint64_t generation; /* kiln_generation when the classes were found */
    struct {
        uint64_t stride_bits; /* of the plan */
        kiln_class *c;
    } found[KILN_RECIPE_CLASSES];
    kiln_typed typed;
    int8_t default_arg[KILN_RECIPE_DEFAULTS];
    kiln_value defaults[KILN_RECIPE_DEFAULTS];
    kiln_asked_text text;
    uint8_t oldest, passed; /* of kept; layouts that were not kept since the last that was */
    kiln_replay kept[KILN_REPLAY_WAYS];
} kiln_recipe;

/* The recipe of calls like this one; NULL if there is none. */
kiln_recipe *kiln_recipe_find(const kiln_thread *t, const kiln_op *op, const kiln_value *args, size_t nargs);

/* Binds a call for which r was found. */
void kiln_recipe_bind(const kiln_recipe *r, const kiln_value *args, kiln_bound *out);

/* The class of a call that r has bound, if it was found in this generation; else NULL. */
kiln_class *kiln_recipe_class(const kiln_recipe *r, uint64_t generation, const kiln_plan *plan);

/* Makes a recipe of an inferred call; NULL if none can hold it. */
kiln_recipe *kiln_recipe_make(kiln_thread *t, const kiln_value *args, size_t nargs, const kiln_plan *plan);
/* Notes that c is the class of an inferred call. */
void kiln_recipe_learn(kiln_recipe *r, const kiln_plan *plan, uint64_t generation, kiln_class *c);

/* A call of r that was laid out like this one; NULL if none is kept. */
kiln_replay *kiln_replay_find(kiln_recipe *r, uint64_t generation, const kiln_value *args);
/* The call again: its result.  NULL: nothing has happened.  The caller is inside the context's epochs. */
kiln_tensor *kiln_replay_run(kiln_replay *p, const kiln_value *args);
/* Remembers a call that the kernel of `run` has just answered with `made`, if it can be had again so. */
void kiln_replay_keep(kiln_recipe *r, const kiln_value *args, const kiln_plan *plan, kiln_class *c,
                      const kiln_runner *run, const kiln_tensor *made);
#endif
