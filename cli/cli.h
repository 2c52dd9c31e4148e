/* cli.h - what the files of the `kiln` command share: commands, options, output, errors.
 *
 * The command knows Kiln through include/kiln only.  Data goes to standard output through out_*, everything
 * else to standard error through cli_error. */
#ifndef KILN_CLI_H
#define KILN_CLI_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "kiln/kiln.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_MAX_OPS_FILES = 32 }; /* the first three: exit codes */

/* -- options (cli_options.c) --------------------------------------------------------------------- */

typedef struct cli_args {
    bool json;
    bool dot, svg, verbose, kwargs_only; /* of graph */
    bool coverage;                       /* of ops */
    bool source, yes, slim;              /* of cache */
    uint64_t size;                       /* of cache prune; 0: as the environment says */
    bool all;                            /* of ops: list every operator; of explain: every stage but asm */
    const char *stage;                   /* NULL: the default one */
    const char *isa;                     /* NULL: the best */
    kiln_mode mode;
    int jobs;          /* of warm: compilers at once; 0: as many as there are cores */
    const char *cache; /* where kernels are kept, as in kiln_config; no option sets it */
    int threads;       /* that one call may use; 0: as the environment says */
    const char *ops_files[CLI_MAX_OPS_FILES];
    int nops_files;
    char **operands;
    int noperands;
} cli_args;

typedef struct cli_command {
    const char *name, *operands, *summary, *details;
    int (*run)(const cli_args *args); /* returns an exit code */
} cli_command;

enum {
#define CMD(NAME, name, operands, summary, details) CLI_CMD_##NAME,
#include "commands.def"
#undef CMD
    CLI_COMMAND_COUNT
};
extern const cli_command cli_commands[CLI_COMMAND_COUNT];

#define CMD(NAME, name, operands, summary, details) int cmd_##name(const cli_args *args);
#include "commands.def"
#undef CMD

/* Reads a command's arguments (argv[0] is its name).  Returns -1 to run it, else the exit code: --help and
 * --version have then been answered, or a usage error told. */
int cli_options_parse(int command, int argc, char **argv, cli_args *out);
void cli_print_usage(void);       /* all commands, as data */
void cli_print_help(int command); /* what the command does, and its options */
/* Tells a usage error, with where to find help; command -1: the program itself.  Returns CLI_USAGE. */
int cli_usage_error(int command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The candidate most like word, or NULL if none is near. */
const char *cli_nearest(const char *word, const char *const *candidates, size_t n);

/* -- output (cli_output.c) ----------------------------------------------------------------------- */

void out_write(const char *data, size_t n);
void out_text(const char *text);
void out_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool out_flush(void); /* false once writing has failed: stop then */
int out_finish(
    int status); /* flushes; the exit code: a reader that went away is not a failure, a full disk is */

/* Escape codes where colour is wanted (a terminal, no NO_COLOR), else "". */
typedef enum cli_colour { COLOUR_OFF, COLOUR_GOOD, COLOUR_BAD, COLOUR_WARN, COLOUR_HEAD } cli_colour;
const char *out_colour(cli_colour c); /* on standard output */

/* "kiln: error: text" on standard error, control characters made visible. */
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void cli_kiln_error(kiln_status st); /* the last library failure */

void out_json(json_t *value);            /* one line; releases value; tells of a NULL (out of memory) */
json_t *cli_json_text(const char *text); /* any bytes: what is not UTF-8 becomes '?' */

/* How many of PyTorch's overloads are served, by their tags. (coverage.c) */
void cli_coverage(kiln_ctx *ctx, bool json);

/* -- contexts (cli_context.c) -------------------------------------------------------------------- */

/* Opens a context as the options say and loads their --ops files; NULL after an error was told. */
kiln_ctx *cli_open(const cli_args *args);
/* The same, compiling on the first call where nothing says otherwise: one call is all the command makes. */
kiln_ctx *cli_open_sync(const cli_args *args);
/* Closes it; where KILN_STATS is 1, first writes to standard error what its calls and builds came to. */
void cli_close(kiln_ctx *ctx);
/* The whole of a file, or of standard input for "-", to be freed; NULL after an error was told. */
char *cli_read(const char *path, size_t *n);
/* Loads the rows in path; false after an error was told. */
bool cli_load_ops(kiln_ctx *ctx, const char *path);

/* -- results (tensor_print.c) -------------------------------------------------------------------- */

void out_tensor_json(const kiln_tensor *t); /* an object, no newline */
void out_tensor_text(const kiln_tensor *t); /* a header line and the elements, summarised when many */
#endif
