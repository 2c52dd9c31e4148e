KILN_CC=/nonexistent/cc kiln demo >$TMP/text
echo "status $?"
grep -c 'same bits$' $TMP/text
grep -c 'interp  *same bits$' $TMP/text
grep '^Nothing was compiled' $TMP/text
