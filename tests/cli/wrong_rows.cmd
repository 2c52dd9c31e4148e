# mistakes that beginners make: each message names the mistake, shows its place and says the way out
wrong() {
    printf '%s\n' "$1" >my.ops
    kiln ops check my.ops 2>&1
    echo
}
cd $TMP
wrong 'map my::f(Tensor x, Tensor y) -> Tensor : = 2*x + sinn(y)**2'
wrong 'map my::f(Tensor x) -> Tensor : = 2*x + z'
wrong 'map my::f(Tensor c, Tensor a, Tensor b) -> Tensor : = where(c, a, b)'
wrong 'map my::f(Tensor c, Tensor a, Tensor b) -> Tensor : = a if c else b'
wrong 'map my::f(Tensor x) -> Tensor : = sin(x)'
wrong 'map my::f(Tensor x) -> Tensor : = x - 1'
wrong 'map my::f(Tensor x) -> Tensor : takes float = x ^ 2'
wrong 'map my::f(Tensor x) -> Tensor : takes float = x > 0 && x < 1 ? x : 0'
wrong 'map my::f(Tensor x) -> Tensor : takes float = math.sin(x)'
wrong 'map my::f(Tensor x) -> Tensor : takes float = sum(x)'
wrong 'map my::f(Tensor x) -> Tensor : takes flaot = x'
wrong 'map f(Tensor x) -> Tensor : takes float = x + 1'
wrong 'my::f(x) = x + 1'
wrong 'map my::f(Tensor x, Tensor y) -> Tensor : takes float = x + 1'
wrong 'map my::f(Tensor x) -> Tensor : takes float = x +'
wrong 'map my::f(Tensor x) -> Tensor : takes float = (x + 1'
wrong 'map my::f(Tensor x) -> Tensor : takes float = relu(x)'
wrong 'map my::f(Tensor x) -> Tensor : takes float = dot(x, x)'
wrong 'map my::f(Tensor x) -> Tensor : takes float = mean(x)'
wrong 'map my::f(Tensor x) -> Tensor : takes float = Sin(x)'
wrong 'map my::f(Tensor x) -> Tensor : takes float = tahn(x)'
wrong 'map my::f(Tensor x) -> Tensor : takes float = x > 0 ? True : x'
wrong 'map my::f(Tensor x) -> Tensor : takes float = sin x'
wrong 'map my::f(Tensor x) -> Tensor : takes float = 2x + 1'
wrong 'map my::f(Tensor x) -> Tensor takes float = x + 1'
wrong 'map my::f(Tensor x) -> Tensor : takes float = x²'
wrong 'map my::f(Tensor x) -> Tensor : takes float = a*x;'
wrong 'map my::f(Tensor x) -> Tensor : takes float = x.sin()'
wrong 'map my::f(Tensor x) -> Tensor : takes float = e**x'
wrong 'map my::f(Tensor x) -> Tensor : takes float = x & 1'
wrong 'map my::f(Tensor x) -> Tensor : takes float = x == 1'
wrong 'map my::f(Tensor x) -> Tensor : takes float -> float32 = x'
wrong 'fold my::f(Tensor x) -> Tensor : takes float = sum(x)'
wrong 'map my::f(x) -> Tensor : takes float = x'
wrong 'map my::f(tensor x) -> Tensor : takes float = x'
wrong 'map my::f(Tensor x, Number a) -> Tensor : takes float = x*a'
wrong 'map my::f(float32 x) -> Tensor : takes float = x'
# a comment and rows behind the mistake do not move its place
wrong 'map my::f(Tensor x) -> Tensor : takes float = 2 *  # twice

map my::g(Tensor x) -> Tensor : takes float = x'
