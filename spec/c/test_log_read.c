/* test_log_read.c: scanner, frames, reader, fold. */
#include "loghelp.h"
#include "frame.h"

#include <sys/resource.h>

/* --- the scanner --------------------------------------------------------- */

static int scan(const char *s, struct dsh_line *out) {
  static char buf[1 << 16];
  const char *why = NULL;
  size_t n = strlen(s), at = 0;
  int rc;
  memset(buf, 'x', sizeof buf);
  memcpy(buf, s, n);
  buf[n] = '\n';
  rc = dsh_line_scan(buf, n, out, &why, &at);
  assert_int_equal(rc != 0, why != NULL);
  assert_true(at <= n);
  return rc;
}

static void scanner_takes(void **state) {
  static const char *const good[] = {
      "{}", " { } ", "{\"a\":1}", "{\"a\":-0.5e+10,\"b\":[],\"c\":{}}",
      "{\"a\":[1,[2,{\"b\":[null,true,false]}],\"\\u00e9\\n\"]}",
      "{\"a\":\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"}", "{\"\":\"\"}",
      "{\"a\" : [ 1 , 2 ] , \"b\" : 0 }\r",
      "{\"a\":\"0123456789abcdef0123456789abcdef\"}"};
  struct dsh_line l;
  size_t i;
  (void)state;
  for (i = 0; i < sizeof good / sizeof *good; i++)
    if (scan(good[i], &l) != 0)
      fail_msg("refused: %s", good[i]);
}

static void scanner_refuses(void **state) {
  static const char *const bad[] = {
      "", " ", "[]", "1", "{", "}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}",
      "{a:1}", "{\"a\":1}}", "{\"a\":1} x", "{\"a\":01}", "{\"a\":1.}",
      "{\"a\":.5}", "{\"a\":+1}", "{\"a\":1e}", "{\"a\":tru}", "{\"a\":nul}",
      "{\"a\":\"}", "{\"a\":\"\t\"}", "{\"a\":\"\\x\"}", "{\"a\":\"\\u12g4\"}",
      "{\"a\":\"\\\"}", "{\"a\":[1 2]}", "{\"a\":[1,]}", "{\"a\":[}",
      "{\"a\":{]}", "{\"a\":\"\x80\"}", "{\"a\":\"\xc0\xaf\"}",
      "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\xf4\x90\x80\x80\"}",
      "{\"a\":\"\xe2\x82\"}", "{\"a\":\"\xe0\x80\xaf\"}", "{\"a\":NaN}",
      "{\"a\":1", "{\"a\":\"b", "{\"a\":[", "{\"a\":t", "{,}", "{\"a\"1}"};
  struct dsh_line l;
  size_t i;
  (void)state;
  for (i = 0; i < sizeof bad / sizeof *bad; i++)
    if (scan(bad[i], &l) == 0)
      fail_msg("taken: %s", bad[i]);
}

static void scanner_depth(void **state) {
  char s[3000];
  struct dsh_line l;
  int over;
  (void)state;
  /* the object is level 1 */
  for (over = 0; over < 2; over++) {
    int n = DSH_JSON_DEPTH - 1 + over;
    strcpy(s, "{\"a\":");
    memset(s + 5, '[', (size_t)n);
    memset(s + 5 + n, ']', (size_t)n);
    strcpy(s + 5 + 2 * n, "}");
    assert_int_equal(scan(s, &l), over ? -1 : 0);
  }
}

static void scanner_members(void **state) {
  struct dsh_line l;
  (void)state;
  assert_int_equal(scan("{\"type\":\"sandbox/mode\",\"seq\":7}", &l), 0);
  assert_int_equal(l.kind, DSH_KIND_MODE);
  assert_true(l.has_seq && l.seq == 7);
  assert_int_equal(scan("{\"\\u0074ype\":\"sandbox\\/mode\"}", &l), 0);
  assert_int_equal(l.kind, DSH_KIND_MODE);
  assert_int_equal(scan("{\"ty\\u0070e\":\"sandbox\\u002Fmode\"}", &l), 0);
  assert_int_equal(l.kind, DSH_KIND_MODE);
  assert_int_equal(
      scan("{\"type\":\"sandbox/mode\",\"type\":\"other\"}", &l), 0);
  assert_int_equal(l.kind, DSH_KIND_OTHER);
  assert_int_equal(scan("{\"type\":\"a\",\"type\":\"sandbox/mode\"}", &l), 0);
  assert_int_equal(l.kind, DSH_KIND_MODE);
  assert_int_equal(scan("{\"type\":1,\"data\":{\"type\":\"sandbox/mode\"},"
                        "\"x\":\"\\\"type\\\":\\\"sandbox/mode\\\"\"}", &l), 0);
  assert_int_equal(l.kind, DSH_KIND_OTHER);
  assert_null(l.type);
  assert_int_equal(scan("{\"type\":\"text-chunks\",\"seq0\":3,\"data\":"
                        "{\"dt\":[1,[2],\"x,y\"],\"texts\":[]}}", &l), 0);
  assert_int_equal(l.kind, DSH_KIND_CHUNKS);
  assert_true(l.has_dt && l.dt == 3 && l.has_seq0 && l.seq0 == 3);
  assert_int_equal(scan("{\"seq\":1.0,\"seq0\":-1}", &l), 0);
  assert_false(l.has_seq || l.has_seq0);
  assert_int_equal(scan("{\"seq\":99999999999999999999}", &l), 0);
  assert_false(l.has_seq);
}

/* --- frames -------------------------------------------------------------- */

static void many_frames(void **state) {
  struct made m = {0};
  struct dsh_log_info info;
  struct dsh_error err;
  char line[256];
  int i;
  (void)state;
  made_text(&m, HEADER "\n");
  for (i = 0; i < 1000; i++) {
    event_text(line, sizeof line, i, "x", "{}");
    made_text(&m, line);
    if (i % 100 == 0)
      made_text(&m, "");
    if (i % 70 == 0)
      made_skip(&m, 9);
  }
  write_file(path, m.p, m.n);
  assert_int_equal(mode_of(path, &err, &info), -1);
  assert_int_equal(info.events, 1000);
  assert_false(info.tail.torn);
  free(m.p);
}

/* A frame's header by hand: descriptor, window, content size of 8 bytes. */
static void hand_frame(struct made *m, unsigned fhd, int window,
                       uint64_t content, const char *block) {
  unsigned char b[32] = {0x28, 0xb5, 0x2f, 0xfd};
  size_t n = 4, i, len = strlen(block);
  b[n++] = (unsigned char)fhd;
  if (window >= 0)
    b[n++] = (unsigned char)window;
  if (fhd >> 6 == 3)
    for (i = 0; i < 8; i++)
      b[n++] = (unsigned char)(content >> 8 * i);
  made_add(m, b, n);
  b[0] = (unsigned char)(len << 3 | 1);
  b[1] = (unsigned char)(len >> 5);
  b[2] = 0;
  made_add(m, b, 3);
  made_add(m, block, len);
}

static const char *refusal(const struct made *m) {
  static struct dsh_error err;
  struct dsh_log_info info;
  write_file(path, m->p, m->n);
  assert_int_equal(mode_of(path, &err, &info), -2);
  assert_int_equal(err.code, DSH_E_SESSION_CORRUPT);
  return err.message;
}

static void claims(void **state) {
  struct made m = {0};
  struct rusage before, after;
  size_t head;
  (void)state;
  made_text(&m, HEADER "\n");
  head = m.n;
  getrusage(RUSAGE_SELF, &before);
  hand_frame(&m, 0xc0, 0x58, (uint64_t)1 << 40, "x");
  assert_non_null(strstr(refusal(&m), "4 GiB"));
  m.n = head;
  hand_frame(&m, 0xe0, -1, (uint64_t)1 << 40, "x"); /* single segment */
  assert_non_null(strstr(refusal(&m), "4 GiB"));
  m.n = head;
  hand_frame(&m, 0xc0, 0x58, 1 << 20, "x");
  assert_non_null(strstr(refusal(&m), "more than its blocks hold"));
  m.n = head;
  hand_frame(&m, 0x00, (31 - 10) << 3, 0, "x"); /* a window of 2 GiB */
  assert_non_null(strstr(refusal(&m), "window"));
  m.n = head;
  hand_frame(&m, 0x00, ((27 - 10) << 3) + 1, 0, "x"); /* one step too far */
  assert_non_null(strstr(refusal(&m), "window"));
  m.n = head;
  hand_frame(&m, 0x08, 0x58, 0, "x");
  assert_non_null(strstr(refusal(&m), "reserved"));
  m.n = head;
  hand_frame(&m, 0x01, 0x58, 0, "x");
  assert_non_null(strstr(refusal(&m), "dictionary"));
  getrusage(RUSAGE_SELF, &after);
  assert_true(after.ru_maxrss - before.ru_maxrss < 16 << 10);
  free(m.p);
}

static void window_at_limit(void **state) {
  struct made m = {0};
  struct dsh_log_info info;
  struct dsh_error err;
  (void)state;
  made_text(&m, HEADER "\n");
  hand_frame(&m, 0x00, (27 - 10) << 3, 0,
             "{\"type\":\"sandbox/mode\",\"data\":{\"mode\":\"read-only\"},"
             "\"seq\":0}\n");
  write_file(path, m.p, m.n);
  assert_int_equal(mode_of(path, &err, &info), DSH_READ_ONLY);
  assert_int_equal(info.unverified, 1); /* it has no checksum */
  free(m.p);
}

static void junk(void **state) {
  static const char *const tails[] = {"junk", "x", "{\"type\":\"x\"}\n",
                                      "\x28\xb5\x2f\xfe", "(\xb5x",
                                      "\0\0\0\0\0"};
  struct made m = {0};
  size_t i, head;
  (void)state;
  made_text(&m, HEADER "\n");
  head = m.n;
  for (i = 0; i < sizeof tails / sizeof *tails; i++) {
    m.n = head;
    made_add(&m, tails[i], tails[i][0] ? strlen(tails[i]) : 5);
    refusal(&m);
  }
  /* three bytes of a magic may be a frame's beginning */
  m.n = head;
  made_add(&m, "\x28\xb5\x2f", 3);
  write_file(path, m.p, m.n);
  {
    struct dsh_log_info info;
    struct dsh_error err;
    assert_int_equal(mode_of(path, &err, &info), -1);
    assert_true(info.tail.torn && info.tail.at == head);
  }
  free(m.p);
}

/* --- long lines, long frames, many frames -------------------------------- */

static void long_line(void **state) {
  static const char head[] = "{\"type\":\"x\",\"seq\":0,\"s\":\"";
  size_t over, n;
  (void)state;
  for (over = 0; over < 2; over++) {
    struct made m = {0};
    struct dsh_log_info info;
    struct dsh_error err;
    struct dsh_fold f;
    char *text;
    int rc;
    n = DSH_LINE_MAX + over;
    text = malloc(n + 1);
    assert_non_null(text);
    memset(text, 'a', n);
    memcpy(text, head, sizeof head - 1);
    memcpy(text + n - 2, "\"}", 2);
    text[n] = '\n';
    made_text(&m, HEADER "\n");
    made_frame(&m, text, n + 1, 1);
    free(text);
    write_file(path, m.p, m.n);
    free(m.p);
    rc = dsh_log_verify(path, 1, &f, &info, &err);
    assert_int_equal(rc, over ? -1 : 0);
    if (over)
      assert_non_null(strstr(err.message, "over 64 MiB"));
    else
      assert_int_equal(info.unverified, 0);
    dsh_fold_free(&f);
  }
}

static void long_frame(void **state) {
  struct made m = {0}, t = {0};
  struct dsh_log_info info;
  struct dsh_error err;
  char line[128];
  int i;
  (void)state;
  made_text(&m, HEADER "\n");
  for (i = 0; i < 60000; i++) {
    if (i == 59000)
      mode_text(line, sizeof line, i, "workspace-write");
    else
      event_text(line, sizeof line, i, "x", "{\"a\":[1,2,3]}");
    made_add(&t, line, strlen(line));
  }
  made_frame(&m, t.p, t.n, 1);
  write_file(path, m.p, m.n);
  assert_int_equal(mode_of(path, &err, &info), DSH_WORKSPACE_WRITE);
  assert_int_equal(info.events, 60000);
  /* its checksum damaged: none of its lines may count */
  m.p[m.n - 1] ^= 1;
  write_file(path, m.p, m.n);
  assert_int_equal(mode_of(path, &err, &info), -2);
  /* cut: the complete lines stay, unverified */
  write_file(path, m.p, m.n - 5);
  assert_int_equal(mode_of(path, &err, &info), DSH_READ_ONLY);
  assert_true(info.tail.torn && info.events > 50000);
  free(m.p);
  free(t.p);
}

static void million_frames(void **state) {
  struct made m = {0}, one = {0};
  struct dsh_log_info info;
  struct dsh_error err;
  struct dsh_fold f;
  struct rusage before, after;
  int i;
  (void)state;
  made_text(&m, HEADER "\n");
  made_text(&one, "");
  for (i = 0; i < 1000000; i++)
    made_add(&m, one.p, one.n);
  write_file(path, m.p, m.n);
  free(m.p);
  free(one.p);
  getrusage(RUSAGE_SELF, &before);
  assert_int_equal(dsh_log_verify(path, 1, &f, &info, &err), 0);
  assert_int_equal(info.frames, 1000001);
  assert_int_equal(dsh_log_verify(path, 2, &f, &info, &err), 0);
  getrusage(RUSAGE_SELF, &after);
  assert_true(after.ru_maxrss - before.ru_maxrss < 10 << 10);
}

/* --- defects ------------------------------------------------------------- */

static void defects(void **state) {
  static const struct {
    const char *line;
    enum dsh_code code;
    const char *why;
  } cases[] = {
      {"{\"type\":\"x\",\"seq\":2}\n", DSH_E_SESSION_CORRUPT, "contiguous"},
      {"{\"type\":\"x\",\"seq\":0}\n", DSH_E_SESSION_CORRUPT, "contiguous"},
      {"{\"type\":\"x\"}\n", DSH_E_SESSION_CORRUPT, "no seq"},
      {"{\"seq\":1}\n", DSH_E_SESSION_CORRUPT, "no type"},
      {"{\"type\":\"x\",\"seq\":1\n", DSH_E_SESSION_CORRUPT, "comma"},
      {"\n", DSH_E_SESSION_CORRUPT, "not an object"},
      {"{\"type\":\"x\xff\",\"seq\":1}\n", DSH_E_SESSION_CORRUPT, "UTF-8"},
      {"{\"type\":\"text-chunks\",\"seq0\":1,\"data\":{}}\n",
       DSH_E_SESSION_CORRUPT, "dt"},
      {"{\"type\":\"sandbox/mode\",\"data\":{\"mode\":\"root\"},\"seq\":1}\n",
       DSH_E_INVARIANT, "unknown mode \"root\""},
      {"{\"type\":\"sandbox/mode\",\"data\":{},\"seq\":1}\n", DSH_E_INVARIANT,
       "names no mode"},
      {"{\"type\":\"sandbox/mode\",\"seq\":1}\n", DSH_E_INVARIANT,
       "names no mode"},
  };
  size_t i, at;
  int raw;
  (void)state;
  for (raw = 0; raw < 2; raw++)
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
      struct made m = {0};
      struct dsh_log_info info;
      struct dsh_error err;
      static const char first[] = HEADER "\n{\"type\":\"x\",\"seq\":0}\n";
      static const char last[] = "{\"type\":\"x\",\"seq\":2}\n";
      if (raw)
        made_add(&m, first, strlen(first));
      else
        made_text(&m, first);
      at = m.n;
      if (raw)
        made_add(&m, cases[i].line, strlen(cases[i].line));
      else
        made_text(&m, cases[i].line);
      if (raw)
        made_add(&m, last, strlen(last));
      else
        made_text(&m, last);
      write_file(path, m.p, m.n);
      free(m.p);
      assert_int_equal(mode_of(path, &err, &info), -2);
      assert_int_equal(err.code, cases[i].code);
      if (!strstr(err.message, cases[i].why))
        fail_msg("%s: %s", cases[i].line, err.message);
      assert_int_equal(info.line, 3);
      if (raw) /* there, the very byte of a syntax error */
        assert_in_range(info.at, at, at + strlen(cases[i].line));
      else
        assert_int_equal(info.at, at);
    }
}

/* One flipped bit anywhere before the last frame is an error that names a
 * place, or changes nothing that we say; never a shortened log. */
static void flips(void **state) {
  struct made m = {0};
  struct dsh_log_info info;
  struct dsh_error err;
  char line[256];
  size_t i, last = 0;
  (void)state;
  made_text(&m, HEADER "\n");
  for (i = 0; i < 6; i++) {
    last = m.n;
    mode_text(line, sizeof line, (int)i, i % 2 ? "read-only"
                                               : "danger-full-access");
    made_text(&m, line);
  }
  for (i = 0; i < last * 8; i++) {
    int mode;
    m.p[i / 8] ^= (unsigned char)(1 << i % 8);
    write_file(path, m.p, m.n);
    mode = mode_of(path, &err, &info);
    if (mode != -2)
      assert_true(mode == DSH_READ_ONLY && info.events == 6);
    m.p[i / 8] ^= (unsigned char)(1 << i % 8);
  }
  free(m.p);
}

/* --- widening ------------------------------------------------------------ */

static void unverified(void **state) {
  static const struct {
    const char *modes; /* a letter each; upper case: with a checksum */
    int want;
  } cases[] = {
      {"", -1}, {"W", DSH_WORKSPACE_WRITE}, {"w", DSH_READ_ONLY},
      {"d", DSH_READ_ONLY}, {"r", DSH_READ_ONLY},
      {"Wd", DSH_WORKSPACE_WRITE}, {"Wr", DSH_READ_ONLY},
      {"Dw", DSH_WORKSPACE_WRITE}, {"Dwd", DSH_WORKSPACE_WRITE},
      {"DwD", DSH_DANGER_FULL_ACCESS}, {"Dr", DSH_READ_ONLY},
      {"Drw", DSH_READ_ONLY}, {"RdW", DSH_WORKSPACE_WRITE},
  };
  static const char *const names[] = {"read-only", "workspace-write",
                                      "danger-full-access"};
  size_t i;
  (void)state;
  for (i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct made m = {0}, raw = {0};
    struct dsh_log_info info;
    struct dsh_error err;
    char line[256];
    int k;
    made_text(&m, HEADER "\n");
    made_add(&raw, HEADER "\n", strlen(HEADER) + 1);
    for (k = 0; cases[i].modes[k]; k++) {
      char c = cases[i].modes[k];
      mode_text(line, sizeof line, k,
                names[strchr("rwd", c | 0x20) - "rwd"]);
      made_frame(&m, line, strlen(line), c < 'a');
      made_add(&raw, line, strlen(line));
    }
    write_file(path, m.p, m.n);
    assert_int_equal(mode_of(path, &err, &info), cases[i].want);
    write_file(path, raw.p, raw.n); /* raw: never wider than read-only */
    assert_int_equal(mode_of(path, &err, &info),
                     *cases[i].modes ? DSH_READ_ONLY : -1);
    free(m.p);
    free(raw.p);
  }
}

/* The last frame cut at every byte: its widening counts only when whole. */
static void cut_widening(void **state) {
  struct made m = {0};
  struct dsh_log_info info;
  struct dsh_error err;
  char line[256];
  size_t ws, full, i;
  (void)state;
  made_text(&m, HEADER "\n");
  ws = m.n;
  mode_text(line, sizeof line, 0, "workspace-write");
  made_text(&m, line);
  full = m.n;
  mode_text(line, sizeof line, 1, "danger-full-access");
  made_text(&m, line);
  for (i = 0; i <= m.n; i++) {
    int mode;
    write_file(path, m.p, i);
    mode = mode_of(path, &err, &info);
    if (i < ws - 4)
      assert_int_equal(mode, -2); /* no header line */
    else if (i < full)
      assert_true(mode == -1 || mode == DSH_READ_ONLY);
    else
      assert_int_equal(mode, i < m.n ? DSH_WORKSPACE_WRITE
                                     : DSH_DANGER_FULL_ACCESS);
  }
  free(m.p);
}

/* --- following ----------------------------------------------------------- */

static void follow(void **state) {
  struct made m = {0};
  struct dsh_rec rec;
  struct dsh_error err;
  struct dsh_log *log;
  char line[128];
  size_t i, from;
  int seen = 0, k;
  (void)state;
  made_text(&m, HEADER "\n");
  write_file(path, m.p, m.n);
  log = dsh_log_open(path, DSH_LOG_FOLLOW, &err);
  assert_non_null(log);
  assert_int_equal(dsh_log_next(log, &rec, &err), 1);
  assert_int_equal(dsh_log_next(log, &rec, &err), 0);
  assert_int_equal(dsh_log_poll(log, 0, &err), 0);
  for (k = 0; k < 5; k++) {
    event_text(line, sizeof line, k, "x", "{}");
    from = m.n;
    made_text(&m, line);
    for (i = from + 1; i <= m.n; i++) {
      int fd = open(path, O_WRONLY | O_APPEND);
      assert_int_equal(write(fd, m.p + i - 1, 1), 1);
      close(fd);
      assert_int_equal(dsh_log_poll(log, 0, &err), 1);
      while (dsh_log_next(log, &rec, &err) == 1) {
        assert_int_equal(rec.seq, seen++);
        assert_true(rec.verified && i == m.n);
      }
    }
  }
  assert_int_equal(seen, 5);
  assert_int_equal(truncate(path, 10), 0);
  assert_int_equal(dsh_log_poll(log, 0, &err), -1);
  dsh_log_close(log);
  free(m.p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      T(scanner_takes),   T(scanner_refuses), T(scanner_depth),
      T(scanner_members), T(claims),          T(many_frames),
      T(window_at_limit), T(junk),            T(million_frames),
      T(long_frame),      T(defects),         T(flips),
      T(unverified),      T(cut_widening),    T(follow),
      T(long_line),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
