# The ways to build, try and check Adverb. `make demo` and `make test` are all that a fresh Debian 12 machine needs.

TARGET  := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
RELEASE := $(TARGET)/release
CC      ?= cc
# nextest reports better and runs the tests of all files side by side; plain cargo does as well.
NEXTEST := $(shell command -v cargo-nextest 2>/dev/null)

.PHONY: all help setup build demo test loom bench lint c-examples clean

all: build

help:
	@echo 'make setup       install what is missing (apt-get, with sudo when not root)'
	@echo 'make build       build the command and the library, optimised'
	@echo 'make demo        run the distribution'"'"'s RDMA tools and print a table'
	@echo 'make test        run every test'
	@echo 'make loom        run the shared rings through every interleaving'
	@echo 'make bench       measure, and write BENCHMARKS.md'
	@echo 'make lint        formatting, clippy, licences of dependencies'
	@echo 'make c-examples  build the examples in C'

setup:
	@scripts/setup.sh

build:
	cargo build --release --locked -p adverb -p verbs-provider

demo: setup build
	@$(RELEASE)/adverb demo

# Tests are compiled with checks and overflow traps; the tools run over the optimised build, as users have it.
test: setup build
ifdef NEXTEST
	ADVERB_TEST_BIN_DIR=$(RELEASE) cargo nextest run --locked --workspace --no-fail-fast
	cargo test --locked --workspace --doc
else
	ADVERB_TEST_BIN_DIR=$(RELEASE) cargo test --locked --workspace --no-fail-fast
endif

# A directory of its own: everything is compiled with another flag.
loom:
	CARGO_TARGET_DIR=$(TARGET)/loom RUSTFLAGS='--cfg loom' cargo test --locked -p nic-model --release --test loom_rings

bench: setup build
	cargo bench --locked --workspace --benches
	cargo build --release --locked --example bench_table
	$(RELEASE)/examples/bench_table

lint: setup
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny check; else echo 'cargo-deny is not installed: skipped'; fi

c-examples:
	@mkdir -p $(TARGET)/c
	$(CC) -O2 -Wall -Wextra -Werror -o $(TARGET)/c/rc_pingpong examples/c/rc_pingpong.c -lrdmacm -libverbs
	$(CC) -O2 -Wall -Wextra -Werror -o $(TARGET)/c/write_bw examples/c/write_bw.c -lrdmacm -libverbs

clean:
	cargo clean
