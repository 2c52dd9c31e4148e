/* interp_prep.h - what the parts of preparing share: interp_live.c says when values are read for the last
 * time, interp_nodes.c gives them registers and places in lists, interp_prep.c says what computes them. */
#ifndef KILN_INTERP_PREP_H
#define KILN_INTERP_PREP_H
#include "run/interp_impl.h"

#define NONE UINT32_MAX

typedef struct value {
    uint32_t part;        /* opener (or MERGE) of the region part it stands in */
    uint32_t end;         /* openers and merges: the END of their region */
    uint32_t last;        /* instruction after which nobody reads it; 0: nobody does */
    uint32_t dying, next; /* head of the list of values with last == this one; its next */
    uint32_t ptr, splat;  /* pointer-table indices */
    uint32_t reg;         /* what goes back after last; ptr unless a load may stay in place */
    const region *splat_for;
    region *region; /* folds and scans */
    uint8_t width, rank;
    bool owned, owned_splat; /* the register goes back after last */
    bool late;               /* runs after the rest of its region: lanes of a vec fold, stores */
    bool lane;               /* depends on the state of a vec fold */
    uint8_t direct;          /* yields: 1 + the state it may be written to at once, 0: none */
} value;

typedef struct prep {
    kiln_arena *arena;
    const kiln_loops *loops;
    const kiln_ir *ir;
    bool along; /* see kiln_interp_new_along */
    program *g;
    value *v;
    region *stack[KILN_IR_MAX_NEST];
    int depth;
    const region *vec; /* the vector loop open here, or NULL */
    uint8_t dim_of[KILN_IR_MAX_AXES];
    uint32_t free_registers[2][4]; /* by width and size */
    node sink;                     /* what is written to once memory is out */
    access sink_access;
    bool nomem;
} prep;

/* Ranks: 0 is the nest's `pre`; for a loop at level k, 1 + 3k is its `row`, 2 + 3k its body, 3 + 3k its
 * lanes or its merge. */
enum { PART_ROW = 1, PART_BODY = 2, PART_LANE = 3 };

static inline int here(const prep *q) { return q->depth - 1; }
static inline int rank_at(int level, int part) { return level * 3 + part; }
static inline uint8_t size_of(int t) { return (uint8_t)kiln_dtype_size((kiln_dtype)t); }

/* From the arena, zero-filled; `otherwise` where there is no memory, which is noted. */
void *kiln_prep_take(prep *q, size_t nbytes, void *otherwise);
uint32_t kiln_prep_home(prep *q);                      /* a pointer without a register */
uint32_t kiln_prep_register(prep *q, int w, int size); /* one of its own */
uint32_t kiln_prep_shared(prep *q, int w, int size);   /* one that is free here */
void kiln_prep_dies(prep *q, uint32_t r);              /* value r goes when its last reader has run */
void kiln_prep_bury(prep *q, uint32_t i);              /* gives back what nobody reads after instruction i */
node *kiln_prep_node(prep *q, int rank, node_kind kind, int w);
/* A node that computes instruction i, with a register for its value. */
node *kiln_prep_make(prep *q, int i, node_kind kind, int w, int rank);
/* Value r in that width: itself, or a splat made where r is. */
uint32_t kiln_prep_as_width(prep *q, kiln_ref r, int w);

/* Fills part, end, last, late, lane and direct for the nest that starts at begin. */
void kiln_interp_live(prep *q, int begin);
/* The index of the MERGE or END that ends the first part of the region opened at open; *flat: no loop
 * stands in it. */
int kiln_interp_part_end(const prep *q, int open, bool *flat);
#endif
