"""kiln.torch.define: rows as operators of PyTorch's, with all that PyTorch asks of one."""
import contextlib
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
    ("user::a", "map user::a(Tensor x) -> Tensor : takes float = x * y", ValueError, "unknown name 'y'"),
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


SIZES = r"user::a: a condition on sizes \(size, span, numel, single, alike, covers\) cannot be traced, so PyTorch cannot have the row"


@pytest.mark.parametrize("rest, text", [
    *((f"(Tensor x, Tensor y) -> Tensor : takes float = x + y\n    check {condition} : \"no\"", SIZES)
      for condition in ("span(x, 0) > 1", "numel (x) == numel(y)", "single(x)", "alike(x, y)", "covers(x, y)", "not (rank(x) == 1 and size(x,\n 0) > 1)")),
    ("(Tensor x) -> Tensor : takes float = x * k\n    host k = numel(x)", SIZES),
    ("(Tensor x) -> Tensor : takes float = x\n    grad x = grad * numel(x)", SIZES),
    *((f"(Tensor x, Tensor(a!) y, int k) -> Tensor : takes float = acc + x from 0\n    {clauses}\n    kept y",
       f"user::a: the clause {word!r} cannot be traced, so PyTorch cannot have the row")
      for word, clauses in (("writes", "writes y = acc\n    view x [k, 2]"), ("view", "view x [k, 2]\n    writes y = acc"))),
    ("(Tensor x, bool k) -> Tensor : takes float = acc + x from 0\n    gives k", "user::a: the clause 'gives' cannot be traced, so PyTorch cannot have the row"),
])
def test_rows_that_cannot_be_traced(rest, text):
    family = "fold" if " from 0" in rest else "map"
    with pytest.raises(NotImplementedError, match=f"^{text}$"):
        kiln.torch.define("user::a", f"{family} user::a{rest}")


def test_words_that_are_no_functions_and_no_clauses():
    """Comments, messages, names of operators and of arguments, and a line that goes on with one."""
    op = kiln.torch.define("user::size", """
        # numel(x) is not asked
        map user::size(Tensor x, Tensor rest, Scalar view) -> Tensor : takes float = x * view +
            rest  # not size(x, 0)
            check view > 0 value : "size(x, 0): view (of x) must be above 0"
            # view x [2, 2]
            doc "view (x), or alike(x, rest)"
    """)
    x, rest = drawn(3, grad=False), drawn(3, grad=False, seed=1)
    torch.testing.assert_close(op(x, rest, 2), x * 2 + rest)
    with pytest.raises(ValueError, match=r"size\(x, 0\): view \(of x\) must be above 0"):
        op(x, rest, 0)


@pytest.mark.parametrize("text, found", [
    ("alias user::a = aten::sigmoid", 0), ("complex user_a(x) = x", 0), ("# nothing", 0),
    ("complex user_a(x) = x\n" + SQUARE.format("a"), 2), (SQUARE.format("a") + "\n# more\n" + SQUARE.format("a"), 2),
    (SQUARE.format("a") + "\nmap user::b(Tensor", 2),
])
def test_texts_that_are_not_one_row(text, found):
    with pytest.raises(ValueError, match=rf"^user::a: one row is wanted, as in 'map user::a\(Tensor x\).*; found {found}$"):
        kiln.torch.define("user::a", text)


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


# -- another row takes the place of one ----------------------------------------------------------------------------------------------------------

def everything_of(name, x):
    """What programs see of a unary operator: handles, values, gradients, batches, traced results, its row."""
    packet = getattr(torch.ops.user, name)
    leaf = x.clone().requires_grad_()
    first, = torch.autograd.grad(packet(leaf).sum(), leaf, create_graph=True)
    second, = torch.autograd.grad(first.sum(), leaf)
    fake = torch.empty_like(x, device="meta")
    kernel = kiln.op(f"user::{name}.default").__self__
    return (packet, packet.default, packet.default(x).tolist(), kiln.call(f"user::{name}", x).tolist(), first.tolist(), second.tolist(),
            torch.func.vmap(packet)(x).tolist(), packet(fake).dtype, str(packet.default._schema), kernel.row, kernel.schema,
            [row.operator for row in kiln.torch.status().rows if row.operator.startswith(f"user::{name}")])


REFUSED = {
    "no derivative": ("(Tensor x) -> Tensor : takes float = airy_ai(x)", NotImplementedError, "no derivative of 'airy_ai'"),
    "no derivative, another schema": ("(Tensor y) -> Tensor : takes float = airy_ai(y)", NotImplementedError, "no derivative of 'airy_ai'"),
    "a Python keyword": ("(Tensor class) -> Tensor : takes float = class * class", ValueError, "found 'class'"),
    "an unknown name": ("(Tensor x) -> Tensor : takes float = x * y", ValueError, "unknown name 'y'"),
    "a torn text": ("(Tensor x -> Tensor : takes float = x", ValueError, "expected"),
    "a keyword-only tensor": ("(Tensor x, *, Tensor y) -> Tensor : takes float = x * y", NotImplementedError, "kwarg-only Tensor"),
    "many tensors": (f"({', '.join(f'Tensor x{k}' for k in range(33))}) -> Tensor : takes float = {' + '.join(f'x{k}' for k in range(33))}",
                     ValueError, "at most 24"),
    "many arguments": (f"(Tensor x, {', '.join(f'Scalar n{k}' for k in range(33))}) -> Tensor : takes float = x * {' * '.join(f'n{k}' for k in range(33))}",
                       NotImplementedError, "arguments that cannot be passed on"),
    "a wrong gradient": ("(Tensor x) -> Tensor : takes float = x\n    grad x = gred", ValueError, "cannot see 'gred'"),
    "a gradient's name that is taken": ("(Tensor other) -> Tensor : takes float = other * other", ValueError, "user::{name}_grad_other already"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_replacement_changes_nothing(why):
    rest, error, text = REFUSED[why]
    name = f"refused_{list(REFUSED).index(why)}"
    op = kiln.torch.define(f"user::{name}", SQUARE.format(name))
    kiln.torch.define(f"user::{name}_grad_other", SQUARE.format(f"{name}_grad_other"))
    x = drawn(3, grad=False)
    recorded = x.clone().requires_grad_()
    out = op(recorded).sum()
    before = everything_of(name, x)
    with pytest.raises(error, match=text.format(name=name)):
        kiln.torch.define(f"user::{name}", f"map user::{name}{rest}", replace=True)
    assert everything_of(name, x) == before and before[1] is op
    out.backward()
    assert torch.equal(recorded.grad, 2 * x)
    kiln.torch.define(f"user::{name}", f"map user::{name}(Tensor x) -> Tensor : takes float = x * 5", replace=True)
    assert torch.equal(op(x), x * 5)


STEPS = [(torch.library.Library, "define"), (torch.library.Library, "impl"), (torch.library, "register_fake"),
         (torch.library, "register_vmap"), (kiln._kiln, "define_rows"), (kiln._kiln, "bridge_own")]
REPLACEMENTS = {"equal schemas": "(Tensor x) -> Tensor : takes float = sin(x)",
                "another schema of the gradient": "(Tensor x) -> Tensor : takes float = exp(x)\n    grad x = grad * result",
                "another schema": "(Tensor y) -> Tensor : takes float = y * y * y"}


@pytest.mark.parametrize("step", range(len(STEPS)), ids=[what for _, what in STEPS])
@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_a_failure_at_any_step_changes_nothing(kind, step, monkeypatch):
    """A function that registers something fails at its n-th call, for each n until the replacement succeeds."""
    where, what = STEPS[step]
    real, calls, nth = getattr(where, what), 0, 0
    x, name = drawn(3, grad=False), f"steps_{list(REPLACEMENTS).index(kind)}_{step}"
    op = kiln.torch.define(f"user::{name}", SQUARE.format(name))
    before = everything_of(name, x)

    def failing(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == nth:
            raise MemoryError("planted")
        return real(*args, **kwargs)

    while calls >= nth:
        assert everything_of(name, x) == before and before[1] is op
        calls, nth = 0, nth + 1
        with monkeypatch.context() as patch, contextlib.suppress(MemoryError):
            patch.setattr(where, what, failing)
            kiln.torch.define(f"user::{name}", f"map user::{name}{REPLACEMENTS[kind]}", replace=True)
    assert nth > 1 or kind == "equal schemas" and where is not kiln._kiln
    assert everything_of(name, x) != before


def test_a_replacement_of_equal_schema():
    op = kiln.torch.define("user::swap", SQUARE.format("swap"))
    x, packet = drawn(3, grad=False), torch.ops.user.swap
    everything_of("swap", x)
    rows = {"exp(x)\n    grad x = grad * result": (x.exp(),) * 3, "x * x * x": (x ** 3, 3 * x * x, 6 * x), "exp(x)": (x.exp(),) * 3, "sin(x)": (x.sin(), x.cos(), -x.sin()),
            "x * x": (x * x, 2 * x, torch.full_like(x, 2))}
    for body, (value, first, second) in [*rows.items(), *rows.items()]:
        assert kiln.torch.define("user::swap", f"map user::swap(Tensor x) -> Tensor : takes float = {body}", replace=True) is op
        assert torch.ops.user.swap is packet and packet.default is op
        seen = everything_of("swap", x)
        for got, want in zip(seen[2:7], (value, value, first, second, value)):
            torch.testing.assert_close(torch.tensor(got, dtype=x.dtype), want)
        assert gradcheck(op, (drawn(3),)) and gradgradcheck(op, (drawn(3),))
        assert set(opcheck(op, (drawn(3),)).values()) == {"SUCCESS"}
    kiln.torch.define("user::swap", "map user::swap(Tensor x) -> Tensor : takes float -> bool = x > 0", replace=True, differentiable=False)
    assert op(x).dtype == packet(torch.empty(3, device="meta")).dtype == torch.bool
    with torch._subclasses.FakeTensorMode() as mode:
        assert op(mode.from_tensor(x)).dtype == torch.bool
    kiln.torch.define("user::swap", SQUARE.format("swap"), replace=True)
    with torch._subclasses.FakeTensorMode() as mode:
        assert op(mode.from_tensor(x)).dtype == x.dtype


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_before_a_replacement(backend):
    """What was compiled runs the new row where the schema is the same, and raises where it is another."""
    name = f"compiled_{backend}"
    kiln.torch.define(f"user::{name}", SQUARE.format(name))
    run = torch.compile(lambda x: getattr(torch.ops.user, name)(x) + 1, fullgraph=True, backend=backend)
    x = drawn(3)
    torch.testing.assert_close(run(x), x * x + 1)
    kiln.torch.define(f"user::{name}", f"map user::{name}(Tensor x) -> Tensor : takes float = x * x * x", replace=True)
    out = run(x)
    torch.testing.assert_close(out, x * x * x + 1)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), x)[0], 3 * x.detach() ** 2)
    kiln.torch.define(f"user::{name}", f"map user::{name}(Tensor x, Tensor y) -> Tensor : takes float = x * y", replace=True)
    with pytest.raises((RuntimeError, TypeError), match=name):
        run(x)
    torch._dynamo.reset()


def test_a_call_recorded_before_a_replacement():
    """Its gradient would be the new row's, which is wrong."""
    op = kiln.torch.define("user::before", SQUARE.format("before"))
    x = drawn(3)
    out, other = op(x).sum(), op(x).sum()
    out.backward()
    kiln.torch.define("user::before", "map user::before(Tensor x) -> Tensor : takes float = x * x * x", replace=True)
    with pytest.raises(RuntimeError, match="user::before was replaced after this call of it was recorded"):
        other.backward()
    torch.testing.assert_close(torch.autograd.grad(op(x).sum(), x)[0], 3 * x.detach() ** 2)


def test_old_handles_after_a_replacement_of_another_schema():
    old = kiln.torch.define("user::handles", SQUARE.format("handles"))
    packet, gradient = torch.ops.user.handles, None
    x = drawn(3)
    out = old(x).sum()
    gradient = torch.ops.user.handles_grad_x.default
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    table = {old: 1, packet: 2}
    new = kiln.torch.define("user::handles", "map user::handles(Tensor a, Tensor b) -> Tensor : takes float = a * b", replace=True)
    for call in (lambda: old(x), lambda: packet(x), lambda: packet.default(x), lambda: old.redispatch(keys, x), lambda: gradient(x, x), out.backward,
                 lambda: torch.func.vmap(old)(x), lambda: kiln.call(old, x)):
        with pytest.raises((RuntimeError, TypeError), match="handles"):
            call()
    assert table[old] == 1 and table[packet] == 2
    assert new is torch.ops.user.handles.default and new is not old
    torch.testing.assert_close(new(x, x), x * x)
    assert gradcheck(new, (x, drawn(3, seed=1)))


def test_another_overload_outlives_a_replacement():
    one = kiln.torch.define("user::pair", "map user::pair(Tensor x, Tensor y) -> Tensor : takes float = x * y")
    two = kiln.torch.define("user::pair.Scalar", "map user::pair.Scalar(Tensor x, Scalar y) -> Tensor : takes float = x * y")
    packet, x = torch.ops.user.pair, drawn(3)
    kiln.torch.define("user::pair", "map user::pair(Tensor a, Tensor b, Tensor c) -> Tensor : takes float = a * b * c", replace=True)
    for call in (two, packet, torch.ops.user.pair, torch.ops.user.pair.Scalar):
        torch.testing.assert_close(call(x, 2), 2 * x)
    torch.testing.assert_close(torch.ops.user.pair(x, x, x), x * x * x)
    with pytest.raises(RuntimeError, match="user::pair is not defined any more"):
        one(x, x)


def test_only_define_replaces_what_it_defined():
    kiln.torch.define("user::mine", SQUARE.format("mine"))
    x = drawn(3)
    torch.ops.user.mine(x).sum().backward()
    for name in ("mine", "mine_grad_x"):
        with pytest.raises(RuntimeError, match=f"user::{name} was defined by kiln.torch.define"):
            kiln.load_ops(f"map user::{name}(Tensor x) -> Tensor : takes float = x * 3", replace=True)
    kiln.load_ops(SQUARE.format("mine"), replace=True)  # nothing new
    torch.testing.assert_close(torch.autograd.grad(torch.ops.user.mine(x).sum(), x)[0], 2 * x.detach())


def test_a_new_context_has_the_rows_of_the_old_one():
    """Of replaced rows the last; and the one before that a row loaded meanwhile calls."""
    run_alone("""if True:
        import kiln, torch, kiln.torch
        def define(n):
            return kiln.torch.define("user::f", f"map user::f(Tensor x) -> Tensor : takes float = x * {n}", replace=True)
        x = torch.ones(())
        define(1), define(2)
        kiln.load_ops("compose user::g(Tensor x) -> Tensor\\n    call user::f(x)")
        op = define(3)
        for n in range(3, 6):
            assert [op(x).item(), kiln.call("user::f", x).item(), kiln.call("user::g", x).item()] == [n, n, 2]
            kiln.configure(mode="interp")
            assert [op(x).item(), kiln.call("user::f", x).item(), kiln.call("user::g", x).item()] == [n, n, 2]
            define(n + 1)
        print("fine")
    """)


def run_alone(code, *args):
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "fine\n", (done.returncode, done.stdout[-2000:] + done.stderr[-4000:])


def test_replacing_while_threads_call():
    """Values are one row's, and a gradient is that of the row that made the value."""
    run_alone("""if True:
        import sys, threading, torch, kiln, kiln.torch
        bodies = ["x * x", "x * x * x", "x * 1", "exp(x)\\n    grad x = grad * result"]  # their gradients have several schemas
        def define(k):
            return kiln.torch.define("user::f", f"map user::f(Tensor x) -> Tensor : takes float = {bodies[k % 4]}", replace=True)
        op, x, stop, wrong, calls = define(0), torch.full((5,), 2.0), threading.Event(), [], [0] * 7
        e2 = torch.exp(x)[0].item()
        right = {4.0: (4.0, 2.0), 8.0: (12.0, 12.0), 2.0: (1.0, 0.0), e2: (e2, e2)}
        def recorded(order):
            leaf = x.clone().requires_grad_()
            value, grads = op(leaf), []
            out = value.sum()
            for k in range(order):
                out, = torch.autograd.grad(out.sum(), leaf, create_graph=True)
                grads.append(out[0].item())
                if not out.requires_grad:
                    break
            if any(abs(g - w) > 1e-5 for g, w in zip(grads, right[value[0].item()])):
                wrong.append((value[0].item(), grads))
        def loop(place, one):
            while not stop.is_set():
                try:
                    one()
                    calls[place] += 1
                except RuntimeError as error:
                    if "was replaced after" not in str(error) and "is not defined any more" not in str(error):
                        wrong.append(repr(error))
        def plain(call):
            def one():
                if call(x)[0].item() not in right:
                    wrong.append("value")
            return one
        ways = [plain(op), plain(lambda x: torch.ops.user.f(x)), plain(lambda x: torch.func.vmap(op)(x)), plain(lambda x: kiln.call("user::f", x)),
                lambda: recorded(1), lambda: recorded(2), lambda: op(torch.empty(5, device="meta"))]
        threads = [threading.Thread(target=loop, args=each) for each in enumerate(ways)]
        sys.setswitchinterval(1e-5)
        for t in threads: t.start()
        k = 0
        while k < 1000 or (min(calls) < 20 and k < 100000):
            define(k)
            k += 1
        stop.set()
        for t in threads: t.join()
        assert not wrong, wrong[:3]
        assert min(calls) >= 20, calls
        print("fine")
    """)


MANY = """if True:
    import os, sys, gc, torch, kiln, kiln.torch
    def define(k):
        row = {"equal": "(Tensor x) -> Tensor : takes float = x * {}", "two schemas": "(Tensor {c}) -> Tensor : takes float = {c} * {}",
               "ever new schemas": "(Tensor x{}) -> Tensor : takes float = x{} * {}"}[sys.argv[1]].format(k, k, k, c="xy"[k % 2])
        return kiln.torch.define("user::f", "map user::f" + row, replace=True)
    def resident():
        gc.collect()
        return int(open("/proc/self/statm").read().split()[1]) * 4
    for k in range(1, 101):
        define(k)
    before, n = resident(), 500 if "ASAN_OPTIONS" in os.environ else 5000
    for k in range(1, n + 1):
        op = define(k)
    grown = (resident() - before) / n
    assert grown < 60, f"{grown} KB for each redefinition"
    x = torch.ones(3, requires_grad=True)
    op(x).sum().backward()
    assert x.grad.tolist() == [n] * 3
    rows = {row.operator: row for row in kiln.torch.status().rows}
    assert rows["user::f"].defined and rows["user::f"].served == 1 and len(rows) == 2, rows
    kiln.torch.enable("all")
    taken = sum(row.taken for row in kiln.torch.status().rows)
    assert taken == sum(kiln._kiln.bridge_fit(name) == 0 for name in kiln._kiln.ops() if name.startswith("aten::")) > 1000, taken
    assert torch.neg(torch.ones(3)).tolist() == [-1] * 3
    assert {row.operator: row.served for row in kiln.torch.status().rows}["aten::neg"] == 1
    kiln.torch.disable()
    kiln.configure(mode="interp")  # loads the last rows again, and not all of them
    assert op(x).tolist() == [n] * 3
    print("fine")
"""


@pytest.mark.parametrize("schemas", ["equal", "two schemas", "ever new schemas"])
def test_redefinitions_exhaust_nothing(schemas):
    run_alone(MANY, schemas)


def test_enable_says_what_it_could_not_take(monkeypatch):
    real = kiln._kiln.bridge_take
    with kiln.torch.enabled(["exp", "neg"]):
        before = kiln.torch._taken()
        with monkeypatch.context() as patch:
            patch.setattr(kiln._kiln, "bridge_take", lambda name: 4 if name == "aten::sin" else real(name))
            with pytest.raises(RuntimeError, match="1 of 3 operators could not be taken.*aten::sin: PyTorch has no kernel for it"):
                kiln.torch.enable(["cos.default", "sin.default", "tan.default"])
        assert kiln.torch._taken() == before
