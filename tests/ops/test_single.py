"""Single calls that Kiln once answered otherwise than PyTorch, each with the reason for what PyTorch does.

The sweeps of test_map_diff.py may or may not draw such a call.  The comparison is theirs; nothing is known to differ here.
"""
import pytest
import torch

from cases import Case, View, row_major
from compare import with_torch
from test_map_diff import torch_op


class T:
    """A tensor argument: dtype, sizes, strides (row-major if they are left out)."""

    def __init__(self, dtype, sizes, strides=None):
        self.dtype, self.sizes, self.strides = dtype, sizes, row_major(sizes) if strides is None else strides

    def view(self, memory):
        return View(self.dtype, self.sizes, self.strides, 0, memory)


# What PyTorch does; what memory is filled with (see cases.memory); operator, arguments, named arguments.
CALLS = [
    # -- numbers
    ("sub adds -alpha times other: it is -alpha that must fit", "random", [
        ("sub.Tensor", T("i8", (3,)), T("i8", (3,)), {"alpha": 128}),
        ("sub.Tensor", T("i8", (3,)), T("i8", (3,)), {"alpha": -128}),
        ("sub.Tensor", T("i32", (3,)), T("i32", (3,)), {"alpha": 2**31}),
        ("sub.Tensor", T("i32", (3,)), T("i32", (3,)), {"alpha": -(2**31)}),
        ("sub.Scalar", T("i16", (3,)), 2, 2**15),
        ("sub.Scalar", T("i16", (3,)), 2, -(2**15)),
        ("sub_.Tensor", T("i8", (3,)), T("i8", (3,)), {"alpha": -128}),
        ("rsub.Tensor", T("i8", (3,)), T("i8", (3,)), {"alpha": 128}),
        ("rsub.Scalar", T("i8", (3,)), 2, -128),
        ("subtract.Tensor", T("i8", (3,)), T("i8", (3,)), {"alpha": -128}),
        ("subtract.Scalar", T("i8", (3,)), 2, 128),
    ]),
    ("the least integer is its own negative", "random", [
        ("sub.Tensor", T("f32", (3,)), T("f32", (3,)), {"alpha": -(2**63)}),
        ("sub.Tensor", T("c128", (3,)), T("c128", (3,)), {"alpha": -(2**63)}),
    ]),
    ("celu converts 1 / alpha to what it computes in", "random", [
        ("celu", T("f32", (3,)), 1e-40),
        ("celu", T("bf16", (3,)), -1e-40),
        ("celu", T("f32", (3,)), 1e-40 + 0j),
        ("celu_", T("f16", (3,)), 1e-40),
    ]),
    ("the bounds of clamp are converted to a dtype that floats alone decide", "random", [
        ("clamp", T("f32", (3,)), 2 + 0j, None),
        ("clamp", T("f64", (3,)), None, 2 + 0j),
        ("clip", T("bf16", (3,)), -1 + 0j, 2),
        ("clamp_", T("f32", (3,)), 2 + 0j, None),
    ]),
    ("a complex number without an imaginary part is a real one where a real one is asked for", "random", [
        ("softshrink", T("f32", (3,)), 2 + 0j),
        ("hardtanh", T("u8", (3,)), 0 + 0j, 2 + 0j),
        ("leaky_relu_backward", T("f32", (3,)), T("f32", (3,)), 2 + 0j, True),
        ("elu_backward", T("f64", (3,)), 2 + 0j, 1, 1, True, T("f64", (3,))),
    ]),
    ("mul_ rounds the number to a half, mul does not: 0 * infinity is NaN", "special", [
        ("mul_.Scalar", T("f16", (1,)), 2**40),
        ("multiply_.Scalar", T("f16", (1,)), 2**40),
    ]),
    # -- values
    ("a bound that is a number leaves a zero its sign", "special", [
        ("clamp", T("f32", (64,)), 0, 2.5),
        ("clamp_min", T("f16", (64,)), 0),
        ("clamp_max", T("bf16", (64,)), 0),
        ("clip", T("f64", (64,)), None, 0),
        ("relu6", T("f32", (64,))),
        ("relu6_", T("bf16", (5, 7))),
        ("hardtanh", T("f64", (64,)), 0, 2.5),
        ("hardtanh_", T("f64", (64,)), -1, 0),
    ]),
    ("of two zeros fmax and fmin give the first one", "special", [
        ("fmax", T("f32", (1024,)), T("f32", (1024,))),
        ("fmin", T("f64", (1024,)), T("f64", (1024,))),
    ]),
    ("without pos_weight an infinite target is multiplied by nothing", "special", [
        ("binary_cross_entropy_with_logits", T("f32", (64,)), T("f32", (64,)), None, None, 0),
        ("binary_cross_entropy_with_logits", T("f16", (1024,)), T("f16", (1024,)), T("f16", (1024,)), None, 0),
    ]),
    ("a correction that is NaN leaves nothing to divide by", "random", [
        ("var.correction", T("f32", (5, 7)), (1,), {"correction": float("nan")}),
        ("std.correction", T("bf16", (5, 7)), None, {"correction": float("nan")}),
        ("var_mean.correction", T("f64", (5, 1)), (1,), {"correction": float("nan")}),
        ("std_mean.correction", T("f32", (5, 7)), (0,), {"correction": float("nan")}),
    ]),
    # -- refusals
    ("logsumexp of no dimensions does not fit a result that loses all", "random", [
        ("logsumexp", T("f32", (3, 2)), (), False),
        ("logsumexp", T("f32", (3, 2)), (), True),
        ("logsumexp", T("f32", ()), (), False),
        ("logsumexp", T("f32", (2, 0)), (), False),
        ("special_logsumexp", T("f64", (1,)), (), False),
    ]),
    ("the margin of hinge_embedding_loss is a number of the dtype", "random", [
        ("hinge_embedding_loss", T("f16", (3,)), T("f16", (3,)), 7e4, 1),
        ("hinge_embedding_loss", T("f32", (3,)), T("f32", (3,)), -1e40, 0),
        ("hinge_embedding_loss", T("f32", (3,)), T("f32", (3,)), float("inf"), 0),
    ]),
    ("the eps of cosine_similarity is not negative", "random", [
        ("cosine_similarity", T("f32", (3, 4)), T("f32", (3, 4)), 1, -1.5),
        ("cosine_similarity", T("f32", (3, 4)), T("f32", (3, 4)), 1, float("nan")),
        ("cosine_similarity", T("f32", (3, 4)), T("f32", (3, 4)), 1, 0.0),
    ]),
    # -- strides
    ("the strides of self count before those of weight and grad_output", "random", [
        ("_prelu_kernel_backward", T("f32", (5, 2)), T("f32", (2,)), T("f32", (5, 2), (2, 10))),
        ("_prelu_kernel_backward", T("f32", (5, 2), (1, 5)), T("f32", (2,)), T("f32", (5, 2), (2, 1))),
    ]),
    ("the strides of self and buffer count before those of a grad_output that is stretched", "random", [
        ("log_sigmoid_backward", T("f32", (5, 1, 1), (1, 5, 99)), T("f32", (5, 1, 1, 1), (1, 1, 99, 1)),
         T("f32", (5, 5, 1, 1), (5, 1, 5, 1))),
    ]),
    ("the iterators of a number give dimensions of one, and of none, new strides", "random", [
        ("special_ndtr", T("f32", (2, 1, 3, 1), (6, 12, 2, 12))),
        ("isfinite", T("bf16", (2, 1, 3, 1), (6, 12, 2, 12))),
        ("isfinite", T("c64", (1, 5, 1, 1), (10, 2, 10, 10))),
        ("isinf", T("c64", (3, 1, 4), (4, 99, 1))),
        ("native_dropout_backward", T("f32", (3, 1, 4), (1, 99, 3)), T("bool", (3, 1, 4), (1, 99, 3)), 2.0),
        ("native_dropout_backward", T("f32", (1, 4, 3), (2, 1, 4)), T("bool", (1, 4, 3), (2, 1, 4)), 2.0),
        ("native_dropout_backward", T("c128", (2, 0, 1), (1, 1, 99)), T("f32", (2, 0, 1), (1, 1, 99)), 2.0),
        ("native_dropout_backward", T("f16", (2, 1, 0, 1)), T("u32", (2, 0, 1), (1, 2, 2)), 0.5),
    ]),
    ("a power that ldexp makes first has strides of its own", "random", [
        ("ldexp.Tensor", T("c128", (1, 4, 3), (2, 1, 4)), T("i32", (1, 4, 3), (2, 1, 4))),
        ("ldexp.Tensor", T("c64", (1, 1, 0, 1), (1, 2, 1, 2)), T("c64", (4, 1, 0, 1), (1, 4, 4, 4))),
    ]),
    ("a condition of u8 is made bool by a copy, which is dense", "random", [
        ("where.self", T("u8", (5, 7), (0, 1)), T("f32", (5, 7), (1, 5)), T("f32", (5, 7))),
        ("where.self", T("u8", (3, 4), (0, 0)), T("f32", (3, 4), (1, 3)), T("f32", (3, 4), (1, 3))),
        ("where.ScalarSelf", T("u8", (1, 4, 1), (0, 2, 1)), 2, T("u8", (5, 1, 4, 1), (4, 0, 1, 99))),
    ]),
]


def case(fill, name, *args):
    args, kwargs = (args[:-1], args[-1]) if isinstance(args[-1], dict) else (args, {})
    values = tuple(a.view(k) if isinstance(a, T) else a for k, a in enumerate(args))
    return Case(name, values, tuple(kwargs.items()), fill=fill)


SINGLE = [(why, case(fill, *call)) for why, fill, calls in CALLS for call in calls]


@pytest.mark.parametrize("why, c", SINGLE, ids=[str(c).split("   #")[0] for _, c in SINGLE])
def test_is_pytorchs(why, c, interp, sync):
    writes = c.op.partition(".")[0].endswith("_")
    for tier in interp, sync:
        assert with_torch(tier.op(c.op), torch_op(c.op), c, writes=writes, signs=True) is None, why


def test_gradients_of_hardswish_keep_nan(interp, sync):
    """PyTorch's vectors give NaN where the argument is NaN; its single elements give grad_output, so `with_torch` would take either."""
    x = torch.tensor([float("nan"), -5.0, -3.0, 0.5, 3.0, 7.0] * 32)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        g = torch.linspace(-2, 2, len(x), dtype=dtype)
        want = torch.ops.aten.hardswish_backward(g, x.to(dtype))
        for tier in interp, sync:
            got = tier.op("aten::hardswish_backward")(g, x.to(dtype))
            assert bool(got.isnan()[::6].all())
            torch.testing.assert_close(got, want, equal_nan=True)


def test_softshrink_keeps_the_sign_of_zero(interp, sync):
    """PyTorch's single elements multiply by 0, so that -0.25 becomes -0; its vectors give +0.  Kiln does as single elements do."""
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.tensor([-0.25, 0.25, -0.0, 0.0, float("nan"), -3.0, 3.0] * 32, dtype=dtype)
        want = torch.cat([torch.nn.functional.softshrink(x[k:k + 1]) for k in range(7)]).repeat(32)
        assert want.signbit()[:4].tolist() == [True, False, True, False]
        for tier in interp, sync:
            got = tier.op("aten::softshrink")(x)
            assert bool((got.signbit() == want.signbit()).all())
            torch.testing.assert_close(got, want, equal_nan=True, rtol=0, atol=0)


def test_norms_of_complex_infinities(interp, sync):
    """A complex number with an infinite part is infinite, although its other part is NaN."""
    inf, nan = float("inf"), float("nan")
    for dtype in (torch.complex64, torch.complex128):
        for z in ([complex(-inf, nan), 1], [1, complex(nan, inf)], [complex(nan, 1)], [complex(nan, 1), inf], [complex(3, 4), 12j], [1] * 40 + [complex(inf, nan)]):
            x = torch.tensor(z, dtype=dtype)
            for name, args in ("linalg_vector_norm", ()), ("norm.Scalar", ()), ("norm.ScalarOpt_dim", (2, [0])), ("dist", (torch.zeros_like(x),)):
                want = torch_op(name)(x, *args)
                for tier in interp, sync:
                    torch.testing.assert_close(tier.op(f"aten::{name}")(x, *args), want, equal_nan=True)
