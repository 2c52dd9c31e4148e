#!/bin/sh
# setup.sh [build|check|test] - gets what is needed to build, to run the C tests and lint as well, or to test everything;
# does nothing when it is there.  Debian packages are installed as root or through password-less sudo; otherwise the
# command to run is printed and the exit status is 1.  `test` alone makes .venv, with the packages of
# tools/requirements.txt, PyTorch among them.
set -eu
cd "$(dirname "$0")/.."
what=${1:-build}

packages="gcc libc6-dev cmake ninja-build pkg-config libxxhash-dev libjansson-dev"
programs="cc cmake ninja pkg-config"
modules="libxxhash jansson"
if [ "$what" != build ]; then
    packages="$packages clang clang-tidy clang-format libclang-rt-14-dev llvm libcmocka-dev python3 redis-server libhiredis0.14"
    programs="$programs clang clang-tidy clang-format llvm-symbolizer python3 redis-server"
    modules="$modules cmocka"
fi
if [ "$what" = test ]; then
    packages="$packages g++ valgrind python3-dev python3-venv ca-certificates"
    programs="$programs c++ valgrind nm"
fi

missing_packages() {
    for package in $packages; do
        status=$(dpkg-query -W -f ' ${db:Status-Status} ' "$package" 2>/dev/null || true)
        case $status in *" installed "*) ;; *) printf '%s ' "$package" ;; esac
    done
}

install_packages() { # $1: how to become root
    export DEBIAN_FRONTEND=noninteractive
    install="$1 apt-get install -y -qq --no-install-recommends $missing"
    $install >/dev/null 2>&1 && return # the package lists may be stale or absent: update, try again
    $1 apt-get update -qq && $install >/dev/null
}

# Another system: says what is missing, leaves getting it to the user.
check_programs() {
    lacking=""
    for program in $programs; do command -v "$program" >/dev/null || lacking="$lacking $program"; done
    for module in $modules; do pkg-config --exists "$module" 2>/dev/null || lacking="$lacking $module(headers)"; done
    [ -z "$lacking" ] && return
    echo "setup: please install:$lacking" >&2
    exit 1
}

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
    missing=$(missing_packages)
    if [ -n "$missing" ]; then
        if [ "$(id -u)" = 0 ]; then
            become=""
        elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
            become="sudo -n"
        else
            printf 'setup: please run:\n    sudo apt-get install -y --no-install-recommends %s\n' "$missing" >&2
            exit 1
        fi
        echo "setup: installing $missing" >&2
        install_packages "$become" || { echo "setup: apt-get could not install: $missing" >&2; exit 1; }
    fi
else
    check_programs
fi
[ "$what" = test ] || exit 0

# -- .venv: the packages of requirements.txt, with the versions it pins ---------------------------------
venv_is_right() {
    .venv/bin/python - tools/requirements.txt <<'END' 2>/dev/null
import sys, importlib.metadata as metadata
for line in open(sys.argv[1]):
    name, _, pin = line.strip().partition("==")
    found = metadata.version(name)
    assert not pin or found.split("+")[0] == pin, name
END
}
install_requirements() {
    .venv/bin/python -m pip install -qq --disable-pip-version-check -r tools/requirements.txt
}
if ! venv_is_right; then
    echo "setup: making .venv with $(tr '\n' ' ' <tools/requirements.txt)" >&2
    install_requirements 2>/dev/null && venv_is_right || { # what is there may only lack a package
        rm -rf .venv
        python3 -m venv .venv
        install_requirements
    }
    venv_is_right || { echo "setup: .venv does not hold what tools/requirements.txt asks for" >&2; exit 1; }
fi
