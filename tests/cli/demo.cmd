kiln demo >$TMP/text
echo "status $?"
grep -c 'same bits$' $TMP/text
grep -c DIFFER $TMP/text
tail -n 1 $TMP/text | sed 's/calls, [1-9][0-9]* /calls, N /'
awk 'length > 100' $TMP/text
