/* doctor.h - what `abies-admin doctor` looks at; each part adds its findings to the report */
#ifndef AB_DOCTOR_H
#define AB_DOCTOR_H

#include "admin.h"
#include "base/arena.h"

enum {
    DOCTOR_SERVICES = 5 /* gateway, and admin_services */
};

struct doctor {
    struct admin *admin;
    struct report *report;
    ab_arena_t *arena;
    /* Of the centre's settings, where a home has them; else the defaults. */
    int64_t session_ttl_ms, request_keep_ms, event_keep_ms, workers;
    int64_t min_free;            /* bytes that a disk must have left */
    int wanted[DOCTOR_SERVICES]; /* replicas by service; 0: not known */
};

extern const char *const doctor_services[DOCTOR_SERVICES];

/* What centre.yml says. */
void doctor_read_home(struct doctor *self);

void doctor_files(struct doctor *self);        /* secrets, CURVE keys, folders, disks */
void doctor_certificates(struct doctor *self); /* --tls-dir */
void doctor_database(struct doctor *self);
void doctor_running(struct doctor *self); /* the processes of a home: run/centre.json */

#endif
