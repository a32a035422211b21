# Everything a developer types. The environment lives in .venv; it is set up on first use and again when a lock changes.
#
#   .venv/bin/python   the bare environment
#   .venv/.run         requirements/run.txt and the package itself are installed: enough for `make run`
#   .venv/.spark       requirements/spark.txt too: the data pipeline
#   .venv/.dev         requirements/dev.txt too: tests, linters, benchmarks
#   .venv/.node        what examples/etzel_worker needs: node, and its lock's packages in node_modules
#   .venv/.browser     Debian's chromium, for the tests in a browser
#   .venv/.java        a Java that runs Spark

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run spark-ready test lint format bench fuzz soak lock clean

# One make starts another; where each of them works need not be told.
MAKEFLAGS += --no-print-directory

# Passed on to the program that a target starts: make test ARGS="-k settings -x"
ARGS ?=
# The interpreter that .venv is made from. Empty: the first of these that is new enough.
PYTHON ?=
PYTHON_CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11

PIP := .venv/bin/python -m pip --disable-pip-version-check
COMPILE := .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-config --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  Arguments go in ARGS: make run ARGS="--data-dir /var/lib/penstock"'

# The node takes the shell's place, so that a signal for make reaches it.
run: .venv/.run ## start a node on this machine and, beside it, the data pipeline (penstock up)
	@exec .venv/bin/penstock up --prepare "make spark-ready" $(ARGS)

# What `penstock up` runs once its doors are open. It says itself what to do where Java cannot be had.
spark-ready: .venv/.spark
	@$(MAKE) --silent .venv/.java 2>/dev/null

test: .venv/.dev .venv/.node .venv/.browser .venv/.java ## run all tests
	.venv/bin/python -m pytest $(ARGS)

lint: .venv/.dev ## check style, formatting and types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

format: .venv/.dev ## rewrite the source in the house's format
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

bench: .venv/.dev ## measure throughput and latency
	@.venv/bin/python -m bench $(ARGS)

fuzz: .venv/.dev ## feed the parsers with damaged input
	@.venv/bin/python -m fuzz $(ARGS)

soak: .venv/.dev ## load a node and kill it again and again
	@.venv/bin/python -m soak $(ARGS)

lock: .venv/.dev ## choose the newest allowed dependencies and write requirements/*.txt
	$(COMPILE) --upgrade --group build --extra monique pyproject.toml --output-file requirements/run.txt
	$(COMPILE) --upgrade --group build --extra monique --extra spark --extra delta \
		--constraint requirements/run.txt pyproject.toml --output-file requirements/spark.txt
	$(COMPILE) --upgrade --group build --extra monique --extra spark --extra delta --extra dev \
		--constraint requirements/spark.txt pyproject.toml --output-file requirements/dev.txt

clean: ## remove .venv, caches and build output; data directories stay
	rm -rf .venv .bench .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist examples/etzel_worker/node_modules
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

.venv/.dev: requirements/dev.txt .venv/.spark
	@echo "Installing the development tools into .venv ..."
	@$(PIP) install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

# pyspark comes as source and is built by the locked setuptools; its size is what takes the time, so pip shows its progress.
.venv/.spark: requirements/spark.txt .venv/.run
	@echo "Installing Spark into .venv (450 MB; this takes a minute or two) ..."
	@[ -t 1 ] || quiet=--quiet; \
	$(PIP) install $$quiet --no-build-isolation --require-hashes -r requirements/spark.txt || { \
		echo "pip could not install all that Spark needs: is there a network, and room on the disk?" >&2; \
		exit 1; \
	}
	@touch $@

# The package is built by the locked hatchling, so nothing outside the lock is ever fetched.
.venv/.run: requirements/run.txt pyproject.toml | .venv/bin/python
	@echo "Installing Penstock into .venv ..."
	@$(PIP) install --quiet --require-hashes -r requirements/run.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Some tests need programs that pip cannot bring. Root gets those that are missing from Debian, everybody else is told
# how; without them all other tests run, and these are skipped with the same advice. A stamp is made when all is there.
#
# $(call from_debian,packages that are missing,what for)
define from_debian
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing Debian's $(strip $(1)) for $(2); this takes a minute ..."; \
		install="apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 $(1)"; \
		export DEBIAN_FRONTEND=noninteractive; \
		{ $$install || { apt-get update -qq && $$install; }; } >.venv/apt.log 2>&1 || tail -n 3 .venv/apt.log >&2; \
	fi
endef

.venv/.node: examples/etzel_worker/package-lock.json | .venv/bin/python
	@missing="$$(command -v node >/dev/null || echo nodejs) $$(command -v npm >/dev/null || echo npm)"; \
	[ "$$missing" = " " ] || { $(call from_debian,$$missing,the workers in JavaScript); }; \
	if ! node --eval 'require("node:util").parseArgs || process.exit(1)' 2>/dev/null || ! command -v npm >/dev/null; then \
		echo "Tests with JavaScript are skipped: they need node 18.3 or newer and npm." >&2; \
		echo "On Debian or Ubuntu: sudo apt-get install nodejs npm" >&2; \
	elif ! npm ci --prefix examples/etzel_worker --no-audit --no-fund --loglevel=error >.venv/npm.log 2>&1; then \
		tail -n 5 .venv/npm.log >&2; \
		echo "Tests with JavaScript are skipped. Once the reason is mended: make test" >&2; \
	else \
		touch $@; \
	fi

.venv/.browser: | .venv/bin/python
	@command -v chromium >/dev/null || { $(call from_debian,chromium,the tests in a browser); }; \
	if command -v chromium >/dev/null; then \
		touch $@; \
	else \
		echo "Tests in a browser are skipped: they need chromium." >&2; \
		echo "On Debian: sudo apt-get install chromium" >&2; \
	fi

.venv/.java: | .venv/.run
	@good() { .venv/bin/python -c 'from penstock.spark.session import check_java; check_java()' 2>/dev/null; }; \
	good || { $(call from_debian,default-jre-headless,Spark); }; \
	if good; then \
		touch $@; \
	else \
		echo "Tests with Spark are skipped: it needs Java 17 or newer." >&2; \
		echo "On Debian or Ubuntu: sudo apt-get install default-jre-headless" >&2; \
	fi

# Debian ships python3 without venv; root gets it installed, everybody else is told how.
.venv/bin/python:
	@set -eu; \
	new_enough() { "$$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }; \
	python=; \
	for candidate in $(or $(PYTHON),$(PYTHON_CANDIDATES)); do \
		if new_enough "$$candidate"; then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "Penstock needs Python 3.11 or newer; none of these is: $(or $(PYTHON),$(PYTHON_CANDIDATES))." >&2; \
		echo "On Debian or Ubuntu: sudo apt-get install python3 python3-venv" >&2; \
		echo "Elsewhere: install Python, then name it: make PYTHON=/path/to/python3 ..." >&2; \
		exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
		package="$$("$$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"; \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing $$package, which this Python lacks ..."; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$$package" >/dev/null; \
		else \
			echo "This Python ($$python) cannot make virtual environments." >&2; \
			echo "On Debian or Ubuntu: sudo apt-get install $$package" >&2; \
			exit 1; \
		fi; \
	fi; \
	echo "Making .venv with $$("$$python" --version) ..."; \
	made=; [ -e .venv ] || made=.venv; \
	"$$python" -m venv .venv || { rm -rf $$made; exit 1; }
