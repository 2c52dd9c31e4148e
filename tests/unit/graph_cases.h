/* graph_cases.h - what the tests of graphs share: parsing, printing and asking for errors in one line. */
#ifndef KILN_GRAPH_CASES_H
#define KILN_GRAPH_CASES_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "graph/graph.h"

static inline kiln_graph *graph_of(const char *lines) {
    kiln_sb text;
    kiln_graph *g = NULL;
    kiln_sb_init(&text);
    kiln_sb_printf(&text, "kg 1\n%s", lines);
    if (kiln_graph_parse(text.p, text.len, &g) != KILN_OK) fail_msg("%s: %s", lines, kiln_last_error());
    kiln_sb_fini(&text);
    return g;
}

/* The lines after the header. */
static inline char *lines_of(const kiln_graph *g) {
    char *text = NULL;
    assert_int_equal(kiln_graph_text(g, &text), KILN_OK);
    memmove(text, text + 5, strlen(text) - 4);
    return text;
}

static inline void assert_lines(const kiln_graph *g, const char *want) {
    char *got = lines_of(g);
    assert_string_equal(got, want);
    kiln_free(got);
}

static inline kiln_node *node_of(const kiln_graph *g, const char *name) {
    kiln_node *node = kiln_graph_find(g, name, strlen(name));
    if (!node) fail_msg("no node %s", name);
    return node;
}

#define OK(expr)                                                          \
    do {                                                                  \
        if ((expr) != KILN_OK) fail_msg(#expr ": %s", kiln_last_error()); \
    } while (0)

#define REFUSED(want, message, expr)                     \
    do {                                                 \
        kiln_clear_error();                              \
        assert_int_equal((expr), want);                  \
        assert_string_equal(kiln_last_error(), message); \
    } while (0)
#endif
