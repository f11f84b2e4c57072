/* parameters.c - the values that a job brings, whichever way its client has sent them */
#include "app.h"
#include "crypt/crypt.h"
#include "pickle/pickle.h"

#include <string.h>

static const struct ab_value *unpickle(const char *text, ab_arena_t *arena, struct ab_error *err)
{
    size_t len = strlen(text);
    uint8_t *bytes = ab_alloc(arena, len + 1, 1);
    int64_t n = ab_base64_decode(text, len, bytes, len);

    if (n < 0) {
        ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                     "not base64 of a pickled dict; send `parameters` as JSON instead");
        return NULL;
    }
    const struct ab_value *v = ab_pickle_parse(arena, bytes, (size_t)n, err);
    if (v && v->type != AB_V_MAP) {
        ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                     "the pickle holds no dict of names and values");
        return NULL;
    }
    return v;
}

int ab_app_parameters(const struct job *job, ab_arena_t *arena, const struct ab_value **out,
                      struct ab_error *err)
{
    *out = NULL;
    if (job->parameters.n) {
        *out = ab_value_parse(arena, job->parameters.p, job->parameters.n, err);
        if (!*out)
            return ab_fail_within(err, "parameters");
        if ((*out)->type != AB_V_NULL && ((*out)->type != AB_V_MAP || (*out)->n))
            return 0;
    }
    if (!job->serialized_parameters || !*job->serialized_parameters)
        return 0;
    *out = unpickle(job->serialized_parameters, arena, err);
    return *out ? 0 : ab_fail_within(err, "serialized_parameters");
}
