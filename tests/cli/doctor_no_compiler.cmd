# a problem, which the exit status tells
KILN_CC=/nonexistent/cc kiln doctor >$TMP/text
echo "status $?"
grep -c '^  !' $TMP/text | sed 's/^[1-9][0-9]*$/some/'
KILN_CC=/nonexistent/cc kiln doctor --json >$TMP/json
echo "status $?"
grep -o '"problems":\["' $TMP/json
sed -n '/^Missing/,$p' $TMP/text
