#!/bin/sh
# check_size.sh [-v] - keeps files and functions small, and file names unique in the tree.
#   file     500 lines soft, 1,000 hard        header    200 soft
#   function  40 lines soft,    80 hard        parameters  6 soft        (nesting: clang-tidy, .clang-tidy)
# Passing a hard limit fails; passing a soft one is counted, and listed with -v.  In a function, lines of a
# flat table or switch do not count: one-line cases, table rows in braces, and X-macro lines.
# KILN_ROOT: another tree to look at.
cd "${KILN_ROOT:-$(dirname "$0")/..}" || exit 2
files=$(find include src cli python bench examples tests tools -name '*.[ch]' -o -name '*.inc' -o -name '*.def' | sort)

twice=$(for file in $files; do basename "$file"; done | sort | uniq -d)
for name in $twice; do
    echo "$name: name used more than once:" $(for file in $files; do case $file in */"$name") echo "$file" ;; esac; done)
done

# shellcheck disable=SC2086
awk -v verbose="${1:-}" '
function over(where, what, n, soft, hard, unit) {
    if (!unit) unit = "lines"
    if (hard && n > hard) { printf "%s: %s of %d %s, at most %d\n", where, what, n, unit, hard; bad = 1 }
    else if (n > soft) { nsoft++; if (verbose == "-v") printf "%s: %s of %d %s, better %d\n", where, what, n, unit, soft }
}
# Commas of the first brackets in a signature, but those of attributes, plus one.
function parameters(head,    i, c, depth, n) {
    gsub(/__attribute__\(\([a-z_]*\)\)/, "", head)
    n = 1
    for (i = index(head, "("); i <= length(head); i++) {
        c = substr(head, i, 1)
        if (c == "(") depth++
        else if (c == ")" && !--depth) break
        else if (c == "," && depth == 1) n++
    }
    return n
}
function finish() {
    if (file == "" || file ~ /\.def$/) return
    over(file, "file", lines, file ~ /\.h$/ ? 200 : 500, 1000)
}
FNR == 1 { finish(); file = FILENAME; infunction = 0; signature = 0 }
{ lines = FNR }
FILENAME !~ /\.[ch]$/ { next }

# A function starts at column 0 (its signature may take several lines) and ends with "}" at column 0.
!infunction && signature { head = head $0 }
!infunction && /^[A-Za-z_]/ { signature = FNR; head = $0 }
!infunction && signature && /\{$/ {
    if ($0 ~ /^(struct|union|enum|typedef|extern)/ || $0 ~ /= *\{$/ || $0 !~ /\)( *[A-Z_]+)? *\{$/) { signature = 0; next }
    infunction = 1; flat = 0; start = signature
    if (FILENAME ~ /^(src|cli|python)\//) over(FILENAME ":" start, "function", parameters(head), 6, 0, "parameters")
    next
}
!infunction && /;$/ { signature = 0 }
infunction && /^[ \t]+(case .*:.*;|default:.*;|\{.*\},?|\[.*\] *=.*,)( *\/\*.*\*\/)?$/ { flat++ }
infunction && /^#(define|undef|include)/ { flat++ }
infunction && /^\}/ {
    over(FILENAME ":" start, "function", FNR - start + 1 - flat, 40, 80)
    infunction = 0; signature = 0
}
END {
    finish()
    if (nsoft) printf "%d files or functions over the soft limit%s\n", nsoft, verbose == "-v" ? "" : " (tools/check_size.sh -v lists them)"
    exit bad
}' $files && [ -z "$twice" ]
