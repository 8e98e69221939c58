#include "backends/local/local_internal.h"

#include <errno.h>
#include <fcntl.h>

#include "backends/local/watch.h"
#include "ops/support/process.h"
#include "ops/support/socket_stream.h"

/* One of the two. */
struct local_process {
	struct process base;
	struct command *command;
	struct socket_stream *stream;
};

static struct local_process *process_of(struct process *process)
{
	return (struct local_process *)process;
}

static bool is_interrupted(void *ctx)
{
	return op_interrupted(ctx);
}

static struct command_interrupt interrupt_of(struct op_context *ctx)
{
	return (struct command_interrupt){ctx->interrupted ? is_interrupted : NULL, ctx};
}

static int start_command(struct op_context *ctx, struct workspace *workspace,
	const struct exec_request *request, struct command **ret_command)
{
	cleanup_fd int cwd_fd =
		local_open_path(local_from(workspace), request->cwd, O_PATH | O_DIRECTORY, 0);

	if (cwd_fd < 0)
		return cwd_fd;
	/* What is reported at a later position was changed since. */
	local_drain(local_from(workspace));
	local_draw(ctx);
	return command_start(request, cwd_fd, ret_command);
}

int local_exec(struct op_context *ctx, struct workspace *workspace,
	const struct exec_request *request, struct process **ret_process)
{
	cleanup_free struct local_process *process = calloc(1, sizeof(*process));
	int r;

	if (!process)
		return -ENOMEM;
	process->base.workspace = workspace;
	if (request->flags & EXEC_STREAM)
		r = socket_stream_open(request->argv, interrupt_of(ctx), &process->stream);
	else
		r = start_command(ctx, workspace, request, &process->command);
	if (r < 0)
		return r;
	*ret_process = &steal_ptr(&process)->base;
	return 0;
}

int local_process_next(struct op_context *ctx, struct process *process, void *buffer, size_t size,
	struct exec_event *ret_event)
{
	struct watcher *watcher = local_from(process->workspace)->watcher;
	struct local_process *p = process_of(process);
	int r;

	if (p->stream)
		return socket_stream_next(p->stream, interrupt_of(ctx), buffer, size, ret_event);
	r = command_next(p->command, interrupt_of(ctx), buffer, size, ret_event);
	if (r == 0 && ret_event->type == EXEC_EXIT && watcher)
		watcher_drain(watcher);
	return r;
}

ssize_t local_process_write(
	struct op_context *ctx, struct process *process, const void *data, size_t size)
{
	struct local_process *p = process_of(process);

	if (p->stream)
		return socket_stream_write(p->stream, interrupt_of(ctx), data, size);
	return command_write(p->command, interrupt_of(ctx), data, size);
}

int local_process_close_stdin(struct op_context *ctx, struct process *process)
{
	struct local_process *p = process_of(process);

	(void)ctx;
	return p->stream ? socket_stream_close_input(p->stream) : command_close_stdin(p->command);
}

int local_process_signal(struct op_context *ctx, struct process *process, int signal)
{
	struct local_process *p = process_of(process);

	(void)ctx;
	return p->stream ? -ESRCH : command_signal(p->command, signal);
}

int local_process_resize(
	struct op_context *ctx, struct process *process, uint16_t rows, uint16_t columns)
{
	struct local_process *p = process_of(process);

	(void)ctx;
	return p->stream ? -EINVAL : command_resize(p->command, rows, columns);
}

void local_process_free(struct process *process)
{
	socket_stream_free(process_of(process)->stream);
	command_free(process_of(process)->command);
	free(process);
}
