/* test_math_source.c - math fragments as emitted into kernels.
 *
 * Each compiles with nothing but what it names, with gcc and clang, needs no library, and computes the
 * same bits as the loops compiled into the interpreter, in every rounding mode. */
#include <dlfcn.h>
#include <unistd.h>

#include "base/base.h"
#include "float_env.h"
#include "math/math.h"
#include "math_cases.h"

#define KERNEL_FLAGS "-O1 -fexpensive-optimizations -fsignaling-nans -Wno-psabi" /* what decides the code of a kernel */

typedef void (*entry_fn)(void *out, const void *a, const void *b, const void *c, long n);

static char folder[64];

/* -- one entry point per primitive or cast ---- */

/* An entry: C text and the math names it uses. */
typedef struct unit {
    kiln_sb text;
    char name[8][32];
    int nname;
    kiln_isa isa;
    int lanes;
} unit;

static void use(unit *u, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void use(unit *u, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(u->name[u->nname++], sizeof u->name[0], fmt, ap);
    va_end(ap);
    assert_true(u->nname <= 8);
}

static int bits_of(kiln_dtype t) { return 8 * (int)kiln_dtype_size(t); }

/* `a`, `b` or `c` of type t at position i; a bool as wide as `width` bits. */
static void operand(unit *u, char which, kiln_dtype t, int width) {
    const char *name = kiln_dtype_name(t);
    bool widen = t == KILN_BOOL && width != 8;
    use(u, "load_%s", name);
    if (widen) use(u, "mask_%d_8", width);
    if (widen) kiln_sb_printf(&u->text, "mask_%d_8(", width);
    kiln_sb_printf(&u->text, "load_%s((const char *)%c + i * %zu)", name, which, kiln_dtype_size(t));
    if (widen) kiln_sb_puts(&u->text, ")");
}

static void open_entry(unit *u, const char *entry) {
    kiln_sb_printf(&u->text, "void %s(void *out, const void *a, const void *b, const void *c, long n) {\n",
                   entry);
}

/* Opens "store_T(out, " for a result that is a mask of `width` bits if t is bool. */
static void open_store(unit *u, const char *entry, kiln_dtype t, int width) {
    open_entry(u, entry);
    kiln_sb_puts(&u->text, "    (void)a, (void)b, (void)c;\n    for (long i = 0; i < n; i += KILN_W) ");
    kiln_sb_printf(&u->text, "store_%s((char *)out + i * %zu, (", kiln_dtype_name(t), kiln_dtype_size(t));
    use(u, "store_%s", kiln_dtype_name(t));
    if (t != KILN_BOOL || width == 8) return;
    use(u, "mask_8_%d", width);
    kiln_sb_printf(&u->text, "mask_8_%d(", width);
}

static void close_store(unit *u, kiln_dtype t, int width) {
    kiln_sb_puts(&u->text, t == KILN_BOOL && width != 8 ? "))));\n}\n" : ")));\n}\n");
}

static void prim_entry(unit *u, kiln_prim p, kiln_dtype t, const char *entry) {
    bool select = kiln_prim_rule(p) == KILN_RULE_SELECT;
    open_store(u, entry, kiln_prim_result(p, t), bits_of(t));
    use(u, "%s_%s", kiln_prim_name(p), kiln_dtype_name(t));
    kiln_sb_printf(&u->text, "%s_%s(", kiln_prim_name(p), kiln_dtype_name(t));
    for (int k = 0; k < kiln_prim_arity(p); k++) {
        if (k) kiln_sb_puts(&u->text, ", ");
        operand(u, "abc"[k], select && k == 0 ? KILN_BOOL : t, bits_of(t));
    }
    close_store(u, kiln_prim_result(p, t), bits_of(t));
}

static void cast_entry(unit *u, kiln_dtype to, kiln_dtype from, const char *entry) {
    int width = to == KILN_BOOL ? bits_of(from) : bits_of(to);
    open_store(u, entry, to, width);
    use(u, "cast_%s_%s", kiln_dtype_name(to), kiln_dtype_name(from));
    kiln_sb_printf(&u->text, "cast_%s_%s(", kiln_dtype_name(to), kiln_dtype_name(from));
    operand(u, 'a', from, width);
    close_store(u, to, width);
}

/* Strided copy through a register with a broken last vector, beside a splat and a copied tail. */
static void memory_entry(unit *u, kiln_dtype t, const char *entry) {
    const char *name = kiln_dtype_name(t);
    size_t size = kiln_dtype_size(t);
    use(u, "gather_%s", name);
    use(u, "scatter_%s", name);
    use(u, "copy_tail");
    open_entry(u, entry);
    kiln_sb_puts(&u->text, "    for (long i = 0; i < n; i += KILN_W) {\n");
    kiln_sb_puts(&u->text, "        long k = n - i < KILN_W ? n - i : KILN_W;\n");
    kiln_sb_printf(&u->text, "        scatter_%s((char *)out + i * %zu, %zu, k, ", name, size, size);
    kiln_sb_printf(&u->text, "gather_%s((const char *)a + (n - 1 - i) * %zu, ", name, size);
    kiln_sb_printf(&u->text, "-%zul, k));\n    }\n", size);
    kiln_sb_puts(&u->text, "    copy_tail((char *)out + n * 8, b, n % 64);\n    (void)c;\n}\n");
}

static void splat_entry(unit *u, kiln_dtype t, const char *ctype, const char *entry) {
    use(u, "splat_%s", kiln_dtype_name(t));
    use(u, "store_%s", kiln_dtype_name(t));
    open_entry(u, entry);
    kiln_sb_puts(&u->text, "    (void)b, (void)c, (void)n;\n");
    kiln_sb_printf(&u->text, "    store_%s(out, splat_%s(*(const %s *)a));\n}\n", kiln_dtype_name(t),
                   kiln_dtype_name(t), ctype);
}

/* -- compiling ---- */

static void write_unit(const unit *u, const char *const *names, int n, const char *path) {
    kiln_sb sb;
    kiln_sb_init(&sb);
    assert_int_equal(kiln_math_source(&sb, u->isa, u->lanes, names, n), KILN_OK);
    kiln_sb_puts(&sb, u->text.p);
    assert_false(sb.failed);
    assert_int_equal(kiln_file_write_atomic(path, sb.p, sb.len), KILN_OK);
    kiln_sb_fini(&sb);
}

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...) {
    char command[512];
    va_list ap;
    va_start(ap, fmt);
    assert_true(vsnprintf(command, sizeof command, fmt, ap) < (int)sizeof command);
    va_end(ap);
    if (system(command) != 0) fail_msg("failed: %s", command);
}

static const char *march(kiln_isa isa) {
    static char text[32];
    snprintf(text, sizeof text, kiln_isa_march(isa)[0] ? "-march=%s" : "%s", kiln_isa_march(isa));
    return text;
}

/* -- every entry, in a fixed order ---- */

typedef void (*visit_fn)(void *arg, unit *u, const char *entry);

static void begin(unit *u) {
    kiln_sb_init(&u->text);
    u->nname = 0;
}

static void each_entry(unit *u, visit_fn visit, void *arg) {
    static const char *const ctype[] = {"_Bool",        "unsigned char", "signed char",    "short",
                                        "int",          "long",          "unsigned short", "unsigned short",
                                        "float",        "double",        "unsigned short", "unsigned",
                                        "unsigned long"};
    char entry[48];
#define VISIT(make, ...)                            \
    do {                                            \
        begin(u);                                   \
        snprintf(entry, sizeof entry, __VA_ARGS__); \
        make;                                       \
        visit(arg, u, entry);                       \
        kiln_sb_fini(&u->text);                     \
    } while (0)
    for (kiln_dtype t = 0; t < KILN_C64; t++) {
        const char *tn = kiln_dtype_name(t);
        for (kiln_prim p = 0; p < KILN_PRIM_COUNT; p++)
            if (kiln_prim_types(p) & KILN_DT(t))
                VISIT(prim_entry(u, p, t, entry), "k_%s_%s", kiln_prim_name(p), tn);
        for (kiln_dtype f = 0; f < KILN_DTYPE_COUNT; f++)
            if (t != f && kiln_loops_for(u->isa)->cast[t][f])
                VISIT(cast_entry(u, t, f, entry), "k_cast_%s_%s", tn, kiln_dtype_name(f));
        VISIT(memory_entry(u, t, entry), "k_memory_%s", tn);
        VISIT(splat_entry(u, t, ctype[t], entry), "k_splat_%s", tn);
    }
}

/* -- alone ---- */

static void write_alone(void *arg, unit *u, const char *entry) {
    const char *names[8];
    char path[160];
    (void)arg;
    for (int i = 0; i < u->nname; i++) names[i] = u->name[i];
    snprintf(path, sizeof path, "%s/%s.c", folder, entry);
    write_unit(u, names, u->nname, path);
}

static void compile_alone(const char *cc, kiln_isa isa, int lanes) {
    unit u = {.isa = isa, .lanes = lanes};
    each_entry(&u, write_alone, NULL);
    run("cd %s && %s -fsyntax-only -std=gnu11 -Wall -Wextra -Werror -Wno-psabi -Wno-unused-function %s k_*.c "
        "&& rm k_*.c",
        folder, cc, march(isa));
}

static kiln_isa best(void) { return kiln_isa_detect(); }

static void entries_compile_alone_with_gcc(void **state) {
    (void)state;
    compile_alone("gcc", best(), kiln_isa_vector_bytes(best()) / 4);
}

static void entries_compile_alone_with_clang(void **state) {
    (void)state;
    compile_alone("clang", best(), kiln_isa_vector_bytes(best()) / 4);
}

/* -- the same bits ---- */

typedef struct all {
    unit u; /* the text of every entry */
    char name[4096][32];
    const char *names[4096];
    int n;
} all;

static void append(void *arg, unit *u, const char *entry) {
    all *a = arg;
    (void)entry;
    kiln_sb_puts(&a->u.text, u->text.p);
    for (int i = 0; i < u->nname; i++) {
        assert_true(a->n < 4096);
        memcpy(a->name[a->n], u->name[i], sizeof a->name[0]);
        a->names[a->n] = a->name[a->n];
        a->n++;
    }
}

/* All entries as one shared object without a library: an undefined symbol fails the link. */
static void *build_all(const char *cc, const char *flags, kiln_isa isa, int lanes) {
    static all a;
    char source[96], object[128];
    unit u = {.isa = isa, .lanes = lanes};
    a.u = u;
    a.n = 0;
    kiln_sb_init(&a.u.text);
    each_entry(&u, append, &a);
    snprintf(source, sizeof source, "%s/all.c", folder);
    snprintf(object, sizeof object, "%s/all_%s_%d_%s.so", folder, kiln_isa_name(isa), lanes, cc);
    write_unit(&a.u, a.names, a.n, source);
    kiln_sb_fini(&a.u.text);
    run("%s %s -ffp-contract=off -frounding-math -fwrapv -std=gnu11 -w -fPIC -shared -nostdlib -Wl,-z,defs %s -o %s %s",
        cc, flags, march(isa), object, source);
    void *lib = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (!lib) fail_msg("%s", dlerror());
    return lib;
}

static block in[3], got, want;
static int differences; /* that were found and said */

/* NULL: in the default environment. */
static void compare_in(const float_env *env, entry_fn emitted, kiln_loop_fn loop, kiln_dtype rt, kiln_dtype t,
                       const char *entry, const char *level) {
    fenv_t before;
    enter_env(env, &before);
    emitted(&got, &in[0], &in[1], &in[2], N);
    loop(&want, &in[0], &in[1], &in[2], N);
    fesetenv(&before);
    int at = first_difference(&got, &want, rt, N);
    if (at < 0) return;
    differences++;
    print_message("%s at %s %s, element %d: (%llx, %llx) -> %llx emitted, %llx interpreted\n", entry, level,
                  env ? env->name : "by default", at, (unsigned long long)bits_at(&in[0], t, at),
                  (unsigned long long)bits_at(&in[1], t, at), (unsigned long long)bits_at(&got, rt, at),
                  (unsigned long long)bits_at(&want, rt, at));
}

static void compare(void *lib, kiln_loop_fn loop, kiln_dtype rt, kiln_dtype t, const char *entry,
                    const char *level) {
    union {
        void *p;
        entry_fn fn;
    } k = {dlsym(lib, entry)};
    assert_non_null(k.p);
    compare_in(NULL, k.fn, loop, rt, t, entry, level);
    for (int e = 0; e < FLOAT_ENVS; e++) compare_in(&float_envs[e], k.fn, loop, rt, t, entry, level);
}

static void check_memory(void *lib, kiln_dtype t) {
    char entry[48];
    union {
        void *p;
        entry_fn fn;
    } k;
    size_t size = kiln_dtype_size(t);
    snprintf(entry, sizeof entry, "k_memory_%s", kiln_dtype_name(t));
    k.p = dlsym(lib, entry);
    fill(&in[0], t, 0);
    fill(&in[1], KILN_I64, 1);
    for (long n = 1; n < 200; n += 7) {
        memset(&got, 0xa5, sizeof got);
        memset(&want, 0xa5, sizeof want);
        for (long i = 0; i < n; i++)
            memcpy(want.u8 + (size_t)i * size, in[0].u8 + (size_t)(n - 1 - i) * size, size);
        memcpy(want.u8 + n * 8, &in[1], (size_t)(n % 64));
        k.fn(&got, &in[0], &in[1], NULL, n);
        assert_memory_equal(&got, &want, sizeof got);
    }
}

static void check_splat(void *lib, kiln_dtype t, int lanes) {
    char entry[48];
    union {
        void *p;
        entry_fn fn;
    } k;
    size_t size = kiln_dtype_size(t);
    snprintf(entry, sizeof entry, "k_splat_%s", kiln_dtype_name(t));
    k.p = dlsym(lib, entry);
    fill(&in[0], t, 0);
    for (int i = 0; i < N; i++) {
        k.fn(&got, in[0].u8 + (size_t)i * size, NULL, NULL, 0);
        for (int j = 0; j < lanes; j++) memcpy(want.u8 + (size_t)j * size, in[0].u8 + (size_t)i * size, size);
        assert_int_equal(first_difference(&got, &want, t, lanes), -1);
    }
}

static void compare_all(const char *cc, const char *flags, kiln_isa isa, int lanes) {
    const kiln_loops *l = kiln_loops_for(isa);
    void *lib = build_all(cc, flags, isa, lanes);
    char entry[48], level[48];
    differences = 0;
    snprintf(level, sizeof level, "%s with %d lanes by %s", kiln_isa_name(isa), lanes, cc);
    for (kiln_dtype t = 0; t < KILN_C64; t++) {
        for (kiln_prim p = 0; p < KILN_PRIM_COUNT; p++) {
            if (!l->prim[p][t]) continue;
            for (int k = 0; k < 3; k++) fill(&in[k], t, k);
            if (kiln_prim_rule(p) == KILN_RULE_SELECT) fill(&in[0], KILN_BOOL, 0);
            snprintf(entry, sizeof entry, "k_%s_%s", kiln_prim_name(p), kiln_dtype_name(t));
            compare(lib, l->prim[p][t], kiln_prim_result(p, t), t, entry, level);
        }
        for (kiln_dtype f = 0; f < KILN_DTYPE_COUNT; f++) {
            if (t == f || !l->cast[t][f]) continue;
            fill(&in[0], f, 0);
            snprintf(entry, sizeof entry, "k_cast_%s_%s", kiln_dtype_name(t), kiln_dtype_name(f));
            compare(lib, l->cast[t][f], t, f, entry, level);
        }
        check_memory(lib, t);
        check_splat(lib, t, lanes);
    }
    dlclose(lib);
    assert_int_equal(differences, 0);
}

/* The flags of the compile path, at every level; then other widths and clang at the best one. */
static void emitted_and_compiled_in_give_the_same_bits(void **state) {
    (void)state;
    for (kiln_isa isa = 0; isa < KILN_ISA_COUNT; isa++)
        if (kiln_isa_runs(isa)) compare_all("gcc", KERNEL_FLAGS, isa, kiln_isa_vector_bytes(isa) / 4);
}

static void bits_do_not_depend_on_the_width(void **state) {
    (void)state;
    int bytes = kiln_isa_vector_bytes(best());
    compare_all("gcc", KERNEL_FLAGS, best(), bytes / 8);
    compare_all("gcc", KERNEL_FLAGS, best(), bytes);
    compare_all("gcc", KERNEL_FLAGS, best(), 2);
}

static void bits_do_not_depend_on_the_compiler(void **state) {
    (void)state;
    /* -fno-builtin: clang makes calls of memcpy and memset out of loops otherwise */
    compare_all("clang", "-O1 -fno-builtin", best(), kiln_isa_vector_bytes(best()) / 4);
}

/* -- the picker ---- */

static void source_holds_what_is_named_and_no_more(void **state) {
    (void)state;
    kiln_sb sb;
    const char *name = "add_f32";
    kiln_sb_init(&sb);
    assert_int_equal(kiln_math_source(&sb, KILN_ISA_V3, 8, &name, 1), KILN_OK);
    assert_non_null(strstr(sb.p, "#define KILN_W 8\n#define KILN_VB 32\n#define KILN_ISA_X86_V3 1\n"));
    assert_non_null(strstr(sb.p, "#define add_f32("));
    assert_null(strstr(sb.p, "sub_f32"));
    assert_null(strstr(sb.p, "fma_f32"));
    kiln_sb_fini(&sb);
}

static void an_unknown_name_is_a_bug(void **state) {
    (void)state;
    kiln_sb sb;
    const char *name = "frobnicate_f32";
    kiln_sb_init(&sb);
    assert_int_equal(kiln_math_source(&sb, KILN_ISA_V3, 8, &name, 1), KILN_E_BUG);
    assert_non_null(strstr(kiln_last_error(), "frobnicate_f32"));
    kiln_sb_fini(&sb);
}

static void a_failed_allocation_is_reported(void **state) {
    (void)state;
    kiln_sb sb;
    const char *name = "add_f32";
    kiln_sb_init(&sb);
    kiln_alloc_fail_after(1);
    assert_int_equal(kiln_math_source(&sb, KILN_ISA_V3, 8, &name, 1), KILN_E_NOMEM);
    kiln_alloc_fail_after(0);
    kiln_sb_fini(&sb);
}

static int make_folder(void **state) {
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%s/kiln_math_XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(source_holds_what_is_named_and_no_more),
        cmocka_unit_test(an_unknown_name_is_a_bug),
        cmocka_unit_test(a_failed_allocation_is_reported),
        cmocka_unit_test(emitted_and_compiled_in_give_the_same_bits),
        cmocka_unit_test(bits_do_not_depend_on_the_width),
        cmocka_unit_test(bits_do_not_depend_on_the_compiler),
        cmocka_unit_test(entries_compile_alone_with_gcc),
        cmocka_unit_test(entries_compile_alone_with_clang),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
