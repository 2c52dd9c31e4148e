"""Settings of the kernels that are kept on disk, as kiln.configure takes them, and KILN_STATS."""
import os
import subprocess
import sys

import pytest

import kiln

PROGRAM = """
import sys, kiln, numpy as np
kiln.configure(mode="sync", cache="disk", cache_dir=sys.argv[1], cache_size=10_000_000)
kiln.call("neg", np.ones(3, "i2"))  # of which no pack has a kernel
stats = kiln.stats()
print(kiln.last_tier(), stats["compiles"], stats["stored"], stats["disk_hits"])
"""


def run(text, *args, **environment):
    kept = {name: value for name, value in os.environ.items() if name != "KILN_STATS"}
    return subprocess.run([sys.executable, "-c", text, *map(str, args)], env=kept | environment, capture_output=True, text=True, timeout=120)


def test_a_second_process_compiles_nothing(tmp_path):
    assert run(PROGRAM, tmp_path).stdout.split() == ["compiled", "1", "1", "0"]
    assert run(PROGRAM, tmp_path).stdout.split() == ["compiled", "0", "0", "1"]
    assert [path.suffix for path in (tmp_path / "kernels").iterdir() if not path.name.startswith(".")] == [".kernel"]


@pytest.mark.parametrize("setting, error, message", [
    ({"cache": "always"}, ValueError, "unknown cache 'always': expected default, disk, memory or off"),
    ({"cache": 3}, TypeError, "cache must be str, not 3"),
    ({"cache_size": -1}, ValueError, "cache_size must be a number of bytes"),
    ({"cache_size": 2**64}, ValueError, "cache_size must be a number of bytes"),
    ({"cache_size": "1G"}, TypeError, "cache_size must be int, not '1G'"),
    ({"cache_shared": "yes"}, TypeError, "cache_shared must be int, not 'yes'"),
    ({"key_file": 3}, TypeError, "key_file must be str, not 3"),
    ({"packs": 3}, TypeError, "packs must be str, not 3"),
    ({"packs": ["a", 3]}, TypeError, "packs must be paths, not 3"),
    ({"redis_url": 3}, TypeError, "redis_url must be str, not 3")])
def test_errors_name_the_setting(setting, error, message):
    before = kiln.show_config()
    with pytest.raises(error) as caught:
        kiln.configure(**setting)
    assert message in str(caught.value)
    assert kiln.show_config() == before


def test_settings_beat_the_environment(tmp_path):
    text = "import kiln; kiln.configure({}); print([line for line in kiln.show_config().splitlines() if 'kernels kept' in line])"
    assert run(text.format(""), KILN_CACHE="off").stdout == "[\"kernels kept: none on disk, since KILN_CACHE is 'off'\"]\n"
    assert run(text.format(f"cache='disk', cache_dir={str(tmp_path)!r}"), KILN_CACHE="off").stdout == "['kernels kept: none yet']\n"
    again = "cache='off'); kiln.configure(cache='default'"
    assert "'memory'" in run(text.format(again), KILN_CACHE="memory").stdout


def test_a_shared_folder_needs_a_key(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with_key = PROGRAM.replace("cache_size", "cache_shared=True, key_file=sys.argv[2], cache_size")
    assert run(with_key, shared, key).stdout.split() == ["compiled", "1", "1", "0"]
    for path in (shared / "kernels").glob("*.kernel"):
        path.chmod(0o666)
    assert run(with_key, shared, key).stdout.split() == ["compiled", "0", "0", "1"]
    assert run(PROGRAM, shared).stdout.split() == ["compiled", "1", "0", "0"]  # without the setting nobody reads it


def test_stats_at_exit(tmp_path):
    done = run(PROGRAM, tmp_path, KILN_STATS="1")
    assert "kiln: calls: 1; interpreted: 0\n" in done.stderr and "aten::neg" in done.stderr
    assert run(PROGRAM, tmp_path).stderr == ""
    assert run("import kiln", KILN_STATS="1").stderr == ""  # no context was opened
    assert "KILN_STATS is 'all': expected 0 or 1" in run("import kiln; kiln.stats()", KILN_STATS="all").stderr


def test_recording_goes_on_after_a_formula(tmp_path):
    """No other process could find the operator of a formula."""
    text = "import sys, kiln, numpy as np; x = np.ones(3); kiln.call('neg', x); kiln.evaluate('x + x*x'); kiln.call('exp', x)"
    run(text, KILN_RECORD=str(tmp_path / "calls"), KILN_MODE="interp")
    assert (tmp_path / "calls").read_text().splitlines() == ["aten::neg(self=f64[3])", "aten::exp(self=f64[3])"]
