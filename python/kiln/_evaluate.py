"""Formulas of kiln.evaluate -> rows: a formula's text and the kinds of its arguments become one row of Kiln's language.

The C side (py_evaluate.c) calls `names` once for each text and `row` once for each combination of types and dtypes that the
text is given; it remembers what they return.  Nothing here is called for a formula that was met before with such arguments.

A formula is Python's expression syntax, as in numexpr.  Every operation is typed here, one after the other, as NumPy or
PyTorch would compute it: by NumPy's rules (NEP 50) if all arrays are NumPy's, else by PyTorch's.  The row names the dtype
of every argument and states every conversion, so that Kiln's own promotion has nothing left to decide.
"""
import ast
import difflib
import functools
import re
import sys

from . import _kiln

# -- what is wrong, and where ---------------------------------------------------------------------------------------


def _shown(text, line, column):
    """The line of the formula with a caret under the place."""
    lines = text.splitlines() or [""]
    line = lines[min(line, len(lines)) - 1]
    return f"\n  {line}\n  {' ' * min(column, len(line))}^"


def _error(kind, text, node, message):
    start = text.splitlines()[node.lineno - 1].encode()[:node.col_offset].decode()
    return kind(f"kiln.evaluate: {message}{_shown(text, node.lineno, len(start))}")


def no_such_name(text, name):
    """The exception for a name of the formula that has no value."""
    node = next(n for n in ast.walk(_parse(text)) if isinstance(n, ast.Name) and n.id == name)
    more = f"; {name} is a function: write {name}(...)" if name in _FUNCTIONS else f"; write {_CONSTANTS[name]}" if name in _CONSTANTS else ""
    return _error(NameError, text, node, f"the name '{name}' has no value: expected one among the caller's local and global "
                  f"variables, or in the dicts that were given{more}")


# What other languages write, and what a formula has in its place.
_FOREIGN = ((r"&&", "write (a) & (b)"), (r"\|\|", "write (a) | (b)"), (r"!(?!=)", "write ~a"), (r"\?", "write where(c, a, b)"),
            (r"(?<![\w.])\d+(\.\d*)?(?!e[+-]?\d)(?!j\b)[^\W\d_]", "write 2*x for 2x"), (r"(?<![\w.])[^\W\d]\w* +[^\W\d]\w*\s*$", "write f(x) for f x"))


def _way_out(text):
    return next((f"; {advice}" for pattern, advice in _FOREIGN if re.search(pattern, text)), "")


def _parse(text):
    try:
        return ast.parse(text, "<formula>", "eval").body
    except SyntaxError as error:
        raise ValueError(f"kiln.evaluate: this is no formula: {error.msg}{_way_out(text)}"
                         + _shown(text, error.lineno or 1, (error.offset or len(text) + 1) - 1)) from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise ValueError(f"kiln.evaluate: this is no formula: {error}") from None


def _no_part(text, node):
    """The exception for a part that no formula has and whose own names should not be looked up, or None."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner, name = node.func.value, node.func.attr
        args = node.args if isinstance(owner, ast.Name) and owner.id in _MODULES else [owner, *node.args]
        if name not in _FUNCTIONS:
            return _no_function(text, node, name, len(args))
        if len(args) == _FUNCTIONS[name]:
            args = ", ".join(ast.get_source_segment(text, arg) for arg in args)
            return _error(ValueError, text, node, f"functions have no prefix: write {name}({args})")
    if isinstance(node, ast.Constant) and type(node.value) not in (bool, int, float, complex):
        return _error(ValueError, text, node, "expected a number")
    if isinstance(node, (ast.Attribute, ast.Lambda)):
        return _error(ValueError, text, node, _INSTEAD[type(node)])
    return None


def _no_function(text, node, name, nargs):
    """The exception for a function that formulas do not have."""
    near = [] if name in _ADVICE else difflib.get_close_matches(name.lower(), [f for f in _FUNCTIONS if f[0] == name[0].lower()], 1, 0.75)
    if (name, nargs) in (("max", 2), ("min", 2)):
        what = f"{name} takes many elements to one: write {name}imum(a, b)"
    elif name in _REDUCTIONS:
        what = (f"{name} takes many elements to one, and a formula is computed element by element: "
                f"take the {name} of what kiln.evaluate returns")
    else:
        what = f"unknown function '{name}'" + (f"; {_ADVICE[name]}" if name in _ADVICE else f", did you mean '{near[0]}'?" if near else "")
    return _error(ValueError, text, node, what)


def names(text):
    """The names of the formula's arguments, each once, in the order of the text."""
    body = _parse(text)
    for node in ast.walk(body):
        wrong = _no_part(text, node)
        if wrong:
            raise wrong
    functions = {id(n.func) for n in ast.walk(body) if isinstance(n, ast.Call)}
    found = [n for n in ast.walk(body) if isinstance(n, ast.Name) and id(n) not in functions]
    found.sort(key=lambda n: (n.lineno, n.col_offset))
    return tuple(dict.fromkeys(sys.intern(n.id) for n in found))


# -- dtypes ----------------------------------------------------------------------------------------------------------

_SHORT = {"bool": "bool", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "int8": "i8", "int16": "i16",
          "int32": "i32", "int64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
          "complex64": "c64", "complex128": "c128"}
_LONG = {short: long for long, short in _SHORT.items()}
_KIND = {short: 0 if short == "bool" else {"i": 1, "u": 1, "c": 3}.get(short[0], 2) for short in _LONG}
_BITS = {short: int(re.sub(r"\D", "", short) or 1) for short in _LONG}
_WEAK = "bifc"  # Python's bool, int, float and complex, by kind


def _numpy_promote(a, b):
    """numpy.promote_types."""
    if _KIND[a] > _KIND[b] or (_KIND[a] == _KIND[b] and _BITS[a] > _BITS[b]):
        a, b = b, a
    if a == b or a == "bool":
        return b
    if _KIND[b] == 1:
        if a[0] == b[0] or (a[0] == "u" and _BITS[a] < _BITS[b]):
            return b
        return "f64" if "u64" in (a, b) else f"i{_BITS[b] * 2}"
    least = {1: {8: 16, 16: 32}.get(_BITS[a], 64), 2: _BITS[a], 3: _BITS[a] // 2}[_KIND[a]]  # bits of a float that holds a
    bits = max(least, _BITS[b] // (2 if _KIND[b] == 3 else 1))
    return f"c{max(bits, 32) * 2}" if _KIND[b] == 3 else f"f{bits}"


def _torch_promote(a, b):
    """torch.promote_types; None where PyTorch has no such pair."""
    if _KIND[a] > _KIND[b] or (_KIND[a] == _KIND[b] and _BITS[a] > _BITS[b]):
        a, b = b, a
    if a == b or a == "bool":
        return b
    if _KIND[b] == 1:
        limited = {"u16", "u32", "u64"} & {a, b}
        return None if limited else b if a[0] == b[0] or a == "u8" and _BITS[b] > 8 else f"i{_BITS[b] * 2}"
    if _KIND[a] < _KIND[b] or _KIND[b] == 3:
        return "c128" if (a, b) == ("f64", "c64") else b
    return "f32" if {a, b} == {"f16", "bf16"} else b


def _computed(dtype):
    """What a row computes with in the place of elements of a dtype."""
    return "f32" if dtype in ("f16", "bf16") else dtype


class _Value:
    """A part of the formula: its text in the row, and what type it has."""

    __slots__ = ("text", "dtype", "weak", "literal", "rank", "node", "host", "near")

    def __init__(self, text, node, dtype=None, weak=None, literal=None, rank=2, host=None, near=None):
        self.text, self.node = text, node
        self.dtype = dtype      # of elements; or None:
        self.weak = weak        # Python's number of that kind, which takes the dtype of what it meets
        self.literal = literal  # the number, if it stands in the formula
        self.rank = rank        # 2: an array with dimensions; 1: one without; 0: a number
        self.host = host        # of a number: its text in a check, where checks can compute it
        self.near = near        # of an int that may need more than 64 bits: its text in a check as a float; else None

    @property
    def kind(self):
        return _KIND[self.dtype] if self.dtype else _WEAK.index(self.weak)


# -- functions --------------------------------------------------------------------------------------------------------

_FLOAT = {name: name for name in """sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p
    sqrt rsqrt sigmoid erf erfc erfinv lgamma digamma i0 i0e i1 i1e""".split()}
_FLOAT.update({"arc" + name[1:]: name for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")})
_FLOAT2 = {"arctan2": "atan2", "atan2": "atan2", "hypot": "hypot", "copysign": "copysign", "nextafter": "nextafter"}
_REAL = set("erf erfc erfinv lgamma digamma i0 i0e i1 i1e".split())
_WHOLE = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "round", "rint": "round"}
_MEET = {"maximum": "max", "minimum": "min"}
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
              ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.Eq: "==", ast.NotEq: "!=",
              ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_REDUCTIONS = {"sum", "prod", "min", "max", "mean", "any", "all", "std", "var", "argmin", "argmax", "cumsum", "dot"}
_FUNCTIONS = {"where": 3, "complex": 2, "fmod": 2, "power": 2, "abs": 1, "absolute": 1, "sign": 1, "square": 1, "real": 1, "imag": 1,
              "conj": 1, "conjugate": 1, "isnan": 1, "isinf": 1, "isfinite": 1, "signbit": 1, "ones_like": 1, "zeros_like": 1,
              **dict.fromkeys(_FLOAT, 1), **dict.fromkeys(_FLOAT2, 2), **dict.fromkeys(_WHOLE, 1), **dict.fromkeys(_MEET, 2)}
_INSTEAD = {ast.BoolOp: "'and' and 'or' ask for one truth value: write & and | between comparisons in brackets, as (x > 0) & (y > 0)",
            ast.IfExp: "'a if c else b' asks for one truth value: write where(c, a, b)",
            ast.Not: "'not' asks for one truth value: write ~x",
            ast.Attribute: "attributes are not part of a formula: give the value a name before",
            ast.Subscript: "subscripts are not part of a formula: give the view a name before",
            ast.List: "lists are not part of a formula", ast.Tuple: "one expression is expected, without a comma"}
_INSTEAD.update({ast.Lambda: "a formula is the expression alone: write what stands behind the colon",
                 ast.JoinedStr: "texts are not part of a formula",
                 ast.MatMult: "@ is a matrix product, and a formula is computed element by element"})
_MODULES = {"np", "numpy", "math", "cmath", "torch", "kiln", "ne", "numexpr", "jnp", "F"}
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_NEGATIVE_POWER = "integers to negative integer powers are not served: make one of the two a float"
_MOST_BITS = 4096   # of a number that Python computes
_MOST_ARRAYS = 23   # a row has 24 tensors, and the result is one
_CONVERT = "convert the array before the formula"
_ADVICE = {"clip": "write minimum(maximum(x, lowest), highest)", "clamp": "write minimum(maximum(x, lowest), highest)",
           "relu": "write maximum(x, 0)", "ln": "write log(x)", "sqr": "write square(x)", "pow": "write x**y", "mod": "write x % y",
           "remainder": "write x % y", "reciprocal": "write 1 / x", "negative": "write -x", "fabs": "write abs(x)",
           "logical_and": "write &", "logical_or": "write |", "logical_not": "write ~x", "select": "write where(c, a, b)",
           "matmul": _INSTEAD[ast.MatMult].replace("@", "matmul"),
           **dict.fromkeys(["int", "float", "bool", "astype", *_SHORT], _CONVERT)}
_CONSTANTS = {"pi": "3.141592653589793", "e": "2.718281828459045", "inf": "1e999", "nan": "1e999 - 1e999"}
_WORDS = set("""and or not else skip from acc rhs inf nan pi lowest highest largest true false when check static ignore let host view
    domain tol doc grad over lack state step block merge finish kept writes gives rest out window into call for update routine takes
    promote to keep all none common given n i self compute or_else""".split())


class _Formula:
    """One formula with arguments of one combination of types."""

    def __init__(self, text, arguments, torch, default):
        self.text = text
        self.arguments = arguments  # name -> _Value
        self.torch = torch          # PyTorch's rules; else NumPy's
        self.default = default      # the dtype of floats that come of integers, by PyTorch's rules
        self.lets = []              # names that stand for parts that are used more than once
        self.within = True          # whether Python's ints are taken to fit what they are compared with
        self.conditions = {}        # under which they do
        self.required = {}          # what is said if it does not hold -> conditions of numbers
        self.checks = []            # lines of other checks

    def error(self, node, message, kind=TypeError):
        return _error(kind, self.text, node, message)

    # -- types ---------------------------------------------------------------------------------------------------

    def described(self, value):
        return f"Python's {('bool', 'int', 'float', 'complex')[value.kind]}" if value.weak else _LONG[value.dtype]

    def strong(self, weak):
        """The dtype of a number that meets no array."""
        if self.torch and weak in "fc":
            return self.default if weak == "f" else self.complex_of(self.default)
        return {"b": "bool", "i": "i64", "f": "f64", "c": "c128"}[weak]

    @staticmethod
    def complex_of(dtype):
        return "c128" if dtype == "f64" else "c64"

    def float_of(self, dtype):
        """The dtype in which functions of real numbers compute for elements of a dtype."""
        if _KIND[dtype] >= 2:
            return dtype
        return self.default if self.torch else f"f{min(64, max(16, 2 * _BITS[dtype]))}"

    def met(self, dtype, weak):
        """The dtype of elements that meet a Python number."""
        kind = _WEAK.index(weak)
        if kind <= _KIND[dtype]:
            return dtype
        if weak == "c":
            return self.complex_of(dtype if _KIND[dtype] == 2 else self.default if self.torch else "f64")
        return "i64" if weak == "i" else self.strong("f")

    def promoted(self, node, a, b):
        """The dtype in which two values meet; None: both are Python numbers."""
        if a.weak and b.weak:
            return None
        if a.weak or b.weak:
            return self.met(a.dtype or b.dtype, a.weak or b.weak)
        if not self.torch:
            return _numpy_promote(a.dtype, b.dtype)
        if a.rank != b.rank:
            high, low = (a, b) if a.rank > b.rank else (b, a)
            if high.kind >= low.kind:
                return high.dtype
            return self.complex_of(high.dtype) if high.kind == 2 else _torch_promote(high.dtype, low.dtype)
        dtype = _torch_promote(a.dtype, b.dtype)
        if not dtype:
            raise self.error(node, f"PyTorch has no common dtype of {_LONG[a.dtype]} and {_LONG[b.dtype]}: convert one of them before")
        return dtype

    def cast(self, value, dtype):
        """The value's text as elements of a dtype."""
        if value.literal is not None:
            return self.literal(value, dtype)
        self.in_64_bits(value)
        own = value.dtype or {"b": "bool", "i": "i64", "f": "f64", "c": "c128"}[value.weak]
        if value.weak == "i" and _KIND[dtype] == 1:
            return self.fitting(value, dtype)
        if own == dtype or (own in ("f16", "bf16") and dtype == "f32"):
            return value.text
        if _KIND[dtype] == 3:
            part = "f32" if dtype == "c64" else "f64"
            if _KIND[own] == 3:
                return f"complex({part}(re({value.text})), {part}(im({value.text})))"
            return f"complex({part}({value.text}), {part}(0))"
        return f"{dtype}({value.text})"

    def require(self, condition, message):
        """A condition of numbers that must hold for a call."""
        self.required.setdefault(message, {})[condition] = True

    def in_64_bits(self, value):
        if value.near:
            self.require(f"abs({value.near}) < 9223372036854775808.0", "a number does not fit 64 bits")

    def asked(self, value, what):
        """A Python int's text in a check."""
        text = self.host(value) or value.near
        if not text:
            raise self.error(value.node, f"this operation of Python's int is not served {what}: compute it before the formula", ValueError)
        return text

    def fitting(self, value, dtype):
        """A Python int of the call as elements of a dtype, which it must fit."""
        named, (low, high) = isinstance(value.node, ast.Name), _limits(dtype)
        if dtype == "i64" or named and (self.torch or dtype[0] == "i"):
            return value.text  # Kiln's own conversion of arguments looks whether they fit
        number = self.asked(value, f"where it meets an array of {_LONG[dtype]}")
        limit = "" if dtype == "u64" else f" and {number} <= {high}"
        self.require(f"{number} >= {low}{limit}", f"a number does not fit {_LONG[dtype]}")
        return value.text if named else f"{dtype}({value.text})"

    def literal(self, value, dtype):
        number, kind = value.literal, _KIND[dtype]
        if kind == 0:
            return "true" if number else "false"
        if kind == 1:
            low, high = _limits(dtype)
            if not low <= number <= high:
                raise self.error(value.node, f"the number {_short(number)} does not fit {_LONG[dtype]}", ValueError)
            return _integer(int(number), dtype)
        try:
            number = complex(number) if kind == 3 else float(number)
        except OverflowError:
            raise self.error(value.node, f"the number {_short(number)} does not fit {_LONG[dtype]}", ValueError) from None
        if kind == 3:
            part = "f32" if dtype == "c64" else "f64"
            return f"complex({part}({_digits(number.real)}), {part}({_digits(number.imag)}))"
        return f"{_computed(dtype)}({_digits(number)})"

    def fixed(self, value, dtype=None):
        """The value with the dtype that it has alone, or with this one."""
        dtype = dtype or value.dtype or self.strong(value.weak)
        return _Value(self.cast(value, dtype), value.node, dtype, rank=value.rank)

    # -- parts ---------------------------------------------------------------------------------------------------

    def part(self, node):
        if isinstance(node, ast.Constant):
            return self.constant(node)
        if isinstance(node, ast.Name):
            value = self.arguments[node.id]
            return _Value(value.text, node, value.dtype, value.weak, rank=value.rank, host=value.host)
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            return self.unary(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return self.binary(node, _OPERATORS[type(node.op)], self.part(node.left), self.part(node.right))
        if isinstance(node, ast.Compare):
            return self.compare(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        what = type(node.op) if isinstance(node, (ast.UnaryOp, ast.BinOp)) else type(node)
        raise self.error(node, _INSTEAD.get(what, "expected a name, a number, an operator, a comparison or a function"), ValueError)

    def constant(self, node):
        if type(node.value) not in (bool, int, float, complex):
            raise self.error(node, "expected a number", ValueError)
        weak = {bool: "b", int: "i", float: "f", complex: "c"}[type(node.value)]
        return self.number(node, node.value, weak)

    def number(self, node, number, weak):
        text = f"complex(f64({_digits(number.real)}), f64({_digits(number.imag)}))" if weak == "c" else _digits(number)
        return _Value(text, node, weak=weak, literal=number, rank=0)

    def unary(self, node):
        value = self.part(node.operand)
        if value.weak == "b" and value.literal is None:  # Python's -True is -1, and its ~True is -2
            value = _Value(self.whole_number(value), node, weak="i", rank=0, host=self.host(value))
        if isinstance(node.op, ast.Invert):
            if value.kind > 1:
                raise self.error(node, f"~ is not of {self.described(value)}: expected bool or integers")
            if value.literal is not None:
                return self.number(node, ~int(value.literal), "i")
            self.in_64_bits(value)
            return _Value(f"(~{value.text})", node, value.dtype, value.weak, rank=value.rank)
        if value.literal is not None:
            number = -value.literal if isinstance(node.op, ast.USub) else +value.literal
            return self.number(node, number, "i" if value.weak == "b" else value.weak)
        if value.kind == 0:
            raise self.error(node, "minus and plus are not of bool: expected numbers; ~ is 'not'")
        if isinstance(node.op, ast.UAdd):
            return value
        host = f"(-{value.host})" if value.host else None
        near = f"(-{self.near(value)})" if value.weak == "i" and self.near(value) else None
        return _Value(f"(-{value.text})", node, value.dtype, value.weak, rank=value.rank, host=host, near=near)

    def binary(self, node, sign, a, b):
        if sign in "&|^":
            return self.bits(node, sign, a, b)
        if sign == "**":
            return self.power(node, a, b)
        dtype, rank = self.promoted(node, a, b), max(a.rank, b.rank)
        if dtype is None:
            return self.numbers(node, sign, a, b)
        if sign == "/" and _KIND[dtype] < 2:
            dtype = self.strong("f")
        if dtype == "bool" and sign in ("//", "%", "<<", ">>") and not self.torch:
            dtype = "i8"
        if dtype == "bool" and sign not in "+*":
            raise self.error(node, f"{sign} is not of two bool: expected numbers" + ("; ^ is 'one of them'" if sign == "-" else ""))
        if sign in ("<<", ">>") and _KIND[dtype] != 1:
            raise self.error(node, f"{sign} is not of {_LONG[dtype]}: expected integers")
        if sign in ("//", "%") and _KIND[dtype] == 3:
            raise self.error(node, f"{sign} is not of complex numbers")
        if sign == "%" and _KIND[dtype] == 2 and not self.torch:
            return _Value(self.remainder(a, b, dtype), node, dtype, rank=rank)
        return _Value(f"({self.cast(a, dtype)} {sign} {self.cast(b, dtype)})", node, dtype, rank=rank)

    def remainder(self, a, b, dtype):
        """The remainder of floats, whose zeros have the sign of the divisor in NumPy and Python."""
        by = self.cast(b, dtype)
        if b.literal:
            return f"({'' if b.literal > 0 else '-'}abs({self.cast(a, dtype)} % {by}))"
        by = self.shared(_Value(by, b.node, dtype))
        return f"copysign({self.cast(a, dtype)} % {by}, {by})"

    def numbers(self, node, sign, a, b):
        """An operation of two Python numbers is a Python number."""
        if a.literal is not None and b.literal is not None:
            number = self.folded(node, sign, a.literal, b.literal)
            return self.number(node, number, {float: "f", complex: "c"}.get(type(number), "i"))
        fraction = sign == "/" or sign == "**" and b.literal is not None and b.weak == "i" and b.literal < 0
        weak = max(a.weak, b.weak, "f" if fraction else "i", key=_WEAK.index)
        if weak in "fc" and sign in ("<<", ">>") or weak == "c" and sign in ("//", "%"):
            raise self.error(node, f"{sign} is not of a {('float', 'complex number')[weak == 'c']}")
        if weak == "i":
            return self.integers(node, sign, a, b)
        dtype, hosts = {"f": "f64", "c": "c128"}[weak], (self.host(a), self.host(b))
        if weak == "f" and sign == "%":
            return _Value(self.remainder(a, b, dtype), node, weak=weak, rank=0)
        if weak == "f" and sign == "**":
            self.check_root(a, b, *hosts)
        x, y = self.cast(a, dtype), self.cast(b, dtype)
        host = f"({hosts[0]} {sign} {hosts[1]})" if weak == "f" and all(hosts) and sign in "+-*/" else None
        return _Value(f"pow({x}, {y})" if sign == "**" else f"({x} {sign} {y})", node, weak=weak, rank=0, host=host)

    def integers(self, node, sign, a, b):
        """An operation of two Python ints, which checks hold to 64 bits; sums and products wrap, so only what comes of them must fit."""
        x, y = self.whole_number(a), self.whole_number(b)
        hosts, nears = (self.host(a), self.host(b)), (self.near(a), self.near(b))
        ring, host, near = sign in "+-*" and all(nears), None, None
        if not ring:
            self.in_64_bits(a)
            self.in_64_bits(b)
        if sign in ("<<", ">>", "**"):
            number = self.asked(b, f"behind {sign}")
            self.require(f"{number} >= 0", _NEGATIVE_POWER if sign == "**" else "negative shift count")
        if all(hosts) and (ring or sign in ("//", "%")):
            host = f"({hosts[0]} {sign} {hosts[1]})"
        if all(nears) and (ring or sign in ("**", "<<")):
            near = f"({nears[0]} * 2.0 ** {nears[1]})" if sign == "<<" else f"({nears[0]} {sign} {nears[1]})"
        return _Value(f"pow({x}, {y})" if sign == "**" else f"({x} {sign} {y})", node, weak="i", rank=0, host=host, near=near)

    def whole_number(self, value):
        """A Python int or bool in an operation of ints."""
        if value.literal is not None:
            return self.literal(value, "i64")
        return value.text if value.weak == "i" else f"({value.text} ? 1 : 0)"

    @staticmethod
    def host(value):
        """A Python number's text in a check, or None."""
        if value.literal is None:
            return f"({value.host} ? 1 : 0)" if value.weak == "b" and value.host else value.host
        return None if value.weak == "c" or abs(value.literal) >= 1 << 63 and value.weak == "i" else _digits(value.literal)

    def near(self, value):
        """A Python int's text in a check as a float, or None."""
        if value.literal is not None:
            return _digits(float(value.literal))
        return value.near or (f"({self.host(value)} + 0.0)" if self.host(value) else None)

    def check_root(self, a, b, base, exponent):
        """A negative float to a power that is not whole is complex in Python."""
        positive = a.literal is not None and a.literal >= 0
        whole = b.literal is not None and b.literal == b.literal // 1
        if base and exponent and not (positive or whole):
            self.require(f"(not ({base} < 0) or floor({exponent}) == {exponent})",
                         "a negative number to a power that is not whole is complex: make one of the two complex")

    def folded(self, node, sign, a, b):
        whole = isinstance(a, int) and isinstance(b, int)
        try:
            if whole and (sign == "**" and abs(a) > 1 and b * a.bit_length() > _MOST_BITS or sign == "<<" and b > _MOST_BITS):
                raise OverflowError
            number = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "//": lambda: a // b,
                      "%": lambda: a % b, "**": lambda: a ** b, "<<": lambda: a << b, ">>": lambda: a >> b}[sign]()
            if isinstance(number, int) and number.bit_length() > _MOST_BITS:
                raise OverflowError
            return number
        except OverflowError:
            raise self.error(node, "the number is too large", ValueError) from None
        except (ArithmeticError, ValueError, TypeError) as error:
            raise self.error(node, str(error), ValueError) from None

    def bits(self, node, sign, a, b):
        dtype = self.promoted(node, a, b)
        weak = None if dtype else max(a.weak, b.weak, key=_WEAK.index)
        dtype = dtype or self.strong(weak)
        if _KIND[dtype] > 1:
            hint = "; a power is written **" if sign == "^" else "; a comparison beside & or | needs brackets, as (x > 0) & (y > 0)"
            raise self.error(node, f"{sign} is not of {_LONG[dtype]}: expected bool or integers{hint}")
        return _Value(f"({self.cast(a, dtype)} {sign} {self.cast(b, dtype)})", node, None if weak else dtype, weak, rank=max(a.rank, b.rank))

    def power(self, node, a, b):
        dtype = self.promoted(node, a, b)
        if dtype is None:
            return self.numbers(node, "**", a, b)
        rank, exponent = max(a.rank, b.rank), b.literal
        if isinstance(exponent, complex) and exponent.imag == 0:
            exponent = exponent.real
        if dtype == "bool" and self.torch:
            raise self.error(node, "** is not of two bool: expected numbers")
        if not self.torch and (dtype == "bool" or a.dtype == "bool" and b.weak == "i" and exponent == 2 and not isinstance(node, ast.Call)):
            dtype = "i8"
        if _KIND[dtype] == 1:
            self.check_exponent(node, b)
        base = _Value(self.cast(a, dtype), node, dtype, rank=rank)
        if exponent in (0.5, -1, -2) and _KIND[dtype] == 2:
            texts = {0.5: "sqrt({0})", -1: "(1 / {0})", -2: "(1 / ({0} * {0}))"}
            return _Value(texts[exponent].format(self.shared(base)), node, dtype, rank=rank)
        if exponent in (1, 2, 3, 4) and (_KIND[dtype] != 3 or exponent < 3):
            texts = {1: "{0}", 2: "({0} * {0})", 3: "({0} * {0} * {0})", 4: "(({0} * {0}) * ({0} * {0}))"}
            return _Value(texts[int(exponent)].format(self.shared(base)), node, dtype, rank=rank)
        if exponent == 0 and _KIND[dtype] == 3:
            return self.like(node, base, 1)
        power = _Value(self.cast(b, dtype), node, dtype, rank=rank)
        if _KIND[dtype] == 3 and exponent is None and (b.weak or not self.torch):  # pow has NaN for 0 and NaN to the power of 0
            power.text = self.shared(power)
            zero, one = (self.literal(self.number(node, n, "i"), dtype) for n in (0, 1))
            return _Value(f"({power.text} == {zero} ? {one} : pow({base.text}, {power.text}))", node, dtype, rank=rank)
        return _Value(f"pow({base.text}, {power.text})", node, dtype, rank=rank)

    def check_exponent(self, node, exponent):
        if exponent.literal is not None and exponent.literal < 0:
            raise self.error(node, _NEGATIVE_POWER, ValueError)
        if exponent.weak and exponent.literal is None:
            self.require(f"{self.asked(exponent, 'as an exponent')} >= 0", _NEGATIVE_POWER)
        elif exponent.literal is None and exponent.dtype[0] == "i":
            self.checks.append(f'check each {exponent.text} >= 0 value : "{_NEGATIVE_POWER}"')

    def shared(self, value):
        """A text that may stand several times for the value."""
        if re.fullmatch(r"\w+", value.text) or len(self.lets) == 16:
            return value.text
        self.lets.append(value.text)
        return f"t{len(self.lets) - 1}"

    def compare(self, node):
        if len(node.ops) > 1 and any(isinstance(n, ast.BinOp) and type(n.op) in (ast.BitAnd, ast.BitOr) for n in node.comparators):
            raise self.error(node, "& and | bind tighter than comparisons: write (a > 0) & (b > 0)", ValueError)
        if len(node.ops) > 1:
            raise self.error(node, "comparisons do not chain: write (a < b) & (b < c)", ValueError)
        if type(node.ops[0]) not in _OPERATORS:
            raise self.error(node, "expected one of == != < <= > >=", ValueError)
        sign, a, b = _OPERATORS[type(node.ops[0])], self.part(node.left), self.part(node.comparators[0])
        dtype = self.promoted(node, a, b) or self.strong(max(a.weak, b.weak, key=_WEAK.index))
        if not self.torch and {a.dtype, b.dtype} >= {"u64"} and dtype == "f64" and max(a.kind, b.kind) == 1:
            raise self.error(node, "int64 and uint64 have no common dtype that is exact: convert one of them before")
        if _KIND[dtype] == 3 and sign not in ("==", "!="):
            raise self.error(node, f"{sign} is not of complex numbers: expected == or !=")
        text = self.by_value(sign, a, b, dtype) if _KIND[dtype] == 1 else None
        return _Value(text or f"({self.cast(a, dtype)} {sign} {self.cast(b, dtype)})", node, "bool", rank=max(a.rank, b.rank))

    def by_value(self, sign, a, b, dtype):
        """The text of a comparison of elements with a Python int that need not fit their dtype: 300 is more than any uint8.  None
        where nothing is to be looked after."""
        if a.weak:
            a, b, sign = b, a, _MIRRORED[sign]
        (low, high), elements = _limits(dtype), a.text
        if a.weak or b.weak != "i" or a.dtype != dtype:
            return None
        if b.literal is not None:
            over, under = b.literal > high, b.literal < low
            truth = sign == "!=" or (over and sign in "<=") or (under and sign in ">=")
            truth = "true" if truth else "false"
            return f"({elements} == {elements} ? {truth} : {truth})" if over or under else None
        number = self.host(b)
        if self.torch or dtype == "i64":
            return None
        if number:
            self.in_64_bits(b)
            self.conditions[f"{number} >= {low}" + ("" if dtype == "u64" else f" and {number} <= {high}")] = True
            fitting = f"({elements} {sign} {b.text if isinstance(b.node, ast.Name) else f'{dtype}({b.text})'})"
            if self.within:
                return fitting
        if dtype != "u64":
            return f"(i64({elements}) {sign} {self.cast(b, 'i64')})"
        if not number:
            return None
        fitting = f"{elements} {sign} u64({b.text})"
        return f"({number} >= 0 and {fitting})" if sign in ("<", "<=", "==") else f"({number} < 0 or {fitting})"

    # -- functions -----------------------------------------------------------------------------------------------

    def call(self, node):
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name is None:
            raise self.error(node, "expected the name of a function before the bracket", ValueError)
        if name not in _FUNCTIONS:
            raise _no_function(self.text, node, name, len(node.args))
        if node.keywords or len(node.args) != _FUNCTIONS[name]:
            raise self.error(node, f"{name} takes {_FUNCTIONS[name]} argument{'s' * (_FUNCTIONS[name] > 1)}, by position", ValueError)
        args = [self.part(arg) for arg in node.args]
        if name in _FLOAT:
            return self.of_floats(node, _FLOAT[name], args)
        if name in _FLOAT2:
            return self.of_floats(node, _FLOAT2[name], args, real=True)
        if name in _WHOLE:
            return self.whole(node, _WHOLE[name], args[0])
        if name in _MEET or name == "fmod":
            return self.meeting(node, _MEET.get(name, "rem"), *args)
        return getattr(self, "f_" + {"absolute": "abs", "conjugate": "conj"}.get(name, name))(node, *args)

    def of_floats(self, node, function, args, real=False):
        weak = all(arg.weak for arg in args)
        rank = max(arg.rank for arg in args)
        if weak:
            weak = "c" if any(arg.weak == "c" for arg in args) else "f"
            dtype = "c128" if weak == "c" else "f64"
        else:
            dtype = self.float_of(self.promoted(node, *args) if len(args) > 1 else args[0].dtype)
            if not self.torch and all(arg.dtype and arg.kind < 2 for arg in args):
                dtype = functools.reduce(_numpy_promote, (self.float_of(arg.dtype) for arg in args))
        if (real or function in _REAL) and _KIND[dtype] == 3:
            raise self.error(node, "expected real numbers, found complex ones")
        if function == "nextafter" and dtype in ("f16", "bf16"):
            raise self.error(node, f"nextafter is not of {_LONG[dtype]}, which is computed in float32: convert the array before the formula")
        text = f"{function}({', '.join(self.cast(arg, dtype) for arg in args)})"
        return _Value(text, node, None if weak else dtype, weak or None, rank=rank)

    def whole(self, node, function, x):
        if node.func.id == "rint" and x.kind < 2:
            return self.of_floats(node, function, [x])
        if x.kind == 3 and function == "round":
            text = self.shared(_Value(self.cast(x, x.dtype or "c128"), node))
            return _Value(f"complex(round(re({text})), round(im({text})))", node, x.dtype, x.weak, rank=x.rank)
        if x.kind == 0 and not self.torch and function != "round":
            return x
        if x.kind == 3 or x.kind == 0:
            raise self.error(node, f"expected integers or floats, found {self.described(x)}")
        if x.kind == 1:
            return x
        return _Value(f"{function}({self.cast(x, x.dtype or 'f64')})", node, x.dtype, x.weak, rank=x.rank)

    def meeting(self, node, function, a, b):
        dtype = self.promoted(node, a, b)
        weak = None if dtype else max(a.weak, b.weak, "i", key=_WEAK.index)
        dtype = dtype or {"i": "i64", "f": "f64", "c": "c128"}[weak]
        if dtype == "bool" and function == "rem" and not self.torch:
            dtype = "i8"
        if _KIND[dtype] == 3 or (dtype == "bool" and function == "rem"):
            raise self.error(node, f"expected integers or floats, found {_LONG[dtype]}")
        if dtype == "bool":
            return _Value(f"({a.text} {'|' if function == 'max' else '&'} {b.text})", node, dtype, rank=max(a.rank, b.rank))
        return _Value(f"{function}({self.cast(a, dtype)}, {self.cast(b, dtype)})", node, None if weak else dtype, weak, rank=max(a.rank, b.rank))

    def f_where(self, node, condition, a, b):
        dtype = self.promoted(node, a, b) or self.strong(max(a.weak, b.weak, key=_WEAK.index))
        self.in_64_bits(condition)
        test = condition.text if condition.literal is None else str(bool(condition.literal)).lower()
        if condition.dtype != "bool" and condition.literal is None:
            test = f"bool({test})"
        return _Value(f"({test} ? {self.cast(a, dtype)} : {self.cast(b, dtype)})", node, dtype, rank=max(a.rank, b.rank, condition.rank))

    def f_power(self, node, a, b):
        return self.power(node, a, b)

    def f_complex(self, node, re, im):
        dtype = self.promoted(node, re, im) or "f64"
        if _KIND[dtype] == 3:
            raise self.error(node, "expected real numbers, found complex ones")
        whole = self.complex_of(self.float_of(dtype))
        part = "f32" if whole == "c64" else "f64"
        return _Value(f"complex({self.cast(re, part)}, {self.cast(im, part)})", node, whole, rank=max(re.rank, im.rank))

    def f_abs(self, node, x):
        x = self.fixed(x) if x.weak else x
        if x.kind == 0:
            return x
        dtype = {"c64": "f32", "c128": "f64"}.get(x.dtype, x.dtype)
        return x if x.dtype[0] == "u" else _Value(f"abs({x.text})", node, dtype, rank=x.rank)

    def f_sign(self, node, x):
        x = self.fixed(x)
        if x.kind in (0, 3) or x.dtype[0] == "u":
            raise self.error(node, f"expected signed integers or floats, found {self.described(x)}")
        if x.kind == 1 or self.torch:
            return _Value(f"sign({x.text})", node, x.dtype, rank=x.rank)
        text = self.shared(x)
        return _Value(f"(isnan({text}) ? {text} : sign({text}))", node, x.dtype, rank=x.rank)

    def f_square(self, node, x):
        if x.dtype == "bool" and not self.torch:
            return _Value(self.cast(x, "i8"), node, "i8", rank=x.rank)
        return self.power(node, x, self.number(node, 2, "i"))

    def f_real(self, node, x):
        return self.of_complex(node, "re", x)

    def f_imag(self, node, x):
        return self.of_complex(node, "im", x)

    def of_complex(self, node, function, x):
        x = self.fixed(x)
        if x.kind != 3:
            return x if function == "re" else self.like(node, x, 0)
        return _Value(f"{function}({x.text})", node, "f32" if x.dtype == "c64" else "f64", rank=x.rank)

    def f_conj(self, node, x):
        if x.dtype == "bool" and not self.torch:
            return _Value(self.cast(x, "i8"), node, "i8", rank=x.rank)
        return x if x.kind != 3 else _Value(f"conj({self.fixed(x).text})", node, self.fixed(x).dtype, rank=x.rank)

    def f_isnan(self, node, x, function="isnan"):
        x = self.fixed(x)
        if x.kind == 3:
            return _Value(f"({function}(re({x.text})) or {function}(im({x.text})))", node, "bool", rank=x.rank)
        if x.kind < 2:
            return _Value(f"({x.text} != {x.text})", node, "bool", rank=x.rank)
        return _Value(f"{function}({x.text})", node, "bool", rank=x.rank)

    def f_isinf(self, node, x):
        return self.f_isnan(node, x, "isinf")

    def f_isfinite(self, node, x):
        nan, inf = self.f_isnan(node, x), self.f_isnan(node, x, "isinf")
        return _Value(f"(not ({nan.text} or {inf.text}))", node, "bool", rank=x.rank)

    def f_signbit(self, node, x):
        x = self.fixed(x)
        if x.kind in (0, 3) or x.dtype[0] == "u":
            raise self.error(node, f"expected signed integers or floats, found {self.described(x)}")
        return _Value(f"signbit({x.text})", node, "bool", rank=x.rank)

    def like(self, node, x, number):
        x = self.fixed(x)
        text = self.cast(self.number(node, number, "i"), x.dtype)
        return _Value(f"({x.text} == {x.text} ? {text} : {text})", node, x.dtype, rank=x.rank)

    def f_ones_like(self, node, x):
        return self.like(node, x, 1)

    def f_zeros_like(self, node, x):
        return self.like(node, x, 0)


def _limits(dtype):
    bits = _BITS[dtype]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype[0] == "i" else (0, (1 << bits) - 1)


def _short(number):
    text = str(number)
    return text if len(text) <= 40 else f"{text[:10]}... of {len(text.lstrip('-'))} digits"


def _integer(number, dtype):
    """An integer as an element of a dtype; the language of rows has literals from 0 to 2**63 - 1 and their negatives."""
    if number >= 1 << 63:
        return f"(~{dtype}({(1 << 64) - 1 - number}))"
    return f"(-{dtype}({(1 << 63) - 1}) - {dtype}(1))" if number == -1 << 63 else f"{dtype}({number})"


def _digits(number):
    if isinstance(number, float) and number in (float("inf"), float("-inf")):
        return "inf" if number > 0 else "(-inf)"
    text = str(int(number)) if isinstance(number, (bool, int)) else repr(number)
    return f"({text})" if text.startswith("-") else text


# -- arguments --------------------------------------------------------------------------------------------------------

def _argument(text, name, value, row_name):
    """The argument as the formula sees it, with its part of the schema."""
    kind = type(value)
    if kind in (bool, int, float):
        return _Value(row_name, None, weak=kind.__name__[0], rank=0, host=row_name), kind.__name__
    if isinstance(value, complex) and kind is complex:
        return _Value(row_name, None, weak="c", rank=0), "Tensor"
    from ._helpers import dtype_name
    dtype = getattr(value, "dtype", None)
    known = str(dtype) if isinstance(dtype, _kiln.dtype) else dtype_name(dtype) if dtype is not None else None
    if known not in _SHORT:
        node = next(n for n in ast.walk(_parse(text)) if isinstance(n, ast.Name) and n.id == name)
        what = f"an array of {dtype}" if dtype is not None else f"a {kind.__qualname__}"
        raise _error(TypeError, text, node, f"'{name}' is {what}: expected an array or tensor of bool, integers, floats or "
                     "complex numbers, or a number")
    return _Value(row_name, None, _SHORT[known], rank=2 if getattr(value, "ndim", 0) else 1), "Tensor"


def _row_names(arguments):
    """Names for the row: those of the formula where the row's language has no other meaning for them."""
    taken, out = set(arguments), {}
    for k, name in enumerate(arguments):
        plain = name.isascii() and name not in _WORDS and name not in _LONG and not re.fullmatch(r"t\d+|_.*", name)
        new = name if plain else f"arg{k}"
        while not plain and new in taken:
            new += "x"
        taken.add(new)
        out[name] = new
    return out


def row(text, arguments, values):
    """The row of the formula for such values of its arguments, and the places of the row's arguments among them; None, None if
    all values are Python numbers."""
    own = _row_names(arguments)
    made, types, numpy = {}, {}, sys.modules.get("numpy")
    for name, value in zip(arguments, values):
        made[name], types[name] = _argument(text, name, value, own[name])
    if not any(value.dtype for value in made.values()):
        return None, None
    tensors = [name for name in arguments if types[name] == "Tensor"]
    if len(tensors) > _MOST_ARRAYS:
        node = next(n for n in ast.walk(_parse(text)) if isinstance(n, ast.Name) and n.id == tensors[_MOST_ARRAYS])
        raise _error(ValueError, text, node, f"a formula has at most {_MOST_ARRAYS} arrays and complex numbers, and this one has {len(tensors)}")
    arrays = [value for value in values if type(value) not in (bool, int, float, complex)]
    torch = numpy is None or not all(isinstance(array, (numpy.ndarray, numpy.generic)) for array in arrays)
    default = "f32"
    if torch and sys.modules.get("torch"):
        default = _SHORT[str(sys.modules["torch"].get_default_dtype()).removeprefix("torch.")]
    try:
        formula, results = _typed(text, made, torch, default)
    except RecursionError:
        raise ValueError("kiln.evaluate: the formula has too many levels of brackets or operators") from None
    order = sorted(range(len(arguments)), key=lambda k: types[arguments[k]] != "Tensor" or made[arguments[k]].weak == "c")
    return _text(text, formula, results, [(own[arguments[k]], types[arguments[k]], made[arguments[k]]) for k in order]), bytes(order)


def _typed(text, arguments, torch, default):
    """The formula and what it gives; where it compares elements with Python's ints that may not fit their dtype, twice: if all
    fit, and else."""
    body, formula = _parse(text), _Formula(text, arguments, torch, default)
    results = [formula.fixed(formula.part(body))]
    if formula.conditions:
        formula.within = False
        results.append(formula.fixed(formula.part(body)))
    return formula, results


def _text(text, formula, results, arguments):
    schema = ", ".join(f"{kind} {name}" for name, kind, _ in arguments)
    tensors = [(name, value.dtype or "c128") for name, kind, value in arguments if kind == "Tensor"]
    takes = f"promote({tensors[0][0]}) takes {tensors[0][1]}" + "".join(f" takes {name}: {dtype}" for name, dtype in tensors[1:])
    head = f"map kiln::evaluate({schema}) -> Tensor : {takes} out converts -> {results[0].dtype}"
    lines = [head if formula.conditions else f"{head} = {results[0].text}"]
    lines.append('    doc "' + " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"') + '"')
    if formula.lets:
        lines.append("    let " + ", ".join(f"t{k} = {part}" for k, part in enumerate(formula.lets)))
    required = [f'check {" and ".join(conditions)} value : "{message}"' for message, conditions in formula.required.items()]
    lines += ["    " + check for check in dict.fromkeys(required + formula.checks)]
    used = set(re.findall(r"\w+", " ".join([*(result.text for result in results), *formula.lets, *formula.conditions])))
    unused = [name for name, _, _ in arguments if name not in used]
    if unused:
        lines.append("    ignore " + ", ".join(unused))
    if formula.conditions:
        lines += [f"    when {' and '.join(formula.conditions)} = {results[0].text}", f"    when true = {results[1].text}"]
    return "\n".join(lines) + "\n"


def of_numbers(text, arguments, values, out):
    """The value of a formula whose arguments are Python numbers alone: an array without dimensions, as NumPy and numexpr have it."""
    try:
        import numpy
        make = numpy.asarray
    except ImportError:
        make = _kiln.Tensor
    if not arguments:
        try:
            _Formula(text, {}, False, "f32").part(_parse(text))  # what is wrong is shown in the text that was given
        except RecursionError:
            pass
        return _kiln.evaluate(f"where(yes, {text}, {text})", {"yes": make(True)}, {}, out=out)
    return _kiln.evaluate(text, dict(zip(arguments, map(make, values))), {}, out=out)
