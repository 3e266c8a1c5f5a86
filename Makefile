# make serve   set up, fetch the default model, start the server on http://127.0.0.1:8000
# make test    set up with the test dependencies, then lint, types and the whole test suite
# make help    all targets
#
# Variables: PYTHON (interpreter that makes .venv), MODEL, HOST, PORT, ARGS (passed on).

PYTHON ?= python3
MODEL ?= smollm2-135m
HOST ?= 127.0.0.1
PORT ?= 8000
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := pyproject.toml $(wildcard CMakeLists.txt) $(shell find csrc -type f)

export PYTHONUNBUFFERED := 1

# $(call timed,what,command) says what is being done, does it, and says how long it took.
timed = @start=$$(date +%s); echo "==> $(1)"; $(2) && \
	echo "==> $(1): done in $$(( $$(date +%s) - start )) s"

.PHONY: help setup setup-dev serve pull test lint format types pytest bench docs clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.installed ## make .venv and install Chairlift in it, building the kernels

setup-dev: $(VENV)/.installed-dev ## the same with what the tests need

pull: setup ## fetch MODEL (default smollm2-135m) into the cache
	$(call timed,model $(MODEL),$(BIN)/chairlift pull $(MODEL))

serve: pull ## serve MODEL on HOST:PORT; more flags in ARGS="..."
	@$(BIN)/chairlift serve $(MODEL) --host $(HOST) --port $(PORT) $(ARGS)

test: setup-dev lint types pytest ## lint, types, tests: what CI runs

lint: setup-dev ## style of all Python files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup-dev ## put all Python files into the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup-dev ## static types
	$(BIN)/mypy

pytest: setup-dev ## the tests alone; ARGS="-k name" picks some
	$(BIN)/pytest $(ARGS)

bench: setup ## output tokens per second at 1, 8, 32 and 64 requests
	$(BIN)/python benchmarks/throughput.py $(ARGS)

docs: setup-dev ## write the generated pages anew
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python docs/draw_step.py
	$(BIN)/python docs/draw_timelines.py
	$(BIN)/python docs/draw_preemption.py
	$(BIN)/python docs/draw_target_itl.py

clean: ## remove .venv and everything built
	rm -rf $(VENV) build

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: Chairlift needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
			"Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(call timed,virtual environment in $(VENV),$(PYTHON) -m venv $(VENV))

$(VENV)/.installed: $(SOURCES) | $(BIN)/python
	$(call timed,Chairlift and its kernels (compiled; a few minutes the first time),$(PIP) install -e .)
	@touch $@

# The extra's list is handed to pip by itself: naming ".[dev]" would build the kernels once more.
$(VENV)/.installed-dev: $(VENV)/.installed pyproject.toml constraints-dev.txt
	@$(BIN)/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		print(*project["optional-dependencies"]["dev"], sep="\n")' > $(VENV)/requirements-dev.txt
	$(call timed,test dependencies,$(PIP) install -r $(VENV)/requirements-dev.txt -c constraints-dev.txt)
	@touch $@
