echo 'map mine::broken(Tensor self -> Tensor = self' >$TMP/bad.ops
kiln run --ops=$TMP/bad.ops 'bitwise_not(i32[2])' || echo "status $?"
kiln run --ops=$TMP/none.ops 'bitwise_not(i32[2])' || echo "status $?"
kiln ops check $TMP/bad.ops >/dev/null
