/* bench_warm.c - `kiln bench warm`: what a new process pays for kernels that an earlier one built: from the cache folder, and from a pack.
 *
 * One child builds the kernels of 200 classes in a folder of its own and makes a pack of them.  Then children that have opened no context
 * make the first call of each class: interpreted, with kernels from the folder, and with kernels from the pack.  The median child counts.
 * Whoever compiles anything in a later child has found a fault. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { CHILDREN = 21, SIDE = 32, PATH_LEN = 300 };

static const char *const names[] = {
    "neg",        "abs",        "exp",        "sqrt",       "sigmoid", "tanh",     "floor",     "ceil",
    "round",      "trunc",      "sin",        "cos",        "tan",     "asin",     "acos",      "atan",
    "sinh",       "cosh",       "log",        "log2",       "log10",   "log1p",    "expm1",     "exp2",
    "rsqrt",      "reciprocal", "relu",       "silu",       "gelu",    "square",   "erf",       "erfc",
    "sign",       "frac",       "isnan",      "isinf",      "signbit", "hardtanh", "hardswish", "hardsigmoid",
    "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "atan2",   "maximum",  "minimum",   "eq.Tensor",
    "lt.Tensor",  "fmod.Tensor"};
enum { NAMES = sizeof names / sizeof *names };
static const kiln_dtype dtypes[] = {KILN_F32, KILN_F64, KILN_F16, KILN_BF16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, CLASSES = NAMES * DTYPES };

typedef enum source { INTERPRETED, FOLDER, PACK, SOURCES } source;

typedef struct sample {
    double ns[CLASSES];
    uint64_t compiles, hits;
} sample;

static char folder[PATH_LEN], pack[PATH_LEN + 20];

static kiln_ctx *open_for(source from) {
    static const kiln_mode modes[] = {KILN_MODE_INTERP, KILN_MODE_FROZEN, KILN_MODE_FROZEN};
    kiln_config config = {
        .size = sizeof config, .mode = modes[from], .cache = from == INTERPRETED ? "memory" : "disk"};
    config.cache_dir = from == FOLDER ? folder : "/proc/nowhere";
    config.packs = from == PACK ? pack : NULL;
    kiln_ctx *ctx;
    return kiln_open(&config, &ctx) == KILN_OK ? ctx : NULL;
}

static bool make_inputs(kiln_tensor **x) {
    const int64_t sizes[] = {SIDE, SIDE};
    for (int k = 0; k < DTYPES; k++) {
        if (kiln_tensor_new(dtypes[k], 2, sizes, NULL, &x[k]) != KILN_OK) return false;
        memset(kiln_tensor_data(x[k]), 0, (size_t)(SIDE * SIDE) * kiln_dtype_size(dtypes[k]));
    }
    return true;
}

static size_t arity(const kiln_op *op) { return strstr(kiln_op_schema(op), "Tensor other") ? 2 : 1; }

static bool time_calls(kiln_ctx *ctx, kiln_tensor *const *x, sample *s) {
    for (int k = 0; k < CLASSES; k++) {
        const kiln_op *op;
        kiln_tensor *out;
        if (kiln_op_find(ctx, names[k / DTYPES], &op) != KILN_OK)
            return false; /* rows are parsed when they are found */
        const kiln_value args[] = {kiln_v_tensor(x[k % DTYPES]), kiln_v_tensor(x[k % DTYPES])};
        double start = bench_now_ns();
        if (kiln_call(ctx, op, args, arity(op), &out, 1) != KILN_OK) return false;
        s->ns[k] = bench_now_ns() - start;
        kiln_tensor_release(out);
    }
    return true;
}

/* Every class finds its kernel, or the figures mean nothing. */
static bool take_sample(source from, sample *s) {
    kiln_tensor *x[DTYPES];
    kiln_stats stats;
    kiln_ctx *ctx = open_for(from);
    bool done = ctx && make_inputs(x) && time_calls(ctx, x, s);
    if (!done) return false;
    kiln_stats_get(ctx, &stats, sizeof stats);
    s->compiles = stats.compiles;
    s->hits = from == FOLDER ? stats.disk_hits : stats.pack_hits;
    return true;
}

static bool build_all(void) {
    kiln_config config = {
        .size = sizeof config, .mode = KILN_MODE_FROZEN, .cache = "disk", .cache_dir = folder};
    kiln_ctx *ctx;
    kiln_warm *w;
    kiln_warm_report built;
    kiln_pack_report packed;
    kiln_tensor *x[DTYPES];
    if (kiln_open(&config, &ctx) != KILN_OK || kiln_warm_begin(ctx, NULL, &w) != KILN_OK || !make_inputs(x))
        return false;
    for (int k = 0; k < CLASSES; k++) {
        const kiln_op *op;
        const kiln_value args[] = {kiln_v_tensor(x[k % DTYPES]), kiln_v_tensor(x[k % DTYPES])};
        if (kiln_op_find(ctx, names[k / DTYPES], &op) != KILN_OK) return false;
        if (kiln_warm_add(w, op, args, arity(op)) != KILN_OK) return false;
    }
    return kiln_warm_run(w, 0, NULL, NULL, &built) == KILN_OK && built.failed == 0 &&
           kiln_pack_export(ctx, pack, NULL, &packed) == KILN_OK;
}

/* -- children ------------------------------------------------------------------------------------------------ */

/* from: SOURCES builds all instead. */
static bool run_in_child(source from, sample *s) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    pid_t pid = fork();
    if (pid == 0) {
        bool done = from == SOURCES ? build_all() : take_sample(from, s);
        if (!done) cli_error("%s", kiln_last_error());
        for (size_t at = 0; done && at < sizeof *s;) {
            ssize_t n = write(ends[1], (char *)s + at, sizeof *s - at);
            done = n > 0;
            at += done ? (size_t)n : 0;
        }
        _exit(done ? 0 : 1);
    }
    close(ends[1]);
    size_t got = 0;
    for (ssize_t n = 1; pid > 0 && got < sizeof *s && n > 0; got += n > 0 ? (size_t)n : 0)
        n = read(ends[0], (char *)s + got, sizeof *s - got);
    close(ends[0]);
    if (pid > 0) (void)waitpid(pid, NULL, 0);
    return got == sizeof *s;
}

typedef struct figures {
    double total[CHILDREN], median[CHILDREN]; /* ns of all classes, and of the median class */
} figures;

static bool measure(source from, figures *f) {
    static sample s;
    for (int k = 0; k < CHILDREN; k++) {
        memset(&s, 0, sizeof s);
        if (!run_in_child(from, &s)) return false;
        f->total[k] = 0;
        for (int c = 0; c < CLASSES; c++) f->total[k] += s.ns[c];
        f->median[k] = bench_quantile(s.ns, CLASSES, 0.5);
        if (from != INTERPRETED &&
            (s.compiles || s.hits < CLASSES - 10)) { /* classes with equal IR share a kernel */
            cli_error("%llu classes found their kernel, %llu compiled", (unsigned long long)s.hits,
                      (unsigned long long)s.compiles);
            return false;
        }
    }
    return true;
}

static bool report(const cli_args *args) {
    static figures f[SOURCES];
    double total[SOURCES], median[SOURCES];
    for (int k = 0; k < SOURCES; k++) {
        if (!measure((source)k, &f[k])) return false;
        total[k] = bench_quantile(f[k].total, CHILDREN, 0.5);
        median[k] = bench_quantile(f[k].median, CHILDREN, 0.5);
    }
    bool met = bench_goal(args, "warm",
                          "200 first calls with kernels from the folder, beyond interpreted ones",
                          (total[FOLDER] - total[INTERPRETED]) / 1e6, BENCH_AT_MOST, 3, "ms");
    met &= bench_goal(args, "warm", "200 first calls with kernels from a pack, beyond interpreted ones",
                      (total[PACK] - total[INTERPRETED]) / 1e6, BENCH_AT_MOST, 1, "ms");
    met &= bench_goal(args, "warm", "a first call with a kernel from the folder, beyond an interpreted one",
                      (median[FOLDER] - median[INTERPRETED]) / 1e3, BENCH_AT_MOST, 15, "us");
    met &= bench_goal(args, "warm", "a first call with a kernel from a pack, beyond an interpreted one",
                      (median[PACK] - median[INTERPRETED]) / 1e3, BENCH_AT_MOST, 8, "us");
    bench_goal(args, "warm", "an interpreted first call", median[INTERPRETED] / 1e3, BENCH_AT_MOST, 20, "us");
    return met;
}

/* The folder goes with its kernels. */
static void clean_up(void) {
    char command[PATH_LEN + 30];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) cli_error("%s is left behind", folder);
}

int bench_warm(const cli_args *args) {
    static sample unused;
    const char *under = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/kiln-bench-XXXXXX", under && *under ? under : "/tmp");
    if (!mkdtemp(folder)) {
        cli_error("cannot make %s", folder);
        return CLI_FAILED;
    }
    snprintf(pack, sizeof pack, "%s/all.pack", folder);
    bool met = run_in_child(SOURCES, &unused) && report(args);
    clean_up();
    return met ? CLI_OK : CLI_FAILED;
}
