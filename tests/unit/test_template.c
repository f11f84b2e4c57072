/* test_template.c - what the centre sends is a word of the batch script, whatever it holds */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/spawn.h"
#include "template/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int render(const char *source, const char *value, struct ab_buf *out, struct ab_error *err)
{
    const struct template_value values[] = {{"v", value, 0}, {"words", "a 'b c'", 1}};
    ab_buf_clear(out);
    return template_render(source, strlen(source), values, AB_COUNT(values), out, err);
}

static void a_hostile_value_is_one_word(void **state)
{
    (void)state;
    static const char *const hostile[] = {
        "a b",
        "'",
        "\"",
        "$(touch /tmp/abies-owned)",
        "`touch /tmp/abies-owned`",
        "; true",
        "\\",
        "*",
        "",
        "#x",
        "{{v}}",
        "-n",
        "'\\''",
        "a\tb",
    };
    for (size_t i = 0; i < AB_COUNT(hostile); i++) {
        AB_AUTO(ab_buf_free) struct ab_buf script = {0}, out = {0}, want = {0};
        struct ab_error err = {0};
        int status;
        assert_int_equal(render("#!/bin/bash\n# don't touch {{this}}\n#SBATCH --x={{v}}\n"
                                "x=\"it's\" # isn't it\ncat <<E\n$x\nE\n"
                                "printf '[%s]' {{v}} x{{v}} {{ words }}\n",
                                hostile[i], &script, &err),
                         0);
        ab_buf_char(&script, '\0');
        assert_non_null(strstr(script.data, "# don't touch {{this}}\n"));
        const char *argv[] = {"bash", "-c", script.data, NULL};
        struct ab_spawn what = {.argv = argv, .in = -1, .out = -1, .err = -1};
        assert_int_equal(ab_run_command(&what, 10000, &out, &status, &err), 0);
        assert_int_equal(status, 0);
        ab_buf_printf(&want, "it's\n[%s][x%s][a][b c]", hostile[i], hostile[i]);
        assert_int_equal(out.len, want.len);
        assert_memory_equal(out.data, want.data, want.len);
    }
    assert_int_not_equal(access("/tmp/abies-owned", F_OK), 0);
}

static void a_line_break_cannot_end_a_directive(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    struct ab_error err = {0};
    assert_int_equal(
        render("#SBATCH --constraint={{v}}\n", "x\ntouch /tmp/abies-owned\n#", &out, &err), -1);
    assert_non_null(strstr(err.text, "line 1: the value of {{v}} has a line break"));
    assert_int_equal(render("true {{v}}\n", "\r", &out, &err), -1);
    assert_int_equal(render("true {{v}}\n", "\x7f", &out, &err), -1);
}

static void a_placeholder_within_quotes_or_a_here_document_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "echo \"{{v}}\"\n",    "echo '{{v}}'\n",
        "x=\"a\nb {{v}}\"\n",  "echo \"$(basename \"{{v}}\")\"\n",
        "cat <<E\n{{v}}\nE\n", "cat <<-'E' # the end\n\tx\n E\n{{v}}\n\tE\n",
    };
    for (size_t i = 0; i < AB_COUNT(wrong); i++) {
        AB_AUTO(ab_buf_free) struct ab_buf out = {0};
        struct ab_error err = {0};
        if (render(wrong[i], "x", &out, &err) == 0)
            fail_msg("accepted: %s", wrong[i]);
        assert_non_null(strstr(err.text, "line "));
    }
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    struct ab_error err = {0};
    assert_int_equal(
        render("cat <<E\n$x\nE\ncat <<<'y'\nx=\"${y:-z}\"\necho {{v}}\n", "x", &out, &err), 0);
    assert_int_equal(render("echo {{nope}}\n", "x", &out, &err), -1);
    assert_int_equal(render("true\necho {{v\n", "x", &out, &err), -1);
    assert_non_null(strstr(err.text, "line 2"));
}

static void the_template_that_sites_are_given_can_be_filled(void **state)
{
    (void)state;
    static const char *const names[] = {"batch_job_id",  "project",  "queue",     "num_nodes",
                                        "wall_time_min", "job_mode", "site_path", "abies_bin",
                                        "launcher_cmd",  "tag_args", "part_args"};
    struct template_value values[AB_COUNT(names)];
    AB_AUTO(ab_buf_free) struct ab_buf source = {0}, out = {0};
    struct ab_error err = {0};
    const char *path = ab_find_share("job-template.sh");
    assert_non_null(path);
    assert_int_equal(ab_file_read(path, 65536, &source, &err), 0);
    for (size_t i = 0; i < AB_COUNT(names); i++)
        values[i] = (struct template_value){names[i], "1", 0};
    if (template_render(source.data, source.len, values, AB_COUNT(values), &out, &err) < 0)
        fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hostile_value_is_one_word),
        cmocka_unit_test(the_template_that_sites_are_given_can_be_filled),
        cmocka_unit_test(a_line_break_cannot_end_a_directive),
        cmocka_unit_test(a_placeholder_within_quotes_or_a_here_document_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
