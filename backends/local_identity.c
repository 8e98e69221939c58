#include "backends/local_internal.h"

#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool has_capability(const struct local_workspace *w, unsigned capability)
{
	return w->capabilities[capability / 32].effective & (1U << (capability % 32));
}

void local_identity_init(struct local_workspace *w)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	w->own_uid = geteuid();
	w->own_gid = getegid();
	if (syscall(SYS_capget, &header, w->capabilities) < 0)
		return;
	w->can_switch = has_capability(w, CAP_SETUID) && has_capability(w, CAP_SETGID);
}

/* These calls concern the calling thread only. */
struct local_guise local_act_as(const struct local_workspace *w, const struct op_context *ctx)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	if (!w->can_switch || (ctx->uid == w->own_uid && ctx->gid == w->own_gid))
		return (struct local_guise){NULL};
	setfsgid(ctx->gid);
	setfsuid(ctx->uid);
	/* Leaving uid 0 drops the file system capabilities, and the caller may stand in a
	 * supplementary group that only the kernel above knows of: take them back. */
	syscall(SYS_capset, &header, w->capabilities);
	return (struct local_guise){w};
}

void local_guise_done(struct local_guise *guise)
{
	if (!guise->worn_for)
		return;
	setfsuid(guise->worn_for->own_uid);
	setfsgid(guise->worn_for->own_gid);
}
