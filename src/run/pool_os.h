/* pool_os.h - what pool.c asks of the system: time, a pause, sleeping and waking, threads and their names, CPUs.
 *
 * A file of its own, so that tests/unit/test_pool_model.c can run pool.c on a model of up to 64 cores and a
 * simulated clock. */
#ifndef KILN_POOL_OS_H
#define KILN_POOL_OS_H
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

static inline int64_t os_now(void) { return kiln_clock_ns(); }

/* Tells the processor that this thread only waits. */
static inline void os_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Sleeps while *word is `value`; may return early. */
static inline void os_sleep(_Atomic uint32_t *word, uint32_t value) {
    int before = errno;
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    errno = before;
}

static inline void os_wake(_Atomic uint32_t *word) {
    int before = errno;
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = before;
}

static inline bool os_start(pthread_t *out, void *(*run)(void *), void *arg) {
    return pthread_create(out, NULL, run, arg) == 0;
}

/* Names this thread, for debuggers and /proc. */
static inline void os_name(const char *name) { (void)pthread_setname_np(pthread_self(), name); }

/* The CPU that this thread is on; -1: not known. */
static inline int os_cpu(void) { return sched_getcpu(); }

/* Moves this thread off `cpu`, if it may use another CPU.  Which CPUs it may use stays as it was. */
static inline void os_leave_cpu(int cpu) {
    int before = errno;
    cpu_set_t all, others;
    if (cpu >= 0 && cpu < CPU_SETSIZE && sched_getaffinity(0, sizeof all, &all) == 0) {
        others = all;
        CPU_CLR(cpu, &others);
        if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
            (void)sched_setaffinity(0, sizeof all, &all);
    }
    errno = before;
}

static inline void os_join(pthread_t thread) { (void)pthread_join(thread, NULL); }
#endif
