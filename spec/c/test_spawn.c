/* The host's end of keeper.h against a launcher that lies, breaks off or
 * falls silent. This program is that launcher when its first argument is
 * --status-fd; the word after "--" says what it does. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "dsh.h"
#include "keeper.h"

/* --- the fake launcher --------------------------------------------------- */

static int channel;

static void say_bytes(const void *p, size_t n) {
  if (send(channel, p, n, MSG_NOSIGNAL) < 0)
    _exit(98);
}

static void say(enum dsh_km_type type, enum dsh_stage stage, int errnum,
                int value) {
  struct dsh_km km = {DSH_KEEPER_VERSION, (uint8_t)type, (uint16_t)stage,
                      errnum, value, 0};
  say_bytes(&km, sizeof km);
}

static void say_failed(enum dsh_stage stage, int errnum, const char *text) {
  struct {
    struct dsh_km km;
    char text[64];
  } p = {{DSH_KEEPER_VERSION, DSH_KM_FAILED, (uint16_t)stage, errnum, 0, 0},
         ""};
  size_t n = strlen(text);
  memcpy(p.text, text, n);
  say_bytes(&p, sizeof p.km + n);
}

static void say_exited(int status) {
  struct dsh_km_exited e = {
      {DSH_KEEPER_VERSION, DSH_KM_EXITED, 0, 0, status, 0}, 11, 22, 33};
  say_bytes(&e, sizeof e);
}

static void say_denied(const char *path, int claimed) {
  struct {
    struct dsh_km_denied d;
    char text[256];
  } p;
  memset(&p, 0, sizeof p);
  p.d.head = (struct dsh_km){DSH_KEEPER_VERSION, DSH_KM_DENIED, 0, EROFS, 7,
                             DSH_DENIED_CONFIRMED};
  memset(p.d.op, 'x', sizeof p.d.op); /* no NUL in it */
  memcpy(p.d.comm, "sh", 2);
  p.d.path_len = (uint16_t)claimed;
  memcpy(p.text, path, strlen(path));
  say_bytes(&p, sizeof p.d + strlen(path));
}

static void begin(void) {
  say(DSH_KM_HELLO, DSH_STAGE_OUTER, 0, 0);
  say(DSH_KM_READY, DSH_STAGE_NONE, 0, 0);
  say(DSH_KM_STARTED, DSH_STAGE_NONE, 0, 1);
}

static void noise(void) {
  unsigned seed = 12345;
  unsigned char junk[300];
  int i, k;
  for (i = 0; i < 500; i++) {
    size_t n;
    for (k = 0; k < (int)sizeof junk; k++) {
      seed = seed * 1103515245 + 12345;
      junk[k] = (unsigned char)(seed >> 16);
    }
    n = seed % sizeof junk + 1;
    if (i % 2) /* looks right at first */
      junk[0] = DSH_KEEPER_VERSION;
    if (n > 1 && (junk[1] == DSH_KM_FAILED || junk[1] == DSH_KM_EXITED ||
                  junk[1] == DSH_KM_STOPPED || junk[1] == DSH_KM_READY ||
                  junk[1] == DSH_KM_STARTED))
      junk[1] = 40;
    say_bytes(junk, n);
  }
}

static void forever(void) {
  signal(SIGTERM, SIG_IGN);
  for (;;)
    pause();
}

static void wait_for_end(void) {
  struct dsh_km km;
  while (recv(channel, &km, sizeof km, 0) == (ssize_t)sizeof km)
    if (km.type == DSH_KM_END) {
      say_exited(SIGTERM);
      say(DSH_KM_GONE, DSH_STAGE_NONE, 0, 0);
      _exit(0);
    }
  _exit(0); /* the lifeline */
}

static int is(const char *a, const char *b) {
  return strcmp(a, b) == 0;
}

static int act(const char *what) {
  int i;
  if (is(what, "silent"))
    return 0;
  if (is(what, "mute"))
    forever();
  if (is(what, "old-version")) {
    struct dsh_km km = {DSH_KEEPER_VERSION + 1, DSH_KM_READY, 0, 0, 0, 0};
    say_bytes(&km, sizeof km);
    km.type = DSH_KM_STARTED;
    say_bytes(&km, sizeof km);
    return 0;
  }
  if (is(what, "started-only")) {
    say(DSH_KM_STARTED, DSH_STAGE_NONE, 0, 1);
    say_exited(0);
    return 0;
  }
  if (is(what, "noise")) {
    noise();
    return 0;
  }
  if (is(what, "noise-inside")) {
    begin();
    noise();
    say_exited(5 << 8);
    return 0;
  }
  if (is(what, "failed")) {
    say(DSH_KM_HELLO, DSH_STAGE_OUTER, 0, 0);
    say_failed(DSH_STAGE_LANDLOCK, EPERM, "ruleset");
    return 125;
  }
  if (is(what, "failed-unknown")) {
    say_failed((enum dsh_stage)999, EPERM, "");
    return 125;
  }
  if (is(what, "exec")) {
    say(DSH_KM_HELLO, DSH_STAGE_OUTER, 0, 0);
    say(DSH_KM_READY, DSH_STAGE_NONE, 0, 0);
    say_failed(DSH_STAGE_EXEC, ENOENT, "/no/such");
    return 125;
  }
  if (is(what, "late-failed")) { /* a command cannot un-start itself */
    begin();
    say_failed(DSH_STAGE_LANDLOCK, EPERM, "x");
    say_exited(3 << 8);
    return 0;
  }
  if (is(what, "hello")) {
    say(DSH_KM_HELLO, DSH_STAGE_OUTER, 0, 0);
    return 0;
  }
  if (is(what, "ready")) {
    say(DSH_KM_HELLO, DSH_STAGE_OUTER, 0, 0);
    say(DSH_KM_READY, DSH_STAGE_NONE, 0, 0);
    return 0;
  }
  begin();
  if (is(what, "started"))
    return 0;
  if (is(what, "killed"))
    raise(SIGKILL);
  if (is(what, "end"))
    wait_for_end();
  if (is(what, "deaf"))
    forever();
  if (is(what, "short-exited")) {
    say(DSH_KM_EXITED, DSH_STAGE_NONE, 0, 0);
    return 0;
  }
  if (is(what, "stop")) {
    say(DSH_KM_STOPPED, DSH_STAGE_NONE, 0, SIGTSTP);
    wait_for_end();
  }
  if (is(what, "denied"))
    for (i = 0; i < 300; i++)
      say_denied("/a/b", i % 10 == 9 ? 5000 : 4);
  if (is(what, "notice"))
    say(DSH_KM_NOTICE, DSH_STAGE_LISTENER, EBUSY, 0);
  say_exited(is(what, "signal") ? SIGKILL : 137 << 8);
  say(DSH_KM_GONE, DSH_STAGE_NONE, 0, 0);
  return 1; /* not what the command did */
}

static int fake(char **argv) {
  channel = atoi(argv[2]);
  while (*argv && !is(*argv, "--"))
    argv++;
  return argv[0] && argv[1] ? act(argv[1]) : 97;
}

/* --- the tests ----------------------------------------------------------- */

static struct dsh_arena arena;

static struct dsh_run *start(const char *what, bool apart, bool no_keeper,
                             int64_t timeout_ms) {
  static const char *env[] = {"A=b", NULL};
  struct dsh_plan plan;
  struct dsh_spawn_opts o;
  struct dsh_error err;
  struct dsh_run *r;
  memset(&plan, 0, sizeof plan);
  memset(&o, 0, sizeof o);
  plan.confined = plan.launcher = true;
  plan.backend = "fake";
  dsh_strv_add(&arena, &plan.argv, "/proc/self/exe");
  if (apart)
    dsh_strv_add(&arena, &plan.argv, "--runner");
  dsh_strv_add(&arena, &plan.argv, "--");
  plan.argv_at = plan.argv.n;
  dsh_strv_add(&arena, &plan.argv, what);
  o.env = env;
  o.out = o.err = DSH_STDIO_PIPE;
  o.observe = true;
  o.no_keeper = no_keeper;
  o.timeout_ms = timeout_ms;
  o.grace_ms = 100;
  r = dsh_run_start(&plan, &o, &err);
  if (!r)
    fail_msg("%s: %s", what, err.message);
  return r;
}

static struct dsh_outcome run(const char *what) {
  struct dsh_run *r = start(what, true, false, 5000);
  struct dsh_outcome o;
  assert_int_equal(dsh_run_wait(r, 10000), 1);
  o = *dsh_run_outcome(r);
  o.detail = o.detail ? dsh_strdup(&arena, o.detail) : NULL;
  dsh_run_free(r);
  assert_false(o.timed_out);
  return o;
}

static void runner_failed(const char *what, const char *stage, int errnum) {
  struct dsh_outcome o = run(what);
  assert_int_equal(o.started, DSH_STARTED_NO);
  assert_true(o.runner_failed);
  assert_string_equal(o.stage, stage);
  assert_int_equal(o.errnum, errnum);
}

static void broken_off(void **state) {
  (void)state;
  runner_failed("silent", "launcher", 0);
  runner_failed("hello", "runner", 0);
  runner_failed("old-version", "launcher", 0);
  runner_failed("started-only", "launcher", 0);
  runner_failed("noise", "launcher", 0);
  runner_failed("failed", "landlock", EPERM);
  runner_failed("failed-unknown", "launcher", EPERM);
}

static void ready_and_no_more(void **state) {
  struct dsh_outcome o = run("ready");
  (void)state;
  assert_int_equal(o.started, DSH_STARTED_UNKNOWN);
  assert_true(o.runner_failed);
  assert_true(o.status_lost);
  assert_string_equal(o.stage, "exec");
}

static void exec_failed(void **state) {
  struct dsh_outcome o = run("exec");
  (void)state;
  assert_int_equal(o.started, DSH_STARTED_NO);
  assert_false(o.runner_failed);
  assert_string_equal(o.stage, "exec");
  assert_int_equal(o.errnum, ENOENT);
  assert_string_equal(o.detail, "/no/such");
}

static void keeper_lost(void **state) {
  static const char *const ways[] = {"started", "killed", "short-exited"};
  size_t i;
  (void)state;
  for (i = 0; i < sizeof ways / sizeof *ways; i++) {
    struct dsh_outcome o = run(ways[i]);
    assert_int_equal(o.started, DSH_STARTED_YES);
    assert_true(o.status_lost);
    assert_false(o.keeper);
    assert_false(o.exited);
    assert_int_equal(o.signal, 0);
    assert_false(o.runner_failed);
  }
}

static void exact_ends(void **state) {
  struct dsh_outcome o = run("exit");
  (void)state;
  assert_true(o.exited);
  assert_int_equal(o.exit_code, 137);
  assert_true(o.keeper);
  assert_int_equal(o.user_us, 11);
  assert_int_equal(o.max_rss_kb, 33);
  o = run("signal");
  assert_false(o.exited);
  assert_int_equal(o.signal, SIGKILL);
  o = run("noise-inside");
  assert_int_equal(o.exit_code, 5);
  o = run("late-failed");
  assert_int_equal(o.started, DSH_STARTED_YES);
  assert_int_equal(o.exit_code, 3);
}

static void denials(void **state) {
  struct dsh_run *r = start("denied", true, false, 5000);
  const struct dsh_outcome *o;
  (void)state;
  assert_int_equal(dsh_run_wait(r, 10000), 1);
  o = dsh_run_outcome(r);
  assert_true(o->denials_known);
  assert_int_equal(o->n_denials, 256); /* 270 of 300 are well formed */
  assert_int_equal(o->denials_dropped, 14);
  assert_string_equal(o->denial[0].path, "/a/b");
  assert_int_equal(strlen(o->denial[0].op), 15);
  assert_true(o->denial[0].confirmed);
  dsh_run_free(r);
  r = start("notice", true, false, 5000);
  assert_int_equal(dsh_run_wait(r, 10000), 1);
  assert_false(dsh_run_outcome(r)->denials_known);
  assert_int_equal(dsh_run_outcome(r)->listener_errnum, EBUSY);
  dsh_run_free(r);
}

static void without_keeper(void **state) {
  struct dsh_run *r = start("ready", false, true, 5000);
  const struct dsh_outcome *o;
  (void)state;
  assert_int_equal(dsh_run_wait(r, 10000), 1);
  o = dsh_run_outcome(r);
  assert_int_equal(o->started, DSH_STARTED_YES);
  assert_true(o->exited);
  assert_int_equal(o->exit_code, 0);
  dsh_run_free(r);
}

/* ms until a run that would go on for ever is over. */
static int64_t ended_in(const char *what, int64_t timeout_ms, bool *timed_out,
                        enum dsh_started *started) {
  struct dsh_run *r = start(what, true, false, timeout_ms);
  const struct dsh_outcome *o;
  int64_t ms;
  assert_int_equal(dsh_run_wait(r, 30000), 1);
  o = dsh_run_outcome(r);
  *timed_out = o->timed_out;
  *started = o->started;
  ms = o->wall_ms;
  assert_false(o->runner_failed);
  dsh_run_free(r);
  return ms;
}

static void deadlines(void **state) {
  enum dsh_started started;
  bool timed_out;
  int64_t ms;
  (void)state;
  ms = ended_in("mute", 200, &timed_out, &started);
  assert_true(timed_out && ms >= 290 && ms < 2000);
  assert_int_equal(started, DSH_STARTED_NO);
  ms = ended_in("end", 200, &timed_out, &started);
  assert_true(timed_out && ms >= 200 && ms < 1500);
  assert_int_equal(started, DSH_STARTED_YES);
}

/* One that does not even mind its lifeline is killed in the end. */
static void deaf_keeper(void **state) {
  enum dsh_started started;
  bool timed_out;
  int64_t ms = ended_in("deaf", 100, &timed_out, &started);
  (void)state;
  assert_true(timed_out && ms > 12000 && ms < 20000);
  assert_int_equal(started, DSH_STARTED_YES);
}

static void stopped(void **state) {
  struct dsh_run *r = start("stop", true, false, 0);
  (void)state;
  assert_int_equal(dsh_run_wait(r, 10000), 2);
  assert_null(dsh_run_outcome(r));
  assert_int_equal(dsh_run_signal(r, SIGCONT), 0);
  assert_int_equal(dsh_run_wait(r, 50), 0);
  dsh_run_abort(r);
  assert_int_equal(dsh_run_wait(r, 10000), 1);
  assert_true(dsh_run_outcome(r)->aborted);
  assert_int_equal(dsh_run_outcome(r)->signal, SIGTERM);
  dsh_run_free(r);
}

static void freed_while_running(void **state) {
  int i;
  (void)state;
  for (i = 0; i < 20; i++)
    dsh_run_free(start("end", true, false, 0));
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(broken_off),     cmocka_unit_test(ready_and_no_more),
      cmocka_unit_test(exec_failed),    cmocka_unit_test(keeper_lost),
      cmocka_unit_test(exact_ends),     cmocka_unit_test(denials),
      cmocka_unit_test(without_keeper), cmocka_unit_test(deadlines),
      cmocka_unit_test(stopped),        cmocka_unit_test(freed_while_running),
      cmocka_unit_test(deaf_keeper),
  };
  int rc;
  if (argc > 3 && strcmp(argv[1], "--status-fd") == 0)
    return fake(argv);
  dsh_arena_init(&arena);
  rc = cmocka_run_group_tests(tests, NULL, NULL);
  dsh_arena_free(&arena);
  return rc;
}
