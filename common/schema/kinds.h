/* kinds.h - inside schema/ only: what types.c and types_list.c share */
#ifndef AB_KINDS_H
#define AB_KINDS_H

#include "types.h"

#define AB_PACK_ARGS struct ab_buf *out, const struct ab_field *field, const void *value
#define AB_UNPACK_ARGS                                                                             \
    struct ab_cursor *at, const struct ab_field *field, void *value, ab_arena_t *arena,            \
        struct ab_error *err
#define AB_READ_ARGS                                                                               \
    const struct ab_node *node, const struct ab_field *field, void *value, ab_arena_t *arena

int ab_wrong(struct ab_error *err, const char *what); /* "not <what>" */

int ab_unpack_str(AB_UNPACK_ARGS);
int ab_read_str(AB_READ_ARGS);
const char *ab_enum_name(const struct ab_field *field, int v);
int ab_take_enum(struct ab_cursor *at, const struct ab_field *field, int *v, struct ab_error *err);
void ab_write_enum(AB_PACK_ARGS);
int ab_read_enum(AB_READ_ARGS);

void ab_pack_ids(AB_PACK_ARGS);
int ab_unpack_ids(AB_UNPACK_ARGS);
void ab_write_ids(AB_PACK_ARGS);
int ab_read_ids(AB_READ_ARGS);

void ab_pack_strs(AB_PACK_ARGS);
int ab_unpack_strs(AB_UNPACK_ARGS);
void ab_write_strs(AB_PACK_ARGS);
int ab_read_strs(AB_READ_ARGS);

void ab_pack_enums(AB_PACK_ARGS);
int ab_unpack_enums(AB_UNPACK_ARGS);
void ab_write_enums(AB_PACK_ARGS);
int ab_read_enums(AB_READ_ARGS);

void ab_pack_obj(AB_PACK_ARGS);
int ab_unpack_obj(AB_UNPACK_ARGS);
void ab_write_obj(AB_PACK_ARGS);
int ab_read_obj(AB_READ_ARGS);

void ab_pack_list(AB_PACK_ARGS);
int ab_unpack_list(AB_UNPACK_ARGS);
void ab_write_list(AB_PACK_ARGS);
int ab_read_list(AB_READ_ARGS);

void ab_pack_mapping(AB_PACK_ARGS);
int ab_unpack_mapping(AB_UNPACK_ARGS);
void ab_write_mapping(AB_PACK_ARGS);
int ab_read_mapping(AB_READ_ARGS);

#endif
