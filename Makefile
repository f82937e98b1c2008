# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Shortcuts for developers; see CONTRIBUTING.md. PYTHON names the interpreter of the environment.

PYTHON ?= python
JOBS ?= $(shell nproc)
CXX_SOURCES = $(wildcard dialects/*.cpp dialects/*.h passes/*.cpp passes/*.h runtime/*.cpp runtime/*.h runtime/*/*.cpp runtime/*/*.h include/*.h include/*/*.h \
	examples/c/*.c examples/cpp/*.cpp)
RUN = $(PYTHON) -m
CHECKS = check-ruff check-format check-clang-format check-types check-imports check-docs check-lit

# The folder that holds the package whose extensions are imported.
define LOCATE
import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("rlx_mlir._compiler").origin).parents[1])
endef
export LOCATE

.PHONY: help install develop native runtime-wheel check $(CHECKS) format docs test test-wide test-slow test-all coverage lowest audit lock release clean

help:
	@echo "install    build and install the package"
	@echo "develop    install it in editable mode, with what development needs"
	@echo "native     build the extensions again, only what changed, and put them where they are imported from"
	@echo "runtime-wheel  the wheel rlx-mlir-runtime, which runs compiled modules with numpy alone, into dist/"
	@echo "check      linters, formatters, types, floors of the package, generated documentation"
	@echo "format     reformat everything"
	@echo "docs       write the generated documentation"
	@echo "test       lit and the quick tests of pytest; test-wide: more cases, as .ci/run; test-slow: the slow ones; test-all: everything"
	@echo "coverage   branches of Python that the quick tests take, and the files that they take least of"
	@echo "lowest     tests with the oldest versions of what pyproject.toml admits"
	@echo "audit      known vulnerabilities of the locked versions; lock: writes the locks anew"
	@echo "release    source archive, wheel and bill of materials, in dist/"
	@echo "clean      delete what was built"

install:
	$(RUN) pip install .

develop:
	$(RUN) pip install -e . && $(RUN) pip install 'rlx-mlir[dev]'

native:
	cmake -S . -B build/dev -GNinja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	cmake --build build/dev -j $(JOBS)
	cmake --install build/dev --component rlx --prefix "$$($(PYTHON) -c "$$LOCATE")"

runtime-wheel:
	$(PYTHON) packages/runtime/build.py

check: $(CHECKS)

check-ruff:
	$(RUN) ruff check .

check-format:
	$(RUN) ruff format --check .

check-clang-format:
	clang-format --dry-run -Werror $(CXX_SOURCES)

check-types:
	$(RUN) mypy

# The sources here, wherever the package is installed.
check-imports:
	PYTHONPATH=python $(PYTHON) -c "from importlinter.cli import lint_imports_command as main; main()" --no-cache --no-logo

check-docs:
	$(PYTHON) docs/generate.py --check

check-lit:
	$(foreach lint,$(wildcard test/python/project/test_filecheck_lint.py),$(RUN) pytest -q $(lint))

format:
	$(RUN) ruff check --fix .
	$(RUN) ruff format .
	clang-format -i $(CXX_SOURCES)

docs:
	$(PYTHON) docs/generate.py

test:
	$(PYTHON) test/run.py -j $(JOBS)

test-wide:
	$(PYTHON) test/run.py --wide -j $(JOBS)

test-slow:
	$(PYTHON) test/run.py --slow -j $(JOBS)

test-all:
	$(PYTHON) test/run.py --all -j $(JOBS)

coverage:
	$(PYTHON) test/branch_coverage.py -j $(JOBS)

lowest:
	PYTHON=$(PYTHON) .ci/lowest

lock:
	PYTHON=$(PYTHON) .ci/lock

release:
	PYTHON=$(PYTHON) .ci/release

audit:
	$(PYTHON) .ci/audit

clean:
	rm -rf build dist
