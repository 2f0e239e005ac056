/* bwrap_profile.c: a policy as a list of mounts, in bwrap's words. Used by
 * the bwrap backend and by operators' runners that take the same words.
 *
 * The whole tree read-only; writable roots bound over it; protected paths
 * bound read-only over those. A protected path alone would not do: moving a
 * directory above it moves it out of the way, so every ancestor up to the
 * root is a mount of its own, which cannot be moved.
 *
 * Order matters, since a later mount covers an earlier one. So this is one
 * sorted list, parents before what lies in them, each path once; what lies in
 * /dev comes after the fresh /dev, and /dev and /proc turn read-only last,
 * without what is mounted below them. */
#include <stdlib.h>
#include <string.h>

#include "../src/backend.h"
#include "../src/path.h"

enum how { BIND_RW, BIND_RO };

struct mount {
  const char *path;
  enum how how;
};

struct mounts {
  struct mount *at;
  size_t n, cap;
};

static int add(struct dsh_arena *a, struct mounts *m, const char *path,
               enum how how) {
  if (m->n == m->cap) {
    size_t cap = m->cap ? m->cap * 2 : 16;
    struct mount *at = dsh_alloc(a, cap * sizeof *at);
    if (!at)
      return -1;
    if (m->n)
      memcpy(at, m->at, m->n * sizeof *at);
    m->at = at;
    m->cap = cap;
  }
  m->at[m->n].path = path;
  m->at[m->n++].how = how;
  return path ? 0 : -1;
}

/* Same path twice: read-only last, so that it wins. */
static int compare(const void *a, const void *b) {
  const struct mount *x = a, *y = b;
  int c = dsh_path_compare(x->path, y->path);
  return c ? c : (int)x->how - (int)y->how;
}

static void add_roots(struct dsh_arena *a, const struct dsh_roots *roots,
                      struct mounts *m) {
  size_t i;
  for (i = 0; i < roots->n; i++)
    if (!roots->root[i].read_only)
      add(a, m, roots->root[i].path, BIND_RW);
}

static const char *root_above(const struct mounts *m, size_t n,
                              const char *path) {
  size_t i;
  for (i = 0; i < n; i++)
    if (dsh_path_within(path, m->at[i].path))
      return m->at[i].path;
  return NULL;
}

/* One protected path and its ancestors below `root`. */
static void add_shield(struct dsh_arena *a, struct mounts *m, const char *path,
                       const char *root) {
  size_t i, base = strlen(root);
  for (i = base + 1; path[i]; i++)
    if (path[i] == '/')
      add(a, m, dsh_strndup(a, path, i), BIND_RW);
  add(a, m, path, BIND_RO);
}

/* What lies in another protected path needs no mounts, and must not have
 * any: an ancestor's bind would be writable. */
static bool inside_another(const struct dsh_strv *list, size_t i) {
  size_t k;
  for (k = 0; k < list->n; k++)
    if (k != i && dsh_path_within(list->v[i], list->v[k]) &&
        strcmp(list->v[i], list->v[k]) != 0)
      return true;
  return false;
}

static void add_protected(struct dsh_arena *a, const struct dsh_roots *roots,
                          struct mounts *m) {
  size_t i, n = m->n;
  for (i = 0; i < roots->protected_.n; i++) {
    const char *path = roots->protected_.v[i];
    const char *root = root_above(m, n, path);
    if (root && !inside_another(&roots->protected_, i))
      add_shield(a, m, path, root);
  }
}

static const char *option(const struct mount *m, bool in_dev) {
  if (m->how == BIND_RO)
    return "--ro-bind";
  /* A bind does without devices, unless it is told. */
  return in_dev && !dsh_path_within(m->path, "/dev/shm") ? "--dev-bind"
                                                         : "--bind";
}

static void emit(struct dsh_arena *a, const struct mounts *m, bool in_dev,
                 struct dsh_strv *out) {
  size_t i;
  for (i = 0; i < m->n; i++)
    if (dsh_path_within(m->at[i].path, "/dev") == in_dev) {
      dsh_strv_add(a, out, option(&m->at[i], in_dev));
      dsh_strv_add(a, out, m->at[i].path);
      dsh_strv_add(a, out, m->at[i].path);
    }
}

static void emit_checks(struct dsh_arena *a, const struct mounts *m,
                        struct dsh_strv *out) {
  size_t i;
  dsh_strv_add(a, out, "--expect-ro");
  dsh_strv_add(a, out, "/");
  for (i = 0; i < m->n; i++) {
    dsh_strv_add(a, out,
                 m->at[i].how == BIND_RW ? "--expect-rw" : "--expect-ro");
    dsh_strv_add(a, out, m->at[i].path);
  }
}

/* Sorted, each path once. */
static void settle(struct mounts *m) {
  size_t i, n = 0;
  if (m->n > 1)
    qsort(m->at, m->n, sizeof *m->at, compare);
  for (i = 0; i < m->n; i++) {
    if (n && strcmp(m->at[n - 1].path, m->at[i].path) == 0)
      n--;
    m->at[n++] = m->at[i];
  }
  m->n = n;
}

int dsh_bwrap_profile(struct dsh_arena *a, const struct dsh_launch *in,
                      struct dsh_strv *out, struct dsh_strv *checks,
                      struct dsh_error *err) {
  static const char *const first[] = {
      "--unshare-user-try", "--unshare-ipc", "--unshare-pid",
      "--unshare-uts", "--die-with-parent", "--cap-drop", "ALL",
      "--ro-bind", "/", "/", NULL};
  static const char *const fresh[] = {"--dev", "/dev", "--proc", "/proc",
                                      NULL};
  static const char *const last[] = {"--remount-ro", "/dev", "--remount-ro",
                                     "/proc", NULL};
  struct mounts m = {0};
  if (in->roots->unprotectable.n)
    return dsh_fail(err, DSH_E_POLICY_UNSUPPORTED, 0, "bwrap",
                    "protected path %s; bwrap cannot protect it without "
                    "leaving something on the host",
                    in->roots->unprotectable.v[0]);
  add_roots(a, in->roots, &m);
  add_protected(a, in->roots, &m);
  settle(&m);
  if (m.n > DSH_MOUNTS_MAX)
    return dsh_fail(err, DSH_E_POLICY_TOO_LARGE, 0, "bwrap",
                    "%zu mounts, at most %d", m.n, DSH_MOUNTS_MAX);
  dsh_words(a, out, first);
  emit(a, &m, false, out);
  dsh_words(a, out, fresh);
  emit(a, &m, true, out);
  dsh_words(a, out, last);
  if (checks)
    emit_checks(a, &m, checks);
  return a->failed
             ? dsh_fail(err, DSH_E_NO_MEMORY, 0, "bwrap", "out of memory")
             : 0;
}
