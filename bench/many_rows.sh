#!/bin/sh
# many_rows.sh OUT ROWS.ops ... - writes the rows nine more times, each time with names of their own: kiln::copyN_NAME.
# With them a library has ten times the rows; bench/open.sh shows that opening it costs no more.
set -eu
out=$1
shift
awk '
    /^(map|fold|scan|index|compose) / { keep = 1; text[n++] = $0; head[n - 1] = 1; next }
    /^[^ \t#]/ { keep = 0 }
    keep { text[n++] = $0 }
    END {
        for (copy = 1; copy < 10; copy++)
            for (k = 0; k < n; k++) {
                line = text[k]
                if (head[k] && line !~ /^[a-z]+ +[a-z]+::/) sub(/^[a-z]+ +/, "&kiln::copy" copy "_", line)
                else if (head[k]) sub(/^[a-z]+ +[a-z]+::/, "&copy" copy "_kiln_", line) # there may be both
                print line
            }
    }' "$@" >"$out"
