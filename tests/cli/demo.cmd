kiln demo >$TMP/text
echo "status $?"
grep -cE '^  first call .* us  the interpreter$' $TMP/text
grep -cE '^  again .* us  the interpreter; a kernel came after [0-9]+ ms$' $TMP/text
grep -cE '^  again .* us  the kernel$' $TMP/text
grep -cE '^  new (shape|rank|value) .* us  the same kernel: nothing is built$' $TMP/text
tail -n 1 $TMP/text
awk 'length > 110' $TMP/text
