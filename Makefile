# Kiln's face: every target is a line or two over CMake presets and tools/.  `make help` lists them.
prefix ?= /usr/local
T ?= schema
SECONDS ?= 60

.PHONY: all help run python pack test test-all check asan tsan lint format fuzz bless bench install clean setup setup-check setup-test

all: setup                ## build/kiln, build/libkiln.so and build/libkiln.a, optimised
	@cmake --preset release >/dev/null
	@cmake --build --preset release

help:                     ## this list
	@awk -F ':.*## ' '/^[a-z].*## /{ printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: all                  ## shows a first call, the kernel that takes over, and what needs no new kernel
	@tools/run_demo.sh

python: setup-test all     ## the Python module, built in place; .venv/bin/python can then `import kiln`
	@KILN_STATIC_LIB=build/libkiln.a .venv/bin/python setup.py -q build_ext --inplace --build-temp build/python
	@.venv/bin/python -c 'import sysconfig; open(sysconfig.get_path("purelib") + "/kiln.pth", "w").write("$(CURDIR)/python\n")'
	@.venv/bin/python -m kiln.torch build --in-place >/dev/null
	@[ -f build/pack-full.pack ] || tools/make_pack.sh small python/kiln/kernels.pack

pack: python              ## kernels of all shipped operators for x86-64-v3 and v4, in minutes; make install and the wheel then carry them
	@tools/make_pack.sh full build/kernels.pack python/kiln/kernels.pack

test: setup-test all      ## everything: lint, unit, sanitizers, fuzzers, CLI, ABI, install, PyTorch
	@tools/run_tests.sh

test-all: setup-test all  ## the same with every sweep whole instead of sampled
	@KILN_TEST_ALL=1 tools/run_tests.sh

check: setup-check        ## the C tests but for crowds of threads, in two minutes; needs no PyTorch
	@tools/run_tests.sh check

asan: setup-check         ## the C tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/run_tests.sh asan

tsan: setup-check         ## the threaded tests under ThreadSanitizer
	@tools/run_tests.sh tsan

lint: setup-check         ## layers, sizes, clang-format, clang-tidy in full on what changed since it was found right
	@tools/lint.sh

format: setup-check       ## rewrites C files in place with clang-format
	@tools/lint.sh --fix

fuzz: setup-check         ## one fuzzer for SECONDS seconds: make fuzz T=schema SECONDS=60
	@tools/fuzz.sh --seconds $(SECONDS) $(T)

bless: all                ## rewrites expected output of CLI and golden tests, and docs/OPERATORS.md; review the diff
	@tests/abi/check_exports.sh --bless
	@tools/cli_tests.sh --bless
	@! .venv/bin/python -c "import kiln" 2>/dev/null || .venv/bin/python tools/operators.py

bench: python             ## figures beside their goals; fails if one is missed
	@cmake --build --preset release --target benches
	@bench/goals.sh

install: all              ## into $(DESTDIR)$(prefix)
	@cmake --install build --prefix $(prefix)

clean:                    ## removes what was built, keeps .venv
	rm -rf build build-dev build-asan build-tsan build-logs python/kiln/*.so

setup:
	@tools/setup.sh build

setup-check:
	@tools/setup.sh check

setup-test:
	@tools/setup.sh test
