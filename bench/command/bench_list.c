/* bench_list.c - benches.def -> the benchmarks by name, and the texts that list them.
 *
 * Each benchmark is a function of its own file.  Which of them run, and how often, is decided in cli/cmd_bench.c. */
#include "bench_list.h"

#include <stddef.h>
#include <string.h>

#include "bench.h"

enum { /* a benchmark that is listed twice does not compile */
#define BENCH(name, summary) BENCH_##name,
#include "benches.def"
#undef BENCH
       BENCH_COUNT
};

static const struct bench {
    const char *name;
    bench_run *run;
} benches[BENCH_COUNT] = {
#define BENCH(name, summary) {#name, bench_##name},
#include "benches.def"
#undef BENCH
};

const char bench_names[] =
#define BENCH(name, summary) " " #name
#include "benches.def"
#undef BENCH
    ;

const char bench_details[] =
    "NAME is one of:\n"
#define BENCH(name, summary) "    " #name ": " summary "\n"
#include "benches.def"
#undef BENCH
    "Figures depend on the machine and what else runs on it: compare within one run.\n";

bench_run *bench_find(const char *name) {
    for (int i = 0; i < BENCH_COUNT; i++)
        if (strcmp(benches[i].name, name) == 0) return benches[i].run;
    return NULL;
}
