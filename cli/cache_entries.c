/* cache_entries.c - the library's list of kernels on disk -> JSON objects in a fixed order, and their texts made fit for a terminal.
 *
 * What an entry says of itself comes from a file that another user may have written, so it is shown with control characters made visible.
 * Must not know what an action prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_cli.h"

/* -- reading --------------------------------------------------------------------------------------------- */

static json_t *entry_json(const kiln_kept_info *info, bool whole) {
    json_t *e = json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o}", "id", info->id, "op", cli_json_text(info->op),
                          "class", cli_json_text(info->words), "target", cli_json_text(info->target), "level",
                          cli_json_text(info->isa), "stamp", cli_json_text(info->stamp), "compiler",
                          cli_json_text(info->compiler));
    json_t *rest = json_pack("{s:I,s:I,s:I,s:f,s:b,s:b,s:b,s:s?}", "bytes", (json_int_t)info->nbytes,
                             "built_at", (json_int_t)info->built_at, "used_at", (json_int_t)info->used_at,
                             "build_ms", (double)info->build_ns / 1e6, "tested", info->tested, "signed",
                             info->is_signed, "current", info->is_current, "cause", info->cause);
    if (!e || !rest || json_object_update(e, rest) != 0) {
        json_decref(e);
        e = NULL;
    }
    json_decref(rest);
    if (e) json_object_set_new(e, "fault", info->fault ? cli_json_text(info->fault) : json_null());
    if (e && whole) {
        json_object_set_new(e, "ir", cli_json_text(info->ir));
        json_object_set_new(e, "source",
                            info->source ? json_stringn(info->source, info->nsource) : json_null());
    }
    return e;
}

static kiln_status add(void *user, const kiln_kept_info *info) {
    cache_entries *e = user;
    if (e->n == e->room) {
        size_t room = e->room ? 2 * e->room : 64;
        json_t **more = realloc(e->at, room * sizeof *more);
        if (!more) return KILN_E_NOMEM;
        e->at = more;
        e->room = room;
    }
    json_t *made = entry_json(info, e->whole);
    if (!made) return KILN_E_NOMEM;
    e->at[e->n++] = made;
    return KILN_OK;
}

const char *cache_text(const json_t *entry, const char *key) {
    const char *text = json_string_value(json_object_get(entry, key));
    return text ? text : "";
}

uint64_t cache_number(const json_t *entry, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(entry, key));
}

static int in_order(const void *a, const void *b) {
    static const char *const keys[] = {"op", "class", "level", "id"};
    int order = 0;
    for (size_t k = 0; k < sizeof keys / sizeof *keys && order == 0; k++)
        order = strcmp(cache_text(*(json_t *const *)a, keys[k]), cache_text(*(json_t *const *)b, keys[k]));
    return order;
}

bool cache_entries_read(kiln_ctx *ctx, const char *start, int how, bool whole, cache_entries *out) {
    *out = (cache_entries){.whole = whole};
    kiln_status st = kiln_cache_list(ctx, start, how, add, out);
    if (st != KILN_OK) {
        cli_kiln_error(st);
        cache_entries_free(out);
        return false;
    }
    if (out->n) qsort(out->at, out->n, sizeof(json_t *), in_order);
    return true;
}

void cache_entries_free(cache_entries *e) {
    for (size_t k = 0; k < e->n; k++) json_decref(e->at[k]);
    free(e->at);
    *e = (cache_entries){0};
}

/* -- text ------------------------------------------------------------------------------------------------ */

void out_visible(const char *text, bool lines) {
    for (const unsigned char *s = (const unsigned char *)text; *s; s++) {
        if (*s == 127 || (*s < 32 && !(lines && (*s == '\n' || *s == '\t'))))
            out_printf("\\x%02x", *s);
        else
            out_write((const char *)s, 1);
    }
}

const char *cache_bytes(uint64_t nbytes, char text[32]) {
    static const char *const units[] = {"KB", "MB", "GB", "TB"};
    double n = (double)nbytes / 1000;
    size_t k = 0;
    for (; n >= 1000 && k + 1 < sizeof units / sizeof *units; k++) n /= 1000;
    snprintf(text, 32, "%.1f %s", n, units[k]);
    return text;
}

json_t *cache_report_json(const char *folder, const kiln_cache_report *r) {
    return json_pack("{s:o,s:I,s:I,s:I,s:I}", "folder", cli_json_text(folder), "removed",
                     (json_int_t)r->nremoved, "removed_bytes", (json_int_t)r->removed_bytes, "left",
                     (json_int_t)r->nleft, "left_bytes", (json_int_t)r->left_bytes);
}
