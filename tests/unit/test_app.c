/* test_app.c - apps: what a job brings stays one word, whatever it is */
#include "app/app.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/spawn.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/abies-app-XXXXXX";

static struct ab_app *load(const char *body, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0}, path = {0};

    ab_buf_printf(&text, "name: demo\n%s", body);
    ab_buf_printf(&path, "%s/demo.yml", folder);
    assert_int_equal(ab_file_write(path.data, text.data, text.len, 0600, NULL), 0);
    return ab_app_load(path.data, err);
}

static struct ab_app *must_load(const char *body)
{
    struct ab_error err = {0};
    struct ab_app *app = load(body, &err);
    if (!app)
        fail_msg("%s", err.text);
    return app;
}

/* {"v": text} as the job's parameters. */
static const struct ab_value *one(const char *text)
{
    static struct ab_value item, map;
    static const char *keys[] = {"v"};

    item = (struct ab_value){.type = AB_V_TEXT, .s = text, .len = strlen(text)};
    map = (struct ab_value){.type = AB_V_MAP, .items = &item, .keys = keys, .n = 1};
    return &map;
}

static const char *const hostile[] = {
    "plain",
    "two words",
    "a;touch /tmp/abies-owned",
    "$(touch /tmp/abies-owned)",
    "`touch /tmp/abies-owned`",
    "'",
    "\"",
    "a'b\"c",
    "'; touch /tmp/abies-owned; '",
    "\\",
    "*",
    "~",
    "${HOME}",
    "a\nb",
    "a\tb",
    "",
    "#x",
    "&",
    "|cat",
    "> /tmp/abies-owned",
    "!!",
    "{a,b}",
    "\\'",
    "\xc3\xa9",
    "%s%n",
    "-5",
    "-1e3",
    "{{v}}",
    "}}",
    "'\\''",
};

/* Runs argv and gives what it printed. */
static void run(const char *const *argv, struct ab_buf *out)
{
    struct ab_spawn what = {.argv = argv, .in = -1, .out = -1, .err = -1, .new_group = true};
    struct ab_error err = {0};
    int status;

    assert_int_equal(ab_run_command(&what, 10000, out, &status, &err), 0);
    assert_int_equal(ab_exit_code(status), 0);
}

static void a_hostile_value_reaches_the_program_as_one_argument(void **state)
{
    (void)state;
    AB_AUTO(ab_app_destroy)
    struct ab_app *app =
        must_load("command: [printf, '[%s]', 'x{{v}}', end]\nparameters: {v: {}}\n");

    for (size_t i = 0; i < AB_COUNT(hostile); i++) {
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        AB_AUTO(ab_buf_free) struct ab_buf out = {0}, want = {0};
        const char **argv = ab_app_command(app, one(hostile[i]), arena, NULL);
        assert_non_null(argv);
        run(argv, &out);
        ab_buf_printf(&want, "[x%s][end]", hostile[i]);
        ab_buf_char(&out, '\0');
        assert_string_equal(out.data, want.data);
    }
    assert_int_not_equal(access("/tmp/abies-owned", F_OK), 0);
}

static void a_hostile_value_reaches_a_shell_command_as_one_argument(void **state)
{
    (void)state;
    AB_AUTO(ab_app_destroy)
    struct ab_app *app = must_load("shell: true\n"
                                   "command: |\n"
                                   "  # prints it twice; `quotes' here are harmless\n"
                                   "  f() { printf '[%s]' \"$@\"; }\n"
                                   "  if true; then f pre{{v}} \"$(f {x})\"; fi && f {{ v }}x\n"
                                   "parameters: {v: {dash: true}}\n");

    for (size_t i = 0; i < AB_COUNT(hostile); i++) {
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        AB_AUTO(ab_buf_free) struct ab_buf out = {0}, want = {0};
        const char **argv = ab_app_command(app, one(hostile[i]), arena, NULL);
        assert_non_null(argv);
        run(argv, &out);
        ab_buf_printf(&want, "[pre%s][[{x}]][%sx]", hostile[i], hostile[i]);
        ab_buf_char(&out, '\0');
        assert_string_equal(out.data, want.data);
    }
    assert_int_not_equal(access("/tmp/abies-owned", F_OK), 0);
}

static void a_placeholder_where_quotes_mean_something_else_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "echo '{{v}}'",
        "echo \"{{v}}\"",
        "echo `echo {{v}}`",
        "echo $(( {{v}} + 1 ))",
        "echo ${x:-{{v}}}",
        "echo ${{v}}",
        "echo \\{{v}}",
        "true # {{v}}",
        "cat <<E\n{{v}}\nE",
        "[[ {{v}} -gt 3 ]]",
        "(( {{v}} ))",
        "echo \"a $(echo {{v}})\"",
        "echo $'{{v}}'",
        "echo 'open",
        "echo {{v}",
        "echo {{no}}",
        "echo {{}}",
        "echo $[ {{v}} ]",
        "cat <<'E'\nx\nE\n",
        /* what bash takes for the end of a quote is not what it looks like */
        "echo \"$(basename \"{{v}}\")\"",
        "echo \"`basename \"{{v}}\"`\"",
        "echo \"${x:-\"{{v}}\"}\"",
        "echo \"${x%)\"{{v}}\"}\"",
        "echo \"$(case a in a) echo \"{{v}}\";; esac)\"",
        "echo \"$(true # )\n echo \"{{v}}\")\"",
        "echo $'a\\' {{v}} '",
        "echo ${x:-'}'} '{{v}}'",
        "[[ x == \"]]\" && {{v}} ]]",
        "[[ $(echo ]]) == {{v}} ]]",
        "echo {{v}} \"$(echo \"x\")\"",
    };

    for (size_t i = 0; i < AB_COUNT(wrong); i++) {
        AB_AUTO(ab_buf_free) struct ab_buf body = {0};
        struct ab_error err = {0};
        ab_buf_str(&body, "shell: true\nparameters: {v: {}}\ncommand: ");
        ab_buf_json_str(&body, wrong[i], strlen(wrong[i])); /* JSON strings are YAML */
        ab_buf_str(&body, "\n");
        AB_AUTO(ab_app_destroy) struct ab_app *app = load(body.data, &err);
        if (app)
            fail_msg("accepted: %s", wrong[i]);
        assert_non_null(strstr(err.text, "demo.yml:"));
    }
}

static void expansions_without_quotes_in_them_go_with_placeholders(void **state)
{
    (void)state;
    AB_AUTO(ab_app_destroy)
    struct ab_app *app = must_load(
        "shell: true\n"
        "command: |\n"
        "  f=/a/b.txt; g=${f##*/}; n=$((1 + (2 * 3)))\n"
        "  if [[ \"$g\" == 'b.txt' && \"]]\" != $n ]] && (( n == 7 )); then\n"
        "    printf '[%s]' {{v}} \"${f##*/}\" \"$(echo ${g%.txt} $(echo $n))\" `echo \"q\"`\n"
        "  fi\n"
        "parameters: {v: {dash: true}}\n");

    for (size_t i = 0; i < AB_COUNT(hostile); i++) {
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        AB_AUTO(ab_buf_free) struct ab_buf out = {0}, want = {0};
        const char **argv = ab_app_command(app, one(hostile[i]), arena, NULL);
        assert_non_null(argv);
        run(argv, &out);
        ab_buf_printf(&want, "[%s][b.txt][b 7][q]", hostile[i]);
        ab_buf_char(&out, '\0');
        assert_string_equal(out.data, want.data);
    }
    assert_int_not_equal(access("/tmp/abies-owned", F_OK), 0);
    /* and a script without placeholders may be as clever as it likes */
    AB_AUTO(ab_app_destroy)
    struct ab_app *clever = must_load("shell: true\ncommand: |\n  echo \"$(echo \"a b\")\"\n");
    assert_non_null(clever);
}

static void a_command_is_split_once_and_without_a_shell(void **state)
{
    (void)state;
    AB_AUTO(ab_app_destroy)
    struct ab_app *app =
        must_load("command: ./bin/run  --n={{v}} 'a b' \"c\\\"d\" e\\ f {{v}}{{v}} ''\n"
                  "parameters: {v: {}}\n");
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const char **argv = ab_app_command(app, one("x y"), arena, NULL);
    AB_AUTO(ab_buf_free) struct ab_buf program = {0};

    ab_buf_printf(&program, "%s/bin/run", folder);
    assert_string_equal(argv[0], program.data);
    assert_string_equal(argv[1], "--n=x y");
    assert_string_equal(argv[2], "a b");
    assert_string_equal(argv[3], "c\"d");
    assert_string_equal(argv[4], "e f");
    assert_string_equal(argv[5], "x yx y");
    assert_string_equal(argv[6], "");
    assert_null(argv[7]);
}

static void shell_syntax_outside_a_shell_command_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"a | b",      "a > b",     "a; b", "a && b",
                                        "echo $HOME", "echo `id`", "a 'b", "''x$(y)"};

    for (size_t i = 0; i < AB_COUNT(wrong); i++) {
        AB_AUTO(ab_buf_free) struct ab_buf body = {0};
        struct ab_error err = {0};
        ab_buf_str(&body, "command: ");
        ab_buf_json_str(&body, wrong[i], strlen(wrong[i]));
        AB_AUTO(ab_app_destroy) struct ab_app *app = load(body.data, &err);
        if (app)
            fail_msg("accepted: %s", wrong[i]);
    }
}

static void a_value_that_starts_with_a_dash_is_refused_as_a_word_of_its_own(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    AB_AUTO(ab_app_destroy)
    struct ab_app *app = must_load("command: p {{v}}\nparameters: {v: {}}\n");

    assert_null(ab_app_command(app, one("--output=/etc/passwd"), arena, &err));
    assert_non_null(strstr(err.text, "parameter v"));
    assert_null(ab_app_command(app, one("-"), arena, &err));
    assert_non_null(ab_app_command(app, one("-3.5e7"), arena, &err));
    ab_app_destroy(&app);
    app = must_load("command: p --x={{v}}\nparameters: {v: {}}\n");
    assert_non_null(ab_app_command(app, one("--y"), arena, &err));
    ab_app_destroy(&app);
    app = must_load("command: p {{v}}\nparameters: {v: {dash: true}}\n");
    assert_non_null(ab_app_command(app, one("--y"), arena, &err));
    ab_app_destroy(&app);
    app = must_load("shell: true\ncommand: p {{v}}\nparameters: {v: {}}\n");
    assert_null(ab_app_command(app, one("--y"), arena, &err));
}

static void each_type_takes_its_values_and_no_others(void **state)
{
    (void)state;
    static const struct {
        const char *type, *value;
        bool ok;
    } cases[] = {
        {"{type: int, min: 1, max: 9}", "5", true},
        {"{type: int, min: 1, max: 9}", "0", false},
        {"{type: int, min: 1, max: 9}", "10", false},
        {"{type: int}", "5.0", false},
        {"{type: int}", " 5", false},
        {"{type: int}", "99999999999999999999", false},
        {"{type: int}", "", false},
        {"{type: float}", "1e-3", true},
        {"{type: float}", "nan", false},
        {"{type: float}", "inf", false},
        {"{type: float}", "0x10", false},
        {"{type: float}", "1 2", false},
        {"{type: bool}", "true", true},
        {"{type: bool}", "True", false},
        {"{type: enum, values: [fast, safe]}", "safe", true},
        {"{type: enum, values: [fast, safe]}", "slow", false},
        {"{type: path}", "a/b.txt", true},
        {"{type: path}", "../a", false},
        {"{type: path}", "/etc/passwd", false},
        {"{type: path}", "a/../../b", false},
        {"{type: string}", "a\x01", false},
        {"{type: string}", "a\x7f", false},
        {"{type: string}", "a\r", false},
        {"{type: string}", "\xff\xfe", false},
    };

    for (size_t i = 0; i < AB_COUNT(cases); i++) {
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        AB_AUTO(ab_buf_free) struct ab_buf body = {0};
        ab_buf_printf(&body, "command: p {{v}}\nparameters:\n  v: %s\n", cases[i].type);
        AB_AUTO(ab_app_destroy) struct ab_app *app = must_load(body.data);
        bool ok = ab_app_command(app, one(cases[i].value), arena, NULL) != NULL;
        if (ok != cases[i].ok)
            fail_msg("%s with %s", cases[i].type, cases[i].value);
    }
}

static void undeclared_and_missing_parameters_fail_the_job_with_a_reason(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    AB_AUTO(ab_app_destroy)
    struct ab_app *app = must_load("command: p {{n}}\nparameters: {n: {type: int}}\n");

    assert_null(ab_app_command(app, one("1"), arena, &err));
    assert_non_null(strstr(err.text, "no parameter v"));
    assert_null(ab_app_command(app, NULL, arena, &err));
    assert_non_null(strstr(err.text, "n is required"));
    ab_app_destroy(&app);
    app = must_load("command: p {{n}}\nparameters: {n: {type: int, default: 7}}\n");
    const char **argv = ab_app_command(app, NULL, arena, &err);
    assert_string_equal(argv[1], "7");
}

static void a_wrong_file_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "command: {a: b}\n",
        "command: []\n",
        "command: ''\n",
        "command: p\ncomand: q\n",
        "command: p\nparameters: {n: {type: number}}\n",
        "command: p\nparameters: {n: {type: int, default: x}}\n",
        "command: p\nparameters: {n: {type: enum}}\n",
        "command: p\nparameters: {'a b': {}}\n",
        "command: p\ntransfers: {m: {direction: up, local_path: x}}\n",
        "command: p\ntransfers: {m: {direction: in, local_path: ../x}}\n",
        "command: p\ntransfers: {m: {direction: in, local_path: /x}}\n",
        "command: p\nenvironment: {ABIES_JOB_ID: 1}\n",
        "command: p\nenvironment: {'A=B': 1}\n",
        "command: p\nhooks: {before: [a]}\n",
        "command: p\nhooks: {preprocess: a}\n",
        "command: p\npreamble: ['x {{n}}']\nparameters: {n: {}}\n",
        "command: p\ncleanup_files: ['../*']\n",
        "command: p\nhook_timeout_sec: 0\n",
    };

    for (size_t i = 0; i < AB_COUNT(wrong); i++) {
        struct ab_error err = {0};
        AB_AUTO(ab_app_destroy) struct ab_app *app = load(wrong[i], &err);
        if (app)
            fail_msg("accepted: %s", wrong[i]);
        assert_true(*err.text);
    }
}

static void a_preamble_runs_before_the_program_and_leaves_its_words_alone(void **state)
{
    (void)state;
    AB_AUTO(ab_app_destroy)
    struct ab_app *app = must_load("command: [printf, '%s', '{{v}}']\nparameters: {v: {}}\n"
                                   "preamble: [\"export X='a b'\", 'printf \"%s.\" \"$X\"']\n");
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    const char **argv = ab_app_command(app, one("$X; 'q'"), arena, NULL);

    run(ab_app_wrap(app, argv, arena), &out);
    ab_buf_char(&out, '\0');
    assert_string_equal(out.data, "a b.$X; 'q'");
}

static const char *value_in(const char **list, const char *name)
{
    for (; *list; list++)
        if (ab_str_starts(*list, name) && (*list)[strlen(name)] == '=')
            return *list + strlen(name) + 1;
    return NULL;
}

static void nothing_of_ours_leaks_into_the_environment_of_a_job(void **state)
{
    (void)state;
    AB_AUTO(ab_app_destroy)
    struct ab_app *app =
        must_load("command: p\nenvironment: {OMP_PROC_BIND: 'true', OMP_NUM_THREADS: 3}\n");
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const char *more[] = {"CUDA_VISIBLE_DEVICES=1", NULL};

    setenv("ABIES_CLIENT_PATH", "/secret", 1);
    setenv("BALSAM_X", "1", 1);
    struct ab_app_env env = {.job_id = 7,
                             .workdir = "/w",
                             .attempt = 2,
                             .lease = 9,
                             .num_nodes = 1,
                             .ranks_per_node = 4,
                             .threads_per_rank = 2,
                             .job_mode = "mpi",
                             .more = more};
    const char **list = ab_app_environment(app, &env, arena);
    assert_null(value_in(list, "ABIES_CLIENT_PATH"));
    assert_null(value_in(list, "BALSAM_X"));
    assert_null(value_in(list, "ABIES_HOOK"));
    assert_null(value_in(list, "ABIES_LAUNCHER_NODES"));
    assert_string_equal(value_in(list, "ABIES_JOB_ID"), "7");
    assert_string_equal(value_in(list, "BALSAM_JOB_ID"), "7");
    assert_string_equal(value_in(list, "ABIES_APP"), "demo");
    assert_string_equal(value_in(list, "ABIES_LEASE"), "9");
    assert_string_equal(value_in(list, "ABIES_RANKS_PER_NODE"), "4");
    assert_string_equal(value_in(list, "OMP_NUM_THREADS"), "3");
    assert_string_equal(value_in(list, "CUDA_VISIBLE_DEVICES"), "1");
    assert_non_null(value_in(list, "PATH"));
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    return ab_remove_tree(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hostile_value_reaches_the_program_as_one_argument),
        cmocka_unit_test(a_hostile_value_reaches_a_shell_command_as_one_argument),
        cmocka_unit_test(a_placeholder_where_quotes_mean_something_else_is_refused),
        cmocka_unit_test(expansions_without_quotes_in_them_go_with_placeholders),
        cmocka_unit_test(a_command_is_split_once_and_without_a_shell),
        cmocka_unit_test(shell_syntax_outside_a_shell_command_is_refused),
        cmocka_unit_test(a_value_that_starts_with_a_dash_is_refused_as_a_word_of_its_own),
        cmocka_unit_test(each_type_takes_its_values_and_no_others),
        cmocka_unit_test(undeclared_and_missing_parameters_fail_the_job_with_a_reason),
        cmocka_unit_test(a_wrong_file_is_refused),
        cmocka_unit_test(a_preamble_runs_before_the_program_and_leaves_its_words_alone),
        cmocka_unit_test(nothing_of_ours_leaks_into_the_environment_of_a_job),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
