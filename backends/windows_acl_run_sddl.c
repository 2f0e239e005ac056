/* windows_acl_run_sddl.c: edits of a DACL, on its SDDL text ([MS-DTYP] 2.5.1).
 * Pure. A DACL is "D:" flags, then ACEs "(type;flags;rights;;;sid…)"; explicit
 * ones come first, inherited ones carry the flag ID. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "windows_acl_run.h"

struct ace {
  const char *text; /* from "(" */
  size_t len;       /* … to ")" */
  bool inherited;
};

/* Conditional ACEs nest parentheses and hold strings. */
static size_t ace_length(const char *s) {
  size_t i, depth = 0;
  bool quoted = false;
  for (i = 0; s[i]; i++) {
    if (s[i] == '"')
      quoted = !quoted;
    else if (!quoted && s[i] == '(')
      depth++;
    else if (!quoted && s[i] == ')' && --depth == 0)
      return i + 1;
  }
  return 0;
}

/* Field k (0 type … 5 sid) of an ACE. */
static size_t field(const struct ace *a, int k, const char **out) {
  const char *s = a->text + 1, *end = a->text + a->len - 1, *stop;
  for (; k; k--) {
    s = memchr(s, ';', (size_t)(end - s));
    if (!s++)
      return 0;
  }
  stop = memchr(s, ';', (size_t)(end - s));
  *out = s;
  return (size_t)((stop ? stop : end) - s);
}

static bool has_flag(const struct ace *a, const char *flag) {
  const char *f = NULL;
  size_t n = field(a, 1, &f), i;
  for (i = 0; i + 1 < n; i += 2)
    if (f[i] == flag[0] && f[i + 1] == flag[1])
      return true;
  return false;
}

/* The next ACE at *at; false at the end or where the text is no ACE. */
static bool next_ace(const char **at, struct ace *a) {
  if (**at != '(' || !(a->len = ace_length(*at)))
    return false;
  a->text = *at;
  a->inherited = has_flag(a, "ID");
  *at += a->len;
  return true;
}

/* The first ACE's place of a whole DACL text, or NULL: no DACL, a NULL DACL
 * (which grants everything), or not understood. */
static const char *aces(const char *sddl) {
  const char *at = strncmp(sddl, "D:", 2) == 0 ? sddl + 2 : NULL, *end;
  struct ace a;
  if (!at || strstr(at, "NO_ACCESS_CONTROL"))
    return NULL;
  at += strspn(at, "PAIR");
  for (end = at; next_ace(&end, &a);)
    ;
  return *end ? NULL : at;
}

static int no_dacl(char *why) {
  return war_fail(why, "its access list is missing, empty of rules "
                       "(everyone may do everything), or not understood");
}

static uint32_t symbol(const char *s) {
  static const struct {
    char name[3];
    uint32_t mask;
  } known[] = {
      {"GA", 0x10000000}, {"GX", 0x20000000}, {"GW", 0x40000000},
      {"GR", 0x80000000}, {"SD", 0x10000},    {"RC", 0x20000},
      {"WD", 0x40000},    {"WO", 0x80000},    {"CC", 1},
      {"DC", 2},          {"LC", 4},          {"SW", 8},
      {"RP", 0x10},       {"WP", 0x20},       {"DT", 0x40},
      {"LO", 0x80},       {"CR", 0x100},      {"FA", 0x1f01ff},
      {"FR", 0x120089},   {"FW", 0x120116},   {"FX", 0x1200a0}};
  size_t i;
  for (i = 0; i < sizeof known / sizeof *known; i++)
    if (s[0] == known[i].name[0] && s[1] == known[i].name[1])
      return known[i].mask;
  return 0;
}

/* 0: not understood, which equals no mask of ours. */
static uint32_t rights(const char *s, size_t n) {
  uint32_t mask = 0;
  size_t i;
  char number[16] = "", *end;
  if (n > 1 && s[0] == '0' && n < sizeof number) {
    memcpy(number, s, n);
    mask = (uint32_t)strtoul(number, &end, 0);
    return *end ? 0 : mask;
  }
  if (n % 2)
    return 0;
  for (i = 0; i < n; i += 2) {
    uint32_t one = symbol(s + i);
    if (!one)
      return 0;
    mask |= one;
  }
  return mask;
}

/* Windows writes Everyone as WD. */
static bool same_sid(const char *f, size_t n, const char *sid) {
  if (n == 2 && memcmp(f, "WD", 2) == 0)
    return strcmp(sid, WAR_EVERYONE) == 0;
  return n == strlen(sid) && memcmp(f, sid, n) == 0;
}

/* An explicit allow ACE with exactly this mask for this SID. */
static bool is(const struct ace *a, const char *sid, uint32_t mask,
               bool inheritable) {
  const char *f = NULL;
  size_t n = field(a, 0, &f);
  if (n != 1 || *f != 'A')
    return false;
  n = field(a, 1, &f);
  if (n != (inheritable ? 4u : 0u))
    return false;
  if (inheritable && (!has_flag(a, "OI") || !has_flag(a, "CI")))
    return false;
  n = field(a, 2, &f);
  if (rights(f, n) != mask || field(a, 3, &f) || field(a, 4, &f))
    return false;
  n = field(a, 5, &f);
  return same_sid(f, n, sid) && f + n == a->text + a->len - 1;
}

enum { GENERIC_ALL_MASK = 0x10000000 };

static bool ours(const struct ace *a, const char *sid) {
  return sid && is(a, sid, WAR_ACE_MASK, true);
}

static bool ours_default(const struct ace *a, const char *sid) {
  return is(a, sid, GENERIC_ALL_MASK, false);
}

bool war_sddl_has(const char *sddl, const char *sid) {
  const char *at = aces(sddl);
  struct ace a;
  while (at && next_ace(&at, &a))
    if (ours(&a, sid))
      return true;
  return false;
}

static int insert(const char *sddl, const char *ace, char *out, size_t cap,
                  char *why) {
  const char *at = aces(sddl), *end;
  struct ace a;
  int n;
  if (!at)
    return no_dacl(why);
  for (end = at; next_ace(&end, &a) && !a.inherited;)
    at = end;
  n = snprintf(out, cap, "%.*s%s%s", (int)(at - sddl), sddl, ace, at);
  if (n < 0 || (size_t)n >= cap)
    return war_fail(why, "its access list is too long");
  return 0;
}

int war_sddl_add(const char *sddl, const char *sid, char *out, size_t cap,
                 char *why) {
  char ace[WAR_SID_MAX + 64];
  snprintf(ace, sizeof ace, "(A;OICI;0x%x;;;%s)", WAR_ACE_MASK, sid);
  if (war_sddl_has(sddl, sid))
    ace[0] = '\0';
  return insert(sddl, ace, out, cap, why);
}

int war_sddl_remove(const char *sddl, const char *sid, char *out, size_t cap,
                    char *why) {
  const char *at = aces(sddl);
  struct ace a;
  size_t n;
  if (!at)
    return no_dacl(why);
  if (strlen(sddl) >= cap)
    return war_fail(why, "its access list is too long");
  n = (size_t)(at - sddl);
  memcpy(out, sddl, n);
  while (next_ace(&at, &a))
    if (!ours(&a, sid)) {
      memcpy(out + n, a.text, a.len);
      n += a.len;
    }
  out[n] = '\0';
  return 0;
}

typedef bool mine(const struct ace *a, const char *sid);

/* The next explicit ACE that is not ours. */
static bool next_foreign(const char **at, const char *sid, mine *is_ours,
                         struct ace *a) {
  while (next_ace(at, a))
    if (!a->inherited && !is_ours(a, sid))
      return true;
  return false;
}

static bool is_protected(const char *sddl) {
  return memchr(sddl, 'P', strcspn(sddl, "(")) != NULL;
}

static bool kept(const char *before, const char *after, const char *sid,
                 mine *is_ours) {
  const char *x = aces(before), *y = aces(after);
  struct ace a, b;
  bool more;
  if (!x || !y || is_protected(before) != is_protected(after))
    return false;
  while ((more = next_foreign(&x, sid, is_ours, &a)) ==
         next_foreign(&y, sid, is_ours, &b)) {
    if (!more)
      return true;
    if (a.len != b.len || memcmp(a.text, b.text, a.len) != 0)
      return false;
  }
  return false;
}

bool war_sddl_kept(const char *before, const char *after, const char *sid) {
  return kept(before, after, sid, ours);
}

int war_sddl_default(const char *sddl, const char *sid, char *out,
                     size_t cap, char *why) {
  char ace[WAR_SID_MAX + 64];
  snprintf(ace, sizeof ace, "(A;;GA;;;%s)", sid);
  if (war_sddl_default_has(sddl, sid))
    ace[0] = '\0';
  return insert(sddl, ace, out, cap, why);
}

bool war_sddl_default_has(const char *sddl, const char *sid) {
  const char *at = aces(sddl);
  struct ace a;
  while (at && next_ace(&at, &a))
    if (ours_default(&a, sid))
      return true;
  return false;
}

bool war_sddl_default_kept(const char *before, const char *after,
                           const char *sid) {
  return war_sddl_default_has(after, sid) &&
         kept(before, after, sid, ours_default);
}
