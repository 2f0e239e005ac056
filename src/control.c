/* control.c: paths that no confined command may ever write. */
#include <errno.h>
#include <fts.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "path.h"

enum { CONTROLS_MAX = 64, ENTRIES_MAX = 4096 };

static struct {
  struct dsh_arena arena;
  const char *path[CONTROLS_MAX];
  size_t n;
} control;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int add(const char *path, struct dsh_error *err) {
  char *canonical;
  size_t i;
  canonical =
      dsh_path_resolve(&control.arena, path, true, NULL, NULL, err);
  if (!canonical)
    return control.arena.failed
               ? dsh_fail(err, DSH_E_NO_MEMORY, 0, "control", "out of memory")
               : -1;
  for (i = 0; i < control.n; i++)
    if (strcmp(control.path[i], canonical) == 0)
      return 0;
  if (control.n == CONTROLS_MAX)
    return dsh_fail_path(err, DSH_E_POLICY_TOO_LARGE, 0, "control", path,
                         "more than %d control paths", CONTROLS_MAX);
  control.path[control.n] = canonical;
  control.n++; /* readers see a path only once it is whole */
  return 0;
}

int dsh_control_add(const char *path, struct dsh_error *err) {
  int r;
  if (path[0] != '/')
    return dsh_fail_path(err, DSH_E_MISUSE, 0, "control", path,
                         "control path: expected an absolute path, got \"%s\"",
                         path);
  pthread_mutex_lock(&lock);
  r = add(path, err);
  pthread_mutex_unlock(&lock);
  return r;
}

size_t dsh_control_count(void) {
  return control.n;
}

const char *dsh_control_at(size_t i) {
  return control.path[i];
}

/* Could we change this object, or its permissions, without capabilities?
 * Ownership is enough: an owner may chmod. A group's or anybody's write bit
 * counts whoever we are, for it may be ours. */
static bool changeable(const struct stat *st) {
  return st->st_uid == geteuid() || (st->st_mode & 022) != 0;
}

static bool tree_denied(const char *path) {
  char copy[4096], *roots[2] = {copy, NULL};
  FTSENT *e;
  FTS *fts;
  int n = 0;
  bool denied = true;
  if (strlen(path) >= sizeof copy)
    return false;
  strcpy(copy, path);
  fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  if (!fts)
    return false;
  while (denied && (e = fts_read(fts)) != NULL) {
    if (e->fts_info == FTS_DP || e->fts_info == FTS_SL ||
        e->fts_info == FTS_DNR) /* what we cannot list we cannot reach */
      continue;
    denied = ++n < ENTRIES_MAX && e->fts_info != FTS_NS &&
             e->fts_info != FTS_ERR && !changeable(e->fts_statp);
  }
  fts_close(fts);
  return denied;
}

bool dsh_control_denied(const char *path, const char *root) {
  char dir[4096];
  struct stat st;
  size_t n = strlen(path);
  if (n >= sizeof dir || geteuid() == 0)
    return false; /* uid 0 owns what matters, and its grants are by name */
  memcpy(dir, path, n + 1);
  if (lstat(dir, &st) != 0 ? errno != ENOENT : !tree_denied(dir))
    return false;
  while (strcmp(dir, root) != 0) {
    char *slash = strrchr(dir, '/');
    if (!slash || slash == dir)
      return false;
    *slash = '\0';
    if (stat(dir, &st) != 0 ? errno != ENOENT : changeable(&st))
      return false;
  }
  return true;
}
