/* keeper.h - the supervisor of a centre: starts everything in order, keeps it running, stops it in
 * order */
#ifndef CENTRE_KEEPER_H
#define CENTRE_KEEPER_H

#include "centre.h"
#include "cluster.h"
#include "known.h"

/* 1: we hold run/lock and *fd must stay open while we are the supervisor (a child inherits it by
 * fork). 0: a supervisor runs. -1: error. */
int keeper_lock(const struct centre *self, int *fd, struct ab_error *err);

/* Runs until SIGTERM or SIGINT, then stops everything; exit status of the process. Start-up is told
 * to `report_fd` (-1: nobody) in lines: "step TEXT", "error TEXT", at last "started". */
int keeper_run(const struct centre *self, const struct cluster *cluster, const struct known *known,
               int report_fd);

/* SIGTERM to the running supervisor, and wait until it has ended; then whatever is left is ended
 * too. 1 there was something to stop, 0 nothing ran, -1 error. */
int keeper_stop(const struct centre *self, struct ab_error *err);

#endif
