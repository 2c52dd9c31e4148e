kiln explain --stage=plan 'nll_loss_forward(f32[4,8], i64[4]:fill=3, f32[8], 1, -100)'
