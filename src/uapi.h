/* uapi.h: the kernel's numbers that we use and that a libc's headers may lack
 * or know in an older version. Facts of the Linux UAPI headers (landlock.h,
 * seccomp.h, filter.h, audit.h, openat2.h, stat.h, capability.h). Used by the
 * static launcher, which has no kernel headers, and by the core. */
#ifndef DSH_UAPI_H
#define DSH_UAPI_H

#include <stdint.h>

/* System calls numbered alike on every architecture since 5.1. */
enum {
  DSH_NR_pidfd_open = 434,
  DSH_NR_close_range = 436,
  DSH_NR_openat2 = 437,
  DSH_NR_pidfd_getfd = 438,
  DSH_NR_landlock_create_ruleset = 444,
  DSH_NR_landlock_add_rule = 445,
  DSH_NR_landlock_restrict_self = 446,
  DSH_NR_fchmodat2 = 452
};

/* --- Landlock ------------------------------------------------------------ */

#define DSH_LL_CREATE_VERSION 1u
#define DSH_LL_RULE_PATH_BENEATH 1

enum {
  DSH_LL_EXECUTE = 1 << 0,
  DSH_LL_WRITE_FILE = 1 << 1,
  DSH_LL_READ_FILE = 1 << 2,
  DSH_LL_READ_DIR = 1 << 3,
  DSH_LL_REMOVE_DIR = 1 << 4,
  DSH_LL_REMOVE_FILE = 1 << 5,
  DSH_LL_MAKE_CHAR = 1 << 6,
  DSH_LL_MAKE_DIR = 1 << 7,
  DSH_LL_MAKE_REG = 1 << 8,
  DSH_LL_MAKE_SOCK = 1 << 9,
  DSH_LL_MAKE_FIFO = 1 << 10,
  DSH_LL_MAKE_BLOCK = 1 << 11,
  DSH_LL_MAKE_SYM = 1 << 12,
  DSH_LL_REFER = 1 << 13,     /* ABI 2 */
  DSH_LL_TRUNCATE = 1 << 14,  /* ABI 3 */
  DSH_LL_IOCTL_DEV = 1 << 15  /* ABI 5 */
};

enum { DSH_LL_SCOPE_ABSTRACT = 1 << 0, DSH_LL_SCOPE_SIGNAL = 1 << 1 }; /* 6 */

struct dsh_ll_attr {
  uint64_t fs, net, scoped; /* net since ABI 4, scoped since ABI 6 */
};

struct dsh_ll_path {
  uint64_t access;
  int32_t fd;
} __attribute__((packed));

/* --- seccomp and its BPF ------------------------------------------------- */

struct dsh_bpf {
  uint16_t code;
  uint8_t jt, jf;
  uint32_t k;
};

struct dsh_bpf_prog {
  uint16_t len;
  const struct dsh_bpf *filter;
};

enum { /* instructions we use */
  DSH_BPF_LD = 0x20,  /* BPF_LD | BPF_W | BPF_ABS */
  DSH_BPF_JA = 0x05,  /* BPF_JMP | BPF_JA */
  DSH_BPF_JEQ = 0x15, /* | BPF_K */
  DSH_BPF_JGT = 0x25,
  DSH_BPF_JGE = 0x35,
  DSH_BPF_JSET = 0x45,
  DSH_BPF_AND = 0x54, /* BPF_ALU | BPF_AND | BPF_K */
  DSH_BPF_RET = 0x06
};

#define DSH_SECCOMP_SET_MODE_FILTER 1u
#define DSH_SECCOMP_FLAG_NEW_LISTENER (1u << 3)
#define DSH_SECCOMP_FLAG_WAIT_KILLABLE (1u << 5)
#define DSH_SECCOMP_KILL 0x80000000u
#define DSH_SECCOMP_ERRNO 0x00050000u
#define DSH_SECCOMP_NOTIFY 0x7fc00000u
#define DSH_SECCOMP_ALLOW 0x7fff0000u

#define DSH_AUDIT_X86_64 0xc000003eu
#define DSH_AUDIT_AARCH64 0xc00000b7u

struct dsh_seccomp_data {
  int32_t nr;
  uint32_t arch;
  uint64_t ip;
  uint64_t args[6];
};

struct dsh_notif {
  uint64_t id;
  uint32_t pid;
  uint32_t flags;
  struct dsh_seccomp_data data;
};

struct dsh_notif_resp {
  uint64_t id;
  int64_t val;
  int32_t error; /* negative errno */
  uint32_t flags;
};

struct dsh_notif_addfd {
  uint64_t id;
  uint32_t flags, srcfd, newfd, newfd_flags;
};

#define DSH_NOTIF_CONTINUE 1u
#define DSH_ADDFD_SEND 2u
#define DSH_NOTIF_RECV ((int)0xc0502100u)
#define DSH_NOTIF_SEND ((int)0xc0182101u)
#define DSH_NOTIF_ID_VALID ((int)0x40082102u)
#define DSH_NOTIF_ADDFD ((int)0x40182103u)
#define DSH_NOTIF_SET_FLAGS ((int)0x40082104u)
#define DSH_NOTIF_SYNC_WAKE_UP 1u

/* --- openat2 ------------------------------------------------------------- */

struct dsh_open_how {
  uint64_t flags, mode, resolve;
};

enum {
  DSH_RESOLVE_NO_XDEV = 1,
  DSH_RESOLVE_NO_MAGICLINKS = 2,
  DSH_RESOLVE_NO_SYMLINKS = 4,
  DSH_RESOLVE_BENEATH = 8
};

/* --- statx --------------------------------------------------------------- */

struct dsh_statx {
  uint32_t mask, blksize;
  uint64_t attributes;
  uint32_t nlink, uid, gid;
  uint16_t mode, pad;
  uint64_t ino, size, blocks, attributes_mask;
  uint64_t rest[24];
};

#define DSH_STATX_MOUNT_ROOT 0x2000u /* since 5.8 */

/* --- capabilities -------------------------------------------------------- */

struct dsh_cap_header {
  uint32_t version;
  int pid;
};

struct dsh_cap_data {
  uint32_t effective, permitted, inheritable;
};

#define DSH_CAP_VERSION_3 0x20080522u
#define DSH_CAP_SETPCAP 8
/* NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each with its lock. */
#define DSH_SECUREBITS 0xcfu

#endif
