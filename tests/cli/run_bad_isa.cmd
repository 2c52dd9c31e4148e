kiln run --isa=abacus 'bitwise_not(i32[2])'
