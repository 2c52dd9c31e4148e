/* use_c.c - a C program outside the tree, built against an installed Kiln.
 *
 * Adds two vectors with alpha and prints the version and the sum; any failure exits 1 with the message.
 * Uses public headers only. */
#include <stdio.h>

#include <kiln/kiln.h>
#include <kiln/kiln_abi.h>

static int check(kiln_status st) {
    if (st != KILN_OK) fprintf(stderr, "%s: %s\n", kiln_status_name(st), kiln_last_error());
    return st == KILN_OK;
}

/* out = x + 2 * y, left in sum[]. */
static int add(kiln_ctx *ctx, float *x, float *y, float *sum, int64_t n) {
    const kiln_op *op = NULL;
    kiln_tensor *a = NULL, *b = NULL, *out = NULL;
    int ok = check(kiln_op_find(ctx, "aten::add.Tensor", &op)) &&
             check(kiln_tensor_wrap(x, KILN_F32, 1, &n, NULL, NULL, NULL, &a)) &&
             check(kiln_tensor_wrap(y, KILN_F32, 1, &n, NULL, NULL, NULL, &b));
    if (ok) {
        kiln_value args[3] = {kiln_v_tensor(a), kiln_v_tensor(b), kiln_v_named("alpha", kiln_v_int(2))};
        ok = check(kiln_call(ctx, op, args, 3, &out, 1));
    }
    for (int64_t i = 0; ok && i < n; i++) sum[i] = ((const float *)kiln_tensor_data(out))[i];
    kiln_tensor_release(out);
    kiln_tensor_release(b);
    kiln_tensor_release(a);
    return ok;
}

int main(void) {
    float x[3] = {1, 2, 3}, y[3] = {10, 20, 30}, sum[3];
    kiln_ctx *ctx = NULL;
    if (!check(kiln_open(NULL, &ctx))) return 1;
    int ok = add(ctx, x, y, sum, 3);
    kiln_close(ctx);
    if (!ok) return 1;
    printf("%s %g %g %g\n", kiln_version(), sum[0], sum[1], sum[2]);
    return 0;
}
