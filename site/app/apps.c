/* apps.c - the apps of a site by name, and the body that registers one at the centre */
#include "app.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define APPS_MAX 1024

struct entry {
    char *name;
    struct ab_app *app;
    struct timespec time;
};

struct ab_apps {
    char *folder;
    struct entry entries[APPS_MAX];
    size_t n;
};

ab_apps_t *ab_apps_new(const char *site_path)
{
    ab_apps_t *self = calloc(1, sizeof(*self));
    struct ab_buf folder = {0};

    ab_buf_printf(&folder, "%s/apps", site_path);
    self->folder = ab_buf_take(&folder);
    return self;
}

void ab_apps_destroy(ab_apps_t **self)
{
    if (!*self)
        return;
    for (size_t i = 0; i < (*self)->n; i++) {
        ab_app_destroy(&(*self)->entries[i].app);
        free((*self)->entries[i].name);
    }
    free((*self)->folder);
    free(*self);
    *self = NULL;
}

/* The name comes from the centre: only what can be an app's name becomes a file name. */
static bool is_name(const char *name)
{
    return *name && strlen(name) <= 200 && !strpbrk(name, "/.");
}

static struct entry *entry_of(ab_apps_t *self, const char *name)
{
    for (size_t i = 0; i < self->n; i++)
        if (strcmp(self->entries[i].name, name) == 0)
            return &self->entries[i];
    if (self->n == APPS_MAX) { /* the oldest makes room */
        ab_app_destroy(&self->entries[0].app);
        free(self->entries[0].name);
        memmove(self->entries, self->entries + 1, (--self->n) * sizeof(self->entries[0]));
    }
    struct entry *entry = &self->entries[self->n++];
    *entry = (struct entry){.name = strdup(name)};
    return entry;
}

const struct ab_app *ab_apps_get(ab_apps_t *self, const char *name, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    struct stat st;

    if (!is_name(name)) {
        ab_fail(err, AB_EINVAL, "%.100s is not the name of an app", name);
        return NULL;
    }
    ab_buf_printf(&path, "%s/%s.yml", self->folder, name);
    if (stat(path.data, &st) < 0) {
        ab_fail(err, AB_ENOENT, "this site has no app %s: there is no file %s", name, path.data);
        return NULL;
    }
    struct entry *entry = entry_of(self, name);
    if (entry->app && memcmp(&entry->time, &st.st_mtim, sizeof(st.st_mtim)) == 0)
        return entry->app;
    ab_app_destroy(&entry->app);
    entry->app = ab_app_load(path.data, err);
    entry->time = st.st_mtim;
    return entry->app;
}

static int is_app_file(const struct dirent *file)
{
    return file->d_name[0] != '.' && ab_str_ends(file->d_name, ".yml");
}

void ab_apps_each(ab_apps_t *self,
                  void (*fn)(void *arg, const char *name, const struct ab_app *app,
                             const struct ab_error *err),
                  void *arg)
{
    struct dirent **files = NULL;
    int n = scandir(self->folder, &files, is_app_file, alphasort);

    for (int i = 0; i < n; i++) {
        struct ab_error err = {0};
        AB_AUTO(ab_free) char *name = strndup(files[i]->d_name, strlen(files[i]->d_name) - 4);
        const struct ab_app *app = ab_apps_get(self, name, &err);
        fn(arg, name, app, app ? NULL : &err);
        free(files[i]);
    }
    free(files);
}

/* ------------------------------------------------------------------ AppCreate */

static void text(struct ab_buf *out, const char *key, const char *value)
{
    ab_buf_printf(out, "\"%s\":", key);
    ab_buf_json_str(out, value, strlen(value));
}

static void params_json(const struct ab_app *self, struct ab_buf *out)
{
    for (size_t i = 0; i < self->n_params; i++) {
        const struct ab_app_param *param = &self->params[i];
        /* the contract knows no empty default: such a one is filled in at the site all the same */
        bool has_default = param->def && *param->def;
        ab_buf_str(out, i ? "," : "");
        ab_buf_json_str(out, param->name, strlen(param->name));
        ab_buf_printf(out, ":{\"required\":%s,", has_default ? "false" : "true");
        if (has_default) {
            text(out, "default", param->def);
            ab_buf_char(out, ',');
        }
        text(out, "help", param->help);
        ab_buf_char(out, '}');
    }
}

static void slots_json(const struct ab_app *self, struct ab_buf *out)
{
    for (size_t i = 0; i < self->n_slots; i++) {
        const struct ab_app_slot *slot = &self->slots[i];
        ab_buf_str(out, i ? "," : "");
        ab_buf_json_str(out, slot->name, strlen(slot->name));
        ab_buf_printf(out, ":{\"required\":%s,\"direction\":\"%s\",\"recursive\":%s,",
                      slot->required ? "true" : "false", slot->out ? "out" : "in",
                      slot->recursive ? "true" : "false");
        text(out, "local_path", slot->local_path);
        ab_buf_char(out, ',');
        text(out, "description", slot->description);
        ab_buf_char(out, '}');
    }
}

void ab_app_json(const struct ab_app *self, int64_t site_id, struct ab_buf *out)
{
    ab_buf_printf(out, "{\"site_id\":%" PRId64 ",", site_id);
    text(out, "name", self->name);
    ab_buf_char(out, ',');
    text(out, "description", self->description);
    ab_buf_str(out, ",\"serialized_class\":\"\",");
    text(out, "source_code", self->source);
    ab_buf_str(out, ",\"parameters\":{");
    params_json(self, out);
    ab_buf_str(out, "},\"transfers\":{");
    slots_json(self, out);
    ab_buf_str(out, "}}");
}
