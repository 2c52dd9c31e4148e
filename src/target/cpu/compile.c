/* compile.c - source text -> object or assembly text, with tools already found.
 *
 * Source, messages and object travel through unnamed files, so that nothing is left on disk but the
 * log of a failure. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "target/cpu/elf_load.h"
#include "target/cpu/proc.h"
#include "target/cpu/tools.h"

enum { ARGS_MAX = 600, OUTPUT_MAX = 64 << 20, LOG_MAX = 64 << 10, QUOTE_MAX = 300, LINES_MAX = 1500 };
#define RESULT_PATH "/proc/self/fd/3"

/* One compile under way; everything in it is released by end_run. */
typedef struct run {
    const kiln_compile_job *job;
    int source, messages, result;
    char *object_path; /* with named output; else NULL */
    char march[40];
    char *args[2][ARGS_MAX];
    kiln_proc procs[2];
    int nprocs;
} run;

static void add(char **args, const char *word) {
    int n = 0;
    while (args[n]) n++;
    if (n < ARGS_MAX - 1) args[n] = (char *)(uintptr_t)word; /* execve's argv is not const; it is only read */
}

static void add_all(char **args, char *const *words) {
    for (; words && *words; words++) add(args, *words);
}

/* -- command lines ------------------------------------------------------------------------------ */

static const char *output_name(const run *r) { return r->object_path ? r->object_path : RESULT_PATH; }

static void plan_direct(run *r) {
    const kiln_tools *t = r->job->tools;
    add_all(r->args[0], t->cc1);
    /* For processors without SSE 4 gcc 12 breaks down on some kernels that it optimises further. */
    add(r->args[0], r->march[0] ? r->march : "-fno-expensive-optimizations");
    add(r->args[0], "-o");
    add(r->args[0], "-");
    r->nprocs = 1;
    r->procs[0] = (kiln_proc){
        .argv = r->args[0], .in = r->source, .out = r->result, .err = r->messages, .result = -1};
    if (r->job->to_asm) return;
    add_all(r->args[1], t->as);
    if (r->march[0] && t->as_takes_march) add(r->args[1], r->march);
    add(r->args[1], "-o");
    add(r->args[1], output_name(r));
    r->nprocs = 2;
    r->procs[0].out = KILN_PROC_PIPE;
    r->procs[1] = (kiln_proc){
        .argv = r->args[1], .out = KILN_PROC_NULL, .err = r->messages, .result = r->result};
}

static void plan_driver(run *r) {
    const kiln_tools *t = r->job->tools;
    char **args = r->args[0];
    add_all(args, t->driver);
    add_all(args, t->flags);
    if (r->march[0]) add(args, r->march);
    add(args, r->job->to_asm ? "-S" : "-c");
    add(args, "-x");
    add(args, "c");
    add(args, "-");
    add(args, "-o");
    add(args, r->job->to_asm ? "-" : output_name(r));
    int out = r->job->to_asm ? r->result : KILN_PROC_NULL;
    int result = r->job->to_asm ? KILN_PROC_NULL : r->result;
    r->nprocs = 1;
    r->procs[0] = (kiln_proc){
        .argv = args, .in = r->source, .out = out, .err = r->messages, .result = result};
}

/* -- failures ------------------------------------------------------------------------------------ */

/* The first line that speaks of an error, else the first that is not empty. */
static const char *telling_line(const char *text) {
    const char *first = NULL;
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t n = strcspn(line, "\n");
        if (n && !first) first = line;
        if (memmem(line, n, "error", 5)) return line;
    }
    return first;
}

kiln_status kiln_tools_quote(kiln_status st, const char *text) {
    const char *line = text ? telling_line(text) : NULL;
    if (st == KILN_OK || !line) return st;
    char before[LINES_MAX];
    snprintf(before, sizeof before, "%s", kiln_last_error());
    size_t n = strcspn(line, "\n");
    return KILN_FAIL(st, "%s: %.*s", before, (int)(n < QUOTE_MAX ? n : QUOTE_MAX), line);
}

static bool write_log(const run *r, const char *path, const char *text) {
    kiln_sb log;
    kiln_sb_init(&log);
    for (int i = 0; i < r->nprocs; i++) {
        kiln_sb_puts(&log, i ? "| " : "$ ");
        for (char *const *a = r->args[i]; *a; a++) kiln_sb_printf(&log, "%s%c", *a, a[1] ? ' ' : '\n');
    }
    kiln_sb_printf(&log, "%s\n%s", kiln_last_error(), text);
    bool ok = !log.failed && kiln_fsize_allows(log.len) &&
              kiln_file_write_atomic(path, log.p, log.len) == KILN_OK;
    kiln_sb_fini(&log);
    return ok;
}

/* The current error, and where the compiler's output is: in a log named by the source, so that a
 * source that fails again replaces its log, else in the message itself. */
static kiln_status explain(const run *r) {
    char what[LINES_MAX], path[1024], *text = NULL;
    size_t n = 0;
    snprintf(what, sizeof what, "%s", kiln_last_error());
    if (kiln_scratch_read(r->messages, LOG_MAX, &text, &n) != KILN_OK) {
        kiln_free(text);
        return KILN_FAIL(KILN_E_BUILD, "%s", what);
    }
    if (!r->job->keep_log) {
        kiln_status st = kiln_tools_quote(KILN_FAIL(KILN_E_BUILD, "%s", what), text);
        kiln_free(text);
        return st;
    }
    snprintf(path, sizeof path, "%s/build-%016llx.log", r->job->rq->dir,
             (unsigned long long)kiln_hash64(r->job->src, r->job->n));
    kiln_status st;
    if (write_log(r, path, text)) {
        st = kiln_tools_quote(KILN_FAIL(KILN_E_BUILD, "%s (output in %s)", what, path), text);
    } else {
        st = KILN_FAIL(KILN_E_BUILD, "%s%s%.*s", what, n ? ": " : "", LINES_MAX, text);
    }
    kiln_free(text);
    return st;
}

/* -- results --------------------------------------------------------------------------------------- */

static kiln_status fetch(run *r, kiln_object *out) {
    int fd = r->result;
    kiln_object o = {0};
    if (r->object_path && !r->job->to_asm) fd = open(r->object_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return KILN_FAIL(KILN_E_BUILD, "cannot open %s: %s", r->object_path, strerror(errno));
    kiln_status st = kiln_scratch_read(fd, OUTPUT_MAX, (char **)&o.bytes, &o.n);
    if (fd != r->result) close(fd);
    KILN_TRY(st);
    const char *name = r->job->tools->driver[0];
    for (int i = 0; i < r->nprocs; i++) o.cpu_ns += r->procs[i].cpu_ns;
    if (o.n == 0)
        st = KILN_FAIL(KILN_E_BUILD, "%s succeeded but wrote nothing", name);
    else if (!r->job->to_asm && (o.n < 4 || memcmp(o.bytes, "\177ELF", 4) != 0))
        st = KILN_FAIL(KILN_E_BUILD, "%s wrote %zu bytes that are no ELF object", name, o.n);
    if (st == KILN_OK)
        *out = o;
    else
        kiln_object_fini(&o);
    return st;
}

/* -- running --------------------------------------------------------------------------------------- */

static kiln_status begin_run(run *r) {
    const char *dir = r->job->rq->dir, *march = kiln_isa_march(r->job->isa);
    if (march[0]) snprintf(r->march, sizeof r->march, "-march=%s", march);
    r->source = kiln_scratch_new(dir);
    r->messages = kiln_scratch_new(dir);
    r->result = kiln_scratch_new(dir);
    if (r->source < 0 || r->messages < 0 || r->result < 0)
        return KILN_FAIL(KILN_E_BUILD, "cannot make a scratch file: %s", strerror(errno));
    if (r->job->tools->named_output && !r->job->to_asm) {
        size_t n = strlen(dir) + 32;
        r->object_path = kiln_alloc(n);
        if (!r->object_path) return KILN_NOMEM();
        snprintf(r->object_path, n, "%s/kiln-XXXXXX.o", dir);
        int fd = mkostemps(r->object_path, 2, O_CLOEXEC);
        if (fd < 0) return KILN_FAIL(KILN_E_BUILD, "cannot make a file in %s: %s", dir, strerror(errno));
        close(fd);
    }
    return kiln_scratch_fill(r->source, r->job->src, r->job->n);
}

static void end_run(run *r) {
    const int fds[] = {r->source, r->messages, r->result};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0) close(fds[i]);
    if (r->object_path) unlink(r->object_path);
    kiln_free(r->object_path);
    kiln_free(r);
}

static kiln_status execute(run *r, kiln_object *out) {
    KILN_TRY(begin_run(r));
    if (r->job->tools->route == KILN_CC_DIRECT)
        plan_direct(r);
    else
        plan_driver(r);
    kiln_status st = kiln_proc_run(r->procs, r->nprocs, r->job->rq->env, r->job->deadline_ns,
                                   &r->job->rq->halt);
    if (st == KILN_OK) st = fetch(r, out);
    return st == KILN_E_BUILD ? explain(r) : st;
}

kiln_status kiln_compile(const kiln_compile_job *job, kiln_object *out) {
    run *r = kiln_calloc(1, sizeof *r);
    if (!r) return KILN_NOMEM();
    r->job = job;
    r->source = r->messages = r->result = -1;
    kiln_status st = execute(r, out);
    end_run(r);
    return st;
}

kiln_status kiln_tools_ask(const kiln_tools_request *rq, char *const *argv, int64_t deadline_ns, char **out) {
    int fd = kiln_scratch_new(rq->dir);
    if (fd < 0) return KILN_FAIL(KILN_E_BUILD, "cannot make a scratch file: %s", strerror(errno));
    size_t n;
    kiln_proc p = {.argv = argv, .in = KILN_PROC_NULL, .out = fd, .err = fd, .result = KILN_PROC_NULL};
    kiln_status st = kiln_proc_run(&p, 1, rq->env, deadline_ns, &rq->halt);
    kiln_status got = kiln_scratch_read(fd, LOG_MAX, out, &n);
    close(fd);
    return got != KILN_OK ? got : st;
}
