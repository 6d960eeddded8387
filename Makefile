# Everything that is done to mainstem is done through here. `make` alone prints the list.
#
#   PYTHON=python3.12 make setup     another interpreter for the virtual environment
#   WORKERS=8 make test              more test processes
#   WAREHOUSE=s3://lake/demo make demo  a warehouse elsewhere; S3_PORT=7071 make s3, another port
#   ARGS='-k wheel' make test-quick   more arguments for pytest, the demo or the benchmark

PYTHON ?= python3
# One more than there are cores, since tests also wait; two where there are less than 8 GiB of memory.
WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1); \
  pages=$$(getconf _PHYS_PAGES 2>/dev/null || echo 0); size=$$(getconf PAGE_SIZE 2>/dev/null || echo 0); \
  if [ $$((pages * size / 1048576)) -ge 8000 ]; then echo $$((cores + 1)); else echo 2; fi)
WAREHOUSE ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ROOTS := platform ingest_gateway delta_log consumers jobs
SOURCES := $(ROOTS) tests $(wildcard benchmarks deploy examples)
PYTEST := $(BIN)/pytest
# Compiled when the package is installed.
COMPILED := platform/mainstem/client/per_record/_compiled.pyx
# As in tests/versitygw.py.
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
GO_BIN := $(or $(GOBIN),$(or $(GOPATH),$(HOME)/go)/bin)
# Old on purpose: newer runtimes of protobuf and gRPC take older code, and none takes newer.
GENERATOR := grpcio-tools==1.71.2
# Spark's tests share two sessions: loadgroup keeps each in one process while the others run beside them.
PARALLEL := -n $(WORKERS) --dist loadgroup
# The tests' files are in memory where there is room for them: much of their time was waiting for the
# disk. `make test-fault` waits for it.
in_memory = free_kb=$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 {print $$4}'); \
	if [ "$${free_kb:-0}" -gt 6000000 ]; then \
	  TMPDIR=$$(mktemp -d /dev/shm/mainstem-test.XXXXXX) && export TMPDIR && trap 'rm -rf "$$TMPDIR"' EXIT INT TERM; \
	fi;

JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
java_major = $(shell "$(JAVA)" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1)
python_ok = $(shell "$(PYTHON)" -c 'import sys, venv, ensurepip; print(sys.version_info >= (3, 11))' 2>/dev/null)

need_java = $(if $(filter-out 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16,$(java_major)),,$(error \
  Spark needs Java 17 or newer$(if $(java_major),$(comma) and $(JAVA) is Java $(java_major)): \
  install it (Debian and Ubuntu: apt-get install openjdk-17-jre-headless, macOS: brew install openjdk@17) \
  and put it in PATH or JAVA_HOME))
need_python = $(if $(filter True,$(python_ok)),,$(error \
  mainstem needs Python 3.11 or newer with its venv module: \
  install it (Debian and Ubuntu: apt-get install python3 python3-venv, macOS: brew install python@3.12) \
  or name one with PYTHON=/path/to/python3))
comma := ,

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo s3 setup test test-quick test-fault lint format proto bench profile bench-compare lock clean java

##@ Start
help: ## print this list
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: java $(STAMP) ## run the demo: 336,776 flights through a gateway, Delta and Spark
	@$(BIN)/mainstem demo $(if $(WAREHOUSE),--warehouse '$(WAREHOUSE)') $(if $(SECURE),--secure) $(ARGS)

s3: $(STAMP) ## start an S3 server on this machine, with a bucket, and print how to reach it
	@command -v versitygw "$(GO_BIN)/versitygw" >/dev/null || { \
	  command -v go >/dev/null || { echo "versitygw, the S3 server, is built with Go: install Go (Debian and Ubuntu:" \
	    "apt-get install golang, macOS: brew install go), then run make s3 again" >&2; exit 1; }; \
	  echo "building the S3 server $(VERSITYGW) (a minute or two, once)" >&2; go install $(VERSITYGW); }
	@$(BIN)/python -m tests.versitygw

setup: $(STAMP) ## create .venv with everything in it

##@ Check
test: java $(STAMP) ## run all tests
	@$(in_memory) $(PYTEST) $(PARALLEL) $(ARGS)

test-quick: $(STAMP) ## run the fast tests that need no Java: a minute or two, for daily work
	@$(in_memory) $(PYTEST) $(PARALLEL) -m "not spark and not slow and not fault and not end_to_end" $(ARGS)

test-fault: $(STAMP) ## run the tests that inject faults, at full length: 300 kills, 1,000,000 records
	@MAINSTEM_TEST_FAULTS=full $(PYTEST) -n $(if $(filter file,$(origin WORKERS)),2,$(WORKERS)) --dist loadgroup -m fault $(ARGS)

lint: $(STAMP) ## check style, types, the direction of imports, and (with the network) known holes of dependencies
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy
	@$(BIN)/pyright
	@$(BIN)/lint-imports
	@found=$$($(BIN)/pip-audit --timeout 5 --no-deps --disable-pip -r constraints.txt 2>&1); \
	  if printf '%s' "$$found" | grep -q '^Found [0-9]'; then \
	    printf '%s\n' "$$found" | grep -v 'could not be audited'; exit 1; fi

##@ Change
format: $(STAMP) ## format the code and fix what can be fixed
	@$(BIN)/ruff check --fix-only $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

proto: $(STAMP) ## generate the Python code of the wire protocol
	@rm -rf $(VENV)-proto
	@$(PYTHON) -m venv $(VENV)-proto
	@$(VENV)-proto/bin/python -m pip install --quiet $(GENERATOR)
	@$(VENV)-proto/bin/python ingest_gateway/proto/generate.py
	@rm -rf $(VENV)-proto

lock: ## write the newest versions that fit into constraints.txt
	$(need_python)
	@rm -rf $(VENV)-lock
	@$(PYTHON) -m venv $(VENV)-lock
	@$(VENV)-lock/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(VENV)-lock/bin/python -m pip install --quiet -e '.[gateway,spark,pipelines,cloud,demo]' --group dev
	@{ echo "# The versions that mainstem is tested with. Written by 'make lock'."; \
	   $(VENV)-lock/bin/python -m pip freeze --all --exclude-editable --exclude pip \
	     | grep -E '^[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+$$'; } > constraints.txt
	@rm -rf $(VENV)-lock
	@echo "constraints.txt is new: run 'make lint test', then commit it"

##@ Measure
bench: java $(STAMP) ## measure mainstem beside Kafka and NATS: over an hour (ARGS='--rows produce --scale 0.1' ...)
	@$(BIN)/python -m benchmarks.kafka.run --json benchmarks/results/kafka.json $(ARGS)

profile: $(STAMP) ## draw flame graphs of gateway and client into .cache/profile (ARGS='--loads produce' ...)
	@$(BIN)/python -m benchmarks.profile $(ARGS)

bench-compare: $(STAMP) ## measure this checkout beside another revision, in turns: REV=main (ARGS='--rows consume' ...)
	$(if $(REV),,$(error which revision? make bench-compare REV=main))
	@$(BIN)/python -m benchmarks.compare $(REV) $(ARGS)

##@ Tidy
clean: ## remove .venv and all that tools left behind
	@rm -rf $(VENV) $(VENV)-lock build dist spark-warehouse metastore_db derby.log artifacts \
	  .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find $(ROOTS) tests -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	$(need_java)
	@:

# Order: the interpreter is checked only when the environment has to be made.
$(BIN)/python:
	$(need_python)
	@$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt hatch_build.py $(COMPILED) | $(BIN)/python
	@echo "installing mainstem and its tools into $(VENV) (a few minutes, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[gateway,spark,pipelines,cloud,demo]' --group dev
	@touch $@
