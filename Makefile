# Two commands: `make serve` and `make test`. Everything else is listed by `make help`.
PRESET ?= cpu
BUILD   = build/$(PRESET)
PORT   ?= 8000
MODEL  ?= models/demo
SECONDS ?= 20
JOBS   ?= $(shell nproc)
FLAGS  ?=

# `make -j` would install packages twice at a time and configure one build folder twice at a time; what takes long,
# compilers and tests, is parallel by itself (JOBS).
.NOTPARALLEL:
.PHONY: help serve build test cuda unit api check tidy fuzz deps deps-test install

help:
	@echo "make serve [MODEL=models/demo] [PORT=8000] [FLAGS='--max-num-seqs 16']"
	@echo "make test                 install what is missing, build, run every test"
	@echo "make build [PRESET=cpu]   presets: cpu, cuda, asan, tsan"
	@echo "make fuzz [SECONDS=20]    libFuzzer on every parser of untrusted bytes"
	@echo "make cuda                 the CUDA build, where there is nvcc"
	@echo "make check                includes and names against rooms, formatting, half a minute of clang-tidy"
	@echo "make tidy [FILES='src/..'] clang-tidy on these, or on all that changed since it was clean"
	@echo "make install DESTDIR= PREFIX=/usr/local"

deps:
	@tools/install_deps.sh build

deps-test:
	@tools/install_deps.sh test

# `skiff` in the checkout's root is a link to the program built last.
build: deps
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) -DSKIFF_TESTS=OFF
	@cmake --build $(BUILD) --target skiff -j $(JOBS)
	@ln -sfn $(BUILD)/skiff skiff

serve: build
	@exec ./skiff serve $(MODEL) --port $(PORT) $(FLAGS)

unit: deps-test
	@grep -qs '^SKIFF_TESTS:BOOL=ON' $(BUILD)/CMakeCache.txt || cmake --preset $(PRESET) -DSKIFF_TESTS=ON
	@cmake --build $(BUILD) -j $(JOBS)
	@ln -sfn $(BUILD)/skiff skiff
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

api: unit
	@SKIFF_BIN=$(CURDIR)/$(BUILD)/skiff .venv/bin/python -m pytest -q -rs tests

check: deps-test
	@test -f $(BUILD)/compile_commands.json || cmake --preset $(PRESET) -DSKIFF_TESTS=ON >/dev/null
	@python3 tools/check_rooms.py
	@python3 tools/check_names.py
	@python3 tools/mutants.py --match
	@tools/check_format.sh
	@python3 tools/check_tidy.py --build $(BUILD) --seconds 30

# Some ten seconds a file; what was clean and has not changed since is not looked at again.
tidy:
	@python3 tools/check_tidy.py --build $(BUILD) --all $(FILES)

test: check unit api cuda

# The CUDA build, for one architecture, where there is a compiler for it.
cuda: deps
	@if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then \
	  export PATH=$$PATH:/usr/local/cuda/bin; \
	  cmake --preset cuda -DSKIFF_TESTS=OFF >/dev/null && cmake --build build/cuda --target skiff -j $(JOBS); \
	else echo "cuda: skipped, there is no nvcc"; fi

fuzz:
	@tools/install_deps.sh fuzz
	@tools/fuzz.sh $(SECONDS)

PREFIX ?= /usr/local
install: build
	cmake --build $(BUILD) --target libskiff -j $(JOBS)
	install -D -m 755 $(BUILD)/skiff $(DESTDIR)$(PREFIX)/bin/skiff
	install -D -m 755 $(BUILD)/libskiff.so.1 $(DESTDIR)$(PREFIX)/lib/libskiff.so.1
	ln -sfn libskiff.so.1 $(DESTDIR)$(PREFIX)/lib/libskiff.so
	install -D -m 644 src/capi/skiff.h $(DESTDIR)$(PREFIX)/include/skiff.h
