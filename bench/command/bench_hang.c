/* bench_hang.c - `kiln bench hang`: a million calls while the only compiler there is sleeps.
 *
 * Counts results that are right; how fast they come is not asked, only that none waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

enum { CALLS = 1000000, N = 8 };

/* A program that sleeps; its path goes to `path`, a template of mkstemp's. */
static bool write_sleeper(char *path) {
    static const char text[] = "#!/bin/sh\nexec sleep 1000\n";
    int fd = mkstemp(path);
    if (fd < 0) return false;
    bool written = write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1 && fchmod(fd, 0700) == 0;
    return close(fd) == 0 && written;
}

static int64_t count_right(kiln_ctx *ctx, const kiln_op *op, kiln_tensor *x) {
    const int32_t *in = kiln_tensor_data(x);
    kiln_value arg = kiln_v_tensor(x);
    int64_t right = 0;
    for (int k = 0; k < CALLS; k++) {
        kiln_tensor *out;
        if (kiln_call(ctx, op, &arg, 1, &out, 1) != KILN_OK) continue;
        const int32_t *got = kiln_tensor_data(out);
        int good = 1;
        for (int i = 0; i < N; i++) good &= got[i] == ~in[i];
        right += good;
        kiln_tensor_release(out);
    }
    return right;
}

int bench_hang(const cli_args *args) {
    char path[] = "/tmp/kiln-bench-XXXXXX";
    const int64_t n = N;
    kiln_ctx *ctx = NULL;
    kiln_tensor *x = NULL;
    const kiln_op *op;
    int64_t right = -1;
    kiln_config config = {
        .size = sizeof config, .mode = KILN_MODE_TIERED, .cc = path, .threads = args->threads};
    if (!write_sleeper(path)) {
        cli_error("cannot write %s", path);
    } else if (kiln_open(&config, &ctx) == KILN_OK && kiln_tensor_new(KILN_I32, 1, &n, NULL, &x) == KILN_OK &&
               kiln_op_find(ctx, "bitwise_not", &op) == KILN_OK) {
        for (int i = 0; i < N; i++) ((int32_t *)kiln_tensor_data(x))[i] = i * 1000003;
        right = count_right(ctx, op, x);
    }
    if (right < 0) cli_error("%s", kiln_last_error());
    kiln_tensor_release(x);
    kiln_close(ctx); /* ends the sleeper */
    unlink(path);
    return bench_goal(args, "hang", "right results of 1,000,000 calls while the compiler hangs",
                      (double)right, BENCH_AT_LEAST, CALLS, "")
               ? CLI_OK
               : CLI_FAILED;
}
