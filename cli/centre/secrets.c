/* secrets.c - passwords and keys of a centre */
#include "secrets.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/rand.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const secret_roles[] = {"abies",          "abies_auth",      "abies_jobs",
                                    "abies_sessions", "abies_transfers", "abies_report"};
const size_t secret_n_roles = AB_COUNT(secret_roles);

static const char *secret_path(const struct centre *self, const char *name)
{
    return ab_printf(self->arena, "%s/secrets/%s", self->home, name);
}

static int make_one(const struct centre *self, const char *name, size_t n, struct ab_error *err)
{
    uint8_t bytes[32];
    char text[2 * sizeof(bytes) + 2];
    const char *path = secret_path(self, name);
    if (access(path, F_OK) == 0)
        return ab_file_private(path, err);
    ab_random(bytes, n);
    ab_hex(bytes, n, text);
    text[2 * n] = '\n';
    int rc = ab_file_write(path, text, 2 * n + 1, 0600, err);
    explicit_bzero(bytes, sizeof(bytes));
    explicit_bzero(text, sizeof(text));
    return rc;
}

int secrets_make(const struct centre *self, struct ab_error *err)
{
    char name[64];
    for (size_t i = 0; i < secret_n_roles; i++) {
        snprintf(name, sizeof(name), "db-%s", secret_roles[i]);
        if (make_one(self, name, 16, err) < 0)
            return -1;
    }
    return make_one(self, "local-user", 16, err);
}

const char *secret_read(const struct centre *self, const char *name, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    if (ab_file_read(secret_path(self, name), 4096, &text, err) < 0)
        return NULL;
    const char *copy = ab_strndup(self->arena, text.data, strcspn(text.data, "\r\n"));
    explicit_bzero(text.data, text.len);
    return copy;
}

/* libpq's own quoting: a folder may have any name. */
static void quoted(struct ab_buf *out, const char *key, const char *value)
{
    ab_buf_printf(out, "%s%s='", out->len ? " " : "", key);
    for (; *value; value++) {
        if (*value == '\'' || *value == '\\')
            ab_buf_char(out, '\\');
        ab_buf_char(out, *value);
    }
    ab_buf_char(out, '\'');
}

int secrets_write_urls(const struct centre *self, const char *socket_dir, struct ab_error *err)
{
    for (size_t i = 0; i < secret_n_roles; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf out = {0};
        const char *name = ab_printf(self->arena, "db-%s", secret_roles[i]);
        const char *password = secret_read(self, name, err);
        if (!password)
            return -1;
        quoted(&out, "host", socket_dir);
        quoted(&out, "user", secret_roles[i]);
        quoted(&out, "dbname", "abies");
        quoted(&out, "password", password);
        ab_buf_char(&out, '\n');
        const char *path = secret_path(self, ab_printf(self->arena, "url-%s", secret_roles[i]));
        int rc = out.failed ? ab_fail(err, AB_EINTERNAL, "no memory")
                            : ab_file_write(path, out.data, out.len, 0600, err);
        explicit_bzero(out.data, out.len);
        if (rc < 0)
            return -1;
    }
    return 0;
}
