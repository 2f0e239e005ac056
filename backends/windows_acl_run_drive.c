/* windows_acl_run_drive.c: the order of steps, and the rule that a child is
 * resumed only after everything was read back as planned. No Win32: the calls
 * come through struct war_os, so that each can be made to fail or to do
 * nothing in a test. */
#include <stdlib.h>
#include <string.h>

#include "windows_acl_run.h"

struct drive {
  struct war_os *os;
  const struct war_args *args;
  char *why;
  war_char workspace[WAR_PATH_MAX], temp[WAR_PATH_MAX];
  char sid[WAR_SIDS_MAX][WAR_SID_MAX]; /* the token's whole list */
  size_t n;
  char write_sid[WAR_SID_MAX], temp_sid[WAR_SID_MAX];
  bool temp_made, temp_used;
  bool workspace_set, temp_set;       /* our ACE was put there by this run */
  war_char command[WAR_COMMAND_MAX];
  char before[WAR_SDDL_MAX], planned[WAR_SDDL_MAX], after[WAR_SDDL_MAX];
};

static int failed(struct drive *d, const char *what) {
  return war_fail(d->why, "%s: error %lu", what, d->os->error);
}

/* Reads start from nothing, so that one which does nothing shows. */
static int read_list(struct drive *d, const war_char *path, char *out) {
  out[0] = '\0';
  return d->os->read_dacl(d->os, path, out, WAR_SDDL_MAX);
}

static int read_default(struct drive *d, char *out) {
  out[0] = '\0';
  return d->os->read_default(d->os, out, WAR_SDDL_MAX);
}

/* --- places -------------------------------------------------------------- */

static bool matches(const war_char *given, const char *sid) {
  return !given || war_is(given, sid);
}

/* The temp directory is made first, since only what exists is canonical; it
 * is checked as it was given before that. */
static int temp_place(struct drive *d) {
  struct war_os *os = d->os;
  if (!d->args->workspace_write)
    return 0;
  if (war_check_places(d->workspace, d->args->temp, d->why) != 0)
    return -1;
  if (os->make_directory(os, d->args->temp, &d->temp_made) != 0)
    return failed(d, "cannot make the temp directory");
  if (os->canonical(os, d->args->temp, d->temp) != 0)
    return failed(d, "the temp directory cannot be resolved");
  return war_check_places(d->workspace, d->temp, d->why);
}

static int places(struct drive *d) {
  struct war_os *os = d->os;
  if (os->canonical(os, d->args->workspace, d->workspace) != 0)
    return failed(d, "the workspace cannot be resolved");
  if (war_check_places(d->workspace, NULL, d->why) != 0 ||
      temp_place(d) != 0)
    return -1;
  if (war_workspace_sid(d->workspace, d->write_sid) != 0 ||
      (d->temp[0] && war_temp_sid(d->temp, d->temp_sid) != 0))
    return war_fail(d->why, "a path is too long");
  if (!matches(d->args->write_sid, d->write_sid))
    return war_fail(d->why, "--write-sid is not the workspace's, which is %s",
                    d->write_sid);
  if (d->temp[0] && !matches(d->args->temp_write_sid, d->temp_sid))
    return war_fail(d->why, "--temp-write-sid is not the temp directory's, "
                            "which is %s",
                    d->temp_sid);
  return 0;
}

/* --- token --------------------------------------------------------------- */

static bool in_list(const char (*list)[WAR_SID_MAX], size_t n,
                    const char *sid) {
  size_t i;
  for (i = 0; i < n; i++)
    if (strcmp(list[i], sid) == 0)
      return true;
  return false;
}

static int check_facts(struct drive *d, const struct war_token_facts *f,
                       const char *whose) {
  size_t i;
  if (!f->restricted || !f->n)
    return war_fail(d->why, "%s is not restricted, although the system "
                            "reported success",
                    whose);
  for (i = 0; i < d->n; i++)
    if (!in_list(f->sid, f->n, d->sid[i]))
      return war_fail(d->why, "%s lacks the restricting SID %s", whose,
                      d->sid[i]);
  for (i = 0; i < f->n; i++)
    if (!in_list(d->sid, d->n, f->sid[i]))
      return war_fail(d->why, "%s has the restricting SID %s, which was not "
                              "asked for",
                      whose, f->sid[i]);
  if (f->privileges)
    return war_fail(d->why, "%s kept %u privileges", whose, f->privileges);
  return 0;
}

/* The kernel's own answer, on descriptors that grant the user everything. */
static int check_access(struct drive *d) {
  struct war_access_facts f;
  size_t i;
  memset(&f, 0, sizeof f);
  f.writes_user_only = true;
  if (d->os->access_facts(d->os, d->sid, d->n, &f) != 0)
    return failed(d, "the token's access cannot be tried");
  if (f.writes_user_only)
    return war_fail(d->why, "the token may write what only its user may "
                            "write: the restriction does nothing");
  if (!f.reads)
    return war_fail(d->why, "the token cannot even read");
  for (i = 0; i < d->n; i++)
    if (!f.writes_sid[i])
      return war_fail(d->why, "the token cannot write what %s is granted",
                      d->sid[i]);
  return 0;
}

static int default_dacl(struct drive *d) {
  struct war_os *os = d->os;
  const char *sid = d->args->workspace_write ? d->temp_sid : WAR_EVERYONE;
  if (read_default(d, d->before) != 0)
    return failed(d, "the token's default access list cannot be read");
  if (war_sddl_default(d->before, sid, d->planned, sizeof d->planned,
                       d->why) != 0)
    return -1;
  if (os->write_default(os, d->planned) != 0)
    return failed(d, "the token's default access list cannot be set");
  if (read_default(d, d->after) != 0)
    return failed(d, "the token's default access list cannot be read again");
  if (!war_sddl_default_kept(d->before, d->after, sid))
    return war_fail(d->why, "the token's default access list is not what was "
                            "set");
  return 0;
}

static int token(struct drive *d) {
  struct war_os *os = d->os;
  struct war_token_facts facts;
  memset(&facts, 0, sizeof facts);
  if (os->logon_sid(os, d->sid[0]) != 0)
    return failed(d, "the logon session's SID cannot be found");
  strcpy(d->sid[1], WAR_EVERYONE);
  d->n = 2;
  if (d->args->workspace_write) {
    strcpy(d->sid[2], d->write_sid);
    strcpy(d->sid[3], d->temp_sid);
    d->n = 4;
  }
  if (os->make_token(os, d->sid, d->n) != 0)
    return failed(d, "CreateRestrictedToken");
  if (os->token_facts(os, &facts) != 0)
    return failed(d, "the restricted token's list cannot be read back");
  if (check_facts(d, &facts, "the token") != 0 || check_access(d) != 0)
    return -1;
  return default_dacl(d);
}

/* --- grants -------------------------------------------------------------- */

static int put_back(struct drive *d, const war_char *path, const char *sid) {
  bool had;
  char ignored[WAR_WHY_MAX];
  return war_revoke(d->os, sid, path, &had, ignored);
}

/* After a grant that did not go as planned: the ACE goes, and where setting it
 * changed more than that, the list as it was comes back. */
static void undo(struct drive *d, const war_char *path, const char *sid) {
  put_back(d, path, sid);
  if (read_list(d, path, d->after) != 0 || strcmp(d->after, d->before) != 0)
    d->os->write_dacl(d->os, path, d->before);
}

/* Puts the ACE there unless it stands; *set only when this run did it. The
 * caller holds the lock. */
static int grant(struct drive *d, const war_char *path, const char *sid,
                 bool *was_set) {
  struct war_os *os = d->os;
  if (read_list(d, path, d->before) != 0)
    return failed(d, "an access list cannot be read");
  if (war_sddl_has(d->before, sid))
    return 0;
  if (war_sddl_add(d->before, sid, d->planned, sizeof d->planned, d->why) !=
      0)
    return -1;
  *was_set = true; /* also a failed write may have done part of it */
  if (os->write_dacl(os, path, d->planned) != 0)
    return failed(d, "an access list cannot be set");
  if (read_list(d, path, d->after) != 0)
    return failed(d, "an access list cannot be read again");
  if (!war_sddl_has(d->after, sid))
    return war_fail(d->why, "the entry for %s is not there, although the "
                            "system reported success",
                    sid);
  if (!war_sddl_kept(d->before, d->after, sid))
    return war_fail(d->why, "setting the entry for %s changed others", sid);
  return 0;
}

static int locked_grant(struct drive *d, const war_char *path,
                        const char *sid, bool *was_set, bool temp) {
  struct war_os *os = d->os;
  int r;
  if (os->lock(os, sid, path, WAR_LOCK_CHANGE, true, true) != 0)
    return failed(d, "a lock file cannot be locked");
  r = grant(d, path, sid, was_set);
  if (r == 0 && temp) {
    r = os->lock(os, sid, path, WAR_LOCK_USE, false, true);
    d->temp_used = r == 0;
    if (r != 0)
      failed(d, "a lock file cannot be locked for use");
  }
  if (r != 0 && *was_set) {
    undo(d, path, sid);
    *was_set = false;
  }
  os->unlock(os, sid, WAR_LOCK_CHANGE);
  return r;
}

static int grants(struct drive *d) {
  if (!d->args->workspace_write)
    return 0;
  if (locked_grant(d, d->workspace, d->write_sid, &d->workspace_set, false) !=
      0)
    return -1;
  return locked_grant(d, d->temp, d->temp_sid, &d->temp_set, true);
}

/* The temp ACE goes with the last run that uses it; the directory too, where
 * we made it. A refused run takes the workspace's ACE back as well. */
static void finish(struct drive *d, bool refused) {
  struct war_os *os = d->os;
  bool alone = true;
  if (refused && d->workspace_set &&
      os->lock(os, d->write_sid, d->workspace, WAR_LOCK_CHANGE, true, true) ==
          0) {
    put_back(d, d->workspace, d->write_sid);
    os->unlock(os, d->write_sid, WAR_LOCK_CHANGE);
  }
  if (d->temp_used &&
      os->lock(os, d->temp_sid, d->temp, WAR_LOCK_CHANGE, true, true) == 0) {
    os->unlock(os, d->temp_sid, WAR_LOCK_USE);
    alone =
        os->lock(os, d->temp_sid, d->temp, WAR_LOCK_USE, true, false) == 0;
    if (alone) {
      put_back(d, d->temp, d->temp_sid);
      os->unlock(os, d->temp_sid, WAR_LOCK_USE);
    }
    os->unlock(os, d->temp_sid, WAR_LOCK_CHANGE);
  }
  if (d->temp_made && alone)
    os->remove_tree(os, d->args->temp);
}

/* --- the child ----------------------------------------------------------- */

static int child(struct drive *d) {
  struct war_os *os = d->os;
  struct war_token_facts facts;
  struct war_job_facts job;
  memset(&facts, 0, sizeof facts);
  memset(&job, 0, sizeof job);
  if (os->start(os, d->command, d->temp[0] ? d->temp : NULL) != 0)
    return failed(d, "the command cannot be started");
  if (os->child_facts(os, &facts, &job) != 0)
    return failed(d, "the child cannot be examined");
  if (!job.inside || !job.kills || !job.ui_limits)
    return war_fail(d->why, "the child is not in a job that ends with the "
                            "runner and limits it");
  if (check_facts(d, &facts, "the child's token") != 0)
    return -1;
  if (os->resume(os) != 0)
    return failed(d, "the child cannot be resumed");
  return 0;
}

static int steps(struct drive *d, uint32_t *code) {
  if (war_command_line(d->args->argv, d->args->argc, d->command, d->why) !=
          0 ||
      places(d) != 0 || token(d) != 0 || grants(d) != 0 || child(d) != 0)
    return -1;
  if (d->os->wait(d->os, code) != 0)
    return failed(d, "the child's end cannot be known");
  return 0;
}

int war_drive(struct war_os *os, const struct war_args *args, uint32_t *code,
              char *why) {
  struct drive *d = calloc(1, sizeof *d);
  int r;
  if (!d)
    return war_fail(why, "out of memory");
  d->os = os;
  d->args = args;
  d->why = why;
  r = steps(d, code);
  os->kill(os);
  finish(d, r != 0);
  free(d);
  return r;
}

int war_revoke(struct war_os *os, const char *sid, const war_char *path,
               bool *had, char *why) {
  char *text = calloc(3, WAR_SDDL_MAX), *planned, *after;
  int r = -1;
  *had = false;
  if (!text)
    return war_fail(why, "out of memory");
  planned = text + WAR_SDDL_MAX;
  after = planned + WAR_SDDL_MAX;
  if (os->read_dacl(os, path, text, WAR_SDDL_MAX) != 0) {
    war_fail(why, "an access list cannot be read: error %lu", os->error);
  } else if (!war_sddl_has(text, sid)) {
    r = 0;
  } else {
    *had = true;
    if (war_sddl_remove(text, sid, planned, WAR_SDDL_MAX, why) != 0)
      ;
    else if (os->write_dacl(os, path, planned) != 0 ||
             os->read_dacl(os, path, after, WAR_SDDL_MAX) != 0)
      war_fail(why, "an access list cannot be set: error %lu", os->error);
    else if (war_sddl_has(after, sid) || !war_sddl_kept(text, after, sid))
      war_fail(why, "the entry for %s could not be removed alone", sid);
    else
      r = 0;
  }
  free(text);
  return r;
}
