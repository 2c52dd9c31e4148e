/* emit_strip.c - a vector loop with loops inside -> loops over rows around loops over the columns of a strip.
 *
 * Columns are taken in strips of some length.  Within one, each segment of the body (emit_plan.c) runs over all columns
 * before the next, so that a fold over rows reads memory in rows, and what the next block of rows needs of a column
 * stays in a cache.  Folds keep the stacks of their counters in the work, [level][column]; the result is level 0. */
#include <stdio.h>

#include "target/cpu/emit_impl.h"

/* tail: the region whose yield ends the part, or -1. */
static void strip_part(kiln_emitter *em, int begin, int end, int tail);

/* -- the work -------------------------------------------------------------------------------------------- */

static int columns(const kiln_emitter *em) { return KILN_CPU_STRIP / em->lanes; }

/* States of a fold or scan at `level` of its stack, for the columns of this vector. */
static void states_at(const kiln_emitter *em, int begin, const char *level, char text[112]) {
    snprintf(text, 112, "((st%d *)(work + %u))[%s * %d + v]", begin, em->work_at[begin], level, columns(em));
}

static void kept_value(kiln_emitter *em, kiln_ref r) {
    kiln_dtype t = (kiln_dtype)em->ir->ins[r].dtype;
    if (t == KILN_BOOL)
        kiln_em_put(em, "((vi%d *)(work + %u))[v]", em->mask[r], em->work_at[r]);
    else
        kiln_em_put(em, "((v%s *)(work + %u))[v]", kiln_em_kept(t), em->work_at[r]);
}

bool kiln_em_kept_states(const kiln_emitter *em, kiln_ref r, char text[112]) {
    if (em->work_at[r] == KILN_EM_NONE) return false;
    states_at(em, (int)r, "0", text);
    return true;
}

/* -- segments -------------------------------------------------------------------------------------------- */

static void load_kept(kiln_emitter *em, kiln_ref user, kiln_ref r) {
    if (em->work_at[r] == KILN_EM_NONE || em->segment[r] == em->segment[user]) return;
    if (em->loaded[r] == em->nloads || kiln_ir_opens(&em->ir->ins[r])) return;
    em->loaded[r] = em->nloads;
    kiln_em_declare(em, r);
    kept_value(em, r);
    kiln_em_put(em, ";\n");
}

/* Declares the values of other segments that instructions begin..end of this one use. */
static void load_operands(kiln_emitter *em, uint32_t segment, int begin, int end) {
    for (int r = begin; r < end; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        if (em->segment[r] != segment) continue;
        for (int k = 0; k < kiln_ir_noperands(in); k++) load_kept(em, (kiln_ref)r, kiln_ir_operand(in, k));
    }
}

/* At the head of the loop over columns: the number of the vector, and what is kept from other segments. */
static void begin_segment(kiln_emitter *em, uint32_t segment, int begin, int end) {
    kiln_em_line(em, "const unsigned long v = (unsigned long)(i%u - c%u_0) / KILN_W;", em->strip, em->strip);
    em->nloads++;
    load_operands(em, segment, begin, end);
}

/* From column `from` of the strip to its end. */
static void open_lanes(kiln_emitter *em, uint32_t segment, int begin, int end, const char *from,
                       kiln_em_lanes lanes) {
    int s = (int)em->strip;
    char to[16];
    snprintf(to, sizeof to, "c%d_1", s);
    kiln_em_open_columns(em, s, from, to, lanes, kiln_em_weight(em, begin, end));
    begin_segment(em, segment, begin, end);
}

static void open_segment(kiln_emitter *em, uint32_t segment, int begin, int end) {
    char from[16];
    snprintf(from, sizeof from, "c%u_0", em->strip);
    open_lanes(em, segment, begin, end, from, KILN_EM_ALL);
}

static void segment_instruction(kiln_emitter *em, kiln_ref r) {
    kiln_em_instruction(em, r);
    if (em->work_at[r] == KILN_EM_NONE) return;
    kiln_em_start(em);
    kept_value(em, r);
    kiln_em_put(em, " = t%u;\n", r);
}

/* -- folds ----------------------------------------------------------------------------------------------- */

/* A counter of blocks, or of runs of several axes: its variables in C, and where its stack begins. */
typedef struct counter {
    int begin;
    const char *of; /* what it counts */
    int level;
} counter;

static counter counter_of_blocks(const kiln_emitter *em, int begin) {
    return (counter){begin, "blocks", em->ir->ins[begin].ncoord ? KILN_EM_LEVELS : 0};
}

/* Before a state is pushed: how many of those on the stack it takes in.  last: whether none follows. */
static void count_next(kiln_emitter *em, const counter *c, const char *last) {
    int b = c->begin;
    kiln_em_line(em, "long %s%d_take = 0;", c->of, b);
    kiln_em_open(em, "for (long q = %s ? -1 : %s%d_count; q & 1 && %s%d_take < %s%d_top; q >>= 1)", last,
                 c->of, b, c->of, b, c->of, b);
    kiln_em_line(em, "%s%d_take++;", c->of, b);
    kiln_em_close(em);
    kiln_em_line(em, "%s%d_top -= %s%d_take, %s%d_count++;", c->of, b, c->of, b, c->of, b);
}

/* In a segment: merges x<begin> with them and puts it in their place. */
static void push(kiln_emitter *em, const counter *c) {
    int b = c->begin;
    char state[16], level[48], at[112];
    snprintf(state, sizeof state, "x%d", b);
    snprintf(level, sizeof level, "(%s%d_top + d + %d)", c->of, b, c->level - 1);
    states_at(em, b, level, at);
    kiln_em_open(em, "for (long d = %s%d_take; d > 0; d--)", c->of, b);
    kiln_em_merge(em, b, at, state, state, NULL);
    kiln_em_close(em);
    snprintf(level, sizeof level, "(%s%d_top + %d)", c->of, b, c->level);
    states_at(em, b, level, at);
    kiln_em_line(em, "%s = x%d;", at, b);
}

static void block_of_columns(kiln_emitter *em, int begin, bool whole, bool in_registers) {
    counter blocks = counter_of_blocks(em, begin);
    begin_segment(em, em->segment[begin], begin, (int)em->region_end[begin]);
    kiln_em_states(em, begin, "const st%d z%d", begin, begin);
    kiln_em_line(em, "st%d x%d;", begin, begin);
    if (in_registers)
        kiln_em_block_in_registers(em, begin, whole);
    else
        kiln_em_block_by_elements(em, begin);
    push(em, &blocks);
    kiln_em_close(em);
}

/* Whether the next block is asked for while one is folded: where blocks are short, and printed for whole vectors. */
static bool asks_ahead(const kiln_emitter *em, int begin) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    return !kiln_ir_by_block(f) && f->imm.tree.block <= KILN_CPU_BLOCK_STEPS &&
           kiln_em_whole_blocks(em, begin);
}

/* Whole vectors of columns of a whole block. */
static void whole_columns(kiln_emitter *em, int begin, bool far) {
    int s = (int)em->strip;
    kiln_em_open(em, "for (; c%d_1 - i%d >= KILN_W; i%d += KILN_W)", s, s, s);
    kiln_em_line(em, "const long k = KILN_W;");
    if (far && asks_ahead(em, begin)) kiln_em_fetch_next_block(em, begin);
    em->far = far;
    block_of_columns(em, begin, true, true);
    em->far = false;
}

/* A block of rows of a fold whose step has no loops.  Where it is whole, so are all vectors of columns but the last. */
static void block_of_rows(kiln_emitter *em, int begin) {
    int s = (int)em->strip, whole = kiln_em_whole_blocks(em, begin);
    kiln_em_line(em, "long i%d = c%d_0;", s, s);
    if (whole > 0) {
        kiln_em_open(em, "if (hi%d - lo%d == %u)", begin, begin, em->ir->ins[begin].imm.tree.block);
        if (kiln_em_only_reads(em, begin)) {
            kiln_em_open(em, "if (!(L->flags & %u))", KILN_LAUNCH_MEMORY);
            whole_columns(em, begin, false);
            kiln_em_close(em);
        }
        whole_columns(em, begin, true);
    }
    if (whole > 2) {
        kiln_em_open(em, "for (; i%d < c%d_1; i%d = c%d_1)", s, s, s, s);
        kiln_em_line(em, "const long k = c%d_1 - i%d;", s, s);
        block_of_columns(em, begin, true, true);
    }
    if (whole > 0) kiln_em_close(em);
    kiln_em_open(em, "for (; i%d < c%d_1; i%d += KILN_W)", s, s, s);
    kiln_em_line(em, "const long k = c%d_1 - i%d < KILN_W ? c%d_1 - i%d : KILN_W;", s, s, s, s);
    block_of_columns(em, begin, false, whole > 1);
}

/* All blocks of the last axis. */
static void fold_blocks(kiln_emitter *em, int begin) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    const kiln_em_place at = em->at[f->which];
    counter blocks = counter_of_blocks(em, begin);
    char last[48];
    snprintf(last, sizeof last, "hi%d == %s", begin, at.end);
    kiln_em_line(em, "long blocks%d_top = 0, blocks%d_count = 0;", begin, begin);
    if (asks_ahead(em, begin)) kiln_em_ask_how_rows_lie(em, begin);
    kiln_em_open_blocks(em, begin, &at);
    count_next(em, &blocks, last);
    if (kiln_ir_by_block(f)) {
        kiln_em_scope old = kiln_em_enter_block(em, begin);
        strip_part(em, begin + 1, (int)em->part_end[begin] - 1, begin);
        kiln_em_leave(em, &old);
    } else {
        block_of_rows(em, begin);
    }
    kiln_em_line(em, "blocks%d_top++;", begin);
    kiln_em_close(em);
}

/* Prints the loops over the slower axes.  Each turn folds the blocks of one run and pushes the run's state on the stack of runs. */
static void fold_runs(kiln_emitter *em, int begin) {
    kiln_em_scope old[KILN_IR_MAX_AXES];
    counter runs = {begin, "runs", 0};
    char last[48], run[112], level[16];
    snprintf(last, sizeof last, "runs%d_count == total%d - 1", begin, begin);
    snprintf(level, sizeof level, "%d", KILN_EM_LEVELS);
    states_at(em, begin, level, run);
    kiln_em_line(em, "long runs%d_top = 0, runs%d_count = 0;", begin, begin);
    kiln_em_open_runs(em, begin, old);
    fold_blocks(em, begin);
    kiln_em_line(em, "if (!blocks%d_top) break;", begin);
    count_next(em, &runs, last);
    open_segment(em, em->segment[begin], (int)em->part_end[begin], (int)em->region_end[begin]);
    kiln_em_line(em, "st%d x%d = %s;", begin, begin, run);
    push(em, &runs);
    kiln_em_close(em);
    kiln_em_line(em, "runs%d_top++;", begin);
    kiln_em_close_runs(em, begin, old);
}

/* A segment that sets kept states, to other ones or (from is NULL) to the initial ones. */
static void set_states(kiln_emitter *em, int begin, const char *level, const char *from) {
    char to[112], value[112];
    states_at(em, begin, level, to);
    open_segment(em, em->segment[begin], begin, begin + 1);
    if (!from) kiln_em_states(em, begin, "const st%d z%d", begin, begin);
    if (!from) snprintf(value, sizeof value, "z%d", begin);
    if (from) states_at(em, begin, from, value);
    kiln_em_line(em, "%s = %s;", to, value);
    kiln_em_close(em);
}

static void fold(kiln_emitter *em, int begin) {
    bool several = em->ir->ins[begin].ncoord > 0;
    kiln_em_brace(em);
    if (several)
        fold_runs(em, begin);
    else
        fold_blocks(em, begin);
    kiln_em_open(em, "if (!%s%d_top)", several ? "runs" : "blocks", begin);
    set_states(em, begin, "0", NULL);
    kiln_em_close(em);
    kiln_em_close(em);
}

/* -- loops over rows ------------------------------------------------------------------------------------- */

static void rows(kiln_emitter *em, int begin, const char *from, const char *to) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    bool scans = f->op == KILN_IR_SCAN;
    kiln_em_scope old = kiln_em_enter(em, f->which, "i%d", begin);
    if (scans) em->fold = (kiln_ref)begin;
    kiln_em_open(em, "for (long i%d = %s; i%d < %s; i%d++)", begin, from, begin, to, begin);
    strip_part(em, begin + 1, (int)em->part_end[begin] - scans, scans ? begin : -1);
    kiln_em_close(em);
    kiln_em_leave(em, &old);
}

/* What is kept of a scan by block. */
#define STATES "0" /* of the last step */
#define START "1"  /* of the block */
#define TOTAL "2"

/* As blocked_scan of emit_loop.c, for all columns. */
static void scan_blocks(kiln_emitter *em, int begin, const kiln_em_place *at) {
    char lo[16], hi[16], start[112], total[112];
    snprintf(lo, sizeof lo, "lo%d", begin);
    snprintf(hi, sizeof hi, "hi%d", begin);
    states_at(em, begin, START, start);
    states_at(em, begin, TOTAL, total);
    set_states(em, begin, START, NULL);
    kiln_em_open_blocks(em, begin, at);
    kiln_em_open(em, "for (int pass%d = lo%d == %s; pass%d < 2; pass%d++)", begin, begin, at->begin, begin,
                 begin);
    kiln_em_open(em, "if (pass%d)", begin);
    set_states(em, begin, STATES, START);
    em->indent -= 4;
    kiln_em_open(em, "} else");
    set_states(em, begin, STATES, NULL);
    kiln_em_close(em);
    em->pass[em->npass++] = (kiln_ref)begin;
    rows(em, begin, lo, hi);
    em->npass--;
    kiln_em_open(em, "if (!pass%d || lo%d == %s)", begin, begin, at->begin);
    set_states(em, begin, TOTAL, STATES);
    kiln_em_close(em);
    kiln_em_close(em);
    open_segment(em, em->segment[begin], (int)em->part_end[begin], (int)em->region_end[begin]);
    kiln_em_merge(em, begin, start, total, start, NULL);
    kiln_em_close(em);
    kiln_em_close(em);
    kiln_em_open(em, "if (%s - %s > %u)", at->end, at->begin, em->ir->ins[begin].imm.tree.block);
    set_states(em, begin, STATES, START);
    kiln_em_close(em);
}

static void loop(kiln_emitter *em, int begin) {
    const kiln_ir_ins *f = &em->ir->ins[begin];
    const kiln_em_place at = em->at[f->which];
    if (f->op == KILN_IR_FOLD) {
        fold(em, begin);
        return;
    }
    if (f->op == KILN_IR_SCAN) set_states(em, begin, STATES, NULL);
    if (f->op == KILN_IR_SCAN && kiln_ir_by_block(f))
        scan_blocks(em, begin, &at);
    else
        rows(em, begin, at.begin, at.end);
}

/* -- parts ----------------------------------------------------------------------------------------------- */

/* The yield at the end of a region, in its last segment. */
static void yield(kiln_emitter *em, int begin) {
    int at = (int)em->part_end[begin] - 1;
    char to[112];
    if (em->ir->ins[begin].op == KILN_IR_SCAN) {
        states_at(em, begin, "0", to);
        kiln_em_yield(em, at, to, NULL);
        return;
    }
    load_operands(em, em->segment[begin], at + 1, (int)em->region_end[begin]); /* the merge's */
    snprintf(to, sizeof to, "x%d", begin);
    kiln_em_line(em, "st%d x%d;", begin, begin);
    kiln_em_yield(em, at, to, NULL);
    counter blocks = counter_of_blocks(em, begin);
    push(em, &blocks);
}

/* What is the same for all columns, outside the loop over them. */
static uint32_t uniform_values(kiln_emitter *em, int begin, int end) {
    uint32_t segment = 0;
    int vec = em->vec;
    em->vec = -1;
    for (int r = begin; r < end; r++) {
        if (em->segment[r])
            segment = em->segment[r];
        else
            kiln_em_instruction(em, (kiln_ref)r);
    }
    em->vec = vec;
    return segment;
}

static void segment_instructions(kiln_emitter *em, int begin, int end) {
    bool wait = kiln_em_stores_wait(em->ir, begin, end);
    for (int pass = 0; pass < (wait ? 2 : 1); pass++)
        for (int r = begin; r < end; r++)
            if (em->segment[r] && (!wait || (em->ir->ins[r].op == KILN_IR_STORE) == (pass == 1)))
                segment_instruction(em, (kiln_ref)r);
}

/* Whole vectors of such a loop, where results go past the caches; past<begin> says how far it came. */
static void run_past_caches(kiln_emitter *em, uint32_t segment, int begin, int end) {
    int s = (int)em->strip;
    char from[16];
    snprintf(from, sizeof from, "c%d_0", s);
    kiln_em_line(em, "long past%d = %s;", begin, from);
    kiln_em_ask_for_borders(em, begin, begin, end, from);
    kiln_em_unroll(em, kiln_em_weight(em, begin, end));
    kiln_em_open(em,
                 "for (long i%d = past%d; bypass%d && c%d_1 - i%d >= KILN_W; i%d += KILN_W, past%d = i%d)", s,
                 begin, begin, s, s, s, begin, s);
    kiln_em_line(em, "const long k = KILN_W;");
    begin_segment(em, segment, begin, end);
    em->bypass = begin;
    segment_instructions(em, begin, end);
    em->bypass = 0;
    kiln_em_close(em);
}

/* Instructions begin..end, which open no region. */
static void run(kiln_emitter *em, int begin, int end, int tail) {
    uint32_t segment = uniform_values(em, begin, end);
    char from[16];
    if (tail >= 0) segment = em->segment[end];
    if (!segment) return;
    bool twice = tail < 0 && kiln_em_is_light(em, begin, end);
    kiln_em_lanes last = twice ? KILN_EM_REST : KILN_EM_ALL;
    bool past = twice && kiln_em_stores_bypass(em, begin, end, em->vec);
    snprintf(from, sizeof from, past ? "past%d" : "c%d_0", past ? begin : (int)em->strip);
    if (past) run_past_caches(em, segment, begin, end);
    for (kiln_em_lanes lanes = twice ? KILN_EM_WHOLE : KILN_EM_ALL; lanes <= last; lanes++) {
        open_lanes(em, segment, begin, tail >= 0 ? end + 1 : end, from, lanes);
        segment_instructions(em, begin, end);
        if (tail >= 0) yield(em, tail);
        kiln_em_close_columns(em, lanes);
    }
}

bool kiln_em_strip_bypasses(const kiln_emitter *em, int r) {
    if (!em->segment[r] || em->ir->ins[r].op != KILN_IR_STORE) return false;
    int loop = r; /* the vector loop around it */
    while (!(em->ir->ins[loop].op == KILN_IR_FOR && em->ir->ins[loop].vec && (int)em->region_end[loop] > r))
        loop--;
    return kiln_em_stores_bypass(em, r, r + 1, em->ir->ins[loop].which);
}

static void strip_part(kiln_emitter *em, int begin, int end, int tail) {
    int from = begin;
    for (int r = begin; r < end; r++) {
        if (!kiln_ir_opens(&em->ir->ins[r])) continue;
        run(em, from, r, -1);
        loop(em, r);
        r = (int)em->region_end[r];
        from = r + 1;
    }
    run(em, from, end, tail);
}

void kiln_em_strips(kiln_emitter *em, int begin) {
    const kiln_em_place *at = &em->at[em->ir->ins[begin].which];
    em->strip = (kiln_ref)begin;
    kiln_em_open(em, "for (long c%d_0 = %s; c%d_0 < %s; c%d_0 += %d)", begin, at->begin, begin, at->end,
                 begin, KILN_CPU_STRIP);
    kiln_em_line(em, "const long c%d_1 = %s - c%d_0 < %d ? %s : c%d_0 + %d;", begin, at->end, begin,
                 KILN_CPU_STRIP, at->end, begin, KILN_CPU_STRIP);
    strip_part(em, begin + 1, (int)em->region_end[begin], -1);
    kiln_em_close(em);
}
