/* fit.c - how well a value of a graph fits a type of a schema.
 *
 * 0 is exact; conversions that PyTorch makes cost more; -1 does not fit.  A node whose metadata says
 * nothing fits everything, a tensor best.  So torch.add(a, b) means add.Tensor, and torch.add(a, 2) means
 * add.Scalar. */
#include <ctype.h>
#include <string.h>

#include "graph/fit.h"

enum { EXACT = 0, UNKNOWN = 1, NEAR = 1, CONVERTED = 2, WRAPPED = 4 };

/* -- what is known of a node -------------------------------------------------------------------------- */

typedef enum known { ANY, TENSOR, BOOL, INT, FLOAT, COMPLEX, STR, LIST } known;

/* "f32[2, 3]" is a tensor; "int", "Tensor[]", ... are what they say. */
static known node_kind(const kiln_node *node) {
    enum { LONGEST = 64 };
    static const struct {
        const char *text;
        known kind;
    } words[] = {{"Tensor", TENSOR}, {"bool", BOOL},       {"int", INT},
                 {"SymInt", INT},    {"float", FLOAT},     {"SymFloat", FLOAT},
                 {"SymBool", BOOL},  {"complex", COMPLEX}, {"str", STR}};
    const char *val = kiln_node_get_meta(node, "val");
    if (!val) return ANY;
    size_t n = strnlen(val, LONGEST); /* the text may be long, and is looked at once per use of the node */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].text, val) == 0) return words[i].kind;
    if (n > 2 && n < LONGEST && strcmp(val + n - 2, "[]") == 0 && strncmp(val, "Tensor", 6) == 0) return LIST;
    char dtype[16];
    const char *bracket = memchr(val, '[', n);
    size_t k = bracket ? (size_t)(bracket - val) : n;
    kiln_dtype parsed;
    if (!bracket || k >= sizeof dtype) return ANY;
    memcpy(dtype, val, k);
    dtype[k] = 0;
    return kiln_dtype_named(dtype, &parsed) ? TENSOR : ANY;
}

static int fit_known(known kind, const kiln_type *t) {
    bool number = kind == BOOL || kind == INT || kind == FLOAT || kind == COMPLEX;
    switch (t->kind) {
    case KILN_T_TENSOR: return kind == TENSOR ? EXACT : number ? WRAPPED : -1;
    case KILN_T_SCALAR: return number ? EXACT : kind == TENSOR ? CONVERTED : -1;
    case KILN_T_INT:
    case KILN_T_SYMINT: return kind == INT ? EXACT : kind == BOOL || kind == TENSOR ? CONVERTED : -1;
    case KILN_T_FLOAT: return kind == FLOAT ? EXACT : kind == INT ? NEAR : kind == TENSOR ? CONVERTED : -1;
    case KILN_T_BOOL: return kind == BOOL ? EXACT : kind == TENSOR ? CONVERTED : -1;
    case KILN_T_STR: return kind == STR ? EXACT : -1;
    case KILN_T_LIST:
        return kind == LIST || (t->size > 0 && kind == INT) ? NEAR : kind == TENSOR ? CONVERTED : -1;
    case KILN_T_DTYPE: return -1;
    default: return UNKNOWN;
    }
}

static int fit_node(const kiln_node *node, const kiln_type *t) {
    known kind = node_kind(node);
    if (kind != ANY) return fit_known(kind, t);
    return t->kind == KILN_T_TENSOR ? EXACT : UNKNOWN;
}

/* -- literals ----------------------------------------------------------------------------------------- */

static bool is_number(kiln_gkind k) {
    return k == KILN_G_BOOL || k == KILN_G_INT || k == KILN_G_BIGINT || k == KILN_G_FLOAT ||
           k == KILN_G_COMPLEX;
}

static bool is_list(kiln_gkind k) {
    return k == KILN_G_LIST || k == KILN_G_TUPLE || k == KILN_G_SIZE || k == KILN_G_NAMEDTUPLE ||
           k == KILN_G_STRUCTSEQ || k == KILN_G_RANGE;
}

static int fit_list(const kiln_gval *v, const kiln_type *t) {
    if (!is_list(v->kind)) {
        int one = t->size > 0 ? kiln_fit(v, t->elem) : -1; /* int[2] takes 3 for [3, 3] */
        return one < 0 ? -1 : one + NEAR;
    }
    int worst = EXACT;
    uint32_t from = v->kind == KILN_G_NAMEDTUPLE ? 2 : v->kind == KILN_G_STRUCTSEQ ? 1 : 0;
    for (uint32_t i = from; i < v->n; i++) {
        int cost = kiln_fit(v->u.items[i], t->elem);
        if (cost < 0) return -1;
        if (cost > worst) worst = cost;
    }
    return worst;
}

/* Types that are known by name only. */
static int fit_named(const kiln_gval *v, const char *name) {
    kiln_gkind k = v->kind;
    bool object = k == KILN_G_CONST || k == KILN_G_FUNC;
    if (strcmp(name, "Device") == 0)
        return k == KILN_G_DEVICE ? EXACT
               : k == KILN_G_STR  ? NEAR
               : k == KILN_G_INT  ? CONVERTED
               : object           ? UNKNOWN
                                  : -1;
    if (strcmp(name, "Layout") == 0)
        return k == KILN_G_LAYOUT ? EXACT : k == KILN_G_INT ? CONVERTED : object ? UNKNOWN : -1;
    if (strcmp(name, "MemoryFormat") == 0)
        return k == KILN_G_MEMORY_FORMAT ? EXACT : k == KILN_G_INT ? CONVERTED : object ? UNKNOWN : -1;
    if (strcmp(name, "complex") == 0) return k == KILN_G_COMPLEX ? EXACT : is_number(k) ? NEAR : -1;
    if (strcmp(name, "Dimname") == 0) return k == KILN_G_STR ? EXACT : -1;
    if (strcmp(name, "Generator") == 0 || strcmp(name, "Stream") == 0 || strcmp(name, "Storage") == 0)
        return object ? EXACT : -1;
    return UNKNOWN;
}

static int fit_literal(const kiln_gval *v, const kiln_type *t) {
    kiln_gkind k = v->kind;
    switch (t->kind) {
    case KILN_T_TENSOR: return k == KILN_G_CONST ? EXACT : is_number(k) ? WRAPPED : -1;
    case KILN_T_SCALAR: return is_number(k) ? EXACT : k == KILN_G_CONST ? CONVERTED : -1;
    case KILN_T_INT:
    case KILN_T_SYMINT:
        return k == KILN_G_INT || k == KILN_G_BIGINT                                              ? EXACT
               : k == KILN_G_BOOL                                                                 ? NEAR
               : k == KILN_G_DTYPE || k == KILN_G_LAYOUT || k == KILN_G_ENUM || k == KILN_G_CONST ? CONVERTED
                                                                                                  : -1;
    case KILN_T_FLOAT:
        return k == KILN_G_FLOAT                       ? EXACT
               : k == KILN_G_INT || k == KILN_G_BIGINT ? NEAR
               : k == KILN_G_BOOL || k == KILN_G_CONST ? CONVERTED
                                                       : -1;
    case KILN_T_BOOL:
        return k == KILN_G_BOOL ? EXACT : k == KILN_G_CONST ? CONVERTED : k == KILN_G_INT ? WRAPPED : -1;
    case KILN_T_STR: return k == KILN_G_STR ? EXACT : -1;
    case KILN_T_DTYPE:
        return k == KILN_G_DTYPE ? EXACT : k == KILN_G_FUNC || k == KILN_G_INT ? CONVERTED : -1;
    case KILN_T_LIST: return fit_list(v, t);
    case KILN_T_OTHER: return fit_named(v, t->name);
    default: return UNKNOWN;
    }
}

int kiln_fit(const kiln_gval *v, const kiln_type *type) {
    bool optional;
    const kiln_type *t = kiln_type_strip(type, &optional);
    if (v->kind == KILN_G_NONE)
        return optional ? EXACT : t->kind == KILN_T_OTHER && strcmp(t->name, "NoneType") == 0 ? EXACT : -1;
    return v->kind == KILN_G_NODE ? fit_node(v->u.node, t) : fit_literal(v, t);
}
