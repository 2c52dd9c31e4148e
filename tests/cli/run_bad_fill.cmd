kiln run 'bitwise_not(u8[2]:fill=300)'
