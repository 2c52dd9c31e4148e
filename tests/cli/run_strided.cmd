kiln run --json --mode interp 'bitwise_not(i32[2,3]:strides=(1,2):fill=arange)'
