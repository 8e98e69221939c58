/* What writes=back changes: what is answered before it is done, and what becomes of it. */
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/backend.h"
#include "ops/cache/cached.h"
#include "ops/faulty.h"
#include "ops/forward.h"
#include "ops/support/buffer.h"
#include "ops/support/clock.h"
#include "ops/writeback/writeback_internal.h"
#include "tests/check.h"
#include "tests/remove_tree.h"

static char top[64];
static struct op_context context;
static struct attributes attributes; /* room for what nobody looks at */

/* ---- The workspace: mem, with faults, behind a gate --------------------------- */

static struct workspace *there; /* what others see */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
static bool is_shut, is_away;
static bool seems_away;      /* only its status */
static unsigned turned_away; /* attempts to create a file */

static void take_away(bool takes)
{
	__atomic_store_n(&is_away, takes, __ATOMIC_SEQ_CST);
}

static void shut(bool shuts)
{
	pthread_mutex_lock(&gate_lock);
	is_shut = shuts;
	pthread_cond_broadcast(&gate_moved);
	pthread_mutex_unlock(&gate_lock);
}

static bool is_change(enum forward_operation operation)
{
	return operation == OPERATION_mkdir || operation == OPERATION_create ||
	       operation == OPERATION_symlink || operation == OPERATION_unlink ||
	       operation == OPERATION_rmdir || operation == OPERATION_rename ||
	       operation == OPERATION_setattr || operation == OPERATION_open_file;
}

/* Called once, at the first such operation that passes. */
static void (*intrude)(void);
static enum forward_operation intrude_at;

static enum forward_operation last_at_gate;

static void await_at_gate(enum forward_operation operation)
{
	pthread_mutex_lock(&gate_lock);
	while (last_at_gate != operation)
		pthread_cond_wait(&gate_moved, &gate_lock);
	pthread_mutex_unlock(&gate_lock);
}

static int wait_at_gate(struct forward *base, enum forward_operation operation)
{
	void (*intruder)(void) = NULL;

	(void)base;
	pthread_mutex_lock(&gate_lock);
	while (is_shut && is_change(operation)) {
		last_at_gate = operation;
		pthread_cond_broadcast(&gate_moved);
		pthread_cond_wait(&gate_moved, &gate_lock);
	}
	if (intrude && operation == intrude_at) {
		intruder = intrude;
		intrude = NULL;
	}
	pthread_mutex_unlock(&gate_lock);
	if (intruder)
		intruder();
	if (!__atomic_load_n(&is_away, __ATOMIC_SEQ_CST) || !is_change(operation))
		return 0;
	if (operation == OPERATION_create)
		__atomic_add_fetch(&turned_away, 1, __ATOMIC_SEQ_CST);
	return -ENOTCONN;
}

static void intrude_once(enum forward_operation operation, void (*intruder)(void))
{
	pthread_mutex_lock(&gate_lock);
	intrude_at = operation;
	intrude = intruder;
	pthread_mutex_unlock(&gate_lock);
}

static void status_at_gate(struct workspace *w, struct workspace_status *ret_status)
{
	forward_status(w, ret_status);
	if (__atomic_load_n(&is_away, __ATOMIC_SEQ_CST) ||
		__atomic_load_n(&seems_away, __ATOMIC_SEQ_CST))
		ret_status->link = LINK_OFFLINE;
}

/* Called once, when the workspace has listed a directory. */
static void (*after_listing)(void);

static int list_and_intrude(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, bool watch, dir_entry_sink sink, void *user,
	uint64_t *ret_since)
{
	void (*intruder)(void) = after_listing;
	int r = forward_readdir(ctx, w, object, watch, sink, user, ret_since);

	after_listing = NULL;
	if (intruder)
		intruder();
	return r;
}

/* Called once, before the workspace lists a directory, which has a position after that. */
static void (*before_listing)(void);

/* As a cache answers, or passes on what was done without waiting. */
static atomic_bool tells_no_positions;
static bool lists_without_position;

static int intrude_and_list(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, bool watch, dir_entry_sink sink, void *user,
	uint64_t *ret_since)
{
	void (*intruder)(void) = before_listing;
	int r;

	before_listing = NULL;
	if (intruder)
		intruder();
	r = list_and_intrude(ctx, w, object, watch, sink, user, ret_since);
	if (intruder)
		ctx->served.position = 1ull << 40;
	if (lists_without_position)
		ctx->served.position = 0;
	return r;
}

/* A file system that gives modes of its own; and one is created, and its answer is lost. */
static bool changes_modes, loses_create;

static int create_at_gate(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	bool is_lost = loses_create;
	int r = forward_create(
		ctx, w, path, flags, changes_modes ? 0600 : mode, ret_file, ret_attributes);

	if (tells_no_positions)
		ctx->served.position = 0;
	loses_create = false;
	if (r < 0 || !is_lost)
		return r;
	workspace_close(ctx, *ret_file);
	return -ENOTCONN;
}

static change_sink sink_at_gate;
static void *sink_user;

static int watch_at_gate(struct workspace *w, change_sink sink, void *user)
{
	(void)w;
	sink_at_gate = sink;
	sink_user = user;
	return 0;
}

/* One is done, and its answer is lost. */
static bool loses_setattr;

static int set_and_lose(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, unsigned mask, const struct attributes *want,
	struct attributes *ret_attributes)
{
	int r = forward_setattr(ctx, w, object, mask, want, ret_attributes);
	bool is_lost = loses_setattr;

	if (tells_no_positions)
		ctx->served.position = 0;
	loses_setattr = false;
	return is_lost ? -ENOTCONN : r;
}

/* It cannot be asked about this one. */
static const char *unanswered;

static int getattr_at_gate(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, struct attributes *ret_attributes)
{
	int r;

	if (unanswered && object->path && strcmp(object->path, unanswered) == 0)
		return -EIO;
	r = forward_getattr(ctx, w, object, ret_attributes);
	if (tells_no_positions)
		ctx->served.position = 0;
	return r;
}

static ssize_t getxattr_at_gate(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name, void *value, size_t size)
{
	return __atomic_load_n(&is_away, __ATOMIC_SEQ_CST)
		       ? -EIO
		       : forward_getxattr(ctx, w, object, name, value, size);
}

static char *directory_of(const char *kind)
{
	return string_printf("%s/%s", top, kind);
}

static struct workspace *put_back(struct workspace *inner)
{
	cleanup_free char *state = directory_of("state"), *lost = directory_of("lost");
	cleanup_free char *reason = NULL;
	const struct writeback_options options = {state, lost, "test:", false};
	struct forward *gate = calloc(1, sizeof(*gate));
	struct workspace *w = NULL;

	forward_init(gate, inner, &forward_ops);
	gate->ops.name = "gate";
	gate->ops.readdir = intrude_and_list;
	gate->ops.create = create_at_gate;
	gate->ops.status = status_at_gate;
	gate->ops.watch = watch_at_gate;
	gate->ops.setattr = set_and_lose;
	gate->ops.getattr = getattr_at_gate;
	gate->ops.getxattr = getxattr_at_gate;
	gate->before = wait_at_gate;
	if (!CHECK_RC(0, writeback_new(&gate->workspace, &options, &w, &reason)))
		fprintf(stderr, "%s\n", reason ? reason : "");
	return w;
}

static void remove_state(void)
{
	cleanup_free char *state = directory_of("state"), *lost = directory_of("lost");

	remove_tree(state);
	remove_tree(lost);
	op_context_init(&context);
}

/* Nothing was changed through it yet. */
static struct workspace *open_unchanged(void)
{
	struct workspace *mem = NULL;
	char *reason = NULL;

	remove_state();
	CHECK_RC(0, scheme_open("mem", "", NULL, &mem, &reason));
	CHECK_RC(0, faulty_new(mem, "", &there));
	return put_back(there);
}

static struct workspace *open_back(void)
{
	struct workspace *w = open_unchanged();

	CHECK_RC(0, workspace_symlink(&context, w, "x", "first", &attributes)); /* passed on */
	return w;
}

/* A workspace that stays when its mount ends. */
static struct workspace *open_again(void)
{
	cleanup_free char *directory = directory_of("there"), *reason = NULL;
	struct workspace *local = NULL;

	mkdir(directory, 0755);
	CHECK_RC(0, scheme_open("local", directory, NULL, &local, &reason));
	CHECK_RC(0, faulty_new(local, "", &there));
	return put_back(there);
}

static struct workspace *open_lasting(void)
{
	cleanup_free char *directory = directory_of("there");
	struct workspace *w;

	remove_state();
	remove_tree(directory);
	w = open_again();
	CHECK_RC(0, workspace_symlink(&context, w, "x", "first", &attributes)); /* passed on */
	return w;
}

static int sync_all(struct workspace *w)
{
	return workspace_fsync(&context, w, NULL, "", false);
}

/* ---- Short forms --------------------------- */

static int put(struct workspace *w, const char *path, const char *text, int flags)
{
	struct object_ref object = OBJECT_AT(path);
	struct open_file *file;
	int r = workspace_open_file(&context, w, &object, O_WRONLY | flags, &file, &attributes);

	if (r == -ENOENT)
		r = workspace_create(&context, w, path, O_RDWR, 0644, &file, &attributes);
	if (r < 0)
		return r;
	r = (int)workspace_write(&context, file, text, strlen(text), 0);
	workspace_flush(&context, file);
	workspace_close(&context, file);
	return r < 0 ? r : 0;
}

static const char *get(struct workspace *w, const char *path)
{
	static char text[256];
	struct object_ref object = OBJECT_AT(path);
	struct open_file *file;
	struct op_context own;
	ssize_t got;
	int r;

	op_context_init(&own);
	r = workspace_open_file(&own, w, &object, O_RDONLY, &file, &attributes);
	if (r < 0)
		return strerrorname_np(-r);
	got = workspace_read(&own, file, text, sizeof(text) - 1, 0);
	text[got > 0 ? got : 0] = '\0';
	workspace_close(&own, file);
	return text;
}

static int stat_at(struct workspace *w, const char *path, struct attributes *ret_attributes)
{
	return workspace_getattr(&context, w, &OBJECT_AT(path), ret_attributes);
}

static int set_mode(struct workspace *w, const char *path)
{
	struct object_ref object = OBJECT_AT(path);
	const struct attributes want = {.mode = 0600};

	return workspace_setattr(&context, w, &object, SET_MODE, &want, &attributes);
}

static char lost_text[1024];

static void note_lost(void *user, const struct writeback_lost *lost)
{
	size_t used = strlen(lost_text);

	(void)user;
	snprintf(lost_text + used, sizeof(lost_text) - used, "%s %s%s%s%s: %s;", lost->verb,
		lost->path, *lost->path2 ? " " : "", lost->path2, lost->has_content ? " +" : "",
		lost->reason);
}

/* "VERB PATH[ +]: REASON;" for each; + where its content is kept. */
static const char *lost(void)
{
	cleanup_free char *directory = directory_of("lost");

	*lost_text = '\0';
	writeback_lost_each(directory, note_lost, NULL);
	return lost_text;
}

/* ---- What is answered before it is done --------------------------- */

static void test_changes_are_seen_here_before_they_are_there(void)
{
	struct workspace *w = open_back();

	shut(true);
	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	CHECK_RC(0, put(w, "d/f", "text", O_TRUNC));
	CHECK_STRING("text", get(w, "d/f"));
	CHECK_RC(0, workspace_rename(&context, w, "d/f", "d/g", 0, NULL));
	CHECK_STRING("text", get(w, "d/g"));
	CHECK_RC(-ENOENT, stat_at(w, "d/f", &attributes));
	CHECK_RC(-ENOENT, stat_at(there, "d", &attributes));
	shut(false);
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("text", get(there, "d/g"));
	CHECK_RC(-ENOENT, stat_at(there, "d/f", &attributes));
	CHECK_STRING("", lost());
	workspace_free(w);
}

static bool is_known(struct workspace *w)
{
	struct writeback *b = writeback_of(w);
	bool is_known;

	writeback_lock(b);
	is_known = b->knows_clock && back_identity(b, &context);
	writeback_unlock(b);
	return is_known;
}

static void test_the_first_change_does_not_wait_for_the_link(void)
{
	struct workspace *w = open_unchanged();

	CHECK_RC(0, workspace_mkdir(&context, there, "d", 0755, &attributes));
	CHECK_RC(0, put(there, "d/f", "old", O_TRUNC));
	CHECK_RC(0, stat_at(w, "", &attributes));
	for (int i = 0; i < 500 && !is_known(w); i++)
		usleep(10000);
	CHECK(is_known(w));
	take_away(true);
	CHECK_RC(0, put(w, "f", "text", O_TRUNC));
	CHECK_RC(0, workspace_mkdir(&context, w, "made", 0755, &attributes));
	CHECK_RC(0, put(w, "d/f", "new", O_TRUNC));
	CHECK_RC(0, put(w, "d/g", "text", O_TRUNC));
	take_away(false);
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("text", get(there, "f"));
	CHECK_STRING("new", get(there, "d/f"));
	CHECK_STRING("text", get(there, "d/g"));
	CHECK_STRING("", lost());
	workspace_free(w);
}

enum { RENAMED = 6 };

static struct workspace *renaming;
static unsigned renamed;

static void begin_a_rename(void)
{
	char from[8], to[8];

	shut(true);
	snprintf(from, sizeof(from), "f%u", renamed);
	snprintf(to, sizeof(to), "g%u", renamed++);
	CHECK_RC(0, workspace_rename(&context, renaming, from, to, 0, NULL));
}

/* One ends that the listing does not show, and the next one begins. */
static void let_a_rename_end(void)
{
	shut(false);
	CHECK_RC(0, sync_all(renaming));
	if (renamed == RENAMED)
		return;
	begin_a_rename();
	after_listing = let_a_rename_end;
}

static int count_name(void *user, const struct dir_entry *entry)
{
	(void)entry;
	++*(unsigned *)user;
	return 0;
}

static void test_a_listing_has_what_renames_that_end_meanwhile_leave(void)
{
	unsigned names = 0;
	uint64_t since;
	char path[8];

	renaming = open_back();
	renamed = 0;
	CHECK_RC(0, workspace_unlink(&context, renaming, "first", NULL));
	CHECK_RC(0, sync_all(renaming));
	for (unsigned i = 0; i < RENAMED; i++) {
		snprintf(path, sizeof(path), "f%u", i);
		CHECK_RC(0, put(there, path, "text", O_TRUNC));
	}
	begin_a_rename();
	after_listing = let_a_rename_end;
	CHECK_RC(0, workspace_readdir(
			    &context, renaming, &OBJECT_AT(""), false, count_name, &names, &since));
	CHECK_RC(RENAMED, names);
	after_listing = NULL;
	shut(false);
	CHECK_STRING("", lost());
	workspace_free(renaming);
}

static void let_it_end_and_write(void)
{
	shut(false);
	CHECK_RC(0, sync_all(renaming));
	CHECK_RC(0, put(there, "f", "longer, and theirs", O_TRUNC));
}

static int note_size(void *user, const struct dir_entry *entry)
{
	if (strcmp(entry->path, "f") == 0)
		*(uint64_t *)user = entry->attributes.size_bytes;
	return 0;
}

static void test_a_listing_has_what_others_did_after_ours_ended(void)
{
	uint64_t since, size = 0;

	renaming = open_back();
	CHECK_RC(0, put(renaming, "f", "ours", O_TRUNC));
	CHECK_RC(0, sync_all(renaming));
	shut(true);
	CHECK_RC(0, set_mode(renaming, "f"));
	before_listing = let_it_end_and_write;
	CHECK_RC(0, workspace_readdir(
			    &context, renaming, &OBJECT_AT(""), false, note_size, &size, &since));
	CHECK_RC(strlen("longer, and theirs"), size);
	workspace_free(renaming);
}

static void let_all_end(void)
{
	shut(false);
	sync_all(renaming);
}

static void test_a_listing_has_what_others_made_where_ours_is_refused_meanwhile(void)
{
	unsigned names = 0;
	uint64_t since;

	renaming = open_back();
	CHECK_RC(0, workspace_unlink(&context, renaming, "first", NULL));
	CHECK_RC(0, sync_all(renaming));
	shut(true);
	CHECK_RC(0, put(renaming, "f", "ours", O_TRUNC));
	CHECK_RC(0, put(there, "f", "theirs", O_TRUNC));
	after_listing = let_all_end;
	lists_without_position = true;
	CHECK_RC(0, workspace_readdir(
			    &context, renaming, &OBJECT_AT(""), false, count_name, &names, &since));
	CHECK_RC(1, names);
	lists_without_position = false;
	CHECK_STRING("create f +: somebody else has changed it meanwhile;", lost());
	workspace_free(renaming);
}

/* Names are made, renamed and removed while pending operations end at any moment of a listing,
 * whose position and those of the operations are known or not. */
enum { LISTED_NAMES = 10, LISTINGS = 400 };

static struct listed_names {
	uint32_t random;
	bool is_there[LISTED_NAMES];                            /* now ... */
	bool was_always[LISTED_NAMES], was_never[LISTED_NAMES]; /* ... during this listing */
	unsigned times_listed[LISTED_NAMES];
} names_model;

static unsigned choose(unsigned count)
{
	names_model.random = names_model.random * 1664525 + 1013904223;
	return (names_model.random >> 16) % count;
}

static void change_a_name(void)
{
	unsigned from = choose(LISTED_NAMES), to = choose(LISTED_NAMES);
	bool *is_there = names_model.is_there;
	char path[] = "a", path2[] = "a";

	path[0] += (char)from;
	path2[0] += (char)to;
	if (!is_there[from]) {
		CHECK_RC(0, put(renaming, path, "text", O_TRUNC));
		is_there[from] = true;
	} else if (from == to || choose(2)) {
		CHECK_RC(0, workspace_unlink(&context, renaming, path, NULL));
		is_there[from] = false;
	} else {
		CHECK_RC(0, workspace_rename(&context, renaming, path, path2, 0, NULL));
		is_there[from] = false;
		is_there[to] = true;
	}
	for (unsigned i = 0; i < LISTED_NAMES; i++) {
		names_model.was_always[i] = names_model.was_always[i] && is_there[i];
		names_model.was_never[i] = names_model.was_never[i] && !is_there[i];
	}
}

static void change_names(void)
{
	for (unsigned i = choose(6); i > 0; i--) {
		shut(true);
		tells_no_positions = choose(2);
		change_a_name();
		if (!choose(3))
			let_all_end();
	}
	shut(true);
}

static int note_listed(void *user, const struct dir_entry *entry)
{
	(void)user;
	names_model.times_listed[entry->path[0] - 'a']++;
	return 0;
}

static bool check_a_listing(void)
{
	bool is_right = true;
	struct op_context own; /* what changes meanwhile has its positions in the other one */
	uint64_t since;

	op_context_init(&own);

	for (unsigned i = 0; i < LISTED_NAMES; i++) {
		names_model.was_always[i] = names_model.is_there[i];
		names_model.was_never[i] = !names_model.is_there[i];
		names_model.times_listed[i] = 0;
	}
	lists_without_position = choose(2);
	/* Only what comes after it makes its position one that is after all of them. */
	before_listing = lists_without_position ? change_names : NULL;
	after_listing = change_names;
	CHECK_RC(0, workspace_readdir(
			    &own, renaming, &OBJECT_AT(""), false, note_listed, NULL, &since));
	for (unsigned i = 0; i < LISTED_NAMES; i++) {
		unsigned times = names_model.times_listed[i];

		if (times <= !names_model.was_never[i] && times >= names_model.was_always[i])
			continue;
		fprintf(stderr, "\"%c\" was listed %u times, although it was %s there\n", 'a' + i,
			times,
			names_model.was_always[i]  ? "always"
			: names_model.was_never[i] ? "never"
						   : "sometimes");
		is_right = false;
	}
	return is_right;
}

static void test_a_listing_is_complete_whenever_operations_end(void)
{
	bool is_right = true;

	renaming = open_back();
	CHECK_RC(0, workspace_unlink(&context, renaming, "first", NULL));
	CHECK_RC(0, sync_all(renaming));
	names_model = (struct listed_names){.random = 1};
	for (unsigned i = 0; i < LISTINGS && is_right; i++) {
		change_names();
		is_right = check_a_listing();
		if (!is_right)
			fprintf(stderr, "listing %u is not right\n", i);
	}
	CHECK(is_right);
	lists_without_position = false;
	tells_no_positions = false;
	before_listing = after_listing = NULL;
	shut(false);
	CHECK_RC(0, sync_all(renaming));
	CHECK_STRING("", lost());
	workspace_free(renaming);
}

static struct object_id make_idle_node(struct writeback *b, uint32_t mode)
{
	struct object_id id = back_new_id(b);
	struct object_id real = {.device = 1, .inode = id.inode};
	struct node *node = back_node_add(b, &id, NULL);

	node->shown.mode = mode;
	back_node_made(b, node, &real);
	back_node_release(b, node);
	return id;
}

static void test_a_directory_keeps_its_number_while_files_are_made(void)
{
	struct writeback *b = calloc(1, sizeof(*b));
	struct object_id id;

	CHECK_RC(0, back_tables_init(b));
	id = make_idle_node(b, S_IFDIR | 0755);
	for (int i = 0; i < 200001; i++)
		make_idle_node(b, S_IFREG | 0644);
	CHECK(back_node(b, &id) != NULL);
	back_tables_done(b);
	free(b);
}

/* As JavaScript has it. */
static void test_provisional_numbers_differ_as_doubles_and_from_those_of_the_workspace(void)
{
	struct writeback *b = calloc(1, sizeof(*b));
	const double first = 4503599627370496, end = 9007199254740992;
	struct object_id id, next;

	CHECK_RC(0, back_tables_init(b));
	for (int i = 0; i < 3; i++) {
		id = back_new_id(b);
		next = back_new_id(b);
		CHECK((double)id.inode != (double)next.inode);
		CHECK((double)id.inode >= first && (double)next.inode < end);
		CHECK(back_is_provisional(&id));
		b->made = (1ull << 52) - 2 + (uint64_t)i; /* the last ones before it begins anew */
	}
	id.inode = (1ull << 52) + (1ull << 51); /* found in a journal */
	b->made = 7;
	back_is_made(b, &id);
	next = back_new_id(b);
	CHECK_RC(1, (int)(next.inode - id.inode));
	back_tables_done(b);
	free(b);
}

static void await_mode(const char *path, uint32_t mode)
{
	for (int i = 0; i < 500; i++) {
		if (stat_at(there, path, &attributes) == 0 && (attributes.mode & 07777) == mode)
			return;
		usleep(10000);
	}
	CHECK(false);
}

static void test_a_directory_has_its_new_mode_while_names_in_it_are_pending(void)
{
	static const struct attributes writable = {.mode = 0777};
	struct workspace *w = open_back();
	struct open_file *file;

	CHECK_RC(0, workspace_mkdir(&context, there, "d", 0755, &attributes));
	shut(true);
	CHECK_RC(0, put(w, "d/before", "text", O_TRUNC));
	CHECK_RC(0,
		workspace_setattr(&context, w, &OBJECT_AT("d"), SET_MODE, &writable, &attributes));
	CHECK_RC(0, workspace_create(&context, w, "d/held", O_RDWR, 0644, &file, &attributes));
	shut(false);
	await_mode("d", 0777);
	CHECK_RC(0, stat_at(w, "d", &attributes));
	CHECK_RC(0777, (int)(attributes.mode & 07777));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, sync_all(w));
	workspace_free(w);
}

static void test_what_is_shown_stays_when_it_is_done(void)
{
	struct workspace *w = open_back();
	struct attributes before, after, far;

	shut(true);
	CHECK_RC(0, put(w, "f", "text", O_TRUNC));
	CHECK_RC(0, stat_at(w, "f", &before));
	shut(false);
	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, stat_at(w, "f", &after));
	CHECK(attributes_same_version(&before, &after));
	CHECK_RC(before.blocks, after.blocks);
	CHECK_RC(0, stat_at(there, "f", &far));
	CHECK(far.id.inode != before.id.inode);
	CHECK(memcmp(&far.mtime, &before.mtime, sizeof(far.mtime)) == 0);
	workspace_free(w);
}

/* All wait at the gate: what is created after this is not sent before it opens. */
static void occupy_workers(struct workspace *w)
{
	for (int i = 0; i < WORKERS + 8; i++) {
		char path[16];

		snprintf(path, sizeof(path), "f%d", i);
		CHECK_RC(0, put(w, path, "text", O_TRUNC));
	}
}

static void test_what_is_removed_before_it_was_sent_is_never_sent(void)
{
	struct workspace *w = open_back();
	struct open_file *file;

	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, faulty_set(there, ""));
	/* A file that is open for writing is not sent yet. */
	CHECK_RC(0, workspace_create(&context, w, "held", O_RDWR, 0644, &file, &attributes));
	CHECK_RC(1, workspace_write(&context, file, "x", 1, 0));
	shut(true);
	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	occupy_workers(w);
	CHECK_RC(0, put(w, "d/last", "text", O_TRUNC));
	CHECK_RC(0, workspace_unlink(&context, w, "d/last", NULL));
	CHECK_RC(-ENOENT, stat_at(w, "d/last", &attributes));
	shut(false);
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, sync_all(w));
	CHECK_RC(WORKERS + 9, faulty_calls(there, "create")); /* these and "held" */
	CHECK_RC(0, faulty_calls(there, "unlink"));
	workspace_free(w);
}

/* As a mail reader looks whether it has to list a Maildir again. */
static void test_a_directory_keeps_the_time_of_what_was_never_sent(void)
{
	struct workspace *w = open_back();
	struct attributes before, after, later;

	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	attributes.mtime.tv_sec -= 5;
	CHECK_RC(0, workspace_setattr(&context, w, &(struct object_ref){.path = "d"}, SET_MTIME,
			    &attributes, &attributes));
	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, stat_at(w, "d", &before));
	shut(true);
	occupy_workers(w);
	CHECK_RC(0, put(w, "d/f", "text", O_TRUNC));
	CHECK_RC(0, workspace_unlink(&context, w, "d/f", NULL));
	CHECK_RC(0, stat_at(w, "d", &after));
	CHECK(after.mtime.tv_sec > before.mtime.tv_sec);
	shut(false);
	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, stat_at(w, "d", &later));
	CHECK(memcmp(&later.mtime, &after.mtime, sizeof(later.mtime)) == 0);
	workspace_free(w);
}

static void test_writes_of_a_file_are_sent_once(void)
{
	struct workspace *w = open_back();
	struct open_file *file;

	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, faulty_set(there, ""));
	CHECK_RC(0, workspace_create(&context, w, "f", O_RDWR, 0644, &file, &attributes));
	for (int i = 0; i < 100; i++)
		CHECK_RC(1, workspace_write(&context, file, &"ab"[i % 2], 1, i % 10));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, sync_all(w));
	CHECK_RC(1, faulty_calls(there, "write"));
	CHECK_STRING("ababababab", get(there, "f"));
	workspace_free(w);
}

static void check_holes(struct workspace *w)
{
	struct object_ref object = OBJECT_AT("f");
	struct open_file *file;
	struct op_context own;

	op_context_init(&own);
	CHECK_RC(0, workspace_open_file(&own, w, &object, O_RDONLY, &file, &attributes));
	CHECK_RC(4 << 20, attributes.size_bytes);
	CHECK_RC(0, workspace_seek(&own, file, 0, SEEK_DATA));
	CHECK_RC(4096, workspace_seek(&own, file, 0, SEEK_HOLE));
	CHECK_RC(8192, workspace_seek(&own, file, 8192, SEEK_HOLE));
	CHECK_RC(1 << 20, workspace_seek(&own, file, 4096, SEEK_DATA));
	CHECK_RC((1 << 20) + 3, workspace_seek(&own, file, (1 << 20) + 3, SEEK_DATA));
	CHECK_RC((1 << 20) + 8192, workspace_seek(&own, file, 1 << 20, SEEK_HOLE));
	CHECK_RC(-ENXIO, workspace_seek(&own, file, 2 << 20, SEEK_DATA));
	CHECK_RC(-ENXIO, workspace_seek(&own, file, 4 << 20, SEEK_HOLE));
	CHECK_RC(0, workspace_close(&own, file));
}

static void test_holes_stay_holes(void)
{
	const struct attributes want = {.size_bytes = 4 << 20};
	struct workspace *w = open_back();
	struct open_file *file;

	shut(true);
	CHECK_RC(0, workspace_create(&context, w, "f", O_RDWR, 0644, &file, &attributes));
	CHECK_RC(1, workspace_write(&context, file, "a", 1, 0));
	CHECK_RC(1, workspace_write(&context, file, "b", 1, 1 << 20));
	CHECK_RC(1, workspace_write(&context, file, "c", 1, (1 << 20) + 5000));
	CHECK_RC(0, workspace_setattr(&context, w, &OBJECT_OF(file), SET_SIZE, &want, &attributes));
	CHECK_RC(24, attributes.blocks);
	CHECK_RC(0, workspace_close(&context, file));
	check_holes(w);
	shut(false);
	CHECK_RC(0, sync_all(w));
	check_holes(there);
	CHECK_RC(24, attributes.blocks);
	CHECK_RC(0, stat_at(w, "f", &attributes));
	CHECK_RC(24, attributes.blocks);
	CHECK_STRING("", lost());
	workspace_free(w);
}

static void test_a_file_that_is_synced_is_there(void)
{
	struct workspace *w = open_back();
	struct open_file *file;

	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	CHECK_RC(0, workspace_create(&context, w, "d/f", O_RDWR, 0644, &file, &attributes));
	CHECK_RC(4, workspace_write(&context, file, "text", 4, 0));
	CHECK_RC(0, workspace_fsync(&context, w, file, "", false));
	CHECK_STRING("text", get(there, "d/f"));
	CHECK_RC(4, workspace_write(&context, file, "more", 4, 4));
	CHECK_RC(0, workspace_flush(&context, file));
	CHECK_STRING("textmore", get(there, "d/f"));
	CHECK_RC(0, workspace_close(&context, file));
	workspace_free(w);
}

static void test_a_file_that_may_not_be_opened_again_is_written_on(void)
{
	struct workspace *w = open_back();
	struct open_file *file;

	CHECK_RC(0, workspace_create(&context, w, "f", O_RDWR, 0444, &file, &attributes));
	CHECK_RC(0, faulty_set(there, "open_file:1+:EACCES"));
	CHECK_RC(4, workspace_write(&context, file, "text", 4, 0));
	CHECK_RC(0, workspace_fsync(&context, w, file, "", false));
	CHECK_RC(4, workspace_write(&context, file, "more", 4, 4));
	CHECK_RC(0, workspace_fsync(&context, w, file, "", false));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, faulty_set(there, ""));
	CHECK_STRING("textmore", get(there, "f"));
	workspace_free(w);
}

static void test_a_file_that_may_not_be_opened_again_is_appended_to(void)
{
	struct workspace *w = open_back();
	struct open_file *file;

	CHECK_RC(
		0, workspace_create(&context, w, "f", O_RDWR | O_APPEND, 0444, &file, &attributes));
	CHECK_RC(0, faulty_set(there, "open_file:1+:EACCES"));
	CHECK_RC(4, workspace_write(&context, file, "text", 4, 0));
	CHECK_RC(0, workspace_fsync(&context, w, file, "", false));
	CHECK_RC(4, workspace_write(&context, file, "more", 4, 0));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, faulty_set(there, ""));
	CHECK_STRING("textmore", get(there, "f"));
	workspace_free(w);
}

/* The kernel asks for it between open and write: an empty file is not to be sent then. */
static void test_a_look_at_a_capability_sends_no_truncated_file(void)
{
	struct object_ref object = OBJECT_AT("f");
	struct workspace *w = open_back();
	struct open_file *file;

	CHECK_RC(0, put(there, "f", "old", O_TRUNC));
	CHECK_RC(0, stat_at(w, "f", &attributes));
	shut(true);
	CHECK_RC(0,
		workspace_open_file(&context, w, &object, O_WRONLY | O_TRUNC, &file, &attributes));
	CHECK_RC(
		-ENODATA, workspace_getxattr(&context, w, &object, "security.capability", NULL, 0));
	CHECK_RC(4, workspace_write(&context, file, "anew", 4, 0));
	CHECK_STRING("old", get(there, "f"));
	shut(false);
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("anew", get(there, "f"));
	workspace_free(w);
}

static void test_what_was_done_without_an_answer_is_no_conflict(void)
{
	const struct attributes want = {.mtime.tv_sec = 77};
	struct object_ref object = OBJECT_AT("f");
	struct workspace *w = open_back();

	CHECK_RC(0, put(there, "f", "text", O_TRUNC));
	CHECK_RC(0, stat_at(w, "f", &attributes));
	loses_setattr = true;
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_MTIME, &want, &attributes));
	CHECK_RC(0, workspace_rename(&context, w, "f", "g", 0, NULL));
	CHECK_RC(0, sync_all(w));
	CHECK(!loses_setattr);
	CHECK_STRING("", lost());
	CHECK_STRING("text", get(there, "g"));
	workspace_free(w);
}

static void test_content_that_looks_like_the_old_is_sent_in_a_later_attempt(void)
{
	struct object_ref object = OBJECT_AT("f");
	struct workspace *w = open_back();
	struct attributes old;
	struct open_file *file;

	CHECK_RC(0, put(there, "f", "old", O_TRUNC));
	CHECK_RC(0, stat_at(w, "f", &old));
	CHECK_RC(0, faulty_set(there, "open_file:1:EIO"));
	CHECK_RC(0,
		workspace_open_file(&context, w, &object, O_WRONLY | O_TRUNC, &file, &attributes));
	CHECK_RC(3, workspace_write(&context, file, "new", 3, 0));
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_MTIME, &old, &attributes));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("new", get(there, "f"));
	CHECK_STRING("", lost());
	workspace_free(w);
}

/* ---- What is refused --------------------------- */

static void test_where_modes_are_changed_a_lost_answer_is_no_conflict(void)
{
	struct workspace *w = open_back();

	changes_modes = true;
	CHECK_RC(0, put(w, "shows", "text", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	loses_create = true;
	CHECK_RC(0, put(w, "f", "text", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	CHECK(!loses_create);
	changes_modes = false;
	CHECK_STRING("", lost());
	CHECK_STRING("text", get(there, "f"));
	workspace_free(w);
}

static void test_what_has_no_room_is_kept_and_said(void)
{
	struct workspace *w = open_back();

	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, faulty_set(there, "write:1:ENOSPC"));
	CHECK_RC(0, put(w, "f", "precious", O_TRUNC));
	CHECK_RC(-ENOSPC, sync_all(w));
	CHECK_RC(0, sync_all(w)); /* said once */
	CHECK_STRING("create f +: No space left on device;", lost());
	CHECK_STRING("ENOENT", get(w, "f"));
	CHECK_STRING("ENOENT", get(there, "f"));
	CHECK_RC(0, put(w, "f", "again", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("again", get(there, "f"));
	workspace_free(w);
}

static void test_what_fails_over_a_link_that_is_there_is_lost_in_the_end(void)
{
	struct workspace *w = open_back();

	CHECK_RC(0, faulty_set(there, "mkdir:1+:ETIMEDOUT"));
	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	CHECK_RC(-ETIMEDOUT, sync_all(w));
	CHECK_STRING("mkdir d: Connection timed out;", lost());
	CHECK_RC(0, sync_all(w));
	workspace_free(w);
}

static void test_what_cannot_be_kept_stays_pending_until_it_can(void)
{
	struct workspace *w = open_back();
	cleanup_free char *directory = directory_of("lost");
	struct workspace_status status;

	CHECK_RC(0, sync_all(w));
	close(open(directory, O_WRONLY | O_CREAT, 0600)); /* in the way */
	CHECK_RC(0, faulty_set(there, "write:1:ENOSPC"));
	CHECK_RC(0, put(w, "f", "precious", O_TRUNC));
	CHECK_RC(-EIO, sync_all(w));
	workspace_status(w, &status);
	CHECK_RC(1, status.pending_operations);
	CHECK_RC(0, unlink(directory));
	while (sync_all(w) == -EIO)
		usleep(10000);
	CHECK_STRING("create f +: No space left on device;", lost());
	workspace_free(w);
}

static void test_what_depends_on_a_loss_is_lost_and_kept(void)
{
	struct workspace *w = open_back();

	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, faulty_set(there, "mkdir:1:EACCES"));
	shut(true);
	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	CHECK_RC(0, put(w, "d/f", "precious", O_TRUNC));
	CHECK_RC(0, workspace_rename(&context, w, "d/f", "g", 0, NULL));
	CHECK_RC(0, put(w, "other", "text", O_TRUNC));
	shut(false);
	CHECK_RC(-EACCES, sync_all(w));
	CHECK_STRING("mkdir d: Permission denied;create d/f +: No such file or directory;"
		     "rename d/f g: No such file or directory;",
		lost());
	CHECK_STRING("text", get(there, "other"));
	CHECK_STRING("ENOENT", get(w, "g"));
	workspace_free(w);
}

/* ---- Every refusal of an archive that is unpacked --------------------------- */

static const struct {
	const char *path, *text; /* of what is there in the end */
	const char *made;        /* under this name */
} unpacked[] = {
	{"d/a", "alpha", "d/a"},
	{"d/e/b", "beta", "d/e/b"},
	{"d/c", "gamma", "d/t"},
};

static void unpack(struct workspace *w)
{
	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	CHECK_RC(0, workspace_mkdir(&context, w, "d/e", 0755, &attributes));
	CHECK_RC(0, workspace_symlink(&context, w, "a", "d/l", &attributes));
	for (size_t i = 0; i < array_size(unpacked); i++) {
		CHECK_RC(0, put(w, unpacked[i].made, unpacked[i].text, O_TRUNC));
		set_mode(w, unpacked[i].made);
	}
	workspace_rename(&context, w, "d/t", "d/c", 0, NULL);
}

struct kept {
	const char *path, *text;
	bool is_found;
};

static void compare_kept(void *user, const struct writeback_lost *lost)
{
	struct kept *kept = user;
	cleanup_free char *directory = directory_of("lost");
	cleanup_free char *path = string_printf("%s/%s/content", directory, lost->place);
	char text[16] = "";
	int fd;

	if (!lost->has_content || strcmp(lost->path, kept->path) != 0)
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0);
	close(fd);
	kept->is_found = kept->is_found || strcmp(text, kept->text) == 0;
}

static bool is_kept(const char *path, const char *text)
{
	cleanup_free char *directory = directory_of("lost");
	struct kept kept = {.path = path, .text = text};

	writeback_lost_each(directory, compare_kept, &kept);
	return kept.is_found;
}

static bool is_there(const char *path, const char *text)
{
	return strcmp(get(there, path), text) == 0;
}

/* False: the operation is not done that often. */
static bool unpack_with(const char *operation, unsigned number, const char *error)
{
	cleanup_free char *fault = string_printf("%s:%u:%s", operation, number, error);
	struct workspace *w = open_back();
	bool is_refused;

	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, faulty_set(there, fault));
	shut(true);
	unpack(w);
	shut(false);
	sync_all(w);
	is_refused = faulty_calls(there, operation) >= number;
	CHECK_RC(0, faulty_set(there, ""));
	for (size_t i = 0; i < array_size(unpacked); i++) {
		const char *path = unpacked[i].path, *made = unpacked[i].made;
		const char *text = unpacked[i].text;
		bool is_moved = strcmp(path, made) == 0 || strstr(lost(), path);

		if (!CHECK(is_there(path, text) || (is_there(made, text) && is_moved) ||
			    is_kept(made, text)))
			fprintf(stderr, "%s: \"%s\" is neither there nor kept: %s\n", fault, path,
				lost());
	}
	workspace_free(w);
	return is_refused;
}

static void test_whatever_is_refused_all_is_there_or_kept(void)
{
	static const char *const operations[] = {
		"mkdir", "create", "write", "flush", "setattr", "symlink", "rename", "close"};
	static const char *const errors[] = {"ENOSPC", "EDQUOT", "EACCES"};
	unsigned refused = 0;

	for (size_t i = 0; i < array_size(operations); i++)
		for (size_t j = 0; j < array_size(errors); j++)
			for (unsigned n = 1; unpack_with(operations[i], n, errors[j]); n++)
				refused++;
	CHECK(refused >= 50);
}

static void test_a_loss_is_said_to_who_asks_for_it(void)
{
	const struct file_lock lock = {.kind = LOCK_KIND_FLOCK, .type = LOCK_READ};
	struct object_ref object = OBJECT_AT("locked");
	struct workspace *w = open_back();
	struct open_file *file;

	CHECK_RC(0, put(w, "locked", "text", O_TRUNC));
	CHECK_RC(0, put(w, "moved", "text", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, workspace_open_file(&context, w, &object, O_RDONLY, &file, &attributes));
	CHECK_RC(0, faulty_set(there, "rename:1:EACCES"));
	CHECK_RC(0, workspace_rename(&context, w, "moved", "to", 0, NULL));
	CHECK_RC(0, workspace_lock(&context, file, &lock, false));
	CHECK_RC(0, workspace_flush(&context, file));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_RC(-EACCES, sync_all(w));
	workspace_free(w);
}

static void test_an_open_file_tells_that_its_rename_is_lost(void)
{
	struct object_ref object = OBJECT_AT("to");
	struct workspace *w = open_back();
	struct open_file *file;

	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, faulty_set(there, "rename:1:EACCES"));
	shut(true);
	CHECK_RC(0, put(w, "moved", "text", O_TRUNC));
	CHECK_RC(0, workspace_rename(&context, w, "moved", "to", 0, NULL));
	CHECK_RC(0, workspace_open_file(&context, w, &object, O_RDONLY, &file, &attributes));
	shut(false);
	CHECK_RC(-EACCES, workspace_fsync(&context, w, file, "", false));
	CHECK_RC(0, workspace_fsync(&context, w, file, "", false));
	workspace_close(&context, file);
	workspace_free(w);
}

static void test_an_open_file_that_is_lost_answers_the_error(void)
{
	struct workspace *w = open_back();
	struct open_file *file;

	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, faulty_set(there, "create:1:EDQUOT"));
	CHECK_RC(0, workspace_create(&context, w, "f", O_RDWR, 0644, &file, &attributes));
	CHECK_RC(1, workspace_write(&context, file, "x", 1, 0));
	CHECK_RC(-EDQUOT, workspace_fsync(&context, w, file, "", false));
	CHECK_RC(-EDQUOT, workspace_write(&context, file, "x", 1, 0));
	CHECK_RC(-EDQUOT, workspace_flush(&context, file));
	CHECK_RC(-EDQUOT, workspace_close(&context, file));
	workspace_free(w);
}

/* ---- What others do --------------------------- */

static void test_a_name_that_others_took_is_theirs(void)
{
	struct workspace *w = open_back();

	CHECK_RC(0, sync_all(w));
	shut(true);
	CHECK_RC(0, put(w, "f", "ours", O_TRUNC));
	CHECK_RC(0, put(there, "f", "theirs", O_TRUNC));
	shut(false);
	CHECK_RC(-EEXIST, sync_all(w));
	CHECK_STRING("theirs", get(there, "f"));
	CHECK_STRING("theirs", get(w, "f"));
	CHECK_STRING("create f +: somebody else has changed it meanwhile;", lost());
	workspace_free(w);
}

static void append_theirs(void)
{
	CHECK_RC(0, put(there, "f", "ours and theirs", 0));
}

static void test_what_others_append_stays(void)
{
	struct workspace *w = open_back();

	CHECK_RC(0, sync_all(w));
	shut(true);
	CHECK_RC(0, put(w, "f", "ours", O_TRUNC));
	intrude_once(OPERATION_getattr, append_theirs);
	shut(false);
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("ours and theirs", get(there, "f"));
	CHECK_STRING("ours and theirs", get(w, "f"));
	CHECK_STRING("", lost());
	workspace_free(w);
}

static void *open_gate(void *argument)
{
	(void)argument;
	usleep(100000);
	shut(false);
	return NULL;
}

static void test_a_lock_is_given_up_when_all_is_there(void)
{
	const struct file_lock lock = {.kind = LOCK_KIND_FLOCK, .type = LOCK_WRITE};
	struct object_ref object = OBJECT_AT("lock");
	struct workspace *w = open_back();
	struct open_file *file;
	pthread_t opener;

	CHECK_RC(0, put(w, "lock", "", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, workspace_open_file(&context, w, &object, O_RDONLY, &file, &attributes));
	CHECK_RC(0, workspace_lock(&context, file, &lock, false));
	shut(true);
	CHECK_RC(0, put(w, "data", "text", O_TRUNC));
	CHECK_RC(0, pthread_create(&opener, NULL, open_gate, NULL));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_STRING("text", get(there, "data"));
	pthread_join(opener, NULL);
	workspace_free(w);
}

static struct open_file *awaited;

static void *wait_and_write(void *unused)
{
	struct op_context own;

	(void)unused;
	op_context_init(&own);
	CHECK_RC(0, workspace_fallocate(&own, awaited, 0, 0, 3)); /* not deferred */
	CHECK_RC(6, workspace_write(&own, awaited, "longer", 6, 0));
	return NULL;
}

static bool is_rewritten;

static void *rewrite(void *w)
{
	struct object_ref object = OBJECT_AT("f");
	struct attributes opened;
	struct op_context own;
	struct open_file *file;

	op_context_init(&own);
	CHECK_RC(0, workspace_open_file(&own, w, &object, O_WRONLY | O_TRUNC, &file, &opened));
	CHECK_RC(4, workspace_write(&own, file, "anew", 4, 0));
	CHECK_RC(0, workspace_close(&own, file));
	__atomic_store_n(&is_rewritten, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void test_nothing_is_deferred_behind_who_waits_to_write_at_the_workspace(void)
{
	struct workspace *w = open_back();
	pthread_t writer, rewriter;

	CHECK_RC(0, sync_all(w));
	shut(true);
	CHECK_RC(0, workspace_create(&context, w, "f", O_RDWR, 0644, &awaited, &attributes));
	CHECK_RC(3, workspace_write(&context, awaited, "old", 3, 0));
	last_at_gate = OPERATION_mkdir;
	CHECK_RC(0, pthread_create(&writer, NULL, wait_and_write, NULL));
	await_at_gate(OPERATION_create);
	CHECK_RC(0, pthread_create(&rewriter, NULL, rewrite, w));
	usleep(100000);
	CHECK(!__atomic_load_n(&is_rewritten, __ATOMIC_SEQ_CST));
	shut(false);
	pthread_join(writer, NULL);
	pthread_join(rewriter, NULL);
	CHECK_RC(0, workspace_close(&context, awaited));
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("", lost());
	workspace_free(w);
}

static void *rename_directory(void *w)
{
	struct op_context own;

	op_context_init(&own);
	CHECK_RC(0, workspace_rename(&own, w, "d", "e", 0, NULL));
	return NULL;
}

static void test_nothing_is_deferred_below_a_directory_that_moves(void)
{
	struct workspace *w = open_back();
	pthread_t mover, opener;

	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	CHECK_RC(0, sync_all(w));
	shut(true);
	CHECK_RC(0, pthread_create(&mover, NULL, rename_directory, w));
	await_at_gate(OPERATION_rename);
	CHECK_RC(0, pthread_create(&opener, NULL, open_gate, NULL));
	CHECK_RC(-ENOENT, put(w, "d/f", "text", O_TRUNC));
	pthread_join(opener, NULL);
	pthread_join(mover, NULL);
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("", lost());
	workspace_free(w);
}

static void test_a_truncated_file_keeps_its_attributes(void)
{
	struct object_ref object = OBJECT_AT("f"), opened;
	struct workspace *w = open_back();
	struct open_file *file;
	char value[8];

	CHECK_RC(0, put(there, "f", "text", O_TRUNC));
	CHECK_RC(0, workspace_setxattr(&context, there, &object, "user.x", "y", 1, 0));
	CHECK_RC(0,
		workspace_open_file(&context, w, &object, O_WRONLY | O_TRUNC, &file, &attributes));
	opened = OBJECT_OF(file);
	CHECK_RC(1, workspace_getxattr(&context, w, &opened, "user.x", value, sizeof(value)));
	CHECK_RC(0, workspace_close(&context, file));
	workspace_free(w);
}

static void test_what_others_wrote_is_neither_removed_nor_replaced(void)
{
	static const char *const names[] = {"removed", "replaced", "rewritten"};
	struct object_ref rewritten = OBJECT_AT("rewritten");
	struct workspace *w = open_back();
	struct open_file *file;

	for (int i = 0; i < 3; i++)
		CHECK_RC(0, put(w, names[i], "old", O_TRUNC));
	CHECK_RC(0, put(w, "new", "new", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	shut(true);
	for (int i = 0; i < 2; i++) /* what follows waits for these */
		CHECK_RC(0, set_mode(w, names[i]));
	CHECK_RC(0, workspace_unlink(&context, w, "removed", NULL));
	CHECK_RC(0, workspace_rename(&context, w, "new", "replaced", 0, NULL));
	CHECK_RC(0, workspace_open_file(
			    &context, w, &rewritten, O_WRONLY | O_TRUNC, &file, &attributes));
	CHECK_RC(4, workspace_write(&context, file, "ours", 4, 0));
	for (int i = 0; i < 3; i++)
		CHECK_RC(0, put(there, names[i], "theirs", 0));
	CHECK_RC(0, workspace_close(&context, file));
	shut(false);
	CHECK_RC(-ESTALE, sync_all(w));
	for (int i = 0; i < 3; i++) {
		CHECK_STRING("theirs", get(there, names[i]));
		CHECK_STRING("theirs", get(w, names[i]));
	}
	CHECK_STRING("new", get(there, "new"));
	CHECK(strstr(lost(), "write rewritten +: ") != NULL);
	workspace_free(w);
}

/* ---- Events --------------------------- */

static struct change told;

static void note_change(void *user, const struct change *change)
{
	(void)user;
	told.is_own = change->is_own;
	__atomic_store_n(&told.at, change->at, __ATOMIC_SEQ_CST);
}

/* The workspace reports what is at the path. */
static void report(const char *path)
{
	static uint64_t position = 1ull << 40;
	struct change change = {.kind = CHANGE_ENTRY, .path = path, .at = ++position};

	change.exists = stat_at(there, path, &change.attributes) == 0;
	told = (struct change){.at = 0};
	sink_at_gate(sink_user, &change);
}

/* As after the link was away: the cache has not heard of it yet. */
static void test_what_others_did_unheard_is_neither_removed_nor_replaced(void)
{
	static const char *const names[] = {"written", "removed", "replaced", "timed"};
	const struct attributes want = {.mtime.tv_sec = 77};
	struct workspace *mem = NULL, *cached, *w;
	char *reason = NULL;

	remove_state();
	CHECK_RC(0, scheme_open("mem", "", NULL, &mem, &reason));
	CHECK_RC(0, faulty_new(mem, "", &there));
	CHECK_RC(0, cached_new(there, &(struct cached_options){.ttl_ms = 600000}, &cached));
	w = put_back(cached);
	for (unsigned i = 0; i < array_size(names); i++)
		CHECK_RC(0, put(there, names[i], "old", O_TRUNC));
	CHECK_RC(0, workspace_symlink(&context, w, "x", "first", &attributes)); /* passed on */
	for (unsigned i = 0; i < array_size(names); i++)
		CHECK_STRING("old", get(w, names[i]));
	CHECK_RC(0, put(w, "new", "ours", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	shut(true);
	occupy_workers(w);
	CHECK_RC(0, put(w, "written", "ours", O_TRUNC));
	CHECK_RC(0, workspace_unlink(&context, w, "removed", NULL));
	CHECK_RC(0, workspace_rename(&context, w, "new", "replaced", 0, NULL));
	CHECK_RC(0,
		workspace_setattr(&context, w, &OBJECT_AT("timed"), SET_MTIME, &want, &attributes));
	for (unsigned i = 0; i < array_size(names); i++)
		CHECK_RC(0, put(there, names[i], "theirs", O_TRUNC));
	shut(false);
	CHECK_RC(-ESTALE, sync_all(w));
	for (unsigned i = 0; i < array_size(names); i++)
		CHECK_STRING("theirs", get(there, names[i]));
	CHECK_STRING("ours", get(there, "new"));
	CHECK(strstr(lost(), "write written +: somebody else has changed it meanwhile;"));
	CHECK(strstr(lost(), "unlink removed: somebody else has changed it meanwhile;"));
	CHECK(strstr(lost(), "rename new replaced: somebody else has changed it meanwhile;"));
	workspace_free(w);
}

static void test_what_was_done_here_is_known_as_own_when_it_arrives(void)
{
	struct workspace *w = open_back();

	CHECK_RC(0, workspace_watch(w, note_change, NULL));
	CHECK_RC(0, put(w, "f", "ours", O_TRUNC));
	CHECK_RC(0, put(w, "removed", "ours", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	report("f");
	CHECK(told.at && told.is_own);
	CHECK_RC(0, workspace_unlink(&context, w, "removed", NULL));
	CHECK_RC(0, sync_all(w));
	report("removed");
	CHECK(told.at && told.is_own);
	CHECK_RC(0, put(there, "f", "theirs", O_TRUNC));
	report("f");
	CHECK(told.at && !told.is_own);
	CHECK_RC(0, put(there, "removed", "theirs", O_TRUNC));
	report("removed");
	CHECK(told.at && !told.is_own);
	report("first");
	CHECK(told.at && !told.is_own);
	workspace_free(w);
}

static void test_what_others_do_while_ours_is_pending_is_not_own(void)
{
	struct workspace *w = open_back();

	CHECK_RC(0, workspace_watch(w, note_change, NULL));
	CHECK_RC(0, put(w, "f", "ours", O_TRUNC));
	CHECK_RC(0, put(w, "removed", "ours", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	shut(true);
	CHECK_RC(0, set_mode(w, "f"));
	report("f"); /* from before */
	CHECK(!told.at);
	shut(false);
	for (int i = 0; i < 500 && !__atomic_load_n(&told.at, __ATOMIC_SEQ_CST); i++)
		usleep(10000);
	CHECK(told.at && !told.is_own);
	workspace_free(w);
}

static void test_what_others_remove_where_ours_was_removed_is_not_own(void)
{
	struct workspace *w = open_back();

	CHECK_RC(0, workspace_watch(w, note_change, NULL));
	CHECK_RC(0, put(w, "f", "ours", O_TRUNC));
	CHECK_RC(0, put(w, "theirs", "ours", O_TRUNC));
	CHECK_RC(0, put(w, "again", "ours", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, workspace_unlink(&context, w, "theirs", NULL));
	CHECK_RC(0, workspace_unlink(&context, w, "again", NULL));
	CHECK_RC(0, sync_all(w));
	report("theirs");
	CHECK(told.at && told.is_own);
	CHECK_RC(0, put(there, "theirs", "theirs", O_TRUNC));
	report("theirs");
	CHECK(told.at && !told.is_own);
	CHECK_RC(0, workspace_unlink(&context, there, "theirs", NULL));
	report("theirs");
	CHECK(told.at && !told.is_own);
	CHECK_RC(0,
		workspace_link(&context, w, &OBJECT_AT("f"), "again", &attributes)); /* passed on */
	CHECK_RC(0, workspace_unlink(&context, there, "again", NULL));
	report("again");
	CHECK(told.at && !told.is_own);
	workspace_free(w);
}

static void test_what_others_remove_after_our_removal_was_refused_is_not_own(void)
{
	struct workspace *w = open_back();

	CHECK_RC(0, workspace_watch(w, note_change, NULL));
	CHECK_RC(0, put(w, "f", "ours", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, faulty_set(there, "unlink:1+:EACCES"));
	CHECK_RC(0, workspace_unlink(&context, w, "f", NULL));
	CHECK_RC(-EACCES, sync_all(w));
	CHECK_RC(0, faulty_set(there, ""));
	CHECK_RC(0, workspace_unlink(&context, there, "f", NULL));
	report("f");
	CHECK(told.at && !told.is_own);
	CHECK_STRING("unlink f: Permission denied;", lost());
	workspace_free(w);
}

/* As if all that has ended had ended a minute before. */
static void let_time_pass(struct workspace *w)
{
	struct writeback *b = writeback_of(w);
	struct name *name;

	writeback_lock(b);
	TAILQ_FOREACH(name, &b->retired, retired)
		name->retired_ms -= 60000;
	writeback_unlock(b);
}

static void test_our_own_is_known_however_late_it_arrives(void)
{
	struct workspace *w = open_back();

	CHECK_RC(0, workspace_watch(w, note_change, NULL));
	CHECK_RC(0, put(w, "f", "ours", O_TRUNC));
	CHECK_RC(0, put(w, "removed", "ours", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, workspace_unlink(&context, w, "removed", NULL));
	CHECK_RC(0, sync_all(w));
	let_time_pass(w);
	CHECK_RC(0, put(w, "other", "ours", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	report("f");
	CHECK(told.at && told.is_own);
	report("removed");
	CHECK(told.at && told.is_own);
	workspace_free(w);
}

/* What others do in a directory that is not watched is not reported. */
static void test_a_removal_is_not_our_own_after_the_watch_has_ended(void)
{
	struct change unwatched = {.kind = CHANGE_UNWATCHED, .path = "d", .at = 1ull << 39};
	struct workspace *w = open_back();

	CHECK_RC(0, workspace_watch(w, note_change, NULL));
	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	CHECK_RC(0, put(w, "d/f", "ours", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, workspace_unlink(&context, w, "d/f", NULL));
	CHECK_RC(0, sync_all(w));
	sink_at_gate(sink_user, &unwatched);
	report("d/f");
	CHECK(told.at && !told.is_own);
	workspace_free(w);
}

/* ---- While the link is away --------------------------- */

static int append_to(struct workspace *w, const char *path, const char *text)
{
	struct object_ref object = OBJECT_AT(path);
	struct open_file *file;
	int r = workspace_open_file(&context, w, &object, O_WRONLY | O_APPEND, &file, &attributes);

	if (r < 0)
		return r;
	r = (int)workspace_write(&context, file, text, strlen(text), 0);
	workspace_close(&context, file);
	return r < 0 ? r : 0;
}

static void await_turned_away(unsigned attempts)
{
	for (int i = 0; i < 500 && __atomic_load_n(&turned_away, __ATOMIC_SEQ_CST) < attempts; i++)
		usleep(10000);
	CHECK(turned_away >= attempts);
}

static void test_a_file_is_changed_again_while_the_link_is_away(void)
{
	const struct attributes want = {.size_bytes = 3};
	struct object_ref object = OBJECT_AT("cut");
	struct workspace *w = open_back();
	struct open_file *file;
	int64_t began_ms = clock_now_ms();

	CHECK_RC(0, sync_all(w));
	turned_away = 0;
	take_away(true);
	CHECK_RC(0, put(w, "again", "first", O_TRUNC));
	CHECK_RC(0, put(w, "longer", "first", O_TRUNC));
	CHECK_RC(0, put(w, "cut", "first", O_TRUNC));
	CHECK_RC(0, put(w, "moved", "first", O_TRUNC));
	CHECK_RC(0, workspace_create(&context, w, "open", O_RDWR, 0644, &file, &attributes));
	CHECK_RC(5, workspace_write(&context, file, "first", 5, 0));
	await_turned_away(14); /* the open file, too, after a second */
	CHECK_RC(0, put(w, "again", "2nd", O_TRUNC));
	CHECK_RC(0, append_to(w, "longer", " and second"));
	CHECK_RC(0, workspace_setattr(&context, w, &object, SET_SIZE, &want, &attributes));
	CHECK_RC(0, workspace_rename(&context, w, "moved", "to", 0, NULL));
	CHECK_RC(0, append_to(w, "to", ", then moved"));
	CHECK_RC(1, workspace_write(&context, file, "F", 1, 0));
	CHECK_STRING("First", get(w, "open"));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_STRING("2nd", get(w, "again"));
	CHECK_STRING("first and second", get(w, "longer"));
	CHECK(clock_now_ms() - began_ms < 4000);
	take_away(false);
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("2nd", get(there, "again"));
	CHECK_STRING("first and second", get(there, "longer"));
	CHECK_STRING("fir", get(there, "cut"));
	CHECK_STRING("first, then moved", get(there, "to"));
	CHECK_STRING("First", get(there, "open"));
	CHECK_STRING("", lost());
	workspace_free(w);
}

static void *sync_file(void *argument)
{
	struct open_file *file = argument;
	struct op_context own;

	op_context_init(&own);
	return (void *)(intptr_t)workspace_fsync(&own, file->workspace, file, "", false);
}

static void test_a_file_is_written_while_its_fsync_waits_for_the_link(void)
{
	struct workspace *w = open_back();
	struct open_file *file;
	pthread_t thread;
	void *synced = NULL;
	int64_t began_ms;

	CHECK_RC(0, sync_all(w));
	turned_away = 0;
	take_away(true);
	CHECK_RC(0, workspace_create(&context, w, "f", O_RDWR, 0644, &file, &attributes));
	CHECK_RC(5, workspace_write(&context, file, "first", 5, 0));
	CHECK_RC(0, pthread_create(&thread, NULL, sync_file, file));
	await_turned_away(1);
	usleep(100000);
	began_ms = clock_now_ms();
	CHECK_RC(6, workspace_write(&context, file, "second", 6, 5));
	CHECK_RC(0, append_to(w, "f", " and third"));
	CHECK(clock_now_ms() - began_ms < 2000);
	take_away(false);
	CHECK_RC(0, pthread_join(thread, &synced));
	CHECK_RC(0, (int)(intptr_t)synced);
	CHECK_RC(0, workspace_fsync(&context, w, file, "", false));
	CHECK_STRING("firstsecond and third", get(there, "f"));
	CHECK_RC(0, workspace_close(&context, file));
	CHECK_STRING("", lost());
	workspace_free(w);
}

static void test_a_directory_is_known_after_a_rename_in_it(void)
{
	struct workspace *w = open_back();

	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	CHECK_RC(0, put(w, "d/f", "text", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	shut(true);
	CHECK_RC(0, workspace_rename(&context, w, "d/f", "d/g", 0, NULL));
	unanswered = "d";
	CHECK_RC(0, workspace_mkdir(&context, w, "d/e", 0755, &attributes));
	unanswered = NULL;
	shut(false);
	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, stat_at(there, "d/e", &attributes));
	CHECK_STRING("", lost());
	workspace_free(w);
}

static void test_what_is_tried_again_holds_up_nothing_else(void)
{
	struct workspace *w = open_back();
	char path[16];
	int r = -ENOENT;

	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, faulty_set(there, "create:1+:EIO"));
	for (int i = 0; i < WORKERS + 8; i++) {
		snprintf(path, sizeof(path), "f%d", i);
		CHECK_RC(0, put(w, path, "text", O_TRUNC));
	}
	for (int i = 0; i < 500 && faulty_calls(there, "create") < WORKERS; i++)
		usleep(10000);
	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	for (int i = 0; i < 20 && r == -ENOENT; i++) {
		usleep(10000);
		r = stat_at(there, "d", &attributes);
	}
	CHECK_RC(0, r);
	CHECK_RC(0, faulty_set(there, ""));
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("", lost());
	workspace_free(w);
}

/* ---- The journal --------------------------- */

static void test_without_room_for_the_journal_changes_are_passed_on(void)
{
	struct workspace *w = open_back();
	struct rlimit old, none = {.rlim_cur = 4096};

	CHECK_RC(0, sync_all(w));
	getrlimit(RLIMIT_FSIZE, &old);
	none.rlim_max = old.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &none);
	for (int i = 0; i < 20; i++) {
		char path[16];

		snprintf(path, sizeof(path), "f%d", i);
		CHECK_RC(0, put(w, path, "text", O_TRUNC));
	}
	setrlimit(RLIMIT_FSIZE, &old);
	CHECK_STRING("text", get(w, "f19"));
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("text", get(there, "f0"));
	CHECK_STRING("text", get(there, "f19"));
	take_away(true);
	CHECK_RC(0, put(w, "again", "text", O_TRUNC)); /* deferred: there is room again */
	take_away(false);
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("text", get(there, "again"));
	CHECK_STRING("", lost());
	workspace_free(w);
}

static bool is_mode_set;

static void *set_mode_again(void *w)
{
	const struct attributes want = {.mode = 0640};
	struct attributes changed;
	struct op_context own;

	op_context_init(&own);
	CHECK_RC(0, workspace_setattr(&own, w, &OBJECT_AT("f"), SET_MODE, &want, &changed));
	__atomic_store_n(&is_mode_set, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void fill_journal_disk(struct rlimit *ret_old)
{
	cleanup_free char *journal = string_printf("%s/state/journal", top);
	struct rlimit none;
	struct stat st;

	CHECK_RC(0, stat(journal, &st));
	getrlimit(RLIMIT_FSIZE, ret_old);
	none = (struct rlimit){.rlim_cur = (rlim_t)st.st_size, .rlim_max = ret_old->rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &none);
}

/* The next mount would make the first change again, over the second. */
static void test_what_could_not_be_recorded_as_done_is_not_changed_before_the_journal_is_empty(void)
{
	struct workspace *w = open_back();
	struct rlimit old;
	pthread_t thread;

	CHECK_RC(0, put(w, "f", "text", O_TRUNC));
	CHECK_RC(0, sync_all(w));
	shut(true);
	CHECK_RC(0, put(w, "waits", "text", O_TRUNC));
	CHECK_RC(0, set_mode(w, "f"));
	__atomic_store_n(&seems_away, true, __ATOMIC_SEQ_CST);
	CHECK_RC(0, faulty_set(there, "create:1+:EIO"));
	fill_journal_disk(&old);
	shut(false);
	await_mode("f", 0600);
	usleep(200000);
	setrlimit(RLIMIT_FSIZE, &old);
	CHECK_RC(0, pthread_create(&thread, NULL, set_mode_again, w));
	usleep(300000);
	CHECK(!__atomic_load_n(&is_mode_set, __ATOMIC_SEQ_CST));
	CHECK_RC(0, faulty_set(there, ""));
	__atomic_store_n(&seems_away, false, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	CHECK_RC(0, stat_at(there, "f", &attributes));
	CHECK_RC(0640, (int)(attributes.mode & 07777));
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("text", get(there, "waits"));
	CHECK_STRING("", lost());
	workspace_free(w);
}

/* It is not emptied while somebody reads from it. */
static void test_nothing_is_deferred_behind_what_was_not_recorded_as_done(void)
{
	struct workspace *w = open_back();
	struct writeback *b = writeback_of(w);
	struct rlimit old;
	uint64_t size;

	CHECK_RC(0, sync_all(w));
	shut(true);
	CHECK_RC(0, workspace_mkdir(&context, w, "d", 0755, &attributes));
	fill_journal_disk(&old);
	writeback_lock(b);
	b->journal.reading++;
	writeback_unlock(b);
	shut(false);
	CHECK_RC(0, sync_all(w));
	setrlimit(RLIMIT_FSIZE, &old);
	CHECK(b->journal.has_failed);
	size = b->journal.size;
	CHECK_RC(0, workspace_rmdir(&context, w, "d", NULL));
	CHECK(b->journal.size == size);
	CHECK_RC(-ENOENT, stat_at(there, "d", &attributes));
	writeback_lock(b);
	b->journal.reading--;
	back_journal_clear(b);
	writeback_unlock(b);
	CHECK(!b->journal.has_failed);
	workspace_free(w);
}

static void test_only_one_mount_has_the_journal(void)
{
	cleanup_free char *state = directory_of("state"), *other = directory_of("lost");
	cleanup_free char *reason = NULL, *no_reason = NULL;
	const struct writeback_options options = {state, other, "test:", false};
	struct workspace *w = open_back(), *mem = NULL, *second;
	uint64_t waiting;

	CHECK_RC(0, scheme_open("mem", "", NULL, &mem, &no_reason));
	CHECK_RC(-EBUSY, writeback_new(mem, &options, &second, &reason));
	CHECK(reason && strstr(reason, "another mount") != NULL);
	CHECK_RC(-EBUSY, writeback_waiting(state, &waiting, NULL));
	workspace_free(w);
	CHECK_RC(0, writeback_waiting(state, &waiting, NULL));
	CHECK_RC(0, waiting);
	workspace_free(mem);
}

static void test_what_the_end_could_not_send_is_sent_by_the_next_mount(void)
{
	struct workspace *w = open_lasting();
	char path[16], path2[16];

	CHECK_RC(0, sync_all(w));
	take_away(true);
	for (int i = 0; i < 10; i++) {
		snprintf(path, sizeof(path), "d%d", i);
		CHECK_RC(0, workspace_mkdir(&context, w, path, 0755, &attributes));
		snprintf(path, sizeof(path), "d%d/f", i);
		snprintf(path2, sizeof(path2), "d%d/g", i);
		CHECK_RC(0, put(w, path, "text", O_TRUNC));
		CHECK_RC(0, set_mode(w, path));
		CHECK_RC(0, workspace_rename(&context, w, path, path2, 0, NULL));
	}
	workspace_free(w);
	take_away(false);
	w = open_again();
	CHECK_RC(0, sync_all(w));
	for (int i = 0; i < 10; i++) {
		snprintf(path, sizeof(path), "d%d/g", i);
		CHECK_STRING("text", get(there, path));
	}
	CHECK_STRING("", lost());
	workspace_free(w);
}

/* The daemon is killed when the work was answered and nothing of it is at the workspace. */
static void leave_pending(void (*work)(struct workspace *w))
{
	struct workspace *w;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		w = open_lasting();
		sync_all(w);
		shut(true);
		work(w);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	op_context_init(&context);
}

static void put_three(struct workspace *w)
{
	put(w, "a", "the first", O_TRUNC);
	put(w, "b", "the second", O_TRUNC);
	put(w, "c", "the third", O_TRUNC);
}

static char *read_matching(const char *pattern)
{
	cleanup_free char *state = directory_of("state");
	cleanup_free char *path = string_printf("%s/%s", state, pattern);
	glob_t found;
	char *text = calloc(1, 65536);
	int fd;

	CHECK_RC(0, glob(path, 0, NULL, &found));
	fd = found.gl_pathc ? open(found.gl_pathv[0], O_RDONLY) : -1;
	for (ssize_t i = 0, got = read(fd, text, 65535); i < got; i++)
		if (!text[i])
			text[i] = ' ';
	close(fd);
	globfree(&found);
	return text;
}

static void test_what_is_behind_a_damaged_record_is_kept(void)
{
	cleanup_free char *state = directory_of("state"), *text = NULL, *rest = NULL;
	cleanup_free char *path = string_printf("%s/journal", state);
	struct workspace *w;
	int fd;

	leave_pending(put_three);
	text = read_matching("journal");
	if (!CHECK(strstr(text, "the second") != NULL))
		return;
	fd = open(path, O_WRONLY);
	CHECK_RC(1, pwrite(fd, "T", 1, strstr(text, "the second") - text));
	close(fd);
	w = open_again();
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("the first", get(there, "a"));
	CHECK_STRING("ENOENT", get(there, "c"));
	rest = read_matching("journal.damaged-*");
	CHECK(strstr(rest, "The second") != NULL);
	CHECK(strstr(rest, "the third") != NULL);
	workspace_free(w);
}

static void test_a_journal_of_another_version_is_neither_read_nor_overwritten(void)
{
	cleanup_free char *state = directory_of("state"), *reason = NULL, *identity = NULL;
	cleanup_free char *lost_to = directory_of("lost"), *no_reason = NULL;
	cleanup_free char *path = string_printf("%s/journal", state);
	const struct writeback_options options = {state, lost_to, "test:", false};
	struct workspace *mem = NULL, *second;
	uint64_t waiting;
	int fd;

	leave_pending(put_three);
	fd = open(path, O_WRONLY);
	CHECK_RC(1, pwrite(fd, "2", 1, 7));
	CHECK_RC(-EBADMSG, writeback_waiting(state, &waiting, &identity));
	CHECK_STRING("test:", identity);
	CHECK_RC(0, scheme_open("mem", "", NULL, &mem, &no_reason));
	CHECK_RC(-EBADMSG, writeback_new(mem, &options, &second, &reason));
	CHECK(reason && strstr(reason, "another version") != NULL);
	CHECK_RC(0, ftruncate(fd, 16 + 5)); /* with nothing in it, it is in nobody's way */
	close(fd);
	CHECK_RC(0, writeback_waiting(state, &waiting, NULL));
	CHECK_RC(0, writeback_new(mem, &options, &second, &no_reason));
	workspace_free(second);
}

static void test_a_workspace_has_one_normal_uri(void)
{
	static const char *const forms[][2] = {
		{"ssh://u@h:22//d/./e/", "ssh://u@h:22/d/e"},
		{"ssh://h/", "ssh://h/"},
		{"ssh://h", "ssh://h"},
		{"docker://c//d/?timeout=5", "docker://c/d?timeout=5"},
		{"cmd:sh -c a//b !/d//e/", "cmd:sh -c a//b !/d/e"},
		{"helper:/usr/../no such//place/", "helper:/usr/../no such/place"},
		{"helper:/proc/self/root//usr/", "helper:/usr"},
		{"mem:", "mem:"},
	};

	for (size_t i = 0; i < array_size(forms); i++) {
		cleanup_free char *normal = workspace_normal_uri(forms[i][0]);

		CHECK_STRING(forms[i][1], normal);
	}
}

static struct attributes *shared; /* with a child */

static void write_late(struct workspace *w)
{
	struct open_file *file;

	workspace_create(&context, w, "f", O_RDWR, 0644, &file, &attributes);
	usleep(20000);
	workspace_write(&context, file, "text", 4, 0);
	workspace_close(&context, file);
	stat_at(w, "f", shared);
}

static void test_a_replay_sets_the_time_of_the_last_write(void)
{
	struct workspace *w;
	struct attributes far;

	shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	leave_pending(write_late);
	w = open_again();
	CHECK_RC(0, sync_all(w));
	CHECK_RC(0, stat_at(there, "f", &far));
	CHECK_RC(4, far.size_bytes);
	CHECK(memcmp(&far.mtime, &shared->mtime, sizeof(far.mtime)) == 0);
	workspace_free(w);
	munmap(shared, sizeof(*shared));
}

static void lose_link(void)
{
	take_away(true);
}

static void append_when_the_create_is_done(struct workspace *w)
{
	put(w, "f", "AAAA", O_TRUNC);
	workspace_rename(&context, w, "f", "g", 0, NULL);
	intrude_once(OPERATION_rename, lose_link);
	shut(false);
	while (!__atomic_load_n(&is_away, __ATOMIC_SEQ_CST))
		usleep(10000);
	append_to(w, "g", "BBBB");
}

static void test_a_replay_continues_content_that_was_stored_before(void)
{
	struct workspace *w;

	leave_pending(append_when_the_create_is_done);
	w = open_again();
	CHECK_RC(0, sync_all(w));
	CHECK_STRING("AAAABBBB", get(there, "g"));
	CHECK_STRING("", lost());
	workspace_free(w);
}

static void *close_soon(void *argument)
{
	usleep(200000);
	close((int)(intptr_t)argument);
	return NULL;
}

static void test_who_looks_into_the_journal_keeps_no_mount_from_it(void)
{
	cleanup_free char *state = directory_of("state");
	cleanup_free char *path = string_printf("%s/journal", state);
	pthread_t closer;
	int fd;

	leave_pending(put_three);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK_RC(0, flock(fd, LOCK_SH));
	CHECK_RC(0, pthread_create(&closer, NULL, close_soon, (void *)(intptr_t)fd));
	workspace_free(open_again());
	pthread_join(closer, NULL);
}

int main(void)
{
	static const struct test_case cases[] = {
		TEST(test_changes_are_seen_here_before_they_are_there),
		TEST(test_the_first_change_does_not_wait_for_the_link),
		TEST(test_a_listing_has_what_renames_that_end_meanwhile_leave),
		TEST(test_a_listing_has_what_others_did_after_ours_ended),
		TEST(test_a_listing_has_what_others_made_where_ours_is_refused_meanwhile),
		TEST(test_a_listing_is_complete_whenever_operations_end),
		TEST(test_a_directory_keeps_its_number_while_files_are_made),
		TEST(test_provisional_numbers_differ_as_doubles_and_from_those_of_the_workspace),
		TEST(test_a_directory_has_its_new_mode_while_names_in_it_are_pending),
		TEST(test_what_is_shown_stays_when_it_is_done),
		TEST(test_what_is_removed_before_it_was_sent_is_never_sent),
		TEST(test_a_directory_keeps_the_time_of_what_was_never_sent),
		TEST(test_writes_of_a_file_are_sent_once), TEST(test_holes_stay_holes),
		TEST(test_a_file_that_is_synced_is_there),
		TEST(test_a_file_that_may_not_be_opened_again_is_written_on),
		TEST(test_a_file_that_may_not_be_opened_again_is_appended_to),
		TEST(test_a_look_at_a_capability_sends_no_truncated_file),
		TEST(test_what_was_done_without_an_answer_is_no_conflict),
		TEST(test_content_that_looks_like_the_old_is_sent_in_a_later_attempt),
		TEST(test_where_modes_are_changed_a_lost_answer_is_no_conflict),
		TEST(test_what_has_no_room_is_kept_and_said),
		TEST(test_what_fails_over_a_link_that_is_there_is_lost_in_the_end),
		TEST(test_what_cannot_be_kept_stays_pending_until_it_can),
		TEST(test_what_depends_on_a_loss_is_lost_and_kept),
		TEST(test_whatever_is_refused_all_is_there_or_kept),
		TEST(test_a_loss_is_said_to_who_asks_for_it),
		TEST(test_an_open_file_tells_that_its_rename_is_lost),
		TEST(test_an_open_file_that_is_lost_answers_the_error),
		TEST(test_a_name_that_others_took_is_theirs), TEST(test_what_others_append_stays),
		TEST(test_a_lock_is_given_up_when_all_is_there),
		TEST(test_nothing_is_deferred_behind_who_waits_to_write_at_the_workspace),
		TEST(test_nothing_is_deferred_below_a_directory_that_moves),
		TEST(test_a_truncated_file_keeps_its_attributes),
		TEST(test_what_others_wrote_is_neither_removed_nor_replaced),
		TEST(test_without_room_for_the_journal_changes_are_passed_on),
		TEST(test_what_could_not_be_recorded_as_done_is_not_changed_before_the_journal_is_empty),
		TEST(test_nothing_is_deferred_behind_what_was_not_recorded_as_done),
		TEST(test_what_others_did_unheard_is_neither_removed_nor_replaced),
		TEST(test_what_was_done_here_is_known_as_own_when_it_arrives),
		TEST(test_what_others_do_while_ours_is_pending_is_not_own),
		TEST(test_what_others_remove_where_ours_was_removed_is_not_own),
		TEST(test_what_others_remove_after_our_removal_was_refused_is_not_own),
		TEST(test_our_own_is_known_however_late_it_arrives),
		TEST(test_a_removal_is_not_our_own_after_the_watch_has_ended),
		TEST(test_a_file_is_changed_again_while_the_link_is_away),
		TEST(test_a_file_is_written_while_its_fsync_waits_for_the_link),
		TEST(test_a_directory_is_known_after_a_rename_in_it),
		TEST(test_what_is_tried_again_holds_up_nothing_else),
		TEST(test_only_one_mount_has_the_journal),
		TEST(test_what_is_behind_a_damaged_record_is_kept),
		TEST(test_a_journal_of_another_version_is_neither_read_nor_overwritten),
		TEST(test_a_workspace_has_one_normal_uri),
		TEST(test_a_replay_sets_the_time_of_the_last_write),
		TEST(test_a_replay_continues_content_that_was_stored_before),
		TEST(test_who_looks_into_the_journal_keeps_no_mount_from_it),
		TEST(test_what_the_end_could_not_send_is_sent_by_the_next_mount)};
	int r;

	snprintf(top, sizeof(top), "/tmp/isthmus-writeback-XXXXXX");
	if (!mkdtemp(top))
		return 2;
	umask(022);
	r = test_run("writeback", cases, sizeof(cases) / sizeof(cases[0]));
	remove_tree(top);
	return r;
}
