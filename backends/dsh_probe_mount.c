/* dsh_probe_mount.c: namespaces, mounts and roots. The bare run happens in a
 * mount namespace of the harness's own, and each operation in a process that
 * leaves into a fresh one first, so nothing of the host changes. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dsh_probe.h"

enum { NR_mount_setattr = 442, NR_open_tree = 428, NR_move_mount = 429,
       NR_fsopen = 430, NR_fsconfig = 431, NR_fsmount = 432 };

struct attr { uint64_t set, clr, propagation, userns_fd; };

static int write_f(struct probe_ctx *c) {
  return probe_write_fd(open(probe_at(c, "f"), O_WRONLY | O_CLOEXEC));
}

/* A mount namespace: directly when capable, else by a user namespace. */
static int leave(bool user) {
  if (user ? unshare(CLONE_NEWUSER | CLONE_NEWNS) : unshare(CLONE_NEWNS))
    return errno;
  return 0;
}

static int mount_tmpfs(struct probe_ctx *c, bool user) {
  int rc = leave(user);
  if (rc)
    return rc;
  (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
  return probe_rc(mount("tmpfs", probe_at(c, "d"), "tmpfs", 0, "size=4k"));
}

static int mount_direct(struct probe_ctx *c) {
  return mount_tmpfs(c, false);
}

static int mount_in_userns(struct probe_ctx *c) {
  return mount_tmpfs(c, true);
}

/* In a fresh namespace, makes the mounts above the target writable. */
static int remount_with(struct probe_ctx *c, bool user) {
  int rc = leave(user);
  if (rc)
    return rc;
  (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
  (void)mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL);
  (void)mount(c->dir, c->dir, NULL, MS_BIND, NULL);
  (void)mount(NULL, c->dir, NULL, MS_REMOUNT | MS_BIND, NULL);
  return write_f(c);
}

static int remount_write(struct probe_ctx *c) {
  return remount_with(c, false);
}

static int remount_in_userns(struct probe_ctx *c) {
  return remount_with(c, true);
}

static int remount_chmod(struct probe_ctx *c) {
  int rc = leave(true);
  if (rc)
    return rc;
  (void)mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL);
  return probe_rc(chmod(probe_at(c, "f"), 0600));
}

/* A copy of the mount, made writable by the newest call. */
static int mount_setattr_write(struct probe_ctx *c) {
  struct attr a = { .clr = 1 }; /* MOUNT_ATTR_RDONLY */
  int fd, rc = leave(true);
  if (rc)
    return rc;
  fd = (int)syscall(NR_open_tree, AT_FDCWD, c->dir,
                    1 /* OPEN_TREE_CLONE */ | O_CLOEXEC);
  if (fd < 0 ||
      syscall(NR_mount_setattr, fd, "", AT_EMPTY_PATH, &a, sizeof a))
    return errno;
  return probe_write_fd(openat(fd, "f", O_WRONLY | O_CLOEXEC));
}

static int open_tree_write(struct probe_ctx *c) {
  int fd, rc = leave(true);
  if (rc)
    return rc;
  fd = (int)syscall(NR_open_tree, AT_FDCWD, c->dir,
                    1 /* OPEN_TREE_CLONE */ | O_CLOEXEC);
  return fd < 0 ? errno
                : probe_write_fd(openat(fd, "f", O_WRONLY | O_CLOEXEC));
}

static int move_mount_to(struct probe_ctx *c) {
  int fd, rc = leave(true);
  if (rc)
    return rc;
  fd = (int)syscall(NR_open_tree, AT_FDCWD, c->dir, 1 | O_CLOEXEC);
  if (fd < 0)
    return errno;
  return probe_rc(syscall(NR_move_mount, fd, "", AT_FDCWD, probe_at(c, "d"),
                          4 /* MOVE_MOUNT_F_EMPTY_PATH */));
}

static int fsopen_mount(struct probe_ctx *c) {
  int fd, m, rc = leave(true);
  if (rc)
    return rc;
  fd = (int)syscall(NR_fsopen, "tmpfs", 1 /* FSOPEN_CLOEXEC */);
  if (fd < 0)
    return errno;
  if (syscall(NR_fsconfig, fd, 6 /* CMD_CREATE */, NULL, NULL, 0))
    return errno;
  m = (int)syscall(NR_fsmount, fd, 1, 0);
  if (m < 0)
    return errno;
  return probe_rc(syscall(NR_move_mount, m, "", AT_FDCWD, probe_at(c, "d"),
                          4));
}

/* Lays the sandbox's own mounts bare: what lies under a read-only bind? */
static int umount_then_write(struct probe_ctx *c) {
  int rc = leave(true);
  if (rc)
    return rc;
  (void)umount2(c->dir, MNT_DETACH);
  (void)umount2(c->spec->outside, MNT_DETACH);
  (void)umount2("/", MNT_DETACH);
  return write_f(c);
}

static int chroot_write(struct probe_ctx *c) {
  int fd;
  if (chroot(c->dir))
    return errno;
  fd = open("/f", O_WRONLY | O_CLOEXEC);
  return probe_write_fd(fd);
}

static int chroot_in_userns(struct probe_ctx *c) {
  if (unshare(CLONE_NEWUSER))
    return errno;
  return chroot_write(c);
}

static int pivot(struct probe_ctx *c, bool user) {
  int rc = leave(user);
  if (rc)
    return rc;
  (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
  if (mount(c->dir, c->dir, NULL, MS_BIND, NULL) || chdir(c->dir))
    return errno;
  if (syscall(SYS_pivot_root, ".", "."))
    return errno;
  return probe_write_fd(open("/f", O_WRONLY | O_CLOEXEC));
}

static int pivot_root_write(struct probe_ctx *c) {
  return pivot(c, false);
}

static int pivot_in_userns(struct probe_ctx *c) {
  return pivot(c, true);
}

static int join_outside(struct probe_ctx *c) {
  char path[64];
  int fd, rc;
  snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)c->spec->victim);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return errno;
  rc = setns(fd, CLONE_NEWNS) ? errno : write_f(c);
  close(fd);
  return rc;
}

static int join_by_pidfd(struct probe_ctx *c) {
  int fd = (int)syscall(SYS_pidfd_open, c->spec->victim, 0), rc;
  if (fd < 0)
    return errno;
  rc = setns(fd, CLONE_NEWNS) ? errno : write_f(c);
  close(fd);
  return rc;
}

/* The harness mounts a tmpfs at d when asked: long after the start. */
static int mount_after_start(struct probe_ctx *c) {
  int rc = probe_sync(c);
  return rc ? rc
            : probe_write_fd(open(probe_at(c, "d/new"),
                                  O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

/* uts: a name in a namespace of our own, nothing of the host. */
static int privileged_hostname(struct probe_ctx *c) {
  (void)c;
  if (unshare(CLONE_NEWUTS))
    return errno;
  return probe_rc(sethostname("dsh-probe", 9));
}

static const struct probe_op op[] = {
  { "mount-tmpfs", 'F', "mount", OP_ONE | OP_RETURN, mount_direct, NULL },
  { "mount-tmpfs-userns", 'F', "mount", OP_ONE | OP_RETURN, mount_in_userns,
    NULL },
  { "remount-write", 'F', "mount", OP_ONE, remount_write, NULL },
  { "remount-write-userns", 'F', "mount", OP_ONE, remount_in_userns, NULL },
  { "remount-chmod-userns", 'F', "metadata", OP_ONE, remount_chmod, NULL },
  { "mount-setattr-write", 'F', "mount", OP_ONE, mount_setattr_write, NULL },
  { "open-tree-write", 'F', "mount", OP_ONE, open_tree_write, NULL },
  { "move-mount", 'F', "mount", OP_ONE | OP_RETURN, move_mount_to, NULL },
  { "fsopen-mount", 'F', "mount", OP_ONE | OP_RETURN, fsopen_mount, NULL },
  { "umount-write", 'F', "mount", OP_ONE, umount_then_write, NULL },
  { "chroot-write", 'F', "mount", OP_ONE, chroot_write, NULL },
  { "chroot-write-userns", 'F', "mount", OP_ONE, chroot_in_userns, NULL },
  { "pivot-root-write", 'F', "mount", OP_ONE, pivot_root_write, NULL },
  { "pivot-root-write-userns", 'F', "mount", OP_ONE, pivot_in_userns, NULL },
  { "join-outside-namespace", 'F', "mount", OP_ONE, join_outside, NULL },
  { "join-outside-by-pidfd", 'F', "mount", OP_ONE, join_by_pidfd, NULL },
  { "mount-after-start-write", 'F', "mount", OP_ONE | OP_SYNC,
    mount_after_start, NULL },
  { "capability-hostname", 'F', "capabilities", OP_HOST | OP_RETURN,
    privileged_hostname, NULL },
};

const struct probe_family probe_mount = { op, PROBE_LEN(op) };
