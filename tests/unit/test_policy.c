/* The policy decorator over a directory of this machine; what is done there directly is done by
 * somebody else. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/backend.h"
#include "ops/faulty.h"
#include "ops/policy.h"
#include "ops/support/buffer.h"
#include "ops/support/ignore.h"
#include "ops/support/literals.h"
#include "tests/check.h"
#include "tests/remove_tree.h"

static struct op_context context;
static struct attributes attributes;
static char directory[64];

static void run_here(const char *command)
{
	cleanup_free char *line = string_printf("cd '%s' && %s", directory, command);

	CHECK_RC(0, system(line));
}

static struct ignore *rules(const char *patterns)
{
	struct ignore *chain = NULL;

	if (*patterns)
		CHECK_RC(1, ignore_add(&chain, "", patterns, strlen(patterns)));
	return chain;
}

/* `hidden` and `protected`: lines of patterns. */
static struct workspace *new_policy(const char *hidden, const char *protected, bool agentsignore)
{
	struct policy_rules all = {rules(hidden), rules(protected), agentsignore};
	struct workspace *inner = NULL, *w = NULL;
	char *reason = NULL;

	op_context_init(&context);
	snprintf(directory, sizeof(directory), "/tmp/isthmus-policy-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	CHECK_RC(0, scheme_open("local", directory, NULL, &inner, &reason));
	CHECK_RC(0, policy_new(inner, &all, &w));
	return w;
}

static void end(struct workspace *w)
{
	workspace_free(w);
	CHECK_RC(0, remove_tree(directory));
}

static int look(struct workspace *w, const char *path)
{
	return workspace_getattr(&context, w, &OBJECT_AT(path), &attributes);
}

static int open_it(struct workspace *w, const char *path, int flags)
{
	struct open_file *file = NULL;
	int r = workspace_open_file(&context, w, &OBJECT_AT(path), flags, &file, &attributes);

	workspace_close(&context, file);
	return r;
}

static int create(struct workspace *w, const char *path)
{
	struct open_file *file = NULL;
	int r = workspace_create(&context, w, path, O_WRONLY, 0644, &file, &attributes);

	workspace_close(&context, file);
	return r;
}

static int move(struct workspace *w, const char *from, const char *to)
{
	return workspace_rename(&context, w, from, to, 0, NULL);
}

static int append_name(void *user, const struct dir_entry *entry)
{
	if (*entry->path)
		snprintf((char *)user + strlen(user), 256 - strlen(user), "%s ", entry->path);
	return 0;
}

static const char *listing(struct workspace *w, const char *path)
{
	static char names[256];
	uint64_t since;

	*names = '\0';
	CHECK_RC(0, workspace_readdir(
			    &context, w, &OBJECT_AT(path), false, append_name, names, &since));
	return names;
}

/* ---- Hidden ---------------------------------------------------------------------------------- */

static void test_what_is_hidden_is_not_there(void)
{
	struct workspace *w = new_policy(".env\nsecrets/\n/a/key", "", false);
	const struct scan_request everything = {0};
	char scanned[256] = "", *target = NULL;

	run_here("mkdir -p secrets/deep a/b && touch .env secrets/deep/f a/key a/b/.env a/b/f");
	CHECK_RC(-ENOENT, look(w, ".env"));
	CHECK_RC(-ENOENT, look(w, "a/b/.env"));
	CHECK_RC(-ENOENT, look(w, "secrets"));
	CHECK_RC(-ENOENT, look(w, "secrets/deep/f"));
	CHECK_RC(-ENOENT, look(w, "a/key"));
	CHECK_RC(-ENOENT, open_it(w, "a/key", O_RDONLY));
	CHECK_RC(-ENOENT, workspace_readlink(&context, w, &OBJECT_AT(".env"), &target));
	CHECK_RC(-ENOENT, workspace_getxattr(&context, w, &OBJECT_AT(".env"), "user.a", NULL, 0));
	CHECK_RC(-ENOENT, workspace_unlink(&context, w, ".env", NULL));
	CHECK_RC(-ENOENT, move(w, ".env", "seen"));
	CHECK_RC(-ENOENT, workspace_link(&context, w, &OBJECT_AT(".env"), "seen", &attributes));
	CHECK_RC(-ENOENT, workspace_fsync(&context, w, NULL, "secrets", false));
	CHECK_STRING("a ", listing(w, ""));
	CHECK_STRING("f ", listing(w, "a/b"));
	CHECK_RC(0, workspace_scan(&context, w, &OBJECT_AT(""), &everything, append_name, scanned));
	CHECK_STRING("a a/b a/b/f ", scanned);
	CHECK_RC(0, look(w, "a/b/f"));
	end(w);
}

struct told_lines {
	size_t files, files_with_lines;
};

static int count_lines(void *user, const struct dir_entry *entry)
{
	struct told_lines *told = user;

	told->files += S_ISREG(entry->attributes.mode);
	told->files_with_lines += entry->lines != NULL;
	return entry->lines_size > 0 && !entry->lines ? -EIO : 0;
}

static struct told_lines search(struct workspace *w)
{
	const struct literal_text text = {(const uint8_t *)"pin", 3};
	struct scan_request request = {.flags = SCAN_NOT_IGNORED, .wants_lines = true};
	struct literals *literals = NULL;
	struct told_lines told = {0};

	CHECK_RC(0, literals_new(&text, 1, false, &literals));
	request.texts = literals;
	CHECK_RC(0, workspace_scan(&context, w, &OBJECT_AT(""), &request, count_lines, &told));
	literals_free(literals);
	return told;
}

/* They are kept until the scan is over. */
static void test_of_a_large_search_not_all_lines_are_kept(void)
{
	struct workspace *w = new_policy(".env", "", false);
	struct told_lines told;

	run_here("{ printf pin; printf %50000s; echo; printf %60000s; } >0; touch .env");
	told = search(w);
	CHECK(told.files == 1 && told.files_with_lines == 1);
	run_here("for i in $(seq 1 299); do ln 0 $i; done");
	told = search(w);
	CHECK_RC(300, told.files);
	CHECK_RC((8 << 20) / 50012, told.files_with_lines);
	end(w);
}

static void test_what_is_hidden_cannot_be_made(void)
{
	struct workspace *w = new_policy(".env\nsecrets/", "", false);

	run_here("touch f && mkdir d");
	CHECK_RC(-EACCES, create(w, ".env"));
	CHECK_RC(-EACCES, create(w, "secrets/f"));
	CHECK_RC(-EACCES, workspace_mkdir(&context, w, "secrets", 0755, &attributes));
	CHECK_RC(-EACCES, workspace_mknod(&context, w, ".env", S_IFIFO | 0600, 0, &attributes));
	CHECK_RC(-EACCES, workspace_symlink(&context, w, "f", ".env", &attributes));
	CHECK_RC(-EACCES, workspace_link(&context, w, &OBJECT_AT("f"), ".env", &attributes));
	CHECK_RC(-EACCES, move(w, "f", ".env"));
	CHECK_RC(-EACCES, move(w, "d", "secrets"));
	run_here("test \"$(echo *)\" = 'd f'");
	end(w);
}

static void test_a_pattern_for_directories_spares_files(void)
{
	struct workspace *w = new_policy("secrets/", "", false);

	CHECK_RC(0, create(w, "secrets"));
	CHECK_RC(0, look(w, "secrets"));
	CHECK_STRING("secrets ", listing(w, ""));
	CHECK_RC(0, workspace_unlink(&context, w, "secrets", NULL));
	end(w);
}

static void test_the_last_pattern_that_matches_decides(void)
{
	struct workspace *w = new_policy(".env*\n!.env.example", "", false);

	run_here("touch .env .env.example");
	CHECK_STRING(".env.example ", listing(w, ""));
	CHECK_RC(-ENOENT, look(w, ".env"));
	CHECK_RC(0, look(w, ".env.example"));
	end(w);
}

/* ---- Protected ------------------------------------------------------------------------------- */

static void test_what_is_protected_can_only_be_read(void)
{
	struct workspace *w = new_policy("", "hooks", false);
	struct attributes want = {.mode = 0600};
	struct open_file *file = NULL;

	run_here("mkdir hooks d && touch hooks/h d/f");
	CHECK_RC(0, open_it(w, "hooks/h", O_RDONLY));
	CHECK_RC(-EROFS, open_it(w, "hooks/h", O_WRONLY));
	CHECK_RC(-EROFS, open_it(w, "hooks/h", O_RDONLY | O_TRUNC));
	CHECK_RC(-EROFS, create(w, "hooks/new"));
	CHECK_RC(-EROFS, workspace_unlink(&context, w, "hooks/h", NULL));
	CHECK_RC(-EROFS, move(w, "hooks", "gone"));
	CHECK_RC(-EROFS, move(w, "d/f", "hooks/h"));
	CHECK_RC(-EROFS, workspace_setattr(
				 &context, w, &OBJECT_AT("hooks/h"), SET_MODE, &want, &attributes));
	CHECK_RC(-EROFS,
		workspace_setxattr(&context, w, &OBJECT_AT("hooks/h"), "user.a", "b", 1, 0));
	CHECK_RC(
		-EROFS, workspace_link(&context, w, &OBJECT_AT("hooks/h"), "d/other", &attributes));
	CHECK_RC(0, workspace_open_file(
			    &context, w, &OBJECT_AT("hooks/h"), O_RDONLY, &file, &attributes));
	CHECK_RC(-EROFS,
		workspace_setattr(&context, w, &OBJECT_OF(file), SET_MODE, &want, &attributes));
	CHECK_RC(-EROFS, workspace_link(&context, w, &OBJECT_OF(file), "d/other", &attributes));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, workspace_unlink(&context, w, "d/f", NULL));
	end(w);
}

static void test_a_directory_does_not_leave_the_rules_about_what_is_in_it(void)
{
	struct workspace *w = new_policy("/a/key\n.env", ".git/hooks", false);

	run_here("mkdir -p a .git/hooks other free && touch a/key free/.env");
	CHECK_RC(-EXDEV, move(w, "a", "b"));
	CHECK_RC(-EXDEV, move(w, ".git", "git"));
	CHECK_RC(-EXDEV, move(w, "other", ".git"));
	CHECK_RC(-EXDEV, workspace_rename(&context, w, "free", "a", RENAME_SWAP, NULL));
	CHECK_RC(0, move(w, "free", "freed")); /* .env is hidden everywhere */
	CHECK_RC(-ENOENT, look(w, "freed/.env"));
	end(w);
}

/* ---- .agentsignore --------------------------------------------------------------------------- */

static void test_lists_of_the_workspace_hold_below_them(void)
{
	struct workspace *w = new_policy("", "", true);

	run_here("mkdir -p d/in e && touch d/in/key d/in/pub e/key && echo '*.pem' >.agentsignore "
		 "&& echo key >d/.agentsignore && touch d/in/a.pem");
	CHECK_STRING("pub ", listing(w, "d/in"));
	CHECK_RC(-ENOENT, look(w, "d/in/a.pem"));
	CHECK_RC(-ENOENT, look(w, "d/in/key"));
	CHECK_RC(0, look(w, "e/key"));
	CHECK_RC(-EXDEV, move(w, "d/in", "in"));
	CHECK_RC(0, move(w, "d", "dd")); /* takes its list along */
	CHECK_RC(-ENOENT, look(w, "dd/in/key"));
	CHECK_RC(-EROFS, open_it(w, ".agentsignore", O_WRONLY));
	CHECK_RC(-EROFS, create(w, "e/.agentsignore"));
	CHECK_RC(-EROFS, workspace_unlink(&context, w, "dd/.agentsignore", NULL));
	CHECK_RC(-EROFS, move(w, "e/key", ".agentsignore"));
	end(w);
}

static void test_a_list_that_cannot_be_read_shows_nothing(void)
{
	struct policy_rules agentsignore = {.agentsignore = true};
	struct workspace *inner = NULL, *faulty = NULL, *w = NULL;
	char *reason = NULL;

	op_context_init(&context);
	CHECK_RC(0, scheme_open("mem", "", NULL, &inner, &reason));
	CHECK_RC(0, faulty_new(inner, "open_file:1:EIO", &faulty));
	CHECK_RC(0, policy_new(faulty, &agentsignore, &w));
	CHECK_RC(-EIO, look(w, "f"));
	CHECK_RC(-ENOENT, look(w, "f"));
	workspace_free(w);
}

/* ---- Changes --------------------------------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char changes[4096]; /* guarded by mutex: " KIND:PATH" ... */

static void keep_change(void *user, const struct change *change)
{
	size_t used;

	(void)user;
	pthread_mutex_lock(&mutex);
	used = strlen(changes);
	snprintf(changes + used, sizeof(changes) - used, " %s:%s",
		change->kind == CHANGE_ENTRY ? "entry" : "rescan", change->path);
	pthread_mutex_unlock(&mutex);
}

static void forget_changes(void)
{
	pthread_mutex_lock(&mutex);
	*changes = '\0';
	pthread_mutex_unlock(&mutex);
}

static bool was_told(const char *text)
{
	bool found;

	pthread_mutex_lock(&mutex);
	found = strstr(changes, text) != NULL;
	pthread_mutex_unlock(&mutex);
	return found;
}

static bool is_told(const char *text)
{
	for (int i = 0; i < 1000 && !was_told(text); i++)
		usleep(10000);
	return was_told(text);
}

static void watch(struct workspace *w)
{
	bool watched = false;

	forget_changes();
	CHECK_RC(0, workspace_watch(w, keep_change, NULL));
	CHECK_RC(0, workspace_watch_directory(&context, w, &OBJECT_AT(""), &watched));
	CHECK(watched);
}

static void test_changes_do_not_tell_hidden_names(void)
{
	struct workspace *w = new_policy(".env\nsecrets/", "", false);

	run_here("mkdir secrets");
	watch(w);
	run_here("touch .env && rmdir secrets && rm .env && touch last");
	CHECK(is_told(" entry:last"));
	CHECK(was_told(" rescan:")); /* nobody knows any more what "secrets" was */
	CHECK(!was_told(".env"));
	CHECK(!was_told("secrets"));
	end(w);
}

static void test_a_changed_list_holds_at_once(void)
{
	struct workspace *w = new_policy("", "", true);

	run_here("touch key pub");
	watch(w);
	CHECK_RC(0, look(w, "key"));
	run_here("echo key >new && mv new .agentsignore");
	CHECK(is_told(" rescan:"));
	CHECK_RC(-ENOENT, look(w, "key"));
	forget_changes();
	run_here("rm .agentsignore");
	CHECK(is_told(" rescan:"));
	CHECK_RC(0, look(w, "key"));
	end(w);
}

TEST_MAIN("policy", TEST(test_what_is_hidden_is_not_there),
	TEST(test_of_a_large_search_not_all_lines_are_kept),
	TEST(test_what_is_hidden_cannot_be_made), TEST(test_a_pattern_for_directories_spares_files),
	TEST(test_the_last_pattern_that_matches_decides),
	TEST(test_what_is_protected_can_only_be_read),
	TEST(test_a_directory_does_not_leave_the_rules_about_what_is_in_it),
	TEST(test_lists_of_the_workspace_hold_below_them),
	TEST(test_a_list_that_cannot_be_read_shows_nothing),
	TEST(test_changes_do_not_tell_hidden_names), TEST(test_a_changed_list_holds_at_once))
