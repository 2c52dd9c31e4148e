/* emit_lanes.c - a block of a fold that is the vector loop: the lanes of its tree are lanes of vectors.
 *
 * A row is as many elements as the tree has lanes, one or several vectors.  Where the step is short, whole rows are
 * taken with one step per vector, printed one after the other on states in registers.  Everything else goes vector by
 * vector through an array: what is left after the last whole row, long steps, and steps with loops.  Lanes are merged pairwise, by
 * whole vectors first, at last by lanes moved down within one; in a block shorter than a row, lanes without an
 * element must not be met. */
#include <stdio.h>

#include "target/cpu/emit_impl.h"

typedef struct rows {
    int begin;
    int lanes;   /* of the tree */
    int width;   /* lanes of a vector that are in use */
    int vectors; /* of a row */
    int printed; /* steps printed one after the other, one per vector */
    bool small;  /* so that the rest of a block may be printed as well */
    bool merged; /* and so may merges, */
    bool light;  /* or at least those of the lanes of one vector */
} rows;

static rows rows_of(const kiln_emitter *em, int begin) {
    rows r = {.begin = begin, .lanes = (int)em->ir->ins[begin].imm.tree.lanes, .width = em->lanes};
    int step = kiln_em_weight(em, begin + 1, (int)em->part_end[begin]);
    int merge = kiln_em_weight(em, (int)em->part_end[begin] + 1, (int)em->region_end[begin]);
    if (r.lanes < r.width) r.width = r.lanes;
    r.vectors = r.printed = r.lanes / r.width;
    while (r.printed > 1 && (r.printed > KILN_CPU_LANES_PRINTED || r.printed * step > KILN_CPU_MUCH))
        r.printed /= 2;
    r.small = r.vectors * step <= KILN_CPU_LANES_SMALL;
    r.merged = r.vectors * merge <= KILN_CPU_MUCH;
    r.light = merge <= KILN_CPU_MUCH / 4;
    return r;
}

/* One step on the states `of`, of the elements from `pos` on, `after` those of the first step of a row; k says how
 * many. */
static void step(kiln_emitter *em, const rows *v, const char *pos, int after, const char *of,
                 const kiln_em_only *only) {
    int b = v->begin, end = (int)em->part_end[b];
    kiln_em_scope old = kiln_em_enter(em, em->ir->ins[b].which, "%s", pos);
    em->at[em->ir->ins[b].which].after = after;
    em->vec = em->ir->ins[b].which;
    em->fold = (kiln_ref)b;
    kiln_em_line(em, "const st%d s%d = %s;", b, b, of);
    kiln_em_part(em, b + 1, end - 1);
    kiln_em_yield(em, end - 1, of, only);
    kiln_em_leave(em, &old);
}

/* a<begin>_<j>: states in registers, the initial ones. */
static void new_states(kiln_emitter *em, const rows *v, int vectors) {
    for (int j = 0; j < vectors; j++) kiln_em_line(em, "st%d a%d_%d = z%d;", v->begin, v->begin, j, v->begin);
}

/* The same, those of the array lane<begin>. */
static void states_from_array(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    for (int j = 0; j < v->vectors; j++) kiln_em_line(em, "st%d a%d_%d = lane%d[%d];", b, b, j, b, j);
}

/* Steps of a row: `vectors` of it, `more` elements from its beginning. */
typedef struct row_steps {
    const rows *v;
    int vectors;
    const char *more;
} row_steps;

static void row_position(const row_steps *s, int j, char pos[24]) {
    snprintf(pos, 24, "(i%d%s + %d)", s->v->begin, s->more, j * s->v->width);
}

static void steps_of_row(kiln_emitter *em, const void *steps) {
    const row_steps *s = steps;
    char pos[24], of[24];
    for (int j = 0; j < s->vectors; j++) {
        row_position(s, j, pos);
        snprintf(of, sizeof of, "a%d_%d", s->v->begin, j);
        kiln_em_brace(em);
        step(em, s->v, pos, j * s->v->width, of, NULL);
        kiln_em_close(em);
    }
}

static kiln_em_scope enter_step_of_row(kiln_emitter *em, const void *steps, int j) {
    const row_steps *s = steps;
    int axis = em->ir->ins[s->v->begin].which;
    char pos[24];
    row_position(s, j, pos);
    kiln_em_scope old = kiln_em_enter(em, axis, "%s", pos);
    em->vec = axis;
    return old;
}

/* Whole rows, on states in registers. */
static void rows_in_registers(kiln_emitter *em, const rows *v, int vectors, const char *more) {
    int b = v->begin;
    row_steps steps = {v, vectors, more};
    kiln_ref choice = vectors > 1 ? kiln_em_choice_of(em, b) : 0;
    kiln_em_open(em, "for (i%d = lo%d; hi%d - i%d >= %d; i%d += %d)", b, b, b, b, v->lanes, b, v->lanes);
    kiln_em_line(em, "const long k = %d;", v->width);
    if (em->far && vectors == v->vectors) kiln_em_fetch_next_run(em, b, v->lanes);
    if (choice)
        kiln_em_without_nan(em, b, choice,
                            &(kiln_em_steps){vectors, enter_step_of_row, steps_of_row, &steps});
    else
        steps_of_row(em, &steps);
    kiln_em_close(em);
}

/* The same, printed once more for what comes from memory if the fold is light and alone in reading it: where others read it too, that
 * costs every such kernel a third of its compile time. */
static void whole_rows(kiln_emitter *em, const rows *v, int vectors, const char *more) {
    int step = kiln_em_weight(em, v->begin + 1, (int)em->part_end[v->begin]);
    bool far = step <= KILN_CPU_LITTLE && !kiln_em_has_loops(em, v->begin) &&
               kiln_em_is_only_fold(em, v->begin);
    if (far) {
        kiln_em_open(em, "if (L->flags & %u)", KILN_LAUNCH_MEMORY);
        em->far = true;
        rows_in_registers(em, v, vectors, more);
        em->far = false;
        kiln_em_close(em);
        kiln_em_open(em, "else");
    }
    rows_in_registers(em, v, vectors, more);
    if (far) kiln_em_close(em);
}

/* Vector by vector through the array, to the end of the block. */
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
    step(em, v, pos, 0, of, &(kiln_em_only){all, "k", old});
    kiln_em_close(em);
}

/* The same of whole vectors.  Steps do not wait for each other: each has the states of another vector of its row. */
static void whole_vectors(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    char pos[24], of[24];
    snprintf(pos, sizeof pos, "i%d", b);
    snprintf(of, sizeof of, "(*q%d)", b);
    kiln_em_open(em, "for (; hi%d - i%d >= %d; i%d += %d)", b, b, v->width, b, v->width);
    kiln_em_line(em, "const long k = %d;", v->width);
    kiln_em_line(em, "st%d *const q%d = &lane%d[(i%d - lo%d) / %d & %d];", b, b, b, b, b, v->width,
                 v->vectors - 1);
    step(em, v, pos, 0, of, NULL);
    kiln_em_close(em);
}

/* The same in registers, printed for each vector of a row. */
static void rest_in_registers(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    char pos[24], of[24], all[24], old[24];
    snprintf(all, sizeof all, "k == %d", v->width);
    snprintf(old, sizeof old, "s%d", b);
    for (int j = 0; j < v->vectors; j++) {
        int at = j * v->width;
        snprintf(pos, sizeof pos, "(i%d + %d)", b, at);
        snprintf(of, sizeof of, "a%d_%d", b, j);
        kiln_em_open(em, "if (hi%d - i%d > %d)", b, b, at);
        kiln_em_line(em, "const long k = hi%d - i%d < %d ? hi%d - i%d - %d : %d;", b, b, at + v->width, b, b,
                     at, v->width);
        step(em, v, pos, at, of, &(kiln_em_only){all, "k", old});
        kiln_em_close(em);
    }
}

/* -- merging --------------------------------------------------------------------------------------------- */

/* Merges lanes l + w of x<begin> into lanes l; w is a C expression. */
static void merge_within(kiln_emitter *em, const rows *v, const char *w, const kiln_em_only *only) {
    const kiln_ir_ins *f = &em->ir->ins[v->begin];
    int b = v->begin;
    char state[16];
    snprintf(state, sizeof state, "x%d", b);
    kiln_em_start(em);
    kiln_em_put(em, "const st%d l%d = x%d, r%d = {", b, b, b, b);
    for (int k = 0; k < f->nargs; k++) {
        kiln_em_put(em, k ? ", " : "");
        kiln_em_fn(em, "down_%s", kiln_em_kept_state(em, (kiln_dtype)em->ir->ins[f->list[k]].dtype));
        kiln_em_put(em, "(x%d.s%d, %s)", b, k, w);
    }
    kiln_em_put(em, "};\n");
    kiln_em_merge_part(em, b, state, only);
}

/* Merges all lanes of x<begin>. */
static void merge_vector(kiln_emitter *em, const rows *v) {
    char by[16];
    for (int w = v->width / 2; w; w /= 2) {
        snprintf(by, sizeof by, "%d", w);
        kiln_em_brace(em);
        merge_within(em, v, by, NULL);
        kiln_em_close(em);
    }
}

/* All lanes have an element: the states are in registers. */
static void merge_registers(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    char left[24], right[24];
    for (int w = v->vectors / 2; w; w /= 2)
        for (int j = 0; j < w; j++) {
            snprintf(left, sizeof left, "a%d_%d", b, j);
            snprintf(right, sizeof right, "a%d_%d", b, j + w);
            kiln_em_merge(em, b, left, right, left, NULL);
        }
    kiln_em_line(em, "x%d = a%d_0;", b, b);
    merge_vector(em, v);
}

/* Of fewer elements than lanes: the same but for lanes that have none. */
static void merge_some_registers(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    char left[24], right[24], by[16], all[32], count[32], keep[16];
    snprintf(keep, sizeof keep, "l%d", b);
    for (int w = v->vectors / 2; w; w /= 2)
        for (int j = 0; j < w; j++) {
            int first = (j + w) * v->width; /* lane of the right vector */
            snprintf(left, sizeof left, "a%d_%d", b, j);
            snprintf(right, sizeof right, "a%d_%d", b, j + w);
            snprintf(all, sizeof all, "m%d >= %d", b, first + v->width);
            snprintf(count, sizeof count, "m%d - %d", b, first);
            kiln_em_open(em, "if (m%d > %d)", b, first);
            kiln_em_merge(em, b, left, right, left, &(kiln_em_only){all, count, keep});
            kiln_em_close(em);
        }
    kiln_em_line(em, "x%d = a%d_0;", b, b);
    for (int w = v->width / 2; w; w /= 2) {
        snprintf(by, sizeof by, "%d", w);
        snprintf(all, sizeof all, "m%d >= %d", b, 2 * w);
        snprintf(count, sizeof count, "m%d - %d", b, w);
        kiln_em_open(em, "if (m%d > %d)", b, w);
        merge_within(em, v, by, &(kiln_em_only){all, count, keep});
        kiln_em_close(em);
    }
}

/* The same with the states in the array: the merge is printed once for all vectors. */
static void merge_whole_array(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    char left[24], right[32];
    snprintf(left, sizeof left, "lane%d[j]", b);
    snprintf(right, sizeof right, "lane%d[j + w]", b);
    kiln_em_open(em, "for (long w = %d; w; w >>= 1) for (long j = 0; j < w; j++)", v->vectors / 2);
    kiln_em_merge(em, b, left, right, left, NULL);
    kiln_em_close(em);
    kiln_em_line(em, "x%d = lane%d[0];", b, b);
    merge_vector(em, v);
}

/* Of m<begin> elements, which may be fewer than lanes: the states are in the array. */
static void merge_array(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    char left[24], right[32], all[32], keep[16], within[32], count[24];
    snprintf(left, sizeof left, "lane%d[j]", b);
    snprintf(right, sizeof right, "lane%d[j + w]", b);
    snprintf(all, sizeof all, "m >= %d", v->width);
    snprintf(keep, sizeof keep, "l%d", b);
    snprintf(within, sizeof within, "m%d >= 2 * w", b);
    snprintf(count, sizeof count, "m%d - w", b);
    if (v->vectors > 1) {
        kiln_em_open(em, "for (long w = %d; w; w >>= 1) for (long j = 0; j < w; j++)", v->vectors / 2);
        kiln_em_line(em, "const long m = m%d - (j + w) * %d;", b, v->width);
        kiln_em_line(em, "if (m <= 0) break;");
        kiln_em_merge(em, b, left, right, left, &(kiln_em_only){all, "m", keep});
        kiln_em_close(em);
    }
    kiln_em_line(em, "x%d = lane%d[0];", b, b);
    if (v->width == 1) return;
    kiln_em_open(em, "for (long w = %d; w; w >>= 1) if (m%d > w)", v->width / 2, b);
    merge_within(em, v, "w", &(kiln_em_only){within, count, keep});
    kiln_em_close(em);
}

/* Whole rows are merged without asking which lanes have an element, in registers where merges may be printed for each
 * vector. */
static void merge_lanes(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    if (v->merged || v->light) {
        kiln_em_open(em, "if (m%d >= %d)", b, v->lanes);
        if (v->merged) {
            states_from_array(em, v);
            merge_registers(em, v);
        } else {
            merge_whole_array(em, v);
        }
        em->indent -= 4;
        kiln_em_open(em, "} else");
    } else {
        kiln_em_brace(em);
    }
    merge_array(em, v);
    kiln_em_close(em);
}

/* -- blocks ---------------------------------------------------------------------------------------------- */

static void block_in_array(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    kiln_em_line(em, "st%d lane%d[%d];", b, b, v->vectors);
    kiln_em_line(em, "for (long j = 0; j < %d; j++) lane%d[j] = z%d;", v->vectors, b, b);
    if (!kiln_em_has_loops(em, b)) whole_vectors(em, v);
    rest_of_block(em, v);
    merge_lanes(em, v);
}

/* More vectors than registers should hold, or heavy steps: the block is gone through once for each few of them. */
static void block_in_groups(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    kiln_em_line(em, "st%d lane%d[%d];", b, b, v->vectors);
    kiln_em_open(em, "for (long g = 0; g < %d; g += %d)", v->lanes, v->printed * v->width);
    new_states(em, v, v->printed);
    whole_rows(em, v, v->printed, " + g");
    for (int j = 0; j < v->printed; j++)
        kiln_em_line(em, "lane%d[g / %d + %d] = a%d_%d;", b, v->width, j, b, j);
    kiln_em_close(em);
    rest_of_block(em, v);
    merge_lanes(em, v);
}

/* lane<begin>: what the registers hold. */
static void to_array(kiln_emitter *em, const rows *v) {
    kiln_em_start(em);
    kiln_em_put(em, "st%d lane%d[%d] = {", v->begin, v->begin, v->vectors);
    for (int j = 0; j < v->vectors; j++) kiln_em_put(em, "%sa%d_%d", j ? ", " : "", v->begin, j);
    kiln_em_put(em, "};\n");
}

static void block_in_registers(kiln_emitter *em, const rows *v) {
    int b = v->begin;
    new_states(em, v, v->vectors);
    whole_rows(em, v, v->vectors, "");
    kiln_em_open(em, "if (i%d < hi%d)", b, b);
    if (v->small) {
        rest_in_registers(em, v);
    } else {
        to_array(em, v);
        rest_of_block(em, v);
        for (int j = 0; j < v->vectors; j++) kiln_em_line(em, "a%d_%d = lane%d[%d];", b, j, b, j);
    }
    kiln_em_close(em);
    kiln_em_open(em, "if (m%d >= %d)", b, v->lanes);
    merge_registers(em, v);
    em->indent -= 4;
    kiln_em_open(em, "} else");
    if (v->small) {
        merge_some_registers(em, v);
    } else {
        to_array(em, v);
        merge_array(em, v);
    }
    kiln_em_close(em);
}

static bool in_registers(const kiln_emitter *em, const rows *v) {
    return v->vectors == v->printed && v->merged && !kiln_em_has_loops(em, v->begin);
}

/* -- any block ------------------------------------------------------------------------------------------- */

void kiln_em_block_by_lanes(kiln_emitter *em, int begin) {
    rows v = rows_of(em, begin);
    kiln_em_line(em, "const long m%d = hi%d - lo%d;", begin, begin, begin);
    kiln_em_line(em, "long i%d = lo%d;", begin, begin);
    if (in_registers(em, &v))
        block_in_registers(em, &v);
    else if (kiln_em_has_loops(em, begin) || v.printed == 1)
        block_in_array(em, &v);
    else
        block_in_groups(em, &v);
}
