/* pool.c - Kiln's own threads for loops, one set per process.
 *
 * One loop runs at a time.  It is open from when the caller has described it until the caller finds no part left; workers
 * that come meanwhile go inside and take parts, and the caller waits for those who are inside, and for nobody else.  Each
 * thread begins at a place of its own, so that of loops over the same memory it meets the same part again.  A worker that has left looks out for the next loop for a moment, since one often follows, and then goes
 * to sleep.  Who wakes sleepers wakes a few, and leaves the rest for these to wake: a caller pays for three however many
 * come.  Workers take no signals of the host's.  In a forked child there are none: the first loop starts new ones. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "run/cpus.h"
#include "run/modes.h"
#include "run/pool.h"
#ifndef KILN_POOL_OS_H
#include "run/pool_os.h"
#endif

enum {
    WORKERS_MAX = 255,
    WORDS = (WORKERS_MAX + 64) / 64, /* of a set of workers */
    FAN = 3,                         /* sleepers that one thread wakes, or new ones that it starts */
    LOOK_OUT_NS = 30 * 1000,         /* a worker that has left a loop waits so long before it sleeps */
    LINGER_NS = 20 * 1000,           /* a caller waits so long for those inside before it sleeps */
    GLANCES = 32,                    /* pauses between two looks at the clock */
    FIRST_WORDS = 4,                 /* of a set of parts */
    FIRST_PARTS = 64 * FIRST_WORDS,  /* that threads choose among; more are taken in their order */
    LINE = 64                        /* bytes of a cache line: what different threads write lies apart */
};
/* Work that is worth waking sleepers for: of one loop, or of loops that follow each other closely. */
#define WAKE_WORTH_NS (60 * INT64_C(1000))
#define HOST_WORTH_NS (40 * INT64_C(1000)) /* worth a host's pool, of which nothing is known */
#define SHARE_NS (INT64_C(1750))           /* least work for each thread more */

/* The gate: all that workers and caller tell each other, in one word, since every line of memory that goes from one to the
 * other costs a tenth of a microsecond.  Its highest bits count loops, so that a worker goes into each once. */
#define INSIDE UINT64_C(0xfff)    /* workers inside */
#define ROOM_ONE UINT64_C(0x1000) /* that may still come */
#define ROOM UINT64_C(0xfff000)
#define OPEN UINT64_C(0x1000000)
#define AWAITED UINT64_C(0x2000000)     /* the caller sleeps until nobody is inside */
#define LOOKING_ONE (UINT64_C(1) << 32) /* workers that look out for a loop */
#define LOOKING (UINT64_C(0xfff) << 32)
#define LOOP_ONE (UINT64_C(1) << 44)

typedef struct workers_set {
    uint64_t bits[WORDS];
} workers_set;

typedef struct worker {
    _Alignas(LINE) _Atomic uint32_t asleep; /* 1: until somebody makes it 0 */
    workers_set wakes; /* whom it has to wake when it is woken; written before asleep is 0 */
    pthread_t thread;
} worker;

typedef struct loop {
    kiln_part_fn body;
    void *user;
    int64_t nparts;
    int nthreads;
    kiln_modes modes; /* of the caller */
} loop;

static struct {
    _Alignas(LINE) _Atomic uint64_t gate;
    loop now; /* written while the gate is closed and nobody inside; who sees the gate open has it, too */
    _Alignas(LINE) _Atomic uint64_t taken[FIRST_WORDS]; /* of the first parts */
    _Atomic int64_t next;                               /* of those after */
    _Alignas(LINE) _Atomic uint64_t sleeping[WORDS];
    _Alignas(LINE) atomic_int caller_cpu; /* of the last loop; -1: not known */
    atomic_bool ending;
    atomic_int nworkers;
    int wanted;           /* workers that are to be started; under the lock */
    pthread_mutex_t lock; /* over starting and ending */
    worker workers[WORKERS_MAX];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .caller_cpu = -1};

static atomic_bool busy;                                       /* a loop of some caller has the pool */
static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER; /* taken before the pool's */
static int nusers;

/* -- waking ------------------------------------------------------------------------------------------ */

/* Takes up to n of those who sleep; whoever takes a worker has to wake it.  Returns how many. */
static int take_sleepers(int n, workers_set *out) {
    int taken = 0;
    for (int w = 0; w < WORDS; w++) {
        uint64_t there = atomic_load(&pool.sleeping[w]), want = 0;
        for (; there && taken + __builtin_popcountll(want) < n; there &= there - 1) want |= there & -there;
        out->bits[w] = want ? want & atomic_fetch_and(&pool.sleeping[w], ~want) : 0;
        taken += __builtin_popcountll(out->bits[w]);
    }
    return taken;
}

static int take_first(workers_set *set) {
    for (int w = 0; w < WORDS; w++) {
        if (!set->bits[w]) continue;
        int k = __builtin_ctzll(set->bits[w]);
        set->bits[w] &= set->bits[w] - 1;
        return 64 * w + k;
    }
    return -1;
}

/* Wakes FAN of the set, and has these wake the others. */
static void wake_set(workers_set *set) {
    int first[FAN], n = 0;
    while (n < FAN && (first[n] = take_first(set)) >= 0)
        memset(&pool.workers[first[n++]].wakes, 0, sizeof *set);
    for (int k = 0, other; n > 0 && (other = take_first(set)) >= 0; k = (k + 1) % n)
        pool.workers[first[k]].wakes.bits[other / 64] |= UINT64_C(1) << other % 64;
    for (int k = 0; k < n; k++) {
        worker *w = &pool.workers[first[k]];
        atomic_store_explicit(&w->asleep, 0, memory_order_release);
        os_wake(&w->asleep);
    }
}

/* -- parts ------------------------------------------------------------------------------------------- */

static int first_parts(const loop *l) { return l->nparts < FIRST_PARTS ? (int)l->nparts : FIRST_PARTS; }

static void leave_all_parts(const loop *l) {
    for (int w = 0; w < FIRST_WORDS; w++) {
        int n = first_parts(l) - 64 * w;
        uint64_t none = n >= 64 ? 0 : n <= 0 ? UINT64_MAX : UINT64_MAX << n;
        atomic_store_explicit(&pool.taken[w], none, memory_order_relaxed);
    }
    atomic_store_explicit(&pool.next, FIRST_PARTS, memory_order_relaxed);
}

/* Takes one of the first parts that nobody has, from `from` on and then from the beginning; -1: there is none left. */
static int take_first_part(int from) {
    uint64_t after = UINT64_MAX << from % 64;
    for (int k = 0; k <= FIRST_WORDS; k++, after = UINT64_MAX) {
        int w = (from / 64 + k) % FIRST_WORDS;
        uint64_t there = atomic_load_explicit(&pool.taken[w], memory_order_relaxed);
        for (uint64_t left; (left = ~there & after) != 0;) {
            uint64_t bit = left & -left;
            there = atomic_fetch_or_explicit(&pool.taken[w], bit, memory_order_relaxed);
            if (!(there & bit)) return 64 * w + __builtin_ctzll(bit);
        }
    }
    return -1;
}

/* All that is left, beginning at the place of this one among the loop's threads. */
static void run_parts(int thread) {
    const loop l = pool.now; /* others write to its line */
    int at = thread % l.nthreads * first_parts(&l) / l.nthreads;
    while ((at = take_first_part(at)) >= 0) l.body(l.user, at);
    if (l.nparts <= FIRST_PARTS) return;
    for (int64_t k; (k = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed)) < l.nparts;)
        l.body(l.user, k);
}

static void help(int me) {
    kiln_modes own = kiln_modes_get();
    kiln_modes_set(pool.now.modes);
    run_parts(1 + me);
    kiln_modes_set(own);
}

/* One that looks out goes inside, unless the loop is closed, full, or was gone into before. */
static bool go_inside(uint64_t *seen) {
    uint64_t g = atomic_load(&pool.gate);
    while ((g & OPEN) && (g & ROOM) && g / LOOP_ONE != *seen) {
        if (!atomic_compare_exchange_weak(&pool.gate, &g, g + 1 - ROOM_ONE - LOOKING_ONE)) continue;
        *seen = g / LOOP_ONE;
        return true;
    }
    return false;
}

/* What a caller sleeps on: the gate's low word. */
static _Atomic uint32_t *gate_word(void) {
    return (_Atomic uint32_t *)&pool.gate + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

/* Leaves the loop, and looks out for the next one. */
static void go_outside(void) {
    uint64_t g = atomic_fetch_add(&pool.gate, LOOKING_ONE - 1);
    if ((g & INSIDE) == 1 && (g & AWAITED)) os_wake(gate_word());
}

/* -- workers ----------------------------------------------------------------------------------------- */

/* Systems may wake a worker on the CPU of the caller although another is idle.  It would have to wait for the caller there, and
 * the caller for it while it looks out: it goes elsewhere, and is woken there the next time. */
static void leave_caller(void) {
    int cpu = atomic_load_explicit(&pool.caller_cpu, memory_order_relaxed);
    if (cpu >= 0 && os_cpu() == cpu) os_leave_cpu(cpu);
}

/* Whether a worker that looked out is inside the next loop; false: a while has passed, and it looks out no more. */
static bool look_out(uint64_t *seen) {
    int64_t until = 0;
    leave_caller();
    do {
        for (int k = 0; k < GLANCES && !atomic_load(&pool.ending); k++) {
            if (go_inside(seen)) return true;
            os_pause();
        }
        if (!until) until = os_now() + LOOK_OUT_NS;
    } while (!atomic_load(&pool.ending) && os_now() < until);
    atomic_fetch_sub(&pool.gate, LOOKING_ONE);
    return false;
}

/* Sleeps until woken, and wakes whom it was told to.  A loop that is opened meanwhile is seen: the gate is looked at after
 * the worker is known to sleep, and callers look for sleepers after they have opened it. */
static void go_to_sleep(int me, uint64_t seen) {
    worker *w = &pool.workers[me];
    uint64_t bit = UINT64_C(1) << me % 64, g;
    atomic_store(&w->asleep, 1);
    atomic_fetch_or(&pool.sleeping[me / 64], bit);
    g = atomic_load(&pool.gate);
    bool stay = !atomic_load(&pool.ending) && !((g & OPEN) && (g & ROOM) && g / LOOP_ONE != seen);
    if (!stay && (atomic_fetch_and(&pool.sleeping[me / 64], ~bit) & bit)) return; /* nobody will wake it */
    while (atomic_load_explicit(&w->asleep, memory_order_acquire)) os_sleep(&w->asleep, 1);
    wake_set(&w->wakes);
}

static void start_workers(void);

static void *work(void *arg) {
    int me = (int)((worker *)arg - pool.workers);
    uint64_t seen = 0;
    start_workers();
    while (!atomic_load(&pool.ending)) {
        atomic_fetch_add(&pool.gate, LOOKING_ONE);
        while (look_out(&seen)) {
            help(me);
            go_outside();
        }
        go_to_sleep(me, seen);
    }
    return NULL;
}

/* A few of those that are wanted; the new ones start the others.  As many as can be had: the caller works anyway. */
static void start_workers(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&pool.lock);
    for (int k = 0, n;
         k < FAN && (n = atomic_load(&pool.nworkers)) < pool.wanted && !atomic_load(&pool.ending); k++) {
        if (!os_start(&pool.workers[n].thread, work, &pool.workers[n])) break;
        atomic_store(&pool.nworkers, n + 1);
    }
    pthread_mutex_unlock(&pool.lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void want_workers(int n) {
    if (atomic_load_explicit(&pool.nworkers, memory_order_relaxed) >= n) return;
    pthread_mutex_lock(&pool.lock);
    if (pool.wanted < n) pool.wanted = n;
    pthread_mutex_unlock(&pool.lock);
    start_workers();
}

/* -- loops ------------------------------------------------------------------------------------------- */

/* Waits until nobody is inside the loop, which is closed. */
static void wait_for_inside(void) {
    int64_t until = 0;
    for (int k = 1; atomic_load_explicit(&pool.gate, memory_order_acquire) & INSIDE; k++) {
        os_pause();
        if (k % GLANCES) continue;
        if (!until) until = os_now() + LINGER_NS;
        if (os_now() < until) continue;
        uint64_t g = atomic_fetch_or(&pool.gate, AWAITED) | AWAITED;
        while (g & INSIDE) {
            os_sleep(gate_word(), (uint32_t)g);
            g = atomic_load(&pool.gate);
        }
        atomic_fetch_and(&pool.gate, ~AWAITED);
    }
}

/* Opens the gate for so many; returns how many do not look out for it. */
static int open_gate(int helpers) {
    uint64_t g = atomic_load_explicit(&pool.gate, memory_order_relaxed), opened;
    do opened = g / LOOP_ONE * LOOP_ONE + LOOP_ONE + (g & LOOKING) + OPEN + (uint64_t)helpers * ROOM_ONE;
    while (!atomic_compare_exchange_weak(&pool.gate, &g, opened));
    return helpers - (int)((g & LOOKING) / LOOKING_ONE);
}

static void run_pooled(int helpers, int64_t nparts, kiln_part_fn body, void *user) {
    workers_set set;
    want_workers(helpers);
    pool.now = (loop){
        .body = body, .user = user, .nparts = nparts, .nthreads = 1 + helpers, .modes = kiln_modes_get()};
    atomic_store_explicit(&pool.caller_cpu, os_cpu(), memory_order_relaxed);
    leave_all_parts(&pool.now);
    int missing = open_gate(helpers);
    if (missing > 0 && take_sleepers(missing, &set) > 0) wake_set(&set);
    run_parts(0);
    atomic_fetch_and(&pool.gate, ~(OPEN | ROOM));
    wait_for_inside();
}

/* -- how many threads -------------------------------------------------------------------------------- */

static _Thread_local int limit; /* of threads for the loops of this one; 0: none */

int kiln_threads_limit(int n) {
    int was = limit;
    limit = n > 0 ? n : 0;
    return was;
}

int kiln_pool_most(const kiln_parallel *how) {
    int most = limit && limit < how->threads ? limit : how->threads;
    if (most > 1 && how->counted && most > kiln_cpus_allowed()) most = kiln_cpus_allowed();
    return most <= WORKERS_MAX ? most : WORKERS_MAX + 1;
}

/* Work that sleepers were not woken for, of loops that came so soon after each other that a worker would have looked out for
 * each from the last.  Together they are worth it. */
static bool comes_again(int64_t work_ns) {
    static _Atomic int64_t last_end, missed;
    int64_t now = os_now();
    bool soon = now - atomic_load_explicit(&last_end, memory_order_relaxed) < LOOK_OUT_NS;
    int64_t sum = work_ns + (soon ? atomic_load_explicit(&missed, memory_order_relaxed) : 0);
    atomic_store_explicit(&last_end, now + work_ns, memory_order_relaxed);
    atomic_store_explicit(&missed, sum < WAKE_WORTH_NS ? sum : 0, memory_order_relaxed);
    return sum >= WAKE_WORTH_NS;
}

int kiln_pool_threads(const kiln_parallel *how, int64_t work_ns) {
    if (work_ns < KILN_POOL_LEAST_NS) return 1;
    int most = kiln_pool_most(how);
    if (most < 2) return 1;
    if (how->host) return work_ns < HOST_WORTH_NS ? 1 : most;
    if (atomic_load_explicit(&busy, memory_order_relaxed)) return 1;
    if (work_ns / SHARE_NS < most) most = (int)(work_ns / SHARE_NS);
    uint64_t gate = atomic_load_explicit(&pool.gate, memory_order_relaxed);
    int looking = (int)((gate & LOOKING) / LOOKING_ONE);
    if (looking + 1 >= most || work_ns >= WAKE_WORTH_NS || comes_again(work_ns)) return most;
    return looking + 1;
}

typedef struct host_loop {
    kiln_part_fn body;
    void *user;
    kiln_modes modes;
} host_loop;

static void host_part(void *user, int64_t part) {
    host_loop *l = user;
    kiln_modes own = kiln_modes_get();
    kiln_modes_set(l->modes);
    l->body(l->user, part);
    kiln_modes_set(own);
}

void kiln_pool_for(const kiln_parallel *how, int threads, int64_t nparts, kiln_part_fn body, void *user) {
    if (threads > kiln_pool_most(how)) threads = kiln_pool_most(how);
    if (threads > nparts) threads = (int)nparts;
    if (threads > 1 && how->host) {
        host_loop l = {.body = body, .user = user, .modes = kiln_modes_get()};
        how->host(how->host_user, nparts, host_part, &l);
    } else if (threads > 1 && !atomic_exchange(&busy, true)) {
        run_pooled(threads - 1, nparts, body, user);
        atomic_store(&busy, false);
    } else {
        for (int64_t k = 0; k < nparts; k++) body(user, k);
    }
}

/* -- begin, end, fork -------------------------------------------------------------------------------- */

static void before_fork(void) {
    pthread_mutex_lock(&users_lock);
    pthread_mutex_lock(&pool.lock);
}

static void after_fork_parent(void) {
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&users_lock);
}

static void after_fork_child(void) {
    atomic_store(&pool.gate, 0);
    atomic_store(&pool.nworkers, 0);
    for (int w = 0; w < WORDS; w++) atomic_store(&pool.sleeping[w], 0);
    pool.wanted = 0;
    atomic_store(&busy, false);
    after_fork_parent();
}

static void watch_forks(void) { (void)pthread_atfork(before_fork, after_fork_parent, after_fork_child); }

void kiln_pool_retain(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&users_lock);
    nusers++;
    pthread_mutex_unlock(&users_lock);
}

static void end_workers(void) {
    workers_set set;
    pthread_mutex_lock(&pool.lock); /* no thread is being started when `ending` is set, and none after */
    atomic_store(&pool.ending, true);
    pthread_mutex_unlock(&pool.lock);
    if (take_sleepers(WORKERS_MAX, &set) > 0) wake_set(&set);
    for (int k = 0; k < atomic_load(&pool.nworkers); k++) os_join(pool.workers[k].thread);
    atomic_store(&pool.nworkers, 0);
    pool.wanted = 0;
    atomic_store(&pool.ending, false);
}

/* The last user ends the threads, so that the library can be unloaded.  Nobody else runs loops then. */
void kiln_pool_release(void) {
    pthread_mutex_lock(&users_lock);
    if (--nusers == 0) end_workers();
    pthread_mutex_unlock(&users_lock);
}
