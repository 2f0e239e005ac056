/* windows_acl_run_win.h: what the two Win32 files share. Apply layer only. */
#ifndef WINDOWS_ACL_RUN_WIN_H
#define WINDOWS_ACL_RUN_WIN_H

#include <windows.h>

#include "windows_acl_run.h"

enum { WIN_LOCKS = 8, WIN_HELD = 4 };

struct win_lock {
  char sid[WAR_SID_MAX];
  enum war_lock which;
  HANDLE file; /* owned; NULL: free entry */
};

/* Handles are NULL when there is none; all owned, closed by os->kill, the
 * locks by os->unlock. */
struct win {
  struct war_os os;
  HANDLE own, token;
  HANDLE job;
  PROCESS_INFORMATION child;
  HANDLE held[WIN_HELD]; /* directories that must keep their names */
  size_t n_held;
  struct win_lock lock[WIN_LOCKS];
};

/* Records GetLastError() and returns -1. */
int win_error(struct war_os *os);
int win_error_is(struct war_os *os, unsigned long error);

/* windows_acl_run_token.c; replaced as a whole by the tests' object. */
void win_token_calls(struct war_os *os);
/* Starts the child under the token. 0 or -1. */
int win_create_process(struct win *w, const wchar_t *program, wchar_t *line,
                       DWORD flags, STARTUPINFOEXW *start);
int win_child_token(struct win *w, struct war_token_facts *out);
/* The job's flags and user interface limits as read back. */
int win_job_limits(struct win *w, unsigned long *flags, unsigned long *ui);
void win_token_close(struct win *w);

#endif
