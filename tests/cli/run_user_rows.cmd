# rows of the user's are operators like any other; ops check types them too
cat >$TMP/mine.ops <<'END'
map mine::twice_plus(Tensor self, Scalar k) -> Tensor : takes float = self + self + k
END
kiln run --json --mode interp --ops=$TMP/mine.ops 'mine::twice_plus(f32[2]:fill=1.5, 1)'
kiln ops check $TMP/mine.ops | grep -c ' mine::twice_plus '
