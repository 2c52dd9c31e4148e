/* emit_columns.c - short rows beside a column -> one long row, whose vectors pick the column's elements themselves.
 *
 * [65536, 3] + [65536, 1] would be a partial vector for every three elements.  A launch shows by its strides that its rows follow
 * each other in memory, as do a column's elements; such rows are taken as one.  What is the same along a row is
 * computed for KILN_W rows at once, a row to a lane, in variables y<r>; t<r> is picked from y<r> by tables of lane
 * numbers, which a launch makes once.  They are of a period of vectors, which ends where a row ends.  The loop for
 * such launches is printed before the one for all others.  Used by emit_map.c alone; knows no operator. */
#include "target/cpu/emit_map.h"

static bool is_column(const kiln_emitter *em, const kiln_em_used *u, int b) {
    return u->reads[b] && em->ir->bufs[b].stride == KILN_STRIDE_BCAST;
}

static int element_bytes(const kiln_emitter *em, int b) {
    return (int)kiln_dtype_size(em->ir->bufs[b].dtype);
}

/* Bits of a lane of value r if an instruction that changes along a row needs it, and it does not change; else 0. */
static int picked_bits(const kiln_emitter *em, int r, int end) {
    kiln_dtype t = (kiln_dtype)em->ir->ins[r].dtype;
    if (!kiln_em_is_of_rows(em, (kiln_ref)r)) return 0;
    for (int at = r + 1; at < end; at++) {
        const kiln_ir_ins *in = &em->ir->ins[at];
        for (int k = 0; !em->early[at] && k < kiln_ir_noperands(in); k++)
            if (kiln_ir_operand(in, k) == (kiln_ref)r) return t == KILN_BOOL ? em->mask[r] : kiln_em_bits(t);
    }
    return 0;
}

/* Lanes of a loose nest are in another order than the column's, which one table per nest can say. */
bool kiln_em_has_columns(const kiln_emitter *em, const kiln_em_used *u, int begin, int end) {
    bool columns = false, picks = false;
    int loose = 0; /* bits of its lanes */
    for (int b = 0; b < em->ir->nbufs; b++) {
        columns |= is_column(em, u, b);
        if (em->loose && kiln_em_touched(u, b)) loose = 8 * element_bytes(em, b) / 2;
    }
    for (int r = begin; r < end && columns; r++) {
        int bits = picked_bits(em, r, end);
        if (bits * em->lanes > 8 * kiln_isa_vector_bytes(em->isa) || (loose && bits && bits != loose))
            return false;
        picks |= bits > 0;
    }
    return picks;
}

/* Whether something is computed for rows, so that no lane should go unused. */
static bool computes_rows(const kiln_emitter *em, int begin, int end) {
    for (int r = begin; r < end; r++)
        if (kiln_em_is_of_rows(em, (kiln_ref)r) && em->ir->ins[r].op != KILN_IR_LOAD) return true;
    return false;
}

static void open_if_columns(kiln_emitter *em, const kiln_em_used *u) {
    kiln_em_start(em);
    kiln_em_put(em, "if (n0 > 1 && n0 <= %d && n1 >= KILN_W", KILN_CPU_SHORTER_ROW);
    for (int b = 0; b < em->ir->nbufs; b++)
        if (kiln_em_touched(u, b))
            kiln_em_put(em, " && d%d == %s%d", b, is_column(em, u, b) ? "" : "n0 * ", element_bytes(em, b));
    kiln_em_put(em, ") {\n");
    em->indent += 4;
}

/* lanes<bits>: of a period, which uses up `used` rows and has no more vectors than rows have elements. */
static void tables(kiln_emitter *em, int begin, int end) {
    const char *least = computes_rows(em, begin, end) ? "KILN_W" : "1";
    unsigned made = 0;
    kiln_em_line(em, "long used, period;");
    for (int r = begin; r < end; r++) {
        int bits = picked_bits(em, r, end);
        if (!bits || made & (unsigned)bits) continue;
        made |= (unsigned)bits;
        kiln_em_line(em, "vi%d lanes%d[%d];", bits, bits, KILN_CPU_SHORTER_ROW);
        kiln_em_start(em);
        kiln_em_put(em, "period = ");
        kiln_em_fn(em, "column_lanes_i%d", bits);
        kiln_em_put(em, "(lanes%d, n0, %s, &used);\n", bits, least);
        if (!em->loose) continue;
        kiln_em_start(em);
        kiln_em_fn(em, "loose_lanes_f%d", bits);
        kiln_em_put(em, "(lanes%d, period);\n", bits);
    }
}

/* bypass: results are written past the caches.  A long row has but one beginning that must lie on a vector's border. */
static void set_bypass(kiln_emitter *em, const kiln_em_used *u) {
    kiln_em_start(em);
    kiln_em_put(em, "const int bypass = stream");
    for (int b = 0; b < em->ir->nbufs; b++)
        if (u->writes[b] && kiln_em_streams(em, b))
            kiln_em_put(em, " && (unsigned long)q%d %% %d == 0", b,
                        (int)kiln_dtype_size(kiln_dtype_real(em->ir->bufs[b].dtype)) * em->lanes);
    kiln_em_put(em, ";\n");
}

/* p<buffer> of what lies in rows begins where q<buffer> is, or q<buffer> goes on where p<buffer> is. */
static void copy_pointers(kiln_emitter *em, const kiln_em_used *u, bool back) {
    for (int b = 0; b < em->ir->nbufs; b++)
        if (kiln_em_touched(u, b) && !is_column(em, u, b))
            kiln_em_line(em, "%s%d = %c%d;", back ? "q" : "char *p", b, back ? 'p' : 'q', b);
}

/* Constants and numbers, which all rows share, where a value of rows needs them. */
static void values_of_all(kiln_emitter *em, int begin, int end) {
    for (int r = begin; r < end; r++)
        if (em->early[r] && !kiln_em_is_of_rows(em, (kiln_ref)r)) (void)kiln_em_value(em, (kiln_ref)r);
}

/* y<r>, of the next KILN_W rows; then columns go on. */
static void values_of_rows(kiln_emitter *em, const kiln_em_used *u, int begin, int end) {
    em->of_rows = true;
    for (int r = begin; r < end; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (!kiln_em_is_of_rows(em, (kiln_ref)r) || kiln_em_value(em, (kiln_ref)r)) continue;
        bool whole = in->prim == KILN_PART_WHOLE;
        kiln_dtype t = whole ? em->ir->bufs[in->which].dtype : (kiln_dtype)in->dtype;
        kiln_em_declare(em, (kiln_ref)r);
        kiln_em_fn(em, "load_%s%s%s", kiln_em_part_names[in->prim], whole ? "" : "_", kiln_dtype_name(t));
        kiln_em_put(em, "(q%d);\n", in->which);
    }
    em->of_rows = false;
    for (int b = 0; b < em->ir->nbufs; b++)
        if (is_column(em, u, b)) kiln_em_line(em, "q%d += used * %d;", b, element_bytes(em, b));
}

/* t<r>, of the elements of vector c of the period. */
static void pick(kiln_emitter *em, int begin, int end) {
    for (int r = begin; r < end; r++) {
        int bits = picked_bits(em, r, end);
        if (!bits) continue;
        kiln_em_declare(em, (kiln_ref)r);
        kiln_em_fn(em, "pick_%d", bits);
        kiln_em_put(em, "(y%d, lanes%d[c]);\n", r, bits);
    }
}

/* Columns are read by whole vectors, so a few rows are left in the end. */
void kiln_em_columns(kiln_emitter *em, const kiln_em_used *u, int begin, int end) {
    kiln_em_line(em, "long r = 0;");
    open_if_columns(em, u);
    tables(em, begin, end);
    copy_pointers(em, u, false);
    values_of_all(em, begin, end);
    if (kiln_em_nest_streams(em, u)) set_bypass(em, u);
    kiln_em_open(em, "for (; r + KILN_W <= n1; r += used)");
    values_of_rows(em, u, begin, end);
    kiln_em_open(em, "for (long c = 0; c < period; c++)");
    kiln_em_line(em, "const long k = KILN_W;");
    pick(em, begin, end);
    kiln_em_one_vector(em, begin, end, KILN_EM_ASK);
    kiln_em_advance(em, u);
    kiln_em_close(em);
    kiln_em_close(em);
    copy_pointers(em, u, true);
    kiln_em_close(em);
}
