/* test_log_random.c: generated logs, folded by every way there is and by a
 * plain reading of each line with a JSON library; all must agree. */
#include "loghelp.h"

#include <jansson.h>

static unsigned long long seed;

static unsigned draw(unsigned n) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return (unsigned)(seed >> 33) % n;
}

struct text {
  char *s;
  size_t n, cap;
};

static void put(struct text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *fmt, ...) {
  va_list ap;
  int n;
  if (t->cap - t->n < 8192) {
    t->cap = t->cap * 2 + 16384;
    t->s = realloc(t->s, t->cap);
    assert_non_null(t->s);
  }
  va_start(ap, fmt);
  n = vsnprintf(t->s + t->n, t->cap - t->n, fmt, ap);
  va_end(ap);
  assert_true(n >= 0 && (size_t)n < t->cap - t->n);
  t->n += (size_t)n;
}

static const char *const modes[] = {"read-only", "workspace-write",
                                    "danger-full-access"};

static const char *pick(const char *const *list, unsigned n) {
  return list[draw(n)];
}
#define PICK(list) pick(list, sizeof list / sizeof *list)

/* Words that look like what matters, inside strings and nested objects. */
static void decoy(struct text *t) {
  static const char *const decoys[] = {
      "\"sandbox/mode\"", "\"{\\\"type\\\":\\\"sandbox/mode\\\"}\"",
      "{\"type\":\"sandbox/mode\",\"data\":{\"mode\":\"danger-full-access\"},"
      "\"seq\":3}",
      "[{\"seq\":9},\"\\\\\",\"\\\\\\\"type\\\":\"]",
      "\"\\ud83d\\ude00 \xc3\xa9\"",
      "\"}\\n{\\\"type\\\":\\\"sandbox/mode\\\",\"", "-1.5e3", "[[],{},[{}]]",
      "{\"dt\":[1,2,3],\"mode\":\"danger-full-access\"}", "null"};
  put(t, "%s", PICK(decoys));
}

static void noise(struct text *t, unsigned n) {
  static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789+/"
                            "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  while (n--)
    put(t, "%c", set[draw(64)]);
}

static void policy_data(struct text *t, const char **type) {
  switch (draw(6)) {
  case 0:
    *type = "permission/preset";
    put(t, "{\"preset\":\"%s\"}", draw(3) ? PICK(modes) : "build");
    return;
  case 1:
    *type = "approval/policy";
    put(t, "{\"policy\":\"%s\"}", draw(2) ? "ask" : "never");
    return;
  case 2:
    *type = draw(2) ? "sandbox/grant" : "sandbox/revoke";
    put(t, "{\"id\":\"g\",\"grants\":[%s]}",
        draw(2) ? "{\"id\":\"g\",\"path\":\"/p\",\"access\":\"write\"}" : "");
    return;
  case 3:
    *type = "sandbox/mode";
    put(t, "{\"mode\":\"%s\",\"mode\":\"%s\"}", PICK(modes), PICK(modes));
    return;
  default:
    *type = "sandbox/mode";
    put(t, "{\"x\":");
    decoy(t);
    put(t, ",\"mode\":\"%s\"}", PICK(modes));
    return;
  }
}

static void type_member(struct text *t, const char *type) {
  static const char *const keys[] = {"type", "type", "type", "\\u0074ype",
                                     "t\\u0079pe", "typ\\u0065"};
  const char *p;
  if (draw(12) == 0)
    put(t, "\"type\":\"%s\",", draw(2) ? "sandbox/mode" : "y");
  put(t, "\"%s\":\"", PICK(keys));
  for (p = type; *p; p++)
    if (draw(30) == 0)
      put(t, "\\u%04x", (unsigned char)*p);
    else
      put(t, *p == '/' && draw(4) == 0 ? "\\/" : "%c", *p);
  put(t, "\"");
}

/* An event's line; *seq moves on. */
static void line(struct text *t, int *seq, unsigned padding) {
  struct text data = {0};
  const char *type = "x/y", *space = draw(20) ? "" : " ";
  unsigned kind = draw(10);
  int at = *seq, i, n;
  if (kind == 0) {
    n = (int)draw(5);
    put(t, "{\"type\":\"text-chunks\",\"seq0\":%d,\"data\":{\"dt\":[", at);
    for (i = 0; i < n; i++)
      put(t, "%s%u", i ? "," : "", draw(99));
    put(t, "],\"texts\":[");
    decoy(t);
    put(t, "]}}\n");
    *seq += n + 1;
    return;
  }
  ++*seq;
  if (kind < 4) {
    policy_data(&data, &type);
  } else {
    put(&data, "{\"a\":");
    decoy(&data);
    put(&data, ",\"b\":\"");
    noise(&data, draw(padding + 1));
    put(&data, "\"}");
  }
  put(t, "{%s", space);
  if (draw(3) == 0) { /* another order of the members */
    put(t, "\"seq\":%d,\"data\":%s,", at, data.s);
    type_member(t, type);
  } else {
    type_member(t, type);
    put(t, "%s,\"data\":%s,\"seq\":%d,\"time\":1", space, data.s, at);
  }
  put(t, "%s}\n", space);
  free(data.s);
}

/* --- the reference ------------------------------------------------------- */

static void apply(struct dsh_fold *f, const char *s, size_t n, bool verified) {
  json_t *v = json_loadb(s, n, 0, NULL), *data = json_object_get(v, "data");
  const char *type = json_string_value(json_object_get(v, "type"));
  const char *m = json_string_value(json_object_get(data, "mode"));
  const char *p = json_string_value(json_object_get(data, "policy"));
  assert_non_null(v);
  if (strcmp(type, "sandbox/mode") == 0 && m) {
    int i, now = f->has_mode ? (int)f->mode : 0;
    for (i = 0; strcmp(modes[i], m) != 0; i++)
      ;
    f->has_mode = true;
    f->mode = (enum dsh_mode)(verified || i < now ? i : now);
  } else if (verified && strcmp(type, "permission/preset") == 0) {
    strcpy(f->preset, json_string_value(json_object_get(data, "preset")));
  } else if (verified && strcmp(type, "approval/policy") == 0) {
    f->approval = *p == 'a' ? DSH_APPROVAL_ASK : DSH_APPROVAL_NEVER;
  } else if (verified && (strcmp(type, "sandbox/grant") == 0 ||
                          strcmp(type, "sandbox/revoke") == 0)) {
    free(f->grants);
    f->grants = json_dumps(json_object_get(data, "grants"), JSON_COMPACT);
  }
  json_decref(v);
}

/* --- one log ------------------------------------------------------------- */

struct spec {
  int lines;
  unsigned padding;   /* bytes of noise in a line */
  unsigned unchecked; /* one frame in so many has no checksum; 0: none */
  bool across;        /* frames end anywhere, not at lines */
};

static void compare(const struct dsh_fold *want, const struct dsh_fold *got,
                    unsigned mask, bool all_verified) {
  if (mask & DSH_WANT_MODE) {
    assert_int_equal(want->has_mode, got->has_mode);
    assert_int_equal(want->mode, got->mode);
  }
  if (!all_verified)
    return;
  if (mask & DSH_WANT_PRESET)
    assert_string_equal(want->preset, got->preset);
  if (mask & DSH_WANT_APPROVAL)
    assert_int_equal(want->approval, got->approval);
  if (mask & DSH_WANT_GRANTS)
    assert_string_equal(want->grants ? want->grants : "-",
                        got->grants ? got->grants : "-");
}

/* A skippable frame that holds a whole one, which must not be found. */
static void hidden_frame(struct made *m) {
  static const char text[] =
      "{\"type\":\"sandbox/mode\",\"data\":{\"mode\":"
      "\"danger-full-access\"},\"seq\":0}\n";
  unsigned char head[8] = {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0};
  struct made inner = {0};
  made_text(&inner, text);
  head[4] = (unsigned char)inner.n;
  made_add(m, head, sizeof head);
  made_add(m, inner.p, inner.n);
  free(inner.p);
}

/* Frames over the text; unsafe[i] is set where a byte has no checksum. */
static void frames(struct made *m, const struct text *t, char *unsafe,
                   const struct spec *how) {
  size_t at = 0;
  while (at < t->n) {
    size_t n = 1 + draw(draw(4) ? 400 : 4000);
    int check = !how->unchecked || draw(how->unchecked) != 0;
    if (n > t->n - at)
      n = t->n - at;
    if (!how->across)
      n = (size_t)((char *)memchr(t->s + at + n - 1, '\n', t->n - at - n + 1) -
                   (t->s + at)) + 1;
    made_frame(m, t->s + at, n, check);
    memset(unsafe + at, !check, n);
    if (draw(15) == 0)
      made_text(m, "");
    if (draw(15) == 0)
      made_skip(m, draw(9));
    if (draw(15) == 0 || (how->lines > 5000 && draw(2)))
      hidden_frame(m);
    at += n;
  }
}

/* The same log with its end cut off: both ways of folding still agree. */
static void cut_ends(const struct made *m) {
  int i;
  for (i = 0; i < 6; i++) {
    size_t n = m->n - 1 - draw(m->n > 6000 ? 3000 : (unsigned)(m->n / 2));
    struct dsh_fold want, got;
    struct dsh_log_info info;
    struct dsh_error err;
    unsigned mask = 1 + draw(DSH_WANT_ALL);
    bool full;
    int rc;
    write_file(path, m->p, n);
    rc = dsh_log_verify(path, 1, &want, &info, &err);
    assert_int_equal(dsh_log_fold(path, mask, &got, &full, &err), rc);
    if (rc == 0)
      compare(&want, &got, mask, true);
    dsh_fold_free(&want);
    dsh_fold_free(&got);
  }
}

static void one_log(const struct spec *how) {
  struct text t = {0};
  struct made m = {0};
  struct dsh_fold want, got;
  struct dsh_log_info info;
  struct dsh_error err;
  bool all_verified = true, full;
  char *unsafe, *p;
  unsigned mask;
  int seq = 0, i, threads;
  for (i = 0; i < how->lines; i++)
    line(&t, &seq, how->padding);
  unsafe = calloc(1, t.n);
  made_text(&m, HEADER "\n");
  frames(&m, &t, unsafe, how);
  write_file(path, m.p, m.n);
  dsh_fold_init(&want);
  for (p = t.s; p < t.s + t.n;) {
    char *nl = memchr(p, '\n', (size_t)(t.s + t.n - p));
    bool verified = !memchr(unsafe + (p - t.s), 1, (size_t)(nl - p) + 1);
    all_verified &= verified;
    apply(&want, p, (size_t)(nl - p), verified);
    p = nl + 1;
  }
  for (threads = 1; threads < 3; threads++) {
    if (dsh_log_verify(path, threads, &got, &info, &err) != 0)
      fail_msg("%s", err.message);
    assert_int_equal(info.events, seq);
    assert_int_equal(info.lines, how->lines + 1);
    compare(&want, &got, DSH_WANT_ALL, all_verified);
    dsh_fold_free(&got);
  }
  for (mask = 1; mask <= DSH_WANT_ALL; mask++) {
    assert_int_equal(dsh_log_fold(path, mask, &got, &full, &err), 0);
    compare(&want, &got, mask, all_verified);
    dsh_fold_free(&got);
  }
  dsh_fold_free(&want);
  cut_ends(&m);
  free(unsafe);
  free(t.s);
  free(m.p);
}

static void many(const struct spec *how, int rounds) {
  const char *env = getenv("DSH_ROUNDS");
  int i;
  if (env)
    rounds *= atoi(env);
  for (i = 0; i < rounds; i++) {
    seed = 88172645463325252u + (unsigned)i * 7919u;
    one_log(how);
  }
}

static void short_logs(void **state) {
  (void)state;
  many(&(struct spec){6, 40, 0, false}, 400);
}

static void short_across(void **state) {
  (void)state;
  many(&(struct spec){12, 200, 0, true}, 400);
}

static void short_unchecked(void **state) {
  (void)state;
  many(&(struct spec){10, 100, 3, true}, 400);
}

static void long_logs(void **state) { /* several segments */
  (void)state;
  many(&(struct spec){800, 1000, 0, false}, 8);
}

static void long_across(void **state) {
  (void)state;
  many(&(struct spec){800, 1000, 0, true}, 8);
}

static void long_unchecked(void **state) {
  (void)state;
  many(&(struct spec){800, 1000, 200, false}, 8);
}

static void huge_logs(void **state) { /* walked from two ends */
  (void)state;
  many(&(struct spec){9000, 3000, 0, false}, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      T(short_logs), T(short_across), T(short_unchecked),
      T(long_logs),  T(long_across),  T(long_unchecked), T(huge_logs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
