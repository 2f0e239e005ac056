/* lua_script.c: dsh.core.script, configuration scripts in a Lua of their own.
 *
 * A script gets a fresh state with a part of the standard library (no files,
 * no processes, no loading, no metatables and so no finalizers), a memory
 * limit and an instruction limit. These guard against mistakes; they are no
 * security boundary. Only plain data crosses between the two states, copied:
 * tables, strings, numbers, booleans.
 *
 * A raise in one state never unwinds frames of the other: what runs in the
 * script's state runs under its pcall, what runs in the host's state on
 * behalf of the script under the host's. */
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

#include "lua_dsh.h"

#define SCRIPT_MEMORY (64 << 20)    /* bytes, when not given */
#define SCRIPT_STEPS 10000000       /* VM instructions, when not given */
#define SCRIPT_HOOK_STEPS 1000      /* instructions between two looks */
#define SCRIPT_DEPTH 100            /* nesting of copied tables */
#define SCRIPT_VALUES 20000         /* values copied at once */
#define SCRIPT_BYTES (4 << 20)      /* text copied at once */

struct script {
  lua_State *state; /* owned; NULL: closed */
  lua_State *host;  /* while running */
  size_t used, limit;
  lua_Integer steps; /* left */
};

struct copy {
  size_t values, bytes;
};

static struct script *script_of(lua_State *L) {
  void *ud;
  lua_getallocf(L, &ud);
  return ud;
}

static void *script_alloc(void *ud, void *p, size_t old, size_t new) {
  struct script *s = ud;
  void *q;
  if (!p)
    old = 0;
  if (new == 0) {
    free(p);
    s->used -= old;
    return NULL;
  }
  if (new > old && new - old > s->limit - s->used)
    return NULL;
  q = realloc(p, new);
  if (q)
    s->used = s->used - old + new;
  return q;
}

/* The line of the innermost frame that is the script's own, or 0; *name gets
 * the script's name. */
static int script_line(lua_State *L, const char **name) {
  lua_Debug ar;
  int level;
  *name = "?";
  for (level = 0; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    *name = ar.source + 1;
    if (ar.source[0] == '@')
      return ar.currentline;
  }
  return 0;
}

/* Once out of steps every further instruction raises, so that a pcall in the
 * script cannot go on. */
static void script_hook(lua_State *L, lua_Debug *ar) {
  struct script *s = script_of(L);
  const char *name;
  int line;
  (void)ar;
  s->steps -= SCRIPT_HOOK_STEPS;
  if (s->steps > 0)
    return;
  lua_sethook(L, script_hook, LUA_MASKCOUNT, 1);
  line = script_line(L, &name);
  lua_pushfstring(L, "%s:%d: the script runs too long (instruction limit)",
                  name, line);
  lua_error(L);
}

/* Copies the value at idx of `from` to the top of `to`; NULL or what is
 * wrong. Raises nothing in `from`; may raise in `to` for memory. */
static const char *copy_value(lua_State *from, int idx, lua_State *to,
                              struct copy *c, int depth);

static const char *copy_table(lua_State *from, int idx, lua_State *to,
                              struct copy *c, int depth) {
  const char *why;
  if (depth >= SCRIPT_DEPTH)
    return "a table nested too deeply (or within itself)";
  if (!lua_checkstack(from, 4) || !lua_checkstack(to, 4))
    return "out of stack";
  idx = lua_absindex(from, idx);
  lua_newtable(to);
  for (lua_pushnil(from); lua_next(from, idx); lua_pop(from, 1)) {
    if (lua_type(from, -2) == LUA_TNUMBER && !lua_isinteger(from, -2))
      return "a fractional key";
    if ((why = copy_value(from, -2, to, c, depth + 1)) ||
        (why = copy_value(from, -1, to, c, depth + 1)))
      return why;
    lua_rawset(to, -3);
  }
  return NULL;
}

static const char *copy_value(lua_State *from, int idx, lua_State *to,
                              struct copy *c, int depth) {
  size_t n;
  const char *s;
  if (++c->values > SCRIPT_VALUES)
    return "too many values";
  switch (lua_type(from, idx)) {
  case LUA_TNIL:
    lua_pushnil(to);
    return NULL;
  case LUA_TBOOLEAN:
    lua_pushboolean(to, lua_toboolean(from, idx));
    return NULL;
  case LUA_TNUMBER:
    if (lua_isinteger(from, idx))
      lua_pushinteger(to, lua_tointeger(from, idx));
    else
      lua_pushnumber(to, lua_tonumber(from, idx));
    return NULL;
  case LUA_TSTRING:
    s = lua_tolstring(from, idx, &n);
    if ((c->bytes += n) > SCRIPT_BYTES)
      return "too much text";
    lua_pushlstring(to, s, n);
    return NULL;
  case LUA_TTABLE:
    return copy_table(from, idx, to, c, depth);
  case LUA_TFUNCTION:
    return "a function: only data leaves a script (functions are given to "
           "dsh.open from Lua)";
  default:
    return "a value that is no data";
  }
}

/* In the host's state, protected: script state, line, callback -> results.
 * Copies the arguments of the script's call and calls the callback. */
static int host_side(lua_State *L) {
  lua_State *from = lua_touserdata(L, 1);
  struct copy c = {0, 0};
  const char *why;
  int i, n = lua_gettop(from);
  luaL_checkstack(L, n + 4, NULL);
  lua_pushvalue(L, 3);
  lua_pushvalue(L, 2);
  for (i = 1; i <= n; i++)
    if ((why = copy_value(from, i, L, &c, 0))) {
      lua_pushstring(L, why);
      return lua_error(L);
    }
  lua_call(L, n + 1, 1);
  return 1;
}

/* In the script: host(op, ...) calls the host's callback with the line of
 * the script and these arguments; a raise there is raised here, with the
 * script's name and line before it. */
static int script_host(lua_State *L) {
  struct script *s = script_of(L);
  lua_State *H = s->host;
  struct copy c = {0, 0};
  const char *why, *name;
  int rc, line = script_line(L, &name);
  int top = lua_gettop(H);
  if (!lua_checkstack(H, 8))
    return luaL_error(L, "out of stack");
  lua_pushcfunction(H, host_side);
  lua_pushlightuserdata(H, L);
  lua_pushinteger(H, line);
  lua_pushvalue(H, 4); /* the callback, see script_run */
  rc = lua_pcall(H, 3, 1, 0);
  if ((why = copy_value(H, -1, L, &c, 0)))
    lua_pushstring(L, why);
  lua_settop(H, top);
  if (rc == LUA_OK && !why)
    return 1;
  luaL_tolstring(L, -1, NULL);
  lua_pushfstring(L, "%s:%d: %s", name, line, lua_tostring(L, -1));
  return lua_error(L);
}

static int unknown_global(lua_State *L) {
  return luaL_error(L, "unknown global '%s'", luaL_tolstring(L, 2, NULL));
}

static int assigned_global(lua_State *L) {
  return luaL_error(L, "assignment to global '%s' (use local)",
                    luaL_tolstring(L, 2, NULL));
}

/* Leaves the script's environment on the stack: chosen names of the base
 * library and four libraries of pure functions. */
static void push_environment(lua_State *L) {
  static const char *const base[] = {
      "assert", "error",  "ipairs", "next",   "pairs",    "pcall", "rawequal",
      "rawget", "rawlen", "rawset", "select", "tonumber", "tostring",
      "type",   "xpcall", "_VERSION", NULL};
  static const luaL_Reg libs[] = {{"string", luaopen_string},
                                  {"table", luaopen_table},
                                  {"math", luaopen_math},
                                  {"utf8", luaopen_utf8},
                                  {NULL, NULL}};
  const luaL_Reg *lib;
  int i;
  lua_newtable(L);
  luaL_requiref(L, "_G", luaopen_base, 0);
  for (i = 0; base[i]; i++) {
    lua_getfield(L, -1, base[i]);
    lua_setfield(L, -3, base[i]);
  }
  lua_pop(L, 1);
  for (lib = libs; lib->name; lib++) {
    luaL_requiref(L, lib->name, lib->func, 0);
    lua_setfield(L, -2, lib->name);
  }
  lua_getfield(L, -1, "string");
  lua_pushnil(L);
  lua_setfield(L, -2, "dump");
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushcfunction(L, unknown_global);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, assigned_global);
  lua_setfield(L, -2, "__newindex");
  lua_setmetatable(L, -2);
}

static void load_text(lua_State *L, lua_State *H, int idx, const char *name) {
  size_t n;
  const char *text = lua_tolstring(H, idx, &n);
  if (luaL_loadbufferx(L, text, n, name, "t") != LUA_OK)
    lua_error(L);
  lua_pushvalue(L, 1); /* the environment */
  if (!lua_setupvalue(L, -2, 1))
    lua_pop(L, 1);
}

/* In the script's state, protected. Host stack: text, name, prelude,
 * callback, options; the prelude gets (chunk, arg, host). */
static int script_main(lua_State *L) {
  struct script *s = script_of(L);
  lua_State *H = s->host;
  struct copy c = {0, 0};
  const char *why;
  push_environment(L);
  load_text(L, H, 3, "=prelude");
  load_text(L, H, 1, lua_tostring(H, 2));
  if ((why = copy_value(H, 6, L, &c, 0)))
    return luaL_error(L, "arg holds %s", why);
  lua_pushcfunction(L, script_host);
  lua_sethook(L, script_hook, LUA_MASKCOUNT, SCRIPT_HOOK_STEPS);
  lua_call(L, 3, 1);
  lua_sethook(L, NULL, 0, 0);
  return 1;
}

static int script_close(lua_State *L) {
  struct script *s = lua_touserdata(L, 1);
  lua_State *state = s->state;
  s->state = NULL;
  if (state)
    lua_close(state);
  return 0;
}

static struct script *push_script(lua_State *L) {
  struct script *s = lua_newuserdatauv(L, sizeof *s, 0);
  memset(s, 0, sizeof *s);
  if (luaL_newmetatable(L, "dsh.script")) {
    lua_pushcfunction(L, script_close);
    lua_setfield(L, -2, "__gc");
  }
  lua_setmetatable(L, -2);
  return s;
}

static int script_failed(lua_State *L, struct script *s, const char *name) {
  struct dsh_error err = {0};
  const char *why = lua_tostring(s->state, -1);
  size_t n;
  name += name[0] == '@' || name[0] == '=';
  n = strlen(name);
  if (!why)
    why = "the script raised a value that is no text";
  if (strncmp(why, name, n) == 0 && why[n] == ':')
    n = 0; /* says where already */
  dsh_fail_path(&err, DSH_E_CONFIG_INVALID, 0, "script", name, "%.*s%s%s",
                (int)n, name, n ? ": " : "", why);
  return ldsh_fail(L, &err);
}

/* run(text, name, prelude, callback, options): runs `prelude` in a fresh
 * state with (chunk, arg, host), where chunk is the compiled text, arg a copy
 * of options.arg, and host(...) calls callback(line, ...) over here. Returns
 * a copy of what the prelude returns; or nil, err (CONFIG_INVALID).
 * options: {memory = bytes, steps = instructions, arg = data}. */
static int script_run(lua_State *L) {
  struct script *s;
  struct copy c = {0, 0};
  const char *why, *name = luaL_checkstring(L, 2);
  luaL_checkstring(L, 1);
  luaL_checkstring(L, 3);
  luaL_checktype(L, 4, LUA_TFUNCTION);
  luaL_checktype(L, 5, LUA_TTABLE);
  lua_settop(L, 5);
  lua_getfield(L, 5, "arg");
  s = push_script(L);
  s->limit = (size_t)ldsh_field_int(L, 5, "options", "memory", SCRIPT_MEMORY);
  s->steps = ldsh_field_int(L, 5, "options", "steps", SCRIPT_STEPS);
  s->host = L;
  s->state = lua_newstate(script_alloc, s);
  if (!s->state)
    return luaL_error(L, "out of memory");
  lua_pushcfunction(s->state, script_main);
  if (lua_pcall(s->state, 0, 1, 0) != LUA_OK) {
    lua_settop(L, 7);
    return script_failed(L, s, name);
  }
  lua_settop(L, 7);
  why = copy_value(s->state, -1, L, &c, 0);
  if (why) {
    struct dsh_error err = {0};
    dsh_fail(&err, DSH_E_CONFIG_INVALID, 0, "script", "%s: returns %s",
             name + (name[0] == '@' || name[0] == '='), why);
    return ldsh_fail(L, &err);
  }
  return 1;
}

static const luaL_Reg script_functions[] = {
    {"run", script_run},
    {NULL, NULL},
};

int ldsh_open_script(lua_State *L);

int ldsh_open_script(lua_State *L) {
  luaL_newlib(L, script_functions);
  return 1;
}
