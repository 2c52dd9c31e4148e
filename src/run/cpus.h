/* cpus.h - how many CPUs this process may use. */
#ifndef KILN_CPUS_H
#define KILN_CPUS_H
#include "base/base.h"

enum { KILN_CPUS_MAX = 256 };

int kiln_cpus(void);         /* of its affinity */
int kiln_cpus_allowed(void); /* and of what its control groups allow, which takes reading files at first */

/* What the control groups of a process allow: groups_file lists them, root is where their folders are.  0: no limit. */
int kiln_cpus_by_groups(const char *groups_file, const char *root);
#endif
