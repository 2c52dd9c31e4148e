kiln explain 'bitwise_not(i32[4])' 'bitwise_not(i64[4])' >$TMP/text
grep -x 'different classes:' $TMP/text
grep -c '^[-+] ' $TMP/text | sed 's/^[1-9][0-9]*$/some/'
kiln explain --json 'bitwise_not(i32[4])' 'bitwise_not(i64[4])' | grep -o '^{"same_class":false'
