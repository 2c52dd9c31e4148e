/* cmd_bench.c - `kiln bench`: runs the benchmarks that its operands name.
 *
 * benches.def lists them; each is a function of its own file that prints a table, or JSON lines with --json. */
#include "bench.h"

#include <string.h>

enum { /* a benchmark that is listed twice does not compile */
#define BENCH(name, summary) BENCH_##name,
#include "benches.def"
#undef BENCH
       BENCH_COUNT
};

static const struct bench {
    const char *name;
    int (*run)(const cli_args *args); /* returns an exit code */
} benches[BENCH_COUNT] = {
#define BENCH(name, summary) {#name, bench_##name},
#include "benches.def"
#undef BENCH
};

const char cli_bench_details[] =
    "NAME is one of:\n"
#define BENCH(name, summary) "    " #name ": " summary "\n"
#include "benches.def"
#undef BENCH
    "Figures depend on the machine and what else runs on it: compare within one run.\n";

static const struct bench *find(const char *name) {
    for (int i = 0; i < BENCH_COUNT; i++)
        if (strcmp(benches[i].name, name) == 0) return &benches[i];
    return NULL;
}

int cmd_bench(const cli_args *args) {
    if (args->noperands == 0) return cli_usage_error(CLI_CMD_BENCH, "expected the name of a benchmark");
    for (int i = 0; i < args->noperands; i++)
        if (!find(args->operands[i]))
            return cli_usage_error(CLI_CMD_BENCH, "no benchmark '%s'; there are"
#define BENCH(name, summary) " " #name
#include "benches.def"
#undef BENCH
                                   ,
                                   args->operands[i]);
    int status = CLI_OK;
    cli_args alone = *args; /* more threads would measure the machine's other work, unless asked for */
    if (!alone.threads) alone.threads = 1;
    for (int i = 0; i < args->noperands && out_flush(); i++) {
        int st = find(args->operands[i])->run(&alone);
        if (st != CLI_OK) status = st;
    }
    return status;
}
