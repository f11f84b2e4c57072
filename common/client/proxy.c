/* proxy.c - see proxy.h; libcurl has these rules inside, libwebsockets has not */
#include "proxy.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "https://host:8443/x" -> "host"; an IPv6 address keeps no brackets. */
static void host_of(const char *url, char *out, size_t size)
{
    const char *at = strstr(url, "://");
    at = at ? at + 3 : url;
    const char *user = strpbrk(at, "@/");
    if (user && *user == '@')
        at = user + 1;
    size_t n = *at == '[' ? strcspn(++at, "]") : strcspn(at, ":/?");
    (void)snprintf(out, size, "%.*s", (int)n, at);
}

static bool is_loopback(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0
           || strcmp(host, "::1") == 0;
}

/* A comma-separated list of names; each covers itself and what lies below it; "*" covers all. */
static bool is_exempt(const char *host, const char *list)
{
    size_t host_n = strlen(host);

    while (list && *list) {
        list += strspn(list, ", ");
        if (*list == '.')
            list++;
        size_t n = strcspn(list, ", ");
        if (n == 1 && *list == '*')
            return true;
        if (n > 0 && n <= host_n && strncasecmp(host + host_n - n, list, n) == 0
            && (n == host_n || host[host_n - n - 1] == '.'))
            return true;
        list += n;
    }
    return false;
}

static const char *from_environment(const char *url)
{
    static const char *const secure[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    static const char *const plain[] = {"http_proxy", "all_proxy", "ALL_PROXY"};
    bool tls = strncasecmp(url, "https:", 6) == 0;
    size_t n = tls ? sizeof(secure) / sizeof(secure[0]) : sizeof(plain) / sizeof(plain[0]);

    for (size_t i = 0; i < n; i++) {
        const char *value = getenv(tls ? secure[i] : plain[i]);
        if (value && *value)
            return value;
    }
    return NULL;
}

bool ab_proxy_for(const char *url, const char *setting, char *out, size_t size)
{
    char host[256];
    const char *proxy = setting;

    host_of(url, host, sizeof(host));
    if (is_loopback(host))
        return false;
    if (!proxy) {
        const char *exempt = getenv("no_proxy");
        proxy = from_environment(url);
        if (is_exempt(host, exempt ? exempt : getenv("NO_PROXY")))
            return false;
    }
    if (!proxy || !*proxy)
        return false;
    const char *at = strstr(proxy, "://");
    at = at ? at + 3 : proxy;
    size_t n = strcspn(at, "/");
    bool has_port = memchr(at, ':', n) != NULL;
    int len = snprintf(out, size, "%.*s%s", (int)n, at, has_port ? "" : ":3128");
    return len > 0 && (size_t)len < size;
}
