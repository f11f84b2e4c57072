/* fault.c - named places where a test can make things fail */
#include "fault.h"

#ifdef AB_FAULTS
#include "log.h"
#include "str.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAULT_MAX 16

enum action {
    FAIL,
    KILL,
    STOP
};

static struct fault {
    char name[80];
    enum action action;
    atomic_long left; /* reached this many times more until it happens */
} faults[FAULT_MAX];
static atomic_int n_faults;

static atomic_int armed_left;
static atomic_bool fired;

void ab_fault_arm(int nth)
{
    atomic_store(&fired, false);
    atomic_store(&armed_left, nth);
}

bool ab_fault_fired(void)
{
    return atomic_load(&fired);
}

static bool armed_here(void)
{
    if (atomic_load_explicit(&armed_left, memory_order_relaxed) <= 0)
        return false;
    if (atomic_fetch_sub(&armed_left, 1) != 1)
        return false;
    atomic_store(&fired, true);
    return true;
}

bool ab_fault(const char *name)
{
    if (armed_here())
        return true;
    int n = atomic_load_explicit(&n_faults, memory_order_acquire);
    for (int i = 0; i < n; i++) {
        struct fault *f = &faults[i];
        if (strcmp(f->name, name) != 0 || atomic_fetch_sub(&f->left, 1) != 1)
            continue;
        ab_log(AB_WARN, "fault.fired", AB_KV("name", name));
        if (f->action == KILL)
            kill(getpid(), SIGKILL);
        else if (f->action == STOP)
            raise(SIGSTOP); /* one that is sent to the process another thread may take */
        else
            return true;
    }
    return false;
}

/* name:action:nth; action and nth may be left out (fail, 1) */
static int parse_one(const char *text, size_t len, struct fault *f)
{
    char copy[128], *rest = copy;
    if (len >= sizeof(copy))
        return -1;
    memcpy(copy, text, len);
    copy[len] = '\0';
    const char *name = strsep(&rest, ":"), *action = strsep(&rest, ":"), *nth = rest;
    int64_t n = 1;
    if (strlen(name) == 0 || strlen(name) >= sizeof(f->name))
        return -1;
    if (!action || strcmp(action, "fail") == 0)
        f->action = FAIL;
    else if (strcmp(action, "kill") == 0)
        f->action = KILL;
    else if (strcmp(action, "stop") == 0)
        f->action = STOP;
    else
        return -1;
    if (nth && ab_parse_i64(nth, strlen(nth), 1, 1 << 30, &n) < 0)
        return -1;
    snprintf(f->name, sizeof(f->name), "%s", name);
    atomic_store(&f->left, (long)n);
    return 0;
}

void ab_fault_init(void)
{
    const char *text = getenv("ABIES_FAULT");
    int n = 0;
    while (text && *text) {
        size_t len = strcspn(text, ",");
        if (n == FAULT_MAX || parse_one(text, len, &faults[n]) < 0) {
            /* a test that believes in a fault which is not there would pass for nothing */
            fprintf(stderr,
                    "ABIES_FAULT: bad entry `%.*s`; write name:fail|kill|stop:nth, at most %d\n",
                    (int)len, text, FAULT_MAX);
            exit(2);
        }
        n++;
        text += len + (text[len] == ',');
    }
    atomic_store_explicit(&n_faults, n, memory_order_release);
}
#else
typedef int ab_fault_is_left_out;
#endif
