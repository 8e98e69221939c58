/* Which handler serves which request. */
#include "backends/remote/server/server_internal.h"
#include "ops/support/cleanup.h"

static const struct request_type request_types[] = {
	[REQUEST_GETATTR] = {handle_getattr},
	[REQUEST_READDIR] = {handle_readdir, .is_bulk = true},
	[REQUEST_SCAN] = {handle_scan, .is_long = true, .is_bulk = true},
	[REQUEST_READLINK] = {handle_readlink},
	[REQUEST_MKDIR] = {handle_mkdir, .is_change = true},
	[REQUEST_MKNOD] = {handle_mknod, .is_change = true},
	[REQUEST_SYMLINK] = {handle_symlink, .is_change = true},
	[REQUEST_LINK] = {handle_link, .is_change = true},
	[REQUEST_UNLINK] = {handle_unlink, .is_change = true},
	[REQUEST_RMDIR] = {handle_rmdir, .is_change = true},
	[REQUEST_RENAME] = {handle_rename, .is_change = true},
	[REQUEST_SETATTR] = {handle_setattr},
	[REQUEST_GETXATTR] = {handle_getxattr},
	[REQUEST_LISTXATTR] = {handle_listxattr},
	[REQUEST_SETXATTR] = {handle_setxattr, .is_change = true},
	[REQUEST_REMOVEXATTR] = {handle_removexattr, .is_change = true},
	[REQUEST_STATFS] = {handle_statfs},
	[REQUEST_OPEN] = {handle_open},
	[REQUEST_CREATE] = {handle_create, .is_change = true},
	[REQUEST_CREATE_UNNAMED] = {handle_create_unnamed},
	[REQUEST_READ] = {handle_read, .is_bulk = true},
	[REQUEST_WRITE] = {handle_write, .is_change = true},
	[REQUEST_FSYNC] = {handle_fsync},
	[REQUEST_CLOSE] = {handle_close},
	[REQUEST_FALLOCATE] = {handle_fallocate, .is_change = true},
	[REQUEST_SEEK] = {handle_seek},
	[REQUEST_COPY_RANGE] = {handle_copy_range, .is_long = true, .is_change = true},
	[REQUEST_LOCK] = {handle_lock, .is_long = true},
	[REQUEST_LOCK_TEST] = {handle_lock_test, .is_long = true},
	[REQUEST_LOCK_RELEASE_OWNER] = {handle_lock_release_owner},
	[REQUEST_EXEC] = {handle_exec, .is_long = true},
	[REQUEST_SIGNAL] = {handle_signal},
	[REQUEST_RESIZE] = {handle_resize},
	[REQUEST_WATCH] = {handle_watch},
};

const struct request_type *server_request_type(unsigned type)
{
	if (type >= array_size(request_types) || !request_types[type].handle)
		return NULL;
	return &request_types[type];
}
