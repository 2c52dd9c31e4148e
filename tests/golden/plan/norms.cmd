kiln explain --stage=plan 'native_batch_norm(f32[4,6,3,5], None, None, f32[6], f32[6], true, 0.1, 1e-5)'
kiln explain --stage=plan 'native_layer_norm_backward(f32[4,6], f32[4,6], [6], f32[4,1], f32[4,1], f32[6], None, [true, true, false])'
kiln explain --stage=plan '_softmax(f32[300,10], -1, false)'
