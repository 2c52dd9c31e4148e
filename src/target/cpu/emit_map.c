/* emit_map.c - element-wise nests over one grid axis -> two C loops, over rows and over vectors of KILN_W lanes.
 *
 * The form of nearly all kernels, so it is made for speed: pointers run along, what a broadcast input holds is
 * read once per row, results may bypass the caches, and the last, partial vector goes through small buffers: by the
 * same loop as the whole ones, so that the body is not compiled again for it, or, if it is light, by itself, which compilers
 * make loads and stores with masks of.  Where src/math has a function for two vectors, two are taken at once.  Short
 * rows beside a column are emit_columns.c's, and every other nest is emit_loop.c's. */
#include <string.h>

#include "target/cpu/emit_map.h"

const char *const kiln_em_part_names[] = {"", "re", "im"}; /* ORDER: kiln_ir_part */

static bool strided(const kiln_emitter *em, int buf) { return em->ir->bufs[buf].stride == KILN_STRIDE_ANY; }

bool kiln_em_is_map(const kiln_ir *ir, int begin) {
    const kiln_ir_ins *f = &ir->ins[begin];
    if (ir->naxes != 1 || !ir->axes[f->which].grid || !f->vec) return false;
    for (int r = begin + 1; r < ir->nins && ir->ins[r].op != KILN_IR_END; r++) {
        const kiln_ir_ins *in = &ir->ins[r];
        if (kiln_ir_opens(in) || in->op == KILN_IR_INDEX || in->op == KILN_IR_EXTENT) return false;
        if (in->op == KILN_IR_LOAD && (in->ncoord || in->nargs)) return false;
        if (in->op == KILN_IR_STORE && (in->ncoord || kiln_ir_store_guard(in) != KILN_NOREF)) return false;
        bool access = in->op == KILN_IR_LOAD || in->op == KILN_IR_STORE;
        if (access && !ir->bufs[in->which].axes) return false; /* one place for all points */
        if (in->op == KILN_IR_STORE && ir->bufs[in->which].stride == KILN_STRIDE_BCAST) return false;
        if (in->op == KILN_IR_LOAD && ir->bufs[in->which].stride == KILN_STRIDE_BCAST &&
            ir->bufs[in->which].role != KILN_BUF_IN)
            return false;
    }
    return true;
}

/* -- loads and stores ------------------------------------------------------------------------------------ */

/* Where the vector's elements begin in b, which is no broadcast. */
static void place(kiln_emitter *em, int b) {
    if (!em->second)
        kiln_em_put(em, "p%d", b);
    else
        kiln_em_put(em, "p%d + KILN_W * %d", b, (int)kiln_dtype_size(em->ir->bufs[b].dtype));
}

/* A part of complex elements: of those in a row two vectors are loaded and every other lane taken. */
static void load_part(kiln_emitter *em, const kiln_ir_ins *in) {
    kiln_dtype t = (kiln_dtype)in->dtype;
    const char *name = kiln_dtype_name(t);
    if (!strided(em, in->which)) {
        kiln_em_fn(em, em->loose ? "load_loose_%s_%s" : "load_%s_%s", kiln_em_part_names[in->prim], name);
        kiln_em_put(em, "(p%d)", in->which);
        return;
    }
    kiln_em_fn(em, "gather_%s", name);
    kiln_em_put(em, "(p%d + %d, s%d, k)", in->which, in->prim == KILN_PART_IM ? (int)kiln_dtype_size(t) : 0,
                in->which);
}

static void load(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    const kiln_ir_buf *b = &em->ir->bufs[in->which];
    kiln_em_declare(em, r);
    if (b->stride == KILN_STRIDE_BCAST) {
        kiln_em_put(em, "b%d%s", in->which, kiln_em_part_names[in->prim]);
    } else if (in->prim != KILN_PART_WHOLE) {
        load_part(em, in);
    } else {
        const char *how = kiln_em_loads_far(em, b->dtype) ? "load_far_%s" : "load_%s";
        kiln_em_fn(em, strided(em, in->which) ? "gather_%s" : how, kiln_dtype_name(b->dtype));
        kiln_em_put(em, "(");
        place(em, in->which);
        if (strided(em, in->which)) kiln_em_put(em, ", s%d, k", in->which);
        kiln_em_put(em, ")");
    }
    kiln_em_put(em, ";\n");
}

/* The rest of a store's call: where, and the value or both parts. */
static void store_arguments(kiln_emitter *em, const kiln_ir_ins *in) {
    kiln_em_put(em, "(");
    place(em, in->which);
    for (int k = 0; k < kiln_ir_store_values(in); k++) {
        kiln_em_put(em, ", ");
        kiln_em_use(em, in->arg[k], 8);
    }
    kiln_em_put(em, ");\n");
}

/* Whether results in buf may bypass the caches: they lie in a row, in vectors that some instruction stores so. */
bool kiln_em_streams(const kiln_emitter *em, int buf) {
    size_t part = kiln_dtype_size(kiln_dtype_real(em->ir->bufs[buf].dtype));
    return !strided(em, buf) && part * (size_t)em->lanes >= 16;
}

/* A store of elements in a row. */
static void store_row(kiln_emitter *em, const kiln_ir_ins *in, kiln_em_way way, const char *suffix,
                      const char *type) {
    bool both = way == KILN_EM_ASK && kiln_em_streams(em, in->which);
    kiln_em_start(em);
    if (both || (way == KILN_EM_STREAM && kiln_em_streams(em, in->which))) {
        if (both) kiln_em_put(em, "if (__builtin_expect(bypass, 0)) ");
        kiln_em_fn(em, "stream%s_%s", suffix, type);
        store_arguments(em, in);
        if (!both) return;
        kiln_em_start(em);
        kiln_em_put(em, "else ");
    }
    kiln_em_fn(em, "store%s_%s", suffix, type);
    store_arguments(em, in);
}

static void store_parts(kiln_emitter *em, const kiln_ir_ins *in, kiln_em_way way) {
    kiln_dtype t = kiln_dtype_real((kiln_dtype)in->dtype);
    const char *name = kiln_dtype_name(t);
    if (!strided(em, in->which)) {
        store_row(em, in, way, em->loose ? "_loose_parts" : "_parts", name);
        return;
    }
    for (int k = 0; k < 2; k++) {
        kiln_em_start(em);
        kiln_em_fn(em, "scatter_%s", name);
        kiln_em_put(em, "(p%d + %d, s%d, k, t%u);\n", in->which, k * (int)kiln_dtype_size(t), in->which,
                    in->arg[k]);
    }
}

static void store(kiln_emitter *em, const kiln_ir_ins *in, kiln_em_way way) {
    const kiln_ir_buf *b = &em->ir->bufs[in->which];
    if (kiln_dtype_is_complex(b->dtype)) {
        store_parts(em, in, way);
        return;
    }
    if (!strided(em, in->which)) {
        store_row(em, in, way, "", kiln_dtype_name(b->dtype));
        return;
    }
    kiln_em_start(em);
    kiln_em_fn(em, "scatter_%s", kiln_dtype_name(b->dtype));
    kiln_em_put(em, "(p%d, s%d, k, ", in->which, in->which);
    kiln_em_use(em, in->arg[0], 8);
    kiln_em_put(em, ");\n");
}

/* -- rows ------------------------------------------------------------------------------------------------ */

bool kiln_em_nest_streams(const kiln_emitter *em, const kiln_em_used *u) {
    for (int b = 0; b < em->ir->nbufs; b++)
        if (u->writes[b] && kiln_em_streams(em, b)) return true;
    return false;
}

/* What a broadcast input holds for the whole row, of a complex one the two parts. */
static void broadcast(kiln_emitter *em, int b) {
    kiln_dtype d = em->ir->bufs[b].dtype, part = kiln_dtype_real(d);
    const char *t = kiln_dtype_name(part);
    for (int k = 0; k < (part == d ? 1 : 2); k++) {
        kiln_em_start(em);
        kiln_em_put(em, "const v%s b%d%s = ", kiln_em_kept(part), b,
                    part == d ? "" : kiln_em_part_names[KILN_PART_RE + k]);
        kiln_em_fn(em, "splat_%s", t);
        kiln_em_put(em, part == d ? "(*(const par_%s *)p%d" : "(*(const par_%s *)(p%d + ", t, b);
        if (part != d) kiln_em_put(em, "%d)", k * (int)kiln_dtype_size(part));
        kiln_em_put(em, d == KILN_BOOL ? " != 0);\n" : ");\n");
    }
}

/* q<b>: where a row begins, and d<b>, how far from the next.  past: results go past the caches, as the launch asks for it and
 * all of them lie on vectors' borders in every row. */
static void rows_head(kiln_emitter *em, const kiln_em_used *u) {
    if (kiln_em_nest_streams(em, u)) {
        kiln_em_line(em, "const int stream = (L->flags & %u) != 0;", KILN_LAUNCH_STREAM);
        kiln_em_line(em, "int past = stream;");
    }
    for (int b = 0; b < em->ir->nbufs; b++) {
        if (!kiln_em_touched(u, b)) continue;
        kiln_em_line(em, "char *q%d = L->ptr[%d];", b, b);
        kiln_em_line(em, "const long d%d = L->stride[%d];", b, 2 * b + 1);
        if (u->writes[b] && kiln_em_streams(em, b))
            kiln_em_line(em, "past &= ((unsigned long)q%d | (n1 > 1 ? (unsigned long)d%d : 0)) %% %d == 0;",
                         b, b, (int)kiln_dtype_size(kiln_dtype_real(em->ir->bufs[b].dtype)) * em->lanes);
    }
}

/* Pointers to the row's elements. */
static void row_head(kiln_emitter *em, const kiln_em_used *u) {
    for (int b = 0; b < em->ir->nbufs; b++) {
        if (!kiln_em_touched(u, b)) continue;
        kiln_em_line(em, "char *p%d = q%d;", b, b);
        kiln_em_line(em, "q%d += d%d;", b, b);
        if (em->ir->bufs[b].stride == KILN_STRIDE_BCAST) broadcast(em, b);
    }
}

/* The last vector of a row works in the buffers e<b>; m<b> remembers where its results belong. */
static void tail_in(kiln_emitter *em, const kiln_em_used *u) {
    for (int b = 0; b < em->ir->nbufs; b++) {
        int size = (int)kiln_dtype_size(em->ir->bufs[b].dtype);
        if (!kiln_em_touched(u, b) || em->ir->bufs[b].stride != KILN_STRIDE_CONTIG) continue;
        bool two = kiln_dtype_is_complex(em->ir->bufs[b].dtype); /* registers */
        kiln_em_start(em);
        if (u->reads[b]) {
            kiln_em_fn(em, two ? "copy_in" : "tail_in");
            kiln_em_put(em, "(e%d, %sp%d, k * %d); ", b, two ? "2, " : "", b, size);
        }
        if (u->writes[b]) kiln_em_put(em, "m%d = p%d; ", b, b);
        kiln_em_put(em, "p%d = e%d;\n", b, b);
    }
}

static void tail_out(kiln_emitter *em, const kiln_em_used *u) {
    for (int b = 0; b < em->ir->nbufs; b++) {
        if (!u->writes[b] || em->ir->bufs[b].stride != KILN_STRIDE_CONTIG) continue;
        kiln_em_start(em);
        kiln_em_fn(em, kiln_dtype_is_complex(em->ir->bufs[b].dtype) ? "copy_tail" : "tail_out");
        kiln_em_put(em, "(m%d, e%d, k * %d);\n", b, b, (int)kiln_dtype_size(em->ir->bufs[b].dtype));
    }
}

void kiln_em_advance(kiln_emitter *em, const kiln_em_used *u) {
    for (int b = 0; b < em->ir->nbufs; b++) {
        if (!kiln_em_touched(u, b) || em->ir->bufs[b].stride == KILN_STRIDE_BCAST) continue;
        if (strided(em, b))
            kiln_em_line(em, "p%d += KILN_W * s%d;", b, b);
        else
            kiln_em_line(em, "p%d += KILN_W * %d;", b, (int)kiln_dtype_size(em->ir->bufs[b].dtype));
    }
}

/* -- what is the same along a row ------------------------------------------------------------------------- */

static bool computes(const kiln_ir_ins *in) { return in->op == KILN_IR_PRIM || in->op == KILN_IR_CAST; }

/* Whether r is the same along a row, as its operands must be. */
static bool same_along(const kiln_emitter *em, int r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    if (in->op == KILN_IR_CONST || in->op == KILN_IR_PAR) return true;
    if (in->op == KILN_IR_LOAD) return em->ir->bufs[in->which].stride == KILN_STRIDE_BCAST;
    if (!computes(in)) return false;
    for (int k = 0; k < kiln_ir_noperands(in); k++)
        if (!em->early[kiln_ir_operand(in, k)]) return false;
    return true;
}

/* Compilers do not move a conversion of a vector out of a loop at the level that kernels are built with.  A constant or a number
 * that nothing early needs stays where it is used: before the row it would take a register. */
static void find_early(kiln_emitter *em, int begin, int end) {
    enum { SAME = 1, NEEDED };
    uint8_t *early = em->early;
    for (int r = begin; r < end; r++) early[r] = same_along(em, r) ? SAME : 0;
    for (int r = end - 1; r >= begin; r--) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (early[r] == SAME && !computes(in) && in->op != KILN_IR_LOAD) early[r] = 0;
        for (int k = 0; early[r] && k < kiln_ir_noperands(in); k++) early[kiln_ir_operand(in, k)] = NEEDED;
    }
}

/* Whether the order of lanes is nobody's business: all that lies in memory is complex, of one type, in a row or one for
 * all, and none is asked for by its number.  Registers of 16 bytes have but one order. */
static bool may_be_loose(const kiln_emitter *em, const kiln_em_used *u, int begin, int end) {
    kiln_dtype t = KILN_DTYPE_COUNT;
    for (int b = 0; b < em->ir->nbufs; b++) {
        if (!kiln_em_touched(u, b)) continue;
        if (t == KILN_DTYPE_COUNT) t = em->ir->bufs[b].dtype;
        if (em->ir->bufs[b].dtype != t || strided(em, b)) return false;
    }
    for (int r = begin; r < end; r++)
        if (em->ir->ins[r].op == KILN_IR_TRAP) return false;
    size_t bytes = t < KILN_DTYPE_COUNT ? kiln_dtype_size(t) / 2 * (size_t)em->lanes : 0;
    return kiln_dtype_is_complex(t) && (bytes == 32 || bytes == 64);
}

/* -- the nest -------------------------------------------------------------------------------------------- */

static void value(kiln_emitter *em, int r) {
    if (em->ir->ins[r].op == KILN_IR_LOAD)
        load(em, (kiln_ref)r);
    else
        kiln_em_value(em, (kiln_ref)r);
}

/* What all rows share. */
static void nest_head(kiln_emitter *em, int nest, const kiln_em_used *u) {
    kiln_em_open_nest(em, nest);
    kiln_em_line(em, "const long n0 = L->n[0], n1 = L->n[1];");
    for (int b = 0; b < em->ir->nbufs; b++) {
        if (!kiln_em_touched(u, b)) continue;
        if (strided(em, b)) kiln_em_line(em, "const long s%d = L->stride[%d];", b, 2 * b);
        if (em->ir->bufs[b].stride != KILN_STRIDE_CONTIG) continue;
        kiln_em_line(em, "char e%d[%d] __attribute__((aligned(64)));", b,
                     kiln_dtype_is_complex(em->ir->bufs[b].dtype) ? 2 * KILN_CPU_MAP_TAIL_BYTES
                                                                  : KILN_CPU_MAP_TAIL_BYTES);
        if (u->writes[b]) kiln_em_line(em, "char *m%d = 0;", b);
    }
    for (int k = 0; k < em->ir->npars; k++)
        if (u->pars[k]) kiln_em_read_par(em, k);
    rows_head(em, u);
}

/* Opens the loop over rows. */
static void open_rows(kiln_emitter *em, const kiln_em_used *u, int begin, int end) {
    bool columns = kiln_em_has_columns(em, u, begin, end);
    if (columns) kiln_em_columns(em, u, begin, end);
    kiln_em_open(em, columns ? "for (; r < n1; r++)" : "for (long r = 0; r < n1; r++)");
    row_head(em, u);
    for (int r = begin; r < end; r++)
        if (em->early[r]) value(em, r);
}

/* Instructions begin..end; only stores, all but stores, or both. */
static void instructions(kiln_emitter *em, int begin, int end, kiln_em_way way, bool stores, bool others) {
    for (int r = begin; r < end; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (em->early[r] || (in->op == KILN_IR_STORE ? !stores : !others)) continue;
        if (in->op == KILN_IR_STORE)
            store(em, in, way);
        else if (in->op == KILN_IR_TRAP)
            kiln_em_trap(em, in, "k");
        else
            value(em, r);
    }
}

/* Whether a load follows a store: the store may lie on what it reads, and has to wait. */
static bool loads_after_store(const kiln_ir *ir, int begin, int end) {
    bool stored = false;
    for (int r = begin; r < end; r++) {
        if (ir->ins[r].op == KILN_IR_LOAD && stored) return true;
        stored |= ir->ins[r].op == KILN_IR_STORE;
    }
    return false;
}

void kiln_em_one_vector(kiln_emitter *em, int begin, int end, kiln_em_way way) {
    bool wait = kiln_em_stores_wait(em->ir, begin, end) && loads_after_store(em->ir, begin, end);
    instructions(em, begin, end, way, !wait, true);
    if (wait) instructions(em, begin, end, way, true, false);
}

/* -- light rows: all that a vector takes is printed wherever there is one ---------------------------------- */

/* The loop over a row's whole vectors, so many at a time. */
static void whole_vectors(kiln_emitter *em, const kiln_em_used *u, int begin, int end, kiln_em_way way,
                          int times) {
    if (times > 1)
        kiln_em_open(em, "for (; left >= %d * KILN_W; left -= %d * KILN_W)", times, times);
    else
        kiln_em_open(em, "for (; left >= KILN_W; left -= KILN_W)");
    kiln_em_line(em, "const long k = KILN_W;");
    for (int t = 0; t < times; t++) {
        if (times > 1) kiln_em_brace(em);
        kiln_em_one_vector(em, begin, end, way);
        kiln_em_advance(em, u);
        if (times > 1) kiln_em_close(em);
    }
    kiln_em_close(em);
}

/* Whether rows have a loop of their own for what comes from far, or goes past the caches: none of elements that lie apart. */
static bool has_far_loop(const kiln_emitter *em, const kiln_em_used *u) {
    bool rows = kiln_em_nest_streams(em, u);
    for (int b = 0; b < em->ir->nbufs; b++)
        rows = rows || (u->reads[b] && em->ir->bufs[b].stride == KILN_STRIDE_CONTIG);
    return rows;
}

static void light_row(kiln_emitter *em, const kiln_em_used *u, int begin, int end) {
    bool far = has_far_loop(em, u);
    kiln_em_line(em, "long left = n0;");
    if (far) {
        if (kiln_em_nest_streams(em, u)) kiln_em_line(em, "const int bypass = past;");
        kiln_em_open(em, "if (far)");
        em->far = true;
        whole_vectors(em, u, begin, end, KILN_EM_ASK, 1);
        em->far = false;
        kiln_em_close(em);
        kiln_em_open(em, "else");
    }
    whole_vectors(em, u, begin, end, KILN_EM_STORE, KILN_CPU_MAP_UNROLLED);
    whole_vectors(em, u, begin, end, KILN_EM_STORE, 1);
    if (far) kiln_em_close(em);
    kiln_em_open(em, "if (left > 0)");
    kiln_em_line(em, "const long k = left;");
    tail_in(em, u);
    kiln_em_one_vector(em, begin, end, KILN_EM_STORE);
    tail_out(em, u);
    kiln_em_close(em);
}

/* -- other rows -------------------------------------------------------------------------------------------- */

/* Whether two vectors at once take less time: src/math has such a function for a value, and all elements lie in rows. */
static bool takes_two(const kiln_emitter *em, const kiln_em_used *u, int begin, int end) {
    bool has = false;
    for (int b = 0; b < em->ir->nbufs; b++)
        if (kiln_em_touched(u, b) && (strided(em, b) || kiln_dtype_is_complex(em->ir->bufs[b].dtype)))
            return false;
    for (int r = begin; r < end; r++) {
        if (em->ir->ins[r].op == KILN_IR_TRAP) return false;
        has = has || kiln_em_has_two(em, (kiln_ref)r);
    }
    return has && !loads_after_store(em->ir, begin, end);
}

/* The first instructions of both vectors, then the second ones, and so on: what is shared once, and all stores last. */
static void two_vectors(kiln_emitter *em, const kiln_em_used *u, int begin, int end, kiln_em_way way) {
    kiln_em_open(em, "for (; left >= 2 * KILN_W; left -= 2 * KILN_W)");
    for (int stores = 0; stores < 2; stores++)
        for (int r = begin; r < end; r++) {
            if (stores == 0 && kiln_em_has_two(em, (kiln_ref)r)) {
                kiln_em_two(em, (kiln_ref)r);
                continue;
            }
            instructions(em, r, r + 1, way, stores, !stores);
            em->second = true;
            if (!kiln_em_is_shared(em, (kiln_ref)r)) instructions(em, r, r + 1, way, stores, !stores);
            em->second = false;
        }
    kiln_em_advance(em, u);
    kiln_em_advance(em, u);
    kiln_em_close(em);
}

/* The loop over a row's whole vectors, or over the one in the tail's buffers. */
static void vectors(kiln_emitter *em, const kiln_em_used *u, int begin, int end, kiln_em_way way) {
    kiln_em_open(em, "for (; left >= KILN_W; left -= KILN_W)");
    kiln_em_one_vector(em, begin, end, way);
    kiln_em_advance(em, u);
    kiln_em_close(em);
}

/* A loop for each way of storing. */
static void both_ways(kiln_emitter *em, const kiln_em_used *u, int begin, int end,
                      void (*loop)(kiln_emitter *, const kiln_em_used *, int, int, kiln_em_way)) {
    if (!kiln_em_nest_streams(em, u)) {
        loop(em, u, begin, end, KILN_EM_STORE);
        return;
    }
    kiln_em_open(em, "if (bypass)");
    em->far = true;
    loop(em, u, begin, end, KILN_EM_STREAM);
    em->far = false;
    kiln_em_close(em);
    kiln_em_open(em, "else");
    loop(em, u, begin, end, KILN_EM_STORE);
    kiln_em_close(em);
}

/* A row: its whole vectors, then once more round for the part of one that is left.  Both ways of storing have a loop of
 * their own, unless the body is so large that this would take the compiler too long. */
static void row(kiln_emitter *em, const kiln_em_used *u, int begin, int end) {
    kiln_em_line(em, "long left = n0, k = KILN_W;");
    if (kiln_em_nest_streams(em, u)) kiln_em_line(em, "int bypass = past;");
    bool two = takes_two(em, u, begin, end);
    kiln_em_open(em, "for (;;)");
    if (two) both_ways(em, u, begin, end, two_vectors);
    if (!two && kiln_em_weight(em, begin, end) <= KILN_CPU_MUCH)
        both_ways(em, u, begin, end, vectors);
    else
        vectors(em, u, begin, end, KILN_EM_ASK);
    kiln_em_open(em, "if (k < KILN_W)");
    tail_out(em, u);
    kiln_em_line(em, "break;");
    kiln_em_close(em);
    kiln_em_line(em, "if (left == 0) break;");
    kiln_em_line(em, "k = left;");
    tail_in(em, u);
    if (kiln_em_nest_streams(em, u)) kiln_em_line(em, "bypass = 0;");
    kiln_em_line(em, "left = KILN_W;");
    kiln_em_close(em);
}

void kiln_em_stream_end(kiln_emitter *em) {
    kiln_em_start(em);
    kiln_em_put(em, "if (stream && !(L->flags & %u)) ", KILN_LAUNCH_MORE);
    kiln_em_fn(em, "stream_end");
    kiln_em_put(em, "();\n");
}

void kiln_em_map_nest(kiln_emitter *em, int nest, int begin) {
    int end = (int)em->region_end[begin];
    kiln_em_used u = {{0}, {0}, {0}};
    for (int r = begin + 1; r < end; r++) {
        if (em->ir->ins[r].op == KILN_IR_LOAD) u.reads[em->ir->ins[r].which] = true;
        if (em->ir->ins[r].op == KILN_IR_STORE) u.writes[em->ir->ins[r].which] = true;
        if (em->ir->ins[r].op == KILN_IR_PAR) u.pars[em->ir->ins[r].which] = true;
    }
    find_early(em, begin + 1, end);
    em->loose = may_be_loose(em, &u, begin + 1, end);
    nest_head(em, nest, &u);
    bool light = kiln_em_weight(em, begin + 1, end) <= KILN_CPU_LITTLE;
    if (light && has_far_loop(em, &u))
        kiln_em_line(em, "const int far = %s(L->flags & %u && n0 >= %d);",
                     kiln_em_nest_streams(em, &u) ? "past || " : "", KILN_LAUNCH_MEMORY, KILN_CPU_FAR_ROW);
    open_rows(em, &u, begin + 1, end);
    (light ? light_row : row)(em, &u, begin + 1, end);
    kiln_em_close(em);
    if (kiln_em_nest_streams(em, &u)) kiln_em_stream_end(em);
    kiln_em_line(em, "return 0;");
    kiln_em_close(em);
    kiln_em_put(em, "\n");
}
