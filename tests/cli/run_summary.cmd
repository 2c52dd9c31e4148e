kiln run --mode interp 'bitwise_not(i32[40,50]:fill=arange)'
