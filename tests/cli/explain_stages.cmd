kiln explain 'add.Tensor(f32[4,8], f32[8], alpha=2)' | grep '^== '
for stage in schema bind infer key ir source asm; do
    kiln explain --stage=$stage 'add.Tensor(f32[4,8], f32[8], alpha=2)' >$TMP/stage
    test -s $TMP/stage && echo $stage
done
