/* app.c - a program that is shipped with its kernels: one training step of logistic regression by Kiln, many times.
 *
 * Prints its loss, and how its calls were answered.  build_and_run.sh records the classes it needs, packs their kernels, and runs it where
 * there is no compiler. */
#include <kiln/kiln.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, COLS = 48, STEPS = 20 };

static kiln_ctx *ctx;

static void must(kiln_status st) {
    if (st == KILN_OK) return;
    fprintf(stderr, "%s\n", kiln_last_error());
    exit(1);
}

/* Calls an operator and gives its one result. */
static kiln_tensor *call(const char *name, const kiln_value *args, size_t n) {
    const kiln_op *op;
    kiln_tensor *out;
    must(kiln_op_find(ctx, name, &op));
    must(kiln_call(ctx, op, args, n, &out, 1));
    return out;
}

static kiln_tensor *filled(int64_t rows, int64_t cols, float start) {
    kiln_tensor *t;
    must(kiln_tensor_new(KILN_F32, cols ? 2 : 1, (int64_t[]){rows, cols}, NULL, &t));
    float *p = kiln_tensor_data(t);
    for (int64_t k = 0; k < kiln_tensor_nelem(t); k++) p[k] = start + (float)(k % 7) / 7;
    return t;
}

/* w -= 0.1 * mean((sigmoid(x . w) - y) * x); returns the mean squared error. */
static float step(kiln_tensor *x, kiln_tensor *y, kiln_tensor **w) {
    const kiln_value last = kiln_v_int(1), first = kiln_v_int(0);
    kiln_tensor *xw = call("mul.Tensor", (kiln_value[]){kiln_v_tensor(x), kiln_v_tensor(*w)}, 2);
    kiln_tensor *sum = call("sum.dim_IntList",
                            (kiln_value[]){kiln_v_tensor(xw), kiln_v_list(&last, 1), kiln_v_bool(1)}, 3);
    kiln_tensor *p = call("sigmoid", (kiln_value[]){kiln_v_tensor(sum)}, 1);
    kiln_tensor *error = call("sub.Tensor", (kiln_value[]){kiln_v_tensor(p), kiln_v_tensor(y)}, 2);
    kiln_tensor *ex = call("mul.Tensor", (kiln_value[]){kiln_v_tensor(x), kiln_v_tensor(error)}, 2);
    kiln_tensor *grad = call("mean.dim", (kiln_value[]){kiln_v_tensor(ex), kiln_v_list(&first, 1)}, 2);
    kiln_tensor *next = call(
        "sub.Tensor",
        (kiln_value[]){kiln_v_tensor(*w), kiln_v_tensor(grad), kiln_v_named("alpha", kiln_v_float(0.1))}, 3);
    kiln_tensor *loss = call("mse_loss", (kiln_value[]){kiln_v_tensor(p), kiln_v_tensor(y)}, 2);
    float value = *(float *)kiln_tensor_data(loss);
    kiln_tensor *made[] = {xw, sum, p, error, ex, grad, *w, loss};
    for (size_t k = 0; k < sizeof made / sizeof *made; k++) kiln_tensor_release(made[k]);
    *w = next;
    return value;
}

int main(void) {
    kiln_stats stats;
    float loss = 0;
    must(kiln_open(NULL, &ctx));
    kiln_tensor *x = filled(ROWS, COLS, -0.5f), *y = filled(ROWS, 1, 0), *w = filled(COLS, 0, 0);
    for (int k = 0; k < STEPS; k++) loss = step(x, y, &w);
    kiln_stats_get(ctx, &stats, sizeof stats);
    printf("loss %.4f\n%llu calls, %llu interpreted, %llu kernels from packs, %llu compiled\n", loss,
           (unsigned long long)stats.calls, (unsigned long long)stats.interp_calls,
           (unsigned long long)stats.pack_hits, (unsigned long long)stats.compiles);
    kiln_tensor_release(x);
    kiln_tensor_release(y);
    kiln_tensor_release(w);
    kiln_close(ctx);
    return 0;
}
