/* verdict.c: what a probe found, kept across processes.
 *
 * A text file a backend, lines of tab separated fields:
 *
 *   dshsh-verdict 1
 *   key     one line that says all that the verdict depends on
 *   grade   0|1 (mode)   full|partial
 *   gap     mode  effect  reason
 *   limit   mode  effect  reason
 *   end
 *
 * It is believed only when it is ours, a regular file, and nobody else's to
 * write. The directory is one of our control files: no confined command
 * writes there. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "verdict.h"

enum { VERDICT_MAX = 32768, LIST_MAX = 64 };

static const char magic[] = "dshsh-verdict 1";

/* --- the key ------------------------------------------------------------ */

static char *first_line(struct dsh_arena *a, const char *path) {
  char buf[128] = "";
  FILE *f = fopen(path, "re");
  if (f && !fgets(buf, sizeof buf, f))
    buf[0] = '\0';
  if (f)
    fclose(f);
  buf[strcspn(buf, "\n")] = '\0';
  return dsh_strdup(a, buf);
}

static char *link_text(struct dsh_arena *a, const char *path) {
  char buf[128];
  ssize_t n = readlink(path, buf, sizeof buf);
  return dsh_strndup(a, buf, n > 0 ? (size_t)n : 0);
}

/* Which file that is, and whether it changed. */
static char *identity(struct dsh_arena *a, const char *path) {
  struct stat st;
  if (!path || stat(path, &st) != 0)
    return dsh_strdup(a, "-");
  return dsh_format(a, "%s:%llu:%llu:%lld:%lld.%09ld", path,
                    (unsigned long long)st.st_dev,
                    (unsigned long long)st.st_ino, (long long)st.st_size,
                    (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
}

/* The value of a line of /proc/self/status, "" when there is none. */
static char *status_field(struct dsh_arena *a, const char *text,
                          const char *name) {
  const char *at = text ? strstr(text, name) : NULL;
  if (!at)
    return dsh_strdup(a, "");
  at += strlen(name);
  at += strspn(at, ": \t");
  return dsh_strndup(a, at, strcspn(at, "\n"));
}

static char *read_text(struct dsh_arena *a, int fd) {
  char *buf = dsh_alloc(a, VERDICT_MAX + 1);
  size_t n = 0;
  ssize_t k = 1;
  while (buf && n < VERDICT_MAX && k > 0) {
    k = read(fd, buf + n, VERDICT_MAX - n);
    if (k < 0 && errno == EINTR)
      k = 1;
    else if (k > 0)
      n += (size_t)k;
  }
  return buf && k == 0 ? buf : NULL;
}

/* NULL: no verdict may be kept or believed here. */
static const char *make_key(struct dsh_arena *a, const struct dsh_launch *in,
                            const char *probe) {
  int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  char *status = fd >= 0 ? read_text(a, fd) : NULL;
  struct utsname u;
  if (fd >= 0)
    close(fd);
  if (!status || uname(&u) != 0 ||
      strcmp(status_field(a, status, "\nSeccomp:"), "0") != 0)
    return NULL;
  return dsh_format(
      a, "%s|%s|%s|%u|%u|%s|%s|%s|%s|%s|%d|%s|%s|%s", DSH_VERSION,
      first_line(a, "/proc/sys/kernel/random/boot_id"), u.release,
      (unsigned)geteuid(), (unsigned)getegid(),
      status_field(a, status, "\nCapEff:"),
      status_field(a, status, "\nNoNewPrivs:"),
      link_text(a, "/proc/self/ns/user"), link_text(a, "/proc/self/ns/mnt"),
      link_text(a, "/proc/self/ns/pid"), in->host->landlock_abi,
      identity(a, in->launcher), identity(a, probe),
      identity(a, in->runner));
}

/* --- reading ------------------------------------------------------------ */

static char *verdict_path(struct dsh_arena *a, const char *dir,
                          const char *backend) {
  return dsh_format(a, "%s/%s-%u", dir, backend, (unsigned)geteuid());
}

static char *trusted_text(struct dsh_arena *a, const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat st;
  char *text = NULL;
  if (fd < 0)
    return NULL;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
      st.st_uid == geteuid() && (st.st_mode & 022) == 0)
    text = read_text(a, fd);
  close(fd);
  return text;
}

/* Cuts the next tab separated field off *at. */
static const char *field(char **at) {
  char *start = *at;
  size_t n = strcspn(start, "\t");
  *at = start[n] ? start + n + 1 : start + n;
  start[n] = '\0';
  return start;
}

static int read_mode(char **at, int *mode) {
  const char *word = field(at);
  *mode = word[0] - '0';
  return (*mode == 0 || *mode == 1) && !word[1] ? 0 : -1;
}

static int read_entry(struct dsh_arena *a, char **at, struct dsh_gap **list,
                      size_t *n) {
  if (!*list)
    *list = dsh_alloc(a, LIST_MAX * sizeof **list);
  if (!*list || *n == LIST_MAX)
    return -1;
  (*list)[*n].effect = field(at);
  (*list)[*n].reason = field(at);
  ++*n;
  return 0;
}

/* One line into *r: 0; 1 at the end; -1 broken. */
static int read_line(struct dsh_arena *a, char *line,
                     struct dsh_probe_result *r) {
  const char *word = field(&line);
  struct dsh_grade *g;
  int mode;
  if (strcmp(word, "end") == 0)
    return 1;
  if (read_mode(&line, &mode) != 0)
    return -1;
  g = &r->grade[mode];
  if (strcmp(word, "gap") == 0)
    return read_entry(a, &line, &g->gap, &g->n_gaps);
  if (strcmp(word, "limit") == 0)
    return read_entry(a, &line, &g->limit, &g->n_limits);
  if (strcmp(word, "grade") != 0)
    return -1;
  word = field(&line);
  g->enforcement = strcmp(word, "full") == 0 ? DSH_ENFORCE_FULL
                                             : DSH_ENFORCE_PARTIAL;
  return 0;
}

static bool complete(const struct dsh_probe_result *r) {
  int m;
  for (m = 0; m < 2; m++) {
    const struct dsh_grade *g = &r->grade[m];
    if (g->enforcement == DSH_ENFORCE_NONE ||
        (g->enforcement == DSH_ENFORCE_FULL) != (g->n_gaps == 0))
      return false;
  }
  return true;
}

bool dsh_verdict_load(const char *dir, const char *backend,
                      const struct dsh_launch *in, const char *probe,
                      struct dsh_arena *a, struct dsh_probe_result *r) {
  struct dsh_probe_result found = {.backend = r->backend, .usable = true};
  const char *key = make_key(a, in, probe);
  char *text = key ? trusted_text(a, verdict_path(a, dir, backend)) : NULL;
  char *line, *rest = text;
  int n = 0, state = 0;
  while (state == 0 && (line = rest ? strsep(&rest, "\n") : NULL)) {
    n++;
    if (n == 1 && strcmp(line, magic) != 0)
      return false;
    if (n == 2 && strcmp(line, key) != 0)
      return false;
    if (n > 2)
      state = read_line(a, line, &found);
  }
  if (state != 1 || !complete(&found) || a->failed)
    return false;
  *r = found;
  return true;
}

/* --- writing ------------------------------------------------------------ */

static bool plain(const char *s) {
  return s && !strpbrk(s, "\t\n");
}

/* A list's lines; -1 when something in it cannot be kept: "all" is what was
 * not tried, or not in time, and says more of the moment than of the host. */
static int write_list(FILE *f, const char *word, int mode,
                      const struct dsh_gap *list, size_t n) {
  size_t i;
  if (n > LIST_MAX)
    return -1;
  for (i = 0; i < n; i++) {
    if (!plain(list[i].effect) || !plain(list[i].reason) ||
        strcmp(list[i].effect, "all") == 0)
      return -1;
    fprintf(f, "%s\t%d\t%s\t%s\n", word, mode, list[i].effect, list[i].reason);
  }
  return 0;
}

static int write_result(FILE *f, const char *key,
                        const struct dsh_probe_result *r) {
  int m, e = 0;
  fprintf(f, "%s\n%s\n", magic, key);
  for (m = 0; m < 2 && e == 0; m++) {
    const struct dsh_grade *g = &r->grade[m];
    fprintf(f, "grade\t%d\t%s\n", m,
            g->enforcement == DSH_ENFORCE_FULL ? "full" : "partial");
    e = write_list(f, "gap", m, g->gap, g->n_gaps);
    if (e == 0)
      e = write_list(f, "limit", m, g->limit, g->n_limits);
  }
  fprintf(f, "end\n");
  return e;
}

void dsh_verdict_save(const char *dir, const char *backend,
                      const struct dsh_launch *in, const char *probe,
                      struct dsh_arena *a, const struct dsh_probe_result *r) {
  const char *key = r->usable && complete(r) ? make_key(a, in, probe) : NULL;
  char *path = verdict_path(a, dir, backend);
  char *temp = dsh_format(a, "%s.%ld", path ? path : "", (long)getpid());
  FILE *f = NULL;
  int fd, e;
  if (!key || !path || !temp || !plain(key))
    return;
  if (mkdir(dir, 0700) != 0 && errno != EEXIST)
    return;
  fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return;
  f = fdopen(fd, "w");
  if (!f)
    close(fd);
  e = f ? write_result(f, key, r) : -1;
  if (f && (ferror(f) != 0 || fclose(f) != 0))
    e = -1;
  if (e != 0 || rename(temp, path) != 0)
    unlink(temp);
}
