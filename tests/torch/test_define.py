"""kiln.torch.define: rows as operators of PyTorch's, with all that PyTorch asks of one."""
import subprocess
import sys

import pytest
import torch
import torch._dynamo.testing
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck

import kiln
import kiln.torch

torch._dynamo.config.cache_size_limit = 64

ROWS = {
    "user::swiglu": "map user::swiglu(Tensor x, Tensor gate) -> Tensor : takes float = x * gate * sigmoid(gate)",
    "user::softshrink": """
        map user::softshrink(Tensor self, Scalar width, *, Scalar slope=1) -> Tensor : takes float = abs(self) > width ? slope * (self - sign(self) * width) : 0
            doc "zero near zero"
    """,
    "user::sumsq": """
        fold user::sumsq(Tensor self, Tensor weight, int[1] dim=[], bool keepdim=False) -> Tensor : takes float = acc + self * self * weight from 0
            over dim keep keepdim
    """,
}


def swiglu_want(x, gate):
    return x * torch.nn.functional.silu(gate)


def softshrink_want(self, width, *, slope=1):
    return torch.where(self.abs() > width, slope * (self - self.sign() * width), 0.0)


def sumsq_want(self, weight, dim=(), keepdim=False):
    return (self * self * weight).sum(dim, keepdim)


for _name, _row in ROWS.items():
    kiln.torch.define(_name, _row)


def drawn(*shape, dtype=torch.float64, grad=True, seed=0):
    made = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 1.3
    return made.to(dtype).requires_grad_(grad)


# Operator, PyTorch's way, arguments, keywords.
CASES = [
    (torch.ops.user.swiglu, swiglu_want, lambda **kw: (drawn(4, 3, **kw), drawn(3, seed=1, **kw)), {}),
    (torch.ops.user.swiglu, swiglu_want, lambda **kw: (drawn(3, 1, **kw), drawn(2, 1, 4, seed=1, **kw)), {}),
    (torch.ops.user.softshrink, softshrink_want, lambda **kw: (drawn(5, 2, **kw), 0.5), {"slope": 2}),
    (torch.ops.user.sumsq, sumsq_want, lambda **kw: (drawn(3, 4, 2, **kw), drawn(4, 1, seed=1, **kw), [1, -1]), {}),
    (torch.ops.user.sumsq, sumsq_want, lambda **kw: (drawn(3, 4, **kw), drawn(1, 4, seed=1, **kw), [0], True), {}),
    (torch.ops.user.sumsq, sumsq_want, lambda **kw: (drawn(3, 4, **kw), drawn(seed=1, **kw)), {}),
]
IDS = ["broadcast", "both broadcast", "scalar and condition", "fold", "fold keepdim", "fold of all"]
cases = pytest.mark.parametrize("op, want, make, keywords", CASES, ids=IDS)


@cases
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_values(op, want, make, keywords, dtype):
    args = make(dtype=dtype, grad=False)
    got, expected = op(*args, **keywords), want(*args, **keywords)
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, **({"rtol": 2e-2, "atol": 1e-1} if dtype == torch.bfloat16 else {}))


@cases
def test_gradients(op, want, make, keywords):
    args = make()
    got = torch.autograd.grad(op(*args, **keywords).sum(), [a for a in args if isinstance(a, torch.Tensor)])
    expected = torch.autograd.grad(want(*args, **keywords).sum(), [a for a in args if isinstance(a, torch.Tensor)])
    torch.testing.assert_close(got, expected)
    assert gradcheck(lambda *a: op(*a, **keywords), args)
    assert gradgradcheck(lambda *a: op(*a, **keywords), args)


@pytest.mark.parametrize("op, want, make, keywords", [CASES[0], CASES[2], CASES[3]], ids=[IDS[0], IDS[2], IDS[3]])
def test_opcheck(op, want, make, keywords):
    assert set(opcheck(op.default, make(), keywords).values()) == {"SUCCESS"}


LAYOUTS = {
    "transposed": lambda: (drawn(3, 4).t(), drawn(3, 4, seed=1).t()),
    "one transposed": lambda: (drawn(4, 3), drawn(3, 4, seed=1).t()),
    "channels last": lambda: (drawn(2, 3, 4, 5).to(memory_format=torch.channels_last), drawn(3, 1, 1, seed=1)),
    "gaps": lambda: (drawn(4, 6)[:, ::2], drawn(3, seed=1)),
    "expanded": lambda: (drawn(1, 3).expand(4, 3), drawn(4, 1, seed=1).expand(4, 3)),
    "ones": lambda: (drawn(1, 3, 1).transpose(0, 2), drawn(1, 1, 1, seed=1)),
    "empty": lambda: (drawn(0, 3), drawn(3, seed=1)),
    "numbers": lambda: (drawn(), drawn(seed=1)),
    "two dtypes": lambda: (drawn(4, 3, dtype=torch.float32), drawn(3, seed=1)),
    "number of a wider dtype": lambda: (drawn(4, 3, dtype=torch.float32), drawn(seed=1)),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_traced_results_are_the_real_ones(make):
    """dtype, shape and strides, of the operator and of its gradients, and of a fold."""
    from torch._subclasses import FakeTensorMode
    tensors = [t.detach() for t in make()]
    ops = [(torch.ops.user.swiglu, ()), (torch.ops.user.swiglu_grad_gate, "grad"), (torch.ops.user.sumsq, ([],)),
           *([(torch.ops.user.sumsq, ([0],)), (torch.ops.user.sumsq, ([-1], True))] if tensors[0].dim() else [])]
    for op, more in ops:
        args = (torch.ops.user.swiglu(*tensors), *tensors) if more == "grad" else (*tensors, *more)
        real = op(*args)
        with FakeTensorMode() as mode:
            fake = op(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args))
        assert (fake.dtype, fake.shape) == (real.dtype, real.shape), op
        strides = [(f, r) for f, r, n in zip(fake.stride(), real.stride(), real.shape) if n > 1]
        assert real.numel() == 0 or all(f == r for f, r in strides), (op, fake.stride(), real.stride())


@pytest.mark.parametrize("op, want, make, keywords", [CASES[0], CASES[2], CASES[3]], ids=[IDS[0], IDS[2], IDS[3]])
def test_dynamic_compiles_once(op, want, make, keywords):
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()

    first = make(dtype=torch.float32)
    others = [a for a in first if not isinstance(a, torch.Tensor)]
    frames = []

    @torch.compile(dynamic=True, fullgraph=True, backend=counter)
    def run(*tensors):
        return op(*tensors, *others, **keywords) * 2

    tensors = [a for a in first if isinstance(a, torch.Tensor)]
    grown = [torch.cat([tensors[0], tensors[0]]).detach().requires_grad_(), *tensors[1:]]
    for args in (tensors, grown):
        got, expected = run(*args), want(*args, *others, **keywords) * 2
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(torch.autograd.grad(got.sum(), args), torch.autograd.grad(expected.sum(), args), rtol=1e-4, atol=1e-5)
        frames.append(counter.frame_count)
    assert frames[0] == frames[1], "the second shape was compiled anew"


def test_inductor():
    x, gate = drawn(4, 3, dtype=torch.float32), drawn(3, dtype=torch.float32, seed=1)
    run = torch.compile(lambda x, gate: torch.ops.user.swiglu(x + 1, gate).relu(), fullgraph=True)
    torch.testing.assert_close(run(x, gate), swiglu_want(x + 1, gate).relu())


def test_export():
    class Model(torch.nn.Module):
        def forward(self, x, gate):
            return torch.ops.user.sumsq(torch.ops.user.swiglu(x, gate), gate, [1])

    x, gate = drawn(4, 3, grad=False), drawn(3, grad=False, seed=1)
    rows = torch.export.Dim("rows", min=2)
    made = torch.export.export(Model(), (x, gate), dynamic_shapes=({0: rows}, None))
    assert "user.swiglu.default" in made.graph_module.code
    longer = torch.cat([x, x, x])
    torch.testing.assert_close(made.module()(longer, gate), sumsq_want(swiglu_want(longer, gate), gate, [1]))


def test_vmap_and_grad():
    x, gate = drawn(4, 3, grad=False), drawn(3, grad=False, seed=1)
    swiglu, sumsq = torch.ops.user.swiglu, torch.ops.user.sumsq
    torch.testing.assert_close(torch.func.vmap(swiglu, (0, None))(x, gate), swiglu_want(x, gate))
    torch.testing.assert_close(torch.func.vmap(swiglu, (1, 0))(x, drawn(3, 4, grad=False)), swiglu_want(x.t(), drawn(3, 4, grad=False)))
    torch.testing.assert_close(torch.func.vmap(swiglu, (None, 0))(x, gate), torch.stack([swiglu_want(x, g) for g in gate]))
    torch.testing.assert_close(torch.func.vmap(lambda a, b: sumsq(a, b, [0]), (0, None))(x, gate), sumsq_want(x, gate, [1]))
    assert torch.func.vmap(lambda a: sumsq(a, gate, [0]))(x[:0]).shape == (0,)
    # A number of a wider dtype does not decide, batched or not.
    numbers = drawn(4, grad=False)
    got = torch.func.vmap(swiglu, (None, 0))(gate.float(), numbers)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, torch.stack([swiglu(gate.float(), n) for n in numbers]))

    got = torch.func.vmap(swiglu, (0, None))(numbers.float(), gate[0])
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, swiglu_want(numbers.float().double(), gate[0]))

    def loss(x, gate, like=swiglu_want):
        return like(x, gate).square().sum()

    def ours(x, gate):
        return loss(x, gate, swiglu)

    torch.testing.assert_close(torch.func.grad(ours, (0, 1))(x, gate), torch.func.grad(loss, (0, 1))(x, gate))
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(ours, 1), (0, None))(x, gate),
                               torch.func.vmap(torch.func.grad(loss, 1), (0, None))(x, gate))
    torch.testing.assert_close(torch.func.jacrev(torch.func.grad(ours, 1), 1)(x, gate),
                               torch.func.jacrev(torch.func.grad(loss, 1), 1)(x, gate))

    def folded(x, gate, like):
        return like(x, gate, [1]).square().sum()

    for transform in (torch.func.grad(folded), torch.func.jacrev(torch.func.grad(folded)),
                      torch.func.vmap(torch.func.grad(lambda a, b, like: like(a, b, [0]).sum()), (0, None, None))):
        torch.testing.assert_close(transform(x, gate, sumsq), transform(x, gate, sumsq_want))


def test_third_order():
    x, gate = drawn(2), drawn(2, seed=1)
    outs = [torch.ops.user.swiglu(x, gate).sum(), swiglu_want(x, gate).sum()]
    for _ in range(3):
        outs = [torch.autograd.grad(out, gate, create_graph=True)[0].sum() for out in outs]
    torch.testing.assert_close(*outs)


def test_autocast_is_left_alone():
    x, gate = drawn(4, 3, dtype=torch.float32), drawn(3, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.ops.user.swiglu(x, gate).dtype == torch.float32


def test_views_of_conjugates_are_resolved():
    op = kiln.torch.define("user::times", "map user::times(Tensor x, Tensor y) -> Tensor : takes float complex = x * y")
    x = torch.randn(5, dtype=torch.complex64)
    assert x.conj().is_conj() and x.conj().imag.is_neg()
    torch.testing.assert_close(op(x.conj(), x), x.conj() * x)
    torch.testing.assert_close(op(x.conj().imag, x.real), x.conj().imag * x.real)
    with pytest.raises(NotImplementedError, match="user::times: gradients of complex tensors are not served"):
        op(x.requires_grad_(), x)


# -- gradients that are stated, of several results, of optionals, by branch ----------------------------------------------------------------------

def test_stated_gradient():
    op = kiln.torch.define("user::norm", """
        fold user::norm(Tensor x, int[1] dim, bool keepdim=False) -> Tensor : takes float
            over   dim keep keepdim
            state  s = 0
            step   s = s + x * x
            merge  s = s + rhs.s
            finish sqrt(s)
            grad   x = grad * x / result
    """)
    x = drawn(3, 4)
    torch.testing.assert_close(op(x, [1]), torch.linalg.vector_norm(x, dim=1))
    assert gradcheck(lambda x: op(x, [1]), (x,)) and gradgradcheck(lambda x: op(x, [0], True), (x,))
    assert set(opcheck(op, (x, [1])).values()) == {"SUCCESS"}


def test_stated_gradient_is_the_one_used():
    op = kiln.torch.define("user::odd", "map user::odd(Tensor x, Tensor y) -> Tensor : takes float = x * y\n    grad x = 3 * grad\n")
    x, y = drawn(2), drawn(2, seed=1)
    got = torch.autograd.grad(op(x, y).sum(), (x, y))
    torch.testing.assert_close(got, (torch.full_like(x, 3), x.detach()))


def test_several_results():
    op = kiln.torch.define("user::polar", """
        map user::polar(Tensor x, Tensor y) -> (Tensor, Tensor, Tensor) : takes float -> (same, same, bool) = hypot(x, y), turned, x > y
            let turned = atan2(y, x)
    """)
    x, y = drawn(4, 3), drawn(3, seed=1)
    for got, want in zip(op(x, y), (torch.hypot(x, y), torch.atan2(y, x), x > y)):
        torch.testing.assert_close(got, want)
    assert gradcheck(lambda x, y: op(x, y)[:2], (x, y)) and gradgradcheck(lambda x, y: op(x, y)[:2], (x, y))
    assert gradcheck(lambda x, y: op(x, y)[1], (x, y))
    assert set(opcheck(op, (x, y)).values()) == {"SUCCESS"}


def test_optionals_and_branches():
    op = kiln.torch.define("user::affine", """
        map user::affine(Tensor x, Tensor? weight=None, *, str? mode=None) -> Tensor : takes float
            when mode == "square" = x * x * or_else(weight, 1)
            when absent(mode) = x * or_else(weight, 1)
            when mode == "zero" = 0 * x
    """)
    x, weight = drawn(4, 3), drawn(3, seed=1)
    for mode, power in (("square", 2), (None, 1)):
        assert gradcheck(lambda x, weight: op(x, weight, mode=mode), (x, weight))
        assert gradcheck(lambda x: op(x, mode=mode), (x,))
        torch.testing.assert_close(op(x, weight, mode=mode), x ** power * weight)
    assert gradgradcheck(lambda x, weight: op(x, weight, mode="square"), (x, weight))
    torch.testing.assert_close(torch.autograd.grad(op(x, mode="zero").sum(), x)[0], torch.zeros_like(x))
    with pytest.raises(RuntimeError, match="affine"):
        op(x, mode="cube")


def test_overloads():
    kiln.torch.define("user::shift", "map user::shift(Tensor x, Tensor y) -> Tensor : takes float = x * y")
    kiln.torch.define("user::shift.Scalar", "map user::shift.Scalar(Tensor x, Scalar y) -> Tensor : takes float = x * x * y")
    x = drawn(3)
    torch.testing.assert_close(torch.ops.user.shift(x, x), x * x)
    torch.testing.assert_close(torch.ops.user.shift(x, 3), x * x * 3)
    assert gradcheck(torch.ops.user.shift, (x, x)) and gradgradcheck(lambda x: torch.ops.user.shift(x, 3), (x,))
    assert set(opcheck(torch.ops.user.shift.Scalar, (x, 3)).values()) == {"SUCCESS"}


def test_integers_beside_floats():
    op = kiln.torch.define("user::scaled", "map user::scaled(Tensor x, Tensor n) -> Tensor : takes real to_float = x * n * n")
    x, n = drawn(4, 3), torch.arange(3)
    assert gradcheck(lambda x: op(x, n), (x,)) and gradgradcheck(lambda x: op(x, n), (x,))
    assert op(n, n).dtype == torch.float32
    torch.testing.assert_close(torch.compile(op, fullgraph=True, backend="eager")(n, n), (n * n * n).float())


def test_a_gradient_keeps_its_arguments_dtype():
    op = torch.ops.user.swiglu
    x, gate = drawn(4, 3, dtype=torch.bfloat16), drawn(3, dtype=torch.float32)
    op(x, gate).sum().backward()
    assert x.grad.dtype == torch.bfloat16 and gate.grad.dtype == torch.float32


# -- what is refused ----------------------------------------------------------------------------------------------------------------------------

SQUARE = "map user::{0}(Tensor x) -> Tensor : takes float = x * x"


@pytest.mark.parametrize("name, row, error, text", [
    ("user::a", SQUARE.format("b"), ValueError, "the row is of user::b, and not of user::a"),
    ("square", "map square(Tensor x) -> Tensor : takes float = x * x", ValueError, "namespace of its own"),
    ("aten::square", "map aten::square(Tensor x) -> Tensor : takes float = x * x", ValueError, "namespace of its own"),
    ("user::a", SQUARE.format("a") + "\n" + SQUARE.format("b"), ValueError, "one row is wanted"),
    ("user::a", "", ValueError, "one row is wanted"),
    ("user::a", 3, TypeError, "as str"),
    ("user::a", "map user::a(Tensor x) -> Tensor : takes float = x * y", TypeError, "unknown name 'y'"),
    ("user::a", "map user::a(Tensor x -> Tensor : takes float = x", ValueError, "expected"),
    ("user::a", "map user::a(Tensor x) -> Tensor : takes float = airy_ai(x)", NotImplementedError, "'x' of user::a.*no derivative of 'airy_ai'"),
    ("user::a", "fold user::a(Tensor x, int[1] dim=[]) -> Tensor : takes float = max(acc, x) from lowest\n    over dim",
     NotImplementedError, "'x' of user::a.*write a 'grad' clause"),
    ("user::a", "map user::a(Tensor x) -> Tensor : takes float = x\n    check size(x, 0) > 1 : \"no\"", NotImplementedError, "sizes"),
    ("user::a", "fold user::a(Tensor x, int k) -> Tensor : takes float = acc + x from 0\n    view x [k, 2]", NotImplementedError, "the clause 'view'"),
    ("user::a", "map user::a(Tensor x) -> Tensor : takes float = x\n    grad y = grad", ValueError, "'y' is no tensor argument"),
    ("user::a", "map user::a(Tensor x) -> Tensor : takes float = x\n    grad x = gred", ValueError, "a gradient cannot see 'gred'"),
])
def test_rows_that_are_refused(name, row, error, text):
    with pytest.raises(error, match=text):
        kiln.torch.define(name, row)
    assert not hasattr(torch.ops.user, "a")


def test_after_a_refused_row_comes_a_right_one():
    with pytest.raises(NotImplementedError):
        kiln.torch.define("user::again", "map user::again(Tensor x) -> Tensor : takes float = airy_ai(x)")
    op = kiln.torch.define("user::again", SQUARE.format("again"))
    torch.testing.assert_close(op(torch.tensor([3.0])), torch.tensor([9.0]))


def test_the_same_row_twice_and_another():
    op = kiln.torch.define("user::twice", SQUARE.format("twice"))
    assert kiln.torch.define("user::twice", SQUARE.format("twice")) is op
    other = "map user::twice(Tensor x, Tensor y) -> Tensor : takes float = x * y"
    with pytest.raises(ValueError, match="user::twice is defined already, by another row"):
        kiln.torch.define("user::twice", other)
    x, y = drawn(3), drawn(3, seed=1)
    torch.testing.assert_close(op(x), x * x)
    op = kiln.torch.define("user::twice", other, replace=True)
    torch.testing.assert_close(op(x, y), x * y)
    assert gradcheck(op, (x, y)) and gradgradcheck(op, (x, y))


def test_a_name_of_somebody_elses():
    library = torch.library.Library("elsewhere", "FRAGMENT")
    library.define("f(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match="PyTorch has an operator elsewhere::f already"):
        kiln.torch.define("elsewhere::f", "map elsewhere::f(Tensor x) -> Tensor : takes float = x * x")


def test_a_gradients_name_that_is_taken():
    kiln.torch.define("user::g_grad_x", "map user::g_grad_x(Tensor x) -> Tensor : takes float = x")
    with pytest.raises(ValueError, match="user::g_grad_x"):
        kiln.torch.define("user::g", SQUARE.format("g"))
    assert not hasattr(torch.ops.user, "g")


def test_without_a_gradient():
    op = kiln.torch.define("user::airy", "map user::airy(Tensor x) -> Tensor : takes float = airy_ai(x)", differentiable=False)
    x = drawn(3)
    torch.testing.assert_close(op(x), torch.special.airy_ai(x))
    with pytest.raises(RuntimeError, match="user::airy was defined with differentiable=False"):
        op(x).sum().backward()


def test_not_inside_a_trace():
    def run(x):
        return kiln.torch.define("user::swiglu", ROWS["user::swiglu"])(x, x)

    with pytest.raises(Exception, match="cannot be called inside a trace"):
        torch.jit.trace(run, (torch.ones(3),))


def test_calls_that_are_refused():
    swiglu, sumsq = torch.ops.user.swiglu, torch.ops.user.sumsq
    with pytest.raises(RuntimeError, match="swiglu.*(size|broadcast)"):
        swiglu(torch.ones(3), torch.ones(4))
    with pytest.raises((TypeError, NotImplementedError, RuntimeError), match="swiglu"):
        swiglu(torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64))
    with pytest.raises(IndexError, match="sumsq|imension"):
        sumsq(torch.ones(3, 4), torch.ones(()), [2])
    with pytest.raises(TypeError, match="user::swiglu: argument 'x' has a dtype that Kiln does not have"):
        swiglu(torch.ones(3).to(torch.float8_e4m3fn), torch.ones(3))
    with pytest.raises(NotImplementedError):
        swiglu(torch.ones(3).to_sparse(), torch.ones(3))
    checked = kiln.torch.define("user::root", """
        map user::root(Tensor x, Scalar n) -> Tensor : takes float = pow(x, 1 / n)
            check n > 0 value : "root(): n must be above 0"
    """)
    with pytest.raises(ValueError, match=r"root\(\): n must be above 0"):
        checked(torch.ones(3), 0)
    torch.testing.assert_close(checked(torch.full((3,), 8.0), 3), torch.full((3,), 2.0))


def test_defined_operators_outlive_enable_and_configure():
    code = """if True:
        import torch, kiln, kiln.torch
        op = kiln.torch.define("user::sq", "map user::sq(Tensor x) -> Tensor : takes float = x * x")
        with kiln.torch.enabled("all"):
            pass
        kiln.torch.disable()
        kiln.configure(mode="interp")
        kiln.load_ops("map other::f(Tensor x) -> Tensor : takes float = x")
        x = torch.full((3,), 2.0, requires_grad=True)
        op(x).sum().backward()
        assert x.grad.tolist() == [4.0] * 3
        assert any(row.operator == "user::sq" and row.served for row in kiln.torch.status().rows)
        print("fine")
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "fine\n", done.stdout + done.stderr


def test_branches_that_no_float_takes():
    op = kiln.torch.define("user::halved", """
        map user::halved(Tensor x) -> Tensor : takes real complex
            when is_int(common) = idiv(x, 2)
            when is_float(common) = x / 2 * x
            when is_complex(common) = complex(re(x), 0)
    """)
    assert gradcheck(op, (drawn(3),))
    assert op(torch.tensor([5])).tolist() == [2]
