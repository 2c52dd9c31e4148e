/* test_setuid.c - a setuid program takes no settings from the environment: whoever starts it must not choose where its code comes from.
 *
 * A copy of this program is made setuid to one user and started by another, so the test needs root and a /tmp that allows it.
 * Not under sanitizers: their runtime refuses to start in a setuid program. */
#include <fcntl.h>
#include <sys/auxv.h>

#include "api/ctx.h"
#include "call_cases.h"
#include "target/cpu/cpu.h"
#include "target/cpu/tools.h"

enum { OWNER = 12345, CALLER = 12346, NOT_SECURE = 77 };

/* -- the setuid program ------------------------------------------------------------------------------------ */

static int complain(const char *what) {
    fprintf(stderr, "a setuid program: %s\n", what);
    return 1;
}

/* The compiler is that of the system, in an environment that has nothing of the caller's. */
static int probe_compiler(void) {
    kiln_ctx *ctx = NULL;
    kiln_toolchain *tc;
    kiln_config config = {.size = sizeof config, .mode = KILN_MODE_SYNC};
    if (kiln_open(&config, &ctx) != KILN_OK) return complain(kiln_last_error());
    check_add(ctx);
    if (strcmp(kiln_last_tier(), "compiled") != 0) return complain("no compiler");
    if (kiln_cpu_toolchain(kiln_ctx_host_target(ctx), &tc) != KILN_OK) return complain(kiln_last_error());
    for (char **e = kiln_toolchain_request(tc)->env; *e; e++)
        if (strstr(*e, "attack")) return complain(*e);
    kiln_close(ctx);
    return 0;
}

/* The exit status of the copy: 0 if all settings are the defaults. */
static int probe(void) {
    kiln_ctx *ctx = NULL;
    if (!getauxval(AT_SECURE)) return NOT_SECURE;
    if (kiln_open(NULL, &ctx) != KILN_OK) return complain(kiln_last_error());
    const kiln_store_host *h = &ctx->store_host;
    if (h->dir[0]) return complain(h->dir);
    if (h->key_path || h->packs || h->remote_url) return complain("a key, a pack or a server");
    if (h->in_memory || h->alone || h->is_shared) return complain("KILN_CACHE or KILN_CACHE_SHARED");
    if (h->nbytes_most != UINT64_C(1) << 30) return complain("KILN_CACHE_SIZE");
    if (ctx->cc || ctx->cache_dir || ctx->dump_dir) return complain("a compiler or a folder");
    if (ctx->mode != KILN_MODE_TIERED) return complain("KILN_MODE");
    for (int k = 0; k < ctx->stores.n; k++)
        if (strcmp(ctx->stores.at[k]->name, "disk") == 0) return complain("a folder of kernels");
    kiln_close(ctx);
    return probe_compiler();
}

/* -- who starts it ------------------------------------------------------------------------------------------- */

static void copy_program(const char *to) {
    char buffer[1 << 16];
    int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
        out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, buffer, sizeof buffer)) != 0;) {
        assert_true(n > 0);
        assert_int_equal(write(out, buffer, (size_t)n), n);
    }
    close(in);
    close(out);
}

/* Runs the copy with settings that would be errors or would be seen if they were read. */
static int run_as_caller(char *path) {
    char search[500];
    snprintf(search, sizeof search, "PATH=%s/attack:/usr/bin:/bin", scratch);
    char *const args[] = {path, "probe", NULL};
    char *environment[] = {"KILN_CACHE_DIR=/tmp/attack",
                           "XDG_CACHE_HOME=/tmp/attack",
                           "HOME=/tmp/attack",
                           "KILN_KEY_FILE=/tmp/attack/key",
                           "KILN_PACK=/tmp/attack/pack",
                           "KILN_REDIS_URL=redis://attack",
                           "KILN_CACHE=nonsense",
                           "KILN_CACHE_SIZE=nonsense",
                           "KILN_CACHE_SHARED=nonsense",
                           "KILN_CC=/tmp/attack/cc",
                           "KILN_DUMP_DIR=/tmp/attack",
                           "KILN_MODE=nonsense",
                           "CPATH=/tmp/attack",
                           NULL,
                           NULL};
    environment[sizeof environment / sizeof *environment - 2] = search;
    pid_t pid = fork();
    if (pid == 0) {
        if (setresgid(CALLER, CALLER, CALLER) != 0 || setresuid(CALLER, CALLER, CALLER) != 0) _exit(2);
        execve(path, args, environment);
        _exit(3);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* What a caller would have the owner run. */
static void lay_false_compiler(void) {
    char text[600];
    assert_int_equal(mkdir(in_scratch("attack"), 0777), 0);
    assert_int_equal(chmod(in_scratch("attack"), 0777), 0);
    snprintf(text, sizeof text, "touch %s/attack/was-run\nexec /usr/bin/gcc \"$@\"", scratch);
    assert_int_equal(chmod(script("attack/gcc", text), 0755), 0);
}

static void the_environment_counts_for_nothing(void **state) {
    (void)state;
    char path[400];
    if (geteuid() != 0) skip();
    snprintf(path, sizeof path, "%s", in_scratch("probe"));
    copy_program(path);
    lay_false_compiler();
    assert_int_equal(chmod(scratch, 0755), 0);
    assert_int_equal(chown(path, OWNER, OWNER), 0);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(run_as_caller(path), NOT_SECURE); /* it starts for this caller at all */
    assert_int_equal(chmod(path, 04755), 0);
    int exit_status = run_as_caller(path);
    if (exit_status == NOT_SECURE) skip(); /* the file system has no setuid programs */
    assert_int_equal(exit_status, 0);
    assert_int_equal(access(in_scratch("attack/was-run"), F_OK), -1);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "probe") == 0) return probe();
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_environment_counts_for_nothing)};
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
