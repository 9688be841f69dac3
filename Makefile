# The targets do all their own set-up; they need Python 3.11 or later and nothing else.
PYTHON ?= python3
VENV ?= .venv
MINUTES ?= 30
JOBS ?= 2
BIN := $(VENV)/bin
# Tests start many processes that import the same files: one compiles them, whatever is set here.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test mutants schedules long house fuzz lint clean

$(VENV)/run: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

# All at once, for a second call of pip builds the package again. Without --no-compile it compiles
# all of torch, SymPy and SciPy, of which the tests import a third.
$(VENV)/test: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -e '.[test]' -c constraints.txt
	touch $(VENV)/run $@

demo: $(VENV)/run
	$(BIN)/tawa demo

# Pyright takes one processor for minutes: it works beside the tests and is heard after them.
test: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/pyright --pythonpath $(BIN)/python > $(VENV)/types 2>&1 & types=$$!; \
	trap 'kill $$types' INT TERM; \
	$(BIN)/python -m pytest -n 2 --dist worksteal; tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types; \
	exit $$((tests | types))

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
