/* test_place.c - which job runs on which node, cores and GPUs */
#include "launcher/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const int cpus[] = {0, 1, 2, 3};
static const char *const gpus[] = {"3", "2"};
static const struct node_info nodes[] = {
    {"n1", "n1", cpus, 4, gpus, 2},
    {"n2", "n2", cpus, 4, gpus, 2},
    {"n3", "n3", cpus, 4, NULL, 0},
};

static struct place_want serial(int packing)
{
    return (struct place_want){1, 1, 1, 1, packing, 0};
}

static int take(place_t *place, struct place_want want, struct placement **out)
{
    struct ab_error err = {0};
    return place_take(place, &want, out, &err);
}

static void packed_jobs_share_a_node_until_it_is_full(void **state)
{
    (void)state;
    place_t *place = place_new(nodes, 1, true);
    struct placement *p[4] = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(take(place, serial(3), &p[i]), 0);
        assert_int_equal(p[i]->nodes[0].cpus[0], i);
    }
    assert_int_equal(take(place, serial(3), &p[3]), 1);
    place_give(place, &p[1]);
    assert_null(p[1]);
    assert_int_equal(take(place, serial(3), &p[1]), 0);
    assert_int_equal(p[1]->nodes[0].cpus[0], 3); /* what came back goes to the end of the list */
    for (int i = 0; i < 3; i++)
        place_give(place, &p[i]);
    assert_int_equal(place_empty_nodes(place), 1);
    place_destroy(&place);
}

static void a_nodes_limit_bounds_how_many_jobs_it_has(void **state)
{
    (void)state;
    place_t *place = place_new(nodes, 2, true);
    struct placement *p[4] = {0};
    place_limit(place, 0, 0);
    place_limit(place, 1, 2);
    assert_true(place_free(place) > 0.99
                && place_free(place) < 1.01); /* a node without a worker is not free */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(take(place, serial(4), &p[i]), 0);
        assert_int_equal(p[i]->nodes[0].node, 1);
    }
    assert_int_equal(take(place, serial(4), &p[2]), 1);
    assert_true(place_free(place) < 0.01);
    assert_int_equal(place_use(place, 1).jobs, 2);
    assert_int_equal(place_use(place, 1).cpus, 2);
    place_limit(place, 1, 0); /* those that run stay */
    place_give(place, &p[0]);
    assert_int_equal(take(place, serial(4), &p[2]), 1);
    place_limit(place, 0, 1);
    assert_int_equal(take(place, serial(4), &p[2]), 0);
    assert_int_equal(p[2]->nodes[0].node, 0);
    place_give(place, &p[1]);
    place_give(place, &p[2]);
    place_destroy(&place);
}

static void cores_bound_what_packing_would_allow(void **state)
{
    (void)state;
    place_t *place = place_new(nodes, 1, true);
    struct place_want want = {1, 3, 1, 1, 10, 0};
    struct placement *a = NULL, *b = NULL;
    assert_int_equal(take(place, want, &a), 0);
    assert_int_equal(a->nodes[0].n_cpus, 3);
    assert_int_equal(take(place, want, &b), 1);
    place_give(place, &a);
    place_destroy(&place);
}

static void hardware_threads_are_counted_in_cores(void **state)
{
    (void)state;
    place_t *place = place_new(nodes, 1, true);
    struct placement *p = NULL;
    assert_int_equal(take(place, (struct place_want){1, 2, 4, 2, 1, 0}, &p), 0);
    assert_int_equal(p->nodes[0].n_cpus, 4);
    place_give(place, &p);
    place_destroy(&place);
}

static void without_packing_each_job_takes_whole_nodes(void **state)
{
    (void)state;
    place_t *place = place_new(nodes, 2, false);
    struct placement *p[3] = {0};
    assert_int_equal(take(place, serial(8), &p[0]), 0);
    assert_int_equal(take(place, serial(8), &p[1]), 0);
    assert_int_equal(p[1]->nodes[0].node, 1);
    assert_int_equal(take(place, serial(8), &p[2]), 1);
    place_give(place, &p[0]);
    place_give(place, &p[1]);
    place_destroy(&place);
}

static void a_job_of_many_nodes_takes_empty_ones_or_none(void **state)
{
    (void)state;
    place_t *place = place_new(nodes, 3, true);
    struct placement *small = NULL, *wide = NULL;
    assert_int_equal(take(place, serial(4), &small), 0);
    assert_int_equal(take(place, (struct place_want){3, 4, 1, 1, 1, 0}, &wide), 1);
    assert_int_equal(take(place, (struct place_want){2, 4, 1, 1, 1, 0}, &wide), 0);
    assert_int_equal(wide->n_nodes, 2);
    assert_int_equal(wide->nodes[0].node, 1);
    assert_int_equal(wide->nodes[0].n_cpus, 0);
    assert_true(place_free(place) > 0.74 && place_free(place) < 0.76);
    place_give(place, &wide);
    place_give(place, &small);
    place_destroy(&place);
}

static void gpus_are_handed_out_in_the_platforms_order(void **state)
{
    (void)state;
    place_t *place = place_new(nodes, 1, true);
    struct placement *a = NULL, *b = NULL;
    struct place_want want = {1, 1, 1, 1, 4, 1};
    assert_int_equal(take(place, want, &a), 0);
    assert_string_equal(a->nodes[0].gpus[0], "3");
    assert_int_equal(take(place, want, &b), 0);
    assert_string_equal(b->nodes[0].gpus[0], "2");
    struct placement *c = NULL;
    assert_int_equal(take(place, want, &c), 1);
    place_give(place, &a);
    place_give(place, &b);
    place_destroy(&place);
}

static void a_job_that_can_never_fit_is_told_why(void **state)
{
    (void)state;
    place_t *place = place_new(nodes, 3, true);
    struct placement *p = NULL;
    struct ab_error err = {0};
    struct place_want too_wide = {4, 1, 1, 1, 1, 0}, too_many_cores = {1, 5, 1, 1, 1, 0};
    assert_int_equal(place_take(place, &too_wide, &p, &err), -1);
    assert_non_null(strstr(err.text, "4 nodes"));
    assert_int_equal(place_take(place, &too_many_cores, &p, &err), -1);
    assert_non_null(strstr(err.text, "5 cores"));
    place_destroy(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_jobs_share_a_node_until_it_is_full),
        cmocka_unit_test(a_nodes_limit_bounds_how_many_jobs_it_has),
        cmocka_unit_test(cores_bound_what_packing_would_allow),
        cmocka_unit_test(hardware_threads_are_counted_in_cores),
        cmocka_unit_test(without_packing_each_job_takes_whole_nodes),
        cmocka_unit_test(a_job_of_many_nodes_takes_empty_ones_or_none),
        cmocka_unit_test(gpus_are_handed_out_in_the_platforms_order),
        cmocka_unit_test(a_job_that_can_never_fit_is_told_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
