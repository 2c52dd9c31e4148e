/* cmd_demo.c - `kiln demo`: a table that shows which calls compile and which reuse a kernel.
 *
 * Each operator is called several times with one thing changed; what happened is read from the counters, and
 * each result is compared bit for bit with that of a second context which only interprets. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "calltext.h"
#include "cli.h"
#include "element.h"

typedef struct step {
    const char *op;        /* starts a group when it differs from the one before */
    const char *what;      /* what is new about this call */
    const char *arguments; /* as call text */
} step;

static const step steps[] = {
    {"bitwise_not", "first call", "i32[64,64]"},
    {"bitwise_not", "same again", "i32[64,64]"},
    {"bitwise_not", "new shape", "i32[5,300]"},
    {"bitwise_not", "new rank", "i32[2,3,4,5]"},
    {"bitwise_not", "transposed", "i32[64,32]:strides=(1,64)"},
    {"bitwise_not", "new dtype", "i64[64,64]"},
    {"add.Tensor", "first call", "f32[64,64], f32[64,64], alpha=2"},
    {"add.Tensor", "same again", "f32[64,64], f32[64,64], alpha=2"},
    {"add.Tensor", "new shape", "f32[100,7], f32[100,7], alpha=2"},
    {"add.Tensor", "new rank", "f32[2,3,4,5], f32[2,3,4,5], alpha=2"},
    {"add.Tensor", "new scalar", "f32[64,64], f32[64,64], alpha=-7"},
    {"add.Tensor", "transposed", "f32[8,9]:strides=(1,8), f32[8,9], alpha=2"},
    {"add.Tensor", "broadcast", "f32[64,64], f32[64,1], alpha=2"},
    {"add.Tensor", "new dtype", "f64[64,64], f64[64,64], alpha=2"},
    {"gelu", "first call", "f32[64,64]"},
    {"gelu", "same again", "f32[64,64]"},
    {"gelu", "new shape", "f32[3,1000]"},
    {"gelu", "new rank", "f32[2,3,4,5]"},
    {"gelu", "other body", "f32[64,64], approximate=\"tanh\""},
    {"gelu", "transposed", "f32[64,32]:strides=(1,64)"},
    {"gelu", "broadcast", "f32[64,64]:strides=(1,0)"},
    {"gelu", "new dtype", "bf16[64,64]"},
};
enum { STEP_COUNT = sizeof steps / sizeof *steps };

typedef struct totals {
    int calls, compiled, wrong, failed;
} totals;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static kiln_status call_once(kiln_ctx *ctx, const calltext *call, kiln_tensor **out, double *us) {
    const kiln_op *op;
    kiln_status st = kiln_op_choose(ctx, call->op, call->args, call->nargs, &op);
    if (st != KILN_OK) return st;
    double start = now_us();
    st = kiln_call(ctx, op, call->args, call->nargs, out, 1);
    *us = now_us() - start;
    return st;
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

static const char *outcome(const kiln_stats *before, const kiln_stats *after) {
    if (after->compiles > before->compiles) return "compiled now";
    if (after->compile_failures > before->compile_failures) return "compile failed";
    if (after->interp_calls > before->interp_calls) return "interpreted";
    return "kernel reused";
}

static void print_heading(void) {
    out_text("Each operator is called again with one thing changed.  Kiln compiles one kernel per class of\n"
             "calls, so new sizes, ranks and scalar values reuse it.  Each result is compared with the\n"
             "interpreter's.\n\n");
    out_printf("%s%-10s  %-41s %9s  %-14s %-8s  %s%s\n", out_colour(COLOUR_HEAD), "", "call", "time/us",
               "what happened", "tier", "check", out_colour(COLOUR_OFF));
}

/* Runs one step in both contexts and prints its row; false after an error was told. */
static bool run_step(kiln_ctx *ctx, kiln_ctx *oracle, const step *s, totals *sum) {
    char text[128], err[CALLTEXT_ERROR_MAX], tier[16];
    calltext call;
    kiln_stats before, after;
    kiln_tensor *out = NULL, *want = NULL;
    double us = 0, ignored;
    int n = snprintf(text, sizeof text, "%s(%s)", s->op, s->arguments);
    if (!calltext_parse(text, (size_t)n, NULL, &call, err)) {
        cli_error("%s: %s", text, err);
        return false;
    }
    kiln_stats_get(ctx, &before, sizeof before);
    kiln_status st = call_once(ctx, &call, &out, &us);
    kiln_stats_get(ctx, &after, sizeof after);
    snprintf(tier, sizeof tier, "%s", kiln_last_tier());
    if (st == KILN_OK) st = call_once(oracle, &call, &want, &ignored);
    if (st == KILN_OK) {
        bool same = same_bits(out, want);
        sum->calls++;
        sum->wrong += !same;
        out_printf("%-10s  %-41s %9.1f  %-14s %-8s  %s%s%s\n", s->what, s->arguments, us,
                   outcome(&before, &after), tier, out_colour(same ? COLOUR_GOOD : COLOUR_BAD),
                   same ? "same bits" : "DIFFER", out_colour(COLOUR_OFF));
    } else {
        cli_error("%s: %s", text, kiln_last_error());
    }
    kiln_tensor_release(out);
    kiln_tensor_release(want);
    calltext_free(&call);
    return st == KILN_OK;
}

static void print_summary(kiln_ctx *ctx, const totals *sum) {
    kiln_stats stats;
    kiln_stats_get(ctx, &stats, sizeof stats);
    out_printf("\n%d calls, %" PRIu64 " classes compiled, %" PRIu64 " compile failures", sum->calls,
               stats.compiles, stats.compile_failures);
    if (sum->wrong)
        out_printf(", %s%d results differ%s", out_colour(COLOUR_BAD), sum->wrong, out_colour(COLOUR_OFF));
    if (sum->failed) out_printf(", %d calls failed", sum->failed);
    out_text("\n");
    if (stats.compiles == 0)
        out_text(
            "Nothing was compiled: no compiler is usable here or compiling is off; the interpreter answered\n"
            "every call.  'kiln doctor' tells what is missing.\n");
}

int cmd_demo(const cli_args *args) {
    if (args->noperands) return cli_usage_error(CLI_CMD_DEMO, "unexpected operand '%s'", args->operands[0]);
    cli_args interp = *args;
    interp.mode = KILN_MODE_INTERP;
    kiln_ctx *ctx = cli_open_sync(args), *oracle = ctx ? cli_open(&interp) : NULL;
    totals sum = {0};
    if (oracle) {
        print_heading();
        for (int i = 0; i < STEP_COUNT && out_flush(); i++) {
            if (i == 0 || strcmp(steps[i].op, steps[i - 1].op) != 0)
                out_printf("%s%s%s\n", out_colour(COLOUR_HEAD), steps[i].op, out_colour(COLOUR_OFF));
            if (!run_step(ctx, oracle, &steps[i], &sum)) sum.failed++;
        }
        print_summary(ctx, &sum);
    }
    kiln_close(oracle);
    kiln_close(ctx);
    return oracle && !sum.wrong && !sum.failed ? CLI_OK : CLI_FAILED;
}
