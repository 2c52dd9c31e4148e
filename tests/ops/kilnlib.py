"""A thin ctypes binding of libkiln for the tests: torch tensors and Python values in, torch tensors out.

    k = Kiln("interp")                      # or "sync"
    k.op("aten::add.Tensor")(x, y, alpha=2)

Results own their memory and have the dtype, sizes and strides that Kiln gave them.  A failure raises what
PyTorch would raise for its kind.  Names of statuses, dtypes and counters are read from include/kiln/*.def.
KILN_LIB names another library to test.
"""
import atexit
import contextlib
import ctypes
import os
import re
import shutil
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = os.environ.get("KILN_LIB", str(ROOT / "build" / "libkiln.so"))


def _table(name):
    """The rows X(a, b, "c") of a .def file, as tuples of words without quotes."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "kiln" / name).read_text(), flags=re.S)
    return [[w.strip().strip('"') for w in row.split(",")] for row in re.findall(r"^[A-Z]\((.*)\)$", text, flags=re.M)]


STATUS = {int(row[1]): row[0] for row in _table("status.def")}
COUNTERS = [row[0] for row in _table("counter.def")]
DTYPES = {row[2]: getattr(torch, row[5]) for row in _table("dtype.def")}  # "f32" -> torch.float32
SHORT = {t: name for name, t in DTYPES.items()}
_NUMBER = {DTYPES[row[2]]: int(row[1]) for row in _table("dtype.def")}
_DTYPE = {number: t for t, number in _NUMBER.items()}
RAISES = {"E_TYPE": TypeError, "E_INDEX": IndexError, "E_VALUE": ValueError, "E_UNSUP": NotImplementedError}


class _Complex(ctypes.Structure):
    _fields_ = [("re", ctypes.c_double), ("im", ctypes.c_double)]


class _Union(ctypes.Union):
    _fields_ = [("tensor", ctypes.c_void_p), ("i", ctypes.c_int64), ("f", ctypes.c_double), ("c", _Complex),
                ("s", ctypes.c_char_p), ("list", ctypes.c_void_p)]


class _Value(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("n", ctypes.c_uint32), ("u", _Union), ("name", ctypes.c_char_p)]


assert ctypes.sizeof(_Value) == 32
NONE, TENSOR, BOOL, INT, FLOAT, COMPLEX, STR, DTYPE, LIST, UINT = range(10)  # kiln_kind


class _Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("mode", ctypes.c_int), ("cc", ctypes.c_char_p),
                ("cache_dir", ctypes.c_char_p), ("isa", ctypes.c_char_p), ("dump_dir", ctypes.c_char_p),
                ("log", ctypes.c_void_p), ("log_user", ctypes.c_void_p), ("max_kernels", ctypes.c_size_t), ("threads", ctypes.c_int)]


MODES = {"default": 0, "sync": 1, "interp": 2}


def _declare(lib):
    p, i, n = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    text = ctypes.c_char_p
    for name, result, arguments in [
        ("kiln_open", i, [p, p]), ("kiln_close", None, [p]), ("kiln_last_error", text, []),
        ("kiln_last_tier", text, []), ("kiln_op_find", i, [p, text, p]), ("kiln_op_count", n, [p]),
        ("kiln_op_at", p, [p, n]), ("kiln_op_name", text, [p]), ("kiln_op_schema", text, [p]),
        ("kiln_op_row", text, [p]), ("kiln_op_family", text, [p]), ("kiln_op_form", text, [p]),
        ("kiln_op_served", i, [p]), ("kiln_op_nrets", n, [p]), ("kiln_ops_load", i, [p, text, n]),
        ("kiln_call", i, [p, p, p, n, p, n]), ("kiln_call_values", i, [p, p, p, n, p, n]),
        ("kiln_values_release", None, [p, n]), ("kiln_explain", i, [p, p, p, n, text, p]),
        ("kiln_text_free", None, [p]), ("kiln_threads_limit", i, [i]), ("kiln_threads_owner", text, [p, p]), ("kiln_stats_get", None, [p, p, n]),
        ("kiln_tensor_wrap", i, [p, i, i, p, p, p, p, p]), ("kiln_tensor_new", i, [i, i, p, p, p]),
        ("kiln_tensor_release", None, [p]), ("kiln_tensor_dtype", i, [p]), ("kiln_tensor_rank", i, [p]),
        ("kiln_tensor_sizes", p, [p]), ("kiln_tensor_strides", p, [p]), ("kiln_tensor_data", p, [p]),
    ]:
        f = getattr(lib, name)
        f.restype, f.argtypes = result, arguments
    return lib


_lib = _declare(ctypes.CDLL(LIBRARY))
_longs = [ctypes.c_int64 * rank for rank in range(65)]


def _check(status):
    if status == 0:
        return
    name = STATUS.get(status, str(status))
    raise RAISES.get(name, RuntimeError)(f"KILN_{name}: {_lib.kiln_last_error().decode()}")


def reach(sizes, strides):
    """Elements from the lowest to the highest one of a view, both counted."""
    return 0 if 0 in sizes else 1 + sum((n - 1) * abs(s) for n, s in zip(sizes, strides))


class Turned:
    """A view with negative strides, which PyTorch has none of."""

    def __init__(self, memory, sizes, strides, offset):
        self.memory, self.shape, self.strides = memory, sizes, strides
        self.dtype, self.offset = memory.dtype, offset * memory.element_size()

    def dim(self):
        return len(self.shape)

    def stride(self):
        return self.strides

    def data_ptr(self):
        return self.memory.data_ptr() + self.offset


class Owned:
    """A tensor in memory of Kiln's own, which an out= argument must be to be resized.  Starts as a copy of t."""

    def __init__(self, t):
        handle, rank = ctypes.c_void_p(), t.dim()
        _check(_lib.kiln_tensor_new(_NUMBER[t.dtype], rank, _longs[rank](*t.shape), _longs[rank](*t.stride()),
                                    ctypes.byref(handle)))
        self.handle = handle.value
        nbytes = reach(t.shape, t.stride()) * t.element_size()
        if nbytes:
            ctypes.memmove(_lib.kiln_tensor_data(self.handle), t.data_ptr(), nbytes)

    def torch(self):
        return _copy_out(self.handle)

    def __del__(self):
        if getattr(self, "handle", None):
            _lib.kiln_tensor_release(self.handle)


def _copy_out(handle):
    rank = _lib.kiln_tensor_rank(handle)
    sizes = _longs[rank].from_address(_lib.kiln_tensor_sizes(handle))[:] if rank else []
    strides = _longs[rank].from_address(_lib.kiln_tensor_strides(handle))[:] if rank else []
    n = reach(sizes, strides)
    store = torch.empty(n, dtype=_DTYPE[_lib.kiln_tensor_dtype(handle)])
    turned = [d for d, s in enumerate(strides) if s < 0]
    if n:
        lowest = _lib.kiln_tensor_data(handle) + sum((sizes[d] - 1) * strides[d] for d in turned) * store.element_size()
        ctypes.memmove(store.data_ptr(), lowest, n * store.element_size())
    return store.as_strided(sizes, [abs(s) for s in strides]).flip(turned) if turned else store.as_strided(sizes, strides)


class _Arguments:
    """Python values as an array of kiln_value; keeps alive, and releases, what it points to."""

    def __init__(self, args, kwargs):
        self.alive, self.wrapped = [], []
        self.n = len(args) + len(kwargs)
        self.values = (_Value * self.n)()
        for slot, value in zip(self.values, args):
            self.fill(slot, value)
        for slot, (name, value) in zip(self.values[len(args):], kwargs.items()):
            slot.name = name.encode()
            self.fill(slot, value)

    def fill(self, slot, value):
        if value is None:
            slot.kind = NONE
        elif isinstance(value, (torch.Tensor, Turned)):
            slot.kind, slot.u.tensor = TENSOR, self.wrap(value)
        elif isinstance(value, Owned):
            slot.kind, slot.u.tensor = TENSOR, value.handle
        elif isinstance(value, bool):
            slot.kind, slot.u.i = BOOL, int(value)
        elif isinstance(value, int):
            slot.kind, slot.u.i = UINT if value >= 2**63 else INT, value  # ctypes keeps the bits
        elif isinstance(value, float):
            slot.kind, slot.u.f = FLOAT, value
        elif isinstance(value, complex):
            slot.kind, slot.u.c = COMPLEX, _Complex(value.real, value.imag)
        elif isinstance(value, (str, torch.memory_format, torch.layout, torch.device)):
            slot.kind, slot.u.s = STR, str(value).removeprefix("torch.").encode()
        elif isinstance(value, torch.dtype):
            slot.kind, slot.u.i = DTYPE, _NUMBER[value]
        elif isinstance(value, (list, tuple)):
            items = (_Value * len(value))()
            for item, v in zip(items, value):
                self.fill(item, v)
            self.alive.append(items)
            slot.kind, slot.n, slot.u.list = LIST, len(value), ctypes.addressof(items)
        else:
            raise AssertionError(f"no kiln_value for {value!r}")

    def wrap(self, t):
        handle, rank = ctypes.c_void_p(), t.dim()
        _check(_lib.kiln_tensor_wrap(t.data_ptr(), _NUMBER[t.dtype], rank, _longs[rank](*t.shape),
                                     _longs[rank](*t.stride()), None, None, ctypes.byref(handle)))
        self.alive.append(t)
        self.wrapped.append(handle.value)
        return handle.value

    def release(self):
        for handle in self.wrapped:
            _lib.kiln_tensor_release(handle)
        self.wrapped = []


@contextlib.contextmanager
def _lent(threads):
    """Within it PyTorch has this number of threads, which Kiln's loops run on.  Outside it has one: PyTorch, the oracle, computes alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Op:
    """One operator of a context."""

    def __init__(self, kiln, handle):
        self.kiln, self.handle = kiln, handle
        self.name, self.schema, self.row, self.family, self.form = (
            f(handle).decode() for f in (_lib.kiln_op_name, _lib.kiln_op_schema, _lib.kiln_op_row,
                                         _lib.kiln_op_family, _lib.kiln_op_form))
        self.served = bool(_lib.kiln_op_served(handle))
        self.nrets = _lib.kiln_op_nrets(handle)
        self._outs = ctypes.c_void_p * max(self.nrets, 1)
        self.lists = self.schema.split("->")[-1].strip().startswith("Tensor[]")

    def __call__(self, /, *args, **kwargs):
        """A tensor, or a tuple of them for several results.  Written tensors are copied out too."""
        if self.lists:
            return self.call_list(*args, **kwargs)
        a, outs = _Arguments(args, kwargs), self._outs()
        try:
            with _lent(self.kiln.threads):
                _check(_lib.kiln_call(self.kiln.ctx, self.handle, a.values, a.n, outs, self.nrets))
            results = tuple(outs[k] and _copy_out(outs[k]) for k in range(self.nrets))  # None: a result that is not given
            for k in range(self.nrets):
                _lib.kiln_tensor_release(outs[k])
        finally:
            a.release()
        return results[0] if len(results) == 1 else results

    def call_list(self, /, *args, **kwargs):
        """A list of tensors."""
        a, out = _Arguments(args, kwargs), _Value()
        try:
            with _lent(self.kiln.threads):
                _check(_lib.kiln_call_values(self.kiln.ctx, self.handle, a.values, a.n, ctypes.byref(out), 1))
            assert out.kind == LIST
            items = (_Value * out.n).from_address(out.u.list)
            results = [_copy_out(item.u.tensor) for item in items]
            _lib.kiln_values_release(ctypes.byref(out), 1)
        finally:
            a.release()
        return results

    def explain(self, stage, /, *args, **kwargs):
        a, text = _Arguments(args, kwargs), ctypes.c_void_p()
        try:
            _check(_lib.kiln_explain(self.kiln.ctx, self.handle, a.values, a.n, stage.encode(), ctypes.byref(text)))
        finally:
            a.release()
        result = ctypes.string_at(text).decode()
        _lib.kiln_text_free(text)
        return result


class Kiln:
    """A context, with a cache folder of its own."""

    def __init__(self, mode, **config):
        self.folder = tempfile.mkdtemp(prefix="kiln-ops-")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        c = _Config(size=ctypes.sizeof(_Config), mode=MODES[mode], cache_dir=self.folder.encode(), **config)
        ctx = ctypes.c_void_p()
        _check(_lib.kiln_open(ctypes.byref(c), ctypes.byref(ctx)))
        self.ctx, self.mode, self.threads = ctx, mode, config.get("threads") or os.cpu_count()
        self.found = {}
        self.classes, self.pairs = set(), set()  # compiled, and what their kernels showed together: contexts.py

    def close(self):
        _lib.kiln_close(self.ctx)
        self.ctx = None

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def ops(self):
        return [Op(self, _lib.kiln_op_at(self.ctx, k)) for k in range(_lib.kiln_op_count(self.ctx))]

    def op(self, name):
        if name not in self.found:
            handle = ctypes.c_void_p()
            _check(_lib.kiln_op_find(self.ctx, name.encode(), ctypes.byref(handle)))
            self.found[name] = Op(self, handle.value)
        return self.found[name]

    def load(self, text):
        _check(_lib.kiln_ops_load(self.ctx, text.encode(), len(text.encode())))

    def stats(self):
        values = (ctypes.c_uint64 * len(COUNTERS))()
        _lib.kiln_stats_get(self.ctx, values, ctypes.sizeof(values))
        return dict(zip(COUNTERS, values))


@contextlib.contextmanager
def at_most(threads):
    """So many threads at most for the calls inside, of those that their context has."""
    before = _lib.kiln_threads_limit(threads)
    try:
        yield
    finally:
        _lib.kiln_threads_limit(before)


def threads_in_use(kiln):
    """Whose threads a large call of this context runs on, and how many of them."""
    n = ctypes.c_int()
    with _lent(kiln.threads):
        return _lib.kiln_threads_owner(kiln.ctx, ctypes.byref(n)).decode(), n.value


def last_tier():
    return _lib.kiln_last_tier().decode()
