/* fuzz_graph.c - any bytes either fail to parse with a message that gives the place, or are a graph that
 * verifies, prints to text which parses to the same text, and can be printed as Python, drawn, normalised
 * and rid of dead code.  Each of these stays within the budget that docs/GRAPH.md states. */
#include <string.h>

#include "fuzz/cost.h"
#include "fuzz/repeat.h"
#include "graph/graph.h"

/* docs/GRAPH.md states these. */
static const cost_budget to_parse = {"parse", 96, 20000, 64, 65536};
static const cost_budget to_print = {"print", 32, 20000, 16, 65536};
static const cost_budget to_python = {"python", 64, 20000, 128, 65536};
static const cost_budget to_draw = {"draw", 48, 20000, 64, 65536};
static const cost_budget to_normalize = {"normalize", 256, 20000, 256, 65536};
static const cost_budget to_clean = {"dead code", 48, 20000, 1, 65536};

static void require(bool ok) {
    if (!ok) __builtin_trap();
}

static char *print(const kiln_graph *g) {
    char *text = NULL;
    require(kiln_graph_text(g, &text) == KILN_OK);
    return text;
}

static void draw(kiln_graph *g, size_t n) {
    char *text;
    cost_start();
    require(kiln_graph_dot(g, &text) == KILN_OK);
    kiln_free(text);
    require(kiln_graph_svg(g, &text) == KILN_OK);
    kiln_free(text);
    cost_check(&to_draw, n);
}

/* Each line of the source is one statement, and names stand on lines the map tells. */
static void print_python(kiln_graph *g, size_t n) {
    kiln_python p;
    cost_start();
    kiln_status st = kiln_graph_python(g, NULL, &p);
    cost_check(&to_python, n);
    if (st != KILN_OK) {
        require((st == KILN_E_ARG || st == KILN_E_LIMIT) && kiln_last_error()[0]);
        return;
    }
    require(strlen(p.source) == p.nsource);
    size_t lines = 0;
    for (size_t i = 0; i < p.nsource; i++) {
        unsigned char c = (unsigned char)p.source[i];
        require(c == '\n' || (c >= ' ' && c < 127));
        lines += c == '\n';
    }
    require(lines == p.nlines + 1 || (p.nlines == 0 && lines == 2));
    kiln_python_free(&p);
}

/* `same` is an equal graph: schemas are read when they are first asked for, which no single text pays. */
static void change(kiln_graph *g, kiln_graph *same, size_t n) {
    static kiln_schemas *schemas;
    if (!schemas) require(kiln_schemas_new(&schemas) == KILN_OK);
    size_t count;
    kiln_status st = kiln_graph_normalize(schemas, same, g->count & 3, &count);
    require(kiln_graph_dead_code(schemas, same, NULL, NULL, &count) == KILN_OK);
    cost_start();
    require(st == kiln_graph_normalize(schemas, g, g->count & 3, &count));
    cost_check(&to_normalize, n);
    require(st == KILN_OK || st == KILN_E_TYPE || st == KILN_E_LIMIT);
    require(kiln_graph_verify(g) == KILN_OK);
    cost_start();
    require(kiln_graph_dead_code(schemas, g, NULL, NULL, &count) == KILN_OK);
    cost_check(&to_clean, n);
    require(kiln_graph_verify(g) == KILN_OK);
    if (!g->first) return;
    st = kiln_graph_replace_uses(g->first, kiln_graph_none(g), NULL);
    require(st == KILN_OK && !g->first->nusers && kiln_graph_verify(g) == KILN_OK);
}

static void all(const char *text, size_t n) {
    kiln_graph *g = NULL, *again = NULL;
    cost_start();
    kiln_status st = kiln_graph_parse(text, n, &g);
    cost_check(&to_parse, n);
    if (st != KILN_OK) {
        require(st == KILN_E_PARSE || st == KILN_E_LIMIT || st == KILN_E_ARG || st == KILN_E_VERIFY);
        require(strncmp(kiln_last_error(), "graph:", 6) == 0);
        return;
    }
    cost_start();
    char *once = print(g);
    cost_check(&to_print, n);
    require(kiln_graph_parse(once, strlen(once), &again) == KILN_OK);
    char *twice = print(again);
    require(strcmp(once, twice) == 0);
    draw(g, n);
    print_python(g, n);
    change(g, again, n);
    kiln_free(once);
    kiln_free(twice);
    kiln_graph_free(g);
    kiln_graph_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    repeated text = repeat_expand(data, n);
    all(text.text, text.n);
    free(text.text);
    return 0;
}
