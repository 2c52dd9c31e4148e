# words where others write options
kiln help >$TMP/all && kiln --help | cmp - $TMP/all && kiln | cmp - $TMP/all && echo "all the same"
kiln help run | head -n 3
kiln version
kiln help rnu
echo "status $?"
kiln version now
echo "status $?"
