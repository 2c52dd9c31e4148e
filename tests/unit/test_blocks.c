/* test_blocks.c - recycled memory of tensors, and tensors with borrowed headers.
 *
 * Allocations are counted, not timed: what comes from a list or the depot makes none. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tensor/blocks.h"
#include "tensor/tensor.h"

#ifdef KILN_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
enum { NEVER = 1 << 30 };

static kiln_tensor *make(int64_t nbytes) {
    kiln_tensor *t = NULL;
    assert_int_equal(kiln_tensor_new(KILN_U8, 1, &nbytes, NULL, &t), KILN_OK);
    return t;
}

static void start_counting(void) { kiln_alloc_fail_after(NEVER); }
static long counted(void) { return kiln_alloc_fail_after(0); }

/* -- size classes ------------------------------------------------------------------------------------------ */

static void classes_round_up_by_a_quarter_at_most(void **state) {
    (void)state;
    unsigned last = 0;
    for (size_t n = 128; n <= (size_t)1 << KILN_BLOCK_LOG_MAX; n += 7) {
        unsigned c = kiln_block_class(n);
        size_t size = kiln_block_class_size(c);
        assert_true(c < KILN_BLOCK_CLASSES && c >= last);
        assert_true(size >= n && size - n < n / 4 + 1);
        assert_int_equal(kiln_block_class(size), c);
        last = c;
    }
    assert_true(kiln_block_class(((size_t)1 << KILN_BLOCK_LOG_MAX) + 1) >= KILN_BLOCK_CLASSES);
}

/* -- recycling --------------------------------------------------------------------------------------------- */

static void a_released_block_serves_the_next(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 100, 4096, 100000, 3 << 20, 64 << 20};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        kiln_tensor *t = make(sizes[k]);
        memset(t->data, 1, (size_t)sizes[k]);
        void *was = t;
        kiln_tensor_release(t);
        start_counting();
        t = make(sizes[k]);
        assert_int_equal(counted(), 0);
        assert_ptr_equal(t, was);
        memset(t->data, 2, (size_t)sizes[k]);
        kiln_tensor_release(t);
    }
}

static void trimming_gives_back(void **state) {
    (void)state;
    const int64_t sizes[] = {100, 100000, 64 << 20};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        kiln_tensor_release(make(sizes[k]));
        kiln_trim();
        start_counting();
        kiln_tensor *t = make(sizes[k]);
        assert_int_equal(counted(), 1);
        kiln_tensor_release(t);
    }
    kiln_trim();
    kiln_trim();
}

/* Holds n tensors at once, releases them, and says how many of n more had to be allocated. */
static long reallocated(int n, int64_t nbytes) {
    kiln_tensor **t = malloc((size_t)n * sizeof *t);
    assert_non_null(t);
    kiln_trim();
    for (int round = 0; round < 2; round++) {
        if (round) start_counting();
        for (int k = 0; k < n; k++) t[k] = make(nbytes);
        long made = round ? counted() : 0;
        for (int k = 0; k < n; k++) kiln_tensor_release(t[k]);
        if (round) {
            free(t);
            return made;
        }
    }
    return -1;
}

static void what_is_kept_is_bounded(void **state) {
    (void)state;
    assert_int_equal(reallocated(60, 100), 0);
    assert_int_equal(reallocated(1000, 100), 0);    /* lists and depot */
    assert_true(reallocated(2000, 100000) >= 1500); /* 200 MB: the depot keeps 32 MiB */
    assert_int_equal(reallocated(3, 64 << 20), 0);  /* large ones */
    long again = reallocated(6, 64 << 20);          /* 384 MiB: 256 are kept */
    assert_true(again >= 2 && again <= 3);
    assert_int_equal(reallocated(70, 1200000), 70 - 64);
    kiln_trim();
}

static void a_kept_block_of_much_more_is_not_used(void **state) {
    (void)state;
    kiln_trim();
    kiln_tensor_release(make(64 << 20));
    start_counting();
    kiln_tensor *t = make(2 << 20);
    assert_int_equal(counted(), 1);
    kiln_tensor_release(t);
    kiln_trim();
}

static void the_large_block_that_was_used_last_comes_first(void **state) {
    (void)state;
    enum { BLOCKS = 4, BYTES = 3 << 20 };
    kiln_home home[BLOCKS], again;
    void *block[BLOCKS];
    for (int k = 0; k < BLOCKS; k++) assert_non_null(block[k] = kiln_block_take(BYTES, &home[k]));
    for (int k = 0; k < BLOCKS; k++) kiln_block_give_slow(block[k], home[k]);
    for (int k = BLOCKS; k-- > 0;) assert_ptr_equal(kiln_block_take(BYTES, &again), block[k]);
    for (int k = 0; k < BLOCKS; k++) kiln_block_give_slow(block[k], home[k]);
    kiln_blocks_trim();
}

static void large_blocks_begin_where_huge_pages_do(void **state) {
    (void)state;
    kiln_trim();
    kiln_tensor *t = make((16 << 20) + 1);
    assert_int_equal((uintptr_t)t % (2 << 20), 0);
    memset(t->data, 3, (16 << 20) + 1);
    kiln_tensor_release(t);
    kiln_trim();
}

/* -- headers that are ready made ---------------------------------------------------------------------------- */

static const int64_t shapes[][4] = {{4, 8, 1, 1}, {8, 4, 1, 1}, {2, 16, 1, 1}, {32, 1, 1, 1},
                                    {2, 1, 4, 4}, {2, 4, 1, 4}, {1, 1, 1, 1},  {1, 31, 1, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* A tensor made like another is what a new one of that shape is, whatever its block was before. */
static void make_like(const kiln_tensor *like, kiln_dtype dtype, bool then_resize) {
    kiln_tensor_mold mold = kiln_tensor_mold_like(like, dtype, kiln_dtype_size(dtype));
    kiln_tensor *made = kiln_tensor_make(&mold, like), *new;
    assert_non_null(made);
    assert_int_equal(kiln_tensor_new(dtype, like->rank, like->sizes, NULL, &new), KILN_OK);
    assert_true(made->sig == new->sig && made->nelem == new->nelem && made->data_cap == new->data_cap);
    assert_int_equal(atomic_load(&made->refs), 1);
    assert_int_equal(made->rank_cap, new->rank_cap);
    assert_null(made->rooms);
    assert_int_equal(made->home, new->home);
    assert_int_equal(made->data - (char *)made, new->data - (char *)new);
    assert_ptr_equal(made->sizes, made + 1);
    assert_ptr_equal(made->strides, made->sizes + made->rank);
    assert_memory_equal(made->sizes, new->sizes, 2 * (size_t)made->rank * sizeof(int64_t));
    memset(made->data, 3, made->data_cap);
    if (then_resize) assert_int_equal(kiln_tensor_resize(made, 1, DIMS(99), NULL), KILN_OK);
    kiln_tensor_release(new);
    kiln_tensor_release(made);
}

static int ndeleted;
static void count_delete(void *owner) {
    (void)owner;
    ndeleted++;
}

/* Leaves a kept block behind with what was one of many kinds of tensors. */
static void leave_behind(unsigned *seed) {
    static float memory[64];
    const int64_t *sizes = shapes[rand_r(seed) % SHAPES], *others = shapes[rand_r(seed) % SHAPES];
    int rank = 1 + rand_r(seed) % 4, kind = rand_r(seed) % 6, deleted = ndeleted;
    kiln_dtype dtype = rand_r(seed) % 2 ? KILN_F32 : KILN_I32;
    kiln_tensor *t;
    if (kind == 0) {
        assert_int_equal(kiln_tensor_wrap(memory, dtype, rank, sizes, NULL, count_delete, NULL, &t), KILN_OK);
    } else {
        assert_int_equal(kiln_tensor_new(dtype, rank, sizes, NULL, &t), KILN_OK);
        if (kind == 1) kiln_tensor_set_readonly(t);
        if (kind == 2) assert_int_equal(kiln_tensor_resize(t, rank, others, NULL), KILN_OK);
        if (kind == 3) assert_int_equal(kiln_tensor_resize(t, 4, DIMS(9, 9, 1, 1), NULL), KILN_OK);
        if (kind == 4) assert_int_equal(kiln_tensor_reserve(t, 4, DIMS(9, 9, 1, 1), NULL), KILN_OK);
    }
    kiln_tensor_release(kiln_tensor_retain(t));
    kiln_tensor_release(t);
    assert_int_equal(ndeleted - deleted, kind == 0);
}

static void a_kept_header_is_not_taken_for_another(void **state) {
    (void)state;
    unsigned seed = 5;
    for (int run = 0; run < 20000; run++) {
        kiln_tensor *like;
        int rank = rand_r(&seed) % 5;
        const int64_t *sizes = shapes[rand_r(&seed) % SHAPES];
        leave_behind(&seed);
        assert_int_equal(kiln_tensor_new(KILN_F64, rank, sizes, NULL, &like), KILN_OK);
        make_like(like, rand_r(&seed) % 2 ? KILN_F32 : KILN_I32, rand_r(&seed) % 4 == 0);
        kiln_tensor_release(like);
    }
    kiln_trim();
}

/* -- threads ------------------------------------------------------------------------------------------------ */

enum { BATCH = 200, ROUNDS = 50 };

static void *release_batch(void *user) {
    kiln_tensor **t = user;
    for (int k = 0; k < BATCH; k++) kiln_tensor_release(t[k]);
    return NULL;
}

/* Memory made here and released by threads that end finds its way back. */
static void blocks_come_home(void **state) {
    (void)state;
    kiln_tensor *t[BATCH];
    kiln_trim();
    start_counting();
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        for (int k = 0; k < BATCH; k++) t[k] = make(1000);
        assert_int_equal(pthread_create(&thread, NULL, release_batch, t), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    long made = counted();
    assert_true(made < 2 * BATCH + ROUNDS); /* and each thread its lists */
    kiln_trim();
}

static void *own_work(void *user) {
    (void)user;
    for (int k = 0; k < 1000; k++) kiln_tensor_release(make(k * 37 % 5000));
    return NULL;
}

static void a_child_of_fork_goes_on(void **state) {
    (void)state;
    kiln_tensor *t = make(1000);
    pid_t child = fork();
    if (child == 0) {
        own_work(NULL);
        kiln_tensor_release(t);
        kiln_trim();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    kiln_tensor_release(t);
}

#ifdef KILN_ASAN
static void kept_blocks_are_poisoned(void **state) {
    (void)state;
    kiln_tensor *t = make(1000);
    char *data = t->data;
    assert_int_equal(__asan_address_is_poisoned(data + 999), 0);
    assert_int_equal(__asan_address_is_poisoned(data + 1000), 1); /* an overrun is found too */
    kiln_tensor_release(t);
    assert_int_equal(__asan_address_is_poisoned(t), 1);
    assert_int_equal(__asan_address_is_poisoned(data), 1);
    t = make(1000);
    assert_int_equal(__asan_address_is_poisoned(t->data), 0);
    kiln_tensor_release(t);
}
#endif

/* -- borrowed headers ----------------------------------------------------------------------------------------- */

static void a_borrowed_header_says_what_a_wrapped_one_does(void **state) {
    (void)state;
    static double memory[4096];
    static const int64_t some_sizes[] = {0, 1, 1, 2, 3, 4, 5},
                         some_strides[] = {0, 1, 1, 2, 3, 4, 6, 12, 20, -1};
    unsigned seed = 1;
    for (int run = 0; run < 20000; run++) {
        int64_t sizes[5], strides[5];
        kiln_dtype dtype = (kiln_dtype)(rand_r(&seed) % KILN_DTYPE_COUNT);
        int rank = rand_r(&seed) % 6, kind = rand_r(&seed) % 3;
        for (int d = 0; d < rank; d++) sizes[d] = some_sizes[rand_r(&seed) % 7];
        kiln_row_major(rank, sizes, strides);
        for (int d = 0; d < rank && kind == 1; d++) strides[d] = some_strides[rand_r(&seed) % 10];
        kiln_tensor *wrapped, *borrowed;
        kiln_tensor_header header;
        void *data = memory + 2048;
        const int64_t *given = kind == 2 ? NULL : strides;
        assert_int_equal(kiln_tensor_wrap(data, dtype, rank, sizes, given, NULL, NULL, &wrapped), KILN_OK);
        assert_int_equal(kiln_tensor_borrow(&header, data, dtype, rank, sizes, given, 0, &borrowed), KILN_OK);
        assert_true(borrowed->sig == (wrapped->sig | KILN_SIG_FLAGS(KILN_TF_BORROWED)));
        assert_int_equal(borrowed->nelem, wrapped->nelem);
        assert_ptr_equal(borrowed->data, data);
        if (rank) assert_memory_equal(borrowed->sizes, wrapped->sizes, (size_t)rank * 8);
        if (rank) assert_memory_equal(borrowed->strides, wrapped->strides, (size_t)rank * 8);
        kiln_tensor_release(borrowed);
        kiln_tensor_release(wrapped);
    }
}

static void refuses_what_wrapping_refuses(void **state) {
    (void)state;
    kiln_tensor_header h;
    kiln_tensor *t = NULL;
    double memory[4];
    const int64_t *one = DIMS(1), huge = (int64_t)1 << 60;
    assert_int_equal(kiln_tensor_borrow(&h, NULL, KILN_F32, 1, one, one, 0, &t), KILN_E_ARG);
    assert_int_equal(kiln_tensor_borrow(&h, (char *)memory + 1, KILN_F32, 1, one, one, 0, &t), KILN_E_ARG);
    assert_int_equal(kiln_tensor_borrow(&h, memory, KILN_F64, 1, &huge, one, 0, &t), KILN_E_LIMIT);
    assert_int_equal(kiln_tensor_borrow(&h, memory, KILN_F32, 1, DIMS(-1), one, 0, &t), KILN_E_ARG);
    assert_int_equal(kiln_tensor_borrow(&h, memory, KILN_F32, -1, one, one, 0, &t), KILN_E_ARG);
    assert_int_equal(kiln_tensor_borrow(&h, memory, KILN_F32, 65, one, one, 0, &t), KILN_E_LIMIT);
    assert_int_equal(kiln_tensor_borrow(&h, memory, (kiln_dtype)99, 1, one, one, 0, &t), KILN_E_ARG);
    assert_int_equal(kiln_tensor_borrow(&h, memory, KILN_F32, 1, NULL, one, 0, &t), KILN_E_ARG);
    assert_int_equal(kiln_tensor_borrow(&h, NULL, KILN_F32, 1, DIMS(0), one, 0, &t), KILN_OK);
    assert_int_equal(kiln_tensor_borrow(&h, memory, KILN_F32, 1, one, one, 1, &t), KILN_OK);
    assert_true(t->flags & KILN_TF_READONLY);
}

static void a_borrowed_header_is_the_callers(void **state) {
    (void)state;
    kiln_tensor_header h;
    kiln_tensor *t;
    void *dl = NULL;
    float memory[2] = {1, 2};
    assert_int_equal(kiln_tensor_borrow(&h, memory, KILN_F32, 1, DIMS(2), DIMS(1), 0, &t), KILN_OK);
    assert_ptr_equal(t, &h);
    kiln_tensor_release(kiln_tensor_retain(t));
    assert_int_equal(kiln_tensor_to_dlpack(t, &dl), KILN_E_ARG);
    assert_non_null(strstr(kiln_last_error(), "borrowed"));
    assert_int_equal(kiln_tensor_resize(t, 1, DIMS(1), NULL), KILN_E_ARG);
    kiln_tensor_release(t);
    assert_int_equal(kiln_tensor_nelem(t), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_round_up_by_a_quarter_at_most),
        cmocka_unit_test(a_released_block_serves_the_next),
        cmocka_unit_test(trimming_gives_back),
        cmocka_unit_test(what_is_kept_is_bounded),
        cmocka_unit_test(a_kept_header_is_not_taken_for_another),
        cmocka_unit_test(a_kept_block_of_much_more_is_not_used),
        cmocka_unit_test(the_large_block_that_was_used_last_comes_first),
        cmocka_unit_test(large_blocks_begin_where_huge_pages_do),
        cmocka_unit_test(blocks_come_home),
        cmocka_unit_test(a_child_of_fork_goes_on),
#ifdef KILN_ASAN
        cmocka_unit_test(kept_blocks_are_poisoned),
#endif
        cmocka_unit_test(a_borrowed_header_says_what_a_wrapped_one_does),
        cmocka_unit_test(refuses_what_wrapping_refuses),
        cmocka_unit_test(a_borrowed_header_is_the_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
