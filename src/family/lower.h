/* lower.h - what families share when they turn (row, inferred call) into IR: kernels, expressions, complex parts.
 *
 * The kernel's buffers are the plan's in order.  Its scalars are listed beside it, so that a later call of the
 * same class can fill them.  Only what is in the class key may be read from the plan: dtypes, branch, presence and
 * iteration class, never sizes or values.  Nothing here knows C, vectors, how code is run, or a family. */
#ifndef KILN_LOWER_H
#define KILN_LOWER_H
#include "infer/infer.h"
#include "ir/nests.h"
#include "kiln/kiln_abi.h"

struct kiln_lowered {
    kiln_ir *ir;       /* of a kernel */
    kiln_kernel_fn fn; /* of a routine: a function of the library that stands for a kernel, with its ABI, */
    kiln_nests nests;  /* and what is known of it; of a kernel `partial` alone, the rest is in its IR */
    kiln_scalar_source scalars[KILN_MAX_SCALARS];
    int nscalars;
};

/* A value of an expression: of a complex type two IR values, of any other one and im is KILN_NOREF. */
typedef struct kiln_pair {
    kiln_ref re, im;
} kiln_pair;

kiln_pair kiln_pair_load(kiln_ir *ir, int buf);
kiln_pair kiln_pair_const(kiln_ir *ir, kiln_dtype t, int64_t i, double f);
kiln_pair kiln_pair_cast(kiln_ir *ir, kiln_dtype to, kiln_pair v); /* to bool: whether either part is not 0 */

enum { KILN_LOWER_MAX_MADE = 16 };

/* A class on its way to IR. */
typedef struct kiln_lowering kiln_lowering;
struct kiln_lowering {
    kiln_arena *arena;
    const kiln_plan *plan;
    const kiln_row *row;
    const kiln_branch *branch;
    kiln_lowered *out;
    kiln_ir *ir;
    int buf_of_arg[KILN_MAX_ARGS]; /* buffer of a tensor argument, or -1 */
    /* Elements loaded in the region that is being built, in the compute type: rounded, exact.  Forgotten at its end. */
    kiln_pair loaded[KILN_MAX_ARGS][2];
    uint64_t kept;    /* bit a: argument a was loaded by kiln_lower_keep */
    kiln_row_env env; /* types the row's expressions for this class */
    const kiln_texpr
        *must[KILN_ROW_MAX_CHECKS]; /* what must hold for each element, where the row's checks say so */
    /* Leaves of expressions that only some families have; NULL: this one has it not. */
    kiln_pair (*state)(kiln_lowering *lw, const kiln_texpr *e);    /* STATE, RHS */
    kiln_pair (*position)(kiln_lowering *lw, const kiln_texpr *e); /* POS, COUNT */
    kiln_pair (*block)(kiln_lowering *lw, const kiln_texpr *e);    /* BLOCK */
    kiln_pair (*access)(kiln_lowering *lw, const kiln_texpr *e);   /* ACCESS */
    const kiln_pair *locals;                                       /* of the rule being lowered */
    /* Expressions whose values are there already, wherever they stand. */
    struct {
        const kiln_texpr *of;
        kiln_pair v;
    } made[KILN_LOWER_MAX_MADE];
    int nmade;
};

/* Begins a kernel of that name, with the axes to be added; then its buffers, which have the given axes each. */
kiln_status kiln_lowering_begin(kiln_lowering *lw, kiln_arena *arena, const kiln_plan *plan,
                                kiln_lowered *out) KILN_MUST_CHECK;
void kiln_lower_buffers(kiln_lowering *lw, uint32_t written_axes, uint32_t read_axes);

/* Loads tensor argument `arg` in the region that begins: what is built up to its end, regions within too, sees that. */
void kiln_lower_keep(kiln_lowering *lw, int arg);
/* The element that e says, an access with one computed coordinate, which is the place along `axis`: where the buffer has it, else
 * the other value. */
kiln_pair kiln_lower_access(kiln_lowering *lw, const kiln_texpr *e, int axis);
/* An element of tensor argument `arg`, as it was loaded, in the compute type; exact: not rounded to the common dtype first. */
kiln_pair kiln_lower_loaded(const kiln_lowering *lw, int arg, kiln_pair v, bool exact);
void kiln_lower_forget(kiln_lowering *lw); /* what was loaded: another region begins */
kiln_pair kiln_lower_expr(kiln_lowering *lw, const kiln_texpr *e);
/* v is e from now on.  One too many is forgotten, and computed where it stands. */
void kiln_lower_made(kiln_lowering *lw, const kiln_texpr *e, kiln_pair v);
/* Computes the results of a set (bit k: result k, then arguments that are written to) and stores them. */
#define KILN_ALL_RESULTS (~UINT32_C(0))
void kiln_lower_results(kiln_lowering *lw, const kiln_texpr *const *of, uint32_t set);
/* Traps in a nest that stores nothing: for elements that break one of the row's checks, */
bool kiln_lower_has_musts(const kiln_lowering *lw);
void kiln_lower_musts(kiln_lowering *lw);
/* and for integer divisions of e by zero. */
bool kiln_lower_divides(const kiln_texpr *e);
void kiln_lower_traps(kiln_lowering *lw, const kiln_texpr *e);
#endif
