/* event_client.c - prints what ab_events_next gives, one line each: for tests of
 * common/client/events
 *
 *   event_client CLIENT_FILE QUERY SINCE SECONDS
 *
 * CLIENT_FILE is a client.yml; QUERY and SINCE may be "-". Lines: the frame's JSON; "error CODE
 * TEXT" at the end when it cannot go on. */
#include "base/clock.h"
#include "base/log.h"
#include "client/events.h"
#include "crypt/crypt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct ab_client_file file = {0};
    struct ab_error err = {0};
    const char *text;
    size_t len;

    if (argc != 5)
        return 2;
    ab_log_open("event_client", "-", AB_WARN);
    ab_crypt_init();
    if (ab_client_file_load_path(&file, argv[1], &err) < 0) {
        printf("error %d %s\n", err.code, err.text);
        return 1;
    }
    ab_events_t *events = ab_events_new(&file, strcmp(argv[2], "-") ? argv[2] : NULL,
                                        strcmp(argv[3], "-") ? argv[3] : NULL, &err);
    int64_t end_ms = ab_now_ms() + 1000 * atoll(argv[4]);
    int rc = events ? 0 : -1;
    while (rc >= 0 && ab_now_ms() < end_ms) {
        rc = ab_events_next(events, 200, &text, &len, &err);
        if (rc > 0) {
            printf("%.*s\n", (int)len, text);
            (void)fflush(stdout);
        }
    }
    if (rc < 0)
        printf("error %d %s\n", err.code, err.text);
    ab_events_destroy(&events);
    ab_client_file_free(&file);
    return rc < 0;
}
