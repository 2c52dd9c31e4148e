/* value.c - values of a graph: made from a description, compared, walked.
 *
 * Turns a caller's kiln_gval into an immutable copy in the graph's arena, having checked that its parts
 * fit its kind and that it does not nest too deep.  Must not know what a node does. */
#include <math.h>
#include <string.h>

#include "graph/graph.h"

enum { SHARED_INTS = 256, FIRST_INT = -1, MAX_DECIMALS = 4300 }; /* the last: Python reads no more */

bool kiln_gkind_is_text(kiln_gkind k) { return k == KILN_G_BIGINT || (k >= KILN_G_STR && k <= KILN_G_CONST); }

bool kiln_gkind_is_items(kiln_gkind k) { return k >= KILN_G_TUPLE && k < KILN_G_KIND_COUNT; }

/* Brackets that Python's text of the kind puts around its items. */
static unsigned brackets(kiln_gkind k) {
    switch (k) {
    case KILN_G_FROZENSET:
    case KILN_G_SIZE:
    case KILN_G_NAMEDTUPLE:
    case KILN_G_STRUCTSEQ: return 2;
    default: return 1;
    }
}

/* -- checks ------------------------------------------------------------------------------------------ */

static bool all_digits(const char *s, size_t n, const char *digits) {
    for (size_t i = 0; i < n; i++)
        if (!strchr(digits, s[i]) || !s[i]) return false;
    return n > 0;
}

static bool is_integer_text(const char *s, size_t n) {
    if (n && *s == '-') s++, n--;
    if (n > 2 && s[0] == '0' && s[1] == 'x') return all_digits(s + 2, n - 2, "0123456789abcdefABCDEF");
    return (n == 1 || (n && *s != '0')) && all_digits(s, n, "0123456789");
}

static bool is_dotted(const char *s, size_t n) {
    while (n) {
        size_t k = 0;
        while (k < n && s[k] != '.') k++;
        if (k == 0 || k + 1 == n) return false;
        if (k == n) return true;
        s += k + 1;
        n -= k + 1;
    }
    return false;
}

/* "torch.nn:Linear.forward", or "torch:" for a module itself. */
static bool is_function_text(const char *s, size_t n) {
    const char *colon = memchr(s, ':', n);
    if (!colon) return false;
    size_t rest = n - (size_t)(colon - s) - 1;
    return is_dotted(s, (size_t)(colon - s)) &&
           (!rest || (!memchr(colon + 1, ':', rest) && is_dotted(colon + 1, rest)));
}

/* "aten::add.Tensor" or "aten::add" */
static bool is_operator_text(const char *s, size_t n) {
    const char *colon = memchr(s, ':', n);
    if (!colon || colon == s || memchr(s, '.', (size_t)(colon - s))) return false;
    size_t rest = n - (size_t)(colon - s);
    if (rest < 3 || colon[1] != ':' || memchr(colon + 2, ':', rest - 2)) return false;
    const char *dot = memchr(colon + 2, '.', rest - 2);
    if (!dot) return true;
    return dot > colon + 2 && is_dotted(dot + 1, n - (size_t)(dot + 1 - s));
}

static kiln_status check_text(const kiln_gval *v) {
    bool ok = true;
    const char *what = "text";
    bool hex = memchr(v->u.s, 'x', v->n < 3 ? v->n : 3) != NULL;
    if (v->kind == KILN_G_BIGINT && !hex && v->n > MAX_DECIMALS)
        return KILN_FAIL(KILN_E_LIMIT, "an integer of more than %d decimals; write it as 0x...",
                         MAX_DECIMALS);
    bool any = v->kind == KILN_G_STR || v->kind == KILN_G_BYTES || v->kind == KILN_G_BIGINT;
    if (!any && (v->n == 0 || memchr(v->u.s, 0, v->n)))
        return KILN_FAIL(KILN_E_ARG, "a name is empty or holds a NUL byte");
    if (!any && v->n > KILN_GRAPH_MAX_NAME)
        return KILN_FAIL(KILN_E_LIMIT, "a name of %u bytes; at most %d are allowed", v->n,
                         KILN_GRAPH_MAX_NAME);
    if (v->kind != KILN_G_BYTES && !kiln_gtext_is_utf8(v->u.s, v->n))
        return KILN_FAIL(KILN_E_ARG, "a text is not UTF-8");
    switch (v->kind) {
    case KILN_G_BIGINT: ok = is_integer_text(v->u.s, v->n), what = "an integer such as -12 or 0x1f"; break;
    case KILN_G_FUNC: ok = is_function_text(v->u.s, v->n), what = "a function such as torch.nn:Linear"; break;
    case KILN_G_OP: ok = is_operator_text(v->u.s, v->n), what = "an operator such as aten::add.Tensor"; break;
    case KILN_G_DTYPE:
    case KILN_G_LAYOUT:
    case KILN_G_MEMORY_FORMAT:
        ok = kiln_gtext_is_identifier(v->u.s, v->n), what = "a name such as float32";
        break;
    default: break;
    }
    if (!ok) return KILN_FAIL(KILN_E_ARG, "'%.*s' is not %s", v->n < 60 ? (int)v->n : 60, v->u.s, what);
    return KILN_OK;
}

static bool names_a_type(const kiln_gval *v) { return v->kind == KILN_G_FUNC || v->kind == KILN_G_CONST; }

static bool fields_match(const kiln_gval *v) {
    const kiln_gval *names = v->u.items[1];
    if (names->kind != KILN_G_TUPLE || names->n != v->n - 2) return false;
    for (uint32_t i = 0; i < names->n; i++)
        if (names->u.items[i]->kind != KILN_G_STR) return false;
    return true;
}

static kiln_status check_items(const kiln_gval *v) {
    const kiln_gval *const *at = v->u.items;
    bool ok = true;
    switch (v->kind) {
    case KILN_G_DICT: ok = v->n % 2 == 0; break;
    case KILN_G_SLICE:
    case KILN_G_RANGE: ok = v->n == 3; break;
    case KILN_G_NAMEDTUPLE: ok = v->n >= 2 && names_a_type(at[0]) && fields_match(v); break;
    case KILN_G_STRUCTSEQ: ok = v->n >= 1 && names_a_type(at[0]); break;
    case KILN_G_ENUM: ok = v->n == 2 && names_a_type(at[0]) && at[1]->kind == KILN_G_STR; break;
    default: break;
    }
    if (!ok) return KILN_FAIL(KILN_E_ARG, "the %u items of a value do not fit its kind %d", v->n, v->kind);
    return KILN_OK;
}

/* -- making ------------------------------------------------------------------------------------------ */

static kiln_status new_value(kiln_graph *g, const kiln_gval *v, kiln_gval **out) {
    kiln_gval *made = kiln_arena_alloc(&g->arena, sizeof *made);
    if (!made) return KILN_NOMEM();
    *made = *v;
    *out = made;
    return KILN_OK;
}

static kiln_status text_value(kiln_graph *g, const kiln_gval *v, const kiln_gval **out) {
    kiln_gval copy = *v, *made;
    int64_t small;
    if (!v->u.s && v->n) return KILN_FAIL(KILN_E_ARG, "a text of %u bytes is NULL", v->n);
    if (!v->u.s) copy.u.s = "";
    KILN_TRY(check_text(&copy));
    if (v->kind == KILN_G_BIGINT && kiln_gtext_read_int(v->u.s, v->n, &small))
        return kiln_graph_int(g, small, out);
    copy.u.s = kiln_arena_strndup(&g->arena, copy.u.s, v->n);
    if (!copy.u.s) return KILN_NOMEM();
    copy.nest = copy.has_node = 0;
    KILN_TRY(new_value(g, &copy, &made));
    *out = made;
    return KILN_OK;
}

static kiln_status items_value(kiln_graph *g, const kiln_gval *v, const kiln_gval **out) {
    kiln_gval copy = *v, *made;
    if (v->n > KILN_GRAPH_MAX_ITEMS)
        return KILN_FAIL(KILN_E_LIMIT, "a value of %u items; at most %d are allowed", v->n,
                         KILN_GRAPH_MAX_ITEMS);
    unsigned tallest = 0;
    copy.has_node = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        const kiln_gval *item = v->u.items ? v->u.items[i] : NULL;
        if (!item) return KILN_FAIL(KILN_E_ARG, "item %u of a value is NULL", i);
        if (item->nest > tallest) tallest = item->nest;
        copy.has_node |= item->has_node;
    }
    copy.nest = (uint16_t)(tallest + brackets(v->kind));
    if (copy.nest > KILN_GRAPH_MAX_NEST)
        return KILN_FAIL(KILN_E_LIMIT, "a value nests more than %d brackets", KILN_GRAPH_MAX_NEST);
    KILN_TRY(check_items(v));
    const kiln_gval **items = kiln_arena_alloc(&g->arena, v->n * sizeof *items);
    if (!items) return KILN_NOMEM();
    if (v->n) memcpy(items, v->u.items, v->n * sizeof *items);
    copy.u.items = items;
    KILN_TRY(new_value(g, &copy, &made));
    *out = made;
    return KILN_OK;
}

static kiln_status plain_value(kiln_graph *g, const kiln_gval *v, const kiln_gval **out) {
    kiln_gval copy = *v, *made;
    copy.n = copy.nest = copy.has_node = 0;
    KILN_TRY(new_value(g, &copy, &made));
    *out = made;
    return KILN_OK;
}

kiln_status kiln_graph_value(kiln_graph *g, const kiln_gval *v, const kiln_gval **out) {
    KILN_NEED(g, v, out);
    kiln_gkind kind = v->kind;
    switch (kind) {
    case KILN_G_NONE: *out = g->none; return KILN_OK;
    case KILN_G_ELLIPSIS: *out = g->ellipsis; return KILN_OK;
    case KILN_G_BOOL: *out = g->bools[v->u.i != 0]; return KILN_OK;
    case KILN_G_INT: return kiln_graph_int(g, v->u.i, out);
    case KILN_G_FLOAT:
    case KILN_G_COMPLEX: return plain_value(g, v, out);
    case KILN_G_NODE:
        if (!v->u.node) return KILN_FAIL(KILN_E_ARG, "the node of a value is NULL");
        if (v->u.node->graph != g)
            return KILN_FAIL(KILN_E_ARG, "node %s is of another graph", v->u.node->name);
        *out = &v->u.node->ref;
        return KILN_OK;
    default: break;
    }
    if (kiln_gkind_is_text(kind)) return text_value(g, v, out);
    if (kiln_gkind_is_items(kind)) return items_value(g, v, out);
    return KILN_FAIL(KILN_E_ARG, "no value has the kind %d", v->kind);
}

kiln_status kiln_graph_int(kiln_graph *g, int64_t i, const kiln_gval **out) {
    KILN_NEED(g, out);
    bool shared = i >= FIRST_INT && i < FIRST_INT + SHARED_INTS;
    if (shared && g->ints[i - FIRST_INT]) {
        *out = g->ints[i - FIRST_INT];
        return KILN_OK;
    }
    KILN_TRY(plain_value(g, &(kiln_gval){.kind = KILN_G_INT, .u.i = i}, out));
    if (shared) g->ints[i - FIRST_INT] = *out;
    return KILN_OK;
}

kiln_status kiln_graph_float(kiln_graph *g, double f, const kiln_gval **out) {
    KILN_NEED(g, out);
    return plain_value(g, &(kiln_gval){.kind = KILN_G_FLOAT, .u.f = f}, out);
}

kiln_status kiln_graph_str(kiln_graph *g, kiln_gkind kind, const char *s, size_t n, const kiln_gval **out) {
    KILN_NEED(g, out);
    if (!kiln_gkind_is_text(kind)) return KILN_FAIL(KILN_E_ARG, "no value of kind %d is text", (int)kind);
    if (n > UINT32_MAX - 1)
        return KILN_FAIL(KILN_E_LIMIT, "a text of %zu bytes; at most 4 GiB are allowed", n);
    return text_value(g, &(kiln_gval){.kind = (uint8_t)kind, .n = (uint32_t)n, .u.s = s}, out);
}

kiln_status kiln_graph_items(kiln_graph *g, kiln_gkind kind, const kiln_gval *const *items, size_t n,
                             const kiln_gval **out) {
    KILN_NEED(g, out);
    if (!kiln_gkind_is_items(kind)) return KILN_FAIL(KILN_E_ARG, "no value of kind %d has items", (int)kind);
    if (n > KILN_GRAPH_MAX_ITEMS)
        return KILN_FAIL(KILN_E_LIMIT, "a value of %zu items; at most %d are allowed", n,
                         KILN_GRAPH_MAX_ITEMS);
    return items_value(g, &(kiln_gval){.kind = (uint8_t)kind, .n = (uint32_t)n, .u.items = items}, out);
}

const kiln_gval *kiln_graph_none(kiln_graph *g) { return g ? g->none : NULL; }
const kiln_gval *kiln_graph_ref(kiln_node *node) { return node ? &node->ref : NULL; }

/* -- looking ----------------------------------------------------------------------------------------- */

static bool same_float(double a, double b) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) && signbit(a) == signbit(b);
    return memcmp(&a, &b, sizeof a) == 0;
}

int kiln_gval_equal(const kiln_gval *a, const kiln_gval *b) {
    if (a == b) return 1;
    if (!a || !b || a->kind != b->kind || a->n != b->n) return 0;
    kiln_gkind kind = a->kind;
    if (kiln_gkind_is_text(kind)) return memcmp(a->u.s, b->u.s, a->n) == 0;
    if (kiln_gkind_is_items(kind)) {
        for (uint32_t i = 0; i < a->n; i++)
            if (!kiln_gval_equal(a->u.items[i], b->u.items[i])) return 0;
        return 1;
    }
    switch (kind) {
    case KILN_G_FLOAT: return same_float(a->u.f, b->u.f);
    case KILN_G_COMPLEX: return same_float(a->u.c.re, b->u.c.re) && same_float(a->u.c.im, b->u.c.im);
    case KILN_G_NODE: return a->u.node == b->u.node;
    case KILN_G_BOOL:
    case KILN_G_INT: return a->u.i == b->u.i;
    default: return 1;
    }
}

void kiln_gval_visit(const kiln_gval *v, kiln_visit_fn visit, void *user) {
    if (!v->has_node) return;
    if (v->kind == KILN_G_NODE) {
        visit(user, v->u.node);
        return;
    }
    for (uint32_t i = 0; i < v->n; i++) kiln_gval_visit(v->u.items[i], visit, user);
}
