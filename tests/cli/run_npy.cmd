# a 2 x 3 array of i16 in C order, then in Fortran order
for order in False True; do
    header="{'descr': '<i2', 'fortran_order': $order, 'shape': (2, 3), }"
    { printf '\223NUMPY\001\000'; printf "\\$(printf %03o ${#header})\\000"; printf %s "$header"
      printf '\001\000\002\000\003\000\004\000\005\000\006\000'; } >"$TMP/a file.npy"
    kiln run --json --mode interp "bitwise_not(@'$TMP/a file.npy')"
done
