/* fuzz_graph_bind.c - signatures and calls made from bytes: binding either fails with one of Python's
 * messages, or every argument is in what it gives exactly once, and binding that again gives the same.
 * That the outcome is Python's own is shown beside inspect.Signature.bind in tests/graph. */
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

static void require(bool ok) {
    if (!ok) __builtin_trap();
}

enum { MOST = 8 };

static const char *const names[] = {"a", "b", "c", "from", "self", "input", "kw", "d e"};

typedef struct bytes {
    const uint8_t *at, *end;
} bytes;

static unsigned next(bytes *b, unsigned below) { return b->at < b->end ? *b->at++ % below : 0; }

/* Kinds in Python's order, names all different. */
static size_t make_signature(bytes *b, const kiln_gval *fallback, kiln_sig_param *sig) {
    size_t n = next(b, MOST), first = next(b, MOST);
    unsigned kind = KILN_POSITIONAL_ONLY;
    bool defaulted = false;
    for (size_t i = 0; i < n; i++) {
        unsigned step = next(b, 3);
        kind += step;
        if (kind > KILN_VAR_KEYWORD || (i && sig[i - 1].kind == KILN_VAR_KEYWORD)) return i;
        if (kind == KILN_VAR_POSITIONAL && step == 0) kind++; /* only one of them */
        defaulted |= next(b, 2) != 0;
        bool star = kind == KILN_VAR_POSITIONAL || kind == KILN_VAR_KEYWORD;
        sig[i] = (kiln_sig_param){names[(first + i) % MOST], (kiln_param_kind)kind,
                                  defaulted && !star ? fallback : NULL, 0};
    }
    return n;
}

static bool is_pythons(const char *text) {
    static const char *const starts[] = {"missing a required argument: '", "too many positional arguments",
                                         "multiple values for argument '",
                                         "got an unexpected keyword argument '", "'"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(text, starts[i], strlen(starts[i])) == 0) return true;
    return false;
}

/* How often the integer v is among the arguments. */
static int count(const kiln_bound_args *b, int64_t v) {
    int n = 0;
    for (size_t i = 0; i < b->nargs; i++) n += b->args[i]->u.i == v;
    for (size_t i = 0; i < b->nkwargs; i++) n += b->kwargs[i].value->u.i == v;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bytes b = {data, data + size};
    kiln_graph *g;
    const kiln_gval *fallback, *args[MOST];
    kiln_sig_param sig[MOST];
    kiln_kwarg kwargs[MOST];
    require(kiln_graph_new(&g) == KILN_OK && kiln_graph_int(g, 1000, &fallback) == KILN_OK);
    size_t nsig = make_signature(&b, fallback, sig), nargs = next(&b, MOST), nkwargs = 0;
    for (size_t i = 0; i < nargs; i++) require(kiln_graph_int(g, (int64_t)i, &args[i]) == KILN_OK);
    for (size_t i = 0; i < MOST; i++) {
        if (!next(&b, 2)) continue;
        kwargs[nkwargs].name = names[i];
        require(kiln_graph_int(g, 100 + (int64_t)i, &kwargs[nkwargs++].value) == KILN_OK);
    }
    unsigned flags = next(&b, 4);
    kiln_bound_args out, again;
    kiln_status st = kiln_graph_bind(g, sig, nsig, args, nargs, kwargs, nkwargs, flags, &out);
    if (st == KILN_OK) {
        for (size_t i = 0; i < nargs; i++) require(count(&out, (int64_t)i) == 1);
        for (size_t i = 0; i < nkwargs; i++) require(count(&out, kwargs[i].value->u.i) == 1);
        require(kiln_graph_bind(g, sig, nsig, out.args, out.nargs, out.kwargs, out.nkwargs, flags, &again) ==
                KILN_OK);
        require(out.nargs == again.nargs && out.nkwargs == again.nkwargs);
    } else {
        require(st == KILN_E_TYPE && is_pythons(kiln_last_error()));
    }
    kiln_graph_free(g);
    return 0;
}
