# make lab | test | train-demo | bench — each sets up .venv first, which is quick when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: help lab test test-browser check notebooks assignments grade-demo train-demo trained bench mutation docs lock clean
help:
	@echo "make lab           open the chapters in JupyterLab"
	@echo "make test          lint, types, tests and notebooks"
	@echo "make test-browser  every chapter in a real JupyterLab and Chromium, without a network"
	@echo "make train-demo    train a Transformer and an RNN on the bundled text and compare them"
	@echo "make trained       train the two models that come with the course anew (about an hour)"
	@echo "make notebooks     run the chapters anew from chapters/text and store their outputs"
	@echo "make assignments   make the assignments anew from assignments/text"
	@echo "make grade-demo    grade a class of 40 made-up submissions, some of them hostile"
	@echo "make mutation      how many wrong answers the checks catch, into docs/mutation.md"
	@echo "make docs          the table of known mistakes anew, into docs/misconceptions.md"
	@echo "make bench         speed against peers, into benchmarks/results.json"

# Torch goes first: other packages then accept the pinned build instead of bringing their own.
$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "Python 3.11, 3.12 or 3.13 is needed, $(PYTHON) is another; try make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "could not make a virtual environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' requirements.lock | cut -d' ' -f1)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev]'
	@touch $@

lab: $(READY)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/lab.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	# Two processes with one thread each: two times two threads on two cores wait for each other.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --nbval -n 2 --dist loadscope

# Takes the system's Chromium (Debian: apt install chromium), or that of `playwright install chromium`.
test-browser: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[browser]'
	$(BIN)/python -m pytest browser_tests

assignments: $(READY)
	$(BIN)/python scripts/assignments.py

grade-demo: $(READY)
	$(BIN)/python scripts/grade_demo.py

notebooks: $(READY)
	$(BIN)/python scripts/notebooks.py

train-demo: $(READY)
	$(BIN)/python scripts/train_demo.py

trained: $(READY)
	$(BIN)/python scripts/trained.py

mutation: $(READY)
	$(BIN)/python -m transformer_lib.course.checks.mutation docs/mutation.md

docs: mutation
	$(BIN)/transformer-lib misconceptions --markdown > docs/misconceptions.md

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[bench]'
	$(BIN)/python benchmarks/bench.py

lock: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	echo "torch==2.13.0" | $(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
		--no-annotate --no-header --quiet -c - -o requirements.tmp
	{ echo "# Exact versions for every system and Python 3.11–3.13, used as pip constraints. Made by \`make lock\`."; \
		cat requirements.tmp; } > requirements.lock && rm requirements.tmp

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
