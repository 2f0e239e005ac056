/* filewrite.c: writing without ever losing: sibling, fsync, rename, fsync.
 *
 * The sibling's name is ".NAME.dsh-tmpN" (NAME cut where it would be too
 * long) and its writer holds a lock on it. One without a lock is left from a
 * crash; the next write of the same file removes it. N is 0 unless a writer
 * is at work: then the directory could not be locked. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fence.h"

enum { NAME_KEPT = 180, TRIES = 100, NOREPLACE = 1 };

/* --- the sibling --------------------------------------------------------- */

/* True when nothing stands in the way any more. */
static bool remove_leftover(int dir, const char *name) {
  struct stat st;
  bool gone = false;
  int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
      flock(fd, LOCK_EX | LOCK_NB) == 0)
    gone = unlinkat(dir, name, 0) == 0 || errno == ENOENT;
  close(fd);
  return gone;
}

static int make_sibling(const struct dsh_fs_place *p, char *name, size_t size,
                        bool fresh, struct dsh_error *err) {
  int i, n = 0, fd = -1;
  for (i = 0; i < TRIES && fd < 0; i++) {
    snprintf(name, size, ".%.*s.dsh-tmp%d", (int)NAME_KEPT, p->name, n);
    /* A new file gets its mode from the umask and the directory's default;
     * a replacement is nobody's until it has the old one's. */
    fd = DSH_FS_CALL("create",
                     openat(p->parent, name,
                            O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                            fresh ? 0666 : 0600));
    if (fd >= 0)
      break;
    if (errno != EEXIST)
      return dsh_fs_fail(err, errno, p->path, "cannot write beside");
    if (!remove_leftover(p->parent, name))
      n++;
  }
  if (fd < 0)
    return dsh_fs_fail(err, EBUSY, p->path, "cannot write beside");
  flock(fd, LOCK_EX | LOCK_NB);
  return fd;
}

static int put_all(int fd, const char *data, size_t n) {
  while (n) {
    ssize_t w = DSH_FS_CALL("write", write(fd, data, n));
    if (w < 0 && errno == EINTR)
      continue;
    if (w < 0)
      return -1;
    data += w;
    n -= (size_t)w;
  }
  return 0;
}

/* --- what stands there --------------------------------------------------- */

static int hard_link(const struct dsh_fence *f, const struct dsh_fs_place *p,
                     struct dsh_error *err) {
  return dsh_fail_path(err, DSH_E_FS_SANDBOX_DENIED, 0, "fs", p->path,
                       "\"%s\" may not be written in mode %s: it is a hard "
                       "link, and its other names may lie outside",
                       p->path, dsh_mode_name(f->policy->mode));
}

/* Opens what is to be replaced; -1 with errno ENOENT and err->code untouched
 * is expressed by *there = false. */
static int open_old(const struct dsh_fence *f, const struct dsh_fs_place *p,
                    bool *there, struct stat *st, struct dsh_error *err) {
  int fd = openat(p->parent, p->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  int real;
  char link[40];
  *there = fd >= 0;
  if (fd < 0)
    return errno == ENOENT ? 0 : dsh_fs_fail(err, errno, p->path,
                                             "cannot open");
  if (fstat(fd, st) != 0) {
    close(fd);
    return dsh_fs_fail(err, errno, p->path, "cannot look at");
  }
  if (!S_ISREG(st->st_mode)) {
    close(fd);
    if (S_ISLNK(st->st_mode)) /* put in since we resolved it */
      return dsh_fs_fail(err, ELOOP, p->path, "cannot open");
    return dsh_fail_path(err, DSH_E_FS_NOT_REGULAR, 0, "fs", p->path,
                         "\"%s\" is not a regular file", p->path);
  }
  if (st->st_nlink > 1 && f->policy && !f->allow_hard_links &&
      f->policy->mode != DSH_DANGER_FULL_ACCESS) {
    close(fd);
    return hard_link(f, p, err);
  }
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  real = open(link, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (real >= 0) { /* else write-only: its attributes cannot all be read */
    close(fd);
    fd = real;
  }
  /* A replacement would pass over the file's own permissions. */
  if ((real >= 0 && dsh_fs_check_flags(fd, p->path, err) != 0) ||
      (faccessat(p->parent, p->name, W_OK, AT_EACCESS) != 0 &&
       dsh_fs_fail(err, errno, p->path, "cannot write") != 0)) {
    close(fd);
    return -1;
  }
  return fd;
}

static int64_t ns(const struct timespec *t) {
  return t->tv_sec * 1000000000LL + t->tv_nsec;
}

static struct dsh_fs_version version_of(const struct stat *st) {
  return (struct dsh_fs_version){
      (uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_size,
      ns(&st->st_mtim), ns(&st->st_ctim)};
}

static int check_intent(const struct dsh_fs_place *p, enum dsh_fs_intent intent,
                        const struct dsh_fs_version *expect, bool there,
                        const struct stat *st, struct dsh_error *err) {
  struct dsh_fs_version now;
  if (intent == DSH_FS_CREATE && there)
    return dsh_fail_path(err, DSH_E_FS_EXISTS, 0, "fs", p->path,
                         "\"%s\" exists already", p->path);
  if (!expect)
    return 0;
  if (there) {
    now = version_of(st);
    if (dsh_fs_same_version(&now, expect))
      return 0;
  }
  return dsh_fail_path(err, DSH_E_FS_STALE, 0, "fs", p->path,
                       "\"%s\" %s since it was read", p->path,
                       there ? "changed" : "was removed");
}

/* --- the write ----------------------------------------------------------- */

static int move_in(const struct dsh_fs_place *p, const char *sibling,
                   bool fresh, struct dsh_error *err) {
  int r;
  if (fresh) {
    r = (int)DSH_FS_CALL("rename",
                         syscall(SYS_renameat2, p->parent, sibling, p->parent,
                                 p->name, NOREPLACE));
    if (r != 0 && (errno == EINVAL || errno == ENOSYS)) {
      r = linkat(p->parent, sibling, p->parent, p->name, 0);
      if (r == 0)
        unlinkat(p->parent, sibling, 0);
    }
  } else {
    r = DSH_FS_CALL("rename",
                    renameat(p->parent, sibling, p->parent, p->name));
  }
  return r == 0 ? 0 : dsh_fs_fail(err, errno, p->path, "cannot put in place");
}

static int sync_parent(const struct dsh_fs_place *p, struct dsh_error *err) {
  if (DSH_FS_CALL("fsync-dir", fsync(p->parent)) == 0 || errno == EBADF ||
      errno == EINVAL)
    return 0;
  return dsh_fs_fail(err, errno, p->path, "cannot sync the directory of");
}

int dsh_fs_write_at(const struct dsh_fence *f, struct dsh_fs_place *p,
                    const void *data, size_t n, enum dsh_fs_intent intent,
                    const struct dsh_fs_version *expect,
                    struct dsh_fs_version *version, struct dsh_error *err) {
  char sibling[256];
  struct stat st;
  bool there, made = false;
  int old, fd = -1, r = -1;
  old = open_old(f, p, &there, &st, err);
  if (old < 0)
    return -1;
  if (check_intent(p, intent, expect, there, &st, err) != 0)
    goto out;
  fd = make_sibling(p, sibling, sizeof sibling, !there, err);
  if (fd < 0)
    goto out;
  made = true;
  /* Attributes before content: a refusal has written nothing. */
  if (there && dsh_fs_copy_meta(old, fd, p->path, err) != 0)
    goto out;
  if (put_all(fd, data, n) != 0) {
    dsh_fs_fail(err, errno, p->path, "cannot write");
    goto out;
  }
  if (there && dsh_fs_restore_meta(old, fd, p->path, err) != 0)
    goto out;
  if (DSH_FS_CALL("fsync", fsync(fd)) != 0) {
    dsh_fs_fail(err, errno, p->path, "cannot sync");
    goto out;
  }
  if (move_in(p, sibling, !there, err) != 0)
    goto out;
  made = false;
  if (version && fstat(fd, &st) == 0)
    *version = version_of(&st);
  r = sync_parent(p, err);
out:
  if (made)
    unlinkat(p->parent, sibling, 0);
  if (fd >= 0)
    close(fd);
  if (there)
    close(old);
  return r;
}

int dsh_fs_write(const struct dsh_fence *f, const char *path, const void *data,
                 size_t n, enum dsh_fs_intent intent,
                 const struct dsh_fs_version *expect,
                 struct dsh_fs_version *version, struct dsh_error *err) {
  struct dsh_fs_place p;
  int r = -1;
  if (intent == DSH_FS_REPLACE && !expect)
    return dsh_fail(err, DSH_E_MISUSE, 0, "fs",
                    "replace-if-version: no version given");
  if (dsh_fs_open_place(f, path, &p, err) != 0)
    return -1;
  if (dsh_fs_lock(&p, err) == 0)
    r = dsh_fs_write_at(f, &p, data, n, intent, expect, version, err);
  dsh_fs_close_place(&p);
  return r;
}

static int edit_at(const struct dsh_fence *f, struct dsh_fs_place *p,
                   struct dsh_arena *a, const char *old, size_t old_n,
                   const char *new_, size_t new_n, bool all,
                   const struct dsh_fs_version *expect, size_t max,
                   size_t *count, struct dsh_fs_version *version,
                   struct dsh_error *err) {
  struct dsh_fs_version seen;
  struct dsh_fs_bytes text;
  struct dsh_edit edit;
  int r, fd = openat(p->parent, p->name,
                     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return dsh_fs_fail(err, errno, p->path, "cannot open");
  r = dsh_fs_read_fd(a, fd, p->path, max, true, &text, &seen, err);
  close(fd);
  if (r != 0)
    return -1;
  if (expect && !dsh_fs_same_version(&seen, expect))
    return dsh_fail_path(err, DSH_E_FS_STALE, 0, "fs", p->path,
                         "\"%s\" changed since it was read", p->path);
  if (dsh_text_edit(a, text.data, text.n, old, old_n, new_, new_n, all,
                    &edit) != 0)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "fs", "edited text");
  *count = edit.count;
  if (edit.count == 0)
    return dsh_fail_path(err, DSH_E_FS_EDIT_NOT_FOUND, 0, "fs", p->path,
                         old_n ? "the old text is not in \"%s\" (0 matches)"
                               : "the old text is empty (\"%s\")",
                         p->path);
  if (edit.count > 1 && !all)
    return dsh_fail_path(err, DSH_E_FS_EDIT_AMBIGUOUS, 0, "fs", p->path,
                         "the old text is in \"%s\" %zu times", p->path,
                         edit.count);
  if (!dsh_text_valid(edit.result.data, edit.result.n))
    return dsh_fail_path(err, DSH_E_FS_NOT_TEXT, 0, "fs", p->path,
                         "\"%s\" would not be UTF-8 text any more", p->path);
  return dsh_fs_write_at(f, p, edit.result.data, edit.result.n, DSH_FS_REPLACE,
                         &seen, version, err);
}

int dsh_fs_edit(const struct dsh_fence *f, const char *path, const char *old,
                size_t old_n, const char *new_, size_t new_n, bool all,
                const struct dsh_fs_version *expect, size_t max, size_t *count,
                struct dsh_fs_version *version, struct dsh_error *err) {
  struct dsh_fs_place p;
  struct dsh_arena a;
  int r = -1;
  *count = 0;
  if (dsh_fs_open_place(f, path, &p, err) != 0)
    return -1;
  dsh_arena_init(&a);
  if (dsh_fs_lock(&p, err) == 0)
    r = edit_at(f, &p, &a, old, old_n, new_, new_n, all, expect,
                max ? max : DSH_FS_TEXT_MAX, count, version, err);
  dsh_arena_free(&a);
  dsh_fs_close_place(&p);
  return r;
}
