/* expr_unknown.c - an expression that cannot be typed -> the unknown name or function in it, if there is one, as the error.
 *
 * A misspelt name is the fault, whatever else is wrong with the types around it, so it is looked for when typing has
 * failed.  Typing itself knows what is unknown; this file only asks it about one part after the other.  Owns nothing. */
#include <string.h>

#include "expr/prims.h"
#include "expr/typer.h"

const char *kiln_expr_advice(const char *word, size_t n) {
    static const struct {
        const char *word, *text;
    } advice[] = {
#define A(word, text) {word, text},
#include "expr/advice.def"
#undef A
    };
    for (size_t k = 0; k < sizeof advice / sizeof *advice; k++)
        if (strlen(advice[k].word) == n && memcmp(advice[k].word, word, n) == 0) return advice[k].text;
    return NULL;
}

static int same_start(const char *a, const char *b) {
    int n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

/* Of functions that differ as little, the one that begins like the name. */
const char *kiln_expr_nearest_function(const char *name) {
    const char *best = NULL;
    int least = 0, start = 0;
    for (int p = 0; p < KILN_PRIM_COUNT; p++) {
        const char *prim = kiln_prim_name((kiln_prim)p);
        int d = kiln_misspelling(name, prim), begin = same_start(name, prim);
        if (d < 0 || (best && (d > least || (d == least && begin <= start)))) continue;
        best = prim;
        least = d;
        start = begin;
    }
    return best;
}

static kiln_status type_part(const kiln_env *env, const kiln_expr *e) {
    kiln_typer ty = {.env = env};
    kiln_texpr *ignored;
    return kiln_typer_expr(&ty, e, &ignored);
}

/* Types the part e in silence, and a second time for the message if a name or function in it is unknown. */
static kiln_status ask(const kiln_env *env, const kiln_expr *e) {
    int quiet = kiln_quiet(1);
    kiln_status st = type_part(env, e);
    kiln_quiet(quiet);
    return st == KILN_E_PARSE ? type_part(env, e) : KILN_OK;
}

kiln_status kiln_expr_unknown(const kiln_env *env, const kiln_expr *e) {
    bool asks = e->kind == KILN_X_NAME || e->kind == KILN_X_FIELD || e->kind == KILN_X_CALL ||
                e->kind == KILN_X_ACCESS;
    if (asks) KILN_TRY(ask(env, e));
    for (int k = 0; k < e->nargs; k++) KILN_TRY(kiln_expr_unknown(env, e->args[k]));
    for (int k = 0; k < e->ncoord; k++)
        if (e->coord[k].at) KILN_TRY(kiln_expr_unknown(env, e->coord[k].at));
    return e->other ? kiln_expr_unknown(env, e->other) : KILN_OK;
}
