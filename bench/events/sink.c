/* sink.c - many subscribers of /events/stream that do nothing but note when which frame came
 *
 *   eventsink ADDRESS PORT CA_FILE TOKEN_FILE SUBSCRIBERS OUT QUERY
 *
 * QUERY: "?job_id=#" gives each its own number. Says "ready" when each has its first frame. Ends when its standard input does. OUT: a record for each frame with
 * events, see `struct note`; the subscriber's first frame has `first` set. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct note {
    uint32_t subscriber, first;
    int64_t came_us; /* UTC */
    uint64_t xid, id;
};

struct subscriber {
    SSL *ssl;
    int fd;
    unsigned char *bytes;
    size_t len, cap;
    bool told;
};

static struct subscriber *subscribers;
static uint32_t count, told;
static FILE *out;
static uint64_t frames, received;

static void die(const char *what)
{
    (void)fprintf(stderr, "eventsink: %s (%s)\n", what, strerror(errno));
    exit(1);
}

static long number(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (*end || n < 1 || n > 65535)
        die(text);
    return n;
}

static int64_t utc_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void send_all(struct subscriber *s, const void *bytes, int n)
{
    while (SSL_write(s->ssl, bytes, n) != n) /* a pong or a request: the socket has room */
        if (SSL_get_error(s->ssl, -1) != SSL_ERROR_WANT_WRITE)
            die("cannot send");
}

/* ---- frames */

static void on_text(uint32_t no, const char *text)
{
    struct subscriber *s = &subscribers[no];
    struct note note = {.subscriber = no, .first = !s->told, .came_us = utc_us()};

    if (sscanf(text, "{\"cursor\":\"%" SCNu64 "-%" SCNu64 "\"", &note.xid, &note.id) != 2)
        die("a frame without a cursor");
    if (!s->told)
        told++;
    s->told = true;
    frames++;
    if (fwrite(&note, sizeof(note), 1, out) != 1)
        die("cannot write");
}

/* One whole frame from the front; false: there is none. */
static bool take_frame(uint32_t no)
{
    struct subscriber *s = &subscribers[no];
    const unsigned char *b = s->bytes;
    size_t head = 2, n;

    if (s->len < 2)
        return false;
    n = b[1] & 0x7f;
    if (n == 126) {
        head = 4;
        n = s->len < 4 ? 0 : (size_t)b[2] << 8 | b[3];
    } else if (n == 127) {
        head = 10;
        n = 0;
        for (int i = 2; i < 10 && s->len >= 10; i++)
            n = n << 8 | b[i];
    }
    if (s->len < head || s->len < head + n)
        return false;
    if ((b[0] & 15) == 1) {
        on_text(no, (const char *)b + head);
    } else if ((b[0] & 15) == 9) {
        const unsigned char pong[6] = {0x8a, 0x80}; /* masked with zeros, empty */
        send_all(s, pong, sizeof(pong));
    } else if ((b[0] & 15) == 8) {
        (void)fprintf(stderr, "eventsink: closed with %d %.*s\n", b[head] << 8 | b[head + 1],
                      (int)n - 2, b + head + 2);
        exit(1);
    }
    s->len -= head + n;
    memmove(s->bytes, s->bytes + head + n, s->len);
    return true;
}

static void on_readable(uint32_t no)
{
    struct subscriber *s = &subscribers[no];

    for (;;) {
        if (s->cap - s->len < 16384) {
            s->cap += 32768;
            s->bytes = realloc(s->bytes, s->cap);
            if (!s->bytes)
                die("no memory");
        }
        int n = SSL_read(s->ssl, s->bytes + s->len, (int)(s->cap - s->len - 1));
        if (n <= 0) {
            int why = SSL_get_error(s->ssl, n);
            if (why == SSL_ERROR_WANT_READ)
                return;
            die("the server has gone");
        }
        s->len += (size_t)n;
        received += (uint64_t)n;
        s->bytes[s->len] = '\0';
        while (take_frame(no))
            ;
    }
}

/* ---- connections */

static void upgrade(struct subscriber *s, const char *token, const char *query)
{
    char text[4096];
    int n = snprintf(
        text, sizeof(text),
        "GET /events/stream%s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
        "dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer %s\r\n\r\n",
        query, token);

    send_all(s, text, n);
    s->cap = 32768;
    s->bytes = malloc(s->cap);
    for (;;) { /* the answer's head; frames may stand behind it */
        int got = s->bytes ? SSL_read(s->ssl, s->bytes + s->len, (int)(s->cap - s->len - 1)) : 0;
        if (got <= 0)
            die("no answer to the upgrade");
        s->len += (size_t)got;
        s->bytes[s->len] = '\0';
        char *end = strstr((char *)s->bytes, "\r\n\r\n");
        if (!end)
            continue;
        if (strncmp((char *)s->bytes, "HTTP/1.1 101", 12) != 0)
            die((char *)s->bytes);
        size_t head = (size_t)(end + 4 - (char *)s->bytes);
        s->len -= head;
        memmove(s->bytes, s->bytes + head, s->len);
        return;
    }
}

/* The query of one subscriber: # stands for its number, from 1 on. */
static const char *query_of(uint32_t no, const char *query)
{
    static char text[4096];
    size_t n = strcspn(query, "#");

    (void)snprintf(text, sizeof(text), "%s", query);
    if (query[n])
        (void)snprintf(text, sizeof(text), "%.*s%" PRIu32 "%s", (int)n, query, no + 1,
                       query + n + 1);
    return text;
}

static void dial(struct subscriber *s, SSL_CTX *ctx, const struct sockaddr_in *to,
                 const char *token, const char *query)
{
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->fd < 0 || connect(s->fd, (const struct sockaddr *)to, sizeof(*to)) < 0)
        die("cannot connect");
    (void)setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    s->ssl = SSL_new(ctx);
    if (!s->ssl || SSL_set_fd(s->ssl, s->fd) != 1 || SSL_connect(s->ssl) != 1)
        die("no TLS");
    upgrade(s, token, query);
    if (fcntl(s->fd, F_SETFL, O_NONBLOCK) < 0)
        die("fcntl");
}

static char *read_token(const char *path)
{
    static char text[2048];
    FILE *f = fopen(path, "re");

    if (!f || !fgets(text, sizeof(text), f))
        die(path);
    (void)fclose(f);
    text[strcspn(text, "\r\n")] = '\0';
    return text;
}

static void loop(int poll)
{
    struct epoll_event events[256];
    bool said = false;

    for (;;) {
        int n = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u32 == count) { /* the end of the standard input */
                char c;
                if (read(0, &c, 1) <= 0)
                    return;
            } else {
                on_readable(events[i].data.u32);
            }
        }
        if (!said && told == count) {
            said = true;
            puts("ready");
            (void)fflush(stdout);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 8)
        die("usage: eventsink ADDRESS PORT CA_FILE TOKEN_FILE SUBSCRIBERS OUT QUERY");
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number(argv[2]))};
    struct rlimit files = {0};

    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    if (!ctx || SSL_CTX_load_verify_locations(ctx, argv[3], NULL) != 1
        || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
        die("the CA file or the address");
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    const char *token = read_token(argv[4]);
    count = (uint32_t)number(argv[5]);
    out = fopen(argv[6], "wbe");
    subscribers = calloc(count, sizeof(*subscribers));
    int poll = epoll_create1(EPOLL_CLOEXEC);
    if (!out || !subscribers || poll < 0)
        die(argv[6]);
    for (uint32_t i = 0; i <= count; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
        if (i < count)
            dial(&subscribers[i], ctx, &to, token, query_of(i, argv[7]));
        if (epoll_ctl(poll, EPOLL_CTL_ADD, i < count ? subscribers[i].fd : 0, &e) < 0)
            die("epoll");
        while (i < count && take_frame(i))
            ;
        if (i < count)
            on_readable(i);
    }
    loop(poll);
    if (fclose(out) != 0)
        die(argv[6]);
    printf("%" PRIu64 " frames %" PRIu64 " bytes\n", frames, received);
    return 0;
}
