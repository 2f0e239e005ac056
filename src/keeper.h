/* keeper.h: what the host and the keeper say to each other.
 *
 * The keeper is the resident half of landlock-run: one per run. Our spawn
 * makes a SOCK_SEQPACKET pair, gives one end to the launcher as descriptor
 * DSH_KEEPER_FD (`--status-fd 3`, inserted right after argv[0]) and holds the
 * other. The command never has it. One packet is one message; a packet begins
 * with `struct dsh_km`. The host's end closing is the lifeline: the keeper
 * kills the tree and ends.
 *
 * A conversation, in order:
 *   HELLO                      the outermost stage runs; version agreed
 *   FAILED stage errno [text]  something of ours failed; nothing ran; end
 *   READY                      every restriction is in place (innermost stage)
 *   STARTED pid                execve succeeded; or FAILED stage "exec"
 *   STOPPED sig / CONTINUED    job control of the first process, any number
 *   DENIED …                   typed denial records, any number
 *   NOTICE stage errno [text]  something optional is missing (e.g. listener)
 *   EXITED                     exact wait status and resource use; then the
 *                              rest of the tree is killed, and only then
 *   GONE                       nothing of the tree is left; end
 * End of file before READY: the runner failed. Its stage is the last one
 * heard of: "outer" after HELLO, "launcher" without any.
 */
#ifndef DSH_KEEPER_H
#define DSH_KEEPER_H

#include <stdint.h>

#define DSH_KEEPER_VERSION 1
#define DSH_KEEPER_FD 3        /* the launcher's end of the status socket */
#define DSH_KEEPER_PACKET 9216 /* longest packet, two paths included */

enum dsh_km_type {
  DSH_KM_HELLO = 1,
  DSH_KM_FAILED,
  DSH_KM_READY,
  DSH_KM_STARTED,
  DSH_KM_STOPPED,
  DSH_KM_CONTINUED,
  DSH_KM_DENIED,
  DSH_KM_NOTICE,
  DSH_KM_EXITED,
  DSH_KM_GONE,
  /* host to keeper */
  DSH_KM_SIGNAL = 64, /* value: signal for the first process's group */
  DSH_KM_END          /* value: grace in ms; TERM the tree, KILL it after */
};

/* Stages where a start can fail, in order of the launcher's work. */
#define DSH_STAGES(X)                                                        \
  X(NONE, "none") X(LAUNCHER, "launcher") X(USAGE, "usage")                  \
  X(OUTER, "outer") X(ENVIRONMENT, "environment") X(STDIO, "stdio")          \
  X(RUNNER_EXEC, "runner-exec") X(RUNNER, "runner") X(MOUNTS, "mounts")      \
  X(CAPABILITIES, "capabilities") X(LANDLOCK, "landlock")                    \
  X(GRANT, "grant") X(SECCOMP, "seccomp") X(LISTENER, "listener")            \
  X(FORK, "fork") X(CWD, "cwd") X(EXEC, "exec")

enum dsh_stage {
#define DSH_STAGE_ENUM(name, text) DSH_STAGE_##name,
  DSH_STAGES(DSH_STAGE_ENUM)
#undef DSH_STAGE_ENUM
  DSH_STAGE_COUNT
};

/* Header of every packet. `text` (a path, a message) follows where the type
 * says so, without a NUL, to the packet's end. */
struct dsh_km {
  uint8_t version, type;
  uint16_t stage;  /* enum dsh_stage */
  int32_t errnum;
  int32_t value;   /* pid, signal, wait status, grace */
  uint32_t flags;
};

/* EXITED: the header's value is the wait status as waitpid gives it. */
struct dsh_km_exited {
  struct dsh_km head;
  int64_t user_us, system_us, max_rss_kb;
};

enum dsh_denied_flags {
  DSH_DENIED_CONFIRMED = 1,        /* the kernel said so in the domain */
  DSH_DENIED_ALSO_PERMISSIONS = 2  /* file permissions alone would refuse */
};

/* DENIED: head.errnum is the errno, head.value the pid, head.flags the above.
 * The two paths follow back to back; the second may be empty. */
struct dsh_km_denied {
  struct dsh_km head;
  char op[16], comm[16];
  uint16_t path_len, path2_len;
};

#endif
