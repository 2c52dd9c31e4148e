kiln explain --stage=plan 'kthvalue(f32[4, 6], 2, 1, True)'
