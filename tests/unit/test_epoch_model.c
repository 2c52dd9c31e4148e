/* test_epoch_model.c - epochs proven and not sampled: cache/epoch.c itself, run in every order.
 *
 * The file is compiled into this program with its atomic operations, fences and membarrier replaced by steps of a model.
 * Two readers make calls, one writer takes actions of its choice (publishes a kernel, evicts a class with or without a
 * scan, reclaims).  Readers need no fences, or always do, or do until the writer ends that as one more action: the thread that
 * registers a process changes nothing but under all locks, so the writer may as well be that thread.  Every order of all steps is searched, and for every load every value that C11 allows; `depths` says
 * how many calls and actions.
 *
 * Memory is that of C11's release and acquire, which allows more than any machine does.  A location keeps all the values
 * it had, each with its author's number of it.  A thread knows what another did up to some number, reads any value that is
 * not older than the newest it knows, and by acquiring what was released learns the number.  So a store is "still in the
 * store buffer" as long as others read older values.  A fence tells all of its thread to the fences that follow, and its
 * thread what earlier ones told; membarrier is a fence of the writer, one of each reader wherever that reader is, in any
 * order, and one of the writer again.  What a third thread told is not passed on, which allows still more.
 *
 * A thread is its action and the results of the action's steps so far.  To make a step, the action is run from its start
 * with these results up to the next step.  So states can be copied, compared and forgotten.
 *
 * What must hold: nobody uses what was dropped; every use happens before the drop; what was retired is dropped by a scan
 * when all have left.  Faults planted in these rules must be found.
 *
 * Not under sanitizers: what is searched is a model, and test_epochs.c is for them. */
#include <linux/membarrier.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

/* -- thread.c over the model ---------------------------------------------------------------------------- */

static uint64_t model_load(const volatile void *at, memory_order order);
static void model_store(const volatile void *at, uint64_t value, memory_order order);
static uint64_t model_add(const volatile void *at, memory_order order);
static void model_fence(void);
static long model_membarrier(void);

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_thread_fence
#undef atomic_signal_fence
#define atomic_load_explicit(at, order) model_load((at), (order))
#define atomic_store_explicit(at, value, order) model_store((at), (value), (order))
#define atomic_fetch_add_explicit(at, one, order) ((void)(one), model_add((at), (order)))
#define atomic_thread_fence(order) ((void)(order), model_fence())
#define atomic_signal_fence(order) ((void)(order)) /* steps come in program order anyway */
#define pthread_mutex_lock(m) ((void)(m))          /* the writer alone takes it */
#define pthread_mutex_unlock(m) ((void)(m))
#define pthread_join(thread, result) ((void)(thread), (void)(result))
#define syscall(...) model_membarrier()
#include "cache/epoch.c"

/* -- the world: what the code works on ------------------------------------------------------------------ */

enum { READERS = 2, WRITER = READERS, THREADS, CLASSES = 3, OBJECTS = 2 * CLASSES };
#define BODY(c) (CLASSES + (c)) /* the object by which a class without a kernel is interpreted */

/* Each part is one thread's own.  The atomics in it are not: they are in the model's memory. */
typedef struct world {
    kiln_epochs epochs; /* the writer's, with all up to published */
    kiln_retired object[OBJECTS];
    uint32_t in_table; /* class */
    bool published[CLASSES];
    kiln_thread record[THREADS];
    kiln_thread_cursor cursor[THREADS]; /* kiln_thread_last of each */
    struct slot {
        uint64_t generation; /* 0: empty */
        uint64_t c;
    } slot[READERS];
} world;

static world here;
static _Atomic(void *) table, kernel[CLASSES]; /* for their addresses */

enum { EPOCH, RECORD, TABLE = RECORD + THREADS, FENCES, KERNEL, LOCATIONS = KERNEL + CLASSES };

static uint8_t location(const volatile void *at) {
    for (int k = 0; k < THREADS; k++)
        if (at == &here.record[k].epoch) return (uint8_t)(RECORD + k);
    for (int k = 0; k < CLASSES; k++)
        if (at == &kernel[k]) return (uint8_t)(KERNEL + k);
    return at == &table ? TABLE : at == &kiln_readers_fence ? FENCES : EPOCH;
}

static bool is_record(int at) { return at >= RECORD && at < TABLE; }

/* Each location has one thread that writes it. */
static int author(int at) { return is_record(at) ? at - RECORD : WRITER; }

/* -- states ---------------------------------------------------------------------------------------------- */

enum { VALUES = 8, STEPS = 24 };
enum { LOAD, STORE, ADD, FENCE, CHOOSE, WAIT, END }; /* what a step does */

typedef struct step {
    uint8_t what, at;  /* location; of FENCE: whose */
    uint8_t n;         /* what STORE stores; how many may be chosen */
    bool synchronizes; /* acquires, releases */
} step;

typedef struct value {
    uint8_t value, number; /* number: of its author's, who then had done all that have smaller ones */
    bool released;
} value;

typedef struct state {
    value memory[LOCATIONS][VALUES]; /* oldest first */
    uint8_t nvalues[LOCATIONS];
    uint8_t done[THREADS];           /* number of the last value or use */
    uint8_t knows[THREADS][THREADS]; /* of whom, up to which number */
    uint8_t fenced[THREADS];         /* what fences have told of each */
    uint8_t used[OBJECTS][THREADS];  /* number of the last use; 0: none that is not known to the writer */
    bool dropped[OBJECTS];
    struct {
        step next;
        uint8_t action, nresults, result[STEPS];
    } thread[THREADS];
    world begun; /* each thread's part of it as its action began */
} state;

/* The oldest value that a thread may read. */
static int oldest_value(const state *s, int thread, int at) {
    int k = s->nvalues[at] - 1;
    if (author(at) == thread) return k;
    while (k > 0 && s->memory[at][k].number > s->knows[thread][author(at)]) k--;
    return k;
}

static void learn(state *s, int thread, int of, uint8_t number) {
    if (number > s->knows[thread][of]) s->knows[thread][of] = number;
}

static void fence(state *s, int thread) {
    s->fenced[thread] = s->done[thread];
    for (int k = 0; k < THREADS; k++) learn(s, thread, k, s->fenced[k]);
}

static void store(state *s, int thread, uint8_t at, uint8_t v, bool releases) {
    int n = s->nvalues[at]++;
    if (n >= VALUES || author(at) != thread) fail_msg("the model is too small");
    s->memory[at][n] = (value){v, ++s->done[thread], releases};
}

static int choices(const state *s, int thread) {
    const step *p = &s->thread[thread].next;
    switch (p->what) {
    case LOAD: return s->nvalues[p->at] - oldest_value(s, thread, p->at);
    case CHOOSE: return p->n;
    case WAIT: return s->thread[0].next.what == END && s->thread[1].next.what == END;
    default: return p->what != END;
    }
}

/* Makes the next step of a thread; its result. */
static uint8_t make_step(state *s, int thread, int choice) {
    const step *p = &s->thread[thread].next;
    value v;
    switch (p->what) {
    case LOAD:
        v = s->memory[p->at][oldest_value(s, thread, p->at) + choice];
        if (p->synchronizes && v.released) learn(s, thread, author(p->at), v.number);
        return v.value;
    case ADD:
        v = s->memory[p->at][s->nvalues[p->at] - 1];
        store(s, thread, p->at, (uint8_t)(v.value + 1), p->synchronizes);
        return v.value;
    case STORE: store(s, thread, p->at, p->n, p->synchronizes); return 0;
    case FENCE: fence(s, p->at); return 0;
    case WAIT: /* as by joining them */
        for (int k = 0; k < READERS; k++) learn(s, thread, k, s->done[k]);
        return 0;
    default: return (uint8_t)choice;
    }
}

/* -- running a thread up to its next step ---------------------------------------------------------------- */

/* Faults that can be planted. */
#define FAULTS(F)                                                                        \
    F(SCAN_FROM_INFINITY, "a scan that finds nobody inside means later retired too")     \
    F(DROP_OWN_EPOCH, "the retired of an epoch are dropped beside a reader of it")       \
    F(DROP_NOTHING, "nothing is ever dropped")                                           \
    F(NO_MEMBARRIER, "membarrier does nothing")                                          \
    F(NO_READERS_FENCE, "the fence of readers does nothing, and there is no membarrier") \
    F(LOOK_THEN_ENTER, "a reader finds its class before its epoch is in its record")     \
    F(UNLINK_LAST, "a writer retires before it unlinks")                                 \
    F(GENERATION_TOO_SOON, "a slot is checked by a generation read before entering")     \
    F(GENERATION_TOO_LATE, "a slot is filled with a generation read after the class")    \
    F(ENTER_RELAXED, "a reader's epoch is stored without release")                       \
    F(LEAVE_RELAXED, "a reader leaves without release")                                  \
    F(READ_RELAXED, "readers load the common epoch without acquire")                     \
    F(RAISE_RELAXED, "the epoch is raised without release")                              \
    F(SCAN_RELAXED, "a scan loads records without acquire")                              \
    F(END_RELAXED, "fences end without release")                                         \
    F(END_SEEN_RELAXED, "a reader learns without acquire that fences have ended")        \
    F(END_FOR_READERS, "fences end for readers, and the writer does not go over to membarrier")

typedef enum fault {
    NO_FAULT,
#define F(name, text) name,
    FAULTS(F)
#undef F
        NFAULTS
} fault;

typedef struct depth {
    uint8_t calls[READERS], actions;
} depth;

/* When readers fence. */
typedef enum fencing { NEVER, ALWAYS, AT_FIRST, FENCINGS } fencing;

enum { PATH = 200 };

static struct {
    fault planted;
    fencing fencing;
    depth depth;
    bool whole; /* nothing is left out that can as well come later */
    state *s;
    int thread, nresults; /* that runs; of its results, those taken */
    bool looks[STEPS];    /* of its steps: whether it looks if fences have ended */
    jmp_buf next;
    const char *wrong; /* NULL: nothing yet */
    long nstates, ndrops, nhits, nstale, nheld;
    struct {
        step p;
        uint8_t thread, result;
    } path[PATH];
    int npath;
} run;

static uint64_t next_step(step p) {
    int k = run.nresults++;
    run.looks[k] = p.what == LOAD && p.at == FENCES;
    if (k < run.s->thread[run.thread].nresults) return run.s->thread[run.thread].result[k];
    run.s->thread[run.thread].next = p;
    longjmp(run.next, 1);
}

/* Whether the code that runs does so for the first time, and not to come to the next step. */
static bool is_new(void) { return run.nresults == run.s->thread[run.thread].nresults; }

/* weak: the fault of an operation that should and does not. */
static bool synchronizes(memory_order order, fault weak) {
    return order != memory_order_relaxed && (weak == NO_FAULT || run.planted != weak);
}

static uint64_t model_load(const volatile void *at, memory_order order) {
    uint8_t l = location(at);
    bool scans = run.thread == WRITER && order == memory_order_relaxed;
    fault weak = is_record(l)  ? SCAN_RELAXED
                 : l == EPOCH  ? READ_RELAXED
                 : l == FENCES ? END_SEEN_RELAXED
                               : NO_FAULT;
    if (at == &registrar_ends) return false;
    if (l == FENCES && run.fencing != AT_FIRST) return run.fencing == ALWAYS; /* never changes */
    if (l == FENCES && scans && run.planted == END_FOR_READERS) return true;
    if (run.planted == SCAN_FROM_INFINITY && l == EPOCH && scans) return UINT64_MAX;
    return next_step((step){LOAD, l, 0, synchronizes(order, weak)});
}

static void model_store(const volatile void *at, uint64_t v, memory_order order) {
    uint8_t l = location(at);
    fault weak = l == FENCES ? END_RELAXED : !is_record(l) ? NO_FAULT : v ? ENTER_RELAXED : LEAVE_RELAXED;
    (void)next_step((step){STORE, l, (uint8_t)v, synchronizes(order, weak)});
}

static uint64_t model_add(const volatile void *at, memory_order order) {
    uint64_t was = next_step((step){ADD, location(at), 0, synchronizes(order, RAISE_RELAXED)});
    if (run.planted == DROP_OWN_EPOCH) return was - 1; /* as if the `<` of take_safe were `<=` */
    return run.planted == DROP_NOTHING ? UINT64_MAX : was;
}

static void model_fence(void) {
    if (run.planted == NO_READERS_FENCE && run.thread != WRITER) return;
    (void)next_step((step){FENCE, (uint8_t)run.thread, 0, false});
}

static long model_membarrier(void) {
    if (run.planted == NO_MEMBARRIER) return 0;
    model_fence();
    uint8_t first = (uint8_t)next_step((step){CHOOSE, 0, READERS, false});
    (void)next_step((step){FENCE, first, 0, false});
    (void)next_step((step){FENCE, (uint8_t)(READERS - 1 - first), 0, false});
    model_fence();
    return 0;
}

static void use(uint64_t object) {
    if (!is_new()) return;
    run.s->used[object][run.thread] = ++run.s->done[run.thread];
    if (run.s->dropped[object]) run.wrong = "an object is used that was dropped";
}

static void drop(int object) {
    if (!is_new()) return;
    if (run.s->dropped[object]) run.wrong = "an object is dropped twice";
    for (int k = 0; k < READERS; k++)
        if (run.s->used[object][k] > run.s->knows[WRITER][k]) run.wrong = "an object is dropped in use";
    run.s->dropped[object] = true;
    run.ndrops++;
}

/* -- what the threads do ---------------------------------------------------------------------------------- */

/* Sets the results of the steps since `from` to 0, so that states that differ only in these results become equal.
 * A run that comes to the next step again does not need these results.  The results that say whether fences
 * have ended stay: they decide which steps there are. */
static void forget(int from) {
    for (int k = from; is_new() && k < run.nresults; k++)
        if (!run.looks[k]) run.s->thread[run.thread].result[k] = 0;
}

/* Enters the epochs as kiln_call does. */
static kiln_thread *enter(int thread) {
    static _Alignas(memberships) char room[sizeof(memberships) + sizeof(membership)];
    kiln_thread_last = here.cursor[thread];
    mine = (memberships *)(void *)room;
    mine->n = 1;
    mine->at[0] = (membership){here.epochs.id, &here.record[thread]};
    kiln_thread *t = kiln_thread_last.record;
    if (kiln_thread_last.id == here.epochs.id) {
        (void)kiln_thread_enter_unfenced(&here.epochs, t);
    } else {
        t = kiln_thread_of(&here.epochs);
        kiln_thread_enter(&here.epochs, t);
    }
    here.cursor[thread] = kiln_thread_last;
    return t;
}

/* Makes a call as kiln_call does.  The reader finds the class in its slot or in the table.  It then uses the
 * class's kernel, or the body that the interpreter runs. */
static void call(int reader) {
    struct slot *s = &here.slot[reader];
    uint64_t generation = 0, c = 0;
    if (run.planted == GENERATION_TOO_SOON) generation = kiln_generation(&here.epochs);
    if (run.planted == LOOK_THEN_ENTER) c = model_load(&table, memory_order_acquire);
    int entering = run.nresults;
    kiln_thread *t = enter(reader);
    forget(entering);
    if (run.planted != GENERATION_TOO_SOON) generation = kiln_generation(&here.epochs);
    bool hit = s->generation && s->generation == generation;
    bool last = !hit && run.s->thread[reader].action + 1 == run.depth.calls[reader];
    if (last) forget(entering);
    if (hit)
        c = s->c;
    else if (run.planted != LOOK_THEN_ENTER)
        c = model_load(&table, memory_order_acquire);
    use(c);
    if (run.planted == GENERATION_TOO_LATE) generation = kiln_generation(&here.epochs);
    (void)enter(reader); /* a call within the call */
    if (!model_load(&kernel[c], memory_order_acquire)) use(BODY(c));
    kiln_thread_leave(t);
    use(c);
    if (last) forget(entering);
    kiln_thread_leave(t);
    *s = last ? (struct slot){0, 0} : (struct slot){generation, c};
    run.nhits += hit;
}

static void drop_one(kiln_retired *r) {
    int object = (int)(r - here.object);
    drop(object);
    if (object < CLASSES && !here.published[object]) drop(BODY(object)); /* as kiln_class_free does */
    memset(r, 0, sizeof *r);
}

static void retire(uint32_t object, const _Atomic(void *) *link, uint64_t instead, bool scans) {
    here.epochs.since_scan = scans ? SCAN_EVERY - 1 : 0;
    if (run.planted != UNLINK_LAST) model_store(link, instead, memory_order_release);
    kiln_retire(&here.epochs, &here.object[object], drop_one);
    if (run.planted == UNLINK_LAST) model_store(link, instead, memory_order_release);
}

/* By the thread that compiles, which is not inside. */
static void publish(void) {
    uint32_t c = here.in_table;
    if (here.published[c]) return;
    here.published[c] = true;
    retire(BODY(c), &kernel[c], 1, false);
}

/* By a call, which is inside and may have used the class. */
static void evict(bool scans) {
    uint32_t c = here.in_table;
    if (c + 1 == CLASSES) return;
    (void)enter(WRITER);
    here.in_table = c + 1;
    retire(c, &table, c + 1, scans);
    use(c);
    kiln_thread_leave(&here.record[WRITER]);
}

static void act(bool last) {
    uint64_t what = next_step((step){last ? WAIT : CHOOSE, 0, run.fencing == AT_FIRST ? 5 : 4, false});
    if (what == 4)
        end_fences();
    else if (what == 0)
        kiln_epochs_reclaim(&here.epochs);
    else if (what == 1)
        publish();
    else
        evict(what == 3);
    if (last && here.epochs.limbo && is_new()) run.wrong = "all have left, and something is not dropped";
    if (here.epochs.limbo) run.nheld++;
}

static __attribute__((noinline)) void run_actions(state *s, int thread) {
    int nactions = thread == WRITER ? run.depth.actions + 1 : run.depth.calls[thread];
    while (s->thread[thread].action < nactions) {
        if (thread == WRITER)
            act(s->thread[thread].action + 1 == nactions);
        else
            call(thread);
        s->begun = here;
        s->thread[thread].action++;
        s->thread[thread].nresults = 0;
        memset(s->thread[thread].result, 0, STEPS);
        run.nresults = 0;
    }
    s->thread[thread].next = (step){END, 0, 0, false};
}

/* Runs a thread up to its next step, or to its end. */
static void advance(state *s, int thread) {
    run.s = s;
    run.thread = thread;
    run.nresults = 0;
    here = s->begun;
    if (setjmp(run.next) == 0) run_actions(s, thread);
}

/* -- the search --------------------------------------------------------------------------------------------- */

/* The threads whose steps have to be tried next, as a set; the steps of others can as well come later.  What the writer
 * stores need not be read, and of what it loads only the readers' records are written by others.  Nobody notices a
 * reader's steps but by a fence of it, or by loading its record. */
static unsigned to_try(const state *s) {
    const step *p = &s->thread[WRITER].next;
    bool reads = p->what == LOAD && author(p->at) != WRITER;
    if (run.whole) return (1u << THREADS) - 1;
    if (p->what == STORE || p->what == ADD || p->what == CHOOSE || (p->what == LOAD && !reads))
        return 1u << WRITER;
    int k = reads ? author(p->at) : p->what == FENCE ? p->at : s->thread[0].next.what == END;
    bool fences = run.fencing != NEVER && (p->what == FENCE || s->thread[k].next.what == FENCE);
    return fences ? (1u << THREADS) - 1 : 1u << WRITER | 1u << k;
}

static uint8_t less(uint8_t number, uint8_t base) { return number > base ? (uint8_t)(number - base) : 0; }

/* Forgets what everybody knows who will ever ask: states that have the same future become the same. */
static void tidy(state *s) {
    uint8_t base[THREADS];
    for (int k = 0; k < READERS; k++) base[k] = s->knows[WRITER][k];
    base[WRITER] = s->knows[0][WRITER] < s->knows[1][WRITER] ? s->knows[0][WRITER] : s->knows[1][WRITER];
    s->knows[0][1] = s->knows[1][0] = s->knows[WRITER][WRITER] = 0;
    for (int k = 0; k < READERS; k++) s->knows[k][k] = 0;
    for (int l = 0; l < LOCATIONS; l++) {
        int from = 0, n = s->nvalues[l];
        uint8_t known = l == RECORD + WRITER ? UINT8_MAX : base[author(l)];
        while (from + 1 < n && s->memory[l][from + 1].number <= known) from++;
        for (int k = from; k < n; k++) {
            s->memory[l][k - from] = s->memory[l][k];
            s->memory[l][k - from].number = less(s->memory[l][k].number, base[author(l)]);
        }
        if (from) memset(&s->memory[l][n - from], 0, (size_t)from * sizeof **s->memory);
        s->nvalues[l] = (uint8_t)(n - from);
    }
    for (int k = 0; k < THREADS; k++) {
        s->done[k] = less(s->done[k], base[k]);
        s->fenced[k] = less(s->fenced[k], base[k]);
        for (int j = 0; j < THREADS; j++) s->knows[k][j] = less(s->knows[k][j], base[j]);
    }
    for (int o = 0; o < OBJECTS; o++)
        for (int k = 0; k < THREADS; k++) s->used[o][k] = s->dropped[o] ? 0 : less(s->used[o][k], base[k]);
}

static struct {
    kiln_digest *at;
    size_t n, cap;
} known;

static bool is_known(kiln_digest d) {
    if (known.n * 2 >= known.cap) {
        kiln_digest *old = known.at;
        size_t was = known.cap;
        known.cap = was ? was * 4 : 1 << 16;
        known.at = calloc(known.cap, sizeof *known.at);
        assert_non_null(known.at);
        known.n = 0;
        for (size_t k = 0; k < was; k++)
            if (old[k].lo) (void)is_known(old[k]);
        free(old);
    }
    d.lo |= 1; /* 0: free */
    size_t k = d.hi & (known.cap - 1);
    for (; known.at[k].lo; k = (k + 1) & (known.cap - 1))
        if (known.at[k].lo == d.lo && known.at[k].hi == d.hi) return true;
    known.at[k] = d;
    known.n++;
    return false;
}

static void explore(const state *s) {
    run.nstates++;
    for (int thread = 0; thread < THREADS; thread++) {
        int n = to_try(s) >> thread & 1 ? choices(s, thread) : 0;
        for (int choice = 0; choice < n; choice++) {
            state next = *s;
            uint8_t result = make_step(&next, thread, choice);
            int k = next.thread[thread].nresults++;
            assert_true(k < STEPS && run.npath < PATH);
            next.thread[thread].result[k] = result;
            run.path[run.npath].p = s->thread[thread].next;
            run.path[run.npath].thread = (uint8_t)thread;
            run.path[run.npath++].result = result;
            run.nstale += s->thread[thread].next.what == LOAD && choice + 1 < n;
            advance(&next, thread);
            if (run.wrong) return;
            tidy(&next);
            if (!is_known(kiln_hash128(&next, sizeof next))) explore(&next);
            if (run.wrong) return;
            run.npath--;
        }
    }
}

static void show_path(void) {
    static const char *const whats[] = {"load", "store", "add", "fence", "choose", "wait", "end"};
    static const char *const places[LOCATIONS] = {"epoch",   "record 0", "record 1", "the writer's record",
                                                  "table",   "fences",   "kernel 0", "kernel 1",
                                                  "kernel 2"};
    for (int k = 0; k < run.npath; k++) {
        const step *p = &run.path[k].p;
        print_message("%*s%d: %s", 20 * run.path[k].thread, "", run.path[k].thread, whats[p->what]);
        if (p->what == FENCE) print_message(" of %d", p->at);
        if (p->what <= ADD) print_message(" %s", places[p->at]);
        print_message(p->what == STORE ? " = %d\n" : " -> %d\n",
                      p->what == STORE ? p->n : run.path[k].result);
    }
}

/* What is wrong, or NULL. */
static const char *search(fault planted, fencing fencing, depth d, bool whole) {
    static state s;
    memset(&s, 0, sizeof s);
    memset(&run, 0, sizeof run);
    run.planted = planted;
    run.depth = d;
    run.whole = whole;
    run.fencing = fencing;
    s.begun.epochs.id = 1;
    for (int k = 0; k < THREADS; k++) {
        s.begun.record[k].depth = -1;
        s.begun.record[k].next = s.begun.epochs.threads;
        s.begun.epochs.threads = &here.record[k];
    }
    s.begun.epochs.limbo_end = &here.epochs.limbo;
    for (int k = 0; k < LOCATIONS; k++) s.nvalues[k] = 1;
    s.memory[EPOCH][0].value = s.memory[FENCES][0].value = 1;
    for (int k = 0; k < THREADS; k++) advance(&s, k);
    explore(&s);
    free(known.at);
    memset(&known, 0, sizeof known);
    return run.wrong;
}

/* -- the tests ----------------------------------------------------------------------------------------------- */

static const depth depths[] = {{{1, 1}, 3}, {{2, 1}, 2}, {{2, 2}, 2}};
enum { DEPTHS = sizeof depths / sizeof *depths, USUAL_DEPTHS = 2 };

static void search_depth(const depth *d, fencing fencing, bool whole) {
    static const char *const names[FENCINGS] = {"membarrier", "fences", "fences, then membarrier"};
    if (search(NO_FAULT, fencing, *d, whole)) {
        show_path();
        fail_msg("%s", run.wrong);
    }
    print_message("%d and %d calls, %d actions, %s: %ld states\n", d->calls[0], d->calls[1], d->actions,
                  names[fencing], run.nstates);
    assert_true(run.ndrops > 0 && run.nheld > 0 && run.nstale > 0);
    assert_true(run.nhits > 0 || d->calls[0] == 1);
}

static void every_order_is_right(void **state) {
    (void)state;
    bool all = getenv("KILN_TEST_ALL") != NULL;
    for (int k = 0; k < FENCINGS * (all ? DEPTHS : USUAL_DEPTHS); k++)
        search_depth(&depths[k / FENCINGS], (fencing)(k % FENCINGS), all && k / FENCINGS < USUAL_DEPTHS);
}

static void planted_faults_are_found(void **state) {
    static const char *const texts[NFAULTS] = {
#define F(name, text) [name] = text,
        FAULTS(F)
#undef F
    };
    (void)state;
    for (int f = NO_FAULT + 1; f < NFAULTS; f++) {
        fencing fencing = f == NO_READERS_FENCE ? ALWAYS : f >= END_RELAXED ? AT_FIRST : NEVER;
        const char *wrong = search((fault)f, fencing, (depth){{2, 0}, 2}, true);
        if (!wrong) wrong = search((fault)f, fencing, (depth){{1, 1}, 3}, true);
        if (!wrong) fail_msg("not found although planted: %s", texts[f]);
        print_message("%s: %s, after %ld states\n", texts[f], wrong, run.nstates);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_is_right),
        cmocka_unit_test(planted_faults_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
