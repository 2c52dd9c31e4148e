/* frags.c - picks math fragments: names a kernel uses -> the C text that defines them.
 *
 * The embedded .inc texts are indexed once: a name leads to its fragment.  A fragment needs those whose
 * names occur in it, so a walk over identifiers, depth first, gives the closure in an order that
 * compiles.  Knows no primitive and no C beyond identifiers and comments. */
#include <pthread.h>
#include <string.h>

#include "math/math.h"
#include "math/text.h"

enum { MAX_FRAGS = 1024, MAX_NAMES = 1536, CELLS = 4096 };

typedef struct frag {
    const char *text; /* after the marker line */
    size_t len;
} frag;

typedef struct name {
    const char *p;
    uint16_t len;
    uint16_t frag;
} name;

static struct {
    frag frag[MAX_FRAGS];
    name name[MAX_NAMES];
    uint16_t cell[CELLS]; /* open addressing: 1 + the name's number, 0 is free */
    int nfrag, nname;
    const char *fault; /* what is wrong with the texts, or NULL */
} idx;

/* -- identifiers ---- */

static bool ident_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool ident_char(char c) { return ident_start(c) || (c >= '0' && c <= '9'); }

/* Moves *p to the next identifier before end and returns its length, 0 at the end.  Skips comments and
 * numbers (0x7f800000u holds no name). */
static size_t next_ident(const char **p, const char *end) {
    const char *s = *p;
    while (s < end && !ident_start(*s)) {
        if (s + 1 < end && s[0] == '/' && s[1] == '*') {
            for (s += 2; s + 1 < end && (s[0] != '*' || s[1] != '/'); s++) {}
            s += 2;
        } else if (*s >= '0' && *s <= '9') {
            while (s < end && (ident_char(*s) || *s == '.')) s++;
        } else {
            s++;
        }
    }
    const char *e = s;
    while (e < end && ident_char(*e)) e++;
    *p = s;
    return s < end ? (size_t)(e - s) : 0;
}

/* The cell of a name, or the free one where it would go. */
static uint16_t *find_cell(const char *p, size_t len) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)p[i]) * 16777619u;
    for (;; h++) {
        uint16_t *s = &idx.cell[h % CELLS];
        const name *n = &idx.name[*s ? *s - 1 : 0];
        if (*s == 0 || (n->len == len && memcmp(n->p, p, len) == 0)) return s;
    }
}

/* -- the index ---- */

/* One marker line: [p, end) lists the names of the fragment that follows. */
static void add_names(const char *p, const char *end) {
    for (size_t n; (n = next_ident(&p, end)) != 0; p += n) {
        uint16_t *cell = find_cell(p, n);
        if (*cell || idx.nname == MAX_NAMES) {
            idx.fault = *cell ? "a name has two fragments" : "too many names";
            return;
        }
        idx.name[idx.nname] = (name){p, (uint16_t)n, (uint16_t)idx.nfrag};
        *cell = (uint16_t)++idx.nname;
    }
}

static const char *next_marker(const char *p, const char *end) {
    while (p && p < end && strncmp(p, "/*@", 3) != 0) {
        p = memchr(p, '\n', (size_t)(end - p));
        if (p) p++;
    }
    return p && p < end ? p : NULL;
}

static void index_text(const kiln_text_entry *t) {
    const char *end = t->text + t->len, *mark = next_marker(t->text, end);
    while (mark && !idx.fault) {
        const char *eol = memchr(mark, '\n', (size_t)(end - mark)), *names = mark + 3;
        if (!eol || idx.nfrag == MAX_FRAGS) {
            idx.fault = eol ? "too many fragments" : "a marker without a fragment";
            return;
        }
        add_names(names, eol);
        mark = next_marker(eol + 1, end);
        idx.frag[idx.nfrag++] = (frag){eol + 1, (size_t)((mark ? mark : end) - eol - 1)};
    }
}

static void index_all(void) {
    for (size_t i = 0; i < kiln_text_math_count; i++) index_text(&kiln_text_math[i]);
}

/* -- the walk ---- */

typedef struct walk {
    kiln_sb *out;
    bool seen[MAX_FRAGS]; /* visited, also while its needs are being written: a macro may name itself */
} walk;

static void put_frag(walk *w, int f) {
    if (w->seen[f]) return;
    w->seen[f] = true;
    const char *p = idx.frag[f].text, *end = p + idx.frag[f].len;
    for (size_t n; (n = next_ident(&p, end)) != 0; p += n) {
        uint16_t id = *find_cell(p, n);
        if (id) put_frag(w, idx.name[id - 1].frag);
    }
    kiln_sb_putn(w->out, idx.frag[f].text, idx.frag[f].len);
}

static kiln_status put_name(walk *w, const char *text) {
    uint16_t id = *find_cell(text, strlen(text));
    if (!id) return KILN_BUG("src/math has no fragment for '%s'", text);
    put_frag(w, idx.name[id - 1].frag);
    return KILN_OK;
}

static const char *isa_macro(kiln_isa isa) {
    switch (isa) {
    case KILN_ISA_GENERIC: return "KILN_ISA_GENERIC";
    case KILN_ISA_V2: return "KILN_ISA_X86_V2";
    case KILN_ISA_V3: return "KILN_ISA_X86_V3";
    case KILN_ISA_V4: return "KILN_ISA_X86_V4";
    case KILN_ISA_A64: return "KILN_ISA_A64";
    case KILN_ISA_COUNT: break;
    }
    return "KILN_ISA_GENERIC";
}

static void need_index(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, index_all);
}

bool kiln_math_has(const char *name) {
    need_index();
    return *find_cell(name, strlen(name)) != 0;
}

kiln_status kiln_math_source(kiln_sb *out, kiln_isa isa, int lanes, const char *const *names, int n) {
    walk w = {out, {0}};
    need_index();
    if (idx.fault) return KILN_BUG("the embedded math texts: %s", idx.fault);
    kiln_sb_printf(out, "#define KILN_W %d\n#define KILN_VB %d\n#define %s 1\n", lanes,
                   kiln_isa_vector_bytes(isa), isa_macro(isa));
    KILN_TRY(put_name(&w, "types"));
    for (int i = 0; i < n; i++) KILN_TRY(put_name(&w, names[i]));
    return out->failed ? KILN_NOMEM() : KILN_OK;
}
