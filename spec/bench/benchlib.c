/* benchlib.c: the clock and a bare posix_spawn for the benchmarks.
 *
 *   benchlib.now()            nanoseconds, monotonic
 *   benchlib.spawn(argv)      runs it to its end, output to /dev/null;
 *                             nanoseconds, wait status. Raises on failure
 *   benchlib.sleep(ms)
 *   benchlib.sync_append(path, bytes)   one write and fsync at the end of a
 *                             file that stays open; nanoseconds
 *   benchlib.sync_replace(dir, bytes)   the bare calls of an atomic write of
 *                             dir/bare: lock, make beside, write, fsync,
 *                             rename, fsync the directory; nanoseconds */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

enum { ARGV_MAX = 512 };

extern char **environ;

static lua_Integer now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (lua_Integer)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int bench_now(lua_State *L) {
  lua_pushinteger(L, now_ns());
  return 1;
}

static int bench_sleep(lua_State *L) {
  lua_Integer ms = luaL_checkinteger(L, 1);
  struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
  nanosleep(&t, NULL);
  return 0;
}

static int bench_spawn(lua_State *L) {
  char *argv[ARGV_MAX + 1];
  posix_spawn_file_actions_t files;
  lua_Integer begin, n, i;
  int status = 0, rc;
  pid_t pid;
  luaL_checktype(L, 1, LUA_TTABLE);
  n = luaL_len(L, 1);
  luaL_argcheck(L, n > 0 && n <= ARGV_MAX, 1, "bad argv");
  luaL_checkstack(L, (int)n + 4, "argv");
  for (i = 0; i < n; i++) {
    lua_geti(L, 1, i + 1);
    argv[i] = (char *)(uintptr_t)luaL_checkstring(L, -1);
  } /* the strings stay on the stack, so they stay */
  argv[n] = NULL;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  begin = now_ns();
  rc = posix_spawn(&pid, argv[0], &files, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&files);
  if (rc != 0)
    return luaL_error(L, "%s: %s", argv[0], strerror(rc));
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR)
      return luaL_error(L, "waitpid: %s", strerror(errno));
  lua_pushinteger(L, now_ns() - begin);
  lua_pushinteger(L, status);
  return 2;
}

/* The descriptor of the first call is kept: one path for the whole run. */
static int bench_sync_append(lua_State *L) {
  static int fd = -1;
  size_t n;
  const char *path = luaL_checkstring(L, 1);
  const char *bytes = luaL_checklstring(L, 2, &n);
  lua_Integer begin;
  if (fd < 0)
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  begin = now_ns();
  if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || fsync(fd) != 0)
    return luaL_error(L, "%s: %s", path, strerror(errno));
  lua_pushinteger(L, now_ns() - begin);
  return 1;
}

/* The bare system calls of an atomic write: DIR, name, bytes. */
static int bench_atomic_write(lua_State *L) {
  size_t n;
  const char *dir = luaL_checkstring(L, 1), *name = luaL_checkstring(L, 2);
  const char *bytes = luaL_checklstring(L, 3, &n);
  int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd, bad;
  lua_Integer begin = now_ns();
  fd = openat(d, ".bench-sibling", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bad = fd < 0 || write(fd, bytes, n) != (ssize_t)n || fsync(fd) != 0 ||
        renameat(d, ".bench-sibling", d, name) != 0 || fsync(d) != 0;
  begin = now_ns() - begin;
  if (fd >= 0)
    close(fd);
  close(d);
  if (bad)
    return luaL_error(L, "%s: %s", dir, strerror(errno));
  lua_pushinteger(L, begin);
  return 1;
}

static int bench_sync_replace(lua_State *L) {
  size_t n;
  const char *path = luaL_checkstring(L, 1);
  const char *bytes = luaL_checklstring(L, 2, &n);
  lua_Integer begin = now_ns();
  int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
  if (dir < 0 || flock(dir, LOCK_EX) != 0)
    return luaL_error(L, "%s: %s", path, strerror(errno));
  fd = openat(dir, "bare.new", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || fsync(fd) != 0 ||
      renameat(dir, "bare.new", dir, "bare") != 0 || fsync(dir) != 0)
    return luaL_error(L, "%s: %s", path, strerror(errno));
  close(fd);
  close(dir);
  lua_pushinteger(L, now_ns() - begin);
  return 1;
}

static const luaL_Reg functions[] = {
    {"atomic_write", bench_atomic_write},
    {"sync_append", bench_sync_append},
    {"sync_replace", bench_sync_replace},
    {"now", bench_now},
    {"sleep", bench_sleep},
    {"spawn", bench_spawn},
    {NULL, NULL},
};

__attribute__((visibility("default"))) int luaopen_benchlib(lua_State *L);

int luaopen_benchlib(lua_State *L) {
  luaL_newlib(L, functions);
  return 1;
}
