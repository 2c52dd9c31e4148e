/* bench_dispatch.c - `kiln bench dispatch`: what a call costs besides its kernel, by the path it takes.
 *
 * Each path is a function of its own that makes one call and releases its result, over and over, so that
 * bench/instructions.sh can find the paths by name (path_*) in a profile of this very command.  Paths and the
 * bare kernel take turns and the best of each counts. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "kiln/kiln_abi.h"

enum { ROWS = 6, FOLD_DIMS = 4, ROUNDS = 15, SIDE = 32, CALLS = 2000, FIRST_OPS = 24 };

typedef struct setup {
    kiln_ctx *ctx;
    const kiln_op *flip, *add, *add_out, *sum;
    kiln_tensor *i32, *i64, *f32, *other, *row[ROWS], *last[2], *out;
    kiln_kernel *flip_kernel, *wide_kernel, *add_kernel, *sum_kernel;
    kiln_launch flip_launch, wide_launch, add_launch, row_launch, sum_launch;
    char *flip_ptr[2], *wide_ptr[2], *add_ptr[3], *row_ptr[3], *sum_ptr[2];
    kiln_entry_fn flip_entry, wide_entry, add_entry, sum_entry;
    kiln_tensor_header header[2];
    kiln_value flip_args[1], wide_args[1], add_args[3], out_args[3], row_args[ROWS][3], row_out_args[3],
        last_args[2], borrowed[3], sum_args[2], sum_dim;
    uint64_t alpha;
} setup;

static const int64_t square[2] = {SIDE, SIDE}, square_steps[2] = {SIDE, 1}, flat[2] = {SIDE * SIDE, 1};
static const int64_t origin[2] = {0, 0};
static const int64_t flip_stride[4] = {4, 0, 4, 0}, add_stride[6] = {4, 0, 4, 0, 4, 0};
static const int64_t fold[FOLD_DIMS] = {SIDE, 1, SIDE, 1}, fold_origin[FOLD_DIMS]; /* rows, elements, parts */
static const int64_t fold_stride[2 * FOLD_DIMS] = {4, 0, 0, 0, 4 * SIDE, 0, 4, 0};
static const int64_t wide_stride[4] = {8, 0, 8, 0}, row_stride[6] = {4, 4 * SIDE, 4, 4 * SIDE, 4, 0};

/* -- paths --------------------------------------------------------------------------------------------------- */

static inline int call(setup *s, const kiln_op *op, const kiln_value *args, size_t n) {
    kiln_tensor *out;
    if (kiln_call(s->ctx, op, args, n, &out, 1) != KILN_OK) return 1;
    kiln_tensor_release(out);
    return 0;
}

#define ALWAYS(name, expr)                        \
    static inline int name(setup *s, int64_t i) { \
        (void)i;                                  \
        return expr;                              \
    }
ALWAYS(slot_one, call(s, s->flip, s->flip_args, 1))
ALWAYS(slot_two, call(s, s->add, s->add_args, 3))
ALWAYS(slot_out, call(s, s->add_out, s->out_args, 3))
ALWAYS(slot_fold, call(s, s->sum, s->sum_args, 2))
ALWAYS(general_row, call(s, s->add, s->row_args[0], 3))
ALWAYS(general_out, call(s, s->add_out, s->row_out_args, 3))
ALWAYS(general_last, call(s, s->add, s->last_args, 2))
ALWAYS(bare_one, s->flip_entry(&s->flip_launch) != 0)
ALWAYS(bare_two, s->add_entry(&s->add_launch) != 0)
ALWAYS(bare_fold, s->sum_entry(&s->sum_launch) != 0)
ALWAYS(bare_row, s->add_entry(&s->row_launch) != 0)

/* Two classes of one operator in turn: each drives the other out of the slot. */
static inline int table(setup *s, int64_t i) {
    return call(s, s->flip, i & 1 ? s->wide_args : s->flip_args, 1);
}

/* Layouts of one class in turn, too many to be remembered; the kernel walks them alike. */
static inline int general_turns(setup *s, int64_t i) { return call(s, s->add, s->row_args[i % ROWS], 3); }

static inline int bare_turns(setup *s, int64_t i) {
    return (i & 1 ? s->wide_entry(&s->wide_launch) : s->flip_entry(&s->flip_launch)) != 0;
}

static inline int borrow(kiln_tensor_header *h, char *data, kiln_dtype dtype, kiln_value *arg) {
    return kiln_tensor_borrow(h, data, dtype, 2, square, square_steps, 0, &arg->u.tensor) != KILN_OK;
}

static inline int borrowed_one(setup *s, int64_t i) {
    (void)i;
    return borrow(&s->header[0], s->flip_ptr[1], KILN_I32, &s->borrowed[0]) ||
           call(s, s->flip, s->borrowed, 1);
}

static inline int borrowed_two(setup *s, int64_t i) {
    (void)i;
    return borrow(&s->header[0], s->add_ptr[1], KILN_F32, &s->borrowed[0]) ||
           borrow(&s->header[1], s->add_ptr[2], KILN_F32, &s->borrowed[1]) || call(s, s->add, s->borrowed, 3);
}

/* name, the bare kernel's path, what it is */
#define PATHS(P)                                                                   \
    P(slot_one, bare_one, "slot hit: bitwise_not i32 [32,32], fresh result")       \
    P(slot_two, bare_two, "slot hit: add.Tensor f32 [32,32], alpha, fresh result") \
    P(slot_out, bare_two, "slot hit: add.out f32 [32,32]")                         \
    P(borrowed_one, bare_one, "slot hit on a borrowed tensor: bitwise_not")        \
    P(borrowed_two, bare_two, "slot hit on borrowed tensors: add.Tensor, alpha")   \
    P(slot_fold, bare_fold, "slot hit: sum.dim_IntList f32 [32,32], [1]")          \
    P(table, bare_turns, "table hit: bitwise_not, i32 and i64 in turn")            \
    P(general_row, bare_row, "one layout again: add.Tensor f32 [32,32] + [32]")    \
    P(general_out, bare_row, "one layout again: add.out f32 [32,32] + [32]")       \
    P(general_last, bare_two, "one layout again: add.Tensor f32, channels_last")   \
    P(general_turns, bare_row, "general path: + [32], [1,32], ... in turn")        \
    P(bare_one, bare_one, "bare kernel: bitwise_not")                              \
    P(bare_two, bare_two, "bare kernel: add.Tensor")                               \
    P(bare_fold, bare_fold, "bare kernel: sum.dim_IntList")                        \
    P(bare_turns, bare_turns, "bare kernels: bitwise_not, i32 and i64 in turn")    \
    P(bare_row, bare_row, "bare kernel: add.Tensor [32,32] + [32]")

#define P(name, bare, text)                                                     \
    __attribute__((noinline)) static int path_##name(setup *s, int64_t calls) { \
        int failed = 0;                                                         \
        for (int64_t i = 0; i < calls; i++) failed |= name(s, i);               \
        return failed;                                                          \
    }
PATHS(P)
#undef P

#define P(name, bare, text) PATH_##name,
enum { PATHS(P) PATH_COUNT };
#undef P

static const struct path {
    const char *name, *text;
    int (*run)(setup *s, int64_t calls);
    int bare;
} paths[] = {
#define P(name, bare, text) {#name, text, path_##name, PATH_##bare},
    PATHS(P)
#undef P
};

/* -- setting up ------------------------------------------------------------------------------------------------ */

static bool make_tensor(kiln_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                        kiln_tensor **out) {
    if (kiln_tensor_new(dtype, rank, sizes, strides, out) != KILN_OK) return false;
    memset(kiln_tensor_data(*out), 0, (size_t)kiln_tensor_nelem(*out) * kiln_dtype_size(dtype));
    return true;
}

static void set_args(setup *s) {
    kiln_value alpha = kiln_v_named(kiln_op_arg_name(s->add, 2), kiln_v_float(2));
    s->flip_args[0] = s->borrowed[0] = s->borrowed[1] = kiln_v_tensor(s->i32);
    s->wide_args[0] = kiln_v_tensor(s->i64);
    s->add_args[0] = s->out_args[0] = kiln_v_tensor(s->f32);
    s->add_args[1] = s->out_args[1] = kiln_v_tensor(s->other);
    s->add_args[2] = s->borrowed[2] = alpha;
    for (int k = 0; k < ROWS; k++) {
        s->row_args[k][0] = kiln_v_tensor(s->f32);
        s->row_args[k][1] = kiln_v_tensor(s->row[k]);
        s->row_args[k][2] = alpha;
    }
    s->out_args[2] = kiln_v_named(kiln_op_arg_name(s->add_out, 3), kiln_v_tensor(s->out));
    s->row_out_args[0] = s->out_args[0];
    s->row_out_args[1] = s->row_args[0][1];
    s->row_out_args[2] = s->out_args[2];
    s->sum_dim = kiln_v_int(1);
    s->sum_args[0] = kiln_v_tensor(s->f32);
    s->sum_args[1] = kiln_v_list(&s->sum_dim, 1);
    for (int k = 0; k < 2; k++) s->last_args[k] = kiln_v_tensor(s->last[k]);
}

/* The launches of the bare kernels, as the driver would make them. */
static void set_launches(setup *s) {
    const kiln_launch any = {.ndim = 2, .n = flat, .origin = origin, .par = &s->alpha};
    s->flip_launch = s->wide_launch = s->add_launch = s->row_launch = any;
    s->row_launch.n = square;
    s->flip_launch.ptr = s->flip_ptr, s->flip_launch.stride = flip_stride;
    s->wide_launch.ptr = s->wide_ptr, s->wide_launch.stride = wide_stride;
    s->add_launch.ptr = s->add_ptr, s->add_launch.stride = add_stride;
    s->row_launch.ptr = s->row_ptr, s->row_launch.stride = row_stride;
    s->sum_launch = (kiln_launch){
        .ndim = FOLD_DIMS, .n = fold, .origin = fold_origin, .ptr = s->sum_ptr, .stride = fold_stride};
    s->sum_ptr[0] = kiln_tensor_data(s->out);
    s->sum_ptr[1] = kiln_tensor_data(s->f32);
    s->flip_ptr[0] = s->add_ptr[0] = s->row_ptr[0] = kiln_tensor_data(s->out);
    s->flip_ptr[1] = kiln_tensor_data(s->i32);
    s->wide_ptr[0] = s->wide_ptr[1] = kiln_tensor_data(s->i64);
    s->add_ptr[1] = s->row_ptr[1] = kiln_tensor_data(s->f32);
    s->add_ptr[2] = kiln_tensor_data(s->other);
    s->row_ptr[2] = kiln_tensor_data(s->row[0]);
}

static bool set_up(setup *s) {
    static const int64_t row[ROWS] = {1, 1, 1, 1, 1, SIDE};
    static const int64_t images[4] = {2, 8, 8, 8}, last[4] = {512, 1, 64, 8};
    const float two = 2;
    if (kiln_op_find(s->ctx, "bitwise_not", &s->flip) || kiln_op_find(s->ctx, "add.Tensor", &s->add) ||
        kiln_op_find(s->ctx, "add.out", &s->add_out) || kiln_op_find(s->ctx, "sum.dim_IntList", &s->sum))
        return false;
    bool made = make_tensor(KILN_I32, 2, square, NULL, &s->i32) &&
                make_tensor(KILN_I64, 2, square, NULL, &s->i64) &&
                make_tensor(KILN_F32, 2, square, NULL, &s->f32) &&
                make_tensor(KILN_F32, 2, square, NULL, &s->other) &&
                make_tensor(KILN_F32, 2, square, NULL, &s->out) &&
                make_tensor(KILN_F32, 4, images, last, &s->last[0]) &&
                make_tensor(KILN_F32, 4, images, last, &s->last[1]);
    for (int k = 0; k < ROWS && made; k++)
        made = make_tensor(KILN_F32, k + 1, row + ROWS - 1 - k, NULL, &s->row[k]);
    if (!made) return false;
    set_args(s);
    if (kiln_prepare(s->ctx, s->flip, s->flip_args, 1, &s->flip_kernel) ||
        kiln_prepare(s->ctx, s->flip, s->wide_args, 1, &s->wide_kernel) ||
        kiln_prepare(s->ctx, s->add, s->add_args, 3, &s->add_kernel) ||
        kiln_prepare(s->ctx, s->sum, s->sum_args, 2, &s->sum_kernel))
        return false;
    s->flip_entry = kiln_kernel_entry(s->flip_kernel);
    s->wide_entry = kiln_kernel_entry(s->wide_kernel);
    s->add_entry = kiln_kernel_entry(s->add_kernel);
    s->sum_entry = kiln_kernel_entry(s->sum_kernel);
    memcpy(&s->alpha, &two, sizeof two);
    set_launches(s);
    return true;
}

static void tear_down(setup *s) {
    kiln_tensor *all[] = {s->i32, s->i64, s->f32, s->other, s->out, s->last[0], s->last[1]};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) kiln_tensor_release(all[k]);
    for (int k = 0; k < ROWS; k++) kiln_tensor_release(s->row[k]);
    kiln_kernel_release(s->flip_kernel);
    kiln_kernel_release(s->wide_kernel);
    kiln_kernel_release(s->add_kernel);
    kiln_kernel_release(s->sum_kernel);
}

/* -- first calls ------------------------------------------------------------------------------------------------ */

/* One first call of each class; false if one failed.  ns: how long they took. */
static bool call_first(kiln_ctx *ctx, double *ns) {
    static const char *const ops[] = {"neg", "abs", "sin", "cos", "exp", "log", "sqrt", "tanh"};
    static const kiln_dtype dtypes[] = {KILN_F32, KILN_F64, KILN_F16};
    for (int k = 0; k < FIRST_OPS; k++) {
        const kiln_op *op;
        kiln_tensor *x, *out;
        if (kiln_op_find(ctx, ops[k % 8], &op) != KILN_OK) return false;
        if (!make_tensor(dtypes[k / 8], 2, square, NULL, &x)) return false;
        const kiln_value arg = kiln_v_tensor(x);
        double start = bench_now_ns();
        kiln_status st = kiln_call(ctx, op, &arg, 1, &out, 1);
        ns[k] = bench_now_ns() - start;
        kiln_tensor_release(x);
        if (st != KILN_OK) return false;
        kiln_tensor_release(out);
    }
    return true;
}

/* The median of first calls of classes that a context has not seen, where no compiler may be waited for.  Another context was
 * there before: the process has read the rows, and touched memory that it got from the system. */
static double first_call_ns(void) {
    double ns[FIRST_OPS];
    kiln_config config = {.size = sizeof config, .mode = KILN_MODE_TIERED};
    for (int turn = 0; turn < 2; turn++) {
        kiln_ctx *ctx;
        if (kiln_open(&config, &ctx) != KILN_OK) return -1;
        bool done = call_first(ctx, ns);
        kiln_close(ctx);
        if (!done) return -1;
    }
    return bench_quantile(ns, FIRST_OPS, 0.5);
}

/* -- figures ----------------------------------------------------------------------------------------------------- */

static void print(const cli_args *args, const char *name, const char *text, double ns, double bare) {
    if (args->json)
        out_json(json_pack("{s:s, s:s, s:s, s:f, s:f, s:I}", "bench", "dispatch", "path", name, "what", text,
                           "ns", ns, "of_bare_kernel", bare > 0 ? ns / bare : 0.0, "calls",
                           (json_int_t)CALLS * (ROUNDS + 1)));
    else if (bare > 0)
        out_printf("%-62s %9.1f ns  %6.2fx the kernel\n", text, ns, ns / bare);
    else
        out_printf("%-62s %9.1f ns\n", text, ns);
}

/* False if a call failed. */
static bool measure(setup *s, double *best) {
    for (int p = 0; p < PATH_COUNT; p++) {
        best[p] = 1e30;
        if (paths[p].run(s, CALLS)) return false;
    }
    for (int r = 0; r < ROUNDS; r++)
        for (int p = 0; p < PATH_COUNT; p++) {
            double start = bench_now_ns();
            if (paths[p].run(s, CALLS)) return false;
            double ns = (bench_now_ns() - start) / CALLS;
            if (ns < best[p]) best[p] = ns;
        }
    return true;
}

int bench_dispatch(const cli_args *args) {
    cli_args sync = *args;
    if (sync.mode == KILN_MODE_DEFAULT) sync.mode = KILN_MODE_SYNC; /* kernels from the first round on */
    setup s = {.ctx = cli_open(&sync)};
    double best[PATH_COUNT], first = -1;
    if (!s.ctx) return CLI_FAILED;
    bool done = set_up(&s) && measure(&s, best);
    if (done) first = first_call_ns();
    done = done && first >= 0;
    if (!done) cli_kiln_error(KILN_E_BUG);
    for (int p = 0; p < PATH_COUNT && done; p++)
        print(args, paths[p].name, paths[p].text, best[p], best[paths[p].bare]);
    if (done) print(args, "first", "first call of a class, tiered: median of 24 unary classes", first, 0);
    bool met = done &&
               bench_goal(args, "dispatch", "slot hit, bitwise_not i32 [32,32], against the bare kernel",
                          best[PATH_slot_one] / best[PATH_bare_one], BENCH_AT_MOST, 2, "x");
    tear_down(&s);
    kiln_close(s.ctx);
    return met ? CLI_OK : CLI_FAILED;
}
