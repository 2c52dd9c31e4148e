/* row_digest.c - the digest of a row: of its text and of the rules for complex numbers that it is computed by.
 *
 * Comments and the layout of white space do not count, so two texts of one digest are one row.  Owns nothing.  Must not know what
 * a row says. */
#include <ctype.h>

#include "op/row.h"

void kiln_row_fold(kiln_sb *out, const char *text, size_t n) {
    size_t first = out->len;
    bool quoted = false, blank = false;
    for (size_t k = 0; k < n; k++) {
        if (text[k] == '#' && !quoted) {
            while (k < n && text[k] != '\n') k++;
        }
        if (k < n && (quoted || !isspace((unsigned char)text[k]))) {
            if (blank && out->len > first) kiln_sb_putc(out, ' ');
            blank = false;
            if (text[k] == '"') quoted = !quoted;
            if (quoted && text[k] == '\\' && k + 1 < n) kiln_sb_putc(out, text[k++]); /* \" does not end it */
            kiln_sb_putc(out, text[k]);
        } else {
            blank = true;
        }
    }
}

kiln_status kiln_row_digest(const char *text, size_t n, kiln_digest *out) {
    kiln_sb folded;
    kiln_sb_init(&folded);
    kiln_row_fold(&folded, text, n);
    bool failed = folded.failed;
    if (!failed) *out = kiln_hash128(folded.p ? folded.p : "", folded.len);
    kiln_sb_fini(&folded);
    return failed ? KILN_NOMEM() : KILN_OK;
}

void kiln_row_set_rules(kiln_row *row, const kiln_crules *rules, kiln_digest digest) {
    bool complex = row->takes & (KILN_DT(KILN_C64) | KILN_DT(KILN_C128));
    kiln_digest pair[2] = {row->digest, digest};
    row->rules = rules;
    if (kiln_rules(row)->set_rules) kiln_rules(row)->set_rules(row, rules, digest);
    if (complex) row->digest = kiln_hash128(pair, sizeof pair);
}
