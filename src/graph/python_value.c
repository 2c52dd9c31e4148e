/* python_value.c - values of a graph -> Python expressions that evaluate to them.
 *
 * Everything is spelled so that it means the same wherever it stands: numbers that carry a sign are
 * bracketed before a dot, inf, nan and types are globals, and what has no literal is a call.  Must not
 * know nodes beyond their names. */
#include <math.h>
#include <string.h>

#include "graph/python.h"

void kiln_py_text(py_printer *p, const char *text) { kiln_sb_puts(&p->out, text); }

void kiln_py_node(py_printer *p, const kiln_node *node) { kiln_py_text(p, p->node_names[node->order]); }

/* -- paths -------------------------------------------------------------------------------------------- */

void kiln_py_path(py_printer *p, const char *base, const char *const *path, const size_t *n, size_t parts) {
    size_t odd = 0;
    for (size_t i = 0; i < parts; i++) odd += !kiln_py_plain(path[i], n[i]);
    const char *getattr = odd ? kiln_py_builtin(p, "getattr") : "";
    for (; odd; odd--) {
        kiln_py_text(p, getattr);
        kiln_sb_putc(&p->out, '(');
    }
    kiln_py_text(p, base);
    for (size_t i = 0; i < parts; i++) {
        if (kiln_py_plain(path[i], n[i])) {
            kiln_sb_putc(&p->out, '.');
            kiln_sb_putn(&p->out, path[i], n[i]);
        } else {
            kiln_sb_putn(&p->out, ", ", 2);
            kiln_gtext_string(&p->out, path[i], n[i]);
            kiln_sb_putc(&p->out, ')');
        }
    }
}

/* base, then the parts of s between any of the separators. */
static void put_parts(py_printer *p, const char *base, const char *s, size_t n, const char *separators) {
    enum { MOST = 64 };
    const char *path[MOST];
    size_t len[MOST], parts = 0;
    for (size_t i = 0; i <= n && n; parts++) {
        size_t k = i;
        while (k < n && !strchr(separators, s[k])) k++;
        if (parts == MOST) {
            kiln_py_fail(p, KILN_FAIL(KILN_E_LIMIT, "'%.60s' has more than %d parts", s, MOST));
            return;
        }
        path[parts] = s + i;
        len[parts] = k - i;
        i = k + 1;
    }
    kiln_py_path(p, base, path, len, parts);
}

/* Everything of torch is reached through the module, so that one global serves all. */
static void put_function(py_printer *p, const kiln_gval *v) {
    static const char torch[] = "torch";
    size_t skip = sizeof torch - 1;
    if (v->n > skip && memcmp(v->u.s, torch, skip) == 0 && (v->u.s[skip] == ':' || v->u.s[skip] == '.')) {
        size_t n = v->n - skip - 1;
        if (n && v->u.s[v->n - 1] == ':') n--; /* a module */
        put_parts(p, kiln_py_torch(p), v->u.s + skip + 1, n, ".:");
        return;
    }
    kiln_py_text(p, kiln_py_global(p, v));
}

/* aten::add.Tensor -> torch.ops.aten.add.Tensor */
static void put_op(py_printer *p, const kiln_gval *v) {
    enum { PARTS = 4 };
    const char *colon = memchr(v->u.s, ':', v->n), *name = colon + 2, *end = v->u.s + v->n;
    const char *dot = memchr(name, '.', (size_t)(end - name));
    const char *path[PARTS] = {"ops", v->u.s, name, dot ? dot + 1 : end};
    size_t n[PARTS] = {3, (size_t)(colon - v->u.s), (size_t)((dot ? dot : end) - name),
                       (size_t)(end - path[3])};
    kiln_py_path(p, kiln_py_torch(p), path, n, dot ? 4 : 3);
}

/* -- values ------------------------------------------------------------------------------------------- */

static void put_list(py_printer *p, const char *open, const kiln_gval *const *items, size_t n,
                     const char *close) {
    kiln_py_text(p, open);
    for (size_t i = 0; i < n; i++) {
        if (i) kiln_sb_putn(&p->out, ", ", 2);
        kiln_py_value(p, items[i]);
    }
    kiln_py_text(p, close);
}

static void put_call(py_printer *p, const char *function, const char *open, const kiln_gval *const *items,
                     size_t n, const char *close) {
    kiln_py_text(p, kiln_py_builtin(p, function));
    put_list(p, open, items, n, close);
}

static void put_dict(py_printer *p, const kiln_gval *v) {
    kiln_sb_putc(&p->out, '{');
    for (uint32_t i = 0; i < v->n; i += 2) {
        if (i) kiln_sb_putn(&p->out, ", ", 2);
        kiln_py_value(p, v->u.items[i]);
        kiln_sb_putn(&p->out, ": ", 2);
        kiln_py_value(p, v->u.items[i + 1]);
    }
    kiln_sb_putc(&p->out, '}');
}

static void put_float(py_printer *p, double f) {
    if (isfinite(f)) {
        kiln_gtext_float(&p->out, f);
        return;
    }
    if (signbit(f)) kiln_sb_putc(&p->out, '-');
    kiln_py_text(p, kiln_py_global(p, &(kiln_gval){.kind = KILN_G_FLOAT, .u.f = isnan(f) ? NAN : INFINITY}));
}

static void put_complex(py_printer *p, const kiln_gval *v) {
    kiln_py_text(p, kiln_py_builtin(p, "complex"));
    kiln_sb_putc(&p->out, '(');
    put_float(p, v->u.c.re);
    kiln_sb_putn(&p->out, ", ", 2);
    put_float(p, v->u.c.im);
    kiln_sb_putc(&p->out, ')');
}

/* torch.float32, or torch.device("cuda:0") */
static void put_torch(py_printer *p, const kiln_gval *v) {
    if (v->kind != KILN_G_DEVICE) {
        put_parts(p, kiln_py_torch(p), v->u.s, v->n, "");
        return;
    }
    kiln_py_text(p, kiln_py_torch(p));
    kiln_py_text(p, ".device(");
    kiln_gtext_string(&p->out, v->u.s, v->n);
    kiln_sb_putc(&p->out, ')');
}

static void put_enum(py_printer *p, const kiln_gval *v) {
    const kiln_gval *member = v->u.items[1];
    bool plain = kiln_py_plain(member->u.s, member->n);
    kiln_py_value(p, v->u.items[0]);
    kiln_sb_putc(&p->out, plain ? '.' : '[');
    if (plain)
        kiln_sb_putn(&p->out, member->u.s, member->n);
    else
        kiln_gtext_string(&p->out, member->u.s, member->n);
    if (!plain) kiln_sb_putc(&p->out, ']');
}

static void put_items(py_printer *p, const kiln_gval *v) {
    const kiln_gval *const *items = v->u.items;
    switch ((kiln_gkind)v->kind) {
    case KILN_G_TUPLE: put_list(p, "(", items, v->n, v->n == 1 ? ",)" : ")"); break;
    case KILN_G_LIST: put_list(p, "[", items, v->n, "]"); break;
    case KILN_G_SET:
        if (v->n)
            put_list(p, "{", items, v->n, "}");
        else
            put_call(p, "set", "(", NULL, 0, ")");
        break;
    case KILN_G_FROZENSET: put_call(p, "frozenset", v->n ? "({" : "(", items, v->n, v->n ? "})" : ")"); break;
    case KILN_G_SLICE: put_call(p, "slice", "(", items, v->n, ")"); break;
    case KILN_G_RANGE: put_call(p, "range", "(", items, v->n, ")"); break;
    case KILN_G_DICT: put_dict(p, v); break;
    case KILN_G_ENUM: put_enum(p, v); break;
    case KILN_G_SIZE:
        kiln_py_text(p, kiln_py_torch(p));
        put_list(p, ".Size([", items, v->n, "])");
        break;
    case KILN_G_NAMEDTUPLE:
        kiln_py_value(p, items[0]);
        put_list(p, "(", items + 2, v->n - 2, ")");
        break;
    case KILN_G_STRUCTSEQ:
        kiln_py_value(p, items[0]);
        put_list(p, "((", items + 1, v->n - 1, v->n == 2 ? ",))" : "))");
        break;
    default: break;
    }
}

void kiln_py_value(py_printer *p, const kiln_gval *v) {
    switch ((kiln_gkind)v->kind) {
    case KILN_G_NODE: kiln_py_node(p, v->u.node); break;
    case KILN_G_NONE: kiln_sb_putn(&p->out, "None", 4); break;
    case KILN_G_ELLIPSIS: kiln_sb_putn(&p->out, "...", 3); break;
    case KILN_G_BOOL: kiln_py_text(p, v->u.i ? "True" : "False"); break;
    case KILN_G_INT: kiln_gtext_int(&p->out, v->u.i); break;
    case KILN_G_BIGINT: kiln_sb_putn(&p->out, v->u.s, v->n); break;
    case KILN_G_FLOAT: put_float(p, v->u.f); break;
    case KILN_G_COMPLEX: put_complex(p, v); break;
    case KILN_G_STR: kiln_gtext_string(&p->out, v->u.s, v->n); break;
    case KILN_G_BYTES: kiln_gtext_bytes(&p->out, v->u.s, v->n); break;
    case KILN_G_DTYPE:
    case KILN_G_DEVICE:
    case KILN_G_LAYOUT:
    case KILN_G_MEMORY_FORMAT: put_torch(p, v); break;
    case KILN_G_OP: put_op(p, v); break;
    case KILN_G_FUNC: put_function(p, v); break;
    case KILN_G_CONST: kiln_py_text(p, kiln_py_global(p, v)); break;
    default: put_items(p, v); break;
    }
}

void kiln_py_atom(py_printer *p, const kiln_gval *v) {
    bool number = v->kind == KILN_G_INT || v->kind == KILN_G_BIGINT || v->kind == KILN_G_FLOAT;
    bool bracket = number || v->kind == KILN_G_ELLIPSIS;
    if (bracket) kiln_sb_putc(&p->out, '(');
    kiln_py_value(p, v);
    if (bracket) kiln_sb_putc(&p->out, ')');
}
