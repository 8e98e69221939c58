/*
 * What the client makes of answers: a thread plays the far end, without any connection.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/remote/client/client_internal.h"
#include "tests/check.h"

enum { LONG_PATH_BYTES = 60000, LONG_PATHS = 60, FRAMES_MAX = 1000, HANDLES = 8192 };

/* The far end: forgets so many requests first, as a new session would, and sends so many parts of
 * a listing before it says that all is well.  It may begin a new session with every answer. */
struct far_end {
	struct remote *remote;
	unsigned forgets, parts;
	bool renews;
	uint64_t position; /* of its answers */
	struct wire_writer part;
	unsigned seen; /* requests */
	atomic_uint refused;
	atomic_bool stop;
	pthread_t thread;
};

/* The request under way, or 0. */
static uint32_t request_id(struct remote *remote)
{
	uint32_t id = 0;

	pthread_mutex_lock(&remote->lock);
	for (size_t i = 0; remote->call_count && i < CALL_SLOTS && !id; i++)
		if (remote->calls[i] && !remote->calls[i]->done)
			id = remote->calls[i]->id;
	pthread_mutex_unlock(&remote->lock);
	return id;
}

static void give(
	struct far_end *far, enum frame_type type, uint32_t id, const void *data, size_t size)
{
	struct frame_header header = {.type = (uint8_t)type, .id = id, .size = (uint32_t)size};
	uint8_t *payload = malloc(size + 1);

	if (!payload)
		abort();
	memcpy(payload, data, size);
	payload[size] = '\0';
	remote_received(far->remote, &header, payload);
}

static void begin_session(struct remote *remote)
{
	pthread_mutex_lock(&remote->lock);
	remote->epoch++;
	pthread_mutex_unlock(&remote->lock);
}

static void forget(struct far_end *far)
{
	far->forgets--;
	pthread_mutex_lock(&far->remote->lock);
	far->remote->epoch++;
	remote_fail_calls(far->remote);
	pthread_mutex_unlock(&far->remote->lock);
}

/* Waits while plenty of the answer has not been taken.  False: it is not wanted any more. */
static bool awaits_parts(struct remote *remote, uint32_t id)
{
	struct call *call;
	size_t waiting;

	do {
		pthread_mutex_lock(&remote->lock);
		call = remote->calls[id % CALL_SLOTS];
		waiting = call ? call->data_bytes : 0;
		pthread_mutex_unlock(&remote->lock);
		sched_yield();
	} while (waiting > CREDIT_LISTING_BYTES / 2);
	return call;
}

static void answer(struct far_end *far, uint32_t id)
{
	uint8_t result[WIRE_RESULT_BYTES];
	cleanup_wire_writer struct wire_writer reply = {0};
	const struct attributes attributes = {.id.inode = 42, .mode = S_IFREG};
	bool lists = far->parts > 0;

	lane_withdraw(far->remote->lane, id); /* it was sent */
	for (; far->parts > 0 && awaits_parts(far->remote, id) && !far->stop; far->parts--)
		give(far, FRAME_DATA, id, far->part.buffer.data, far->part.buffer.size);
	wire_set_result(result, 0, far->position);
	wire_put_raw(&reply, result, sizeof(result));
	if (!lists)
		wire_put_attributes(&reply, &attributes);
	if (far->renews)
		begin_session(far->remote);
	give(far, FRAME_REPLY, id, reply.buffer.data, reply.buffer.size);
}

static void *run_far_end(void *argument)
{
	struct far_end *far = argument;
	const struct timespec pause = {.tv_nsec = 200000};

	while (!far->stop) {
		uint32_t id = request_id(far->remote);

		if (!id) {
			nanosleep(&pause, NULL);
			continue;
		}
		far->seen++;
		if (far->forgets > 0)
			forget(far);
		else
			answer(far, id);
	}
	return NULL;
}

static void far_end_start(struct far_end *far, void *(*run)(void *))
{
	static const struct remote_settings settings = {
		.scheme = &helper_scheme, .timeout_ms = 60000};

	if (remote_new(&settings, &far->remote) < 0 ||
		pthread_create(&far->thread, NULL, run, far) != 0)
		abort();
}

static void far_end_stop(struct far_end *far)
{
	far->stop = true;
	pthread_join(far->thread, NULL);
	remote_release(far->remote);
	wire_writer_done(&far->part);
}

static int ask(struct far_end *far, struct attributes *ret_attributes)
{
	struct op_context ctx;

	op_context_init(&ctx);
	return remote_getattr(&ctx, &far->remote->base, &OBJECT_AT("f"), ret_attributes);
}

static void test_what_a_session_forgot_is_asked_anew(void)
{
	struct far_end far = {.forgets = 1};
	struct attributes attributes = {0};

	far_end_start(&far, run_far_end);
	CHECK_RC(0, ask(&far, &attributes));
	far_end_stop(&far);
	CHECK_RC(42, attributes.id.inode);
	CHECK_RC(2, far.seen);
}

static void test_sessions_that_all_forget_are_given_up(void)
{
	struct far_end far = {.forgets = 1000};
	struct attributes attributes;

	far_end_start(&far, run_far_end);
	CHECK_RC(-EIO, ask(&far, &attributes));
	far_end_stop(&far);
	CHECK_RC(1 + REPEATS_MAX, far.seen);
}

static void *begin_sessions(void *argument)
{
	struct far_end *far = argument;

	while (!far->stop) {
		pthread_mutex_lock(&far->remote->lock);
		remote_fail_calls(far->remote);
		pthread_mutex_unlock(&far->remote->lock);
		sched_yield();
	}
	return NULL;
}

static void *make_directories(void *argument)
{
	struct far_end *far = argument;
	struct attributes attributes;
	struct op_context ctx;

	for (int i = 0; i < 1000; i++) {
		op_context_init(&ctx);
		far->refused +=
			remote_mkdir(&ctx, &far->remote->base, "d", 0755, &attributes) == -EIO;
	}
	return NULL;
}

/* Who is told that nothing came of it makes it anew, or believes that. */
static void test_what_was_not_sent_in_its_session_is_in_no_other(void)
{
	struct far_end far = {0};
	pthread_t threads[8];

	far_end_start(&far, begin_sessions);
	for (size_t i = 0; i < array_size(threads); i++)
		if (pthread_create(&threads[i], NULL, make_directories, &far) != 0)
			abort();
	for (size_t i = 0; i < array_size(threads); i++)
		pthread_join(threads[i], NULL);
	CHECK_RC(8000, far.refused);
	CHECK_RC(0, lane_waiting_bytes(far.remote->lane));
	far_end_stop(&far);
}

static int open_and_read(struct far_end *far)
{
	struct attributes attributes;
	struct open_file *file;
	struct op_context ctx;
	char data[512];
	int r;

	op_context_init(&ctx);
	r = remote_open_file(
		&ctx, &far->remote->base, &OBJECT_AT("f"), O_RDONLY, &file, &attributes);
	if (r < 0)
		return r;
	r = (int)remote_read(&ctx, file, data, sizeof(data), 0);
	remote_close(&ctx, file);
	return r;
}

/* The handle that each open gives is of a session which has ended: no read is sent with it. */
static void test_a_read_is_given_up_as_late_as_any_request(void)
{
	struct far_end far = {.renews = true};

	far_end_start(&far, run_far_end);
	CHECK_RC(-EIO, open_and_read(&far));
	far_end_stop(&far);
	CHECK_RC(2 + REPEATS_MAX, far.seen); /* all are opens */
}

/* ---- Reads beside writes -------------------------------------------------------------- */

/* A far end with a connection.  The test answers its first read; a second one is answered together
 * with the write before it. */
struct far_files {
	struct lane *lane;
	struct remote *remote;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned reads; /* lock, as the next two */
	uint32_t first_read;
	uint64_t order; /* of the second read: the handle that it follows */
	uint32_t write;
	uint32_t change; /* the request that changes the content otherwise, or 0 (lock) */
	char letter;     /* what every read is answered with at once; 0: see above */
	struct open_file *reader, *writer;
};

static void reply(struct far_files *far, uint32_t id, int64_t result,
	const struct attributes *attributes, char fill, size_t size)
{
	static const uint8_t room[WIRE_RESULT_BYTES];
	struct wire_writer out = {0};

	lane_writer_init(&out);
	wire_put_raw(&out, room, sizeof(room));
	wire_set_result(out.buffer.data + FRAME_HEADER_BYTES, result, 1);
	if (attributes)
		wire_put_attributes(&out, attributes);
	for (size_t i = 0; i < size; i++)
		wire_put_raw(&out, &fill, 1);
	CHECK_RC(0, lane_send(far->lane, LANE_URGENT, FRAME_REPLY, id, &out));
}

static void take_read(struct far_files *far, uint32_t id, uint64_t order)
{
	bool is_first;

	if (far->letter) {
		reply(far, id, 512, NULL, far->letter, 512);
		return;
	}
	pthread_mutex_lock(&far->lock);
	is_first = far->reads++ == 0;
	if (is_first)
		far->first_read = id;
	else
		far->order = order;
	pthread_cond_broadcast(&far->changed);
	pthread_mutex_unlock(&far->lock);
	if (is_first)
		return;
	reply(far, id, 512, NULL, 'n', 512);
	reply(far, far->write, 1, NULL, 0, 1); /* without facts */
}

static void take_change(struct far_files *far, uint32_t id)
{
	pthread_mutex_lock(&far->lock);
	far->change = id;
	pthread_cond_broadcast(&far->changed);
	pthread_mutex_unlock(&far->lock);
}

static int take_request(void *user, const struct frame_header *header, uint8_t *payload)
{
	const struct attributes attributes = {.id.inode = 42, .mode = S_IFREG, .size_bytes = 4096};
	struct wire_reader in = wire_reader_over(payload, header->size);
	struct far_files *far = user;
	uint64_t order;

	for (int i = 0; i < 4; i++)
		wire_get_number(&in); /* uid, gid, umask, no groups */
	order = wire_get_number(&in);
	if (header->type == REQUEST_READ)
		take_read(far, header->id, order);
	else if (header->type == REQUEST_OPEN)
		reply(far, header->id, 0, &attributes, 0, 0);
	else if (header->type == REQUEST_WRITE)
		far->write = header->id;
	else if (header->type == REQUEST_COPY_RANGE || header->type == REQUEST_FALLOCATE)
		take_change(far, header->id);
	else
		reply(far, header->id, 0, NULL, 0, 0);
	free(payload);
	return 0;
}

static void ignore_loss(void *user, int error)
{
	(void)user;
	(void)error;
}

static void far_files_start(struct far_files *far)
{
	static const struct remote_settings settings = {
		.scheme = &helper_scheme, .timeout_ms = 60000};
	static const struct lane_callbacks there = {.received = take_request, .lost = ignore_loss};
	int fds[2];

	*far = (struct far_files){.lane = NULL};
	pthread_mutex_init(&far->lock, NULL);
	pthread_cond_init(&far->changed, NULL);
	if (remote_new(&settings, &far->remote) < 0 || lane_new(&there, far, &far->lane) < 0 ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ||
		lane_attach(far->remote->lane, fds[0], fds[0], 0) < 0 ||
		lane_attach(far->lane, fds[1], fds[1], 0) < 0)
		abort();
}

/* With what has not been answered. */
static void release(struct remote *remote)
{
	pthread_mutex_lock(&remote->lock);
	remote_fail_calls(remote);
	pthread_mutex_unlock(&remote->lock);
	remote_release(remote);
}

static void far_files_stop(struct far_files *far)
{
	lane_detach(far->remote->lane);
	lane_detach(far->lane);
	lane_free(far->lane);
	release(far->remote);
	pthread_cond_destroy(&far->changed);
	pthread_mutex_destroy(&far->lock);
}

static void *read_first(void *argument)
{
	struct far_files *far = argument;
	struct op_context ctx;
	char data[512];

	op_context_init(&ctx);
	CHECK_RC(512, remote_read(&ctx, far->reader, data, sizeof(data), 0));
	CHECK_RC('n', data[0]);
	return NULL;
}

static void await_first_read(struct far_files *far)
{
	pthread_mutex_lock(&far->lock);
	while (!far->reads)
		pthread_cond_wait(&far->changed, &far->lock);
	pthread_mutex_unlock(&far->lock);
}

/* The write drops what was asked for before it.  What is asked for in its place may not be answered
 * with what the file held before. */
static void test_a_read_that_a_write_overtakes_is_asked_for_behind_it(void)
{
	struct attributes attributes;
	struct op_context ctx;
	struct far_files far;
	pthread_t thread;

	far_files_start(&far);
	op_context_init(&ctx);
	CHECK_RC(0, remote_open_file(&ctx, &far.remote->base, &OBJECT_AT("f"), O_RDONLY,
			    &far.reader, &attributes));
	CHECK_RC(0, remote_open_file(&ctx, &far.remote->base, &OBJECT_AT("f"), O_RDWR, &far.writer,
			    &attributes));
	CHECK_RC(0, pthread_create(&thread, NULL, read_first, &far));
	await_first_read(&far);
	CHECK_RC(1, remote_write(&ctx, far.writer, "n", 1, 0));
	reply(&far, far.first_read, 512, NULL, 'o', 512);
	pthread_join(thread, NULL);
	CHECK_RC(2, far.reads);
	CHECK_RC(remote_file_of(far.writer)->handle, far.order);
	remote_close(&ctx, far.reader);
	remote_close(&ctx, far.writer);
	far_files_stop(&far);
}

static void *copy_there(void *argument)
{
	struct far_files *far = argument;
	struct op_context ctx;

	op_context_init(&ctx);
	CHECK_RC(512, remote_copy_range(&ctx, far->writer, 4096, far->writer, 0, 512));
	return NULL;
}

static void *punch_there(void *argument)
{
	struct far_files *far = argument;
	struct op_context ctx;

	op_context_init(&ctx);
	CHECK_RC(0, remote_fallocate(&ctx, far->writer, ALLOCATE_PUNCH_HOLE, 0, 512));
	return NULL;
}

/* Beyond the end of the file: the rest of what was asked for stays to be read. */
static char read_letter(struct far_files *far)
{
	struct op_context ctx;
	char data[1024];

	op_context_init(&ctx);
	CHECK_RC(512, remote_read(&ctx, far->reader, data, sizeof(data), 0));
	return data[0];
}

static void check_read_beside(void *(*change)(void *), int64_t result)
{
	struct attributes attributes;
	struct op_context ctx;
	struct far_files far;
	pthread_t thread;

	far_files_start(&far);
	op_context_init(&ctx);
	far.letter = 'o';
	CHECK_RC(0, remote_open_file(&ctx, &far.remote->base, &OBJECT_AT("f"), O_RDONLY,
			    &far.reader, &attributes));
	CHECK_RC(0, remote_open_file(&ctx, &far.remote->base, &OBJECT_AT("f"), O_RDWR, &far.writer,
			    &attributes));
	CHECK_RC(0, pthread_create(&thread, NULL, change, &far));
	pthread_mutex_lock(&far.lock);
	while (!far.change)
		pthread_cond_wait(&far.changed, &far.lock);
	pthread_mutex_unlock(&far.lock);
	CHECK_RC('o', read_letter(&far));
	far.letter = 'n';
	reply(&far, far.change, result, NULL, 0, 1); /* without facts */
	pthread_join(thread, NULL);
	CHECK_RC('n', read_letter(&far));
	remote_close(&ctx, far.reader);
	remote_close(&ctx, far.writer);
	far_files_stop(&far);
}

static void test_what_is_read_while_content_changes_is_not_kept(void)
{
	check_read_beside(copy_there, 512);
	check_read_beside(punch_there, 0);
}

/* ---- Silence --------------------------------------------------------------------------- */

static void *ask_in_vain(void *argument)
{
	struct far_end *far = argument;
	struct attributes attributes;

	CHECK_RC(-EIO, ask(far, &attributes));
	return NULL;
}

/* A link to another machine that is silent for 3 s would be given up with this bound.  A helper on
 * this one may get no processor for that long; its session, and with it what is under way, would be
 * lost for nothing. */
static void test_a_silent_helper_on_this_machine_is_waited_for(void)
{
	static const struct remote_settings settings = {
		.scheme = &helper_scheme, .timeout_ms = 4000};
	struct far_end far = {0};
	struct pollfd end;
	int fds[2];

	CHECK_RC(0, remote_new(&settings, &far.remote));
	CHECK_RC(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	CHECK_RC(0, lane_attach(far.remote->lane, fds[0], fds[0], 0));
	CHECK_RC(0, remote_manager_start(far.remote));
	CHECK_RC(0, pthread_create(&far.thread, NULL, ask_in_vain, &far));
	pthread_join(far.thread, NULL);
	end = (struct pollfd){.fd = fds[1], .events = POLLRDHUP};
	CHECK_RC(0, poll(&end, 1, 0));
	remote_manager_stop(far.remote);
	release(far.remote);
	close(fds[1]);
}

/* ---- Listings ---------------------------------------------------------------------- */

static void fill_part(struct far_end *far, unsigned entries)
{
	static char path[LONG_PATH_BYTES + 8];
	char previous[sizeof(path)] = "";

	memset(path, 'p', LONG_PATH_BYTES);
	for (size_t i = 200; i < LONG_PATH_BYTES; i += 200)
		path[i] = '/';
	for (unsigned i = 0; i < entries; i++) {
		struct dir_entry entry = {.path = path, .attributes.id.inode = i + 1, .at = 7};

		snprintf(path + LONG_PATH_BYTES, 8, "/%04u", i % 10000);
		wire_put_dir_entry(&far->part, previous, i > 0 ? 7 : 0, NULL, &entry);
		memcpy(previous, path, sizeof(path));
	}
}

static int take_entry(void *user, const struct dir_entry *entry)
{
	(void)entry;
	++*(unsigned *)user;
	return 0;
}

static int list(struct far_end *far, unsigned *ret_taken)
{
	static const struct scan_request request = {0};
	struct op_context ctx;

	op_context_init(&ctx);
	*ret_taken = 0;
	return remote_scan(
		&ctx, &far->remote->base, &OBJECT_AT(""), &request, take_entry, ret_taken);
}

static void test_a_listing_has_all_its_parts(void)
{
	struct far_end far = {.parts = 20};
	unsigned taken;

	fill_part(&far, LONG_PATHS);
	far_end_start(&far, run_far_end);
	CHECK_RC(0, list(&far, &taken));
	far_end_stop(&far);
	CHECK_RC(20 * LONG_PATHS, taken);
}

static bool all_answered(struct remote *remote)
{
	bool all = true;

	pthread_mutex_lock(&remote->lock);
	for (size_t i = 0; i < CALL_SLOTS; i++)
		all = all && (!remote->calls[i] || remote->calls[i]->done);
	pthread_mutex_unlock(&remote->lock);
	return all;
}

static int go_offline_once_answered(void *user, const struct dir_entry *entry)
{
	struct remote *remote = user;

	(void)entry;
	while (!all_answered(remote))
		sched_yield();
	remote->bad_since_ms = 1;
	return 0;
}

static void test_a_listing_that_is_given_up_after_its_answer_leaves_nothing(void)
{
	static const struct scan_request request = {0};
	struct far_end far = {.parts = 3};
	struct op_context ctx;

	fill_part(&far, 1);
	far_end_start(&far, run_far_end);
	op_context_init(&ctx);
	CHECK_RC(-EIO, remote_scan(&ctx, &far.remote->base, &OBJECT_AT(""), &request,
			       go_offline_once_answered, far.remote));
	CHECK_RC(0, far.remote->call_count);
	far_end_stop(&far);
}

/* 60 KB here for what costs 3.6 MB there: 512 MB are reached soon. */
static void test_a_listing_without_end_is_refused(void)
{
	struct far_end far = {.parts = FRAMES_MAX};
	unsigned taken;

	fill_part(&far, LONG_PATHS);
	far_end_start(&far, run_far_end);
	CHECK_RC(-EIO, list(&far, &taken));
	far_end_stop(&far);
	CHECK((uint64_t)taken * LONG_PATH_BYTES <= UINT64_C(512) << 20);
}

static void test_paths_that_grow_in_decoding_are_refused(void)
{
	struct far_end far = {.parts = 1};
	unsigned taken;

	fill_part(&far, 8000);
	CHECK(far.part.buffer.size < FRAME_PAYLOAD_MAX_BYTES);
	far_end_start(&far, run_far_end);
	CHECK_RC(-EIO, list(&far, &taken));
	far_end_stop(&far);
	CHECK((uint64_t)taken * LONG_PATH_BYTES <= LISTING_PATHS_MAX_BYTES);
}

/* ---- Positions -------------------------------------------------------------------------- */

struct positions {
	struct far_end *far;
	unsigned taken;
	uint64_t at[2];
};

/* After the first entry another session begins. */
static int take_position(void *user, const struct dir_entry *entry)
{
	struct positions *positions = user;

	if (positions->taken == 0)
		begin_session(positions->far->remote);
	if (positions->taken < 2)
		positions->at[positions->taken++] = entry->at;
	return 0;
}

static void test_positions_of_a_later_session_are_higher(void)
{
	static const struct scan_request request = {0};
	struct far_end far = {.parts = 1, .position = 1};
	struct positions positions = {.far = &far};
	struct attributes attributes;
	struct op_context ctx;

	op_context_init(&ctx);
	fill_part(&far, 2);
	far_end_start(&far, run_far_end);
	CHECK_RC(0, remote_scan(&ctx, &far.remote->base, &OBJECT_AT(""), &request, take_position,
			    &positions));
	CHECK_RC(7, positions.at[0]);
	CHECK_RC(7, positions.at[1]);
	CHECK_RC(0, remote_getattr(&ctx, &far.remote->base, &OBJECT_AT("f"), &attributes));
	CHECK(ctx.served.position > 7);
	far_end_stop(&far);
}

static int receive_position(struct remote *remote, uint64_t position)
{
	struct frame_header header = {
		.type = FRAME_REPLY, .id = UINT32_MAX, .size = WIRE_RESULT_BYTES};
	uint8_t *payload = malloc(WIRE_RESULT_BYTES);

	if (!payload)
		abort();
	wire_set_result(payload, 0, position);
	return remote_received(remote, &header, payload);
}

static void test_positions_that_would_reach_the_next_session_are_refused(void)
{
	struct far_end far = {0};

	far_end_start(&far, run_far_end);
	CHECK_RC(0, receive_position(far.remote, (UINT64_C(1) << 42) - 1));
	CHECK_RC(-EPROTO, receive_position(far.remote, UINT64_C(1) << 42));
	CHECK_RC(-EPROTO, receive_position(far.remote, UINT64_MAX));
	far_end_stop(&far);
}

/* An open, and writes whose replies come with these positions. */
static void *answer_writes(void *argument)
{
	static const uint64_t positions[] = {3, 9, 5};
	struct far_end *far = argument;

	while (!far->stop) {
		cleanup_wire_writer struct wire_writer reply = {0};
		uint8_t result[WIRE_RESULT_BYTES];
		uint32_t id = request_id(far->remote);
		unsigned i = far->seen < 3 ? far->seen : 0;
		struct facts facts = {.object = {.id.inode = 42, .mode = S_IFREG, .nlink = i}};

		if (!id) {
			sched_yield();
			continue;
		}
		lane_withdraw(far->remote->lane, id);
		wire_set_result(result, i ? 4 : 0, positions[i]);
		wire_put_raw(&reply, result, sizeof(result));
		if (i)
			wire_put_facts(&reply, &facts);
		else
			wire_put_attributes(&reply, &facts.object);
		far->seen++;
		give(far, FRAME_REPLY, id, reply.buffer.data, reply.buffer.size);
	}
	return NULL;
}

/* An open, and then nothing but refusals. */
static void *refuse_changes(void *argument)
{
	const struct attributes attributes = {.id.inode = 42, .mode = S_IFREG};
	struct far_end *far = argument;

	while (!far->stop) {
		cleanup_wire_writer struct wire_writer reply = {0};
		uint8_t result[WIRE_RESULT_BYTES];
		uint32_t id = request_id(far->remote);

		if (!id) {
			sched_yield();
			continue;
		}
		lane_withdraw(far->remote->lane, id);
		wire_set_result(result, far->seen ? -EFBIG : 0, 1);
		wire_put_raw(&reply, result, sizeof(result));
		if (!far->seen++)
			wire_put_attributes(&reply, &attributes);
		give(far, FRAME_REPLY, id, reply.buffer.data, reply.buffer.size);
	}
	return NULL;
}

static void test_a_flush_tells_what_was_refused_of_what_was_queued(void)
{
	const struct attributes want = {.size_bytes = 100};
	const struct file_lock none = {.kind = LOCK_KIND_FLOCK, .type = LOCK_NONE};
	struct far_end far = {0};
	struct attributes attributes;
	struct open_file *file;
	struct op_context ctx;

	op_context_init(&ctx);
	far_end_start(&far, refuse_changes);
	CHECK_RC(0, workspace_open_file(&ctx, &far.remote->base, &OBJECT_AT("f"), O_WRONLY, &file,
			    &attributes));
	CHECK_RC(1, ctx.served.round_trips);
	ctx.create_hint = CREATE_ASYNC;
	CHECK_RC(0, workspace_setattr(&ctx, &far.remote->base, &OBJECT_OF(file), SET_SIZE, &want,
			    &attributes));
	CHECK(ctx.served.is_async);
	CHECK_RC(1, ctx.served.round_trips);
	CHECK_RC(-EFBIG, workspace_flush(&ctx, file));
	CHECK_RC(0, workspace_flush(&ctx, file));
	ctx.served.round_trips = 0;
	CHECK_RC(0, workspace_lock(&ctx, file, &none, false));
	CHECK_RC(0, ctx.served.round_trips);
	CHECK_RC(-EFBIG, workspace_flush(&ctx, file));
	CHECK_RC(0, workspace_close(&ctx, file));
	while (request_id(far.remote)) /* nobody waits for the close */
		sched_yield();
	far_end_stop(&far);
}

static void test_a_flush_tells_the_latest_state_that_writes_left(void)
{
	struct far_end far = {0};
	struct attributes attributes;
	struct open_file *file;
	struct op_context ctx;
	struct facts facts;

	op_context_init(&ctx);
	far_end_start(&far, answer_writes);
	CHECK_RC(0, workspace_open_file(&ctx, &far.remote->base, &OBJECT_AT("f"), O_WRONLY, &file,
			    &attributes));
	CHECK_RC(3, ctx.served.position);
	ctx.facts = &facts;
	CHECK_RC(4, workspace_write(&ctx, file, "text", 4, 0));
	CHECK_RC(0, ctx.served.position);
	CHECK_RC(0, facts.object.mode);
	CHECK_RC(0, workspace_flush(&ctx, file));
	CHECK_RC(9, ctx.served.position);
	CHECK_RC(1, facts.object.nlink);
	CHECK_RC(4, workspace_write(&ctx, file, "text", 4, 0));
	CHECK_RC(0, workspace_flush(&ctx, file));
	CHECK_RC(9, ctx.served.position);
	CHECK_RC(1, facts.object.nlink);
	far.seen = 0; /* whatever a close is told */
	CHECK_RC(0, workspace_close(&ctx, file));
	CHECK_RC(9, ctx.served.position);
	while (request_id(far.remote)) /* nobody waits for the close */
		sched_yield();
	far_end_stop(&far);
}

/* ---- Watches ------------------------------------------------------------------------------ */

static struct {
	unsigned count;
	struct change changes[4];
	char paths[4][8];
} told;

static void note_told(void *user, const struct change *change)
{
	(void)user;
	if (told.count < 4) {
		told.changes[told.count] = *change;
		snprintf(told.paths[told.count], sizeof(told.paths[0]), "%s", change->path);
	}
	told.count++;
}

static void await_feed(struct remote *remote)
{
	pthread_mutex_lock(&remote->lock);
	while (remote->feed_delivered != remote->feed_received)
		pthread_cond_wait(&remote->feed_moved, &remote->lock);
	pthread_mutex_unlock(&remote->lock);
}

static bool has_calls(struct remote *remote)
{
	bool has;

	pthread_mutex_lock(&remote->lock);
	has = remote->call_count;
	pthread_mutex_unlock(&remote->lock);
	return has;
}

static void test_a_new_session_ends_the_watches_of_those_before(void)
{
	static const struct object_id former = {1, 2, 3}, later = {1, 2, 4};
	struct far_end far = {0};
	uint64_t base;

	told.count = 0;
	far_end_start(&far, run_far_end);
	CHECK_RC(0, remote_feed_start(far.remote, note_told, NULL));
	remote_note_watched(far.remote, "former", &former, 5);
	begin_session(far.remote);
	base = remote_base(far.remote);
	remote_note_watched(far.remote, "later", &later, base + 5);
	remote_feed_lost(far.remote);
	await_feed(far.remote);
	CHECK_RC(2, told.count);
	CHECK_RC(CHANGE_RESCAN, told.changes[0].kind);
	CHECK(told.changes[0].at == base);
	CHECK_RC(CHANGE_UNWATCHED, told.changes[1].kind);
	CHECK(told.changes[1].at == base);
	CHECK_STRING("former", told.paths[1]);
	CHECK(object_id_equal(&former, &told.changes[1].directory));
	CHECK_RC(1, remote_watched_count(far.remote));
	remote_feed_again(far.remote);
	while (has_calls(far.remote))
		usleep(1000);
	far_end_stop(&far);
}

/* ---- A full table ----------------------------------------------------------------------- */

static void ignore_change(void *user, const struct change *change)
{
	(void)user;
	(void)change;
}

static void *begin_feed_anew(void *argument)
{
	struct far_end *far = argument;

	remote_feed_lost(far->remote);
	remote_feed_again(far->remote);
	far->stop = true;
	return NULL;
}

/* The manager's thread does: while it waits nobody notices that the link is lost again. */
static void test_the_feed_of_a_new_session_waits_for_no_slot(void)
{
	static const struct remote_settings settings = {
		.scheme = &helper_scheme, .timeout_ms = 60000};
	const struct timespec pause = {.tv_nsec = 10000000};
	struct far_end far = {0};
	struct op_context ctx;
	struct remote_request request = {&ctx, NULL, REQUEST_STATFS};

	CHECK_RC(0, remote_new(&settings, &far.remote));
	CHECK_RC(0, remote_feed_start(far.remote, ignore_change, NULL));
	op_context_init(&ctx);
	request.remote = far.remote;
	for (int i = 0; i < CALLS_MAX; i++)
		CHECK_RC(0, remote_request_submit(&request, call_free, NULL));
	CHECK_RC(0, pthread_create(&far.thread, NULL, begin_feed_anew, &far));
	for (int i = 0; i < 100 && !far.stop; i++)
		nanosleep(&pause, NULL);
	CHECK(far.stop);
	pthread_mutex_lock(&far.remote->lock);
	remote_fail_calls(far.remote);
	pthread_mutex_unlock(&far.remote->lock);
	pthread_join(far.thread, NULL);
	pthread_mutex_lock(&far.remote->lock);
	remote_fail_calls(far.remote);
	pthread_mutex_unlock(&far.remote->lock);
	remote_release(far.remote);
}

/* What a program has open when it ends; a close that is refused leaves the file open there. */
static void test_thousands_of_handles_can_be_given_back_at_once(void)
{
	static const struct remote_settings settings = {
		.scheme = &helper_scheme, .timeout_ms = 60000};
	struct far_end far = {0};
	struct op_context ctx;
	struct remote_request request = {&ctx, NULL, REQUEST_CLOSE, .gives_back = true};

	CHECK_RC(0, remote_new(&settings, &far.remote));
	op_context_init(&ctx);
	request.remote = far.remote;
	for (int i = 0; i < HANDLES; i++)
		CHECK_RC(0, remote_request_submit(&request, call_free, NULL));
	pthread_mutex_lock(&far.remote->lock);
	remote_fail_calls(far.remote);
	pthread_mutex_unlock(&far.remote->lock);
	remote_release(far.remote);
}

TEST_MAIN("answers", TEST(test_what_a_session_forgot_is_asked_anew),
	TEST(test_sessions_that_all_forget_are_given_up),
	TEST(test_what_was_not_sent_in_its_session_is_in_no_other),
	TEST(test_a_read_is_given_up_as_late_as_any_request),
	TEST(test_a_read_that_a_write_overtakes_is_asked_for_behind_it),
	TEST(test_what_is_read_while_content_changes_is_not_kept),
	TEST(test_a_silent_helper_on_this_machine_is_waited_for),
	TEST(test_a_listing_has_all_its_parts),
	TEST(test_a_listing_that_is_given_up_after_its_answer_leaves_nothing),
	TEST(test_a_listing_without_end_is_refused),
	TEST(test_paths_that_grow_in_decoding_are_refused),
	TEST(test_positions_of_a_later_session_are_higher),
	TEST(test_positions_that_would_reach_the_next_session_are_refused),
	TEST(test_a_flush_tells_the_latest_state_that_writes_left),
	TEST(test_a_flush_tells_what_was_refused_of_what_was_queued),
	TEST(test_a_new_session_ends_the_watches_of_those_before),
	TEST(test_the_feed_of_a_new_session_waits_for_no_slot),
	TEST(test_thousands_of_handles_can_be_given_back_at_once))
