/* test_image.c - kernels as bytes that can be loaded at any address: an image of one kernel of an object runs as the kernel did, its addresses
 * are right wherever it lies, and damaged images are refused. */
#include <elf.h>

#include "build_cases.h"
#include "target/cpu/image.h"

static kiln_toolchain *tools;

static int setup(void **state) {
    if (make_scratch(state) != 0) return -1;
    tools = open_tools("gcc", 0);
    return 0;
}

static int teardown(void **state) {
    kiln_toolchain_close(tools);
    return drop_scratch(state);
}

static kiln_object image_of(const char *source, const char *symbol) {
    kiln_object o = build_text(tools, source), image = {0};
    kiln_status st = kiln_image_make(&o, symbol, &image);
    if (st != KILN_OK) fail_msg("%s: %s", symbol, kiln_last_error());
    kiln_object_fini(&o);
    return image;
}

static kiln_code *load_image(const kiln_object *image) {
    kiln_code *c = NULL;
    kiln_status st = kiln_code_load_image(image, &c);
    if (st != KILN_OK) fail_msg("%s", kiln_last_error());
    return c;
}

/* -- kernels run ---------------------------------------------------------------------------------------------- */

/* One image at many addresses at once: each piece is its own, and none depends on another. */
static void an_image_runs_wherever_it_lies(void **state) {
    (void)state;
    enum { N = 40 };
    kiln_code *c[N];
    kiln_object image = image_of(good_source, KILN_KERNEL_SYMBOL);
    for (int k = 0; k < N; k++) c[k] = load_image(&image);
    kiln_object_fini(&image); /* loading has copied it */
    for (int k = 0; k < N; k += 2) {
        kiln_code_free(c[k]);
        c[k] = NULL;
    }
    for (int k = 1; k < N; k += 2) check_code(c[k]);
    for (int k = 1; k < N; k += 2) kiln_code_free(c[k]);
    (void)count_mappings();
}

static const char three_kernels[] =
    "static const double table[1000] = {1.5, 2.5, [999] = 7.25};\n"
    "__attribute__((noinline)) static int shared(int a) { return a * 3 + 1; }\n"
    "int first(const int *in) { return shared(in[0]) + 100; }\n"
    "int second(const int *in) { return (int)(table[in[0] % 2] * 2) + (int)table[999]; }\n"
    "__attribute__((noinline)) int far_below(int a) { return shared(a) - 5; }\n"
    "int third(const int *in) { return far_below(in[0]) + far_below(in[1]); }\n";

static int answer(int which, int a, int b) {
    if (which == 0) return a * 3 + 101;
    if (which == 1) return (a % 2 ? 5 : 3) + 7;
    return a * 3 - 4 + b * 3 - 4;
}

/* An image holds what its kernel uses, and nothing of the others: the table is in that of the second alone. */
static void kernels_of_one_object_are_images_of_their_own(void **state) {
    (void)state;
    static const char *const names[] = {"first", "second", "third"};
    kiln_object o = build_text(tools, three_kernels), image[3];
    kiln_code *c[3];
    for (int k = 0; k < 3; k++) {
        assert_int_equal(kiln_image_make(&o, names[k], &image[k]), KILN_OK);
        c[k] = load_image(&image[k]);
    }
    assert_true(image[1].n > 8000);
    assert_true(image[0].n < 1000 && image[2].n < 1000);
    for (int k = 0; k < 3; k++)
        for (int a = 0; a < 5; a++) assert_int_equal(run_code(c[k], a, a + 1), answer(k, a, a + 1));
    for (int k = 0; k < 3; k++) {
        kiln_code_free(c[k]);
        kiln_object_fini(&image[k]);
    }
    kiln_object_fini(&o);
}

static void what_is_not_in_an_object_has_no_image(void **state) {
    (void)state;
    kiln_object o = build_text(tools, three_kernels), image = {0};
    static const char *const names[] = {"fourth", "sec", "table"};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(kiln_image_make(&o, names[k], &image), KILN_E_BUILD);
        assert_null(image.bytes);
    }
    kiln_object_fini(&o);
    o = build_text(tools, "static int n; int kiln_kernel(const int *in) { return n += *in; }");
    assert_int_equal(kiln_image_make(&o, KILN_KERNEL_SYMBOL, &image), KILN_E_BUILD);
    assert_non_null(strstr(kiln_last_error(), "writable data"));
    kiln_object_fini(&o);
    o = build_text(tools, "int abs(int); int kiln_kernel(const int *in) { return (abs)(*in); }");
    assert_int_equal(kiln_image_make(&o, KILN_KERNEL_SYMBOL, &image), KILN_E_BUILD);
    assert_non_null(strstr(kiln_last_error(), "undefined symbol"));
    kiln_object_fini(&o);
}

/* -- addresses -------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* Absolute addresses as compilers make them: a jump table of R_X86_64_64 in .data.rel.ro, one with addends, entries of the GOT that
 * several places share, and a distance of 8 bytes. */
static const char with_addresses[] =
    "__asm__(\".section .data.rel.ro.local,\\\"aw\\\"\\n.balign 8\\njumps: .quad near_one, near_two, near_one + 0\\n\"\n"
    "        \".section .rodata\\n.balign 8\\nvalues: .long 5, 6, 7, 8\\nspan: .quad values - span\\n\"\n"
    "        \".section .data.rel.ro,\\\"aw\\\"\\n.balign 8\\ninner: .quad values + 8\\n.text\\n\");\n"
    "__attribute__((used)) static int near_one(int a) { return a + 10; }\n"
    "__attribute__((used)) static int near_two(int a) { return a * 20; }\n"
    "extern int (*const jumps[3])(int) __attribute__((visibility(\"hidden\")));\n"
    "extern const int *const inner __attribute__((visibility(\"hidden\")));\n"
    "extern const long span __attribute__((visibility(\"hidden\")));\n"
    "int kiln_kernel(const int *in) {\n"
    "    const int *by_got, *again;\n"
    "    __asm__ volatile(\"movq values@GOTPCREL(%%rip), %0\\n\\tmovq values@GOTPCREL(%%rip), %1\" : \"=r\"(by_got), \"=r\"(again));\n"
    "    const int *by_span = (const int *)((const char *)&span + span);\n"
    "    return jumps[in[1] % 3](in[0]) + inner[0] * 1000 + inner[1] * 10000 + by_got[0] * 100000 + (again - by_got) +\n"
    "           (by_span - by_got);\n"
    "}\n";

static int addressed(int a, int b) {
    return (b % 3 == 1 ? a * 20 : a + 10) + 7 * 1000 + 8 * 10000 + 5 * 100000;
}

static void addresses_are_right_at_every_place(void **state) {
    (void)state;
    enum { N = 20 };
    kiln_code *c[N];
    kiln_object image = image_of(with_addresses, KILN_KERNEL_SYMBOL);
    for (int k = 0; k < N; k++) c[k] = load_image(&image);
    for (int k = 0; k < N; k++)
        for (int b = 0; b < 6; b++) assert_int_equal(run_code(c[k], 3, b), addressed(3, b));
    for (int k = 0; k < N; k++) kiln_code_free(c[k]);
    kiln_object_fini(&image);
}

/* The linker says which 8 bytes hold addresses; the loader adds the place of the code, there and nowhere else. */
static void fixups_are_the_places_that_change(void **state) {
    (void)state;
    kiln_linked l;
    kiln_codemem m;
    void *entry;
    kiln_object o = build_text(tools, with_addresses), image;
    assert_int_equal(kiln_elf_link(&o, KILN_KERNEL_SYMBOL, &l), KILN_OK);
    assert_int_equal(l.nfixups, 5); /* three of the table, one pointer, one entry of the GOT for both loads */
    assert_int_equal(kiln_image_make(&o, KILN_KERNEL_SYMBOL, &image), KILN_OK);
    assert_int_equal(kiln_image_load(image.bytes, image.n, &m, &entry), KILN_OK);
    assert_ptr_equal(entry, m.exec + l.entry);
    for (size_t k = 0; k < l.nfixups; k++) {
        uint64_t address, at_zero;
        memcpy(&address, m.exec + l.fixups[k].at, sizeof address);
        memcpy(&at_zero, l.bytes + l.fixups[k].at, sizeof at_zero);
        assert_int_equal(at_zero, l.fixups[k].to);
        assert_int_equal(address, (uintptr_t)m.exec + l.fixups[k].to);
        memcpy(l.bytes + l.fixups[k].at, &address, sizeof address);
    }
    assert_memory_equal(m.exec, l.bytes, l.n);
    kiln_codemem_put(&m);
    kiln_linked_fini(&l);
    kiln_object_fini(&image);
    kiln_object_fini(&o);
}

/* Code that holds an address of 4 bytes cannot be moved.  The object itself may still be loaded, where the address happens to fit. */
static void code_that_is_tied_to_a_place_has_no_image(void **state) {
    (void)state;
    kiln_object image = {0},
                o = build_text(tools, "__asm__(\".section .rodata\\n.long kiln_kernel\\n.text\\n\");\n"
                                      "extern const int where __attribute__((visibility(\"hidden\")));\n"
                                      "__asm__(\".section .rodata\\nwhere: .long kiln_kernel\\n.text\\n\");\n"
                                      "int kiln_kernel(const int *in) { return *in + where; }\n");
    assert_int_equal(kiln_image_make(&o, KILN_KERNEL_SYMBOL, &image), KILN_E_BUILD);
    assert_non_null(strstr(kiln_last_error(), "ties the code to one address"));
    kiln_object_fini(&o);
}
#endif

/* -- damage ------------------------------------------------------------------------------------------------------ */

enum { HEAD = 24, FIXUP = 8 };

/* The copy ends where a buffer ends, so that sanitizers see any overrun.  Loaded code is not run. */
static bool loads(const uint8_t *p, size_t n) {
    kiln_codemem m;
    void *entry = NULL;
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, p, n);
    kiln_status st = kiln_image_load(copy, n, &m, &entry);
    free(copy);
    assert_true(st == KILN_OK || st == KILN_E_BUILD);
    if (st != KILN_OK) return false;
    assert_in_range((uintptr_t)entry, (uintptr_t)m.exec, (uintptr_t)m.exec + m.n - 1);
    kiln_codemem_put(&m);
    return true;
}

/* A flipped byte of the head is refused, but where it makes another place within the code the entry. */
static void a_damaged_head_is_refused(void **state) {
    (void)state;
    kiln_object image = image_of(good_source, KILN_KERNEL_SYMBOL);
    uint8_t *p = image.bytes;
    assert_true(loads(p, image.n));
    for (size_t k = 0; k < HEAD; k++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            p[k] ^= (uint8_t)(1u << bit);
            bool still = loads(p, image.n), is_entry = k >= 16 && k < 20;
            if (still && !is_entry) fail_msg("byte %zu, bit %u", k, bit);
            p[k] ^= (uint8_t)(1u << bit);
        }
    }
    for (size_t n = 0; n < image.n; n++) assert_false(loads(p, n));
    kiln_object_fini(&image);
}

static void put32(uint8_t *p, size_t at, uint32_t v) { memcpy(p + at, &v, sizeof v); }

/* Each field at its limits, and one beyond. */
static void fields_have_limits(void **state) {
    (void)state;
    uint8_t p[HEAD + FIXUP + 16] = {0};
    kiln_object image = image_of("int kiln_kernel(const int *in) { return *in; }", KILN_KERNEL_SYMBOL);
    memcpy(p, image.bytes, 8); /* magic, version and machine */
    kiln_object_fini(&image);
    put32(p, 8, 16); /* bytes, align, entry, fixups */
    put32(p, 12, 64);
    put32(p, 20, 1);
    static const struct {
        size_t at;
        uint32_t v;
        bool good;
    } cases[] = {{16, 15, true},
                 {16, 16, false},
                 {16, UINT32_MAX, false},
                 {12, 0, false},
                 {12, 3, false},
                 {12, 4096, true},
                 {12, 8192, false},
                 {12, 1, true},
                 {8, 0, false},
                 {8, 17, false},
                 {8, UINT32_MAX, false},
                 {20, 0, false},
                 {20, 2, false},
                 {20, UINT32_MAX, false},
                 {20, 0x20000000, false},
                 {20, 0x20000001, false},
                 {HEAD, 8, true},
                 {HEAD, 9, false},
                 {HEAD, UINT32_MAX, false},
                 {HEAD, UINT32_MAX - 7, false},
                 {HEAD + 4, 16, true},
                 {HEAD + 4, 17, false},
                 {HEAD + 4, UINT32_MAX, false}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        uint8_t copy[sizeof p];
        memcpy(copy, p, sizeof p);
        put32(copy, cases[k].at, cases[k].v);
        if (loads(copy, sizeof copy) != cases[k].good) fail_msg("case %zu", k);
    }
}

/* Code of fewer bytes than an address has no room for a fixup. */
static void small_code_has_no_addresses(void **state) {
    (void)state;
    uint8_t p[HEAD + FIXUP + 7] = {0};
    kiln_object image = image_of("int kiln_kernel(const int *in) { return *in; }", KILN_KERNEL_SYMBOL);
    memcpy(p, image.bytes, 8);
    kiln_object_fini(&image);
    put32(p, 12, 64);
    put32(p, 20, 1);
    for (uint32_t n = 1; n < 8; n++) {
        put32(p, 8, n);
        assert_false(loads(p, HEAD + FIXUP + n));
    }
}

/* What the system lacks is no damage. */
static void no_memory_for_code_is_told_apart(void **state) {
    (void)state;
    kiln_codemem m;
    void *entry;
    kiln_object image = image_of(good_source, KILN_KERNEL_SYMBOL);
    kiln_codemem_allow(0);
    assert_int_equal(kiln_image_load(image.bytes, image.n, &m, &entry), KILN_E_NOMEM);
    kiln_codemem_allow(KILN_CODEMEM_ANY);
    kiln_object_fini(&image);
}

static kiln_status make_and_load(const kiln_object *o) {
    kiln_object image = {0};
    kiln_code *c = NULL;
    KILN_TRY(kiln_image_make(o, KILN_KERNEL_SYMBOL, &image));
    kiln_status st = kiln_code_load_image(&image, &c);
    if (st == KILN_OK) check_code(c);
    kiln_code_free(c);
    kiln_object_fini(&image);
    return st;
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    kiln_object o = build_text(tools, good_source);
    long n = 1;
    for (bool out = true; out; n++) {
        kiln_alloc_fail_after(n);
        kiln_status st = make_and_load(&o);
        out = kiln_alloc_fail_after(0) >= n;
        assert_int_equal(st, out ? KILN_E_NOMEM : KILN_OK);
    }
    assert_true(n > 5);
    kiln_object_fini(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_runs_wherever_it_lies),
        cmocka_unit_test(kernels_of_one_object_are_images_of_their_own),
        cmocka_unit_test(what_is_not_in_an_object_has_no_image),
#if defined(__x86_64__)
        cmocka_unit_test(addresses_are_right_at_every_place),
        cmocka_unit_test(fixups_are_the_places_that_change),
        cmocka_unit_test(code_that_is_tied_to_a_place_has_no_image),
#endif
        cmocka_unit_test(a_damaged_head_is_refused),
        cmocka_unit_test(fields_have_limits),
        cmocka_unit_test(small_code_has_no_addresses),
        cmocka_unit_test(no_memory_for_code_is_told_apart),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
