/* The generated seccomp programs, run by a small interpreter over every call
 * number: what they answer, on any host and without installing them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "syscalls.h"
#include "uapi.h"
#include "seccomp_programs.h"

#define OUR_ARCH DSH_NR_HERE(DSH_AUDIT_X86_64, DSH_AUDIT_AARCH64)

static uint32_t word(const struct dsh_seccomp_data *d, uint32_t offset) {
  uint32_t w;
  assert_true(offset + 4 <= sizeof *d);
  memcpy(&w, (const char *)d + offset, 4);
  return w;
}

static uint32_t run(enum dsh_program p, const struct dsh_seccomp_data *d) {
  const struct dsh_bpf_prog *prog = &programs[p];
  uint32_t acc = 0;
  unsigned pc = 0;
  for (;;) {
    const struct dsh_bpf *i = &prog->filter[pc++];
    int yes = 0;
    assert_true(pc <= prog->len);
    if (i->code == DSH_BPF_RET)
      return i->k;
    if (i->code == DSH_BPF_LD) {
      acc = word(d, i->k);
      continue;
    }
    if (i->code == DSH_BPF_AND) {
      acc &= i->k;
      continue;
    }
    if (i->code == DSH_BPF_JEQ)
      yes = acc == i->k;
    else if (i->code == DSH_BPF_JGT)
      yes = acc > i->k;
    else if (i->code == DSH_BPF_JGE)
      yes = acc >= i->k;
    else if (i->code == DSH_BPF_JSET)
      yes = (acc & i->k) != 0;
    else
      fail_msg("instruction %u: code %#x", pc - 1, i->code);
    pc += yes ? i->jt : i->jf;
  }
}

static uint32_t call(enum dsh_program p, int nr, uint64_t a0, uint64_t a1,
                     uint64_t a2) {
  struct dsh_seccomp_data d = {nr, OUR_ARCH, 0, {a0, a1, a2, 0, 0, 0}};
  return run(p, &d);
}

static const uint32_t erofs = DSH_SECCOMP_ERRNO | EROFS,
                      eperm = DSH_SECCOMP_ERRNO | EPERM,
                      enosys = DSH_SECCOMP_ERRNO | ENOSYS;

/* Every number up to well past the table, against the table. */
static int class_of(int nr) {
#define IS(name, x86, arm, class)                                            \
  if (DSH_NR_HERE(x86, arm) == nr)                                           \
    return DSH_CALL_##class;
  DSH_SYSCALLS(IS)
#undef IS
  return -1;
}

static void every_number(void **state) {
  int nr, p;
  (void)state;
  for (p = 0; p < DSH_PROGRAM_COUNT; p++)
    for (nr = 0; nr < 600; nr++) {
      int c = class_of(nr), ws = p >= DSH_PROGRAM_WS_PLAIN;
      int obs = p == DSH_PROGRAM_RO_OBSERVE || p == DSH_PROGRAM_WS_OBSERVE;
      uint32_t got = call((enum dsh_program)p, nr, 0, 0, 0);
      uint32_t want = DSH_SECCOMP_ALLOW;
      if (nr > DSH_NR_KNOWN)
        want = enosys;
      else if (c == DSH_CALL_META_NEW)
        want = ws ? enosys : erofs;
      else if (c == DSH_CALL_URING || c == DSH_CALL_MOUNT ||
               c == DSH_CALL_QUEUE)
        want = eperm;
      else if (c == DSH_CALL_NAME && obs)
        want = DSH_SECCOMP_NOTIFY;
      else if (c == DSH_CALL_META)
        want = p == DSH_PROGRAM_WS_PLAIN            ? DSH_SECCOMP_ALLOW
               : obs || p == DSH_PROGRAM_WS_NOTIFY ? DSH_SECCOMP_NOTIFY
                                                    : erofs;
      if (got != want)
        fail_msg("program %d, call %d: %#x, not %#x", p, nr, got, want);
    }
}

static void foreign_abi_is_killed(void **state) {
  struct dsh_seccomp_data d = {1, 0x40000003u /* i386 */, 0, {0}};
  (void)state;
  assert_int_equal(run(DSH_PROGRAM_RO_PLAIN, &d), DSH_SECCOMP_KILL);
#if defined __x86_64__
  assert_int_equal(call(DSH_PROGRAM_WS_NOTIFY, 0x40000001, 0, 0, 0),
                   DSH_SECCOMP_KILL);
#endif
  assert_int_equal(call(DSH_PROGRAM_RO_PLAIN, -1, 0, 0, 0),
                   DSH_NR_HERE(DSH_SECCOMP_KILL, enosys));
}

static void ioctl_looks_at_the_low_half(void **state) {
  const int nr = DSH_NR_HERE(16, 29);
  const uint64_t junk = 0xdeadbeef00000000u;
  (void)state;
  assert_int_equal(call(DSH_PROGRAM_RO_PLAIN, nr, 0, DSH_IOCTL_TIOCSTI, 0),
                   eperm);
  assert_int_equal(
      call(DSH_PROGRAM_WS_PLAIN, nr, 0, junk | DSH_IOCTL_TIOCSTI, 0), eperm);
  assert_int_equal(call(DSH_PROGRAM_WS_NOTIFY, nr, 0, 0x4b49u, 0), eperm);
  assert_int_equal(call(DSH_PROGRAM_RO_PLAIN, nr, 0, junk | 0x40086602u, 0),
                   erofs);
  assert_int_equal(call(DSH_PROGRAM_WS_NOTIFY, nr, 0, 0x401c5820u, 0),
                   DSH_SECCOMP_NOTIFY);
  assert_int_equal(call(DSH_PROGRAM_WS_NOTIFY, nr, 0, 0x50009401u, 0), eperm);
  assert_int_equal(call(DSH_PROGRAM_RO_NOTIFY, nr, 0, DSH_IOCTL_TIOCGPTPEER, 0),
                   DSH_SECCOMP_NOTIFY);
  assert_int_equal(call(DSH_PROGRAM_RO_PLAIN, nr, 0, 0x5401 /* TCGETS */, 0),
                   DSH_SECCOMP_ALLOW);
}

static void limits_of_others(void **state) {
  const int nr = DSH_NR_HERE(302, 261);
  (void)state;
  assert_int_equal(call(DSH_PROGRAM_RO_PLAIN, nr, 0, 7, 1), DSH_SECCOMP_ALLOW);
  assert_int_equal(call(DSH_PROGRAM_RO_PLAIN, nr, 9, 7, 0), DSH_SECCOMP_ALLOW);
  assert_int_equal(call(DSH_PROGRAM_RO_PLAIN, nr, 9, 7, 1), eperm);
  assert_int_equal(call(DSH_PROGRAM_RO_PLAIN, nr, 9, 7, 1ull << 32), eperm);
}

static void reading_is_not_observed(void **state) {
  const int nr = DSH_NR_HERE(257, 56);
  const enum dsh_program p = DSH_PROGRAM_RO_OBSERVE;
  (void)state;
  assert_int_equal(call(p, nr, 0, 0, 0), DSH_SECCOMP_ALLOW);
  assert_int_equal(call(p, nr, 0, 0, 02000000 /* O_CLOEXEC */),
                   DSH_SECCOMP_ALLOW);
  assert_int_equal(call(p, nr, 0, 0, 01), DSH_SECCOMP_NOTIFY);
  assert_int_equal(call(p, nr, 0, 0, 01000), DSH_SECCOMP_NOTIFY);
  assert_int_equal(call(p, nr, 0, 0, 020200000), DSH_SECCOMP_NOTIFY);
  assert_int_equal(call(DSH_PROGRAM_RO_NOTIFY, nr, 0, 0, 01),
                   DSH_SECCOMP_ALLOW);
  /* What may be a terminal of its own: read and write, nothing made. */
  assert_int_equal(call(DSH_PROGRAM_RO_NOTIFY, nr, 0, 0, 02 | 0400),
                   DSH_SECCOMP_NOTIFY);
  assert_int_equal(call(DSH_PROGRAM_WS_NOTIFY, nr, 0, 0, 02 | 0100),
                   DSH_SECCOMP_ALLOW);
  assert_int_equal(call(DSH_PROGRAM_RO_PLAIN, nr, 0, 0, 02),
                   DSH_SECCOMP_ALLOW);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_number),
      cmocka_unit_test(foreign_abi_is_killed),
      cmocka_unit_test(ioctl_looks_at_the_low_half),
      cmocka_unit_test(limits_of_others),
      cmocka_unit_test(reading_is_not_observed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
