/* emit_tile.c - a vector loop whose only loop is a scan along buffers that are not in rows -> tiles that are turned.
 *
 * Each lane scans a row of its own, and rows lie apart, so that a vector of one element of each would be gathered
 * and scattered lane by lane.  Instead KILN_COLS elements of KILN_W rows at a time are brought into a tile (src/math/tile.inc)
 * whose vectors the steps read; what they store goes through another tile.  An element is read before its own place is
 * written and no other, as docs/IR.md 3 asks.  States stay in registers all the way. */
#include <stdio.h>

#include "emit/emit_impl.h"

enum { MAX_ELEMENT = 8 }; /* bytes that one lane of a tile moves */

static bool accesses(const kiln_ir_ins *in) { return in->op == KILN_IR_LOAD || in->op == KILN_IR_STORE; }

/* Whether an access can go through a tile: of an input, or of a result that is not read; at the loops' own place. */
static bool fits(const kiln_emitter *em, const kiln_ir_ins *in, uint32_t axes) {
    const kiln_ir_buf *b = &em->ir->bufs[in->which];
    bool load = in->op == KILN_IR_LOAD;
    if (b->stride != KILN_STRIDE_ANY || b->axes != axes || kiln_dtype_size(b->dtype) > MAX_ELEMENT)
        return false;
    if (in->ncoord || (load ? in->nargs > 0 : kiln_ir_store_guard(in) != KILN_NOREF)) return false;
    return b->role == (load ? KILN_BUF_IN : KILN_BUF_OUT);
}

int kiln_em_tiled_scan_of(const kiln_emitter *em, int loop) {
    const kiln_ir *ir = em->ir;
    int scan = 0;
    for (uint32_t r = (uint32_t)loop + 1; r < em->part_end[loop]; r++) {
        const kiln_ir_ins *in = &ir->ins[r];
        if (kiln_ir_opens(in) && (scan || in->op != KILN_IR_SCAN || kiln_ir_by_block(in))) return 0;
        if (kiln_ir_opens(in)) scan = (int)r;
        if (!accesses(in)) continue;
        if (!scan || r > em->part_end[scan]) return 0;
        if (!fits(em, in, 1u << ir->ins[loop].which | 1u << ir->ins[scan].which)) return 0;
    }
    return scan;
}

/* -- tiles ------------------------------------------------------------------------------------------------- */

/* For each buffer that is loaded (or stored) in the scan: its tile, or the call that fills (or empties) it. */
static void each_buffer(kiln_emitter *em, int begin, kiln_ir_op op, bool declare) {
    bool done[KILN_IR_MAX_BUFS] = {false};
    for (uint32_t r = (uint32_t)begin + 1; r < em->part_end[begin]; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (in->op != op || done[in->which]) continue;
        done[in->which] = true;
        int b = in->which, size = (int)kiln_dtype_size(em->ir->bufs[b].dtype);
        if (declare) {
            kiln_em_line(em, "char y%d[KILN_W * KILN_COLS * %d] __attribute__((aligned(64)));", b, size);
            continue;
        }
        kiln_em_start(em);
        kiln_em_fn(em, op == KILN_IR_LOAD ? "tile_in_u%d" : "tile_out_u%d", 8 * size);
        kiln_em_put(em, "(y%d, ", b);
        kiln_em_address(em, in, 0);
        kiln_em_put(em, ", s%d_%d, s%d_%d, k, m%d%s);\n", b, em->dim[em->vec], b,
                    em->dim[em->ir->ins[begin].which], begin, op == KILN_IR_LOAD ? "" : ", stream");
    }
}

/* The vector of a tile that belongs to this step. */
static void vector_at(kiln_emitter *em, int buf) {
    kiln_em_put(em, "(y%d + (i%u - c%u) * KILN_W * %d", buf, em->tiled, em->tiled,
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

void kiln_em_tiles(kiln_emitter *em, int begin) {
    int axis = em->ir->ins[begin].which;
    const kiln_em_place at = em->at[axis];
    each_buffer(em, begin, KILN_IR_LOAD, true);
    each_buffer(em, begin, KILN_IR_STORE, true);
    kiln_em_start(em);
    kiln_em_put(em, "for (long c%d = %s; c%d < %s; c%d += ", begin, at.begin, begin, at.end, begin);
    kiln_em_fn(em, "KILN_COLS");
    kiln_em_put(em, ") {\n");
    em->indent += 4;
    kiln_em_line(em, "const long m%d = %s - c%d < KILN_COLS ? %s - c%d : KILN_COLS, e%d = c%d + m%d;", begin,
                 at.end, begin, at.end, begin, begin, begin, begin);
    kiln_em_scope old = kiln_em_enter(em, axis, "c%d", begin);
    each_buffer(em, begin, KILN_IR_LOAD, false);
    char from[16], to[16];
    snprintf(from, sizeof from, "c%d", begin);
    snprintf(to, sizeof to, "e%d", begin);
    em->tiled = (kiln_ref)begin;
    kiln_em_scan_steps(em, begin, from, to);
    em->tiled = 0;
    each_buffer(em, begin, KILN_IR_STORE, false);
    kiln_em_leave(em, &old);
    kiln_em_close(em);
}
