/* dsh_probe_proc.c: ways through /proc, /sys and /dev. What belongs to the
 * machine is only opened, never written. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/fs.h>

#include "dsh_probe.h"

/* Opens for writing and does nothing with it. */
static int open_only(const char *path) {
  int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  int rc = probe_rc(fd);
  if (fd >= 0)
    close(fd);
  return rc;
}

/* The first that opens decides; else the first errno. */
static int open_any(const char *const *path) {
  int first = PROBE_NO_CALL;
  for (; *path; path++) {
    int rc = open_only(*path);
    if (!rc)
      return 0;
    if (first == PROBE_NO_CALL)
      first = rc;
  }
  return first;
}

/* --- /proc --------------------------------------------------------------- */

static int proc_sys(struct probe_ctx *c) {
  static const char *const path[] = {
    "/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern",
    "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/fs/protected_hardlinks", NULL
  };
  (void)c;
  return open_any(path);
}

/* modprobe and core_pattern run as root outside: the classic way out. */
static int proc_sys_core_pattern(struct probe_ctx *c) {
  (void)c;
  return open_only("/proc/sys/kernel/core_pattern");
}

static int proc_sys_root_link(struct probe_ctx *c) {
  (void)c;
  return open_only("/proc/self/root/proc/sys/kernel/core_pattern");
}

static int proc_sysrq(struct probe_ctx *c) {
  (void)c;
  return open_only("/proc/sysrq-trigger");
}

static int proc_chmod(struct probe_ctx *c) {
  (void)c;
  return probe_rc(chmod("/proc/sys/kernel/core_pattern", 0644));
}

/* The namespace's first process. Bare, where that is out of reach, the same
 * way is shown to work through a process that is not. */
static void first_process(struct probe_ctx *c, char *path, size_t size) {
  struct stat st;
  int pid = 1;
  if (!strcmp(c->spec->set, "bare") && stat("/proc/1/root/.", &st))
    pid = (int)c->spec->victim;
  snprintf(path, size, "/proc/%d/root%s/f", pid, c->dir);
}

static int proc_one_root(struct probe_ctx *c) {
  char path[PROBE_PATH_MAX + 64];
  first_process(c, path, sizeof path);
  return probe_write_fd(open(path, O_WRONLY | O_CLOEXEC));
}

static int proc_one_root_chmod(struct probe_ctx *c) {
  char path[PROBE_PATH_MAX + 64];
  first_process(c, path, sizeof path);
  return probe_rc(chmod(path, 0600));
}

static int proc_outside(struct probe_ctx *c, const char *link, char *path,
                        size_t size) {
  int n = snprintf(path, size, "/proc/%d/%s%s/f", (int)c->spec->victim, link,
                   c->dir);
  return n < 0 || (size_t)n >= size ? ENAMETOOLONG : 0;
}

static int proc_outside_root(struct probe_ctx *c) {
  char path[PROBE_PATH_MAX + 64];
  int rc = proc_outside(c, "root", path, sizeof path);
  return rc ? rc : probe_write_fd(open(path, O_WRONLY | O_CLOEXEC));
}

static int proc_outside_root_create(struct probe_ctx *c) {
  char path[PROBE_PATH_MAX + 64];
  snprintf(path, sizeof path, "/proc/%d/root%s/new", (int)c->spec->victim,
           c->dir);
  return probe_write_fd(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

static int proc_outside_root_chmod(struct probe_ctx *c) {
  char path[PROBE_PATH_MAX + 64];
  int rc = proc_outside(c, "root", path, sizeof path);
  return rc ? rc : probe_rc(chmod(path, 0600));
}

/* The victim stands in its own target's directory. */
static int proc_outside_cwd(struct probe_ctx *c) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/cwd/f", (int)c->spec->victim);
  return probe_write_fd(open(path, O_WRONLY | O_CLOEXEC));
}

static int proc_outside_fd(struct probe_ctx *c) {
  return probe_write_fd(open(c->spec->victim_fd, O_WRONLY | O_CLOEXEC));
}

static int proc_outside_fd_chmod(struct probe_ctx *c) {
  struct stat st;
  if (stat(c->spec->victim_fd, &st))
    return errno;
  return probe_rc(chmod(c->spec->victim_fd, st.st_mode == 0100600 ? 0640
                                                                  : 0600));
}

static int proc_outside_mem(struct probe_ctx *c) {
  char path[64], byte = 1;
  int fd, rc;
  snprintf(path, sizeof path, "/proc/%d/mem", (int)c->spec->victim);
  fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0)
    return errno;
  rc = probe_rc(pwrite(fd, &byte, 1, (off_t)c->spec->counter));
  close(fd);
  return rc;
}

/* --- /sys ---------------------------------------------------------------- */

static int sys_open(struct probe_ctx *c) {
  static const char *const path[] = {
    "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/uevent_helper",
    "/sys/power/state", "/sys/kernel/profiling", NULL
  };
  (void)c;
  return open_any(path);
}

static int sys_cgroup_mkdir(struct probe_ctx *c) {
  static const char *const dir[] = {
    "/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory",
    "/sys/fs/cgroup/pids", NULL
  };
  char path[128];
  int first = PROBE_NO_CALL;
  (void)c;
  for (size_t i = 0; dir[i]; i++) {
    snprintf(path, sizeof path, "%s/dsh-probe-%d", dir[i], (int)getpid());
    if (!mkdir(path, 0755)) {
      (void)rmdir(path);
      return 0;
    }
    if (first == PROBE_NO_CALL)
      first = errno;
  }
  return first;
}

/* --- devices that every mode may use ------------------------------------- */

static int write_device(const char *path) {
  return probe_write_fd(open(path, O_WRONLY | O_CLOEXEC));
}

static int dev_null(struct probe_ctx *c) {
  (void)c;
  return write_device("/dev/null");
}

/* As a shell's `> /dev/null` does. */
static int dev_null_create(struct probe_ctx *c) {
  (void)c;
  return probe_write_fd(open("/dev/null", O_WRONLY | O_CREAT | O_TRUNC |
                             O_CLOEXEC, 0666));
}

static int dev_zero(struct probe_ctx *c) {
  (void)c;
  return write_device("/dev/zero");
}

static int dev_full(struct probe_ctx *c) {
  (void)c;
  return open_only("/dev/full");
}

static int dev_random(struct probe_ctx *c) {
  (void)c;
  return open_only("/dev/random");
}

static int dev_urandom(struct probe_ctx *c) {
  (void)c;
  return open_only("/dev/urandom");
}

static int dev_ptmx(struct probe_ctx *c) {
  int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), rc;
  (void)c;
  if (fd < 0)
    return errno;
  rc = grantpt(fd) || unlockpt(fd) ? errno : 0;
  close(fd);
  return rc;
}

/* openpty: the other end is opened by name under /dev/pts. */
static int dev_pts(struct probe_ctx *c) {
  char name[64];
  int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), end, rc;
  (void)c;
  if (fd < 0)
    return errno;
  if (unlockpt(fd) || ptsname_r(fd, name, sizeof name)) {
    rc = errno;
    close(fd);
    return rc;
  }
  end = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  rc = end < 0 ? errno : 0;
  if (end >= 0) {
    if (write(end, "x", 1) != 1)
      rc = errno;
    close(end);
  }
  close(fd);
  return rc;
}

/* The terminal of an outside process. In a devpts of our own that number is
 * nobody's, or ours. */
static int dev_outside_terminal(struct probe_ctx *c) {
  char path[64];
  int fd, rc;
  if (c->spec->pts < 0)
    return PROBE_NO_CALL;
  snprintf(path, sizeof path, "/dev/pts/%d", c->spec->pts);
  fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (fd < 0)
    return errno;
  rc = write(fd, "x", 1) == 1 ? 0 : errno;
  close(fd);
  return rc;
}

/* --- devices that none may ----------------------------------------------- */

static int dev_nodes(struct probe_ctx *c) {
  static const char *const path[] = {
    "/dev/kmsg", "/dev/loop-control", "/dev/fuse", "/dev/net/tun",
    "/dev/vga_arbiter", "/dev/userfaultfd", "/dev/autofs",
    "/dev/btrfs-control", "/dev/cpu_dma_latency", "/dev/vsock", NULL
  };
  (void)c;
  return open_any(path);
}

static int dev_memory(struct probe_ctx *c) {
  static const char *const path[] = { "/dev/mem", "/dev/port", NULL };
  (void)c;
  return open_any(path);
}

/* Calls visit for each block device until one answers 0. */
static int each_block(int (*visit)(const char *path)) {
  DIR *d = opendir("/sys/class/block");
  struct dirent *e;
  char path[320];
  int rc = PROBE_NO_CALL;
  if (!d)
    return rc;
  while ((e = readdir(d))) {
    if (e->d_name[0] == '.' || !strncmp(e->d_name, "loop", 4))
      continue;
    snprintf(path, sizeof path, "/dev/%s", e->d_name);
    rc = visit(path);
    if (!rc)
      break;
  }
  closedir(d);
  return rc;
}

static int block_open(struct probe_ctx *c) {
  (void)c;
  return each_block(open_only);
}

static int ask_size(const char *path) {
  uint64_t bytes;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(probe_ioctl(fd, BLKGETSIZE64, &bytes));
  close(fd);
  return rc;
}

/* A device ioctl that only asks. */
static int block_ioctl(struct probe_ctx *c) {
  (void)c;
  return each_block(ask_size);
}

static int dev_create(struct probe_ctx *c) {
  int fd = open("/dev", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  int rc = probe_rc(fd);
  (void)c;
  if (fd >= 0)
    close(fd);
  return rc;
}

static int dev_mkdir(struct probe_ctx *c) {
  char path[64];
  (void)c;
  snprintf(path, sizeof path, "/dev/dsh-probe-%d", (int)getpid());
  if (mkdir(path, 0700))
    return errno;
  (void)rmdir(path);
  return 0;
}

/* To the mode that it has. */
static int dev_chmod(struct probe_ctx *c) {
  struct stat st;
  (void)c;
  if (stat("/dev/null", &st))
    return errno;
  return probe_rc(chmod("/dev/null", st.st_mode & 07777));
}

static int dev_shm(struct probe_ctx *c) {
  char path[64];
  int rc;
  (void)c;
  snprintf(path, sizeof path, "/dev/shm/dsh-probe-%d", (int)getpid());
  rc = probe_write_fd(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                           0600));
  (void)unlink(path);
  return rc;
}

/* Makes the null device under another name, and opens that. */
static int device_made_elsewhere(struct probe_ctx *c) {
  const char *path = probe_at(c, "new");
  if (mknod(path, S_IFCHR | 0666, makedev(1, 3)))
    return errno;
  return probe_write_fd(open(path, O_WRONLY | O_CLOEXEC));
}

static const struct probe_op op[] = {
  { "proc-sys-open", 'F', "proc", OP_HOST | OP_RETURN, proc_sys, NULL },
  { "proc-sys-core-pattern", 'F', "proc", OP_HOST | OP_RETURN,
    proc_sys_core_pattern, NULL },
  { "proc-sys-by-root-link", 'F', "proc", OP_HOST | OP_RETURN,
    proc_sys_root_link, NULL },
  { "proc-sysrq-open", 'F', "proc", OP_HOST | OP_RETURN, proc_sysrq, NULL },
  { "proc-chmod", 'F', "metadata", OP_HOST | OP_RETURN, proc_chmod, NULL },
  { "proc-1-root-write", 'F', "proc", OP_ONE, proc_one_root, NULL },
  { "proc-1-root-chmod", 'F', "metadata", OP_ONE, proc_one_root_chmod, NULL },
  { "proc-outside-root-write", 'F', "proc", OP_ONE, proc_outside_root, NULL },
  { "proc-outside-root-create", 'F', "proc", OP_ONE,
    proc_outside_root_create, NULL },
  { "proc-outside-root-chmod", 'F', "metadata", OP_ONE, proc_outside_root_chmod,
    NULL },
  { "proc-outside-cwd-write", 'F', "proc", OP_ONE | OP_PEER,
    proc_outside_cwd, NULL },
  { "proc-outside-fd-write", 'F', "proc", OP_ONE | OP_PEER, proc_outside_fd,
    NULL },
  { "proc-outside-fd-chmod", 'F', "metadata", OP_ONE | OP_PEER,
    proc_outside_fd_chmod, NULL },
  { "proc-outside-memory", 'F', "proc", OP_HOST | OP_COUNTER,
    proc_outside_mem, NULL },
  { "sys-open", 'F', "proc", OP_HOST | OP_RETURN, sys_open, NULL },
  { "sys-cgroup-mkdir", 'F', "proc", OP_HOST | OP_RETURN, sys_cgroup_mkdir,
    NULL },
  { "dev-null-write", 'F', "device", OP_HOST | OP_RETURN | OP_ALLOWED,
    dev_null, NULL },
  { "dev-null-redirect", 'F', "device", OP_HOST | OP_RETURN | OP_ALLOWED,
    dev_null_create, NULL },
  { "dev-zero-write", 'F', "device", OP_HOST | OP_RETURN | OP_ALLOWED,
    dev_zero, NULL },
  { "dev-full-open", 'F', "device", OP_HOST | OP_RETURN | OP_ALLOWED,
    dev_full, NULL },
  { "dev-random-open", 'F', "device", OP_HOST | OP_RETURN | OP_ALLOWED,
    dev_random, NULL },
  { "dev-urandom-open", 'F', "device", OP_HOST | OP_RETURN | OP_ALLOWED,
    dev_urandom, NULL },
  { "dev-ptmx-open", 'F', "device", OP_HOST | OP_RETURN | OP_ALLOWED,
    dev_ptmx, NULL },
  { "dev-pts-pair", 'F', "device", OP_HOST | OP_RETURN | OP_ALLOWED, dev_pts,
    NULL },
  { "dev-outside-terminal", 'F', "device", OP_HOST | OP_COUNTER,
    dev_outside_terminal, NULL },
  { "dev-nodes-open", 'F', "device", OP_HOST | OP_RETURN, dev_nodes, NULL },
  { "dev-memory-open", 'F', "device", OP_HOST | OP_RETURN, dev_memory, NULL },
  { "block-device-open", 'F', "device", OP_HOST | OP_RETURN, block_open,
    NULL },
  { "block-device-ioctl", 'F', "device", OP_HOST | OP_RETURN, block_ioctl,
    NULL },
  { "dev-tmpfile", 'F', "device", OP_HOST | OP_RETURN, dev_create, NULL },
  { "dev-mkdir", 'F', "device", OP_HOST | OP_RETURN, dev_mkdir, NULL },
  { "dev-null-chmod", 'F', "metadata", OP_HOST | OP_RETURN, dev_chmod, NULL },
  { "dev-shm-create", 'F', "create", OP_HOST | OP_RETURN | OP_TEMP, dev_shm,
    NULL },
  { "device-made-elsewhere", 'F', "device", OP_ONE, device_made_elsewhere,
    NULL },
};

const struct probe_family probe_proc = { op, PROBE_LEN(op) };
