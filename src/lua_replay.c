/* lua_replay.c: dsh.core.replay, session logs read and folded. */
#include <stdlib.h>
#include <string.h>

#include "eventlog.h"
#include "lua_dsh.h"

static const char log_name[] = "dsh.log";

struct dsh_log_box {
  struct dsh_log *log; /* owned; NULL: closed */
};

static void set_int(lua_State *L, const char *name, uint64_t n) {
  lua_pushinteger(L, (lua_Integer)n);
  lua_setfield(L, -2, name);
}

static void set_bool(lua_State *L, const char *name, bool b) {
  lua_pushboolean(L, b);
  lua_setfield(L, -2, name);
}

/* open(path, {follow=false}?): a reader, or nil, err. */
static int ldsh_replay_open(lua_State *L) {
  static const char *const known[] = {"follow", NULL};
  const char *path = luaL_checkstring(L, 1);
  struct dsh_error err = {0};
  struct dsh_log_box *box;
  int flags = 0;
  if (!lua_isnoneornil(L, 2)) {
    ldsh_check_fields(L, 2, "opts", known);
    if (ldsh_field_bool(L, 2, "opts", "follow", false))
      flags = DSH_LOG_FOLLOW;
  }
  box = lua_newuserdatauv(L, sizeof *box, 0);
  box->log = NULL;
  luaL_setmetatable(L, log_name);
  box->log = dsh_log_open(path, flags, &err);
  return box->log ? 1 : ldsh_fail(L, &err);
}

static struct dsh_log *check_log(lua_State *L) {
  struct dsh_log_box *box = luaL_checkudata(L, 1, log_name);
  if (!box->log)
    luaL_argerror(L, 1, "the log is closed");
  return box->log;
}

static int ldsh_replay_close(lua_State *L) {
  struct dsh_log_box *box = luaL_checkudata(L, 1, log_name);
  dsh_log_close(box->log);
  box->log = NULL;
  return 0;
}

static void push_rec(lua_State *L, const struct dsh_rec *r) {
  lua_createtable(L, 0, 10);
  lua_pushlstring(L, r->text, r->len);
  lua_setfield(L, -2, "text");
  if (r->scan.type) {
    lua_pushlstring(L, r->scan.type, r->scan.type_len);
    lua_setfield(L, -2, "type");
  }
  set_int(L, "line", r->line);
  set_int(L, "at", r->at);
  set_int(L, "seq", (uint64_t)r->seq);
  set_int(L, "count", r->count);
  set_bool(L, "verified", r->verified);
  set_bool(L, "torn", r->torn);
}

static int fail_at(lua_State *L, const struct dsh_error *err, uint64_t at,
                   uint64_t line) {
  int n = ldsh_fail(L, err);
  set_int(L, "at", at);
  set_int(L, "line", line);
  return n;
}

/* log:next(): the next record {text, type, seq, count, line, at, verified,
 * torn} (the header first, seq -1), nil at the end, or nil, err, where err
 * has the file offset `at` and the `line`. */
static int ldsh_replay_next(lua_State *L) {
  struct dsh_log *log = check_log(L);
  struct dsh_error err = {0};
  struct dsh_rec rec;
  uint64_t at, line;
  int rc = dsh_log_next(log, &rec, &err);
  if (rc == 1) {
    push_rec(L, &rec);
    return 1;
  }
  if (rc == 0)
    return 0;
  dsh_log_where(log, &at, &line);
  return fail_at(L, &err, at, line);
}

static void push_tail(lua_State *L, const struct dsh_tail *t) {
  lua_createtable(L, 0, 4);
  set_bool(L, "torn", t->torn);
  set_int(L, "at", t->at);
  set_int(L, "keep_at", t->keep_at);
  set_bool(L, "unterminated", t->unterminated);
}

/* log:tail(): what was found at the end of the file: {torn, at, keep_at,
 * unterminated}. */
static int ldsh_replay_tail(lua_State *L) {
  push_tail(L, dsh_log_tail(check_log(L)));
  return 1;
}

/* log:progress(): bytes read, bytes of the file. */
static int ldsh_replay_progress(lua_State *L) {
  uint64_t size, done = dsh_log_done(check_log(L), &size);
  lua_pushinteger(L, (lua_Integer)done);
  lua_pushinteger(L, (lua_Integer)size);
  return 2;
}

/* log:poll(ms): true when there is more to read now. */
static int ldsh_replay_poll(lua_State *L) {
  struct dsh_error err = {0};
  int rc = dsh_log_poll(check_log(L), luaL_optinteger(L, 2, 0), &err);
  if (rc < 0)
    return ldsh_fail(L, &err);
  lua_pushboolean(L, rc);
  return 1;
}

void ldsh_push_fold(lua_State *L, const struct dsh_fold *f) {
  lua_createtable(L, 0, 6);
  if (f->has_mode) {
    lua_pushstring(L, dsh_mode_name(f->mode));
    lua_setfield(L, -2, "mode");
  }
  if (f->preset[0]) {
    lua_pushstring(L, f->preset);
    lua_setfield(L, -2, "preset");
  }
  if (f->approval != DSH_APPROVAL_NONE) {
    lua_pushstring(L, f->approval == DSH_APPROVAL_ASK ? "ask" : "never");
    lua_setfield(L, -2, "approval");
  }
  if (f->grants) {
    lua_pushstring(L, f->grants);
    lua_setfield(L, -2, "grants");
  }
  set_bool(L, "refused", f->refused_mode || f->refused_preset ||
                             f->refused_approval || f->refused_grants);
}

void ldsh_push_info(lua_State *L, const struct dsh_log_info *info) {
  set_int(L, "events", info->events);
  set_int(L, "lines", info->lines);
  set_int(L, "frames", info->frames);
  set_int(L, "size", info->size);
  set_int(L, "unverified", info->unverified);
  push_tail(L, &info->tail);
  lua_setfield(L, -2, "tail");
}

/* verify(path, {threads=1}?): {mode?, preset?, approval?, grants? (JSON
 * text), refused, events, lines, frames, size, unverified, tail}, or nil,
 * err with `at` and `line`. */
static int ldsh_replay_verify(lua_State *L) {
  static const char *const known[] = {"threads", NULL};
  const char *path = luaL_checkstring(L, 1);
  struct dsh_error err = {0};
  struct dsh_log_info info;
  struct dsh_fold fold;
  int threads = 1, n = 1;
  if (!lua_isnoneornil(L, 2)) {
    ldsh_check_fields(L, 2, "opts", known);
    threads = (int)ldsh_field_int(L, 2, "opts", "threads", 1);
  }
  if (dsh_log_verify(path, threads, &fold, &info, &err) != 0) {
    n = fail_at(L, &err, info.at, info.line);
  } else {
    ldsh_push_fold(L, &fold); /* a raise loses the fold: memory is out */
    ldsh_push_info(L, &info);
  }
  dsh_fold_free(&fold);
  return n;
}

/* fold(path, what?): what is "mode", "preset", "approval", "grants" or "all"
 * (the default). The fields of verify's answer that were asked for, and
 * verified = "full" or "tail". */
static int ldsh_replay_fold(lua_State *L) {
  static const char *const names[] = {"mode", "preset", "approval", "grants",
                                      "all", NULL};
  static const unsigned wants[] = {DSH_WANT_MODE, DSH_WANT_PRESET,
                                   DSH_WANT_APPROVAL, DSH_WANT_GRANTS,
                                   DSH_WANT_ALL};
  const char *path = luaL_checkstring(L, 1);
  unsigned want = wants[luaL_checkoption(L, 2, "all", names)];
  struct dsh_error err = {0};
  struct dsh_fold fold;
  bool full;
  int n = 1;
  if (dsh_log_fold(path, want, &fold, &full, &err) != 0) {
    n = ldsh_fail(L, &err);
  } else {
    ldsh_push_fold(L, &fold);
    lua_pushstring(L, full ? "full" : "tail");
    lua_setfield(L, -2, "verified");
  }
  dsh_fold_free(&fold);
  return n;
}

/* header(path): the first line's text, reading the first frame only. */
static int ldsh_replay_header(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  struct dsh_arena *a = ldsh_push_arena(L);
  struct dsh_error err = {0};
  char *text = dsh_log_header(a, path, &err);
  if (!text)
    return ldsh_fail(L, &err);
  lua_pushstring(L, text);
  return 1;
}

static const luaL_Reg log_methods[] = {
    {"next", ldsh_replay_next},         {"tail", ldsh_replay_tail},
    {"progress", ldsh_replay_progress}, {"poll", ldsh_replay_poll},
    {"close", ldsh_replay_close},       {"__gc", ldsh_replay_close},
    {"__close", ldsh_replay_close},     {NULL, NULL},
};

static const luaL_Reg replay_functions[] = {
    {"open", ldsh_replay_open},     {"verify", ldsh_replay_verify},
    {"fold", ldsh_replay_fold},     {"header", ldsh_replay_header},
    {NULL, NULL},
};

int ldsh_open_replay(lua_State *L);

int ldsh_open_replay(lua_State *L) {
  luaL_newmetatable(L, log_name);
  luaL_setfuncs(L, log_methods, 0);
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  luaL_newlib(L, replay_functions);
  return 1;
}
