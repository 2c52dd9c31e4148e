kiln explain --stage=bind 'add.Tensor(f32[4,8], f32[8], alpha=2)'
