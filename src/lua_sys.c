/* lua_sys.c: dsh.core.sys, the few facts of the process that Lua's own
 * library does not give. Nothing here changes the process. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lua_dsh.h"

extern char **environ;

static int sys_fail(lua_State *L, const char *stage, const char *path) {
  struct dsh_error err = {0};
  int errnum = errno;
  dsh_fail_path(&err, DSH_E_IO, errnum, stage, path, "%s: %s", stage, path);
  return ldsh_fail(L, &err);
}

/* cwd(): the current directory. */
static int sys_cwd(lua_State *L) {
  char buf[PATH_MAX];
  if (!getcwd(buf, sizeof buf))
    return sys_fail(L, "getcwd", ".");
  lua_pushstring(L, buf);
  return 1;
}

/* realpath(path): canonical and existing, or nil, err. */
static int sys_realpath(lua_State *L) {
  char buf[PATH_MAX];
  const char *path = luaL_checkstring(L, 1);
  if (!realpath(path, buf))
    return sys_fail(L, "realpath", path);
  lua_pushstring(L, buf);
  return 1;
}

/* exe(): this program's own file, or nil. */
static int sys_exe(lua_State *L) {
  char buf[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", buf, sizeof buf);
  if (n <= 0 || (size_t)n == sizeof buf)
    return 0;
  lua_pushlstring(L, buf, (size_t)n);
  return 1;
}

/* kind(path): "file", "directory", "link" (not followed), "other", or nil;
 * then the permission bits, the owner's uid, the size. */
static int sys_kind(lua_State *L) {
  struct stat st;
  const char *kind = "other";
  if (lstat(luaL_checkstring(L, 1), &st) != 0)
    return 0;
  if (S_ISREG(st.st_mode))
    kind = "file";
  else if (S_ISDIR(st.st_mode))
    kind = "directory";
  else if (S_ISLNK(st.st_mode))
    kind = "link";
  lua_pushstring(L, kind);
  lua_pushinteger(L, (lua_Integer)(st.st_mode & 07777));
  lua_pushinteger(L, (lua_Integer)st.st_uid);
  lua_pushinteger(L, (lua_Integer)st.st_size);
  return 4;
}

static int sys_isatty(lua_State *L) {
  lua_pushboolean(L, isatty((int)luaL_checkinteger(L, 1)));
  return 1;
}

/* winsize(fd): columns, rows; or nil where fd is no terminal. */
static int sys_winsize(lua_State *L) {
  struct winsize w;
  if (ioctl((int)luaL_checkinteger(L, 1), TIOCGWINSZ, &w) != 0 || !w.ws_col)
    return 0;
  lua_pushinteger(L, w.ws_col);
  lua_pushinteger(L, w.ws_row);
  return 2;
}

/* environ(): the whole environment as a table. */
static int sys_environ(lua_State *L) {
  char **e;
  lua_newtable(L);
  for (e = environ; e && *e; e++) {
    const char *eq = strchr(*e, '=');
    if (!eq)
      continue;
    lua_pushlstring(L, *e, (size_t)(eq - *e));
    lua_pushstring(L, eq + 1);
    lua_rawset(L, -3);
  }
  return 1;
}

/* now(): monotonic milliseconds, as a float with microseconds in it. */
static int sys_now(lua_State *L) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  lua_pushnumber(L, (lua_Number)t.tv_sec * 1e3 + (lua_Number)t.tv_nsec / 1e6);
  return 1;
}

/* time_ms(): milliseconds since 1970, as the session log wants them. */
static int sys_time_ms(lua_State *L) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  lua_pushinteger(L, (lua_Integer)t.tv_sec * 1000 + t.tv_nsec / 1000000);
  return 1;
}

static int sys_uid(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)geteuid());
  return 1;
}

static int sys_pid(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)getpid());
  return 1;
}

static const luaL_Reg sys_functions[] = {
    {"cwd", sys_cwd},         {"realpath", sys_realpath},
    {"exe", sys_exe},         {"kind", sys_kind},
    {"isatty", sys_isatty},   {"winsize", sys_winsize},
    {"environ", sys_environ}, {"now", sys_now},
    {"time_ms", sys_time_ms}, {"uid", sys_uid},
    {"pid", sys_pid},         {NULL, NULL},
};

int ldsh_open_sys(lua_State *L);

int ldsh_open_sys(lua_State *L) {
  luaL_newlib(L, sys_functions);
  return 1;
}
