/* test_cache.c - the table and its epochs alone, over cheap objects: what a reader holds is never dropped,
 * everything is dropped once, bounds and pins hold, and records end with their threads. */
#include <pthread.h>
#include <sched.h>

#include "cache/cache.h"
#include "call_cases.h"

enum { ROUNDS = SANITIZED ? 20000 : 200000, THREADS = 8, KEYS = 10000, BOUND = 16 };
#define ALIVE UINT64_C(0x616c697665)

typedef struct object {
    kiln_entry entry;
    uint64_t alive, key, twice;
} object;

static atomic_long nlive, ndropped;

static void drop(kiln_entry *e) {
    object *o = (object *)e;
    o->alive = o->twice = 0;
    atomic_fetch_sub(&nlive, 1);
    atomic_fetch_add(&ndropped, 1);
    kiln_free(o);
}

static void no_user(void *user) { assert_null(user); }

static object *new_object(uint64_t key) {
    object *o = kiln_calloc(1, sizeof *o);
    assert_non_null(o);
    *o = (object){.alive = ALIVE, .key = key, .twice = 2 * key};
    o->entry.key = &o->key;
    o->entry.n = sizeof o->key;
    o->entry.hash = kiln_hash64(&o->key, sizeof o->key);
    atomic_fetch_add(&nlive, 1);
    return o;
}

static object *look(const kiln_cache *c, uint64_t key) {
    return (object *)kiln_cache_get(c, kiln_hash64(&key, sizeof key), &key, sizeof key);
}

static object *look_or_put(kiln_cache *c, uint64_t key) {
    object *o = look(c, key);
    if (o) return o;
    kiln_entry *winner = NULL;
    o = new_object(key);
    if (kiln_cache_put(c, &o->entry, &winner) != KILN_OK) return NULL;
    if (winner != &o->entry) drop(&o->entry);
    return (object *)winner;
}

typedef struct fixture {
    kiln_epochs epochs;
    kiln_cache *cache;
    atomic_int wrong;
    atomic_bool stop;
} fixture;

static void begin(fixture *f, size_t bound) {
    memset(f, 0, sizeof *f);
    atomic_store(&nlive, 0);
    atomic_store(&ndropped, 0);
    MUST_OK(kiln_epochs_init(&f->epochs, NULL, no_user));
    MUST_OK(kiln_cache_new(&f->epochs, bound, drop, &f->cache));
}

static void finish(fixture *f) {
    kiln_cache_free(f->cache);
    kiln_epochs_fini(&f->epochs);
    assert_int_equal(atomic_load(&nlive), 0);
    assert_int_equal(atomic_load(&f->wrong), 0);
}

/* -- one thread --------------------------------------------------------------------------------------- */

static void growing_keeps_everything(void **state) {
    (void)state;
    fixture f;
    begin(&f, 1 << 20);
    kiln_thread *t = kiln_thread_of(&f.epochs);
    for (uint64_t k = 0; k < KEYS; k++) {
        kiln_thread_enter(&f.epochs, t);
        object *o = look_or_put(f.cache, k);
        assert_non_null(o);
        assert_ptr_equal(look(f.cache, k), o);
        kiln_thread_leave(t);
    }
    assert_int_equal(kiln_cache_count(f.cache), KEYS);
    kiln_thread_enter(&f.epochs, t);
    for (uint64_t k = 0; k < KEYS; k++) assert_int_equal(look(f.cache, k)->twice, 2 * k);
    assert_null(look(f.cache, KEYS));
    kiln_thread_leave(t);
    assert_int_equal(atomic_load(&ndropped), 0);
    finish(&f);
}

/* A bound of 16; what is looked at between any two inserts stays, what is pinned stays. */
static void the_used_and_the_pinned_stay(void **state) {
    (void)state;
    fixture f;
    begin(&f, BOUND);
    kiln_thread *t = kiln_thread_of(&f.epochs);
    kiln_thread_enter(&f.epochs, t);
    object *pinned = look_or_put(f.cache, 1000000), *used = look_or_put(f.cache, 1000001);
    assert_true(kiln_cache_pin(f.cache, &pinned->entry));
    kiln_thread_leave(t);
    for (uint64_t k = 0; k < KEYS; k++) {
        kiln_thread_enter(&f.epochs, t);
        assert_non_null(look_or_put(f.cache, k));
        assert_ptr_equal(look(f.cache, 1000001), used);
        kiln_thread_leave(t);
        assert_true(kiln_cache_count(f.cache) <= BOUND);
    }
    assert_int_equal(pinned->alive, ALIVE);
    assert_int_equal(kiln_count_sum(&f.epochs, KILN_COUNTER_evictions), KEYS + 2 - BOUND);
    assert_true(atomic_load(&nlive) < 4 * BOUND); /* not all kept until the end */
    kiln_cache_unpin(f.cache, &pinned->entry);
    finish(&f);
}

/* All pinned: the bound gives way, and is kept again when the pins are gone. */
static void pins_beat_the_bound(void **state) {
    (void)state;
    fixture f;
    object *held[3 * BOUND];
    begin(&f, BOUND);
    kiln_thread *t = kiln_thread_of(&f.epochs);
    kiln_thread_enter(&f.epochs, t);
    for (uint64_t k = 0; k < 3 * BOUND; k++) {
        held[k] = look_or_put(f.cache, k);
        assert_true(kiln_cache_pin(f.cache, &held[k]->entry));
    }
    assert_int_equal(kiln_cache_count(f.cache), 3 * BOUND);
    for (int k = 0; k < 3 * BOUND; k++) kiln_cache_unpin(f.cache, &held[k]->entry);
    assert_non_null(look_or_put(f.cache, 5000));
    assert_int_equal(kiln_cache_count(f.cache), BOUND);
    int out = 0;
    for (int k = 0; k < 3 * BOUND; k++) {
        if (look(f.cache, (uint64_t)k)) continue;
        assert_false(kiln_cache_pin(f.cache, &held[k]->entry)); /* evicted, not yet dropped: we are inside */
        assert_int_equal(held[k]->alive, ALIVE);
        out++;
    }
    assert_int_equal(out, 2 * BOUND + 1);
    kiln_thread_leave(t);
    finish(&f);
}

/* A put that finds no memory for a larger table leaves the cache as it was. */
static void growing_without_memory(void **state) {
    (void)state;
    fixture f;
    bool failed = false;
    begin(&f, 1 << 20);
    kiln_thread *t = kiln_thread_of(&f.epochs);
    kiln_thread_enter(&f.epochs, t);
    for (uint64_t k = 0; k < 1000; k++) {
        object *o = new_object(k);
        kiln_entry *winner = NULL;
        kiln_alloc_fail_after(1);
        kiln_status st = kiln_cache_put(f.cache, &o->entry, &winner);
        (void)kiln_alloc_fail_after(0);
        if (st != KILN_OK) {
            failed = true;
            assert_int_equal(st, KILN_E_NOMEM);
            assert_null(look(f.cache, k));
            MUST_OK(kiln_cache_put(f.cache, &o->entry, &winner));
        }
        assert_ptr_equal(winner, &o->entry);
    }
    kiln_thread_leave(t);
    assert_true(failed);
    assert_int_equal(kiln_cache_count(f.cache), 1000);
    finish(&f);
}

/* -- many threads --------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

/* As kiln_call enters. */
static kiln_thread *enter(fixture *f) {
    if (kiln_thread_last.id == f->epochs.id) {
        (void)kiln_thread_enter_unfenced(&f->epochs, kiln_thread_last.record);
        return kiln_thread_last.record;
    }
    kiln_thread *t = kiln_thread_of(&f->epochs);
    if (t) kiln_thread_enter(&f->epochs, t);
    return t;
}

static void *hammer(void *user) {
    fixture *f = user;
    uint64_t random = (uint64_t)(uintptr_t)&random;
    for (int k = 0; k < ROUNDS; k++) {
        kiln_thread *t = enter(f);
        uint64_t key = next_random(&random) % KEYS;
        if (key % 4 == 0) key %= 8; /* some are hot */
        if (!t) return NULL;
        object *o = look_or_put(f->cache, key);
        if (key % 1024 == 0) sched_yield();
        if (!o || o->alive != ALIVE || o->key != key || o->twice != 2 * key) atomic_fetch_add(&f->wrong, 1);
        kiln_thread_leave(t);
    }
    return NULL;
}

static void *end_at_once(void *unused) { return unused; }

static void await_registration(void) {
    while (atomic_load(&kiln_readers_fence)) sched_yield();
}

/* fences: in every reader, until a thread in the background has registered the process; `ever`: for ever. */
static void check_readers(bool fences, bool ever) {
    fixture f;
    pthread_t threads[THREADS], other;
    if (fences) {
        assert_int_equal(pthread_create(&other, NULL, end_at_once, NULL),
                         0); /* for registration to take time */
        atomic_store(&kiln_readers_fence, true);
        kiln_thread_last = (kiln_thread_cursor){0, NULL};
    }
    begin(&f, BOUND);
    if (ever) await_registration();
    if (ever) atomic_store(&kiln_readers_fence, true);
    for (int k = 0; k < THREADS; k++) assert_int_equal(pthread_create(&threads[k], NULL, hammer, &f), 0);
    for (int k = 0; k < THREADS; k++) assert_int_equal(pthread_join(threads[k], NULL), 0);
    assert_true(kiln_cache_count(f.cache) <= BOUND);
    assert_true(kiln_count_sum(&f.epochs, KILN_COUNTER_evictions) > ROUNDS / 2); /* ended threads' counts */
    assert_null(f.epochs.threads);
    finish(&f);
    if (fences) assert_int_equal(pthread_join(other, NULL), 0);
    if (ever) atomic_store(&kiln_readers_fence, false);
}

static void no_reader_loses_what_it_holds(void **state) {
    (void)state;
    check_readers(false, false);
}

/* As where membarrier is missing. */
static void no_reader_loses_it_with_fences(void **state) {
    (void)state;
    check_readers(true, true);
}

/* As in a process with threads, from its first call on. */
static void no_reader_loses_it_as_fences_end(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) check_readers(true, false);
    await_registration();
}

/* One thread stays inside: what it may have seen stays; when it leaves, it goes. */
static void *stay_inside(void *user) {
    fixture *f = user;
    kiln_thread *t = kiln_thread_of(&f->epochs);
    kiln_thread_enter(&f->epochs, t);
    object *o = look_or_put(f->cache, 7);
    atomic_store(&f->wrong, 1); /* tells that it is inside */
    while (!atomic_load(&f->stop)) sched_yield();
    if (o->alive == ALIVE && o->twice == 14) atomic_store(&f->wrong, 0);
    kiln_thread_leave(t);
    return NULL;
}

static void a_long_reader_holds_back_the_drops(void **state) {
    (void)state;
    fixture f;
    pthread_t thread;
    begin(&f, BOUND);
    assert_int_equal(pthread_create(&thread, NULL, stay_inside, &f), 0);
    while (!atomic_load(&f.wrong)) sched_yield();
    kiln_thread *t = kiln_thread_of(&f.epochs);
    for (uint64_t k = 1000; k < 2000; k++) {
        kiln_thread_enter(&f.epochs, t);
        assert_non_null(look_or_put(f.cache, k));
        kiln_thread_leave(t);
    }
    assert_int_equal(atomic_load(&ndropped), 0);
    atomic_store(&f.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    kiln_epochs_reclaim(&f.epochs);
    assert_int_equal(atomic_load(&ndropped), 1001 - BOUND);
    finish(&f);
}

/* Threads that come and go, over epochs that come and go: no record is left, none is freed twice. */
static void *visit(void *user) {
    kiln_epochs *all = user;
    for (int k = 0; k < 8; k++) kiln_count(&all[k % 4], KILN_COUNTER_calls, 1);
    return NULL;
}

static void records_end_with_threads_and_domains(void **state) {
    (void)state;
    kiln_epochs all[4];
    for (int round = 0; round < 20; round++) {
        pthread_t threads[THREADS];
        for (int k = 0; k < 4; k++) MUST_OK(kiln_epochs_init(&all[k], NULL, no_user));
        for (int k = 0; k < THREADS; k++) assert_int_equal(pthread_create(&threads[k], NULL, visit, all), 0);
        (void)visit(all);
        for (int k = 0; k < THREADS; k++) assert_int_equal(pthread_join(threads[k], NULL), 0);
        for (int k = 0; k < 4; k++) {
            assert_int_equal(kiln_count_sum(&all[k], KILN_COUNTER_calls), 2 * (THREADS + 1));
            assert_true(all[k].threads && !all[k].threads->next); /* this thread's own */
            kiln_epochs_fini(&all[k]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growing_keeps_everything),
        cmocka_unit_test(the_used_and_the_pinned_stay),
        cmocka_unit_test(pins_beat_the_bound),
        cmocka_unit_test(growing_without_memory),
        cmocka_unit_test(no_reader_loses_what_it_holds),
        cmocka_unit_test(no_reader_loses_it_with_fences),
        cmocka_unit_test(no_reader_loses_it_as_fences_end),
        cmocka_unit_test(a_long_reader_holds_back_the_drops),
        cmocka_unit_test(records_end_with_threads_and_domains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
