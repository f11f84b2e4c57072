/* main.c - abies-site: the agent of one site, in the foreground (`abies site start` puts it in the
 * back) */
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/opt.h"
#include "broker.h"
#include "sitedir/site.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *path = NULL;
    bool version = false;
    const struct ab_opt options[] = {
        AB_OPT_TEXT('s', "site", &path, "PATH",
                    "the site's folder (else ABIES_SITE_PATH, else the nearest one upwards)"),
        AB_OPT_FLAG('V', "version", &version, "print the version"),
        {0},
    };
    struct ab_error err = {0};
    AB_AUTO(ab_site_free) struct ab_site site = {0};

    ab_fault_init();
    int rc =
        ab_opt_parse("abies-site", "[--site PATH]",
                     "Run a site: its modules, its way to the centre", options, &argc, &argv, &err);
    if (rc > 0)
        return 0;
    if (rc == 0 && version) {
        puts("abies-site " AB_VERSION);
        return 0;
    }
    if (rc < 0 || ab_site_find(&site, path, &err) < 0) {
        fprintf(stderr, "abies-site: %s\n", err.text);
        return 1;
    }
    return broker_run(&site);
}
