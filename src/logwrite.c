/* logwrite.c: the writer of session logs. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "logwrite.h"

struct dsh_writer {
  char *path;                /* owned */
  char *header;              /* owned; NULL once the log exists */
  int fd, lock;              /* owned; -1: none yet */
  bool raw, broken, repair;
  uint64_t size;
  int64_t next_seq;
  ZSTD_CCtx *cctx;           /* owned */
  struct dsh_text text, out; /* owned */
  struct dsh_log_info info;  /* of the log as opened, for the repair */
  struct dsh_fold fold;      /* likewise; owned */
};

/* --- small things -------------------------------------------------------- */

static int io_failed(struct dsh_error *err, const char *path,
                     const char *what) {
  int errnum = errno;
  return dsh_fail_path(err, DSH_E_IO, errnum, "log", path, "cannot %s %s", what,
                       path);
}

int dsh_text_add(struct dsh_text *t, const void *s, size_t n,
                 struct dsh_error *err) {
  if (t->cap - t->n < n) {
    size_t cap = t->cap + t->cap / 2 + n + 256;
    char *p = realloc(t->s, cap);
    if (!p)
      return dsh_fail(err, DSH_E_NO_MEMORY, 0, "log", "out of memory");
    t->s = p;
    t->cap = cap;
  }
  memcpy(t->s + t->n, s, n);
  t->n += n;
  return 0;
}

int dsh_write_all(int fd, const void *p, size_t n, uint64_t at,
                  struct dsh_error *err) {
  size_t done = 0;
  while (done < n) {
    ssize_t k = pwrite(fd, (const char *)p + done, n - done,
                       (off_t)(at + done));
    if (k < 0 && errno == EINTR)
      continue;
    if (k <= 0)
      return dsh_fail(err, DSH_E_IO, k < 0 ? errno : EIO, "log",
                      "cannot write the log");
    done += (size_t)k;
  }
  return 0;
}

static int sync_directory(const char *path, struct dsh_error *err) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
  if (fd < 0)
    return io_failed(err, path, "open directory");
  if (fsync(fd) != 0)
    rc = io_failed(err, path, "sync directory");
  close(fd);
  return rc;
}

static void parent_of(const char *path, char *out, size_t size) {
  const char *slash = strrchr(path, '/');
  size_t n = slash ? (size_t)(slash - path) : 0;
  if (!slash)
    snprintf(out, size, ".");
  else
    snprintf(out, size, "%.*s", n ? (int)n : 1, path);
}

int dsh_sync_parent(const char *path, struct dsh_error *err) {
  char dir[PATH_MAX];
  parent_of(path, dir, sizeof dir);
  return sync_directory(dir, err);
}

/* Makes dir and what is missing above it, 0700, each made durable. */
static int make_directories(const char *dir, struct dsh_error *err) {
  char up[PATH_MAX];
  struct stat st;
  if (stat(dir, &st) == 0)
    return S_ISDIR(st.st_mode) ? 0 : (errno = ENOTDIR, io_failed(err, dir,
                                                                 "use"));
  parent_of(dir, up, sizeof up);
  if (strcmp(up, dir) == 0)
    return io_failed(err, dir, "make");
  if (make_directories(up, err) != 0)
    return -1;
  if (mkdir(dir, 0700) != 0 && errno != EEXIST)
    return io_failed(err, dir, "make directory");
  return sync_directory(up, err);
}

/* --- events as text ------------------------------------------------------ */

static bool type_fits(const char *s) {
  size_t n = 0;
  for (; s[n]; n++)
    if (!isalnum((unsigned char)s[n]) && !strchr("/-_.:", s[n]))
      return false;
  return n > 0 && n <= DSH_EVENT_TYPE_MAX;
}

/* What we write, we must be able to read; and data is one value, not text
 * that brings further members along. */
static int check_text(const struct dsh_text *t, size_t from, size_t data_len,
                      struct dsh_error *err) {
  size_t n = t->n - DSH_SCAN_PAD - 1 - from, at;
  struct dsh_rec rec = {.text = t->s + from, .len = n, .verified = true};
  struct dsh_fold fold;
  const char *why;
  int rc;
  if (n > DSH_LINE_MAX)
    return dsh_fail(err, DSH_E_MISUSE, 0, "log", "an event over 64 MiB");
  if (dsh_line_scan(rec.text, n, &rec.scan, &why, &at) != 0)
    return dsh_fail(err, DSH_E_MISUSE, 0, "log", "event: %s", why);
  if (rec.scan.data_len != data_len)
    return dsh_fail(err, DSH_E_MISUSE, 0, "log", "event: data: not one value");
  dsh_fold_init(&fold);
  rc = dsh_fold_apply(&fold, &rec, err);
  dsh_fold_free(&fold);
  return rc;
}

int dsh_event_text(struct dsh_text *t, const struct dsh_event *ev, int64_t seq,
                   struct dsh_error *err) {
  static const char pad[DSH_SCAN_PAD] = {0};
  char head[DSH_EVENT_TYPE_MAX + 32], foot[96];
  size_t from = t->n;
  struct timespec now;
  if (!type_fits(ev->type))
    return dsh_fail(err, DSH_E_MISUSE, 0, "log", "bad event type");
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(head, sizeof head, "{\"type\":\"%s\",\"data\":", ev->type);
  snprintf(foot, sizeof foot, ",\"seq\":%lld,\"time\":%lld%s}\n",
           (long long)seq,
           (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000,
           ev->ignorable ? ",\"ignorable\":true" : "");
  if (dsh_text_add(t, head, strlen(head), err) != 0 ||
      dsh_text_add(t, ev->data, strlen(ev->data), err) != 0 ||
      dsh_text_add(t, foot, strlen(foot), err) != 0 ||
      dsh_text_add(t, pad, sizeof pad, err) != 0 ||
      check_text(t, from, strlen(ev->data), err) != 0) {
    t->n = from;
    return -1;
  }
  t->n -= sizeof pad;
  return 0;
}

/* --- the lock ------------------------------------------------------------ */

static int locked_by(int fd, const char *path, struct dsh_error *err) {
  char pid[24] = "";
  ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
  pid[n > 0 ? n : 0] = '\0';
  pid[strcspn(pid, "\n")] = '\0';
  return dsh_fail_path(err, DSH_E_SESSION_LOCKED, 0, "log", path,
                       "another writer%s%s holds %s", pid[0] ? ", pid " : "",
                       pid, path);
}

static int take_lock(struct dsh_writer *w, struct dsh_error *err) {
  char name[PATH_MAX], pid[24];
  int fd, n;
  if (w->lock >= 0)
    return 0;
  if (snprintf(name, sizeof name, "%s.lock", w->path) >= (int)sizeof name)
    return dsh_fail(err, DSH_E_IO, ENAMETOOLONG, "log", "path too long");
  fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return io_failed(err, name, "open lock");
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    int rc = errno == EWOULDBLOCK ? locked_by(fd, w->path, err)
                                  : io_failed(err, name, "lock");
    close(fd);
    return rc;
  }
  /* the number is for the message alone: failures do not matter */
  n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
  if (ftruncate(fd, 0) == 0 && pwrite(fd, pid, (size_t)n, 0) < 0)
    errno = 0;
  w->lock = fd;
  return 0;
}

/* --- opening ------------------------------------------------------------- */

static struct dsh_writer *new_writer(const char *path, const char *header,
                                     struct dsh_error *err) {
  struct dsh_writer *w = calloc(1, sizeof *w);
  if (w) {
    w->fd = w->lock = -1;
    dsh_fold_init(&w->fold);
    w->path = strdup(path);
    w->header = header ? strdup(header) : NULL;
    w->cctx = ZSTD_createCCtx();
    if (w->path && w->cctx && (w->header || !header) &&
        !ZSTD_isError(ZSTD_CCtx_setParameter(w->cctx, ZSTD_c_checksumFlag, 1)))
      return w;
    dsh_writer_close(w);
  }
  dsh_fail(err, DSH_E_NO_MEMORY, 0, "log", "out of memory");
  return NULL;
}

void dsh_writer_close(struct dsh_writer *w) {
  if (!w)
    return;
  if (w->fd >= 0)
    close(w->fd);
  if (w->lock >= 0)
    close(w->lock);
  dsh_fold_free(&w->fold);
  ZSTD_freeCCtx(w->cctx);
  free(w->text.s);
  free(w->out.s);
  free(w->header);
  free(w->path);
  free(w);
}

struct dsh_writer *dsh_writer_create(const char *path, const char *header,
                                     struct dsh_error *err) {
  char id[DSH_SESSION_ID_MAX + 1];
  if (strchr(header, '\n')) {
    dsh_fail(err, DSH_E_MISUSE, 0, "log", "a header of several lines");
    return NULL;
  }
  if (dsh_header_check(header, strlen(header), id, err) != 0)
    return NULL;
  return new_writer(path, header, err);
}

static int open_data(struct dsh_writer *w, struct dsh_error *err) {
  unsigned char first = 0;
  struct stat st;
  if (w->fd >= 0)
    close(w->fd);
  w->fd = open(w->path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (w->fd < 0)
    return dsh_fail_path(err, errno == ENOENT ? DSH_E_SESSION_NOT_FOUND
                                              : DSH_E_IO,
                         errno, "log", w->path, "cannot open %s", w->path);
  if (fstat(w->fd, &st) != 0 || pread(w->fd, &first, 1, 0) < 0)
    return io_failed(err, w->path, "read");
  w->size = (uint64_t)st.st_size;
  w->raw = w->size && first != 0x28 && (first & 0xf0) != 0x50;
  return 0;
}

static int load(struct dsh_writer *w, struct dsh_fold *fold,
                struct dsh_log_info *info, struct dsh_error *err) {
  char tmp[PATH_MAX];
  if (open_data(w, err) != 0 || take_lock(w, err) != 0 ||
      open_data(w, err) != 0) /* again: a repair may have renamed */
    return -1;
  /* what a killed writer left: at worst, the log's second name */
  if (snprintf(tmp, sizeof tmp, "%s.tmp", w->path) < (int)sizeof tmp)
    unlink(tmp);
  if (dsh_log_verify(w->path, 2, fold, info, err) != 0) {
    dsh_fold_free(fold);
    return -1;
  }
  if (info->size != w->size) {
    dsh_fold_free(fold);
    return dsh_fail(err, DSH_E_SESSION_LOCKED, 0, "log",
                    "another program is writing %s", w->path);
  }
  w->info = *info;
  w->repair = info->tail.torn || info->tail.unterminated;
  w->next_seq = (int64_t)info->events;
  w->fold = *fold;
  w->fold.grants = fold->grants ? strdup(fold->grants) : NULL;
  return 0;
}

struct dsh_writer *dsh_writer_open(const char *path, struct dsh_fold *fold,
                                   struct dsh_log_info *info,
                                   struct dsh_error *err) {
  struct dsh_writer *w = new_writer(path, NULL, err);
  if (w && load(w, fold, info, err) != 0) {
    dsh_writer_close(w);
    return NULL;
  }
  return w;
}

/* --- appending ----------------------------------------------------------- */

/* Adds text [from, end) to w->out as one frame. */
static int add_frame(struct dsh_writer *w, const char *s, size_t n,
                     struct dsh_error *err) {
  size_t bound = ZSTD_compressBound(n), rc;
  if (w->out.cap - w->out.n < bound) {
    char *p = realloc(w->out.s, w->out.n + bound);
    if (!p)
      return dsh_fail(err, DSH_E_NO_MEMORY, 0, "log", "out of memory");
    w->out.s = p;
    w->out.cap = w->out.n + bound;
  }
  rc = ZSTD_compress2(w->cctx, w->out.s + w->out.n, bound, s, n);
  if (ZSTD_isError(rc))
    return dsh_fail(err, DSH_E_IO, 0, "log", "cannot compress: %s",
                    ZSTD_getErrorName(rc));
  w->out.n += rc;
  return 0;
}

/* Link; where there are no links, a rename that replaces nothing. */
static int publish_name(const char *from, const char *to) {
  if (link(from, to) == 0) {
    unlink(from); /* if that fails, the next writer removes it */
    return 0;
  }
  if (errno != EPERM && errno != ENOTSUP && errno != EMLINK)
    return -1;
#ifdef RENAME_NOREPLACE
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
#else
  return -1;
#endif
}

/* The whole first file, under its temporary name: written and synced. */
static int write_first(struct dsh_writer *w, const char *tmp,
                       struct dsh_error *err) {
  if (unlink(tmp) != 0 && errno != ENOENT)
    return io_failed(err, tmp, "remove");
  w->fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (w->fd < 0)
    return io_failed(err, tmp, "create");
  if (dsh_write_all(w->fd, w->out.s, w->out.n, 0, err) != 0)
    return -1;
  return fsync(w->fd) == 0 ? 0 : io_failed(err, tmp, "sync");
}

static int publish(struct dsh_writer *w, struct dsh_error *err) {
  char tmp[PATH_MAX], dir[PATH_MAX];
  struct stat st;
  parent_of(w->path, dir, sizeof dir);
  if (make_directories(dir, err) != 0 || take_lock(w, err) != 0)
    return -1;
  if (lstat(w->path, &st) == 0) {
    errno = EEXIST;
    return io_failed(err, w->path, "create");
  }
  if (snprintf(tmp, sizeof tmp, "%s.tmp", w->path) >= (int)sizeof tmp)
    return dsh_fail(err, DSH_E_IO, ENAMETOOLONG, "log", "path too long");
  if (write_first(w, tmp, err) != 0)
    goto failed;
  if (publish_name(tmp, w->path) != 0) {
    io_failed(err, w->path, "publish");
    goto failed;
  }
  if (sync_directory(dir, err) != 0) {
    unlink(w->path);
    goto failed;
  }
  return 0;
failed:
  unlink(tmp);
  if (w->fd >= 0)
    close(w->fd);
  w->fd = -1;
  return -1;
}

static int write_more(struct dsh_writer *w, struct dsh_error *err) {
  struct stat st;
  if (fstat(w->fd, &st) != 0 || st.st_nlink == 0)
    return dsh_fail(err, DSH_E_IO, 0, "log", "the log was removed");
  if ((uint64_t)st.st_size != w->size)
    return dsh_fail(err, DSH_E_SESSION_LOCKED, 0, "log",
                    "another program has written %s", w->path);
  if (dsh_write_all(w->fd, w->out.s, w->out.n, w->size, err) == 0) {
    if (fsync(w->fd) == 0)
      return 0;
    io_failed(err, w->path, "sync");
  }
  if (ftruncate(w->fd, (off_t)w->size) != 0) {
    w->broken = true;
    dsh_wrap(err, "and cannot cut it back (%s)", dsh_errno_name(errno));
  } else if (fsync(w->fd) != 0) {
    w->broken = true;
  }
  return -1;
}

/* Raw: cut at the torn line, or ended with the newline that it lacks. */
static int repair_raw(struct dsh_writer *w, struct dsh_error *err) {
  uint64_t end = w->info.tail.torn ? w->info.tail.keep_at : w->size;
  if (w->info.tail.unterminated) {
    if (dsh_write_all(w->fd, "\n", 1, end, err) != 0)
      return -1;
    end++;
  } else if (ftruncate(w->fd, (off_t)end) != 0) {
    return io_failed(err, w->path, "cut");
  }
  if (fsync(w->fd) != 0)
    return io_failed(err, w->path, "sync");
  w->size = end;
  return 0;
}

static int repair(struct dsh_writer *w, struct dsh_error *err) {
  int rc = w->raw ? repair_raw(w, err)
                  : dsh_log_repair(w->path, &w->info, &w->fold, &w->next_seq,
                                   err);
  if (rc == 0 && !w->raw)
    rc = open_data(w, err);
  w->repair = false;
  w->broken = rc != 0; /* half of it may be done: only a reopening can tell */
  return rc;
}

static int build(struct dsh_writer *w, const struct dsh_event *ev, size_t n,
                 struct dsh_error *err) {
  size_t i, head = 0;
  w->text.n = w->out.n = 0;
  if (w->header && (dsh_text_add(&w->text, w->header, strlen(w->header),
                                 err) != 0 ||
                    dsh_text_add(&w->text, "\n", 1, err) != 0 ||
                    add_frame(w, w->text.s, head = w->text.n, err) != 0))
    return -1;
  for (i = 0; i < n; i++)
    if (dsh_event_text(&w->text, &ev[i], w->next_seq + (int64_t)i, err) != 0)
      return -1;
  if (w->raw)
    return dsh_text_add(&w->out, w->text.s + head, w->text.n - head, err);
  return add_frame(w, w->text.s + head, w->text.n - head, err);
}

int dsh_writer_append(struct dsh_writer *w, const struct dsh_event *ev,
                      size_t n, int64_t *seq, struct dsh_error *err) {
  if (w->broken)
    return dsh_fail(err, DSH_E_IO, 0, "log",
                    "an earlier failure left %s torn: open it again", w->path);
  if (!n)
    return dsh_fail(err, DSH_E_MISUSE, 0, "log", "no events");
  if (build(w, ev, n, err) != 0)
    return -1;
  if (w->repair && (repair(w, err) != 0 || build(w, ev, n, err) != 0))
    return -1;
  if ((w->header ? publish : write_more)(w, err) != 0)
    return -1;
  free(w->header);
  w->header = NULL;
  w->size += w->out.n;
  *seq = w->next_seq;
  w->next_seq += (int64_t)n;
  return 0;
}
