/* pool.c - Kiln's own threads for loops, one set per process.
 *
 * A loop is published under the lock; workers and caller then claim parts by one counter.  The caller closes
 * the loop when no part is left and waits for those who are still inside.  Workers take no signals of the
 * host's.  In a forked child there are no workers: the first loop starts new ones. */
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "run/pool.h"

enum { WORKERS_MAX = 255 };

typedef struct loop {
    kiln_part_fn body;
    void *user;
    int64_t nparts;
    _Atomic int64_t next;
    int nhelpers; /* workers that may still join; under the lock */
    fenv_t env;   /* of the caller */
} loop;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    loop *now;       /* NULL: none that may be joined */
    uint64_t serial; /* of loops so far, so that a worker joins each once */
    int inside;      /* workers in the loop */
    int nworkers;
    bool ending;
    pthread_t workers[WORKERS_MAX];
} pool = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static atomic_bool busy;                                       /* a loop of some caller has the pool */
static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER; /* taken before the pool's */
static int nusers;

/* -- parts ------------------------------------------------------------------------------------------ */

static void run_parts(loop *l) {
    for (int64_t k; (k = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed)) < l->nparts;)
        l->body(l->user, k);
}

static void help(loop *l) {
    fenv_t own;
    fegetenv(&own);
    fesetenv(&l->env);
    run_parts(l);
    fesetenv(&own);
}

static void *work(void *none) {
    uint64_t seen = 0;
    pthread_mutex_lock(&pool.lock);
    while (!pool.ending) {
        loop *l = pool.now;
        if (!l || pool.serial == seen || l->nhelpers == 0) {
            pthread_cond_wait(&pool.work, &pool.lock);
            continue;
        }
        seen = pool.serial;
        l->nhelpers--;
        pool.inside++;
        pthread_mutex_unlock(&pool.lock);
        help(l);
        pthread_mutex_lock(&pool.lock);
        if (--pool.inside == 0) pthread_cond_signal(&pool.done);
    }
    pthread_mutex_unlock(&pool.lock);
    return none;
}

/* As many as can be had; the caller works anyway.  Under the lock. */
static void start_workers(int count) {
    sigset_t all, before;
    if (pool.nworkers >= count) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.nworkers < count && pthread_create(&pool.workers[pool.nworkers], NULL, work, NULL) == 0)
        pool.nworkers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void run_pooled(loop *l, int threads) {
    int helpers = threads - 1 < WORKERS_MAX ? threads - 1 : WORKERS_MAX;
    if (helpers > l->nparts - 1) helpers = (int)(l->nparts - 1);
    fegetenv(&l->env);
    pthread_mutex_lock(&pool.lock);
    start_workers(helpers);
    l->nhelpers = helpers;
    pool.now = l;
    pool.serial++;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    run_parts(l);
    pthread_mutex_lock(&pool.lock);
    pool.now = NULL;
    while (pool.inside) pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

/* -- the host's ------------------------------------------------------------------------------------- */

static void host_part(void *user, int64_t part) {
    loop *l = user;
    fenv_t own;
    fegetenv(&own);
    fesetenv(&l->env);
    l->body(l->user, part);
    fesetenv(&own);
}

static _Thread_local int limit; /* of threads for the loops of this one; 0: none */

int kiln_threads_limit(int n) {
    int was = limit;
    limit = n > 0 ? n : 0;
    return was;
}

/* A limit changes who runs parts, not which there are: what is remembered of a call holds for every limit. */
void kiln_pool_for(const kiln_parallel *how, int64_t nparts, kiln_part_fn body, void *user) {
    loop l = {.body = body, .user = user, .nparts = nparts};
    int threads = limit && limit < how->threads ? limit : how->threads;
    if (nparts > 1 && threads > 1 && how->host) {
        fegetenv(&l.env);
        how->host(how->host_user, nparts, host_part, &l);
    } else if (nparts > 1 && threads > 1 && !atomic_exchange(&busy, true)) {
        run_pooled(&l, threads);
        atomic_store(&busy, false);
    } else {
        run_parts(&l);
    }
}

int kiln_pool_cpus(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n > WORKERS_MAX ? WORKERS_MAX : n;
}

/* -- begin, end, fork ------------------------------------------------------------------------------- */

static void before_fork(void) {
    pthread_mutex_lock(&users_lock);
    pthread_mutex_lock(&pool.lock);
}

static void after_fork_parent(void) {
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&users_lock);
}

static void after_fork_child(void) {
    pool.now = NULL;
    pool.inside = pool.nworkers = 0;
    pthread_cond_init(&pool.work, NULL); /* they may have had waiters */
    pthread_cond_init(&pool.done, NULL);
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

static void tell_workers(bool to_end) {
    pthread_mutex_lock(&pool.lock);
    pool.ending = to_end;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
}

/* The last user ends the threads, so that the library can be unloaded.  Nobody else runs loops then. */
void kiln_pool_release(void) {
    pthread_mutex_lock(&users_lock);
    if (--nusers == 0) {
        tell_workers(true);
        for (int k = 0; k < pool.nworkers; k++) pthread_join(pool.workers[k], NULL);
        pool.nworkers = 0;
        tell_workers(false);
    }
    pthread_mutex_unlock(&users_lock);
}
