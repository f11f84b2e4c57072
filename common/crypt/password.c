/* password.c - Argon2id, with a bound on how many hashes run at once
 *
 * A hash takes 64 MiB. Twenty log-ins at the same moment would take 1.3 GB, so hashes queue for one
 * of a few seats; whoever has waited too long is told to come back.
 */
#include "crypt.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t seat_free = PTHREAD_COND_INITIALIZER;
static int seats = AB_PASSWORD_AT_ONCE;

static int take_seat(struct ab_error *err)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += AB_PASSWORD_WAIT_MS / 1000;
    int rc = 0;
    pthread_mutex_lock(&lock);
    while (seats == 0 && rc == 0)
        rc = pthread_cond_clockwait(&seat_free, &lock, CLOCK_MONOTONIC, &until);
    if (seats > 0) {
        seats--;
        rc = 0;
    }
    pthread_mutex_unlock(&lock);
    return rc == 0 ? 0
                   : ab_fail(err, AB_EBUSY,
                             "too many log-ins at the moment: try again in a few seconds");
}

static void leave_seat(void)
{
    pthread_mutex_lock(&lock);
    seats++;
    pthread_cond_signal(&seat_free);
    pthread_mutex_unlock(&lock);
}

static int no_memory(struct ab_error *err)
{
    return ab_fail(err, AB_EBUSY, "no memory to check a password now: try again in a few seconds");
}

int ab_password_hash(const char *password, size_t len, char out[AB_PASSWORD_HASH_MAX],
                     struct ab_error *err)
{
    if (len > AB_PASSWORD_MAX)
        return ab_fail(err, AB_EINVAL, "the password is longer than %d bytes", AB_PASSWORD_MAX);
    if (take_seat(err) < 0)
        return -1;
    int rc =
        crypto_pwhash_str_alg(out, password, len, crypto_pwhash_OPSLIMIT_INTERACTIVE,
                              crypto_pwhash_MEMLIMIT_INTERACTIVE, crypto_pwhash_ALG_ARGON2ID13);
    leave_seat();
    return rc == 0 ? 0 : no_memory(err);
}

/* The work of a check without anything to check: an unknown user takes as long as a known one. */
static int hash_for_nothing(const char *password, size_t len)
{
    static const uint8_t salt[crypto_pwhash_SALTBYTES] = "abies has no one";
    uint8_t out[32];
    return crypto_pwhash(out, sizeof(out), password, len, salt, crypto_pwhash_OPSLIMIT_INTERACTIVE,
                         crypto_pwhash_MEMLIMIT_INTERACTIVE, crypto_pwhash_ALG_ARGON2ID13);
}

int ab_password_check(const char *hash, const char *password, size_t len, struct ab_error *err)
{
    if (len > AB_PASSWORD_MAX) /* no such hash was ever made; hash a part, for the time */
        hash = NULL, len = AB_PASSWORD_MAX;
    char text[crypto_pwhash_STRBYTES] = {0}; /* libsodium wants all of its bytes readable */
    if (hash && strlen(hash) >= sizeof(text))
        hash = NULL;
    if (hash)
        memcpy(text, hash, strlen(hash));
    if (take_seat(err) < 0)
        return -1;
    errno = 0;
    int rc = hash ? crypto_pwhash_str_verify(text, password, len) : hash_for_nothing(password, len);
    int why = errno;
    leave_seat();
    if (rc != 0 && (!hash || why == ENOMEM))
        return no_memory(err);
    return hash && rc == 0;
}

bool ab_password_outdated(const char *hash)
{
    char text[crypto_pwhash_STRBYTES] = {0};
    if (strlen(hash) >= sizeof(text))
        return true;
    memcpy(text, hash, strlen(hash));
    return crypto_pwhash_str_needs_rehash(text, crypto_pwhash_OPSLIMIT_INTERACTIVE,
                                          crypto_pwhash_MEMLIMIT_INTERACTIVE)
           != 0;
}
