/* tools.h - the inside of a toolchain: what was asked for, what was found, one compile.
 *
 * A request is fixed when the toolchain is opened; tools are found at the first use, checked by
 * compiling, loading and running a small kernel, and never change after. */
#ifndef KILN_BUILD_TOOLS_H
#define KILN_BUILD_TOOLS_H
#include <stdatomic.h>

#include "target/cpu/build.h"
#include "target/cpu/proc.h"

/* What tests take away, to reach the routes behind. */
enum { KILN_AVOID_DIRECT = 1, KILN_AVOID_DRIVER = 2, KILN_AVOID_FD_OUTPUT = 4, KILN_AVOID_LINK = 8 };

typedef struct kiln_tools_request {
    const char *command; /* the given compiler command, or NULL for the usual names */
    const char *path;    /* PATH at open */
    const char *dir;     /* scratch folder */
    char **env;          /* the children's environment: the host's at open, in the C locale */
    unsigned avoid;      /* KILN_AVOID_* */
    kiln_halt halt;
} kiln_tools_request;

typedef struct kiln_tools {
    kiln_arena mem; /* owns all that follows */
    kiln_cc_route route;
    bool can_link;     /* the driver exists and was not refused */
    bool named_output; /* objects go through a file in dir, not through descriptor 3 */
    bool as_takes_march;
    char **driver;       /* program and the user's arguments; NULL-terminated, as all of these */
    char **flags;        /* the driver's own */
    char **cc1;          /* program and flags; reads stdin, writes stdout; -march is added */
    char **as;           /* program and flags; -o is added */
    kiln_isa isa;        /* the best level that this machine runs and the compiler makes kernels for */
    const char *family;  /* "gcc", "clang" or the program's name */
    const char *version; /* "12.2.0" or "" */
    const char *id, *why;
} kiln_tools;

/* Finds tools; a result without a compiler (KILN_CC_NONE) is KILN_OK.  Fails only for want of memory or
 * when interrupted. */
kiln_status kiln_tools_find(const kiln_tools_request *rq, int64_t deadline_ns,
                            kiln_tools **out) KILN_MUST_CHECK;
/* Whether there is a program that kiln_tools_find would try: the configured command, or gcc, cc or clang in PATH.  Starts no process.
 * False also if memory runs out. */
bool kiln_tools_in_path(const kiln_tools_request *rq);
void kiln_tools_free(kiln_tools *t);

/* Splits text into words; blanks, quotes and backslashes as in a shell.  Words past the 500th
 * are left off.  NULL for want of memory. */
char **kiln_tools_split(kiln_arena *mem, const char *text);

typedef struct kiln_compile_job {
    const kiln_tools_request *rq;
    const kiln_tools *tools;
    kiln_isa isa;
    const char *src;
    size_t n;
    bool to_asm; /* assembly text instead of an object */
    bool keep_log;
    int64_t deadline_ns;
} kiln_compile_job;

kiln_status kiln_compile(const kiln_compile_job *job, kiln_object *out) KILN_MUST_CHECK;

/* Runs one command without input; *out: the text it wrote, on failure too unless NULL. */
kiln_status kiln_tools_ask(const kiln_tools_request *rq, char *const *argv, int64_t deadline_ns,
                           char **out) KILN_MUST_CHECK;
/* Puts the line of `text` that tells most, if any, after the current error. */
kiln_status kiln_tools_quote(kiln_status st, const char *text);

/* kiln_code_load for tools that are still on trial. */
kiln_status kiln_code_load_with(const kiln_tools_request *rq, const kiln_tools *t, int64_t deadline_ns,
                                const kiln_object *o, const char *symbol, kiln_code **out) KILN_MUST_CHECK;

/* Of an opened toolchain: its request, and its tools (found now if need be). */
const kiln_tools_request *kiln_toolchain_request(const kiln_toolchain *tc);
kiln_status kiln_toolchain_tools(const kiln_toolchain *tc, int64_t deadline_ns,
                                 const kiln_tools **out) KILN_MUST_CHECK;
/* Tests only, before the first use. */
void kiln_toolchain_avoid(kiln_toolchain *tc, unsigned avoid);
#endif
