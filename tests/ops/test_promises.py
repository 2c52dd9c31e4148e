"""What Kiln promises of classes: which calls share code, which do not, and that neither is got wrong in any order."""
import random

import pytest
import torch

import cases
from compare import same_bits
from kilnlib import Kiln, last_tier

F32, F64 = torch.float32, torch.float64
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def fresh():
    with Kiln("sync") as k:
        yield k


def compiles(kiln):
    return kiln.stats()["compiles"]


def agree(kiln, name, *args, **kwargs):
    """Kiln's result, which must be PyTorch's in dtype, shape and value."""
    packet, _, overload = name.partition(".")
    expected = getattr(getattr(torch.ops.aten, packet), overload or "default")(*args, **kwargs)
    actual = kiln.op(name)(*args, **kwargs)
    torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=True)
    return actual


# -- equal dtypes, other code ------------------------------------------------------------------------------

@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_tensor_without_dimensions_promotes_less(fresh, order):
    x = torch.randn(4)
    calls = [(torch.tensor(0.1, dtype=F64), F32), (torch.tensor([0.1], dtype=F64), F64)]
    for k in order:
        assert agree(fresh, "add.Tensor", x, calls[k][0]).dtype == calls[k][1]
    assert compiles(fresh) == 2


@pytest.mark.parametrize("order", [("min", "max"), ("max", "min")])
def test_which_optional_is_present_is_part_of_the_class(fresh, order):
    x = torch.arange(-5.0, 5.0)
    for which in order:
        agree(fresh, "clamp", x, **{which: 1.5})
        agree(fresh, "clamp.Tensor", x, **{which: torch.tensor([2.0])})
    assert compiles(fresh) == 4


@pytest.mark.parametrize("order", [("floor", "trunc", None), (None, "trunc", "floor")])
def test_a_string_that_picks_the_code_is_part_of_the_class(fresh, order):
    x, y = torch.tensor([7.0, -7.0]), torch.tensor([2.0, 2.0])
    for mode in order:
        agree(fresh, "div.Tensor_mode", x, y, rounding_mode=mode)
    assert compiles(fresh) == 3


def test_the_kind_of_a_number_is_part_of_the_class(fresh):
    x = torch.arange(5)
    for value, dtype in [(2, torch.int64), (2.0, F32), (True, torch.int64)]:
        assert agree(fresh, "mul.Scalar", x, value).dtype == dtype


def test_a_complex_number_equals_a_real_one(fresh):
    x = torch.tensor([0j, INF + 0j, 2 - 3j])
    for value in [0j, 2 + 0j, 0.5 + 0j, 1 + 0j, -1 + 0j, 3 + 0j, 0j, 2 + 1j]:
        agree(fresh, "pow.Tensor_Scalar", x, value)


def test_zero_to_a_complex_power(fresh):
    powers = torch.tensor([-1 + 1j, -1 - 1j, -2 + 0j, 1j, -1j, 0j, 1 - 1j])
    for dtype in (torch.complex64, torch.complex128):
        agree(fresh, "pow.Scalar", 0, powers.to(dtype))
        agree(fresh, "pow.Tensor_Tensor", torch.zeros(7, dtype=dtype), powers.to(dtype))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_strides_are_never_taken_for_others(fresh, order):
    x = torch.arange(36.0).reshape(6, 6)
    other = [x, x.t(), x[:1].expand(6, 6)]
    for k in order:
        agree(fresh, "sub.Tensor", x, other[k])
        agree(fresh, "sub.Tensor", other[k], x)


# -- other calls, equal code ------------------------------------------------------------------------------------

def test_new_scalar_values_compile_nothing(fresh):
    x = torch.tensor([1.0, -2.0, NAN, INF])
    agree(fresh, "add.Scalar", x, 0.5)
    before = compiles(fresh)
    for value in [0.25, -0.0, INF, -INF, NAN, NAN, 1e-45, 1e38, NAN]:
        agree(fresh, "add.Scalar", x, value)
        agree(fresh, "add.Scalar", x, value, 1)
    assert compiles(fresh) == before == 1


def test_nan_scalars_do_not_recompile(fresh):
    x = torch.randn(9)
    for _ in range(5):
        agree(fresh, "clamp", x, NAN)
        agree(fresh, "add.Tensor", x, x, alpha=NAN)
    assert compiles(fresh) == 2


def test_whole_integers_reach_the_kernel(fresh):
    x = torch.tensor([1, -1, 2**40])
    for value in [2**40, 2**62, 2**63 - 1, -(2**63), 3]:
        agree(fresh, "add.Scalar", x, value)
        agree(fresh, "mul.Scalar", x, value)
    assert compiles(fresh) == 2


@pytest.mark.parametrize("rows", [1, 5, 8, 24, 27])
def test_a_sum_of_negative_zeros_down_columns_is_zero(fresh, rows):
    """It begins as 0, which blocks of eight rows add at their end."""
    x = torch.full((rows, 83), -0.0)
    x[:, 1::2] = torch.linspace(-1, 1, rows)[:, None]
    total = agree(fresh, "sum.dim_IntList", x, [0])
    assert same_bits(total[::2], torch.zeros(42))


def test_negative_zero_stays_itself(fresh):
    x = torch.tensor([-0.0])
    assert same_bits(agree(fresh, "add.Scalar", x, -0.0), torch.tensor([-0.0]))
    assert same_bits(agree(fresh, "add.Scalar", x, 0.0), torch.tensor([0.0]))
    assert compiles(fresh) == 1


def test_new_shapes_and_ranks_compile_nothing(fresh):
    agree(fresh, "exp", torch.randn(7))
    for sizes in [(1000,), (3, 4), (2, 3, 4), (2, 3, 4, 5), (1, 2, 1, 3, 1, 2), (0, 5), (4096,), (17, 31)]:
        agree(fresh, "exp", torch.randn(sizes))
    agree(fresh, "exp", torch.randn(6, 7).t())  # dense: its order of elements does not matter
    agree(fresh, "exp", torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
    assert compiles(fresh) == 1
    assert last_tier() == "compiled"


def random_view(rng, sizes, dtype):
    """A tensor that broadcasts to sizes, in any layout: dense in any order, sliced, expanded, offset."""
    sizes = [1 if rng.random() < 0.25 else n for n in sizes][rng.choice([0, 0, 0, 1, len(sizes)]):]
    order = list(range(len(sizes)))
    rng.shuffle(order)
    strides, step = [0] * len(sizes), rng.choice([1, 1, 1, 2])
    for d in order:
        strides[d] = 0 if rng.random() < 0.15 else step
        step *= sizes[d] + rng.choice([0, 0, 0, 1])
    base = torch.randint(-9, 9, (step + 8,), generator=torch.Generator().manual_seed(rng.randrange(2**31)))
    return base.to(dtype).as_strided(sizes, strides, rng.randint(0, 7))


def random_tensors(rng, dtypes):
    sizes = [rng.randint(1, 7) for _ in range(rng.choice([1, 2, 2, 3, 4, 5]))]
    return [random_view(rng, sizes, t) for t in dtypes]


@pytest.mark.parametrize("name, dtypes", [
    ("add.Tensor", (F32, F32)),
    ("where.self", (torch.bool, F32, F32)),
])
def test_k_inputs_compile_at_most_2_to_the_k_and_1(fresh, name, dtypes):
    rng = random.Random(8)
    for _ in range(400):
        agree(fresh, name, *random_tensors(rng, dtypes))
    stats = fresh.stats()
    assert 2 <= stats["compiles"] <= 2 ** len(dtypes) + 1
    assert stats["calls"] == 400 and stats["fallbacks"] == stats["interp_calls"] == 0


def test_ranks_of_0_keep_the_bound_too(fresh):
    """A 0-d tensor among tensors of its own dtype promotes nothing and so makes no class of its own."""
    x, zero = torch.randn(3, 5), torch.tensor(2.0)
    for a, b in [(x, zero), (zero, x), (zero, zero), (x, x), (x.t(), zero), (x[:, ::2], zero), (x, x[0])]:
        agree(fresh, "add.Tensor", a, b)
    assert compiles(fresh) <= 5


# -- a refused call ---------------------------------------------------------------------------------------------

def test_dividing_by_zero_writes_nothing(fresh):
    x, y = torch.arange(10), torch.tensor([1, 2, 3, 0, 5, 6, 7, 8, 9, 10])
    out = torch.full((10,), 77)
    for op, more in [("floor_divide", {}), ("remainder.Tensor", {})]:
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            fresh.op(op)(x, y, **more)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            fresh.op("floor_divide.out")(x, y, out=out)
    assert (out == 77).all()


def test_the_smallest_integer_divided_by_minus_one_wraps(interp, fresh):
    """What PyTorch does not survive for rounding_mode="trunc" (see cases.AVOID)."""
    for t in (torch.int8, torch.int16, torch.int32, torch.int64):
        x = torch.full((40,), torch.iinfo(t).min, dtype=t)
        for k in (interp, fresh):
            for mode in ("trunc", "floor"):
                assert same_bits(k.op("div.Tensor_mode")(x, torch.full((40,), -1, dtype=t), rounding_mode=mode), x)


def test_errors_name_the_operator_and_the_argument(fresh):
    with pytest.raises(RuntimeError, match="aten::add.Tensor.*size of tensor a \\(3\\).*tensor b \\(2\\)"):
        fresh.op("add.Tensor")(torch.ones(3), torch.ones(2))
    with pytest.raises(TypeError, match="aten::add.Tensor.*'other' must be Tensor"):
        fresh.op("add.Tensor")(torch.ones(3), "text")
    with pytest.raises(NotImplementedError, match="silu"):
        fresh.op("silu")(torch.ones(3, dtype=torch.int32))
    assert cases.NUMBERS  # the same numbers the differential tests draw from
