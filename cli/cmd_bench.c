/* cmd_bench.c - `kiln bench`: runs the benchmarks that its operands name, in one thread unless --threads says more.
 *
 * Knows no benchmark: bench/command/ has them, by name. */
#include "bench/command/bench_list.h"
#include "cli.h"

int cmd_bench(const cli_args *args) {
    if (args->noperands == 0) return cli_usage_error(CLI_CMD_BENCH, "expected the name of a benchmark");
    for (int i = 0; i < args->noperands; i++)
        if (!bench_find(args->operands[i]))
            return cli_usage_error(CLI_CMD_BENCH, "no benchmark '%s'; there are%s", args->operands[i],
                                   bench_names);
    int status = CLI_OK;
    cli_args alone = *args; /* more threads would measure the machine's other work, unless asked for */
    if (!alone.threads) alone.threads = 1;
    alone.cache = "memory"; /* the same work at every run */
    for (int i = 0; i < args->noperands && out_flush(); i++) {
        int st = bench_find(args->operands[i])(&alone);
        if (st != CLI_OK) status = st;
    }
    return status;
}
