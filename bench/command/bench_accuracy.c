/* bench_accuracy.c - `kiln bench accuracy`: the error of folds and scans of bench/folds.txt on data of known kinds.
 *
 * The root of the mean of the squared errors over all seeds and results, in epsilons of the dtype, against references in
 * long double (accuracy.c).  There are no goals: bench/peers.py accuracy judges, by PyTorch's errors on the same data. */
#include <math.h>
#include <stdlib.h>

#include "accuracy.h"
#include "bench.h"
#include "fold_lines.h"

enum { SLICES = 8, LENGTH = 10007, LONG = 12500000, SEEDS = 100, LONG_SEEDS = 2 };

static const struct kind {
    const char *title, *data;
    int64_t n; /* elements of a slice */
    int seeds;
} kinds[] = {{"uniform", "uniform", LENGTH, SEEDS},
             {"cancelling", "cancelling", LENGTH, SEEDS},
             {"denormal", "denormal", LENGTH, SEEDS},
             {"1e8", "uniform", LONG, LONG_SEEDS}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const kiln_dtype dtypes[] = {KILN_F32, KILN_F64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static const struct over {
    const char *name;
    int dim;
} overs[] = {{"all", -1}, {"last", 1}, {"first", 0}};
enum { OVERS = sizeof overs / sizeof *overs };

typedef struct bench {
    const cli_args *args;
    kiln_ctx *ctx;
    int failed;
} bench;

/* The tensor's sizes, and its slices as the fold over `dim` meets them. */
static accuracy_shape lay_out(int64_t n, int dim, int64_t sizes[2]) {
    sizes[0] = dim == 0 ? n : SLICES;
    sizes[1] = dim == 0 ? SLICES : n;
    if (dim < 0) return (accuracy_shape){1, n * SLICES, 0, 1};
    return dim == 0 ? (accuracy_shape){SLICES, n, 1, SLICES} : (accuracy_shape){SLICES, n, n, 1};
}

/* The root mean square of the call's errors; NaN if a call failed. */
static double measure(const bench_case *c, int reference, const struct kind *kind, kiln_dtype dtype,
                      const accuracy_shape *shape) {
    void *data = kiln_tensor_data(bench_case_tensor(c, 0));
    const void *result = kiln_tensor_data(bench_case_tensor(c, c->call.nargs - 1));
    double sum = 0, one;
    for (int seed = 1; seed <= kind->seeds; seed++) {
        accuracy_fill(accuracy_data(kind->data), dtype, shape, (uint64_t)seed, data);
        if (bench_case_ns(c, 1) < 0) return NAN;
        accuracy_errors(reference, dtype, shape, data, &result, 1, &one);
        sum += one;
    }
    return sqrt(sum / kind->seeds);
}

static void print_figure(const cli_args *args, const bench_line *line, const struct kind *kind,
                         kiln_dtype dtype, const struct over *over, double rms) {
    if (!args->json)
        out_printf(" %9.3g", rms);
    else
        out_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:o}", "bench", "accuracy", "name",
                           line->name, "data", kind->title, "dtype", kiln_dtype_name(dtype), "over",
                           over->name, "seeds", kind->seeds, "elements", (json_int_t)kind->n * SLICES,
                           "rms_in_epsilons", isfinite(rms) ? json_real(rms) : json_null()));
    (void)out_flush();
}

static void run_cell(bench *b, const bench_line *line, const struct kind *kind, kiln_dtype dtype,
                     const struct over *over) {
    char err[CALLTEXT_ERROR_MAX];
    int64_t sizes[2];
    accuracy_shape slices = lay_out(kind->n, over->dim, sizes);
    fold_shape shape = {sizes, 2, over->dim};
    bench_line call;
    if (!fold_line_call(line, &shape, dtype, &call)) {
        if (!b->args->json) out_printf(" %9s", "-");
        return;
    }
    bench_case *c = bench_case_new(b->ctx, &call, 0, err);
    double rms = c ? measure(c, accuracy_reference(line->name), kind, dtype, &slices) : NAN;
    if (isnan(rms)) {
        cli_error("%s: %s", line->name, c ? kiln_last_error() : err);
        b->failed++;
    }
    print_figure(b->args, line, kind, dtype, over, rms);
    bench_case_free(c);
}

static void run_kind(bench *b, const struct kind *kind) {
    const char *text = bench_folds_text;
    bench_line line;
    if (!b->args->json) {
        out_printf("\n%s: %lld elements, %d seeds\n%-12s", kind->title, (long long)kind->n * SLICES,
                   kind->seeds, "");
        for (int t = 0; t < DTYPES; t++)
            for (int o = 0; o < OVERS; o++) out_printf(" %3s %5s", kiln_dtype_name(dtypes[t]), overs[o].name);
        out_text("\n");
    }
    while (bench_line_next(&text, &line) && out_flush()) {
        if (accuracy_reference(line.name) < 0) continue;
        if (!b->args->json) out_printf("%-12s", line.name);
        for (int t = 0; t < DTYPES; t++)
            for (int o = 0; o < OVERS; o++) run_cell(b, &line, kind, dtypes[t], &overs[o]);
        if (!b->args->json) out_text("\n");
    }
}

int bench_accuracy(const cli_args *args) {
    bench b = {.args = args, .ctx = cli_open_sync(args)};
    if (!b.ctx) return CLI_FAILED;
    if (!args->json)
        out_text(
            "Root mean square of errors in epsilons of the dtype (f32 2^-23, f64 2^-52), times the exact result, or\n"
            "of sum, mean and cumsum times what is added up without its signs.\n");
    for (int k = 0; k < KINDS && out_flush(); k++) run_kind(&b, &kinds[k]);
    kiln_close(b.ctx);
    return b.failed ? CLI_FAILED : CLI_OK;
}
