/* replay.c - a fuzz target without a fuzzer: every file of its corpus, and what becomes of it by
 * small damage
 *
 *     fuzz_json FOLDER...      all files below; each also cut short and with bytes changed, always
 * the same way fuzz_json FILE...        just these, to look at a crash
 */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#define LARGEST ((size_t)1 << 20)
#define DAMAGES 64 /* variants of each file of a corpus */

static uint64_t random_state = 1;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* A copy of exactly this size: a read behind it is seen by the sanitizer. */
static void run(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, bytes, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_damaged(uint8_t *bytes, size_t size)
{
    for (int i = 0; i < DAMAGES && size > 0; i++) {
        size_t at = next_random() % size, cut = next_random() % (size + 1);
        uint8_t was = bytes[at];
        bytes[at] = i % 2 ? (uint8_t)next_random() : (uint8_t)(was ^ 1 << next_random() % 8);
        run(bytes, i % 4 ? size : cut);
        bytes[at] = was;
    }
}

static int run_file(const char *path, int damaged)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        perror(path);
        return -1;
    }
    uint8_t *bytes = malloc(LARGEST);
    if (!bytes)
        abort();
    size_t size = fread(bytes, 1, LARGEST, file);
    fclose(file);
    run(bytes, size);
    if (damaged)
        run_damaged(bytes, size);
    free(bytes);
    return 1;
}

static int run_folder(const char *path)
{
    int n = 0, rc = 0;
    DIR *folder = opendir(path);
    if (!folder)
        return run_file(path, 0);
    for (struct dirent *entry; rc >= 0 && (entry = readdir(folder));) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        rc = run_file(name, 1);
        n++;
    }
    closedir(folder);
    return rc < 0 ? -1 : n;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++) {
        int more = run_folder(argv[i]);
        if (more < 0)
            return 1;
        n += more;
    }
    printf("%d files\n", n);
    return n > 0 ? 0 : 1; /* a corpus without files tests nothing */
}
