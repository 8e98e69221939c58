#include "backends/remote/client/client.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/remote/client/client_internal.h"
#include "backends/remote/client/end.h"

void remote_settings_done(struct remote_settings *settings)
{
	transport_done(&settings->transport);
	argv_free_words(settings->target.engine);
	free(settings->target.user);
	free(settings->target.name);
	free(settings->target.container);
	free(settings->root);
	free(settings->helper_directory);
	free(settings->session_path);
}

void remote_release(struct remote *remote)
{
	remote_feed_stop(remote);
	remote_identity_forget(remote);
	if (remote->session_fd >= 0)
		close(remote->session_fd);
	remote_prepared_free(remote);
	lane_free(remote->lane);
	hash_table_done(&remote->files);
	remote_channels_free(remote);
	for (size_t i = 0; i < ANSWER_CONDITIONS; i++)
		pthread_cond_destroy(&remote->answered[i]);
	pthread_cond_destroy(&remote->freed);
	pthread_cond_destroy(&remote->manager);
	pthread_cond_destroy(&remote->feed_moved);
	pthread_mutex_destroy(&remote->lock);
	free(remote);
}

/* What is still under way nobody waits for: answers that did not come in time. */
void remote_free(struct workspace *w)
{
	struct remote *remote = remote_of(w);

	remote_manager_stop(remote);
	pthread_mutex_lock(&remote->lock);
	remote_fail_calls(remote);
	pthread_mutex_unlock(&remote->lock);
	remote_settings_done(&remote->settings);
	remote_release(remote);
}

static enum link_state link_of(struct remote *remote)
{
	if (!remote->bad_since_ms)
		return LINK_ONLINE;
	return remote_is_offline(remote) ? LINK_OFFLINE : LINK_DEGRADED;
}

void remote_status(struct workspace *w, struct workspace_status *ret_status)
{
	struct remote *remote = remote_of(w);
	struct lane_counters counters;

	lane_count(remote->lane, &counters);
	remote_channels_add_traffic(remote, &counters);
	*ret_status = (struct workspace_status){.link = link_of(remote),
		.round_trips = remote->round_trips,
		.bytes_sent = counters.bytes_sent,
		.bytes_received = counters.bytes_received,
		.reconnects = remote->reconnects,
		.channels = remote_channel_count(remote),
		.watched_directories = remote_watched_count(remote),
		.unwatched_directories = remote->unwatched};
	pthread_mutex_lock(&remote->lock);
	ret_status->capabilities = (unsigned)remote->capabilities | WORKSPACE_IS_REMOTE;
	ret_status->owner_uid = remote->owner_uid;
	ret_status->owner_gid = remote->owner_gid;
	memcpy(ret_status->last_error, remote->last_error, sizeof(ret_status->last_error));
	pthread_mutex_unlock(&remote->lock);
}

/* The name is that of the scheme. */
static const struct workspace_ops remote_ops = {.free = remote_free,
	.status = remote_status,
	.getattr = remote_getattr,
	.readdir = remote_readdir,
	.scan = remote_scan,
	.readlink = remote_readlink,
	.mkdir = remote_mkdir,
	.mknod = remote_mknod,
	.symlink = remote_symlink,
	.link = remote_link,
	.unlink = remote_unlink,
	.rmdir = remote_rmdir,
	.rename = remote_rename,
	.setattr = remote_setattr,
	.getxattr = remote_getxattr,
	.listxattr = remote_listxattr,
	.setxattr = remote_setxattr,
	.removexattr = remote_removexattr,
	.statfs = remote_statfs,
	.check = remote_check,
	.open_file = remote_open_file,
	.create = remote_create,
	.await_name = remote_await_name,
	.create_unnamed = remote_create_unnamed,
	.read = remote_read,
	.write = remote_write,
	.flush = remote_flush,
	.fsync = remote_fsync,
	.close = remote_close,
	.fallocate = remote_fallocate,
	.seek = remote_seek,
	.copy_range = remote_copy_range,
	.lock = remote_lock,
	.lock_test = remote_lock_test,
	.lock_release_owner = remote_lock_release_owner,
	.exec = remote_exec,
	.process_next = remote_process_next,
	.process_write = remote_process_write,
	.process_close_stdin = remote_process_close_stdin,
	.process_signal = remote_process_signal,
	.process_resize = remote_process_resize,
	.process_free = remote_process_free,
	.watch = remote_watch,
	.unwatch = remote_unwatch};

/* ---- What the link hands up -------------------------------------------------------------- */

int remote_received(void *user, const struct frame_header *header, uint8_t *payload)
{
	struct remote *remote = user;

	switch (header->type) {
	case FRAME_REPLY:
	case FRAME_DATA:
		return remote_take_answer(remote, header, payload);
	case FRAME_CHANGE:
		return remote_feed_take(remote, payload, header->size);
	case FRAME_OUTPUT:
	case FRAME_EXIT:
	case FRAME_INPUT_CREDIT:
		return remote_process_frame(remote, header, payload);
	default:
		free(payload);
		return -EPROTO;
	}
}

static void session_ended(struct remote *remote)
{
	remote_fail_calls(remote);
	remote_processes_lost(remote);
}

static const struct link_handlers handlers = {.received = remote_received,
	.session_ended = session_ended,
	.channel_ended = remote_fail_calls_of,
	.session_is_other = remote_feed_lost,
	.session_is_attached = remote_feed_again};

int remote_new(const struct remote_settings *settings, struct remote **ret_remote)
{
	static const struct lane_callbacks callbacks = {
		.received = remote_received, .lost = remote_lost};
	struct remote *remote = calloc(1, sizeof(*remote));
	int r;

	if (!remote)
		return -ENOMEM;
	remote->ops = remote_ops;
	remote->ops.name = settings->scheme->about.name;
	remote->base.ops = &remote->ops;
	remote->settings = *settings;
	remote->above = &handlers;
	remote->session_fd = -1;
	pthread_mutex_init(&remote->lock, NULL);
	for (size_t i = 0; i < ANSWER_CONDITIONS; i++)
		clock_cond_init(&remote->answered[i]);
	clock_cond_init(&remote->freed);
	clock_cond_init(&remote->manager);
	clock_cond_init(&remote->feed_moved);
	remote->feed_last = &remote->feed_first;
	r = hash_table_init_small(&remote->files);
	if (r == 0)
		r = hash_table_init_small(&remote->watched);
	if (r == 0)
		r = lane_new(&callbacks, remote, &remote->lane);
	if (r == 0)
		r = remote_channels_new(remote);
	if (r < 0) {
		remote_release(remote);
		return r;
	}
	*ret_remote = remote;
	return 0;
}

int remote_workspace_new(
	const struct remote_settings *settings, struct workspace **ret_workspace, char **ret_reason)
{
	struct remote *remote;
	int r = remote_new(settings, &remote);

	if (r < 0)
		return r;
	signal(SIGPIPE, SIG_IGN); /* a far end that goes away is an error of write(2) */
	remote_session_recall(remote);
	r = remote_connect(remote, true, ret_reason);
	if (r == 0) {
		r = transport_ask_nothing(&remote->settings.transport);
		if (r == 0)
			r = remote_manager_start(remote);
		if (r < 0)
			remote_manager_stop(remote);
	}
	if (r < 0) {
		remote_release(remote);
		return r;
	}
	*ret_workspace = &remote->base;
	return 0;
}
