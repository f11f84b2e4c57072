/* event.h - events: lists, and the log behind a cursor */
#ifndef EVENT_H
#define EVENT_H

#include "service/service.h"

ab_handler_f event_list, event_tail, event_moved;

#endif
