/* bwrap_profile.c: bubblewrap's arguments for a policy. Used by the bwrap
 * backend and by operators' runners that take the same arguments.
 *
 * Order matters, since a later mount covers an earlier one: the whole tree
 * read-only, fresh /dev and /proc, writable roots (parents first), the
 * ancestors of protected paths, protected paths on top; then /dev and /proc
 * themselves turn read-only, without what is mounted below them. */
#include <string.h>

#include "../src/backend.h"

static int add(struct dsh_arena *a, struct dsh_strv *out,
               const char *const *words) {
  int r = 0;
  for (; *words; words++)
    r |= dsh_strv_add(a, out, *words);
  return r;
}

static int bind(struct dsh_arena *a, struct dsh_strv *out, const char *option,
                const char *path) {
  const char *const words[] = {option, path, path, NULL};
  return add(a, out, words);
}

static const struct dsh_root *root_of(const struct dsh_roots *roots,
                                      const char *path) {
  size_t i;
  for (i = 0; i < roots->n; i++)
    if (dsh_path_within(path, roots->root[i].path))
      return &roots->root[i];
  return NULL;
}

/* A mount point cannot be renamed. So each directory between the root and a
 * protected path is bound onto itself: else moving one away and making another
 * of its name would get around the mask. */
static int bind_ancestors(struct dsh_arena *a, struct dsh_strv *out,
                          const char *root, const char *path) {
  const char *p = path + (strcmp(root, "/") ? strlen(root) : 0);
  int r = 0;
  while (*p && (p = strchr(p + 1, '/')))
    r |= bind(a, out, "--bind", dsh_strndup(a, path, (size_t)(p - path)));
  return r;
}

static int bind_protected(struct dsh_arena *a, struct dsh_strv *out,
                          const struct dsh_roots *roots) {
  size_t i;
  int r = 0;
  for (i = 0; i < roots->protected_.n; i++) {
    const char *path = roots->protected_.v[i];
    const struct dsh_root *root = root_of(roots, path);
    if (!root) /* sorted and canonical: always under one */
      return -1;
    r |= bind_ancestors(a, out, root->path, path);
  }
  for (i = 0; i < roots->protected_.n; i++)
    r |= bind(a, out, "--ro-bind", roots->protected_.v[i]);
  return r;
}

int dsh_bwrap_profile(struct dsh_arena *a, const struct dsh_launch *in,
                      struct dsh_strv *out, struct dsh_error *err) {
  static const char *const spaces[] = {"--unshare-user-try", "--unshare-ipc",
                                       "--unshare-pid", "--unshare-uts",
                                       "--die-with-parent", NULL};
  static const char *const fresh[] = {"--dev", "/dev", "--proc", "/proc", NULL};
  static const char *const last[] = {"--remount-ro", "/dev", "--remount-ro",
                                     "/proc",        "--cap-drop", "ALL",
                                     NULL};
  const struct dsh_roots *roots = in->roots;
  size_t i, whole;
  int r;
  if (roots->unprotectable.n)
    return dsh_fail(err, DSH_E_POLICY_UNSUPPORTED, 0, "bwrap",
                    "protected path %s; bwrap cannot protect it without "
                    "leaving something on the host",
                    roots->unprotectable.v[0]);
  r = add(a, out, spaces);
  /* With "/" itself a root, binding it again would cover /dev and /proc. */
  whole = roots->n && strcmp(roots->root[0].path, "/") == 0;
  r |= bind(a, out, whole ? "--bind" : "--ro-bind", "/");
  r |= add(a, out, fresh);
  for (i = whole; i < roots->n; i++)
    r |= bind(a, out, "--bind", roots->root[i].path);
  r |= bind_protected(a, out, roots);
  r |= add(a, out, last);
  return r ? dsh_fail(err, DSH_E_NO_MEMORY, 0, "bwrap", "out of memory") : 0;
}
