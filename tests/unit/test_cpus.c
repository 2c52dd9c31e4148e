/* test_cpus.c - what control groups allow, from folders made up as the kernel shows them; and that this machine has a CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "run/cpus.h"

static char root[64];

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/kiln-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state) {
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void put(const char *name, const char *text) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void folder(const char *name) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

static int limit(const char *groups) {
    char path[200];
    put("groups", groups);
    snprintf(path, sizeof path, "%s/groups", root);
    return kiln_cpus_by_groups(path, root);
}

static void the_newer_interface(void **state) {
    (void)state;
    assert_int_equal(limit("0::/a/b\n"), 0); /* nothing there */
    folder("a");
    folder("a/b");
    put("a/b/cpu.max", "max 100000\n");
    assert_int_equal(limit("0::/a/b\n"), 0);
    put("a/b/cpu.max", "400000 100000\n");
    assert_int_equal(limit("0::/a/b\n"), 4);
    put("a/cpu.max", "250000 100000\n"); /* the group around it allows less */
    assert_int_equal(limit("0::/a/b\n"), 3);
    put("cpu.max", "10000 100000\n"); /* a tenth of one is one thread */
    assert_int_equal(limit("0::/a/b\n"), 1);
    put("cpu.max", "nonsense\n");
    assert_int_equal(limit("0::/a\n"), 3);
    assert_int_equal(limit("nonsense\n0::\n"), 0);
}

static void the_older_interface(void **state) {
    (void)state;
    folder("cpu");
    folder("cpu/c");
    put("cpu/c/cpu.cfs_quota_us", "-1\n");
    put("cpu/c/cpu.cfs_period_us", "100000\n");
    assert_int_equal(limit("4:cpu,cpuacct:/c\n"), 0);
    put("cpu/c/cpu.cfs_quota_us", "200000\n");
    assert_int_equal(limit("5:memory:/m\n4:cpu,cpuacct:/c\n"), 2);
    assert_int_equal(limit("5:memory:/c\n"), 0);
    assert_int_equal(limit("5:cpuset:/c\n6:cpuacct:/c\n"), 0);
    assert_int_equal(limit("4:cpuacct,cpu:/c\n"), 2);
}

static void this_machine(void **state) {
    (void)state;
    assert_in_range(kiln_cpus(), 1, KILN_CPUS_MAX);
    assert_in_range(kiln_cpus_allowed(), 1, kiln_cpus());
    assert_int_equal(kiln_cpus_allowed(), kiln_cpus_allowed());
    assert_int_equal(kiln_cpus_by_groups("/nonexistent", "/nonexistent"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_newer_interface, make_root, drop_root),
        cmocka_unit_test_setup_teardown(the_older_interface, make_root, drop_root),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
