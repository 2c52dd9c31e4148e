kiln explain --stage=ir 'nll_loss_backward(f32[], f32[4,8], i64[4]:fill=3, f32[8], 1, -100, f32[])'
