"""Ctrl-C while a call waits for a compiler: KeyboardInterrupt at once, nothing written, and the next call is right.

What a call has waited for is told from the counters: a compiler that is left to its limit of 30 seconds counts as a timeout.
"""
import pytest

COMPILER = """#!/bin/sh
case " $* " in *' -### '*|*-print-prog-name*) exit 1;; esac
echo run >> {0}/runs
while [ -e {0}/armed ]; do sleep 0.05; done
exec gcc "$@"
"""

# arm(): compilers hang from here on.  interrupted(f): whether f() ends by a SIGINT that comes once a compiler hangs in it.
START = """
import os, pathlib, signal, threading, time
import numpy as np, torch, kiln
os.environ.pop("LD_PRELOAD", None)  # a sanitizer's: compilers are not for it
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background of a shell
folder = pathlib.Path({0!r})
armed, log = folder / "armed", folder / "runs"
def arm(on=True): armed.touch() if on else armed.unlink(missing_ok=True)
def runs(): return log.read_text().count("run") if log.exists() else 0
def interrupted(f):
    before = runs()
    def kill():
        while runs() == before: time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=kill)
    try:
        thread.start()
        f()
        thread.join()
    except KeyboardInterrupt:
        return True
    finally:
        if runs() > before: thread.join()
    return False
def clean():
    now = kiln.stats()
    return not (now["compile_failures"] or now["compiler_timeouts"] or now["no_compiler"])
kiln.configure(mode="sync", cc=str(folder / "cc"), cache_dir=str(folder))
"""


@pytest.fixture
def run_with_compiler(run_torch, tmp_path):
    cc = tmp_path / "cc"
    cc.write_text(COMPILER.format(tmp_path))
    cc.chmod(0o700)
    return lambda code: run_torch(START.format(str(tmp_path)) + code + "\nprint('end')")


@pytest.mark.parametrize("found", [True, False], ids=["in a compile", "in the search for a compiler"])
def test_ctrl_c_ends_the_wait(run_with_compiler, found):
    assert run_with_compiler(f"""
if {found}: kiln.call("neg", kiln.Tensor([1.0]))
arm()
a, t, k = np.ones(3), torch.ones(3), kiln.Tensor([1.0, 2.0])
for f in (lambda: kiln.call("exp", a), lambda: kiln.call("exp", t), lambda: kiln.call("exp", k), lambda: kiln.op("aten::add.Tensor")(k, k, alpha=2),
          lambda: kiln.call("exp_", a), lambda: kiln.call("exp", a, out=a), lambda: k * k, lambda: kiln.explain("abs", a, stage="asm"),
          lambda: kiln.explain("abs(f32[3])", stage="asm"), *([] if {found} else [kiln.show_config])):
    calls = kiln.stats()["calls"]
    assert interrupted(f) and clean() and kiln.stats()["calls"] == calls
assert (a == 1).all() and k.tolist() == [1, 2]
for f in (lambda: kiln.call("exp", a), lambda: kiln.call("exp", a)):  # the same call again is interrupted again
    assert interrupted(f)
arm(False)
for x in (a, t, k):
    assert abs(float(kiln.call("exp", x)[0]) - 2.718281828) < 1e-6 and kiln.last_tier() == "compiled"
assert kiln.call("exp_", a) is a and a[0] > 2.7 and clean()
assert "ret" in kiln.explain("abs", a, stage="asm") and "!compiler: " not in kiln.show_config()
""") == "end\n"


def test_a_wait_for_others(run_with_compiler):
    """A compile of another thread goes on."""
    assert run_with_compiler("""
kiln.call("neg", kiln.Tensor([1.0]))
arm()
x, got = kiln.Tensor([1.0, 2.0]), []
before = runs()
thread = threading.Thread(target=lambda: got.append(kiln.call("exp", x)))
thread.start()
while runs() == before: time.sleep(0.01)
for f in (lambda: kiln.call("exp", x), kiln.wait_idle):
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()  # which needs the GIL
        f()
    except KeyboardInterrupt: pass
    else: assert False
    assert runs() == before + 1 and not got
arm(False)
thread.join()
kiln.wait_idle()
assert got[0][0].item() > 2.7 and clean() and kiln.stats()["compiles"] == 2 and kiln.call("exp", x)[1].item() > 7
""") == "end\n"


def test_a_handler_of_ones_own(run_with_compiler):
    """It runs at once, may call Kiln, and unless it raises the call goes on, with its arguments as they are then."""
    assert run_with_compiler("""
kiln.call("neg", kiln.Tensor([1.0]))
x, v, seen = kiln.Tensor([1.0, 2.0]), torch.ones(400_000), []
def handler(*_):
    arm(False)
    seen.append(kiln.call("exp", x)[0].item())
    v.set_(torch.full((2,), 3.0))
signal.signal(signal.SIGINT, handler)
arm()
assert not interrupted(lambda: seen.append(kiln.call("exp", x)[0].item()))
assert len(seen) == 2 and seen[0] == seen[1] > 2.7
arm()
assert not interrupted(lambda: seen.append(kiln.call("mul", v, v).tolist())) and seen[-1] == [9, 9] and clean()
class Mine(Exception): pass
def handler(*_): raise Mine
signal.signal(signal.SIGINT, handler)
arm()
try: interrupted(lambda: kiln.call("log", x))
except Mine: arm(False)
else: assert False
assert abs(kiln.call("log", x)[0].item()) < 1e-6 and clean()
""") == "end\n"


def test_other_threads_are_not_interrupted(run_with_compiler):
    """A SIGINT is the main thread's: it runs while the other waits."""
    assert run_with_compiler("""
kiln.call("neg", kiln.Tensor([1.0]))
arm()
before, got = runs(), []
thread = threading.Thread(target=lambda: got.append(kiln.call("exp", kiln.Tensor([0.0])).tolist()))
thread.start()
while runs() == before: time.sleep(0.01)
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
except KeyboardInterrupt:
    arm(False)
thread.join()
assert got == [[1.0]] and clean()
""") == "end\n"
