/* report.c: how the launcher speaks. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch.h"

static int channel = NO_FD;

static const char *const stage_names[] = {
#define NAME(name, text) text,
    DSH_STAGES(NAME)
#undef NAME
};

void report_to(int status_fd) {
  channel = status_fd;
}

/* A host that is gone is noticed by the keeper's loop, not here. */
static void post(const void *packet, size_t n) {
  ssize_t sent;
  if (channel == NO_FD)
    return;
  do
    sent = send(channel, packet, n, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
}

static struct dsh_km head(enum dsh_km_type type, enum dsh_stage stage,
                          int errnum, int32_t value, uint32_t flags) {
  return (struct dsh_km){DSH_KEEPER_VERSION, (uint8_t)type, (uint16_t)stage,
                         errnum, value, flags};
}

void report(enum dsh_km_type type, enum dsh_stage stage, int errnum,
            int32_t value, uint32_t flags) {
  struct dsh_km km = head(type, stage, errnum, value, flags);
  post(&km, sizeof km);
}

void report_text(enum dsh_km_type type, enum dsh_stage stage, int errnum,
                 const char *text) {
  struct {
    struct dsh_km km;
    char text[1024];
  } packet;
  size_t n = strnlen(text, sizeof packet.text);
  packet.km = head(type, stage, errnum, 0, 0);
  memcpy(packet.text, text, n);
  post(&packet, sizeof packet.km + n);
}

void report_denied(const char *op, int errnum, pid_t pid, const char *comm,
                   const char *path, const char *path2, uint32_t flags) {
  static struct {
    struct dsh_km_denied denied;
    char text[DSH_KEEPER_PACKET - sizeof(struct dsh_km_denied)];
  } packet;
  size_t n = strnlen(path, sizeof packet.text / 2);
  size_t n2 = path2 ? strnlen(path2, sizeof packet.text / 2) : 0;
  memset(&packet.denied, 0, sizeof packet.denied);
  packet.denied.head =
      head(DSH_KM_DENIED, DSH_STAGE_NONE, errnum, (int32_t)pid, flags);
  memcpy(packet.denied.op, op, strnlen(op, sizeof packet.denied.op - 1));
  memcpy(packet.denied.comm, comm,
         strnlen(comm, sizeof packet.denied.comm - 1));
  packet.denied.path_len = (uint16_t)n;
  packet.denied.path2_len = (uint16_t)n2;
  memcpy(packet.text, path, n);
  if (n2)
    memcpy(packet.text + n, path2, n2);
  post(&packet, sizeof packet.denied + n + n2);
}

void report_exited(int status) {
  struct rusage use;
  struct dsh_km_exited km = {
      head(DSH_KM_EXITED, DSH_STAGE_NONE, 0, status, 0), 0, 0, 0};
  if (getrusage(RUSAGE_CHILDREN, &use) == 0) {
    km.user_us = use.ru_utime.tv_sec * 1000000LL + use.ru_utime.tv_usec;
    km.system_us = use.ru_stime.tv_sec * 1000000LL + use.ru_stime.tv_usec;
    km.max_rss_kb = use.ru_maxrss;
  }
  post(&km, sizeof km);
}

_Noreturn void fail(enum dsh_stage stage, int errnum, const char *what) {
  char line[1024];
  int n;
  if (channel != NO_FD) {
    report_text(DSH_KM_FAILED, stage, errnum, what);
    _exit(EXIT_OURS);
  }
  n = snprintf(line, sizeof line - 1, "landlock-run: %s: %s%s%s",
               stage_names[stage], what, errnum ? ": " : "",
               errnum ? strerror(errnum) : "");
  if (n > (int)sizeof line - 2)
    n = (int)sizeof line - 2;
  line[n++] = '\n';
  if (write(2, line, (size_t)n) < 0) {
    /* nobody to tell */
  }
  _exit(EXIT_OURS);
}
