# One word each; CI calls the same ones.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo web pictures references test check format bench campaign docs clean

$(VENV)/.demo: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/python examples/mnist/demo.py

# The page is built with the package; this builds it again after a change in web/.
web: $(VENV)/.dev
	$(BIN)/python hatch_build.py

pictures: $(VENV)/.dev
	WEB_PICTURES=1 $(BIN)/python -m pytest tests/e2e/test_web.py -k axe

# The parts of docs/*.md that are generated from the code; a test fails while they are out of date.
references: $(VENV)/.dev
	$(BIN)/python docs/generate/references.py

# Two processes: most tests use one core, or wait. ARGS="-n 0 …" runs them in one.
# Compiled first: under PYTHONDONTWRITEBYTECODE each of a thousand processes would compile Trek for itself.
test: $(VENV)/.dev
	$(BIN)/python -m compileall -q src
	$(BIN)/python hatch_build.py test || test ! -d web/node_modules
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not campaign" $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python hatch_build.py check || test ! -d web/node_modules

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Benchmarks print ratios and want a quiet machine. Peers come with the extra `bench`.
bench: $(VENV)/.dev
	$(BIN)/pip install --quiet -c constraints.txt -e '.[bench]'
	for script in $$(ls benchmarks/*/*.py | grep -v /gpu.py); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Thousands of kills, requests and configs; the longest takes a quarter of an hour.
campaign: $(VENV)/.dev
	$(BIN)/python -m pytest -m campaign --timeout 3600 $(ARGS)

docs: $(VENV)/.dev
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict --site-dir site

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
