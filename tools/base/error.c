#include <errno.h>
#include <string.h>

#include "tools/base/tool.h"

static const struct tool_error_info infos[] = {
	[TOOL_OK] = {"OK", "", true},
	[TOOL_NOT_FOUND] = {"NOT_FOUND",
		"Check the path: list the directory with ls, or look for the name with find.",
		true},
	[TOOL_NOT_A_FILE] = {"NOT_A_FILE",
		"Give the path of a regular file; use ls to list a directory.", true},
	[TOOL_NOT_A_DIRECTORY] = {"NOT_A_DIRECTORY", "Check the path with ls; use read for a file.",
		true},
	[TOOL_ALREADY_EXISTS] = {"ALREADY_EXISTS",
		"Choose another path, or say that it may be overwritten.", true},
	[TOOL_PERMISSION_DENIED] = {"PERMISSION_DENIED",
		"Do not try to reach the same in another way: go on without it, or ask the user.",
		false},
	[TOOL_PATH_OUTSIDE_ROOT] = {"PATH_OUTSIDE_ROOT",
		"Use a path below the root, relative to it; use ls without a path to see what is "
		"there.",
		true},
	[TOOL_INVALID_ARGUMENT] = {"INVALID_ARGUMENT", "Correct the argument and call again.",
		true},
	[TOOL_NO_MATCH] = {"NO_MATCH",
		"Read the file again and copy the text exactly as it is there, then call again.",
		true},
	[TOOL_AMBIGUOUS_MATCH] = {"AMBIGUOUS_MATCH",
		"Give more of the lines around it so that it occurs once, or set replace_all.",
		true},
	[TOOL_NO_CHANGE] = {"NO_CHANGE",
		"The file already has that content: continue, or give a different text.", true},
	[TOOL_CONFLICT] = {"CONFLICT",
		"Read the file again, make the edit for its present content, and use its new hash.",
		true},
	[TOOL_SYNTAX_ERROR] = {"SYNTAX_ERROR",
		"Nothing was written. Correct the content at that place and call again; set "
		"validate_syntax to false only if the content must stay like that.",
		true},
	[TOOL_TOO_LARGE] = {"TOO_LARGE", "Ask for less: a range of lines, or a narrower search.",
		true},
	[TOOL_BINARY_FILE] = {"BINARY_FILE",
		"It cannot be shown as text: use bash with a program that knows the format, or "
		"read with encoding base64.",
		true},
	[TOOL_TIMEOUT] = {"TIMEOUT", "Give it more time with timeout_s, or do it in smaller steps.",
		true},
	[TOOL_ABORTED] = {"ABORTED",
		"The call was cancelled: repeat it only if it is still needed.", true},
	[TOOL_NO_SPACE] = {"NO_SPACE",
		"The old content is untouched. Free space at the workspace (delete what is not "
		"needed), "
		"then call again.",
		false},
	[TOOL_IO_ERROR] = {"IO_ERROR",
		"Call once more; if it fails again, tell the user what the message says.", false},
	[TOOL_NOT_CONNECTED] = {"NOT_CONNECTED",
		"The mount reconnects by itself: call again in a minute. If that does not help, "
		"ask the user to look at `isthmus status`, and to mount it again if it is gone.",
		false},
	[TOOL_UNSUPPORTED] = {"UNSUPPORTED",
		"This workspace cannot do that: do it another way, for example with bash.", false},
	[TOOL_EXIT_STATUS] = {"EXIT_STATUS", "Read the output above for the reason.", true},
	[TOOL_RATE_LIMITED] = {"RATE_LIMITED",
		"Wait a minute before the next request to that host, or use another source.", true},
};

const struct tool_error_info *tool_error_info(enum tool_error_code code)
{
	return &infos[code];
}

const char *tool_level_name(enum tool_level level)
{
	static const char *const names[] = {"READ", "MODIFY", "DANGEROUS"};

	return names[level];
}

/* Each errno in ops/workspace.h must have a row; a test checks that. */
static const struct {
	int number;
	enum tool_error_code code;
	const char *reason; /* NULL: use strerror() */
} rows[] = {
	{ENOENT, TOOL_NOT_FOUND, "it does not exist"},
	{ENOTDIR, TOOL_NOT_A_DIRECTORY, "a part of the path is not a directory"},
	{EISDIR, TOOL_NOT_A_FILE, "it is a directory"},
	{ESPIPE, TOOL_NOT_A_FILE, "it is a device, pipe or socket, not a regular file"},
	{EEXIST, TOOL_ALREADY_EXISTS, "it exists already"},
	{ENOTEMPTY, TOOL_INVALID_ARGUMENT, "the directory is not empty"},
	{EACCES, TOOL_PERMISSION_DENIED, "the file's permissions do not let this user do it"},
	{EPERM, TOOL_PERMISSION_DENIED, "the workspace does not let this user do it"},
	{EROFS, TOOL_PERMISSION_DENIED, "the workspace is read-only"},
	{ETXTBSY, TOOL_PERMISSION_DENIED, "it is a program that is running"},
	{EXDEV, TOOL_PATH_OUTSIDE_ROOT, "it leads out of the root directory"},
	{ELOOP, TOOL_INVALID_ARGUMENT,
		"its symbolic links lead in a circle, or there are too many"},
	{ENAMETOOLONG, TOOL_INVALID_ARGUMENT, "the name is too long"},
	{EINVAL, TOOL_INVALID_ARGUMENT, NULL},
	{ENXIO, TOOL_NOT_A_FILE, "it is a device, pipe or socket, not a regular file"},
	{ENOEXEC, TOOL_INVALID_ARGUMENT, "it is not a program that can run there"},
	{EBADF, TOOL_IO_ERROR, NULL},
	{ERANGE, TOOL_TOO_LARGE, NULL},
	{E2BIG, TOOL_TOO_LARGE, NULL},
	{EFBIG, TOOL_TOO_LARGE, "it is too large"},
	{EMSGSIZE, TOOL_TOO_LARGE, "it is too large"},
	{EOVERFLOW, TOOL_TOO_LARGE, NULL},
	{EMLINK, TOOL_TOO_LARGE, NULL},
	{ENODATA, TOOL_NOT_FOUND, NULL},
	{ESRCH, TOOL_NOT_FOUND, NULL},
	{ENOSPC, TOOL_NO_SPACE, "no space is left at the workspace"},
	{EDQUOT, TOOL_NO_SPACE, "the user's quota is used up"},
	{EAGAIN, TOOL_CONFLICT, "it is being changed by somebody else"},
	{EBUSY, TOOL_CONFLICT, "it is in use"},
	{ESTALE, TOOL_CONFLICT, "it was replaced by another one meanwhile"},
	{EDEADLK, TOOL_CONFLICT, NULL},
	{ENOLCK, TOOL_CONFLICT, NULL},
	{EINTR, TOOL_ABORTED, "it was interrupted"},
	{ECANCELED, TOOL_ABORTED, "it was cancelled"},
	{ETIMEDOUT, TOOL_TIMEOUT, "it took too long"},
	{EIO, TOOL_IO_ERROR, "the workspace reported an input/output error"},
	{ENOMEM, TOOL_IO_ERROR, "there is not enough memory"},
	{EMFILE, TOOL_IO_ERROR, "too many files are open"},
	{ENFILE, TOOL_IO_ERROR, "too many files are open"},
	{EPIPE, TOOL_NOT_CONNECTED, "the connection to the mount was lost"},
	{ECONNRESET, TOOL_NOT_CONNECTED, "the connection to the mount was lost"},
	{ECONNREFUSED, TOOL_NOT_CONNECTED, "the mount's daemon is not running"},
	{ENOTCONN, TOOL_NOT_CONNECTED, "the workspace is out of reach"},
	{ENODEV, TOOL_UNSUPPORTED, NULL},
	{EOPNOTSUPP, TOOL_UNSUPPORTED, "the workspace cannot do this"},
	{ENOSYS, TOOL_UNSUPPORTED, "the system cannot do this"},
	{ENOTTY, TOOL_UNSUPPORTED, NULL},
};

enum tool_error_code tool_error_from_errno(int error, const char **ret_reason)
{
	for (size_t i = 0; i < array_size(rows); i++) {
		if (rows[i].number == -error) {
			*ret_reason = rows[i].reason ? rows[i].reason : strerror(-error);
			return rows[i].code;
		}
	}
	*ret_reason = strerror(-error);
	return TOOL_IO_ERROR;
}
