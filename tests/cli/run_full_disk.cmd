kiln run --mode interp 'bitwise_not(i32[2])' >/dev/full
