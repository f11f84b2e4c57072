/* share.c - see share.h */
#include "share.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096

struct party {
    struct party *next;
    uint64_t key;
    size_t n;
};

static struct party *table[2][BUCKETS];

static struct party **find(enum share kind, uint64_t key)
{
    struct party **p = &table[kind][key * UINT64_C(0x9E3779B97F4A7C15) >> 52 & (BUCKETS - 1)];

    while (*p && (*p)->key != key)
        p = &(*p)->next;
    return p;
}

int share_take(enum share kind, uint64_t party, size_t most)
{
    struct party **p = find(kind, party);

    if (!*p && most > 0) {
        *p = calloc(1, sizeof(**p));
        if (*p)
            (*p)->key = party;
    }
    if (!*p || (*p)->n >= most)
        return -1;
    (*p)->n++;
    return 0;
}

void share_give(enum share kind, uint64_t party)
{
    struct party **p = find(kind, party), *gone = *p;

    if (!gone || --gone->n > 0)
        return;
    *p = gone->next;
    free(gone);
}

uint64_t share_of_address(const char *text)
{
    struct in6_addr v6;
    struct in_addr v4;
    uint64_t key = 0;

    if (inet_pton(AF_INET, text, &v4) == 1)
        return UINT64_C(0xFFFF) << 32 | v4.s_addr; /* no /64 that a host can have */
    if (inet_pton(AF_INET6, text, &v6) != 1)
        return 0;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
        memcpy(&v4, v6.s6_addr + 12, sizeof(v4));
        return UINT64_C(0xFFFF) << 32 | v4.s_addr;
    }
    memcpy(&key, v6.s6_addr, sizeof(key));
    return key;
}

void share_free(void)
{
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < BUCKETS; i++)
            while (table[kind][i]) {
                struct party *next = table[kind][i]->next;
                free(table[kind][i]);
                table[kind][i] = next;
            }
}
