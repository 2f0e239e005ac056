# dshsh: `make help` lists the targets. Settings first; CFLAGS is yours.

CC      ?= cc
MUSL_CC ?= musl-gcc
CFLAGS  ?= -O2 -g
LUA     ?= lua5.4
PREFIX  ?= /usr/local
B       := build

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
  -Wmissing-prototypes -Wwrite-strings -Wundef -Wvla -Wformat=2 -Wswitch-enum
PKGS := lua5.4 libzstd yaml-0.1 jansson libedit
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS   := $(shell pkg-config --libs libzstd yaml-0.1 jansson libedit 2>/dev/null)
LUA_LIBS   := $(shell pkg-config --libs lua5.4 2>/dev/null)
BASE := -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -pthread -MMD -MP \
  $(WARN) $(PKG_CFLAGS) -Isrc

CORE_SRC := $(filter-out src/lua_%.c src/dshsh.c,$(wildcard src/*.c)) \
  $(wildcard backends/bwrap.c backends/landlock.c backends/seatbelt.c \
    backends/winacl.c backends/custom.c)
LUA_SRC  := $(wildcard src/lua_*.c)
CORE_OBJ := $(CORE_SRC:%.c=$(B)/obj/%.o)
LUA_OBJ  := $(LUA_SRC:%.c=$(B)/obj/%.o)

.PHONY: all clean help
all: lua/dsh/core.so ## build everything

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -c -o $@ $<

$(B)/libdsh.a: $(CORE_OBJ)
	rm -f $@ && $(AR) rcs $@ $^

lua/dsh/core.so: $(LUA_OBJ) $(B)/libdsh.a
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -pthread -o $@ $^ $(PKG_LIBS)

clean: ## remove build products
	rm -rf $(B) lua/dsh/core.so

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

-include $(CORE_OBJ:.o=.d) $(LUA_OBJ:.o=.d)
