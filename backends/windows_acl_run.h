/* windows_acl_run.h: the runner for Windows, in three layers.
 *
 *   plan   windows_acl_run_sid.c, _args.c, _sddl.c: pure, no Win32
 *   drive  windows_acl_run_drive.c: the order of steps and every check, over
 *          a table of system calls (struct war_os); no Win32 either
 *   apply  windows_acl_run_token.c, _os.c: that table over Win32
 *
 * The first two are tested natively. The rule that carries the design: what
 * was set is read back, and a child is resumed only when everything read back
 * is exactly what was planned. A call that answers success and does nothing
 * (wine does that) therefore ends in a refusal.
 *
 * Strings are UTF-16 (war_char) where Windows gives or takes them, ASCII for
 * SIDs and SDDL. Functions return 0 or -1 and leave one line in `why`. */
#ifndef WINDOWS_ACL_RUN_H
#define WINDOWS_ACL_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#include <wchar.h>
typedef wchar_t war_char;
#else
typedef uint16_t war_char;
#endif

enum {
  WAR_SID_MAX = 192,
  WAR_PATH_MAX = 32767,    /* UTF-16 units, the NUL included */
  WAR_COMMAND_MAX = 32767, /* CreateProcess, the NUL included */
  WAR_SDDL_MAX = 65536,
  WAR_SIDS_MAX = 4,
  WAR_WHY_MAX = 1024,
  WAR_REFUSED = 127        /* exit code of every failure of our own */
};

/* Write, delete and delete child of a directory, never WRITE_DAC nor
 * WRITE_OWNER; inherited by files and directories. */
#define WAR_ACE_MASK 0x00110156u
#define WAR_EVERYONE "S-1-1-0"

/* --- sid: names from paths ----------------------------------------------- */

void war_sha256(const void *data, size_t n, uint8_t out[32]);
/* UTF-8 of UTF-16; lone surrogates as three bytes each. Bytes written, or 0
 * when cap is too small. */
size_t war_utf8(const war_char *s, size_t n, char *out, size_t cap);
/* Of a canonical path: "S-1-4-a-b" and "S-1-4-a-b-1". */
int war_workspace_sid(const war_char *path, char out[WAR_SID_MAX]);
int war_temp_sid(const war_char *path, char out[WAR_SID_MAX]);

/* --- args: words in, command line out ------------------------------------ */

enum war_verb { WAR_RUN, WAR_SELF_TEST, WAR_INVENTORY, WAR_CLEAN, WAR_VERSION };

struct war_args {
  enum war_verb verb;
  bool workspace_write;
  const war_char *workspace, *temp;            /* as given */
  const war_char *write_sid, *temp_write_sid;  /* or NULL */
  war_char **argv;                             /* the command's */
  int argc;
};

size_t war_length(const war_char *s);
bool war_is(const war_char *s, const char *ascii);
int war_parse(int argc, war_char **argv, struct war_args *out, char *why);
/* CommandLineToArgvW's rules. `out` holds WAR_COMMAND_MAX units. */
int war_command_line(war_char *const *argv, int argc, war_char *out,
                     char *why);
/* Is `path` `dir` or beneath it? Both canonical; ASCII case is one, beyond
 * it the caller's canonical paths already agree. */
bool war_within(const war_char *path, const war_char *dir);
/* "C:\..." or "\\server\share\...": what may be a workspace. */
bool war_absolute(const war_char *path);
/* Neither may contain the other, no root of a drive. */
int war_check_places(const war_char *workspace, const war_char *temp,
                     char *why);

/* --- sddl: edits of a DACL's text ---------------------------------------- */

/* Does the DACL hold our allow ACE for sid, exactly? */
bool war_sddl_has(const char *sddl, const char *sid);
/* With our ACE after the last explicit one (explicit ACEs come before
 * inherited ones). Fails for a missing or NULL DACL. */
int war_sddl_add(const char *sddl, const char *sid, char *out, size_t cap,
                 char *why);
/* Without it; every other ACE as it was. */
int war_sddl_remove(const char *sddl, const char *sid, char *out, size_t cap,
                    char *why);
/* Does `after` hold every explicit ACE of `before`, in order, and nothing
 * explicit beyond them but our ACE for sid (sid may be NULL)? */
bool war_sddl_kept(const char *before, const char *after, const char *sid);
/* A token's default DACL with a full allow ACE for sid. */
int war_sddl_default(const char *sddl, const char *sid, char *out,
                     size_t cap, char *why);
bool war_sddl_default_has(const char *sddl, const char *sid);
/* `after` has it, and for the rest says what `before` says. */
bool war_sddl_default_kept(const char *before, const char *after,
                           const char *sid);

/* --- drive: the border to Win32 ------------------------------------------ */

struct war_token_facts {
  bool restricted;              /* has restricting SIDs */
  size_t n;                     /* of them */
  char sid[WAR_SIDS_MAX + 4][WAR_SID_MAX];
  unsigned privileges;          /* other than SeChangeNotifyPrivilege */
};

/* What AccessCheck says about a token, tried on descriptors of our own. */
struct war_access_facts {
  bool reads;                   /* a user-only object can be read */
  bool writes_user_only;        /* … and written: must be refused */
  bool writes_sid[WAR_SIDS_MAX];/* with an ACE for this SID too */
};

struct war_job_facts {
  bool inside;                  /* the child is in the job */
  bool kills, ui_limits;        /* … which dies with its handle, has limits */
};

/* Which places a lock is for; `alone` is exclusive. */
enum war_lock { WAR_LOCK_CHANGE, WAR_LOCK_USE };

/* Every call returns 0 or -1 with *error the system's number. `self` is the
 * implementation's. Handles are its own too: a token, a child. */
struct war_os {
  void *self;
  unsigned long error;
  int (*canonical)(struct war_os *, const war_char *path, war_char *out);
  int (*make_directory)(struct war_os *, const war_char *path, bool *made);
  int (*remove_tree)(struct war_os *, const war_char *path);
  int (*lock)(struct war_os *, const char *sid, const war_char *path,
              enum war_lock which, bool alone, bool wait);
  int (*unlock)(struct war_os *, const char *sid, enum war_lock which);
  int (*read_dacl)(struct war_os *, const war_char *path, char *sddl,
                   size_t cap);
  int (*write_dacl)(struct war_os *, const war_char *path, const char *sddl);
  int (*logon_sid)(struct war_os *, char out[WAR_SID_MAX]);
  int (*make_token)(struct war_os *, const char (*sid)[WAR_SID_MAX], size_t n);
  int (*token_facts)(struct war_os *, struct war_token_facts *out);
  int (*access_facts)(struct war_os *, const char (*sid)[WAR_SID_MAX],
                      size_t n, struct war_access_facts *out);
  int (*read_default)(struct war_os *, char *sddl, size_t cap);
  int (*write_default)(struct war_os *, const char *sddl);
  int (*start)(struct war_os *, war_char *command, const war_char *temp);
  int (*child_facts)(struct war_os *, struct war_token_facts *token,
                     struct war_job_facts *job);
  int (*resume)(struct war_os *);
  int (*wait)(struct war_os *, uint32_t *code);
  void (*kill)(struct war_os *); /* the child if any, and all handles */
};

/* Runs the command: *code is the child's. -1: refused, nothing was resumed
 * (or the wait failed and the tree was killed), what was changed is undone,
 * `why` says what. */
int war_drive(struct war_os *os, const struct war_args *args, uint32_t *code,
              char *why);
/* Removes the workspace ACE for sid from path. *had: it stood there. */
int war_revoke(struct war_os *os, const char *sid, const war_char *path,
               bool *had, char *why);
/* One line into why; returns -1. */
int war_fail(char *why, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* --- apply --------------------------------------------------------------- */

#ifdef _WIN32
struct war_os *war_windows(void);
/* Where lock files lie, one per SID; each holds its path as UTF-8. */
int war_locks_directory(war_char *out, char *why);
#endif

#endif
