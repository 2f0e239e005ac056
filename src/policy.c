/* policy.c: what one call may write. Form first, then the one list of
 * writable roots that every backend and the fence derive from. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "path.h"

/* --- form ---------------------------------------------------------------- */

static int absolute(const char *field, const char *path,
                    struct dsh_error *err) {
  if (!path || path[0] != '/')
    return dsh_fail(err, DSH_E_MISUSE, 0, "policy",
                    "policy.%s: expected an absolute path, got \"%s\"", field,
                    path ? path : "");
  return 0;
}

static int check_lists(const struct dsh_policy *p, struct dsh_error *err) {
  size_t i;
  if (p->extra_roots.n > DSH_ROOTS_MAX)
    return dsh_fail(err, DSH_E_POLICY_TOO_LARGE, 0, "policy",
                    "policy.extra_roots: %zu roots, at most %d",
                    p->extra_roots.n, DSH_ROOTS_MAX);
  if (p->protected_.n > DSH_PROTECTED_MAX)
    return dsh_fail(err, DSH_E_POLICY_TOO_LARGE, 0, "policy",
                    "policy.protected: %zu paths, at most %d",
                    p->protected_.n, DSH_PROTECTED_MAX);
  for (i = 0; i < p->extra_roots.n; i++)
    if (absolute("extra_roots", p->extra_roots.v[i], err) < 0)
      return -1;
  for (i = 0; i < p->protected_.n; i++)
    if (!p->protected_.v[i][0])
      return dsh_fail(err, DSH_E_MISUSE, 0, "policy",
                      "policy.protected: an empty path");
  return 0;
}

int dsh_policy_check(const struct dsh_policy *p, struct dsh_error *err) {
  if ((unsigned)p->mode > DSH_DANGER_FULL_ACCESS)
    return dsh_fail(err, DSH_E_MISUSE, 0, "policy", "policy.mode: unknown");
  if (absolute("workspace_root", p->workspace_root, err) < 0)
    return -1;
  if (p->temp == DSH_TEMP_PRIVATE && absolute("temp_dir", p->temp_dir, err) < 0)
    return -1;
  return check_lists(p, err);
}

/* --- collecting roots ---------------------------------------------------- */

/* A root, and the links that its text went through. */
struct candidate {
  struct dsh_root root;
  const char *field;   /* of the policy, for messages */
  const char *links;   /* as in dsh_found; in the arena */
};

struct gather {
  struct dsh_arena *a;
  const struct dsh_policy *policy;
  struct dsh_roots *out;
  struct candidate list[DSH_ROOTS_MAX + 4];
  size_t n;
};

static int unsupported(struct dsh_error *err, const char *field,
                       const char *path, const char *why) {
  return dsh_fail_path(err, DSH_E_POLICY_UNSUPPORTED, 0, "policy", path,
                       "%s: %s: %s", field, path, why);
}

static bool no_such(int errnum) {
  return errnum == ENOENT || errnum == ENOTDIR;
}

static const char *keep_links(struct dsh_arena *a, const char *links) {
  const char *end = links;
  while (*end)
    end += strlen(end) + 1;
  return *links ? dsh_strndup(a, links, (size_t)(end - links)) : "";
}

static void put(struct gather *g, const struct dsh_found *f,
                enum dsh_root_origin origin, const char *field) {
  struct candidate *c = &g->list[g->n++];
  c->root.path = dsh_strdup(g->a, f->canonical);
  c->root.origin = origin;
  c->root.dev = f->dev;
  c->root.ino = f->ino;
  c->root.directory = S_ISDIR((mode_t)f->mode);
  c->root.read_only = f->read_only;
  c->field = field;
  c->links = keep_links(g->a, f->links);
}

static const char *kernel_tree(const char *path) {
  if (strcmp(path, "/") == 0)
    return "as a root it would grant every file and device";
  if (dsh_path_within(path, "/proc") || dsh_path_within(path, "/sys") ||
      strcmp(path, "/dev") == 0)
    return "a kernel file system cannot be granted";
  return NULL;
}

/* A root that the policy names: what it cannot be is an error by name. */
static int named(struct gather *g, const char *path,
                 enum dsh_root_origin origin, const char *field,
                 struct dsh_error *err) {
  const struct dsh_found *f;
  const char *why;
  int e = dsh_found(path, &f);
  if (no_such(e))
    return 0; /* grants nothing */
  if (e)
    return dsh_fail_path(err, DSH_E_POLICY_UNSUPPORTED, e, "policy", path,
                         "%s: %s", field, path);
  why = kernel_tree(f->canonical);
  if (why)
    return unsupported(err, field, path, why);
  if (f->denied)
    return unsupported(err, field, path,
                       "its permissions deny writing to uid 0, which has no "
                       "capabilities when confined");
  put(g, f, origin, field);
  return 0;
}

static void refuse(struct gather *g, const char *path, const char *why) {
  dsh_strv_add(g->a, &g->out->refused,
               dsh_format(g->a, "%s: %s", path, why));
}

/* Why $TMPDIR is no root, or NULL. `f` is what it is, `home` canonical. */
static const char *tmpdir_fault(const struct gather *g,
                                const struct dsh_found *f, const char *home) {
  const char *path = f->canonical;
  if (kernel_tree(path))
    return kernel_tree(path);
  if (f->read_only)
    return "on a read-only file system";
  if (g->out->workspace && strcmp(path, g->out->workspace) != 0 &&
      dsh_path_within(g->out->workspace, path))
    return "it contains the workspace root";
  if (home && dsh_path_within(home, path))
    return "it is the home directory or contains it";
  return NULL;
}

/* Shared memory: semaphores and the like need it in every workspace. */
static void shm_root(struct gather *g) {
#if defined __linux__
  const struct dsh_found *f;
  if (dsh_found_fixed("/dev/shm", &f) == 0 && S_ISDIR((mode_t)f->mode) &&
      !f->read_only)
    put(g, f, DSH_ROOT_SHM, "/dev/shm");
#else
  (void)g;
#endif
}

static void temp_roots(struct gather *g, const char *tmpdir,
                       const char *home) {
  const struct dsh_found *f;
  const char *why, *tmp = NULL;
  if (dsh_found_fixed("/tmp", &f) == 0) {
    if (!f->read_only) {
      put(g, f, DSH_ROOT_TMP, "/tmp");
      tmp = g->list[g->n - 1].root.path;
    } else {
      refuse(g, "/tmp", "on a read-only file system");
    }
  }
  if (!tmpdir || !tmpdir[0] || strcmp(tmpdir, "/tmp") == 0)
    return;
  if (tmpdir[0] != '/') {
    refuse(g, tmpdir, "not an absolute path");
    return;
  }
  home = home && home[0] == '/' && dsh_found(home, &f) == 0
             ? dsh_strdup(g->a, f->canonical)
             : NULL;
  if (dsh_found(tmpdir, &f) != 0 ||
      (tmp && dsh_path_within(f->canonical, tmp)))
    return;
  why = tmpdir_fault(g, f, home);
  if (why)
    refuse(g, tmpdir, why);
  else
    put(g, f, DSH_ROOT_TMPDIR, "TMPDIR");
}

static void find_workspace(struct gather *g) {
  const struct dsh_found *f;
  if (dsh_found(g->policy->workspace_root, &f) == 0)
    g->out->workspace = dsh_strdup(g->a, f->canonical);
}

static int gather(struct gather *g, const char *tmpdir, const char *home,
                  struct dsh_error *err) {
  const struct dsh_policy *p = g->policy;
  size_t i;
  if (p->mode == DSH_WORKSPACE_WRITE) {
    if (named(g, p->workspace_root, DSH_ROOT_WORKSPACE, "workspace_root",
              err) < 0)
      return -1;
    if (g->n)
      g->out->workspace = g->list[0].root.path;
    if (p->temp == DSH_TEMP_HOST)
      temp_roots(g, tmpdir, home);
    else if (named(g, p->temp_dir, DSH_ROOT_PRIVATE_TEMP, "temp_dir", err) < 0)
      return -1;
    shm_root(g);
  }
  for (i = 0; i < p->extra_roots.n; i++)
    if (named(g, p->extra_roots.v[i], DSH_ROOT_EXTRA, "extra_roots", err) < 0)
      return -1;
  return 0;
}

/* A link in a place that confined commands may write can have been planted by
 * one: it must not lead a root out of that place. */
static int check_links(const struct gather *g, struct dsh_error *err) {
  size_t i, k;
  const char *link;
  for (i = 0; i < g->n; i++)
    for (link = g->list[i].links; *link; link += strlen(link) + 1)
      for (k = 0; k < g->n; k++)
        if (dsh_path_within(link, g->list[k].root.path) &&
            !dsh_path_within(g->list[i].root.path, g->list[k].root.path))
          return unsupported(err, g->list[i].field, link,
                             "a symbolic link in a writable place leads a "
                             "root out of it");
  return 0;
}

static int compare_candidates(const void *a, const void *b) {
  const struct candidate *x = a, *y = b;
  return dsh_path_compare(x->root.path, y->root.path);
}

/* Sorted, and without those that lie inside a writable other one. */
static int settle(struct gather *g, struct dsh_error *err) {
  struct dsh_roots *out = g->out;
  size_t i, k;
  out->root = dsh_alloc(g->a, (g->n ? g->n : 1) * sizeof *out->root);
  if (g->a->failed)
    return dsh_fail(err, DSH_E_NO_MEMORY, 0, "policy", "out of memory");
  if (g->n > 1)
    qsort(g->list, g->n, sizeof *g->list, compare_candidates);
  for (i = 0; i < g->n; i++) {
    const struct dsh_root *r = &g->list[i].root;
    for (k = 0; k < out->n; k++)
      if (dsh_path_within(r->path, out->root[k].path) &&
          (!out->root[k].read_only || r->read_only))
        break;
    if (k == out->n)
      out->root[out->n++] = *r;
  }
  return 0;
}

/* --- protected paths ----------------------------------------------------- */

static const struct dsh_root *root_of(const struct dsh_roots *r,
                                      const char *path) {
  size_t i;
  for (i = 0; i < r->n; i++)
    if (dsh_path_within(path, r->root[i].path))
      return &r->root[i];
  return NULL;
}

/* Roots that lie in a protected place are no roots. */
static void drop_roots_in(struct gather *g, const char *path) {
  struct dsh_roots *r = g->out;
  size_t i, n = 0;
  for (i = 0; i < r->n; i++)
    if (dsh_path_within(r->root[i].path, path))
      refuse(g, r->root[i].path, dsh_format(g->a, "lies in the protected %s",
                                            path));
    else
      r->root[n++] = r->root[i];
  r->n = n;
}

static void cannot(struct gather *g, const char *path, const char *why) {
  dsh_strv_add(g->a, &g->out->unprotectable,
               dsh_format(g->a, "%s: %s", path, why));
}

static bool is_shielded(const struct dsh_roots *r, const char *path) {
  size_t i;
  for (i = 0; i < r->protected_.n; i++)
    if (dsh_path_within(path, r->protected_.v[i]))
      return true;
  return false;
}

static void shield(struct gather *g, const char *path, bool exists) {
  drop_roots_in(g, path);
  if (!root_of(g->out, path))
    return; /* no writable root reaches it */
  if (!exists && is_shielded(g->out, path))
    return; /* nobody inside can make it in a protected directory */
  if (!exists)
    cannot(g, path, "does not exist");
  dsh_strv_add(g->a, &g->out->protected_, path);
}

/* A root that is another name (a bind mount) of the path or of a directory
 * above it leads to it around everything that is done about its own name. */
static void check_aliases(struct gather *g, const char *path) {
  char *at = dsh_strdup(g->a, path), *slash;
  const struct dsh_root *r;
  struct stat st;
  size_t i;
  while (at && *at) {
    for (i = 0; stat(at, &st) == 0 && i < g->out->n; i++) {
      r = &g->out->root[i];
      if (r->dev == (uint64_t)st.st_dev && r->ino == (uint64_t)st.st_ino &&
          !dsh_path_within(path, r->path))
        cannot(g, path, dsh_format(g->a, "is reached as %s too", r->path));
    }
    slash = strrchr(at, '/');
    *slash = '\0';
  }
}

/* A link in a writable place could be replaced: protecting what it leads to
 * now would not protect the name. */
static int policy_shield(struct gather *g, const char *name,
                         struct dsh_error *err) {
  struct dsh_strv links = {0};
  const char *path = name;
  bool exists = false;
  size_t i;
  if (name[0] != '/')
    path = dsh_format(g->a, "%s/%s",
                      g->out->workspace ? g->out->workspace
                                        : g->policy->workspace_root,
                      name);
  path = path ? dsh_path_resolve(g->a, path, true, &exists, &links, err) : NULL;
  if (!path && g->a->failed)
    return dsh_fail(err, DSH_E_NO_MEMORY, 0, "policy", "out of memory");
  if (!path) {
    if (err)
      err->code = DSH_E_POLICY_UNSUPPORTED;
    return dsh_wrap(err, "protected");
  }
  for (i = 0; i < links.n; i++)
    if (root_of(g->out, links.v[i])) {
      cannot(g, links.v[i], "is a symbolic link");
      shield(g, links.v[i], true);
    }
  shield(g, path, exists);
  check_aliases(g, path);
  return 0;
}

/* What exists first: it may hold what does not. */
static void control_shields(struct gather *g, bool existing) {
  size_t i, n = dsh_control_count();
  for (i = 0; i < n; i++) {
    const char *path = dsh_control_at(i);
    const struct dsh_root *r;
    struct stat st;
    if ((lstat(path, &st) == 0) != existing)
      continue;
    drop_roots_in(g, path);
    r = root_of(g->out, path);
    if (r && !dsh_control_denied(path, r->path))
      shield(g, path, existing);
  }
}

static int compare_strings(const void *a, const void *b) {
  return dsh_path_compare(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted; what lies in a protected place needs no word of its own. */
static void settle_shields(struct dsh_strv *list) {
  size_t i, n = 0;
  if (!list->n)
    return;
  qsort(list->v, list->n, sizeof *list->v, compare_strings);
  for (i = 0; i < list->n; i++)
    if (!n || !dsh_path_within(list->v[i], list->v[n - 1]))
      list->v[n++] = list->v[i];
  list->v[list->n = n] = NULL;
}

int dsh_roots_resolve(struct dsh_arena *a, const struct dsh_policy *p,
                      const char *tmpdir, const char *home,
                      struct dsh_roots *out, struct dsh_error *err) {
  struct gather g;
  size_t i;
  memset(out, 0, sizeof *out);
  g.a = a;
  g.policy = p;
  g.out = out;
  g.n = 0;
  if (p->mode != DSH_WORKSPACE_WRITE)
    find_workspace(&g);
  if (p->mode == DSH_DANGER_FULL_ACCESS)
    return 0; /* no list could say "everything" */
  if (gather(&g, tmpdir, home, err) < 0 || check_links(&g, err) < 0 ||
      settle(&g, err) < 0)
    return -1;
  if (out->n) {
    for (i = 0; i < p->protected_.n; i++)
      if (policy_shield(&g, p->protected_.v[i], err) < 0)
        return -1;
    control_shields(&g, true);
    control_shields(&g, false);
    if (!a->failed)
      settle_shields(&out->protected_);
  }
  if (a->failed)
    return dsh_fail(err, DSH_E_NO_MEMORY, 0, "policy", "out of memory");
  return 0;
}

bool dsh_roots_writable(const struct dsh_roots *roots, const char *path,
                        const char **why) {
  const struct dsh_root *r;
  size_t i;
  *why = NULL;
  for (i = 0; i < roots->protected_.n; i++)
    if (dsh_path_within(path, roots->protected_.v[i])) {
      *why = roots->protected_.v[i];
      return false;
    }
  r = root_of(roots, path);
  if (r)
    *why = r->path;
  return r != NULL;
}
