/* proc.c - argument vectors -> finished processes, without a signal to the host.
 *
 * Processes are started by posix_spawn, as a fork would copy the page tables of a large host.  They get
 * default signals, an empty signal mask, a process group of their own and none of the host's descriptors.
 * Their parent is a supervisor, a process that shares the host's memory.  The host therefore gets no
 * SIGCHLD when they end, and its own calls of wait do not find them.  This file never changes the host's
 * signal handlers. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "target/cpu/proc.h"

#define NS_PER_S INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_US INT64_C(1000)
#define LOOK_NS (20 * NS_PER_MS)         /* how often a wait looks whether it is to stop */
#define KILL_GRACE_NS (5000 * NS_PER_MS) /* a process that survives SIGKILL this long is left behind */

/* -- descriptors ------------------------------------------------------------------------------- */

/* The supervisor (see below) shares the host's memory, but has a descriptor table of its own.  ThreadSanitizer
 * replaces close(), pipe2() and poll() by functions that note in memory which thread used which number, so under
 * it one number in two tables would look like a data race.  System calls leave no note. */

static void shut(int fd) {
    if (fd >= 0) (void)syscall(SYS_close, fd);
}

/* Makes a pipe whose ends have the given numbers. */
static int make_link(const int number[2]) {
    int ends[2];
    int above = (number[0] > number[1] ? number[0] : number[1]) + 1;
    if (syscall(SYS_pipe2, ends, O_CLOEXEC) != 0) return errno;
    int rc = 0;
    for (int k = 0; k < 2; k++) { /* away from both numbers first */
        int high = (int)syscall(SYS_fcntl, ends[k], F_DUPFD_CLOEXEC, above);
        if (high < 0) rc = errno;
        shut(ends[k]);
        ends[k] = high;
    }
    for (int k = 0; k < 2; k++) {
        if (rc == 0 && syscall(SYS_dup3, ends[k], number[k], O_CLOEXEC) < 0) rc = errno;
        shut(ends[k]);
    }
    return rc;
}

/* Waits for at most ns nanoseconds, or until one of the n descriptors can be read. */
static void wait_readable(struct pollfd *fds, int n, int64_t ns) {
    struct timespec most = {ns / NS_PER_S, ns % NS_PER_S};
    (void)syscall(SYS_ppoll, fds, n, &most, NULL, (size_t)_NSIG / 8);
}

/* -- starting ------------------------------------------------------------------------------------ */

/* What posix_spawn needs for one process.  Making it allocates memory, so the caller of the supervisor makes it: see
 * below. */
typedef struct recipe {
    /* They differ in one thing: `closing` also closes the host's descriptors. */
    posix_spawn_file_actions_t closing, leaving;
} recipe;

/* For a run.  Stands on the stack of the caller, where LeakSanitizer finds what was allocated. */
typedef struct recipes {
    recipe of[2];
    posix_spawnattr_t attr;
} recipes;

static int set_actions(posix_spawn_file_actions_t *a, const kiln_proc *p, bool close_rest) {
    const int given[] = {p->in, p->out, p->err, p->result};
    int rc = 0, top = p->result >= 0 ? 4 : 3;
    for (int fd = 0; fd < top && rc == 0; fd++) {
        if (given[fd] >= 0)
            rc = posix_spawn_file_actions_adddup2(a, given[fd], fd);
        else
            rc = posix_spawn_file_actions_addopen(a, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
    }
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    if (rc == 0 && close_rest) rc = posix_spawn_file_actions_addclosefrom_np(a, top);
#else
    (void)close_rest;
#endif
    return rc;
}

static void fini_recipe(recipe *r) {
    posix_spawn_file_actions_destroy(&r->closing);
    posix_spawn_file_actions_destroy(&r->leaving);
}

static int init_recipe(recipe *r, const kiln_proc *p) {
    int rc = posix_spawn_file_actions_init(&r->closing);
    if (rc != 0) return rc;
    rc = posix_spawn_file_actions_init(&r->leaving);
    if (rc != 0) {
        posix_spawn_file_actions_destroy(&r->closing);
        return rc;
    }
    rc = set_actions(&r->closing, p, true);
    if (rc == 0) rc = set_actions(&r->leaving, p, false);
    if (rc != 0) fini_recipe(r);
    return rc;
}

static int set_attributes(posix_spawnattr_t *attr) {
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    int rc = posix_spawnattr_setsigdefault(attr, &all);
    if (rc == 0) rc = posix_spawnattr_setsigmask(attr, &none);
    if (rc == 0) rc = posix_spawnattr_setpgroup(attr, 0);
    if (rc != 0) return rc;
    return posix_spawnattr_setflags(attr,
                                    POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
}

/* A compiler gone wild must not take the host's memory or disk with it, nor leave a core file. */
static void confine(pid_t pid) {
    static const struct {
        int what;
        rlim_t most;
    } limits[] = {{RLIMIT_AS, (rlim_t)4 << 30}, {RLIMIT_FSIZE, (rlim_t)64 << 20}, {RLIMIT_CORE, 0}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit now;
        if (prlimit(pid, limits[i].what, NULL, &now) != 0) continue;
        if (now.rlim_cur > limits[i].most) now.rlim_cur = limits[i].most;
        if (now.rlim_max > limits[i].most) now.rlim_max = limits[i].most;
        (void)prlimit(pid, limits[i].what, &now, NULL);
    }
}

/* A process that was just started, before it has children.  Values beyond the greatest are that. */
static void make_nicer(pid_t pid, int by) {
    errno = 0;
    int now = getpriority(PRIO_PROCESS, (id_t)pid);
    if (now != -1 || !errno) (void)setpriority(PRIO_PROCESS, (id_t)pid, now + by);
}

/* -1: the system has none (kernels before 5.3, Valgrind), or no descriptor is left; the wait then looks now and
 * again. */
static int open_pidfd(pid_t pid) {
#ifdef SYS_pidfd_open
    static atomic_bool unknown; /* to this system, and it need not be asked again */
    if (atomic_load(&unknown)) return -1;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0); /* closed on exec by itself */
    if (fd < 0 && errno == ENOSYS) atomic_store(&unknown, true);
    return fd;
#else
    (void)pid;
    return -1;
#endif
}

/* Returns 0 or an error number: only the caller of the supervisor makes texts. */
static int start(kiln_proc *p, const recipes *how_to, int which, char *const *envp, int nicer_by) {
    const recipe *r = &how_to->of[which];
    int rc = posix_spawn(&p->pid, p->argv[0], &r->closing, &how_to->attr, p->argv, envp);
    if (rc != 0) /* closing the rest needs close_range or /proc */
        rc = posix_spawn(&p->pid, p->argv[0], &r->leaving, &how_to->attr, p->argv, envp);
    if (rc != 0) {
        p->pid = 0;
        return rc;
    }
    confine(p->pid);
    if (nicer_by) make_nicer(p->pid, nicer_by);
    return 0;
}

/* -- waiting ------------------------------------------------------------------------------------- */

/* Looks without reaping, so that the pid and its group stay ours until we are done with them. */
static bool has_ended(const kiln_proc *p) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    int rc = waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    return rc == 0 ? info.si_pid != 0 : errno == ECHILD;
}

static void pause_until(const struct pollfd *fds, int n, bool pollable, int64_t left_ns) {
    int64_t most = pollable ? LOOK_NS : NS_PER_MS;
    if (left_ns > most) left_ns = most;
    if (pollable) {
        struct pollfd copy[2];
        memcpy(copy, fds, sizeof *fds * (size_t)n);
        wait_readable(copy, n, left_ns);
    } else {
        struct timespec nap = {0, (long)left_ns};
        (void)nanosleep(&nap, NULL);
    }
}

typedef enum outcome { ENDED, LATE, STOPPED, INTERRUPTED } outcome;

/* Waits until all have ended, the deadline has passed, or *called_off is no longer ENDED; returns which. */
static outcome wait_all(kiln_proc *procs, int n, int64_t deadline_ns, const atomic_int *called_off) {
    for (;;) {
        struct pollfd fds[2];
        int alive = 0;
        bool pollable = true;
        for (int i = 0; i < n; i++) {
            kiln_proc *p = &procs[i];
            if (!p->pid || p->ended) continue;
            p->ended = has_ended(p);
            if (p->ended) continue;
            fds[alive++] = (struct pollfd){.fd = p->pidfd, .events = POLLIN};
            if (p->pidfd < 0) pollable = false;
        }
        if (alive == 0) return ENDED;
        outcome off = (outcome)atomic_load(called_off);
        if (off != ENDED) return off;
        int64_t left = deadline_ns - kiln_clock_ns();
        if (left <= 0) return LATE;
        pause_until(fds, alive, pollable, left);
    }
}

static void kill_all(kiln_proc *procs, int n) {
    for (int i = 0; i < n; i++) {
        siginfo_t info;
        /* A group may be killed only while its leader is unreaped: its number is not reused before. */
        if (procs[i].pid && waitid(P_PID, (id_t)procs[i].pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
            (void)kill(-procs[i].pid, SIGKILL);
    }
    static const atomic_int never = ENDED;
    (void)wait_all(procs, n, kiln_clock_ns() + KILL_GRACE_NS, &never);
}

static int64_t ns_of(const struct timeval *t) {
    return (int64_t)t->tv_sec * NS_PER_S + (int64_t)t->tv_usec * NS_PER_US;
}

static void reap(kiln_proc *p) {
    if (!p->pid) return;
    pid_t got;
    int flags = p->ended ? 0 : WNOHANG;
    struct rusage used = {0};
    do got = wait4(p->pid, &p->status, flags, &used);
    while (got < 0 && errno == EINTR);
    p->ended = got == p->pid;
    if (p->ended) p->cpu_ns = ns_of(&used.ru_utime) + ns_of(&used.ru_stime);
    shut(p->pidfd);
    p->pidfd = -1;
}

/* -- the supervisor ------------------------------------------------------------------------------------ */

/* A process that ends sends SIGCHLD to its parent.  If compilers were children of the host, the host's handler
 * of that signal would run on any of the host's threads.  Some code does not survive a handler: matrix products
 * of oneDNN before 3.12 keep their stack pointer inside a block of the heap, so a handler overwrites the heap,
 * and PyTorch's DataLoader installs a handler.  The supervisor sends no signal when it ends, and blocks all
 * signals while it runs.
 *
 * The supervisor shares the host's memory, as a child of vfork does, and as with vfork the thread that started
 * it is suspended until it ends.  So that thread is one of its own, and the caller stays free to ask whether its
 * host calls the run off.
 *
 * The supervisor takes no lock, so it allocates nothing.  Somebody may kill the supervisor, and the host would wait for the lock
 * for ever.  Also, LeakSanitizer holds the allocator's lock while it waits for all threads of the host to stop, and the
 * suspended thread stops only when the supervisor has ended. */
typedef struct supervised {
    kiln_proc procs[2];
    const recipes *how_to;
    int link[2]; /* numbers that the ends of the pipe between the processes have in the supervisor */
    int n, nicer_by;
    char *const *envp;
    int64_t deadline_ns;
    int rc; /* 0, or the error number of the first start that failed */
    outcome how;
    atomic_int called_off; /* set by the caller: STOPPED or INTERRUPTED */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done; /* under lock: the supervisor has ended */
} supervised;

/* ThreadSanitizer replaces clone() by a function that treats the new process as a fork, with a memory of its own.
 * It does not replace glibc's second name for clone(). */
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#define THREAD_SANITIZER __has_feature(thread_sanitizer)
#endif
#if defined(THREAD_SANITIZER) && THREAD_SANITIZER
int __clone(int (*run)(void *), void *stack, int flags, void *user, ...);
#define clone __clone
#endif

/* The block that holds a `supervised` at its start and the supervisor's stack at its end.  The block is mapped
 * MAP_SHARED because Valgrind runs the supervisor on a copy of all other memory. */
enum { SHARED_SIZE = 256 << 10 };

/* Gives SIGCHLD its default action in the supervisor: where a host ignores SIGCHLD, its children cannot be
 * waited for.  Uses the system call, as the sanitizers' sigaction notes the action in memory that the host
 * shares. */
static void expect_children(void) {
    const unsigned long none[8] = {0};
    (void)syscall(SYS_rt_sigaction, SIGCHLD, none, NULL, (size_t)_NSIG / 8);
}

static int start_all(supervised *s) {
    bool linked = s->n > 1;
    int rc = linked ? make_link(s->link) : 0;
    for (int i = 0; i < s->n && rc == 0; i++) rc = start(&s->procs[i], s->how_to, i, s->envp, s->nicer_by);
    for (int k = 0; k < 2 && linked; k++) shut(s->link[k]);
    return rc;
}

/* Closes the supervisor's copies of the host's descriptors.  While a copy is open, the other end of a pipe or socket that the host
 * closes would not see its end.  Kernels before 5.9 cannot do this; there the copies stay until the processes have ended. */
static void close_all(void) {
#ifdef SYS_close_range
    (void)syscall(SYS_close_range, 0U, ~0U, 0U);
#endif
}

static int supervise(void *user) {
    supervised *s = user;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* otherwise a host that ends would leave its memory in use */
    expect_children();
    s->rc = start_all(s);
    close_all();
    for (int i = 0; i < s->n; i++)
        if (s->procs[i].pid) s->procs[i].pidfd = open_pidfd(s->procs[i].pid);
    s->how = s->rc == 0 ? wait_all(s->procs, s->n, s->deadline_ns, &s->called_off) : STOPPED;
    if (s->how != ENDED) kill_all(s->procs, s->n);
    for (int i = 0; i < s->n; i++) reap(&s->procs[i]);
    return 0;
}

static void *wait_suspended(void *user) {
    supervised *s = user;
    pid_t pid = clone(supervise, (char *)s + SHARED_SIZE, CLONE_VM | CLONE_VFORK, s);
    if (pid < 0) s->rc = errno;
    while (pid > 0 && waitpid(pid, NULL, __WALL) < 0 && errno == EINTR) continue;
    pthread_mutex_lock(&s->lock);
    s->done = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Waits until the supervisor has ended.  Passes on to the supervisor that the host calls the run off. */
static void look_after(supervised *s, const kiln_halt *halt) {
    pthread_mutex_lock(&s->lock);
    while (!s->done) {
        int64_t ns = kiln_clock_ns() + LOOK_NS;
        struct timespec until = {ns / NS_PER_S, ns % NS_PER_S};
        (void)pthread_cond_timedwait(&s->changed, &s->lock, &until);
        pthread_mutex_unlock(&s->lock);
        if (atomic_load(&halt->stop))
            atomic_store(&s->called_off, STOPPED);
        else if (kiln_halt_asked(halt))
            atomic_store(&s->called_off, INTERRUPTED);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

static int init_lock(supervised *s) {
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc != 0) return rc;
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* the clock that kiln_clock_ns reads */
    if (rc == 0) rc = pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (rc == 0) rc = pthread_mutex_init(&s->lock, NULL);
    return rc;
}

/* Whether the run is given a descriptor of that number. */
static bool is_given(const supervised *s, int number) {
    for (int i = 0; i < s->n; i++) {
        const kiln_proc *p = &s->procs[i];
        if (number == p->in || number == p->out || number == p->err || number == p->result) return true;
    }
    return false;
}

/* Joins the two processes by a pipe.  The supervisor has a table of descriptors of its own, so its pipe may have any number that
 * the run is not given. */
static void join_by_link(supervised *s) {
    int number = KILN_FD_FLOOR;
    for (int k = 0; k < 2; k++) {
        while (is_given(s, number)) number++;
        s->link[k] = number++;
    }
    s->procs[1].in = s->link[0];
    s->procs[0].out = s->link[1];
}

static void fini_recipes(recipes *r, int n) {
    for (int i = 0; i < n; i++) fini_recipe(&r->of[i]);
    posix_spawnattr_destroy(&r->attr);
}

static int init_recipes(recipes *r, const kiln_proc *procs, int n) {
    int rc = posix_spawnattr_init(&r->attr), i = 0;
    if (rc != 0) return rc;
    rc = set_attributes(&r->attr);
    while (i < n && rc == 0) {
        rc = init_recipe(&r->of[i], &procs[i]);
        i += rc == 0;
    }
    if (rc != 0) fini_recipes(r, i);
    return rc;
}

/* Starts the processes of s, waits for them and leaves in s how they ended. */
static void run_supervised(supervised *s, const kiln_halt *halt) {
    sigset_t all, before;
    pthread_t suspended;
    s->rc = init_lock(s);
    if (s->rc != 0) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&suspended, NULL, wait_suspended, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        look_after(s, halt);
        pthread_join(suspended, NULL);
    } else {
        s->rc = rc;
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
}

/* -- how the run ended --------------------------------------------------------------------------------- */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static kiln_status judge(const kiln_proc *procs, int n) {
    const kiln_proc *bad = NULL;
    for (int i = n - 1; i >= 0; i--) {
        bool echo = bad && WIFSIGNALED(procs[i].status) && WTERMSIG(procs[i].status) == SIGPIPE;
        if (procs[i].status != 0 && !echo) bad = &procs[i]; /* not one that died of the next one's end */
    }
    if (!bad) return KILN_OK;
    const char *name = base_name(bad->argv[0]);
    if (WIFSIGNALED(bad->status))
        return KILN_FAIL(KILN_E_BUILD, "%s was killed by signal %d", name, WTERMSIG(bad->status));
    return KILN_FAIL(KILN_E_BUILD, "%s exited with status %d", name, WEXITSTATUS(bad->status));
}

static kiln_status say(const supervised *s, int64_t took_ns) {
    const kiln_proc *first = &s->procs[0], *next = first->pid && s->n > 1 ? &s->procs[1] : first;
    const char *name = base_name(first->argv[0]);
    if (s->rc == ENOMEM) return KILN_NOMEM();
    if (s->rc != 0) return KILN_FAIL(KILN_E_BUILD, "cannot start %s: %s", next->argv[0], strerror(s->rc));
    switch (s->how) {
    case ENDED: break;
    case STOPPED: return KILN_FAIL(KILN_E_BUILD, "%s was stopped", name);
    case INTERRUPTED: return KILN_FAIL(KILN_E_INTERRUPTED, "%s was interrupted", name);
    case LATE:
        return KILN_FAIL(KILN_E_BUILD, "%s did not finish within %lld ms and was stopped", name,
                         (long long)((took_ns > 0 ? took_ns : 0) / NS_PER_MS));
    }
    return judge(s->procs, s->n);
}

static _Thread_local int nicer_by;

void kiln_proc_nice(int by) { nicer_by = by; }

kiln_status kiln_proc_run(kiln_proc *procs, int n, char *const *envp, int64_t deadline_ns,
                          const kiln_halt *halt) {
    if (atomic_load(&halt->stop)) return KILN_FAIL(KILN_E_BUILD, "stopped");
    int64_t began = kiln_clock_ns();
    supervised *s = mmap(NULL, SHARED_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) return KILN_NOMEM();
    *s = (supervised){.n = n, .nicer_by = nicer_by, .envp = envp, .deadline_ns = deadline_ns};
    s->how = STOPPED; /* remains so if somebody kills the supervisor */
    memcpy(s->procs, procs, (size_t)n * sizeof *procs);
    for (int i = 0; i < n; i++) {
        s->procs[i].pid = 0;
        s->procs[i].pidfd = -1;
        s->procs[i].ended = false;
        s->procs[i].status = 0;
        s->procs[i].cpu_ns = 0;
    }
    if (n > 1) join_by_link(s);
    recipes how_to;
    s->rc = init_recipes(&how_to, s->procs, n);
    s->how_to = &how_to;
    if (s->rc == 0) {
        run_supervised(s, halt);
        fini_recipes(&how_to, n);
    }
    memcpy(procs, s->procs, (size_t)n * sizeof *procs);
    kiln_status st = say(s, deadline_ns - began);
    munmap(s, SHARED_SIZE);
    return st;
}
