/* members.c - the processes of a centre */
#include "members.h"

#include <ctype.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STOP_POSTGRES_MS 20000
#define STOP_GATEWAY_MS 15000 /* it finishes what is under way for ten seconds */
#define STOP_SERVICE_MS 10000

const char *member_run_file(const struct centre *self, const char *name)
{
    return ab_printf(self->arena, "%s/run/%s.json", self->home, name);
}

const char *member_role(const struct centre *self, const char *name)
{
    return ab_strndup(self->arena, name, strcspn(name, "."));
}

struct environment {
    const struct centre *centre;
    const char **v;
    size_t n, cap;
};

static void env_add(struct environment *env, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void env_add(struct environment *env, const char *name, const char *format, ...)
{
    char value[4500];
    va_list ap;
    va_start(ap, format);
    vsnprintf(value, sizeof(value), format, ap);
    va_end(ap);
    if (env->n + 2 > env->cap) {
        size_t cap = env->cap ? 2 * env->cap : 16;
        const char **v = ab_alloc(env->centre->arena, cap, sizeof(*v));
        if (env->n > 0)
            memcpy(v, env->v, env->n * sizeof(*v));
        env->v = v;
        env->cap = cap;
    }
    char *text = ab_printf(env->centre->arena, "ABIES_%s=%s", name, value);
    for (char *p = text; *p != '='; p++)
        *p = (char)toupper((unsigned char)*p);
    env->v[env->n++] = text;
}

static const char *bus_addresses(const struct centre *self)
{
    const char *list = "";
    for (int g = 0; g < self->gateways; g++)
        list = ab_printf(self->arena, "%s%stcp://127.0.0.1:%d", list, g ? "," : "",
                         self->bus_ports[g]);
    return list;
}

static void env_gateway(struct environment *env, int number)
{
    const struct centre *c = env->centre;
    bool v6 = strchr(c->host, ':') != NULL;
    env_add(env, "listen", v6 ? "[%s]:%d" : "%s:%d", c->host, c->port);
    env_add(env, "tls_cert", "%s/tls/server.pem", c->home);
    env_add(env, "tls_key", "%s/tls/server.key", c->home);
    env_add(env, "bus_listen", "tcp://127.0.0.1:%d", c->bus_ports[number]);
    env_add(env, "hint_listen", "tcp://127.0.0.1:%d", c->bus_ports[number] + 1);
}

static void env_service(struct environment *env, const char *role)
{
    const struct centre *c = env->centre;
    env_add(env, "gateways", "%s", bus_addresses(c));
    env_add(env, "database_url_file", "%s/secrets/url-abies_%s", c->home, role);
    if (strcmp(role, "auth") == 0)
        env_add(env, "seal_key", "%s/secrets/seal.key", c->home);
}

static struct ab_ward member(const struct centre *self, const struct known *known, int program,
                             int number)
{
    struct environment env = {.centre = self};
    const char *role = known_role(program);
    const char *name = ab_printf(self->arena, "%s.%d", role, number);
    const char **argv = ab_alloc(self->arena, 2, sizeof(*argv));
    argv[0] = known->path[program];
    for (size_t i = 0; i < self->n_settings; i++)
        if (known->of[program][i])
            env_add(&env, self->settings[i].name, "%s", self->settings[i].value);
    env_add(&env, "config", "%s", ""); /* a file of the caller's is none of ours */
    env_add(&env, "curve_dir", "%s/curve", self->home);
    env_add(&env, "health_listen", "127.0.0.1:0");
    env_add(&env, "run_file", "%s", member_run_file(self, name));
    if (program == 0)
        env_gateway(&env, number);
    else
        env_service(&env, role);
    return (struct ab_ward){
        .name = name,
        .argv = argv,
        .env = env.v,
        .cwd = "/",
        .log_path = ab_printf(self->arena, "%s/log/%s.log", self->home, name),
        .stop_ms = program == 0 ? STOP_GATEWAY_MS : STOP_SERVICE_MS,
    };
}

struct ab_ward *members_make(const struct centre *self, const struct known *known, size_t *n)
{
    size_t total = (size_t)self->gateways;
    for (int i = 0; i < ROLES; i++)
        total += (size_t)self->replicas[i];
    struct ab_ward *list = ab_alloc(self->arena, total, sizeof(*list));
    *n = 0;
    for (int p = 0; p < PROGRAMS; p++)
        for (int i = 0; i < (p == 0 ? self->gateways : self->replicas[p - 1]); i++)
            list[(*n)++] = member(self, known, p, i);
    return list;
}

struct ab_ward member_postgres(const struct centre *self, const struct cluster *cluster)
{
    struct environment env = {.centre = self};
    env_add(&env, "run_file", "%s", member_run_file(self, "postgres")); /* marks it as ours */
    return (struct ab_ward){
        .name = "postgres",
        .argv = cluster_argv(self, cluster),
        .env = env.v,
        .cwd = "/",
        .log_path = centre_path(self, "log/postgres.log"),
        .stop_ms = STOP_POSTGRES_MS,
        .stop_signal = SIGINT, /* fast: clients are told to go, nothing is lost */
    };
}
