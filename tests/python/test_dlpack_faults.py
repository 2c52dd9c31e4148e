"""DLPack capsules that are wrong in some way: refused with a clear text, cleaned up once, and never touched again."""
import ctypes
import gc

import numpy as np
import pytest
import torch

import kiln

DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.py_object)
api = ctypes.pythonapi
api.PyCapsule_New.restype, api.PyCapsule_New.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", DELETER),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


class Old(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Crafted:
    """A producer whose capsule is [1, 2, 3] in f32, except where it is told otherwise."""

    def __init__(self, name=b"dltensor_versioned", old=False, major=1, minor=0, flags=0, deleter=True, **wrong):
        self.values = (ctypes.c_float * 4)(1, 2, 3, 4)
        self.dims = (ctypes.c_int64 * 130)(3, *[1] * 129)
        self.deleted = 0
        tensor = dict(data=ctypes.addressof(self.values), device_type=1, ndim=1, code=2, bits=32, lanes=1,
                      shape=ctypes.cast(self.dims, ctypes.POINTER(ctypes.c_int64)), byte_offset=0)
        tensor |= wrong
        self.callback = DELETER(self.delete) if deleter else DELETER()
        if old:
            self.managed = Old(Tensor(**tensor), None, self.callback)
        else:
            self.managed = Managed(major, minor, None, self.callback, flags, Tensor(**tensor))
        self.name = name

    def delete(self, _):
        self.deleted += 1

    def __dlpack__(self, **kwargs):
        return api.PyCapsule_New(ctypes.addressof(self.managed), self.name, None)


def sizes(*values):
    return ctypes.cast((ctypes.c_int64 * len(values))(*values), ctypes.POINTER(ctypes.c_int64))


def test_right_ones():
    for given in ({}, {"old": True, "name": b"dltensor"}, {"minor": 99}, {"deleter": False}, {"byte_offset": 4}, {"strides": sizes(1)},
                  {"strides": sizes(0)}, {"flags": 1}):
        p = Crafted(**given)
        want = {4: [-2, -3, -4], 0: [-1, -2, -3]}[given.get("byte_offset", 0)] if given.keys() != {"strides"} or \
            given["strides"][0] else [-1] * 3
        assert kiln.call("aten::neg", p).tolist() == want
        assert p.deleted == (given.get("deleter", True))
        t = kiln.Tensor(p)
        assert t.tolist() == [-v for v in want] and t.readonly == (given.get("flags") == 1)
        del t
        assert p.deleted == 2 * given.get("deleter", True)


@pytest.mark.parametrize("wrong, error, text", [
    ({"name": b"other"}, TypeError, "capsule named"), ({"name": b"used_dltensor_versioned"}, TypeError, "capsule named"),
    ({"name": b""}, TypeError, "capsule named"), ({"major": 2}, NotImplementedError, "version 2.0"),
    ({"major": 0}, NotImplementedError, "version 0.0"), ({"device_type": 2}, NotImplementedError, "device type 2"),
    ({"device_type": -5}, NotImplementedError, "device type"), ({"code": 9}, NotImplementedError, "code 9"),
    ({"bits": 24}, NotImplementedError, "24 bits"), ({"bits": 0}, NotImplementedError, "0 bits"),
    ({"lanes": 4}, NotImplementedError, "4 lanes"), ({"lanes": 0}, NotImplementedError, "0 lanes"),
    ({"ndim": -1}, RuntimeError, "-1"), ({"ndim": 65}, RuntimeError, "65|64"), ({"ndim": 2**31 - 1}, RuntimeError, "2147483647"),
    ({"shape": None}, RuntimeError, "size"), ({"shape": sizes(-3)}, RuntimeError, "negative"),
    ({"shape": sizes(2**62)}, RuntimeError, "2\\^62"), ({"data": None}, (RuntimeError, NotImplementedError), "memory|data"),
    ({"strides": sizes(2**61)}, RuntimeError, "2\\^62")], ids=str)
def test_wrong_ones(wrong, error, text):
    refused(Crafted(**wrong), error, text)
    if not wrong.keys() & {"major", "name"}:  # capsules of before DLPack 1.0 have no version, and one name
        refused(Crafted(old=True, **{"name": b"dltensor", **wrong}), error, text)


def refused(p, error, text):
    for f in (lambda: kiln.call("aten::neg", p), lambda: kiln.Tensor(p), lambda: kiln.call("aten::add.Tensor", kiln.Tensor([1.0]), p)):
        with pytest.raises(error, match=text):
            f()
    assert p.deleted == 0  # refused: still the capsule's


def test_what_asks_back():
    class Strange:
        def __getattr__(self, name):
            raise ZeroDivisionError(name)

    class Raises:
        @property
        def __dlpack__(self):
            raise ZeroDivisionError

    class Recurses:
        def __dlpack__(self, **kwargs):
            return kiln.Tensor(self).__dlpack__(**kwargs)

    class Deletes:
        def __dlpack__(self, **kwargs):
            kiln.configure(mode="interp")  # the context is replaced while arguments are read
            gc.collect()
            return np.ones(2, "f4").__dlpack__()

    x = torch.ones(2)
    for bad, error in [(Strange(), TypeError), (Raises(), ZeroDivisionError), (Recurses(), RecursionError)]:
        with pytest.raises(error):
            kiln.call("aten::add.Tensor", x, bad)
    settings = dict(kiln._settings)
    assert kiln.call("aten::add.Tensor", x, Deletes()).tolist() == [2, 2]
    kiln._settings.clear()
    kiln._settings.update(settings)
    kiln._kiln.configure(settings)


def test_torch_tensors_at_odd_addresses():
    memory = bytearray(np.arange(5, dtype="f4").tobytes() + b"....")
    edges = memory[:1], memory[17:]
    t = torch.frombuffer(memory, dtype=torch.float32, count=4, offset=1)
    assert torch.equal(kiln.call("aten::neg", t), -t) and kiln.Tensor(t).tolist() == t.tolist()
    before, version = t.clone(), t._version
    assert kiln.call("aten::neg_", t) is t and torch.equal(t, -before) and t._version > version
    assert kiln.call("aten::add.out", t, 1, out=t) is t and torch.equal(t, 1 - before)
    assert (memory[:1], memory[17:]) == edges
