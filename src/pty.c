/* pty.c: a new terminal for a run. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "run.h"

enum { ROWS = 24, COLS = 80 };

int raise_fd(int fd, int above) {
  int e, up = fcntl(fd, F_DUPFD_CLOEXEC, above);
  e = errno;
  close(fd);
  errno = e;
  return up;
}

int pty_open(unsigned short rows, unsigned short cols, int above, int *master,
             int slave[3]) {
  struct winsize size = {rows ? rows : ROWS, cols ? cols : COLS, 0, 0};
  char name[64];
  int i, fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 || (fd = raise_fd(fd, above)) < 0)
    return -1;
  *master = fd;
  if (grantpt(fd) != 0 || unlockpt(fd) != 0 ||
      ptsname_r(fd, name, sizeof name) != 0)
    return -1;
  fd = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 || (slave[0] = raise_fd(fd, above)) < 0)
    return -1;
  ioctl(slave[0], TIOCSWINSZ, &size);
  fcntl(*master, F_SETFL, O_RDWR | O_NONBLOCK);
  for (i = 1; i < 3; i++)
    if ((slave[i] = fcntl(slave[0], F_DUPFD_CLOEXEC, above)) < 0)
      return -1;
  return 0;
}
