/* list.c - a page of a resource, its exact total, and where the next page begins
 *
 * A page ends at AB_PAGE_ROWS rows or AB_PAGE_BYTES bytes; `next` is [rows left or nil, value of the
 * sort column, id] of its last row, so the next page begins there by key, whatever happened to the
 * rows in front of it.
 */
#include "list.h"

#include "base/clock.h"
#include "request.sql.h"
#include "skeleton.h"
#include <inttypes.h>
#include <string.h>

enum {
    FEW_ROWS = 128,  /* one statement, and what does not fit is dropped; more need a cursor */
    FIRST_ROWS = 32, /* fetched from it before their size is known: rows may be large */
};

/* ---- `next`: [rows left or nil, value, id] */

static void pack_next(struct list *self, const PGresult *r, int row, int64_t left,
                      struct ab_buf *out)
{
    ab_pack_array(out, 3);
    if (left < 0)
        ab_pack_nil(out);
    else
        ab_pack_int(out, left);
    int col = ab_col(r, "abies_sort");
    size_t n;
    if (list_by_id(self) || ab_col_null(r, row, col)) {
        ab_pack_nil(out);
    } else if (self->sort->kind == AB_TIME) {
        ab_pack_int(out, ab_col_time(r, row, col));
    } else if (self->sort->kind == AB_I32 || self->sort->kind == AB_I64) {
        ab_pack_int(out, ab_col_int(r, row, col));
    } else if (self->sort->kind == AB_F64) {
        ab_pack_real(out, ab_col_real(r, row, col));
    } else {
        const char *text = ab_col_text(r, row, col, &n);
        ab_pack_strn(out, text, n);
    }
    ab_pack_int(out, ab_col_int(r, row, ab_col(r, "abies_id")));
}

static int read_value(struct list *self, struct ab_cursor *at)
{
    struct ab_db_value *v = &self->after;
    const char *text;
    size_t n;
    if (ab_cursor_nil(at) == 1) {
        v->type = AB_DB_NULL;
        return 0;
    }
    if (list_by_id(self))
        return -1;
    switch (self->sort->kind) {
    case AB_TIME:
        v->type = AB_DB_TIME;
        return ab_cursor_int(at, &v->i);
    case AB_I32:
    case AB_I64:
        v->type = AB_DB_INT;
        return ab_cursor_int(at, &v->i);
    case AB_F64:
        v->type = AB_DB_REAL;
        return ab_cursor_real(at, &v->f);
    default:
        v->type = AB_DB_TEXT;
        if (ab_cursor_str(at, &text, &n) < 0)
            return -1;
        v->p = text;
        v->n = n;
        return self->sort->kind == AB_ENUM && ab_enum_find(self->sort->enumeration, text, n) < 0
                   ? -1
                   : 0;
    }
}

static int read_next(struct list *self, struct ab_error *err)
{
    const struct ab_bytes *next = &self->call->req->next;
    struct ab_cursor at = ab_cursor(next->p, next->n);
    uint32_t n;
    int64_t left = -1;
    if (next->n == 0)
        return 0;
    if (ab_cursor_array(&at, &n) < 0 || n != 3
        || (ab_cursor_nil(&at) != 1 && (ab_cursor_int(&at, &left) < 0 || left < 0))
        || read_value(self, &at) < 0 || ab_cursor_int(&at, &self->after_id) < 0)
        return ab_fail(err, AB_EINVAL, "`next` is not what the page before had given");
    self->resumed = true;
    self->limit = left;
    self->offset = 0;
    return 0;
}

/* ---- running */

static int check_memory(const struct list *self, struct ab_error *err)
{
    return self->sql.failed ? ab_fail(err, AB_EBUSY, "no memory for this list") : 0;
}

static struct ab_db_step step_of(const struct list *self)
{
    return (struct ab_db_step){
        .text = self->sql.data, .values = self->params, .types = self->types, .n = self->n_params};
}

static PGresult *query(struct list *self, struct ab_error *err)
{
    if (check_memory(self, err) < 0)
        return NULL;
    int64_t from = ab_now_us();
    PGresult *r = ab_db_query(self->call->db, self->sql.data, self->params, self->types,
                              self->n_params, self->call->arena, err);
    self->call->worker->db_us += ab_now_us() - from;
    return r;
}

/* As query, in the round trip of the next one. */
static int query_ahead(struct list *self, struct ab_error *err)
{
    ab_arena_t *arena = self->call->arena;
    if (check_memory(self, err) < 0)
        return -1;
    struct ab_db_step step = step_of(self);
    step.text = ab_memdup(arena, step.text, self->sql.len + 1);
    step.values = ab_memdup(arena, step.values, step.n * sizeof(*step.values));
    step.types = ab_memdup(arena, step.types, step.n * sizeof(*step.types));
    return ab_db_ahead(self->call->db, &step, arena, err);
}

/* The page as it grows; its rows are in call->reply. */
struct page {
    int64_t rows;
    bool ended;         /* nothing is behind it, whatever the limit */
    struct ab_buf next; /* empty: no further page */
    int64_t total;      /* -1: not known yet */
};

/* Take as many of the rows as fit, of a statement that asked for `asked`. True: the page is full.
 */
static bool take_rows(struct list *self, const PGresult *r, int64_t asked, int64_t wanted,
                      struct page *page)
{
    int there = PQntuples(r), n = reply_rows_until(self->call, self->spec->out, r, AB_PAGE_BYTES);
    page->rows += n;
    if (n == there && there < asked) {
        page->ended = true;
        return true;
    }
    if (n == there && page->rows < wanted && self->call->reply.len < AB_PAGE_BYTES)
        return false;
    int64_t left = self->limit < 0 ? -1 : self->limit - page->rows;
    if (left != 0)
        pack_next(self, r, n - 1, left, &page->next);
    return true;
}

/* ---- a page of few rows: one statement, each row taken as it comes */

struct taking {
    struct list *list;
    struct page *page;
    int64_t wanted;
    int cols[REPLY_COLUMNS];
    bool full, more;
};

static bool take_row(void *arg, const PGresult *r)
{
    struct taking *t = arg;
    struct list *self = t->list;
    if (t->full) {
        t->more = true;
        return false;
    }
    if (t->page->rows == 0)
        reply_columns(self->spec->out, r, t->cols);
    reply_row(self->call, self->spec->out, r, 0, t->cols);
    t->page->rows++;
    t->full = t->page->rows == t->wanted || self->call->reply.len >= AB_PAGE_BYTES;
    int64_t left = self->limit < 0 ? -1 : self->limit - t->page->rows;
    if (t->full && left != 0)
        pack_next(self, r, 0, left, &t->page->next);
    return true;
}

/* The number of all of them comes in the same round trip. */
static int fetch_few(struct list *self, int64_t wanted, struct page *page, struct ab_error *err)
{
    struct ab_call *call = self->call;
    struct taking taking = {.list = self, .page = page, .wanted = wanted};
    struct ab_db_step steps[2];
    const struct ab_sql *total = self->resumed || !self->spec->total || page->total >= 0
                                     ? NULL
                                     : self->spec->total(call, self->query);

    list_add_page(self, wanted);
    if (check_memory(self, err) < 0)
        return -1;
    steps[0] = step_of(self);
    steps[0].keep = self->plain;
    steps[0].row = take_row;
    steps[0].arg = &taking;
    if (total) {
        struct ab_db_param *params;
        size_t n = bind_params(call, total, &params);
        steps[1] = (struct ab_db_step){.sql = total, .params = params, .n = n};
    }
    int64_t from = ab_now_us();
    int rc = ab_db_pipeline(call->db, steps, total ? 2 : 1, call->arena, err);
    call->worker->db_us += ab_now_us() - from;
    if (rc < 0)
        return -1;
    page->ended = !taking.more && page->rows < wanted;
    if (page->ended)
        ab_buf_clear(&page->next);
    if (total)
        page->total = ab_col_int(steps[1].result, 0, 0);
    return 0;
}

/* ---- a page of many: through a cursor */

/* How many more rows fit, as far as one can tell from those that are there. */
static int64_t rows_that_fit(const struct list *self, const struct page *page, int64_t wanted)
{
    int64_t used = (int64_t)self->call->reply.len, each = used / page->rows + 1;
    int64_t fit = (AB_PAGE_BYTES - used) / each + 1;
    return fit < wanted - page->rows ? fit : wanted - page->rows;
}

/* Some rows first, then as many more as their size allows, so that a page of very large rows does
 * not fill the memory. */
static int fetch_many(struct list *self, int64_t wanted, struct page *page, struct ab_error *err)
{
    PGresult *r;
    ab_buf_str(&self->sql, "DECLARE abies_page NO SCROLL CURSOR FOR ");
    list_add_page(self, wanted);
    if (query_ahead(self, err) < 0)
        return -1;
    for (int64_t n = FIRST_ROWS;; n = rows_that_fit(self, page, wanted)) {
        list_restart(self);
        ab_buf_printf(&self->sql, "FETCH %" PRId64 " FROM abies_page", n);
        if (!(r = query(self, err)))
            return -1;
        if (take_rows(self, r, n, wanted, page))
            return 0;
    }
}

static int fetch_page(struct list *self, int64_t wanted, struct page *page, struct ab_error *err)
{
    list_restart(self);
    return wanted <= FEW_ROWS ? fetch_few(self, wanted, page, err)
                              : fetch_many(self, wanted, page, err);
}

/* ---- the exact total (data-layer.md 6) */

static int count_rows(struct list *self, int64_t *total, struct ab_error *err)
{
    if (self->plain && ab_ahead(self->call, &SQL_list_planner, err) < 0)
        return -1;
    list_restart(self);
    self->resumed = false;
    list_add_count(self);
    PGresult *r = query(self, err);
    if (!r)
        return -1;
    *total = ab_col_int(r, 0, 0);
    return 0;
}

static int find_total(struct list *self, const struct page *page, int64_t *total,
                      struct ab_error *err)
{
    if (page->ended && (page->rows > 0 || self->offset == 0)) {
        *total = self->offset + page->rows;
        return 0;
    }
    if (page->total >= 0) {
        *total = page->total;
        return 0;
    }
    const struct ab_sql *sql =
        self->spec->total ? self->spec->total(self->call, self->query) : NULL;
    if (sql) {
        PGresult *r = ab_run(self->call, sql, err);
        *total = r ? ab_col_int(r, 0, 0) : 0;
        return r ? 0 : -1;
    }
    return count_rows(self, total, err);
}

/* ---- the handler */

static void open_list(struct list *self, struct ab_call *call, const struct ab_list_spec *spec)
{
    *self = (struct list){
        .call = call,
        .spec = spec,
        .query = call->req->query,
        .limit = -1,
    };
}

/* The rows were packed alone, because what stands in front of them was not known yet. */
static void wrap_reply(struct ab_call *call, const struct page *page, bool first, int64_t total)
{
    struct ab_buf rows = call->reply;
    call->reply = (struct ab_buf){0};
    ab_pack_map(&call->reply, first ? 3 : 2);
    if (first) {
        ab_pack_str(&call->reply, "count");
        ab_pack_int(&call->reply, total);
    }
    ab_pack_str(&call->reply, "next");
    if (page->next.len)
        ab_buf_add(&call->reply, page->next.data, page->next.len);
    else
        ab_pack_nil(&call->reply);
    ab_pack_str(&call->reply, "results");
    ab_pack_array(&call->reply, (uint32_t)page->rows);
    if (rows.len)
        ab_buf_add(&call->reply, rows.data, rows.len);
    call->reply.failed |= rows.failed | page->next.failed;
    ab_buf_free(&rows);
}

/* No more than there are: the search ends with the last one. */
static int count_first(struct list *self, struct page *page, int64_t *wanted, struct ab_error *err)
{
    const struct ab_sql *sql = self->spec->total(self->call, self->query);
    if (!sql)
        return 0;
    PGresult *r = ab_run(self->call, sql, err);
    if (!r)
        return -1;
    page->total = ab_col_int(r, 0, 0);
    int64_t left = page->total > self->offset ? page->total - self->offset : 0;
    if (left < *wanted)
        *wanted = left;
    return 0;
}

/* The same statement for everybody, with one plan that is good for all: an owner's first rows in the
 * order of an index. Planning costs more than running it. */
static bool is_plain(const struct list *self, int64_t wanted)
{
    const struct ab_list_spec *spec = self->spec;
    return wanted <= FEW_ROWS && !self->resumed && self->offset == 0
           && (!self->ordered || list_by_id(self)) && !self->call->token_site
           && !(spec->where && *spec->where) && !list_is_filtered(self);
}

static int run_list(struct list *self, struct page *page, struct ab_error *err)
{
    struct ab_call *call = self->call;
    int64_t total = 0;
    if (!self->spec->no_paging) {
        self->limit = list_int(self, "limit", -1);
        self->offset = list_int(self, "offset", 0);
    }
    list_read_order(self);
    if (read_next(self, err) < 0)
        return -1;
    bool first = !self->resumed;
    int64_t wanted = self->limit < 0 || self->limit > AB_PAGE_ROWS ? AB_PAGE_ROWS : self->limit;
    self->plain = is_plain(self, wanted);
    if (!self->plain && ab_ahead(call, &SQL_list_planner, err) < 0)
        return -1;
    if (first && self->spec->total && self->spec->total_first
        && count_first(self, page, &wanted, err) < 0)
        return -1;
    if (wanted > 0 && fetch_page(self, wanted, page, err) < 0)
        return -1;
    if (page->total >= 0 && self->offset + page->rows >= page->total)
        ab_buf_clear(&page->next);
    if (first && find_total(self, page, &total, err) < 0)
        return -1;
    wrap_reply(call, page, first, total);
    return 0;
}

int ab_list_handler(struct ab_call *call, const struct ab_list_spec *spec, struct ab_error *err)
{
    struct list list;
    struct page page = {.total = -1};
    open_list(&list, call, spec);
    int rc = run_list(&list, &page, err);
    ab_buf_free(&list.sql);
    ab_buf_free(&page.next);
    return rc;
}

static PGresult *run_ids(struct list *self, size_t limit, struct ab_error *err)
{
    if (ab_ahead(self->call, &SQL_list_planner, err) < 0)
        return NULL;
    list_restart(self);
    list_add_ids(self, (int64_t)limit);
    PGresult *r = query(self, err);
    /* what follows in this transaction are hot statements, with plans of their own kind */
    return r && ab_ahead(self->call, &SQL_list_planner_back, err) == 0 ? r : NULL;
}

int ab_list_ids(struct ab_call *call, const struct ab_list_spec *spec, size_t limit,
                struct ab_ids *out, struct ab_error *err)
{
    struct list list;
    open_list(&list, call, spec);
    PGresult *r = run_ids(&list, limit, err);
    ab_buf_free(&list.sql);
    if (!r)
        return -1;
    out->n = (size_t)PQntuples(r);
    out->v = ab_alloc(call->arena, out->n + 1, sizeof(*out->v));
    for (size_t i = 0; i < out->n; i++)
        out->v[i] = ab_col_int(r, (int)i, 0);
    return 0;
}
