/* bench_goal.c - a figure beside its goal: one line of the table that `make bench` prints, or one of JSON.
 *
 * Knows how to print and compare, not what is measured. */
#include <math.h>
#include <stdlib.h>

#include "bench.h"

bool bench_goal(const cli_args *args, const char *bench, const char *what, double value, bench_bound bound,
                double goal, const char *unit) {
    bool met = bound == BENCH_AT_MOST ? value <= goal : value >= goal;
    const char *sign = bound == BENCH_AT_MOST ? "<=" : ">=";
    if (!isfinite(value)) met = false;
    if (args->json)
        out_json(json_pack("{s:s, s:s, s:o, s:s, s:f, s:s, s:b}", "bench", bench, "what", what, "value",
                           isfinite(value) ? json_real(value) : json_null(), "bound", sign, "goal", goal,
                           "unit", unit, "met", met));
    else
        out_printf("%-66s %10.4g %s %6.4g %s%s%s%s\n", what, value, sign, goal, unit,
                   met ? "" : out_colour(COLOUR_BAD), met ? "" : "  MISSED",
                   met ? "" : out_colour(COLOUR_OFF));
    (void)out_flush();
    return met;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(double *values, size_t n, double part) {
    if (n == 0) return NAN;
    qsort(values, n, sizeof *values, by_size);
    return values[(size_t)(part * (double)(n - 1))];
}
