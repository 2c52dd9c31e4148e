# shape, rank and scalar value are not in the key
kiln explain --stage=key 'add.Tensor(f32[4,8], f32[4,8], alpha=2)' 'add.Tensor(f32[2,3,5], f32[2,3,5], alpha=7)' | tail -n 1
