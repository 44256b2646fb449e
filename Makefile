# Two commands do everything on a fresh Debian machine, as root:
#   make run     build and start one node
#   make test    install what the tests need and run them all
# The rest is for those who carry on; `make help` lists it.

JOBS      ?= 2
PREFIX    ?= /usr/local
CARGO     ?= cargo
TARGET    := $(shell uname -m)-unknown-linux-gnu

.PHONY: help run test lint bench fuzz release install uninstall clean setup setup-test setup-bench

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup ## build, start one node, say how to use it; Ctrl-C stops it
	@$(CARGO) build --release --jobs $(JOBS) -p mainstay
	@scripts/run

test: setup-test lint ## everything: lints, unit, property and end-to-end tests
	$(CARGO) build --workspace --all-targets --jobs $(JOBS)
	scripts/test

lint: setup ## formatting, clippy (warnings are errors), dependencies if cargo-deny is there
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --jobs $(JOBS) -- -D warnings
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --offline check bans licenses sources; \
	else echo "cargo-deny is not installed; dependencies are not checked (cargo install cargo-deny)"; fi

bench: setup-bench ## ratios against real peers, in one run
	$(CARGO) build --release --jobs $(JOBS) -p mainstay -p mainstay-bench
	target/release/mainstay-bench

fuzz: setup ## every fuzz target for a while (SECONDS_EACH=20)
	scripts/fuzz

release: setup ## one static binary: target/$(TARGET)/dist/mainstay
	RUSTFLAGS="-C target-feature=+crt-static" \
	  $(CARGO) build --profile dist --target $(TARGET) --jobs $(JOBS) -p mainstay
	@! ldd target/$(TARGET)/dist/mainstay 2>/dev/null | grep -q '=>' \
	  || { echo "the binary is not static"; exit 1; }
	@ls -lh target/$(TARGET)/dist/mainstay

install: setup ## binary, units, completions and man pages, below PREFIX (and DESTDIR)
	$(CARGO) build --release --jobs $(JOBS) -p mainstay
	DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/install target/release/mainstay

uninstall: ## what install put there; the state directory stays
	DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/uninstall

clean: ## what was built
	$(CARGO) clean

setup:
	@scripts/setup

setup-test: setup
	@scripts/setup-test

setup-bench: setup
	@scripts/setup-bench
