/* fuzz_graph.c - any bytes either fail to parse with a message that gives the place, or are a graph that
 * verifies, prints to text which parses to the same text, and can be printed as Python, drawn, normalised
 * and rid of dead code. */
#include <string.h>

#include "graph/graph.h"

static void require(bool ok) {
    if (!ok) __builtin_trap();
}

static char *print(const kiln_graph *g) {
    char *text = NULL;
    require(kiln_graph_text(g, &text) == KILN_OK);
    return text;
}

static void draw(kiln_graph *g) {
    char *text;
    require(kiln_graph_dot(g, &text) == KILN_OK);
    kiln_free(text);
    require(kiln_graph_svg(g, &text) == KILN_OK);
    kiln_free(text);
}

/* Each line of the source is one statement, and names stand on lines the map tells. */
static void print_python(kiln_graph *g) {
    kiln_python p;
    kiln_status st = kiln_graph_python(g, NULL, &p);
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

static void change(kiln_graph *g) {
    static kiln_schemas *schemas;
    if (!schemas) require(kiln_schemas_new(&schemas) == KILN_OK);
    size_t n;
    kiln_status st = kiln_graph_normalize(schemas, g, n = g->count & 3, &n);
    require(st == KILN_OK || st == KILN_E_TYPE || st == KILN_E_LIMIT);
    require(kiln_graph_verify(g) == KILN_OK);
    require(kiln_graph_dead_code(schemas, g, NULL, NULL, &n) == KILN_OK);
    require(kiln_graph_verify(g) == KILN_OK);
    if (!g->first) return;
    st = kiln_graph_replace_uses(g->first, kiln_graph_none(g), NULL);
    require(st == KILN_OK && !g->first->nusers && kiln_graph_verify(g) == KILN_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    kiln_graph *g = NULL, *again = NULL;
    kiln_status st = kiln_graph_parse((const char *)data, n, &g);
    if (st != KILN_OK) {
        require(st == KILN_E_PARSE || st == KILN_E_LIMIT || st == KILN_E_ARG || st == KILN_E_VERIFY);
        require(strncmp(kiln_last_error(), "graph:", 6) == 0);
        return 0;
    }
    char *once = print(g);
    require(kiln_graph_parse(once, strlen(once), &again) == KILN_OK);
    char *twice = print(again);
    require(strcmp(once, twice) == 0);
    draw(g);
    print_python(g);
    change(g);
    kiln_free(once);
    kiln_free(twice);
    kiln_graph_free(g);
    kiln_graph_free(again);
    return 0;
}
