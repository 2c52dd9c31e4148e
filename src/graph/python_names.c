/* python_names.c - which name each node, parameter and global has in printed Python.
 *
 * Parameters choose first, since callers may pass them by keyword; then nodes, which keep off keywords,
 * builtins and what the code itself uses; then globals, as they are met, take names that are left.  So
 * nothing shadows what it needs. Only ASCII names are kept: Python normalises others, which could make two
 * of them one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/python.h"

/* Soft keywords, every builtin of Python 3.10 to 3.14, and names that printed code and torch.fx's callers
 * rely on. */
static const char *const reserved[] = {"_",
                                       "case",
                                       "match",
                                       "type",
                                       "torch",
                                       "inf",
                                       "nan",
                                       "device",
                                       "NoneType",
                                       "fx_pytree",
                                       "pytree",
                                       "ArithmeticError",
                                       "AssertionError",
                                       "AttributeError",
                                       "BaseException",
                                       "BaseExceptionGroup",
                                       "BlockingIOError",
                                       "BrokenPipeError",
                                       "BufferError",
                                       "BytesWarning",
                                       "ChildProcessError",
                                       "ConnectionAbortedError",
                                       "ConnectionError",
                                       "ConnectionRefusedError",
                                       "ConnectionResetError",
                                       "DeprecationWarning",
                                       "EOFError",
                                       "Ellipsis",
                                       "EncodingWarning",
                                       "EnvironmentError",
                                       "Exception",
                                       "ExceptionGroup",
                                       "FileExistsError",
                                       "FileNotFoundError",
                                       "FloatingPointError",
                                       "FutureWarning",
                                       "GeneratorExit",
                                       "IOError",
                                       "ImportError",
                                       "ImportWarning",
                                       "IndentationError",
                                       "IndexError",
                                       "InterruptedError",
                                       "IsADirectoryError",
                                       "KeyError",
                                       "KeyboardInterrupt",
                                       "LookupError",
                                       "MemoryError",
                                       "ModuleNotFoundError",
                                       "NameError",
                                       "NotADirectoryError",
                                       "NotImplemented",
                                       "NotImplementedError",
                                       "OSError",
                                       "OverflowError",
                                       "PendingDeprecationWarning",
                                       "PermissionError",
                                       "ProcessLookupError",
                                       "PythonFinalizationError",
                                       "RecursionError",
                                       "ReferenceError",
                                       "ResourceWarning",
                                       "RuntimeError",
                                       "RuntimeWarning",
                                       "StopAsyncIteration",
                                       "StopIteration",
                                       "SyntaxError",
                                       "SyntaxWarning",
                                       "SystemError",
                                       "SystemExit",
                                       "TabError",
                                       "TimeoutError",
                                       "TypeError",
                                       "UnboundLocalError",
                                       "UnicodeDecodeError",
                                       "UnicodeEncodeError",
                                       "UnicodeError",
                                       "UnicodeTranslateError",
                                       "UnicodeWarning",
                                       "UserWarning",
                                       "ValueError",
                                       "Warning",
                                       "ZeroDivisionError",
                                       "__build_class__",
                                       "__doc__",
                                       "__import__",
                                       "__loader__",
                                       "__name__",
                                       "__package__",
                                       "__spec__",
                                       "__builtins__",
                                       "abs",
                                       "aiter",
                                       "all",
                                       "anext",
                                       "any",
                                       "ascii",
                                       "bin",
                                       "bool",
                                       "breakpoint",
                                       "bytearray",
                                       "bytes",
                                       "callable",
                                       "chr",
                                       "classmethod",
                                       "compile",
                                       "complex",
                                       "copyright",
                                       "credits",
                                       "delattr",
                                       "dict",
                                       "dir",
                                       "divmod",
                                       "enumerate",
                                       "eval",
                                       "exec",
                                       "exit",
                                       "filter",
                                       "float",
                                       "format",
                                       "frozenset",
                                       "getattr",
                                       "globals",
                                       "hasattr",
                                       "hash",
                                       "help",
                                       "hex",
                                       "id",
                                       "input",
                                       "int",
                                       "isinstance",
                                       "issubclass",
                                       "iter",
                                       "len",
                                       "license",
                                       "list",
                                       "locals",
                                       "map",
                                       "max",
                                       "memoryview",
                                       "min",
                                       "next",
                                       "object",
                                       "oct",
                                       "open",
                                       "ord",
                                       "pow",
                                       "print",
                                       "property",
                                       "quit",
                                       "range",
                                       "repr",
                                       "reversed",
                                       "round",
                                       "set",
                                       "setattr",
                                       "slice",
                                       "sorted",
                                       "staticmethod",
                                       "str",
                                       "sum",
                                       "super",
                                       "tuple",
                                       "vars",
                                       "zip"};

void kiln_py_fail(py_printer *p, kiln_status st) {
    if (p->st == KILN_OK) p->st = st;
}

bool kiln_py_plain(const char *s, size_t n) {
    return kiln_gtext_is_identifier(s, n) && !kiln_gtext_is_keyword(s, n);
}

/* -- tables ------------------------------------------------------------------------------------------- */

static py_name *place(const py_table *t, const char *text, size_t n, uint32_t hash) {
    size_t k = hash & (t->cap - 1);
    while (t->at[k].text && (t->at[k].hash != hash || t->at[k].n != n || memcmp(t->at[k].text, text, n) != 0))
        k = (k + 1) & (t->cap - 1);
    return &t->at[k];
}

static bool grow(py_table *t) {
    py_table bigger = {.n = t->n, .cap = t->cap ? t->cap * 2 : 512};
    bigger.at = kiln_calloc(bigger.cap, sizeof *bigger.at);
    if (!bigger.at) return false;
    for (size_t k = 0; k < t->cap; k++)
        if (t->at[k].text) *place(&bigger, t->at[k].text, t->at[k].n, t->at[k].hash) = t->at[k];
    kiln_free(t->at);
    *t = bigger;
    return true;
}

/* The entry of text, or NULL. */
static py_name *look(const py_table *t, const char *text, size_t n) {
    if (!t->cap) return NULL;
    py_name *e = place(t, text, n, (uint32_t)kiln_hash64_keyed(text, n));
    return e->text ? e : NULL;
}

/* The entry of text, which must live as long as the table; made if it is new.  NULL: out of memory. */
static py_name *enter(py_table *t, const char *text, size_t n) {
    if (2 * (t->n + 1) > t->cap && !grow(t)) return NULL;
    uint32_t hash = (uint32_t)kiln_hash64_keyed(text, n);
    py_name *e = place(t, text, n, hash);
    if (e->text) return e;
    *e = (py_name){.text = text, .n = (uint32_t)n, .hash = hash};
    t->n++;
    return e;
}

void kiln_py_names_fini(py_printer *p) {
    kiln_free(p->names.at);
    kiln_free(p->globals.at);
    kiln_free(p->numbers.at);
    kiln_free(p->node_names);
    kiln_free(p->params);
}

/* -- choosing ----------------------------------------------------------------------------------------- */

/* Neither reserved, nor a node's in the graph, nor given away. */
static bool is_free(const py_printer *p, const char *s, size_t n) {
    return !kiln_gtext_is_keyword(s, n) && !look(&p->names, s, n) && !kiln_graph_find(p->g, s, n);
}

/* Where the numbers of names that start so go on; NULL: out of memory.  Names are never given back, so a number
 * that was tried once need not be tried again. */
static py_name *counter(py_printer *p, const char *base, size_t n) {
    py_name *known = look(&p->numbers, base, n);
    if (known) return known;
    const char *text = kiln_arena_strndup(&p->arena, base, n);
    return text ? enter(&p->numbers, text, n) : NULL;
}

/* wanted as a Python name that is free, with a number if need be; entered.  NULL: out of memory. */
static const char *fresh_name(py_printer *p, const char *wanted, size_t n) {
    enum { SUFFIX = 24 };
    char *text = kiln_arena_alloc(&p->arena, n + SUFFIX);
    if (!text) return NULL;
    size_t len = 0;
    if (n == 0 || (wanted[0] >= '0' && wanted[0] <= '9')) text[len++] = '_';
    for (size_t i = 0; i < n; i++)
        text[len++] = kiln_gtext_is_identifier(&wanted[i], 1) || (wanted[i] >= '0' && wanted[i] <= '9')
                          ? wanted[i]
                          : '_';
    size_t base = len;
    for (py_name *count = NULL; !is_free(p, text, len);) {
        if (!count && !(count = counter(p, text, base))) return NULL;
        len = base + (size_t)snprintf(text + base, SUFFIX - 1, "_%u", ++count->number);
    }
    py_name *e = enter(&p->names, text, len);
    if (!e) return NULL;
    e->state = PY_TAKEN;
    return e->text;
}

static const char *parameter_name(py_printer *p, kiln_node *node) {
    const char *s = node->target->u.s, *bare = s + strspn(s, "*");
    size_t n = node->target->n - (size_t)(bare - s);
    if (kiln_py_plain(bare, n) && strcmp(bare, p->self) != 0) {
        py_name *e = enter(&p->names, bare, n);
        if (!e) return NULL;
        if (!e->node && e->state == PY_RESERVED) {
            e->state = PY_TAKEN;
            e->node = node;
            return e->text;
        }
    }
    return fresh_name(p, bare, n);
}

void kiln_py_name_node(py_printer *p, const kiln_node *node) {
    const char *name = node->name;
    if (!node->plain || place(&p->names, name, node->name_len, node->name_hash)->text)
        name = fresh_name(p, name, node->name_len);
    p->node_names[node->order] = name ? name : "";
    if (!name) kiln_py_fail(p, KILN_NOMEM());
}

static kiln_status assign_parameters(py_printer *p) {
    size_t cap = 0;
    for (kiln_node *node = p->g->first; p->nparams < p->g->nplaceholders; node = node->next) {
        if (node->op != KILN_PLACEHOLDER) continue;
        if (p->nparams == cap) {
            cap = cap ? 2 * cap : 16;
            const kiln_node **grown = kiln_realloc(p->params, cap * sizeof *grown);
            if (!grown) return KILN_NOMEM();
            p->params = grown;
        }
        p->params[p->nparams++] = node;
        p->node_names[node->order] = parameter_name(p, node);
        if (!p->node_names[node->order]) return KILN_NOMEM();
    }
    return KILN_OK;
}

kiln_status kiln_py_assign_names(py_printer *p) {
    p->node_names = kiln_calloc(p->g->count + 1, sizeof *p->node_names);
    if (!p->node_names) return KILN_NOMEM();
    for (size_t k = 0; k < sizeof reserved / sizeof *reserved; k++)
        if (!enter(&p->names, reserved[k], strlen(reserved[k]))) return KILN_NOMEM();
    py_name *self = p->self[0] ? enter(&p->names, p->self, strlen(p->self)) : NULL;
    if (p->self[0] && !self) return KILN_NOMEM();
    if (self) self->state = PY_TAKEN;
    for (size_t k = 0; k < p->ntaken; k++) {
        py_name *e = enter(&p->names, p->taken[k], strlen(p->taken[k]));
        if (!e) return KILN_NOMEM();
        e->state = PY_TAKEN;
    }
    return assign_parameters(p);
}

/* -- globals ------------------------------------------------------------------------------------------ */

static const char *add_global(py_printer *p, const char *name, const kiln_gval *v) {
    if (p->nlist == p->list_cap) {
        size_t cap = p->list_cap ? p->list_cap * 2 : 16;
        kiln_python_global *list = kiln_realloc(p->list, cap * sizeof *list);
        if (!list) return NULL;
        p->list = list;
        p->list_cap = cap;
    }
    p->list[p->nlist++] = (kiln_python_global){name, v};
    return name;
}

/* "math:sqrt" -> math_sqrt; a builtin, torch, inf and nan keep their name unless a parameter has it. */
static const char *choose_global(py_printer *p, const kiln_gval *v, const char *s, size_t n) {
    static const char builtins[] = "builtins:";
    size_t skip = sizeof builtins - 1;
    bool func = v->kind == KILN_G_FUNC, builtin = func && n > skip && memcmp(s, builtins, skip) == 0;
    if (builtin) s += skip, n -= skip;
    if (func && n > 1 && s[n - 1] == ':') n--; /* a module */
    const py_name *e = look(&p->names, s, n);
    if (e && e->state == PY_RESERVED &&
        (builtin || v->kind == KILN_G_FLOAT || (func && strcmp(e->text, "torch") == 0)))
        return builtin ? e->text : add_global(p, e->text, v);
    const char *name = fresh_name(p, s, n);
    return name ? add_global(p, name, v) : NULL;
}

/* The printed code lives on without the graph's help: what a global stands for is copied. */
static const char *global(py_printer *p, const kiln_gval *v, const char *s, size_t n) {
    char small[256], *key = small;
    if (n + 2 > sizeof small && !(key = kiln_arena_alloc(&p->arena, n + 2))) return NULL;
    key[0] = v->kind == KILN_G_CONST ? 'c' : 'f'; /* a constant and a function may be written alike */
    memcpy(key + 1, s, n);
    const py_name *known = look(&p->globals, key, n + 1);
    if (known) return known->global;
    if (key == small) key = kiln_arena_strndup(&p->arena, small, n + 1);
    kiln_gval *own = kiln_arena_alloc(&p->arena, sizeof *own);
    if (!key || !own) return NULL;
    *own = *v;
    if (kiln_gkind_is_text(v->kind)) own->u.s = key + 1;
    const char *name = choose_global(p, own, s, n);
    py_name *e = name ? enter(&p->globals, key, n + 1) : NULL;
    if (!e) return NULL;
    e->global = name;
    return name;
}

const char *kiln_py_global(py_printer *p, const kiln_gval *v) {
    const char *name = v->kind != KILN_G_FLOAT ? global(p, v, v->u.s, v->n)
                       : isnan(v->u.f)         ? global(p, v, "nan", 3)
                                               : global(p, v, "inf", 3);
    if (!name && p->st == KILN_OK) p->st = KILN_NOMEM();
    return name ? name : "";
}

static const char *named(py_printer *p, const char *text) {
    return kiln_py_global(p, &(kiln_gval){.kind = KILN_G_FUNC, .n = (uint32_t)strlen(text), .u.s = text});
}

const char *kiln_py_builtin(py_printer *p, const char *name) {
    char text[64];
    snprintf(text, sizeof text, "builtins:%s", name);
    return named(p, text);
}

const char *kiln_py_torch(py_printer *p) {
    if (!p->torch) p->torch = named(p, "torch:");
    return p->torch;
}
