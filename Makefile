# The commands of this repository. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
CARGO ?= cargo
C_TEST ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
BENCHES ?=
BENCH_PEERS_ARGS ?=
CRATES ?=
CONTAINER ?= podman
# Outside the tree, so that `make clean` does not cost half an hour.
PEERS_TARGET ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ringdb/peers
CAMPAIGN_ARGS ?=
COMPARE_ARGS ?=
STUDY_ARGS ?=
SOAK_ARGS ?=
SHUTTLE_ROUNDS ?= 1000
MIRI_SEEDS ?= 4
PREFIX ?= /usr/local
# The headers of the RocksDB that `make plugin` builds for: the installed one, or a source tree's.
ROCKSDB_INCLUDE = $(if $(ROCKSDB_DIR),$(ROCKSDB_DIR)/include,/usr/include)
PLUGIN_DIR = target/rocksdb-plugin$(if $(ROCKSDB_DIR),-$(shell \
  awk '/^\#define ROCKSDB_(MAJOR|MINOR|PATCH) /{printf "%s%s", d, $$3; d="."}' $(ROCKSDB_DIR)/include/rocksdb/version.h))
GUEST_ARGS ?=
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
deps: ## Install the Debian packages that the tests use (as root; otherwise name them)
	@tools/install-packages

.PHONY: check
check: ## The whole test suite with what is installed; what needs more says that it is skipped. No root needed
	$(CARGO) test --workspace --locked --no-fail-fast
	$(MAKE) mutations
	$(MAKE) test-go

.PHONY: test
test: deps check ## `make deps`, then `make check`

.PHONY: lint
lint: ## Formatting, clippy with warnings as errors, C and shell, documentation, the repository's own rules
	$(CARGO) fmt --all --check
	$(CARGO) fmt --check --manifest-path fuzz/Cargo.toml
	$(CARGO) fmt --check --manifest-path rocksdb-plugin/rust/Cargo.toml
	$(CARGO) fmt --check --manifest-path peers/Cargo.toml
	$(CARGO) fmt --check --manifest-path python/Cargo.toml
	tools/lint-c-and-shell
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml --target-dir target -- -D warnings
	$(CARGO) clippy -p ringdb-cli -p engineswap-c -p ringdb-c --no-default-features --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet
	$(CARGO) test -p tidy --locked --quiet

.PHONY: lint-plugin-rust
lint-plugin-rust: ## clippy over rocksdb-plugin/rust, with the headers that its crates bring (needs libclang; RocksDB is not compiled)
	cd rocksdb-plugin/rust && ROCKSDB_LIB_DIR=/usr/lib CARGO_TARGET_DIR="$(CURDIR)/target/rocksdb-rust" \
	  $(CARGO) clippy --all-targets -- -D warnings

.PHONY: msrv
msrv: ## Build with the oldest Rust that is supported; installed by rustup, or skipped with the reason
	tools/msrv

.PHONY: deb
deb: ## Build the Debian packages (command, libraries, plugins of RocksDB and fio) into target/debian (needs debhelper)
	tools/build-deb target/debian

.PHONY: deb-test
deb-test: deb ## Check the packages, then install, use and remove each in a fresh Debian (root, mmdebstrap; three minutes)
	tools/check-deb target/debian
	tools/test-deb target/debian

.PHONY: static
static: ## Build the command as one file without libraries (musl) and try it: target/static/ringdb (rustup, musl-tools)
	tools/build-static target/static/ringdb

.PHONY: container
container: static ## Build an image of the command (CONTAINER=podman or docker; container/ has its profile of seccomp)
	$(CONTAINER) build --file container/Containerfile --tag localhost/ringdb target/static

.PHONY: container-test
container-test: container ## Run that image on each engine under its profile (CONTAINER_ARGS, e.g. --runtime=runc)
	CONTAINER="$(CONTAINER)" tools/test-container localhost/ringdb

.PHONY: other-systems
other-systems: ## See that a build for another system than Linux says that there is none; its target by rustup, or skipped
	tools/check-other-systems

.PHONY: crates
crates: ## Package the crates as for crates.io and look into the packages (CRATES=build also builds each from its package)
	tools/check-crates $(CRATES)

.PHONY: deny
deny: ## Licences, advisories and sources of the dependencies (cargo install cargo-deny; advisories need the network)
	$(CARGO) deny --locked check

.PHONY: capi
capi: ## Build the C interfaces of ringdb and engineswap (libraries, headers, pkg-config files) into target/capi
	$(CARGO) build --release --locked -p engineswap-c -p ringdb-c
	tools/install-capi target/release target/capi

.PHONY: wheel
wheel: ## Build the Python package into target/wheels, for manylinux and every Python from 3.10 on (tools from the package index)
	tools/build-wheel

.PHONY: wheel-musl
wheel-musl: ## The same for musllinux (Alpine); installs Rust's target by rustup
	tools/build-wheel musl

.PHONY: python-check
python-check: ## The Python package's tests, with a wheel for this machine
	tools/check-python

.PHONY: test-go
test-go: ## The Go module's tests under the race detector; without Go 1.24 or newer it says that it is skipped
	tools/test-go

.PHONY: leveldb
leveldb: ## Build LevelDB's C interface on ringdb (leveldb/c.h, libleveldb.so, libleveldb.a) into target/leveldb
	$(CARGO) build --release --locked -p ringdb-leveldb
	tools/install-capi target/release target/leveldb leveldb

.PHONY: leveldb-c-test
leveldb-c-test: ## Run a C program for LevelDB, unchanged, against the library (C_TEST=PATH of its source, LevelDB's c_test.c say)
	@[ -n "$(C_TEST)" ] || { echo "C_TEST=PATH has to name a C source" >&2; exit 2; }
	RINGDB_LEVELDB_C_TEST="$(abspath $(C_TEST))" $(CARGO) test --locked -p ringdb-leveldb --test c a_given_program -- --nocapture

.PHONY: install
install: ## Install the command, its manual pages and completions, and both C interfaces below PREFIX (default /usr/local)
	$(CARGO) build --release --locked -p ringdb-cli -p engineswap-c -p ringdb-c
	tools/install-command target/release "$(PREFIX)"
	tools/install-capi target/release "$(PREFIX)"

.PHONY: uninstall
uninstall: ## Remove what `make install` put below PREFIX
	tools/uninstall "$(PREFIX)"

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

.PHONY: bench-peers
bench-peers: ## ringdb beside RocksDB 11, fjall and LMDB, interleaved (BENCH_PEERS_ARGS: --help; builds RocksDB, half an hour)
	@$(CARGO) --version >/dev/null; for p in libclang-dev liburing-dev fio; do \
	  dpkg -s $$p >/dev/null 2>&1 || { echo "bench-peers needs $$p: apt-get install $$p" >&2; exit 1; }; done
	CARGO_TARGET_DIR="$(PEERS_TARGET)" $(CARGO) build --release --locked --manifest-path peers/Cargo.toml
	"$(PEERS_TARGET)/release/peers" run $(BENCH_PEERS_ARGS)

.PHONY: benches
benches: ## The nanoseconds that docs/decisions quotes (BENCHES chooses by a part of a name)
	$(CARGO) bench --locked -p latchfree --bench epoch -- $(BENCHES)
	$(CARGO) bench --locked -p ringdb --bench decisions -- $(BENCHES)
	$(CARGO) bench --locked -p ringdb-c --bench get

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
	  $(CARGO) test --locked -p latchfree -p ringdb --test shuttle -- --test-threads=1

.PHONY: miri
miri: ## Epochs, slots, arenas and the memtable under Miri, MIRI_SEEDS (4) orders of threads (nightly; installs Miri)
	tools/miri $(MIRI_SEEDS)

.PHONY: soak
soak: ## Everything randomised, for MINUTES (10); stops at the first failure with its seed (SOAK_ARGS adds options)
	tools/soak $(MINUTES) $(SOAK_ARGS)

.PHONY: real-crashes
real-crashes: ## Power cuts, full disks and limits on loop-mounted ext4, xfs and btrfs, 20 rounds on every engine (root)
	RINGDB_REAL_ROUNDS=20 $(CARGO) test --release --locked -p ringdb --test real_crash

.PHONY: freeze-format
freeze-format: ## Make testdata/formats/v2 and v3 anew: only while these versions have not been released
	rm -rf testdata/formats/v2 testdata/formats/v3
	$(CARGO) run --locked -p ringdb --example freeze_format testdata/formats/v2
	$(CARGO) run --locked -p ringdb --features encryption --example freeze_format testdata/formats/v3

.PHONY: budget
budget: ## Every workload in a memory cgroup of the budget and 64 MiB: 256 MiB, 5 million keys (needs root)
	RINGDB_BUDGET_MIB=256 RINGDB_BUDGET_KEYS=5000000 $(CARGO) test --release --locked -p ringdb --test budget every_workload \
	  -- --nocapture

.PHONY: stress
stress: ## Random operations on all I/O engines at once for 60 seconds, against a model
	ENGINESWAP_STRESS_SECONDS=60 $(CARGO) test --release --locked -p engineswap --test stress -- --nocapture

.PHONY: sanitize
sanitize: ## engineswap's tests under ThreadSanitizer and AddressSanitizer (nightly toolchain)
	tools/sanitize

.PHONY: guest
guest: ## Build the guest of `ringdb lab guest` from Debian's packages, in ~/.cache/ringdb/guest (GUEST_ARGS=--refresh)
	tools/guest/build $(GUEST_ARGS)

.PHONY: guest-smoke
guest-smoke: build guest ## In that guest, for some minutes: doctor, who polls, and (as root) power cuts at a hundred moments
	target/release/ringdb lab guest run doctor
	target/release/ringdb lab guest run iopoll
	[ "$$(id -u)" != 0 ] || $(MAKE) guest-powercut JOB=powercut-smoke

# The test program that cargo builds with these arguments.
test-program = "$$($(CARGO) test --locked --no-run $(1) 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$$/\1/p')"

JOB ?= powercut
.PHONY: guest-powercut
guest-powercut: build guest ## Power cuts of guests at 10,200 moments, on ext4, xfs and btrfs, recovered here (root, an hour; JOB)
	$(CARGO) test --locked -p ringdb --test power_cuts
	target/release/ringdb lab guest run $(JOB) --tests $(call test-program,-p ringdb --test power_cuts)

.PHONY: guest-powercut-mistakes
guest-powercut-mistakes: build guest ## Three broken safety rules, each of which power cuts have to find (root)
	$(CARGO) test --locked -p ringdb --features mutations --test power_cuts
	target/release/ringdb lab guest run powercut-mistakes \
	  --tests $(call test-program,-p ringdb --features mutations --test power_cuts)

.PHONY: guest-matrix
guest-matrix: build guest ## The conformance suite, and a store on each engine, in guests of both kernels (20 minutes)
	$(CARGO) test --locked -p engineswap --test conformance --no-run
	target/release/ringdb lab guest run conformance --tests $(call test-program,-p engineswap --test conformance)

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

.PHONY: pictures
pictures: ## Draw the pictures of README and guide anew
	RINGDB_DRAW_PICTURES=1 $(CARGO) test --locked -p tidy the_picture
	RINGDB_DRAW_PICTURES=1 $(CARGO) test --locked -p ringdb-cli --bin ringdb the_picture

.PHONY: book
book: ## Build the guide as a web site into target/book (cargo install mdbook)
	@command -v mdbook >/dev/null || { echo "book needs mdbook: cargo install mdbook" >&2; exit 1; }
	mdbook build docs/guide
	@echo target/book/index.html

.PHONY: clean
clean: ## Remove what the builds made
	$(CARGO) clean
