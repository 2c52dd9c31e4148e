/* source.c - a problem at a place of a text -> "name:LINE:COL: problem".
 *
 * Readers keep a pointer to where they are; line and column are worked out only when something fails.  Columns
 * count bytes, from 1.  Must not know what is read. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

static void set_error(const char *name, int line, int col, kiln_status st, const char *fmt, va_list ap) {
    char problem[2048];
    problem[0] = 0;
    if (!kiln_is_quiet()) vsnprintf(problem, sizeof problem, fmt, ap);
    kiln_set_error(__FILE__, __LINE__, st, KILN_WHERE ": %s", name, line, col, problem);
}

void kiln_set_error_line(const char *name, int line, int col, kiln_status st, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    set_error(name, line, col, st, fmt, ap);
    va_end(ap);
}

void kiln_set_error_at(const kiln_source *text, const char *where, kiln_status st, const char *fmt, ...) {
    int line = text->lines_before + 1;
    const char *line_start = text->start;
    for (const char *c = text->start; c < where; c++) {
        if (*c != '\n') continue;
        line++;
        line_start = c + 1;
    }
    va_list ap;
    va_start(ap, fmt);
    set_error(text->name, line, (int)(where - line_start) + 1, st, fmt, ap);
    va_end(ap);
}

/* The line of the first "name:LINE:COL:" in a message, and *col its column; 0: there is none. */
static int place_in(const char *message, const char *name, int *col) {
    int line = 0, end = 0;
    for (const char *at = message; (at = strstr(at, name)); at++)
        if (sscanf(at + strlen(name), ":%d:%d:%n", &line, col, &end) == 2 && end) return line;
    return 0;
}

kiln_status kiln_note_line(kiln_status st, const char *name, const char *text, size_t nbytes) {
    enum { MOST = 160 }; /* bytes of a line that are shown */
    int col = 0, line = st == KILN_OK || kiln_is_quiet() ? 0 : place_in(kiln_last_error(), name, &col);
    if (line < 1 || col < 1) return st;
    const char *end = text + nbytes;
    for (; text < end && line > 1; text++) line -= *text == '\n';
    size_t n = (size_t)(end - text);
    const char *stop = n ? memchr(text, '\n', n) : NULL;
    if (stop) n = (size_t)(stop - text);
    if (!n || (size_t)col > n + 1 || n > MOST || memchr(text, 0, n)) return st;
    char below[MOST + 2];
    for (int k = 0; k < col - 1; k++) below[k] = text[k] == '\t' ? '\t' : ' ';
    below[col - 1] = 0;
    return kiln_note_after(st, "\n  %.*s\n  %s^", (int)n, text, below);
}

void kiln_set_expected(const kiln_source *text, const char *where, const char *what) {
    unsigned char c = where < text->end ? (unsigned char)*where : 0;
    if (where == text->end)
        kiln_set_error_at(text, where, KILN_E_PARSE, "expected %s, found the end of the text", what);
    else if (c == '\n')
        kiln_set_error_at(text, where, KILN_E_PARSE, "expected %s, found the end of the line", what);
    else if (c < ' ' || c > '~')
        kiln_set_error_at(text, where, KILN_E_PARSE, "expected %s, found byte 0x%02x", what, c);
    else
        kiln_set_error_at(text, where, KILN_E_PARSE, "expected %s, found '%c'", what, c);
}
