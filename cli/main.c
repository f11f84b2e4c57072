/* main.c - abies: the command line, as a table of nouns and verbs */
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "cli.h"
#include "output.h"
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command commands[] = {
    {"up", NULL, cmd_up, "start a whole centre on this machine"},
    {"down", NULL, cmd_down, "stop it"},
    {"status", NULL, cmd_status, "show its processes"},
    {"logs", NULL, cmd_logs, "show what they wrote"},
    {"login", NULL, cmd_login, "log in to a centre"},
    {"logout", NULL, cmd_logout, "forget the login"},
    {"register", NULL, cmd_register, "create a user at a centre"},
    {"whoami", NULL, cmd_whoami, "show who is logged in, and where"},
    {"token", "ls", cmd_token_ls, "list your tokens: log-ins, sites, scripts"},
    {"token", "create", cmd_token_create, "make a token for a script"},
    {"token", "rm", cmd_token_rm, "revoke tokens"},
    {"site", "init", cmd_site_init, "make a site: a folder where jobs run"},
    {"site", "start", cmd_site_start, "start its agent"},
    {"site", "stop", cmd_site_stop, "stop its agent"},
    {"site", "ls", cmd_site_ls, "list sites"},
    {"site", "backlog", cmd_site_backlog, "show what waits and runs at a site"},
    {"site", "rm", cmd_site_rm, "delete a site and its jobs"},
    {"app", "sync", cmd_app_sync, "tell the centre about the apps of this site"},
    {"app", "ls", cmd_app_ls, "list apps"},
    {"app", "rm", cmd_app_rm, "delete an app and its jobs"},
    {"job", "create", cmd_job_create, "create jobs"},
    {"job", "array", cmd_job_array, "create a job for each combination of parameters"},
    {"job", "ls", cmd_job_ls, "list jobs, or count them by state"},
    {"job", "show", cmd_job_show, "show one job and its history"},
    {"job", "explain", cmd_job_explain, "say why jobs do not run"},
    {"job", "modify", cmd_job_modify, "set the state, priority or retries of jobs"},
    {"job", "cancel", cmd_job_cancel, "cancel jobs"},
    {"job", "rm", cmd_job_rm, "delete jobs"},
    {"job", "wait", cmd_job_wait, "wait until jobs have ended"},
    {"job", "times", cmd_job_times, "show how long jobs took in each stage"},
    {"queue", "submit", cmd_queue_submit, "ask for nodes: submit a batch job"},
    {"queue", "ls", cmd_queue_ls, "list batch jobs"},
    {"queue", "rm", cmd_queue_rm, "take batch jobs out of the queue"},
    {"queue", "term", cmd_queue_term, NULL},
    {"watch", NULL, cmd_watch, "show events as they happen"},
    {"server", "up", cmd_up, NULL},
    {"server", "down", cmd_down, NULL},
};

static void print_overview(FILE *out)
{
    fprintf(
        out,
        "Usage: abies COMMAND [OPTIONS]\n\nAbies runs workflows on many machines.\n\nCommands:\n");
    for (size_t i = 0; i < AB_COUNT(commands); i++) {
        char name[40];
        if (!commands[i].text)
            continue;
        snprintf(name, sizeof(name), "%s%s%s", commands[i].noun, commands[i].verb ? " " : "",
                 commands[i].verb ? commands[i].verb : "");
        fprintf(out, "  %-16s %s\n", name, commands[i].text);
    }
    fprintf(out, "\n`abies COMMAND --help` shows the options of a command; each takes --json to "
                 "print JSON.\n"
                 "`abies --version` prints the version. Start with `abies up`.\n");
}

static void print_verbs(const char *noun)
{
    fprintf(stderr, "Usage: abies %s VERB [OPTIONS]\n\nVerbs:\n", noun);
    for (size_t i = 0; i < AB_COUNT(commands); i++)
        if (commands[i].text && commands[i].verb && strcmp(commands[i].noun, noun) == 0)
            fprintf(stderr, "  %-16s %s\n", commands[i].verb, commands[i].text);
}

static const struct command *find(const char *noun, const char *verb)
{
    for (size_t i = 0; i < AB_COUNT(commands); i++)
        if (strcmp(commands[i].noun, noun) == 0
            && (!commands[i].verb || (verb && strcmp(commands[i].verb, verb) == 0)))
            return &commands[i];
    return NULL;
}

/* A word that is no command: what may have been meant. */
static int unknown(const char *noun, const char *verb)
{
    const char *names[AB_COUNT(commands)];
    size_t n = 0;
    bool is_noun = false;
    for (size_t i = 0; i < AB_COUNT(commands); i++)
        is_noun |= strcmp(commands[i].noun, noun) == 0;
    if (is_noun && !verb) {
        print_verbs(noun);
        return 2;
    }
    for (size_t i = 0; i < AB_COUNT(commands); i++) {
        if (!is_noun)
            names[n++] = commands[i].noun;
        else if (strcmp(commands[i].noun, noun) == 0)
            names[n++] = commands[i].verb;
    }
    const char *near = ab_str_nearest(is_noun ? verb : noun, names, n);
    fprintf(stderr, "abies: there is no command `%s%s%s`", noun, is_noun ? " " : "",
            is_noun ? verb : "");
    if (near)
        fprintf(stderr, "; did you mean `%s%s%s`?\n", is_noun ? noun : "", is_noun ? " " : "",
                near);
    else
        fprintf(stderr, "; `abies help` lists them\n");
    return 2;
}

static int run(const struct command *command, int argc, char **argv)
{
    struct ab_error err = {0};
    int rc = command->run(argc, argv, &err);
    progress_end();
    if (rc < 0) {
        fprintf(stderr, "abies %s%s%s: ", command->noun, command->verb ? " " : "",
                command->verb ? command->verb : "");
        print_clean(stderr, err.text);
        fputc('\n', stderr);
        return 1;
    }
    if (fflush(stdout) != 0 && rc == 0)
        return 1;
    return rc;
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "");
    signal(SIGPIPE, SIG_DFL);
    ab_fault_init();
    const char *level = getenv("ABIES_LOG_LEVEL");
    int least = level ? ab_level_of(level) : -1;
    ab_log_open(NULL, NULL, least < 0 ? AB_WARN : (enum ab_level)least);

    argc--;
    argv++;
    bool help = argc > 0 && strcmp(argv[0], "help") == 0;
    if (help) {
        argc--;
        argv++;
    }
    if (argc == 0 || strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        print_overview(help || argc > 0 ? stdout : stderr);
        return help || argc > 0 ? 0 : 2;
    }
    if (strcmp(argv[0], "--version") == 0) {
        printf("abies %s\n", AB_VERSION);
        return 0;
    }
    const struct command *command = find(argv[0], argc > 1 ? argv[1] : NULL);
    if (!command) {
        bool asked = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
        return unknown(argv[0], asked || argc < 2 ? NULL : argv[1]);
    }
    char *only_help[] = {(char *)"--help", NULL};
    int skip = command->verb ? 2 : 1;
    return help ? run(command, 1, only_help) : run(command, argc - skip, argv + skip);
}
