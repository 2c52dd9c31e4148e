/* bench_open.c - `kiln bench open`: what a context costs before its first call.
 *
 * A process opens its first context and finds its first operator once, so each sample is a child of this one, which
 * has opened none.  Later contexts are opened in the same child.  Other children have 16 more threads, as a process that has loaded
 * NumPy or PyTorch has, and make a call as well.  The median child counts.  bench/open.sh counts
 * instructions of path_open, and runs the same in a command with ten times the rows. */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { CHILDREN = 51, LATER = 20, OTHERS = 16 };

typedef struct sample {
    double first, later; /* ns */
} sample;

__attribute__((noinline)) static bool path_open(kiln_ctx **out) {
    const kiln_op *op;
    return kiln_open(NULL, out) == KILN_OK && kiln_op_find(*out, "aten::add.Tensor", &op) == KILN_OK;
}

static bool take_sample(sample *s) {
    kiln_ctx *ctx[1 + LATER];
    double start = bench_now_ns();
    bool done = path_open(&ctx[0]);
    s->first = bench_now_ns() - start;
    start = bench_now_ns();
    for (int k = 1; k <= LATER && done; k++) done = path_open(&ctx[k]);
    s->later = (bench_now_ns() - start) / LATER;
    return done;
}

static void *wait_for_end(void *unused) {
    pause();
    return unused;
}

/* Opens a context and makes a call, beside other threads. */
static bool take_sample_beside_others(sample *s) {
    kiln_ctx *ctx = NULL;
    const kiln_op *op = NULL;
    kiln_tensor *x = NULL, *out = NULL;
    const int64_t n = 16;
    pthread_t other;
    for (int k = 0; k < OTHERS; k++)
        if (pthread_create(&other, NULL, wait_for_end, NULL) != 0) return false;
    if (kiln_tensor_new(KILN_F32, 1, &n, NULL, &x) != KILN_OK) return false;
    memset(kiln_tensor_data(x), 0, (size_t)n * sizeof(float));
    double start = bench_now_ns();
    bool done = path_open(&ctx) && kiln_op_find(ctx, "aten::neg", &op) == KILN_OK &&
                kiln_call(ctx, op, (const kiln_value[]){kiln_v_tensor(x)}, 1, &out, 1) == KILN_OK;
    s->first = bench_now_ns() - start;
    return done;
}

static bool sample_in_child(bool (*take)(sample *), sample *s) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    pid_t pid = fork();
    if (pid == 0) _exit(take(s) && write(ends[1], s, sizeof *s) == sizeof *s ? 0 : 1);
    close(ends[1]);
    bool done = pid > 0 && read(ends[0], s, sizeof *s) == sizeof *s;
    close(ends[0]);
    if (pid > 0) (void)waitpid(pid, NULL, 0);
    return done;
}

int bench_open(const cli_args *args) {
    double first[CHILDREN], later[CHILDREN], beside[CHILDREN];
    for (int k = 0; k < CHILDREN; k++) {
        sample s = {0}, other = {0};
        if (!sample_in_child(take_sample, &s) || !sample_in_child(take_sample_beside_others, &other)) {
            cli_error("a child could not open a context");
            return CLI_FAILED;
        }
        first[k] = s.first / 1e6;
        later[k] = s.later / 1e6;
        beside[k] = other.first / 1e6;
    }
    bool met = bench_goal(args, "open", "kiln_open and the first kiln_op_find of a process",
                          bench_quantile(first, CHILDREN, 0.5), BENCH_AT_MOST, 0.3, "ms");
    met &= bench_goal(args, "open", "each later context", bench_quantile(later, CHILDREN, 0.5), BENCH_AT_MOST,
                      0.05, "ms");
    met &= bench_goal(args, "open", "kiln_open and the first call beside 16 threads",
                      bench_quantile(beside, CHILDREN, 0.5), BENCH_AT_MOST, 1, "ms");
    return met ? CLI_OK : CLI_FAILED;
}
