/* cmd_cache.c - `kiln cache`: the kernels that are kept on disk, listed, checked and removed, and which of them a call would use.
 *
 * Picks the action; those that print entries are in cache_show.c.  Prune and clear touch the folder of kernels only, so logs and the bridge to
 * PyTorch stay. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cache_cli.h"
#include "calltext.h"

/* -- why ------------------------------------------------------------------------------------------------- */

/* The lines "key: value" of the library's answer as an object; cuts text up. */
static json_t *lines_json(char *text) {
    json_t *all = json_object();
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
        char *colon = strstr(line, ": ");
        if (!colon) continue;
        *colon = 0;
        json_object_set_new(all, line, cli_json_text(colon + 2));
    }
    return all;
}

static kiln_status print_why(kiln_ctx *ctx, const cli_args *args, const calltext *call) {
    const kiln_op *op;
    char *text;
    kiln_status st = kiln_op_choose(ctx, call->op, call->args, call->nargs, &op);
    if (st == KILN_OK) st = kiln_cache_why(ctx, op, call->args, call->nargs, &text);
    if (st != KILN_OK) return st;
    if (args->json)
        out_json(lines_json(text));
    else
        out_visible(text, true);
    kiln_text_free(text);
    return KILN_OK;
}

static int cache_why(kiln_ctx *ctx, const cli_args *args, const char *folder) {
    calltext_limits limits = {CALLTEXT_BYTES, false, true};
    const char *text = args->operands[1];
    char err[CALLTEXT_ERROR_MAX];
    calltext call;
    (void)folder;
    if (!calltext_parse(text, strlen(text), &limits, &call, err)) {
        cli_error("%s", err);
        return CLI_FAILED;
    }
    kiln_status st = print_why(ctx, args, &call);
    if (st != KILN_OK) cli_kiln_error(st);
    calltext_free(&call);
    return st == KILN_OK ? CLI_OK : CLI_FAILED;
}

/* -- prune and clear -------------------------------------------------------------------------------------- */

static int print_report(const cli_args *args, const char *folder, kiln_status st,
                        const kiln_cache_report *r) {
    char removed[32], left[32];
    if (st != KILN_OK) {
        cli_kiln_error(st);
        return CLI_FAILED;
    }
    if (args->json)
        out_json(cache_report_json(folder, r));
    else
        out_printf("removed %llu of %s; left %llu of %s\n", (unsigned long long)r->nremoved,
                   cache_bytes(r->removed_bytes, removed), (unsigned long long)r->nleft,
                   cache_bytes(r->left_bytes, left));
    return CLI_OK;
}

static int cache_prune(kiln_ctx *ctx, const cli_args *args, const char *folder) {
    kiln_cache_report report = {0};
    return print_report(args, folder, kiln_cache_prune(ctx, args->size, &report), &report);
}

/* Whether the user says yes; only asked on a terminal. */
static bool confirm(const char *folder) {
    char answer[16] = "";
    (void)out_flush();
    fprintf(stderr, "Remove every kernel in %s? [y/N] ", folder);
    fflush(stderr);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int cache_clear(kiln_ctx *ctx, const cli_args *args, const char *folder) {
    kiln_cache_report report = {0};
    if (!args->yes && !isatty(STDIN_FILENO))
        return cli_usage_error(CLI_CMD_CACHE, "'clear' removes every kernel in %s: confirm that with --yes",
                               folder);
    if (!args->yes && !confirm(folder)) {
        cli_error("nothing was removed");
        return CLI_FAILED;
    }
    return print_report(args, folder, kiln_cache_clear(ctx, &report), &report);
}

/* -- actions ---------------------------------------------------------------------------------------------- */

enum { ANY_NUMBER = 10000 };
static const struct action {
    const char *name;
    int noperands, most; /* with the name */
    const char *operand; /* that is expected, for messages */
    int (*run)(kiln_ctx *ctx, const cli_args *args, const char *folder);
} actions[] = {
    {"ls", 1, 1, NULL, cache_ls},
    {"show", 2, 2, "an id", cache_show},
    {"stats", 1, 1, NULL, cache_stats},
    {"why", 2, 2, "a call", cache_why},
    {"verify", 1, 1, NULL, cache_verify},
    {"prune", 1, 1, NULL, cache_prune},
    {"clear", 1, 1, NULL, cache_clear},
    {"export", 2, ANY_NUMBER, "the file to write", cache_export},
    {"import", 2, 2, "a pack", cache_import},
};
enum { NACTIONS = sizeof actions / sizeof *actions };

static int unknown_action(const char *word) {
    const char *names[NACTIONS];
    for (int k = 0; k < NACTIONS; k++) names[k] = actions[k].name;
    const char *near = cli_nearest(word, names, NACTIONS);
    if (near) return cli_usage_error(CLI_CMD_CACHE, "unknown action '%s'; did you mean '%s'?", word, near);
    return cli_usage_error(CLI_CMD_CACHE, "unknown action '%s'", word);
}

static int run_action(const struct action *a, const cli_args *args) {
    char *folder;
    kiln_ctx *ctx = cli_open(args);
    if (!ctx) return CLI_FAILED;
    int code = CLI_FAILED;
    kiln_status st = kiln_cache_folder(ctx, &folder);
    if (st == KILN_OK) {
        code = a->run(ctx, args, folder);
        kiln_text_free(folder);
    } else {
        cli_kiln_error(st);
    }
    cli_close(ctx);
    return code;
}

int cmd_cache(const cli_args *args) {
    int k = 0;
    if (!args->noperands) return cli_usage_error(CLI_CMD_CACHE, "expected what to do");
    while (k < NACTIONS && strcmp(actions[k].name, args->operands[0]) != 0) k++;
    if (k == NACTIONS) return unknown_action(args->operands[0]);
    if (args->noperands < actions[k].noperands)
        return cli_usage_error(CLI_CMD_CACHE, "expected %s after '%s'", actions[k].operand, actions[k].name);
    if (args->noperands > actions[k].most)
        return cli_usage_error(CLI_CMD_CACHE, "unexpected operand '%s'", args->operands[actions[k].most]);
    return run_action(&actions[k], args);
}
