/* embed.c - build tool: turns text files into C arrays, or into a digest of them all.
 *
 *   embed OUT.c [-i INDEX] SYMBOL=PATH ...
 *   embed OUT.c -d SYMBOL PATH ...
 *
 * Defines `const char SYMBOL[]` and `const size_t SYMBOL_len` for each file.  With -i, the files after
 * it are also listed in `const kiln_text_entry INDEX[]`, in the order given, with `INDEX_count`.  With -d, SYMBOL is
 * 32 hexadecimal digits: other bytes, or another order of files, give others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, const char *name) {
    fprintf(stderr, "embed: %s %s\n", what, name);
    exit(1);
}

/* The bytes of path as lines of string literals. */
static void literal(FILE *out, FILE *in) {
    int c, col = 0;
    fputs("    \"", out);
    while ((c = fgetc(in)) != EOF) {
        if (col++ == 100) fputs("\"\n    \"", out), col = 1;
        if (c == '\n') {
            fputs("\\n\"\n    \"", out);
            col = 0;
        } else if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c < 32 || c > 126 || c == '?') { /* ?: no trigraphs */
            fprintf(out, "\\%03o", (unsigned)c);
        } else {
            fputc(c, out);
        }
    }
    fputs("\"", out);
}

static void embed(FILE *out, const char *symbol, const char *path) {
    FILE *in = fopen(path, "rb");
    if (!in) fail("cannot read", path);
    fprintf(out, "extern const char %s[];\nextern const size_t %s_len;\n", symbol, symbol);
    fprintf(out, "const char %s[] =\n", symbol);
    literal(out, in);
    fprintf(out, ";\nconst size_t %s_len = sizeof %s - 1;\n", symbol, symbol);
    if (ferror(in)) fail("cannot read", path);
    fclose(in);
}

static void index_row(FILE *out, const char *symbol, const char *path) {
    const char *slash = strrchr(path, '/'), *stem = slash ? slash + 1 : path;
    fprintf(out, "    {\"%.*s\", %s, sizeof %s - 1},\n", (int)strcspn(stem, "."), stem, symbol, symbol);
}

/* FNV-1a of 128 bits over the bytes of each file and its length. */
static void digest(FILE *out, const char *symbol, char **paths) {
    const unsigned __int128 prime = ((unsigned __int128)1 << 88) + 0x13b;
    unsigned __int128 h = ((unsigned __int128)0x6c62272e07bb0142 << 64) + 0x62b821756295c58d;
    for (; *paths; paths++) {
        FILE *in = fopen(*paths, "rb");
        unsigned long long n = 0;
        if (!in) fail("cannot read", *paths);
        for (int c; (c = fgetc(in)) != EOF; n++) h = (h ^ (unsigned)c) * prime;
        if (ferror(in)) fail("cannot read", *paths);
        fclose(in);
        for (int k = 0; k < 8; k++, n >>= 8) h = (h ^ (n & 255)) * prime;
    }
    fprintf(out, "extern const char %s[];\nconst char %s[] = \"%016llx%016llx\";\n", symbol, symbol,
            (unsigned long long)(h >> 64), (unsigned long long)h);
}

int main(int argc, char **argv) {
    const char *index = NULL;
    int first = argc;
    if (argc < 2) fail("usage: embed OUT.c [-i INDEX] SYMBOL=PATH ... or embed OUT.c -d SYMBOL PATH ...", "");
    FILE *out = fopen(argv[1], "wb");
    if (!out) fail("cannot write", argv[1]);
    fputs("/* Made by tools/embed.c; do not edit. */\n#include \"base/text_entry.h\"\n", out);
    if (argc > 4 && strcmp(argv[2], "-d") == 0) {
        digest(out, argv[3], argv + 4);
        argc = 2;
    }
    for (int i = 2; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        if (strcmp(argv[i], "-i") == 0 && i + 1 < argc) {
            index = argv[++i];
            first = i + 1;
            continue;
        }
        if (!eq) fail("expected SYMBOL=PATH, not", argv[i]);
        *eq = 0;
        embed(out, argv[i], eq + 1);
    }
    if (index) {
        fprintf(out, "extern const kiln_text_entry %s[];\nextern const size_t %s_count;\n", index, index);
        fprintf(out, "const kiln_text_entry %s[] = {\n", index);
        for (int i = first; i < argc; i++) index_row(out, argv[i], argv[i] + strlen(argv[i]) + 1);
        fprintf(out, "    {0, 0, 0},\n};\nconst size_t %s_count = %d;\n", index, argc - first);
    }
    if (fclose(out) != 0) fail("cannot write", argv[1]);
    return 0;
}
