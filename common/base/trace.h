/* trace.h - W3C trace context: one number for all that is done for a request, through every process
 *
 *     traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
 *                  version, trace, the caller's own part of it, flags
 */
#ifndef AB_TRACE_H
#define AB_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AB_TRACE_ID 33   /* 32 hex digits and the NUL */
#define AB_TRACE_TEXT 56 /* a traceparent and the NUL */

/* The trace of a header (not terminated). False: it is none, as of the specification; `id` is then "". */
bool ab_trace_read(const char *text, size_t n, char id[AB_TRACE_ID]);

/* A request's number (16 bytes) as a trace: for whoever is asked without one. */
void ab_trace_of(const uint8_t uuid[16], char id[AB_TRACE_ID]);
void ab_trace_new(char id[AB_TRACE_ID]);

/* What is sent on: the same trace, a part of our own: the last half of a request's uuid. */
void ab_trace_write(const char id[AB_TRACE_ID], const uint8_t uuid[16], char out[AB_TRACE_TEXT]);

#endif
