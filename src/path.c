/* path.c: canonical paths. One walker, which also tells which symbolic links
 * it went through: who may write where a link lies decides where it leads. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "path.h"

enum { LINKS_MAX = 40 }; /* as the kernel's own limit, path_resolution(7) */

bool dsh_path_within(const char *path, const char *dir) {
  size_t n = strlen(dir);
  if (n == 1 && dir[0] == '/')
    return path[0] == '/';
  return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

int dsh_path_compare(const char *a, const char *b) {
  for (; *a && *a == *b; a++, b++)
    continue;
  if (*a == *b)
    return 0;
  if (!*a || !*b)
    return *a ? 1 : -1;
  if (*a == '/' || *b == '/')
    return *a == '/' ? -1 : 1;
  return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
}

/* The walk: `done` is canonical, `rest` still to go. */
struct walk {
  char done[PATH_MAX], rest[PATH_MAX], target[PATH_MAX];
  size_t len;       /* of done; 0 is the root */
  int n_links;
  bool lenient;     /* what does not exist is taken as it is written */
  bool missing;     /* done is past the end of what exists */
  bool not_directory;
  struct dsh_arena *a;
  struct dsh_strv *links; /* or NULL */
};

static int push(struct walk *w, const char *name, size_t n) {
  if (w->len + n + 2 > sizeof w->done)
    return ENAMETOOLONG;
  w->done[w->len] = '/';
  memcpy(w->done + w->len + 1, name, n);
  w->len += n + 1;
  w->done[w->len] = '\0';
  return 0;
}

static void pop(struct walk *w) {
  while (w->len && w->done[--w->len] != '/')
    continue;
  w->done[w->len] = '\0';
}

/* done ends in a link: its text goes in front of what is left. */
static int follow(struct walk *w, const char *left) {
  ssize_t n = readlink(w->done, w->target, sizeof w->target);
  size_t m = strlen(left);
  if (n < 0)
    return errno;
  if (++w->n_links > LINKS_MAX)
    return ELOOP;
  if ((size_t)n + m + 2 > sizeof w->rest)
    return ENAMETOOLONG;
  if (w->links &&
      dsh_strv_add(w->a, w->links, dsh_strdup(w->a, w->done)) < 0)
    return ENOMEM;
  memmove(w->rest + n + 1, left, m + 1);
  memcpy(w->rest, w->target, (size_t)n);
  w->rest[n] = '/';
  if (w->target[0] == '/')
    w->done[w->len = 0] = '\0';
  else
    pop(w);
  return 0;
}

/* One name: what is there? Returns an errno. */
static int step(struct walk *w, const char *name, size_t n, const char *left) {
  struct stat st;
  int e;
  if (w->not_directory && !w->missing)
    return ENOTDIR;
  if (n == 1 && name[0] == '.')
    return 0;
  if (n == 2 && name[0] == '.' && name[1] == '.') {
    pop(w);
    return 0;
  }
  if ((e = push(w, name, n)) != 0)
    return e;
  if (w->missing)
    return 0;
  if (lstat(w->done, &st) != 0) {
    if (!w->lenient || errno != ENOENT)
      return errno;
    w->missing = true;
    return 0;
  }
  if (S_ISLNK(st.st_mode))
    return follow(w, left);
  w->not_directory = !S_ISDIR(st.st_mode);
  return 0;
}

static int run(struct walk *w) {
  int links = 0, e;
  char *at = w->rest;
  while (*at) {
    size_t n = strcspn(at, "/");
    char *next = at + n;
    while (*next == '/')
      next++;
    if (n > 0) {
      e = step(w, at, n, next);
      if (e)
        return e;
    }
    at = next;
    if (w->n_links != links) { /* rest was rewritten */
      links = w->n_links;
      at = w->rest;
    }
  }
  return 0;
}

char *dsh_path_resolve(struct dsh_arena *a, const char *path, bool lenient,
                       bool *exists, struct dsh_strv *links,
                       struct dsh_error *err) {
  struct walk w;
  size_t n = strlen(path);
  int e;
  w.done[w.len = 0] = '\0';
  w.n_links = 0;
  w.lenient = lenient;
  w.missing = w.not_directory = false;
  w.a = a;
  w.links = links;
  if (path[0] != '/' || n >= sizeof w.rest) {
    dsh_fail_path(err, DSH_E_IO, path[0] == '/' ? ENAMETOOLONG : EINVAL,
                  "path", path, "%s", path);
    return NULL;
  }
  memcpy(w.rest, path, n + 1);
  e = run(&w);
  if (e) {
    dsh_fail_path(err, DSH_E_IO, e, "path", path, "%s", path);
    return NULL;
  }
  if (exists)
    *exists = !w.missing;
  return dsh_strdup(a, w.len ? w.done : "/");
}

char *dsh_canonical(struct dsh_arena *a, const char *path,
                    struct dsh_error *err) {
  char cwd[PATH_MAX];
  if (path[0] == '/')
    return dsh_path_resolve(a, path, false, NULL, NULL, err);
  if (!getcwd(cwd, sizeof cwd)) {
    dsh_fail_path(err, DSH_E_IO, errno, "path", path, "%s", path);
    return NULL;
  }
  return dsh_path_resolve(a, dsh_format(a, "%s/%s", cwd, path), false, NULL,
                          NULL, err);
}
