/* emit_c.c - IR -> header-free C over the vector functions of src/math.
 *
 * Every primitive P on type T is printed as the call `P_T(...)`: this file knows no primitive by name.
 * A nest over a grid axis becomes two loops, rows and vectors of KILN_W lanes; the last, partial vector
 * goes through small buffers, so the body is compiled once.  A bool is a mask as wide as the type that
 * made it; uses of another width convert it.  Must not know operators or how the text is compiled. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "emit/emit.h"
#include "kiln/kiln_abi.h"
#include "math/math.h"

enum { MAX_NAMES = 512, NAME_LEN = 32, TAIL_BYTES = 64 }; /* tails: of the widest register */

typedef struct emitter {
    const kiln_ir *ir;
    kiln_isa isa;
    int lanes;
    kiln_sb body;            /* nests and entry point */
    char (*names)[NAME_LEN]; /* math functions used */
    int nnames;
    uint8_t *mask; /* per value: bits per lane if it is a bool */
    bool overflow; /* too many names */
} emitter;

/* -- names ------------------------------------------------------------------------------------------------- */

/* Notes that the math function `name` is used, and prints it. */
__attribute__((format(printf, 2, 3))) static void fn(emitter *em, const char *fmt, ...) {
    char name[NAME_LEN];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    int k = 0;
    while (k < em->nnames && strcmp(em->names[k], name) != 0) k++;
    if (k == MAX_NAMES)
        em->overflow = true;
    else if (k == em->nnames)
        memcpy(em->names[em->nnames++], name, sizeof name);
    kiln_sb_puts(&em->body, name);
}

static const char *c_type(kiln_dtype t) {
    switch (t) {
    case KILN_BOOL:
    case KILN_U8: return "unsigned char";
    case KILN_I8: return "signed char";
    case KILN_I16: return "short";
    case KILN_I32: return "int";
    case KILN_I64: return "long";
    case KILN_U16: return "unsigned short";
    case KILN_U32: return "unsigned";
    case KILN_U64: return "unsigned long";
    case KILN_F16:
    case KILN_BF16: return "unsigned short";
    case KILN_F32: return "float";
    case KILN_F64: return "double";
    case KILN_C64:
    case KILN_C128: /* never a value */
    case KILN_DTYPE_COUNT: break;
    }
    return "?";
}

static int bits_of(kiln_dtype t) { return (int)kiln_dtype_size(t) * 8; }

/* The C type of value r: a mask for bool, bits for half. */
static void value_type(emitter *em, kiln_ref r) {
    kiln_dtype t = (kiln_dtype)em->ir->ins[r].dtype;
    if (t == KILN_BOOL)
        kiln_sb_printf(&em->body, "vi%d", em->mask[r]);
    else
        kiln_sb_printf(&em->body, "v%s", t == KILN_F16 || t == KILN_BF16 ? "u16" : kiln_dtype_name(t));
}

/* Value r, as a mask of `bits` per lane if it is a bool (0: as it is). */
static void use(emitter *em, kiln_ref r, int bits) {
    bool convert = em->ir->ins[r].dtype == KILN_BOOL && bits && em->mask[r] != bits;
    if (convert) {
        fn(em, "mask_%d_%d", bits, em->mask[r]);
        kiln_sb_putc(&em->body, '(');
    }
    kiln_sb_printf(&em->body, "t%u", r);
    if (convert) kiln_sb_putc(&em->body, ')');
}

/* -- literals ---------------------------------------------------------------------------------------------- */

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

static void constant(emitter *em, const kiln_ir_ins *in) {
    kiln_dtype t = (kiln_dtype)in->dtype;
    fn(em, "splat_%s", kiln_dtype_name(t));
    kiln_sb_putc(&em->body, '(');
    if (kiln_dtype_is_float(t))
        float_literal(&em->body, t, in->imm.f);
    else if (t == KILN_U64)
        kiln_sb_printf(&em->body, "%lluUL", (unsigned long long)in->imm.i);
    else if (in->imm.i == INT64_MIN)
        kiln_sb_puts(&em->body, "-9223372036854775807L - 1");
    else
        kiln_sb_printf(&em->body, "%lldL", (long long)in->imm.i);
    kiln_sb_puts(&em->body, ")");
}

/* -- instructions ------------------------------------------------------------------------------------------- */

/* Bits per lane of the mask that instruction r makes. */
static int mask_width(const emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    if (in->op != KILN_IR_PRIM && in->op != KILN_IR_CAST) return 8;
    kiln_ref from =
        in->arg[in->op == KILN_IR_PRIM && kiln_prim_rule((kiln_prim)in->prim) == KILN_RULE_SELECT ? 1 : 0];
    kiln_dtype t = (kiln_dtype)em->ir->ins[from].dtype;
    return t == KILN_BOOL ? em->mask[from] : bits_of(t);
}

/* P_T(args): masks among them get the width of T, or for bool the width of the result's operands. */
static void primitive(emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    int value_arg = kiln_prim_rule((kiln_prim)in->prim) == KILN_RULE_SELECT ? 1 : 0;
    kiln_ref first = in->arg[value_arg];
    kiln_dtype t = (kiln_dtype)em->ir->ins[first].dtype;
    int bits = t == KILN_BOOL ? em->mask[first] : bits_of(t);
    fn(em, "%s_%s", kiln_prim_name((kiln_prim)in->prim), kiln_dtype_name(t));
    kiln_sb_putc(&em->body, '(');
    for (int k = 0; k < in->nargs; k++) {
        if (k) kiln_sb_puts(&em->body, ", ");
        use(em, in->arg[k], bits);
    }
    kiln_sb_putc(&em->body, ')');
}

static void cast(emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    kiln_dtype to = (kiln_dtype)in->dtype, from = (kiln_dtype)em->ir->ins[in->arg[0]].dtype;
    fn(em, "cast_%s_%s", kiln_dtype_name(to), kiln_dtype_name(from));
    kiln_sb_putc(&em->body, '(');
    use(em, in->arg[0], bits_of(to));
    kiln_sb_putc(&em->body, ')');
}

static bool strided(const emitter *em, int buf) { return em->ir->bufs[buf].stride == KILN_STRIDE_ANY; }

/* Names of what belongs to a part of an element.  ORDER: kiln_ir_part */
static const char *const part_names[] = {"", "re", "im"};

/* A part of complex elements: of those in a row two vectors are loaded and every other lane taken. */
static void load_part(emitter *em, const kiln_ir_ins *in) {
    kiln_dtype t = (kiln_dtype)in->dtype;
    const char *name = kiln_dtype_name(t);
    if (!strided(em, in->which)) {
        fn(em, "load_%s_%s", part_names[in->prim], name);
        kiln_sb_printf(&em->body, "(p%d)", in->which);
        return;
    }
    fn(em, "gather_%s", name);
    kiln_sb_printf(&em->body, "(p%d + %d, s%d, k)", in->which,
                   in->prim == KILN_PART_IM ? (int)kiln_dtype_size(t) : 0, in->which);
}

static void load(emitter *em, const kiln_ir_ins *in) {
    const kiln_ir_buf *b = &em->ir->bufs[in->which];
    if (b->stride == KILN_STRIDE_BCAST) {
        kiln_sb_printf(&em->body, "b%d%s", in->which, part_names[in->prim]);
        return;
    }
    if (in->prim != KILN_PART_WHOLE) {
        load_part(em, in);
        return;
    }
    fn(em, strided(em, in->which) ? "gather_%s" : "load_%s", kiln_dtype_name(b->dtype));
    kiln_sb_printf(&em->body, strided(em, in->which) ? "(p%d, s%d, k)" : "(p%d)", in->which, in->which);
}

/* The rest of a store's call: where, and the value or both parts. */
static void store_arguments(emitter *em, const kiln_ir_ins *in) {
    kiln_sb_printf(&em->body, "(p%d", in->which);
    for (int k = 0; k < kiln_ir_store_values(in); k++) {
        kiln_sb_puts(&em->body, ", ");
        use(em, in->arg[k], 8);
    }
    kiln_sb_puts(&em->body, ");\n");
}

/* Whether results in buf may bypass the caches: they lie in a row, in vectors that some instruction stores so. */
static bool streams(const emitter *em, int buf) {
    size_t part = kiln_dtype_size(kiln_dtype_real(em->ir->bufs[buf].dtype));
    return !strided(em, buf) && part * (size_t)em->lanes >= 16;
}

/* `store` of a row of elements, or `stream` where the row asked for that; how the call goes on, says the caller. */
static void store_row(emitter *em, const kiln_ir_ins *in, const char *suffix, const char *type) {
    kiln_sb_puts(&em->body, "            ");
    if (streams(em, in->which)) {
        kiln_sb_printf(&em->body, "if (nt%d) ", in->which);
        fn(em, "stream%s_%s", suffix, type);
        store_arguments(em, in);
        kiln_sb_puts(&em->body, "            else ");
    }
    fn(em, "store%s_%s", suffix, type);
    store_arguments(em, in);
}

static void store_parts(emitter *em, const kiln_ir_ins *in) {
    kiln_dtype t = kiln_dtype_real((kiln_dtype)in->dtype);
    const char *name = kiln_dtype_name(t);
    if (!strided(em, in->which)) {
        store_row(em, in, "_parts", name);
        return;
    }
    for (int k = 0; k < 2; k++) {
        kiln_sb_puts(&em->body, "            ");
        fn(em, "scatter_%s", name);
        kiln_sb_printf(&em->body, "(p%d + %d, s%d, k, t%u);\n", in->which, k * (int)kiln_dtype_size(t),
                       in->which, in->arg[k]);
    }
}

static void store(emitter *em, const kiln_ir_ins *in) {
    const kiln_ir_buf *b = &em->ir->bufs[in->which];
    if (kiln_dtype_is_complex(b->dtype)) {
        store_parts(em, in);
        return;
    }
    if (!strided(em, in->which)) {
        store_row(em, in, "", kiln_dtype_name(b->dtype));
        return;
    }
    kiln_sb_puts(&em->body, "            ");
    fn(em, "scatter_%s", kiln_dtype_name(b->dtype));
    kiln_sb_printf(&em->body, "(p%d, s%d, k, ", in->which, in->which);
    use(em, in->arg[0], 8);
    kiln_sb_puts(&em->body, ");\n");
}

static void trap(emitter *em, const kiln_ir_ins *in) {
    kiln_sb_puts(&em->body, "            { const vi8 bad = ");
    use(em, in->arg[0], 8);
    kiln_sb_puts(&em->body, "; if (");
    fn(em, "any_lane");
    kiln_sb_printf(&em->body, "(bad)) for (long j = 0; j < k; j++) if (bad[j]) return %d; }\n",
                   KILN_TRAP_BASE + in->which);
}

/* Scalars are read before the loops: for all the compiler knows, a store could change them. */
static void read_parameter(emitter *em, int par) {
    const char *t = kiln_dtype_name(em->ir->pars[par].dtype);
    kiln_sb_printf(&em->body, "    const v%s c%d = ", em->ir->pars[par].dtype == KILN_BOOL ? "i8" : t, par);
    fn(em, "splat_%s", t);
    kiln_sb_printf(&em->body, "(*(const par_%s *)&L->par[%d]);\n", t, par);
}

static kiln_status instruction(emitter *em, kiln_ref r) {
    const kiln_ir_ins *in = &em->ir->ins[r];
    if (in->dtype == KILN_BOOL) em->mask[r] = (uint8_t)mask_width(em, r);
    if (in->op == KILN_IR_STORE || in->op == KILN_IR_TRAP) {
        if (in->ncoord || (in->op == KILN_IR_STORE && kiln_ir_store_guard(in) != KILN_NOREF))
            return KILN_FAIL(KILN_E_UNSUP, "emit: computed places have no C form yet");
        if (in->op == KILN_IR_STORE)
            store(em, in);
        else
            trap(em, in);
        return KILN_OK;
    }
    kiln_sb_puts(&em->body, "            const ");
    value_type(em, r);
    kiln_sb_printf(&em->body, " t%u = ", r);
    switch ((kiln_ir_op)in->op) {
    case KILN_IR_CONST: constant(em, in); break;
    case KILN_IR_PAR: kiln_sb_printf(&em->body, "c%d", in->which); break;
    case KILN_IR_LOAD:
        if (in->ncoord || in->arg[0] != KILN_NOREF)
            return KILN_FAIL(KILN_E_UNSUP, "emit: computed places have no C form yet");
        load(em, in);
        break;
    case KILN_IR_PRIM: primitive(em, r); break;
    case KILN_IR_CAST: cast(em, r); break;
    default: return KILN_FAIL(KILN_E_UNSUP, "emit: only element-wise nests have a C form yet");
    }
    kiln_sb_puts(&em->body, ";\n");
    return KILN_OK;
}

/* -- nests ------------------------------------------------------------------------------------------------- */

typedef struct nest_use {
    bool reads[KILN_IR_MAX_BUFS], writes[KILN_IR_MAX_BUFS], pars[KILN_IR_MAX_PARS];
} nest_use;

static bool nest_streams(const emitter *em, const nest_use *u) {
    for (int b = 0; b < em->ir->nbufs; b++)
        if (u->writes[b] && streams(em, b)) return true;
    return false;
}

static bool touched(const nest_use *u, int b) { return u->reads[b] || u->writes[b]; }

static void broadcast_parts(emitter *em, int b) {
    kiln_dtype d = kiln_dtype_real(em->ir->bufs[b].dtype);
    const char *t = kiln_dtype_name(d);
    for (int k = 0; k < 2; k++) {
        kiln_sb_printf(&em->body, "        const v%s b%d%s = ", t, b, part_names[KILN_PART_RE + k]);
        fn(em, "splat_%s", t);
        kiln_sb_printf(&em->body, "(*(const par_%s *)(p%d + %d));\n", t, b, k * (int)kiln_dtype_size(d));
    }
}

/* Row pointers, and what a broadcast input holds for the whole row. */
static void row_head(emitter *em, const nest_use *u) {
    for (int b = 0; b < em->ir->nbufs; b++) {
        const char *t = kiln_dtype_name(em->ir->bufs[b].dtype);
        if (!touched(u, b)) continue;
        kiln_sb_printf(&em->body, "        char *p%d = L->ptr[%d] + r * L->stride[%d];\n", b, b, 2 * b + 1);
        if (u->writes[b] && streams(em, b))
            kiln_sb_printf(&em->body, "        const int nt%d = stream && (unsigned long)p%d %% %d == 0;\n",
                           b, b, (int)kiln_dtype_size(kiln_dtype_real(em->ir->bufs[b].dtype)) * em->lanes);
        if (em->ir->bufs[b].stride != KILN_STRIDE_BCAST) continue;
        kiln_dtype d = em->ir->bufs[b].dtype;
        if (kiln_dtype_is_complex(d)) {
            broadcast_parts(em, b);
            continue;
        }
        kiln_sb_puts(&em->body, "        const ");
        kiln_sb_printf(&em->body, "v%s b%d = ",
                       d == KILN_BOOL                    ? "i8"
                       : d == KILN_F16 || d == KILN_BF16 ? "u16"
                                                         : t,
                       b);
        fn(em, "splat_%s", t);
        kiln_sb_printf(&em->body,
                       d == KILN_BOOL ? "(*(const par_%s *)p%d != 0);\n" : "(*(const par_%s *)p%d);\n", t, b);
    }
}

/* The last vector of a row works in the buffers e<b>; m<b> remembers where its results belong. */
static void tail_in(emitter *em, const nest_use *u) {
    kiln_sb_puts(&em->body, "            if (k < KILN_W) {\n");
    for (int b = 0; b < em->ir->nbufs; b++) {
        int size = (int)kiln_dtype_size(em->ir->bufs[b].dtype);
        if (!touched(u, b) || em->ir->bufs[b].stride != KILN_STRIDE_CONTIG) continue;
        bool two = kiln_dtype_is_complex(em->ir->bufs[b].dtype); /* registers */
        kiln_sb_puts(&em->body, "                ");
        if (u->reads[b]) {
            fn(em, two ? "copy_in" : "tail_in");
            kiln_sb_printf(&em->body, "(e%d, %sp%d, k * %d); ", b, two ? "2, " : "", b, size);
        }
        if (u->writes[b]) kiln_sb_printf(&em->body, "m%d = p%d; ", b, b);
        kiln_sb_printf(&em->body, "p%d = e%d;\n", b, b);
    }
    kiln_sb_puts(&em->body, "            }\n");
}

static void tail_out(emitter *em, const nest_use *u) {
    for (int b = 0; b < em->ir->nbufs; b++) {
        if (!u->writes[b] || em->ir->bufs[b].stride != KILN_STRIDE_CONTIG) continue;
        kiln_sb_puts(&em->body, "            if (k < KILN_W) ");
        fn(em, kiln_dtype_is_complex(em->ir->bufs[b].dtype) ? "copy_tail" : "tail_out");
        kiln_sb_printf(&em->body, "(m%d, e%d, k * %d);\n", b, b, (int)kiln_dtype_size(em->ir->bufs[b].dtype));
    }
}

static void advance(emitter *em, const nest_use *u) {
    for (int b = 0; b < em->ir->nbufs; b++) {
        if (!touched(u, b) || em->ir->bufs[b].stride == KILN_STRIDE_BCAST) continue;
        if (strided(em, b))
            kiln_sb_printf(&em->body, "            p%d += KILN_W * s%d;\n", b, b);
        else
            kiln_sb_printf(&em->body, "            p%d += KILN_W * %d;\n", b,
                           (int)kiln_dtype_size(em->ir->bufs[b].dtype));
    }
}

static void nest_head(emitter *em, int nest, const nest_use *u) {
    kiln_sb_printf(&em->body,
                   "static int nest%d(const kiln_launch *L) {\n    const long n0 = L->n[0], n1 = L->n[1];\n",
                   nest);
    for (int b = 0; b < em->ir->nbufs; b++) {
        if (!touched(u, b)) continue;
        if (strided(em, b)) kiln_sb_printf(&em->body, "    const long s%d = L->stride[%d];\n", b, 2 * b);
        if (em->ir->bufs[b].stride != KILN_STRIDE_CONTIG) continue;
        kiln_sb_printf(&em->body, "    char e%d[%d] __attribute__((aligned(64)));\n", b,
                       kiln_dtype_is_complex(em->ir->bufs[b].dtype) ? 2 * TAIL_BYTES : TAIL_BYTES);
        if (u->writes[b]) kiln_sb_printf(&em->body, "    char *m%d = 0;\n", b);
    }
    for (int k = 0; k < em->ir->npars; k++)
        if (u->pars[k]) read_parameter(em, k);
    if (nest_streams(em, u))
        kiln_sb_printf(&em->body, "    const int stream = L->flags & %u;\n", KILN_LAUNCH_STREAM);
    kiln_sb_puts(&em->body, "    for (long r = 0; r < n1; r++) {\n");
    row_head(em, u);
    kiln_sb_puts(&em->body, "        for (long left = n0; left > 0; left -= KILN_W) {\n"
                            "            const long k = left < KILN_W ? left : KILN_W;\n");
}

static kiln_status check_shape(const kiln_ir *ir, int begin) {
    const kiln_ir_ins *f = &ir->ins[begin];
    if (!ir->axes[f->which].grid || ir->naxes != 1 || !f->vec)
        return KILN_FAIL(KILN_E_UNSUP, "emit: only element-wise nests have a C form yet");
    return KILN_OK;
}

static kiln_status emit_nest(emitter *em, int nest) {
    int begin = kiln_ir_nest_begin(em->ir, nest), end = kiln_ir_region_end(em->ir, begin);
    KILN_TRY(check_shape(em->ir, begin));
    nest_use u = {{0}, {0}, {0}};
    for (int r = begin + 1; r < end; r++) {
        if (em->ir->ins[r].op == KILN_IR_LOAD) u.reads[em->ir->ins[r].which] = true;
        if (em->ir->ins[r].op == KILN_IR_STORE) u.writes[em->ir->ins[r].which] = true;
        if (em->ir->ins[r].op == KILN_IR_PAR) u.pars[em->ir->ins[r].which] = true;
    }
    nest_head(em, nest, &u);
    tail_in(em, &u);
    for (int r = begin + 1; r < end; r++) KILN_TRY(instruction(em, (kiln_ref)r));
    tail_out(em, &u);
    advance(em, &u);
    kiln_sb_puts(&em->body, "        }\n    }\n");
    if (nest_streams(em, &u)) {
        kiln_sb_printf(&em->body, "    if (stream && !(L->flags & %u)) ", KILN_LAUNCH_MORE);
        fn(em, "stream_end");
        kiln_sb_puts(&em->body, "();\n");
    }
    kiln_sb_puts(&em->body, "    return 0;\n}\n\n");
    return KILN_OK;
}

/* -- the whole text ------------------------------------------------------------------------------------- */

/* Special functions are computed in f64 inside. */
static size_t widest_within(const kiln_ir_ins *ins) {
    bool special = ins->op == KILN_IR_PRIM && kiln_prim_trait((kiln_prim)ins->prim) == KILN_TRAIT_SPECIAL;
    return kiln_dtype_size(special ? KILN_F64 : kiln_dtype_real((kiln_dtype)ins->dtype));
}

/* Lanes: as many as the widest type leaves room for in one native vector. */
static int count_lanes(const kiln_ir *ir, kiln_isa isa) {
    size_t widest = 1;
    for (int b = 0; b < ir->nbufs; b++) {
        size_t size = kiln_dtype_size(kiln_dtype_real(ir->bufs[b].dtype));
        if (size > widest) widest = size;
    }
    for (int r = 0; r < ir->nins; r++) {
        size_t size = widest_within(&ir->ins[r]);
        if (ir->ins[r].op != KILN_IR_FOR && ir->ins[r].op != KILN_IR_END && size > widest) widest = size;
    }
    return kiln_isa_vector_bytes(isa) / (int)widest;
}

/* kiln_abi.h's struct, spelled without headers. */
static const char launch_text[] =
    "typedef struct { int nest, ndim; const long *n; char *const *ptr; const long *stride; const long *origin;\n"
    "                 const unsigned long *par; char *work; unsigned long flags; } kiln_launch;\n";

static void declare_scalars(kiln_sb *out) {
    for (int t = 0; t < KILN_DTYPE_COUNT; t++)
        if (!kiln_dtype_is_complex((kiln_dtype)t))
            kiln_sb_printf(out, "typedef %s par_%s __attribute__((aligned(1), may_alias));\n",
                           c_type((kiln_dtype)t), kiln_dtype_name((kiln_dtype)t));
}

static void entry_point(emitter *em) {
    kiln_sb_puts(&em->body, "__attribute__((visibility(\"default\"))) int " KILN_KERNEL_SYMBOL
                            "(const kiln_launch *L) {\n");
    for (int k = 0; k < em->ir->nnests; k++)
        kiln_sb_printf(&em->body, "    if (L->nest == %d) return nest%d(L);\n", k, k);
    kiln_sb_puts(&em->body, "    return -1;\n}\n");
}

static kiln_status assemble(emitter *em, kiln_sb *out) {
    const char *names[MAX_NAMES];
    for (int k = 0; k < em->nnames; k++) names[k] = em->names[k];
    kiln_sb_printf(out, "/* %s, %s */\n", em->ir->name, kiln_isa_name(em->isa));
    KILN_TRY(kiln_math_source(out, em->isa, em->lanes, names, em->nnames));
    kiln_sb_puts(out, launch_text);
    declare_scalars(out);
    kiln_sb_putc(out, '\n');
    kiln_sb_putn(out, em->body.p, em->body.len);
    return KILN_OK;
}

kiln_status kiln_emit_c(const kiln_ir *ir, kiln_isa isa, kiln_sb *out) {
    emitter em = {.ir = ir, .isa = isa, .lanes = count_lanes(ir, isa)};
    kiln_arena scratch;
    kiln_arena_init(&scratch);
    kiln_sb_init(&em.body);
    em.mask = kiln_arena_alloc(&scratch, (size_t)ir->nins + 1);
    em.names = kiln_arena_alloc(&scratch, MAX_NAMES * sizeof *em.names);
    kiln_status st = em.mask && em.names ? KILN_OK : KILN_NOMEM();
    for (int k = 0; k < ir->nnests && st == KILN_OK; k++) st = emit_nest(&em, k);
    entry_point(&em);
    if (st == KILN_OK && em.overflow)
        st = KILN_FAIL(KILN_E_LIMIT, "emit: more than %d different functions", MAX_NAMES);
    if (st == KILN_OK && em.body.failed) st = KILN_NOMEM();
    if (st == KILN_OK) st = assemble(&em, out);
    if (st == KILN_OK && out->failed) st = KILN_NOMEM();
    kiln_sb_fini(&em.body);
    kiln_arena_free(&scratch);
    return st;
}
