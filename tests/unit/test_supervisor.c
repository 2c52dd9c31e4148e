/* test_supervisor.c - the supervisor of compilers takes no memory from the allocator that it shares with its host.
 *
 * This program's own malloc and free count the calls that another process makes on its memory. */
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "build_cases.h"
#include "sanitized.h"

static pid_t host;          /* 0: nothing is counted */
static atomic_int nforeign; /* calls by a process that is not the host */

#if !SANITIZED /* sanitizers bring an allocator of their own */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

static void note_caller(void) {
    if (host && (pid_t)syscall(SYS_getpid) != host) atomic_fetch_add(&nforeign, 1);
}

#define SEEN __attribute__((visibility("default"))) /* by libc, which calls these too */
SEEN void *malloc(size_t n) { return note_caller(), __libc_malloc(n); }
SEEN void *calloc(size_t n, size_t size) { return note_caller(), __libc_calloc(n, size); }
SEEN void *realloc(void *p, size_t n) { return note_caller(), __libc_realloc(p, n); }
SEEN void free(void *p) { note_caller(), __libc_free(p); }
#endif

/* Both routes, with success and failure.  The first build looks for the compiler, too. */
static void the_supervisor_allocates_nothing(void **state) {
    (void)state;
    static const char bad[] = "int kiln_kernel(";
    for (int driver = 0; driver < 2; driver++) {
        kiln_toolchain *tc = open_tools("gcc", driver ? KILN_AVOID_DIRECT : 0);
        kiln_object o = {0};
        host = getpid();
        assert_int_equal(kiln_build(tc, KILN_ISA_GENERIC, good_source, sizeof good_source - 1, &o), KILN_OK);
        kiln_object_fini(&o);
        assert_int_equal(kiln_build(tc, KILN_ISA_GENERIC, bad, sizeof bad - 1, &o), KILN_E_BUILD);
        host = 0;
        kiln_toolchain_close(tc);
        assert_int_equal(atomic_load(&nforeign), 0);
    }
}

static int allocate(void *user) {
    char *volatile p = strdup(user);
    return free(p), 0;
}

/* A process on this program's memory that does allocate is counted. */
static void the_count_counts(void **state) {
    (void)state;
    static char stack[64 << 10];
    if (SANITIZED) skip();
    host = getpid();
    pid_t pid = clone(allocate, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, "text");
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    host = 0;
    assert_int_equal(atomic_load(&nforeign), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_supervisor_allocates_nothing),
                                       cmocka_unit_test(the_count_counts)};
    return cmocka_run_group_tests_name("supervisor", tests, make_scratch, drop_scratch);
}
