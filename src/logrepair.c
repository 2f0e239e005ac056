/* logrepair.c: a log with a torn tail made whole.
 *
 * The new file is the old one up to where the damage begins, then one frame:
 * the complete lines found behind that, and events that pin the state which
 * the fold allows. For those lines were not verified, and once they stand in
 * a checksummed frame they would be. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "logwrite.h"

enum { COPY_BYTES = 128 << 10 };

/* A frame under construction at the end of fd. */
struct sink {
  int fd;
  uint64_t at;
  ZSTD_CCtx *cctx; /* owned */
  char *buf;       /* owned, COPY_BYTES */
  bool any;        /* something is in the open frame */
};

static int sink_put(struct sink *s, const void *p, size_t n,
                    ZSTD_EndDirective op, struct dsh_error *err) {
  ZSTD_inBuffer in = {p, n, 0};
  size_t left;
  do {
    ZSTD_outBuffer out = {s->buf, COPY_BYTES, 0};
    left = ZSTD_compressStream2(s->cctx, &out, &in, op);
    if (ZSTD_isError(left))
      return dsh_fail(err, DSH_E_IO, 0, "repair", "cannot compress: %s",
                      ZSTD_getErrorName(left));
    if (dsh_write_all(s->fd, s->buf, out.pos, s->at, err) != 0)
      return -1;
    s->at += out.pos;
  } while (op == ZSTD_e_end ? left : in.pos < in.size);
  s->any = op != ZSTD_e_end;
  return 0;
}

static int copy_prefix(const char *path, struct sink *s, uint64_t end,
                       struct dsh_error *err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
  if (fd < 0)
    return dsh_fail(err, DSH_E_IO, errno, "repair", "cannot open %s", path);
  while (rc == 0 && s->at < end) {
    size_t want = end - s->at < COPY_BYTES ? (size_t)(end - s->at) : COPY_BYTES;
    ssize_t n = pread(fd, s->buf, want, (off_t)s->at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      rc = dsh_fail(err, DSH_E_IO, n ? errno : EIO, "repair",
                    "cannot read %s", path);
    else if ((rc = dsh_write_all(s->fd, s->buf, (size_t)n, s->at, err)) == 0)
      s->at += (uint64_t)n;
  }
  close(fd);
  return rc;
}

/* The lines behind keep_at; a header among them gets a frame of its own. */
static int copy_lines(const char *path, struct sink *s, uint64_t keep_at,
                      struct dsh_error *err) {
  struct dsh_log *log = dsh_log_open(path, 0, err);
  struct dsh_rec rec;
  int rc = log ? 1 : -1;
  while (rc == 1 && (rc = dsh_log_next(log, &rec, err)) == 1) {
    if (rec.began < keep_at)
      continue;
    if (sink_put(s, rec.text, rec.len, ZSTD_e_continue, err) != 0 ||
        sink_put(s, "\n", 1, rec.seq < 0 ? ZSTD_e_end : ZSTD_e_continue,
                 err) != 0)
      rc = -1;
  }
  dsh_log_close(log);
  return rc;
}

static int pin(struct sink *s, const char *type, const char *data,
               int64_t *next_seq, struct dsh_error *err) {
  struct dsh_event ev = {type, data, strcmp(type, "sandbox/revoke") == 0};
  struct dsh_text t = {NULL, 0, 0};
  int rc = dsh_event_text(&t, &ev, *next_seq, err);
  if (rc == 0)
    rc = sink_put(s, t.s, t.n, ZSTD_e_continue, err);
  free(t.s);
  ++*next_seq;
  return rc;
}

static int pin_grants(struct sink *s, const char *grants, int64_t *next_seq,
                      struct dsh_error *err) {
  static const char head[] = "{\"id\":\"repair\",\"grants\":";
  struct dsh_text t = {NULL, 0, 0};
  int rc = -1;
  if (dsh_text_add(&t, head, strlen(head), err) == 0 &&
      dsh_text_add(&t, grants, strlen(grants), err) == 0 &&
      dsh_text_add(&t, "}", 2, err) == 0)
    rc = pin(s, "sandbox/revoke", t.s, next_seq, err);
  free(t.s);
  return rc;
}

static int pin_all(struct sink *s, const struct dsh_fold *f, int64_t *next_seq,
                   struct dsh_error *err) {
  char data[DSH_PRESET_MAX * 6 + 64];
  snprintf(data, sizeof data, "{\"mode\":\"%s\",\"source\":\"repair\"}",
           dsh_mode_name(f->mode));
  if (f->refused_mode && pin(s, "sandbox/mode", data, next_seq, err) != 0)
    return -1;
  /* a name that is none of the base presets needs no event: it stayed */
  snprintf(data, sizeof data, "{\"preset\":\"%s\"}",
           f->preset[0] && !strpbrk(f->preset, "\"\\") ? f->preset
                                                        : "read-only");
  if (f->refused_preset &&
      pin(s, "permission/preset", data, next_seq, err) != 0)
    return -1;
  if (f->refused_approval &&
      pin(s, "approval/policy", "{\"policy\":\"never\",\"source\":\"repair\"}",
          next_seq, err) != 0)
    return -1;
  if (f->refused_grants)
    return pin_grants(s, f->grants ? f->grants : "[]", next_seq, err);
  return 0;
}

static int rewrite(const char *path, struct sink *s,
                   const struct dsh_log_info *info, const struct dsh_fold *f,
                   int64_t *next_seq, struct dsh_error *err) {
  uint64_t keep = info->tail.keep_at;
  if (copy_prefix(path, s, keep, err) != 0 ||
      copy_lines(path, s, keep, err) != 0 ||
      pin_all(s, f, next_seq, err) != 0)
    return -1;
  if (s->any && sink_put(s, "", 0, ZSTD_e_end, err) != 0)
    return -1;
  if (fsync(s->fd) != 0)
    return dsh_fail(err, DSH_E_IO, errno, "repair", "cannot sync");
  return 0;
}

int dsh_log_repair(const char *path, const struct dsh_log_info *info,
                   const struct dsh_fold *fold, int64_t *next_seq,
                   struct dsh_error *err) {
  struct sink s = {-1, 0, ZSTD_createCCtx(), malloc(COPY_BYTES), false};
  int64_t seq = *next_seq;
  char tmp[PATH_MAX];
  int rc = -1;
  if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp) {
    dsh_fail(err, DSH_E_IO, ENAMETOOLONG, "repair", "path too long");
    goto out;
  }
  if (!s.cctx || !s.buf) {
    dsh_fail(err, DSH_E_NO_MEMORY, 0, "repair", "out of memory");
    goto out;
  }
  ZSTD_CCtx_setParameter(s.cctx, ZSTD_c_checksumFlag, 1);
  unlink(tmp);
  s.fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (s.fd < 0) {
    dsh_fail(err, DSH_E_IO, errno, "repair", "cannot create %s", tmp);
    goto out;
  }
  rc = rewrite(path, &s, info, fold, &seq, err);
  if (rc == 0 && rename(tmp, path) != 0)
    rc = dsh_fail(err, DSH_E_IO, errno, "repair", "cannot rename %s", tmp);
  if (rc == 0)
    rc = dsh_sync_parent(path, err);
  if (rc != 0)
    unlink(tmp);
  else
    *next_seq = seq;
out:
  if (s.fd >= 0)
    close(s.fd);
  free(s.buf);
  ZSTD_freeCCtx(s.cctx);
  return rc;
}
