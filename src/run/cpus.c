/* cpus.c - how many CPUs this process may use: its affinity, and what its control groups allow it of their time.
 *
 * A container often sees all CPUs of its machine and may use the time of two.  More threads than that would be stopped
 * together until the next period begins, and slow each other down. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run/cpus.h"

enum { PATH_LEN = 4096, LINE_LEN = 4200 };

static bool read_line(const char *path, char *line) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool any = fgets(line, LINE_LEN, f) != NULL;
    fclose(f);
    return any;
}

/* Of time used per period: how many CPUs that is, at least one; 0: there is no limit. */
static int cpus_of(double quota, double period) {
    if (!(quota > 0) || !(period > 0)) return 0;
    double n = quota / period;
    return n < 1 ? 1 : n < KILN_CPUS_MAX ? (int)(n + 0.5) : KILN_CPUS_MAX;
}

/* Of the group in that folder, by version 2 or 1 of the kernel's interface. */
static int limit_of(const char *folder) {
    char path[PATH_LEN + 32], line[LINE_LEN];
    double quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_line(path, line))
        return sscanf(line, "%lf %lf", &quota, &period) == 2 ? cpus_of(quota, period) : 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_line(path, line)) return 0;
    quota = strtod(line, NULL);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    return read_line(path, line) ? cpus_of(quota, strtod(line, NULL)) : 0;
}

/* The least limit of a group and those around it. */
static int least_limit(const char *root, char *group) {
    char folder[PATH_LEN];
    int least = 0;
    for (;;) {
        int n = snprintf(folder, sizeof folder, "%s%s", root, group);
        int limit = n > 0 && n < PATH_LEN ? limit_of(folder) : 0;
        if (limit && (!least || limit < least)) least = limit;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

/* Whether a list of names, with commas between, has cpu: not cpuset or cpuacct alone. */
static bool names_cpu(const char *list) {
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n == 3 && memcmp(list, "cpu", 3) == 0) return true;
    }
    return false;
}

/* Lines are `number:controllers:/group`. */
int kiln_cpus_by_groups(const char *groups_file, const char *root) {
    char line[LINE_LEN], below[PATH_LEN];
    int least = 0;
    FILE *f = fopen(groups_file, "re");
    while (f && fgets(line, sizeof line, f)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        bool newer = controllers[1] == 0;
        if (!newer && !names_cpu(controllers + 1)) continue;
        int n = snprintf(below, sizeof below, "%s%s", root, newer ? "" : "/cpu");
        int limit = n > 0 && n < PATH_LEN ? least_limit(below, group) : 0;
        if (limit && (!least || limit < least)) least = limit;
    }
    if (f) fclose(f);
    return least;
}

int kiln_cpus(void) {
    cpu_set_t set;
    long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n < KILN_CPUS_MAX ? (int)n : KILN_CPUS_MAX;
}

/* Files are read once: threads that come at once read the same. */
int kiln_cpus_allowed(void) {
    static atomic_int known;
    int n = atomic_load_explicit(&known, memory_order_relaxed);
    if (n) return n;
    int limit = kiln_cpus_by_groups("/proc/self/cgroup", "/sys/fs/cgroup");
    n = kiln_cpus();
    if (limit && limit < n) n = limit;
    atomic_store_explicit(&known, n, memory_order_relaxed);
    return n;
}
