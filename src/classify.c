/* classify.c: what happened? Proof first, rules second, words last (contract,
 * "Telling failures apart"). Pure. */
#include <string.h>
#include <strings.h>

#include "dsh.h"

/* A line of `text` (without its LF or CRLF) as [*at, *at + *n); false at the
 * end. */
static bool next_line(const char **text, const char **at, size_t *n) {
  size_t len;
  if (!**text)
    return false;
  *at = *text;
  len = strcspn(*text, "\n");
  *text += len + ((*text)[len] == '\n');
  *n = len && (*at)[len - 1] == '\r' ? len - 1 : len;
  return true;
}

static bool is_blank(const char *s) {
  return s[strspn(s, " \t\r\n")] == '\0';
}

/* Does [s, s + n) contain `word`, ASCII letters compared without case? */
static bool contains(const char *s, size_t n, const char *word) {
  size_t i, w = strlen(word);
  if (is_blank(word))
    return false;
  for (i = 0; i + w <= n; i++)
    if (strncasecmp(s + i, word, w) == 0)
      return true;
  return false;
}

static bool is_listed(const struct dsh_strv *list, const char *s, size_t n) {
  size_t i;
  for (i = 0; i < list->n; i++)
    if (strlen(list->v[i]) == n && strncasecmp(list->v[i], s, n) == 0)
      return true;
  return false;
}

static bool has_signature(const struct dsh_strv *list, const char *s,
                          size_t n) {
  size_t i;
  for (i = 0; i < list->n; i++)
    if (contains(s, n, list->v[i]))
      return true;
  return false;
}

static bool code_allowed(const struct dsh_failure_rule *rule, int code) {
  size_t i;
  for (i = 0; i < rule->n_codes; i++)
    if (rule->allowed_exit_codes[i] == code)
      return true;
  return rule->n_codes == 0;
}

/* The runner's own line in stderr, or NULL. */
static const char *runner_line(struct dsh_arena *a,
                               const struct dsh_failure_rule *rule,
                               const char *text) {
  const char *line;
  size_t n;
  while (next_line(&text, &line, &n))
    if (!is_listed(&rule->informational_lines, line, n) &&
        has_signature(&rule->fatal_signatures, line, n))
      return dsh_strndup(a, line, n);
  return NULL;
}

static bool failed_exit(const struct dsh_outcome *o) {
  return o->exited && o->exit_code != 0;
}

static void by_rules(struct dsh_arena *a, const struct dsh_plan *plan,
                     const struct dsh_outcome *o, struct dsh_verdict *out) {
  size_t i;
  for (i = 0; i < plan->n_rules && !out->detail; i++)
    if (code_allowed(&plan->rule[i], o->exit_code))
      out->detail = runner_line(a, &plan->rule[i], o->err.text);
  out->runner_failed = out->detail != NULL;
}

static bool denied_by_text(const struct dsh_plan *plan,
                           const struct dsh_outcome *o) {
  const char *text = o->err.text, *line;
  size_t n;
  while (next_line(&text, &line, &n))
    if (has_signature(&plan->denial_signatures, line, n))
      return true;
  return false;
}

int dsh_classify(struct dsh_arena *a, const struct dsh_plan *plan,
                 const struct dsh_outcome *o, struct dsh_verdict *out) {
  memset(out, 0, sizeof *out);
  out->started = o->started;
  if (!plan->confined)
    return 0;
  if (o->started == DSH_STARTED_NO) {
    const char *text = o->err.text ? o->err.text : "", *line;
    size_t n;
    out->runner_failed = o->runner_failed;
    /* Nothing of the command ran: what stands there is the runner's. */
    while (o->runner_failed && !out->detail && next_line(&text, &line, &n))
      if (n)
        out->detail = dsh_strndup(a, line, n);
    return 0;
  }
  if (o->started == DSH_STARTED_UNKNOWN && failed_exit(o) && o->err.text)
    by_rules(a, plan, o, out);
  if (out->runner_failed)
    return 0;
  if (o->n_denials) {
    out->denied = true;
    out->evidence = DSH_EVIDENCE_RECORDS;
  } else if (!o->denials_known && failed_exit(o) && o->err.text &&
             denied_by_text(plan, o)) {
    out->denied = true;
    out->evidence = DSH_EVIDENCE_STDERR;
  }
  return 0;
}
