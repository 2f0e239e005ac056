/* restrict.c: Landlock, seccomp and capabilities. */
#include "restrict.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "uapi.h"
#include "seccomp_programs.h"

#ifndef PR_CAP_AMBIENT
#define PR_CAP_AMBIENT 47
#endif
enum { CAP_AMBIENT_CLEAR_ALL = 4 };

/* Rights of one file; the others make sense for a directory alone. */
enum {
  RIGHTS_READ = DSH_LL_EXECUTE | DSH_LL_READ_FILE | DSH_LL_READ_DIR,
  RIGHTS_FILE = DSH_LL_EXECUTE | DSH_LL_WRITE_FILE | DSH_LL_READ_FILE |
                DSH_LL_TRUNCATE | DSH_LL_IOCTL_DEV,
  RIGHTS_DEVICE = DSH_LL_READ_FILE | DSH_LL_WRITE_FILE | DSH_LL_TRUNCATE |
                  DSH_LL_IOCTL_DEV
};

static int result(long r) {
  return r < 0 ? -errno : (int)r;
}

int dsh_ll_abi(void) {
  return result(syscall(DSH_NR_landlock_create_ruleset, NULL, 0,
                        DSH_LL_CREATE_VERSION));
}

/* Every file right that the ABI knows. */
static uint64_t governed(int abi) {
  uint64_t rights = DSH_LL_REFER - 1;
  if (abi >= 2)
    rights |= DSH_LL_REFER;
  if (abi >= 3)
    rights |= DSH_LL_TRUNCATE;
  if (abi >= 5)
    rights |= DSH_LL_IOCTL_DEV;
  return rights;
}

static int create(int abi, uint64_t fs, uint64_t scoped) {
  struct dsh_ll_attr attr = {fs, 0, scoped};
  /* An older kernel refuses a longer record, even one of zeroes there. */
  size_t size = abi >= 6 ? sizeof attr : abi >= 4 ? 16 : 8;
  return result(syscall(DSH_NR_landlock_create_ruleset, &attr, size, 0));
}

int dsh_ll_ruleset(int abi, bool scopes) {
  return create(abi, governed(abi),
                scopes && abi >= 6
                    ? DSH_LL_SCOPE_ABSTRACT | DSH_LL_SCOPE_SIGNAL
                    : 0);
}

static int add(int ruleset, int fd, uint64_t rights) {
  struct dsh_ll_path rule = {rights, fd};
  return result(syscall(DSH_NR_landlock_add_rule, ruleset,
                        DSH_LL_RULE_PATH_BENEATH, &rule, 0));
}

static uint64_t rights_of(enum dsh_access access, int abi) {
  switch (access) {
  case DSH_ACCESS_READ:
    return RIGHTS_READ;
  case DSH_ACCESS_WRITE:
    return governed(abi);
  case DSH_ACCESS_DEVICE:
    return RIGHTS_DEVICE & governed(abi);
  case DSH_ACCESS_STREAM:
    return (DSH_LL_WRITE_FILE | DSH_LL_TRUNCATE | DSH_LL_IOCTL_DEV) &
           governed(abi);
  }
  return 0;
}

int dsh_ll_allow(int ruleset, int abi, int fd, enum dsh_access access) {
  uint64_t rights = rights_of(access, abi);
  struct stat st;
  if (fstat(fd, &st) != 0)
    return -errno;
  if (!S_ISDIR(st.st_mode))
    rights &= RIGHTS_FILE;
  return add(ruleset, fd, rights);
}

int dsh_ll_allow_stdio(int ruleset, int abi) {
  int fd, r;
  for (fd = 0; fd <= 2; fd++) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) == O_RDONLY)
      continue;
    r = dsh_ll_allow(ruleset, abi, fd, DSH_ACCESS_STREAM);
    /* Anonymous pipes and sockets lie outside what Landlock governs. */
    if (r < 0 && r != -EBADFD && r != -EBADF && r != -EINVAL)
      return r;
  }
  return 0;
}

static int allow_device(int ruleset, int abi, const char *path) {
  /* Not open(): musl's sets the flag again by a second call. */
  int r, fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT || errno == ENXIO || errno == EACCES ? 0 : -errno;
  r = add(ruleset, fd, rights_of(DSH_ACCESS_DEVICE, abi));
  close(fd);
  return r;
}

int dsh_ll_allow_devices(int ruleset, int abi, bool pts) {
  static const char *const nodes[] = {
      "/dev/null",    "/dev/zero", "/dev/full", "/dev/random",
      "/dev/urandom", "/dev/tty",  "/dev/ptmx"};
  size_t i;
  int r = 0;
  for (i = 0; i < sizeof nodes / sizeof *nodes && r == 0; i++)
    r = allow_device(ruleset, abi, nodes[i]);
  if (r == 0 && pts)
    r = allow_device(ruleset, abi, "/dev/pts");
  if (r == 0 && pts)
    r = allow_device(ruleset, abi, "/dev/console");
  return r;
}

int dsh_ll_restrict(int ruleset) {
  return result(syscall(DSH_NR_landlock_restrict_self, ruleset, 0));
}

int dsh_ll_scope_layer(int abi) {
  int r, fd, root;
  if (abi < 6)
    return -ENOSYS;
  /* A layer that does not say so refuses every rename between directories:
   * REFER is granted everywhere, or the ruleset above it could not. */
  fd = create(abi, DSH_LL_REFER, DSH_LL_SCOPE_ABSTRACT | DSH_LL_SCOPE_SIGNAL);
  if (fd < 0)
    return fd;
  root = (int)syscall(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC);
  r = root < 0 ? -errno : add(fd, root, DSH_LL_REFER);
  if (root >= 0)
    close(root);
  if (r == 0)
    r = dsh_ll_restrict(fd);
  close(fd);
  return r;
}

int dsh_no_new_privs(void) {
  return result(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

static int get_caps(struct dsh_cap_data data[2]) {
  struct dsh_cap_header header = {DSH_CAP_VERSION_3, 0};
  return result(syscall(SYS_capget, &header, data));
}

int dsh_capabilities_gone(void) {
  struct dsh_cap_data data[2];
  int r = get_caps(data);
  if (r < 0)
    return r;
  return !(data[0].effective | data[1].effective | data[0].permitted |
           data[1].permitted);
}

int dsh_drop_capabilities(void) {
  struct dsh_cap_header header = {DSH_CAP_VERSION_3, 0};
  struct dsh_cap_data data[2];
  int r = get_caps(data);
  if (r < 0)
    return r;
  /* The bounding set stays: under no_new_privs nothing can be gained from it,
   * and emptying it costs 41 calls of every start. */
  if ((data[0].effective & (1u << DSH_CAP_SETPCAP)) &&
      prctl(PR_SET_SECUREBITS, DSH_SECUREBITS, 0, 0, 0) != 0)
    return -errno;
  prctl(PR_CAP_AMBIENT, CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  data[0] = data[1] = (struct dsh_cap_data){0, 0, 0};
  return result(syscall(SYS_capset, &header, data));
}

int dsh_seccomp_install(enum dsh_program program, bool listener) {
  unsigned flags =
      listener ? DSH_SECCOMP_FLAG_NEW_LISTENER | DSH_SECCOMP_FLAG_WAIT_KILLABLE
               : 0;
  int r = result(syscall(SYS_seccomp, DSH_SECCOMP_SET_MODE_FILTER, flags,
                         &programs[program]));
  if (r == -EINVAL && listener) /* before 5.19: no WAIT_KILLABLE */
    r = result(syscall(SYS_seccomp, DSH_SECCOMP_SET_MODE_FILTER,
                       DSH_SECCOMP_FLAG_NEW_LISTENER, &programs[program]));
  return r;
}
