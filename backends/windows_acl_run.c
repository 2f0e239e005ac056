/* windows_acl_run.c: the program. Runs a command under a write-restricted
 * token, or says in one line why not and exits 127. */
#include "windows_acl_run_win.h"

#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The C runtime must not expand * and ? in the command's words. */
extern int _dowildcard;
int _dowildcard = 0;

#define VERSION "0.1.0"

static int refuse(const char *why) {
  fprintf(stderr, "windows-acl-run: %s\n", why);
  return WAR_REFUSED;
}

/* Ours to ignore, the child's to decide (SetConsoleCtrlHandler(NULL, TRUE)
 * would be inherited). */
static BOOL WINAPI on_control(DWORD what) {
  return what == CTRL_C_EVENT || what == CTRL_BREAK_EVENT;
}

/* --- grants that were left ----------------------------------------------- */

/* The path that a lock file names, as UTF-16; false if it names none. */
static bool noted_path(const wchar_t *file, wchar_t *path) {
  static char text[4 * WAR_PATH_MAX];
  HANDLE h = CreateFileW(file, GENERIC_READ,
                         FILE_SHARE_READ | FILE_SHARE_WRITE |
                             FILE_SHARE_DELETE,
                         NULL, OPEN_EXISTING, 0, NULL);
  DWORD n = 0;
  int wide;
  if (h == INVALID_HANDLE_VALUE)
    return false;
  if (!ReadFile(h, text, sizeof text, &n, NULL))
    n = 0;
  CloseHandle(h);
  wide = n ? MultiByteToWideChar(CP_UTF8, 0, text, (int)n, path,
                                 WAR_PATH_MAX - 1)
           : 0;
  path[wide > 0 ? wide : 0] = 0;
  return wide > 0 && war_absolute(path);
}

/* The file's name must be the SID of the path that it names: nothing else is
 * ever taken out of an access list. */
static bool belongs(const char *sid, const wchar_t *path) {
  char own[WAR_SID_MAX];
  return (war_workspace_sid(path, own) == 0 && strcmp(own, sid) == 0) ||
         (war_temp_sid(path, own) == 0 && strcmp(own, sid) == 0);
}

static int one_grant(struct war_os *os, const wchar_t *file, const char *sid,
                     bool clean) {
  static wchar_t path[WAR_PATH_MAX];
  static char sddl[WAR_SDDL_MAX];
  char why[WAR_WHY_MAX];
  bool had = false;
  int r;
  if (!noted_path(file, path) || !belongs(sid, path)) {
    printf("%s\tunknown\t\n", sid);
    return 1;
  }
  if (!clean) {
    r = os->read_dacl(os, path, sddl, sizeof sddl);
    printf("%s\t%s\t%ls\n", sid,
           r ? "unreadable" : war_sddl_has(sddl, sid) ? "stands" : "gone",
           path);
    return 0;
  }
  if (os->lock(os, sid, path, WAR_LOCK_CHANGE, true, true) != 0) {
    printf("%s\tlocked\t%ls\n", sid, path);
    return 1;
  }
  r = war_revoke(os, sid, path, &had, why);
  os->unlock(os, sid, WAR_LOCK_CHANGE);
  if (r != 0 && GetFileAttributesW(path) == INVALID_FILE_ATTRIBUTES)
    r = 0; /* the path is gone, and its list with it */
  printf("%s\t%s\t%ls\n", sid, r ? why : had ? "removed" : "gone", path);
  if (r == 0)
    DeleteFileW(file);
  return r != 0;
}

static int grants(bool clean) {
  static wchar_t dir[WAR_PATH_MAX], file[WAR_PATH_MAX];
  struct war_os *os = war_windows();
  char why[WAR_WHY_MAX], sid[WAR_SID_MAX];
  WIN32_FIND_DATAW e;
  HANDLE h;
  int bad = 0;
  if (war_locks_directory(dir, why) != 0)
    return refuse(why);
  _snwprintf(file, WAR_PATH_MAX - 1, L"%ls\\S-1-4-*", dir);
  h = FindFirstFileW(file, &e);
  if (h == INVALID_HANDLE_VALUE)
    return 0;
  do {
    _snwprintf(file, WAR_PATH_MAX - 1, L"%ls\\%ls", dir, e.cFileName);
    snprintf(sid, sizeof sid, "%ls", e.cFileName);
    bad |= one_grant(os, file, sid, clean);
  } while (FindNextFileW(h, &e));
  FindClose(h);
  return bad;
}

/* --- self-test ----------------------------------------------------------- */

struct trial {
  const wchar_t *mode, *script;
  const wchar_t *file;  /* relative to the scratch directory */
  bool exists;          /* afterwards */
  const char *what;
};

static const struct trial trials[] = {
    {L"read-only", L"echo x>w\\a", L"w\\a", false, "read-only: create refused"},
    {L"read-only", L"del /q w\\old & ver>nul", L"w\\old", true,
     "read-only: remove refused"},
    {L"read-only", L"echo x>nul", L"w\\old", true, "read-only: runs"},
    {L"workspace-write", L"echo x>w\\b", L"w\\b", true,
     "workspace-write: create in the workspace"},
    {L"workspace-write", L"echo x>o\\c", L"o\\c", false,
     "workspace-write: create outside refused"},
    {L"workspace-write", L"move /y o\\old w\\moved & ver>nul", L"o\\old", true,
     "workspace-write: move from outside refused"},
    {L"workspace-write", L"echo x>\"%TEMP%\\d\" & copy \"%TEMP%\\d\" w\\e",
     L"w\\e", true, "workspace-write: the temp directory"},
};

static void touch(const wchar_t *path) {
  HANDLE h = CreateFileW(path, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
  if (h != INVALID_HANDLE_VALUE)
    CloseHandle(h);
}

static bool there(const wchar_t *path) {
  return GetFileAttributesW(path) != INVALID_FILE_ATTRIBUTES;
}

static int try_one(const struct trial *t, const wchar_t *base) {
  static wchar_t w[WAR_PATH_MAX], tmp[WAR_PATH_MAX], cmd[MAX_PATH + 16];
  wchar_t mode[32], script[256], d[] = L"/d", c[] = L"/c";
  wchar_t *argv[4] = {cmd, d, c, script};
  struct war_args args;
  char why[WAR_WHY_MAX] = "";
  uint32_t code;
  int r;
  memset(&args, 0, sizeof args);
  GetSystemDirectoryW(cmd, MAX_PATH);
  wcscat(cmd, L"\\cmd.exe");
  wcscpy(mode, t->mode);
  wcscpy(script, t->script);
  _snwprintf(w, WAR_PATH_MAX - 1, L"%ls\\w", base);
  _snwprintf(tmp, WAR_PATH_MAX - 1, L"%ls\\t", base);
  args.workspace_write = war_is(mode, "workspace-write");
  args.workspace = w;
  args.temp = tmp;
  args.argv = argv;
  args.argc = 4;
  r = war_drive(war_windows(), &args, &code, why);
  if (r == 0 && there(t->file) == t->exists) {
    printf("ok\t%s\n", t->what);
    return 0;
  }
  printf("FAILED\t%s%s%s\n", t->what, r ? ": " : "", r ? why : "");
  return 1;
}

static int self_test(void) {
  static wchar_t base[WAR_PATH_MAX], w[WAR_PATH_MAX];
  struct war_os *os = war_windows();
  char why[WAR_WHY_MAX], sid[WAR_SID_MAX];
  bool had;
  size_t i;
  int bad = 0;
  if (war_locks_directory(base, why) != 0)
    return refuse(why);
  _snwprintf(base + wcslen(base), 64, L"-self-test-%lu",
             GetCurrentProcessId());
  if (!CreateDirectoryW(base, NULL) || !SetCurrentDirectoryW(base))
    return refuse("the scratch directory cannot be made");
  CreateDirectoryW(L"w", NULL);
  CreateDirectoryW(L"o", NULL);
  touch(L"w\\old");
  touch(L"o\\old");
  for (i = 0; i < sizeof trials / sizeof *trials; i++)
    bad |= try_one(&trials[i], base);
  _snwprintf(w, WAR_PATH_MAX - 1, L"%ls\\w", base);
  if (war_workspace_sid(w, sid) == 0)
    war_revoke(os, sid, w, &had, why);
  SetCurrentDirectoryW(L"\\");
  os->remove_tree(os, base);
  printf(bad ? "self-test: FAILED\n" : "self-test: every trial as planned\n");
  return bad;
}

/* --- main ---------------------------------------------------------------- */

static int run(const struct war_args *args) {
  char why[WAR_WHY_MAX] = "";
  uint32_t code = WAR_REFUSED;
  SetConsoleCtrlHandler(on_control, TRUE);
  if (war_drive(war_windows(), args, &code, why) != 0)
    return refuse(why);
  /* exit() takes an int; the code is 32 bits either way */
  ExitProcess(code);
}

int wmain(int argc, wchar_t **argv);

int wmain(int argc, wchar_t **argv) {
  struct war_args args;
  char why[WAR_WHY_MAX];
  /* No dialog boxes, here and in the child. */
  SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX);
  if (war_parse(argc, argv, &args, why) != 0)
    return refuse(why);
  switch (args.verb) {
  case WAR_RUN:
    return run(&args);
  case WAR_SELF_TEST:
    return self_test();
  case WAR_INVENTORY:
    return grants(false);
  case WAR_CLEAN:
    return grants(true);
  case WAR_VERSION:
    printf("windows-acl-run " VERSION "\n");
    return 0;
  }
  return refuse("no such verb");
}
