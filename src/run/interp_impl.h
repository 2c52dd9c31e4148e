/* interp_impl.h - the prepared program that interp_prep.c makes and interp.c runs.
 *
 * A nest becomes a tree of regions, each with a few lists of nodes.  A node works on whole blocks through
 * a table of pointers, made anew for each run: most point at scratch registers, some straight at a tensor.
 * A value is uniform (one element), a block (elements of the vector loop) or lanes (the partial states of a
 * vec fold, side by side). */
#ifndef KILN_INTERP_IMPL_H
#define KILN_INTERP_IMPL_H
#include "run/interp.h"
#include "run/loops.h"

enum {
    LANES = KILN_IR_MAX_LANES, /* elements of a narrow scratch register */
    VECTOR = 64,               /* bytes of the widest vector of any machine */
    MAX_DIMS = 2 * KILN_IR_MAX_AXES,
    STACK_SCRATCH = 64 * 1024, /* bytes of scratch kept on the machine stack */
};

typedef enum width { UNIFORM, BLOCK, LANE } width; /* ORDER: the wider of two operands decides */

typedef enum node_kind {
    NODE_CALL,   /* out = fn(a, b, c) */
    NODE_CONST,  /* out = bits */
    NODE_PAR,    /* out = scalar `which` */
    NODE_SPLAT,  /* out = a in each element of vec's block */
    NODE_INDEX,  /* out = index along dimension `which` */
    NODE_EXTENT, /* out = extent of dimension `which` */
    NODE_LOAD,   /* out = memory, a run of elements */
    NODE_GATHER, /* out = memory, each element by itself */
    NODE_STORE,
    NODE_SCATTER,
    NODE_COPY, /* out = a */
    NODE_TRAP,
    NODE_LOOP
} node_kind;

/* Where a load or store goes.  Pointer-table indices are of uniform or block values. */
typedef struct access {
    uint16_t buf;
    uint8_t size;   /* bytes of an element, or of the part of a complex one */
    uint8_t offset; /* bytes from the element to that part */
    int8_t vec_dim; /* dimension along which the block runs, or -1 */
    uint8_t ndim, ncoord;
    uint8_t dim[MAX_DIMS]; /* dimensions whose loop position counts */
    uint8_t coord_dim[KILN_IR_MAX_AXES];
    uint8_t coord_step[KILN_IR_MAX_AXES]; /* 1: each element has its own coordinate, 0: one for all */
    uint32_t coord[KILN_IR_MAX_AXES];
    bool guarded, in_place; /* in_place: a contiguous run may be used where it lies */
    uint8_t guard_step, other_step, value_step;
    uint32_t guard, other;
} access;

typedef struct node {
    struct node *next;
    uint8_t kind, width, size, dtype;
    uint8_t shift; /* bit k: operand k is a block read at the current row of lanes */
    uint8_t rest;  /* CALL: bits of a length that whole vectors of the widest type leave */
    uint16_t which;
    uint32_t out, a, b, c; /* pointer-table indices */
    union {
        kiln_loop_fn fn;
        kiln_gather_fn gather;
        kiln_scatter_fn scatter;
        void (*splat)(void *, const void *, size_t);
        uint64_t bits;
        struct region *loop; /* LOOP: runs it; SPLAT: vec */
    } u;
    union {
        access *mem;
        struct region *vec;
    } x;
} node;

typedef struct list {
    node *head, *tail;
} list;

typedef struct state {
    uint8_t dtype, size;
    uint32_t init, result;           /* pointer-table indices, as are the others */
    uint32_t now, next, left, right; /* what a step reads and writes, what a merge reads */
    uint32_t at;                     /* where it stands in an entry, in units of the entry's width */
} state;

typedef struct region {
    uint8_t op, vec, grid, nstates;
    uint8_t dim;   /* launch dimension of the loop (of its last axis); a grid's outer one is dim + 1 */
    uint8_t width; /* of the states, outside lanes */
    bool direct;   /* some node writes a state itself, beyond the lanes it has too */
    bool split;    /* vec fold: body runs over whole blocks, lane over rows of lanes */
    bool merging;  /* while preparing: in the merge */
    uint8_t nslow; /* dimensions of a fold's other axes, slowest first: */
    uint8_t slow[KILN_IR_MAX_AXES];
    kiln_ir_tree tree;           /* of a fold or scan */
    list row, body, lane, merge; /* row: before the body, once for all positions along dim */
    state *states;
    uint32_t entry_units; /* bytes of one element of all states */
    uint32_t stack;       /* pointer-table index of the partial results */
    struct region *next_fold;
} region;

typedef struct home {
    uint32_t units; /* where its register starts, in elements' bytes; UINT32_MAX: it has none of its own */
    uint32_t at;    /* the same in bytes of the scratch memory; 0 without */
    uint32_t next_free;
    uint8_t wide, size;
} home;

typedef struct program {
    list pre;             /* what depends on no loop */
    region *root, *folds; /* folds, and scans by block: what keeps partial results */
    home *homes;          /* the pointer table's initial contents */
    uint32_t nhomes;
    uint32_t wide_units,
        narrow_units; /* bytes per element of all registers of a block, of all of 64 elements */
    uint32_t block;   /* elements of a block */
    size_t scratch;   /* bytes of the pointer table and all registers; partial results follow */
    int ndim;
} program;

struct kiln_interp {
    kiln_arena arena;
    const kiln_loops *loops;
    bool along;     /* see kiln_interp_new_along */
    uint32_t block; /* elements of a block, at most */
    int nnests;
    program *nest;
};

typedef struct ctx {
    const kiln_loops *loops;
    const kiln_launch *launch;
    const program *prog;
    char **ptr;            /* the pointer table */
    size_t n;              /* elements of the block being computed; 1 outside vec loops */
    size_t lanes;          /* lanes being computed */
    size_t row;            /* first element of the row of lanes within the block */
    bool silent;           /* for the total of a scan's block: nothing is stored, nothing traps */
    int64_t pos[MAX_DIMS]; /* loop positions, from 0 */
    /* what loops run over: from 0 the launch's extent, in a block of a fold its elements */
    int64_t from[MAX_DIMS], extent[MAX_DIMS];
} ctx;

static inline size_t elems_of(const ctx *c, const node *n) {
    return n->width == UNIFORM ? 1 : n->width == BLOCK ? c->n : c->lanes;
}

kiln_status kiln_interp_prepare(kiln_interp *p, const kiln_ir *ir, int nest, int begin);
/* Each returns 0 or a trap. */
int32_t kiln_interp_list(ctx *c, const node *n);
int32_t kiln_interp_fold(ctx *c, const region *r);
int32_t kiln_interp_scan(ctx *c, const region *r);
size_t kiln_interp_entries(const region *r, const int64_t *n); /* partial results kept at once, by extents */
void kiln_interp_gather(ctx *c, const node *n);
void kiln_interp_scatter(ctx *c, const node *n);

/* Where the block's first element lies, without coordinates. */
static inline char *kiln_interp_address(const ctx *c, const access *m) {
    const int64_t *stride = c->launch->stride + (ptrdiff_t)m->buf * c->prog->ndim;
    int64_t off = m->offset;
    for (int k = 0; k < m->ndim; k++) off += c->pos[m->dim[k]] * stride[m->dim[k]];
    return c->launch->ptr[m->buf] + off;
}

static inline size_t kiln_up64(size_t n) { return (n + 63) & ~(size_t)63; }
#endif
