/* dshsh.c: the command. A Lua state with the core linked in, whose modules
 * are found relative to this very file: ../lua in a checkout (build/dshsh),
 * ../share/dshsh when installed. All behaviour is in lua/dsh/cli.lua. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

enum {
  DSHSH_FAILURE = 125, /* exit status of any failure of our own */
  GC_PAUSE = 1000      /* percent: most calls are over before a collection */
};

int luaopen_dsh_core(lua_State *L);

/* The directory of the modules into out; -1 if there is none. */
static int find_tree(char *out, size_t size) {
  static const char *const places[] = {"/../lua", "/../share/dshsh", NULL};
  char exe[PATH_MAX], probe[PATH_MAX + 64], *slash;
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  int i;
  if (n <= 0)
    return -1;
  exe[n] = '\0';
  slash = strrchr(exe, '/');
  if (!slash)
    return -1;
  *slash = '\0';
  for (i = 0; places[i]; i++) {
    snprintf(probe, sizeof probe, "%s%s/dsh/cli.lua", exe, places[i]);
    if (access(probe, R_OK) == 0) {
      snprintf(out, size, "%s%s", exe, places[i]);
      return 0;
    }
  }
  return -1;
}

static int traceback(lua_State *L) {
  const char *text = luaL_tolstring(L, 1, NULL);
  if (getenv("DSH_DEBUG"))
    luaL_traceback(L, L, text, 1);
  return 1;
}

/* Modules are never looked for in the current directory, which a confined
 * command may have written: templates that are not absolute go. */
static void only_absolute(lua_State *L, const char *field) {
  luaL_Buffer b;
  const char *at, *end;
  lua_getfield(L, -1, field);
  at = lua_tostring(L, -1);
  luaL_buffinit(L, &b);
  for (; at && *at; at = *end ? end + 1 : end) {
    end = strchrnul(at, ';');
    if (*at == '/') {
      luaL_addlstring(&b, at, (size_t)(end - at));
      luaL_addchar(&b, ';');
    }
  }
  luaL_pushresult(&b);
  lua_setfield(L, -3, field);
  lua_pop(L, 1);
}

static void set_up(lua_State *L, const char *tree) {
  lua_gc(L, LUA_GCINC, GC_PAUSE, 0, 0);
  luaL_openlibs(L);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, luaopen_dsh_core);
  lua_setfield(L, -2, "dsh.core");
  lua_getglobal(L, "package");
  only_absolute(L, "path");
  only_absolute(L, "cpath");
  lua_getfield(L, -1, "path");
  lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;%s", tree, tree,
                  lua_tostring(L, -1));
  lua_setfield(L, -3, "path");
  lua_pop(L, 3);
}

/* main(argc, argv) inside a protected call; returns the exit status. */
static int run(lua_State *L) {
  int argc = (int)lua_tointeger(L, 1), i;
  char **argv = lua_touserdata(L, 2);
  char tree[PATH_MAX + 32];
  if (find_tree(tree, sizeof tree) != 0)
    return luaL_error(L, "cannot find my Lua modules beside %s", argv[0]);
  set_up(L, tree);
  lua_createtable(L, argc, 1);
  for (i = 0; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i);
  }
  lua_pushvalue(L, -1);
  lua_setglobal(L, "arg");
  lua_getglobal(L, "require");
  lua_pushliteral(L, "dsh.cli");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "main");
  lua_pushvalue(L, -3);
  lua_call(L, 1, 1);
  return 1;
}

int main(int argc, char **argv) {
  lua_State *L = luaL_newstate();
  int status = DSHSH_FAILURE;
  if (!L) {
    fputs("dshsh: out of memory\n", stderr);
    return status;
  }
  lua_pushcfunction(L, traceback);
  lua_pushcfunction(L, run);
  lua_pushinteger(L, argc);
  lua_pushlightuserdata(L, argv);
  if (lua_pcall(L, 2, 1, 1) == LUA_OK)
    status = (int)lua_tointeger(L, -1);
  else
    fprintf(stderr, "dshsh: %s\n", lua_tostring(L, -1));
  lua_close(L);
  if (fflush(stdout) != 0 && status == 0) {
    fputs("dshsh: cannot write the output\n", stderr);
    status = DSHSH_FAILURE;
  }
  return status;
}
