/* windows_acl_run_files.c: directories, access lists and locks over Win32. */
#include "windows_acl_run_win.h"

#include <aclapi.h>
#include <sddl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "windows_acl_run_files.h"

static struct win *of(struct war_os *os) {
  return os->self;
}

int win_error(struct war_os *os) {
  os->error = GetLastError();
  return -1;
}

int win_error_is(struct war_os *os, unsigned long error) {
  os->error = error;
  return -1;
}

/* --- directories --------------------------------------------------------- */

/* The handle stays open until os->kill: without FILE_SHARE_DELETE, and with
 * an access that sharing counts, nobody can move the directory meanwhile. */
int win_canonical(struct war_os *os, const war_char *path, war_char *out) {
  struct win *w = of(os);
  static wchar_t name[WAR_PATH_MAX + 8];
  BY_HANDLE_FILE_INFORMATION info;
  DWORD n;
  HANDLE h = CreateFileW(path, FILE_LIST_DIRECTORY | FILE_READ_ATTRIBUTES,
                         FILE_SHARE_READ | FILE_SHARE_WRITE, NULL,
                         OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
  if (h == INVALID_HANDLE_VALUE)
    return win_error(os);
  if (w->n_held == WIN_HELD) {
    CloseHandle(h);
    return win_error_is(os, ERROR_TOO_MANY_OPEN_FILES);
  }
  w->held[w->n_held++] = h;
  if (!GetFileInformationByHandle(h, &info))
    return win_error(os);
  if (!(info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY))
    return win_error_is(os, ERROR_DIRECTORY);
  n = GetFinalPathNameByHandleW(h, name, WAR_PATH_MAX, VOLUME_NAME_DOS);
  if (!n)
    return win_error(os);
  if (n >= WAR_PATH_MAX)
    return win_error_is(os, ERROR_FILENAME_EXCED_RANGE);
  if (wcsncmp(name, L"\\\\?\\UNC\\", 8) == 0) {
    out[0] = '\\';
    wcscpy(out + 1, name + 7);
  } else {
    wcscpy(out, wcsncmp(name, L"\\\\?\\", 4) == 0 ? name + 4 : name);
  }
  return war_absolute(out) ? 0 : win_error_is(os, ERROR_BAD_PATHNAME);
}

int win_make_directory(struct war_os *os, const war_char *path, bool *made) {
  *made = CreateDirectoryW(path, NULL) != 0;
  if (*made || GetLastError() == ERROR_ALREADY_EXISTS)
    return 0;
  return win_error(os);
}

static bool dots(const wchar_t *s) {
  return s[0] == '.' && (!s[1] || (s[1] == '.' && !s[2]));
}

/* Links and junctions are removed, never entered. `path` has room for
 * WAR_PATH_MAX and is used for the entries too. */
static int remove_at(wchar_t *path, size_t n, int depth) {
  WIN32_FIND_DATAW e;
  HANDLE h;
  int r = 0;
  if (n + MAX_PATH + 4 > WAR_PATH_MAX || depth > 200)
    return -1;
  wcscpy(path + n, L"\\*");
  h = FindFirstFileW(path, &e);
  path[n] = 0;
  if (h != INVALID_HANDLE_VALUE) {
    do {
      size_t m = n + 1 + wcslen(e.cFileName);
      bool dir = (e.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
      if (dots(e.cFileName))
        continue;
      path[n] = '\\';
      wcscpy(path + n + 1, e.cFileName);
      if (e.dwFileAttributes & FILE_ATTRIBUTE_READONLY)
        SetFileAttributesW(path, FILE_ATTRIBUTE_NORMAL);
      if (dir && !(e.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT))
        r |= remove_at(path, m, depth + 1);
      else
        r |= (dir ? RemoveDirectoryW(path) : DeleteFileW(path)) ? 0 : -1;
      path[n] = 0;
    } while (FindNextFileW(h, &e));
    FindClose(h);
  }
  return RemoveDirectoryW(path) ? r : -1;
}

int win_remove_tree(struct war_os *os, const war_char *path) {
  static wchar_t copy[WAR_PATH_MAX];
  size_t n = wcslen(path);
  if (n >= WAR_PATH_MAX)
    return win_error_is(os, ERROR_FILENAME_EXCED_RANGE);
  wcscpy(copy, path);
  return remove_at(copy, n, 0) == 0 ? 0 : win_error(os);
}

/* --- access lists -------------------------------------------------------- */

int win_read_dacl(struct war_os *os, const war_char *path, char *sddl,
                  size_t cap) {
  PSECURITY_DESCRIPTOR sd = NULL;
  char *text = NULL;
  int r = -1;
  DWORD e = GetNamedSecurityInfoW(path, SE_FILE_OBJECT,
                                  DACL_SECURITY_INFORMATION, NULL, NULL, NULL,
                                  NULL, &sd);
  if (e)
    return win_error_is(os, e);
  if (!ConvertSecurityDescriptorToStringSecurityDescriptorA(
          sd, SDDL_REVISION_1, DACL_SECURITY_INFORMATION, &text, NULL))
    win_error(os);
  else if (strlen(text) >= cap)
    win_error_is(os, ERROR_INSUFFICIENT_BUFFER);
  else
    r = 0;
  if (r == 0)
    strcpy(sddl, text);
  LocalFree(text);
  LocalFree(sd);
  return r;
}

int win_write_dacl(struct war_os *os, const war_char *path, const char *sddl) {
  static wchar_t copy[WAR_PATH_MAX];
  SECURITY_INFORMATION what = DACL_SECURITY_INFORMATION;
  PSECURITY_DESCRIPTOR sd;
  BOOL present = FALSE, defaulted;
  ACL *dacl = NULL;
  DWORD e;
  if (wcslen(path) >= WAR_PATH_MAX)
    return win_error_is(os, ERROR_FILENAME_EXCED_RANGE);
  wcscpy(copy, path);
  if (!ConvertStringSecurityDescriptorToSecurityDescriptorA(
          sddl, SDDL_REVISION_1, &sd, NULL))
    return win_error(os);
  if (memchr(sddl, 'P', strcspn(sddl, "(")))
    what |= PROTECTED_DACL_SECURITY_INFORMATION;
  /* Without a list this call would open the object to everyone. */
  if (!GetSecurityDescriptorDacl(sd, &present, &dacl, &defaulted) ||
      !present || !dacl)
    e = ERROR_INVALID_ACL;
  else
    e = SetNamedSecurityInfoW(copy, SE_FILE_OBJECT, what, NULL, NULL, dacl,
                              NULL);
  LocalFree(sd);
  return e ? win_error_is(os, e) : 0;
}

/* --- locks --------------------------------------------------------------- */

int war_locks_directory(war_char *out, char *why) {
  DWORD n = GetEnvironmentVariableW(L"LOCALAPPDATA", out, WAR_PATH_MAX - 64);
  if (!n || n >= WAR_PATH_MAX - 64 || !war_absolute(out))
    return war_fail(why, "LOCALAPPDATA does not name a directory");
  wcscat(out, L"\\dshsh");
  CreateDirectoryW(out, NULL);
  wcscat(out, L"\\grants");
  if (!CreateDirectoryW(out, NULL) && GetLastError() != ERROR_ALREADY_EXISTS)
    return war_fail(why, "the lock directory cannot be made: error %lu",
                    GetLastError());
  return 0;
}

/* The file says which path its SID stands for, for --inventory. */
static void note_path(HANDLE file, const war_char *path) {
  static char text[4 * WAR_PATH_MAX];
  LARGE_INTEGER size;
  DWORD wrote;
  size_t n = war_utf8(path, wcslen(path), text, sizeof text);
  if (GetFileSizeEx(file, &size) && size.QuadPart == 0)
    WriteFile(file, text, (DWORD)n, &wrote, NULL);
}

static HANDLE lock_file(struct war_os *os, const char *sid) {
  static wchar_t name[WAR_PATH_MAX];
  char ignored[WAR_WHY_MAX];
  HANDLE h;
  if (war_locks_directory(name, ignored) != 0) {
    win_error(os);
    return NULL;
  }
  wcscat(name, L"\\");
  swprintf(name + wcslen(name), 200, L"%hs", sid);
  h = CreateFileW(name, GENERIC_READ | GENERIC_WRITE,
                  FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                  OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, NULL);
  if (h == INVALID_HANDLE_VALUE) {
    win_error(os);
    return NULL;
  }
  return h;
}

/* Windows locks bind readers too: the locked bytes lie far behind the text. */
static OVERLAPPED place(enum war_lock which) {
  OVERLAPPED at;
  memset(&at, 0, sizeof at);
  at.Offset = 0x40000000u + (unsigned)which;
  return at;
}

int win_lock(struct war_os *os, const char *sid, const war_char *path,
             enum war_lock which, bool alone, bool wait) {
  struct win *w = of(os);
  OVERLAPPED at = place(which);
  DWORD flags = (alone ? (DWORD)LOCKFILE_EXCLUSIVE_LOCK : 0) |
                (wait ? 0 : (DWORD)LOCKFILE_FAIL_IMMEDIATELY);
  size_t i;
  for (i = 0; i < WIN_LOCKS && w->lock[i].file; i++)
    ;
  if (i == WIN_LOCKS)
    return win_error_is(os, ERROR_TOO_MANY_OPEN_FILES);
  w->lock[i].file = lock_file(os, sid);
  if (!w->lock[i].file)
    return -1;
  if (!LockFileEx(w->lock[i].file, flags, 0, 1, 0, &at)) {
    win_error(os);
    CloseHandle(w->lock[i].file);
    w->lock[i].file = NULL;
    return -1;
  }
  note_path(w->lock[i].file, path);
  snprintf(w->lock[i].sid, WAR_SID_MAX, "%s", sid);
  w->lock[i].which = which;
  return 0;
}

int win_unlock(struct war_os *os, const char *sid, enum war_lock which) {
  struct win *w = of(os);
  OVERLAPPED at = place(which);
  size_t i;
  for (i = 0; i < WIN_LOCKS; i++) {
    struct win_lock *l = &w->lock[i];
    if (!l->file || l->which != which || strcmp(l->sid, sid) != 0)
      continue;
    UnlockFileEx(l->file, 0, 1, 0, &at);
    CloseHandle(l->file);
    l->file = NULL;
    return 0;
  }
  return win_error_is(os, ERROR_NOT_LOCKED);
}
