/* emit_mem.c - loads and stores of general nests -> calls of src/math's memory functions.
 *
 * An address is the buffer's pointer and, for each of its axes, position times stride; the compiler moves what
 * does not change out of loops.  Along the vector axis lanes are in a row, a stride apart, or all at one place.
 * Under a guard or at computed coordinates each lane has a place of its own.  Outside vector loops a load fills
 * all lanes and a store writes lane 0. */
#include <stdio.h>

#include "target/cpu/emit_impl.h"

/* How the lanes of an access lie, computed coordinates aside. */
typedef enum spread { AT_ONE_PLACE, IN_A_ROW, STRIDED } spread;

static bool computed_along(const kiln_ir_ins *in, int axis) {
    for (int k = 0; k < in->ncoord; k++)
        if (in->coord[k].axis == axis) return true;
    return false;
}

/* What a buffer promises of its stride along a vector axis, which is no promise to accesses at computed places (docs/IR.md). */
static kiln_stride promised(const kiln_emitter *em, const kiln_ir_ins *in) {
    return in->ncoord ? KILN_STRIDE_ANY : (kiln_stride)em->ir->bufs[in->which].stride;
}

static spread spread_of(const kiln_emitter *em, const kiln_ir_ins *in) {
    const kiln_ir_buf *b = &em->ir->bufs[in->which];
    if (em->vec < 0 || !(b->axes >> em->vec & 1) || computed_along(in, em->vec)) return AT_ONE_PLACE;
    if (in->ncoord) return STRIDED;
    if (b->stride == KILN_STRIDE_CONTIG && !kiln_dtype_is_complex(b->dtype)) return IN_A_ROW;
    return b->stride == KILN_STRIDE_BCAST && b->role == KILN_BUF_IN ? AT_ONE_PLACE : STRIDED;
}

/* The stride of an access along a dimension, as far as it is known. */
static void stride_text(const kiln_emitter *em, const kiln_ir_ins *in, int axis, char text[24]) {
    if (axis == em->vec && promised(em, in) == KILN_STRIDE_CONTIG)
        snprintf(text, 24, "%d", (int)kiln_dtype_size(em->ir->bufs[in->which].dtype));
    else
        snprintf(text, 24, "s%d_%d", in->which, em->dim[axis]);
}

void kiln_em_address(kiln_emitter *em, const kiln_ir_ins *in, int offset) {
    char stride[24];
    kiln_em_put(em, "p%d", in->which);
    int last = -1; /* the innermost loop's part comes last, what is before it does not change in that loop */
    for (int a = 0; a < em->ir->naxes; a++) {
        if (!(em->ir->bufs[in->which].axes >> a & 1) || computed_along(in, a)) continue;
        if (em->ir->axes[a].grid) kiln_em_put(em, " + %s * s%d_%d", em->at[a].row, in->which, em->dim[a] + 1);
        if (a == em->vec && promised(em, in) == KILN_STRIDE_BCAST) continue;
        if (a == em->inner) {
            last = a;
            continue;
        }
        stride_text(em, in, a, stride);
        kiln_em_put(em, " + %s * %s", em->at[a].pos, stride);
    }
    if (last >= 0) {
        stride_text(em, in, last, stride);
        kiln_em_put(em, " + %s * %s", em->at[last].pos, stride);
    }
    if (offset) kiln_em_put(em, " + %d", offset);
}

/* -- lanes at places of their own ------------------------------------------------------------------------ */

/* Bytes from the address to each lane. */
static void lane_offsets(kiln_emitter *em, const kiln_ir_ins *in) {
    char stride[24];
    const char *plus = "";
    for (int k = 0; k < in->ncoord; k++, plus = " + ")
        kiln_em_put(em, "%st%u * s%d_%d", plus, in->coord[k].at, in->which, em->dim[in->coord[k].axis]);
    if (spread_of(em, in) != AT_ONE_PLACE) {
        stride_text(em, in, em->vec, stride);
        kiln_em_put(em, "%s", plus);
        kiln_em_fn(em, "iota_i64");
        kiln_em_put(em, "() * (long)%s", stride);
    } else if (!*plus) {
        kiln_em_put(em, "(vi64){0}");
    }
}

/* The same to the first lane alone, after its address. */
static void first_lane_offsets(kiln_emitter *em, const kiln_ir_ins *in) {
    for (int k = 0; k < in->ncoord; k++)
        kiln_em_put(em, " + t%u[0] * s%d_%d", in->coord[k].at, in->which, em->dim[in->coord[k].axis]);
}

/* Which lanes are accessed: those that are elements, where the guard allows it. */
static void lanes_allowed(kiln_emitter *em, kiln_ref guard, const char *count) {
    if (guard != KILN_NOREF) {
        kiln_em_use(em, guard, 8);
        kiln_em_put(em, " & ");
    }
    kiln_em_fn(em, "first_lanes");
    kiln_em_put(em, "(%s)", count);
}

static void load_computed(kiln_emitter *em, const kiln_ir_ins *in, int offset) {
    kiln_dtype t = (kiln_dtype)in->dtype;
    kiln_em_fn(em, "load_at_%s", kiln_dtype_name(t));
    kiln_em_put(em, "(");
    kiln_em_address(em, in, offset);
    kiln_em_put(em, ", ");
    lane_offsets(em, in);
    kiln_em_put(em, ", ");
    lanes_allowed(em, in->nargs ? in->arg[0] : KILN_NOREF, "k");
    kiln_em_put(em, ", ");
    if (in->nargs)
        kiln_em_use(em, in->arg[1], 8);
    else
        kiln_em_put(em, "(v%s){0}", kiln_em_kept(t));
    kiln_em_put(em, ")");
}

/* -- whole accesses -------------------------------------------------------------------------------------- */

/* The element at one place, which outside vector loops may be a computed one, in all lanes. */
static void load_splat(kiln_emitter *em, const kiln_ir_ins *in, int offset) {
    const char *t = kiln_dtype_name((kiln_dtype)in->dtype);
    kiln_em_fn(em, "splat_%s", t);
    kiln_em_put(em, "(*(const par_%s *)(", t);
    kiln_em_address(em, in, offset);
    first_lane_offsets(em, in);
    kiln_em_put(em, in->dtype == KILN_BOOL ? ") != 0)" : "))");
}

/* Outside vector loops all lanes are the same: one place is read, under a guard if that is so. */
static void load_for_all(kiln_emitter *em, const kiln_ir_ins *in, int offset) {
    if (in->nargs) {
        kiln_em_use(em, in->arg[0], em->mask[in->arg[0]]);
        kiln_em_put(em, "[0] ? ");
    }
    load_splat(em, in, offset);
    if (!in->nargs) return;
    kiln_em_put(em, " : ");
    kiln_em_use(em, in->arg[1], 8);
}

/* Whole vectors of complex elements in a row: every other lane of two vectors.  What follows is for all others. */
static void load_parts(kiln_emitter *em, const kiln_ir_ins *in) {
    if (em->ir->bufs[in->which].stride != KILN_STRIDE_CONTIG) return;
    kiln_em_put(em, "k == KILN_W ? ");
    kiln_em_fn(em, "load_%s_%s", in->prim == KILN_PART_RE ? "re" : "im",
               kiln_dtype_name((kiln_dtype)in->dtype));
    kiln_em_put(em, "(");
    kiln_em_address(em, in, 0);
    kiln_em_put(em, ") : ");
}

bool kiln_em_loads_far(const kiln_emitter *em, kiln_dtype t) {
    return em->far && kiln_dtype_size(t) >= 4 && kiln_dtype_size(t) * (size_t)em->lanes == 64;
}

void kiln_em_load(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    if (em->tiled) {
        kiln_em_tile_load(em, r);
        return;
    }
    const char *t = kiln_dtype_name((kiln_dtype)in->dtype);
    int offset = in->prim == KILN_PART_IM ? (int)kiln_dtype_size((kiln_dtype)in->dtype) : 0;
    spread lanes = spread_of(em, in);
    char stride[24];
    kiln_em_declare(em, r);
    if (lanes == STRIDED && in->prim != KILN_PART_WHOLE && !in->ncoord && !in->nargs) load_parts(em, in);
    if (em->vec < 0) {
        load_for_all(em, in, offset);
    } else if (in->ncoord || in->nargs) {
        load_computed(em, in, offset);
    } else if (lanes == AT_ONE_PLACE) {
        load_splat(em, in, offset);
    } else if (lanes == IN_A_ROW && kiln_em_loads_far(em, (kiln_dtype)in->dtype)) {
        kiln_em_fn(em, "load_far_%s", t);
        kiln_em_put(em, "(");
        kiln_em_address(em, in, offset);
        kiln_em_put(em, ")");
    } else {
        kiln_em_fn(em, lanes == IN_A_ROW ? "load_some_%s" : "gather_%s", t);
        kiln_em_put(em, "(");
        kiln_em_address(em, in, offset);
        stride_text(em, in, em->vec, stride);
        if (lanes == STRIDED) kiln_em_put(em, ", %s", stride);
        kiln_em_put(em, ", k)");
    }
    kiln_em_put(em, ";\n");
}

/* Outside vector loops all lanes are the same: one place is written to, under a guard if that is so. */
static void store_first_lane(kiln_emitter *em, const kiln_ir_ins *in, int k, kiln_dtype t) {
    kiln_ref guard = kiln_ir_store_guard(in);
    if (guard != KILN_NOREF) {
        kiln_em_put(em, "if (");
        kiln_em_use(em, guard, em->mask[guard]);
        kiln_em_put(em, "[0]) ");
    }
    kiln_em_put(em, "*(par_%s *)(", kiln_dtype_name(t));
    kiln_em_address(em, in, k * (int)kiln_dtype_size(t));
    first_lane_offsets(em, in);
    kiln_em_put(em, ") = ");
    kiln_em_use(em, in->arg[k], 8);
    kiln_em_put(em, t == KILN_BOOL ? "[0] != 0;\n" : "[0];\n");
}

/* Value k of a store: the whole, or a part of a complex element. */
static void store_value(kiln_emitter *em, const kiln_ir_ins *in, int k) {
    kiln_dtype t = kiln_dtype_real((kiln_dtype)in->dtype);
    kiln_ref guard = kiln_ir_store_guard(in);
    bool own_places = in->ncoord || guard != KILN_NOREF;
    spread lanes = spread_of(em, in);
    char stride[24] = "0";
    kiln_em_start(em);
    for (int p = 0; p < em->npass; p++) kiln_em_put(em, "if (pass%u) ", em->pass[p]);
    if (em->vec < 0) {
        store_first_lane(em, in, k, t);
        return;
    }
    if (em->bypass) {
        kiln_em_put(em, "if (bypass%d) ", em->bypass);
        kiln_em_fn(em, "stream_%s", kiln_dtype_name(t));
        kiln_em_put(em, "(");
        kiln_em_address(em, in, 0);
        kiln_em_put(em, ", ");
        kiln_em_use(em, in->arg[k], 8);
        kiln_em_put(em, "); else ");
    }
    kiln_em_fn(em,
               own_places          ? "store_at_%s"
               : lanes == IN_A_ROW ? "store_some_%s"
                                   : "scatter_%s",
               kiln_dtype_name(t));
    kiln_em_put(em, "(");
    kiln_em_address(em, in, k * (int)kiln_dtype_size(t));
    kiln_em_put(em, ", ");
    if (own_places) {
        lane_offsets(em, in);
        kiln_em_put(em, ", ");
        lanes_allowed(em, guard, "k");
    } else {
        if (lanes == STRIDED) stride_text(em, in, em->vec, stride);
        if (lanes != IN_A_ROW) kiln_em_put(em, "%s, ", stride);
        kiln_em_put(em, "k");
    }
    kiln_em_put(em, ", ");
    kiln_em_use(em, in->arg[k], 8);
    kiln_em_put(em, ");\n");
}

void kiln_em_store(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    for (int k = 0; k < kiln_ir_store_values(in) && !em->tiled; k++) store_value(em, in, k);
    if (em->tiled) kiln_em_tile_store(em, r);
}

/* -- past the caches --------------------------------------------------------------------------------------- */

/* Whether a store may go past the caches: of elements in a row that no other loop reads, in vectors that some instruction
 * stores so.  A later store of the nest to one of its places is seen after it on every machine, as a thread sees what it wrote. */
static bool may_bypass(const kiln_emitter *em, const kiln_ir_ins *in, int axis) {
    const kiln_ir_buf *b = &em->ir->bufs[in->which];
    if (b->role != KILN_BUF_OUT || b->stride != KILN_STRIDE_CONTIG || !(b->axes >> axis & 1)) return false;
    if (in->ncoord || kiln_ir_store_guard(in) != KILN_NOREF || kiln_dtype_is_complex(b->dtype)) return false;
    return kiln_dtype_size(b->dtype) * (size_t)em->lanes >= 16;
}

bool kiln_em_stores_bypass(const kiln_emitter *em, int begin, int end, int axis) {
    bool any = false;
    for (int r = begin; r < end; r++) {
        if (em->ir->ins[r].op != KILN_IR_STORE) continue;
        if (!may_bypass(em, &em->ir->ins[r], axis)) return false;
        any = true;
    }
    return any;
}

void kiln_em_ask_for_borders(kiln_emitter *em, int id, int begin, int end, const char *from) {
    kiln_em_line(em, "int bypass%d = stream;", id);
    for (int r = begin; r < end; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (in->op != KILN_IR_STORE) continue;
        kiln_em_scope old = kiln_em_enter(em, em->vec, "%s", from);
        kiln_em_start(em);
        kiln_em_put(em, "bypass%d &= (unsigned long)(", id);
        kiln_em_address(em, in, 0);
        kiln_em_put(em, ") %% %d == 0;\n", (int)kiln_dtype_size(em->ir->bufs[in->which].dtype) * em->lanes);
        kiln_em_leave(em, &old);
    }
}
