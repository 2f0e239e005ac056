/* dsh_probe_open2.c: writing by roundabout ways: mappings, handles, copies
 * in the kernel, io_uring, foreign system call tables. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <linux/io_uring.h>

#include "dsh_probe.h"

static int open_f(struct probe_ctx *c, const char *name, int flags) {
  return openat(c->dfd, probe_at(c, name), flags | O_CLOEXEC, 0644);
}

static int mmap_shared(struct probe_ctx *c) {
  int fd = open_f(c, "f", O_RDWR), rc = 0;
  char *p;
  if (fd < 0)
    return errno;
  p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED)
    rc = errno;
  else {
    p[0] = 'K';
    (void)msync(p, 4096, MS_SYNC);
    (void)munmap(p, 4096);
  }
  close(fd);
  return rc;
}

static int write_vector(struct probe_ctx *c) {
  struct iovec v = { (void *)(uintptr_t)"changed", 7 };
  int fd = open_f(c, "f", O_WRONLY), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(pwritev(fd, &v, 1, 2));
  close(fd);
  return rc;
}

typedef int copier(int from, int to);

static int copy_range(int from, int to) {
  return probe_rc(copy_file_range(from, NULL, to, NULL, 5, 0));
}

static int copy_send(int from, int to) {
  return probe_rc(sendfile(to, from, NULL, 5));
}

static int copy_splice(int from, int to) {
  int p[2], rc;
  if (pipe2(p, O_CLOEXEC))
    return errno;
  rc = probe_rc(splice(from, NULL, p[1], NULL, 5, 0));
  if (!rc)
    rc = probe_rc(splice(p[0], NULL, to, NULL, 5, 0));
  close(p[0]);
  close(p[1]);
  return rc;
}

static int copy_clone(int from, int to) {
  return probe_rc(ioctl(to, FICLONE, from));
}

static int copy_with(struct probe_ctx *c, copier *how) {
  int from = open_f(c, "g", O_RDONLY), to, rc;
  if (from < 0)
    return errno;
  to = open_f(c, "f", O_WRONLY);
  rc = to < 0 ? errno : how(from, to);
  close(from);
  if (to >= 0)
    close(to);
  return rc;
}

static int copy_file_range_to(struct probe_ctx *c) {
  return copy_with(c, copy_range);
}

static int sendfile_to(struct probe_ctx *c) {
  return copy_with(c, copy_send);
}

static int splice_to(struct probe_ctx *c) {
  return copy_with(c, copy_splice);
}

static int clone_to(struct probe_ctx *c) {
  return copy_with(c, copy_clone);
}

static int aio_write(struct probe_ctx *c) {
  aio_context_t ctx = 0;
  struct iocb cb = { 0 }, *list[1] = { &cb };
  struct io_event ev;
  static const char text[] = "changed";
  int fd = open_f(c, "f", O_WRONLY), rc;
  if (fd < 0)
    return errno;
  cb.aio_lio_opcode = IOCB_CMD_PWRITE;
  cb.aio_fildes = (uint32_t)fd;
  cb.aio_buf = (uint64_t)(uintptr_t)text;
  cb.aio_nbytes = 7;
  rc = probe_rc(syscall(SYS_io_setup, 1, &ctx));
  if (!rc)
    rc = probe_rc(syscall(SYS_io_submit, ctx, 1, list));
  if (!rc)
    rc = probe_rc(syscall(SYS_io_getevents, ctx, 1, 1, &ev, NULL));
  (void)syscall(SYS_io_destroy, ctx);
  close(fd);
  return rc;
}

/* --- file handles: a path to the file that asks no directory ------------- */

static int handle_write(struct probe_ctx *c) {
  struct { struct file_handle h; unsigned char room[128]; } fh;
  int mount = 0, dir, rc;
  memset(&fh, 0, sizeof fh);
  fh.h.handle_bytes = 128;
  if (name_to_handle_at(c->dfd, probe_at(c, "f"), &fh.h, &mount, 0))
    return errno;
  dir = openat(c->dfd, probe_at(c, "."), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0)
    return errno;
  rc = probe_write_fd(open_by_handle_at(dir, &fh.h, O_WRONLY | O_CLOEXEC));
  close(dir);
  return rc;
}

/* --- io_uring: the kernel opens and writes on our behalf ----------------- */

struct ring {
  int fd;
  struct io_uring_params p;
  char *sq, *cq;
  struct io_uring_sqe *sqe;
};

static int ring_open(struct ring *r) {
  memset(r, 0, sizeof *r);
  r->fd = (int)syscall(SYS_io_uring_setup, 4, &r->p);
  if (r->fd < 0)
    return errno;
  r->sq = mmap(NULL, r->p.sq_off.array + r->p.sq_entries * 4u,
               PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
  r->cq = mmap(NULL, r->p.cq_off.cqes + r->p.cq_entries * 16u,
               PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_CQ_RING);
  r->sqe = mmap(NULL, r->p.sq_entries * sizeof *r->sqe,
                PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQES);
  return r->sq == MAP_FAILED || r->cq == MAP_FAILED ||
         (void *)r->sqe == MAP_FAILED ? errno : 0;
}

/* Submits sqe[0] and gives its result: >= 0 or -errno. */
static int ring_do(struct ring *r) {
  uint32_t tail, head;
  memcpy(&tail, r->sq + r->p.sq_off.tail, 4);
  memset(r->sq + r->p.sq_off.array + (tail & (r->p.sq_entries - 1)) * 4u, 0,
         4);
  tail++;
  __atomic_store_n((uint32_t *)(void *)(r->sq + r->p.sq_off.tail), tail,
                   __ATOMIC_RELEASE);
  if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL,
              0) < 0)
    return -errno;
  head = __atomic_load_n((uint32_t *)(void *)(r->cq + r->p.cq_off.head),
                         __ATOMIC_ACQUIRE);
  {
    struct io_uring_cqe e;
    memcpy(&e, r->cq + r->p.cq_off.cqes +
           (head & (r->p.cq_entries - 1)) * sizeof e, sizeof e);
    __atomic_store_n((uint32_t *)(void *)(r->cq + r->p.cq_off.head), head + 1,
                     __ATOMIC_RELEASE);
    return e.res;
  }
}

static int uring_write(struct probe_ctx *c) {
  struct ring r;
  int rc = ring_open(&r), fd;
  if (rc)
    return rc;
  memset(r.sqe, 0, sizeof *r.sqe);
  r.sqe->opcode = IORING_OP_OPENAT;
  r.sqe->fd = c->dfd;
  r.sqe->addr = (uint64_t)(uintptr_t)probe_at(c, "f");
  r.sqe->open_flags = O_WRONLY | O_CLOEXEC;
  fd = ring_do(&r);
  if (fd < 0)
    return -fd;
  memset(r.sqe, 0, sizeof *r.sqe);
  r.sqe->opcode = IORING_OP_WRITE;
  r.sqe->fd = fd;
  r.sqe->addr = (uint64_t)(uintptr_t)"changed";
  r.sqe->len = 7;
  rc = ring_do(&r);
  close(r.fd);
  return rc < 0 ? -rc : 0;
}

static int uring_unlink(struct probe_ctx *c) {
  struct ring r;
  int rc = ring_open(&r);
  if (rc)
    return rc;
  memset(r.sqe, 0, sizeof *r.sqe);
  r.sqe->opcode = IORING_OP_UNLINKAT;
  r.sqe->fd = c->dfd;
  r.sqe->addr = (uint64_t)(uintptr_t)probe_at(c, "f");
  rc = ring_do(&r);
  close(r.fd);
  return rc < 0 ? -rc : 0;
}

static int uring_setxattr(struct probe_ctx *c) {
  struct ring r;
  int rc = ring_open(&r);
  if (rc)
    return rc;
  memset(r.sqe, 0, sizeof *r.sqe);
  r.sqe->opcode = IORING_OP_SETXATTR;
  r.sqe->addr = (uint64_t)(uintptr_t)"user.n";
  r.sqe->addr2 = (uint64_t)(uintptr_t)"w";
  r.sqe->addr3 = (uint64_t)(uintptr_t)probe_plain(c, "f");
  r.sqe->len = 1;
  rc = ring_do(&r);
  close(r.fd);
  return rc < 0 ? -rc : 0;
}

/* --- foreign tables ------------------------------------------------------ */

#ifdef __x86_64__
/* The 32-bit table by int 0x80: open is 5, write 4, chmod 15. Pointers must
 * lie below 4 GiB. */
static long int80(long n, long a, long b, long d) {
  long r;
  __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(d)
                   : "memory", "r8", "r9", "r10", "r11");
  return r;
}

static char *low_path(struct probe_ctx *c, const char *name) {
  char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  if (p == MAP_FAILED)
    return NULL;
  snprintf(p, 4096, "%s", probe_plain(c, name));
  return p;
}

static int i386_write(struct probe_ctx *c) {
  char *path = low_path(c, "f");
  long fd;
  if (!path)
    return PROBE_NO_CALL;
  fd = int80(5, (long)(uintptr_t)path, O_WRONLY, 0);
  if (fd < 0)
    return (int)-fd;
  return probe_write_fd((int)fd);
}

static int i386_chmod(struct probe_ctx *c) {
  char *path = low_path(c, "f");
  long r;
  if (!path)
    return PROBE_NO_CALL;
  r = int80(15, (long)(uintptr_t)path, 0600, 0);
  return r < 0 ? (int)-r : 0;
}

enum { X32 = 0x40000000 };

static int x32_write(struct probe_ctx *c) {
  return probe_write_fd((int)syscall(X32 | SYS_openat, c->dfd,
                                     probe_at(c, "f"), O_WRONLY, 0));
}

static int x32_chmod(struct probe_ctx *c) {
  return probe_rc(syscall(X32 | SYS_chmod, probe_plain(c, "f"), 0600));
}
#else
static int no_call(struct probe_ctx *c) {
  (void)c;
  return PROBE_NO_CALL;
}
#define i386_write no_call
#define i386_chmod no_call
#define x32_write no_call
#define x32_chmod no_call
#endif

/* The high half of a register must not hide a flag: the kernel reads open's
 * flags as 32 bits. */
static int open_high_bits(struct probe_ctx *c) {
  return probe_write_fd((int)syscall(SYS_openat, (long)c->dfd,
                                     probe_at(c, "f"),
                                     0x100000000L | O_WRONLY, 0L));
}

static int chmod_high_bits(struct probe_ctx *c) {
  return probe_rc(syscall(SYS_fchmodat, (long)c->dfd, probe_at(c, "f"),
                          0x500000000L | 0600L));
}

/* --- a descriptor of a sibling ------------------------------------------- */

/* A sibling holds the file open; its magic link is another way to it. */
static int sibling_fd(struct probe_ctx *c) {
  char path[64], byte = 0;
  int p[2], rc, status;
  pid_t pid;
  if (pipe2(p, O_CLOEXEC))
    return errno;
  pid = fork();
  if (pid < 0)
    return errno;
  if (!pid) {
    int fd = open_f(c, "f", O_RDONLY);
    close(p[1]);
    if (fd >= 0 && dup2(fd, 40) == 40)
      (void)!read(p[0], &byte, 1);
    _exit(0);
  }
  close(p[0]);
  snprintf(path, sizeof path, "/proc/%d/fd/40", (int)pid);
  rc = ENOENT;
  for (int i = 0; i < 100 && access(path, F_OK); i++)
    usleep(1000);
  rc = probe_write_fd(open(path, O_WRONLY | O_CLOEXEC));
  close(p[1]);
  (void)waitpid(pid, &status, 0);
  return rc;
}

static const struct probe_op op[] = {
  { "mmap-shared-write", 'F', "write", OP_PATHS, mmap_shared, NULL },
  { "pwritev", 'F', "write", OP_PATHS, write_vector, NULL },
  { "copy-file-range", 'F', "write", OP_PATHS, copy_file_range_to, NULL },
  { "sendfile", 'F', "write", OP_PATHS, sendfile_to, NULL },
  { "splice", 'F', "write", OP_PATHS, splice_to, NULL },
  { "clone-range", 'F', "write", OP_PATHS, clone_to, NULL },
  { "aio-write", 'F', "write", OP_PATHS | OP_EITHER, aio_write, NULL },
  { "open-by-handle", 'F', "descriptor", OP_PATHS | OP_NEVER, handle_write,
    NULL },
  { "io-uring-write", 'F', "system-calls", OP_PATHS | OP_NEVER, uring_write,
    NULL },
  { "io-uring-unlink", 'F', "system-calls", OP_PATHS | OP_NEVER, uring_unlink,
    NULL },
  { "io-uring-setxattr", 'F', "system-calls", OP_PATHS | OP_NEVER,
    uring_setxattr, NULL },
  { "i386-open-write", 'F', "system-calls", OP_PATHS | OP_NEVER, i386_write,
    NULL },
  { "i386-chmod", 'F', "system-calls", OP_PATHS | OP_NEVER, i386_chmod,
    NULL },
  { "x32-open-write", 'F', "system-calls", OP_PATHS | OP_NEVER, x32_write,
    NULL },
  { "x32-chmod", 'F', "system-calls", OP_PATHS | OP_NEVER, x32_chmod, NULL },
  { "open-high-bits", 'F', "write", OP_PATHS, open_high_bits, NULL },
  { "chmod-high-bits", 'F', "metadata", OP_PATHS, chmod_high_bits, NULL },
  { "sibling-fd-reopen", 'F', "descriptor", OP_PATHS, sibling_fd, NULL },
};

const struct probe_family probe_open2 = { op, PROBE_LEN(op) };
