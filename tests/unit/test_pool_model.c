/* test_pool_model.c - the pool's own code on a machine of up to 64 cores, with a clock of its own.
 *
 * Workers and caller are coroutines, each on a core of its own; what pool.c asks of the system takes as long as was measured
 * on real machines, and only there another one goes on: whose time is least.  So schedules that two real cores never
 * show are seen, and the same ones every time.  Not under sanitizers: they do not follow coroutines. */
#define KILN_POOL_OS_H /* instead of src/run/pool_os.h */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <cmocka.h>

#include "base/base.h"

enum {
    CORES = 65,
    STACK = 64 * 1024,
    LOOK_NS = 20, /* at the clock */
    PAUSE_NS = 40,
    WAKE_NS = 3000,          /* what waking one costs */
    WAKE_LATENCY_NS = 25000, /* until the one that was woken runs */
    START_NS = 15000,
    PART_NS = 10000
};

typedef enum core_state { FREE, READY, SLEEPING, ENDED } core_state;

typedef struct core {
    ucontext_t context;
    char *stack;
    core_state state;
    int64_t now;
    _Atomic uint32_t *word; /* that it sleeps on */
    void *(*run)(void *);
    void *arg;
    int64_t woken, worked, left; /* woken last; time in parts; when it left its last part */
    int64_t latency;             /* of being woken */
    int64_t held_up;             /* in its next part */
    bool beside_caller;          /* the system has put its thread on the caller's CPU */
} core;

static core cores[CORES];
static int here, nwakes;

/* The one whose time is least goes on. */
static void yield(void) {
    int from = here, next = -1;
    for (int k = 0; k < CORES; k++)
        if (cores[k].state == READY && (next < 0 || cores[k].now < cores[next].now)) next = k;
    assert_true(next >= 0); /* else all wait for each other */
    if (next == from) return;
    here = next;
    swapcontext(&cores[from].context, &cores[next].context);
}

static void spend(int64_t ns) {
    cores[here].now += ns;
    yield();
}

static int64_t os_now(void) { return cores[here].now += LOOK_NS; }
static void os_pause(void) { spend(PAUSE_NS); }

static void os_sleep(_Atomic uint32_t *word, uint32_t value) {
    core *me = &cores[here];
    if (atomic_load(word) != value) return;
    me->word = word;
    me->state = SLEEPING;
    yield();
}

static void os_wake(_Atomic uint32_t *word) {
    nwakes++;
    cores[here].now += WAKE_NS;
    for (int k = 0; k < CORES; k++) {
        core *c = &cores[k];
        if (c->state != SLEEPING || c->word != word) continue;
        c->now = c->woken = cores[here].now + c->latency;
        c->state = READY;
        return;
    }
}

static void begin(void) {
    core *me = &cores[here];
    me->run(me->arg);
    me->state = ENDED;
    yield();
}

static bool os_start(pthread_t *out, void *(*run)(void *), void *arg) {
    for (int k = 1; k < CORES; k++) {
        core *c = &cores[k];
        if (c->state == READY || c->state == SLEEPING) continue;
        *c = (core){.state = READY, .stack = c->stack, .run = run, .arg = arg, .latency = WAKE_LATENCY_NS};
        if (!c->stack) c->stack = malloc(STACK);
        assert_non_null(c->stack);
        getcontext(&c->context);
        c->context.uc_stack.ss_sp = c->stack;
        c->context.uc_stack.ss_size = STACK;
        makecontext(&c->context, begin, 0);
        cores[here].now += START_NS;
        c->now = c->woken = cores[here].now + WAKE_LATENCY_NS;
        *out = (pthread_t)k;
        return true;
    }
    return false;
}

static void os_name(const char *name) { assert_true(strlen(name) < 16); }

static int os_cpu(void) { return cores[here].beside_caller ? 0 : here; }

static void os_leave_cpu(int cpu) {
    assert_int_equal(cpu, 0);
    assert_true(cores[here].beside_caller);
    cores[here].beside_caller = false;
}

static void os_join(pthread_t thread) {
    while (cores[(int)thread].state != ENDED) spend(PAUSE_NS);
}

#include "../../src/run/pool.c"

/* -- loops ------------------------------------------------------------------------------------------- */

static int64_t first_part,
    last_part; /* of the caller: when it began its first; of all: when the last was begun */
static int nparts_run;
static int by[16]; /* which core ran the part */

static void part(void *user, int64_t k) {
    core *me = &cores[here];
    (void)user;
    if (k < 16) by[k] = here;
    if (here == 0 && !first_part) first_part = me->now;
    if (me->now > last_part) last_part = me->now;
    int64_t ns = PART_NS + me->held_up;
    me->held_up = 0;
    nparts_run++;
    me->worked += ns;
    spend(ns);
    me->left = me->now;
}

/* What it took the caller. */
static int64_t run_loop(int threads, int64_t nparts) {
    kiln_parallel how = {.threads = threads};
    for (int k = 0; k < CORES; k++) cores[k].worked = 0;
    first_part = last_part = nwakes = nparts_run = 0;
    int64_t start = cores[0].now;
    kiln_pool_for(&how, threads, nparts, part, NULL);
    assert_int_equal(nparts_run, nparts);
    return cores[0].now - start;
}

/* The caller does something else; the others have the time. */
static void rest(int64_t ns) {
    int64_t until = cores[0].now + ns;
    while (cores[0].now < until) spend(PAUSE_NS);
}

static int open_pool(void **state) {
    (void)state;
    cores[0] = (core){.state = READY, .latency = WAKE_LATENCY_NS};
    here = 0;
    kiln_pool_retain();
    return 0;
}

static int close_pool(void **state) {
    (void)state;
    kiln_pool_release();
    for (int k = 1; k < CORES; k++) {
        free(cores[k].stack);
        cores[k] = (core){0};
    }
    return 0;
}

static int levels(int workers) {
    int n = 0;
    for (int64_t reached = 0, wave = KILN_CPU_POOL_FAN; reached < workers;
         reached += wave, wave *= KILN_CPU_POOL_FAN)
        n++;
    return n;
}

/* -- what must hold ---------------------------------------------------------------------------------- */

/* Waking all costs the caller three wakes, each is awake as soon as the tree allows, and works until no part is left. */
static void sleepers_are_woken_by_each_other(void **state) {
    (void)state;
    static const int threads[] = {2, 3, 5, 16, 64};
    for (int t = 0; t < 5; t++) {
        int n = threads[t], workers = n - 1;
        run_loop(n, 100 * n); /* starts them */
        rest(1000000);
        int64_t start = cores[0].now;
        int64_t took = run_loop(n, 200 * n);
        assert_in_range(first_part - start, 0, 3 * WAKE_NS + 1000);
        assert_int_equal(nwakes, workers);
        int64_t latest = start + levels(workers) * (WAKE_LATENCY_NS + KILN_CPU_POOL_FAN * WAKE_NS + 2000);
        for (int k = 1; k <= workers; k++) {
            assert_in_range(cores[k].woken, start, latest);
            int64_t idle = last_part - cores[k].woken - cores[k].worked; /* while parts waited */
            assert_true(idle <= (int64_t)KILN_CPU_POOL_FAN * WAKE_NS + 2000);
        }
        assert_true(took <= (200 * PART_NS) + (latest - start) + 2 * PART_NS);
    }
}

/* Who looks out needs no waking, and a loop that follows another costs next to nothing. */
static void loops_that_follow_wake_nobody(void **state) {
    (void)state;
    run_loop(16, 400);
    rest(1000000);
    run_loop(16, 1000);
    for (int k = 0; k < 20; k++) {
        rest(10000);
        int64_t took = run_loop(16, 16);
        assert_int_equal(nwakes, 0);
        assert_in_range(took, PART_NS, PART_NS + 700);
    }
}

/* Of loops over the same memory each thread has the same part again: its cache holds it. */
static void a_thread_meets_its_parts_again(void **state) {
    int before[16];
    (void)state;
    run_loop(4, 400);
    for (int n = 0; n < 5; n++) {
        run_loop(4, 16);
        if (n > 0) assert_memory_equal(by, before, sizeof by);
        memcpy(before, by, sizeof by);
    }
    for (int k = 0; k < 16; k++) assert_int_equal(by[k], by[k / 4 * 4]);
}

/* A worker that is held up in a part, or long in waking, holds up nobody but its part. */
static void one_that_is_held_up_costs_its_part(void **state) {
    (void)state;
    run_loop(16, 400);
    rest(1000000);
    run_loop(16, 1000);
    cores[3].held_up = 4000000;
    int64_t took = run_loop(16, 1600);
    assert_in_range(took, 4000000, 4000000 + 3 * PART_NS + 2 * WAKE_LATENCY_NS);
    rest(1000000);
    for (int k = 1; k < 16; k += 5) cores[k].latency = 50000000;
    took = run_loop(16, 160);
    assert_true(took < 160 * PART_NS / 4);
}

/* Loops inside parts run in their thread alone; more threads than workers can be had do no harm. */
static void nested_part(void *user, int64_t k) {
    kiln_parallel how = {.threads = 8};
    (void)user, (void)k;
    kiln_pool_for(&how, 8, 4, part, NULL);
}

static void nested_loops_end(void **state) {
    (void)state;
    kiln_parallel how = {.threads = 16};
    nparts_run = 0;
    kiln_pool_for(&how, 16, 30, nested_part, NULL);
    assert_int_equal(nparts_run, 120);
    run_loop(500, 3000);
}

/* Small work wakes nobody by itself, but does when it comes again and again. */
/* Before it looks out, and so before it is asleep and woken there again. */
static void a_worker_leaves_the_cpu_of_the_caller(void **state) {
    (void)state;
    run_loop(4, 8);
    for (int k = 1; k < 4; k++) assert_false(cores[k].beside_caller);
    rest(1000000);
    for (int k = 1; k < 4; k++) cores[k].beside_caller = true;
    run_loop(4, 64);
    rest(1000000);
    for (int k = 1; k < 4; k++) assert_false(cores[k].beside_caller);
}

static void work_that_comes_again_is_shared(void **state) {
    (void)state;
    kiln_parallel how = {.threads = 4};
    run_loop(4, 100);
    rest(1000000);
    assert_int_equal(kiln_pool_threads(&how, 4000), 1);
    assert_int_equal(kiln_pool_threads(&how, 30000), 1);
    assert_int_equal(kiln_pool_threads(&how, 100000), 4);
    rest(1000000);
    int shared = 0;
    for (int k = 0; k < 50; k++) {
        int threads = kiln_pool_threads(&how, 4 * PART_NS);
        shared += threads > 1;
        run_loop(threads, 4);
    }
    assert_in_range(shared, 40, 49);
    for (int k = 0; k < 50; k++) { /* seldom: never worth it */
        rest(200000);
        assert_int_equal(kiln_pool_threads(&how, 4 * PART_NS), 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sleepers_are_woken_by_each_other, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(loops_that_follow_wake_nobody, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_thread_meets_its_parts_again, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(one_that_is_held_up_costs_its_part, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(nested_loops_end, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_worker_leaves_the_cpu_of_the_caller, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(work_that_comes_again_is_shared, open_pool, close_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
