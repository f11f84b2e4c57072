/* proxy.h - which proxy a URL goes through, by the usual rules */
#ifndef AB_PROXY_H
#define AB_PROXY_H

#include <stdbool.h>
#include <stddef.h>

/* `setting`: NULL the environment's (https_proxy, HTTPS_PROXY, all_proxy; no_proxy), "" none.
 * Loopback never. true: out is "host:port". */
bool ab_proxy_for(const char *url, const char *setting, char *out, size_t size);

#endif
