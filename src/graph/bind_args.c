/* bind_args.c - a call's arguments against a signature, as Python's inspect.Signature.bind does it.
 *
 * First every argument finds its parameter, with Python's own words for what does not fit; then the
 * arguments are laid out again in the order of the signature.  No argument is ever dropped.  Must not know
 * schemas. */
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

typedef struct binding {
    const kiln_sig_param *sig;
    size_t nsig;
    const kiln_gval *const *args;
    size_t nargs;
    const kiln_kwarg *kwargs;
    size_t nkwargs;
    const kiln_gval **value; /* by parameter; NULL: not given */
    uint8_t *by_position;    /* by parameter */
    uint8_t *used;           /* by keyword argument */
    size_t rest;             /* arguments from here on belong to *args */
} binding;

/* -- errors ------------------------------------------------------------------------------------------- */

/* A name as Python's repr shows it, cut to what an error text can hold. */
static const char *repr(const char *name, char *text, size_t size) {
    bool twice = strchr(name, '\'') && !strchr(name, '"');
    char quote = twice ? '"' : '\'';
    size_t n = 0;
    text[n++] = quote;
    for (; *name && n + 6 < size; name++) {
        unsigned char c = (unsigned char)*name;
        if (c == '\\' || c == (unsigned char)quote)
            text[n++] = '\\', text[n++] = (char)c;
        else if (c == '\n' || c == '\r' || c == '\t')
            text[n++] = '\\', text[n++] = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
        else if (c < ' ' || c == 127)
            n += (size_t)snprintf(text + n, size - n, "\\x%02x", c);
        else
            text[n++] = (char)c;
    }
    text[n++] = quote;
    text[n] = 0;
    return text;
}

enum { REPR_MAX = 2000 };

static kiln_status refuse(const char *before, const char *name, const char *after) {
    char text[REPR_MAX];
    return KILN_FAIL(KILN_E_TYPE, "%s%s%s", before, repr(name, text, sizeof text), after);
}

static kiln_status missing(const char *name) { return refuse("missing a required argument: ", name, ""); }

static kiln_status positional_only(const char *name) {
    return refuse("", name, " parameter is positional only, but was passed as a keyword");
}

/* -- finding parameters ------------------------------------------------------------------------------- */

/* The keyword argument of that name, or -1. */
static int64_t keyword(const binding *b, const char *name) {
    for (size_t k = 0; k < b->nkwargs; k++)
        if (strcmp(b->kwargs[k].name, name) == 0) return (int64_t)k;
    return -1;
}

/* Positional arguments; *next is the parameter at which keywords start. */
static kiln_status bind_positions(binding *b, size_t *next) {
    size_t i = 0;
    for (size_t a = 0; a < b->nargs; a++, i++) {
        const kiln_sig_param *p = i < b->nsig ? &b->sig[i] : NULL;
        if (!p || p->kind == KILN_VAR_KEYWORD || p->kind == KILN_KEYWORD_ONLY)
            return KILN_FAIL(KILN_E_TYPE, "too many positional arguments");
        if (p->kind == KILN_VAR_POSITIONAL) {
            b->rest = a;
            *next = i + 1;
            return KILN_OK;
        }
        if (p->kind != KILN_POSITIONAL_ONLY && keyword(b, p->name) >= 0)
            return refuse("multiple values for argument ", p->name, "");
        b->value[i] = b->args[a];
        b->by_position[i] = 1;
    }
    *next = i;
    if (i == b->nsig) return KILN_OK;
    const kiln_sig_param *p = &b->sig[i];
    if (p->kind == KILN_VAR_POSITIONAL) {
        *next = i + 1;
    } else if (keyword(b, p->name) >= 0) {
        if (p->kind == KILN_POSITIONAL_ONLY) return positional_only(p->name);
    } else if (p->kind != KILN_VAR_KEYWORD && !p->fallback) {
        return missing(p->name);
    }
    return KILN_OK;
}

static kiln_status bind_keywords(binding *b, size_t from, bool *takes_rest) {
    *takes_rest = false;
    for (size_t i = from; i < b->nsig; i++) {
        const kiln_sig_param *p = &b->sig[i];
        if (p->kind == KILN_VAR_KEYWORD) *takes_rest = true;
        if (p->kind == KILN_VAR_KEYWORD || p->kind == KILN_VAR_POSITIONAL) continue;
        int64_t k = keyword(b, p->name);
        if (k < 0 || b->used[k]) {
            if (!p->fallback) return missing(p->name);
            continue;
        }
        if (p->kind == KILN_POSITIONAL_ONLY) return positional_only(p->name);
        b->value[i] = b->kwargs[k].value;
        b->used[k] = 1;
    }
    for (size_t k = 0; k < b->nkwargs && !*takes_rest; k++)
        if (!b->used[k]) return refuse("got an unexpected keyword argument ", b->kwargs[k].name, "");
    return KILN_OK;
}

/* -- laying out --------------------------------------------------------------------------------------- */

static bool can_be_positional(const kiln_sig_param *p) {
    return p->kind == KILN_POSITIONAL_ONLY || p->kind == KILN_POSITIONAL_OR_KEYWORD;
}

/* How many leading parameters must be given by position: all up to the last that can be given in no other
 * way. */
static size_t forced(const binding *b, unsigned flags) {
    size_t n = 0;
    for (size_t i = 0; i < b->nsig; i++) {
        const kiln_sig_param *p = &b->sig[i];
        if (p->kind == KILN_VAR_POSITIONAL && b->rest < b->nargs) n = i;
        if (!can_be_positional(p)) continue;
        bool has_value = b->value[i] || !(flags & KILN_NO_DEFAULTS);
        if (has_value && (p->kind == KILN_POSITIONAL_ONLY || p->positional)) n = i + 1;
    }
    return n;
}

static kiln_status lay_out(kiln_graph *g, const binding *b, unsigned flags, kiln_bound_args *out) {
    size_t most = b->nsig + b->nargs, must = forced(b, flags), nargs = 0, nkwargs = 0;
    const kiln_gval **args = kiln_arena_alloc(&g->arena, (most + 1) * sizeof *args);
    kiln_kwarg *kwargs = kiln_arena_alloc(&g->arena, (b->nsig + b->nkwargs + 1) * sizeof *kwargs);
    if (!args || !kwargs) return KILN_NOMEM();
    for (size_t i = 0; i < b->nsig; i++) {
        const kiln_sig_param *p = &b->sig[i];
        const kiln_gval *v = b->value[i];
        if (p->kind == KILN_VAR_POSITIONAL)
            for (size_t a = b->rest; a < b->nargs; a++) args[nargs++] = b->args[a];
        if (!v && (i < must || !(flags & KILN_NO_DEFAULTS))) v = p->fallback;
        if (!v) continue;
        bool first = can_be_positional(p) && (i < must || (b->by_position[i] && !(flags & KILN_KWARGS_ONLY)));
        if (first)
            args[nargs++] = v;
        else
            kwargs[nkwargs++] = (kiln_kwarg){p->name, v};
    }
    for (size_t k = 0; k < b->nkwargs; k++)
        if (!b->used[k]) kwargs[nkwargs++] = b->kwargs[k];
    *out = (kiln_bound_args){.args = args, .kwargs = kwargs, .nargs = nargs, .nkwargs = nkwargs};
    return KILN_OK;
}

kiln_status kiln_graph_bind(kiln_graph *g, const kiln_sig_param *sig, size_t nsig,
                            const kiln_gval *const *args, size_t nargs, const kiln_kwarg *kwargs,
                            size_t nkwargs, unsigned flags, kiln_bound_args *out) {
    KILN_NEED(g, out);
    KILN_NEED_ITEMS(sig, nsig);
    KILN_NEED_ITEMS(args, nargs);
    KILN_NEED_ITEMS(kwargs, nkwargs);
    binding b = {
        .sig = sig, .nsig = nsig, .args = args, .nargs = nargs, .kwargs = kwargs, .nkwargs = nkwargs};
    size_t from = 0;
    bool takes_rest;
    b.rest = nargs;
    b.value = kiln_arena_alloc(&g->arena, (nsig + 1) * sizeof *b.value);
    b.by_position = kiln_arena_alloc(&g->arena, nsig + 1);
    b.used = kiln_arena_alloc(&g->arena, nkwargs + 1);
    if (!b.value || !b.by_position || !b.used) return KILN_NOMEM();
    KILN_TRY(bind_positions(&b, &from));
    KILN_TRY(bind_keywords(&b, from, &takes_rest));
    return lay_out(g, &b, flags, out);
}
