/* loops.h - the interpreter's inner loops: one per primitive and dtype, per ISA level.
 *
 * Each runs over a block.  Blocks are 64-byte aligned and padded, so a loop may read and write up to the
 * next multiple of 64 elements past n.  A bool block is bytes, 0 or 1.  f16 and bf16 blocks are uint16. */
#ifndef KILN_LOOPS_H
#define KILN_LOOPS_H
#include "base/isa.h"
#include "expr/prims.h"

enum { KILN_BLOCK = 1024 }; /* elements of one block */

typedef void (*kiln_loop_fn)(void *out, const void *a, const void *b, const void *c, size_t n);
typedef void (*kiln_gather_fn)(void *block, const char *src, int64_t stride, size_t n); /* memory -> block */
typedef void (*kiln_scatter_fn)(char *dst, int64_t stride, const void *block,
                                size_t n); /* block -> memory, exactly n */

/* dst[c][r] = src[r][c]; strides are bytes from row to row, elements of a row lie side by side. */
typedef void (*kiln_transpose_fn)(char *dst, int64_t dst_stride, const char *src, int64_t src_stride,
                                  size_t rows, size_t cols);
enum { KILN_TRANSPOSE_MAX = 8 }; /* bytes of an element */

/* How elements are repeated `cols` times each: for every vector of a period, and each of its lanes, which of the elements that
 * the period uses up is there.  No period: vectors of one element each. */
typedef struct kiln_expansion {
    _Alignas(64) unsigned char lanes[64][64]; /* as elements of the size at hand */
    unsigned cols, period, rows;              /* rows: elements that a period uses up */
} kiln_expansion;
typedef void (*kiln_expand_prepare_fn)(kiln_expansion *e, size_t cols);
/* n elements of dst, up to a vector more, from src, which must be readable a vector beyond. */
typedef void (*kiln_expand_fn)(char *dst, const char *src, size_t n, const kiln_expansion *e);

typedef struct kiln_loops {
    kiln_loop_fn prim[KILN_PRIM_COUNT][KILN_DTYPE_COUNT]; /* by operand type; NULL where prims.def has none */
    kiln_loop_fn cast[KILN_DTYPE_COUNT][KILN_DTYPE_COUNT]; /* [to][from] */
    kiln_gather_fn gather[KILN_DTYPE_COUNT];               /* bool: any nonzero byte becomes 1 */
    kiln_scatter_fn scatter[KILN_DTYPE_COUNT];
    void (*splat[KILN_DTYPE_COUNT])(void *block, const void *value, size_t n);
    kiln_transpose_fn transpose[KILN_TRANSPOSE_MAX + 1]; /* by bytes of an element: 1, 2, 4, 8 */
    kiln_expand_prepare_fn expand_prepare[KILN_TRANSPOSE_MAX + 1];
    kiln_expand_fn expand[KILN_TRANSPOSE_MAX + 1];
} kiln_loops;

const kiln_loops *kiln_loops_for(kiln_isa isa); /* the best table the machine runs at or below isa */
#endif
