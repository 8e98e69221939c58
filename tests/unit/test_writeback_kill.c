/* The daemon is killed at any moment; the next mount brings the workspace to where the callers
 * were.
 *
 * A process does random work on a slow workspace with writes=back, and counts the calls that were
 * answered.  It is killed.  The journal is taken up, and the workspace has to be as a directory is
 * in which the same calls were made (or one more: the one that was under way).
 * WRITEBACK_RUNS=N: so many kills. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/backend.h"
#include "ops/forward.h"
#include "ops/support/buffer.h"
#include "ops/support/path.h"
#include "ops/writeback/writeback.h"
#include "tests/check.h"
#include "tests/mounted/random.h"
#include "tests/remove_tree.h"

enum { STEPS = 400, RUNS = 25, SLOW_US = 400 };

static char top[64];
static unsigned *answered; /* shared with the process that is killed */
static unsigned limit;     /* calls that are made */
static struct workspace *w;
static struct op_context context;

/* ---- A slow workspace --------------------------- */

static int be_slow(struct forward *base, enum forward_operation operation)
{
	(void)base;
	(void)operation;
	usleep(SLOW_US);
	return 0;
}

/* Its link seems to be away half of the time, so that files are stored again while they are stored.
 */
static void seem_away(struct workspace *inner, struct workspace_status *ret_status)
{
	static atomic_uint looks;

	forward_status(inner, ret_status);
	if (atomic_fetch_add(&looks, 1) / 2 % 2)
		ret_status->link = LINK_OFFLINE;
}

static struct workspace *open_directory(const char *name, bool is_slow)
{
	cleanup_free char *path = string_printf("%s/%s", top, name), *reason = NULL;
	struct workspace *inner = NULL;
	struct forward *slow;

	if (!CHECK_RC(0, scheme_open("local", path, NULL, &inner, &reason)) || !is_slow)
		return inner;
	slow = calloc(1, sizeof(*slow));
	forward_init(slow, inner, &forward_ops);
	slow->ops.name = "slow";
	slow->ops.status = seem_away;
	slow->before = be_slow;
	return &slow->workspace;
}

static struct workspace *open_back(void)
{
	cleanup_free char *state = string_printf("%s/state", top);
	cleanup_free char *lost = string_printf("%s/lost", top);
	cleanup_free char *reason = NULL;
	const struct writeback_options options = {state, lost, "test:", false};
	struct workspace *back = NULL;
	int r = writeback_new(open_directory("there", true), &options, &back, &reason);

	if (!CHECK_RC(0, r))
		fprintf(stderr, "%s\n", reason ? reason : "");
	return back;
}

/* ---- Random work --------------------------- */

/* One call of the workspace, unless there were enough. */
#define CALL(call)                       \
	do {                             \
		if (*answered < limit) { \
			(void)(call);    \
			++*answered;     \
		}                        \
	} while (0)

static const char *a_directory(void)
{
	static const char *const directories[] = {"", "", "a", "b", "a/c"};

	return directories[below(5)];
}

static const char *a_path(void)
{
	static char paths[2][32];
	static unsigned turn;
	char *path = paths[turn++ % 2];
	const char *directory = a_directory();

	snprintf(path, sizeof(paths[0]), "%s%sf%zu", directory, *directory ? "/" : "", below(5));
	return path;
}

static const char *a_new_directory(void)
{
	static const char *const directories[] = {"a", "b", "a/c"};

	return directories[below(3)];
}

static void write_file(void)
{
	char text[9000];
	size_t size = below(4) ? below(200) : below(sizeof(text)), half = below(size);
	const char *path = a_path();
	bool is_new = below(2);
	struct object_ref object = OBJECT_AT(path);
	struct attributes attributes;
	struct open_file *file = NULL;

	memset(text, (int)('a' + below(26)), size);
	if (is_new)
		CALL(workspace_create(&context, w, path, O_RDWR, 0644, &file, &attributes));
	else
		CALL(workspace_open_file(
			&context, w, &object, O_WRONLY | O_TRUNC, &file, &attributes));
	if (!file)
		return;
	CALL(workspace_write(&context, file, text, half, 0));
	CALL(workspace_write(&context, file, text + half, size - half, (off_t)half));
	CALL(workspace_flush(&context, file));
	workspace_close(&context, file);
}

static void append(void)
{
	const char *path = a_path();
	struct object_ref object = OBJECT_AT(path);
	struct attributes attributes;
	struct open_file *file = NULL;

	CALL(workspace_open_file(&context, w, &object, O_WRONLY | O_APPEND, &file, &attributes));
	if (!file)
		return;
	CALL(workspace_write(&context, file, "more", 4, 0));
	CALL(workspace_flush(&context, file));
	workspace_close(&context, file);
}

static void unlink_file(void)
{
	CALL(workspace_unlink(&context, w, a_path(), NULL));
}

static void rename_file(void)
{
	const char *from = a_path(), *to = a_path();

	CALL(workspace_rename(&context, w, from, to, below(4) ? 0 : RENAME_KEEP_TARGET, NULL));
}

static void make_directory(void)
{
	struct attributes attributes;

	CALL(workspace_mkdir(&context, w, a_new_directory(), 0755, &attributes));
}

static void remove_directory(void)
{
	CALL(workspace_rmdir(&context, w, a_new_directory(), NULL));
}

static void change_mode(void)
{
	struct attributes want = {.mode = 0600 + 8 * (uint32_t)below(8)};
	struct object_ref object = OBJECT_AT(a_path());

	CALL(workspace_setattr(&context, w, &object, SET_MODE, &want, &want));
}

static void make_link(void)
{
	struct attributes attributes;

	CALL(workspace_symlink(&context, w, below(2) ? "x" : "yy", a_path(), &attributes));
}

static const struct step steps[] = {{write_file, 8, "write"}, {append, 1, "append"},
	{unlink_file, 4, "unlink"}, {rename_file, 4, "rename"}, {make_directory, 3, "mkdir"},
	{remove_directory, 2, "rmdir"}, {change_mode, 2, "chmod"}, {make_link, 1, "symlink"}};

static void work(uint64_t seed, unsigned calls)
{
	random_state = seed;
	limit = calls;
	*answered = 0;
	for (int i = 0; i < STEPS && *answered < limit; i++)
		any_step(steps, sizeof(steps) / sizeof(steps[0]))->run();
}

/* ---- Comparison --------------------------- */

static void describe(const char *path, const char *name, struct buffer *text)
{
	char content[16384], target[64] = "";
	cleanup_fd int fd = open(path, O_RDONLY | O_NOFOLLOW);
	ssize_t size = fd < 0 ? 0 : read(fd, content, sizeof(content));
	unsigned sum = 0;
	struct stat st;

	if (lstat(path, &st) < 0)
		return;
	for (ssize_t i = 0; i < size; i++)
		sum = sum * 31 + (unsigned char)content[i];
	if (S_ISLNK(st.st_mode))
		(void)!readlink(path, target, sizeof(target) - 1);
	buffer_printf(text, "%s %o %lld %u %s\n", name, st.st_mode,
		S_ISREG(st.st_mode) ? (long long)st.st_size : 0, S_ISREG(st.st_mode) ? sum : 0,
		target);
}

static void describe_tree(const char *path, const char *prefix, struct buffer *text)
{
	struct dirent **entries;
	int count = scandir(path, &entries, NULL, alphasort);

	for (int i = 0; i < count; i++) {
		cleanup_free char *below_it = string_printf("%s/%s", path, entries[i]->d_name);
		cleanup_free char *name = path_join(prefix, entries[i]->d_name);

		if (entries[i]->d_name[0] != '.') {
			describe(below_it, name, text);
			if (entries[i]->d_type == DT_DIR)
				describe_tree(below_it, name, text);
		}
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

static char *tree_at(const char *name)
{
	struct buffer text = {0};
	cleanup_free char *path = string_printf("%s/%s", top, name);

	buffer_printf(&text, " ");
	describe_tree(path, "", &text);
	return buffer_steal_string(&text);
}

static void empty(const char *name, bool make)
{
	cleanup_free char *path = string_printf("%s/%s", top, name);

	remove_tree(path);
	if (make)
		mkdir(path, 0755);
}

/* The tree after so many calls, made on a directory without anything between. */
static char *tree_after(uint64_t seed, unsigned calls)
{
	empty("here", true);
	w = open_directory("here", false);
	work(seed, calls);
	workspace_free(w);
	return tree_at("here");
}

static void *kill_later(uint64_t delay_us, pid_t pid)
{
	usleep((useconds_t)delay_us);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return NULL;
}

static pid_t start_work(uint64_t seed)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		w = open_back();
		work(seed, UINT_MAX);
		pause();
	}
	return pid;
}

static bool has_lost(void)
{
	cleanup_free char *path = string_printf("%s/lost", top);

	return access(path, F_OK) == 0;
}

static bool run(uint64_t seed)
{
	cleanup_free char *got = NULL, *before = NULL, *after = NULL;
	unsigned calls;
	bool is_right;

	empty("there", true);
	empty("state", false);
	empty("lost", false);
	*answered = 0;
	random_state = seed ^ 0xabcdef;
	kill_later(3000 + below(120000), start_work(seed));
	calls = *answered;
	w = open_back();
	workspace_free(w); /* all that was pending is there */
	got = tree_at("there");
	before = tree_after(seed, calls);
	after = tree_after(seed, calls + 1);
	is_right = strcmp(got, before) == 0 || strcmp(got, after) == 0;
	if (!is_right || has_lost())
		fprintf(stderr, "seed %llu, %u calls%s:\ngot\n%s\nwant\n%s\nor\n%s\n",
			(unsigned long long)seed, calls,
			has_lost() ? ", and something was lost" : "", got, before, after);
	return is_right && !has_lost();
}

static void test_nothing_is_lost_when_the_daemon_is_killed(void)
{
	const char *wanted = getenv("WRITEBACK_RUNS"), *first = getenv("WRITEBACK_SEED");
	uint64_t seed = first ? strtoull(first, NULL, 10) : 1;
	int runs = wanted ? atoi(wanted) : RUNS, failed = 0;

	for (int i = 0; i < runs; i++)
		failed += !run(seed + (uint64_t)i);
	CHECK_RC(0, failed);
}

int main(void)
{
	static const struct test_case cases[] = {
		TEST(test_nothing_is_lost_when_the_daemon_is_killed)};
	int r;

	snprintf(top, sizeof(top), "/tmp/isthmus-writeback-XXXXXX");
	if (!mkdtemp(top))
		return 2;
	umask(022);
	op_context_init(&context);
	answered = mmap(
		NULL, sizeof(*answered), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	r = test_run("writeback_kill", cases, 1);
	remove_tree(top);
	return r;
}
