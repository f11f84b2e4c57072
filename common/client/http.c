/* http.c - see http.h; the only file that knows libcurl */
#include "http.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define REPLY_LIMIT ((size_t)256 << 20)
#define RETRY_AFTER_MAX 3600

struct ab_http {
    CURL *curl;
    char *ca_file, *proxy;
    int64_t connect_timeout_ms;
    char detail[CURL_ERROR_SIZE];
};

/* What the callbacks of one call share. */
struct answer {
    struct ab_buf *body;
    size_t limit;
    bool too_big;
    int retry_after_sec;
    atomic_int *stop;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode global;

static void init_once(void)
{
    global = curl_global_init(CURL_GLOBAL_DEFAULT);
}

ab_http_t *ab_http_new(const struct ab_http_options *options, struct ab_error *err)
{
    pthread_once(&once, init_once);
    if (global != CURLE_OK) {
        ab_fail(err, AB_EINTERNAL, "libcurl does not start: %s", curl_easy_strerror(global));
        return NULL;
    }
    /* without it a dead name server would stop a thread for minutes, whatever our limits say */
    if (!(curl_version_info(CURLVERSION_NOW)->features & CURL_VERSION_ASYNCHDNS)) {
        ab_fail(err, AB_EINTERNAL, "libcurl %s cannot look names up with a time limit",
                curl_version());
        return NULL;
    }
    ab_http_t *self = calloc(1, sizeof(*self));
    if (!self || !(self->curl = curl_easy_init())) {
        ab_fail(err, AB_EINTERNAL, "no memory for an HTTP client");
        free(self);
        return NULL;
    }
    self->ca_file = options->ca_file ? strdup(options->ca_file) : NULL;
    self->proxy = options->proxy ? strdup(options->proxy) : NULL;
    self->connect_timeout_ms = options->connect_timeout_ms ? options->connect_timeout_ms : 10000;
    return self;
}

void ab_http_destroy(ab_http_t **self)
{
    if (!*self)
        return;
    curl_easy_cleanup((*self)->curl);
    free((*self)->ca_file);
    free((*self)->proxy);
    free(*self);
    *self = NULL;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct answer *answer = arg;
    size_t len = size * n;

    if (answer->body->len + len > answer->limit) {
        answer->too_big = true;
        return 0;
    }
    ab_buf_add(answer->body, data, len);
    return answer->body->failed ? 0 : len;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    static const char name[] = "retry-after:";
    struct answer *answer = arg;
    size_t len = size * n, at = sizeof(name) - 1;
    int64_t sec;

    if (len < at || strncasecmp(data, name, at) != 0)
        return len;
    size_t end = len;
    while (at < end && strchr(" \t", data[at]))
        at++;
    while (end > at && strchr(" \t\r\n", data[end - 1]))
        end--;
    if (ab_parse_i64(data + at, end - at, 0, RETRY_AFTER_MAX, &sec) == 0)
        answer->retry_after_sec = (int)sec;
    return len;
}

static int on_progress(void *arg, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal,
                       curl_off_t ulnow)
{
    struct answer *answer = arg;

    (void)dltotal, (void)dlnow, (void)ultotal, (void)ulnow;
    return answer->stop && *answer->stop;
}

static bool is_loopback(const char *url)
{
    const char *host = strstr(url, "://");
    if (!host)
        return false;
    host += 3;
    static const char *const names[] = {"localhost", "[::1]"};
    for (size_t i = 0; i < AB_COUNT(names); i++)
        if (ab_str_starts(host, names[i]) && strchr(":/?", host[strlen(names[i])]))
            return true;
    return ab_str_starts(host, "127.") && strspn(host, "0123456789.") == strcspn(host, ":/?");
}

static void set_options(ab_http_t *self, const struct ab_http_request *request,
                        struct answer *answer)
{
    CURL *curl = self->curl;

    curl_easy_reset(curl); /* connections and DNS answers stay */
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, self->detail);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https,http");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)self->connect_timeout_ms);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS,
                     (long)(request->timeout_ms ? request->timeout_ms : 120000));
    curl_easy_setopt(curl, CURLOPT_MAXLIFETIME_CONN, 300L); /* old addresses after a fail-over */
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "abies/" AB_VERSION);
    if (self->ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, self->ca_file);
    if (is_loopback(request->url))
        curl_easy_setopt(curl, CURLOPT_PROXY, "");
    else if (self->proxy)
        curl_easy_setopt(curl, CURLOPT_PROXY, self->proxy);
    curl_easy_setopt(curl, CURLOPT_PROXYAUTH, (long)(CURLAUTH_BASIC | CURLAUTH_DIGEST));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, answer);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, answer);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_URL, request->url);
    bool bare = strcmp(request->method, "GET") == 0 || strcmp(request->method, "DELETE") == 0;
    if (request->body || !bare) { /* a POST of nothing still says "content-length: 0" */
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body ? request->body : "");
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
}

static struct curl_slist *header_list(const struct ab_http_request *request)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:"); /* no wait before large bodies */
    for (const char *const *h = request->headers; h && *h; h++)
        list = curl_slist_append(list, *h);
    return list;
}

static int fail_with(ab_http_t *self, CURLcode code, const struct answer *answer, const char *url,
                     struct ab_error *err)
{
    const char *why = *self->detail ? self->detail : curl_easy_strerror(code);
    int host = (int)strcspn(url + strcspn(url, ":") + 3, "/?") + (int)strcspn(url, ":") + 3;

    switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
        return ab_fail(err, AB_ETIMEOUT, "no answer from %.*s in time: %s", host, url, why);
    case CURLE_ABORTED_BY_CALLBACK:
        return ab_fail_kind(err, AB_EBUSY, "stopped", "the call to %.*s was stopped", host, url);
    case CURLE_WRITE_ERROR:
        if (answer->too_big)
            return ab_fail(err, AB_ETOOBIG,
                           "the answer of %.*s is larger than %zu bytes; ask for fewer rows", host,
                           url, answer->limit);
        return ab_fail(err, AB_EINTERNAL, "no memory for the answer of %.*s", host, url);
    case CURLE_PEER_FAILED_VERIFICATION:
        return ab_fail(
            err, AB_EINVAL,
            "%.*s: %s; if its authority is not one of the system's, give its certificate: "
            "`abies login --ca-file FILE`",
            host, url, why);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_SSL_CACERT_BADFILE:
        return ab_fail(err, AB_EINVAL, "%.*s: %s (check api_root and ca_file in client.yml)", host,
                       url, why);
    default:
        return ab_fail(err, AB_EUPSTREAM, "cannot reach %.*s: %s", host, url, why);
    }
}

int ab_http_call(ab_http_t *self, const struct ab_http_request *request,
                 struct ab_http_reply *reply, struct ab_error *err)
{
    struct answer answer = {
        .body = reply->body,
        .limit = reply->body->limit ? reply->body->limit : REPLY_LIMIT,
        .retry_after_sec = -1,
        .stop = request->stop,
    };
    struct curl_slist *headers = header_list(request);
    long status = 0;

    if (!strstr(request->url, "://") || !headers) {
        curl_slist_free_all(headers);
        return ab_fail(err, AB_EINVAL, "%s is not a URL", request->url);
    }
    ab_buf_clear(reply->body);
    self->detail[0] = '\0';
    set_options(self, request, &answer);
    curl_easy_setopt(self->curl, CURLOPT_HTTPHEADER, headers);
    CURLcode code = curl_easy_perform(self->curl);
    curl_easy_getinfo(self->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_setopt(self->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    if (code != CURLE_OK)
        return fail_with(self, code, &answer, request->url, err);
    reply->status = (int)status;
    reply->retry_after_sec = answer.retry_after_sec;
    return 0;
}
