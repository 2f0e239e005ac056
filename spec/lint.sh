#!/bin/sh
# lint.sh: what no compiler checks. Run from the top of the tree.
bad=0
say() { echo "lint: $*" >&2; bad=1; }

files=$(git ls-files '*.c' '*.h' '*.lua' 2>/dev/null)
[ -n "$files" ] || files=$(find src backends lua spec examples profiles \
  -name '*.[ch]' -o -name '*.lua')
${LUA:-lua5.4} spec/lint.lua $files || bad=1
for f in $(grep -lE '#include *[<"](lua|lauxlib|lualib)\.h' src/*.c \
    backends/*.c 2>/dev/null); do
  case $f in
    src/lua_*.c | src/dshsh.c) ;;
    *) say "$f includes Lua headers; only src/lua_*.c and src/dshsh.c may" ;;
  esac
done
if command -v luacheck >/dev/null 2>&1; then
  dirs=
  for d in lua spec examples profiles; do
    [ -n "$(find $d -name '*.lua' 2>/dev/null)" ] && dirs="$dirs $d"
  done
  luacheck -q --no-color $dirs || bad=1
fi
exit $bad
