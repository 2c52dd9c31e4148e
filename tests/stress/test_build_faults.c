/* test_build_faults.c - compilers that fail, lie, hang or are killed, hosts that ignore SIGCHLD or fork,
 * threads that race, damaged objects, failing allocations: each costs a status, never a crash, a leak,
 * a zombie or a wait beyond the limit. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "build_cases.h"

/* -- compilers that misbehave --------------------------------------------------------------------- */

/* A script of that text in the scratch folder; the path is static. */
static const char *script(const char *text) {
    static char path[300];
    snprintf(path, sizeof path, "%s/cc.sh", scratch);
    unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", text);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0700), 0);
    return path;
}

static void assert_no_children(void) {
    assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1);
    assert_int_equal(errno, ECHILD);
}

static void check_fails(const char *text, int timeout_ms, const char *reason) {
    int before = count_fds();
    kiln_object o = {0};
    kiln_toolchain *tc = open_tools(script(text), 0);
    kiln_toolchain_set_timeout_ms(tc, timeout_ms);
    assert_int_equal(kiln_build(tc, kiln_isa_detect(), good_source, sizeof good_source - 1, &o),
                     KILN_E_BUILD);
    if (!strstr(kiln_last_error(), reason)) fail_msg("'%s' lacks '%s'", kiln_last_error(), reason);
    assert_int_equal(kiln_toolchain_route(tc), KILN_CC_NONE);
    assert_non_null(strstr(kiln_toolchain_why(tc), reason));
    kiln_toolchain_close(tc);
    assert_int_equal(count_fds(), before);
    assert_no_children();
}

static void broken_compilers_are_refused(void **state) {
    (void)state;
    check_fails("exit 1", 20000, "exited with status 1");
    check_fails("echo no licence today >&2; exit 3", 20000, "no licence today");
    check_fails("echo garbage; exit 0", 20000, "wrote nothing");
    check_fails("for a; do :; done; echo garbage > \"$a\"", 20000, "no ELF object");
    check_fails("head -c 100000 /dev/urandom >&2; exit 0", 20000, "wrote nothing");
    check_fails("kill -9 $$", 20000, "killed by signal 9");
    check_fails("kill -SEGV $$", 20000, "killed by signal 11");
    check_fails("exec /nonexistent/program", 20000, "exited with status 127");
}

/* A compiler that dies of the best level makes kernels for the next one. */
static void an_old_compiler_serves_a_lower_level(void **state) {
    (void)state;
    char text[300];
    kiln_isa best = kiln_isa_detect();
    if (best == KILN_ISA_GENERIC) skip();
    snprintf(text, sizeof text,
             "case \"$*\" in *-march=%s*) echo unknown level >&2; exit 1;; esac\nexec gcc \"$@\"",
             kiln_isa_march(best));
    kiln_toolchain *tc = open_tools(script(text), 0);
    assert_int_not_equal(kiln_toolchain_route(tc), KILN_CC_NONE);
    assert_non_null(strstr(kiln_toolchain_why(tc), "unknown level"));
    kiln_isa isa, generic;
    assert_int_equal(kiln_toolchain_isa(tc, best, &isa), KILN_OK);
    assert_true(isa < best && kiln_isa_runs(isa));
    assert_non_null(strstr(kiln_toolchain_id(tc), kiln_isa_name(isa)));
    assert_int_equal(kiln_toolchain_isa(tc, KILN_ISA_GENERIC, &generic), KILN_OK);
    assert_int_equal(generic, KILN_ISA_GENERIC);
    kiln_toolchain_close(tc);
}

/* True once no process of the group is left; a killed one may take a moment to go. */
static bool group_is_gone(pid_t group) {
    for (int i = 0; i < 200; i++) {
        if (kill(-group, 0) != 0 && errno == ESRCH) return true;
        usleep(10000);
    }
    return false;
}

static void a_hanging_compiler_is_stopped_with_its_children(void **state) {
    (void)state;
    char text[700], pids[400];
    snprintf(pids, sizeof pids, "%s/pids", scratch);
    unlink(pids);
    snprintf(text, sizeof text, "echo $$ >> %s; sleep 1000 & sleep 1000", pids);
    int64_t began = kiln_clock_ns();
    check_fails(text, 600, "did not finish within");
    assert_true(kiln_clock_ns() - began < INT64_C(20000000000)); /* the scripts sleep far longer */
    FILE *f = fopen(pids, "r");
    assert_non_null(f);
    int group, n = 0;
    for (; fscanf(f, "%d", &group) == 1; n++) assert_true(group_is_gone(group));
    fclose(f);
    assert_true(n >= 1);
    unlink(pids);
}

/* Right during the trial, wrong after: a compiler may break while the host runs. */
static void a_compiler_may_break_later(void **state) {
    (void)state;
    static const char *const texts[] = {"exit 1", "kill -9 $$", "sleep 1000", "echo garbage"};
    static const char *const reasons[] = {"exited with status 1", "killed by signal 9",
                                          "did not finish within", "wrote nothing"};
    for (int i = 0; i < 4; i++) {
        kiln_object o = {0};
        kiln_toolchain *tc = open_tools(script("exec gcc \"$@\""), KILN_AVOID_DIRECT);
        int before = count_fds();
        check_whole_way(tc);
        (void)script(texts[i]);
        kiln_toolchain_set_timeout_ms(tc, i == 2 ? 300 : 20000);
        assert_int_equal(kiln_build(tc, kiln_isa_detect(), good_source, sizeof good_source - 1, &o),
                         KILN_E_BUILD);
        if (!strstr(kiln_last_error(), reasons[i])) fail_msg("%s", kiln_last_error());
        assert_int_equal(count_fds(), before);
        assert_no_children();
        (void)script("exec gcc \"$@\"");
        kiln_toolchain_set_timeout_ms(tc, 20000);
        check_whole_way(tc);
        kiln_toolchain_close(tc);
    }
}

/* A compiler that never stops writing is stopped by its file size limit, long before the disk is full. */
static void a_flood_of_messages_is_bounded(void **state) {
    (void)state;
    char path[400];
    kiln_object o = {0};
    kiln_toolchain *tc = open_tools(script("exec gcc \"$@\""), KILN_AVOID_DIRECT);
    check_whole_way(tc);
    (void)script("exec yes error: flood >&2");
    assert_int_equal(kiln_build(tc, kiln_isa_detect(), good_source, sizeof good_source - 1, &o),
                     KILN_E_BUILD);
    assert_non_null(strstr(kiln_last_error(), "error: flood"));
    assert_non_null(strstr(kiln_last_error(), "killed by signal 25")); /* SIGXFSZ */
    snprintf(path, sizeof path, "%s/build-%016llx.log", scratch,
             (unsigned long long)kiln_hash64(good_source, sizeof good_source - 1));
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size < 100000);
    kiln_toolchain_close(tc);
}

static void an_unwritable_folder_costs_the_log_only(void **state) {
    (void)state;
    static const char bad[] = "int kiln_kernel(const int *in) { return undeclared_thing; }";
    kiln_toolchain *tc = NULL;
    kiln_object o = {0};
    assert_int_equal(kiln_toolchain_open("gcc", "/nonexistent/folder", &tc), KILN_OK);
    check_whole_way(tc);
    assert_int_equal(kiln_build(tc, KILN_ISA_GENERIC, bad, sizeof bad - 1, &o), KILN_E_BUILD);
    assert_non_null(strstr(kiln_last_error(), "undeclared_thing"));
    assert_null(strstr(kiln_last_error(), "output in"));
    o = build_text(tc, good_source);
    kiln_code *c = NULL;
    assert_int_equal(kiln_code_load_dlopen(tc, &o, KILN_KERNEL_SYMBOL, &c), KILN_E_BUILD);
    kiln_object_fini(&o);
    kiln_toolchain_close(tc);
}

/* -- hosts with settings of their own ------------------------------------------------------------- */

/* Runs `body` in a forked child, so that its settings end with it. */
static void in_child(void (*body)(void)) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        body();
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void must(bool right, const char *what, int line) {
    if (right) return;
    fprintf(stderr, "line %d: %s: %s\n", line, what, kiln_last_error());
    _exit(1);
}
#define MUST(x) must((x), #x, __LINE__)

static bool whole_way_works(kiln_toolchain *tc) {
    kiln_object o = {0};
    kiln_code *c = NULL;
    if (kiln_build(tc, kiln_isa_detect(), good_source, sizeof good_source - 1, &o) != KILN_OK) return false;
    kiln_status st = kiln_code_load(tc, &o, KILN_KERNEL_SYMBOL, &c);
    kiln_object_fini(&o);
    if (st != KILN_OK) return false;
    bool right = run_code(c, 3, 4) == good_answer(3, 4);
    kiln_code_free(c);
    return right;
}

/* A kernel that does not know pidfd_open: children are waited for without. */
static void body_no_pidfd(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    MUST(syscall(SYS_pidfd_open, getpid(), 0) == -1 && errno == ENOSYS);
    kiln_toolchain *tc = open_tools("gcc", 0);
    MUST(whole_way_works(tc) && whole_way_works(tc));
    MUST(kiln_toolchain_route(tc) == KILN_CC_DIRECT);
    kiln_toolchain_close(tc);
    tc = open_tools(script("sleep 60"), 0);
    kiln_toolchain_set_timeout_ms(tc, 200);
    MUST(kiln_toolchain_route(tc) == KILN_CC_NONE); /* and what hangs is stopped */
    kiln_toolchain_close(tc);
    MUST(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD);
}

static void pidfd_open_may_be_unknown(void **state) {
    (void)state;
    in_child(body_no_pidfd);
}

static void body_sigchld_ignored(void) {
    static const char bad[] = "int kiln_kernel(const int *in) { return undeclared_thing; }";
    static const unsigned avoid[] = {0, KILN_AVOID_DIRECT};
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        kiln_toolchain *tc = NULL;
        kiln_object o = {0};
        MUST(kiln_toolchain_open("gcc", scratch, &tc) == KILN_OK);
        kiln_toolchain_avoid(tc, avoid[i]);
        MUST(kiln_toolchain_route(tc) == (i ? KILN_CC_DRIVER : KILN_CC_DIRECT));
        MUST(whole_way_works(tc));
        MUST(kiln_build(tc, KILN_ISA_GENERIC, bad, sizeof bad - 1, &o) == KILN_E_BUILD);
        MUST(strstr(kiln_last_error(), "undeclared_thing"));
        kiln_toolchain_close(tc);
    }
    kiln_toolchain *tc = NULL;
    MUST(kiln_toolchain_open(script("exec sleep 1000"), scratch, &tc) == KILN_OK);
    kiln_toolchain_set_timeout_ms(tc, 300);
    MUST(kiln_toolchain_route(tc) == KILN_CC_NONE);
    kiln_toolchain_close(tc);
}

static void sigchld_may_be_ignored(void **state) {
    (void)state;
    in_child(body_sigchld_ignored);
}

/* The limit makes the write itself raise SIGXFSZ: nothing may be written past it in this process. */
static void body_small_files(void) {
    kiln_toolchain *tc = NULL;
    kiln_object o = {0};
    char big[5000];
    MUST(kiln_toolchain_open("gcc", scratch, &tc) == KILN_OK);
    MUST(whole_way_works(tc));
    struct rlimit small = {4096, RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_FSIZE, &small) == 0);
    memset(big, ' ', sizeof big);
    MUST(kiln_build(tc, KILN_ISA_GENERIC, big, sizeof big, &o) == KILN_E_BUILD);
    MUST(strstr(kiln_last_error(), "5000 bytes"));
    small.rlim_cur = sizeof good_source;
    MUST(setrlimit(RLIMIT_FSIZE, &small) == 0);
    MUST(kiln_build(tc, KILN_ISA_GENERIC, good_source, sizeof good_source - 1, &o) == KILN_E_BUILD);
    MUST(strstr(kiln_last_error(), "as "));
    kiln_toolchain_close(tc);
}

static void a_full_disk_is_a_status(void **state) {
    (void)state;
    in_child(body_small_files);
}

static void body_low_descriptors_shut(void) {
    kiln_toolchain *tc = NULL;
    close(0);
    close(1);
    MUST(kiln_toolchain_open("gcc", scratch, &tc) == KILN_OK);
    MUST(kiln_toolchain_route(tc) == KILN_CC_DIRECT);
    MUST(whole_way_works(tc));
    kiln_toolchain_close(tc);
}

static void standard_descriptors_may_be_shut(void **state) {
    (void)state;
    in_child(body_low_descriptors_shut);
}

static kiln_toolchain *inherited_tools;
static kiln_code *inherited_code;

static void body_after_fork(void) {
    MUST(run_code(inherited_code, 3, 4) == good_answer(3, 4));
    for (int i = 0; i < 3; i++) MUST(whole_way_works(inherited_tools));
    kiln_code_free(inherited_code);
    MUST(whole_way_works(inherited_tools));
}

static void a_forked_child_works_on(void **state) {
    (void)state;
    inherited_tools = open_tools("gcc", 0);
    kiln_object o = build_text(inherited_tools, good_source);
    inherited_code = load_object(NULL, &o);
    in_child(body_after_fork);
    check_code(inherited_code); /* the child freed and filled only memory of its own */
    kiln_code_free(inherited_code);
    kiln_object_fini(&o);
    kiln_toolchain_close(inherited_tools);
}

static bool holds(const kiln_codemem *m, int byte) {
    for (size_t i = 0; i < m->n; i++)
        if (m->exec[i] != byte) return false;
    return true;
}

/* The child's side: fills a piece, lets the parent fill many, and looks at what both should hold. */
static bool child_keeps_its_bytes(const kiln_codemem *kept, int from_parent, int to_parent) {
    kiln_codemem own;
    char c = 0;
    if (kiln_codemem_get(256, 64, &own) != KILN_OK) return false;
    memset(own.write, 0x77, own.n);
    if (write(to_parent, &c, 1) != 1 || read(from_parent, &c, 1) != 1) return false;
    return holds(kept, 0xAA) && holds(&own, 0x77);
}

/* Parent and child share code memory: neither may fill what the other may still run. */
static void code_live_at_a_fork_is_never_overwritten(void **state) {
    (void)state;
    kiln_codemem anchor, kept, m[64]; /* anchor: the arena stays in use */
    int down[2], up[2], status = -1;
    char c = 0;
    assert_int_equal(pipe(down) | pipe(up), 0);
    assert_int_equal(kiln_codemem_get(256, 64, &anchor), KILN_OK);
    assert_int_equal(kiln_codemem_get(256, 64, &kept), KILN_OK);
    memset(kept.write, 0xAA, kept.n);
    pid_t pid = fork();
    if (pid == 0) _exit(child_keeps_its_bytes(&kept, down[0], up[1]) ? 0 : 1);
    kiln_codemem_put(&kept);
    assert_int_equal(read(up[0], &c, 1), 1);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(kiln_codemem_get(256, 64, &m[i]), KILN_OK);
        memset(m[i].write, 0x55, m[i].n);
    }
    assert_int_equal(write(down[1], &c, 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (int i = 0; i < 64; i++) kiln_codemem_put(&m[i]);
    kiln_codemem_put(&anchor);
    for (int i = 0; i < 2; i++) close(down[i]), close(up[i]);
}

/* -- threads -------------------------------------------------------------------------------------- */

static void *build_in_thread(void *arg) {
    for (int i = 0; i < 3; i++)
        if (!whole_way_works(arg)) return (void *)1;
    return NULL;
}

static void threads_share_a_toolchain(void **state) {
    (void)state;
    enum { N = 6 };
    pthread_t threads[N];
    kiln_toolchain *tc = open_tools("gcc", 0);
    int before = count_fds();
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&threads[i], NULL, build_in_thread, tc), 0);
    for (int i = 0; i < N; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(count_fds(), before);
    assert_no_children();
    (void)count_mappings();
    kiln_toolchain_close(tc);
}

/* -- damaged objects ------------------------------------------------------------------------------ */

/* Loads and never runs: the bytes of a flipped object may be any code. */
static bool loads(const void *bytes, size_t n) {
    kiln_object o = {.bytes = kiln_alloc(n), .n = n};
    kiln_code *c = NULL;
    assert_non_null(o.bytes);
    memcpy(o.bytes, bytes, n);
    kiln_status st = kiln_code_load(NULL, &o, KILN_KERNEL_SYMBOL, &c);
    assert_true(st == KILN_OK || st == KILN_E_BUILD);
    kiln_object_fini(&o);
    kiln_code_free(c);
    return st == KILN_OK;
}

static void truncated_objects_are_refused(void **state) {
    (void)state;
    kiln_toolchain *tc = open_tools("gcc", 0);
    kiln_object o = build_text(tc, good_source);
    assert_true(loads(o.bytes, o.n));
    for (size_t n = 0; n < o.n; n++) assert_false(loads(o.bytes, n)); /* the section table comes last */
    kiln_object_fini(&o);
    kiln_toolchain_close(tc);
}

static void flipped_objects_give_a_status(void **state) {
    (void)state;
    kiln_toolchain *tc = open_tools("gcc", 0);
    kiln_object o = build_text(tc, good_source);
    uint8_t *copy = kiln_alloc(o.n);
    int refused = 0;
    uint64_t seed = 20240607;
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, o.bytes, o.n);
        for (int k = 0; k <= round % 4; k++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            copy[(seed >> 20) % o.n] ^= (uint8_t)(1u << (seed >> 60 & 7));
        }
        refused += !loads(copy, o.n);
    }
    assert_in_range(refused, 1000, 19999); /* structure is checked, code bytes are not */
    kiln_free(copy);
    kiln_object_fini(&o);
    kiln_toolchain_close(tc);
}

/* -- allocations ---------------------------------------------------------------------------------- */

static kiln_status open_build_load(const char *src) {
    kiln_toolchain *tc = NULL;
    kiln_object o = {0};
    kiln_code *c = NULL;
    KILN_TRY(kiln_toolchain_open("gcc", scratch, &tc));
    kiln_status st = kiln_build(tc, kiln_isa_detect(), src, strlen(src), &o);
    if (st == KILN_OK) st = kiln_code_load(tc, &o, KILN_KERNEL_SYMBOL, &c);
    kiln_code_free(c);
    kiln_object_fini(&o);
    kiln_toolchain_close(tc);
    return st;
}

static void check_failing_allocations(const char *src, kiln_status in_the_end) {
    int before = count_fds();
    for (long n = 1;; n++) {
        kiln_alloc_fail_after(n);
        kiln_status st = open_build_load(src);
        long made = kiln_alloc_fail_after(0);
        assert_int_equal(count_fds(), before);
        if (made < n) {
            assert_int_equal(st, in_the_end);
            break;
        }
        assert_true(st == KILN_E_NOMEM || st == KILN_E_BUILD || st == KILN_OK);
    }
    assert_no_children();
    assert_int_equal(count_entries(scratch, ".o") + count_entries(scratch, ".so"), 0);
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    check_failing_allocations(good_source, KILN_OK);
    check_failing_allocations("static int n; int kiln_kernel(const int *in) { return n += *in; }", KILN_OK);
    check_failing_allocations("syntax error", KILN_E_BUILD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_compilers_are_refused),
        cmocka_unit_test(an_old_compiler_serves_a_lower_level),
        cmocka_unit_test(a_hanging_compiler_is_stopped_with_its_children),
        cmocka_unit_test(a_compiler_may_break_later),
        cmocka_unit_test(a_flood_of_messages_is_bounded),
        cmocka_unit_test(an_unwritable_folder_costs_the_log_only),
        cmocka_unit_test(sigchld_may_be_ignored),
        cmocka_unit_test(pidfd_open_may_be_unknown),
        cmocka_unit_test(a_full_disk_is_a_status),
        cmocka_unit_test(standard_descriptors_may_be_shut),
        cmocka_unit_test(a_forked_child_works_on),
        cmocka_unit_test(code_live_at_a_fork_is_never_overwritten),
        cmocka_unit_test(threads_share_a_toolchain),
        cmocka_unit_test(truncated_objects_are_refused),
        cmocka_unit_test(flipped_objects_give_a_status),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
