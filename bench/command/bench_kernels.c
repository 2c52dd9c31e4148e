/* bench_kernels.c - `kiln bench kernels`: bench/kernels.txt at four sizes, results into ready tensors.
 *
 * Per element, per byte moved, and as a part of what copying memory reaches.  Calls and copies take turns and the
 * best of each counts: on a shared machine anything else measures the neighbours. */
#include <string.h>

#include "bench.h"

extern const char bench_kernels_text[]; /* bench/kernels.txt, embedded */

enum { ROUNDS = 15 };

static const struct size {
    const char *name;
    int64_t nbytes;
} sizes[] = {{"1 KB", 1 << 10}, {"64 KB", 64 << 10}, {"1 MB", 1 << 20}, {"64 MB", 64 << 20}};
enum { SIZE_COUNT = sizeof sizes / sizeof *sizes };

typedef struct figures {
    double ns_per_call, ns_per_element, gb_per_s, copy_gb_per_s;
} figures;

typedef struct bench {
    const cli_args *args;
    kiln_ctx *ctx;
    char *from, *to; /* of copies: the largest size each */
    int failed;
} bench;

static double least(double a, double b) { return b < a ? b : a; }

/* False if the call failed. */
static bool measure(const bench *b, const bench_case *c, int64_t nbytes, figures *out) {
    double ours = bench_case_ns(c, 1), copy = bench_copy_ns(b->to, b->from, (size_t)nbytes, 1);
    int64_t calls = bench_sample_calls(ours), copies = bench_sample_calls(copy);
    for (int i = 0; i < ROUNDS; i++) {
        double ns = bench_case_ns(c, calls);
        if (ns < 0) return false;
        ours = least(ours, ns);
        copy = least(copy, bench_copy_ns(b->to, b->from, (size_t)nbytes, copies));
    }
    out->ns_per_call = ours;
    out->ns_per_element = ours / (double)c->nelem;
    out->gb_per_s = (double)c->nbytes / ours;
    out->copy_gb_per_s = 2 * (double)nbytes / copy;
    return true;
}

static void print_json(const bench_line *line, const struct size *size, const figures *f) {
    out_json(json_pack("{s:s, s:s, s:s, s:b, s:I, s:f, s:f, s:f, s:f, s:f}", "bench", "kernels", "name",
                       line->name, "call", line->call, "memory_bound", line->memory_bound, "nbytes",
                       (json_int_t)size->nbytes, "ns_per_call", f->ns_per_call, "ns_per_element",
                       f->ns_per_element, "gb_per_s", f->gb_per_s, "copy_gb_per_s", f->copy_gb_per_s,
                       "of_copy", f->gb_per_s / f->copy_gb_per_s));
}

static void bench_one(bench *b, const bench_line *line, const struct size *size) {
    char err[CALLTEXT_ERROR_MAX];
    figures f;
    bench_case *c = bench_case_new(b->ctx, line, size->nbytes, err);
    if (!c || !measure(b, c, size->nbytes, &f)) {
        cli_error("%s: %s", line->name, c ? kiln_last_error() : err);
        b->failed++;
    } else if (b->args->json) {
        print_json(line, size, &f);
    } else {
        out_printf("  %9.4f %6.1f %5.2f", f.ns_per_element, f.gb_per_s, f.gb_per_s / f.copy_gb_per_s);
    }
    if (c) bench_case_free(c);
    (void)out_flush();
}

static void print_heading(void) {
    out_text(
        "One thread, results into ready tensors, best of many; for each size nanoseconds per element,\n"
        "gigabytes moved per second, and that as a part of what copying memory reaches at that size.\n\n");
    out_printf("%-12s", "");
    for (int s = 0; s < SIZE_COUNT; s++) out_printf("  %9s %6s %5s", sizes[s].name, "GB/s", "copy");
    out_text("\n");
}

static void run_lines(bench *b) {
    const char *text = bench_kernels_text;
    bench_line line;
    while (bench_line_next(&text, &line)) {
        if (!line.name[0]) {
            cli_error("a line of the list of kernels is malformed");
            b->failed++;
            continue;
        }
        if (!b->args->json) out_printf("%-12s", line.name);
        for (int s = 0; s < SIZE_COUNT; s++) bench_one(b, &line, &sizes[s]);
        if (!b->args->json) out_text("\n");
        if (!out_flush()) return;
    }
}

/* Copies are timed in memory like that of the calls, which may lie in huge pages.  NULL without memory. */
static kiln_tensor *buffer(void) {
    int64_t most = sizes[SIZE_COUNT - 1].nbytes;
    kiln_tensor *t = NULL;
    if (kiln_tensor_new(KILN_U8, 1, &most, NULL, &t) != KILN_OK) return NULL;
    memset(kiln_tensor_data(t), 1, (size_t)most);
    return t;
}

int bench_kernels(const cli_args *args) {
    bench b = {.args = args, .ctx = cli_open_sync(args)};
    if (!b.ctx) return CLI_FAILED;
    kiln_tensor *from = buffer(), *to = buffer();
    bool ready = from && to;
    if (ready) {
        b.from = kiln_tensor_data(from);
        b.to = kiln_tensor_data(to);
        if (!args->json) print_heading();
        run_lines(&b);
    } else {
        cli_error("%s", kiln_last_error());
    }
    kiln_tensor_release(from);
    kiln_tensor_release(to);
    kiln_close(b.ctx);
    return ready && !b.failed ? CLI_OK : CLI_FAILED;
}
