/* record.c - a class that is seen for the first time -> the line that would warm it, in the file that KILN_RECORD names.
 *
 * Lines are calls as `kiln run` and `kiln warm` take them.  Each is appended by one write, so that processes may share a file.  After
 * the first write that fails the context logs it and records no more. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "api/ctx.h"

kiln_status kiln_plan_line(kiln_ctx *ctx, const kiln_plan *plan, char **out) {
    kiln_sb text;
    const kiln_op *named;
    KILN_TRY(kiln_op_find(ctx, plan->call->op->name, &named));
    kiln_sb_init(&text);
    kiln_call_print(&text, plan->call, named->schema);
    return kiln_sb_take(&text, out);
}

static kiln_status append(const char *path, const char *line) {
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_sb_printf(&text, "%s\n", line);
    int fd = text.failed ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    bool fits = fd >= 0 && kiln_fsize_allows((size_t)lseek(fd, 0, SEEK_END) + text.len);
    bool ok = fits && write(fd, text.p, text.len) == (ssize_t)text.len;
    int error = errno;
    if (fd >= 0) close(fd);
    kiln_sb_fini(&text);
    return ok ? KILN_OK : KILN_FAIL(KILN_E_IO, "cannot record calls in %s: %s", path, strerror(error));
}

void kiln_record(kiln_ctx *ctx, const kiln_plan *plan) {
    char *line = NULL;
    if (!ctx->record_path || atomic_load_explicit(&ctx->record_failed, memory_order_relaxed)) return;
    int quiet = kiln_quiet(0);
    bool named = kiln_plan_line(ctx, plan, &line) ==
                 KILN_OK; /* a formula of kiln.evaluate has no name that a line could give */
    kiln_status st = named ? append(ctx->record_path, line) : KILN_OK;
    if (!named) kiln_clear_error();
    if (st != KILN_OK && !atomic_exchange(&ctx->record_failed, true))
        kiln_ctx_log(ctx, 1, "record", "%s", kiln_last_error());
    if (st != KILN_OK) kiln_clear_error();
    (void)kiln_quiet(quiet);
    kiln_free(line);
}
