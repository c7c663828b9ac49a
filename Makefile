# Two commands for a fresh machine: `make lab` opens the quickstart in JupyterLab, `make test` judges the checkout.
# Everything is installed into .venv; nothing outside of the checkout is changed, except by test-browser, which may
# install Debian's chromium when run as root.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup lab test test-alone test-browser test-extra gpu gpu-wheels evaluate frontend course docs docs-links browser clean
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
DOCS := .venv-docs
PY := $(VENV)/bin/python
PIP = $(@D)/bin/python -m pip --disable-pip-version-check --quiet
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
CPU_INDEX := https://download.pytorch.org/whl/cpu
FRONTEND := gpu_doctor/notebook/frontend
NODE_READY := $(FRONTEND)/node_modules/.ready
LAB_ARGS ?=
ARGS ?=
EVALUATE_ARGS ?=
DOCS_ARGS ?=
NOTEBOOKS ?=

# What belongs to another Python or another Jupyter stays out.
unexport PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX JUPYTER_PATH
export PYTHONNOUSERSITE := 1
export JUPYTER_PREFER_ENV_PATH := 1

help:
	@echo "make lab       install, then open notebooks/01_quickstart.ipynb in JupyterLab (LAB_ARGS=... is passed on)"
	@echo "make setup     install what the tests need into .venv"
	@echo "make test      lint, types, the fast tests, the quickstart; ARGS='-k vitals' is passed on to pytest"
	@echo "make test-alone, test-browser, test-extra   the tests that compare clocks, that drive Chromium, and the slow ones:"
	@echo "               frameworks, restore, faults, notebooks, other versions (docs/contributing/tests.md has their minutes)"
	@echo "make gpu       on a machine with an NVIDIA GPU: proves what is only simulated elsewhere, in two calls of 340 and"
	@echo "               240 s at most (CALL=1, CALL=2); without CALL what is not done yet. MINUTES=4 for less time, OUT=dir,"
	@echo "               BLOCKS='probe clock' for some, PYTHON=python3 for one that has torch (nothing is installed),"
	@echo "               REHEARSE=1 without a GPU"
	@echo "make gpu-wheels  for a GPU machine without a registry: what its Python may lack, into benchmarks/gpu/wheels/"
	@echo "               (GPU_PYTHON_VERSION=3.12)"
	@echo "make evaluate  how right the diagnosis is on a hundred sick and healthy programs (EVALUATE_ARGS=...)"
	@echo "make frontend  builds the panel's script out of gpu_doctor/notebook/frontend into gpu_doctor/notebook/static"
	@echo "make course    runs the notebooks and keeps their results in them, on a machine that does nothing else"
	@echo "               (NOTEBOOKS='02 05' for some)"
	@echo "make docs      builds the documentation into docs/_build/html (DOCS_ARGS=...); make docs-links asks the network"
	@echo "               whether its links to other sites still lead somewhere"
	@echo "make clean     remove the environments and all caches"

lab: $(VENV)/.lab-ready
	$(PY) -m jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) --ServerApp.root_dir=. notebooks/01_quickstart.ipynb $(LAB_ARGS)

setup: $(NODE_READY)

# What needs a quiet machine, a browser, or minutes carries a marker (pyproject.toml) and has a target of its own.
FAST := not (alone or slow or browser or extra)
FAST_FOLDERS := tests/unit tests/kernel tests/frontend tests/integration

test: setup
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(VENV)/bin/lint-imports
	$(PY) -m mypy
	$(PY) -m pytest -q -n auto -m "$(FAST)" $(if $(findstring tests/,$(ARGS)),,$(FAST_FOLDERS)) $(ARGS)
	$(PY) .ci/run_notebook.py notebooks/01_quickstart.ipynb

test-alone: setup
	$(PY) -m pytest -q -m alone tests/integration tests/kernel $(ARGS)

test-browser: setup browser
	$(PY) -m pytest -q -n auto --dist loadfile -m "browser and not alone" tests/browser tests/docs $(ARGS)

# nox makes an environment for each further Python and set of versions (noxfile.py); a Python that is not there is skipped.
test-extra: setup
	$(PY) -m pytest -q -n auto -m "(slow or extra) and not (alone or browser)" tests/integration tests/kernel tests/external $(ARGS)
	$(if $(ARGS),,$(PY) -m nox --no-error-on-missing-interpreters)

# The Python that is named, else .venv's, else python3. Nothing is installed: torch and the driver are the machine's own,
# wherever that Python finds them.
GPU_PYTHON := $(if $(filter file,$(origin PYTHON)),$(if $(wildcard $(PY)),$(PY),$(PYTHON)),$(PYTHON))
GPU_ARGS = $(BLOCKS) $(if $(CALL),--call $(CALL)) $(if $(MINUTES),--minutes $(MINUTES)) \
  $(if $(findstring command,$(origin OUT)),--out "$(OUT)") $(if $(filter-out 0,$(REHEARSE)),--rehearse $(if $(filter 2,$(CALL)),,--anew))
GPU_PYTHON_VERSION ?= 3.12

gpu:
	env -u PYTHONNOUSERSITE PYTHONPATH="$(PYTHONPATH)" $(GPU_PYTHON) -m benchmarks.gpu $(GPU_ARGS)

gpu-wheels:
	$(GPU_PYTHON) -m benchmarks.gpu.wheels --python $(GPU_PYTHON_VERSION)

evaluate: $(VENV)/.dev-ready
	$(PY) -m tools.evaluate $(EVALUATE_ARGS)

frontend: $(NODE_READY)
	$(PY) -m tools.frontend build

course: $(VENV)/.dev-ready
	$(PY) -m tools.course $(NOTEBOOKS)

# A warning fails it: a link to nowhere inside of the site, and a name of ours that no page documents.
SPHINX = $(DOCS)/bin/python -m sphinx -c docs -W --keep-going -n -E -q

docs: $(DOCS)/.docs-ready
	$(SPHINX) -b html $(DOCS_ARGS) . docs/_build/html
	@echo "docs/_build/html/index.html"

docs-links: $(DOCS)/.docs-ready
	$(SPHINX) -b linkcheck $(DOCS_ARGS) . docs/_build/links

# The environments. A Python without ensurepip (Debian without python3-venv) leaves half an environment behind.
$(VENV)/bin/pip $(DOCS)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "The tested set (constraints.txt) needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "This Python cannot make environments with pip: install its venv package (Debian and Ubuntu: sudo apt install python3-venv), then run make again." >&2; exit 1; }
	$(PYTHON) -m venv $(@:/bin/pip=)

# Debian's pip is too old to settle the pins, so the pinned pip comes first.
$(VENV)/.pip-ready $(DOCS)/.pip-ready: %/.pip-ready: constraints.txt | %/bin/pip
	$(PIP) install -c constraints.txt --upgrade pip
	@touch $@

# PyPI's torch for Linux brings gigabytes of CUDA. Without an NVIDIA driver take the CPU build of the same release:
# from the places pip already knows, else from PyTorch's own index.
$(VENV)/.torch-ready $(DOCS)/.torch-ready: %/.torch-ready: constraints.txt %/.pip-ready
	@if [ "$$(uname -s)" = Linux ] && [ ! -e /proc/driver/nvidia/version ]; then \
	  echo "Installing torch $(TORCH), CPU build"; \
	  $(PIP) install -c constraints.txt "torch==$(TORCH)+cpu" 2>/dev/null || \
	  $(PIP) install -c constraints.txt "torch==$(TORCH)+cpu" --extra-index-url $(CPU_INDEX); \
	else \
	  echo "Installing torch $(TORCH)"; \
	  $(PIP) install -c constraints.txt torch; \
	fi
	@touch $@

$(DOCS)/.docs-ready: pyproject.toml constraints.txt $(DOCS)/.torch-ready
	$(PIP) install -c constraints.txt -e '.[docs]'
	@touch $@

$(VENV)/.lab-ready: pyproject.toml constraints.txt $(VENV)/.torch-ready
	$(PIP) install -c constraints.txt -e '.[lab]'
	@touch $@

# fastai without what it asks for: PyPI's torchvision is built for CUDA's torch, fails with the CPU build, and then so
# does whatever imports it. Its Learner needs none; what it does need is in the extra.
# TensorBoard's writers without its server, which is three times as large.
$(VENV)/.dev-ready: pyproject.toml constraints.txt $(VENV)/.torch-ready
	@echo "Installing gpu_doctor and the packages of its tests into $(VENV)"
	$(PIP) install -c constraints.txt -e '.[dev]'
	$(PIP) install -c constraints.txt --no-deps fastai
	$(PIP) install -c constraints.txt --no-deps tensorboard tensorboardX absl-py
	@touch $@ $(VENV)/.lab-ready

# What builds and checks the panel's script: Node is a wheel, so nothing but .venv is needed.
$(NODE_READY): $(FRONTEND)/package-lock.json $(VENV)/.dev-ready
	@echo "Installing esbuild and TypeScript into $(FRONTEND)/node_modules"
	$(PY) -m tools.frontend install
	@touch $@

# The browser of the tests: the machine's Chromium, else Debian's, else playwright's own.
browser: $(VENV)/.dev-ready
	@if [ -n "$${CHROMIUM:-}" ] || command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null; then \
	  :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; then \
	  :; \
	else \
	  $(PY) -m playwright install $(if $(filter 0,$(shell id -u)),--with-deps) chromium || { \
	    echo "test-browser needs Chromium: install it (Debian and Ubuntu: sudo apt install chromium), or set CHROMIUM=/path." >&2; \
	    exit 1; \
	  }; \
	fi

clean:
	rm -rf $(VENV) .venv-* $(FRONTEND)/node_modules .hypothesis .mypy_cache .ruff_cache tests/artifacts build dist
	rm -rf docs/_build docs/reference/rules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
