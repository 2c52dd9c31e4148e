/* bench_threads.c - `kiln bench threads`: calls of one class by two threads, against the same by two processes.
 *
 * Processes share nothing, so what threads lack beside them is what Kiln makes them share.  The two take turns
 * and the best of each counts. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { ROUNDS = 21, SIDE = 32, WORKERS = 2, BATCH = 200 };
#define RUN_NS 60e6

/* Shared by all workers of a round, processes included. */
typedef struct board {
    atomic_int ready;
    _Alignas(128) double rate[WORKERS][16]; /* calls per second, each in its own cache lines */
} board;

typedef struct worker {
    kiln_ctx *ctx;
    const kiln_op *op;
    board *board;
    int id;
    pthread_t thread;
} worker;

static double run_calls(const worker *w, kiln_tensor *x) {
    kiln_value arg = kiln_v_tensor(x);
    int64_t calls = 0;
    double start = bench_now_ns(), now = start;
    for (; now - start < RUN_NS; now = bench_now_ns())
        for (int k = 0; k < BATCH; k++, calls++) {
            kiln_tensor *out;
            if (kiln_call(w->ctx, w->op, &arg, 1, &out, 1) != KILN_OK) return 0;
            kiln_tensor_release(out);
        }
    return (double)calls / (now - start) * 1e9;
}

static void *work(void *user) {
    worker *w = user;
    static const int64_t sizes[2] = {SIDE, SIDE};
    kiln_tensor *x;
    if (kiln_tensor_new(KILN_I32, 2, sizes, NULL, &x) != KILN_OK) return NULL;
    memset(kiln_tensor_data(x), 0, SIDE * SIDE * 4);
    atomic_fetch_add(&w->board->ready, 1);
    while (atomic_load(&w->board->ready) < WORKERS) usleep(50);
    w->board->rate[w->id][0] = run_calls(w, x);
    kiln_tensor_release(x);
    return NULL;
}

static double sum(board *b) {
    double rate = 0;
    for (int k = 0; k < WORKERS; k++) rate += b->rate[k][0];
    memset(b, 0, sizeof *b);
    return rate;
}

static double run_threads(worker *all) {
    for (int k = 0; k < WORKERS; k++)
        if (pthread_create(&all[k].thread, NULL, work, &all[k]) != 0) return 0;
    for (int k = 0; k < WORKERS; k++) pthread_join(all[k].thread, NULL);
    return sum(all[0].board);
}

static double run_processes(worker *all) {
    pid_t pids[WORKERS];
    for (int k = 0; k < WORKERS; k++) {
        pids[k] = fork();
        if (pids[k] < 0) return 0;
        if (pids[k] > 0) continue;
        (void)work(&all[k]);
        _exit(0);
    }
    for (int k = 0; k < WORKERS; k++) (void)waitpid(pids[k], NULL, 0);
    return sum(all[0].board);
}

/* Compiles the class before it is timed. */
static bool set_up(worker *all, kiln_ctx *ctx, board *b) {
    const kiln_op *op;
    if (kiln_op_find(ctx, "bitwise_not", &op) != KILN_OK) return false;
    for (int k = 0; k < WORKERS; k++) all[k] = (worker){.ctx = ctx, .op = op, .board = b, .id = k};
    return run_threads(all) > 0;
}

int bench_threads(const cli_args *args) {
    worker all[WORKERS];
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    kiln_ctx *ctx = b == MAP_FAILED ? NULL : cli_open_sync(args);
    double threads = 0, processes = 0;
    bool done = ctx && set_up(all, ctx, b), met = false;
    for (int k = 0; k < ROUNDS && done; k++) {
        double t = run_threads(all), p = run_processes(all);
        if (t > threads) threads = t;
        if (p > processes) processes = p;
    }
    if (done)
        met = bench_goal(args, "threads", "2 threads calling one class, against 2 processes",
                         threads / processes, BENCH_AT_LEAST, 0.95, "x");
    else
        cli_error("%s", kiln_last_error());
    if (done && !args->json)
        out_printf("    %.2f and %.2f million calls per second\n", threads / 1e6, processes / 1e6);
    kiln_close(ctx);
    if (b != MAP_FAILED) munmap(b, sizeof *b);
    return met ? CLI_OK : CLI_FAILED;
}
