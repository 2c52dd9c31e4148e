"""Messages of the library: kiln.configure(log=...) and KILN_LOG, with builds that work and builds that fail."""
import re

import pytest

START = """
import numpy as np, os, sys, threading, time
import kiln
x = np.ones(4, "f4")
said = []
def log(level, topic, text):
    said.append((level, topic, text))
"""


def test_a_function_is_told(run_python):
    assert run_python(START + """
kiln.configure(mode="sync", log=log)
kiln.call("neg", x)
kiln.wait_idle()
assert [m[:2] for m in said] == [(3, "class"), (2, "compile")], said
assert said[0][2] == "aten::neg: self f32 contig -> f32 contig; in f32"
assert said[1][2].startswith(said[0][2] + ": built in ")
kiln.configure(log=False)
kiln.call("abs", x)
kiln.wait_idle()
assert len(said) == 2 and kiln.stats()["compiles"] == 2  # a log alone keeps the context
kiln.configure(log=log)
kiln.call("exp", x)
kiln.wait_idle()
assert len(said) == 4
""") == ""


def test_builds_in_the_background(run_python):
    """Builders log on threads of their own; the thread that tells needs no help of the main thread, which waits in C here."""
    assert run_python(START + """
kiln.configure(mode="tiered", log=log)
def work():
    while not any(m[1] == "compile" for m in said):
        kiln.call("neg", x)
t = threading.Thread(target=work)
t.start()
t.join()
assert threading.current_thread() is threading.main_thread()
""") == ""


def test_a_build_that_fails(run_python):
    for mode in ("sync", "tiered"):
        assert run_python(START + f"""
kiln.configure(mode={mode!r}, cc="/bin/false", log=log)
end = time.monotonic() + 60
while not any(m[0] == 1 for m in said) and time.monotonic() < end:
    kiln.call("neg", x)
(warned,) = [m for m in said if m[0] == 1]
assert warned[1] == "compile" and "/bin/false" in warned[2], warned
assert kiln.last_tier() == "interp"
""") == ""


def test_a_logger(run_python):
    out = run_python(START + """
import logging
logging.basicConfig(level=logging.INFO, format="%(name)s|%(levelname)s|%(message)s")
kiln.configure(mode="sync", log=logging.getLogger("kiln"))
kiln.call("neg", x)
kiln.configure(cc="/bin/false")
kiln.call("abs", x)
kiln.wait_idle()
""")
    built, failed = out.splitlines()[:2]
    assert re.fullmatch(r"kiln\|INFO\|compile: aten::neg: self f32 contig -> f32 contig; in f32: built in [\d.]+ ms", built)
    assert failed.startswith("kiln|WARNING|compile: compiling aten::abs: ")


def test_what_a_log_raises_is_unraisable(run_python):
    assert run_python(START + """
raised = []
sys.unraisablehook = lambda what: raised.append(what.exc_value)
def log(level, topic, text):
    raise KeyError(topic)
kiln.configure(mode="sync", log=log)
assert (kiln.call("neg", x) == -1).all() and kiln.last_tier() == "compiled"
kiln.wait_idle()
assert [type(e) for e in raised] == [KeyError, KeyError]
""") == ""


def test_a_log_may_call_kiln(run_python):
    assert run_python(START + """
def log(level, topic, text):
    said.append(text)
    if topic == "compile" and len(said) < 9:
        kiln.call("exp", x)
        kiln.wait_idle()
        kiln.configure(mode="sync", max_kernels=100)
kiln.configure(mode="sync", log=log)
kiln.call("neg", x)
kiln.wait_idle()
assert len(said) >= 4
""") == ""


def test_closing_while_a_builder_logs(run_python):
    """A new context, and the interpreter's end, close a context with the GIL held, and wait for its builders."""
    assert run_python(START + """
for k in range(6):
    kiln.configure(mode="tiered", cc="/bin/false" if k % 2 else "cc", max_kernels=100 + k, log=log)
    for name in ("neg", "abs", "exp", "sin", "cos", "tan"):
        for _ in range(400):
            kiln.call(name, x)
""") == ""


def test_the_end_of_the_interpreter_tells_what_is_left(run_python):
    out = run_python(START + """
kiln.configure(mode="sync", log=lambda level, topic, text: print(level, topic, flush=True))
kiln.call("neg", x)
""")
    assert out == "3 class\n2 compile\n"


def test_a_log_that_never_returns_does_not_hold_up_the_end(run_python):
    assert run_python(START + """
kiln.configure(mode="sync", log=lambda *message: time.sleep(1000))
kiln.call("neg", x)
""") == ""


def test_after_a_fork(run_python):
    out = run_python(START + """
import warnings
warnings.simplefilter("ignore")
kiln.configure(mode="sync", log=log)
kiln.call("neg", x)
kiln.wait_idle()
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        del said[:]
        kiln.call("abs", x)
        kiln.wait_idle()
        os._exit(0 if [m[0] for m in said] == [3, 2] and "aten::abs" in said[0][2] else 1)
    assert os.waitpid(pid, 0)[1] == 0
kiln.call("exp", x)
kiln.wait_idle()
assert len(said) == 4
""")
    assert out == ""


def test_what_is_no_log(run_python):
    assert run_python(START + """
before = kiln.stats()
kiln.call("neg", x)
for wrong in (3, "log", True, []):
    try:
        kiln.configure(mode="sync", log=wrong)
    except TypeError as error:
        assert "function of level, topic and text" in str(error), error
    else:
        raise AssertionError(wrong)
assert kiln.stats()["calls"] == 1 and kiln._settings == {}
""") == ""


# -- KILN_LOG --------------------------------------------------------------------------------------------------------------

CALL = 'import numpy as np, kiln; kiln.configure(mode="sync"); kiln.call("neg", np.ones(4, "f4"))'


def test_levels_of_the_environment(run_python):
    key = "aten::neg: self f32 contig -> f32 contig; in f32"
    assert run_python(CALL, KILN_LOG="") == run_python(CALL, KILN_LOG="warning") == ""
    assert re.fullmatch(rf"kiln: info: compile: {key}: built in [\d.]+ ms\n", run_python(CALL, KILN_LOG="info"))
    assert run_python(CALL, KILN_LOG="debug").startswith(f"kiln: debug: class: {key}\nkiln: info: compile: {key}: built in ")
    assert run_python(CALL, KILN_LOG="error", KILN_CC="/bin/false") == ""
    assert run_python(CALL, KILN_LOG="warning", KILN_CC="/bin/false").startswith("kiln: warning: compile: compiling aten::neg: ")


def test_a_file_of_the_environment(run_python, tmp_path):
    path = tmp_path / "kiln.log"
    for _ in range(2):
        assert run_python(CALL, KILN_LOG=f"debug:{path}") == ""
    assert [line.split(": ")[1] for line in path.read_text().splitlines()] == ["debug", "info"] * 2


@pytest.mark.parametrize("text, why", [("loud", "expected error, warning, info or debug"), ("info:", "expected error"), ("3", "expected error"),
                                       ("info:/dev/null/log", "cannot open /dev/null/log: Not a directory")])
def test_a_wrong_value_of_the_environment(run_python, text, why):
    assert run_python(f"""
import kiln
for _ in range(2):
    try:
        kiln.call("neg", 1.0)
    except ValueError as error:
        assert str(error).startswith("KILN_LOG") and {why!r} in str(error), error
    else:
        raise AssertionError
""", KILN_LOG=text) == ""
