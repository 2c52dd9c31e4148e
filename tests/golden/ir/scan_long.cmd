kiln explain --stage=ir 'cummax(f32[100000], 0)'
