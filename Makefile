# make lab | test | train-demo | bench: each sets up .venv first, which is quick when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
LAB_READY := $(VENV)/lab-ready

.PHONY: help lab test test-all test-long test-browser check notebooks assignments grade-demo train-demo trained results variants bench mutation docs lock clean
help:
	@echo "make lab           open a work copy of the chapters and assignments in JupyterLab"
	@echo "make test          lint, types, tests and notebooks"
	@echo "make test-all      the same, and the tests that take long"
	@echo "make test-browser  every chapter in a real JupyterLab and Chromium, without a network"
	@echo "make train-demo    train a Transformer and an RNN on the bundled text and compare them"
	@echo "make trained       train the three models that come with the course anew (about an hour)"
	@echo "make notebooks     run the chapters anew from chapters/text and store their outputs"
	@echo "make results       the same, with the trainings over seeds measured anew (half an hour)"
	@echo "make variants      train forms of the course's Transformer, three seeds each (two hours)"
	@echo "make assignments   make the assignments anew from assignments/text"
	@echo "make grade-demo    grade a class of made-up submissions, some of them hostile"
	@echo "make mutation      how many wrong answers the checks catch, into docs/mutation.md"
	@echo "make docs          the pages on known mistakes, checks and settings anew, into docs/"
	@echo "make bench         speed against peers, into benchmarks/results.json"

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
TORCH = $$(grep -o '^torch==[^ ]*' requirements.lock)
# Torch goes first: other packages then accept the pinned build instead of bringing their own.
$(VENV)/torch: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || \
		{ echo "Python 3.11 to 3.14 is needed, $(PYTHON) is another one; try make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "could not make a virtual environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@if uname -s | grep -q Linux && ! command -v nvidia-smi > /dev/null && ! $(BIN)/python -c 'import torch' 2> /dev/null; then \
		echo "Without an NVIDIA GPU the CPU build of PyTorch will do, and is about 2 GB smaller. To have it, stop here,"; \
		echo "call the following, and then make again:"; \
		echo "$(BIN)/pip install $(TORCH) --index-url https://download.pytorch.org/whl/cpu"; fi
	$(PIP) "$(TORCH)"
	@touch $@

$(READY): pyproject.toml requirements.lock $(VENV)/torch
	$(PIP) -c requirements.lock -e '.[dev]'
	@touch $@ $(LAB_READY)

# What students need, without the tools of those who develop the course or grade.
$(LAB_READY): pyproject.toml requirements.lock $(VENV)/torch
	$(PIP) -c requirements.lock -e '.[notebooks]'
	@touch $@

lab: $(LAB_READY)
	@$(BIN)/python scripts/lab.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell *.md docs leaderboard/*.md leaderboard/*/*/*.py LICENSE chapters/text assignments/text transformer_lib scripts tests benchmarks browser_tests
	$(BIN)/python scripts/style.py

test: check
	# With one thread each, for two times two threads on two cores wait for each other. Three processes,
	# for tests of grading wait much. Bytecode is written, or each of the many processes compiles the library.
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --nbval -n 3 --dist loadscope --no-loadscope-reorder

# What `make test` leaves out.
test-long: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --nbval tests assignments/source -n 3 --dist loadscope --no-loadscope-reorder --all -m long

test-all: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --nbval -n 3 --dist loadscope --no-loadscope-reorder --all

# Takes the system's Chromium (Debian: apt install chromium), or that of `playwright install chromium`.
test-browser: $(READY)
	$(PIP) -c requirements.lock -e '.[browser]'
	@command -v npm > /dev/null && npm install --silent --prefix $(VENV)/hub configurable-http-proxy@5 || \
		echo "Without npm (Debian: apt install npm) the test with a JupyterHub is left out."
	$(BIN)/python -m pytest browser_tests

assignments: $(READY)
	$(BIN)/python scripts/assignments.py

grade-demo: $(READY)
	$(BIN)/python scripts/grade_demo.py

notebooks: $(READY)
	$(BIN)/python scripts/notebooks.py

results: $(READY)
	TRANSFORMER_LIB_MEASURE=1 $(BIN)/python scripts/notebooks.py

variants: $(READY)
	$(BIN)/python scripts/variants.py

train-demo: $(READY)
	$(BIN)/python scripts/train_demo.py

trained: $(READY)
	$(BIN)/python scripts/trained.py
	$(BIN)/python scripts/language_model.py

mutation: $(READY)
	$(BIN)/python -m transformer_lib.course.checks.mutation docs/mutation.md

docs: mutation
	$(BIN)/transformer-lib misconceptions --markdown > docs/misconceptions.md
	$(BIN)/python scripts/configuration.py
	$(BIN)/python scripts/answers.py
	$(BIN)/python scripts/exercises.py
	$(BIN)/python scripts/likeness.py

bench: $(READY)
	$(PIP) -c requirements.lock -e '.[bench]'
	$(BIN)/python benchmarks/bench.py

# From 4.25 on, jsonschema builds grammars for 1.3 seconds whenever a notebook's program is started.
lock: $(READY)
	$(PIP) uv
	printf 'torch==2.13.0\njsonschema<4.25\n' | $(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
		--no-annotate --no-header --quiet -c - -o requirements.tmp
	{ echo "# Exact versions for every system and Python 3.11 to 3.14, used as pip constraints. Made by \`make lock\`."; \
		cat requirements.tmp; } > requirements.lock && rm requirements.tmp

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
