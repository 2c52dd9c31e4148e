/* bench_folds.c - `kiln bench folds`: bench/folds.txt at four sizes, over all elements and over the last, the first and a
 * middle dimension; results into ready tensors.
 *
 * Per element and per byte moved.  Where reading is all the work there is, calls on 64 MB take turns with loops that only
 * read the same memory, in 1, 2, 4 and 8 streams; the best of each counts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "fold_lines.h"

enum { ROUNDS = 15, STREAMS = 4 };
static const int streams[STREAMS] = {1, 2, 4, 8};

static const struct size {
    const char *name;
    int64_t two[2], three[3]; /* sizes of f32, for the middle dimension three */
} sizes[] = {{"1 KB", {16, 16}, {4, 16, 4}},
             {"64 KB", {128, 128}, {16, 64, 16}},
             {"1 MB", {512, 512}, {64, 64, 64}},
             {"64 MB", {4096, 4096}, {256, 256, 256}}};
enum { SIZE_COUNT = sizeof sizes / sizeof *sizes };

static const struct over {
    const char *name;
    int rank, dim;
} overs[] = {{"all", 2, -1}, {"last", 2, 1}, {"first", 2, 0}, {"middle", 3, 1}};
enum { OVER_COUNT = sizeof overs / sizeof *overs };

/* Which are held to the speed of reading, at 64 MB. */
static const char *const held[] = {"sum", "amax"};
#define READING_GOAL 0.95
#define READ_BYTES (64.0 * (1 << 20))

typedef struct figures {
    double ns_per_call, ns_per_element, gb_per_s;
    double of_read;          /* speed as a part of reading's, the best of both; NaN if not measured */
    double low, high;        /* half of the rounds lie between */
    double read_ns[STREAMS]; /* the best reading in each number of streams */
} figures;

typedef struct bench {
    const cli_args *args;
    kiln_ctx *ctx;
    int failed, missed;
} bench;

static double least(double a, double b) { return b < a ? b : a; }

/* -- measuring ---------------------------------------------------------------------------------------------- */

/* One sample of each side: sides 0 .. STREAMS - 1 only read the tensor, the last one calls.  Another begins in every
 * round, since what the caches hold is what the one before left there.  False if one failed. */
static bool take_turns(const bench *b, const bench_case *c, int round, double ns[STREAMS + 1]) {
    const kiln_tensor *t = bench_case_tensor(c, 0);
    size_t nbytes = (size_t)kiln_tensor_nelem(t) * kiln_dtype_size(kiln_tensor_dtype(t));
    for (int k = 0; k <= STREAMS; k++) {
        int side = (round + k) % (STREAMS + 1);
        ns[side] = side == STREAMS
                       ? bench_case_ns(c, 1)
                       : bench_streams_ns(kiln_tensor_data(t), nbytes, streams[side], b->args->threads);
        if (ns[side] < 0) return false;
    }
    return true;
}

static bool measure_beside_reading(const bench *b, const bench_case *c, figures *out) {
    double ratio[ROUNDS], read = INFINITY, ours = INFINITY, ns[STREAMS + 1];
    for (int i = 0; i < ROUNDS; i++) {
        if (!take_turns(b, c, i, ns)) return false;
        double best = INFINITY; /* of this round */
        for (int k = 0; k < STREAMS; k++) {
            best = least(best, ns[k]);
            out->read_ns[k] = i == 0 ? ns[k] : least(out->read_ns[k], ns[k]);
        }
        read = least(read, best);
        ours = least(ours, ns[STREAMS]);
        ratio[i] = best / ns[STREAMS];
    }
    out->ns_per_call = ours;
    out->of_read = read / ours;
    out->low = bench_quantile(ratio, ROUNDS, 0.25);
    out->high = bench_quantile(ratio, ROUNDS, 0.75);
    return true;
}

static bool measure_alone(const bench_case *c, figures *out) {
    double ours = bench_case_ns(c, 1);
    int64_t calls = bench_sample_calls(ours);
    for (int i = 0; i < ROUNDS; i++) {
        double ns = bench_case_ns(c, calls);
        if (ns < 0) return false;
        ours = least(ours, ns);
    }
    out->ns_per_call = ours;
    return true;
}

/* False if a call failed, or a thread could not be started. */
static bool measure(const bench *b, const bench_case *c, bool reads, figures *out) {
    *out = (figures){.of_read = NAN, .low = NAN, .high = NAN};
    if (!(reads ? measure_beside_reading(b, c, out) : measure_alone(c, out))) return false;
    out->ns_per_element = out->ns_per_call / (double)kiln_tensor_nelem(bench_case_tensor(c, 0));
    out->gb_per_s = (double)c->nbytes / out->ns_per_call;
    return true;
}

/* -- printing ----------------------------------------------------------------------------------------------- */

static void print_json(const bench_line *line, const struct size *size, const struct over *over,
                       const figures *f) {
    json_t *of_read = isfinite(f->of_read) ? json_real(f->of_read) : json_null();
    out_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:o}", "bench", "folds", "name", line->name,
                       "size", size->name, "over", over->name, "call", line->call, "ns_per_call",
                       f->ns_per_call, "ns_per_element", f->ns_per_element, "gb_per_s", f->gb_per_s,
                       "of_read", of_read));
}

static void print_cell(const figures *f) {
    out_printf("  %9.4f %6.1f", f->ns_per_element, f->gb_per_s);
    if (isfinite(f->of_read)) out_printf(" %5.2f", f->of_read);
}

static void print_heading(const cli_args *args) {
    out_printf(
        "%d thread%s, results into ready tensors, best of many; for each size nanoseconds per element and\n"
        "gigabytes moved per second; last, as a part of what only reading that memory reaches.\n\n",
        args->threads, args->threads == 1 ? "" : "s");
    out_printf("%-14s %-7s", "", "");
    for (int s = 0; s < SIZE_COUNT; s++) out_printf("  %9s %6s", sizes[s].name, "GB/s");
    out_printf(" %5s\n", "read");
}

/* -- running ------------------------------------------------------------------------------------------------ */

static bool is_held(const char *name) {
    for (size_t k = 0; k < sizeof held / sizeof *held; k++)
        if (strcmp(held[k], name) == 0) return true;
    return false;
}

/* The line's call of that size, measured; false after an error was told. */
static bool run_cell(bench *b, const bench_line *line, const struct size *size, const struct over *over,
                     figures *out) {
    char err[CALLTEXT_ERROR_MAX];
    fold_shape shape = {over->rank == 2 ? size->two : size->three, over->rank, over->dim};
    bench_line call;
    if (!fold_line_call(line, &shape, KILN_F32, &call)) return false;
    bench_case *c = bench_case_new(b->ctx, &call, 0, err);
    bool done = c && measure(b, c, line->memory_bound && size == &sizes[SIZE_COUNT - 1], out);
    if (!done) {
        cli_error("%s: %s", line->name, c ? kiln_last_error() : err);
        b->failed++;
    } else if (b->args->json) {
        print_json(&call, size, over, out);
    } else {
        print_cell(out);
    }
    bench_case_free(c);
    return done;
}

static void hold_to_reading(bench *b, const bench_line *line, const struct over *over, const figures *f) {
    char what[80];
    snprintf(what, sizeof what, "%s over %s, 64 MB: speed against only reading it", line->name, over->name);
    b->missed += !bench_goal(b->args, "folds", what, f->of_read, BENCH_AT_LEAST, READING_GOAL, "x");
    if (b->args->json) return;
    out_printf("    half of %d turns %.3f to %.3f; reading GB/s in", ROUNDS, f->low, f->high);
    for (int k = 0; k < STREAMS; k++)
        out_printf("%s %d: %.1f", k ? "," : "", streams[k], READ_BYTES / f->read_ns[k]);
    out_text(" streams\n");
}

static void run_line(bench *b, const bench_line *line) {
    for (int o = 0; o < OVER_COUNT; o++) {
        fold_shape any = {sizes[0].three, overs[o].rank, overs[o].dim};
        figures f = {.of_read = NAN};
        bench_line call;
        if (!fold_line_call(line, &any, KILN_F32, &call)) continue;
        if (!b->args->json) out_printf("%-14s %-7s", line->name, overs[o].name);
        for (int s = 0; s < SIZE_COUNT; s++)
            if (!run_cell(b, line, &sizes[s], &overs[o], &f)) f.of_read = NAN;
        if (!b->args->json) out_text("\n");
        if (is_held(line->name)) hold_to_reading(b, line, &overs[o], &f);
        if (!out_flush()) return;
    }
}

int bench_folds(const cli_args *args) {
    bench b = {.args = args, .ctx = cli_open_sync(args)};
    const char *text = bench_folds_text;
    bench_line line;
    if (!b.ctx) return CLI_FAILED;
    if (!args->json) print_heading(args);
    while (bench_line_next(&text, &line) && out_flush()) {
        if (line.name[0]) {
            run_line(&b, &line);
        } else {
            cli_error("a line of the list of folds is malformed");
            b.failed++;
        }
    }
    kiln_close(b.ctx);
    return b.failed || b.missed ? CLI_FAILED : CLI_OK;
}
