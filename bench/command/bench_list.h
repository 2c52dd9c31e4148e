/* bench_list.h - the benchmarks of `kiln bench` by their names.  The only header of bench/ that cli/ includes. */
#ifndef KILN_COMMAND_BENCH_LIST_H
#define KILN_COMMAND_BENCH_LIST_H
struct cli_args;

/* Runs one benchmark and prints its table, or JSON lines with --json.  Returns an exit code of the command. */
typedef int bench_run(const struct cli_args *args);

bench_run *bench_find(const char *name); /* NULL if there is no benchmark of that name */

extern const char bench_names[];   /* each name after a space */
extern const char bench_details[]; /* what `kiln help bench` says of every benchmark */
#endif
