/* lua_sys.c: dsh.core.sys, the few facts of the process that Lua's own
 * library does not give, and private files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

static int write_file(lua_State *L, int flags) {
  const char *path = luaL_checkstring(L, 1);
  size_t n;
  const char *text = luaL_checklstring(L, 2, &n);
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags,
                0600);
  ssize_t done;
  if (fd < 0)
    return sys_fail(L, "open", path);
  done = fchmod(fd, 0600) == 0 ? write(fd, text, n) : -1;
  if (close(fd) != 0 || done != (ssize_t)n)
    return sys_fail(L, "write", path);
  lua_pushboolean(L, 1);
  return 1;
}

/* append_private(path, text), write_private(path, text): a file of mode 0600,
 * never through a link; true, or nil, err. */
static int sys_append_private(lua_State *L) {
  return write_file(L, O_APPEND);
}

static int sys_write_private(lua_State *L) {
  return write_file(L, O_TRUNC);
}

/* mkdir(path): mode 0700; true also when it is there already. */
static int sys_mkdir(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  if (mkdir(path, 0700) != 0 && errno != EEXIST)
    return sys_fail(L, "mkdir", path);
  lua_pushboolean(L, 1);
  return 1;
}

/* list(path): the names in a directory, or nil, err. */
static int sys_list(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  lua_Integer n = 0;
  struct dirent *e;
  DIR *d = opendir(path);
  if (!d)
    return sys_fail(L, "opendir", path);
  lua_newtable(L);
  while ((e = readdir(d))) {
    lua_pushstring(L, e->d_name); /* may raise for want of memory only */
    lua_rawseti(L, -2, ++n);
  }
  closedir(d);
  return 1;
}

/* executable(path): may this process execute it, and is it a file? */
static int sys_executable(lua_State *L) {
  struct stat st;
  const char *path = luaL_checkstring(L, 1);
  lua_pushboolean(L, stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
                         access(path, X_OK) == 0);
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
    {"pid", sys_pid},         {"list", sys_list},
    {"mkdir", sys_mkdir},     {"executable", sys_executable},
    {"append_private", sys_append_private},
    {"write_private", sys_write_private},
    {NULL, NULL},
};

int ldsh_open_sys(lua_State *L);

int ldsh_open_sys(lua_State *L) {
  luaL_newlib(L, sys_functions);
  return 1;
}
