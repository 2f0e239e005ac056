/* seatbelt.c: macOS. The profile text is built from the one list of roots;
 * in SBPL the last rule that matches an access decides. Model only: no macOS
 * has run it; spec/sbpl.lua reads and evaluates what is written here. */
#include <string.h>

#include "../src/backend.h"

/* Longer string literals are rejected by sandbox-exec. Counted as written,
 * escapes included. */
enum { LITERAL_MAX = 1024 };

static int unsupported(const char *path, const char *why,
                       struct dsh_error *err) {
  return dsh_fail_path(err, DSH_E_POLICY_UNSUPPORTED, 0, "seatbelt", path,
                       "%s: \"%s\"", why, path);
}

static size_t escaped_length(const char *s) {
  size_t n = 0;
  for (; *s; s++)
    n += *s == '"' || *s == '\\' ? 2 : 1;
  return n;
}

/* A string literal, or NULL with the reason set. */
static const char *literal(struct dsh_arena *a, const char *path,
                           struct dsh_error *err) {
  const unsigned char *s;
  size_t n = escaped_length(path);
  char *text, *to;
  for (s = (const unsigned char *)path; *s; s++)
    if (*s < 0x20 || *s == 0x7f) {
      unsupported(path, "a profile cannot carry a control character", err);
      return NULL;
    }
  if (n > LITERAL_MAX) {
    unsupported(path, "a profile string holds at most 1024 bytes", err);
    return NULL;
  }
  text = to = dsh_alloc(a, n + 3);
  if (!text) {
    dsh_fail(err, DSH_E_NO_MEMORY, 0, "seatbelt", "out of memory");
    return NULL;
  }
  *to++ = '"';
  for (; *path; path++) {
    if (*path == '"' || *path == '\\')
      *to++ = '\\';
    *to++ = *path;
  }
  *to = '"';
  return text;
}

/* One line `(verb operation (filter "path"))` more. */
static int rule(struct dsh_arena *a, struct dsh_strv *out, const char *head,
                const char *filter, const char *path, struct dsh_error *err) {
  const char *text = literal(a, path, err);
  if (!text)
    return -1;
  dsh_strv_add(a, out, dsh_format(a, "(%s (%s %s))\n", head, filter, text));
  return 0;
}

/* A directory on the way to a protected path must keep its name, else the
 * path leaves its rule: `mv .git .g2`. The root itself counts: it could be
 * moved into another root. */
static int ancestors(struct dsh_arena *a, struct dsh_strv *out,
                     const struct dsh_roots *roots, const char *path,
                     struct dsh_error *err) {
  char *up = dsh_strdup(a, path), *slash;
  size_t i;
  while (up && (slash = strrchr(up, '/')) && slash != up) {
    *slash = '\0';
    for (i = 0; i < roots->n; i++)
      if (dsh_path_within(up, roots->root[i].path))
        break;
    if (i == roots->n)
      return 0;
    if (rule(a, out, "deny file-write-unlink", "literal", up, err) != 0)
      return -1;
  }
  return 0;
}

static int rules(struct dsh_arena *a, const struct dsh_roots *roots,
                 struct dsh_strv *out, struct dsh_error *err) {
  size_t i;
  dsh_strv_add(a, out, "(version 1)\n(allow default)\n(deny file-write*)\n"
                       "(allow file-write* (literal \"/dev/null\"))\n");
  for (i = 0; i < roots->n; i++)
    if (rule(a, out, "allow file-write*",
             roots->root[i].directory ? "subpath" : "literal",
             roots->root[i].path, err) != 0)
      return -1;
  for (i = 0; i < roots->protected_.n; i++) {
    const char *path = roots->protected_.v[i];
    if (rule(a, out, "deny file-write*", "subpath", path, err) != 0 ||
        ancestors(a, out, roots, path, err) != 0)
      return -1;
  }
  return 0;
}

static int plan(struct dsh_arena *a, const struct dsh_launch *in,
                struct dsh_strv *out, struct dsh_error *err) {
  struct dsh_strv lines = {0};
  size_t i, n = 1;
  char *text;
  int r;
  if (rules(a, in->roots, &lines, err) != 0)
    return -1;
  for (i = 0; i < lines.n && !a->failed; i++)
    n += strlen(lines.v[i]);
  text = dsh_alloc(a, n);
  if (!text || a->failed)
    return dsh_fail(err, DSH_E_NO_MEMORY, 0, "seatbelt", "out of memory");
  for (i = 0, n = 0; i < lines.n; i++) {
    size_t len = strlen(lines.v[i]);
    memcpy(text + n, lines.v[i], len);
    n += len;
  }
  r = dsh_strv_add(a, out, in->runner);
  r |= dsh_strv_add(a, out, "-p");
  r |= dsh_strv_add(a, out, text);
  r |= dsh_strv_add(a, out, "--");
  return r ? dsh_fail(err, DSH_E_NO_MEMORY, 0, "seatbelt", "out of memory")
           : 0;
}

static const char *const places[] = {"/usr/bin/sandbox-exec", NULL};
static const char *const signatures[] = {"operation not permitted", NULL};
static const char *fatal[] = {"sandbox-exec: ", NULL};
static const struct dsh_failure_rule failure[] = {
    {NULL, 0, {fatal, 1, 0}, {NULL, 0, 0}}};

const struct dsh_backend dsh_backend_seatbelt = {
    "seatbelt", DSH_MACOS, places, signatures, failure, 1, plan};
