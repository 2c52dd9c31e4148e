"""Complex numbers: in tensors of every kind, as arguments, out of tensors, and lazily conjugated or negated views."""
import numpy as np
import pytest
import torch

import kiln

ADD, MUL = "aten::add.Tensor", "aten::mul.Tensor"
VALUES = [1 + 2j, -0.5j, 3, complex("inf"), complex(0.0, -0.0)]
NAMES = ["complex64", "complex128"]


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_tensor(name):
    t = torch.tensor(VALUES[:3], dtype=getattr(torch, name))
    for x in (t, t.numpy(), kiln.Tensor(t)):
        got = kiln.call(MUL, x, x)
        assert type(got) is type(x) and str(got.dtype).removeprefix("torch.") == name
        assert got.tolist() == (t * t).tolist()
    k = kiln.Tensor(t)
    assert k.data_ptr() == t.data_ptr() and k.itemsize == t.element_size() and k.numpy().ctypes.data == t.data_ptr()
    assert torch.from_dlpack(k).data_ptr() == t.data_ptr() and k.dtype is getattr(kiln, name)
    assert kiln.call(MUL, t.numpy().astype(t.numpy().dtype.newbyteorder()), 1j).tolist() == (t * 1j).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_parts_at_their_own_alignment(name):
    real = name.replace("complex64", "float32").replace("complex128", "float64")
    memory = np.arange(7, dtype=real)
    a = memory[1:].view(name)  # complex numbers that start in the middle of one
    assert kiln.call(ADD, a, 1j).tolist() == (a + 1j).tolist()
    want = (-a).tolist()
    assert kiln.call("aten::neg.out", a.copy(), out=a) is a and a.tolist() == want


@pytest.mark.parametrize("name", NAMES)
def test_lists(name):
    for data in (VALUES, [VALUES, VALUES], 2j, [1, 2.5, True, 1j]):
        ours, theirs = kiln.Tensor(data, dtype=name), torch.tensor(data, dtype=getattr(torch, name))
        assert str(ours.tolist()) == str(theirs.tolist()) and ours.shape == tuple(theirs.shape)
    assert kiln.Tensor([1j, 1]).dtype is kiln.complex64
    assert kiln.Tensor([np.complex64(1j)]).tolist() == [1j]
    assert kiln.Tensor(torch.ones(2), dtype=complex).dtype is kiln.complex128
    assert kiln.Tensor(kiln.Tensor([1 + 2j, 0j, 2j]), dtype="bool").tolist() == [True, False, True]
    with pytest.raises(RuntimeError, match="complex number"):
        kiln.Tensor([1j], dtype="float32")


def test_single_elements():
    t = kiln.Tensor(1.5 - 2j)
    assert t.item() == complex(t) == 1.5 - 2j and bool(t) and not bool(kiln.Tensor(0j)) and bool(kiln.Tensor(1j))
    assert complex(kiln.Tensor(2)) == 2 and complex(kiln.Tensor(2.5)) == 2.5
    assert float(kiln.Tensor(3 + 0j)) == 3 and int(kiln.Tensor(3 + 0j)) == 3
    for convert in (int, float):
        with pytest.raises(RuntimeError, match="imaginary"):
            convert(t)
    with pytest.raises(TypeError):
        [1, 2][t]


def test_repr():
    t = kiln.Tensor([1.5 - 2j, 0j, complex("nan+infj"), complex(1, -0.0)])
    assert repr(t) == "kiln.Tensor([1.5-2.j, 0.+0.j, nan+infj, 1.-0.j], dtype=complex64)"
    third = complex(1 / 3, -1 / 3)
    assert repr(kiln.Tensor(third)) == "kiln.Tensor(0.33333334-0.33333334j, dtype=complex64)"
    assert repr(kiln.Tensor([[third], [10]], "complex128")) == (
        "kiln.Tensor([[0.3333333333333333-0.3333333333333333j],\n"
        "             [                               10.+0.j]], dtype=complex128)")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("number", [True, 3, 2.5, 1j])
@pytest.mark.parametrize("name", ["bool", "uint8", "int64", "uint16", "uint32", "uint64", "float32", "float64", "complex64", "complex128"])
def test_numbers_promote_as_in_pytorch(name, number, rank):
    t = torch.ones([2] * rank, dtype=getattr(torch, name))
    try:
        want = torch.mul(t, number)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            kiln.call(MUL, t, number)
        return
    got = kiln.call(MUL, t, number)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want)


def test_a_double_keeps_its_digits_beside_a_complex_number():
    t = torch.tensor([1.0], dtype=torch.float64)
    assert kiln.call(MUL, t, 0.1j).tolist() == [0.1j]


def test_python_operators():
    a, b = kiln.Tensor([1 + 2j, 3 - 1j]), kiln.Tensor([2j, 1.0])
    x, y = torch.from_dlpack(a), torch.from_dlpack(b)
    for got, want in [(a + b, x + y), (a - b, x - y), (a * b, x * y), (a / b, x / y), (a ** 2, x ** 2), (2 ** a, 2 ** x),
                      (-a, -x), (abs(a), abs(x)), (a == b, x == y), (a != b, x != y), (1j - a, 1j - x), (a * 2, x * 2)]:
        torch.testing.assert_close(torch.from_dlpack(got), want)
    for refused in (lambda: a < b, lambda: a // b, lambda: a % b, lambda: ~a):
        with pytest.raises(RuntimeError):
            refused()


# -- views that PyTorch has not carried out yet --------------------------------------------------------------------

def lazy_views():
    t = torch.tensor([1 + 2j, 3 - 1j, -2j])
    return {"conj": t.conj(), "neg": torch._neg_view(t), "both": torch._neg_view(t.conj()), "twice": t.conj().conj(),
            "imag of conj": t.conj().imag, "conj of a slice": t[::2].conj(), "conj with grad": t.clone().requires_grad_().conj(),
            "transposed": t.expand(2, 3).mH, "scalar": t[0].conj()}


@pytest.mark.parametrize("what", lazy_views())
def test_lazy_views_are_resolved(what):
    view = lazy_views()[what]
    before = view.detach().resolve_conj().resolve_neg().clone()
    with torch.no_grad():  # one of them requires grad
        got = kiln.call(ADD, view, 1)
        assert kiln.Tensor(view).tolist() == before.tolist()
    assert type(got) is torch.Tensor and not (got.is_conj() or got.is_neg() or got.requires_grad)
    torch.testing.assert_close(got, before + 1)
    assert torch.equal(view.detach().resolve_conj().resolve_neg(), before)


@pytest.mark.parametrize("what", ["conj", "neg", "both", "imag of conj", "conj of a slice", "scalar"])
def test_lazy_views_are_written_through(what):
    for write in (lambda f, view: f("aten::add_.Tensor", view, 3), lambda f, view: f("aten::neg.out", view * 2, out=view)):
        mine, theirs = lazy_views()[what], lazy_views()[what]
        assert write(kiln.call, mine) is mine
        write(lambda name, *args, **kw: eval(f"torch.ops.{name.replace('::', '.')}")(*args, **kw), theirs)
        assert torch.equal(mine, theirs) and (mine.is_neg(), mine.is_conj()) == (theirs.is_neg(), theirs.is_conj())
        assert torch.equal(mine._base, theirs._base)
    expanded = torch._neg_view(torch.ones(1).expand(3))
    with pytest.raises(RuntimeError, match="single memory location"):
        kiln.call("aten::abs_", expanded)
    assert expanded.tolist() == [-1] * 3
