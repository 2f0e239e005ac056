--- Real programs work confined: what they answer bare, they answer under both
-- modes and both backends, where no forbidden write is involved.
local h = require("helpers")
local dsh = require("dsh")

-- {name, program that must be there, script, modes}. A script runs in a fresh
-- directory D (writable under workspace-write). "ro" scripts write nothing.
local BOTH, WS = { "read-only", "workspace-write" }, { "workspace-write" }
local PROGRAMS = {
  { "bash", "bash", "x=(a b); echo ${x[1]} $((6*7)); cat <(echo sub)", BOTH },
  { "bash here-document", "bash", "cat <<E\nhere $((1+1))\nE", WS },
  { "dash", "dash", "dash -c 'for i in 1 2 3; do echo a | cat | cat; done'",
    BOTH },
  { "zsh here-document", "zsh", "zsh -fc 'cat <<E\nhere\nE'", WS },
  { "null device", "sh", "echo gone > /dev/null; echo kept > /dev/stdout",
    BOTH },
  { "python3", "python3", "python3 -c 'import json; print(json.dumps([1]))'",
    BOTH },
  { "python3 multiprocessing", "python3", [[cat > p.py <<E
import multiprocessing as m
def f(x): return x * x
if __name__ == "__main__":
    with m.Pool(2) as p: print(p.map(f, [1, 2, 3]))
    s = m.Semaphore(1); s.acquire(); s.release()
E
python3 p.py]], WS },
  { "python3 tempfile", "python3",
    "python3 -c 'import tempfile; f = tempfile.NamedTemporaryFile(); "
    .. "f.write(b\"x\"); print(f.tell())'", WS },
  { "python3 venv", "python3", "python3 -m venv --without-pip v && "
    .. "v/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'",
    WS },
  { "python3 pty", "python3", "python3 -c 'import os; m, s = os.openpty(); "
    .. "os.write(s, b\"hi\"); print(os.read(m, 9), os.isatty(s))'", BOTH },
  { "node", "node", "node -e 'console.log([1,2].map(x => x * 2).join())'",
    BOTH },
  { "node files", "node", "node -e 'const f = require(\"fs\"); "
    .. "f.writeFileSync(\"a\", \"x\"); f.chmodSync(\"a\", 0o600); "
    .. "console.log(f.statSync(\"a\").mode & 0o777)'", WS },
  { "git", "git", "git init -q r && cd r && echo x > a && git add a && git -c "
    .. "user.name=n -c user.email=e@x commit -qm m && git status --short && "
    .. "git log --format=%s && git worktree add -q ../wt && ls ../wt", WS },
  { "make and gcc", "gcc", "printf 'int main(void){return 7;}' > m.c && "
    .. "printf 'm: m.c\\n\\tgcc -o m m.c\\n' > Makefile && make -s m && ./m; "
    .. "echo $?", WS },
  { "rustc", "rustc", "printf 'fn main(){println!(\"rust\");}' > m.rs && "
    .. "rustc m.rs 2>/dev/null && ./m", WS },
  { "npm", "npm", "npm init -y >/dev/null 2>&1 && npm --offline ls --json | "
    .. "grep -c version", WS },
  { "tar", "tar", "mkdir t && echo x > t/a && chmod 640 t/a && tar cf t.tar t "
    .. "&& rm -r t && tar xpf t.tar && stat -c %a t/a", WS },
  { "cp -a", "cp", "echo x > a && chmod 640 a && touch -d 2001-01-01 a && "
    .. "cp -a a b && stat -c '%a %Y' b", WS },
  { "install", "install", "echo x > a && install -m 755 a b && stat -c %a b",
    WS },
  { "rsync", "rsync", "mkdir s && echo x > s/a && rsync -a s/ d/ && cat d/a",
    WS },
  { "sqlite3 in WAL mode", "sqlite3", "sqlite3 x.db 'pragma "
    .. "journal_mode=wal; create table t(a); insert into t values(5); "
    .. "select a from t;'", WS },
  { "sed -i", "sed", "echo old > a && chmod 640 a && sed -i s/old/new/ a && "
    .. "cat a && stat -c %a a", WS },
  { "rename between directories", "python3", "mkdir a b && echo x > a/f && "
    .. "python3 -c 'import os; os.rename(\"a/f\", \"b/f\")' && cat b/f", WS },
  { "vi", "vi", "echo one > a && vi -es -c 's/one/two/' -c wq a </dev/null; "
    .. "cat a", WS },
  { "less", "less", "echo text | less -FX", BOTH },
  { "script on a pty", "script", "script -qec 'echo on; test -t 1 && echo "
    .. "tty' /dev/null | tr -d '\\r'", BOTH },
  { "tmux", "tmux", "tmux -L dshsh-$$ -f /dev/null new-session -d 'test -t 1 "
    .. "&& echo in tmux > out' && for i in 1 2 3 4 5 6 7 8 9; do test -s out "
    .. "&& break; sleep 0.2; done; cat out", WS },
  { "ssh", "ssh", "ssh -V 2>&1 | cut -c1-7", BOTH },
  { "gpg", "gpg", "gpg --version 2>/dev/null | head -n1", BOTH },
  { "apt-get", "apt-get", "apt-get --version | head -n1", BOTH },
  { "find", "find", "find /usr/bin -name env", BOTH },
  { "ps", "ps", "ps -o comm= -p $$", BOTH },
}

local function installed(program)
  return h.exec({ "sh", "-c", "command -v " .. program }).code == 0
end

local function in_fresh(base, n, script)
  local dir = ("%s/%d"):format(base, n)
  assert(os.execute("mkdir -p " .. h.quote(dir)))
  return { "bash", "-c", ("cd %s && { %s\n}"):format(h.quote(dir), script) }
end

describe("programs", function()
  h.guard()
  for _, backend in ipairs(h.backends()) do
    for _, p in ipairs(PROGRAMS) do
      local name, program, script, modes = p[1], p[2], p[3], p[4]
      it(("%s answers under %s as without it"):format(name, backend), function()
        if not installed(program) then
          pending(program .. " is not installed")
          return
        end
        local d = h.scratch()
        local env = { HOME = d.W, LC_ALL = "C" }
        local bare = h.exec(in_fresh(d.W, 0, script), { env = env })
        for i, mode in ipairs(modes) do
          local ctx <close> = assert(dsh.open({ mode = mode,
            workspace_root = d.W, backend = backend }))
          local r = assert(ctx.sandbox:run(in_fresh(d.W, i, script),
            { env = env, timeout_ms = 60000 }))
          assert.equal("yes", r.started)
          assert.same({ mode, bare.code, bare.out },
            { mode, r.exit_code, r.stdout.text }, r.stderr.text)
        end
      end)
    end
  end
end)
