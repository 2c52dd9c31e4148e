kiln explain --stage=ir 'cummax(f32[4,8], 1)'
