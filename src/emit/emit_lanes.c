/* emit_lanes.c - a block of a fold that is the vector loop: the lanes of its tree are lanes of vectors.
 *
 * Rows of as many elements as the tree has lanes are taken with one step per vector, printed one after the other on
 * states in registers where the step has no loops and the vectors are few.  What is left of a block, and everything else,
 * goes vector by vector through an array.  Then lanes are merged pairwise, by whole vectors first and by lanes moved
 * down within one at last; lanes without an element keep what they have. */
#include <stdio.h>

#include "emit/emit_impl.h"

enum { MAX_PRINTED = 8 }; /* steps printed one after the other */

typedef struct rows {
    int begin;
    int lanes;   /* of the tree */
    int width;   /* lanes of a vector that are in use */
    int vectors; /* of a row */
} rows;

static rows rows_of(const kiln_emitter *em, int begin) {
    rows r = {begin, (int)em->ir->ins[begin].imm.tree.lanes, em->lanes, 1};
    if (r.lanes < r.width) r.width = r.lanes;
    r.vectors = r.lanes / r.width;
    return r;
}

/* One step on the states `of`, of the elements from `pos` on; k says how many. */
static void step(kiln_emitter *em, const rows *v, const char *pos, const char *of, const kiln_em_only *only) {
    int b = v->begin, end = (int)em->part_end[b];
    kiln_em_scope old = kiln_em_enter(em, em->ir->ins[b].which, "%s", pos);
    em->vec = em->ir->ins[b].which;
    em->fold = (kiln_ref)b;
    kiln_em_line(em, "const st%d s%d = %s;", b, b, of);
    kiln_em_part(em, b + 1, end - 1);
    kiln_em_yield(em, end - 1, of, only);
    kiln_em_leave(em, &old);
}

/* Whole rows, on states in registers. */
static void whole_rows(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    char pos[24], of[24];
    for (int j = 0; j < v->vectors; j++) kiln_em_line(em, "st%d a%d_%d = z%d;", b, b, j, b);
    kiln_em_open(em, "for (; hi%d - i%d >= %d; i%d += %d)", b, b, v->lanes, b, v->lanes);
    kiln_em_line(em, "const long k = %d;", v->width);
    for (int j = 0; j < v->vectors; j++) {
        snprintf(pos, sizeof pos, "(i%d + %d)", b, j * v->width);
        snprintf(of, sizeof of, "a%d_%d", b, j);
        kiln_em_brace(em);
        step(em, v, pos, of, NULL);
        kiln_em_close(em);
    }
    kiln_em_close(em);
    for (int j = 0; j < v->vectors; j++) kiln_em_line(em, "lane%d[%d] = a%d_%d;", b, j, b, j);
}

/* Vector by vector, to the end of the block. */
static void rest_of_block(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    char pos[24], of[24], all[24], old[24];
    snprintf(pos, sizeof pos, "i%d", b);
    snprintf(of, sizeof of, "(*q%d)", b);
    snprintf(all, sizeof all, "k == %d", v->width);
    snprintf(old, sizeof old, "s%d", b);
    kiln_em_open(em, "for (; i%d < hi%d; i%d += %d)", b, b, b, v->width);
    kiln_em_line(em, "const long k = hi%d - i%d < %d ? hi%d - i%d : %d;", b, b, v->width, b, b, v->width);
    kiln_em_line(em, "st%d *const q%d = &lane%d[(i%d - lo%d) / %d & %d];", b, b, b, b, b, v->width,
                 v->vectors - 1);
    step(em, v, pos, of, &(kiln_em_only){all, "k", old});
    kiln_em_close(em);
}

/* Merges vectors j + w into vectors j for w = vectors / 2, ... 1. */
static void merge_vectors(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    char left[24], right[32], all[32], keep[16];
    snprintf(left, sizeof left, "lane%d[j]", b);
    snprintf(right, sizeof right, "lane%d[j + w]", b);
    snprintf(all, sizeof all, "m >= %d", v->width);
    snprintf(keep, sizeof keep, "l%d", b);
    kiln_em_open(em, "for (long w = %d; w; w >>= 1) for (long j = 0; j < w; j++)", v->vectors / 2);
    kiln_em_line(em, "const long m = m%d - (j + w) * %d;", b, v->width);
    kiln_em_line(em, "if (m <= 0) break;");
    kiln_em_merge(em, b, left, right, left, &(kiln_em_only){all, "m", keep});
    kiln_em_close(em);
}

/* Merges lanes l + w of x<begin> into lanes l. */
static void merge_lanes(kiln_emitter *em, const rows *v, int w) {
    const kiln_ir_ins *f = &em->ir->ins[v->begin];
    int b = v->begin;
    char state[16], all[32], count[24], keep[16];
    snprintf(state, sizeof state, "x%d", b);
    snprintf(all, sizeof all, "m%d >= %d", b, 2 * w);
    snprintf(count, sizeof count, "m%d - %d", b, w);
    snprintf(keep, sizeof keep, "l%d", b);
    kiln_em_open(em, "if (m%d > %d)", b, w);
    kiln_em_start(em);
    kiln_em_put(em, "const st%d l%d = x%d, r%d = {", b, b, b, b);
    for (int k = 0; k < f->nargs; k++) {
        kiln_em_put(em, k ? ", " : "");
        kiln_em_fn(em, "down_%s", kiln_em_kept((kiln_dtype)em->ir->ins[f->list[k]].dtype));
        kiln_em_put(em, "(x%d.s%d, %d)", b, k, w);
    }
    kiln_em_put(em, "};\n");
    kiln_em_merge_part(em, b, state, &(kiln_em_only){all, count, keep});
    kiln_em_close(em);
}

void kiln_em_block_by_lanes(kiln_emitter *em, int begin) {
    rows v = rows_of(em, begin);
    bool printed = v.vectors <= MAX_PRINTED && !kiln_em_has_loops(em, begin);
    kiln_em_line(em, "st%d lane%d[%d];", begin, begin, v.vectors);
    kiln_em_line(em, "const long m%d = hi%d - lo%d;", begin, begin, begin);
    kiln_em_line(em, "long i%d = lo%d;", begin, begin);
    if (printed)
        whole_rows(em, &v);
    else
        kiln_em_line(em, "for (long j = 0; j < %d; j++) lane%d[j] = z%d;", v.vectors, begin, begin);
    rest_of_block(em, &v);
    if (v.vectors > 1) merge_vectors(em, &v);
    kiln_em_line(em, "x%d = lane%d[0];", begin, begin);
    for (int w = v.width / 2; w; w /= 2) merge_lanes(em, &v, w);
}
