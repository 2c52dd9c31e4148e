kiln run 'add.Tensor(f32[2], f32[2]:fill=ones)'
