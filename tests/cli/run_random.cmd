# the same text gives the same input, whatever else was called
kiln run --json --mode interp 'bitwise_not(i32[100])' >$TMP/a
kiln run --json --mode interp 'bitwise_not(i32[3])' 'bitwise_not(i32[100])' | tail -n 1 >$TMP/b
cmp $TMP/a $TMP/b && echo same
