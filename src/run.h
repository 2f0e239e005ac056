/* run.h: a run from its start to its outcome; shared by spawn.c (start),
 * loop.c (the one thread that drains and keeps deadlines), output.c (tails
 * and spill files) and status.c (what the keeper says).
 *
 * Ownership: the run owns every descriptor here and all memory reachable from
 * it. Fields below `mutex:` are touched only with the loop's mutex held. */
#ifndef DSH_RUN_H
#define DSH_RUN_H

#include "dsh.h"
#include "keeper.h"

enum { DENIALS_MAX = 256 };

/* One captured stream: the last `cap` bytes in a ring, and from the first
 * overflow everything in a spill file. */
struct stream {
  unsigned char *ring; /* owned */
  size_t cap;
  uint64_t total;      /* bytes seen; the ring holds the last of them */
  uint64_t read;       /* of `total`, given out by dsh_run_read */
  int spill;           /* or -1 */
  uint64_t spilled;
  char *spill_path;    /* owned, or NULL */
  bool no_spill;       /* tried and failed, or not wanted */
};

int stream_open(struct stream *s, size_t cap);
/* `dir` is where a spill file may be made, or NULL. */
void stream_put(struct stream *s, const char *dir, const void *data, size_t n);
size_t stream_read(struct stream *s, void *out, size_t n, uint64_t *skipped);
/* Fills *out with the tail, cut at a character boundary; text in the arena. */
void stream_finish(struct stream *s, struct dsh_arena *a,
                   struct dsh_output *out);
void stream_free(struct stream *s);

/* What a descriptor of a run is for; epoll hands it back. */
enum source_kind { SOURCE_STATUS, SOURCE_OUT, SOURCE_ERR, SOURCE_IN,
                   SOURCE_PROCESS, SOURCE_COUNT };

struct source {
  struct dsh_run *run;
  enum source_kind kind;
  int fd; /* owned, or -1 */
};

struct dsh_run {
  struct dsh_run *next;         /* in the loop's list */
  struct dsh_arena arena;       /* of the outcome */
  struct source source[SOURCE_COUNT];
  pid_t pid;                    /* launcher, runner or command */
  bool has_keeper;              /* speaks keeper.h */
  bool foreign;                 /* … but what it keeps is another's runner */
  bool apart;                   /* … in a pid namespace of its own */
  bool no_keeper;               /* … but only until its execve */
  bool confined;
  bool pty;
  int tty;                      /* terminal to take back, or -1; owned */
  pid_t tty_group;              /* its foreground group before us */
  char *spill_dir;              /* owned, or NULL */
  bool keep_input;              /* stdin stays open for dsh_run_write */
  unsigned char *input;         /* owned */
  size_t input_len, input_at;
  int64_t grace_ms;
  /* mutex: */
  int64_t started_ms, deadline_ms, kill_ms; /* absolute; 0: none */
  bool ending, cut, reaped, finished, stopped, status_lost;
  int wait_status;
  pid_t command_pid;            /* as the keeper sees it */
  struct stream out, err;
  enum dsh_stage last_stage;
  bool heard_hello, heard_ready, heard_started, heard_exited, heard_failed;
  int command_status;
  struct dsh_outcome outcome;
  struct dsh_arena denial_arena; /* their text */
  struct dsh_denial denial[DENIALS_MAX];
  size_t n_denials;
};

/* Takes in one packet from the keeper. */
void status_packet(struct dsh_run *r, const void *packet, size_t n);
/* Turns everything heard into the outcome's facts; after the end. */
void status_conclude(struct dsh_run *r);

/* orphans.c: kills whatever descends from `pid`, as far as /proc tells. */
void kill_below(pid_t pid);

/* pty.c: makes a terminal: *master, and its other side three times over. All
 * numbers are at least `above`. 0 or -1 with errno. */
int pty_open(unsigned short rows, unsigned short cols, int above, int *master,
             int slave[3]);
/* Moves a descriptor to a number of at least `above`; -1 with errno. */
int raise_fd(int fd, int above);

/* Hands a started run to the thread (started if need be); 0 or errno. */
int loop_add(struct dsh_run *r);
int64_t loop_now_ms(void);

#endif
