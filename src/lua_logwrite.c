/* lua_logwrite.c: dsh.core.logwrite, session logs written. */
#include <stdlib.h>
#include <string.h>

#include "logwrite.h"
#include "lua_dsh.h"

enum { EVENTS_MAX = 4096 }; /* of one append */

static const char writer_name[] = "dsh.writer";

struct dsh_writer_box {
  struct dsh_writer *w; /* owned; NULL: closed */
};

static struct dsh_writer_box *push_box(lua_State *L) {
  struct dsh_writer_box *box = lua_newuserdatauv(L, sizeof *box, 0);
  box->w = NULL;
  luaL_setmetatable(L, writer_name);
  return box;
}

/* create(path, header): a writer for a log that does not exist yet; touches
 * nothing. `header` is the first line, JSON text. */
static int ldsh_logwrite_create(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  const char *header = luaL_checkstring(L, 2);
  struct dsh_writer_box *box = push_box(L);
  struct dsh_error err = {0};
  box->w = dsh_writer_create(path, header, &err);
  return box->w ? 1 : ldsh_fail(L, &err);
}

/* resume(path): locks and verifies a log; the writer and its state, as
 * replay.verify gives it, or nil, err. */
static int ldsh_logwrite_resume(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  struct dsh_writer_box *box = push_box(L);
  struct dsh_error err = {0};
  struct dsh_log_info info;
  struct dsh_fold fold;
  box->w = dsh_writer_open(path, &fold, &info, &err);
  if (!box->w)
    return ldsh_fail(L, &err);
  ldsh_push_fold(L, &fold); /* a raise here loses it, as memory is out */
  ldsh_push_info(L, &info);
  dsh_fold_free(&fold);
  return 2;
}

static struct dsh_writer *check_writer(lua_State *L) {
  struct dsh_writer_box *box = luaL_checkudata(L, 1, writer_name);
  if (!box->w)
    luaL_argerror(L, 1, "the log is closed");
  return box->w;
}

static int ldsh_logwrite_close(lua_State *L) {
  struct dsh_writer_box *box = luaL_checkudata(L, 1, writer_name);
  dsh_writer_close(box->w);
  box->w = NULL;
  return 0;
}

/* w:append({{type=, data= (JSON text), ignorable?=}, …}): all in one frame,
 * or none. The first one's seq, or nil, err. */
static int ldsh_logwrite_append(lua_State *L) {
  static const char *const known[] = {"type", "data", "ignorable", NULL};
  struct dsh_writer *w = check_writer(L);
  struct dsh_error err = {0};
  struct dsh_event *ev;
  lua_Integer n, i;
  int64_t seq;
  luaL_checktype(L, 2, LUA_TTABLE);
  n = luaL_len(L, 2);
  luaL_argcheck(L, n > 0 && n <= EVENTS_MAX, 2, "a list of 1 to 4096 events");
  luaL_checkstack(L, (int)n + 8, "append");
  ev = lua_newuserdatauv(L, (size_t)n * sizeof *ev, 0);
  for (i = 0; i < n; i++) { /* the events stay on the stack: their strings */
    int at;
    lua_geti(L, 2, i + 1);
    at = lua_gettop(L);
    ldsh_check_fields(L, at, "event", known);
    ev[i].type = ldsh_field_string(L, at, "event", "type", true);
    ev[i].data = ldsh_field_string(L, at, "event", "data", true);
    ev[i].ignorable = ldsh_field_bool(L, at, "event", "ignorable", false);
  }
  if (dsh_writer_append(w, ev, (size_t)n, &seq, &err) != 0)
    return ldsh_fail(L, &err);
  lua_pushinteger(L, (lua_Integer)seq);
  return 1;
}

static const luaL_Reg writer_methods[] = {
    {"append", ldsh_logwrite_append}, {"close", ldsh_logwrite_close},
    {"__gc", ldsh_logwrite_close},    {"__close", ldsh_logwrite_close},
    {NULL, NULL},
};

static const luaL_Reg logwrite_functions[] = {
    {"create", ldsh_logwrite_create},
    {"resume", ldsh_logwrite_resume},
    {NULL, NULL},
};

int ldsh_open_logwrite(lua_State *L);

int ldsh_open_logwrite(lua_State *L) {
  luaL_newmetatable(L, writer_name);
  luaL_setfuncs(L, writer_methods, 0);
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  luaL_newlib(L, logwrite_functions);
  return 1;
}
