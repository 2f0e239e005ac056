/* eventlog.c: the reader. Frames or raw bytes in, checked lines out. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "eventlog.h"
#include "frame.h"

enum {
  DIRECT_MAX = 1 << 20, /* frames that decode to more are streamed */
  PIECE = 128 << 10,    /* bytes decoded or read at a time otherwise */
  POLL_MS = 20
};

struct dsh_log {
  int fd;                /* owned; -1: closed */
  bool raw, follow, at_end;
  struct dsh_walk walk;  /* owned */
  ZSTD_DCtx *dctx;       /* owned */
  char *buf;             /* owned; decoded bytes [pos, len) wait */
  size_t pos, len, cap, searched;
  struct dsh_frame frame;
  bool verified;         /* the current frame's checksum was seen */
  bool dirty;            /* the line at pos began in one without */
  uint64_t began;        /* frame in which the line at pos began */
  bool streaming;
  uint64_t src;          /* next byte to decode (streaming) or read (raw) */
  uint64_t line, frames;
  int64_t next_seq;      /* or one of: */
#define SEQ_HEADER (-1)  /* the header has not been read */
#define SEQ_ANY (-2)     /* a part, nothing of which has been read */
  struct dsh_tail tail;
  uint64_t bad_at;
};

/* --- opening ------------------------------------------------------------- */

static int open_file(struct dsh_log *log, const char *path,
                     struct dsh_error *err) {
  struct stat st;
  uint64_t size;
  log->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (log->fd < 0)
    return dsh_fail_path(err, errno == ENOENT ? DSH_E_SESSION_NOT_FOUND
                                              : DSH_E_IO,
                         errno, "log", path, "cannot open %s", path);
  if (fstat(log->fd, &st) != 0 || !S_ISREG(st.st_mode))
    return dsh_fail_path(err, DSH_E_IO, 0, "log", path, "not a file: %s", path);
  size = (uint64_t)st.st_size;
  return dsh_walk_init(&log->walk, log->fd, 0, size, err);
}

/* Raw unless it begins as a frame does; a log of no bytes is a torn frame. */
static void sniff(struct dsh_log *log) {
  const unsigned char *p = dsh_walk_bytes(&log->walk, 0, 1);
  log->raw = p && *p != 0x28 && (*p & 0xf0) != 0x50;
}

struct dsh_log *dsh_log_open(const char *path, int flags,
                             struct dsh_error *err) {
  struct dsh_log *log = calloc(1, sizeof *log);
  if (!log) {
    dsh_fail(err, DSH_E_NO_MEMORY, 0, "log", "out of memory");
    return NULL;
  }
  log->fd = -1;
  log->next_seq = SEQ_HEADER;
  log->follow = flags & DSH_LOG_FOLLOW;
  if (open_file(log, path, err) != 0)
    goto failed;
  sniff(log);
  log->dctx = ZSTD_createDCtx();
  if (!log->dctx) {
    dsh_fail(err, DSH_E_NO_MEMORY, 0, "log", "out of memory");
    goto failed;
  }
  ZSTD_DCtx_setParameter(log->dctx, ZSTD_d_windowLogMax, 27);
  return log;
failed:
  dsh_log_close(log);
  return NULL;
}

void dsh_log_close(struct dsh_log *log) {
  if (!log)
    return;
  if (log->fd >= 0)
    close(log->fd);
  dsh_walk_free(&log->walk);
  ZSTD_freeDCtx(log->dctx);
  free(log->buf);
  free(log);
}

/* --- decoding ------------------------------------------------------------ */

static int defect(struct dsh_log *log, struct dsh_error *err,
                  enum dsh_code code, uint64_t at, const char *why) {
  log->bad_at = at;
  return dsh_fail(err, code, 0, "log", "byte %llu, line %llu: %s",
                  (unsigned long long)at, (unsigned long long)log->line + 1,
                  why);
}

/* Room for `more` bytes behind len, the waiting ones moved to the front. */
static int room(struct dsh_log *log, size_t more, struct dsh_error *err) {
  size_t need, cap = log->cap;
  char *buf;
  if (log->pos) {
    memmove(log->buf, log->buf + log->pos, log->len - log->pos);
    log->len -= log->pos;
    log->searched -= log->pos;
    log->pos = 0;
  }
  need = log->len + more + DSH_SCAN_PAD;
  if (need <= cap)
    return 0;
  while (cap < need)
    cap = cap ? cap + cap / 2 : 4 * PIECE;
  buf = realloc(log->buf, cap);
  if (!buf)
    return dsh_fail(err, DSH_E_NO_MEMORY, 0, "log", "out of memory");
  log->buf = buf;
  log->cap = cap;
  return 0;
}

static int decode_failed(struct dsh_log *log, size_t rc,
                         struct dsh_error *err) {
  return defect(log, err, DSH_E_SESSION_CORRUPT, log->frame.at,
                ZSTD_getErrorName(rc));
}

/* A frame that fits: one call, right behind the waiting bytes. */
static int decode_direct(struct dsh_log *log, struct dsh_error *err) {
  const struct dsh_frame *f = &log->frame;
  const unsigned char *p = dsh_walk_bytes(&log->walk, f->at, (size_t)f->size);
  size_t rc;
  if (!p)
    return dsh_fail(err, DSH_E_IO, errno, "log", "cannot read the log");
  if (room(log, (size_t)f->bound, err) != 0)
    return -1;
  rc = ZSTD_decompressDCtx(log->dctx, log->buf + log->len, (size_t)f->bound, p,
                           (size_t)f->size);
  if (ZSTD_isError(rc))
    return decode_failed(log, rc, err);
  log->len += rc;
  return 1;
}

/* Decodes the next piece of the current frame into `out`. *done: its end. */
static int decode_piece(struct dsh_log *log, ZSTD_outBuffer *out, bool *done,
                        struct dsh_error *err) {
  uint64_t end = log->frame.at + log->frame.size;
  size_t rc = 1;
  *done = false;
  while (out->pos < out->size && !*done) {
    uint64_t left = end - log->src;
    size_t n = left < PIECE ? (size_t)left : PIECE, before = out->pos;
    ZSTD_inBuffer in = {dsh_walk_bytes(&log->walk, log->src, n), n, 0};
    if (!in.src)
      return dsh_fail(err, DSH_E_IO, errno, "log", "cannot read the log");
    rc = ZSTD_decompressStream(log->dctx, out, &in);
    if (ZSTD_isError(rc))
      return decode_failed(log, rc, err);
    log->src += in.pos;
    *done = rc == 0 || (left == in.pos && out->pos == before);
  }
  return 0;
}

static void stream_start(struct dsh_log *log) {
  ZSTD_DCtx_reset(log->dctx, ZSTD_reset_session_only);
  log->src = log->frame.at;
  log->streaming = true;
}

/* A long frame's checksum is at its end, so it is decoded twice: once to
 * see that, then again for the lines. */
static int check_long(struct dsh_log *log, struct dsh_error *err) {
  char *sink = malloc(PIECE);
  bool done = false;
  int rc = 0;
  if (!sink)
    return dsh_fail(err, DSH_E_NO_MEMORY, 0, "log", "out of memory");
  stream_start(log);
  while (!done && rc == 0) {
    ZSTD_outBuffer out = {sink, PIECE, 0};
    rc = decode_piece(log, &out, &done, err);
  }
  free(sink);
  return rc;
}

static int stream_more(struct dsh_log *log, struct dsh_error *err) {
  ZSTD_outBuffer out;
  bool done;
  if (room(log, PIECE, err) != 0)
    return -1;
  out = (ZSTD_outBuffer){log->buf + log->len, PIECE, 0};
  if (decode_piece(log, &out, &done, err) != 0)
    return -1;
  log->len += out.pos;
  if (done)
    log->streaming = false;
  return 1;
}

static int begin_torn(struct dsh_log *log, struct dsh_error *err) {
  if (log->follow) {
    log->walk.pos = log->frame.at;
    return 0;
  }
  if (dsh_walk_hidden(&log->walk, log->frame.at))
    return defect(log, err, DSH_E_SESSION_CORRUPT, log->frame.at,
                  "a damaged frame, with whole frames behind it");
  log->tail.torn = true;
  log->tail.at = log->frame.at;
  log->tail.keep_at = log->began; /* a line may have begun earlier */
  log->verified = false;
  stream_start(log);
  return 1;
}

static int next_frame(struct dsh_log *log, struct dsh_error *err) {
  if (log->pos < log->len)
    log->dirty |= !log->verified;
  log->bad_at = log->walk.pos;
  if (dsh_walk_next(&log->walk, &log->frame, err) != 0)
    return -1;
  if (log->pos == log->len)
    log->began = log->frame.at;
  switch (log->frame.kind) {
  case DSH_FRAME_END:
    return 0;
  case DSH_FRAME_SKIP:
    return 1;
  case DSH_FRAME_TORN:
    return begin_torn(log, err);
  case DSH_FRAME_DATA:
    break;
  }
  log->frames++;
  log->verified = log->frame.checksum;
  if (log->frame.bound <= DIRECT_MAX && log->frame.size <= DSH_WALK_BYTES)
    return decode_direct(log, err);
  if (log->verified && check_long(log, err) != 0)
    return -1;
  stream_start(log);
  return 1;
}

static int read_raw(struct dsh_log *log, struct dsh_error *err) {
  uint64_t left = log->walk.end - log->src;
  size_t n = left < PIECE ? (size_t)left : PIECE;
  const unsigned char *p;
  if (!n)
    return 0;
  p = dsh_walk_bytes(&log->walk, log->src, n);
  if (!p)
    return dsh_fail(err, DSH_E_IO, errno, "log", "cannot read the log");
  if (room(log, n, err) != 0)
    return -1;
  memcpy(log->buf + log->len, p, n);
  log->len += n;
  log->src += n;
  return 1;
}

/* More decoded bytes: 1 (perhaps none), 0 at the end, -1. */
static int fill(struct dsh_log *log, struct dsh_error *err) {
  if (log->raw)
    return read_raw(log, err);
  if (log->streaming)
    return stream_more(log, err);
  return next_frame(log, err);
}

/* --- lines --------------------------------------------------------------- */

static int header_defect(struct dsh_error *err, const char *why) {
  return dsh_fail(err, DSH_E_SESSION_CORRUPT, 0, "log", "header: %s", why);
}

static int header_fields(const json_t *h, char *id, struct dsh_error *err) {
  const json_t *version = json_object_get(h, "version");
  const json_t *jid = json_object_get(h, "id");
  if (!json_is_integer(version))
    return header_defect(err, "no version");
  if (json_integer_value(version) != DSH_LOG_VERSION)
    return dsh_fail(err, DSH_E_SESSION_VERSION, 0, "log",
                    "log version %lld is not known here (only %d)",
                    (long long)json_integer_value(version), DSH_LOG_VERSION);
  if (!json_is_string(jid) || !json_string_length(jid) ||
      json_string_length(jid) > DSH_SESSION_ID_MAX)
    return header_defect(err, "no id, or one too long");
  memcpy(id, json_string_value(jid), json_string_length(jid) + 1);
  return 0;
}

int dsh_header_check(const char *text, size_t len, char *id,
                     struct dsh_error *err) {
  json_t *h = json_loadb(text, len, 0, NULL);
  const char *type = json_string_value(json_object_get(h, "type"));
  int rc;
  if (!type || strcmp(type, "session") != 0)
    rc = header_defect(err, "the first line is not a session header");
  else
    rc = header_fields(h, id, err);
  json_decref(h);
  return rc;
}

static int check_header(struct dsh_log *log, struct dsh_rec *rec,
                        struct dsh_error *err) {
  char id[DSH_SESSION_ID_MAX + 1];
  rec->seq = -1;
  rec->count = 0;
  if (dsh_header_check(rec->text, rec->len, id, err) != 0)
    return dsh_wrap(err, "byte %llu, line 1", (unsigned long long)rec->at);
  log->next_seq = 0;
  return 0;
}

static int check_event(struct dsh_log *log, struct dsh_rec *rec,
                       struct dsh_error *err) {
  const struct dsh_line *s = &rec->scan;
  bool packed = s->kind == DSH_KIND_CHUNKS && s->has_seq0 && !s->has_seq;
  if (!s->type)
    return defect(log, err, DSH_E_SESSION_CORRUPT, rec->at, "no type");
  if (packed && !s->has_dt)
    return defect(log, err, DSH_E_SESSION_CORRUPT, rec->at,
                  "a packed row without dt");
  if (!packed && !s->has_seq)
    return defect(log, err, DSH_E_SESSION_CORRUPT, rec->at, "no seq");
  rec->seq = packed ? s->seq0 : s->seq;
  rec->count = packed ? s->dt + 1 : 1;
  if (log->next_seq == SEQ_ANY)
    log->next_seq = rec->seq;
  if (rec->seq != log->next_seq)
    return defect(log, err, DSH_E_SESSION_CORRUPT, rec->at,
                  "seq is not contiguous");
  log->next_seq += (int64_t)rec->count;
  if (s->kind == DSH_KIND_MODE) {
    enum dsh_mode mode;
    if (dsh_mode_of(s, &mode, err) != 0)
      return dsh_wrap(err, "byte %llu, line %llu", (unsigned long long)rec->at,
                      (unsigned long long)rec->line);
  }
  return 0;
}

static int take_line(struct dsh_log *log, size_t n, struct dsh_rec *rec,
                     struct dsh_error *err) {
  const char *why;
  size_t at;
  rec->text = log->buf + log->pos;
  rec->len = n;
  rec->line = log->line + 1;
  rec->at = log->raw ? log->src - (log->len - log->pos) : log->frame.at;
  rec->began = log->raw ? rec->at : log->began;
  rec->verified = !log->raw && log->verified && !log->dirty;
  rec->torn = log->tail.torn;
  log->bad_at = rec->at;
  if (n > DSH_LINE_MAX)
    return defect(log, err, DSH_E_SESSION_CORRUPT, rec->at,
                  "a line over 64 MiB");
  if (dsh_line_scan(rec->text, n, &rec->scan, &why, &at) != 0)
    return defect(log, err, DSH_E_SESSION_CORRUPT,
                  rec->at + (log->raw ? at : 0), why);
  if ((log->next_seq == SEQ_HEADER ? check_header : check_event)(log, rec,
                                                                 err) != 0)
    return -1;
  log->line++;
  log->pos += n + 1 < log->len - log->pos ? n + 1 : log->len - log->pos;
  log->searched = log->pos;
  log->dirty = false;
  log->began = log->frame.at;
  return 1;
}

/* What is left without a newline: a whole line, or the beginning of one. */
static int take_rest(struct dsh_log *log, struct dsh_rec *rec,
                     struct dsh_error *err) {
  size_t n = log->len - log->pos, at;
  struct dsh_line scan;
  const char *why;
  uint64_t began = log->raw ? log->src - n : log->began;
  if (log->follow)
    return 0;
  log->at_end = true;
  if (!log->tail.torn)
    log->tail.at = log->tail.keep_at = n ? began : log->walk.end;
  if (!n)
    return 0;
  memset(log->buf + log->len, 0, DSH_SCAN_PAD);
  if (dsh_line_scan(log->buf + log->pos, n, &scan, &why, &at) == 0) {
    log->tail.unterminated = true;
    return take_line(log, n, rec, err);
  }
  log->tail.torn = true;
  log->pos = log->len;
  return 0;
}

int dsh_log_next(struct dsh_log *log, struct dsh_rec *rec,
                 struct dsh_error *err) {
  while (!log->at_end) {
    char *from = log->buf + log->searched, *nl = NULL;
    int rc;
    if (log->searched < log->len)
      nl = memchr(from, '\n', log->len - log->searched);
    if (nl)
      return take_line(log, (size_t)(nl - log->buf) - log->pos, rec, err);
    log->searched = log->len;
    if (log->len - log->pos > DSH_LINE_MAX)
      return defect(log, err, DSH_E_SESSION_CORRUPT, log->began,
                    "a line over 64 MiB");
    rc = fill(log, err);
    if (rc < 0)
      return -1;
    if (rc == 0) {
      rc = take_rest(log, rec, err);
      if (rc)
        return rc;
      break;
    }
  }
  if (log->next_seq == SEQ_HEADER && !log->follow)
    return defect(log, err, DSH_E_SESSION_CORRUPT, 0, "no header");
  return 0;
}

void dsh_log_part(struct dsh_log *log, uint64_t at, uint64_t end) {
  log->walk.pos = at;
  log->walk.end = end;
  log->pos = log->len = log->searched = 0;
  log->dirty = log->streaming = log->at_end = false;
  log->line = 0;
  log->next_seq = at ? SEQ_ANY : SEQ_HEADER;
  memset(&log->tail, 0, sizeof log->tail);
}

bool dsh_log_part_done(const struct dsh_log *log, int64_t *next_seq) {
  *next_seq = log->next_seq;
  return log->at_end && !log->tail.torn && !log->tail.unterminated;
}

/* --- what is known ------------------------------------------------------- */

const struct dsh_tail *dsh_log_tail(const struct dsh_log *log) {
  return &log->tail;
}

void dsh_log_where(const struct dsh_log *log, uint64_t *at, uint64_t *line) {
  *at = log->bad_at;
  *line = log->line + 1;
}

uint64_t dsh_log_done(const struct dsh_log *log, uint64_t *size) {
  *size = log->walk.end;
  return log->raw || log->streaming ? log->src : log->walk.pos;
}

uint64_t dsh_log_frames(const struct dsh_log *log) {
  return log->frames;
}

static int grown(struct dsh_log *log, struct dsh_error *err) {
  uint64_t pos = log->raw ? log->src : log->walk.pos, size;
  struct stat st;
  if (fstat(log->fd, &st) != 0)
    return dsh_fail(err, DSH_E_IO, errno, "log", "cannot stat the log");
  size = (uint64_t)st.st_size;
  if (size < pos)
    return defect(log, err, DSH_E_SESSION_CORRUPT, size, "the log was cut");
  if (size == log->walk.end)
    return 0;
  log->walk.end = size;
  log->walk.buf_len = 0;
  return 1;
}

int dsh_log_poll(struct dsh_log *log, int64_t timeout_ms,
                 struct dsh_error *err) {
  const struct timespec nap = {0, POLL_MS * 1000000L};
  int rc = grown(log, err);
  for (; rc == 0 && timeout_ms > 0; timeout_ms -= POLL_MS) {
    nanosleep(&nap, NULL);
    rc = grown(log, err);
  }
  return rc;
}

char *dsh_log_header(struct dsh_arena *a, const char *path,
                     struct dsh_error *err) {
  struct dsh_log *log = dsh_log_open(path, 0, err);
  struct dsh_rec rec;
  char *text = NULL;
  if (!log)
    return NULL;
  if (dsh_log_next(log, &rec, err) == 1)
    text = dsh_strndup(a, rec.text, rec.len);
  dsh_log_close(log);
  return text;
}
