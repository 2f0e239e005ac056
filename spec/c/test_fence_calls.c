/* Every system call of a write fails once, and every one is the last once:
 * under a tracer, so that none is left out. Whatever happens, the old content
 * or the new is there, whole; nothing lies beside it; what was acknowledged
 * is done; and what a crash leaves is gone after the next write. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>

#include "fence.h"

enum { CALLS_MAX = 400, FAILED = 1, UNTYPED = 2, NOT_TRACED = 77 };

static char base[64], path[96];
static struct dsh_policy policy;

enum action { REPLACE, CREATE, EDIT, WALK };
static const char *const action_names[] = {"replace", "create", "edit",
                                           "replace, by the walk"};

static int act(enum action action, const char *text) {
  struct dsh_fence f = {.policy = &policy, .no_openat2 = action == WALK};
  struct dsh_error err;
  size_t count;
  int r;
  memset(&err, 0, sizeof err);
  if (action == EDIT)
    r = dsh_fs_edit(&f, path, "old", 3, text, strlen(text), false, NULL, 0,
                    &count, NULL, &err);
  else
    r = dsh_fs_write(&f, path, text, strlen(text),
                     action == CREATE ? DSH_FS_CREATE : DSH_FS_ANY, NULL, NULL,
                     &err);
  return r == 0 ? 0 : err.code != 0 && err.message[0] ? FAILED : UNTYPED;
}

static void content(char *out, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
  out[n > 0 ? n : 0] = '\0';
  if (fd >= 0)
    close(fd);
}

static int names(void) {
  DIR *d = opendir(base);
  struct dirent *e;
  int n = 0;
  assert_non_null(d);
  while ((e = readdir(d)))
    n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
  closedir(d);
  return n;
}

static bool has_attribute; /* this filesystem keeps them */

static void prepare(enum action action) {
  int fd;
  unlink(path);
  if (action == CREATE)
    return;
  fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  assert_true(fd >= 0 && write(fd, "old", 3) == 3 && fchmod(fd, 0640) == 0);
  has_attribute = fsetxattr(fd, "user.note", "kept", 4, 0) == 0;
  close(fd);
}

static void check_meta(void) {
  char value[8];
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_mode & 07777, 0640);
  if (has_attribute)
    assert_int_equal(getxattr(path, "user.note", value, sizeof value), 4);
}

/* A sanitizer's own calls cannot fail without ending the process. */
#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__
/* Runs the action in a child and does to its call number `at` what `fail`
 * says: its errno, or 0 to kill. *done: there was no such call. */
static int traced(enum action action, int at, int fail, bool *done,
                  long long *call) {
  struct user_regs_struct regs;
  int status = 0, n = 0;
  long deliver = 0; /* a signal of the child's own, a fault say */
  bool entry = true, hit = false;
  pid_t pid = fork();
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
      _exit(NOT_TRACED);
    raise(SIGSTOP);
    _exit(act(action, "new"));
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  *done = false;
  *call = -1;
  if (!WIFSTOPPED(status))
    return NOT_TRACED;
  ptrace(PTRACE_SETOPTIONS, pid, NULL,
         PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  for (;;) {
    if (ptrace(PTRACE_SYSCALL, pid, NULL, deliver) != 0 && errno != ESRCH)
      fail_msg("ptrace: %s", strerror(errno));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSTOPPED(status))
      break;
    deliver = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
    if (deliver)
      continue;
    if (entry && n++ == at) {
      ptrace(PTRACE_GETREGS, pid, NULL, &regs);
      *call = (long long)regs.orig_rax;
      *done = regs.orig_rax == SYS_exit_group;
      if (!*done && fail == 0)
        kill(pid, SIGKILL);
      /* brk has no errno: it answers with the end it has */
      if (!*done && regs.orig_rax != SYS_brk) {
        hit = true;
        regs.orig_rax = (unsigned long long)-1;
        ptrace(PTRACE_SETREGS, pid, NULL, &regs);
      }
    } else if (!entry && hit) {
      hit = false;
      ptrace(PTRACE_GETREGS, pid, NULL, &regs);
      regs.rax = (unsigned long long)-fail;
      ptrace(PTRACE_SETREGS, pid, NULL, &regs);
    }
    entry = !entry;
  }
  /* One call fewer than last time: a cached look was still good. */
  if (*call == -1)
    *done = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
#else
static int traced(enum action action, int at, int fail, bool *done,
                  long long *call) {
  (void)action, (void)at, (void)fail, (void)done, (void)call;
  return NOT_TRACED;
}
#endif

static int setup(void **state) {
  (void)state;
  snprintf(base, sizeof base, "%s/dsh-fence-XXXXXX",
           access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp");
  assert_non_null(mkdtemp(base));
  snprintf(path, sizeof path, "%s/a", base);
  policy = (struct dsh_policy){.mode = DSH_WORKSPACE_WRITE,
                               .workspace_root = base,
                               .temp = DSH_TEMP_PRIVATE,
                               .temp_dir = base};
  return 0;
}

static int teardown(void **state) {
  (void)state;
  unlink(path);
  return rmdir(base); /* fails when something lies about */
}

static bool is_old_or_new(enum action action, const char *now) {
  return strcmp(now, "new") == 0 ||
         strcmp(now, action == CREATE ? "" : "old") == 0;
}

static void fail_each(enum action action, int errnum) {
  int i, r, failed = 0;
  bool done = false;
  char now[64];
  for (i = 0; i < CALLS_MAX; i++) {
    long long call;
    prepare(action);
    r = traced(action, i, errnum, &done, &call);
    if (r == NOT_TRACED) {
      skip();
      return;
    }
    content(now, sizeof now);
    if (r == UNTYPED || r < 0 || !is_old_or_new(action, now) ||
        (r == 0 && strcmp(now, "new") != 0) ||
        names() != (now[0] ? 1 : 0))
      fail_msg("%s: call %d (number %lld) failing with %s: ended %d, \"%s\", "
               "%d names",
               action_names[action], i, call, strerror(errnum), r, now,
               names());
    if (action != CREATE)
      check_meta();
    failed += r == FAILED;
    if (done)
      break;
  }
  assert_true(done && failed > 5);
  print_message("  %s, %s: %d calls, %d of them end the write\n",
                action_names[action], strerror(errnum), i, failed);
}

static void kill_at_each(enum action action) {
  bool done = false;
  char now[64];
  int i, r;
  for (i = 0; i < CALLS_MAX && !done; i++) {
    long long call;
    prepare(action);
    r = traced(action, i, 0, &done, &call);
    if (r == NOT_TRACED) {
      skip();
      return;
    }
    content(now, sizeof now);
    if (!is_old_or_new(action, now))
      fail_msg("%s: killed at call %d (number %lld): \"%s\"",
               action_names[action], i, call, now);
    if (action != CREATE)
      check_meta();
    assert_int_equal(act(REPLACE, "next"), 0);
    content(now, sizeof now);
    assert_string_equal(now, "next");
    assert_int_equal(names(), 1);
  }
  assert_true(done);
  print_message("  %s: killed at %d calls\n", action_names[action], i - 1);
}

static void every_call_fails_once(void **state) {
  int action;
  (void)state;
  for (action = REPLACE; action <= WALK; action++) {
    fail_each((enum action)action, EIO);
    fail_each((enum action)action, ENOSPC);
  }
}

static void every_call_is_the_last_once(void **state) {
  int action;
  (void)state;
  for (action = REPLACE; action <= WALK; action++)
    kill_at_each((enum action)action);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(every_call_fails_once, setup, teardown),
      cmocka_unit_test_setup_teardown(every_call_is_the_last_once, setup,
                                      teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
