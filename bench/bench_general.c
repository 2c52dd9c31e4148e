/* bench_general.c - a call of which nothing is remembered: bound, inferred, keyed and looked up each time.
 *
 *   bench_general [CALLS]
 * add.Tensor of f32 [32,32] and a row of 32, with alpha, as in `kiln bench dispatch`.  bench/instructions.sh counts
 * the instructions of path_general_bare; by itself the program prints nanoseconds, as a JSON line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/ctx.h"

enum { SIDE = 32 };

static void must(kiln_status st) {
    if (st == KILN_OK) return;
    fprintf(stderr, "bench_general: %s\n", kiln_last_error());
    exit(1);
}

static kiln_value tensor(int rank) {
    static const int64_t sizes[] = {SIDE, SIDE};
    kiln_tensor *t;
    must(kiln_tensor_new(KILN_F32, rank, sizes, NULL, &t));
    memset(kiln_tensor_data(t), 0, (size_t)kiln_tensor_nelem(t) * sizeof(float));
    return kiln_v_tensor(t);
}

__attribute__((noinline)) static void path_general_bare(kiln_ctx *ctx, const kiln_op *op,
                                                        const kiln_value *args, long calls) {
    kiln_tensor *out;
    for (long k = 0; k < calls; k++) {
        must(kiln_call(ctx, op, args, 3, &out, 1));
        kiln_tensor_release(out);
    }
}

int main(int argc, char **argv) {
    long calls = argc > 1 ? strtol(argv[1], NULL, 10) : 2000;
    kiln_config config = {.size = sizeof config, .mode = KILN_MODE_SYNC, .threads = 1};
    kiln_ctx *ctx;
    const kiln_op *add;
    kiln_tensor *out;
    struct timespec from, to;
    must(kiln_open(&config, &ctx));
    ctx->forgets = true;
    must(kiln_op_find(ctx, "add.Tensor", &add));
    const kiln_value args[] = {tensor(2), tensor(1), kiln_v_named(kiln_op_arg_name(add, 2), kiln_v_float(2))};
    must(kiln_call(ctx, add, args, 3, &out, 1)); /* compiles it */
    kiln_tensor_release(out);
    clock_gettime(CLOCK_MONOTONIC, &from);
    path_general_bare(ctx, add, args, calls);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("{\"bench\": \"general_bare\", \"calls\": %ld, \"ns\": %.1f}\n", calls,
           ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)calls);
    for (int k = 0; k < 2; k++) kiln_tensor_release(args[k].u.tensor);
    kiln_close(ctx);
    return 0;
}
