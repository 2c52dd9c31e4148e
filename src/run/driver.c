/* driver.c - (axes, kernel) -> the kernel run over every point.
 *
 * A kernel's grid axis takes two dimensions, the inner one and a second; the rest are walked here like an odometer.
 * An input that lies transposed (side by side along the second dimension, far apart along the inner one) is
 * brought into order tile by tile, since reading it element by element touches a cache line for each.  Knows
 * strides and pointers, not dtypes or what is computed. */
#include <string.h>

#include "run/driver.h"
#include "run/loops.h"
#include "tensor/blocks.h"

enum {
    INNER = 2, /* dimensions of the grid in one launch; all others of the axes follow */
    LAUNCH_DIMS = KILN_IR_MAX_AXES + 1
};

typedef struct drive {
    const kiln_axes *axes;
    const kiln_runner *run;
    kiln_launch launch;
    int first, second; /* dimensions of the grid that are the launch's: the inner one, the other */
    int64_t n[LAUNCH_DIMS],
        index[KILN_MAX_DIMS]; /* index: of the walk, for the dimensions outside the launch */
    int64_t stride[KILN_DRIVE_BUFFERS * LAUNCH_DIMS];
    char *at[KILN_DRIVE_BUFFERS];
} drive;

static kiln_status run_box(const drive *d, int32_t *trap) {
    if (!d->run->fn) return kiln_interp_run(d->run->interp, &d->launch, trap);
    *trap = d->run->fn(&d->launch);
    return KILN_OK;
}

bool kiln_drive_advance(const kiln_axes *x, int first, int second, int64_t *index, char **at) {
    for (int k = 0; k < x->ngrid; k++) {
        if (k == first || k == second) continue;
        for (int b = 0; b < x->nbuffers; b++) at[b] += kiln_axes_stride(x, b, k);
        if (++index[k] < x->n[k]) return true;
        for (int b = 0; b < x->nbuffers; b++) at[b] -= kiln_axes_stride(x, b, k) * x->n[k];
        index[k] = 0;
    }
    return false;
}

/* -- triangles ---------------------------------------------------------------------------------------------- */

/* The grid's first dimension is the columns of a square, the second one its rows but the last, which has no place right of the
 * diagonal.  Inputs lie as in the square; results have elements for those places alone, row after row. */
int64_t kiln_drive_triangle_from(const kiln_axes *x, int b, int64_t row) {
    int64_t column = kiln_axes_stride(x, b, 0), before = row * (2 * x->n[0] - row - 1) / 2;
    return b < x->nwritten ? before * column : row * (column + kiln_axes_stride(x, b, 1));
}

/* Sets the launch to the first row of the triangle. */
static void enter_triangle(drive *d) {
    const kiln_axes *x = d->axes;
    d->n[0]--;
    d->n[1] = 1;
    d->index[1] = 0;
    for (int b = x->nwritten; b < x->nbuffers; b++) d->at[b] += kiln_axes_stride(x, b, 0);
}

static bool advance_triangle(drive *d) {
    const kiln_axes *x = d->axes;
    for (int b = 0; b < x->nbuffers; b++) {
        int64_t column = kiln_axes_stride(x, b, 0);
        d->at[b] += b < x->nwritten ? d->n[0] * column : column + kiln_axes_stride(x, b, 1);
    }
    d->n[0]--;
    return ++d->index[1] < x->n[1];
}

static bool advance_drive(drive *d) {
    if (d->axes->triangle) return advance_triangle(d);
    return d->axes->ngrid > INNER && kiln_drive_advance(d->axes, d->first, d->second, d->index, d->at);
}

/* -- tiles ------------------------------------------------------------------------------------------------ */

/* A launch cut in small ones. */
typedef struct tiles {
    uint32_t packed;         /* bit b: operand b goes through a copy of the tile */
    int64_t cols;            /* elements of a tile along the inner dimension, ... */
    int64_t rows;            /* ... along the second one */
    int64_t band;            /* columns whose rows are followed down together */
    const kiln_loops *loops; /* that copy */
} tiles;

static bool lies_along(const kiln_axes *x, int operand, int dim) {
    int64_t size = x->bytes[operand];
    return size <= KILN_TRANSPOSE_MAX && kiln_axes_stride(x, operand, dim) == size &&
           x->n[dim] >= KILN_CPU_TILE_LEAST;
}

/* Of axes that are strided: picks the dimension along which some transposed input lies, as the second one, and all
 * inputs that lie so.  Results need no tiles: the inner dimension is the one they lie along.  A band is narrow enough
 * for the pages of its input rows to stay at hand while it is followed down. */
static bool find_tiles(const kiln_axes *x, const kiln_runner *run, int *second, tiles *t) {
    if (x->n[0] < KILN_CPU_TILE_LEAST || x->ngrid < x->ndim) return false;
    *t = (tiles){.cols = KILN_CPU_TILE_COLS, .rows = KILN_CPU_TILE_ROWS, .band = KILN_CPU_TILE_BAND};
    for (int b = x->nwritten; b < x->nbuffers; b++) {
        if (lies_along(x, b, 0)) continue;
        for (int d = 1; d < x->ndim && !t->packed; d++)
            if (lies_along(x, b, d)) *second = d, t->packed = 1u << b;
        if (t->packed && lies_along(x, b, *second)) t->packed |= 1u << b;
    }
    if (!t->packed) return false;
    int count = __builtin_popcount(t->packed);
    while (count * t->cols * KILN_CPU_TILE_ROWS * KILN_TRANSPOSE_MAX > KILN_CPU_TILE_BYTES) t->cols /= 2;
    t->loops = kiln_loops_for(run->isa);
    return true;
}

/* Points the launch at the tile whose first element is (i, j); packed inputs at a transposed copy in `room`. */
static void enter_tile(drive *d, const tiles *t, int64_t i, int64_t j, char *const *base, char *room) {
    const kiln_axes *x = d->axes;
    int64_t cols = x->n[0] - i < t->cols ? x->n[0] - i : t->cols;
    int64_t rows = x->n[d->second] - j < t->rows ? x->n[d->second] - j : t->rows;
    d->n[0] = cols, d->n[1] = rows;
    for (int b = 0; b < x->nbuffers; b++) {
        d->at[b] = base[b] + i * kiln_axes_stride(x, b, 0) + j * kiln_axes_stride(x, b, d->second);
        if (!(t->packed >> b & 1)) continue;
        size_t size = x->bytes[b];
        int64_t row = (int64_t)size * t->cols;
        t->loops->transpose[size](room, row, d->at[b], kiln_axes_stride(x, b, 0), (size_t)cols, (size_t)rows);
        d->at[b] = room;
        d->stride[b * INNER] = (int64_t)size;
        d->stride[b * INNER + 1] = row;
        room += row * KILN_CPU_TILE_ROWS;
    }
}

static kiln_status run_band(drive *d, const tiles *t, int64_t from, char *const *base, char *room,
                            int32_t *trap) {
    int64_t cols = d->axes->n[0], rows = d->axes->n[d->second];
    int64_t to = cols - from < t->band ? cols : from + t->band;
    uint64_t flags = d->launch.flags;
    for (int64_t j = 0; j < rows; j += t->rows)
        for (int64_t i = from; i < to && *trap == 0; i += t->cols) {
            bool last = i + t->cols >= cols && j + t->rows >= rows;
            d->launch.flags = flags && !last ? flags | KILN_LAUNCH_MORE : flags;
            enter_tile(d, t, i, j, base, room);
            KILN_TRY(run_box(d, trap));
        }
    d->launch.flags = flags;
    return KILN_OK;
}

static kiln_status run_tiles(drive *d, const tiles *t, int32_t *trap) {
    _Alignas(64) char room[KILN_CPU_TILE_BYTES];
    char *base[KILN_KERNEL_BUFFERS];
    const kiln_axes *x = d->axes;
    do {
        memcpy(base, d->at, (size_t)x->nbuffers * sizeof *base);
        kiln_status st = KILN_OK;
        for (int64_t i = 0; i < x->n[0] && *trap == 0 && st == KILN_OK; i += t->band)
            st = run_band(d, t, i, base, room, trap);
        memcpy(d->at, base, (size_t)x->nbuffers * sizeof *base); /* some led into this frame */
        KILN_TRY(st);
    } while (*trap == 0 && advance_drive(d));
    return KILN_OK;
}

/* -- large results ---------------------------------------------------------------------------------------- */

/* The dimension along which results lie in rows: the grid's innermost, or one that is scanned or folded; -1: none. */
static int rows_of_results(const kiln_axes *x) {
    if (x->ngrid == x->ndim) return x->strided ? -1 : 0;
    bool each = false; /* there is a result for each element */
    for (int d = x->ngrid; d < x->ndim; d++) {
        if (kiln_axes_stride(x, 0, d) == x->bytes[0]) return d;
        each = each || kiln_axes_stride(x, 0, d) != 0;
    }
    return each && kiln_axes_stride(x, 0, 0) == x->bytes[0] ? 0 : -1;
}

/* Whether results lie in long rows, and are not written over what was just read. */
static bool may_stream(const kiln_axes *x, char *const *ptr) {
    bool together = x->columns || kiln_rows_need_tiles(x, true);
    int row = rows_of_results(x);
    if (row < 0) return false;
    for (int b = 0; b < x->nwritten; b++) {
        if (row == 0 && x->n[0] * x->bytes[b] < KILN_CPU_STREAM_ROW && !together) return false;
        for (int k = x->nwritten; k < x->nbuffers; k++)
            if (ptr[k] == ptr[b]) return false;
    }
    return true;
}

/* The bytes that all buffers hold. */
static int64_t bytes_of(const kiln_axes *x) {
    int64_t total = 0;
    for (int b = 0; b < x->nbuffers; b++) {
        int64_t points = 1;
        for (int d = 0; d < x->ndim; d++)
            if (kiln_axes_stride(x, b, d)) points *= x->n[d];
        total += points * x->bytes[b];
    }
    return total;
}

/* Of fewer elements than KILN_MEMORY_LEAST, wherever they are. */
static uint64_t flags_of_few(const kiln_axes *x) {
    return x->nelem >= KILN_CPU_FAR_LEAST && x->ndim > x->ngrid ? KILN_LAUNCH_FAR : 0;
}

uint64_t kiln_drive_flags(const kiln_axes *x, int threads, char *const *ptr) {
    uint64_t flags = flags_of_few(x);
    if (x->nelem < KILN_MEMORY_LEAST) return flags;
    int64_t total = bytes_of(x), past = threads > 1 ? KILN_CPU_STREAM_SHARED_BYTES : KILN_CPU_STREAM_BYTES;
    if (total >= KILN_CPU_MEMORY_BYTES) flags |= KILN_LAUNCH_MEMORY;
    if (total >= past && may_stream(x, ptr)) flags |= KILN_LAUNCH_STREAM;
    return flags;
}

/* Whether a large call reads a long row again for each row of results.  It would come from the second cache every
 * time, and get in the way of what comes from memory.  By short pieces of a few rows in turn, the piece of the row read
 * again stays near, and the rows that come from memory are few enough for the processor to follow each. */
static bool reads_again(const kiln_axes *x, uint64_t flags, tiles *t) {
    bool again = false;
    if (!(flags & KILN_LAUNCH_STREAM) || x->ngrid < 2 || x->ngrid < x->ndim || x->n[1] < KILN_CPU_SIDE_ROWS)
        return false;
    for (int b = x->nwritten; b < x->nbuffers; b++)
        again |= kiln_axes_stride(x, b, 0) && !kiln_axes_stride(x, b, 1) &&
                 x->n[0] * kiln_axes_stride(x, b, 0) > KILN_CPU_LONG_ROW;
    if (again) *t = (tiles){.cols = KILN_CPU_SIDE_COLS, .rows = KILN_CPU_SIDE_ROWS, .band = x->n[0]};
    return again;
}

/* The launch's dimensions: the two that move fastest, as given, unless these are so short that the call would be all launches;
 * then the longest of the others is the second, and of a small call in the strided class, whose kernel
 * does not mind, the longest of all the inner one. */
KILN_HOT static void pick_dims(const kiln_axes *x, int *first, int *second) {
    if (x->ngrid < INNER || x->n[0] * x->n[1] >= KILN_CPU_LAUNCH_FEW) return;
    for (int k = 1; k < x->ngrid && x->strided && x->npoints <= KILN_CPU_LAUNCH_NEAR; k++)
        if (x->n[k] > x->n[*first]) *first = k;
    if (*first == 1) *second = 0;
    for (int k = 0; k < x->ngrid; k++)
        if (k != *first && x->n[k] > x->n[*second]) *second = k;
}

/* Extents and strides of a launch over dimensions first and second of the grid and all others; how many that are. */
KILN_HOT static int set_box(const kiln_axes *x, int first, int second, int64_t *n, int64_t *stride) {
    bool flat = x->ngrid <= second;
    int rest = x->ndim - x->ngrid;
    const int64_t *of = x->stride, *end = of + x->nbuffers * x->pitch;
    n[0] = x->n[first];
    n[1] = flat ? 1 : x->n[second];
    for (int d = 0; d < rest; d++) n[INNER + d] = x->n[x->ngrid + d];
    for (; rest == 0 && of != end; of += x->pitch, stride += INNER) {
        stride[0] = of[first];
        stride[1] = flat ? 0 : of[second];
    }
    for (; of != end; of += x->pitch) {
        *stride++ = of[first];
        *stride++ = flat ? 0 : of[second];
        for (int d = x->ngrid; d < x->ndim; d++) *stride++ = of[d];
    }
    return INNER + rest;
}

/* The origin of a launch, in room. */
static const int64_t *set_origin(const kiln_axes *x, int64_t *room) {
    room[0] = room[1] = 0;
    for (int d = 0; d < x->ndim - x->ngrid; d++) room[INNER + d] = x->origin[d];
    return room;
}

KILN_HOT kiln_status kiln_drive_alone(const kiln_pass *pass, char *const *ptr, int32_t *trap) {
    static const int64_t zeros[LAUNCH_DIMS];
    const kiln_axes *x = pass->axes;
    const kiln_runner *run = pass->run;
    int64_t origin[LAUNCH_DIMS];
    kiln_status st;
    tiles t;
    drive d;
    if (x->turned || (run->across && kiln_turned_by_interp(x))) return kiln_turned_run(pass, ptr, trap);
    if (kiln_rows_may_be_short(x) && kiln_rows_run(pass, ptr, trap, &st)) return st;
    d.axes = x;
    d.run = run;
    d.first = 0, d.second = 1;
    bool tiled = x->strided && find_tiles(x, run, &d.second, &t);
    if (!tiled && !x->triangle) pick_dims(x, &d.first, &d.second);
    int ndim = set_box(x, d.first, d.second, d.n, d.stride);
    for (int b = 0; b < x->nbuffers; b++) d.at[b] = ptr[b];
    d.launch = (kiln_launch){.nest = pass->nest,
                             .ndim = ndim,
                             .n = d.n,
                             .ptr = d.at,
                             .stride = d.stride,
                             .origin = x->origin ? set_origin(x, origin) : zeros,
                             .par = pass->par,
                             .flags = pass->flags};
    for (int k = 0; x->ngrid > INNER && k < x->ngrid; k++) d.index[k] = 0;
    if (x->triangle) enter_triangle(&d);
    *trap = 0;
    if (tiled || (run->fn && reads_again(x, pass->flags, &t))) return run_tiles(&d, &t, trap);
    kiln_home home = 0;
    if (run->fn && run->work && !(d.launch.work = kiln_block_take_any(run->work, &home))) return KILN_NOMEM();
    do st = run_box(&d, trap);
    while (st == KILN_OK && *trap == 0 && advance_drive(&d));
    if (d.launch.work) kiln_block_give(d.launch.work, home);
    return st;
}

/* -- small calls, again and again -------------------------------------------------------------------------- */

/* All axes, for kiln_drive_alone. */
static bool keep_whole(const kiln_axes *x, const kiln_runner *run, kiln_walk *out) {
    if (x->ndim > KILN_WALK_DIMS || x->origin) return false;
    out->outer = *x;
    out->outer.n = out->n;
    out->outer.stride = out->stride;
    out->outer.pitch = KILN_WALK_DIMS;
    out->outer.bytes = out->bytes;
    out->whole = true;
    out->interp = run->interp;
    out->across = run->across;
    out->isa = run->isa;
    out->work = run->work;
    out->guards = run->guards;
    out->ndim = 0;
    for (int d = 0; d < x->ndim; d++) out->n[d] = x->n[d];
    for (int b = 0; b < x->nbuffers; b++) {
        out->bytes[b] = x->bytes[b];
        for (int d = 0; d < x->ndim; d++) out->stride[b * KILN_WALK_DIMS + d] = kiln_axes_stride(x, b, d);
    }
    return true;
}

/* Whether the call may be worth several threads.  A kept walk answers calls on one thread, but without inferring
 * them.  This gains more than sharing a little work, so the least work is twice KILN_POOL_LEAST_NS here. */
static bool wants_threads(const kiln_axes *x, const kiln_runner *run) {
    if (!run->parallel || run->parallel->threads < 2) return false;
    int64_t worth = kiln_pool_worth_ns(run->parallel), least = 2 * (int64_t)KILN_POOL_LEAST_NS;
    return kiln_may_be_shared(x, run, (uint64_t)(worth > least ? worth : least));
}

bool kiln_walk_make(const kiln_axes *x, const kiln_runner *run, kiln_walk *out) {
    tiles t;
    int first = 0, second = 1;
    if (x->nbuffers > KILN_WALK_BUFFERS || x->nelem >= KILN_MEMORY_LEAST || x->nelem == 0 || x->triangle)
        return false;
    if (x->ngrid > KILN_WALK_OUTER + INNER || wants_threads(x, run)) return false;
    if (x->ndim - x->ngrid > KILN_WALK_DIMS - INNER) return false;
    out->flags = flags_of_few(x);
    if (x->turned || run->across || (kiln_rows_may_be_short(x) && kiln_rows_need_tiles(x, run->fn != NULL)) ||
        (x->strided && find_tiles(x, run, &second, &t)))
        return keep_whole(x, run, out);
    out->whole = false;
    pick_dims(x, &first, &second);
    out->ndim = set_box(x, first, second, out->n, out->stride);
    int n = 0;
    for (int k = 0; k < x->ngrid; k++) {
        if (k == first || k == second) continue;
        for (int b = 0; b < x->nbuffers; b++)
            out->outer_stride[b * KILN_WALK_OUTER + n] = kiln_axes_stride(x, b, k);
        out->outer_n[n++] = x->n[k];
    }
    out->outer = (kiln_axes){.ngrid = n,
                             .nbuffers = x->nbuffers,
                             .pitch = KILN_WALK_OUTER,
                             .n = out->outer_n,
                             .stride = out->outer_stride};
    return true;
}

int32_t kiln_walk_run(const kiln_walk *w, kiln_kernel_fn fn, int nest, char **ptr, const uint64_t *par,
                      char *work) {
    static const int64_t origin[KILN_WALK_DIMS];
    kiln_launch launch = {.nest = nest,
                          .ndim = w->ndim,
                          .n = w->n,
                          .ptr = ptr,
                          .stride = w->stride,
                          .origin = origin,
                          .par = par,
                          .work = work,
                          .flags = w->flags};
    int64_t index[KILN_WALK_OUTER] = {0};
    int32_t trap;
    if (w->whole) {
        const kiln_runner run = {.fn = w->interp ? NULL : fn,
                                 .interp = w->interp,
                                 .across = w->across,
                                 .isa = w->isa,
                                 .work = w->work,
                                 .guards = w->guards};
        const kiln_pass pass = {&w->outer, &run, par, w->flags, nest};
        return kiln_drive_alone(&pass, ptr, &trap) == KILN_OK ? trap : -1;
    }
    do trap = fn(&launch);
    while (trap == 0 && kiln_drive_advance(&w->outer, -1, -1, index, ptr));
    return trap;
}
