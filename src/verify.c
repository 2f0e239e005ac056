/* verify.c: whole logs checked and folded, forwards on one or two threads,
 * or from the end backwards.
 *
 * The headers are walked first and the frames cut into segments, each of
 * which is then read on its own. That answers for ordinary logs: every frame
 * checksummed, every segment ending with a line. Whatever else turns up, be
 * it odd or damaged, is left to the plain reader, which has the last word. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "eventlog.h"
#include "frame.h"

enum {
  SEGMENT_BYTES = 64 << 10, /* compressed */
  SEGMENT_FRAMES = 1024,
  LONG_BYTES = 4 << 20 /* from here on the headers are walked by two */
};

struct segment {
  uint64_t at, end, lines;
  int64_t first_seq, next_seq; /* first_seq -1: begins with the header */
  struct dsh_fold fold;
};

struct segments {
  struct segment *v; /* owned */
  size_t n, cap;
  uint64_t frames, size;
  uint64_t torn_at; /* where a torn frame begins; size: there is none */
};

/* --- forwards, plainly --------------------------------------------------- */

static int plain_verify(const char *path, struct dsh_fold *fold,
                        struct dsh_log_info *info, struct dsh_error *err) {
  struct dsh_log *log = dsh_log_open(path, 0, err);
  struct dsh_rec rec;
  int rc;
  memset(info, 0, sizeof *info);
  dsh_fold_free(fold);
  if (!log)
    return -1;
  while ((rc = dsh_log_next(log, &rec, err)) == 1) {
    info->lines++;
    info->events += rec.count;
    info->unverified += !rec.verified;
    info->at = rec.at;
    info->line = rec.line;
    rc = dsh_fold_apply(fold, &rec, err);
    if (rc != 0) {
      dsh_wrap(err, "byte %llu, line %llu", (unsigned long long)rec.at,
               (unsigned long long)rec.line);
      goto out;
    }
  }
  if (rc < 0)
    dsh_log_where(log, &info->at, &info->line);
out:
  info->tail = *dsh_log_tail(log);
  dsh_log_done(log, &info->size);
  info->frames = dsh_log_frames(log);
  dsh_log_close(log);
  return rc;
}

/* --- segments ------------------------------------------------------------ */

static struct segment *add_segment(struct segments *s, uint64_t at) {
  struct segment *one;
  if (s->n == s->cap) {
    size_t cap = s->cap ? s->cap * 2 : 64;
    struct segment *v = realloc(s->v, cap * sizeof *v);
    if (!v)
      return NULL;
    s->v = v;
    s->cap = cap;
  }
  one = &s->v[s->n++];
  memset(one, 0, sizeof *one);
  dsh_fold_init(&one->fold);
  one->at = one->end = at;
  one->first_seq = -1;
  return one;
}

static void free_segments(struct segments *s) {
  size_t i;
  for (i = 0; i < s->n; i++)
    dsh_fold_free(&s->v[i].fold);
  free(s->v);
}

/* Walks on until a frame begins at or behind `stop`, or the file ends (1).
 * 0: stopped; -1: not an ordinary log. */
static int cut(struct dsh_walk *w, struct segments *s, uint64_t stop) {
  struct segment *one = NULL;
  struct dsh_frame f;
  unsigned frames = 0;
  while (w->pos < stop) {
    if (dsh_walk_next(w, &f, NULL) != 0 ||
        (f.kind == DSH_FRAME_DATA && !f.checksum))
      return -1;
    if (f.kind == DSH_FRAME_END || f.kind == DSH_FRAME_TORN) {
      s->torn_at = f.at;
      return s->n ? 1 : -1;
    }
    if (!one || one->end - one->at + f.size > SEGMENT_BYTES ||
        ++frames > SEGMENT_FRAMES) {
      one = add_segment(s, f.at);
      frames = 1;
    }
    if (!one)
      return -1;
    one->end = f.at + f.size;
    s->frames++;
  }
  return 0;
}

/* The second half of a long file, walked by a thread from a guess: a place
 * that looks like a frame's beginning. The guess holds if the walk from the
 * file's start arrives at that very place; else this work is thrown away. */
struct guess {
  int fd;
  uint64_t from, size; /* in: where to look; the file's size */
  uint64_t at;         /* out: the place */
  struct segments s;   /* out; owned */
  int rc;              /* out: 1 when it went through to the end */
};

static void *walk_guess(void *arg) {
  struct guess *g = arg;
  struct dsh_walk w;
  g->rc = -1;
  if (dsh_walk_init(&w, g->fd, g->from, g->size, NULL) != 0)
    return NULL;
  if (dsh_walk_seek_magic(&w)) {
    g->at = w.pos;
    g->rc = cut(&w, &g->s, UINT64_MAX);
  }
  dsh_walk_free(&w);
  return NULL;
}

static int join_guess(struct dsh_walk *w, struct segments *s,
                      struct guess *g) {
  size_t i;
  int rc = 0;
  if (g->rc == 1)
    rc = cut(w, s, g->at);
  if (rc != 0 || g->rc != 1 || w->pos != g->at)
    return rc != 0 ? rc : cut(w, s, UINT64_MAX);
  for (i = 0; i < g->s.n; i++) {
    struct segment *one = add_segment(s, g->s.v[i].at);
    if (!one)
      return -1;
    one->end = g->s.v[i].end;
  }
  s->frames += g->s.frames;
  s->torn_at = g->s.torn_at;
  return 1;
}

static int cut_long(struct dsh_walk *w, struct segments *s) {
  struct guess g = {.fd = w->fd, .from = w->end / 2, .size = w->end};
  pthread_t other;
  int rc;
  if (pthread_create(&other, NULL, walk_guess, &g) != 0)
    return cut(w, s, UINT64_MAX);
  rc = cut(w, s, g.from);
  pthread_join(other, NULL);
  if (rc == 0)
    rc = join_guess(w, s, &g);
  free_segments(&g.s);
  return rc;
}

/* 0: an ordinary log, cut up; -1: not for us. */
static int cut_file(const char *path, struct segments *s) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = -1;
  struct dsh_walk w;
  struct stat st;
  memset(s, 0, sizeof *s);
  if (fd < 0)
    return -1;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
    s->size = (uint64_t)st.st_size;
    if (dsh_walk_init(&w, fd, 0, s->size, NULL) == 0) {
      rc = s->size < LONG_BYTES ? cut(&w, s, UINT64_MAX) : cut_long(&w, s);
      dsh_walk_free(&w);
    }
  }
  close(fd);
  return rc == 1 ? 0 : -1;
}

/* Reads one segment; -1: something in it is not ordinary. */
static int read_segment(struct dsh_log *log, struct segment *one) {
  struct dsh_rec rec;
  int64_t first = -2;
  int rc;
  dsh_log_part(log, one->at, one->end);
  while ((rc = dsh_log_next(log, &rec, NULL)) == 1) {
    if (first == -2)
      first = rec.seq;
    one->lines++;
    if (dsh_fold_apply(&one->fold, &rec, NULL) != 0)
      return -1;
  }
  one->first_seq = first;
  return rc == 0 && dsh_log_part_done(log, &one->next_seq) ? 0 : -1;
}

/* Does b continue a? A segment of empty frames has no line. */
static bool continues(const struct segments *s) {
  int64_t next = -1;
  size_t i;
  for (i = 0; i < s->n; i++) {
    if (!s->v[i].lines)
      continue;
    if (s->v[i].first_seq != next)
      return false;
    next = s->v[i].next_seq;
  }
  return next >= 0;
}

/* --- forwards, on threads ------------------------------------------------ */

struct team {
  const char *path;
  struct segments *s;
  atomic_size_t next;
  atomic_bool odd;
};

static void *work(void *arg) {
  struct team *t = arg;
  struct dsh_log *log = dsh_log_open(t->path, 0, NULL);
  size_t i;
  if (!log)
    t->odd = true;
  while (!t->odd && (i = atomic_fetch_add(&t->next, 1)) < t->s->n)
    if (read_segment(log, &t->s->v[i]) != 0)
      t->odd = true;
  dsh_log_close(log);
  return NULL;
}

static int team_verify(const char *path, struct segments *s,
                       struct dsh_fold *fold, struct dsh_log_info *info) {
  struct team t = {.path = path, .s = s};
  pthread_t other;
  bool two = pthread_create(&other, NULL, work, &t) == 0;
  size_t i;
  work(&t);
  if (two)
    pthread_join(other, NULL);
  if (t.odd || !continues(s))
    return -1;
  for (i = 0; i < s->n; i++) {
    dsh_fold_join(fold, &s->v[i].fold);
    info->lines += s->v[i].lines;
    if (s->v[i].lines)
      info->events = (uint64_t)s->v[i].next_seq;
  }
  info->frames = s->frames;
  info->size = s->size;
  info->tail.at = info->tail.keep_at = s->size;
  return 0;
}

int dsh_log_verify(const char *path, int threads, struct dsh_fold *fold,
                   struct dsh_log_info *info, struct dsh_error *err) {
  struct segments s;
  int rc = -1;
  memset(info, 0, sizeof *info);
  dsh_fold_init(fold);
  if (threads > 1) {
    if (cut_file(path, &s) == 0 && s.n > 1 && s.torn_at == s.size)
      rc = team_verify(path, &s, fold, info);
    free_segments(&s);
  }
  return rc == 0 ? 0 : plain_verify(path, fold, info, err);
}

/* --- backwards ----------------------------------------------------------- */

static bool settled(const struct dsh_fold *f, unsigned want) {
  return (!(want & DSH_WANT_MODE) || f->has_mode) &&
         (!(want & DSH_WANT_PRESET) || f->preset[0]) &&
         (!(want & DSH_WANT_APPROVAL) || f->approval != DSH_APPROVAL_NONE) &&
         (!(want & DSH_WANT_GRANTS) || f->grants);
}

/* The lines of a torn frame: they may narrow what stands. */
static int fold_torn(struct dsh_log *log, const struct segments *s,
                     struct dsh_fold *fold) {
  int64_t next = s->v[s->n - 1].next_seq;
  struct dsh_rec rec;
  int rc;
  if (s->torn_at == s->size)
    return 0;
  dsh_log_part(log, s->torn_at, s->size);
  while ((rc = dsh_log_next(log, &rec, NULL)) == 1) {
    if (rec.seq != next || dsh_fold_apply(fold, &rec, NULL) != 0)
      return -1;
    next += (int64_t)rec.count;
  }
  return rc;
}

static void keep_wanted(struct dsh_fold *f, unsigned want) {
  if (!(want & DSH_WANT_MODE))
    f->has_mode = f->refused_mode = false;
  if (!(want & DSH_WANT_PRESET)) {
    f->preset[0] = '\0';
    f->refused_preset = false;
  }
  if (!(want & DSH_WANT_APPROVAL)) {
    f->approval = DSH_APPROVAL_NONE;
    f->refused_approval = false;
  }
  if (!(want & DSH_WANT_GRANTS)) {
    free(f->grants);
    f->grants = NULL;
    f->refused_grants = false;
  }
}

/* 0: settled, or all was read and is in order (*full). */
static int fold_back(const char *path, struct segments *s, unsigned want,
                     struct dsh_fold *fold, bool *full) {
  struct dsh_log *log = dsh_log_open(path, 0, NULL);
  size_t i;
  int rc = log ? 0 : -1;
  for (i = s->n; rc == 0 && i-- > 0 && !settled(fold, want);) {
    struct segment *one = &s->v[i];
    rc = read_segment(log, one);
    dsh_fold_join(&one->fold, fold);
    dsh_fold_join(fold, &one->fold);
    if (i == 0)
      *full = true;
  }
  if (rc == 0 && *full && !continues(s))
    rc = -1;
  if (rc == 0)
    rc = fold_torn(log, s, fold);
  dsh_log_close(log);
  return rc;
}

int dsh_log_fold(const char *path, unsigned want, struct dsh_fold *fold,
                 bool *full, struct dsh_error *err) {
  struct dsh_log_info info;
  struct segments s;
  int rc = -1;
  dsh_fold_init(fold);
  *full = false;
  if (cut_file(path, &s) == 0)
    rc = fold_back(path, &s, want, fold, full);
  free_segments(&s);
  if (rc != 0) {
    *full = true;
    rc = plain_verify(path, fold, &info, err);
  }
  keep_wanted(fold, want);
  return rc;
}
