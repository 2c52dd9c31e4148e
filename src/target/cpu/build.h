/* build.h - C source text -> machine code in memory.
 *
 * The only code of the library that starts processes or maps executable pages.  A toolchain is found
 * once; kiln_build turns source into an object, kiln_code_load maps and relocates it.  Knows nothing
 * of operators, IR or keys: it is given text, an ISA level and a symbol. */
#ifndef KILN_BUILD_H
#define KILN_BUILD_H
#include "base/base.h"
#include "base/isa.h"
#include "target/code.h"

typedef enum kiln_cc_route {
    KILN_CC_DIRECT, /* cc1 piped into as */
    KILN_CC_DRIVER, /* the driver: gcc or clang -c */
    KILN_CC_NONE
} kiln_cc_route;

typedef struct kiln_toolchain kiln_toolchain;

/* Finds a working compiler: cc if not NULL, else $KILN_CC, else gcc, cc, clang in PATH.  Direct use of
 * cc1 and as is tried first (paths and flags from `cc -###`), then the driver.  A toolchain without any
 * compiler is valid: kiln_build then fails with KILN_E_BUILD.  Environment and PATH are read here, but no
 * process is started: the compiler is found and tried (about 30 ms) by the first kiln_build or the first of
 * the three questions below, in whichever thread that is.
 * dir: existing scratch folder for objects and logs. */
kiln_status kiln_toolchain_open(const char *cc, const char *dir, kiln_toolchain **out) KILN_MUST_CHECK;
void kiln_toolchain_close(kiln_toolchain *tc);
kiln_status kiln_toolchain_find(const kiln_toolchain *tc) KILN_MUST_CHECK; /* now, if not before */
/* Whether the compiler is known to work, or, before it was tried, is a program that can be found.  Starts no process. */
bool kiln_toolchain_in_sight(const kiln_toolchain *tc);
kiln_cc_route kiln_toolchain_route(const kiln_toolchain *tc);
const char *kiln_toolchain_id(const kiln_toolchain *tc); /* "gcc-12.2.0 (cc1 | as)"; for keys and doctor */
/* The best level up to `most` that the compiler makes kernels for; `most` itself where there is none.  Looks for the
 * compiler if need be, which may be interrupted. */
kiln_status kiln_toolchain_isa(const kiln_toolchain *tc, kiln_isa most, kiln_isa *out) KILN_MUST_CHECK;
const char *kiln_toolchain_why(const kiln_toolchain *tc); /* why no better route was taken, or "" */

/* Longest wait of a kiln_build from now on, 30,000 unless set.  Any thread. */
void kiln_toolchain_set_timeout_ms(kiln_toolchain *tc, int ms);
/* When a kiln_build begun now gives up, on kiln_clock_ns. */
int64_t kiln_toolchain_deadline(const kiln_toolchain *tc);

/* By how much compilers that this thread starts from now on are nicer than it is, as nice(2) counts; 0 at first. */
void kiln_build_nice(int by);

/* Before the first use: what a thread that waits asks.  It then ends with KILN_E_INTERRUPTED, its compilers killed. */
void kiln_toolchain_set_interrupted(kiln_toolchain *tc, kiln_interrupted_fn interrupted, void *user);
/* Kills the compilers that run; builds end with KILN_E_BUILD from now on.  Any thread. */
void kiln_toolchain_stop(kiln_toolchain *tc);

/* Compiles src for isa.  No call of this waits longer than 30 s: the compiler's process group is
 * killed then.  KILN_E_BUILD names the log file that holds the compiler's output. */
kiln_status kiln_build(kiln_toolchain *tc, kiln_isa isa, const char *src, size_t n,
                       kiln_object *out) KILN_MUST_CHECK;
/* Like kiln_build, for a unit of several kernels.  A failure writes no log, because the caller then builds each kernel by itself, and
 * kiln_build writes a log for a kernel that fails. */
kiln_status kiln_build_unit(kiln_toolchain *tc, kiln_isa isa, const char *src, size_t n,
                            kiln_object *out) KILN_MUST_CHECK;
/* The assembly text instead of an object; freed with kiln_free. */
kiln_status kiln_build_asm(kiln_toolchain *tc, kiln_isa isa, const char *src, size_t n,
                           char **out) KILN_MUST_CHECK;

/* Maps o's code and constants, relocates them and finds `symbol`.  No mapping is both writable and executable.  If Kiln's loader refuses
 * a well-formed object, the system's loader gets the object by dlopen, provided that tc can link (tc may be NULL: it cannot). */
kiln_status kiln_code_load(kiln_toolchain *tc, const kiln_object *o, const char *symbol,
                           kiln_code **out) KILN_MUST_CHECK;
kiln_status kiln_code_load_dlopen(kiln_toolchain *tc, const kiln_object *o, const char *symbol,
                                  kiln_code **out) KILN_MUST_CHECK;
/* The kernel of an image that kiln_image_make made (image.h). */
kiln_status kiln_code_load_image(const kiln_object *image, kiln_code **out) KILN_MUST_CHECK;
/* The same for n kernels of one object, 1 to KILN_CODE_MAX, by our own loader alone: out[k] is symbols[k].  They share the
 * object's memory, which goes when the last of them is freed.  All or nothing. */
enum { KILN_CODE_MAX = 16 };
kiln_status kiln_code_load_unit(const kiln_object *o, const char *const *symbols, int n,
                                kiln_code **out) KILN_MUST_CHECK;
#endif
