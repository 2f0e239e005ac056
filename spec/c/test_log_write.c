/* test_log_write.c: the writer. The calls that change a file are defined here
 * and so come before libc's, to fail on demand and to be recorded. */
#include "loghelp.h"

#include <signal.h>
#include <sys/file.h>
#include <time.h>

/* --- the calls ----------------------------------------------------------- */

static int fail_at = -1, fail_errno, calls; /* fail_at: the call that fails */
static size_t short_write;                  /* bytes written before that */
static char trace[4096];

static int trip(const char *name) {
  size_t n = strlen(trace);
  if (n + 16 < sizeof trace)
    snprintf(trace + n, sizeof trace - n, "%s ", name);
  return calls++ == fail_at;
}

static long failed(void) {
  errno = fail_errno;
  return -1;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
  if (trip("write")) {
    if (short_write && n > 1)
      syscall(SYS_pwrite64, fd, p, n < short_write ? n - 1 : short_write, at);
    return failed();
  }
  return syscall(SYS_pwrite64, fd, p, n, at);
}

int fsync(int fd) {
  return (int)(trip("fsync") ? failed() : syscall(SYS_fsync, fd));
}

int ftruncate(int fd, off_t n) {
  return (int)(trip("truncate") ? failed() : syscall(SYS_ftruncate, fd, n));
}

int link(const char *a, const char *b) {
  return (int)(trip("link") ? failed() : syscall(SYS_link, a, b));
}

int rename(const char *a, const char *b) {
  return (int)(trip("rename") ? failed() : syscall(SYS_rename, a, b));
}

int unlink(const char *a) {
  return (int)(trip("unlink") ? failed() : syscall(SYS_unlink, a));
}

static void calm(void) {
  fail_at = -1;
  calls = 0;
  short_write = 0;
  trace[0] = '\0';
}

/* --- plain --------------------------------------------------------------- */

static void lazily(void **state) {
  struct dsh_error err;
  char deep[160];
  struct dsh_writer *w;
  struct stat st;
  (void)state;
  snprintf(deep, sizeof deep, "%s/a/b/session.jsonl.zstd", dir);
  w = dsh_writer_create(deep, HEADER, &err);
  assert_non_null(w);
  snprintf(path, sizeof path, "%s/a", dir);
  assert_int_not_equal(stat(path, &st), 0); /* nothing yet */
  assert_int_equal(append(w, "x", "{}", &err), 0);
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0700);
  assert_int_equal(stat(deep, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
  assert_int_equal(st.st_nlink, 1);
  dsh_writer_close(w);
  assert_int_equal(events_in(deep), 1);
}

static void never_over(void **state) {
  struct dsh_error err;
  struct dsh_writer *w, *second;
  (void)state;
  w = dsh_writer_create(path, HEADER, &err);
  second = dsh_writer_create(path, HEADER, &err);
  assert_int_equal(append(w, "x", "{}", &err), 0);
  assert_int_equal(append(second, "x", "{}", &err), -1);
  assert_int_equal(err.code, DSH_E_SESSION_LOCKED);
  dsh_writer_close(w);
  assert_int_equal(append(second, "x", "{}", &err), -1);
  assert_int_equal(err.errnum, EEXIST);
  dsh_writer_close(second);
  assert_int_equal(events_in(path), 1);
}

static void misuse(void **state) {
  static const struct {
    const char *type, *data;
    enum dsh_code code;
  } bad[] = {{"x y", "{}", DSH_E_MISUSE},
             {"", "{}", DSH_E_MISUSE},
             {"x", "{", DSH_E_MISUSE},
             {"x", "{}\n{}", DSH_E_MISUSE},
             {"x", "{},\"seq\":0}\n{\"a\":1", DSH_E_MISUSE},
             {"x", "\"\xff\"", DSH_E_MISUSE},
             {"x", "{},\"seq\":0,\"y\":{}", DSH_E_MISUSE},
             {"x", "{},\"data\":{\"a\":1}", DSH_E_MISUSE},
             {"x", " {}", DSH_E_MISUSE},
             {"sandbox/mode", "{\"mode\":\"root\"}", DSH_E_INVARIANT},
             {"sandbox/mode", "{}", DSH_E_INVARIANT},
             {"approval/policy", "{\"policy\":\"always\"}", DSH_E_INVARIANT},
             {"sandbox/grant", "{\"id\":\"1\"}", DSH_E_INVARIANT}};
  struct dsh_error err;
  struct dsh_writer *w;
  size_t i;
  (void)state;
  make_log(1);
  {
    struct dsh_log_info info;
    w = reopen(&info, &err);
  }
  for (i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(append(w, bad[i].type, bad[i].data, &err), -1);
    assert_int_equal(err.code, bad[i].code);
  }
  dsh_writer_close(w);
  assert_int_equal(events_in(path), 1);
  assert_null(dsh_writer_create(path, "{\"type\":\"x\"}", &err));
  assert_null(dsh_writer_create(path, HEADER "\n", &err));
}

static void order(void **state) {
  struct dsh_error err;
  struct dsh_writer *w;
  (void)state;
  calm();
  w = dsh_writer_create(path, HEADER, &err);
  assert_int_equal(append(w, "x", "{}", &err), 0);
  /* first the lock's number; then file, file's sync, name, directory's sync */
  assert_string_equal(trace,
                      "truncate write unlink write fsync link unlink fsync ");
  calm();
  assert_int_equal(append(w, "x", "{}", &err), 0);
  assert_string_equal(trace, "write fsync ");
  dsh_writer_close(w);
  calm();
}

static void two_writers(void **state) {
  struct dsh_log_info info;
  struct dsh_error err;
  struct dsh_writer *w, *second;
  int status;
  pid_t pid;
  (void)state;
  make_log(1);
  w = reopen(&info, &err);
  second = reopen(&info, &err);
  assert_null(second);
  assert_int_equal(err.code, DSH_E_SESSION_LOCKED);
  assert_non_null(strstr(err.message, "pid "));
  pid = fork();
  if (pid == 0)
    _exit(reopen(&info, &err) ? 1 : err.code == DSH_E_SESSION_LOCKED ? 0 : 2);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  dsh_writer_close(w);
  pid = fork(); /* an owner that dies takes its lock along */
  if (pid == 0)
    _exit(reopen(&info, &err) ? 0 : 1);
  waitpid(pid, &status, 0);
  assert_int_equal(status, 0);
  w = reopen(&info, &err);
  assert_non_null(w);
  dsh_writer_close(w);
}

static void strangers(void **state) {
  struct dsh_log_info info;
  struct dsh_error err;
  struct dsh_writer *w;
  int fd;
  (void)state;
  make_log(1);
  w = reopen(&info, &err);
  fd = open(path, O_WRONLY | O_APPEND);
  assert_int_equal(write(fd, "x", 1), 1);
  assert_int_equal(append(w, "x", "{}", &err), -1);
  assert_int_equal(err.code, DSH_E_SESSION_LOCKED);
  assert_int_equal(ftruncate(fd, (off_t)info.size), 0);
  close(fd);
  assert_int_equal(append(w, "x", "{}", &err), 0);
  unlink(path);
  assert_int_equal(append(w, "x", "{}", &err), -1);
  dsh_writer_close(w);
}

static void in_turn(void **state) {
  enum { PROCESSES = 8, EACH = 25 };
  const struct timespec nap = {0, 200000};
  int i, k, status;
  (void)state;
  make_log(1);
  for (i = 0; i < PROCESSES; i++)
    if (fork() == 0) {
      for (k = 0; k < EACH; k++) {
        struct dsh_log_info info;
        struct dsh_error err;
        struct dsh_writer *w;
        while (!(w = reopen(&info, &err)) && err.code == DSH_E_SESSION_LOCKED)
          nanosleep(&nap, NULL);
        if (!w || append(w, "x", "{\"text\":\"some words to write\"}", &err))
          _exit(1);
        dsh_writer_close(w);
      }
      _exit(0);
    }
  for (i = 0; i < PROCESSES; i++) {
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  assert_int_equal(events_in(path), 1 + PROCESSES * EACH);
}

/* --- faults -------------------------------------------------------------- */

/* Each changing call fails in turn, with nothing or something written first:
 * what was acknowledged stays, the log can be read, and goes on. */
static void faults(void **state) {
  static const int errnums[] = {ENOSPC, EIO};
  int kind, at, tripped = 1;
  (void)state;
  for (kind = 0; kind < 12; kind++)
    for (at = 0, tripped = 1; tripped; at++) {
      struct dsh_log_info info;
      struct dsh_error err;
      struct dsh_writer *w;
      uint64_t acked = 0;
      int i, torn = kind >= 4 && kind < 8;
      calm();
      syscall(SYS_unlink, path);
      if (kind >= 4) {
        make_log(3);
        acked = 3;
      }
      if (torn) { /* with a repair to do first */
        int fd = open(path, O_WRONLY | O_APPEND);
        assert_int_equal(write(fd, "\x28\xb5\x2f\xfd\x04", 5), 5);
        close(fd);
      }
      calm();
      fail_errno = errnums[kind % 2];
      short_write = kind % 4 < 2 ? 0 : 7;
      fail_at = at;
      w = kind < 4 ? dsh_writer_create(path, HEADER, &err)
                   : reopen(&info, &err);
      for (i = 0; w && i < 3; i++)
        acked += append(w, "x", "{\"a\":\"bcdefghij\"}", &err) == 0;
      tripped = calls > at;
      dsh_writer_close(w);
      calm();
      if (!acked)
        continue; /* nothing promised, and it may not exist */
      w = reopen(&info, &err);
      if (!w)
        fail_msg("kind %d call %d: %s", kind, at, err.message);
      assert_true(info.events >= acked);
      assert_int_equal(append(w, "y", "{}", &err), 0);
      dsh_writer_close(w);
      assert_true(events_in(path) >= acked + 1);
    }
}

/* A file system without hard links: a rename that replaces nothing. */
static void no_links(void **state) {
  struct dsh_error err;
  struct dsh_writer *w;
  (void)state;
  calm();
  fail_at = 5; /* as `order` has it: the link */
  fail_errno = EPERM;
  w = dsh_writer_create(path, HEADER, &err);
  assert_int_equal(append(w, "x", "{}", &err), 0);
  assert_string_equal(trace, "truncate write unlink write fsync link fsync ");
  dsh_writer_close(w);
  calm();
  assert_int_equal(events_in(path), 1);
}

/* Killed between link and unlink, a writer leaves the log's second name. */
static void second_name(void **state) {
  struct dsh_log_info info;
  struct dsh_error err;
  struct dsh_writer *w;
  struct stat st;
  char tmp[128];
  (void)state;
  make_log(1);
  snprintf(tmp, sizeof tmp, "%s.tmp", path);
  assert_int_equal(link(path, tmp), 0);
  w = reopen(&info, &err);
  assert_int_equal(append(w, "x", "{}", &err), 0);
  dsh_writer_close(w);
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_nlink, 1);
  assert_int_equal(events_in(path), 2);
}

static void failed_is_cut(void **state) {
  struct dsh_log_info info;
  struct dsh_error err;
  struct dsh_writer *w;
  struct stat st;
  (void)state;
  make_log(2);
  w = reopen(&info, &err);
  calm();
  fail_at = 0;
  fail_errno = ENOSPC;
  short_write = 9;
  assert_int_equal(append(w, "x", "{}", &err), -1);
  assert_int_equal(err.errnum, ENOSPC);
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal((uint64_t)st.st_size, info.size);
  assert_string_equal(trace, "write truncate fsync ");
  calm();
  assert_int_equal(append(w, "x", "{}", &err), 0);
  dsh_writer_close(w);
  assert_int_equal(events_in(path), 3);
}

/* --- kills --------------------------------------------------------------- */

static void writer_child(int ack) {
  struct dsh_log_info info;
  struct dsh_error err;
  struct dsh_writer *w = access(path, F_OK) == 0
                             ? reopen(&info, &err)
                             : dsh_writer_create(path, HEADER, &err);
  if (!w)
    _exit(3);
  for (;;) {
    if (append(w, "x", "{\"text\":\"words and more words\"}", &err) != 0)
      _exit(4);
    if (write(ack, "a", 1) != 1)
      _exit(5);
  }
}

/* DSH_KILLS rounds (200 in the ordinary run): a writer is killed at some
 * moment; every append that it had acknowledged must be there. */
static void kills(void **state) {
  const char *env = getenv("DSH_KILLS");
  int rounds = env ? atoi(env) : 200, i;
  uint64_t acked = 0;
  unsigned seed = 1;
  (void)state;
  for (i = 0; i < rounds; i++) {
    struct timespec nap = {0, 0};
    int fds[2], status;
    char buf[4096];
    ssize_t n;
    pid_t pid;
    seed = seed * 1103515245 + 12345;
    nap.tv_nsec = (long)(seed >> 8) % 1500000;
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0)
      writer_child(fds[1]);
    close(fds[1]);
    nanosleep(&nap, NULL);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status));
    while ((n = read(fds[0], buf, sizeof buf)) > 0)
      acked += (uint64_t)n;
    close(fds[0]);
    if (access(path, F_OK) != 0) {
      assert_int_equal(acked, 0);
      continue;
    }
    {
      struct dsh_log_info info;
      struct dsh_error err = {0};
      struct dsh_fold f;
      if (dsh_log_verify(path, 1, &f, &info, &err) != 0)
        fail_msg("round %d: %s", i, err.message);
      dsh_fold_free(&f);
      assert_true(info.events >= acked);
      acked = info.events;
      if (acked > 3000) { /* a new log, so that resuming stays quick */
        unlink(path);
        acked = 0;
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      T(lazily),      T(never_over), T(misuse),        T(order),
      T(two_writers), T(strangers),  T(in_turn),       T(no_links),
      T(second_name), T(faults),     T(failed_is_cut), T(kills),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
