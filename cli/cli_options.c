/* cli_options.c - the option table -> getopt_long, help texts and usage errors.
 *
 * options.def and commands.def are the only places that name options and commands.  Must not know what an
 * option does beyond storing it. */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define IN(NAME) (1u << CLI_CMD_##NAME)
#define IN_ALL (~0u)

enum {
#define OPT(NAME, name, letter, argument, commands, help) OPTION_##NAME,
#include "options.def"
#undef OPT
    OPTION_COUNT
};

static const struct cli_option {
    const char *name;
    char letter;          /* or 0 */
    const char *argument; /* its name in the help, or NULL */
    unsigned commands;    /* a bit per command that takes it */
    const char *help;
} options[OPTION_COUNT] = {
#define OPT(NAME, name, letter, argument, commands, help) {name, letter, argument, commands, help},
#include "options.def"
#undef OPT
};

enum { LONG_BASE = 256 }; /* getopt_long returns LONG_BASE + option, for letters too after mapping */

/* -- near misses --------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Insertions, deletions and replacements that turn a into b; words longer than the row are far apart. */
static size_t distance(const char *a, const char *b) {
    enum { LONGEST = 40 };
    size_t na = strlen(a), nb = strlen(b), row[LONGEST + 1];
    if (na > LONGEST || nb > LONGEST) return LONGEST;
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t above = row[j];
            row[j] = least(least(above, row[j - 1]) + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[nb];
}

const char *cli_nearest(const char *word, const char *const *candidates, size_t n) {
    const char *best = NULL;
    size_t best_distance = 3, half = (strlen(word) + 1) / 2;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, candidates[i]);
        if (d < best_distance && d <= half) best = candidates[i], best_distance = d;
    }
    return best;
}

/* -- help ---------------------------------------------------------------------------------------- */

void cli_print_usage(void) {
    out_text("Usage: kiln COMMAND [OPTION...] [OPERAND...]\n\n"
             "Turns tensor operator calls into machine code, once per class of calls.\n\nCommands:\n");
    for (int i = 0; i < CLI_COMMAND_COUNT; i++)
        out_printf("  %-9s %s\n", cli_commands[i].name, cli_commands[i].summary);
    out_text("\n'kiln help COMMAND' tells more about a command.\n"
             "Exit status: 0 done, 1 failed, 2 wrong usage.\n");
}

void cli_print_help(int command) {
    const cli_command *c = &cli_commands[command];
    out_printf("Usage: kiln %s [OPTION...]%s%s\n\n%s\nOptions:\n", c->name, *c->operands ? " " : "",
               c->operands, *c->details ? c->details : c->summary);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct cli_option *o = &options[i];
        char left[40];
        if (!(o->commands & 1u << command)) continue;
        int n = o->letter ? snprintf(left, sizeof left, "-%c, --%s", o->letter, o->name)
                          : snprintf(left, sizeof left, "    --%s", o->name);
        if (o->argument) snprintf(left + n, sizeof left - (size_t)n, "=%s", o->argument);
        out_printf("  %-18s %s\n", left, o->help);
    }
}

int cli_usage_error(int command, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    cli_error("%s", text);
    if (command < 0) {
        fputs("Usage: kiln ", stderr);
        for (int i = 0; i < CLI_COMMAND_COUNT; i++)
            fprintf(stderr, "%s%s", i ? "|" : "", cli_commands[i].name);
        fputs(" [OPTION...] [OPERAND...]\nTry 'kiln help'.\n", stderr);
        return CLI_USAGE;
    }
    const cli_command *c = &cli_commands[command];
    fprintf(stderr, "Usage: kiln %s [OPTION...]%s%s\nTry 'kiln help %s'.\n", c->name, *c->operands ? " " : "",
            c->operands, c->name);
    return CLI_USAGE;
}

/* -- getopt ------------------------------------------------------------------------------------- */

static void make_getopt_tables(int command, struct option *longs, char *shorts) {
    *shorts++ = ':'; /* tell a missing argument from an unknown option */
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (!(options[i].commands & 1u << command)) continue;
        struct option o = {options[i].name, options[i].argument ? required_argument : no_argument, NULL,
                           LONG_BASE + i};
        *longs++ = o;
        if (!options[i].letter) continue;
        *shorts++ = options[i].letter;
        if (options[i].argument) *shorts++ = ':';
    }
    *shorts = 0;
    memset(longs, 0, sizeof *longs);
}

static int option_of_letter(int letter) {
    for (int i = 0; i < OPTION_COUNT; i++)
        if (letter && options[i].letter == letter) return i;
    return -1;
}

static int unknown_option(int command, const char *word) {
    const char *names[OPTION_COUNT];
    size_t n = 0;
    for (int i = 0; i < OPTION_COUNT; i++)
        if (options[i].commands & 1u << command) names[n++] = options[i].name;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + strspn(word, "-"), "="),
             word + strspn(word, "-"));
    const char *near = strncmp(word, "--", 2) == 0 ? cli_nearest(name, names, n) : NULL;
    if (near) return cli_usage_error(command, "unknown option '%s'; did you mean '--%s'?", word, near);
    return cli_usage_error(command, "unknown option '%s'", word);
}

static int set_mode(int command, const char *text, cli_args *out) {
    static const struct {
        const char *name;
        kiln_mode mode;
    } modes[] = {{"sync", KILN_MODE_SYNC},
                 {"tiered", KILN_MODE_TIERED},
                 {"interp", KILN_MODE_INTERP},
                 {"frozen", KILN_MODE_FROZEN}};
    for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
        if (strcmp(modes[k].name, text) != 0) continue;
        out->mode = modes[k].mode;
        return -1;
    }
    return cli_usage_error(command, "unknown mode '%s'; expected sync, tiered, interp or frozen", text);
}

static int set_count(int command, int option, const char *text, int *out) {
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > 1024)
        return cli_usage_error(command, "--%s is '%s': expected 1 to 1024", options[option].name, text);
    *out = (int)n;
    return -1;
}

/* A number of bytes, or of KiB, MiB or GiB, as KILN_CACHE_SIZE. */
static int set_size(int command, const char *text, cli_args *out) {
    static const char units[] = "KMG";
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (text[0] < '0' || text[0] > '9' || n == 0 || n > UINT64_MAX >> 1 >> shift || end[unit != NULL])
        return cli_usage_error(command, "--size is '%.40s': expected a number of bytes, as 500M or 2G", text);
    out->size = (uint64_t)n << shift;
    return -1;
}

static int set_option(int command, int option, const char *argument, cli_args *out) {
    switch (option) {
    case OPTION_JSON: out->json = true; return -1;
    case OPTION_DOT: out->dot = true; return -1;
    case OPTION_SVG: out->svg = true; return -1;
    case OPTION_VERBOSE: out->verbose = true; return -1;
    case OPTION_COVERAGE: out->coverage = true; return -1;
    case OPTION_KWARGS_ONLY: out->kwargs_only = true; return -1;
    case OPTION_SOURCE: out->source = true; return -1;
    case OPTION_SLIM: out->slim = true; return -1;
    case OPTION_YES: out->yes = true; return -1;
    case OPTION_SIZE: return set_size(command, argument, out);
    case OPTION_ALL: out->all = true; return -1;
    case OPTION_STAGE: out->stage = argument; return -1;
    case OPTION_ISA: out->isa = argument; return -1;
    case OPTION_MODE: return set_mode(command, argument, out);
    case OPTION_THREADS: return set_count(command, option, argument, &out->threads);
    case OPTION_JOBS: return set_count(command, option, argument, &out->jobs);
    case OPTION_HELP: cli_print_help(command); return CLI_OK;
    case OPTION_VERSION: out_printf("kiln %s\n", kiln_version()); return CLI_OK;
    case OPTION_OPS:
        if (out->nops_files == CLI_MAX_OPS_FILES)
            return cli_usage_error(command, "more than %d --ops options", CLI_MAX_OPS_FILES);
        out->ops_files[out->nops_files++] = argument;
        return -1;
    default: return cli_usage_error(command, "an option without a meaning");
    }
}

int cli_options_parse(int command, int argc, char **argv, cli_args *out) {
    struct option longs[OPTION_COUNT + 1];
    char shorts[2 * OPTION_COUNT + 2];
    memset(out, 0, sizeof *out);
    make_getopt_tables(command, longs, shorts);
    opterr = 0;
    for (;;) {
        int found = getopt_long(argc, argv, shorts, longs, NULL);
        char letter[3] = {'-', (char)optopt, 0};
        if (found == -1) break;
        if (found == ':')
            return cli_usage_error(command, "option '%s' needs an argument",
                                   optopt >= LONG_BASE ? argv[optind - 1] : letter);
        if (found == '?' && optopt >= LONG_BASE)
            return cli_usage_error(command, "option '--%s' takes no argument",
                                   options[optopt - LONG_BASE].name);
        if (found == '?') return unknown_option(command, optopt == 0 ? argv[optind - 1] : letter);
        int option = found >= LONG_BASE ? found - LONG_BASE : option_of_letter(found);
        int status = set_option(command, option, optarg, out);
        if (status >= 0) return status;
    }
    out->operands = argv + optind;
    out->noperands = argc - optind;
    return -1;
}
