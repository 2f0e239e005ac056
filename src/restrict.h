/* restrict.h: the restrictions themselves. One source for the launcher, which
 * applies them in its inner stage, and for the core's direct path, which
 * applies them between fork and exec.
 *
 * Everything here is async-signal-safe and allocates nothing. Functions
 * return 0 (or a descriptor) or a negative errno. */
#ifndef DSH_RESTRICT_H
#define DSH_RESTRICT_H

#include <stdbool.h>
#include <stdint.h>

#include "syscalls.h"

#define DSH_LL_ABI_KNOWN 7 /* newest whose rights and scopes we know */

/* The kernel's Landlock ABI, 1 and up; or -ENOSYS (not built), -EOPNOTSUPP
 * (disabled at boot), -EPERM and others (a filter refuses it). */
int dsh_ll_abi(void);

enum dsh_access {
  DSH_ACCESS_READ,   /* read and execute */
  DSH_ACCESS_WRITE,  /* everything that the kernel's ABI governs */
  DSH_ACCESS_DEVICE, /* read, write, ioctl: a node of the device list */
  DSH_ACCESS_STREAM  /* write and truncate: a file that is stdout or stderr */
};

/* A new ruleset (a descriptor, close-on-exec) that governs everything `abi`
 * offers and allows nothing; `scopes` adds signals and abstract sockets. */
int dsh_ll_ruleset(int abi, bool scopes);
/* Allows `access` on what `fd` refers to; a directory with all below it. */
int dsh_ll_allow(int ruleset, int abi, int fd, enum dsh_access access);
/* Allows the files behind 0, 1 and 2 to be reopened (/dev/stdout) with the
 * access that those descriptors have, and no more. */
int dsh_ll_allow_stdio(int ruleset, int abi);
/* Allows the device list; `pts` grants /dev/pts whole, right only where the
 * devpts instance is the run's own. */
int dsh_ll_allow_devices(int ruleset, int abi, bool pts);
int dsh_ll_restrict(int ruleset);

/* A Landlock layer that governs no file, only signals and abstract sockets
 * going out. A process in it reaches exactly its own descendants by
 * kill(-1, sig), in one step that no fork can outrun. */
int dsh_ll_scope_layer(int abi);

int dsh_no_new_privs(void);
/* Empties every capability set and locks the secure bits, so that uid 0 is
 * an ordinary user from here on. */
int dsh_drop_capabilities(void);
/* 1 when no capability is left, 0 when one is. */
int dsh_capabilities_gone(void);

/* Installs a program; with `listener` returns the listener's descriptor. */
int dsh_seccomp_install(enum dsh_program program, bool listener);

#endif
