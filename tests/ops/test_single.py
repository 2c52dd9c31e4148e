"""Single calls that Kiln once answered otherwise than PyTorch, each with the reason for what PyTorch does.

The sweeps of test_map_diff.py may or may not draw such a call.  The comparison is theirs; nothing is known to differ here.
"""
import pytest

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
        assert with_torch(tier.op(c.op), torch_op(c.op), c, writes=writes) is None, why
