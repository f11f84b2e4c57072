/* usage.c - from /proc/self and getrusage */
#include "usage.h"

#include "cleanup.h"
#include "clock.h"
#include "spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int64_t files_max(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > INT32_MAX)
        return INT32_MAX;
    return (int64_t)limit.rlim_cur;
}

/* The folder is one of them while it is read. When it cannot be opened there are none left. */
static int64_t files_open(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int64_t n = -1;

    if (!dir)
        return files_max();
    for (const struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static int64_t resident_bytes(void)
{
    char text[128] = "";
    long long total = 0, resident = 0;
    AB_AUTO(ab_close) int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (n <= 0 || sscanf(text, "%lld %lld", &total, &resident) != 2)
        return 0;
    return resident * sysconf(_SC_PAGESIZE);
}

/* Ticks of the monotonic clock since boot -> time of day. */
static int64_t started_utc_us(void)
{
    struct timespec boot;
    int64_t ticks = (int64_t)ab_pid_start_time(getpid());

    if (!ticks || clock_gettime(CLOCK_BOOTTIME, &boot) < 0)
        return 0;
    int64_t since_boot_us = boot.tv_sec * INT64_C(1000000) + boot.tv_nsec / 1000;
    return ab_utc_us() - since_boot_us + ticks * (INT64_C(1000000) / sysconf(_SC_CLK_TCK));
}

static int64_t us_of(struct timeval t)
{
    return t.tv_sec * INT64_C(1000000) + t.tv_usec;
}

void ab_usage(struct ab_usage *out)
{
    struct rusage used = {0};

    (void)getrusage(RUSAGE_SELF, &used);
    *out = (struct ab_usage){
        .pid = getpid(),
        .started_utc_us = started_utc_us(),
        .resident_bytes = resident_bytes(),
        .cpu_us = us_of(used.ru_utime) + us_of(used.ru_stime),
        .files = files_open(),
        .files_max = files_max(),
    };
}

size_t ab_usage_files_left(size_t spared)
{
    int64_t left = files_max() - files_open() - (int64_t)spared;
    return left > 0 ? (size_t)left : 0;
}
