/* bench.h - what the benchmarks of `kiln bench` share: their list, the clock, and calls that are ready to be timed.
 *
 * A bench_case is a line of bench/kernels.txt at one size: the call with its tensors made and filled.  Python's
 * side of bench/peers.py uses the same functions on the same memory. */
#ifndef KILN_COMMAND_BENCH_H
#define KILN_COMMAND_BENCH_H
#include "cli/calltext.h"
#include "cli/cli.h"

#define BENCH(name, summary) int bench_##name(const cli_args *args);
#include "benches.def"
#undef BENCH

double bench_now_ns(void);

/* -- goals (bench_goal.c) ------------------------------------------------------------------------------ */

typedef enum bench_bound { BENCH_AT_MOST, BENCH_AT_LEAST } bench_bound;

/* Prints the figure beside its goal; whether it is met.  What is not a number is not met. */
bool bench_goal(const cli_args *args, const char *bench, const char *what, double value, bench_bound bound,
                double goal, const char *unit);
/* The value below which that part of all lies; sorts them.  NaN if there are none. */
double bench_quantile(double *values, size_t n, double part);

/* -- cases (bench_case.c) ------------------------------------------------------------------------------ */

enum { BENCH_NAME_MAX = 32, BENCH_CALL_MAX = 256 };

typedef struct bench_line {
    char name[BENCH_NAME_MAX];
    bool memory_bound;
    double low, high; /* of the inputs */
    char call[BENCH_CALL_MAX];
} bench_line;

/* Reads the line at *text and moves past it and what is skipped; false at the end.  A line that is no case
 * is an error: line->name is then empty. */
KILN_API bool bench_line_next(const char **text, bench_line *line);

typedef struct bench_case {
    kiln_ctx *ctx; /* borrowed */
    const kiln_op *op;
    calltext call;
    int64_t nelem;   /* of the result */
    uint64_t nbytes; /* read and written by one call: each tensor once */
} bench_case;

/* The case of `line` where tensors of N elements take nbytes.  NULL with text in err (CALLTEXT_ERROR_MAX). */
KILN_API bench_case *bench_case_new(kiln_ctx *ctx, const bench_line *line, int64_t nbytes, char *err);
KILN_API void bench_case_free(bench_case *c);
/* The tensor that is the call's argument of that number, borrowed; NULL if it is none. */
KILN_API kiln_tensor *bench_case_tensor(const bench_case *c, size_t argument);
/* Runs the call `count` times; nanoseconds per call, or below 0 after a failure. */
KILN_API double bench_case_ns(const bench_case *c, int64_t count);

/* Copies nbytes (a multiple of 64, both 64-byte aligned) `count` times in each of the ways there are;
 * nanoseconds per copy in the best. */
KILN_API double bench_copy_ns(void *to, const void *from, size_t nbytes, int64_t count);
/* The same of reading alone; to: 16 bytes, which what was read goes into. */
KILN_API double bench_read_ns(void *to, const void *from, size_t nbytes, int64_t count);

/* Nanoseconds of reading nbytes (64-byte aligned) once in 1, 2, 4 or 8 streams, by so many threads that share them;
 * below 0 if they could not be started. (bench_streams.c) */
double bench_streams_ns(const void *from, size_t nbytes, int streams, int threads);

/* Calls that make a sample long enough for the clock, from how long one takes. */
KILN_API int64_t bench_sample_calls(double ns_per_call);
#endif
