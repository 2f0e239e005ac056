#!/bin/sh
# run.sh [all|c|lua|parity|wine]: run the suites, one process per file with a time
# limit, print the runners' own closing lines, and close with one line
# "N passed, N failed, N skipped". Exit 1 when anything failed.
#
# As root, the suites about confinement (spec/e2e, spec/parity) run again as
# uid 65534: root's capabilities change results. Set DSH_TEST_NOBODY=0 to skip.
what=${1:-all}
B=${B:-build}
BUSTED=${BUSTED:-lua5.4 /usr/bin/busted}
LIMIT=${DSH_TEST_LIMIT:-300}
cd "$(dirname "$0")/.." || exit 1
case $B in /*) ;; *) B=$PWD/$B ;; esac
passed=0 failed=0 skipped=0
work=$(mktemp -d "${TMPDIR:-/tmp}/dshsh-test.XXXXXX") || exit 1
nobody= copy=
trap 'rm -rf "$work" ${nobody:+"$nobody"} ${copy:+"$copy"}' EXIT
trap 'exit 130' INT TERM

add() { # passed failed skipped
  passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

run_c() {
  for t in "$B"/test/test_* "$B"/test/fuzz_*; do
    [ -x "$t" ] || continue
    case $t in *.d | *.o) continue ;; esac
    name=$(basename "$t")
    case $name in
      test_*) src=spec/c/$name.c ;;
      *) src=spec/fuzz/$name.c ;;
    esac
    [ -f "$src" ] || continue
    timeout -s KILL "$LIMIT" "$t" >"$work/out" 2>&1
    rc=$?
    p=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$work/out" | tail -1)
    f=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$work/out" | tail -1)
    s=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$work/out" | tail -1)
    if [ -z "$p" ] || { [ $rc != 0 ] && [ "${f:-0}" = 0 ]; }; then
      f=$((${f:-0} + 1))
      echo "$name: ended with status $rc"
    fi
    if [ "${f:-0}" != 0 ]; then cat "$work/out"; fi
    grep -E '^\[  (PASSED|FAILED|SKIPPED) ' "$work/out" | grep test |
      sed "s/^/$name: /"
    add "${p:-0}" "${f:-0}" "${s:-0}"
  done
}

# run_busted FILE LABEL PREFIX…: one file through busted.
run_busted() {
  file=$1 label=$2
  shift 2
  timeout -s KILL "$LIMIT" "$@" $BUSTED "$file" >"$work/out" 2>&1
  rc=$?
  line=$(grep -E '^[0-9]+ success(es)? / [0-9]+ failure' "$work/out" | tail -1)
  if [ -z "$line" ]; then
    cat "$work/out"
    echo "$file$label: ended with status $rc and no closing line"
    add 0 1 0
    return
  fi
  set -- $line
  bad=$(($4 + $7))
  [ $rc = 0 ] || [ $bad != 0 ] || bad=1
  if [ $bad != 0 ]; then cat "$work/out"; else
    grep -A3 '^Pending' "$work/out" | grep -vE '^(--)?$' |
      sed 's/^/  /' >>"$work/pending"
  fi
  echo "$file$label: $line"
  add "$1" "$bad" "${10}"
}

run_lua() {
  for f in $(find "$@" -name '*_spec.lua' | sort); do
    run_busted "$f" "" env DSH_BUILD="$B"
  done
}

# A copy of what the specs need: TREE/build has the programs.
copy_tree() {
  mkdir -p "$1/src" "$1/build" || return 1
  cp -a .busted lua spec "$1/"
  cp -a src/dsh.h "$1/src/" # dsh.paths knows a source tree by this file
  for d in profiles examples README.md; do
    [ ! -e $d ] || cp -a $d "$1/"
  done
  for f in "$B"/dshsh "$B"/landlock-run "$B"/dsh-probe "$B"/test; do
    [ ! -e "$f" ] || cp -a "$f" "$1/build/"
  done
}

# A checkout under /tmp lies in a writable place of every workspace-write
# policy, which Landlock rightly refuses: the specs then run in a copy.
run_here() {
  case $PWD/ in
    /tmp/* | "${TMPDIR:-/tmp}"/*)
      copy=$(mktemp -d /var/tmp/dshsh-tree.XXXXXX) || exit 1
      copy_tree "$copy"
      here=$PWD old=$B B=$copy/build
      cd "$copy" || exit 1
      run_lua "$@"
      cd "$here" || exit 1
      B=$old
      ;;
    *) run_lua "$@" ;;
  esac
}

# A checkout that uid 65534 cannot enter is copied to where it can.
run_nobody() {
  [ "$(id -u)" = 0 ] && [ "${DSH_TEST_NOBODY:-1}" = 1 ] || return 0
  command -v setpriv >/dev/null || return 0
  nobody=$(mktemp -d /var/tmp/dshsh-nobody.XXXXXX) || return 0
  chmod 755 "$nobody"
  mkdir "$nobody/home" "$nobody/tmp"
  chown 65534:65534 "$nobody/home" "$nobody/tmp"
  copy_tree "$nobody/tree"
  chown -R 0:0 "$nobody/tree"
  chmod -R go+rX,go-w "$nobody/tree"
  here=$PWD
  cd "$nobody/tree" || exit 1
  for f in $(find "$@" -name '*_spec.lua' | sort); do
    run_busted "$f" " (uid 65534)" setpriv --reuid=65534 --regid=65534 \
      --clear-groups env -i PATH="$PATH" \
      HOME="$nobody/home" TMPDIR="$nobody/tmp" LC_ALL=C.UTF-8 \
      DSH_BUILD="$nobody/tree/build"
  done
  cd "$here" || exit 1
}

export HOME="${DSH_TEST_HOME:-$HOME}" TERM="${TERM:-dumb}"
case $what in
  c) run_c ;;
  lua) run_here spec/unit spec/e2e spec/parity ;;
  wine) run_here spec/windows ;;
  parity) run_here spec/parity; run_nobody spec/parity ;;
  all)
    run_c
    run_here spec/unit spec/e2e spec/parity
    run_nobody spec/e2e spec/parity
    ;;
  *) echo "run.sh: unknown suite '$what'" >&2; exit 2 ;;
esac
if [ -s "$work/pending" ]; then
  echo "pending:"
  cat "$work/pending"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
