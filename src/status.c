/* status.c: what the keeper says, and what follows from it. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run.h"

static const char *const stage_names[] = {
#define NAME(name, text) text,
    DSH_STAGES(NAME)
#undef NAME
};

static const char *text_of(struct dsh_run *r, const void *packet, size_t n,
                           size_t from) {
  return dsh_strndup(&r->arena, (const char *)packet + from, n - from);
}

static void heard_denied(struct dsh_run *r, const void *packet, size_t n) {
  struct dsh_km_denied d;
  struct dsh_denial *out;
  const char *paths = (const char *)packet + sizeof d;
  if (n < sizeof d)
    return;
  memcpy(&d, packet, sizeof d);
  if ((size_t)d.path_len + d.path2_len > n - sizeof d)
    return;
  if (r->n_denials == DENIALS_MAX) {
    r->outcome.denials_dropped++;
    return;
  }
  out = &r->denial[r->n_denials];
  d.op[sizeof d.op - 1] = d.comm[sizeof d.comm - 1] = '\0';
  *out = (struct dsh_denial){
      .op = dsh_strdup(&r->denial_arena, d.op),
      .path = dsh_strndup(&r->denial_arena, paths, d.path_len),
      .path2 = d.path2_len ? dsh_strndup(&r->denial_arena,
                                         paths + d.path_len, d.path2_len)
                           : NULL,
      .errnum = d.head.errnum,
      .pid = d.head.value,
      .comm = dsh_strdup(&r->denial_arena, d.comm),
      .confirmed = (d.head.flags & DSH_DENIED_CONFIRMED) != 0,
      .also_permissions = (d.head.flags & DSH_DENIED_ALSO_PERMISSIONS) != 0,
  };
  if (out->op && out->path && out->comm)
    r->n_denials++;
}

static void heard_failed(struct dsh_run *r, const struct dsh_km *km,
                         const void *packet, size_t n) {
  if (r->heard_failed || r->heard_started)
    return;
  r->heard_failed = true;
  r->last_stage = km->stage < DSH_STAGE_COUNT ? (enum dsh_stage)km->stage
                                              : DSH_STAGE_LAUNCHER;
  r->outcome.errnum = km->errnum;
  r->outcome.detail = text_of(r, packet, n, sizeof *km);
}

static void heard_exited(struct dsh_run *r, const void *packet, size_t n) {
  struct dsh_km_exited e;
  if (n < sizeof e || !r->heard_started)
    return;
  memcpy(&e, packet, sizeof e);
  r->heard_exited = true;
  r->command_status = e.head.value;
  r->outcome.user_us = e.user_us;
  r->outcome.system_us = e.system_us;
  r->outcome.max_rss_kb = e.max_rss_kb;
}

void status_packet(struct dsh_run *r, const void *packet, size_t n) {
  struct dsh_km km;
  if (n < sizeof km)
    return;
  memcpy(&km, packet, sizeof km);
  if (km.version != DSH_KEEPER_VERSION)
    return; /* never `ready` then: a failed runner */
  switch (km.type) {
  case DSH_KM_HELLO:
    r->heard_hello = true;
    r->last_stage = DSH_STAGE_RUNNER;
    break;
  case DSH_KM_FAILED:
    heard_failed(r, &km, packet, n);
    break;
  case DSH_KM_READY:
    r->heard_ready = true;
    break;
  case DSH_KM_STARTED:
    r->heard_started = r->heard_ready;
    r->command_pid = km.value;
    break;
  case DSH_KM_STOPPED:
    r->stopped = true;
    break;
  case DSH_KM_CONTINUED:
    r->stopped = false;
    break;
  case DSH_KM_DENIED:
    heard_denied(r, packet, n);
    break;
  case DSH_KM_NOTICE:
    if (km.stage == DSH_STAGE_LISTENER) {
      r->outcome.listener_errnum = km.errnum ? km.errnum : ENOSYS;
      r->outcome.denials_known = false;
    }
    break;
  case DSH_KM_EXITED:
    heard_exited(r, packet, n);
    break;
  default:
    break; /* GONE, and words of a newer keeper */
  }
}

static void take_status(struct dsh_outcome *o, int status) {
  o->exited = WIFEXITED(status);
  if (o->exited)
    o->exit_code = WEXITSTATUS(status);
  else if (WIFSIGNALED(status))
    o->signal = WTERMSIG(status);
}

/* Stages that are about the command or the call, not about the sandbox. */
static bool is_callers(enum dsh_stage stage) {
  return stage == DSH_STAGE_EXEC || stage == DSH_STAGE_CWD ||
         stage == DSH_STAGE_STDIO;
}

/* The keeper was killed: its command is nobody's child any more. Under a
 * runner the pid namespace died with the keeper. */
static void kill_orphans(const struct dsh_run *r) {
  if (!r->apart && r->command_pid > 1 &&
      getpgid(r->command_pid) == r->command_pid)
    kill(-r->command_pid, SIGKILL);
}

static void conclude_started(struct dsh_run *r) {
  struct dsh_outcome *o = &r->outcome;
  o->started = r->foreign ? DSH_STARTED_UNKNOWN : DSH_STARTED_YES;
  o->keeper = r->heard_exited;
  if (r->heard_exited)
    take_status(o, r->command_status);
  else if (r->no_keeper && !r->status_lost)
    take_status(o, r->wait_status);
  else
    o->status_lost = true;
  if (o->status_lost)
    kill_orphans(r);
}

/* What is said of a conversation that broke off, or ended with FAILED. */
static void conclude_failed(struct dsh_run *r) {
  struct dsh_outcome *o = &r->outcome;
  bool ours = o->timed_out || o->aborted; /* we ended it on its way */
  o->started = DSH_STARTED_NO;
  o->keeper = r->heard_failed;
  if (!r->heard_failed && !r->heard_hello)
    r->last_stage = DSH_STAGE_LAUNCHER;
  if (!r->heard_failed && r->heard_ready) {
    r->last_stage = DSH_STAGE_EXEC; /* nobody can say whether it ran */
    o->started = DSH_STARTED_UNKNOWN;
    o->status_lost = true;
  }
  if (r->foreign && r->heard_failed && r->last_stage == DSH_STAGE_EXEC)
    r->last_stage = DSH_STAGE_RUNNER_EXEC; /* what it kept is the runner */
  o->stage = stage_names[r->last_stage];
  o->runner_failed =
      !ours && (!r->heard_failed || !is_callers(r->last_stage));
}

static void conclude_keeper(struct dsh_run *r) {
  /* Without a keeper the launcher becomes the command: `ready` and then the
   * close-on-exec end closing is execve having succeeded. */
  if (r->no_keeper)
    r->heard_started = r->heard_ready;
  if (r->heard_started && !r->heard_failed)
    conclude_started(r);
  else
    conclude_failed(r);
}

void status_conclude(struct dsh_run *r) {
  struct dsh_outcome *o = &r->outcome;
  stream_finish(&r->out, &r->arena, &o->out);
  stream_finish(&r->err, &r->arena, &o->err);
  o->denial = r->denial;
  o->n_denials = r->n_denials;
  if (r->has_keeper)
    conclude_keeper(r);
  else if (r->status_lost)
    o->status_lost = true; /* somebody else took it from the kernel */
  else if (o->started != DSH_STARTED_NO)
    take_status(o, r->wait_status);
}
