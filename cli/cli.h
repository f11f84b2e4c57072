/* cli.h - what a command of `abies` is: a row {noun, verb, function}
 *
 * A command returns 0, -1 with err filled (printed by main, exit 1), or a positive exit status when
 * it has said all there is to say.
 */
#ifndef CLI_H
#define CLI_H

#include "base/error.h"

typedef int command_f(int argc, char **argv, struct ab_error *err);

struct command {
    const char *noun, *verb; /* "job", "ls"; verb NULL: the noun is all */
    command_f *run;
    const char *text; /* one line for the overview; NULL: an alias, not listed */
};

/* Of a command that takes options only: what else stands there was meant for something. */
int no_arguments(int argc, char **argv, struct ab_error *err);

/* cmd_up.c */
command_f cmd_up, cmd_down, cmd_status, cmd_logs;
/* cmd_login.c */
command_f cmd_login, cmd_register, cmd_whoami, cmd_logout;
/* cmd_site.c */
command_f cmd_token_ls, cmd_token_create, cmd_token_rm;
command_f cmd_site_init, cmd_site_start, cmd_site_stop, cmd_site_ls, cmd_site_rm, cmd_site_backlog;
/* cmd_app.c */
command_f cmd_app_sync, cmd_app_ls, cmd_app_rm;
/* cmd_job*.c */
command_f cmd_job_create, cmd_job_ls, cmd_job_show, cmd_job_rm, cmd_job_cancel, cmd_job_modify,
    cmd_job_wait, cmd_job_times, cmd_job_array, cmd_job_explain;
/* cmd_queue.c */
command_f cmd_queue_submit, cmd_queue_ls, cmd_queue_rm, cmd_queue_term;
/* cmd_watch.c */
command_f cmd_watch;

#endif
