# file, line and column once, and the whole name
cd "$TMP"
echo 'map my::f(Tensor self) -> Tensor = self + othr' >my.ops
printf '# a comment\nmap my::g(Tensor self -> Tensor = self\n' >schema.ops
echo 'map my::h(Tensor self, Tensor other) -> Tensor = self' >unused.ops
kiln ops check my.ops
kiln ops check schema.ops
kiln ops check - <unused.ops
