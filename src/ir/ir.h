/* ir.h - the loop IR: what a kernel computes, before anything is said of C, CUDA or blocks.
 *
 * A kernel is a list of buffers, scalars and axes, and a list of nests run one after the other over all points.
 * Inside a nest, instructions in SSA form compute one point; further loops may stand inside.  docs/IR.md is the
 * specification: grammar, types, meaning, fold trees.
 *
 *   kernel "add" {
 *     axis p grid
 *     buf x in f32 (p) contig
 *     buf y in f32 (p) bcast
 *     buf o out f32 (p) contig
 *     par alpha f32
 *     for p vec {
 *       %0 = load x
 *       %1 = load y
 *       %2 = par alpha
 *       %3 = mul %2, %1
 *       %4 = add %0, %3
 *       store o, %4
 *     }
 *   }
 *
 * Values live in one flat array in program order; a region is a pair of marker instructions.  All
 * memory comes from one arena.  The IR knows primitives and dtypes, not operators or tensors. */
#ifndef KILN_IR_H
#define KILN_IR_H
#include "base/base.h"
#include "base/stride.h"
#include "expr/prims.h"

enum {
    KILN_IR_MAX_AXES = 8,
    KILN_IR_MAX_BUFS = 128,
    KILN_IR_MAX_PARS = 128,
    KILN_IR_MAX_STATES = 8,
    KILN_IR_MAX_INS = 1 << 16,
    KILN_IR_MAX_NEST = 8, /* loops inside loops */
    KILN_IR_MAX_LANES = 64,
    KILN_IR_MAX_BLOCK = 1 << 16, /* elements of a block of a fold or scan */
};

typedef uint32_t kiln_ref; /* index of the instruction that made a value */
#define KILN_NOREF UINT32_MAX

typedef struct kiln_ir_axis {
    const char *name;
    bool grid;    /* stands for all points of an element-wise nest; two launch dimensions */
    bool indexed; /* `grid indexed`: one dimension of the grid, whose index is known; one launch dimension */
} kiln_ir_axis;

typedef enum kiln_ir_role { KILN_BUF_IN, KILN_BUF_OUT, KILN_BUF_INOUT, KILN_BUF_TMP } kiln_ir_role;

typedef struct kiln_ir_buf {
    const char *name;
    kiln_ir_role role;
    kiln_dtype dtype;
    uint32_t axes;      /* bit a: the buffer has a stride along axis a (others: stride zero) */
    kiln_stride stride; /* along the vector axis */
} kiln_ir_buf;

typedef struct kiln_ir_par {
    const char *name;
    kiln_dtype dtype; /* a compute type: never f16 or bf16 */
} kiln_ir_par;

typedef enum kiln_ir_op {
#define I(NAME, text, makes_value) KILN_IR_##NAME,
#include "ir/ins.def"
#undef I
    KILN_IR_OP_COUNT
} kiln_ir_op;

/* What a load takes of an element: a complex one is read in two. */
typedef enum kiln_ir_part { KILN_PART_WHOLE, KILN_PART_RE, KILN_PART_IM } kiln_ir_part;

/* A computed coordinate: the position along `axis` is `at` (an i64) instead of the loop's. */
typedef struct kiln_ir_coord {
    uint8_t axis;
    kiln_ref at;
} kiln_ir_coord;

/* Which elements of a fold meet which.  Lanes 0: a fold or scan by block.  Both 0: a scan without blocks. */
typedef struct kiln_ir_tree {
    uint32_t lanes, block;
} kiln_ir_tree;

#define KILN_TREE_ALONG ((kiln_ir_tree){64, 4096}) /* for a fold that is the vector loop */
#define KILN_TREE_ACROSS ((kiln_ir_tree){8, 8})    /* for one inside the vector loop */

typedef struct kiln_ir_ins {
    uint8_t op;    /* kiln_ir_op */
    uint8_t dtype; /* of the value made; bool for comparisons */
    uint8_t prim;  /* PRIM: kiln_prim; LOAD: kiln_ir_part */
    uint8_t nargs; /* args in use; YIELD, FOLD, SCAN: the states, in list */
    /* LOAD, STORE: which buffer; PAR: scalar; INDEX, EXTENT, FOR, FOLD, SCAN: axis; STATE, LEFT, RIGHT, RESULT: state;
     * TRAP: message */
    uint16_t which;
    uint8_t ncoord; /* LOAD, STORE: computed coordinates; FOLD: its slower axes, slowest first, at = NOREF */
    uint8_t vec;    /* FOR, FOLD: this axis is the vector axis */
    kiln_ref arg
        [3]; /* operands; LOAD: [0] guard, [1] value where the guard is false; STORE: the value (of a complex buffer two: real, imaginary), then the guard; RESULT: [0] the fold */
    kiln_ir_coord *coord;
    kiln_ref *list; /* FOLD, SCAN: initial states; YIELD: new states */
    union {
        int64_t i;
        double f;          /* CONST: these two */
        kiln_ir_tree tree; /* FOLD, SCAN */
    } imm;
} kiln_ir_ins;

/* What a trap says when it fires. */
typedef struct kiln_ir_trap {
    kiln_status status;
    const char *text;
} kiln_ir_trap;

typedef struct kiln_ir {
    kiln_arena *arena;
    const char *name;
    kiln_ir_axis *axes;
    int naxes;
    kiln_ir_buf *bufs;
    int nbufs;
    kiln_ir_par *pars;
    int npars;
    kiln_ir_trap *traps;
    int ntraps;
    kiln_ir_ins *ins;
    int nins, cap;
    int nnests;                 /* top-level FOR regions */
    bool failed;                /* an allocation failed, or the builder was misused; verify reports it */
    const char *why;            /* what the builder was asked first that it could not do; NULL: memory */
    int open[KILN_IR_MAX_NEST]; /* regions being built: their FOR, FOLD or SCAN, outermost first */
    int nopen;
} kiln_ir;

/* -- building: each returns the new value; errors are remembered and reported by kiln_ir_verify ---- */

kiln_ir *kiln_ir_new(kiln_arena *arena, const char *name); /* NULL without memory */
int kiln_ir_axis_add(kiln_ir *ir, const char *name, bool grid);
int kiln_ir_indexed_axis_add(kiln_ir *ir, const char *name); /* `grid indexed` */
int kiln_ir_buf_add(kiln_ir *ir, const char *name, kiln_ir_role role, kiln_dtype t, uint32_t axes,
                    kiln_stride step);
int kiln_ir_par_add(kiln_ir *ir, const char *name, kiln_dtype t);
kiln_ref kiln_ir_const_i(kiln_ir *ir, kiln_dtype t, int64_t v);
kiln_ref kiln_ir_const_f(kiln_ir *ir, kiln_dtype t, double v);
kiln_ref kiln_ir_par_read(kiln_ir *ir, int par);
kiln_ref kiln_ir_load(kiln_ir *ir, int buf);
kiln_ref kiln_ir_load_at(kiln_ir *ir, int buf, const kiln_ir_coord *coord, int ncoord, kiln_ref guard,
                         kiln_ref other);
/* An element of a buffer: at the axes' places, but along the axes of coord at those. */
typedef struct kiln_ir_place {
    int buf;
    const kiln_ir_coord *coord;
    int ncoord;
} kiln_ir_place;
kiln_ref kiln_ir_load_part(kiln_ir *ir, kiln_ir_place from, kiln_ir_part part, kiln_ref guard,
                           kiln_ref other);
void kiln_ir_store(kiln_ir *ir, int buf, kiln_ref value);
/* Of a complex buffer: both parts.  im is KILN_NOREF for any other. */
void kiln_ir_store_parts(kiln_ir *ir, kiln_ir_place to, kiln_ref re, kiln_ref im, kiln_ref guard);
void kiln_ir_store_at(kiln_ir *ir, int buf, kiln_ref value, const kiln_ir_coord *coord, int ncoord,
                      kiln_ref guard);
kiln_ref kiln_ir_prim(kiln_ir *ir, kiln_prim p, const kiln_ref *args,
                      int nargs);                              /* typed by the primitive's rule */
kiln_ref kiln_ir_cast(kiln_ir *ir, kiln_dtype to, kiln_ref v); /* v itself if it has that type */
kiln_ref kiln_ir_index(kiln_ir *ir, int axis);
kiln_ref kiln_ir_extent(kiln_ir *ir, int axis);
void kiln_ir_trap_if(kiln_ir *ir, kiln_ref cond, kiln_status st, const char *text);
void kiln_ir_for(kiln_ir *ir, int axis, bool vec);
/* fold AXES (init...) { step: ... yield } merge { ... yield }, slowest axis first; without lanes: by block */
typedef struct kiln_ir_run {
    const int *axes;
    int naxes;
    bool vec; /* the fastest axis is that of vectors */
    kiln_ir_tree tree;
} kiln_ir_run;
kiln_ref kiln_ir_fold(kiln_ir *ir, kiln_ir_run over, const kiln_ref *init, int nstates);
/* block 0: none, and no merge */
kiln_ref kiln_ir_scan(kiln_ir *ir, int axis, uint32_t block, const kiln_ref *init, int nstates);
kiln_ref kiln_ir_state(kiln_ir *ir, int k); /* in a step: the state so far */
void kiln_ir_merge(kiln_ir *ir);            /* ends the step, begins the merge */
kiln_ref kiln_ir_left(kiln_ir *ir, int k);  /* in a merge: the state over lower indices */
kiln_ref kiln_ir_right(kiln_ir *ir, int k);
void kiln_ir_yield(kiln_ir *ir, const kiln_ref *states, int n);
void kiln_ir_end(kiln_ir *ir); /* closes the innermost for, fold or scan */
kiln_ref kiln_ir_result(kiln_ir *ir, kiln_ref fold, int k);

/* -- whole kernels -------------------------------------------------------------------------------- */

kiln_status kiln_ir_verify(const kiln_ir *ir) KILN_MUST_CHECK; /* KILN_E_VERIFY names the instruction */
void kiln_ir_print(kiln_sb *out, const kiln_ir *ir);
/* Prints ir with names made of places (a0, b0, p0), no kernel name and empty trap texts.  Two kernels with equal
 * text have equal code. */
void kiln_ir_print_nameless(kiln_sb *out, const kiln_ir *ir);
kiln_status kiln_ir_parse(kiln_arena *arena, const char *text, size_t n,
                          kiln_ir **out) KILN_MUST_CHECK; /* verified */
/* Folds constants, removes casts to the same type, common subexpressions and dead values; never
 * changes a bit of any result.  Works in place. */
kiln_status kiln_ir_simplify(kiln_ir *ir) KILN_MUST_CHECK;

/* -- reading ----------------------------------------------------------------------------------- */

const char *kiln_ir_op_name(kiln_ir_op op);             /* as in the text form */
bool kiln_ir_op_makes(kiln_ir_op op);                   /* whether it makes a value */
int kiln_ir_store_values(const kiln_ir_ins *store);     /* 1, or 2 into a complex buffer */
kiln_ref kiln_ir_store_guard(const kiln_ir_ins *store); /* or KILN_NOREF */
int kiln_ir_computed(const kiln_ir_ins *ins);           /* the number of computed coordinates */
/* Values that ins reads: arguments or states, then computed coordinates. */
int kiln_ir_noperands(const kiln_ir_ins *ins);
kiln_ref kiln_ir_operand(const kiln_ir_ins *ins, int k);
bool kiln_ir_opens(const kiln_ir_ins *ins);           /* FOR, FOLD or SCAN */
bool kiln_ir_by_block(const kiln_ir_ins *ins);        /* a FOLD or SCAN by block */
int kiln_ir_block_axis(const kiln_ir_ins *ins);       /* of a FOLD by block: its last axis; else -1 */
uint32_t kiln_ir_axes(const kiln_ir_ins *opener);     /* bit a: the FOR, FOLD or SCAN runs over axis a */
int kiln_ir_region_end(const kiln_ir *ir, int begin); /* the END of the region opened at begin */
int kiln_ir_region_around(const kiln_ir *ir, int r);  /* what opens the innermost region around r, or -1 */
int kiln_ir_nest_begin(const kiln_ir *ir, int nest);  /* index of the nest-th top-level FOR */
#endif
