kiln explain --stage=plan 'cumsum(f32[4,8,16], 1)'
