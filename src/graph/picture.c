/* picture.c - a graph as Graphviz text, and as an SVG picture laid out here.
 *
 * The layout: a node's layer is one below the lowest node it uses; within a layer nodes are ordered by the
 * mean column of what they use, twice over.  Linear in nodes and uses but for that sorting.  Must not know
 * what nodes do. */
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

enum { BOX_W = 180, BOX_H = 40, GAP_X = 24, GAP_Y = 44, MARGIN = 20, LABEL = 24 };

/* Text for XML, or for a string of Graphviz; at most `most` bytes of it, cut between code points. */
static void put_escaped(kiln_sb *out, const char *s, size_t n, size_t most, bool xml) {
    size_t keep = n <= most ? n : most - 1;
    while (keep < n && keep && ((unsigned char)s[keep] & 0xc0) == 0x80) keep--;
    for (size_t i = 0; i < keep; i++) {
        unsigned char c = (unsigned char)s[i];
        if (xml && c == '<')
            kiln_sb_puts(out, "&lt;");
        else if (xml && c == '&')
            kiln_sb_puts(out, "&amp;");
        else if (!xml && (c == '"' || c == '\\'))
            kiln_sb_printf(out, "\\%c", c);
        else
            kiln_sb_putc(out,
                         c < ' ' || c == 127 || c == 0xed ? '?' : (char)c); /* 0xed: surrogates are no XML */
    }
    if (keep < n) kiln_sb_puts(out, "\xe2\x80\xa6");
}

static void put_caption(kiln_sb *out, const kiln_node *node, size_t most, bool xml) {
    put_escaped(out, node->target->u.s, node->target->n, most, xml);
    const char *val = kiln_node_get_meta(node, "val");
    if (!val) return;
    kiln_sb_puts(out, "  ");
    put_escaped(out, val, strlen(val), most, xml);
}

/* -- Graphviz ----------------------------------------------------------------------------------------- */

kiln_status kiln_graph_dot(const kiln_graph *g, char **out) {
    KILN_NEED(g, out);
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_sb_puts(&text, "digraph graph_ {\n  node [shape=box, fontname=\"monospace\"];\n");
    for (const kiln_node *node = g->first; node; node = node->next) {
        kiln_sb_printf(&text, "  n%u [label=\"", node->id);
        put_escaped(&text, node->name, node->name_len, 80, false);
        kiln_sb_printf(&text, "\\n%s\\n", kiln_node_op_name((kiln_node_op)node->op));
        put_caption(&text, node, 80, false);
        kiln_sb_puts(&text, "\"];\n");
        for (const kiln_use *u = node->uses; u; u = u->of_user)
            kiln_sb_printf(&text, "  n%u -> n%u;\n", u->used->id, node->id);
    }
    kiln_sb_puts(&text, "}\n");
    return kiln_sb_take(&text, out);
}

/* -- layout ------------------------------------------------------------------------------------------- */

typedef struct spot {
    const kiln_node *node;
    uint32_t layer, column;
    double wish; /* mean column of what it uses */
} spot;

typedef struct layout {
    spot *by_layer; /* all nodes, layer by layer */
    spot **of;      /* by order */
    size_t n;
    uint32_t nlayers, widest;
} layout;

static int by_place(const void *a, const void *b) {
    const spot *x = a, *y = b;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    if (x->wish != y->wish) return x->wish < y->wish ? -1 : 1;
    return x->node->order < y->node->order ? -1 : 1;
}

/* Sorts by layer and wish, then numbers the columns. */
static void settle(layout *l) {
    qsort(l->by_layer, l->n, sizeof *l->by_layer, by_place);
    uint32_t column = 0;
    l->widest = 0;
    for (size_t i = 0; i < l->n; i++) {
        spot *s = &l->by_layer[i];
        column = i && s[-1].layer == s->layer ? column + 1 : 0;
        s->column = column;
        l->of[s->node->order] = s;
        if (column + 1 > l->widest) l->widest = column + 1;
    }
}

static void wish(layout *l) {
    for (size_t i = 0; i < l->n; i++) {
        spot *s = &l->by_layer[i];
        double sum = 0, n = 0;
        for (const kiln_use *u = s->node->uses; u; u = u->of_user, n++) sum += l->of[u->used->order]->column;
        s->wish = n > 0 ? sum / n : s->column;
    }
}

static kiln_status lay_out(const kiln_graph *g, layout *l) {
    *l = (layout){.n = g->count};
    l->by_layer = kiln_calloc(l->n + 1, sizeof *l->by_layer);
    l->of = kiln_calloc(l->n + 1, sizeof *l->of);
    if (!l->by_layer || !l->of) return KILN_NOMEM();
    size_t i = 0;
    for (kiln_node *node = g->first; node; node = node->next, i++) {
        spot *s = &l->by_layer[i];
        node->order = (uint32_t)i;
        *s = (spot){.node = node};
        l->of[i] = s;
        for (const kiln_use *u = node->uses; u; u = u->of_user)
            if (l->of[u->used->order]->layer + 1 > s->layer) s->layer = l->of[u->used->order]->layer + 1;
        if (s->layer + 1 > l->nlayers) l->nlayers = s->layer + 1;
    }
    for (int pass = 0; pass < 3; pass++) {
        settle(l);
        if (pass < 2) wish(l);
    }
    return KILN_OK;
}

/* -- SVG ---------------------------------------------------------------------------------------------- */

static long left(const spot *s) { return MARGIN + (long)s->column * (BOX_W + GAP_X); }
static long top(const spot *s) { return MARGIN + (long)s->layer * (BOX_H + GAP_Y); }

static void put_edges(kiln_sb *out, const layout *l, const spot *s) {
    for (const kiln_use *u = s->node->uses; u; u = u->of_user) {
        const spot *from = l->of[u->used->order];
        long x0 = left(from) + BOX_W / 2, y0 = top(from) + BOX_H, x1 = left(s) + BOX_W / 2, y1 = top(s);
        int bend = s->layer - from->layer > 1 ? BOX_W * 4 / 5 : 0; /* around the boxes between */
        kiln_sb_printf(out, "<path d=\"M%ld %ldC%ld %ld %ld %ld %ld %ld\"/>\n", x0, y0, x0 + bend,
                       y0 + GAP_Y / 2, x1 + bend, y1 - GAP_Y / 2, x1, y1);
    }
}

static void put_box(kiln_sb *out, const spot *s) {
    static const char *const fill[KILN_NODE_OP_COUNT] = {"#d8e9f8", "#e6e0f3", "#f6f6f6",
                                                         "#f6f6f6", "#fbe9cf", "#d9f0d6"};
    kiln_sb_printf(
        out, "<rect x=\"%ld\" y=\"%ld\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n<text x=\"%ld\" y=\"%ld\">",
        left(s), top(s), BOX_W, BOX_H, fill[s->node->op], left(s) + 8, top(s) + 16);
    put_escaped(out, s->node->name, s->node->name_len, LABEL, true);
    kiln_sb_printf(out, "</text>\n<text class=\"t\" x=\"%ld\" y=\"%ld\">", left(s) + 8, top(s) + 32);
    put_caption(out, s->node, LABEL, true);
    kiln_sb_puts(out, "</text>\n");
}

kiln_status kiln_graph_svg(const kiln_graph *g, char **out) {
    KILN_NEED(g, out);
    layout l;
    kiln_status st = lay_out(g, &l);
    kiln_sb text;
    kiln_sb_init(&text);
    if (st == KILN_OK) {
        long w = 2L * MARGIN + (long)l.widest * (BOX_W + GAP_X) - GAP_X,
             h = 2L * MARGIN + (long)l.nlayers * (BOX_H + GAP_Y) - GAP_Y;
        if (!l.n) w = h = 2L * MARGIN;
        kiln_sb_printf(
            &text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%ld\" height=\"%ld\" viewBox=\"0 0 %ld %ld\">\n",
            w, h, w, h);
        kiln_sb_puts(&text,
                     "<style>rect{stroke:#555;rx:4}path{fill:none;stroke:#888}text{font:12px monospace}"
                     ".t{font-size:10px;fill:#555}</style>\n");
        for (size_t i = 0; i < l.n; i++) put_edges(&text, &l, &l.by_layer[i]);
        for (size_t i = 0; i < l.n; i++) put_box(&text, &l.by_layer[i]);
        kiln_sb_puts(&text, "</svg>\n");
        st = kiln_sb_take(&text, out);
    }
    kiln_sb_fini(&text);
    kiln_free(l.by_layer);
    kiln_free(l.of);
    return st;
}
