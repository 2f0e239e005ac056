/* The planners of the other platforms are pure, so their words are compared
 * here too, with spec/fixtures/plans/NAME (DSH_GOLDEN=write writes them). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend.h"

enum { TEXT_MAX = 1 << 16 };

struct setup {
  struct dsh_arena a;
  struct dsh_policy policy;
  struct dsh_roots roots;
  struct dsh_root root[8];
  struct dsh_host host;
  struct dsh_launch in;
};

static void begin(struct setup *s, enum dsh_mode mode, const char *workspace,
                  const char *runner) {
  memset(s, 0, sizeof *s);
  dsh_arena_init(&s->a);
  s->policy.mode = mode;
  s->policy.workspace_root = s->roots.workspace = workspace;
  s->roots.root = s->root;
  s->in = (struct dsh_launch){&s->policy, &s->roots, &s->host, NULL, runner,
                              NULL};
}

static void mac(struct setup *s, enum dsh_mode mode) {
  begin(s, mode, "/Users/u/w", "/usr/bin/sandbox-exec");
}

static void win(struct setup *s, enum dsh_mode mode) {
  begin(s, mode, "C:\\Users\\u\\w",
        "C:\\Program Files\\dshsh\\windows-acl-run.exe");
}

static void root(struct setup *s, const char *path, bool directory) {
  s->root[s->roots.n].directory = directory;
  s->root[s->roots.n++].path = path;
}

static void check(struct setup *s, const struct dsh_backend *b,
                  const char *name) {
  static char text[TEXT_MAX], kept[TEXT_MAX];
  char path[256];
  struct dsh_strv out = {NULL, 0, 0};
  struct dsh_error err = {0};
  const char *mode = getenv("DSH_GOLDEN");
  size_t i;
  FILE *f;
  if (b->plan(&s->a, &s->in, &out, &err) != 0)
    fail_msg("%s", err.message);
  assert_string_equal(out.v[out.n - 1], "--");
  for (i = 0, text[0] = '\0'; i < out.n; i++) {
    strcat(text, out.v[i]);
    strcat(text, "\n");
  }
  snprintf(path, sizeof path, "spec/fixtures/plans/%s", name);
  if (mode && strcmp(mode, "write") == 0) {
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
  }
  f = fopen(path, "r");
  if (!f)
    fail_msg("%s is missing", path);
  memset(kept, 0, sizeof kept);
  assert_true(fread(kept, 1, sizeof kept - 1, f) > 0);
  fclose(f);
  assert_string_equal(text, kept);
  dsh_arena_free(&s->a);
}

static void refuses(struct setup *s, const struct dsh_backend *b,
                    const char *named) {
  struct dsh_strv out = {NULL, 0, 0};
  struct dsh_error err = {0};
  assert_int_equal(b->plan(&s->a, &s->in, &out, &err), -1);
  assert_int_equal(err.code, DSH_E_POLICY_UNSUPPORTED);
  if (!strstr(err.message, named))
    fail_msg("\"%s\" does not name %s", err.message, named);
  dsh_arena_free(&s->a);
}

static void seatbelt(void **state) {
  struct setup s;
  (void)state;
  mac(&s, DSH_READ_ONLY);
  check(&s, &dsh_backend_seatbelt, "seatbelt-read-only");
  mac(&s, DSH_READ_ONLY);
  root(&s, "/Users/u/one file", false);
  check(&s, &dsh_backend_seatbelt, "seatbelt-read-only-grant");
  mac(&s, DSH_WORKSPACE_WRITE);
  root(&s, "/Users/u/w", true);
  root(&s, "/private/tmp", true);
  dsh_strv_add(&s.a, &s.roots.protected_, "/Users/u/w/.git/hooks");
  dsh_strv_add(&s.a, &s.roots.protected_, "/Users/u/w/a/b/\"q\\x\"");
  check(&s, &dsh_backend_seatbelt, "seatbelt-workspace-write");
}

/* At the limit a path passes, one past it the policy is refused by name. */
static void seatbelt_limits(void **state) {
  char path[1100];
  struct setup s;
  struct dsh_strv out = {NULL, 0, 0};
  struct dsh_error err = {0};
  (void)state;
  memset(path, 'x', sizeof path);
  path[0] = '/';
  path[1024] = '\0';
  mac(&s, DSH_WORKSPACE_WRITE);
  root(&s, path, true);
  assert_int_equal(dsh_backend_seatbelt.plan(&s.a, &s.in, &out, &err), 0);
  dsh_arena_free(&s.a);
  path[1023] = '"'; /* written as two */
  mac(&s, DSH_WORKSPACE_WRITE);
  root(&s, path, true);
  refuses(&s, &dsh_backend_seatbelt, "1024 bytes");
  mac(&s, DSH_WORKSPACE_WRITE);
  root(&s, "/Users/u/a\nb", true);
  refuses(&s, &dsh_backend_seatbelt, "control character");
}

static void winacl(void **state) {
  struct setup s;
  (void)state;
  win(&s, DSH_READ_ONLY);
  check(&s, &dsh_backend_winacl, "winacl-read-only");
  win(&s, DSH_WORKSPACE_WRITE);
  s.policy.temp = DSH_TEMP_PRIVATE;
  s.policy.temp_dir = "C:\\Users\\u\\AppData\\Local\\dshsh\\t1";
  check(&s, &dsh_backend_winacl, "winacl-workspace-write");
}

static void winacl_refuses(void **state) {
  struct setup s;
  (void)state;
  win(&s, DSH_READ_ONLY);
  dsh_strv_add(&s.a, &s.policy.extra_roots, "D:\\x");
  refuses(&s, &dsh_backend_winacl, "D:\\x");
  win(&s, DSH_WORKSPACE_WRITE);
  refuses(&s, &dsh_backend_winacl, "policy.temp");
  win(&s, DSH_WORKSPACE_WRITE);
  dsh_strv_add(&s.a, &s.roots.protected_, "C:\\Users\\u\\w\\.git");
  refuses(&s, &dsh_backend_winacl, "C:\\Users\\u\\w\\.git");
}

static void listed(void **state) {
  (void)state;
  assert_ptr_equal(dsh_backend_find("seatbelt"), &dsh_backend_seatbelt);
  assert_ptr_equal(dsh_backend_find("winacl"), &dsh_backend_winacl);
  assert_int_equal(dsh_backend_seatbelt.platforms, DSH_MACOS);
  assert_int_equal(dsh_backend_winacl.platforms, DSH_WINDOWS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(seatbelt), cmocka_unit_test(seatbelt_limits),
      cmocka_unit_test(winacl),   cmocka_unit_test(winacl_refuses),
      cmocka_unit_test(listed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
