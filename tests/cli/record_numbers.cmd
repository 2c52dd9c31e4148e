# A float that is whole is recorded as a float, since an int is another number to promotion.
cd "$TMP"
KILN_RECORD=calls KILN_MODE=interp kiln run 'add(i8[3], 3.0)' 'mul(i32[3], -0.0)' 'mul(f64[3], 3)' >results
cat calls
