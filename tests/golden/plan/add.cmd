kiln explain --stage=plan 'add.Tensor(f32[4,8], f32[8], alpha=2)'
