/* bench_general.c - calls of which nothing is remembered: bound, inferred, keyed and looked up each time.
 *
 *   bench_general [CALLS]
 * add.Tensor of f32 [32,32] and a row of 32, with alpha, as in `kiln bench dispatch`; and cross_entropy_loss of f32 [2,4],
 * a composition of two folds.  bench/instructions.sh counts the instructions of path_general_bare and
 * path_composition_bare; by itself the program prints nanoseconds, as JSON lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/ctx.h"

enum { SIDE = 32, ROWS = 2, CLASSES = 4 };

static void must(kiln_status st) {
    if (st == KILN_OK) return;
    fprintf(stderr, "bench_general: %s\n", kiln_last_error());
    exit(1);
}

static kiln_value tensor(kiln_dtype dtype, int rank, const int64_t *sizes) {
    kiln_tensor *t;
    must(kiln_tensor_new(dtype, rank, sizes, NULL, &t));
    memset(kiln_tensor_data(t), 0, (size_t)kiln_tensor_nelem(t) * kiln_dtype_size(dtype));
    return kiln_v_tensor(t);
}

/* A call to be counted: the operator and its arguments. */
typedef struct call {
    kiln_ctx *ctx;
    const kiln_op *op;
    size_t nargs;
    kiln_value args[3];
} call;

static void make(const call *c, long calls) {
    kiln_tensor *out;
    for (long k = 0; k < calls; k++) {
        must(kiln_call(c->ctx, c->op, c->args, c->nargs, &out, 1));
        kiln_tensor_release(out);
    }
}

__attribute__((noinline)) static void path_general_bare(const call *c, long calls) { make(c, calls); }
__attribute__((noinline)) static void path_composition_bare(const call *c, long calls) { make(c, calls); }

static void measure(const char *name, const call *c, void (*path)(const call *, long), long calls) {
    struct timespec from, to;
    make(c, 2); /* compiles what it needs */
    clock_gettime(CLOCK_MONOTONIC, &from);
    path(c, calls);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("{\"bench\": \"%s\", \"calls\": %ld, \"ns\": %.1f}\n", name, calls,
           ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)calls);
    for (size_t k = 0; k < c->nargs; k++)
        if (c->args[k].kind == KILN_TENSOR) kiln_tensor_release(c->args[k].u.tensor);
}

int main(int argc, char **argv) {
    static const int64_t square[] = {SIDE, SIDE}, scores[] = {ROWS, CLASSES};
    long calls = argc > 1 ? strtol(argv[1], NULL, 10) : 2000;
    kiln_config config = {.size = sizeof config, .mode = KILN_MODE_SYNC, .threads = 1};
    kiln_ctx *ctx;
    must(kiln_open(&config, &ctx));
    ctx->forgets = true;
    call add = {.ctx = ctx, .nargs = 3}, loss = {.ctx = ctx, .nargs = 2};
    must(kiln_op_find(ctx, "add.Tensor", &add.op));
    must(kiln_op_find(ctx, "cross_entropy_loss", &loss.op));
    add.args[0] = tensor(KILN_F32, 2, square);
    add.args[1] = tensor(KILN_F32, 1, square);
    add.args[2] = kiln_v_named(kiln_op_arg_name(add.op, 2), kiln_v_float(2));
    loss.args[0] = tensor(KILN_F32, 2, scores);
    loss.args[1] = tensor(KILN_I64, 1, scores);
    measure("general_bare", &add, path_general_bare, calls);
    measure("composition_bare", &loss, path_composition_bare, calls);
    kiln_close(ctx);
    return 0;
}
