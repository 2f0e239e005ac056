/* lua_json.c: dsh.core.json, JSON values by jansson.
 *
 * null is the light userdata NULL (json.null); a table is an array when its
 * metatable is json.array_meta or when it has only the keys 1..n, n > 0.
 * A metatable field `__order` (list of keys) puts those first; other keys
 * follow sorted, so the same value always gives the same bytes. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "lua_dsh.h"

enum {
  JSON_DEPTH_MAX = 100,          /* nesting, both ways */
  JSON_BYTES_MAX = 64 << 20      /* longest text that decode takes */
};

static const char json_box_name[] = "dsh.json";

/* Holds one reference, so that a raise frees it. */
static json_t **json_box(lua_State *L) {
  json_t **box = lua_newuserdatauv(L, sizeof(json_t *), 0);
  *box = NULL;
  luaL_setmetatable(L, json_box_name);
  return box;
}

static int json_box_gc(lua_State *L) {
  json_t **box = luaL_checkudata(L, 1, json_box_name);
  json_decref(*box);
  *box = NULL;
  return 0;
}

static json_t *encode(lua_State *L, int idx, int depth);

static json_t *encode_failed(json_t *owned) {
  json_decref(owned);
  return NULL;
}

/* What is wrong goes on the stack as a message; NULL is returned. */
static json_t *unfit(lua_State *L, const char *why, json_t *owned) {
  lua_pushstring(L, why);
  return encode_failed(owned);
}

static json_t *encode_array(lua_State *L, int idx, int depth) {
  json_t *list = json_array();
  lua_Integer i, n = (lua_Integer)lua_rawlen(L, idx);
  for (i = 1; i <= n; i++) {
    json_t *item;
    lua_rawgeti(L, idx, i);
    item = encode(L, lua_gettop(L), depth + 1);
    if (!item)
      return encode_failed(list);
    json_array_append_new(list, item);
    lua_pop(L, 1);
  }
  return list;
}

/* Adds t[key] (key a string at the top) to the object; pops nothing. */
static int encode_member(lua_State *L, int idx, int depth, json_t *object) {
  size_t n;
  const char *key = lua_tolstring(L, -1, &n);
  json_t *value;
  if (strlen(key) != n) {
    unfit(L, "a key with a NUL byte", NULL);
    return -1;
  }
  lua_pushvalue(L, -1);
  lua_rawget(L, idx);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return 0;
  }
  value = encode(L, lua_gettop(L), depth + 1);
  if (!value)
    return -1;
  lua_pop(L, 1);
  if (json_object_set_new(object, key, value) != 0) {
    unfit(L, "a key that is not UTF-8", NULL);
    return -1;
  }
  return 0;
}

struct json_key {
  const char *s; /* anchored in the table while we sort */
  size_t n;
};

static int json_key_order(const void *a, const void *b) {
  return strcmp(((const struct json_key *)a)->s,
                ((const struct json_key *)b)->s);
}

/* All string keys of the table at idx, sorted; a userdata on the stack owns
 * the list. -1: a key is not a string (message on the stack). */
static lua_Integer sorted_keys(lua_State *L, int idx, struct json_key **out) {
  lua_Integer n = 0, i = 0;
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1))
    n++;
  *out = lua_newuserdatauv(L, sizeof **out * (size_t)(n + 1), 0);
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING) {
      unfit(L, "a table with keys that are not strings", NULL);
      return -1;
    }
    (*out)[i].s = lua_tolstring(L, -2, &(*out)[i].n);
    i++;
  }
  qsort(*out, (size_t)n, sizeof **out, json_key_order);
  return n;
}

static int encode_first(lua_State *L, int idx, int depth, json_t *object) {
  lua_Integer i, n;
  int order;
  if (luaL_getmetafield(L, idx, "__order") == LUA_TNIL)
    return 0;
  order = lua_gettop(L);
  n = (lua_Integer)lua_rawlen(L, order);
  for (i = 1; i <= n; i++) {
    if (lua_rawgeti(L, order, i) != LUA_TSTRING) {
      unfit(L, "an __order that is not a list of strings", NULL);
      return -1;
    }
    if (encode_member(L, idx, depth, object) != 0)
      return -1;
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return 0;
}

static json_t *encode_object(lua_State *L, int idx, int depth) {
  json_t *object = json_object();
  struct json_key *keys;
  lua_Integer i, n;
  if (encode_first(L, idx, depth, object) != 0)
    return encode_failed(object);
  n = sorted_keys(L, idx, &keys);
  if (n < 0)
    return encode_failed(object);
  for (i = 0; i < n; i++) {
    if (json_object_get(object, keys[i].s))
      continue;
    lua_pushlstring(L, keys[i].s, keys[i].n);
    if (encode_member(L, idx, depth, object) != 0)
      return encode_failed(object);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return object;
}

static bool is_array(lua_State *L, int idx) {
  lua_Integer n = 0;
  bool marked = false;
  if (lua_getmetatable(L, idx)) {
    luaL_getmetatable(L, "dsh.json.array");
    marked = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
  }
  if (marked)
    return true;
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1))
    n++;
  return n > 0 && (lua_Integer)lua_rawlen(L, idx) == n;
}

static json_t *encode_number(lua_State *L, int idx) {
  json_t *value;
  if (lua_isinteger(L, idx))
    return json_integer(lua_tointeger(L, idx));
  value = json_real(lua_tonumber(L, idx));
  return value ? value : unfit(L, "a number that is not finite", NULL);
}

static json_t *encode_string(lua_State *L, int idx) {
  size_t n;
  const char *s = lua_tolstring(L, idx, &n);
  json_t *value = json_stringn(s, n);
  return value ? value : unfit(L, "a string that is not UTF-8", NULL);
}

static json_t *encode(lua_State *L, int idx, int depth) {
  if (depth > JSON_DEPTH_MAX)
    return unfit(L, "a value nested too deep", NULL);
  if (!lua_checkstack(L, 12))
    return unfit(L, "out of memory", NULL);
  switch (lua_type(L, idx)) {
  case LUA_TBOOLEAN:
    return json_boolean(lua_toboolean(L, idx));
  case LUA_TNUMBER:
    return encode_number(L, idx);
  case LUA_TSTRING:
    return encode_string(L, idx);
  case LUA_TTABLE:
    return is_array(L, idx) ? encode_array(L, idx, depth)
                            : encode_object(L, idx, depth);
  case LUA_TLIGHTUSERDATA:
    if (!lua_touserdata(L, idx))
      return json_null();
    break;
  default:
    break;
  }
  return unfit(L, lua_typename(L, lua_type(L, idx)), NULL);
}

/* encode(value, indent?): the text. What JSON cannot hold (NaN, a function,
 * bytes that are not UTF-8) is misuse and raises. */
static int json_encode(lua_State *L) {
  size_t indent = (size_t)luaL_optinteger(L, 2, 0);
  size_t flags = JSON_ENCODE_ANY | JSON_INDENT(indent < 8 ? indent : 8);
  json_t **box;
  char *text;
  luaL_checkany(L, 1);
  lua_settop(L, 1);
  box = json_box(L);
  *box = encode(L, 1, 0);
  if (!*box)
    return luaL_error(L, "json.encode: cannot encode %s", lua_tostring(L, -1));
  text = json_dumps(*box, flags | (indent ? 0 : JSON_COMPACT));
  if (!text)
    return luaL_error(L, "json.encode: out of memory");
  json_decref(*box);
  *box = NULL;
  lua_pushstring(L, text); /* may raise: then text is lost, as memory is */
  free(text);
  return 1;
}

static void push_value(lua_State *L, const json_t *value, int depth);

static void push_array(lua_State *L, const json_t *value, int depth) {
  size_t i;
  lua_createtable(L, (int)(json_array_size(value) & 0xffff), 0);
  luaL_setmetatable(L, "dsh.json.array");
  for (i = 0; i < json_array_size(value); i++) {
    push_value(L, json_array_get(value, i), depth + 1);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

static void push_object(lua_State *L, const json_t *value, int depth) {
  void *it = json_object_iter((json_t *)(uintptr_t)value);
  lua_newtable(L);
  for (; it; it = json_object_iter_next((json_t *)(uintptr_t)value, it)) {
    lua_pushstring(L, json_object_iter_key(it));
    push_value(L, json_object_iter_value(it), depth + 1);
    lua_rawset(L, -3);
  }
}

static void push_value(lua_State *L, const json_t *value, int depth) {
  if (depth > JSON_DEPTH_MAX)
    luaL_error(L, "json.decode: nested too deep");
  luaL_checkstack(L, 8, "json.decode");
  switch (json_typeof(value)) {
  case JSON_OBJECT:
    push_object(L, value, depth);
    return;
  case JSON_ARRAY:
    push_array(L, value, depth);
    return;
  case JSON_STRING:
    lua_pushlstring(L, json_string_value(value), json_string_length(value));
    return;
  case JSON_INTEGER:
    lua_pushinteger(L, json_integer_value(value));
    return;
  case JSON_REAL:
    lua_pushnumber(L, json_real_value(value));
    return;
  case JSON_TRUE:
  case JSON_FALSE:
    lua_pushboolean(L, json_is_true(value));
    return;
  case JSON_NULL:
    lua_pushlightuserdata(L, NULL);
    return;
  }
  lua_pushnil(L);
}

static int too_deep(const json_t *value, int depth) {
  size_t i;
  const char *key;
  json_t *item;
  if (depth > JSON_DEPTH_MAX)
    return 1;
  if (json_is_array(value))
    for (i = 0; i < json_array_size(value); i++)
      if (too_deep(json_array_get(value, i), depth + 1))
        return 1;
  if (json_is_object(value))
    json_object_foreach((json_t *)(uintptr_t)value, key, item) {
      if (too_deep(item, depth + 1))
        return 1;
    }
  return 0;
}

/* decode(text): the value, or nil, err (stage "json"). Duplicate keys, bytes
 * after the value, depth or length over the limits are errors. */
static int json_decode(lua_State *L) {
  size_t n;
  const char *text = luaL_checklstring(L, 1, &n);
  struct dsh_error err = {0};
  json_error_t why;
  json_t **box = json_box(L);
  if (n > JSON_BYTES_MAX) {
    dsh_fail(&err, DSH_E_CONFIG_INVALID, 0, "json", "JSON text over %d bytes",
             (int)JSON_BYTES_MAX);
    return ldsh_fail(L, &err);
  }
  *box = json_loadb(text, n,
                    JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL,
                    &why);
  if (!*box || too_deep(*box, 0)) {
    dsh_fail(&err, DSH_E_CONFIG_INVALID, 0, "json", "JSON line %d: %s",
             *box ? 1 : why.line, *box ? "nested too deep" : why.text);
    return ldsh_fail(L, &err);
  }
  push_value(L, *box, 0);
  return 1;
}

/* array(t?): marks t (or a new table) as a JSON array, also when empty. */
static int json_array_mark(lua_State *L) {
  if (lua_isnoneornil(L, 1)) {
    lua_settop(L, 0);
    lua_newtable(L);
  }
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  luaL_setmetatable(L, "dsh.json.array");
  return 1;
}

static const luaL_Reg json_functions[] = {
    {"encode", json_encode},
    {"decode", json_decode},
    {"array", json_array_mark},
    {NULL, NULL},
};

int ldsh_open_json(lua_State *L);

int ldsh_open_json(lua_State *L) {
  if (luaL_newmetatable(L, json_box_name)) {
    lua_pushcfunction(L, json_box_gc);
    lua_setfield(L, -2, "__gc");
  }
  luaL_newmetatable(L, "dsh.json.array");
  lua_pop(L, 2);
  luaL_newlib(L, json_functions);
  lua_pushlightuserdata(L, NULL);
  lua_setfield(L, -2, "null");
  return 1;
}
