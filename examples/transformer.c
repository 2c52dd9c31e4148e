/* transformer.c - a pre-norm transformer block whose norms, softmax, gated MLP and residual adds are Kiln's.
 *
 * Matrix products are plain loops, as Kiln has none.  The block runs twice over the same arrays: with Kiln's
 * operators, and with the same formulas as loops in double.  The program says whether the results agree, and fails
 * where they do not.
 *
 *     cc examples/transformer.c $(pkg-config --cflags --libs kiln) -lm && ./a.out
 *
 * Worth a look: a program's own arrays as tensors (kiln_tensor_borrow), halves of rows by strides, a write in
 * place, and a formula that PyTorch has no operator for as one row, and therefore one loop. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kiln/kiln.h>

enum { TOKENS = 24, WIDTH = 32, HEADS = 4, PER_HEAD = WIDTH / HEADS, HIDDEN = 88 };
#define EPS 1e-5

static const char rows[] = "map my::swiglu(Tensor gate, Tensor up) -> Tensor : promote(gate, up) takes float"
                           " = gate / (1 + exp(-gate)) * up";

enum { BLOCK = TOKENS * WIDTH, SCORES = HEADS * TOKENS * TOKENS }; /* numbers of elements */

/* Matrices, each row after row. */
typedef struct weights {
    float norm1[WIDTH], qkv[WIDTH * 3 * WIDTH], out[WIDTH * WIDTH];
    float norm2[WIDTH], gate_up[WIDTH * 2 * HIDDEN], down[HIDDEN * WIDTH];
} weights;

/* What differs between the two runs.  Each gives 0 if it failed. */
typedef struct parts {
    kiln_ctx *ctx;
    int (*norm)(kiln_ctx *ctx, float *x, float *weight, float *out); /* [TOKENS, WIDTH] */
    int (*softmax)(kiln_ctx *ctx, float *scores, float *out);        /* [HEADS, TOKENS, TOKENS] */
    int (*swiglu)(kiln_ctx *ctx, float *gate_up, float *out);        /* [TOKENS, 2 * HIDDEN] */
    int (*add)(kiln_ctx *ctx, float *x, float *y);                   /* x += y; [TOKENS, WIDTH] */
} parts;

/* -- by Kiln ------------------------------------------------------------------------------------------ */

static int check(kiln_status st) {
    if (st != KILN_OK) fprintf(stderr, "%s: %s\n", kiln_status_name(st), kiln_last_error());
    return st == KILN_OK;
}

/* Calls an operator and copies the n floats of its first result to `out`, unless that is NULL. */
static int call(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs, float *out, size_t n) {
    const kiln_op *op = NULL;
    kiln_tensor *results[KILN_MAX_RETS] = {NULL};
    if (!check(kiln_op_find(ctx, name, &op))) return 0;
    size_t nrets = kiln_op_nrets(op);
    int ok = check(kiln_call(ctx, op, args, nargs, results, nrets));
    if (ok && out) memcpy(out, kiln_tensor_data(results[0]), n * sizeof *out);
    for (size_t k = 0; k < nrets; k++) kiln_tensor_release(results[k]);
    return ok;
}

/* Memory of ours as an argument; header, sizes and strides live as long as it does. */
static kiln_value view(kiln_tensor_header *header, float *at, int rank, const int64_t *sizes,
                       const int64_t *strides) {
    kiln_tensor *t = NULL;
    int ok = check(kiln_tensor_borrow(header, at, KILN_F32, rank, sizes, strides, 0, &t));
    return ok ? kiln_v_tensor(t) : kiln_v_none();
}

static int k_norm(kiln_ctx *ctx, float *x, float *weight, float *out) {
    const int64_t sizes[] = {TOKENS, WIDTH};
    kiln_tensor_header hx, hw;
    kiln_value over = kiln_v_int(WIDTH);
    kiln_value args[] = {view(&hx, x, 2, sizes, NULL), kiln_v_list(&over, 1),
                         view(&hw, weight, 1, sizes + 1, NULL), kiln_v_float(EPS)};
    return call(ctx, "aten::_fused_rms_norm", args, 4, out, BLOCK);
}

static int k_softmax(kiln_ctx *ctx, float *scores, float *out) {
    const int64_t sizes[] = {HEADS, TOKENS, TOKENS};
    kiln_tensor_header header;
    kiln_value args[] = {view(&header, scores, 3, sizes, NULL), kiln_v_int(-1)};
    return call(ctx, "aten::softmax.int", args, 2, out, SCORES);
}

static int k_swiglu(kiln_ctx *ctx, float *gate_up, float *out) {
    const int64_t sizes[] = {TOKENS, HIDDEN}, strides[] = {2 * HIDDEN, 1}; /* the halves of each row */
    kiln_tensor_header hg, hu;
    kiln_value args[] = {view(&hg, gate_up, 2, sizes, strides),
                         view(&hu, gate_up + HIDDEN, 2, sizes, strides)};
    return call(ctx, "my::swiglu", args, 2, out, TOKENS * HIDDEN);
}

static int k_add(kiln_ctx *ctx, float *x, float *y) {
    const int64_t sizes[] = {TOKENS, WIDTH};
    kiln_tensor_header hx, hy;
    kiln_value args[] = {view(&hx, x, 2, sizes, NULL), view(&hy, y, 2, sizes, NULL)};
    return call(ctx, "aten::add_.Tensor", args, 2, NULL, 0);
}

/* -- by plain loops ----------------------------------------------------------------------------------- */

static int c_norm(kiln_ctx *ctx, float *x, float *weight, float *out) {
    (void)ctx;
    for (int t = 0; t < TOKENS; t++, x += WIDTH, out += WIDTH) {
        double squares = 0;
        for (int k = 0; k < WIDTH; k++) squares += (double)x[k] * x[k];
        for (int k = 0; k < WIDTH; k++) out[k] = (float)(x[k] / sqrt(squares / WIDTH + EPS) * weight[k]);
    }
    return 1;
}

static int c_softmax(kiln_ctx *ctx, float *scores, float *out) {
    (void)ctx;
    for (int row = 0; row < HEADS * TOKENS; row++, scores += TOKENS, out += TOKENS) {
        double sum = 0;
        for (int k = 0; k < TOKENS; k++) sum += exp(scores[k]); /* scores are small */
        for (int k = 0; k < TOKENS; k++) out[k] = (float)(exp(scores[k]) / sum);
    }
    return 1;
}

static int c_swiglu(kiln_ctx *ctx, float *gate_up, float *out) {
    (void)ctx;
    for (int t = 0; t < TOKENS; t++, gate_up += 2 * HIDDEN, out += HIDDEN)
        for (int k = 0; k < HIDDEN; k++)
            out[k] = (float)(gate_up[k] / (1 + exp(-gate_up[k])) * gate_up[HIDDEN + k]);
    return 1;
}

static int c_add(kiln_ctx *ctx, float *x, float *y) {
    (void)ctx;
    for (int k = 0; k < BLOCK; k++) x[k] += y[k];
    return 1;
}

/* -- the block ---------------------------------------------------------------------------------------- */

/* c[nrows, cols] = a[nrows, inner] b[inner, cols] */
static void product(const float *a, const float *b, float *c, int nrows, int inner, int cols) {
    for (int r = 0; r < nrows; r++)
        for (int k = 0; k < cols; k++) {
            float sum = 0;
            for (int i = 0; i < inner; i++) sum += a[r * inner + i] * b[i * cols + k];
            c[r * cols + k] = sum;
        }
}

/* A row of qkv holds the queries of all heads, then keys, then values.  No token looks at later ones. */
static void score(const float *qkv, float *scores) {
    for (int h = 0; h < HEADS; h++)
        for (int q = 0; q < TOKENS; q++)
            for (int t = 0; t < TOKENS; t++) {
                const float *query = qkv + q * 3 * WIDTH + h * PER_HEAD;
                const float *key = qkv + t * 3 * WIDTH + h * PER_HEAD + WIDTH;
                float sum = 0;
                for (int k = 0; k < PER_HEAD; k++) sum += query[k] * key[k];
                *scores++ = t > q ? -INFINITY : sum / sqrtf(PER_HEAD);
            }
}

static void mix_values(const float *p, const float *qkv, float *out) {
    for (int q = 0; q < TOKENS; q++)
        for (int k = 0; k < WIDTH; k++) {
            const float *shares = p + (k / PER_HEAD * TOKENS + q) * TOKENS;
            float sum = 0;
            for (int t = 0; t < TOKENS; t++) sum += shares[t] * qkv[t * 3 * WIDTH + 2 * WIDTH + k];
            out[q * WIDTH + k] = sum;
        }
}

static int block(const parts *by, weights *w, float *x) {
    static float h[BLOCK], y[BLOCK], qkv[3 * BLOCK], gate_up[TOKENS * 2 * HIDDEN], m[TOKENS * HIDDEN],
        scores[SCORES], p[SCORES];
    if (!by->norm(by->ctx, x, w->norm1, h)) return 0;
    product(h, w->qkv, qkv, TOKENS, WIDTH, 3 * WIDTH);
    score(qkv, scores);
    if (!by->softmax(by->ctx, scores, p)) return 0;
    mix_values(p, qkv, h);
    product(h, w->out, y, TOKENS, WIDTH, WIDTH);
    if (!by->add(by->ctx, x, y) || !by->norm(by->ctx, x, w->norm2, h)) return 0;
    product(h, w->gate_up, gate_up, TOKENS, WIDTH, 2 * HIDDEN);
    if (!by->swiglu(by->ctx, gate_up, m)) return 0;
    product(m, w->down, y, TOKENS, HIDDEN, WIDTH);
    return by->add(by->ctx, x, y);
}

/* Numbers between -scale and scale, the same in every run. */
static void fill(float *at, size_t n, float scale, uint32_t seed) {
    for (size_t k = 0; k < n; k++) {
        seed = seed * 1664525u + 1013904223u;
        at[k] = ((float)(seed >> 8) / (1 << 23) - 1) * scale;
    }
}

static void fill_weights(weights *w) {
#define FILL(member, seed) fill(w->member, sizeof w->member / sizeof(float), 0.3f, seed)
    FILL(norm1, 1), FILL(qkv, 2), FILL(out, 3), FILL(norm2, 4), FILL(gate_up, 5), FILL(down, 6);
#undef FILL
}

int main(void) {
    static weights w;
    static float mine[BLOCK], plain[BLOCK];
    fill_weights(&w);
    fill(mine, BLOCK, 2, 7);
    memcpy(plain, mine, sizeof plain);

    kiln_ctx *ctx = NULL;
    int ok = check(kiln_open(NULL, &ctx)) && check(kiln_ops_load(ctx, rows, strlen(rows)));
    ok = ok && block(&(parts){ctx, k_norm, k_softmax, k_swiglu, k_add}, &w, mine);
    kiln_close(ctx);
    if (!ok || !block(&(parts){NULL, c_norm, c_softmax, c_swiglu, c_add}, &w, plain)) return 1;

    double largest = 0, off = 0;
    for (int k = 0; k < BLOCK; k++) {
        largest = fmax(largest, fabs(plain[k]));
        off = fmax(off, isfinite(mine[k]) ? fabs((double)mine[k] - plain[k]) : INFINITY);
    }
    ok = off < 1e-5 * largest;
    printf("a block of %d tokens, %d wide: largest number %.4f, %s plain C\n", TOKENS, WIDTH, largest,
           ok ? "as in" : "NOT as in");
    return ok ? 0 : 1;
}
