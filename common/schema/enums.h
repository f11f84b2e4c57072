/* enums.h - the enumerations of enums.def: constants and names
 *
 *   enum ab_job_state { AB_JOB_AWAITING_PARENTS, ... };  extern const struct ab_enum
 * ab_enum_job_state;
 */
#ifndef AB_ENUMS_H
#define AB_ENUMS_H

struct ab_enum;

#define AB_ENUM(name)                                                                              \
    enum ab_##name                                                                                 \
    {
#define AB_NAME(name, constant, text) constant,
#define AB_ENUM_END(name)                                                                          \
    }                                                                                              \
    ;
#include "enums.def"
#undef AB_ENUM
#undef AB_NAME
#undef AB_ENUM_END

#define AB_ENUM(name) extern const struct ab_enum ab_enum_##name;
#define AB_NAME(name, constant, text)
#define AB_ENUM_END(name)
#include "enums.def"
#undef AB_ENUM
#undef AB_NAME
#undef AB_ENUM_END

enum {
    AB_JOB_STATES = AB_JOB_STAGED_OUT + 1
};

/* A step that our own programs take (job_states.def). */
struct ab_job_step {
    enum ab_job_state from, to;
    const char *text;
};
extern const struct ab_job_step ab_job_steps[]; /* ends with an empty text */
extern const char *const ab_job_state_texts[];  /* what each state means */

#endif
