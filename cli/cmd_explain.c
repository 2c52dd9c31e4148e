/* cmd_explain.c - `kiln explain`: the stages of one call, or the class keys of two calls side by side.
 *
 * The stages' texts are the library's; only the key's form is known here: lines "field: value". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calltext.h"
#include "cli.h"

static const char *const stages[] = {"schema", "bind", "plan", "key", "ir", "source", "asm"};
#define DEFAULT_STAGE "plan" /* as in Python's kiln.explain */
enum { STAGE_COUNT = sizeof stages / sizeof *stages };

/* A call whose operator was found. */
typedef struct subject {
    calltext call;
    const kiln_op *op;
} subject;

static bool subject_init(kiln_ctx *ctx, const char *text, subject *out) {
    calltext_limits limits = {CALLTEXT_BYTES, false, true};
    char err[CALLTEXT_ERROR_MAX];
    if (!calltext_parse(text, strlen(text), &limits, &out->call, err)) {
        cli_error("%s", err);
        return false;
    }
    kiln_status st = kiln_op_choose(ctx, out->call.op, out->call.args, out->call.nargs, &out->op);
    if (st == KILN_OK) return true;
    cli_kiln_error(st);
    calltext_free(&out->call);
    return false;
}

/* The text of a stage, freed with kiln_text_free; NULL after an error was told. */
static char *stage_text(kiln_ctx *ctx, const subject *s, const char *stage) {
    char *text;
    kiln_status st = kiln_explain(ctx, s->op, s->call.args, s->call.nargs, stage, &text);
    if (st == KILN_OK) return text;
    const char *why = kiln_last_error();
    cli_error("stage %s: %s", stage, *why ? why : kiln_status_text(st));
    return NULL;
}

static void print_ending_in_newline(const char *text) {
    size_t n = strlen(text);
    out_write(text, n);
    if (n > 0 && text[n - 1] != '\n') out_text("\n");
}

/* -- one call ------------------------------------------------------------------------------------- */

static bool explain_stage(kiln_ctx *ctx, const subject *s, const char *stage, bool heading, json_t *into) {
    char *text = stage_text(ctx, s, stage);
    if (!text) return false;
    if (into) {
        json_object_set_new(into, stage, cli_json_text(text));
    } else {
        if (heading) out_printf("%s== %s ==%s\n", out_colour(COLOUR_HEAD), stage, out_colour(COLOUR_OFF));
        print_ending_in_newline(text);
    }
    kiln_text_free(text);
    return true;
}

static bool explain_one(kiln_ctx *ctx, const cli_args *args) {
    subject s;
    if (!subject_init(ctx, args->operands[0], &s)) return false;
    json_t *into = args->json ? json_object() : NULL;
    bool ok = true;
    if (!args->all) {
        ok = explain_stage(ctx, &s, args->stage ? args->stage : DEFAULT_STAGE, false, into);
    } else {
        for (int i = 0; i < STAGE_COUNT - 1; i++) {
            if (i > 0 && !args->json) out_text("\n");
            if (!explain_stage(ctx, &s, stages[i], true, into)) ok = false;
        }
    }
    if (args->json && (ok || json_object_size(into) > 0))
        out_json(json_pack("{s:o,s:o}", "op", cli_json_text(kiln_op_name(s.op)), "stages", into));
    else
        json_decref(into);
    calltext_free(&s.call);
    return ok;
}

/* -- two calls ------------------------------------------------------------------------------------ */

/* One "field: value" line of a key. */
typedef struct field {
    const char *name, *value;
} field;

/* Cuts text into lines and those at their first ": "; text is changed and the fields point into it. */
static field *split_key(char *text, size_t *count) {
    size_t n = 0, lines = 1;
    for (const char *s = text; *s; s++) lines += *s == '\n';
    field *fields = calloc(lines, sizeof *fields);
    if (!fields) return NULL;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
        if (!*line) continue;
        char *colon = strchr(line, ':');
        fields[n].name = line;
        fields[n].value = colon ? colon + 1 + strspn(colon + 1, " ") : "";
        if (colon) *colon = 0;
        n++;
    }
    *count = n;
    return fields;
}

static const char *find_field(const field *fields, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(fields[i].name, name) == 0) return fields[i].value;
    return NULL;
}

/* Both keys' fields: those of the first in its order, then those that only the second has. */
typedef struct key_pair {
    field *a, *b;
    size_t na, nb;
} key_pair;

typedef void (*pair_fn)(void *user, const char *name, const char *first, const char *second);

static void each_pair(const key_pair *k, pair_fn visit, void *user) {
    for (size_t i = 0; i < k->na; i++)
        visit(user, k->a[i].name, k->a[i].value, find_field(k->b, k->nb, k->a[i].name));
    for (size_t i = 0; i < k->nb; i++)
        if (!find_field(k->a, k->na, k->b[i].name)) visit(user, k->b[i].name, NULL, k->b[i].value);
}

static bool differ(const char *first, const char *second) {
    return !first || !second || strcmp(first, second) != 0;
}

static void count_difference(void *user, const char *name, const char *first, const char *second) {
    (void)name;
    *(size_t *)user += differ(first, second);
}

static void print_pair(void *user, const char *name, const char *first, const char *second) {
    (void)user;
    if (!differ(first, second))
        out_printf("  %-12s %s\n", name, first);
    else
        out_printf("* %-12s %s  |  %s\n", name, first ? first : "(absent)", second ? second : "(absent)");
}

static void print_difference(void *user, const char *name, const char *first, const char *second) {
    (void)user;
    if (!differ(first, second)) return;
    if (first) out_printf("- %s: %s\n", name, first);
    if (second) out_printf("+ %s: %s\n", name, second);
}

static void add_difference(void *user, const char *name, const char *first, const char *second) {
    if (!differ(first, second)) return;
    json_array_append_new(user, json_pack("{s:o,s:o,s:o}", "field", cli_json_text(name), "first",
                                          first ? cli_json_text(first) : json_null(), "second",
                                          second ? cli_json_text(second) : json_null()));
}

static void print_comparison(const cli_args *args, const key_pair *k) {
    size_t differences = 0;
    each_pair(k, count_difference, &differences);
    out_printf("call 1: %s\ncall 2: %s\n\n", args->operands[0], args->operands[1]);
    each_pair(k, print_pair, NULL);
    if (differences == 0) {
        out_text("\nsame class\n");
        return;
    }
    out_text("\ndifferent classes:\n");
    each_pair(k, print_difference, NULL);
}

static json_t *key_json(const subject *s, const char *text) {
    return json_pack("{s:o,s:{s:o}}", "op", cli_json_text(kiln_op_name(s->op)), "stages", "key",
                     cli_json_text(text));
}

/* Prints the comparison of two keys' texts, which it cuts up. */
static bool compare(const cli_args *args, const subject *s, char *const texts[2]) {
    json_t *calls = args->json ? json_pack("[o,o]", key_json(&s[0], texts[0]), key_json(&s[1], texts[1]))
                               : NULL;
    key_pair k = {0};
    k.a = split_key(texts[0], &k.na);
    k.b = split_key(texts[1], &k.nb);
    bool ok = k.a && k.b;
    if (!ok) {
        cli_error("out of memory");
        json_decref(calls);
    } else if (args->json) {
        json_t *differences = json_array();
        each_pair(&k, add_difference, differences);
        int same = json_array_size(differences) == 0;
        out_json(json_pack("{s:b,s:o,s:o}", "same_class", same, "calls", calls, "differences", differences));
    } else {
        print_comparison(args, &k);
    }
    free(k.a);
    free(k.b);
    return ok;
}

static bool explain_two(kiln_ctx *ctx, const cli_args *args) {
    subject s[2];
    if (!subject_init(ctx, args->operands[0], &s[0])) return false;
    if (!subject_init(ctx, args->operands[1], &s[1])) {
        calltext_free(&s[0].call);
        return false;
    }
    char *texts[2] = {stage_text(ctx, &s[0], "key"), NULL};
    if (texts[0]) texts[1] = stage_text(ctx, &s[1], "key");
    bool ok = texts[1] && compare(args, s, texts);
    for (int i = 0; i < 2; i++) {
        if (texts[i]) kiln_text_free(texts[i]);
        calltext_free(&s[i].call);
    }
    return ok;
}

int cmd_explain(const cli_args *args) {
    if (args->noperands < 1 || args->noperands > 2)
        return cli_usage_error(CLI_CMD_EXPLAIN, "expected one call, or two to compare");
    bool known = !args->stage;
    for (int i = 0; i < STAGE_COUNT && !known; i++) known = strcmp(args->stage, stages[i]) == 0;
    if (!known) {
        const char *near = cli_nearest(args->stage, stages, STAGE_COUNT);
        if (near)
            return cli_usage_error(CLI_CMD_EXPLAIN, "unknown stage '%s'; did you mean '%s'?", args->stage,
                                   near);
        return cli_usage_error(CLI_CMD_EXPLAIN,
                               "unknown stage '%s'; expected schema, bind, plan, key, ir, source or asm",
                               args->stage);
    }
    if (args->all && (args->stage || args->noperands == 2))
        return cli_usage_error(CLI_CMD_EXPLAIN, "--all shows every stage of one call");
    if (args->noperands == 2 && args->stage && strcmp(args->stage, "key") != 0)
        return cli_usage_error(CLI_CMD_EXPLAIN, "two calls are compared by their key, not by stage '%s'",
                               args->stage);
    kiln_ctx *ctx = cli_open(args);
    if (!ctx) return CLI_FAILED;
    bool ok = args->noperands == 2 ? explain_two(ctx, args) : explain_one(ctx, args);
    cli_close(ctx);
    return ok ? CLI_OK : CLI_FAILED;
}
