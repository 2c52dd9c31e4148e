/* toolchain.c - the toolchain handle: settings at open, tools at first use, compiles after.
 *
 * Opening starts no process.  The first thread that needs the tools finds them while others wait; the
 * marker of that is the process id, so that a child forked in the middle finds its own. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

#include "target/cpu/proc.h"
#include "target/cpu/tools.h"

enum { TIMEOUT_MS = 30000, ASK_NAPS = 20 };
#define NS_PER_MS INT64_C(1000000)

struct kiln_toolchain {
    kiln_arena mem; /* owns the request's text */
    kiln_tools_request rq;
    atomic_int timeout_ms;
    _Atomic(kiln_tools *) tools; /* NULL until found */
    atomic_int finder;           /* process whose thread is finding them, or 0 */
};

extern char **environ;

/* -- opening ----------------------------------------------------------------------------------------- */

static bool starts(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* What would change messages, make the compiler write files of its own, or load into the compiler what is meant for the
 * host: a sanitizer that is preloaded needs more address space than a compiler may have. */
static bool is_unwanted(const char *entry) {
    return starts(entry, "LD_PRELOAD=") || starts(entry, "LC_ALL=") || starts(entry, "LANGUAGE=") ||
           starts(entry, "DEPENDENCIES_OUTPUT=") || starts(entry, "SUNPRO_DEPENDENCIES=");
}

/* In a setuid program the environment is the caller's, who must not choose which compiler runs as the owner, nor what it reads. */
static bool is_setuid(void) { return getauxval(AT_SECURE) != 0; }

/* A copy, because the host may change its environment while a thread of ours compiles. */
static char **copy_environment(kiln_arena *mem) {
    size_t n = 0, kept = 0;
    while (environ && environ[n] && !is_setuid()) n++;
    char **env = kiln_arena_alloc(mem, (n + 2) * sizeof *env);
    if (!env) return NULL;
    for (size_t i = 0; i < n; i++) {
        if (is_unwanted(environ[i])) continue;
        env[kept] = kiln_arena_strndup(mem, environ[i], strlen(environ[i]));
        if (!env[kept++]) return NULL;
    }
    env[kept] = kiln_arena_strndup(mem, "LC_ALL=C", 8);
    return env[kept] ? env : NULL;
}

static char *copy_text(kiln_arena *mem, const char *text) {
    return kiln_arena_strndup(mem, text, strlen(text));
}

static bool fill_request(kiln_toolchain *tc, const char *cc, const char *dir) {
    const char *path = is_setuid() ? NULL : getenv("PATH");
    if (!cc) cc = secure_getenv("KILN_CC");
    if (cc && !*cc) cc = NULL;
    tc->rq.command = cc ? copy_text(&tc->mem, cc) : NULL;
    tc->rq.path = copy_text(&tc->mem, path ? path : "/usr/local/bin:/usr/bin:/bin");
    tc->rq.dir = copy_text(&tc->mem, dir ? dir : "/tmp");
    tc->rq.env = copy_environment(&tc->mem);
    return (tc->rq.command || !cc) && tc->rq.path && tc->rq.dir && tc->rq.env;
}

kiln_status kiln_toolchain_open(const char *cc, const char *dir, kiln_toolchain **out) {
    kiln_toolchain *tc = kiln_calloc(1, sizeof *tc);
    if (!tc) return KILN_NOMEM();
    kiln_arena_init(&tc->mem);
    atomic_init(&tc->timeout_ms, TIMEOUT_MS);
    atomic_init(&tc->tools, NULL);
    atomic_init(&tc->finder, 0);
    if (!fill_request(tc, cc, dir)) {
        kiln_toolchain_close(tc);
        return KILN_NOMEM();
    }
    *out = tc;
    return KILN_OK;
}

void kiln_toolchain_close(kiln_toolchain *tc) {
    if (!tc) return;
    kiln_tools_free(atomic_load(&tc->tools));
    kiln_arena_free(&tc->mem);
    kiln_free(tc);
}

void kiln_toolchain_set_timeout_ms(kiln_toolchain *tc, int ms) { atomic_store(&tc->timeout_ms, ms); }
void kiln_build_nice(int by) { kiln_proc_nice(by); }
void kiln_toolchain_stop(kiln_toolchain *tc) { atomic_store(&tc->rq.halt.stop, true); }
void kiln_toolchain_set_interrupted(kiln_toolchain *tc, kiln_interrupted_fn interrupted, void *user) {
    tc->rq.halt.interrupted = interrupted;
    tc->rq.halt.user = user;
}
void kiln_toolchain_avoid(kiln_toolchain *tc, unsigned avoid) { tc->rq.avoid = avoid; }
const kiln_tools_request *kiln_toolchain_request(const kiln_toolchain *tc) { return &tc->rq; }

int64_t kiln_toolchain_deadline(const kiln_toolchain *tc) {
    return kiln_clock_ns() + atomic_load(&tc->timeout_ms) * NS_PER_MS;
}

/* -- finding the tools once ------------------------------------------------------------------------ */

/* A route that was refused is no failure of the caller's: its message must not stay behind. */
static kiln_status find_unseen(kiln_toolchain *tc, int64_t deadline_ns) {
    char before[4096];
    snprintf(before, sizeof before, "%s", kiln_last_error());
    kiln_tools *t;
    int quiet = kiln_quiet(0); /* why a route was refused is kept for whoever asks later */
    kiln_status st = kiln_tools_find(&tc->rq, deadline_ns, &t);
    (void)kiln_quiet(quiet);
    KILN_TRY(st);
    kiln_set_error(__FILE__, __LINE__, KILN_OK, "%s", before);
    atomic_store(&tc->tools, t);
    return KILN_OK;
}

kiln_status kiln_toolchain_tools(const kiln_toolchain *handle, int64_t deadline_ns, const kiln_tools **out) {
    kiln_toolchain *tc = (kiln_toolchain *)(uintptr_t)handle; /* finding is invisible to the caller */
    int me = (int)getpid(), naps = 0;
    while (!(*out = atomic_load(&tc->tools))) {
        int other = atomic_load(&tc->finder);
        if (other != me && atomic_compare_exchange_strong(&tc->finder, &other, me)) {
            kiln_status st = atomic_load(&tc->tools) ? KILN_OK : find_unseen(tc, deadline_ns);
            atomic_store(&tc->finder, 0);
            KILN_TRY(st);
            continue;
        }
        if (kiln_clock_ns() >= deadline_ns)
            return KILN_FAIL(KILN_E_BUILD, "timed out while another thread looked for a compiler");
        if (++naps % ASK_NAPS == 0 && kiln_halt_asked(&tc->rq.halt))
            return KILN_FAIL(KILN_E_INTERRUPTED, "interrupted while another thread looked for a compiler");
        struct timespec nap = {0, (long)NS_PER_MS};
        (void)nanosleep(&nap, NULL);
    }
    return KILN_OK;
}

kiln_status kiln_toolchain_find(const kiln_toolchain *tc) {
    const kiln_tools *t;
    return kiln_toolchain_tools(tc, kiln_toolchain_deadline(tc), &t);
}

static const kiln_tools *found(const kiln_toolchain *tc) {
    const kiln_tools *t;
    return kiln_toolchain_tools(tc, kiln_toolchain_deadline(tc), &t) == KILN_OK ? t : NULL;
}

bool kiln_toolchain_in_sight(const kiln_toolchain *tc) {
    const kiln_tools *t = atomic_load(&tc->tools);
    return t ? t->route != KILN_CC_NONE : kiln_tools_in_path(&tc->rq);
}

kiln_cc_route kiln_toolchain_route(const kiln_toolchain *tc) {
    const kiln_tools *t = found(tc);
    return t ? t->route : KILN_CC_NONE;
}

const char *kiln_toolchain_id(const kiln_toolchain *tc) {
    const kiln_tools *t = found(tc);
    return t ? t->id : "unknown";
}

kiln_status kiln_toolchain_isa(const kiln_toolchain *tc, kiln_isa most, kiln_isa *out) {
    const kiln_tools *t;
    KILN_TRY(kiln_toolchain_tools(tc, kiln_toolchain_deadline(tc), &t));
    *out = t->route != KILN_CC_NONE && t->isa < most ? t->isa : most;
    return KILN_OK;
}

const char *kiln_toolchain_why(const kiln_toolchain *tc) {
    const kiln_tools *t = found(tc);
    return t ? t->why : "the search for a compiler was cut short";
}

/* -- building -------------------------------------------------------------------------------------- */

/* Builds the source that `job` names, with the compiler that was found. */
static kiln_status build(kiln_toolchain *tc, kiln_compile_job job, kiln_object *out) {
    job.rq = &tc->rq;
    job.deadline_ns = kiln_toolchain_deadline(tc);
    if ((unsigned)job.isa >= KILN_ISA_COUNT) return KILN_BUG("ISA level %d does not exist", (int)job.isa);
    KILN_TRY(kiln_toolchain_tools(tc, job.deadline_ns, &job.tools));
    if (job.tools->route == KILN_CC_NONE)
        return KILN_FAIL(KILN_E_BUILD, "no working compiler: %s", job.tools->why);
    return kiln_compile(&job, out);
}

kiln_status kiln_build(kiln_toolchain *tc, kiln_isa isa, const char *src, size_t n, kiln_object *out) {
    return build(tc, (kiln_compile_job){.isa = isa, .src = src, .n = n, .keep_log = true}, out);
}

kiln_status kiln_build_unit(kiln_toolchain *tc, kiln_isa isa, const char *src, size_t n, kiln_object *out) {
    return build(tc, (kiln_compile_job){.isa = isa, .src = src, .n = n}, out);
}

kiln_status kiln_build_asm(kiln_toolchain *tc, kiln_isa isa, const char *src, size_t n, char **out) {
    kiln_object text = {0};
    kiln_compile_job job = {.isa = isa, .src = src, .n = n, .to_asm = true, .keep_log = true};
    KILN_TRY(build(tc, job, &text));
    *out = text.bytes;
    return KILN_OK;
}
