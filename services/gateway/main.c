/* main.c - abies-gateway: settings, start, and the file that says where it listens */
#include "auth.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rand.h"
#include "bus/curve.h"
#include "door.h"
#include "gateway.h"
#include "live.h"
#include "loop.h"
#include "metrics.h"
#include "page.h"
#include "pool.h"
#include "route.h"
#include "yaml/yaml.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct ab_setting settings[] = {
    {"listen", AB_CONF_TEXT, "0.0.0.0:8443", "address and port of HTTPS; port 0 picks one"},
    {"tls_cert", AB_CONF_TEXT, NULL, "file with the certificate chain (PEM)"},
    {"tls_key", AB_CONF_TEXT, NULL, "file with its private key (PEM)"},
    {"plain_http", AB_CONF_BOOL, "false", "serve without TLS: behind a proxy, or for tests"},
    {"proxy_protocol", AB_CONF_BOOL, "false",
     "a balancer in front sends a PROXY line (version 1) first; only it may reach the port"},
    {"bus_listen", AB_CONF_TEXT, "tcp://127.0.0.1:7440",
     "where services connect; port * picks one"},
    {"hint_listen", AB_CONF_TEXT, NULL, "where their hints come in; else the bus port + 1"},
    {"curve_dir", AB_CONF_TEXT, NULL, "folder of gateway.key_secret and allowed/*.key"},
    {"plain_bus", AB_CONF_BOOL, "false", "no encryption, no keys on the bus: for tests only"},
    {"beat", AB_CONF_DURATION, "1s", "services are pinged this often"},
    {"dead", AB_CONF_DURATION, "5s", "a service silent for so long is gone"},
    {"deadline", AB_CONF_DURATION, "30s", "longest time for one request"},
    {"drain", AB_CONF_DURATION, "10s", "time to finish requests after SIGTERM"},
    {"join", AB_CONF_DURATION, "10s",
     "time to find the services; nobody is let in before, unless it is over"},
    {"queue_limit", AB_CONF_INT, "1024", "requests that wait for a replica, per service"},
    {"max_connections", AB_CONF_INT, "8192", "clients at a time"},
    {"max_per_address", AB_CONF_INT, "4096", "of them from one address (IPv6: one /64)"},
    {"max_websockets_per_user", AB_CONF_INT, "2048", "WebSockets of one user at a time"},
    {"ping_period", AB_CONF_DURATION, "20s",
     "WebSockets are pinged this often; one silent for 2.25 times as long is gone"},
    {"health_listen", AB_CONF_TEXT, "127.0.0.1:0", "plain HTTP: /healthz /readyz /metrics"},
    {"run_file", AB_CONF_TEXT, NULL, "JSON with pid and addresses is written here once up"},
    {"log_level", AB_CONF_TEXT, "info", "debug, info, warn or error"},
    {0},
};

static void name_instance(void)
{
    char host[64] = "host", tail[9];
    uint8_t random[4];

    (void)gethostname(host, sizeof(host) - 1);
    ab_random(random, sizeof(random));
    ab_hex(random, sizeof(random), tail);
    (void)snprintf(gw.instance, sizeof(gw.instance), "gateway-%s-%d-%s", host, (int)getpid(), tail);
}

static int check_settings(const ab_conf_t *conf, struct ab_error *err)
{
    bool cert = ab_conf_text(conf, "tls_cert") != NULL, key = ab_conf_text(conf, "tls_key") != NULL;

    if (cert != key)
        return ab_fail(err, AB_EINVAL, "tls_cert and tls_key belong together: give both");
    if (!cert && !ab_conf_bool(conf, "plain_http"))
        return ab_fail(
            err, AB_EINVAL,
            "no certificate: set tls_cert and tls_key, or plain_http if a proxy in front "
            "speaks TLS");
    if (!ab_conf_text(conf, "curve_dir") && !ab_conf_bool(conf, "plain_bus"))
        return ab_fail(err, AB_EINVAL, "no keys for the bus: set curve_dir (see abies-admin keys)");
    int64_t connections = ab_conf_int(conf, "max_connections");
    if (connections < 1 || connections > 1000000)
        return ab_fail(err, AB_EINVAL, "max_connections must be 1 to 1000000, not %" PRId64,
                       connections);
    if (ab_conf_int(conf, "max_per_address") < 1
        || ab_conf_int(conf, "max_websockets_per_user") < 1)
        return ab_fail(err, AB_EINVAL,
                       "max_per_address and max_websockets_per_user must be at least 1");
    if (ab_conf_int(conf, "queue_limit") < 1)
        return ab_fail(err, AB_EINVAL, "queue_limit must be at least 1");
    return 0;
}

static int start_bus(struct ab_error *err)
{
    const struct ab_bus_options options = {
        .listen = ab_conf_text(gw.conf, "bus_listen"),
        .hint_listen = ab_conf_text(gw.conf, "hint_listen"),
        .curve_dir = ab_conf_bool(gw.conf, "plain_bus") ? NULL : ab_conf_text(gw.conf, "curve_dir"),
        .beat_ms = ab_conf_ms(gw.conf, "beat"),
        .dead_ms = ab_conf_ms(gw.conf, "dead"),
        .queue_limit = (size_t)ab_conf_int(gw.conf, "queue_limit"),
    };
    gw.bus = ab_bus_new(&options, err);
    return gw.bus ? 0 : -1;
}

static int write_run_file(struct ab_error *err)
{
    const char *path = ab_conf_text(gw.conf, "run_file");
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const struct {
        const char *name, *value;
    } rows[] = {
        {"instance", gw.instance},
        {"listen", door_address()},
        {"health", metrics_address()},
        {"bus", ab_bus_endpoint(gw.bus)},
        {"hint", ab_bus_hint_endpoint(gw.bus)},
    };

    if (!path)
        return 0;
    ab_buf_printf(&text, "{\"pid\":%d", (int)getpid());
    for (size_t i = 0; i < AB_COUNT(rows); i++) {
        ab_buf_printf(&text, ",\"%s\":", rows[i].name);
        ab_buf_json_str(&text, rows[i].value, strlen(rows[i].value));
    }
    ab_buf_str(&text, "}\n");
    return ab_file_write(path, text.data, text.len, 0644, err);
}

static int start(struct ab_error *err)
{
    if (check_settings(gw.conf, err) < 0 || route_init(err) < 0 || page_init(err) < 0)
        return -1;
    gw.deadline_ms = ab_conf_ms(gw.conf, "deadline");
    gw.ping_ms = ab_conf_ms(gw.conf, "ping_period");
    gw.per_address = (size_t)ab_conf_int(gw.conf, "max_per_address");
    gw.per_user = (size_t)ab_conf_int(gw.conf, "max_websockets_per_user");
    auth_init();
    if (loop_init(err) < 0 || start_bus(err) < 0 || pool_start(err) < 0 || live_init(err) < 0
        || loop_start(err) < 0 || metrics_start(ab_conf_text(gw.conf, "health_listen"), err) < 0
        || write_run_file(err) < 0)
        return -1;
    ab_log(AB_INFO, "gateway.up", AB_KV("listen", door_address()),
           AB_KV("health", metrics_address()), AB_KV("bus", ab_bus_endpoint(gw.bus)),
           AB_KV("hint", ab_bus_hint_endpoint(gw.bus)), AB_KV("tls", gw.tls));
    return 0;
}

static void stop(void)
{
    metrics_stop();
    live_free();
    pool_stop();
    loop_free();
    ab_bus_destroy(&gw.bus);
    auth_free();
    page_free();
    route_free();
}

int main(int argc, char **argv)
{
    const struct ab_setting *const tables[] = {settings};
    AB_AUTO(ab_conf_destroy) ab_conf_t *conf = ab_conf_new(tables, 1);
    struct ab_error err = {0};

    ab_log_open("gateway", "-", AB_INFO);
    int rc = ab_conf_main(conf, "abies-gateway", "HTTPS and WebSocket front of an Abies centre",
                          ab_yaml_conf, argc, argv, &err);
    if (rc > 0)
        return 0;
    int level = rc < 0 ? AB_INFO : ab_level_of(ab_conf_text(conf, "log_level"));
    if (rc == 0 && level < 0)
        rc = ab_fail(&err, AB_EINVAL, "log_level `%s` is none of debug, info, warn, error",
                     ab_conf_text(conf, "log_level"));
    if (rc < 0) {
        ab_log(AB_ERROR, "gateway.settings", AB_KV("text", (const char *)err.text));
        return 2;
    }
    name_instance();
    ab_log_open("gateway", gw.instance, (enum ab_level)level);
    ab_fault_init();
    ab_bus_init();
    ab_crypt_init();
    gw.conf = conf;
    rc = start(&err);
    if (rc == 0)
        loop_run();
    else
        ab_log(AB_ERROR, "gateway.start", AB_KV("text", (const char *)err.text));
    ab_log(AB_INFO, "gateway.down", AB_KV("requests", gw.count.requests));
    stop();
    return rc == 0 ? 0 : 1;
}
