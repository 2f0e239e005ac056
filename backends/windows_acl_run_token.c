/* windows_acl_run_token.c: the restricted token over Win32. No call here
 * starts a process under any other token than the one made here. */
#include "windows_acl_run_win.h"

#include <sddl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef WRITE_RESTRICTED
#define WRITE_RESTRICTED 0x8
#endif
#ifndef LUA_TOKEN
#define LUA_TOKEN 0x4
#endif

static struct win *of(struct war_os *os) {
  return os->self;
}

static int open_own(struct win *w) {
  if (w->own)
    return 0;
  if (OpenProcessToken(GetCurrentProcess(),
                       TOKEN_DUPLICATE | TOKEN_QUERY | TOKEN_ASSIGN_PRIMARY |
                           TOKEN_ADJUST_DEFAULT,
                       &w->own))
    return 0;
  w->own = NULL;
  return win_error(&w->os);
}

/* A token's information, to be freed; NULL with the error recorded. */
static void *information(struct war_os *os, HANDLE token,
                         TOKEN_INFORMATION_CLASS what) {
  DWORD n = 0;
  void *data;
  GetTokenInformation(token, what, NULL, 0, &n);
  data = calloc(1, n ? n : 1);
  if (!data || !n || !GetTokenInformation(token, what, data, n, &n)) {
    win_error(os);
    free(data);
    return NULL;
  }
  return data;
}

static int sid_text(struct war_os *os, PSID sid, char out[WAR_SID_MAX]) {
  char *text;
  size_t n;
  if (!ConvertSidToStringSidA(sid, &text))
    return win_error(os);
  n = strlen(text);
  if (n < WAR_SID_MAX)
    memcpy(out, text, n + 1);
  LocalFree(text);
  return n < WAR_SID_MAX ? 0 : win_error_is(os, ERROR_INVALID_SID);
}

static int logon_sid(struct war_os *os, char out[WAR_SID_MAX]) {
  struct win *w = of(os);
  TOKEN_GROUPS *groups;
  DWORD i;
  int r;
  if (open_own(w) != 0)
    return -1;
  groups = information(os, w->own, TokenGroups);
  if (!groups)
    return -1;
  r = win_error_is(os, ERROR_NOT_FOUND);
  for (i = 0; i < groups->GroupCount; i++)
    if ((groups->Groups[i].Attributes & SE_GROUP_LOGON_ID) ==
        SE_GROUP_LOGON_ID) {
      r = sid_text(os, groups->Groups[i].Sid, out);
      break;
    }
  free(groups);
  return r;
}

static int make_token(struct war_os *os, const char (*sid)[WAR_SID_MAX],
                      size_t n) {
  struct win *w = of(os);
  SID_AND_ATTRIBUTES list[WAR_SIDS_MAX];
  size_t i, made = 0;
  int r = -1;
  if (open_own(w) != 0)
    return -1;
  memset(list, 0, sizeof list);
  for (; made < n; made++)
    if (!ConvertStringSidToSidA(sid[made], &list[made].Sid))
      break;
  if (made < n)
    win_error(os);
  else if (!CreateRestrictedToken(
               w->own, DISABLE_MAX_PRIVILEGE | LUA_TOKEN | WRITE_RESTRICTED, 0,
               NULL, 0, NULL, (DWORD)n, list, &w->token))
    win_error(os);
  else
    r = 0;
  for (i = 0; i < made; i++)
    LocalFree(list[i].Sid);
  return r;
}

static int privileges(struct war_os *os, HANDLE token, unsigned *out) {
  TOKEN_PRIVILEGES *p = information(os, token, TokenPrivileges);
  LUID notify;
  DWORD i;
  if (!p)
    return -1;
  *out = 0;
  if (!LookupPrivilegeValueW(NULL, L"SeChangeNotifyPrivilege", &notify)) {
    free(p);
    return win_error(os);
  }
  for (i = 0; i < p->PrivilegeCount; i++)
    *out += p->Privileges[i].Luid.LowPart != notify.LowPart ||
            p->Privileges[i].Luid.HighPart != notify.HighPart;
  free(p);
  return 0;
}

static int facts(struct war_os *os, HANDLE token,
                 struct war_token_facts *out) {
  TOKEN_GROUPS *list = information(os, token, TokenRestrictedSids);
  size_t i;
  int r = 0;
  if (!list)
    return -1;
  memset(out, 0, sizeof *out);
  if (list->GroupCount > sizeof out->sid / sizeof *out->sid)
    r = win_error_is(os, ERROR_MORE_DATA);
  for (i = 0; r == 0 && i < list->GroupCount; i++)
    r = sid_text(os, list->Groups[i].Sid, out->sid[i]);
  out->n = list->GroupCount;
  out->restricted = list->GroupCount > 0;
  free(list);
  return r == 0 ? privileges(os, token, &out->privileges) : r;
}

static int token_facts(struct war_os *os, struct war_token_facts *out) {
  return facts(os, of(os)->token, out);
}

/* --- trying the token ---------------------------------------------------- */

/* 1: allowed, 0: refused, -1: the question failed. */
static int try_access(struct war_os *os, HANDLE token, const char *sddl,
                      DWORD want) {
  GENERIC_MAPPING mapping = {FILE_GENERIC_READ, FILE_GENERIC_WRITE,
                             FILE_GENERIC_EXECUTE, FILE_ALL_ACCESS};
  union {
    PRIVILEGE_SET set;
    char room[256];
  } used;
  DWORD n = sizeof used, granted = 0;
  BOOL allowed = FALSE, asked;
  PSECURITY_DESCRIPTOR sd;
  if (!ConvertStringSecurityDescriptorToSecurityDescriptorA(
          sddl, SDDL_REVISION_1, &sd, NULL))
    return win_error(os);
  asked = AccessCheck(sd, token, want, &mapping, &used.set, &n, &granted,
                      &allowed);
  if (!asked)
    win_error(os);
  LocalFree(sd);
  return asked ? allowed != 0 : -1;
}

static int user_sid(struct war_os *os, char out[WAR_SID_MAX]) {
  TOKEN_USER *user = information(os, of(os)->own, TokenUser);
  int r;
  if (!user)
    return -1;
  r = sid_text(os, user->User.Sid, out);
  free(user);
  return r;
}

static int ask(struct war_os *os, HANDLE token, const char *user,
               const char (*sid)[WAR_SID_MAX], size_t n,
               struct war_access_facts *out) {
  char sddl[3 * WAR_SID_MAX + 64];
  size_t i;
  int r, wr;
  snprintf(sddl, sizeof sddl, "O:SYG:SYD:(A;;FA;;;%s)", user);
  r = try_access(os, token, sddl, FILE_READ_DATA);
  wr = r < 0 ? -1 : try_access(os, token, sddl, FILE_WRITE_DATA);
  if (wr < 0)
    return -1;
  out->reads = r == 1;
  out->writes_user_only = wr != 0;
  for (i = 0; i < n; i++) {
    snprintf(sddl, sizeof sddl, "O:SYG:SYD:(A;;FA;;;%s)(A;;0x%x;;;%s)", user,
             WAR_ACE_MASK, sid[i]);
    r = try_access(os, token, sddl, FILE_WRITE_DATA);
    if (r < 0)
      return -1;
    out->writes_sid[i] = r == 1;
  }
  return 0;
}

static int access_facts(struct war_os *os, const char (*sid)[WAR_SID_MAX],
                        size_t n, struct war_access_facts *out) {
  char user[WAR_SID_MAX];
  HANDLE copy;
  int r;
  if (user_sid(os, user) != 0)
    return -1;
  if (!DuplicateTokenEx(of(os)->token, TOKEN_QUERY | TOKEN_IMPERSONATE, NULL,
                        SecurityImpersonation, TokenImpersonation, &copy))
    return win_error(os);
  r = ask(os, copy, user, sid, n, out);
  CloseHandle(copy);
  return r;
}

/* --- the default DACL ---------------------------------------------------- */

static int read_default(struct war_os *os, char *sddl, size_t cap) {
  TOKEN_DEFAULT_DACL *dacl = information(os, of(os)->token, TokenDefaultDacl);
  SECURITY_DESCRIPTOR sd;
  char *text = NULL;
  int r = -1;
  if (!dacl)
    return -1;
  if (!InitializeSecurityDescriptor(&sd, SECURITY_DESCRIPTOR_REVISION) ||
      !SetSecurityDescriptorDacl(&sd, TRUE, dacl->DefaultDacl, FALSE) ||
      !ConvertSecurityDescriptorToStringSecurityDescriptorA(
          &sd, SDDL_REVISION_1, DACL_SECURITY_INFORMATION, &text, NULL))
    win_error(os);
  else if (strlen(text) >= cap)
    win_error_is(os, ERROR_INSUFFICIENT_BUFFER);
  else
    r = 0;
  if (r == 0)
    strcpy(sddl, text);
  LocalFree(text);
  free(dacl);
  return r;
}

static int write_default(struct war_os *os, const char *sddl) {
  PSECURITY_DESCRIPTOR sd;
  TOKEN_DEFAULT_DACL dacl = {NULL};
  BOOL present = FALSE, defaulted;
  int r = 0;
  if (!ConvertStringSecurityDescriptorToSecurityDescriptorA(
          sddl, SDDL_REVISION_1, &sd, NULL))
    return win_error(os);
  if (!GetSecurityDescriptorDacl(sd, &present, &dacl.DefaultDacl,
                                 &defaulted) ||
      !present || !dacl.DefaultDacl ||
      !SetTokenInformation(of(os)->token, TokenDefaultDacl, &dacl,
                           sizeof dacl))
    r = win_error(os);
  LocalFree(sd);
  return r;
}

/* --- for windows_acl_run_os.c -------------------------------------------- */

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
  if (!w->token)
    return win_error_is(&w->os, ERROR_INVALID_HANDLE);
  if (!CreateProcessAsUserW(w->token, program, line, NULL, NULL, TRUE, flags,
                            NULL, NULL, &start->StartupInfo, &w->child))
    return win_error(&w->os);
  return 0;
}

int win_child_token(struct win *w, struct war_token_facts *out) {
  HANDLE token;
  int r;
  if (!OpenProcessToken(w->child.hProcess, TOKEN_QUERY, &token))
    return win_error(&w->os);
  r = facts(&w->os, token, out);
  CloseHandle(token);
  return r;
}

int win_job_limits(struct win *w, unsigned long *flags, unsigned long *ui) {
  JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits;
  JOBOBJECT_BASIC_UI_RESTRICTIONS read = {0};
  memset(&limits, 0, sizeof limits);
  if (!QueryInformationJobObject(w->job, JobObjectExtendedLimitInformation,
                                 &limits, sizeof limits, NULL) ||
      !QueryInformationJobObject(w->job, JobObjectBasicUIRestrictions, &read,
                                 sizeof read, NULL))
    return win_error(&w->os);
  *flags = limits.BasicLimitInformation.LimitFlags;
  *ui = read.UIRestrictionsClass;
  return 0;
}

void win_token_close(struct win *w) {
  if (w->token)
    CloseHandle(w->token);
  if (w->own)
    CloseHandle(w->own);
  w->token = w->own = NULL;
}
