/* bench_threads.c - `kiln bench threads`: calls of one class by two threads, against the same by two processes.
 *
 * Processes share nothing, so what threads lack beside them is what Kiln makes them share.  The two take turns of
 * a few milliseconds, and the median of the turns' ratios counts: a neighbour that slows the machine for longer
 * slows both.  Where stack and tensors lie decides a tenth of the rate of either (measured; the caches' handling
 * of addresses that are alike in their low bits is the likely reason), so they lie elsewhere in each round. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { ROUNDS = 201, SIDE = 32, WORKERS = 2, BATCH = 200, WARM_UP = 3000 };
enum { STACK_STEPS = 128, STACK_STEP = 4096 + 448, SPARE_TENSORS = 16 };
#define RUN_NS 5e6

/* Shared by all workers of a round, processes included. */
typedef struct board {
    atomic_int started, warm;               /* workers */
    _Alignas(128) double rate[WORKERS][16]; /* calls per second, each in its own cache lines */
} board;

typedef struct worker {
    kiln_ctx *ctx;
    const kiln_op *op;
    board *board;
    int id, round;
    pthread_t thread;
} worker;

static bool call(const worker *w, kiln_tensor *x, int count) {
    kiln_value arg = kiln_v_tensor(x);
    for (int k = 0; k < count; k++) {
        kiln_tensor *out;
        if (kiln_call(w->ctx, w->op, &arg, 1, &out, 1) != KILN_OK) return false;
        kiln_tensor_release(out);
    }
    return true;
}

static double run_calls(const worker *w, kiln_tensor *x) {
    int64_t calls = 0;
    double start = bench_now_ns(), now = start;
    for (; now - start < RUN_NS; now = bench_now_ns(), calls += BATCH)
        if (!call(w, x, BATCH)) return 0;
    return (double)calls / (now - start) * 1e9;
}

/* Waits for the others before and after it warmed up, so that all are timed at once.  Without a tensor its rate is
 * 0, but the others wait for it all the same. */
static void warm_and_time(worker *w, kiln_tensor *x) {
    board *b = w->board;
    if (x) memset(kiln_tensor_data(x), 0, SIDE * SIDE * 4);
    atomic_fetch_add(&b->started, 1);
    while (atomic_load(&b->started) < WORKERS) usleep(50);
    bool warm = x && call(w, x, WARM_UP);
    atomic_fetch_add(&b->warm, 1);
    while (atomic_load(&b->warm) < WORKERS) continue;
    b->rate[w->id][0] = warm ? run_calls(w, x) : 0;
}

/* The last of the tensors made here is the argument; those before it only take room. */
static void *among_tensors(worker *w) {
    static const int64_t sizes[2] = {SIDE, SIDE};
    kiln_tensor *made[SPARE_TENSORS + 1];
    int n = 0, wanted = w->round % SPARE_TENSORS + 1;
    while (n < wanted && kiln_tensor_new(KILN_I32, 2, sizes, NULL, &made[n]) == KILN_OK) n++;
    warm_and_time(w, n == wanted ? made[n - 1] : NULL);
    while (n > 0) kiln_tensor_release(made[--n]);
    return NULL;
}

/* Leaves `steps` frames between the caller's and those of the calls. */
static void *deeper(worker *w, int steps) {
    volatile char room[STACK_STEP];
    room[0] = 0;
    void *end = steps > 0 ? deeper(w, steps - 1) : among_tensors(w);
    return room[0] == 0 ? end : NULL; /* read here, so that the frame stays until now */
}

static void *work(void *user) {
    worker *w = user;
    return deeper(w, w->round * 37 % STACK_STEPS);
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
    double ratio[ROUNDS], threads[ROUNDS], processes[ROUNDS];
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    kiln_ctx *ctx = b == MAP_FAILED ? NULL : cli_open_sync(args);
    bool done = ctx && set_up(all, ctx, b), met = false;
    for (int k = 0; k < ROUNDS && done; k++) {
        for (int j = 0; j < WORKERS; j++) all[j].round = k;
        threads[k] = run_threads(all);
        processes[k] = run_processes(all);
        ratio[k] = threads[k] / processes[k];
    }
    if (done)
        met = bench_goal(args, "threads", "2 threads calling one class, against 2 processes",
                         bench_quantile(ratio, ROUNDS, 0.5), BENCH_AT_LEAST, 0.95, "x");
    else
        cli_error("%s", kiln_last_error());
    if (done && !args->json)
        out_printf("    half of %d turns %.3f to %.3f; best %.2f and %.2f million calls per second\n", ROUNDS,
                   bench_quantile(ratio, ROUNDS, 0.25), bench_quantile(ratio, ROUNDS, 0.75),
                   bench_quantile(threads, ROUNDS, 1) / 1e6, bench_quantile(processes, ROUNDS, 1) / 1e6);
    kiln_close(ctx);
    if (b != MAP_FAILED) munmap(b, sizeof *b);
    return met ? CLI_OK : CLI_FAILED;
}
