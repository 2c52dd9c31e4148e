/* cmd_doctor.c - `kiln doctor`: the library's account of this machine, readable or as JSON.
 *
 * Exits with 1 if there is a problem, so that scripts can ask; a missing compiler is one, though the interpreter
 * answers every call. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static void print_line(const char *line) {
    if (line[0] == '!')
        out_printf("%s%s%s\n", out_colour(COLOUR_WARN), line, out_colour(COLOUR_OFF));
    else
        out_printf("%.*s:%*s%s\n", (int)strcspn(line, ":"), line,
                   strcspn(line, ":") < 16 ? 16 - (int)strcspn(line, ":") : 1, "",
                   line + strcspn(line, ":") + strspn(line + strcspn(line, ":"), ": "));
}

static void add_line(const char *line, json_t *into, json_t *problems) {
    const char *colon = strchr(line, ':');
    if (line[0] == '!') {
        json_array_append_new(problems, cli_json_text(line + 1 + strspn(line + 1, " ")));
    } else if (colon) {
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)(colon - line), line);
        json_object_set_new(into, key, cli_json_text(colon + 1 + strspn(colon + 1, " ")));
    }
}

/* Prints the report, which it cuts up; returns how many problems it tells of. */
static int print_report(char *text, bool json) {
    json_t *into = json ? json_object() : NULL, *problems = json ? json_array() : NULL;
    int nproblems = 0;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
        if (!*line) continue;
        nproblems += line[0] == '!';
        if (json)
            add_line(line, into, problems);
        else
            print_line(line);
    }
    if (json) {
        json_object_set_new(into, "problems", problems);
        out_json(into);
    }
    return nproblems;
}

int cmd_doctor(const cli_args *args) {
    if (args->noperands) return cli_usage_error(CLI_CMD_DOCTOR, "unexpected operand '%s'", args->operands[0]);
    kiln_ctx *ctx = cli_open(args);
    if (!ctx) return CLI_FAILED;
    char *text;
    int nproblems = 0;
    kiln_status st = kiln_doctor(ctx, &text);
    if (st == KILN_OK) {
        nproblems = print_report(text, args->json);
        kiln_text_free(text);
    } else {
        cli_kiln_error(st);
    }
    kiln_close(ctx);
    return st == KILN_OK && nproblems == 0 ? CLI_OK : CLI_FAILED;
}
