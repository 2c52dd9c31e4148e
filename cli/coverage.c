/* coverage.c - `kiln ops --coverage`: how many of PyTorch's overloads are served, by PyTorch's tags.
 *
 * The overloads and their tags are ops/aten-tags-2.13.tsv, embedded; what is served says the registry. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

extern const char aten_tags_text[];

enum { ALL = 3, GROUPS = 4, NAME_MAX_BYTES = 128 };
static const char *const groups[GROUPS] = {"core", "pointwise", "reduction",
                                           "all"}; /* the last: any tags or none */

typedef struct coverage {
    long served[GROUPS], of[GROUPS];
    json_t *missing[GROUPS]; /* NULL: not asked for */
} coverage;

/* Whether the words of tags[0..n), with commas between them, have this one. */
static bool has_tag(const char *tags, size_t n, const char *word) {
    size_t length = strlen(word);
    for (const char *p = tags, *end = tags + n; p < end;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        size_t here = (size_t)((comma ? comma : end) - p);
        if (here == length && memcmp(p, word, length) == 0) return true;
        p += here + 1;
    }
    return false;
}

/* A name without overload finds a lone overload, too: that is another operator. */
static bool is_served(kiln_ctx *ctx, const char *name) {
    char full[NAME_MAX_BYTES + 8];
    const kiln_op *op;
    snprintf(full, sizeof full, "aten::%s", name);
    return kiln_op_find(ctx, full, &op) == KILN_OK && strcmp(kiln_op_name(op), full) == 0;
}

static void count(coverage *c, kiln_ctx *ctx, const char *name, const char *tags, size_t n) {
    bool served = is_served(ctx, name);
    for (int g = 0; g < GROUPS; g++) {
        if (g != ALL && !has_tag(tags, n, groups[g])) continue;
        c->of[g]++;
        c->served[g] += served;
        if (!served && c->missing[g]) json_array_append_new(c->missing[g], json_string(name));
    }
}

/* Each line is a name, a tab, and its tags. */
static void count_lines(coverage *c, kiln_ctx *ctx) {
    for (const char *line = aten_tags_text; *line;) {
        const char *end = strchr(line, '\n'), *tab = memchr(line, '\t', (size_t)(end - line));
        char name[NAME_MAX_BYTES];
        if (*line != '#' && tab && tab - line < NAME_MAX_BYTES) {
            snprintf(name, sizeof name, "%.*s", (int)(tab - line), line);
            count(c, ctx, name, tab + 1, (size_t)(end - tab - 1));
        }
        line = end + 1;
    }
}

void cli_coverage(kiln_ctx *ctx, bool json) {
    coverage c;
    memset(&c, 0, sizeof c);
    for (int g = 0; json && g < GROUPS; g++) c.missing[g] = json_array();
    count_lines(&c, ctx);
    json_t *all = json ? json_object() : NULL;
    if (!json) out_printf("%-24s %8s %8s\n", "PyTorch 2.13's overloads", "served", "of");
    for (int g = 0; g < GROUPS; g++) {
        if (json)
            json_object_set_new(all, groups[g],
                                json_pack("{s:I,s:I,s:o}", "served", (json_int_t)c.served[g], "of",
                                          (json_int_t)c.of[g], "missing", c.missing[g]));
        else
            out_printf("%-24s %8ld %8ld\n", groups[g], c.served[g], c.of[g]);
    }
    if (json)
        out_json(all);
    else
        out_text("With --json also the names of those that are not.\n");
}
