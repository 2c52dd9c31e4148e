/* bench_open.c - `kiln bench open`: what a context costs before its first call.
 *
 * A process opens its first context and finds its first operator once, so each sample is a child of this one, which
 * has opened none.  Later contexts are opened in the same child.  The median child counts.  bench/open.sh counts
 * instructions of path_open, and runs the same in a command with ten times the rows. */
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { CHILDREN = 51, LATER = 20 };

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

static bool sample_in_child(sample *s) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    pid_t pid = fork();
    if (pid == 0) _exit(take_sample(s) && write(ends[1], s, sizeof *s) == sizeof *s ? 0 : 1);
    close(ends[1]);
    bool done = pid > 0 && read(ends[0], s, sizeof *s) == sizeof *s;
    close(ends[0]);
    if (pid > 0) (void)waitpid(pid, NULL, 0);
    return done;
}

int bench_open(const cli_args *args) {
    double first[CHILDREN], later[CHILDREN];
    for (int k = 0; k < CHILDREN; k++) {
        sample s = {0};
        if (!sample_in_child(&s)) {
            cli_error("a child could not open a context");
            return CLI_FAILED;
        }
        first[k] = s.first / 1e6;
        later[k] = s.later / 1e6;
    }
    bool met = bench_goal(args, "open", "kiln_open and the first kiln_op_find of a process",
                          bench_quantile(first, CHILDREN, 0.5), BENCH_AT_MOST, 0.3, "ms");
    met &= bench_goal(args, "open", "each later context", bench_quantile(later, CHILDREN, 0.5), BENCH_AT_MOST,
                      0.05, "ms");
    return met ? CLI_OK : CLI_FAILED;
}
