/* driver.h - walks axes and runs one nest of a kernel over them, compiled or interpreted. */
#ifndef KILN_DRIVER_H
#define KILN_DRIVER_H
#include "ir/nests.h"
#include "run/interp.h"
#include "run/pool.h"
#include "target/cpu/tuning.h"
#include "tensor/tensor.h"
#include "work/work.h"

/* Buffers of a kernel: tensors, and what folds by parts and scans by blocks keep beside them. */
enum { KILN_DRIVE_BUFFERS = KILN_KERNEL_BUFFERS + 2 * KILN_IR_MAX_STATES + 1 };

/* What an element of a class costs, in picoseconds: estimated, then measured where a call has so many elements that the
 * clock costs nothing beside them.  By who runs it, and by whether so many elements fit in caches near or far. */
enum { KILN_BY_INTERP, KILN_BY_KERNEL, KILN_COST_TIERS };
enum { KILN_COST_SIZES = 3 };
typedef struct kiln_cost {
    _Atomic uint32_t ps[KILN_COST_TIERS][KILN_COST_SIZES]; /* with KILN_COST_GUESS: not yet measured */
} kiln_cost;
#define KILN_COST_GUESS (UINT32_C(1) << 31)

/* What runs: fn if not NULL, else interp. */
typedef struct kiln_runner {
    kiln_kernel_fn fn;
    const kiln_interp *interp;
    const kiln_interp *across; /* interp's program for short rows, folded side by side (turned.c); or NULL */
    const kiln_parallel *parallel; /* NULL: one thread */
    kiln_isa isa;              /* the highest level of loops.h that the driver may use for its own copies */
    kiln_cost *cost;           /* of the class; NULL if `parallel` is NULL */
    size_t work;               /* bytes that each launch of fn needs beside its buffers */
    int guards;                /* nests before that one only look for traps: results may not be there yet */
    const kiln_memory *memory; /* of new results; NULL: Kiln's own blocks */
    /* How steps call other operators: args are values by position, whose names `call` knows; outs is room for s->u.call.nrets
     * results. */
    kiln_status (*call)(void *caller, const kiln_work *w, const kiln_step *s, kiln_value *args,
                        kiln_tensor **outs);
    void *caller;
} kiln_runner;

/* Runs nest `nest` over all points of the axes.  ptr: one address per buffer.  *trap: 0, or what the
 * kernel returned. */
kiln_status kiln_drive(const kiln_axes *axes, const kiln_runner *run, int nest, char *const *ptr,
                       const uint64_t *par, int32_t *trap) KILN_MUST_CHECK;

/* A nest of a kernel over axes, wherever the buffers are. */
typedef struct kiln_pass {
    const kiln_axes *axes;
    const kiln_runner *run;
    const uint64_t *par;
    uint64_t flags; /* of every launch */
    int nest;
} kiln_pass;

/* kiln_drive by this thread alone. */
kiln_status kiln_drive_alone(const kiln_pass *pass, char *const *ptr, int32_t *trap) KILN_MUST_CHECK;
/* KILN_LAUNCH_* of a call, by how much it reads and writes: more than the first cache holds, more than the second does, and more
 * than a core's share of all, whose results are better written past the caches: several cores gain by that in larger calls alone, as each
 * has its part of the last cache nearer.  Smaller calls have none of the latter two. */
uint64_t kiln_drive_flags(const kiln_axes *axes, int threads, char *const *ptr);
#define KILN_MEMORY_LEAST \
    (KILN_CPU_STREAM_BYTES / (16 * KILN_KERNEL_BUFFERS)) /* elements that can be so many bytes */

enum {
    KILN_DRIVE_SERIAL = KILN_CPU_SERIAL
}; /* elements of a flat call up to which it is one launch, and needs no driver */

/* Moves `at` to the next place in the grid, but for two dimensions of it; false when all have been visited. */
bool kiln_drive_advance(const kiln_axes *axes, int first, int second, int64_t *index, char **at);

/* rows.c: runs a call of many short rows by taking rows together.  False: nothing was done.  The call has no such
 * rows, or a kernel takes them together by itself, or they cannot be taken together. */
bool kiln_rows_run(const kiln_pass *pass, char *const *ptr, int32_t *trap, kiln_status *st);
bool kiln_rows_need_tiles(
    const kiln_axes *axes,
    bool compiled); /* whether kiln_rows_run is needed, for a kernel or the interpreter */
/* A quick test for the many calls without short rows.  False: kiln_rows_run would return false. */
static inline bool kiln_rows_may_be_short(const kiln_axes *x) {
    return (x->ngrid > 1 && x->n[1] >= KILN_CPU_MANY_ROWS) || x->columns;
}

/* turned.c: folds many short rows, each row separately. */
kiln_status kiln_turned_run(const kiln_pass *pass, char *const *ptr, int32_t *trap) KILN_MUST_CHECK;

/* For the interpreter alone.  A kernel folds few or long rows one by one, by vectors.  The interpreter would go through all its
 * instructions for each such row; with turned buffers it folds the rows side by side.  Bit b of the result: buffer b is to be
 * turned.  0: none is. */
uint32_t kiln_turned_by_interp(const kiln_axes *axes);

/* A triangle without its first `row` rows is a smaller triangle.  Returns the bytes from the start of buffer b to the place
 * where buffer b starts for the smaller triangle. */
int64_t kiln_drive_triangle_from(const kiln_axes *axes, int b, int64_t row);

/* -- split.c: several threads, and what calls cost ------------------------------------------------------- */

/* In how many parts, and among how many threads, the work is worth being shared out now; 1: it is not. */
int64_t kiln_drive_parts(const kiln_axes *axes, const kiln_runner *run, int *threads);
/* Whether such calls may want several threads, now or when they have been timed: they take at least so long. */
bool kiln_may_be_shared(const kiln_axes *axes, const kiln_runner *run, uint64_t least_ns);
void kiln_cost_guess(kiln_cost *cost, uint64_t interp_ps, uint64_t kernel_ps);
/* n elements took one thread, or several together, so long. */
void kiln_cost_learn(kiln_cost *cost, int tier, int64_t n, int64_t took_ns);
/* What n elements cost, in picoseconds; false: by a guess. */
bool kiln_cost_of(const kiln_cost *cost, int tier, int64_t n, uint64_t *ps);

/* segments.c: one kernel over many runs of elements, each of tensors of its own: the items of lists.  Elements of a segment
 * follow each other in every buffer, or are one for all. */
enum { KILN_SEGMENT_BUFFERS = 12 };
typedef struct kiln_segment {
    int64_t n, start; /* elements; how many all segments before it have */
    const uint64_t *par;
    char *ptr[KILN_SEGMENT_BUFFERS];
} kiln_segment;

/* Runs the kernel's one nest over all of them, by as many threads as the whole is worth, and only one where order counts.
 * axes: one dimension, as long as all segments together.  *trap: as kiln_drive's. */
kiln_status kiln_segments_run(const kiln_axes *axes, const kiln_runner *run, const kiln_segment *segment,
                              size_t nsegments, bool ordered, int32_t *trap) KILN_MUST_CHECK;

/* The launches of a small call that runs on one thread, kept for later calls with the same axes.  Most calls are
 * one box that is launched at every place of the outer loops.  A call that needs tiles (for short rows, rows that
 * are turned, or transposed inputs) keeps all its axes, and kiln_drive_alone runs it. */
enum { KILN_WALK_BUFFERS = 20, KILN_WALK_OUTER = 6, KILN_WALK_DIMS = 6 };
typedef struct kiln_walk {
    kiln_axes outer; /* the outer loops; its pointers point into this struct, so do not move the struct */
    bool whole;      /* `outer` has all axes; kiln_drive_alone runs them, with the fields down to guards */
    const kiln_interp *interp, *across; /* of a `whole` walk; interp is NULL: kiln_walk_run's fn runs */
    kiln_isa isa;
    size_t work;
    int guards;
    uint64_t flags; /* of every launch */
    uint8_t bytes[KILN_WALK_BUFFERS];
    int ndim; /* of the launch, as n and stride */
    int64_t n[KILN_WALK_DIMS], stride[KILN_WALK_DIMS * KILN_WALK_BUFFERS];
    int64_t outer_n[KILN_WALK_OUTER], outer_stride[KILN_WALK_BUFFERS * KILN_WALK_OUTER];
} kiln_walk;

/* False if the call cannot be kept: too many buffers or dimensions, no elements or too many, a triangle, or work for several
 * threads. */
bool kiln_walk_make(const kiln_axes *axes, const kiln_runner *run, kiln_walk *out);
/* Runs a nest of fn.  ptr: one address per buffer; used up.  work: as much as a launch needs, or NULL. */
int32_t kiln_walk_run(const kiln_walk *w, kiln_kernel_fn fn, int nest, char **ptr, const uint64_t *par,
                      char *work);

/* parts.c: one fold shared out among threads, with the bits it has in one.  Whether the work is worth sharing and the
 * grid has too few points for that. */
bool kiln_parts_wanted(const kiln_axes *axes, const kiln_runner *run, const kiln_partial *how);
/* Runs the fold: parts of the slowest reduced axis at once, then their states merged in order.  As kiln_drive. */
kiln_status kiln_parts_run(const kiln_axes *axes, const kiln_runner *run, const kiln_partial *how,
                           char *const *ptr, const uint64_t *par) KILN_MUST_CHECK;

/* scan_blocks.c: scans few long rows by blocks, by as many threads as are worth it.  As kiln_drive. */
kiln_status kiln_blocks_run(const kiln_axes *axes, const kiln_runner *run, const kiln_blocks *how,
                            char *const *ptr, const uint64_t *par) KILN_MUST_CHECK;
#endif
