/* main.c - the `kiln` command: picks the command that argv names and runs it.
 *
 * Owns the process: standard streams and signals.  Must not know what a command does. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "bench/command/bench_list.h" /* the help of `kiln bench` */
#include "cli.h"

const cli_command cli_commands[CLI_COMMAND_COUNT] = {
#define CMD(NAME, name, operands, summary, details) {#name, operands, summary, details, cmd_##name},
#include "commands.def"
#undef CMD
};

static void on_broken_pipe(int number) { (void)number; }

/* A write to a reader that left must fail, not kill.  A handler, unlike SIG_IGN, is not inherited by the
 * compilers that the library starts. */
static void keep_running_on_broken_pipe(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_broken_pipe;
    action.sa_flags = SA_RESTART;
    sigaction(SIGPIPE, &action, NULL);
}

/* A closed standard stream must not be given to the next file that is opened.  Opened the wrong way round,
 * so that using it fails as it would have. */
static void fill_closed_streams(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;
    }
}

static int unknown_command(const char *word) {
    const char *names[CLI_COMMAND_COUNT];
    for (int i = 0; i < CLI_COMMAND_COUNT; i++) names[i] = cli_commands[i].name;
    const char *near = cli_nearest(word, names, CLI_COMMAND_COUNT);
    const char *what = word[0] == '-' ? "option" : "command";
    if (near) return cli_usage_error(-1, "unknown %s '%s'; did you mean '%s'?", what, word, near);
    return cli_usage_error(-1, "unknown %s '%s'", what, word);
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) return cli_print_usage(), CLI_OK;
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return cli_print_usage(), CLI_OK;
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        return out_printf("kiln %s\n", kiln_version()), CLI_OK;
    for (int i = 0; i < CLI_COMMAND_COUNT; i++) {
        cli_args args;
        if (strcmp(word, cli_commands[i].name) != 0) continue;
        int status = cli_options_parse(i, argc - 1, argv + 1, &args);
        return status >= 0 ? status : cli_commands[i].run(&args);
    }
    return unknown_command(word);
}

int main(int argc, char **argv) {
    fill_closed_streams();
    keep_running_on_broken_pipe();
    return out_finish(dispatch(argc, argv));
}
