# a reader that goes away is not an error
{ yes 'bitwise_not(i32[2])' | kiln run --mode interp -; echo "status $?" >$TMP/status; } | head -n 1
cat $TMP/status
