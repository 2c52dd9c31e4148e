/* cmd_warm.c - `kiln warm`: lines of calls -> kernels in the cache folder, built on all cores.
 *
 * Lines are calls as `kiln run` takes them and KILN_RECORD writes them.  A line that is wrong is told, and the others still count.
 * Shows how far it is on a terminal.  Must not know how kernels are built or kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "calltext.h"
#include "cli.h"

enum {
    AT_ONCE = 4096,  /* Kernels that are noted before they are built: their loops are in memory meanwhile. */
    WRONG_TOLD = 20, /* wrong lines that are told one by one */
    SHOW_EVERY_MS = 200
};

typedef struct warming {
    kiln_ctx *ctx;
    kiln_warm *warm;
    int jobs;
    size_t nlines, line, nwrong; /* lines to read, read, and wrong */
    kiln_warm_report sum;        /* of the runs that ended */
    bool shows;
    int64_t began_ms, shown_ms;
} warming;

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* -- how far it is --------------------------------------------------------------------------------------- */

/* The part of the file's lines that is done: those that were built, and of those that wait the part that their kernels are done. */
static double part_done(const warming *w, const kiln_warm_report *r) {
    double waiting = (double)kiln_warm_waiting(w->warm), line = (double)w->line;
    if (w->nlines == 0) return 1;
    double part = (waiting > 0 ? line - 1 + (double)r->done / waiting : line) / (double)w->nlines;
    return part < 1 ? part : 1;
}

static void show(warming *w, const kiln_warm_report *r, bool last) {
    enum { WIDTH = 30 };
    int64_t now = now_ms();
    if (!w->shows || (!last && now - w->shown_ms < SHOW_EVERY_MS)) return;
    w->shown_ms = now;
    double part = last ? 1 : part_done(w, r);
    kiln_warm_report all = {.built = w->sum.built + r->built,
                            .present = w->sum.present + r->present,
                            .failed = w->sum.failed + r->failed};
    int full = (int)(part * WIDTH);
    fprintf(stderr, "\r[%.*s%*s] %3.0f %%  %zu of %zu calls, %llu built, %llu there already, %llu failed",
            full, "##############################", WIDTH - full, "", part * 100, w->line, w->nlines,
            (unsigned long long)all.built, (unsigned long long)all.present, (unsigned long long)all.failed);
    if (!last && part > 0.01)
        fprintf(stderr, ", %.0f s left ", (double)(now - w->began_ms) / 1000 * (1 - part) / part);
    fputs(last ? "\n" : "", stderr);
}

static int show_progress(void *user, const kiln_warm_report *r) {
    show(user, r, false);
    return 0;
}

/* -- building ----------------------------------------------------------------------------------------------- */

static bool build(warming *w) {
    kiln_warm_report r;
    kiln_status st = kiln_warm_run(w->warm, w->jobs, show_progress, w, &r);
    w->sum.present += r.present;
    w->sum.built += r.built;
    w->sum.failed += r.failed;
    w->sum.cpu_ns += r.cpu_ns;
    if (st != KILN_OK) cli_kiln_error(st);
    return st == KILN_OK;
}

static void tell_wrong(warming *w, const char *file, const char *why) {
    if (w->nwrong++ < WRONG_TOLD) cli_error("%s: line %zu: %s", file, w->line, why);
}

static void add_line(warming *w, const char *file, const char *text, size_t n) {
    static const calltext_limits limits = {.max_bytes = CALLTEXT_BYTES, .no_data = true};
    char why[CALLTEXT_ERROR_MAX];
    calltext call;
    const kiln_op *op;
    if (!calltext_parse(text, n, &limits, &call, why)) {
        tell_wrong(w, file, why);
        return;
    }
    kiln_status st = kiln_op_choose(w->ctx, call.op, call.args, call.nargs, &op);
    if (st == KILN_OK) st = kiln_warm_add(w->warm, op, call.args, call.nargs);
    if (st != KILN_OK) tell_wrong(w, file, kiln_last_error());
    calltext_free(&call);
}

static size_t line_length(const char *text, size_t n) {
    const char *end = memchr(text, '\n', n);
    return end ? (size_t)(end - text) : n;
}

static size_t count_lines(const char *text, size_t n) {
    size_t lines = 0;
    for (size_t at = 0; at < n; at += line_length(text + at, n - at) + 1) lines++;
    return lines;
}

static bool warm_file(warming *w, const char *path) {
    size_t n;
    char *text = cli_read(path, &n);
    if (!text) return false;
    bool going = true;
    w->nlines = count_lines(text, n);
    w->line = 0;
    for (size_t at = 0, length; at < n && going; at += length + 1) {
        length = line_length(text + at, n - at);
        size_t blank = strspn(text + at, " \t\r");
        w->line++;
        if (blank < length && text[at + blank] != '#') add_line(w, path, text + at, length);
        if (kiln_warm_waiting(w->warm) >= AT_ONCE) going = build(w);
    }
    free(text);
    return going && build(w);
}

/* -- the command ------------------------------------------------------------------------------------------------ */

static void print_sum(const warming *w, bool json) {
    const kiln_warm_report *r = &w->sum;
    if (json) {
        out_json(json_pack("{s:I,s:I,s:I,s:I,s:f,s:f}", "built", (json_int_t)r->built, "present",
                           (json_int_t)r->present, "failed", (json_int_t)r->failed, "wrong_lines",
                           (json_int_t)w->nwrong, "compiler_s", (double)r->cpu_ns / 1e9, "seconds",
                           (double)(now_ms() - w->began_ms) / 1e3));
        return;
    }
    out_printf(
        "%llu kernels built, %llu there already, %llu failed, %zu wrong lines; %.1f s of compilers in %.1f s\n",
        (unsigned long long)r->built, (unsigned long long)r->present, (unsigned long long)r->failed,
        w->nwrong, (double)r->cpu_ns / 1e9, (double)(now_ms() - w->began_ms) / 1e3);
}

int cmd_warm(const cli_args *args) {
    if (args->noperands == 0)
        return cli_usage_error(CLI_CMD_WARM, "expected a file of calls, or - for standard input");
    cli_args here = *args;
    here.mode = KILN_MODE_FROZEN; /* nothing is built but by kiln_warm_run */
    here.isa = NULL;              /* it names the levels to build for */
    warming w = {
        .ctx = cli_open(&here), .jobs = args->jobs, .shows = isatty(STDERR_FILENO), .began_ms = now_ms()};
    if (!w.ctx) return CLI_FAILED;
    kiln_status st = kiln_warm_begin(w.ctx, args->isa, &w.warm);
    bool fine = st == KILN_OK;
    if (!fine) cli_kiln_error(st);
    for (int k = 0; k < args->noperands && fine; k++) fine = warm_file(&w, args->operands[k]);
    if (w.warm) show(&w, &(kiln_warm_report){0}, true);
    if (w.nwrong > WRONG_TOLD) cli_error("%zu more lines were wrong", w.nwrong - WRONG_TOLD);
    if (fine) print_sum(&w, args->json);
    kiln_warm_end(w.warm);
    cli_close(w.ctx);
    return fine && !w.sum.failed && !w.nwrong ? CLI_OK : CLI_FAILED;
}
