/* Runs without a sandbox: what every command gets and what is known of it,
 * with the keeper (build/landlock-run or $DSH_LAUNCHER, restricting nothing)
 * and without. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "dsh.h"

static struct dsh_arena arena;
static const char *keeper; /* NULL: none */
static char scratch[] = "/tmp/dsh-test-run-XXXXXX";
static const char *const plain_env[] = {"PATH=/usr/bin:/bin", NULL};

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static struct dsh_spawn_opts captured(void) {
  struct dsh_spawn_opts o;
  memset(&o, 0, sizeof o);
  o.env = plain_env;
  o.out = o.err = DSH_STDIO_PIPE;
  o.timeout_ms = 20000;
  o.keeper = keeper;
  return o;
}

static struct dsh_run *start_argv(const char *const *argv,
                                  const struct dsh_spawn_opts *o,
                                  struct dsh_error *err) {
  struct dsh_plan plan;
  memset(&plan, 0, sizeof plan);
  plan.mode = DSH_DANGER_FULL_ACCESS;
  for (; *argv; argv++)
    dsh_strv_add(&arena, &plan.argv, *argv);
  return dsh_run_start(&plan, o, err);
}

static struct dsh_run *start(const char *script,
                             const struct dsh_spawn_opts *o) {
  const char *argv[] = {"/bin/sh", "-c", script, NULL};
  struct dsh_error err;
  struct dsh_run *r = start_argv(argv, o, &err);
  if (!r)
    fail_msg("%s: %s", script, err.message);
  return r;
}

/* Runs to the end; what it wrote is copied, the run is freed. */
static struct dsh_outcome run(const char *script,
                              const struct dsh_spawn_opts *o) {
  struct dsh_run *r = start(script, o);
  const struct timespec t = {0, 10000000};
  struct dsh_outcome out;
  int state;
  while ((state = dsh_run_wait(r, 40000)) == 2)
    nanosleep(&t, NULL); /* stopped, until its deadline */
  assert_int_equal(state, 1);
  out = *dsh_run_outcome(r);
  out.out.text = dsh_strndup(&arena, out.out.text, out.out.len);
  out.err.text = dsh_strndup(&arena, out.err.text, out.err.len);
  if (out.out.spill_path)
    out.out.spill_path = dsh_strdup(&arena, out.out.spill_path);
  dsh_run_free(r);
  return out;
}

static struct dsh_outcome sh(const char *script) {
  struct dsh_spawn_opts o = captured();
  return run(script, &o);
}

static const char *say(const char *fmt, ...) {
  va_list ap;
  char text[512];
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return dsh_strdup(&arena, text);
}

/* --- ends ---------------------------------------------------------------- */

static void every_end(int step) {
  int i;
  for (i = 0; i < 256; i += step) {
    struct dsh_outcome o = sh(say("exit %d", i));
    assert_int_equal(o.started, DSH_STARTED_YES);
    assert_true(o.exited);
    assert_int_equal(o.exit_code, i);
  }
  for (i = 1; i < 32; i++) {
    struct dsh_outcome o;
    if (i == SIGCHLD || i == SIGCONT || i == SIGSTOP || i == SIGTSTP ||
        i == SIGTTIN || i == SIGTTOU || i == SIGURG || i == SIGWINCH)
      continue;
    o = sh(say("ulimit -c 0; kill -%d $$; sleep 5", i));
    assert_false(o.exited);
    assert_int_equal(o.signal, i);
  }
}

static void exact_ends(void **state) {
  (void)state;
  every_end(1);
}

/* Callers who ignore SIGCHLD or SIGPIPE, or hold every signal. */
static void odd_callers(void **state) {
  struct dsh_outcome o;
  sigset_t all, old;
  (void)state;
  signal(SIGCHLD, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  if (keeper) {
    every_end(17);
  } else {
    o = sh("exit 3"); /* the kernel throws the status away */
    assert_int_equal(o.started, DSH_STARTED_YES);
    assert_true(o.status_lost || (o.exited && o.exit_code == 3));
  }
  o = sh("cat /proc/self/status | grep -E 'SigBlk|SigIgn|SigCgt'; "
         "cat /dev/zero | "
         "head -c 1 >/dev/null; exit 3");
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_DFL);
  assert_string_equal(o.out.text, "SigBlk:\t0000000000000000\n"
                                  "SigIgn:\t0000000000000000\n"
                                  "SigCgt:\t0000000000000000\n");
}

static void failed_exec(const char *path, int errnum) {
  const char *argv[] = {path, NULL};
  struct dsh_spawn_opts opts = captured();
  struct dsh_error err;
  struct dsh_run *r = start_argv(argv, &opts, &err);
  const struct dsh_outcome *o;
  assert_non_null(r);
  assert_int_equal(dsh_run_wait(r, 10000), 1);
  o = dsh_run_outcome(r);
  assert_int_equal(o->started, DSH_STARTED_NO);
  assert_string_equal(o->stage, "exec");
  assert_int_equal(o->errnum, errnum);
  assert_false(o->runner_failed);
  dsh_run_free(r);
}

static void make_file(const char *path, const char *text, unsigned mode) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
  chmod(path, (mode_t)mode);
}

static void no_command(void **state) {
  const char *bad = say("%s/bad", scratch), *data = say("%s/data", scratch);
  const char *plain = say("%s/plain", scratch);
  (void)state;
  make_file(plain, "", 0644);
  make_file(bad, "#!/no/such/interpreter\n", 0755);
  make_file(data, "neither script nor program", 0755);
  failed_exec("/no/such", ENOENT);
  failed_exec("no-such-name-anywhere", ENOENT);
  failed_exec(plain, EACCES);
  failed_exec("/tmp", EACCES);
  failed_exec(bad, ENOENT);
  failed_exec(data, ENOEXEC);
  failed_exec("/etc/hostname/x", ENOTDIR);
}

static void too_long(void **state) {
  char *word = malloc(200000);
  const char *argv[] = {"/bin/true", word, NULL};
  struct dsh_spawn_opts opts = captured();
  struct dsh_error err;
  struct dsh_run *r;
  (void)state;
  memset(word, 'x', 199999);
  word[199999] = '\0';
  r = start_argv(argv, &opts, &err);
  if (r) { /* else the launcher itself could not be given it */
    assert_int_equal(dsh_run_wait(r, 10000), 1);
    assert_int_equal(dsh_run_outcome(r)->started, DSH_STARTED_NO);
    assert_int_equal(dsh_run_outcome(r)->errnum, E2BIG);
    assert_string_equal(dsh_run_outcome(r)->stage, "exec");
    assert_false(dsh_run_outcome(r)->runner_failed);
    dsh_run_free(r);
  } else {
    assert_int_equal(err.errnum, E2BIG);
  }
  free(word);
}

/* --- what it gets -------------------------------------------------------- */

static void place_and_environment(void **state) {
  static const char *const env[] = {"PATH=/usr/bin:/bin", "A=1 2", "B=", NULL};
  struct dsh_spawn_opts o = captured();
  struct dsh_error err;
  const char *argv[] = {"env", NULL};
  struct dsh_run *r;
  (void)state;
  o.env = env;
  o.cwd = "/usr";
  r = start_argv(argv, &o, &err);
  assert_non_null(r);
  assert_int_equal(dsh_run_wait(r, 10000), 1);
  assert_string_equal(dsh_run_outcome(r)->out.text,
                      "PATH=/usr/bin:/bin\nA=1 2\nB=\n");
  dsh_run_free(r);
  assert_string_equal(run("pwd -P", &o).out.text, "/usr\n");
  o.cwd = "/no/such";
  assert_null(start_argv(argv, &o, &err));
  assert_int_equal(err.code, DSH_E_SPAWN_FAILED);
  assert_string_equal(err.stage, "cwd");
  assert_int_equal(err.errnum, ENOENT);
  o.cwd = "/etc/hostname";
  assert_null(start_argv(argv, &o, &err));
  assert_int_equal(err.errnum, ENOTDIR);
  o.cwd = "usr";
  assert_null(start_argv(argv, &o, &err));
  assert_int_equal(err.code, DSH_E_MISUSE);
}

static void descriptors(void **state) {
  struct dsh_spawn_opts o = captured();
  int fds[] = {3, 900, 4}; /* 3 and 4: see main */
  struct dsh_error err;
  const char *argv[] = {"/bin/true", NULL};
  (void)state;
  assert_string_equal(run("echo /proc/self/fd/*", &o).out.text,
                      "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 "
                      "/proc/self/fd/3\n" /* the listing itself */);
  lseek(3, 0, SEEK_SET);
  dup2(3, 900);
  o.pass_fds = fds;
  o.n_pass_fds = 3;
  assert_string_equal(run("cat <&3 >/dev/null && for f in 3 4 5 6 7 8 9; do "
                          "[ -e /proc/$$/fd/$f ] && echo $f; done; [ -e "
                          "/proc/$$/fd/900 ] && echo 900",
                          &o).out.text,
                      "3\n4\n900\n");
  close(900);
  assert_null(start_argv(argv, &o, &err));
  assert_int_equal(err.code, DSH_E_MISUSE);
  fds[1] = 2;
  assert_null(start_argv(argv, &o, &err));
}

static void directory_as_stdin(void **state) {
  struct dsh_spawn_opts o = captured();
  const char *argv[] = {"/bin/true", NULL};
  struct dsh_error err;
  (void)state;
  o.in = DSH_STDIO_FD;
  o.in_fd = open("/", O_RDONLY | O_DIRECTORY);
  assert_null(start_argv(argv, &o, &err));
  assert_int_equal(err.errnum, EISDIR);
  assert_string_equal(err.stage, "stdio");
  close(o.in_fd);
}

/* With 0, 1 and 2 closed in the caller, nothing of ours lands there. */
static void closed_stdio(void **state) {
  struct dsh_spawn_opts o = captured();
  struct dsh_outcome out;
  int saved[3], i;
  (void)state;
  for (i = 0; i < 3; i++) {
    saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 50);
    close(i);
  }
  o.in = DSH_STDIO_INHERIT;
  out = run("cat; echo out; echo err >&2; exit 6", &o);
  for (i = 0; i < 3; i++) {
    dup2(saved[i], i);
    close(saved[i]);
  }
  assert_string_equal(out.out.text, "out\n");
  assert_string_equal(out.err.text, "err\n");
  assert_int_equal(out.exit_code, 6);
}

static void input(void **state) {
  struct dsh_spawn_opts o = captured();
  size_t n = 3 << 20, i;
  char *bytes = malloc(n);
  struct dsh_outcome out;
  struct dsh_run *r;
  (void)state;
  for (i = 0; i < n; i++)
    bytes[i] = (char)(i * 7 + i / 256);
  o.in = DSH_STDIO_PIPE;
  o.input = bytes;
  o.input_len = n;
  o.tail_bytes = n;
  out = run("cat", &o);
  assert_int_equal(out.out.len, n);
  assert_memory_equal(out.out.text, bytes, n);
  out = run("exit 4", &o); /* nobody reads it */
  assert_int_equal(out.exit_code, 4);
  out = run("exec <&-; sleep 0.1; exit 5", &o);
  assert_int_equal(out.exit_code, 5);
  o.input_len = 0;
  assert_int_equal(run("cat", &o).out.len, 0);
  o.input = NULL; /* open until closed */
  r = start("read x; echo got $x; cat", &o);
  assert_int_equal(dsh_run_write(r, "ab\n", 3), 3);
  assert_int_equal(dsh_run_wait(r, 100), 0);
  dsh_run_close_input(r);
  assert_int_equal(dsh_run_wait(r, 10000), 1);
  assert_string_equal(dsh_run_outcome(r)->out.text, "got ab\n");
  assert_int_equal(dsh_run_write(r, "x", 1), -1);
  dsh_run_free(r);
  free(bytes);
}

/* --- output -------------------------------------------------------------- */

static void tails(void **state) {
  struct dsh_spawn_opts o = captured();
  struct dsh_outcome out;
  (void)state;
  out = run("head -c 64000 /dev/zero", &o);
  assert_int_equal(out.out.len, 64000);
  assert_false(out.out.truncated);
  out = run("head -c 64001 /dev/zero", &o);
  assert_int_equal(out.out.len, 64000);
  assert_true(out.out.truncated);
  assert_int_equal(out.out.total, 64001);
  assert_null(out.out.spill_path);
  o.tail_bytes = 5;
  out = run("printf 'ab\\303\\244\\342\\202\\254\\n'", &o); /* abä€\n */
  assert_string_equal(out.out.text, "\xe2\x82\xac\n");
  o.tail_bytes = 3;
  assert_string_equal(run("printf 'ab\\342\\202\\254\\n'", &o).out.text, "\n");
  o.tail_bytes = 4;
  assert_string_equal(run("printf '\\001\\360\\237\\230\\200'", &o).out.text,
                      "\xf0\x9f\x98\x80");
  o.tail_bytes = 2; /* what is no UTF-8 stays as it is, but for three bytes */
  assert_int_equal(run("printf '\\377\\377\\377'", &o).out.len, 2);
}

static void spill(void **state) {
  struct dsh_spawn_opts o = captured();
  struct dsh_outcome out;
  struct stat st;
  (void)state;
  o.spill_dir = say("%s/not/yet", scratch);
  out = run("seq 1 100000", &o);
  assert_true(out.out.truncated);
  assert_non_null(out.out.spill_path);
  assert_int_equal(stat(out.out.spill_path, &st), 0);
  assert_int_equal(st.st_mode & 07777, 0600);
  assert_int_equal(st.st_size, out.out.total);
  assert_string_equal(sh(say("seq 1 100000 | cmp - %s && echo same",
                             out.out.spill_path)).out.text, "same\n");
  assert_int_equal(stat(o.spill_dir, &st), 0);
  assert_int_equal(st.st_mode & 07777, 0700);
  unlink(out.out.spill_path);
  out = run("head -c 70000000 /dev/zero", &o);
  assert_int_equal(stat(out.out.spill_path, &st), 0);
  assert_int_equal(st.st_size, DSH_SPILL_BYTES);
  assert_int_equal(out.out.total, 70000000);
  unlink(out.out.spill_path);
  o.spill_dir = "/proc/no/such";
  out = run("seq 1 100000; exit 9", &o);
  assert_int_equal(out.exit_code, 9);
  assert_null(out.out.spill_path);
  assert_int_equal(out.out.len, 64000);
}

/* Full in the middle: the file goes, the result stays. */
static void spill_full(void **state) {
  struct dsh_spawn_opts o = captured();
  struct rlimit old, small = {100000, 100000};
  struct dsh_outcome out;
  const char *left;
  (void)state;
  o.spill_dir = say("%s/full", scratch);
  getrlimit(RLIMIT_FSIZE, &old);
  small.rlim_max = old.rlim_max;
  setrlimit(RLIMIT_FSIZE, &small);
  out = run("seq 1 100000; exit 9", &o);
  setrlimit(RLIMIT_FSIZE, &old);
  assert_int_equal(out.exit_code, 9);
  assert_int_equal(out.out.total, 588895);
  assert_int_equal(out.out.len, 64000);
  assert_null(out.out.spill_path);
  left = sh(say("ls %s", o.spill_dir)).out.text;
  assert_string_equal(left, "");
}

static void reading_on(void **state) {
  struct dsh_spawn_opts o = captured();
  uint64_t skipped;
  char buf[64];
  struct dsh_run *r;
  size_t n = 0;
  int i;
  (void)state;
  o.tail_bytes = 10;
  r = start("echo one; sleep 0.3; echo 0123456789abc", &o);
  for (i = 0; i < 100 && n == 0; i++) {
    n = dsh_run_read(r, 1, buf, sizeof buf, &skipped);
    dsh_run_wait(r, 10);
  }
  assert_int_equal(n, 4);
  assert_int_equal(skipped, 0);
  assert_int_equal(dsh_run_wait(r, 10000), 1);
  n = dsh_run_read(r, 1, buf, sizeof buf, &skipped);
  assert_int_equal(n, 10);
  assert_int_equal(skipped, 4);
  assert_memory_equal(buf, "456789abc\n", 10);
  assert_int_equal(dsh_run_read(r, 1, buf, sizeof buf, &skipped), 0);
  dsh_run_free(r);
}

/* --- on time ------------------------------------------------------------- */

static bool alive_now(const char *text) {
  pid_t pid = (pid_t)atoi(text);
  char path[64], line[256] = "";
  FILE *f;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  f = fopen(path, "r");
  if (!f)
    return false;
  if (!fgets(line, sizeof line, f))
    line[0] = '\0';
  fclose(f);
  return pid > 1 && line[0] && !strstr(line, ") Z ");
}

/* Without a keeper its last moment is nobody's to wait for. */
static bool alive(const char *text) {
  const struct timespec t = {0, 10000000};
  int i;
  for (i = 0; i < 100 && !keeper && alive_now(text); i++)
    nanosleep(&t, NULL);
  return alive_now(text);
}

static void outputs_and_life(void **state) {
  int64_t begin = now_ms();
  struct dsh_outcome o;
  (void)state;
  o = sh("exec >&- 2>&-; sleep 0.3; exit 4");
  assert_int_equal(o.exit_code, 4);
  assert_true(now_ms() - begin >= 290);
  begin = now_ms();
  o = sh("sleep 30 & echo $!"); /* in the group: it goes */
  assert_true(now_ms() - begin < 3000);
  assert_false(alive(o.out.text));
  begin = now_ms();
  o = sh("setsid sh -c 'echo $$; exec sleep 30' & while ! pgrep -s 0 >/dev/null"
         "; do :; done; sleep 0.2");
  assert_true(now_ms() - begin < 3000);
  if (keeper)
    assert_false(alive(o.out.text));
  else if (alive(o.out.text)) /* nobody minds those: it is our test's */
    kill((pid_t)atoi(o.out.text), SIGKILL);
}

/* Somebody outside the tree holds the pipe and never stops writing to it. */
static void a_stranger_writes(void **state) {
  struct dsh_spawn_opts o = captured();
  int64_t begin = now_ms();
  struct dsh_outcome out;
  (void)state;
  if (keeper)
    return; /* its trees end whole */
  out = run("setsid sh -c 'echo $$ >&2; exec yes' & sleep 0.2; exit 7", &o);
  assert_int_equal(out.exit_code, 7);
  assert_true(now_ms() - begin < 3000);
  if (alive(out.err.text)) /* the closed pipe should have ended it */
    kill((pid_t)atoi(out.err.text), SIGKILL);
}

static void deadlines(void **state) {
  struct dsh_spawn_opts o = captured();
  struct dsh_outcome out;
  (void)state;
  o.timeout_ms = 200;
  o.grace_ms = 300;
  out = run("sleep 20", &o);
  assert_true(out.timed_out);
  assert_true(out.wall_ms >= 200 && out.wall_ms < 2000);
  assert_int_equal(out.signal, SIGTERM);
  out = run("trap 'exit 3' TERM; while :; do sleep 0.05; done", &o);
  assert_true(out.timed_out);
  assert_int_equal(out.exit_code, 3);
  out = run("trap '' TERM; while :; do sleep 0.05; done", &o);
  assert_true(out.timed_out);
  assert_int_equal(out.signal, SIGKILL);
  assert_true(out.wall_ms >= 500 && out.wall_ms < 3000);
  out = run("kill -STOP $$; sleep 20", &o);
  assert_true(out.timed_out);
}

static void abort_and_free(void **state) {
  struct dsh_spawn_opts o = captured();
  const struct dsh_outcome *out;
  struct dsh_run *r;
  (void)state;
  o.timeout_ms = 0;
  r = start("sleep 30", &o);
  dsh_run_abort(r);
  dsh_run_abort(r);
  assert_int_equal(dsh_run_wait(r, 10000), 1);
  out = dsh_run_outcome(r);
  assert_true(out->aborted);
  assert_false(out->timed_out);
  dsh_run_free(r);
  r = start("trap '' TERM; sleep 30; sleep 30", &o);
  dsh_run_free(r);
}

static void terminal(void **state) {
  struct dsh_spawn_opts o = captured();
  struct dsh_run *r;
  (void)state;
  o.pty = true;
  o.rows = 31;
  o.cols = 97;
  r = start("stty size; tty >/dev/null && echo tty; read x; stty size; exit 5",
            &o);
  dsh_run_wait(r, 300);
  assert_int_equal(dsh_run_resize(r, 40, 100), 0);
  assert_int_equal(dsh_run_write(r, "go\n", 3), 3);
  assert_int_equal(dsh_run_wait(r, 10000), 1);
  assert_string_equal(dsh_run_outcome(r)->out.text,
                      "31 97\r\ntty\r\ngo\r\n40 100\r\n");
  assert_int_equal(dsh_run_outcome(r)->exit_code, 5);
  assert_int_equal(dsh_run_resize(r, 1, 1), -1);
  dsh_run_free(r);
}

/* --- many ---------------------------------------------------------------- */

static int count(const char *dir) {
  DIR *d = opendir(dir);
  int n = 0;
  while (readdir(d))
    n++;
  closedir(d);
  return n;
}

static void many_at_once(void **state) {
  struct dsh_spawn_opts o = captured();
  struct dsh_run *r[64];
  int64_t begin = now_ms();
  int i;
  (void)state;
  for (i = 0; i < 64; i++)
    r[i] = start(say("sleep 0.2; echo %d; exit %d", i, i), &o);
  for (i = 0; i < 64; i++) {
    assert_int_equal(dsh_run_wait(r[i], 20000), 1);
    assert_int_equal(dsh_run_outcome(r[i])->exit_code, i);
    assert_string_equal(dsh_run_outcome(r[i])->out.text, say("%d\n", i));
    dsh_run_free(r[i]);
  }
  assert_true(now_ms() - begin < 10000);
}

static void no_growth(void **state) {
  int fds, threads, i;
  (void)state;
  sh("true");
  fds = count("/proc/self/fd");
  threads = count("/proc/self/task");
  for (i = 0; i < 300; i++)
    sh("echo x; echo y >&2");
  assert_int_equal(count("/proc/self/fd"), fds);
  assert_int_equal(count("/proc/self/task"), threads);
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exact_ends),        cmocka_unit_test(odd_callers),
      cmocka_unit_test(no_command),        cmocka_unit_test(too_long),
      cmocka_unit_test(place_and_environment),
      cmocka_unit_test(descriptors),       cmocka_unit_test(directory_as_stdin),
      cmocka_unit_test(closed_stdio),      cmocka_unit_test(input),
      cmocka_unit_test(tails),             cmocka_unit_test(spill),
      cmocka_unit_test(spill_full),        cmocka_unit_test(reading_on),
      cmocka_unit_test(outputs_and_life),  cmocka_unit_test(a_stranger_writes),
      cmocka_unit_test(deadlines),         cmocka_unit_test(abort_and_free),
      cmocka_unit_test(terminal),          cmocka_unit_test(many_at_once),
      cmocka_unit_test(no_growth),
  };
  const char *given = getenv("DSH_LAUNCHER");
  int low[] = {open("/etc/hostname", O_RDONLY | O_CLOEXEC),
               open("/etc/hostname", O_RDONLY | O_CLOEXEC)};
  char path[4096];
  int rc;
  if (dup2(low[0], 3) != 3 || dup2(low[1], 4) != 4 || !mkdtemp(scratch))
    return 1; /* the thread's own descriptors come later */
  dsh_arena_init(&arena);
  rc = cmocka_run_group_tests_name("without a keeper", tests, NULL, NULL);
  if (realpath(given ? given : "build/landlock-run", path)) {
    keeper = path;
    rc += cmocka_run_group_tests_name("kept", tests, NULL, NULL);
  }
  dsh_arena_free(&arena);
  snprintf(path, sizeof path, "rm -rf %s", scratch);
  return rc + (system(path) != 0);
}
