/* windows_acl_run_child.c: the child over Win32: suspended, in a job, with
 * three handles. */
#include "windows_acl_run_win.h"

#include <stdlib.h>
#include <string.h>

#include "windows_acl_run_files.h"

static struct win *of(struct war_os *os) {
  return os->self;
}

/* --- which program ------------------------------------------------------- */

static bool is_file(const wchar_t *path) {
  DWORD a = GetFileAttributesW(path);
  return a != INVALID_FILE_ATTRIBUTES && !(a & FILE_ATTRIBUTE_DIRECTORY);
}

static bool ends(const wchar_t *s, const wchar_t *tail) {
  size_t n = wcslen(s), k = wcslen(tail);
  return n >= k && _wcsicmp(s + n - k, tail) == 0;
}

/* `path` as it stands or with .exe; absolute into out. */
static bool program_at(const wchar_t *path, wchar_t *out) {
  DWORD n = GetFullPathNameW(path, WAR_PATH_MAX - 8, out, NULL);
  if (!n || n >= WAR_PATH_MAX - 8)
    return false;
  if (is_file(out))
    return true;
  wcscat(out, L".exe");
  return is_file(out);
}

/* Along PATH, absolute entries only: never the current directory, where a
 * confined command can write. */
static bool on_path(const wchar_t *name, wchar_t *out) {
  static wchar_t path[WAR_PATH_MAX], one[WAR_PATH_MAX];
  wchar_t *at = path, *end;
  DWORD n = GetEnvironmentVariableW(L"PATH", path, WAR_PATH_MAX);
  if (!n || n >= WAR_PATH_MAX)
    return false;
  for (; at; at = end) {
    size_t len;
    end = wcschr(at, ';');
    if (end)
      *end++ = 0;
    len = wcslen(at);
    if (!war_absolute(at) || len + wcslen(name) + 2 > WAR_PATH_MAX)
      continue;
    wcscpy(one, at);
    one[len] = '\\';
    wcscpy(one + len + 1, name);
    if (program_at(one, out))
      return true;
  }
  return false;
}

/* The command line's first word stands in quotes that it does not hold. */
static int find_program(struct war_os *os, const wchar_t *line, wchar_t *out) {
  static wchar_t name[WAR_PATH_MAX];
  size_t n = wcscspn(line + 1, L"\"");
  wmemcpy(name, line + 1, n);
  name[n] = 0;
  if (wcspbrk(name, L"\\/:") ? !program_at(name, out) : !on_path(name, out))
    return win_error_is(os, ERROR_FILE_NOT_FOUND);
  /* cmd.exe would read their words by other rules than the quoting's. */
  if (ends(out, L".bat") || ends(out, L".cmd"))
    return win_error_is(os, ERROR_BAD_EXE_FORMAT);
  return 0;
}

/* --- job and handles ----------------------------------------------------- */

#define UI_LIMITS                                                            \
  (JOB_OBJECT_UILIMIT_HANDLES | JOB_OBJECT_UILIMIT_SYSTEMPARAMETERS |        \
   JOB_OBJECT_UILIMIT_DISPLAYSETTINGS | JOB_OBJECT_UILIMIT_GLOBALATOMS |     \
   JOB_OBJECT_UILIMIT_DESKTOP | JOB_OBJECT_UILIMIT_EXITWINDOWS)

static int make_job(struct war_os *os) {
  struct win *w = of(os);
  JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits;
  JOBOBJECT_BASIC_UI_RESTRICTIONS ui = {UI_LIMITS};
  memset(&limits, 0, sizeof limits);
  limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
  w->job = CreateJobObjectW(NULL, NULL);
  if (!w->job ||
      !SetInformationJobObject(w->job, JobObjectExtendedLimitInformation,
                               &limits, sizeof limits) ||
      !SetInformationJobObject(w->job, JobObjectBasicUIRestrictions, &ui,
                               sizeof ui))
    return win_error(os);
  return 0;
}

/* Inheritable copies of our own three; the null device where we have none. */
static int standard(struct war_os *os, HANDLE out[3]) {
  static const DWORD which[3] = {STD_INPUT_HANDLE, STD_OUTPUT_HANDLE,
                                 STD_ERROR_HANDLE};
  SECURITY_ATTRIBUTES inherit = {sizeof inherit, NULL, TRUE};
  int i;
  for (i = 0; i < 3; i++) {
    HANDLE h = GetStdHandle(which[i]), self = GetCurrentProcess();
    if (h && h != INVALID_HANDLE_VALUE &&
        DuplicateHandle(self, h, self, &out[i], 0, TRUE,
                        DUPLICATE_SAME_ACCESS))
      continue;
    out[i] = CreateFileW(L"NUL", i ? GENERIC_WRITE : GENERIC_READ,
                         FILE_SHARE_READ | FILE_SHARE_WRITE, &inherit,
                         OPEN_EXISTING, 0, NULL);
    if (out[i] == INVALID_HANDLE_VALUE) {
      out[i] = NULL;
      return win_error(os);
    }
  }
  return 0;
}

static int create(struct war_os *os, const wchar_t *program, wchar_t *line,
                  HANDLE std[3]) {
  STARTUPINFOEXW start;
  SIZE_T size = 0;
  int r;
  memset(&start, 0, sizeof start);
  start.StartupInfo.cb = sizeof start;
  start.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
  start.StartupInfo.hStdInput = std[0];
  start.StartupInfo.hStdOutput = std[1];
  start.StartupInfo.hStdError = std[2];
  InitializeProcThreadAttributeList(NULL, 1, 0, &size);
  start.lpAttributeList = calloc(1, size ? size : 1);
  if (!start.lpAttributeList)
    return win_error_is(os, ERROR_OUTOFMEMORY);
  if (!InitializeProcThreadAttributeList(start.lpAttributeList, 1, 0, &size)) {
    free(start.lpAttributeList);
    return win_error(os);
  }
  if (!UpdateProcThreadAttribute(start.lpAttributeList, 0,
                                 PROC_THREAD_ATTRIBUTE_HANDLE_LIST, std,
                                 3 * sizeof *std, NULL, NULL))
    r = win_error(os);
  else
    r = win_create_process(of(os), program, line,
                           CREATE_SUSPENDED | EXTENDED_STARTUPINFO_PRESENT |
                               CREATE_UNICODE_ENVIRONMENT,
                           &start);
  DeleteProcThreadAttributeList(start.lpAttributeList);
  free(start.lpAttributeList);
  return r;
}

static int start(struct war_os *os, war_char *line, const war_char *temp) {
  static wchar_t program[WAR_PATH_MAX];
  struct win *w = of(os);
  HANDLE std[3] = {NULL, NULL, NULL};
  int i, r = -1;
  if (find_program(os, line, program) != 0)
    return -1;
  if (temp && (!SetEnvironmentVariableW(L"TMP", temp) ||
               !SetEnvironmentVariableW(L"TEMP", temp)))
    return win_error(os);
  if (make_job(os) == 0 && standard(os, std) == 0)
    r = create(os, program, line, std);
  for (i = 0; i < 3; i++)
    if (std[i])
      CloseHandle(std[i]);
  if (r == 0 && !AssignProcessToJobObject(w->job, w->child.hProcess))
    r = win_error(os);
  return r;
}

static int child_facts(struct war_os *os, struct war_token_facts *token,
                       struct war_job_facts *job) {
  struct win *w = of(os);
  unsigned long limits = 0, ui = 0;
  BOOL inside = FALSE;
  if (!IsProcessInJob(w->child.hProcess, w->job, &inside))
    return win_error(os);
  if (win_job_limits(w, &limits, &ui) != 0)
    return -1;
  job->inside = inside != 0;
  job->kills = (limits & JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE) != 0;
  job->ui_limits = (ui & UI_LIMITS) == UI_LIMITS;
  return win_child_token(w, token);
}

static int resume(struct war_os *os) {
  DWORD before = ResumeThread(of(os)->child.hThread);
  if (before == (DWORD)-1)
    return win_error(os);
  return before == 1 ? 0 : win_error_is(os, ERROR_INVALID_STATE);
}

static int wait_child(struct war_os *os, uint32_t *code) {
  DWORD status = 0;
  if (WaitForSingleObject(of(os)->child.hProcess, INFINITE) !=
          WAIT_OBJECT_0 ||
      !GetExitCodeProcess(of(os)->child.hProcess, &status))
    return win_error(os);
  *code = status;
  return 0;
}

static void kill_all(struct war_os *os) {
  struct win *w = of(os);
  if (w->child.hProcess) {
    TerminateProcess(w->child.hProcess, WAR_REFUSED);
    CloseHandle(w->child.hThread);
    CloseHandle(w->child.hProcess);
  }
  memset(&w->child, 0, sizeof w->child);
  if (w->job) {
    TerminateJobObject(w->job, WAR_REFUSED);
    CloseHandle(w->job);
    w->job = NULL;
  }
  win_token_close(w);
  while (w->n_held)
    CloseHandle(w->held[--w->n_held]);
}

struct war_os *war_windows(void) {
  static struct win w;
  w.os.self = &w;
  w.os.canonical = win_canonical;
  w.os.make_directory = win_make_directory;
  w.os.remove_tree = win_remove_tree;
  w.os.lock = win_lock;
  w.os.unlock = win_unlock;
  w.os.read_dacl = win_read_dacl;
  w.os.write_dacl = win_write_dacl;
  w.os.start = start;
  w.os.child_facts = child_facts;
  w.os.resume = resume;
  w.os.wait = wait_child;
  w.os.kill = kill_all;
  win_token_calls(&w.os);
  return &w.os;
}
