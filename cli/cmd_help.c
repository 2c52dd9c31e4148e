/* cmd_help.c - `kiln help [COMMAND]` and `kiln version`, for those who write words where others write --help and --version.
 *
 * Texts come from commands.def and options.def.  Knows no command by name. */
#include <string.h>

#include "cli.h"

int cmd_help(const cli_args *args) {
    if (args->noperands == 0) return cli_print_usage(), CLI_OK;
    if (args->noperands > 1)
        return cli_usage_error(CLI_CMD_HELP, "expected one command, found %d", args->noperands);
    const char *names[CLI_COMMAND_COUNT], *word = args->operands[0];
    for (int i = 0; i < CLI_COMMAND_COUNT; i++) {
        names[i] = cli_commands[i].name;
        if (strcmp(word, names[i]) == 0) return cli_print_help(i), CLI_OK;
    }
    const char *near = cli_nearest(word, names, CLI_COMMAND_COUNT);
    if (near) return cli_usage_error(CLI_CMD_HELP, "unknown command '%s'; did you mean '%s'?", word, near);
    return cli_usage_error(CLI_CMD_HELP, "unknown command '%s'", word);
}

int cmd_version(const cli_args *args) {
    if (args->noperands)
        return cli_usage_error(CLI_CMD_VERSION, "unexpected operand '%s'", args->operands[0]);
    return out_printf("kiln %s\n", kiln_version()), CLI_OK;
}
