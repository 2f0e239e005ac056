/* lua_fs.c: dsh.core.fence.
 *
 *   fence.resolve(path) -> canonical path | nil, err
 *   fence.stat(path), fence.lstat(path) -> {type, mode, uid, gid, nlink, size,
 *     version} | nil, err
 *   fence.read(path, {max=, text=}) -> bytes, version | nil, err
 *   fence.write(path, bytes, {policy=, intent=, version=, allow_hard_links=,
 *     no_openat2=}) -> version | nil, err
 *   fence.edit(path, old, new, {policy=, all=, version=, max=, …})
 *     -> version, count | nil, err, count
 *   fence.list(path) -> {{name, type}, …} sorted by name | nil, err
 *
 * A version is an opaque string: dev:ino:size:mtime:ctime, in ns. `policy`
 * nil means no fence: for trusted code alone. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence.h"
#include "lua_dsh.h"

int ldsh_open_fence(lua_State *L);

static const char *check_path(lua_State *L, int idx) {
  size_t n;
  const char *path = luaL_checklstring(L, idx, &n);
  luaL_argcheck(L, strlen(path) == n, idx, "path: contains a NUL byte");
  luaL_argcheck(L, n > 0, idx, "path: is empty");
  return path;
}

static void push_version(lua_State *L, const struct dsh_fs_version *v) {
  char text[160];
  snprintf(text, sizeof text, "%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%" PRId64
                              ":%" PRId64,
           v->dev, v->ino, v->size, v->mtime_ns, v->ctime_ns);
  lua_pushstring(L, text);
}

static bool parse_version(const char *s, struct dsh_fs_version *v) {
  int n = 0;
  return sscanf(s, "%" SCNu64 ":%" SCNu64 ":%" SCNu64 ":%" SCNd64 ":%" SCNd64
                   "%n",
                &v->dev, &v->ino, &v->size, &v->mtime_ns, &v->ctime_ns,
                &n) == 5 &&
         s[n] == '\0';
}

static int ldsh_fence_resolve(lua_State *L) {
  const char *path = check_path(L, 1);
  struct dsh_arena *a = ldsh_push_arena(L);
  struct dsh_error err;
  char *out;
  if (dsh_fs_resolve(a, path, &out, &err) != 0)
    return ldsh_fail(L, &err);
  lua_pushstring(L, out);
  return 1;
}

static int look(lua_State *L, bool follow) {
  static const char *const names[] = {"file", "directory", "link", "other"};
  struct dsh_fs_stat st;
  struct dsh_error err;
  if (dsh_fs_stat_path(check_path(L, 1), follow, &st, &err) != 0)
    return ldsh_fail(L, &err);
  lua_createtable(L, 0, 7);
  lua_pushstring(L, names[strchr("fdlo", st.type) - "fdlo"]);
  lua_setfield(L, -2, "type");
  lua_pushinteger(L, st.mode);
  lua_setfield(L, -2, "mode");
  lua_pushinteger(L, st.uid);
  lua_setfield(L, -2, "uid");
  lua_pushinteger(L, st.gid);
  lua_setfield(L, -2, "gid");
  lua_pushinteger(L, (lua_Integer)st.nlink);
  lua_setfield(L, -2, "nlink");
  lua_pushinteger(L, (lua_Integer)st.version.size);
  lua_setfield(L, -2, "size");
  push_version(L, &st.version);
  lua_setfield(L, -2, "version");
  return 1;
}

static int ldsh_fence_stat(lua_State *L) {
  return look(L, true);
}

static int ldsh_fence_lstat(lua_State *L) {
  return look(L, false);
}

static int ldsh_fence_read(lua_State *L) {
  static const char *const known[] = {"max", "text", NULL};
  const char *path = check_path(L, 1);
  struct dsh_fs_version version;
  struct dsh_fs_bytes bytes;
  struct dsh_error err;
  struct dsh_arena *a;
  int64_t max = DSH_FS_TEXT_MAX;
  bool text = false;
  lua_settop(L, 2);
  if (!lua_isnil(L, 2)) {
    ldsh_check_fields(L, 2, "opts", known);
    max = ldsh_field_int(L, 2, "opts", "max", max);
    text = ldsh_field_bool(L, 2, "opts", "text", false);
    luaL_argcheck(L, max >= 0, 2, "opts.max: expected a number of bytes");
  }
  a = ldsh_push_arena(L);
  if (dsh_fs_read(a, path, (size_t)max, text, &bytes, &version, &err) != 0)
    return ldsh_fail(L, &err);
  lua_pushlstring(L, bytes.data, bytes.n);
  dsh_arena_free(a);
  push_version(L, &version);
  return 2;
}

/* The rules of a call, from its options. */
struct call {
  struct dsh_fence fence;
  struct dsh_policy policy;
  struct dsh_fs_version version;
  const struct dsh_fs_version *expect; /* or NULL */
  enum dsh_fs_intent intent;
  bool all;
  int64_t max;
};

static void read_intent(lua_State *L, int idx, struct call *c) {
  const char *s = ldsh_field_string(L, idx, "opts", "intent", false);
  if (!s || strcmp(s, "any") == 0)
    c->intent = DSH_FS_ANY;
  else if (strcmp(s, "create") == 0)
    c->intent = DSH_FS_CREATE;
  else if (strcmp(s, "replace") == 0)
    c->intent = DSH_FS_REPLACE;
  else
    luaL_error(L, "opts.intent: expected \"any\", \"create\" or \"replace\", "
                  "got \"%s\"",
               s);
  s = ldsh_field_string(L, idx, "opts", "version", false);
  if (s && !parse_version(s, &c->version))
    luaL_error(L, "opts.version: is not a version: \"%s\"", s);
  c->expect = s ? &c->version : NULL;
  if (c->intent == DSH_FS_REPLACE && !s)
    luaL_error(L, "opts.version: expected with intent = \"replace\"");
}

static void read_call(lua_State *L, int idx, struct dsh_arena *a,
                      struct call *c) {
  static const char *const known[] = {"policy", "intent", "version",
                                      "all",    "max",    "allow_hard_links",
                                      "no_openat2", NULL};
  memset(c, 0, sizeof *c);
  if (lua_isnil(L, idx))
    return;
  ldsh_check_fields(L, idx, "opts", known);
  if (lua_getfield(L, idx, "policy") != LUA_TNIL) {
    ldsh_check_policy(L, lua_gettop(L), a, &c->policy);
    c->fence.policy = &c->policy;
  }
  lua_pop(L, 1); /* opts still holds the policy and its strings */
  c->fence.tmpdir = getenv("TMPDIR");
  c->fence.home = getenv("HOME");
  c->fence.allow_hard_links =
      ldsh_field_bool(L, idx, "opts", "allow_hard_links", false);
  c->fence.no_openat2 = ldsh_field_bool(L, idx, "opts", "no_openat2", false);
  c->all = ldsh_field_bool(L, idx, "opts", "all", false);
  c->max = ldsh_field_int(L, idx, "opts", "max", 0);
  luaL_argcheck(L, c->max >= 0, idx, "opts.max: expected a number of bytes");
  read_intent(L, idx, c);
}

static int ldsh_fence_write(lua_State *L) {
  const char *path = check_path(L, 1), *data;
  struct dsh_fs_version version;
  struct dsh_error err;
  struct call c;
  size_t n;
  data = luaL_checklstring(L, 2, &n);
  lua_settop(L, 3);
  read_call(L, 3, ldsh_push_arena(L), &c);
  if (dsh_fs_write(&c.fence, path, data, n, c.intent, c.expect, &version,
                   &err) != 0)
    return ldsh_fail(L, &err);
  push_version(L, &version);
  return 1;
}

static int ldsh_fence_edit(lua_State *L) {
  const char *path = check_path(L, 1), *old, *new_;
  struct dsh_fs_version version;
  struct dsh_error err;
  struct call c;
  size_t old_n, new_n, count;
  int r;
  old = luaL_checklstring(L, 2, &old_n);
  new_ = luaL_checklstring(L, 3, &new_n);
  lua_settop(L, 4);
  read_call(L, 4, ldsh_push_arena(L), &c);
  r = dsh_fs_edit(&c.fence, path, old, old_n, new_, new_n, c.all, c.expect,
                  (size_t)c.max, &count, &version, &err);
  if (r != 0) {
    ldsh_fail(L, &err);
    lua_pushinteger(L, (lua_Integer)count);
    return 3;
  }
  push_version(L, &version);
  lua_pushinteger(L, (lua_Integer)count);
  return 2;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *e) {
  return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static int ldsh_fence_list(lua_State *L) {
  const char *path = check_path(L, 1);
  struct dirent **entry;
  struct dsh_error err;
  int i, n = scandir(path, &entry, no_dots, by_name);
  if (n < 0) {
    dsh_fs_fail(&err, errno, path, "cannot list");
    return ldsh_fail(L, &err);
  }
  lua_createtable(L, n, 0);
  for (i = 0; i < n; i++) {
    lua_createtable(L, 0, 2);
    lua_pushstring(L, entry[i]->d_name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, entry[i]->d_type == DT_DIR   ? "directory"
                      : entry[i]->d_type == DT_REG ? "file"
                      : entry[i]->d_type == DT_LNK ? "link"
                                                   : "other");
    lua_setfield(L, -2, "type");
    lua_rawseti(L, -2, i + 1);
    free(entry[i]);
  }
  free(entry);
  return 1;
}

int ldsh_open_fence(lua_State *L) {
  static const luaL_Reg functions[] = {{"resolve", ldsh_fence_resolve},
                                       {"stat", ldsh_fence_stat},
                                       {"lstat", ldsh_fence_lstat},
                                       {"read", ldsh_fence_read},
                                       {"write", ldsh_fence_write},
                                       {"edit", ldsh_fence_edit},
                                       {"list", ldsh_fence_list},
                                       {NULL, NULL}};
  luaL_newlib(L, functions);
  return 1;
}
