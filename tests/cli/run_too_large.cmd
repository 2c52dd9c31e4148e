kiln run 'bitwise_not(u8[1000000,1000000])'
