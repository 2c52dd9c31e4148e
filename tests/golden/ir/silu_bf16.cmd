kiln explain --isa=generic --stage=ir 'silu(bf16[4,8])'
