/* bench_first.c - `kiln bench first`: what the first call of a class costs in tiered mode, and that it starts no
 * compiler.
 *
 * A class is new once per context, so each round opens one.  The best round of each class counts, then the
 * median over classes; a table hit is the same operator in two dtypes by turns, so that neither stays at hand. */
#include <string.h>

#include "bench.h"

enum { ROUNDS = 9, SIDE = 32, HITS = 2000 };

static const char *const names[] = {"neg",        "abs",        "exp",   "sqrt",   "sigmoid", "tanh",
                                    "floor",      "sin",        "log1p", "silu",   "relu",    "square",
                                    "add.Tensor", "mul.Tensor", "atan2", "maximum"};
enum { NAMES = sizeof names / sizeof *names };
static const kiln_dtype dtypes[] = {KILN_F32, KILN_F64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, CLASSES = NAMES * DTYPES };

typedef struct first {
    kiln_tensor *x[DTYPES];
    double best[CLASSES], hit;
    uint64_t compiles;
} first;

/* One call, timed; below 0 after a failure. */
static double call_ns(kiln_ctx *ctx, const kiln_op *op, kiln_tensor *x) {
    const kiln_value args[] = {kiln_v_tensor(x), kiln_v_tensor(x)};
    kiln_tensor *out;
    double start = bench_now_ns();
    kiln_status st = kiln_call(ctx, op, args, strchr(kiln_op_schema(op), ',') ? 2 : 1, &out, 1);
    double ns = bench_now_ns() - start;
    if (st != KILN_OK) return -1;
    kiln_tensor_release(out);
    return ns;
}

static double least(double a, double b) { return a == 0 || b < a ? b : a; }

/* Two classes by turns, compiled: the cost of finding one in the table. */
static bool measure_hits(first *f, kiln_ctx *ctx) {
    const kiln_op *op;
    kiln_tensor *out;
    if (kiln_op_find(ctx, "bitwise_not", &op) != KILN_OK) return false;
    if (call_ns(ctx, op, f->x[0]) < 0 || call_ns(ctx, op, f->x[1]) < 0) return false; /* compiles them */
    double start = bench_now_ns();
    for (int k = 0; k < HITS; k++) {
        kiln_value arg = kiln_v_tensor(f->x[k % 2]);
        if (kiln_call(ctx, op, &arg, 1, &out, 1) != KILN_OK) return false;
        kiln_tensor_release(out);
    }
    f->hit = least(f->hit, (bench_now_ns() - start) / HITS);
    return true;
}

static bool measure_first(first *f, kiln_ctx *ctx) {
    const kiln_op *op;
    if (kiln_op_find(ctx, "reciprocal", &op) != KILN_OK || call_ns(ctx, op, f->x[0]) < 0)
        return false; /* warm */
    for (int k = 0; k < CLASSES; k++) {
        if (kiln_op_find(ctx, names[k / DTYPES], &op) != KILN_OK) return false;
        double ns = call_ns(ctx, op, f->x[k % DTYPES]);
        if (ns < 0) return false;
        f->best[k] = least(f->best[k], ns);
    }
    kiln_stats s;
    kiln_stats_get(ctx, &s, sizeof s);
    f->compiles += s.compiles + s.compile_failures;
    return true;
}

/* A round of each with contexts of their own. */
static bool run_round(first *f, const cli_args *args, kiln_mode mode, bool (*measure)(first *, kiln_ctx *)) {
    cli_args here = *args;
    here.mode = mode;
    kiln_ctx *ctx = cli_open(&here);
    bool done = ctx && measure(f, ctx);
    if (ctx && !done) cli_error("%s", kiln_last_error());
    kiln_close(ctx);
    return done;
}

static bool make_inputs(first *f, const kiln_dtype *of) {
    static const int64_t sizes[2] = {SIDE, SIDE};
    for (int k = 0; k < DTYPES; k++) {
        if (kiln_tensor_new(of[k], 2, sizes, NULL, &f->x[k]) != KILN_OK) return false;
        memset(kiln_tensor_data(f->x[k]), 0, SIDE * SIDE * kiln_dtype_size(of[k]));
    }
    return true;
}

static void drop_inputs(first *f) {
    for (int k = 0; k < DTYPES; k++) kiln_tensor_release(f->x[k]);
    memset(f->x, 0, sizeof f->x);
}

int bench_first(const cli_args *args) {
    static const kiln_dtype ints[] = {KILN_I32, KILN_I64};
    first f = {0};
    bool done = make_inputs(&f, ints);
    for (int k = 0; k < ROUNDS && done; k++) done = run_round(&f, args, KILN_MODE_SYNC, measure_hits);
    drop_inputs(&f);
    done = done && make_inputs(&f, dtypes);
    for (int k = 0; k < ROUNDS && done; k++) done = run_round(&f, args, KILN_MODE_TIERED, measure_first);
    drop_inputs(&f);
    if (!done) return CLI_FAILED;
    double typical = bench_quantile(f.best, CLASSES, 0.5);
    bool met = bench_goal(args, "first", "first call of a class, [32,32], tiered, against a table hit",
                          typical / f.hit, BENCH_AT_MOST, 200, "x");
    if (!args->json) out_printf("    %.1f us and %.3f us\n", typical / 1e3, f.hit / 1e3);
    met &= bench_goal(args, "first", "compilers started before it returned", (double)f.compiles,
                      BENCH_AT_MOST, 0, "");
    return met ? CLI_OK : CLI_FAILED;
}
