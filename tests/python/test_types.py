"""Every type that an argument of PyTorch 2.13's schemas has: it binds from a Python value, or test_types.c says why not."""
import pathlib
import re

import numpy as np
import pytest
import torch

import kiln

ROOT = pathlib.Path(__file__).resolve().parents[2]
X = torch.ones(2)
GENERATOR = torch.Generator()

# Of each plain type values of Python's, and how binding prints them.
TAKEN = {
    "Tensor": [(X, "f32[2]"), (X.numpy(), "f32[2]"), (kiln.Tensor([1.0, 2.0]), "f32[2]")],
    "int": [(7, "7"), (np.int8(7), "7"), (torch.tensor(7), "7")],
    "SymInt": [(7, "7"), (np.uint64(7), "7")],
    "float": [(2.5, "2.5"), (np.float32(2.5), "2.5"), (torch.tensor(2.5), "2.5"), (2**63, "9.223372036854776e+18")],
    "bool": [(True, "true"), (False, "false")],
    "complex": [(1 + 2j, "1+2j"), (2.5, "2.5+0j"), (3, "3+0j")],
    "Scalar": [(2**64 - 1, "18446744073709551615"), (-7, "-7"), (2.5, "2.5"), (True, "true"), (2j, "0+2j"), (torch.tensor(3), "3")],
    "str": [("some_name", '"some_name"')],
    "ScalarType": [(torch.bfloat16, "bf16"), ("bfloat16", "bf16"), (kiln.bfloat16, "bf16")],
    "Device": [(torch.device("cpu"), '"cpu"'), ("cpu", '"cpu"')],
    "Layout": [(torch.strided, '"strided"')],
    "MemoryFormat": [(torch.channels_last, '"channels_last"')],
    "Generator": [(GENERATOR, "generator")],
}


def types():
    """Types as they stand in the list, without aliases."""
    found = set()
    for line in (ROOT / "ops/aten-schemas-2.13.txt").read_text().splitlines():
        line = re.sub(r"\([a-z]!?(\|[a-z])*( -> [^)]*)?\)", "", line)
        found.update(re.findall(r"[(, ]((?:Tensor|int|SymInt|float|bool|complex|Scalar|str|ScalarType|Device|Layout|MemoryFormat|Generator)"
                                r"\??(?:\[\d*\]\??)?) \w+(?=[,)=])", line.split(" -> ")[0]))
    return sorted(found)


TYPES = types()


def test_each_plain_type_is_met():
    assert {re.sub(r"[?\[\]\d]", "", t) for t in TYPES} == set(TAKEN) and len(TYPES) > 45


@pytest.mark.parametrize("number, text", list(enumerate(TYPES)), ids=lambda v: v if isinstance(v, str) else "")
def test_it_binds(number, text):
    kiln.load_ops(f"map my::argument{number}(Tensor self, {text} x) -> Tensor : promote(self) = self\n    ignore x\n")

    def bound(value):
        lines = kiln.explain(f"my::argument{number}", X, value, stage="bind").splitlines()
        return next(line for line in lines if line.startswith("x: "))[3:]

    plain, item, is_list = re.fullmatch(r"(\w+)(\??)(\[\d*\])?\??", text).groups()
    for value, want in TAKEN[plain]:
        if is_list:
            assert bound([value, value]) == bound((value, value)) == f"[{want}, {want}]"
        else:
            assert bound(value) == want
    if is_list and item:
        assert bound([value, None, value]) == f"[{want}, None, {want}]"
    if text.endswith("?"):
        assert bound(None) == "None"
    else:
        with pytest.raises(TypeError, match="argument 'x' must be"):
            bound(None)
    with pytest.raises(TypeError, match="argument 'x'"):
        bound(X if plain == "Generator" else GENERATOR)
    with pytest.raises(TypeError, match="argument 'x'"):
        bound([[value]])


def test_wide_items():
    kiln.load_ops("map my::ints(Tensor self, int[] x) -> Tensor : promote(self) = self\n    ignore x\n")
    with pytest.raises(OverflowError, match="argument 'x': an int argument does not fit 64 bits"):
        kiln.call("my::ints", X, [1, 2**63])


def test_a_generator_where_none_is_taken():
    with pytest.raises(TypeError, match="aten::add.Tensor: argument 'other' must be Tensor, not Generator"):
        kiln.call("aten::add.Tensor", X, GENERATOR)
    with pytest.raises(TypeError, match="no overload fits|must be"):
        kiln.call("add", X, GENERATOR)
