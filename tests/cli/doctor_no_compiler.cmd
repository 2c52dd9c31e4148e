# a warning, not a failure
KILN_CC=/nonexistent/cc kiln doctor >$TMP/text
echo "status $?"
grep -c '^!' $TMP/text | sed 's/^[1-9][0-9]*$/some/'
KILN_CC=/nonexistent/cc kiln doctor --json | grep -o '"problems":\["' 
