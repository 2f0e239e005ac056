/* windows_acl_run_files.h: the calls of struct war_os that
 * windows_acl_run_files.c implements. */
#ifndef WINDOWS_ACL_RUN_FILES_H
#define WINDOWS_ACL_RUN_FILES_H

#include "windows_acl_run.h"

int win_canonical(struct war_os *os, const war_char *path, war_char *out);
int win_make_directory(struct war_os *os, const war_char *path, bool *made);
int win_remove_tree(struct war_os *os, const war_char *path);
int win_read_dacl(struct war_os *os, const war_char *path, char *sddl,
                  size_t cap);
int win_write_dacl(struct war_os *os, const war_char *path, const char *sddl);
int win_lock(struct war_os *os, const char *sid, const war_char *path,
             enum war_lock which, bool alone, bool wait);
int win_unlock(struct war_os *os, const char *sid, enum war_lock which);

#endif
