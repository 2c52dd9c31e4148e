/* index_ops.c - build tool: checks the rows that ship and writes where each operator, row and rule stands.
 *
 *   index_ops OUT.c SCHEMAS ROWS.ops ...
 *
 * Loads the rows as a user's would be loaded, so that a row that is wrong stops the build with its file, line and
 * column.  Writes the tables of src/op/shipped.h and the order of PyTorch's schemas (src/schema/schema_list.h).
 * Files are in the order in which tools/embed.c embeds them.  Runs on the machine that builds: sizes, offsets and
 * digests are the same on every other. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_entry.h"
#include "op/shipped.h"

/* This program has none: it makes them. */
const kiln_shipped_index kiln_shipped;
const kiln_text_entry kiln_text_ops[] = {{0, 0, 0}};
const char kiln_text_schemas[] = "";
const kiln_schema_list kiln_torch_schemas;

enum { MAX_FILES = 1024, MAX_TEXTS = 65535 };

typedef struct row_place {
    kiln_shipped_text text;
    char name[64]; /* of a rule; "" for a row */
} row_place;

static kiln_row_text files[MAX_FILES];
static int nfiles;
static row_place *rows, *rules;
static size_t nrows, nrules;
static kiln_schema_list list;

static void fail(const char *what) {
    fprintf(stderr, "index_ops: %s\n", what);
    exit(1);
}

static void must(kiln_status st) {
    if (st != KILN_OK) fail(kiln_last_error());
}

/* Messages name a file with its folder, as an editor that stands in the project's finds it. */
static const char *with_folder(const char *path) {
    const char *at = strrchr(path, '/');
    while (at && at > path && at[-1] != '/') at--;
    return at ? at : path;
}

static void read_file(const char *path) {
    char *text;
    if (nfiles == MAX_FILES) fail("too many files of rows");
    must(kiln_file_read(path, &text, &files[nfiles].n));
    files[nfiles].text = text;
    files[nfiles++].source = with_folder(path);
}

/* Operators of other namespaces are their users' to load. */
static void check_namespaces(const kiln_registry *r) {
    for (size_t k = 0; k < kiln_registry_count(r); k++) {
        const kiln_op *op;
        const char *name = kiln_registry_name(r, k);
        if (strncmp(name, "aten::", 6) == 0 || strncmp(name, "kiln::", 6) == 0) continue;
        must(kiln_registry_get(r, k, &op));
        fprintf(
            stderr,
            "index_ops: %s:%d: %s: rows that ship are PyTorch's operators, or kiln::... that such rows call\n",
            op->row->source, op->row->line, name);
        exit(1);
    }
}

/* -- where rows stand ---------------------------------------------------------------------------------------- */

static kiln_status note_row(void *user, const char *source, const char *text, size_t n, int line) {
    const kiln_row_text *file = user;
    bool is_rule = n > 8 && memcmp(text, "complex ", 8) == 0;
    row_place **places = is_rule ? &rules : &rows;
    size_t *count = is_rule ? &nrules : &nrows;
    (void)source;
    if (*count == MAX_TEXTS || line > UINT16_MAX) fail("too many rows");
    *places = kiln_realloc(*places, (*count + 1) * sizeof **places);
    if (!*places) fail("out of memory");
    row_place *p = &(*places)[(*count)++];
    *p = (row_place){
        .text = {(uint32_t)(text - file->text), (uint32_t)n, (uint16_t)(file - files), (uint16_t)line}};
    if (is_rule) snprintf(p->name, sizeof p->name, "%.*s", (int)strcspn(text + 8, "( "), text + 8);
    return KILN_OK;
}

static size_t row_of(const kiln_op *op) {
    for (size_t k = 0; k < nrows; k++)
        if (rows[k].text.line == op->row->line &&
            strcmp(files[rows[k].text.file].source, op->row->source) == 0)
            return k;
    fail(op->name);
    return 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const row_place *)a)->name, ((const row_place *)b)->name);
}

/* -- writing --------------------------------------------------------------------------------------------------- */

static void write_text(FILE *out, kiln_shipped_text t) {
    fprintf(out, "{%" PRIu32 ", %" PRIu32 ", %u, %u}", t.start, t.n, t.file, t.line);
}

static void write_list(FILE *out) {
    fprintf(out, "static const uint32_t starts[] = {");
    for (size_t k = 0; k < list.nlines; k++)
        fprintf(out, "%s%" PRIu32 ",", k % 12 ? " " : "\n    ", list.starts[k]);
    fprintf(out,
            "\n};\nconst kiln_schema_list kiln_torch_schemas = {kiln_text_schemas, %zu, starts, %zu};\n\n",
            list.n, list.nlines);
}

/* Operators and rules refer to their names by offset. */
static void write_ops(FILE *out, const kiln_registry *r) {
    size_t n = kiln_registry_count(r), at = 0;
    fprintf(out, "static const kiln_shipped_op ops[] = {\n");
    for (size_t k = 0; k < n; k++) {
        const kiln_op *op;
        kiln_schema_line line = {.text = list.text};
        must(kiln_registry_get(r, k, &op));
        bool listed = kiln_schema_list_find(&list, op->name, strlen(op->name), &line);
        fprintf(out, "    {%zu, %zu, %zu, %d, %d}, /* %s */\n", at,
                listed ? (size_t)(line.text - list.text) : 0, row_of(op), (int)op->form, (int)op->row->family,
                op->name);
        at += strlen(op->name) + 1;
    }
    fprintf(out, "    {0, 0, 0, 0, 0}};\nstatic const kiln_shipped_rule rules[] = {\n");
    for (size_t k = 0; k < nrules; k++) {
        fprintf(out, "    {%zu, ", at);
        write_text(out, rules[k].text);
        fprintf(out, "}, /* %s */\n", rules[k].name);
        at += strlen(rules[k].name) + 1;
    }
    fprintf(out, "    {0, {0, 0, 0, 0}}};\nstatic const char names[] =\n");
    for (size_t k = 0; k < n; k++) fprintf(out, "    \"%s\\0\"\n", kiln_registry_name(r, k));
    for (size_t k = 0; k < nrules; k++) fprintf(out, "    \"%s\\0\"\n", rules[k].name);
    fprintf(out, "    \"\";\n");
}

static void write_rows(FILE *out) {
    fprintf(out, "static const kiln_shipped_text rows[] = {\n");
    for (size_t k = 0; k < nrows; k++) {
        fprintf(out, "    ");
        write_text(out, rows[k].text);
        fprintf(out, ",\n");
    }
    fprintf(out, "    {0, 0, 0, 0}};\n\n");
}

static void write_index(FILE *out, const kiln_registry *r) {
    kiln_digest d = kiln_registry_rules_digest(r);
    fprintf(out, "static _Atomic(const kiln_op *) op[%zu];\n", kiln_registry_count(r) + 1);
    fprintf(out, "static _Atomic(const kiln_row *) row[%zu];\n", nrows + 1);
    fprintf(out, "static _Atomic(const kiln_crule *) rule[%zu];\n", nrules + 1);
    fprintf(out, "const kiln_shipped_index kiln_shipped = {\n    names, ops, %zu, rows, rules, %zu,\n",
            kiln_registry_count(r), nrules);
    fprintf(out, "    {UINT64_C(%" PRIu64 "), UINT64_C(%" PRIu64 ")}, op, row, rule};\n", d.lo, d.hi);
}

int main(int argc, char **argv) {
    kiln_arena arena;
    kiln_registry *r;
    char *schemas;
    size_t n;
    if (argc < 3) fail("usage: index_ops OUT.c SCHEMAS ROWS.ops ...");
    kiln_arena_init(&arena);
    must(kiln_file_read(argv[2], &schemas, &n));
    must(kiln_schema_list_make(&arena, schemas, n, &list));
    for (int k = 3; k < argc; k++) read_file(argv[k]);
    must(kiln_registry_new(NULL, files, nfiles, &list, false, &r));
    check_namespaces(r);
    for (int k = 0; k < nfiles; k++) must(kiln_rows_split(&files[k], note_row, &files[k]));
    if (nrules) qsort(rules, nrules, sizeof *rules, by_name);
    char part[4096]; /* becomes OUT.c when it is whole */
    if (snprintf(part, sizeof part, "%s.part", argv[1]) >= (int)sizeof part) fail("the path is too long");
    FILE *out = fopen(part, "wb");
    if (!out) fail("cannot write its output");
    fprintf(out, "/* Made by tools/index_ops.c; do not edit. */\n#include \"base/text_entry.h\"\n");
    fprintf(out, "#include \"op/shipped.h\"\n\n");
    write_list(out);
    write_ops(out, r);
    write_rows(out);
    write_index(out, r);
    if (fclose(out) != 0 || rename(part, argv[1]) != 0) fail("cannot write its output");
    kiln_registry_free(r);
    kiln_arena_free(&arena);
    for (int k = 0; k < nfiles; k++) kiln_free((char *)files[k].text);
    kiln_free(schemas);
    kiln_free(rows);
    kiln_free(rules);
    return 0;
}
