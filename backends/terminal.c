/* terminal.c: under Landlock a terminal that the command makes has no grant,
 * and granting all of /dev/pts would open everybody's. So the keeper opens the
 * other end of the very terminal whose master the caller holds, and hands it
 * over. It never becomes anybody's controlling terminal by that; programs ask
 * for it themselves (TIOCSCTTY). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../src/syscalls.h"
#include "launch.h"

enum {
  PATH_BYTES = 4096,
  PTS_FIRST = 136,
  PTS_LAST = 143,
  LOOKS_MAX = 16384 /* descriptors: nobody else is served meanwhile */
};

/* The caller's descriptor `fd`, itself; or -errno. */
static int take_fd(pid_t pid, int fd) {
  int got, pidfd = (int)syscall(DSH_NR_pidfd_open, remote_leader(pid), 0);
  if (pidfd < 0)
    return -errno;
  got = (int)syscall(DSH_NR_pidfd_getfd, pidfd, fd, 0);
  if (got < 0)
    got = -errno;
  close(pidfd);
  return got;
}

/* Opens the other end of `master` and answers the call with it. */
static int give(const struct run *r, uint64_t id, int master, int flags) {
  struct dsh_notif_addfd add = {id, DSH_ADDFD_SEND, 0, 0, 0};
  int e = 0, peer = ioctl(master, (int)DSH_IOCTL_TIOCGPTPEER,
                          (flags & (O_ACCMODE | O_NONBLOCK)) | O_NOCTTY);
  if (peer < 0)
    return -errno;
  add.srcfd = (uint32_t)peer;
  add.newfd_flags = (uint32_t)(flags & O_CLOEXEC);
  if (ioctl(r->listener, DSH_NOTIF_ADDFD, &add) < 0)
    e = -errno;
  close(peer);
  return e;
}

void terminal_peer(const struct run *r, const struct dsh_notif *n) {
  int e, master = take_fd((pid_t)n->pid, (int)n->data.args[0]);
  if (master < 0) {
    answer(r, n->id, master, 0);
    return;
  }
  if ((e = give(r, n->id, master, (int)n->data.args[2])) != 0)
    answer(r, n->id, e, 0);
  close(master);
}

/* The caller's descriptor `fd` if it is the master of terminal `index`; or
 * -1. Asked of the descriptor itself: fdinfo would tell too, but how long that
 * takes to print is up to the caller (epolls, locks). */
static int take_master(pid_t pid, int fd, int index) {
  int number, master = take_fd(pid, fd);
  if (master >= 0 && ioctl(master, (int)TIOCGPTN, &number) == 0 &&
      number == index)
    return master;
  if (master >= 0)
    close(master);
  return -1;
}

static bool is_ptmx(const struct stat *st) {
  return S_ISCHR(st->st_mode) && st->st_rdev == makedev(5, 2);
}

/* A master of terminal `index` among the caller's descriptors; or -1. */
static int find_master(pid_t pid, int index) {
  char path[48];
  struct dirent *e;
  struct stat st;
  DIR *d;
  int fd = -1, left = LOOKS_MAX;
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  d = opendir(path);
  if (!d)
    return -1;
  while (fd < 0 && left-- > 0 && (e = readdir(d)))
    if (e->d_name[0] != '.' && fstatat(dirfd(d), e->d_name, &st, 0) == 0 &&
        is_ptmx(&st))
      fd = take_master(pid, atoi(e->d_name), index);
  closedir(d);
  return fd;
}

/* Is the other end of `master` this very node? Another devpts instance has
 * terminals of the same numbers. */
static bool is_peer(int master, const struct stat *node) {
  struct stat st;
  int peer = ioctl(master, (int)DSH_IOCTL_TIOCGPTPEER, O_RDWR | O_NOCTTY);
  bool same = peer >= 0 && fstat(peer, &st) == 0 &&
              st.st_dev == node->st_dev && st.st_ino == node->st_ino;
  if (peer >= 0)
    close(peer);
  return same;
}

bool terminal_open(const struct run *r, const struct dsh_notif *n, int dirfd,
                   uint64_t address, int flags) {
  static char path[PATH_BYTES];
  struct stat st;
  pid_t pid = (pid_t)n->pid;
  bool done = false;
  int master, fd;
  if ((flags & O_ACCMODE) != O_RDWR ||
      remote_string(pid, address, path, sizeof path) < 0 ||
      strncmp(path, "/dev/pts/", 9) != 0)
    return false;
  fd = remote_open(pid, dirfd, path, true);
  if (fd < 0)
    return false;
  if (fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) &&
      major(st.st_rdev) >= PTS_FIRST && major(st.st_rdev) <= PTS_LAST &&
      ioctl(r->listener, DSH_NOTIF_ID_VALID, &n->id) == 0) {
    master = find_master(pid, (int)minor(st.st_rdev));
    if (master >= 0) {
      done = is_peer(master, &st) && give(r, n->id, master, flags) == 0;
      close(master);
    }
  }
  close(fd);
  return done;
}
