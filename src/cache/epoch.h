/* epoch.h - when shared objects may be freed, and what each thread keeps for that: its epoch and its counters.
 *
 * A kiln_epochs guards what readers use without a lock and writers replace.  A reader stands between
 * kiln_thread_enter and kiln_thread_leave; a writer unlinks an object, retires it, and the object is
 * dropped once every thread that might have seen it has left.  Readers write only their own record: two
 * plain stores a call.  Readers need no fence, since the writer's membarrier fences them.  They do need one until
 * the process is registered for membarrier, which takes milliseconds where other threads exist and is done in the
 * background, and for ever on systems without it.
 *
 * Records are made on a thread's first use of a kiln_epochs and end with the thread; its counts are kept. */
#ifndef KILN_CACHE_EPOCH_H
#define KILN_CACHE_EPOCH_H
#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"

typedef enum kiln_counter {
#define C(name, meaning) KILN_COUNTER_##name,
#include "kiln/counter.def"
#undef C
    KILN_COUNTER_COUNT
} kiln_counter;

/* One thread's part of one kiln_epochs.  Only its thread writes it. */
typedef struct kiln_thread {
    atomic_uint_fast64_t epoch; /* the common one when the thread entered; 0: outside */
    int32_t depth;              /* enters without their leaves, less 1: -1 outside */
    void *user;                 /* what the owner of the epochs keeps per thread */
    atomic_uint_fast64_t count[KILN_COUNTER_COUNT];
    struct kiln_thread *next; /* of the same epochs */
} kiln_thread;

/* An object on its way out; part of the object, so that retiring cannot fail. */
typedef struct kiln_retired {
    struct kiln_retired *next;
    uint64_t epoch; /* the last one in which a reader may have found it */
    void (*drop)(struct kiln_retired *self);
} kiln_retired;

typedef struct kiln_epochs {
    atomic_uint_fast64_t epoch; /* from 1; raised by every retirement */
    uint64_t id;                /* never used again in this process */
    pthread_mutex_t lock;       /* guards what follows */
    kiln_thread *threads;
    uint64_t gone[KILN_COUNTER_COUNT]; /* counts of threads that ended */
    kiln_retired *limbo, **limbo_end;  /* oldest first */
    uint64_t safe;                     /* retired before this epoch: nobody can hold it */
    size_t since_scan;                 /* retirements since safe was found */
    void *first_user;                  /* of every new record */
    void (*drop_user)(void *user);
    struct kiln_epochs *next; /* of all in the process */
} kiln_epochs;

/* A record's user is first_user at first; drop_user frees it, whatever it is then. */
kiln_status kiln_epochs_init(kiln_epochs *d, void *first_user, void (*drop_user)(void *user)) KILN_MUST_CHECK;
/* Drops all that is retired, and the records.  No thread may be inside. */
void kiln_epochs_fini(kiln_epochs *d);

/* -- readers ---------------------------------------------------------------------------------------- */

typedef struct kiln_thread_cursor {
    uint64_t id;         /* of the epochs this thread used last; 0: none, or readers still fence */
    kiln_thread *record; /* in the epochs this thread used last */
} kiln_thread_cursor;

extern _Thread_local kiln_thread_cursor kiln_thread_last __attribute__((tls_model("initial-exec")));
/* Readers must fence.  True at first; becomes false once, under the locks of all epochs. */
extern atomic_bool kiln_readers_fence __attribute__((visibility("hidden")));

kiln_thread *kiln_thread_join(kiln_epochs *d); /* out of line; NULL: no memory */

/* This thread's record, made on first use; NULL: no memory. */
static inline kiln_thread *kiln_thread_of(kiln_epochs *d) {
    return kiln_thread_last.id == d->id ? kiln_thread_last.record : kiln_thread_join(d);
}

/* Enters without a fence.  Only for the record of a cursor that names d: the thread has seen then that readers need none.
 * Calls nest: a log or a deleter may call again.  False: within another call. */
static inline bool kiln_thread_enter_unfenced(kiln_epochs *d, kiln_thread *t) {
    if (__builtin_expect(++t->depth != 0, 0)) return false;
    uint64_t now = atomic_load_explicit(&d->epoch, memory_order_acquire);
    atomic_store_explicit(&t->epoch, now, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    return true;
}

static inline void kiln_thread_enter(kiln_epochs *d, kiln_thread *t) {
    if (kiln_thread_enter_unfenced(d, t) && atomic_load_explicit(&kiln_readers_fence, memory_order_acquire))
        atomic_thread_fence(memory_order_seq_cst);
}

static inline void kiln_thread_leave(kiln_thread *t) {
    if (__builtin_expect(--t->depth < 0, 1)) atomic_store_explicit(&t->epoch, 0, memory_order_release);
}

/* Read after entering: while it is the same as before, nothing seen then has been retired. */
static inline uint64_t kiln_generation(const kiln_epochs *d) {
    return atomic_load_explicit(&d->epoch, memory_order_acquire);
}

/* -- writers ---------------------------------------------------------------------------------------- */

/* Drops r once no reader can hold it; r->drop may not retire.  r must not be reachable any more.  May drop others
 * now, so the caller holds no lock that a drop takes. */
void kiln_retire(kiln_epochs *d, kiln_retired *r, void (*drop)(kiln_retired *self));
void kiln_epochs_reclaim(kiln_epochs *d); /* drops what can be dropped now */

/* -- counters --------------------------------------------------------------------------------------- */

static inline void kiln_thread_count(kiln_thread *t, kiln_counter which, uint64_t by) {
    uint64_t now = atomic_load_explicit(&t->count[which], memory_order_relaxed);
    atomic_store_explicit(&t->count[which], now + by, memory_order_relaxed);
}

static inline uint64_t kiln_thread_counted(const kiln_thread *t, kiln_counter which) {
    return atomic_load_explicit(&t->count[which], memory_order_relaxed);
}

void kiln_count(kiln_epochs *d, kiln_counter which, uint64_t by); /* `by` may be a negative number */
uint64_t kiln_count_sum(kiln_epochs *d, kiln_counter which);

/* -- forking ---------------------------------------------------------------------------------------- */

/* Between the two no record is made or ended and nothing is retired.  In the child the records of
 * threads that do not exist there end. */
void kiln_threads_before_fork(void);
void kiln_threads_after_fork(bool in_child);
#endif
