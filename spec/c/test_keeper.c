/* The launcher and keeper, spoken to over the status socket: exact ends,
 * stages of a failed start, nothing left running. Each test runs on Landlock
 * alone and, where bwrap can start, under bwrap. The launcher is build/
 * landlock-run, or $DSH_LAUNCHER. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "keeper.h"

enum { MAX_WORDS = 64, LIMIT_MS = 20000 };

static const char *launcher;
static bool bwrap_works;

/* What the keeper said of one run. */
struct story {
  bool hello, ready, started, exited, gone, failed;
  int stage, errnum, status, denied;
  char text[256];
  int wait_status; /* of the launcher itself */
};

struct run {
  pid_t pid;
  int fd;
};

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void add(const char **argv, int *n, const char *const *words) {
  for (; *words; words++)
    argv[(*n)++] = *words;
}

/* The launcher's line for a backend; `command` is a NULL terminated argv. */
static void line(const char **argv, bool bwrap, const char *const *options,
                 const char *const *command) {
  static const char *const runner[] = {
      "--runner",     "/usr/bin/bwrap", "--unshare-user-try",
      "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/",
      "--dev",        "/dev",           "--proc", "/proc",
      "--remount-ro", "/dev",           "--remount-ro", "/proc",
      "--as-pid-1",   "--cap-drop",     "ALL",    "--", NULL};
  static const char *const grants[] = {"--ro", "/", "--dev", NULL};
  int n = 0;
  argv[n++] = launcher;
  argv[n++] = "--status-fd";
  argv[n++] = "3";
  if (bwrap) {
    add(argv, &n, runner);
    argv[n++] = launcher;
    argv[n++] = "--inner";
  }
  add(argv, &n, grants);
  if (options)
    add(argv, &n, options);
  argv[n++] = "--";
  add(argv, &n, command);
  argv[n] = NULL;
}

static struct run start(bool bwrap, const char *const *options,
                        const char *const *command) {
  const char *argv[MAX_WORDS];
  struct run r;
  int sv[2];
  line(argv, bwrap, options, command);
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv),
                   0);
  r.pid = fork();
  assert_true(r.pid >= 0);
  if (r.pid == 0) {
    if (sv[1] == 3)
      fcntl(3, F_SETFD, 0);
    else
      dup2(sv[1], 3);
    execv(launcher, (char *const *)argv);
    _exit(99);
  }
  close(sv[1]);
  r.fd = sv[0];
  return r;
}

static void hear(struct story *s, const char *packet, ssize_t n) {
  struct dsh_km km;
  memcpy(&km, packet, sizeof km);
  assert_int_equal(km.version, DSH_KEEPER_VERSION);
  switch (km.type) {
  case DSH_KM_HELLO:
    s->hello = true;
    break;
  case DSH_KM_READY:
    s->ready = true;
    break;
  case DSH_KM_STARTED:
    s->started = true;
    break;
  case DSH_KM_EXITED:
    s->exited = true;
    s->status = km.value;
    break;
  case DSH_KM_GONE:
    s->gone = true;
    break;
  case DSH_KM_DENIED:
    s->denied++;
    break;
  case DSH_KM_FAILED:
    s->failed = true;
    s->stage = km.stage;
    s->errnum = km.errnum;
    snprintf(s->text, sizeof s->text, "%.*s", (int)(n - (ssize_t)sizeof km),
             packet + sizeof km);
    break;
  default:
    break;
  }
}

static bool hear_one(struct run *r, struct story *s) {
  static char packet[DSH_KEEPER_PACKET];
  struct pollfd p = {r->fd, POLLIN, 0};
  ssize_t n;
  if (poll(&p, 1, LIMIT_MS) != 1)
    fail_msg("the keeper said nothing for %d ms", LIMIT_MS);
  n = recv(r->fd, packet, sizeof packet, 0);
  if (n <= 0)
    return false;
  hear(s, packet, n);
  return true;
}

static struct story finish(struct run *r) {
  struct story s;
  memset(&s, 0, sizeof s);
  while (hear_one(r, &s))
    ;
  close(r->fd);
  assert_int_equal(waitpid(r->pid, &s.wait_status, 0), r->pid);
  return s;
}

static struct story run(bool bwrap, const char *const *options,
                        const char *const *command) {
  struct run r = start(bwrap, options, command);
  return finish(&r);
}

#define CMD(...) ((const char *const[]){__VA_ARGS__, NULL})
#define EACH_BACKEND(b)                                                      \
  for (int b##_i = 0; b##_i <= (bwrap_works ? 1 : 0); b##_i++)               \
    for (bool b = b##_i == 1, b##_once = true; b##_once; b##_once = false)

/* Processes whose command line holds `mark`, this one excepted. */
static int count_marked(const char *mark) {
  DIR *d = opendir("/proc");
  struct dirent *e;
  int n = 0;
  while ((e = readdir(d))) {
    char path[300], text[512] = "";
    int fd;
    ssize_t got;
    if (e->d_name[0] < '0' || e->d_name[0] > '9' ||
        atoi(e->d_name) == getpid())
      continue;
    snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
    fd = open(path, O_RDONLY);
    if (fd < 0)
      continue;
    got = read(fd, text, sizeof text - 1);
    close(fd);
    for (ssize_t i = 0; i < got; i++)
      if (text[i] == '\0')
        text[i] = ' ';
    if (strstr(text, mark))
      n++;
  }
  closedir(d);
  return n;
}

static void assert_none_left(const char *mark) {
  double limit = now_ms() + 3000;
  while (count_marked(mark) && now_ms() < limit)
    usleep(2000);
  assert_int_equal(count_marked(mark), 0);
}

static void exit_codes_are_exact(void **state) {
  char text[16];
  (void)state;
  EACH_BACKEND(bwrap) {
    for (int code = 0; code <= 255; code += bwrap ? 5 : 1) {
      struct story s;
      snprintf(text, sizeof text, "exit %d", code);
      s = run(bwrap, NULL, CMD("/bin/sh", "-c", text));
      assert_true(s.started && s.exited && s.gone);
      assert_true(WIFEXITED(s.status));
      assert_int_equal(WEXITSTATUS(s.status), code);
    }
  }
}

static void signals_are_exact(void **state) {
  (void)state;
  EACH_BACKEND(bwrap) {
    for (int sig = 1; sig < SIGRTMIN; sig++) {
      char text[48];
      struct story s;
      if (sig == SIGCHLD || sig == SIGCONT || sig == SIGURG ||
          sig == SIGWINCH || sig == SIGSTOP || sig == SIGTSTP ||
          sig == SIGTTIN || sig == SIGTTOU || sig == 32 || sig == 33)
        continue;
      snprintf(text, sizeof text, "ulimit -c 0; kill -%d $$", sig);
      s = run(bwrap, NULL, CMD("/bin/sh", "-c", text));
      assert_true(s.exited && WIFSIGNALED(s.status));
      assert_int_equal(WTERMSIG(s.status), sig);
    }
  }
}

static void stages_of_a_failed_start(void **state) {
  struct story s;
  (void)state;
  EACH_BACKEND(bwrap) {
    s = run(bwrap, NULL, CMD("/no/such"));
    assert_true(s.failed && !s.started && s.ready);
    assert_int_equal(s.stage, DSH_STAGE_EXEC);
    assert_int_equal(s.errnum, ENOENT);
    s = run(bwrap, NULL, CMD("/etc"));
    assert_int_equal(s.errnum, EACCES);
    s = run(bwrap, CMD("--mode", "workspace-write", "--rw", "/no/root"),
            CMD("/bin/true"));
    assert_true(s.failed && !s.started && !s.ready);
    assert_int_equal(s.stage, DSH_STAGE_GRANT);
    assert_int_equal(s.errnum, ENOENT);
    assert_string_equal(s.text, "/no/root");
  }
  if (bwrap_works) {
    s = run(true, CMD("--expect-rw", "/usr"), CMD("/bin/true"));
    assert_int_equal(s.stage, DSH_STAGE_MOUNTS);
    s = run(false, CMD("--inner"), CMD("/bin/true")); /* no runner outside */
    assert_true(s.failed && !s.started);
  }
}

static struct story run_raw(const char *const *words) {
  const char *argv[MAX_WORDS];
  struct run r;
  int sv[2], n = 0;
  add(argv, &n, words);
  argv[n] = NULL;
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv),
                   0);
  r.pid = fork();
  if (r.pid == 0) {
    dup2(sv[1], 3);
    dup2(open("/dev/null", O_WRONLY), 2);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(99);
  }
  close(sv[1]);
  r.fd = sv[0];
  return finish(&r);
}

/* What fails outside the sandbox: the runner, its mounts, memory. */
static void stages_of_a_failed_runner(void **state) {
  char faulty[PATH_MAX];
  struct story s;
  const char *b = getenv("B");
  (void)state;
  s = run_raw(CMD(launcher, "--status-fd", "3", "--runner", "/etc",
                  "--", launcher, "--inner", "--", "/bin/true"));
  assert_true(s.hello && s.failed && !s.ready && !s.started);
  assert_int_equal(s.stage, DSH_STAGE_RUNNER_EXEC);
  assert_int_equal(s.errnum, EACCES);
  if (bwrap_works) {
    s = run_raw(CMD(launcher, "--status-fd", "3", "--runner", "/usr/bin/bwrap",
                    "--ro-bind", "/", "/", "--bind", "/no/source", "/mnt",
                    "--", launcher, "--inner", "--", "/bin/true"));
    assert_true(s.hello && !s.failed && !s.ready && !s.started);
    s = run_raw(CMD(launcher, "--status-fd", "3", "--runner", "/usr/bin/bwrap",
                    "--ro-bind", "/", "/", "--", launcher, "--inner", "--",
                    "/bin/true")); /* neither /proc nor /dev turned read-only */
    assert_true(s.failed && !s.ready && !s.started);
  }
  snprintf(faulty, sizeof faulty, "%s/test/landlock-run-faulty",
           b ? b : "build");
  if (access(faulty, X_OK) == 0) {
    s = run_raw(CMD(faulty, "--status-fd", "3", "--fault", "no-memory", "--ro",
                    "/", "--", "/bin/true"));
    assert_true(s.failed && !s.started);
    assert_int_equal(s.stage, DSH_STAGE_FORK);
    assert_int_equal(s.errnum, ENOMEM);
  }
}

/* Files that cannot be executed: made in a directory of our own. */
static void unexecutable_files(void **state) {
  char dir[] = "/tmp/dsh-keeper-XXXXXX", path[64];
  FILE *f;
  (void)state;
  assert_non_null(mkdtemp(dir));
  snprintf(path, sizeof path, "%s/f", dir);
  EACH_BACKEND(bwrap) {
    struct story s;
    f = fopen(path, "w");
    fputs("#!/no/such/interpreter\n", f);
    fclose(f);
    chmod(path, 0755);
    s = run(bwrap, NULL, CMD(path));
    assert_int_equal(s.stage, DSH_STAGE_EXEC);
    assert_int_equal(s.errnum, ENOENT);
    f = fopen(path, "w");
    fputs("\x01\x02neither", f);
    fclose(f);
    s = run(bwrap, NULL, CMD(path));
    assert_int_equal(s.stage, DSH_STAGE_EXEC);
    assert_int_equal(s.errnum, ENOEXEC);
    assert_false(s.started);
  }
  unlink(path);
  rmdir(dir);
}

static void words_prove_nothing(void **state) {
  (void)state;
  EACH_BACKEND(bwrap) {
    struct story s = run(bwrap, NULL,
                         CMD("/bin/sh", "-c",
                             "echo 'landlock-run: failed' >&2; exit 125"));
    assert_true(s.started && s.exited && !s.failed);
    assert_int_equal(WEXITSTATUS(s.status), 125);
  }
}

/* A tree that leaves its group, its session and its parent. */
#define TREE(mark)                                                           \
  CMD("/bin/bash", "-c",                                                     \
      "trap '' TERM HUP; setsid sleep " mark " & (setsid sleep " mark        \
      " &) ; (trap '' TERM; sleep " mark ") & wait")

static void the_tree_dies_at_the_end(void **state) {
  (void)state;
  EACH_BACKEND(bwrap) {
    struct story s =
        run(bwrap, NULL,
            CMD("/bin/bash", "-c",
                "setsid sleep 7001 & (setsid sleep 7001 &); exit 3"));
    assert_int_equal(WEXITSTATUS(s.status), 3);
    assert_none_left("sleep 7001");
  }
}

static void the_tree_dies_on_wish(void **state) {
  (void)state;
  EACH_BACKEND(bwrap) {
    struct dsh_km km = {DSH_KEEPER_VERSION, DSH_KM_END, 0, 0, 200, 0};
    struct story s;
    double t;
    struct run r = start(bwrap, NULL, TREE("7002"));
    memset(&s, 0, sizeof s);
    while (!s.started && hear_one(&r, &s))
      ;
    usleep(100000);
    t = now_ms();
    assert_int_equal(send(r.fd, &km, sizeof km, 0), sizeof km);
    s = finish(&r);
    assert_true(s.exited && s.gone);
    assert_int_equal(WTERMSIG(s.status), SIGKILL);
    assert_true(now_ms() - t >= 190);
    assert_none_left("sleep 7002");
  }
}

/* The host dies by SIGKILL, at moments from before the start to after it. */
static void the_tree_dies_with_its_host(void **state) {
  (void)state;
  EACH_BACKEND(bwrap) {
    for (int i = 0; i < 40; i++) {
      pid_t host = fork();
      if (host == 0) {
        struct run r = start(bwrap, NULL, CMD("/bin/bash", "-c",
                             "setsid sleep 7003 & sleep 7003"));
        (void)r;
        pause();
        _exit(0);
      }
      usleep((useconds_t)(i * 700));
      kill(host, SIGKILL);
      waitpid(host, NULL, 0);
    }
    assert_none_left("sleep 7003");
  }
}

/* Processes that fork and end for ever, each in a session of its own. */
static void hop_for_ever(void) {
  for (;;) {
    pid_t p = fork();
    setsid();
    if (p > 0)
      _exit(0);
  }
}

static void hoppers_are_outrun(void **state) {
  static const char *const counts[] = {"1", "8", "64"};
  char self[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  (void)state;
  assert_true(n > 0);
  self[n] = '\0';
  EACH_BACKEND(bwrap) {
    for (size_t i = 0; i < 3; i++) {
      struct dsh_km km = {DSH_KEEPER_VERSION, DSH_KM_END, 0, 0, 0, 0};
      struct story s;
      double t;
      struct run r = start(bwrap, NULL, CMD(self, "--hop", counts[i]));
      memset(&s, 0, sizeof s);
      while (!s.started && hear_one(&r, &s))
        ;
      usleep(100000);
      t = now_ms();
      send(r.fd, &km, sizeof km, 0);
      s = finish(&r);
      print_message("  %s: %s hoppers gone after %.1f ms\n",
                    bwrap ? "bwrap" : "landlock", counts[i], now_ms() - t);
      assert_true(s.gone);
      assert_none_left("--hop");
    }
  }
}

static void hostile_callers(void **state) {
  struct story s;
  sigset_t all, old;
  (void)state;
  signal(SIGPIPE, SIG_IGN);
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &old);
  EACH_BACKEND(bwrap) {
    s = run(bwrap, NULL, CMD("/bin/sh", "-c", "exit 9"));
    assert_int_equal(WEXITSTATUS(s.status), 9);
  }
  sigprocmask(SIG_SETMASK, &old, NULL);
  signal(SIGPIPE, SIG_DFL);
}

static void a_directory_as_stdin_is_refused(void **state) {
  int old = dup(0), dir = open("/", O_RDONLY | O_DIRECTORY);
  (void)state;
  dup2(dir, 0);
  EACH_BACKEND(bwrap) {
    struct story s = run(bwrap, NULL, CMD("/bin/true"));
    assert_true(s.failed && !s.started);
    assert_int_equal(s.stage, DSH_STAGE_STDIO);
    assert_int_equal(s.errnum, EISDIR);
  }
  dup2(old, 0);
  close(old);
  close(dir);
}

static void the_environment_reaches_the_command_alone(void **state) {
  char dir[] = "/tmp/dsh-keeper-XXXXXX", path[64], mark[80];
  FILE *f;
  (void)state;
  assert_non_null(mkdtemp(dir));
  snprintf(path, sizeof path, "%s/rc", dir);
  snprintf(mark, sizeof mark, "%s/mark", dir);
  f = fopen(path, "w");
  fprintf(f, "echo ran > %s\n", mark);
  fclose(f);
  setenv("BASH_ENV", path, 1);
  setenv("LD_PRELOAD", "/no/such.so", 1);
  setenv("DSH_TEST_WORD", "through", 1);
  EACH_BACKEND(bwrap) {
    struct story s = run(bwrap, NULL,
                         CMD("/bin/bash", "-c",
                             "[ \"$DSH_TEST_WORD\" = through ] 2>/dev/null"));
    assert_true(s.exited);
    assert_int_equal(WEXITSTATUS(s.status), 0);
    /* BASH_ENV did run, confined: its write was refused. */
    assert_int_equal(access(mark, F_OK), -1);
  }
  unsetenv("BASH_ENV");
  unsetenv("LD_PRELOAD");
  unsetenv("DSH_TEST_WORD");
  unlink(path);
  rmdir(dir);
}

/* What an overlay's maker needs no permission for: its "work" directory is
 * emptied and made anew. */
static int make_overlay(const char *dir) {
  enum { FSOPEN = 430, FSCONFIG = 431, SET_STRING = 1, CMD_CREATE = 6 };
  static const char *const keys[] = {"lowerdir", "upperdir", "workdir"};
  char path[64];
  int i, fd;
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
    return 2;
  fd = (int)syscall(FSOPEN, "overlay", 0);
  for (i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/%c", dir, keys[i][0]);
    syscall(FSCONFIG, fd, SET_STRING, keys[i], path, 0);
  }
  return syscall(FSCONFIG, fd, CMD_CREATE, NULL, NULL, 0) != 0;
}

static void nothing_is_mounted(void **state) {
  static const char *const parts[] = {"/l", "/u", "/w", "/w/work",
                                      "/w/work/kept"};
  char dir[] = "/var/tmp/dsh-keeper-XXXXXX", path[64], self[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  int i;
  (void)state;
  assert_true(n > 0);
  self[n] = '\0';
  assert_non_null(mkdtemp(dir));
  for (i = 0; i < 5; i++) {
    snprintf(path, sizeof path, "%s%s", dir, parts[i]);
    assert_int_equal(mkdir(path, 0700), 0);
  }
  EACH_BACKEND(bwrap) {
    run(bwrap, NULL, CMD(self, "--overlay", dir));
    assert_int_equal(access(path, F_OK), 0);
  }
  for (i = 4; i >= 0; i--) {
    snprintf(path, sizeof path, "%s%s", dir, parts[i]);
    rmdir(path);
  }
  rmdir(dir);
}

static void find_launcher(void) {
  static char path[PATH_MAX];
  const char *given = getenv("DSH_LAUNCHER"), *b = getenv("B");
  char relative[PATH_MAX];
  snprintf(relative, sizeof relative, "%s/landlock-run", b ? b : "build");
  launcher = realpath(given ? given : relative, path);
  if (!launcher) {
    fprintf(stderr, "no launcher at %s\n", given ? given : relative);
    exit(1);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exit_codes_are_exact),
      cmocka_unit_test(signals_are_exact),
      cmocka_unit_test(stages_of_a_failed_start),
      cmocka_unit_test(stages_of_a_failed_runner),
      cmocka_unit_test(unexecutable_files),
      cmocka_unit_test(words_prove_nothing),
      cmocka_unit_test(the_tree_dies_at_the_end),
      cmocka_unit_test(the_tree_dies_on_wish),
      cmocka_unit_test(the_tree_dies_with_its_host),
      cmocka_unit_test(hoppers_are_outrun),
      cmocka_unit_test(hostile_callers),
      cmocka_unit_test(a_directory_as_stdin_is_refused),
      cmocka_unit_test(the_environment_reaches_the_command_alone),
      cmocka_unit_test(nothing_is_mounted),
  };
  if (argc == 3 && strcmp(argv[1], "--overlay") == 0)
    return make_overlay(argv[2]);
  if (argc == 3 && strcmp(argv[1], "--hop") == 0) {
    int i, n = atoi(argv[2]);
    for (i = 0; i < n; i++)
      if (fork() == 0)
        hop_for_ever();
    pause();
    return 0;
  }
  find_launcher();
  bwrap_works = true;
  bwrap_works = run(true, NULL, CMD("/bin/true")).gone;
  if (!bwrap_works)
    print_message("bwrap cannot start here: its half is left out\n");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
