/* cli_context.c - options -> an open Kiln context with the user's operator rows.
 *
 * Reads whole files for the commands.  Knows the library's configuration; must not know commands. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "loglines.h"
#include "statlines.h"

enum { FILE_BYTES_MAX = 64 << 20, WARNINGS = 1 /* the level where KILN_LOG is not set */ };

static void on_log(void *user, int level, const char *topic, const char *text) {
    (void)user;
    loglines_write(level, topic, text);
}

/* The whole of f, or NULL with errno set. */
static char *read_all(FILE *f, size_t *out_n) {
    size_t n = 0, cap = 1 << 16;
    char *text = malloc(cap);
    while (text) {
        n += fread(text + n, 1, cap - n, f);
        if (n < cap) break;
        if (cap >= FILE_BYTES_MAX) {
            free(text);
            errno = EFBIG;
            return NULL;
        }
        char *grown = realloc(text, cap *= 2);
        if (!grown) free(text);
        text = grown;
    }
    if (!text) {
        errno = ENOMEM;
        return NULL;
    }
    if (ferror(f)) {
        free(text);
        return NULL;
    }
    *out_n = n;
    return text;
}

char *cli_read(const char *path, size_t *n) {
    bool standard = strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "rb");
    char *text = f ? read_all(f, n) : NULL;
    int why = errno;
    if (f && !standard) fclose(f);
    if (!text) cli_error("cannot read %s: %s", standard ? "standard input" : path, strerror(why));
    return text;
}

bool cli_load_ops(kiln_ctx *ctx, const char *path) {
    size_t n = 0;
    char *text = cli_read(path, &n);
    if (!text) return false;
    kiln_status st = kiln_ops_load_from(ctx, strcmp(path, "-") == 0 ? "standard input" : path, text, n);
    free(text);
    if (st != KILN_OK) cli_kiln_error(st);
    return st == KILN_OK;
}

kiln_ctx *cli_open_sync(const cli_args *args) {
    cli_args here = *args;
    if (here.mode == KILN_MODE_DEFAULT && !getenv("KILN_MODE")) here.mode = KILN_MODE_SYNC;
    return cli_open(&here);
}

kiln_ctx *cli_open(const cli_args *args) {
    kiln_config config = {.size = sizeof config,
                          .mode = args->mode,
                          .isa = args->isa,
                          .threads = args->threads,
                          .cache = args->cache,
                          .log = on_log};
    kiln_ctx *ctx;
    char why[LOGLINES_WHY_MAX];
    if (!loglines_open(WARNINGS, why)) {
        cli_error("%s", why);
        return NULL;
    }
    const char *wrong;
    (void)statlines_asked(&wrong);
    if (wrong) {
        cli_error("KILN_STATS is '%.40s': expected 0 or 1", wrong);
        return NULL;
    }
    kiln_status st = kiln_open(&config, &ctx);
    if (st != KILN_OK) {
        cli_kiln_error(st);
        return NULL;
    }
    for (int i = 0; i < args->nops_files; i++) {
        if (cli_load_ops(ctx, args->ops_files[i])) continue;
        kiln_close(ctx);
        return NULL;
    }
    return ctx;
}

void cli_close(kiln_ctx *ctx) {
    const char *wrong;
    char *text = statlines_asked(&wrong) ? statlines_text(ctx) : NULL;
    if (text) {
        (void)out_flush(); /* keeps data and this in order on a terminal */
        fputs(text, stderr);
    }
    free(text);
    kiln_close(ctx);
}
