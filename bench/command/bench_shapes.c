/* bench_shapes.c - `kiln bench shapes`: 20 operators, each over 10,000 random shapes of rank 0 to 8, with changing
 * scalars, strides and broadcasts, in sync mode.
 *
 * Counts what was compiled per operator (at most 2^k + 1 for k tensor inputs) and how even the calls are: each
 * is made 9 times and its best counts; the 99th of a hundred stands beside the median.  Tensors have 16 elements
 * at most, so that calls and not kernels are timed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { SHAPES = 10000, REPEATS = 9, RANK_MAX = 8, NELEM_MAX = 16, ARGS_MAX = 4, ROOM = NELEM_MAX * 4 };

/* args: T a f32 tensor, B a bool one, s a number; named: a number given by that name, or NULL. */
static const struct shape_op {
    const char *name, *args, *named;
} ops[] = {{"neg", "T", NULL},
           {"exp", "T", NULL},
           {"sigmoid", "T", NULL},
           {"leaky_relu", "Ts", NULL},
           {"clamp", "Tss", NULL},
           {"add.Scalar", "Ts", "alpha"},
           {"mul.Scalar", "Ts", NULL},
           {"add.Tensor", "TT", "alpha"},
           {"sub.Tensor", "TT", "alpha"},
           {"mul.Tensor", "TT", NULL},
           {"div.Tensor", "TT", NULL},
           {"maximum", "TT", NULL},
           {"atan2", "TT", NULL},
           {"hypot", "TT", NULL},
           {"lt.Tensor", "TT", NULL},
           {"eq.Tensor", "TT", NULL},
           {"where.self", "BTT", NULL},
           {"addcmul", "TTT", "value"},
           {"addcdiv", "TTT", "value"},
           {"lerp.Tensor", "TTT", NULL}};
enum { OPS = sizeof ops / sizeof *ops };

typedef struct shapes {
    kiln_ctx *ctx;
    uint64_t random;
    _Alignas(64) float room[3][ROOM];
    double best[SHAPES], all[OPS * SHAPES];
    size_t nall;
    double worst_count,
        worst_spread; /* of an operator: compiles beside what is allowed, p99 beside the median */
} shapes;

static unsigned roll(shapes *s, unsigned n) {
    s->random = s->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)(s->random >> 33) % n;
}

static int roll_shape(shapes *s, int64_t *sizes) {
    int rank = (int)roll(s, RANK_MAX + 1);
    int64_t nelem = 1;
    for (int d = 0; d < rank; d++) {
        int64_t n = 1 + (int64_t)roll(s, rank < 3 ? 12 : 4);
        sizes[d] = nelem * n <= NELEM_MAX ? n : 1;
        nelem *= sizes[d];
    }
    return rank;
}

/* An operand of the call's shape: some dimensions broadcast, any order of dimensions in memory, gaps or none. */
static kiln_tensor *roll_tensor(shapes *s, int rank, const int64_t *shape, kiln_dtype dtype, void *room) {
    int64_t sizes[RANK_MAX], strides[RANK_MAX], next = 1 + (int64_t)(roll(s, 4) == 0);
    int from = roll(s, 4) == 0 ? (int)roll(s, (unsigned)rank + 1) : 0, order[RANK_MAX];
    bool permuted = roll(s, 2);
    for (int d = 0; d < rank; d++) {
        sizes[d] = roll(s, 4) == 0 ? 1 : shape[d];
        order[d] = d;
        if (!permuted) continue;
        int other = (int)roll(s, (unsigned)d + 1);
        order[d] = order[other];
        order[other] = d;
    }
    for (int k = rank - 1; k >= 0; k--) {
        strides[order[k]] = next;
        next *= sizes[order[k]];
    }
    kiln_tensor *t = NULL;
    if (kiln_tensor_wrap(room, dtype, rank - from, sizes + from, strides + from, NULL, NULL, &t) != KILN_OK)
        return NULL;
    return t;
}

static kiln_value roll_number(shapes *s) {
    return roll(s, 2) ? kiln_v_int((int64_t)roll(s, 7) - 3) : kiln_v_float((double)roll(s, 1000) / 100 - 5);
}

/* One random call; nanoseconds of the best of some, or below 0. */
static double run_shape(shapes *s, const struct shape_op *op, const kiln_op *found) {
    int64_t shape[RANK_MAX];
    kiln_value args[ARGS_MAX];
    int rank = roll_shape(s, shape), n = 0;
    double best = -1;
    bool made = true;
    for (const char *a = op->args; *a; a++, n++) {
        if (*a == 's') {
            args[n] = roll_number(s);
        } else {
            args[n] = kiln_v_tensor(
                roll_tensor(s, rank, shape, *a == 'B' ? KILN_BOOL : KILN_F32, s->room[n % 3]));
            made = made && args[n].u.tensor;
        }
    }
    if (op->named) args[n++] = kiln_v_named(op->named, roll_number(s));
    for (int k = 0; k < REPEATS && made; k++) {
        kiln_tensor *out;
        double start = bench_now_ns();
        made = kiln_call(s->ctx, found, args, (size_t)n, &out, 1) == KILN_OK;
        double ns = bench_now_ns() - start;
        if (made) kiln_tensor_release(out);
        if (made && (best < 0 || ns < best)) best = ns;
    }
    for (int k = 0; k < n; k++)
        if (args[k].kind == KILN_TENSOR) kiln_tensor_release(args[k].u.tensor);
    return made ? best : -1;
}

static uint64_t compiles(const shapes *s) {
    kiln_stats now;
    kiln_stats_get(s->ctx, &now, sizeof now);
    return now.compiles + now.fallbacks;
}

static bool run_op(shapes *s, const cli_args *args, const struct shape_op *op) {
    const kiln_op *found;
    int k = 0;
    uint64_t before = compiles(s);
    if (kiln_op_find(s->ctx, op->name, &found) != KILN_OK) return false;
    for (const char *a = op->args; *a; a++) k += *a != 's';
    for (int i = 0; i < SHAPES; i++)
        if ((s->best[i] = s->all[s->nall++] = run_shape(s, op, found)) < 0) return false;
    double made = (double)(compiles(s) - before), most = (double)((1 << k) + 1);
    double median = bench_quantile(s->best, SHAPES, 0.5), p99 = bench_quantile(s->best, SHAPES, 0.99);
    if (made / most > s->worst_count) s->worst_count = made / most;
    if (p99 / median > s->worst_spread) s->worst_spread = p99 / median;
    if (args->json)
        out_json(json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f}", "bench", "shapes", "operator", op->name,
                           "shapes", (json_int_t)SHAPES, "compiles", (json_int_t)made, "most",
                           (json_int_t)most, "median_ns", median, "p99_ns", p99));
    else
        out_printf("    %-14s %2.0f compiles, at most %2.0f; %6.0f ns a call, 99%% under %6.0f ns\n",
                   op->name, made, most, median, p99);
    return out_flush();
}

int bench_shapes(const cli_args *args) {
    shapes *s = aligned_alloc(64, (sizeof *s + 63) / 64 * 64);
    if (!s) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    memset(s, 0, sizeof *s);
    s->ctx = cli_open_sync(args);
    bool done = s->ctx != NULL, met = false;
    for (int k = 0; k < OPS && done; k++)
        if (!(done = run_op(s, args, &ops[k]))) cli_error("%s: %s", ops[k].name, kiln_last_error());
    if (done) {
        met = bench_goal(args, "shapes", "kernels per operator, of the 2^k + 1 allowed, worst of 20",
                         s->worst_count, BENCH_AT_MOST, 1, "x");
        double median = bench_quantile(s->all, s->nall, 0.5), p99 = bench_quantile(s->all, s->nall, 0.99);
        met &= bench_goal(args, "shapes", "99th of 100 calls, of all 200,000, against the median",
                          p99 / median, BENCH_AT_MOST, 3, "x");
        if (!args->json)
            out_printf("    %.0f ns and %.0f ns; of a single operator's calls at most %.1f x\n", p99, median,
                       s->worst_spread);
    }
    kiln_close(s->ctx);
    free(s);
    return met ? CLI_OK : CLI_FAILED;
}
