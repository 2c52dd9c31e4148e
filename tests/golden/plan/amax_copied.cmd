kiln explain --stage=plan 'amax(f32[2,3,2,3,2,3], [0, 2, 4])'
