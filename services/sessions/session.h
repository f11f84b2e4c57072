/* session.h - create, list, heartbeat and end of sessions */
#ifndef SESSION_H
#define SESSION_H

#include "service/service.h"

ab_handler_f session_create, session_list, session_touch, session_heartbeat, session_delete;

#endif
