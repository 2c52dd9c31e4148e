KILN_CC=/nonexistent/cc kiln run --json 'add.Tensor(f32[2,3]:fill=1, f32[3]:fill=arange, alpha=2)'
