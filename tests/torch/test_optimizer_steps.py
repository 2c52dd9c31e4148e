"""Lists under PyTorch: `torch._foreach_*` and the optimizers that are made of them, ten steps beside PyTorch's own kernels.

Each optimizer trains a small model twice, with the same numbers.  What the bridge took is what ran: calls are counted.  What Kiln
refuses is PyTorch's to refuse, with its own message and nothing changed.
"""
import pytest
import torch

import kiln.torch

ADAM = {"lr": 0.01, "weight_decay": 0.05}
OPTIMIZERS = {
    "adam foreach": lambda p: torch.optim.Adam(p, foreach=True, **ADAM),
    "adam foreach amsgrad": lambda p: torch.optim.Adam(p, foreach=True, amsgrad=True, maximize=True, **ADAM),
    "adamw foreach": lambda p: torch.optim.AdamW(p, foreach=True, **ADAM),
    "adam fused": lambda p: torch.optim.Adam(p, fused=True, **ADAM),
    "adamw fused": lambda p: torch.optim.AdamW(p, fused=True, **ADAM),
    "adamw fused amsgrad": lambda p: torch.optim.AdamW(p, fused=True, amsgrad=True, **ADAM),
    "adamw fused tensor lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), weight_decay=0.05, fused=True),
    "sgd foreach": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, foreach=True),
    "sgd fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True, fused=True),
    "rmsprop foreach": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, foreach=True),
    "adagrad foreach": lambda p: torch.optim.Adagrad(p, lr=0.05, foreach=True),
}


def train(make, dtype, steps=10):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 33), torch.nn.Tanh(), torch.nn.LayerNorm(33), torch.nn.Linear(33, 5)).to(dtype)
    optimizer = make(list(model.parameters()))
    x, y = torch.randn(16, 20, dtype=dtype), torch.randn(16, 5, dtype=dtype)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.parameters()]


def listed():
    """Calls of operators on lists that Kiln has served so far."""
    return sum(row.served for row in kiln.torch.status().rows if "_foreach_" in row.operator or "_fused_" in row.operator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_steps(name, dtype):
    want = train(OPTIMIZERS[name], dtype)
    with kiln.torch.enabled("all"):
        before = listed()
        got = train(OPTIMIZERS[name], dtype)
        assert listed() - before >= 10
    tolerance = {"rtol": 2e-4, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-10}
    torch.testing.assert_close(torch.tensor(got[0]), torch.tensor(want[0]), **tolerance)
    torch.testing.assert_close(got[1], want[1], **tolerance)


def test_many_tensors():
    """More than a call keeps room for, again and again."""
    xs = [torch.randn(k % 50 + 1) for k in range(700)]
    ys = [torch.randn_like(x) for x in xs]
    want = torch._foreach_add(xs, ys, alpha=0.5)
    with kiln.torch.enabled(["_foreach_add", "_foreach_add_"]):
        for _ in range(3):
            torch.testing.assert_close(list(torch._foreach_add(xs, ys, alpha=0.5)), list(want))
        torch._foreach_add_(xs, ys, alpha=0.5)
    torch.testing.assert_close(xs, list(want))


def test_gradients_of_lists():
    xs = [torch.randn(3, requires_grad=True), torch.randn(4, requires_grad=True)]
    with kiln.torch.enabled("all"):
        sum(y.sum() for y in torch._foreach_mul(xs, 3.0)).backward()
    assert all(torch.equal(x.grad, torch.full_like(x, 3.0)) for x in xs)


def test_refused_by_pytorch_itself():
    with kiln.torch.enabled("all"):
        xs = [torch.ones(2), torch.ones(3)]
        with pytest.raises(RuntimeError, match="Tensor lists must have the same number of tensors"):
            torch._foreach_add_(xs, [torch.ones(2)])
        with pytest.raises(RuntimeError, match="must match the size of tensor b"):
            torch._foreach_add(xs, [torch.ones(2), torch.ones(7)])
        assert all(torch.equal(x, torch.ones_like(x)) for x in xs)


def test_by_kilns_own_call():
    xs, ys = [torch.randn(5) for _ in range(100)], [torch.randn(5) for _ in range(100)]
    want, versions = [x + y for x, y in zip(xs, ys)], [x._version for x in xs]
    kiln.call("_foreach_add_", xs, ys)
    torch.testing.assert_close(xs, want)
    assert [x._version for x in xs] == [v + 1 for v in versions]
    assert all(isinstance(x, torch.Tensor) for x in kiln.call("_foreach_sqrt", [y.abs() for y in ys]))
