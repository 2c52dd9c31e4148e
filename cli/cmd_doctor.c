/* cmd_doctor.c - `kiln doctor`: what the library found on this machine, in words with a verdict, or as JSON.
 *
 * The library's account is lines "key: value", and lines that start with '!' for what is missing or broken; the table below
 * holds what a key means to a user.  Exits with 1 if there is a problem, so that scripts can ask; a missing compiler is one,
 * though the interpreter answers every call. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* A line of the account: the key is n characters long. */
typedef struct entry {
    const char *key, *value;
    int n;
} entry;

static entry entry_of(const char *line) {
    int n = (int)strcspn(line, ":");
    return (entry){line, line + n + strspn(line + n, ": "), n};
}

static bool has_key(const entry *e, const char *key) {
    return strlen(key) == (size_t)e->n && strncmp(e->key, key, (size_t)e->n) == 0;
}

/* -- in words ------------------------------------------------------------------------------------ */

/* The first row with the line's key, and its value if the row names one, tells what the line means. */
static const struct {
    const char *key, *value, *words;
} meanings[] = {
    {"isa", NULL, "the best instruction set level that kernels may be compiled for"},
    {"mode", "tiered", "a call is interpreted until a kernel for it was built in the background"},
    {"mode", "sync", "a call waits until its kernel is built"},
    {"mode", "interp", "every call is interpreted, and no kernel is built"},
    {"mode", "frozen", "no kernel is built; a call without one is interpreted"},
    {"threads", NULL, "the most threads that share one large call"},
    {"pool", NULL, "whose threads these are"},
    {"memory", NULL, "whose allocator gives memory for results"},
    {"max_kernels", NULL, "kernels that are kept in memory; those not used for long go first"},
    {"compiler", NULL, "builds the kernels"},
    {"cache folder", NULL, "holds kernels, and logs of failed builds"},
    {"kernels kept", NULL, "in the cache folder, for later processes"},
    {"signing", NULL, "the key that signs kernels in the cache folder"},
    {"dump folder", "none", "KILN_DUMP_DIR names a folder to write the source of each kernel to"},
    {"dump folder", NULL, "the source of each kernel is written there"},
    {"log", "none", "nobody hears messages of the library"},
    {"log", NULL, "who hears messages of the library"},
};

static const char *meaning_of(const entry *e) {
    for (size_t k = 0; k < sizeof meanings / sizeof *meanings; k++)
        if (has_key(e, meanings[k].key) && (!meanings[k].value || strcmp(meanings[k].value, e->value) == 0))
            return meanings[k].words;
    return NULL;
}

/* What the verdict depends on. */
typedef struct findings {
    int problems;
    bool compiler_missing, interprets, frozen;
} findings;

static void print_line(const char *line, findings *found) {
    entry e = entry_of(line);
    const char *words = meaning_of(&e);
    if (line[0] == '!') {
        if (found->problems++ == 0) out_text("\nMissing or broken:\n");
        found->compiler_missing |= has_key(&e, "!compiler");
        out_printf("%s  ! %s%s\n", out_colour(COLOUR_WARN), line + 1, out_colour(COLOUR_OFF));
        return;
    }
    found->interprets |= has_key(&e, "mode") && strcmp(e.value, "interp") == 0;
    found->frozen |= has_key(&e, "mode") && strcmp(e.value, "frozen") == 0;
    out_printf("  %.*s:%*s%s", e.n, e.key, e.n < 14 ? 14 - e.n : 1, "", e.value);
    if (words) out_printf("%*s%s", strlen(e.value) < 20 ? 22 - (int)strlen(e.value) : 2, "", words);
    out_text("\n");
}

static const char *verdict(const findings *found) {
    if (found->compiler_missing)
        return "Kiln gives right results here, but slowly: without a compiler, calls that no pack or folder has a kernel for are interpreted.\n"
               "Install gcc or clang, or name one by KILN_CC.";
    if (found->problems) return "Kiln gives right results here; see what is missing or broken above.";
    if (found->interprets) return "Kiln works, but builds no kernels, since its mode is 'interp'.";
    if (found->frozen) return "Kiln works, but builds no kernels, since its mode is 'frozen'.";
    return "Kiln is ready: nothing is missing.";
}

/* Prints the report, which it cuts up: first what is there, then what is missing. */
static int print_words(char *text) {
    findings found = {0};
    char *lines[64], *rest = text, *line;
    int n = 0;
    while (n < 64 && (line = strsep(&rest, "\n")))
        if (*line) lines[n++] = line;
    out_text("What is there:\n");
    for (int k = 0; k < n; k++)
        if (lines[k][0] != '!') print_line(lines[k], &found);
    for (int k = 0; k < n; k++)
        if (lines[k][0] == '!') print_line(lines[k], &found);
    out_printf("\n%s%s%s\n", out_colour(found.problems ? COLOUR_WARN : COLOUR_GOOD), verdict(&found),
               out_colour(COLOUR_OFF));
    return found.problems;
}

/* -- as JSON ------------------------------------------------------------------------------------- */

static void add_line(const char *line, json_t *into, json_t *problems) {
    entry e = entry_of(line);
    char key[128];
    if (line[0] == '!') {
        json_array_append_new(problems, cli_json_text(line + 1 + strspn(line + 1, " ")));
    } else if (line[e.n]) {
        snprintf(key, sizeof key, "%.*s", e.n, e.key);
        json_object_set_new(into, key, cli_json_text(e.value));
    }
}

static int print_json(char *text) {
    json_t *into = json_object(), *problems = json_array();
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line) add_line(line, into, problems);
    int nproblems = (int)json_array_size(problems);
    json_object_set_new(into, "problems", problems);
    out_json(into);
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
        nproblems = args->json ? print_json(text) : print_words(text);
        kiln_text_free(text);
    } else {
        cli_kiln_error(st);
    }
    cli_close(ctx);
    return st == KILN_OK && nproblems == 0 ? CLI_OK : CLI_FAILED;
}
