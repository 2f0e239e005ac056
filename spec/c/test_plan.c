/* Planners are pure: the same launch record gives the same words on any host.
 * The words are compared with spec/fixtures/plans/NAME, one a line; with
 * DSH_GOLDEN=write they are written there instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend.h"

enum { TEXT_MAX = 1 << 20 };

struct setup {
  struct dsh_arena a;
  struct dsh_policy policy;
  struct dsh_roots roots;
  struct dsh_root root[16];
  struct dsh_host host;
  struct dsh_strv command;
  struct dsh_launch in;
};

static void begin(struct setup *s, enum dsh_mode mode) {
  memset(s, 0, sizeof *s);
  dsh_arena_init(&s->a);
  s->policy.mode = mode;
  s->policy.workspace_root = "/home/u/w";
  s->roots.root = s->root;
  s->roots.workspace = "/home/u/w";
  dsh_strv_add(&s->a, &s->command, "/opt/runner");
  dsh_strv_add(&s->a, &s->command, "--quiet");
  s->in = (struct dsh_launch){&s->policy,
                              &s->roots,
                              &s->host,
                              "/usr/libexec/dshsh/landlock-run",
                              "/usr/bin/bwrap",
                              &s->command};
}

static void root(struct setup *s, const char *path) {
  s->root[s->roots.n].directory = true;
  s->root[s->roots.n++].path = path;
}

static void usual_roots(struct setup *s) {
  root(s, "/dev/shm");
  root(s, "/home/u/w");
  root(s, "/tmp");
}

static void protect(struct setup *s, const char *path) {
  dsh_strv_add(&s->a, &s->roots.protected_, path);
}

static char *joined(const struct dsh_strv *v) {
  char *text = calloc(1, TEXT_MAX);
  size_t i;
  assert_non_null(text);
  for (i = 0; i < v->n; i++) {
    strcat(text, v->v[i]);
    strcat(text, "\n");
  }
  return text;
}

static void golden(const char *name, const char *text) {
  char path[256], *kept = calloc(1, TEXT_MAX);
  const char *write = getenv("DSH_GOLDEN");
  FILE *f;
  assert_non_null(kept);
  snprintf(path, sizeof path, "spec/fixtures/plans/%s", name);
  if (write && strcmp(write, "write") == 0) {
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
  }
  f = fopen(path, "r");
  if (!f)
    fail_msg("%s is missing", path);
  assert_true(fread(kept, 1, TEXT_MAX - 1, f) > 0);
  fclose(f);
  assert_string_equal(text, kept);
  free(kept);
}

static void check(struct setup *s, const struct dsh_backend *b,
                  const char *name) {
  struct dsh_strv out = {NULL, 0, 0};
  struct dsh_error err = {0};
  char *text;
  if (b->plan(&s->a, &s->in, &out, &err) != 0)
    fail_msg("%s", err.message);
  assert_null(out.v[out.n]);
  assert_string_equal(out.v[out.n - 1], "--");
  text = joined(&out);
  golden(name, text);
  free(text);
  dsh_arena_free(&s->a);
}

static void refuses(struct setup *s, const struct dsh_backend *b,
                    enum dsh_code code, const char *named) {
  struct dsh_strv out = {NULL, 0, 0};
  struct dsh_error err = {0};
  assert_int_equal(b->plan(&s->a, &s->in, &out, &err), -1);
  assert_int_equal(err.code, code);
  if (!strstr(err.message, named))
    fail_msg("\"%s\" does not name %s", err.message, named);
  dsh_arena_free(&s->a);
}

static void read_only(void **state) {
  struct setup s;
  (void)state;
  begin(&s, DSH_READ_ONLY);
  check(&s, &dsh_backend_bwrap, "bwrap-read-only");
  begin(&s, DSH_READ_ONLY);
  check(&s, &dsh_backend_landlock, "landlock-read-only");
  begin(&s, DSH_READ_ONLY);
  check(&s, &dsh_backend_custom, "custom-read-only");
}

static void workspace_write(void **state) {
  struct setup s;
  (void)state;
  begin(&s, DSH_WORKSPACE_WRITE);
  usual_roots(&s);
  check(&s, &dsh_backend_bwrap, "bwrap-workspace-write");
  begin(&s, DSH_WORKSPACE_WRITE);
  usual_roots(&s);
  check(&s, &dsh_backend_landlock, "landlock-workspace-write");
  begin(&s, DSH_WORKSPACE_WRITE);
  usual_roots(&s);
  check(&s, &dsh_backend_custom, "custom-workspace-write");
}

static void grant_under_read_only(void **state) {
  struct setup s;
  (void)state;
  begin(&s, DSH_READ_ONLY);
  root(&s, "/srv/cache");
  check(&s, &dsh_backend_bwrap, "bwrap-read-only-grant");
  begin(&s, DSH_READ_ONLY);
  root(&s, "/srv/cache");
  check(&s, &dsh_backend_landlock, "landlock-read-only-grant");
}

/* Two protected paths with a common ancestor: it is bound once, before what
 * lies below it, or the second bind would uncover the first one's. */
static void protected_paths(void **state) {
  struct setup s;
  (void)state;
  begin(&s, DSH_WORKSPACE_WRITE);
  usual_roots(&s);
  protect(&s, "/home/u/w/.git/hooks");
  protect(&s, "/home/u/w/a/b/y");
  protect(&s, "/home/u/w/a/x");
  check(&s, &dsh_backend_bwrap, "bwrap-protected");
}

/* More specific rules come later, however the lists were ordered (B01). */
static void order_does_not_matter(void **state) {
  struct setup s, t;
  struct dsh_strv a = {NULL, 0, 0}, b = {NULL, 0, 0};
  char *x, *y;
  (void)state;
  begin(&s, DSH_WORKSPACE_WRITE);
  begin(&t, DSH_WORKSPACE_WRITE);
  usual_roots(&s);
  root(&t, "/tmp");
  root(&t, "/home/u/w");
  root(&t, "/dev/shm");
  protect(&s, "/home/u/w/a");
  protect(&s, "/home/u/w/b/c");
  protect(&t, "/home/u/w/b/c");
  protect(&t, "/home/u/w/a");
  assert_int_equal(dsh_bwrap_profile(&s.a, &s.in, &a, NULL, NULL), 0);
  assert_int_equal(dsh_bwrap_profile(&t.a, &t.in, &b, NULL, NULL), 0);
  x = joined(&a);
  y = joined(&b);
  assert_string_equal(x, y);
  free(x);
  free(y);
  dsh_arena_free(&s.a);
  dsh_arena_free(&t.a);
}

static void devices_and_dead_roots(void **state) {
  struct setup s;
  (void)state;
  begin(&s, DSH_READ_ONLY);
  root(&s, "/dev/ttyUSB0");
  root(&s, "/mnt/cd");
  s.root[1].read_only = true;
  check(&s, &dsh_backend_bwrap, "bwrap-device");
}

static void refusals(void **state) {
  struct setup s;
  (void)state;
  begin(&s, DSH_WORKSPACE_WRITE);
  usual_roots(&s);
  protect(&s, "/home/u/w/.git");
  refuses(&s, &dsh_backend_landlock, DSH_E_POLICY_UNSUPPORTED,
          "/home/u/w/.git");
  begin(&s, DSH_WORKSPACE_WRITE);
  usual_roots(&s);
  dsh_strv_add(&s.a, &s.roots.unprotectable, "/home/u/w/.x: does not exist");
  refuses(&s, &dsh_backend_bwrap, DSH_E_POLICY_UNSUPPORTED, "/home/u/w/.x");
}

/* --- what the mounts come to, in the order they are made --------------- */

struct table {
  const char *path[1024];
  bool writable[1024];
  size_t n;
};

/* A mount covers every earlier one that lies in it. */
static void mount_at(struct table *t, const char *path, bool writable) {
  size_t i, n = 0;
  for (i = 0; i < t->n; i++)
    if (!dsh_path_within(t->path[i], path)) {
      t->path[n] = t->path[i];
      t->writable[n++] = t->writable[i];
    }
  t->path[n] = path;
  t->writable[n++] = writable;
  t->n = n;
}

static struct table mounted(const struct dsh_strv *words) {
  struct table t = {.n = 0};
  size_t i;
  for (i = 0; i + 2 < words->n; i++)
    if (strcmp(words->v[i], "--bind") == 0 ||
        strcmp(words->v[i], "--ro-bind") == 0) {
      assert_string_equal(words->v[i + 1], words->v[i + 2]);
      mount_at(&t, words->v[i + 1], words->v[i][2] == 'b');
      i += 2;
    }
  return t;
}

static bool is_mounted(const struct table *t, const char *path) {
  size_t i;
  for (i = 0; i < t->n; i++)
    if (strcmp(t->path[i], path) == 0)
      return true;
  return false;
}

static bool writable(const struct table *t, const char *path) {
  size_t i, best = 0;
  bool result = false;
  for (i = 0; i < t->n; i++)
    if (dsh_path_within(path, t->path[i]) && strlen(t->path[i]) >= best) {
      best = strlen(t->path[i]);
      result = t->writable[i];
    }
  return result;
}

static char *random_path(struct dsh_arena *a, const char *base) {
  static const char *const names[] = {"a", "b", "a-b", "ab", "c"};
  char *path = dsh_strdup(a, base);
  int depth = 1 + rand() % 4;
  while (depth--)
    path = dsh_format(a, "%s/%s", path, names[rand() % 5]);
  return path;
}

/* Not one protected path can be written, or moved away with what holds it;
 * all else in a root can be written. */
static void any_policy(void **state) {
  int round, i;
  (void)state;
  srand(7);
  for (round = 0; round < 3000; round++) {
    struct dsh_strv out = {NULL, 0, 0};
    struct setup s;
    struct table t;
    const char *why;
    begin(&s, DSH_WORKSPACE_WRITE);
    root(&s, rand() % 2 ? "/w" : "/w/a");
    if (rand() % 2)
      root(&s, "/w-b");
    for (i = rand() % 6; i > 0; i--)
      protect(&s, random_path(&s.a, s.root[0].path));
    assert_int_equal(dsh_bwrap_profile(&s.a, &s.in, &out, NULL, NULL), 0);
    t = mounted(&out);
    for (i = 0; i < (int)s.roots.protected_.n; i++) {
      const char *p = s.roots.protected_.v[i];
      size_t k, base = strlen(s.root[0].path);
      assert_false(writable(&t, p));
      assert_false(writable(&t, dsh_format(&s.a, "%s/z", p)));
      for (k = base + 1; p[k]; k++) {
        const char *above = dsh_strndup(&s.a, p, k);
        if (p[k] == '/' && writable(&t, above))
          assert_true(is_mounted(&t, above));
      }
    }
    for (i = 0; i < 10; i++) {
      const char *q = random_path(&s.a, s.root[0].path);
      assert_int_equal(writable(&t, q), dsh_roots_writable(&s.roots, q, &why));
    }
    dsh_arena_free(&s.a);
  }
}

/* At the limit of mounts, and one past it. */
static void mount_limit(void **state) {
  struct setup s;
  int over;
  (void)state;
  for (over = 0; over <= 1; over++) {
    struct dsh_strv out = {NULL, 0, 0};
    struct dsh_error err = {0};
    int i;
    begin(&s, DSH_WORKSPACE_WRITE);
    root(&s, "/w");
    for (i = 1; i < DSH_MOUNTS_MAX + over; i++)
      protect(&s, dsh_format(&s.a, "/w/%04d", i));
    assert_int_equal(dsh_bwrap_profile(&s.a, &s.in, &out, NULL, &err), -over);
    assert_int_equal(err.code, over ? DSH_E_POLICY_TOO_LARGE : DSH_OK);
    dsh_arena_free(&s.a);
  }
}

static void finding_backends(void **state) {
  (void)state;
  assert_ptr_equal(dsh_backend_find("bwrap"), &dsh_backend_bwrap);
  assert_ptr_equal(dsh_backend_find("landlock"), &dsh_backend_landlock);
  assert_null(dsh_backend_find("nonsense"));
  assert_null(dsh_backend_find(""));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(read_only),
      cmocka_unit_test(workspace_write),
      cmocka_unit_test(grant_under_read_only),
      cmocka_unit_test(protected_paths),
      cmocka_unit_test(order_does_not_matter),
      cmocka_unit_test(devices_and_dead_roots),
      cmocka_unit_test(refusals),
      cmocka_unit_test(any_policy),
      cmocka_unit_test(mount_limit),
      cmocka_unit_test(finding_backends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
