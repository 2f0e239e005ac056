/* Small files of ours: locked, replaced whole or not at all. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "conffile.h"

static char base[64], path[96];

static int setup(void **state) {
  (void)state;
  strcpy(base, "/tmp/dshsh-conf.XXXXXX");
  assert_non_null(mkdtemp(base));
  snprintf(path, sizeof path, "%s/f.yaml", base);
  return 0;
}

static int teardown(void **state) {
  char name[512];
  struct dirent *e;
  DIR *d = opendir(base);
  (void)state;
  while ((e = readdir(d))) {
    snprintf(name, sizeof name, "%s/%s", base, e->d_name);
    unlink(name);
  }
  closedir(d);
  return rmdir(base);
}

static int entries(void) {
  DIR *d = opendir(base);
  int n = 0;
  while (readdir(d))
    n++;
  closedir(d);
  return n - 2;
}

static void expect_content(const char *want) {
  char buf[64] = {0};
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  assert_int_equal(fread(buf, 1, sizeof buf - 1, f), strlen(want));
  fclose(f);
  assert_string_equal(buf, want);
}

static void replaces(void **state) {
  struct dsh_error err = {0};
  struct stat st;
  (void)state;
  assert_int_equal(dsh_conf_replace(path, "one", 3, &err), 0);
  expect_content("one");
  assert_int_equal(chmod(path, 0644), 0);
  assert_int_equal(dsh_conf_replace(path, "second", 6, &err), 0);
  expect_content("second");
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_mode & 07777, 0600);
  assert_int_equal(entries(), 1);
}

/* A limit on the file size stands in for a full disk. */
static void failure_keeps_the_old(void **state) {
  struct rlimit old, small = {16, RLIM_INFINITY};
  struct dsh_error err = {0};
  char big[64];
  (void)state;
  memset(big, 'x', sizeof big);
  assert_int_equal(dsh_conf_replace(path, "old", 3, &err), 0);
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &old);
  setrlimit(RLIMIT_FSIZE, &small);
  assert_int_equal(dsh_conf_replace(path, big, sizeof big, &err), -1);
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, SIG_DFL);
  assert_int_equal(err.code, DSH_E_IO);
  assert_int_equal(err.errnum, EFBIG);
  assert_string_equal(err.path, path);
  expect_content("old");
  assert_int_equal(entries(), 1);
}

static void names_a_missing_directory(void **state) {
  struct dsh_error err = {0};
  (void)state;
  assert_int_equal(dsh_conf_replace("/nonexistent/x/y", "a", 1, &err), -1);
  assert_int_equal(err.errnum, ENOENT);
}

static void lock_is_of_the_open_file(void **state) {
  struct dsh_error err = {0};
  char name[128];
  int fd = dsh_conf_lock(path, &err), again;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  (void)state;
  assert_true(fd >= 0);
  snprintf(name, sizeof name, "%s.lock", path);
  again = open(name, O_RDWR | O_CLOEXEC);
  assert_int_equal(fcntl(again, F_OFD_SETLK, &lock), -1);
  close(fd);
  assert_int_equal(fcntl(again, F_OFD_SETLK, &lock), 0);
  close(again);
}

static void lock_follows_no_link(void **state) {
  struct dsh_error err = {0};
  char name[128];
  (void)state;
  snprintf(name, sizeof name, "%s.lock", path);
  assert_int_equal(symlink("/etc/hostname", name), 0);
  assert_int_equal(dsh_conf_lock(path, &err), -1);
  assert_int_equal(err.errnum, ELOOP);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(replaces, setup, teardown),
      cmocka_unit_test_setup_teardown(failure_keeps_the_old, setup, teardown),
      cmocka_unit_test_setup_teardown(names_a_missing_directory, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(lock_is_of_the_open_file, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(lock_follows_no_link, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
