/* no_token.c: TEST ONLY, in place of windows_acl_run_token.c. Skips the token
 * and claims that it did not, so that everything around it can be tried where
 * no token restricts anything. Neither does it ask for the job's limits.
 * Never linked into windows-acl-run.exe.
 * DSH_TEST_LIE=child: the child's token reads back as unrestricted. */
#include "../../backends/windows_acl_run_win.h"

#include <string.h>

static struct war_token_facts claimed;
static char dacl[4096] = "D:(A;;GA;;;BA)";

static int logon_sid(struct war_os *os, char out[WAR_SID_MAX]) {
  (void)os;
  strcpy(out, "S-1-5-5-0-1");
  return 0;
}

static int make_token(struct war_os *os, const char (*sid)[WAR_SID_MAX],
                      size_t n) {
  (void)os;
  memset(&claimed, 0, sizeof claimed);
  claimed.restricted = true;
  claimed.n = n;
  memcpy(claimed.sid, sid, n * sizeof *sid);
  return 0;
}

static int token_facts(struct war_os *os, struct war_token_facts *out) {
  (void)os;
  *out = claimed;
  return 0;
}

static int access_facts(struct war_os *os, const char (*sid)[WAR_SID_MAX],
                        size_t n, struct war_access_facts *out) {
  size_t i;
  (void)os;
  (void)sid;
  out->reads = true;
  out->writes_user_only = false;
  for (i = 0; i < n; i++)
    out->writes_sid[i] = true;
  return 0;
}

static int read_default(struct war_os *os, char *sddl, size_t cap) {
  (void)os;
  strncpy(sddl, dacl, cap);
  return 0;
}

static int write_default(struct war_os *os, const char *sddl) {
  (void)os;
  strncpy(dacl, sddl, sizeof dacl - 1);
  return 0;
}

void win_token_calls(struct war_os *os) {
  os->logon_sid = logon_sid;
  os->make_token = make_token;
  os->token_facts = token_facts;
  os->access_facts = access_facts;
  os->read_default = read_default;
  os->write_default = write_default;
}

int win_create_process(struct win *w, const wchar_t *program, wchar_t *line,
                       DWORD flags, STARTUPINFOEXW *start) {
  if (!CreateProcessW(program, line, NULL, NULL, TRUE, flags, NULL, NULL,
                      &start->StartupInfo, &w->child))
    return win_error(&w->os);
  return 0;
}

int win_child_token(struct win *w, struct war_token_facts *out) {
  char lie[16] = "";
  GetEnvironmentVariableA("DSH_TEST_LIE", lie, sizeof lie);
  (void)w;
  *out = claimed;
  out->restricted = strcmp(lie, "child") != 0;
  return 0;
}

/* wine cannot tell them; the trials see what they do. */
int win_job_limits(struct win *w, unsigned long *flags, unsigned long *ui) {
  (void)w;
  *flags = *ui = ~0ul;
  return 0;
}

void win_token_close(struct win *w) {
  (void)w;
}
