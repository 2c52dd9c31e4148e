kiln explain --stage=plan 'cumsum(f32[100000], 0)'
