/* syscalls.h: our own table of the system calls that a seccomp program looks
 * at, with their numbers on each architecture (-1: it has none). Source: the
 * kernel's syscall_64.tbl and asm-generic/unistd.h of 6.18. Everything that
 * is not named here and not above DSH_NR_KNOWN is allowed; what is above it,
 * a call newer than this table, is answered ENOSYS.
 *
 * X(name, x86_64, aarch64, class) */
#ifndef DSH_SYSCALLS_H
#define DSH_SYSCALLS_H

#define DSH_NR_KNOWN 469 /* file_setattr, the last call of 6.18 */

/* A number of the architecture that this is compiled for. */
#if defined __x86_64__
#define DSH_NR_HERE(x86_64, aarch64) x86_64
#else
#define DSH_NR_HERE(x86_64, aarch64) aarch64
#endif

enum dsh_call_class {
  DSH_CALL_META,     /* changes metadata: refused, or the keeper decides */
  DSH_CALL_META_NEW, /* likewise, newer than any program needs: never runs */
  DSH_CALL_IOCTL,    /* decided by the request number */
  DSH_CALL_URING,    /* runs other calls out of seccomp's sight: refused */
  DSH_CALL_LIMITS,   /* sets limits of another process: refused */
  DSH_CALL_MOUNT,    /* a user namespace would allow it: refused */
  DSH_CALL_QUEUE,    /* names of message queues, files of the host's: refused */
  DSH_CALL_OPEN,     /* observed when its flags ask for writing; a terminal */
  DSH_CALL_NAME      /* changes a directory or a size by path: observed */
};

#define DSH_SYSCALLS(X)                                                      \
  X(chmod, 90, -1, META)                                                     \
  X(fchmod, 91, 52, META)                                                    \
  X(fchmodat, 268, 53, META)                                                 \
  X(fchmodat2, 452, 452, META)                                               \
  X(chown, 92, -1, META)                                                     \
  X(fchown, 93, 55, META)                                                    \
  X(lchown, 94, -1, META)                                                    \
  X(fchownat, 260, 54, META)                                                 \
  X(utime, 132, -1, META)                                                    \
  X(utimes, 235, -1, META)                                                   \
  X(futimesat, 261, -1, META)                                                \
  X(utimensat, 280, 88, META)                                                \
  X(setxattr, 188, 5, META)                                                  \
  X(lsetxattr, 189, 6, META)                                                 \
  X(fsetxattr, 190, 7, META)                                                 \
  X(removexattr, 197, 14, META)                                              \
  X(lremovexattr, 198, 15, META)                                             \
  X(fremovexattr, 199, 16, META)                                             \
  X(setxattrat, 463, 463, META_NEW)                                          \
  X(removexattrat, 466, 466, META_NEW)                                       \
  X(file_setattr, 469, 469, META_NEW)                                        \
  X(ioctl, 16, 29, IOCTL)                                                    \
  X(io_uring_setup, 425, 425, URING)                                         \
  X(io_uring_enter, 426, 426, URING)                                         \
  X(io_uring_register, 427, 427, URING)                                      \
  X(prlimit64, 302, 261, LIMITS)                                             \
  X(mount, 165, 40, MOUNT)                                                   \
  X(umount2, 166, 39, MOUNT)                                                 \
  X(pivot_root, 155, 41, MOUNT)                                              \
  X(open_tree, 428, 428, MOUNT)                                              \
  X(move_mount, 429, 429, MOUNT)                                             \
  X(fsopen, 430, 430, MOUNT)                                                 \
  X(fsconfig, 431, 431, MOUNT)                                               \
  X(fsmount, 432, 432, MOUNT)                                                \
  X(fspick, 433, 433, MOUNT)                                                 \
  X(mount_setattr, 442, 442, MOUNT)                                          \
  X(open_tree_attr, 467, 467, MOUNT)                                         \
  X(mq_open, 240, 180, QUEUE)                                                \
  X(mq_unlink, 241, 181, QUEUE)                                              \
  X(open, 2, -1, OPEN)                                                       \
  X(openat, 257, 56, OPEN)                                                   \
  X(openat2, 437, 437, NAME)                                                 \
  X(creat, 85, -1, NAME)                                                     \
  X(mkdir, 83, -1, NAME)                                                     \
  X(mkdirat, 258, 34, NAME)                                                  \
  X(mknod, 133, -1, NAME)                                                    \
  X(mknodat, 259, 33, NAME)                                                  \
  X(rename, 82, -1, NAME)                                                    \
  X(renameat, 264, 38, NAME)                                                 \
  X(renameat2, 316, 276, NAME)                                               \
  X(link, 86, -1, NAME)                                                      \
  X(linkat, 265, 37, NAME)                                                   \
  X(symlink, 88, -1, NAME)                                                   \
  X(symlinkat, 266, 36, NAME)                                                \
  X(unlink, 87, -1, NAME)                                                    \
  X(unlinkat, 263, 35, NAME)                                                 \
  X(rmdir, 84, -1, NAME)                                                     \
  X(truncate, 76, 45, NAME)

/* Why mounting: Landlock refuses mount(2), but an overlay made by fsopen and
 * fsconfig empties and remakes the "work" directory of any place its maker's
 * uid may write, asking nobody, long before it is attached anywhere. And a
 * message queue: Landlock lets nobody open one, but its name is made before
 * that is asked, and removed without asking. */

/* Terminal injection: refused in every program, so that a confined command
 * on a terminal needs no session of its own. */
#define DSH_IOCTL_TIOCSTI 0x5412u
#define DSH_IOCTL_TIOCLINUX 0x541cu
/* On a real console a new key map types for its owner just as well. */
#define DSH_IOCTLS_KEYMAP(X)                                                 \
  X(0x4b47u) /* KDSKBENT */                                                  \
  X(0x4b49u) /* KDSKBSENT */                                                 \
  X(0x4b4bu) /* KDSKBDIACR */                                                \
  X(0x4bfbu) /* KDSKBDIACRUC */                                              \
  X(0x4b4du) /* KDSETKEYCODE */
/* Opens a terminal's other end without a path: the keeper does it. */
#define DSH_IOCTL_TIOCGPTPEER 0x5441u

/* File flags and attributes: through a descriptor opened for reading. */
#define DSH_IOCTLS_META(X)                                                   \
  X(0x40086602u) /* FS_IOC_SETFLAGS */                                       \
  X(0x40046602u) /* FS_IOC32_SETFLAGS */                                     \
  X(0x401c5820u) /* FS_IOC_FSSETXATTR */
/* Other requests that change a file or directory opened for reading. */
#define DSH_IOCTLS_NEVER(X)                                                  \
  X(0x40087602u) /* FS_IOC_SETVERSION */                                     \
  X(0x40047602u) /* FS_IOC32_SETVERSION */                                   \
  X(0x40086604u) /* EXT4_IOC_SETVERSION_OLD */                               \
  X(0x800c6613u) /* FS_IOC_SET_ENCRYPTION_POLICY */                          \
  X(0x40806685u) /* FS_IOC_ENABLE_VERITY */                                  \
  X(0x41009432u) /* FS_IOC_SETFSLABEL */                                     \
  X(0x40047211u) /* FAT_IOCTL_SET_ATTRIBUTES */                              \
  X(0x6609u)     /* EXT4_IOC_MIGRATE */                                      \
  X(0x660cu)     /* EXT4_IOC_ALLOC_DA_BLKS */                                \
  X(0xf502u)     /* F2FS_IOC_COMMIT_ATOMIC_WRITE */                          \
  X(0x50009401u) /* BTRFS_IOC_SNAP_CREATE */                                 \
  X(0x5000940eu) /* BTRFS_IOC_SUBVOL_CREATE */                               \
  X(0x5000940fu) /* BTRFS_IOC_SNAP_DESTROY */                                \
  X(0x50009417u) /* BTRFS_IOC_SNAP_CREATE_V2 */                              \
  X(0x50009418u) /* BTRFS_IOC_SUBVOL_CREATE_V2 */                            \
  X(0x4008941au) /* BTRFS_IOC_SUBVOL_SETFLAGS */                             \
  X(0xc0c89425u) /* BTRFS_IOC_SET_RECEIVED_SUBVOL */                         \
  X(0x5000943fu) /* BTRFS_IOC_SNAP_DESTROY_V2 */

/* The programs that are generated. PLAIN needs no listener; NOTIFY has the
 * keeper decide; OBSERVE has it see every path call too. */
enum dsh_program {
  DSH_PROGRAM_RO_PLAIN,
  DSH_PROGRAM_RO_NOTIFY,
  DSH_PROGRAM_RO_OBSERVE,
  DSH_PROGRAM_WS_PLAIN, /* metadata ungoverned: the listener is taken */
  DSH_PROGRAM_WS_NOTIFY,
  DSH_PROGRAM_WS_OBSERVE,
  DSH_PROGRAM_COUNT
};

#endif
