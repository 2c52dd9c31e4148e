/* cache_packs.c - `kiln cache export` and `import`: kernels of the cache folder <-> a pack.
 *
 * Must not know how packs or the cache folder are laid out. */
#include "cache_cli.h"

static int finish(const cli_args *args, kiln_status st, const char *did, const kiln_pack_report *r) {
    char bytes[32];
    if (st != KILN_OK) {
        cli_kiln_error(st);
        return CLI_FAILED;
    }
    if (args->json) {
        out_json(json_pack("{s:I,s:I,s:I}", "kernels", (json_int_t)r->kernels, "bytes", (json_int_t)r->nbytes,
                           "left_out", (json_int_t)r->left_out));
        return CLI_OK;
    }
    out_printf("%s %llu kernels of %s", did, (unsigned long long)r->kernels, cache_bytes(r->nbytes, bytes));
    if (r->left_out)
        out_printf("; left out %llu that are damaged, unsigned, or of another version of Kiln",
                   (unsigned long long)r->left_out);
    out_text("\n");
    return CLI_OK;
}

int cache_export(kiln_ctx *ctx, const cli_args *args, const char *folder) {
    (void)folder;
    kiln_pack_how how = {.ops = (const char *const *)args->operands + 2,
                         .nops = (size_t)args->noperands - 2,
                         .without_ir = args->slim};
    kiln_pack_report r = {0};
    return finish(args, kiln_pack_export(ctx, args->operands[1], &how, &r), "exported", &r);
}

int cache_import(kiln_ctx *ctx, const cli_args *args, const char *folder) {
    (void)folder;
    kiln_pack_report r = {0};
    return finish(args, kiln_pack_import(ctx, args->operands[1], &r), "imported", &r);
}
