/* tensor_print.c - a tensor -> JSON or readable rows on standard output.
 *
 * Elements come in logical row-major order whatever the strides.  JSON numbers are written here, not by the
 * JSON library, so that each prints as the shortest text of its own dtype. */
#include <inttypes.h>
#include <string.h>

#include "cli.h"
#include "element.h"

/* -- JSON ---------------------------------------------------------------------------------------- */

static void print_ints(const char *name, const int64_t *values, int n) {
    out_printf("\"%s\":[", name);
    for (int i = 0; i < n; i++) out_printf("%s%" PRId64, i ? "," : "", values[i]);
    out_text("]");
}

/* nan, inf or -inf: true and false end in e, numbers in a digit. */
static bool is_not_finite(const char *text) { return strchr("nf", text[strlen(text) - 1]) != NULL; }

static void print_number(kiln_dtype dtype, const char *p) {
    char text[ELEMENT_TEXT_MAX];
    element_text(dtype, p, text);
    const char *quote = is_not_finite(text) ? "\"" : "";
    out_text(quote);
    out_text(text);
    out_text(quote);
}

/* A complex element is a list of its two parts. */
static void print_json_element(kiln_dtype dtype, const char *p) {
    kiln_dtype part = element_part(dtype);
    if (part == dtype) {
        print_number(dtype, p);
        return;
    }
    out_text("[");
    print_number(part, p);
    out_text(",");
    print_number(part, p + kiln_dtype_size(part));
    out_text("]");
}

void out_tensor_json(const kiln_tensor *t) {
    kiln_dtype dtype = kiln_tensor_dtype(t);
    bool first = true;
    out_printf("{\"dtype\":\"%s\",", kiln_dtype_name(dtype));
    print_ints("shape", kiln_tensor_sizes(t), kiln_tensor_rank(t));
    out_text(",");
    print_ints("strides", kiln_tensor_strides(t), kiln_tensor_rank(t));
    out_text(",\"data\":[");
    for (walk w = walk_start(t); w.left > 0; walk_next(&w)) {
        if (!first) out_write(",", 1);
        first = false;
        print_json_element(dtype, w.p);
    }
    out_text("]}");
}

/* -- readable rows ------------------------------------------------------------------------------- */

enum { WHOLE_MAX = 1000, EDGE = 3 }; /* elements printed without summary; items kept at each end with it */

typedef struct printer {
    const kiln_tensor *tensor;
    bool summary, measuring; /* measuring: only find the width */
    int width, budget;       /* widest element; elements that may still be printed */
} printer;

static void print_element(printer *pr, const char *p) {
    char text[ELEMENT_TEXT_MAX];
    element_text(kiln_tensor_dtype(pr->tensor), p, text);
    pr->budget--;
    if (!pr->measuring)
        out_printf("%*s", pr->width, text);
    else if ((int)strlen(text) > pr->width)
        pr->width = (int)strlen(text);
}

static void print_gap(const printer *pr, int dim) {
    if (pr->measuring) return;
    int rank = kiln_tensor_rank(pr->tensor);
    if (dim == rank - 1) {
        out_text(", ");
        return;
    }
    out_text(",");
    for (int i = 0; i < rank - dim - 1; i++) out_text("\n");
    for (int i = 0; i <= dim; i++) out_text(" ");
}

/* Depth is the rank, at most KILN_MAX_RANK. */
static void print_dim(printer *pr, int dim, const char *p) {
    if (dim == kiln_tensor_rank(pr->tensor)) {
        print_element(pr, p);
        return;
    }
    int64_t size = kiln_tensor_sizes(pr->tensor)[dim];
    int64_t step = kiln_tensor_strides(pr->tensor)[dim] *
                   (int64_t)kiln_dtype_size(kiln_tensor_dtype(pr->tensor));
    if (!pr->measuring) out_text("[");
    for (int64_t i = 0; i < size; i++) {
        if (i > 0) print_gap(pr, dim);
        bool spent = pr->budget <= 0, skip = pr->summary && size > 2 * EDGE && i == EDGE;
        if ((skip || spent) && !pr->measuring) out_text("...");
        if (spent) break;
        if (skip)
            i = size - EDGE - 1;
        else
            print_dim(pr, dim + 1, p + i * step);
    }
    if (!pr->measuring) out_text("]");
}

void out_tensor_text(const kiln_tensor *t) {
    int rank = kiln_tensor_rank(t);
    int64_t nelem = kiln_tensor_nelem(t);
    printer pr = {t, nelem > WHOLE_MAX, true, 0, WHOLE_MAX};
    out_printf("%s[", kiln_dtype_name(kiln_tensor_dtype(t)));
    for (int d = 0; d < rank; d++) out_printf("%s%" PRId64, d ? "," : "", kiln_tensor_sizes(t)[d]);
    out_text("] strides=(");
    for (int d = 0; d < rank; d++) out_printf("%s%" PRId64, d ? "," : "", kiln_tensor_strides(t)[d]);
    out_text(")\n");
    if (nelem == 0) {
        out_text("[]\n");
        return;
    }
    print_dim(&pr, 0, kiln_tensor_data(t));
    pr.measuring = false;
    pr.budget = WHOLE_MAX;
    print_dim(&pr, 0, kiln_tensor_data(t));
    out_text("\n");
}
