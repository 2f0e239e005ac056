/* fence.c: from a path to an opened place that the policy allows. */
#include "fence.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "uapi.h"

enum {
  RESOLVE_TRIES = 64,   /* links that keep changing under us */
  LOCK_MS = 30000       /* another writer of the same directory */
};

#ifdef DSH_FS_FAULTS
int (*dsh_fs_fault)(const char *call);
#endif

/* --- errors -------------------------------------------------------------- */

static enum dsh_code code_of(int errnum) {
  switch (errnum) {
  case ENOENT:
    return DSH_E_FS_NOT_FOUND;
  case ENOTDIR:
    return DSH_E_FS_NOT_DIRECTORY;
  case EACCES:
  case EPERM:
  case EROFS:
    return DSH_E_FS_PERMISSION_DENIED;
  case EEXIST:
    return DSH_E_FS_EXISTS;
  default:
    return DSH_E_FS_IO;
  }
}

int dsh_fs_fail(struct dsh_error *err, int errnum, const char *path,
                const char *what) {
  return dsh_fail_path(err, code_of(errnum), errnum, "fs", path, "%s \"%s\"",
                       what, path);
}

/* --- looking ------------------------------------------------------------- */

static int64_t nanoseconds(const struct timespec *t) {
  return t->tv_sec * 1000000000LL + t->tv_nsec;
}

static struct dsh_fs_version version_of(const struct stat *st) {
  return (struct dsh_fs_version){
      (uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_size,
      nanoseconds(&st->st_mtim), nanoseconds(&st->st_ctim)};
}

bool dsh_fs_same_version(const struct dsh_fs_version *a,
                         const struct dsh_fs_version *b) {
  return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
         a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

int dsh_fs_resolve(struct dsh_arena *a, const char *path, char **out,
                   struct dsh_error *err) {
  char room[PATH_MAX];
  if (!realpath(path, room))
    return dsh_fs_fail(err, errno, path, "cannot resolve");
  *out = dsh_strdup(a, room);
  return *out ? 0 : dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "fs", "path");
}

int dsh_fs_stat_path(const char *path, bool follow, struct dsh_fs_stat *out,
                     struct dsh_error *err) {
  struct stat st;
  if (fstatat(AT_FDCWD, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
    return dsh_fs_fail(err, errno, path, "cannot look at");
  out->version = version_of(&st);
  out->type = S_ISREG(st.st_mode)   ? 'f'
              : S_ISDIR(st.st_mode) ? 'd'
              : S_ISLNK(st.st_mode) ? 'l'
                                    : 'o';
  out->mode = st.st_mode & 07777;
  out->uid = st.st_uid;
  out->gid = st.st_gid;
  out->nlink = (uint64_t)st.st_nlink;
  return 0;
}

/* --- reading ------------------------------------------------------------- */

static int read_all(int fd, char *data, size_t size, size_t *n) {
  *n = 0;
  while (*n < size) {
    ssize_t got = DSH_FS_CALL("read", read(fd, data + *n, size - *n));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return -1;
    if (got == 0)
      break;
    *n += (size_t)got;
  }
  return 0;
}

int dsh_fs_read_fd(struct dsh_arena *a, int fd, const char *path, size_t max,
                   bool text, struct dsh_fs_bytes *out,
                   struct dsh_fs_version *version, struct dsh_error *err) {
  struct stat st;
  size_t room;
  if (fstat(fd, &st) != 0)
    return dsh_fs_fail(err, errno, path, "cannot look at");
  if (!S_ISREG(st.st_mode))
    return dsh_fail_path(err, DSH_E_FS_NOT_REGULAR, 0, "fs", path,
                         "\"%s\" is not a regular file", path);
  if ((uint64_t)st.st_size > max)
    return dsh_fail_path(err, DSH_E_FS_TOO_LARGE, 0, "fs", path,
                         "\"%s\" has %lld bytes, at most %zu are read", path,
                         (long long)st.st_size, max);
  /* Files of /proc say 0 and hold more; a file may grow while it is read. */
  room = st.st_size ? (size_t)st.st_size + 1 : 65536;
  out->data = dsh_alloc_raw(a, room + 1);
  if (!out->data)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "fs", "file content");
  if (read_all(fd, out->data, room, &out->n) != 0)
    return dsh_fs_fail(err, errno, path, "cannot read");
  if (out->n > max || (st.st_size && out->n > (size_t)st.st_size))
    return dsh_fail_path(err, DSH_E_FS_STALE, 0, "fs", path,
                         "\"%s\" grew while it was read", path);
  out->data[out->n] = '\0';
  if (text && !dsh_text_valid(out->data, out->n))
    return dsh_fail_path(err, DSH_E_FS_NOT_TEXT, 0, "fs", path,
                         "\"%s\" is not UTF-8 text", path);
  if (version)
    *version = version_of(&st);
  return 0;
}

int dsh_fs_read(struct dsh_arena *a, const char *path, size_t max, bool text,
                struct dsh_fs_bytes *out, struct dsh_fs_version *version,
                struct dsh_error *err) {
  int r, fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0)
    return dsh_fs_fail(err, errno, path, "cannot open");
  r = dsh_fs_read_fd(a, fd, path, max, text, out, version, err);
  close(fd);
  return r;
}

/* --- the fence ----------------------------------------------------------- */

/* Canonical form of a target that may not exist yet: its parent resolved, and
 * the name; a link in its place is followed, and must lead somewhere. */
static int canonical_target(const char *path, char *out,
                            struct dsh_error *err) {
  char copy[PATH_MAX], parent[PATH_MAX];
  const char *name, *dir = ".";
  struct stat st;
  char *slash;
  size_t n = strlen(path);
  if (n == 0 || n >= sizeof copy)
    return dsh_fs_fail(err, n ? ENAMETOOLONG : ENOENT, path, "cannot resolve");
  if (lstat(path, &st) == 0) {
    if (realpath(path, out))
      return 0;
    return dsh_fs_fail(err, errno, path, "cannot follow");
  }
  if (errno != ENOENT || path[n - 1] == '/')
    return dsh_fs_fail(err, errno, path, "cannot look at");
  memcpy(copy, path, n + 1);
  slash = strrchr(copy, '/');
  name = slash ? slash + 1 : copy;
  if (slash) {
    *slash = '\0';
    dir = slash == copy ? "/" : copy;
  }
  if (!realpath(dir, parent))
    return dsh_fs_fail(err, errno, dir, "cannot resolve");
  if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
      snprintf(out, PATH_MAX, "%s/%s", strcmp(parent, "/") ? parent : "",
               name) >= PATH_MAX)
    return dsh_fs_fail(err, EINVAL, path, "cannot resolve");
  return 0;
}

static int denied(struct dsh_error *err, const struct dsh_fence *f,
                  const char *path, const char *why) {
  return dsh_fail_path(err, DSH_E_FS_SANDBOX_DENIED, 0, "fs", path,
                       "\"%s\" may not be written in mode %s: %s", path,
                       dsh_mode_name(f->policy->mode), why);
}

static int check_policy(const struct dsh_fence *f, const char *path,
                        struct dsh_error *err) {
  struct dsh_arena a;
  struct dsh_roots roots;
  const char *why;
  int r = 0;
  if (!f->policy || f->policy->mode == DSH_DANGER_FULL_ACCESS)
    return 0;
  dsh_arena_init(&a);
  if (dsh_roots_resolve(&a, f->policy, f->tmpdir, f->home, &roots, err) != 0)
    r = -1;
  else if (roots.unprotectable.n)
    r = denied(err, f, path, dsh_format(&a, "the protected path %s",
                                        roots.unprotectable.v[0]));
  else if (!dsh_roots_writable(&roots, path, &why))
    r = denied(err, f, path,
               why ? dsh_format(&a, "\"%s\" is protected", why)
                   : "it lies outside every writable root");
  dsh_arena_free(&a);
  return r;
}

/* Component by component, for kernels without openat2. */
static int walk(const char *path) {
  char part[256];
  int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (fd >= 0 && *path) {
    size_t n;
    int next;
    path += strspn(path, "/");
    n = strcspn(path, "/");
    if (n == 0)
      break;
    if (n >= sizeof part) {
      close(fd);
      errno = ENAMETOOLONG;
      return -1;
    }
    memcpy(part, path, n);
    part[n] = '\0';
    next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0 && errno == EACCES)
      next = openat(fd, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    n = (size_t)errno;
    close(fd);
    errno = (int)n;
    fd = next;
    path += strcspn(path, "/");
  }
  return fd;
}

/* Opens canonical directory `path` with no link followed at all; ELOOP (or
 * ENOTDIR from the walk) means that one was put in meanwhile. */
static int open_directory(const char *path, bool no_openat2) {
  struct dsh_open_how how = {O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0,
                             DSH_RESOLVE_NO_SYMLINKS |
                                 DSH_RESOLVE_NO_MAGICLINKS};
  int fd;
  if (no_openat2)
    return walk(path);
  fd = (int)DSH_FS_CALL("openat2", syscall(DSH_NR_openat2, AT_FDCWD, path,
                                           &how, sizeof how));
  if (fd < 0 && errno == EACCES) {
    how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC; /* searchable, unreadable */
    fd = (int)syscall(DSH_NR_openat2, AT_FDCWD, path, &how, sizeof how);
  }
  return fd < 0 && errno == ENOSYS ? walk(path) : fd;
}

static bool is_race(int errnum) {
  return errnum == ELOOP || errnum == EAGAIN || errnum == ENOTDIR;
}

static int open_once(const struct dsh_fence *f, const char *path,
                     struct dsh_fs_place *out, bool *again,
                     struct dsh_error *err) {
  char canonical[PATH_MAX], *slash;
  *again = false;
  if (canonical_target(path, canonical, err) != 0)
    return -1;
  if (check_policy(f, canonical, err) != 0)
    return -1;
  slash = strrchr(canonical, '/');
  if (strlen(slash + 1) >= sizeof out->name || !slash[1])
    return dsh_fail_path(err, DSH_E_FS_NOT_REGULAR, 0, "fs", canonical,
                         "\"%s\" is not a regular file", canonical);
  snprintf(out->path, sizeof out->path, "%s", canonical);
  strcpy(out->name, slash + 1);
  *slash = '\0';
  out->parent = open_directory(*canonical ? canonical : "/", f->no_openat2);
  if (out->parent >= 0)
    return 0;
  *again = is_race(errno);
  return dsh_fs_fail(err, errno, canonical, "cannot open");
}

int dsh_fs_open_place(const struct dsh_fence *f, const char *path,
                      struct dsh_fs_place *out, struct dsh_error *err) {
  bool again = true;
  int i;
  out->parent = -1;
  out->exists = false;
  for (i = 0; i < RESOLVE_TRIES && again; i++)
    if (open_once(f, path, out, &again, err) == 0)
      return 0;
  return -1;
}

void dsh_fs_close_place(struct dsh_fs_place *p) {
  if (p->parent >= 0)
    close(p->parent);
  p->parent = -1;
}

/* One writer of a directory at a time, across processes; released with the
 * descriptor, also when its owner dies. A directory that one may not read
 * cannot be locked: then it is not. */
int dsh_fs_lock(const struct dsh_fs_place *p, struct dsh_error *err) {
  struct timespec pause = {0, 200000};
  int waited;
  for (waited = 0; waited < LOCK_MS * 5; waited++) {
    if (DSH_FS_CALL("flock", flock(p->parent, LOCK_EX | LOCK_NB)) == 0 ||
        errno == EBADF)
      return 0;
    if (errno != EWOULDBLOCK && errno != EINTR)
      break;
    nanosleep(&pause, NULL);
  }
  return dsh_fs_fail(err, errno, p->path, "cannot lock the directory of");
}
