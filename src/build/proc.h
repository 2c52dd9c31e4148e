/* proc.h - short-lived child processes and the unnamed files they exchange bytes through.
 *
 * A run starts one process or two joined by a pipe, waits for all of them until a deadline and reaps
 * them, whatever the host did with SIGCHLD.  Knows nothing of compilers. */
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

typedef struct kiln_proc {
    char *const *argv;        /* NULL-terminated; argv[0] is a path, PATH is not searched */
    int in, out, err, result; /* the child's descriptors 0 to 3: a descriptor of ours or KILN_PROC_* */
    /* filled by kiln_proc_run */
    pid_t pid;  /* 0: not started */
    int pidfd;  /* -1: the system has none */
    bool ended; /* seen to have exited */
    bool known; /* status is valid; false if the host ignores SIGCHLD or reaped our child itself */
    int status; /* as waitpid gives it */
} kiln_proc;

/* Whether processes that run are to be killed. */
typedef struct kiln_halt {
    atomic_bool stop;                /* for good */
    kiln_interrupted_fn interrupted; /* by the thread that waits; or NULL */
    void *user;
} kiln_halt;
static inline bool kiln_halt_asked(const kiln_halt *h) { return h->interrupted && h->interrupted(h->user); }

/* Runs n (1 or 2) processes at once, each its own process group, with default signals and bounded
 * memory and file size.  KILN_OK: all ended, and those with a known status succeeded.  KILN_E_BUILD:
 * one could not start, failed, was killed, the deadline passed or halt->stop became true (then all groups were
 * killed, as for KILN_E_INTERRUPTED). */
kiln_status kiln_proc_run(kiln_proc *procs, int n, char *const *envp, int64_t deadline_ns,
                          const kiln_halt *halt) KILN_MUST_CHECK;

/* A new unnamed file, closed on exec: in memory, else in dir.  -1 with errno. */
int kiln_scratch_new(const char *dir);
kiln_status kiln_scratch_fill(int fd, const void *data, size_t n) KILN_MUST_CHECK; /* offset stays 0 */
/* Reads from the start, at most `most` bytes, into heap memory with a NUL after it. */
kiln_status kiln_scratch_read(int fd, size_t most, char **out, size_t *out_n) KILN_MUST_CHECK;

/* Whether a file of n bytes may be written: past RLIMIT_FSIZE the write would raise SIGXFSZ in the host. */
bool kiln_fsize_allows(size_t n);
#endif
