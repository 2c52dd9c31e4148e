kiln ops check >$TMP/text
echo "status $?"
grep -c '^FAIL' $TMP/text
tail -n 1 $TMP/text | sed 's/[1-9][0-9]*/N/g'
kiln ops check --json | grep -o '"failed":0}$'
