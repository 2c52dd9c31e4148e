#!/bin/sh
# many_rows.sh OUT ROWS.ops ... - writes the rows nine more times, each time with names of their own: kiln::copyN_NAME.
# Rows that are another one's alias, walk lists for it or are like it are left out, as they need its name.
# With them a library has some ten times the rows; bench/open.sh shows that opening it costs no more.
set -eu
out=$1
shift
awk '
    /^(map|fold|scan|index|compose) / { keep = 1; text[n++] = $0; head[n - 1] = 1; next }
    /^[^ \t#]/ { keep = 0 }
    # A copy has another name than OTHER, whose copy may come later: rows that are like another one are left out.
    keep && /^ +like / { for (n--; !head[n]; n--) continue; keep = 0; next }
    keep { sub(/^ +check +torch /, "     check true or "); text[n++] = $0 } # only rows of aten:: have check torch
    END {
        for (copy = 1; copy < 10; copy++)
            for (k = 0; k < n; k++) {
                line = text[k]
                if (head[k] && line !~ /^[a-z]+ +[a-z]+::/) sub(/^[a-z]+ +/, "&kiln::copy" copy "_", line)
                else if (head[k]) sub(/^[a-z]+ +[a-z]+::/, "&copy" copy "_kiln_", line) # there may be both
                print line
            }
    }' "$@" >"$out"
