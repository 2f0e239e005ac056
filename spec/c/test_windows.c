/* The Windows runner's plan and drive layers, natively: its sources are taken
 * in here, since they belong to no program of this platform. A fake system
 * keeps state; each of its calls can be made to fail, or to answer success and
 * do nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../backends/windows_acl_run.h"
#include "../../backends/windows_acl_run_args.c"
#include "../../backends/windows_acl_run_drive.c"
#include "../../backends/windows_acl_run_sddl.c"
#include "../../backends/windows_acl_run_sid.c"

/* --- helpers ------------------------------------------------------------- */

static war_char pool[1 << 16];
static size_t pooled;

static war_char *w(const char *s) {
  war_char *out = pool + pooled;
  if (pooled + strlen(s) + 1 > sizeof pool / sizeof *pool) {
    pooled = 0;
    out = pool;
  }
  while (*s)
    pool[pooled++] = (war_char)(unsigned char)*s++;
  pool[pooled++] = 0;
  return out;
}

static const char *narrow(const war_char *s) {
  static char out[4][4096];
  static int turn_;
  char *to = out[turn_ = (turn_ + 1) % 4];
  size_t n = war_utf8(s, war_length(s), to, 4090);
  to[n] = '\0';
  return to;
}

static int parse(const char *line, struct war_args *out, char *why) {
  static war_char *argv[32];
  char copy[512], *word;
  int argc = 0;
  snprintf(copy, sizeof copy, "%s", line);
  for (word = strtok(copy, " "); word; word = strtok(NULL, " "))
    argv[argc++] = w(strcmp(word, "''") == 0 ? "" : word);
  argv[argc] = NULL;
  return war_parse(argc, argv, out, why);
}

/* --- sid ----------------------------------------------------------------- */

static void hex(const char *text, size_t n, const char *want) {
  uint8_t sum[32];
  char got[65];
  int i;
  war_sha256(text, n, sum);
  for (i = 0; i < 32; i++)
    snprintf(got + 2 * i, 3, "%02x", sum[i]);
  assert_string_equal(got, want);
}

static void sha256(void **state) {
  static char million[1000000];
  (void)state;
  memset(million, 'a', sizeof million);
  /* FIPS 180-4's own examples */
  hex("", 0, "e3b0c44298fc1c149afbf4c8996fb924"
             "27ae41e4649b934ca495991b7852b855");
  hex("abc", 3, "ba7816bf8f01cfea414140de5dae2223"
                "b00361a396177a9cb410ff61f20015ad");
  hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  hex(million, sizeof million,
      "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void utf8(void **state) {
  static const war_char s[] = {'a', 0xe9, 0x20ac, 0xd83d, 0xde00, 0xd800, 'z'};
  char out[32];
  size_t n = war_utf8(s, 7, out, sizeof out);
  (void)state;
  assert_int_equal(n, 1 + 2 + 3 + 4 + 3 + 1);
  assert_memory_equal(out, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xed\xa0\x80z",
                      n);
  assert_int_equal(war_utf8(s, 7, out, 8), 0);
}

/* The numbers were worked out by another SHA-256 (sha256sum). */
static void sids(void **state) {
  char a[WAR_SID_MAX], b[WAR_SID_MAX];
  (void)state;
  assert_int_equal(war_workspace_sid(w("C:\\w"), a), 0);
  assert_string_equal(a, "S-1-4-114474623-820773950");
  assert_int_equal(war_temp_sid(w("C:\\w"), b), 0);
  assert_string_equal(b, "S-1-4-159610847-62837656-1");
}

/* --- args ---------------------------------------------------------------- */

#define OK "x --workspace C:\\w --temp D:\\t --mode workspace-write"

static void words(void **state) {
  struct war_args a;
  char why[WAR_WHY_MAX] = "";
  (void)state;
  assert_int_equal(parse(OK " -- cmd --mode -- ''", &a, why), 0);
  assert_true(a.workspace_write);
  assert_int_equal(a.argc, 4);
  assert_string_equal(narrow(a.argv[1]), "--mode");
  assert_int_equal(
      parse("x --mode read-only --workspace \\\\s\\h\\w -- c", &a, why), 0);
  assert_false(a.workspace_write);
  assert_int_equal(parse("x --self-test", &a, why), 0);
  assert_int_equal(a.verb, WAR_SELF_TEST);
  assert_int_equal(parse("x --clean", &a, why), 0);
  assert_int_equal(a.verb, WAR_CLEAN);
}

static void misuse(void **state) {
  static const char *const bad[][2] = {
      {"x", "no --"},
      {"x --", "--workspace"},
      {"x cmd", "without a value"},
      {OK, "no --"},
      {OK " --", "no command"},
      {OK " -- ''", "no command"},
      {OK " --mode read-only -- c", "twice"},
      {OK " --what v -- c", "unknown option"},
      {OK " --write-sid -- c", "without a value"},
      {"x --workspace w --temp D:\\t --mode read-only -- c", "absolute"},
      {"x --workspace C:w --mode read-only -- c", "absolute"},
      {"x --workspace \\\\.\\C: --mode read-only -- c", "absolute"},
      {"x --workspace \\\\?\\C:\\w --mode read-only -- c", "absolute"},
      {"x --workspace '' --mode read-only -- c", "empty"},
      {"x --workspace C:\\w --mode full -- c", "--mode"},
      {"x --workspace C:\\w --mode danger-full-access -- c", "--mode"},
      {"x --workspace C:\\w --mode workspace-write -- c", "--temp is missing"},
      {"x --workspace C:\\w --temp-write-sid S --mode read-only -- c",
       "without --temp"},
      {"x --self-test --clean", "without a value|no --"},
  };
  struct war_args a;
  char why[WAR_WHY_MAX];
  size_t i;
  (void)state;
  for (i = 0; i + 1 < sizeof bad / sizeof *bad; i++) {
    why[0] = '\0';
    if (parse(bad[i][0], &a, why) != -1 || !strstr(why, bad[i][1]))
      fail_msg("%s: \"%s\"", bad[i][0], why);
  }
  assert_int_equal(parse(bad[i][0], &a, why), -1);
}

static void paths(void **state) {
  char why[WAR_WHY_MAX];
  (void)state;
  assert_true(war_within(w("C:\\w"), w("c:\\W")));
  assert_true(war_within(w("C:\\w\\a"), w("C:\\w\\")));
  assert_true(war_within(w("C:/w/a"), w("C:\\w")));
  assert_false(war_within(w("C:\\wide"), w("C:\\w")));
  assert_false(war_within(w("C:\\"), w("C:\\w")));
  assert_true(war_within(w("C:\\w"), w("C:\\")));
  assert_int_equal(war_check_places(w("C:\\w"), w("C:\\t"), why), 0);
  assert_int_equal(war_check_places(w("C:\\w"), w("C:\\W\\t"), why), -1);
  assert_int_equal(war_check_places(w("C:\\w"), w("C:\\w"), why), -1);
  assert_int_equal(war_check_places(w("C:\\t\\w"), w("C:\\t"), why), -1);
  assert_int_equal(war_check_places(w("C:\\"), NULL, why), -1);
  assert_int_equal(war_check_places(w("\\\\s\\h"), NULL, why), -1);
  assert_int_equal(war_check_places(w("\\\\s\\h\\w"), NULL, why), 0);
  assert_int_equal(war_check_places(w("C:\\w"), w("D:\\"), why), -1);
}

/* --- quoting ------------------------------------------------------------- */

static void quotes(const char *word, const char *want) {
  war_char out[WAR_COMMAND_MAX], *argv[2] = {w("x"), w(word)};
  char why[WAR_WHY_MAX], whole[256];
  assert_int_equal(war_command_line(argv, 2, out, why), 0);
  snprintf(whole, sizeof whole, "\"x\" %s", want);
  assert_string_equal(narrow(out), whole);
}

static void quoting(void **state) {
  (void)state;
  quotes("", "\"\"");
  quotes("a", "a");
  quotes("a b", "\"a b\"");
  quotes("a\tb", "\"a\tb\"");
  quotes("a\"b", "\"a\\\"b\"");
  quotes("a\\b", "a\\b");
  quotes("a\\", "a\\");
  quotes("a b\\", "\"a b\\\\\"");
  quotes("a b\\\\", "\"a b\\\\\\\\\"");
  quotes("\\\"", "\"\\\\\\\"\"");
  quotes("\\\\\" ", "\"\\\\\\\\\\\" \"");
  quotes("%PATH%^&|", "%PATH%^&|");
}

/* CommandLineToArgvW's rules, as documented, for words after the first. */
static int unquote(const war_char *s, war_char out[8][256]) {
  int n = 0;
  while (*s) {
    size_t len = 0;
    bool in = false;
    while (*s == ' ' || *s == '\t')
      s++;
    if (!*s)
      break;
    while (*s && (in || (*s != ' ' && *s != '\t'))) {
      size_t k = 0;
      while (*s == '\\') {
        k++;
        s++;
      }
      if (*s == '"') {
        for (; k > 1; k -= 2)
          out[n][len++] = '\\';
        if (k)
          out[n][len++] = '"';
        else
          in = !in;
        s++;
      } else {
        for (; k; k--)
          out[n][len++] = '\\';
        if (*s && (in || (*s != ' ' && *s != '\t')))
          out[n][len++] = *s++;
      }
    }
    out[n++][len] = 0;
  }
  return n;
}

static void quoting_random(void **state) {
  static const char from[] = "\\\\\\\"\" \tab\nz";
  war_char argv_text[8][32], *argv[8], line[WAR_COMMAND_MAX], out[8][256];
  char why[WAR_WHY_MAX];
  int round, i, n;
  (void)state;
  srand(11);
  for (round = 0; round < 10000; round++) {
    int argc = 1 + rand() % 7;
    argv[0] = w("x");
    for (i = 1; i < argc; i++) {
      int len = rand() % 20, k;
      for (k = 0; k < len; k++)
        argv_text[i][k] = rand() % 9 == 0 ? (war_char)(1 + rand() % 0xfffe)
                                          : (war_char)from[rand() % 12];
      for (k = 0; k < len; k++)
        if (!argv_text[i][k])
          argv_text[i][k] = 'n';
      argv_text[i][len] = 0;
      argv[i] = argv_text[i];
    }
    assert_int_equal(war_command_line(argv, argc, line, why), 0);
    n = unquote(line + 3, out);
    assert_int_equal(n, argc - 1);
    for (i = 1; i < argc; i++)
      assert_memory_equal(out[i - 1], argv[i],
                          (war_length(argv[i]) + 1) * sizeof(war_char));
  }
}

static void quoting_limits(void **state) {
  static war_char word[WAR_COMMAND_MAX + 1];
  war_char line[WAR_COMMAND_MAX], *argv[2] = {w("x"), word};
  char why[WAR_WHY_MAX];
  int i;
  (void)state;
  for (i = 0; i < WAR_COMMAND_MAX - 5; i++)
    word[i] = 'y';
  assert_int_equal(war_command_line(argv, 2, line, why), 0);
  word[i] = 'y';
  assert_int_equal(war_command_line(argv, 2, line, why), -1);
  assert_non_null(strstr(why, "32767"));
  argv[0] = w("a\"b");
  assert_int_equal(war_command_line(argv, 1, line, why), -1);
}

/* --- sddl ---------------------------------------------------------------- */

#define SID "S-1-4-5-6"
#define OURS "(A;OICI;0x110156;;;S-1-4-5-6)"
#define BASE "D:PAI(D;;FA;;;BG)(A;OICI;FA;;;BA)"
#define COND "(XA;;FX;;;S-1-1-0;(@User.T==\"a)(\" && (Exists x)))"
#define INHERITED "(A;OICIID;0x1301bf;;;AU)"

static void adds(const char *in, const char *want) {
  char out[1024], why[WAR_WHY_MAX], back[1024];
  assert_int_equal(war_sddl_add(in, SID, out, sizeof out, why), 0);
  assert_string_equal(out, want);
  assert_true(war_sddl_has(out, SID));
  assert_true(war_sddl_kept(in, out, SID));
  if (!war_sddl_has(in, SID)) {
    assert_int_equal(war_sddl_remove(out, SID, back, sizeof back, why), 0);
    assert_string_equal(back, in);
  }
}

static void sddl(void **state) {
  (void)state;
  adds("D:", "D:" OURS);
  adds(BASE, BASE OURS);
  adds("D:AI" INHERITED, "D:AI" OURS INHERITED);
  adds(BASE COND INHERITED, BASE COND OURS INHERITED);
  adds(BASE OURS, BASE OURS);
}

static void sddl_exact(void **state) {
  static const char *const not_ours[] = {
      "D:(A;OICI;0x110156;;;S-1-4-5-7)",   "D:(A;OICI;0x110156;;;S-1-4-5-60)",
      "D:(D;OICI;0x110156;;;S-1-4-5-6)",   "D:(A;OICIIO;0x110156;;;S-1-4-5-6)",
      "D:(A;OICIID;0x110156;;;S-1-4-5-6)", "D:(A;OI;0x110156;;;S-1-4-5-6)",
      "D:(A;OICI;0x150156;;;S-1-4-5-6)",   "D:(A;OICI;FA;;;S-1-4-5-6)",
      "D:(A;OICI;0x110156;x;;S-1-4-5-6)",  "D:(A;OICI;;;;S-1-4-5-6)",
      "D:(A;OICI;0x110156zz;;;S-1-4-5-6)"};
  size_t i;
  (void)state;
  for (i = 0; i < sizeof not_ours / sizeof *not_ours; i++)
    if (war_sddl_has(not_ours[i], SID))
      fail_msg("%s", not_ours[i]);
  assert_true(war_sddl_has("D:(A;CIOI;0x00110156;;;S-1-4-5-6)", SID));
}

static void sddl_refuses(void **state) {
  static const char *const bad[] = {"", "O:BA", "D:NO_ACCESS_CONTROL",
                                    "D:(A;;FA;;;BA", "D:x", "D:(A)y",
                                    "D:P(A;;FA;;;BA)S:(AU;SA;FA;;;WD)"};
  char out[1024], why[WAR_WHY_MAX], small[40];
  size_t i;
  (void)state;
  for (i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(war_sddl_add(bad[i], SID, out, sizeof out, why), -1);
    assert_int_equal(war_sddl_remove(bad[i], SID, out, sizeof out, why), -1);
    assert_false(war_sddl_has(bad[i], SID));
  }
  assert_int_equal(war_sddl_add(BASE, SID, small, sizeof small, why), -1);
}

static void sddl_kept(void **state) {
  (void)state;
  assert_true(war_sddl_kept(BASE, BASE OURS INHERITED, SID));
  assert_false(war_sddl_kept(BASE, BASE OURS "(A;;FA;;;WD)", SID));
  assert_false(war_sddl_kept(BASE, "D:PAI(A;OICI;FA;;;BA)" OURS, SID));
  assert_false(war_sddl_kept(BASE, "D:AI(D;;FA;;;BG)(A;OICI;FA;;;BA)", SID));
  assert_false(war_sddl_kept(BASE, "D:NO_ACCESS_CONTROL", SID));
  assert_true(war_sddl_default_kept("D:(A;;GA;;;BA)",
                                    "D:(A;;GA;;;BA)(A;;GA;;;WD)", "S-1-1-0"));
  assert_false(war_sddl_default_kept("D:(A;;GA;;;BA)", "D:(A;;GA;;;WD)",
                                     "S-1-1-0"));
  assert_false(war_sddl_default_kept("D:(A;;GA;;;BA)", "D:(A;;GA;;;BA)",
                                     "S-1-1-0"));
}

/* --- a fake system ------------------------------------------------------- */

enum fault { NO_FAULT, FAILS, DOES_NOTHING };

struct fake {
  struct war_os os;
  int calls, at;
  enum fault fault;
  const char *hit;             /* name of the call that the fault met */
  char workspace[2048], temp[2048], def[2048]; /* DACLs */
  bool temp_exists, child, resumed, killed;
  struct war_token_facts token;
  int locks;
};

#define WS_DACL "D:AI(A;OICI;FA;;;BA)(A;OICIID;FA;;;SY)"
#define LOGON "S-1-5-5-0-77"

static struct fake *of(struct war_os *os) {
  return os->self;
}

/* 0: go on; 1: return *r at once. */
static int meet(struct war_os *os, const char *name, int *r) {
  struct fake *f = of(os);
  if (++f->calls != f->at || f->fault == NO_FAULT)
    return 0;
  f->hit = name;
  os->error = 5;
  *r = f->fault == FAILS ? -1 : 0;
  return 1;
}
#define MEET(name)                                                           \
  do {                                                                       \
    int r_;                                                                  \
    if (meet(os, name, &r_))                                                 \
      return r_;                                                             \
  } while (0)

static bool is_temp(const war_char *path) {
  return path[0] == 'D';
}

static int f_canonical(struct war_os *os, const war_char *p, war_char *out) {
  MEET("canonical");
  memcpy(out, p, (war_length(p) + 1) * sizeof *p);
  return 0;
}
static int f_make(struct war_os *os, const war_char *p, bool *made) {
  MEET("make_directory");
  (void)p;
  *made = !of(os)->temp_exists;
  of(os)->temp_exists = true;
  return 0;
}
static int f_remove(struct war_os *os, const war_char *p) {
  MEET("remove_tree");
  assert_true(is_temp(p));
  of(os)->temp_exists = false;
  return 0;
}
static int f_lock(struct war_os *os, const char *sid, const war_char *p,
                  enum war_lock which, bool alone, bool wait) {
  MEET("lock");
  (void)sid, (void)p, (void)which, (void)alone, (void)wait;
  of(os)->locks++;
  return 0;
}
static int f_unlock(struct war_os *os, const char *sid, enum war_lock which) {
  MEET("unlock");
  (void)sid, (void)which;
  of(os)->locks--;
  return 0;
}
static int f_read(struct war_os *os, const war_char *p, char *s, size_t cap) {
  MEET("read_dacl");
  snprintf(s, cap, "%s", is_temp(p) ? of(os)->temp : of(os)->workspace);
  return 0;
}
static int f_write(struct war_os *os, const war_char *p, const char *s) {
  MEET("write_dacl");
  snprintf(is_temp(p) ? of(os)->temp : of(os)->workspace, 2048, "%s", s);
  return 0;
}
static int f_logon(struct war_os *os, char out[WAR_SID_MAX]) {
  MEET("logon_sid");
  strcpy(out, LOGON);
  return 0;
}
static int f_token(struct war_os *os, const char (*sid)[WAR_SID_MAX],
                   size_t n) {
  struct war_token_facts *t = &of(os)->token;
  size_t i;
  MEET("make_token");
  t->restricted = true;
  t->n = n;
  for (i = 0; i < n; i++)
    strcpy(t->sid[i], sid[i]);
  return 0;
}
static int f_facts(struct war_os *os, struct war_token_facts *out) {
  MEET("token_facts");
  *out = of(os)->token;
  return 0;
}
static int f_access(struct war_os *os, const char (*sid)[WAR_SID_MAX],
                    size_t n, struct war_access_facts *out) {
  size_t i;
  MEET("access_facts");
  (void)sid;
  out->reads = true;
  out->writes_user_only = !of(os)->token.restricted;
  for (i = 0; i < n; i++)
    out->writes_sid[i] = true;
  return 0;
}
static int f_read_default(struct war_os *os, char *s, size_t cap) {
  MEET("read_default");
  snprintf(s, cap, "%s", of(os)->def);
  return 0;
}
static int f_write_default(struct war_os *os, const char *s) {
  MEET("write_default");
  snprintf(of(os)->def, sizeof of(os)->def, "%s", s);
  return 0;
}
static int f_start(struct war_os *os, war_char *line, const war_char *temp) {
  MEET("start");
  (void)line, (void)temp;
  of(os)->child = true;
  return 0;
}
static int f_child(struct war_os *os, struct war_token_facts *t,
                   struct war_job_facts *j) {
  MEET("child_facts");
  *t = of(os)->token;
  j->inside = j->kills = j->ui_limits = of(os)->child;
  return 0;
}
static int f_resume(struct war_os *os) {
  MEET("resume");
  of(os)->resumed = true;
  return 0;
}
static int f_wait(struct war_os *os, uint32_t *code) {
  MEET("wait");
  *code = 42;
  return 0;
}
static void f_kill(struct war_os *os) {
  of(os)->killed = true;
}

static void fresh(struct fake *f) {
  memset(f, 0, sizeof *f);
  f->os = (struct war_os){f,          0,        f_canonical,    f_make,
                          f_remove,   f_lock,   f_unlock,       f_read,
                          f_write,    f_logon,  f_token,        f_facts,
                          f_access,   f_read_default, f_write_default,
                          f_start,    f_child,  f_resume,       f_wait,
                          f_kill};
  strcpy(f->workspace, WS_DACL);
  strcpy(f->temp, "D:AI(A;OICIID;FA;;;SY)");
  strcpy(f->def, "D:(A;;GA;;;BA)");
}

static int drive(struct fake *f, const char *mode, char *why) {
  struct war_args args;
  char line[256];
  uint32_t code = 0;
  int r;
  snprintf(line, sizeof line,
           "x --workspace C:\\w --temp D:\\t --mode %s -- cmd", mode);
  assert_int_equal(parse(line, &args, why), 0);
  r = war_drive(&f->os, &args, &code, why);
  assert_true(f->killed);
  if (r == 0 && !f->hit)
    assert_int_equal(code, 42);
  return r;
}

static void runs(void **state) {
  struct fake f;
  char why[WAR_WHY_MAX], sid[WAR_SID_MAX];
  (void)state;
  fresh(&f);
  assert_int_equal(drive(&f, "workspace-write", why), 0);
  assert_true(f.resumed);
  assert_int_equal(f.token.n, 4);
  assert_int_equal(f.locks, 0);
  assert_false(f.temp_exists);
  war_workspace_sid(w("C:\\w"), sid);
  assert_true(war_sddl_has(f.workspace, sid)); /* stands for the next run */
  assert_string_equal(f.temp, "D:AI(A;OICIID;FA;;;SY)");
  fresh(&f);
  assert_int_equal(drive(&f, "read-only", why), 0);
  assert_int_equal(f.token.n, 2);
  assert_string_equal(f.workspace, WS_DACL);
}

/* A standing ACE is left alone: no write, so no walk through the tree. */
static void stands(void **state) {
  struct fake f;
  char why[WAR_WHY_MAX], sid[WAR_SID_MAX], with[2048];
  (void)state;
  fresh(&f);
  war_workspace_sid(w("C:\\w"), sid);
  assert_int_equal(war_sddl_add(WS_DACL, sid, with, sizeof with, why), 0);
  strcpy(f.workspace, with);
  f.temp_exists = true; /* not ours to remove then */
  assert_int_equal(drive(&f, "workspace-write", why), 0);
  assert_string_equal(f.workspace, with);
  assert_true(f.temp_exists);
}

/* Calls after which nothing forbidden can run any more, or whose silence
 * changes nothing that restricts: locks order runs, unlock and remove_tree
 * tidy, resume and wait come last. */
static bool harmless(const char *name) {
  static const char *const list[] = {"lock", "unlock", "remove_tree",
                                     "make_directory", "resume", "wait"};
  size_t i;
  for (i = 0; i < sizeof list / sizeof *list; i++)
    if (strcmp(name, list[i]) == 0)
      return true;
  return false;
}

/* Every call in turn fails, or answers success and does nothing. A child that
 * was resumed although a restricting call did nothing is the one thing that
 * must never be. */
static void every_fault(const char *mode) {
  struct fake f, clean;
  char why[WAR_WHY_MAX];
  int k, kind, total;
  fresh(&clean);
  assert_int_equal(drive(&clean, mode, why), 0);
  total = clean.calls;
  for (kind = FAILS; kind <= DOES_NOTHING; kind++)
    for (k = 1; k <= total; k++) {
      int r;
      fresh(&f);
      f.at = k;
      f.fault = (enum fault)kind;
      why[0] = '\0';
      r = drive(&f, mode, why);
      assert_non_null(f.hit);
      if (f.resumed && f.token.n != clean.token.n)
        fail_msg("resumed without its token: %s at %d", f.hit, k);
      if (f.resumed && strcmp(f.def, clean.def) != 0)
        fail_msg("resumed with a wrong default DACL: %s at %d", f.hit, k);
      if (kind == FAILS && !f.resumed && r == 0)
        fail_msg("success without a child: %s at %d", f.hit, k);
      if (r != 0 && !why[0])
        fail_msg("no reason: %s at %d", f.hit, k);
      if (!f.resumed && r != 0 && strcmp(f.hit, "unlock") != 0 &&
          strcmp(f.workspace, WS_DACL) != 0)
        fail_msg("left an entry: %s (%d) at %d", f.hit, kind, k);
      if (kind == DOES_NOTHING && f.resumed && !harmless(f.hit) &&
          (r != 0 || strcmp(f.workspace, clean.workspace) != 0))
        fail_msg("resumed although %s did nothing, at %d", f.hit, k);
    }
}

static void faults(void **state) {
  (void)state;
  every_fault("read-only");
  every_fault("workspace-write");
}

/* Wrong facts one by one: the child must not be resumed. */
static struct war_token_facts wrong;
static int f_wrong(struct war_os *os, struct war_token_facts *out) {
  (void)os;
  *out = wrong;
  return 0;
}
static int f_wrong_child(struct war_os *os, struct war_token_facts *t,
                         struct war_job_facts *j) {
  (void)os;
  *t = wrong;
  j->inside = j->kills = j->ui_limits = true;
  return 0;
}

static void refuses_wrong(const char *named) {
  struct fake f;
  char why[WAR_WHY_MAX] = "";
  fresh(&f);
  f.os.token_facts = f_wrong;
  assert_int_equal(drive(&f, "read-only", why), -1);
  assert_false(f.resumed);
  assert_non_null(strstr(why, named));
  fresh(&f);
  f.os.child_facts = f_wrong_child;
  assert_int_equal(drive(&f, "read-only", why), -1);
  assert_true(f.child && !f.resumed);
  assert_non_null(strstr(why, named));
}

static void wrong_facts(void **state) {
  static const struct war_token_facts right = {true, 2, {LOGON, "S-1-1-0"}, 0};
  (void)state;
  wrong = right;
  wrong.restricted = false;
  refuses_wrong("not restricted");
  wrong = right;
  wrong.n = 1;
  refuses_wrong("lacks the restricting SID S-1-1-0");
  wrong = right;
  strcpy(wrong.sid[wrong.n++], "S-1-5-11");
  refuses_wrong("S-1-5-11, which was not asked");
  wrong = right;
  wrong.privileges = 1;
  refuses_wrong("1 privileges");
}

static void sid_flags(void **state) {
  struct war_args a;
  struct fake f;
  char why[WAR_WHY_MAX];
  uint32_t code;
  (void)state;
  fresh(&f);
  assert_int_equal(parse(OK " --write-sid S-1-1-0 -- c", &a, why), 0);
  assert_int_equal(war_drive(&f.os, &a, &code, why), -1);
  assert_non_null(strstr(why, "--write-sid"));
  assert_string_equal(f.workspace, WS_DACL);
  assert_false(f.temp_exists);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sha256),         cmocka_unit_test(utf8),
      cmocka_unit_test(sids),           cmocka_unit_test(words),
      cmocka_unit_test(misuse),         cmocka_unit_test(paths),
      cmocka_unit_test(quoting),        cmocka_unit_test(quoting_random),
      cmocka_unit_test(quoting_limits), cmocka_unit_test(sddl),
      cmocka_unit_test(sddl_exact),     cmocka_unit_test(sddl_refuses),
      cmocka_unit_test(sddl_kept),      cmocka_unit_test(runs),
      cmocka_unit_test(stands),         cmocka_unit_test(faults),
      cmocka_unit_test(wrong_facts),    cmocka_unit_test(sid_flags),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
