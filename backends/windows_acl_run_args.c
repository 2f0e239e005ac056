/* windows_acl_run_args.c: the runner's words, paths and quoting. Pure. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "windows_acl_run.h"

int war_fail(char *why, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, WAR_WHY_MAX, fmt, ap);
  va_end(ap);
  return -1;
}

size_t war_length(const war_char *s) {
  size_t n = 0;
  while (s[n])
    n++;
  return n;
}

bool war_is(const war_char *s, const char *ascii) {
  while (*s && *s == (war_char)(unsigned char)*ascii) {
    s++;
    ascii++;
  }
  return !*s && !*ascii;
}

/* --- words --------------------------------------------------------------- */

static int verb(int argc, war_char **argv, struct war_args *out) {
  static const struct {
    const char *word;
    enum war_verb verb;
  } verbs[] = {{"--self-test", WAR_SELF_TEST},
               {"--inventory", WAR_INVENTORY},
               {"--clean", WAR_CLEAN},
               {"--version", WAR_VERSION}};
  size_t i;
  if (argc != 2)
    return -1;
  for (i = 0; i < sizeof verbs / sizeof *verbs; i++)
    if (war_is(argv[1], verbs[i].word)) {
      out->verb = verbs[i].verb;
      return 0;
    }
  return -1;
}

static int set(const war_char **field, const war_char *value,
               const char *name, char *why) {
  if (*field)
    return war_fail(why, "%s given twice", name);
  if (!*value)
    return war_fail(why, "%s is empty", name);
  *field = value;
  return 0;
}

static int option(const war_char *word, const war_char *value,
                  struct war_args *out, const war_char **mode, char *why) {
  if (war_is(word, "--workspace"))
    return set(&out->workspace, value, "--workspace", why);
  if (war_is(word, "--temp"))
    return set(&out->temp, value, "--temp", why);
  if (war_is(word, "--mode"))
    return set(mode, value, "--mode", why);
  if (war_is(word, "--write-sid"))
    return set(&out->write_sid, value, "--write-sid", why);
  if (war_is(word, "--temp-write-sid"))
    return set(&out->temp_write_sid, value, "--temp-write-sid", why);
  return war_fail(why, "unknown option; usage: --workspace W --temp T --mode M "
                       "[--write-sid S --temp-write-sid S2] -- ARGV...");
}

static int complete(struct war_args *out, const war_char *mode, char *why) {
  if (!out->workspace)
    return war_fail(why, "--workspace is missing");
  if (!mode)
    return war_fail(why, "--mode is missing");
  if (war_is(mode, "workspace-write"))
    out->workspace_write = true;
  else if (!war_is(mode, "read-only"))
    return war_fail(why, "--mode: expected read-only or workspace-write");
  if (out->workspace_write && !out->temp)
    return war_fail(why, "--temp is missing");
  if (!war_absolute(out->workspace))
    return war_fail(why, "--workspace: not an absolute path");
  if (out->temp && !war_absolute(out->temp))
    return war_fail(why, "--temp: not an absolute path");
  if (!out->temp && out->temp_write_sid)
    return war_fail(why, "--temp-write-sid without --temp");
  if (!out->argc || !out->argv[0][0])
    return war_fail(why, "no command after --");
  return 0;
}

int war_parse(int argc, war_char **argv, struct war_args *out, char *why) {
  const war_char *mode = NULL;
  int i = 1;
  memset(out, 0, sizeof *out);
  if (verb(argc, argv, out) == 0)
    return 0;
  for (; i < argc && !war_is(argv[i], "--"); i += 2) {
    if (i + 1 >= argc || war_is(argv[i + 1], "--"))
      return war_fail(why, "an option without a value, or no -- before the "
                           "command");
    if (option(argv[i], argv[i + 1], out, &mode, why) != 0)
      return -1;
  }
  if (i >= argc)
    return war_fail(why, "no -- before the command");
  out->argv = argv + i + 1;
  out->argc = argc - i - 1;
  return complete(out, mode, why);
}

/* --- quoting ------------------------------------------------------------- */

struct line {
  war_char *out;
  size_t n;
};

static void add(struct line *l, char c, size_t times) {
  for (; times; times--, l->n++)
    if (l->n < WAR_COMMAND_MAX)
      l->out[l->n] = (war_char)c;
}

static void add_word(struct line *l, const war_char *s, bool quote) {
  size_t slashes = 0;
  if (quote)
    add(l, '"', 1);
  for (; *s; s++) {
    if (*s == '\\') {
      slashes++;
      continue;
    }
    add(l, '\\', *s == '"' ? 2 * slashes + 1 : slashes);
    slashes = 0;
    if (l->n < WAR_COMMAND_MAX)
      l->out[l->n] = *s;
    l->n++;
  }
  add(l, '\\', quote ? 2 * slashes : slashes);
  if (quote)
    add(l, '"', 1);
}

static bool needs_quotes(const war_char *s) {
  if (!*s)
    return true;
  for (; *s; s++)
    if (*s == ' ' || *s == '\t' || *s == '\n' || *s == '\v' || *s == '"')
      return true;
  return false;
}

/* The first word is read by other rules (no escapes at all), so it is always
 * quoted and must not hold a quote. */
int war_command_line(war_char *const *argv, int argc, war_char *out,
                     char *why) {
  struct line l = {out, 0};
  const war_char *s;
  int i;
  for (s = argv[0]; *s; s++)
    if (*s == '"')
      return war_fail(why, "a program's name cannot hold a quote");
  add(&l, '"', 1);
  for (s = argv[0]; *s; s++, l.n++)
    if (l.n < WAR_COMMAND_MAX)
      out[l.n] = *s;
  add(&l, '"', 1);
  for (i = 1; i < argc; i++) {
    add(&l, ' ', 1);
    add_word(&l, argv[i], needs_quotes(argv[i]));
  }
  if (l.n >= WAR_COMMAND_MAX)
    return war_fail(why, "the command line is %lu characters, Windows takes "
                         "%d",
                    (unsigned long)l.n, WAR_COMMAND_MAX - 1);
  out[l.n] = 0;
  return 0;
}

/* --- paths --------------------------------------------------------------- */

static war_char fold(war_char c) {
  if (c >= 'A' && c <= 'Z')
    return (war_char)(c - 'A' + 'a');
  return c == '/' ? '\\' : c;
}

bool war_within(const war_char *path, const war_char *dir) {
  size_t n = war_length(dir), i;
  while (n && fold(dir[n - 1]) == '\\')
    n--;
  for (i = 0; i < n; i++)
    if (!path[i] || fold(path[i]) != fold(dir[i]))
      return false;
  return !path[n] || fold(path[n]) == '\\';
}

static bool is_letter(war_char c) {
  c = fold(c);
  return c >= 'a' && c <= 'z';
}

bool war_absolute(const war_char *p) {
  if (is_letter(p[0]) && p[1] == ':' && fold(p[2]) == '\\')
    return true;
  /* a share; but no device or verbatim path: "\\.\", "\\?\" */
  return fold(p[0]) == '\\' && fold(p[1]) == '\\' && p[2] && p[2] != '.' &&
         p[2] != '?' && fold(p[2]) != '\\';
}

static bool is_root(const war_char *p) {
  size_t n = war_length(p), parts = 0, i;
  while (n && fold(p[n - 1]) == '\\')
    n--;
  if (is_letter(p[0]) && p[1] == ':')
    return n <= 2;
  for (i = 2; i < n; i++)
    parts += fold(p[i]) == '\\';
  return parts < 2; /* \\server\share */
}

int war_check_places(const war_char *workspace, const war_char *temp,
                     char *why) {
  if (is_root(workspace))
    return war_fail(why, "the workspace is the root of a drive or share");
  if (!temp)
    return 0;
  if (is_root(temp))
    return war_fail(why, "the temp directory is the root of a drive or share");
  if (war_within(temp, workspace))
    return war_fail(why, "the temp directory lies inside the workspace");
  if (war_within(workspace, temp))
    return war_fail(why, "the workspace lies inside the temp directory");
  return 0;
}
