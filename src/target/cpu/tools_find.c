/* tools_find.c - a compiler command -> tools that were seen to work.
 *
 * Asks the driver what it would run (-###), so that a compile can start cc1 and as itself: the driver
 * alone costs as much as a small kernel.  Each route is tried on a kernel with constants before it is
 * believed, for the best instruction-set level first and then for lower ones; what was refused, and why, is kept for
 * the user. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "target/cpu/proc.h"
#include "target/cpu/tools.h"

enum { WORDS_MAX = 500, COMMANDS_MAX = 16, PATH_LEN = 4096 };

/* Bits must not depend on the compiler's taste, code must stand alone, and the loader wants short distances: see the
 * loader for what it refuses.  -frounding-math: constants are not computed by the compiler, which rounds to nearest.
 * -fsignaling-nans: x * -1 is not made -x, which is something else where subnormal numbers are zeros.
 * -ffunction-sections: of several kernels in one object, each can be taken out with what it uses (image.c). */
#define COMMON_FLAGS "-O1", "-ffp-contract=off", "-frounding-math", "-fwrapv", "-fPIC", "-w"
#define KERNEL_FLAGS                                                                     \
    "-ffreestanding", "-fno-math-errno", "-fno-strict-aliasing", "-fno-stack-protector", \
        "-fvisibility=hidden", "-fno-asynchronous-unwind-tables", "-ffunction-sections"
#if defined(__x86_64__)
#define MACHINE_FLAGS , "-fcf-protection=none"
#else
#define MACHINE_FLAGS
#endif
static const char *const gcc_flags[] = {
    COMMON_FLAGS,
    KERNEL_FLAGS MACHINE_FLAGS,
    "-fexpensive-optimizations",
    "-fipa-ra", /* rare paths are functions, which leave most registers alone */
    "-fsignaling-nans",
    "-fno-tree-loop-distribute-patterns",
    "-pipe",
    NULL};
static const char *const clang_flags[] = {COMMON_FLAGS, KERNEL_FLAGS MACHINE_FLAGS, "-fno-unwind-tables",
                                          NULL};
static const char *const plain_flags[] = {COMMON_FLAGS, NULL};

/* -- words --------------------------------------------------------------------------------------- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Copies one word to `to`; returns where it ended.  Inside single quotes a backslash is itself. */
static const char *take_word(const char *p, char *to) {
    char quote = 0;
    for (; *p; p++) {
        if (*p == '\\' && quote != '\'' && p[1]) {
            *to++ = *++p;
        } else if (quote ? *p == quote : (*p == '"' || *p == '\'')) {
            quote = quote ? 0 : *p;
        } else if (!quote && is_blank(*p)) {
            break;
        } else {
            *to++ = *p;
        }
    }
    *to = 0;
    return p;
}

char **kiln_tools_split(kiln_arena *mem, const char *text) {
    char **words = kiln_arena_alloc(mem, (WORDS_MAX + 1) * sizeof *words);
    char *room = kiln_arena_alloc(mem, 2 * strlen(text) + 2); /* the words and their ends */
    if (!words || !room) return NULL;
    for (size_t n = 0;;) {
        while (is_blank(*text)) text++;
        if (!*text) return words;
        if (n == WORDS_MAX) return words;
        words[n++] = room;
        text = take_word(text, room);
        room += strlen(room) + 1;
    }
}

static int count(char *const *words) {
    int n = 0;
    while (words[n]) n++;
    return n;
}

static void drop_words(char **words, int at, int n) {
    int total = count(words);
    if (at + n > total) n = total - at;
    memmove(words + at, words + at + n, (size_t)(total - at - n + 1) * sizeof *words);
}

static char **copy_flags(kiln_arena *mem, const char *const *flags) {
    char **out = kiln_arena_alloc(mem, 64 * sizeof *out);
    for (int i = 0; out && flags[i]; i++) {
        out[i] = kiln_arena_strndup(mem, flags[i], strlen(flags[i]));
        if (!out[i]) return NULL;
    }
    return out;
}

/* -- programs -------------------------------------------------------------------------------------- */

static bool is_program(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* NULL: no such program (or no memory, which a later allocation reports). */
static char *find_program(kiln_arena *mem, const char *path, const char *name) {
    char full[PATH_LEN];
    if (strchr(name, '/')) return is_program(name) ? kiln_arena_strndup(mem, name, strlen(name)) : NULL;
    while (*name && path && *path) {
        int n = (int)strcspn(path, ":");
        snprintf(full, sizeof full, "%.*s%s%s", n, path, n ? "/" : "./", name);
        if (is_program(full)) return kiln_arena_strndup(mem, full, strlen(full));
        path += n + (path[n] == ':');
    }
    return NULL;
}

/* -- asking the driver --------------------------------------------------------------------------- */

static char **driver_question(kiln_tools *t, const char *march) {
    char **q = kiln_arena_alloc(&t->mem, 2 * WORDS_MAX * sizeof *q);
    if (!q) return NULL;
    int n = 0;
    for (char **w = t->driver; *w; w++) q[n++] = *w;
    for (int i = 0; gcc_flags[i]; i++) q[n++] = (char *)(uintptr_t)gcc_flags[i];
    if (march[0]) q[n++] = (char *)(uintptr_t)march;
    static char *const tail[] = {"-###", "-c", "-x", "c", "-", "-o", "/dev/null"};
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++) q[n++] = tail[i];
    return q;
}

/* "gcc version 12.2.0 (...)" -> 12.2.0 */
static bool read_version(kiln_tools *t, const char *text, const char *phrase, const char *family) {
    const char *p = strstr(text, phrase);
    if (!p) return false;
    p += strlen(phrase);
    char *version = kiln_arena_strndup(&t->mem, p, strcspn(p, " \n-"));
    if (version) t->version = version;
    t->family = family;
    return true;
}

/* Takes away what each compile sets for itself. */
static void strip(char **words, const char *march, bool *had_march) {
    for (int i = 1; words[i];) {
        bool is_output = strcmp(words[i], "-o") == 0;
        bool is_march = march[0] && strcmp(words[i], march) == 0;
        bool is_pipe = strcmp(words[i], "|") == 0;
        if (is_march && had_march) *had_march = true;
        if (is_output || is_march || is_pipe)
            drop_words(words, i, is_output ? 2 : 1);
        else
            i++;
    }
}

/* The assembler's input is stdin: with -pipe it is given as "-" or not at all. */
static void strip_input(char **words) {
    for (int i = 1; words[i];)
        if (strcmp(words[i], "-") == 0 || strcmp(words[i], "--") == 0)
            drop_words(words, i, 1);
        else
            i++;
}

static bool is_assembler(const char *name) {
    size_t n = strlen(name);
    return strcmp(name, "as") == 0 || (n > 3 && strcmp(name + n - 3, "-as") == 0);
}

/* One line of the answer, if it is a command that we can run ourselves. */
static kiln_status read_command(const kiln_tools_request *rq, kiln_tools *t, const char *line, size_t n,
                                const char *march) {
    char *text = kiln_arena_strndup(&t->mem, line, n);
    char **words = text ? kiln_tools_split(&t->mem, text) : NULL;
    if (!words) return KILN_NOMEM();
    bool is_cc1 = words[0] && strcmp(base_of(words[0]), "cc1") == 0;
    if (!words[0] || !(is_cc1 || is_assembler(base_of(words[0])))) return KILN_OK;
    char *program = find_program(&t->mem, rq->path, words[0]);
    if (!program) return KILN_OK;
    words[0] = program;
    strip(words, march, is_cc1 ? NULL : &t->as_takes_march);
    if (is_cc1) {
        t->cc1 = words;
    } else {
        strip_input(words);
        t->as = words;
    }
    return KILN_OK;
}

/* Drivers print the commands they would run after a blank, all else without. */
static kiln_status read_answer(const kiln_tools_request *rq, kiln_tools *t, const char *text,
                               const char *march) {
    if (!read_version(t, text, "clang version ", "clang")) (void)read_version(t, text, "gcc version ", "gcc");
    int left = COMMANDS_MAX;
    for (size_t n; *text && left > 0; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        if (*text != ' ') continue;
        KILN_TRY(read_command(rq, t, text, n, march));
        left--;
    }
    return KILN_OK;
}

/* KILN_E_BUILD: the program could not be asked; *hangs: nor should it be tried. */
static kiln_status ask(const kiln_tools_request *rq, kiln_tools *t, int64_t deadline, bool *hangs) {
    char march[48] = "", *text = NULL;
    const char *level = kiln_isa_march(t->isa);
    if (level[0]) snprintf(march, sizeof march, "-march=%s", level);
    char **question = driver_question(t, march);
    if (!question) return KILN_NOMEM();
    kiln_status st = kiln_tools_ask(rq, question, deadline, &text);
    *hangs = st != KILN_OK && kiln_clock_ns() >= deadline;
    if (text && (st == KILN_OK || st == KILN_E_BUILD)) {
        kiln_status read = read_answer(rq, t, text, march);
        if (read != KILN_OK) st = read;
        if (st == KILN_E_BUILD) st = kiln_tools_quote(st, text);
    }
    kiln_free(text);
    return st;
}

/* -- trials ---------------------------------------------------------------------------------------- */

/* Reads a constant table by index and through vectors, so that relocation and alignment matter.  Then compares vectors of
 * doubles as long as kernels have them, two registers: clang before version 20 dies of that for AVX-512. */
static const char trial_source[] =
    "typedef double vec __attribute__((vector_size(%d)));\n"
    "typedef long mask __attribute__((vector_size(%d)));\n"
    "static const double table[8] = {3, 1, 4, 1, 5, 9, 2, 6};\n"
    "int kiln_kernel(const int *in) {\n"
    "    int i = in[0];\n"
    "    vec a = {table[i & 7], table[(i + 1) & 7], table[(i + 2) & 7], table[(i + 3) & 7]};\n"
    "    vec b = {10, 20, 30, 40};\n"
    "    a = a * b + 0.5;\n"
    "    mask large = (mask)(a > 30.0);\n"
    "    return (int)(a[0] + a[1] + a[2] + a[3]) + in[1] - (int)(large[0] + large[1]);\n"
    "}\n";
enum {
    TRIAL_INDEX = 2,
    TRIAL_BIAS = 7,
    TRIAL_ANSWER = 4 * 10 + 1 * 20 + 5 * 30 + 9 * 40 + 2 + TRIAL_BIAS + 1
};

static kiln_status try_once(const kiln_tools_request *rq, const kiln_tools *t, int64_t deadline) {
    kiln_object o = {0};
    kiln_code *code = NULL;
    char source[sizeof trial_source + 16];
    int bytes = 2 * kiln_isa_vector_bytes(t->isa);
    kiln_compile_job job = {.rq = rq,
                            .tools = t,
                            .isa = t->isa,
                            .src = source,
                            .n = (size_t)snprintf(source, sizeof source, trial_source, bytes, bytes),
                            .deadline_ns = deadline};
    KILN_TRY(kiln_compile(&job, &o));
    kiln_status st = kiln_code_load_with(rq, t, deadline, &o, KILN_KERNEL_SYMBOL, &code);
    kiln_object_fini(&o);
    KILN_TRY(st);
    kiln_launch in = {.nest = TRIAL_INDEX, .ndim = TRIAL_BIAS};
    int32_t got = kiln_code_entry(code)(&in);
    kiln_code_free(code);
    if (got == TRIAL_ANSWER) return KILN_OK;
    return KILN_FAIL(KILN_E_BUILD, "the trial kernel gave %d instead of %d", (int)got, (int)TRIAL_ANSWER);
}

/* Half of the time that is left, so that a step that hangs leaves some to the next. */
static int64_t half_way(int64_t deadline) {
    int64_t now = kiln_clock_ns();
    return deadline > now ? now + (deadline - now) / 2 : deadline;
}

/* A driver that fails with our flags and without them gives its reason once. */
static void refuse(kiln_sb *why, const kiln_tools *t, const char *route) {
    kiln_sb reason;
    kiln_sb_init(&reason);
    kiln_sb_printf(&reason, "%s: %s: %s", t->driver[0], route, kiln_last_error());
    if (reason.p && (!why->p || !strstr(why->p, reason.p)))
        kiln_sb_printf(why, "%s%s", why->len ? "; " : "", reason.p);
    kiln_sb_fini(&reason);
}

static kiln_status try_route(const kiln_tools_request *rq, kiln_tools *t, kiln_cc_route route,
                             int64_t deadline, kiln_sb *why) {
    t->route = route;
    t->can_link = !(rq->avoid & KILN_AVOID_LINK);
    kiln_status st = KILN_E_BUILD;
    for (int named = (rq->avoid & KILN_AVOID_FD_OUTPUT) != 0; named < 2 && st == KILN_E_BUILD; named++) {
        t->named_output = named;
        st = try_once(rq, t, half_way(deadline));
    }
    if (st == KILN_E_BUILD) refuse(why, t, route == KILN_CC_DIRECT ? "cc1 | as" : "driver");
    if (st != KILN_OK) t->route = KILN_CC_NONE;
    return st;
}

static kiln_status try_driver(const kiln_tools_request *rq, kiln_tools *t, int64_t deadline, kiln_sb *why) {
    bool is_clang = strcmp(t->family, "clang") == 0, is_gcc = strcmp(t->family, "gcc") == 0;
    kiln_status st = KILN_E_BUILD;
    if (is_clang || is_gcc) {
        t->flags = copy_flags(&t->mem, is_clang ? clang_flags : gcc_flags);
        if (!t->flags) return KILN_NOMEM();
        st = try_route(rq, t, KILN_CC_DRIVER, deadline, why);
    }
    if (st != KILN_E_BUILD) return st;
    t->flags = copy_flags(&t->mem, plain_flags);
    if (!t->flags) return KILN_NOMEM();
    return try_route(rq, t, KILN_CC_DRIVER, deadline, why);
}

/* KILN_E_BUILD: cc1 and as cannot be run by ourselves. */
static kiln_status try_direct(const kiln_tools_request *rq, kiln_tools *t, int64_t deadline, kiln_sb *why) {
    const char *cause = NULL;
    if (rq->avoid & KILN_AVOID_DIRECT)
        cause = "not allowed";
    else if (strcmp(t->family, "clang") == 0)
        return KILN_E_BUILD; /* it assembles by itself: the driver is the way, and no second choice */
    else if (!t->cc1 || !t->as)
        cause = "the driver names none";
    if (!cause) return try_route(rq, t, KILN_CC_DIRECT, deadline, why);
    kiln_sb_printf(why, "%s%s: cc1 | as: %s", why->len ? "; " : "", t->driver[0], cause);
    return KILN_E_BUILD;
}

/* At one level.  KILN_OK: t->route is set, perhaps to none.  Anything else is want of memory, or an interruption. */
static kiln_status try_level(const kiln_tools_request *rq, kiln_tools *t, int64_t deadline, bool *hangs,
                             kiln_sb *why) {
    t->cc1 = t->as = NULL;
    t->family = base_of(t->driver[0]);
    t->version = "";
    kiln_status st = ask(rq, t, half_way(deadline), hangs);
    if (st == KILN_E_BUILD && (*hangs || strcmp(t->family, "clang") != 0)) refuse(why, t, "-###");
    if (st == KILN_E_BUILD && *hangs) return KILN_OK;
    if (st == KILN_OK || st == KILN_E_BUILD) st = try_direct(rq, t, deadline, why);
    if (st == KILN_E_BUILD && !(rq->avoid & KILN_AVOID_DRIVER)) st = try_driver(rq, t, deadline, why);
    return st == KILN_E_BUILD ? KILN_OK : st;
}

/* One sentence in place of what the compiler printed, which stays only where the reason is not known.  Clang before version
 * 20 cannot split a comparison of more than one AVX-512 register that -frounding-math makes it keep in order. */
static void say_lower_level(kiln_sb *why, const kiln_tools *t, kiln_isa best, const char *printed) {
    bool known = strcmp(t->family, "clang") == 0 && atoi(t->version) < 20 && best == KILN_ISA_V4;
    kiln_sb_printf(why, "%s%s %.*s cannot compile for %s (%s); kernels are compiled for %s",
                   why->len ? "; " : "", t->family, (int)strcspn(t->version, "."), t->version,
                   kiln_isa_name(best), known ? "versions before 20 break down there" : printed,
                   kiln_isa_name(t->isa));
}

/* An older compiler may not know the best level.  What it says of lower ones is the same again, and not kept. */
static kiln_status try_command(const kiln_tools_request *rq, kiln_tools *t, int64_t deadline, kiln_sb *why) {
    kiln_isa best = kiln_isa_detect();
    kiln_sb first, again;
    bool hangs = false;
    kiln_status st = KILN_OK;
    kiln_sb_init(&first);
    kiln_sb_init(&again);
    for (int isa = best; isa >= 0 && st == KILN_OK && t->route == KILN_CC_NONE && !hangs; isa--) {
        t->isa = (kiln_isa)isa;
        if (kiln_isa_runs(t->isa)) st = try_level(rq, t, deadline, &hangs, t->isa == best ? &first : &again);
    }
    if (t->route != KILN_CC_NONE && t->isa != best)
        say_lower_level(why, t, best, first.p ? first.p : "");
    else if (first.len)
        kiln_sb_printf(why, "%s%s", why->len ? "; " : "", first.p);
    kiln_sb_fini(&first);
    kiln_sb_fini(&again);
    return st;
}

/* -- finding ----------------------------------------------------------------------------------------- */

/* The words of the given command.  A path with blanks in it is one word if it is a program. */
static kiln_status given_command(const kiln_tools_request *rq, kiln_tools *t, kiln_sb *why) {
    char **words = kiln_tools_split(&t->mem, is_program(rq->command) ? "program" : rq->command);
    if (!words) return KILN_NOMEM();
    const char *name = is_program(rq->command) ? rq->command : words[0];
    char *program = name ? find_program(&t->mem, rq->path, name) : NULL;
    if (program) {
        words[0] = program;
        t->driver = words;
    } else {
        kiln_sb_printf(why, "%s: no such program", name ? name : "the empty command");
    }
    return KILN_OK;
}

static const char *const usual_names[] = {"gcc", "cc", "clang"};
enum { USUAL_NAMES = sizeof usual_names / sizeof *usual_names };

static kiln_status find_any(const kiln_tools_request *rq, kiln_tools *t, int64_t deadline, kiln_sb *why) {
    if (rq->command) {
        KILN_TRY(given_command(rq, t, why));
        return t->driver ? try_command(rq, t, deadline, why) : KILN_OK;
    }
    for (size_t i = 0; i < USUAL_NAMES && t->route == KILN_CC_NONE; i++) {
        t->driver = kiln_arena_alloc(&t->mem, 2 * sizeof *t->driver);
        if (!t->driver) return KILN_NOMEM();
        t->driver[0] = find_program(&t->mem, rq->path, usual_names[i]);
        if (t->driver[0]) KILN_TRY(try_command(rq, t, deadline, why));
    }
    if (t->route == KILN_CC_NONE && !why->len) kiln_sb_puts(why, "no gcc, cc or clang in PATH");
    return KILN_OK;
}

bool kiln_tools_in_path(const kiln_tools_request *rq) {
    kiln_arena mem;
    bool found = false;
    kiln_arena_init(&mem);
    if (rq->command) {
        char **words = kiln_tools_split(&mem, rq->command);
        found = is_program(rq->command) || (words && words[0] && find_program(&mem, rq->path, words[0]));
    }
    for (size_t i = 0; i < USUAL_NAMES && !rq->command && !found; i++)
        found = find_program(&mem, rq->path, usual_names[i]) != NULL;
    kiln_arena_free(&mem);
    return found;
}

static kiln_status describe(kiln_tools *t, kiln_sb *why) {
    kiln_sb id;
    kiln_sb_init(&id);
    if (t->route == KILN_CC_NONE) {
        kiln_sb_puts(&id, "none");
        t->can_link = false;
    } else {
        kiln_sb_printf(&id, "%s%s%s (%s)", t->family, t->version[0] ? "-" : "", t->version,
                       t->route == KILN_CC_DIRECT ? "cc1 | as" : "driver");
        if (t->isa != kiln_isa_detect()) kiln_sb_printf(&id, " for %s", kiln_isa_name(t->isa));
        for (char **w = t->driver + 1; *w; w++) kiln_sb_printf(&id, " %s", *w);
    }
    t->id = id.failed ? NULL : kiln_arena_strndup(&t->mem, id.p, id.len);
    t->why = why->failed ? NULL : kiln_arena_strndup(&t->mem, why->p ? why->p : "", why->len);
    kiln_sb_fini(&id);
    return t->id && t->why ? KILN_OK : KILN_NOMEM();
}

kiln_status kiln_tools_find(const kiln_tools_request *rq, int64_t deadline_ns, kiln_tools **out) {
    kiln_sb why;
    kiln_tools *t = kiln_calloc(1, sizeof *t);
    if (!t) return KILN_NOMEM();
    kiln_sb_init(&why);
    kiln_arena_init(&t->mem);
    t->route = KILN_CC_NONE;
    kiln_status st = find_any(rq, t, deadline_ns, &why);
    if (st == KILN_OK) st = describe(t, &why);
    kiln_sb_fini(&why);
    if (st != KILN_OK) {
        kiln_tools_free(t);
        return st;
    }
    *out = t;
    return KILN_OK;
}

void kiln_tools_free(kiln_tools *t) {
    if (!t) return;
    kiln_arena_free(&t->mem);
    kiln_free(t);
}
