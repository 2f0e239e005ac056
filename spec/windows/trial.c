/* trial.c: TEST ONLY. Both ends of the Windows runner's tests: the command
 * that it runs, and the driver that starts the runner and checks.
 *   trial exit CODE | cat | handle HEX | words SEED N … | nap | tree NAME
 *   trial drive RUNNER WORKSPACE argv|codes|handle|kill|end
 * Prints "ok" or what is wrong; status 0 or 1. */
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../backends/windows_acl_run.h"

extern int _dowildcard;
int _dowildcard = 0;

enum { ROUNDS = 20, ARGVS = 500, WORDS_MAX = 3000, WORD_MAX = 16 };

static int say(const char *what, unsigned long number) {
  printf("%s %lu\n", what, number);
  fflush(stdout);
  return 1;
}

/* --- random argv --------------------------------------------------------- */

static uint32_t state;

static uint32_t next(void) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

/* 1 to 6 words for each argv, heavy in quotes, slashes, blanks, globs. */
static int make_words(uint32_t seed, wchar_t (*out)[WORD_MAX + 1]) {
  static const wchar_t from[] = L"\\\\\\\\\"\"\" \t*?%^&|<>a\x4e2d\xe9\n";
  int n = 0, i;
  state = seed;
  for (i = 0; i < ARGVS; i++) {
    uint32_t words = 1 + next() % 6, k;
    for (k = 0; k < words; k++, n++) {
      uint32_t len = next() % 9, at;
      for (at = 0; at < len; at++) {
        uint32_t r = next();
        wchar_t c = r % 11 ? from[r / 11 % 22] : (wchar_t)(r / 11 % 0xd7fe + 1);
        out[n][at] = c ? c : L'z';
      }
      out[n][len] = 0;
    }
  }
  return n;
}

static wchar_t words[WORDS_MAX][WORD_MAX + 1];

static int check_words(int argc, wchar_t **argv) {
  uint32_t seed = (uint32_t)wcstoul(argv[2], NULL, 10);
  int n = make_words(seed, words), i;
  if (argc - 3 != n)
    return say("count", (unsigned long)(argc - 3));
  for (i = 0; i < n; i++)
    if (wcscmp(argv[3 + i], words[i]) != 0)
      return say("word", (unsigned long)i);
  return 0;
}

/* --- the command's verbs ------------------------------------------------- */

static int cat(void) {
  static char buf[1 << 16];
  HANDLE in = GetStdHandle(STD_INPUT_HANDLE);
  HANDLE out = GetStdHandle(STD_OUTPUT_HANDLE);
  DWORD n, done, wrote;
  while (ReadFile(in, buf, sizeof buf, &n, NULL) && n)
    for (done = 0; done < n; done += wrote)
      if (!WriteFile(out, buf + done, n - done, &wrote, NULL))
        return 1;
  return 0;
}

static int start(wchar_t **argv, int argc, BOOL inherit,
                 PROCESS_INFORMATION *out) {
  static wchar_t line[WAR_COMMAND_MAX];
  char why[WAR_WHY_MAX];
  STARTUPINFOW si;
  memset(&si, 0, sizeof si);
  si.cb = sizeof si;
  if (war_command_line(argv, argc, line, why) != 0)
    return say(why, 0);
  if (!CreateProcessW(argv[0], line, NULL, NULL, inherit, 0, NULL, NULL, &si,
                      out))
    return say("cannot start", GetLastError());
  return 0;
}

static wchar_t self[MAX_PATH];
static wchar_t nap_word[] = L"nap";

/* Starts a grandchild that naps, puts its pid into a file; naps or ends. */
static int tree(const wchar_t *file, bool stay) {
  wchar_t *argv[] = {self, nap_word};
  PROCESS_INFORMATION pi;
  FILE *f;
  if (start(argv, 2, FALSE, &pi) != 0)
    return 1;
  f = _wfopen(file, L"wb");
  if (!f)
    return 1;
  fprintf(f, "%lu\n", pi.dwProcessId);
  fclose(f);
  if (stay)
    Sleep(60000);
  return 0;
}

/* --- the driver ---------------------------------------------------------- */

struct drive {
  wchar_t *runner, *workspace;
};

static wchar_t w_opt[] = L"--workspace", m_opt[] = L"--mode",
               ro[] = L"read-only", dashes[] = L"--";

/* Starts the runner over `argc` words of our own program. */
static int run(struct drive *d, wchar_t **more, int argc, BOOL inherit,
               PROCESS_INFORMATION *pi) {
  static wchar_t *argv[WORDS_MAX + 16];
  int i, n = 0;
  argv[n++] = d->runner;
  argv[n++] = w_opt;
  argv[n++] = d->workspace;
  argv[n++] = m_opt;
  argv[n++] = ro;
  argv[n++] = dashes;
  argv[n++] = self;
  for (i = 0; i < argc; i++)
    argv[n++] = more[i];
  return start(argv, n, inherit, pi);
}

static int end_of(PROCESS_INFORMATION *pi, DWORD limit, DWORD *code) {
  DWORD r = WaitForSingleObject(pi->hProcess, limit);
  GetExitCodeProcess(pi->hProcess, code);
  CloseHandle(pi->hThread);
  CloseHandle(pi->hProcess);
  return r == WAIT_OBJECT_0 ? 0 : -1;
}

static int drive_argv(struct drive *d) {
  static wchar_t *more[WORDS_MAX + 2], verb[] = L"words", seed[16];
  PROCESS_INFORMATION pi;
  DWORD code;
  int round, i, n;
  for (round = 0; round < ROUNDS; round++) {
    swprintf(seed, 16, L"%d", round + 1);
    n = make_words((uint32_t)round + 1, words);
    more[0] = verb;
    more[1] = seed;
    for (i = 0; i < n; i++)
      more[2 + i] = words[i];
    if (run(d, more, n + 2, FALSE, &pi) != 0)
      return 1;
    if (end_of(&pi, 30000, &code) != 0 || code != 0)
      return say("round", (unsigned long)round);
  }
  return 0;
}

static int drive_codes(struct drive *d) {
  static const uint32_t some[] = {
      0,          1,          2,          124,        125,       126,
      127,        128,        255,        256,        257,       259,
      0x7fffffff, 0x80000000, 0xc0000005, 0xc000013a, 0xfffffffe, 0xffffffff};
  wchar_t verb[] = L"exit", number[16], *more[] = {verb, number};
  PROCESS_INFORMATION pi;
  DWORD code;
  size_t i, n = sizeof some / sizeof *some;
  state = 99;
  for (i = 0; i < n + 8; i++) {
    uint32_t want = i < n ? some[i] : next() << 16 ^ next();
    swprintf(number, 16, L"%lu", (unsigned long)want);
    if (run(d, more, 2, FALSE, &pi) != 0)
      return 1;
    if (end_of(&pi, 30000, &code) != 0 || code != want)
      return say("code", want);
  }
  return 0;
}

/* The runner inherits an event; the child must not. Without the runner the
 * same child does get it, so the trial can tell. */
static int drive_handle(struct drive *d) {
  SECURITY_ATTRIBUTES sa = {sizeof sa, NULL, TRUE};
  HANDLE event = CreateEventW(&sa, TRUE, FALSE, NULL);
  wchar_t verb[] = L"handle", number[32], *more[] = {verb, number},
          *bare[] = {self, verb, number};
  PROCESS_INFORMATION pi;
  DWORD code;
  swprintf(number, 32, L"%llx", (unsigned long long)(uintptr_t)event);
  if (start(bare, 3, TRUE, &pi) != 0 || end_of(&pi, 30000, &code) != 0)
    return 1;
  if (code != 1)
    return say("the bare child lacks the handle", code);
  if (run(d, more, 2, TRUE, &pi) != 0 || end_of(&pi, 30000, &code) != 0)
    return 1;
  return code == 0 ? 0 : say("the child has the handle", code);
}

static DWORD pid_in(const wchar_t *file) {
  FILE *f = _wfopen(file, L"rb");
  unsigned long pid = 0;
  if (f) {
    if (fscanf(f, "%lu", &pid) != 1)
      pid = 0;
    fclose(f);
  }
  return pid;
}

/* The grandchild dies: by the runner's end (a deadline that kills it), or when
 * the first process ends. */
static int drive_tree(struct drive *d, bool kill_runner) {
  wchar_t stay[] = L"tree", leave[] = L"leave", file[MAX_PATH];
  wchar_t *more[] = {kill_runner ? stay : leave, file};
  PROCESS_INFORMATION pi;
  DWORD pid = 0, code, i;
  HANDLE h;
  _snwprintf(file, MAX_PATH - 1, L"%ls\\pid", d->workspace);
  DeleteFileW(file);
  if (run(d, more, 2, FALSE, &pi) != 0)
    return 1;
  for (i = 0; i < 200 && !(pid = pid_in(file)); i++)
    Sleep(50);
  if (!pid)
    return say("no grandchild", 0);
  h = OpenProcess(SYNCHRONIZE, FALSE, pid);
  if (kill_runner && (!h || WaitForSingleObject(h, 300) != WAIT_TIMEOUT))
    return say("the grandchild was not running", pid);
  if (kill_runner)
    TerminateProcess(pi.hProcess, 7);
  if (end_of(&pi, 10000, &code) != 0 || code != (kill_runner ? 7 : 0))
    return say("the runner did not end as told", code);
  if (h && WaitForSingleObject(h, 5000) != WAIT_OBJECT_0)
    return say("the grandchild lives", pid);
  return 0;
}

static int drive(int argc, wchar_t **argv) {
  struct drive d = {argc > 4 ? argv[2] : NULL, argc > 4 ? argv[3] : NULL};
  int r = 2;
  if (argc < 5)
    return 2;
  if (war_is(argv[4], "argv"))
    r = drive_argv(&d);
  else if (war_is(argv[4], "codes"))
    r = drive_codes(&d);
  else if (war_is(argv[4], "handle"))
    r = drive_handle(&d);
  else if (war_is(argv[4], "kill"))
    r = drive_tree(&d, true);
  else if (war_is(argv[4], "end"))
    r = drive_tree(&d, false);
  if (r == 0)
    printf("ok\n");
  return r;
}

int wmain(int argc, wchar_t **argv);

int wmain(int argc, wchar_t **argv) {
  DWORD flags;
  GetModuleFileNameW(NULL, self, MAX_PATH);
  if (argc < 2)
    return 2;
  if (war_is(argv[1], "drive"))
    return drive(argc, argv);
  if (war_is(argv[1], "words"))
    return check_words(argc, argv);
  if (war_is(argv[1], "exit"))
    ExitProcess((UINT)wcstoul(argv[2], NULL, 10));
  if (war_is(argv[1], "cat"))
    return cat();
  if (war_is(argv[1], "handle"))
    return GetHandleInformation(
               (HANDLE)(uintptr_t)_wcstoui64(argv[2], NULL, 16), &flags) != 0;
  if (war_is(argv[1], "tree"))
    return tree(argv[2], true);
  if (war_is(argv[1], "leave"))
    return tree(argv[2], false);
  if (war_is(argv[1], "nap"))
    Sleep(60000);
  return 0;
}
