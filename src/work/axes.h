/* axes.h - the dimensions of a work, as drivers see them: extents, and the bytes from place to place of every buffer.
 *
 * Extents and strides are behind pointers, so that a part of a threaded call, or a launch that is kept, is a small struct of
 * its own over the same tables. */
#ifndef KILN_AXES_H
#define KILN_AXES_H
#include "base/base.h"

enum {
    KILN_MAX_DIMS = KILN_MAX_RANK,
    KILN_KERNEL_BUFFERS = 24 /* tensors that a kernel reads and writes, at most */
};

/* What a dimension is to the kernel.  The grid comes first, then the others in the order of the kernel's axes. */
typedef enum kiln_role {
    KILN_ROLE_GRID, /* points in any order: the driver picks two for a launch and walks the rest, but launches have all of those
                        * that are indexed */
    KILN_ROLE_REDUCED,  /* folded within one launch, slowest first */
    KILN_ROLE_SCANNED,  /* walked in order within one launch; results have it too */
    KILN_ROLE_COMPUTED, /* measures a buffer whose places are computed; not walked */
    KILN_ROLE_PARTS /* partial folds, of which there is one, or more in the kernel of parts; blocks of a scan */
} kiln_role;
#define KILN_ROLE_NAMES \
    { "grid", "reduced", "scanned", "computed", "parts" } /* ORDER: kiln_role */

/* Counts and flags of the axes: what a work keeps of them beside its tables. */
#define KILN_AXES_COUNTS                                                                                    \
    int ndim, ngrid; /* the grid's dimensions are the first, innermost first; there is at least one */      \
    int nbuffers, nwritten; /* of the kernel; it writes the first nwritten */                               \
    int pitch;              /* from one buffer's strides to the next one's */                               \
    int vector;             /* the dimension whose places are lanes of the kernel's vectors */              \
    bool strided;           /* some buffer is neither contiguous nor broadcast along the vector axis */     \
    bool triangle; /* of the grid's two dimensions, only places right of the diagonal (src/run/driver.c) */ \
    uint8_t                                                                                                 \
        nindexed; /* dimensions behind the grid's that threads share too: the kernel knows the position  \
                       * along each (`grid indexed` in docs/IR.md) */  \
    uint32_t columns; /* bit b: buffer b has one element for each of many short rows */                     \
    uint32_t                                                                                                \
        turned; /* bit b: buffer b lies along the dimension that is folded, and the kernel expects the  \
                             * buffer along the grid's first */   \
    int64_t npoints; /* of the grid, computed dimensions included */                                        \
    int64_t nelem    /* of all dimensions */
typedef struct kiln_axes_counts {
    KILN_AXES_COUNTS;
} kiln_axes_counts;

/* Loops without what they compute: all that the driver knows of a call. */
typedef struct kiln_axes {
    union {
        kiln_axes_counts counts;
        struct {
            KILN_AXES_COUNTS;
        };
    };
    const int64_t *n, *stride; /* stride[buffer * pitch + dimension], in bytes */
    const int64_t *origin;     /* first place in each dimension beyond the grid; NULL: zeros */
    const uint8_t *bytes;      /* of an element of each buffer */
} kiln_axes;

static inline int64_t kiln_axes_stride(const kiln_axes *x, int buffer, int dim) {
    return x->stride[buffer * x->pitch + dim];
}
#endif
