# numbers that JSON or a detour through double could spoil
kiln run --json --mode interp \
    'add.Tensor(i64[1]:fill=9223372036854775806, i64[1]:fill=1)' \
    'add.Tensor(f64[2]:fill=inf, f64[2]:fill=1)' \
    'add.Tensor(f64[1]:fill=-inf, f64[1]:fill=inf)' \
    'add.Tensor(f16[2]:fill=0.1, f16[2]:fill=0)' \
    'add.Tensor(f32[]:fill=-0.0, f32[]:fill=-0.0)' \
    'bitwise_not(bool[2]:fill=arange)' \
    'bitwise_not(u8[0,3])'
