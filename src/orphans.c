/* orphans.c: what lies below a keeper that does not answer. All that a run
 * starts stays below its keeper, a subreaper, so whoever kills the keeper first
 * would lose sight of it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "run.h"
#include "uapi.h"

enum { ROUNDS = 8, DEPTH_MAX = 64, SEND_SIGNAL = 424 };

static ssize_t read_proc(pid_t pid, const char *name, char *out, size_t size) {
  char path[80];
  ssize_t n;
  int fd;
  snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  n = read(fd, out, size - 1);
  close(fd);
  out[n > 0 ? n : 0] = '\0';
  return n;
}

static pid_t parent_of(pid_t pid) {
  char text[512];
  const char *end;
  int parent;
  if (read_proc(pid, "stat", text, sizeof text) <= 0 ||
      !(end = strrchr(text, ')')) || sscanf(end, ") %*c %d", &parent) != 1)
    return -1;
  return parent;
}

static int kill_children(pid_t pid, int depth);

/* By a descriptor: its number may be somebody else's by now. */
static void kill_child(pid_t child, pid_t parent, int depth) {
  int fd = (int)syscall(DSH_NR_pidfd_open, child, 0);
  if (fd < 0)
    return;
  if (parent_of(child) == parent) {
    kill_children(child, depth + 1);
    syscall(SEND_SIGNAL, fd, SIGKILL, NULL, 0);
  }
  close(fd);
}

static int kill_children(pid_t pid, int depth) {
  char name[48], text[4096], *p = text;
  int n = 0;
  snprintf(name, sizeof name, "task/%d/children", (int)pid);
  if (depth > DEPTH_MAX || read_proc(pid, name, text, sizeof text) <= 0)
    return 0;
  for (;; n++) {
    pid_t child = (pid_t)strtol(p, &p, 10);
    if (child <= 1)
      return n;
    kill_child(child, pid, depth);
  }
}

void kill_below(pid_t pid) {
  const struct timespec pause = {0, 1000000};
  int i;
  for (i = 0; i < ROUNDS && kill_children(pid, 0) > 0; i++)
    nanosleep(&pause, NULL);
}
