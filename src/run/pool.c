/* pool.c - decides whose threads run a loop and how many of them, and keeps Kiln's own threads, one set per process.
 *
 * Kiln's own threads run one loop at a time.  A loop is open from when its caller has described it until the caller finds no part
 * left.  Workers that come meanwhile go inside and take parts (part_set.h).  The caller waits for the workers that are inside, and for no
 * others.  A worker that has left a loop looks out for the next one for a moment, since one often follows, and then goes to sleep.
 * A thread that wakes sleepers wakes a few of them, and these wake the others: a caller pays for three wakes however many
 * workers come.  Workers take no signals of the host's.  In a forked child there are none: the first loop starts new ones. */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "run/cpus.h"
#include "run/rounding.h"
#include "run/part_set.h"
#include "run/pool.h"
#include "run/torch_threads.h"
#ifndef KILN_POOL_OS_H
#include "run/pool_os.h"
#endif

enum {
    WORKERS_MAX = 255,
    WORDS = (WORKERS_MAX + 64) / 64 /* of a set of workers */
};

/* The gate: who is inside a loop, who may still come and who looks out, in one word, since every cache line that
 * goes from one thread to another costs a tenth of a microsecond.  Its highest bits count loops, so that a worker
 * enters each loop once. */
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

static struct {
    _Alignas(LINE) _Atomic uint64_t gate;
    loop now; /* written while the gate is closed and nobody inside; who sees the gate open has it, too */
    part_set parts;
    _Alignas(LINE) _Atomic uint64_t sleeping[WORDS];
    _Alignas(LINE) atomic_int caller_cpu; /* of the last loop; -1: not known */
    atomic_bool ending;
    atomic_int nworkers;
    int wanted;           /* workers that are to be started; under the lock */
    pthread_mutex_t lock; /* over starting and ending */
    worker workers[WORKERS_MAX];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .caller_cpu = -1};

static atomic_bool busy;                                       /* a loop of some caller has the pool */
static atomic_int torch_at_work;                               /* threads of PyTorch's that loops have now */
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
    int first[KILN_CPU_POOL_FAN], n = 0;
    while (n < KILN_CPU_POOL_FAN && (first[n] = take_first(set)) >= 0)
        memset(&pool.workers[first[n++]].wakes, 0, sizeof *set);
    for (int k = 0, other; n > 0 && (other = take_first(set)) >= 0; k = (k + 1) % n)
        pool.workers[first[k]].wakes.bits[other / 64] |= UINT64_C(1) << other % 64;
    for (int k = 0; k < n; k++) {
        worker *w = &pool.workers[first[k]];
        atomic_store_explicit(&w->asleep, 0, memory_order_release);
        os_wake(&w->asleep);
    }
}

/* -- inside a loop ------------------------------------------------------------------------------------ */

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
        for (int k = 0; k < KILN_CPU_POOL_GLANCES && !atomic_load(&pool.ending); k++) {
            if (go_inside(seen)) return true;
            os_pause();
        }
        if (!until) until = os_now() + KILN_CPU_POOL_LOOK_OUT_NS;
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
    os_name("kiln-pool");
    start_workers();
    while (!atomic_load(&pool.ending)) {
        atomic_fetch_add(&pool.gate, LOOKING_ONE);
        while (look_out(&seen)) {
            help(&pool.parts, &pool.now, 1 + me);
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
    for (int k = 0, n; k < KILN_CPU_POOL_FAN && (n = atomic_load(&pool.nworkers)) < pool.wanted &&
                       !atomic_load(&pool.ending);
         k++) {
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
        if (k % KILN_CPU_POOL_GLANCES) continue;
        if (!until) until = os_now() + KILN_CPU_POOL_LINGER_NS;
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
        .body = body, .user = user, .nparts = nparts, .nthreads = 1 + helpers, .modes = kiln_rounding_get()};
    atomic_store_explicit(&pool.caller_cpu, os_cpu(), memory_order_relaxed);
    leave_all_parts(&pool.parts, &pool.now);
    int missing = open_gate(helpers);
    if (missing > 0 && take_sleepers(missing, &set) > 0) wake_set(&set);
    run_parts(&pool.parts, &pool.now, 0);
    atomic_fetch_and(&pool.gate, ~(OPEN | ROOM));
    wait_for_inside();
}

/* -- whose threads, and how many ---------------------------------------------------------------------- */

static _Thread_local int limit; /* on the threads of this thread's loops; 0: none */

int kiln_threads_limit(int n) {
    int was = limit;
    limit = n > 0 ? n : 0;
    return was;
}

static void end_idle_workers(void);

/* The threads that run the loops of a context now. */
typedef struct team {
    kiln_pool_owner owner;
    int size; /* threads that take part in a loop: all of PyTorch's do, even where fewer have work */
    int most; /* threads that may have work */
} team;

static team team_of(const kiln_parallel *how) {
    team t = {KILN_POOL_OWN, how->threads, limit && limit < how->threads ? limit : how->threads};
    if (t.most > 1 && how->counted && t.most > kiln_cpus_allowed()) t.most = kiln_cpus_allowed();
    if (t.most > WORKERS_MAX) t.most = WORKERS_MAX + 1;
    if (how->host) return t.owner = KILN_POOL_HOST, t;
    int torch = kiln_torch_threads();
    if (!torch) return t;
    if (atomic_load_explicit(&pool.nworkers, memory_order_relaxed)) end_idle_workers();
    t.owner = kiln_torch_forked() ? KILN_POOL_CALLER : KILN_POOL_TORCH;
    t.size = torch;
    if (torch < t.most) t.most = torch;
    return t;
}

kiln_pool_owner kiln_pool_whose(const kiln_parallel *how, int *most) {
    team t = team_of(how);
    *most = t.most;
    return t.owner;
}

/* The least work of a loop that is worth sharing: the first row of the owner with at least the team's size.  docs/PYTORCH.md says how
 * the rows of PyTorch's threads were measured.  Nothing is known of a host's threads. */
static const struct {
    kiln_pool_owner owner;
    int size;
    int64_t ns;
} worth[] = {{KILN_POOL_OWN, INT_MAX, KILN_POOL_LEAST_NS},
             {KILN_POOL_HOST, INT_MAX, 40000},
             {KILN_POOL_TORCH, 4, 8000},
             {KILN_POOL_TORCH, INT_MAX, 20000},
             {KILN_POOL_CALLER, INT_MAX, INT64_MAX}};

static int64_t worth_ns(const team *t) {
    size_t k = 0;
    while (worth[k].owner != t->owner || worth[k].size < t->size) k++;
    return worth[k].ns;
}

int64_t kiln_pool_worth_ns(const kiln_parallel *how) {
    team t = team_of(how);
    return worth_ns(&t);
}

/* Whether loops that sleepers were not woken for have come so closely after each other that a worker would have looked out from each to
 * the next, and are together worth waking sleepers. */
static bool comes_again(int64_t work_ns) {
    static _Atomic int64_t last_end, missed;
    int64_t now = os_now();
    bool soon = now - atomic_load_explicit(&last_end, memory_order_relaxed) < KILN_CPU_POOL_LOOK_OUT_NS;
    int64_t sum = work_ns + (soon ? atomic_load_explicit(&missed, memory_order_relaxed) : 0);
    atomic_store_explicit(&last_end, now + work_ns, memory_order_relaxed);
    atomic_store_explicit(&missed, sum < KILN_CPU_POOL_WAKE_WORTH_NS ? sum : 0, memory_order_relaxed);
    return sum >= KILN_CPU_POOL_WAKE_WORTH_NS;
}

/* How many of Kiln's own threads: workers that look out for a loop are worth having for less work than workers that sleep. */
static int own_threads(int most, int64_t work_ns) {
    if (atomic_load_explicit(&busy, memory_order_relaxed)) return 1;
    if (work_ns / KILN_CPU_POOL_SHARE_NS < most) most = (int)(work_ns / KILN_CPU_POOL_SHARE_NS);
    uint64_t gate = atomic_load_explicit(&pool.gate, memory_order_relaxed);
    int looking = (int)((gate & LOOKING) / LOOKING_ONE);
    if (looking + 1 >= most || work_ns >= KILN_CPU_POOL_WAKE_WORTH_NS || comes_again(work_ns)) return most;
    return looking + 1;
}

/* Whether `more` further threads would be too many beside the loops of other threads.  PyTorch keeps a set of threads for each thread that
 * runs loops.  If more of PyTorch's threads work than there are CPUs, they slow each other down. */
static bool are_cpus_taken(int more) {
    int others = atomic_load_explicit(&torch_at_work, memory_order_relaxed);
    return others && others + more > kiln_cpus_allowed();
}

int kiln_pool_threads(const kiln_parallel *how, int64_t work_ns) {
    if (work_ns < KILN_POOL_LEAST_NS) return 1;
    team t = team_of(how);
    if (t.most < 2 || work_ns < worth_ns(&t)) return 1;
    if (t.owner == KILN_POOL_OWN) return own_threads(t.most, work_ns);
    return t.owner == KILN_POOL_TORCH && are_cpus_taken(t.most) ? 1 : t.most;
}

/* -- loops on the host's or PyTorch's threads ---------------------------------------------------------- */

typedef struct host_loop {
    kiln_part_fn body;
    void *user;
    kiln_rounding modes;
} host_loop;

static void host_part(void *user, int64_t part) {
    host_loop *l = user;
    kiln_rounding own = kiln_rounding_get();
    kiln_rounding_set(l->modes);
    l->body(l->user, part);
    kiln_rounding_set(own);
}

static void run_hosted(const kiln_parallel *how, int64_t nparts, kiln_part_fn body, void *user) {
    host_loop l = {.body = body, .user = user, .modes = kiln_rounding_get()};
    how->host(how->host_user, nparts, host_part, &l);
}

typedef struct torch_team {
    loop now;
    part_set parts;
} torch_team;

static void help_in_team(void *user, int64_t thread) {
    torch_team *t = user;
    help(&t->parts, &t->now, (int)thread);
}

/* The caller takes the parts that nobody has taken, should PyTorch fail. */
static void run_on_torch(int threads, int64_t nparts, kiln_part_fn body, void *user) {
    torch_team t;
    t.now = (loop){
        .body = body, .user = user, .nparts = nparts, .nthreads = threads, .modes = kiln_rounding_get()};
    leave_all_parts(&t.parts, &t.now);
    kiln_torch_run(threads, help_in_team, &t);
    run_parts(&t.parts, &t.now, 0);
}

/* False, and nothing was done: loops of other threads have the CPUs. */
static bool share_on_torch(int threads, int64_t nparts, kiln_part_fn body, void *user) {
    if (are_cpus_taken(threads)) return false;
    atomic_fetch_add_explicit(&torch_at_work, threads, memory_order_relaxed);
    run_on_torch(threads, nparts, body, user);
    atomic_fetch_sub_explicit(&torch_at_work, threads, memory_order_relaxed);
    return true;
}

static bool share_on_own(int threads, int64_t nparts, kiln_part_fn body, void *user) {
    if (atomic_exchange(&busy, true)) return false;
    run_pooled(threads - 1, nparts, body, user);
    atomic_store(&busy, false);
    return true;
}

static bool share(const kiln_parallel *how, int threads, int64_t nparts, kiln_part_fn body, void *user) {
    team t = team_of(how);
    if (threads > t.most) threads = t.most;
    if (threads > nparts) threads = (int)nparts;
    if (threads < 2) return false;
    switch (t.owner) {
    case KILN_POOL_OWN: return share_on_own(threads, nparts, body, user);
    case KILN_POOL_HOST: return run_hosted(how, nparts, body, user), true;
    case KILN_POOL_TORCH: return share_on_torch(threads, nparts, body, user);
    case KILN_POOL_CALLER: break;
    }
    return false;
}

void kiln_pool_for(const kiln_parallel *how, int threads, int64_t nparts, kiln_part_fn body, void *user) {
    if (threads > 1 && nparts > 1 && share(how, threads, nparts, body, user)) return;
    for (int64_t k = 0; k < nparts; k++) body(user, k);
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
    atomic_store(&torch_at_work, 0);
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

/* PyTorch has been loaded since the workers were started.  If a loop is using them, a later loop ends them. */
static void end_idle_workers(void) {
    if (atomic_exchange(&busy, true)) return;
    pthread_mutex_lock(&users_lock);
    if (atomic_load(&pool.nworkers)) end_workers();
    pthread_mutex_unlock(&users_lock);
    atomic_store(&busy, false);
}

/* The last user ends the threads, so that the library can be unloaded.  Nobody else runs loops then. */
void kiln_pool_release(void) {
    pthread_mutex_lock(&users_lock);
    if (--nusers == 0) end_workers();
    pthread_mutex_unlock(&users_lock);
}
