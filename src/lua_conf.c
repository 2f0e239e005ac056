/* lua_conf.c: dsh.core.conf, the files of dsh.settings. */
#include <unistd.h>

#include "conffile.h"
#include "lua_dsh.h"

static int conf_unlock(lua_State *L) {
  int *fd = luaL_checkudata(L, 1, "dsh.conf.lock");
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
  return 0;
}

/* lock(path): a value to be closed (by <close> or :close()), or nil, err. */
static int conf_lock(lua_State *L) {
  static const luaL_Reg methods[] = {{"close", conf_unlock},
                                     {"__close", conf_unlock},
                                     {"__gc", conf_unlock},
                                     {NULL, NULL}};
  const char *path = luaL_checkstring(L, 1);
  struct dsh_error err = {0};
  int *fd = lua_newuserdatauv(L, sizeof *fd, 0);
  *fd = -1;
  if (luaL_newmetatable(L, "dsh.conf.lock")) {
    luaL_setfuncs(L, methods, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
  }
  lua_setmetatable(L, -2);
  *fd = dsh_conf_lock(path, &err);
  return *fd >= 0 ? 1 : ldsh_fail(L, &err);
}

/* replace(path, text): true, or nil, err. */
static int conf_replace(lua_State *L) {
  size_t len;
  const char *path = luaL_checkstring(L, 1);
  const char *text = luaL_checklstring(L, 2, &len);
  struct dsh_error err = {0};
  if (dsh_conf_replace(path, text, len, &err) != 0)
    return ldsh_fail(L, &err);
  lua_pushboolean(L, 1);
  return 1;
}

/* mkdir(path): true, or nil, err. */
static int conf_mkdir(lua_State *L) {
  struct dsh_error err = {0};
  if (dsh_conf_mkdir(luaL_checkstring(L, 1), &err) != 0)
    return ldsh_fail(L, &err);
  lua_pushboolean(L, 1);
  return 1;
}

static const luaL_Reg conf_functions[] = {
    {"lock", conf_lock},
    {"replace", conf_replace},
    {"mkdir", conf_mkdir},
    {NULL, NULL},
};

int ldsh_open_conf(lua_State *L);

int ldsh_open_conf(lua_State *L) {
  luaL_newlib(L, conf_functions);
  return 1;
}
