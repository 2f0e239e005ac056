/* path.c: paths as the filesystem sees them. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dsh.h"
#include "path.h"

enum { CACHE_SLOTS = 16 };

/* What realpath found before, kept while both names still mean the object
 * that was found then. Walking a path costs a system call a component; two
 * stats are the whole cost of a hit. */
struct slot {
  char *given, *canonical; /* owned */
  dev_t dev;
  ino_t ino;
};

static _Thread_local struct slot cache[CACHE_SLOTS];
static _Thread_local unsigned next_slot;

static bool still_means(const char *path, const struct slot *s) {
  struct stat st;
  return stat(path, &st) == 0 && st.st_dev == s->dev && st.st_ino == s->ino;
}

static struct slot *cached(const char *path) {
  unsigned i;
  for (i = 0; i < CACHE_SLOTS; i++) {
    struct slot *s = &cache[i];
    if (s->given && strcmp(s->given, path) == 0)
      return still_means(path, s) && still_means(s->canonical, s) ? s : NULL;
  }
  return NULL;
}

static void remember(const char *path, const char *canonical) {
  struct slot *s = NULL;
  struct stat st;
  unsigned i;
  if (stat(canonical, &st) != 0)
    return;
  for (i = 0; i < CACHE_SLOTS && !s; i++)
    if (cache[i].given && strcmp(cache[i].given, path) == 0)
      s = &cache[i];
  if (!s)
    s = &cache[next_slot++ % CACHE_SLOTS];
  free(s->given);
  free(s->canonical);
  s->given = strdup(path);
  s->canonical = strdup(canonical);
  s->dev = st.st_dev;
  s->ino = st.st_ino;
  if (!s->canonical) {
    free(s->given);
    s->given = NULL;
  }
}

char *dsh_canonical(struct dsh_arena *a, const char *path,
                    struct dsh_error *err) {
  char room[PATH_MAX];
  struct slot *s = cached(path);
  if (s)
    return dsh_strdup(a, s->canonical);
  if (!realpath(path, room)) {
    dsh_fail_path(err, DSH_E_IO, errno, "path", path, "cannot resolve \"%s\"",
                  path);
    return NULL;
  }
  remember(path, room);
  return dsh_strdup(a, room);
}

bool dsh_path_within(const char *path, const char *dir) {
  size_t n = strlen(dir);
  if (n == 1 && dir[0] == '/')
    return true;
  return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

const char *dsh_path_lexical(struct dsh_arena *a, const char *path) {
  size_t n = strlen(path), out = 0;
  char *copy = dsh_strndup(a, path, n);
  const char *p = path, *end;
  if (!copy)
    return NULL;
  for (; *p; p = end) {
    while (*p == '/')
      p++;
    end = p + strcspn(p, "/");
    if (end == p || (end - p == 1 && p[0] == '.'))
      continue;
    if (end - p == 2 && p[0] == '.' && p[1] == '.') {
      while (out && copy[--out] != '/')
        ;
      continue;
    }
    copy[out++] = '/';
    memcpy(copy + out, p, (size_t)(end - p));
    out += (size_t)(end - p);
  }
  if (out == 0)
    copy[out++] = '/';
  copy[out] = '\0';
  return copy;
}
