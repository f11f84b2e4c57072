/* test_multipart.c - the other kind of form becomes the usual one */
#include "gateway/multipart.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void boundary_is(const char *type, const char *want)
{
    struct boundary b = multipart_boundary(type, strlen(type));
    assert_int_equal(b.n, strlen(want));
    assert_memory_equal(b.text, want, b.n);
}

static void becomes(const char *body, const char *want)
{
    struct boundary b = multipart_boundary("multipart/form-data; boundary=xx", 32);
    struct ab_buf out = {0};
    size_t len = strlen(body);
    char *exact = malloc(len ? len : 1); /* the sanitizer sees a byte too many */

    memcpy(exact, body, len);
    int rc = multipart_to_form(&b, exact, len, &out);
    if (!want) {
        assert_int_equal(rc, -1);
    } else {
        assert_int_equal(rc, 0);
        assert_string_equal(out.data ? out.data : "", want);
    }
    ab_buf_free(&out);
    free(exact);
}

#define PART "--xx\r\nContent-Disposition: form-data; name="

static void the_boundary_is_found_in_any_spelling(void **state)
{
    (void)state;
    boundary_is("multipart/form-data; boundary=abc", "abc");
    boundary_is("Multipart/Form-Data;charset=utf-8; BOUNDARY=\"a b\"", "a b");
    boundary_is("multipart/form-data", "");
    boundary_is("multipart/form-data; boundary=", "");
    boundary_is("multipart/form-data; boundary=\"abc", "");
    boundary_is("application/json; boundary=abc", "");
    boundary_is("multipart/form-data; boundary="
                "0123456789012345678901234567890123456789012345678901234567890123456789x",
                "");
}

static void fields_become_a_form(void **state)
{
    (void)state;
    becomes(PART "\"username\"\r\n\r\nann\r\n" PART
                 "password\r\nX: y\r\n\r\na&b=c %\r\n\r\n--x\r\n--xx--\r\n",
            "username=ann&password=a%26b%3Dc%20%25%0D%0A%0D%0A%2D%2Dx");
    becomes(PART "\"a\"\r\n\r\n\r\n--xx--", "a=");
    becomes(PART "\"f\"; filename=\"x\"\r\n\r\nbytes\r\n" PART "\"b\"\r\n\r\n1\r\n--xx--", "b=1");
    becomes("--xx--", "");
}

static void what_is_cut_or_malformed_is_refused(void **state)
{
    (void)state;
    static const char whole[] = PART "\"a\"\r\n\r\n1\r\n--xx--";
    for (size_t n = 0; n < sizeof(whole) - 1; n++) {
        char cut[sizeof(whole)];
        memcpy(cut, whole, n);
        cut[n] = '\0';
        becomes(cut, NULL);
    }
    becomes("--xy\r\n", NULL);
    becomes("--xx\r\n\r\n1\r\n--xx--", NULL); /* no name */
    becomes("--xx\r\nContent-Disposition: form-data\r\n\r\n1\r\n--xx--", NULL);
    becomes(PART "\"a\"\r\n1\r\n--xx--", NULL); /* no empty line */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_boundary_is_found_in_any_spelling),
        cmocka_unit_test(fields_become_a_form),
        cmocka_unit_test(what_is_cut_or_malformed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
