/* cmd_graph.c - `kiln graph`: reads a .kg graph and shows, normalises, prints as Python or runs it.
 *
 * Everything is the library's work; this picks what to ask for and in which form the answer is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calltext.h"
#include "cli.h"
#include "kiln/kiln_graph.h"

/* -- reading ------------------------------------------------------------------------------------------ */

static kiln_graph *read_graph(const char *path) {
    size_t n;
    char *text = cli_read(path, &n);
    if (!text) return NULL;
    kiln_graph *g = NULL;
    kiln_status st = kiln_graph_parse(text, n, &g);
    free(text);
    if (st != KILN_OK)
        cli_error("%s: %s", strcmp(path, "-") == 0 ? "standard input" : path, kiln_last_error());
    return st == KILN_OK ? g : NULL;
}

static int told(kiln_status st) {
    if (st == KILN_OK) return CLI_OK;
    cli_kiln_error(st);
    return CLI_FAILED;
}

/* Prints the text that the library makes of a graph. */
static int print_made(const kiln_graph *g, kiln_status (*make)(const kiln_graph *g, char **out)) {
    char *text;
    kiln_status st = make(g, &text);
    if (st != KILN_OK) return told(st);
    out_text(text);
    kiln_text_free(text);
    return CLI_OK;
}

/* -- JSON --------------------------------------------------------------------------------------------- */

static json_t *value_json(const kiln_gval *v) {
    char *text;
    if (kiln_gval_text(v, &text) != KILN_OK) return NULL;
    json_t *made = cli_json_text(text);
    kiln_text_free(text);
    return made;
}

static json_t *node_json(const kiln_node *node) {
    json_t *args = json_array(), *kwargs = json_object(), *users = json_array(), *meta = json_object();
    for (uint32_t i = 0; i < node->nargs; i++) json_array_append_new(args, value_json(node->args[i]));
    for (uint32_t i = 0; i < node->nkwargs; i++)
        json_object_set_new_nocheck(kwargs, node->kwargs[i].name, value_json(node->kwargs[i].value));
    for (const kiln_use *u = node->first_user; u; u = u->next)
        json_array_append_new(users, cli_json_text(u->user->name));
    for (const kiln_meta *m = node->meta; m; m = m->next)
        json_object_set_new_nocheck(meta, m->key, cli_json_text(m->text));
    return json_pack("{s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:o}", "name", cli_json_text(node->name), "op",
                     kiln_node_op_name((kiln_node_op)node->op), "target", cli_json_text(node->target->u.s),
                     "args", args, "kwargs", kwargs, "users", users, "type",
                     node->type ? value_json(node->type) : json_null(), "meta", meta);
}

static void print_json(const kiln_graph *g) {
    json_t *nodes = json_array();
    for (const kiln_node *node = kiln_graph_first(g); node; node = node->next)
        json_array_append_new(nodes, node_json(node));
    out_json(json_pack("{s:o}", "nodes", nodes));
}

/* -- actions ------------------------------------------------------------------------------------------ */

static int show(const cli_args *args, kiln_graph *g) {
    if (args->dot) return print_made(g, kiln_graph_dot);
    if (args->svg) return print_made(g, kiln_graph_svg);
    if (!args->json) return print_made(g, kiln_graph_text);
    print_json(g);
    return CLI_OK;
}

static int normalize(const cli_args *args, kiln_graph *g) {
    kiln_schemas *schemas;
    kiln_status st = kiln_schemas_new(&schemas);
    if (st != KILN_OK) return told(st);
    st = kiln_graph_normalize(schemas, g, args->kwargs_only ? KILN_KWARGS_ONLY : 0, NULL);
    kiln_schemas_free(schemas);
    return st == KILN_OK ? show(args, g) : told(st);
}

static void python_json(const kiln_graph *g, const kiln_python *p) {
    json_t *globals = json_object(), *lines = json_array();
    const kiln_node *node = kiln_graph_first(g);
    for (size_t i = 0; i < p->nglobals; i++)
        json_object_set_new_nocheck(globals, p->globals[i].name, value_json(p->globals[i].value));
    for (size_t i = 0; i < p->nlines; i++) { /* both in the graph's order */
        while (node && node->id != p->lines[i].node) node = node->next;
        json_array_append_new(
            lines, json_pack("[i,o]", (int)p->lines[i].line, cli_json_text(node ? node->name : "")));
    }
    out_json(
        json_pack("{s:o,s:o,s:o}", "source", cli_json_text(p->source), "globals", globals, "lines", lines));
}

static int python(const cli_args *args, kiln_graph *g) {
    kiln_python_options options = {.size = sizeof options, .verbose = args->verbose};
    kiln_python p;
    kiln_status st = kiln_graph_python(g, &options, &p);
    if (st != KILN_OK) return told(st);
    if (args->json)
        python_json(g, &p);
    else
        out_text(p.source);
    kiln_python_free(&p);
    return CLI_OK;
}

/* -- running ------------------------------------------------------------------------------------------ */

/* Operands after the file: a value each, and before it NAME= for what get_attr NAME or const(NAME) stands
 * for. */
typedef struct inputs {
    calltext call;      /* its arguments are the values, those with a name last */
    const char **names; /* of the values that have one */
    size_t *name_len;
    bool *used; /* the graph asked for it */
    size_t nplain, nnamed;
} inputs;

static size_t name_length(const char *operand) {
    size_t n = strspn(operand, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
    return operand[n] == '=' ? n : 0;
}

static kiln_tensor *find_named(void *user, const char *name) {
    const inputs *in = user;
    for (size_t i = 0; i < in->nnamed; i++) {
        const kiln_value *v = &in->call.args[in->nplain + i];
        if (v->kind != KILN_TENSOR || strlen(name) != in->name_len[i] ||
            memcmp(name, in->names[i], in->name_len[i]) != 0)
            continue;
        in->used[i] = true;
        return v->u.tensor;
    }
    return NULL;
}

/* Writes the operands as the arguments of one call, which calltext then reads. */
static void write_call(const cli_args *args, char *at, inputs *out) {
    const char *comma = "";
    at += sprintf(at, "graph(");
    for (int named = 0; named < 2; named++) {
        for (int i = 2; i < args->noperands; i++) {
            const char *operand = args->operands[i];
            size_t n = name_length(operand);
            if ((n > 0) != (named != 0)) continue;
            if (n) out->names[out->nnamed] = operand, out->name_len[out->nnamed++] = n;
            out->nplain += !n;
            at += sprintf(at, "%s%s", comma, n ? operand + n + 1 : operand);
            comma = ", ";
        }
    }
    strcpy(at, ")");
}

static void free_inputs(inputs *in) {
    free(in->names);
    free(in->name_len);
    free(in->used);
    calltext_free(&in->call);
}

static bool parse_inputs(const cli_args *args, inputs *out) {
    size_t n = 16, count = (size_t)args->noperands + 1;
    char err[CALLTEXT_ERROR_MAX] = "out of memory";
    for (int i = 2; i < args->noperands; i++) n += strlen(args->operands[i]) + 2;
    memset(out, 0, sizeof *out);
    char *text = malloc(n);
    out->names = calloc(count, sizeof *out->names);
    out->name_len = calloc(count, sizeof *out->name_len);
    out->used = calloc(count, sizeof *out->used);
    bool ok = text && out->names && out->name_len && out->used;
    if (ok) write_call(args, text, out);
    ok = ok && calltext_parse(text, strlen(text), NULL, &out->call, err);
    if (ok && out->call.nargs != out->nplain + out->nnamed)
        ok = false, snprintf(err, sizeof err, "expected one value in each operand");
    if (!ok) cli_error("inputs: %s", err);
    free(text);
    if (!ok) free_inputs(out);
    return ok;
}

/* A named input that the graph did not ask for is a misspelt name, or meant for another graph. */
static bool all_used(const inputs *in) {
    for (size_t i = 0; i < in->nnamed; i++) {
        if (in->used[i]) continue;
        bool tensor = in->call.args[in->nplain + i].kind == KILN_TENSOR;
        cli_error(tensor ? "inputs: the graph asks for no '%.*s'" : "inputs: '%.*s' is no tensor",
                  (int)in->name_len[i], in->names[i]);
        return false;
    }
    return true;
}

static void print_outputs(const cli_args *args, kiln_tensor **outs, size_t nouts) {
    if (args->json) out_text("{\"outputs\":[");
    for (size_t i = 0; i < nouts; i++) {
        if (args->json && i) out_text(",");
        (args->json ? out_tensor_json : out_tensor_text)(outs[i]);
    }
    if (args->json) out_text("]}\n");
}

static int run_with(const cli_args *args, kiln_ctx *ctx, kiln_graph *g, inputs *in) {
    kiln_tensor **outs;
    size_t nouts;
    kiln_status st = kiln_graph_run(ctx, g, in->call.args, in->nplain, find_named, in, &outs, &nouts);
    if (st != KILN_OK) return told(st);
    bool ok = all_used(in);
    if (ok) print_outputs(args, outs, nouts);
    for (size_t i = 0; i < nouts; i++) kiln_tensor_release(outs[i]);
    kiln_text_free((char *)outs);
    return ok ? CLI_OK : CLI_FAILED;
}

static int run(const cli_args *args, kiln_graph *g) {
    inputs in;
    if (!parse_inputs(args, &in)) return CLI_FAILED;
    kiln_ctx *ctx = cli_open_sync(args);
    int status = ctx ? run_with(args, ctx, g, &in) : CLI_FAILED;
    cli_close(ctx);
    free_inputs(&in);
    return status;
}

/* -- the command -------------------------------------------------------------------------------------- */

static const struct action {
    const char *name;
    int (*run)(const cli_args *args, kiln_graph *g);
    bool draws, kwargs_only, verbose; /* options it takes */
} actions[] = {{"show", show, true, false, false},
               {"normalize", normalize, true, true, false},
               {"python", python, false, false, true},
               {"run", run, false, false, false}};

/* An option that would be taken for nothing is refused. */
static int check_options(const cli_args *args, const struct action *a) {
    const char *extra = args->dot && !a->draws                 ? "--dot"
                        : args->svg && !a->draws               ? "--svg"
                        : args->kwargs_only && !a->kwargs_only ? "--kwargs-only"
                        : args->verbose && !a->verbose         ? "--verbose"
                                                               : NULL;
    if (extra) return cli_usage_error(CLI_CMD_GRAPH, "'%s' takes no %s", a->name, extra);
    if (args->dot + args->svg + args->json > 1)
        return cli_usage_error(CLI_CMD_GRAPH, "expected one of --dot, --svg and --json");
    return CLI_OK;
}

int cmd_graph(const cli_args *args) {
    const char *word = args->noperands ? args->operands[0] : "";
    const struct action *action = NULL;
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(word, actions[i].name) == 0) action = &actions[i];
    if (!action)
        return cli_usage_error(CLI_CMD_GRAPH, "expected show, normalize, python or run, found '%s'", word);
    if (args->noperands < 2) return cli_usage_error(CLI_CMD_GRAPH, "expected a file after '%s'", word);
    if (args->noperands > 2 && action->run != run)
        return cli_usage_error(CLI_CMD_GRAPH, "expected one file, found %d", args->noperands - 1);
    if (check_options(args, action) != CLI_OK) return CLI_USAGE;
    kiln_graph *g = read_graph(args->operands[1]);
    if (!g) return CLI_FAILED;
    int status = action->run(args, g);
    kiln_graph_free(g);
    return status;
}
