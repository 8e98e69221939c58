/*
 * A helper that answers anything: the input is frames (type, id, payload) to a client that has
 * requests of many kinds under way, a command, and a change feed.
 */
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "backends/remote/client/client_internal.h"
#include "tests/fuzz/fuzz.h"

enum { REQUESTS = 8 };

static void take_change(void *user, const struct change *change)
{
	(void)user;
	if (strlen(change->path) > FRAME_PAYLOAD_MAX_BYTES)
		abort();
}

static void answered(struct call *call)
{
	struct attributes attributes;

	if (call->result >= 0)
		wire_get_attributes(&call->body, &attributes);
	call_free(call);
}

static void ask(struct remote *remote, struct op_context *ctx, enum frame_type type)
{
	remote_request_submit(&(struct remote_request){ctx, remote, type}, answered, NULL);
}

static void feed_frames(struct remote *remote, struct wire_reader *in)
{
	while (wire_reader_left(in) > 0) {
		struct frame_header header = {.type = (uint8_t)wire_get_number(in),
			.id = (uint32_t)wire_get_number(in) % (2 * REQUESTS)};
		size_t size;
		const uint8_t *payload = wire_get_bytes(in, &size);
		uint8_t *copy = malloc(size + 1);

		if (!copy)
			return;
		if (payload)
			memcpy(copy, payload, size);
		copy[size] = '\0';
		header.size = (uint32_t)size;
		if (remote_received(remote, &header, copy) < 0)
			return;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct remote_settings settings = {
		.scheme = &helper_scheme, .timeout_ms = 60000};
	struct wire_reader in = wire_reader_over(data, size);
	struct remote_process *process;
	struct op_context ctx;
	struct remote *remote;

	op_context_init(&ctx);
	if (remote_new(&settings, &remote) < 0)
		return 0;
	remote->capabilities = WORKSPACE_CAN_EXEC | WORKSPACE_CAN_WATCH;
	for (int i = 0; i < REQUESTS; i++)
		ask(remote, &ctx, REQUEST_FIRST + i);
	if (remote_feed_start(remote, take_change, NULL) == 0 &&
		remote_process_new(remote, &process) == 0) {
		feed_frames(remote, &in);
		remote_process_free((struct process *)process);
	}
	pthread_mutex_lock(&remote->lock);
	remote_fail_calls(remote);
	pthread_mutex_unlock(&remote->lock);
	remote_release(remote);
	return 0;
}
