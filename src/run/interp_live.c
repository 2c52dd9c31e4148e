/* interp_live.c - preparing, first half: when each value of a nest is read for the last time.
 *
 * Also says what runs after the rest of its region (stores, lanes of a vec fold) and which new states
 * may overwrite the old ones at once.  Looks at the text of the kernel only. */
#include "run/interp_prep.h"

/* -- liveness ---------------------------------------------------------------------------------------- */

/* A value read in a loop deeper than its own lives until that loop ends, since the loop comes round. */
static void note_use(prep *q, uint32_t user, kiln_ref r) {
    const kiln_ir_ins *ins = &q->ir->ins[user];
    uint32_t part = q->v[user].part, last = user;
    if (q->v[user].late) last = q->v[part].end;
    if (kiln_ir_opens(ins)) last = q->v[user].end; /* initial states are read again for each lane */
    for (; part != q->v[r].part; part = q->v[part].part) last = q->v[part].end;
    if (q->v[r].last < last) q->v[r].last = last;
    if (q->ir->ins[r].op == KILN_IR_RESULT && r != user) note_use(q, user, q->ir->ins[r].arg[0]);
}

/* Fills part and end for the nest that starts at begin; returns its END. */
static int find_parts(prep *q, int begin) {
    uint32_t open[KILN_IR_MAX_NEST], part[KILN_IR_MAX_NEST];
    int depth = 0;
    for (int i = begin;; i++) {
        value *v = &q->v[i];
        const kiln_ir_ins *ins = &q->ir->ins[i];
        v->part = depth ? part[depth - 1] : NONE;
        v->ptr = v->splat = v->dying = v->next = NONE;
        if (kiln_ir_opens(ins)) {
            part[depth] = open[depth] = (uint32_t)i;
            depth++;
        } else if (ins->op == KILN_IR_MERGE) {
            v->part = q->v[open[depth - 1]].part;
            part[depth - 1] = (uint32_t)i;
        } else if (ins->op == KILN_IR_END) {
            depth--;
            q->v[open[depth]].end = q->v[part[depth]].end = (uint32_t)i;
            if (depth == 0) return i;
        }
    }
}

int kiln_interp_part_end(const prep *q, int open, bool *flat) {
    *flat = true;
    int i = open + 1;
    for (; q->ir->ins[i].op != KILN_IR_END && q->ir->ins[i].op != KILN_IR_MERGE; i++) {
        if (!kiln_ir_opens(&q->ir->ins[i])) continue;
        *flat = false;
        i = (int)q->v[i].end;
    }
    return i;
}

/* Splits the step of a vec fold into a part over blocks and a part over lanes, if no memory access
 * depends on the state. */
static void mark_lanes(prep *q, int open, int end) {
    bool ok = true;
    for (int i = open + 1; i < end; i++) {
        const kiln_ir_ins *ins = &q->ir->ins[i];
        q->v[i].lane = ins->op == KILN_IR_STATE;
        for (int k = 0; k < kiln_ir_noperands(ins); k++) q->v[i].lane |= q->v[kiln_ir_operand(ins, k)].lane;
        if (ins->op == KILN_IR_LOAD && q->v[i].lane) ok = false;
    }
    for (int i = open + 1; i < end; i++)
        q->v[i].late = ok && (q->v[i].lane || q->ir->ins[i].op == KILN_IR_YIELD);
}

/* Stores come after all loads of their block, so that an output may lie on an input; not where a
 * buffer is read back after it was written. */
static void mark_stores(prep *q, int open, int end) {
    bool stored = false;
    for (int i = open + 1; i < end; i++) {
        const kiln_ir_ins *ins = &q->ir->ins[i];
        if (ins->op == KILN_IR_LOAD && stored && q->ir->bufs[ins->which].role != KILN_BUF_IN) return;
        stored |= ins->op == KILN_IR_STORE;
    }
    for (int i = open + 1; i < end; i++)
        q->v[i].late = q->ir->ins[i].op == KILN_IR_STORE || q->ir->ins[i].op == KILN_IR_YIELD;
}

/* Whether state k of the region opened at open may be overwritten as soon as v is made: nothing that
 * runs later reads the old one. */
static bool overwritable(const prep *q, int open, int end, uint32_t v, int k) {
    for (int i = open + 1; i < end; i++) {
        const kiln_ir_ins *ins = &q->ir->ins[i];
        bool later = (uint32_t)i > v || ins->op == KILN_IR_STORE;
        for (int a = 0; later && a < kiln_ir_noperands(ins); a++) {
            const kiln_ir_ins *d = &q->ir->ins[kiln_ir_operand(ins, a)];
            if (d->op == KILN_IR_STATE && d->which == k) return false;
        }
    }
    return true;
}

/* Marks new states that need no register of their own.  An outer fold's states are none of this region's,
 * but marking too little is harmless. */
static void mark_direct(prep *q, int open, int end) {
    const kiln_ir_ins *yield = &q->ir->ins[end - 1];
    for (int k = 0; k < yield->nargs; k++) {
        kiln_ref v = yield->list[k];
        const kiln_ir_ins *d = &q->ir->ins[v];
        if (d->op != KILN_IR_PRIM && d->op != KILN_IR_CAST) continue;
        if (q->v[v].part != (uint32_t)open) continue;
        if (q->v[v].direct) { /* for two states */
            q->v[v].direct = 0;
            continue;
        }
        if (overwritable(q, open, end, v, k)) q->v[v].direct = (uint8_t)(k + 1);
    }
}

void kiln_interp_live(prep *q, int begin) {
    int end = find_parts(q, begin);
    for (int i = begin; i < end; i++) {
        const kiln_ir_ins *ins = &q->ir->ins[i];
        bool flat;
        if (!kiln_ir_opens(ins)) continue;
        int stop = kiln_interp_part_end(q, i, &flat);
        if (!flat) continue;
        if (ins->op == KILN_IR_FOLD && ins->vec) mark_lanes(q, i, stop);
        if (ins->list && (!ins->vec || q->v[stop - 1].late)) mark_direct(q, i, stop);
        if (ins->op != KILN_IR_FOLD) mark_stores(q, i, stop);
    }
    for (int i = begin; i < end; i++)
        for (int k = 0; k < kiln_ir_noperands(&q->ir->ins[i]); k++)
            note_use(q, (uint32_t)i, kiln_ir_operand(&q->ir->ins[i], k));
}
