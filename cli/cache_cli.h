/* cache_cli.h - what the files of `kiln cache` share: the entries of the folder of kernels, and the actions over them. */
#ifndef KILN_CLI_CACHE_CLI_H
#define KILN_CLI_CACHE_CLI_H
#include "cli.h"

/* Entries as JSON objects, which is what --json prints, in the order of operator, class, level and id. */
typedef struct cache_entries {
    json_t **at;
    size_t n, room;
    bool whole; /* with IR and source */
} cache_entries;

/* Reads the entries whose id begins with `start` (NULL: all).  how: KILN_CACHE_LOAD or 0.  False after an error was told. */
bool cache_entries_read(kiln_ctx *ctx, const char *start, int how, bool whole, cache_entries *out);
void cache_entries_free(cache_entries *e);
const char *cache_text(const json_t *entry, const char *key); /* "" where there is none */
uint64_t cache_number(const json_t *entry, const char *key);  /* 0 where there is none */
void out_visible(const char *text, bool lines); /* control characters as \xHH, but newlines if `lines` */
const char *cache_bytes(uint64_t nbytes, char text[32]);                   /* "15.3 KB" */
json_t *cache_report_json(const char *folder, const kiln_cache_report *r); /* of prune and clear */

/* The actions.  folder: where the kernels are.  Each returns an exit code. */
int cache_ls(kiln_ctx *ctx, const cli_args *args, const char *folder);
int cache_show(kiln_ctx *ctx, const cli_args *args, const char *folder);
int cache_stats(kiln_ctx *ctx, const cli_args *args, const char *folder);
int cache_verify(kiln_ctx *ctx, const cli_args *args, const char *folder);
int cache_export(kiln_ctx *ctx, const cli_args *args, const char *folder);
int cache_import(kiln_ctx *ctx, const cli_args *args, const char *folder);
#endif
