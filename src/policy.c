/* policy.c: the form of a policy, and the one list of writable places. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dsh.h"
#include "path.h"

enum { CONTROL_MAX = 64 };

int dsh_policy_check(const struct dsh_policy *p, struct dsh_error *err) {
  size_t i;
  if ((unsigned)p->mode > DSH_DANGER_FULL_ACCESS)
    return dsh_fail(err, DSH_E_MISUSE, 0, "policy", "policy.mode: unknown");
  if (!p->workspace_root || p->workspace_root[0] != '/')
    return dsh_fail(err, DSH_E_MISUSE, 0, "policy",
                    "policy.workspace_root: expected an absolute path, got "
                    "\"%s\"",
                    p->workspace_root ? p->workspace_root : "");
  if (p->extra_roots.n > DSH_ROOTS_MAX)
    return dsh_fail(err, DSH_E_POLICY_TOO_LARGE, 0, "policy",
                    "policy.extra_roots: %zu paths, at most %d",
                    p->extra_roots.n, DSH_ROOTS_MAX);
  if (p->protected_.n > DSH_PROTECTED_MAX)
    return dsh_fail(err, DSH_E_POLICY_TOO_LARGE, 0, "policy",
                    "policy.protected: %zu paths, at most %d", p->protected_.n,
                    DSH_PROTECTED_MAX);
  for (i = 0; i < p->extra_roots.n; i++)
    if (p->extra_roots.v[i][0] != '/')
      return dsh_fail(err, DSH_E_MISUSE, 0, "policy",
                      "policy.extra_roots[%zu]: expected an absolute path, "
                      "got \"%s\"",
                      i + 1, p->extra_roots.v[i]);
  for (i = 0; i < p->protected_.n; i++)
    if (!p->protected_.v[i][0])
      return dsh_fail(err, DSH_E_MISUSE, 0, "policy",
                      "policy.protected[%zu]: empty", i + 1);
  if (p->temp == DSH_TEMP_PRIVATE && (!p->temp_dir || p->temp_dir[0] != '/'))
    return dsh_fail(err, DSH_E_MISUSE, 0, "policy",
                    "policy.temp_dir: expected an absolute path with "
                    "temp = \"private\"");
  return 0;
}

/* --- control paths ------------------------------------------------------- */

static pthread_mutex_t control_lock = PTHREAD_MUTEX_INITIALIZER;
static char *control[CONTROL_MAX]; /* owned, for the process's life */
static size_t n_control;

static int control_put(const char *path, struct dsh_error *err) {
  size_t i;
  for (i = 0; i < n_control; i++)
    if (strcmp(control[i], path) == 0)
      return 0;
  if (n_control == CONTROL_MAX)
    return dsh_fail(err, DSH_E_MISUSE, 0, "policy",
                    "more than %d control paths", CONTROL_MAX);
  control[n_control] = strdup(path);
  if (!control[n_control])
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "policy", "control path");
  n_control++;
  return 0;
}

int dsh_control_add(const char *path, struct dsh_error *err) {
  char room[PATH_MAX];
  int r;
  if (path[0] != '/')
    return dsh_fail(err, DSH_E_MISUSE, 0, "policy",
                    "control path \"%s\": expected an absolute one", path);
  /* Made canonical now: what a link of that name means later is no matter. */
  if (!realpath(path, room)) {
    if (errno == ENOENT)
      return 0; /* nothing there to protect yet; its maker adds it again */
    return dsh_fail_path(err, DSH_E_IO, errno, "policy", path, "control path");
  }
  pthread_mutex_lock(&control_lock);
  r = control_put(room, err);
  pthread_mutex_unlock(&control_lock);
  return r;
}

/* --- roots --------------------------------------------------------------- */

static int compare_roots(const void *a, const void *b) {
  return strcmp(((const struct dsh_root *)a)->path,
                ((const struct dsh_root *)b)->path);
}

static int compare_strings(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A root that does not exist grants nothing. */
static int add_root(struct dsh_arena *a, const char *path,
                    enum dsh_root_origin origin, struct dsh_roots *out) {
  struct dsh_root *r = &out->root[out->n];
  struct stat st;
  const char *canonical = dsh_canonical(a, path, NULL);
  if (!canonical || stat(canonical, &st) != 0)
    return a->failed ? -1 : 0;
  r->path = canonical;
  r->origin = origin;
  r->dev = (uint64_t)st.st_dev;
  r->ino = (uint64_t)st.st_ino;
  r->directory = S_ISDIR(st.st_mode);
  out->n++;
  return 0;
}

static int refuse_temp(struct dsh_arena *a, struct dsh_roots *out,
                       const char *path, const char *why) {
  return dsh_strv_add(a, &out->refused, dsh_format(a, "%s: %s", path, why));
}

/* $TMPDIR is the caller's word: never the whole tree or somebody's home. */
static int add_tmpdir(struct dsh_arena *a, const char *tmpdir,
                      const char *home, struct dsh_roots *out) {
  const char *real, *real_home;
  if (!tmpdir || !*tmpdir)
    return 0;
  if (tmpdir[0] != '/')
    return refuse_temp(a, out, tmpdir, "not an absolute path");
  real = dsh_canonical(a, tmpdir, NULL);
  if (!real)
    return 0;
  if (strcmp(real, "/") == 0)
    return refuse_temp(a, out, tmpdir, "is the root directory");
  real_home = home && *home == '/' ? dsh_canonical(a, home, NULL) : NULL;
  if (real_home && dsh_path_within(real_home, real))
    return refuse_temp(a, out, tmpdir, "is the home directory or above it");
  if (out->workspace && strcmp(out->workspace, real) != 0 &&
      dsh_path_within(out->workspace, real))
    return refuse_temp(a, out, tmpdir, "lies above the workspace root");
  return add_root(a, tmpdir, DSH_ROOT_TMPDIR, out);
}

static int collect(struct dsh_arena *a, const struct dsh_policy *p,
                   const char *tmpdir, const char *home,
                   struct dsh_roots *out) {
  size_t i;
  int r = 0;
  if (p->mode == DSH_WORKSPACE_WRITE) {
    if (out->workspace)
      r |= add_root(a, p->workspace_root, DSH_ROOT_WORKSPACE, out);
    if (p->temp == DSH_TEMP_PRIVATE) {
      r |= add_root(a, p->temp_dir, DSH_ROOT_PRIVATE_TEMP, out);
    } else {
      r |= add_root(a, "/tmp", DSH_ROOT_TMP, out);
      r |= add_tmpdir(a, tmpdir, home, out);
    }
#if defined __linux__
    r |= add_root(a, "/dev/shm", DSH_ROOT_SHM, out);
#endif
  }
  for (i = 0; i < p->extra_roots.n; i++)
    r |= add_root(a, p->extra_roots.v[i], DSH_ROOT_EXTRA, out);
  return r;
}

/* Sorted, a root comes right before what lies inside it. */
static void drop_nested(struct dsh_roots *out) {
  size_t i, kept = 0;
  qsort(out->root, out->n, sizeof *out->root, compare_roots);
  for (i = 0; i < out->n; i++)
    if (kept == 0 ||
        !dsh_path_within(out->root[i].path, out->root[kept - 1].path))
      out->root[kept++] = out->root[i];
  out->n = kept;
}

static const struct dsh_root *root_of(const struct dsh_roots *roots,
                                      const char *path) {
  size_t i;
  for (i = 0; i < roots->n; i++)
    if (dsh_path_within(path, roots->root[i].path))
      return &roots->root[i];
  return NULL;
}

/* --- protected ----------------------------------------------------------- */

static const char *parent_of(struct dsh_arena *a, const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == path ? "/" : dsh_strndup(a, path, (size_t)(slash - path));
}

static int cannot(struct dsh_arena *a, struct dsh_roots *out, const char *path,
                  const char *why) {
  return dsh_strv_add(a, &out->unprotectable,
                      dsh_format(a, "%s: %s", path, why));
}

/* Only what exists, reached without a link that the command could replace,
 * can be carved out of a writable root. */
static int add_protected(struct dsh_arena *a, struct dsh_roots *out,
                         const char *path) {
  const char *whole, *parent, *real;
  struct stat st;
  size_t n;
  whole = dsh_path_lexical(a, path);
  if (!whole || strcmp(whole, "/") == 0)
    return whole ? cannot(a, out, "/", "is everything") : -1;
  parent = parent_of(a, whole);
  real = parent ? dsh_canonical(a, parent, NULL) : NULL;
  if (!real)
    return root_of(out, whole) ? cannot(a, out, whole, "does not exist") : 0;
  n = strlen(parent);
  if (!root_of(out, whole) && !root_of(out, real))
    return 0; /* no writable root reaches it */
  if (strcmp(real, parent) != 0 && root_of(out, whole))
    return cannot(a, out, whole, "is reached through a symbolic link");
  real = dsh_format(a, "%s%s", strcmp(real, "/") ? real : "",
                    whole + (n == 1 ? 0 : n));
  if (!real)
    return -1;
  if (lstat(real, &st) != 0)
    return cannot(a, out, whole, "does not exist");
  if (S_ISLNK(st.st_mode))
    return cannot(a, out, whole, "is a symbolic link");
  return dsh_strv_add(a, &out->protected_, real);
}

/* File permissions already keep this user from writing it. */
static bool out_of_reach(const char *path) {
  struct stat st;
  return geteuid() != 0 && lstat(path, &st) == 0 && st.st_uid != geteuid() &&
         access(path, W_OK) != 0;
}

static int collect_protected(struct dsh_arena *a, const struct dsh_policy *p,
                             struct dsh_roots *out) {
  size_t i;
  int r = 0;
  for (i = 0; i < p->protected_.n; i++) {
    const char *path = p->protected_.v[i];
    const char *base = out->workspace ? out->workspace : p->workspace_root;
    if (path[0] != '/')
      path = dsh_format(a, "%s/%s", base, path);
    r |= path ? add_protected(a, out, path) : -1;
  }
  pthread_mutex_lock(&control_lock);
  for (i = 0; i < n_control; i++)
    if (root_of(out, control[i]) && !out_of_reach(control[i]))
      r |= add_protected(a, out, control[i]);
  pthread_mutex_unlock(&control_lock);
  if (out->protected_.n)
    qsort(out->protected_.v, out->protected_.n, sizeof *out->protected_.v,
          compare_strings);
  return r;
}

int dsh_roots_resolve(struct dsh_arena *a, const struct dsh_policy *p,
                      const char *tmpdir, const char *home,
                      struct dsh_roots *out, struct dsh_error *err) {
  memset(out, 0, sizeof *out);
  out->root = dsh_alloc(a, (p->extra_roots.n + 5) * sizeof *out->root);
  if (!out->root)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "policy", "roots");
  out->workspace = dsh_canonical(a, p->workspace_root, NULL);
  if (p->mode == DSH_DANGER_FULL_ACCESS)
    return 0; /* nothing is fenced, so nothing is listed */
  if (collect(a, p, tmpdir, home, out) != 0)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "policy", "roots");
  drop_nested(out);
  if (collect_protected(a, p, out) != 0)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "policy", "protected paths");
  return 0;
}

bool dsh_roots_writable(const struct dsh_roots *roots, const char *path,
                        const char **why) {
  const struct dsh_root *root = root_of(roots, path);
  size_t i;
  *why = root ? root->path : NULL;
  if (!root)
    return false;
  for (i = 0; i < roots->protected_.n; i++)
    if (dsh_path_within(path, roots->protected_.v[i])) {
      *why = roots->protected_.v[i];
      return false;
    }
  return true;
}
