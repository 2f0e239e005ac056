/* dsh_probe_bundle.c: targets, and looking at them from outside.
 *
 * Everything in a bundle, directories too, carries an mtime of 2001 and no
 * flags, so that one statx and one list of xattrs per object show any change:
 * this runs tens of thousands of times. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <linux/fs.h>

#include "dsh_probe.h"

enum { OLD_TIME = 1000000000, XATTR_BYTES = 256 };

/* Of linux/stat.h, which does not go together with every sys/stat.h. */
struct facts_time { int64_t sec; uint32_t nsec; int32_t pad; };
struct facts {
  uint32_t mask, blksize;
  uint64_t attributes;
  uint32_t nlink, uid, gid;
  uint16_t mode, pad;
  uint64_t ino, size, blocks, attributes_mask;
  struct facts_time atime, btime, ctime, mtime;
  uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
  uint64_t spare[14];
};
enum {
  FACTS_BASIC = 0x7ff, FACTS_IMMUTABLE = 0x10, FACTS_APPEND = 0x20,
  FACTS_NODUMP = 0x40, NO_AUTOMOUNT = 0x800
};

struct object {
  const char *name;
  mode_t mode;
  const char *text; /* of a file */
  bool xattr;       /* carries user.k, where the file system can */
  const char *keep; /* names that stay in a directory, one letter each */
};

/* Children before their directories: their repair touches those. */
static const struct object objects[] = {
  { "f", S_IFREG | 0644, PROBE_FILE_TEXT, true, NULL },
  { "g", S_IFREG | 0644, "another text\n", false, NULL },
  { "l", S_IFLNK | 0777, NULL, false, NULL },
  { "d", S_IFDIR | 0755, NULL, false, "" },
  { "t/x", S_IFREG | 0644, "deep\n", false, NULL },
  { "t", S_IFDIR | 0755, NULL, false, "x" },
  { ".", S_IFDIR | 0755, NULL, false, "fgldt" },
};

int probe_ioctl(int fd, unsigned long request, void *arg) {
  return (int)syscall(SYS_ioctl, (long)fd, request, arg);
}

/* --- removing ------------------------------------------------------------ */

/* An append-only file: the bare run of root made it so. */
static int remove_flagged(int dir, const char *name) {
  unsigned none = 0;
  int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return -1;
  (void)probe_ioctl(fd, FS_IOC_SETFLAGS, &none);
  close(fd);
  return unlinkat(dir, name, 0);
}

static int remove_at(int dir, const char *name) {
  struct dirent *e;
  DIR *d;
  int fd;
  if (!unlinkat(dir, name, 0) || errno == ENOENT)
    return 0;
  if (errno != EISDIR && (errno != EPERM || !remove_flagged(dir, name)))
    return errno == EPERM ? 0 : -1;
  (void)fchmodat(dir, name, 0700, 0);
  fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return -1;
  if (!(d = fdopendir(fd))) {
    close(fd);
    return -1;
  }
  while ((e = readdir(d)))
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
      (void)remove_at(dirfd(d), e->d_name);
  closedir(d);
  return unlinkat(dir, name, AT_REMOVEDIR);
}

/* --- looking ------------------------------------------------------------- */

static uint64_t mix(uint64_t h, const void *data, size_t n) {
  const unsigned char *p = data; /* FNV-1a */
  for (size_t i = 0; i < n; i++)
    h = (h ^ p[i]) * 1099511628211ull;
  return h;
}

static int get_facts(const char *path, struct facts *x, char *xattrs,
                     ssize_t *n) {
  if (syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | NO_AUTOMOUNT,
              FACTS_BASIC, x))
    return -1;
  *n = llistxattr(path, xattrs, XATTR_BYTES);
  return 0;
}

static uint64_t mix_facts(uint64_t h, const struct facts *x) {
  const uint64_t v[] = {
    x->ino, x->dev_minor, x->mode, x->nlink, x->uid, x->gid, x->size,
    x->attributes, (uint64_t)x->mtime.sec, x->mtime.nsec,
    (uint64_t)x->ctime.sec, x->ctime.nsec,
  };
  return mix(h, v, sizeof v);
}

uint64_t probe_bundle_look(const char *dir) {
  char path[PROBE_PATH_MAX + 8], xattrs[XATTR_BYTES];
  uint64_t h = 14695981039346656037ull;
  struct facts x;
  ssize_t n;
  for (size_t i = 0; i < PROBE_LEN(objects); i++) {
    snprintf(path, sizeof path, "%s/%s", dir, objects[i].name);
    if (get_facts(path, &x, xattrs, &n)) {
      h = mix(h, &i, sizeof i);
      continue;
    }
    h = mix_facts(h, &x);
    if (n > 0)
      h = mix(h, xattrs, (size_t)n);
  }
  return h;
}

/* --- making and repairing ------------------------------------------------ */

static bool keeps_xattrs; /* the file system took one */

/* As it should be, but for the times of change? */
static bool sound(const struct object *o, const char *path) {
  const uint64_t flags = FACTS_NODUMP | FACTS_APPEND | FACTS_IMMUTABLE;
  char xattrs[XATTR_BYTES];
  struct facts x;
  ssize_t n;
  if (get_facts(path, &x, xattrs, &n) || x.mode != o->mode ||
      x.uid != geteuid() || x.mtime.sec != OLD_TIME ||
      x.attributes & flags)
    return false;
  if (o->xattr && keeps_xattrs
        ? n != sizeof "user.k" || strcmp(xattrs, "user.k")
        : n > 0)
    return false;
  if (o->keep && !*o->keep) { /* another directory under this name? */
    char inside[PROBE_PATH_MAX + 16];
    snprintf(inside, sizeof inside, "%s/x", path);
    if (!access(inside, F_OK))
      return false;
  }
  return !S_ISREG(o->mode) ||
         (x.nlink == 1 && x.size == strlen(o->text));
}

static void drop_xattrs(int fd) {
  char names[1024];
  ssize_t n = flistxattr(fd, names, sizeof names);
  for (ssize_t i = 0; i < n; i += (ssize_t)strlen(names + i) + 1)
    (void)fremovexattr(fd, names + i);
}

static const struct timespec old_times[2] = { { OLD_TIME, 0 },
                                              { OLD_TIME, 0 } };

static int finish(int fd, const struct object *o) {
  int rc = 0;
  if (fchown(fd, geteuid(), getegid()) || fchmod(fd, o->mode & 07777))
    rc = errno;
  drop_xattrs(fd);
  if (o->xattr && !fsetxattr(fd, "user.k", "v", 1, 0))
    keeps_xattrs = true;
  if (!rc && futimens(fd, old_times))
    rc = errno;
  close(fd);
  return rc;
}

/* A file that is only changed is repaired in place: making one costs far
 * more. Never cut to length 0: freeing the block waits for the disk. */
static int put_file(const struct object *o, const char *path) {
  size_t len = strlen(o->text);
  unsigned none = 0;
  struct stat st;
  int fd = -1;
  if (!lstat(path, &st) && (!S_ISREG(st.st_mode) || st.st_nlink != 1))
    (void)remove_at(AT_FDCWD, path);
  else if ((fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)) >= 0) {
    (void)probe_ioctl(fd, FS_IOC_SETFLAGS, &none);
    (void)fchmod(fd, 0644);
    close(fd);
  }
  fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0 && !remove_at(AT_FDCWD, path))
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0)
    return errno;
  if (pwrite(fd, o->text, len, 0) < 0 || fstat(fd, &st) ||
      (st.st_size != (off_t)len && ftruncate(fd, (off_t)len))) {
    int rc = errno;
    close(fd);
    return rc;
  }
  return finish(fd, o);
}

static int put_link(const char *path) {
  (void)remove_at(AT_FDCWD, path);
  if (symlink("f", path) ||
      utimensat(AT_FDCWD, path, old_times, AT_SYMLINK_NOFOLLOW))
    return errno;
  return 0;
}

/* Opened, with nothing in it but what is to stay. */
static int clean_dir(const char *path, const char *keep) {
  struct dirent *e;
  struct stat st;
  int fd;
  DIR *d;
  if (!lstat(path, &st) && !S_ISDIR(st.st_mode))
    (void)remove_at(AT_FDCWD, path);
  if (mkdir(path, 0755) && errno != EEXIST)
    return -1;
  (void)chmod(path, 0755);
  fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || !(d = fdopendir(dup(fd)))) {
    if (fd >= 0)
      close(fd);
    return -1;
  }
  while ((e = readdir(d)))
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
        (e->d_name[1] || !strchr(keep, e->d_name[0])))
      (void)remove_at(fd, e->d_name);
  closedir(d);
  return fd;
}

static int put(const struct object *o, const char *path) {
  int fd;
  if (S_ISREG(o->mode))
    return put_file(o, path);
  if (S_ISLNK(o->mode))
    return put_link(path);
  fd = clean_dir(path, o->keep);
  return fd < 0 ? errno : finish(fd, o);
}

/* Strangers go first: one may be another name of a file of ours. */
static int clean_all(const char *dir) {
  char path[PROBE_PATH_MAX + 8];
  for (size_t i = PROBE_LEN(objects); i-- > 0;) {
    const struct object *o = &objects[i];
    int fd;
    if (!o->keep)
      continue;
    snprintf(path, sizeof path, "%s/%s", dir, o->name);
    if (sound(o, path))
      continue;
    if ((fd = clean_dir(path, o->keep)) < 0)
      return errno;
    close(fd);
  }
  return 0;
}

int probe_bundle_make(const char *dir) {
  char path[PROBE_PATH_MAX + 8];
  int rc = 0;
  if (mkdir(dir, 0755)) {
    if (errno != EEXIST)
      return errno;
  } else {
    snprintf(path, sizeof path, "%s.via", dir);
    if (symlink(dir, path) && errno != EEXIST)
      return errno;
  }
  rc = clean_all(dir);
  for (size_t i = 0; !rc && i < PROBE_LEN(objects); i++) {
    snprintf(path, sizeof path, "%s/%s", dir, objects[i].name);
    if (!sound(&objects[i], path))
      rc = put(&objects[i], path);
  }
  return rc;
}

int probe_remove_tree(const char *path) {
  return remove_at(AT_FDCWD, path);
}
