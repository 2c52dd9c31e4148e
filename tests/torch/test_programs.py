"""The programs of bench/models.py give the losses, gradients, weights and answers that they give without Kiln.

Errors of rounding grow from step to step, and AdamW turns the sign of a tiny gradient into a whole step.  So each step of a program starts
from the weights that the program has without Kiln, and each optimizer is given PyTorch's gradients.

Near the threshold of ReLU or max pooling, a difference in an element's last bit changes the element's whole
gradient.  Programs with ReLU or max pooling get a wide tolerance in f32.  They get a narrow one in f64, where no
element comes near enough to the threshold.
"""
import sys
from pathlib import Path

import pytest
import torch

import kiln
import kiln.torch

sys.path.append(str(Path(__file__).parents[2] / "bench"))
import models  # noqa: E402

STEPS = 3
KINKED = ("T5", "ResNet", "CNN")


class Record:
    """What a step starts from and what it comes to."""

    def __init__(self, running, step, start=None, gradients=None):
        torch.manual_seed(step)  # dropout takes PyTorch's random numbers on both sides
        model = running.model
        if start:
            model.load_state_dict(start)
        self.start = {name: x.clone() for name, x in model.state_dict().items()}
        running.optimizer.zero_grad()
        batch = {name: x.to(running.dtype) if x.is_floating_point() else x for name, x in next(running.batches).items()}
        self.loss = running.program.loss(model, batch)
        self.loss.backward()
        self.gradients = {name: x.grad.clone() for name, x in model.named_parameters() if x.grad is not None}
        self.norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for name, x in model.named_parameters():
            if gradients and name in gradients:
                x.grad.copy_(gradients[name])
        self.given = {name: x.grad.clone() for name, x in model.named_parameters() if x.grad is not None}
        running.optimizer.step()
        self.end = {name: x.clone() for name, x in model.state_dict().items()}


def differences(title, own, native, relative, floor=0.0):
    """Tensors that differ from PyTorch's by more than relative * norm + floor, or in dtype."""
    assert own.keys() == native.keys()
    found = []
    for name, exact in native.items():
        far, size = (own[name].double() - exact.double()).norm().item(), exact.double().norm().item()
        if own[name].dtype != exact.dtype or not far <= relative * size + floor:
            found.append(f"{title} {name}: {far / max(size, 1e-30):.1e} of its norm")
    return found


def compare(own, native, relative=1e-4):
    """What differs.  A part of the norm of all gradients is allowed for each gradient: some are zero but for rounding."""
    found = differences("loss", {"": own.loss}, {"": native.loss}, 1e-5)
    found += differences("gradient", own.gradients, native.gradients, relative, relative / 100 * native.norm.item())
    found += differences("norm of all gradients", {"": own.norm}, {"": native.norm}, relative)
    return found + differences("weight", own.end, native.end, 1e-6, 1e-12)


def running(name, dtype):
    made = models.Running(name, "training")
    made.model.to(dtype)
    made.dtype = dtype
    return made


def train_natively(name, dtype=torch.float32):
    program = running(name, dtype)
    return [Record(program, step) for step in range(STEPS)]


def train_with_kiln(name, native, dtype):
    program = running(name, dtype)
    return [Record(program, step, record.start, record.given) for step, record in enumerate(native)]


def answer(name):
    running = models.Running(name, "inference")
    with torch.inference_mode():
        return running.program.answer(running.model, next(running.batches)).clone()


@pytest.fixture(params=["interp", "sync"])
def mode(request):
    kiln.configure(mode=request.param)
    yield request.param
    kiln.configure(mode="default")


def served():
    return sum(row.served for row in kiln.torch.status().rows)


def differences_in_training(name, dtype, relative):
    native = train_natively(name, dtype)
    before = served()
    with kiln.torch.enabled("all"):
        own = train_with_kiln(name, native, dtype)
    assert served() - before > 100
    return [text for pair in zip(own, native, strict=True) for text in compare(*pair, relative)]


@pytest.mark.parametrize("name", models.PROGRAMS)
def test_training(name, mode):
    before = kiln.stats()
    assert not differences_in_training(name, torch.float32, 2e-2 if name in KINKED else 1e-4)
    interpreted, calls = (kiln.stats()[counter] - before[counter] for counter in ("interp_calls", "calls"))
    assert interpreted == calls if mode == "interp" else interpreted < calls


@pytest.mark.parametrize("name", KINKED)
def test_training_in_f64(name, mode):
    assert not differences_in_training(name, torch.float64, 1e-6)


@pytest.mark.parametrize("name", models.PROGRAMS)
def test_inference(name, mode):
    native = answer(name)
    with kiln.torch.enabled("all"):
        own = answer(name)
    assert not differences("answer", {"": own}, {"": native}, 1e-5)


@pytest.mark.parametrize("what", ["loss", "gradients", "end"])
def test_a_planted_fault_is_found(what):
    native = train_natively("LSTM")
    own = Record(running("LSTM", torch.float32), 0, native[0].start, native[0].given)
    assert not compare(own, native[0])
    planted = {"": own.loss.detach()} if what == "loss" else getattr(own, what)
    name = max(planted)
    planted[name] *= 1.001
    found = compare(own, native[0])
    assert len(found) == 1 and f" {name}: " in found[0]
