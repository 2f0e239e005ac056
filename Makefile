# dshsh: `make help` lists the targets. Settings first; CFLAGS is yours.

CC      ?= cc
CLANG   ?= clang
MUSL_CC ?= musl-gcc
WIN_CC  ?= x86_64-w64-mingw32-gcc
CFLAGS  ?= -O2 -g
LUA     ?= lua5.4
BUSTED  ?= $(LUA) /usr/bin/busted
PREFIX  ?= /usr/local
B       ?= build
FUZZ_SECONDS ?= 20

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
  -Wmissing-prototypes -Wwrite-strings -Wundef -Wvla -Wformat=2 -Wswitch-enum
PKGS := lua5.4 libzstd yaml-0.1 jansson libedit
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(shell pkg-config --libs libzstd yaml-0.1 jansson libedit \
  2>/dev/null)
LUA_LIBS := $(shell pkg-config --libs lua5.4 2>/dev/null)
BASE := -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -pthread -MMD -MP \
  $(WARN) $(PKG_CFLAGS) -Isrc -I$(B)/gen
# The launcher takes its kernel headers from the system, after musl's own.
STATIC := -std=c11 -D_GNU_SOURCE -Os -g -static -fno-pie -no-pie \
  -fdata-sections -ffunction-sections -MMD -MP $(WARN) -Isrc -I$(B)/gen \
  -idirafter /usr/include -idirafter /usr/include/$(shell uname -m)-linux-gnu

# --- what there is ---------------------------------------------------------

GEN_SRC  := $(wildcard backends/gen_*.c)
GEN      := $(GEN_SRC:backends/gen_%.c=$(B)/gen/%_programs.h)
# backends/: pure planners belong to the core; the launcher, the probe program
# and the Windows runner are programs of their own; gen_* runs at build time.
PLANNERS := $(wildcard backends/bwrap*.c backends/landlock.c \
  backends/seatbelt*.c backends/winacl.c backends/custom.c)
CORE_SRC := $(filter-out src/lua_%.c src/dshsh.c,$(wildcard src/*.c)) \
  $(PLANNERS)
LUA_SRC  := $(wildcard src/lua_*.c)
RUN_SRC  := $(filter-out $(PLANNERS) backends/gen_% backends/dsh_probe% \
  backends/windows_%,$(wildcard backends/*.c)) $(wildcard src/restrict*.c)
PROBE_SRC := $(wildcard backends/dsh_probe*.c)
WIN_SRC  := $(wildcard backends/windows_acl_run*.c)
CORE_OBJ := $(CORE_SRC:%.c=$(B)/obj/%.o)
LUA_OBJ  := $(LUA_SRC:%.c=$(B)/obj/%.o)
RUN_OBJ  := $(RUN_SRC:%.c=$(B)/static/%.o)
PROBE_OBJ := $(PROBE_SRC:%.c=$(B)/static/%.o)
STATIC_BIN := $(if $(wildcard backends/landlock_run.c),$(B)/landlock-run) \
  $(if $(PROBE_SRC),$(B)/dsh-probe)
C_TESTS  := $(patsubst spec/c/%.c,$(B)/test/%,$(wildcard spec/c/test_*.c))
HELPERS  := $(B)/test/hostmask $(B)/test/landlock-run-faulty
FUZZERS  := $(patsubst spec/fuzz/%.c,%,$(wildcard spec/fuzz/fuzz_*.c))
REPLAYS  := $(FUZZERS:%=$(B)/test/%)

# --- build -----------------------------------------------------------------

.PHONY: all
all: lua/dsh/core.so $(B)/dshsh $(STATIC_BIN) ## build everything

$(B)/obj/%.o: %.c | $(GEN)
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -c -o $@ $<

$(B)/static/%.o: %.c | $(GEN)
	@mkdir -p $(@D)
	$(MUSL_CC) $(STATIC) -c -o $@ $<

$(B)/gen/%_programs.h: backends/gen_%.c $(wildcard src/syscalls.h src/uapi.h)
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE $(WARN) -Isrc -o $(B)/gen/$* $<
	$(B)/gen/$* >$@.tmp && mv $@.tmp $@

$(B)/libdsh.a: $(CORE_OBJ)
	rm -f $@ && $(AR) rcs $@ $^

lua/dsh/core.so: $(LUA_OBJ) $(B)/libdsh.a
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -pthread -Wl,-z,nodelete -o $@.tmp $^ $(PKG_LIBS)
	mv $@.tmp $@

$(B)/dshsh: $(B)/obj/src/dshsh.o $(LUA_OBJ) $(B)/libdsh.a
	$(CC) $(CFLAGS) $(LDFLAGS) -pthread -Wl,-E -o $@ $^ $(PKG_LIBS) $(LUA_LIBS)

$(B)/landlock-run: $(RUN_OBJ)
	$(MUSL_CC) -static -no-pie -s -Wl,--gc-sections -o $@ $^

# With faults: restrictions can be left out by name, so that tests can see
# the grades drop. Never installed.
$(B)/faulty/%.o: %.c | $(GEN)
	@mkdir -p $(@D)
	$(MUSL_CC) $(STATIC) -DDSH_FAULTS -c -o $@ $<

$(B)/test/landlock-run-faulty: $(RUN_SRC:%.c=$(B)/faulty/%.o)
	@mkdir -p $(@D)
	$(MUSL_CC) -static -no-pie -s -Wl,--gc-sections -o $@ $^

$(B)/dsh-probe: $(PROBE_OBJ)
	$(MUSL_CC) -static -no-pie -s -Wl,--gc-sections -o $@ $^

.PHONY: install
install: all ## install under PREFIX (DESTDIR is respected)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/dshsh
	install $(B)/dshsh $(DESTDIR)$(PREFIX)/bin/dshsh
	for f in $(STATIC_BIN); do \
	  install $$f $(DESTDIR)$(PREFIX)/libexec/dshsh/ || exit 1; done
	for f in $$(find lua/dsh -name '*.lua' -o -name '*.so'); do \
	  install -D -m 644 $$f \
	    $(DESTDIR)$(PREFIX)/share/dshsh/$${f#lua/} || exit 1; done
	for f in $$(find profiles -type f 2>/dev/null); do install -D -m 644 \
	  $$f $(DESTDIR)$(PREFIX)/share/dshsh/$$f || exit 1; done

# --- dependencies and the demonstration ------------------------------------

.PHONY: deps deps-build try
deps: ## install what is missing (Debian or Ubuntu packages)
	@sh .ci/deps all
deps-build:
	@sh .ci/deps build
try: deps-build ## install, build, and confine a real command
	@$(MAKE) --no-print-directory -s all
	@sh .ci/try

# --- tests -----------------------------------------------------------------

.PHONY: test test-all test-c test-lua parity bench lint tidy fuzz asan \
  windows wine helpers check
test: deps ## install, build, lint and run every test
	@$(MAKE) --no-print-directory -s all helpers lint
	@$(MAKE) --no-print-directory -s check
test-all: test wine asan fuzz bench ## the tests, sanitizers, fuzzers, figures

check: all helpers $(C_TESTS) $(REPLAYS)
	@B=$(B) BUSTED="$(BUSTED)" sh spec/run.sh
test-c: $(C_TESTS) $(REPLAYS) ## the C tests alone
	@B=$(B) sh spec/run.sh c
test-lua: all helpers ## the Lua tests alone, as this user
	@B=$(B) BUSTED="$(BUSTED)" sh spec/run.sh lua
parity: all helpers ## the same cases on every backend, side by side
	@B=$(B) BUSTED="$(BUSTED)" sh spec/run.sh parity
	@LUA_PATH='lua/?.lua;lua/?/init.lua;;' LUA_CPATH='lua/?.so;;' \
	  $(LUA) spec/parity/table.lua README.md backends/README.md
helpers: $(HELPERS)

$(B)/test/hostmask: spec/hostmask.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -o $@ $<

$(B)/test/test_%: spec/c/test_%.c $(B)/libdsh.a
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -Ispec/c -o $@ $< $(B)/libdsh.a $(LDFLAGS) \
	  $(PKG_LIBS) -lcmocka

# The fuzz corpus is replayed in the ordinary tests.
$(B)/test/fuzz_%: spec/fuzz/fuzz_%.c spec/fuzz/replay.c $(B)/libdsh.a
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -Ispec/c -o $@ spec/fuzz/fuzz_$*.c \
	  spec/fuzz/replay.c $(B)/libdsh.a $(LDFLAGS) $(PKG_LIBS)

$(B)/fuzz/fuzz_%: spec/fuzz/fuzz_%.c $(CORE_SRC)
	@mkdir -p $(@D)
	$(CLANG) $(filter-out -MMD -MP,$(BASE)) -O1 -g \
	  -fsanitize=fuzzer,address,undefined -o $@ $^ $(PKG_LIBS)

fuzz: $(GEN) $(FUZZERS:%=$(B)/fuzz/%) ## each fuzzer for FUZZ_SECONDS
	@for f in $(FUZZERS); do n=$${f#fuzz_}; mkdir -p $(B)/corpus/$$n; \
	  echo "== $$f"; (cd $(B)/corpus && timeout -s KILL \
	  $$(($(FUZZ_SECONDS) + 60)) ../fuzz/$$f -verbosity=0 -print_final_stats=1 \
	  -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=1024 $$n \
	  $$(test -d ../../spec/fuzz/corpus/$$n && \
	     echo ../../spec/fuzz/corpus/$$n)) || exit 1; done

asan: ## the C tests under the address and undefined sanitizers
	@$(MAKE) --no-print-directory -s B=$(B)/asan \
	  CFLAGS="-O1 -g -fsanitize=address,undefined" test-c

bench: all ## ratios against bare calls, one interleaved run
	@mkdir -p $(B)/test
	@$(CC) $(BASE) -O2 -shared -o $(B)/test/benchlib.so spec/bench/benchlib.c
	@for f in spec/bench/bench_*.lua; do echo "== $$f"; \
	  LUA_PATH='spec/bench/?.lua;lua/?.lua;lua/?/init.lua;;' \
	  LUA_CPATH='lua/?.so;$(B)/test/?.so;;' $(LUA) $$f || exit 1; done

# gcc and clang must both be silent; clang only checks.
lint: $(GEN) ## warnings under gcc and clang, luacheck, form
	@sh spec/lint.sh
	@for c in $(CC) $(CLANG); do command -v $$c >/dev/null || continue; \
	  for f in $(CORE_SRC) $(LUA_SRC) src/dshsh.c; do \
	    $$c $(filter-out -MMD -MP,$(BASE)) -O1 -Werror -fsyntax-only $$f \
	    || exit 1; done; done
	@for f in $(if $(STATIC_BIN),$(RUN_SRC)) $(PROBE_SRC); do $(MUSL_CC) \
	  $(filter-out -MMD -MP,$(STATIC)) -Werror -fsyntax-only $$f \
	  || exit 1; done
	@echo "lint: clean"

tidy: $(GEN) ## clang-tidy over the core
	clang-tidy --quiet $(CORE_SRC) $(LUA_SRC) src/dshsh.c -- \
	  $(filter-out -MMD -MP,$(BASE))

# Windows: the runner, and for the tests under wine the same without its token
# step (spec/windows/no_token.c is never part of the installed program).
WIN_FLAGS = -std=c11 -municode -O2 $(WARN) -Isrc -static
WIN_LIBS := -ladvapi32
WIN_TEST := $(B)/test/windows/no-token.exe $(B)/test/windows/trial.exe
windows: $(B)/windows-acl-run.exe ## cross-build the Windows runner
$(B)/windows-acl-run.exe: $(WIN_SRC) $(wildcard backends/windows_*.h)
	@mkdir -p $(@D)
	$(WIN_CC) $(WIN_FLAGS) -s -o $@ $(WIN_SRC) $(WIN_LIBS)
$(B)/test/windows/no-token.exe: $(WIN_SRC) spec/windows/no_token.c
	@mkdir -p $(@D)
	$(WIN_CC) $(WIN_FLAGS) -o $@ \
	  $(filter-out %_token.c,$(WIN_SRC)) spec/windows/no_token.c $(WIN_LIBS)
$(B)/test/windows/trial.exe: spec/windows/trial.c $(WIN_SRC)
	@mkdir -p $(@D)
	$(WIN_CC) $(WIN_FLAGS) -o $@ $< backends/windows_acl_run_args.c \
	  backends/windows_acl_run_sid.c
wine: all helpers ## the Windows runner's tests under wine
	@B=$(B) BUSTED="$(BUSTED)" sh spec/run.sh wine
helpers: $(if $(shell command -v $(WIN_CC)),$(B)/windows-acl-run.exe \
  $(WIN_TEST))

.PHONY: clean help
clean: ## remove build products
	rm -rf $(B) lua/dsh/core.so

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | \
	  sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | \
	  awk -F'|' '{ printf "  make %-10s %s\n", $$1, $$2 }'

-include $(shell find $(B) -name '*.d' 2>/dev/null)
