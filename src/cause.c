/* cause.c: why a backend cannot be used here, in a word, and the one thing to
 * do about it. From facts: what the launcher reported, and what this process
 * finds out by trying. A runner's own words differ by version and language;
 * they are shown, never read. */
#include "cause.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
  const char *cause, *fix;
  bool transient;
} known[] = {
    {"userns-refused", "allow user namespaces: sysctl -w "
                       "user.max_user_namespaces=10000, and no AppArmor or "
                       "container rule against them", false},
    {"no-capabilities", "run the container with CAP_SYS_ADMIN, or allow user "
                        "namespaces in it", false},
    {"proc-refused", "let the container mount its own /proc (unmasked; "
                     "Docker: --security-opt systempaths=unconfined)", false},
    {"seccomp-refused", "allow the seccomp and landlock calls in the "
                        "container's own seccomp profile", false},
    {"landlock-missing", "run a kernel from 5.13 on, built with Landlock",
     false},
    {"landlock-disabled", "add landlock to the kernel's lsm= parameter",
     false},
    {"already-confined", "run it outside the sandbox that it is in", true},
    {"timed-out", "see why it hangs (an unreachable mount?), or raise "
                  "probeTimeoutMs", true},
    {"out-of-memory", "free some memory and try again", true},
    {"start-failed", "run the line that dshsh confine prints and read its "
                     "error", false},
};

const char *dsh_cause_fix(const char *cause) {
  size_t i;
  for (i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].cause, cause) == 0)
      return known[i].fix;
  return NULL;
}

bool dsh_cause_transient(const char *cause) {
  size_t i;
  for (i = 0; cause && i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].cause, cause) == 0)
      return known[i].transient;
  return false;
}

/* --- trying for ourselves ------------------------------------------------ */

/* What a runner needs, in order; in a child of our own. */
enum need { NEED_NONE, NEED_USERNS, NEED_CAPABILITY, NEED_MOUNTS, NEED_PROC };

struct finding {
  enum need need;
  int errnum;
};

static int mount_proc(void) {
  pid_t pid = fork(); /* the first child of a new pid namespace */
  int status = 0;
  if (pid == 0)
    _exit(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                NULL) == 0
              ? 0
              : errno);
  if (pid < 0 || waitpid(pid, &status, 0) != pid)
    return errno;
  return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

static struct finding try_needs(void) {
  struct finding f = {NEED_NONE, 0};
  bool userns = unshare(CLONE_NEWUSER) == 0;
  const int refused = errno;
  int e;
  if (!userns && geteuid() != 0) {
    f.need = NEED_USERNS;
    f.errnum = refused;
  } else if (unshare(CLONE_NEWNS | CLONE_NEWPID) != 0) {
    f.need = userns ? NEED_MOUNTS : NEED_CAPABILITY;
    f.errnum = userns ? errno : refused;
  } else if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
    f.need = NEED_MOUNTS;
    f.errnum = errno;
  } else if ((e = mount_proc()) != 0) {
    f.need = NEED_PROC;
    f.errnum = e;
  } else if (!userns) { /* uid 0 could do without; the runner asks for it */
    f.need = NEED_USERNS;
    f.errnum = refused;
  }
  return f;
}

static struct finding find_need(void) {
  struct finding f = {NEED_NONE, 0};
  int fd[2], status;
  pid_t pid;
  if (pipe2(fd, O_CLOEXEC) != 0)
    return f;
  pid = fork();
  if (pid == 0) {
    f = try_needs();
    _exit(write(fd[1], &f, sizeof f) == sizeof f ? 0 : 1);
  }
  close(fd[1]);
  if (pid > 0) {
    if (read(fd[0], &f, sizeof f) != sizeof f)
      f.need = NEED_NONE;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
      continue;
  }
  close(fd[0]);
  return f;
}

/* Inside a sandbox like our own: its /proc is read-only. */
static bool proc_read_only(void) {
  struct statvfs fs;
  return statvfs("/proc", &fs) == 0 && (fs.f_flag & ST_RDONLY);
}

const char *dsh_cause_of_runner(const char **stage, int *errnum) {
  struct finding f = find_need();
  *errnum = f.errnum;
  if (f.errnum == ENOMEM)
    return "out-of-memory";
  switch (f.need) {
  case NEED_NONE:
    break;
  case NEED_USERNS:
    *stage = "user-namespace";
    return "userns-refused";
  case NEED_CAPABILITY:
    *stage = "user-namespace";
    return "no-capabilities";
  case NEED_MOUNTS: /* Landlock refuses every mount in its domain */
    *stage = "mount-namespace";
    return f.errnum == EPERM ? "already-confined" : "no-capabilities";
  case NEED_PROC:
    *stage = "proc";
    return proc_read_only() ? "already-confined" : "proc-refused";
  }
  return "start-failed";
}

const char *dsh_cause_of_errno(int errnum) {
  switch (errnum) {
  case ENOSYS:
    return "landlock-missing";
  case EOPNOTSUPP:
    return "landlock-disabled";
  case EPERM:
  case EACCES:
    return "seccomp-refused";
  case ENOMEM:
    return "out-of-memory";
  default:
    return "start-failed";
  }
}
