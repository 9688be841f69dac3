# The targets do all their own set-up; they need Python 3.11 or later and nothing else.
PYTHON ?= python3
VENV ?= .venv
MINUTES ?= 30
JOBS ?= 2
BIN := $(VENV)/bin

.PHONY: demo test mutants schedules long house fuzz lint clean

$(VENV)/run: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/test: $(VENV)/run
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]' -c constraints.txt
	touch $@

demo: $(VENV)/run
	$(BIN)/tawa demo

test: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -n 2 --dist worksteal

mutants: $(VENV)/test
	PYTHONPATH=tests $(BIN)/python tests/mutation.py --jobs $(JOBS)
	$(BIN)/python docs/generate.py

schedules: $(VENV)/test
	PYTHONPATH=tests $(BIN)/python tests/schedule_runs.py --jobs $(JOBS)
	$(BIN)/python docs/generate.py

long: $(VENV)/test
	$(BIN)/python -m pytest -n 2 -m ""

house: $(VENV)/test
	TAWA_CACHE_DIR=$$(mktemp -d) PYTHONPATH=tests $(BIN)/python tests/house.py --write benchmarks/results

fuzz: $(VENV)/test
	PYTHONPATH=tests $(BIN)/python tests/fuzz_long.py --minutes $(MINUTES) --jobs $(JOBS) --write benchmarks/results
	$(BIN)/python docs/generate.py

lint: $(VENV)/test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright --pythonpath $(BIN)/python

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache
