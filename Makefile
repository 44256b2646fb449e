# Two commands do everything on a fresh Debian machine, as root:
#   make run     build and start one node
#   make test    install the test dependencies and run all tests
# `make help` lists the other targets.

JOBS      ?= 2
PREFIX    ?= /usr/local
CARGO     ?= cargo
TARGET    := $(shell uname -m)-unknown-linux-gnu

.PHONY: help run test lint bench fuzz release package install uninstall clean setup setup-test setup-bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup ## build, start one node, print commands to try; Ctrl-C stops it
	@$(CARGO) build --release --jobs $(JOBS) -p mainstay
	@scripts/run

test: setup-test lint ## run lints, unit, property and end-to-end tests
	$(CARGO) build --workspace --all-targets --jobs $(JOBS)
	JOBS=$(JOBS) scripts/older-build
	scripts/test

lint: setup ## check formatting, clippy (warnings are errors), terms, and dependencies if cargo-deny is installed
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --jobs $(JOBS) -- -D warnings
	@scripts/check-language
	@scripts/check-dependencies

bench: setup-bench ## measure ratios against real peers
	$(CARGO) build --release --jobs $(JOBS) -p mainstay -p mainstay-bench
	target/release/mainstay-bench

fuzz: setup ## run every fuzz target for SECONDS_EACH seconds [default: 20]
	scripts/fuzz

release: setup ## build one static binary, target/$(TARGET)/dist/mainstay
	RUSTFLAGS="-C target-feature=+crt-static" \
	  $(CARGO) build --profile dist --target $(TARGET) --jobs $(JOBS) -p mainstay
	@! ldd target/$(TARGET)/dist/mainstay 2>/dev/null | grep -q '=>' \
	  || { echo "the binary is not static"; exit 1; }
	@ls -lh target/$(TARGET)/dist/mainstay

package: setup release ## make a .deb, an OCI image and an SBOM, in target/package; SIGN_KEY=FILE signs the image
	@JOBS=$(JOBS) scripts/setup-package
	@scripts/package target/$(TARGET)/dist/mainstay target/package

install: setup ## install binary, units, completions and man pages below DESTDIR/PREFIX
	$(CARGO) build --release --jobs $(JOBS) -p mainstay
	DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/install target/release/mainstay

uninstall: ## remove the installed files; keep the state directory
	DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/uninstall

clean: ## remove build output
	$(CARGO) clean

setup:
	@scripts/setup

setup-test: setup
	@scripts/setup-test

setup-bench: setup
	@scripts/setup-bench
