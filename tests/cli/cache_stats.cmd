# sums by operator and level, and of what is refused; they add up
export KILN_CACHE=disk
kiln cache stats | sed "s|$HOME|HOME|"
kiln run 'neg(f32[3])' 'neg(f64[3])' 'abs(f32[3])' 'exp(f32[3])' >/dev/null
damaged=$(ls "$KILN_CACHE_DIR"/kernels/*.kernel | head -n 1)
truncate -s 300 "$damaged"
kiln cache stats --json >$TMP/stats
kiln cache stats | sed "s|$HOME|HOME|; s/x86-64-v[234]/LEVEL    /; s/ *[0-9.]* KB/ N KB/" | grep -v aten
python3 - "$TMP/stats" "$KILN_CACHE_DIR/kernels" <<'PY'
import json, os, sys
stats, folder = json.load(open(sys.argv[1])), sys.argv[2]
names = [name for name in os.listdir(folder) if name.endswith(".kernel")]
assert stats["entries"] == len(names) == 4
assert stats["bytes"] == sum(os.path.getsize(os.path.join(folder, name)) for name in names)
for part in ("operators", "levels"):
    for what in ("entries", "bytes"):
        assert sum(sums[what] for sums in stats[part].values()) == stats[what], (part, what)
assert stats["refused"] == {"corrupt": {"entries": 1, "bytes": 300}}
assert stats["folder"] == folder and stats["signed"] == 0 and stats["other_builds"] == 0
print("the sums are right")
PY
