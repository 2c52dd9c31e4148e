/* tensor.c - sizes, strides and memory -> a reference-counted tensor in one block.
 *
 * An owning tensor's block holds header, sizes, strides and elements; a wrapping one's ends before the
 * elements; a borrowing one has no block.  Resizing an owning tensor adds rooms, which replace the block's
 * own arrays and elements; the header itself never moves, so references stay good.  Elements in a host's memory are
 * a room from the start, which lies in the block. */
#include "tensor/tensor.h"

#include <string.h>

#include "tensor/blocks.h"

enum { DATA_ALIGN = KILN_BLOCK_ALIGN };
#define MAX_BYTES ((int64_t)1 << 62)

/* Memory added by a resize: this, sizes, strides, then elements at `data`, unless a host gave those. */
struct kiln_tensor_room {
    struct kiln_tensor_room *next;
    char *data;
    size_t data_cap;
    int rank_cap;
    bool in_block;      /* of the tensor: not to be freed */
    kiln_memory memory; /* whose `data` is; all NULL: it follows here */
};

static size_t align_up(size_t n) { return (n + DATA_ALIGN - 1) & ~(size_t)(DATA_ALIGN - 1); }

_Static_assert(sizeof(kiln_tensor) <= 96, "header, sizes and strides of rank 2 are two cache lines");
_Static_assert(offsetof(kiln_tensor, deleter) == KILN_BLOCK_LINK &&
                   offsetof(kiln_tensor, rooms) == KILN_BLOCK_LINK + 2 * sizeof(char *),
               "links of a kept block spare what an owning tensor's header holds");
_Static_assert(sizeof(kiln_tensor_header) >= sizeof(kiln_tensor) + KILN_MAX_RANK * sizeof(int64_t),
               "a borrowed header has room for strides of its own");

/* -- shapes -------------------------------------------------------------------------------------------- */

kiln_status kiln_sizes_check(kiln_dtype dtype, int rank, const int64_t *sizes, int64_t *nelem) {
    if (rank < 0) return KILN_FAIL(KILN_E_ARG, "rank %d is negative", rank);
    if (rank > KILN_MAX_RANK)
        return KILN_FAIL(KILN_E_LIMIT, "rank %d exceeds the limit of %d", rank, KILN_MAX_RANK);
    if ((unsigned)dtype >= KILN_DTYPE_COUNT) return KILN_FAIL(KILN_E_ARG, "%d is not a dtype", (int)dtype);
    if (rank > 0 && !sizes) return KILN_FAIL(KILN_E_ARG, "sizes are missing for rank %d", rank);
    int64_t nbytes = (int64_t)kiln_dtype_size(dtype), count = 1;
    for (int d = 0; d < rank; d++) {
        if (sizes[d] < 0)
            return KILN_FAIL(KILN_E_ARG, "size %lld of dimension %d is negative", (long long)sizes[d], d);
        if (sizes[d] == 0) {
            count = 0;
            continue;
        }
        if (__builtin_mul_overflow(nbytes, sizes[d], &nbytes) || nbytes >= MAX_BYTES)
            return KILN_FAIL(KILN_E_LIMIT, "the sizes ask for 2^62 bytes or more (dimension %d is %lld)", d,
                             (long long)sizes[d]);
        count *= sizes[d];
    }
    *nelem = count;
    return KILN_OK;
}

KILN_HOT void kiln_row_major(int rank, const int64_t *sizes, int64_t *strides) {
    int64_t next = 1;
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = next;
        if (sizes[d] > 1) next *= sizes[d];
    }
}

/* Elements that sizes and strides reach beyond [0,...,0] in either direction.  KILN_E_LIMIT if too far. */
static kiln_status reach(kiln_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                         int64_t nelem, int64_t *up) {
    int64_t above = 0, below = 0, most = MAX_BYTES / (int64_t)kiln_dtype_size(dtype) - 1;
    for (int d = 0; d < rank && nelem > 0; d++) {
        int64_t far, *side = strides[d] < 0 ? &below : &above;
        if (__builtin_mul_overflow(sizes[d] - 1, strides[d], &far) || far > most || far < -most)
            return KILN_FAIL(KILN_E_LIMIT, "stride %lld of dimension %d reaches 2^62 bytes or more",
                             (long long)strides[d], d);
        *side += far; /* both terms are below 2^62: cannot overflow */
        if (*side > most || *side < -most)
            return KILN_FAIL(KILN_E_LIMIT, "the strides reach 2^62 bytes or more");
    }
    *up = above;
    return KILN_OK;
}

/* CONTIGUOUS, CANONICAL, or 0. */
static uint16_t row_major_flags(int rank, const int64_t *sizes, const int64_t *strides) {
    int64_t expect = 1;
    uint16_t flags = KILN_TF_CONTIGUOUS | KILN_TF_DENSE | KILN_TF_CANONICAL;
    for (int d = rank - 1; d >= 0; d--) {
        if (strides[d] != expect) {
            if (sizes[d] != 1) return 0;
            flags &= (uint16_t)~KILN_TF_CANONICAL;
        }
        expect *= sizes[d];
    }
    return flags;
}

static bool is_channels_last(int rank, const int64_t *sizes, const int64_t *strides) {
    static const uint8_t order[4] = {1, 3, 2, 0};
    if (rank != 4) return false;
    int64_t expect = 1;
    for (int k = 0; k < 4; k++) {
        int d = order[k];
        if (sizes[d] == 1) continue;
        if (strides[d] != expect) return false;
        expect *= sizes[d];
    }
    return true;
}

/* Every element has its own place and no place is left out.  Looks for the dimension with each next
 * expected stride, so any order of dimensions is found. */
static bool is_dense(int rank, const int64_t *sizes, const int64_t *strides) {
    int64_t expect = 1;
    uint64_t left = 0;
    for (int d = 0; d < rank; d++)
        if (sizes[d] > 1) left |= (uint64_t)1 << d;
    while (left) {
        int found = -1;
        for (int d = 0; d < rank && found < 0; d++)
            if ((left >> d & 1) && strides[d] == expect) found = d;
        if (found < 0) return false;
        left &= ~((uint64_t)1 << found);
        expect *= sizes[found];
    }
    return true;
}

KILN_HOT uint16_t kiln_layout_flags(int rank, const int64_t *sizes, const int64_t *strides, int64_t nelem) {
    uint16_t flags = rank == 0 ? KILN_TF_SCALAR : 0;
    if (nelem == 1) flags |= KILN_TF_SINGLE;
    flags |= nelem == 0 ? KILN_TF_CONTIGUOUS | KILN_TF_DENSE : row_major_flags(rank, sizes, strides);
    if (is_channels_last(rank, sizes, strides)) flags |= KILN_TF_CHANNELS_LAST | KILN_TF_DENSE;
    if (!(flags & KILN_TF_DENSE) && is_dense(rank, sizes, strides)) flags |= KILN_TF_DENSE;
    for (int d = 0; d < rank && !(flags & KILN_TF_DENSE); d++)
        if (sizes[d] > 1 && strides[d] == 0) flags |= KILN_TF_OVERLAPS;
    return flags;
}

/* -- making -------------------------------------------------------------------------------------------- */

enum { KEPT_FLAGS = KILN_TF_READONLY | KILN_TF_OWNED | KILN_TF_BORROWED };

KILN_HOT static void set_shape(kiln_tensor *t, int rank, const int64_t *sizes, const int64_t *strides,
                               int64_t nelem) {
    if (rank > 0) memmove(t->sizes, sizes, (size_t)rank * sizeof *sizes);
    if (!strides)
        kiln_row_major(rank, sizes, t->strides);
    else if (rank > 0)
        memmove(t->strides, strides, (size_t)rank * sizeof *strides);
    t->nelem = nelem;
    unsigned flags = (t->flags & KEPT_FLAGS) | kiln_layout_flags(rank, t->sizes, t->strides, nelem);
    t->sig = KILN_SIG(t->dtype, flags, rank);
}

/* A block with room for data_bytes of elements after header, sizes and strides. */
static inline kiln_tensor *block_new(uint64_t sig, int rank, size_t data_bytes) {
    kiln_home home;
    kiln_tensor *t = kiln_block_take(kiln_tensor_head(rank) + data_bytes, &home);
    if (t) kiln_tensor_init(t, home, sig, rank, data_bytes);
    return t;
}

/* Bytes that an owning tensor of this shape needs. */
static kiln_status bytes_needed(kiln_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                                int64_t *nelem, size_t *nbytes) {
    KILN_TRY(kiln_sizes_check(dtype, rank, sizes, nelem));
    int64_t count = *nelem;
    for (int d = 0; strides && d < rank; d++)
        if (strides[d] < 0)
            return KILN_FAIL(KILN_E_ARG,
                             "stride %lld of dimension %d is negative; only wrapped memory may have that",
                             (long long)strides[d], d);
    if (strides && count > 0) {
        KILN_TRY(reach(dtype, rank, sizes, strides, *nelem, &count));
        count++;
    }
    *nbytes = (size_t)count * kiln_dtype_size(dtype);
    return KILN_OK;
}

kiln_status kiln_tensor_new(kiln_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                            kiln_tensor **out) {
    int64_t nelem;
    size_t nbytes;
    KILN_NEED(out);
    KILN_TRY(bytes_needed(dtype, rank, sizes, strides, &nelem, &nbytes));
    kiln_tensor *t = block_new(KILN_SIG(dtype, KILN_TF_OWNED, rank), rank, nbytes);
    if (!t) return KILN_FAIL(KILN_E_NOMEM, "out of memory for a tensor of %zu bytes", nbytes);
    set_shape(t, rank, sizes, strides, nelem);
    *out = t;
    return KILN_OK;
}

/* Elements of a room from the host. */
static kiln_status take_from_host(struct kiln_tensor_room *room, const kiln_memory *memory, size_t nbytes) {
    char *data = nbytes ? memory->alloc(memory->user, nbytes) : (char *)room;
    if (!data) return KILN_FAIL(KILN_E_NOMEM, "the host's allocator has no memory for %zu bytes", nbytes);
    if (nbytes && (uintptr_t)data % DATA_ALIGN != 0) {
        memory->free(memory->user, data, nbytes);
        return KILN_FAIL(KILN_E_ARG, "the host's allocator gave memory that is not aligned to %d bytes",
                         DATA_ALIGN);
    }
    room->data = data;
    room->data_cap = nbytes;
    room->memory = *memory;
    return KILN_OK;
}

kiln_status kiln_tensor_new_in(const kiln_memory *memory, kiln_dtype dtype, int rank, const int64_t *sizes,
                               const int64_t *strides, kiln_tensor **out) {
    int64_t nelem;
    size_t nbytes;
    KILN_TRY(bytes_needed(dtype, rank, sizes, strides, &nelem, &nbytes));
    kiln_tensor *t = block_new(KILN_SIG(dtype, KILN_TF_OWNED, rank), rank, sizeof(struct kiln_tensor_room));
    if (!t) return KILN_NOMEM();
    t->rooms = (struct kiln_tensor_room *)t->data;
    *t->rooms = (struct kiln_tensor_room){.rank_cap = rank, .in_block = true};
    kiln_status st = take_from_host(t->rooms, memory, nbytes);
    if (st != KILN_OK) {
        t->sig = 0; /* no header to be used again */
        kiln_block_give(t, t->home);
        return st;
    }
    t->data = t->rooms->data;
    t->data_cap = nbytes;
    t->home |= KILN_HOME_CARE;
    set_shape(t, rank, sizes, strides, nelem);
    *out = t;
    return KILN_OK;
}

kiln_status kiln_tensor_number(const kiln_value *v, kiln_tensor **out) {
    KILN_NEED(v, out);
    kiln_dtype dtype = v->kind == KILN_BOOL_V      ? KILN_BOOL
                       : v->kind == KILN_INT_V     ? KILN_I64
                       : v->kind == KILN_UINT_V    ? KILN_U64
                       : v->kind == KILN_FLOAT_V   ? KILN_F64
                       : v->kind == KILN_COMPLEX_V ? KILN_C128
                                                   : KILN_DTYPE_COUNT;
    if (dtype == KILN_DTYPE_COUNT)
        return KILN_FAIL(KILN_E_TYPE, "kiln_tensor_number: the value is no number");
    KILN_TRY(kiln_tensor_new(dtype, 0, NULL, NULL, out));
    (*out)->flags |= KILN_TF_NUMBER;
    (void)kiln_element_set(dtype, v, (*out)->data);
    return KILN_OK;
}

KILN_HOT kiln_tensor *kiln_tensor_new_trusted(kiln_dtype dtype, int rank, const int64_t *sizes,
                                              const int64_t *strides, int64_t nelem) {
    kiln_tensor *t = block_new(KILN_SIG(dtype, KILN_TF_OWNED, rank), rank,
                               (size_t)nelem * kiln_elem_bytes[dtype]);
    if (t) set_shape(t, rank, sizes, strides, nelem);
    return t;
}

kiln_tensor *kiln_tensor_make_afresh(const kiln_tensor_mold *m, const kiln_tensor *like, kiln_tensor *block) {
    kiln_home home = m->block;
    if (!block) block = kiln_block_take_slow(kiln_tensor_head(like->rank) + m->data_bytes, &home);
    if (!block) {
        (void)KILN_NOMEM();
        return NULL;
    }
    kiln_tensor_init(block, home, m->sig, like->rank, m->data_bytes);
    block->nelem = like->nelem;
    for (unsigned d = 0; d < like->rank; d++) { /* too few to be worth a call */
        block->sizes[d] = like->sizes[d];
        block->strides[d] = like->strides[d];
    }
    return block;
}

/* Whether foreign memory can be a tensor's. */
static kiln_status check_foreign(const void *data, kiln_dtype dtype, int rank, const int64_t *sizes,
                                 const int64_t *strides, int64_t *nelem) {
    int64_t up;
    KILN_TRY(kiln_sizes_check(dtype, rank, sizes, nelem));
    if (sizes && strides) KILN_TRY(reach(dtype, rank, sizes, strides, *nelem, &up));
    if (!data && *nelem > 0) return KILN_FAIL(KILN_E_ARG, "data is null for a tensor with elements");
    size_t align = kiln_dtype_size(dtype) /
                   (kiln_dtype_is_complex(dtype) ? 2 : 1); /* parts are read one by one */
    if (*nelem > 0 && (uintptr_t)data % align != 0)
        return KILN_FAIL(KILN_E_ARG, "data is not aligned to %zu bytes, as %s must be", align,
                         kiln_dtype_name(dtype));
    return KILN_OK;
}

kiln_status kiln_tensor_wrap(void *data, kiln_dtype dtype, int rank, const int64_t *sizes,
                             const int64_t *strides, void (*deleter)(void *owner), void *owner,
                             kiln_tensor **out) {
    int64_t nelem;
    KILN_NEED(out);
    KILN_TRY(check_foreign(data, dtype, rank, sizes, strides, &nelem));
    kiln_tensor *t = block_new(KILN_SIG(dtype, 0, rank), rank, 0);
    if (!t) return KILN_NOMEM();
    t->home |= KILN_HOME_CARE;
    t->data = data;
    t->deleter = deleter;
    t->owner = owner;
    set_shape(t, rank, sizes, strides, nelem);
    *out = t;
    return KILN_OK;
}

/* A number has no dimensions. */
static inline unsigned borrow_flags(int how, int rank) {
    return (how & KILN_BORROW_READONLY ? KILN_TF_READONLY : 0u) |
           (how & KILN_BORROW_NUMBER && rank == 0 ? KILN_TF_NUMBER : 0u);
}

/* Any shape, checked in full.  The header, unless it is NULL, has the data, sizes and strides as they were given. */
static __attribute__((noinline)) kiln_status borrow_any(kiln_tensor_header *header, kiln_dtype dtype,
                                                        int rank, int how, kiln_tensor **out) {
    kiln_tensor *t = (kiln_tensor *)header;
    KILN_NEED_IN("kiln_tensor_borrow", header, out);
    KILN_TRY(check_foreign(t->data, dtype, rank, t->sizes, t->strides, &t->nelem));
    if (!t->strides) {
        t->strides = (int64_t *)(t + 1);
        kiln_row_major(rank, t->sizes, t->strides);
    }
    atomic_init(&t->refs, 1);
    t->home = KILN_HOME_CARE;
    unsigned flags = kiln_layout_flags(rank, t->sizes, t->strides, t->nelem) | KILN_TF_BORROWED |
                     borrow_flags(how, rank);
    t->sig = KILN_SIG(dtype, flags, rank);
    *out = t;
    return KILN_OK;
}

/* Whether a glance shows a shape to be CANONICAL and of no size to worry about, or empty. */
static inline __attribute__((always_inline)) bool is_plain(unsigned rank, const int64_t *sizes,
                                                           const int64_t *strides, uint64_t *nelem) {
    enum { SIZE_LIMIT = 1 << 19, RANK_MAX = 3 }; /* up to here no product of sizes is too large */
    uint64_t n = 1;
    if (rank > RANK_MAX) return false;
    for (unsigned long d = rank; d-- > 0; n *= (uint64_t)sizes[d])
        if ((uint64_t)strides[d] != n || (uint64_t)sizes[d] > SIZE_LIMIT) return false;
    *nelem = n;
    return true;
}

/* The shapes that are met most, for the fewest instructions; borrow_any begins anew with all others and with what is wrong.
 * The tests stand apart, with stores between them, because gcc joins neighbours into one that costs more than both. */
kiln_status kiln_tensor_borrow(kiln_tensor_header *header, void *data, kiln_dtype dtype, int rank,
                               const int64_t *sizes, const int64_t *strides, int how, kiln_tensor **out) {
    static const uint8_t align_mask[] = {
#define D(NAME, value, name, bytes, kind, torch) [value] = bytes - 1,
#include "kiln/dtype.def"
#undef D
    };
    enum { PLAIN = KILN_TF_BORROWED | KILN_TF_CONTIGUOUS | KILN_TF_DENSE | KILN_TF_CANONICAL };
    kiln_tensor *t = (kiln_tensor *)header;
    uint64_t n;
    if (!header) goto any;
    atomic_init(&t->refs, 1);
    t->data = data;
    if (!data || (unsigned)dtype >= KILN_DTYPE_COUNT || ((uintptr_t)data & align_mask[dtype])) goto any;
    t->sizes = (int64_t *)sizes; /* never written: a borrowed tensor is not resized */
    if (!sizes) goto any;
    t->strides = (int64_t *)strides;
    if (!strides) goto any;
    t->home = KILN_HOME_CARE;
    if (!is_plain((unsigned)rank, sizes, strides, &n)) goto any;
    t->nelem = (int64_t)n;
    t->sig = KILN_SIG(dtype, PLAIN, (unsigned)rank);
    if (how & KILN_BORROW_READONLY) t->flags |= KILN_TF_READONLY;
    if (n <= 1) {
        if (!n) goto any;
        t->flags |= rank                       ? KILN_TF_SINGLE
                    : how & KILN_BORROW_NUMBER ? KILN_TF_SINGLE | KILN_TF_SCALAR | KILN_TF_NUMBER
                                               : KILN_TF_SINGLE | KILN_TF_SCALAR;
    }
    if (!out) goto any;
    *out = t;
    return KILN_OK;
any:
    if (header) {
        t->data = data;
        t->sizes = (int64_t *)sizes; /* never written: a borrowed tensor is not resized */
        t->strides = (int64_t *)strides;
    }
    return borrow_any(header, dtype, rank, how, out);
}

/* -- references ---------------------------------------------------------------------------------------- */

kiln_tensor *kiln_tensor_retain(kiln_tensor *t) {
    if (t) atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

static void free_rooms(struct kiln_tensor_room *room) {
    while (room) {
        struct kiln_tensor_room *next = room->next;
        if (room->memory.free && room->data_cap)
            room->memory.free(room->memory.user, room->data, room->data_cap);
        if (!room->in_block) kiln_free(room);
        room = next;
    }
}

static __attribute__((noinline)) void release_with_care(kiln_tensor *t) {
    if (atomic_load_explicit(&t->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (t->flags & KILN_TF_BORROWED) return;
    if (!(t->flags & KILN_TF_OWNED) && t->deleter) t->deleter(t->owner);
    free_rooms(t->rooms);
    t->sig = 0; /* no header to be used again */
    kiln_block_give(t, t->home & ~KILN_HOME_CARE);
}

/* The only reference cannot become two meanwhile: a load tells what a decrement would. */
KILN_HOT void kiln_tensor_release(kiln_tensor *t) {
    if (!t) return;
    bool last = atomic_load_explicit(&t->refs, memory_order_acquire) == 1;
    if (!last || !kiln_block_keep(t, t->home)) release_with_care(t);
}

void kiln_tensor_set_readonly(kiln_tensor *t) { t->flags |= KILN_TF_READONLY; }

/* -- resizing ------------------------------------------------------------------------------------------ */

kiln_status kiln_tensor_reserve(kiln_tensor *t, int rank, const int64_t *sizes, const int64_t *strides) {
    int64_t nelem;
    size_t nbytes;
    if (!(t->flags & KILN_TF_OWNED))
        return KILN_FAIL(KILN_E_ARG, "a tensor over memory that Kiln does not own cannot be resized");
    KILN_TRY(bytes_needed((kiln_dtype)t->dtype, rank, sizes, strides, &nelem, &nbytes));
    if (rank <= t->rank_cap && nbytes <= t->data_cap) return KILN_OK;
    if (t->rooms && rank <= t->rooms->rank_cap && nbytes <= t->rooms->data_cap) return KILN_OK;
    const kiln_memory *host = t->rooms && t->rooms->memory.alloc ? &t->rooms->memory : NULL;
    size_t head = align_up(sizeof *t->rooms + 2 * (size_t)rank * sizeof(int64_t));
    struct kiln_tensor_room *room = kiln_alloc_aligned(DATA_ALIGN, head + (host ? 0 : nbytes));
    if (!room) return KILN_FAIL(KILN_E_NOMEM, "out of memory to resize a tensor to %zu bytes", nbytes);
    *room = (struct kiln_tensor_room){
        .next = t->rooms, .data = (char *)room + head, .data_cap = nbytes, .rank_cap = rank};
    kiln_status st = host ? take_from_host(room, host, nbytes) : KILN_OK;
    if (st != KILN_OK) return kiln_free(room), st;
    t->rooms = room;
    t->home |= KILN_HOME_CARE;
    return KILN_OK;
}

kiln_status kiln_tensor_resize(kiln_tensor *t, int rank, const int64_t *sizes, const int64_t *strides) {
    int64_t nelem;
    size_t nbytes;
    KILN_TRY(kiln_tensor_reserve(t, rank, sizes, strides));
    KILN_TRY(bytes_needed((kiln_dtype)t->dtype, rank, sizes, strides, &nelem, &nbytes));
    struct kiln_tensor_room *room = t->rooms;
    t->home |= KILN_HOME_CARE; /* what its block has room for is not what its shape needs */
    if (rank > t->rank_cap || nbytes > t->data_cap) {
        t->data = room->data;
        t->data_cap = room->data_cap;
        t->rank_cap = room->rank_cap;
        t->sizes = (int64_t *)(room + 1);
        t->strides = t->sizes + room->rank_cap;
        /* An export still reads the elements it was made over; alone, older rooms have no reader left. */
        if (atomic_load_explicit(&t->refs, memory_order_acquire) == 1) {
            free_rooms(room->next);
            room->next = NULL;
        }
    }
    set_shape(t, rank, sizes, strides, nelem);
    return KILN_OK;
}

/* -- looking ------------------------------------------------------------------------------------------- */

kiln_dtype kiln_tensor_dtype(const kiln_tensor *t) { return t ? (kiln_dtype)t->dtype : KILN_DTYPE_COUNT; }
int kiln_tensor_rank(const kiln_tensor *t) { return t ? t->rank : 0; }
const int64_t *kiln_tensor_sizes(const kiln_tensor *t) { return t ? t->sizes : NULL; }
const int64_t *kiln_tensor_strides(const kiln_tensor *t) { return t ? t->strides : NULL; }
int64_t kiln_tensor_nelem(const kiln_tensor *t) { return t ? t->nelem : 0; }
void *kiln_tensor_data(const kiln_tensor *t) { return t ? t->data : NULL; }

void kiln_trim(void) { kiln_blocks_trim(); }
