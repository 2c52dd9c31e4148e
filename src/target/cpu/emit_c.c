/* emit_c.c - IR -> header-free C over the vector functions of src/math.
 *
 * Prints each nest in the form that fits it, and around them what they need: the fragments of src/math that they
 * name, the launch's struct, and the entry point.  Must not know operators or how the text is compiled. */
#include <stdio.h>

#include "target/cpu/emit_impl.h"
#include "math/math.h"

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

/* The widest type that an instruction computes with.  Special functions compute in f64, and lanes at places of their
 * own have addresses of 8 bytes. */
static size_t widest_within(const kiln_ir_ins *in) {
    bool special = in->op == KILN_IR_PRIM && kiln_prim_trait((kiln_prim)in->prim) == KILN_TRAIT_SPECIAL;
    bool places = (in->op == KILN_IR_LOAD && (in->ncoord || in->nargs)) ||
                  (in->op == KILN_IR_STORE && (in->ncoord || kiln_ir_store_guard(in) != KILN_NOREF));
    if (kiln_ir_opens(in) || in->op == KILN_IR_END) return 1;
    return kiln_dtype_size(special || places ? KILN_F64 : kiln_dtype_real((kiln_dtype)in->dtype));
}

/* Whether all nests are element-wise: what a broadcast input holds is then read and converted before each row, and has no
 * say in how wide the row's vectors are.  A number beside a tensor of f32 is mostly an f64. */
static bool reads_before_rows(const kiln_ir *ir) {
    for (int n = 0; n < ir->nnests; n++)
        if (!kiln_em_is_map(ir, kiln_ir_nest_begin(ir, n))) return false;
    return true;
}

static bool is_read_before(const kiln_ir *ir, const kiln_ir_ins *in) {
    return in->op == KILN_IR_LOAD && ir->bufs[in->which].stride == KILN_STRIDE_BCAST;
}

/* A difference of positions is computed in the 32 bits it is cast to (emit_loop.c). */
static bool is_position(const kiln_ir *ir, const kiln_ir_ins *in) {
    if (in->op == KILN_IR_INDEX) return true;
    return in->op == KILN_IR_PRIM && in->prim == KILN_P_SUB && ir->ins[in->arg[0]].op == KILN_IR_INDEX &&
           ir->ins[in->arg[1]].op == KILN_IR_INDEX;
}

/* The widest type in steps of folds, which run for every element: what else a kernel with such folds does, it does seldom.  0: it
 * has none. */
static size_t widest_in_steps(const kiln_ir *ir) {
    size_t widest = 0;
    int step = -1; /* the fold whose step this may be, if no loop comes before the step's end */
    for (int r = 0; r < ir->nins; r++) {
        const kiln_ir_ins *in = &ir->ins[r];
        if (kiln_ir_opens(in)) step = in->op == KILN_IR_FOLD && !kiln_ir_by_block(in) ? r : -1;
        if (in->op == KILN_IR_MERGE && step >= 0)
            for (int k = step + 1; k < r; k++) {
                size_t size = widest_within(&ir->ins[k]);
                if (size > widest && !is_position(ir, &ir->ins[k]) &&
                    !kiln_em_is_only_tested(ir, (kiln_ref)k))
                    widest = size;
            }
        if (in->op == KILN_IR_MERGE || in->op == KILN_IR_END) step = -1;
    }
    return widest;
}

static bool has_traps(const kiln_ir *ir, int begin, int end) {
    for (int r = begin; r < end; r++)
        if (ir->ins[r].op == KILN_IR_TRAP) return true;
    return false;
}

/* The widest type in vector loops of a kernel that tests for places in them, or stores at one outside them, which else would be the
 * positions': what the places are is computed once for each loop, and checked before.  0: there is nothing of that. */
static size_t widest_beside_places(const kiln_ir *ir) {
    size_t widest = sizeof(int32_t); /* of the masks that tests make */
    bool places = false, checks = false;
    for (int r = 0, end = -1; r < ir->nins; r++) {
        const kiln_ir_ins *in = &ir->ins[r];
        if (kiln_ir_opens(in) && in->vec && r > end) {
            end = kiln_ir_region_end(ir, r);
            checks = has_traps(ir, r, end);
        }
        places = places || (r > end && in->op == KILN_IR_STORE && in->ncoord);
        if (r > end || checks || kiln_em_is_only_tested(ir, (kiln_ref)r)) continue;
        places = places || kiln_em_is_place_test(ir, (kiln_ref)r) || kiln_em_is_row_test(ir, (kiln_ref)r);
        size_t size = widest_within(in);
        if (size > widest) widest = size;
    }
    return places ? widest : 0;
}

static bool has_vector_loop(const kiln_ir *ir) {
    for (int r = 0; r < ir->nins; r++)
        if (kiln_ir_opens(&ir->ins[r]) && ir->ins[r].vec) return true;
    return false;
}

/* As many lanes as the widest type leaves room for in one native vector.  Without a vector loop all lanes are equal, so the shortest
 * vector is enough, and its arithmetic takes the least time. */
int kiln_emit_lanes(const kiln_ir *ir, kiln_isa isa) {
    size_t widest = widest_in_steps(ir);
    if (widest == 0) widest = widest_beside_places(ir);
    if (widest > 0) return kiln_isa_vector_bytes(isa) / (int)widest;
    widest = 1;
    bool before = reads_before_rows(ir);
    for (int b = 0; b < ir->nbufs; b++) {
        size_t size = kiln_dtype_size(kiln_dtype_real(ir->bufs[b].dtype));
        if (size > widest && !(before && ir->bufs[b].stride == KILN_STRIDE_BCAST)) widest = size;
    }
    for (int r = 0; r < ir->nins; r++) {
        size_t size = widest_within(&ir->ins[r]);
        if (size > widest && !(before && is_read_before(ir, &ir->ins[r]))) widest = size;
    }
    return (has_vector_loop(ir) ? kiln_isa_vector_bytes(isa) : KILN_CPU_SHORTEST_VECTOR) / (int)widest;
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

kiln_emit_name kiln_emit_symbol(int k) {
    kiln_emit_name name;
    snprintf(name.text, sizeof name.text, k ? KILN_KERNEL_SYMBOL "_%d" : KILN_KERNEL_SYMBOL, k);
    return name;
}

static void entry_point(kiln_emitter *em) {
    kiln_sb_printf(&em->body, "__attribute__((visibility(\"default\"))) int %s(const kiln_launch *L) {\n",
                   kiln_emit_symbol(em->number).text);
    for (int k = 0; k < em->ir->nnests; k++) {
        kiln_sb_printf(&em->body, "    if (L->nest == %d) return ", k);
        if (em->number) kiln_sb_printf(&em->body, "kernel%d_", em->number);
        kiln_sb_printf(&em->body, "nest%d(L);\n", k);
    }
    kiln_sb_puts(&em->body, "    return -1;\n}\n");
}

/* A comment that names the kernel; a name may hold anything, the end of a comment too. */
static void title(const kiln_ir *ir, kiln_isa isa, kiln_sb *out) {
    kiln_sb_puts(out, "/* ");
    for (const char *p = ir->name; *p; p++) kiln_sb_putc(out, *p < ' ' || *p == '*' || *p == '\\' ? '?' : *p);
    kiln_sb_printf(out, ", %s */\n", kiln_isa_name(isa));
}

/* The functions of src/math and the types that all kernels of the unit share, then the kernels. */
static kiln_status assemble(const kiln_emitter *em, kiln_sb *out) {
    const char *names[KILN_EM_MAX_NAMES];
    for (int k = 0; k < em->nnames; k++) names[k] = em->names[k];
    KILN_TRY(kiln_math_source(out, em->isa, em->lanes, names, em->nnames));
    kiln_sb_puts(out, launch_text);
    declare_scalars(out);
    kiln_sb_putc(out, '\n');
    kiln_sb_putn(out, em->body.p, em->body.len);
    return out->failed ? KILN_NOMEM() : KILN_OK;
}

static kiln_status emit_nests(kiln_emitter *em) {
    for (int k = 0, at = 0; k < em->ir->nnests; k++, at = (int)em->region_end[at] + 1) {
        if (kiln_em_is_map(em->ir, at))
            kiln_em_map_nest(em, k, at);
        else
            kiln_em_loop_nest(em, k, at);
    }
    entry_point(em);
    if (em->overflow)
        return KILN_FAIL(KILN_E_LIMIT, "emit: more than %d different functions", KILN_EM_MAX_NAMES);
    return em->body.failed ? KILN_NOMEM() : KILN_OK;
}

/* Appends a kernel to the unit's text and to the functions that the unit uses. */
static kiln_status add_kernel(kiln_emitter *unit, const kiln_ir *ir, int number) {
    kiln_emitter em = {.ir = ir,
                       .isa = unit->isa,
                       .lanes = unit->lanes,
                       .number = number,
                       .body = unit->body,
                       .names = unit->names,
                       .nnames = unit->nnames};
    kiln_arena scratch;
    kiln_arena_init(&scratch);
    kiln_status st = kiln_em_plan(&em, &scratch);
    if (st == KILN_OK) st = emit_nests(&em);
    unit->body = em.body;
    unit->nnames = em.nnames;
    kiln_arena_free(&scratch);
    return st;
}

kiln_status kiln_emit_unit(const kiln_ir *const *ir, int n, kiln_isa isa, kiln_sb *out) {
    kiln_emitter unit = {.isa = isa, .lanes = kiln_emit_lanes(ir[0], isa)};
    kiln_arena scratch;
    kiln_arena_init(&scratch);
    kiln_sb_init(&unit.body);
    unit.names = kiln_arena_alloc(&scratch, KILN_EM_MAX_NAMES * sizeof *unit.names);
    kiln_status st = unit.names ? KILN_OK : KILN_NOMEM();
    for (int k = 0; k < n && st == KILN_OK; k++) {
        title(ir[k], isa, out);
        bool fits = kiln_emit_lanes(ir[k], isa) == unit.lanes;
        st = fits ? add_kernel(&unit, ir[k], k) : KILN_BUG("kernels of one unit have different lanes");
    }
    if (st == KILN_OK) st = assemble(&unit, out);
    kiln_sb_fini(&unit.body);
    kiln_arena_free(&scratch);
    return st;
}

kiln_status kiln_emit_c(const kiln_ir *ir, kiln_isa isa, kiln_sb *out) {
    return kiln_emit_unit(&ir, 1, isa, out);
}

kiln_status kiln_emit_work(const kiln_ir *ir, kiln_isa isa, size_t *nbytes) {
    kiln_emitter em = {.ir = ir, .isa = isa, .lanes = kiln_emit_lanes(ir, isa)};
    kiln_arena scratch;
    kiln_arena_init(&scratch);
    kiln_status st = kiln_em_plan(&em, &scratch);
    if (st == KILN_OK) *nbytes = em.work;
    kiln_arena_free(&scratch);
    return st;
}
