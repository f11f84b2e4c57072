/* auth_rig.h - the `auth` service without its process: ask it, look at its tables */
#ifndef AUTH_RIG_H
#define AUTH_RIG_H

#include "fake.h"
#include "pg.h"

extern ab_db_t *db, *owner; /* as abies_auth; as the owner of the tables */
extern ab_conf_t *conf;

extern int64_t rig_id; /* what stands for {id} in a path; 1 at the begin of a test */

/* The last answer. */
extern ab_arena_t *arena;
extern struct ab_buf reply;
extern const struct ab_value *tree;
extern struct ab_error error;

/* Setups of a group and of each test. */
int rig_open(void **state);
int rig_close(void **state);
int rig_clear(void **state);

/* From 192.0.2.1 (but rig_ask_as), to abies.example.org:8443; 422 if schema/ does not take it. */
int rig_ask(const char *verb, const char *body);
int rig_look(const char *verb, const char *query);
int rig_ask_as(const struct ab_caller *caller, const char *verb, const char *query,
               const char *body);
int rig_pack(const char *verb, const char *query, const char *body, struct ab_buf *packed);
const char *rig_text(const char *key); /* of the answer; it must be there */

/* Settings at their defaults but for these pairs. */
void rig_set(const char *const *pairs);
#define SET(...) rig_set((const char *const[]){__VA_ARGS__, NULL})
#define ALL_METHODS "login_methods", "password,oauth_device,oauth_authcode"

int64_t rig_user(const char *name, const char *password); /* its id; NULL: no password */

#endif
