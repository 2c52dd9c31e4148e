/* emit_impl.h - what the files of the emitter share: the emitter, and who prints what.
 *
 *   emit_c.c      the whole text: fragments of src/math, types, nests, entry point
 *   emit_value.c  values: names, literals, primitives, casts
 *   emit_map.c    element-wise nests over one grid axis, in the form that is fastest for them
 *   emit_columns.c  these, where short rows lie beside a column
 *   emit_plan.c   for all other nests: where regions end, which vector loops become strips
 *   emit_mem.c    their loads and stores
 *   emit_loop.c   their loops and scans
 *   emit_fold.c   folds; emit_lanes.c folds that are the vector loop
 *   emit_choice.c  steps of folds that look for the greatest element
 *   emit_strip.c  vector loops with loops inside
 *   emit_block.c  blocks of rows of folds in these
 *   emit_fetch.c  what asks memory for what such nests read next
 *   emit_tile.c   those with a scan inside, over rows that lie apart
 *
 * In a general nest every value is a vector of KILN_W lanes.  Outside vector loops all lanes are the same; inside, lane
 * l stands for the l-th of KILN_W positions along the vector axis, of which the first k are elements. */
#ifndef KILN_EMIT_IMPL_H
#define KILN_EMIT_IMPL_H
#include "target/cpu/emit.h"
#include "target/cpu/tuning.h"
#include "kiln/kiln_abi.h"

enum {
    KILN_EM_MAX_NAMES = 1536, /* as many as src/math can have */
    KILN_EM_NAME = 32,
    KILN_EM_LEVELS = 61 /* of a counter's stack: no loop counts further than 2^60 blocks */
};
#define KILN_EM_NONE UINT32_MAX
#define KILN_EM_PRINTF(a, b) __attribute__((format(printf, a, b)))

/* Where the text stands along an axis, in C expressions that count from the launch's first point. */
typedef struct kiln_em_place {
    char pos[24];   /* the innermost loop's position, */
    int after;      /* so many elements after that of the first of the steps printed in a row */
    char row[16];   /* of a grid axis: the outer loop's */
    char begin[16]; /* where loops over the axis begin: at 0, or with a block */
    char end[16];   /* where they end */
} kiln_em_place;

typedef struct kiln_emitter {
    const kiln_ir *ir;
    kiln_isa isa;
    int lanes;                   /* KILN_W */
    int number;                  /* of the kernel in its unit, from 0 */
    kiln_sb body;                /* nests and entry points */
    char (*names)[KILN_EM_NAME]; /* math functions used */
    int nnames;
    bool overflow; /* too many names */
    uint8_t *mask; /* per value: bits per lane if it is a bool */
    int truth;     /* bits per lane of states that are bools */
    uint8_t *
        early; /* per value of an element-wise nest: not 0 if it is the same along a row and computed before it */
    bool
        second; /* of two vectors that such a nest takes at once, the second is being printed: its values are u<r> */
    bool of_rows; /* of many rows, a row to a lane, what is the same along each is being printed: y<r> */
    kiln_ref
        plain; /* the choice of a fold's step that is being printed for elements without a NaN (emit_choice.c); 0: none */
    bool far;   /* whole vectors are being loaded from beyond the first cache */
    bool loose; /* such a nest's lanes are in the order in which complex elements need the fewest shuffles */
    int indent; /* in spaces */

    /* general nests */
    uint32_t *part_end;              /* per FOR, FOLD, SCAN: the MERGE or END that ends its first region */
    uint32_t *region_end;            /* per FOR, FOLD, SCAN: its END */
    int dim[KILN_IR_MAX_AXES], ndim; /* launch dimensions */
    kiln_em_place at[KILN_IR_MAX_AXES];
    int vec;       /* axis along which the lanes lie, or -1 */
    int inner;     /* axis of the innermost loop, or -1 */
    kiln_ref fold; /* the innermost fold or scan around */
    int bypass; /* the loop whose stores may go past the caches, or 0: no loop inside another is the first */
    int nest;   /* its outermost loop */
    kiln_ref pass[KILN_IR_MAX_NEST]; /* scans by block around: they store in their second pass only */
    int npass;

    /* strips */
    uint32_t *segment; /* per instruction in a strip: the loop over columns it stands in; 0: in none */
    uint32_t *work_at; /* per value, fold or scan: where a strip keeps it in the work, or KILN_EM_NONE */
    uint32_t *loaded;  /* per value: the last segment printed that loaded it from there */
    uint32_t nloads;   /* segments printed */
    kiln_ref strip;    /* the vector loop that is being printed as strips */
    size_t work;       /* bytes of work that a launch needs */

    uint8_t *before; /* per value made before such a scan: see emit_tile.c */
    uint32_t *tiles; /* per vector loop: the scan in it whose elements go through tiles, or 0 */
    kiln_ref tiled;  /* the scan whose steps are being printed so, or 0: no nest begins with one */
    int tile;        /* of which vector of lanes this step is */
} kiln_emitter;

/* What changes inside a loop, to be put back after it. */
typedef struct kiln_em_scope {
    kiln_em_place at;
    int vec, inner, axis;
    kiln_ref fold;
} kiln_em_scope;

/* New states for some lanes only: `all` says whether for all of them, else the first `count` are new and the others
 * those of `rest`.  C expressions. */
typedef struct kiln_em_only {
    const char *all, *count, *rest;
} kiln_em_only;

/* emit_value.c: text */
void kiln_em_put(kiln_emitter *em, const char *fmt, ...) KILN_EM_PRINTF(2, 3);
void kiln_em_start(kiln_emitter *em);                                           /* indentation */
void kiln_em_line(kiln_emitter *em, const char *fmt, ...) KILN_EM_PRINTF(2, 3); /* a whole line */
void kiln_em_open(kiln_emitter *em, const char *fmt, ...) KILN_EM_PRINTF(2, 3); /* a line that ends with { */
void kiln_em_brace(kiln_emitter *em);                                           /* { alone */
void kiln_em_open_nest(kiln_emitter *em, int nest);                             /* the head of its function */
void kiln_em_close(kiln_emitter *em);
void kiln_em_fn(kiln_emitter *em, const char *fmt, ...)
    KILN_EM_PRINTF(2, 3); /* a function of src/math, which the text then holds */
/* emit_value.c: values */
int kiln_em_bits(kiln_dtype t);
const char *kiln_em_kept(
    kiln_dtype t); /* the vector that holds a t in memory of the kernel's own: v + this */
const char *kiln_em_kept_state(const kiln_emitter *em, kiln_dtype t); /* the same of a state */
void kiln_em_masks(kiln_emitter *em);                                 /* fills em->mask, sets em->truth */
void kiln_em_declare(kiln_emitter *em, kiln_ref r);                   /* "const TYPE t<r> = " */
bool kiln_em_is_of_rows(const kiln_emitter *em,
                        kiln_ref r); /* it is the same along a row, and not in all rows */
void kiln_em_use(kiln_emitter *em, kiln_ref r, int bits); /* t<r>; a bool as a mask of `bits` per lane */
bool kiln_em_is_shared(
    const kiln_emitter *em,
    kiln_ref r); /* two vectors at once have one value for both, as it is the same along a row */
bool kiln_em_has_two(const kiln_emitter *em, kiln_ref r); /* src/math has a function for r of two vectors */
void kiln_em_two(kiln_emitter *em, kiln_ref r);           /* a line that calls it: t<r> and u<r> */
bool kiln_em_value(kiln_emitter *em, kiln_ref r); /* a line for CONST, PAR, PRIM or CAST; false: r is none */
void kiln_em_trap(kiln_emitter *em, const kiln_ir_ins *in, const char *lanes);
void kiln_em_read_par(kiln_emitter *em, int par);                /* before the loops */
bool kiln_em_stores_wait(const kiln_ir *ir, int begin, int end); /* for all other instructions of a region */

/* emit_map.c */
bool kiln_em_is_map(const kiln_ir *ir, int begin);
void kiln_em_map_nest(kiln_emitter *em, int nest, int begin);
void kiln_em_stream_end(kiln_emitter *em); /* at the end of a nest: what it wrote past the caches is seen */

/* emit_plan.c */
kiln_status kiln_em_plan(kiln_emitter *em, kiln_arena *scratch) KILN_MUST_CHECK;
bool kiln_em_has_loops(const kiln_emitter *em, int begin); /* in the first region */
/* What instructions cost a compiler, so that heavy ones are not printed many times. */
bool kiln_em_is_only_fold(const kiln_emitter *em,
                          int begin); /* of the kernel: no other one reads what it reads */
int kiln_em_weight(const kiln_emitter *em, int begin, int end);
bool kiln_em_has_functions(const kiln_emitter *em, int begin, int end); /* elementary ones, as exp */
bool kiln_em_loads_far(const kiln_emitter *em,
                       kiln_dtype t); /* load_far_<t> is what loads such a vector now */

/* Whether r asks which lane, if any, of a vector loop stands at a place that is the same for all: 32 bits are enough for
 * that. */
bool kiln_em_is_place_test(const kiln_ir *ir, kiln_ref r);
/* Whether r asks which row a loop over rows, or a fold down columns, stands at: all lanes have the same answer. */
bool kiln_em_is_row_test(const kiln_ir *ir, kiln_ref r);
/* Whether r is a position, or the number of a row, that nothing but such tests asks for. */
bool kiln_em_is_only_tested(const kiln_ir *ir, kiln_ref r);

/* emit_mem.c */
void kiln_em_address(kiln_emitter *em, const kiln_ir_ins *in,
                     int offset); /* of the first lane, `offset` bytes into the element */
void kiln_em_load(kiln_emitter *em, kiln_ref r);
void kiln_em_store(kiln_emitter *em, kiln_ref r);
/* Whether instructions begin..end store, along a vector axis, and all of it may go past the caches. */
bool kiln_em_stores_bypass(const kiln_emitter *em, int begin, int end, int axis);
/* Declares bypass<id>: whether it does, as the launch asks, since all that is stored from `from` on lies on vectors'
 * borders. */
void kiln_em_ask_for_borders(kiln_emitter *em, int id, int begin, int end, const char *from);

/* emit_loop.c */
void kiln_em_loop_nest(kiln_emitter *em, int nest, int begin);
void kiln_em_instruction(kiln_emitter *em, kiln_ref r);  /* one that opens no region */
void kiln_em_part(kiln_emitter *em, int begin, int end); /* instructions of a region, its yield aside */
void kiln_em_loop(kiln_emitter *em, int begin);
kiln_em_scope kiln_em_enter(kiln_emitter *em, int axis, const char *fmt, ...)
    KILN_EM_PRINTF(3, 4); /* its position is this from now on */
void kiln_em_leave(kiln_emitter *em, const kiln_em_scope *old);
/* A vector loop from one position to another, which counts i<begin> and says in k how many lanes are elements: all in one
 * loop, or what is light printed twice, whole vectors first, which ask for no number of lanes. */
typedef enum kiln_em_lanes { KILN_EM_ALL, KILN_EM_WHOLE, KILN_EM_REST } kiln_em_lanes;
bool kiln_em_is_light(const kiln_emitter *em, int begin, int end); /* instructions begin..end */
void kiln_em_open_columns(kiln_emitter *em, int begin, const char *from, const char *to, kiln_em_lanes lanes,
                          int weight);             /* of what stands in it */
void kiln_em_unroll(kiln_emitter *em, int weight); /* the loop that is printed next, if its body is little */
void kiln_em_close_columns(kiln_emitter *em, kiln_em_lanes lanes);

void kiln_em_scan_steps(kiln_emitter *em, int begin, const char *from,
                        const char *to); /* one after the other, on the states in a<begin> */

/* emit_fold.c */
void kiln_em_fold(kiln_emitter *em, int begin);
void kiln_em_states_type(kiln_emitter *em, int begin);
size_t kiln_em_states_size(const kiln_emitter *em, int begin); /* of that type */
void kiln_em_states(kiln_emitter *em, int begin, const char *fmt, ...)
    KILN_EM_PRINTF(3, 4); /* "... = {initial states};" */
void kiln_em_yield(kiln_emitter *em, int yield, const char *to, const kiln_em_only *only);
void kiln_em_merge(kiln_emitter *em, int begin, const char *left, const char *right, const char *to,
                   const kiln_em_only *only);
void kiln_em_merge_part(kiln_emitter *em, int begin, const char *to,
                        const kiln_em_only *only);                              /* of l<begin> and r<begin> */
void kiln_em_open_blocks(kiln_emitter *em, int begin, const kiln_em_place *at); /* lo<begin> to hi<begin> */
void kiln_em_block_by_elements(kiln_emitter *em, int begin);                    /* sets x<begin> */
/* Loops over all axes but the last; total<begin> is how many runs there are. */
void kiln_em_open_runs(kiln_emitter *em, int begin, kiln_em_scope *old);
void kiln_em_close_runs(kiln_emitter *em, int begin, const kiln_em_scope *old);
kiln_em_scope kiln_em_enter_block(kiln_emitter *em, int begin);

/* emit_lanes.c */
void kiln_em_block_by_lanes(kiln_emitter *em, int begin);

/* emit_choice.c */
/* Steps that a loop takes together, an even number of them: what enters the j-th, and what prints all. */
typedef struct kiln_em_steps {
    int n;
    kiln_em_scope (*enter)(kiln_emitter *em, const void *of, int j);
    void (*print)(kiln_emitter *em, const void *of);
    const void *of;
} kiln_em_steps;
kiln_ref kiln_em_choice_of(const kiln_emitter *em, int begin);
bool kiln_em_plain_choice(kiln_emitter *em,
                          kiln_ref r); /* a line for r, if em->plain is printed and r is of it */
void kiln_em_without_nan(
    kiln_emitter *em, int begin, kiln_ref choice,
    const kiln_em_steps *steps); /* printed twice, the second time for elements that are none */

/* emit_strip.c */
void kiln_em_strips(kiln_emitter *em, int begin);
bool kiln_em_strip_bypasses(const kiln_emitter *em,
                            int r); /* r stores in a strip, and may do so past the caches */
/* Where a strip keeps the states of a fold or scan, if it does. */
bool kiln_em_kept_states(const kiln_emitter *em, kiln_ref r, char text[112]);

/* emit_block.c: of a fold down columns */
int kiln_em_whole_blocks(
    const kiln_emitter *em,
    int begin); /* how often a block may be printed so; the more often, the lighter it is (0 to 3) */
void kiln_em_block_in_registers(kiln_emitter *em, int begin, bool whole); /* sets x<begin> */

/* emit_fetch.c: of a vector loop after folds over the rows that it reads */
/* Whether it asks for the next row of an input, which the folds of that row read first. */
bool kiln_em_is_finish(const kiln_emitter *em, int begin);
/* Whether it asks for any row: the next one of the nest, or of a loop around it. */
bool kiln_em_has_next_rows(const kiln_emitter *em, int begin);
void kiln_em_fetch_next_rows(kiln_emitter *em, int begin);
/* emit_fetch.c: of a fold along rows of `lanes` elements, if it has several runs */
void kiln_em_fetch_next_run(kiln_emitter *em, int begin, int lanes);
/* emit_fetch.c: of a fold down columns */
bool kiln_em_only_reads(const kiln_emitter *em, int begin); /* one input, and does little else */
void kiln_em_ask_how_rows_lie(kiln_emitter *em, int begin); /* before its blocks */
void kiln_em_fetch_next_block(kiln_emitter *em, int begin); /* at each vector of columns */

/* emit_tile.c */
int kiln_em_tiled_scan_of(kiln_emitter *em, int loop); /* the scan in a vector loop that tiles suit, or 0 */
void kiln_em_tiled_loop(kiln_emitter *em, int loop, int scan); /* the whole of that loop */
void kiln_em_tile_load(kiln_emitter *em, kiln_ref r);          /* in a step */
void kiln_em_tile_store(kiln_emitter *em, kiln_ref r);
#endif
