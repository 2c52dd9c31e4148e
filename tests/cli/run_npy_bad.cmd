printf '\223NUMPY\001\000\377\377{' >$TMP/short.npy
kiln run 'bitwise_not(@/nonexistent.npy)' || echo "status $?"
cd $TMP && kiln run 'bitwise_not(@short.npy)'
