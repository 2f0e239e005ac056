/* launch.h: what the roles of landlock-run share.
 *
 *   landlock_run.c  arguments; the outer stage, which starts a runner
 *   stage.c         the inner stage: restrict, start the command
 *   keeper.c        the resident half: watch, forward, kill, report
 *   remote.c        what another process meant by its arguments
 *   metadata.c      decides metadata changes on the opened object
 *   terminal.c      gives the command the other end of its own terminals
 *   observe.c       typed records of refused file operations
 *   report.c        how all of them speak: packets, or one line and 125
 *
 * One static program. The keeper is not restricted (but for
 * signals); the command's process is, before its execve. */
#ifndef LAUNCH_H
#define LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../src/keeper.h"
#include "../src/uapi.h"

enum {
  EXIT_OURS = 125,      /* any failure of the launcher itself */
  MAX_PATHS = 512,      /* of each kind of path option */
  MAX_PASS = 64,        /* descriptors that the command is given */
  NO_FD = -1
};

struct paths {
  const char *at[MAX_PATHS];
  int fd[MAX_PATHS]; /* O_PATH; filled for grants */
  int n;
};

/* The whole command line, parsed. */
struct launch {
  bool inner;      /* under a runner: insist on what the runner promised */
  bool read_only;  /* --mode */
  bool dev;        /* grant the device list */
  bool exact;      /* grants are canonical paths: a link in one is a fault */
  bool observe, foreground, no_keeper, unconfined, probe;
  int status_fd;   /* or NO_FD */
  int env_fd;      /* or NO_FD */
  const char *expect_cwd; /* DEV:INO of the directory to start in, or NULL */
  int pass[MAX_PASS], n_pass;
  struct paths ro, rw, expect_ro, expect_rw;
  const char *self;      /* argv[0] */
  char **runner;         /* with --runner: its argv, up to the "--" */
  int n_runner;
  char **command;        /* what follows the last "--" of ours */
  char **env;            /* the command's environment */
};

/* A run as the keeper sees it. */
struct run {
  const struct launch *launch;
  int abi;         /* Landlock's, 0 without */
  bool scoped;     /* kill(-1) reaches exactly the tree */
  int ruleset;     /* the command's, kept for confirming checks; or NO_FD */
  int listener;    /* or NO_FD */
  int listener_errnum;
  int tty;         /* with --foreground; or NO_FD */
  pid_t child;
  bool own_group;  /* the command leads its own process group */
};

/* Faults for tests of the tests: only in a build with DSH_FAULTS, which is
 * never installed. A fault names a restriction that is left out. */
enum fault {
  FAULT_NO_SECCOMP = 1, FAULT_NO_CAPDROP = 2, FAULT_KEEP_FD = 4,
  FAULT_SCOPE_OFF = 8, FAULT_NO_LANDLOCK = 16, FAULT_NO_STDIO = 32,
  FAULT_NO_MEMORY = 64
};
#ifdef DSH_FAULTS
extern unsigned faults;
#define FAULTY(f) ((faults & (f)) != 0)
#else
#define FAULTY(f) 0
#endif

/* --- report.c --- */

/* Where packets go; NO_FD: nobody listens, failures are a line on stderr. */
void report_to(int status_fd);
void report(enum dsh_km_type type, enum dsh_stage stage, int errnum,
            int32_t value, uint32_t flags);
void report_text(enum dsh_km_type type, enum dsh_stage stage, int errnum,
                 const char *text);
void report_denied(const char *op, int errnum, pid_t pid, const char *comm,
                   const char *path, const char *path2, uint32_t flags);
void report_exited(int status);
/* FAILED with the path or word concerned, or a line on stderr; ends. */
_Noreturn void fail(enum dsh_stage stage, int errnum, const char *what);

/* --- stage.c --- */

/* Never returns: the inner stage, then the keeper or the command itself. */
_Noreturn void stage_inner(struct launch *l);
int read_environment(struct launch *l); /* 0 or -errno */
/* Closes every descriptor above 2 but those passed on, the status one and
 * `keep` (or NO_FD). */
void close_others(const struct launch *l, int keep);
void check_stdio(void);

/* --- keeper.c --- */

_Noreturn void keeper_loop(struct run *r);
/* Before the start: signals blocked, old mask into *old. */
void keeper_signals(void *old_mask);

/* --- remote.c --- */

/* All of these return 0, a length or a descriptor, or -errno. */
int remote_bytes(pid_t pid, uint64_t address, void *out, size_t size);
int remote_string(pid_t pid, uint64_t address, char *out, int size);
/* Opens what (dirfd, path) names for process pid, O_PATH; "" is dirfd. */
int remote_open(pid_t pid, int dirfd, const char *path, bool follow);
pid_t remote_leader(pid_t tid);
void remote_comm(pid_t pid, char out[16]);
int fd_path(int fd, char *out, int size);
/* Is the object behind O_PATH descriptor fd under a granted root? Returns a
 * descriptor of the same object, reached through that root. */
int granted_open(const struct run *r, int fd);

/* --- metadata.c --- */

/* Answers one notification of a metadata call (or TIOCGPTPEER). */
void metadata_answer(const struct run *r, const struct dsh_notif *n);
bool is_meta_call(int nr);
void answer(const struct run *r, uint64_t id, int error, uint32_t flags);

/* --- terminal.c --- */

/* Answers TIOCGPTPEER on a master that the caller holds. */
void terminal_peer(const struct run *r, const struct dsh_notif *n);
/* Answers an open of /dev/pts/N when the caller holds that terminal's master;
 * false: not one of those, and not answered. */
bool terminal_open(const struct run *r, const struct dsh_notif *n, int dirfd,
                   uint64_t path, int flags);

/* --- observe.c --- */

/* Looks at a trapped path call: opens a terminal of the caller's own, or
 * reports what will be refused and lets the kernel go on with it. */
void observe_call(const struct run *r, const struct dsh_notif *n);

#endif
