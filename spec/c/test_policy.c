/* Paths, roots, protected and control paths, on real directories that no
 * temp root covers. */
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "path.h"

static char base[64]; /* of this test */
static struct dsh_arena arena;

static const char *at(const char *name) {
  return dsh_format(&arena, "%s/%s", base, name);
}

static void make_dir(const char *name) {
  assert_int_equal(mkdir(at(name), 0755), 0);
}

static void make_file(const char *name) {
  FILE *f = fopen(at(name), "w");
  assert_non_null(f);
  fclose(f);
}

static void make_link(const char *target, const char *name) {
  assert_int_equal(symlink(target, at(name)), 0);
}

static int setup(void **state) {
  (void)state;
  strcpy(base, "/var/tmp/dshsh-policy.XXXXXX");
  dsh_arena_init(&arena);
  if (!mkdtemp(base) || chmod(base, 0755) != 0)
    return -1;
  make_dir("w");
  make_dir("o");
  return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *f) {
  (void)st;
  (void)kind;
  (void)f;
  return remove(path);
}

static int teardown(void **state) {
  (void)state;
  dsh_arena_free(&arena);
  return nftw(base, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct dsh_policy policy_of(enum dsh_mode mode, const char *root) {
  struct dsh_policy p;
  memset(&p, 0, sizeof p);
  p.mode = mode;
  p.workspace_root = root;
  return p;
}

static struct dsh_roots resolve(const struct dsh_policy *p, const char *tmpdir,
                                const char *home) {
  struct dsh_roots r;
  struct dsh_error err = {0};
  if (dsh_roots_resolve(&arena, p, tmpdir, home, &r, &err) != 0)
    fail_msg("%s", err.message);
  return r;
}

static void refuses(const struct dsh_policy *p, const char *named) {
  struct dsh_roots r;
  struct dsh_error err = {0};
  assert_int_equal(dsh_roots_resolve(&arena, p, NULL, NULL, &r, &err), -1);
  assert_int_equal(err.code, DSH_E_POLICY_UNSUPPORTED);
  if (!strstr(err.message, named))
    fail_msg("\"%s\" does not name %s", err.message, named);
}

static bool has(const struct dsh_roots *r, const char *path) {
  size_t i;
  for (i = 0; i < r->n; i++)
    if (strcmp(r->root[i].path, path) == 0)
      return true;
  return false;
}

static bool says(const struct dsh_strv *list, const char *word) {
  size_t i;
  for (i = 0; i < list->n; i++)
    if (strstr(list->v[i], word))
      return true;
  return false;
}

/* --- form ---------------------------------------------------------------- */

static void bad(const struct dsh_policy *p, enum dsh_code code,
                const char *field) {
  struct dsh_error err = {0};
  assert_int_equal(dsh_policy_check(p, &err), -1);
  assert_int_equal(err.code, code);
  assert_non_null(strstr(err.message, field));
}

static void form(void **state) {
  struct dsh_policy p = policy_of(DSH_READ_ONLY, "/w");
  (void)state;
  assert_int_equal(dsh_policy_check(&p, NULL), 0);
  p.mode = (enum dsh_mode)7;
  bad(&p, DSH_E_MISUSE, "policy.mode");
  p = policy_of(DSH_READ_ONLY, "w");
  bad(&p, DSH_E_MISUSE, "policy.workspace_root");
  p = policy_of(DSH_READ_ONLY, "");
  bad(&p, DSH_E_MISUSE, "policy.workspace_root");
  p = policy_of(DSH_READ_ONLY, NULL);
  bad(&p, DSH_E_MISUSE, "policy.workspace_root");
  p = policy_of(DSH_WORKSPACE_WRITE, "/w");
  p.temp = DSH_TEMP_PRIVATE;
  bad(&p, DSH_E_MISUSE, "policy.temp_dir");
  p = policy_of(DSH_WORKSPACE_WRITE, "/w");
  dsh_strv_add(&arena, &p.extra_roots, "x");
  bad(&p, DSH_E_MISUSE, "policy.extra_roots");
  p = policy_of(DSH_WORKSPACE_WRITE, "/w");
  dsh_strv_add(&arena, &p.protected_, "");
  bad(&p, DSH_E_MISUSE, "policy.protected");
}

static void limits(void **state) {
  struct dsh_policy p = policy_of(DSH_READ_ONLY, "/w");
  int i;
  (void)state;
  for (i = 0; i < DSH_ROOTS_MAX; i++)
    dsh_strv_add(&arena, &p.extra_roots, dsh_format(&arena, "/x%d", i));
  for (i = 0; i < DSH_PROTECTED_MAX; i++)
    dsh_strv_add(&arena, &p.protected_, "p");
  assert_int_equal(dsh_policy_check(&p, NULL), 0);
  dsh_strv_add(&arena, &p.extra_roots, "/more");
  bad(&p, DSH_E_POLICY_TOO_LARGE, "policy.extra_roots");
  p.extra_roots.n = 0;
  dsh_strv_add(&arena, &p.protected_, "p");
  bad(&p, DSH_E_POLICY_TOO_LARGE, "policy.protected");
}

/* --- roots --------------------------------------------------------------- */

static void roots_by_mode(void **state) {
  struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, at("w"));
  struct dsh_roots r = resolve(&p, NULL, NULL);
  size_t i;
  (void)state;
  assert_true(has(&r, at("w")) && has(&r, "/tmp") && has(&r, "/dev/shm"));
  for (i = 1; i < r.n; i++)
    assert_true(dsh_path_compare(r.root[i - 1].path, r.root[i].path) < 0);
  p.mode = DSH_READ_ONLY;
  r = resolve(&p, NULL, NULL);
  assert_int_equal(r.n, 0);
  assert_string_equal(r.workspace, at("w"));
  dsh_strv_add(&arena, &p.extra_roots, at("o"));
  r = resolve(&p, NULL, NULL);
  assert_int_equal(r.n, 1);
  assert_string_equal(r.root[0].path, at("o"));
}

static void missing_grants_nothing(void **state) {
  struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, at("none"));
  struct dsh_roots r;
  (void)state;
  dsh_strv_add(&arena, &p.extra_roots, at("none/either"));
  r = resolve(&p, at("no-tmp"), NULL);
  assert_null(r.workspace);
  assert_int_equal(r.n, 2); /* /dev/shm, /tmp */
}

static void private_temp(void **state) {
  struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, at("w"));
  struct dsh_roots r;
  (void)state;
  p.temp = DSH_TEMP_PRIVATE;
  p.temp_dir = at("o");
  r = resolve(&p, "/var/tmp", NULL);
  assert_true(has(&r, at("o")) && !has(&r, "/tmp") && !has(&r, "/var/tmp"));
}

static void nested_roots(void **state) {
  struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, at("w"));
  struct dsh_roots r;
  (void)state;
  make_dir("w-b");
  make_dir("w/c");
  dsh_strv_add(&arena, &p.extra_roots, at("w/c"));
  dsh_strv_add(&arena, &p.extra_roots, at("w-b"));
  dsh_strv_add(&arena, &p.extra_roots, at("w"));
  r = resolve(&p, NULL, NULL);
  assert_int_equal(r.n, 4);
  assert_true(has(&r, at("w")) && has(&r, at("w-b")) && !has(&r, at("w/c")));
}

static void tmpdir_rules(void **state) {
  struct dsh_policy p;
  struct dsh_roots r;
  (void)state;
  make_dir("home");
  make_dir("home/w");
  p = policy_of(DSH_WORKSPACE_WRITE, at("home/w"));
  r = resolve(&p, "/", at("home"));
  assert_true(!has(&r, "/") && says(&r.refused, "/:"));
  r = resolve(&p, at("home"), at("home"));
  assert_true(!has(&r, at("home")) && says(&r.refused, at("home")));
  r = resolve(&p, "/var", at("home"));
  assert_true(!has(&r, "/var") && says(&r.refused, "/var"));
  r = resolve(&p, at("home"), "/nonexistent"); /* above the root */
  assert_true(!has(&r, at("home")) && says(&r.refused, at("home")));
  make_link("home", "link");
  r = resolve(&p, at("link"), at("home")); /* by another name */
  assert_true(!has(&r, at("home")) && says(&r.refused, at("link")));
  r = resolve(&p, "o", at("home"));
  assert_true(says(&r.refused, "o:"));
  r = resolve(&p, at("o"), at("home"));
  assert_true(has(&r, at("o")) && r.refused.n == 0);
  r = resolve(&p, "/tmp", at("home"));
  assert_int_equal(r.refused.n, 0);
}

static void link_dot_dot(void **state) {
  struct dsh_error err = {0};
  char *path;
  (void)state;
  make_dir("o/deep");
  make_link("o/deep", "link");
  path = dsh_canonical(&arena, at("link/.."), &err);
  assert_string_equal(path, at("o")); /* where chdir arrives */
  path = dsh_canonical(&arena, at("./w//../link/./."), &err);
  assert_string_equal(path, at("o/deep"));
  assert_string_equal(dsh_canonical(&arena, "/", &err), "/");
  assert_string_equal(dsh_canonical(&arena, "/..//../", &err), "/");
}

static void bad_paths(void **state) {
  struct dsh_error err = {0};
  (void)state;
  make_file("file");
  make_link("loop-b", "loop-a");
  make_link("loop-a", "loop-b");
  assert_null(dsh_canonical(&arena, at("none"), &err));
  assert_int_equal(err.errnum, ENOENT);
  assert_null(dsh_canonical(&arena, at("file/.."), &err));
  assert_int_equal(err.errnum, ENOTDIR);
  assert_null(dsh_canonical(&arena, at("loop-a"), &err));
  assert_int_equal(err.errnum, ELOOP);
}

/* What is remembered of a path is confirmed each time. */
static void remembered(void **state) {
  struct dsh_policy p = policy_of(DSH_READ_ONLY, "/w");
  struct dsh_roots r;
  (void)state;
  make_dir("a");
  make_dir("a/x");
  make_link("a/x", "l");
  dsh_strv_add(&arena, &p.extra_roots, at("l"));
  r = resolve(&p, NULL, NULL);
  assert_string_equal(r.root[0].path, at("a/x"));
  /* The same object by a new name, and another one by the old name. */
  assert_int_equal(rename(at("a"), at("b")), 0);
  make_dir("a");
  make_dir("a/x");
  assert_int_equal(unlink(at("l")), 0);
  make_link("b/x", "l");
  r = resolve(&p, NULL, NULL);
  assert_string_equal(r.root[0].path, at("b/x"));
  assert_int_equal(unlink(at("l")), 0);
  r = resolve(&p, NULL, NULL);
  assert_int_equal(r.n, 0);
}

/* As long as the kernel takes, and more paths than are remembered. */
static void long_paths(void **state) {
  struct dsh_policy p = policy_of(DSH_READ_ONLY, "/w");
  const char *path = at("w");
  struct dsh_roots r;
  char name[201];
  int i;
  (void)state;
  memset(name, 'n', 200);
  name[200] = '\0';
  for (i = 0; i < 18; i++) {
    path = dsh_format(&arena, "%s/%s", path, name);
    assert_int_equal(mkdir(path, 0755), 0);
  }
  dsh_strv_add(&arena, &p.extra_roots, path);
  r = resolve(&p, NULL, NULL);
  assert_string_equal(r.root[0].path, path);
  p.extra_roots.n = 0;
  for (i = 0; i < 40; i++) {
    const char *one = dsh_format(&arena, "%s/d%02d", at("o"), i);
    assert_int_equal(mkdir(one, 0755), 0);
    dsh_strv_add(&arena, &p.extra_roots, one);
  }
  for (i = 0; i < 3; i++)
    assert_int_equal(resolve(&p, NULL, NULL).n, 40);
}

static void kernel_trees(void **state) {
  static const char *const paths[] = {"/", "/proc", "/proc/self", "/sys",
                                      "/dev"};
  size_t i;
  (void)state;
  for (i = 0; i < sizeof paths / sizeof *paths; i++) {
    struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, paths[i]);
    refuses(&p, paths[i]);
    p.mode = DSH_READ_ONLY; /* as a mere place to be, it grants nothing */
    assert_int_equal(resolve(&p, NULL, NULL).n, 0);
  }
}

/* A confined command can make links where it may write. The next call must
 * not follow one of them out of there. */
static void planted_links(void **state) {
  struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, at("w"));
  struct dsh_roots r;
  (void)state;
  make_dir("w/in");
  make_link("../o", "w/out");
  make_link("in", "w/inner");
  make_link("o", "own"); /* not in a writable place: the user's own */
  dsh_strv_add(&arena, &p.extra_roots, at("w/inner"));
  dsh_strv_add(&arena, &p.extra_roots, at("own"));
  r = resolve(&p, NULL, NULL);
  assert_true(has(&r, at("o")) && has(&r, at("w")));
  dsh_strv_add(&arena, &p.extra_roots, at("w/out"));
  refuses(&p, at("w/out"));
  p.extra_roots.v[2] = at("w/out/../o");
  refuses(&p, at("w/out"));
}

static void planted_in_tmp(void **state) {
  char dir[] = "/tmp/dshsh-policy.XXXXXX";
  struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, NULL);
  (void)state;
  assert_non_null(mkdtemp(dir));
  p.workspace_root = dsh_format(&arena, "%s/w", dir);
  assert_int_equal(symlink(at("o"), p.workspace_root), 0);
  refuses(&p, p.workspace_root);
  unlink(p.workspace_root);
  rmdir(dir);
}

static void root_without_capabilities(void **state) {
  struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, at("w"));
  (void)state;
  if (geteuid() != 0)
    skip();
  assert_int_equal(chown(at("w"), 65534, 65534), 0);
  refuses(&p, at("w"));
  assert_int_equal(chmod(at("w"), 0777), 0);
  assert_true(has((struct dsh_roots[]){resolve(&p, NULL, NULL)}, at("w")));
  make_dir("o/w");
  assert_int_equal(chown(at("o"), 65534, 65534), 0);
  assert_int_equal(chmod(at("o"), 0700), 0);
  p.workspace_root = at("o/w");
  refuses(&p, at("o/w"));
  assert_int_equal(chown(at("o"), 0, 0), 0);
  assert_int_equal(chown(at("w"), 0, 0), 0);
  assert_int_equal(chmod(at("w"), 0555), 0); /* even its owner */
  p.workspace_root = at("w");
  refuses(&p, at("w"));
}

/* --- protected ----------------------------------------------------------- */

static void protected_names(void **state) {
  struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, at("w"));
  struct dsh_roots r;
  const char *why;
  (void)state;
  make_dir("w/.git");
  make_dir("w/.git/hooks");
  dsh_strv_add(&arena, &p.protected_, ".git/hooks");
  dsh_strv_add(&arena, &p.protected_, at("w/.git"));
  dsh_strv_add(&arena, &p.protected_, at("o")); /* no root reaches it */
  r = resolve(&p, NULL, NULL);
  assert_int_equal(r.protected_.n, 1);
  assert_string_equal(r.protected_.v[0], at("w/.git"));
  assert_int_equal(r.unprotectable.n, 0);
  assert_false(dsh_roots_writable(&r, at("w/.git/hooks/x"), &why));
  assert_string_equal(why, at("w/.git"));
  assert_true(dsh_roots_writable(&r, at("w/.gitignore"), &why));
  assert_string_equal(why, at("w"));
  assert_true(dsh_roots_writable(&r, at("w"), &why));
  assert_false(dsh_roots_writable(&r, at("wx"), &why));
  assert_null(why);
}

/* B08: the three kinds of link, and a plain absent name; and a link above. */
static void unprotectable_names(void **state) {
  static const char *const targets[] = {"/nonexistent", "/etc/hostname",
                                        "rel"};
  size_t i;
  (void)state;
  for (i = 0; i < 3; i++) {
    struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, at("w"));
    struct dsh_roots r;
    make_link(targets[i], "w/.codex");
    dsh_strv_add(&arena, &p.protected_, ".codex");
    r = resolve(&p, NULL, NULL);
    assert_true(says(&r.unprotectable, at("w/.codex")));
    assert_int_equal(unlink(at("w/.codex")), 0);
  }
  {
    struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, at("w"));
    struct dsh_roots r;
    make_dir("w/real");
    make_dir("w/real/p");
    make_link("real", "w/via");
    dsh_strv_add(&arena, &p.protected_, "via/p");
    r = resolve(&p, NULL, NULL);
    assert_true(says(&r.unprotectable, at("w/via")));
    p.protected_.v[0] = "absent";
    r = resolve(&p, NULL, NULL);
    assert_true(says(&r.unprotectable, at("w/absent")));
  }
}

static void protected_parent(void **state) {
  struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, at("w"));
  struct dsh_roots r;
  const char *why;
  (void)state;
  dsh_strv_add(&arena, &p.protected_, base);
  r = resolve(&p, NULL, NULL);
  assert_false(has(&r, at("w")));
  assert_true(says(&r.refused, at("w")));
  assert_false(dsh_roots_writable(&r, at("w/x"), &why));
}

/* Control paths last: they stay for the life of the process. */
static void control_paths(void **state) {
  struct dsh_policy p = policy_of(DSH_WORKSPACE_WRITE, at("w"));
  struct dsh_roots r;
  struct dsh_error err = {0};
  (void)state;
  make_dir("w/state");
  make_dir("w/state/deep");
  assert_int_equal(dsh_control_add("relative", &err), -1);
  assert_int_equal(err.code, DSH_E_MISUSE);
  assert_int_equal(dsh_control_add(at("w/state"), &err), 0);
  assert_int_equal(dsh_control_add(at("w/state"), &err), 0);
  r = resolve(&p, NULL, NULL);
  assert_string_equal(r.protected_.v[0], at("w/state"));
  p.workspace_root = at("w/state/deep"); /* a workspace in there */
  r = resolve(&p, NULL, NULL);
  assert_true(says(&r.refused, at("w/state/deep")));
  assert_false(has(&r, at("w/state/deep")));
  assert_int_equal(dsh_control_add(at("w/later"), &err), 0); /* absent */
  p.workspace_root = at("w");
  r = resolve(&p, NULL, NULL);
  assert_true(says(&r.unprotectable, at("w/later")));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(form),           TEST(limits),
      TEST(roots_by_mode),  TEST(missing_grants_nothing),
      TEST(private_temp),   TEST(nested_roots),
      TEST(tmpdir_rules),   TEST(link_dot_dot),
      TEST(bad_paths),      TEST(remembered),
      TEST(long_paths),     TEST(kernel_trees),
      TEST(planted_links),
      TEST(planted_in_tmp), TEST(root_without_capabilities),
      TEST(protected_names), TEST(unprotectable_names),
      TEST(protected_parent), TEST(control_paths),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
