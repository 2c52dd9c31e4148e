/* kiln_abi.h - what a compiled kernel and the library agree on.
 *
 * The emitter repeats this file's struct in every kernel (without includes), the driver fills it,
 * the interpreter reads the same one: a kernel and the interpreter are interchangeable.
 * Any change here raises KILN_ABI_VERSION, which is part of every class key. */
#ifndef KILN_ABI_H
#define KILN_ABI_H
#include <stdint.h>

#define KILN_ABI_VERSION 2

/* One run of one nest of a kernel over a box of its points.
 * Dimension order: a nest's axes in the order the kernel declares them; a grid axis takes two
 * dimensions, the inner one (n0) first.  Strides are in bytes and may be zero or negative. */
typedef struct kiln_launch {
    int32_t nest;          /* which top-level nest to run, from 0 */
    int32_t ndim;          /* dimensions of this box: the length of n */
    const int64_t *n;      /* extent of each dimension, all >= 0 */
    char *const *ptr;      /* one base address per buffer, in the kernel's order */
    const int64_t *stride; /* stride[b * ndim + d]: bytes per step of dimension d in buffer b */
    const int64_t *origin; /* origin[d]: index of the box's first point (for `index`) */
    const uint64_t *par;   /* scalars, 8 bytes each, already in their compute type */
    char *work;            /* memory that a compiled kernel asked for, at a multiple of 64, or null;
                            * kiln_interp_kernel finds the program here that it interprets */
    uint64_t flags;        /* KILN_LAUNCH_* */
} kiln_launch;

/* The buffers together are too large for a cache, and no input begins where a result does: results are best
 * written past the caches. */
#define KILN_LAUNCH_STREAM 1u
/* The same thread launches again before anyone reads: no need to wait for what was written past the caches. */
#define KILN_LAUNCH_MORE 2u
/* What a fold reads is more than the first cache holds: the next row is best asked for while one is at hand. */
#define KILN_LAUNCH_FAR 4u
/* What is read comes from memory, or from the cache before it. */
#define KILN_LAUNCH_MEMORY 8u

/* 0, or KILN_TRAP_BASE + the ordinal of the trap that fired.  Traps live in nests that write
 * nothing, so a trapped call leaves its outputs untouched. */
typedef int32_t (*kiln_kernel_fn)(const kiln_launch *);

#define KILN_TRAP_BASE 1000
#define KILN_KERNEL_SYMBOL "kiln_kernel"
#endif
