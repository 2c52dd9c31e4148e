/* cache_show.c - `kiln cache ls`, `show`, `stats` and `verify`: the kernels on disk, readable or as JSON.
 *
 * An entry is a JSON object of cache_entries.c in either case.  Must not know how entries are kept. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cache_cli.h"

/* -- ls -------------------------------------------------------------------------------------------------- */

static void print_age(uint64_t built_at) {
    static const struct {
        long seconds;
        const char *unit;
    } steps[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    long age = (long)(time(NULL) - (time_t)built_at);
    char text[32] = "-";
    for (size_t k = 0; built_at && k < sizeof steps / sizeof *steps; k++) {
        if (age < steps[k].seconds && steps[k].seconds > 1) continue;
        snprintf(text, sizeof text, "%ld %s", age > 0 ? age / steps[k].seconds : 0, steps[k].unit);
        break;
    }
    out_printf("%7s", text);
}

static void print_entry(const json_t *e) {
    char bytes[32];
    const char *cause = cache_text(e, "cause"), *op = cache_text(e, "op");
    out_printf("%-14.12s", cache_text(e, "id"));
    out_visible(op, false);
    out_printf("%*s", strlen(op) < 28 ? 28 - (int)strlen(op) : 1, "");
    out_visible(cache_text(e, "level"), false);
    out_printf("%*s%10s ", strlen(cache_text(e, "level")) < 10 ? 10 - (int)strlen(cache_text(e, "level")) : 0,
               "", cache_bytes(cache_number(e, "bytes"), bytes));
    print_age(cache_number(e, "built_at"));
    out_text("  ");
    if (*cause)
        out_printf("%s%s%s%s", out_colour(COLOUR_BAD), cause, out_colour(COLOUR_OFF), *op ? "; " : "");
    out_visible(cache_text(e, "class"), false);
    out_text("\n");
}

static void print_none(const char *folder) {
    out_text("no kernel is kept in ");
    out_visible(folder, false);
    out_text("\n");
}

static json_t *array_of(cache_entries *e) {
    json_t *all = json_array();
    for (size_t k = 0; k < e->n; k++) json_array_append(all, e->at[k]);
    return all;
}

int cache_ls(kiln_ctx *ctx, const cli_args *args, const char *folder) {
    cache_entries e;
    if (!cache_entries_read(ctx, NULL, 0, false, &e)) return CLI_FAILED;
    if (args->json) {
        out_json(array_of(&e));
    } else if (!e.n) {
        print_none(folder);
    } else {
        out_printf("%-14s%-28s%-10s%10s %7s  %s\n", "id", "operator", "level", "bytes", "age", "class");
        for (size_t k = 0; k < e.n; k++) print_entry(e.at[k]);
    }
    cache_entries_free(&e);
    return CLI_OK;
}

/* -- show ------------------------------------------------------------------------------------------------ */

static void print_date(const char *name, uint64_t seconds) {
    char text[40] = "not known";
    time_t t = (time_t)seconds;
    struct tm when;
    if (seconds && localtime_r(&t, &when)) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &when);
    out_printf("%-10s %s\n", name, text);
}

static void print_part(const char *name, const char *text) {
    size_t n = strlen(text);
    out_printf("%s\n", name);
    out_visible(text, true);
    if (n && text[n - 1] != '\n') out_text("\n");
}

static const char *yes_no(const json_t *e, const char *key) {
    return json_is_true(json_object_get(e, key)) ? "yes" : "no";
}

static void print_whole(const json_t *e, const char *folder, bool source) {
    static const char *const texts[] = {"id", "op", "class", "target", "level", "stamp", "compiler"};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        char name[16];
        snprintf(name, sizeof name, "%s:", strcmp(texts[k], "op") == 0 ? "operator" : texts[k]);
        out_printf("%-10s ", name);
        out_visible(cache_text(e, texts[k]), false);
        out_text("\n");
    }
    out_text("file:      ");
    out_visible(folder, false);
    out_printf("/%s.kernel\nbytes:     %llu\n", cache_text(e, "id"),
               (unsigned long long)cache_number(e, "bytes"));
    print_date("built:", cache_number(e, "built_at"));
    print_date("used:", cache_number(e, "used_at"));
    out_printf("built in:  %.1f ms\n", json_real_value(json_object_get(e, "build_ms")));
    out_printf("tested:    %s\nsigned:    %s\ncurrent:   %s\n", yes_no(e, "tested"), yes_no(e, "signed"),
               yes_no(e, "current"));
    if (*cache_text(e, "cause")) {
        out_printf("refused:   %s: ", cache_text(e, "cause"));
        out_visible(cache_text(e, "fault"), false);
        out_text("\n");
    }
    if (*cache_text(e, "ir")) print_part("ir:", cache_text(e, "ir"));
    if (source && *cache_text(e, "source")) print_part("source:", cache_text(e, "source"));
}

static bool is_one(const cache_entries *e, const char *start, const char *folder) {
    if (e->n == 1) return true;
    if (e->n)
        cli_error("%zu entries begin with '%s': give more digits", e->n, start);
    else
        cli_error("no entry of %s begins with '%.40s'", folder, start);
    return false;
}

int cache_show(kiln_ctx *ctx, const cli_args *args, const char *folder) {
    const char *start = args->operands[1];
    cache_entries e;
    if (!*start || strspn(start, "0123456789abcdef") != strlen(start) || strlen(start) > 32)
        return cli_usage_error(
            CLI_CMD_CACHE,
            "'%.40s' is no id: expected up to 32 hexadecimal digits, as 'kiln cache ls' prints", start);
    if (!cache_entries_read(ctx, start, 0, true, &e)) return CLI_FAILED;
    bool ok = is_one(&e, start, folder);
    if (ok && args->json) {
        if (!args->source) json_object_del(e.at[0], "source");
        out_json(json_incref(e.at[0]));
    } else if (ok) {
        print_whole(e.at[0], folder, args->source);
    }
    if (ok && args->source && !*cache_text(e.at[0], "source") && !args->json) out_text("source:    none\n");
    cache_entries_free(&e);
    return ok ? CLI_OK : CLI_FAILED;
}

/* -- stats ----------------------------------------------------------------------------------------------- */

/* Adds an entry to the sums of `name`. */
static void count_under(json_t *groups, const char *name, uint64_t nbytes) {
    const char *key = *name ? name : "unknown";
    json_t *sums = json_object_get(groups, key);
    json_int_t n = json_integer_value(json_object_get(sums, "entries"));
    json_int_t bytes = json_integer_value(json_object_get(sums, "bytes"));
    json_object_set_new(groups, key,
                        json_pack("{s:I,s:I}", "entries", n + 1, "bytes", bytes + (json_int_t)nbytes));
}

static json_t *add_up(const cache_entries *e, const char *folder) {
    json_t *operators = json_object(), *levels = json_object(), *refused = json_object();
    json_int_t bytes = 0, nsigned = 0, nother = 0;
    for (size_t k = 0; k < e->n; k++) {
        const json_t *one = e->at[k];
        uint64_t nbytes = cache_number(one, "bytes");
        bool is_refused = *cache_text(one, "cause") != 0;
        bytes += (json_int_t)nbytes;
        nsigned += json_is_true(json_object_get(one, "signed"));
        nother += !is_refused && !json_is_true(json_object_get(one, "current"));
        count_under(operators, cache_text(one, "op"), nbytes);
        count_under(levels, cache_text(one, "level"), nbytes);
        if (is_refused) count_under(refused, cache_text(one, "cause"), nbytes);
    }
    return json_pack("{s:o,s:I,s:I,s:I,s:I,s:o,s:o,s:o}", "folder", cli_json_text(folder), "entries",
                     (json_int_t)e->n, "bytes", bytes, "signed", nsigned, "other_builds", nother, "operators",
                     operators, "levels", levels, "refused", refused);
}

static void print_groups(const char *title, const json_t *groups) {
    const char *name;
    json_t *sums;
    char bytes[32];
    if (json_object_size(groups)) out_printf("\n%s\n", title);
    json_object_foreach((json_t *)groups, name, sums) {
        out_text("  ");
        out_visible(name, false);
        out_printf("%*s%6llu %10s\n", strlen(name) < 36 ? 36 - (int)strlen(name) : 1, "",
                   (unsigned long long)cache_number(sums, "entries"),
                   cache_bytes(cache_number(sums, "bytes"), bytes));
    }
}

int cache_stats(kiln_ctx *ctx, const cli_args *args, const char *folder) {
    cache_entries e;
    char bytes[32];
    if (!cache_entries_read(ctx, NULL, 0, false, &e)) return CLI_FAILED;
    json_t *sums = add_up(&e, folder);
    cache_entries_free(&e);
    if (args->json) {
        out_json(sums);
        return CLI_OK;
    }
    out_text("folder:        ");
    out_visible(folder, false);
    out_printf("\nentries:       %llu\nbytes:         %s\nsigned:        %llu\nother builds:  %llu\n",
               (unsigned long long)cache_number(sums, "entries"),
               cache_bytes(cache_number(sums, "bytes"), bytes),
               (unsigned long long)cache_number(sums, "signed"),
               (unsigned long long)cache_number(sums, "other_builds"));
    print_groups("by operator:", json_object_get(sums, "operators"));
    print_groups("by level:", json_object_get(sums, "levels"));
    print_groups("refused:", json_object_get(sums, "refused"));
    json_decref(sums);
    return CLI_OK;
}

/* -- verify ---------------------------------------------------------------------------------------------- */

static void print_refused(const json_t *e) {
    out_printf("%s  %s%s%s: ", cache_text(e, "id"), out_colour(COLOUR_BAD), cache_text(e, "cause"),
               out_colour(COLOUR_OFF));
    out_visible(cache_text(e, "fault"), false);
    out_text("\n");
}

int cache_verify(kiln_ctx *ctx, const cli_args *args, const char *folder) {
    cache_entries e;
    if (!cache_entries_read(ctx, NULL, KILN_CACHE_LOAD, false, &e)) return CLI_FAILED;
    json_t *refused = json_array();
    for (size_t k = 0; k < e.n; k++) {
        if (!*cache_text(e.at[k], "cause")) continue;
        json_array_append(refused, e.at[k]);
        if (!args->json) print_refused(e.at[k]);
    }
    size_t n = e.n, nrefused = json_array_size(refused);
    if (args->json) {
        out_json(json_pack("{s:o,s:I,s:o}", "folder", cli_json_text(folder), "entries", (json_int_t)n,
                           "refused", refused));
    } else {
        if (n)
            out_printf("%zu entr%s checked, %zu refused\n", n, n == 1 ? "y" : "ies", nrefused);
        else
            print_none(folder);
        json_decref(refused);
    }
    cache_entries_free(&e);
    return nrefused ? CLI_FAILED : CLI_OK;
}
