/* test_first_call.c - who registers the process for membarrier, and when readers stop fencing.
 *
 * Registration waits for a grace period of the kernel where other threads exist, so no caller may wait for it.  This program has a
 * syscall() of its own, which says who registers and holds registration back until it is told to go on.  Each test runs
 * in a child, since a process is registered once.  ThreadSanitizer has a thread of its own in every process, so that no process
 * has one thread there. */
#include <dlfcn.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include "tier_cases.h"

enum { CALLS = 2000 };

static atomic_int registered_by; /* the thread; 0: nobody has asked yet */
static atomic_bool held_back, refused;

/* What epoch.c and tiers.c call.  All their calls have three arguments at most. */
long syscall(long number, ...) {
    static long (*real)(long, ...);
    va_list args;
    va_start(args, number);
    long a = va_arg(args, long), b = va_arg(args, long), c = va_arg(args, long);
    va_end(args);
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    bool registers = number == SYS_membarrier && (int)a == MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
    if (registers) atomic_store(&registered_by, (int)real(SYS_gettid));
    while (registers && atomic_load(&held_back)) nap(1);
    if (registers && atomic_load(&refused)) {
        errno = ENOSYS;
        return -1;
    }
    return real(number, a, b, c);
}

static int this_thread(void) { return (int)syscall(SYS_gettid); }

static void *idle(void *done) {
    while (!atomic_load((atomic_bool *)done)) nap(1);
    return NULL;
}

/* Calls that are right, of more classes than may stay, so that some are retired. */
static bool calls_are_right(kiln_ctx *ctx) {
    static const char *const names[] = {"add.Tensor", "mul.Tensor", "sub.Tensor", "maximum"};
    static const int32_t want[] = {6, 9, 0, 3};
    kiln_tensor *x = I32(SIZES(3), 3, 3, 3);
    bool right = true;
    for (int k = 0; k < CALLS && right; k++) {
        kiln_tensor *y = call1(ctx, names[k / 3 % 4], ARGS(TEN(x), TEN(x)));
        right = ((const int32_t *)kiln_tensor_data(y))[k % 3] == want[k / 3 % 4];
        kiln_tensor_release(y);
    }
    kiln_tensor_release(x);
    return right && stats_of(ctx).evictions > 10;
}

static kiln_ctx *open_small(void) {
    return open_with((kiln_config){.mode = KILN_MODE_INTERP, .max_kernels = 2});
}

static int count_threads(void) { return count_entries("/proc/self/task", ""); }

static bool fences(void) { return atomic_load(&kiln_readers_fence); }

/* -- the cases, each in a process of its own ----------------------------------------------------------------- */

static bool a_thread_registers(void) {
    pthread_t other;
    atomic_bool done = false;
    if (pthread_create(&other, NULL, idle, &done) != 0) return false;
    int nthreads = count_threads();
    atomic_store(&held_back, true);
    kiln_ctx *ctx = open_small();
    bool right = calls_are_right(ctx) && fences(); /* while registration takes its time */
    atomic_store(&held_back, false);
    while (fences()) right = calls_are_right(ctx) && right;
    right = calls_are_right(ctx) && right && atomic_load(&registered_by) != this_thread();
    right = right && kiln_thread_last.id != 0; /* the shortest path is taken */
    while (count_threads() > nthreads) nap(1); /* a call has joined the thread */
    kiln_close(ctx);
    atomic_store(&done, true);
    return pthread_join(other, NULL) == 0 && right;
}

static bool one_thread_registers_itself(void) {
    kiln_ctx *ctx = open_small();
    bool right = !fences() && atomic_load(&registered_by) == this_thread();
    right = (right || TSAN) && calls_are_right(ctx);
    kiln_close(ctx);
    return right;
}

static bool without_membarrier_all_fence(void) {
    atomic_store(&refused, true);
    kiln_ctx *ctx = open_small();
    bool right = calls_are_right(ctx) && fences();
    kiln_close(ctx);
    return right;
}

static void *let_go(void *unused) {
    nap(20);
    atomic_store(&held_back, false);
    return unused;
}

static bool closing_waits_for_the_thread(void) {
    pthread_t other;
    int nthreads = count_threads();
    atomic_store(&held_back, true);
    if (pthread_create(&other, NULL, let_go, NULL) != 0) return false;
    kiln_ctx *ctx = open_small();
    kiln_close(ctx);
    bool right = !fences();
    return pthread_join(other, NULL) == 0 && right && (TSAN || count_threads() == nthreads);
}

static bool a_child_registers_itself(void) {
    pthread_t other;
    atomic_bool done = false;
    int status = 0;
    if (pthread_create(&other, NULL, idle, &done) != 0) return false;
    atomic_store(&held_back, true);
    kiln_ctx *ctx = open_small();
    bool right = calls_are_right(ctx) && fences();
    while (!atomic_load(&registered_by)) nap(1); /* the thread is at it, and is not in the child */
    atomic_store(&held_back, false);
    pid_t child = fork();
    if (child == 0) _exit(!fences() && calls_are_right(ctx) ? 0 : 1);
    right = waitpid(child, &status, 0) == child && status == 0 && right;
    kiln_close(ctx);
    atomic_store(&done, true);
    return pthread_join(other, NULL) == 0 && right;
}

static void check(bool (*body)(void)) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(body() ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

#define CASE(name)                       \
    static void check_##name(void **s) { \
        (void)s;                         \
        check(name);                     \
    }
CASE(a_thread_registers)
CASE(one_thread_registers_itself)
CASE(without_membarrier_all_fence)
CASE(closing_waits_for_the_thread)
CASE(a_child_registers_itself)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_a_thread_registers),
        cmocka_unit_test(check_one_thread_registers_itself),
        cmocka_unit_test(check_without_membarrier_all_fence),
        cmocka_unit_test(check_closing_waits_for_the_thread),
        cmocka_unit_test(check_a_child_registers_itself),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
