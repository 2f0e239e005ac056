/* The fence under races, failing system calls and crashes. Its sources are
 * compiled in with the fault hook, so that every call of a write can fail. */
#define DSH_FS_FAULTS
#include "../../src/fence.c"
#define version_of write_version_of /* both files have one of their own */
#include "../../src/filewrite.c"
#include "../../src/filemeta.c"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <cmocka.h>

enum { FLIPS = 1000000, CALLS_MAX = 64 };

static char base[64], root[96], outside[96];
static struct dsh_policy policy;

static int setup(void **state) {
  (void)state;
  snprintf(base, sizeof base, "%s/dsh-fence-XXXXXX",
           access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp");
  assert_non_null(mkdtemp(base));
  snprintf(root, sizeof root, "%s/root", base);
  snprintf(outside, sizeof outside, "%s/outside", base);
  assert_int_equal(mkdir(root, 0700), 0);
  assert_int_equal(mkdir(outside, 0700), 0);
  policy = (struct dsh_policy){.mode = DSH_WORKSPACE_WRITE,
                               .workspace_root = root,
                               .temp = DSH_TEMP_PRIVATE,
                               .temp_dir = root};
  dsh_fs_fault = NULL;
  return 0;
}

static void remove_tree(const char *dir) {
  char command[256];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  if (system(command) != 0)
    fail_msg("cannot remove %s", dir);
}

static int teardown(void **state) {
  (void)state;
  dsh_fs_fault = NULL;
  remove_tree(base);
  return 0;
}

static int count_names(const char *dir) {
  DIR *d = opendir(dir);
  struct dirent *e;
  int n = 0;
  while ((e = readdir(d)))
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      n++;
  closedir(d);
  return n;
}

/* --- the race ------------------------------------------------------------ */

static atomic_bool stop_flipping;
static atomic_int flips;

/* root/d is in turn a directory and a link to outside. */
static void *flip(void *arg) {
  char d[128], real[128], link[128];
  (void)arg;
  snprintf(d, sizeof d, "%s/d", root);
  snprintf(real, sizeof real, "%s/real", root);
  snprintf(link, sizeof link, "%s/link", root);
  if (symlink(outside, link) != 0)
    return NULL;
  while (!stop_flipping && flips < FLIPS) {
    /* exchange d with the link, and back: d is never missing */
    if (syscall(SYS_renameat2, AT_FDCWD, d, AT_FDCWD, link, 2) != 0)
      break;
    flips++;
  }
  return NULL;
}

static void race(bool no_openat2) {
  struct dsh_fence f = {.policy = &policy, .no_openat2 = no_openat2};
  char d[128], target[160];
  struct dsh_error err;
  pthread_t thread;
  int written = 0, refused = 0;
  snprintf(d, sizeof d, "%s/d", root);
  snprintf(target, sizeof target, "%s/d/f", root);
  assert_int_equal(mkdir(d, 0700), 0);
  stop_flipping = false;
  flips = 0;
  assert_int_equal(pthread_create(&thread, NULL, flip, NULL), 0);
  while (flips < FLIPS) {
    if (dsh_fs_write(&f, target, "x", 1, DSH_FS_ANY, NULL, NULL, &err) == 0)
      written++;
    else
      refused++;
  }
  stop_flipping = true;
  pthread_join(thread, NULL);
  print_message("  %s: %d flips, %d written, %d refused, outside: %d names\n",
                no_openat2 ? "walk" : "openat2", flips, written, refused,
                count_names(outside));
  assert_int_equal(count_names(outside), 0);
  assert_true(written > 0);
}

static void a_link_put_in_moves_no_byte(void **state) {
  (void)state;
  race(false);
}

static void nor_with_the_walk(void **state) {
  (void)state;
  race(true);
}

/* --- faults -------------------------------------------------------------- */

static int fail_at, call_no, fail_with;
static char failed_name[32];

static int inject(const char *call) {
  if (call_no++ != fail_at)
    return 0;
  snprintf(failed_name, sizeof failed_name, "%s", call);
  if (fail_with == 0)
    kill(getpid(), SIGKILL);
  return fail_with;
}

static void content(const char *path, char *out, size_t size) {
  FILE *f = fopen(path, "r");
  size_t n = f ? fread(out, 1, size - 1, f) : 0;
  out[n] = '\0';
  if (f)
    fclose(f);
}

static void put(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

/* Each call of a write fails once: whole old or whole new content, nothing
 * left beside, and a clear error unless all is well. */
static void every_call_may_fail(void **state) {
  struct dsh_fence f = {.policy = &policy};
  char path[128], now[64];
  struct dsh_error err;
  int i, r = -1, errors = 0;
  (void)state;
  snprintf(path, sizeof path, "%s/a", root);
  for (i = 0; i < CALLS_MAX; i++) {
    put(path, "old");
    dsh_fs_fault = inject;
    fail_at = i;
    call_no = 0;
    fail_with = EIO;
    failed_name[0] = '\0';
    r = dsh_fs_write(&f, path, "new", 3, DSH_FS_ANY, NULL, NULL, &err);
    dsh_fs_fault = NULL;
    content(path, now, sizeof now);
    assert_true(strcmp(now, "old") == 0 || strcmp(now, "new") == 0);
    assert_int_equal(count_names(root), 1);
    if (!failed_name[0])
      break;
    if (r != 0) {
      errors++;
      assert_int_equal(err.errnum, EIO);
    }
    /* What was acknowledged is there. */
    if (r == 0)
      assert_string_equal(now, "new");
  }
  print_message("  %d calls, %d of them failed the write\n", i, errors);
  assert_int_equal(r, 0);
  assert_true(i >= 6 && errors >= 5);
}

/* Killed before each call: whole old or whole new content; what is left is
 * gone after the next write. */
static void every_call_may_be_the_last(void **state) {
  struct dsh_fence f = {.policy = &policy};
  char path[128], now[64];
  struct dsh_error err;
  int i, status = 0;
  (void)state;
  snprintf(path, sizeof path, "%s/a", root);
  for (i = 0; i < CALLS_MAX; i++) {
    pid_t pid;
    put(path, "old");
    pid = fork();
    if (pid == 0) {
      dsh_fs_fault = inject;
      fail_at = i;
      call_no = 0;
      fail_with = 0;
      dsh_fs_write(&f, path, "new", 3, DSH_FS_ANY, NULL, NULL, &err);
      _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    content(path, now, sizeof now);
    assert_true(strcmp(now, "old") == 0 || strcmp(now, "new") == 0);
    assert_int_equal(dsh_fs_write(&f, path, "next", 4, DSH_FS_ANY, NULL, NULL,
                                  &err),
                     0);
    content(path, now, sizeof now);
    assert_string_equal(now, "next");
    assert_int_equal(count_names(root), 1);
    if (WIFEXITED(status))
      break;
  }
  assert_true(i >= 6 && i < CALLS_MAX);
}

/* --- what cannot be kept ------------------------------------------------- */

enum { NOBODY = 65534 };

/* As uid 65534, writes root/a, which is `uid`:`gid`; 0 when that is refused
 * with `word` in the message and nothing has changed. */
static int refused_naming(uid_t uid, gid_t gid, const char *word) {
  char path[128], now[64];
  int status = -1;
  pid_t pid;
  snprintf(path, sizeof path, "%s/a", root);
  unlink(path);
  put(path, "old");
  assert_int_equal(chmod(path, 0666), 0);
  assert_int_equal(chown(path, uid, gid), 0);
  pid = fork();
  if (pid == 0) {
    struct dsh_fence f = {.policy = &policy};
    struct dsh_error err;
    if (setresgid(NOBODY, NOBODY, NOBODY) != 0 ||
        setresuid(NOBODY, NOBODY, NOBODY) != 0)
      _exit(9);
    memset(&err, 0, sizeof err);
    _exit(dsh_fs_write(&f, path, "new", 3, DSH_FS_ANY, NULL, NULL, &err) == 0
              ? 1
          : err.code != DSH_E_FS_PERMISSION_DENIED ? 2
          : strstr(err.message, word)              ? 0
                                                   : 3);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  content(path, now, sizeof now);
  assert_string_equal(now, "old");
  assert_int_equal(count_names(root), 1);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void what_cannot_be_kept_is_named(void **state) {
  (void)state;
  if (geteuid() != 0) {
    skip();
    return;
  }
  assert_int_equal(chmod(base, 0755), 0);
  assert_int_equal(chmod(root, 0777), 0);
  assert_int_equal(refused_naming(0, NOBODY, "its owner"), 0);
  assert_int_equal(refused_naming(NOBODY, 12345, "its group"), 0);
  assert_int_equal(chmod(root, 0755), 0); /* no place for a sibling */
  assert_int_equal(refused_naming(NOBODY, NOBODY, "beside"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(what_cannot_be_kept_is_named, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(every_call_may_fail, setup, teardown),
      cmocka_unit_test_setup_teardown(every_call_may_be_the_last, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(a_link_put_in_moves_no_byte, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(nor_with_the_walk, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
