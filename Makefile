# Each target sets up what it needs. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# What building needs beside Rust, on Debian 12; `make run` needs QEMU.
HOST_PACKAGES := gcc libc6-dev mmdebstrap mount uidmap bzip2 xz-utils zstd squashfs-tools e2fsprogs dosfstools fdisk mtools \
	containerd runc qemu-system-x86 qemu-utils ovmf openssh-client curl dnsmasq-base ipxe
# What tests need beside that. The libraries are those of NetworkManager and keepalived, whose own packages are only unpacked.
TEST_PACKAGES := postgresql nginx-light xorriso tgt gdisk cryptsetup-bin grub-common docker-registry minisign apache2-utils openssl skopeo umoci cpio tmux nbdkit systemd iproute2 \
	qemu-system-arm qemu-efi-aarch64 qemu-user-static chromium dbus-daemon fish libbluetooth3 libcurl3-gnutls libjansson4 libmm-glib0 libndp0 libnewt0.52 libnm0 libpsl5 libteamdctl0 \
	libnl-genl-3-200 libsnmp40 python3-jsonschema python3-yaml zsh

# The architecture of the images: that of this host, amd64 or arm64.
HOST_ARCHITECTURE := $(shell dpkg --print-architecture 2>/dev/null)
ARCHITECTURE ?= $(HOST_ARCHITECTURE)
DEFINITION ?= configs/images/default$(if $(filter arm64,$(ARCHITECTURE)),-arm64).yaml
OUTPUT ?= dist
CARGO ?= cargo
# Emulation works everywhere; ACCEL=kvm is quicker where it works.
ACCEL ?= tcg
OVMF ?= /usr/share/OVMF
TARGET := $(or $(CARGO_TARGET_DIR),target)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nqrust
# The release of Kubernetes, from Go modules that need Go 1.26.6: by version, by what its packages are of, and by all that is
# said about how it is built. Definitions find it at target/kubernetes, for arm64 at target/kubernetes-arm64.
KUBERNETES_SUITE := trixie
# $(1) is a folder with build.sh and the modules, $(2) an architecture besides amd64.
KUBERNETES_RELEASE = $(CACHE)/kubernetes/$(shell sed -nE 's|^(require)?\s*k8s.io/kubernetes (v[^ ]+).*|\2|p' $(1)/kubernetes/go.mod \
	)-$(KUBERNETES_SUITE)-$(addsuffix -,$(2))$(shell cat $(wildcard $(1)/build.sh $(1)/*/go.*) | sha256sum | head -c 12)
KUBERNETES_ARCHITECTURE := $(filter arm64,$(ARCHITECTURE))
KUBERNETES := $(call KUBERNETES_RELEASE,configs/kubernetes,$(KUBERNETES_ARCHITECTURE))
KUBERNETES_LINK := kubernetes$(addprefix -,$(KUBERNETES_ARCHITECTURE))
# The minor version before, for the test that moves a cluster from it.
KUBERNETES_BEFORE := $(call KUBERNETES_RELEASE,tests/kubernetes-before)
# The controller that starts updates on nodes, for the test of a rollout; by all that it is built from.
CONTROLLER := $(CACHE)/system-upgrade-controller/$(shell cat $(wildcard tests/system-upgrade-controller/*) | sha256sum | head -c 12)
# Programs that Debian does not have, built once from their Go modules. Debian's Go builds this helm.
TOOLS := $(CACHE)/tools
CARGO_DEB_VERSION := 3.8.0
HELM_VERSION := v3.11.3
HELM := $(TOOLS)/helm-$(HELM_VERSION)/helm
# Programs of packages whose services would take over the network of this host, or watch it.
UNPACKED := $(TOOLS)/network-manager/usr/sbin/NetworkManager $(TOOLS)/keepalived/usr/sbin/keepalived \
	$(TOOLS)/prometheus/usr/bin/prometheus $(TOOLS)/prometheus-node-exporter/usr/bin/prometheus-node-exporter
# The checker of accessibility that the tests of the fleet page run in a browser; `crates/testing` has the version too.
AXE_VERSION := 4.14.1
AXE_SHA256 := 29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
AXE := $(TOOLS)/axe-core-$(AXE_VERSION)/axe.min.js
export PATH := $(PATH):$(patsubst %/,%,$(dir $(HELM)))
# What `binaries` builds: `dev` is what tests run too and is compiled once for both; `release` takes three times as long.
PROFILE ?= dev
BUILT := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
# Without --installer the builder takes the installer beside it.
PROGRAMS := $(TARGET)/bin
# The key that signs what is built: the name of one of `iso-builder keys show`, or a file. `development` is made at its first use.
SIGN_WITH ?= development
BUILD := $(PROGRAMS)/iso-builder build --sign-with $(SIGN_WITH)
# Where `make install` puts things; shells and man(1) look there.
PREFIX ?= /usr/local
BIN = $(DESTDIR)$(PREFIX)/bin
BASH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
MAN_PAGES = $(DESTDIR)$(PREFIX)/share/man/man1
# One call for the whole workspace, so that every test is compiled with the same features of its dependencies.
TEST := $(CARGO) test --workspace --locked
E2E := $(TEST) --test e2e --

# What images of another architecture need: a compiler of C, an emulator for what runs in their base, and a Rust that compiles for them.
CROSS := $(filter arm64,$(filter-out $(HOST_ARCHITECTURE),$(ARCHITECTURE)))
CROSS_TARGET := aarch64-unknown-linux-gnu
CROSS_RUST := $(TOOLS)/rust-arm64
ifneq ($(CROSS),)
HOST_PACKAGES += gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
endif

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what building and all tests need, or name it; check Rust.
	@go=""; command -v helm >/dev/null || command -v go >/dev/null || go=golang-go; \
	npm=""; [ -e $(AXE) ] || command -v npm >/dev/null || npm=npm; \
	$(MAKE) --no-print-directory host HOST_PACKAGES="$(HOST_PACKAGES) $(TEST_PACKAGES) $$go $$npm"
	@$(MAKE) --no-print-directory helm $(UNPACKED) $(AXE)
	@[ -e $(KUBERNETES) ] || configs/kubernetes/build.sh --check-go

.PHONY: helm
helm: ## Build helm, which definitions with charts need, where there is none.
	@command -v helm >/dev/null || $(MAKE) --no-print-directory $(HELM)

.PHONY: host
host: ## Install what building needs, or name it; check Rust.
	@missing=""; \
	for package in $(HOST_PACKAGES); do \
	  [ "$$(dpkg-query -W -f '$${db:Status-Status}' "$$package" 2>/dev/null)" = installed ] || missing+=" $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ]; then as_root=(env); \
	  elif sudo -n true 2>/dev/null; then as_root=(sudo env); \
	  else \
	    printf 'error: these packages are missing:%s\n  next: As root, run: apt-get install --no-install-recommends%s\n' \
	      "$$missing" "$$missing" >&2; exit 1; \
	  fi; \
	  "$${as_root[@]}" apt-get update -q; \
	  "$${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; \
	fi; \
	command -v $(CARGO) >/dev/null || { \
	  printf 'error: Rust is missing: there is no %s in PATH\n  next: Install Rust %s or later with rustup.\n' \
	    '$(CARGO)' "$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)" >&2; exit 1; }

$(HELM):
	@echo 'building helm $(HELM_VERSION), once; this takes minutes'
	@rm -rf $(@D).new; mkdir -p $(@D) $(@D).new
	@cd $(@D).new; GOPATH=$$PWD/path GOCACHE=$$PWD/cache GOBIN=$$PWD GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS=-modcacherw \
	  go install -trimpath -ldflags='-s -w' helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
	@mv $(@D).new/helm $@; rm -rf $(@D).new

$(UNPACKED): package = $(firstword $(subst /, ,$(@:$(TOOLS)/%=%)))
$(UNPACKED):
	@rm -rf $(TOOLS)/$(package) $(TOOLS)/$(package).new; mkdir -p $(TOOLS)/$(package).new/packages
	@cd $(TOOLS)/$(package).new/packages; \
	apt-get download -q $(package) || { \
	  printf 'error: the package $(package) cannot be downloaded\n  next: As root, run: apt-get update\n' >&2; exit 1; }
	@cd $(TOOLS)/$(package).new; dpkg-deb --extract packages/$(package)_*.deb .; rm -r packages
	@mv $(TOOLS)/$(package).new $(TOOLS)/$(package); touch $@

$(AXE):
	@rm -rf $(@D) $(@D).new; mkdir -p $(@D).new
	@cd $(@D).new; npm pack --silent axe-core@$(AXE_VERSION) >/dev/null; \
	tar --extract --file axe-core-$(AXE_VERSION).tgz --strip-components 1 package/axe.min.js package/LICENSE; \
	rm axe-core-$(AXE_VERSION).tgz; echo "$(AXE_SHA256)  axe.min.js" | sha256sum --check --quiet
	@mv $(@D).new $(@D); touch $@

# The installer is static: it runs in any image. Only its last step is told so, so that both programs share what is compiled;
# other programs are not, because the C library loads what looks up names and users, which static ones do not survive.
.PHONY: binaries
binaries: host $(if $(CROSS),installer-arm64) ## Build installer and iso-builder into target/bin; ARCHITECTURE=arm64: an installer for it too.
	$(CARGO) build --profile $(PROFILE) --locked -p iso-builder -p installer
	$(CARGO) rustc --profile $(PROFILE) --locked -p installer --bin installer -- -C target-feature=+crt-static
	@mkdir -p $(PROGRAMS)
	@for program in installer iso-builder; do \
	  cmp -s $(BUILT)/$$program $(PROGRAMS)/$$program || install $(BUILT)/$$program $(PROGRAMS)/$$program; \
	done

# In a directory of its own: this Rust may be another one than the host's.
CROSS_CARGO = CARGO_TARGET_DIR=$(TARGET)/cross CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc RUSTC=$(CROSS_RUST)/rustc $(CARGO)
CROSS_BUILT = $(TARGET)/cross/$(CROSS_TARGET)/$(notdir $(BUILT))
.PHONY: installer-arm64
installer-arm64: host | $(CROSS_RUST)
	$(CROSS_CARGO) rustc --profile $(PROFILE) --locked --target $(CROSS_TARGET) -p installer --bin installer \
	  -- -C target-feature=+crt-static
	@mkdir -p $(PROGRAMS)
	@cmp -s $(CROSS_BUILT)/installer $(PROGRAMS)/installer-arm64 || install $(CROSS_BUILT)/installer $(PROGRAMS)/installer-arm64

.PHONY: iso-builder-arm64
iso-builder-arm64: host | $(CROSS_RUST)
	$(CROSS_CARGO) build --profile $(PROFILE) --locked --target $(CROSS_TARGET) -p iso-builder --bin iso-builder
	@mkdir -p $(PROGRAMS)
	@cmp -s $(CROSS_BUILT)/iso-builder $(PROGRAMS)/iso-builder-arm64 || install $(CROSS_BUILT)/iso-builder $(PROGRAMS)/iso-builder-arm64

$(CROSS_RUST):
	@configs/cross/rust.sh $@

# Built by `make binaries` before, so that root need not build. Packages give DESTDIR too.
.PHONY: install
install: ## Install programs, completions and man pages below PREFIX (/usr/local); DESTDIR comes before it.
	@for program in iso-builder installer; do \
	  [ -x $(PROGRAMS)/$$program ] || $(MAKE) --no-print-directory binaries; \
	done
	@install -d $(BIN) $(BASH_COMPLETIONS) $(ZSH_COMPLETIONS) $(FISH_COMPLETIONS) $(MAN_PAGES)
	@for program in iso-builder installer; do \
	  install $(PROGRAMS)/$$program $(BIN)/$$program; \
	  $(PROGRAMS)/$$program completions bash | install -m 644 /dev/stdin $(BASH_COMPLETIONS)/$$program; \
	  $(PROGRAMS)/$$program completions zsh | install -m 644 /dev/stdin $(ZSH_COMPLETIONS)/_$$program; \
	  $(PROGRAMS)/$$program completions fish | install -m 644 /dev/stdin $(FISH_COMPLETIONS)/$$program.fish; \
	  $(PROGRAMS)/$$program man -o $(MAN_PAGES); \
	done
	@echo 'installed below $(DESTDIR)$(PREFIX)'

.PHONY: uninstall
uninstall: ## Remove what `make install` has put there, with the same PREFIX and DESTDIR.
	@for program in iso-builder installer; do \
	  rm -f $(BIN)/$$program $(BASH_COMPLETIONS)/$$program $(ZSH_COMPLETIONS)/_$$program \
	    $(FISH_COMPLETIONS)/$$program.fish $(MAN_PAGES)/$$program.1 $(MAN_PAGES)/$$program-*.1; \
	done

# cargo-deb makes the packages of what `make install` puts into a directory; the archives have the same files.
.PHONY: packages
packages: binaries ## Make Debian packages and archives of both programs, with man pages and completions, in OUTPUT/packages.
	@command -v cargo-deb >/dev/null || $(CARGO) install cargo-deb --version $(CARGO_DEB_VERSION) --locked --no-default-features
	@rm -rf target/packages $(OUTPUT)/packages; mkdir -p $(OUTPUT)/packages
	@$(MAKE) --no-print-directory install DESTDIR=target/packages/root PREFIX=/usr
	@export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0); \
	version=$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1); \
	for program in iso-builder installer; do \
	  $(CARGO) deb --quiet --no-build --no-strip --package $$program --output $(OUTPUT)/packages/; \
	  archive=$$program-$$version-linux-$(HOST_ARCHITECTURE); \
	  (cd target/packages/root/usr; find . -path "*/$$program" -o -path "*/_$$program" -o -path "*/$$program.fish" \
	    -o -name "$$program.1" -o -name "$$program-*.1") | sort | \
	    tar --create --directory target/packages/root/usr --files-from - --transform "s|^\.|$$archive|" \
	      --add-file $(CURDIR)/LICENSE --transform "s|^.*/LICENSE$$|$$archive/LICENSE|" --absolute-names \
	      --mtime "@$$SOURCE_DATE_EPOCH" --owner 0 --group 0 --numeric-owner --mode u+rw,go=rX | \
	    gzip -n -9 >$(OUTPUT)/packages/$$archive.tar.gz; \
	done; \
	ls -l $(OUTPUT)/packages

.PHONY: kubernetes
kubernetes: ## Build Kubernetes from its Go modules where it is not there; links it to target/kubernetes (-amd64, -arm64).
	@[ -e $(KUBERNETES) ] || $(MAKE) --no-print-directory host $(KUBERNETES)
	@for link in target $(TARGET); do \
	  mkdir -p $$link; ln -sfn $(KUBERNETES) $$link/$(KUBERNETES_LINK); ln -sfn $(KUBERNETES) $$link/kubernetes-$(ARCHITECTURE); \
	done

.PHONY: kubernetes-before
kubernetes-before: ## Build the minor version before it in the same way, for the soak tests; links it to target/kubernetes-before.
	@[ -e $(KUBERNETES_BEFORE) ] || $(MAKE) --no-print-directory host $(KUBERNETES_BEFORE)
	@mkdir -p $(TARGET); ln -sfn $(KUBERNETES_BEFORE) $(TARGET)/kubernetes-before

.PHONY: system-upgrade-controller
system-upgrade-controller: ## Build system-upgrade-controller from its Go modules, for the soak tests; links it to target/system-upgrade-controller.
	@[ -e $(CONTROLLER) ] || $(MAKE) --no-print-directory host $(CONTROLLER)
	@mkdir -p $(TARGET); ln -sfn $(CONTROLLER) $(TARGET)/system-upgrade-controller

# The compiler of Go collects its garbage less often: a sixth less of the processor for some more memory, and the same programs.
$(KUBERNETES) $(KUBERNETES_BEFORE) $(CONTROLLER): export GOGC = 400

$(KUBERNETES):
	@configs/kubernetes/build.sh $@ $(KUBERNETES_SUITE) $(ARCHITECTURE)

$(KUBERNETES_BEFORE):
	@tests/kubernetes-before/build.sh $@ $(KUBERNETES_SUITE)

$(CONTROLLER):
	@tests/system-upgrade-controller/build.sh $@

.PHONY: iso
iso: ## Build the media of DEFINITION into OUTPUT; with ARCHITECTURE=arm64 the default ones for 64-bit Arm.
	@start=$$SECONDS; \
	$(MAKE) --no-print-directory binaries; programs=$$((SECONDS - start)); \
	shown=$$($(PROGRAMS)/iso-builder show $(DEFINITION)); \
	architectures=$$(sed -nE -e 's/^architecture: ([a-z0-9]+).*/\1/p' \
	  -e '/^architectures:/,/^[^ a]/s/^ +- ([a-z0-9]+).*/\1/p' <<<"$$shown"); \
	for architecture in $${architectures:=amd64}; do \
	  [ $$architecture = arm64 ] && [ $(HOST_ARCHITECTURE) != arm64 ] || continue; \
	  $(MAKE) --no-print-directory installer-arm64 ARCHITECTURE=arm64; programs=$$((SECONDS - start)); \
	done; \
	if grep -q '^ *artifacts: .*target/kubernetes' <<<"$$shown"; then \
	  for architecture in $$architectures; do \
	    $(MAKE) --no-print-directory kubernetes ARCHITECTURE=$$architecture; \
	  done; \
	fi; \
	kubernetes=$$((SECONDS - start - programs)); \
	$(BUILD) $(DEFINITION) -o $(OUTPUT); media=$$((SECONDS - start - kubernetes - programs)); \
	printf 'programs %d:%02d min, Kubernetes %d:%02d min, media %d:%02d min\n' \
	  $$((programs / 60)) $$((programs % 60)) $$((kubernetes / 60)) $$((kubernetes % 60)) $$((media / 60)) $$((media % 60))

# The media stay beside the release, so that the next one finds what has not changed.
.PHONY: release
release: ## Make everything that is published in OUTPUT/release: media, packages, checksums, notes, a page; takes minutes more.
	@$(call ROOM,release,15)
	@for name in default minimal; do \
	  $(MAKE) --no-print-directory iso PROFILE=release DEFINITION=configs/images/$$name.yaml OUTPUT=$(OUTPUT)/media/$$name; \
	done
	@$(MAKE) --no-print-directory packages PROFILE=release
	@rm -rf $(OUTPUT)/release
	@$(CARGO) run --quiet --release --locked --package nqrust-release -- assemble --output $(OUTPUT)/release \
	  --media $(OUTPUT)/media/default --media $(OUTPUT)/media/minimal --packages $(OUTPUT)/packages

.PHONY: builder-image
builder-image: binaries $(if $(CROSS),iso-builder-arm64) ## Build the container image of the builder into OUTPUT/builder-image, an OCI layout; ARCHITECTURE=arm64: into builder-image-arm64.
	$(PROGRAMS)/iso-builder builder-image configs/builder/image$(if $(filter arm64,$(ARCHITECTURE)),-arm64).yaml \
	  -o $(OUTPUT)/builder-image$(if $(filter arm64,$(ARCHITECTURE)),-arm64)

.PHONY: runner-image
runner-image: binaries ## Build the container image by which a controller updates nodes into OUTPUT/runner-image, an OCI layout.
	$(PROGRAMS)/iso-builder runner-image -o $(OUTPUT)/runner-image

# Without being named, a target with `test = false` is none of all.
.PHONY: lint
lint: host ## Check the format and the lints.
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --workspace --test e2e --locked -- -D warnings

# Fails where there is not the room, in GiB, that something takes: a full disk looks like a fault of whatever writes next.
ROOM = mkdir -p $(TARGET); free=$$(df --output=avail -B 1G $(TARGET) | tail -n 1); [ $$free -ge $(2) ] || { \
	  printf 'error: %s takes %d GiB, and the disk of %s has %d GiB left\n  next: Free space, or name a directory of a larger disk with CARGO_TARGET_DIR.\n' \
	    'make $(1)' $(2) $(TARGET) $$free >&2; exit 1; }

# Notes how long a step of a recipe took that has set `step` to its begin, in $(TARGET)/steps.
STEP = printf '%3d:%02d min  %s\n' $$(((SECONDS - step) / 60)) $$(((SECONDS - step) % 60)) '$(1)' >>$(TARGET)/steps; step=$$SECONDS
# The end of a run: how long its steps took, and its slowest test programs or tests; then what the test programs counted, in
# $(TARGET)/test.log, and the time since $$start.
SUMMARY = echo; cat $(TARGET)/steps; echo 'the slowest, in seconds:'; sort -rn $(1) | head -n 10; $(COUNT)
COUNT := awk -v seconds=$$((SECONDS - start)) '/^test result/ { passed += $$4; failed += $$6; left += $$8 } \
	  END { printf "%d tests passed, %d failed, %d left for make soak, %d:%02d min\n", \
	    passed, failed, left, seconds / 60, seconds % 60 }' $(TARGET)/test.log
# The seconds of each test program, in $(TARGET)/seconds.
SECONDS_OF_PROGRAMS := awk '/^ *Running / { name = $$NF; gsub(/.*\/|-[0-9a-f]*\)$$/, "", name) } \
	  /^test result/ { sub(/s$$/, "", $$NF); printf "%5d %s\n", $$NF, name }' $(TARGET)/test.log >$(TARGET)/seconds

# The virtual machine takes one processor from its start to its end, so it begins as soon as its own test is compiled, and all else
# gives way to it; the next compiler is started when the machine needs cargo no more, which lets only one work at a time. Many other tests wait for servers and programs: more of them than processors run at a time.
.PHONY: test
test: ## The short loop: format, lints, all tests without a machine, then one install and its first start on UEFI.
	@start=$$SECONDS; step=$$start; $(call ROOM,test,15); rm -f $(TARGET)/steps; \
	$(MAKE) --no-print-directory setup; $(call STEP,packages of the host and tools); \
	$(MAKE) --no-print-directory lint; $(call STEP,format and lints); \
	$(MAKE) --no-print-directory binaries; $(call STEP,compiling the programs); \
	$(TEST) --no-run --test e2e; $(call STEP,compiling the test of the machine); \
	setsid $(E2E) install_uefi:: >$(TARGET)/machine.log 2>&1 & machine=$$!; \
	trap 'kill -- -$$machine 2>/dev/null || true' EXIT; \
	while kill -0 $$machine 2>/dev/null && ! grep -q '^running' $(TARGET)/machine.log; do sleep 0.1; done; \
	nice -n 10 $(TEST) --no-run; $(call STEP,compiling the other tests beside the machine); \
	RUST_TEST_THREADS=$$((2 * $$(nproc))) nice -n 10 $(TEST) 2>&1 | tee $(TARGET)/test.log; $(call STEP,tests beside the machine); \
	$(SECONDS_OF_PROGRAMS); \
	echo 'waiting for the virtual machine'; ended=0; wait $$machine || ended=$$?; $(call STEP,the rest of the machine); \
	tee -a $(TARGET)/test.log <$(TARGET)/machine.log; [ $$ended = 0 ]; \
	$(call SUMMARY,$(TARGET)/seconds)

# The update takes longest, and as the last of all it would have the machine for itself: it begins with the others.
.PHONY: e2e
e2e: ## The other tests in virtual machines and the cluster on namespaces; prints the slowest.
	@start=$$SECONDS; step=$$start; $(call ROOM,e2e,25); rm -f $(TARGET)/steps $(TARGET)/e2e/seconds; \
	$(MAKE) --no-print-directory setup binaries kubernetes; $(call STEP,packages and programs and Kubernetes); \
	$(TEST) --no-run --test e2e; $(call STEP,compiling the tests); \
	setsid $(E2E) update:: >$(TARGET)/machine.log 2>&1 & machine=$$!; \
	trap 'kill -- -$$machine 2>/dev/null || true' EXIT; \
	$(E2E) --skip install_uefi:: --skip update:: 2>&1 | tee $(TARGET)/test.log; $(call STEP,tests beside the update); \
	echo 'waiting for the update'; ended=0; wait $$machine || ended=$$?; $(call STEP,the rest of the update); \
	tee -a $(TARGET)/test.log <$(TARGET)/machine.log; [ $$ended = 0 ]; \
	$(call SUMMARY,$(TARGET)/e2e/seconds)

# The answers of the machine; without them a person gives them.
CONFIG ?= configs/trial/node.yaml

.PHONY: run
run: ## Install the ISO in QEMU on a disk to throw away, and wait until the node is ready; CONFIG= asks the questions.
	@[ '$(ARCHITECTURE)' = amd64 ] || { \
	  printf 'error: make run starts a machine with x86, and ARCHITECTURE is $(ARCHITECTURE)\n  next: Leave ARCHITECTURE out, or start the ISO for $(ARCHITECTURE) in qemu-system-aarch64.\n' >&2; exit 2; }
	@$(MAKE) --no-print-directory iso
	@iso=$$(ls $(OUTPUT)/*-amd64.iso $(OUTPUT)/amd64/*-amd64.iso 2>/dev/null | head -n 1 || true); \
	[ -n "$$iso" ] || { \
	  printf 'error: $(DEFINITION) made no ISO for amd64 in $(OUTPUT), and make run starts a machine with x86\n  next: Name a definition for amd64: make run DEFINITION=FILE.\n' >&2; exit 2; }; \
	ACCEL='$(ACCEL)' OVMF='$(OVMF)' configs/trial/run.sh $(PROGRAMS)/iso-builder "$$iso" $(TARGET)/run $(CONFIG)

# Three parts need the release of Kubernetes. `kubernetes-programs` builds another, and `first-build` needs two other builders:
# each takes a quarter of an hour, and is only measured where it is named.
.PHONY: bench
bench: $(if $(PARTS),$(if $(filter cluster default-medium ready,$(PARTS)),kubernetes),kubernetes)
bench: ## Measure builds, an install, the network server, a cluster and an emulated node, or only PARTS; writes target/bench.json.
	$(MAKE) setup $(if $(filter first-build,$(PARTS)),HOST_PACKAGES="$(HOST_PACKAGES) live-build mkosi")
	$(MAKE) binaries PROFILE=release
	$(CARGO) run -q --release --locked -p nqrust-bench -- $(PARTS)

# Each round is a whole run with the tests in their own order, so what fails once in ten is seen; the cluster of three
# machines, which takes a machine for itself, is part of it. Power cuts and faults of the unit tests come in their long
# form, with other random numbers each time.
.PHONY: soak
soak: setup kubernetes kubernetes-before system-upgrade-controller ## Run the end-to-end tests ROUNDS times (10 unless set); stops at the first failure.
	$(MAKE) binaries PROFILE=release
	$(MAKE) installer-arm64 kubernetes ARCHITECTURE=arm64
	for round in $$(seq $(or $(ROUNDS),10)); do \
	  echo "round $$round"; \
	  $(TEST) --lib -- --ignored iso9660::; \
	  $(TEST) --test fleet -- --ignored; \
	  NQRUST_SEED=$$RANDOM $(TEST) --test replicas -- --ignored; \
	  NQRUST_SEED=$$RANDOM NQRUST_FAULTS=all $(TEST) --lib -- execute::; \
	  $(E2E) --include-ignored; \
	done

# Each fuzzer begins with the documents of the configuration's tests, which are cases of tables there, and a small OS
# image. The sanitizers are options that the compiler offers only in its nightly form, or when told that it may.
# Leaks are not looked for: a thread of a scope that is over may still be ending, and counts as one.
.PHONY: fuzz
fuzz: ## Fuzz what reads documents and images from outside, or only TARGETS, MINUTES for each (10 unless set).
	$(MAKE) host HOST_PACKAGES="$(HOST_PACKAGES) g++"
	command -v cargo-fuzz >/dev/null || $(CARGO) install cargo-fuzz --locked
	rm -rf $(TARGET)/fuzz/seeds && mkdir -p $(TARGET)/fuzz/seeds
	awk -v seeds=$(TARGET)/fuzz/seeds '/^=== / { close(seed); seed = seeds "/" ++number ".yaml"; inside = 1; next } \
	  /^--- expected$$/ { inside = 0 } inside { print > seed }' crates/model/tests/corpus/*/*.txt
	mksquashfs tests/fuzz/fuzz_targets $(TARGET)/fuzz/seeds/image -quiet -no-progress -comp zstd
	for target in $(or $(TARGETS),$$(sed -n 's/^name = "\([a-z]*\)"$$/\1/p' tests/fuzz/Cargo.toml)); do \
	  mkdir -p $(TARGET)/fuzz/$$target; \
	  ASAN_OPTIONS=detect_leaks=0 RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run --fuzz-dir tests/fuzz --target-dir $(TARGET)/fuzz/build $$target \
	    $(TARGET)/fuzz/$$target $(TARGET)/fuzz/seeds -- -max_total_time=$$((60 * $(or $(MINUTES),10))); \
	done

.PHONY: clean
clean: ## Remove everything that was built here; the build cache in the user's cache directory stays.
	$(CARGO) clean
	rm -rf $(OUTPUT)
