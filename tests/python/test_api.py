"""The module's functions: op, call, ops, load_ops, explain, stats, configure, and what wrong calls raise."""
import ast
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import kiln

ROOT = Path(__file__).resolve().parents[2]
ADD = "aten::add.Tensor"


@pytest.fixture
def settings():
    """Undoes what a test configures."""
    before = dict(kiln._settings)
    yield
    kiln._settings.clear()
    kiln._kiln.configure(before)
    kiln._settings.update(before)


# -- operators ------------------------------------------------------------------------------------------------------

def test_op():
    add = kiln.op("add.Tensor")
    assert add.__name__ == ADD and add.__doc__.startswith(f"{ADD}(Tensor self, Tensor other")
    assert (add.__self__.name, add.__self__.family, add.__self__.form) == (ADD, "map", "functional")
    assert add.__self__.schema == add.__doc__ and "promote" in add.__self__.row
    assert repr(add.__self__) == f"<kiln operator {ADD}>"
    assert add(kiln.Tensor([1, 2]), kiln.Tensor([3, 4]), alpha=2).tolist() == [7, 10]
    assert add(self=kiln.Tensor([1]), other=kiln.Tensor([3])).tolist() == [4]
    with pytest.raises(TypeError):
        kiln.Op()
    with pytest.raises(TypeError):
        kiln.dtype()


def test_ops():
    names = kiln.ops()
    assert ADD in names and "aten::add_.Tensor" in names and "my::axpb" in names and len(names) == len(set(names))


def test_load_ops_is_all_or_nothing():
    good = "map my::twice(Tensor self) -> Tensor : takes all = self + self\n"
    with pytest.raises(RuntimeError, match=r"rows:\d+:\d+"):
        kiln.load_ops(good + "map my::bad(Tensor self) -> Tensor : takes all = self +\n")
    assert "my::twice" not in kiln.ops()
    kiln.load_ops(good)
    assert kiln.call("my::twice", np.array([1, 2])).tolist() == [2, 4]
    for bad in (None, b"x", 5):
        with pytest.raises(TypeError):
            kiln.load_ops(bad)


def test_load_ops_again(settings):
    """A notebook's cell that is run again, as it was or changed."""
    row = "map my::again(Tensor self) -> Tensor : takes real = self * {}\n"
    for _ in range(3):
        kiln.load_ops(row.format(2))
    again = kiln.op("my::again")
    assert again(kiln.Tensor([3])).tolist() == [6]
    with pytest.raises(RuntimeError, match="my::again is defined already, at rows:1:5"):
        kiln.load_ops(row.format(5))
    kiln.load_ops(row.format(5), replace=True)
    assert again(kiln.Tensor([3])).tolist() == [15]
    kiln.configure(mode="interp")
    assert kiln.call("my::again", kiln.Tensor([3])).tolist() == [15]
    kiln.load_ops(row.format(2), replace=True)
    kiln.configure(mode="sync")
    assert kiln.call("my::again", kiln.Tensor([3])).tolist() == [6]
    with pytest.raises(RuntimeError, match="aten::exp is defined already, at .*; rows of Kiln's own are not replaced: use a namespace of your own"):
        kiln.load_ops("map exp(Tensor self) -> Tensor : to_float = self", replace=True)


def test_an_op_survives_load_ops_and_configure(settings):
    add, user = kiln.op(ADD), kiln.op("my::axpb")
    kiln.load_ops("map my::thrice(Tensor self) -> Tensor : takes all = self + self + self")
    assert add(kiln.Tensor([1]), 1).tolist() == [2]
    kiln.configure(mode="interp")
    assert add(kiln.Tensor([1]), 1).tolist() == [2] and kiln.last_tier() == "interp"
    assert user(kiln.Tensor([1]), 2, 3).tolist() == [5]
    assert kiln.call("my::thrice", kiln.Tensor([2])).tolist() == [6]


# -- wrong calls -----------------------------------------------------------------------------------------------------

T = torch.ones(2, 3)


@pytest.mark.parametrize("args, kwargs, error, text", [
    ((), {}, TypeError, "'self'"),
    ((T,), {}, TypeError, "'other'"),
    ((T, T, T, T), {}, TypeError, "positional"),
    ((T, T), {"beta": 1}, TypeError, "'beta'"),
    ((T, T), {"self": T}, TypeError, "'self'"),
    ((T, T), {"alpha": "x"}, TypeError, "'alpha'"),
    ((T, T), {"alpha": None}, TypeError, "'alpha'"),
    ((T, "x"), {}, TypeError, "'other'"),
    ((T, None), {}, TypeError, "'other'"),
    ((T, [1, 2]), {}, TypeError, "'other'"),
    ((T, [[1, 2]]), {}, TypeError, "kiln.Tensor"),
    ((T, object()), {}, TypeError, "object"),
    ((T, {}), {}, TypeError, "dict"),
    ((T, T), {"alpha": 2**64}, OverflowError, "64 bits"),
    ((T, -2**63 - 1), {}, OverflowError, "64 bits"),
    ((T, T), {"alpha": 1j}, RuntimeError, "complex"),
    ((T, torch.ones(4)), {}, RuntimeError, "must match"),
    ((T.int(), T.int()), {"alpha": 1.5}, RuntimeError, "alpha"),
    ((T, T), {"é\ud800": 1}, TypeError, "no argument"),
    ((T, T), {"é": 1}, TypeError, "é"),
    ((T, "a\0b"), {}, ValueError, "NUL"),
])
def test_wrong_arguments(args, kwargs, error, text):
    for f in (kiln.op(ADD), lambda *a, **k: kiln.call(ADD, *a, **k)):
        with pytest.raises(error, match=text):
            f(*args, **kwargs)


@pytest.mark.parametrize("name", ["multinomial", "unbind", "linalg_svd", "aten::multinomial.out", "multinomial.default", "gather", "gather.out", "prims::sin"])
def test_what_is_not_served_is_said(name):
    full = name if "::" in name else f"aten::{name}"
    for use in (lambda: kiln.call(name, T), lambda: kiln.op(name)):
        with pytest.raises(NotImplementedError, match=f"^{full} is a PyTorch operator that Kiln does not serve$"):
            use()
    with pytest.raises(NotImplementedError, match="^no operator 'summ'; did you mean"):
        kiln.op("summ")


def test_rows_of_families_that_are_not_served():
    with pytest.raises(NotImplementedError, match="^rows:1:7: my::s: rows of the family 'index' are not served yet\n"):
        kiln.load_ops("index my::s(Tensor self, Tensor index) -> Tensor : promote(self) takes index: i64 = self[0: index]\n    out like index")


META, FLOAT8 = torch.ones(3, device="meta"), torch.ones(3).to(torch.float8_e4m3fn)
READ_ONLY = np.ones(3, "f4")
READ_ONLY.flags.writeable = False


class Odd:
    """Has __dlpack__, which raises."""

    def __init__(self, error):
        self.error = error

    def __dlpack__(self, **kwargs):
        raise self.error


@pytest.mark.parametrize("name, args, kwargs, error, text", [
    ("aten::neg", (META,), {}, NotImplementedError, "aten::neg: argument 'self': this tensor is not served: Cannot pack tensors on meta"),
    ("add.Tensor", (T, torch.ones(3).to_sparse()), {}, NotImplementedError, "aten::add.Tensor: argument 'other': this tensor is not served"),
    ("neg", (FLOAT8,), {}, NotImplementedError, "aten::neg: argument 'self': tensors of dtype torch.float8_e4m3fn are not served"),
    ("neg", (np.array([None]),), {}, NotImplementedError, "aten::neg: argument 'self': NumPy arrays of dtype object are not served"),
    ("add.Tensor", (T, object()), {}, TypeError, "aten::add.Tensor: argument 'other': an argument of type object is not taken"),
    ("add.Tensor", (T, T), {"alpha": object()}, TypeError, "aten::add.Tensor: argument 'alpha': an argument of type object"),
    ("neg_", (torch.ones(3, requires_grad=True),), {}, RuntimeError, "aten::neg_: argument 'self': the tensor requires grad"),
    ("neg", (T,), {"out": torch.ones(2, 3, requires_grad=True)}, RuntimeError, "aten::neg.out: argument 'out': the tensor requires grad"),
    ("neg", (T,), {"out": READ_ONLY}, ValueError, "aten::neg.out: argument 'out': the tensor is read-only and cannot be written"),
    ("neg", (T,), {"out": kiln.Tensor(READ_ONLY)}, ValueError, "aten::neg.out: argument 'out': the tensor is read-only and cannot be written"),
    ("neg_", (kiln.Tensor(READ_ONLY),), {}, ValueError, "aten::neg_: argument 'self': the tensor is read-only and cannot be written"),
    ("neg", (Odd(RuntimeError("odd")),), {}, RuntimeError, "aten::neg: argument 'self': odd"),
    ("neg", (Odd(KeyError("odd")),), {}, KeyError, "^'odd'$"),
    ("add.Tensor", (T, 2**64), {}, OverflowError, "aten::add.Tensor: argument 'other': an int argument does not fit 64 bits"),
    ("_to_copy", (np.ones(3),), {"dtype": "bfloat16"}, TypeError, "aten::_to_copy: NumPy has no bfloat16")])
def test_errors_name_the_operator_and_the_argument(name, args, kwargs, error, text):
    with pytest.raises(error, match=text) as caught:
        kiln.call(name, *args, **kwargs)
    assert type(caught.value) is error


def test_many_arguments():
    with pytest.raises(TypeError, match="10000"):
        kiln.call(ADD, *[T] * 10_000)
    with pytest.raises(TypeError):
        kiln.call(ADD, T, T, **{f"a{k}": 1 for k in range(10_000)})
    with pytest.raises(TypeError):
        kiln.call(ADD, T, [T] * 10_000)
    with pytest.raises(TypeError):
        kiln.call(ADD, T, list(range(100_000)))


@pytest.mark.parametrize("name", ["beta", "", "alpha ", "Alpha", "alpha\0", "alpha\0x", "\ud800", "input", "a" * 100_000, "\n", "%s"])
def test_unknown_keywords(name):
    for operator in (ADD, "aten::add_.Tensor", "add"):
        with pytest.raises(TypeError) as caught:
            kiln.call(operator, T, T, **{name: 2})
        str(caught.value).encode()
    with pytest.raises(TypeError):
        kiln.call(ADD, T, T, **{f"a{k}": 1 for k in range(8)}, **{name: 2})


def test_texts_that_are_none():
    for f in (lambda text: kiln.explain("aten::neg", T, stage=text), lambda text: kiln.Tensor([1], dtype=text),
              lambda text: kiln._kiln.configure({"mode": text}), lambda text: kiln._kiln.configure({"cc": text}),
              lambda text: kiln.call("aten::div.Tensor_mode", T, T, rounding_mode=text)):
        for text in ("floor\0", "f32\0", "\0"):
            with pytest.raises(ValueError, match="NUL"):
                f(text)
        for text in (b"f32", 5.5):
            with pytest.raises(TypeError):
                f(text)
    for name in (5, b"aten::neg", None):
        with pytest.raises(TypeError):
            kiln.explain(name, T)


def test_unknown_operators():
    for name in ("aten::nope", "aten::add.Nope", "", "add.Tensor\n", "::", "x" * 10_000, "aten::neg\0", "aten::neg\0x"):
        with pytest.raises(NotImplementedError):
            kiln.call(name, T)
        with pytest.raises(NotImplementedError):
            kiln.op(name)
    for name in (None, 5, b"aten::neg"):
        with pytest.raises(TypeError):
            kiln.call(name, T)
        with pytest.raises(TypeError):
            kiln.op(name)
    with pytest.raises(TypeError):
        kiln.call()


def test_what_pytorch_raises():
    with pytest.raises(RuntimeError):
        kiln.call("aten::floor_divide", torch.ones(2).int(), torch.zeros(2).int())
    with pytest.raises(RuntimeError, match="negative integer powers"):
        kiln.call("aten::pow.Tensor_Scalar", torch.ones(2).int(), -1)


def test_a_failed_call_writes_nothing():
    out = torch.full((2,), 7)
    with pytest.raises(RuntimeError):
        kiln.call("aten::floor_divide.out", torch.tensor([6, 6]), torch.tensor([2, 0]), out=out)
    assert out.tolist() == [7, 7]


def test_numbers_keep_their_kind():
    t = torch.arange(3)
    for number in (2, 2.5, True, -0.0, float("inf"), 2**53 + 1):
        want = torch.ops.aten.mul.Tensor(t, number)
        got = kiln.call("aten::mul.Tensor", t, number)
        assert got.dtype == want.dtype and torch.equal(got.nan_to_num(9), want.nan_to_num(9))


# -- looking in ----------------------------------------------------------------------------------------------------------

def test_stats():
    declared = re.findall(r"^C\((\w+),", (ROOT / "include/kiln/counter.def").read_text(), re.M)
    before = kiln.stats()
    assert list(before) == declared
    kiln.call(ADD, T, T)
    assert kiln.stats()["calls"] == before["calls"] + 1


def test_a_call_is_counted_once_whatever_calls_it_makes():
    x, number = np.ones((4, 8), "f4"), np.ones((), "f4")
    before = kiln.stats()
    for _ in range(3):
        kiln.call("layer_norm", x, [8])
        kiln.call("softmax", x, 1)
        kiln.call("_foreach_add.Scalar", [x, number], 1.5)
        with pytest.raises(IndexError):
            kiln.call("softmax", x, 2)
    after = kiln.stats()
    assert after["calls"] - before["calls"] == 9
    assert after["inner_calls"] - before["inner_calls"] == 3 * (1 + 1 + 2)


def test_one_class_compiles_once():
    kiln.load_ops("map my::once(Tensor self, Scalar a) -> Tensor : promote(self, a) = self * a + self")
    once, before = kiln.op("my::once"), kiln.stats()
    for n in range(1, 20):
        once(np.ones((n, 2), np.float32), n + 0.5)
        once(torch.ones(n), float(n))
    kiln.wait_idle()
    assert kiln.stats()["compiles"] - before["compiles"] <= 1
    assert kiln.stats()["misses"] - before["misses"] == 1


def test_explain(tmp_path):
    text = "add.Tensor(f32[4,8], f32[8], alpha=2)"
    for stage in ("schema", "bind", "plan", "key", "ir", "source"):
        assert kiln.explain(text, stage=stage) == kiln.explain(ADD, np.ones((4, 8), "f4"), np.ones(8, "f4"), alpha=2, stage=stage)
    assert "add.Tensor" in kiln.explain(text, stage="key")
    assert kiln.explain("add.Tensor(f32[4,8]:strides=(1,4), f32[])", stage="plan") == kiln.explain("add.Tensor(f32[4,8]:strides=(1,4), f32[])")
    assert kiln.explain('div.Tensor_mode(i32[], i32[3], rounding_mode="floor")', stage="key")
    assert kiln.explain("clamp(f32[3]:fill=arange, None, 2.5)", stage="key")
    assert "c64" in kiln.explain("mul.Tensor(c64[3]:fill=2j, c64[])", stage="key")
    np.save(tmp_path / "x.npy", np.ones((4, 8), "f4"))
    assert kiln.explain(f"add.Tensor(@{tmp_path}/x.npy, f32[8], alpha=2)", stage="ir") == kiln.explain(text, stage="ir")
    for bad, error in [("add.Tensor(f32[4]", ValueError), ("add.Tensor(f32[4]))", ValueError), ("add.Tensor(x)", ValueError),
                       ("add.Tensor(f31[4], f32[])", ValueError), ("add.Tensor(**{})", ValueError), ("nope(f32[])", NotImplementedError),
                       ("add.Tensor(__import__('os'))", ValueError)]:
        with pytest.raises(error):
            kiln.explain(bad)
    with pytest.raises(TypeError):
        kiln.explain(text, T)
    for what in ((text,), (ADD, T, T)):
        with pytest.raises(ValueError, match="unknown stage 'nope': expected schema"):
            kiln.explain(*what, stage="nope")


def test_without_torch(run_python):
    """kiln.fx is no attribute then, and importing it says why."""
    run_python("""
import sys
sys.modules["torch"] = None
import kiln
assert not hasattr(kiln, "fx")
try: kiln.fx
except AttributeError as error: assert "torch" in str(error), error
for statement in ("import kiln.fx", "from kiln import fx"):
    try: exec(statement)
    except ImportError as error: assert "torch" in str(error), error
    else: assert False, statement
assert kiln.call("neg", kiln.Tensor([1, 2])).tolist() == [-1, -2]
""")


def test_show_config():
    text = kiln.show_config()
    assert f"version: {kiln.__version__}" in text and "isa:" in text


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_overlapping_views(settings, mode):
    """What PyTorch does not refuse is as if all had been read before anything was written."""
    kiln.configure(mode=mode)
    for n in (16, 16, 100_000):
        a = np.arange(1.0, n + 1)
        assert kiln.call("add_.Tensor", a, a[::-1]) is a and (a == n + 1).all()
        a = np.arange(1.0, n + 1)
        kiln.call("neg", a, out=a[::-1])
        assert (a == -np.arange(n, 0.0, -1)).all()
    base = torch.arange(128.0).view(8, 16)
    a = base[:, :8]
    want = a + a.t()
    kiln.call("add_.Tensor", a, a.t())
    assert torch.equal(a, want)
    for refused in (a.contiguous(), torch.ones(3, 3)):
        with pytest.raises(RuntimeError, match="single memory location"):
            kiln.call("add_.Tensor", refused, refused.t())


def test_configure(settings, tmp_path):
    kiln.configure(mode="interp", cache_dir=tmp_path)
    assert "mode: interp" in kiln.show_config()
    kiln.call(ADD, T, T)
    assert kiln.last_tier() == "interp" and kiln.stats()["interp_calls"] == 1
    for bad, error in [({"mode": "fast"}, ValueError), ({"isa": "z80"}, ValueError), ({"nope": 1}, TypeError), ({"cc": 5}, TypeError),
                       ({"max_kernels": -1}, ValueError), ({"max_kernels": "x"}, TypeError), ({"max_kernels": 2**40}, ValueError),
                       ({"threads": -1}, ValueError), ({"threads": 1.5}, TypeError), ({"threads": 2**70}, ValueError)]:
        with pytest.raises(error):
            kiln.configure(**bad)
        assert "mode: interp" in kiln.show_config()
    kiln.configure(max_kernels=2, threads=1)
    for name in ("neg", "abs", "exp", "log", "sin", "cos"):
        assert kiln.call(name, T).shape == T.shape
    kiln.configure(mode="sync", cc="/nowhere/cc")
    assert torch.equal(kiln.call(ADD, T, T), T + T) and kiln.last_tier() == "interp"
    assert kiln.stats()["fallbacks"] == 1


def test_version_is_the_headers():
    header = (ROOT / "include/kiln/kiln.h").read_text()
    assert kiln.__version__ == ".".join(re.findall(r"#define KILN_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))


def declared(body):
    """What the statements of a stub declare, but for names of its own (_DType) and imports without `as`."""
    names = {n.name for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    names |= {n.target.id for n in body if isinstance(n, ast.AnnAssign)}
    names |= {alias.asname for n in body if isinstance(n, ast.ImportFrom) for alias in n.names if alias.asname}
    return {name for name in names if name.startswith("__") or not name.startswith("_")}


def public(names):
    return {name for name in names if not name.startswith("_")}


# What every class or module has, or what a stub need not repeat.
INHERITED = {"__doc__", "__module__", "__new__", "__init__", "__repr__", "__str__", "__reduce__"}


@pytest.mark.parametrize("module, stub", [(kiln, "__init__.pyi"), (kiln.fx, "fx.pyi")])
def test_stubs_name_everything_and_nothing_else(module, stub):
    assert kiln.fx and kiln.torch  # attributes from when they are asked for
    tree = ast.parse((ROOT / "python/kiln" / stub).read_text())
    assert declared(tree.body) - {"__version__", "bool", "fx", "torch"} == set(module.__all__)  # `import *` must not hide Python's bool
    if module is kiln:
        assert declared(tree.body) - {"__version__"} == public(vars(kiln))
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        cls = getattr(module, node.name)
        assert declared(node.body) - INHERITED <= set(dir(cls)), node.name
        defined = set(vars(cls)) - INHERITED if module is kiln else public(vars(cls))
        assert defined <= declared(node.body), node.name


@pytest.mark.parametrize("given", ["float32", "f32", "torch.float32", torch.float32, np.float32, np.dtype("float32"), kiln.float32],
                         ids=repr)
def test_dtype_arguments(given):
    want = kiln.explain("_to_copy", T, dtype=kiln.float32, stage="bind")
    assert "f32" in want and kiln.explain("_to_copy", T, dtype=given, stage="bind") == want
    assert kiln.explain("_to_copy", T, dtype=float, stage="bind") == kiln.explain("_to_copy", T, dtype="f64", stage="bind")


@pytest.mark.parametrize("given, error", [("complex31", TypeError), (3, TypeError), (object, TypeError)])
def test_dtype_arguments_that_are_not_served(given, error):
    with pytest.raises(error):
        kiln.explain("_to_copy", T, dtype=given, stage="bind")
