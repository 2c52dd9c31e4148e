kiln explain --all 'add.Tensor(f32[4,8], f32[8], alpha=2)' | grep '^== '
for stage in schema bind plan key ir source asm; do
    kiln explain --stage=$stage 'add.Tensor(f32[4,8], f32[8], alpha=2)' >$TMP/stage
    test -s $TMP/stage && echo $stage
    [ $stage != plan ] || cp $TMP/stage $TMP/plan
done
kiln explain 'add.Tensor(f32[4,8], f32[8], alpha=2)' | cmp - $TMP/plan && echo "plan is the default"
kiln explain --stage=infer 'neg(f32[2])'
kiln explain --all --stage=ir 'neg(f32[2])'
