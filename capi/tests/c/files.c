/* What becomes of the file at a path, and of what is there and is no file.
 *
 *     files MODELS FILES
 *
 * MODELS is a folder of tiny models, FILES one for files. Ends with 0 if all is right. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "common.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The error of syncing a folder; 0 for none. */
static int folder_error;
static int n_folders_synced;

/* Takes the place of the system's function in the library, too. */
int fsync(int fd) {
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        n_folders_synced++;
        errno = folder_error;
        return folder_error ? -1 : 0;
    }
    return (int)syscall(SYS_fsync, fd);
}

static struct llama_model *model;
static struct llama_context *ctx;

static bool save_session(const char *path) {
    return llama_state_save_file(ctx, path, NULL, 0);
}

static bool save_sequence(const char *path) {
    return llama_state_seq_save_file(ctx, path, 0, NULL, 0) > 0;
}

static bool save_own(const char *path) {
    return bst_save(ctx, 0, path) == 0;
}

static bool quantize(const char *path) {
    struct llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = LLAMA_FTYPE_MOSTLY_Q8_0;
    params.nthread = 1;
    return llama_model_quantize(in_dir(models_dir, "quant_f16.gguf"), path, &params) == 0;
}

static bool load_session(const char *path) {
    llama_token tokens[64];
    size_t n_tokens;
    return llama_state_load_file(ctx, path, tokens, 64, &n_tokens);
}

static bool load_sequence(const char *path) {
    llama_token tokens[64];
    size_t n_tokens;
    return llama_state_seq_load_file(ctx, path, 0, tokens, 64, &n_tokens) > 0;
}

static bool load_own(const char *path) {
    return bst_restore(ctx, 0, path) == 0;
}

typedef bool (*Act)(const char *path);
static const Act WRITES[] = {save_session, save_sequence, save_own, quantize};
static const Act READS[] = {load_session, load_sequence, load_own};
enum { N_WRITES = sizeof WRITES / sizeof *WRITES, N_READS = sizeof READS / sizeof *READS };

static mode_t kind_of(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0 ? status.st_mode & S_IFMT : 0;
}

static off_t size_of(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0 ? status.st_size : -1;
}

static int n_files(void) {
    DIR *dir = opendir(".");
    CHECK(dir);
    int n = 0;
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

/* Checks that `act` fails with an error that names the path. */
static void check_refused(Act act, const char *path) {
    CHECK(!act(path));
    CHECK(strstr(bst_last_error(), path));
}

/* Neither pipes nor links to nothing are replaced, and nobody waits for the pipe's other end. */
static void what_is_no_file_is_refused(void) {
    const char *pipe = "named.pipe", *link = "dangling";
    CHECK(mkfifo(pipe, 0600) == 0 && symlink("nothing", link) == 0);
    int n = n_files();
    for (int i = 0; i < N_WRITES; i++) {
        check_refused(WRITES[i], pipe);
        check_refused(WRITES[i], link);
        check_refused(WRITES[i], files_dir);
    }
    for (int i = 0; i < N_READS; i++) {
        check_refused(READS[i], pipe);
        check_refused(READS[i], link);
        check_refused(READS[i], "/dev/null");
        check_refused(READS[i], files_dir);
    }
    CHECK(kind_of(pipe) == S_IFIFO && kind_of(link) == S_IFLNK && n_files() == n);
}

static void links_are_followed(void) {
    const char *target = "target", *link = "link";
    CHECK(symlink("target", link) == 0);
    for (int i = 0; i < N_WRITES; i++) {
        FILE *file = fopen(target, "w");
        CHECK(file && fclose(file) == 0);
        CHECK(WRITES[i](link));
        CHECK(kind_of(link) == S_IFLNK && kind_of(target) == S_IFREG && size_of(target) > 0);
    }
}

/* Some file systems cannot sync folders. An error of one that can is told. */
static void folders_are_synced(void) {
    int n = n_files() + 1;
    for (int i = 0; i < N_WRITES; i++) {
        n_folders_synced = folder_error = 0;
        CHECK(WRITES[i]("synced") && n_folders_synced == 1);
        folder_error = EINVAL;
        CHECK(WRITES[i]("synced") && n_folders_synced == 2);
        CHECK(unlink("synced") == 0);
        folder_error = EIO;
        check_refused(WRITES[i], "synced");
        CHECK(size_of("synced") > 0 && n_files() == n);
    }
    folder_error = 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    models_dir = argv[1];
    files_dir = argv[2];
    CHECK(chdir(files_dir) == 0);
    alarm(300);
    model = open_model("llama.gguf");
    ctx = open_context(model, 1);
    CHECK(decode(ctx, 0, 0, 20, 0) == 0);
    what_is_no_file_is_refused();
    links_are_followed();
    folders_are_synced();
    llama_free(ctx);
    llama_model_free(model);
    puts("files are right");
    return 0;
}
