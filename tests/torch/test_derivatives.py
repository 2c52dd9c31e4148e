"""Every derivative of prims.def against differences of the primitive itself, and what is derived from them, for rows that
ship too, against PyTorch's autograd."""
import re
from pathlib import Path

import pytest
import torch

import kiln
from kiln import _kiln

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.findall(r'^P\(\w+, +(\w+), +(\d), (\w+), +(\w+), +\w+, +"(.*)"\)', (ROOT / "src/expr/prims.def").read_text(), flags=re.M)
NAMES = "abc"

# Where operands are drawn from: -1.9 to 2.1 unless they are here, by operand.
POSITIVE, UNIT, INNER = (0.3, 3.1), (-0.9, 0.9), (0.1, 0.9)
DOMAINS = {
    "log": [POSITIVE], "log2": [POSITIVE], "log10": [POSITIVE], "sqrt": [POSITIVE], "rsqrt": [POSITIVE], "log1p": [(-0.8, 3)],
    "tan": [UNIT], "asin": [UNIT], "acos": [UNIT], "atanh": [UNIT], "acosh": [(1.2, 4)], "erfinv": [UNIT], "ndtri": [INNER],
    "lgamma": [POSITIVE], "digamma": [POSITIVE], "polygamma": [(1, 1), POSITIVE], "zeta": [(1.5, 4), POSITIVE],
    "igamma": [POSITIVE, POSITIVE], "igammac": [POSITIVE, POSITIVE], "pow": [POSITIVE, (-1.9, 2.1)],
    "modified_bessel_k0": [POSITIVE], "modified_bessel_k1": [POSITIVE], "scaled_modified_bessel_k0": [POSITIVE],
    "scaled_modified_bessel_k1": [POSITIVE], "bessel_y0": [POSITIVE], "bessel_y1": [POSITIVE],
    "chebyshev_t": [UNIT, (3, 3)], "hermite_h": [UNIT, (3, 3)], "hermite_he": [UNIT, (3, 3)],
    "div": [(-1.9, 2.1), POSITIVE], "rem": [(5.1, 6.9), (1.6, 1.65)], "mod": [(-6.9, -6.7), (1.6, 1.65)], "floordiv": [(5.1, 6.2), (1.6, 1.65)],
}


def partials(text):
    """The column by operand; commas inside brackets do not part."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text)]


def cases():
    for name, arity, rule, types, column in TABLE:
        found = partials(column)
        assert len(found) == int(arity), f"{name} has {arity} operands and {len(found)} derivatives"
        if rule == "SAME" and "F" in types:
            yield from ((name, int(arity), k) for k in range(int(arity)) if found[k] != "?")


def sample(name, arity, n=17):
    drawn = []
    for k in range(arity):
        low, high = DOMAINS.get(name, [])[k] if k < len(DOMAINS.get(name, [])) else (-1.9, 2.1)
        steps = torch.linspace(0, 1, n, dtype=torch.float64) * 0.97 + 0.013
        drawn.append(low + (high - low) * steps[torch.randperm(n, generator=torch.Generator().manual_seed(k))])
    return drawn


def difference(call, operands, k, h):
    def at(step):
        return call(*(x + step if j == k else x for j, x in enumerate(operands)))
    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


@pytest.mark.parametrize("name, arity, k", list(cases()))
def test_column(name, arity, k):
    names = NAMES[:arity]
    row = f"map derivative::{name}({', '.join('Tensor ' + a for a in names)}) -> Tensor : takes f32 f64 = {name}({', '.join(names)})"
    kiln.load_ops(row)
    operands = sample(name, arity)
    want = difference(lambda *x: torch.from_dlpack(kiln.call(f"derivative::{name}", *x)), operands, k, 1e-3)
    text = _kiln.op_grad(f"derivative::{name}", k)
    if not text:
        assert torch.all(want.abs() < 1e-9), f"the derivative of {name} by {NAMES[k]} is not 0 but {want}"
        return
    kiln.load_ops(text)
    takes = re.findall(r"Tensor (\w+)", text.partition("->")[0])
    known = {"grad": torch.ones(len(want), dtype=torch.float64), **dict(zip(NAMES, operands))}
    got = torch.from_dlpack(kiln.call(re.match(r"map ([\w:]+)", text).group(1), *(known[a] for a in takes)))
    torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-8, msg=lambda m: f"{name} by {NAMES[k]}, {text}: {m}")


def gradients(row, *inputs):
    """Of the sum of a row's results, by its tensors, as Kiln derives them."""
    name = re.match(r"map ([\w:]+)", row).group(1)
    kiln.load_ops(row)
    for k, value in enumerate(inputs):
        text = _kiln.op_grad(name, k)
        if not text:
            yield torch.zeros_like(value)
            continue
        kiln.load_ops(text)
        known = {"grad": torch.ones_like(value), **dict(zip(NAMES, inputs))}
        yield torch.from_dlpack(kiln.call(re.match(r"map ([\w:]+)", text).group(1),
                                          *(known[a] for a in re.findall(r"Tensor (\w+)", text.partition("->")[0]))))


# Where a derivative has a choice: ties, corners, powers of 0, NaN.
CORNERS = [
    ("max(a, b)", torch.maximum), ("min(a, b)", torch.minimum), ("abs(a) + 0 * b", lambda a, b: a.abs()),
    ("pow(a, b)", torch.pow), ("a ** 2 + b", lambda a, b: a ** 2 + b), ("a ** 0 + b", lambda a, b: a ** 0 + b),
    ("copysign(a, b)", torch.copysign), ("a > 0 ? sqrt(a) : b", lambda a, b: torch.where(a > 0, a.sqrt(), b)),
]


@pytest.mark.parametrize("number, case", list(enumerate(CORNERS)))
def test_corners_are_pytorchs(number, case):
    body, function = case
    values = torch.tensor([-2.0, -0.0, 0.0, 1.0, 1.5, 2.0, torch.nan], dtype=torch.float64)
    a, b = (x.clone().requires_grad_() for x in torch.meshgrid(values, values, indexing="ij"))
    row = f"map corners::f{number}(Tensor a, Tensor b) -> Tensor : takes f64 = {body}"
    out = function(a, b)
    want = torch.autograd.grad(out.sum(), (a, b), allow_unused=True)
    for x, got, expected in zip((a, b), gradients(row, a.detach(), b.detach()), want):
        expected = torch.zeros_like(x) if expected is None else expected
        if body.startswith("a > 0"):  # PyTorch's where gives 0 * inf; a side that is not chosen has no part in it here
            expected = torch.nan_to_num(expected, nan=0.0) if x is a else expected
        torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("body, text", [
    ("a * b", "= grad * b"), ("a + b", "= grad"), ("a - b * b", "= grad"), ("-a * 1 + b", "= -grad"), ("b / a", "= -(grad * (b / a / a))"),
    ("(a > 0 ? a : 0) + b", "= a > 0 ? grad : 0"), ("a > 0 ? a * b : b - a", "= a > 0 ? grad * b : -grad"),
    ("a ** 2 + b", "= grad * (2 * a)"), ("floor(a) + b", ""), ("f64(a) * b", "= grad * b"), ("i64(a) * b", ""), ("(a < b) ? 1.0 : 2.0", ""),
    ("sin(cos(a)) * b", "= -(grad * (b * (cos(cos(a)) * sin(a))))"),
])
def test_what_is_left_after_simplification(body, text):
    name = f"simple::f{abs(hash(body))}"
    kiln.load_ops(f"map {name}(Tensor a, Tensor b) -> Tensor : takes f64 = {body}")
    found = _kiln.op_grad(name, 0)
    assert text == "" and found == "" or found.split("\n")[0].endswith(text), found


@pytest.mark.parametrize("inner, around", [("a", "max(b, {})"), ("a", "(b > {0} ? {0} : 1.5)"), ("a", "tanh({})"), ("a", "i1({})")])
def test_text_does_not_double_with_each_level(inner, around):
    sizes = []
    for depth in (6, 12):
        body = inner
        for _ in range(depth if "{0}" not in around else depth // 3):
            body = around.format(body)
        name = f"deep::f{abs(hash((around, depth)))}"
        kiln.load_ops(f"map {name}(Tensor a, Tensor b) -> Tensor : takes f64 = {body} + b")
        sizes.append(len(_kiln.op_grad(name, 0)) / len(body))
    assert sizes[1] < 4 * sizes[0], sizes


# -- the rows that ship: none of their gradients is served, but they are the widest choice of rows there is --------------------------

def shipped():
    for name in kiln.ops():
        op = _kiln.op(name if "." in name else f"{name}.default").__self__
        if op.form == "functional" and op.family in ("map", "fold") and name.startswith("aten::"):
            yield name, op.schema


def gradient_rows(name, schema):
    """(place, row) of the gradients; of those that cannot be derived the error."""
    for place in range(len(torch._C.parse_schema(schema).arguments)):
        try:
            yield place, _kiln.op_grad(name, place)
        except NotImplementedError as error:
            yield place, error


UNKNOWN = r"airy_ai|nextafter|chebyshev|hermite|laguerre|legendre|zeta|igamma|only of a fold that adds up|on the diagonal|in the triangle|'item'"


def test_gradients_of_every_row_load():
    count = 0
    for name, schema in shipped():
        for _, row in gradient_rows(name, schema):
            if isinstance(row, NotImplementedError):
                assert re.search(UNKNOWN, str(row)), row
            elif row:
                kiln.load_ops(row.replace("map aten::", "map shipped::", 1))
                count += 1
    assert count > 250


def tensors_only(schema):
    parsed = torch._C.parse_schema(schema)
    return [str(r.type) for r in parsed.returns] == ["Tensor"] and all(str(a.type) == "Tensor" or a.default_value is not None for a in parsed.arguments)


def check_row(name, schema):
    """How many gradients were compared with PyTorch's."""
    parsed = torch._C.parse_schema(schema)
    places = [k for k, a in enumerate(parsed.arguments) if str(a.type) == "Tensor"]
    inputs = [(torch.linspace(0.13, 0.87, 11, dtype=torch.float64)[torch.randperm(11, generator=torch.Generator().manual_seed(k))]
               + 0.003 * k).requires_grad_() for k in range(len(places))]  # no ties: clamp's are not those of max
    base, _, overload = name.removeprefix("aten::").partition(".")
    try:
        out = getattr(getattr(torch.ops.aten, base), overload or "default")(*inputs)
        wants = [torch.autograd.grad(out.sum(), x, allow_unused=True, retain_graph=True)[0] for x in inputs]
    except (RuntimeError, NotImplementedError, IndexError):
        return 0
    count = 0
    for place, row in gradient_rows(name, schema):
        if place not in places or isinstance(row, NotImplementedError):
            continue
        want = wants[places.index(place)]
        want = torch.zeros_like(inputs[0]) if want is None else want
        got = torch.zeros_like(want)
        if row:
            row = row.replace("map aten::", "map shipped::", 1)
            kiln.load_ops(row)
            made = re.match(r"map ([\w:.]+)", row).group(1)
            known = {p.name: p.default_value for p in parsed.arguments}
            known.update({parsed.arguments[k].name: x.detach() for k, x in zip(places, inputs)})
            extra = [p.name for p in torch._C.parse_schema(_kiln.op(made if "." in made else f"{made}.default").__self__.schema).arguments]
            got = torch.from_dlpack(kiln.call(made, *(known.get(p, torch.ones_like(out)) for p in extra)))
        torch.testing.assert_close(got.expand_as(want), want, rtol=1e-6, atol=1e-8, equal_nan=True,
                                   msg=lambda m: f"{name} by argument {place}: {row}: {m}")
        count += 1
    return count


def test_gradients_of_rows_are_pytorchs():
    assert sum(check_row(name, schema) for name, schema in shipped() if tensors_only(schema)) > 150
