/* infer_key.c - a plan -> the class of its call as bytes, and those bytes in words.
 *
 * In the key goes what generated code depends on and nothing else: no size, stride, rank, address or
 * value of an argument the row does not call static.  What the kind of a Scalar (bool, int, float) does to
 * code, the resolved dtypes and the branch say already.  The in-place and out forms of an operator share
 * the functional form's kernels, since operands and dtypes say all that differs. */
#include <string.h>

#include "infer/chooser.h"
#include "infer/infer_parts.h"
#include "kiln/kiln_abi.h"

/* The fixed part.  No padding: every byte is set. */
typedef struct head {
    kiln_digest row;
    uint64_t present; /* bit a: optional argument a of the row's schema is given */
    uint64_t exact;   /* bit a: argument a is read without rounding it to the common dtype */
    uint16_t abi;
    struct {
        uint8_t device, level; /* KILN_DEVICE_*, and the level of its target */
    } target;                  /* what the code runs on */
    uint8_t family, branch, common, nrets, nbuffers, strided, form, parts, kind;
    uint8_t zero;
    uint16_t absent; /* bit k: there is no result k */
} head;
_Static_assert(sizeof(head) == 48, "a key's head has no padding");
_Static_assert(sizeof(head) + KILN_MAX_RETS + 2 * KILN_MAX_OPERANDS + sizeof(kiln_digest) < KILN_KEY_MAX,
               "what has any length has room for a hash of it");

static uint64_t optionals_present(const kiln_bound *call) {
    uint64_t set = 0, of = call->op->row->optionals;
    for (int a = 0; of; a++, of >>= 1)
        if ((of & 1) && call->arg[a].kind != KILN_NONE) set |= (uint64_t)1 << a;
    return set;
}

/* -- values of any length ------------------------------------------------------------------------------ */

/* Values as bytes after bytes, from `first` on.  Where the key has no room for more, a hash stands for what is there
 * and what was to come. */
typedef struct encoding {
    kiln_key *key;
    uint32_t first;
} encoding;

static void put(encoding *to, const void *p, size_t n) {
    kiln_key *k = to->key;
    if (n > KILN_KEY_MAX - k->n) {
        kiln_digest both[2] = {kiln_hash128(k->bytes + to->first, k->n - to->first), kiln_hash128(p, n)};
        kiln_digest all = kiln_hash128(both, sizeof both);
        k->bytes[to->first] = 255; /* no kind, and more items than there is room for: a hash follows */
        memcpy(k->bytes + to->first + 1, &all, sizeof all);
        k->n = to->first + 1 + (uint32_t)sizeof all;
        return;
    }
    memcpy(k->bytes + k->n, p, n);
    k->n += (uint32_t)n;
}

static void encode(encoding *to, const kiln_value *v) {
    uint8_t kind = (uint8_t)v->kind;
    put(to, &kind, 1);
    switch ((kiln_kind)v->kind) {
    case KILN_BOOL_V:
    case KILN_INT_V:
    case KILN_UINT_V:
    case KILN_DTYPE_V:
    case KILN_FLOAT_V: put(to, &v->u, sizeof v->u.i); break;
    case KILN_STR_V: put(to, v->u.s, strlen(v->u.s) + 1); break;
    case KILN_LIST_V:
        put(to, &v->n, sizeof v->n);
        for (uint32_t k = 0; k < v->n; k++) encode(to, &v->u.list[k]);
        break;
    case KILN_COMPLEX_V: put(to, &v->u.c, sizeof v->u.c); break;
    case KILN_TENSOR: /* neither is static: row_rules.c */
    case KILN_GENERATOR_V:
    case KILN_NONE: break;
    }
}

/* Which items of a list are given.  Items after the last one given add nothing, so lists that differ in such alone share
 * code. */
static void encode_given(encoding *to, const kiln_value *list) {
    uint32_t n = list->kind == KILN_LIST_V ? list->n : 0;
    while (n > 0 && list->u.list[n - 1].kind == KILN_NONE) n--;
    put(to, &n, sizeof n);
    for (uint32_t k = 0; k < n; k++) put(to, &(uint8_t){list->u.list[k].kind != KILN_NONE}, 1);
}

/* -- the key ------------------------------------------------------------------------------------------- */

void kiln_plan_key(const kiln_plan *plan, int level, kiln_key *out) {
    const kiln_bound *call = plan->call;
    const kiln_row *row = call->op->row;
    head *h = (head *)out->bytes;
    *h = (head){.row = row->digest,
                .present = optionals_present(call),
                .exact = plan->typed.exact,
                .abi = KILN_ABI_VERSION,
                .target = {(uint8_t)kiln_plan_device(plan), (uint8_t)level},
                .family = (uint8_t)kiln_plan_family(plan),
                .branch = plan->branch ? (uint8_t)plan->branch->code : plan->typed.branch,
                .common = (uint8_t)plan->typed.common,
                .nrets = plan->typed.nrets,
                .nbuffers = (uint8_t)plan->axes.nbuffers,
                .strided = plan->axes.strided,
                .form = plan->form,
                .parts = plan->work.parts,
                .kind = plan->kind,
                .absent = (uint16_t)plan->typed.absent};
    uint8_t *at = (uint8_t *)(h + 1);
    for (int k = 0; k < plan->typed.nrets; k++) *at++ = (uint8_t)plan->typed.ret_dtype[k];
    for (int b = 0; b < plan->axes.nbuffers; b++) {
        *at++ = plan->buffer[b].dtype;
        *at++ = plan->buffer[b].stride;
    }
    out->n = (uint32_t)(at - out->bytes);
    encoding to = {out, out->n};
    uint64_t left = row->optional_items | row->statics;
    for (int a = 0; left; a++, left >>= 1) {
        if (row->optional_items >> a & 1) encode_given(&to, &call->arg[a]);
        if (row->statics >> a & 1) encode(&to, &call->arg[a]);
    }
}

/* -- in words ------------------------------------------------------------------------------------------ */

void kiln_row_name_print(kiln_sb *out, const kiln_row *row) {
    const kiln_schema *s = row->schema;
    kiln_sb_printf(out, "%s%s%s%s%s", s->ns, s->ns[0] ? "::" : "", s->name, s->overload[0] ? "." : "",
                   s->overload);
}

static void print_named(kiln_sb *out, const kiln_plan *plan, const char *field, uint64_t args, bool values) {
    const char *sep = "";
    kiln_sb_printf(out, "%s: ", field);
    if (!args) kiln_sb_puts(out, "none");
    for (int a = 0; args; a++, args >>= 1) {
        if (!(args & 1)) continue;
        const kiln_value *v = &plan->call->arg[a];
        kiln_sb_printf(out, "%s%s", sep, kiln_arg_name(plan->call, a));
        if (values) kiln_sb_putc(out, '=');
        if (values) kiln_value_print(out, v);
        sep = ", ";
    }
    kiln_sb_putc(out, '\n');
}

static void print_items(kiln_sb *out, const kiln_plan *plan) {
    uint64_t of = plan->call->op->row->optional_items;
    kiln_sb_puts(out, of ? "items:" : "items: none");
    for (int a = 0; of; a++, of >>= 1) {
        if (!(of & 1)) continue;
        const kiln_value *list = &plan->call->arg[a];
        kiln_sb_printf(out, " %s", kiln_arg_name(plan->call, a));
        for (uint32_t k = 0; list->kind == KILN_LIST_V && k < list->n; k++)
            kiln_sb_puts(out, list->u.list[k].kind == KILN_NONE ? " -" : " given");
    }
    kiln_sb_putc(out, '\n');
}

static void print_operands(kiln_sb *out, const kiln_plan *plan, const kiln_key *key, const head *h) {
    static const char *const strides[] = KILN_STRIDE_NAMES;
    const uint8_t *at = key->bytes + sizeof *h;
    kiln_sb_puts(out, "results:");
    for (int k = 0; k < h->nrets; k++, at++)
        kiln_sb_printf(out, "%s %s", k ? "," : "",
                       h->absent >> k & 1 ? "none" : kiln_dtype_name((kiln_dtype)*at));
    kiln_sb_puts(out, "\noperands:");
    for (int b = 0; b < h->nbuffers; b++, at += 2) {
        kiln_sb_puts(out, b ? ", " : " ");
        kiln_buffer_print(out, plan, b);
        kiln_sb_printf(out, " %s %s", kiln_dtype_name((kiln_dtype)at[0]),
                       at[1] < KILN_STRIDE_COUNT ? strides[at[1]] : "?");
    }
    kiln_sb_putc(out, '\n');
}

void kiln_key_print(kiln_sb *out, const kiln_plan *plan, const kiln_key *key, const char *target) {
    const kiln_row *row = plan->call->op->row;
    head h;
    memcpy(&h, key->bytes, sizeof h);
    kiln_sb_puts(out, "operator: ");
    kiln_row_name_print(out, row);
    kiln_sb_putc(out, '\n');
    kiln_sb_printf(out, "row: %016llx%016llx\n", (unsigned long long)h.row.hi, (unsigned long long)h.row.lo);
    kiln_sb_printf(out, "abi: %d\n", h.abi);
    kiln_sb_printf(out, "target: %s\n", target);
    kiln_sb_printf(out, "family: %s\nkind: %s\n", kiln_family_name((kiln_family)h.family),
                   (const char *[])KILN_CLASS_KIND_NAMES[h.kind]);
    kiln_sb_printf(out, "branch: %d\n", h.branch);
    print_named(out, plan, "optionals", h.present, false);
    print_items(out, plan);
    print_named(out, plan, "exact", h.exact, false);
    kiln_sb_printf(out, "common: %s\n", kiln_dtype_name((kiln_dtype)h.common));
    print_operands(out, plan, key, &h);
    print_named(out, plan, "statics", row->statics, true);
    kiln_sb_printf(out, "iteration: %s\n", h.strided ? "strided" : "contiguous or broadcast");
    kiln_sb_printf(out, "form: %d%s\n", h.form, h.parts ? ", in parts" : "");
}

/* -- in one line --------------------------------------------------------------------------------------- */

/* Prints dtype and stride class of the kernel's operands from..to-1, each after the name of its argument if `named`. */
static void print_some(kiln_sb *out, const kiln_plan *plan, const uint8_t *dtypes, int from, int to,
                       bool named) {
    static const char *const strides[] = KILN_STRIDE_NAMES;
    for (int b = from; b < to; b++) {
        const uint8_t *at = dtypes + (size_t)2 * (size_t)b;
        if (b > from) kiln_sb_puts(out, ", ");
        if (named) kiln_buffer_print(out, plan, b);
        kiln_sb_printf(out, "%s%s %s", named ? " " : "", kiln_dtype_name((kiln_dtype)at[0]),
                       at[1] < KILN_STRIDE_COUNT ? strides[at[1]] : "?");
    }
}

/* A composition has no operands: only the dtypes of its results are known. */
static void print_signature(kiln_sb *out, const kiln_plan *plan, const kiln_key *key, const head *h) {
    const uint8_t *rets = key->bytes + sizeof *h;
    int nresults = h->nrets < h->nbuffers ? h->nrets : h->nbuffers;
    print_some(out, plan, rets + h->nrets, nresults, h->nbuffers, true);
    kiln_sb_puts(out, nresults < h->nbuffers ? " -> " : "-> ");
    print_some(out, plan, rets + h->nrets, 0, nresults, false);
    for (int k = 0; k < h->nrets && !nresults; k++)
        kiln_sb_printf(out, "%s%s", k ? ", " : "",
                       h->absent >> k & 1 ? "none" : kiln_dtype_name((kiln_dtype)rets[k]));
}

/* "; what: names", or "; name=value, ..." without a text in `what`.  Nothing for no arguments. */
static void add_named(kiln_sb *out, const kiln_plan *plan, const char *what, uint64_t args) {
    bool first = true;
    for (int a = 0; args; a++, args >>= 1) {
        if (!(args & 1)) continue;
        kiln_sb_printf(out, "%s%s%s", first ? "; " : ", ", first ? what : "", kiln_arg_name(plan->call, a));
        first = false;
        if (what[0]) continue;
        kiln_sb_putc(out, '=');
        kiln_value_print(out, &plan->call->arg[a]);
    }
}

void kiln_key_words(kiln_sb *out, const kiln_plan *plan, const kiln_key *key) {
    head h;
    memcpy(&h, key->bytes, sizeof h);
    print_signature(out, plan, key, &h);
    add_named(out, plan, "", plan->call->op->row->statics);
    add_named(out, plan, "given: ", h.present);
    add_named(out, plan, "exact: ", h.exact);
    if (h.nbuffers) kiln_sb_printf(out, "; in %s", kiln_dtype_name((kiln_dtype)h.common));
    if (h.branch) kiln_sb_printf(out, "; branch %d", h.branch);
    if (h.form) kiln_sb_printf(out, "; form %d", h.form);
    if (h.strided) kiln_sb_puts(out, "; strided");
    if (h.parts) kiln_sb_puts(out, "; in parts");
}
