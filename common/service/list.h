/* list.h - what a list asks the database: list_text.c writes the statement, list.c runs it */
#ifndef AB_SERVICE_LIST_H
#define AB_SERVICE_LIST_H

#include "service.h"

enum {
    LIST_PARAMS = 64 + 8,
};

struct list {
    struct ab_call *call;
    const struct ab_list_spec *spec;
    const void *query;
    int64_t limit, offset; /* as asked for; limit < 0: none */

    /* the order: one column (NULL: only the id), then the id */
    const struct ab_field *sort; /* of spec->out; NULL none */
    bool descending;
    bool ordered; /* the request asked for this order */

    /* where to go on */
    bool resumed;
    struct ab_db_value after; /* NULL type: the sort column was null */
    int64_t after_id;

    /* what is searched now: the spec's tables, or one of its parts */
    const char *from, *owner, *id, *where;
    const struct ab_list_part *part; /* NULL: all */
    bool gathers;                    /* all matches, then sorted: never in the order of their ids */

    bool plain; /* nothing is filtered, skipped or sorted: one statement for everybody */
    struct ab_buf sql;
    struct ab_db_value params[LIST_PARAMS];
    const char *types[LIST_PARAMS];
    size_t n_params;
};

/* A number of the query, e.g. its limit. */
int64_t list_int(const struct list *self, const char *name, int64_t otherwise);
/* "-last_update", or the default "timestamp DESC". */
void list_read_order(struct list *self);
/* Has the request any filter? */
bool list_is_filtered(const struct list *self);
/* The id alone needs no sort column. */
bool list_by_id(const struct list *self);

/* A new statement, and what it may be. The columns of a page are those of the schema and abies_sort,
 * abies_id. */
void list_restart(struct list *self);
void list_add_page(struct list *self, int64_t rows);
void list_add_count(struct list *self);
void list_add_ids(struct list *self, int64_t rows);

#endif
