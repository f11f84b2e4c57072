/* list_text.c - the statements of a list
 *
 * Put together from the predicates of the query's descriptor, with parameters for all values. What is
 * not text of ours never gets into the text.
 */
#include "list.h"

#include "skeleton.h"
#include <assert.h>
#include <ctype.h>
#include <string.h>

/* ---- the query's fields */

static const struct ab_field *query_field(const struct list *self, const char *name)
{
    const struct ab_schema *schema = self->spec->query;
    int i = schema ? ab_field_find(schema, name, strlen(name), 0) : -1;
    return i < 0 ? NULL : &schema->fields[i];
}

static struct ab_db_value query_value(const struct list *self, const struct ab_field *field)
{
    return bind_field(self->call->arena, field, self->spec->query, self->query, true);
}

int64_t list_int(const struct list *self, const char *name, int64_t otherwise)
{
    const struct ab_field *field = query_field(self, name);
    if (!field)
        return otherwise;
    struct ab_db_value v = query_value(self, field);
    return v.type == AB_DB_INT ? v.i : otherwise;
}

/* Contract 1.4: these values mean "no filter". */
static bool is_falsy(const struct ab_db_value *v)
{
    switch (v->type) {
    case AB_DB_BOOL:
        return !v->b;
    case AB_DB_INT:
        return v->i == 0;
    case AB_DB_REAL:
        return v->f == 0;
    case AB_DB_TEXT:
        return v->n == 0 || (v->n == 2 && memcmp(v->p, "{}", 2) == 0);
    case AB_DB_ARRAY:
        return v->n_items == 0;
    default:
        return false;
    }
}

/* What a parameter of a field is called in PostgreSQL; enumerations have the same names there. */
static const char *type_of(struct list *self, const struct ab_field *field)
{
    switch (field->kind) {
    case AB_BOOL:
        return "bool";
    case AB_I32:
    case AB_I64:
        return "int8";
    case AB_F64:
        return "float8";
    case AB_TIME:
        return "timestamptz";
    case AB_UUID:
        return "uuid";
    case AB_ENUM:
        return field->enumeration->name;
    case AB_ENUMS:
        return ab_printf(self->call->arena, "%s[]", field->enumeration->name);
    case AB_IDS:
        return "int8[]";
    case AB_STRS:
        return "text[]";
    case AB_JSON:
    case AB_TAGS:
        return "jsonb";
    default:
        return "text";
    }
}

static void add_param(struct list *self, struct ab_db_value v, const char *type)
{
    assert(self->n_params < LIST_PARAMS);
    self->params[self->n_params] = v;
    self->types[self->n_params++] = type;
    ab_buf_printf(&self->sql, "$%zu", self->n_params);
}

static void add_int(struct list *self, int64_t v)
{
    add_param(self, (struct ab_db_value){.type = AB_DB_INT, .i = v}, "int8");
}

/* The predicate, with the value in place of each `?`. */
static void add_predicate(struct list *self, const struct ab_field *field, struct ab_db_value v)
{
    const char *type = type_of(self, field);
    ab_buf_str(&self->sql, " AND ");
    for (const char *c = field->column; *c; c++) {
        if (*c == '?')
            add_param(self, v, type);
        else
            ab_buf_char(&self->sql, *c);
    }
}

/* Has the request this filter? */
static bool is_asked(const struct list *self, const struct ab_field *field, struct ab_db_value *v)
{
    if (!field->column)
        return false;
    *v = query_value(self, field);
    return v->type != AB_DB_NULL && !(field->flags & AB_FALSY && is_falsy(v));
}

/* Says a filter what the conditions of branches say already? Twice the planner would take it for two. */
static bool is_covered(const struct ab_field *field, const char *alike)
{
    size_t n = alike ? strlen(alike) : 0;
    return n > 0 && strncmp(field->column, alike, n) == 0 && field->column[n] == ' ';
}

/* The owner is $1, in the predicates too. */
static void add_filters(struct list *self, const char *covered)
{
    const struct ab_schema *schema = self->spec->query;
    struct ab_db_value v;
    ab_buf_printf(&self->sql, " FROM %s WHERE %s = ", self->from, self->owner);
    assert(self->n_params == 0);
    add_int(self, self->call->owner_id);
    if (self->where && *self->where)
        ab_buf_printf(&self->sql, " AND %s", self->where);
    for (int i = 0; schema && i < schema->n_fields; i++)
        if (is_asked(self, &schema->fields[i], &v) && !is_covered(&schema->fields[i], covered))
            add_predicate(self, &schema->fields[i], v);
}

bool list_is_filtered(const struct list *self)
{
    const struct ab_schema *schema = self->spec->query;
    struct ab_db_value v;
    for (int i = 0; schema && i < schema->n_fields; i++)
        if (is_asked(self, &schema->fields[i], &v))
            return true;
    return false;
}

/* ---- order */

static const struct ab_field *out_field(const struct list *self, const char *name, size_t len)
{
    int i = ab_field_find(self->spec->out, name, len, 0);
    return i < 0 ? NULL : &self->spec->out->fields[i];
}

void list_read_order(struct list *self)
{
    const struct ab_field *field = query_field(self, "ordering");
    struct ab_db_value v = {.type = AB_DB_NULL};
    if (field)
        v = query_value(self, field);
    const char *name = self->spec->default_order;
    size_t len = name ? strcspn(name, " ") : 0;
    self->descending = name && strstr(name, " DESC");
    self->ordered = v.type == AB_DB_TEXT && v.n > 0;
    if (self->ordered) {
        self->descending = *(const char *)v.p == '-';
        name = (const char *)v.p + self->descending;
        len = v.n - self->descending;
    }
    if (!name)
        return;
    self->sort = out_field(self, name, len);
    assert(self->sort
           && self->sort->column); /* an order of the descriptor is a field of the resource */
}

bool list_by_id(const struct list *self)
{
    return !self->sort || (!self->descending && strcmp(self->sort->column, self->spec->id) == 0);
}

static void add_order(struct list *self)
{
    ab_buf_str(&self->sql, " ORDER BY ");
    if (!list_by_id(self))
        ab_buf_printf(&self->sql, "%s%s, ", self->sort->column, self->descending ? " DESC" : "");
    ab_buf_printf(&self->sql, "%s%s", self->id, self->gathers ? " + 0" : "");
}

/* Rows behind the last one. Nulls stand last in ascending order and first in descending order. */
static void add_after(struct list *self)
{
    const char *id = self->id;
    if (!self->resumed)
        return;
    ab_buf_str(&self->sql, " AND ");
    if (list_by_id(self)) {
        ab_buf_printf(&self->sql, "%s > ", id);
        add_int(self, self->after_id);
        return;
    }
    const char *column = self->sort->column;
    if (self->after.type == AB_DB_NULL) {
        ab_buf_printf(&self->sql, "(%s IS NULL AND %s > ", column, id);
        add_int(self, self->after_id);
        ab_buf_printf(&self->sql, self->descending ? " OR %s IS NOT NULL)" : ")", column);
        return;
    }
    bool nulls = !self->descending && self->sort->flags & AB_NULLABLE;
    ab_buf_printf(&self->sql, "(%s %s ", column, self->descending ? "<" : ">");
    add_param(self, self->after, type_of(self, self->sort));
    size_t after = self->n_params;
    ab_buf_printf(&self->sql, " OR (%s = $%zu AND %s > ", column, after, id);
    add_int(self, self->after_id);
    ab_buf_printf(&self->sql, ")%s%s)", nulls ? " OR " : "",
                  nulls ? ab_printf(self->call->arena, "%s IS NULL", column) : "");
    if (!nulls) /* where an index begins: it cannot see that through the OR */
        ab_buf_printf(&self->sql, " AND %s %s $%zu", column, self->descending ? "<=" : ">=", after);
}

/* ---- the table that is enough to search in */

/* Does an expression name a column of this table ("s.")? */
static bool names(const char *text, const char *alias)
{
    for (const char *at = text; (at = strstr(at, alias)); at++)
        if (at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_'))
            return true;
    return false;
}

static bool asks_for(const struct list *self, const char *alias, bool in_order)
{
    const struct ab_schema *schema = self->spec->query;
    struct ab_db_value v;
    if (in_order && self->sort && names(self->sort->column, alias))
        return true;
    for (int i = 0; schema && i < schema->n_fields; i++)
        if (is_asked(self, &schema->fields[i], &v) && names(schema->fields[i].column, alias))
            return true;
    return false;
}

static bool is_enough(const struct list *self, const struct ab_list_part *part, bool in_order)
{
    /* Where a page goes on there are matches near by: then the owner's rows are walked instead. */
    if (part->gathers && in_order && self->resumed && list_by_id(self))
        return false;
    if (part->all)
        return in_order && list_by_id(self);
    for (const struct ab_list_part *p = self->spec->parts; p->alias; p++)
        if (p != part && asks_for(self, p->alias, in_order))
            return false;
    /* An order that no index has is no worse here than elsewhere. */
    return !in_order || part->by_id || part->branches || part->gathers || !list_by_id(self);
}

static void choose(struct list *self, bool in_order)
{
    const struct ab_list_spec *spec = self->spec;
    self->part = NULL;
    self->gathers = spec->gathers && list_by_id(self) && !self->resumed;
    self->from = spec->from;
    self->owner = spec->owner;
    self->id = spec->id;
    self->where = spec->where;
    for (const struct ab_list_part *p = spec->parts; p && p->alias && !self->plain; p++) {
        if (!p->from || !is_enough(self, p, in_order))
            continue;
        self->part = p;
        self->gathers = p->gathers && list_by_id(self);
        self->from = p->from;
        self->owner = p->owner;
        self->id = p->id;
        self->where = p->where;
        return;
    }
}

/* ---- searches */

static const char *sort_key(const struct list *self)
{
    return list_by_id(self) ? "NULL::int" : self->sort->column;
}

static void add_limit(struct list *self, int64_t rows)
{
    ab_buf_str(&self->sql, " LIMIT ");
    add_int(self, rows);
}

static void add_page_bounds(struct list *self, int64_t rows)
{
    add_limit(self, rows);
    if (self->offset > 0) {
        ab_buf_str(&self->sql, " OFFSET ");
        add_int(self, self->offset);
    }
}

/* Has each branch its rows in the order of the list? */
static bool in_branches(const struct list *self)
{
    const struct ab_list_part *part = self->part;
    return part && part->branches
           && (list_by_id(self) || strcmp(self->sort->column, part->alike) == 0);
}

/* Each branch for itself, in the order that its index has; then the first ones of all. The filters are
 * the same text, with the same parameters. */
static void add_branches(struct list *self, int64_t rows)
{
    const struct ab_list_part *part = self->part;
    ab_arena_t *arena = self->call->arena;
    size_t from = self->sql.len;

    add_filters(self, part->alike);
    add_after(self);
    const char *search = ab_strndup(arena, self->sql.data + from, self->sql.len - from);
    self->sql.len = from;
    ab_buf_str(&self->sql, " FROM (");
    size_t limit = self->n_params + 1;
    for (size_t i = 0; part->branches[i]; i++) {
        ab_buf_printf(&self->sql, "%s(SELECT %s AS id, %s AS sort%s AND %s ORDER BY %s, %s",
                      i ? " UNION ALL " : "", self->id, sort_key(self), search, part->branches[i],
                      part->alike, self->id);
        if (i == 0)
            add_limit(self, self->offset < INT64_MAX - rows ? rows + self->offset : INT64_MAX);
        else
            ab_buf_printf(&self->sql, " LIMIT $%zu", limit);
        ab_buf_char(&self->sql, ')');
    }
    ab_buf_printf(&self->sql, ") AS branch ORDER BY %sid",
                  list_by_id(self)   ? ""
                  : self->descending ? "sort DESC, "
                                     : "sort, ");
}

/* id and sort of the rows of a page. */
static void add_search(struct list *self, int64_t rows)
{
    if (in_branches(self)) {
        ab_buf_str(&self->sql, "SELECT id, sort");
        add_branches(self, rows);
    } else {
        ab_buf_printf(&self->sql, "SELECT %s AS id, %s AS sort", self->id, sort_key(self));
        add_filters(self, NULL);
        add_after(self);
        add_order(self);
    }
    add_page_bounds(self, rows);
}

/* ---- statements */

void list_restart(struct list *self)
{
    ab_buf_clear(&self->sql);
    self->n_params = 0;
}

static void add_columns(struct list *self)
{
    const struct ab_schema *out = self->spec->out;
    ab_buf_str(&self->sql, "SELECT ");
    for (int i = 0; i < out->n_fields; i++)
        if (out->fields[i].flags & AB_OUT && out->fields[i].column)
            ab_buf_printf(&self->sql, "%s AS \"%s\", ", out->fields[i].column, out->fields[i].name);
}

/* If a part is enough it is searched first, and the other tables are looked up for the rows of the
 * page only, not for those that are skipped or sorted away. */
void list_add_page(struct list *self, int64_t rows)
{
    choose(self, true);
    add_columns(self);
    if (!self->part) {
        ab_buf_printf(&self->sql, "%s AS abies_sort, %s AS abies_id", sort_key(self), self->id);
        add_filters(self, NULL);
        add_after(self);
        add_order(self);
        add_page_bounds(self, rows);
        return;
    }
    ab_buf_str(&self->sql, "page.sort AS abies_sort, page.id AS abies_id FROM (");
    add_search(self, rows);
    ab_buf_printf(&self->sql, ") AS page, %s WHERE %s = page.id ORDER BY ", self->spec->from,
                  self->spec->id);
    if (!list_by_id(self))
        ab_buf_printf(&self->sql, "page.sort%s, ", self->descending ? " DESC" : "");
    ab_buf_str(&self->sql, "page.id");
}

void list_add_count(struct list *self)
{
    choose(self, false);
    ab_buf_str(&self->sql, "SELECT count(*)");
    add_filters(self, NULL);
}

void list_add_ids(struct list *self, int64_t rows)
{
    choose(self, true);
    add_search(self, rows);
}
