kiln run --jsno 'bitwise_not(i32[2])'
