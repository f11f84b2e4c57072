/* limit.c - who tries too often has to wait
 *
 * The counts stand in the database, so that replicas share them. One user's account cannot be
 * locked by others: guesses are counted for user and address together, and for the address alone.
 */
#include "limit.h"

#include "audit.h"
#include "crypt/crypt.h"
#include "limit.sql.h"
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The part of the address that one party has: IPv4 whole, of IPv6 the first 64 bits; no port. */
static void party_of(const char *peer, char out[64])
{
    struct in6_addr v6;
    struct in_addr v4;
    char text[64];
    snprintf(text, sizeof(text), "%s", peer ? peer : "");
    char *at = text + (*text == '[');
    at[strcspn(at, "]")] = '\0';
    if (strchr(at, '.') && !strstr(at, "::"))
        at[strcspn(at, ":")] = '\0';
    if (inet_pton(AF_INET6, at, &v6) == 1 && !IN6_IS_ADDR_V4MAPPED(&v6)) {
        memset(v6.s6_addr + 8, 0, 8);
        inet_ntop(AF_INET6, &v6, out, 64);
    } else if (inet_pton(AF_INET6, at, &v6) == 1) {
        memcpy(&v4, v6.s6_addr + 12, 4);
        inet_ntop(AF_INET, &v4, out, 64);
    } else {
        memcpy(out, at, strlen(at) + 1);
    }
}

static void bind_key(struct ab_call *call, const char *param, const char *text, size_t len)
{
    uint8_t *key = ab_alloc(call->arena, 16, 1);
    ab_hash(text, len, key, 16);
    ab_bind_bytes(call, param, key, 16);
}

static void bind_window(struct ab_call *call)
{
    ab_bind_text(call, "window",
                 ab_printf(call->arena, "%" PRId64 " ms", ab_conf_ms(call->conf, "login_window")));
}

/* Written down when a limit is passed, not at each attempt behind it. */
static int tell(struct ab_call *call, const char *what, struct ab_error *err)
{
    struct audit line = {.action = "limit",
                         .detail = ab_printf(call->arena, "%s, from one address", what)};
    return audit_add(call, &line, err);
}

static int refuse(struct ab_call *call, const char *what, const PGresult *r, bool first,
                  struct ab_error *err)
{
    int64_t seconds = 1;
    for (int row = 0; row < PQntuples(r); row++) {
        int64_t left = ab_col_int(r, row, ab_col(r, "seconds_left"));
        seconds = left > seconds ? left : seconds;
    }
    if (first && tell(call, what, err) < 0)
        return -1;
    ab_fail(err, AB_ERATE, "too many attempts from here: try again in %" PRId64 " s", seconds);
    if (err)
        err->retry_sec = (int)seconds;
    return -1;
}

int limit_attempt(struct ab_call *call, const char *what, const char *username,
                  struct ab_error *err)
{
    char party[64];
    party_of(call->peer, party);
    const char *address = ab_printf(call->arena, "%s\n%s", what, party);
    const char *who = ab_printf(call->arena, "%s\n%s", address, username);
    bind_key(call, "who", who, strlen(who));
    bind_key(call, "address", address, strlen(address));
    bind_window(call);
    PGresult *r = ab_run(call, &SQL_limit_attempt, err);
    if (!r)
        return -1;
    int col = ab_col(r, "attempts");
    /* rows come as they were given: who, address */
    int64_t past_who = ab_col_int(r, 0, col) - ab_conf_int(call->conf, "login_limit"),
            past_address = ab_col_int(r, 1, col) - ab_conf_int(call->conf, "login_limit_address");
    if (past_who <= 0 && past_address <= 0)
        return 0;
    return refuse(call, what, r, past_who == 1 || past_address == 1, err);
}

int limit_forgive(struct ab_call *call, struct ab_error *err)
{
    return ab_run(call, &SQL_limit_forgive, err) ? 0 : -1;
}

int limit_forget(struct ab_call *call, struct ab_error *err)
{
    bind_window(call);
    return ab_run(call, &SQL_limit_forget, err) ? 0 : -1;
}
