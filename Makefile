# make run    the whole pipeline on this machine's CPU, from nothing to a GRPO-trained model
# make test   the tests, in three processes, of which some wait (WORKERS=1: in one)
# make test-long  more variants of what is proven once, what takes minutes, and 1,000 examples of each property
# make upstream       verl, vLLM, AReaL, mindformers, and the checkouts of mindrlhf and MindSpeed-RL that a public
#                     address or MIRROR=DIR has, into ./upstream
#                     ONLY=vllm: one of them alone
# make test-upstream  the tests that run them for real; those of a missing checkout are skipped
# make core           a short part of these tests with what ./upstream has; .ci/run runs it
# make check  what .ci/run runs: lint, types, import rule, tests, documents
# make docs   the documents as a site in build/docs; a warning is an error
# make pictures  the documents' pictures, of a real run and sweep, in Chromium
# make bench  benchmarks (BENCH=NAME for one)
# make setup  only install
# INDEX=URL is one more package index for pip

VENV ?= .venv
# in the order of speed: 3.12 has no wheel of the fastest MindSpore; without any of them uv gets one
PYTHON ?= $(firstword $(foreach p,python3.11 python3.10 python3.12,$(shell $(p) -c 'import ensurepip, venv' 2>/dev/null && echo $(p))))
UV_PYTHON_VERSION = 3.11
BIN := $(VENV)/bin
EXTRA_INDEX = $(addprefix --extra-index-url=,$(INDEX))
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt $(EXTRA_INDEX) $(INSTALL_OPTIONS)

WORKERS ?= 3
PYTEST = $(BIN)/python -m pytest -n $(WORKERS)

.PHONY: run test test-long upstream test-upstream core check docs pictures bench setup clean

run: setup
	@$(BIN)/luigi --module pipeline RunGRPO

setup: $(VENV)/.run

test: $(VENV)/.test
	$(PYTEST)

test-long: $(VENV)/.test
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-thorough} $(BIN)/python -m pytest -m '(long or hypothesis) and not upstream'

upstream:
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 12))' 2>/dev/null || \
	{ echo "error: PYTHON=$(PYTHON) must be a Python 3.10 or 3.11: the engines' packages have no wheels for 3.12"; exit 1; }
	$(PYTHON) tests/upstream/fill.py $(addprefix --mirror=,$(MIRROR)) $(addprefix --index=,$(INDEX)) $(addprefix --only=,$(ONLY))

test-upstream core: WORKERS = 2 # a process of mindrlhf takes gigabytes
test-upstream: $(VENV)/.test upstream
	$(PYTEST) tests/upstream -m upstream -rs
core: $(VENV)/.test
	$(PYTEST) tests/upstream -m core -rs

check: $(VENV)/.test $(VENV)/.dev docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST)

SPHINX = $(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet --conf-dir docs
docs: $(VENV)/.docs
	rm -rf build/docs
	$(SPHINX) docs/zh build/docs/zh -d build/doctrees/zh -D language=zh_CN
	$(SPHINX) docs build/docs -d build/doctrees/en
	$(BIN)/python docs/links.py build/docs

pictures: $(VENV)/.run
	$(BIN)/python docs/pictures.py docs

bench: $(VENV)/.test
	$(BIN)/python -m tests.benchmarks $(BENCH)

$(BIN)/python:
	@if [ -n "$(PYTHON)" ]; then $(PYTHON) -m venv $(VENV); \
	elif command -v uv >/dev/null; then uv venv --quiet --seed --python $(UV_PYTHON_VERSION) $(VENV); \
	else \
		echo "error: no Python 3.10, 3.11 or 3.12 with its module venv is on PATH. Install one, then repeat the command:"; \
		echo "  apt-get install python3-venv         if Debian's or Ubuntu's python3 is one of these versions"; \
		echo "  uv (https://docs.astral.sh/uv)       make then gets Python $(UV_PYTHON_VERSION) through it"; \
		echo "  conda create --prefix ./python python=$(UV_PYTHON_VERSION)   and add PYTHON=./python/bin/python to the command"; \
		exit 1; \
	fi

$(VENV)/.run: $(BIN)/python pyproject.toml .ci/constraints.txt
	$(PIP) --editable '.[local]'
	@# pip compiles what it installs, but not what it only links to
	@$(BIN)/python -m compileall -q conf grpoflow hydra_plugins launch pipeline stages
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(PIP) --editable '.[test,parity]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	$(PIP) --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info
