/* scan_blocks.c - (axes of few long rows, a kernel that scans by blocks) -> its results, by as many threads as are worth it.
 *
 * Rows are taken in parts of some blocks: what each block comes to, the states before each, and then results, while what
 * was read is still in the caches.  Threads take parts in order; between its two passes over a part a thread waits for the
 * states that the part before comes to.  The last, partial block follows by itself.  Where parts begin changes nothing
 * in the order of docs/IR.md 7, so bits do not depend on it.  Knows axes and pointers, not what is scanned. */
#include <sched.h>

#include "run/driver.h"
#include "run/pool_os.h"
#include "tensor/tensor.h"

enum { TOTALS, STARTS, RESULTS };               /* nests: see kiln_blocks */
enum { BLOCKS, ROWS, SCANNED, ORDERED, NDIMS }; /* dimensions of its launches */

typedef struct scanning {
    const kiln_axes *axes;
    kiln_runner run;
    const kiln_blocks *how;
    const uint64_t *par;
    uint64_t flags;
    int64_t nblocks; /* whole ones of a row; each state has one place more */
    int nbuffers;    /* of the kernel: tensors, states along the grid, states in order, first indices */
    char *ptr[KILN_DRIVE_BUFFERS];
    int64_t stride[KILN_DRIVE_BUFFERS * NDIMS];
    uint8_t bytes[KILN_DRIVE_BUFFERS];
    int64_t share;           /* blocks of a part */
    _Atomic int64_t next;    /* part that no thread has taken */
    _Atomic int64_t merged;  /* parts whose states are known, and with them the states before the next */
    _Atomic int64_t took_ns; /* by all threads together */
    atomic_int failed;       /* a kiln_status */
} scanning;

/* -- memory --------------------------------------------------------------------------------------------------- */

static void set_strides(scanning *s, int b, int64_t block, int64_t row, int64_t scanned, int64_t ordered) {
    int64_t *to = s->stride + b * NDIMS;
    to[BLOCKS] = block;
    to[ROWS] = row;
    to[SCANNED] = scanned;
    to[ORDERED] = ordered;
}

static void place_tensors(scanning *s, char *const *ptr) {
    const kiln_axes *x = s->axes;
    for (int b = 0; b < x->nbuffers; b++) {
        int64_t along = kiln_axes_stride(x, b, x->ngrid);
        s->ptr[b] = ptr[b];
        s->bytes[b] = x->bytes[b];
        set_strides(s, b, along * s->how->length, kiln_axes_stride(x, b, 0), along, 0);
    }
}

/* States of blocks side by side, row after row; first indices.  Returns the bytes that they take from `at` on. */
static int64_t place_states(scanning *s, char *at) {
    int nstates = s->how->nstates, one = s->axes->nbuffers, all = one + nstates, firsts = all + nstates;
    char *next = at;
    for (int k = 0; k < nstates; k++) {
        int64_t size = s->how->bytes[k], row = size * (s->nblocks + 1);
        s->ptr[one + k] = s->ptr[all + k] = next;
        s->bytes[one + k] = s->bytes[all + k] = (uint8_t)size;
        set_strides(s, one + k, size, row, 0, 0);
        set_strides(s, all + k, 0, row, 0, size);
        next += kiln_block_align(row * s->axes->npoints);
    }
    s->nbuffers = firsts;
    if (!s->how->places) return next - at;
    s->ptr[s->nbuffers] = next;
    s->bytes[s->nbuffers] = sizeof(int64_t);
    set_strides(s, s->nbuffers++, sizeof(int64_t), 0, 0, 0);
    return next - at + kiln_block_align((s->nblocks + 1) * (int64_t)sizeof(int64_t));
}

/* -- launches ------------------------------------------------------------------------------------------------- */

/* A nest over `count` blocks from block `from` on, each of so many elements; states along the grid begin at place `at`. */
static void run_nest(scanning *s, int nest, int64_t from, int64_t count, int64_t length, int64_t at) {
    int64_t rows = s->axes->npoints, n[NDIMS] = {nest == STARTS ? 1 : count, rows, length, count};
    char *ptr[KILN_DRIVE_BUFFERS];
    int one = s->axes->nbuffers, all = one + s->how->nstates, firsts = all + s->how->nstates;
    for (int b = 0; b < s->nbuffers; b++) {
        int64_t block = b < one || b >= firsts ? from : b < all ? at : at + 1;
        int64_t apart = s->stride[b * NDIMS + (b >= all && b < firsts ? ORDERED : BLOCKS)];
        ptr[b] = s->ptr[b] + block * apart;
    }
    kiln_axes x = {.ndim = NDIMS,
                   .ngrid = SCANNED,
                   .nbuffers = s->nbuffers,
                   .nwritten = s->axes->nwritten,
                   .pitch = NDIMS,
                   .npoints = n[BLOCKS] * rows,
                   .nelem = count * rows * length,
                   .n = n,
                   .stride = s->stride,
                   .bytes = s->bytes};
    int32_t trap = 0;
    const kiln_pass pass = {&x, &s->run, s->par, s->flags, nest};
    kiln_status st = kiln_drive_alone(&pass, ptr, &trap);
    if (st == KILN_OK && trap) st = KILN_E_BUG; /* what may trap does not go by blocks */
    if (st != KILN_OK) atomic_store(&s->failed, (int)st);
}

/* Until the states before a part are known.  The thread that is at them took its part before this one did, and waits for none
 * that comes later. */
static void wait_for(scanning *s, int64_t part) {
    for (int spins = 0; atomic_load_explicit(&s->merged, memory_order_acquire) < part; spins++) {
        if (spins < KILN_CPU_SCAN_SPINS)
            os_pause();
        else
            (void)sched_yield();
    }
}

/* One part, whichever is next: the number that the pool gives is no order. */
static void run_part(void *user, int64_t any) {
    (void)any;
    scanning *s = user;
    int64_t part = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
    int64_t from = part * s->share, left = s->nblocks - from, length = s->how->length;
    int64_t count = left < s->share ? left : s->share, start = kiln_clock_ns();
    run_nest(s, TOTALS, from, count, length, from + 1);
    int64_t waits = kiln_clock_ns();
    wait_for(s, part);
    start += kiln_clock_ns() - waits;
    run_nest(s, STARTS, from, count, length, from);
    atomic_store_explicit(&s->merged, part + 1, memory_order_release);
    run_nest(s, RESULTS, from, count, length, from);
    atomic_fetch_add_explicit(&s->took_ns, kiln_clock_ns() - start, memory_order_relaxed);
}

/* -- parts ---------------------------------------------------------------------------------------------------- */

/* Blocks of a part: whole vectors of them, as many as stay near, and no more than leave each thread some. */
static int64_t part_of(const scanning *s, int threads) {
    int64_t bytes = 1, each = (s->nblocks + threads - 1) / threads;
    for (int b = s->axes->nwritten; b < s->axes->nbuffers; b++) bytes += s->bytes[b];
    int64_t most = KILN_CPU_SCAN_PART_BYTES / (bytes * s->how->length * s->axes->npoints);
    if (each < most) most = each + KILN_CPU_SCAN_LANES - 1;
    return most < KILN_CPU_SCAN_LANES ? KILN_CPU_SCAN_LANES
                                      : most / KILN_CPU_SCAN_LANES * KILN_CPU_SCAN_LANES;
}

static void run_parts(scanning *s, const kiln_parallel *parallel, int threads) {
    int64_t rest = s->axes->n[s->axes->ngrid] - s->nblocks * s->how->length;
    s->share = part_of(s, threads);
    int64_t nparts = (s->nblocks + s->share - 1) / s->share;
    run_nest(s, TOTALS, 0, 1, 0, 0); /* of no elements: the initial states, before the first block */
    if (threads > 1)
        kiln_pool_for(parallel, threads, nparts, run_part, s);
    else
        for (int64_t k = 0; k < nparts; k++) run_part(s, k);
    if (rest > 0) run_nest(s, RESULTS, s->nblocks, 1, rest, s->nblocks);
}

kiln_status kiln_blocks_run(const kiln_axes *x, const kiln_runner *run, const kiln_blocks *how,
                            char *const *ptr, const uint64_t *par) {
    int threads;
    if (x->nelem == 0) return KILN_OK;
    scanning s = {.axes = x, .run = *run, .how = how, .par = par};
    s.run.parallel = NULL; /* each part in one thread, */
    s.run.cost = NULL;     /* and timed here */
    s.nblocks = x->n[x->ngrid] / how->length;
    s.flags = kiln_drive_flags(x, 1, ptr);
    place_tensors(&s, ptr);
    int64_t nbytes = place_states(&s, NULL);
    kiln_tensor *room = kiln_tensor_new_trusted(KILN_U8, 1, &nbytes, NULL, nbytes);
    if (!room) return KILN_NOMEM();
    (void)place_states(&s, room->data);
    int64_t *firsts = how->places ? (int64_t *)(void *)s.ptr[s.nbuffers - 1] : NULL;
    for (int64_t k = 0; firsts && k <= s.nblocks; k++) firsts[k] = k * how->length;
    (void)kiln_drive_parts(x, run, &threads);
    run_parts(&s, run->parallel, threads);
    kiln_tensor_release(room);
    if (run->cost)
        kiln_cost_learn(run->cost, run->fn ? KILN_BY_KERNEL : KILN_BY_INTERP, x->nelem,
                        atomic_load(&s.took_ns));
    kiln_status st = (kiln_status)atomic_load(&s.failed);
    if (st == KILN_OK) return st;
    return KILN_FAIL(st, st == KILN_E_NOMEM ? "a block of a scan is out of memory"
                                            : "a kernel of blocks trapped");
}
