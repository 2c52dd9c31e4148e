/* rows.c - many short rows beside a row that they share, or a column -> a few long rows and the kernel over those.
 *
 * x[1080, 1920, 3] - mean[3] would be a launch's row, and a partial vector, for every three elements.  Here the shared row
 * is repeated into a tile as long as many rows, and rows that follow each other in memory are taken together; inputs
 * whose rows lie apart are copied side by side first.  Of a column the interpreter gets each element as often as a row has
 * some; kernels take short rows beside a column together by themselves (src/target/cpu/emit_columns.c), if all that they read lies
 * side by side: what does not is brought there.  The kernel is the same, and so are its bits: elements do not depend on
 * each other.  Knows strides and pointers, not dtypes or what is computed. */
#include <string.h>

#include "run/driver.h"
#include "run/loops.h"
#include "tensor/blocks.h"

typedef struct short_rows {
    bool beside;       /* a column, and a kernel that knows of it: rows stay as they are */
    int64_t together;  /* rows */
    uint32_t repeated; /* bit b: operand b is the same for every row */
    uint32_t copied;   /* its rows lie apart, or it is a column */
} short_rows;

/* As many rows as end on a cache line's border, about `elements` of them. */
static int64_t rows_together(int64_t cols, int64_t smallest, int64_t elements) {
    int64_t unit = 1; /* rows that are whole lines; an element's size is a power of two */
    while (unit * cols * smallest % KILN_CPU_LINE) unit *= 2;
    if (unit * cols > elements) unit = 1;
    int64_t units = elements / (unit * cols);
    return units > 1 ? units * unit : unit;
}

/* Elements of operand b in a tile's row: one of a column for a kernel, else as many as a row has. */
static int64_t tile_cols(const kiln_axes *x, const short_rows *rows, int b) {
    return rows->beside && kiln_axes_stride(x, b, 0) == 0 ? 1 : x->n[0];
}

/* Rows beside a column are always taken together by the interpreter, whose program expects it (kiln_interp_new_along): the plan has
 * seen to it that they can be, and they are so short that their tiles have room. */
static bool find_rows(const kiln_axes *x, bool compiled, short_rows *out) {
    int64_t cols = x->n[0], smallest = 16, bytes = 0, widest = 0; /* bytes: of a row; widest: of columns */
    if (x->ngrid < 2 || x->ngrid != x->ndim || x->origin || cols < 2 || cols > KILN_CPU_SHORT_ROW)
        return false;
    if (x->n[1] < KILN_CPU_MANY_ROWS && !x->columns) return false;
    *out = (short_rows){.beside = compiled && x->columns};
    for (int b = 0; b < x->nbuffers; b++) {
        int64_t size = x->bytes[b], along = kiln_axes_stride(x, b, 0), next = kiln_axes_stride(x, b, 1);
        bool column = x->columns >> b & 1, single = along == 0 && next == 0 && b >= x->nwritten;
        if (single && !out->beside) continue; /* one element for all */
        if (along != size && !column && !single) return false;
        if (size < smallest) smallest = size;
        if (column && size > widest) widest = size;
        int64_t row = tile_cols(x, out, b) * size;
        if (next == row && (out->beside || !column)) continue;
        if (b < x->nwritten) return false; /* results that lie apart would have to be copied back */
        *(next ? &out->copied : &out->repeated) |= 1u << b;
        bytes += row;
    }
    int64_t most = out->beside ? KILN_CPU_ROWS_BESIDE
                   : widest    ? KILN_CPU_ROWS_COLUMN_BYTES / widest
                               : KILN_CPU_ROWS_TOGETHER;
    out->together = rows_together(cols, smallest, most);
    while (out->together > 1 && out->together * bytes > KILN_CPU_ROWS_ROOM_BYTES) out->together /= 2;
    return bytes > 0 && (x->columns || out->together > 1);
}

bool kiln_rows_need_tiles(const kiln_axes *x, bool compiled) {
    short_rows rows;
    return find_rows(x, compiled, &rows);
}

/* The row at `from`, n bytes, again and again until `total`: what is there doubles. */
static void repeat(char *to, const char *from, size_t n, size_t total) {
    memcpy(to, from, n);
    for (size_t done = n; done < total; done += done < total - done ? done : total - done)
        memcpy(to + done, to, done < total - done ? done : total - done);
}

static inline __attribute__((always_inline)) void copy_each(char *to, const char *from, int64_t stride,
                                                            size_t n, int64_t count) {
    for (int64_t r = 0; r < count; r++, to += n, from += stride) memcpy(to, from, n);
}

/* Rows of n bytes; those of a column are single elements, which are copied by instructions and not by calls. */
static void copy_rows(char *to, const char *from, int64_t stride, size_t n, int64_t count) {
    if (n == 4)
        copy_each(to, from, stride, 4, count);
    else if (n == 8)
        copy_each(to, from, stride, 8, count);
    else if (n == 2)
        copy_each(to, from, stride, 2, count);
    else if (n == 1)
        copy_each(to, from, stride, 1, count);
    else
        copy_each(to, from, stride, n, count);
}

/* A launch on its way: rows of `together` rows each. */
typedef struct long_rows {
    kiln_expansion expansion; /* of columns of that element size; 0: of none yet */
    int64_t size;
    const kiln_axes *axes;
    const kiln_runner *run;
    const kiln_loops *loops;
    short_rows rows;
    kiln_launch launch;
    int64_t n[2], stride[2 * KILN_KERNEL_BUFFERS];
    char *at[KILN_KERNEL_BUFFERS], *tile[KILN_KERNEL_BUFFERS];
    int64_t next[KILN_KERNEL_BUFFERS]; /* bytes from row to row; 0 of tiles */
} long_rows;

/* How elements of that size are repeated. */
static const kiln_expansion *expansion_of(long_rows *l, int64_t size) {
    if (l->size != size) l->loops->expand_prepare[size](&l->expansion, (size_t)l->axes->n[0]);
    l->size = size;
    return &l->expansion;
}

/* `count` elements of a column from row `first`, each as often as a row has elements.  Vectors read beyond what they need:
 * the last elements are read from a copy. */
static void expand_column(long_rows *l, int b, const char *from, int64_t first, int64_t count) {
    enum { BEYOND = 64 };
    const kiln_axes *x = l->axes;
    int64_t cols = x->n[0], size = x->bytes[b], next = kiln_axes_stride(x, b, 1);
    char side[KILN_CPU_ROWS_COLUMN_BYTES / 2 + BEYOND * 8]; /* rows have two elements or more */
    char *to = l->tile[b];
    from += first * next;
    if (size > KILN_TRANSPOSE_MAX) { /* complex numbers of f64 */
        for (int64_t r = 0; r < count; r++, from += next, to += cols * size)
            repeat(to, from, (size_t)size, (size_t)(cols * size));
        return;
    }
    if (next != size || first + count + BEYOND > x->n[1]) {
        copy_rows(side, from, next, (size_t)size, count);
        from = side;
    }
    l->loops->expand[size](to, from, (size_t)(count * cols), expansion_of(l, size));
}

/* Bytes of a row of b's tile. */
static size_t tile_row(const long_rows *l, int b) {
    return (size_t)(tile_cols(l->axes, &l->rows, b) * l->axes->bytes[b]);
}

/* Tiles of what lies apart, for `count` rows from `first`. */
static void fill_tiles(long_rows *l, char *const *base, int64_t first, int64_t count) {
    const kiln_axes *x = l->axes;
    for (uint32_t left = l->rows.copied; left; left &= left - 1) {
        int b = __builtin_ctz(left);
        int64_t next = kiln_axes_stride(x, b, 1);
        if (x->columns >> b & 1 && !l->rows.beside)
            expand_column(l, b, base[b], first, count);
        else
            copy_rows(l->tile[b], base[b] + first * next, next, tile_row(l, b), count);
    }
}

/* `count` rows from `first`, as blocks of `each`; at[] is then at the row after them. */
static kiln_status run_rows(long_rows *l, char *const *base, int64_t first, int64_t count, int64_t each,
                            int32_t *trap) {
    fill_tiles(l, base, first, count);
    l->n[0] = l->rows.beside ? l->axes->n[0] : each * l->axes->n[0];
    l->n[1] = l->rows.beside ? count : count / each;
    if (l->run->fn)
        *trap = l->run->fn(&l->launch);
    else
        KILN_TRY(kiln_interp_run(l->run->interp, &l->launch, trap));
    for (int b = 0; b < l->axes->nbuffers; b++) l->at[b] += count * l->next[b];
    return KILN_OK;
}

/* Where buffers begin at one place of the outer dimensions, and how they go on; tiles of what all rows share. */
static void begin_place(long_rows *l, char *const *base) {
    const kiln_axes *x = l->axes;
    for (int b = 0; b < x->nbuffers; b++) {
        bool tile = (l->rows.copied | l->rows.repeated) >> b & 1;
        l->next[b] = tile ? 0 : kiln_axes_stride(x, b, 1);
        l->at[b] = tile ? l->tile[b] : base[b];
        size_t row = tile_row(l, b);
        l->stride[2 * b] = tile && !l->rows.beside ? x->bytes[b] : kiln_axes_stride(x, b, 0);
        l->stride[2 * b + 1] = l->rows.beside ? (int64_t)row : l->rows.together * l->next[b];
        if (l->rows.repeated >> b & 1) repeat(l->tile[b], base[b], row, row * (size_t)l->rows.together);
    }
}

/* All rows at one place of the outer dimensions. */
static kiln_status run_place(long_rows *l, char *const *base, int32_t *trap) {
    int64_t all = l->axes->n[1], each = l->rows.together, whole = all - all % each;
    bool blocks = l->rows.copied || l->rows.beside; /* tiles have room for one */
    int64_t step = blocks ? each : whole;
    begin_place(l, base);
    for (int64_t r = 0; r < whole && *trap == 0; r += step) KILN_TRY(run_rows(l, base, r, step, each, trap));
    if (whole < all && *trap == 0) KILN_TRY(run_rows(l, base, whole, all - whole, all - whole, trap));
    return KILN_OK;
}

/* Apart, so that calls without short rows have no frame of that size. */
static __attribute__((noinline)) kiln_status run_all(const short_rows *rows, const kiln_pass *pass,
                                                     char *const *ptr, int32_t *trap) {
    static const int64_t origin[2];
    enum {
        BETWEEN = 2 * KILN_CPU_LINE * KILN_KERNEL_BUFFERS
    }; /* tiles: each begins on a line, and a vector may go beyond it */
    _Static_assert(KILN_CPU_SHORTER_ROW * 16 * KILN_KERNEL_BUFFERS <= KILN_CPU_ROWS_ROOM_BYTES,
                   "one row of each operand has room");
    _Alignas(KILN_CPU_LINE) char room[KILN_CPU_ROWS_ROOM_BYTES + BETWEEN];
    const kiln_axes *x = pass->axes;
    const kiln_runner *run = pass->run;
    char *base[KILN_KERNEL_BUFFERS], *next = room;
    int64_t index[KILN_MAX_DIMS] = {0};
    kiln_home home = 0;
    kiln_status st;
    long_rows l;
    l.rows = *rows;
    l.axes = x;
    l.run = run;
    l.loops = kiln_loops_for(run->isa);
    l.size = 0;
    l.launch = (kiln_launch){.nest = pass->nest, .ndim = 2, .n = l.n, .ptr = l.at, .stride = l.stride};
    l.launch.origin = origin;
    l.launch.par = pass->par;
    l.launch.flags = pass->flags;
    if (run->fn && run->work && !(l.launch.work = kiln_block_take_any(run->work, &home))) return KILN_NOMEM();
    for (int b = 0; b < x->nbuffers; b++) {
        base[b] = ptr[b];
        if (!((rows->repeated | rows->copied) >> b & 1)) continue;
        l.tile[b] = next;
        next += (rows->together * (int64_t)tile_row(&l, b) + 2 * KILN_CPU_LINE - 1) / KILN_CPU_LINE *
                KILN_CPU_LINE;
    }
    *trap = 0;
    do st = run_place(&l, base, trap);
    while (st == KILN_OK && *trap == 0 && kiln_drive_advance(x, 0, 1, index, base));
    if (l.launch.work) kiln_block_give(l.launch.work, home);
    return st;
}

bool kiln_rows_run(const kiln_pass *pass, char *const *ptr, int32_t *trap, kiln_status *st) {
    short_rows rows;
    if (!find_rows(pass->axes, pass->run->fn != NULL, &rows)) return false;
    *st = run_all(&rows, pass, ptr, trap);
    return true;
}
