/* epoch.c - records of threads, and the epochs that say when a retired object may be dropped.
 *
 * An object retired in epoch e is dropped when no thread is inside with an epoch of e or less.  A thread
 * that the scan sees outside may be entering: the barrier before the scan makes it either visible here or
 * see there what was unlinked.  The section on retiring says why that is enough, and
 * tests/unit/test_epoch_model.c tries it in every order.  Knows nothing of what is retired.
 *
 * Locks: the process's list of epochs, then the lock of one of them.  Objects are dropped under neither. */
#include <linux/membarrier.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined __has_include && __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define HAS_SINGLE_THREADED
#endif

#include "cache/epoch.h"

enum { SCAN_EVERY = 16, DROPS = 4 };

/* The records of one thread, by kiln_epochs. */
typedef struct membership {
    uint64_t id;
    kiln_thread *record;
} membership;

typedef struct memberships {
    size_t n, cap;
    membership at[];
} memberships;

_Thread_local kiln_thread_cursor kiln_thread_last __attribute__((tls_model("initial-exec")));
static _Thread_local memberships *mine;

atomic_bool kiln_readers_fence = true;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static kiln_epochs *all;
static uint64_t next_id = 1;
static bool has_no_barrier, has_registrar;
static pthread_t registrar;        /* the thread that registers the process, if has_registrar */
static atomic_bool registrar_ends; /* it has done its work; written under the lock */
static pthread_key_t exit_key;
static bool has_exit_key;

static void lock_all(void) {
    pthread_mutex_lock(&lock);
    for (kiln_epochs *d = all; d; d = d->next) pthread_mutex_lock(&d->lock);
}

static void unlock_all(void) {
    for (kiln_epochs *d = all; d; d = d->next) pthread_mutex_unlock(&d->lock);
    pthread_mutex_unlock(&lock);
}

/* -- fences ----------------------------------------------------------------------------------------- */

static bool register_barrier(void) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* Lets readers do without fences from now on.  The process is registered; all locks are held, or no other thread exists. */
static void end_fences(void) { atomic_store_explicit(&kiln_readers_fence, false, memory_order_release); }

/* Notes whether the process could be registered.  As end_fences. */
static void settle(bool registered) {
    if (registered)
        end_fences();
    else
        has_no_barrier = true;
}

static void *register_in_background(void *unused) {
    bool registered = register_barrier(); /* waits for a grace period of the kernel */
    lock_all();
    settle(registered);
    atomic_store_explicit(&registrar_ends, true, memory_order_relaxed);
    unlock_all();
    return unused;
}

/* Ends the thread that registers, whether it has done its work or not: its code may be unloaded after the last epochs. */
static void join_registrar(void) {
    pthread_mutex_lock(&lock);
    bool joins = has_registrar;
    pthread_t thread = registrar;
    has_registrar = false;
    pthread_mutex_unlock(&lock);
    if (joins) pthread_join(thread, NULL);
    pthread_mutex_lock(&lock);
    if (!has_registrar) atomic_store_explicit(&registrar_ends, false, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

/* Whether this process has one thread, whose registration waits for nobody. */
static bool is_alone(void) {
#ifdef HAS_SINGLE_THREADED
    return __libc_single_threaded;
#else
    return false;
#endif
}

/* Registers the process, or starts a thread for that.  Without one readers go on fencing.  Under the lock. */
static void ask_for_barrier(void) {
    sigset_t every, before;
    if (!atomic_load_explicit(&kiln_readers_fence, memory_order_relaxed) || has_no_barrier || has_registrar)
        return;
    if (is_alone()) {
        settle(register_barrier());
        return;
    }
    sigfillset(&every); /* the host's signals are not for that thread */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    has_registrar = pthread_create(&registrar, NULL, register_in_background, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A fence in every running thread of this process; false if it could not be had.  Under the lock of some epochs, without
 * which readers cannot stop fencing. */
static bool fence_all(void) {
    if (atomic_load_explicit(&kiln_readers_fence, memory_order_relaxed)) {
        atomic_thread_fence(memory_order_seq_cst);
        return true;
    }
    for (int k = 0; k < 2; k++) {
        if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return true;
        if (!register_barrier()) return false;
    }
    return false;
}

/* -- beginning and ending ---------------------------------------------------------------------------- */

static void end_thread(void *list);

static void set_up(void) { has_exit_key = pthread_key_create(&exit_key, end_thread) == 0; }

kiln_status kiln_epochs_init(kiln_epochs *d, void *first_user, void (*drop_user)(void *user)) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up);
    if (!has_exit_key) return KILN_FAIL(KILN_E_NOMEM, "the process has no thread-specific keys left");
    memset(d, 0, sizeof *d);
    atomic_init(&d->epoch, 1);
    pthread_mutex_init(&d->lock, NULL);
    d->limbo_end = &d->limbo;
    d->first_user = first_user;
    d->drop_user = drop_user;
    pthread_mutex_lock(&lock);
    d->id = next_id++;
    d->next = all;
    all = d;
    ask_for_barrier();
    pthread_mutex_unlock(&lock);
    return KILN_OK;
}

static void free_record(const kiln_epochs *d, kiln_thread *t) {
    d->drop_user(t->user);
    kiln_free(t);
}

static void drop_list(kiln_retired *r) {
    while (r) {
        kiln_retired *next = r->next;
        r->drop(r);
        r = next;
    }
}

void kiln_epochs_fini(kiln_epochs *d) {
    if (!d->id) return;
    pthread_mutex_lock(&lock);
    kiln_epochs **link = &all;
    while (*link != d) link = &(*link)->next;
    *link = d->next;
    bool last = !all;
    pthread_mutex_unlock(&lock);
    if (last) join_registrar();
    drop_list(d->limbo);
    while (d->threads) {
        kiln_thread *t = d->threads;
        d->threads = t->next;
        free_record(d, t);
    }
    pthread_mutex_destroy(&d->lock);
}

static kiln_epochs *find_domain(uint64_t id) {
    kiln_epochs *d = all;
    while (d && d->id != id) d = d->next;
    return d;
}

/* -- records ---------------------------------------------------------------------------------------- */

/* Takes t out of d and keeps its counts.  Under both locks. */
static void end_record(kiln_epochs *d, kiln_thread *t) {
    kiln_thread **link = &d->threads;
    while (*link != t) link = &(*link)->next;
    *link = t->next;
    for (int k = 0; k < KILN_COUNTER_COUNT; k++)
        d->gone[k] += atomic_load_explicit(&t->count[k], memory_order_relaxed);
}

/* At a thread's end, by its key.  Records of epochs that ended before are gone already. */
static void end_thread(void *list) {
    memberships *m = list;
    pthread_mutex_lock(&lock);
    for (size_t k = 0; k < m->n; k++) {
        kiln_epochs *d = find_domain(m->at[k].id);
        if (!d) continue;
        pthread_mutex_lock(&d->lock);
        end_record(d, m->at[k].record);
        pthread_mutex_unlock(&d->lock);
        free_record(d, m->at[k].record);
    }
    pthread_mutex_unlock(&lock);
    kiln_free(m);
    mine = NULL;
    kiln_thread_last = (kiln_thread_cursor){0, NULL};
}

/* Forgets epochs that ended.  Under the lock. */
static void prune(memberships *m) {
    size_t kept = 0;
    for (size_t k = 0; k < m->n; k++)
        if (find_domain(m->at[k].id)) m->at[kept++] = m->at[k];
    m->n = kept;
}

/* Room for one more membership of this thread. */
static bool make_room(void) {
    if (mine && mine->n == mine->cap) {
        pthread_mutex_lock(&lock);
        prune(mine);
        pthread_mutex_unlock(&lock);
    }
    if (mine && mine->n < mine->cap) return true;
    size_t cap = mine ? mine->cap * 2 : 4;
    memberships *grown = kiln_realloc(mine, sizeof *mine + cap * sizeof *mine->at);
    if (!grown) return false;
    if (!mine) grown->n = 0;
    grown->cap = cap;
    mine = grown;
    return true;
}

static kiln_thread *new_record(kiln_epochs *d) {
    if (!make_room()) return NULL;
    if (pthread_setspecific(exit_key, mine) != 0) return NULL;
    kiln_thread *t = kiln_calloc_apart(sizeof *t);
    if (!t) return NULL;
    t->depth = -1;
    t->user = d->first_user;
    pthread_mutex_lock(&d->lock);
    t->next = d->threads;
    d->threads = t;
    pthread_mutex_unlock(&d->lock);
    mine->at[mine->n++] = (membership){d->id, t};
    return t;
}

kiln_thread *kiln_thread_join(kiln_epochs *d) {
    kiln_thread *t = NULL;
    for (size_t k = 0; mine && k < mine->n && !t; k++)
        if (mine->at[k].id == d->id) t = mine->at[k].record;
    if (!t) t = new_record(d);
    bool fences = atomic_load_explicit(&kiln_readers_fence, memory_order_acquire);
    if (atomic_load_explicit(&registrar_ends, memory_order_relaxed)) join_registrar();
    if (t) kiln_thread_last = (kiln_thread_cursor){fences ? 0 : d->id, t};
    return t;
}

/* -- retiring ---------------------------------------------------------------------------------------
 *
 * Why nothing is dropped that a thread still uses.
 *
 *   A reader  R1 loads the common epoch, R2 stores it in its record, R3 finds an object, R4 uses it,
 *             R5 stores 0 in its record.
 *   A writer  W1 unlinks an object, W2 notes the common epoch in it, e, and raises it to e + 1,
 *             W3 has a barrier in every thread, W4 loads all records, W5 drops the object if e < safe.
 *
 * safe is the least of the common epoch and of the epochs that W4 finds in records.  W2 to W5 are under the
 * common lock, so that the common epoch does not move meanwhile.
 *
 * 1. Whoever has loaded an epoch above e cannot find the object afterwards: it acquired what W2 or a later
 *    raise released, and W1 came before.  So the epoch of a reader that finds it is e or less.
 * 2. If W4 does not see R2, then R2 comes after the barrier in that thread, since all that the thread stored
 *    before the barrier is seen by W4.  R3 comes after R2, and all that is loaded after the barrier is W1's and
 *    W2's or newer: the reader does not find the object.  This holds however old the epoch is that R1 loaded.
 *    A thread that sleeps between R1 and R2 stores an old epoch late; that keeps objects longer, no more.
 * 3. If W4 sees R2 and not R5, then safe is at most the reader's epoch, and by 1 the object is kept if the
 *    reader can have found it.
 * 4. If W4 sees R5, or R2 of a later call, then R4 is over: both stores release what came before them, and W4
 *    acquires.
 * 5. safe holds until the next scan, although threads enter after W4.  It speaks only of objects that were
 *    retired before the scan, because it is not above the common epoch, which later ones get at least.  (If
 *    it were infinite when all are outside, it would speak of those as well, and they may be in use.)
 *
 * Objects that are remembered: slots and recipes keep an object with the generation g, the common epoch as
 * loaded before the object was found; by 1, g <= e.  They use it again only if g is what they load at R3.  If
 * W4 does not see R2, they load more than e by 2, which is not g.  If it does, then the reader's epoch, which
 * was loaded before, is at most g, hence at most e, and 3 holds.
 *
 * Without membarrier, readers have a fence between R2 and R3, and W3 is a fence.  One of the two fences is the
 * first: if the reader's, W4 sees R2; if the writer's, R3 sees W1 and W2.  That is 2.
 *
 * A process begins so, and goes over to membarrier once it is registered: kiln_readers_fence becomes false under all
 * locks.  A scan (W3 and W4) is under a lock, so it comes before the change or after it.  After it W3 is a membarrier, and
 * 2 holds for readers with a fence as for those without.  Before it W3 is a fence, and 2 holds for readers with a fence.  A reader
 * without one has acquired the change before R3, in this call or in one before.  The change released W1 and W2 of
 * every scan that came before it, so R3 sees them.  That is 2 again.
 *
 * Calls within calls store nothing and have the outer one's epoch, which is not above what they load.  A record
 * is linked and unlinked under the lock: a thread that begins is in W4, or begins after the scan and sees W1;
 * one that ends is outside.  A fork holds the locks; its child has one thread, whose record stays as it is, and
 * what others held is nobody's there.  Where the barrier fails, safe stays what it was. */

/* What was retired before this epoch is held by nobody.  After a barrier. */
static uint64_t oldest(kiln_epochs *d) {
    uint64_t least = atomic_load_explicit(&d->epoch, memory_order_relaxed); /* raised under the lock alone */
    for (kiln_thread *t = d->threads; t; t = t->next) {
        uint64_t e = atomic_load_explicit(&t->epoch, memory_order_acquire);
        if (e && e < least) least = e;
    }
    return least;
}

static void scan(kiln_epochs *d) {
    d->since_scan = 0;
    if (d->limbo && fence_all()) d->safe = oldest(d);
}

/* Takes at most `most` out of limbo that nobody can hold. */
static kiln_retired *take_safe(kiln_epochs *d, size_t most) {
    kiln_retired *first = d->limbo, **link = &first;
    while (most-- && *link && (*link)->epoch < d->safe) link = &(*link)->next;
    d->limbo = *link;
    *link = NULL;
    if (!d->limbo) d->limbo_end = &d->limbo;
    return first;
}

/* Drops a few for each that comes: enough to catch up, and no call spends its time on what others left. */
void kiln_retire(kiln_epochs *d, kiln_retired *r, void (*drop)(kiln_retired *self)) {
    r->next = NULL;
    r->drop = drop;
    pthread_mutex_lock(&d->lock);
    r->epoch = atomic_fetch_add_explicit(&d->epoch, 1, memory_order_acq_rel);
    *d->limbo_end = r;
    d->limbo_end = &r->next;
    if (++d->since_scan >= SCAN_EVERY) scan(d);
    kiln_retired *list = take_safe(d, DROPS);
    pthread_mutex_unlock(&d->lock);
    drop_list(list);
}

void kiln_epochs_reclaim(kiln_epochs *d) {
    pthread_mutex_lock(&d->lock);
    scan(d);
    kiln_retired *list = take_safe(d, SIZE_MAX);
    pthread_mutex_unlock(&d->lock);
    drop_list(list);
}

/* -- counters --------------------------------------------------------------------------------------- */

void kiln_count(kiln_epochs *d, kiln_counter which, uint64_t by) {
    kiln_thread *t = kiln_thread_of(d);
    if (t) {
        kiln_thread_count(t, which, by);
        return;
    }
    pthread_mutex_lock(&d->lock);
    d->gone[which] += by;
    pthread_mutex_unlock(&d->lock);
}

uint64_t kiln_count_sum(kiln_epochs *d, kiln_counter which) {
    pthread_mutex_lock(&d->lock);
    uint64_t sum = d->gone[which];
    for (kiln_thread *t = d->threads; t; t = t->next)
        sum += atomic_load_explicit(&t->count[which], memory_order_relaxed);
    pthread_mutex_unlock(&d->lock);
    return sum;
}

/* -- forking ---------------------------------------------------------------------------------------- */

static bool is_mine(const kiln_thread *t) {
    for (size_t k = 0; mine && k < mine->n; k++)
        if (mine->at[k].record == t) return true;
    return false;
}

void kiln_threads_before_fork(void) { lock_all(); }

static void end_others(kiln_epochs *d) {
    for (kiln_thread *t = d->threads, *next; t; t = next) {
        next = t->next;
        if (is_mine(t)) continue;
        end_record(d, t);
        free_record(d, t);
    }
}

/* The thread that registered the process is not in the child, and the child has one thread. */
static void go_on_alone(void) {
    has_registrar = false;
    atomic_store_explicit(&registrar_ends, false, memory_order_relaxed);
    if (atomic_load_explicit(&kiln_readers_fence, memory_order_relaxed) && !has_no_barrier)
        settle(register_barrier());
}

void kiln_threads_after_fork(bool in_child) {
    if (in_child && all) go_on_alone();
    for (kiln_epochs *d = all; d && in_child; d = d->next) end_others(d);
    unlock_all();
}
