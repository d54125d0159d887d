# `make` alone lists the targets. On a fresh machine each of them first makes the environment it needs.

PYTHON ?= python3# any Python >= 3.11; used once, to make .venv
# Tests of one file stay together, so that what they share is fitted once; who is done takes of the other's.
PYTEST_ARGS ?= -n 2 --dist worksteal
VENV := .venv
BIN := $(VENV)/bin
# Installed together with the constraints, so that torch is the build we test, never merely the newest.
# What is imported is compiled then; to compile all of it takes as long as to install it.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c requirements/constraints.txt
# Versions the environment was made from; when one of these changes, it is brought up to date.
PINS := pyproject.toml requirements/constraints.txt
BASE := $(VENV)/.installed-base
ENVIRONMENT := $(VENV)/.installed
DOCS := $(VENV)/.installed-docs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-gpu test-fast lint format measured judge judge-fast doc clean fuzz kill-test browser

help:  ## list the targets
	@sed -n 's/^\([-a-z.]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

.venv: $(ENVIRONMENT)  ## make the environment, or bring it up to date (PYTHON=python3.12 chooses the Python)

# What the demo needs, a third of what the tests do.
$(BASE): $(PINS)
	@"$(PYTHON)" -c 'import sys; sys.version_info >= (3, 11) or sys.exit("skdistill needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	"$(PYTHON)" -m venv $(VENV)
	$(INSTALL) -e ".[plot]" pandas
	@touch $@

$(ENVIRONMENT): $(BASE)
	$(INSTALL) -e ".[all,test,lint]"
	@touch $@

$(DOCS): $(ENVIRONMENT)
	$(INSTALL) -e ".[docs]"
	@touch $@

demo: $(BASE)  ## distil an ensemble into one network on real data, print a table, draw a picture
	MPLBACKEND=Agg $(BIN)/python -c "import runpy, matplotlib.pyplot as plt; runpy.run_path('examples/plot_distil_regression.py'); plt.savefig('distil_regression.png', dpi=120)"
	@echo "Picture: distil_regression.png"

# Tests that pytest has compiled are kept from run to run, whatever the shell says of bytecode.
ON_ANY := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 SCIPY_ARRAY_API=1
# Where there is a GPU, by default fits are on it; most tests hold what they do on the processor.
TEST := CUDA_VISIBLE_DEVICES= $(ON_ANY)

test: $(ENVIRONMENT)  ## run the tests but the slow ones (PYTEST_ARGS="-k engine" chooses which)
	$(TEST) $(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-all: $(ENVIRONMENT)  ## run the whole test suite, as CI does: pages, benchmarks, graphs, long chains too
	$(TEST) $(BIN)/python -m pytest $(PYTEST_ARGS)

test-gpu: $(ENVIRONMENT)  ## run the tests that need a GPU, which the others leave alone
	$(ON_ANY) $(BIN)/python -m pytest -m gpu $(PYTEST_ARGS)

test-fast: $(ENVIRONMENT)  ## one case of each test that is not slow: what one runs after an edit
	$(TEST) $(BIN)/python -m pytest --fast $(PYTEST_ARGS)

# Thirteen times the cases of `make test`, and other ones each time.
fuzz: $(ENVIRONMENT)  ## try thousands of calls with anything
	HYPOTHESIS_PROFILE=fuzz OMP_NUM_THREADS=1 SCIPY_ARRAY_API=1 $(BIN)/python -m pytest $(PYTEST_ARGS) tests/fuzz

kill-test: $(ENVIRONMENT)  ## kill 60 fits at moments of chance, and resume them bit for bit
	SKDISTILL_KILLS=20 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/_training/test_resume.py -k killed

# One that npm has, with the libraries it needs; it is unpacked, not installed, hence without root.
BROWSER := $(VENV)/browser
UNBROTLI := node -e 'const fs = require("fs"), [from, to] = process.argv.slice(1); fs.writeFileSync(to, require("zlib").brotliDecompressSync(fs.readFileSync(from)), {mode: 0o755})'
browser: $(BROWSER)/chromium  ## get a browser for the tests of pages (70 MB; needs npm and node)

$(BROWSER)/chromium: | $(ENVIRONMENT)
	mkdir -p $(BROWSER)
	cd $(BROWSER) && npm pack --silent @sparticuz/chromium@147.0.0 && tar xzf sparticuz-chromium-*.tgz
	cd $(BROWSER) && $(UNBROTLI) package/bin/al2023.tar.br lib.tar
	cd $(BROWSER) && $(UNBROTLI) package/bin/chromium.br chromium.part
	cd $(BROWSER) && tar xf lib.tar && rm -r package lib.tar sparticuz-chromium-*.tgz
	mv $(BROWSER)/chromium.part $@

lint: $(ENVIRONMENT)  ## check style, formatting and types; changes nothing
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

format: $(ENVIRONMENT)  ## mend what ruff can mend
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

measured: $(ENVIRONMENT)  ## write the tables of README and doc/measured from benchmarks/results
	$(BIN)/python benchmarks/report.py

# JUDGE=--resume goes on with one that was stopped; JUDGE="--models teacher --set max_epochs=80" tries a default.
judge: $(ENVIRONMENT)  ## compare all defaults with the stored ones on 52 tables: 25 min of two idle cores
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/suite.py --output build/judge.json $(JUDGE)

judge-fast: $(ENVIRONMENT)  ## the same on a few tables: 5 min
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/suite.py --fast --output build/judge-fast.json $(JUDGE)

# On a busy machine small networks lose most of their time to threads that wait for each other.
doc: $(DOCS)  ## build the documentation into doc/_build/html
	MPLBACKEND=Agg OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html doc doc/_build/html
	@echo "Open doc/_build/html/index.html"

clean:  ## remove what was built, the environment included
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage* htmlcov
	rm -rf doc/_build doc/auto_examples doc/generated
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
