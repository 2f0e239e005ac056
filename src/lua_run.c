/* lua_run.c: dsh.core.run.
 *
 *   run.start(record, opts) -> run | nil, err
 *     record: what confine gave: {argv, confined, launcher, backend, …}
 *     opts: env = {"NAME=value", …}, cwd, stdin = "null" | "inherit" |
 *       "pipe" (stays open for run:write) | fd, input = bytes,
 *       stdout/stderr = "capture" | "inherit" | "null" | fd,
 *       pass_fds = {…}, timeout_ms, grace_ms, tail_bytes, spill_dir, pty,
 *       rows, cols, foreground, observe, no_keeper, keeper = path
 *   run.keeper(path?) -> the launcher's path | nil: for opts.keeper
 *   run:wait(ms?) -> "finished" | "stopped" | nil   (no ms: for ever)
 *   run:outcome() -> table | nil (not yet)
 *   run:abort(), run:signal(n) -> true | nil, err
 *   run:denials() -> list: takes out what was refused so far, while it runs
 *   run:read(stream, max?) -> bytes not yet read ("" if none), how many
 *     before them are lost
 *   run:write(bytes) -> count (0: not now) | nil, err
 *   run:close_input(), run:resize(rows, cols) -> true | nil, err
 *   run:close(), also by <close> and collection; ends what still runs */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lua_dsh.h"
#include "probe.h"

int ldsh_open_run(lua_State *L);

#define RUN "dsh.run"

enum { READ_MAX = 1 << 20, PASS_MAX = 64, DENIALS_TAKEN = 256 };

static struct dsh_run **check_box(lua_State *L) {
  return luaL_checkudata(L, 1, RUN);
}

static struct dsh_run *check_run(lua_State *L) {
  struct dsh_run *r = *check_box(L);
  if (!r)
    luaL_error(L, "run: is closed");
  return r;
}

/* --- start --------------------------------------------------------------- */

static void read_record(lua_State *L, int idx, struct dsh_arena *a,
                        struct dsh_plan *plan) {
  luaL_checktype(L, idx, LUA_TTABLE);
  ldsh_field_strv(L, idx, "record", "argv", a, &plan->argv);
  if (!plan->argv.n)
    luaL_error(L, "record.argv: is empty");
  plan->confined = ldsh_field_bool(L, idx, "record", "confined", false);
  plan->launcher = ldsh_field_bool(L, idx, "record", "launcher", false);
  plan->backend = ldsh_field_string(L, idx, "record", "backend", false);
  plan->argv_at = (size_t)ldsh_field_int(L, idx, "record", "argv_at", 0);
  if (plan->argv_at >= plan->argv.n)
    luaL_error(L, "record.argv_at: %d is outside argv", (int)plan->argv_at);
}

static enum dsh_stdio read_stdio(lua_State *L, int idx, const char *field,
                                 const char *pipe, enum dsh_stdio dflt,
                                 int *fd) {
  enum dsh_stdio kind = dflt;
  int type = lua_getfield(L, idx, field);
  const char *s = type == LUA_TSTRING ? lua_tostring(L, -1) : "";
  if (type == LUA_TNUMBER && lua_isinteger(L, -1)) {
    kind = DSH_STDIO_FD;
    *fd = (int)lua_tointeger(L, -1);
  } else if (strcmp(s, pipe) == 0) {
    kind = DSH_STDIO_PIPE;
  } else if (strcmp(s, "inherit") == 0) {
    kind = DSH_STDIO_INHERIT;
  } else if (strcmp(s, "null") == 0) {
    kind = DSH_STDIO_NULL;
  } else if (type != LUA_TNIL) {
    luaL_error(L, "opts.%s: expected \"null\", \"inherit\", \"%s\" or a "
                  "descriptor",
               field, pipe);
  }
  lua_pop(L, 1);
  return kind;
}

static void read_pass(lua_State *L, int idx, struct dsh_arena *a,
                      struct dsh_spawn_opts *o) {
  int *fds, i;
  if (lua_getfield(L, idx, "pass_fds") == LUA_TNIL) {
    lua_pop(L, 1);
    return;
  }
  luaL_argcheck(L, lua_type(L, -1) == LUA_TTABLE, idx,
                "opts.pass_fds: expected a list of descriptors");
  o->n_pass_fds = (size_t)luaL_len(L, -1);
  luaL_argcheck(L, o->n_pass_fds <= PASS_MAX, idx,
                "opts.pass_fds: too many descriptors");
  fds = dsh_alloc(a, (o->n_pass_fds + 1) * sizeof *fds);
  for (i = 0; fds && i < (int)o->n_pass_fds; i++) {
    lua_geti(L, -1, i + 1);
    if (!lua_isinteger(L, -1))
      luaL_error(L, "opts.pass_fds[%d]: expected a descriptor", i + 1);
    fds[i] = (int)lua_tointeger(L, -1);
    lua_pop(L, 1);
  }
  o->pass_fds = fds;
  lua_pop(L, 1);
}

static void read_opts(lua_State *L, int idx, struct dsh_arena *a,
                      struct dsh_spawn_opts *o) {
  static const char *const known[] = {
      "env",        "cwd",        "stdin",     "input",      "stdout",
      "stderr",     "pass_fds",   "timeout_ms", "grace_ms",  "tail_bytes",
      "spill_dir",  "pty",        "rows",      "cols",       "foreground",
      "observe",    "no_keeper",  "keeper",    NULL};
  struct dsh_strv env = {NULL, 0, 0};
  ldsh_check_fields(L, idx, "opts", known);
  ldsh_field_strv(L, idx, "opts", "env", a, &env);
  if (lua_getfield(L, idx, "env") != LUA_TNIL && !env.v)
    dsh_strv_add(a, &env, ""), env.v[--env.n] = NULL; /* an empty one */
  lua_pop(L, 1);
  o->env = env.v;
  o->cwd = ldsh_field_string(L, idx, "opts", "cwd", false);
  o->in = read_stdio(L, idx, "stdin", "pipe", DSH_STDIO_NULL, &o->in_fd);
  o->out = read_stdio(L, idx, "stdout", "capture", DSH_STDIO_PIPE, &o->out_fd);
  o->err = read_stdio(L, idx, "stderr", "capture", DSH_STDIO_PIPE, &o->err_fd);
  if (lua_getfield(L, idx, "input") != LUA_TNIL) {
    if (lua_type(L, -1) != LUA_TSTRING)
      luaL_error(L, "opts.input: expected string, got %s",
                 luaL_typename(L, -1));
    o->input = lua_tolstring(L, -1, &o->input_len); /* anchored by opts */
    o->in = DSH_STDIO_PIPE;
  }
  lua_pop(L, 1);
  read_pass(L, idx, a, o);
  o->timeout_ms = ldsh_field_int(L, idx, "opts", "timeout_ms", 0);
  o->grace_ms = ldsh_field_int(L, idx, "opts", "grace_ms", 0);
  o->tail_bytes = (size_t)ldsh_field_int(L, idx, "opts", "tail_bytes", 0);
  o->spill_dir = ldsh_field_string(L, idx, "opts", "spill_dir", false);
  o->pty = ldsh_field_bool(L, idx, "opts", "pty", false);
  o->rows = (unsigned short)ldsh_field_int(L, idx, "opts", "rows", 0);
  o->cols = (unsigned short)ldsh_field_int(L, idx, "opts", "cols", 0);
  o->foreground = ldsh_field_bool(L, idx, "opts", "foreground", false);
  o->observe = ldsh_field_bool(L, idx, "opts", "observe", false);
  o->no_keeper = ldsh_field_bool(L, idx, "opts", "no_keeper", false);
  o->keeper = ldsh_field_string(L, idx, "opts", "keeper", false);
}

static int ldsh_run_start(lua_State *L) {
  struct dsh_plan plan;
  struct dsh_spawn_opts opts;
  struct dsh_error err;
  struct dsh_arena *a;
  struct dsh_run **box;
  memset(&plan, 0, sizeof plan);
  memset(&opts, 0, sizeof opts);
  lua_settop(L, 2);
  a = ldsh_push_arena(L);
  read_record(L, 1, a, &plan);
  if (lua_isnil(L, 2)) {
    lua_newtable(L);
    lua_replace(L, 2);
  }
  read_opts(L, 2, a, &opts);
  box = lua_newuserdatauv(L, sizeof *box, 0);
  *box = NULL;
  luaL_setmetatable(L, RUN);
  *box = dsh_run_start(&plan, &opts, &err);
  if (!*box && err.code == DSH_E_MISUSE)
    return luaL_error(L, "%s", err.message);
  return *box ? 1 : ldsh_fail(L, &err);
}

/* --- methods ------------------------------------------------------------- */

static int run_wait(lua_State *L) {
  struct dsh_run *r = check_run(L);
  int64_t ms = luaL_optinteger(L, 2, -1);
  int state = dsh_run_wait(r, ms);
  if (state == 0)
    lua_pushnil(L);
  else
    lua_pushstring(L, state == 1 ? "finished" : "stopped");
  return 1;
}

static void set_string(lua_State *L, const char *key, const char *value) {
  if (!value)
    return;
  lua_pushstring(L, value);
  lua_setfield(L, -2, key);
}

static void set_int(lua_State *L, const char *key, lua_Integer value) {
  lua_pushinteger(L, value);
  lua_setfield(L, -2, key);
}

static void set_bool(lua_State *L, const char *key, bool value) {
  lua_pushboolean(L, value);
  lua_setfield(L, -2, key);
}

static void set_output(lua_State *L, const char *key,
                       const struct dsh_output *o) {
  lua_createtable(L, 0, 4);
  lua_pushlstring(L, o->text, o->len);
  lua_setfield(L, -2, "text");
  set_int(L, "total", (lua_Integer)o->total);
  set_bool(L, "truncated", o->truncated);
  set_string(L, "spill_path", o->spill_path);
  lua_setfield(L, -2, key);
}

static void push_denial(lua_State *L, const struct dsh_denial *d) {
  lua_createtable(L, 0, 8);
  set_string(L, "op", d->op);
  set_string(L, "path", d->path);
  set_string(L, "path2", d->path2);
  set_string(L, "errno", dsh_errno_name(d->errnum));
  set_int(L, "pid", d->pid);
  set_string(L, "comm", d->comm);
  set_string(L, "certainty", d->confirmed ? "confirmed" : "predicted");
  if (d->also_permissions)
    set_bool(L, "also_permissions", true);
}

static void set_denials(lua_State *L, const struct dsh_outcome *o) {
  size_t i;
  set_bool(L, "denials_known", o->denials_known);
  if (o->denials_dropped)
    set_int(L, "denials_dropped", (lua_Integer)o->denials_dropped);
  if (o->listener_errnum)
    set_string(L, "listener", dsh_errno_name(o->listener_errnum));
  lua_createtable(L, (int)o->n_denials, 0);
  for (i = 0; i < o->n_denials; i++) {
    push_denial(L, &o->denial[i]);
    lua_seti(L, -2, (lua_Integer)i + 1);
  }
  lua_setfield(L, -2, "denials");
}

static void set_end(lua_State *L, const struct dsh_outcome *o) {
  if (o->started == DSH_STARTED_NO)
    return;
  if (o->exited)
    set_int(L, "exit_code", o->exit_code);
  else if (o->signal)
    set_int(L, "signal", o->signal);
}

static int run_outcome(lua_State *L) {
  static const char *const started[] = {"unknown", "yes", "no"};
  const struct dsh_outcome *o = dsh_run_outcome(check_run(L));
  if (!o) {
    lua_pushnil(L);
    return 1;
  }
  lua_createtable(L, 0, 20);
  set_string(L, "started", started[o->started]);
  set_string(L, "stage", o->stage);
  set_string(L, "detail", o->detail);
  if (o->errnum) {
    set_int(L, "errno", o->errnum);
    set_string(L, "errno_name", dsh_errno_name(o->errnum));
  }
  set_end(L, o);
  set_bool(L, "timed_out", o->timed_out);
  set_bool(L, "aborted", o->aborted);
  set_bool(L, "runner_failed", o->runner_failed);
  set_bool(L, "keeper", o->keeper);
  if (o->status_lost)
    set_bool(L, "status_lost", true);
  set_output(L, "stdout", &o->out);
  set_output(L, "stderr", &o->err);
  set_denials(L, o);
  set_int(L, "wall_ms", o->wall_ms);
  set_int(L, "user_us", o->user_us);
  set_int(L, "system_us", o->system_us);
  set_int(L, "max_rss_kb", o->max_rss_kb);
  return 1;
}

static int run_denials(lua_State *L) {
  struct dsh_run *r = check_run(L);
  struct dsh_arena *a = ldsh_push_arena(L);
  struct dsh_denial *list = dsh_alloc(a, DENIALS_TAKEN * sizeof *list);
  size_t i, n = list ? dsh_run_take_denials(r, a, list, DENIALS_TAKEN) : 0;
  lua_createtable(L, (int)n, 0);
  for (i = 0; i < n && !a->failed; i++) {
    push_denial(L, &list[i]);
    lua_seti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

static int run_abort(lua_State *L) {
  dsh_run_abort(check_run(L));
  return 0;
}

static int fail_errno(lua_State *L, const char *what) {
  struct dsh_error err;
  dsh_fail(&err, DSH_E_IO, errno, "run", "%s", what);
  return ldsh_fail(L, &err);
}

static int run_signal(lua_State *L) {
  struct dsh_run *r = check_run(L);
  if (dsh_run_signal(r, (int)luaL_checkinteger(L, 2)) != 0)
    return fail_errno(L, "signal");
  lua_pushboolean(L, 1);
  return 1;
}

static int run_read(lua_State *L) {
  struct dsh_run *r = check_run(L);
  lua_Integer stream = luaL_optinteger(L, 2, 1);
  lua_Integer max = luaL_optinteger(L, 3, DSH_TAIL_BYTES);
  luaL_Buffer b;
  uint64_t skipped;
  char *room;
  size_t n;
  luaL_argcheck(L, stream == 1 || stream == 2, 2, "stream: 1 or 2");
  luaL_argcheck(L, max > 0 && max <= READ_MAX, 3, "max: 1 to 1048576");
  room = luaL_buffinitsize(L, &b, (size_t)max);
  n = dsh_run_read(r, (int)stream, room, (size_t)max, &skipped);
  luaL_pushresultsize(&b, n);
  lua_pushinteger(L, (lua_Integer)skipped);
  return 2;
}

static int run_write(lua_State *L) {
  struct dsh_run *r = check_run(L);
  size_t n;
  const char *bytes = luaL_checklstring(L, 2, &n);
  ssize_t w = dsh_run_write(r, bytes, n);
  if (w < 0)
    return fail_errno(L, "write");
  lua_pushinteger(L, w);
  return 1;
}

static int run_close_input(lua_State *L) {
  dsh_run_close_input(check_run(L));
  return 0;
}

static int run_resize(lua_State *L) {
  struct dsh_run *r = check_run(L);
  lua_Integer rows = luaL_checkinteger(L, 2), cols = luaL_checkinteger(L, 3);
  luaL_argcheck(L, rows > 0 && rows < 65536, 2, "rows: 1 to 65535");
  luaL_argcheck(L, cols > 0 && cols < 65536, 3, "cols: 1 to 65535");
  if (dsh_run_resize(r, (unsigned short)rows, (unsigned short)cols) != 0)
    return fail_errno(L, "resize");
  lua_pushboolean(L, 1);
  return 1;
}

static int ldsh_run_keeper(lua_State *L) {
  const char *given = luaL_optstring(L, 1, NULL);
  lua_pushstring(L, dsh_launcher_path(ldsh_push_arena(L), given, NULL));
  return 1;
}

static int run_close(lua_State *L) {
  struct dsh_run **box = check_box(L);
  struct dsh_run *r = *box;
  *box = NULL;
  dsh_run_free(r);
  return 0;
}

int ldsh_open_run(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"wait", run_wait},     {"outcome", run_outcome}, {"abort", run_abort},
      {"signal", run_signal}, {"read", run_read},       {"write", run_write},
      {"denials", run_denials}, {"close_input", run_close_input},
      {"resize", run_resize}, {"close", run_close},     {NULL, NULL}};
  static const luaL_Reg meta[] = {
      {"__gc", run_close}, {"__close", run_close}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"start", ldsh_run_start},
                                       {"keeper", ldsh_run_keeper},
                                       {NULL, NULL}};
  luaL_newmetatable(L, RUN);
  luaL_setfuncs(L, meta, 0);
  luaL_newlib(L, methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  luaL_newlib(L, functions);
  return 1;
}
