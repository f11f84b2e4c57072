/* auth_rig.h - the `auth` service without its process: ask it, look at its tables */
#ifndef AUTH_RIG_H
#define AUTH_RIG_H

#include "crypt/crypt.h"
#include "fake.h"
#include "pg.h"

extern ab_db_t *db, *owner; /* as abies_auth; as the owner of the tables */
extern ab_conf_t *conf;

extern char rig_dir[]; /* of the seal key */
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
/* As a user, of an id; as anybody, of an id. */
int rig_as(int64_t user, const char *verb, int64_t id, const char *body);
int rig_ask_id(const struct ab_caller *caller, const char *verb, int64_t id, const char *body);
int rig_login(const char *form);
int rig_refresh(const char *token);
int rig_refresh_keyed(const char *token, const char *key); /* Idempotency-Key */
const char *rig_text(const char *key);                     /* of the answer; it must be there */
int64_t rig_number(const char *key);
/* Clients of the contract repeat refused log-ins, registrations and renewals at once, without end. */
bool rig_was_held_back(void);
/* Behind a call with its nth step broken (ab_fault_arm): there was no such step any more. */
bool rig_unbroken(int nth);

/* Settings at their defaults but for these pairs. */
void rig_set(const char *const *pairs);
#define SET(...) rig_set((const char *const[]){__VA_ARGS__, NULL})
#define ALL_METHODS "login_methods", "password,oauth_device,oauth_authcode"

int64_t rig_registered(const char *name, const char *password); /* its id */
/* Of an access token, checked with the keys that gateways get. */
struct ab_token rig_claims(const char *access);
int64_t rig_user(const char *name, const char *password); /* its id; NULL: no password */

#endif
