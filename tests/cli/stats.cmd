# KILN_STATS=1: what a process' calls and builds came to, on standard error
times='s/[0-9][0-9]*\.[0-9] *ms/N ms/; s/  *[0-9]*[1-9][0-9]*\.[0-9]$/ N/'
KILN_STATS=1 kiln run 'neg(f32[3])' 'neg(f32[4])' 'add(f32[2], f64[2])' 2>&1 >/dev/null | sed "$times" | sort
KILN_STATS=1 kiln run --mode=interp 'neg(f32[3])' 2>&1 >/dev/null
KILN_STATS=0 kiln run 'neg(f32[3]:fill=0)' 2>&1
KILN_STATS=yes kiln run 'neg(f32[3])' 2>&1
