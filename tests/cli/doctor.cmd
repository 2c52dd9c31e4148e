kiln doctor >$TMP/text && grep -c '^!' $TMP/text
kiln doctor --json | grep -o '"problems":\[\]'
