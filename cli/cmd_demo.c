/* cmd_demo.c - `kiln demo`: what a first call costs, when a kernel takes over, and what needs no new kernel, in the default mode.
 *
 * Each operator is called once, then again until its kernel is built, then 1000 times, then with one thing changed.
 * kiln_last_tier says who answered, and counters say whether anything was built.  The first result, the last one of the 1000 and
 * those of changed calls are compared, bit for bit, with results of a second context that only interprets.  This file owns both
 * contexts.  It must not know how the library decides to build a kernel. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "calltext.h"
#include "cli.h"
#include "element.h"

/* A call that changes one thing of the group's first call. */
typedef struct step {
    const char *what, *arguments; /* arguments: as call text */
} step;

typedef struct group {
    const char *op, *arguments; /* of the first call */
    step steps[4];              /* ends before the first without arguments */
} group;

static const group groups[] = {
    {"gelu", "f32[64,64]", {{"new shape", "f32[3,1000]"}, {"new rank", "f32[2,3,4,5]"}}},
    {"add.Tensor",
     "f32[64,64], f32[64,64], alpha=2",
     {{"new shape", "f32[100,7], f32[100,7], alpha=2"},
      {"new rank", "f32[2,3,4,5], f32[2,3,4,5], alpha=2"},
      {"new value", "f32[64,64], f32[64,64], alpha=-7"}}},
    {"sum.dim_IntList",
     "f32[64,64], [1]",
     {{"new shape", "f32[20,500], [1]"}, {"new rank", "f32[4,5,100], [2]"}}},
};
enum { GROUP_COUNT = sizeof groups / sizeof *groups, HOT_CALLS = 1000 };
static const double WAIT_US = 20e6; /* for a kernel; builds take tens of milliseconds */

typedef struct demo {
    kiln_ctx *ctx, *oracle;
    int compared, wrong, failed; /* calls */
    bool built;                  /* a kernel was built */
} demo;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Finds the operator and calls it. */
static kiln_status call_once(kiln_ctx *ctx, const calltext *call, kiln_tensor **out) {
    const kiln_op *op;
    kiln_status st = kiln_op_choose(ctx, call->op, call->args, call->nargs, &op);
    return st == KILN_OK ? kiln_call(ctx, op, call->args, call->nargs, out, 1) : st;
}

static bool same_bits(const kiln_tensor *a, const kiln_tensor *b) {
    kiln_dtype dtype = kiln_tensor_dtype(a);
    int rank = kiln_tensor_rank(a);
    if (dtype != kiln_tensor_dtype(b) || rank != kiln_tensor_rank(b)) return false;
    for (int d = 0; d < rank; d++)
        if (kiln_tensor_sizes(a)[d] != kiln_tensor_sizes(b)[d]) return false;
    walk x = walk_start(a), y = walk_start(b);
    for (; x.left > 0; walk_next(&x), walk_next(&y))
        if (!element_same(dtype, x.p, y.p)) return false;
    return true;
}

/* Builds that have ended, with a kernel or without. */
static uint64_t builds(kiln_ctx *ctx) {
    kiln_stats s;
    kiln_stats_get(ctx, &s, sizeof s);
    return s.compiles + s.compile_failures;
}

static bool answered_by_kernel(void) { return strcmp(kiln_last_tier(), "compiled") == 0; }

static void print_call(const char *what, const char *arguments, double us, const char *by) {
    out_printf("  %-10s  %-36s %9.1f us  %s\n", what, arguments, us, by);
}

static void compare(demo *d, const calltext *call, const kiln_tensor *out, kiln_status *st) {
    kiln_tensor *want = NULL;
    *st = call_once(d->oracle, call, &want);
    if (*st != KILN_OK) return;
    d->compared++;
    d->wrong += !same_bits(out, want);
    kiln_tensor_release(want);
}

/* One call, timed, and who answered it. */
static kiln_status run_single(demo *d, const step *s, const calltext *call) {
    kiln_tensor *out;
    uint64_t before = builds(d->ctx);
    double start = now_us();
    kiln_status st = call_once(d->ctx, call, &out);
    double us = now_us() - start;
    if (st != KILN_OK) return st;
    bool kernel = answered_by_kernel(), built = builds(d->ctx) > before;
    print_call(s->what, s->arguments, us,
               !kernel ? "the interpreter"
               : built ? "a new kernel"
                       : "the same kernel: nothing is built");
    compare(d, call, out, &st);
    kiln_tensor_release(out);
    return st;
}

/* Calls again until a kernel answers; gives up after WAIT_US, or after HOT_CALLS calls where no kernel can be built. */
static kiln_status run_until_built(demo *d, const calltext *call) {
    bool wait = kiln_has_compiler(d->ctx), kernel = false;
    double start = now_us(), us = 0;
    uint64_t before = builds(d->ctx);
    int interpreted = 0;
    while (wait ? us < WAIT_US : interpreted < HOT_CALLS) {
        kiln_tensor *out;
        kiln_status st = call_once(d->ctx, call, &out);
        if (st != KILN_OK) return st;
        kiln_tensor_release(out);
        if ((kernel = answered_by_kernel())) break;
        us = now_us() - start;
        interpreted++;
        if (builds(d->ctx) > before && !kiln_has_compiler(d->ctx)) wait = false;
    }
    char calls[40], by[80];
    snprintf(calls, sizeof calls, "%d calls", interpreted);
    snprintf(by, sizeof by, kernel ? "the interpreter; a kernel came after %.0f ms" : "the interpreter",
             us / 1e3);
    if (interpreted) print_call("again", calls, us / interpreted, by);
    d->built |= kernel;
    return KILN_OK;
}

static kiln_status run_hot(demo *d, const calltext *call) {
    double start = now_us();
    kiln_tensor *out = NULL;
    kiln_status st = KILN_OK;
    for (int k = 0; k < HOT_CALLS && st == KILN_OK; k++) {
        kiln_tensor_release(out);
        st = call_once(d->ctx, call, &out);
    }
    if (st != KILN_OK) return st;
    char calls[40];
    snprintf(calls, sizeof calls, "%d calls", HOT_CALLS);
    print_call("again", calls, (now_us() - start) / HOT_CALLS, "the kernel");
    compare(d, call, out, &st);
    kiln_tensor_release(out);
    return st;
}

/* The first call of a group, and the same call again until its kernel has taken over. */
static kiln_status run_first(demo *d, const step *s, const calltext *call) {
    kiln_status st = run_single(d, s, call);
    if (st == KILN_OK) st = run_until_built(d, call);
    return st == KILN_OK && answered_by_kernel() ? run_hot(d, call) : st;
}

static void run_step(demo *d, const char *op, const step *s,
                     kiln_status (*run)(demo *, const step *, const calltext *)) {
    char text[128], err[CALLTEXT_ERROR_MAX];
    calltext call;
    int n = snprintf(text, sizeof text, "%s(%s)", op, s->arguments);
    if (!calltext_parse(text, (size_t)n, NULL, &call, err)) {
        d->failed++;
        cli_error("%s: %s", text, err);
        return;
    }
    if (run(d, s, &call) != KILN_OK) {
        d->failed++;
        cli_error("%s: %s", text, kiln_last_error());
    }
    calltext_free(&call);
}

static void run_group(demo *d, const group *g) {
    out_printf("%s%s%s\n", out_colour(COLOUR_HEAD), g->op, out_colour(COLOUR_OFF));
    run_step(d, g->op, &(step){"first call", g->arguments}, run_first);
    for (const step *s = g->steps; s->arguments; s++) run_step(d, g->op, s, run_single);
}

static void print_heading(void) {
    out_printf(
        "In Kiln's default mode an interpreter answers first calls.  Operators that are called often get a\n"
        "kernel of machine code in the background, which serves all shapes, ranks and values.\n\n"
        "%s%-12s%-39s%s  %s%s\n",
        out_colour(COLOUR_HEAD), "", "", "time of a call", "answered by", out_colour(COLOUR_OFF));
}

static void print_summary(const demo *d) {
    out_text("\n");
    if (d->wrong)
        out_printf("%s%d of %d results differ from the interpreter's.%s\n", out_colour(COLOUR_BAD), d->wrong,
                   d->compared, out_colour(COLOUR_OFF));
    else
        out_printf("%d results were compared with the interpreter's: all have the same bits.\n", d->compared);
    if (d->failed) out_printf("%d calls failed.\n", d->failed);
    if (!d->built)
        out_text(
            "No kernel was built, so the interpreter answered every call; 'kiln doctor' tells what is missing.\n");
}

int cmd_demo(const cli_args *args) {
    if (args->noperands) return cli_usage_error(CLI_CMD_DEMO, "unexpected operand '%s'", args->operands[0]);
    cli_args tiered = *args, interp = *args;
    tiered.mode = KILN_MODE_TIERED;
    interp.mode = KILN_MODE_INTERP;
    tiered.cache = interp.cache = "memory"; /* shows builds, whatever earlier processes have built */
    demo d = {.ctx = cli_open(&tiered)};
    d.oracle = d.ctx ? cli_open(&interp) : NULL;
    if (d.oracle) {
        print_heading();
        for (int i = 0; i < GROUP_COUNT && out_flush(); i++) run_group(&d, &groups[i]);
        print_summary(&d);
    }
    kiln_close(d.oracle);
    cli_close(d.ctx);
    return d.oracle && !d.wrong && !d.failed ? CLI_OK : CLI_FAILED;
}
