kiln explain --stage=ir 'binary_cross_entropy(f32[4], f32[4], reduction=2)'
