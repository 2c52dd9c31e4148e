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
    if (r < (kiln_ref)p->ir->nins)
        kiln_sb_printf(p->out, "%%%u", p->number[r]);
    else
        kiln_sb_puts(p->out, "%?");
}

static void put_refs(printer *p, const kiln_ref *refs, int n) {
    for (int k = 0; k < n; k++) {
        if (k) kiln_sb_puts(p->out, ", ");
        put_ref(p, refs[k]);
    }
}

static const char *axis_name(const printer *p, int a) { return a < p->ir->naxes ? p->ir->axes[a].name : "?"; }
static const char *buf_name(const printer *p, int b) { return b < p->ir->nbufs ? p->ir->bufs[b].name : "?"; }

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
        kiln_sb_printf(p->out, "%s%s = ", k ? ", " : "", axis_name(p, ins->coord[k].axis));
        put_ref(p, ins->coord[k].at);
    }
    kiln_sb_putc(p->out, ']');
}

static void put_load(printer *p, const kiln_ir_ins *ins) {
    static const char *const ends[] = {"", ".re", ".im"}; /* ORDER: kiln_ir_part */
    kiln_sb_printf(p->out, " %s%s", buf_name(p, ins->which),
                   ins->prim <= KILN_PART_IM ? ends[ins->prim] : ".?");
    put_coords(p, ins);
    if (ins->nargs < 2) return;
    kiln_sb_puts(p->out, " if ");
    put_ref(p, ins->arg[0]);
    kiln_sb_puts(p->out, " else ");
    put_ref(p, ins->arg[1]);
}

static void put_store(printer *p, const kiln_ir_ins *ins) {
    kiln_sb_printf(p->out, " %s, ", buf_name(p, ins->which));
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
    put_quoted(p->out, t->text);
}

static void put_tree(printer *p, const kiln_ir_ins *ins) {
    kiln_ir_tree t = ins->imm.tree, usual = KILN_TREE_ALONG;
    if (kiln_ir_by_block(ins))
        kiln_sb_printf(p->out, "by block %u ", t.block);
    else if (ins->op == KILN_IR_FOLD && (t.lanes != usual.lanes || t.block != usual.block))
        kiln_sb_printf(p->out, "lanes %u block %u ", t.lanes, t.block);
}

static void put_open(printer *p, const kiln_ir_ins *ins) {
    for (int k = 0; k < ins->ncoord; k++) kiln_sb_printf(p->out, " %s,", axis_name(p, ins->coord[k].axis));
    kiln_sb_printf(p->out, " %s ", axis_name(p, ins->which));
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
        kiln_sb_printf(p->out, " %s", ins->which < p->ir->npars ? p->ir->pars[ins->which].name : "?");
        break;
    case KILN_IR_INDEX:
    case KILN_IR_EXTENT: kiln_sb_printf(p->out, " %s", axis_name(p, ins->which)); break;
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
    if (kiln_ir_op_makes((kiln_ir_op)ins->op)) kiln_sb_printf(p->out, "%%%u = ", p->number[i]);
    kiln_sb_puts(p->out, ins->op == KILN_IR_PRIM ? kiln_prim_name((kiln_prim)ins->prim)
                                                 : kiln_ir_op_name((kiln_ir_op)ins->op));
    put_operands(p, ins);
    kiln_sb_putc(p->out, '\n');
    p->depth += kiln_ir_opens(ins);
}

static void put_buf(printer *p, const kiln_ir_buf *b) {
    kiln_sb_printf(p->out, "  buf %s %s %s (", b->name, role_names[b->role & 3], kiln_dtype_name(b->dtype));
    const char *comma = "";
    for (int a = 0; a < p->ir->naxes; a++) {
        if (!(b->axes >> a & 1)) continue;
        kiln_sb_printf(p->out, "%s%s", comma, p->ir->axes[a].name);
        comma = ", ";
    }
    kiln_sb_printf(p->out, ") %s\n", stride_names[(unsigned)b->stride < KILN_STRIDE_COUNT ? b->stride : 0]);
}

void kiln_ir_print(kiln_sb *out, const kiln_ir *ir) {
    printer p = {out, ir, kiln_alloc(sizeof(uint32_t) * (size_t)(ir->nins + 1)), 1};
    if (!p.number) {
        out->failed = true;
        return;
    }
    uint32_t next = 0;
    for (int i = 0; i < ir->nins; i++)
        p.number[i] = kiln_ir_op_makes((kiln_ir_op)ir->ins[i].op) ? next++ : UINT32_MAX;
    kiln_sb_puts(out, "kernel ");
    put_quoted(out, ir->name);
    kiln_sb_puts(out, " {\n");
    for (int a = 0; a < ir->naxes; a++)
        kiln_sb_printf(out, "  axis %s%s\n", ir->axes[a].name, ir->axes[a].grid ? " grid" : "");
    for (int b = 0; b < ir->nbufs; b++) put_buf(&p, &ir->bufs[b]);
    for (int k = 0; k < ir->npars; k++)
        kiln_sb_printf(out, "  par %s %s\n", ir->pars[k].name, kiln_dtype_name(ir->pars[k].dtype));
    for (int i = 0; i < ir->nins; i++) put_ins(&p, i);
    kiln_sb_puts(out, "}\n");
    kiln_free(p.number);
}
