/* hostmask: runs a command as on a host that lacks something.
 *
 *   hostmask [--landlock-errno ENOSYS|EOPNOTSUPP|EPERM] [--landlock-abi N]
 *            [--no-userns] [--no-namespaces] [--listener] -- ARGV...
 *
 * --landlock-errno   the three Landlock calls fail so
 * --landlock-abi N   the version query answers N; attributes are checked as a
 *                    kernel of that version does (unknown bits EINVAL, an
 *                    unknown tail that is not zero E2BIG). Above the newest
 *                    ABI known here only the answer changes
 * --no-userns        no new user namespace (EPERM); clone3 is ENOSYS
 * --no-namespaces    no new namespace of any kind, so that bwrap is of no use
 *                    to root either
 * --listener         only holds the one seccomp listener of the task tree
 *
 * By a seccomp filter, so no_new_privs is set; --landlock-abi takes the
 * listener too. The exit status is the command's, 128+n for a signal, 120
 * when the mask cannot be made. Linux only, native architecture only. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  NR_CREATE_RULESET = 444,
  NR_ADD_RULE = 445,
  NR_RESTRICT_SELF = 446,
  MASK_FAILED = 120,
  NEWEST_ABI = 7, /* of the attribute table below */
  FILTER_MAX = 40
};

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "hostmask: architecture not listed"
#endif

struct mask {
  int landlock_errno, abi;
  unsigned no_new; /* CLONE_NEW* flags that are refused */
  int listener;
};

static const unsigned any_namespace = CLONE_NEWNS | CLONE_NEWUTS |
                                      CLONE_NEWIPC | CLONE_NEWUSER |
                                      CLONE_NEWPID | CLONE_NEWNET |
                                      CLONE_NEWCGROUP;

/* What a kernel of each ABI knows: bytes of the ruleset attribute, and the
 * highest handled_access_fs, _net, scoped bits (as masks). */
static const struct {
  size_t size;
  unsigned long long fs, net, scoped;
} known[NEWEST_ABI + 1] = {
    {0, 0, 0, 0},
    {8, 0x1fff, 0, 0},   /* 1: up to MAKE_SYM */
    {8, 0x3fff, 0, 0},   /* 2: REFER */
    {8, 0x7fff, 0, 0},   /* 3: TRUNCATE */
    {16, 0x7fff, 3, 0},  /* 4: TCP bind, connect */
    {16, 0xffff, 3, 0},  /* 5: IOCTL_DEV */
    {24, 0xffff, 3, 3},  /* 6: scopes */
    {24, 0xffff, 3, 3},  /* 7: restrict_self flags */
};

static void die(const char *what) {
  fprintf(stderr, "hostmask: %s: %s\n", what, strerror(errno));
  exit(MASK_FAILED);
}

/* --- the filter ---------------------------------------------------------- */

struct filter {
  struct sock_filter code[FILTER_MAX];
  unsigned short n;
};

static void emit(struct filter *f, unsigned short op, unsigned k,
                 unsigned char jt, unsigned char jf) {
  f->code[f->n++] = (struct sock_filter){op, jt, jf, k};
}

static void emit_load(struct filter *f, size_t offset) {
  emit(f, BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

/* Call nr gives `action`. The number must be loaded, and stays so. */
static void emit_call(struct filter *f, unsigned nr, unsigned action) {
  emit(f, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1);
  emit(f, BPF_RET | BPF_K, action, 0, 0);
}

/* Call nr with one of `flags` in its first argument gives EPERM. */
static void emit_flags(struct filter *f, unsigned nr, unsigned flags) {
  emit(f, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 4);
  emit_load(f, offsetof(struct seccomp_data, args[0]));
  emit(f, BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1);
  emit(f, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM, 0, 0);
  emit_load(f, offsetof(struct seccomp_data, nr));
}

static void make_filter(const struct mask *m, struct filter *f) {
  unsigned action = m->landlock_errno
                        ? SECCOMP_RET_ERRNO | (unsigned)m->landlock_errno
                        : SECCOMP_RET_USER_NOTIF;
  unsigned nr;
  f->n = 0;
  emit_load(f, offsetof(struct seccomp_data, arch));
  emit(f, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
  emit(f, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  emit_load(f, offsetof(struct seccomp_data, nr));
  if (m->landlock_errno || m->abi)
    for (nr = NR_CREATE_RULESET; nr <= NR_RESTRICT_SELF; nr++)
      emit_call(f, nr, action);
  if (m->no_new) {
    emit_flags(f, __NR_clone, m->no_new);
    emit_flags(f, __NR_unshare, m->no_new);
    emit_call(f, __NR_clone3, SECCOMP_RET_ERRNO | ENOSYS);
  }
  if (m->listener) /* a call that nobody makes */
    emit_call(f, __NR_vhangup, SECCOMP_RET_USER_NOTIF);
  emit(f, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

/* --- the answers of the listener ------------------------------------------ */

static int read_remote(pid_t pid, unsigned long long at, void *buf, size_t n) {
  struct iovec here = {buf, n}, there = {(void *)(uintptr_t)at, n};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)n ? 0 : -1;
}

/* landlock_create_ruleset's attribute as ABI `abi` sees it: 0 or an errno. */
static int check_attr(int abi, pid_t pid, unsigned long long at, size_t size) {
  unsigned char raw[256] = {0};
  unsigned long long word[3] = {0};
  size_t i;
  if (abi > NEWEST_ABI)
    return 0;
  if (size < 8)
    return EINVAL;
  if (size > sizeof raw)
    return E2BIG;
  if (read_remote(pid, at, raw, size) != 0)
    return 0; /* not dumpable: the real kernel decides */
  for (i = known[abi].size; i < size; i++)
    if (raw[i])
      return E2BIG;
  memcpy(word, raw, sizeof word);
  if ((word[0] & ~known[abi].fs) || (word[1] & ~known[abi].net) ||
      (word[2] & ~known[abi].scoped))
    return EINVAL;
  return 0;
}

static void answer(int abi, const struct seccomp_notif *req,
                   struct seccomp_notif_resp *resp) {
  const __u64 *arg = req->data.args;
  resp->id = req->id;
  resp->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  if (req->data.nr == NR_CREATE_RULESET) {
    if (arg[2] == 1 && !arg[0] && !arg[1]) {
      resp->flags = 0;
      resp->val = abi;
      return;
    }
    resp->error = arg[2] ? (abi < NEWEST_ABI ? -EINVAL : 0)
                         : -check_attr(abi, (pid_t)req->pid, arg[0],
                                       (size_t)arg[1]);
  } else if (req->data.nr == NR_ADD_RULE && arg[1] == 2 && abi < 4) {
    resp->error = -EINVAL; /* no network rules yet */
  } else if (req->data.nr == NR_RESTRICT_SELF && arg[1] && abi < 7) {
    resp->error = -EINVAL; /* no flags yet */
  }
  if (resp->error)
    resp->flags = 0;
}

/* Serves the listener until the child ends; returns its wait status. */
static int serve(int abi, int listener, pid_t child) {
  struct seccomp_notif req;
  struct seccomp_notif_resp resp;
  int status = 0;
  for (;;) {
    struct pollfd p = {listener, POLLIN, 0};
    if (waitpid(child, &status, WNOHANG) == child)
      return status;
    if (poll(&p, 1, 2) != 1 || !(p.revents & POLLIN)) {
      if (p.revents & (POLLHUP | POLLERR)) {
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
          continue;
        return status;
      }
      continue;
    }
    memset(&req, 0, sizeof req);
    memset(&resp, 0, sizeof resp);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &req) != 0)
      continue;
    answer(abi, &req, &resp);
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp);
  }
}

/* --- start --------------------------------------------------------------- */

static void send_fd(int sock, int fd) {
  char byte = 'f', space[CMSG_SPACE(sizeof fd)] = {0};
  struct iovec io = {&byte, 1};
  struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1,
                       .msg_control = space, .msg_controllen = sizeof space};
  struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  if (sendmsg(sock, &msg, 0) != 1)
    die("sendmsg");
}

static int receive_fd(int sock) {
  char byte, space[CMSG_SPACE(sizeof(int))];
  struct iovec io = {&byte, 1};
  struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1,
                       .msg_control = space, .msg_controllen = sizeof space};
  struct cmsghdr *c;
  int fd = -1;
  if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) == 1 && (c = CMSG_FIRSTHDR(&msg)))
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
  return fd;
}

static int install(const struct mask *m, int with_listener) {
  struct filter f;
  struct sock_fprog prog;
  long fd;
  make_filter(m, &f);
  prog.len = f.n;
  prog.filter = f.code;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    die("no_new_privs");
  fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
               with_listener ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0, &prog);
  if (fd < 0)
    die("seccomp");
  return (int)fd;
}

static void start(char **argv) {
  execvp(argv[0], argv);
  fprintf(stderr, "hostmask: %s: %s\n", argv[0], strerror(errno));
  _exit(127);
}

static int supervised(const struct mask *m, char **argv) {
  int pair[2], listener, status;
  pid_t child;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    die("socketpair");
  child = fork();
  if (child < 0)
    die("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    listener = install(m, 1);
    send_fd(pair[1], listener);
    close(listener);
    start(argv);
  }
  close(pair[1]);
  signal(SIGINT, SIG_IGN); /* the command's matter */
  listener = receive_fd(pair[0]);
  if (listener < 0) {
    kill(child, SIGKILL);
    die("no listener");
  }
  status = serve(m->abi, listener, child);
  if (WIFSIGNALED(status))
    return 128 + WTERMSIG(status);
  return WEXITSTATUS(status);
}

static int errno_by_name(const char *name) {
  if (strcmp(name, "ENOSYS") == 0)
    return ENOSYS;
  if (strcmp(name, "EOPNOTSUPP") == 0)
    return EOPNOTSUPP;
  if (strcmp(name, "EPERM") == 0)
    return EPERM;
  fprintf(stderr, "hostmask: unknown errno '%s'\n", name);
  exit(MASK_FAILED);
}

int main(int argc, char **argv) {
  struct mask m = {0};
  int i = 1;
  for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
    if (strcmp(argv[i], "--landlock-errno") == 0 && i + 1 < argc)
      m.landlock_errno = errno_by_name(argv[++i]);
    else if (strcmp(argv[i], "--landlock-abi") == 0 && i + 1 < argc)
      m.abi = atoi(argv[++i]);
    else if (strcmp(argv[i], "--no-userns") == 0)
      m.no_new |= CLONE_NEWUSER;
    else if (strcmp(argv[i], "--no-namespaces") == 0)
      m.no_new |= any_namespace;
    else if (strcmp(argv[i], "--listener") == 0)
      m.listener = 1;
    else
      break;
  }
  if (i + 1 >= argc || strcmp(argv[i], "--") != 0) {
    fputs("usage: hostmask [--landlock-errno E] [--landlock-abi N] "
          "[--no-userns] [--no-namespaces] [--listener] -- ARGV...\n", stderr);
    return MASK_FAILED;
  }
  if (m.abi || m.listener)
    return supervised(&m, argv + i + 1);
  install(&m, 0);
  start(argv + i + 1);
}
