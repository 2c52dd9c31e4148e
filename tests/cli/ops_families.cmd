# without an operand: families; every operator with --all
kiln ops | awk '{ print $1, ($4 ~ /^[0-9]+$/ && $4 <= $3 ? "counted" : "") }'
kiln ops --json | grep -o '"family":"map"'
test "$(kiln ops --all | tail -n +2 | wc -l)" = "$(kiln ops | awk '$3 ~ /^[0-9]+$/ { n += $3 } END { print n }')" && echo "as many as are counted"
