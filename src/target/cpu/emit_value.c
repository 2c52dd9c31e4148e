/* emit_value.c - values of IR -> C expressions over the vector functions of src/math.
 *
 * Every primitive P on type T is printed as the call `P_T(...)`: this file knows no primitive by name.  A bool is
 * a mask as wide as the type that made it; uses of another width convert it.  Value r is the C variable t<r>,
 * whichever nest it stands in; u<r> is the same of the second of two vectors at once, y<r> that of many rows, one to
 * a lane.  Knows neither loops nor memory. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "target/cpu/emit_impl.h"
#include "math/math.h"

/* -- text ------------------------------------------------------------------------------------------------ */

void kiln_em_put(kiln_emitter *em, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    kiln_sb_vprintf(&em->body, fmt, ap);
    va_end(ap);
}

void kiln_em_start(kiln_emitter *em) {
    for (int k = 0; k < em->indent; k++) kiln_sb_putc(&em->body, ' ');
}

void kiln_em_line(kiln_emitter *em, const char *fmt, ...) {
    va_list ap;
    kiln_em_start(em);
    va_start(ap, fmt);
    kiln_sb_vprintf(&em->body, fmt, ap);
    va_end(ap);
    kiln_sb_putc(&em->body, '\n');
}

void kiln_em_open(kiln_emitter *em, const char *fmt, ...) {
    va_list ap;
    kiln_em_start(em);
    va_start(ap, fmt);
    kiln_sb_vprintf(&em->body, fmt, ap);
    va_end(ap);
    kiln_sb_puts(&em->body, " {\n");
    em->indent += 4;
}

void kiln_em_open_nest(kiln_emitter *em, int nest) {
    kiln_em_start(em);
    if (em->number) kiln_em_put(em, "static int kernel%d_nest%d", em->number, nest);
    if (!em->number) kiln_em_put(em, "static int nest%d", nest);
    kiln_em_open(em, "(const kiln_launch *L)");
}

void kiln_em_brace(kiln_emitter *em) {
    kiln_em_line(em, "{");
    em->indent += 4;
}

void kiln_em_close(kiln_emitter *em) {
    em->indent -= 4;
    kiln_em_line(em, "}");
}

void kiln_em_fn(kiln_emitter *em, const char *fmt, ...) {
    char name[KILN_EM_NAME] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    int k = 0;
    while (k < em->nnames && strcmp(em->names[k], name) != 0) k++;
    if (k == KILN_EM_MAX_NAMES)
        em->overflow = true;
    else if (k == em->nnames)
        memcpy(em->names[em->nnames++], name, sizeof name);
    kiln_sb_puts(&em->body, name);
}

/* -- types ----------------------------------------------------------------------------------------------- */

int kiln_em_bits(kiln_dtype t) { return (int)kiln_dtype_size(t) * 8; }

const char *kiln_em_kept(kiln_dtype t) {
    if (t == KILN_BOOL) return "i8";
    return t == KILN_F16 || t == KILN_BF16 ? "u16" : kiln_dtype_name(t);
}

const char *kiln_em_kept_state(const kiln_emitter *em, kiln_dtype t) {
    if (t != KILN_BOOL) return kiln_em_kept(t);
    return em->truth == 64 ? "i64" : em->truth == 32 ? "i32" : em->truth == 16 ? "i16" : "i8";
}

bool kiln_em_is_shared(const kiln_emitter *em, kiln_ref r) {
    return em->early[r] || em->ir->ins[r].op == KILN_IR_CONST || em->ir->ins[r].op == KILN_IR_PAR;
}

bool kiln_em_is_of_rows(const kiln_emitter *em, kiln_ref r) {
    return em->early[r] && em->ir->ins[r].op != KILN_IR_CONST && em->ir->ins[r].op != KILN_IR_PAR;
}

static char letter(const kiln_emitter *em, kiln_ref r) {
    if (em->of_rows && kiln_em_is_of_rows(em, r)) return 'y';
    return em->second && !kiln_em_is_shared(em, r) ? 'u' : 't';
}

void kiln_em_declare(kiln_emitter *em, kiln_ref r) {
    kiln_dtype t = (kiln_dtype)em->ir->ins[r].dtype;
    kiln_em_start(em);
    if (t == KILN_BOOL)
        kiln_em_put(em, "const vi%d %c%u = ", em->mask[r], letter(em, r), r);
    else
        kiln_em_put(em, "const v%s %c%u = ", kiln_em_kept(t), letter(em, r), r);
}

void kiln_em_use(kiln_emitter *em, kiln_ref r, int bits) {
    bool convert = em->ir->ins[r].dtype == KILN_BOOL && bits && em->mask[r] != bits;
    if (convert) {
        kiln_em_fn(em, "mask_%d_%d", bits, em->mask[r]);
        kiln_sb_putc(&em->body, '(');
    }
    kiln_em_put(em, "%c%u", letter(em, r), r);
    if (convert) kiln_sb_putc(&em->body, ')');
}

/* Bits per lane of the mask that instruction r makes. */
static int mask_width(const kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    bool state = in->op == KILN_IR_STATE || in->op == KILN_IR_LEFT || in->op == KILN_IR_RIGHT ||
                 in->op == KILN_IR_RESULT;
    if (state) return em->truth;
    if (in->op != KILN_IR_PRIM && in->op != KILN_IR_CAST) return 8;
    if (kiln_em_is_place_test(em->ir, r) || kiln_em_is_row_test(em->ir, r)) return 32;
    bool select = in->op == KILN_IR_PRIM && kiln_prim_rule((kiln_prim)in->prim) == KILN_RULE_SELECT;
    kiln_ref from = in->arg[select ? 1 : 0];
    kiln_dtype t = (kiln_dtype)em->ir->ins[from].dtype;
    return t == KILN_BOOL ? em->mask[from] : kiln_em_bits(t);
}

/* Bools that come of numbers have these numbers' width: states are kept in it where there is only one, so that no step
 * has to narrow them. */
static int truth_width(const kiln_emitter *em) {
    int width = 0;
    for (int r = 0; r < em->ir->nins; r++) {
        const kiln_ir_ins *in = &em->ir->ins[r];
        bool computes = in->op == KILN_IR_PRIM || in->op == KILN_IR_CAST;
        if (in->dtype != KILN_BOOL || !computes || em->ir->ins[in->arg[0]].dtype == KILN_BOOL) continue;
        int bits = kiln_em_bits((kiln_dtype)em->ir->ins[in->arg[0]].dtype);
        if (width && width != bits) return 8;
        width = bits;
    }
    return width ? width : 8;
}

void kiln_em_masks(kiln_emitter *em) {
    em->truth = truth_width(em);
    for (int r = 0; r < em->ir->nins; r++)
        if (em->ir->ins[r].dtype == KILN_BOOL) em->mask[r] = (uint8_t)mask_width(em, (kiln_ref)r);
}

/* -- literals -------------------------------------------------------------------------------------------- */

/* The shortest decimal that reads back to the same bits, as a C literal. */
static void float_literal(kiln_sb *s, kiln_dtype t, double v) {
    const char *suffix = t == KILN_F32 ? "f" : "";
    if (isnan(v)) {
        kiln_sb_printf(s, "__builtin_nan%s(\"\")", suffix);
    } else if (isinf(v)) {
        kiln_sb_printf(s, "%s__builtin_inf%s()", v < 0 ? "-" : "", suffix);
    } else {
        size_t start = s->len;
        if (t == KILN_F32)
            kiln_sb_f32(s, (float)v);
        else
            kiln_sb_f64(s, v);
        if (!s->failed && !strpbrk(s->p + start, ".e")) kiln_sb_puts(s, ".0");
        kiln_sb_puts(s, suffix);
    }
}

static void constant(kiln_emitter *em, const kiln_ir_ins *in) {
    kiln_dtype t = (kiln_dtype)in->dtype;
    kiln_em_fn(em, "splat_%s", kiln_dtype_name(t));
    kiln_sb_putc(&em->body, '(');
    if (kiln_dtype_is_float(t))
        float_literal(&em->body, t, in->imm.f);
    else if (t == KILN_U64)
        kiln_em_put(em, "%lluUL", (unsigned long long)in->imm.i);
    else if (in->imm.i == INT64_MIN)
        kiln_em_put(em, "-9223372036854775807L - 1");
    else
        kiln_em_put(em, "%lldL", (long long)in->imm.i);
    kiln_em_put(em, ")");
}

/* -- instructions ---------------------------------------------------------------------------------------- */

/* P_T(args): masks among them get the width of T, or for bool the width of the result's operands. */
static void primitive(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    int value_arg = kiln_prim_rule((kiln_prim)in->prim) == KILN_RULE_SELECT ? 1 : 0;
    kiln_ref first = in->arg[value_arg];
    kiln_dtype t = (kiln_dtype)em->ir->ins[first].dtype;
    int bits = t == KILN_BOOL ? em->mask[first] : kiln_em_bits(t);
    kiln_em_fn(em, "%s_%s", kiln_prim_name((kiln_prim)in->prim), kiln_dtype_name(t));
    kiln_sb_putc(&em->body, '(');
    for (int k = 0; k < in->nargs; k++) {
        if (k) kiln_sb_puts(&em->body, ", ");
        kiln_em_use(em, in->arg[k], bits);
    }
    kiln_sb_putc(&em->body, ')');
}

/* Its name: that of the primitive on the type of its operand. */
static void two_name(const kiln_emitter *em, const kiln_ir_ins *in, char name[KILN_EM_NAME]) {
    snprintf(name, KILN_EM_NAME, "two_%s_%s", kiln_prim_name((kiln_prim)in->prim),
             kiln_dtype_name((kiln_dtype)em->ir->ins[in->arg[0]].dtype));
}

bool kiln_em_has_two(const kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    char name[KILN_EM_NAME];
    if (in->op != KILN_IR_PRIM || in->nargs != 1 || kiln_em_is_shared(em, r)) return false;
    two_name(em, in, name);
    return kiln_math_has(name);
}

void kiln_em_two(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    char name[KILN_EM_NAME];
    two_name(em, in, name);
    kiln_em_line(em, "v%s t%u, u%u;", kiln_em_kept((kiln_dtype)in->dtype), r, r);
    kiln_em_start(em);
    kiln_em_fn(em, "%s", name);
    kiln_em_put(em, "(t%u, u%u, &t%u, &u%u);\n", in->arg[0], in->arg[0], r, r);
}

static void cast(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    kiln_dtype to = (kiln_dtype)in->dtype, from = (kiln_dtype)em->ir->ins[in->arg[0]].dtype;
    kiln_em_fn(em, "cast_%s_%s", kiln_dtype_name(to), kiln_dtype_name(from));
    kiln_sb_putc(&em->body, '(');
    kiln_em_use(em, in->arg[0], kiln_em_bits(to));
    kiln_sb_putc(&em->body, ')');
}

bool kiln_em_value(kiln_emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    if (in->op != KILN_IR_CONST && in->op != KILN_IR_PAR && in->op != KILN_IR_PRIM && in->op != KILN_IR_CAST)
        return false;
    kiln_em_declare(em, r);
    switch ((kiln_ir_op)in->op) {
    case KILN_IR_CONST: constant(em, in); break;
    case KILN_IR_PAR: kiln_em_put(em, "c%d", in->which); break;
    case KILN_IR_PRIM: primitive(em, r); break;
    default: cast(em, r); break;
    }
    kiln_sb_puts(&em->body, ";\n");
    return true;
}

void kiln_em_read_par(kiln_emitter *em, int par) {
    const char *t = kiln_dtype_name(em->ir->pars[par].dtype);
    kiln_em_start(em);
    kiln_em_put(em, "const v%s c%d = ", kiln_em_kept(em->ir->pars[par].dtype), par);
    kiln_em_fn(em, "splat_%s", t);
    kiln_em_put(em, "(*(const par_%s *)&L->par[%d]);\n", t, par);
}

void kiln_em_trap(kiln_emitter *em, const kiln_ir_ins *in, const char *lanes) {
    kiln_em_start(em);
    kiln_em_put(em, "{ const vi8 bad = ");
    kiln_em_use(em, in->arg[0], 8);
    kiln_em_put(em, "; if (");
    kiln_em_fn(em, "any_lane");
    kiln_em_put(em, "(bad)) for (long j = 0; j < %s; j++) if (bad[j]) return %d; }\n", lanes,
                KILN_TRAP_BASE + in->which);
}

bool kiln_em_stores_wait(const kiln_ir *ir, int begin, int end) {
    bool stored = false;
    for (int r = begin; r < end; r++) {
        const kiln_ir_ins *in = &ir->ins[r];
        if (kiln_ir_opens(in)) return false;
        if (in->op == KILN_IR_LOAD && stored && ir->bufs[in->which].role != KILN_BUF_IN) return false;
        stored |= in->op == KILN_IR_STORE;
    }
    return stored;
}
