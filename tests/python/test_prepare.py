"""kiln.prepare compiles what a call would run, and a new mode keeps what was compiled."""
import os
import subprocess
import sys
import threading
import time

import kiln
import numpy as np
import pytest
import torch

T = torch.arange(6.0).reshape(2, 3)


@pytest.fixture
def tiered(tmp_path):
    before = dict(kiln._settings)
    kiln.configure(mode="tiered", cache_dir=tmp_path)
    yield
    kiln._kiln.configure(before)
    kiln._settings.clear()
    kiln._settings.update(before)


@pytest.mark.parametrize("name, args, kwargs", [
    ("aten::add.Tensor", (T, T), {"alpha": 2}),
    ("add", (T, 2), {}),
    ("mul", (T.numpy(), T.numpy()), {}),
    ("sum", (kiln.Tensor([1.0, 2.0]),), {}),
    ("neg", (T,), {"out": torch.empty(2, 3)}),
    ("softmax", (T, 1), {}),
    ("cross_entropy_loss", (T, torch.tensor([0, 2])), {}),
])
def test_a_prepared_call_is_compiled(tiered, name, args, kwargs):
    assert kiln.prepare(name, *args, **kwargs) is None
    stats = kiln.stats()
    assert stats["compiles"] >= 1 and stats["calls"] == 0
    kiln.call(name, *args, **kwargs)
    assert kiln.last_tier() == "compiled"
    after = kiln.stats()
    assert after["compiles"] == stats["compiles"] and after["interp_calls"] == 0
    kiln.prepare(name, *args, **kwargs)  # there is nothing left to do
    assert kiln.stats()["compiles"] == stats["compiles"]


def test_lists_are_prepared(tiered):
    x, y = [torch.ones(4), torch.ones(2, 3)], [torch.ones(4), torch.ones(2, 3)]
    kiln.prepare("_foreach_add_.List", x, y)
    assert kiln.stats()["compiles"] == 1 and x[0].tolist() == [1] * 4
    kiln.call("_foreach_add_.List", x, y)
    assert kiln.stats()["interp_calls"] == 0 and x[0].tolist() == [2] * 4


def test_a_norms_gradient_is_prepared_with_its_rest(tiered):
    """Its gradients of weights come of another operator."""
    x, w = torch.randn(8, 16), torch.randn(16)
    _, mean, rstd = torch.native_layer_norm(x, [16], w, w, 1e-5)
    args = (x, x, [16], mean, rstd, w, w, [True, True, True])
    kiln.prepare("native_layer_norm_backward", *args)
    assert kiln.stats()["compiles"] == 2
    kiln.call("native_layer_norm_backward", *args)
    assert kiln.stats()["interp_calls"] == 0


def test_nothing_is_computed(tiered):
    x = torch.ones(3)
    kiln.prepare("add_", x, 1)
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("args, error, text", [
    ((), TypeError, "needs an operator's name"),
    (("add", T), TypeError, "other"),
    (("aten::add.Tensor", T, torch.ones(4)), RuntimeError, "must match"),
    (("multinomial", T, 2), NotImplementedError, "does not serve"),
    (("no_such_thing", T), NotImplementedError, "no operator"),
])
def test_errors_are_those_of_calls(tiered, args, error, text):
    with pytest.raises(error, match=text):
        kiln.prepare(*args)


def test_a_kernel_that_cannot_be_built_is_an_error(tiered):
    kiln.configure(cc="/nowhere/cc")
    with pytest.raises(RuntimeError, match="no working compiler"):
        kiln.prepare("exp", T)
    kiln.configure(mode="frozen")
    with pytest.raises(RuntimeError, match="frozen"):
        kiln.prepare("exp", T)


def test_other_threads_run_meanwhile(tiered, tmp_path):
    """The GIL is given up while a compiler is at work."""
    cc = tmp_path / "cc"
    cc.write_text("#!/bin/sh\ncase \"$*\" in *-###*) exit 1;; esac\nsleep 0.3\nexec gcc \"$@\"\n")
    cc.chmod(0o755)
    kiln.configure(cc=str(cc))
    done, ticks = threading.Event(), 0
    thread = threading.Thread(target=lambda: (kiln.prepare("exp", T), done.set()))
    thread.start()
    while not done.is_set() and thread.is_alive():
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert done.is_set() and ticks > 20


# -- a new mode -----------------------------------------------------------------------------------------------------

def tier_of(name, x):
    kiln.call(name, x)
    return kiln.last_tier()


def test_a_new_mode_keeps_kernels(tiered):
    kiln.prepare("exp", T)
    kernels = kiln.stats()["kernels"]
    assert kernels == 1
    for mode in ("sync", "frozen", "default", "tiered", "sync"):
        kiln.configure(mode=mode)
        assert tier_of("exp", T) == "compiled"
        stats = kiln.stats()
        assert stats["kernels"] == kernels and stats["compiles"] == 0 and stats["calls"] == 1
    assert "mode: sync" in kiln.show_config()


def test_a_new_mode_takes_effect_on_calls_that_are_remembered(tiered):
    """An operator that was interpreted often is compiled on its next call in sync mode, and no longer in frozen mode."""
    log = kiln.op("aten::log")
    for _ in range(5):
        log(T)
    assert kiln.last_tier() == "interp"
    kiln.configure(mode="sync")
    log(T)
    assert kiln.last_tier() == "compiled" and kiln.stats()["compiles"] == 1
    sin = kiln.op("aten::sin")
    kiln.configure(mode="frozen")
    for _ in range(2000):
        sin(T)
    kiln.wait_idle()
    assert kiln.last_tier() == "interp" and kiln.stats()["compiles"] == 0
    kiln.configure(mode="tiered")
    for _ in range(20000):
        sin(T)
    kiln.wait_idle()
    sin(T)
    assert kiln.last_tier() == "compiled"


def test_what_decides_code_starts_anew(tiered):
    kiln.prepare("exp", T)
    kiln.configure(mode="tiered", isa="x86-64-v2" if os.uname().machine == "x86_64" else "generic")
    assert kiln.stats()["kernels"] == 0
    kiln.prepare("exp", T)
    kiln.configure(mode="interp")  # without any kernel: every call is interpreted
    assert kiln.stats()["kernels"] == 0 and tier_of("exp", T) == "interp"


def test_a_wrong_mode_changes_nothing(tiered):
    kiln.prepare("exp", T)
    with pytest.raises(ValueError, match="unknown mode 'fast'"):
        kiln.configure(mode="fast")
    assert "mode: tiered" in kiln.show_config() and kiln.stats()["kernels"] == 1


def test_rows_stay(tiered):
    kiln.load_ops("map my::kept(Tensor self) -> Tensor : takes real = self + 4")
    kept = kiln.op("my::kept")
    kiln.prepare("my::kept", T)
    kiln.configure(mode="sync")
    assert kept(kiln.Tensor([1])).tolist() == [5]


def test_modes_change_while_threads_call(tiered):
    stop, wrong = threading.Event(), []

    def work():
        x = np.arange(8.0)
        while not stop.is_set():
            if not np.array_equal(kiln.call("add.Tensor", x, x), x + x):
                wrong.append(1)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for k in range(60):
        kiln.configure(mode=["sync", "tiered", "frozen"][k % 3])
    stop.set()
    for t in threads:
        t.join()
    assert not wrong


def test_the_environments_interp_starts_anew():
    code = """
import kiln
x = kiln.Tensor([1.0])
kiln.configure(mode="sync")
kiln.call("exp", x)
assert kiln.last_tier() == "compiled"
kiln.configure(mode="default")
kiln.call("exp", x)
assert kiln.last_tier() == "interp"
"""
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "KILN_MODE": "interp"}, check=True)
