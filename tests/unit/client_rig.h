/* client_rig.h - a server of a few lines that says what it is told to, and clients of it */
#ifndef CLIENT_RIG_H
#define CLIENT_RIG_H

#include "base/buf.h"
#include "client/api.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#define SCRIPT_MAX 16

/* One connection per answer: whole responses, or NULL: hang up without one. */
struct server {
    int fd, port;
    pthread_t thread;
    const char *answers[SCRIPT_MAX];
    int n;
    char seen[SCRIPT_MAX][8192];
    atomic_int served;
    int hold_ms; /* before each answer */
};

void rig_start(struct server *s);
void rig_stop(struct server *s);

#define REPLY(status, extra, body) "HTTP/1.1 " status "\r\nConnection: close\r\n" extra "\r\n" body
#define OK_A REPLY("200 OK", "", "{\"a\":1}")
#define BUSY REPLY("503 Service Unavailable", "Retry-After: 0\r\n", "{\"detail\":\"no\"}")

/* Setup and teardown: the folder of the client file, ours alone. */
extern char rig_home[64];
int rig_set_up(void **state);
int rig_tear_down(void **state);

char *rig_client_path(void); /* to be freed */
void rig_write_client(int port, const char *more);
ab_api_t *rig_open_api(bool renew);
ab_api_t *rig_open_old(struct server *s); /* its token is one that the centre will not take */

#endif
