#!/bin/sh
# build_and_run.sh - builds app.c with the kernels that it needs, and runs it in a folder that holds the program, its libraries and its pack,
# and nothing else: no compiler, no shell, no home.  Kiln must be installed, or PKG_CONFIG_PATH and PATH name it.
# Where this user may not change the root folder, the program runs with an empty PATH instead.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
unset KILN_PACK KILN_MODE KILN_CACHE
export KILN_CACHE_DIR="$out/cache"

# 1. The program, with the library in it.
static=$(pkg-config --variable=libdir kiln)/libkiln.a
# shellcheck disable=SC2046 -- flags are words
cc -O2 $(pkg-config --cflags kiln) app.c -o "$out/app" "$static" $(pkg-config --static --libs-only-l kiln | sed 's/-lkiln//')

# 2. Which kernels does it need?  Nothing is built while it is recorded.
KILN_MODE=interp KILN_RECORD=$out/app.calls "$out/app" >/dev/null

# 3. Build them, for two kinds of processors, and pack them.
kiln warm --isa=x86-64-v3,x86-64-v4 "$out/app.calls"
kiln cache export --slim "$out/app.pack"

# 4. A root folder without a compiler.
root=$out/root
mkdir -p "$root"
cp "$out/app" "$out/app.pack" "$root"
for library in $(ldd "$out/app" | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$library")"
    cp "$library" "$root$library"
done
chroot=$(command -v chroot) environment="env -i KILN_PACK=/app.pack"
if [ "$(id -u)" = 0 ]; then
    $environment "$chroot" "$root" /app
elif unshare -r "$chroot" "$root" /app >/dev/null 2>&1; then
    unshare -r $environment "$chroot" "$root" /app
else
    env -i KILN_PACK="$root/app.pack" "$root/app"
fi
