kiln run 'add.Tensr(f32[2], f32[2])'
