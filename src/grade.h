/* grade.h: from what the probe program saw to a grade. Pure. */
#ifndef DSH_GRADE_H
#define DSH_GRADE_H

#include "dsh.h"

/* `bare` and `confined` are the probe program's lines
 * (CLASS<TAB>refused|done|impossible<TAB>ERRNO<TAB>OPERATION) without and with
 * the sandbox, both in this very run; NULL for confined: nothing was tried.
 * A class is proven when its operation went through bare and was refused
 * confined. What went through confined, or has no line, is a gap. */
int dsh_grade_report(struct dsh_arena *a, enum dsh_mode mode, const char *bare,
                     const char *confined, struct dsh_grade *out);
/* Adds what is known to be open although the short form does not try it. */
void dsh_grade_open(struct dsh_grade *g, const char *effect,
                    const char *reason);
/* What lies outside the model on any host; never lowers a grade. */
void dsh_grade_limits(struct dsh_arena *a, struct dsh_grade *out);

#endif
