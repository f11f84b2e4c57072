/* budget.c - how many bytes of requests may be in memory at once */
#include "gateway.h"
#include <assert.h>

struct gateway gw;

int budget_take(size_t n)
{
    if (n > BUDGET - gw.budget_used) {
        gw.count.over_budget++;
        return -1;
    }
    gw.budget_used += n;
    return 0;
}

void budget_give(size_t n)
{
    assert(n <= gw.budget_used);
    gw.budget_used -= n;
}
