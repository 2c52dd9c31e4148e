kiln explain --stage=plan '_cdist_forward(f32[50,16], f32[40,16], 1, 2)'
