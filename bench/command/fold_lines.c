/* fold_lines.c - a line of bench/folds.txt, a shape and a dtype -> a call whose sizes are numbers.
 *
 * The letters S, Y and D of the line are replaced, and f32 where another dtype is asked for.  What the call does is
 * not known here: bench_case.c makes it. */
#include "fold_lines.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The form over a dimension, or the one over all elements; its length, 0 if there is none. */
static int choose_form(const char *both, bool all, const char **start) {
    const char *bar = strstr(both, " | ");
    if (!bar) return 0;
    *start = all ? bar + 3 : both;
    int n = all ? (int)strlen(*start) : (int)(bar - both);
    return **start == '-' ? 0 : n;
}

/* Sizes as text, "4,16"; without the folded dimension on request. */
static void put_shape(const fold_shape *shape, bool folded, char *out, size_t room) {
    size_t used = 0;
    out[0] = 0;
    for (int d = 0; d < shape->rank; d++) {
        if (folded && d == shape->dim) continue;
        int n = snprintf(out + used, room - used, "%s%lld", used ? "," : "", (long long)shape->sizes[d]);
        used += n > 0 ? (size_t)n : 0;
        if (used >= room) return;
    }
}

static bool stands_alone(const char *start, const char *p) {
    return (p == start || !isalnum((unsigned char)p[-1])) && !isalnum((unsigned char)p[1]) && p[1] != '_';
}

bool fold_line_call(const bench_line *line, const fold_shape *shape, kiln_dtype dtype, bench_line *out) {
    char whole[64], folded[64], dim[16];
    const char *start;
    int n = choose_form(line->call, shape->dim < 0, &start);
    size_t used = 0;
    if (n == 0) return false;
    put_shape(shape, false, whole, sizeof whole);
    put_shape(shape, true, folded, sizeof folded);
    snprintf(dim, sizeof dim, "%d", shape->dim);
    *out = *line;
    out->call[0] = 0;
    for (const char *p = start; p < start + n && used < sizeof out->call; p++) {
        bool alone = stands_alone(start, p), f32 = strncmp(p, "f32[", 4) == 0;
        const char *text = f32                  ? kiln_dtype_name(dtype)
                           : alone && *p == 'S' ? whole
                           : alone && *p == 'Y' ? folded
                           : alone && *p == 'D' ? dim
                                                : NULL;
        int wrote = text ? snprintf(out->call + used, sizeof out->call - used, "%s", text)
                         : snprintf(out->call + used, sizeof out->call - used, "%c", *p);
        used += wrote > 0 ? (size_t)wrote : 0;
        if (f32) p += 2;
    }
    return used < sizeof out->call;
}
