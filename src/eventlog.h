/* eventlog.h: session logs, read, folded, verified, written.
 *
 * A log is a header line and then events, one JSON object a line, `seq`
 * contiguous from 0; stored as concatenated zstd frames, or raw. The header
 * is alone in the first frame and each durable append is one frame.
 *
 * A reader owns its descriptor and buffers and reads the file as long as it
 * was at the opening. What it hands out is borrowed until the next call. */
#ifndef DSH_EVENTLOG_H
#define DSH_EVENTLOG_H

#include "dsh.h"
#include "jsonl.h"

#define DSH_LOG_VERSION 0
#define DSH_PRESET_MAX 128           /* bytes of a preset's name */
#define DSH_GRANTS_MAX (1u << 20)    /* bytes of a list of grants */
#define DSH_SESSION_ID_MAX 4096      /* bytes, before escaping */

/* --- reading ------------------------------------------------------------- */

struct dsh_rec {
  const char *text;   /* the line without its newline */
  size_t len;
  uint64_t line;      /* from 1, the header */
  uint64_t at;        /* file offset: of the frame that ends it; raw: its own */
  uint64_t began;     /* of the frame that begins it; raw: its own */
  int64_t seq;        /* first event it stands for; -1: the header */
  uint64_t count;     /* events it stands for; 0: the header */
  bool verified;      /* all its frames' checksums were seen */
  bool torn;          /* from a frame whose end is missing */
  struct dsh_line scan;
};

/* What was found at the end of the file. */
struct dsh_tail {
  bool torn;          /* something there is incomplete */
  uint64_t at;        /* where the incomplete frame or line begins */
  uint64_t keep_at;   /* lines that began before this are untouched by it */
  bool unterminated;  /* the last line lacks only its newline */
};

struct dsh_log;

enum { DSH_LOG_FOLLOW = 1 }; /* leave a torn tail alone: it may yet grow */

/* DSH_E_SESSION_NOT_FOUND, DSH_E_IO, DSH_E_NO_MEMORY. */
struct dsh_log *dsh_log_open(const char *path, int flags,
                             struct dsh_error *err);
void dsh_log_close(struct dsh_log *log); /* NULL is allowed */
/* 1: *rec is the next line; 0: the end; -1: a defect (DSH_E_SESSION_CORRUPT,
 * DSH_E_SESSION_VERSION, DSH_E_INVARIANT) or DSH_E_IO. */
int dsh_log_next(struct dsh_log *log, struct dsh_rec *rec,
                 struct dsh_error *err);
/* Valid after dsh_log_next answered 0. */
const struct dsh_tail *dsh_log_tail(const struct dsh_log *log);
/* Where the last failure was: file offset and line. */
void dsh_log_where(const struct dsh_log *log, uint64_t *at, uint64_t *line);
uint64_t dsh_log_done(const struct dsh_log *log, uint64_t *size); /* bytes */
uint64_t dsh_log_frames(const struct dsh_log *log); /* walked so far */
/* With DSH_LOG_FOLLOW, after 0: takes in what was appended meanwhile. Waits
 * at most timeout_ms. 1: there is more; 0: not; -1: the log was cut. */
int dsh_log_poll(struct dsh_log *log, int64_t timeout_ms,
                 struct dsh_error *err);
/* The header line alone, decoding no more than the first frame: its text in
 * the arena. */
char *dsh_log_header(struct dsh_arena *a, const char *path,
                     struct dsh_error *err);
/* Checks a header line and copies its id (DSH_SESSION_ID_MAX + 1 bytes). */
int dsh_header_check(const char *text, size_t len, char *id,
                     struct dsh_error *err);

/* --- folding ------------------------------------------------------------- */

enum dsh_approval { DSH_APPROVAL_NONE, DSH_APPROVAL_ASK, DSH_APPROVAL_NEVER };

/* The state that a log's events settle; the last of each type wins. An event
 * that was not verified can only narrow: from no mode at all, only down to
 * read-only. */
struct dsh_fold {
  bool has_mode;
  enum dsh_mode mode;
  int64_t mode_seq;
  char preset[DSH_PRESET_MAX + 1]; /* "": none */
  enum dsh_approval approval;
  char *grants;                    /* owned: a JSON list, or NULL */
  bool refused_mode, refused_preset, refused_approval, refused_grants;
};

void dsh_fold_init(struct dsh_fold *f);
void dsh_fold_free(struct dsh_fold *f); /* idempotent */
/* Applies one line. DSH_E_INVARIANT for an unknown mode and the like. */
int dsh_fold_apply(struct dsh_fold *f, const struct dsh_rec *rec,
                   struct dsh_error *err);
/* Takes from `later` what it settles; both from verified lines only. */
void dsh_fold_join(struct dsh_fold *f, struct dsh_fold *later);
/* The mode named by a sandbox/mode line's data. */
int dsh_mode_of(const struct dsh_line *line, enum dsh_mode *out,
                struct dsh_error *err);

struct dsh_log_info {
  uint64_t events, lines, frames, size;
  uint64_t unverified;        /* lines without a checksum seen */
  struct dsh_tail tail;
  uint64_t at, line;          /* of the defect, when the call failed */
};

/* Reads and checks everything, folding on the way. `threads` 1 or 2. `fold`
 * and `info` are filled as far as it went; free the fold in any case. */
int dsh_log_verify(const char *path, int threads, struct dsh_fold *fold,
                   struct dsh_log_info *info, struct dsh_error *err);

enum dsh_want {
  DSH_WANT_MODE = 1, DSH_WANT_PRESET = 2, DSH_WANT_APPROVAL = 4,
  DSH_WANT_GRANTS = 8, DSH_WANT_ALL = 15
};

/* Folds from the end backwards until all that `want` names is settled. *full
 * is true when the whole log was verified on the way, else only its tail was
 * looked at. Only what is wanted is answered. A log that is raw or odd in any
 * way is read in full. */
int dsh_log_fold(const char *path, unsigned want, struct dsh_fold *fold,
                 bool *full, struct dsh_error *err);

/* For the above: reads only the frames in [at, end), whose first line may be
 * any event. */
void dsh_log_part(struct dsh_log *log, uint64_t at, uint64_t end);
/* Did the part end with a line's end? Then *next_seq follows its last one. */
bool dsh_log_part_done(const struct dsh_log *log, int64_t *next_seq);

#endif
