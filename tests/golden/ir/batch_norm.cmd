kiln explain --stage=ir 'native_batch_norm(f32[4,6,3,5], None, None, f32[6], f32[6], false, 0.1, 1e-5)'
