/* test_log_torn.c: logs cut anywhere, healed by the next append. */
#include "loghelp.h"
#include "frame.h"

#include <glob.h>

static int width(int mode) { /* none counts as the fail-safe default */
  return mode < 0 ? DSH_READ_ONLY : mode;
}

/* Appends to the log at `path` and checks that the result is clean, that the
 * mode did not change by it, and that `least` events are there. */
static void heal(int mode, uint64_t least) {
  struct dsh_log_info info;
  struct dsh_error err = {0};
  struct dsh_writer *w = reopen(&info, &err);
  uint64_t had;
  if (!w)
    fail_msg("%s", err.message);
  had = info.events;
  assert_true(had >= least);
  if (append(w, "after/cut", "{}", &err) != 0)
    fail_msg("%s", err.message);
  dsh_writer_close(w);
  assert_int_equal(width(mode_of(path, &err, &info)), width(mode));
  assert_false(info.tail.torn || info.tail.unterminated);
  assert_true(info.events > had);
}

/* Cuts the file at every byte. `whole[k]` is where the k-th frame ends,
 * `modes[k]` and `events[k]` what was so then. */
static void cut_everywhere(const struct made *m, const size_t *whole,
                           const int *modes, const uint64_t *events, int n) {
  size_t i;
  int k = 0;
  for (i = whole[0]; i <= m->n; i++) {
    struct dsh_log_info info;
    struct dsh_error err;
    int mode;
    while (k + 1 < n && whole[k + 1] <= i)
      k++;
    write_file(path, m->p, i);
    mode = mode_of(path, &err, &info);
    assert_int_not_equal(mode, -2);
    assert_true(width(mode) <= width(modes[k]));
    assert_true(info.events >= events[k]);
    assert_int_equal(info.tail.torn, whole[k] != i);
    heal(mode, events[k]);
    assert_int_equal(info.unverified > 0 && i == m->n, 0);
  }
}

static void cut_frames(void **state) {
  static const char *const texts[] = {
      "{\"type\":\"a\",\"seq\":0}\n{\"type\":\"sandbox/mode\",\"data\":"
      "{\"mode\":\"danger-full-access\"},\"seq\":1}\n",
      "{\"type\":\"sandbox/mode\",\"data\":{\"mode\":\"workspace-write\"},"
      "\"seq\":2}\n{\"type\":\"b\",\"seq\":3}\n",
      "{\"type\":\"sandbox/mode\",\"data\":{\"mode\":\"read-only\"},\"seq\":4}"
      "\n{\"type\":\"sandbox/mode\",\"data\":{\"mode\":\"danger-full-access\"},"
      "\"seq\":5}\n{\"type\":\"approval/policy\",\"data\":{\"policy\":\"ask\"}"
      ",\"seq\":6}\n{\"type\":\"permission/preset\",\"data\":{\"preset\":"
      "\"danger-full-access\"},\"seq\":7}\n{\"type\":\"sandbox/grant\",\"data\""
      ":{\"grants\":[{\"id\":\"g\",\"path\":\"/\"}]},\"seq\":8}\n",
      "{\"type\":\"text-chunks\",\"seq0\":9,\"data\":{\"dt\":[1,2]}}\n"};
  static const int modes[] = {-1, DSH_DANGER_FULL_ACCESS, DSH_WORKSPACE_WRITE,
                              DSH_DANGER_FULL_ACCESS, DSH_DANGER_FULL_ACCESS};
  static const uint64_t events[] = {0, 2, 4, 9, 12};
  struct made m = {0};
  size_t whole[5];
  int i;
  (void)state;
  made_text(&m, HEADER "\n");
  whole[0] = m.n;
  for (i = 0; i < 4; i++) {
    made_text(&m, texts[i]);
    whole[i + 1] = m.n;
  }
  cut_everywhere(&m, whole, modes, events, 5);
  free(m.p);
}

/* In the header: either its line was whole, and the log goes on, or refused. */
static void cut_header(void **state) {
  struct made m = {0};
  size_t i, healed = 0;
  (void)state;
  made_text(&m, HEADER "\n");
  for (i = 0; i <= m.n; i++) {
    struct dsh_log_info info;
    struct dsh_error err;
    write_file(path, m.p, i);
    if (mode_of(path, &err, &info) == -2) {
      assert_null(reopen(&info, &err));
      assert_int_equal(err.code, DSH_E_SESSION_CORRUPT);
    } else {
      heal(-1, 0);
      healed++;
    }
  }
  assert_true(healed >= 2);
  free(m.p);
}

static void cut_raw(void **state) {
  static const char text[] =
      HEADER "\n{\"type\":\"sandbox/mode\",\"data\":{\"mode\":\"read-only\"},"
      "\"seq\":0}\n{\"type\":\"x\",\"data\":{},\"seq\":1}\n";
  size_t i, head = strlen(HEADER);
  (void)state;
  for (i = head; i < sizeof text; i++) {
    struct dsh_log_info info;
    struct dsh_error err;
    int mode;
    write_file(path, text, i);
    mode = mode_of(path, &err, &info);
    assert_true(mode == -1 || mode == DSH_READ_ONLY);
    heal(mode, 0);
  }
}

/* A line that crosses into a frame which is lost: its beginning goes too. */
static void cut_crossing(void **state) {
  static const char line[] = "{\"type\":\"x\",\"data\":{},\"seq\":1}\n";
  struct made m = {0};
  size_t whole, i;
  (void)state;
  made_text(&m, HEADER "\n");
  made_text(&m, "{\"type\":\"x\",\"seq\":0}\n{\"type\":\"x\",");
  whole = m.n;
  made_text(&m, line + 12);
  for (i = whole; i <= m.n; i++) {
    struct dsh_log_info info;
    struct dsh_error err;
    write_file(path, m.p, i);
    assert_int_equal(mode_of(path, &err, &info), -1);
    assert_true(info.events >= 1);
    heal(-1, 1);
  }
  free(m.p);
}

static void pinned(void **state) {
  struct made m = {0};
  struct dsh_log_info info;
  struct dsh_error err;
  struct dsh_fold f;
  char line[128];
  (void)state;
  made_text(&m, HEADER "\n");
  mode_text(line, sizeof line, 0, "workspace-write");
  made_text(&m, line);
  mode_text(line, sizeof line, 1, "danger-full-access");
  made_text(&m, line);
  write_file(path, m.p, m.n - 4); /* all but the checksum: the line is kept */
  heal(DSH_WORKSPACE_WRITE, 2);
  assert_int_equal(dsh_log_verify(path, 1, &f, &info, &err), 0);
  assert_int_equal(info.events, 4); /* kept, pinned, and the append */
  assert_int_equal(info.unverified, 0);
  assert_int_equal(info.frames, 4);
  assert_int_equal(f.mode_seq, 2);
  assert_int_equal(f.mode, DSH_WORKSPACE_WRITE);
  dsh_fold_free(&f);
  free(m.p);
}

/* As mode_of, by the plain reading alone: there are very many cuts. */
static int mode_once(struct dsh_log_info *info) {
  struct dsh_error err;
  struct dsh_fold f;
  int rc = dsh_log_verify(path, 1, &f, info, &err);
  int mode = rc ? -2 : f.has_mode ? (int)f.mode : -1;
  dsh_fold_free(&f);
  return mode;
}

/* Cut number i of this file: what the whole frames before it say, bounds
 * what the rest may add. Every STEP-th one is appended to as well. */
static void cut_file(const char *file) {
  enum { STEP = 29, FRAMES_MAX = 64 };
  struct made m = {0};
  struct dsh_walk w;
  struct dsh_frame f;
  struct dsh_error err;
  struct dsh_log_info info;
  size_t ends[FRAMES_MAX], n = 0, k = 0, i;
  int modes[FRAMES_MAX];
  uint64_t events[FRAMES_MAX];
  char buf[4096];
  ssize_t got;
  int fd = open(file, O_RDONLY);
  assert_true(fd >= 0);
  while ((got = read(fd, buf, sizeof buf)) > 0)
    made_add(&m, buf, (size_t)got);
  assert_int_equal(dsh_walk_init(&w, fd, 0, m.n, &err), 0);
  while (dsh_walk_next(&w, &f, &err) == 0 && f.kind == DSH_FRAME_DATA) {
    assert_true(n < FRAMES_MAX);
    ends[n] = f.at + f.size;
    write_file(path, m.p, ends[n]);
    modes[n] = mode_of(path, &err, &info);
    events[n++] = info.events;
  }
  dsh_walk_free(&w);
  close(fd);
  for (i = ends[0]; i <= m.n; i++) {
    int mode;
    while (k + 1 < n && ends[k + 1] <= i)
      k++;
    write_file(path, m.p, i);
    mode = mode_once(&info);
    assert_int_not_equal(mode, -2);
    assert_true(width(mode) <= width(modes[k]));
    assert_true(info.events >= events[k]);
    if (i % STEP == 0)
      heal(mode, events[k]);
  }
  free(m.p);
}

static void cut_fixtures(void **state) {
  glob_t g;
  size_t i;
  (void)state;
  if (glob("spec/fixtures/dsh-sessions*/*/*/session.jsonl.zstd", 0, NULL,
           &g) != 0) {
    skip(); /* not run from the top of the tree */
    return;
  }
  assert_int_equal(g.gl_pathc, 18);
  for (i = 0; i < g.gl_pathc; i++)
    cut_file(g.gl_pathv[i]);
  globfree(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      T(cut_frames), T(cut_header), T(cut_raw), T(cut_crossing), T(pinned),
      T(cut_fixtures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
