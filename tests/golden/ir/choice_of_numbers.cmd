kiln explain --stage=ir 'smooth_l1_loss_backward(f32[], f32[8], f32[8], 2, 1.0)'
