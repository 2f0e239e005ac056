/* gen_seccomp.c: writes the seccomp programs as C arrays, at build time.
 *
 * usage: gen_seccomp > seccomp_programs.h
 *
 * From the table in src/syscalls.h it makes, per architecture and program, a
 * balanced search tree over system call numbers. Shape of a program:
 *
 *   load arch; not ours: kill
 *   load nr;   x32 bit: kill; newer than the table: ENOSYS
 *   binary search over the special numbers; no match: allow
 *   leaves: return, or look at an argument's low half (the kernel uses only
 *   32 bits of an ioctl request and of open's flags) and return
 *
 * Every jump of the tree goes by "ja", whose offset has 32 bits, so a program
 * may be long; the conditional ones never go further than one instruction. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/syscalls.h"
#include "../src/uapi.h"

enum { MAX_CODE = 1024, MAX_CALLS = 64 };
/* Bits of open's flags that ask for writing or creating; the same on both
 * architectures: O_WRONLY O_RDWR O_CREAT O_TRUNC __O_TMPFILE. */
enum { OPEN_WRITES = 01 | 02 | 0100 | 01000 | 020000000 };

struct call {
  int nr;
  enum dsh_call_class class;
  int flags_arg; /* of open and openat */
};

struct code {
  struct dsh_bpf at[MAX_CODE];
  unsigned n;
};

static unsigned emit(struct code *c, unsigned op, unsigned jt, unsigned jf,
                     uint32_t k) {
  if (c->n == MAX_CODE) {
    fputs("gen_seccomp: program too long\n", stderr);
    exit(1);
  }
  c->at[c->n] = (struct dsh_bpf){(uint16_t)op, (uint8_t)jt, (uint8_t)jf, k};
  return c->n++;
}

static void ret(struct code *c, uint32_t action) {
  emit(c, DSH_BPF_RET, 0, 0, action);
}

static uint32_t refuse(unsigned errnum) {
  return DSH_SECCOMP_ERRNO | errnum;
}

static int read_only(enum dsh_program p) {
  return p <= DSH_PROGRAM_RO_OBSERVE;
}

static int observed(enum dsh_program p) {
  return p == DSH_PROGRAM_RO_OBSERVE || p == DSH_PROGRAM_WS_OBSERVE;
}

/* What a metadata change is answered. */
static uint32_t meta(enum dsh_program p) {
  switch (p) {
  case DSH_PROGRAM_RO_PLAIN:
  case DSH_PROGRAM_RO_NOTIFY:
    return refuse(EROFS);
  case DSH_PROGRAM_WS_PLAIN:
    return DSH_SECCOMP_ALLOW;
  case DSH_PROGRAM_RO_OBSERVE:
  case DSH_PROGRAM_WS_NOTIFY:
  case DSH_PROGRAM_WS_OBSERVE:
    return DSH_SECCOMP_NOTIFY;
  case DSH_PROGRAM_COUNT:
    break;
  }
  return DSH_SECCOMP_KILL;
}

static int listens(enum dsh_program p) {
  return p != DSH_PROGRAM_RO_PLAIN && p != DSH_PROGRAM_WS_PLAIN;
}

static void load_arg(struct code *c, int n) {
  emit(c, DSH_BPF_LD, 0, 0, (uint32_t)(16 + 8 * n)); /* low half first */
}

static void when_equal(struct code *c, uint32_t k, uint32_t action) {
  emit(c, DSH_BPF_JEQ, 0, 1, k);
  ret(c, action);
}

static void leaf_ioctl(struct code *c, enum dsh_program p) {
  load_arg(c, 1);
  when_equal(c, DSH_IOCTL_TIOCSTI, refuse(EPERM));
  when_equal(c, DSH_IOCTL_TIOCLINUX, refuse(EPERM));
  if (listens(p))
    when_equal(c, DSH_IOCTL_TIOCGPTPEER, DSH_SECCOMP_NOTIFY);
#define META(k) when_equal(c, k, meta(p));
  DSH_IOCTLS_META(META)
#undef META
#define NEVER(k) when_equal(c, k, refuse(read_only(p) ? EROFS : EPERM));
  DSH_IOCTLS_NEVER(NEVER)
#undef NEVER
  ret(c, DSH_SECCOMP_ALLOW);
}

static void leaf(struct code *c, enum dsh_program p, const struct call *call) {
  switch (call->class) {
  case DSH_CALL_META:
    ret(c, meta(p));
    return;
  case DSH_CALL_META_NEW:
    ret(c, refuse(read_only(p) ? EROFS : ENOSYS));
    return;
  case DSH_CALL_URING:
    ret(c, refuse(EPERM));
    return;
  case DSH_CALL_IOCTL:
    leaf_ioctl(c, p);
    return;
  case DSH_CALL_LIMITS: /* somebody else's (pid not 0), and setting */
    load_arg(c, 0);
    when_equal(c, 0, DSH_SECCOMP_ALLOW);
    emit(c, DSH_BPF_LD, 0, 0, 16 + 8 * 2);
    emit(c, DSH_BPF_JEQ, 0, 3, 0);
    emit(c, DSH_BPF_LD, 0, 0, 16 + 8 * 2 + 4);
    when_equal(c, 0, DSH_SECCOMP_ALLOW);
    ret(c, refuse(EPERM));
    return;
  case DSH_CALL_OPEN:
    if (observed(p)) {
      load_arg(c, call->flags_arg);
      emit(c, DSH_BPF_JSET, 0, 1, OPEN_WRITES);
      ret(c, DSH_SECCOMP_NOTIFY);
    }
    ret(c, DSH_SECCOMP_ALLOW);
    return;
  case DSH_CALL_NAME:
    ret(c, observed(p) ? DSH_SECCOMP_NOTIFY : DSH_SECCOMP_ALLOW);
    return;
  }
  ret(c, DSH_SECCOMP_KILL);
}

/* Calls [lo, hi), sorted by number; the accumulator holds the number. */
static void tree(struct code *c, enum dsh_program p, const struct call *calls,
                 int lo, int hi) {
  unsigned jump;
  int mid = lo + (hi - lo) / 2;
  if (hi - lo == 1) {
    emit(c, DSH_BPF_JEQ, 1, 0, (uint32_t)calls[lo].nr);
    ret(c, DSH_SECCOMP_ALLOW);
    leaf(c, p, &calls[lo]);
    return;
  }
  emit(c, DSH_BPF_JGE, 0, 1, (uint32_t)calls[mid].nr);
  jump = emit(c, DSH_BPF_JA, 0, 0, 0);
  tree(c, p, calls, lo, mid);
  c->at[jump].k = c->n - jump - 1;
  tree(c, p, calls, mid, hi);
}

static int by_number(const void *a, const void *b) {
  return ((const struct call *)a)->nr - ((const struct call *)b)->nr;
}

/* The calls that this program does more with than allow. */
static int select_calls(struct call *calls, int arm, enum dsh_program p) {
  int n = 0;
#define ADD(name, x86, aarch, cls)                                           \
  if ((arm ? (aarch) : (x86)) >= 0 &&                                        \
      (observed(p) ||                                                        \
       (DSH_CALL_##cls != DSH_CALL_OPEN && DSH_CALL_##cls != DSH_CALL_NAME)))  \
    calls[n++] = (struct call){arm ? (aarch) : (x86), DSH_CALL_##cls,        \
                               strcmp(#name, "open") == 0 ? 1 : 2};
  DSH_SYSCALLS(ADD)
#undef ADD
  qsort(calls, (size_t)n, sizeof *calls, by_number);
  return n;
}

static void program(struct code *c, int arm, enum dsh_program p) {
  struct call calls[MAX_CALLS];
  int n = select_calls(calls, arm, p);
  c->n = 0;
  emit(c, DSH_BPF_LD, 0, 0, 4); /* arch */
  emit(c, DSH_BPF_JEQ, 1, 0, arm ? DSH_AUDIT_AARCH64 : DSH_AUDIT_X86_64);
  ret(c, DSH_SECCOMP_KILL);
  emit(c, DSH_BPF_LD, 0, 0, 0); /* nr */
  if (!arm) {
    emit(c, DSH_BPF_JSET, 0, 1, 0x40000000u); /* x32 */
    ret(c, DSH_SECCOMP_KILL);
  }
  emit(c, DSH_BPF_JGT, 0, 1, DSH_NR_KNOWN);
  ret(c, refuse(ENOSYS));
  tree(c, p, calls, 0, n);
}

static void print(const struct code *c, int p) {
  unsigned i;
  printf("static const struct dsh_bpf program_%d[] = {", p);
  for (i = 0; i < c->n; i++)
    printf("%s{0x%02x, %u, %u, 0x%08x},", i % 3 ? " " : "\n  ",
           (unsigned)c->at[i].code, (unsigned)c->at[i].jt,
           (unsigned)c->at[i].jf, (unsigned)c->at[i].k);
  puts("\n};");
}

int main(void) {
  static struct code c;
  int arm, p;
  puts("/* Generated by gen_seccomp from src/syscalls.h. */");
  for (arm = 0; arm <= 1; arm++) {
    puts(arm ? "#elif defined __aarch64__" : "#if defined __x86_64__");
    for (p = 0; p < DSH_PROGRAM_COUNT; p++) {
      program(&c, arm, (enum dsh_program)p);
      print(&c, p);
    }
  }
  puts("#else\n#error \"no system call numbers for this architecture\"\n"
       "#endif");
  puts("static const struct dsh_bpf_prog programs[] = {");
  for (p = 0; p < DSH_PROGRAM_COUNT; p++)
    printf("  {sizeof program_%d / sizeof *program_%d, program_%d},\n", p, p,
           p);
  puts("};");
  return 0;
}
