/* cmd_ops.c - `kiln ops`: counts operators by family, lists them, shows one, checks all rows; coverage.c counts by tags.
 *
 * All output comes from the registry, through the public interface.  This file names no operator. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* -- list --------------------------------------------------------------------------------------- */

/* Whether the pattern fits the name.  A pattern with *, ? or [ is a glob over the name, with or without its namespace.
 * Any other pattern must be a part of the name.  NULL fits every name. */
static bool matches(const char *name, const char *pattern) {
    if (!pattern) return true;
    if (!strpbrk(pattern, "*?[")) return strstr(name, pattern) != NULL;
    const char *bare = strstr(name, "::");
    return fnmatch(pattern, name, 0) == 0 || (bare && fnmatch(pattern, bare + 2, 0) == 0);
}

static json_t *op_json(const kiln_op *op) {
    return json_pack("{s:o,s:s,s:s,s:b,s:o}", "name", cli_json_text(kiln_op_name(op)), "form",
                     kiln_op_form(op), "family", kiln_op_family(op), "served", kiln_op_served(op), "schema",
                     cli_json_text(kiln_op_schema(op)));
}

static bool list_ops(kiln_ctx *ctx, const cli_args *args) {
    const char *pattern = args->noperands ? args->operands[0] : NULL;
    json_t *all = args->json ? json_array() : NULL;
    size_t found = 0;
    const kiln_op *op;
    for (size_t i = 0; (op = kiln_op_at(ctx, i)); i++) {
        if (!matches(kiln_op_name(op), pattern)) continue;
        if (all)
            json_array_append_new(all, op_json(op));
        else if (found == 0)
            out_printf("%-40s %-10s %-8s %-6s %s\n", "name", "form", "family", "served", "schema");
        if (!all)
            out_printf("%-40s %-10s %-8s %-6s %s\n", kiln_op_name(op), kiln_op_form(op), kiln_op_family(op),
                       kiln_op_served(op) ? "yes" : "no", kiln_op_schema(op));
        found++;
    }
    if (all) out_json(all);
    if (found == 0 && pattern) cli_error("no operator's name matches '%s'", pattern);
    return found > 0 || !pattern;
}

/* -- count -------------------------------------------------------------------------------------- */

enum { MAX_FAMILIES = 16, EXAMPLES = 4 };

typedef struct family {
    const char *name;
    int rows, overloads, served;      /* overloads: in-place and out forms too */
    const kiln_op *example[EXAMPLES]; /* rows, spread over the alphabet */
} family;

static family *family_of(family *all, int *n, const char *name) {
    for (int k = 0; k < *n; k++)
        if (strcmp(all[k].name, name) == 0) return &all[k];
    if (*n == MAX_FAMILIES) return NULL;
    all[*n] = (family){.name = name};
    return &all[(*n)++];
}

/* examples: whether the families are counted already, and examples are looked for. */
static int count_families(kiln_ctx *ctx, family *all, int n, bool examples) {
    int seen[MAX_FAMILIES] = {0};
    const kiln_op *op;
    for (size_t i = 0; (op = kiln_op_at(ctx, i)); i++) {
        bool row = strcmp(kiln_op_form(op), "functional") == 0;
        family *f = family_of(all, &n, kiln_op_family(op));
        if (!f) continue;
        if (!examples) {
            f->overloads++;
            f->rows += row;
            f->served += kiln_op_served(op);
        } else if (row) {
            int k = seen[f - all]++, step = f->rows / EXAMPLES + 1;
            if (k % step == 0) f->example[k / step] = op;
        }
    }
    return n;
}

static void print_family(const family *f) {
    out_printf("%-9s %5d %10d %10d   ", f->name, f->rows, f->overloads, f->served);
    for (int k = 0; k < EXAMPLES && f->example[k]; k++) {
        const char *name = kiln_op_name(f->example[k]);
        out_printf("%s%s", k ? ", " : "", strncmp(name, "aten::", 6) == 0 ? name + 6 : name);
    }
    out_text("\n");
}

static void show_families(kiln_ctx *ctx, const cli_args *args) {
    family all[MAX_FAMILIES];
    int n = count_families(ctx, all, 0, false);
    count_families(ctx, all, n, true);
    json_t *list = args->json ? json_array() : NULL;
    if (!list)
        out_printf("%-9s %5s %10s %10s   %s\n", "family", "rows", "overloads", "served", "for example");
    for (int k = 0; k < n; k++) {
        if (list)
            json_array_append_new(list,
                                  json_pack("{s:s,s:i,s:i,s:i}", "family", all[k].name, "rows", all[k].rows,
                                            "overloads", all[k].overloads, "served", all[k].served));
        else
            print_family(&all[k]);
    }
    if (list)
        out_json(list);
    else
        out_text(
            "\n'kiln ops PATTERN' lists operators by name, 'kiln ops --all' lists every one, 'kiln ops show NAME' shows one.\n");
}

/* -- show --------------------------------------------------------------------------------------- */

static bool same_row(const kiln_op *a, const kiln_op *b) {
    return strcmp(kiln_op_row(a), kiln_op_row(b)) == 0;
}

static void show_json(kiln_ctx *ctx, const kiln_op *op) {
    json_t *shown = op_json(op), *forms = json_array();
    const kiln_op *other;
    for (size_t i = 0; (other = kiln_op_at(ctx, i)); i++)
        if (same_row(op, other))
            json_array_append_new(forms, json_pack("{s:o,s:s}", "name", cli_json_text(kiln_op_name(other)),
                                                   "form", kiln_op_form(other)));
    json_object_set_new(shown, "row", cli_json_text(kiln_op_row(op)));
    json_object_set_new(shown, "forms", forms);
    out_json(shown);
}

static bool show_op(kiln_ctx *ctx, const cli_args *args) {
    const kiln_op *op, *other;
    const char *name = args->operands[1];
    kiln_status st = kiln_op_find(ctx, name, &op);
    for (size_t i = 0; st == KILN_E_UNSUP && (op = kiln_op_at(ctx, i));
         i++) { /* a row that is only checked */
        const char *full = kiln_op_name(op), *bare = strstr(full, "::") + 2;
        if (strcmp(strstr(name, "::") ? full : bare, name) == 0) st = KILN_OK;
    }
    if (st != KILN_OK) {
        cli_kiln_error(st);
        return false;
    }
    if (args->json) {
        show_json(ctx, op);
        return true;
    }
    out_printf("name:    %s\nschema:  %s\nfamily:  %s\nform:    %s\nserved:  %s\nforms:\n", kiln_op_name(op),
               kiln_op_schema(op), kiln_op_family(op), kiln_op_form(op), kiln_op_served(op) ? "yes" : "no");
    for (size_t i = 0; (other = kiln_op_at(ctx, i)); i++)
        if (same_row(op, other)) out_printf("    %-10s  %s\n", kiln_op_form(other), kiln_op_name(other));
    out_printf("row:\n%s", kiln_op_row(op));
    size_t n = strlen(kiln_op_row(op));
    if (n == 0 || kiln_op_row(op)[n - 1] != '\n') out_text("\n");
    return true;
}

/* -- check -------------------------------------------------------------------------------------- */

typedef struct tally {
    json_t *rows; /* NULL: print lines */
    int right, wrong;
} tally;

static void on_row(void *user, const kiln_op *op, int ntyped, const char *error) {
    tally *t = user;
    *(error ? &t->wrong : &t->right) += 1;
    if (t->rows) {
        json_array_append_new(t->rows,
                              json_pack("{s:b,s:s,s:o,s:i,s:o}", "ok", !error, "family", kiln_op_family(op),
                                        "name", cli_json_text(kiln_op_name(op)), "typings", ntyped, "error",
                                        error ? cli_json_text(error) : json_null()));
        return;
    }
    if (error)
        out_printf("%sFAIL%s %-7s %-40s %s\n", out_colour(COLOUR_BAD), out_colour(COLOUR_OFF),
                   kiln_op_family(op), kiln_op_name(op), error);
    else
        out_printf("ok   %-7s %-40s %d typing%s\n", kiln_op_family(op), kiln_op_name(op), ntyped,
                   ntyped == 1 ? "" : "s");
}

static bool check_ops(kiln_ctx *ctx, const cli_args *args) {
    bool ok = true;
    for (int i = 1; i < args->noperands; i++) ok = cli_load_ops(ctx, args->operands[i]) && ok;
    if (!ok) return false; /* the error has been said; a count of the other rows would hide it */
    tally t = {args->json ? json_array() : NULL, 0, 0};
    kiln_status st = kiln_ops_check(ctx, on_row, &t);
    if (args->json)
        out_json(json_pack("{s:o,s:i,s:i}", "rows", t.rows, "passed", t.right, "failed", t.wrong));
    else
        out_printf("%d row%s checked, %d right, %d wrong\n", t.right + t.wrong,
                   t.right + t.wrong == 1 ? "" : "s", t.right, t.wrong);
    if (st != KILN_OK && t.wrong == 0) cli_kiln_error(st);
    return st == KILN_OK && t.wrong == 0;
}

int cmd_ops(const cli_args *args) {
    const char *word = args->noperands ? args->operands[0] : "";
    bool show = strcmp(word, "show") == 0, check = strcmp(word, "check") == 0;
    if (show && args->noperands != 2)
        return cli_usage_error(CLI_CMD_OPS, "expected one operator name after 'show'");
    if (!show && !check && args->noperands > 1)
        return cli_usage_error(CLI_CMD_OPS, "expected one pattern, found %d", args->noperands);
    if (args->coverage && args->noperands)
        return cli_usage_error(CLI_CMD_OPS, "--coverage goes with no operand");
    kiln_ctx *ctx = cli_open(args);
    if (!ctx) return CLI_FAILED;
    bool ok = true;
    if (args->coverage)
        cli_coverage(ctx, args->json);
    else if (!args->noperands && !args->all)
        show_families(ctx, args);
    else
        ok = show ? show_op(ctx, args) : check ? check_ops(ctx, args) : list_ops(ctx, args);
    cli_close(ctx);
    return ok ? CLI_OK : CLI_FAILED;
}
