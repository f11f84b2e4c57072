/* pool.c - two threads, two locked lists, one wake-up */
#include "pool.h"
#include "base/log.h"
#include "gateway.h"
#include "http.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct parse *first, **last; /* to do, in order */
    struct parse *done;
    bool stop;
    pthread_t threads[POOL_THREADS];
    int n;
    uv_async_t wake;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

void parse_run(struct parse *p)
{
    p->rc = ab_json_request(p->route, &p->parts, &p->packed, &p->issues);
}

void parse_free(struct parse *p)
{
    ab_buf_free(&p->packed);
    ab_buf_free(&p->form);
    ab_issues_free(&p->issues);
    free(p->bytes);
    free(p->params);
    if (p->counted)
        budget_give(p->counted);
    p->counted = 0;
    p->bytes = p->params = NULL;
}

static void *work(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (!pool.first && !pool.stop)
            pthread_cond_wait(&pool.work, &pool.lock);
        if (pool.stop)
            break;
        struct parse *p = pool.first;
        pool.first = p->next;
        if (!pool.first)
            pool.last = &pool.first;
        pthread_mutex_unlock(&pool.lock);

        if (!atomic_load(&p->cancelled))
            parse_run(p);

        pthread_mutex_lock(&pool.lock);
        p->next = pool.done;
        pool.done = p;
        uv_async_send(&pool.wake);
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

/* Several wake-ups may come as one: take the whole list. */
static void on_wake(uv_async_t *handle)
{
    (void)handle;
    pthread_mutex_lock(&pool.lock);
    struct parse *list = pool.done;
    pool.done = NULL;
    pthread_mutex_unlock(&pool.lock);

    while (list) {
        struct parse *p = list;
        list = p->next;
        http_parsed(p);
        parse_free(p);
        free(p);
    }
}

void pool_submit(struct parse *p)
{
    gw.count.pooled++;
    p->next = NULL;
    pthread_mutex_lock(&pool.lock);
    *pool.last = p;
    pool.last = &p->next;
    pthread_cond_signal(&pool.work);
    pthread_mutex_unlock(&pool.lock);
}

void pool_cancel(struct parse *p)
{
    atomic_store(&p->cancelled, true);
}

int pool_start(struct ab_error *err)
{
    sigset_t all, old;

    pool.last = &pool.first;
    pool.stop = false;
    if (uv_async_init(&gw.loop, &pool.wake, on_wake) != 0)
        return ab_fail(err, AB_EINTERNAL, "the loop takes no wake-up handle");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (pool.n = 0; pool.n < POOL_THREADS; pool.n++) {
        int rc = pthread_create(&pool.threads[pool.n], NULL, work, NULL);
        if (rc != 0) {
            pthread_sigmask(SIG_SETMASK, &old, NULL);
            return ab_fail(err, AB_EINTERNAL, "no thread for large requests: %s", strerror(rc));
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return 0;
}

static void free_list(struct parse *p)
{
    while (p) {
        struct parse *next = p->next;
        parse_free(p);
        free(p);
        p = next;
    }
}

void pool_stop(void)
{
    pthread_mutex_lock(&pool.lock);
    pool.stop = true;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < pool.n; i++)
        pthread_join(pool.threads[i], NULL);
    if (pool.n)
        uv_close((uv_handle_t *)&pool.wake, NULL);
    pool.n = 0;
    free_list(pool.first);
    free_list(pool.done);
    pool.first = pool.done = NULL;
}
