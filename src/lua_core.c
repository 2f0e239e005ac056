/* lua_core.c: luaopen_dsh_core and what the lua_*.c files share. */
#include <string.h>

#include "lua_dsh.h"

/* Each sub-table of dsh.core, once, a line each. */
#define PARTS(X)                                                             \
  X(confine)                                                                 \
  X(fence)                                                                   \
  X(run)                                                                     \
  X(sys)                                                                     \
  X(json)                                                                    \
  X(replay)                                                                  \
  X(logwrite)                                                                \
  X(term)                                                                    \
  X(edit)                                                                    \
  X(yaml)                                                                    \
  X(script)                                                                  \
  X(conf)

#define PART_DECL(name) int ldsh_open_##name(lua_State *L);
PARTS(PART_DECL)
#undef PART_DECL

static int error_tostring(lua_State *L) {
  lua_getfield(L, 1, "code");
  lua_pushliteral(L, ": ");
  lua_getfield(L, 1, "message");
  lua_concat(L, 3);
  return 1;
}

static void push_error_meta(lua_State *L) {
  if (!luaL_newmetatable(L, "dsh.error"))
    return;
  lua_pushcfunction(L, error_tostring);
  lua_setfield(L, -2, "__tostring");
}

void ldsh_push_error(lua_State *L, const struct dsh_error *err) {
  lua_createtable(L, 0, 6);
  lua_pushstring(L, dsh_code_name(err->code));
  lua_setfield(L, -2, "code");
  lua_pushstring(L, err->message);
  lua_setfield(L, -2, "message");
  lua_pushstring(L, err->stage);
  lua_setfield(L, -2, "stage");
  if (err->errnum) {
    lua_pushinteger(L, err->errnum);
    lua_setfield(L, -2, "errno");
    lua_pushstring(L, dsh_errno_name(err->errnum));
    lua_setfield(L, -2, "errno_name");
  }
  if (err->path[0]) {
    lua_pushstring(L, err->path);
    lua_setfield(L, -2, "path");
  }
  push_error_meta(L);
  lua_setmetatable(L, -2);
}

int ldsh_fail(lua_State *L, const struct dsh_error *err) {
  lua_pushnil(L);
  ldsh_push_error(L, err);
  return 2;
}

static int misfit(lua_State *L, const char *what, const char *field,
                  const char *expected) {
  return luaL_error(L, "%s.%s: expected %s, got %s", what, field, expected,
                    luaL_typename(L, -1));
}

static const char *checked(lua_State *L, const char *what, const char *field) {
  size_t n;
  const char *s;
  if (lua_type(L, -1) != LUA_TSTRING)
    misfit(L, what, field, "string");
  s = lua_tolstring(L, -1, &n);
  if (strlen(s) != n)
    luaL_error(L, "%s.%s: contains a NUL byte", what, field);
  return s;
}

const char *ldsh_field_string(lua_State *L, int idx, const char *what,
                              const char *field, bool required) {
  const char *s = NULL;
  if (lua_getfield(L, idx, field) != LUA_TNIL)
    s = checked(L, what, field);
  else if (required)
    misfit(L, what, field, "string");
  lua_pop(L, 1);
  return s;
}

int64_t ldsh_field_int(lua_State *L, int idx, const char *what,
                       const char *field, int64_t dflt) {
  int64_t n = dflt;
  int ok = 1;
  if (lua_getfield(L, idx, field) != LUA_TNIL) {
    if (lua_type(L, -1) != LUA_TNUMBER)
      misfit(L, what, field, "integer");
    n = lua_tointegerx(L, -1, &ok);
    if (!ok)
      misfit(L, what, field, "integer");
  }
  lua_pop(L, 1);
  return n;
}

bool ldsh_field_bool(lua_State *L, int idx, const char *what,
                     const char *field, bool dflt) {
  bool b = dflt;
  if (lua_getfield(L, idx, field) != LUA_TNIL) {
    if (lua_type(L, -1) != LUA_TBOOLEAN)
      misfit(L, what, field, "boolean");
    b = lua_toboolean(L, -1);
  }
  lua_pop(L, 1);
  return b;
}

void ldsh_field_strv(lua_State *L, int idx, const char *what,
                     const char *field, struct dsh_arena *a,
                     struct dsh_strv *list) {
  lua_Integer i, n, keys = 0;
  if (lua_getfield(L, idx, field) == LUA_TNIL) {
    lua_pop(L, 1);
    return;
  }
  if (lua_type(L, -1) != LUA_TTABLE)
    misfit(L, what, field, "list of strings");
  n = luaL_len(L, -1);
  for (i = 1; i <= n; i++) {
    const char *name = lua_pushfstring(L, "%s[%d]", field, (int)i);
    lua_geti(L, -2, i);
    dsh_strv_add(a, list, dsh_strdup(a, checked(L, what, name)));
    lua_pop(L, 2);
  }
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
    keys++;
  if (keys != n)
    luaL_error(L, "%s.%s: expected a list without holes", what, field);
  lua_pop(L, 1);
  if (a->failed)
    luaL_error(L, "out of memory");
}

void ldsh_check_fields(lua_State *L, int idx, const char *what,
                       const char *const *known) {
  luaL_checktype(L, idx, LUA_TTABLE);
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
    const char *const *k = known;
    if (lua_type(L, -2) != LUA_TSTRING)
      luaL_error(L, "%s: keys must be strings", what);
    while (*k && strcmp(*k, lua_tostring(L, -2)) != 0)
      k++;
    if (!*k)
      luaL_error(L, "%s.%s: unknown field", what, lua_tostring(L, -2));
  }
}

static int arena_gc(lua_State *L) {
  dsh_arena_free(lua_touserdata(L, 1));
  return 0;
}

struct dsh_arena *ldsh_push_arena(lua_State *L) {
  struct dsh_arena *a = lua_newuserdatauv(L, sizeof *a, 0);
  dsh_arena_init(a);
  if (luaL_newmetatable(L, "dsh.arena")) {
    lua_pushcfunction(L, arena_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_setmetatable(L, -2);
  return a;
}

__attribute__((visibility("default"))) int luaopen_dsh_core(lua_State *L);

int luaopen_dsh_core(lua_State *L) {
  lua_newtable(L);
  push_error_meta(L);
  lua_setfield(L, -2, "error_meta");
  lua_pushliteral(L, DSH_VERSION);
  lua_setfield(L, -2, "version");
#define PART_OPEN(name)                                                      \
  ldsh_open_##name(L);                                                       \
  lua_setfield(L, -2, #name);
  PARTS(PART_OPEN)
#undef PART_OPEN
  return 1;
}
