# Two commands for a fresh machine: `make lab` opens the quickstart in JupyterLab, `make test` judges the checkout.
# Everything is installed into .venv (and .venv-* for the tests of other versions); nothing outside is changed, except
# that the tests may install Debian's chromium and g++, and making .venv its python3-venv, when run as root.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help lab quick test test-all gpu gpu-wheels shots clinic mutants lint frontend links course docs docs-links release-check browser compiler clean
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
PYTEST_ARGS ?=
PART ?= all
CLINIC_ARGS ?=
MUTANTS_ARGS ?=
DOCS_ARGS ?=
NOTEBOOKS ?=

# What belongs to another Python or another Jupyter stays out.
unexport PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX JUPYTER_PATH
export PYTHONNOUSERSITE := 1
export JUPYTER_PREFER_ENV_PATH := 1

help:
	@echo "make lab       install, then open notebooks/01_quickstart.ipynb in JupyterLab (LAB_ARGS=... is passed on)"
	@echo "make quick     lint, types and the unit tests: at most 3 minutes; PYTEST_ARGS=... is passed on"
	@echo "make test      quick, and the core of everything else, a real browser too: at most 12 minutes"
	@echo "make test-all  everything, in parts; goes on where it was cut off. PART='browser kernel' for some of them"
	@echo "make gpu       on a machine with an NVIDIA GPU: proves what is only simulated elsewhere, in parts, 25 minutes at"
	@echo "               most; goes on where it ended. MINUTES=9 for one call, OUT=dir, PARTS='nvml kineto' for some,"
	@echo "               PYTHON=python3 for one that has torch (nothing is installed), REHEARSE=1 without a GPU"
	@echo "make gpu-wheels  for a GPU machine without a registry: what make gpu may lack, into benchmarks/gpu/wheels/"
	@echo "make shots     only the browser tests; their screenshots lie in tests/artifacts/"
	@echo "make clinic    how right the diagnosis is on more than a hundred sick and healthy loops (CLINIC_ARGS=...)"
	@echo "make mutants   what the unit tests would catch: 300 mutants drawn by seed (MUTANTS_ARGS='--seed 7 --number 60')"
	@echo "make frontend  builds the panel's script out of gpu_doctor/notebook/frontend into gpu_doctor/notebook/static"
	@echo "make links     writes badges, install cells and links to the documentation, from [project.urls] of pyproject.toml"
	@echo "make course    runs the notebooks and keeps their results in them, on a machine that does nothing else"
	@echo "               (NOTEBOOKS='02 05' for some)"
	@echo "make docs      builds the documentation into docs/_build/html (DOCS_ARGS=...); make docs-links asks the network"
	@echo "               whether its links to other sites still lead somewhere"
	@echo "make release-check  build the package, install it elsewhere and run the quickstart with it"
	@echo "make clean     remove the environments and all caches"

lab: $(VENV)/.lab-ready
	$(PY) -m jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) --ServerApp.root_dir=. notebooks/01_quickstart.ipynb $(LAB_ARGS)

quick: $(NODE_READY)
	$(PY) -m tests.run quick $(PYTEST_ARGS)

test: $(NODE_READY) browser compiler
	$(PY) -m tests.run test $(PYTEST_ARGS)

test-all: $(NODE_READY) browser compiler
	$(PY) -m tests.run $(PART) $(PYTEST_ARGS)

# The Python that is named, else .venv's, else python3. Nothing is installed: torch and the driver are the machine's own,
# wherever that Python finds them.
GPU_PYTHON := $(if $(filter file,$(origin PYTHON)),$(if $(wildcard $(PY)),$(PY),$(PYTHON)),$(PYTHON))
GPU_ARGS = $(PARTS) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(findstring command,$(origin OUT)),--out "$(OUT)") \
  $(if $(filter-out 0,$(REHEARSE)),--rehearse $(if $(MINUTES),,--anew))

gpu:
	env -u PYTHONNOUSERSITE PYTHONPATH="$(PYTHONPATH)" $(GPU_PYTHON) -m benchmarks.gpu $(GPU_ARGS)

gpu-wheels:
	$(GPU_PYTHON) -m benchmarks.gpu.wheels

shots: $(VENV)/.dev-ready browser
	$(PY) -m tests.run pages browser $(PYTEST_ARGS)
	@ls -1 tests/artifacts/*.png

clinic: $(VENV)/.dev-ready
	$(PY) -m tests.support.clinic $(CLINIC_ARGS)

mutants: $(VENV)/.mutants-ready
	$(PY) -m tests.support.mutants $(MUTANTS_ARGS)

lint: $(NODE_READY)
	$(PY) -m tests.run lint types frontend

frontend: $(NODE_READY)
	$(PY) -m tests.support.frontend build

links: $(VENV)/.dev-ready
	$(PY) -m tests.support.links

course: $(VENV)/.dev-ready
	$(PY) -m tests.support.course $(NOTEBOOKS)

# A warning fails it: a link to nowhere inside of the site, and a name of ours that no page documents.
SPHINX = $(DOCS)/bin/python -m sphinx -c docs -W --keep-going -n -E -q

docs: $(DOCS)/.docs-ready
	$(SPHINX) -b html $(DOCS_ARGS) . docs/_build/html
	@echo "docs/_build/html/index.html"

docs-links: $(DOCS)/.docs-ready
	$(SPHINX) -b linkcheck $(DOCS_ARGS) . docs/_build/links

release-check:
	PYTHON="$(PYTHON)" .ci/release-check

# The environments. A Python without ensurepip (Debian without python3-venv) leaves half an environment behind.
$(VENV)/bin/pip $(DOCS)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "The tested set (constraints.txt) needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null; \
	  else \
	    echo "This Python cannot make environments with pip: install its venv package (Debian and Ubuntu: sudo apt install python3-venv), then run make again." >&2; \
	    exit 1; \
	  fi; \
	fi
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
	$(PIP) install -c constraints.txt -e '.[dev]'
	$(PIP) install -c constraints.txt --no-deps fastai
	$(PIP) install -c constraints.txt --no-deps tensorboard tensorboardX absl-py
	@touch $@ $(VENV)/.lab-ready

$(VENV)/.mutants-ready: $(VENV)/.dev-ready
	$(PIP) install -c constraints.txt -e '.[mutants]'
	@touch $@

# What builds and checks the panel's script: Node is a wheel, so nothing but .venv is needed.
$(NODE_READY): $(FRONTEND)/package-lock.json $(VENV)/.dev-ready
	$(PY) -m tests.support.frontend install
	@touch $@

# The browser of the tests: the machine's Chromium, else Debian's, else playwright's own.
browser: $(VENV)/.dev-ready
	@if [ -n "$${CHROMIUM:-}" ] || command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null; then \
	  :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; then \
	  :; \
	else \
	  $(PY) -m playwright install $(if $(filter 0,$(shell id -u)),--with-deps) chromium; \
	fi

# torch.compile writes C++ on a CPU, and the stand-in GPU of the tests is some.
compiler:
	@if ! command -v g++ >/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++ >/dev/null; \
	  else \
	    echo "The tests need a C++ compiler: install g++, then run make again." >&2; exit 1; \
	  fi; \
	fi

clean:
	rm -rf $(VENV) .venv-* $(FRONTEND)/node_modules .hypothesis .mypy_cache .ruff_cache tests/artifacts build dist
	rm -rf docs/_build docs/reference/rules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
