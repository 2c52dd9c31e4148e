KILN_CC=/nonexistent/cc kiln demo >$TMP/text
echo "status $?"
grep -c ' us  the interpreter$' $TMP/text
grep -c kernel: $TMP/text
tail -n 2 $TMP/text
