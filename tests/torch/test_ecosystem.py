"""What programs do around operators, with Kiln enabled: modes, transforms, compilers, other kinds of tensors, processes.

Each piece of code is run without Kiln and with it and must come to the same (outcome.py).  `both` also says which operators
Kiln served, so that a test of its memory is not one of PyTorch's.
"""
import copy
import io
import os

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import kiln
import kiln.torch
from outcome import differ, outcome


def served():
    return {row.operator: row.served for row in kiln.torch.status().rows}


def both(function, *names, may_raise=False):
    """Runs it without Kiln and with it: the same.  Gives the second's values.  names: operators that Kiln must have served."""
    native = outcome(function)
    assert may_raise or native.error is None, native.error
    with kiln.torch.enabled("all"):
        before = served()
        ours = outcome(function)
        after = served()
    said = differ(ours, native)
    assert said is None, said
    for name in names:
        assert after[f"aten::{name}"] > before.get(f"aten::{name}", 0), f"{name} was not served"
    return ours.values


def floats(*sizes, grad=False):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(5)).requires_grad_(grad)


# -- gradient modes ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradient_modes(mode):
    def code():
        x = nn.Parameter(floats(3, 4))
        with mode():
            y = torch.mul(x, 2).sin()
        return y, y.requires_grad, y.is_inference(), y.is_leaf
    both(code, "mul.Tensor", "sin")


def test_versions_of_what_is_written():
    def code():
        x = floats(4, grad=True)
        y = x * 2
        z = y.exp()
        before = z._version
        z.add_(1)
        try:
            z.sum().backward()
        except RuntimeError as e:
            return before, z._version, str(e).split(";")[0]
    values = both(code, "add_.Tensor")
    assert "modified by an inplace operation" in values[2]


def test_parameter_and_optimizer():
    def code():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softplus())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            loss = (model(floats(5, 8)) ** 2).mean()
            loss.backward()
            optimizer.step()
        return loss, [p.grad for p in model.parameters()], list(model.state_dict().values())
    both(code, "gelu", "pow.Tensor_Scalar")


def test_hooks_and_checkpoint():
    def code():
        seen = []
        x = floats(3, grad=True)
        y = x.exp()
        y.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        out = torch.utils.checkpoint.checkpoint(lambda t: torch.tanh(t).mul(t), y, use_reentrant=False)
        out.sum().backward()
        return seen, x.grad
    both(code, "exp", "tanh")


def test_saved_tensor_hooks():
    def code():
        x = floats(3, 4, grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), torch.from_numpy):
            y = x.sigmoid().mul(x)
        y.sum().backward()
        return x.grad
    both(code, "sigmoid")


# -- results that are given --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("out", [lambda: torch.empty(0), lambda: torch.empty(3, 4), lambda: torch.empty(2, 2),
                                 lambda: torch.empty(4, 3).t(), lambda: torch.empty(3, 4, dtype=torch.float64),
                                 lambda: torch.empty(3, 4, dtype=torch.int32), lambda: torch.empty(3, 8)[:, ::2],
                                 lambda: torch.empty(1, 4).expand(3, 4), lambda: torch.empty(0, dtype=torch.bool)])
def test_out(out):
    def code():
        x, given = floats(3, 4), out()
        result = torch.add(x, 1.5, out=given)
        return result, result is given, given.stride()
    both(code, may_raise=True)


def test_out_overlapping():
    def code():
        memory = floats(10)
        torch.exp(memory[:6], out=memory[4:])
    both(code, may_raise=True)


def test_out_of_several():
    def code():
        x = floats(3, 4)
        values, places = torch.empty(0), torch.empty(0, dtype=torch.int64)
        low, high = torch.empty(4), torch.empty(4)
        return (torch.max(x, 0, out=(values, places)), values, places,
                torch.aminmax(x, dim=0, out=(low, high)), low, high, torch.frexp(x))
    both(code, "aminmax.out", "frexp.Tensor")


def test_in_place():
    def code():
        x = floats(3, 4)
        y = x.t()
        same = [x.add_(1) is x, y.mul_(2) is y, x[1].exp_().shape]
        x[:, 1].neg_()
        x += 2
        x /= torch.tensor(3)
        return x, y, same
    both(code, "add_.Tensor", "mul_.Tensor", "exp_", "neg_")


def test_in_place_refused():
    both(lambda: torch.zeros(3, dtype=torch.int32).add_(1.5), may_raise=True)
    both(lambda: torch.zeros(3).add_(torch.zeros(2, 3)), may_raise=True)
    both(lambda: torch.zeros(1).expand(3).add_(torch.ones(3)), may_raise=True)


# -- memory ------------------------------------------------------------------------------------------------------------

def test_layouts():
    def code():
        x = floats(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
        y = floats(2, 3, 4, 5)
        return [t.stride() for t in (x + 1, x * y, y * x, x.exp(), x.t_copy() if x.dim() == 2 else -x, x.sum(1), x.permute(3, 1, 0, 2).sin(),
                                     x[:, :, ::2].abs(), torch.relu(x.expand(2, 3, 4, 5)), torch.where(x > 0, x, y))], x + 1
    both(code, "exp", "abs")


def test_data_is_aligned():
    with kiln.torch.enabled("all"):
        for sizes in ((), (1,), (3,), (5, 7), (129,), (1000, 3)):
            assert torch.exp(torch.ones(sizes)).data_ptr() % 64 == 0


def test_results_are_resized():
    def code():
        x = floats(3).exp()
        x.resize_(5)
        x[3:] = 0
        y = floats(3, 4).sin()
        y.resize_(2, 2)
        z = floats(3).cos()
        z.set_(torch.arange(4.0))
        z.untyped_storage().resize_(64)
        w = floats(6).tan()
        v = torch.empty(0).set_(w.untyped_storage(), 2, (2, 2), (2, 1))
        return x, y, z, v, w.untyped_storage().nbytes(), w.untyped_storage().resizable()
    both(code, "exp", "sin", "cos", "tan")


def test_results_are_shared():
    def code():
        x = floats(100).exp()
        x.share_memory_()
        y = x.clone()
        return x, x.is_shared(), y.is_shared(), x.is_pinned(), y.untyped_storage().device.type
    both(code, "exp")


def test_numpy_neighbours():
    def code():
        array = np.arange(12, dtype=np.float32).reshape(3, 4)
        y = torch.from_numpy(array[:, ::2]) * 2
        seen = y.numpy()
        y.add_(1)
        torch.from_numpy(array).neg_()
        torch.sqrt(torch.from_numpy(np.arange(3.0, dtype=np.float32)), out=torch.from_numpy(array)[0, :3])
        return torch.from_numpy(seen.copy()), torch.from_numpy(array.copy()), seen.flags.owndata, seen.strides
    both(code, "mul.Tensor", "add_.Tensor")


def test_numpy_that_cannot_be_written():
    def code():
        array = np.arange(4.0)
        array.flags.writeable = False
        return torch.from_numpy(array).exp()
    both(code)


def test_results_outlive_kiln():
    with kiln.torch.enabled("all"):
        x = torch.exp(torch.zeros(1000))
        view = x[3:7]
    del x
    kiln.configure(mode="interp")
    kiln.configure(mode="default")
    assert view.add(0).tolist() == [1.0] * 4


def test_save_and_load():
    def code():
        x = floats(3, 4).exp()
        file = io.BytesIO()
        torch.save({"x": x, "view": x[1], "p": nn.Parameter(x.sin())}, file)
        file.seek(0)
        return torch.load(file), copy.deepcopy(x), x.untyped_storage().nbytes()
    both(code, "exp", "sin")


def test_memory_on_demand():
    """Tensors that copy when they are written (torch._lazy_clone)."""
    def code():
        x = floats(8)
        y = torch._lazy_clone(x)
        z = y.exp()
        y.add_(1)
        return x, y, z, torch.mul(torch._lazy_clone(x), 2, out=torch._lazy_clone(x))
    both(code, "exp", "add_.Tensor")


# -- numbers and dtypes ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("code", [
    lambda: torch.arange(3) * 2.5, lambda: 2.5 * torch.arange(3), lambda: torch.arange(3) + True, lambda: torch.arange(3) / 2,
    lambda: torch.arange(3) * (1 + 2j), lambda: torch.ones(2, dtype=torch.float16) * 1e6, lambda: torch.ones(2) + 2**40,
    lambda: torch.ones(2, dtype=torch.uint8) + 300, lambda: torch.ones(2, dtype=torch.uint8) * -1,
    lambda: torch.tensor(3) * 2.5, lambda: torch.tensor(3.0, dtype=torch.float64) * torch.ones(2),
    lambda: torch.tensor(3, dtype=torch.int64) + torch.ones(2, dtype=torch.int8), lambda: torch.tensor(2.0).pow(3),
    lambda: torch.ones(()).add_(torch.ones(())), lambda: torch.ones(3).add(torch.tensor(2**62)), lambda: torch.tensor(2.5).sum(),
    lambda: torch.tensor(7).item() + torch.tensor(1.5).exp().item(), lambda: torch.where(torch.ones(2) > 0, 1, 2.5),
    lambda: torch.clamp(torch.arange(4), 1, 2.5), lambda: torch.ones(3, dtype=torch.bool) + torch.ones(3, dtype=torch.bool),
    lambda: torch.ones(2).masked_fill(torch.tensor([True, False]), float("nan")), lambda: torch.add(1, 2), lambda: torch.add(1.5, True)])
def test_numbers(code):
    both(code)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_default_dtype(dtype):
    def code():
        torch.set_default_dtype(dtype)
        try:
            i = torch.arange(1, 4)
            return (i / 2, i.exp(), i * 2.5, i.sum(), torch.true_divide(i, i), i.float() * 2.5, torch.sigmoid(i > 1), i + 1j,
                    torch.mean(i.float()), torch.pow(2.5, i), torch.where(i > 1, 1.5, 2.5), torch.tensor(2.0) * i, i.bool() * 1.5,
                    torch.ldexp(i, i), torch.nan_to_num(i), torch.polar(i.double(), i.double()), torch.rsub(i, 1.5), torch.hypot(i.float(), i.float()))
        finally:
            torch.set_default_dtype(torch.float32)
    both(code)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_default_dtype_in_direct_calls(dtype):
    i, invert = torch.arange(1, 4), kiln.op("aten::bitwise_not")
    torch.set_default_dtype(dtype)
    try:
        for name, args in (("div", (i, i)), ("exp", (i,)), ("mul", (i, 2.5)), ("add", (i.float(), i)), ("pow", (i, i.to(torch.bfloat16)))):
            want, got = getattr(torch, name)(*args), kiln.call(name, *args)
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want)
        assert kiln.call("aten::exp.out", i, out=torch.empty(3)).dtype == dtype
        assert torch.equal(invert(i), ~i)
    finally:
        torch.set_default_dtype(torch.float32)


def test_nothing():
    def code():
        empty, none = torch.empty(0, 3), torch.empty(2, 0, 3)
        return (empty + 1, none.exp(), empty.sum(), none.sum(1), none.mean(), empty.add_(1), torch.add(empty, 1, out=torch.empty(0)),
                torch.maximum(empty, torch.ones(1, 3)), none.prod(), torch.empty(0).var())
    both(code)
    both(lambda: torch.empty(0, 3).amax(), may_raise=True)
    both(lambda: torch.empty(0).max(), may_raise=True)


def test_absent_tensors():
    def code():
        x = floats(2, 4)
        return (torch.clamp(x, min=torch.zeros(4)), torch.clamp(x, max=torch.zeros(4)), torch.clamp(x, None, 0.5),
                torch.native_layer_norm(x, [4], None, None, 1e-5), nn.functional.binary_cross_entropy_with_logits(x, x.sigmoid()),
                nn.functional.layer_norm(x, [4], torch.ones(4)))
    both(code, "clamp.Tensor")
    both(lambda: torch.clamp(floats(2)), may_raise=True)


def test_many_tensors_and_items():
    def code():
        xs = [floats(3) for _ in range(100)]
        return torch.cat(xs), torch._foreach_add(xs, 1), torch.stack(xs).sum(0), floats(*[1] * 20).exp(), floats(*[1] * 64).sum()
    both(code)


# -- modes -------------------------------------------------------------------------------------------------------------

def test_autocast():
    def code():
        x, w = floats(4, 8, grad=True), floats(8, 8, grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            z = torch.add(y, y).exp() + x.sum()
            loss = nn.functional.mse_loss(z, x)
        loss.backward()
        return y, z, loss, x.grad, w.grad
    both(code, "add.Tensor")


def test_deterministic():
    def code():
        torch.use_deterministic_algorithms(True)
        try:
            return torch.add(floats(3), 1, out=torch.empty(0)), floats(3, 3).cumsum(0), floats(9).exp().resize_(3)
        finally:
            torch.use_deterministic_algorithms(False)
    both(code, "exp")


def test_torch_function_and_dispatch():
    class Function(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            unwrap = (t.inner if isinstance(t, Wrapped) else t for t in args)
            return Wrapped(func(*unwrap, **kwargs or {}))

    class Negative(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return -func(*args, **kwargs or {})

    def code():
        seen.clear()
        x = floats(3).as_subclass(Function)
        y = Wrapped(floats(3))
        with Negative():
            z = torch.exp(floats(2))
        return (x + 1).exp().as_subclass(torch.Tensor), (y * 2).sin().inner, torch.add(y, torch.ones(3)).inner, z, list(seen)
    seen = []
    both(code, "exp", "sin", "add.Tensor")


# -- transforms and compilers ------------------------------------------------------------------------------------------

def test_func():
    def loss(p, x):
        return (torch.tanh(x * p["w"]) + p["b"]).pow(2).mean()

    def code():
        p, x = {"w": floats(4), "b": floats(1)}, floats(3, 4)
        return (torch.func.grad(loss)(p, x), torch.func.vmap(torch.func.grad(loss), (None, 0))(p, x),
                torch.func.jacrev(torch.exp)(x[0]), torch.func.jacfwd(torch.sin)(x[0]), torch.func.hessian(loss, 1)(p, x[0]),
                torch.func.jvp(torch.sigmoid, (x,), (x,)), torch.vmap(torch.add, (0, None))(x, x[0]),
                torch.func.functional_call(nn.Linear(4, 4), {"weight": floats(4, 4), "bias": floats(4)}, (x,)),
                torch.func.functionalize(lambda t: t.add(1).mul_(2))(x), torch.func.linearize(torch.cos, x)[1](x))
    both(code, "tanh", "sigmoid", "exp")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(backend):
    def function(x, w):
        y = torch.nn.functional.gelu(x * w) + x.sum(-1, keepdim=True)
        y = y.clamp(min=-1)
        return y.softmax(-1).mul(2).add_(1), torch.arange(3) * 2.5

    def code():
        torch._dynamo.reset()
        x, w = floats(3, 4, grad=True), floats(4, grad=True)
        compiled = torch.compile(function, backend=backend)
        y, z = compiled(x, w)
        y.sum().backward()
        return y, z, x.grad, w.grad, compiled(floats(5, 4), w)
    both(code, "gelu" if backend == "eager" else "mul.Tensor")


def test_compile_traces_kiln_call(run_torch):
    """Without a graph break, whoever imports the compiler; an operator that PyTorch does not have is named."""
    run_torch("""if True:
        import sys, torch, kiln, kiln.torch
        assert "torch._dynamo" not in sys.modules
        kiln.load_ops("map my::twice(Tensor x) -> Tensor\\n  = x + x")
        x, aten = torch.arange(3.0), torch.ops.aten
        for f in (lambda x: kiln.call("aten::neg", x) + 1, lambda x: kiln.call("add", x, x, alpha=2),
                  lambda x: kiln.call("aten::add.Tensor", x, x, alpha=2) * 2, lambda x: kiln.call(aten.mul.Tensor, x, x)):
            assert torch.equal(torch.compile(f, backend="eager", fullgraph=True)(x), f(x))
        twice = lambda x: kiln.call("my::twice", x)
        assert torch.equal(torch.compile(twice, backend="eager")(x), x + x)
        torch._dynamo.reset()
        try:
            torch.compile(twice, backend="eager", fullgraph=True)(x)
        except torch._dynamo.exc.Unsupported as error:
            assert "kiln.torch.define makes it one" in str(error), error
        else:
            assert False
    """)


def test_compiled_before_and_after():
    """Code that was compiled while Kiln was disabled runs with it, and the other way round."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.exp(x).add(1), backend="aot_eager")
    x = floats(3)
    want = compiled(x)
    with kiln.torch.enabled("all"):
        torch.testing.assert_close(compiled(x), want)
        other = torch.compile(lambda x: torch.sin(x).add(1), backend="aot_eager")
        want = other(x)
    torch.testing.assert_close(other(x), want)


def test_trace_script_export():
    def function(x):
        return torch.exp(x).add(x, alpha=2).sum()

    class Module(nn.Module):
        def forward(self, x):
            return function(x)

    def code():
        x = floats(3)
        traced = torch.jit.trace(function, (x,))
        exported = torch.export.export(Module(), (x,))
        return traced(x), torch.fx.symbolic_trace(function)(x), exported.module()(x), str(exported.graph), str(traced.graph)
    both(code, "exp", "add.Tensor")


def test_profiler():
    def code():
        with torch.profiler.profile(record_shapes=True) as profile:
            torch.add(floats(3, 4).exp(), 2)
        return sorted((e.key, e.count) for e in profile.key_averages() if e.key in ("aten::add", "aten::exp"))
    assert both(code, "add.Tensor", "exp") == ["aten::add", 1, "aten::exp", 1]


# -- other kinds of tensors --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("code", [
    lambda: floats(3, 4).relu().to_sparse().mul(2).to_dense(), lambda: floats(3, 4).to_sparse_csr().neg().to_dense(),
    lambda: floats(3, 4).to_sparse().add(floats(3, 4).to_sparse()), lambda: floats(3, 4).add(floats(3, 4).to_sparse()),
    lambda: floats(3, 4).to_sparse().sum(), lambda: floats(3, 4).add_(floats(3, 4).relu().to_sparse()),
    lambda: torch.quantize_per_tensor(floats(4), 0.1, 10, torch.quint8).relu(),
    lambda: floats(4).to_mkldnn().relu().to_dense(), lambda: torch.nested.nested_tensor([floats(2), floats(3)]).mul(2).unbind(),
    lambda: torch.nested.nested_tensor([floats(2), floats(3)], layout=torch.jagged).sin().unbind(),
    lambda: torch.empty(3, 4, device="meta").exp().add(1), lambda: torch.add(torch.empty(3, device="meta"), torch.tensor(2.0)),
    lambda: torch.complex(floats(3), floats(3)).conj().exp(), lambda: torch.complex(floats(3), floats(3)).conj().mul_(2),
    lambda: torch.add(torch.ones(3, dtype=torch.complex64), 1, out=torch.zeros(3, dtype=torch.complex64).conj()),
    lambda: torch.complex(floats(3), floats(3)).conj().imag.abs(), lambda: torch._neg_view(floats(3)).exp(),
    lambda: torch._neg_view(floats(3)).add_(1), lambda: torch._efficientzerotensor(3).add(floats(3)),
    lambda: torch._efficientzerotensor(3).mul(floats(3)), lambda: floats(3).to(torch.float8_e4m3fn).float().add(1),
    lambda: torch.ones(3, dtype=torch.complex32).mul(2),
    lambda: torch.masked.masked_tensor(floats(3), floats(3) > 0).exp().get_data()])
def test_other_tensors(code):
    both(code)


@pytest.mark.parametrize("code", [
    lambda: torch.quantize_per_tensor(floats(4), 0.1, 10, torch.quint8).add(1),
    lambda: torch.add(torch.empty(3, device="meta"), torch.ones(3)), lambda: torch.add(torch.ones(3), torch.ones(3, device="meta")),
    lambda: torch.add(torch.ones(3), torch.tensor(2.0, device="meta")), lambda: torch.exp(torch.ones(3), out=torch.ones(3, device="meta")),
    lambda: floats(3).to(torch.float8_e4m3fn).add(1), lambda: torch.ones(2, dtype=torch.uint16) + 1,
    lambda: floats(3).to_sparse().exp(), lambda: torch.add(torch.ones(3), torch.ones(4)), lambda: torch.exp(torch.ones(2), out=3)])
def test_tensors_refused(code):
    both(code, may_raise=True)


def test_fake_tensors():
    def code():
        with torch._subclasses.FakeTensorMode():
            x = torch.ones(3, 4).exp().sum(0)
            return tuple(x.shape), str(x.dtype), str(x.device)
    both(code)


# -- processes ---------------------------------------------------------------------------------------------------------

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, k):
        x = torch.full((100,), float(k))
        return torch.mul(x, x).add_(1), sum(row.served for row in kiln.torch.status().rows)


def test_loader_that_forks():
    with kiln.torch.enabled("all"):
        (torch.ones(1 << 18) + torch.ones(1 << 18)).sum()  # threads are there before the fork
        before = sum(row.served for row in kiln.torch.status().rows)
        loader = torch.utils.data.DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=60)
        seen = list(loader)
        assert torch.exp(torch.zeros(2)).tolist() == [1, 1]
    assert torch.cat([x for x, _ in seen])[:, 7].tolist() == [k * k + 1 for k in range(6)]
    assert all((n > before).all() for _, n in seen), "the workers did not use Kiln"


def spawned(rank, queue):
    kiln.torch.enable("all")
    x = torch.full((4,), float(rank + 1)).exp()
    queue.put((rank, x, kiln.torch.status().rows != []))
    queue.join()


def test_spawn():
    with kiln.torch.enabled("all"):
        context = mp.get_context("spawn")
        queue = context.JoinableQueue()
        child = context.Process(target=spawned, args=(2, queue))
        child.start()
        rank, x, used = queue.get(timeout=100)
        torch.testing.assert_close(x, torch.full((4,), 3.0).exp())
        assert (rank, used) == (2, True)
        del x
        queue.task_done()
        child.join(100)
    assert child.exitcode == 0


def step(rank, file, how):
    """One step of training by one of two processes."""
    if how == "kiln":
        kiln.torch.enable("all")
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.GELU()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = served().get("aten::gelu", 0)
    model(torch.full((2, 4), rank + 1.0)).pow(2).mean().backward()
    optimizer.step()
    x = torch.full((3,), rank + 1.0).exp()
    dist.all_reduce(x)
    dist.destroy_process_group()
    assert (served().get("aten::gelu", 0) > before) == (how == "kiln")
    torch.save([*model.state_dict().values(), x], f"{file}.{rank}")
    # Freeing the model frees PyTorch's process group, which may wait for a thread of its own that waits for the GIL: free nothing.
    os._exit(0)


def test_distributed(tmp_path):
    results = []
    for how in ("kiln", "native"):
        ranks = [mp.get_context("fork").Process(target=step, args=(rank, tmp_path / how, how)) for rank in range(2)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(100)
        assert [process.exitcode for process in ranks] == [0, 0]
        results.append([torch.load(tmp_path / f"{how}.{rank}") for rank in range(2)])
    torch.testing.assert_close(*results)
