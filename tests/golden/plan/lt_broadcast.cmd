kiln explain --stage=plan 'lt.Tensor(i32[1,3], f16[2,1])'
