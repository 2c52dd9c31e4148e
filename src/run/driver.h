/* driver.h - walks axes and runs one nest of a kernel over them, compiled or interpreted. */
#ifndef KILN_DRIVER_H
#define KILN_DRIVER_H
#include "infer/infer.h"
#include "ir/nests.h"
#include "run/interp.h"
#include "run/pool.h"

/* What runs: fn if not NULL, else interp. */
typedef struct kiln_runner {
    kiln_kernel_fn fn;
    const kiln_interp *interp;
    const kiln_parallel *parallel; /* NULL: one thread */
    kiln_isa isa;                  /* the level of the library's loops that may be used beside the kernel */
    uint32_t cost_ps;              /* estimate of the work for one element, in picoseconds */
    size_t work;                   /* bytes that each launch of fn needs beside its buffers */
    const kiln_memory *memory;     /* of new results; NULL: Kiln's own blocks */
    struct kiln_ctx *ctx;          /* for call */
    kiln_status (*call)(struct kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                        kiln_tensor **outs, size_t nouts); /* how steps call other operators */
} kiln_runner;

/* Runs nest `nest` over all points of the axes.  ptr: one address per buffer.  *trap: 0, or what the
 * kernel returned. */
kiln_status kiln_drive(const kiln_axes *axes, const kiln_runner *run, int nest, char *const *ptr,
                       const uint64_t *par, int32_t *trap) KILN_MUST_CHECK;

/* In how many parts the work is worth being shared out; 1: it is not. */
int64_t kiln_drive_parts(const kiln_axes *axes, const kiln_runner *run);

/* What kiln_drive comes to for a call that is not worth tiles, threads or flags: one box launched at every place of
 * the outer loops.  Made once, it serves every call with such axes. */
enum { KILN_WALK_BUFFERS = 5, KILN_WALK_OUTER = 6, KILN_WALK_DIMS = 5 };
typedef struct kiln_walk {
    kiln_axes outer; /* their grid is what is walked; it points into this struct, which must not be moved */
    int ndim;        /* of the launch, as n and stride */
    int64_t n[KILN_WALK_DIMS], stride[KILN_WALK_DIMS * KILN_WALK_BUFFERS];
    int64_t outer_n[KILN_WALK_OUTER], outer_stride[KILN_WALK_BUFFERS * KILN_WALK_OUTER];
} kiln_walk;

/* False if the axes are more than that. */
bool kiln_walk_make(const kiln_axes *axes, const kiln_runner *run, kiln_walk *out);
/* Runs the first nest of fn.  ptr: one address per buffer; used up.  work: as much as a launch needs, or NULL. */
int32_t kiln_walk_run(const kiln_walk *w, kiln_kernel_fn fn, char **ptr, const uint64_t *par, char *work);

/* parts.c: one fold shared out among threads, with the bits it has in one.  Whether the work is worth sharing and the
 * grid has too few points for that. */
bool kiln_parts_wanted(const kiln_axes *axes, const kiln_runner *run, const kiln_partial *how);
/* Runs the fold: parts of the slowest reduced axis at once, then their states merged in order.  As kiln_drive. */
kiln_status kiln_parts_run(const kiln_axes *axes, const kiln_runner *run, const kiln_partial *how,
                           char *const *ptr, const uint64_t *par) KILN_MUST_CHECK;
#endif
