/* proc.c - argument vectors -> finished child processes.
 *
 * posix_spawn only: a fork would copy the page tables of a large host.  Children get default signals,
 * an empty mask, their own group and none of the host's descriptors.  The host's signal handlers are
 * never touched, so a child's status may be unknown (SIGCHLD ignored); callers then judge its output. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "build/proc.h"

enum { FD_FLOOR = 10 }; /* our descriptors stay above 0-3, which the child's are moved onto */
#define NS_PER_MS INT64_C(1000000)
#define LOOK_NS (20 * NS_PER_MS)         /* how often a wait looks whether it is to stop */
#define KILL_GRACE_NS (5000 * NS_PER_MS) /* a process that survives SIGKILL this long is left behind */

/* -- unnamed files ----------------------------------------------------------------------------- */

static int lift(int fd) {
    if (fd < 0 || fd >= FD_FLOOR) return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_FLOOR);
    int why = errno;
    close(fd);
    errno = why;
    return high;
}

int kiln_scratch_new(const char *dir) {
    int fd = memfd_create("kiln-build", MFD_CLOEXEC);
    if (fd < 0) fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return lift(fd);
}

bool kiln_fsize_allows(size_t n) {
    struct rlimit most;
    return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY || n <= most.rlim_cur;
}

kiln_status kiln_scratch_fill(int fd, const void *data, size_t n) {
    if (!kiln_fsize_allows(n))
        return KILN_FAIL(KILN_E_BUILD, "the source has %zu bytes, more than this process may write to a file",
                         n);
    const char *p = data;
    for (size_t at = 0; at < n;) {
        ssize_t k = pwrite(fd, p + at, n - at, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0)
            return KILN_FAIL(KILN_E_BUILD, "cannot write the source: %s", strerror(k < 0 ? errno : ENOSPC));
        at += (size_t)k;
    }
    return KILN_OK;
}

kiln_status kiln_scratch_read(int fd, size_t most, char **out, size_t *out_n) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return KILN_FAIL(KILN_E_BUILD, "cannot read a scratch file: %s", strerror(errno));
    size_t n = (size_t)info.st_size < most ? (size_t)info.st_size : most;
    char *p = kiln_alloc(n + 1);
    if (!p) return KILN_NOMEM();
    size_t at = 0;
    while (at < n) {
        ssize_t k = pread(fd, p + at, n - at, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        at += (size_t)k;
    }
    p[at] = 0;
    *out = p;
    *out_n = at;
    return KILN_OK;
}

/* -- starting ------------------------------------------------------------------------------------ */

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

static int spawn_once(kiln_proc *p, char *const *envp, bool close_rest) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0) return rc;
    rc = posix_spawnattr_init(&attr);
    if (rc == 0) {
        rc = set_actions(&actions, p, close_rest);
        if (rc == 0) rc = set_attributes(&attr);
        if (rc == 0) rc = posix_spawn(&p->pid, p->argv[0], &actions, &attr, p->argv, envp);
        if (rc != 0) p->pid = 0;
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&actions);
    return rc;
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

static kiln_status start(kiln_proc *p, char *const *envp) {
    int rc = spawn_once(p, envp, true);
    if (rc != 0) rc = spawn_once(p, envp, false); /* closing the rest needs close_range or /proc */
    if (rc != 0) return KILN_FAIL(KILN_E_BUILD, "cannot start %s: %s", p->argv[0], strerror(rc));
    confine(p->pid);
    p->pidfd = open_pidfd(p->pid);
    return KILN_OK;
}

static bool make_pipe(int ends[2]) {
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    ends[0] = lift(ends[0]);
    ends[1] = lift(ends[1]);
    if (ends[0] >= 0 && ends[1] >= 0) return true;
    int why = errno;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0) close(ends[i]);
    errno = why;
    return false;
}

static kiln_status start_all(kiln_proc *procs, int n, char *const *envp) {
    kiln_status st = KILN_OK;
    int reader = -1; /* read end of the pipe from the process before */
    for (int i = 0; i < n && st == KILN_OK; i++) {
        kiln_proc *p = &procs[i];
        int ends[2] = {-1, -1};
        if (reader >= 0) p->in = reader;
        if (p->out == KILN_PROC_PIPE) {
            if (!make_pipe(ends)) {
                st = KILN_FAIL(KILN_E_BUILD, "cannot make a pipe: %s", strerror(errno));
                break;
            }
            p->out = ends[1];
        }
        st = start(p, envp);
        if (ends[1] >= 0) close(ends[1]);
        if (reader >= 0) close(reader);
        reader = ends[0];
    }
    if (reader >= 0) close(reader);
    return st;
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
        (void)poll(copy, (nfds_t)n, (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS));
    } else {
        struct timespec nap = {0, (long)left_ns};
        (void)nanosleep(&nap, NULL);
    }
}

typedef enum outcome { ENDED, LATE, STOPPED, INTERRUPTED } outcome;

static outcome wait_all(kiln_proc *procs, int n, int64_t deadline_ns, const kiln_halt *halt) {
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
        if (atomic_load(&halt->stop)) return STOPPED;
        if (kiln_halt_asked(halt)) return INTERRUPTED;
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
    static const kiln_halt never;
    (void)wait_all(procs, n, kiln_clock_ns() + KILL_GRACE_NS, &never);
}

static void reap(kiln_proc *p) {
    if (!p->pid) return;
    pid_t got;
    int flags = p->ended ? 0 : WNOHANG;
    do got = waitpid(p->pid, &p->status, flags);
    while (got < 0 && errno == EINTR);
    p->known = got == p->pid;
    if (p->pidfd >= 0) close(p->pidfd);
    p->pidfd = -1;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool failed(const kiln_proc *p) { return p->known && p->status != 0; }

static kiln_status judge(const kiln_proc *procs, int n) {
    const kiln_proc *bad = NULL;
    for (int i = n - 1; i >= 0; i--) {
        bool echo = bad && WIFSIGNALED(procs[i].status) && WTERMSIG(procs[i].status) == SIGPIPE;
        if (failed(&procs[i]) && !echo) bad = &procs[i]; /* the first, unless the next one's end killed it */
    }
    if (!bad) return KILN_OK;
    const char *name = base_name(bad->argv[0]);
    if (WIFSIGNALED(bad->status))
        return KILN_FAIL(KILN_E_BUILD, "%s was killed by signal %d", name, WTERMSIG(bad->status));
    return KILN_FAIL(KILN_E_BUILD, "%s exited with status %d", name, WEXITSTATUS(bad->status));
}

kiln_status kiln_proc_run(kiln_proc *procs, int n, char *const *envp, int64_t deadline_ns,
                          const kiln_halt *halt) {
    if (atomic_load(&halt->stop)) return KILN_FAIL(KILN_E_BUILD, "stopped");
    int64_t began = kiln_clock_ns();
    for (int i = 0; i < n; i++) {
        procs[i].pid = 0;
        procs[i].pidfd = -1;
        procs[i].ended = procs[i].known = false;
        procs[i].status = 0;
    }
    kiln_status st = start_all(procs, n, envp);
    outcome how = st == KILN_OK ? wait_all(procs, n, deadline_ns, halt) : STOPPED;
    if (how != ENDED) kill_all(procs, n);
    for (int i = 0; i < n; i++) reap(&procs[i]);
    if (st != KILN_OK) return st;
    const char *name = base_name(procs[0].argv[0]);
    switch (how) {
    case ENDED: break;
    case STOPPED: return KILN_FAIL(KILN_E_BUILD, "%s was stopped", name);
    case INTERRUPTED: return KILN_FAIL(KILN_E_INTERRUPTED, "%s was interrupted", name);
    case LATE:
        return KILN_FAIL(KILN_E_BUILD, "%s did not finish within %lld ms and was stopped", name,
                         (long long)((deadline_ns > began ? deadline_ns - began : 0) / NS_PER_MS));
    }
    return judge(procs, n);
}
