# numbers above those of i64, exactly; and what PyTorch does not promote
kiln run --json --mode interp \
    'mul.Tensor(u64[1]:fill=18446744073709551615, u64[1]:fill=1)' \
    'mul.Scalar(u64[1]:fill=1, 18446744073709551615)' \
    'mul.Scalar(u16[2]:fill=65535, 2)' \
    'bitwise_and.Tensor(u32[1]:fill=4294967295, u32[1]:fill=4278190081)'
kiln run 'mul.Tensor(u16[2], i32[2])'
