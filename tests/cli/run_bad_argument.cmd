kiln run 'add.Tensor(f32[2])'
