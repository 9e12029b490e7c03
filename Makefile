# Everything runs in .venv, which the first target that needs it makes; `make help` lists the rest.

PYTHON ?= python3
# tflite-runtime has wheels for Python 3.9 to 3.11. The oldest there is, since it also shows that the
# light part runs on 3.9.
TFLITE_PYTHON ?= $(shell for p in python3.9 python3.10 python3.11; do \
  $$p -c 'import ensurepip' 2>/dev/null && echo $$p && exit; done; echo $(PYTHON))
# What test hands to pytest beyond its own options, for example: make test ARGS='-k parity -x'
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TFLITE_VENV := .venv-tflite-runtime
TFLITE_STAMP := $(TFLITE_VENV)/.installed
PIP := -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-heavy conformance mutation lint format bench dist clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'
	@echo
	@echo "  PYTHON=python3.12  the Python (3.11 to 3.13) that .venv is made with"

venv: $(STAMP) ## .venv with mpexport, all its extras, and the tools

# pip reads dependency groups since 25.1.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null || { \
	  echo "make: $(PYTHON) is $$($(PYTHON) -V 2>/dev/null || echo not there), and TensorFlow needs Python 3.11 to 3.13 here;" \
	       "name one: make PYTHON=python3.12" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) install --quiet 'pip>=25.1'
	$(BIN)/python $(PIP) install $(if $(wildcard $(STAMP)),--quiet) --editable '.[all]' --group dev
	@touch $@

# A second environment, since tflite-runtime needs numpy 1. Where there is no wheel there is none.
$(TFLITE_STAMP): pyproject.toml
	@python="$(TFLITE_PYTHON)"; \
	if $$python -c 'import sys; sys.exit(sys.platform != "linux" or not (3, 9) <= sys.version_info[:2] < (3, 12))' 2>/dev/null; then \
	  set -ex; \
	  test -x $(TFLITE_VENV)/bin/python || $$python -m venv $(TFLITE_VENV); \
	  $(TFLITE_VENV)/bin/python $(PIP) install --quiet 'pip>=25.1'; \
	  $(TFLITE_VENV)/bin/python $(PIP) install --quiet --editable '.[tflite-runtime]'; \
	  touch $@; \
	else \
	  echo "make: $$python is $$($$python -V 2>/dev/null || echo not there), and tflite-runtime has wheels for Linux and Python" \
	    "3.9 to 3.11 only: its tests are left out; name one: make TFLITE_PYTHON=python3.11" >&2; \
	fi

# The tests look at the HTML report in a real browser. The system's own package brings it.
.PHONY: chromium
chromium:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	  command -v $$name >/dev/null && exit; \
	done; \
	if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	  set -ex; \
	  apt-get install -y -qq --no-install-recommends chromium >/dev/null || { \
	    apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium >/dev/null; }; \
	else \
	  echo "make: there is no Chromium: the tests that look at the HTML report are skipped (in CI they fail);" \
	    "install it, on Debian: apt-get install chromium" >&2; \
	fi

demo: $(STAMP) ## train in mixed precision, export, prove; FRESH=1 trains again
	@$(BIN)/python -m sample_models.demo -o demo $(if $(filter-out 0,$(FRESH)),--fresh)

test: lint $(TFLITE_STAMP) chromium ## lint, then every test that takes no large model
	@test -e $(TFLITE_STAMP) || out=' and not tflite_runtime'; \
	set -x; $(BIN)/python -m pytest -n 2 --dist loadfile -m "not heavy$$out" $(ARGS)

test-heavy: $(STAMP) ## the tests with large models: minutes, gigabytes
	$(BIN)/python -m pytest -m heavy $(ARGS)

conformance: $(STAMP) $(TFLITE_STAMP) ## every model of the suite through every target, beside the bare tools
	$(BIN)/python $(PIP) install --quiet --group hub
	$(BIN)/python -m tests.conformance.run $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m tests.conformance.table)

mutation: $(STAMP) ## faults in exported files that the parity gate must find
	$(BIN)/python -m tests.mutation.run $(ARGS)

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## how long exporting, promoting and starting take; many minutes
	$(BIN)/python benchmarks/export.py
	$(BIN)/python benchmarks/float16.py
	$(BIN)/python benchmarks/promotion.py
	$(BIN)/python benchmarks/startup.py

dist: $(STAMP) ## source archive and wheel, in dist/
	rm -rf build dist mpexport.egg-info
	$(BIN)/python -m build

clean: ## remove what the other targets made, but not the environments
	rm -rf build dist demo mpexport.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
