/* ir_print.c - a kernel -> its text form (the grammar of docs/IR.md).
 *
 * Values are numbered in program order, so printing what the parser read from printed text gives the
 * same text.  Prints kernels that do not verify as well as it can: this is what one looks at then. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ir.h"

typedef struct printer {
    kiln_sb *out;
    const kiln_ir *ir;
    uint32_t *number; /* per instruction: the number its value is shown with */
    int depth;
    bool nameless; /* names are made of places, and traps say nothing */
} printer;

static const char *const role_names[] = {"in", "out", "inout", "tmp"}; /* ORDER: kiln_ir_role */
static const char *const stride_names[] = KILN_STRIDE_NAMES;

static void put_quoted(kiln_sb *out, const char *s) {
    kiln_sb_putc(out, '"');
    for (; *s; s++) {
        unsigned char ch = (unsigned char)*s;
        if (ch == '"' || ch == '\\')
            kiln_sb_printf(out, "\\%c", ch);
        else if (ch < 0x20 || ch == 0x7f)
            kiln_sb_printf(out, "\\x%02x", ch);
        else
            kiln_sb_putc(out, (char)ch);
    }
    kiln_sb_putc(out, '"');
}

static void put_ref(printer *p, kiln_ref r) {
    kiln_sb_putc(p->out, '%');
    if (r < (kiln_ref)p->ir->nins)
        kiln_sb_decimal(p->out, p->number[r]);
    else
        kiln_sb_putc(p->out, '?');
}

static void put_refs(printer *p, const kiln_ref *refs, int n) {
    for (int k = 0; k < n; k++) {
        if (k) kiln_sb_puts(p->out, ", ");
        put_ref(p, refs[k]);
    }
}

/* Prints the name of the item at a place in a list of `count` items, or its letter and its place. */
static void put_name(const printer *p, char letter, int at, int count, const char *name) {
    if (!p->nameless) {
        kiln_sb_puts(p->out, at < count ? name : "?");
        return;
    }
    kiln_sb_putc(p->out, letter);
    kiln_sb_decimal(p->out, (uint64_t)at);
}

static void put_axis(const printer *p, int a) {
    put_name(p, 'a', a, p->ir->naxes, a < p->ir->naxes ? p->ir->axes[a].name : "");
}
static void put_buf(const printer *p, int b) {
    put_name(p, 'b', b, p->ir->nbufs, b < p->ir->nbufs ? p->ir->bufs[b].name : "");
}
static void put_par(const printer *p, int k) {
    put_name(p, 'p', k, p->ir->npars, k < p->ir->npars ? p->ir->pars[k].name : "");
}

static void put_const(kiln_sb *out, const kiln_ir_ins *ins) {
    kiln_sb_printf(out, " %s ", kiln_dtype_name((kiln_dtype)ins->dtype));
    if (ins->dtype == KILN_BOOL)
        kiln_sb_puts(out, ins->imm.i ? "true" : "false");
    else if (ins->dtype == KILN_F32)
        kiln_sb_f32(out, (float)ins->imm.f);
    else if (ins->dtype == KILN_F64)
        kiln_sb_f64(out, ins->imm.f);
    else if (ins->dtype == KILN_U64)
        kiln_sb_printf(out, "%llu", (unsigned long long)ins->imm.i);
    else
        kiln_sb_printf(out, "%lld", (long long)ins->imm.i);
}

static void put_coords(printer *p, const kiln_ir_ins *ins) {
    if (!ins->ncoord) return;
    kiln_sb_puts(p->out, " [");
    for (int k = 0; k < ins->ncoord; k++) {
        if (k) kiln_sb_puts(p->out, ", ");
        put_axis(p, ins->coord[k].axis);
        kiln_sb_puts(p->out, " = ");
        put_ref(p, ins->coord[k].at);
    }
    kiln_sb_putc(p->out, ']');
}

static void put_load(printer *p, const kiln_ir_ins *ins) {
    static const char *const ends[] = {"", ".re", ".im"}; /* ORDER: kiln_ir_part */
    kiln_sb_putc(p->out, ' ');
    put_buf(p, ins->which);
    kiln_sb_puts(p->out, ins->prim <= KILN_PART_IM ? ends[ins->prim] : ".?");
    put_coords(p, ins);
    if (ins->nargs < 2) return;
    kiln_sb_puts(p->out, " if ");
    put_ref(p, ins->arg[0]);
    kiln_sb_puts(p->out, " else ");
    put_ref(p, ins->arg[1]);
}

static void put_store(printer *p, const kiln_ir_ins *ins) {
    kiln_sb_putc(p->out, ' ');
    put_buf(p, ins->which);
    kiln_sb_puts(p->out, ", ");
    put_refs(p, ins->arg, kiln_ir_store_values(ins));
    put_coords(p, ins);
    if (kiln_ir_store_guard(ins) == KILN_NOREF) return;
    kiln_sb_puts(p->out, " if ");
    put_ref(p, kiln_ir_store_guard(ins));
}

static void put_trap(printer *p, const kiln_ir_ins *ins) {
    kiln_sb_putc(p->out, ' ');
    put_ref(p, ins->arg[0]);
    if (ins->which >= p->ir->ntraps) return;
    const kiln_ir_trap *t = &p->ir->traps[ins->which];
    kiln_sb_printf(p->out, ", %s ", kiln_status_name(t->status) + strlen("KILN_"));
    put_quoted(p->out, p->nameless ? "" : t->text);
}

static void put_tree(printer *p, const kiln_ir_ins *ins) {
    kiln_ir_tree t = ins->imm.tree, usual = KILN_TREE_ALONG;
    if (kiln_ir_by_block(ins))
        kiln_sb_printf(p->out, "by block %u ", t.block);
    else if (ins->op == KILN_IR_FOLD && (t.lanes != usual.lanes || t.block != usual.block))
        kiln_sb_printf(p->out, "lanes %u block %u ", t.lanes, t.block);
}

static void put_open(printer *p, const kiln_ir_ins *ins) {
    for (int k = 0; k < ins->ncoord; k++) {
        kiln_sb_putc(p->out, ' ');
        put_axis(p, ins->coord[k].axis);
        kiln_sb_putc(p->out, ',');
    }
    kiln_sb_putc(p->out, ' ');
    put_axis(p, ins->which);
    kiln_sb_putc(p->out, ' ');
    if (ins->op != KILN_IR_FOR) {
        kiln_sb_putc(p->out, '(');
        put_refs(p, ins->list, ins->nargs);
        kiln_sb_puts(p->out, ") ");
        put_tree(p, ins);
    }
    kiln_sb_puts(p->out, ins->vec ? "vec {" : "{");
}

static void put_operands(printer *p, const kiln_ir_ins *ins) {
    switch ((kiln_ir_op)ins->op) {
    case KILN_IR_CONST: put_const(p->out, ins); break;
    case KILN_IR_PAR:
        kiln_sb_putc(p->out, ' ');
        put_par(p, ins->which);
        break;
    case KILN_IR_INDEX:
    case KILN_IR_EXTENT:
        kiln_sb_putc(p->out, ' ');
        put_axis(p, ins->which);
        break;
    case KILN_IR_LOAD: put_load(p, ins); break;
    case KILN_IR_STORE: put_store(p, ins); break;
    case KILN_IR_PRIM:
        kiln_sb_putc(p->out, ' ');
        put_refs(p, ins->arg, ins->nargs);
        break;
    case KILN_IR_CAST:
        kiln_sb_printf(p->out, " %s ", kiln_dtype_name((kiln_dtype)ins->dtype));
        put_ref(p, ins->arg[0]);
        break;
    case KILN_IR_TRAP: put_trap(p, ins); break;
    case KILN_IR_FOR:
    case KILN_IR_FOLD:
    case KILN_IR_SCAN: put_open(p, ins); break;
    case KILN_IR_STATE:
    case KILN_IR_LEFT:
    case KILN_IR_RIGHT: kiln_sb_printf(p->out, " %d", ins->which); break;
    case KILN_IR_YIELD:
        kiln_sb_putc(p->out, ' ');
        put_refs(p, ins->list, ins->nargs);
        break;
    case KILN_IR_RESULT:
        kiln_sb_putc(p->out, ' ');
        put_ref(p, ins->arg[0]);
        kiln_sb_printf(p->out, " %d", ins->which);
        break;
    case KILN_IR_MERGE:
    case KILN_IR_END:
    case KILN_IR_OP_COUNT: break;
    }
}

static void indent(printer *p, int depth) {
    for (int k = 0; k < depth; k++) kiln_sb_puts(p->out, "  ");
}

static void put_ins(printer *p, int i) {
    const kiln_ir_ins *ins = &p->ir->ins[i];
    if (ins->op == KILN_IR_END || ins->op == KILN_IR_MERGE) {
        indent(p, p->depth - 1);
        kiln_sb_puts(p->out, ins->op == KILN_IR_END ? "}\n" : "} merge {\n");
        p->depth -= ins->op == KILN_IR_END;
        return;
    }
    indent(p, p->depth);
    if (kiln_ir_op_makes((kiln_ir_op)ins->op)) {
        put_ref(p, (kiln_ref)i);
        kiln_sb_puts(p->out, " = ");
    }
    kiln_sb_puts(p->out, ins->op == KILN_IR_PRIM ? kiln_prim_name((kiln_prim)ins->prim)
                                                 : kiln_ir_op_name((kiln_ir_op)ins->op));
    put_operands(p, ins);
    kiln_sb_putc(p->out, '\n');
    p->depth += kiln_ir_opens(ins);
}

static void declare_axis(printer *p, int a) {
    kiln_sb_puts(p->out, "  axis ");
    put_axis(p, a);
    const kiln_ir_axis *axis = &p->ir->axes[a];
    kiln_sb_puts(p->out, axis->indexed ? " grid indexed\n" : axis->grid ? " grid\n" : "\n");
}

static void declare_buf(printer *p, int k) {
    const kiln_ir_buf *b = &p->ir->bufs[k];
    kiln_sb_puts(p->out, "  buf ");
    put_buf(p, k);
    kiln_sb_printf(p->out, " %s %s (", role_names[b->role & 3], kiln_dtype_name(b->dtype));
    const char *comma = "";
    for (int a = 0; a < p->ir->naxes; a++) {
        if (!(b->axes >> a & 1)) continue;
        kiln_sb_puts(p->out, comma);
        put_axis(p, a);
        comma = ", ";
    }
    kiln_sb_printf(p->out, ") %s\n", stride_names[(unsigned)b->stride < KILN_STRIDE_COUNT ? b->stride : 0]);
}

static void declare_par(printer *p, int k) {
    kiln_sb_puts(p->out, "  par ");
    put_par(p, k);
    kiln_sb_printf(p->out, " %s\n", kiln_dtype_name(p->ir->pars[k].dtype));
}

static void print(kiln_sb *out, const kiln_ir *ir, bool nameless) {
    printer p = {out, ir, kiln_alloc(sizeof(uint32_t) * (size_t)(ir->nins + 1)), 1, nameless};
    if (!p.number) {
        out->failed = true;
        return;
    }
    uint32_t next = 0;
    for (int i = 0; i < ir->nins; i++)
        p.number[i] = kiln_ir_op_makes((kiln_ir_op)ir->ins[i].op) ? next++ : UINT32_MAX;
    kiln_sb_puts(out, "kernel ");
    put_quoted(out, nameless ? "" : ir->name);
    kiln_sb_puts(out, " {\n");
    for (int a = 0; a < ir->naxes; a++) declare_axis(&p, a);
    for (int b = 0; b < ir->nbufs; b++) declare_buf(&p, b);
    for (int k = 0; k < ir->npars; k++) declare_par(&p, k);
    for (int i = 0; i < ir->nins; i++) put_ins(&p, i);
    kiln_sb_puts(out, "}\n");
    kiln_free(p.number);
}

void kiln_ir_print(kiln_sb *out, const kiln_ir *ir) { print(out, ir, false); }

void kiln_ir_print_nameless(kiln_sb *out, const kiln_ir *ir) { print(out, ir, true); }
