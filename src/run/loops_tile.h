/* loops_tile.h - square tiles of memory transposed in registers, and elements repeated, for KILN_LOOPS_SIZE bytes each.
 *
 * Read by loops.c, where UNSIGNED is such an element.  A tile of TILE rows of TILE elements takes log2(TILE) rounds,
 * each of which interleaves row i with row i + TILE/2.  Elements are moved, never looked at, so one loop serves every
 * dtype of a size. */

/* LOW: lanes of the first halves of two vectors in turn; HIGH: of the second halves. */
#if KILN_W >= 16
#define TILE 16
#define TILE_ROUNDS 4
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif KILN_W == 8
#define TILE 8
#define TILE_ROUNDS 3
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif KILN_W == 4
#define TILE 4
#define TILE_ROUNDS 2
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#else
#define TILE 2
#define TILE_ROUNDS 1
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 2)
#define HIGH(a, b) __builtin_shufflevector(a, b, 1, 3)
#endif

#ifdef __clang__
#define UNROLL /* loops of known length are unrolled anyway */
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef UNSIGNED tile_mem __attribute__((vector_size(TILE * KILN_LOOPS_SIZE), aligned(1), may_alias));
typedef tile_mem tile_row __attribute__((aligned(TILE * KILN_LOOPS_SIZE)));

#if TILE == 8 && KILN_LOOPS_SIZE == 4
/* Eight rows of eight: 16 bytes of two rows make a vector, and four such are turned within its halves, which takes a third of
 * the shuffles, and none of them across halves. */
typedef UNSIGNED tile_half __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t tile_pairs __attribute__((vector_size(32)));
#define JOIN(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7)

static inline tile_half half_of(const char *src, int there) {
    return there ? *(const tile_half *)src : (tile_half){0};
}

static inline void transpose_tile(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, int in,
                                  int out) {
    UNROLL for (int h = 0; h < 2; h++) {
        tile_row v[4], w[4];
        UNROLL for (int i = 0; i < 4; i++)
            v[i] = JOIN(half_of(src + i * src_stride + 16 * h, i < in),
                        half_of(src + (i + 4) * src_stride + 16 * h, i + 4 < in));
        UNROLL for (int i = 0; i < 4; i += 2) {
            w[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
            w[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            v[2 * i] = (tile_row)__builtin_shufflevector((tile_pairs)w[i], (tile_pairs)w[i + 2], 0, 4, 2, 6);
            v[2 * i + 1] = (tile_row)__builtin_shufflevector((tile_pairs)w[i], (tile_pairs)w[i + 2], 1, 5, 3,
                                                             7);
        }
        UNROLL for (int i = 0; i < 4; i++) if (4 * h + i < out) *
            (tile_mem *)(dst + (4 * h + i) * dst_stride) = v[i];
    }
}
#else
static inline void tile_round(tile_row *to, const tile_row *from) {
    UNROLL for (int i = 0; i < TILE / 2; i++) {
        to[2 * i] = LOW(from[i], from[i + TILE / 2]);
        to[2 * i + 1] = HIGH(from[i], from[i + TILE / 2]);
    }
}

/* A square, of which the first `in` rows are there and the first `out` columns are wanted. */
static inline void transpose_tile(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, int in,
                                  int out) {
    tile_row a[TILE], b[TILE];
    UNROLL for (int i = 0; i < TILE; i++) a[i] = i < in ? *(const tile_mem *)(src + i * src_stride)
                                                        : (tile_row){0};
    tile_round(b, a);
    if (TILE_ROUNDS > 1) tile_round(a, b);
    if (TILE_ROUNDS > 2) tile_round(b, a);
    if (TILE_ROUNDS > 3) tile_round(a, b);
    const tile_row *done = TILE_ROUNDS % 2 ? b : a;
    UNROLL for (int i = 0; i < TILE; i++) if (i < out) * (tile_mem *)(dst + i * dst_stride) = done[i];
}
#endif

/* Where a square of n elements that should begin with element k does: so that it is whole.  What two squares have is the same. */
static inline size_t whole_square(size_t k, size_t n) { return k + TILE <= n ? k : n - TILE; }

static void transpose_squares(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, size_t rows,
                              size_t cols) {
    for (size_t r = 0; r < rows; r += TILE)
        for (size_t c = 0; c < cols; c += TILE) {
            size_t row = whole_square(r, rows), col = whole_square(c, cols);
            transpose_tile(dst + (int64_t)col * dst_stride + row * KILN_LOOPS_SIZE, dst_stride,
                           src + (int64_t)row * src_stride + col * KILN_LOOPS_SIZE, src_stride, TILE, TILE);
        }
}

/* How many of n rows of `length` elements, which follow each other, may be taken for rows of TILE: what a square reads or
 * writes beyond one is the next ones'. */
static inline size_t rows_as_long(size_t n, size_t length) {
    size_t last = (TILE + length - 1) / length;
    return n < last ? 0 : (n - last + 1) / TILE * TILE;
}

static void transpose(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, size_t rows,
                      size_t cols) {
    enum { SIZE = KILN_LOOPS_SIZE };
    size_t r = 0, c = 0; /* so many rows, or columns, are done */
    if (rows >= TILE && cols >= TILE) {
        transpose_squares(dst, dst_stride, src, src_stride, rows, cols);
        return;
    }
    if (cols < TILE && src_stride == (int64_t)(cols * SIZE))
        for (size_t end = rows_as_long(rows, cols); r < end; r += TILE)
            transpose_tile(dst + r * SIZE, dst_stride, src + (int64_t)r * src_stride, src_stride, TILE,
                           (int)cols);
    else if (rows < TILE && dst_stride == (int64_t)(rows * SIZE))
        for (size_t end = rows_as_long(cols, rows); c < end; c += TILE)
            transpose_tile(dst + (int64_t)c * dst_stride, dst_stride, src + c * SIZE, src_stride, (int)rows,
                           TILE);
    for (; c < cols; c++)
        for (size_t k = r; k < rows; k++)
            *(UNSIGNED *)(dst + (int64_t)c * dst_stride +
                          k * SIZE) = *(const UNSIGNED *)(src + (int64_t)k * src_stride + c * SIZE);
}

/* Small elements by vectors whose lanes every level can pick one by one. */
#define EXPAND_BYTES (KILN_LOOPS_SIZE >= 4 ? KILN_VB : 16)
enum { EXPAND_LANES = EXPAND_BYTES / KILN_LOOPS_SIZE, EXPAND_FEW = 7 };
typedef UNSIGNED expand_mem __attribute__((vector_size(EXPAND_BYTES), aligned(1), may_alias));
typedef expand_mem expand_row __attribute__((aligned(EXPAND_BYTES)));

#ifdef __clang__ /* which shuffles by constants only */
static inline expand_row expand_pick(expand_row v, expand_row lanes) {
    expand_row out;
    for (int l = 0; l < EXPAND_LANES; l++) out[l] = v[lanes[l] % EXPAND_LANES];
    return out;
}
#else
#define expand_pick(v, lanes) __builtin_shuffle(v, lanes)
#endif

/* A period ends where a vector and a row end together: it has LANES / gcd(LANES, cols) elements of src, which one vector holds. */
static void expand_prepare(kiln_expansion *e, size_t cols) {
    unsigned row = 0, col = 0;
    e->cols = (unsigned)cols;
    e->period = 0;
    if (cols >= EXPAND_LANES) return; /* each element has vectors of its own */
    do {
        UNSIGNED *lanes = (UNSIGNED *)e->lanes[e->period++];
        for (int l = 0; l < EXPAND_LANES; l++) {
            lanes[l] = (UNSIGNED)row;
            if (++col == cols) row++, col = 0;
        }
    } while (col);
    e->rows = row;
}

/* What is written beyond an element's place is written again by the next. */
static void expand_long(char *dst, const char *src, size_t n, size_t cols) {
    for (size_t done = 0; done < n; done += cols, src += KILN_LOOPS_SIZE, dst += cols * KILN_LOOPS_SIZE) {
        expand_row v = (expand_row){0} + *(const UNSIGNED *)src;
        for (size_t c = 0; c < cols; c += EXPAND_LANES) *(expand_mem *)(dst + c * KILN_LOOPS_SIZE) = v;
    }
}

/* `period` vectors of each vector of src, by lanes that stay in registers: a compiler knows so small a number. */
static inline __attribute__((always_inline)) void expand_few(char *dst, const char *src, size_t vectors,
                                                             int period, const kiln_expansion *e) {
    expand_row lanes[EXPAND_FEW];
    const size_t used = (size_t)e->rows * KILN_LOOPS_SIZE;
    for (int p = 0; p < period; p++) lanes[p] = *(const expand_row *)e->lanes[p];
    for (; vectors >= (size_t)period; vectors -= (size_t)period, src += used) {
        const expand_row v = *(const expand_mem *)src;
        for (int p = 0; p < period; p++, dst += EXPAND_BYTES) *(expand_mem *)dst = expand_pick(v, lanes[p]);
    }
    for (size_t p = 0; p < vectors; p++, dst += EXPAND_BYTES)
        *(expand_mem *)dst = expand_pick(*(const expand_mem *)src, *(const expand_row *)e->lanes[p]);
}

static void expand_many(char *dst, const char *src, size_t vectors, const kiln_expansion *e) {
    for (size_t p = 0; vectors > 0; vectors--, dst += EXPAND_BYTES) {
        *(expand_mem *)dst = expand_pick(*(const expand_mem *)src, *(const expand_row *)e->lanes[p]);
        if (++p < e->period) continue;
        src += (size_t)e->rows * KILN_LOOPS_SIZE;
        p = 0;
    }
}

static void expand(char *dst, const char *src, size_t n, const kiln_expansion *e) {
    size_t vectors = (n + EXPAND_LANES - 1) / EXPAND_LANES;
    switch (e->period) {
    case 0: expand_long(dst, src, n, e->cols); break;
    case 1: expand_few(dst, src, vectors, 1, e); break;
    case 3: expand_few(dst, src, vectors, 3, e); break;
    case 5: expand_few(dst, src, vectors, 5, e); break;
    case EXPAND_FEW: expand_few(dst, src, vectors, EXPAND_FEW, e); break;
    default: expand_many(dst, src, vectors, e);
    }
}
