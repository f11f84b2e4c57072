/* client_rig.c - see client_rig.h */
#include "client_rig.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void read_request(int fd, char *into, size_t room)
{
    size_t len = 0, want = 0;

    while (len + 1 < room) {
        ssize_t n = read(fd, into + len, room - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
        into[len] = '\0';
        const char *body = strstr(into, "\r\n\r\n"), *length = strstr(into, "Content-Length: ");
        want = length ? (size_t)atol(length + 16) : 0;
        if (body && len >= (size_t)(body + 4 - into) + want)
            break;
    }
    into[len] = '\0';
}

static void *serve(void *arg)
{
    struct server *s = arg;

    for (int i = 0; i < s->n; i++) {
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0)
            break;
        read_request(fd, s->seen[i], sizeof(s->seen[i]));
        s->served = i + 1;
        if (s->hold_ms)
            usleep((useconds_t)s->hold_ms * 1000);
        if (s->answers[i])
            (void)!write(fd, s->answers[i], strlen(s->answers[i]));
        shutdown(fd, SHUT_RDWR);
        close(fd);
    }
    return NULL;
}

void rig_start(struct server *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(at);

    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(s->fd, 16), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&at, &len), 0);
    s->port = ntohs(at.sin_port);
    while (s->n < SCRIPT_MAX && (s->answers[s->n] || s->n == 0))
        s->n++;
    pthread_create(&s->thread, NULL, serve, s);
}

void rig_stop(struct server *s)
{
    shutdown(s->fd, SHUT_RDWR);
    close(s->fd);
    pthread_join(s->thread, NULL);
}

char rig_home[64];

int rig_set_up(void **state)
{
    (void)state;
    snprintf(rig_home, sizeof(rig_home), "/tmp/abies-client-XXXXXX");
    return mkdtemp(rig_home) ? 0 : -1;
}

int rig_tear_down(void **state)
{
    (void)state;
    unsetenv("ABIES_CLIENT_PATH");
    return ab_remove_tree(rig_home, NULL);
}

char *rig_client_path(void)
{
    struct ab_buf path = {0};
    ab_buf_printf(&path, "%s/client.yml", rig_home);
    return ab_buf_take(&path);
}

void rig_write_client(int port, const char *more)
{
    AB_AUTO(ab_free) char *path = rig_client_path();
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};

    ab_buf_printf(&text, "api_root: http://127.0.0.1:%d/\n%s", port, more);
    assert_int_equal(ab_file_write(path, text.data, text.len, 0600, NULL), 0);
}

ab_api_t *rig_open_api(bool renew)
{
    AB_AUTO(ab_free) char *path = rig_client_path();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    struct ab_error err = {0};

    if (ab_client_file_load_path(&file, path, &err) < 0)
        fail_msg("%s", err.text);
    ab_api_t *api = ab_api_new(&file, renew, &err);
    assert_non_null(api);
    return api;
}

/* A client whose token the centre will not take. */
ab_api_t *rig_open_old(struct server *s)
{
    rig_start(s);
    rig_write_client(s->port, "token: old\nrefresh_token: r1\n");
    return rig_open_api(true);
}
