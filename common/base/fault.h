/* fault.h - named places where a test can make things fail
 *
 *     if (ab_fault("db.commit"))
 *         return ab_fail(err, AB_EBUSY, "commit failed (injected)");
 *
 * In a build without AB_FAULTS ab_fault() is false at compile time. Two ways to arm:
 *   ab_fault_arm(n)   in a C test: the n-th place reached fails, whatever its name
 *   ABIES_FAULT=job.create.before_commit:kill:3    (name:action:nth, by comma; action fail, kill,
 * stop) in a process: that place, the third time it is reached
 */
#ifndef AB_FAULT_H
#define AB_FAULT_H

#include <stdbool.h>

#ifdef AB_FAULTS
bool ab_fault(const char *name);
void ab_fault_arm(int nth); /* 0 disarms; resets ab_fault_fired */
bool ab_fault_fired(void);
void ab_fault_init(void); /* read ABIES_FAULT; called by ab_service_main and the like */
#else
#define ab_fault(name) ((void)(name), false)
#define ab_fault_arm(nth) ((void)(nth))
#define ab_fault_fired() false
#define ab_fault_init() ((void)0)
#endif

#endif
