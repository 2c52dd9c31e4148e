/* emit_loop.c - general nests: loops over any axes inside each other -> C loops.
 *
 * A loop over axis a that is opened by instruction r counts i<r>, from the launch's first point on; a vector loop
 * counts by KILN_W and says in k how many of its lanes are elements.  Scans stand here too, since they are loops
 * that carry states; folds are emit_fold.c's, and vector loops with loops inside become strips (emit_strip.c)
 * where that is possible. */
#include <stdio.h>
#include <string.h>

#include "target/cpu/emit_impl.h"

/* -- instructions ---------------------------------------------------------------------------------------- */

static void index_value(kiln_emitter *em, kiln_ref r) {
    int axis = em->ir->ins[r].which;
    kiln_em_declare(em, r);
    kiln_em_fn(em, "splat_i64");
    kiln_em_put(em, "(o%d + %s)", em->dim[axis], em->at[axis].pos);
    if (axis == em->vec) {
        kiln_em_put(em, " + ");
        kiln_em_fn(em, "iota_i64");
        kiln_em_put(em, "()");
    }
    kiln_em_put(em, ";\n");
}

/* The cast of a difference of two positions along an axis, the second of which is the same for all lanes: 32 bits are
 * enough from the start.  r is that cast, and the first position is of the loop that the text stands in.  Steps printed
 * in a row share the vector of the first one's position; the others add a constant to it. */
static bool distance_value(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r], *ins = em->ir->ins;
    if (in->op != KILN_IR_CAST || in->dtype != KILN_I32) return false;
    const kiln_ir_ins *d = &ins[in->arg[0]];
    if (d->op != KILN_IR_PRIM || d->prim != KILN_P_SUB) return false;
    const kiln_ir_ins *at = &ins[d->arg[0]], *first = &ins[d->arg[1]];
    if (at->op != KILN_IR_INDEX || first->op != KILN_IR_INDEX || at->which != first->which) return false;
    for (kiln_ref k = d->arg[0]; k < r; k++)
        if (kiln_ir_opens(&ins[k]) || ins[k].op == KILN_IR_MERGE || ins[k].op == KILN_IR_END) return false;
    bool lanes = at->which == em->vec, within = false;
    for (kiln_ref k = d->arg[1]; k < d->arg[0]; k++) within |= kiln_ir_opens(&ins[k]);
    if (!within) return false; /* else `first` may differ from lane to lane */
    kiln_em_declare(em, r);
    kiln_em_fn(em, "apart_i32");
    kiln_em_put(em, "(");
    kiln_em_fn(em, "splat_i32");
    const kiln_em_place *place = &em->at[at->which];
    kiln_em_put(em, "((int)(o%d + (%s - %d) - t%u[0])) + ", em->dim[at->which], place->pos, place->after,
                d->arg[1]);
    if (lanes) {
        kiln_em_fn(em, "iota_i32");
        kiln_em_put(em, "() + ");
    }
    kiln_em_put(em, "%d);\n", place->after);
    return true;
}

static bool place_test(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    bool row = kiln_em_is_row_test(em->ir, r);
    if (!row && !kiln_em_is_place_test(em->ir, r)) return false;
    int axis = em->ir->ins[in->arg[0]].which;
    kiln_em_declare(em, r);
    if (row) {
        kiln_em_fn(em, "splat_i32");
        kiln_em_put(em, "(-(o%d + %s == %lldL));\n", em->dim[axis], em->at[axis].pos,
                    (long long)em->ir->ins[in->arg[1]].imm.i);
        return true;
    }
    kiln_em_fn(em, "lane_is_i32");
    kiln_em_put(em, "(t%u[0] - (o%d + %s));\n", in->arg[1], em->dim[axis], em->at[axis].pos);
    return true;
}

static void extent_value(kiln_emitter *em, kiln_ref r) {
    const kiln_em_place *at = &em->at[em->ir->ins[r].which];
    kiln_em_declare(em, r);
    kiln_em_fn(em, "splat_i64");
    kiln_em_put(em, "(%s - %s);\n", at->end, at->begin);
}

/* STATE, LEFT, RIGHT, RESULT: a member of a struct of states. */
static void state_value(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    char kept[112];
    bool result = in->op == KILN_IR_RESULT;
    kiln_ref of = result ? in->arg[0] : em->fold;
    bool may_be_kept = result || em->ir->ins[of].op == KILN_IR_SCAN;
    kiln_em_declare(em, r);
    if (in->op == KILN_IR_LEFT || in->op == KILN_IR_RIGHT)
        kiln_em_put(em, "%c%u", in->op == KILN_IR_LEFT ? 'l' : 'r', of);
    else if (may_be_kept && kiln_em_kept_states(em, of, kept))
        kiln_em_put(em, "%s", kept);
    else
        kiln_em_put(em, "%c%u", result ? 'f' : 's', of);
    kiln_em_put(em, ".s%d;\n", in->which);
}

void kiln_em_instruction(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    if (em->early[r] || kiln_em_is_only_tested(em->ir, r)) return;
    if (distance_value(em, r) || place_test(em, r) || kiln_em_plain_choice(em, r) || kiln_em_value(em, r))
        return;
    switch ((kiln_ir_op)in->op) {
    case KILN_IR_INDEX: index_value(em, r); break;
    case KILN_IR_EXTENT: extent_value(em, r); break;
    case KILN_IR_LOAD: kiln_em_load(em, r); break;
    case KILN_IR_STORE: kiln_em_store(em, r); break;
    case KILN_IR_TRAP: kiln_em_trap(em, in, em->vec < 0 ? "1" : "k"); break;
    case KILN_IR_STATE:
    case KILN_IR_LEFT:
    case KILN_IR_RIGHT:
    case KILN_IR_RESULT: state_value(em, r); break;
    default: break; /* YIELD is the region's, which knows where states go */
    }
}

void kiln_em_part(kiln_emitter *em, int begin, int end) {
    bool wait = kiln_em_stores_wait(em->ir, begin, end);
    for (int pass = 0; pass < (wait ? 2 : 1); pass++)
        for (int r = begin; r < end; r++) {
            if (wait && (em->ir->ins[r].op == KILN_IR_STORE) != (pass == 1)) continue;
            if (kiln_ir_opens(&em->ir->ins[r])) {
                kiln_em_loop(em, r);
                r = (int)em->region_end[r];
            } else {
                kiln_em_instruction(em, (kiln_ref)r);
            }
        }
}

/* -- loops ----------------------------------------------------------------------------------------------- */

kiln_em_scope kiln_em_enter(kiln_emitter *em, int axis, const char *fmt, ...) {
    kiln_em_scope old = {em->at[axis], em->vec, em->inner, axis, em->fold};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(em->at[axis].pos, sizeof em->at[axis].pos, fmt, ap);
    va_end(ap);
    em->at[axis].after = 0;
    em->inner = axis;
    return old;
}

void kiln_em_leave(kiln_emitter *em, const kiln_em_scope *old) {
    em->at[old->axis] = old->at;
    em->vec = old->vec;
    em->inner = old->inner;
    em->fold = old->fold;
}

bool kiln_em_is_light(const kiln_emitter *em, int begin, int end) {
    for (int r = begin; r < end; r++)
        if (kiln_ir_opens(&em->ir->ins[r])) return false;
    return kiln_em_weight(em, begin, end) <= KILN_CPU_MUCH / 2;
}

void kiln_em_unroll(kiln_emitter *em, int weight) {
    int times = weight <= KILN_CPU_LITTLE ? KILN_CPU_UNROLLED : 2;
    if (weight <= KILN_CPU_WITH_FUNCTION) kiln_em_line(em, "_Pragma(\"GCC unroll %d\")", times);
}

void kiln_em_open_columns(kiln_emitter *em, int begin, const char *from, const char *to, kiln_em_lanes lanes,
                          int weight) {
    if (lanes == KILN_EM_ALL) {
        kiln_em_open(em, "for (long i%d = %s; i%d < %s; i%d += KILN_W)", begin, from, begin, to, begin);
        kiln_em_line(em, "const long k = %s - i%d < KILN_W ? %s - i%d : KILN_W;", to, begin, to, begin);
    } else if (lanes == KILN_EM_WHOLE) {
        kiln_em_brace(em);
        kiln_em_line(em, "long i%d = %s;", begin, from);
        kiln_em_unroll(em, weight);
        kiln_em_open(em, "for (; %s - i%d >= KILN_W; i%d += KILN_W)", to, begin, begin);
        kiln_em_line(em, "const long k = KILN_W;");
    } else {
        kiln_em_open(em, "if (i%d < %s)", begin, to);
        kiln_em_line(em, "const long k = %s - i%d;", to, begin);
    }
}

void kiln_em_close_columns(kiln_emitter *em, kiln_em_lanes lanes) {
    kiln_em_close(em);
    if (lanes == KILN_EM_REST) kiln_em_close(em);
}

/* The outer loop of a grid axis. */
static void open_rows(kiln_emitter *em, int begin, int axis) {
    snprintf(em->at[axis].row, sizeof em->at[axis].row, "j%d", begin);
    kiln_em_open(em, "for (long j%d = 0; j%d < n%d; j%d++)", begin, begin, em->dim[axis] + 1, begin);
}

/* Whether a vector loop has another form for launches whose memory is far: a light one, over rows. */
static bool is_far(const kiln_emitter *em, int begin) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    if (f->op != KILN_IR_FOR || !f->vec || em->ir->axes[f->which].grid) return false;
    if (!em->ir->axes[em->ir->ins[em->nest].which].grid || em->ir->ins[em->nest].vec) return false;
    if (!kiln_em_is_light(em, begin + 1, (int)em->part_end[begin])) return false;
    return kiln_em_stores_bypass(em, begin + 1, (int)em->part_end[begin], f->which) ||
           kiln_em_is_finish(em, begin);
}

/* The launches that are worth such a loop: if there are rows to ask for, those from memory, and those from the second cache if there is
 * an elementary function to be computed meanwhile; else those whose results go past the caches. */
static unsigned far_flags(const kiln_emitter *em, int begin, int end) {
    if (!kiln_em_has_next_rows(em, begin)) return KILN_LAUNCH_STREAM;
    return KILN_LAUNCH_MEMORY | (kiln_em_has_functions(em, begin + 1, end) ? KILN_LAUNCH_FAR : 0);
}

/* Whole vectors of a long row of a launch whose memory is far: the next row is asked for, if it has room near and the processor does not
 * come with it by itself, and results that no later loop reads may be written past the caches; past<begin> says how far the loop came. */
static void far_loop(kiln_emitter *em, int begin, int end) {
    const kiln_em_place at = em->at[em->vec];
    bool bypass = kiln_em_stores_bypass(em, begin + 1, end, em->vec);
    kiln_em_line(em, "long past%d = %s;", begin, at.begin);
    kiln_em_line(em, "const int far%d = (L->flags & %u) && %s - %s >= %d;", begin, far_flags(em, begin, end),
                 at.end, at.begin, KILN_CPU_FAR_ROW);
    kiln_em_line(em, "const long next%d = %s - %s <= (L->flags & %u ? %d : 0) ? 0 : %s - %s <= %d;", begin,
                 at.end, at.begin, KILN_LAUNCH_MEMORY, KILN_CPU_FORESEEN_ROW, at.end, at.begin,
                 KILN_CPU_NEAR_ROW);
    if (bypass) kiln_em_ask_for_borders(em, begin, begin + 1, end, at.begin);
    kiln_em_unroll(em, kiln_em_weight(em, begin + 1, end));
    kiln_em_open(em, "for (long i%d = past%d; far%d && %s - i%d >= KILN_W; i%d += KILN_W, past%d = i%d)",
                 begin, begin, begin, at.end, begin, begin, begin, begin);
    kiln_em_line(em, "const long k = KILN_W;");
    kiln_em_fetch_next_rows(em, begin);
    em->bypass = bypass ? begin : 0;
    kiln_em_part(em, begin + 1, end);
    em->bypass = 0;
    kiln_em_close(em);
}

static void vector_loop(kiln_emitter *em, int begin, int end) {
    const kiln_em_place *at = &em->at[em->vec];
    char from[24];
    bool twice = kiln_em_is_light(em, begin + 1, end);
    kiln_em_lanes last = twice ? KILN_EM_REST : KILN_EM_ALL;
    snprintf(from, sizeof from, "%s", at->begin);
    if (is_far(em, begin)) {
        far_loop(em, begin, end);
        snprintf(from, sizeof from, "past%d", begin);
    }
    for (kiln_em_lanes lanes = twice ? KILN_EM_WHOLE : KILN_EM_ALL; lanes <= last; lanes++) {
        kiln_em_open_columns(em, begin, from, at->end, lanes, kiln_em_weight(em, begin + 1, end));
        kiln_em_part(em, begin + 1, end);
        kiln_em_close_columns(em, lanes);
    }
}

static void for_loop(kiln_emitter *em, int begin) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    int axis = f->which, end = (int)em->region_end[begin];
    bool grid = em->ir->axes[axis].grid;
    kiln_em_scope old = kiln_em_enter(em, axis, "i%d", begin);
    if (grid) open_rows(em, begin, axis);
    if (f->vec) em->vec = axis;
    if (em->segment[begin]) {
        kiln_em_strips(em, begin);
    } else if (em->tiles[begin]) {
        kiln_em_tiled_loop(em, begin, (int)em->tiles[begin]);
    } else if (f->vec) {
        vector_loop(em, begin, end);
    } else {
        kiln_em_open(em, "for (long i%d = %s; i%d < %s; i%d++)", begin, em->at[axis].begin, begin,
                     em->at[axis].end, begin);
        kiln_em_part(em, begin + 1, end);
        kiln_em_close(em);
    }
    if (grid) kiln_em_close(em);
    kiln_em_leave(em, &old);
}

void kiln_em_scan_steps(kiln_emitter *em, int begin, const char *from, const char *to) {
    char states[24];
    int end = (int)em->part_end[begin];
    kiln_em_scope old = kiln_em_enter(em, em->ir->ins[begin].which, "i%d", begin);
    snprintf(states, sizeof states, "a%d", begin);
    em->fold = (kiln_ref)begin;
    kiln_em_open(em, "for (long i%d = %s; i%d < %s; i%d++)", begin, from, begin, to, begin);
    kiln_em_line(em, "const st%d s%d = a%d;", begin, begin, begin);
    kiln_em_part(em, begin + 1, end - 1);
    kiln_em_yield(em, end - 1, states, NULL);
    kiln_em_close(em);
    kiln_em_leave(em, &old);
}

/* A block is run twice: from the initial states without storing, which gives its total, and from its start.  The first
 * block starts from the initial states, so that one pass gives both. */
static void blocked_scan(kiln_emitter *em, int begin, const kiln_em_place *at) {
    char from[16], to[16], start[16], total[16];
    snprintf(from, sizeof from, "lo%d", begin);
    snprintf(to, sizeof to, "hi%d", begin);
    snprintf(start, sizeof start, "b%d", begin);
    snprintf(total, sizeof total, "x%d", begin);
    kiln_em_line(em, "st%d a%d, b%d = f%d, x%d;", begin, begin, begin, begin, begin);
    kiln_em_open_blocks(em, begin, at);
    kiln_em_open(em, "for (int pass%d = lo%d == %s; pass%d < 2; pass%d++)", begin, begin, at->begin, begin,
                 begin);
    kiln_em_line(em, "a%d = pass%d ? b%d : f%d;", begin, begin, begin, begin);
    em->pass[em->npass++] = (kiln_ref)begin;
    kiln_em_scan_steps(em, begin, from, to);
    em->npass--;
    kiln_em_line(em, "if (!pass%d || lo%d == %s) x%d = a%d;", begin, begin, at->begin, begin, begin);
    kiln_em_close(em);
    kiln_em_merge(em, begin, start, total, start, NULL);
    kiln_em_line(em, "if (hi%d == %s) a%d = lo%d == %s ? x%d : b%d;", begin, at->end, begin, begin, at->begin,
                 begin, begin);
    kiln_em_close(em);
    kiln_em_line(em, "if (%s > %s) f%d = a%d;", at->end, at->begin, begin, begin);
}

static void scan(kiln_emitter *em, int begin) {
    const kiln_em_place at = em->at[em->ir->ins[begin].which];
    kiln_em_states(em, begin, "st%d f%d", begin, begin);
    kiln_em_brace(em);
    if (kiln_ir_by_block(&em->ir->ins[begin])) {
        blocked_scan(em, begin, &at);
    } else {
        kiln_em_line(em, "st%d a%d = f%d;", begin, begin, begin);
        kiln_em_scan_steps(em, begin, at.begin, at.end);
        kiln_em_line(em, "f%d = a%d;", begin, begin);
    }
    kiln_em_close(em);
}

void kiln_em_loop(kiln_emitter *em, int begin) {
    int op = em->ir->ins[begin].op;
    if (op == KILN_IR_FOR)
        for_loop(em, begin);
    else if (op == KILN_IR_FOLD)
        kiln_em_fold(em, begin);
    else
        scan(em, begin);
}

/* -- the nest -------------------------------------------------------------------------------------------- */

typedef struct nest_use {
    bool bufs[KILN_IR_MAX_BUFS], pars[KILN_IR_MAX_PARS];
    uint32_t extents, origins; /* bit a: of axis a */
} nest_use;

static void find_use(const kiln_emitter *em, int begin, nest_use *u) {
    memset(u, 0, sizeof *u);
    for (uint32_t r = (uint32_t)begin; r < em->region_end[begin]; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (in->op == KILN_IR_LOAD || in->op == KILN_IR_STORE) u->bufs[in->which] = true;
        if (in->op == KILN_IR_PAR) u->pars[in->which] = true;
        if (in->op == KILN_IR_EXTENT) u->extents |= 1u << in->which;
        if (in->op == KILN_IR_INDEX) u->origins |= 1u << in->which;
        if (kiln_ir_opens(in)) u->extents |= kiln_ir_axes(in);
    }
}

/* What the launch says is read before the loops: for all the compiler knows, a store could change it.  merges: extents may change. */
static void nest_head(kiln_emitter *em, const nest_use *u, bool merges) {
    for (int a = 0; a < em->ir->naxes; a++) {
        int d = em->dim[a];
        for (int k = 0; k <= em->ir->axes[a].grid && u->extents >> a & 1; k++)
            kiln_em_line(em, "%slong n%d = L->n[%d];", merges ? "" : "const ", d + k, d + k);
        if (u->origins >> a & 1) kiln_em_line(em, "const long o%d = L->origin[%d];", d, d);
        snprintf(em->at[a].begin, sizeof em->at[a].begin, "0");
        snprintf(em->at[a].end, sizeof em->at[a].end, "n%d", d);
    }
    for (int b = 0; b < em->ir->nbufs; b++) {
        if (!u->bufs[b]) continue;
        kiln_em_line(em, "char *const p%d = L->ptr[%d];", b, b);
        for (int a = 0; a < em->ir->naxes; a++)
            for (int d = em->dim[a]; d <= em->dim[a] + em->ir->axes[a].grid && em->ir->bufs[b].axes >> a & 1;
                 d++)
                kiln_em_line(em, "const long s%d_%d = L->stride[%d];", b, d, b * em->ndim + d);
    }
    for (int k = 0; k < em->ir->npars; k++)
        if (u->pars[k]) kiln_em_read_par(em, k);
}

/* Whether r, which stands in no loop but the nest's own, is the same at all of its points. */
static bool is_still(const kiln_emitter *em, int r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    if (in->op == KILN_IR_CONST || in->op == KILN_IR_PAR || in->op == KILN_IR_EXTENT) return true;
    if (in->op != KILN_IR_PRIM && in->op != KILN_IR_CAST) return false;
    for (int k = 0; k < kiln_ir_noperands(in); k++)
        if (!em->early[kiln_ir_operand(in, k)]) return false;
    return true;
}

/* What is computed of extents and numbers alone is computed before the loops: whether there are elements at all is asked once, and not
 * for each row.  A constant that nothing of that needs stays where it is used: before the loops it would take a register. */
static void still_values(kiln_emitter *em, int begin) {
    enum { STILL = 1, NEEDED };
    int end = (int)em->region_end[begin];
    for (int r = begin; r < end; r++) em->early[r] = 0;
    for (int r = begin + 1; r < end; r++) {
        if (kiln_ir_opens(&em->ir->ins[r]))
            r = (int)em->region_end[r];
        else
            em->early[r] = is_still(em, r) ? STILL : 0;
    }
    for (int r = end - 1; r > begin; r--) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        bool number = in->op == KILN_IR_CONST || in->op == KILN_IR_PAR;
        if (em->early[r] == STILL && number) em->early[r] = 0;
        for (int k = 0; em->early[r] && k < kiln_ir_noperands(in); k++)
            em->early[kiln_ir_operand(in, k)] = NEEDED;
    }
    for (int r = begin + 1; r < end; r++) {
        uint8_t early = em->early[r];
        em->early[r] = 0;
        if (early) kiln_em_instruction(em, (kiln_ref)r);
        em->early[r] = early;
    }
}

/* The loop over a row, if all that a nest over rows does is to set their elements to numbers; else 0. */
static int filling_loop(const kiln_emitter *em, int begin) {
    int loop = 0, stores = 0;
    if (!em->ir->axes[em->ir->ins[begin].which].grid || em->ir->ins[begin].vec) return 0;
    for (int r = begin + 1; r < (int)em->region_end[begin]; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        const kiln_ir_buf *b = &em->ir->bufs[in->which];
        bool number = in->op == KILN_IR_CONST || in->op == KILN_IR_PAR || in->op == KILN_IR_CAST;
        bool fills = in->op == KILN_IR_STORE && loop && !in->ncoord &&
                     kiln_ir_store_guard(in) == KILN_NOREF && b->stride == KILN_STRIDE_CONTIG;
        stores += fills;
        if (in->op == KILN_IR_FOR && in->vec && !loop)
            loop = r;
        else if (!number && !fills && in->op != KILN_IR_END)
            return 0;
    }
    return stores ? loop : 0;
}

/* Rows that follow each other without gaps are filled as one. */
static void merge_rows(kiln_emitter *em, int begin, int loop) {
    int rows = em->dim[em->ir->ins[begin].which], row = em->dim[em->ir->ins[loop].which];
    const char *and = "if (";
    kiln_em_start(em);
    for (int r = loop + 1; r < (int)em->region_end[loop]; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (in->op != KILN_IR_STORE) continue;
        int size = (int)kiln_dtype_size(em->ir->bufs[in->which].dtype);
        kiln_em_put(em, "%ss%d_%d == n%d * %d", and, in->which, rows, row, size);
        and = " && ";
    }
    kiln_em_put(em, ") n%d *= n%d, n%d = n%d > 0;\n", row, rows, rows, rows);
}

void kiln_em_loop_nest(kiln_emitter *em, int nest, int begin) {
    nest_use u;
    int filling = filling_loop(em, begin);
    find_use(em, begin, &u);
    kiln_em_open_nest(em, nest);
    for (uint32_t r = (uint32_t)begin; r < em->region_end[begin]; r++)
        if (em->ir->ins[r].op == KILN_IR_FOLD || em->ir->ins[r].op == KILN_IR_SCAN)
            kiln_em_states_type(em, (int)r);
    nest_head(em, &u, filling > 0);
    if (filling) merge_rows(em, begin, filling);
    if (em->work) kiln_em_line(em, "char *const work = L->work;");
    bool streams = false;
    em->nest = begin;
    for (uint32_t r = (uint32_t)begin; r < em->region_end[begin]; r++)
        streams |= em->tiles[r] != 0 || is_far(em, (int)r) || kiln_em_strip_bypasses(em, (int)r);
    if (streams) kiln_em_line(em, "const int stream = (L->flags & %u) != 0;", KILN_LAUNCH_STREAM);
    em->vec = em->inner = -1;
    still_values(em, begin);
    kiln_em_loop(em, begin);
    if (streams) kiln_em_stream_end(em);
    kiln_em_line(em, "return 0;");
    kiln_em_close(em);
    kiln_em_put(em, "\n");
}
