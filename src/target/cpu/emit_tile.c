/* emit_tile.c - a vector loop that holds one scan and no other loop, over buffers that are not contiguous along the lanes -> tiles that are turned.
 *
 * Each lane scans a row of its own, and rows lie apart, so that a vector of one element of each would be gathered
 * and scattered lane by lane.  Instead KILN_COLS elements of KILN_W rows at a time are brought into a tile (src/math/tile.inc)
 * whose vectors the steps read; what they store goes through another tile.  docs/IR.md 3 asks that an element is read before
 * that element is stored; it asks nothing about other elements.  A step waits for the one before it, so that several vectors of lanes are
 * taken together.  States stay in registers all the way through a tile. */
#include <stdio.h>

#include "target/cpu/emit_impl.h"

static bool accesses(const kiln_ir_ins *in) { return in->op == KILN_IR_LOAD || in->op == KILN_IR_STORE; }

/* Whether an access can go through a tile: of an input, or of a result that is not read; at the loops' own place. */
static bool fits(const kiln_emitter *em, const kiln_ir_ins *in, uint32_t axes) {
    const kiln_ir_buf *b = &em->ir->bufs[in->which];
    bool load = in->op == KILN_IR_LOAD;
    if (b->stride != KILN_STRIDE_ANY || b->axes != axes ||
        kiln_dtype_size(b->dtype) > KILN_CPU_TURNED_SCAN_MAX_ELEMENT)
        return false;
    if (in->ncoord || (load ? in->nargs > 0 : kiln_ir_store_guard(in) != KILN_NOREF)) return false;
    return b->role == (load ? KILN_BUF_IN : KILN_BUF_OUT);
}

/* Whether an access outside the scan leaves what tiles hold alone: it is of memory that the scan has no part in. */
static bool is_beside(const kiln_emitter *em, const kiln_ir_ins *in, int loop) {
    const kiln_ir_buf *b = &em->ir->bufs[in->which];
    return b->axes == 1u << em->ir->ins[loop].which && (in->op == KILN_IR_LOAD || b->role == KILN_BUF_TMP);
}

/* Values that are made before the scan: the same for all lanes, not the same, or such that the scan's steps use. */
enum { SAME, VARIES, KEPT };

/* Sets em->before.  False if steps use a truth value, for which there is no one type to keep it in. */
static bool mark_before(kiln_emitter *em, int loop, int scan) {
    const kiln_ir *ir = em->ir;
    for (int r = loop + 1; r < scan; r++) {
        const kiln_ir_ins *in = &ir->ins[r];
        em->before[r] = in->op == KILN_IR_LOAD || in->op == KILN_IR_INDEX ? VARIES : SAME;
        for (int k = 0; k < kiln_ir_noperands(in); k++)
            if (kiln_ir_operand(in, k) > (kiln_ref)loop && em->before[kiln_ir_operand(in, k)])
                em->before[r] = VARIES;
    }
    for (int r = scan + 1; r < (int)em->part_end[scan]; r++)
        for (int k = 0; k < kiln_ir_noperands(&ir->ins[r]); k++) {
            kiln_ref from = kiln_ir_operand(&ir->ins[r], k);
            if (from <= (kiln_ref)loop || from >= (kiln_ref)scan || em->before[from] == SAME) continue;
            em->before[from] = KEPT;
            if (ir->ins[from].dtype == KILN_BOOL) return false;
        }
    return true;
}

int kiln_em_tiled_scan_of(kiln_emitter *em, int loop) {
    const kiln_ir *ir = em->ir;
    int scan = 0;
    for (uint32_t r = (uint32_t)loop + 1; r < em->part_end[loop]; r++) {
        const kiln_ir_ins *in = &ir->ins[r];
        if (kiln_ir_opens(in) && (scan || in->op != KILN_IR_SCAN || kiln_ir_by_block(in))) return 0;
        if (kiln_ir_opens(in)) scan = (int)r;
        if (!accesses(in)) continue;
        bool inside = scan && r < em->part_end[scan];
        if (!inside && (!is_beside(em, in, loop) || (in->op == KILN_IR_STORE) != (scan > 0))) return 0;
        if (inside && !fits(em, in, 1u << ir->ins[loop].which | 1u << ir->ins[scan].which)) return 0;
    }
    return scan && mark_before(em, loop, scan) ? scan : 0;
}

/* -- tiles ------------------------------------------------------------------------------------------------- */

/* A loop over a vector axis on its way: vectors of lanes that take each step together. */
typedef struct group {
    kiln_emitter *em;
    int loop, scan, n; /* the FOR, the scan inside it, vectors */
} group;

typedef enum part { DECLARED, FILLED, EMPTIED, BLANK, AHEAD } part;

/* Asks for the same columns of the rows after the group's, if these lie apart. */
static void ask_ahead(const group *g, const kiln_ir_ins *in) {
    kiln_emitter *em = g->em;
    int b = in->which, size = (int)kiln_dtype_size(em->ir->bufs[b].dtype), apart = em->dim[em->vec];
    kiln_em_start(em);
    kiln_em_put(em, "if (s%d_%d > %d) ", b, apart, size);
    kiln_em_fn(em, "tile_ahead");
    kiln_em_put(em, "(");
    kiln_em_address(em, in, 0);
    kiln_em_put(em, " + %d * KILN_W * s%d_%d, s%d_%d, KILN_COLS * %d);\n", g->n, b, apart, b, apart, size);
}

/* Prints one line for each buffer that the scan accesses by `op`.  `what` says which line: the declaration of the tile, the call that fills,
 * empties or blanks it, or a prefetch of the rows that follow. */
static void each_buffer(const group *g, kiln_ir_op op, part what) {
    bool done[KILN_IR_MAX_BUFS] = {false};
    kiln_emitter *em = g->em;
    for (uint32_t r = (uint32_t)g->scan + 1; r < em->part_end[g->scan]; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (in->op != op || done[in->which]) continue;
        done[in->which] = true;
        int b = in->which, size = (int)kiln_dtype_size(em->ir->bufs[b].dtype);
        if (what == AHEAD) {
            ask_ahead(g, in);
            continue;
        }
        if (what == DECLARED) {
            kiln_em_start(em);
            kiln_em_put(em, "char y%d[%d * KILN_W * ", b, g->n);
            kiln_em_fn(em, "KILN_COLS");
            kiln_em_put(em, " * %d] __attribute__((aligned(64)));\n", size);
            continue;
        }
        kiln_em_start(em);
        kiln_em_fn(em, what == EMPTIED ? "tile_out_u%d" : "tile_in_u%d", 8 * size);
        kiln_em_put(em, "(y%d + u%d * KILN_W * KILN_COLS * %d, ", b, g->loop, size);
        if (what == BLANK) {
            kiln_em_put(em, "p%d, 0, %d, 0, KILN_COLS);\n", b, size);
            continue;
        }
        kiln_em_address(em, in, 0);
        kiln_em_put(em, ", s%d_%d, s%d_%d, k, m%d%s);\n", b, em->dim[em->vec], b,
                    em->dim[em->ir->ins[g->scan].which], g->scan, what == FILLED ? "" : ", stream");
    }
}

/* The vector of a tile that belongs to this step. */
static void vector_at(kiln_emitter *em, int buf) {
    kiln_em_put(em, "(y%d + (%d * KILN_COLS + i%u - c%u) * KILN_W * %d", buf, em->tile, em->tiled, em->tiled,
                (int)kiln_dtype_size(em->ir->bufs[buf].dtype));
}

void kiln_em_tile_load(kiln_emitter *em, kiln_ref r) {
    static const char *const names[] = {"load_%s", "load_re_%s", "load_im_%s"}; /* ORDER: kiln_ir_part */
    const kiln_ir_ins *in = &em->ir->ins[r];
    kiln_em_declare(em, r);
    kiln_em_fn(em, names[in->prim], kiln_dtype_name((kiln_dtype)in->dtype));
    vector_at(em, in->which);
    kiln_em_put(em, ");\n");
}

void kiln_em_tile_store(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    kiln_dtype t = (kiln_dtype)in->dtype;
    kiln_em_start(em);
    kiln_em_fn(em, kiln_dtype_is_complex(t) ? "store_parts_%s" : "store_%s",
               kiln_dtype_name(kiln_dtype_real(t)));
    vector_at(em, in->which);
    for (int k = 0; k < kiln_ir_store_values(in); k++) {
        kiln_em_put(em, ", ");
        kiln_em_use(em, in->arg[k], 8);
    }
    kiln_em_put(em, ");\n");
}

/* -- what stands before the scan --------------------------------------------------------------------------- */

static void print_before(const group *g, bool varying) {
    for (kiln_ref r = (kiln_ref)g->loop + 1; r < (kiln_ref)g->scan; r++)
        if ((g->em->before[r] != SAME) == varying) kiln_em_instruction(g->em, r);
}

/* For each value that steps use: where those of all vectors are kept; one is put there; a step of vector `of` has it. */
static void each_kept(const group *g, part what, int of) {
    for (kiln_ref r = (kiln_ref)g->loop + 1; r < (kiln_ref)g->scan; r++) {
        const char *type = kiln_dtype_name((kiln_dtype)g->em->ir->ins[r].dtype);
        if (g->em->before[r] != KEPT) continue;
        if (what == DECLARED) kiln_em_line(g->em, "v%s q%u[%d];", type, r, g->n);
        if (what == FILLED) kiln_em_line(g->em, "q%u[u%d] = t%u;", r, g->loop, r);
        if (what == EMPTIED) kiln_em_line(g->em, "const v%s t%u = q%u[%d];", type, r, r, of);
    }
}

/* -- the loop ---------------------------------------------------------------------------------------------- */

/* The body of a loop over vectors of the group: those with elements, or all. */
static void open_vectors(const group *g, bool all) {
    kiln_emitter *em = g->em;
    int loop = g->loop;
    const char *end = em->at[em->ir->ins[loop].which].end;
    if (all)
        kiln_em_open(em, "for (long u%d = 0; u%d < %d; u%d++)", loop, loop, g->n, loop);
    else
        kiln_em_open(em, "for (long u%d = 0; u%d < w%d; u%d++)", loop, loop, loop, loop);
    kiln_em_line(em, "const long i%d = g%d + u%d * KILN_W, d%d = %s - i%d;", loop, loop, loop, loop, end,
                 loop);
    kiln_em_line(em, "const long k = d%d < 0 ? 0 : d%d < KILN_W ? d%d : KILN_W;", loop, loop, loop);
}

/* One step of every vector after the other: none waits for its own last one. */
static void print_steps(const group *g) {
    kiln_emitter *em = g->em;
    int scan = g->scan, end = (int)em->part_end[scan];
    char states[40];
    for (int u = 0; u < g->n; u++) kiln_em_line(em, "st%d a%d_%d = b%d[%d];", scan, scan, u, scan, u);
    kiln_em_scope old = kiln_em_enter(em, em->ir->ins[scan].which, "i%d", scan);
    em->fold = em->tiled = (kiln_ref)scan;
    kiln_em_open(em, "for (long i%d = c%d; i%d < e%d; i%d++)", scan, scan, scan, scan, scan);
    for (int u = 0; u < g->n; u++) {
        kiln_em_brace(em);
        kiln_em_line(em, "const st%d s%d = a%d_%d;", scan, scan, scan, u);
        each_kept(g, EMPTIED, u);
        em->tile = u;
        kiln_em_part(em, scan + 1, end - 1);
        snprintf(states, sizeof states, "a%d_%d", scan, u);
        kiln_em_yield(em, end - 1, states, NULL);
        kiln_em_close(em);
    }
    kiln_em_close(em);
    em->tiled = 0;
    kiln_em_leave(em, &old);
    for (int u = 0; u < g->n; u++) kiln_em_line(em, "b%d[%d] = a%d_%d;", scan, u, scan, u);
}

static void scan_tiles(const group *g) {
    kiln_emitter *em = g->em;
    int scan = g->scan, axis = em->ir->ins[scan].which;
    const kiln_em_place at = em->at[axis];
    kiln_em_open(em, "for (long c%d = %s; c%d < %s; c%d += KILN_COLS)", scan, at.begin, scan, at.end, scan);
    kiln_em_line(em, "const long m%d = %s - c%d < KILN_COLS ? %s - c%d : KILN_COLS, e%d = c%d + m%d;", scan,
                 at.end, scan, at.end, scan, scan, scan, scan);
    kiln_em_scope old = kiln_em_enter(em, axis, "c%d", scan);
    open_vectors(g, false);
    each_buffer(g, KILN_IR_LOAD, FILLED);
    kiln_em_close(em);
    kiln_em_open(em, "if (L->flags & %u && %s - g%d >= %d * KILN_W)", KILN_LAUNCH_MEMORY,
                 em->at[em->ir->ins[g->loop].which].end, g->loop, 2 * g->n);
    open_vectors(g, false);
    each_buffer(g, KILN_IR_LOAD, AHEAD);
    kiln_em_close(em);
    kiln_em_close(em);
    print_steps(g);
    open_vectors(g, false);
    each_buffer(g, KILN_IR_STORE, EMPTIED);
    kiln_em_close(em);
    kiln_em_leave(em, &old);
    kiln_em_close(em);
}

/* What stands before the scan, and initial states, of all vectors; those without elements have zeros in their tiles. */
static void begin_group(const group *g) {
    kiln_emitter *em = g->em;
    each_buffer(g, KILN_IR_LOAD, DECLARED);
    each_buffer(g, KILN_IR_STORE, DECLARED);
    each_kept(g, DECLARED, 0);
    kiln_em_line(em, "st%d b%d[%d];", g->scan, g->scan, g->n);
    print_before(g, false);
    open_vectors(g, true);
    print_before(g, true);
    kiln_em_states(em, g->scan, "const st%d a%d", g->scan, g->scan);
    kiln_em_line(em, "b%d[u%d] = a%d;", g->scan, g->loop, g->scan);
    each_kept(g, FILLED, 0);
    kiln_em_open(em, "if (u%d >= w%d)", g->loop, g->loop);
    each_buffer(g, KILN_IR_LOAD, BLANK);
    kiln_em_close(em);
    kiln_em_close(em);
}

void kiln_em_tiled_loop(kiln_emitter *em, int loop, int scan) {
    const kiln_em_place at = em->at[em->ir->ins[loop].which];
    bool light = kiln_em_weight(em, scan + 1, (int)em->part_end[scan]) < KILN_CPU_TURNED_SCAN_HEAVY;
    group g = {em, loop, scan,
               light && KILN_CPU_TURNED_SCAN_TOGETHER * em->lanes <= KILN_CPU_TURNED_SCAN_MAX_ROWS
                   ? KILN_CPU_TURNED_SCAN_TOGETHER
                   : 1};
    int after = (int)em->region_end[scan] + 1, end = (int)em->part_end[loop];
    kiln_em_open(em, "for (long g%d = %s; g%d < %s; g%d += %d * KILN_W)", loop, at.begin, loop, at.end, loop,
                 g.n);
    kiln_em_line(em, "const long w%d = %s - g%d < %d * KILN_W ? (%s - g%d + KILN_W - 1) / KILN_W : %d;", loop,
                 at.end, loop, g.n, at.end, loop, g.n);
    begin_group(&g);
    scan_tiles(&g);
    if (after < end) {
        open_vectors(&g, false);
        print_before(&g, true);
        kiln_em_line(em, "const st%d f%d = b%d[u%d];", scan, scan, scan, loop);
        kiln_em_part(em, after, end);
        kiln_em_close(em);
    }
    kiln_em_close(em);
}
