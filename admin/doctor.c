/* doctor.c - `abies-admin doctor`: what a deployment needs, looked at piece by piece */
#include "doctor.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "yaml/yaml.h"
#include <stdio.h>
#include <string.h>

enum {
    MINUTE_MS = 60 * 1000,
    HOUR_MS = 60 * MINUTE_MS,
    DEFAULT_WORKERS = 4,
};

const char *const doctor_services[DOCTOR_SERVICES] = {"gateway", "jobs", "sessions", "transfers",
                                                      "auth"};

static void read_duration(const struct ab_yaml *settings, const char *name, int64_t *ms)
{
    const char *text;
    if (ab_yaml_text("centre.yml", ab_yaml_get(settings, name), NULL, &text, NULL) == 0 && text)
        (void)ab_parse_duration(text, ms);
}

/* Not our business to judge the file: `abies up` does. */
void doctor_read_home(struct doctor *self)
{
    const char *path = ab_printf(self->arena, "%s/centre.yml", self->admin->home);
    const struct ab_yaml *root = ab_yaml_load(self->arena, path, NULL);
    if (!root || root->type != AB_Y_MAP)
        return;
    const struct ab_yaml *settings = ab_yaml_get(root, "settings"),
                         *replicas = ab_yaml_get(root, "replicas");
    int64_t n;
    if (ab_yaml_int(path, ab_yaml_get(root, "gateways"), 0, 1000, 0, &n, NULL) == 0)
        self->wanted[0] = (int)n;
    for (int i = 1; i < DOCTOR_SERVICES && replicas && replicas->type == AB_Y_MAP; i++)
        if (ab_yaml_int(path, ab_yaml_get(replicas, doctor_services[i]), 0, 1000, 0, &n, NULL) == 0)
            self->wanted[i] = (int)n;
    if (!settings || settings->type != AB_Y_MAP)
        return;
    read_duration(settings, "session_ttl", &self->session_ttl_ms);
    read_duration(settings, "request_keep", &self->request_keep_ms);
    read_duration(settings, "event_keep", &self->event_keep_ms);
    (void)ab_yaml_int(path, ab_yaml_get(settings, "workers"), 1, 64, self->workers, &self->workers,
                      NULL);
}

int cmd_doctor(struct admin *admin, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct report report;
    struct doctor self = {.admin = admin,
                          .report = &report,
                          .arena = arena,
                          .session_ttl_ms = 5 * MINUTE_MS,
                          .request_keep_ms = 24 * (int64_t)HOUR_MS,
                          .workers = DEFAULT_WORKERS,
                          .min_free = INT64_C(1) << 30};
    if (admin->min_free && ab_parse_size(admin->min_free, &self.min_free) < 0)
        return ab_fail(err, AB_EINVAL, "--min-free %s is no size: 500MiB, 2GiB", admin->min_free);
    if (admin->home)
        doctor_read_home(&self);
    report_begin(&report, admin->json);
    doctor_database(&self);
    doctor_files(&self);
    if (admin->tls_dir)
        doctor_certificates(&self);
    if (admin->home)
        doctor_running(&self);
    return report_end(&report);
}
