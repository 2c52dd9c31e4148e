/* proc.h - short-lived child processes and the unnamed files they exchange bytes through.
 *
 * A run starts one process or two joined by a pipe, waits for all of them until a deadline and reaps
 * them, even where the host ignores SIGCHLD.  The host gets no signal when they end.  Knows nothing of
 * compilers. */
#ifndef KILN_BUILD_PROC_H
#define KILN_BUILD_PROC_H
#include <stdatomic.h>
#include <sys/types.h>

#include "base/base.h"

enum {
    KILN_PROC_NULL = -1,    /* /dev/null as stdin, stdout or stderr; no descriptor 3 */
    KILN_PROC_PIPE = -2,    /* stdout only: into the next process's stdin */
    KILN_PROC_RESULT_FD = 3 /* where the child finds `result` */
};
enum {
    KILN_FD_FLOOR = 10
}; /* our descriptors stay at this number or above: those of children are moved onto 0 to 3 */

typedef struct kiln_proc {
    char *const *argv;        /* NULL-terminated; argv[0] is a path, PATH is not searched */
    int in, out, err, result; /* the child's descriptors 0 to 3: a descriptor of ours or KILN_PROC_* */
    /* filled by kiln_proc_run */
    pid_t pid;      /* 0: not started */
    int pidfd;      /* -1: the system has none */
    bool ended;     /* the process has exited, and status is valid */
    int status;     /* as waitpid gives it */
    int64_t cpu_ns; /* processor time that it and its children took, if known */
} kiln_proc;

/* Whether processes that run are to be killed. */
typedef struct kiln_halt {
    atomic_bool stop;                /* for good */
    kiln_interrupted_fn interrupted; /* by the thread that waits; or NULL */
    void *user;
} kiln_halt;
static inline bool kiln_halt_asked(const kiln_halt *h) { return h->interrupted && h->interrupted(h->user); }

/* Runs n (1 or 2) processes at once, each in a process group of its own, with default signals and bounded
 * memory and file size.  KILN_OK: all processes succeeded.  KILN_E_BUILD: a process could not start, failed or
 * was killed, or the deadline passed, or halt->stop became true.  KILN_E_INTERRUPTED: halt->interrupted said
 * yes.  Whenever not all processes end by themselves, all groups are killed before the return. */
kiln_status kiln_proc_run(kiln_proc *procs, int n, char *const *envp, int64_t deadline_ns,
                          const kiln_halt *halt) KILN_MUST_CHECK;

/* By how much processes that this thread starts from now on are nicer than it is, as nice(2) counts; 0 at first. */
void kiln_proc_nice(int by);

/* A new unnamed file, closed on exec: in memory, else in dir.  -1 with errno. */
int kiln_scratch_new(const char *dir);
kiln_status kiln_scratch_fill(int fd, const void *data, size_t n) KILN_MUST_CHECK; /* offset stays 0 */
/* Reads from the start, at most `most` bytes, into heap memory with a NUL after it. */
kiln_status kiln_scratch_read(int fd, size_t most, char **out, size_t *out_n) KILN_MUST_CHECK;
#endif
