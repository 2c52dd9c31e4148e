/* test_math_source.c - math fragments as emitted into kernels.
 *
 * Each compiles with nothing but what it names, with gcc and clang, needs no library, and computes the
 * same bits as the loops compiled into the interpreter, in every rounding mode.  What a compiler made of a text
 * is kept under the hash of both (compile_cache.h).  A sampled run tries each primitive of one type alone, with
 * one of the compilers, entries at other widths that kernels have in parts, and a fifth of them at each level but
 * the best.  Not under sanitizers: what is tested is compiled by itself, and nothing watches it there. */
#include <dlfcn.h>
#include <unistd.h>

#include "base/base.h"
#include "target/cpu/build.h"
#include "compile_cache.h"
#include "float_env.h"
#include "math/math.h"
#include "math_cases.h"
#include "whole.h"

#define KERNEL_FLAGS \
    "-O1 -fexpensive-optimizations -fsignaling-nans -Wno-psabi" /* what decides the code of a kernel */

enum { FAR = 4096 }; /* bytes between two results of an entry */

typedef void (*entry_fn)(void *out, const void *a, const void *b, const void *c, long n);

/* -- one entry point per primitive or cast ---- */

/* An entry: C text and the math names it uses. */
typedef struct unit {
    kiln_sb text;
    char name[8][32];
    int nname;
    kiln_isa isa;
    int lanes;
    bool chosen; /* a sampled run tries this one alone */
    int widest;  /* bytes of an element of its widest type */
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

/* Whether a register holds a vector of t: partial vectors and lanes are of such only. */
static bool fits(const unit *u, kiln_dtype t) {
    return u->lanes * (int)kiln_dtype_size(t) <= kiln_isa_vector_bytes(u->isa);
}

/* A copy, in which the first half of each vector is moved down by a lane; and a copy from the last element to the
 * first, FAR bytes on. */
static void lanes_entry(unit *u, kiln_dtype t, const char *entry) {
    static const char text[] =
        "    (void)b, (void)c;\n"
        "    for (long i = 0; i < n; i += KILN_W) {\n"
        "        long k = n - i < KILN_W ? n - i : KILN_W;\n"
        "        v%2$s x = load_some_%1$s((const char *)a + i * %3$d, k);\n"
        "        store_some_%1$s((char *)out + i * %3$d, k, blend_%2$s(k / 2, down_%2$s(x, 1), x));\n"
        "        x = load_at_%1$s((const char *)a, (iota_i64() + i) * %3$dl, first_lanes(k), x);\n"
        "        store_at_%1$s((char *)out + %4$d, (n - 1 - i - iota_i64()) * %3$dl, first_lanes(k), x);\n"
        "    }\n}\n";
    const char *name = kiln_dtype_name(t);
    const char *kept = t == KILN_BOOL ? "i8" : t == KILN_F16 || t == KILN_BF16 ? "u16" : name;
    const char *const moves[] = {"load_some", "store_some", "load_at", "store_at"};
    for (int k = 0; k < 4; k++) use(u, "%s_%s", moves[k], name);
    use(u, "down_%s", kept);
    use(u, "blend_%s", kept);
    use(u, "first_lanes");
    use(u, "iota_i64");
    open_entry(u, entry);
    kiln_sb_printf(&u->text, text, name, kept, (int)kiln_dtype_size(t), FAR);
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

/* The source of the entries in u, which use n names. */
static void unit_source(const unit *u, const char *const *names, int n, kiln_sb *sb) {
    kiln_sb_init(sb);
    assert_int_equal(kiln_math_source(sb, u->isa, u->lanes, names, n), KILN_OK);
    kiln_sb_puts(sb, u->text.p);
    assert_false(sb->failed);
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

/* One type of each primitive, in turn. */
static bool is_turn(kiln_prim p, kiln_dtype t) {
    kiln_dtypes types = kiln_prim_types(p) & (KILN_DT(KILN_C64) - 1);
    for (int skip = (int)p % __builtin_popcount(types); skip > 0; skip--) types &= types - 1;
    return __builtin_ctz(types) == (int)t;
}

static int wider(kiln_dtype a, kiln_dtype b) {
    size_t x = kiln_dtype_size(a), y = kiln_dtype_size(b);
    return (int)(x > y ? x : y);
}

static void each_entry(unit *u, visit_fn visit, void *arg) {
    static const char *const ctype[] = {"_Bool",        "unsigned char", "signed char",    "short",
                                        "int",          "long",          "unsigned short", "unsigned short",
                                        "float",        "double",        "unsigned short", "unsigned",
                                        "unsigned long"};
    char entry[48];
#define VISIT(turn, other, make, ...)               \
    do {                                            \
        begin(u);                                   \
        u->chosen = turn;                           \
        u->widest = wider(t, other);                \
        snprintf(entry, sizeof entry, __VA_ARGS__); \
        make;                                       \
        visit(arg, u, entry);                       \
        kiln_sb_fini(&u->text);                     \
    } while (0)
    for (kiln_dtype t = 0; t < KILN_C64; t++) {
        const char *tn = kiln_dtype_name(t);
        for (kiln_prim p = 0; p < KILN_PRIM_COUNT; p++)
            if (kiln_prim_types(p) & KILN_DT(t))
                VISIT(is_turn(p, t), t, prim_entry(u, p, t, entry), "k_%s_%s", kiln_prim_name(p), tn);
        for (kiln_dtype f = 0; f < KILN_DTYPE_COUNT; f++)
            if (t != f && kiln_loops_for(u->isa)->cast[t][f])
                VISIT((t + f) % 4 == 0, f, cast_entry(u, t, f, entry), "k_cast_%s_%s", tn,
                      kiln_dtype_name(f));
        VISIT(true, t, memory_entry(u, t, entry), "k_memory_%s", tn);
        VISIT(true, t, splat_entry(u, t, ctype[t], entry), "k_splat_%s", tn);
        if (fits(u, t)) VISIT(true, t, lanes_entry(u, t, entry), "k_lanes_%s", tn);
    }
}

/* -- alone ---- */

typedef struct alone {
    const char *cc;
    int part; /* a sampled run gives every third one that is chosen to this compiler */
    int place, tried, known;
} alone;

static void compile_alone(void *arg, unit *u, const char *entry) {
    alone *a = arg;
    const char *names[8];
    char command[200];
    kiln_sb sb;
    if (!whole_run() && (!u->chosen || a->place++ % 3 != a->part)) return;
    for (int i = 0; i < u->nname; i++) names[i] = u->name[i];
    unit_source(u, names, u->nname, &sb);
    snprintf(command, sizeof command,
             "%s -fsyntax-only -x c -std=gnu11 -Wall -Wextra -Werror -Wno-psabi -Wno-unused-function %s",
             a->cc, march(u->isa));
    a->tried++;
    a->known += cached_check(a->cc, command, sb.p, sb.len, entry);
    kiln_sb_fini(&sb);
}

static kiln_isa best(void) { return kiln_isa_detect(); }

static void compile_each_alone(const char *cc, int part) {
    unit u = {.isa = best(), .lanes = kiln_isa_vector_bytes(best()) / 4};
    alone a = {.cc = cc, .part = part};
    each_entry(&u, compile_alone, &a);
    print_message("%s: %d entries alone, of which %d were known\n", cc, a.tried, a.known);
    assert_true(a.tried > 50);
}

static void entries_compile_alone_with_gcc(void **state) {
    (void)state;
    compile_each_alone("gcc", 0);
}

static void entries_compile_alone_with_clang(void **state) {
    (void)state;
    compile_each_alone("clang", 1);
}

/* -- the same bits ---- */

typedef struct all {
    unit u; /* the text of every entry, its level and lanes */
    char name[4096][32];
    const char *names[4096];
    int n, place;
    int least, most; /* bytes of the widest type of the entries that are meant */
    int parts, part; /* of these those whose place modulo `parts` is `part` */
    int compared;
} all;

static void append(void *arg, unit *u, const char *entry) {
    all *a = arg;
    (void)entry;
    if (u->widest < a->least || u->widest > a->most || a->place++ % a->parts != a->part) return;
    kiln_sb_puts(&a->u.text, u->text.p);
    for (int i = 0; i < u->nname; i++) {
        assert_true(a->n < 4096);
        memcpy(a->name[a->n], u->name[i], sizeof a->name[0]);
        a->names[a->n] = a->name[a->n];
        a->n++;
    }
}

/* The entries of one part as one shared object without a library: an undefined symbol fails the link. */
static void *build_all(const char *cc, const char *flags, all *a) {
    char command[300];
    kiln_sb sb;
    unit u = {.isa = a->u.isa, .lanes = a->u.lanes};
    a->n = a->place = 0;
    kiln_sb_init(&a->u.text);
    each_entry(&u, append, a);
    unit_source(&a->u, a->names, a->n, &sb);
    kiln_sb_fini(&a->u.text);
    snprintf(
        command, sizeof command,
        "%s %s -ffp-contract=off -frounding-math -fwrapv -x c -std=gnu11 -w -fPIC -shared -nostdlib -Wl,-z,defs %s",
        cc, flags, march(u.isa));
    void *lib = dlopen(cached_object(cc, command, sb.p, sb.len), RTLD_NOW | RTLD_LOCAL);
    if (!lib) fail_msg("%s", dlerror());
    kiln_sb_fini(&sb);
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

/* The entry's function, or NULL if it is of another part. */
static entry_fn find(all *a, void *lib, const char *entry) {
    union {
        void *p;
        entry_fn fn;
    } k = {dlsym(lib, entry)};
    a->compared += k.p != NULL;
    return k.fn;
}

static void compare(entry_fn fn, kiln_loop_fn loop, kiln_dtype rt, kiln_dtype t, const char *entry,
                    const char *level) {
    compare_in(NULL, fn, loop, rt, t, entry, level);
    for (int e = 0; e < FLOAT_ENVS; e++) compare_in(&float_envs[e], fn, loop, rt, t, entry, level);
}

static void check_memory(entry_fn fn, kiln_dtype t) {
    size_t size = kiln_dtype_size(t);
    fill(&in[0], t, 0);
    fill(&in[1], KILN_I64, 1);
    for (long n = 1; n < 200; n += 7) {
        memset(&got, 0xa5, sizeof got);
        memset(&want, 0xa5, sizeof want);
        for (long i = 0; i < n; i++)
            memcpy(want.u8 + (size_t)i * size, in[0].u8 + (size_t)(n - 1 - i) * size, size);
        memcpy(want.u8 + n * 8, &in[1], (size_t)(n % 64));
        fn(&got, &in[0], &in[1], NULL, n);
        assert_memory_equal(&got, &want, sizeof got);
    }
}

static void check_lanes(entry_fn fn, kiln_dtype t, int lanes) {
    size_t size = kiln_dtype_size(t);
    fill(&in[0], t, 0);
    for (int n = 1; n < 200; n += 7) {
        memset(&got, 0xa5, sizeof got);
        memset(&want, 0xa5, sizeof want);
        for (int i = 0; i < n; i++) {
            int at = i % lanes, k = n - (i - at) < lanes ? n - (i - at) : lanes;
            memcpy(want.u8 + (size_t)i * size, in[0].u8 + (size_t)(i + (at < k / 2)) * size, size);
            memcpy(want.u8 + FAR + (size_t)(n - 1 - i) * size, in[0].u8 + (size_t)i * size, size);
        }
        fn(&got, &in[0], NULL, NULL, n);
        assert_memory_equal(&got, &want, sizeof got);
    }
}

static void check_splat(entry_fn fn, kiln_dtype t, int lanes) {
    size_t size = kiln_dtype_size(t);
    fill(&in[0], t, 0);
    for (int i = 0; i < N; i++) {
        fn(&got, in[0].u8 + (size_t)i * size, NULL, NULL, 0);
        for (int j = 0; j < lanes; j++) memcpy(want.u8 + (size_t)j * size, in[0].u8 + (size_t)i * size, size);
        assert_int_equal(first_difference(&got, &want, t, lanes), -1);
    }
}

static void compare_prims(all *a, void *lib, kiln_dtype t, const char *level) {
    const kiln_loops *l = kiln_loops_for(a->u.isa);
    char entry[48];
    entry_fn fn;
    for (kiln_prim p = 0; p < KILN_PRIM_COUNT; p++) {
        if (!l->prim[p][t]) continue;
        snprintf(entry, sizeof entry, "k_%s_%s", kiln_prim_name(p), kiln_dtype_name(t));
        if (!(fn = find(a, lib, entry))) continue;
        for (int k = 0; k < 3; k++) fill(&in[k], t, k);
        if (kiln_prim_rule(p) == KILN_RULE_SELECT) fill(&in[0], KILN_BOOL, 0);
        compare(fn, l->prim[p][t], kiln_prim_result(p, t), t, entry, level);
    }
    for (kiln_dtype f = 0; f < KILN_DTYPE_COUNT; f++) {
        if (t == f || !l->cast[t][f]) continue;
        snprintf(entry, sizeof entry, "k_cast_%s_%s", kiln_dtype_name(t), kiln_dtype_name(f));
        if (!(fn = find(a, lib, entry))) continue;
        fill(&in[0], f, 0);
        compare(fn, l->cast[t][f], t, f, entry, level);
    }
}

/* Which entries are compared. */
typedef struct chosen {
    int lanes, least, most, part, parts; /* as those of `all` */
} chosen;

/* The chosen entries, compiled by cc, against the loops of the interpreter. */
static void compare_part(const char *cc, const char *flags, kiln_isa isa, chosen c) {
    static all a;
    char entry[48], level[48];
    differences = 0;
    entry_fn fn;
    a.u = (unit){.isa = isa, .lanes = c.lanes};
    a.least = c.least;
    a.most = c.most;
    a.parts = c.parts;
    a.part = c.part;
    a.compared = 0;
    void *lib = build_all(cc, flags, &a);
    snprintf(level, sizeof level, "%s with %d lanes by %s", kiln_isa_name(isa), c.lanes, cc);
    for (kiln_dtype t = 0; t < KILN_C64; t++) {
        compare_prims(&a, lib, t, level);
        snprintf(entry, sizeof entry, "k_memory_%s", kiln_dtype_name(t));
        if ((fn = find(&a, lib, entry))) check_memory(fn, t);
        snprintf(entry, sizeof entry, "k_splat_%s", kiln_dtype_name(t));
        if ((fn = find(&a, lib, entry))) check_splat(fn, t, c.lanes);
        snprintf(entry, sizeof entry, "k_lanes_%s", kiln_dtype_name(t));
        if (fits(&a.u, t) && (fn = find(&a, lib, entry))) check_lanes(fn, t, c.lanes);
    }
    assert_true(a.compared > 0);
    assert_int_equal(a.compared, (a.place - c.part + c.parts - 1) / c.parts);
    dlclose(lib);
    assert_int_equal(differences, 0);
}

static void compare_all(const char *cc, const char *flags, kiln_isa isa, int lanes) {
    compare_part(cc, flags, isa, (chosen){lanes, 1, 8, 0, 1});
}

/* The flags of the compile path, and as many lanes as kernels have, in which the widest type fills a register: all at the
 * best level, and at each other one a part unless the run is whole; then other widths and clang at the best one. */
static void emitted_and_compiled_in_give_the_same_bits(void **state) {
    (void)state;
    for (kiln_isa isa = 0; isa < KILN_ISA_COUNT; isa++) {
        int parts = whole_run() || isa == best() ? 1 : 5, bytes = kiln_isa_vector_bytes(isa);
        if (!kiln_isa_runs(isa)) continue;
        compare_part("gcc", KERNEL_FLAGS, isa, (chosen){bytes / 4, 1, 4, (int)isa % parts, parts});
        compare_part("gcc", KERNEL_FLAGS, isa, (chosen){bytes / 8, 8, 8, (int)isa % parts, parts});
    }
}

/* A whole run has vectors of several registers too, which no kernel has. */
static void bits_do_not_depend_on_the_width(void **state) {
    (void)state;
    int bytes = kiln_isa_vector_bytes(best());
    const int all[] = {bytes / 8, bytes / 4, bytes, 2};
    const chosen some[] = {
        {bytes / 8, 1, 4, 0, 3}, {2, 1, 8, 1, 6}, {bytes, 1, 1, 0, 3}, {bytes / 2, 1, 2, 1, 3}};
    for (size_t k = 0; k < sizeof all / sizeof *all && whole_run(); k++)
        compare_all("gcc", KERNEL_FLAGS, best(), all[k]);
    for (size_t k = 0; k < sizeof some / sizeof *some && !whole_run(); k++)
        compare_part("gcc", KERNEL_FLAGS, best(), some[k]);
}

static void bits_do_not_depend_on_the_compiler(void **state) {
    (void)state;
    kiln_toolchain *tc;
    assert_int_equal(kiln_toolchain_open("clang", CACHE_NEW, &tc), KILN_OK);
    kiln_isa isa; /* clang 14 dies of AVX-512's */
    assert_int_equal(kiln_toolchain_isa(tc, best(), &isa), KILN_OK);
    kiln_toolchain_close(tc);
    /* -fno-builtin: clang makes calls of memcpy and memset out of loops otherwise */
    compare_all("clang", "-O1 -fno-builtin", isa, kiln_isa_vector_bytes(isa) / 4);
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
    return cmocka_run_group_tests(tests, cache_open, cache_close);
}
