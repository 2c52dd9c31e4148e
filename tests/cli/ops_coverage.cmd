kiln ops --coverage | awk 'NF == 3 && $2 <= $3 { print $1, "of", $3 }'
kiln ops --coverage --json | grep -o '"reduction":{"served":71,"of":71,"missing":\[\]}'
kiln ops --coverage --json | grep -o '"core":{"served":[0-9]*,"of":193,"missing":\['| sed 's/served":[0-9]*/served":N/'
kiln ops --coverage add; echo $?
