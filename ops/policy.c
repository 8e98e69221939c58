#include "ops/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/forward.h"
#include "ops/policy_lists.h"
#include "ops/support/cleanup.h"
#include "ops/support/exec.h"
#include "ops/support/ignore.h"
#include "ops/support/path.h"
#include "ops/workspace_scan.h"

enum { LINES_KEPT_MAX_BYTES = 8 << 20 }; /* of the files of a search */

struct policy {
	struct forward base;
	bool ignores_case; /* rules and paths are compared in lower case */
	struct policy_rules rules;
	struct policy_lists lists;
	change_sink sink;
	void *sink_user;
};

enum kind { A_DIRECTORY, ANOTHER_KIND, UNKNOWN_KIND };

/* What is to be done with a name. */
enum intent { LOOK, CHANGE, MAKE, MAKE_DIRECTORY };

struct verdict {
	bool is_hidden, is_protected;
	struct ignore *chain; /* of .agentsignore, down to the directory that holds the name */
};

static struct policy *policy_from(struct workspace *w)
{
	return (struct policy *)w;
}

static void verdict_done(struct verdict *verdict)
{
	ignore_unref(verdict->chain);
}

/* ---- One name ---------------------------------------------------------------------------- */

static int find_kind(struct op_context *ctx, struct policy *p, const char *path, enum kind *kind)
{
	struct op_context own = policy_context(ctx);
	struct attributes attributes;
	int r;

	if (*kind != UNKNOWN_KIND)
		return 0;
	r = workspace_getattr(&own, p->base.inner, &OBJECT_AT(path), &attributes);
	if (r < 0 && !path_misses_object(r))
		return r;
	*kind = r == 0 && S_ISDIR(attributes.mode) ? A_DIRECTORY : ANOTHER_KIND;
	return 0;
}

void policy_fold(char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (text[i] >= 'A' && text[i] <= 'Z')
			text[i] += 'a' - 'A';
}

static bool is_list(const struct policy *p, const char *path)
{
	return p->rules.agentsignore &&
	       (p->ignores_case ? strcasecmp : strcmp)(path_name(path), AGENTSIGNORE) == 0;
}

/* Asks for the kind only where a pattern is for directories. */
static int match(struct op_context *ctx, struct policy *p, const struct ignore *chain,
	const char *path, enum kind *kind, bool *matches)
{
	cleanup_free char *folded = chain && p->ignores_case ? strdup(path) : NULL;
	const char *compared = folded ? folded : path;
	bool as_directory;
	int r = 0;

	if (!folded && chain && p->ignores_case)
		return -ENOMEM;
	if (folded)
		policy_fold(folded, strlen(folded));
	as_directory = ignore_matches(chain, compared, true);
	if (as_directory != ignore_matches(chain, compared, false)) {
		r = find_kind(ctx, p, path, kind);
		as_directory = as_directory == (*kind == A_DIRECTORY);
	}
	*matches = *matches || as_directory;
	return r;
}

static int judge_name(struct op_context *ctx, struct policy *p, const char *path, enum kind kind,
	struct verdict *verdict)
{
	int r = match(ctx, p, p->rules.hidden, path, &kind, &verdict->is_hidden);

	if (r == 0)
		r = match(ctx, p, verdict->chain, path, &kind, &verdict->is_hidden);
	if (r == 0)
		r = match(ctx, p, p->rules.protected, path, &kind, &verdict->is_protected);
	if (is_list(p, path))
		verdict->is_protected = true;
	return r;
}

/* Puts the list of a directory in front of the chain. */
static int enter(
	struct op_context *ctx, struct policy *p, const char *directory, struct verdict *verdict)
{
	return p->rules.agentsignore ? policy_lists_add(&p->lists, ctx, directory, &verdict->chain)
				     : 0;
}

/* From the root down: what is in a hidden directory is hidden. */
static int judge(struct op_context *ctx, struct policy *p, const char *path, enum kind kind,
	struct verdict *verdict)
{
	cleanup_free char *prefix = strdup(path);
	char *end = prefix;
	int r = prefix ? 0 : -ENOMEM;

	if (r == 0 && *path)
		r = enter(ctx, p, "", verdict);
	while (r == 0 && *path) {
		bool is_last;

		end = strchrnul(end, '/');
		is_last = !*end;
		*end = '\0';
		r = judge_name(ctx, p, prefix, is_last ? kind : A_DIRECTORY, verdict);
		if (r < 0 || is_last || verdict->is_hidden)
			break;
		r = enter(ctx, p, prefix, verdict);
		*end++ = '/';
	}
	return r;
}

static int refusal(const struct verdict *verdict, enum intent intent)
{
	if (verdict->is_hidden)
		return intent >= MAKE ? -EACCES : -ENOENT;
	return verdict->is_protected && intent != LOOK ? -EROFS : 0;
}

/* 0, or why that must not be done with the name. */
static int check(struct op_context *ctx, struct policy *p, const char *path, enum intent intent)
{
	cleanup_with(verdict_done) struct verdict verdict = {0};
	enum kind kind = intent == MAKE_DIRECTORY ? A_DIRECTORY
			 : intent == MAKE         ? ANOTHER_KIND
						  : UNKNOWN_KIND;
	int r = judge(ctx, p, path, kind, &verdict);

	return r < 0 ? r : refusal(&verdict, intent);
}

static bool is_protected(const struct open_file *file)
{
	return ((const struct forward_file *)file)->is_marked;
}

/* An open file was visible when it was opened; whether it is protected it knows. */
static int check_object(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, enum intent intent)
{
	if (object->file)
		return intent != LOOK && is_protected(object->file) ? -EROFS : 0;
	return check(ctx, policy_from(w), object->path, intent);
}

static int check_path(
	struct op_context *ctx, struct workspace *w, const char *path, enum intent intent)
{
	return check(ctx, policy_from(w), path, intent);
}

/* ---- Operations that only check ------------------------------------------------------------ */

#define EXPAND(...) __VA_ARGS__

#define ON_OBJECT(type, name, intent, parameters, arguments)                   \
	static type policy_##name(struct op_context *ctx, struct workspace *w, \
		const struct object_ref *object, EXPAND parameters)            \
	{                                                                      \
		int r = check_object(ctx, w, object, intent);                  \
                                                                               \
		if (r < 0)                                                     \
			return r;                                              \
		return forward_##name(ctx, w, object, EXPAND arguments);       \
	}

/* `path` is among the parameters. */
#define ON_PATH(name, intent, parameters, arguments)                                             \
	static int policy_##name(struct op_context *ctx, struct workspace *w, EXPAND parameters) \
	{                                                                                        \
		int r = check_path(ctx, w, path, intent);                                        \
                                                                                                 \
		return r < 0 ? r : forward_##name(ctx, w, EXPAND arguments);                     \
	}

/* clang-format off */
ON_OBJECT(int, getattr, LOOK, (struct attributes *ret_attributes), (ret_attributes))
ON_OBJECT(int, readlink, LOOK, (char **ret_target), (ret_target))
ON_OBJECT(ssize_t, getxattr, LOOK, (const char *name, void *value, size_t size),
	(name, value, size))
ON_OBJECT(ssize_t, listxattr, LOOK, (char *names, size_t size), (names, size))
ON_OBJECT(int, setxattr, CHANGE,
	(const char *name, const void *value, size_t size, unsigned flags),
	(name, value, size, flags))
ON_OBJECT(int, removexattr, CHANGE, (const char *name), (name))
ON_OBJECT(int, setattr, CHANGE,
	(unsigned mask, const struct attributes *want, struct attributes *ret_attributes),
	(mask, want, ret_attributes))
ON_OBJECT(int, watch_directory, LOOK, (bool *ret_watched), (ret_watched))

ON_PATH(mkdir, MAKE_DIRECTORY,
	(const char *path, uint32_t mode, struct attributes *ret_attributes),
	(path, mode, ret_attributes))
ON_PATH(mknod, MAKE,
	(const char *path, uint32_t mode, uint64_t rdev, struct attributes *ret_attributes),
	(path, mode, rdev, ret_attributes))
ON_PATH(symlink, MAKE,
	(const char *target, const char *path, struct attributes *ret_attributes),
	(target, path, ret_attributes))
ON_PATH(unlink, CHANGE, (const char *path, const struct object_id *expected), (path, expected))
ON_PATH(rmdir, CHANGE, (const char *path, const struct object_id *expected), (path, expected))
/* clang-format on */

static int policy_link(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes)
{
	/* Through another name a protected object could be changed. */
	int r = check_object(ctx, w, object, CHANGE);

	if (r == 0)
		r = check_path(ctx, w, path, MAKE);
	return r < 0 ? r : forward_link(ctx, w, object, path, ret_attributes);
}

static int policy_fsync(struct op_context *ctx, struct workspace *w, struct open_file *file,
	const char *path, bool data_only)
{
	int r = file ? 0 : check_path(ctx, w, path, LOOK);

	return r < 0 ? r : forward_fsync(ctx, w, file, path, data_only);
}

static int policy_exec(struct op_context *ctx, struct workspace *w,
	const struct exec_request *request, struct process **ret_process)
{
	int r = check_path(ctx, w, request->cwd, LOOK);

	return r < 0 ? r : forward_exec(ctx, w, request, ret_process);
}

/* ---- Renames ------------------------------------------------------------------------------- */

/* 1 when with another path the directory would have other things in it hidden or protected. */
static int binds_below(struct op_context *ctx, struct policy *p, const char *path)
{
	cleanup_with(verdict_done) struct verdict verdict = {0};
	cleanup_free char *compared = strdup(path);
	int r = compared ? judge(ctx, p, path, A_DIRECTORY, &verdict) : -ENOMEM;

	if (r < 0)
		return r;
	if (p->ignores_case)
		policy_fold(compared, strlen(compared));
	return ignore_names_below(p->rules.hidden, compared) ||
	       ignore_names_below(p->rules.protected, compared) ||
	       ignore_names_below(verdict.chain, compared);
}

static int check_directory_rename(
	struct op_context *ctx, struct policy *p, const char *from, const char *to)
{
	int r = binds_below(ctx, p, from);

	if (r == 0)
		r = binds_below(ctx, p, to);
	return r > 0 ? -EXDEV : r;
}

static int check_rename(
	struct op_context *ctx, struct policy *p, const char *from, const char *to, bool swap)
{
	enum kind kind = UNKNOWN_KIND, kind_there = swap ? UNKNOWN_KIND : ANOTHER_KIND;
	int r = check(ctx, p, from, CHANGE);

	if (r == 0)
		r = find_kind(ctx, p, from, &kind);
	if (r == 0)
		r = check(ctx, p, to, kind == A_DIRECTORY ? MAKE_DIRECTORY : MAKE);
	if (r == 0 && swap)
		r = check(ctx, p, to, CHANGE);
	if (r == 0)
		r = find_kind(ctx, p, to, &kind_there);
	if (r == 0 && (kind == A_DIRECTORY || kind_there == A_DIRECTORY))
		r = check_directory_rename(ctx, p, from, to);
	return r;
}

static int policy_rename(struct op_context *ctx, struct workspace *w, const char *from,
	const char *to, unsigned flags, const struct object_id *expected)
{
	struct policy *p = policy_from(w);
	int r = check_rename(ctx, p, from, to, flags & RENAME_SWAP);

	if (r == 0)
		r = forward_rename(ctx, w, from, to, flags, expected);
	if (r == 0)
		policy_lists_forget(&p->lists, NULL);
	return r;
}

/* ---- Open files ---------------------------------------------------------------------------- */

/* What the name's protection forbids through the handle, too (fchmod(2), for example). */
static int policy_open_file(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	cleanup_with(verdict_done) struct verdict verdict = {0};
	bool changes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
	int r = 0;

	if (object->file)
		verdict.is_protected = is_protected(object->file);
	else
		r = judge(ctx, policy_from(w), object->path, UNKNOWN_KIND, &verdict);
	if (r == 0)
		r = refusal(&verdict, changes ? CHANGE : LOOK);
	if (r == 0)
		r = forward_open_file(ctx, w, object, flags, ret_file, ret_attributes);
	if (r == 0)
		((struct forward_file *)*ret_file)->is_marked = verdict.is_protected;
	return r;
}

static int policy_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	int r = check_path(ctx, w, path, MAKE);

	return r < 0 ? r : forward_create(ctx, w, path, flags, mode, ret_file, ret_attributes);
}

static int policy_create_unnamed(struct op_context *ctx, struct workspace *w, const char *directory,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	int r = check_path(ctx, w, directory, CHANGE);

	return r < 0 ? r
		     : forward_create_unnamed(
			       ctx, w, directory, flags, mode, ret_file, ret_attributes);
}

/* ---- Listings ------------------------------------------------------------------------------ */

struct listing {
	struct op_context *ctx;
	struct policy *policy;
	const char *directory;
	struct verdict verdict; /* on the directory, with its own list */
	dir_entry_sink sink;
	void *user;
};

static int pass_visible(void *user, const struct dir_entry *entry)
{
	struct listing *listing = user;
	cleanup_free char *path = path_join(listing->directory, entry->path);
	struct verdict verdict = {.chain = listing->verdict.chain};
	enum kind kind = S_ISDIR(entry->attributes.mode) ? A_DIRECTORY : ANOTHER_KIND;
	int r = path ? judge_name(listing->ctx, listing->policy, path, kind, &verdict) : -ENOMEM;

	return r < 0 || verdict.is_hidden ? r : listing->sink(listing->user, entry);
}

static int policy_readdir(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool watch, dir_entry_sink sink, void *user,
	uint64_t *ret_since)
{
	struct policy *p = policy_from(w);
	struct listing listing = {
		.ctx = ctx, .policy = p, .directory = directory->path, .sink = sink, .user = user};
	int r = judge(ctx, p, directory->path, A_DIRECTORY, &listing.verdict);

	if (r == 0)
		r = listing.verdict.is_hidden ? -ENOENT
					      : enter(ctx, p, directory->path, &listing.verdict);
	if (r == 0)
		r = forward_readdir(ctx, w, directory, watch, pass_visible, &listing, ret_since);
	verdict_done(&listing.verdict);
	return r;
}

/* An entry of a scan, kept until the scan is over: to judge it may need the workspace. */
struct scanned {
	struct scanned *next;
	struct dir_entry entry;
	char path[]; /* relative to the scanned directory; behind it the entry's lines */
};

struct scanning {
	struct scanned *first, **last;
	size_t lines_bytes;
};

static void scanning_done(struct scanning *scanning)
{
	while (scanning->first) {
		struct scanned *next = scanning->first->next;

		free(scanning->first);
		scanning->first = next;
	}
}

static int keep_scanned(void *user, const struct dir_entry *entry)
{
	struct scanning *scanning = user;
	size_t size = strlen(entry->path) + 1, room = LINES_KEPT_MAX_BYTES - scanning->lines_bytes;
	/* Without its lines, a file is searched by whoever asked. */
	size_t lines_size = entry->lines_size <= room ? entry->lines_size : 0;
	struct scanned *scanned = malloc(sizeof(*scanned) + size + lines_size);

	if (!scanned)
		return -ENOMEM;
	*scanned = (struct scanned){.entry = *entry};
	memcpy(scanned->path, entry->path, size);
	scanned->entry.lines =
		lines_size ? memcpy(scanned->path + size, entry->lines, lines_size) : NULL;
	scanned->entry.lines_size = lines_size;
	scanning->lines_bytes += lines_size;
	scanned->entry.path = scanned->path;
	scanned->entry.content = NULL;
	scanned->entry.link_target = NULL;
	scanned->entry.content_size = 0;
	*scanning->last = scanned;
	scanning->last = &scanned->next;
	return 0;
}

static int pass_scanned(struct op_context *ctx, struct policy *p, const char *directory,
	const struct dir_entry *entry, dir_entry_sink sink, void *user)
{
	cleanup_with(verdict_done) struct verdict verdict = {0};
	enum kind kind = S_ISDIR(entry->attributes.mode) ? A_DIRECTORY : ANOTHER_KIND;
	cleanup_free char *path = path_join(directory, entry->path);
	int r = path ? judge(ctx, p, path, kind, &verdict) : -ENOMEM;

	return r < 0 || verdict.is_hidden ? r : sink(user, entry);
}

/* A search goes to the workspace, and its answer through the rules; any other scan is made of
 * readdir, which knows what is hidden. */
static int policy_scan(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, const struct scan_request *request, dir_entry_sink sink,
	void *user)
{
	cleanup_with(scanning_done) struct scanning scanning = {0};
	int r;

	if (directory->file || !(request->flags & SCAN_NOT_IGNORED))
		return workspace_scan_by_walking(ctx, w, directory, request, sink, user);
	r = check_path(ctx, w, directory->path, LOOK);
	scanning.last = &scanning.first;
	if (r == 0)
		r = forward_scan(ctx, w, directory, request, keep_scanned, &scanning);
	for (struct scanned *at = scanning.first; at && r == 0; at = at->next)
		r = pass_scanned(ctx, policy_from(w), directory->path, &at->entry, sink, user);
	return r < 0 ? r : 0;
}

/* ---- Changes ------------------------------------------------------------------------------- */

/* Changes in a directory of which nobody is to know the name, or not only that name. */
static void pass_rescan_of_parent(struct policy *p, const struct change *change)
{
	cleanup_free char *parent = strndup(change->path, path_parent_length(change->path));

	p->sink(p->sink_user,
		&(struct change){
			.kind = CHANGE_RESCAN, .path = parent ? parent : "", .at = change->at});
}

static int is_hidden(struct policy *p, const char *path, enum kind kind)
{
	cleanup_with(verdict_done) struct verdict verdict = {0};
	struct op_context ctx;
	int r;

	op_context_init(&ctx);
	r = judge(&ctx, p, path, kind, &verdict);
	return r < 0 ? r : verdict.is_hidden;
}

/* Of what is gone nobody knows any more whether it was a directory. */
static void take_entry(struct policy *p, const struct change *change)
{
	int as_directory = is_hidden(p, change->path, A_DIRECTORY);
	int as_other = is_hidden(p, change->path, ANOTHER_KIND);

	if (change->exists)
		as_directory = as_other =
			S_ISDIR(change->attributes.mode) ? as_directory : as_other;
	if (as_directory < 0 || as_directory != as_other)
		pass_rescan_of_parent(p, change);
	else if (!as_directory)
		p->sink(p->sink_user, change);
}

static void take_change(void *user, const struct change *change)
{
	struct policy *p = user;

	policy_lists_forget(&p->lists, change->kind == CHANGE_RESCAN ? NULL : change->path);
	if (change->kind != CHANGE_ENTRY) {
		p->sink(p->sink_user, change);
		return;
	}
	if (is_list(p, change->path))
		pass_rescan_of_parent(p, change);
	take_entry(p, change);
}

static int policy_watch(struct workspace *w, change_sink sink, void *user)
{
	struct policy *p = policy_from(w);

	if (p->sink)
		return -EBUSY;
	p->sink = sink;
	p->sink_user = user;
	return forward_watch(w, take_change, p);
}

static void policy_unwatch(struct workspace *w, const struct object_ref *directory)
{
	policy_lists_forget(&policy_from(w)->lists, directory->path);
	forward_unwatch(w, directory);
}

/* ---- The decorator ------------------------------------------------------------------------- */

static void policy_free(struct workspace *w)
{
	struct policy *p = policy_from(w);

	workspace_free(p->base.inner); /* no change comes any more */
	policy_lists_done(&p->lists);
	ignore_unref(p->rules.hidden);
	ignore_unref(p->rules.protected);
	free(p);
}

/* clang-format off */
#define CHECKED_OPERATIONS(X) \
	X(getattr) X(readdir) X(readlink) X(mkdir) X(mknod) X(symlink) X(link) X(unlink) \
	X(rmdir) X(rename) X(setattr) X(getxattr) X(listxattr) X(setxattr) X(removexattr) \
	X(open_file) X(create) X(create_unnamed) X(fsync) X(exec) X(watch) X(watch_directory) \
	X(unwatch) X(free)
/* clang-format on */

#define CHECK_FIRST(name)     \
	if (p->base.ops.name) \
		p->base.ops.name = policy_##name;

int policy_new(
	struct workspace *inner, const struct policy_rules *rules, struct workspace **ret_workspace)
{
	struct policy *p = calloc(1, sizeof(*p));
	struct workspace_status status;

	if (!p)
		return -ENOMEM;
	workspace_status(inner, &status);
	p->ignores_case = status.capabilities & WORKSPACE_IGNORES_CASE;
	if (policy_lists_init(&p->lists, inner) < 0) {
		free(p);
		return -ENOMEM;
	}
	p->rules = *rules;
	forward_init(&p->base, inner, &forward_ops);
	p->base.ops.name = inner->ops->name;
	p->base.ops.scan = policy_scan;
	CHECKED_OPERATIONS(CHECK_FIRST)
	*ret_workspace = &p->base.workspace;
	return 0;
}
