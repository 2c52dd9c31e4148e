#!/usr/bin/env python3
"""Writes random calls with what PyTorch makes of them: dtype, sizes and strides of the result, or an error.

    tests/ops/infer_oracle.py --seed 1 --count 4000 > tests/unit/infer_cases.txt

tests/unit/test_infer.c reads the file and compares; give it another file as its argument to check more.
One call a line, `operator argument ... = result`:

    f32[2,3](3,1)@0+5   a tensor: dtype, sizes, strides and offset in elements into memory 0
    f32[2,3](3,1)!      a tensor that owns its memory, so that out= may resize it
    i7 f1.5 b1 -        an int, a float, a bool, None
    E                   PyTorch raised
"""
import argparse
import os
import random
import warnings

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # resizing an out tensor warns
import torch  # noqa: E402

DTYPES = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
          "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
          "f64": torch.float64}
NAMES = {t: n for n, t in DTYPES.items()}
ATEN = torch.ops.aten


class View:
    """A tensor as text and as torch sees it."""

    def __init__(self, dtype, sizes, strides, base, offset):
        self.dtype, self.sizes, self.strides, self.base, self.offset = dtype, sizes, strides, base, offset

    def __str__(self):
        place = "!" if self.base is None else f"@{self.base}+{self.offset}"
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]({','.join(map(str, self.strides))}){place}"

    def reach(self):
        if 0 in self.sizes:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides))


def torch_view(view, memory):
    if view.base is None:
        store = torch.zeros(view.reach(), dtype=DTYPES[view.dtype])
    else:
        store = memory[view.base]
    return store.as_strided(view.sizes, view.strides, view.offset)


def random_sizes(rng):
    rank = rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 6])
    one = rng.random() < 0.5
    sizes = [1 if one and rng.random() < 0.3 else rng.randint(1, 4) for _ in range(rank)]
    if sizes and rng.random() < 0.06:
        sizes[rng.randrange(rank)] = 0
    return sizes


def stretched(rng, sizes):
    """A shape that broadcasts with sizes."""
    out = [1 if rng.random() < 0.25 else n for n in sizes]
    return out[rng.randint(0, len(out)):] if rng.random() < 0.35 else out


def dense(sizes, order):
    """Strides that are dense in the order given, fastest dimension first."""
    strides, step = [0] * len(sizes), 1
    for d in order:
        strides[d] = step
        step *= max(sizes[d], 1)
    return strides


def random_strides(rng, sizes):
    rank = len(sizes)
    rows = list(range(rank))[::-1]
    how = rng.random()
    if how < 0.35:
        return dense(sizes, rows)
    if how < 0.5 and rank >= 4:
        return dense(sizes, [1] + rows[:-2] + [0])  # channels_last of whatever rank
    order = rows[:]
    rng.shuffle(order)
    if how < 0.7:
        strides = dense(sizes, order)
    else:  # a slice of something larger
        strides = dense([n + rng.choice([0, 0, 1, 2]) for n in sizes], order)
        strides = [s * rng.choice([1, 1, 2]) for s in strides]
    for d in range(rank):
        if rng.random() < 0.12:
            strides[d] = 0  # expanded
        if sizes[d] == 1 and rng.random() < 0.3:
            strides[d] = rng.randint(0, 9)
        if rng.random() < 0.03:
            strides[d] = rng.randint(1, 3)  # overlaps itself
    return strides


class Case:
    def __init__(self, rng):
        self.rng = rng
        self.sizes = random_sizes(rng)
        self.bases = []  # dtype of each memory
        self.last = None  # strides of the latest full-sized tensor

    def dtype(self):
        r = self.rng
        return r.choice(["f32", "f32", "f32", "f64", "i64", "i32", "bool", "f16", "bf16", "u8", "i8", "i16"])

    def sizes_like(self):
        r = self.rng.random()
        if r < 0.45:
            return self.sizes
        return random_sizes(self.rng) if r < 0.5 else stretched(self.rng, self.sizes)

    def tensor(self, dtype=None, sizes=None):
        sizes = list(self.sizes_like() if sizes is None else sizes)
        strides = random_strides(self.rng, sizes)
        if self.last and len(self.last) == len(sizes) and self.rng.random() < 0.3:
            strides = self.last
        self.last = strides
        self.bases.append(dtype or self.dtype())
        return View(self.bases[-1], sizes, strides, len(self.bases) - 1, 0)

    def number(self):
        return self.rng.choice([2, 2.5, True, -1])

    def out(self, args):
        """Where a result goes: a tensor of its own, or memory shared with an argument."""
        r = self.rng
        if r.random() < 0.25:
            view = r.choice([a for a in args if isinstance(a, View)])
            if r.random() < 0.5:
                return view
            strides = view.strides if r.random() < 0.6 else random_strides(r, view.sizes)
            return View(view.dtype, view.sizes, strides, view.base, r.choice([0, 0, 1, 2]))
        sizes = self.sizes if r.random() < 0.7 else random_sizes(r)
        return View(self.dtype(), list(sizes), random_strides(r, sizes), None, 0)


def tensors(n):
    return lambda c: [c.tensor() for _ in range(n)]


def where_args(c):
    return [c.tensor(c.rng.choice(["bool"] * 4 + ["f32"])), c.tensor(), c.tensor()]


def not_bool(c):
    t = c.dtype()
    return c.tensor("f32" if t == "bool" else t)  # all bool: whether it is served is the row's matter


def bounds(c, make):
    low, high = c.rng.choice([(1, 0), (0, 1), (1, 1)])
    return [not_bool(c), make() if low else None, make() if high else None]


# operator: arguments, in-place form, out form
OPS = {
    "add.Tensor": (tensors(2), "add_.Tensor", "add.out"),
    "mul.Tensor": (tensors(2), "mul_.Tensor", "mul.out"),
    "div.Tensor": (tensors(2), "div_.Tensor", "div.out"),
    "lt.Tensor": (tensors(2), "lt_.Tensor", "lt.Tensor_out"),
    "neg": (tensors(1), "neg_", "neg.out"),
    "exp": (tensors(1), "exp_", "exp.out"),
    "where.self": (where_args, None, None),
    "clamp.Tensor": (lambda c: bounds(c, c.tensor), "clamp_.Tensor", "clamp.Tensor_out"),
    "clamp": (lambda c: bounds(c, c.number), "clamp_", "clamp.out"),
    "maximum": (tensors(2), None, "maximum.out"),
    "logical_and": (tensors(2), "logical_and_", "logical_and.out"),
    "bitwise_and.Tensor": (tensors(2), "bitwise_and_.Tensor", "bitwise_and.Tensor_out"),
    "floor": (tensors(1), "floor_", "floor.out"),
    "silu": (tensors(1), "silu_", "silu.out"),
    "addcmul": (tensors(3), "addcmul_", "addcmul.out"),
    "add.Scalar": (lambda c: [c.tensor(), c.number()], "add_.Scalar", None),
    "mul.Scalar": (lambda c: [c.tensor(), c.number()], "mul_.Scalar", None),
    "lt.Scalar": (lambda c: [c.tensor(), c.number()], "lt_.Scalar", "lt.Scalar_out"),
}


def call(name, args, out, memory):
    packet, _, overload = name.partition(".")
    op = getattr(getattr(ATEN, packet), overload or "default")
    values = [torch_view(a, memory) if isinstance(a, View) else a for a in args]
    kwargs = {}
    if out is not None:
        same = [v for a, v in zip(args, values) if str(a) == str(out)]
        kwargs["out"] = same[0] if same else torch_view(out, memory)
    try:
        return op(*values, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
        return None


def text(arg):
    if arg is None:
        return "-"
    if isinstance(arg, bool):
        return f"b{int(arg)}"
    return str(arg) if isinstance(arg, View) else f"{'f' if isinstance(arg, float) else 'i'}{arg}"


def one(rng):
    c = Case(rng)
    name = rng.choice(list(OPS))
    make, inplace, with_out = OPS[name]
    args, out, form = make(c), None, rng.random()
    if inplace and form < 0.25:
        name = inplace
        if rng.random() < 0.3:  # an argument that shares memory with self
            for k in range(1, len(args)):
                if isinstance(args[k], View) and args[k].dtype == args[0].dtype:
                    args[k] = View(args[k].dtype, args[k].sizes, args[k].strides, 0, rng.choice([0, 0, 1]))
    elif with_out and form < 0.5:
        name, out = with_out, c.out(args)
    reach = {}
    for v in args + [out]:
        if isinstance(v, View) and v.base is not None:
            reach[v.base] = max(reach.get(v.base, 0), v.offset + v.reach())
    memory = {b: torch.zeros(n, dtype=DTYPES[c.bases[b]]) for b, n in reach.items()}
    result = call(name, args, out, memory)
    shared = out is not None and out.base is not None
    if shared and result is not None and list(result.shape) != list(out.sizes):
        return one(rng)  # memory that an argument has too cannot be resized by Kiln
    words = [name] + [text(a) for a in args] + ([text(out)] if out is not None else [])
    if result is None:
        return " ".join(words) + " = E"
    answer = View(NAMES[result.dtype], list(result.shape), list(result.stride()), None, 0)
    return " ".join(words) + " = " + str(answer)[:-1]


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=4000)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rng = random.Random(args.seed)
    for _ in range(args.count):
        print(one(rng))


if __name__ == "__main__":
    main()
