/* bench_memory.c - `kiln bench memory`: what a context takes at rest, and a resident kernel beyond its code.
 *
 * The heap is asked before and after; pages of the process too, for the context, since the heap does not tell
 * what it had to take from the system. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

static const kiln_dtype dtypes[] = {KILN_F32, KILN_F64, KILN_I32, KILN_I64, KILN_I16, KILN_U8};
static const char *const names[] = {"add.Tensor", "mul.Tensor", "sub.Tensor", "maximum",
                                    "minimum",    "div.Tensor", "eq.Tensor",  "lt.Tensor",
                                    "neg",        "abs",        "square",     "sign"};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, NAMES = sizeof names / sizeof *names };

static double heap_bytes(void) { return (double)mallinfo2().uordblks + (double)mallinfo2().hblkhd; }

static double resident_bytes(void) {
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return NAN;
    if (fscanf(f, "%ld %ld", &all, &pages) != 2) pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* In a child, whose memory holds nothing else. */
static double context_bytes(void) {
    int ends[2];
    double bytes = NAN;
    if (pipe(ends) != 0) return NAN;
    pid_t pid = fork();
    if (pid == 0) {
        kiln_ctx *ctx;
        malloc_trim(0); /* what was freed before is not to be had for nothing */
        double before = resident_bytes();
        if (kiln_open(NULL, &ctx) == KILN_OK) bytes = resident_bytes() - before;
        _exit(write(ends[1], &bytes, sizeof bytes) == sizeof bytes ? 0 : 1);
    }
    close(ends[1]);
    if (pid < 0 || read(ends[0], &bytes, sizeof bytes) != sizeof bytes) bytes = NAN;
    close(ends[0]);
    if (pid > 0) (void)waitpid(pid, NULL, 0);
    return bytes;
}

/* The k-th operator and dtype, so that it has its kernel. */
static bool call_one(kiln_ctx *ctx, int k) {
    static const int64_t n = 4;
    const kiln_op *op;
    kiln_tensor *x, *out;
    if (kiln_op_find(ctx, names[k / DTYPES], &op) != KILN_OK ||
        kiln_tensor_new(dtypes[k % DTYPES], 1, &n, NULL, &x) != KILN_OK)
        return false;
    memset(kiln_tensor_data(x), 0, (size_t)n * kiln_dtype_size(dtypes[k % DTYPES]));
    const kiln_value args[] = {kiln_v_tensor(x), kiln_v_tensor(x)};
    kiln_status st = kiln_call(ctx, op, args, strchr(kiln_op_schema(op), ',') ? 2 : 1, &out, 1);
    kiln_tensor_release(x);
    if (st != KILN_OK) return false;
    kiln_tensor_release(out);
    return true;
}

/* Heap that each kernel from the second on adds: the first call also makes what its thread keeps for all calls, and
 * finding an operator reads its row. */
static double kernel_bytes(kiln_ctx *ctx) {
    const kiln_op *op;
    bool done = call_one(ctx, 0);
    for (int k = 0; k < NAMES && done; k++) done = kiln_op_find(ctx, names[k], &op) == KILN_OK;
    kiln_trim();
    double before = heap_bytes();
    for (int k = 1; k < NAMES * DTYPES && done; k++) done = call_one(ctx, k);
    kiln_wait_idle(ctx);
    kiln_trim();
    kiln_stats s;
    kiln_stats_get(ctx, &s, sizeof s);
    return done && s.kernels > 1 ? (heap_bytes() - before) / (double)(s.kernels - 1) : NAN;
}

int bench_memory(const cli_args *args) {
    kiln_ctx *ctx = cli_open_sync(args);
    if (!ctx) return CLI_FAILED;
    double each = kernel_bytes(ctx);
    if (isnan(each)) cli_error("%s", kiln_last_error());
    kiln_close(ctx);
    if (isnan(each)) return CLI_FAILED;
    bool met = bench_goal(args, "memory", "heap of a resident kernel, beyond its code", each / 1024,
                          BENCH_AT_MOST, 2, "KiB");
    met &= bench_goal(args, "memory", "a context at rest", context_bytes() / 1048576, BENCH_AT_MOST, 3,
                      "MiB");
    return met ? CLI_OK : CLI_FAILED;
}
