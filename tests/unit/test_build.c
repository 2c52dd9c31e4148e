/* test_build.c - sources become running code by every route.
 *
 * Objects load or are refused for the reason they deserve, relocations set the right bits, and code
 * memory stays packed and never writable while executable. */
#include <elf.h>
#include <sys/wait.h>

#include "build_cases.h"

/* -- routes ---------------------------------------------------------------------------------------- */

static void opening_starts_nothing(void **state) {
    (void)state;
    int before = count_fds();
    kiln_toolchain *tc = open_tools("/nonexistent/cc", 0);
    assert_int_equal(count_fds(), before);
    kiln_toolchain_close(tc);
    kiln_toolchain_close(NULL);
}

static void check_route(const char *cc, unsigned avoid, kiln_cc_route route, const char *id) {
    int before = count_fds();
    kiln_toolchain *tc = open_tools(cc, avoid);
    if (kiln_toolchain_route(tc) != route) fail_msg("%s: %s", kiln_toolchain_id(tc), kiln_toolchain_why(tc));
    assert_non_null(strstr(kiln_toolchain_id(tc), id));
    kiln_isa isa;
    assert_int_equal(kiln_toolchain_isa(tc, kiln_isa_detect(), &isa), KILN_OK);
    bool first_choice = (route == KILN_CC_DIRECT || strncmp(id, "clang", 5) == 0) && isa == kiln_isa_detect();
    assert_true(first_choice == !*kiln_toolchain_why(tc)); /* else it says what was refused */
    kiln_clear_error();
    check_whole_way(tc);
    assert_string_equal(kiln_last_error(), ""); /* refused routes leave no message */
    kiln_toolchain_close(tc);
    assert_int_equal(count_fds(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1); /* no child is left */
    assert_int_equal(count_entries(scratch, ""), 0);
}

static bool have_clang(void) { return access("/usr/bin/clang", X_OK) == 0; }

static void gcc_runs_directly(void **state) {
    (void)state;
    check_route("gcc", 0, KILN_CC_DIRECT, "(cc1 | as)");
    check_route("gcc", KILN_AVOID_FD_OUTPUT, KILN_CC_DIRECT, "(cc1 | as)");
}

static void gcc_runs_through_its_driver(void **state) {
    (void)state;
    check_route("gcc", KILN_AVOID_DIRECT, KILN_CC_DRIVER, "(driver)");
    check_route("gcc", KILN_AVOID_DIRECT | KILN_AVOID_FD_OUTPUT, KILN_CC_DRIVER, "(driver)");
}

static void clang_runs_through_its_driver(void **state) {
    (void)state;
    if (!have_clang()) skip();
    check_route("clang", 0, KILN_CC_DRIVER, "clang-");
    check_route("clang", KILN_AVOID_FD_OUTPUT, KILN_CC_DRIVER, "clang-");
}

/* A driver that says it is clang, compiles by gcc, and dies at one level. */
static void write_dying_clang(const char *path, const char *version, kiln_isa isa) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "#!/bin/sh\ncase \" $* \" in\n*' -### '*) echo clang version %s; exit ;;\n"
            "*' -march=%s '*) echo fatal error: no such split >&2; exit 70 ;;\nesac\nexec gcc \"$@\"\n",
            version, kiln_isa_march(isa));
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
}

static void a_level_that_the_compiler_cannot_is_named_in_one_sentence(void **state) {
    (void)state;
    kiln_isa best = kiln_isa_detect(), next;
    if (best == KILN_ISA_GENERIC || !kiln_isa_runs((kiln_isa)(best - 1)))
        skip(); /* there is no lower level */
    char path[PATH_MAX], want[PATH_MAX + 300], reason[PATH_MAX + 100];
    snprintf(path, sizeof path, "%s/clang", scratch);
    snprintf(reason, sizeof reason, "%s: driver: clang exited with status 70: fatal error: no such split",
             path);
    for (int version = 14; version <= 20; version += 6) {
        char text[16];
        snprintf(text, sizeof text, "%d.0.6", version);
        write_dying_clang(path, text, best);
        kiln_toolchain *tc = open_tools(path, 0);
        assert_int_equal(kiln_toolchain_isa(tc, best, &next), KILN_OK);
        assert_int_equal(next, best - 1);
        bool known = version < 20 && best == KILN_ISA_V4;
        snprintf(want, sizeof want, "clang %d cannot compile for %s (%s); kernels are compiled for %s",
                 version, kiln_isa_name(best), known ? "versions before 20 break down there" : reason,
                 kiln_isa_name(next));
        assert_string_equal(kiln_toolchain_why(tc), want);
        kiln_toolchain_close(tc);
    }
    unlink(path);
}

static void the_environment_names_the_compiler(void **state) {
    (void)state;
    setenv("KILN_CC", "gcc '-DKILN_MARK=5 + 1' -O2", 1);
    kiln_toolchain *tc = open_tools(NULL, 0);
    unsetenv("KILN_CC");
    kiln_object o = build_text(tc, "int kiln_kernel(const int *in) { return in[0] + KILN_MARK; }");
    kiln_code *c = load_object(tc, &o);
    assert_int_equal(run_code(c, 10, 0), 16);
    assert_non_null(strstr(kiln_toolchain_id(tc), "-DKILN_MARK=5 + 1 -O2")); /* such arguments change code */
    kiln_code_free(c);
    kiln_object_fini(&o);
    kiln_toolchain_close(tc);
    check_route("gcc -DX=1", KILN_AVOID_DIRECT, KILN_CC_DRIVER, "-DX=1");
    check_route(NULL, 0, KILN_CC_DIRECT, "gcc");
}

static void what_is_preloaded_into_the_host_is_not_into_compilers(void **state) {
    (void)state;
    setenv("LD_PRELOAD", "/nonexistent/kiln-preload.so", 1);
    kiln_toolchain *tc = open_tools("gcc", 0);
    unsetenv("LD_PRELOAD");
    kiln_object o = {0};
    assert_int_equal(kiln_build(tc, KILN_ISA_GENERIC, "?", 1, &o), KILN_E_BUILD);
    char path[600], *log = NULL;
    snprintf(path, sizeof path, "%s/build-%016llx.log", scratch, (unsigned long long)kiln_hash64("?", 1));
    assert_int_equal(kiln_file_read(path, &log, NULL), KILN_OK);
    assert_null(strstr(log, "kiln-preload.so")); /* what the dynamic linker would say */
    kiln_free(log);
    assert_int_equal(unlink(path), 0);
    kiln_toolchain_close(tc);
}

static void a_missing_compiler_is_named(void **state) {
    (void)state;
    kiln_object o = {0};
    kiln_toolchain *tc = open_tools("no-such-compiler -x", 0);
    assert_int_equal(kiln_toolchain_route(tc), KILN_CC_NONE);
    assert_string_equal(kiln_toolchain_id(tc), "none");
    assert_int_equal(kiln_build(tc, KILN_ISA_GENERIC, "", 0, &o), KILN_E_BUILD);
    assert_non_null(strstr(kiln_last_error(), "no-such-compiler"));
    assert_null(o.bytes);
    kiln_toolchain_close(tc);

    assert_non_null(getenv("PATH"));
    char path[4096];
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    setenv("PATH", "/nonexistent", 1);
    tc = open_tools(NULL, 0);
    setenv("PATH", path, 1);
    assert_int_equal(kiln_build(tc, KILN_ISA_GENERIC, "", 0, &o), KILN_E_BUILD);
    assert_non_null(strstr(kiln_last_error(), "no gcc, cc or clang in PATH"));
    kiln_toolchain_close(tc);
}

static bool sees(const char *cc) {
    kiln_toolchain *tc = open_tools(cc, 0);
    bool in_sight = kiln_toolchain_in_sight(tc);
    kiln_toolchain_close(tc);
    return in_sight;
}

static void a_compiler_is_looked_for_without_starting_one(void **state) {
    (void)state;
    char path[4096], tool[PATH_MAX], mark[PATH_MAX], text[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    assert_true(sees(NULL) && sees("gcc -O2"));
    assert_false(sees("no-such-compiler -x") || sees("/nonexistent/cc") || sees(" "));
    snprintf(tool, sizeof tool, "%s/cc", scratch);
    snprintf(mark, sizeof mark, "%s/started", scratch);
    snprintf(text, sizeof text, "#!/bin/sh\n: >%s\nexit 1\n", mark);
    setenv("PATH", scratch, 1);
    assert_false(sees(NULL));
    FILE *f = fopen(tool, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(tool, 0755), 0);
    assert_true(sees(NULL) && sees(tool));
    kiln_toolchain *tc = open_tools(NULL, 0);
    setenv("PATH", path, 1);
    assert_int_equal(access(mark, F_OK), -1); /* nothing was started */
    assert_int_equal(kiln_toolchain_route(tc), KILN_CC_NONE);
    assert_int_equal(access(mark, F_OK), 0);
    assert_false(kiln_toolchain_in_sight(tc)); /* it was tried and does not work */
    kiln_toolchain_close(tc);
    unlink(mark);
    unlink(tool);
}

static void every_level_the_cpu_runs_compiles(void **state) {
    (void)state;
    kiln_toolchain *tc = open_tools("gcc", 0);
    for (int isa = 0; isa < KILN_ISA_COUNT; isa++) {
        if (!kiln_isa_runs((kiln_isa)isa)) continue;
        kiln_object o = {0};
        assert_int_equal(kiln_build(tc, (kiln_isa)isa, good_source, sizeof good_source - 1, &o), KILN_OK);
        kiln_code *c = load_object(tc, &o);
        check_code(c);
        kiln_code_free(c);
        kiln_object_fini(&o);
    }
    kiln_toolchain_close(tc);
}

static void assembly_is_text(void **state) {
    (void)state;
    static const unsigned avoid[] = {0, KILN_AVOID_DIRECT};
    for (int i = 0; i < 2; i++) {
        char *text = NULL;
        kiln_toolchain *tc = open_tools("gcc", avoid[i]);
        assert_int_equal(kiln_build_asm(tc, KILN_ISA_GENERIC, good_source, sizeof good_source - 1, &text),
                         KILN_OK);
        assert_non_null(strstr(text, "kiln_kernel:"));
        kiln_free(text);
        kiln_toolchain_close(tc);
    }
}

static void a_compile_error_is_quoted_and_logged(void **state) {
    (void)state;
    static const char bad[] = "int kiln_kernel(const int *in) { return undeclared_thing; }";
    kiln_object o = {0};
    kiln_toolchain *tc = open_tools("gcc", 0);
    assert_int_equal(kiln_build(tc, KILN_ISA_GENERIC, bad, sizeof bad - 1, &o), KILN_E_BUILD);
    assert_non_null(strstr(kiln_last_error(), "cc1 exited with status 1"));
    assert_non_null(strstr(kiln_last_error(), "undeclared_thing"));
    assert_non_null(strstr(kiln_last_error(), scratch));
    assert_int_equal(kiln_build(tc, KILN_ISA_GENERIC, bad, sizeof bad - 1, &o), KILN_E_BUILD);
    assert_int_equal(count_entries(scratch, ".log"), 1); /* the same source replaces its log */
    char path[600], *text = NULL;
    snprintf(path, sizeof path, "%s/build-%016llx.log", scratch,
             (unsigned long long)kiln_hash64(bad, sizeof bad - 1));
    assert_int_equal(kiln_file_read(path, &text, NULL), KILN_OK);
    assert_non_null(strstr(text, "-ffp-contract=off"));
    assert_non_null(strstr(text, "undeclared_thing"));
    kiln_free(text);
    unlink(path);
    kiln_toolchain_close(tc);
}

static void assembler_errors_are_told(void **state) {
    (void)state;
    static const char bad[] =
        "__asm__(\"no_such_instruction\"); int kiln_kernel(const int *in) { return *in; }";
    kiln_object o = {0};
    kiln_toolchain *tc = open_tools("gcc", 0);
    assert_int_equal(kiln_build(tc, KILN_ISA_GENERIC, bad, sizeof bad - 1, &o), KILN_E_BUILD);
    assert_non_null(strstr(kiln_last_error(), "as exited with status 1"));
    kiln_toolchain_close(tc);
}

static void words_split_as_in_a_shell(void **state) {
    (void)state;
    kiln_arena mem;
    kiln_arena_init(&mem);
    char **w = kiln_tools_split(&mem, "  cc \"a b\"c 'd\\e' f\\ g\t\"\\\"\" '' \n");
    static const char *const expected[] = {"cc", "a bc", "d\\e", "f g", "\"", ""};
    for (int i = 0; i < 6; i++) assert_string_equal(w[i], expected[i]);
    assert_null(w[6]);
    assert_null(kiln_tools_split(&mem, "  ")[0]);
    kiln_arena_free(&mem);
}

/* -- loading ------------------------------------------------------------------------------------------ */

static void check_refused(const char *src, const char *reason) {
    kiln_toolchain *tc = open_tools("gcc", 0);
    kiln_object o = build_text(tc, src);
    kiln_code *c = NULL;
    assert_int_equal(kiln_code_load(NULL, &o, KILN_KERNEL_SYMBOL, &c), KILN_E_BUILD);
    if (!strstr(kiln_last_error(), reason)) fail_msg("'%s' lacks '%s'", kiln_last_error(), reason);
    assert_null(c);
    kiln_object_fini(&o);
    kiln_toolchain_close(tc);
}

static void what_a_kernel_must_not_have_is_refused(void **state) {
    (void)state;
    check_refused("int other(int); int kiln_kernel(const int *in) { return other(*in); }",
                  "undefined symbol 'other'");
    check_refused("int n = 3; int kiln_kernel(const int *in) { return n += *in; }",
                  "writable data: section .data");
    check_refused("static int n; int kiln_kernel(const int *in) { return n += *in; }",
                  "writable data: section .bss");
    check_refused("static __thread int n; int kiln_kernel(const int *in) { return n += *in; }",
                  "writable data");
    check_refused("int kernel(const int *in) { return *in; }", "no function 'kiln_kernel'");
    check_refused("const int kiln_kernel[] = {1, 2};", "no function 'kiln_kernel'");
    check_refused("", "holds no code");
}

static void addresses_in_constants_are_relocated(void **state) {
    (void)state;
    kiln_toolchain *tc = open_tools("gcc", KILN_AVOID_LINK);
    kiln_object o = build_text(tc,
                               "static int f(int a) { return a + 1; } static int g(int a) { return a * 2; }\n"
                               "static int (*const calls[2])(int) = {f, g};\n"
                               "int kiln_kernel(const int *in) { return calls[in[1] & 1](in[0]); }");
    kiln_code *c = load_object(tc, &o);
    assert_int_equal(run_code(c, 20, 0), 21);
    assert_int_equal(run_code(c, 20, 1), 40);
    kiln_code_free(c);
    kiln_object_fini(&o);
    kiln_toolchain_close(tc);
}

static void constants_keep_their_alignment(void **state) {
    (void)state;
    kiln_toolchain *tc = open_tools("gcc", KILN_AVOID_LINK);
    kiln_object o = build_text(tc,
                               "static const char small[3] = {1, 2, 3};\n"
                               "static const char big[64] __attribute__((aligned(1024))) = {4};\n"
                               "int kiln_kernel(const int *in) {\n"
                               "    const char *p = in[1] ? big : small;\n"
                               "    __asm__(\"\" : \"+r\"(p)); /* the address as it is, not as assumed */\n"
                               "    return in[1] ? (int)((unsigned long)p % 1024) : p[in[0]]; }");
    kiln_code *a = load_object(tc, &o), *b = load_object(tc, &o);
    assert_int_equal(run_code(a, 2, 0), 3);
    assert_int_equal(run_code(a, 0, 1), 0);
    assert_int_equal(run_code(b, 0, 1), 0);
    kiln_code_free(a);
    kiln_code_free(b);
    kiln_object_fini(&o);
    kiln_toolchain_close(tc);
}

#if defined(__x86_64__)
static void the_offset_table_is_made_where_asked_for(void **state) {
    (void)state;
    kiln_toolchain *tc = open_tools("gcc", KILN_AVOID_LINK);
    kiln_object o = build_text(
        tc, "__asm__(\".section .rodata\\nnumbers: .long 5, 6, 7\\n.text\\n.globl kiln_kernel\\n\"\n"
            "        \"kiln_kernel: movq numbers@GOTPCREL(%rip), %rax\\nmovl 4(%rax), %eax\\n\"\n"
            "        \"movq answer@GOTPCREL(%rip), %rcx\\ncall *%rcx\\nret\\n\"\n"
            "        \"answer: addl (%rdi), %eax\\nret\\n\"\n"
            "        \".type kiln_kernel, @function\");");
    kiln_code *c = load_object(tc, &o);
    assert_int_equal(run_code(c, 100, 0), 106);
    kiln_code_free(c);
    kiln_object_fini(&o);
    kiln_toolchain_close(tc);
}

static void an_unknown_relocation_is_refused(void **state) {
    (void)state;
    static const char kernel[] = "\\n.text\"); int kiln_kernel(const int *in) { return *in; }";
    char src[300];
    snprintf(src, sizeof src, "__asm__(\".section .rodata\\n.byte kiln_kernel - .%s", kernel);
    check_refused(src, "relocation of unknown type");
    snprintf(src, sizeof src, "__asm__(\".section .rodata\\n.long kiln_kernel%s", kernel);
    check_refused(src, "does not reach");
}
#endif

static void a_linker_helps_where_the_loader_cannot(void **state) {
    (void)state;
    kiln_toolchain *tc = open_tools("gcc", 0);
    kiln_object o = build_text(tc, "int abs(int); static int calls; int kiln_kernel(const int *in) {\n"
                                   "    calls++; return (abs)(in[0]) * 100 + calls; }");
    kiln_code *c = load_object(tc, &o);
    assert_int_equal(run_code(c, -3, 0), 301);
    assert_int_equal(run_code(c, -4, 0), 402);
    assert_true(kiln_code_nbytes(c) > 0);
    kiln_code_free(c);
    kiln_object_fini(&o);
    o = build_text(tc, good_source);
    assert_int_equal(kiln_code_load_dlopen(tc, &o, KILN_KERNEL_SYMBOL, &c), KILN_OK);
    check_code(c);
    kiln_code_free(c);
    assert_int_equal(kiln_code_load_dlopen(tc, &o, "absent", &c), KILN_E_BUILD);
    assert_int_equal(kiln_code_load_dlopen(NULL, &o, KILN_KERNEL_SYMBOL, &c), KILN_E_BUILD);
    kiln_object_fini(&o);
    o = build_text(tc, "int other_thing(int); int kiln_kernel(const int *in) { return other_thing(*in); }");
    assert_int_equal(kiln_code_load(tc, &o, KILN_KERNEL_SYMBOL, &c), KILN_E_BUILD);
    assert_non_null(strstr(kiln_last_error(), "undefined symbol 'other_thing'"));
    kiln_object_fini(&o);
    assert_int_equal(count_entries(scratch, ".so") + count_entries(scratch, ".o"), 0);
    kiln_toolchain_close(tc);
}

static bool is_mapped(const char *name) {
    char line[600];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) found = found || strstr(line, name);
    fclose(f);
    return found;
}

/* A compiler whose objects want a runtime is refused; the runtime does not come into this process. */
static void no_foreign_library_is_loaded(void **state) {
    (void)state;
    static const char *const commands[] = {"gcc -fsanitize=undefined", "gcc -fsanitize=address",
                                           "gcc -fopenmp -lgomp -finstrument-functions"};
    static const char *const libraries[] = {"libubsan", "libasan", "libgomp"};
    for (size_t k = 0; k < 3; k++) {
        bool before = is_mapped(libraries[k]);
        kiln_toolchain *tc = open_tools(commands[k], 0);
        (void)kiln_toolchain_route(tc); /* tries it */
        assert_int_equal(is_mapped(libraries[k]), before);
        kiln_toolchain_close(tc);
        assert_int_equal(count_entries(scratch, ".so") + count_entries(scratch, ".o"), 0);
    }
}

/* -- code memory ------------------------------------------------------------------------------------- */

static void a_thousand_kernels_share_mappings(void **state) {
    (void)state;
    enum { N = 1000 };
    static kiln_code *codes[N];
    kiln_toolchain *tc = open_tools("gcc", 0);
    kiln_object o = build_text(tc, good_source);
    kiln_code_free(load_object(tc, &o));
    int before = count_mappings(), before_fds = count_fds();
    for (int i = 0; i < N; i++) codes[i] = load_object(NULL, &o);
    assert_true(count_mappings() <= before + 8);
    for (int i = 0; i < N; i += 2) kiln_code_free(codes[i]);
    int half = count_mappings();
    for (int i = 0; i < N; i += 2) codes[i] = load_object(NULL, &o);
    assert_int_equal(count_mappings(), half); /* the holes were filled */
    for (int i = 0; i < N; i++) check_code(codes[i]);
    for (int i = 0; i < N; i++) kiln_code_free(codes[i]);
    assert_true(count_mappings() <= before);
    assert_int_equal(count_fds(), before_fds);
    kiln_object_fini(&o);
    kiln_toolchain_close(tc);
}

static void memory_of_its_own_where_sharing_is_refused(void **state) {
    (void)state;
    kiln_toolchain *tc = open_tools("gcc", KILN_AVOID_LINK);
    kiln_object o = build_text(tc, good_source);
    kiln_codemem_allow(KILN_CODEMEM_PRIVATE);
    int before = count_mappings();
    kiln_code *a = load_object(NULL, &o), *b = load_object(NULL, &o);
    (void)count_mappings();
    check_code(a);
    kiln_code_free(a);
    check_code(b);
    kiln_code_free(b);
    assert_true(count_mappings() <= before);
    kiln_codemem_allow(0);
    kiln_code *c = NULL;
    assert_int_equal(kiln_code_load(NULL, &o, KILN_KERNEL_SYMBOL, &c), KILN_E_BUILD);
    kiln_codemem_allow(KILN_CODEMEM_ANY);
    kiln_object_fini(&o);
    kiln_toolchain_close(tc);
}

/* No memory for code at all: the trial, too, must go through the linker. */
static void dlopen_where_no_memory_can_be_had(void **state) {
    (void)state;
    kiln_codemem_allow(0);
    kiln_toolchain *tc = open_tools("gcc", 0);
    check_whole_way(tc);
    assert_int_equal(kiln_toolchain_route(tc), KILN_CC_DIRECT);
    kiln_codemem_allow(KILN_CODEMEM_ANY);
    kiln_toolchain_close(tc);
}

static void pieces_do_not_overlap(void **state) {
    (void)state;
    enum { N = 200 };
    static kiln_codemem m[N];
    uint32_t seed = 12345;
    for (int round = 0; round < 2000; round++) {
        int i = (int)((seed = seed * 1664525 + 1013904223) >> 8) % N;
        if (m[i].exec) {
            for (size_t k = 0; k < m[i].n; k++) assert_int_equal(m[i].exec[k], i);
            kiln_codemem_put(&m[i]);
            m[i].exec = NULL;
            continue;
        }
        size_t align = (size_t)1 << (seed >> 28) % 13, n = 1 + (seed >> 12) % 20000;
        assert_int_equal(kiln_codemem_get(n, align, &m[i]), KILN_OK);
        assert_true(m[i].n >= n && (uintptr_t)m[i].exec % align == 0);
        memset(m[i].write, i, m[i].n);
        assert_int_equal(kiln_codemem_seal(&m[i]), KILN_OK);
    }
    for (int i = 0; i < N; i++)
        if (m[i].exec) kiln_codemem_put(&m[i]);
    assert_int_equal(kiln_codemem_get(3 << 20, 4096, &m[0]), KILN_OK); /* larger than an arena */
    memset(m[0].write, 1, m[0].n);
    kiln_codemem_put(&m[0]);
    assert_int_equal(kiln_codemem_get((size_t)65 << 20, 64, &m[0]), KILN_E_BUILD);
    assert_int_equal(kiln_codemem_get(64, 8192, &m[0]), KILN_E_BUILD);
}

/* -- relocation arithmetic ------------------------------------------------------------------------------ */

typedef struct reloc_case {
    uint16_t machine;
    uint32_t type;
    uint64_t place, value;
    uint64_t before, after; /* eight bytes at the place */
    bool fits;
} reloc_case;

/* aarch64 words: adrp x0 = 90000000, add x0,x0 = 91000000, bl = 94000000, b.eq = 54000000,
 * tbz w0 = 36000000, ldr x0,[x0] = f9400000, ldr q0,[x0] = 3dc00000, ldrh w0,[x0] = 79400000. */
static const reloc_case reloc_cases[] = {
    {EM_X86_64, R_X86_64_PC32, 0x1000, 0x0ff8, 0, 0xfffffff8, true},
    {EM_X86_64, R_X86_64_PLT32, 0x1000, 0x1100, 0xffffffffffffffff, 0xffffffff00000100, true},
    {EM_X86_64, R_X86_64_PC32, 0, 0x80000000, 0, 0x80000000, false},
    {EM_X86_64, R_X86_64_64, 0, 0x123456789abcdef0, 0, 0x123456789abcdef0, true},
    {EM_X86_64, R_X86_64_32, 0, 0xfffffff0, 0, 0xfffffff0, true},
    {EM_X86_64, R_X86_64_32, 0, 0x100000000, 0, 0, false},
    {EM_X86_64, R_X86_64_32S, 0, 0xfffffffffffffff0, 0, 0xfffffff0, true},
    {EM_X86_64, R_X86_64_32S, 0, 0xfffffff0, 0, 0xfffffff0, false},
    {EM_AARCH64, R_AARCH64_ABS64, 0, 0x1122334455667788, 0, 0x1122334455667788, true},
    {EM_AARCH64, R_AARCH64_PREL32, 0x100, 0xf0, 0, 0xfffffff0, true},
    {EM_AARCH64, R_AARCH64_ADR_PREL_PG_HI21, 0x1ffc, 0x3abc, 0x90000000, 0xd0000000, true},
    {EM_AARCH64, R_AARCH64_ADR_PREL_PG_HI21, 0x5000, 0x1000, 0x90000000, 0x90ffffe0, true},
    {EM_AARCH64, R_AARCH64_ADR_PREL_PG_HI21, 0, UINT64_C(1) << 33, 0x90000000, 0x90000000, false},
    {EM_AARCH64, R_AARCH64_ADD_ABS_LO12_NC, 0, 0x3abc, 0x91000000, 0x912af000, true},
    {EM_AARCH64, R_AARCH64_CALL26, 0x2000, 0x1ffc, 0x94000000, 0x97ffffff, true},
    {EM_AARCH64, R_AARCH64_JUMP26, 0, UINT64_C(1) << 28, 0x14000000, 0x14000000, false},
    {EM_AARCH64, R_AARCH64_CALL26, 0, 2, 0x94000000, 0x94000000, false},
    {EM_AARCH64, R_AARCH64_CONDBR19, 0x100, 0x108, 0x54000000, 0x54000040, true},
    {EM_AARCH64, R_AARCH64_TSTBR14, 0x100, 0x0fc, 0x36000000, 0x3607ffe0, true},
    {EM_AARCH64, R_AARCH64_LDST64_ABS_LO12_NC, 0, 0x1238, 0xf9400000, 0xf9411c00, true},
    {EM_AARCH64, R_AARCH64_LDST128_ABS_LO12_NC, 0, 0x1230, 0x3dc00000, 0x3dc08c00, true},
    {EM_AARCH64, R_AARCH64_LDST128_ABS_LO12_NC, 0, 0x1238, 0x3dc00000, 0x3dc08c00, false},
    {EM_AARCH64, R_AARCH64_LDST16_ABS_LO12_NC, 0, 0x1002, 0x79400000, 0x79400400, true},
};

static void relocations_set_the_right_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof reloc_cases / sizeof *reloc_cases; i++) {
        const reloc_case *k = &reloc_cases[i];
        kiln_reloc r = {k->type, k->place, k->value};
        uint64_t bytes = k->before;
        size_t nbytes = 0;
        assert_true(kiln_reloc_classify(k->machine, k->type, &nbytes) == KILN_RELOC_PLAIN);
        assert_true(nbytes == 4 || nbytes == 8);
        assert_int_equal(kiln_reloc_apply(k->machine, &r, (uint8_t *)&bytes), k->fits);
        if (bytes != k->after) fail_msg("case %zu: %llx", i, (unsigned long long)bytes);
    }
    size_t n;
    assert_true(kiln_reloc_classify(EM_X86_64, R_X86_64_TPOFF32, &n) == KILN_RELOC_UNKNOWN);
    assert_true(kiln_reloc_classify(EM_AARCH64, R_AARCH64_TLSDESC_CALL, &n) == KILN_RELOC_UNKNOWN);
    assert_true(kiln_reloc_classify(EM_X86_64, R_X86_64_GOTPCREL, &n) == KILN_RELOC_VIA_GOT);
    assert_true(kiln_reloc_classify(EM_AARCH64, R_AARCH64_ADR_GOT_PAGE, &n) == KILN_RELOC_VIA_GOT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_starts_nothing),
        cmocka_unit_test(gcc_runs_directly),
        cmocka_unit_test(gcc_runs_through_its_driver),
        cmocka_unit_test(clang_runs_through_its_driver),
        cmocka_unit_test(a_level_that_the_compiler_cannot_is_named_in_one_sentence),
        cmocka_unit_test(the_environment_names_the_compiler),
        cmocka_unit_test(what_is_preloaded_into_the_host_is_not_into_compilers),
        cmocka_unit_test(a_missing_compiler_is_named),
        cmocka_unit_test(a_compiler_is_looked_for_without_starting_one),
        cmocka_unit_test(every_level_the_cpu_runs_compiles),
        cmocka_unit_test(assembly_is_text),
        cmocka_unit_test(a_compile_error_is_quoted_and_logged),
        cmocka_unit_test(assembler_errors_are_told),
        cmocka_unit_test(words_split_as_in_a_shell),
        cmocka_unit_test(what_a_kernel_must_not_have_is_refused),
        cmocka_unit_test(addresses_in_constants_are_relocated),
        cmocka_unit_test(constants_keep_their_alignment),
#if defined(__x86_64__)
        cmocka_unit_test(the_offset_table_is_made_where_asked_for),
        cmocka_unit_test(an_unknown_relocation_is_refused),
#endif
        cmocka_unit_test(a_linker_helps_where_the_loader_cannot),
        cmocka_unit_test(no_foreign_library_is_loaded),
        cmocka_unit_test(a_thousand_kernels_share_mappings),
        cmocka_unit_test(memory_of_its_own_where_sharing_is_refused),
        cmocka_unit_test(dlopen_where_no_memory_can_be_had),
        cmocka_unit_test(pieces_do_not_overlap),
        cmocka_unit_test(relocations_set_the_right_bits),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
