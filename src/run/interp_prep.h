/* interp_prep.h - what the two halves of preparing share: interp_live.c says when values are read for the
 * last time, interp_prep.c makes nodes and registers of them. */
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

static inline bool opens(const kiln_ir_ins *ins) {
    return ins->op == KILN_IR_FOR || ins->op == KILN_IR_FOLD || ins->op == KILN_IR_SCAN;
}

/* Fills part, end, last, late, lane and direct for the nest that starts at begin. */
void kiln_interp_live(prep *q, int begin);
/* The index of the MERGE or END that ends the first part of the region opened at open; *flat: no loop
 * stands in it. */
int kiln_interp_part_end(const prep *q, int open, bool *flat);
#endif
