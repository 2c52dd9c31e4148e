/* cmd_run.c - `kiln run`: calls as text -> their results, readable or as JSON.
 *
 * Calls come from the command line or, one per line, from standard input; a bad one is told and the rest
 * still run. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "calltext.h"
#include "cli.h"

/* Tensors of a list: one after the other, in brackets in JSON. */
static void print_list(const kiln_value *v, bool json) {
    if (json) out_text("[");
    for (uint32_t k = 0; k < v->n; k++) {
        if (json && k) out_text(",");
        (json ? out_tensor_json : out_tensor_text)(v->u.list[k].u.tensor);
    }
    if (json) out_text("]");
}

static void print_result(const kiln_value *v, bool json) {
    if (v->kind == KILN_LIST_V)
        print_list(v, json);
    else if (v->kind == KILN_BOOL_V)
        out_printf("%s%s", v->u.i ? "true" : "false", json ? "" : "\n");
    else if (v->kind == KILN_NONE) /* a result that is not given */
        out_text(json ? "null" : "None\n");
    else
        (json ? out_tensor_json : out_tensor_text)(v->u.tensor);
}

static void print_results(const cli_args *args, const kiln_op *op, const kiln_value *outs, size_t nouts) {
    if (!args->json) {
        out_printf("%s (%s)\n", kiln_op_name(op), kiln_last_tier());
        for (size_t i = 0; i < nouts; i++) print_result(&outs[i], false);
        return;
    }
    out_printf("{\"op\":\"%s\",\"tier\":\"%s\",\"outputs\":[", kiln_op_name(op), kiln_last_tier());
    for (size_t i = 0; i < nouts; i++) {
        if (i > 0) out_text(",");
        print_result(&outs[i], true);
    }
    out_text("]}\n");
}

static kiln_status call_and_print(kiln_ctx *ctx, const cli_args *args, const calltext *call) {
    const kiln_op *op;
    kiln_status st = kiln_op_choose(ctx, call->op, call->args, call->nargs, &op);
    if (st != KILN_OK) return st;
    kiln_value outs[KILN_MAX_RETS];
    size_t nouts = kiln_op_nrets(op);
    st = kiln_call_values(ctx, op, call->args, call->nargs, outs, nouts);
    if (st != KILN_OK) return st;
    print_results(args, op, outs, nouts);
    kiln_values_release(outs, nouts);
    return KILN_OK;
}

/* where: what an error line starts with, such as "line 3: ". */
static bool run_text(kiln_ctx *ctx, const cli_args *args, const char *where, const char *text, size_t n) {
    calltext call;
    char err[CALLTEXT_ERROR_MAX];
    if (!calltext_parse(text, n, NULL, &call, err)) {
        cli_error("%s%s", where, err);
        return false;
    }
    kiln_status st = call_and_print(ctx, args, &call);
    if (st != KILN_OK) {
        const char *why = kiln_last_error();
        cli_error("%s%s", where, *why ? why : kiln_status_text(st));
    }
    calltext_free(&call);
    return st == KILN_OK;
}

/* -- standard input ------------------------------------------------------------------------------ */

typedef struct line {
    char text[CALLTEXT_MAX + 1];
    size_t n; /* at most CALLTEXT_MAX + 1: what does not fit was read and dropped */
} line;

/* False at the end. */
static bool read_line(FILE *f, line *l) {
    int c = getc(f);
    l->n = 0;
    if (c == EOF) return false;
    for (; c != EOF && c != '\n'; c = getc(f))
        if (l->n < sizeof l->text) l->text[l->n++] = (char)c;
    return true;
}

static bool is_skipped(const line *l) {
    size_t i = 0;
    while (i < l->n && memchr(" \t\r", l->text[i], 3)) i++;
    return i == l->n || l->text[i] == '#';
}

static bool run_lines(kiln_ctx *ctx, const cli_args *args) {
    static line l; /* static for its size */
    bool ok = true;
    for (unsigned long number = 1; read_line(stdin, &l); number++) {
        char where[40];
        if (is_skipped(&l)) continue;
        snprintf(where, sizeof where, "line %lu: ", number);
        if (!run_text(ctx, args, where, l.text, l.n)) ok = false;
        if (!out_flush()) return ok;
    }
    if (ferror(stdin)) {
        cli_error("cannot read standard input: %s", strerror(errno));
        ok = false;
    }
    return ok;
}

int cmd_run(const cli_args *args) {
    if (args->noperands == 0) return cli_usage_error(CLI_CMD_RUN, "expected a call, or - to read calls");
    kiln_ctx *ctx = cli_open_sync(args);
    if (!ctx) return CLI_FAILED;
    bool ok = true;
    for (int i = 0; i < args->noperands && out_flush(); i++) {
        const char *text = args->operands[i];
        bool done = strcmp(text, "-") == 0 ? run_lines(ctx, args)
                                           : run_text(ctx, args, "", text, strlen(text));
        ok = ok && done;
    }
    cli_close(ctx);
    return ok ? CLI_OK : CLI_FAILED;
}
