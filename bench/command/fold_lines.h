/* fold_lines.h - lines of bench/folds.txt as calls: over which elements, of which shape and dtype. */
#ifndef KILN_COMMAND_FOLD_LINES_H
#define KILN_COMMAND_FOLD_LINES_H
#include "bench.h"

typedef struct fold_shape {
    const int64_t *sizes;
    int rank, dim; /* dim -1: over all elements */
} fold_shape;

extern const char bench_folds_text[]; /* the list, for bench_line_next */

/* *out: the call of that line on that shape, with `dtype` where the line says f32.  False where there is none: some
 * operators have no form over all elements. */
bool fold_line_call(const bench_line *line, const fold_shape *shape, kiln_dtype dtype, bench_line *out);
#endif
