/* landlock_run.c: the launcher's command line and its outer stage.
 *
 * Outer stage: keeps the command's environment away from the runner. It puts
 * it into a memory file, starts the runner with an empty one, and tells the
 * inner stage (this program again, inside) which descriptors to use. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/restrict.h"
#include "launch.h"

#ifdef DSH_FAULTS
unsigned faults;

static unsigned fault_by_name(const char *name) {
  static const struct {
    const char *name;
    unsigned bit;
  } known[] = {{"no-seccomp", FAULT_NO_SECCOMP},
               {"no-capdrop", FAULT_NO_CAPDROP},
               {"keep-fd", FAULT_KEEP_FD},
               {"scope-off", FAULT_SCOPE_OFF},
               {"no-landlock", FAULT_NO_LANDLOCK},
               {"no-stdio", FAULT_NO_STDIO},
               {"no-memory", FAULT_NO_MEMORY}};
  size_t i;
  for (i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(name, known[i].name) == 0)
      return known[i].bit;
  fail(DSH_STAGE_USAGE, 0, "--fault: unknown name");
}
#endif

static const char usage_text[] =
    "usage: landlock-run [--ro PATH]... [--rw PATH]... [options] -- ARGV...\n"
    "       landlock-run --runner PATH [RUNNER ARGS...] -- landlock-run "
    "--inner\n"
    "                    [options] -- ARGV...\n"
    "       landlock-run --probe\n"
    "Runs ARGV so that it and every process it starts can write only under\n"
    "the --rw paths. Options:\n"
    "  --mode read-only|workspace-write  which system calls are refused\n"
    "  --dev               grant the device list (null, zero, full, random,\n"
    "                      urandom, tty, ptmx)\n"
    "  --exact             fail if a granted path goes through a link\n"
    "  --expect-ro PATH    fail unless PATH is a read-only mount point\n"
    "  --expect-rw PATH    fail unless PATH is a mount point\n"
    "  --pass-fd N         the command gets descriptor N as well\n"
    "  --no-keeper         become the command, keep no process of our own\n"
    "  --unconfined        restrict nothing, only keep and report\n"
    "Any failure of its own: one line on stderr, exit 125, nothing run.\n";

static const char *value(char **argv, int *i, const char *option) {
  if (!argv[*i + 1] || strcmp(argv[*i + 1], "--") == 0) {
    static char text[128];
    snprintf(text, sizeof text, "%s: a value is missing", option);
    fail(DSH_STAGE_USAGE, 0, text);
  }
  return argv[++*i];
}

static int number(const char *text, const char *option) {
  char *end;
  long n;
  errno = 0;
  n = strtol(text, &end, 10);
  if (errno || end == text || *end || n < 3 || n > 1 << 20)
    fail(DSH_STAGE_USAGE, 0, option);
  return (int)n;
}

static void add_path(struct paths *list, const char *path, const char *option) {
  if (list->n == MAX_PATHS)
    fail(DSH_STAGE_USAGE, E2BIG, option);
  if (path[0] != '/')
    fail(DSH_STAGE_USAGE, 0, "a path must be absolute");
  list->at[list->n++] = path;
}

static bool parse_path(struct launch *l, char **argv, int *i) {
  struct {
    const char *name;
    struct paths *list;
  } const known[] = {{"--ro", &l->ro},
                     {"--rw", &l->rw},
                     {"--expect-ro", &l->expect_ro},
                     {"--expect-rw", &l->expect_rw}};
  size_t k;
  for (k = 0; k < sizeof known / sizeof *known; k++)
    if (strcmp(argv[*i], known[k].name) == 0) {
      add_path(known[k].list, value(argv, i, known[k].name), known[k].name);
      return true;
    }
  return false;
}

static bool parse_flag(struct launch *l, const char *word) {
  struct {
    const char *name;
    bool *flag;
  } const known[] = {{"--inner", &l->inner},
                     {"--dev", &l->dev},
                     {"--observe", &l->observe},
                     {"--foreground", &l->foreground},
                     {"--no-keeper", &l->no_keeper},
                     {"--unconfined", &l->unconfined},
                     {"--exact", &l->exact},
                     {"--probe", &l->probe}};
  size_t k;
  for (k = 0; k < sizeof known / sizeof *known; k++)
    if (strcmp(word, known[k].name) == 0) {
      *known[k].flag = true;
      return true;
    }
  return false;
}

static void parse_mode(struct launch *l, const char *mode) {
  if (strcmp(mode, "read-only") == 0)
    l->read_only = true;
  else if (strcmp(mode, "workspace-write") == 0)
    l->read_only = false;
  else
    fail(DSH_STAGE_USAGE, 0, "--mode: read-only or workspace-write");
}

static bool parse_value(struct launch *l, char **argv, int *i) {
  const char *word = argv[*i];
  if (strcmp(word, "--mode") == 0) {
    parse_mode(l, value(argv, i, word));
  } else if (strcmp(word, "--status-fd") == 0) {
    l->status_fd = number(value(argv, i, word), word);
    report_to(l->status_fd);
  } else if (strcmp(word, "--expect-cwd") == 0) {
    l->expect_cwd = value(argv, i, word);
  } else if (strcmp(word, "--env-fd") == 0) {
    l->env_fd = number(value(argv, i, word), word);
  } else if (strcmp(word, "--pass-fd") == 0) {
    if (l->n_pass == MAX_PASS)
      fail(DSH_STAGE_USAGE, E2BIG, word);
    l->pass[l->n_pass++] = number(value(argv, i, word), word);
#ifdef DSH_FAULTS
  } else if (strcmp(word, "--fault") == 0) {
    faults |= fault_by_name(value(argv, i, word));
#endif
  } else {
    return false;
  }
  return true;
}

/* --runner takes everything up to the next "--". */
static void parse_runner(struct launch *l, char **argv, int *i) {
  if (!argv[*i + 1] || argv[*i + 1][0] != '/')
    fail(DSH_STAGE_USAGE, 0, "--runner: an absolute path is needed");
  l->runner = argv + *i + 1;
  for (++*i; argv[*i] && strcmp(argv[*i], "--") != 0; ++*i)
    l->n_runner++;
  if (!argv[*i])
    fail(DSH_STAGE_USAGE, 0, "--runner: no \"--\" after the runner's words");
}

static void parse(struct launch *l, char **argv) {
  int i;
  l->self = argv[0];
  l->status_fd = l->env_fd = NO_FD;
  l->read_only = true;
  for (i = 1; argv[i] && strcmp(argv[i], "--") != 0; i++) {
    if (strcmp(argv[i], "--help") == 0) {
      fputs(usage_text, stdout);
      exit(0);
    }
    if (strcmp(argv[i], "--runner") == 0) {
      parse_runner(l, argv, &i);
      break;
    }
    if (!parse_flag(l, argv[i]) && !parse_path(l, argv, &i) &&
        !parse_value(l, argv, &i)) {
      char text[256];
      snprintf(text, sizeof text, "%.200s: unknown option", argv[i]);
      fail(DSH_STAGE_USAGE, 0, text);
    }
  }
  if (l->probe)
    return;
  if (l->rw.n) /* a grant under read-only: metadata is decided, not refused */
    l->read_only = false;
  if (!argv[i] || !argv[i + 1])
    fail(DSH_STAGE_USAGE, 0, "no command after \"--\"");
  l->command = argv + i + 1;
}

/* --- outer stage --------------------------------------------------------- */

static int environment_file(char *const *env) {
  int fd = memfd_create("environment", MFD_CLOEXEC);
  size_t i;
  if (fd < 0)
    return -errno;
  for (i = 0; env[i]; i++) {
    const char *p = env[i];
    size_t left = strlen(p) + 1;
    while (left) {
      ssize_t n = write(fd, p, left);
      if (n < 0)
        return -errno;
      p += n;
      left -= (size_t)n;
    }
  }
  return fd;
}

/* The inner argv with our own options put right after its first word. */
static void inner_argv(const struct launch *l, int env_fd, char **out) {
  static char fd_text[2][12], pass_text[MAX_PASS][12], cwd_text[48];
  char **inner = l->command;
  struct stat st;
  int i, n = 0;
  out[n++] = inner[0];
  if (stat(".", &st) != 0)
    fail(DSH_STAGE_CWD, errno, ".");
  snprintf(cwd_text, sizeof cwd_text, "%llu:%llu",
           (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
  out[n++] = (char *)"--expect-cwd";
  out[n++] = cwd_text;
  snprintf(fd_text[0], sizeof fd_text[0], "%d", env_fd);
  out[n++] = (char *)"--env-fd";
  out[n++] = fd_text[0];
  if (l->status_fd != NO_FD) {
    snprintf(fd_text[1], sizeof fd_text[1], "%d", l->status_fd);
    out[n++] = (char *)"--status-fd";
    out[n++] = fd_text[1];
  }
  for (i = 0; i < l->n_pass; i++) {
    snprintf(pass_text[i], sizeof pass_text[i], "%d", l->pass[i]);
    out[n++] = (char *)"--pass-fd";
    out[n++] = pass_text[i];
  }
  if (l->observe)
    out[n++] = (char *)"--observe";
  if (l->foreground)
    out[n++] = (char *)"--foreground";
  if (l->no_keeper)
    out[n++] = (char *)"--no-keeper";
  for (i = 1; inner[i]; i++)
    out[n++] = inner[i];
  out[n] = NULL;
}

/* The lifeline serves our own runs; the runner's wish to die with its parent
 * would fire when the spawning thread ends, so it is left to third parties. */
static int copy_runner(const struct launch *l, char **out) {
  int i, n = 0;
  for (i = 0; i < l->n_runner; i++)
    if (l->status_fd == NO_FD || strcmp(l->runner[i], "--die-with-parent") != 0)
      out[n++] = l->runner[i];
  return n;
}

static _Noreturn void outer(struct launch *l, char *const *env) {
  static char *none[] = {NULL};
  int n, fd = environment_file(env);
  size_t words = 0;
  char **argv;
  if (fd < 0)
    fail(DSH_STAGE_ENVIRONMENT, -fd, "environment");
  check_stdio();
  fcntl(fd, F_SETFD, 0);
  if (l->status_fd != NO_FD)
    fcntl(l->status_fd, F_SETFD, 0);
  close_others(l, fd);
  while (l->command[words])
    words++;
  argv = calloc((size_t)l->n_runner + words + 16 + 2 * (size_t)l->n_pass,
                sizeof *argv);
  if (!argv)
    fail(DSH_STAGE_OUTER, ENOMEM, "arguments");
  n = copy_runner(l, argv);
  argv[n++] = (char *)"--";
  inner_argv(l, fd, argv + n);
  execve(l->runner[0], argv, none);
  fail(DSH_STAGE_RUNNER_EXEC, errno, l->runner[0]);
}

/* --- probe --------------------------------------------------------------- */

/* Tries for real, in a child, so that nothing sticks to this process. */
static int try_restrictions(int abi) {
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) {
    int ruleset = dsh_ll_ruleset(abi, true);
    if (ruleset < 0 || dsh_no_new_privs() < 0 || dsh_ll_restrict(ruleset) < 0)
      _exit(1);
    if (open("/", O_RDONLY | O_DIRECTORY) >= 0)
      _exit(2); /* nothing was granted, and yet it opens */
    _exit(dsh_seccomp_install(DSH_PROGRAM_RO_PLAIN, false) < 0 ? 3 : 0);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
    return -1;
  return WEXITSTATUS(status);
}

static _Noreturn void probe(void) {
  static const char *const missing[] = {
      "",  "rename between directories; truncate; device ioctls; signals",
      "truncate; device ioctls; signals", "device ioctls; signals",
      "device ioctls; signals", "signals"};
  int known, abi = dsh_ll_abi();
  if (abi < 0)
    fail(DSH_STAGE_LANDLOCK, -abi, "not enforced by this kernel");
  known = abi > DSH_LL_ABI_KNOWN ? DSH_LL_ABI_KNOWN : abi;
  switch (try_restrictions(known)) {
  case 0:
    break;
  case 3:
    fail(DSH_STAGE_SECCOMP, 0, "the filter cannot be installed");
  default:
    fail(DSH_STAGE_LANDLOCK, 0, "a restricted process was not refused");
  }
  if (abi < 6)
    printf("landlock-run: partial (Landlock ABI %d): not governed: %s\n", abi,
           missing[abi]);
  else
    printf("landlock-run: full (Landlock ABI %d)\n", abi);
  exit(0);
}

int main(int argc, char **argv) {
  static struct launch l;
  extern char **environ;
  if (argc < 1)
    fail(DSH_STAGE_USAGE, 0, "no arguments");
  parse(&l, argv);
  if (l.probe)
    probe();
  if (l.status_fd != NO_FD && !l.inner)
    report(DSH_KM_HELLO, DSH_STAGE_OUTER, 0, 0, 0);
  if (l.runner)
    outer(&l, environ);
  l.env = environ;
  stage_inner(&l);
}
