/* bench_pool.c - `kiln bench pool`: what sharing a loop costs beside the work in it.
 *
 * A loop of one part for each of two threads, which wait for each other, is nothing but its beginning and end.  For
 * sleeping threads counts what the caller pays until it works itself: the time until its first part.  Then what is
 * gained: work that two threads share, in loops that follow each other, against one thread's and against two processes
 * that do half each. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

enum {
    LOOPS = 2000,
    WAKES = 100,
    TURNS = 21,
    PER_TURN = 100,
    BEFORE = 10,
    THREADS = 2,
    ENOUGH_NS = 1000 * 1000
};

static double caller_began;
static _Thread_local bool is_caller;
static atomic_int here;

/* Waits for the other, but not for ever: it may have to be woken first. */
static void meet(void *arg, int64_t k) {
    double until = bench_now_ns() + 100e3;
    (void)arg, (void)k;
    if (is_caller && caller_began == 0) caller_began = bench_now_ns();
    atomic_fetch_add(&here, 1);
    while (atomic_load(&here) < THREADS && bench_now_ns() < until) continue;
}

static void nap(long ns) {
    struct timespec t = {0, ns};
    nanosleep(&t, NULL);
}

/* The time of a loop, in nanoseconds; below 0 after a failure. */
static double loop_ns(kiln_ctx *ctx) {
    atomic_store(&here, 0);
    caller_began = 0;
    double start = bench_now_ns();
    if (kiln_parallel_for(ctx, ENOUGH_NS, THREADS, meet, NULL) != KILN_OK) return -1;
    return bench_now_ns() - start;
}

static bool bench_loops(kiln_ctx *ctx, const cli_args *args) {
    static double times[LOOPS];
    double wakes[WAKES];
    for (int k = 0; k < LOOPS; k++) times[k] = loop_ns(ctx);
    for (int k = 0; k < WAKES; k++) {
        nap(1000 * 1000);
        double start = bench_now_ns();
        if (loop_ns(ctx) < 0) return false;
        wakes[k] = caller_began - start;
    }
    bool met = bench_goal(args, "pool", "a loop of threads that were just used, us",
                          bench_quantile(times, LOOPS, 0.5) / 1e3, BENCH_AT_MOST, 0.7, "us");
    met &= bench_goal(args, "pool", "what waking a thread costs the caller, us",
                      bench_quantile(wakes, WAKES, 0.5) / 1e3, BENCH_AT_MOST, 8, "us");
    met &= bench_goal(args, "pool", "the same, 95 of 100 are below", bench_quantile(wakes, WAKES, 0.95) / 1e3,
                      BENCH_AT_MOST, 15, "us");
    return met;
}

/* -- calls --------------------------------------------------------------------------------------------- */

typedef struct trio {
    bench_case *alone, *half, *shared; /* by one thread; half the work, by one; all of it by two */
} trio;

typedef struct board {
    atomic_int ready;
    double took[2];
} board;

/* The processes begin together, when the new one has memory of its own. */
static void run_half(const trio *c, board *b, int who) {
    (void)bench_case_ns(c->half, BEFORE);
    atomic_fetch_add(&b->ready, 1);
    while (atomic_load(&b->ready) < 2) continue;
    b->took[who] = bench_case_ns(c->half, PER_TURN);
}

/* Two processes, each with half the work: nanoseconds per call. */
static double processes_ns(const trio *c, board *b) {
    *b = (board){0};
    pid_t pid = fork();
    if (pid < 0) return -1;
    run_half(c, b, pid == 0);
    if (pid == 0) _exit(0);
    (void)waitpid(pid, NULL, 0);
    return b->took[0] > b->took[1] ? b->took[0] : b->took[1];
}

static bool bench_trio(const trio *c, board *b, const cli_args *args, const char *title) {
    double ratio[TURNS], gain[TURNS];
    for (int k = 0; k < TURNS; k++) {
        double alone = bench_case_ns(c->alone, PER_TURN);
        (void)bench_case_ns(c->shared,
                            BEFORE); /* threads are awake, as processes are: calls come again and again */
        double shared = bench_case_ns(c->shared, PER_TURN), apart = processes_ns(c, b);
        if (alone < 0 || shared < 0 || apart < 0) return cli_error("%s", kiln_last_error()), false;
        ratio[k] = apart / shared;
        gain[k] = alone / shared;
    }
    bool met = bench_goal(args, "pool", title, bench_quantile(ratio, TURNS, 0.5), BENCH_AT_LEAST, 0.9, "x");
    if (!args->json) out_printf("    %.2f times as fast as one thread\n", bench_quantile(gain, TURNS, 0.5));
    return met;
}

static bool bench_call(kiln_ctx *one, kiln_ctx *two, board *b, const cli_args *args, const char *text,
                       int kb) {
    char err[CALLTEXT_ERROR_MAX] = "no case", title[120];
    bench_line line;
    trio c = {0};
    bool met = false;
    if (bench_line_next(&text, &line) && line.name[0] &&
        (c.alone = bench_case_new(one, &line, kb * 1024, err)) &&
        (c.half = bench_case_new(one, &line, kb * 512, err)) &&
        (c.shared = bench_case_new(two, &line, kb * 1024, err))) {
        snprintf(title, sizeof title, "%s, %d KB: two threads, against two processes of half each", line.name,
                 kb);
        met = bench_trio(&c, b, args, title);
    } else {
        cli_error("bench pool: %s", err);
    }
    bench_case_free(c.alone);
    bench_case_free(c.half);
    bench_case_free(c.shared);
    return met;
}

static bool bench_calls(kiln_ctx *one, kiln_ctx *two, board *b, const cli_args *args) {
    static const char *const lines[] = {"tanh    compute -4 4 tanh.out(f32[N], out=f32[N])\n",
                                        "gelu    compute -4 4 gelu.out(f32[N], out=f32[N])\n",
                                        "exp_f64 compute -4 4 exp.out(f64[N], out=f64[N])\n",
                                        "erf     compute -4 4 erf.out(f32[N], out=f32[N])\n"};
    bool met = true;
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
        for (int kb = 256; kb <= 4096; kb *= 4) met &= bench_call(one, two, b, args, lines[k], kb);
    return met;
}

static kiln_ctx *open_with(const cli_args *args, int threads) {
    cli_args these = *args;
    these.threads = threads;
    return cli_open_sync(&these);
}

int bench_pool(const cli_args *args) {
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    kiln_ctx *one = b == MAP_FAILED ? NULL : open_with(args, 1), *two = one ? open_with(args, 2) : NULL;
    is_caller = true;
    bool met = two && bench_loops(two, args);
    met = two && bench_calls(one, two, b, args) && met;
    if (!two) cli_error("%s", kiln_last_error());
    kiln_close(two);
    kiln_close(one);
    if (b != MAP_FAILED) munmap(b, sizeof *b);
    return met ? CLI_OK : CLI_FAILED;
}
