"""Tensors of other libraries in and out: NumPy, PyTorch, DLPack; same memory, same kind, same object."""
import numpy as np
import pytest
import torch
from sanitized import SANITIZED

import kiln

ADD = "aten::add.Tensor"
ONE = 1
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def both_kinds(values, name):
    t = torch.tensor(values, dtype=getattr(torch, name))
    return t, t.numpy(), kiln.Tensor(t)


# -- results are of the first tensor's kind ----------------------------------------------------------------------

@pytest.mark.parametrize("name", [n for n in DTYPES if n != "bool"])
def test_kind_of_the_first_tensor(name):
    t, a, k = both_kinds([[1, 2, 3], [4, 5, 6]], name)
    want = (t + t).tolist()
    for x, kind in ((t, torch.Tensor), (a, np.ndarray), (k, kiln.Tensor)):
        for y in (t, a, k, ONE):
            got = kiln.call(ADD, x, y)
            assert type(got) is kind
            assert str(got.dtype).removeprefix("torch.") == name and tuple(got.shape) == (2, 3)
            assert got.tolist() == (want if y is not ONE else (t + 1).tolist())


def test_user_rows_on_every_kind():
    for x in both_kinds([1.0, 2.0], "float32"):
        got = kiln.call("my::axpb", x, 2, 3.5)
        assert type(got) is type(x) and got.tolist() == [5.5, 7.5]
        assert kiln.call("my::axpb", x, b=1, a=2).tolist() == [3.0, 5.0]


def test_several_results():
    for x in both_kinds([1.0, 2.0, 3.0], "float32"):
        got = kiln.call("aten::frexp.Tensor", x)
        assert type(got) is tuple and [type(r) for r in got] == [type(x)] * 2
        assert got[0].tolist() == [0.5, 0.5, 0.75] and got[1].tolist() == [1, 2, 2]


def test_numbers_only():
    got = kiln.call(ADD, 1, 2)
    assert isinstance(got, kiln.Tensor) and got.tolist() == 3


def test_a_tensor_for_a_scalar():
    t = torch.arange(3.0)
    for scalar in (torch.tensor(2), np.array(2), kiln.Tensor(2)):
        assert kiln.call("my::axpb", t, scalar, 0).tolist() == [0, 2, 4]
    with pytest.raises(TypeError):
        kiln.call("my::axpb", t, t, 0)


# -- the very object ------------------------------------------------------------------------------------------------

def test_in_place_and_out_return_the_object_passed():
    for x in both_kinds([1.0, 2.0], "float32"):
        y = kiln.call("aten::neg", x)
        address = y.data_ptr() if hasattr(y, "data_ptr") else y.ctypes.data
        assert kiln.call("aten::add_.Tensor", y, x) is y
        assert y.tolist() == [0, 0]
        assert kiln.call("aten::add.out", x, x, out=y) is y
        assert y.tolist() == [2, 4]
        assert (y.data_ptr() if hasattr(y, "data_ptr") else y.ctypes.data) == address


def test_several_outs():
    t = torch.tensor([1.0, 3.0])
    mantissa, exponent = torch.empty(2), torch.empty(2, dtype=torch.int32)
    got = kiln.call("aten::frexp.Tensor_out", t, mantissa=mantissa, exponent=exponent)
    assert got[0] is mantissa and got[1] is exponent and exponent.tolist() == [1, 2]


def test_an_out_of_another_kind():
    t, a = torch.ones(2), np.zeros(2, np.float32)
    assert kiln.call("aten::add.out", t, t, out=a) is a and a.tolist() == [2, 2]


def test_a_torch_output_without_elements_takes_the_strides_pytorch_gives_it():
    x = torch.arange(6.0).reshape(3, 2).t()
    for y in (x, torch.ones(2, 3), x[:, :1], torch.ones(3), torch.tensor(2.0)):
        want, got = torch.empty(0), torch.empty(0)
        torch.mul(x, y, out=want)
        assert kiln.call("aten::mul.out", x, y, out=got) is got
        assert got.stride() == want.stride() and torch.equal(got, want)
    big, late = torch.zeros(8), torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    out = big[5:5]
    kiln.call("aten::neg.out", late, out=out)
    assert out.stride() == torch.neg(late).stride() and torch.equal(out, -late)
    assert out.storage_offset() == 5 and big.eq(0)[:5].all()


def test_empty_out_is_resized():
    t, out = torch.ones(2, 3), torch.empty(0)
    assert kiln.call("aten::add.out", t, t, out=out) is out
    assert out.shape == (2, 3) and out.tolist() == [[2] * 3] * 2
    k = kiln.Tensor([])
    assert kiln.call("aten::add.out", kiln.Tensor(t), 1, out=k) is k and k.shape == (2, 3)
    with pytest.raises(RuntimeError):
        kiln.call("aten::add.out", t, t, out=torch.empty(5))
    empty = torch.empty(0, 3)
    assert kiln.call("aten::neg_", empty) is empty and empty.shape == (0, 3)


# -- NumPy ------------------------------------------------------------------------------------------------------------

def read_only(a):
    a.flags.writeable = False
    return a


def odd_strides():
    return np.zeros(4, dtype=[("x", "<f4"), ("y", "u1")])["x"]


@pytest.mark.parametrize("array", [
    np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1), np.arange(10)[::-1], np.arange(10)[::2], np.arange(3)[:, None],
    np.broadcast_to(np.float32(3), (2, 2)), np.array(5), np.zeros((0, 3)), np.arange(6, dtype=">f4"),
    np.frombuffer(b"x" + np.arange(4.0).tobytes(), offset=1), odd_strides(), read_only(np.arange(4)),
    np.asfortranarray(np.arange(6).reshape(2, 3)), np.array([1, 2], np.float16), np.arange(32).reshape([2] * 5), np.zeros((0,)),
    np.arange(6, dtype=np.longlong), np.arange(8, dtype=np.int32).reshape(1, 2, 1, 4)[:, :, ::-1], np.array(True), np.ones((3, 0, 2), "c8")])
def test_layouts_of_numpy(array):
    got = kiln.call("aten::mul.Tensor", array, 2)
    assert isinstance(got, np.ndarray) and got.flags.writeable
    np.testing.assert_array_equal(got, np.asarray(array) * 2)
    assert kiln.Tensor(array).tolist() == array.tolist()


@pytest.mark.parametrize("array", [
    np.arange(4, dtype=">f4"), odd_strides(), np.frombuffer(bytearray(b"x" + np.arange(4.0).tobytes()), offset=1)])
def test_arrays_that_are_written_through_a_copy(array):
    before = array.copy()
    assert kiln.call("aten::add_.Tensor", array, 1) is array
    np.testing.assert_array_equal(array, before + 1)
    assert kiln.call("aten::neg.out", before, out=array) is array
    np.testing.assert_array_equal(array, -before)


@pytest.mark.parametrize("array", [
    read_only(np.arange(4.0)), read_only(np.arange(4, dtype=">f4")), np.broadcast_to(np.float32(3), (4,))])
def test_arrays_that_cannot_be_written(array):
    before = array.copy()
    with pytest.raises(ValueError):
        kiln.call("aten::neg_", array)
    with pytest.raises(ValueError):
        kiln.call("aten::add.out", np.ones(4), 1, out=array)
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("make", [lambda k: np.full(3, k, np.float32), lambda k: torch.full((3,), float(k))], ids=["numpy", "torch"])
def test_many_tensors_in_one_call(make):
    """More than there is room for without allocating."""
    for n in (7, 8, 9, 40):
        tensors = [make(k) for k in range(n)]
        with pytest.raises(TypeError, match="must be Tensor, not list"):
            kiln.call(ADD, tensors[0], tensors)
        assert [t.tolist() for t in tensors] == [[k] * 3 for k in range(n)]


def test_an_array_without_elements_is_not_resized():
    with pytest.raises((RuntimeError, ValueError)):
        kiln.call("aten::neg.out", np.ones(3), out=np.empty(0))


def test_read_only_tensors_stay_read_only():
    t = kiln.Tensor(read_only(np.arange(4.0)))
    assert t.readonly and t[1:].readonly and not t.numpy().flags.writeable and not t[0].numpy().flags.writeable
    for view in (t, t[1:]):
        with pytest.raises((RuntimeError, ValueError)):
            kiln.call("aten::neg_", view)
    assert t.tolist() == [0, 1, 2, 3] and not t.copy().readonly
    with pytest.raises(BufferError):
        t.__dlpack__()


@pytest.mark.parametrize("array", [
    np.zeros(2, np.longdouble), np.zeros(2, np.clongdouble),
    np.array(["a"]), np.array([object()]), np.zeros(2, "M8[s]"), np.zeros(2, [("a", "f4")])], ids=lambda a: str(a.dtype))
def test_dtypes_of_numpy_that_are_not_served(array):
    with pytest.raises(NotImplementedError):
        kiln.call("aten::neg", array)
    with pytest.raises(NotImplementedError):
        kiln.Tensor(array)


@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64"])
def test_unsigned_arrays_are_tensors_though_few_operators_take_them(name):
    array = np.array([1, np.iinfo(name).max], name)
    assert kiln.Tensor(array).tolist() == array.tolist()
    with pytest.raises(NotImplementedError, match="not implemented for"):
        kiln.call("aten::neg", array)


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_shares_memory(name):
    a = np.ones((2, 3), name)
    t = kiln.Tensor(a)
    assert t.dtype is getattr(kiln, name)
    a[1, 2] = 0
    back = t.numpy()
    assert t[1, 2].item() == 0 and back.dtype == a.dtype and back.ctypes.data == a.ctypes.data
    back[0, 0] = 0
    assert a[0, 0] == 0
    assert np.asarray(t).ctypes.data == a.ctypes.data
    assert np.array(t).ctypes.data != a.ctypes.data
    assert np.asarray(t, dtype="float64").dtype == np.float64


def test_numpy_views_live_on():
    view = kiln.call("aten::neg", kiln.Tensor(np.arange(1000.0)))[::2].numpy()
    junk = [kiln.Tensor([1.0] * 1000) for _ in range(20)]
    np.testing.assert_array_equal(view, -np.arange(1000.0)[::2])
    assert junk


def test_bfloat16_has_no_numpy():
    t = kiln.Tensor([1.5], dtype="bfloat16")
    for convert in (t.numpy, lambda: np.asarray(t)):
        with pytest.raises(TypeError):
            convert()
    assert torch.from_dlpack(t).dtype is torch.bfloat16


def test_numpy_subclasses_and_scalars():
    class Mine(np.ndarray):
        pass
    assert kiln.call("aten::neg", np.arange(3).view(Mine)).tolist() == [0, -1, -2]
    assert kiln.call("my::axpb", np.arange(3), np.int8(2), np.bool_(True)).tolist() == [1, 3, 5]
    assert kiln.call("aten::add.Tensor", np.arange(3), np.complex64(1j)).tolist() == [1j, 1 + 1j, 2 + 1j]


# -- PyTorch --------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("tensor", [
    torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1), torch.arange(10)[3:8:2], torch.ones(3, 1).expand(3, 4),
    torch.tensor(5), torch.zeros(0, 3), torch.ones(2, dtype=torch.bfloat16), torch.randn(3, dtype=torch.complex64).conj().imag, torch._neg_view(torch.ones(4)),
    torch._neg_view(torch.arange(4)), torch.randn(2, dtype=torch.complex64).real])
def test_layouts_of_torch(tensor):
    got = kiln.call("aten::mul.Tensor", tensor, 2)
    assert type(got) is torch.Tensor and not got.requires_grad
    torch.testing.assert_close(got, tensor.detach() * 2)
    assert kiln.Tensor(tensor).tolist() == tensor.tolist()


def test_torch_shares_memory():
    t = torch.zeros(3)
    k = kiln.Tensor(t)
    t[1] = 5
    assert k.tolist() == [0, 5, 0] and k.data_ptr() == t.data_ptr()
    assert torch.from_dlpack(k).data_ptr() == t.data_ptr()


class Wrapper(torch.Tensor):
    """A tensor without elements of its own."""

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (3,), dtype=torch.float32)

    __torch_dispatch__ = classmethod(lambda cls, function, types, args=(), kwargs=None: None)


def fake_tensor():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        return torch.ones(3)


NOT_SERVED = {
    "meta": lambda: torch.zeros(3, device="meta"), "no elements on meta": lambda: torch.zeros(0, device="meta"),
    "sparse": lambda: torch.ones(3).to_sparse(), "csr": lambda: torch.eye(3).to_sparse_csr(), "mkldnn": lambda: torch.ones(3).to_mkldnn(),
    "complex": lambda: torch.zeros(3, dtype=torch.complex32), "zero": lambda: torch._efficientzerotensor((3,)),
    "quantized": lambda: torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.quint8),
    "float8": lambda: torch.zeros(3, dtype=torch.float8_e5m2), "nested": lambda: torch.nested.nested_tensor([torch.ones(2)] * 2),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2)] * 2, layout=torch.jagged), "wrapper": Wrapper, "fake": fake_tensor,
    "functional": lambda: torch._to_functional_tensor(torch.ones(3))}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", NOT_SERVED)
def test_torch_tensors_that_are_not_served(what):
    tensor = NOT_SERVED[what]()
    for f in (lambda: kiln.call("aten::neg", tensor), lambda: kiln.call("aten::neg_", tensor), lambda: kiln.Tensor(tensor),
              lambda: kiln.call("aten::neg.out", torch.ones(3), out=tensor), lambda: kiln.call(ADD, torch.ones(3), tensor)):
        with pytest.raises(NotImplementedError) as caught:
            f()
        assert "\n" not in str(caught.value)


def test_writes_are_seen_by_autograd():
    x = torch.ones(3, requires_grad=True)
    y = x * 1
    z = (y * y).sum()
    with torch.no_grad():
        kiln.call("aten::add_.Tensor", y, 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_writes_that_autograd_would_miss():
    with torch.inference_mode():
        y = torch.ones(2)
        assert kiln.call("aten::neg_", y).tolist() == [-1, -1]
    for write in (lambda: kiln.call("aten::neg_", y), lambda: kiln.call("aten::neg.out", torch.ones(2), out=y)):
        with pytest.raises(RuntimeError, match="InferenceMode"):
            write()
    assert y.tolist() == [-1, -1] and kiln.call("aten::neg", y).tolist() == [1, 1]


def test_every_write_is_counted_once():
    x, y = torch.ones(3), torch.ones(3)
    for f in (lambda: kiln.call("aten::neg_", x), lambda: kiln.call("aten::neg.out", y, out=x)):
        before = x._version, y._version
        f()
        assert (x._version, y._version) == (before[0] + 1, before[1])


QUESTIONS = """
import kiln, torch
class Loud(torch.Tensor):
    def is_neg(self): raise KeyError("asked in Python")
{before}
view = torch._neg_view(torch.ones(2))
assert kiln.call("aten::abs", view).tolist() == [1, 1] and kiln.Tensor(view).tolist() == [-1, -1]
assert kiln.call("aten::abs_", view) is view and view.tolist() == [1, 1]
assert kiln.call("aten::neg", torch.tensor([1j]).conj()).tolist() == [1j]
x = torch.ones(2)
kiln.call("aten::neg_", x)
assert x._version == 1 and x.tolist() == [-1, -1]
w = torch.ones(2, requires_grad=True)
for f in (lambda: kiln.call("aten::neg_", w), lambda: kiln.call("aten::neg", w), lambda: kiln.Tensor(w), lambda: kiln.call("add", x, w)):
    try: f()
    except RuntimeError as e: assert "requires grad" in str(e)
    else: assert False
    with torch.no_grad(): f()
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(torch.ones(2), torch.ones(2))
    try: kiln.call("aten::neg", dual)
    except RuntimeError as e: assert "tangent" in str(e)
    else: assert False
    with torch.inference_mode(): kiln.call("aten::neg", dual)
try: print(kiln.call("aten::neg", torch.ones(2).as_subclass(Loud)).tolist())
except KeyError as e: print(e)
"""


def test_what_dlpack_does_not_say_is_asked_of_the_library(run_python, run_torch):
    run = run_torch if SANITIZED else run_python  # PyTorch after Kiln is for an interpreter of its own, and slow under sanitizers
    assert run(QUESTIONS.format(before="")) == "[-1.0, -1.0]\n"
    known = "with torch.inference_mode(), torch.device('meta'): kiln.op('aten::neg')(torch.ones(1, device='cpu'))"
    assert run_torch(QUESTIONS.format(before=known)) == "[-1.0, -1.0]\n"


@pytest.mark.parametrize("samples", ["None", "()[0]", "(torch.ones(1),) * 4", "(1, 2, 3, 4)"])
def test_what_dlpack_does_not_say_is_asked_in_python(run_torch, samples):
    """Where the library cannot be asked, the same holds."""
    unknown = f"import kiln._helpers; kiln._helpers.torch_samples = lambda: {samples}"
    assert run_torch(QUESTIONS.format(before=unknown)) == "'asked in Python'\n"


def test_vmap_is_refused():
    with pytest.raises(NotImplementedError):
        torch.vmap(lambda x: kiln.call("aten::neg", x))(torch.ones(2, 3))


# -- DLPack -----------------------------------------------------------------------------------------------------------------

class Producer:
    """Gives what its function gives."""

    def __init__(self, give):
        self.give = give

    def __dlpack__(self, **kwargs):
        return self.give(**kwargs)


def test_any_producer():
    a = np.arange(6.0).reshape(2, 3)
    for give in (a.__dlpack__, lambda **kw: a.__dlpack__(), lambda: a.__dlpack__(), torch.from_numpy(a).__dlpack__):
        got = kiln.call("aten::neg", Producer(give))
        assert isinstance(got, kiln.Tensor) and got.tolist() == (-a).tolist()
        assert kiln.Tensor(Producer(give)).data_ptr() == a.ctypes.data


def test_broken_producers():
    def used(**kwargs):
        capsule = np.arange(3).__dlpack__()
        kiln.Tensor(Producer(lambda **kw: capsule))
        return capsule

    def raises(**kwargs):
        raise KeyError("mine")

    for give, error in [(lambda **kw: None, TypeError), (lambda **kw: 5, TypeError), (used, TypeError), (raises, KeyError),
                        (lambda a, b: None, TypeError),
                        (lambda **kw: torch.zeros(2, dtype=torch.float8_e5m2).__dlpack__(), NotImplementedError)]:
        for _ in range(3):
            with pytest.raises(error):
                kiln.call("aten::neg", Producer(give))
            with pytest.raises(error):
                kiln.Tensor(Producer(give))
    with pytest.raises(TypeError):
        kiln.call("aten::neg", Producer)  # the class itself


def test_dlpack_out():
    t = kiln.Tensor([[1, 2], [3, 4]])
    assert t.__dlpack_device__() == (1, 0)
    for consumer in (torch.from_dlpack, np.from_dlpack, lambda x: torch.from_dlpack(x.__dlpack__())):
        assert consumer(t).tolist() == t.tolist()
    copy = torch.utils.dlpack.from_dlpack(t.__dlpack__(copy=True, max_version=(1, 1)))
    assert copy.data_ptr() != t.data_ptr() and copy.tolist() == t.tolist()
    for fine in ({"dl_device": (1, 0)}, {"dl_device": [1, 0], "max_version": [1, 0]}, {"dl_device": np.array([1, 0])}, {"copy": np.True_}):
        assert torch.from_dlpack(t.__dlpack__(**fine)).tolist() == t.tolist()
    for bad in ({"stream": 1}, {"dl_device": (2, 0)}, {"dl_device": [2, 0]}):
        with pytest.raises(BufferError):
            t.__dlpack__(**bad)
    for odd in (3, (), (1,), (1, 0, 0), "ab", "x", ("a", 0), (1.0, 0.0), {}, {1, 0}, object()):
        for name in ("dl_device", "max_version"):
            with pytest.raises(TypeError):
                t.__dlpack__(**{name: odd})
    with pytest.raises(TypeError, match=r"dl_device must be \(type, id\), not \(1,\)"):
        t.__dlpack__(dl_device=(1,))
    with pytest.raises(TypeError):
        t.__dlpack__(nope=1)


def test_exports_outlive_the_tensor():
    kept = torch.from_dlpack(kiln.call("aten::neg", kiln.Tensor(np.arange(1000.0))))
    junk = [kiln.Tensor([1.0] * 1000) for _ in range(20)]
    assert torch.equal(kept, -torch.arange(1000.0, dtype=torch.float64)) and junk


# -- types ---------------------------------------------------------------------------------------------------------------------

def test_many_types():
    """More types than are remembered, in one call and over calls."""
    def producer(k):
        return type(f"P{k}", (Producer,), {})(np.full(2, k).__dlpack__)

    for k in range(100):
        assert kiln.call("aten::neg", producer(k)).tolist() == [-k, -k]
        assert kiln.call("my::axpb", torch.ones(1), type(f"I{k}", (int,), {})(k), 0).tolist() == [k]
    with pytest.raises(TypeError):
        kiln.call(ADD, torch.ones(2), [producer(k) for k in range(100)])
    assert kiln.Tensor([producer(k).give.__self__ for k in range(40)]).shape == (40, 2)
