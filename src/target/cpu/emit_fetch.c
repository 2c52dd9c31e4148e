/* emit_fetch.c - the order in which a general nest reads its inputs -> instructions that ask memory for what comes next.
 *
 * Processors foresee what is read in a run, and nothing where it breaks off: at the end of a row while the row is gone
 * through again, at the end of a run of a fold over axes that lie apart, and between rows that are folded by turns.  Each
 * of the three has its form here.  What is asked for changes no value; whether it pays was measured for each, and where the
 * processor fetches by itself it costs more than it brings.  What is asked for may lie past the end of an input: that is
 * no fault of a prefetch.  Knows addresses from emit_mem.c, and no instruction's meaning but a load's. */
#include "target/cpu/emit_impl.h"

enum {
    FOLLOW = 1, /* how rows lie whose next elements are asked for: one after the other, */
    APART       /* or each by itself */
};

/* Whether r loads elements that lie in a row along axis `row`, of an input that has such a row for each position along axis `rows`. */
static bool loads_row(const kiln_emitter *em, int r, int row, int rows) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    if (in->op != KILN_IR_LOAD || in->ncoord || in->nargs) return false;
    const kiln_ir_buf *b = &em->ir->bufs[in->which];
    return b->role == KILN_BUF_IN && b->stride == KILN_STRIDE_CONTIG &&
           (b->axes >> row & b->axes >> rows & 1) != 0;
}

/* -- a row that is gone through again ---------------------------------------------------------------------- */

/* Folds before a vector loop, in the same nest, that read the buffer; `slow`: whether one computes an elementary function. */
static int folds_before(const kiln_emitter *em, int begin, int buffer, bool *slow) {
    int folds = 0;
    for (int f = em->nest + 1; f < begin; f++) {
        if (em->ir->ins[f].op != KILN_IR_FOLD || !em->ir->ins[f].vec) continue;
        int end = (int)em->part_end[f], l = f + 1;
        while (l < end && !(em->ir->ins[l].op == KILN_IR_LOAD && em->ir->ins[l].which == buffer)) l++;
        if (l == end) continue;
        folds++;
        *slow = *slow || kiln_em_has_functions(em, f + 1, end);
    }
    return folds;
}

/* Whether load r of a vector loop is of an input whose next row is worth asking for: folds before the loop read rows first, and memory
 * would rest for long while one is at hand, as there are two folds or an elementary function is computed.  Else the processor fetches
 * the next row by itself; asked for on top of that, rows of two inputs come up to 40 % slower. */
static bool is_read_again(const kiln_emitter *em, int begin, int r) {
    if (!loads_row(em, r, em->ir->ins[begin].which, em->ir->ins[em->nest].which)) return false;
    bool slow = kiln_em_has_functions(em, begin + 1, (int)em->part_end[begin]);
    int folds = folds_before(em, begin, em->ir->ins[r].which, &slow);
    return folds > 1 || (folds && slow);
}

/* The innermost loop around a vector loop, if it is not the nest's own and load r, which is the first to read its input, has a row for
 * each of its positions; else 0. */
static int loop_of_rows(const kiln_emitter *em, int begin, int r) {
    int loop = begin - 1;
    bool slow = false;
    while (loop > em->nest &&
           !(em->ir->ins[loop].op == KILN_IR_FOR && em->region_end[loop] > (uint32_t)begin))
        loop--;
    if (loop == em->nest || !loads_row(em, r, em->ir->ins[begin].which, em->ir->ins[loop].which)) return 0;
    return folds_before(em, begin, em->ir->ins[r].which, &slow) ? 0 : loop;
}

bool kiln_em_is_finish(const kiln_emitter *em, int begin) {
    for (int r = begin + 1; r < (int)em->part_end[begin]; r++)
        if (is_read_again(em, begin, r)) return true;
    return false;
}

bool kiln_em_has_next_rows(const kiln_emitter *em, int begin) {
    for (int r = begin + 1; r < (int)em->part_end[begin]; r++)
        if (is_read_again(em, begin, r) || loop_of_rows(em, begin, r)) return true;
    return false;
}

/* Rows that are read but once, and lie apart, are brought into the second cache (2). */
void kiln_em_fetch_next_rows(kiln_emitter *em, int begin) {
    bool done[KILN_IR_MAX_BUFS] = {false};
    for (int r = begin + 1; r < (int)em->part_end[begin]; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        bool again = is_read_again(em, begin, r);
        int loop = again ? em->nest : loop_of_rows(em, begin, r);
        if ((!again && !loop) || done[in->which]) continue;
        done[in->which] = true;
        kiln_em_scope old = kiln_em_enter(em, em->ir->ins[loop].which, "(i%d + next%d)", loop, begin);
        em->inner = em->vec;
        kiln_em_start(em);
        kiln_em_put(em, "__builtin_prefetch(");
        kiln_em_address(em, in, 0);
        kiln_em_put(em, again ? ");\n" : ", 0, 2);\n");
        kiln_em_leave(em, &old);
    }
}

/* -- the next run of a fold along rows --------------------------------------------------------------------- */

/* Runs of a fold over several axes break off where a slower axis moves on.  Where they lie apart, and are no longer than a cache has
 * room for, the next one's elements are asked for, into the second cache (2), while one is read. */
void kiln_em_fetch_next_run(kiln_emitter *em, int begin, int lanes) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    if (!f->ncoord) return;
    int slower = f->coord[f->ncoord - 1].axis;
    const kiln_em_place at = em->at[f->which];
    for (int r = begin + 1; r < (int)em->part_end[begin]; r++) {
        if (!loads_row(em, r, f->which, slower)) continue;
        const kiln_ir_ins *in = &em->ir->ins[r];
        int size = (int)kiln_dtype_size(em->ir->bufs[in->which].dtype);
        kiln_em_open(em, "if (%s - %s <= %d && s%d_%d != (%s - %s) * %d)", at.end, at.begin,
                     KILN_CPU_NEAR_ROW, in->which, em->dim[slower], at.end, at.begin, size);
        kiln_em_scope run = kiln_em_enter(em, slower, "(i%d_%d + 1)", begin, slower);
        kiln_em_scope row = kiln_em_enter(em, f->which, "i%d", begin);
        em->vec = f->which;
        for (int k = 0; k < lanes * size; k += KILN_CPU_LINE) {
            kiln_em_start(em);
            kiln_em_put(em, "__builtin_prefetch(");
            kiln_em_address(em, in, k);
            kiln_em_put(em, ", 0, 2);\n");
        }
        kiln_em_leave(em, &row);
        kiln_em_leave(em, &run);
        kiln_em_close(em);
    }
}

/* -- the next block of a fold down columns ----------------------------------------------------------------- */

/* Whether load r of a fold's step reads elements that lie in a row, from rows that the fold goes down. */
static bool is_fetched(const kiln_emitter *em, int begin, int r) {
    return loads_row(em, r, em->vec, em->ir->ins[begin].which);
}

/* It keeps up with the last cache by itself, and waits for each further instruction where all is near. */
bool kiln_em_only_reads(const kiln_emitter *em, int begin) {
    int loads = 0, end = (int)em->part_end[begin];
    for (int r = begin + 1; r < end; r++) loads += is_fetched(em, begin, r);
    return loads == 1 && kiln_em_weight(em, begin + 1, end) <= KILN_CPU_LITTLE / 2 &&
           kiln_em_is_only_fold(em, begin);
}

/* follow<r>: how the rows lie that r loads, if there are enough of them. */
static void ask_how_rows_lie(kiln_emitter *em, int begin, int r) {
    const kiln_ir_ins *load = &em->ir->ins[r];
    int s = (int)em->strip, size = (int)kiln_dtype_size(em->ir->bufs[load->which].dtype);
    kiln_em_start(em);
    kiln_em_put(em, "const int follow%d = ", r);
    for (int a = 0; a < em->ir->naxes; a++) {
        if (!(em->ir->bufs[load->which].axes >> a & 1)) continue;
        kiln_em_put(em, "L->n[%d] * ", em->dim[a]);
        if (em->ir->axes[a].grid) kiln_em_put(em, "L->n[%d] * ", em->dim[a] + 1);
    }
    kiln_em_put(em, "1L <= %d ? 0 : s%d_%d == (c%d_1 - c%d_0) * %d ? %d : c%d_1 - c%d_0 == %d ? %d : 0;\n",
                kiln_em_only_reads(em, begin) ? 2 * KILN_CPU_FETCH_MANY : KILN_CPU_FETCH_MANY, load->which,
                em->dim[em->ir->ins[begin].which], s, s, size, FOLLOW, s, s, KILN_CPU_STRIP, APART);
}

void kiln_em_ask_how_rows_lie(kiln_emitter *em, int begin) {
    for (int r = begin + 1; r < (int)em->part_end[begin]; r++)
        if (is_fetched(em, begin, r)) ask_how_rows_lie(em, begin, r);
}

/* Steps by turns on eight rows hide from the processor what comes next: it fetches little ahead.  So the next block's elements are
 * asked for while one is folded, and brought into the second cache (2), as the first has no room for so much: of rows as long as a
 * strip each row's in turn, and of shorter ones that FOLLOW each other without gaps, which are one run of memory, what comes AHEAD. */
static void fetch_next_block(kiln_emitter *em, int begin, int r) {
    const kiln_ir_ins *f = &em->ir->ins[begin], *load = &em->ir->ins[r];
    int s = (int)em->strip, block = (int)f->imm.tree.block;
    int size = (int)kiln_dtype_size(em->ir->bufs[load->which].dtype), bytes = block * size * em->lanes;
    kiln_em_open(em, "if (follow%d)", r);
    kiln_em_line(em, "const long done = i%d - c%d_0, row = follow%d == %d ? 0 : %d + done / %d;", s, s, r,
                 FOLLOW, block, KILN_CPU_STRIP / block);
    kiln_em_scope old = kiln_em_enter(em, f->which, "(lo%d + row)", begin);
    kiln_em_start(em);
    kiln_em_put(em, "const char *next = ");
    kiln_em_address(em, load, 0);
    kiln_em_put(em, " + (follow%d == %d ? done * %d + %d : done %% %d * %d - done * %d);\n", r, FOLLOW,
                (block - 1) * size, KILN_CPU_FETCH_AHEAD, KILN_CPU_STRIP / block, block * size, size);
    for (int k = 0; k < bytes; k += KILN_CPU_LINE)
        kiln_em_line(em, "__builtin_prefetch(next + %d, 0, 2);", k);
    kiln_em_leave(em, &old);
    kiln_em_close(em);
}

void kiln_em_fetch_next_block(kiln_emitter *em, int begin) {
    for (int r = begin + 1; r < (int)em->part_end[begin]; r++)
        if (is_fetched(em, begin, r)) fetch_next_block(em, begin, r);
}
