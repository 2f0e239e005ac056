/* classify.c: what happened, from what was observed. Pure.
 *
 * Proof comes first: where the start is known, no text is read to decide
 * whether the runner failed. Words on stderr are anybody's; they count only
 * where nothing better is known. */
#include <string.h>

#include "dsh.h"

static bool blank(const char *s) {
  return s[strspn(s, " \t\r\n\v\f")] == '\0';
}

static char lower(char c) {
  return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same_text(const char *a, const char *b, size_t n) {
  size_t i;
  for (i = 0; i < n; i++)
    if (lower(a[i]) != lower(b[i]))
      return false;
  return true;
}

/* `needle` somewhere in n bytes, case-insensitive; blank ones never are. */
static bool contains(const char *text, size_t n, const char *needle) {
  size_t m = strlen(needle), i;
  if (blank(needle))
    return false;
  for (i = 0; i + m <= n; i++)
    if (same_text(text + i, needle, m))
      return true;
  return false;
}

struct line {
  const char *text;
  size_t len;
};

/* The next line, without its end (LF or CRLF); false at the end. */
static bool next_line(const char **at, const char *end, struct line *out) {
  const char *nl;
  if (*at >= end)
    return false;
  nl = memchr(*at, '\n', (size_t)(end - *at));
  out->text = *at;
  out->len = (size_t)((nl ? nl : end) - *at);
  *at = nl ? nl + 1 : end;
  if (out->len && out->text[out->len - 1] == '\r')
    out->len--;
  return true;
}

static bool informational(const struct dsh_failure_rule *rule,
                          const struct line *l) {
  size_t i;
  for (i = 0; i < rule->informational_lines.n; i++) {
    const char *s = rule->informational_lines.v[i];
    if (strlen(s) == l->len && same_text(s, l->text, l->len))
      return true;
  }
  return false;
}

static bool code_allowed(const struct dsh_failure_rule *rule, int code) {
  size_t i;
  if (!rule->n_codes)
    return code != 0;
  for (i = 0; i < rule->n_codes; i++)
    if (rule->allowed_exit_codes[i] == code)
      return code != 0;
  return false;
}

static bool any_signature(const struct dsh_strv *list, const char *text,
                          size_t n) {
  size_t i;
  for (i = 0; i < list->n; i++)
    if (contains(text, n, list->v[i]))
      return true;
  return false;
}

/* The line by which this rule says that the runner failed; false: none. */
static bool rule_matches(const struct dsh_failure_rule *rule, int code,
                         const char *text, size_t n, struct line *detail) {
  const char *at = text;
  if (!code_allowed(rule, code))
    return false;
  while (next_line(&at, text + n, detail))
    if (!informational(rule, detail) &&
        any_signature(&rule->fatal_signatures, detail->text, detail->len))
      return true;
  return false;
}

static int by_rules(struct dsh_arena *a, const struct dsh_plan *plan,
                    const struct dsh_outcome *o, struct dsh_verdict *v) {
  struct line l;
  size_t i;
  if (!o->exited || o->exit_code == 0 || !o->err.text)
    return 0;
  for (i = 0; i < plan->n_rules; i++)
    if (rule_matches(&plan->rule[i], o->exit_code, o->err.text, o->err.len,
                     &l)) {
      v->runner_failed = true;
      v->detail = dsh_strndup(a, l.text, l.len);
      return v->detail ? 0 : -1;
    }
  return 0;
}

/* Nothing of the command ran: what stands on stderr is the runner's. */
static int runner_words(struct dsh_arena *a, const struct dsh_outcome *o,
                        struct dsh_verdict *v) {
  const char *at = o->err.text;
  struct line l;
  while (o->runner_failed && at && !v->detail &&
         next_line(&at, o->err.text + o->err.len, &l))
    if (l.len && !(v->detail = dsh_strndup(a, l.text, l.len)))
      return -1;
  return 0;
}

static void by_text(const struct dsh_plan *plan, const struct dsh_outcome *o,
                    struct dsh_verdict *v) {
  if (!o->exited || o->exit_code == 0 || !o->err.text)
    return;
  if (any_signature(&plan->denial_signatures, o->err.text, o->err.len)) {
    v->denied = true;
    v->evidence = DSH_EVIDENCE_STDERR;
  }
}

int dsh_classify(struct dsh_arena *a, const struct dsh_plan *plan,
                 const struct dsh_outcome *o, struct dsh_verdict *out) {
  memset(out, 0, sizeof *out);
  out->started = o->started;
  if (!plan->confined)
    return 0;
  out->runner_failed = o->runner_failed; /* by proof */
  if (o->started == DSH_STARTED_NO) /* nothing ran that could be denied */
    return runner_words(a, o, out);
  if (!out->runner_failed && o->started == DSH_STARTED_UNKNOWN &&
      by_rules(a, plan, o, out) < 0)
    return -1;
  if (out->runner_failed)
    return 0;
  if (o->n_denials) {
    out->denied = true;
    out->evidence = DSH_EVIDENCE_RECORDS;
  } else if (!o->denials_known) {
    by_text(plan, o, out);
  }
  return 0;
}
