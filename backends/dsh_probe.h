/* dsh_probe.h: the instrument. A static program that tries, on throw-away
 * targets, everything that a mode of the sandbox forbids.
 *
 * Two halves of one binary. Outside, the harness (dsh_probe_harness.c) makes
 * the targets, runs the inside half bare and then confined, and looks at the
 * targets after every single operation. Inside, dsh_probe_inside.c walks the
 * same list of cells, runs each in a process of its own and reports only an
 * errno; what happened is judged from outside wherever it can be.
 *
 * A cell is an operation on a bundle (a small directory of targets) in one
 * place, reached by one form of path, from one kind of actor. Both halves
 * enumerate the cells by the same function, so a cell is known by its index.
 */
#ifndef DSH_PROBE_H
#define DSH_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
  PROBE_PATH_MAX = 512,
  PROBE_CELL_MS = 3000,    /* one operation */
  PROBE_STAGE_MS = 40000,  /* one pass over all cells */
  PROBE_FD_FILE = 20,      /* left open by the harness on purpose */
  PROBE_FD_DIR = 21,
  PROBE_CELLS_MAX = 8192
};

#define PROBE_FILE_TEXT "keep this text\n"
#define PROBE_KILLED (-1) /* the actor died of a signal */
#define PROBE_NO_CALL (-2) /* could not even be set up here */

/* Where a bundle lies. The last four are pairs: from the first to the
 * second; the operation moves or links between them. */
enum probe_place {
  PLACE_ROOT, PLACE_OUTSIDE, PLACE_TEMP,
  PLACE_OUT_TO_ROOT, PLACE_ROOT_TO_OUT, PLACE_ROOT_TO_EXTRA,
  PLACE_ROOT_TO_TEMP, PLACE_HOST, PLACE_STDIO, PLACE_COUNT
};

enum probe_form {
  FORM_ABSOLUTE, FORM_RELATIVE, FORM_DIRFD, FORM_SYMLINK, FORM_DOTDOT,
  FORM_PROC_ROOT, FORM_PROC_FD, FORM_COUNT
};

enum probe_actor {
  ACTOR_CHILD, ACTOR_GRANDCHILD, ACTOR_SESSION, ACTOR_THREAD, ACTOR_COUNT
};

/* Which pass over the sandbox a cell belongs to; each is one start. */
enum probe_pass { PASS_MAIN, PASS_STDIO, PASS_STDIN_DIR, PASS_COUNT };

enum probe_flags {
  OP_PATHS = 1,     /* every place, form and actor */
  OP_PAIR = 2,      /* every pair of places */
  OP_ONE = 4,       /* one cell with a bundle outside */
  OP_HOST = 8,      /* one cell; its target is the host's, by name */
  OP_STDIO = 16,    /* stdin and stderr are files outside */
  OP_STDIN_DIR = 32,
  OP_RETURN = 64,   /* judged by the return value: no trace to look at */
  OP_COUNTER = 128, /* judged by what the outside peers counted */
  OP_PEER = 256,    /* judged by the peers' own target */
  OP_NEVER = 512,   /* refused in every confined mode, inside a root too */
  OP_ALLOWED = 1024, /* expected to work in every mode (the device list) */
  OP_EITHER = 2048, /* inside a root both answers are right */
  OP_SYNC = 4096,   /* the harness acts between start and operation */
  OP_NOTE = 8192,   /* expected answer depends on the host; reported only */
  OP_FIRST = 16384, /* of a pair, only the first bundle is looked at */
  OP_RACE = 32768,  /* of the pairs, only the one from outside */
  OP_TEMP = 65536   /* the host's place is one that workspace-write grants */
};

struct probe_spec {
  char root[PROBE_PATH_MAX], outside[PROBE_PATH_MAX], temp[PROBE_PATH_MAX];
  char extra[PROBE_PATH_MAX]; /* second granted root; "" for none */
  char only[64];    /* substring of an operation's name; "" for all */
  char set[8];      /* "bare" or "conf": which targets */
  char self[PROBE_PATH_MAX]; /* this binary, as the sandbox sees it */
  enum probe_pass pass;
  bool quick;       /* one form and one actor only */
  bool hurry;       /* the short form: share memory where it can be */
  pid_t victim;     /* an outside process of this user */
  uint64_t counter; /* address of the counters in the victim */
  int port;         /* TCP on 127.0.0.1, outside */
  int pts;          /* /dev/pts/N of an outside terminal, or -1 */
  char victim_fd[PROBE_PATH_MAX]; /* /proc/PID/fd/N, a write descriptor */
};

/* What an operation gets. */
struct probe_ctx {
  const struct probe_spec *spec;
  char dir[PROBE_PATH_MAX];   /* bundle */
  char other[PROBE_PATH_MAX]; /* second bundle of a pair */
  char prefix[PROBE_PATH_MAX];
  int dfd;                    /* for the *at calls */
  int sync_fd;                /* the result socket, with OP_SYNC */
};

struct probe_op {
  const char *name;
  char cls;            /* 'F' file effect, graded; 'N' reported */
  const char *effect;  /* class of effect, the name of a gap */
  unsigned flags;
  int (*run)(struct probe_ctx *c); /* 0, an errno, or PROBE_NO_CALL */
  const char *note;    /* N: what is promised and why; F: or NULL */
};

struct probe_family {
  const struct probe_op *op;
  size_t n;
};

extern const struct probe_family probe_open, probe_open2, probe_names,
    probe_meta, probe_proc, probe_mount, probe_stdio, probe_race,
    probe_process;

struct probe_cell {
  const struct probe_op *op;
  enum probe_place place;
  enum probe_form form;
  enum probe_actor actor;
  enum probe_pass pass;
};

/* --- cells (dsh_probe_cells.c) ------------------------------------------- */

/* All operations, in order; NULL past the end. */
const struct probe_op *probe_op_at(size_t i);
/* Fills `out` (room for PROBE_CELLS_MAX) with the cells of spec->pass. */
size_t probe_cells(const struct probe_spec *s, struct probe_cell *out);
const char *probe_place_name(enum probe_place p);
const char *probe_form_name(enum probe_form f);
const char *probe_actor_name(enum probe_actor a);
/* Directory of a cell's bundle; `second` is the far end of a pair. */
void probe_bundle_dir(const struct probe_spec *s, const struct probe_cell *c,
                      bool second, char *out);
int probe_spec_write(const struct probe_spec *s, const char *path);
int probe_spec_read(struct probe_spec *s, const char *path);

/* --- bundles (dsh_probe_bundle.c) ---------------------------------------- */

/* Makes the bundle, or brings one that was changed back into that state. 0
 * or errno. Contents: f (text, 0644, an
 * old mtime, user.k), g (another text), d/ (empty), t/ with x, l -> f, and
 * beside it NAME.via -> the bundle. */
int probe_bundle_make(const char *dir);
/* A number that changes with every visible change beneath dir: names, types,
 * owners, modes, sizes, times but atime, contents, xattrs, file flags. */
uint64_t probe_bundle_look(const char *dir);
int probe_remove_tree(const char *path);

/* --- outside peers (dsh_probe_peer.c) ------------------------------------ */

/* What an outside process of the same user saw. Shared memory. */
struct probe_counters {
  volatile uint64_t touched; /* written by others, signals, connections */
  volatile int32_t ready;    /* 1: listening; -1: failed */
  volatile int32_t port;
  volatile int32_t pts; /* number of a terminal of its own, or -1 */
};

/* Starts it with `dir` as its directory and dir/f open for writing as
 * descriptor PROBE_FD_FILE; listens on peer.sock in `outside`, on the
 * abstract name dsh-probe-PID and on TCP. Returns its pid or -1. */
pid_t probe_peer_start(struct probe_counters *shared, const char *dir,
                       const char *outside);
void probe_peer_stop(pid_t pid);

/* --- the two halves ------------------------------------------------------ */

int probe_inside(const char *spec_path);
int probe_harness(int argc, char **argv);
int probe_short(int argc, char **argv);

/* Runs one operation as a process of its own and waits for it. */
int probe_run_cell(const struct probe_spec *s, const struct probe_cell *c,
                   int sync_fd);

/* --- for operations ------------------------------------------------------ */

/* Path of `name` in the bundle, for an *at call with c->dfd. Eight may be
 * held at once. */
const char *probe_at(const struct probe_ctx *c, const char *name);
/* The same for calls that take no directory: works from the directory. */
const char *probe_plain(const struct probe_ctx *c, const char *name);
/* Absolute path of `name` in the second bundle. */
const char *probe_other(const struct probe_ctx *c, const char *name);
/* 0 or errno for the result of a call. */
int probe_rc(long result);
/* Opens f with these flags and writes through it; errno or 0. */
int probe_write_fd(int fd);
const char *probe_errno_name(int errnum);
/* ioctl whose request is unsigned, as the headers define it. */
int probe_ioctl(int fd, unsigned long request, void *arg);
/* Tells the harness to act, and waits until it has. */
int probe_sync(const struct probe_ctx *c);

#define PROBE_LEN(a) (sizeof(a) / sizeof *(a))

#endif
