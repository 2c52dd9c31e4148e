/* build_cases.h - sources, scratch folder and process checks that the tests of compilers and loaders share.
 *
 * Each helper fails the running test by itself. */
#ifndef KILN_TEST_BUILD_CASES_H
#define KILN_TEST_BUILD_CASES_H
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "target/cpu/build.h"
#include "target/cpu/codemem.h"
#include "target/cpu/elf_load.h"
#include "target/cpu/proc.h"
#include "target/cpu/tools.h"

/* A table, a call between functions, a switch and a floating constant: every common relocation. */
static const char good_source[] =
    "static const int table[6] = {10, 20, 30, 40, 50, 60};\n"
    "__attribute__((noinline)) int helper(int a) { return (int)((double)a * 2.5); }\n"
    "int kiln_kernel(const int *in) {\n"
    "    switch (in[1]) {\n"
    "    case 0: return helper(table[in[0] % 6]);\n"
    "    case 1: return table[(in[0] + 1) % 6] - 1;\n"
    "    case 2: return in[0] * 7;\n"
    "    case 3: return helper(in[0]) ^ 5;\n"
    "    case 4: return helper(table[in[0] % 6]) + 9;\n"
    "    case 5: return table[in[0] % 6] >> 1;\n"
    "    }\n"
    "    return -1;\n"
    "}\n";

static int good_answer(int a, int b) {
    static const int table[6] = {10, 20, 30, 40, 50, 60};
    switch (b) {
    case 0: return (int)(table[a % 6] * 2.5);
    case 1: return table[(a + 1) % 6] - 1;
    case 2: return a * 7;
    case 3: return (int)(a * 2.5) ^ 5;
    case 4: return (int)(table[a % 6] * 2.5) + 9;
    case 5: return table[a % 6] >> 1;
    default: return -1;
    }
}

static char scratch[] = "/tmp/kiln-test-build-XXXXXX";

static int make_scratch(void **state) {
    (void)state;
    unsetenv("KILN_CC");
    return mkdtemp(scratch) ? 0 : -1;
}

static int drop_scratch(void **state) {
    (void)state;
    DIR *d = opendir(scratch);
    char path[600];
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", scratch, e->d_name);
        if (e->d_name[0] != '.') unlink(path);
    }
    if (d) closedir(d);
    return rmdir(scratch);
}

static int count_entries(const char *path, const char *suffix) {
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        size_t a = strlen(e->d_name), b = strlen(suffix);
        if (e->d_name[0] != '.' && a >= b && strcmp(e->d_name + a - b, suffix) == 0) n++;
    }
    closedir(d);
    return n;
}

static inline int count_fds(void) { return count_entries("/proc/self/fd", ""); }

static inline kiln_toolchain *open_tools(const char *cc, unsigned avoid) {
    kiln_toolchain *tc = NULL;
    assert_int_equal(kiln_toolchain_open(cc, scratch, &tc), KILN_OK);
    kiln_toolchain_avoid(tc, avoid);
    return tc;
}

static inline kiln_object build_text(kiln_toolchain *tc, const char *src) {
    kiln_object o = {0};
    kiln_status st = kiln_build(tc, kiln_isa_detect(), src, strlen(src), &o);
    if (st != KILN_OK) fail_msg("%s", kiln_last_error());
    return o;
}

static inline int run_code(const kiln_code *c, int a, int b) {
    kiln_launch in = {.nest = a, .ndim = b};
    return kiln_code_entry(c)(&in);
}

static inline void check_code(const kiln_code *c) {
    for (int a = 0; a < 8; a++)
        for (int b = 0; b < 7; b++) assert_int_equal(run_code(c, a, b), good_answer(a, b));
}

static inline kiln_code *load_object(kiln_toolchain *tc, const kiln_object *o) {
    kiln_code *c = NULL;
    kiln_status st = kiln_code_load(tc, o, KILN_KERNEL_SYMBOL, &c);
    if (st != KILN_OK) fail_msg("%s", kiln_last_error());
    return c;
}

/* Compiles, loads, runs and frees good_source. */
static inline void check_whole_way(kiln_toolchain *tc) {
    kiln_object o = build_text(tc, good_source);
    kiln_code *c = load_object(tc, &o);
    kiln_object_fini(&o);
    check_code(c);
    kiln_code_free(c);
}

/* Mappings of this process; fails if one is writable and executable. */
static inline int count_mappings(void) {
    char line[1024], rights[8];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        assert_int_equal(sscanf(line, "%*s %7s", rights), 1);
        if (rights[1] == 'w' && rights[2] == 'x') fail_msg("writable and executable: %s", line);
        n++;
    }
    fclose(f);
    return n;
}
#endif
