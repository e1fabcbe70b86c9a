# The commands of this repository. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
CARGO ?= cargo
DEMO_ARGS ?=
BENCH_ARGS ?=
CAMPAIGN_ARGS ?=
COMPARE_ARGS ?=
STUDY_ARGS ?=
SOAK_ARGS ?=
SHUTTLE_ROUNDS ?= 1000
PREFIX ?= /usr/local
# The headers of the RocksDB that `make plugin` builds for: the installed one, or a source tree's.
ROCKSDB_INCLUDE = $(if $(ROCKSDB_DIR),$(ROCKSDB_DIR)/include,/usr/include)
PLUGIN_DIR = target/rocksdb-plugin$(if $(ROCKSDB_DIR),-$(shell \
  awk '/^\#define ROCKSDB_(MAJOR|MINOR|PATCH) /{printf "%s%s", d, $$3; d="."}' $(ROCKSDB_DIR)/include/rocksdb/version.h))
MINUTES ?= 10
FUZZ_SECONDS ?= 60
FUZZ_MINUTES ?= 30
FUZZ_TARGETS ?=

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: build
build: ## Build the `ringdb` command in release mode
	$(CARGO) build --release --locked -p ringdb-cli

.PHONY: demo
demo: build ## Build, then index this machine's files and read them back on every engine
	target/release/ringdb demo $(DEMO_ARGS)

.PHONY: deps
deps: ## Install the Debian packages that the tests use (or name them)
	@tools/install-packages

.PHONY: test
test: deps ## Install what is missing, then run the whole test suite
	$(CARGO) test --workspace --locked --no-fail-fast
	$(MAKE) mutations

.PHONY: lint
lint: ## Formatting, clippy with warnings as errors, documentation, the repository's own rules
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet
	$(CARGO) test -p tidy --locked --quiet

.PHONY: capi
capi: ## Build engineswap's C interface (libraries, header, pkg-config file) into target/capi
	$(CARGO) build --release --locked -p engineswap-c
	tools/install-capi target/release target/capi

.PHONY: install
install: ## Install engineswap's C interface below PREFIX (default /usr/local)
	$(CARGO) build --release --locked -p engineswap-c
	tools/install-capi target/release "$(PREFIX)"

.PHONY: fio-plugin
fio-plugin: ## Build engineswap as an I/O engine of the installed fio: target/fio/libengineswap_fio.so
	$(CARGO) build --release --locked -p engineswap-c
	headers=$$(tools/fetch-fio-headers target/fio) && \
	  tools/build-fio-plugin target/release "$$headers" target/fio/libengineswap_fio.so
	@echo target/fio/libengineswap_fio.so

.PHONY: compare-fio
compare-fio: fio-plugin ## Compare engineswap under fio with fio's own engines, interleaved (COMPARE_ARGS adds options)
	tools/compare-fio-plugin $(COMPARE_ARGS)

.PHONY: study
study: build ## What each option of io_uring does to reads, with counts of tracepoints (STUDY_ARGS adds options)
	tools/study-options $(STUDY_ARGS)

.PHONY: plugin
plugin: ## Build engineswap as a file system of RocksDB (ROCKSDB_DIR=... for a source tree's headers)
	$(CARGO) build --release --locked -p engineswap-c
	tools/build-rocksdb-plugin target/release "$(ROCKSDB_INCLUDE)" "$(PLUGIN_DIR)/libengineswap_rocksdb.so"
	@echo $(PLUGIN_DIR)/libengineswap_rocksdb.so

.PHONY: plugin-path
plugin-path: ## Print where `make plugin` puts its shared object
	@echo $(CURDIR)/$(PLUGIN_DIR)/libengineswap_rocksdb.so

# A build of ROCKSDB_DIR with shared libraries and tools (-DCMAKE_BUILD_TYPE=Release -DUSE_RTTI=0 -DROCKSDB_BUILD_SHARED=ON
# -DWITH_BENCHMARK_TOOLS=ON -DWITH_TOOLS=ON -DWITH_CORE_TOOLS=ON); CMAKE_BUILD is any build, of which a copy is used.
ROCKSDB_BUILD ?= $(ROCKSDB_DIR)/build-shared
CMAKE_BUILD ?=
STRESS_SECONDS ?= 20
MEASURE_ARGS ?=

.PHONY: plugin-tests
plugin-tests: ## The plugin's tests against a built source tree instead of the installed RocksDB (ROCKSDB_DIR, ROCKSDB_BUILD)
	ROCKSDB_DIR="$(ROCKSDB_DIR)" ROCKSDB_BUILD="$(ROCKSDB_BUILD)" $(CARGO) test --locked -p rocksdb-plugin-tests

.PHONY: plugin-source-test
plugin-source-test: capi ## The plugin as plugin/engineswap of a source tree, by CMake and make (ROCKSDB_DIR, CMAKE_BUILD)
	tools/test-plugin-source "$(ROCKSDB_DIR)" $(CMAKE_BUILD)

.PHONY: plugin-stress
plugin-stress: plugin ## RocksDB's crash test with the plugin on each engine (ROCKSDB_DIR, ROCKSDB_BUILD, STRESS_SECONDS)
	tools/stress-rocksdb-plugin "$(ROCKSDB_DIR)" "$(ROCKSDB_BUILD)" "$(PLUGIN_DIR)/libengineswap_rocksdb.so" $(STRESS_SECONDS)

.PHONY: plugin-rocksdb-tests
plugin-rocksdb-tests: plugin ## RocksDB's own tests of environments with the plugin (ROCKSDB_DIR, ROCKSDB_BUILD)
	tools/test-rocksdb-env "$(ROCKSDB_DIR)" "$(ROCKSDB_BUILD)" "$(PLUGIN_DIR)/libengineswap_rocksdb.so"

.PHONY: plugin-rust-test
plugin-rust-test: ## The Rust crate with a RocksDB that is built already (ROCKSDB_DIR 11.8, ROCKSDB_BUILD)
	tools/test-plugin-rust "$(ROCKSDB_DIR)" "$(ROCKSDB_BUILD)"

.PHONY: measure-plugin
measure-plugin: plugin ## RocksDB with the plugin beside RocksDB without it (ROCKSDB_DIR; MEASURE_ARGS adds options, --quick)
	tools/measure-rocksdb-plugin --plugin "$(PLUGIN_DIR)/libengineswap_rocksdb.so" \
	  $(if $(ROCKSDB_DIR),--rocksdb-bin "$(ROCKSDB_BUILD)") $(MEASURE_ARGS)

.PHONY: bench
bench: build ## Run the standard workloads on a store of moderate size (BENCH_ARGS adds options)
	target/release/ringdb bench --num 1000000 \
	  --workloads fillseq,fillrandom,readrandom,multireadrandom,seekrandom,readseq,readwhilewriting,fillsync $(BENCH_ARGS)

.PHONY: kill-rounds
kill-rounds: ## Kill a writing process 500 times on each engine and check what survives
	RINGDB_KILL_ROUNDS=500 $(CARGO) test --release --locked -p ringdb --test kill -- --nocapture

.PHONY: campaign
campaign: ## Cut the power, and fail, at every operation of many histories: 100,000 times each (CAMPAIGN_ARGS; --help)
	$(CARGO) test --release --locked -p ringdb --test campaign -- run $(CAMPAIGN_ARGS)

.PHONY: mutations
mutations: ## Break each safety rule of the store, one at a time, and see that the crash campaign notices
	$(CARGO) test --locked -p ringdb --features mutations --test campaign -- mutations

.PHONY: shuttle
shuttle: ## The whole store under Shuttle: thousands of orders of its threads (SHUTTLE_ROUNDS for each test)
	RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle RINGDB_SHUTTLE_ROUNDS=$(SHUTTLE_ROUNDS) \
	  $(CARGO) test --locked -p engineswap -p ringdb --test shuttle -- --test-threads=1

.PHONY: soak
soak: ## Everything randomised, for MINUTES (10); stops at the first failure with its seed (SOAK_ARGS adds options)
	tools/soak $(MINUTES) $(SOAK_ARGS)

.PHONY: real-crashes
real-crashes: ## Power cuts, full disks and limits on loop-mounted ext4, xfs and btrfs, 20 rounds on every engine (root)
	RINGDB_REAL_ROUNDS=20 $(CARGO) test --release --locked -p ringdb --test real_crash

.PHONY: freeze-format
freeze-format: ## Make testdata/formats/v1 anew: only while format version 1 has not been released
	rm -rf testdata/formats/v1
	$(CARGO) run --locked -p ringdb --example freeze_format testdata/formats/v1

.PHONY: stress
stress: ## Random operations on all I/O engines at once for 60 seconds, against a model
	ENGINESWAP_STRESS_SECONDS=60 $(CARGO) test --release --locked -p engineswap --test stress -- --nocapture

.PHONY: sanitize
sanitize: ## engineswap's tests under ThreadSanitizer and AddressSanitizer (nightly toolchain)
	tools/sanitize

.PHONY: metamorphic
metamorphic: ## Random lists of operations under many settings for MINUTES (10), against a model
	RINGDB_META_MINUTES=$(MINUTES) $(CARGO) test --release --locked -p ringdb --test metamorphic -- --nocapture

.PHONY: fuzz-smoke
fuzz-smoke: ## Fuzz every target for FUZZ_SECONDS (60) each, two at a time (nightly toolchain)
	tools/fuzz $(FUZZ_SECONDS)

.PHONY: fuzz
fuzz: ## The same for FUZZ_MINUTES (30) each; FUZZ_TARGETS chooses
	tools/fuzz $$(( 60 * $(FUZZ_MINUTES) )) $(FUZZ_TARGETS)

.PHONY: fuzz-corpus
fuzz-corpus: ## Make the seeds in fuzz/corpus anew, from real files
	$(CARGO) run --locked -p fuzz-targets --example make_corpus fuzz/corpus

.PHONY: clean
clean: ## Remove what the builds made
	$(CARGO) clean
