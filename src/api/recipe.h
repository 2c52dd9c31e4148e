/* recipe.h - private to src/api: what a thread remembers of calls by the kinds and dtypes of their arguments.
 *
 * Where a slot answers one class of an operator in one layout, a recipe holds for every shape and all strides: it
 * says how the values bind, what the row's conditions and promotion gave, and which classes were found, by what
 * sizes and strides made of them.  Shape and layout are inferred for each call, as ever.  What no recipe holds
 * (lists, conditions on sizes) is bound and typed anew; so is everything that fails to bind. */
#ifndef KILN_RECIPE_H
#define KILN_RECIPE_H
#include "api/ctx.h"

enum {
    KILN_RECIPE_COUNT = 64,   /* of a thread; calls share them by hash */
    KILN_RECIPE_ARGS = 8,     /* values given */
    KILN_RECIPE_DEFAULTS = 4, /* arguments that are not */
    KILN_RECIPE_CLASSES = 8,
    KILN_RECIPE_TEXT = 16, /* with its end */
    KILN_RECIPE_SLOT = 8   /* calls after which one that a slot could answer is put into it */
};

/* What one value of the call must be, as in a slot, and where it goes. */
typedef struct kiln_recipe_arg {
    const char *name; /* the schema's; NULL: given by position */
    uint64_t mask, want;
    uint8_t kind;
    int8_t slot, out; /* argument of the row, result; -1: none */
} kiln_recipe_arg;

typedef struct kiln_recipe {
    const kiln_op *op;  /* NULL: empty */
    uint64_t domain_id; /* of the context */
    uint8_t nargs, ndefaults, nfound;
    uint8_t calls; /* since the last that was offered to a slot */
    bool has_text;
    kiln_typed typed;
    kiln_recipe_arg arg[KILN_RECIPE_ARGS];
    int8_t default_slot[KILN_RECIPE_DEFAULTS];
    kiln_value defaults[KILN_RECIPE_DEFAULTS];
    char text[KILN_RECIPE_TEXT]; /* of the one text among the values */
    uint64_t generation;         /* of the domain when the classes were found */
    struct {
        uint64_t steps; /* of the plan */
        kiln_class *c;
    } found[KILN_RECIPE_CLASSES];
} kiln_recipe;

/* The recipe of a call like this one, and the call bound by it; NULL if there is none. */
kiln_recipe *kiln_recipe_bind(const kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                              kiln_bound *out);

/* The class of a call that r has bound, if it was found in this generation; else NULL. */
kiln_class *kiln_recipe_class(const kiln_recipe *r, uint64_t generation, const kiln_plan *plan);

/* Remembers how an inferred call was bound and typed, if a recipe can hold that, and that c is its class. */
void kiln_recipe_keep(const kiln_value *args, size_t nargs, const kiln_plan *plan, uint64_t generation,
                      kiln_class *c);
#endif
