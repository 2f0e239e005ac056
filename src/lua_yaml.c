/* lua_yaml.c: dsh.core.yaml, the strict YAML reader. */
#include "lua_dsh.h"
#include "yamlread.h"

static void set_int(lua_State *L, const char *key, size_t n) {
  lua_pushinteger(L, (lua_Integer)n);
  lua_setfield(L, -2, key);
}

static void push_node(lua_State *L, const struct dsh_yaml_node *n, int file);

/* Pushes a map's or list's children into the table on top. An aliased node
 * is written out at each place; the reader has bounded their number. */
static void push_map(lua_State *L, const struct dsh_yaml_node *n, int file) {
  size_t i;
  lua_createtable(L, (int)n->n, 0);
  lua_createtable(L, 0, (int)n->n);
  for (i = 0; i < n->n; i++) {
    lua_pushlstring(L, n->key[i]->text, n->key[i]->len);
    lua_pushvalue(L, -1);
    lua_rawseti(L, -4, (lua_Integer)i + 1);
    push_node(L, n->item[i], file);
    set_int(L, "key_line", n->key[i]->at.line);
    set_int(L, "key_column", n->key[i]->at.column);
    set_int(L, "key_from", n->key[i]->from);
    lua_rawset(L, -3);
  }
  lua_setfield(L, -3, "values");
  lua_setfield(L, -2, "keys");
}

static void push_node(lua_State *L, const struct dsh_yaml_node *n, int file) {
  static const char *const kinds[] = {"scalar", "list", "map"};
  size_t i;
  luaL_checkstack(L, 8, "yaml");
  lua_createtable(L, n->kind == DSH_YAML_LIST ? (int)n->n : 0, 12);
  lua_pushstring(L, kinds[n->kind]);
  lua_setfield(L, -2, "kind");
  lua_pushvalue(L, file);
  lua_setfield(L, -2, "file");
  set_int(L, "line", n->at.line);
  set_int(L, "column", n->at.column);
  set_int(L, "from", n->from);
  set_int(L, "to", n->to);
  if (n->shared) {
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, "shared");
  }
  if (n->kind == DSH_YAML_SCALAR) {
    lua_pushlstring(L, n->text, n->len);
    lua_setfield(L, -2, "text");
    lua_pushboolean(L, n->plain);
    lua_setfield(L, -2, "plain");
    return;
  }
  lua_pushboolean(L, n->flow);
  lua_setfield(L, -2, "flow");
  if (n->kind == DSH_YAML_MAP) {
    push_map(L, n, file);
    return;
  }
  for (i = 0; i < n->n; i++) {
    push_node(L, n->item[i], file);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

/* parse(text, file): the node, false for an empty text, or nil, err with
 * line and column. Nodes are described in dsh.node; from and to are byte
 * offsets into the text, from 0, to exclusive. */
static int yaml_parse(lua_State *L) {
  size_t len;
  const char *text = luaL_checklstring(L, 1, &len);
  const char *file = luaL_checkstring(L, 2);
  struct dsh_arena *a;
  struct dsh_yaml_node *root;
  struct dsh_yaml_pos at = {0, 0};
  struct dsh_error err = {0};
  lua_settop(L, 2);
  a = ldsh_push_arena(L);
  if (dsh_yaml_parse(a, text, len, file, &root, &at, &err) != 0) {
    ldsh_fail(L, &err);
    set_int(L, "line", at.line);
    set_int(L, "column", at.column);
    return 2;
  }
  if (root)
    push_node(L, root, 2);
  else
    lua_pushboolean(L, 0);
  dsh_arena_free(a);
  return 1;
}

static const luaL_Reg yaml_functions[] = {
    {"parse", yaml_parse},
    {NULL, NULL},
};

int ldsh_open_yaml(lua_State *L);

int ldsh_open_yaml(lua_State *L) {
  luaL_newlib(L, yaml_functions);
  return 1;
}
