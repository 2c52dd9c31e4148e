kiln explain --stage=infer 'lt.Tensor(i32[1,3], f16[2,1])'
