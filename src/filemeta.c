/* filemeta.c: what a file has beside its content. Kept over an atomic
 * replacement, or the replacement is refused naming what would be lost. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fence.h"

enum { LIST_BYTES = 65536, VALUE_BYTES = 65536 };

/* FS_IOC_GETFLAGS, FS_IOC_SETFLAGS; the bits that say how a file may change
 * and those that a copy can carry (linux/fs.h). */
#define GET_FLAGS 0x80086601ul
#define SET_FLAGS 0x40086602ul
enum {
  FLAG_IMMUTABLE = 0x10,
  FLAG_APPEND = 0x20,
  FLAGS_CARRIED = 0x08 | 0x40 | 0x80 | 0x4000 | 0x800000
  /* SYNC NODUMP NOATIME JOURNAL_DATA NOCOW */
};

static int lost(struct dsh_error *err, int errnum, const char *path,
                const char *what) {
  return dsh_fail_path(err, DSH_E_FS_PERMISSION_DENIED, errnum, "fs", path,
                       "\"%s\" is not replaced, its %s would be lost", path,
                       what);
}

static bool is_unsupported(int errnum) {
  return errnum == ENOTSUP || errnum == ENOTTY || errnum == ENOSYS ||
         errnum == EINVAL;
}

int dsh_fs_check_flags(int fd, const char *path, struct dsh_error *err) {
  int flags = 0;
  if (ioctl(fd, GET_FLAGS, &flags) != 0 ||
      !(flags & (FLAG_IMMUTABLE | FLAG_APPEND)))
    return 0;
  return lost(err, EPERM, path,
              flags & FLAG_IMMUTABLE ? "immutable flag" : "append-only flag");
}

static int copy_flags(int from, int to, const char *path,
                      struct dsh_error *err) {
  int flags = 0, now = 0;
  if (ioctl(from, GET_FLAGS, &flags) != 0) /* a filesystem without them? */
    return is_unsupported(errno) ? 0 : lost(err, errno, path, "file flags");
  flags &= FLAGS_CARRIED;
  if (!flags || ioctl(to, GET_FLAGS, &now) != 0 ||
      (now & FLAGS_CARRIED) == flags)
    return 0;
  now = (now & ~FLAGS_CARRIED) | flags;
  if (ioctl(to, SET_FLAGS, &now) != 0)
    return lost(err, errno, path, "file flags");
  return 0;
}

static int copy_xattr(int from, int to, const char *name, const char *path,
                      struct dsh_error *err) {
  char *value = malloc(VALUE_BYTES), *now = malloc(VALUE_BYTES);
  ssize_t n, have;
  int r = 0;
  if (!value || !now) {
    r = dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "fs", "attribute");
    goto out;
  }
  n = fgetxattr(from, name, value, VALUE_BYTES);
  if (n < 0) {
    if (errno != ENODATA)
      r = lost(err, errno, path, name);
    goto out;
  }
  have = fgetxattr(to, name, now, VALUE_BYTES);
  if (have == n && memcmp(now, value, (size_t)n) == 0)
    goto out;
  if (DSH_FS_CALL("fsetxattr", fsetxattr(to, name, value, (size_t)n, 0)) != 0)
    r = lost(err, errno, path, name);
out:
  free(value);
  free(now);
  return r;
}

static bool has_name(const char *list, ssize_t n, const char *name) {
  const char *p;
  for (p = list; p < list + n; p += strlen(p) + 1)
    if (strcmp(p, name) == 0)
      return true;
  return false;
}

/* What the new file got by its directory's default, and the old has not. */
static int remove_others(int to, const char *list, ssize_t n, const char *path,
                         struct dsh_error *err) {
  char *have = malloc(LIST_BYTES), *p;
  ssize_t m;
  int r = 0;
  if (!have)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "fs", "attributes");
  m = flistxattr(to, have, LIST_BYTES);
  if (m < 0)
    r = lost(err, errno, path, "attributes");
  for (p = have; m > 0 && p < have + m && r == 0; p += strlen(p) + 1)
    if (!has_name(list, n, p) && strncmp(p, "security.", 9) != 0 &&
        fremovexattr(to, p) != 0 && errno != ENODATA)
      r = lost(err, errno, path, p);
  free(have);
  return r;
}

static int copy_xattrs(int from, int to, const char *path,
                       struct dsh_error *err) {
  char *list = malloc(LIST_BYTES), *p;
  ssize_t n;
  int r = 0;
  if (!list)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "fs", "attributes");
  n = flistxattr(from, list, LIST_BYTES);
  if (n < 0)
    r = is_unsupported(errno) ? 0 : lost(err, errno, path, "attributes");
  for (p = list; n > 0 && p < list + n && r == 0; p += strlen(p) + 1)
    r = copy_xattr(from, to, p, path, err);
  if (r == 0 && n >= 0)
    r = remove_others(to, list, n, path, err);
  free(list);
  return r;
}

int dsh_fs_copy_meta(int from, int to, const char *path,
                     struct dsh_error *err) {
  struct stat old, now;
  if (fstat(from, &old) != 0 || fstat(to, &now) != 0)
    return dsh_fs_fail(err, errno, path, "cannot look at");
  /* Owner first: a change of owner clears set-user-ID and capabilities. */
  if ((old.st_uid != now.st_uid || old.st_gid != now.st_gid) &&
      DSH_FS_CALL("fchown", fchown(to, old.st_uid, old.st_gid)) != 0)
    return lost(err, errno, path, old.st_uid != now.st_uid ? "owner" : "group");
  if (copy_xattrs(from, to, path, err) != 0)
    return -1;
  if (DSH_FS_CALL("fchmod", fchmod(to, old.st_mode & 07777)) != 0)
    return lost(err, errno, path, "mode");
  if (fstat(to, &now) != 0 || ((now.st_mode ^ old.st_mode) & 07777))
    return lost(err, 0, path, "mode");
  return copy_flags(from, to, path, err);
}

int dsh_fs_restore_meta(int from, int to, const char *path,
                        struct dsh_error *err) {
  struct stat old, now;
  if (fstat(from, &old) != 0 || fstat(to, &now) != 0)
    return dsh_fs_fail(err, errno, path, "cannot look at");
  if (fgetxattr(from, "security.capability", NULL, 0) > 0 &&
      copy_xattr(from, to, "security.capability", path, err) != 0)
    return -1;
  if (((old.st_mode ^ now.st_mode) & 07777) &&
      fchmod(to, old.st_mode & 07777) != 0)
    return lost(err, errno, path, "mode");
  return 0;
}
