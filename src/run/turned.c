/* turned.c - many short folds beside each other, each along its own row of memory -> the kernel over turned tiles.
 *
 * softmax of x[65536, 10] would be a gathered vector for every eight elements.  Here some hundred rows are brought into a
 * tile of the first cache in which the elements of one place in all rows lie side by side, the kernel folds across it as it
 * does down the columns of a matrix, and what it made for each element is turned back.  The kernel is the same, and so
 * are its bits: lanes fold for themselves.  The interpreter folds more rows so, with a program of its own for that and the bits of the
 * kernel that folds each row by vectors.  Knows strides and pointers, not dtypes or what is computed. */
#include "run/driver.h"
#include "run/loops.h"
#include "tensor/blocks.h"

enum { DIMS = 4 }; /* of a launch: two of the grid, the one that is folded, parts */

typedef struct turning {
    const kiln_axes *axes;
    const kiln_runner *run;
    const kiln_interp *interp; /* if run->fn is NULL */
    uint32_t turned;           /* bit b: buffer b is turned */
    const kiln_loops *loops;
    kiln_launch launch;
    int64_t n[DIMS], stride[KILN_DRIVE_BUFFERS * DIMS];
    char *at[KILN_DRIVE_BUFFERS];       /* of the launch */
    char *tile[KILN_DRIVE_BUFFERS];     /* of a buffer that is turned, */
    int64_t pitch[KILN_KERNEL_BUFFERS]; /* with so many bytes from one place of all rows to the next */
} turning;

static bool is_turned(uint32_t turned, int b) { return b < KILN_KERNEL_BUFFERS && turned >> b & 1; }

uint32_t kiln_turned_by_interp(const kiln_axes *x) {
    int row = x->ngrid;
    uint32_t turned = 0;
    int64_t each = 0;
    if (x->ndim != row + 2 || x->vector != row || x->n[row + 1] != 1 || x->turned || x->triangle || x->origin)
        return 0;
    /* A step for each element of a row, for all rows at once, against a dozen steps for each row. */
    if (x->n[0] < KILN_CPU_TURN_LEAST_ROWS || x->n[row] > 2 * x->n[0] ||
        x->n[row] > KILN_CPU_TURN_LONGEST_ROW)
        return 0;
    for (int b = 0; b < x->nbuffers; b++) {
        int64_t along = kiln_axes_stride(x, b, row), size = x->bytes[b];
        if (along == 0 || (kiln_axes_stride(x, b, 0) == 0 && b >= x->nwritten))
            continue; /* the same for all elements, or rows */
        if (along != size || size > KILN_CPU_TURN_ELEMENT || b >= KILN_KERNEL_BUFFERS) return 0;
        turned |= UINT32_C(1) << b;
        each += KILN_CPU_TURN_FOLDS * size + KILN_CPU_TURN_GAP;
    }
    return x->n[row] * each <= KILN_CPU_TURN_BYTES ? turned : 0;
}

/* Folds of one launch: as many as the nearest cache has room for. */
static int64_t folds_together(const kiln_axes *x, uint32_t turned) {
    int64_t each = 0;
    for (int b = 0; b < x->nbuffers; b++)
        if (is_turned(turned, b)) each += x->n[x->ngrid] * x->bytes[b];
    int64_t folds = each ? KILN_CPU_TURN_NEAR / each / KILN_CPU_TURN_FOLDS * KILN_CPU_TURN_FOLDS
                         : 0; /* rows may have no elements */
    return folds > KILN_CPU_TURN_MOST    ? KILN_CPU_TURN_MOST
           : folds > KILN_CPU_TURN_FOLDS ? folds
                                         : KILN_CPU_TURN_FOLDS;
}

/* Tiles one after the other.  An odd number of lines from row to row: rows do not begin at the same places of a cache. */
static void place_tiles(turning *t, int64_t folds, char *room) {
    const kiln_axes *x = t->axes;
    for (int b = 0; b < x->nbuffers; b++) {
        for (int d = 0; d < DIMS; d++) t->stride[b * DIMS + d] = 0;
        t->stride[b * DIMS] = kiln_axes_stride(x, b, 0);
        for (int d = x->ngrid; d < x->ndim; d++)
            t->stride[b * DIMS + 2 + d - x->ngrid] = kiln_axes_stride(x, b, d);
        if (!is_turned(t->turned, b)) continue;
        t->pitch[b] = ((folds * x->bytes[b] + KILN_CPU_LINE - 1) / KILN_CPU_LINE | 1) * KILN_CPU_LINE;
        t->tile[b] = room;
        room += t->pitch[b] * x->n[x->ngrid];
        t->stride[b * DIMS] = x->bytes[b];
        t->stride[b * DIMS + 2] = t->pitch[b];
    }
}

/* Brings a tile in from the memory of `count` rows, or out to it. */
static void turn(const turning *t, int b, char *memory, int64_t count, bool in) {
    const kiln_axes *x = t->axes;
    int64_t apart = kiln_axes_stride(x, b, 0), length = x->n[x->ngrid];
    kiln_transpose_fn fn = t->loops->transpose[x->bytes[b]];
    if (in)
        fn(t->tile[b], t->pitch[b], memory, apart, (size_t)count, (size_t)length);
    else
        fn(memory, apart, t->tile[b], t->pitch[b], (size_t)length, (size_t)count);
}

static kiln_status run_folds(turning *t, char *const *base, int64_t first, int64_t count, int32_t *trap) {
    const kiln_axes *x = t->axes;
    int nwritten = t->launch.nest < t->run->guards ? 0 : x->nwritten;
    t->n[0] = count;
    for (int b = 0; b < x->nbuffers; b++) {
        char *memory = base[b] ? base[b] + first * kiln_axes_stride(x, b, 0) : NULL;
        t->at[b] = is_turned(t->turned, b) ? t->tile[b] : memory;
        if (is_turned(t->turned, b) && b >= x->nwritten) turn(t, b, memory, count, true);
    }
    if (t->run->fn)
        *trap = t->run->fn(&t->launch);
    else
        KILN_TRY(kiln_interp_run(t->interp, &t->launch, trap));
    for (int b = 0; b < nwritten && *trap == 0; b++)
        if (is_turned(t->turned, b)) turn(t, b, base[b] + first * kiln_axes_stride(x, b, 0), count, false);
    return KILN_OK;
}

/* Apart from the driver's own, so that calls without such rows have no frame of that size. */
kiln_status kiln_turned_run(const kiln_pass *pass, char *const *ptr, int32_t *trap) {
    /* With what rows of tiles are longer than their elements. */
    _Alignas(KILN_CPU_LINE) char room[KILN_CPU_TURN_NEAR + KILN_CPU_TURN_BYTES];
    const kiln_axes *x = pass->axes;
    const kiln_runner *run = pass->run;
    uint32_t turned = x->turned ? x->turned : kiln_turned_by_interp(x);
    int64_t index[KILN_MAX_DIMS] = {0}, origin[DIMS] = {0}, folds = folds_together(x, turned);
    char *base[KILN_DRIVE_BUFFERS];
    kiln_home home = 0;
    kiln_status st = KILN_OK;
    turning t = {.axes = x,
                 .run = run,
                 .interp = x->turned ? run->interp : run->across,
                 .turned = turned,
                 .loops = kiln_loops_for(run->isa),
                 .n = {0, 1}};
    place_tiles(&t, folds, room);
    for (int d = x->ngrid; d < x->ndim; d++) {
        t.n[2 + d - x->ngrid] = x->n[d];
        if (x->origin) origin[2 + d - x->ngrid] = x->origin[d - x->ngrid];
    }
    t.launch = (kiln_launch){.nest = pass->nest, .ndim = DIMS, .n = t.n, .ptr = t.at, .stride = t.stride};
    t.launch.origin = origin;
    t.launch.par = pass->par;
    t.launch.flags = pass->flags;
    if (run->fn && run->work && !(t.launch.work = kiln_block_take_any(run->work, &home))) return KILN_NOMEM();
    for (int b = 0; b < x->nbuffers; b++) base[b] = ptr[b];
    *trap = 0;
    do {
        for (int64_t k = 0; k < x->n[0] && st == KILN_OK && *trap == 0; k += folds)
            st = run_folds(&t, base, k, x->n[0] - k < folds ? x->n[0] - k : folds, trap);
    } while (st == KILN_OK && *trap == 0 && kiln_drive_advance(x, 0, 0, index, base));
    if (t.launch.work) kiln_block_give(t.launch.work, home);
    return st;
}
