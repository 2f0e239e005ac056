/* dsh_probe_process.c: class N: what is no file effect but matters beside
 * them: other processes, terminals, sockets, programs that raise rights. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dsh_probe.h"

/* --- signals and tracing ------------------------------------------------- */

static int send_kill(struct probe_ctx *c) {
  return probe_rc(kill(c->spec->victim, SIGUSR1));
}

static int send_tgkill(struct probe_ctx *c) {
  return probe_rc(syscall(SYS_tgkill, c->spec->victim, c->spec->victim,
                          SIGUSR1));
}

static int send_queue(struct probe_ctx *c) {
  union sigval v = { .sival_int = 1 };
  return probe_rc(sigqueue(c->spec->victim, SIGUSR1, v));
}

static int send_pidfd(struct probe_ctx *c) {
  int fd = (int)syscall(SYS_pidfd_open, c->spec->victim, 0), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(syscall(SYS_pidfd_send_signal, fd, SIGUSR1, NULL, 0));
  close(fd);
  return rc;
}

/* The owner of a descriptor gets SIGIO-like signals from the kernel. */
static int send_by_owner(struct probe_ctx *c) {
  int p[2], rc;
  if (pipe2(p, O_CLOEXEC | O_NONBLOCK))
    return errno;
  rc = probe_rc(fcntl(p[0], F_SETOWN, c->spec->victim));
  if (!rc)
    rc = probe_rc(fcntl(p[0], F_SETSIG, SIGUSR1));
  if (!rc)
    rc = probe_rc(fcntl(p[0], F_SETFL, O_ASYNC | O_NONBLOCK));
  if (!rc)
    rc = probe_rc(write(p[1], "x", 1));
  usleep(2000);
  close(p[0]);
  close(p[1]);
  return rc;
}

static int trace_seize(struct probe_ctx *c) {
  pid_t pid = c->spec->victim;
  int status;
  if (ptrace(PTRACE_SEIZE, pid, 0, 0))
    return errno;
  if (!ptrace(PTRACE_INTERRUPT, pid, 0, 0))
    (void)waitpid(pid, &status, 0);
  (void)ptrace(PTRACE_DETACH, pid, 0, 0);
  return 0;
}

static int vm_write(struct probe_ctx *c) {
  char byte = 2;
  struct iovec here = { &byte, 1 };
  struct iovec there = { (void *)(uintptr_t)c->spec->counter, 1 };
  return probe_rc(process_vm_writev(c->spec->victim, &here, 1, &there, 1, 0));
}

static int steal_fd(struct probe_ctx *c) {
  int fd = (int)syscall(SYS_pidfd_open, c->spec->victim, 0), got;
  if (fd < 0)
    return errno;
  got = (int)syscall(SYS_pidfd_getfd, fd, PROBE_FD_FILE, 0);
  close(fd);
  return probe_write_fd(got);
}

static int set_limits(struct probe_ctx *c) {
  uint64_t now[2];
  if (syscall(SYS_prlimit64, c->spec->victim, 7, NULL, now))
    return errno;
  return probe_rc(syscall(SYS_prlimit64, c->spec->victim, 7, now, NULL));
}

/* --- sockets ------------------------------------------------------------- */

static int connect_to(int family, const void *addr, socklen_t len) {
  int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(connect(fd, addr, len));
  close(fd);
  return rc;
}

static int connect_abstract(struct probe_ctx *c) {
  struct sockaddr_un a = { .sun_family = AF_UNIX };
  int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "dsh-probe-%d",
                   (int)c->spec->victim);
  return connect_to(AF_UNIX, &a,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                                (size_t)n));
}

static int connect_tcp(struct probe_ctx *c) {
  struct sockaddr_in a = { .sin_family = AF_INET };
  a.sin_port = htons((uint16_t)c->spec->port);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect_to(AF_INET, &a, sizeof a);
}

/* --- programs ------------------------------------------------------------ */

/* Runs argv[0] by execveat on fd; 0 when it ended with status 0. */
static int exec_fd(int fd, char *const argv[]) {
  int status;
  pid_t pid = fork();
  if (pid < 0)
    return errno;
  if (!pid) {
    char *const env[] = { NULL };
    (void)syscall(SYS_execveat, fd, "", argv, env, AT_EMPTY_PATH);
    _exit(100);
  }
  if (waitpid(pid, &status, 0) < 0)
    return errno;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : EACCES;
}

static int memfd_exec(struct probe_ctx *c) {
  char self[] = "dsh-probe", mode[] = "--nothing", buf[16384];
  char *const argv[] = { self, mode, NULL };
  int from = open(c->spec->self, O_RDONLY | O_CLOEXEC), fd, rc = 0;
  ssize_t n;
  if (from < 0)
    return errno;
  fd = memfd_create("dsh-probe", 0);
  if (fd < 0)
    rc = errno;
  while (!rc && (n = read(from, buf, sizeof buf)) > 0)
    if (write(fd, buf, (size_t)n) != n)
      rc = errno;
  close(from);
  if (!rc)
    rc = exec_fd(fd, argv);
  if (fd >= 0)
    close(fd);
  return rc;
}

static unsigned effective_uid(pid_t pid) {
  char path[64], line[128];
  unsigned real = 1, effective = 1;
  FILE *f;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  if (!(f = fopen(path, "re")))
    return 1;
  while (fgets(line, sizeof line, f))
    if (sscanf(line, "Uid: %u %u", &real, &effective) == 2)
      break;
  fclose(f);
  return effective;
}

/* su waits for a password on its stdin, a pipe of ours: time enough to see
 * which user it became. Nothing is ever written to it. */
static int setuid_exec(struct probe_ctx *c) {
  static const char path[] = "/usr/bin/su";
  int in[2], gone[2], rc = EPERM, status;
  struct stat st;
  char byte;
  pid_t pid;
  (void)c;
  if (!geteuid() || stat(path, &st) || st.st_uid || !(st.st_mode & S_ISUID))
    return PROBE_NO_CALL;
  if (pipe2(in, O_CLOEXEC) || pipe2(gone, O_CLOEXEC))
    return errno;
  pid = fork();
  if (!pid) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)dup2(in[0], 0);
    (void)dup2(null, 1);
    (void)dup2(null, 2);
    execl(path, "su", "-c", "true", (char *)NULL);
    _exit(127);
  }
  close(in[0]);
  close(gone[1]);
  if (pid > 0 && read(gone[0], &byte, 1) == 0 && !effective_uid(pid))
    rc = 0;
  close(gone[0]);
  close(in[1]); /* end of input: su gives up */
  if (pid > 0) {
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
  }
  return rc;
}

/* --- terminals ----------------------------------------------------------- */

/* Puts a byte into the input of a terminal of our own, as an attacker would
 * into the caller's. */
static int inject(struct probe_ctx *c, bool high_bits) {
  char name[64], byte = 'x', got = 0;
  int m = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), s;
  long rc;
  (void)c;
  if (m < 0 || unlockpt(m) || ptsname_r(m, name, sizeof name))
    return errno;
  (void)setsid();
  s = open(name, O_RDWR | O_CLOEXEC);
  if (s < 0 || ioctl(s, TIOCSCTTY, 0))
    return errno;
  rc = high_bits ? syscall(SYS_ioctl, (long)s, 0x100000000L | TIOCSTI, &byte)
                 : ioctl(s, TIOCSTI, &byte);
  if (rc)
    return errno;
  byte = '\n';
  (void)ioctl(s, TIOCSTI, &byte);
  return read(s, &got, 1) == 1 && got == 'x' ? 0 : EIO;
}

static int inject_byte(struct probe_ctx *c) {
  return inject(c, false);
}

static int inject_high_bits(struct probe_ctx *c) {
  return inject(c, true);
}

/* --- doors of the kernel ------------------------------------------------- */

static int uring_setup(struct probe_ctx *c) {
  uint32_t params[30];
  int fd;
  (void)c;
  memset(params, 0, sizeof params);
  fd = (int)syscall(SYS_io_uring_setup, 1, params);
  if (fd >= 0)
    close(fd);
  return probe_rc(fd);
}

static int bpf_map(struct probe_ctx *c) {
  uint32_t attr[32] = { 2, 4, 4, 1 }; /* an array of one */
  int fd = (int)syscall(SYS_bpf, 0, attr, sizeof attr);
  (void)c;
  if (fd >= 0)
    close(fd);
  return probe_rc(fd);
}

static int userns(struct probe_ctx *c) {
  (void)c;
  return probe_rc(unshare(CLONE_NEWUSER));
}

static int sysv_semaphore(struct probe_ctx *c) {
  int id = semget(IPC_PRIVATE, 1, 0600);
  (void)c;
  if (id < 0)
    return errno;
  (void)semctl(id, 0, IPC_RMID);
  return 0;
}

static int fanotify(struct probe_ctx *c) {
  int fd = (int)syscall(SYS_fanotify_init, 0u, 0u);
  (void)c;
  if (fd >= 0)
    close(fd);
  return probe_rc(fd);
}

#define COUNTED (OP_HOST | OP_COUNTER | OP_NEVER)
#define SEEN (OP_HOST | OP_RETURN | OP_NEVER)
static const char signal_note[] =
  "refused: a scope of Landlock from ABI 6, or a pid namespace";
static const char trace_note[] =
  "refused: Landlock forbids tracing what is less confined";
static const char tty_note[] =
  "refused by the seccomp program, whatever the sysctl says";

static const struct probe_op op[] = {
  { "signal-kill", 'N', "signal", COUNTED, send_kill, signal_note },
  { "signal-tgkill", 'N', "signal", COUNTED, send_tgkill, signal_note },
  { "signal-queue", 'N', "signal", COUNTED, send_queue, signal_note },
  { "signal-pidfd", 'N', "signal", COUNTED, send_pidfd, signal_note },
  { "signal-by-owner", 'N', "signal", COUNTED, send_by_owner, signal_note },
  { "ptrace-seize", 'N', "trace", SEEN, trace_seize, trace_note },
  { "process-vm-write", 'N', "trace", COUNTED, vm_write, trace_note },
  { "pidfd-getfd-write", 'N', "trace", OP_ONE | OP_PEER | OP_NEVER, steal_fd,
    trace_note },
  { "prlimit-outside", 'N', "limits-of-others", OP_HOST | OP_RETURN | OP_NOTE,
    set_limits,
    "not promised under Landlock alone: the kernel checks only the user" },
  { "connect-abstract-socket", 'N', "abstract-socket", COUNTED,
    connect_abstract, "refused: a scope of Landlock from ABI 6" },
  { "connect-tcp", 'N', "network", OP_HOST | OP_COUNTER | OP_NOTE, connect_tcp,
    "a limit: the file policy says nothing about the network" },
  { "memfd-exec", 'N', "programs", OP_HOST | OP_RETURN | OP_NOTE, memfd_exec,
    "allowed: a program from memory is as confined as its parent" },
  { "setuid-exec", 'N', "programs", SEEN, setuid_exec,
    "refused to raise rights: no_new_privs" },
  { "terminal-injection", 'N', "terminal", SEEN, inject_byte, tty_note },
  { "terminal-injection-high-bits", 'N', "terminal", SEEN, inject_high_bits,
    tty_note },
  { "io-uring-setup", 'N', "system-calls", SEEN, uring_setup,
    "refused by the seccomp program: its work is not seen by filters" },
  { "bpf-map", 'N', "capabilities", SEEN, bpf_map,
    "refused: no capability is left" },
  { "fanotify", 'N', "capabilities", SEEN, fanotify,
    "refused: no capability is left" },
  { "user-namespace", 'N', "namespaces", OP_HOST | OP_RETURN | OP_NOTE,
    userns,
    "allowed where the host allows it: Landlock refuses every mount inside" },
  { "sysv-semaphore", 'N', "ipc", OP_HOST | OP_RETURN | OP_NOTE,
    sysv_semaphore, "allowed: an ipc namespace of its own where possible" },
};

const struct probe_family probe_process = { op, PROBE_LEN(op) };
