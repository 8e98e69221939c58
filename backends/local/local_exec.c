#include "backends/local/local_internal.h"

#include <errno.h>
#include <fcntl.h>

#include "backends/local/watch.h"
#include "ops/support/process.h"

struct local_process {
	struct process base;
	struct command *command;
};

static struct command *command_of(struct process *process)
{
	return ((struct local_process *)process)->command;
}

int local_exec(struct op_context *ctx, struct workspace *workspace,
	const struct exec_request *request, struct process **ret_process)
{
	cleanup_free struct local_process *process = malloc(sizeof(*process));
	cleanup_fd int cwd_fd = -1;
	int r;

	(void)ctx;
	if (!process)
		return -ENOMEM;
	cwd_fd = local_open_path(local_from(workspace), request->cwd, O_PATH | O_DIRECTORY, 0);
	if (cwd_fd < 0)
		return cwd_fd;
	process->base.workspace = workspace;
	r = command_start(request, cwd_fd, &process->command);
	if (r < 0)
		return r;
	*ret_process = &steal_ptr(&process)->base;
	return 0;
}

static bool is_interrupted(void *ctx)
{
	return op_interrupted(ctx);
}

static struct command_interrupt interrupt_of(struct op_context *ctx)
{
	return (struct command_interrupt){ctx->interrupted ? is_interrupted : NULL, ctx};
}

int local_process_next(struct op_context *ctx, struct process *process, void *buffer, size_t size,
	struct exec_event *ret_event)
{
	struct watcher *watcher = local_from(process->workspace)->watcher;
	int r = command_next(command_of(process), interrupt_of(ctx), buffer, size, ret_event);

	if (r == 0 && ret_event->type == EXEC_EXIT && watcher)
		watcher_drain(watcher);
	return r;
}

ssize_t local_process_write(
	struct op_context *ctx, struct process *process, const void *data, size_t size)
{
	return command_write(command_of(process), interrupt_of(ctx), data, size);
}

int local_process_close_stdin(struct op_context *ctx, struct process *process)
{
	(void)ctx;
	return command_close_stdin(command_of(process));
}

int local_process_signal(struct op_context *ctx, struct process *process, int signal)
{
	(void)ctx;
	return command_signal(command_of(process), signal);
}

int local_process_resize(
	struct op_context *ctx, struct process *process, uint16_t rows, uint16_t columns)
{
	(void)ctx;
	return command_resize(command_of(process), rows, columns);
}

void local_process_free(struct process *process)
{
	command_free(command_of(process));
	free(process);
}
