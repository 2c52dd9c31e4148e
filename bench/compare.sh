#!/usr/bin/env bash
# compare.sh OLD NEW [ROUNDS] - two builds of Kiln by turns in one run; bench/compare.py has the rules.
exec python3 "$(dirname "$0")/compare.py" "$@"
