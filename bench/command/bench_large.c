/* bench_large.c - `kiln bench large`: add of 16M f32 with a fresh result against the same into a ready one.
 *
 * The two take turns and the best of each counts. */
#include <string.h>

#include "bench.h"

enum { ROUNDS = 9 };
static const int64_t nelem = 16 << 20;

typedef struct large {
    kiln_ctx *ctx;
    const kiln_op *add, *add_out;
    kiln_tensor *x, *y, *out;
    double fresh, ready;
} large;

static double call_ns(large *l, const kiln_op *op, const kiln_value *args, size_t n) {
    kiln_tensor *out;
    double start = bench_now_ns();
    if (kiln_call(l->ctx, op, args, n, &out, 1) != KILN_OK) return -1;
    kiln_tensor_release(out);
    return bench_now_ns() - start;
}

static bool run_round(large *l) {
    const kiln_value args[] = {kiln_v_tensor(l->x), kiln_v_tensor(l->y),
                               kiln_v_named("out", kiln_v_tensor(l->out))};
    double fresh = call_ns(l, l->add, args, 2), ready = call_ns(l, l->add_out, args, 3);
    if (fresh < 0 || ready < 0) return false;
    if (l->fresh == 0 || fresh < l->fresh) l->fresh = fresh;
    if (l->ready == 0 || ready < l->ready) l->ready = ready;
    return true;
}

static bool set_up(large *l) {
    kiln_tensor **all[] = {&l->x, &l->y, &l->out};
    for (int k = 0; k < 3; k++) {
        if (kiln_tensor_new(KILN_F32, 1, &nelem, NULL, all[k]) != KILN_OK) return false;
        memset(kiln_tensor_data(*all[k]), 0, (size_t)nelem * sizeof(float));
    }
    return kiln_op_find(l->ctx, "add.Tensor", &l->add) == KILN_OK &&
           kiln_op_find(l->ctx, "add.out", &l->add_out) == KILN_OK;
}

int bench_large(const cli_args *args) {
    large l = {.ctx = cli_open_sync(args)};
    bool done = l.ctx && set_up(&l) && run_round(&l); /* the first compiles */
    l.fresh = l.ready = 0;
    for (int k = 0; k < ROUNDS && done; k++) done = run_round(&l);
    bool met = false;
    if (done)
        met = bench_goal(args, "large", "add f32 16M, fresh result against a ready one", l.fresh / l.ready,
                         BENCH_AT_MOST, 1.15, "x");
    else if (l.ctx)
        cli_error("%s", kiln_last_error());
    if (done && !args->json) out_printf("    %.2f ms and %.2f ms\n", l.fresh / 1e6, l.ready / 1e6);
    kiln_tensor_release(l.x);
    kiln_tensor_release(l.y);
    kiln_tensor_release(l.out);
    kiln_close(l.ctx);
    return met ? CLI_OK : CLI_FAILED;
}
