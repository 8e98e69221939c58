/*
 * A helper that answers anything to what is waited for: the first byte picks an operation, the rest
 * is what a thread that plays the far end says to each of its requests, frame by frame.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/remote/client/client_internal.h"
#include "ops/support/exec.h"
#include "tests/fuzz/fuzz.h"

struct far_end {
	struct remote *remote;
	struct wire_reader in;
	bool runs_command;
	atomic_bool stop;
};

static uint32_t request_id(struct remote *remote)
{
	uint32_t id = 0;

	pthread_mutex_lock(&remote->lock);
	for (uint32_t i = 1; i <= remote->call_serial && !id; i++) {
		struct call *call = remote->calls[i % CALL_SLOTS];

		if (call && !call->done)
			id = call->id;
	}
	pthread_mutex_unlock(&remote->lock);
	return id;
}

/* What comes after the end of the input is the end of the session. */
static void say_next(struct far_end *far, uint32_t id)
{
	struct frame_header header = {.id = id};
	const uint8_t *payload;
	uint8_t *copy;
	size_t size;

	header.type = (uint8_t)(FRAME_REPLY + wire_get_number(&far->in) % 10);
	payload = wire_get_bytes(&far->in, &size);
	if (!payload) {
		pthread_mutex_lock(&far->remote->lock);
		remote_fail_calls(far->remote);
		remote_processes_lost(far->remote);
		pthread_mutex_unlock(&far->remote->lock);
		return;
	}
	copy = malloc(size + 1);
	if (!copy)
		abort();
	memcpy(copy, payload, size);
	copy[size] = '\0';
	header.size = (uint32_t)size;
	if (header.type >= FRAME_OUTPUT)
		header.id = 1;
	remote_received(far->remote, &header, copy);
}

static void *run_far_end(void *argument)
{
	struct far_end *far = argument;
	bool started = false;

	while (!far->stop) {
		uint32_t id = request_id(far->remote);

		started = started || id;
		/* A command is waited for without a request. */
		if (id || (started && far->runs_command))
			say_next(far, id);
		else
			sched_yield();
	}
	return NULL;
}

/* ---- Operations ------------------------------------------------------------------------ */

static int take_entry(void *user, const struct dir_entry *entry)
{
	(void)user;
	if (strlen(entry->path) > FRAME_PAYLOAD_MAX_BYTES)
		abort();
	return 0;
}

static void list(struct op_context *ctx, struct workspace *w)
{
	static const struct scan_request request = {.flags = SCAN_CONTENT};
	uint64_t since;

	remote_readdir(ctx, w, &OBJECT_AT("d"), true, take_entry, NULL, &since);
	remote_scan(ctx, w, &OBJECT_AT(""), &request, take_entry, NULL);
}

static void look(struct op_context *ctx, struct workspace *w)
{
	struct attributes attributes;
	struct fs_stats stats;
	char value[64], *target;

	remote_getattr(ctx, w, &OBJECT_AT("f"), &attributes);
	if (remote_readlink(ctx, w, &OBJECT_AT("l"), &target) == 0)
		free(target);
	remote_statfs(ctx, w, &stats);
	remote_check(ctx, w);
	if (remote_getxattr(ctx, w, &OBJECT_AT("f"), "user.x", value, sizeof(value)) >
		(ssize_t)sizeof(value))
		abort();
	if (remote_listxattr(ctx, w, &OBJECT_AT("f"), value, sizeof(value)) >
		(ssize_t)sizeof(value))
		abort();
}

static void change(struct op_context *ctx, struct workspace *w)
{
	struct attributes attributes;

	memset(&attributes, 0, sizeof(attributes));
	remote_mkdir(ctx, w, "d", 0755, &attributes);
	remote_symlink(ctx, w, "target", "l", &attributes);
	remote_setattr(ctx, w, &OBJECT_AT("f"), SET_SIZE, &attributes, &attributes);
	remote_rename(ctx, w, "a", "b", 0, &attributes.id);
	remote_unlink(ctx, w, "b", &attributes.id);
}

static void use_file(struct op_context *ctx, struct workspace *w, struct open_file *file)
{
	struct file_lock lock = {.kind = LOCK_KIND_POSIX, .type = LOCK_EXCLUSIVE};
	char data[4096] = "";

	if (remote_read(ctx, file, data, sizeof(data), 100) > (ssize_t)sizeof(data))
		abort();
	remote_write(ctx, file, data, sizeof(data), 0);
	remote_seek(ctx, file, 0, SEEK_HOLE);
	remote_lock(ctx, file, &lock, false);
	remote_lock_test(ctx, file, &lock);
	remote_copy_range(ctx, file, 0, file, 8192, 4096);
	remote_fsync(ctx, w, file, "", true);
	remote_close(ctx, file);
}

static void open_it(struct op_context *ctx, struct workspace *w)
{
	struct attributes attributes;
	struct open_file *file;

	if (remote_open_file(ctx, w, &OBJECT_AT("f"), O_RDWR, &file, &attributes) == 0)
		use_file(ctx, w, file);
}

static void create_it(struct op_context *ctx, struct workspace *w)
{
	struct attributes attributes;
	struct open_file *file;

	if (remote_create(ctx, w, "f", O_RDWR, 0644, &file, &attributes) == 0)
		use_file(ctx, w, file);
}

static void execute(struct op_context *ctx, struct workspace *w)
{
	const struct exec_request request = {.command = "true", .cwd = ""};
	struct exec_event event = {0};
	struct process *process;
	char data[256];

	if (remote_exec(ctx, w, &request, &process) < 0)
		return;
	remote_process_write(ctx, process, data, 0);
	while (remote_process_next(ctx, process, data, sizeof(data), &event) == 0 &&
		event.type != EXEC_EXIT)
		if (event.size > sizeof(data))
			abort();
	remote_process_free(process);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const operations[])(struct op_context * ctx, struct workspace * w) = {
		list, look, change, open_it, create_it, execute};
	static const struct remote_settings settings = {
		.scheme = &helper_scheme, .timeout_ms = 60000};
	struct far_end far = {.in = wire_reader_over(data + 1, size ? size - 1 : 0)};
	struct op_context ctx;
	pthread_t thread;

	if (!size || remote_new(&settings, &far.remote) < 0)
		return 0;
	op_context_init(&ctx);
	far.remote->capabilities = WORKSPACE_CAN_EXEC;
	far.runs_command = operations[data[0] % array_size(operations)] == execute;
	if (pthread_create(&thread, NULL, run_far_end, &far) == 0) {
		operations[data[0] % array_size(operations)](&ctx, &far.remote->base);
		far.stop = true;
		pthread_join(thread, NULL);
	}
	pthread_mutex_lock(&far.remote->lock);
	remote_fail_calls(far.remote);
	pthread_mutex_unlock(&far.remote->lock);
	remote_release(far.remote);
	return 0;
}
